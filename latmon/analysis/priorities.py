"""Thread priorities in words, by the platform of the host.

illumos and Solaris: priocntl(2), uts/common/disp and sys/class.h. FreeBSD: sys/sys/priority.h, whose ranges between
interrupt and idle threads differ from release to release (8, 13 and 15 were compared), so they have no names here.
"""

from __future__ import annotations

_SUN, _FREEBSD = "SunOS", "FreeBSD"
_CLASSES = ((60, "TS, IA or FSS class"), (100, "SYS class"), (160, "RT class"))
"""Classes of illumos and Solaris, by the first number above each; interrupt threads are above all of them."""
_REAL_TIME = 100
"""Classes of Linux: p->prio is 0-98 for real time, 100-139 for nice -20 to 19."""
_SCALES = {
    _SUN: (
        "a higher prio runs first: TS, IA, FSS 0-59, SYS 60-99, RT 100-159, interrupt threads above all",
        "a higher prio runs first: TS IA FSS 0-59, SYS 60-99, RT 100-159",
        "higher prio first: TS IA FSS 0-59 SYS 60-99 RT 100-159",
        "a higher prio runs first",
    ),
    _FREEBSD: (
        "a lower prio runs first, 0 to 255: interrupt threads from 0 on, idle threads from 224 on",
        "a lower prio runs first: interrupt threads from 0, idle from 224",
        "a lower prio runs first",
    ),
    "": (
        "a lower prio runs first: 0-98 real time, 100-139 nice -20 to 19, 120 nice 0",
        "prio 0-98 real time, 120 nice 0; lower runs first",
        "a lower prio runs first",
    ),
}


def scales(kernel: str) -> tuple[str, ...]:
    """Return what the priorities of a host with this kernel (Origin.kernel) mean, the longest text first."""
    return next(scale for system, scale in _SCALES.items() if kernel.startswith(system))


def said(priority: int, kernel: str) -> str:
    """Return a priority with what it means there."""
    if kernel.startswith(_SUN):
        kind = next((name for end, name in _CLASSES if priority < end), "an interrupt thread's")
        return f"{priority} ({kind}); a higher number runs first"
    if kernel.startswith(_FREEBSD):
        return f"{priority}; a lower number runs first"
    kind = "real time" if priority < _REAL_TIME else "an ordinary thread's"
    return f"{priority} ({kind}); a lower number runs first"
