"""Importer of fio's JSON: latency bins of each job and direction (json+), or its exact means (json).

A bin is named by its middle and 1.6 % wide, finer than ours, and goes where its last value does. `lat` includes the
submission, which `clat` doesn't, and is taken where it has bins. Jobs of one name are one device: fio names no disk.
What fio prints for people (`normal,json+`) is of the same I/Os.

`--status-interval` prints a document after each interval, and each one has all I/Os since the run began: a window is
the difference of two documents, with 0 I/Os where none was done. I/Os of `ramp_time` are in the documents until it is
over, untimed, and are not in the last one: they are left out.

Before 2.99 (stat.c of fio): times are in us, in `lat` and `clat` instead of `lat_ns` and `clat_ns`; a bin is named by
its index, beside FIO_IO_U_PLAT_BITS. Before 2.21 `io_bytes` is in KiB, and there is no `io_kbytes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from latmon.importers.bpftrace import documents, real, whole
from latmon.importers.values import (
    Counts,
    Found,
    ImportOptions,
    Passed,
    Remark,
    ShortNames,
    TextSpan,
    TimeLine,
    Times,
    add,
)
from latmon.model.frame import Completed, Flow, Series
from latmon.model.histogram import Histogram, bucket_index, merge
from latmon.support.errors import RecordingError
from latmon.support.text import clean

_OPS = {"read": "read", "write": "write", "trim": "discard", "sync": "flush", "mixed": "other"}
_DIRECTIONS = ("read", "write", "trim")
_MIXED = "mixed"
"""With unified_rw_reporting=both, `mixed` has the I/Os of the directions again."""
_MAX_NS = 2**62
_BIN_BITS = 6
_KINDS = ("lat", "clat")
_UNITS = {"_ns": 1, "": 1000}
"""End of a kind's key -> nanoseconds."""
_KEY = "fio version"
_PLAT_BITS = "FIO_IO_U_PLAT_BITS"
_PLAT = "FIO_IO_U_PLAT"
_MAX_PLAT_BITS = 10
_MAX_WALL_MS = 253_402_300_799_000
_VERSION = re.compile(r"fio-(\d{1,3})\.(\d{1,4})")
_IN_BYTES = (2, 21)
"""The first version whose io_bytes are bytes (commit c12d597a)."""
_KIB = 1024
_CEILING_MS = 1000
"""`elapsed` is rounded up to seconds."""
_LATE_MS = 100
"""A document's `elapsed` is taken before its `timestamp_ms`."""
_FOR_PEOPLE = re.compile(
    r"\s+(?:\|.{0,40}th=\[|[sc]?lat percentiles \(|[sc]?lat \([num]sec\)|bw \(|iops  |cpu  |IO depths|submit  "
    r"|complete  |issued rwts|latency  |(?:READ|WRITE|TRIM|MIXED): |(?:read|write|trim|mixed): IOPS=)"
    r"|\S.{0,80}: \(groupid=|Run status group|Disk stats|  \w+: ios=|fio-\d|Starting \d+ |Jobs: \d"
    r"|\S{1,80}: \(g=\d+\): rw="
)
"""Lines of the output for people."""


class _Bin(NamedTuple):
    """First and last nanosecond of a bin."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """I/Os of one direction of one job since its run began; times in ns, None where fio reports none."""

    flow: Flow
    ios: int
    size: int
    runtime_ms: int
    kind: str
    """The key of its bins, `lat_ns` or `clat_ns`; empty without bins."""
    bins: Mapping[_Bin, int]
    timed: int | None
    """I/Os that its times are of, as fio reports them."""
    sum_ns: float | None
    most_ns: int | None

    @property
    def binned(self) -> int:
        """Return the number of I/Os in the bins."""
        return sum(self.bins.values())

    @property
    def is_damaged(self) -> bool:
        """Return whether the bins have another number of I/Os than fio reports."""
        return bool(self.bins) and self.timed not in (None, self.binned)

    @property
    def name(self) -> str:
        return f"{self.flow.device} {self.flow.op}"


class _SideKey(NamedTuple):
    """Number of a job in the list of jobs, and its direction."""

    job: int
    direction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """One JSON document, the state of a run at a moment."""

    where: TextSpan
    version: str
    jobs: tuple[tuple[str, int], ...]
    """Name and group of each job."""
    wall_ms: int | None
    elapsed_s: int | None
    sides: Mapping[_SideKey, _Side]
    uncounted: tuple[str, ...] = ()
    """Jobs and directions with bytes whose number of I/Os is missing."""

    @property
    def latest_begin_ms(self) -> int | None:
        """Return the time before which the run began; it is at most _CEILING_MS earlier."""
        if self.wall_ms is None or self.elapsed_s is None:
            return None
        return self.wall_ms - 1000 * self.elapsed_s + _CEILING_MS


def sniff_fio(head: str) -> bool:
    """Return whether its first key is there."""
    return f'"{_KEY}"' in head


def read_fio(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each document of a run: the I/Os since the document before it."""
    run: list[_Document] = []
    is_first, has_documents = True, False
    for where, value in documents(lines, _KEY):
        has_documents = True
        yield Passed(where)
        if isinstance(value, str):
            yield Remark(where, f"fio: {value}", 1, is_incomplete=True)
            continue
        document = _document(where, value, options)
        if run and not _is_continued(run, document):
            yield from _run(run, options, is_first)
            is_first, run = False, []
        run.append(document)
    if run:
        yield from _run(run, options, is_first)
    if has_documents:
        yield from (Passed(TextSpan(at, at)) for at, line in enumerate(lines, 1) if _FOR_PEOPLE.match(line))


def _document(where: TextSpan, value: Mapping[str, Any], options: ImportOptions) -> _Document:
    jobs = value.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise RecordingError("it is no JSON of fio: it has no list of jobs")
    version = str(value.get(_KEY, ""))
    wall_ms, wall_s = whole(value.get("timestamp_ms"), _MAX_WALL_MS), whole(value.get("timestamp"))
    if wall_ms is None and wall_s is not None and 1000 * wall_s <= _MAX_WALL_MS:
        wall_ms = 1000 * wall_s
    elapsed = [whole(job.get("elapsed")) for job in jobs]
    return _Document(
        where=where,
        version=version,
        jobs=tuple((str(job.get("jobname", "")), whole(job.get("groupid")) or 0) for job in jobs),
        wall_ms=wall_ms,
        elapsed_s=elapsed[0] if elapsed else None,
        sides=dict(_sides(jobs, version, options)),
        uncounted=tuple(_uncounted(jobs)),
    )


def _uncounted(jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield jobs and directions that have bytes, and no number of I/Os."""
    for job in jobs:
        for direction in _DIRECTIONS:
            reported = job.get(direction)
            if isinstance(reported, dict) and whole(reported.get("io_bytes")) and "total_ios" not in reported:
                yield f"{clean(str(job.get('jobname', 'job')), 60)} {direction}"


def _sides(jobs: Sequence[Mapping[str, Any]], version: str, options: ImportOptions) -> Iterator[tuple[_SideKey, _Side]]:
    """Yield the directions of all jobs that have I/Os."""
    names = ShortNames()
    for number, job in enumerate(jobs):
        device = names.short(str(job.get("jobname", "job")))
        has_directions = any(_ios(job.get(direction)) for direction in _DIRECTIONS)
        for direction, op in _OPS.items():
            reported = job.get(direction)
            if not isinstance(reported, dict) or (direction == _MIXED and has_directions):
                continue
            side = _side(options.flow(device, op), reported, version)
            if side.ios:
                yield _SideKey(number, direction), side


def _ios(reported: Any) -> int:
    return (whole(reported.get("total_ios")) or 0) if isinstance(reported, dict) else 0


def _side(flow: Flow, reported: Mapping[str, Any], version: str) -> _Side:
    ios = _ios(reported)
    kind, timed, unit = _with_bins(reported) or _with_mean(reported, ios) or _untimed(reported)
    bins = _bins(timed, unit)
    number, mean = whole(timed.get("N")), real(timed.get("mean"))
    most = whole(timed.get("max"), _MAX_NS // unit)
    measured = sum(bins.values()) or ios
    is_exact = mean is not None and number in (None, measured)
    return _Side(
        flow=flow,
        ios=ios or measured,
        size=(whole(reported.get("io_bytes")) or 0) * _bytes_unit(reported, version),
        runtime_ms=whole(reported.get("runtime")) or 0,
        kind=kind if bins else "",
        bins=bins,
        timed=number,
        sum_ns=min((mean or 0.0) * unit, _MAX_NS) * measured if is_exact else None,
        most_ns=None if most is None else (most + 1) * unit - 1,
    )


def _bytes_unit(reported: Mapping[str, Any], version: str) -> int:
    """Return the bytes that io_bytes counts in."""
    number = _VERSION.match(version)
    is_old = number is not None and (int(number[1]), int(number[2])) < _IN_BYTES
    return _KIB if is_old and "io_kbytes" not in reported else 1


def _kinds(reported: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield the times of a direction, with their key and their unit in ns."""
    for kind in _KINDS:
        for suffix, unit in _UNITS.items():
            timed = reported.get(f"{kind}{suffix}")
            if isinstance(timed, dict):
                yield f"{kind}{suffix}", timed, unit


def _with_bins(reported: Mapping[str, Any]) -> tuple[str, dict[str, Any], int] | None:
    for kind, timed, unit in _kinds(reported):
        if isinstance(timed.get("bins"), dict) and any(timed["bins"].values()):
            return kind, timed, unit
    return None


def _with_mean(reported: Mapping[str, Any], ios: int) -> tuple[str, dict[str, Any], int] | None:
    """Return the times that are of all I/Os; where fio measures none (disable_lat), it prints 0 for all of them."""
    for kind, timed, unit in _kinds(reported):
        number = whole(timed.get("N"))
        is_measured = number == ios or (number is None and whole(timed.get("max"), _MAX_NS))
        if real(timed.get("mean")) is not None and is_measured:
            return kind, timed, unit
    return None


def _untimed(reported: Mapping[str, Any]) -> tuple[str, dict[str, Any], int]:
    """Return only the number of I/Os that were timed, where it is not that of all I/Os."""
    numbers = [whole(timed.get("N")) for _, timed, _ in _kinds(reported)]
    timed = [number for number in numbers if number is not None]
    return "", {"N": max(timed)} if timed else {}, 1


def _bins(timed: Mapping[str, Any], unit: int) -> dict[_Bin, int]:
    """Return the bins with I/Os."""
    reported = timed.get("bins")
    if not isinstance(reported, dict):
        return {}
    bits = whole(reported.get(_PLAT_BITS), _MAX_PLAT_BITS)
    bins: dict[_Bin, int] = {}
    for name, value in reported.items():
        if bits is not None and name.startswith(_PLAT):
            continue
        number, count = whole(name, _MAX_NS // unit), whole(value)
        if number is None or count is None:
            raise RecordingError("a bin of this output of fio is no pair of numbers")
        if count:
            place = _by_middle(number) if bits is None else bin_by_index(number, bits, unit)
            bins[place] = bins.get(place, 0) + count
    return bins


def _by_middle(ns: int) -> _Bin:
    """Return the bin around `ns`: below 128 ns bins have one value, above 64 are an octave."""
    shift = ns.bit_length() - 1 - _BIN_BITS
    half = 1 << (shift - 1) if shift > 0 else 0
    return _Bin(ns - half, ns + half - 1) if half else _Bin(ns, ns)


def bin_by_index(index: int, bits: int, unit: int) -> _Bin:
    """Return the bin of an index, as plat_idx_to_val of fio 2.16's stat.c."""
    shift = max(0, (index >> bits) - 1)
    if shift > _MAX_NS.bit_length() - bits:
        raise RecordingError("a bin of this output of fio is no pair of numbers")
    first = index
    if shift:
        first = (1 << (shift + bits)) + ((index & ((1 << bits) - 1)) << shift)
    return _Bin(first * unit, (first + (1 << shift)) * unit - 1)


def _is_continued(run: Sequence[_Document], later: _Document) -> bool:
    """Return whether a document is a later state of a run: it began when the run did, and its counters grew."""
    before = run[-1]
    if (before.version, before.jobs) != (later.version, later.jobs):
        return False
    if (before.wall_ms, before.sides) == (later.wall_ms, later.sides):
        return False  # a copy
    if before.wall_ms is None or later.wall_ms is None or later.wall_ms < before.wall_ms:
        return False
    begins = [document.latest_begin_ms for document in (*run, later)]
    dated = [begin for begin in begins if begin is not None]
    if len(dated) < len(begins) or max(dated) - min(dated) > _CEILING_MS + _LATE_MS:
        return False
    return _has_grown(before, later) or _is_untimed(before)


def _is_untimed(document: _Document) -> bool:
    """Return whether fio has timed none of the I/Os, as in ramp_time."""
    return all(side.timed == 0 for side in document.sides.values())


def _has_grown(before: _Document, later: _Document) -> bool:
    """Return whether no counter of a document is less in a later one."""
    return all(key in later.sides and _has_side_grown(side, later.sides[key]) for key, side in before.sides.items())


def _has_side_grown(before: _Side, later: _Side) -> bool:
    numbers = ((before.ios, later.ios), (before.size, later.size), (before.most_ns, later.most_ns))
    has_fallen = any(old is not None and new is not None and new < old for old, new in numbers)
    return not has_fallen and all(later.bins.get(place, 0) >= count for place, count in before.bins.items())


def _run(run: Sequence[_Document], options: ImportOptions, is_first: bool) -> Iterator[Found]:
    """Yield a window for each document of a run, and the remarks on its last one, which has all I/Os."""
    where, last = run[0].where, run[-1]
    if not is_first:
        yield TimeLine(TextSpan(where.first, where.first), f"line {where.first}: another output of fio begins")
    begins = [at for at in range(1, len(run)) if not _has_grown(run[at - 1], run[at])]
    begin = max(begins, default=0)
    if begin:
        text = f"{begin:,} documents of the ramp time, whose I/Os fio doesn't time, are left out"
        yield Remark(where, text)
    if not last.sides:
        yield Remark(last.where, "this output of fio has no I/Os", 1, is_incomplete=True)
    before: dict[_SideKey, _Side] = {}
    wall_ms: int | None = None
    for document in run[begin:]:
        sides = {key: side for key, side in document.sides.items() if not side.is_damaged}
        window = list(_window(document, sides, before, wall_ms, options))
        if not window and len(sides) == len(document.sides):
            window = list(_idle(document, last.sides.values(), wall_ms, options))
        yield from window
        before |= sides
        wall_ms = document.wall_ms
        yield from _damaged(document)
    yield from _remarks(last)


def _idle(document: _Document, sides: Iterable[_Side], wall_ms: int | None, options: ImportOptions) -> Iterator[Found]:
    """Yield a window with 0 I/Os of each direction that the run has I/Os of."""
    when = _when(document, wall_ms, 0)
    timed = {side.flow: Completed(0, 0) for side in sides if side.bins}
    means = {side.flow: Completed(0, 0) for side in sides if side.flow not in timed}
    if means:
        yield Counts(when, means, {})
    if timed:
        yield Times(when, {options.series(*flow): Histogram() for flow in timed}, (), timed)


def _damaged(document: _Document) -> Iterator[Remark]:
    for name in document.uncounted:
        yield Remark(document.where, f"{name}: it has no number of I/Os (total_ios)", 1, is_incomplete=True)
    for side in document.sides.values():
        if side.is_damaged:
            text = f"{side.name}: the bins have {side.binned:,} I/Os of {side.timed or 0:,}: they are left out"
            yield Remark(document.where, text, 1, is_incomplete=True)


def _remarks(last: _Document) -> Iterator[Remark]:
    """Yield a remark on each direction whose latency is not whole or has no distribution."""
    for side in last.sides.values():
        if side.kind.startswith("clat") and not side.is_damaged:
            yield Remark(last.where, f"{side.name}: clat, without the submission (slat)")
        if not side.bins:
            longest = f"; the longest took {side.most_ns // 1000:,} us" if side.most_ns is not None else ""
            yield Remark(last.where, f"{side.name}: {side.ios:,} I/Os without bins; run fio with json+{longest}")


def _window(
    document: _Document,
    sides: Mapping[_SideKey, _Side],
    before: Mapping[_SideKey, _Side],
    wall_ms: int | None,
    options: ImportOptions,
) -> Iterator[Found]:
    """Yield the I/Os since the document before, which was at `wall_ms`; None: since the run began."""
    histograms: dict[Series, list[Histogram]] = {}
    seen: dict[Flow, Completed] = {}
    means: dict[Flow, Completed] = {}
    runtime_ms = 0
    for key, side in sides.items():
        old = before.get(key)
        runtime_ms = max(runtime_ms, side.runtime_ms - (0 if old is None else old.runtime_ms))
        done = _done(side, old)
        if not done.count:
            continue
        if side.bins:
            histograms.setdefault(options.series(*side.flow), []).append(_histogram(side, old))
            add(seen, side.flow, Completed(done.count, done.bytes))
        else:
            add(means, side.flow, done)
    means = _without_bins(means, seen)
    when = _when(document, wall_ms, runtime_ms)
    if means:
        yield Counts(when, means, {})
    if histograms:
        yield Times(when, {series: merge(parts) for series, parts in histograms.items()}, (), seen)


def _when(document: _Document, wall_ms: int | None, runtime_ms: int) -> TextSpan:
    """Return the time since the document before, which was at `wall_ms`; without that as long as I/Os were done."""
    passed_ms = runtime_ms
    if wall_ms is not None and document.wall_ms is not None and document.wall_ms > wall_ms:
        passed_ms = document.wall_ms - wall_ms
    wall = None if document.wall_ms is None else document.wall_ms / 1e3
    return TextSpan(document.where.first, document.where.last, wall, 1000 * passed_ms or None)


def _done(side: _Side, old: _Side | None) -> Completed:
    """Return the I/Os since `old`, with the sum of their times where it is exact."""
    ios, size, sum_ns = (0, 0, 0.0) if old is None else (old.ios, old.size, old.sum_ns)
    us = None
    if side.sum_ns is not None and sum_ns is not None:
        us = max(0, round((side.sum_ns - sum_ns) / 1000))
    return Completed(side.ios - ios, side.size - size, us)


def _histogram(side: _Side, old: _Side | None) -> Histogram:
    """Return the distribution since `old`; its maximum is known if it is a new one of the run.

    The highest bin contains the maximum, and fio's very last one has no end.
    """
    counts: dict[int, int] = {}
    most_ns, highest = side.most_ns, max(side.bins)
    for place, number in side.bins.items():
        count = number - (0 if old is None else old.bins.get(place, 0))
        last = place.last
        if most_ns is not None and place.first <= most_ns and (place == highest or most_ns < last):
            last = most_ns
        index = bucket_index(last // 1000)
        counts[index] = counts.get(index, 0) + count
    is_new = old is None or old.most_ns is None or (most_ns is not None and most_ns > old.most_ns)
    most_us = most_ns // 1000 if most_ns is not None and is_new else None
    return Histogram.of(counts, _done(side, old).time_us, most_us)


def _without_bins(means: Mapping[Flow, Completed], seen: dict[Flow, Completed]) -> dict[Flow, Completed]:
    """Return the I/Os of flows without a distribution; those of other flows are added to `seen`."""
    for flow in seen.keys() & means.keys():
        add(seen, flow, means[flow])
    return {flow: done for flow, done in means.items() if flow not in seen}
