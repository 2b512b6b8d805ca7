"""Calls of the NFS client by mount and operation, from /proc/self/mountstats.

The file has the counters of all NFS mounts (fs/nfs/super.c nfs_show_stats(), net/sunrpc/stats.c): per operation a line

    WRITE: calls transmissions timeouts bytes_sent bytes_received queue_ms round_trip_ms execute_ms [errors]

and per connection a line `xprt:` with the requests that were sent and answered. A call is counted when it ends. The
kernel adds the calls of the client that its mounts share, as for a session, to those of each mount.

A thread reads the file every 2 s, or as seldom as 0.5 % of a CPU allows, as long as mountinfo, which is read every
4 s, has an NFS mount. No file of a mount is touched, so a silent server holds up nothing. Mounts of other mount
namespaces are not seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType

from latmon.capture.mounts import FRESH_S, Mounts, MountTable, mount_name, plain_field
from latmon.model.measurements import NFS_OPERATIONS, NFS_REQUESTS
from latmon.model.measurements.nfs import NfsCalls, NfsMount, NfsOperation, NfsRequests
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums, rows_between
from latmon_backends.kernel.paced_looks import LEAST_US, PacedLooks, Run

_MOST_MOUNTS = 256
_MOST_MOUNTS_AT_WORK, _USUAL_OPERATIONS = 64, 22
"""The rows of a look: NFS 3 has 22 operations (RFC 1813), and of those of NFS 4 a mount uses no more."""
_MOST_ROWS = _MOST_MOUNTS_AT_WORK * _USUAL_OPERATIONS
_MOUNTS_US = round(1e6 * FRESH_S)
"""Time between two looks for mounts, where there is none."""
_SECTION = re.compile(rb"^(?=device |no device )", re.MULTILINE)
_HEAD = re.compile(rb"device .* mounted on (\S+) with fstype nfs4? statvers=[\d.]+\n")
_OPERATION = re.compile(
    rb"^[\t ]+([A-Z][A-Z0-9_]{0,31}): ([1-9]\d{0,17}) (\d{1,18}) (\d{1,18}) \d+ \d+ (\d{1,15}) (\d{1,15}) (\d{1,15})"
    rb"(?: (\d{1,18}))?(?: .*)?$",
    re.MULTILINE,
)
"""Operations that were called; bytes are left out."""
_CONNECTION = re.compile(rb"^\txprt:\t(\w+) ((?:\d{1,18} )+\d{1,18})[ ]?$", re.MULTILINE)
_SENT: Mapping[bytes, int] = MappingProxyType({b"tcp": 5, b"tcp-tls": 5, b"rdma": 5, b"local": 4, b"udp": 2})
"""Transport -> place of the requests that were sent; those that were answered follow (net/sunrpc/xprtsock.c
xs_tcp_print_stats() and others, xprtrdma/transport.c)."""


@dataclass(frozen=True, slots=True)
class Look:
    """Counters of the NFS mounts at one moment."""

    mono_us: int
    spent_us: int
    mounts: frozenset[str]
    """Mount points whose counters are read: one of each file system."""
    operations: Mapping[NfsOperation, NfsCalls] = field(default_factory=dict)
    requests: Mapping[NfsMount, NfsRequests] = field(default_factory=dict)


def _unanswered(gained: NfsRequests) -> tuple[int, int]:
    return gained.sent - gained.answered, gained.sent


class NfsReader(PacedLooks[Look]):
    """The looks at NFS mounts."""

    def __init__(
        self, proc: Path, mounts: MountTable, run: Run[Look] | None = None, now_us: Callable[[], int] | None = None
    ) -> None:
        sums = (
            BoundedSums(
                NFS_OPERATIONS, attrgetter("execute_us", "calls"), most_rows=_MOST_ROWS, most_sums=2 * _MOST_ROWS
            ),
            BoundedSums(NFS_REQUESTS, _unanswered, most_rows=_MOST_MOUNTS, most_sums=2 * _MOST_MOUNTS),
        )
        super().__init__("nfs", sums, run, now_us)
        self._proc, self._mounts = proc, mounts
        self._waiting: frozenset[NfsMount] = frozenset()
        """Mounts with requests that wait for an answer, as of the last look."""

    def look(self, mono_us: int, _before: Look | None) -> Look:
        return look(self._proc, self._mounts.read(), mono_us)

    def gains(self, before: Look, now: Look) -> Tables:
        requests, self._waiting = _requests_between(before, now, self._waiting)
        return {NFS_OPERATIONS: _calls_between(before, now), NFS_REQUESTS: requests}

    def pause_us(self, look: Look) -> int:
        return LEAST_US if look.mounts else _MOUNTS_US


def _calls_between(before: Look, now: Look) -> dict[NfsOperation, NfsCalls]:
    """Return the calls between two looks, of the mounts that both have."""
    gains = rows_between(NFS_OPERATIONS, before.operations, now.operations)
    return {key: calls for key, calls in gains.items() if NfsMount(key.mount) in before.requests}


def _requests_between(
    before: Look, now: Look, waiting: frozenset[NfsMount]
) -> tuple[dict[NfsMount, NfsRequests], frozenset[NfsMount]]:
    """Return the requests between two looks, and the mounts whose requests wait; `waiting`: those of the first look.

    A request whose answer was lost is sent again and counted twice, so fewer are answered than sent from then on. So
    that a request waits is known by what was sent since answers kept up with it.
    """
    us = now.mono_us - before.mono_us
    gains: dict[NfsMount, NfsRequests] = {}
    still_waiting: set[NfsMount] = set()
    for mount, requests in now.requests.items():
        was = before.requests.get(mount)
        if was is None:
            continue
        sent, answered = requests.sent - was.sent, requests.answered - was.answered
        if sent < 0 or answered < 0:  # mounted anew
            continue
        has_kept_up = answered > 0 and (sent == answered or requests.answered >= requests.sent)
        if sent > answered or (mount in waiting and not has_kept_up):
            still_waiting.add(mount)
        waited_us = us if mount in still_waiting and not answered else 0
        if sent or answered or waited_us:
            gains[mount] = NfsRequests(sent, answered, waited_us)
    return gains, frozenset(still_waiting)


def look(proc: Path, mounts: Mounts, mono_us: int) -> Look:
    """Read the counters of the NFS mounts among `mounts`; nothing where there is none."""
    begun_ns = time.thread_time_ns()
    points = _nfs_points(mounts)
    operations: dict[NfsOperation, NfsCalls] = {}
    requests: dict[NfsMount, NfsRequests] = {}
    for point, section in _sections(proc) if points else ():
        if point in points and len(requests) < _MOST_MOUNTS:
            mount = mount_name(point)
            requests[NfsMount(mount)] = _requests(section)
            operations |= {NfsOperation(mount, op): calls for op, calls in _calls(section)}
    spent_us = (time.thread_time_ns() - begun_ns) // 1000
    return Look(mono_us, spent_us, points, operations, requests)


def _nfs_points(mounts: Mounts) -> frozenset[str]:
    if not mounts.has_text(b" - nfs"):
        return frozenset()
    return frozenset(mount.point for mount in mounts.usual.values() if mount.kind in ("nfs", "nfs4"))


def _sections(proc: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the mount point and the text of each NFS mount."""
    for section in _SECTION.split(content(proc / "self/mountstats")):
        head = _HEAD.match(section)
        if head is not None:
            yield plain_field(head[1]), section


def _calls(section: bytes) -> Iterator[tuple[str, NfsCalls]]:
    for op, *numbers in _OPERATION.findall(section):
        calls, transmissions, timeouts, queue_ms, round_trip_ms, execute_ms, errors = (
            int(number or 0) for number in numbers
        )
        times = 1000 * queue_ms, 1000 * round_trip_ms, 1000 * execute_ms
        yield op.decode(), NfsCalls(calls, max(0, transmissions - calls), timeouts, *times, errors)


def _requests(section: bytes) -> NfsRequests:
    """Return the requests of all connections of a mount."""
    sent = answered = 0
    for transport, text in _CONNECTION.findall(section):
        place = _SENT.get(transport)
        numbers = text.split()
        if place is not None and len(numbers) > place + 1:
            sent += int(numbers[place])
            answered += int(numbers[place + 1])
    return NfsRequests(sent, answered)
