"""The issue-order panel: issues in order across, LBA up, overtaken I/Os marked. Pure.

`order` draws it with its verdict and the requests that most passed; what the order says is analysis/issue_order.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latmon.analysis.issue_order import lba_order, overtaken, summary
from latmon.model.inflight import Issue
from latmon.support.units import duration, spelled, whole
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, cell, cut, fit, runs, wrap
from latmon.views.units import rounded, size

LABEL = 7
"""Cells of the labels of LBA, the axis included."""
_MIN_ROWS, _MAX_LIST = 4, 8
_ROLES = {"read": "text", "write": "accent", "discard": "strong"}
_LETTERS = {"read": "r", "write": "w", "discard": "d"}
_HALVES = {(True, False): "▀", (False, True): "▄", (True, True): "█"}


@dataclass(frozen=True, slots=True)
class Point:
    """An issue's place: `y` counts from the top."""

    x: int
    y: int
    op: str
    passed: bool


def order(
    issues: Sequence[Issue], width: int, height: int, ink: Ink, *, by_time: bool = False, scheduler: str | None = None
) -> list[Line]:
    """One window of a device, in order of issue. `by_time`: when each was issued instead of how many before it.

    `scheduler`: the device's, named in the verdict.
    """
    if not issues:
        return cut([fit((Span(" no issues were recorded", "dim"),), width)], height)
    passed = overtaken(issues)
    verdict = summary(lba_order(issues), scheduler)
    said: list[Line] = [(Span(f" {text}", "strong"),) for text in wrap(verdict, width - 2)]
    below = [_axis(issues, width, by_time=by_time), _legend(ink, {one.op for one in issues}, any(passed))]
    listed = _listed(issues, passed)
    room = height - len(said) - len(below)
    if room - len(listed) < max(_MIN_ROWS, height // 2):
        listed = listed[: max(0, room - max(_MIN_ROWS, height // 2))]
        listed = listed if len(listed) > 1 else []
    rows = max(room - len(listed), 0)
    columns = max(width - LABEL, 1)
    picture = _picture(issues, passed, (columns, rows), ink, by_time=by_time)
    return [fit(line, width) for line in cut([*said, *picture, *below, *listed], height)]


def points(issues: Sequence[Issue], passed: Sequence[int], grid: tuple[int, int], *, by_time: bool) -> list[Point]:
    """Each on a grid of (columns, rows): the window's first and last, lowest and highest are its edges."""
    low, high = _range(issues)
    across = [one.mono_us - issues[0].mono_us for one in issues] if by_time else list(range(len(issues)))
    wide, tall = max(across[-1], 1), max(high - low, 1)
    columns, rows = grid
    return [
        Point(min(x * columns // (wide + 1), columns - 1), (high - one.sector) * (rows - 1) // tall, one.op, n > 0)
        for one, x, n in zip(issues, across, passed, strict=True)
    ]


def _picture(
    issues: Sequence[Issue], passed: Sequence[int], grid: tuple[int, int], ink: Ink, *, by_time: bool
) -> list[Line]:
    columns, rows = grid
    if not rows:
        return []
    parts = 2 if ink.coloured else 1
    cells: dict[tuple[int, int], list[Point]] = {}
    for one in points(issues, passed, (columns, rows * parts), by_time=by_time):
        cells.setdefault((one.x, one.y // parts), []).append(one)
    low, high = _range(issues)
    labels = {0: rounded(high), rows - 1: rounded(low)}
    return [
        (
            Span(f"{labels.get(y, ''):>{LABEL - 1}}│", "dim"),
            *runs(_mark(cells.get((x, y), ()), parts, ink) for x in range(columns)),
        )
        for y in range(rows)
    ]


def _mark(some: Sequence[Point], parts: int, ink: Ink) -> tuple[str, str]:
    """One cell; of several issues in it the one that was passed decides."""
    if not some:
        return " ", "text"
    one = next((point for point in some if point.passed), some[0])
    if not ink.coloured:
        return _letter(one.op, passed=one.passed), "strong" if one.passed else "text"
    halves = {point.y % parts for point in some}
    return _HALVES[0 in halves, 1 in halves], "bad" if one.passed else _ROLES.get(one.op, "dim")


def _letter(op: str, *, passed: bool) -> str:
    letter = _LETTERS.get(op, "o")
    return letter.upper() if passed else letter


def _axis(issues: Sequence[Issue], width: int, *, by_time: bool) -> Line:
    low, high = _range(issues)
    took = spelled(issues[-1].mono_us - issues[0].mono_us)
    what = "time of issue" if by_time else "order of issue"
    lba = f"up: LBA in sectors, {low:,} to {high:,}"
    return (Span(cell(f"{'':{LABEL}}{what}: {whole(len(issues))} in {took} →   {lba}", width), "dim"),)


def _legend(ink: Ink, ops: set[str], any_passed: bool) -> Line:
    """What a mark's colour or letter stands for."""
    shown = [op for op in (*_ROLES, *sorted(ops - set(_ROLES))) if op in ops]
    spans = [Span(" " * LABEL)]
    for op in shown:
        mark = ("■", _ROLES.get(op, "dim")) if ink.coloured else (_letter(op, passed=False), "text")
        spans += [Span(*mark), Span(f" {op}  ", "dim")]
    if any_passed:
        mark = ("■", "bad") if ink.coloured else ("".join(_letter(op, passed=True) for op in shown), "strong")
        spans += [Span(*mark), Span(" overtaken by later ones", "dim")]
    return tuple(spans)


def _listed(issues: Sequence[Issue], passed: Sequence[int]) -> list[Line]:
    """Titles and the most overtaken, the one that waited longest first of equals."""
    worst = sorted(range(len(issues)), key=lambda at: (-passed[at], -issues[at].queued_us, at))
    rows = [_row(issues[at], passed[at]) for at in worst[:_MAX_LIST] if passed[at]]
    titles = f" {'passed by':>9} {'waited':>6} {'op':<8} {'size':>5} {'sector':>15}"
    return [(Span(titles, "dim"),), *rows] if rows else []


def _row(one: Issue, passed: int) -> Line:
    return (
        Span(f" {whole(passed):>9}", "bad"),
        Span(f" {duration(one.queued_us):>6} {cell(one.op, 8)} {size(one.bytes):>5} {one.sector:>15,}"),
    )


def _range(issues: Sequence[Issue]) -> tuple[int, int]:
    return min(one.sector for one in issues), max(one.sector for one in issues)
