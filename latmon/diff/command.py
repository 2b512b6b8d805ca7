"""`latmon diff`: the command that compares two or more captures.

FILE@NOTE is from that mark to the next one or the end. FILE@..NOTE is from the mark before it (or the beginning) to
that mark, FILE@60s..NOTE at most 60 s of it. The settings are those recorded with the mark.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from latmon.aggregate.accumulator import Minute
from latmon.diff.blocks import CaptureSpan, of_runs
from latmon.diff.comparison import compare, sweep_of
from latmon.diff.conditions import with_marks
from latmon.diff.output import render
from latmon.diff.report import DiffReport, pair_report, sweep_report
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import DEFAULT, Settings
from latmon.model.frame import MAX_RUNS, Frame, Mark
from latmon.recording.codec import Gap
from latmon.recording.items import Item
from latmon.recording.reader import Recording, open_recording
from latmon.support import paths, streams
from latmon.support.emphasis import print_text
from latmon.support.errors import EXIT_DONE, RecordingError, UsageError
from latmon.support.text import clean
from latmon.support.typed_json import to_json
from latmon.support.units import counted, duration_us

ENOUGH_MINUTES = 20
"""Minutes that are enough units; shorter spans are read by windows."""
_SHOWN = 8
_MAX_NOTES = 10_000
_PAIR = 2
Fill = Callable[[bool], tuple[CaptureSpan, Iterable[Item | Minute]]]
"""Returns an empty span and its items, by minutes (True) or by windows."""
_BEFORE = re.compile(r"(?P<length>[0-9.]+[a-z]+)?\.\.(?P<note>.+)", re.DOTALL)


def read(argument: str, settings: Settings = DEFAULT) -> CaptureSpan:
    """Return the span that an argument of the command line names; `settings` are the rules'.

    UsageError for a note that no mark has, RecordingError where the span has no window.
    """
    path, note = _parted(argument)
    path = streams.readable(path)
    recording = open_recording(path)
    before = _BEFORE.fullmatch(note)
    with streams.Progress(f"reading {streams.named(path)}") as recording.progress:
        fill = _before_mark(recording, path, before, argument) if before else _from_mark(recording, path, note)
        # 20 minutes are enough units; of less than that reading each window is as quick
        capture_span = _filled(*fill(True), settings)
        if len(capture_span.units) < ENOUGH_MINUTES:
            capture_span = _filled(*fill(False), settings)
    capture_span.damage, capture_span.is_live = tuple(recording.damage), recording.is_live
    if not capture_span.units:
        raise RecordingError(f"{clean(argument, 200)} contains no window: there is nothing to compare.")
    return capture_span


def _before_mark(recording: Recording, path: Path, wanted: re.Match[str], argument: str) -> Fill:
    """Return a reader of the span that ends at the last mark with that note, without the windows of both marks."""
    since_us = until_us = 0
    marks: list[Mark] = []
    span: tuple[int, int] | None = None
    noted: list[Mark] = []
    name = _noted(recording, path, wanted["note"])
    for item in recording.summed():
        for mark in _marks(item):
            marks = [*marks, mark][-_MAX_NOTES:]
            if mark.text == name:
                span, noted = (since_us, until_us), marks
            since_us = mark.mono_us
        if isinstance(item, Frame | Minute):
            until_us = item.mono_us
    assert span is not None  # noqa: S101  _noted found it
    mark_us, until_us = span
    since_us = mark_us
    if wanted["length"]:
        try:
            since_us = max(since_us, until_us - duration_us(wanted["length"]))
        except ValueError as error:
            raise UsageError(f"{clean(argument, 200)!r}: {error}") from None

    def fill(by_minutes: bool) -> tuple[CaptureSpan, Iterable[Item | Minute]]:
        capture_span = _empty(recording, name, by_minutes)
        capture_span.settings = with_marks(capture_span.settings, noted)
        items = recording.summed(since_us + 1, until_us) if by_minutes else recording.between(since_us + 1, until_us)
        items_before = (
            read_item
            for read_item in items
            if not isinstance(read_item, Frame | Minute) or read_item.mono_us - read_item.dt_us >= mark_us
        )
        return capture_span, items_before

    return fill


def _from_mark(recording: Recording, path: Path, note: str) -> Fill:
    """Return a reader of the span that begins at the mark with that note; of all of the recording without a note."""
    note = _noted(recording, path, note) if note else ""
    name = note or path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".latmon")

    def fill(by_minutes: bool) -> tuple[CaptureSpan, Iterable[Item | Minute]]:
        capture_span = _empty(recording, name, by_minutes)
        items: Iterable[Item | Minute] = recording.summed() if by_minutes else recording
        return capture_span, _after(capture_span, items, note) if note else items

    return fill


def _empty(recording: Recording, name: str, by_minutes: bool) -> CaptureSpan:
    devices = {device.name: device for device in recording.devices}
    capture_span = CaptureSpan(clean(name, 40), recording.origin, recording.origin.settings, devices)
    if by_minutes:
        capture_span.by_minutes()
    return capture_span


def _filled(capture_span: CaptureSpan, items: Iterable[Item | Minute], settings: Settings) -> CaptureSpan:
    engine: RuleEngine | None = None
    for item in items:
        if isinstance(item, Frame | Minute):
            # only now: the devices that came before the first window of the span are known
            engine = engine or RuleEngine(capture_span.origin, tuple(capture_span.devices.values()), settings)
            capture_span.add(item)
            engine.take(item)
        elif isinstance(item, Gap):
            capture_span.add(item)
    if engine is not None:
        engine.finish()
        capture_span.findings = {episode.worst.key: episode.worst.summary for episode in engine.episodes}
        capture_span.not_evaluated = engine.silent
    return capture_span


def _noted(recording: Recording, path: Path, note: str) -> str:
    """Return the full note that this is, or the only one that begins so; UsageError without one."""
    texts: dict[str, None] = {}
    for item in recording.summed():
        texts.update((mark.text, None) for mark in _marks(item) if len(texts) < _MAX_NOTES)
    fitting = [note] if note in texts else [text for text in texts if text.startswith(note)]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(repr(clean(note_text)) for note_text in (fitting or list(texts))[-_SHOWN:])
    ambiguous = f"{path} has several marks that begin with {clean(note)!r}: {known}."
    raise UsageError(
        ambiguous if fitting else f"{path} has no mark {clean(note)!r}{known and f'; its marks: {known}'}."
    )


def runs_of(path: Path) -> list[str]:
    """Return the runs of an imported text, else what follows each mark, as arguments; UsageError for fewer than two."""
    recording = open_recording(path)
    parts = list(recording.origin.runs)
    if not parts and not recording.origin.is_imported:
        texts: dict[str, None] = {}
        for item in recording.summed():
            texts.update((mark.text, None) for mark in _marks(item) if len(texts) < MAX_RUNS)
        parts = list(texts)
    if len(parts) < _PAIR:
        run_words = "a single run" if recording.origin.is_imported else counted(len(parts), "mark")
        raise UsageError(f"{path} has {run_words}: report --runs compares at least two.")
    return [f"{path}@{part}" for part in parts]


def _parted(argument: str) -> tuple[Path, str]:
    """Return path and note; an existing file with @ in its name has no note."""
    path = Path(argument)
    if "@" not in argument or paths.mode(path):
        return path, ""
    file, _, note = argument.rpartition("@")
    while "@" in file and not paths.mode(Path(file)):
        file, _, more = file.rpartition("@")
        note = f"{more}@{note}"
    if not file or not note:
        raise UsageError(f"{clean(argument, 200)!r} is neither FILE nor FILE@NOTE.")
    return Path(file), note


def _after(capture_span: CaptureSpan, items: Iterable[Item | Minute], note: str) -> Iterator[Item | Minute]:
    """Yield the items between the mark and the next one, without the windows that contain the marks."""
    marks: list[Mark] = []
    inside = False
    for item in items:
        put = _marks(item)
        marks = (marks + put)[-_MAX_NOTES:]
        if put and inside:
            return
        if put and put[-1].text == note:
            inside = True
            capture_span.settings = with_marks(capture_span.settings, marks)
        if isinstance(item, Frame | Minute):
            frame = item if isinstance(item, Frame) else item.frame
            capture_span.devices.update((device.name, device) for device in frame.devices)
            if inside and item.mono_us - item.dt_us >= marks[-1].mono_us:
                yield item
        elif inside:
            yield item


def _marks(item: object) -> list[Mark]:
    """Return the user's notes at an item; a line of the kernel's log ends no span."""
    if isinstance(item, Mark):
        return [item] if not item.device else []
    return [mark for mark in item.marks if not mark.device] if isinstance(item, Frame) else []


def compared(
    arguments: Sequence[str], sides: Sequence[Sequence[str]] = (), setting: str = "", rules: Settings = DEFAULT
) -> DiffReport:
    """Return the report of two arguments, of more of them as a sweep, or of a sweep over a setting.

    `sides`: instead of arguments, the runs of A and those of B; `rules`: settings of findings.
    RecordingError without windows, UsageError for an unknown note or setting.
    """
    if sides:
        a, b = (of_runs([read(path, rules) for path in side]) for side in sides)
        return pair_report(compare(a, b))
    periods = [read(argument, rules) for argument in arguments]
    if len(periods) == _PAIR and not setting:
        return pair_report(compare(*periods))
    return sweep_report(sweep_of(periods, setting))


def print_compared(report: DiffReport, *, as_json: bool) -> int:
    """Print the differences."""
    if as_json:
        sys.stdout.write(json.dumps(to_json(report), indent=1, allow_nan=False) + "\n")
    else:
        print_text(lambda: render(report))
    return EXIT_DONE
