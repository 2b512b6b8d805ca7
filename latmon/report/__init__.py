"""The report of a recording: summarised once, then printed as JSON for a script, as text or HTML for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from latmon import new_file
from latmon.errors import EXIT_DONE, UsageError
from latmon.recording import Recording, open_recording
from latmon.report.summary import SCHEMA, added_up, incomplete, summarise, summary_of
from latmon.report.text import plain, render_text

__all__ = ["SCHEMA", "incomplete", "render_text", "report_command", "summarise"]

STDOUT = Path("-")


def report_command(paths: Sequence[Path], *, as_json: bool = False, html: Path | None = None) -> int:
    """Print the report. RecordingError when there is nothing to read; damage that could be read around is in it.

    `html`: a new file for it, or STDOUT.
    """
    recording = _opened(paths)
    if html is not None:
        return _to_html(recording, len(paths), html)
    summary = summarise(recording)
    said = json.dumps(summary, indent=1, allow_nan=False) + "\n" if as_json else render_text(summary)
    sys.stdout.write(said if as_json else plain(said, sys.stdout.encoding or "utf-8"))
    return EXIT_DONE


def _opened(paths: Sequence[Path]) -> Recording:
    if len(paths) > 1:
        raise UsageError("report reads one FILE so far")
    return open_recording(paths[0])


def _to_html(recording: Recording, parts: int, path: Path) -> int:
    from latmon.report.html import render_html  # noqa: PLC0415  text and JSON need none of it
    from latmon.report.map_columns import MapColumns  # noqa: PLC0415

    columns = MapColumns(recording.origin.interval_us)
    # the file first: a capture of days is not read for a name that is taken
    file = sys.stdout.buffer if path == STDOUT else new_file.create(path)
    try:
        totals = added_up(recording, columns.add)
        page = render_html(summary_of(recording, totals), totals, columns, parts).encode("utf-8", "replace")
        file.write(page)
    except BaseException:
        if path != STDOUT:
            file.close()
            path.unlink(missing_ok=True)
        raise
    if path != STDOUT:
        file.close()
    return EXIT_DONE
