"""`latmon report`: the command that prints a recording's summary as JSON, text or HTML."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from latmon.findings.rule import DEFAULT, Settings
from latmon.recording.parts import Parts, open_parts
from latmon.recording.reader import UNCLOSED, Recording
from latmon.report.findings import Evaluated
from latmon.report.heatmap_columns import MapColumns
from latmon.report.summary import added_up, summarise, summary_of
from latmon.report.text import plain, render_text
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, RecordingError
from latmon.support.streams import named

_WHOLE_BYTES = 4 * 1024 * 1024


def report_command(
    paths: Sequence[Path], *, as_json: bool = False, html: Path | None = None, settings: Settings = DEFAULT
) -> int:
    """Print the report, which lists damage of the file. RecordingError if no window can be read.

    `html`: a new file for it, or `-`; `settings` are the rules'.
    """
    recording = open_parts(paths)
    with streams.Progress(f"reading {named(recording.path)}", quiet=html == streams.STANDARD) as progress:
        _follow(recording, progress)
        if html is not None:
            return _to_html(recording, html, settings)
        summary = summarise(recording, settings)
    _need_windows(recording, summary["intervals"])
    said = json.dumps(summary, indent=1, allow_nan=False) + "\n" if as_json else render_text(summary)
    sys.stdout.write(said if as_json else plain(said, sys.stdout.encoding or "utf-8"))
    return EXIT_DONE


def _follow(recording: Recording | Parts, progress: streams.Progress) -> None:
    """Report how much of a recording is read, by the parts' sizes."""
    files = recording.parts if isinstance(recording, Parts) else (recording,)
    sizes = [one.path.stat().st_size for one in files]
    for at, one in enumerate(files):
        one.progress = partial(_read, progress, sum(sizes[:at]), sum(sizes))


def _read(progress: streams.Progress, before: int, total: int, end: int, _size: int) -> None:
    progress(before + end, total)


def _to_html(recording: Recording | Parts, path: Path, settings: Settings) -> int:
    begin_us, end_us = recording.span()
    columns = MapColumns(recording.origin.interval_us, end_us - begin_us)
    parts = len(recording.parts) if isinstance(recording, Parts) else 1
    if path == streams.STANDARD:
        sys.stdout.buffer.write(_page(recording, columns, parts, settings))
        return EXIT_DONE
    # open the file first: reading a capture of days is in vain if the name is taken
    with streams.whole(path) as file:
        file.write(_page(recording, columns, parts, settings))
    return EXIT_DONE


def _page(recording: Recording | Parts, columns: MapColumns, parts: int, settings: Settings) -> bytes:
    from latmon.report.html import render_html  # noqa: PLC0415  text and JSON need none of it

    files = recording.parts if isinstance(recording, Parts) else (recording,)
    # a small recording is read by windows, which have more detail than roll-ups and take a few seconds
    whole = sum(one.path.stat().st_size for one in files) <= _WHOLE_BYTES
    evaluated = Evaluated(recording, settings)
    if whole and not evaluated.by_windows:  # the findings of all forms of the report must be the same
        for item in recording.summed():
            evaluated.add(item)
        totals = added_up(recording, columns.add, whole=True)
    else:
        totals = added_up(recording, columns.add, evaluated.add, whole=evaluated.by_windows)
    _need_windows(recording, totals.windows)
    summary = summary_of(recording, totals) | evaluated.summary()
    return render_html(summary, totals, columns, parts).encode("utf-8", "replace")


def _need_windows(recording: Recording | Parts, windows: int) -> None:
    """Raise RecordingError if damage left no window; a capture killed before its first one has a report."""
    damage = [one for one in recording.damage if not one.endswith(UNCLOSED)]
    if not windows and damage:
        path = named(recording.path)
        raise RecordingError(f"no window of {path} can be read ({damage[0]}); `latmon check {path}` lists the damage")
