"""The head of the interrupts panel: the wait that delayed I/O most, and what ran meanwhile. Pure.

The culprit is what did harm: the handler before another one, or the thread that had most of a late thread's CPU time.
Where that is not known, as for a softirq, the head names what was late.

Harm is the time lost per second: by a thread from its wake-up to its run, by a softirq from its raise to its entry, in
waits of LATE_US or more; by a handler while others of its interrupt ran before it. A softirq that no device's
completions wait for is none, however late it ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latmon.analysis.attribution import NETWORK_VECTORS, completing_vectors
from latmon.analysis.threshold import slower, time_from
from latmon.model.devices import host_and_device
from latmon.model.frame import NOT_KNOWN, Outlier
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
_NO_IO = frozenset({"TIMER", "HRTIMER", "SCHED", "RCU", "NET_TX"})
"""Softirqs that complete no I/O."""
_SOFTIRQ = " softirq"
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
    """What did harm; what was late, where that is not known."""
    late: str
    """The thread, softirq or handler that had to wait."""
    texts: tuple[str, ...]
    """What happened in words, the longest text first."""
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

    @property
    def is_known(self) -> bool:
        """Return whether it is known what did harm."""
        return self.name != self.late


def culprit(
    softirqs: Iterable[Vector],
    handlers: Sequence[HandlerRow],
    threads: Iterable[Wakeups],
    seconds: float,
    received_in: Collection[str] = (),
) -> Culprit | None:
    """Return what delayed I/O most; None where nothing was late.

    `received_in`: the network's softirqs that completions of a device wait for: they run on every host.
    """
    candidates = [
        *(_thread(thread, seconds) for thread in threads),
        *(_softirq(vector, seconds) for vector in softirqs if _is_waited_for(vector.name, received_in)),
        *(_handler(handler, handlers) for handler in handlers),
    ]
    late = [candidate for candidate in candidates if candidate is not None]
    return max(late, key=lambda candidate: candidate.lost_us, default=None)


def _is_waited_for(vector: str, received_in: Collection[str]) -> bool:
    """Return whether I/Os may wait for a softirq; a fleet's has the host in front of its name."""
    name = host_and_device(vector)[1]
    return vector in received_in if name in NETWORK_VECTORS else name not in _NO_IO


def delays_slow_ios(worst: Culprit, outliers: Iterable[Outlier]) -> bool:
    """Return whether any of these slow I/Os waited for it, for LATE_US or longer."""
    return any(_waits_for(outlier, worst) for outlier in outliers)


def _waits_for(outlier: Outlier, worst: Culprit) -> bool:
    if worst.begin == "woken":
        return any(wait.thread == worst.late and wait.delay_us >= LATE_US for wait in outlier.waits)
    if worst.begin == "interrupt":
        return outlier.stages_us.get("irq", 0) >= LATE_US
    vector = host_and_device(worst.late.removesuffix(_SOFTIRQ))[1]
    is_late_there = outlier.stages_us.get("softirq", 0) >= LATE_US
    return is_late_there and vector in completing_vectors((outlier.path,))


def is_late(delay: Histogram) -> bool:
    """Return whether any of the waits was late."""
    return (delay.max_bound or 0) >= LATE_US


def _waits(delay: Histogram, before: str, after: str, seconds: float) -> tuple[tuple[str, ...], float]:
    """Return the late waits in words, the longest text first, and the time lost in them per second."""
    total_us = time_from(delay, LATE_US)
    number = f"{count(slower(delay, LATE_US).ios)} waits ≥ 1 ms{after}"
    longest = f"up to {attached(maximum(delay).removeprefix('≤'))}"
    texts = (f"{number}, {longest}, {spelled(total_us)} in all", f"{number}, {longest}", longest)
    briefer = (before.removesuffix(": "), longest) if before else ()
    return (*(f"{before}{text}" for text in texts), *briefer), total_us / max(seconds, 1e-6)


def _thread(thread: Wakeups, seconds: float) -> Culprit | None:
    if not is_late(thread.delay):
        return None
    late = thread.thread.comm
    blamed = _had_most_of(thread.weights)
    before, after = (f"had the CPU of {late}: ", "") if blamed else ("", " for a CPU")
    texts, lost_us = _waits(thread.delay, before, after, seconds)
    return Culprit(
        blamed or late,
        late,
        texts,
        "woken",
        "ran",
        thread.weights,
        lost_us,
        has_times=bool(thread.ran_us),
        most_us=thread.delay.max_bound or 0,
    )


def _had_most_of(weights: Mapping[str, float]) -> str:
    """Return the thread that ran for half of the time or more meanwhile; empty where none is known to have."""
    name = max(weights, key=lambda thread: weights[thread], default=NOT_KNOWN)
    return name if name != NOT_KNOWN and 2 * weights[name] >= sum(weights.values()) else ""


def _softirq(vector: Vector, seconds: float) -> Culprit | None:
    if not is_late(vector.delay):
        return None
    texts, lost_us = _waits(vector.delay, "", f" on CPU {vector.worst}" if vector.worst >= 0 else "", seconds)
    shares = {_RAN_IN.get(context, context): share for context, share in vector.ran_in.items() if share}
    late = f"{vector.name}{_SOFTIRQ}"
    return Culprit(
        late,
        late,
        texts,
        "raised",
        "ran",
        shares,
        lost_us,
        has_times=False,
        most_us=vector.delay.max_bound or 0,
    )


def _handler(victim: HandlerRow, handlers: Sequence[HandlerRow]) -> Culprit | None:
    """Return the handler that a handler waited for most; None where it waited for less than LATE_US per second."""
    before = [other for other in handlers if other.handler.name in victim.runs.shared_with]
    if victim.waited_us < LATE_US or not before:
        return None
    slow = max(before, key=lambda other: other.runs.run.nearest_sum)
    name = victim.handler.name
    waited = f"{name} waited for it {spelled(victim.waited_us)} of each second"
    handled = f"handled nothing in {part(slow.not_handled)} of its runs" if slow.is_mostly_not_handled else ""
    irq = f"irq {slow.vector}"
    own_us = victim.per_second * (victim.runs.run.mean or 0.0)
    return Culprit(
        slow.handler.name,
        name,
        (f"{irq}: {', '.join(filter(None, (handled, waited)))}", f"{irq}: {waited}", waited),
        "interrupt",
        "handled",
        {slow.handler.name: victim.waited_us, name: own_us},
        victim.waited_us,
    )


def culprit_lines(
    worst: Culprit | None, cells: int, threshold_us: int | None, outliers: Iterable[Outlier] = ()
) -> list[Line]:
    """Return a heading, the bar of what ran meanwhile and its legend; a heading where nothing was late.

    The largest part has the alarm colour where the wait may have delayed an I/O by the threshold; without one, where
    any of the slow I/Os had that wait.
    """
    if worst is None:
        return [heading((Span(" culprit", "strong"), Span("  none: no I/O had to wait for 1 ms", "dim")), cells)]
    name = (Span(" culprit " if worst.is_known else " late ", "dim"), Span(worst.name, "strong"))
    room = cells - line_width(name) - ends(cells) - 2
    about = next((text for text in worst.texts if cell_len(text) <= room), "")
    lines = [heading((*name, Span(f"  {about}")), cells)]
    parts = _parts(worst)
    if not parts:
        return [*lines, fit((Span(" what ran meanwhile is not known", "dim"),), cells)]
    is_alarm = _is_alarm(worst, threshold_us, outliers)
    roles = [_role(name, number, is_alarm=is_alarm) for number, name in enumerate(parts)]
    begin, end = f" {worst.begin} ", f" {worst.end}"
    sizes = apportion(list(parts.values()), max(cells - len(begin) - len(end) - 1, 0))
    bar = (Span(BAR * size, role) for size, role in zip(sizes, roles, strict=True) if size)
    return [*lines, fit((Span(begin, "dim"), *bar, Span(end, "dim")), cells), _legend(worst, parts, roles, cells)]


def _is_alarm(worst: Culprit, threshold_us: int | None, outliers: Iterable[Outlier]) -> bool:
    if threshold_us is None:
        return delays_slow_ios(worst, outliers)
    return not worst.most_us or worst.most_us >= threshold_us


def _parts(worst: Culprit) -> dict[str, float]:
    """Return the largest parts, the sum of the others, and the time of which it isn't known what ran, in this order."""
    named = {name: value for name, value in worst.parts.items() if name != NOT_KNOWN and value}
    largest_first = sorted(named.items(), key=lambda item: -item[1])
    left = sum(value for _, value in largest_first[_NAMED:])
    parts = dict(largest_first[:_NAMED]) | ({_OTHERS: left} if left else {})
    unknown = worst.parts.get(NOT_KNOWN, 0)
    return parts | ({NOT_KNOWN: unknown} if unknown else {})


def _role(name: str, number: int, *, is_alarm: bool) -> str:
    if name == NOT_KNOWN:
        return "frame"
    if number:
        return "area" if number == 1 else "depth"
    return TAIL if is_alarm else "accent"


def _legend(worst: Culprit, parts: Mapping[str, float], roles: Sequence[str], cells: int) -> Line:
    """Return the names of the parts with their shares and times, as many as fit."""
    total = sum(parts.values())
    line: Line = (Span(" "),)
    for (name, value), role in zip(parts.items(), roles, strict=True):
        time = f" {duration(value)}" if worst.has_times and worst.begin != "interrupt" else ""
        number = f" x{whole(round(value))}" if worst.begin == "woken" and not worst.has_times else ""
        after = "after " if number and name not in (_OTHERS, NOT_KNOWN) else ""
        text = f"{after}{name} {part(value / total)}{time}{number}  "
        more = (Span(_MARK, role), Span(text, "dim" if role == "frame" else "text"))
        if line_width((*line, *more)) - len("  ") > cells:
            break
        line = (*line, *more)
    return fit(line, cells)
