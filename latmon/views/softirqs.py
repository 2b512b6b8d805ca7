"""The softirq x CPU matrix: per vector how often, how long it waited and ran, where; per CPU the wait's p99. Pure.

`vectors` sums once per frame, `matrix` draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latmon.deep import by_vector
from latmon.histogram import EMPTY, Histogram
from latmon.model import SoftirqCpu, SoftirqRuns
from latmon.views.columns import Field, Placed, around, heads, layout, row
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, fit, width
from latmon.views.scale import level
from latmon.views.units import bound, maximum, part, quantile, rate

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
    found = [_vector(name, runs, softirqs, seconds) for name, runs in by_vector(softirqs).items()]
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
    lines += [(*row(placed, some[i], selected=i == selected), *_row(some[i], shown, wide, ink)) for i in seen]
    return [fit(line, cells) for line in lines][:height]


def _vector(name: str, runs: SoftirqRuns, softirqs: Mapping[SoftirqCpu, SoftirqRuns], seconds: float) -> Vector:
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
        Field("othr", 4, lambda v, _: part(v.ran_in.get("other", 0.0) if v.ran_in else None), rank=2),
    ]


def _share(context: str, title: str) -> Field[Vector]:
    return Field(title, 4, lambda v, _: part(v.ran_in.get(context, 0.0) if v.ran_in else None), rank=1)


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


def _row(one: Vector, shown: Sequence[int], wide: bool, ink: Ink) -> Line:
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
