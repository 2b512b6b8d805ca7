"""Spans of a capture in blocks of time, with the counts of I/Os above each cut.

Successive windows are correlated, so a test that takes them for independent finds differences that don't exist;
blocks of windows are exchanged instead. A unit is a window, or several windows of a long capture, so that memory is
bounded by the number of series. Pure: reads no file and makes no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from latmon.aggregate.accumulator import Minute, thresholds_of
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.table_sum import Sum
from latmon.analysis.cuts import Exceedances, count_above
from latmon.model.frame import UNACCOUNTED, Completed, Device, Flow, Frame, Origin, Series, Settings
from latmon.model.histogram import Buckets, Histogram, bucket_bounds, bucket_index
from latmon.model.inflight import Ages
from latmon.model.measurements import ABOVE, ERRORS, FILES, ISSUERS, PATTERNS, SIZES, STAGE_TIMES
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.packed_frame import pack
from latmon.model.sample import SampleRates
from latmon.recording.codec import Gap
from latmon.recording.unreported_gaps import UnreportedGaps

MAX_UNITS = 128
"""Beyond it neighbours are merged: a long capture has 64 to 128 units."""
MAX_SERIES = 4096
"""Further series are left out and counted."""
MAX_BUCKETS = 1 << 20
"""Buckets of all units together, 100 bytes each; beyond it neighbours are merged, as long as there are enough units."""
MAX_IN_UNIT = 1 << 16
"""Buckets of one unit; histograms beyond are left out and counted."""
_ENOUGH = 12
"""Units that are not merged because of their buckets."""
SMALL = 16_384
"""Bytes: pages of databases and file systems have 4 to 16 KiB."""
MINUTE_US = 60_000_000
TRACED = "traced "
"""Prefix of a stage in a series of the traced I/Os: they are another population than all I/Os."""
_OF_SPANS = (STAGE_TIMES, ABOVE, ERRORS, ISSUERS, FILES, SIZES, PATTERNS)
"""Tables of which a span has one sum. Of latencies and completions it has one for each unit."""
Counts = dict[int, int]
K = TypeVar("K")


@dataclass(slots=True)
class Unit:
    """Counts of one block's part of a span: a window, or several."""

    us: int = 0
    windows: int = 0
    counts: dict[Series, Counts] = field(default_factory=dict)
    done: dict[Flow, tuple[int, int]] = field(default_factory=dict)
    """I/Os and bytes."""
    buckets: int = 0
    """Buckets in `counts`."""

    def absorb(self, other: Unit) -> None:
        self.us += other.us
        self.windows += other.windows
        for series, counts in other.counts.items():
            self.add(series, counts.items())
        for flow, (count, size) in other.done.items():
            before = self.done.get(flow, (0, 0))
            self.done[flow] = before[0] + count, before[1] + size

    def add(self, series: Series, counts: Iterable[tuple[int, int]] | Buckets) -> None:
        """Add counts by bucket index."""
        mine = self.counts.setdefault(series, {})
        before = len(mine)
        add(mine, counts)
        self.buckets += len(mine) - before


@dataclass
class CaptureSpan:
    """A span of a capture to compare: filled by `add`, then read. `settings` are those at its begin."""

    name: str
    origin: Origin
    settings: Settings
    devices: dict[str, Device] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    bits: dict[Series, int] = field(default_factory=dict)
    left_out: int = 0
    """Histograms of series beyond MAX_SERIES."""
    gaps: int = 0
    lost: int = 0
    """Events lost and map updates failed: I/Os that were not timed."""
    start_wall: float = 0.0
    end_wall: float = 0.0
    end_us: int = 0
    damage: tuple[str, ...] = ()
    is_live: bool = False
    """Whether its file is still being written."""
    findings: Mapping[tuple[str, str], str] | None = None
    """Rule and device -> the summary of its worst moment; None where no rule was evaluated."""
    not_evaluated: frozenset[str] = frozenset()
    """Rules without their input: a finding of theirs on the other side is neither gone nor new."""
    includes: dict[Series, tuple[str, ...]] = field(default_factory=dict)
    """Stages that a stage's time includes."""
    runs: tuple[CaptureSpan, ...] = ()
    """The captures that `of_runs` joined."""
    waiting: Waiting = field(default_factory=Waiting)
    sums: Sum = field(default_factory=lambda: Sum(_OF_SPANS))
    """Sums of all its windows."""
    _thresholds: dict[str, set[int]] = field(default_factory=dict)
    _known: dict[Series, int] = field(default_factory=dict)
    _bounds: dict[Series, int] = field(default_factory=dict)
    _per_unit: int = 1
    _unreported: UnreportedGaps = field(init=False)

    def __post_init__(self) -> None:
        self._unreported = UnreportedGaps(self.origin.interval_us)

    def by_minutes(self) -> None:
        """Make units of a minute at least: the next items may be roll-ups of a minute."""
        self._per_unit = max(1, MINUTE_US // max(self.origin.interval_us, 1))

    @property
    def us(self) -> int:
        return sum(unit.us for unit in self.units)

    @property
    def windows(self) -> int:
        return sum(unit.windows for unit in self.units)

    def add(self, item: Frame | Minute | Gap) -> None:
        """Add a window, or a roll-up of several, or count a gap."""
        self.gaps += isinstance(item, Gap) + sum(1 for _ in self._unreported.before(item))
        if isinstance(item, Gap):
            return
        frame, windows = (item, 1) if isinstance(item, Frame) else (item.frame, item.windows)
        if not self.units:
            self.start_wall = frame.wall - frame.dt_us / 1e6
        self.end_wall, self.end_us = frame.wall, frame.mono_us
        if isinstance(item, Frame):
            self.waiting.add(item)
        else:
            self.waiting.take(item.frame, item.gauges)
        self.lost += frame.health.lost_events + frame.health.map_full
        self.devices.update((device.name, device) for device in frame.devices)
        if not self.units or self.units[-1].windows >= self._per_unit:
            self._open()
        unit = self.units[-1]
        unit.us += frame.dt_us
        unit.windows += windows
        for series, histogram in frame.histograms.items():
            self._count(unit, series, histogram)
            self.includes[series] = self.origin.measured.get(series.stage, ())
        self._add_traced(unit, frame)
        thresholds = thresholds_of(item) if isinstance(item, Frame) else item.thresholds
        for device, bounds in thresholds.items():
            self._thresholds.setdefault(device, set()).update(bounds)
        for flow, done in _done(frame).items():
            before = unit.done.get(flow, (0, 0))
            unit.done[flow] = before[0] + done.count, before[1] + done.bytes

    def _add_traced(self, unit: Unit, frame: Frame) -> None:
        """Add the tables of spans, and the traced stages with the weight of the frame's sample."""
        packed = pack(frame, _OF_SPANS)
        before = self.sums.one_in
        self.sums.add(packed)
        self._multiply(before, self.sums.one_in)
        weight = packed.one_in // self.sums.one_in if packed.one_in else 1
        for series, histogram in frame.traced.histograms.items():
            if series.stage != UNACCOUNTED:
                key = series._replace(stage=TRACED + series.stage)
                self._count(unit, key, histogram.scaled(weight) if weight > 1 else histogram)
                self.includes[key] = frame.traced.includes_of(series.device).get(series.stage, ())

    def weigh_as(self, one_in: int) -> None:
        """Have each traced I/O stand for `one_in`, a divisor of what it stands for now."""
        before = self.sums.one_in
        if before:
            self.sums.weigh_as(one_in)
            self._multiply(before, self.sums.one_in)

    def _multiply(self, before: int, now: int) -> None:
        """Multiply the traced stages of the units, each of which stood for `before` I/Os and stands for `now`."""
        if before in (0, now):
            return
        for unit in self.units:
            for series, counts in unit.counts.items():
                if series.stage.startswith(TRACED):
                    unit.counts[series] = {index: n * (before // now) for index, n in counts.items()}

    @property
    def above(self) -> Mapping[Flow, int]:
        """Return the I/Os above the threshold, counted by the probe."""
        return self.sums[ABOVE]

    def failed(self, device: str = "") -> int | None:
        """Return the I/Os that failed, of one device or of all; None where they were not counted."""
        rows = self.sums[ERRORS]
        if not rows and ERRORS.name not in self.origin.counted:
            return None
        return sum(ios for row, ios in rows.items() if device in ("", row.device))

    @property
    def by_total(self) -> Mapping[Series, Mapping[int, int]]:
        """Return the time in us of a stage of the traced I/Os, by the bucket of their total."""
        return self.sums[STAGE_TIMES]

    @cached_property
    def issued(self) -> Mapping[str, int]:
        """Return the I/Os by the path of the cgroup that issued them."""
        by_cgroup = Counter[str]()
        for issuer, done in self.sums[ISSUERS].items():
            if not issuer.is_process:
                by_cgroup[issuer.cgroup] += done.count
        return by_cgroup

    @cached_property
    def processes(self) -> Mapping[str, IssuedIO]:
        """Return the I/Os of traced processes by their name."""
        processes = [(issuer, done) for issuer, done in self.sums[ISSUERS].items() if issuer.is_process]
        return ISSUERS.sum_rows((issuer.comm, done) for issuer, done in processes)

    @cached_property
    def files(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Return the timed operations on files by mount point and op, and their time in us."""
        files: dict[tuple[str, str], tuple[int, int]] = {}
        for file, took in self.sums[FILES].items():
            if took.sum is not None:
                _put(files, (file.mount, file.op), (took.count, took.sum))
        return files

    @cached_property
    def kinds(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Return the small or sequential I/Os, and all, of each traced device, by its name and the kind."""
        kinds: dict[tuple[str, str], tuple[int, int]] = {}
        for size, done in self.sums[SIZES].items():
            small = done.count if 0 < size.upto <= SMALL else 0
            _put(kinds, (size.device, "up to 16 KiB"), (small, done.count))
        for flow, pattern in self.sums[PATTERNS].items():
            _put(kinds, (flow.device, "sequential"), (pattern.sequential, pattern.issued))
        return kinds

    def absorb(self, run: CaptureSpan) -> None:
        """Add all of another span, with the same weights (`weigh_alike`), but its units and their resolutions."""
        self.sums.add(run.sums.packed)
        self.start_wall = min(self.start_wall or run.start_wall, run.start_wall)
        self.end_wall, self.end_us = max(self.end_wall, run.end_wall), max(self.end_us, run.end_us)
        self.gaps, self.lost, self.left_out = self.gaps + run.gaps, self.lost + run.lost, self.left_out + run.left_out
        self.damage, self.is_live = (*self.damage, *run.damage), self.is_live or run.is_live
        self.devices |= run.devices
        self.includes |= run.includes
        for device, threshold in run._thresholds.items():
            self._thresholds.setdefault(device, set()).update(threshold)
        for tops, more in ((self._known, run._known), (self._bounds, run._bounds)):
            tops.update((series, max(top, tops.get(series, -1))) for series, top in more.items())

    def threshold_us(self, device: str) -> int | None:
        """Return the device's threshold; None if it changed or there was none."""
        known = self._thresholds.get(device, set())
        return next(iter(known)) if len(known) == 1 else None

    @property
    def assumed_lengths(self) -> list[str]:
        """Return what an import assumed of the length of windows, of each run; empty: the length was measured."""
        return [text for capture_span in self.runs or (self,) if (text := capture_span.origin.assumed_length)]

    @property
    def seconds(self) -> float | None:
        """Return the length, by which rates are computed; None where it was not measured."""
        return None if self.assumed_lengths or not self.us else self.us / 1e6

    @property
    def ages(self) -> tuple[Ages, ...]:
        """Return the ages of the I/Os in flight at the end, of several runs at the end of each."""
        return tuple(capture_span.waiting.ages for capture_span in self.runs or (self,))

    def series(self) -> list[Series]:
        return list(self.bits)

    def total(self, series: Series, bits: int) -> Histogram:
        """Return the series' histogram, with its exact maximum if it is known."""
        counts: Counts = {}
        for unit in self.units:
            add(counts, unit.counts.get(series, {}).items())
        known, bound = self._known.get(series, -1), self._bounds.get(series, -1)
        whole_histogram = Histogram.of(
            counts, None, known if known >= max(bound, 0) else None, self.bits.get(series, bits)
        )
        return whole_histogram.coarsen(bits) if whole_histogram.bits > bits else whole_histogram

    def _open(self) -> None:
        """Begin a unit; merge pairs first if there are too many, or too many buckets in them."""
        buckets = sum(unit.buckets for unit in self.units)
        if len(self.units) >= MAX_UNITS or (buckets > MAX_BUCKETS and len(self.units) > _ENOUGH):
            for i in range(0, len(self.units) - 1, 2):
                self.units[i].absorb(self.units[i + 1])
            self.units = self.units[::2]
            self._per_unit *= 2
            if self.units[-1].windows < self._per_unit:
                return
        self.units.append(Unit())

    def _count(self, unit: Unit, series: Series, histogram: Histogram) -> None:
        if series not in self.bits:
            if len(self.bits) >= MAX_SERIES:
                self.left_out += 1
                return
            self.bits[series] = histogram.bits
        if not histogram.buckets:
            return
        if unit.buckets >= MAX_IN_UNIT:
            self.left_out += 1
            return
        if histogram.bits != self.bits[series]:
            histogram = self._agree(series, histogram)
        unit.add(series, histogram.buckets)
        if histogram.max is not None:
            self._known[series] = max(self._known.get(series, -1), histogram.max)
        else:
            top = bucket_bounds(histogram.buckets[-1][0], histogram.bits)[1] - 1
            self._bounds[series] = max(self._bounds.get(series, -1), top)

    def _agree(self, series: Series, histogram: Histogram) -> Histogram:
        """Bring the series to the coarser of two resolutions."""
        bits = min(histogram.bits, self.bits[series])
        if bits < self.bits[series]:
            for unit in self.units:
                if series in unit.counts:
                    unit.counts[series] = coarse(unit.counts[series], self.bits[series], bits)
            self.bits[series] = bits
        return histogram.coarsen(bits)


def period_of(name: str, origin: Origin, devices: Iterable[Device], frames: Iterable[Frame]) -> CaptureSpan:
    """Return the span of these frames."""
    capture_span = CaptureSpan(name, origin, origin.settings, {device.name: device for device in devices})
    for frame in frames:
        capture_span.add(frame)
    return capture_span


def of_runs(runs: Sequence[CaptureSpan]) -> CaptureSpan:
    """Join runs of one condition. The settings and the origin are the first run's, a finding is that of any run.

    A rule counts as not evaluated if no run evaluated it. Units become about as long in all runs, because blocks of
    units are exchanged; no unit has I/Os of two runs.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    capture_span = CaptureSpan(", ".join(run.name for run in runs), first.origin, first.settings, runs=tuple(runs))
    weigh_alike(runs)
    for run in runs:
        capture_span.absorb(run)
        for series, bits in run.bits.items():
            if series in capture_span.bits or len(capture_span.bits) < MAX_SERIES:
                capture_span.bits[series] = min(bits, capture_span.bits.get(series, bits))
    least_us = max(*(run.us / len(run.units) for run in runs), sum(run.us for run in runs) / MAX_UNITS)
    capture_span.units = [unit for run in runs for unit in _even(run, least_us, capture_span.bits)]
    if all(run.findings is not None for run in runs):
        capture_span.findings = {key: text for run in reversed(runs) for key, text in (run.findings or {}).items()}
        capture_span.not_evaluated = frozenset.intersection(*(run.not_evaluated for run in runs))
    return capture_span


def weigh_alike(runs: Iterable[CaptureSpan]) -> None:
    """Bring what is of the tracer's sample to one weight in all spans."""
    capture_spans = list(runs)
    rates = SampleRates()
    for run in capture_spans:
        rates.add(run.sums.rates.frames)
    for run in capture_spans:
        run.weigh_as(rates.one_in)


def _even(run: CaptureSpan, least_us: float, bits: Mapping[Series, int]) -> Iterator[Unit]:
    """Yield units of about this length, in the resolution of `bits`; a series that it lacks is left out."""
    open_unit = Unit()
    left_us = run.us
    for unit in run.units:
        counts = {s: coarse(count, run.bits[s], bits[s]) for s, count in unit.counts.items() if s in bits}
        open_unit.absorb(Unit(unit.us, unit.windows, counts, unit.done))
        left_us -= unit.us
        # a short rest is part of the last unit
        if open_unit.us + unit.us / 2 >= least_us and (not left_us or left_us >= least_us / 2):
            yield open_unit
            open_unit = Unit()


def plain(series: Series) -> Series:
    """Return the series without the prefix of traced I/Os."""
    return series._replace(stage=series.stage.removeprefix(TRACED))


def coarse(counts: Mapping[int, int], bits: int, wanted: int) -> Counts:
    """Return the counts with fewer sub-bucket bits."""
    if bits == wanted:
        return dict(counts)
    coarse_counts: Counts = {}
    add(coarse_counts, ((bucket_index(bucket_bounds(index, bits)[0], wanted), n) for index, n in counts.items()))
    return coarse_counts


def add(into: Counts, counts: Iterable[tuple[int, int]] | Buckets) -> None:
    """Add counts by bucket index to `into`."""
    for index, n in counts:
        into[index] = into.get(index, 0) + n


def _put(into: dict[K, tuple[int, int]], key: K, pair: tuple[int, int]) -> None:
    """Add a pair of numbers to a row."""
    first, second = into.get(key, (0, 0))
    into[key] = first + pair[0], second + pair[1]


def _done(frame: Frame) -> Mapping[Flow, Completed]:
    """Return completions as the kernel counts them, else as the probe saw them."""
    return {**frame.seen, **{flow: completed for flow, completed in frame.kernel.items() if completed.count}}


def exceedances(period: CaptureSpan, series: Series, bits: int, cuts: Sequence[int]) -> Exceedances:
    """Count a series' I/Os above the cuts in each unit."""
    own = period.bits.get(series, bits)
    return count_above((coarse(unit.counts.get(series, {}), own, bits) for unit in period.units), cuts)
