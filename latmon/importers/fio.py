"""Importer of fio --output-format=json+: latency bins of each job and direction.

A bin is named by its middle and 1.6 % wide, finer than ours, and goes where its last value does. `lat` includes the
submission, which `clat` doesn't, and is taken where it has bins. Jobs of one name are one device: fio names no disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latmon.importers.bpftrace import document, real, whole
from latmon.importers.values import Found, ImportOptions, Passed, Remark, TextSpan, Times
from latmon.model.frame import Completed, Flow, Series
from latmon.model.histogram import Histogram, bucket_index, merge
from latmon.support.errors import RecordingError
from latmon.support.text import clean

_OPS = {"read": "read", "write": "write", "trim": "discard", "sync": "flush"}
_MAX_NS = 2**62
_BIN_BITS = 6


def sniff(head: str) -> bool:
    """Return whether its first key is there."""
    return '"fio version"' in head


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all jobs as one window: fio's numbers are of its whole run."""
    first, value = document(lines)
    where = TextSpan(first, len(lines))
    yield Passed(where)
    jobs = value.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise RecordingError("it is no JSON of fio: it has no list of jobs")
    histograms: dict[Series, list[Histogram]] = {}
    seen: dict[Flow, Completed] = {}
    runtime_ms = 0
    for job in jobs:
        device = options.device or clean(str(job.get("jobname", "job")))
        for name, op in _OPS.items():
            side = job.get(name)
            if not isinstance(side, dict):
                continue
            runtime_ms = max(runtime_ms, whole(side.get("runtime")) or 0)
            kind, reported = _latency(side)
            total = whole(side.get("total_ios")) or 0
            if reported is None:
                if total:
                    text = f"{device} {op}: {total:,} I/Os without bins; run fio with json+"
                    yield Remark(where, text, 1, is_incomplete=True)
                continue
            flow = Flow(device, options.op or op)
            if kind == "clat_ns":
                yield Remark(where, f"{device} {op}: clat, without the submission (slat)")
            histograms.setdefault(Series(*flow, options.stage or "total"), []).append(reported)
            done = Completed(total or reported.count, whole(side.get("io_bytes")) or 0)
            seen[flow] = seen[flow] + done if flow in seen else done
    wall_ms = whole(value.get("timestamp_ms"), 253_402_300_799_000)
    if not histograms:
        raise RecordingError("this output of fio has no latency bins: use --output-format=json+")
    yield Times(
        TextSpan(first, len(lines), None if wall_ms is None else wall_ms / 1e3, 1000 * runtime_ms or None),
        {series: merge(some) for series, some in histograms.items()},
        (),
        seen,
    )


def _latency(side: Mapping[str, Any]) -> tuple[str, Histogram | None]:
    for kind in ("lat_ns", "clat_ns"):
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
