"""Importer of fio's JSON: latency bins of each job and direction (json+), or its exact means (json).

A bin is named by its middle and 1.6 % wide, finer than ours, and goes where its last value does. `lat` includes the
submission, which `clat` doesn't, and is taken where it has bins. Jobs of one name are one device: fio names no disk.
The JSON may have other text around it; what fio prints for people (`normal,json+`) is of the same I/Os.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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

_OPS = {"read": "read", "write": "write", "trim": "discard", "sync": "flush", "mixed": "other"}
_MAX_NS = 2**62
_BIN_BITS = 6
_KINDS = ("lat_ns", "clat_ns")
_KEY = "fio version"
_FOR_PEOPLE = re.compile(
    r"\s+(?:\|.{0,40}th=\[|[sc]?lat percentiles \(|[sc]?lat \([num]sec\)|bw \(|iops  |cpu  |IO depths|submit  "
    r"|complete  |issued rwts|latency  |(?:READ|WRITE|TRIM|MIXED): |(?:read|write|trim|mixed): IOPS=)"
    r"|\S.{0,80}: \(groupid=|Run status group|Disk stats|  \w+: ios=|fio-\d|Starting \d+ |Jobs: \d"
    r"|\S{1,80}: \(g=\d+\): rw="
)
"""Lines of the output for people."""


def sniff(head: str) -> bool:
    """Return whether its first key is there."""
    return f'"{_KEY}"' in head


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all jobs of an output as one window: fio's numbers are of its whole run."""
    taken, runs = 0, 0
    for where, value in documents(lines, _KEY):
        taken = where.last
        yield Passed(where)
        if isinstance(value, str):
            yield Remark(where, f"fio: {value}", 1, is_incomplete=True)
            continue
        if runs:
            yield TimeLine(TextSpan(where.first, where.first), f"line {where.first}: another output of fio begins")
        runs += 1
        yield from _output(where, value, options)
    if taken:
        yield from (Passed(TextSpan(at, at)) for at, line in enumerate(lines, 1) if _FOR_PEOPLE.match(line))


def _output(where: TextSpan, value: Mapping[str, Any], options: ImportOptions) -> Iterator[Found]:
    jobs = value.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise RecordingError("it is no JSON of fio: it has no list of jobs")
    histograms: dict[Series, list[Histogram]] = {}
    seen: dict[Flow, Completed] = {}
    means: dict[Flow, Completed] = {}
    runtime_ms = 0
    for flow, side in _sides(jobs, options):
        runtime_ms = max(runtime_ms, whole(side.get("runtime")) or 0)
        kind, reported = _latency(side)
        total, size = (whole(side.get(key)) or 0 for key in ("total_ios", "io_bytes"))
        name = f"{flow.device} {flow.op}"
        number = whole(side[kind].get("N")) if kind else None
        if reported is not None and number not in (None, reported.count):
            text = f"{name}: the bins have {reported.count:,} I/Os of {number or 0:,}: they are left out"
            yield Remark(where, text, 1, is_incomplete=True)
        elif reported is not None:
            if kind == "clat_ns":
                yield Remark(where, f"{name}: clat, without the submission (slat)")
            histograms.setdefault(options.series(*flow), []).append(reported)
            add(seen, flow, Completed(total or reported.count, size))
        elif total:
            yield Remark(where, f"{name}: {total:,} I/Os without bins; run fio with json+{_most(side)}")
            add(means, flow, Completed(total, size, _sum_us(side, total)))
    means = _without_bins(means, seen)
    wall_ms = whole(value.get("timestamp_ms"), 253_402_300_799_000)
    when = TextSpan(where.first, where.last, None if wall_ms is None else wall_ms / 1e3, 1000 * runtime_ms or None)
    if means:
        yield Counts(when, means, {})
    if histograms:
        yield Times(when, {series: merge(some) for series, some in histograms.items()}, (), seen)
    if not means and not histograms:
        yield Remark(where, "this output of fio has no I/Os", 1, is_incomplete=True)


def _without_bins(means: Mapping[Flow, Completed], seen: dict[Flow, Completed]) -> dict[Flow, Completed]:
    """Return the I/Os of flows without a distribution; those of other flows are added to `seen`."""
    for flow in seen.keys() & means.keys():
        add(seen, flow, means[flow])
    return {flow: done for flow, done in means.items() if flow not in seen}


def _sides(jobs: Iterable[Mapping[str, Any]], options: ImportOptions) -> Iterator[tuple[Flow, Mapping[str, Any]]]:
    """Yield the directions of all jobs."""
    names = ShortNames()
    for job in jobs:
        device = names.short(str(job.get("jobname", "job")))
        for name, op in _OPS.items():
            if isinstance(side := job.get(name), dict):
                yield options.flow(device, op), side


def _sum_us(side: Mapping[str, Any], total: int) -> int | None:
    """Return the sum of the times by their exact mean; None where fio reports it for another number of I/Os."""
    for kind in _KINDS:
        reported = side.get(kind)
        mean = real(reported.get("mean")) if isinstance(reported, dict) else None
        if isinstance(reported, dict) and mean and whole(reported.get("N")) in (None, total):
            return round(min(mean, _MAX_NS) * total / 1000)
    return None


def _most(side: Mapping[str, Any]) -> str:
    """Return the exact maximum in words; empty if there is none."""
    for kind in _KINDS:
        reported = side.get(kind)
        most = whole(reported.get("max"), _MAX_NS) if isinstance(reported, dict) else None
        if most:
            return f"; the longest took {most // 1000:,} us"
    return ""


def _latency(side: Mapping[str, Any]) -> tuple[str, Histogram | None]:
    for kind in _KINDS:
        reported = side.get(kind)
        if isinstance(reported, dict) and isinstance(reported.get("bins"), dict) and reported["bins"]:
            return kind, _histogram(reported)
    return "", None


def _histogram(reported: Mapping[str, Any]) -> Histogram | None:
    counts: dict[int, int] = {}
    mean, most = real(reported.get("mean")), whole(reported.get("max"), _MAX_NS)
    highest = max((whole(name, _MAX_NS) or 0 for name in reported["bins"]), default=0)
    for name, value in reported["bins"].items():
        ns, count = whole(name, _MAX_NS), whole(value)
        if ns is None or count is None:
            raise RecordingError("a bin of this output of fio is no pair of numbers")
        last = _last(ns)
        if most is not None and 2 * ns - last <= most + 1 and (ns == highest or most < last):
            last = most  # the highest bin contains the maximum, and fio's very last one has no end
        index = bucket_index(last // 1000)
        counts[index] = counts.get(index, 0) + count
    number = sum(counts.values())
    if not number:
        return None
    total = None if mean is None or whole(reported.get("N")) != number else round(min(mean, _MAX_NS) * number / 1000)
    return Histogram.of(counts, total, None if most is None else most // 1000)


def _last(ns: int) -> int:
    """Return the last value of the bin around `ns`: below 128 ns bins have one value, above 64 are an octave."""
    shift = ns.bit_length() - 1 - _BIN_BITS
    return ns + (1 << (shift - 1)) - 1 if shift > 0 else ns
