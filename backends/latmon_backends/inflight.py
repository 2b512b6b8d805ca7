"""I/Os outstanding now: /sys/block/X/inflight (in the driver) beside the in-flight column of /proc/diskstats.

Owns which of the two counts what on this kernel. Up to 6.9 the column is in-driver too, later it also counts
requests that wait in the block layer, and the difference is the queue. Must not know frames' schedule or identity.
"""

from __future__ import annotations

import re
from pathlib import Path

from latmon.files import content
from latmon.model import Outstanding

_OLD = b"blk_mq_in_flight"
_BESIDE = (b"blk_mq_in_flight_rw", b"blk_mq_in_driver_rw")
"""Their presence proves that a symbol list names the block layer's functions at all."""
_UNUSED_SINCE = (6, 10)
_RELEASE = re.compile(rb"(\d+)\.(\d+)")


def column_has_queued(proc: Path, sys: Path) -> bool:
    """True when this kernel's diskstats column counts queued requests as well as those in the driver.

    `blk_mq_in_flight` counted for the column while it was in-driver only (seen on 6.1). Where it is gone (7.2) the
    column has the queue; from 6.10 to its removal it is there but unused (seen on 6.12), which only the release tells.
    A kernel that got the change as a backport is taken for an old one: its queue stays unknown, nothing is wrong.
    BTF is asked first: kallsyms costs the kernel 0.2 s to print.
    """
    for source, start, end in ((sys / "kernel/btf/vmlinux", b"\0", b"\0"), (proc / "kallsyms", b" ", b"\n")):
        symbols = content(source)
        if start + _OLD + end in symbols:
            return _release(proc) >= _UNUSED_SINCE
        if any(start + name + end in symbols for name in _BESIDE):
            return True
    return False


def _release(proc: Path) -> tuple[int, int]:
    found = _RELEASE.match(content(proc / "sys/kernel/osrelease"))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def in_driver(block: Path) -> int | None:
    """Requests that the driver holds (reads + writes), from a device's sysfs directory; None when it can't be read."""
    try:
        reads, writes = (block / "inflight").read_bytes().split()
        return int(reads) + int(writes)
    except (OSError, ValueError):
        return None


def outstanding(driver: int | None, column: int, *, has_queued: bool) -> Outstanding:
    """The two numbers told apart. They are read at two moments, so a small negative queue is an empty one."""
    queued = max(0, column - driver) if has_queued and driver is not None else None
    return Outstanding(driver, queued)
