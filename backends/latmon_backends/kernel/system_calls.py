"""System calls of sleeping threads, by /proc/PID/task/TID/syscall: the operation, and the file that it works on.

The file is the first argument of some calls. Others have a path, in the memory of the process, which is not read: its
mmap_lock may be taken as long as a thread of it hangs. Of such a call the first argument may be the directory that the
path begins at (openat(2) and its like).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

PAGE_FAULT = -1
_Numbers = Mapping[str, tuple[int, ...]]
"""Operation -> the numbers of its calls."""
_WITH_FILE: Mapping[str, _Numbers] = MappingProxyType(
    {
        "x86_64": {
            "read": (0, 17, 19, 295, 327),
            "write": (1, 18, 20, 296, 328),
            "close": (3,),
            "stat": (5, 138),
            "fsync": (74, 75, 277, 306),
            "truncate": (77,),
            "fallocate": (285,),
            "chmod": (91,),
            "chown": (93,),
            "list": (78, 217),
            "setxattr": (190, 199),
        },
        "aarch64": {
            "read": (63, 65, 67, 69, 286),
            "write": (64, 66, 68, 70, 287),
            "close": (57,),
            "stat": (80, 44),
            "fsync": (82, 83, 84, 267),
            "truncate": (46,),
            "fallocate": (47,),
            "chmod": (52,),
            "chown": (55,),
            "list": (61,),
            "setxattr": (7, 16),
        },
    }
)
_WITH_PATH: Mapping[str, _Numbers] = MappingProxyType(
    {
        "x86_64": {
            "open": (2, 257, 437),
            "create": (85,),
            "stat": (4, 6, 21, 89, 137, 262, 267, 269, 332, 439),
            "rename": (82, 264, 316),
            "unlink": (87, 263),
            "mkdir": (83, 258),
            "rmdir": (84,),
            "link": (86, 88, 265, 266),
            "mknod": (133, 259),
            "chmod": (90, 268, 452),
            "chown": (92, 94, 260),
            "truncate": (76,),
            "utime": (132, 235, 261, 280),
            "setxattr": (188, 189, 197, 198),
            "exec": (59, 322),
            "sync": (162,),
        },
        "aarch64": {
            "open": (56, 437),
            "stat": (43, 48, 78, 79, 291, 439),
            "rename": (38, 276),
            "unlink": (35,),
            "mkdir": (34,),
            "link": (36, 37),
            "mknod": (33,),
            "chmod": (53, 452),
            "chown": (54,),
            "truncate": (45,),
            "utime": (88,),
            "setxattr": (5, 6, 14, 15),
            "exec": (221, 281),
            "sync": (81,),
        },
    }
)
"""Include arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl (the generic numbers)."""
_FLAGS_OF_OPEN: Mapping[str, Mapping[int, int]] = MappingProxyType({"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}})
"""Number of a call that opens a file -> the argument with its flags."""
_CREATES = 0o100
"""O_CREAT on x86 and arm64 (include/uapi/asm-generic/fcntl.h)."""
_MOST_FILES = 1 << 31
"""A greater number is AT_FDCWD, or another negative one."""


class Call(NamedTuple):
    """A system call in which a thread sleeps."""

    number: int
    op: str
    """The operation as a noun; empty: another one."""
    descriptor: int | None
    """The file, or the directory at which a path begins; None: not known, or the current directory."""
    has_file: bool
    """Whether the descriptor is the file that it works on."""


def call_of(text: bytes) -> Call | None:
    """Return the call of a line of `syscall`; None of a thread that runs, or whose call may not be read."""
    words = text.split()
    try:
        number = int(words[0])
        arguments = [int(word, 16) for word in words[1:]]
    except (IndexError, ValueError):
        return None
    if number == PAGE_FAULT:
        return Call(number, "page fault", None, has_file=False)
    machine = platform.machine()
    first = arguments[0] if arguments and arguments[0] < _MOST_FILES else None
    for op, numbers in _WITH_FILE.get(machine, {}).items():
        if number in numbers:
            return Call(number, op, first, has_file=first is not None)
    for op, numbers in _WITH_PATH.get(machine, {}).items():
        if number in numbers:
            is_create = op == "open" and _creates(machine, number, arguments)
            return Call(number, "create" if is_create else op, first, has_file=False)
    return Call(number, "", first, has_file=False)


def _creates(machine: str, number: int, arguments: list[int]) -> bool:
    place = _FLAGS_OF_OPEN.get(machine, {}).get(number)
    return place is not None and place < len(arguments) and bool(arguments[place] & _CREATES)
