"""Importers of sysbench --histogram and of pg_test_fsync.

A row of sysbench is named by the geometric middle of its bucket in ms, with three digits behind the point: buckets are
1.8 % wide (1,024 from 0.001 ms to 100 s; src/sb_histogram.c, sb_histogram_update rounds to the nearest). A row is put
between the edges of all buckets that print its name; rows of one name are added.

pg_test_fsync prints operations per second of each method, and their inverse, which is the mean time of a write with its
sync (src/bin/pg_test_fsync/pg_test_fsync.c). Each method ran for the time in the first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import exp, log

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.values import Counts, Found, ImportedTable, ImportOptions, Passed, Remark, TextSpan
from latmon.model.frame import Completed, Flow
from latmon.support.text import clean

SYSBENCH_BEGIN = "Latency histogram (values are in milliseconds)"
SYSBENCH_HEAD = re.compile(r"\s*value\s+-+ distribution -+ count\s*")
SYSBENCH_ROW = re.compile(r"\s*(\d{1,9}\.\d{3}) \|\**\s+(\d{1,18})\s*")
SYSBENCH_EVENTS = re.compile(r"\s*total number of events:\s+(\d{1,18})\s*")
SYSBENCH_TIME = re.compile(r"\s*total time:\s+(\d{1,9}\.\d{1,6})s\s*")
SYSBENCH_MAX = re.compile(r"\s*max:\s+(\d{1,12}\.\d\d)\s*")
SYSBENCH_TEST = re.compile(r"(?:Doing|Running) (.{1,60}?) test\b|(OLTP|SQL statistics)")
HALF_BUCKET = exp((log(100_000) - log(0.001)) / 1023 / 2)
HALF_DIGIT = 0.0005
NS_PER_MS = 1_000_000
BELOW = 40
"""Lines below a histogram in which its totals are."""


def sniff_sysbench(head: str) -> bool:
    """Return whether there is a histogram of sysbench."""
    return SYSBENCH_BEGIN in head


def read_sysbench(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each histogram as a table."""
    for at, line in enumerate(lines, 1):
        if line.strip() == SYSBENCH_BEGIN:
            yield _sysbench_table(lines, at, options)


def _sysbench_table(lines: Sequence[str], begin: int, options: ImportOptions) -> ImportedTable | Remark:
    counts: dict[float, int] = {}
    last, torn = begin, 0
    for at in range(begin + 1, len(lines) + 1):
        row = SYSBENCH_ROW.fullmatch(lines[at - 1])
        if row is not None:
            middle = float(row[1])
            torn = torn or (at if counts and middle < max(counts) else 0)
            counts[middle] = counts.get(middle, 0) + int(row[2])
        elif SYSBENCH_HEAD.fullmatch(lines[at - 1]) is None:
            if "|" not in lines[at - 1]:
                break
            torn = torn or at
        last = at
    totals = _totals(lines, last)
    seconds = totals.get("time")
    where = TextSpan(begin, last, dt_us=round(seconds * 1e6) if seconds else None)
    counted, events = sum(counts.values()), totals.get("events")
    if torn or not counts or events not in (None, counted):
        text = f"the histogram of sysbench is damaged in line {torn or begin}"
        if events not in (None, counted):
            text = f"the histogram of sysbench has {counted:,} of {round(events or 0):,} events"
        return Remark(where, f"{text}: all of it is left out", 1, is_incomplete=True)
    rows = tuple(Row(*_edges_ns(middle), count) for middle, count in counts.items())
    device = options.device or "sysbench"
    series = options.series(device, values.UNKNOWN_OP)
    return ImportedTable(where, "sysbench", "sysbench", rows, "ns", "the head", series, layer=values.APPLICATION)


def _edges_ns(middle_ms: float) -> tuple[int, int]:
    low = max(0.0, middle_ms - HALF_DIGIT) / HALF_BUCKET
    return round(low * NS_PER_MS), max(1, round((middle_ms + HALF_DIGIT) * HALF_BUCKET * NS_PER_MS))


def _totals(lines: Sequence[str], last: int) -> dict[str, float]:
    """Return the number of events and the length in s that are printed below a histogram."""
    totals: dict[str, float] = {}
    for line in lines[last : last + BELOW]:
        if line.strip() == SYSBENCH_BEGIN:
            break
        for name, pattern in (("events", SYSBENCH_EVENTS), ("time", SYSBENCH_TIME)):
            if (match := pattern.fullmatch(line)) is not None:
                totals.setdefault(name, float(match[1]))
    return totals


PG_LENGTH = re.compile(r"(\d{1,5}) seconds? per test")
PG_GROUP = re.compile(
    r"(?:Compare (.{1,60}?)(?: using (.{1,60}?))?|(Test if fsync .{1,80})|(Non-sync'ed .{1,40})):?\s*"
)
PG_ROW = re.compile(r"\s*(\S.{0,40}?)\s+(\d{1,12}[.,]\d{3}) ops/sec\s+(\d{1,12}) usecs/op\s*")
PG_MISSING = re.compile(r"\s*\S.{0,40}?\s+n/a\*{0,2}\s*")
UNCERTAIN_US = 50
"""A mean in whole us below this one is worse than 1 %: the inverse of the rate is taken for each."""


def sniff_pg(head: str) -> bool:
    """Return whether there is a row of pg_test_fsync."""
    return any("usecs/op" in line and PG_ROW.fullmatch(line) for line in head.split("\n"))


def read_pg(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the operations of each method, as a window of its own."""
    seconds: int | None = None
    group = ""
    for at, line in enumerate(lines, 1):
        where = TextSpan(at, at)
        length, head, row = PG_LENGTH.fullmatch(line.strip()), PG_GROUP.fullmatch(line), PG_ROW.fullmatch(line)
        if length is not None:
            seconds = int(length[1]) or None
        elif head is not None:
            group = next((part for part in (head[2], *head.groups()) if part), "").rstrip(":")
        elif row is not None:
            rate = float(row[2].replace(",", "."))
            dt_us = (seconds or round(options.interval_us / 1e6) or 1) * 1_000_000
            count = round(rate * dt_us / 1e6)
            flow = Flow(options.device or clean(f"{row[1]}, {group}" if group else row[1], 64), options.op or "flush")
            done = Completed(count, 0, round(count * 1e6 / rate) if rate else None)
            yield Counts(TextSpan(at, at, dt_us=dt_us if seconds else None), {flow: done}, {})
            continue
        elif "usecs/op" in line:
            yield Remark(where, "a row of pg_test_fsync can't be read: it is left out", 1, is_incomplete=True)
        elif not PG_MISSING.fullmatch(line):
            continue
        yield Passed(where)
