"""The interrupts screen: softirqs, handlers, wake-ups and task queues, or one softirq vector's delays as a heat map."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from latmon.taskqs import summed
from latmon.views import empty
from latmon.views.delays import OPS, delay_frames, delay_map, tick_us
from latmon.views.delays import room as cells_of
from latmon.views.interrupts import PARTS, TASKQS, Interrupts, interrupts, interrupts_of, needed
from latmon.views.lines import BLANK, Line
from latmon.views.sight import Sight, no_rows, sentence
from latmon.views.sweep import shape

_SECOND_US = 1e6
_MIN_MAP = 10


def tables(sight: Sight) -> Interrupts:
    """The tables as they are shown."""
    deep, window = sight.history.deep, sight.history.window
    return sight.history.made(
        "interrupts",
        lambda: interrupts_of(
            deep.softirqs,
            deep.handlers,
            deep.wakeups,
            max(window.covered_us, 1) / _SECOND_US,
            summed(frame.taskqs for frame in window.frames),
        ),
    )


def names(shown: Interrupts, part: int) -> Sequence[Hashable]:
    """What each row of a part is about: what stays selected when the rows change places."""
    rows: dict[str, Sequence[Hashable]] = {
        "softirqs": [v.name for v in shown.vectors],
        "handlers": [h.handler for h in shown.handlers],
        "wake-ups": [w.thread.pid for w in shown.threads],
        TASKQS: [(s.last.name, s.last.instance) for s in shown.taskqs or ()],
    }
    return rows[focused(shown, part)]


def focused(shown: Interrupts, part: int) -> str:
    """The part that has the selection; the first one where the chosen one is not there any more."""
    return shown.parts[part if part < len(shown.parts) else 0]


def position(some: Sequence[Hashable], row: Hashable | None) -> int:
    """The selected row; the first until one is selected, and when it is gone."""
    return some.index(row) if row in some else 0


def interrupts_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """The tables, the focused one with the most lines, with room a vector's heat map below; opened, the map alone."""
    origin, choice = sight.origin, sight.choice
    if origin is None or not sight.history.window.frames:
        return sentence(no_rows(sight), width, room)
    if choice.opened:
        return _delays(sight, str(choice.row), width, room)
    shown = tables(sight)
    left = room - needed(shown) - 1
    lines = interrupts(
        shown,
        width,
        room,
        sight.ink,
        focus=focused(shown, choice.part),
        selected=position(names(shown, choice.part), choice.row),
        first_cpu=choice.first_cpu,
        why=_why(sight, "interrupts", *PARTS),
        reasons={part: _why(sight, part, part) for part in PARTS},
        no_softirqs=empty.no_softirqs(origin),
        kernel=origin.kernel,
    )
    if left < _MIN_MAP or not shown.vectors:
        return lines
    return [*lines, BLANK, *_delays(sight, _vector(shown, choice.row), width, left)]


def _why(sight: Sight, what: str, *parts: str) -> str:
    state, mode = sight.tracing, sight.choice.stages
    if state == empty.MEASURING and sight.history.deep.traced.histograms:
        state = "the deep probes run, and told nothing of them in this time"
    return empty.not_traced(what, sight.origin, parts, mode=mode, recorded=sight.recorded, state=state)


def _vector(shown: Interrupts, row: Hashable | None) -> str:
    """The selected vector, else the one with the longest wait."""
    return next((v.name for v in shown.vectors if v.name == row), shown.vectors[0].name)


def _delays(sight: Sight, vector: str, width: int, room: int) -> list[Line]:
    """Draw a vector's delays on a timeline and scales of their own."""
    history, origin, sweep = sight.history, sight.origin, sight.waits
    last = history.window.last
    assert origin is not None and last is not None  # noqa: S101, PT018  drawn only once there is a frame
    cut = shape(cells_of(width), sight.choice.window_us, history.interval_us, sweep=sight.choice.sweep)
    timeline = sweep.slots(
        cut,
        OPS,
        lambda: delay_frames(history.deep.delays, last),
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    seen_us = timeline.columns[-1].mono_us if timeline.columns else 0
    for frame in delay_frames([one for one in history.deep.delays if one[0] > seen_us], last):
        sweep.advance(frame)
    timeline.note(history.moments())
    style = sweep.style(timeline, room - 2, cells_of(width), sight.ink, tick_us(origin.hz))
    return delay_map(timeline, vector, style, width, hz=origin.hz, over_us=sight.choice.window_us)
