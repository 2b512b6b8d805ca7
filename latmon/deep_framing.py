"""From a deep script's cumulative maps to what one interval added, by the script's manifest: traced stages and tables.

One DeepFramer per script; `joined` makes one value of what the scripts of one process say. Series are framing.py's
business. A device without a name is left out: the always-on probe counts its I/Os as unnamed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from latmon import deep_depths, deep_tables
from latmon.deep_depths import Ages, Flags
from latmon.deep_tables import Gains
from latmon.differences import Counts, Differences
from latmon.framing import Framer, Interval
from latmon.histogram import Histogram, merge, within
from latmon.manifest import Manifest, op_name
from latmon.manifest_parts import UNFOLLOWED_FROM
from latmon.model import (
    UNKNOWN_IRQ,
    Flow,
    Handler,
    HandlerRuns,
    Missing,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wakeups,
)
from latmon.outstanding import Depths, StillInFlight
from latmon.records import Record

_OWN = ("by_total", "path", "off")
_TABLES = ("handler", "softirq", "wakeup", "depth")
_MAX_HANDLERS = 4096
UNKNOWN = Handler(UNKNOWN_IRQ, "unknown")
"""Handlers whose records were lost, or for whose names there was no room."""
Paths = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class DeepInterval:
    """What one interval added. `traced` is without `one_in` and `devices`, which its starter knows."""

    traced: Traced = field(default_factory=Traced)
    handlers: Mapping[Handler, HandlerRuns] = field(default_factory=dict)
    softirqs: Mapping[SoftirqCpu, SoftirqRuns] = field(default_factory=dict)
    wakeups: tuple[Wakeups, ...] = ()
    suppressed: int = 0
    """Records that the rate limit left out."""
    undecoded: int = 0
    """And names of handlers for which there was no room: they are UNKNOWN together."""
    above: Mapping[Flow, int] = field(default_factory=dict)
    """Of devices that the always-on probe doesn't time (dm, md): a frame has them beside its own."""
    thresholds_us: Mapping[str, int] = field(default_factory=dict)
    depths: Mapping[str, Depths] = field(default_factory=dict)
    in_flight: StillInFlight | None = None
    """At the newest tick; None where no script told."""
    ages_of: tuple[str, ...] = ()
    """The groups of the scripts that told it: `inflight` of requests, `bios` of devices without."""


class DeepFramer:
    """Holds one script's maps as they were last printed and answers with differences."""

    def __init__(
        self,
        manifest: Manifest,
        device_name: Callable[[int], str | None],
        flags: Flags = lambda _: (),
        alone: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`alone`: whether only the deep scripts time a device. What is above its threshold is theirs to tell."""
        self._manifest, self._device_name, self._alone = manifest, device_name, alone
        self._framer = Framer(manifest, device_name, selects=alone)
        self._specs = [spec for spec in manifest.maps if spec.role in _OWN or spec.role.startswith(_TABLES)]
        self._maps = Differences(self._specs)
        self._ahead = deep_tables.Ahead()
        self._ages = Ages(device_name, flags)
        self._owed: dict[Series, int] = {}
        self._own = {spec.name for spec in self._specs}
        # A record tells the whole pointer, a key as much of it as it has room for.
        self._bits = next((p.bits for spec in self._specs for p in spec.key if p.name == "handler"), 64)
        self._told_by_total = {stage for spec in manifest.maps if spec.role == "by_total" for stage in spec.stages}
        self._handlers: dict[int, Handler] = {}
        self._left_out = 0

    def printed(self, name: str, values: Counts) -> None:
        """One map as the tool printed it."""
        (self._maps if name in self._own else self._framer).printed(name, values)

    def handler(self, record: Record) -> None:
        """A `handler` record: what a handler's number stands for."""
        number, irq = record.get("handler"), record.get("irq")
        if number is None:
            return
        key = number & ((1 << self._bits) - 1)
        if key in self._handlers or len(self._handlers) < _MAX_HANDLERS:
            self._handlers[key] = Handler(UNKNOWN_IRQ if irq is None else irq, record.text)
        else:
            self._left_out += 1

    def waiting(self, records: Iterable[Record], at_ns: int) -> None:
        """What had not completed at the tick whose maps were printed."""
        self._ages.told(records, [(one, self._maps.latest(one.name)) for one in self._specs], at_ns)

    def interval(self, slot: int | None, thread: Callable[[int], Thread]) -> DeepInterval:
        """Closes an interval; `slot` as Framer.interval takes it."""
        series = self._framer.interval(slot)
        most = [(one, self._maps.latest(one.name)) for one in self._specs if one.role == "depth_most"]
        gains = self._ahead.settled(
            (one, self._maps.gained(one.name)) for one in self._specs if one.role not in deep_depths.AS_IS
        )
        undecoded = series.undecoded + self._maps.close() + self._left_out
        self._left_out = 0
        still = self._ages.taken()
        return DeepInterval(
            self._traced(series, gains),
            deep_tables.handlers(gains, lambda number: self._handlers.get(number, UNKNOWN)),
            deep_tables.softirqs(gains),
            deep_tables.wakeups(gains, thread),
            series.suppressed,
            undecoded,
            {flow: n for flow, n in series.above.items() if self._alone(flow.device)},
            series.thresholds_us,
            deep_depths.depths(gains, deep_depths.most_of(most, slot), self._device_name),
            still,
            () if still is None else (self._manifest.group,),
        )

    def _traced(self, told: Interval, gains: Gains) -> Traced:
        by_total: defaultdict[Series, Counter[int]] = defaultdict(Counter)
        paths: dict[str, Counter[str]] = {}
        unfollowed: dict[str, Counter[str]] = {}
        off = 0
        for spec, counts in gains:
            for key, n in counts.items() if spec.role in _OWN else ():
                device = self._device_name(spec.part("dev").read(key))
                if spec.role == "off":
                    off += n
                elif device is None:
                    continue
                elif spec.role == "path":
                    code = spec.part("path").read(key)
                    table = paths if code < UNFOLLOWED_FROM else unfollowed
                    name = self._manifest.path_name(code) or f"unknown code {code}"
                    table.setdefault(device, Counter())[name] += n
                else:
                    op, bucket = op_name(spec.part("op").read(key)), spec.part("bucket").read(key)
                    for stage in spec.stages:
                        by_total[Series(device, op, stage)][bucket] += n
        totals = told.totals_us.items() if self._told_by_total else ()
        return Traced(
            self._with_sums(told.histograms, by_total),
            {series: dict(sums) for series, sums in by_total.items()}
            | {Series(*flow, "total"): {0: us} for flow, us in totals},
            _plain(unfollowed),
            _plain(paths),
            off,
        )

    def _with_sums(
        self, histograms: Mapping[Series, Histogram], by_total: Mapping[Series, Counter[int]]
    ) -> dict[Series, Histogram]:
        """With those of stages whose time is told by the requests' total; what is ahead of the buckets waits."""
        have = Counter({series: sum(us.values()) for series, us in by_total.items()})
        have.update(self._owed)
        self._owed = {series: us for series, us in have.items() if us and series not in histograms}
        return {series: self._with_sum(series, one, have.get(series)) for series, one in histograms.items()}

    def _with_sum(self, series: Series, one: Histogram, us: int | None) -> Histogram:
        """Where its map was not printed, only nothing is known."""
        if one.sum is not None or series.stage not in self._told_by_total:
            return one
        if us is None and any(index for index, _ in one.buckets):
            return one
        told = within(dict(one.buckets), us or 0)
        if us is not None and us != told:
            self._owed[series] = us - told
        return replace(one, sum=told)


def joined(intervals: Iterable[DeepInterval], manifests: Iterable[Manifest]) -> DeepInterval:
    """Of the scripts of one process as one; a stage is absent where no script measures it."""
    each, known = list(intervals), list(manifests)
    measured = {stage for one in known for stage in one.stages}
    by_request = [one for one in known if one.group == "stages"]
    absent = {stage: why for one in by_request for stage, why in one.absent.items() if stage not in measured}
    traced = replace(
        _together([one.traced for one in each]),
        includes=_includes(by_request),
        bio_includes=_includes(one for one in known if one.group == "bios"),
        absent=tuple(Missing(stage, why) for stage, why in absent.items()),
    )
    return DeepInterval(
        traced,
        {handler: runs for one in each for handler, runs in one.handlers.items()},
        {at: runs for one in each for at, runs in one.softirqs.items()},
        tuple(wakeups for one in each for wakeups in one.wakeups),
        sum(one.suppressed for one in each),
        sum(one.undecoded for one in each),
        {flow: n for one in each for flow, n in one.above.items()},
        {device: us for one in each for device, us in one.thresholds_us.items()},
        {device: depths for one in each for device, depths in one.depths.items()},
        deep_depths.all_waiting(one.in_flight for one in each),
        tuple(dict.fromkeys(group for one in each for group in one.ages_of)),
    )


def _includes(manifests: Iterable[Manifest]) -> dict[str, tuple[str, ...]]:
    """What each script that measures a stage has in it; of other devices one may tell more apart."""
    found: dict[str, tuple[str, ...]] = {}
    for one in manifests:
        for stage in {*one.stages, *one.includes}:
            into = one.includes.get(stage, ())
            found[stage] = tuple(name for name in into if stage not in found or name in found[stage])
    return {stage: into for stage, into in found.items() if into}


def _together(parts: list[Traced]) -> Traced:
    histograms: defaultdict[Series, list[Histogram]] = defaultdict(list)
    by_total: defaultdict[Series, Counter[int]] = defaultdict(Counter)
    for part in parts:
        for series, histogram in part.histograms.items():
            histograms[series].append(histogram)
        for series, sums in part.by_total.items():
            by_total[series].update(sums)
    return Traced(
        {series: merge(several) if len(several) > 1 else several[0] for series, several in histograms.items()},
        {series: dict(sums) for series, sums in by_total.items()},
        _added(part.unfollowed for part in parts),
        _added(part.paths for part in parts),
        sum(part.off for part in parts),
    )


def _added(tables: Iterable[Paths]) -> dict[str, dict[str, int]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for device, counts in table.items():
            found[device].update(counts)
    return _plain(found)


def _plain(table: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {device: dict(counts) for device, counts in table.items()}
