"""Programs with I/O that wait for a CPU for most of the time in which they could run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import CGROUP, TEXT, Meaning, Part, Table, Unit, record_of_counts

SHARES, WEIGHT, IDLE = "cpu.shares", "cpu.weight", "cpu.idle"
"""Files that have a cgroup's weight, of version 1 and 2, and whether it has the least one."""
USUAL_WEIGHTS = {SHARES: 1024, WEIGHT: 100, IDLE: 0}
_MOST_WEIGHT = 1 << 18
"""MAX_SHARES of version 1."""


class CpuWaiter(NamedTuple):
    """Key of a process that waits for a CPU, with what decides on its turn."""

    process: str
    """NAME/PID."""
    cgroup: str
    """The one whose weight makes it wait, else its own."""
    weight_file: str
    """File of USUAL_WEIGHTS; empty: the weight is no reason, or it is not known what runs instead."""
    weight: int
    cpus: str
    """The CPUs that it may use, such as `0-2,5` or `128 CPUs`; empty: all, or not known."""
    nice: int
    """Where its nice value makes it wait, else 0: of processes in different cgroups the weights of these decide."""
    instead: str
    """NAME/PID of the process that ran most on those CPUs; empty: not known."""
    is_background: int = 0
    """1: its nice value or the weight was set so that others run first, or it is a kernel thread of an isolated CPU. A
    pod's weight follows from its CPU request: 0."""
    instead_policy: str = ""
    """Policy and priority of that process, `SCHED_FIFO 50`; empty: it has no real-time policy, or that is not known."""


@dataclass(frozen=True, slots=True)
class CpuWait:
    """Times from look to look, of all threads of the process together."""

    lasted_us: int
    """Time between the looks."""
    ran_us: int
    waited_us: int
    """Ready to run, in the queue of a CPU."""
    runs: int
    """How often a thread got a CPU."""
    io_bytes: int
    """Bytes that the process read from devices and made dirty; 0: a kernel thread, which does the I/O of others."""


CPU_WAITS = Table(
    "cpu_waits",
    CpuWaiter,
    (
        Part(Meaning.PROCESS),
        CGROUP,
        Part(names=("", *USUAL_WEIGHTS)),
        Part(highest=_MOST_WEIGHT),
        TEXT,
        Part(lowest=-20, highest=19),
        Part(Meaning.PROCESS),
        Part(highest=1),
        TEXT,
    ),
    record_of_counts(CpuWait, others=Unit.EVENTS),
    group="cpu",
    export_name="cpu_wait",
    row_title="a process with I/O that waits for a CPU",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)
"""Processes with I/O that waited for a CPU longer than they ran, and sleep of themselves, while programs of the host
wait for CPUs. A program that computes is not in it: it is taken off its CPU, and does not sleep. Nor is one that waits
for another process of its own name. Kernel threads, which have no bytes, are in it where what runs instead has a
real-time policy."""
