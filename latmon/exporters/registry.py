"""`latmon export`: the registry of formats. Every exporter streams."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from latmon.exporters.options import FORMATS, GOES_WITH, ExportOptions
from latmon.exporters.source import Source
from latmon.recording.reader import open_recording
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, UsageError

_WRITERS = {
    "jsonl": ("jsonl", "write"),
    "csv": ("csv", "write_windows"),
    "csv-buckets": ("csv", "write_buckets"),
    "openmetrics": ("openmetrics", "write"),
    "hlog": ("hdrhistogram", "write"),
    "perfetto": ("perfetto", "write"),
    "svg": ("screen", "write_svg"),
    "text": ("screen", "write_text"),
    "cast": ("screen", "write_cast"),
}
"""Format -> module and function, imported when it is used."""


def export_command(args: argparse.Namespace) -> int:
    """Write the export and return the exit code. Missing parts are marked in it and counted on stderr."""
    options = options_of(args)
    source = Source(open_recording(args.file), tuple(args.device))
    with streams.Progress(f"reading {streams.named(args.file)}", quiet=args.out == streams.STANDARD) as progress:
        source.recording.progress = progress
        write = writer(args.to, options)
        with streams.output(args.out) as file:
            write(source, file, options)
    print(f"latmon: {_summary(source, args.to, args.out)}", file=sys.stderr)
    return EXIT_DONE


def options_of(args: argparse.Namespace) -> ExportOptions:
    """Return the options; UsageError for one that the format doesn't use."""
    given = {name: getattr(args, name) for name in GOES_WITH if getattr(args, name)}
    for name in given:
        if args.to not in GOES_WITH[name]:
            raise UsageError(f"--{name.replace('_', '-')} goes with --to {_listed(GOES_WITH[name])}")
    if args.speed == 0:
        raise UsageError("--speed 0: a cast needs a speed above 0, such as 10")
    if "duration" in given:
        given["duration_us"] = given.pop("duration")
    return ExportOptions(**given)


def writer(form: str, options: ExportOptions) -> Callable[[Source, BinaryIO, ExportOptions], None]:
    """Return the function of a format, loaded now."""
    if form not in FORMATS:
        raise UsageError(f"there is no format {form!r}; there are {', '.join(FORMATS)}")
    module, name = _WRITERS["csv-buckets" if form == "csv" and options.buckets else form]
    found: Callable[[Source, BinaryIO, ExportOptions], None] = getattr(
        import_module(f"latmon.exporters.{module}"), name
    )
    return found


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _summary(source: Source, form: str, out: Path) -> str:
    windows = f"{source.windows} window{'s' * (source.windows != 1)}"
    gaps = f", {source.gaps} gap{'s' * (source.gaps != 1)}" if source.gaps else ""
    damaged = f", {source.damaged} damaged place{'s' * (source.damaged != 1)}" if source.damaged else ""
    where = "" if out == streams.STANDARD else f" in {streams.named(out)}"
    redacted = ", redacted" if source.redacted else ""
    return f"{windows}{gaps}{damaged} of {streams.named(source.recording.path)} as {form}{where}{redacted}"
