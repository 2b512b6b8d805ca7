"""Issuers of I/Os in a report: a row per cgroup and per process, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from latmon.analysis.attribution import IssuerRow, issuer_rows
from latmon.model.frame import OPS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.report.columns import Column, ReportTable, quantile
from latmon.report.formatting import per_second, rounded
from latmon.report.latencies import summed
from latmon.report.model import host
from latmon.report.model.latency import Quantiles
from latmon.report.model.report import Report
from latmon.support.units import UNKNOWN, part, rate
from latmon.views.units import sampled_as

MAX_ISSUERS = 1000
MAX_BEHIND = 8
"""Cgroups that another one is behind."""
T = TypeVar("T")
Row = TypeVar("Row")
_Parts = Mapping[tuple[Hashable, str, str], Mapping[Issuer, IssuedIO]]
"""I/Os by issuer without its device and op, by device and by op."""


class Rows(NamedTuple, Generic[T]):
    """Rows of a table, and what has no row: I/Os, wake-ups or tasks."""

    rows: tuple[T, ...]
    left_out: int = 0


def cgroups(issued: Mapping[Issuer, IssuedIO], behind: Mapping[Behind, int]) -> Rows[host.Cgroup]:
    """Return a row per cgroup with I/Os, those with most of the time first.

    `behind`: the cgroups that the device served while a cgroup's I/Os were in flight, with the share of their time.
    """
    rows = _issuer_rows(issued, behind, processes=False)
    parts = _parts(issued, processes=False)
    names = {row.issuer.cgroup: row.issuer.name for row in rows}
    return Rows(
        tuple(host.Cgroup(_issuer(row, parts), _served(row.behind, names)) for row in rows[:MAX_ISSUERS]),
        sum(row.ios for row in rows[MAX_ISSUERS:]),
    )


def processes(issued: Mapping[Issuer, IssuedIO], behind: Mapping[Behind, int]) -> Rows[host.Process]:
    """Return a row per traced process, those with most of the time first."""
    rows = _issuer_rows(issued, behind, processes=True)
    parts = _parts(issued, processes=True)
    return Rows(
        tuple(host.Process(row.issuer.pid or None, row.issuer.comm, _issuer(row, parts)) for row in rows[:MAX_ISSUERS]),
        sum(row.ios for row in rows[MAX_ISSUERS:]),
    )


def _issuer_rows(
    issued: Mapping[Issuer, IssuedIO], behind: Mapping[Behind, int], *, processes: bool
) -> list[IssuerRow]:
    return issuer_rows(issued, {issuer.device for issuer in issued}, processes=processes, behind=behind)


def _parts(issued: Mapping[Issuer, IssuedIO], *, processes: bool) -> _Parts:
    parts: dict[tuple[Hashable, str, str], dict[Issuer, IssuedIO]] = {}
    for issuer, done in issued.items():
        if issuer.is_process is processes:
            parts.setdefault((issuer[2:], issuer.device, issuer.op), {})[issuer] = done
    return parts


def _issuer(row: IssuerRow, parts: _Parts) -> host.Issuer:
    issuer = row.issuer
    is_uncounted = "" in row.devices  # bytes by /proc/PID/io, which have no device
    return host.Issuer(
        cgroup=issuer.cgroup,
        name=issuer.name,
        container=issuer.container,
        issued=_issued(row, row.share, None if is_uncounted else row.ios),
        devices={
            device: host.IssuedToDevice(
                _issued(part, part.share, part.ios),
                {op: _issued(of_op, None, of_op.ios) for op in OPS for of_op in _of_op(parts, issuer, device, op)},
            )
            for device, part in row.devices.items()
            if device
        },
    )


def _served(behind: Mapping[str, float], names: Mapping[str, str]) -> tuple[host.ServedCgroup, ...]:
    largest = list(behind.items())[:MAX_BEHIND]
    return tuple(host.ServedCgroup(cgroup, names.get(cgroup, cgroup), rounded(share, 4)) for cgroup, share in largest)


def _of_op(parts: _Parts, issuer: Issuer, device: str, op: str) -> list[IssuerRow]:
    """Return the issuer's I/Os of one op to one device; their share is of themselves, which says nothing."""
    return issuer_rows(parts.get((issuer[2:], device, op), {}), {device}, {op}, processes=issuer.is_process)


def _issued(row: IssuerRow, share: float | None, count: int | None) -> host.Issued:
    timed = summed(row.latency) if row.latency else None
    return host.Issued(count=count, bytes=row.bytes, share=rounded(share, 4), latency_us=timed)


class CgroupRow(NamedTuple):
    """A row of the table of cgroups: its I/Os in so many seconds, None where these were not measured."""

    cgroup: host.Cgroup
    seconds: float | None

    @property
    def issuer(self) -> host.Issuer:
        return self.cgroup.issuer


def _largest_behind(row: CgroupRow) -> str:
    """Return the share of its time in which the device served another cgroup's I/Os, and the name of that one."""
    others = (served for served in row.cgroup.behind if served.cgroup != row.issuer.cgroup)
    return next((f"{part(served.share)} {served.name}" for served in others), "")


def cgroup_table(report: Report) -> ReportTable[CgroupRow]:
    """Return the table of cgroups; without rows if they were not measured."""
    left = report.cgroups_left_out
    return ReportTable(
        "Cgroups",
        CGROUPS,
        [CgroupRow(cgroup, report.measured_s) for cgroup in report.cgroups],
        "share: of the time of all I/Os, so of those in flight; the kernel decides which cgroup an I/O belongs to",
        f"{left:,} I/Os of other cgroups" if left else "",
    )


def sample_text(report: Report) -> str:
    """Return the sample that the tracer took as the end of a sentence; empty where it took none."""
    sampling = report.health.sampling
    sample = sampled_as(sampling.finest, sampling.one_in)
    return sample and f"; a sample of {sample}"


def process_table(report: Report) -> ReportTable[host.Process]:
    """Return the table of processes; without rows if none was traced."""
    left, rows = report.processes_left_out, report.processes
    note = (
        "counted while the tracer ran; share: of the time of these I/Os; writeback is of a kworker, in the cgroup "
        f"that dirtied the pages, and so is what a cgroup's limit held back, in that cgroup{sample_text(report)}"
    )
    if rows and all(row.issuer.issued.count is None for row in rows):
        note = "bytes by /proc/PID/io: nothing counts their I/Os, devices or latencies; written is what they made dirty"
    return ReportTable(
        "Processes",
        PROCESS_COLUMNS,
        rows,
        note,
        f"{left:,} I/Os of other processes" if left else "",
    )


def _issued_columns(issuer: Callable[[Row], host.Issuer]) -> Sequence[Column[Row]]:
    """Return the columns on latencies and devices of a row with an issuer."""

    def latency_us(row: Row) -> Quantiles | None:
        return issuer(row).issued.latency_us

    return (
        quantile(latency_us, "p50", "p50", 7),
        quantile(latency_us, "p99", "p99", 7),
        quantile(latency_us, "p99.9", "p99.9"),
        quantile(latency_us, "max", "max", 7),
        Column("share", "share", lambda row: issuer(row).issued.share, 7),
        Column("devices", "name", lambda row: ", ".join(issuer(row).devices)),
    )


def _cgroup_issuer(row: CgroupRow) -> host.Issuer:
    return row.issuer


def _process_issuer(row: host.Process) -> host.Issuer:
    return row.issuer


def _count_of(row: CgroupRow) -> int:
    """Return the I/Os of a cgroup, which the kernel always counts."""
    return row.issuer.issued.count or 0


def _megabytes(issuer: host.Issuer) -> float:
    return (issuer.issued.bytes or 0) / 1e6


CGROUPS: Sequence[Column[CgroupRow]] = (
    Column("cgroup", "name", lambda row: row.issuer.name, -27),
    Column("path", "name", lambda row: row.issuer.cgroup),
    Column("I/Os", "count", lambda row: row.issuer.issued.count, 9),
    Column("IOPS", "words", lambda row: per_second(_count_of(row), row.seconds), 7),
    Column("MB/s", "words", lambda row: per_second(_megabytes(row.issuer), row.seconds), 7),
    *_issued_columns(_cgroup_issuer),
    Column("behind", "name", _largest_behind),
)


PROCESS_COLUMNS: Sequence[Column[host.Process]] = (
    Column("process", "name", lambda row: issuer_label(row.comm, row.pid), -22),
    Column("cgroup", "name", lambda row: row.issuer.name, -13),
    Column("I/Os", "count", lambda row: row.issuer.issued.count, 9),
    Column("MB", "words", lambda row: rate(_megabytes(row.issuer)), 7),
    *_issued_columns(_process_issuer),
)


def issuer_label(comm: str, pid: int | None) -> str:
    """Return the name and the pid of a process, or of those without a row of their own."""
    return f"{comm or UNKNOWN} {pid}" if pid else comm
