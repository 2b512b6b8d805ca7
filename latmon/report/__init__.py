"""The report of a recording: summarised once, then printed as JSON for a script or as text for a ticket."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from latmon.errors import EXIT_DONE
from latmon.recording import open_recording
from latmon.report.summary import SCHEMA, incomplete, summarise
from latmon.report.text import plain, render_text

__all__ = ["SCHEMA", "incomplete", "render_text", "report_command", "summarise"]


def report_command(path: Path, *, as_json: bool) -> int:
    """Print the report. RecordingError when there is nothing to read; damage that could be read around is in it."""
    summary = summarise(open_recording(path))
    said = json.dumps(summary, indent=1, allow_nan=False) + "\n" if as_json else render_text(summary)
    sys.stdout.write(said if as_json else plain(said, sys.stdout.encoding or "utf-8"))
    return EXIT_DONE
