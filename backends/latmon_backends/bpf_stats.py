"""BPF_ENABLE_STATS: the kernel counts the run time of BPF programs while this process holds a file open (Linux 5.8).

The kernel counts its users, and takes us back when the file closes, however this process ends; the sysctl
kernel.bpf_stats_enabled stays as somebody else set it. Needs CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import os
import platform

_ENABLE_STATS, _RUN_TIME = 32, 0
_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_ATTRIBUTES = 128


def open_stats() -> int:
    """A file that counts run times until it is closed. OSError without the privilege, and where there is no such."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"bpf(2) has no known number on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_RUN_TIME.to_bytes(4, "little"), _ATTRIBUTES)
    fd = int(ctypes.CDLL(None, use_errno=True).syscall(number, _ENABLE_STATS, attributes, _ATTRIBUTES))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.set_inheritable(fd, False)  # else every program that we start would count on
    return fd
