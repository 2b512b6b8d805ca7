"""Windows become frames, on one clock that goes on where the text tells no time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from latmon.histogram import Histogram, merge
from latmon.imports import buckets
from latmon.imports.found import Asked
from latmon.imports.windows import Built, Placed, Window
from latmon.mark import Mark
from latmon.model import Completed, Device, Flow, Frame, Health, Outlier
from latmon.text import clean

RELATIVE_BELOW = 1e8
"""A time before 1973 is one since a boot or a trace's begin."""
_SENTENCE = 1000
_LONGEST_US = 60_000_000
"""Between two times: longer ones are holes, not windows."""


def frames(built: Built, asked: Asked) -> Iterator[Frame]:
    """In order, on one clock that goes on where the text tells no time."""
    start = asked.start or 0.0
    wall_before: float | None = None
    mono = 0
    known: set[str] = set()
    for seq, one in enumerate(built.windows):
        if one.whole is not None:
            frame = replace(one.whole, seq=seq, health=_health(one, one.whole.health))
            wall_before, mono = frame.wall, frame.mono_us
        else:
            told = None if one.wall is None else one.wall + (start if one.wall < RELATIVE_BELOW else 0.0)
            away = None if told is None or wall_before is None else round((told - wall_before) * 1e6)
            passed = away if away is not None and away > 0 else one.dt_us or asked.interval_us
            dt = one.dt_us or (passed if passed <= _LONGEST_US else asked.interval_us)
            mono += passed if seq else dt
            wall = told if told is not None else (start if wall_before is None else wall_before) + dt / 1e6
            frame, wall_before = _frame(one, seq, (wall, mono, dt), asked), wall
        new = sorted(_devices(frame) - known - {device.name for device in frame.devices})
        known |= {*new, *(device.name for device in frame.devices)}
        yield replace(frame, devices=(*frame.devices, *(_device(name) for name in new)))


def _frame(one: Window, seq: int, when: tuple[float, int, int], asked: Asked) -> Frame:
    wall, mono, dt = when
    histograms = {series: _histogram(placed) for series, placed in one.tables.items()}
    for series, parts in one.times.items():
        histograms[series] = merge([*([histograms[series]] if series in histograms else []), *parts])
    begun = mono - dt
    outliers = tuple(
        replace(o, wall=o.wall or wall - dt / 1e6, mono_us=max(0, o.mono_us or begun)) for o in one.outliers
    )
    return Frame(
        seq=seq,
        wall=wall,
        mono_us=mono,
        dt_us=dt,
        histograms=histograms,
        seen=_seen(one),
        kernel=one.kernel,
        outliers=outliers,
        above=_above(outliers),
        thresholds_us=_thresholds(outliers, asked),
        taskqs=one.taskqs,
        outstanding=one.outstanding,
        depths=one.depths,
        health=replace(_health(one, Health()), suppressed=one.suppressed),
        marks=(Mark(one.run, begun, max(0.0, wall - dt / 1e6)),) if one.run else (),
    )


def _seen(one: Window) -> dict[Flow, Completed]:
    """A table of whole latencies has a count for each I/O; no bytes."""
    told = {
        Flow(series.device, series.op): Completed(placed.table.count, 0, placed.table.sum_us)
        for series, placed in one.tables.items()
        if series.stage == "total"
    }
    return told | one.seen


def _histogram(placed: Placed) -> Histogram:
    table = placed.table
    return buckets.histogram(placed.ranges, buckets.bits_of(placed.ranges), table.sum_us, table.max_us)


def _above(outliers: Iterable[Outlier]) -> dict[Flow, int]:
    found: dict[Flow, int] = {}
    for one in outliers:
        flow = Flow(one.device, one.op)
        found[flow] = found.get(flow, 0) + 1
    return found


def _thresholds(outliers: Iterable[Outlier], asked: Asked) -> dict[str, int]:
    """A tool that lists slow I/Os only has a threshold of its own, which can't be above the least of them."""
    found: dict[str, int] = {}
    for one in outliers:
        found[one.device] = min(found.get(one.device, asked.threshold_us), one.total_us)
    return found


def _health(one: Window, health: Health) -> Health:
    notice = "; ".join((*([health.notice] if health.notice else []), *one.notices))
    return replace(health, notice=clean(notice, _SENTENCE), lost_events=health.lost_events + one.lost)


def _devices(frame: Frame) -> set[str]:
    flows: tuple[Mapping[Any, Any], ...] = (frame.histograms, frame.seen, frame.kernel)
    return {key.device for of in flows for key in of} | {*frame.outstanding, *frame.depths}


def _device(name: str) -> Device:
    """Nothing but its name is known."""
    return Device(name, 0, 0, kind="other")
