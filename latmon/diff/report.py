"""The report of two captures, or of several as a sweep: types that are built once of a comparison.

JSON (schema latmon.diff/1) has their fields in their order; text, page and panel are made of them. A field that is
HIDDEN has no key: only text or pictures need it. contrib/typed_schema.py makes schemas/diff.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from latmon.analysis.statistics import ALPHA
from latmon.diff import conditions, verdict, warnings
from latmon.diff.blocks import CaptureSpan
from latmon.diff.comparison import (
    Comparison,
    PartChange,
    SeriesChange,
    Shift,
    Spread,
    Sweep,
    SweepRow,
    SweepTable,
    Where,
    runs_of,
)
from latmon.diff.hypotheses import POWER, Cause, Detectable, Extreme
from latmon.model.frame import Series
from latmon.model.histogram import Histogram
from latmon.support.typed_json import HIDDEN, MERGED, Digits, IfAny, OrAbsent
from latmon.support.units import rfc3339

SCHEMA: Final = "latmon.diff/1"
CHANGED: Final = frozenset({"whole", "body", "tail", "opposed"})
"""Results that are changes."""
_WAYS: Mapping[int, Literal["slower", "faster", "none"]] = {1: "slower", -1: "faster", 0: "none"}


@dataclass(frozen=True, kw_only=True)
class Capture:
    """A capture, a part of one, or the joined runs of one side."""

    name: str
    """Name of the file or of the mark; of several runs the names of all."""
    host: str
    kernel: str
    backend: str
    tier: str | None
    """Tier of the probe (docs/COVERAGE.md); null: it has none."""
    latency_from: str | None
    """Point at which totals begin; null: unknown."""
    start: str | None
    """RFC 3339 in UTC; null where it is not a time of the calendar."""
    end: str | None
    """As `start`."""
    measured_s: Annotated[float | None, Digits(6)]
    """Length in s; null: an import assumed it (`warnings`)."""
    windows: int
    gaps: int
    lost: int
    """Events lost and map updates failed: I/Os that were not timed."""
    damage: IfAny[tuple[str, ...]]
    """Damaged places of the file; absent: none."""
    load: conditions.DeviceLoad
    """Load of all devices."""
    runs: Annotated[int, HIDDEN]
    """Runs that are joined; 0: it is one capture."""
    start_wall: Annotated[float, HIDDEN]
    """Unix time of its beginning, in s."""
    end_wall: Annotated[float, HIDDEN]
    """Unix time of its end, in s."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """How the test was made; docs/DIFF.md explains it."""

    tested: bool
    """false: there were too few windows, or they were too short."""
    alpha: float
    """Chance of any false alarm in the comparison."""
    questions: int
    """Tests that were made."""
    blocks: Mapping[str, tuple[int, int]]
    """Of `body` and `tail`: blocks of A and of B."""
    block_correlation: Annotated[Mapping[str, float], Digits(3)]
    """Of `body` and `tail`: correlation of neighbouring blocks."""
    power: float
    """Chance of finding a change of the size in `would_have_found`."""
    why_untested: Annotated[str, HIDDEN]
    """Sentence on why it was not tested; empty where it was."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs of the two sides, over all devices."""

    above_us: int
    """I/Os of `slow/day` take at least this long, in us."""
    a: tuple[SweepRow, ...]
    b: tuple[SweepRow, ...]
    ranges: tuple[Spread, ...]
    """A row per column that all runs have."""
    settings_a: Annotated[tuple[tuple[conditions.Difference, ...], ...], HIDDEN]
    """Settings of each further run of A that differ from those of its first run."""
    settings_b: Annotated[tuple[tuple[conditions.Difference, ...], ...], HIDDEN]
    """As `settings_a`, of B."""


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """Test result of the body, the middle half of the I/Os, or of the tail, the slowest tenth."""

    changed: bool | None
    """null where it could not be tested."""
    why: OrAbsent[str] = None
    """Why it could not be tested."""
    direction: OrAbsent[Literal["slower", "faster", "none"]] = None
    p: Annotated[OrAbsent[float], Digits(5)] = None
    """Adjusted for all tests of the comparison."""
    above_us: OrAbsent[int] = None
    """Latency in us at which the sides differ most."""
    share: Annotated[OrAbsent[tuple[float, float]], Digits(8)] = None
    """Share of the I/Os at or above `above_us`, of A and of B."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Comparison of a device's op, or of a stage of it."""

    series: Annotated[Series, MERGED]
    of: OrAbsent[Literal["all", "traced"]]
    """I/Os that the stage is measured of; absent for a total."""
    includes: OrAbsent[tuple[str, ...]]
    """Stages that the time of the stage includes; absent for a total."""
    where: Where
    """What changed: all of it, its body, its tail, or both in opposite directions."""
    sentence: str
    """The result in words."""
    count: tuple[int, int]
    """I/Os of A and of B."""
    shift_us: Mapping[str, Shift]
    """Quantile, or `max` -> its change."""
    extreme: OrAbsent[Extreme]
    cause: OrAbsent[Cause]
    body: PartResult
    tail: PartResult
    would_have_found: Detectable
    subject: Annotated[str, HIDDEN]
    """Device, op and stage in words."""
    a: Annotated[Histogram, HIDDEN]
    """Latencies of A."""
    b: Annotated[Histogram, HIDDEN]
    """Latencies of B."""

    @property
    def changed(self) -> bool:
        return self.where in CHANGED


@dataclass(frozen=True, kw_only=True)
class PairReport:
    """Two captures compared, or the runs of two sides: A and B."""

    schema: Literal["latmon.diff/1"] = SCHEMA
    captures: tuple[Capture, Capture]
    method: Method
    users: tuple[conditions.UserView, ...]
    """Of A and of B."""
    findings: conditions.FindingsChange | None
    """null: no rule was evaluated on one side."""
    lead: tuple[str, ...]
    """Sentences on what changed most."""
    warnings: tuple[str, ...]
    """Sentences on why the two are hard to compare."""
    loads_differ: tuple[conditions.LoadDifference, ...]
    cgroups_differ: OrAbsent[tuple[conditions.CgroupDifference, ...]]
    """Absent where one side has no I/O by cgroup."""
    processes_differ: OrAbsent[tuple[conditions.ProcessDifference, ...]]
    """Absent where one side has no I/O by process."""
    files_differ: OrAbsent[tuple[conditions.FileDifference, ...]]
    """Absent where one side has no operations on files."""
    kinds_differ: OrAbsent[tuple[conditions.KindDifference, ...]]
    """Absent where one side has neither sizes nor orders of I/Os."""
    runs: OrAbsent[Runs]
    """Absent where neither side has several runs."""
    settings: tuple[conditions.Difference, ...]
    """Settings that differ."""
    changes: tuple[Change, ...]
    only_a: tuple[Series, ...]
    """Series that only A has."""
    only_b: tuple[Series, ...]
    """Series that only B has."""
    raised_limits: Annotated[tuple[conditions.Difference, ...], HIDDEN]
    """Limits of I/Os in flight that are higher in B."""
    has_settings: Annotated[bool, HIDDEN]
    """Whether both sides recorded their settings."""


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Several captures as a sweep: a row for each, or for each value of a setting."""

    schema: Literal["latmon.diff/1"] = SCHEMA
    captures: tuple[Capture, ...]
    """In the order of the arguments."""
    sweep: tuple[SweepTable, ...]
    """A table of all devices, then one of each device that all captures have."""
    setting: Annotated[str, HIDDEN]
    """Setting by which the rows are ordered; empty: none."""
    users: Annotated[tuple[conditions.UserView, ...], HIDDEN]
    """Of each row."""
    warnings: Annotated[tuple[str, ...], HIDDEN]
    """Sentences on why the captures are hard to compare."""


DiffReport = PairReport | SweepReport


def pair_report(comparison: Comparison) -> PairReport:
    """Return the report of two spans."""
    a, b = comparison.a, comparison.b
    return PairReport(
        captures=(_capture(a), _capture(b)),
        method=_method(comparison),
        users=conditions.user_views((a, b)),
        findings=conditions.findings_change(a, b),
        lead=tuple(verdict.lead(comparison)),
        warnings=tuple(warnings.of_pair(comparison)),
        loads_differ=conditions.unlike(a, b),
        cgroups_differ=conditions.unlike_cgroups(a, b),
        processes_differ=conditions.unlike_processes(a, b),
        files_differ=conditions.unlike_files(a, b),
        kinds_differ=conditions.unlike_kinds(a, b),
        runs=_runs(a, b),
        settings=conditions.differing(a, b),
        changes=tuple(_change(change, comparison) for change in comparison.changes),
        only_a=comparison.only_a,
        only_b=comparison.only_b,
        raised_limits=conditions.raised_limits(a, b),
        has_settings=bool(a.settings and b.settings),
    )


def sweep_report(sweep: Sweep) -> SweepReport:
    """Return the report of a sweep."""
    return SweepReport(
        captures=tuple(_capture(span) for span in sweep.captures),
        sweep=tuple(sweep.tables),
        setting=sweep.setting,
        users=conditions.user_views(sweep.spans),
        warnings=tuple(warnings.of_sweep(sweep)),
    )


def _capture(span: CaptureSpan) -> Capture:
    return Capture(
        name=span.name,
        host=span.origin.host,
        kernel=span.origin.kernel,
        backend=span.origin.backend,
        tier=span.origin.tier or None,
        latency_from=span.origin.latency_from or None,
        start=rfc3339(span.start_wall),
        end=rfc3339(span.end_wall),
        measured_s=span.seconds,
        windows=span.windows,
        gaps=span.gaps,
        lost=span.lost,
        damage=span.damage,
        load=conditions.device_load(span),
        runs=len(span.runs),
        start_wall=span.start_wall,
        end_wall=span.end_wall,
    )


def _method(comparison: Comparison) -> Method:
    return Method(
        tested=comparison.tested,
        alpha=ALPHA,
        questions=comparison.rows,
        blocks={part: (counts.in_a, counts.in_b) for part, counts in comparison.lengths.items()},
        block_correlation={part: counts.correlation for part, counts in comparison.lengths.items()},
        power=POWER,
        why_untested="" if comparison.tested else verdict.too_few(comparison),
    )


def _runs(a: CaptureSpan, b: CaptureSpan) -> Runs | None:
    """Return the runs of both sides; None if neither has several."""
    tables, ranges = runs_of(a, b)
    if not tables:
        return None
    of_a, of_b = tables
    return Runs(
        above_us=of_a.above_us,
        a=of_a.rows,
        b=of_b.rows,
        ranges=ranges,
        settings_a=tuple(conditions.differing(a.runs[0], run) for run in a.runs[1:]),
        settings_b=tuple(conditions.differing(b.runs[0], run) for run in b.runs[1:]),
    )


def _change(change: SeriesChange, comparison: Comparison) -> Change:
    is_total = change.series.stage == "total"
    return Change(
        series=change.series,
        of=None if is_total else "traced" if change.traced else "all",
        includes=None if is_total else change.includes,
        where=change.where if comparison.tested else "untested",
        sentence=verdict.sentence(change, comparison),
        count=(change.a.count, change.b.count),
        shift_us={shift.name: shift for shift in change.shifts},
        extreme=change.extreme,
        cause=change.cause,
        body=_part(change.body),
        tail=_part(change.tail),
        would_have_found=change.seen,
        subject=verdict.subject(change),
        a=change.a,
        b=change.b,
    )


def _part(part: PartChange) -> PartResult:
    if part.direction is None:
        return PartResult(changed=None, why=part.why)
    return PartResult(
        changed=bool(part.direction),
        direction=_WAYS[part.direction],
        p=part.p,
        above_us=part.cut_us,
        share=(part.share_a, part.share_b),
    )
