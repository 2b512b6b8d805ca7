"""`latmon report`: the command that prints a recording's summary as JSON, text or HTML."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from latmon.findings.rule import DEFAULT, Settings
from latmon.recording.parts import Parts, open_parts
from latmon.recording.reader import UNCLOSED, Recording
from latmon.report.findings import findings_of
from latmon.report.html_charts import MapColumns
from latmon.report.reading import added_up, needs_windows, rule_engine, summarise
from latmon.report.summary import report_of
from latmon.report.text import render_text
from latmon.support import streams
from latmon.support.emphasis import print_text
from latmon.support.errors import EXIT_DONE, RecordingError
from latmon.support.streams import named
from latmon.support.typed_json import to_json

if TYPE_CHECKING:
    from latmon.report.html_elements import Look

_WHOLE_BYTES = 4 * 1024 * 1024


def report_command(
    paths: Sequence[Path],
    *,
    as_json: bool = False,
    html: Path | None = None,
    is_brief: bool = False,
    settings: Settings = DEFAULT,
    ramp: str = "auto",
    slo_us: int | None = None,
) -> int:
    """Print the report, which lists damage of the file. RecordingError if no window can be read.

    `html`: a new file for it, or `-`; `is_brief`: only its first two pages; `settings` are the rules'; `ramp`: the
    colours of counts in HTML; `slo_us`: I/Os at or above it are counted by hour and day.
    """
    recording = open_parts(paths)
    with streams.Progress(f"reading {named(recording.path)}", quiet=html == streams.STANDARD) as progress:
        _follow(recording, progress)
        if html is not None:
            return _to_html(recording, html, _PageOptions(settings, ramp, slo_us, is_brief=is_brief))
        report = summarise(recording, settings, slo_us)
    _need_windows(recording, report.intervals)
    if as_json:
        sys.stdout.write(json.dumps(to_json(report), indent=1, allow_nan=False) + "\n")
    else:
        print_text(partial(render_text, report))
    return EXIT_DONE


def _follow(recording: Recording | Parts, progress: streams.Progress) -> None:
    """Report how much of a recording is read, by the parts' sizes."""
    files = recording.parts if isinstance(recording, Parts) else (recording,)
    sizes = [file.path.stat().st_size for file in files]
    for at, file in enumerate(files):
        file.progress = partial(_read, progress, sum(sizes[:at]), sum(sizes))


def _read(progress: streams.Progress, before: int, total: int, end: int, _size: int) -> None:
    progress(before + end, total)


class _PageOptions(NamedTuple):
    settings: Settings
    ramp: str
    slo_us: int | None
    is_brief: bool = False


def _to_html(recording: Recording | Parts, path: Path, options: _PageOptions) -> int:
    from latmon.report.html_elements import look  # noqa: PLC0415  text and JSON need none of it

    shown = look(options.ramp)
    begin_us, end_us = recording.span()
    columns = MapColumns(recording.origin.interval_us, end_us - begin_us)
    parts = len(recording.parts) if isinstance(recording, Parts) else 1
    if path == streams.STANDARD:
        sys.stdout.buffer.write(_page(recording, columns, parts, options, shown))
        return EXIT_DONE
    # open the file first: reading a capture of days is in vain if the name is taken
    with streams.whole(path) as file:
        file.write(_page(recording, columns, parts, options, shown))
    return EXIT_DONE


def _page(recording: Recording | Parts, columns: MapColumns, parts: int, options: _PageOptions, shown: Look) -> bytes:
    from latmon.report.html import render_html  # noqa: PLC0415

    files = recording.parts if isinstance(recording, Parts) else (recording,)
    # a small recording is read by windows, which have more detail than roll-ups and take a few seconds
    whole = sum(file.path.stat().st_size for file in files) <= _WHOLE_BYTES
    engine, slo_us, by_windows = rule_engine(recording, options.settings), options.slo_us, needs_windows(recording)
    if whole and not by_windows:  # the findings of all forms of the report must be the same
        added_up(recording, engine=engine)
        totals = added_up(recording, columns.add, whole=True, slo_us=slo_us)
    else:
        totals = added_up(recording, columns.add, engine=engine, whole=by_windows, slo_us=slo_us)
    _need_windows(recording, totals.windows)
    report = report_of(recording, totals, findings_of(engine))
    page = render_html(report, totals, columns, parts, shown, is_brief=options.is_brief)
    return page.encode("utf-8", "replace")


def _need_windows(recording: Recording | Parts, windows: int) -> None:
    """Raise RecordingError if damage left no window; a capture killed before its first one has a report."""
    damage = [sentence for sentence in recording.damage if not sentence.endswith(UNCLOSED)]
    if not windows and damage:
        path = named(recording.path)
        raise RecordingError(f"no window of {path} can be read ({damage[0]}); `latmon check {path}` lists the damage")
