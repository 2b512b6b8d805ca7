"""Captures in several files: the key that marks a part, and several parts read as one recording.

A header's key `part` has the part's number and its capture. Read together, parts give the items of one long recording;
time between two that are not neighbours is a gap `part-missing`. A part is identified by its number alone, so that
damage in one header doesn't cost the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import Device, Frame, Origin
from latmon.recording.codec import End, Gap
from latmon.recording.reader import MAX_NOTES, UNCLOSED, Item, Recording, open_recording
from latmon.recording.validate import MAX_SERIES, UNKNOWN, RecordCodec, RecordField, label, text, within
from latmon.support.errors import RecordingError, TooManyError


def is_nameless(recording: Recording) -> bool:
    """Return whether its header is lost; in a repaired copy the header has no values."""
    origin = recording.origin
    return recording.headless or (origin.backend, origin.host) == (UNKNOWN, UNKNOWN)


def begin_of(recording: Recording) -> tuple[int, float] | None:
    """Return CLOCK_MONOTONIC and wall clock of its begin; None where neither a header nor a window has it."""
    if not is_nameless(recording):
        return recording.origin.start_mono_us, recording.origin.start_wall
    first = next((one for one in recording if isinstance(one, Frame)), None)
    return None if first is None else (first.mono_us - first.dt_us, first.wall - first.dt_us / 1e6)


KEY = "part"
Kind = TypeVar("Kind", bound=Item | Minute)
MAX_PARTS = 1_000
"""Most parts of one capture: nearly three years of days."""
CONTINUED = "continued in "
"""Begins the reason of the end line of every part but the last."""
_SUFFIXES = (".latmon.jsonl.gz", ".jsonl.gz", ".gz")


@dataclass(frozen=True, slots=True)
class CapturePart:
    """Number of a part from 1, random id of its capture, and the first part's file name."""

    number: int
    capture: str
    first: str


def part_path(first: Path, number: int) -> Path:
    """Return `x.part0002.latmon.jsonl.gz` for `x.latmon.jsonl.gz`: it sorts after the parts before it."""
    suffix = next((one for one in _SUFFIXES if first.name.endswith(one) and first.name != one), "")
    return first.with_name(f"{first.name.removesuffix(suffix)}.part{number:04}{suffix}")


def as_part(origin: Origin, part: CapturePart) -> Origin:
    """Return the origin with the key of a part."""
    reported = {"number": part.number, "capture": part.capture, "of": part.first}
    return replace(origin, extra=MappingProxyType({**origin.extra, KEY: reported}))


_PART = RecordCodec(
    CapturePart,
    RecordField("number", within(1), required=True),
    RecordField("capture", label, required=True),
    RecordField("of", text, "first", default=""),
)


def part_of(origin: Origin) -> CapturePart | None:
    """Return the part that this origin begins; None for a recording without the key, or with a wrong one."""
    reported = origin.extra.get(KEY)
    if not isinstance(reported, dict):
        return None
    try:
        part = _PART.decode(reported)
    except RecordingError:
        return None
    return part if part.capture else None


def open_parts(paths: Sequence[Path]) -> Recording | Parts:
    """Return one recording, or the parts of one capture in any order; RecordingError for different captures."""
    if not paths:
        raise RecordingError("there is no recording to read")
    if len(paths) > MAX_PARTS:
        raise RecordingError(f"{len(paths)} recordings are more than the {MAX_PARTS} that can be read as one")
    # empty: latmon was killed as it began the part, and nothing is lost
    begun = [path for path in paths if not _is_empty(path)] or paths
    opened = [open_recording(path) for path in begun]
    return opened[0] if len(opened) == 1 else Parts(opened)


def _is_empty(path: Path) -> bool:
    return path.is_file() and not path.stat().st_size


class Parts:
    """Several parts of one capture, read like one Recording. `path` is that of the first of them."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        several = list(recordings)
        nameless = [one for one in several if part_of(one.origin) is None and is_nameless(one)]
        reported = _numbers([one for one in several if one not in nameless] or several)
        begun = [(begin, one) for one in several if (begin := begin_of(one)) is not None]
        begun.sort(key=lambda pair: pair[0])
        self.parts = tuple(one for _, one in begun)
        self._begins = [begin for begin, _ in begun]
        self._numbers = [reported.get(one.path) for one in self.parts]
        left_out = (one for one in several if one not in self.parts)
        self._odd = [f"{one.path.name}: left out: neither its header nor a window can be read" for one in left_out]
        named = next(one for one in self.parts if one.path in reported)
        begin_us, begin_wall = self._begins[0]
        self.path: Path = self.parts[0].path
        self.origin: Origin = replace(named.origin, start_mono_us=begin_us, start_wall=begin_wall)
        self.devices: tuple[Device, ...] = self.parts[0].devices
        self.damage: list[str] = []

    def __iter__(self) -> Iterator[Item]:
        return self.since(0)

    def since(self, mono_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Yield items; parts and members that end before `mono_us` are not even unpacked."""
        return self._joined(lambda one: one.since(mono_us, totals=totals), mono_us)

    def between(self, since_us: int, until_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Yield the windows that end in [since_us, until_us] and what lies between them; nothing later is read."""
        return self._joined(lambda one: one.between(since_us, until_us, totals=totals), since_us, until_us)

    def summed(self, since_us: int = 0, until_us: int | None = None) -> Iterator[Item | Minute]:
        """Yield items as `between` does, but a Minute for windows that have a roll-up in their part."""
        return self._joined(lambda one: one.summed(since_us, until_us), since_us, until_us)

    @property
    def is_live(self) -> bool:
        """Return whether the latest reading found that a latmon still writes the last of them."""
        return self.parts[-1].is_live

    def span(self) -> tuple[int, int]:
        """Return CLOCK_MONOTONIC of the begin and of the last window, by the members' heads."""
        return self.parts[0].span()[0], self.parts[-1].span()[1]

    def _joined(
        self, read: Callable[[Recording], Iterator[Kind]], since_us: int, until_us: int | None = None
    ) -> Iterator[Kind | Gap | End]:
        self.damage = [] if since_us else list(self._odd)
        position = _Joined()
        last = len(self.parts) - 1
        for index, recording in enumerate(self.parts):
            if index < last and self._begins[index + 1][0] < since_us:
                continue
            if until_us is not None and self._begins[index][0] > until_us:
                break
            if position.began and (missing := self._missing_before(index)):
                which = "1 part is" if missing == 1 else f"{missing} parts are"
                self._note_damage(f"{which} missing before {recording.path.name}")
                behind = self._begins[index][0] - position.mono_us
                yield Gap("part-missing", max(0, behind) / 1e6, max(0, position.mono_us), position.wall)
            reported = 0
            for item in read(recording):
                reported = self._note(recording, reported, last=index == last)
                try:
                    position.take(item)
                except TooManyError:
                    raise
                except RecordingError as damage:
                    self._note_damage(f"{recording.path.name}: after {position.mono_us} us: {damage}")
                    continue
                if not isinstance(item, End):
                    yield item
                elif index == last:
                    yield replace(item, windows=position.windows)
            self._note(recording, reported, last=index == last)
            position.began = True

    def _missing_before(self, index: int) -> int:
        """Return how many numbers are missing before this part; one without a header has one of them."""
        number = self._numbers[index]
        before = ((n, index - at) for at in range(index - 1, -1, -1) if (n := self._numbers[at]) is not None)
        known, apart = next(before, (0, 0))
        return max(0, number - known - apart) if number and known else 0

    def _note(self, recording: Recording, reported: int, *, last: bool) -> int:
        """Note damage that this part's reading found since; return how many sentences of it were noted by now."""
        for damage in recording.damage[reported:]:
            self._note_damage(damage if last and damage == UNCLOSED else f"{recording.path.name}: {damage}")
        return len(recording.damage)

    def _note_damage(self, damage: str) -> None:
        if len(self.damage) < MAX_NOTES * 2 or damage == UNCLOSED:
            self.damage.append(damage)


@dataclass
class _Joined:
    """Position of a reading across all parts."""

    mono_us: int = -1
    wall: float = 0.0
    windows: int = 0
    began: bool = False
    """A part has been read."""

    def __post_init__(self) -> None:
        self._series: set[Any] = set()

    def take(self, item: Item | Minute) -> None:
        """Raise RecordingError if this part exceeds the limits of a reader of all parts."""
        if isinstance(item, End):
            self.windows += item.windows
        if not isinstance(item, Frame | Minute):
            return
        frame = item.frame if isinstance(item, Minute) else item
        if item.mono_us <= self.mono_us:
            raise RecordingError("a window goes back in time and is left out")
        self._series |= frame.histograms.keys() | frame.seen.keys() | frame.kernel.keys()
        self._series.update(one.name for one in frame.devices)
        if len(self._series) > MAX_SERIES:
            raise TooManyError(f"the parts bring the capture's series beyond {MAX_SERIES}, more than any host has")
        self.mono_us, self.wall = item.mono_us, item.wall


def _numbers(recordings: Sequence[Recording]) -> dict[Path, int]:
    """Return the number of each part; RecordingError unless all are different parts of one capture."""
    found: dict[int, Recording] = {}
    first: CapturePart | None = None
    for recording in recordings:
        part = part_of(recording.origin)
        if part is None:
            raise RecordingError(f"{recording.path} is no part of a capture: read it by itself")
        first = first or part
        if part.capture != first.capture:
            raise RecordingError(f"{recording.path} is a part of another capture than {recordings[0].path}")
        other = found.setdefault(part.number, recording)
        if other is not recording:
            raise RecordingError(f"{other.path} and {recording.path} are both part {part.number} of the capture")
    return {one.path: number for number, one in found.items()}
