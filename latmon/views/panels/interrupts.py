"""The interrupts panel: softirqs per CPU, handlers per vector, wake-ups per thread, task queues. Pure.

`InterruptTables` is made once per frame; `interrupts` draws it, the focused table with the most lines. The delay map of
a vector is drawn by views/heatmap.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from latmon.aggregate.accumulator import TaskqSum, summed
from latmon.analysis.attribution import NETWORK_VECTORS, by_vector, in_table, vectors_of
from latmon.analysis.threshold import time_from
from latmon.model.frame import pid_of
from latmon.model.histogram import EMPTY, Histogram
from latmon.model.measurements import HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, exact_delays
from latmon.support.host import priority_scales
from latmon.support.units import UNKNOWN, bound, duration, rate, whole
from latmon.support.units import part as part_text
from latmon.views.axes import level
from latmon.views.context import MEASURING, ViewState, no_rows, no_softirqs, not_traced
from latmon.views.heatmap import OPS, Ink, delay_frames, delay_map, tick_us
from latmon.views.heatmap import room as cells_of
from latmon.views.heatmap_state import shape
from latmon.views.lines import (
    BLANK,
    PART,
    ROW,
    TIME,
    Field,
    Line,
    Placed,
    Span,
    Target,
    around,
    cut,
    dimmed,
    empty_panel,
    ends,
    fit,
    heading,
    heads,
    highlighted,
    layout,
    row,
    table,
    targeted,
    width,
    wrap,
)
from latmon.views.panels.culprit import LATE_US, Culprit, culprit, culprit_lines, is_late
from latmon.views.units import maximum, quantile

CONTEXTS = (("irq_exit", "irq"), ("timer", "tick"), ("ksoftirqd", "task"), ("other", "other"))
"""Contexts in which a softirq runs, and the titles of their shares."""
_CELL = TIME
_TOP_US = 1_000_000
_WIDE = 80
_NUMBERED, _GLYPHS = 4, 24
"""Number of CPUs up to which each has a number on every screen; least cells of the glyphs of more CPUs."""
_NUMBER, _MOST_GLYPHS = _CELL + 1, 4
"""Cells of a CPU with a number, and at most with a glyph; a blank is the last one of several."""
_SLOW_SHARE = 0.5
_PLACE_OF_CPU = 3
_REAL_TIME = 100
_NICE_0 = 120
IDLE = "none was busy"
_LOOPS = "permanent loops"
"""Note at a queue whose threads run endless tasks: it has no latency."""
PARTS = ("softirqs", "handlers", "wake-ups")
_PART_OF = {"raised": "softirqs", "interrupt": "handlers", "woken": "wake-ups"}
"""What the bar of a culprit begins with -> the table of what was late."""
TASKQS = "task queues"
"""Another table, where the kernel has task queues: illumos and Solaris."""
_WOKEN = "woken to running; "
_ABOUT = {
    "softirqs": (
        "delay from raise to entry, its p99 on each CPU; ran in irq, tick, or a task (ksoftirqd)",
        "delay from raise to entry; ran in irq, tick, or a task (ksoftirqd)",
        "ran in irq, tick, or a task (ksoftirqd)",
    ),
    "handlers": ("wait/s: time per second that other handlers ran before it", "wait/s: others ran before it"),
    TASKQS: (
        "waiting: no thread began them; run: a task's mean, no wait in it; a higher prio runs first",
        "waiting: no thread began them; run: a task's mean, no wait in it",
    ),
}
_LEAST = 3
"""Lines of a table: title, column titles, one row."""
_SECOND_US = 1e6
_MIN_MAP = 10
_CULPRIT_FROM = 12
"""Lines from which on the culprit is above the tables."""


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
    """CPU -> upper bound of the delay's p99; the maximum of fewer than 100 delays."""
    worst: int = -1
    """The CPU with the longest delay."""


def vectors(softirqs: Mapping[SoftirqCpu, SoftirqRuns], seconds: float) -> tuple[Vector, ...]:
    """Return the vectors, the one with the most time of late runs first, then the one with the longest delay."""
    vectors = [_softirq_vector(name, runs, softirqs, seconds) for name, runs in by_vector(softirqs).items()]
    return tuple(sorted(vectors, key=lambda v: (-time_from(v.delay, LATE_US), -(v.delay.max_bound or 0), v.name)))


def matrix(
    vectors: Sequence[Vector], selected: int, size: tuple[int, int], ink: Ink, *, first_cpu: int = 0
) -> list[Line]:
    """Return titles and a row per vector; at the right a number per CPU from `first_cpu` on, or a glyph where many."""
    cells, height = size
    cpus = sorted({cpu for v in vectors for cpu in v.p99_us})
    numbered = len(cpus) <= _NUMBERED
    beside = len(cpus) * (_CELL + 1) if numbered else _GLYPHS
    placed: Placed[Vector] = layout(_fields(numbered=numbered), cells - beside if cells >= _WIDE else cells)
    used = width(heads(placed))
    room = cells - used
    shown, each = _cpus(cpus, first_cpu, room)
    seen = around(len(vectors), selected, height - 1)
    lines = [(*heads(placed, above=seen.start), *_titles(shown, cpus, each))]
    for i in seen:
        line = (*row(placed, vectors[i], selected=i == selected), *_softirq_row(vectors[i], shown, each, ink))
        line = line if is_late(vectors[i].delay) else dimmed(line)
        line = fit(highlighted(line) if i == selected else line, cells)
        lines.append(targeted(line, Target(ROW, ("softirqs", vectors[i].name))))
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
    p99_us = delay.quantile(0.99)
    return p99_us if p99_us is not None else delay.max_bound or 0


def _fields(*, numbered: bool) -> list[Field[Vector]]:
    """Return the columns before those of CPUs. `numbered`: each CPU has a number, and the worst one is highlighted."""
    worst: Field[Vector] = Field("CPU", 3, lambda v, _: str(v.worst) if v.worst >= 0 else "-", role="dim")
    return [
        Field("softirq", 8, lambda v, _: v.name, right=False),
        Field("/s", 5, lambda v, _: rate(v.per_second)),
        Field("p50", _CELL, lambda v, _: quantile(v.delay, 0.5)),
        Field("p99", _CELL, lambda v, _: quantile(v.delay, 0.99)),
        Field("max", _CELL, lambda v, _: maximum(v.delay)),
        *([] if numbered else [worst]),
        Field("run p99", 7, lambda v, _: quantile(v.run, 0.99), rank=2),
        Field("run max", 7, lambda v, _: maximum(v.run), rank=2),
        *(_share(context, title) for context, title in CONTEXTS[:3]),
        Field("other", 5, lambda v, _: part_text(v.ran_in.get("other", 0.0) if v.ran_in else None), rank=2),
    ]


def _share(context: str, title: str) -> Field[Vector]:
    return Field(title, 4, lambda v, _: part_text(v.ran_in.get(context, 0.0) if v.ran_in else None), rank=1)


def _cpus(cpus: Sequence[int], first: int, room: int) -> tuple[list[int], int]:
    """Return the CPUs to show, and the cells of each: of a number where all CPUs have room for one, else of a glyph."""
    if len(cpus) * _NUMBER <= room:
        return list(cpus), _NUMBER
    if len(cpus) * 2 <= room:
        return list(cpus), min(room // len(cpus), _MOST_GLYPHS)
    begin = max(0, min(first, len(cpus) - 1))
    count = max(room - _CELL, 0)
    begin = max(0, min(begin, len(cpus) - count))
    return list(cpus[begin : begin + count]), 1


def _titles(shown: Sequence[int], cpus: Sequence[int], each: int) -> Line:
    if each == _NUMBER:
        return tuple(Span(f"{f'cpu{cpu}':>{_CELL}} ", "dim") for cpu in shown)
    if not shown:
        return ()
    names = [f"c{cpu}" for cpu in shown]
    if max(map(len, names)) < each:
        return (Span("".join(f"{name:<{each}}" for name in names), "dim"),)
    more = f"CPU {shown[0]}-{shown[-1]}" + (f" of {len(cpus)}" if len(shown) < len(cpus) else "")
    return (Span(more if len(more) <= len(shown) * each + _CELL else f"{shown[0]}-{shown[-1]}", "dim"),)


def _softirq_row(vector: Vector, shown: Sequence[int], each: int, ink: Ink) -> Line:
    """Return the p99 of each CPU, in a number or a glyph of `each` cells."""
    if each == _NUMBER:
        longest = max(vector.p99_us.values(), default=0)
        worst = longest if longest > min(vector.p99_us.values(), default=0) else -1
        return tuple(
            Span(
                f"{bound(us, vector.delay.max) if us is not None else '':>{_CELL}} ",
                "strong" if us == worst else "text",
            )
            for us in (vector.p99_us.get(cpu) for cpu in shown)
        )
    gap = (Span(" "),) if each > 1 else ()
    glyphs = (_glyph(vector.p99_us.get(cpu), ink) for cpu in shown)
    return tuple(span for glyph, role in glyphs for span in (Span(glyph * max(each - 1, 1), role), *gap))


def _glyph(us: int | None, ink: Ink) -> tuple[str, str]:
    """Return the glyph of a delay: about a step per half decade up to a second, the same for all."""
    return (" ", "text") if us is None else ink.cell(max(1, level(max(us, 1), _TOP_US, ink.levels)))


@dataclass(frozen=True, slots=True)
class HandlerRow:
    """One irqaction over the window."""

    handler: Handler
    runs: HandlerRuns
    per_second: float
    not_handled: float | None
    """Share of the runs that returned IRQ_NONE (not handled)."""
    waited_us: float
    """Time per second that other handlers of its vector ran before it."""

    @property
    def vector(self) -> int:
        """Return the interrupt that calls it: of handlers behind another one, as those of VMD, that one's."""
        return self.handler.irq if self.runs.caller == UNKNOWN_IRQ else self.runs.caller

    @property
    def is_mostly_not_handled(self) -> bool:
        """Return whether it shares its vector and most of its runs handled nothing."""
        return bool(self.runs.shared_with) and self.not_handled is not None and self.not_handled > _SLOW_SHARE


def handler_rows(handlers: Mapping[Handler, HandlerRuns], seconds: float) -> tuple[HandlerRow, ...]:
    """Return the handlers: shared vectors first, by their waiting time; on a vector the culprit, then the busiest."""
    handler_rows = [_handler_row(handler, runs, seconds) for handler, runs in handlers.items()]
    waited: dict[int, float] = {}
    for handler_row in handler_rows:
        waited[handler_row.vector] = waited.get(handler_row.vector, 0.0) + handler_row.waited_us
    return tuple(
        sorted(
            handler_rows,
            key=lambda r: (
                not r.runs.shared_with,
                -waited[r.vector],
                r.vector,
                not r.is_mostly_not_handled,
                -(r.runs.run.sum or 0),
                r.handler.name,
            ),
        )
    )


def _handler_row(handler: Handler, runs: HandlerRuns, seconds: float) -> HandlerRow:
    returned = sum(runs.returned.values())
    per = 1 / seconds if seconds > 0 else 0.0
    not_handled = runs.returned.get("none", 0) / returned if returned else None
    return HandlerRow(handler, runs, runs.run.count * per, not_handled, runs.before_us * per)


def _is_harmless(handler_row: HandlerRow) -> bool:
    """Return whether a handler neither ran for long nor waited, and handles what it is called for."""
    return (
        not is_late(handler_row.runs.run) and handler_row.waited_us < LATE_US and not handler_row.is_mostly_not_handled
    )


def _is_prompt(wakeups: Wakeups) -> bool:
    return not is_late(wakeups.delay)


def _not_handled(handler_row: HandlerRow, cells: int) -> Line:
    return (
        Span(f"{part_text(handler_row.not_handled):>{cells}}", "bad" if handler_row.is_mostly_not_handled else "text"),
    )


def _device(handler_row: HandlerRow, _cells: int) -> str:
    """Return a PCI address without the domain that hosts with one domain have; then it has seven cells."""
    return handler_row.runs.device.removeprefix("0000:") or UNKNOWN


def _cpus_of(handler_row: HandlerRow, cells: int) -> str:
    """Return the CPUs that the vector interrupts, and where they fit those that it may interrupt."""
    effective, allowed = handler_row.runs.effective_affinity, handler_row.runs.affinity
    if not effective or effective == allowed:
        return effective or allowed or UNKNOWN
    both = f"{effective} of {allowed}"
    return both if len(both) <= cells else effective


HANDLER_FIELDS: tuple[Field[HandlerRow], ...] = (
    Field("irq", 4, lambda r, _: UNKNOWN if r.vector == UNKNOWN_IRQ else str(r.vector)),
    Field("handler", 11, lambda r, _: r.handler.name, right=False, most=20),
    Field("device", 8, _device, rank=1, right=False, most=14, role="dim"),
    Field("/s", 5, lambda r, _: rate(r.per_second)),
    Field("p50", TIME, lambda r, _: quantile(r.runs.run, 0.5), rank=2),
    Field("p99", TIME, lambda r, _: quantile(r.runs.run, 0.99)),
    Field("max", TIME, lambda r, _: maximum(r.runs.run), rank=2),
    Field("not handled", 11, _not_handled),
    Field("wait/s", 6, lambda r, _: duration(r.waited_us) if r.waited_us else ""),
    Field("shared with", 11, lambda r, _: ", ".join(r.runs.shared_with), rank=1, right=False, most=60, role="dim"),
)
_CPU: Field[HandlerRow] = Field("CPU", 4, _cpus_of, rank=1, most=14)


def handler_fields(rows: Iterable[HandlerRow]) -> tuple[Field[HandlerRow], ...]:
    """Return the columns of handlers; that of CPUs only where any is known."""
    if not any(row.runs.affinity or row.runs.effective_affinity for row in rows):
        return HANDLER_FIELDS
    return (*HANDLER_FIELDS[:_PLACE_OF_CPU], _CPU, *HANDLER_FIELDS[_PLACE_OF_CPU:])


def wakeup_rows(threads: Iterable[Wakeups]) -> tuple[Wakeups, ...]:
    """Return the threads, the one with the most time of late runs first, then the one with the longest delay."""
    return tuple(
        sorted(
            threads,
            key=lambda w: (
                -time_from(w.delay, LATE_US),
                -(w.delay.max_bound or 0),
                -w.delay.count,
                w.thread.pid,
            ),
        )
    )


def policy(wakeups: Wakeups) -> str:
    """Return the priority as an administrator sets it: `fifo 50`, `nice -20`."""
    thread = wakeups.thread
    if thread.policy in ("fifo", "rr"):
        return f"{thread.policy} {_REAL_TIME - 1 - thread.priority}"
    if thread.policy in ("", "deadline"):
        return thread.policy or UNKNOWN
    nice = thread.priority - _NICE_0
    name = "nice" if thread.policy == "other" else thread.policy
    return f"{name} {nice}" if thread.priority >= _REAL_TIME else f"{thread.policy}"


def _instead(wakeups: Wakeups, cells: int) -> str:
    """Return the threads that ran instead with their times; without times, after which threads it ran how often.

    Those that don't fit are counted.
    """
    after = "" if wakeups.ran_us or not wakeups.instead else "after "
    most_first = sorted(wakeups.weights.items(), key=lambda item: -item[1])
    words = [f"{name} {duration(n) if wakeups.ran_us else f'x{whole(n)}'}" for name, n in most_first]
    variants = (after + ", ".join(words[:many]) for many in range(len(words), 0, -1))
    counted = (text if not left else f"{text} +{left}" for left, text in enumerate(variants))
    return next((text for text in counted if len(text) <= cells), after + words[0] if words else "")


WAKEUP_FIELDS: tuple[Field[Wakeups], ...] = (
    Field("thread", 15, lambda w, _: w.thread.comm, right=False, most=90),
    Field("pid", 7, lambda w, _: str(pid_of(w.thread.pid) or ""), rank=2, role="dim"),
    Field("policy", 8, lambda w, _: policy(w), rank=2, right=False),
    Field("prio", 4, lambda w, _: str(w.thread.priority), rank=1),
    Field("count", 5, lambda w, _: whole(w.delay.count), rank=1),
    Field("p50", TIME, lambda w, _: quantile(w.delay, 0.5), rank=2),
    Field("p99", TIME, lambda w, _: quantile(w.delay, 0.99)),
    Field("max", TIME, lambda w, _: maximum(w.delay)),
    Field("ran instead", 17, _instead, rank=1, right=False, most=80, role="dim", is_first=True),
)


def _rate(taskq_sum: TaskqSum) -> str:
    return UNKNOWN if taskq_sum.last.loops or taskq_sum.per_second is None else rate(taskq_sum.per_second)


def _mean(taskq_sum: TaskqSum) -> str:
    return UNKNOWN if taskq_sum.last.loops else duration(taskq_sum.mean_us)


_TASKQ_FIELDS: tuple[Field[TaskqSum], ...] = (
    Field("task queue", 15, lambda s, _: s.last.name, right=False, most=32),
    Field("instance", 8, lambda s, _: str(s.last.instance), rank=2, role="dim"),
    Field("prio", 4, lambda s, _: whole(s.last.priority)),
    Field("thr", 4, lambda s, _: whole(s.last.threads)),
    Field("active", 6, lambda s, _: whole(s.active)),
    Field("waiting", 7, lambda s, _: whole(s.waiting), role="strong"),
    Field("max", 5, lambda s, _: whole(s.last.most), rank=1, role="dim"),
    Field("done/s", 6, lambda s, _: _rate(s)),
    Field("run", TIME, lambda s, _: _mean(s)),
    Field("", 15, lambda s, _: _LOOPS if s.last.loops else "", rank=1, right=False, role="dim"),
)


@dataclass(frozen=True, slots=True)
class InterruptTables:
    """The rows of the tables in their order; keys find rows in the same order."""

    vectors: tuple[Vector, ...] = ()
    handlers: tuple[HandlerRow, ...] = ()
    threads: tuple[Wakeups, ...] = ()
    taskqs: tuple[TaskqSum, ...] | None = None
    """None where the system has none."""
    worst: Culprit | None = None
    """What delayed I/O most."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the tables; task queues only where nothing else is traced."""
        if self.taskqs is None:
            return PARTS
        return (*PARTS, TASKQS) if self.traced else (TASKQS,)

    @property
    def drawn(self) -> tuple[str, ...]:
        """Return the names in the order of the screen: the table of the worst delay first, the others as Tab goes."""
        if self.worst is None or not self.traced:
            return self.parts
        first = PARTS.index(_PART_OF[self.worst.begin])
        return (*PARTS[first:], *PARTS[:first], *self.parts[len(PARTS) :])

    @property
    def by_rows(self) -> tuple[str, ...]:
        """Return `drawn` with the tables without rows last."""
        return tuple(sorted(self.drawn, key=lambda part: not self.rows(part)))

    @property
    def traced(self) -> bool:
        """Return whether any table has traced rows."""
        return bool(self.vectors or self.handlers or self.threads)

    def rows(self, part: str) -> int:
        """Return the number of rows of a table."""
        table_rows = (self.vectors, self.handlers, self.threads, self.taskqs or ())
        return len(table_rows[(*PARTS, TASKQS).index(part)])


def interrupts_of(
    runs: Mapping[SoftirqCpu, SoftirqRuns],
    by_handler: Mapping[Handler, HandlerRuns],
    threads: Iterable[Wakeups],
    seconds: float,
    queues: tuple[TaskqSum, ...] | None = None,
) -> InterruptTables:
    """Return the tables of traced values that cover `seconds`."""
    return InterruptTables(vectors(runs, seconds), handler_rows(by_handler, seconds), wakeup_rows(threads), queues)


def interrupts(
    shown: InterruptTables,
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
    """Return the lines of the tables.

    `focus`: the table with the selection; `why`: the reason for an empty table; `reasons`: the same by table;
    `no_softirqs`: why softirqs can't be measured; `kernel`: the host's, which defines the scale of priorities.
    """
    lines: list[Line] = []
    if not shown.traced:
        lines = empty_panel(why, width, height)
        if shown.taskqs is None:
            return [fit(line, width) for line in cut(lines, height)]
        lines.append(BLANK)
    focus = focus if focus in shown.parts else shown.parts[0]
    for part, rows in shares(shown, focus, max(height - len(lines), 1)).items():
        reason = IDLE if part == TASKQS else reasons.get(part, why)
        if part == "softirqs" and no_softirqs:
            reason = no_softirqs
        if not shown.rows(part):
            empty = _empty(part, reason, width, focused=part == focus)
            lines += [targeted(line, Target(PART, part)) for line in empty]
            continue
        at, size = (selected if part == focus else -1), (width, rows - 1)
        title = _title(part, shown.rows(part), rows - 2, width, _about(part, kernel), focused=part == focus)
        lines.append(targeted(title, Target(PART, part)))
        if part == "softirqs":
            lines += matrix(shown.vectors, at, size, ink, first_cpu=first_cpu)
        elif part == "handlers":
            fields = handler_fields(shown.handlers)
            lines += table(
                fields,
                shown.handlers,
                at,
                size,
                is_dim=_is_harmless,
                target_of=lambda handler: Target(ROW, ("handlers", handler.handler)),
            )
        elif part == "wake-ups":
            lines += table(
                WAKEUP_FIELDS,
                shown.threads,
                at,
                size,
                is_dim=_is_prompt,
                target_of=lambda woken: Target(ROW, ("wake-ups", woken.thread.pid)),
            )
        else:
            lines += table(
                _TASKQ_FIELDS,
                shown.taskqs or (),
                at,
                size,
                target_of=lambda queue: Target(ROW, (TASKQS, (queue.last.name, queue.last.instance))),
            )
    return [fit(line, width) for line in cut(lines, height)]


def needed(shown: InterruptTables) -> int:
    """Return the lines that show every row; a delay map gets the rest of the screen."""
    return sum(_lines_of(shown, part) for part in shown.parts)


def _lines_of(shown: InterruptTables, part: str) -> int:
    """Return the lines of a table with all of its rows: its titles too; one without rows has its reason alone."""
    return shown.rows(part) + 2 if shown.rows(part) else 1


def _empty(part: str, reason: str, width: int, *, focused: bool) -> list[Line]:
    """Return the row in place of a table without rows: its name and why it has none, a long reason in more rows."""
    sentence = reason if reason.startswith(part) else f"{part}: {reason}"
    first, *more_lines = wrap(sentence, width - 2)
    name = first[: len(part)]
    head = (Span(f" {name}", "accent" if focused else "dim"), Span(first[len(name) :], "dim"))
    return [fit(line, width) for line in (head, *((Span(f" {text}", "dim"),) for text in more_lines))]


def shares(shown: InterruptTables, focus: str, height: int) -> dict[str, int]:
    """Return the lines per table: each as many as it needs, the focused one first.

    Where three lines each don't fit, only the focused table is shown.
    """
    wanted = {part: _lines_of(shown, part) for part in shown.by_rows}
    given = {part: min(lines, _LEAST) for part, lines in wanted.items()}
    if height < sum(given.values()):
        return {focus: min(wanted[focus], height)}
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
    """Return texts on the columns of a table, the longest first."""
    if part != "wake-ups":
        return _ABOUT[part]
    scales = priority_scales(kernel)
    return (*(_WOKEN + scale for scale in scales[:-1]), *scales)


def _title(part: str, total: int, rows: int, width: int, about: Sequence[str], *, focused: bool) -> Line:
    """Return the name of a table, the number of rows shown, and the longest text on the columns that fits."""
    rows_text = f"  {rows} of {total}" if rows < total else ""
    room = width - len(part) - len(rows_text) - 3 - ends(width)
    role = "accent" if focused else "strong"
    caption = next((f"  {text}" for text in about if len(text) <= room), "")
    return heading((Span(f" {part}", role), Span(rows_text), Span(caption, "dim")), width)


def tables(view: ViewState) -> InterruptTables:
    """Return the tables as they are shown."""
    on_demand, window = view.history.on_demand, view.history.window
    seconds = max(window.covered_us, 1) / _SECOND_US

    def made() -> InterruptTables:
        shown = interrupts_of(
            on_demand[SOFTIRQS],
            on_demand[HANDLERS],
            exact_delays(on_demand[WAKEUPS].values(), on_demand.outliers),
            seconds,
            summed(frame.taskqs for frame in window.frames),
        )
        received_in = _received_in(view, [vector.name for vector in shown.vectors])
        return replace(shown, worst=culprit(shown.vectors, shown.handlers, shown.threads, seconds, received_in))

    return view.history.made("interrupts", made)


def names(shown: InterruptTables, part: int) -> Sequence[Hashable]:
    """Return the key of each row of a table, by which it stays selected when rows change places."""
    rows: dict[str, Sequence[Hashable]] = {
        "softirqs": [v.name for v in shown.vectors],
        "handlers": [h.handler for h in shown.handlers],
        "wake-ups": [w.thread.pid for w in shown.threads],
        TASKQS: [(s.last.name, s.last.instance) for s in shown.taskqs or ()],
    }
    return rows[focused(shown, part)]


def focused(shown: InterruptTables, part: int) -> str:
    """Return the table with the selection; the first one where the selected one is gone."""
    return shown.parts[part if part < len(shown.parts) else 0]


def interrupt_position(row_keys: Sequence[Hashable], row: Hashable | None) -> int:
    """Return the position of the selected row; the first one where none is selected or it is gone."""
    return row_keys.index(row) if row in row_keys else 0


def interrupts_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the tables, with a vector's delay map below where it fits; an opened vector's map only."""
    origin, selection = view.origin, view.selection
    if origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    if selection.opened:
        return _delays(view, str(selection.row), width, room)
    shown = tables(view)
    above = _culprit(view, shown, width) if room >= _CULPRIT_FROM and shown.traced else []
    room -= len(above)
    left = room - needed(shown) - 1
    lines = interrupts(
        shown,
        width,
        room,
        view.ink,
        focus=focused(shown, selection.part),
        selected=interrupt_position(names(shown, selection.part), selection.row),
        first_cpu=selection.first_cpu,
        why=_why(view, "interrupts", *PARTS),
        reasons={part: _why(view, part, part) for part in PARTS},
        no_softirqs=no_softirqs(origin),
        kernel=origin.kernel,
    )
    lines = [*above, *lines]
    if left < _MIN_MAP or not shown.vectors:
        return lines
    return [*lines, BLANK, *_delays(view, _vector(shown, selection.row), width, left)]


def _culprit(view: ViewState, shown: InterruptTables, width: int) -> list[Line]:
    """Return the lines of what delayed I/O most."""
    return culprit_lines(shown.worst, width, view.selection.threshold_us, view.history.on_demand.outliers)


def _received_in(view: ViewState, names: Sequence[str]) -> frozenset[str]:
    """Return the softirqs of the network that completions of the devices wait for, by their names in the table."""
    paths = view.history.on_demand.traced.paths
    return frozenset(
        in_table(vector, device.name, names)
        for device in view.history.devices()
        for vector in vectors_of(device, paths.get(device.name, {}))
        if vector in NETWORK_VECTORS
    )


def _why(view: ViewState, what: str, *parts: str) -> str:
    state, mode = view.tracing, view.selection.stages
    if state == MEASURING and view.history.on_demand.traced.histograms:
        state = "the tracer runs and recorded none of them in this time"
    elif not state and mode == "auto" and not view.recorded:
        state = "not traced yet: this screen requests it; S S traces all devices, always"
    return not_traced(what, view.origin, parts, mode=mode, recorded=view.recorded, state=state)


def _vector(shown: InterruptTables, row: Hashable | None) -> str:
    """Return the selected vector, else the one with the longest delay."""
    return next((v.name for v in shown.vectors if v.name == row), shown.vectors[0].name)


def _delays(view: ViewState, vector: str, width: int, room: int) -> list[Line]:
    """Return the delay map of a vector; it has its own timeline and scales."""
    history, origin, sweep = view.history, view.origin, view.delay_map
    last = history.window.last
    assert origin is not None and last is not None  # noqa: S101, PT018  drawn only once there is a frame
    cut = shape(cells_of(width), view.selection.window_us, history.interval_us, sweep=view.selection.sweep)
    timeline = sweep.slots(
        cut,
        OPS,
        lambda: delay_frames(history.on_demand.delays, last),
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    seen_us = timeline.columns[-1].mono_us if timeline.columns else 0
    for frame in delay_frames([delay for delay in history.on_demand.delays if delay[0] > seen_us], last):
        sweep.advance(frame)
    timeline.note(history.moments())
    delay = next((v.delay for v in tables(view).vectors if v.name == vector), EMPTY)
    style = sweep.style(
        timeline,
        {vector: timeline.counts(vector)},
        (cells_of(width), room - 2),
        view.ink,
        tick_us(origin.hz),
    )
    over_us = view.selection.window_us
    return delay_map(timeline, vector, style, width, hz=origin.hz, over_us=over_us, delay=delay)
