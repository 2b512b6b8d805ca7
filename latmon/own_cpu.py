"""What latmon itself costs: CPU time of the collector and of everything it started, the probe child included.

Reads /proc (a parameter) and follows `task/*/children`, so that a host with 50,000 processes costs no more than an
empty one. Knows nothing of frames.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from latmon.files import text
from latmon.processes import descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME = 11
"""Index of utime in /proc/PID/stat behind the comm; stime, cutime and cstime follow."""


class OwnCpu:
    """Percent of one CPU since the call before; exact for this process, in clock ticks (10 ms) for its children."""

    def __init__(
        self, proc: Path = Path("/proc"), pid: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc, self._pid, self._clock = proc, os.getpid() if pid is None else pid, clock
        self._before = (clock(), self._spent())

    def percent(self) -> float | None:
        """None when no time has passed. A child that was never waited for takes its time with it: never negative."""
        now, spent = self._clock(), self._spent()
        (earlier, before), self._before = self._before, (now, spent)
        return None if now <= earlier else round(100 * max(0.0, spent - before) / (now - earlier), 2)

    def _spent(self) -> float:
        return time.process_time() + sum(self._ticks(pid) for pid in descendants(self._pid, self._proc)) / _TICKS_PER_S

    def _ticks(self, pid: int) -> int:
        fields = text(self._proc / str(pid) / "stat").rpartition(")")[2].split()
        return sum(int(field) for field in fields[_UTIME : _UTIME + 4])
