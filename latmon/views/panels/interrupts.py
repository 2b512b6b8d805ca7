"""The interrupts panel: softirqs per CPU, handlers per vector, wake-ups per thread, task queues. Pure.

`Interrupts` is made once per frame; `interrupts` draws it, the focused part with the most lines. The heat map of a
vector's delay is views/heatmap.py's.

`vectors` sums once per frame, `matrix` draws.

`rows` sorts once per frame, `handlers` draws. A handler that is never the one that was meant still takes its time.

`rows` sorts once per frame, `wakeups` draws.

A thread in a permanent loop is a task that never ends: of such queues nothing here is a latency, and none is shown.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from latmon.aggregate.accumulator import Summed, summed
from latmon.analysis import priorities
from latmon.analysis.attribution import by_vector
from latmon.model.frame import UNKNOWN_IRQ, Handler, HandlerRuns, SoftirqCpu, SoftirqRuns, Wakeups, pid_of
from latmon.model.histogram import EMPTY, Histogram
from latmon.support.units import UNKNOWN, bound, duration, rate, whole
from latmon.support.units import part as part_text
from latmon.views import empty
from latmon.views.columns import Field, Placed, around, heads, layout, row, table
from latmon.views.context import Sight, no_rows, sentence
from latmon.views.heatmap import OPS, Ink, delay_frames, delay_map, tick_us
from latmon.views.heatmap import delay_room as cells_of
from latmon.views.heatmap_state import shape
from latmon.views.lines import BLANK, Line, Span, fit, width, wrap
from latmon.views.scale import level
from latmon.views.units import count, maximum, mean, quantile

CONTEXTS = (("irq_exit", "irq"), ("timer", "tick"), ("ksoftirqd", "ksd"), ("other", "othr"))
"""Where a softirq ran, and the title of its share."""
_CELL = 5
_TOP_US = 1_000_000
_WIDE = 80


@dataclass(frozen=True, slots=True)
class Vector:
    """One softirq vector over the window."""

    name: str
    per_second: float
    delay: Histogram
    run: Histogram
    ran_in: Mapping[str, float]
    """Context -> share of the runs."""
    p99_us: Mapping[int, int]
    """CPU -> upper bound of the wait's p99; of fewer than 100 waits the longest."""
    worst: int = -1
    """The CPU where it waited longest."""


def vectors(softirqs: Mapping[SoftirqCpu, SoftirqRuns], seconds: float) -> tuple[Vector, ...]:
    """The vectors, the one with the longest wait first."""
    found = [_softirq_vector(name, runs, softirqs, seconds) for name, runs in by_vector(softirqs).items()]
    return tuple(sorted(found, key=lambda v: (-(v.delay.max_bound or 0), v.name)))


def matrix(
    some: Sequence[Vector], selected: int, size: tuple[int, int], ink: Ink, *, first_cpu: int = 0, why: str = ""
) -> list[Line]:
    """Titles and a row per vector, the CPUs from `first_cpu` on at the right: numbers, or a glyph where many."""
    cells, height = size
    if not some:
        return [fit((Span(f"  {why}"),), cells)][:height]
    cpus = sorted({cpu for v in some for cpu in v.p99_us})
    placed: Placed[Vector] = layout(_fields(), cells - min(len(cpus), 4) * (_CELL + 1) - 1 if cells >= _WIDE else cells)
    used = width(heads(placed))
    room = cells - used
    shown, wide = _cpus(cpus, first_cpu, room)
    seen = around(len(some), selected, height - 1)
    lines = [(*heads(placed, above=seen.start), *_titles(shown, cpus, wide))]
    lines += [(*row(placed, some[i], selected=i == selected), *_softirq_row(some[i], shown, wide, ink)) for i in seen]
    return [fit(line, cells) for line in lines][:height]


def _softirq_vector(name: str, runs: SoftirqRuns, softirqs: Mapping[SoftirqCpu, SoftirqRuns], seconds: float) -> Vector:
    delays = {where.cpu: r.delay for where, r in softirqs.items() if where.vector == name and r.delay}
    ran = sum(runs.ran_in.values())
    return Vector(
        name,
        runs.run.count / seconds if seconds > 0 else 0.0,
        runs.delay or EMPTY,
        runs.run or EMPTY,
        {context: n / ran for context, n in runs.ran_in.items()} if ran else {},
        {cpu: _p99(delay) for cpu, delay in delays.items()},
        max(delays, key=lambda cpu: delays[cpu].max_bound or 0) if delays else -1,
    )


def _p99(delay: Histogram) -> int:
    found = delay.quantile(0.99)
    return found if found is not None else delay.max_bound or 0


def _fields() -> list[Field[Vector]]:
    return [
        Field("softirq", 8, lambda v, _: v.name, right=False),
        Field("/s", _CELL, lambda v, _: rate(v.per_second)),
        Field("p50", _CELL, lambda v, _: quantile(v.delay, 0.5)),
        Field("p99", _CELL, lambda v, _: quantile(v.delay, 0.99)),
        Field("max", _CELL, lambda v, _: maximum(v.delay)),
        Field("cpu", 4, lambda v, _: str(v.worst) if v.worst >= 0 else "-", role="dim"),
        Field("run99", _CELL, lambda v, _: quantile(v.run, 0.99), rank=2),
        *(_share(context, title) for context, title in CONTEXTS[:3]),
        Field("runmx", _CELL, lambda v, _: maximum(v.run), rank=2),
        Field("othr", 4, lambda v, _: part_text(v.ran_in.get("other", 0.0) if v.ran_in else None), rank=2),
    ]


def _share(context: str, title: str) -> Field[Vector]:
    return Field(title, 4, lambda v, _: part_text(v.ran_in.get(context, 0.0) if v.ran_in else None), rank=1)


def _cpus(cpus: Sequence[int], first: int, room: int) -> tuple[list[int], bool]:
    """The CPUs that are shown, and whether as numbers: those where all fit so, else a glyph each."""
    if len(cpus) * (_CELL + 1) <= room:
        return list(cpus), True
    begin = max(0, min(first, len(cpus) - 1))
    count = max(room - _CELL, 0)
    begin = max(0, min(begin, len(cpus) - count))
    return list(cpus[begin : begin + count]), False


def _titles(shown: Sequence[int], cpus: Sequence[int], wide: bool) -> Line:
    if wide:
        return tuple(Span(f"{f'cpu{cpu}':>{_CELL}} ", "dim") for cpu in shown)
    if not shown:
        return ()
    more = f"cpu {shown[0]}-{shown[-1]}" + (f" of {len(cpus)}" if len(shown) < len(cpus) else "")
    return (Span(more if len(more) <= len(shown) + _CELL else f"{shown[0]}-{shown[-1]}", "dim"),)


def _softirq_row(one: Vector, shown: Sequence[int], wide: bool, ink: Ink) -> Line:
    if wide:
        longest = max(one.p99_us.values(), default=0)
        worst = longest if longest > min(one.p99_us.values(), default=0) else -1
        return tuple(
            Span(f"{bound(us, one.delay.max) if us is not None else '':>{_CELL}} ", "strong" if us == worst else "text")
            for us in (one.p99_us.get(cpu) for cpu in shown)
        )
    return tuple(Span(*_glyph(one.p99_us.get(cpu), ink)) for cpu in shown)


def _glyph(us: int | None, ink: Ink) -> tuple[str, str]:
    """A step per half decade or so of the wait, up to a second: the same scale for all."""
    return (" ", "text") if us is None else ink.cell(max(1, level(max(us, 1), _TOP_US, ink.levels)))


_SLOW_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class HandlerRow:
    """One irqaction over the window."""

    handler: Handler
    runs: HandlerRuns
    per_second: float
    not_mine: float | None
    """Share of the runs that returned `none`."""
    waited_us: float
    """Victim time a second: what ran before it on its vector."""

    @property
    def culprit(self) -> bool:
        """Others share its vector, and most of its runs were for nothing."""
        return bool(self.runs.shared_with) and self.not_mine is not None and self.not_mine > _SLOW_SHARE


def handler_rows(handlers: Mapping[Handler, HandlerRuns], seconds: float) -> tuple[HandlerRow, ...]:
    """Shared vectors first, of these the one with the most waiting; on a vector the culprit, then the busiest."""
    found = [_handler_row(handler, runs, seconds) for handler, runs in handlers.items()]
    waited: dict[int, float] = {}
    for one in found:
        waited[one.handler.irq] = waited.get(one.handler.irq, 0.0) + one.waited_us
    return tuple(
        sorted(
            found,
            key=lambda r: (
                not r.runs.shared_with,
                -waited[r.handler.irq],
                r.handler.irq,
                not r.culprit,
                -(r.runs.run.sum or 0),
                r.handler.name,
            ),
        )
    )


def handlers(some: Sequence[HandlerRow], selected: int, size: tuple[int, int], *, why: str = "") -> list[Line]:
    """Titles and as many rows as fit around the selected one."""
    return table(_HANDLER_FIELDS, some, selected, size, why=why)


def _handler_row(handler: Handler, runs: HandlerRuns, seconds: float) -> HandlerRow:
    returned = sum(runs.returned.values())
    per = 1 / seconds if seconds > 0 else 0.0
    not_mine = runs.returned.get("none", 0) / returned if returned else None
    return HandlerRow(handler, runs, runs.run.count * per, not_mine, runs.before_us * per)


def _not_mine(one: HandlerRow, cells: int) -> Line:
    return (Span(f"{part_text(one.not_mine):>{cells}}", "bad" if one.culprit else "text"),)


_HANDLER_FIELDS: tuple[Field[HandlerRow], ...] = (
    Field("irq", 4, lambda r, _: UNKNOWN if r.handler.irq == UNKNOWN_IRQ else str(r.handler.irq)),
    Field("handler", 11, lambda r, _: r.handler.name, right=False, most=20),
    Field("device", 8, lambda r, _: r.runs.device or UNKNOWN, rank=1, right=False, most=14, role="dim"),
    Field("/s", 5, lambda r, _: rate(r.per_second)),
    Field("p50", 5, lambda r, _: quantile(r.runs.run, 0.5), rank=1),
    Field("p99", 5, lambda r, _: quantile(r.runs.run, 0.99)),
    Field("max", 5, lambda r, _: maximum(r.runs.run), rank=2),
    Field("none", 4, _not_mine),
    Field("wait/s", 6, lambda r, _: duration(r.waited_us) if r.waited_us else ""),
    Field("shared with", 11, lambda r, _: ", ".join(r.runs.shared_with), rank=1, right=False, most=60, role="dim"),
)


_REAL_TIME = 100
_NICE_0 = 120


def wakeup_rows(threads: Iterable[Wakeups]) -> tuple[Wakeups, ...]:
    """The thread that waited longest first."""
    return tuple(sorted(threads, key=lambda w: (-(w.delay.max_bound or 0), -w.delay.count, w.thread.pid)))


def wakeups(some: Sequence[Wakeups], selected: int, size: tuple[int, int], *, why: str = "") -> list[Line]:
    """Titles and as many rows as fit around the selected one."""
    return table(_WAKEUP_FIELDS, some, selected, size, why=why)


def policy(one: Wakeups) -> str:
    """As an admin sets it (fifo 50, nice -20); the kernel's own number has a column of its own."""
    thread = one.thread
    if thread.policy in ("fifo", "rr"):
        return f"{thread.policy} {_REAL_TIME - 1 - thread.priority}"
    if thread.policy in ("", "deadline"):
        return thread.policy or UNKNOWN
    nice = thread.priority - _NICE_0
    name = "nice" if thread.policy == "other" else thread.policy
    return f"{name} {nice}" if thread.priority >= _REAL_TIME else f"{thread.policy}"


def _instead(who: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{whole(n)}" for name, n in sorted(who.items(), key=lambda item: -item[1]))


_WAKEUP_FIELDS: tuple[Field[Wakeups], ...] = (
    Field("thread", 15, lambda w, _: w.thread.comm, right=False, most=90),
    Field("pid", 7, lambda w, _: str(pid_of(w.thread.pid) or ""), rank=2, role="dim"),
    Field("policy", 8, lambda w, _: policy(w), rank=1, right=False),
    Field("prio", 4, lambda w, _: str(w.thread.priority), rank=1),
    Field("count", 7, lambda w, _: count(w.delay.count), rank=1),
    Field("p50", 5, lambda w, _: quantile(w.delay, 0.5), rank=2),
    Field("p99", 5, lambda w, _: quantile(w.delay, 0.99)),
    Field("max", 5, lambda w, _: maximum(w.delay)),
    Field("ran instead", 15, lambda w, _: _instead(w.instead), rank=1, right=False, most=80, role="dim"),
)


IDLE = "no task queue was busy"
_LOOPS = "permanent loops"


def taskqs(some: Sequence[Summed], selected: int, size: tuple[int, int]) -> list[Line]:
    """Titles and as many rows as fit around the selected one."""
    return table(_TASKQ_FIELDS, some, selected, size, why=IDLE)


def _rate(one: Summed) -> str:
    return UNKNOWN if one.last.loops or one.per_second is None else rate(one.per_second)


def _mean(one: Summed) -> str:
    return UNKNOWN if one.last.loops else mean(one.mean_us)


_TASKQ_FIELDS: tuple[Field[Summed], ...] = (
    Field("task queue", 15, lambda s, _: s.last.name, right=False, most=32),
    Field("inst", 4, lambda s, _: str(s.last.instance), rank=2, role="dim"),
    Field("prio", 4, lambda s, _: whole(s.last.priority)),
    Field("thr", 4, lambda s, _: whole(s.last.threads)),
    Field("active", 6, lambda s, _: whole(s.active)),
    Field("waiting", 7, lambda s, _: whole(s.waiting), role="strong"),
    Field("most", 5, lambda s, _: whole(s.last.most), rank=1, role="dim"),
    Field("done/s", 6, lambda s, _: _rate(s)),
    Field("run", 5, lambda s, _: _mean(s)),
    Field("", 15, lambda s, _: _LOOPS if s.last.loops else "", rank=1, right=False, role="dim"),
)


PARTS = ("softirqs", "handlers", "wake-ups")
TASKQS = "task queues"
"""A part of its own where the kernel has them: illumos and Solaris."""
_WOKEN = "woken to running; "
_ABOUT = {
    "softirqs": ("raise to entry; cpu: of the max; irq tick ksd: ran there",),
    "handlers": ("none: not handled; wait/s: others' runs before its own",),
    TASKQS: (
        "waiting: no thread began them; run: a task's mean, no wait in it; a higher prio runs first",
        "waiting: no thread began them; run: a task's mean, no wait in it",
    ),
}
_LEAST = 3
"""Lines of a part: title, columns, one row."""


@dataclass(frozen=True, slots=True)
class Interrupts:
    """What the tables show, in their order, so that a key finds what the eye saw."""

    vectors: tuple[Vector, ...] = ()
    handlers: tuple[HandlerRow, ...] = ()
    threads: tuple[Wakeups, ...] = ()
    taskqs: tuple[Summed, ...] | None = None
    """None where none were read."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The tables that there are; task queues alone where nothing else is traced."""
        if self.taskqs is None:
            return PARTS
        return (*PARTS, TASKQS) if self.traced else (TASKQS,)

    @property
    def traced(self) -> bool:
        """Whether any of the tables has a row that the probes told."""
        return bool(self.vectors or self.handlers or self.threads)

    def rows(self, part: str) -> int:
        """How many rows a part has."""
        every = (self.vectors, self.handlers, self.threads, self.taskqs or ())
        return len(every[(*PARTS, TASKQS).index(part)])


def interrupts_of(
    runs: Mapping[SoftirqCpu, SoftirqRuns],
    by_handler: Mapping[Handler, HandlerRuns],
    threads: Iterable[Wakeups],
    seconds: float,
    queues: tuple[Summed, ...] | None = None,
) -> Interrupts:
    """`seconds`: how much time the values cover."""
    return Interrupts(vectors(runs, seconds), handler_rows(by_handler, seconds), wakeup_rows(threads), queues)


def interrupts(
    shown: Interrupts,
    width: int,
    height: int,
    ink: Ink,
    *,
    focus: str = PARTS[0],
    selected: int = 0,
    first_cpu: int = 0,
    why: str = "",
    no_softirqs: str = "",
    reasons: Mapping[str, str] = MappingProxyType({}),
    kernel: str = "",
) -> list[Line]:
    """`focus`: the part with the selection; `why`: what an empty part says; `no_softirqs`: why those never are.

    `reasons`: the same as `why` of one part; `kernel`: the host's, which decides what a priority means.
    """
    lines: list[Line] = []
    if not shown.traced:
        lines = [BLANK, *((Span(f"  {text}"),) for text in wrap(why, width - 4))]
        if shown.taskqs is None:
            return lines[:height]
        lines.append(BLANK)
    focus = focus if focus in shown.parts else shown.parts[0]
    for part, rows in shares(shown, focus, max(height - len(lines), 1)).items():
        at, size = (selected if part == focus else -1), (width, rows - 1)
        lines.append(_title(part, shown.rows(part), rows - 2, width, _about(part, kernel), focused=part == focus))
        if part == "softirqs":
            lines += matrix(
                shown.vectors, at, size, ink, first_cpu=first_cpu, why=no_softirqs or reasons.get(part, why)
            )
        elif part == "handlers":
            lines += handlers(shown.handlers, at, size, why=reasons.get(part, why))
        elif part == "wake-ups":
            lines += wakeups(shown.threads, at, size, why=reasons.get(part, why))
        else:
            lines += taskqs(shown.taskqs or (), at, size)
    return lines[:height]


def needed(shown: Interrupts) -> int:
    """Lines that show every row; what a screen has more is free for a delay map."""
    return sum(max(shown.rows(part), 1) + 2 for part in shown.parts)


def shares(shown: Interrupts, focus: str, height: int) -> dict[str, int]:
    """Lines per part: each what it needs, the focused one first; where no three fit each, the focused one alone."""
    wanted = {part: max(shown.rows(part), 1) + 2 for part in shown.parts}
    if height < len(wanted) * _LEAST:
        return {focus: min(wanted[focus], height)}
    given = dict.fromkeys(wanted, _LEAST)
    left = height - sum(given.values())
    for part in (focus, *(p for p in wanted if p != focus)):
        more = min(max(wanted[part] - given[part], 0), left if part == focus else max(left // 2, 0))
        given[part] += more
        left -= more
    for part, lines in wanted.items():
        more = min(lines - given[part], left)
        given[part] += max(more, 0)
        left -= max(more, 0)
    return given


def _about(part: str, kernel: str) -> tuple[str, ...]:
    """Return what the columns of a part mean, the longest text first."""
    if part != "wake-ups":
        return _ABOUT[part]
    scales = priorities.scales(kernel)
    return (*(_WOKEN + scale for scale in scales[:-1]), *scales)


def _title(part: str, total: int, rows: int, width: int, about: Sequence[str], *, focused: bool) -> Line:
    """Name, how many rows are hidden, and as much as fits of what the columns mean."""
    some = f"  {rows} of {total}" if rows < total else ""
    room = width - len(part) - len(some) - 4
    role = "accent" if focused else "strong"
    said = next((f"  {text}" for text in about if len(text) <= room), "")
    return fit((Span(f" {part}", role), Span(some), Span(said, "dim")), width)


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


def interrupt_position(some: Sequence[Hashable], row: Hashable | None) -> int:
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
        selected=interrupt_position(names(shown, choice.part), choice.row),
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
        state = "the tracer runs and recorded none of them in this time"
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
