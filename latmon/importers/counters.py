"""Importers of counters that only grow: scrapes of Prometheus exporters, kstat -p of disks, smart logs of NVMe.

Two readings make an interval; the first one, which is of the time since a boot, has no I/Os of its own. A name that
comes again, or a time, begins the next reading. Counters that fall have been reset: their interval is left out.

Prometheus: node_exporter's disks, and histograms in seconds of a device (ebpf_exporter's bio latency), whose buckets
are cumulative. kstat: rlentime and wlentime are the sums of the times in the driver and above it, of all operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from latmon.decode.dtrace_aggregation import Row
from latmon.importers.bpftrace import documents, whole
from latmon.importers.values import (
    Clock,
    Counts,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    TextSpan,
    op_named,
)
from latmon.model.frame import Completed, Flow, Outstanding, Series
from latmon.support.text import clean

Key = tuple[str, ...]
_MOST = 2.0**62
_MAX_KEYS = 200_000
_SECTOR, _UNIT = 512, 512_000


@dataclass(slots=True)
class Reading:
    """All counters at one moment."""

    first: int
    last: int
    wall: float | None
    values: dict[Key, float] = field(default_factory=dict)


Sample = tuple[Key, float, float | None]
"""Name, value and time of a line."""


def readings(
    lines: Sequence[str], sample: Callable[[str], Sample | None], clock: Clock
) -> Iterator[Reading | TextSpan]:
    """Yield the readings of a text, and the lines of times between them."""
    now: Reading | None = None
    wall: float | None = None
    for at, line in enumerate(lines, 1):
        one = sample(line)
        if one is None:
            if (time := clock.wall(line.strip()) if len(line) < 100 else None) is not None:  # noqa: PLR2004
                wall = time
                yield TextSpan(at, at, time)
                if now is not None:
                    yield now
                now = None
            continue
        key, value, stamp = one
        if now is None or key in now.values or len(now.values) >= _MAX_KEYS:
            if now is not None:
                yield now
                wall = None
            now = Reading(at, at, wall)
        now.values[key], now.last = value, at
        now.wall = stamp if stamp is not None else now.wall
    if now is not None:
        yield now


def _intervals(
    every: Iterable[Reading | TextSpan], of: Callable[[Reading, Reading, TextSpan], Iterator[Found]], what: str
) -> Iterator[Found]:
    """Yield the values between each reading and the next one."""
    before: Reading | None = None
    for one in every:
        if isinstance(one, TextSpan):
            yield Passed(one)
            continue
        where = TextSpan(one.first, one.last)
        yield Passed(where)
        if before is not None:
            fallen = [key for key, value in one.values.items() if value < before.values.get(key, 0.0) and _grows(key)]
            passed = None if one.wall is None or before.wall is None else round((one.wall - before.wall) * 1e6)
            when = TextSpan(one.first, one.last, one.wall, passed if passed and passed > 0 else None)
            devices = {key[1] for key in one.values} & {key[1] for key in before.values}
            odd = [key for key in one.values.keys() ^ before.values.keys() if key[1] in devices]
            if odd:
                text = f"{len(odd):,} counters of {what} are in one of two readings alone: {' '.join(min(odd)[:2])}"
                yield Remark(where, clean(text, 200), len(odd), is_incomplete=True)
            if fallen:
                names = ", ".join(sorted({key[0] for key in fallen})[:3])
                text = f"{len(fallen):,} counters of {what} fell ({names}): the interval is left out"
                yield Remark(where, clean(text, 200), len(fallen), is_incomplete=True)
            else:
                yield from of(before, one, when)
        before = one


def _grows(key: Key) -> bool:
    return not key[0].endswith(("_now", "cnt", "snaptime"))


_SAMPLE = re.compile(
    r"([a-zA-Z_:][\w:]{2,120})\{([^{}]{0,1000})\}\s+(\+?[\d.]{1,25}(?:e[+-]?\d{1,3})?)(?:\s+(\d{10,16}))?\s*", re.ASCII
)
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
}
"""Name of a counter of node_exporter, without `node_disk_` and `_total` -> op, what it counts, and its unit."""
_BUCKET = "_seconds_bucket"
_DEVICES = ("device", "disk", "dev")
_OPS = ("operation", "op", "type", "flags")


def sniff_prometheus(head: str) -> bool:
    """Return whether there are samples of a disk or buckets of a device."""
    return "node_disk_" in head or _BUCKET in head


def read_prometheus(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the time between two scrapes."""
    for at, line in enumerate(lines, 1):
        if line.startswith(("# HELP ", "# TYPE ")):
            yield Passed(TextSpan(at, at))
        elif _is_damaged(line):
            yield Remark(TextSpan(at, at), "a sample can't be read: it is left out", 1, is_incomplete=True)
    every = list(readings(lines, _prometheus_sample, Clock(options.start)))
    yield from _alone(every, "scrape of Prometheus")
    yield from _intervals(every, lambda old, new, when: _scraped(old, new, when, options), "Prometheus")


def _alone(every: Sequence[Reading | TextSpan], what: str) -> Iterator[Remark]:
    """Yield a remark if there is one reading only."""
    only = [one for one in every if isinstance(one, Reading)]
    if len(only) == 1:
        where = TextSpan(only[0].first, only[0].last)
        text = f"a single {what} has only sums since the begin: two make an interval"
        yield Remark(where, text, len(only[0].values), is_incomplete=True)


def _is_damaged(line: str) -> bool:
    """Return whether a line is a sample of a disk, or of a bucket with a device, and can't be read."""
    is_ours = line.startswith("node_disk_") or (_BUCKET in line and any(f"{name}=" in line for name in _DEVICES))
    return is_ours and "{" in line and _SAMPLE.fullmatch(line) is None


def _prometheus_sample(line: str) -> Sample | None:
    if "{" not in line or not (line.startswith("node_disk_") or _BUCKET in line):
        return None
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return None
    labels = dict(_LABEL.findall(found[2]))
    device = next((labels[name] for name in _DEVICES if name in labels), "")
    if not device:
        return None
    op = next((labels[name] for name in _OPS if name in labels), "")
    rest = ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("le", *_DEVICES, *_OPS))
    value = float(found[3])
    stamp = int(found[4]) / 1000 if found[4] else None
    return ((found[1], device, op, rest, labels.get("le", "")), value, stamp) if value < _MOST else None


def _scraped(old: Reading, new: Reading, when: TextSpan, options: ImportOptions) -> Iterator[Found]:
    sums: dict[Flow, dict[str, float]] = {}
    buckets: dict[Key, list[tuple[float, float]]] = {}
    outstanding: dict[str, Outstanding] = {}
    for key, value in new.values.items():
        name, device, op, rest, edge = key
        shown = options.device or clean(device, 64)
        grown = value - old.values.get(key, 0.0) if key in old.values else None
        node = _NODE.get(name.removeprefix("node_disk_").removesuffix("_total"))
        if name == "node_disk_io_now":
            outstanding[shown] = Outstanding(int(value), None)
        elif node is not None and grown is not None:
            sums.setdefault(Flow(shown, options.op or node[0]), {})[node[1]] = grown * node[2]
        elif name.endswith(_BUCKET) and grown is not None and edge:
            buckets.setdefault((name, device, op, rest), []).append((float(edge.replace("+Inf", "inf")), grown))
    whole_sums = {flow: _done(some) for flow, some in sums.items() if "count" in some}
    if whole_sums:
        yield Counts(when, whole_sums, outstanding)
    for key, edges in buckets.items():
        yield _bucket_table(key, sorted(edges), when, options)


def _done(some: Mapping[str, float]) -> Completed:
    us = some.get("us")
    return Completed(round(some.get("count", 0.0)), round(some.get("bytes", 0.0)), None if us is None else round(us))


def _bucket_table(
    key: Key, edges: Sequence[tuple[float, float]], when: TextSpan, options: ImportOptions
) -> ImportedTable | Remark:
    """Return a histogram; its buckets are cumulative, and `le` is their inclusive end in seconds."""
    name, device, op, rest = key
    title = clean(f"{name.removesuffix(_BUCKET)} {device} {op} {rest}".strip(), 200)
    counts = [edges[0][1], *(b - a for (_, a), (_, b) in pairwise(edges))]
    if edges[-1][0] != float("inf") or any(n < 0 or n != int(n) for n in counts):
        return Remark(when, f"{title}: its buckets don't add up, left out", 1, is_incomplete=True)
    ends = [None if edge == float("inf") else round(edge * 1e9) + 1 for edge, _ in edges]
    rows = [Row(low, high, int(n)) for low, high, n in zip([0, *ends[:-1]], ends, counts, strict=True)]
    series = Series(
        options.device or clean(f"{device} {rest}".strip(), 64), options.op or op_named(op), options.stage or "total"
    )
    return ImportedTable(when, title, "prometheus", tuple(rows), "ns", "the metric's name", series)


_KSTAT = re.compile(
    r"\s*([\w.-]{1,64}):(\d{1,10}):([^:\t ]{1,64}):(\w{2,32})[\t ]+(-?\d{1,20}(?:\.\d{1,12})?)\s*", re.ASCII
)
_KSTAT_IO = frozenset(("reads", "writes", "nread", "nwritten", "rlentime", "wlentime", "rcnt", "wcnt", "snaptime"))
_NEEDED = ("reads", "writes", "nread", "nwritten", "rlentime", "wlentime")
_NS_FROM = 1e6
"""A whole number above it is in nanoseconds: kstat prints seconds with nine digits after the point."""


def sniff_kstat(head: str) -> bool:
    """Return whether there is a sum of times that only disks, tapes and file systems have."""
    return ":rlentime" in head


def read_kstat(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the time between two readings of kstat -p."""
    every = list(readings(lines, _kstat_sample, Clock(options.start)))
    yield from _alone(every, "reading of kstat")
    yield from _intervals(every, lambda old, new, when: _kstats(old, new, when, options), "kstat")


def _kstat_sample(line: str) -> Sample | None:
    found = _KSTAT.fullmatch(line) if ":" in line and len(line) < 300 else None  # noqa: PLR2004
    if found is None or found[4] not in _KSTAT_IO:
        return None
    value = float(found[5])
    if found[4].endswith("time") and "." not in found[5] and value > _NS_FROM:
        value /= 1e9
    return (found[4], found[3], found[1], found[2]), value, None


def _kstats(old: Reading, new: Reading, when: TextSpan, options: ImportOptions) -> Iterator[Found]:
    kernel: dict[Flow, Completed] = {}
    outstanding: dict[str, Outstanding] = {}
    passed: list[float] = []
    for name, module, instance in dict.fromkeys(key[1:] for key in new.values):
        grown = {
            stat: new.values[key] - old.values[key]
            for stat in (*_NEEDED, "snaptime")
            if (key := (stat, name, module, instance)) in new.values and key in old.values
        }
        if not {*_NEEDED} <= grown.keys():
            lacks = ", ".join(sorted({*_NEEDED} - grown.keys())[:3])
            yield Remark(when, clean(f"{name}: it lacks {lacks} in two readings, left out", 120), 1, is_incomplete=True)
            continue
        device = options.device or clean(name, 64)
        passed += [grown["snaptime"]] if grown.get("snaptime", 0.0) > 0 else []
        number = grown["reads"] + grown["writes"]
        for op, count, size in (("read", "reads", "nread"), ("write", "writes", "nwritten")):
            share = grown[count] / number if number else 0.0
            whole_us, queue_us = (grown["rlentime"] + grown["wlentime"]) * 1e6 * share, grown["wlentime"] * 1e6 * share
            done = Completed(round(grown[count]), round(grown[size]), round(whole_us), round(queue_us))
            kernel[Flow(device, options.op or op)] = done
        counts = [new.values.get((stat, name, module, instance)) for stat in ("rcnt", "wcnt")]
        if None not in counts:
            outstanding[device] = Outstanding(*(int(one or 0) for one in counts))
    if kernel:
        dt = round(max(passed) * 1e6) if passed else when.dt_us
        yield Counts(replace(when, dt_us=dt), kernel, outstanding)
        yield Remark(
            TextSpan(when.first, when.last), "kstat times reads and writes together: the mean of both for each"
        )


_SMART = ("host_read_commands", "host_write_commands", "data_units_read", "data_units_written")


def sniff_smart(head: str) -> bool:
    """Return whether there is a smart log of NVMe as JSON."""
    return '"critical_warning"' in head and '"host_read_commands"' in head


def read_smart(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the time between two logs: commands and bytes, whose times a log hasn't."""
    every: list[Reading | TextSpan] = []
    clock, after = Clock(options.start), 0
    for where, value in documents(lines, "critical_warning"):
        walls = [wall for line in lines[after : where.first - 1] if (wall := clock.wall(line.strip()[:60])) is not None]
        after = where.last
        numbers = [_smart_number(value, name) for name in _SMART] if isinstance(value, dict) else [None]
        if None in numbers:
            yield Remark(where, "a smart log can't be read: it is left out", 1, is_incomplete=True)
            continue
        device = next((m[1] for line in lines[max(0, where.first - 4) : where.first - 1]
                       if (m := re.search(r"/dev/(nvme\d{1,4}(?:n\d{1,4})?)\b", line[:200]))), "nvme")  # fmt: skip
        values: dict[Key, float] = {(name, device): float(n or 0) for name, n in zip(_SMART, numbers, strict=True)}
        every.append(Reading(where.first, where.last, walls[-1] if walls else None, values))
    yield from _alone(every, "smart log")
    yield from _intervals(every, lambda old, new, when: _smart_counts(old, new, when, options), "the smart log")


def _smart_number(value: Mapping[str, Any], name: str) -> int | None:
    """Return a counter; versions of nvme-cli print it as a number or quoted, with commas."""
    found = value.get(name)
    return whole(found.replace(",", "") if isinstance(found, str) else found, 2**63 - 1)


def _smart_counts(old: Reading, new: Reading, when: TextSpan, options: ImportOptions) -> Iterator[Found]:
    kernel: dict[Flow, Completed] = {}
    for device in dict.fromkeys(key[1] for key in new.values):
        reads, writes, read, written = (
            round(new.values[name, device] - old.values.get((name, device), new.values[name, device]))
            for name in _SMART
        )
        for op, count, units in (("read", reads, read), ("write", writes, written)):
            kernel[Flow(options.device or device, options.op or op)] = Completed(count, units * _UNIT)
    yield Counts(when, kernel, {})
    yield Remark(
        TextSpan(when.first, when.last), "a smart log counts commands and units of 512,000 bytes; it times none"
    )
