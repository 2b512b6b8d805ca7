"""Interrupt handlers as a table: who runs on which vector, how long, how often for nothing, and who waits behind. Pure.

`rows` sorts once per frame, `handlers` draws. A handler that is never the one that was meant still takes its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latmon.model import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.views.columns import Field, table
from latmon.views.lines import Line, Span
from latmon.views.units import UNKNOWN, duration, maximum, part, quantile, rate

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


def rows(handlers: Mapping[Handler, HandlerRuns], seconds: float) -> tuple[HandlerRow, ...]:
    """Shared vectors first, of these the one with the most waiting; on a vector the culprit, then the busiest."""
    found = [_row(handler, runs, seconds) for handler, runs in handlers.items()]
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
    return table(_FIELDS, some, selected, size, why=why)


def _row(handler: Handler, runs: HandlerRuns, seconds: float) -> HandlerRow:
    returned = sum(runs.returned.values())
    per = 1 / seconds if seconds > 0 else 0.0
    not_mine = runs.returned.get("none", 0) / returned if returned else None
    return HandlerRow(handler, runs, runs.run.count * per, not_mine, runs.before_us * per)


def _not_mine(one: HandlerRow, cells: int) -> Line:
    return (Span(f"{part(one.not_mine):>{cells}}", "bad" if one.culprit else "text"),)


_FIELDS: tuple[Field[HandlerRow], ...] = (
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
