"""emlxsoverhead.d's seven columns: where one I/O through the Emulex driver of Solaris spent its time.

TOTAL - EMLXS is the device and the SAN. EMLXS = I/O START + from the interrupt's begin to the end of I/O DONE, so the
stages add up but for what was cut below 1 us each. Its I/O INTR begins at the MSI handler, with packets before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from latmon.histogram import Histogram
from latmon.imports import times
from latmon.imports.found import Asked, Found, Moment, Passed, Times, Where
from latmon.imports.naming import UNKNOWN_OP
from latmon.model import Completed, Flow, Outlier, Series

_HEAD = re.compile(r"\s*TIMESTAMP\s+TOTAL\(us\)\s+EMLXS\(us\)")
_ROW = re.compile(r"\s*(\d{4} [A-Z][a-z]{2} [ \d]?\d \d{2}:\d{2}:\d{2})" + r"\s+(\d{1,15})" * 6 + r"\s*")
_DEVICE = "emlxs"


def sniff(head: str) -> bool:
    """By its head, or by rows that have lost it."""
    return any(_HEAD.match(line) or _ROW.fullmatch(line) for line in head.split("\n"))


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """A row is an I/O, rows of one second are a window; another run begins with a head of its own."""
    rows: list[tuple[int, Outlier]] = []
    for at, line in enumerate(lines, 1):
        if _HEAD.match(line):
            yield from _windows(rows, asked)
            yield (
                Moment(Where(at, at), f"line {at}: another run of emlxsoverhead begins")
                if rows
                else Passed(Where(at, at))
            )
            rows = []
        elif (row := _ROW.fullmatch(line)) and (one := _outlier(row, asked)):
            rows.append((at, one))
    yield from _windows(rows, asked)


def _windows(rows: list[tuple[int, Outlier]], asked: Asked) -> Iterator[Times]:
    for wall, same in groupby(rows, key=lambda pair: pair[1].wall):
        group = list(same)
        for first, last in _stretches([at for at, _ in group]):
            yield _second(Where(first, last, wall), [one for at, one in group if first <= at <= last], asked)


def _stretches(lines: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring lines together."""
    first = last = lines[0]
    for at in lines[1:]:
        if at != last + 1:
            yield first, last
            first = at
        last = at
    yield first, last


def _outlier(row: re.Match[str], asked: Asked) -> Outlier | None:
    """None for a row whose stages are more than their total."""
    wall = times.moment(row[1])
    total, emlxs, start, intr, queue, done = (int(one) for one in row.groups()[1:])
    stages = {"queue": start, "hba": total - emlxs, "irq": intr, "completion": queue + done}
    rest = total - sum(stages.values())
    if wall is None or rest < 0 or emlxs > total:
        return None
    return Outlier(
        wall=wall,
        mono_us=0,
        device=asked.device or _DEVICE,
        op=asked.op or UNKNOWN_OP,
        total_us=total,
        stages_us=stages,
        unaccounted_us=rest,
        path=f"completion: QUEUE {queue} us, I/O DONE {done} us",
    )


def _second(where: Where, group: list[Outlier], asked: Asked) -> Times:
    flow = Flow(asked.device or _DEVICE, asked.op or UNKNOWN_OP)
    histograms = {Series(*flow, "total"): Histogram.record(one.total_us for one in group)}
    for stage in group[0].stages_us:
        histograms[Series(*flow, stage)] = Histogram.record(one.stages_us[stage] for one in group)
    total = sum(one.total_us for one in group)
    return Times(where, histograms, tuple(group), {flow: Completed(len(group), 0, total)})
