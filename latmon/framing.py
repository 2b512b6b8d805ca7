"""From a probe's cumulative maps to what one interval added: differences per series, by the probe's manifest.

Owns the cumulative state and the rule for maxima. Knows neither the tool that printed the maps nor the clock; dev_t is
turned into a name by a function that it is given, and where that has no name the I/Os are counted as unnamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from latmon.histogram import TOP, Histogram, bucket_bounds
from latmon.manifest import Manifest, MapSpec, op_name
from latmon.model import Completed, Flow, Series

Counts = dict[int, int]
_TOO_MANY = 2**63


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
    """Maps that the manifest doesn't have."""


@dataclass
class _Sums:
    """The working state of one interval."""

    buckets: defaultdict[Series, Counts] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    sums: defaultdict[Series, int] = field(default_factory=lambda: defaultdict(int))
    maxima: dict[Series, int] = field(default_factory=dict)
    bytes: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    untimed: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    unmatched: int = 0
    unnamed: int = 0


class Framer:
    """Holds the maps as they were last printed and answers with differences.

    `several_queues` says of a device's name that its flushes can't be told apart by device (tier C).
    """

    def __init__(
        self,
        manifest: Manifest,
        device_name: Callable[[int], str | None],
        several_queues: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._specs = {spec.name: spec for spec in manifest.maps}
        self._parts = {part.name: part for part in manifest.keys[""]}
        self._has_sum = {stage for spec in manifest.maps if spec.role == "sum" for stage in spec.stages}
        self._has_bytes = any(spec.role == "bytes" for spec in manifest.maps)
        self._guards_flush = manifest.latency_from == "issue"
        self._device_name = device_name
        self._several_queues = several_queues
        self._before: dict[str, Counts] = {}
        self._printed: dict[str, Counts] = {}
        self._flows: dict[tuple[int, int], Flow | None] = {}
        self._ahead: dict[Series, int] = {}
        self._owed: dict[Series, int] = {}
        self._undecoded = 0

    def printed(self, name: str, values: Counts) -> None:
        """One map as the tool printed it: cumulative, or one slot of a maximum."""
        if name in self._specs:
            self._printed[name] = sane = {key: value for key, value in values.items() if self._is_sane(key, value)}
            self._undecoded += len(values) - len(sane)
        else:
            self._undecoded += 1

    def _is_sane(self, key: int, value: int) -> bool:
        """What no kernel counts is not counted: it would make every sum after it nonsense."""
        return 0 <= value < _TOO_MANY and 0 <= key < _TOO_MANY and self._parts["bucket"].read(key) <= TOP

    def interval(self, slot: int | None) -> Interval:
        """Closes an interval: what the maps printed since the last call added.

        `slot` is the tick number modulo 4, None where ticks were missed: then no slot holds the interval's maximum.
        """
        sums = _Sums()
        for name, spec in self._specs.items():
            if spec.role != "max":
                self._add(spec, self._difference(name), sums)
            elif spec.slot == slot:
                self._maxima(spec, self._printed.get(name, {}), sums)
        self._fill_rest(sums)
        self._printed.clear()
        self._flows.clear()
        undecoded, self._undecoded = self._undecoded, 0
        return Interval(self._histograms(sums), self._seen(sums), sums.unmatched, sums.unnamed, undecoded)

    def _difference(self, name: str) -> Counts:
        """What the map gained; a map that was not printed (empty, or its line was lost) gained nothing yet."""
        if name not in self._printed:
            return {}
        now, before = self._printed[name], self._before.get(name, {})
        self._before[name] = now
        gained = {key: value - before.get(key, 0) for key, value in now.items()}
        return {key: value for key, value in gained.items() if value}

    def _flow(self, key: int) -> Flow | None:
        """Whose a key is; looked up once per device and op in an interval, not once per bucket."""
        device, op = self._parts["dev"].read(key), self._parts["op"].read(key)
        if (device, op) not in self._flows:
            name = self._device_name(device)
            self._flows[device, op] = None if name is None else Flow(name, op_name(op))
        return self._flows[device, op]

    def _add(self, spec: MapSpec, gained: Counts, sums: _Sums) -> None:
        for key, n in gained.items():
            flow = self._flow(key)
            if flow is None:
                sums.unnamed += n if spec.role in ("untimed", "unmatched") or _counts_each_once(spec) else 0
            elif spec.role == "bytes":
                sums.bytes[flow] += n
            elif spec.role == "untimed" or (
                self._guards_flush and flow.op == "flush" and self._several_queues(flow.device)
            ):
                sums.untimed[flow] += n
            elif spec.role == "unmatched":
                sums.untimed[flow] += n
                sums.unmatched += n
            else:
                for stage in spec.stages:
                    self._count(spec, Series(*flow, stage), key, n, sums)

    def _count(self, spec: MapSpec, series: Series, key: int, n: int, sums: _Sums) -> None:
        if spec.role == "sum":
            sums.sums[series] += n
        else:
            sums.buckets[series][self._parts["bucket"].read(key)] += n

    def _maxima(self, spec: MapSpec, slot: Counts, sums: _Sums) -> None:
        for key, us in slot.items():
            flow = self._flow(key)
            if flow is not None:
                for stage in spec.stages:
                    series = Series(*flow, stage)
                    sums.maxima[series] = max(us, sums.maxima.get(series, 0))

    def _fill_rest(self, sums: _Sums) -> None:
        """A histogram that leaves out its bucket 0 gets it from the stage that counted every I/O.

        Maps are printed one after the other, so either may be a few I/Os ahead; what one interval lacks, the next has.
        """
        for spec in self._specs.values():
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
        """A sum that was printed with an I/O that no histogram has yet waits for the interval that counts it."""
        counted = {series: counts for series, counts in sums.buckets.items() if any(counts.values())}
        for series, us in self._owed.items():
            sums.sums[series] += us
        self._owed = {series: us for series, us in sums.sums.items() if us and series not in counted}
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
