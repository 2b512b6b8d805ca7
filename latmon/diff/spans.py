"""FILE or FILE@NOTE -> a stretch: the whole recording, or from the mark with that note to the next mark or the end.

Knows recordings; makes no statistic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from latmon.diff.setting import with_marks
from latmon.diff.stretch import Stretch
from latmon.errors import RecordingError, UsageError
from latmon.mark import Mark
from latmon.minute import Minute
from latmon.model import Frame
from latmon.recording import Gap, Recording, open_recording
from latmon.recording.reader import Item
from latmon.text import clean

ENOUGH_MINUTES = 20
"""Units of a minute that are enough blocks."""
_SHOWN = 8
_MAX_NOTES = 10_000


def read(argument: str) -> Stretch:
    """The stretch that an argument of the command line names."""
    path, note = _parted(argument)
    recording = open_recording(path)
    # by minutes where there are enough of them to be units, else by windows: of some minutes that is as quick
    made = _filled(recording, recording.summed(), path, note, by_minutes=True)
    if len(made.units) < ENOUGH_MINUTES:
        made = _filled(recording, recording, path, note, by_minutes=False)
    made.damage, made.is_live = tuple(recording.damage), recording.is_live
    if not made.units:
        raise RecordingError(f"{clean(argument, 200)} holds no window: there is nothing to compare.")
    return made


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
    for item in _span(made, items, path, note) if note else items:
        if isinstance(item, Frame | Minute):
            made.add(item)
        elif isinstance(item, Gap):
            made.gaps += 1
    return made


def _span(made: Stretch, items: Iterable[Item | Minute], path: Path, note: str) -> Iterator[Item | Minute]:
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
    if not inside:
        known = ", ".join(repr(clean(one.text)) for one in marks[-_SHOWN:]) or "there is none"
        raise UsageError(f"{path} has no mark {clean(note)!r}; its marks: {known}.")


def _marks(item: object) -> list[Mark]:
    if isinstance(item, Mark):
        return [item]
    return list(item.marks) if isinstance(item, Frame) else []
