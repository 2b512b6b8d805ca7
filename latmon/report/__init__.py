"""The report of a recording: summarised once, then printed as JSON for a script, as text or HTML for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from latmon import new_file
from latmon.errors import EXIT_DONE, RecordingError
from latmon.findings.thresholds import DEFAULT, Settings
from latmon.new_file import named
from latmon.recording import UNCLOSED, Parts, Recording, open_parts
from latmon.report.findings import Judged
from latmon.report.map_columns import MapColumns
from latmon.report.summary import SCHEMA, added_up, incomplete, summarise, summary_of
from latmon.report.text import plain, render_text

__all__ = ["SCHEMA", "incomplete", "render_text", "report_command", "summarise"]

_WHOLE_BYTES = 4 * 1024 * 1024


def report_command(
    paths: Sequence[Path], *, as_json: bool = False, html: Path | None = None, settings: Settings = DEFAULT
) -> int:
    """Print the report; damage that could be read around is in it. RecordingError when there is no window to read.

    `html`: a new file for it, or `-`; `settings` are the rules'.
    """
    recording = open_parts(paths)
    if html is not None:
        return _to_html(recording, html, settings)
    summary = summarise(recording, settings)
    _need_windows(recording, summary["intervals"])
    said = json.dumps(summary, indent=1, allow_nan=False) + "\n" if as_json else render_text(summary)
    sys.stdout.write(said if as_json else plain(said, sys.stdout.encoding or "utf-8"))
    return EXIT_DONE


def _to_html(recording: Recording | Parts, path: Path, settings: Settings) -> int:
    begin_us, end_us = recording.span()
    columns = MapColumns(recording.origin.interval_us, end_us - begin_us)
    parts = len(recording.parts) if isinstance(recording, Parts) else 1
    if path == new_file.STANDARD:
        sys.stdout.buffer.write(_page(recording, columns, parts, settings))
        return EXIT_DONE
    # the file first: a capture of days is not read for a name that is taken
    with new_file.whole(path) as file:
        file.write(_page(recording, columns, parts, settings))
    return EXIT_DONE


def _page(recording: Recording | Parts, columns: MapColumns, parts: int, settings: Settings) -> bytes:
    from latmon.report.html import render_html  # noqa: PLC0415  text and JSON need none of it

    files = recording.parts if isinstance(recording, Parts) else (recording,)
    # columns of windows show more than those of minutes, where all of them are read in a few seconds
    whole = sum(one.path.stat().st_size for one in files) <= _WHOLE_BYTES
    judged = Judged(recording, settings)
    if whole and not judged.by_windows:  # rules are asked about what text and JSON ask them about
        for item in recording.summed():
            judged.add(item)
        totals = added_up(recording, columns.add, whole=True)
    else:
        totals = added_up(recording, columns.add, judged.add, whole=judged.by_windows)
    _need_windows(recording, totals.windows)
    summary = summary_of(recording, totals) | judged.summary()
    return render_html(summary, totals, columns, parts).encode("utf-8", "replace")


def _need_windows(recording: Recording | Parts, windows: int) -> None:
    """RecordingError where damage left no window; a capture that was killed before its first one has a report."""
    damage = [one for one in recording.damage if not one.endswith(UNCLOSED)]
    if not windows and damage:
        path = named(recording.path)
        raise RecordingError(f"no window of {path} can be read ({damage[0]}); `latmon check {path}` lists the damage")
