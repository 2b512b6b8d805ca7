"""Framers: cumulative maps of a script to one interval's differences, by the script's manifest.

Framer makes series, for any script. TracerFramer adds the tables of one script of the tracer; `joined` merges the
scripts of a process. The tool and its clock are not known here; a given function names devices. I/Os of a device
without a name are counted as unnamed by Framer and left out of the tracer's tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from latmon.decode.tables import (
    AS_IS,
    ROLES_OF_AGES,
    Counts,
    DeclaredRows,
    Differences,
    Flags,
    Gains,
    Maps,
    NewestAges,
    Record,
    all_waiting,
    by_bucket,
    by_key,
    by_stack,
    context_name,
    declared_rows,
    depths,
    file_times,
    files,
    handlers,
    most_of,
    patterns,
    wakeups,
)
from latmon.manifest import DECLARED_ROLES, STACKS, UNFOLLOWED_FROM, Manifest, MapSpec, op_name
from latmon.model.frame import PROCESSES, Completed, FileSystem, Flow, Series, Thread, Traced, missing_stages
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import Depths, InFlightList
from latmon.model.measurements import (
    ABOVE,
    BEHIND,
    ERRORS,
    FAILED_BY,
    FILE_TIMES,
    FILES,
    HANDLERS,
    ISSUERS,
    PATTERNS,
    TABLES,
    WAKEUPS,
)
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.errors import FailedBy, status_name
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.model.measurements.softirqs import vector
from latmon.model.table import NO_TABLES, AnyTable, Meaning, Row, Table, Tables, sum_tables

_NS, _SLOT = 1000, 48
"""Nanoseconds of 1 us; place of a slot in a key."""
_US = 2**32 - 1
"""Mask of the time in a maximum's value."""
_ROLES = ("histogram", "sum", "bytes", "untimed", "unmatched", "above", "started")
_REQUEST_STACKS = tuple(role for role in STACKS if not role.startswith("file"))
_OWN = ("by_total", "path", "off", *_REQUEST_STACKS)
_TABLES = ("handler", "wakeup", "depth", "pattern", "file")
_MAX_HANDLERS = 4096
UNKNOWN = Handler(UNKNOWN_IRQ, "unknown")
"""Any handler whose record was lost, or whose name had no room."""
Paths = Mapping[str, Mapping[str, int]]
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ProbeInterval:
    """Data of one interval, and what is missing from it."""

    histograms: Mapping[Series, Histogram] = field(default_factory=dict)
    seen: Mapping[Flow, Completed] = field(default_factory=dict)
    unmatched: int = 0
    """Completions without a start: counted in `seen`, not timed."""
    unnamed: int = 0
    """I/Os of a device that has no name here."""
    undecoded: int = 0
    """Maps that the manifest doesn't have, and impossible values."""
    suppressed: int = 0
    """The number of them without a record in the script's output."""
    thresholds_us: Mapping[str, int] = field(default_factory=dict)
    started: Mapping[Flow, int] = field(default_factory=dict)
    """I/Os that began, where the script counts them."""
    ended: Mapping[Flow, int] = field(default_factory=dict)
    """I/Os whose begin it counted, timed or not."""
    totals_us: Mapping[Flow, int] = field(default_factory=dict)
    """Gains of the sums of totals, whether or not the histograms have those I/Os yet."""
    tables: Tables = field(default_factory=lambda: NO_TABLES)
    """I/Os above the threshold, I/Os by issuer, the times behind those of others, and the tables whose rows are made of
    their declarations."""


@dataclass
class _IntervalSums:
    """The working state of one interval."""

    buckets: dict[Series, Counts] = field(default_factory=dict)
    """Counts are replaced, never changed: series of the same I/Os share them."""
    sums: defaultdict[Series, int] = field(default_factory=lambda: defaultdict(int))
    maxima: defaultdict[Series, list[int]] = field(default_factory=lambda: defaultdict(list))
    bytes: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    untimed: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    above: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    started: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    strays: defaultdict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    """Unmatched, by flow."""
    unmatched: int = 0
    unnamed: int = 0


@dataclass
class _IssuerSums:
    """I/Os of one interval by issuer."""

    counts: defaultdict[Issuer, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    started: Counter[Issuer] = field(default_factory=Counter)
    """I/Os that nothing times."""
    us: Counter[Issuer] = field(default_factory=Counter)
    bytes: Counter[Issuer] = field(default_factory=Counter)
    maxima: defaultdict[Issuer, list[int]] = field(default_factory=lambda: defaultdict(list))


def unnamed_cgroup(number: int) -> tuple[str, str]:
    """Return the path and container of a cgroup that isn't looked up."""
    return f"#{number}", ""


class Framer:
    """The maps of one script as last printed; `interval` returns their differences.

    `several_queues`: whether flushes of a device can't be separated by device (tier C). `selects`: whether the outliers
    of a device are reported; the number of records left out has no device. `cgroup`: path and container of a cgroup's
    number in the kernel. `comm`: name of a process.
    """

    def __init__(
        self,
        manifest: Manifest,
        device_name: Callable[[int], str | None],
        several_queues: Callable[[str], bool] = lambda _: False,
        selects: Callable[[str], bool] = lambda _: True,
        cgroup: Callable[[int], tuple[str, str]] = unnamed_cgroup,
        *,
        comm: Callable[[int], str] = lambda _: "",
    ) -> None:
        self._specs, self._bits = manifest.maps, manifest.bits
        self._maps = Differences(manifest.maps)
        self._parts = {spec.name: {part.name: part for part in spec.key} for spec in manifest.maps}
        self._has_sum = {stage for spec in manifest.maps if spec.role == "sum" for stage in spec.stages}
        self._has_bytes = any(spec.role == "bytes" for spec in manifest.maps)
        self._guards_flush = manifest.latency_from == "issue"
        self._device_name = device_name
        self._several_queues, self._selects, self._cgroup, self._comm = several_queues, selects, cgroup, comm
        self._names = {Meaning.DEVICE: device_name, Meaning.PROCESS: lambda pid: f"{comm(pid)}/{pid}"}
        self._cgroups: Counts = {}
        """Slot and device of a key -> number of the cgroup in the kernel, as of the latest interval."""
        self._pids: Counts = {}
        """Slot and device of a key -> pid of the process, as of the latest interval."""
        self._has_processes = any(spec.role == "process" for spec in manifest.maps)
        self._dev_shift = next((part.shift for spec in manifest.maps for part in spec.key if part.name == "dev"), 0)
        self._named_cgroups: dict[int, tuple[str, str]] = {}
        """Number -> path and container, asked for once in an interval: an answer may change, or take a moment."""
        self._issuers_owed: Counter[Issuer] = Counter()
        self._levels: Counts = {}
        self._flow_keys = {spec.name: _flow_place(spec) for spec in manifest.maps}
        self._flows: dict[tuple[int, int], dict[int, Flow | None]] = {}
        """Place of device and op in a key -> their bits -> flow."""
        self._ahead: dict[Series, int] = {}
        self._owed: dict[Series, int] = {}
        specs = {table: [spec for spec in manifest.maps if spec.role in table.roles] for table in TABLES}
        self._declared = {table: printed for table, printed in specs.items() if printed}
        """Tables whose rows are made of their declarations, and the maps that have them."""

    def printed(self, name: str, values: Counts) -> None:
        """Take one map as the tool printed it."""
        self._maps.printed(name, values)

    def interval(self, tick: int | None) -> ProbeInterval:
        """Close an interval: return what the maps printed since the last call added.

        `tick` is the number of the tick that ends it; None where ticks were missed, then its maximum is not known.
        """
        sums, issuers = _IntervalSums(), _IssuerSums()
        suppressed = 0
        behind: Counter[Behind] = Counter()
        self._learn_issuers()
        for spec in self._specs:
            if spec.role in _ROLES:
                gained = self._maps.gained(spec.name)
                self._add(spec, gained, sums)
                if self._counts_issuers:
                    self._add_issuers(spec, gained, issuers)
            elif spec.role == "behind":
                self._add_behind(spec, self._maps.gained(spec.name), behind)
            elif spec.role == "suppressed":
                suppressed += self._named(spec, self._maps.gained(spec.name))
            elif spec.role == "level":
                self._level(spec, self._maps.latest(spec.name))
            elif spec.role == "max" and tick is not None:
                self._maxima(spec, _of_ticks(self._maps.latest(spec.name), tick), sums, issuers)
        self._fill_rest(sums)
        self._flows.clear()
        self._named_cgroups.clear()
        totals_us = {Flow(s.device, s.op): us for s, us in sums.sums.items() if s.stage == "total"}
        histograms, seen = self._histograms(sums), self._seen(sums)
        gains = {spec.name: self._maps.gained(spec.name) for printed in self._declared.values() for spec in printed}
        declared = {table: self._declared_rows(table, gains) for table in self._declared}
        undecoded = sum(declared_table.undecoded for declared_table in declared.values())
        return ProbeInterval(
            histograms=histograms,
            seen=seen,
            unmatched=sums.unmatched,
            unnamed=sums.unnamed,
            undecoded=self._maps.close() + undecoded,
            suppressed=suppressed,
            thresholds_us=self._thresholds(),
            started=dict(sums.started),
            ended={flow: done.count - sums.strays[flow] for flow, done in seen.items()},
            totals_us=totals_us,
            tables={
                ABOVE: {flow: n for flow, n in sums.above.items() if n},
                ISSUERS: self._issued(issuers),
                FAILED_BY: self._failed_by(gains),
                BEHIND: {pair: ns // _NS for pair, ns in behind.items() if ns >= _NS},
                **{table: declared_table.rows for table, declared_table in declared.items()},
            },
        )

    def _declared_rows(self, table: AnyTable, gains: Mapping[str, Counts]) -> DeclaredRows[Any, Any]:
        printed = [(spec, gains[spec.name]) for spec in self._declared[table]]
        return declared_rows(table, printed, self._names, self._bits)

    def _failed_by(self, gains: Mapping[str, Counts]) -> dict[FailedBy, int]:
        """Return the failed I/Os by cgroup; those of no known cgroup are left out."""
        failed: Counter[FailedBy] = Counter()
        for spec in self._declared.get(ERRORS, ()):
            parts = self._parts[spec.name]
            if "slot" not in parts:
                continue
            for key, ios in gains[spec.name].items():
                place = parts["slot"].read(key) << _SLOT | parts["dev"].read(key) << self._dev_shift
                flow, cgroup = self._flow(spec, key), self._cgroups.get(place, 0)
                if flow is None or not cgroup:
                    continue
                status = status_name(parts["status"].read(key))
                failed[FailedBy(*flow, status, self._named_cgroup(cgroup)[0])] += ios
        return dict(failed)

    def _add_issuers(self, spec: MapSpec, gained: Counts, sums: _IssuerSums) -> None:
        """Add what a map of all I/Os counts for each slot of a device: the counts, sums and maxima of `total`."""
        if spec.role == "histogram" and "total" in spec.stages:
            for key, counts in by_bucket(spec, gained).items():
                if (issuer := self._issuer(spec, key)) is not None:
                    sums.counts[issuer].update(counts)
        elif spec.role in ("bytes", "started") or (spec.role == "sum" and "total" in spec.stages):
            table = {"bytes": sums.bytes, "started": sums.started}.get(spec.role, sums.us)
            for key, n in gained.items():
                if (issuer := self._issuer(spec, key)) is not None:
                    table[issuer] += n

    def _issuer(self, spec: MapSpec, key: int) -> Issuer | None:
        """Return the cgroup of a key's slot; None for a device without a name."""
        flow = self._flow(spec, key)
        if flow is None:
            return None
        place = key >> self._dev_shift << self._dev_shift
        named = self._named_cgroup(self._cgroups.get(place, 0))
        if not self._has_processes:
            return Issuer(*flow, *named)
        pid = self._pids.get(place, 0)
        return Issuer(*flow, *named, pid, self._comm(pid) if pid else OTHERS)

    def _learn_issuers(self) -> None:
        """Note the cgroup and the process of each slot in the keys of the interval."""
        for spec in self._specs:
            if spec.role == "cgroup":
                self._cgroups |= self._maps.latest(spec.name)
            elif spec.role == "process":
                self._pids |= self._maps.latest(spec.name)

    def _add_behind(self, spec: MapSpec, gained: Counts, sums: Counter[Behind]) -> None:
        """Add the times (ns) of a pair of slots to the sum of their cgroups."""
        parts = self._parts[spec.name]
        for key, ns in gained.items():
            number = parts["dev"].read(key)
            device = self._device_name(number)
            if device is not None:
                slots = (parts[name].read(key) << _SLOT for name in ("slot", "other"))
                pair = (self._path(slot | number << self._dev_shift) for slot in slots)
                sums[Behind(device, *pair)] += ns

    def _path(self, place: int) -> str:
        return self._named_cgroup(self._cgroups.get(place, 0))[0]

    def _named_cgroup(self, number: int) -> tuple[str, str]:
        if number not in self._named_cgroups:
            self._named_cgroups[number] = self._cgroup(number) if number else (OTHERS, "")
        return self._named_cgroups[number]

    @property
    def _counts_issuers(self) -> bool:
        return bool(self._cgroups) or self._has_processes

    def _issued(self, sums: _IssuerSums) -> dict[Issuer, IssuedIO]:
        issued_ios: dict[Issuer, IssuedIO] = {}
        sums.us.update(self._issuers_owed)
        self._issuers_owed = Counter()
        for issuer in {**sums.counts, **sums.started, **sums.bytes, **sums.us}:
            latency = self._scaled(sums.counts[issuer])
            us = latency.within(sums.us[issuer]) if latency else 0
            if owed := sums.us[issuer] - us:
                self._issuers_owed[issuer] = owed
            maximum = latency.within_top(sums.maxima[issuer]) if latency else None
            latency = replace(latency, sum=us, max=maximum) if latency else latency
            if latency or sums.bytes[issuer] or sums.started[issuer]:
                issued_ios[issuer] = IssuedIO(latency.count + sums.started[issuer], sums.bytes[issuer], latency)
        return issued_ios

    def times(self, flow: Flow) -> bool:
        """Return False for flushes that can't be timed one by one."""
        return not (self._guards_flush and flow.op == "flush" and self._several_queues(flow.device))

    def _named(self, spec: MapSpec, gained: Counts) -> int:
        """Sum the gains of devices that have a name and are selected."""
        dev = self._parts[spec.name]["dev"]
        names = ((self._device_name(dev.read(key)), n) for key, n in gained.items())
        return sum(n for name, n in names if name is not None and self._selects(name))

    def _level(self, spec: MapSpec, levels: Counts) -> None:
        """Update the thresholds; one stays until another is printed."""
        dev = self._parts[spec.name]["dev"]
        self._levels |= {dev.read(key): us for key, us in levels.items()}

    def _thresholds(self) -> dict[str, int]:
        named = {self._device_name(number): us for number, us in self._levels.items()}
        return {name: us for name, us in named.items() if name is not None}

    def _flow(self, spec: MapSpec, key: int) -> Flow | None:
        """Return the flow of a key; looked up once per device and op in an interval, not once per bucket."""
        place = self._flow_keys[spec.name]
        flows, bits = self._flows.setdefault(place, {}), key & place[0]
        if bits not in flows:
            parts = self._parts[spec.name]
            name = self._device_name(parts["dev"].read(key))
            flows[bits] = None if name is None else Flow(name, op_name(parts["op"].read(key)))
        return flows[bits]

    def _add(self, spec: MapSpec, gained: Counts, sums: _IntervalSums) -> None:
        if spec.role == "histogram":
            self._add_buckets(spec, gained, sums)
            return
        for key, n in gained.items():
            flow = self._flow(spec, key)
            if flow is None:
                sums.unnamed += n if spec.role in ("untimed", "unmatched") else 0
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
                    sums.sums[Series(*flow, stage)] += n

    def _add_buckets(self, spec: MapSpec, gained: Counts, sums: _IntervalSums) -> None:
        for key, counts in by_bucket(spec, gained).items():
            flow = self._flow(spec, key)
            if flow is None:
                sums.unnamed += sum(counts.values()) if "total" in spec.stages else 0
            elif not self.times(flow):
                sums.untimed[flow] += sum(counts.values())
            else:
                for stage in spec.stages:
                    series = Series(*flow, stage)
                    bucket = sums.buckets.get(series)
                    sums.buckets[series] = counts if bucket is None else _sum_of(bucket, counts)

    def _maxima(
        self, spec: MapSpec, values: Iterable[tuple[int, int]], sums: _IntervalSums, issuers: _IssuerSums
    ) -> None:
        for key, us in values:
            flow = self._flow(spec, key)
            if self._counts_issuers and "total" in spec.stages and (issuer := self._issuer(spec, key)) is not None:
                issuers.maxima[issuer].append(us)
            if flow is not None:
                for stage in spec.stages:
                    sums.maxima[Series(*flow, stage)].append(us)

    def _fill_rest(self, sums: _IntervalSums) -> None:
        """Fill bucket 0 of histograms without it from the stage that counted every I/O.

        Maps are printed one after the other, so either may be a few I/Os ahead; what one interval lacks, the next has.
        """
        for spec in self._specs:
            if not spec.rest_of:
                continue
            flows = {(s.device, s.op) for s in sums.buckets if s.stage == spec.rest_of or s.stage in spec.stages}
            for flow in flows:
                total = sum(sums.buckets.get(Series(*flow, spec.rest_of), {}).values())
                for stage in spec.stages:
                    series = Series(*flow, stage)
                    part = sums.buckets.get(series, {})
                    remainder = total - sum(part.values()) + self._ahead.get(series, 0)
                    sums.buckets[series] = {**part, 0: part.get(0, 0) + max(0, remainder)}
                    self._ahead[series] = min(0, remainder)

    def _histograms(self, sums: _IntervalSums) -> dict[Series, Histogram]:
        """Make histograms; the part of a sum beyond what its I/Os can take waits for the interval that counts those."""
        new_histograms: dict[int, Histogram] = {}
        """By the identity of their counts, which series of the same I/Os share."""
        for counts in sums.buckets.values():
            if id(counts) not in new_histograms:
                new_histograms[id(counts)] = self._scaled(counts)
        counted = {
            series: new_histogram
            for series, counts in sums.buckets.items()
            if (new_histogram := new_histograms[id(counts)])
        }
        for series, us in self._owed.items():
            sums.sums[series] += us
        self._owed = {series: us for series, us in sums.sums.items() if us and series not in counted}
        for series, histogram in counted.items():
            if series.stage in self._has_sum:
                reported = histogram.within(sums.sums[series])
                self._owed[series], sums.sums[series] = sums.sums[series] - reported, reported
        return {series: self._histogram(series, histogram, sums) for series, histogram in counted.items()}

    def _scaled(self, counts: Counts) -> Histogram:
        """Make a histogram at the scale of the script."""
        return Histogram.of(counts).coarsen(self._bits)

    def _histogram(self, series: Series, histogram: Histogram, sums: _IntervalSums) -> Histogram:
        """Return a histogram with its sum, and with the greatest maximum that lies in its highest bucket.

        The counts are of the moment they were printed, which is a little after the tick. So the interval's maximum is
        the tick's or that of the next tick so far. One in another bucket is of an I/O that another interval counts.
        """
        total = sums.sums[series] if series.stage in self._has_sum else None
        return Histogram(histogram.buckets, total, histogram.within_top(sums.maxima.get(series, ())), histogram.bits)

    def _seen(self, sums: _IntervalSums) -> dict[Flow, Completed]:
        timed: defaultdict[Flow, int] = defaultdict(int)
        for series, counts in sums.buckets.items():
            if series.stage == "total":
                timed[Flow(series.device, series.op)] += sum(counts.values())
        flows = dict.fromkeys(chain(timed, sums.untimed, sums.bytes))
        return {flow: Completed(timed[flow] + sums.untimed[flow], sums.bytes[flow]) for flow in flows}


def _flow_place(spec: MapSpec) -> tuple[int, int]:
    """Return the bits of a map's keys that are its device and its op, and where the device's begin."""
    key_parts = [part for part in spec.key if part.name in ("dev", "op")]
    return sum((1 << part.bits) - 1 << part.shift for part in key_parts), next((part.shift for part in key_parts), 0)


def _sum_of(counts: Counts, other: Counts) -> Counts:
    """Return the sums of counts by bucket."""
    sums = dict(counts)
    for index, n in other.items():
        sums[index] = sums.get(index, 0) + n
    return sums


def _of_ticks(values: Counts, tick: int) -> Iterator[tuple[int, int]]:
    """Yield key and maximum in us of a tick and of the next one so far, from values tick << 32 | us."""
    return ((key, value & _US) for key, value in values.items() if value >> 32 in (tick, tick + 1))


def _at_tick(maps: Maps, tick: int) -> Maps:
    """Return the maxima of a tick in us, by a key without its slot."""
    return [(spec, dict(_of_ticks(values, tick))) for spec, values in maps]


@dataclass(frozen=True, slots=True)
class TracerInterval:
    """Data of one interval of the tracer; TracerRun adds `one_in` and `devices` to `traced`."""

    traced: Traced = field(default_factory=Traced)
    suppressed: int = 0
    """Records that the rate limit left out."""
    undecoded: int = 0
    """Includes names of handlers without room: their runs are UNKNOWN's."""
    thresholds_us: Mapping[str, int] = field(default_factory=dict)
    depths: Mapping[str, Depths] = field(default_factory=dict)
    in_flight: InFlightList | None = None
    """At the newest tick; None where no script printed it."""
    ages_of: tuple[str, ...] = ()
    """The groups of the scripts that printed it: `inflight` for requests, `bios` for devices without requests."""
    tables: Tables = field(default_factory=lambda: NO_TABLES)
    """Declared tables; issuers are processes, and I/Os above the threshold are of devices that the always-on probe
    doesn't time (dm, md)."""
    files_left_out: int = 0
    """Slow operations on files without a record."""

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the rows of a declared table; empty where none was counted."""
        return self.tables.get(table, {})


class TracerFramer:
    """The maps of one script of the tracer as last printed; `interval` returns their differences."""

    def __init__(
        self,
        manifest: Manifest,
        device_name: Callable[[int], str | None],
        flags: Flags = lambda _: (),
        alone: Callable[[str], bool] = lambda _: True,
        *,
        cgroup: Callable[[int], tuple[str, str]] = unnamed_cgroup,
        comm: Callable[[int], str] = lambda _: "",
        file_system: Callable[[int], FileSystem] = lambda number: FileSystem(str(number)),
    ) -> None:
        """`alone`: whether only the tracer times a device. I/Os above its threshold are counted here then.

        `cgroup` and `comm` as Framer takes them; `file_system`: the one with a device number.
        """
        self._file_system = file_system
        self._manifest, self._device_name, self._alone = manifest, device_name, alone
        self._framer = Framer(manifest, device_name, selects=alone, cgroup=cgroup, comm=comm)
        self._specs = [
            spec
            for spec in manifest.maps
            if spec.role not in DECLARED_ROLES and (spec.role in _OWN or spec.role.startswith(_TABLES))
        ]
        self._maps = Differences(self._specs)
        self._ages = NewestAges(device_name, flags)
        self._owed: dict[Series, int] = {}
        self._own = {spec.name for spec in self._specs}
        # A record has the whole pointer, a key the low bits for which it has room.
        self._bits = next((p.bits for spec in self._specs for p in spec.key if p.name == "handler"), 64)
        self._reported_by_total = {stage for spec in manifest.maps if spec.role == "by_total" for stage in spec.stages}
        self._handlers: dict[int, Handler] = {}
        self._callers: dict[Handler, int] = {}
        self._left_out = 0
        self._chains: dict[str, list[str]] = {spec.name: [] for spec in self._specs if spec.skips}

    def by_stack(self, spec: MapSpec, values: Mapping[str, object]) -> Counts:
        """Return a map of kernel stacks as `printed` takes it."""
        return by_stack(spec, values, self._chains.get(spec.name, []))

    def printed(self, name: str, values: Counts) -> None:
        """Take one map as the tool printed it."""
        (self._maps if name in self._own else self._framer).printed(name, values)

    def cleared(self) -> None:
        """Note that the script cleared its maps by thread after it printed them."""
        for spec in self._specs:
            if any(part.name == "thread" for part in spec.key):
                self._maps.cleared(spec.name)

    def handler(self, record: Record) -> None:
        """Take a `handler` record: the name of a handler's number, and the irq whose handler calls it, or its own."""
        number, irq, caller = record.get("handler"), record.get("irq"), record.get("caller")
        if number is None:
            return
        key = number & ((1 << self._bits) - 1)
        if key in self._handlers or len(self._handlers) < _MAX_HANDLERS:
            self._handlers[key] = found_handler = Handler(UNKNOWN_IRQ if irq is None else irq, record.text)
            self._callers[found_handler] = UNKNOWN_IRQ if caller is None or caller == irq else caller
        else:
            self._left_out += 1

    def waiting(self, records: Iterable[Record], at_ns: int, ahead_ns: int = 0) -> None:
        """Take the I/Os that had not completed at the tick whose maps were printed, at `at_ns` on the script's clock.

        That clock is `ahead_ns` ahead of CLOCK_MONOTONIC, which the records are on.
        """
        maps = [(spec, self._maps.latest(spec.name)) for spec in self._specs if spec.role in ROLES_OF_AGES]
        self._ages.reported(records, maps, at_ns, ahead_ns)

    def interval(self, tick: int | None, thread: Callable[[int], Thread]) -> TracerInterval:
        """Close an interval; `tick` as Framer.interval takes it."""
        series = self._framer.interval(tick)
        most = [
            (map_spec, self._maps.latest(map_spec.name)) for map_spec in self._specs if map_spec.role == "depth_most"
        ]
        gains = [(map_spec, self._maps.gained(map_spec.name)) for map_spec in self._specs if map_spec.role not in AS_IS]
        maxima = [
            (map_spec, self._maps.latest(map_spec.name)) for map_spec in self._specs if map_spec.role == "file_max"
        ]
        unreported = sum(n for map_spec, gained in gains if map_spec.role == "file_suppressed" for n in gained.values())
        undecoded = series.undecoded + self._maps.close() + self._left_out
        self._left_out = 0
        if self._manifest.group == PROCESSES:
            # Its histograms have the same I/Os as those of the always-on probe.
            return TracerInterval(undecoded=undecoded, tables=series.tables)
        in_flight = self._ages.taken()
        bits = self._manifest.bits
        tables: Tables = {
            **series.tables,
            ABOVE: {flow: n for flow, n in series.tables[ABOVE].items() if self._alone(flow.device)},
            HANDLERS: handlers(gains, lambda number: self._handlers.get(number, UNKNOWN), self._callers, bits),
            WAKEUPS: wakeups(gains, thread, bits),
            PATTERNS: patterns(gains, self._device_name),
            FILE_TIMES: file_times(gains, self._file_system),
            FILES: files(gains, [] if tick is None else _at_tick(maxima, tick), self._file_system, bits),
        }
        return TracerInterval(
            self._traced(series, gains),
            series.suppressed,
            undecoded,
            series.thresholds_us,
            depths(gains, most_of(most, tick), self._device_name),
            in_flight,
            () if in_flight is None else (self._manifest.group,),
            tables=tables,
            files_left_out=unreported,
        )

    def _traced(self, reported: ProbeInterval, gains: Gains) -> Traced:
        by_total: defaultdict[Series, Counter[int]] = defaultdict(Counter)
        paths: dict[str, Counter[str]] = {}
        unfollowed: dict[str, Counter[str]] = {}
        stacks: dict[str, dict[str, Counter[str]]] = {role: {} for role in _REQUEST_STACKS}
        off = 0
        for spec, key, counts in chain.from_iterable(by_key(gains, role) for role in _OWN):
            is_raiser = spec.role == "raiser"
            device = vector(spec.part("vec").read(key)) if is_raiser else self._device_name(spec.part("dev").read(key))
            if spec.role == "off":
                off += sum(counts.values())
            elif device is None:
                continue
            elif spec.role in _REQUEST_STACKS:
                name = context_name(spec, key, self._chains.get(spec.name, ()))
                stacks[spec.role].setdefault(device, Counter())[name] += sum(counts.values())
            elif spec.role == "path":
                code = spec.part("path").read(key)
                table = paths if code < UNFOLLOWED_FROM else unfollowed
                name = self._manifest.path_name(code) or f"unknown code {code}"
                table.setdefault(device, Counter())[name] += sum(counts.values())
            else:
                op = op_name(spec.part("op").read(key))
                for stage in spec.stages:
                    by_total[Series(device, op, stage)].update(counts)
        totals = reported.totals_us.items() if self._reported_by_total else ()
        return Traced(
            self._with_sums(reported.histograms, by_total),
            {series: dict(sums) for series, sums in by_total.items()}
            | {Series(*flow, "total"): {0: us} for flow, us in totals},
            _plain(unfollowed),
            _plain(paths),
            off,
            admission_causes=_plain(stacks["cause"]),
            completers=_plain(stacks["completer"]),
            raisers=_plain(stacks["raiser"]),
        )

    def _with_sums(
        self, histograms: Mapping[Series, Histogram], by_total: Mapping[Series, Counter[int]]
    ) -> dict[Series, Histogram]:
        """Add sums to stages whose time is recorded by the requests' total; a sum ahead of its buckets waits."""
        have = Counter({series: sum(us.values()) for series, us in by_total.items()})
        have.update(self._owed)
        self._owed = {series: us for series, us in have.items() if us and series not in histograms}
        return {series: self._with_sum(series, histogram, have.get(series)) for series, histogram in histograms.items()}

    def _with_sum(self, series: Series, histogram: Histogram, us: int | None) -> Histogram:
        """Add its sum; where the map was not printed only that of an empty time is known."""
        if histogram.sum is not None or series.stage not in self._reported_by_total:
            return histogram
        if us is None and any(index for index, _ in histogram.buckets):
            return histogram
        reported = histogram.within(us or 0)
        if us is not None and us != reported:
            self._owed[series] = us - reported
        return replace(histogram, sum=reported)


def joined(intervals: Iterable[TracerInterval], manifests: Iterable[Manifest]) -> TracerInterval:
    """Merge the intervals of the scripts of a process; a stage is absent where no script measures it."""
    each, known = list(intervals), [manifest for manifest in manifests if manifest.group != PROCESSES]
    measured = {stage for manifest in known for stage in manifest.stages}
    by_request = [manifest for manifest in known if manifest.group == "stages"]
    reasons = {stage: why for manifest in by_request for stage, why in manifest.absent.items()}
    includes = _includes(by_request)
    traced = replace(
        _merge_traced([interval.traced for interval in each]),
        includes=includes,
        bio_includes=_includes(manifest for manifest in known if manifest.group == "bios"),
        absent=missing_stages(measured, reasons, includes) if by_request else (),
    )
    return TracerInterval(
        traced=traced,
        suppressed=sum(interval.suppressed for interval in each),
        undecoded=sum(interval.undecoded for interval in each),
        thresholds_us={device: us for interval in each for device, us in interval.thresholds_us.items()},
        depths={device: depths for interval in each for device, depths in interval.depths.items()},
        in_flight=all_waiting(interval.in_flight for interval in each),
        ages_of=tuple(dict.fromkeys(group for interval in each for group in interval.ages_of)),
        tables=sum_tables(interval.tables for interval in each),
        files_left_out=sum(interval.files_left_out for interval in each),
    )


def with_earlier(later: TracerInterval, earlier: TracerInterval) -> TracerInterval:
    """Return a process's interval with the counts of the one before it, of the same sample.

    What isn't a count is the later one's: depths, I/Os in flight, absent stages.
    """
    counts = _merge_traced([earlier.traced, later.traced])
    both = earlier.traced.devices and later.traced.devices
    traced = replace(
        counts,
        one_in=later.traced.one_in,
        devices=tuple(sorted({*earlier.traced.devices, *later.traced.devices})) if both else (),
        absent=later.traced.absent,
        includes=later.traced.includes,
        bio_includes=later.traced.bio_includes,
    )
    return replace(
        later,
        traced=traced,
        suppressed=earlier.suppressed + later.suppressed,
        undecoded=earlier.undecoded + later.undecoded,
        thresholds_us={**earlier.thresholds_us, **later.thresholds_us},
        tables=sum_tables((earlier.tables, later.tables)),
        files_left_out=earlier.files_left_out + later.files_left_out,
    )


def _includes(manifests: Iterable[Manifest]) -> dict[str, tuple[str, ...]]:
    """Return stage -> stages included in it by each script that measures it; for other devices it may be fewer."""
    includes: dict[str, tuple[str, ...]] = {}
    for manifest in manifests:
        for stage in {*manifest.stages, *manifest.includes}:
            into = manifest.includes.get(stage, ())
            includes[stage] = tuple(name for name in into if stage not in includes or name in includes[stage])
    return {stage: into for stage, into in includes.items() if into}


def _merge_traced(parts: list[Traced]) -> Traced:
    histograms: defaultdict[Series, list[Histogram]] = defaultdict(list)
    by_total: defaultdict[Series, Counter[int]] = defaultdict(Counter)
    for part in parts:
        for series, histogram in part.histograms.items():
            histograms[series].append(histogram)
        for series, sums in part.by_total.items():
            by_total[series].update(sums)
    return Traced(
        {
            series: merge(several_histograms) if len(several_histograms) > 1 else several_histograms[0]
            for series, several_histograms in histograms.items()
        },
        {series: dict(sums) for series, sums in by_total.items()},
        _added(part.unfollowed for part in parts),
        _added(part.paths for part in parts),
        sum(part.off for part in parts),
        admission_causes=_added(part.admission_causes for part in parts),
        completers=_added(part.completers for part in parts),
        raisers=_added(part.raisers for part in parts),
    )


def _added(tables: Iterable[Paths]) -> dict[str, dict[str, int]]:
    all_counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for device, counts in table.items():
            all_counts[device].update(counts)
    return _plain(all_counts)


def _plain(table: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {device: dict(counts) for device, counts in table.items()}
