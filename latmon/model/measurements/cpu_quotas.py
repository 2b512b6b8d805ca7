"""Cgroups with a CPU quota: how often they used it up, and the I/O of their programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import CGROUP, Meaning, Part, Table, Unit, record_of_counts

_MOST_US = 1 << 62


class CpuQuota(NamedTuple):
    """Key of a cgroup's CPU quota; a quota that is changed is another one."""

    cgroup: str
    process: str
    """NAME/PID of the process in it with most bytes of I/O; empty: none had I/O, or it may not be read."""
    quota_us: int
    period_us: int


@dataclass(frozen=True, slots=True)
class QuotaPeriods:
    """Periods of a CPU quota in which the cgroup had something to run."""

    periods: int
    throttled: int
    """Those in which it used up the quota, so that its threads had to wait for the next one."""
    throttled_us: int
    """The time of these waits, of each CPU."""
    io_bytes: int
    """Bytes that the process read from and wrote to devices."""
    served_bytes: int = 0
    """Counts the bytes of system calls instead, of a process that serves FUSE."""

    @property
    def moved_bytes(self) -> int:
        """Return the bytes of either kind."""
        return self.io_bytes + self.served_bytes


CPU_QUOTAS = Table(
    "cpu_quotas",
    CpuQuota,
    (CGROUP, Part(Meaning.PROCESS), Part(highest=_MOST_US), Part(highest=_MOST_US)),
    record_of_counts(QuotaPeriods, others=Unit.EVENTS, optional=("served_bytes",)),
    group="cpu",
    export_name="cpu_quota",
    row_title="a CPU quota",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)
"""CPU quotas of cgroups that ran, those that were used up most often; none: no such cgroup, or they were not read."""
