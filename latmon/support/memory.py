"""The memory that a command may take for files that strangers may have written.

A file of some kilobytes can name more devices, threads and buckets than any host has, because gzip packs repeated
bytes well. Linux bounds all of it at once: RLIMIT_DATA is compared with the private memory that a process can write to
(mm/mmap.c, may_expand_vm; since Linux 4.7). Other systems count something else, and there `ulimit -v` is the bound.
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_BYTES = 256 << 20
"""Memory of commands that read a recording once."""
MAX_OF_SCREEN = 1 << 30
"""Memory of a screen, which keeps a history: that of 1,000 busy disks has 232 MB after two minutes."""
_SHARE_OF_READERS, _SHARE_OF_PRIVATE = 3 / 4, 15 / 16
"""Shares of the memory: beyond the first readers stop, beyond the second the kernel refuses. The rest is for pages of
libraries, which are not private."""
_RESIDENT, _DATA = 1, 5
"""Fields of /proc/PID/statm, in pages (proc_pid_statm(5)); `data` includes the stack."""
_STATM = Path("/proc/self/statm")

_limits_of_readers: list[float] = []
"""Bytes beyond which `require_room` refuses, of each `limited` block that this process is in."""


@contextmanager
def limited(max_bytes: int, statm: Path = _STATM) -> Iterator[bool]:
    """Raise MemoryError inside of the block where this process takes more than `max_bytes`.

    It yields whether that is the limit: a lower one of the user (ulimit -d) stays.

    A process that takes more than half of it already gets the other half. It does nothing on other systems than Linux,
    nor without /proc.
    """
    sizes = _sizes(statm)
    if not sizes:
        yield False
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    private = max_bytes * _SHARE_OF_PRIVATE
    room = max(private - sizes[_RESIDENT], private / 2)
    limit = min(int(sizes[_DATA] + room), sys.maxsize)
    if soft != resource.RLIM_INFINITY and soft <= limit:
        yield False
        return
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    _limits_of_readers.append(sizes[_RESIDENT] + room - (_SHARE_OF_PRIVATE - _SHARE_OF_READERS) * max_bytes)
    try:
        yield True
    finally:
        _limits_of_readers.pop()
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def require_room() -> None:
    """Raise MemoryError where little of the memory is left that this process may take.

    Readers call it from time to time: the limit of the kernel strikes anywhere, also where a generator is being closed,
    and Python prints such an error.
    """
    if _limits_of_readers and _sizes(_STATM)[_RESIDENT] > _limits_of_readers[-1]:
        raise MemoryError


def available_memory(proc: Path = Path("/proc")) -> float:
    """Return the bytes that the host can give without swapping (MemAvailable); infinity where that is not known."""
    try:
        lines = (proc / "meminfo").read_text("ascii", "replace").splitlines()
    except OSError:
        return math.inf
    values = [line.split()[1] for line in lines if line.startswith("MemAvailable:") and len(line.split()) > 1]
    return int(values[0]) * 1024 if values and values[0].isdecimal() else math.inf


def _sizes(statm: Path) -> list[int]:
    """Return the fields in bytes; none on a system that doesn't have them."""
    if sys.platform != "linux":
        return []
    try:
        text = statm.read_text("ascii")
    except OSError:
        return []
    return [int(field) * resource.getpagesize() for field in text.split()]
