"""`latmon diff`: two or more captures compared: what differs, where, how surely, under which settings.

FILE@NOTE is from that mark to the next one or the end, FILE@..NOTE what came before it, since the mark before or the
beginning, and FILE@60s..NOTE no more of that than 60 s. Either has the settings that this mark told.

Knows recordings; makes no statistic.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from latmon.aggregate.rollup import Minute
from latmon.diff.blocks import Stretch
from latmon.diff.comparison import compare, devices, sweep
from latmon.diff.device_time import with_marks
from latmon.diff.output import render, render_sweep, summarise, summarise_sweep
from latmon.model.frame import Frame, Mark
from latmon.recording.encode import Gap
from latmon.recording.reader import Item, Recording, open_recording
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, RecordingError, UsageError
from latmon.support.text import clean
from latmon.support.units import duration_us

ENOUGH_MINUTES = 20
"""Units of a minute that are enough blocks."""
_SHOWN = 8
_MAX_NOTES = 10_000
_BEFORE = re.compile(r"(?P<length>[0-9.]+[a-z]+)?\.\.(?P<note>.+)", re.DOTALL)


def read(argument: str) -> Stretch:
    """The stretch that an argument of the command line names."""
    path, note = _parted(argument)
    path = streams.readable(path)
    recording = open_recording(path)
    before = _BEFORE.fullmatch(note)
    if before:
        return _read_before(recording, path, before, argument)
    note = _noted(recording, path, note) if note else ""
    # by minutes where there are enough of them to be units, else by windows: of some minutes that is as quick
    made = _filled(recording, recording.summed(), path, note, by_minutes=True)
    if len(made.units) < ENOUGH_MINUTES:
        made = _filled(recording, recording, path, note, by_minutes=False)
    made.damage, made.is_live = tuple(recording.damage), recording.is_live
    if not made.units:
        raise RecordingError(f"{clean(argument, 200)} holds no window: there is nothing to compare.")
    return made


def _read_before(recording: Recording, path: Path, asked: re.Match[str], argument: str) -> Stretch:
    """What ends at the last mark with that note; the windows that marks were put in belong to neither side."""
    since_us = until_us = 0
    marks: list[Mark] = []
    span: tuple[int, int] | None = None
    noted: list[Mark] = []
    name = _noted(recording, path, asked["note"])
    for item in recording.summed():
        for mark in _marks(item):
            marks = [*marks, mark][-_MAX_NOTES:]
            if mark.text == name:
                span, noted = (since_us, until_us), marks
            since_us = mark.mono_us
        if isinstance(item, Frame | Minute):
            until_us = item.mono_us
    assert span is not None  # noqa: S101  _noted found it
    since_us, until_us = span
    mark_us = since_us
    if asked["length"]:
        try:
            since_us = max(since_us, until_us - duration_us(asked["length"]))
        except ValueError as error:
            raise UsageError(f"{clean(argument, 200)!r}: {error}") from None
    made = _lying_in(recording, recording.summed(since_us + 1, until_us), name, mark_us, by_minutes=True)
    if len(made.units) < ENOUGH_MINUTES:
        made = _lying_in(recording, recording.between(since_us + 1, until_us), name, mark_us, by_minutes=False)
    made.settings = with_marks(made.settings, noted)
    made.damage, made.is_live = tuple(recording.damage), recording.is_live
    if not made.units:
        raise RecordingError(f"{clean(argument, 200)} holds no window: there is nothing to compare.")
    return made


def _lying_in(
    recording: Recording, items: Iterable[Item | Minute], name: str, since_us: int, *, by_minutes: bool
) -> Stretch:
    """Of these the windows that begin at `since_us` or later."""
    devices = {one.name: one for one in recording.devices}
    made = Stretch(clean(name, 40), recording.origin, recording.origin.settings, devices)
    if by_minutes:
        made.by_minutes()
    for item in items:
        if isinstance(item, Gap):
            made.gaps += 1
        elif isinstance(item, Frame | Minute) and item.mono_us - item.dt_us >= since_us:
            made.add(item)
    return made


def _noted(recording: Recording, path: Path, note: str) -> str:
    """The whole note that this is, or the only one that begins so; UsageError where there is none."""
    texts: dict[str, None] = {}
    for item in recording.summed():
        texts.update((mark.text, None) for mark in _marks(item) if len(texts) < _MAX_NOTES)
    fitting = [note] if note in texts else [one for one in texts if one.startswith(note)]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(repr(clean(one)) for one in (fitting or list(texts))[-_SHOWN:]) or "there is none"
    several = f"{path} has several marks that begin with {clean(note)!r}: {known}."
    raise UsageError(several if fitting else f"{path} has no mark {clean(note)!r}; its marks: {known}.")


def _parted(argument: str) -> tuple[Path, str]:
    """A file whose name holds an @ is that file."""
    whole = Path(argument)
    if "@" not in argument or whole.exists():
        return whole, ""
    file, _, note = argument.rpartition("@")
    while "@" in file and not Path(file).exists():
        file, _, more = file.rpartition("@")
        note = f"{more}@{note}"
    if not file or not note:
        raise UsageError(f"{clean(argument, 200)!r} is no FILE and no FILE@NOTE.")
    return Path(file), note


def _filled(
    recording: Recording, items: Iterable[Item | Minute], path: Path, note: str, *, by_minutes: bool
) -> Stretch:
    name = clean(note or path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".latmon"), 40)
    made = Stretch(name, recording.origin, recording.origin.settings, {one.name: one for one in recording.devices})
    if by_minutes:
        made.by_minutes()
    for item in _span(made, items, note) if note else items:
        if isinstance(item, Frame | Minute):
            made.add(item)
        elif isinstance(item, Gap):
            made.gaps += 1
    return made


def _span(made: Stretch, items: Iterable[Item | Minute], note: str) -> Iterator[Item | Minute]:
    """What lies between the mark and the next one. The window that a mark was put in belongs to neither side."""
    marks: list[Mark] = []
    inside = False
    for item in items:
        put = _marks(item)
        marks = (marks + put)[-_MAX_NOTES:]
        if put and inside:
            return
        if put and put[-1].text == note:
            inside = True
            made.settings = with_marks(made.settings, marks)
        if isinstance(item, Frame | Minute):
            frame = item if isinstance(item, Frame) else item.frame
            made.devices.update((one.name, one) for one in frame.devices)
            if inside and item.mono_us - item.dt_us >= marks[-1].mono_us:
                yield item
        elif inside:
            yield item


def _marks(item: object) -> list[Mark]:
    if isinstance(item, Mark):
        return [item]
    return list(item.marks) if isinstance(item, Frame) else []


_PAIR = 2


def diff_command(arguments: Sequence[str], *, as_json: bool) -> int:
    """Print what differs. RecordingError when there is nothing to read, UsageError where a note isn't there."""
    stretches = [read(one) for one in arguments]
    if len(stretches) == _PAIR:
        comparison = compare(*stretches)
        said = _json(summarise(comparison)) if as_json else render(comparison)
    else:
        sweeps = [sweep(stretches), *(sweep(stretches, one) for one in devices(stretches))]
        few = sweeps[:1] if len(sweeps) == _PAIR else sweeps
        said = _json(summarise_sweep(sweeps, stretches)) if as_json else render_sweep(few, _differ(stretches))
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(said.encode(encoding, "backslashreplace").decode(encoding))
    return EXIT_DONE


def _differ(stretches: Sequence[Stretch]) -> list[str]:
    """Totals that don't begin at one point are no sweep."""
    begins = sorted({one.origin.latency_from or "unknown" for one in stretches})
    return [f"totals begin at different points: {', '.join(begins)}."] if len(begins) > 1 else []


def _json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
