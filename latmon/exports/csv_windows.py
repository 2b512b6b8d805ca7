"""csv: one row per window, device, op and stage, with what a spreadsheet needs worked out.

Quantiles are upper bounds of their buckets, as everywhere; one that the counts don't carry is an empty cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from latmon.exports.cells import names, row, stamp
from latmon.exports.source import Damage, Source, Told
from latmon.exports.wish import Wish
from latmon.histogram import EMPTY, Histogram
from latmon.mark import Mark
from latmon.model import Flow, Frame, Origin, Outstanding, Series
from latmon.recording import Gap

QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
HEADER = (
    *("time", "mono_us", "dt_us", "device", "op", "stage", "population", "count", "sum_us", "max_us"),
    *QUANTILES,
    *("completed", "bytes", "above_threshold", "in_driver", "queued", "lost_events", "note"),
    "includes",
)
_UNKNOWN = Outstanding(None, None)
_BEHIND_TIME = len(HEADER) - 5
"""Cells between the three of the time and the note."""


def write(source: Source, out: BinaryIO, _wish: Wish) -> None:
    """The rows of all windows."""
    out.write(row(HEADER))
    if source.redacted:
        out.write(_note(None, None, None, "redacted"))
    out.writelines(b"".join(_rows(item, source.origin)) for item in source.told())


def _rows(item: Told, origin: Origin) -> Iterator[bytes]:
    if isinstance(item, Frame):
        yield from _window(item, origin)
    elif isinstance(item, Gap):
        us = round(item.seconds * 1e6)
        yield _note(stamp(item.wall + item.seconds), item.mono_us + us, us, f"gap: {item.reason}")
    elif isinstance(item, Mark):
        yield _note(stamp(item.wall), item.mono_us, None, f"mark: {item.text}")
    elif isinstance(item, Damage):
        yield _note(None, None, None, f"damage: {item.text}")


def _note(time: str | None, mono_us: int | None, dt_us: int | None, text: str) -> bytes:
    return row((time, mono_us, dt_us, *(None,) * _BEHIND_TIME, text, None))


def _window(frame: Frame, origin: Origin) -> Iterator[bytes]:
    begin = (stamp(frame.wall), frame.mono_us, frame.dt_us)
    lost = frame.health.lost_events
    told = False
    flows = dict.fromkeys((*frame.seen, *frame.kernel, *(Flow(s.device, s.op) for s in frame.histograms)))
    idle = (name for name, now in frame.outstanding.items() if now.known and not any(f.device == name for f in flows))
    rest = [series for series in frame.histograms if series.stage != "total"]
    for flow in (*flows, *(Flow(name, "") for name in idle)):
        one = frame.histograms.get(Series(*flow, "total"), EMPTY)
        done = frame.kernel.get(flow) or frame.seen.get(flow)
        now = frame.outstanding.get(flow.device, _UNKNOWN)
        time_us = one.sum if one else done.time_us if done else None
        yield row(
            (
                *begin, *flow, "total", "all", one.count, time_us, *_figures(one),
                done.count if done else None, done.bytes if done else None, frame.above.get(flow),
                now.in_driver, now.queued, lost, frame.health.notice if not told else None, None,
            )
        )  # fmt: skip
        told = True
    parts = [(series, frame.histograms[series], "all", origin.measured) for series in rest]
    traced = frame.traced
    parts += [(series, one, "traced", traced.includes_of(series.device)) for series, one in traced.histograms.items()]
    for series, one, population, includes in parts:
        inside = names(includes.get(series.stage, ()))
        yield row((*begin, *series, population, one.count, one.sum, *_figures(one), *(None,) * 5, lost, None, inside))
    if not told:
        yield row((*begin, *(None,) * (_BEHIND_TIME - 1), lost, frame.health.notice or None, None))


def _figures(one: Histogram) -> tuple[int | None, ...]:
    return one.max, *(one.quantile(q) for q in QUANTILES.values())
