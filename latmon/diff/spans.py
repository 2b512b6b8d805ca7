"""FILE or FILE@NOTE -> a stretch: the whole recording, or from the mark with that note to the next mark or the end.

Knows recordings; makes no statistic.
"""

from __future__ import annotations

from pathlib import Path

from latmon.diff.setting import with_marks
from latmon.diff.stretch import Stretch
from latmon.errors import RecordingError, UsageError
from latmon.mark import Mark
from latmon.model import Frame
from latmon.recording import Gap, Recording, open_recording
from latmon.text import clean

_SHOWN = 8
_MAX_NOTES = 10_000


def read(argument: str) -> Stretch:
    """The stretch that an argument of the command line names."""
    path, note = _parted(argument)
    recording = open_recording(path)
    name = clean(note or path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".latmon"), 40)
    made = Stretch(name, recording.origin, recording.origin.settings, {one.name: one for one in recording.devices})
    if note:
        _add_span(made, recording, note, path)
    else:
        _add_all(made, recording)
    made.damage = tuple(recording.damage)
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


def _add_all(made: Stretch, recording: Recording) -> None:
    for item in recording:
        if isinstance(item, Frame):
            made.add(item)
        elif isinstance(item, Gap):
            made.gaps += 1


def _add_span(made: Stretch, recording: Recording, note: str, path: Path) -> None:
    """A mark lies before its window in the file; the window that it was put in belongs to neither side."""
    marks: list[Mark] = []
    inside = False
    for item in recording:
        put = _marks(item)
        if put:
            marks = (marks + put)[-_MAX_NOTES:]
            if inside:
                break
            inside = put[-1].text == note
            if inside:
                made.settings = with_marks(recording.origin.settings, marks)
        if isinstance(item, Frame):
            made.devices.update((one.name, one) for one in item.devices)
            if inside and (not marks or item.mono_us - item.dt_us >= marks[-1].mono_us):
                made.add(item)
        elif isinstance(item, Gap) and inside:
            made.gaps += 1
    if not inside and not made.units:
        known = ", ".join(repr(clean(one.text)) for one in marks[-_SHOWN:]) or "there is none"
        raise UsageError(f"{path} has no mark {clean(note)!r}; its marks: {known}.")


def _marks(item: object) -> list[Mark]:
    if isinstance(item, Mark):
        return [item]
    return list(item.marks) if isinstance(item, Frame) else []
