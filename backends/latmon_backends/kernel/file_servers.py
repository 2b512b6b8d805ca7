"""The processes that serve FUSE mounts, by the device that they have open.

/proc/PID/fdinfo of /dev/fuse has the number of the connection, which is that of the file system (fs/fuse/dev.c
fuse_dev_show_fdinfo()); older kernels don't tell it. No memory of a process and no file of a mount is read.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import Mounts, mount_name
from latmon.model.measurements.server_waits import FileServer
from latmon.support.paths import content
from latmon_backends.kernel.processes import pids, row_name_of

_MOST_PROCESSES, _MOST_FILES = 5_000, 256
_CONNECTION = re.compile(rb"^fuse_connection:\s*(\d{1,10})$", re.MULTILINE)
_MINOR_BITS = 20


class FoundServers(NamedTuple):
    """Holds what a search has found."""

    servers: frozenset[FileServer] = frozenset()
    searched_to: int = 0
    """The process after which the next search begins, where there were too many for one; 0: it saw all."""


def file_servers(proc: Path, mounts: Mounts, before: FoundServers | None = None) -> FoundServers:
    """Return the mounts of FUSE whose serving process is known, with the first process that has each one's device open.

    A server of several processes has it open in each of them. Of too many processes each has its turn: those that
    served a mount `before`, and those that follow the last ones.
    """
    before = FoundServers() if before is None else before
    ordered_pids = sorted(pids(proc))
    begin = bisect_right(ordered_pids, before.searched_to)
    turn = (*ordered_pids[begin:], *ordered_pids[:begin])[:_MOST_PROCESSES]
    searched_to = turn[-1] if len(turn) < len(ordered_pids) else 0
    known_pids = sorted(int(server.process.rpartition("/")[2]) for server in before.servers)
    processes: dict[str, str] = {}
    for pid in dict.fromkeys((*known_pids, *turn)):
        for number in _connections(proc, pid):
            mount = mounts.usual.get((number >> _MINOR_BITS, number & ((1 << _MINOR_BITS) - 1)))
            if mount is not None:
                processes.setdefault(mount_name(mount.point), row_name_of(proc, pid))
    servers = frozenset(FileServer(mount, process) for mount, process in processes.items())
    return FoundServers(servers, searched_to)


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
