"""A softirq vector's delay as a heat map, the kernel's tick drawn as a line: what waits for it piles up below. Pure.

`delay_frames` makes frames of the delays that a Timeline (or the sweep) can cut into columns, with the vector as the
device and OPS as its ops; `delay_map` draws one vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from latmon.histogram import Histogram
from latmon.model import Frame, Series
from latmon.views.heatmap import LABEL, TOTALS, MapStyle, axis, labelled
from latmon.views.lines import Line, Span, fit, wrap
from latmon.views.timeline import Timeline
from latmon.views.units import count, duration, span

OPS = ("delay",)
_SECOND_US = 1_000_000


def delay_frames(delays: Iterable[tuple[int, Mapping[str, Histogram]]], last: Frame) -> Iterator[Frame]:
    """`delays`: (a frame's end, vector -> delays), oldest first; `last`: a frame that tells the clocks' distance."""
    before: int | None = None
    for number, (mono_us, by_vector) in enumerate(delays):
        dt_us = last.dt_us if before is None else min(mono_us - before, max(2 * last.dt_us, 1))
        before = mono_us
        histograms = {Series(vector, OPS[0], "total"): h for vector, h in by_vector.items() if h}
        yield Frame(number, last.wall + (mono_us - last.mono_us) / 1e6, mono_us, dt_us, histograms)


def tick_us(hz: int | None) -> int | None:
    """The kernel's tick; None where CONFIG_HZ isn't known."""
    return _SECOND_US // hz if hz else None


def delay_map(
    timeline: Timeline, vector: str, style: MapStyle, width: int, *, hz: int | None, over_us: int
) -> list[Line]:
    """Return a headline, the rows of `style.scale` and the time axis; `over_us`: the length of the window."""
    waits = sum(n for c in timeline.columns for n in c.counts.get(vector, {}).values())
    tick = tick_us(hz)
    over = span(over_us)
    said = f"{count(waits)} waits in {over}" if waits else f"no delayed run in the last {over}"
    line = (
        f", {style.ink.line} tick {duration(tick)} (CONFIG_HZ={hz})" if tick else ", CONFIG_HZ not known: no tick line"
    )
    drawn = replace(style, threshold_us=tick)
    head = fit((Span(f" {vector}", "accent"), Span(f" delay  {said}"), Span(line, "dim")), width)
    if not waits:
        return [head, *((Span(f"  {t}"),) for t in wrap(said, width - 4))]
    return [head, *labelled(timeline, vector, drawn, width), fit(axis(timeline, drawn), width)]


def room(width: int) -> int:
    """Cells that a delay map has for its columns."""
    return max(width - LABEL - TOTALS, 2)
