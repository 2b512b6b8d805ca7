"""Failed I/Os by their status."""

from __future__ import annotations

from collections.abc import Mapping
from errno import EIO
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.table import CGROUP, DEVICE, OP, Part, Table, Unit, count

NOT_SUPPORTED, NO_SPACE, TIME_OUT, TRANSPORT = "not supported", "no space", "time-out", "transport error"
TARGET, RESERVED, MEDIUM, PROTECTION = "target error", "reservation conflict", "medium error", "protection error"
IO_ERROR, REQUEUED, WOULD_BLOCK, OFFLINE = "I/O error", "requeued by dm", "would block", "offline"

_BY_ERRNO: Mapping[int, str] = MappingProxyType(
    {
        5: IO_ERROR,
        6: "no such device",
        11: WOULD_BLOCK,
        12: "no memory",
        16: "device busy",
        19: OFFLINE,
        22: "invalid request",
        28: NO_SPACE,
        52: RESERVED,
        61: MEDIUM,
        62: "duration limit",
        67: TRANSPORT,
        75: "too many active zones",
        78: REQUEUED,
        84: PROTECTION,
        95: NOT_SUPPORTED,
        109: "too many open zones",
        110: TIME_OUT,
        121: TARGET,
    }
)
"""Linux's errno -> name, of those that blk_status_to_errno() returns, and ENXIO, which is illumos' for a lost disk."""
_ERRNO_OF_STATUS = (0, 95, 110, 28, 67, 121, 52, 61, 84, 12, 5, 78, 11, 16)
"""Errno by blk_status_t. From 14 on, kernels give the same number to different statuses, so that those have no name."""
FAILED = "failed"
"""The reason why the tracer's scripts followed an I/O that failed into no histogram (Traced.unfollowed)."""
ERRNO_CODE = 256
"""What a probe adds to an errno; a smaller code is a blk_status_t."""


class FailedIO(NamedTuple):
    """Key of the I/Os of one op on a device that completed with one status."""

    device: str
    op: str
    status: str
    """A name such as `I/O error`; `status 17` or `errno 71` for a number without a name."""


class FailedBy(NamedTuple):
    """Key of the I/Os of a cgroup that completed with one status."""

    device: str
    op: str
    status: str
    """As in FailedIO."""
    cgroup: str
    """As in Issuer."""


def status_name(code: int) -> str:
    """Return the name of a status by a probe's code: a blk_status_t, or ERRNO_CODE and an errno."""
    if code >= ERRNO_CODE:
        errno = code - ERRNO_CODE
        return _BY_ERRNO.get(errno, f"errno {errno}")
    return _BY_ERRNO[_ERRNO_OF_STATUS[code]] if 0 < code < len(_ERRNO_OF_STATUS) else f"status {code}"


def errno_of(status: str) -> int:
    """Return the errno of a status by its name; EIO for a failure that has none, 0 for no failure."""
    if not status:
        return 0
    return next((errno for errno, name in _BY_ERRNO.items() if name == status), EIO)


def in_words(statuses: Mapping[str, int]) -> str:
    """Return a single status as it is, several with their I/Os, the most frequent one first."""
    if len(statuses) == 1:
        return next(iter(statuses))
    most_first = sorted(statuses, key=lambda status: -statuses[status])
    return ", ".join(f"{status} {statuses[status]:,}" for status in most_first)


_STATUS = Part(probe_part="status", from_code=status_name)
ERRORS = Table(
    "errors",
    FailedIO,
    (DEVICE, OP, _STATUS),
    count("ios", Unit.IOS),
    group="always",
    export_name="failed",
    help_text="I/Os that completed with an error, by the kernel's status; no latency contains them",
    row_title="a failed I/O",
)
"""I/Os that completed with an error. They are among the completions (SEEN); the always-on probe times none of them."""
FAILED_BY = Table(
    "failed_by",
    FailedBy,
    (DEVICE, OP, _STATUS, CGROUP),
    count("ios", Unit.IOS),
    group="always",
    export_name="failed_by",
    counts_ios=False,
    row_title="a failed I/O of a cgroup",
    has_own_decoder=True,
)
"""The same I/Os by the cgroup that the kernel charges, where the always-on probe knows it."""
