"""Importers of fio's logs and of what it prints for people, where a text has no JSON.

--write_lat_log: `ms, value, direction, size, offset` of each I/O (4 numbers and us before fio 2.99, else ns). With
--log_avg_msec the size is 0 and the value a mean of I/Os whose number is not printed. Logs of bandwidth and of IOPS
have the same columns: the file's name tells them apart (doc/fio_doc.rst, "Log File Formats").

--write_hist_log: `ms, direction, size, counts of bins`, the I/Os since the line before of the direction; bins are those
of json+, with log_hist_coarseness several of them are one (stat.c, flush_hist_samples of iolog.c).

The text for people has the number of I/Os (`issued rwts: total=`, `issued : total=r=`), their exact mean and maximum;
its percentiles and shares are rounded and are left out. With --status-interval it counts from the begin of a run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from latmon.importers import values
from latmon.importers.fio import bin_by_index
from latmon.importers.values import (
    Counts,
    Found,
    ImportOptions,
    Passed,
    Remark,
    Seconds,
    ShortNames,
    TextSpan,
    Times,
)
from latmon.model.frame import Completed, Flow, Outlier
from latmon.model.histogram import Histogram, bucket_index
from latmon.support.errors import RecordingError

DIRECTIONS = ("read", "write", "discard", "flush")
LAT_LINE = re.compile(r"(\d{1,12}), (\d{1,18}), ([0-3]), (\d{1,12})((?:, (?:0x)?[\da-f]{1,18}){0,4})")
NO_LATENCY = re.compile(r"_(slat|bw|iops)(?:\.\d+)?\.log\Z")
WHY = {"slat": "times of submissions (slat)", "bw": "bandwidths", "iops": "numbers of I/Os per second"}
BINS, BIN_BITS = 1856, 6
HIST_LINE = re.compile(r"(\d{1,12}), ([0-3]), (\d{1,12})((?:, \d{1,15}){29,1856})")
LONGEST_HIST = 40_000
FEWEST_CELLS = 4
DEVICE = "fio"


def check_name(name: str) -> None:
    """Raise RecordingError if a file's name is that of a log without latencies."""
    kind = NO_LATENCY.search(name)
    if kind is not None:
        raise RecordingError(f"{name} has {WHY[kind[1]]}, no latencies: import the log of --write_lat_log, *_lat.*.log")


def _damaged_row(at: int, line: str) -> Iterator[Remark]:
    """Yield a remark on a line that can't be read, if it is a row of a log."""
    cells = line.split(",", FEWEST_CELLS)
    digits = sum(any(letter.isdigit() for letter in cell) for cell in cells[:FEWEST_CELLS])
    if len(cells) >= FEWEST_CELLS and digits >= FEWEST_CELLS - 1 and "=" not in line[: values.LONGEST_LINE]:
        text = "a row of fio's log can't be read: it is left out"
        yield Remark(TextSpan(at, at), text, 1, is_incomplete=True)


def sniff_lat(head: str) -> bool:
    """Return whether two adjacent lines are of a latency log, or of another one in its form."""
    return any(
        LAT_LINE.fullmatch(line) is not None and LAT_LINE.fullmatch(below) is not None
        for line, below in pairwise(head.split("\n"))
        if ", " in line
    )


def read_lat(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the I/Os of each second; RecordingError for means."""
    check_name(options.name)
    seconds = Seconds(options.threshold_us)
    first = last = averaged = 0
    for at, line in enumerate(lines, 1):
        row = LAT_LINE.fullmatch(line)
        if row is None:
            yield from _damaged_row(at, line)
            continue
        first, last = first or at, at
        if row[4] == "0":
            averaged = averaged or at
            continue
        unit = options.unit or ("ns" if row[5] else "us")
        us = int(row[2]) * values.UNITS[unit] // 1000
        end_ms = int(row[1])
        flow = options.flow(DEVICE, DIRECTIONS[int(row[3])])
        began = max(0.0, end_ms / 1000 - us / 1e6)
        outlier = Outlier(began, 0, flow.device, flow.op, us, unaccounted_us=us, bytes=int(row[4]))
        yield from seconds.add(end_ms // 1000, at, at, outlier)
    yield from seconds.end()
    if first:
        yield Passed(TextSpan(first, last))
    if averaged:
        text = "a mean of a time, of I/Os whose number the log doesn't have: run fio without --log_avg_msec"
        yield Remark(TextSpan(averaged, averaged), text, 1, is_incomplete=True)
    elif first:
        yield Remark(TextSpan(first, first), "taken for the times of whole I/Os (lat, or clat without the submission)")


def sniff_hist(head: str) -> bool:
    """Return whether there is a line of a histogram log."""
    return any(HIST_LINE.fullmatch(line, 0, LONGEST_HIST) is not None for line in head.split("\n") if ", 0, 0" in line)


def read_hist(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each line as a distribution."""
    before: dict[str, int] = {}
    for at, line in enumerate(lines, 1):
        row = HIST_LINE.fullmatch(line, 0, LONGEST_HIST)
        counts = [] if row is None else [int(cell) for cell in row[4].split(",")[1:]]
        width, odd = divmod(BINS, len(counts)) if counts else (0, 1)
        if row is None or odd:
            yield from _damaged_row(at, line)
            continue
        flow = options.flow(DEVICE, DIRECTIONS[int(row[2])])
        passed_ms = int(row[1]) - before.get(flow.op, 0)
        before[flow.op] = int(row[1])
        buckets: dict[int, int] = {}
        for place, count in enumerate(counts):
            if count:
                last_ns = bin_by_index((place + 1) * width - 1, BIN_BITS, 1).last
                index = bucket_index(last_ns // 1000)
                buckets[index] = buckets.get(index, 0) + count
        where = TextSpan(at, at, int(row[1]) / 1000, max(1, passed_ms * 1000))
        number = sum(counts)
        done = {flow: Completed(number, number * int(row[3]))}
        yield Times(where, {options.series(*flow): Histogram.of(buckets)}, (), done)


JOB = re.compile(r"(\S.{0,80}): \(groupid=(\d{1,6}), jobs=\d{1,6}\): err= ?\d+.*?: pid=(\d{1,10})(?:: (.{20,40}))?")
WAY = re.compile(
    r"\s*(read|write|trim) ?: (?:IOPS=\S{1,20}, BW=.{1,60}?"
    r"\((?P<size>[\d.]{1,15})(?P<unit>(?:[KMGT]i?)?B)/(?P<ms>\d{1,12})msec\)"
    r"|io=(?P<old_size>[\d.]{1,15})(?P<old_unit>[KMGT]?B), .{0,80}runt= *(?P<old_ms>\d{1,12})msec).*"
)
OPS = {"read": "read", "write": "write", "trim": "discard"}
MEAN = re.compile(r"\s*(lat|clat) \(([num]sec)\) ?: min= *[\d.]+[kKMG]?, max= *([\d.]+)([kKMG]?), avg= *([\d.]+).*")
ISSUED = re.compile(r"\s*issued(?: rwts| rwt|) *: total=(?:r=)?(\d{1,15})[,/](?:w=)?(\d{1,15})[,/](?:d=)?(\d{1,15}).*")
US = {"nsec": 1e-3, "usec": 1.0, "msec": 1e3}
OTHER = re.compile(
    r"\s+(?:\|.{0,40}th=\[|[sc]?lat percentiles \(|[sc]?lat \([num]sec\)|bw |iops  |cpu  |IO depths|submit  |complete  "
    r"|latency  |(?:READ|WRITE|TRIM|MIXED): )|Run status group|Disk stats|  \w+: ios=|fio-\d|Starting \d+ |Jobs: \d"
    r"|\S.{0,80}: \(g=\d+\): rw=|\S.{0,80}: Laying out IO file"
)
"""Other lines of the text for people."""


def sniff_text(head: str) -> bool:
    """Return whether there is a job, and no JSON that has the same I/Os."""
    return '"fio version"' not in head and any(JOB.fullmatch(line) for line in head.split("\n") if "groupid=" in line)


@dataclass(slots=True)
class _Job:
    """Job as it is printed: sums since its run began."""

    where: TextSpan
    name: str
    key: tuple[str, ...]
    ms: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    means_us: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    most: dict[str, str] = field(default_factory=dict)
    issued: dict[str, int] = field(default_factory=dict)


def read_text(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the I/Os of each job with their mean times."""
    jobs: list[_Job] = []
    op = ""
    for at, line in enumerate(lines, 1):
        head, way = JOB.fullmatch(line), WAY.fullmatch(line)
        mean, issued = MEAN.fullmatch(line), ISSUED.fullmatch(line)
        if head is not None:
            wall = values.moment(head[4]) if head[4] else None
            jobs.append(_Job(TextSpan(at, at, wall), head[1], (head[1], head[2], head[3])))
            op = ""
        elif way is not None and jobs:
            op, job = OPS[way[1]], jobs[-1]
            unit = values.bytes_of(way["unit"] or way["old_unit"])
            job.sizes[op] = round(float(way["size"] or way["old_size"]) * unit)
            job.ms = max(job.ms, int(way["ms"] or way["old_ms"]))
        elif mean is not None and op and mean[1] != jobs[-1].kinds.get(op):
            job = jobs[-1]
            job.kinds[op], job.means_us[op] = mean[1], float(mean[5]) * US[mean[2]]
            job.most[op] = f"{mean[3]}{mean[4]} {mean[2]}"
        elif issued is not None and jobs:
            jobs[-1].issued = dict(zip(OPS.values(), map(int, issued.groups()), strict=True))
            jobs[-1].where = replace(jobs[-1].where, last=at)
        elif "(groupid=" in line:
            jobs, op = [*jobs, _Job(TextSpan(at, at), "", ("", "", ""))], ""
            yield Remark(TextSpan(at, at), "the line of a job can't be read: it is left out", 1, is_incomplete=True)
        elif not OTHER.match(line):
            continue
        yield Passed(TextSpan(at, at))
    names = ShortNames()
    before: dict[tuple[str, ...], dict[str, Completed]] = defaultdict(dict)
    last_ms: dict[tuple[str, ...], int] = {}
    for job in jobs:
        if not job.name:
            continue
        yield from _job(job, before[job.key], last_ms.get(job.key, 0), names.short(job.name), options)
        last_ms[job.key] = job.ms


def _job(job: _Job, before: dict[str, Completed], before_ms: int, name: str, options: ImportOptions) -> Iterator[Found]:
    """Yield the I/Os of a job since it was printed before, and remarks; the sums are kept in `before`."""
    if not job.issued:
        yield Remark(
            job.where, f"{name}: no line `issued rwts`, so the number of I/Os is not known", 1, is_incomplete=True
        )
        return
    kernel: dict[Flow, Completed] = {}
    for op, count in job.issued.items():
        if not count:
            continue
        mean_us = job.means_us.get(op)
        done = Completed(count, job.sizes.get(op, 0), None if mean_us is None else round(mean_us * count))
        old = before.get(op)
        is_continued = old is not None and old.count <= count and job.ms > before_ms
        before[op] = done
        kernel[options.flow(name, op)] = _difference(done, old) if old is not None and is_continued else done
        kind = "clat, without the submission; " if job.kinds.get(op) == "clat" else ""
        most = f"; the longest took {job.most[op]}" if op in job.most else ""
        text = f"{name} {op}: {kind}{count:,} I/Os without a distribution (run fio with --output-format=json+){most}"
        yield Remark(job.where, text)
    passed_ms = job.ms - before_ms if job.ms > before_ms else job.ms
    yield Counts(replace(job.where, dt_us=passed_ms * 1000 or None), kernel, {})


def _difference(done: Completed, old: Completed) -> Completed:
    us = None if done.time_us is None or old.time_us is None else max(0, done.time_us - old.time_us)
    return Completed(done.count - old.count, max(0, done.bytes - old.bytes), us)
