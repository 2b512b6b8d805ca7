"""The processes that serve FUSE mounts, by the device that they have open.

/proc/PID/fdinfo of /dev/fuse has the number of the connection, which is that of the file system (fs/fuse/dev.c
fuse_dev_show_fdinfo()); older kernels don't tell it. No memory of a process and no file of a mount is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from latmon.capture.mounts import Mounts, mount_name
from latmon.model.measurements.server_waits import FileServer
from latmon.support.paths import content
from latmon_backends.kernel.processes import pids, row_name_of

_MOST_PROCESSES, _MOST_FILES = 5_000, 256
_CONNECTION = re.compile(rb"^fuse_connection:\s*(\d{1,10})$", re.MULTILINE)
_MINOR_BITS = 20


def file_servers(proc: Path, mounts: Mounts) -> frozenset[FileServer]:
    """Return the mounts of FUSE whose serving process is known, with the first process that has each one's device open.

    A server of several processes has it open in each of them.
    """
    processes: dict[str, str] = {}
    for pid in pids(proc)[:_MOST_PROCESSES]:
        for number in _connections(proc, pid):
            mount = mounts.usual.get((number >> _MINOR_BITS, number & ((1 << _MINOR_BITS) - 1)))
            if mount is not None:
                processes.setdefault(mount_name(mount.point), row_name_of(proc, pid))
    return frozenset(FileServer(mount, process) for mount, process in processes.items())


def _connections(proc: Path, pid: int) -> Iterator[int]:
    """Yield the numbers of the connections that a process has open."""
    try:
        numbers = os.listdir(f"{proc}/{pid}/fd")  # noqa: PTH208 - no paths of thousands
    except OSError:
        return
    for number in numbers[:_MOST_FILES]:
        try:
            is_fuse = os.readlink(f"{proc}/{pid}/fd/{number}").endswith("/fuse")  # noqa: PTH115
        except OSError:
            continue
        if not is_fuse:
            continue
        connection = _CONNECTION.search(content(f"{proc}/{pid}/fdinfo/{number}"))
        if connection is not None:
            yield int(connection[1])
