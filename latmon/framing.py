"""From a probe's cumulative maps to what one interval added: differences per series, by the probe's manifest.

Owns the rule for maxima and what one map lacks of another. Knows neither the tool that printed the maps nor the clock;
dev_t is turned into a name by a function that it is given, and where that has no name the I/Os are counted as unnamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from latmon.differences import Counts, Differences
from latmon.histogram import Histogram, bucket_bounds, within
from latmon.manifest import Manifest, MapSpec, op_name
from latmon.model import Completed, Flow, Series

_ROLES = ("histogram", "sum", "bytes", "untimed", "unmatched", "above", "started")


@dataclass(frozen=True, slots=True)
class Interval:
    """What one interval added, and how far to trust it."""

    histograms: Mapping[Series, Histogram] = field(default_factory=dict)
    seen: Mapping[Flow, Completed] = field(default_factory=dict)
    unmatched: int = 0
    """Completions without a start: counted in `seen`, not timed."""
    unnamed: int = 0
    """I/Os of a device that has no name here."""
    undecoded: int = 0
    """Maps that the manifest doesn't have, and values that can't be."""
    above: Mapping[Flow, int] = field(default_factory=dict)
    """I/Os above their device's threshold, each of them."""
    suppressed: int = 0
    """Those of them that the script told no record of."""
    thresholds_us: Mapping[str, int] = field(default_factory=dict)
    started: Mapping[Flow, int] = field(default_factory=dict)
    """I/Os that began, where the script counts them."""
    ended: Mapping[Flow, int] = field(default_factory=dict)
    """I/Os whose begin it counted, timed or not."""
    totals_us: Mapping[Flow, int] = field(default_factory=dict)
    """What the sums of totals gained, whether or not the histograms have those I/Os yet."""


@dataclass
class _Sums:
    """The working state of one interval."""

    buckets: defaultdict[Series, Counts] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    sums: defaultdict[Series, int] = field(default_factory=lambda: defaultdict(int))
    maxima: dict[Series, int] = field(default_factory=dict)
    bytes: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    untimed: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    above: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    started: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    strays: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    """Unmatched, by flow."""
    unmatched: int = 0
    unnamed: int = 0


class Framer:
    """Holds the maps as they were last printed and answers with differences.

    `several_queues` says of a device's name that its flushes can't be told apart by device (tier C), `selects` that its
    outliers are told: what is left out of them is a number without a device.
    """

    def __init__(
        self,
        manifest: Manifest,
        device_name: Callable[[int], str | None],
        several_queues: Callable[[str], bool] = lambda _: False,
        selects: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._specs = manifest.maps
        self._maps = Differences(manifest.maps)
        self._parts = {spec.name: {part.name: part for part in spec.key} for spec in manifest.maps}
        self._has_sum = {stage for spec in manifest.maps if spec.role == "sum" for stage in spec.stages}
        self._has_bytes = any(spec.role == "bytes" for spec in manifest.maps)
        self._guards_flush = manifest.latency_from == "issue"
        self._device_name = device_name
        self._several_queues, self._selects = several_queues, selects
        self._levels: Counts = {}
        self._flows: dict[tuple[int, int], Flow | None] = {}
        self._ahead: dict[Series, int] = {}
        self._owed: dict[Series, int] = {}

    def printed(self, name: str, values: Counts) -> None:
        """One map as the tool printed it: cumulative, or one slot of a maximum."""
        self._maps.printed(name, values)

    def interval(self, slot: int | None) -> Interval:
        """Closes an interval: what the maps printed since the last call added.

        `slot` is the tick number modulo 4, None where ticks were missed: then no slot holds the interval's maximum.
        """
        sums = _Sums()
        suppressed = 0
        for spec in self._specs:
            if spec.role in _ROLES:
                self._add(spec, self._maps.gained(spec.name), sums)
            elif spec.role == "suppressed":
                suppressed += self._named(spec, self._maps.gained(spec.name))
            elif spec.role == "level":
                self._level(spec, self._maps.latest(spec.name))
            elif spec.role == "max" and spec.slot == slot:
                self._maxima(spec, self._maps.latest(spec.name), sums)
            elif spec.role == "peak":
                # The largest ever: of the interval only where it grew, else the interval's is not known.
                grown = self._maps.gained(spec.name)
                self._maxima(spec, {key: us for key, us in self._maps.latest(spec.name).items() if key in grown}, sums)
        self._fill_rest(sums)
        self._flows.clear()
        totals_us = {Flow(s.device, s.op): us for s, us in sums.sums.items() if s.stage == "total"}
        histograms, seen = self._histograms(sums), self._seen(sums)
        return Interval(
            histograms,
            seen,
            sums.unmatched,
            sums.unnamed,
            self._maps.close(),
            {flow: n for flow, n in sums.above.items() if n},
            suppressed,
            self._thresholds(),
            dict(sums.started),
            {flow: done.count - sums.strays[flow] for flow, done in seen.items()},
            totals_us,
        )

    def times(self, flow: Flow) -> bool:
        """False of flushes whose times are not their own."""
        return not (self._guards_flush and flow.op == "flush" and self._several_queues(flow.device))

    def _named(self, spec: MapSpec, gained: Counts) -> int:
        """As `above`, only of devices that have a name here, and that are told of."""
        dev = self._parts[spec.name]["dev"]
        names = ((self._device_name(dev.read(key)), n) for key, n in gained.items())
        return sum(n for name, n in names if name is not None and self._selects(name))

    def _level(self, spec: MapSpec, levels: Counts) -> None:
        """A threshold stays until another is told."""
        dev = self._parts[spec.name]["dev"]
        self._levels |= {dev.read(key): us for key, us in levels.items()}

    def _thresholds(self) -> dict[str, int]:
        named = {self._device_name(number): us for number, us in self._levels.items()}
        return {name: us for name, us in named.items() if name is not None}

    def _flow(self, spec: MapSpec, key: int) -> Flow | None:
        """Whose a key is; looked up once per device and op in an interval, not once per bucket."""
        parts = self._parts[spec.name]
        device, op = parts["dev"].read(key), parts["op"].read(key)
        if (device, op) not in self._flows:
            name = self._device_name(device)
            self._flows[device, op] = None if name is None else Flow(name, op_name(op))
        return self._flows[device, op]

    def _add(self, spec: MapSpec, gained: Counts, sums: _Sums) -> None:
        for key, n in gained.items():
            flow = self._flow(spec, key)
            if flow is None:
                sums.unnamed += n if spec.role in ("untimed", "unmatched") or _counts_each_once(spec) else 0
            elif spec.role == "bytes":
                sums.bytes[flow] += n
            elif spec.role == "started":
                sums.started[flow] += n
            elif spec.role == "above":
                sums.above[flow] += n if self.times(flow) else 0
            elif spec.role == "untimed" or not self.times(flow):
                sums.untimed[flow] += n
            elif spec.role == "unmatched":
                sums.untimed[flow] += n
                sums.strays[flow] += n
                sums.unmatched += n
            else:
                for stage in spec.stages:
                    self._count(spec, Series(*flow, stage), key, n, sums)

    def _count(self, spec: MapSpec, series: Series, key: int, n: int, sums: _Sums) -> None:
        if spec.role == "sum":
            sums.sums[series] += n
        else:
            sums.buckets[series][self._parts[spec.name]["bucket"].read(key)] += n

    def _maxima(self, spec: MapSpec, slot: Counts, sums: _Sums) -> None:
        for key, us in slot.items():
            flow = self._flow(spec, key)
            if flow is not None:
                for stage in spec.stages:
                    series = Series(*flow, stage)
                    sums.maxima[series] = max(us, sums.maxima.get(series, 0))

    def _fill_rest(self, sums: _Sums) -> None:
        """A histogram that leaves out its bucket 0 gets it from the stage that counted every I/O.

        Maps are printed one after the other, so either may be a few I/Os ahead; what one interval lacks, the next has.
        """
        for spec in self._specs:
            if not spec.rest_of:
                continue
            flows = {(s.device, s.op) for s in sums.buckets if s.stage == spec.rest_of or s.stage in spec.stages}
            for flow in flows:
                whole = sum(sums.buckets.get(Series(*flow, spec.rest_of), {}).values())
                for stage in spec.stages:
                    series = Series(*flow, stage)
                    part = sums.buckets[series]
                    rest = whole - sum(part.values()) + self._ahead.get(series, 0)
                    part[0] += max(0, rest)
                    self._ahead[series] = min(0, rest)

    def _histograms(self, sums: _Sums) -> dict[Series, Histogram]:
        """What a sum has more than the I/Os that the buckets have can take waits for the interval that counts them."""
        counted = {series: counts for series, counts in sums.buckets.items() if any(counts.values())}
        for series, us in self._owed.items():
            sums.sums[series] += us
        self._owed = {series: us for series, us in sums.sums.items() if us and series not in counted}
        for series, counts in counted.items():
            if series.stage in self._has_sum:
                told = within(counts, sums.sums[series])
                self._owed[series], sums.sums[series] = sums.sums[series] - told, told
        return {series: self._histogram(series, counts, sums) for series, counts in counted.items()}

    def _histogram(self, series: Series, counts: Counts, sums: _Sums) -> Histogram:
        """With its maximum only if that lies in the highest bucket.

        The maximum is of the tick, the counts are of the moment they were printed, a little later: elsewhere the two
        saw different I/Os, and the maximum is not known.
        """
        total = sums.sums[series] if series.stage in self._has_sum else None
        histogram = Histogram.of(counts, total)
        maximum = sums.maxima.get(series)
        if maximum is None or not histogram:
            return histogram
        low, high = bucket_bounds(histogram.buckets[-1][0])
        return replace(histogram, max=maximum) if low <= maximum < high else histogram

    def _seen(self, sums: _Sums) -> dict[Flow, Completed]:
        timed: defaultdict[Flow, int] = defaultdict(int)
        for series, counts in sums.buckets.items():
            if series.stage == "total":
                timed[Flow(series.device, series.op)] += sum(counts.values())
        flows = timed.keys() | sums.untimed.keys() | sums.bytes.keys()
        return {flow: Completed(timed[flow] + sums.untimed[flow], sums.bytes[flow]) for flow in flows}


def _counts_each_once(spec: MapSpec) -> bool:
    return spec.role == "histogram" and "total" in spec.stages
