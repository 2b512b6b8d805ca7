"""The head of the interrupts panel: the thread, softirq or handler that delayed I/O most, and what ran meanwhile. Pure.

Harm is the time lost per second: by a thread from its wake-up to its run, by a softirq from its raise to its entry, in
waits of LATE_US or more; by a handler while others of its interrupt ran before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latmon.analysis.threshold import slower, time_from
from latmon.model.frame import NOT_KNOWN
from latmon.model.histogram import Histogram
from latmon.support.units import attached, duration, part, spelled, whole
from latmon.views.bars import BAR, apportion
from latmon.views.heatmap import TAIL
from latmon.views.lines import Line, Span, cell_len, ends, fit, heading
from latmon.views.lines import width as line_width
from latmon.views.units import count, maximum

if TYPE_CHECKING:
    from latmon.model.measurements.wakeups import Wakeups
    from latmon.views.panels.interrupts import HandlerRow, Vector

LATE_US = 1_000
"""Waits below this are dim: they are no cause of an I/O that anybody notices."""
_NO_IO = frozenset({"TIMER", "HRTIMER", "SCHED", "RCU"})
"""Softirqs that complete no I/O."""
_RAN_IN = {
    "irq_exit": "at the end of an interrupt",
    "timer": "in the timer's tick",
    "ksoftirqd": "in ksoftirqd",
    "other": "elsewhere",
}
_MARK = "■ "
_NAMED = 4
"""Parts that are named at most; the others are one."""
_OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Culprit:
    """What delayed I/O most, over `seconds`."""

    name: str
    said: tuple[str, ...]
    """What it did in words, the longest text first."""
    begin: str
    end: str
    """What the bar begins and ends with."""
    parts: Mapping[str, float]
    """What ran meanwhile -> its time, or the number of waits where no times are known."""
    lost_us: float
    """Time lost per second."""
    has_times: bool = True
    most_us: int = 0
    """Upper bound of the longest wait."""


def culprit(
    softirqs: Iterable[Vector], handlers: Sequence[HandlerRow], threads: Iterable[Wakeups], seconds: float
) -> Culprit | None:
    """Return what delayed I/O most; None where nothing was late."""
    several = [
        *(_thread(one, seconds) for one in threads),
        *(_softirq(one, seconds) for one in softirqs if one.name not in _NO_IO),
        *(_handler(one, handlers) for one in handlers),
    ]
    late = [one for one in several if one is not None]
    return max(late, key=lambda one: one.lost_us, default=None)


def is_late(delay: Histogram) -> bool:
    """Return whether any of the waits was late."""
    return (delay.max_bound or 0) >= LATE_US


def _waits(delay: Histogram, what: str, seconds: float) -> tuple[tuple[str, ...], float]:
    """Return the late waits in words, the longest text first, and the time lost in them per second."""
    total_us = time_from(delay, LATE_US)
    number = f"{count(slower(delay, LATE_US).ios)} waits ≥ 1 ms{f' {what}' if what else ''}"
    longest = f"up to {attached(maximum(delay).removeprefix('≤'))}"
    texts = (f"{number}, {longest}, {spelled(total_us)} in all", f"{number}, {longest}", longest)
    return texts, total_us / max(seconds, 1e-6)


def _thread(one: Wakeups, seconds: float) -> Culprit | None:
    if not is_late(one.delay):
        return None
    said, lost_us = _waits(one.delay, "for a CPU", seconds)
    return Culprit(
        one.thread.comm,
        said,
        "woken",
        "ran",
        one.weights,
        lost_us,
        has_times=bool(one.ran_us),
        most_us=one.delay.max_bound or 0,
    )


def _softirq(one: Vector, seconds: float) -> Culprit | None:
    if not is_late(one.delay):
        return None
    said, lost_us = _waits(one.delay, f"on CPU {one.worst}" if one.worst >= 0 else "", seconds)
    runs = {f"{_RAN_IN.get(context, context)}": share for context, share in one.ran_in.items() if share}
    return Culprit(
        f"{one.name} softirq", said, "raised", "ran", runs, lost_us, has_times=False, most_us=one.delay.max_bound or 0
    )


def _handler(victim: HandlerRow, handlers: Sequence[HandlerRow]) -> Culprit | None:
    """Return the handler that a handler waited for most; None where it waited for less than LATE_US per second."""
    before = [one for one in handlers if one.handler.name in victim.runs.shared_with]
    if victim.waited_us < LATE_US or not before:
        return None
    slow = max(before, key=lambda one: one.runs.run.nearest_sum)
    name = victim.handler.name
    waited = f"{name} waited for it {spelled(victim.waited_us)} of each second"
    handled = f"handled nothing in {part(slow.not_handled)} of its runs" if slow.is_mostly_not_handled else ""
    irq = f"irq {slow.handler.irq}"
    own_us = victim.per_second * (victim.runs.run.mean or 0.0)
    return Culprit(
        slow.handler.name,
        (f"{irq}: {', '.join(filter(None, (handled, waited)))}", f"{irq}: {waited}", waited),
        "interrupt",
        "handled",
        {slow.handler.name: victim.waited_us, name: own_us},
        victim.waited_us,
    )


def culprit_lines(found: Culprit | None, cells: int, threshold_us: int | None) -> list[Line]:
    """Return a heading, the bar of what ran meanwhile and its legend; a heading where nothing was late.

    The culprit has the alarm colour where it may have delayed an I/O by the threshold; without one, always.
    """
    if found is None:
        return [heading((Span(" culprit", "strong"), Span("  none: nothing waited for 1 ms", "dim")), cells)]
    name = (Span(" culprit ", "dim"), Span(found.name, "strong"))
    room = cells - line_width(name) - ends(cells) - 2
    said = next((text for text in found.said if cell_len(text) <= room), "")
    lines = [heading((*name, Span(f"  {said}")), cells)]
    is_alarm = threshold_us is None or not found.most_us or found.most_us >= threshold_us
    parts = _parts(found)
    if not parts:
        return [*lines, fit((Span(" what ran meanwhile is not known", "dim"),), cells)]
    roles = [_role(name, number, is_alarm=is_alarm) for number, name in enumerate(parts)]
    begin, end = f" {found.begin} ", f" {found.end}"
    sizes = apportion(list(parts.values()), max(cells - len(begin) - len(end) - 1, 0))
    bar = (Span(BAR * size, role) for size, role in zip(sizes, roles, strict=True) if size)
    return [*lines, fit((Span(begin, "dim"), *bar, Span(end, "dim")), cells), _legend(found, parts, roles, cells)]


def _parts(found: Culprit) -> dict[str, float]:
    """Return the largest parts, the sum of the others, and the time of which it isn't known what ran, in this order."""
    known = sorted((one for one in found.parts.items() if one[0] != NOT_KNOWN and one[1]), key=lambda one: -one[1])
    left = sum(value for _, value in known[_NAMED:])
    parts = dict(known[:_NAMED]) | ({_OTHERS: left} if left else {})
    unknown = found.parts.get(NOT_KNOWN, 0)
    return parts | ({NOT_KNOWN: unknown} if unknown else {})


def _role(name: str, number: int, *, is_alarm: bool) -> str:
    if name == NOT_KNOWN:
        return "frame"
    if number:
        return "area" if number == 1 else "depth"
    return TAIL if is_alarm else "accent"


def _legend(found: Culprit, parts: Mapping[str, float], roles: Sequence[str], cells: int) -> Line:
    """Return the names of the parts with their shares and times, as many as fit."""
    total = sum(parts.values())
    line: Line = (Span(" "),)
    for (name, value), role in zip(parts.items(), roles, strict=True):
        time = f" {duration(value)}" if found.has_times and found.begin != "interrupt" else ""
        number = f" x{whole(round(value))}" if found.begin == "woken" and not found.has_times else ""
        after = "after " if number and name not in (_OTHERS, NOT_KNOWN) else ""
        text = f"{after}{name} {part(value / total)}{time}{number}  "
        more = (Span(_MARK, role), Span(text, "dim" if role == "frame" else "text"))
        if line_width((*line, *more)) - len("  ") > cells:
            break
        line = (*line, *more)
    return fit(line, cells)
