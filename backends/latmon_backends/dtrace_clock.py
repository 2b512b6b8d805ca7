"""How far DTrace's clock is ahead of ours, where the two aren't one.

FreeBSD's `timestamp` is the processor's own counter, scaled and never corrected (sys/cddl/dev/dtrace, dtrace_gethrtime)
as CLOCK_MONOTONIC is. So they differ by what they differed at boot, and drift. A line is read some time after its stamp
was taken: of the lines of the last minutes the one that took least time tells the distance best.
"""

from __future__ import annotations

from collections import deque

_LINES = 120


class DtraceClock:
    """Of one capture: `hear` each tick's stamp as its line is read."""

    def __init__(self) -> None:
        self._heard: deque[int] = deque(maxlen=_LINES)

    def hear(self, stamp_ns: int, now_us: int) -> None:
        """A stamp, and our clock as its line is read."""
        self._heard.append(stamp_ns // 1000 - now_us)

    def ahead_us(self) -> int:
        """Negative where DTrace's is behind; 0 before anything was heard."""
        return max(self._heard, default=0)
