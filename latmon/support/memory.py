"""The memory that a command may take for files that strangers may have written.

A file of some kilobytes can name more devices, threads and buckets than any host has, because gzip packs repeated
bytes well. Linux bounds all of it at once: RLIMIT_DATA is compared with the private memory that a process can write to
(mm/mmap.c, may_expand_vm; since Linux 4.7). Other systems count something else, and there `ulimit -v` is the bound.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_BYTES = 256 << 20
"""Memory of a report of 5,000 disks with reads and writes in 39 buckets each, and two thirds more."""
MAX_OF_SCREEN = 1 << 30
"""Memory of a screen, which keeps a history: that of 1,000 busy disks has 232 MB after two minutes."""
_OF_READERS, _PRIVATE = 3 / 4, 15 / 16
"""Shares of the memory: beyond the first readers stop, beyond the second nothing is had; the rest is for pages of
libraries, which are not private."""
_RESIDENT, _DATA = 1, 5
"""Fields of /proc/PID/statm, in pages (proc_pid_statm(5)); `data` includes the stack."""
_STATM = Path("/proc/self/statm")

_most_of_readers: list[float] = []
"""Bytes beyond which `require` refuses, of each `limited` block that this process is in."""


@contextmanager
def limited(most: int, statm: Path = _STATM) -> Iterator[None]:
    """Raise MemoryError inside of the block where this process takes more than `most` bytes.

    A process that takes more than half of it already gets the other half. It does nothing on other systems than Linux.
    """
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    pages = _pages(statm)
    room = max(most * _PRIVATE - pages[_RESIDENT], most * _PRIVATE / 2)
    limit = int(pages[_DATA] + room)
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    _most_of_readers.append(pages[_RESIDENT] + room - (_PRIVATE - _OF_READERS) * most)
    try:
        yield
    finally:
        _most_of_readers.pop()
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def require() -> None:
    """Raise MemoryError where little of the memory is left that this process may take.

    Readers call it from time to time: a limit of the kernel strikes anywhere, also where a generator is being closed,
    and Python prints such an error.
    """
    if _most_of_readers and _pages(_STATM)[_RESIDENT] > _most_of_readers[-1]:
        raise MemoryError


def _pages(statm: Path) -> list[int]:
    """Return the fields in bytes."""
    return [int(field) * resource.getpagesize() for field in statm.read_text("ascii").split()]
