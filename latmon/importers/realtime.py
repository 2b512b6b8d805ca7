"""Importers of cyclictest -h and of rtla timerlat hist: how late threads of a timer ran.

cyclictest has a column per thread, a row per us, and behind them the number of wake-ups that took as many us as it has
rows, or more ("Histogram Overflows", rt-tests' cyclictest.c). rtla has columns per CPU: IRQ is from the timer's expiry
to its handler (stage irq), Thr to the thread (stage resume), Usr to the return to user space. Its `over:` has what is
beyond its last row, and rows without a count are left out unless --with-zeros (tools/tracing/rtla/src/timerlat_hist.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from math import gcd

from latmon.decode.dtrace_aggregation import Row
from latmon.importers.values import Found, ImportedTable, ImportOptions, Passed, Remark, TextSpan

CYCLIC_HEAD = "# Histogram"
CYCLIC_ROW = re.compile(r"(\d{6,9})((?:\s+\d{6,12})+)\s*")
CYCLIC_FACT = re.compile(r"# (Histogram Overflows|Max Latencies|Min Latencies|Avg Latencies|Total): ([\d ]+)")
CYCLIC_OTHER = re.compile(r"# (?:Histogram Overflow at cycle number:|Thread \d+: .*|/dev/cpu_dma_latency .*)")
OVERFLOWS, MOST = "Histogram Overflows", "Max Latencies"
RTLA_HEAD = "# RTLA timerlat histogram"
RTLA_UNIT = re.compile(r"# Time unit is \w+ \((us|ns)\)")
RTLA_DURATION = re.compile(r"# Duration:\s+(\d{1,5}) (\d\d):(\d\d):(\d\d)")
RTLA_COLUMNS = re.compile(r"Index(?:\s+(?:IRQ|Thr|Usr)-\d{3,5})+\s*")
RTLA_ROW = re.compile(r"(\d{1,12}|over:|count:|min:|avg:|max:)((?:\s+(?:\d{1,18}|-))+)\s*")
ROUGH_ROW = re.compile(r"\d{1,12}\S*\s+\S+")
STAGES = {"IRQ": "irq", "Thr": "resume", "Usr": "resume"}


def sniff_cyclictest(head: str) -> bool:
    """Return whether there is the head of a histogram of cyclictest."""
    return f"{CYCLIC_HEAD}\n" in f"{head}\n"


def read_cyclictest(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a table for each thread of each histogram."""
    rows: list[tuple[int, list[int]]] = []
    facts: dict[str, list[int]] = {}
    first = last = damaged = 0
    for at, line in enumerate([*lines, CYCLIC_HEAD], 1):
        row, fact = CYCLIC_ROW.fullmatch(line), CYCLIC_FACT.match(line)
        if line == CYCLIC_HEAD:
            if first:
                yield from _cyclic_tables(TextSpan(first, last), rows, facts, damaged, options)
            first, last, damaged, rows, facts = at, at, 0, [], {}
        elif not first:
            continue
        elif row is not None:
            rows.append((int(row[1]), [int(count) for count in row[2].split()]))
            last = at
        elif fact is not None:
            facts[fact[1]] = [int(number) for number in fact[2].split()]
            last = at
        elif CYCLIC_OTHER.match(line):
            last = at
        elif line.strip() and not facts and ROUGH_ROW.match(line):
            damaged, last = damaged or at, at


def _cyclic_tables(
    where: TextSpan,
    rows: Sequence[tuple[int, list[int]]],
    facts: dict[str, list[int]],
    damaged: int,
    options: ImportOptions,
) -> Iterator[Found]:
    threads = len(rows[0][1]) if rows else 0
    is_whole = all(low == at and len(counts) == threads for at, (low, counts) in enumerate(rows))
    overflows = facts.get(OVERFLOWS, [0] * threads)
    most = facts.get(MOST, [])
    totals = facts.get("Total", [])
    sums = [sum(counts[thread] for _, counts in rows) for thread in range(threads)] if is_whole else []
    if damaged or not rows or not is_whole or len(overflows) < threads or (totals and totals[:threads] != sums):
        text = f"a histogram of cyclictest is damaged in line {damaged or where.first}: all of it is left out"
        yield Remark(where, text, 1, is_incomplete=True)
        return
    for thread in range(threads):
        counted = [Row(low, low + 1, counts[thread]) for low, counts in rows]
        counted.append(Row(len(rows), None, overflows[thread]))
        series = options.series(f"timer thread {thread}", "other", "resume")
        max_us = most[thread] if thread < len(most) and (overflows[thread] or most[thread] < len(rows)) else None
        title = f"thread {thread}"
        yield ImportedTable(where, title, "cyclictest", tuple(counted), "us", "cyclictest", series, max_us=max_us)


def sniff_rtla(head: str) -> bool:
    """Return whether there is the head of rtla timerlat hist."""
    return any(line.startswith(RTLA_HEAD) for line in head.split("\n"))


def read_rtla(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a table for each column of each histogram."""
    heads = [at for at, line in enumerate(lines, 1) if line.startswith(RTLA_HEAD)]
    for head, following in pairwise((*heads, len(lines) + 1)):
        yield from _rtla_tables(lines, head, following, options)


@dataclass(slots=True)
class _RtlaHistogram:
    """Histogram of rtla as it is printed."""

    unit: str = "us"
    dt_us: int | None = None
    columns: list[str] = field(default_factory=list)
    printed: dict[str, list[str]] = field(default_factory=dict)
    """First cell of a row -> its other cells."""
    is_of_all_cpus: bool = False
    """Its own rows are over: what follows is of all CPUs together."""
    is_damaged: bool = False

    def take_line(self, line: str) -> bool:
        """Take a line; return whether it is one of the histogram."""
        row, duration, unit = RTLA_ROW.fullmatch(line), RTLA_DURATION.match(line), RTLA_UNIT.match(line)
        if self.is_of_all_cpus:
            return row is not None
        if unit is not None:
            self.unit = unit[1]
        elif duration is not None:
            days, hours, minutes, seconds = (int(part) for part in duration.groups())
            self.dt_us = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 or None
        elif RTLA_COLUMNS.fullmatch(line):
            self.columns = line.split()[1:]
        elif row is not None and self.columns:
            self.printed[row[1]] = row[2].split()
        elif line.startswith("ALL:"):
            self.is_of_all_cpus = True
        elif self.columns and len(line.split()) > len(self.columns) and "max:" not in self.printed:
            self.is_damaged = True
        else:
            return not line.strip()
        return True

    def cell(self, row: str, place: int) -> int | None:
        """Return the number in a row and a column; None without one."""
        text = self.printed[row][place] if row in self.printed else ""
        return int(text) if text.isdecimal() else None

    @property
    def indices(self) -> list[int]:
        """Return the first values of its rows."""
        return sorted(int(name) for name in self.printed if name.isdecimal())

    @property
    def is_whole(self) -> bool:
        widths = {len(cells) for cells in self.printed.values()}
        return not self.is_damaged and widths == {len(self.columns)} and bool(self.indices)


def _rtla_tables(lines: Sequence[str], head: int, following: int, options: ImportOptions) -> Iterator[Found]:
    histogram = _RtlaHistogram()
    last = head
    for at in range(head + 1, following):
        if not histogram.take_line(lines[at - 1]):
            break
        last = at
    where = TextSpan(head, last, dt_us=histogram.dt_us)
    yield Passed(TextSpan(head, last))
    if not histogram.is_whole:
        yield Remark(where, "a histogram of rtla is damaged: all of it is left out", 1, is_incomplete=True)
        return
    for place, column in enumerate(histogram.columns):
        yield _rtla_table(histogram, place, column, where, options)


def _rtla_table(
    histogram: _RtlaHistogram, place: int, column: str, where: TextSpan, options: ImportOptions
) -> ImportedTable | Remark:
    indices = histogram.indices
    step = reduce(gcd, indices) or 1  # of --bucket-size, which the text doesn't name
    rows = [Row(index, index + step, histogram.cell(str(index), place) or 0) for index in indices]
    counted, over = sum(row.count for row in rows), histogram.cell("over:", place) or 0
    total = histogram.cell("count:", place)
    if total not in (None, counted, counted + over):
        text = f"{column}: its rows have {counted:,} of {total:,}: they are left out"
        return Remark(where, text, 1, is_incomplete=True)
    rows.append(Row(indices[-1] + step, None, over))
    kind, _, cpu = column.partition("-")
    series = options.series(f"timer CPU {int(cpu)}{' user' if kind == 'Usr' else ''}", "other", STAGES[kind])
    max_us = histogram.cell("max:", place) if over and histogram.unit == "us" else None
    unit = histogram.unit
    return ImportedTable(where, column, "rtla", tuple(rows), unit, "the head", series, max_us=max_us)
