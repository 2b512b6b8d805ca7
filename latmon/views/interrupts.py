"""The interrupts view: softirqs per CPU, handlers per vector, wake-ups per thread, task queues, in one panel. Pure.

`Interrupts` is made once per frame; `interrupts` draws it, the focused part with the most lines. The heat map of a
vector's delay is delays.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from latmon import priorities
from latmon.model import Handler, HandlerRuns, SoftirqCpu, SoftirqRuns, Wakeups
from latmon.taskqs import Summed
from latmon.views import handlers, softirqs, taskqs, wakeups
from latmon.views.heatmap import Ink
from latmon.views.lines import BLANK, Line, Span, fit, wrap

PARTS = ("softirqs", "handlers", "wake-ups")
TASKQS = "task queues"
"""A part of its own where the kernel has them: illumos and Solaris."""
_WOKEN = "woken to running; "
_ABOUT = {
    "softirqs": ("raise to entry; cpu: of the max; irq tick ksd: ran there",),
    "handlers": ("none: not its own; wait/s: others' runs before its own",),
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

    vectors: tuple[softirqs.Vector, ...] = ()
    handlers: tuple[handlers.HandlerRow, ...] = ()
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
    return Interrupts(
        softirqs.vectors(runs, seconds), handlers.rows(by_handler, seconds), wakeups.rows(threads), queues
    )


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
            lines += softirqs.matrix(
                shown.vectors, at, size, ink, first_cpu=first_cpu, why=no_softirqs or reasons.get(part, why)
            )
        elif part == "handlers":
            lines += handlers.handlers(shown.handlers, at, size, why=reasons.get(part, why))
        elif part == "wake-ups":
            lines += wakeups.wakeups(shown.threads, at, size, why=reasons.get(part, why))
        else:
            lines += taskqs.taskqs(shown.taskqs or (), at, size)
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
