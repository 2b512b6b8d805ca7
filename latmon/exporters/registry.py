"""`latmon export`: the registry of formats, the options with the formats that each belongs to, and the source of items.

A source yields a recording's items: selected devices, gaps and damage in their places; one window in memory. Every
exporter streams.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

from latmon.model.devices import of_devices
from latmon.model.frame import Device, Frame, Mark, Origin
from latmon.recording.codec import End, Gap
from latmon.recording.reader import Recording, open_recording
from latmon.recording.unreported_gaps import UnreportedGaps
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, RecordingError, UsageError
from latmon.support.units import duration_us

if TYPE_CHECKING:
    from latmon.views.selection import ScreenOptions

_MAX_NAMED = 20
Item = Frame | Gap | Mark | End
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?", re.ASCII)
_DAY_S = 86_400
FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "jsonl": "the lines of the recording, uncompressed",
        "csv": "a row per window, device, op and stage",
        "openmetrics": "a snapshot for Prometheus",
        "hlog": "an HdrHistogram log",
        "perfetto": "outliers and counters for ui.perfetto.dev",
        "blkparse": "the text of blkparse, of I/Os with stages (latmon trace)",
        "blktrace": "the same as blktrace's binary events, for btt -i FILE and blkparse -i - < FILE",
        "svg": "a picture of a screen",
        "text": "a screen as plain text",
        "cast": "an animation of a screen for asciinema",
    }
)
SCREENS = (
    *("overview", "maps", "zoom", "offsets", "ticks"),
    *("stages", "files", "outstanding", "order", "audit", "outliers", "interrupts", "findings", "who"),
)
"""Screens of pictures: the TUI's screens, the other forms of its first, and the panels of two others."""
SIZES = ((40, 10), (500, 200))
"""Columns and lines of the smallest and of the largest picture."""
PICTURES = ("svg", "text", "cast")
"""Formats that draw a screen."""
_WRITERS = {
    "jsonl": ("latmon", "write_jsonl"),
    "csv": ("latmon", "write_windows"),
    "csv-buckets": ("latmon", "write_buckets"),
    "csv-who": ("latmon", "write_who"),
    "openmetrics": ("openmetrics", "write"),
    "hlog": ("hdrhistogram", "write"),
    "perfetto": ("perfetto", "write"),
    "blkparse": ("blktrace", "write_text"),
    "blktrace": ("blktrace", "write_binary"),
    "svg": ("screen", "write_svg"),
    "text": ("screen", "write_text"),
    "cast": ("screen", "write_cast"),
}
"""Format -> module and function, imported when it is used."""


@dataclass(frozen=True, slots=True)
class DamageNote:
    """Damage, in the place of the file where it was found."""

    text: str


Reported = Frame | Gap | Mark | DamageNote


def is_redacted(origin: Origin) -> bool:
    """Return whether names that identify the host or its users were left out."""
    return origin.extra.get("redacted") is True


class Source:
    """Recording as one export sees it, with counts of the windows, gaps and damages of the latest reading."""

    def __init__(self, recording: Recording, globs: tuple[str, ...] = ()) -> None:
        self.recording, self.globs = recording, globs
        self.windows = 0
        self.gaps = 0
        self.damaged = 0
        self.devices: dict[str, Device] = {}
        self._names: set[str] = set()

    @property
    def origin(self) -> Origin:
        return self.recording.origin

    @property
    def redacted(self) -> bool:
        return is_redacted(self.origin)

    def items(self, since_us: int = 0) -> Iterator[Item]:
        """Yield items as they are in the file; the first window also names the header's devices."""
        self.windows = self.gaps = 0
        self.devices = {device.name: device for device in self.recording.devices}
        for item in self.recording.since(since_us):
            if isinstance(item, Frame):
                self.devices.update((device.name, device) for device in item.devices)
                named = item if self.windows else replace(item, devices=tuple(self.devices.values()))
                self.windows += 1
                yield self.only(named)
            else:
                self.gaps += isinstance(item, Gap)
                yield item
        self.damaged = len(self.recording.damage)
        self.check()

    def reported(self, since_us: int = 0) -> Iterator[Reported]:
        """Yield windows, and every gap, mark and damage in its place; the gap of a window is before it."""
        unreported, caption = UnreportedGaps(self.origin.interval_us), 0
        for item in self.items(since_us):
            for gap in unreported.before(item):
                self.gaps += 1
                yield gap
            yield from (DamageNote(text) for text in self.recording.damage[caption:])
            caption = len(self.recording.damage)
            if not isinstance(item, End):
                yield item
        yield from (DamageNote(text) for text in self.recording.damage[caption:])

    def wants(self, name: str) -> bool:
        """Return whether a device is selected, by its name or label."""
        if not self.globs:
            return True
        device = self.devices.get(name)
        names = (name, device.label) if device and device.label else (name,)
        return any(fnmatchcase(n, glob) for n in names for glob in self.globs)

    def only(self, frame: Frame) -> Frame:
        """Return the window without devices that are not selected."""
        if not self.globs:
            return frame
        for rows in (frame.histograms, frame.seen, frame.kernel):
            self._names.update(row.device for row in rows)
        self._names.update(frame.outstanding)
        return of_devices(frame, self.wants)

    def check(self) -> None:
        """Raise UsageError when no device is selected by the given names."""
        known_names = self._names | {*self.devices}
        if self.globs and not any(map(self.wants, known_names)):
            names = sorted(known_names)
            more = " ..." if len(names) > _MAX_NAMED else ""
            known_text = ", ".join(names[:_MAX_NAMED]) or "none"
            raise UsageError(f"--device {' '.join(self.globs)}: no such device in it; there are {known_text}{more}")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export; each format reads its own."""

    buckets: bool = False
    who: bool = False
    size: tuple[int, int] = (80, 24)
    at: str = ""
    """When, in the words of the command line; empty: a picture at the end, a cast from the begin."""
    speed: float = 1.0
    duration_us: int | None = None
    """Span of the recording, from `at` on."""
    cast_version: int = 2
    shown: ScreenOptions | None = None
    """The screen, the view and the colours are read from it; None: the overview in the default theme."""


def moment_us(text: str, origin: Origin) -> int:
    """Return CLOCK_MONOTONIC of `90s` (from the begin on), `14:05:30` (local time, the first one in it) or RFC 3339."""
    start_us, wall = origin.start_mono_us, origin.start_wall
    if match := _TIME_OF_DAY.fullmatch(text):
        begin = datetime.fromtimestamp(wall).astimezone()
        hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
        if hours < 24 and minutes < 60 and seconds < 60:  # noqa: PLR2004  of a clock
            then = begin.replace(hour=hours, minute=minutes, second=seconds, microsecond=0)
            return start_us + round(((then - begin).total_seconds() % _DAY_S) * 1e6)
    try:
        return start_us + duration_us(text)
    except ValueError:
        pass
    try:
        then = datetime.fromisoformat(text)
        then = then if then.tzinfo else then.astimezone()
        return start_us + round((then.astimezone(UTC).timestamp() - wall) * 1e6)
    except (ValueError, OverflowError):
        raise UsageError(f"--at {text}: expected 90s from the begin, 14:05:30, or 2026-11-22T14:05:30Z") from None


def export_command(args: argparse.Namespace) -> int:
    """Write the export and return the exit code. Missing parts are marked in it and counted on stderr.

    RecordingError where no window can be read: nothing is left at the output, unless that is stdout.
    """
    options = options_of(args)
    source = Source(open_recording(args.file), tuple(args.device))
    with streams.Progress(f"reading {streams.named(args.file)}", quiet=args.out == streams.STANDARD) as progress:
        source.recording.progress = progress
        write = writer(args.to, options)
        with streams.output(args.out) as file:
            write(source, file, options)
            _need_windows(source)
    streams.message(_summary(source, args.to, args.out))
    return EXIT_DONE


def _need_windows(source: Source) -> None:
    """Raise RecordingError if no window was exported: a file of a head alone would pass for a measurement."""
    if source.windows:
        return
    path = streams.named(source.recording.path)
    if source.recording.damage:
        reason = f"no window of {path} can be read ({source.recording.damage[0]})"
        raise RecordingError(f"{reason}; `latmon check {path}` lists the damage")
    raise RecordingError(f"{path} contains no window to export")


def options_of(args: argparse.Namespace) -> ExportOptions:
    """Return the options of a command line, whose option parser knows which format uses which."""
    names = ("buckets", "who", "size", "at", "speed")
    given = {name: value for name in names if (value := getattr(args, name))}
    if args.cast_version:
        given["cast_version"] = int(args.cast_version)
    shown = None
    if args.to in PICTURES:
        from latmon.views.selection import screen_options  # noqa: PLC0415  the others draw nothing

        names_of_screen = ("screen", "theme", "ramp")
        shown = screen_options(**{name: value for name in names_of_screen if (value := getattr(args, name))})
    return ExportOptions(**given, duration_us=args.duration, shown=shown)


def writer(form: str, options: ExportOptions) -> Callable[[Source, BinaryIO, ExportOptions], None]:
    """Return the function of a format, loaded now."""
    if form not in FORMATS:
        raise UsageError(f"there is no format {form!r}; there are {', '.join(FORMATS)}")
    rows = "-buckets" if options.buckets else "-who" if options.who else ""
    module, name = _WRITERS[f"{form}{rows}" if form == "csv" else form]
    writer: Callable[[Source, BinaryIO, ExportOptions], None] = getattr(
        import_module(f"latmon.exporters.{module}"), name
    )
    return writer


def _summary(source: Source, form: str, out: Path) -> str:
    windows = f"{source.windows} window{'s' * (source.windows != 1)}"
    gaps = f", {source.gaps} gap{'s' * (source.gaps != 1)}" if source.gaps else ""
    damaged = f", {source.damaged} damaged place{'s' * (source.damaged != 1)}" if source.damaged else ""
    where = "" if out == streams.STANDARD else f" in {streams.named(out)}"
    redacted = ", redacted" if source.redacted else ""
    return f"{windows}{gaps}{damaged} of {streams.named(source.recording.path)} as {form}{where}{redacted}"
