"""csv --buckets: tidy, one row per bucket that holds I/Os. Everything that was counted, and nothing worked out.

A row without a device counts nothing: it says that there was a window, idle or not, or what is missing (`gap: ...`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from latmon.exports.cells import names, row, stamp
from latmon.exports.source import Damage, Source, Told
from latmon.exports.wish import Wish
from latmon.histogram import bucket_bounds
from latmon.mark import Mark
from latmon.model import Frame, Origin
from latmon.recording import Gap

HEADER = ("time", "mono_us", "dt_us", "device", "op", "stage", "low_us", "high_us", "count", "includes")
TRACED = "traced."
"""Before the stages of the I/Os that deep probes traced: a population of its own."""


def write(source: Source, out: BinaryIO, _wish: Wish) -> None:
    """The rows of all windows."""
    out.write(row(HEADER))
    if source.redacted:
        out.write(row((None, None, None, None, None, "redacted", None, None, 0, None)))
    out.writelines(b"".join(_rows(item, source.origin)) for item in source.told())


def _rows(item: Told, origin: Origin) -> Iterator[bytes]:
    if isinstance(item, Frame):
        yield _note(item.wall, item.mono_us, item.dt_us, "")
        yield from _counts(item, origin)
    elif isinstance(item, Gap):
        us = round(item.seconds * 1e6)
        yield _note(item.wall + item.seconds, item.mono_us + us, us, f"gap: {item.reason}")
    elif isinstance(item, Mark):
        yield _note(item.wall, item.mono_us, None, f"mark: {item.text}")
    elif isinstance(item, Damage):
        yield row((None, None, None, None, None, f"damage: {item.text}", None, None, 0, None))


def _note(wall: float, mono_us: int, dt_us: int | None, what: str) -> bytes:
    return row((stamp(wall), mono_us, dt_us, None, None, what, None, None, 0, None))


def _counts(frame: Frame, origin: Origin) -> Iterator[bytes]:
    begin = (stamp(frame.wall), frame.mono_us, frame.dt_us)
    for histograms, before in ((frame.histograms, ""), (frame.traced.histograms, TRACED)):
        for series, one in histograms.items():
            includes = frame.traced.includes_of(series.device) if before else origin.measured
            inside = names(includes.get(series.stage, ()))
            for index, n in one.buckets:
                low, high = bucket_bounds(index, one.bits)
                yield row((*begin, series.device, series.op, before + series.stage, low, high, n, inside))
