"""Run time of BPF programs: switched on for as long as a file stays open, read from the fdinfo of who loaded them.

BPF_ENABLE_STATS (Linux 5.8) counts users: the kernel takes ours back when the file closes, however this process ends,
and leaves the sysctl kernel.bpf_stats_enabled as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from latmon_backends.probe.launcher import open_stats

_ON_BLOCK_IO = {"5": "tracepoint", "17": "raw tracepoint"}
"""prog_type: bpftrace's BEGIN and END are uprobes (2), which are there long before the others; an interval is 7."""


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Run times are counted while this is open. OSError without the privilege or before Linux 5.8."""
    fd = open_stats()
    try:
        yield
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Spent:
    """Runs and run time of one program since it was loaded."""

    ns: int
    runs: int

    def since(self, earlier: Spent) -> Spent:
        return Spent(self.ns - earlier.ns, self.runs - earlier.runs)


def programs(pid: int) -> dict[int, Spent]:
    """Program id -> what it spent, of the programs on block I/O that process `pid` holds."""
    found: dict[int, Spent] = {}
    for entry in Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            fields = dict(line.split(":\t", 1) for line in entry.read_text().splitlines() if ":\t" in line)
        except OSError:  # closed between the two
            continue
        if fields.get("prog_type") in _ON_BLOCK_IO:
            found[int(fields["prog_id"])] = Spent(int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return found


def name(program: int) -> str:
    """Return bpftool's name, such as block_rq_issue, 15 characters at most; its id without bpftool."""
    try:
        text = subprocess.run(["bpftool", "prog", "show", "id", str(program), "-j"], capture_output=True, check=True)
        return str(json.loads(text.stdout)["name"])
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError):
        return str(program)
