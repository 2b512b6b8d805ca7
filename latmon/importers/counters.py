"""Importers of counters that only grow: scrapes of Prometheus exporters, kstat -p of disks, smart logs of NVMe.

Two readings of a device make an interval; the first one, which is of the time since a boot, has no I/Os of its own. A
counter that comes again, or a time, begins the next reading. Counters that fall have been reset: the interval of their
device is left out.

Prometheus: node_exporter's disks, and histograms in seconds of a device (ebpf_exporter's bio latency), whose buckets
are cumulative. kstat: rlentime and wlentime are the sums of the times in the driver and above it, of all operations.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from latmon.decode.dtrace_aggregation import Row
from latmon.importers.bpftrace import documents, whole
from latmon.importers.values import (
    RELATIVE_BELOW,
    UNKNOWN_OP,
    Clock,
    Counts,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    ShortNames,
    TextSpan,
    add,
    moment,
    one_device,
    op_named,
)
from latmon.model.frame import Completed, Flow, Outstanding, Series
from latmon.recording.validate import MAX_WALL
from latmon.support.text import clean, listed

_MOST = 2.0**62
_MAX_KEYS = 200_000
_LONGEST_TIME = 100
_SECTOR, _UNIT = 512, 512_000


class CounterDevice(NamedTuple):
    """Device of a text; `rest` is what else names it: labels, or module and instance."""

    name: str
    rest: str = ""


class Counter(NamedTuple):
    """Counter of a device; `edge` is the inclusive end of a bucket in seconds."""

    name: str
    op: str = ""
    edge: float | None = None


@dataclass(slots=True)
class Reading:
    """All counters at one moment."""

    first: int
    last: int
    wall: float | None
    values: dict[CounterDevice, dict[Counter, float]] = field(default_factory=dict)
    size: int = 0
    """Number of its counters."""

    def take(self, device: CounterDevice, counter: Counter, value: float, at: int) -> None:
        """Add a counter that it doesn't have, by its line."""
        self.values.setdefault(device, {})[counter] = value
        self.size, self.last = self.size + 1, at


class CounterSample(NamedTuple):
    """Value of a line, and its time if the line has one."""

    device: CounterDevice
    counter: Counter
    value: float
    wall: float | None = None


class Growth(NamedTuple):
    """Counters of a device between two readings: by how much each one grew, and its value at the end."""

    grown: Mapping[Counter, float]
    now: Mapping[Counter, float]


Growths = Mapping[CounterDevice, Growth]


def readings(
    lines: Sequence[str],
    sample: Callable[[str], CounterSample | None],
    clock: Clock,
    own_time: Callable[[str], float | None] = lambda _line: None,
) -> Iterator[Reading | TextSpan]:
    """Yield the readings of a text, and the lines of times between them.

    `own_time`: the time of a line that a reading has among its counters, before or behind them.
    """
    building = _Readings()
    for at, line in enumerate(lines, 1):
        if (time := own_time(line)) is not None:
            yield TextSpan(at, at)
            yield from building.take_own_time(time)
        elif (taken := sample(line)) is not None:
            yield from building.take_sample(taken, at)
        elif (time := clock.wall(line.strip()) if len(line) < _LONGEST_TIME else None) is not None:
            yield TextSpan(at, at, time)
            yield from building.close(time)
    yield from building.close(None)


@dataclass(slots=True)
class _Readings:
    """Reading that is open, and the time of the next one."""

    now: Reading | None = None
    wall: float | None = None
    has_own_time: bool = False
    """Whether `wall` or the open reading's time is one that stood among its counters."""
    is_time_new: bool = False
    """Whether no counter has come since such a time."""

    def close(self, following: float | None) -> Iterator[Reading]:
        """Yield the open reading; `following` is the time of the next one."""
        if self.now is not None:
            yield self.now
        self.now, self.wall, self.has_own_time = None, following, False

    def take_own_time(self, wall: float) -> Iterator[Reading]:
        """Take a time for the open reading, which then has no other, or for the next one."""
        if self.is_time_new:
            return  # of another host, whose counters are in the same reading
        if self.now is not None and not self.has_own_time:
            self.now.wall = wall
        else:
            yield from self.close(wall)
        self.has_own_time = self.is_time_new = True

    def take_sample(self, sample: CounterSample, at: int) -> Iterator[Reading]:
        """Take a counter; yield the open reading where it has this one already."""
        self.is_time_new = False
        values_before = {} if self.now is None else self.now.values.get(sample.device, {})
        if self.now is not None and (sample.counter in values_before or self.now.size >= _MAX_KEYS):
            yield from self.close(None)
        if self.now is None:
            self.now = Reading(at, at, self.wall)
        self.now.take(sample.device, sample.counter, sample.value, at)
        if sample.wall is not None:
            self.now.wall = sample.wall


def _names(samples: Iterable[Reading | TextSpan], options: ImportOptions) -> dict[CounterDevice, str]:
    """Return the name of each device, with labels where another one has the same name; UsageError as `one_device`."""
    each = dict.fromkeys(device for sample in samples if isinstance(sample, Reading) for device in sample.values)
    same, names = Tally(device.name for device in each), ShortNames()
    names_by_device = {
        device: names.short("\0".join(device), " ".join(device).strip() if same[device.name] > 1 else device.name)
        for device in each
    }
    one_device(options, list(names_by_device.values()))
    return dict.fromkeys(names_by_device, options.device) if options.device else names_by_device


def _intervals(
    samples: Sequence[Reading | TextSpan],
    of: Callable[[Growths, TextSpan, Mapping[CounterDevice, str]], Iterator[Found]],
    what: tuple[str, str],
    options: ImportOptions,
) -> Iterator[Found]:
    """Yield the values between each reading of a device and its next one. `what`: words for a reading and its tool."""
    names = _names(samples, options)
    yield from _alone([sample for sample in samples if isinstance(sample, Reading)], what[0], names)
    before: dict[CounterDevice, Reading] = {}
    for sample in samples:
        if isinstance(sample, TextSpan):
            yield Passed(sample)
            continue
        yield Passed(TextSpan(sample.first, sample.last))
        groups: dict[int, tuple[Reading, list[CounterDevice]]] = {}
        for device in sample.values:
            if (old := before.get(device)) is not None:
                groups.setdefault(old.first, (old, []))[1].append(device)
            before[device] = sample
        for old, devices in groups.values():
            growths = dict[CounterDevice, Growth]()
            for thing in _growths(old, sample, devices, what[1], names):
                if isinstance(thing, Remark):
                    yield thing
                else:
                    growths[thing[0]] = thing[1]
            passed = None if sample.wall is None or old.wall is None else round((sample.wall - old.wall) * 1e6)
            if passed is not None and passed <= 0:
                text = f"the time doesn't rise after the {what[0]} in line {old.first}: the interval is left out"
                yield Remark(TextSpan(sample.first, sample.last), text, 1, is_incomplete=True)
            else:
                yield from of(growths, TextSpan(sample.first, sample.last, sample.wall, passed), names)


def _alone(all_readings: Sequence[Reading], what: str, names: Mapping[CounterDevice, str]) -> Iterator[Remark]:
    """Yield a remark if devices are in one reading only."""
    number = Tally(device for reading in all_readings for device in reading.values)
    only = [(device, reading) for reading in all_readings for device in reading.values if number[device] == 1]
    if only:
        where = TextSpan(only[0][1].first, only[0][1].last)
        device_names = listed([names[device] for device, _ in only])
        text = f"{device_names}: a single {what} has only sums since the begin: two make an interval"
        yield Remark(
            where, clean(text, 300), sum(len(reading.values[device]) for device, reading in only), is_incomplete=True
        )


def _growths(
    old: Reading, new: Reading, devices: Sequence[CounterDevice], what: str, names: Mapping[CounterDevice, str]
) -> Iterator[tuple[CounterDevice, Growth] | Remark]:
    """Yield the growth of each device, and remarks on counters that fell or are in one reading alone."""
    where = TextSpan(new.first, new.last)
    odd: list[str] = []
    reset: list[str] = []
    fallen: list[str] = []
    for device in devices:
        values_before, now = old.values[device], new.values[device]
        odd += [f"{counter.name} {names[device]}" for counter in values_before.keys() ^ now.keys()]
        grown = {counter: value - values_before[counter] for counter, value in now.items() if counter in values_before}
        falls = [counter.name for counter, value in grown.items() if value < 0 and _grows(counter)]
        fallen += falls
        if falls:
            reset.append(names[device])
        else:
            yield device, Growth(grown, now)
    if odd:
        text = f"{len(odd):,} counters of {what} are in one of two readings alone: {min(odd)}"
        yield Remark(where, clean(text, 200), len(odd), is_incomplete=True)
    if reset:
        fallen_text = f"{len(fallen):,} counters of {what} fell ({', '.join(sorted({*fallen})[:3])})"
        yield Remark(
            where,
            clean(f"{fallen_text}: the interval of {listed(reset)} is left out", 300),
            len(fallen),
            is_incomplete=True,
        )


def _grows(counter: Counter) -> bool:
    return not counter.name.endswith(("_now", "cnt", "snaptime"))


_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]{2,120})\{([^{}]{0,1000})\}\s+(\S{1,40})(?:\s+(\d{10,16}))?\s*", re.ASCII)
_NUMBER = re.compile(r"\+?\d{1,25}(?:\.\d{0,25})?(?:e[+-]?\d{1,3})?", re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_]\w{0,40})="((?:[^"\\]|\\.){0,200})",?\s*')
_NODE = {
    "reads_completed": ("read", "count", 1.0),
    "writes_completed": ("write", "count", 1.0),
    "discards_completed": ("discard", "count", 1.0),
    "flush_requests": ("flush", "count", 1.0),
    "read_bytes": ("read", "bytes", 1.0),
    "written_bytes": ("write", "bytes", 1.0),
    "discarded_sectors": ("discard", "bytes", _SECTOR),
    "read_time_seconds": ("read", "us", 1e6),
    "write_time_seconds": ("write", "us", 1e6),
    "discard_time_seconds": ("discard", "us", 1e6),
    "flush_requests_time_seconds": ("flush", "us", 1e6),
    "bytes_read": ("read", "bytes", 1.0),
    "bytes_written": ("write", "bytes", 1.0),
    "sectors_read": ("read", "bytes", _SECTOR),
    "sectors_written": ("write", "bytes", _SECTOR),
    "read_time_ms": ("read", "us", 1e3),
    "write_time_ms": ("write", "us", 1e3),
}
"""Name of a counter of node_exporter, without `node_disk_` and `_total` -> op, what it counts, and its unit.

The last six are of 0.15 and before.
"""
_NODE_TIME = re.compile(r"node_time(?:_seconds)?(?:\{[^{}]{0,1000}\})?\s+(\S{1,40})(?:\s+\d{10,16})?\s*", re.ASCII)
"""The time at which node_exporter was asked, in each of its scrapes."""
_WITH_BYTES = ("read", "write", "discard")
_BUCKET = "_seconds_bucket"
_PROGRAM = re.compile(
    r"(etcd_disk_(?:wal_fsync|backend_commit|backend_snapshot|backend_defrag))_duration_seconds_bucket"
)
"""Times of a program's own writes to its disk, which have no device."""
_DEVICES = ("device", "disk", "dev")
_OPS = ("operation", "op", "type", "flags")
_IN_FLIGHT = Counter("node_disk_io_now")
_LONGEST = 2000
"""Characters of a sample's metric and labels."""


def sniff_prometheus(head: str) -> bool:
    """Return whether there are samples of a disk or buckets of a device."""
    return "node_disk_" in head or _BUCKET in head


def read_prometheus(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the time between two scrapes."""
    for at, line in enumerate(lines, 1):
        if line.startswith(("# HELP ", "# TYPE ")):
            yield Passed(TextSpan(at, at))
        elif (why := _prometheus(line)[1]) != "":
            yield Remark(TextSpan(at, at), f"a sample {why}: it is left out", 1, is_incomplete=True)
    samples = list(readings(lines, lambda line: _prometheus(line)[0], Clock(options.start), _node_time))
    yield from _intervals(
        samples,
        lambda growths, when, names: _scraped(growths, when, names, options),
        ("scrape of Prometheus", "Prometheus"),
        options,
    )


def _node_time(line: str) -> float | None:
    sample = _NODE_TIME.fullmatch(line) if line.startswith("node_time") else None
    wall = None if sample is None else _number(sample[1])
    return wall if wall is None or RELATIVE_BELOW <= wall < MAX_WALL else None


def _prometheus(line: str) -> tuple[CounterSample | None, str]:
    """Return the sample of a line, or why a line of a disk or a bucket has none; neither for any other line."""
    metric, _, text = line[:_LONGEST].partition("{")
    is_node = metric == _IN_FLIGHT.name or _node(metric) is not None
    if not (is_node or metric.endswith(_BUCKET)) or not text:
        return None, ""  # node_disk_info and others, whose labels name no disk of their own
    match = _SAMPLE.fullmatch(line)
    if match is None:
        is_ours = is_node or any(f"{name}=" in line for name in _DEVICES)
        return None, "can't be read" if is_ours else ""
    labels = dict(_LABEL.findall(match[2]))
    program = _PROGRAM.fullmatch(metric)
    device = next((labels[name] for name in _DEVICES if name in labels), program[1] if program is not None else "")
    if not device:
        return None, ""
    op = "flush" if program is not None else next((labels[name] for name in _OPS if name in labels), "")
    remainder = ",".join(
        f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("le", *_DEVICES, *_OPS)
    )
    edge = labels.get("le", "")
    end = float("inf") if edge == "+Inf" else _number(edge)
    value, wall = _number(match[3]), int(match[4]) / 1000 if match[4] else None
    why = _unusable(value, end if match[1].endswith(_BUCKET) else 0.0)
    if value is None or why:
        return None, why
    return CounterSample(CounterDevice(device, remainder), Counter(match[1], op, end), value, wall), ""


def _unusable(value: float | None, end: float | None) -> str:
    """Return why a sample can't be taken; empty if it can."""
    if value is None or end is None:
        return "can't be read"
    return f"has a number of {_MOST:.0e} or more" if value >= _MOST or _MOST <= end < float("inf") else ""


def _node(metric: str) -> tuple[str, str, float] | None:
    """Return op, what is counted and its unit, of a counter of node_exporter; None for any other metric."""
    return _NODE.get(metric.removeprefix("node_disk_").removesuffix("_total")) if metric[:5] == "node_" else None


def _number(text: str) -> float | None:
    """Return a number from 0 on; None for anything else."""
    return float(text) if _NUMBER.fullmatch(text) else None


def _scraped(
    growths: Growths, when: TextSpan, names: Mapping[CounterDevice, str], options: ImportOptions
) -> Iterator[Found]:
    kernel: dict[Flow, Completed] = {}
    outstanding: dict[str, Outstanding] = {}
    without_bytes: list[str] = []
    without_count: list[str] = []
    for device, (grown, now) in growths.items():
        for op, sums in _sums(grown).items():
            if "count" not in sums:
                without_count.append(f"{names[device]} {op}")
                continue
            add(kernel, Flow(names[device], op), _done(sums))
            if op in _WITH_BYTES and "bytes" not in sums:
                without_bytes.append(f"{names[device]} {op}")
        if _IN_FLIGHT in now:
            outstanding[names[device]] = Outstanding(int(now[_IN_FLIGHT]), None)
    if kernel:
        yield Counts(when, kernel, outstanding)
    where = TextSpan(when.first, when.last)
    if without_bytes:
        yield Remark(where, clean(f"{listed(without_bytes)}: no counter of bytes, 0 is unknown", 200))
    if without_count:
        text = f"{listed(without_count)}: no counter of I/Os, its bytes and times are left out"
        yield Remark(where, clean(text, 200), len(without_count), is_incomplete=True)
    yield from _bucket_tables(growths, when, names, options)


def _sums(grown: Mapping[Counter, float]) -> dict[str, dict[str, float]]:
    """Return op -> `count`, `bytes` and `us` of node_exporter's counters."""
    sums: dict[str, dict[str, float]] = {}
    for counter, value in grown.items():
        node = _node(counter.name)
        if node is not None:
            sums.setdefault(node[0], {})[node[1]] = value * node[2]
    return sums


def _bucket_tables(
    growths: Growths, when: TextSpan, names: Mapping[CounterDevice, str], options: ImportOptions
) -> Iterator[Found]:
    buckets: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for device, growth in growths.items():
        for (name, op, edge), value in growth.grown.items():
            if name.endswith(_BUCKET) and edge is not None:
                buckets.setdefault((name, names[device], op), []).append((edge, value))
    taken: set[Series] = set()
    for (name, device_name, op), edges in buckets.items():
        title = clean(f"{device_name} {name.removesuffix(_BUCKET)} {op}".strip(), 200)
        known = op_named(op)
        series = options.series(device_name, known) if not op else Series(device_name, known, options.stage_of())
        if series in taken or (op and known == UNKNOWN_OP):
            series = series._replace(device=title)
        taken.add(series)
        yield _bucket_table(title, series, sorted(edges), when)


def _done(counters: Mapping[str, float]) -> Completed:
    us = counters.get("us")
    return Completed(
        round(counters.get("count", 0.0)), round(counters.get("bytes", 0.0)), None if us is None else round(us)
    )


def _bucket_table(
    title: str, series: Series, edges: Sequence[tuple[float, float]], when: TextSpan
) -> ImportedTable | Remark:
    """Return a histogram from its cumulative buckets: upper edges in seconds, and counts.

    An edge is inclusive by Prometheus' definition, and a quantile, which is an upper bound, is that edge either way.
    """
    counts = [edges[0][1], *(b - a for (_, a), (_, b) in pairwise(edges))]
    if edges[-1][0] != float("inf") or any(n < 0 or n != int(n) for n in counts):
        return Remark(when, f"{title}: its buckets don't add up, left out", 1, is_incomplete=True)
    ends = [None if edge == float("inf") else max(1, round(edge * 1e9)) for edge, _ in edges]
    rows = [Row(low, high, int(n)) for low, high, n in zip([0, *ends[:-1]], ends, counts, strict=True)]
    return ImportedTable(when, title, "prometheus", tuple(rows), "ns", "the metric's name", series)


_KSTAT = re.compile(
    r"\s*([\w.-]{1,64}):(\d{1,10}):([^:\t ]{1,64}):(\w{2,32})[\t ]+(-?\d{1,20}(?:\.\d{1,12})?)\s*", re.ASCII
)
_KSTAT_IO = frozenset(("reads", "writes", "nread", "nwritten", "rlentime", "wlentime", "rcnt", "wcnt", "snaptime"))
_NEEDED = ("reads", "writes", "nread", "nwritten", "rlentime", "wlentime")


def sniff_kstat(head: str) -> bool:
    """Return whether there is a sum of times that only disks, tapes and file systems have."""
    return ":rlentime" in head


def read_kstat(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the time between two readings of kstat -p."""
    in_seconds = {_is_stamp(match) for line in lines if (match := _kstat(line)) is not None and _is_time(match, ".")}
    samples = list(readings(lines, lambda line: _kstat_sample(line, in_seconds), Clock(options.start)))
    yield from _intervals(
        samples,
        _kstats,
        ("reading of kstat", "kstat"),
        options,
    )


def _kstat(line: str) -> re.Match[str] | None:
    """Return module, instance, name, statistic and value of a line; None for any other line."""
    match = _KSTAT.fullmatch(line) if ":" in line and len(line) < 300 else None  # noqa: PLR2004
    return match if match is not None and match[4] in _KSTAT_IO else None


def _is_time(match: re.Match[str], part: str = "") -> bool:
    return match[4].endswith("time") and part in match[5]


def _is_stamp(match: re.Match[str]) -> bool:
    return match[4] == "snaptime"


def _kstat_sample(line: str, in_seconds: set[bool]) -> CounterSample | None:
    """Return a statistic, times in seconds. `in_seconds`: whether stamps (True) and sums (False) have a point.

    A version of kstat prints seconds with nine digits after the point, another one nanoseconds.
    """
    match = _kstat(line)
    if match is None:
        return None
    value = float(match[5])
    if _is_time(match) and _is_stamp(match) not in in_seconds:
        value /= 1e9
    return CounterSample(CounterDevice(match[3], f"{match[1]}:{match[2]}"), Counter(match[4]), value)


def _kstats(growths: Growths, when: TextSpan, names: Mapping[CounterDevice, str]) -> Iterator[Found]:
    kernel: dict[Flow, Completed] = {}
    outstanding: dict[str, Outstanding] = {}
    passed: list[float] = []
    for device, growth in growths.items():
        shown = names[device]
        grown, now = ({counter.name: value for counter, value in counter_growths.items()} for counter_growths in growth)
        if not {*_NEEDED} <= grown.keys():
            lacks = ", ".join(sorted({*_NEEDED} - grown.keys())[:3])
            text = f"{shown}: it lacks {lacks} in two readings, left out"
            yield Remark(when, clean(text, 120), 1, is_incomplete=True)
            continue
        passed += [grown["snaptime"]] if grown.get("snaptime", 0.0) > 0 else []
        number = grown["reads"] + grown["writes"]
        for op, count, size in (("read", "reads", "nread"), ("write", "writes", "nwritten")):
            share = grown[count] / number if number else 0.0
            whole_us, queue_us = (grown["rlentime"] + grown["wlentime"]) * 1e6 * share, grown["wlentime"] * 1e6 * share
            done = Completed(round(grown[count]), round(grown[size]), round(whole_us), round(queue_us))
            add(kernel, Flow(shown, op), done)
        if "rcnt" in now and "wcnt" in now:
            outstanding[shown] = Outstanding(max(0, int(now["rcnt"])), max(0, int(now["wcnt"])))
    if kernel:
        dt = round(max(passed) * 1e6) if passed else when.dt_us
        yield Counts(replace(when, dt_us=dt), kernel, outstanding)
        yield Remark(
            TextSpan(when.first, when.last), "kstat times reads and writes together: the mean of both for each"
        )


_SMART = ("host_read_commands", "host_write_commands", "data_units_read", "data_units_written")
_NVME = re.compile(r"/dev/(nvme\d{1,4}(?:n\d{1,4})?)\b")
_SMART_LONGEST = 200
_ABOVE = 3
"""Lines above a log in which its device is named."""


_SMART_HEAD = re.compile(r"Smart Log for NVME device:\s?(?:/dev/)?(\S{1,100})\s+namespace-id:.{0,20}", re.IGNORECASE)
"""First line of a log in text; some versions of nvme-cli print the device as it was typed."""
_SMART_LINE = re.compile(r"\s*([A-Za-z][\w ,.()-]{2,60}?)\s*:\s?(\S.{0,60})", re.ASCII)
_SMART_VALUE = re.compile(r"([\d,]{1,40})(?: \([^()]{1,30}\))?\s*")
_NAMED = "device"
"""Key of the name in a smart log's text, which names its device in its first line."""


def sniff_smart(head: str) -> bool:
    """Return whether there is a smart log of NVMe, as JSON or as text."""
    is_json = '"critical_warning"' in head and '"host_read_commands"' in head
    return is_json or any(_SMART_HEAD.search(line[:200]) for line in head.split("\n") if "device:" in line[:200])


def read_smart(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the time between two logs: commands and bytes, whose times a log hasn't."""
    samples: list[Reading | TextSpan] = []
    logs = sorted([*documents(lines, "critical_warning"), *_smart_texts(lines)], key=lambda document: document[0].first)
    for above, where, value, device in _logs(lines, logs, options):
        yield from above
        numbers = [_number_of(value, name) for name in _SMART]
        if None in numbers:
            lacks = ", ".join(name for name, number in zip(_SMART, numbers, strict=True) if number is None)
            yield Remark(where, f"a smart log has no number for {lacks}: it is left out", 1, is_incomplete=True)
        elif not device:
            yield _nameless(where, "smart log")
        else:
            reading = Reading(where.first, where.last, where.wall)
            for name, number in zip(_SMART, numbers, strict=True):
                reading.take(CounterDevice(device), Counter(name), number or 0, where.last)
            samples.append(reading)
    yield from _intervals(samples, _smart_counts, ("smart log", "the smart log"), options)


def _smart_texts(lines: Sequence[str]) -> Iterator[tuple[TextSpan, dict[str, str]]]:
    """Yield each smart log that is text, its counters by their names in JSON."""
    first, value = 0, dict[str, str]()
    for at, line in enumerate([*lines, ""], 1):
        head = _SMART_HEAD.fullmatch(line[:_SMART_LONGEST])
        # a head and a time have colons, too, and nvme-cli prints no empty line behind a log
        is_over = head is not None or moment(line[:_SMART_LONGEST]) is not None
        field_line = None if is_over else _SMART_LINE.fullmatch(line[:_SMART_LONGEST])
        if first and field_line is not None:
            number = _SMART_VALUE.fullmatch(field_line[2])
            value.setdefault(field_line[1].lower().replace(" ", "_"), number[1] if number else "")
        elif first:
            yield TextSpan(first, at - 1), value
            first = 0
        if head is not None:
            first, value = at, {_NAMED: clean(head[1].removeprefix("disk/by-id/"))}


def _logs(
    lines: Sequence[str], logs: Sequence[tuple[TextSpan, Any]], options: ImportOptions
) -> Iterator[tuple[list[Passed], TextSpan, dict[str, Any], str]]:
    """Yield each log of a drive with the time and the device that lines above it name, and these lines.

    A time is also that of the logs of other drives that follow. The device is empty if no line names it.
    """
    clock, after = Clock(options.start), 0
    latest: float | None = None
    timed = set[str]()
    for where, log in logs:
        value = log if isinstance(log, dict) else {}
        above = range(after + 1, where.first)
        walls = {at: wall for at in above if (wall := clock.wall(lines[at - 1].strip()[:60])) is not None}
        after = where.last
        named = {at: m[1] for at in above[-_ABOVE:] if (m := _NVME.search(lines[at - 1][:200])) is not None}
        own = value.get(_NAMED, options.device) or ("nvme" if len(logs) == 1 else "")
        device = [*named.values()][-1] if named else str(own)
        passed = [Passed(TextSpan(at, at)) for at in sorted({*list(walls)[-1:], *list(named)[-1:]})]
        if walls:
            latest, timed = next(reversed(walls.values())), set()
        wall = None if device in timed else latest
        timed.add(device)
        yield passed, replace(where, wall=wall), value, device


def _nameless(where: TextSpan, what: str) -> Remark:
    text = f"no line above this {what} names its device (/dev/nvme0), nor does --device: it is left out"
    return Remark(where, text, 1, is_incomplete=True)


def _number_of(value: Mapping[str, Any], name: str) -> int | None:
    """Return a counter; versions of nvme-cli print it as a number or quoted, with commas."""
    number = value.get(name)
    return whole(number.replace(",", "") if isinstance(number, str) else number, 2**63 - 1)


def _smart_counts(growths: Growths, when: TextSpan, names: Mapping[CounterDevice, str]) -> Iterator[Found]:
    kernel: dict[Flow, Completed] = {}
    for device, (grown, _) in growths.items():
        reads, writes, read, written = (round(grown[Counter(name)]) for name in _SMART)
        for op, count, units in (("read", reads, read), ("write", writes, written)):
            add(kernel, Flow(names[device], op), Completed(count, units * _UNIT))
    if kernel:
        yield Counts(when, kernel, {})
        text = "a smart log counts commands and units of 512,000 bytes; it times none"
        yield Remark(TextSpan(when.first, when.last), text)


_OCP_KEY = "Feature Status"
_OCP_OPS = {"Read": "read", "Write": "write", "Trim": "discard"}
_OCP_BUCKETS = 4


class _Monitor(NamedTuple):
    """Latency monitor of an OCP drive: edges in ms, I/Os by op and bucket, of the present and the last full period."""

    edges: tuple[int, ...]
    timer_s: int
    period_s: int
    active: Mapping[str, tuple[int, ...]]
    static: Mapping[str, tuple[int, ...]]
    measured: tuple[str, ...]
    """Single latencies that the drive kept with their times, in words."""


def sniff_ocp(head: str) -> bool:
    """Return whether there is a latency monitor's log as JSON."""
    return '"Active Bucket Counter: Bucket 0"' in head


def read_ocp(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the I/Os at or above the monitor's lowest threshold, by the drive's own clock.

    Buckets 0 to 3 begin at the thresholds A to D (OCP Datacenter NVMe SSD specification, log page C3h). The active
    counters become the static ones when the bucket timer expires, so that a later log of a drive has the I/Os of the
    one before it again: these are subtracted.
    """
    before: dict[str, tuple[_Monitor, float | None]] = {}
    for above, where, value, device in _logs(lines, list(documents(lines, _OCP_KEY)), options):
        yield from above
        monitor = _monitor(value)
        if monitor is None:
            yield Remark(where, "a latency monitor's log can't be read: it is left out", 1, is_incomplete=True)
            continue
        if not device:
            yield _nameless(where, "latency monitor's log")
            continue
        yield Passed(TextSpan(where.first, where.last))
        text = f"{device}: only I/Os of {monitor.edges[0]:,} ms or more are counted, by the drive's own clock"
        yield Remark(TextSpan(where.first, where.first), "; ".join((text, *monitor.measured)))
        yield from _monitored(monitor, before.get(device), where, device, options)
        before[device] = (monitor, where.wall)


def _monitor(value: Mapping[str, Any]) -> _Monitor | None:
    """Return a log's values; None where one is missing or no number."""
    edges = [_number_of(value, f"Active Threshold {letter}") for letter in "ABCD"]
    timer, period = _number_of(value, "Active Bucket Timer"), _number_of(value, "Active Bucket Timer Threshold")
    counts: dict[str, dict[str, tuple[int, ...]]] = {}
    for kind in ("Active", "Static"):
        of = [value.get(f"{kind} Bucket Counter: Bucket {n}") for n in range(_OCP_BUCKETS)]
        for op in _OCP_OPS:
            each = [_number_of(monitor_fields, op) for monitor_fields in of if isinstance(monitor_fields, dict)]
            known = [n for n in each if n is not None]
            if len(known) < _OCP_BUCKETS:
                return None
            counts.setdefault(kind, {})[op] = tuple(known)
    known = [edge for edge in edges if edge is not None]
    if timer is None or period is None or len(known) < _OCP_BUCKETS or known != sorted({*known}):
        return None
    return _Monitor(tuple(known), 60 * timer, 60 * period, counts["Active"], counts["Static"], _measured(value))


def _measured(value: Mapping[str, Any]) -> tuple[str, ...]:
    measured_names = []
    for kind in ("Active", "Static"):
        for n in reversed(range(_OCP_BUCKETS)):
            latencies, stamps = (
                value.get(f"{kind} {what}: Bucket {n}") for what in ("Measured Latency", "Latency Time Stamp")
            )
            for op in _OCP_OPS:
                ms = _number_of(latencies, op) if isinstance(latencies, dict) else None
                stamp = str(stamps.get(op, "")) if isinstance(stamps, dict) else ""
                if ms and stamp not in ("", "NA"):
                    measured_names.append(clean(f"a {op.lower()} of {ms:,} ms at {stamp}", 80))
    return tuple(dict.fromkeys(measured_names))[:_OCP_BUCKETS]


def _monitored(
    monitored: _Monitor,
    before: tuple[_Monitor, float | None] | None,
    where: TextSpan,
    device: str,
    options: ImportOptions,
) -> Iterator[Found]:
    """Yield the tables of the last full period and of the present one, without what the log before it had."""
    old, passed = before[0] if before else None, None
    if before and before[1] is not None and where.wall is not None:
        passed = where.wall - before[1]
    if old is not None and old.edges != monitored.edges:
        yield Remark(where, f"{device}: its thresholds were changed since the log before", is_incomplete=True)
        return
    same = old is not None and old.static == monitored.static
    # two periods or more ended since: nothing of the log before is left in this one
    apart = passed is not None and passed - monitored.timer_s > monitored.period_s
    begun = None if where.wall is None else where.wall - monitored.timer_s
    parts = (
        [] if same else [("the last full period", monitored.static, begun, monitored.period_s, None if apart else old)]
    )
    parts.append(("the present period", monitored.active, where.wall, monitored.timer_s, old if same else None))
    for what, counts, wall, seconds, monitor in parts:
        when = TextSpan(where.first, where.last, wall, seconds * 1_000_000 or None)
        for op, numbers in counts.items():
            grown = [
                n - was for n, was in zip(numbers, monitor.active[op] if monitor else (0,) * _OCP_BUCKETS, strict=True)
            ]
            title = f"{device} {op}, {what}"
            if any(n < 0 for n in grown):
                yield Remark(when, f"{title}: its counters fell, left out", 1, is_incomplete=True)
            elif any(grown):
                ends = [*monitored.edges[1:], None]
                rows = tuple(Row(low, high, n) for low, high, n in zip(monitored.edges, ends, grown, strict=True))
                series = options.series(device, _OCP_OPS[op], options.stage or "hba")
                yield ImportedTable(when, title, "ocp", rows, "ms", "the log", series)
