"""Programs that wait for the server of a file system (FUSE, NFS, SMB, Ceph, 9P), and the processes that serve FUSE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import MOUNT, TEXT, Meaning, Part, Table, Unit, count, record_of_counts


class ServerWait(NamedTuple):
    """Key of a process that waits for a server."""

    mount: str
    """Its mount point; empty: not known, as of a call with a path where several mounts have such servers."""
    kind: str
    """The file system's type, such as fuse.sshfs; where the mount isn't known that of its servers, such as `fuse`."""
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class WaitedTime:
    """Time of the threads that were seen waiting, from that on."""

    waited_us: int
    """Of all threads together: an estimate by the share of looks that found them waiting."""
    sleeps: int = 0
    """How often they left their CPU meanwhile, for whatever reason."""

    @property
    def mean_us(self) -> float:
        """Return about how long a wait takes: it is an estimate, and longer where some of the sleeps are others."""
        return self.waited_us / max(self.sleeps, 1)


SERVER_WAITS = Table(
    "server_waits",
    ServerWait,
    (MOUNT, TEXT, Part(Meaning.PROCESS)),
    record_of_counts(WaitedTime, others=Unit.EVENTS),
    group="hangs",
    export_name="server_wait",
    row_title="a process that waits for a server",
    counts_ios=False,
    has_own_decoder=True,  # the kernel's stacks of sleeping threads, no probe
)
"""Processes whose threads were seen waiting for a server, by looks about 1 s apart."""


class FileServer(NamedTuple):
    """Key of the process that serves a FUSE mount."""

    mount: str
    process: str
    """NAME/PID."""


FILE_SERVERS = Table(
    "file_servers",
    FileServer,
    (MOUNT, Part(Meaning.PROCESS)),
    count("us", Unit.MICROSECONDS),
    group="hangs",
    export_name="file_server",
    row_title="a process that serves a mount",
    counts_ios=False,
    has_own_decoder=True,
)
"""The time in which programs waited for servers of FUSE while a process served a mount; since Linux 6.15."""
