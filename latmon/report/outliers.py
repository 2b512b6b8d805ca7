"""Outliers of a report: the longest of a recording, their rows and sentences."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from latmon.analysis.attribution import Folded, fold
from latmon.model.frame import UNACCOUNTED, Outlier, Wait, pid_of
from latmon.model.stages import COLUMNS, StageSum, stage_sum
from latmon.report.formatting import ordered
from latmon.report.model.depth import RequestInFlight
from latmon.report.model.report import Report
from latmon.report.model.request import LateWakeup, SlowOperation, SlowRequest
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, part, rfc3339
from latmon.views.units import exact, meanwhile, until

MAX_SHOWN = 5
"""Outliers, and slow operations on files, in the text report."""
_BAR = 24
_FEW_US = 1
NOT_TRACED = "stages were not traced then"
MAX_ROWS = 1000
_KEPT = 4 * MAX_ROWS
"""Outliers that are kept before similar neighbours are merged into rows."""


class _Timed(Protocol):
    @property
    def total_us(self) -> int: ...


T = TypeVar("T", bound=_Timed)


class Longest(Generic[T]):
    """The longest of any number of I/Os or operations, in bounded memory."""

    def __init__(self, most: int = MAX_ROWS) -> None:
        self.seen = 0
        self._most = most
        self._heap: list[tuple[int, int, T]] = []

    def add(self, timed: T) -> None:
        self.seen += 1
        entry = (timed.total_us, -self.seen, timed)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def kept(self) -> list[T]:
        """Return them, the longest first."""
        return [timed for _, _, timed in sorted(self._heap, reverse=True)]


class Worst(Longest[Outlier]):
    """The longest outliers, and the longest one of each device."""

    def __init__(self) -> None:
        super().__init__(_KEPT)
        self.longest: dict[str, Outlier] = {}

    def add(self, timed: Outlier) -> None:
        super().add(timed)
        longest = self.longest.get(timed.device)
        if longest is None or timed.total_us > longest.total_us:
            self.longest[timed.device] = timed

    def rows(self) -> list[Folded]:
        """Return (outlier, repeats), the longest first."""
        folded = fold(self.kept)
        return sorted(folded, key=lambda row: (-row.outlier.total_us, row.outlier.mono_us))[:MAX_ROWS]


class SlowRequests(NamedTuple):
    """Rows of outliers, and the number of outliers without a row."""

    rows: tuple[SlowRequest, ...]
    left_out: int


def slow_requests(worst: Worst) -> SlowRequests:
    """Return the longest outliers, each with the number of its similar neighbours."""
    folded = worst.rows()
    left_out = worst.seen - sum(repeats for _, repeats in folded)
    return SlowRequests(tuple(_slow_request(outlier, repeats) for outlier, repeats in folded), left_out)


def _slow_request(outlier: Outlier, repeats: int) -> SlowRequest:
    return SlowRequest(
        time=rfc3339(outlier.wall, "microseconds"),
        mono_us=outlier.mono_us,
        device=outlier.device,
        op=outlier.op,
        flags=outlier.flags,
        sector=outlier.sector,
        bytes=outlier.bytes,
        pid=outlier.pid,
        comm=outlier.comm or None,
        cpu_issue=outlier.cpu_issue,
        cpu_complete=outlier.cpu_complete,
        outstanding_at_issue=outlier.outstanding_at_issue,
        overtaken_by=outlier.overtaken_by,
        total_us=outlier.total_us,
        stages_us=outlier.stages_us,
        unaccounted_us=outlier.unaccounted_us,
        repeats=repeats,
        path=outlier.path or None,
        includes=outlier.includes,
        waits=tuple(map(late_wakeup, outlier.waits)),
        own=outlier.own,
        admission_us=outlier.admission_us,
        inserted_us=outlier.inserted_us,
        status=outlier.status or None,
    )


def late_wakeup(wait: Wait) -> LateWakeup:
    """Return the row of a thread that an I/O waited for."""
    return LateWakeup(
        stage=wait.stage,
        thread=wait.thread,
        pid=pid_of(wait.pid),
        priority=wait.priority,
        woken_mono_us=wait.woken_us,
        delay_us=wait.delay_us,
        instead=wait.instead or None,
        ran_us=wait.ran_us or None,
    )


class OutlierCounts(NamedTuple):
    """Numbers of I/Os above the thresholds: all, those recorded, and those the rate limit left out."""

    above: int
    recorded: int
    left_out: int


def counts(report: Report) -> OutlierCounts:
    """Return the counts of a report with outliers."""
    rows = report.outliers or ()
    return OutlierCounts(
        sum(sum((device.above or {}).values()) for device in report.devices.values()),
        sum(row.repeats for row in rows) + report.outliers_left_out,
        report.health.suppressed or 0,
    )


def issuer(row: SlowRequest | RequestInFlight) -> str:
    """Return name and pid of the process that issued an I/O: `ora_lgwr/4211`; latmon's own is `latmon's bpftrace/7`."""
    own = "latmon's " if row.own else ""
    return f"{own}{row.comm or UNKNOWN}/{_known(row.pid)}"


def request(row: SlowRequest | RequestInFlight) -> list[str]:
    """Return an I/O's operation with its flags, its size and its sector, as far as they are known."""
    texts = [" ".join([row.op, *row.flags])]
    texts += [] if row.bytes is None else [f"{row.bytes:,} B"]
    return texts + ([] if row.sector is None else [f"sector {row.sector:,}"])


def circumstances(row: SlowRequest) -> list[str]:
    """Return how an outlier failed, its CPUs, the I/Os in flight with it, and its completion path."""
    failed = [] if row.status is None else [f"failed: {row.status}"]
    cpus = f"CPU {_known(row.cpu_issue)} to {_known(row.cpu_complete)}"
    others = f"{_known(row.outstanding_at_issue)} in flight at issue, overtaken by {_known(row.overtaken_by)}"
    return [*failed, cpus, others, *([row.path] if row.path else [])]


def waits(row: SlowRequest | SlowOperation) -> Iterator[str]:
    """Yield a sentence for each thread that an outlier, or an operation on a file, waited for."""
    for wait in row.waits:
        instead = meanwhile(wait.instead or "", wait.ran_us, wait.delay_us)
        yield f"{wait.stage}: {wait.thread} (prio {wait.priority}) woken, ran {exact(wait.delay_us)} later{instead}"


def text(report: Report) -> list[str]:
    """Return the text report's lines on the longest outliers; nothing without outliers."""
    if not report.outliers:
        return []
    outlier_counts = counts(report)
    head = (
        f"outliers: {outlier_counts.above:,} I/Os above the threshold, {outlier_counts.recorded:,} recorded, "
        f"{outlier_counts.left_out:,} left out by the rate limit"
    )
    more = len(report.outliers) - MAX_SHOWN
    rows = [line for row in report.outliers[:MAX_SHOWN] for line in _lines(row)]
    return [*wrapped(head), *rows, *([f"  and {more:,} more rows"] if more > 0 else [])]


def _lines(row: SlowRequest) -> Iterator[str]:
    repeats = [f"x{row.repeats}"] if row.repeats > 1 else []
    parts = [row.time or UNKNOWN, row.device, *request(row), issuer(row), *repeats]
    yield from wrapped("  ".join(parts), "  ")
    about = "; ".join([f"total {exact(row.total_us)} {until(row.stages_us)}", *circumstances(row)])
    yield from wrapped(about, "    ")
    yield from _bars(row)
    for sentence in waits(row):
        yield from wrapped(sentence, "      ")


def sum_of(row: SlowRequest) -> StageSum | None:
    """Return the sum of an outlier's stages; None where they were not traced."""
    if not row.stages_us and not row.unaccounted_us:
        return None
    return stage_sum(row.stages_us, row.includes, row.unaccounted_us, row.total_us)


def _bars(row: SlowRequest) -> Iterator[str]:
    """Yield a line for each stage with its part of the total."""
    stages = sum_of(row)
    if stages is None:
        yield f"      {NOT_TRACED}"
        return
    for name, us in ordered(stages.parts, COLUMNS):
        if name == UNACCOUNTED and us <= _FEW_US and row.stages_us:
            continue
        share = min(1.0, us / row.total_us) if row.total_us else 0.0
        yield f"      {name[:12]:<12}{exact(us):>16} {part(share):>5} {'#' * round(share * _BAR)}".rstrip()


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
