"""The comparison of two or more spans, per device, op and stage.

hypotheses.py has the tested hypotheses; verdict.py and output.py put the results into words. The trend of a sweep is
tested by Kendall's S over all orders of the captures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from latmon.analysis import neighbours, statistics
from latmon.analysis.cuts import (
    DRIFT,
    FEWEST,
    PARTS,
    QUANTILES,
    BlockCounts,
    Cut,
    SeriesCuts,
    length,
    quantile_ratios,
)
from latmon.analysis.peers import by_name
from latmon.analysis.statistics import CutRow, RowResult
from latmon.diff import hypotheses
from latmon.diff.blocks import TRACED, CaptureSpan, of_runs, plain
from latmon.diff.conditions import (
    Difference,
    UserView,
    device_load,
    differing,
    user_views,
    values_of,
    without_volumes,
)
from latmon.diff.hypotheses import TRACED_FEWEST, Cause, Extreme, cause, cuts_of, extreme
from latmon.model.frame import STAGES, Series
from latmon.model.histogram import Histogram, bucket_bounds, merge
from latmon.model.stages import place_of_op
from latmon.support.typed_json import HIDDEN, MERGED, Digits, Key, OrAbsent, fields_of

Where = Literal["whole", "body", "tail", "opposed", "none", "unknown", "untested"]
DRIFTS = "it drifts while it is measured; longer captures are needed"
VARIES = "it varies as much within the captures as between them"
LEAST = 3
"""Rows that a trend needs."""
_SIGNIFICANT = 0.05
_NEARLY_NONE = 0.05
"""Largest share on the wrong side of a cut that separates A from B: above it of one, below it of the other."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A quantile of A and of B, or their maxima."""

    name: Annotated[str, HIDDEN]
    a_us: Annotated[int | None, Key("a")]
    """Of A, in us; null with too few I/Os."""
    b_us: Annotated[int | None, Key("b")]
    """Of B, in us; null with too few I/Os."""
    ratio: Annotated[float | None, Digits(4)] = None
    """B's divided by A's; null where it has no interval."""
    interval: Annotated[tuple[float, float] | None, Digits(4)] = None
    """95 % interval of the ratio."""
    tops: Annotated[tuple[int | None, int | None], HIDDEN] = (None, None)
    """The exact maxima, if known: a quantile is never shown above its own."""


@dataclass(frozen=True, slots=True)
class PartChange:
    """Test result of body or tail: `direction` 1 slower, -1 faster, 0 no difference found, None untested."""

    direction: int | None
    p: float | None = None
    cut_us: int = 0
    """The cut with the most significant difference."""
    share_a: float = 0.0
    share_b: float = 0.0
    why: str = ""
    """Why `direction` is None."""

    @property
    def is_all(self) -> bool:
        """Whether nearly all I/Os of one side are above the cut, and nearly none of the other's."""
        low, high = sorted((self.share_a, self.share_b))
        return low <= _NEARLY_NONE and high >= 1 - _NEARLY_NONE


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """Comparison of one series in both spans."""

    series: Series
    a: Histogram
    b: Histogram
    shifts: tuple[Shift, ...]
    body: PartChange
    tail: PartChange
    seen: hypotheses.Detectable
    traced: bool = False
    """Whether it is of the traced I/Os; else of all timed ones."""
    includes: tuple[str, ...] = ()
    """Stages that its time includes, the same in A and B."""
    extreme: Extreme | None = None
    cause: Cause | None = None
    """Cause of the change of a total."""

    @property
    def where(self) -> Where:
        """Return tail, body, whole (both, the same way), opposed (both, opposite ways), none, or unknown."""
        body, tail = self.body.direction, self.tail.direction
        if body and tail:
            return "whole" if body == tail else "opposed"
        if body or tail:
            return "body" if body else "whole" if self.tail.is_all else "tail"
        return "unknown" if body is None and tail is None else "none"

    @property
    def changed(self) -> bool:
        return self.where not in ("none", "unknown")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two spans. `lengths`: by part; without blocks if there were too few windows for a test."""

    a: CaptureSpan
    b: CaptureSpan
    changes: tuple[SeriesChange, ...]
    lengths: Mapping[str, BlockCounts]
    rows: int
    only_a: tuple[Series, ...]
    only_b: tuple[Series, ...]
    unlike: tuple[tuple[Series, tuple[str, ...], tuple[str, ...]], ...] = ()
    """Stages that include different stages in A and B, with these: they are not compared."""

    @property
    def tested(self) -> bool:
        return _enough(self.a, self.b)

    @property
    def correlation(self) -> float:
        """Return the correlation of neighbouring blocks that is left: above 0.3 the spans are too short."""
        return max(block_counts.correlation for block_counts in self.lengths.values())


def compare(a: CaptureSpan, b: CaptureSpan) -> Comparison:
    """Compare two spans; the same spans give the same result."""
    both = sorted(_comparable(a, b), key=_order)
    unlike = tuple((plain(s), a.includes[s], b.includes[s]) for s in both if _is_unlike(s, a, b))
    both = [s for s in both if not _is_unlike(s, a, b)]
    pairs = {s: _pair(a, b, s) for s in both}
    pairs = {s: pair for s, pair in pairs.items() if pair[0] and pair[1]}
    tested = _enough(a, b)
    cuts = {s: cuts_of((a, b), s, pair) for s, pair in pairs.items()} if tested else {}
    lengths = {part: length(list(cuts.values()), part, len(a.units), len(b.units)) for part in PARTS}
    results: dict[Series, list[_CutResult]] = {}
    for part, how in lengths.items():
        _test_part(list(cuts.values()), part, how, results)
    return Comparison(
        a=a,
        b=b,
        changes=tuple(
            _led(_change(s, pair, cuts.get(s), results.get(s, []), lengths), a, b, tested=tested)
            for s, pair in pairs.items()
        ),
        lengths=lengths,
        rows=sum(len(cut_results) for cut_results in results.values()),
        only_a=_only(a, b),
        only_b=_only(b, a),
        unlike=unlike,
    )


def _comparable(a: CaptureSpan, b: CaptureSpan) -> list[Series]:
    """Return the series of both. Stages are of the traced I/Os if both traced enough, else of the always-on probe."""
    # if the total begins at the issue, the stage in the driver equals it
    same = {"hba"} if a.origin.latency_from == b.origin.latency_from == "issue" else set()
    both = [s for s in a.series() if s in b.bits and not (s.stage in same and _is_total(s, a, b))]
    followed = {s[:2] for s in both if s.stage == f"{TRACED}total" and _enough_traced(s, a, b)}
    always = {s for s in both if not s.stage.startswith(TRACED)}
    return [
        s
        for s in both
        if s.stage == "total"
        or (s in always and s[:2] not in followed)
        or (s not in always and plain(s).stage != "total" and (s[:2] in followed or plain(s) not in always))
    ]


def _enough_traced(series: Series, *sides: CaptureSpan) -> bool:
    return all(capture_span.total(series, capture_span.bits[series]).count >= TRACED_FEWEST for capture_span in sides)


def _is_unlike(series: Series, a: CaptureSpan, b: CaptureSpan) -> bool:
    return series.stage != "total" and a.includes.get(series) != b.includes.get(series)


def _only(capture_span: CaptureSpan, other: CaptureSpan) -> tuple[Series, ...]:
    known = {plain(s) for s in other.series()}
    return tuple(sorted({plain(s) for s in capture_span.series()} - known, key=_order))


def _led(change: SeriesChange, a: CaptureSpan, b: CaptureSpan, *, tested: bool) -> SeriesChange:
    """Return the change with its very long I/Os and cause, and with the plain name of its series."""
    series = plain(change.series)
    series_change = replace(
        change, series=series, traced=series != change.series, includes=a.includes.get(change.series, ())
    )
    if series.stage != "total":
        return series_change
    other_extreme = extreme(a, b, series, (change.a, change.b))
    if not (change.changed or not tested):
        return replace(series_change, extreme=other_extreme)
    tail = change.where == "tail"
    low, high = (change.tail.cut_us, None) if tail else (0, other_extreme.above_us if other_extreme else None)
    moved = change.tail.direction if tail else change.body.direction or change.tail.direction
    slower = None if not moved else int(moved > 0)
    return replace(series_change, extreme=other_extreme, cause=cause(a, b, series, low, high, slower=slower))


def _enough(*sides: CaptureSpan) -> bool:
    return all(
        len(capture_span.units) >= neighbours.UNITS and capture_span.us >= neighbours.UNITS_US for capture_span in sides
    )


def _is_total(series: Series, *sides: CaptureSpan) -> bool:
    """Return whether a stage has the same counts as the total in each of them."""
    total = series._replace(stage="total")
    return all(
        total in capture_span.bits
        and capture_span.total(total, capture_span.bits[total]).buckets
        == capture_span.total(series, capture_span.bits[series]).buckets
        for capture_span in sides
    )


class _CutResult(NamedTuple):
    cut: Cut
    row: CutRow
    found: RowResult
    critical: float


def _test_part(series: Sequence[SeriesCuts], part: str, how: BlockCounts, into: dict[Series, list[_CutResult]]) -> None:
    """Test all series at once; body and tail each have half of the chance of a false alarm (Bonferroni)."""
    if how.correlation > DRIFT or not how.in_a:
        return
    cuts = [(series_cuts, cut) for series_cuts in series for cut in series_cuts.of(part)]
    rows = [row for series_cuts in series for row in series_cuts.rows(how, series_cuts.of(part))]
    weighed = statistics.weigh(rows, how.correlation, len(PARTS))
    for (series_cuts, cut), row, row_result in zip(cuts, rows, weighed.found, strict=True):
        into.setdefault(series_cuts.series, []).append(_CutResult(cut, row, row_result, weighed.critical))


def _pair(a: CaptureSpan, b: CaptureSpan, series: Series) -> tuple[Histogram, Histogram]:
    bits = min(a.bits[series], b.bits[series])
    return a.total(series, bits), b.total(series, bits)


def _change(
    series: Series,
    pair: tuple[Histogram, Histogram],
    cuts: SeriesCuts | None,
    results: Sequence[_CutResult],
    lengths: Mapping[str, BlockCounts],
) -> SeriesChange:
    a, b = pair
    ratios = quantile_ratios(cuts, pair, lengths) if cuts else {}
    tops = (a.max, b.max)
    shifts = []
    for name, q in QUANTILES.items():
        by = ratios.get(name)
        value, interval = (None, None) if by is None else (by.value, (by.low, by.high))
        shifts.append(Shift(name, a.bounded(a.quantile(q)), b.bounded(b.quantile(q)), value, interval, tops))
    shifts.append(Shift("max", a.bounded(a.max_bound), b.bounded(b.max_bound), tops=tops))
    body, tail = (
        _moved(
            [cut_result for cut_result in results if cut_result.cut.part == q], pair, _why(pair, cuts, q, lengths[q])
        )
        for q in PARTS
    )
    reported = [
        hypotheses.DetectionLimit(
            us=bucket_bounds(cut_result.cut.bucket, a.bits)[0],
            part=cut_result.cut.part,
            least=cut_result.row.least,
            error=cut_result.found.error,
            critical=cut_result.critical,
            internal=statistics.internal_difference(cut_result.row),
            share=sum(cut_result.row.shares) / 2,
            factor=cut_result.row.factor,
            counted=math.sqrt(statistics.least_variance(cut_result.row)),
        )
        for cut_result in results
    ]
    return SeriesChange(series, a, b, tuple(shifts), body, tail, hypotheses.seen(merge([a, b]), reported))


def _why(pair: tuple[Histogram, Histogram], cuts: SeriesCuts | None, part: str, how: BlockCounts) -> str:
    """Return why a part has no test result."""
    if cuts is None:
        return "too few windows"
    if how.correlation > DRIFT:
        return DRIFTS
    count = sum(histogram.count for histogram in pair)
    need = FEWEST * (4 if part == "body" else 100)
    return f"{count} I/Os" if count < need else "all in one bucket"


def _moved(results: Sequence[_CutResult], pair: tuple[Histogram, Histogram], why: str) -> PartChange:
    if not results:
        return PartChange(None, why=why)
    sure = [cut_result for cut_result in results if cut_result.found.p <= statistics.ALPHA]
    steady = [
        cut_result
        for cut_result in sure
        if abs(cut_result.row.shares[1] - cut_result.row.shares[0]) > statistics.internal_difference(cut_result.row)
    ]
    if sure and not steady:
        return PartChange(None, why=VARIES)
    best = min(steady or results, key=lambda cut_result: (cut_result.found.p, -abs(cut_result.found.t)))
    direction = (1 if best.found.t > 0 else -1) if steady else 0
    return PartChange(direction, best.found.p, bucket_bounds(best.cut.bucket, pair[0].bits)[0], *best.row.shares)


def _order(series: Series) -> tuple[object, ...]:
    """Return a sort key: by device, then op; the total before its stages."""
    stages = ("total", *STAGES)
    stage = stages.index(series.stage) if series.stage in stages else len(stages)
    return by_name(series.device), place_of_op(series.op), series.op, stage, series.stage


def devices_of(all_series: Iterable[Series]) -> list[str]:
    """Return the devices, each once."""
    return list(dict.fromkeys(series.device for series in all_series))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepValues:
    """Numbers of a row of a sweep; a field is a column."""

    mb_per_s: Annotated[float | None, Key("MB/s")]
    """Megabytes (10^6 bytes) per second; null where the length of a capture was not measured."""
    iops: Annotated[float | None, Key("IOPS")]
    """I/Os per second; null as `MB/s`."""
    p50: float | None
    """Latency in us; null with too few I/Os."""
    p99: float | None
    """Latency in us; null with too few I/Os."""
    p999: Annotated[float | None, Key("p99.9")]
    """Latency in us; null with too few I/Os."""
    max: float | None
    """Latency in us of the slowest I/O; null where none was timed."""
    slow_per_day: Annotated[float | None, Key("slow/day")]
    """I/Os of `above_us` or more per day; null where none was timed, and as `MB/s`."""

    def __getitem__(self, column: str) -> float | None:
        """Return the value of one of COLUMNS."""
        value: float | None = getattr(self, _FIELD_NAMES[column])
        return value


_FIELD_NAMES = {field.key: field.name for field in fields_of(SweepValues)}
COLUMNS = tuple(_FIELD_NAMES)
"""Columns of a sweep."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A capture of a sweep, or a run of a side."""

    name: str
    """Value of the setting, or the capture's name where no setting orders the rows."""
    runs: OrAbsent[int]
    """Captures that are joined in it; absent: one."""
    values: Annotated[SweepValues, MERGED]
    capture: Annotated[str, HIDDEN]
    """Names of its captures."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A column that only rises or only falls from row to row."""

    column: str
    rises: bool
    """false: it falls."""
    p: float
    """Two-sided probability that it is chance."""
    significant: bool
    """Whether that is at most 5 %."""


@dataclass(frozen=True, slots=True)
class SweepTable:
    """Several captures, of one device or of all."""

    device: str | None
    """null: all devices."""
    setting: str | None
    """Setting by which the rows are ordered; null: they are in the order in which they were given."""
    above_us: int
    """I/Os of `slow/day` take at least this long, in us."""
    rows: tuple[SweepRow, ...]
    trends: tuple[Trend, ...]


@dataclass(frozen=True)
class Sweep:
    """Captures in the order of a setting, one span per value; `names`: its values, or the captures' names."""

    setting: str
    names: tuple[str, ...]
    spans: tuple[CaptureSpan, ...]
    captures: tuple[CaptureSpan, ...] = ()
    """The captures in the order of the arguments; those with the same value are not joined here."""

    @cached_property
    def tables(self) -> list[SweepTable]:
        """Return the table of all devices, and that of each device that all captures have."""
        return [sweep(self, device) for device in ("", *devices(self.spans))]


def sweep_of(periods: Sequence[CaptureSpan], wanted: str = "") -> Sweep:
    """Return the captures in the order of a setting: the wanted one, else the one that differs in all of them.

    Captures with the same value of the wanted one are joined. UsageError where a capture lacks it.
    """
    setting, values = (wanted, values_of(periods, wanted)) if wanted else swept(periods)
    if not setting:
        return Sweep("", tuple(period.name for period in periods), tuple(periods), tuple(periods))
    groups: dict[str, list[CaptureSpan]] = {}
    for value, capture_span in zip(values, periods, strict=True):
        groups.setdefault(value, []).append(capture_span)
    ranked = sorted(groups, key=_rank)
    return Sweep(
        setting, tuple(ranked), tuple(of_runs(groups[ranked_value]) for ranked_value in ranked), tuple(periods)
    )


def sweep(sweep: Sweep, device: str = "") -> SweepTable:
    """Return the table of one device, or of all."""
    views = user_views(sweep.spans, device)
    sides = zip(sweep.names, sweep.spans, views, strict=True)
    rows = tuple(_row(span, name, device, view) for name, span, view in sides)
    trends = (trend for column in COLUMNS if (trend := _trend(column, rows)) is not None)
    return SweepTable(device or None, sweep.setting or None, views[0].above_us, rows, tuple(trends))


@dataclass(frozen=True, slots=True)
class Spread:
    """Range of a column over the runs of each side."""

    column: str
    a: tuple[float, float]
    """Lowest and highest of the runs of A."""
    b: tuple[float, float]
    """Lowest and highest of the runs of B."""
    direction: Literal[-1, 0, 1]
    """1: every run of B is above every run of A; -1: below; 0: the ranges overlap."""


def runs_of(a: CaptureSpan, b: CaptureSpan) -> tuple[tuple[SweepTable, ...], tuple[Spread, ...]]:
    """Return a table of runs of each side, of all devices, and their ranges; nothing if neither has several runs."""
    if not (a.runs or b.runs):
        return (), ()
    sides = [capture_span.runs or (capture_span,) for capture_span in (a, b)]
    sweep_table = sweep(Sweep("", tuple(run.name for side in sides for run in side), (*sides[0], *sides[1])))
    first = len(sides[0])
    tables = (
        replace(sweep_table, rows=sweep_table.rows[:first], trends=()),
        replace(sweep_table, rows=sweep_table.rows[first:], trends=()),
    )
    spreads = (_spread(column, *tables) for column in COLUMNS)
    return tables, tuple(spread for spread in spreads if spread is not None)


def _spread(column: str, a: SweepTable, b: SweepTable) -> Spread | None:
    """Return the ranges of a column; None where a run has no value."""
    ranges = []
    for table in (a, b):
        values = [value for row in table.rows if (value := row.values[column]) is not None]
        if len(values) < len(table.rows):
            return None
        ranges.append((min(values), max(values)))
    of_a, of_b = ranges
    if of_b[0] > of_a[1]:
        return Spread(column, of_a, of_b, 1)
    return Spread(column, of_a, of_b, -1 if of_b[1] < of_a[0] else 0)


def devices(periods: Iterable[CaptureSpan]) -> list[str]:
    """Return the devices of which all captures have I/O."""
    device_sets = [{flow.device for unit in capture_span.units for flow in unit.done} for capture_span in periods]
    return sorted(set.intersection(*device_sets), key=by_name) if device_sets else []


def swept(periods: Sequence[CaptureSpan]) -> tuple[str, list[str]]:
    """Return the one setting that differs in all captures, with its values; empty if there is none or several."""
    condition_changes = [differing(periods[0], capture_span) for capture_span in periods[1:]]
    shared = (
        {(difference.section, difference.name) for difference in condition_changes[0]} if condition_changes else set()
    )
    for differences in condition_changes[1:]:
        shared &= {(difference.section, difference.name) for difference in differences}
    devices_by_setting: dict[tuple[str, str], list[str]] = {}
    for key in sorted(shared):
        first = next(
            difference.a for difference in condition_changes[0] if (difference.section, difference.name) == key
        )
        values = [first, *(_value(differences, key) for differences in condition_changes)]
        if len(set(values)) == len(values) and all(values):
            devices_by_setting[key] = values
    names = {name for _, name in devices_by_setting}
    if len(names) != 1:
        return "", ["" for _ in periods]
    (section, name), values = next(iter(devices_by_setting.items()))
    return (name if len(devices_by_setting) > 1 else f"{section} {name}"), values


def _value(differences: Sequence[Difference], key: tuple[str, str]) -> str:
    return next(difference.b for difference in differences if (difference.section, difference.name) == key)


def _rank(value: str) -> tuple[int, float, str]:
    """Return a sort key: numbers by size, before words."""
    return (0, float(value), value) if is_number(value) else (1, 0.0, value)


def is_number(value: str) -> bool:
    """Return whether a setting's value is a finite number."""
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _row(period: CaptureSpan, name: str, device: str, view: UserView) -> SweepRow:
    load, total = device_load(period, device), _latency(period, device)
    values = SweepValues(
        mb_per_s=load.mb_per_s,
        iops=load.iops,
        p50=total.quantile(0.5),
        p99=total.quantile(0.99),
        p999=total.quantile(0.999),
        max=total.max_bound,
        slow_per_day=None if view.above is None else view.per_day,
    )
    return SweepRow(name, len(period.runs) or None, values, period.name)


def _latency(period: CaptureSpan, device: str) -> Histogram:
    totals = (series for series in period.series() if series.stage == "total" and device in ("", series.device))
    series = without_volumes(period, totals)
    bits = min((period.bits[member] for member in series), default=0)
    return merge(period.total(member, bits) for member in series)


def _trend(column: str, rows: Sequence[SweepRow]) -> Trend | None:
    values = [row.values[column] for row in rows]
    known = [value for value in values if value is not None]
    if len(known) < LEAST or len(known) < len(values):
        return None
    rises = all(b > a for a, b in pairwise(known))
    falls = all(b < a for a, b in pairwise(known))
    if not (rises or falls):
        return None
    # Kendall's S of a trend is the greatest of all orders, and only the reverse order has as great a one
    p = 2 / math.factorial(len(known))
    return Trend(column, rises, p, p <= _SIGNIFICANT)
