"""Calls to NFS servers, below the operations on files. Pure."""

from __future__ import annotations

from typing import NamedTuple

from latmon.analysis.attribution import nfs_rows
from latmon.model import measurements
from latmon.model.measurements.nfs import NfsCalls
from latmon.support.units import duration, rate
from latmon.views.context import ViewState
from latmon.views.lines import TIME, Field, Line, fit, heads, layout, row
from latmon.views.units import count

_ROWS = 4
"""Rows; one in a low panel."""
_FIELDS: tuple[Field[_TimedCalls], ...] = (
    Field("NFS call", 8, lambda r, _: r.op, right=False, most=16),
    Field("on", 14, lambda r, _: r.mount, right=False, most=40),
    Field("per s", 5, lambda r, _: rate(r.calls.calls / r.seconds)),
    Field("mean", TIME, lambda r, _: duration(r.calls.execute_mean_us)),
    Field("round trip", 10, lambda r, _: duration(r.calls.round_trip_mean_us)),
    Field("queue", TIME, lambda r, _: duration(r.calls.queue_mean_us)),
    Field("again", 5, lambda r, _: count(r.calls.retransmissions)),
    Field("time-outs", 9, lambda r, _: count(r.calls.timeouts), rank=1),
    Field("errors", 6, lambda r, _: count(r.calls.errors), rank=2),
)


class _TimedCalls(NamedTuple):
    """Calls of an NFS operation on a mount, with the seconds of the window."""

    op: str
    mount: str
    calls: NfsCalls
    seconds: float


def nfs_table(view: ViewState, width: int) -> list[Line]:
    """Return the NFS calls with most of the time; nothing where none ended."""
    calls = nfs_rows(view.history.on_demand[measurements.NFS_OPERATIONS])[:_ROWS]
    if not calls:
        return []
    placed = layout(_FIELDS, width)
    seconds = max(view.history.window.covered_us, 1) / 1e6
    rows = [_TimedCalls(key.op, key.mount, its, seconds) for key, its in calls]
    return [fit(line, width) for line in (heads(placed), *(row(placed, timed) for timed in rows))]
