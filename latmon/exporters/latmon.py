"""Exports in latmon's own formats, which `latmon import` reads: CSV and JSON Lines.

CSV (RFC 4180, UTF-8) has a row per window and series, with --buckets per bucket, with --who per issuer or file.
Quantiles are upper bounds of their buckets, as everywhere; a quantile of too few I/Os is an empty cell. A row without a
device counts nothing: it is for a window, idle or not, or for what is missing (`gap: ...`).

JSON Lines are the recording's own lines, unpacked; an unreadable line becomes a `damage` line. Every line is decoded
and encoded again in ASCII, so that a hostile one can't command the terminal that shows it. Lines of types that this
version doesn't know are passed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from latmon.exporters.registry import DamageNote, ExportOptions, Item, Reported, Source
from latmon.model.frame import Flow, Frame, Mark, Origin, Outstanding, Series
from latmon.model.histogram import EMPTY, Histogram, bucket_bounds
from latmon.model.measurements import ABOVE, ERRORS, TABLES
from latmon.model.table import AnyTable, Unit
from latmon.recording import codec
from latmon.recording.codec import Gap
from latmon.recording.json_line import parse
from latmon.recording.rollup import KIND
from latmon.recording.unreported_gaps import UnreportedGaps
from latmon.support.units import rfc3339

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
WINDOW_HEADER = (
    *("time", "mono_us", "dt_us", "device", "op", "stage", "population", "count", "sum_us", "max_us"),
    *QUANTILES,
    *("completed", "bytes", "above_threshold", "in_driver", "queued", "lost_events", "note"),
    *("includes", "failed"),
)
_UNKNOWN = Outstanding(None, None)
_BEHIND_TIME = len(WINDOW_HEADER) - 6
"""Cells between the three of the time and the note, which two more follow."""
BUCKET_HEADER = ("time", "mono_us", "dt_us", "device", "op", "stage", "low_us", "high_us", "count", "includes")
TRACED = "traced."
"""Prefix of the stages of traced I/Os, which are counted apart from all I/Os."""
WHO_HEADER = (
    *("time", "mono_us", "dt_us", "table", "device", "op", "name", "detail", "count", "bytes", "sum_us", "max_us"),
    *QUANTILES,
    "note",
)
_WhoCells = tuple[str, str, str, str | None, str | None, int | None, int | None, Histogram, int | None]
"""Table, device, op, name, detail, count, bytes, latencies and, without those, the sum of the time."""
_OF_IOS = tuple(table for table in TABLES if table.counts_ios)


def row(cells: Iterable[object]) -> bytes:
    """Return one line; None is an empty cell."""
    return (",".join(map(_cell, cells)) + "\r\n").encode("utf-8", "backslashreplace")


def names(words: Iterable[str]) -> str | None:
    """Return several names as one cell, with blanks between; None for none."""
    return " ".join(words) or None


def stamp(wall: float) -> str | None:
    """Return RFC 3339 in UTC, to the microsecond; None for a stamp beyond the calendar."""
    return rfc3339(wall, "microseconds")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if text.startswith(_FORMULA):
        text = f"'{text}"
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(c in text for c in ',"\r\n') else text


def write_windows(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write the rows of all windows."""
    out.write(row(WINDOW_HEADER))
    if source.redacted:
        out.write(_window_note(None, None, None, "redacted"))
    out.writelines(b"".join(_window_rows(item, source.origin)) for item in source.reported())


def _window_rows(item: Reported, origin: Origin) -> Iterator[bytes]:
    if isinstance(item, Frame):
        yield from _window(item, origin)
    else:
        yield _window_note(*_note(item))


def _window_note(time: str | None, mono_us: int | None, dt_us: int | None, text: str) -> bytes:
    return row((time, mono_us, dt_us, *(None,) * _BEHIND_TIME, text, None, None))


def _note(item: Gap | Mark | DamageNote) -> tuple[str | None, int | None, int | None, str]:
    """Return time, mono_us, dt_us and text of an item that is no window."""
    if isinstance(item, Gap):
        us = round(item.seconds * 1e6)
        return stamp(item.wall + item.seconds), item.mono_us + us, us, f"gap: {item.reason}"
    if isinstance(item, Mark):
        return stamp(item.wall), item.mono_us, None, f"mark: {item.sentence}"
    return None, None, None, f"damage: {item.text}"


def _window(frame: Frame, origin: Origin) -> Iterator[bytes]:
    begin = (stamp(frame.wall), frame.mono_us, frame.dt_us)
    lost = frame.health.lost_events
    reported = False
    flows = dict.fromkeys((*frame.seen, *frame.kernel, *(Flow(s.device, s.op) for s in frame.histograms)))
    idle = (name for name, now in frame.outstanding.items() if now.known and not any(f.device == name for f in flows))
    other_series = [series for series in frame.histograms if series.stage != "total"]
    failed: Counter[Flow] = Counter()
    for key, ios in frame[ERRORS].items():
        failed[Flow(key.device, key.op)] += ios
    counts_failed = ERRORS.name in origin.counted
    for flow in (*flows, *(Flow(name, "") for name in idle)):
        histogram = frame.histograms.get(Series(*flow, "total"), EMPTY)
        done = frame.kernel.get(flow) or frame.seen.get(flow)
        now = frame.outstanding.get(flow.device, _UNKNOWN)
        time_us = histogram.sum if histogram else done.time_us if done else None
        yield row(
            (
                *begin, *flow, "total", "all", histogram.count, time_us, *_figures(histogram),
                done.count if done else None, done.bytes if done else None, frame[ABOVE].get(flow),
                now.in_driver, now.queued, lost, frame.health.notice if not reported else None, None,
                failed[flow] if flow.op and (counts_failed or flow in failed) else None,
            )
        )  # fmt: skip
        reported = True
    parts = [(series, frame.histograms[series], "all", origin.measured) for series in other_series]
    traced = frame.traced
    parts += [
        (series, histogram, "traced", traced.includes_of(series.device))
        for series, histogram in traced.histograms.items()
    ]
    for series, histogram, population, includes in parts:
        inside = names(includes.get(series.stage, ()))
        yield row(
            (
                *begin,
                *series,
                population,
                histogram.count,
                histogram.sum,
                *_figures(histogram),
                *(None,) * 5,
                lost,
                None,
                inside,
                None,
            )
        )
    if not reported:
        yield row((*begin, *(None,) * (_BEHIND_TIME - 1), lost, frame.health.notice or None, None, None))


def _figures(histogram: Histogram) -> tuple[int | None, ...]:
    return histogram.max, *(histogram.quantile(q) for q in QUANTILES.values())


def write_buckets(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write the rows of all windows."""
    out.write(row(BUCKET_HEADER))
    if source.redacted:
        out.write(_bucket_note(None, None, None, "redacted"))
    out.writelines(b"".join(_bucket_rows(item, source.origin)) for item in source.reported())


def _bucket_rows(item: Reported, origin: Origin) -> Iterator[bytes]:
    if isinstance(item, Frame):
        yield _bucket_note(stamp(item.wall), item.mono_us, item.dt_us, "")
        yield from _counts(item, origin)
    else:
        yield _bucket_note(*_note(item))


def _bucket_note(time: str | None, mono_us: int | None, dt_us: int | None, text: str) -> bytes:
    return row((time, mono_us, dt_us, None, None, text, None, None, 0, None))


def _counts(frame: Frame, origin: Origin) -> Iterator[bytes]:
    begin = (stamp(frame.wall), frame.mono_us, frame.dt_us)
    for histograms, before in ((frame.histograms, ""), (frame.traced.histograms, TRACED)):
        for series, histogram in histograms.items():
            includes = frame.traced.includes_of(series.device) if before else origin.measured
            inside = names(includes.get(series.stage, ()))
            for index, n in histogram.buckets:
                low, high = bucket_bounds(index, histogram.bits)
                yield row((*begin, series.device, series.op, before + series.stage, low, high, n, inside))


def write_who(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write the rows of all windows: I/Os by cgroup, process and size, their order, and operations on files."""
    out.write(row(WHO_HEADER))
    if source.redacted:
        out.write(_who_note(None, None, None, "redacted"))
    out.writelines(b"".join(_who_rows(item)) for item in source.reported())


def _who_note(time: str | None, mono_us: int | None, dt_us: int | None, text: str) -> bytes:
    return row((time, mono_us, dt_us, *(None,) * (len(WHO_HEADER) - 4), text or None))


def _who_rows(item: Reported) -> Iterator[bytes]:
    if not isinstance(item, Frame):
        yield _who_note(*_note(item))
        return
    begin = (stamp(item.wall), item.mono_us, item.dt_us)
    yield _who_note(*begin, item.health.notice)
    for *about, histogram, sum_us in _who_cells(item):
        time_us = histogram.sum if histogram else sum_us
        yield row(
            (*begin, *about, time_us, *(_figures(histogram) if histogram else (None,) * (1 + len(QUANTILES))), None)
        )


def _who_cells(frame: Frame) -> Iterator[_WhoCells]:
    for table in _OF_IOS:
        for key, value in frame[table].items():
            yield from _row_cells(table, key, value)


def _row_cells(table: AnyTable, key: Any, value: Any) -> Iterator[_WhoCells]:
    """Yield the cells of one row of a declared table: one line, or one for each count where it has several of I/Os."""
    device, op = getattr(key, "device", ""), getattr(key, "op", "")
    title, name, detail = _about(table, key)
    cells = list(zip(table.value.cells, table.value.split(value), strict=True))
    ios = [(cell.name, n) for cell, n in cells if cell.unit is Unit.IOS]
    if len(ios) > 1:
        for of, n in ios:
            yield title, device, op, of, None, n, None, EMPTY, None
        return
    by_unit = {cell.unit: content for cell, content in cells}
    latency = by_unit.get(Unit.LATENCIES, EMPTY)
    counted = by_unit.get(Unit.IOS, latency.count if Unit.LATENCIES in by_unit else None)
    if not device and Unit.BYTES in by_unit:  # bytes of /proc/PID/io have neither a device nor a number of I/Os
        counted = None
    yield title, device, op, name, detail, counted, by_unit.get(Unit.BYTES), latency, by_unit.get(Unit.MICROSECONDS)


def _about(table: AnyTable, key: Any) -> tuple[str, str, str | None]:
    if table.about is not None:
        return table.about(key)
    part_names = [str(part) for part, name in zip(key, table.part_names, strict=True) if name not in ("device", "op")]
    return table.export_name, part_names[0] if part_names else "", names(part_names[1:]) if part_names[1:] else None


def write_jsonl(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write all lines of all readable members; if devices are selected, windows have only those."""
    source.windows = source.gaps = source.damaged = 0
    source.devices = {device.name: device for device in source.recording.devices}
    unreported = UnreportedGaps(source.origin.interval_us)
    noted = others = 0
    for line, item in source.recording.reported():
        damage = source.recording.damage
        out.writelines(_damage(damage[noted:]))
        noted = len(damage)
        try:
            reported = _line(line, item, source)
        except ValueError:  # JSON has no infinity; what overflows to one is no number of a recording
            out.writelines(_damage(["a line has a number that is out of range"]))
            others += 1
            continue
        if item is not None:
            source.gaps += isinstance(item, Gap) + sum(1 for _ in unreported.before(item))
            source.windows += isinstance(item, Frame)
        out.write(reported)
    damage = source.recording.damage
    out.writelines(_damage(damage[noted:]))
    source.damaged = len(damage) + others
    source.check()


def _line(line: bytes, item: Item | None, source: Source) -> bytes:
    """Return a line as it is exported; empty for a sum over devices that are not selected."""
    value = parse(line)
    if source.globs and isinstance(item, Frame):
        source.devices.update((device.name, device) for device in item.devices)
        value = codec.encode_frame(source.only(item))
    elif source.globs and value.get("type") == KIND:  # it can be made again from its windows
        return b""
    return codec.to_bytes(value)


def _damage(problems: list[str]) -> Iterator[bytes]:
    return (codec.to_bytes({"type": "damage", "text": text}) for text in problems)
