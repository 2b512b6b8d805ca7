"""Calls of the NFS client in a report: a row per mount and operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latmon.analysis.attribution import nfs_rows
from latmon.model.measurements.nfs import NfsCalls, NfsOperation
from latmon.report.columns import Column, ReportTable
from latmon.report.formatting import rounded
from latmon.report.model.report import Report
from latmon.report.model.request import NfsLatency

_COLUMNS: Sequence[Column[NfsLatency]] = (
    Column("call", "name", lambda row: row.op, -12),
    Column("mount", "name", lambda row: row.mount, -20),
    Column("count", "count", lambda row: row.calls, 9),
    Column("mean", "time", lambda row: row.mean_us, 7),
    Column("round trip", "time", lambda row: row.mean_round_trip_us, 12),
    Column("queue", "time", lambda row: row.mean_queue_us, 7),
    Column("again", "count", lambda row: row.retransmissions, 6),
    Column("time-outs", "count", lambda row: row.timeouts),
    Column("errors", "count", lambda row: row.errors),
)
_NOTE = (
    "round trip: network and server; queue: in the client until the last transmission, so the wait for an answer to an "
    "earlier one too; again: transmissions after the first one of a call"
)


def nfs_latencies(operations: Mapping[NfsOperation, NfsCalls]) -> tuple[NfsLatency, ...]:
    """Return the calls of each operation on each mount, those with most of the time first."""
    return tuple(_nfs_latency(operation, calls) for operation, calls in nfs_rows(operations))


def _nfs_latency(operation: NfsOperation, calls: NfsCalls) -> NfsLatency:
    return NfsLatency(
        mount=operation.mount,
        op=operation.op,
        calls=calls.calls,
        retransmissions=calls.retransmissions,
        timeouts=calls.timeouts,
        errors=calls.errors,
        mean_queue_us=rounded(calls.queue_mean_us, 1),
        mean_round_trip_us=rounded(calls.round_trip_mean_us, 1),
        mean_us=rounded(calls.execute_mean_us, 1),
    )


def nfs_table(report: Report) -> ReportTable[NfsLatency]:
    """Return the table of NFS calls; without rows where no call to a server ended."""
    return ReportTable("NFS calls", _COLUMNS, report.nfs, _NOTE)
