"""BPF statistics: run time, run counts and recursion misses of a tool's programs, from fdinfo.

Run time is counted while a file of `open_stats` is open, in any process; the sysctl kernel.bpf_stats_enabled is not
changed. That needs CAP_SYS_ADMIN. A `tracepoint:` or `kprobe:` program doesn't run while it interrupts another on its
CPU (bpf_prog_active): counted as recursion_misses since 6.7. Only root can read the counters; they are None, never 0,
where they can't be read or the kernel doesn't count.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from latmon.support.paths import text
from latmon.support.process import descendants


@dataclass(frozen=True, slots=True)
class ProgramTotals:
    """Sums over all programs of a process and its descendants, since they were loaded."""

    run_ns: int | None = None
    runs: int | None = None
    skipped: int | None = None


def totals(pid: int, proc: Path = Path("/proc")) -> ProgramTotals:
    """Return the sums, each program once: several processes and files may have it open."""
    found: dict[str, dict[str, str]] = {}
    for one in (pid, *descendants(pid, proc)):
        for info in _fdinfo(one, proc):
            fields = dict(line.split(":\t", 1) for line in info.splitlines() if ":\t" in line)
            if "prog_id" in fields and "prog_type" in fields:
                found[fields["prog_id"]] = fields
    values = tuple(found.values())
    return ProgramTotals(_sum(values, "run_time_ns"), _sum(values, "run_cnt"), _sum(values, "recursion_misses"))


class Skipped:
    """Differences of the number of skipped runs."""

    def __init__(self) -> None:
        self._before: int | None = None

    def since_last(self, now: int | None) -> int | None:
        """Return the runs skipped since the last call; None at the first one and where not known."""
        before, self._before = self._before, now
        return None if now is None or before is None else max(0, now - before)


def _sum(programs: tuple[dict[str, str], ...], name: str) -> int | None:
    numbers = [int(fields[name]) for fields in programs if fields.get(name, "").isdigit()]
    return sum(numbers) if numbers else None


def _fdinfo(pid: int, proc: Path) -> Iterator[str]:
    try:
        files = list((proc / str(pid) / "fdinfo").iterdir())
    except OSError:  # not ours to read, or gone
        return
    yield from (text(file) for file in files)


_ENABLE_STATS, _RUN_TIME = 32, 0
_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_ATTRIBUTES = 128


def open_stats() -> int:
    """Open a file that has run times counted until it is closed. OSError without the privilege or kernel support."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"bpf(2) has no known number on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_RUN_TIME.to_bytes(4, "little"), _ATTRIBUTES)
    fd = int(ctypes.CDLL(None, use_errno=True).syscall(number, _ENABLE_STATS, attributes, _ATTRIBUTES))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.set_inheritable(fd, False)  # else every program that we start would count on
    return fd
