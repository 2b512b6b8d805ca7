"""Calls of the NFS client to its servers, and the requests on its connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import MOUNT, TEXT, Table, Unit, record_of_counts


class NfsOperation(NamedTuple):
    """Key of the calls of one NFS operation on one mount."""

    mount: str
    """Its mount point; of several mounts of one file system the usual one."""
    op: str
    """The kernel's name of the call, such as `WRITE`, `GETATTR` or `LOOKUP`."""


@dataclass(frozen=True, slots=True)
class NfsCalls:
    """Calls that ended in an interval (net/sunrpc/stats.c rpc_count_iostats_metrics())."""

    calls: int = 0
    retransmissions: int = 0
    """Transmissions after the first one of a call."""
    timeouts: int = 0
    """Major time-outs: the client had sent a call as often as `retrans` allows, and had no answer."""
    queue_us: int = 0
    """From a call's begin to its last transmission: in the client, and for the answers to earlier transmissions."""
    round_trip_us: int = 0
    """From the last transmission to the answer: network and server; none of a call without an answer."""
    execute_us: int = 0
    """From a call's begin to its end."""
    errors: int = 0
    """Calls with an error as their result, harmless ones such as ENOENT included; 0 also before Linux 5.3."""

    @property
    def queue_mean_us(self) -> float:
        return self.queue_us / max(self.calls, 1)

    @property
    def round_trip_mean_us(self) -> float:
        return self.round_trip_us / max(self.calls, 1)

    @property
    def execute_mean_us(self) -> float:
        return self.execute_us / max(self.calls, 1)


NFS_OPERATIONS = Table(
    "nfs_operations",
    NfsOperation,
    (MOUNT, TEXT),
    record_of_counts(NfsCalls, others=Unit.EVENTS),
    group="nfs",
    export_name="nfs_operation",
    row_title="an NFS operation",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)


class NfsMount(NamedTuple):
    """Key of the requests on the connections of a mount."""

    mount: str


@dataclass(frozen=True, slots=True)
class NfsRequests:
    """Requests of the connections to a mount's server, which other mounts of the server share."""

    sent: int = 0
    """Transmissions, those of calls that have not ended included."""
    answered: int = 0
    waited_us: int = 0
    """Time of the intervals in which none was answered, though one was sent in them or waited since before."""


NFS_REQUESTS = Table(
    "nfs_requests",
    NfsMount,
    (MOUNT,),
    record_of_counts(NfsRequests, others=Unit.EVENTS),
    group="nfs",
    export_name="nfs_requests",
    row_title="the requests of an NFS mount",
    counts_ios=False,
    has_own_decoder=True,
)
"""A call is in NFS_OPERATIONS when it has ended: of a server that is silent, this table alone has anything."""
