"""Captures in several files: the key that marks a part, and several parts read as one recording.

A header's key `part` has the part's number and its capture. Read together, parts give the items of one long recording;
time between two that are not neighbours is a gap `part-missing`. A part is identified by its number alone, so that
damage in one header doesn't cost the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import Device, Frame, Origin
from latmon.recording.codec import End, Gap
from latmon.recording.fields import RecordCodec, RecordField, within
from latmon.recording.reader import MAX_NOTES, UNCLOSED, Item, Recording, open_recording
from latmon.recording.validate import MAX_SERIES, UNKNOWN, label, text
from latmon.support.errors import RecordingError, TooManyError

Numbered = tuple[int, Recording]


@dataclass(frozen=True, slots=True)
class _Nameless:
    recording: Recording
    begin_us: int
    wall: float
    near_us: int
    """A recording that follows a part as closely as this is the next part."""
    last_us: int


def is_nameless(recording: Recording) -> bool:
    """Return whether its header is lost; in a repaired copy the header has no values."""
    origin = recording.origin
    return recording.headless or (origin.backend, origin.host) == (UNKNOWN, UNKNOWN)


def begin_of(recording: Recording) -> tuple[int, float]:
    """Return CLOCK_MONOTONIC and wall clock of its begin."""
    if not is_nameless(recording):
        return recording.origin.start_mono_us, recording.origin.start_wall
    known = _known(recording)
    return (known.begin_us, known.wall) if known else (0, 0.0)


def place(numbered: Iterable[Numbered], nameless: Iterable[Recording]) -> tuple[list[Numbered], list[Recording]]:
    """Return all that have a place, in their order, and those that have none."""
    placed = sorted(numbered, key=lambda one: one[0])
    found = [(_known(one), one) for one in nameless]
    left = [one for known, one in found if known is None]
    for one in sorted((known for known, _ in found if known is not None), key=lambda one: one.begin_us):
        number = _number(one, placed)
        if number is None:
            left.append(one.recording)
        else:
            placed = sorted([*placed, (number, one.recording)], key=lambda other: other[0])
    return placed, left


def _number(one: _Nameless, placed: list[Numbered]) -> int | None:
    """Return a free number between those of the parts that end before it and that begin after it."""
    at = sum(begin_of(other)[0] <= one.begin_us for _, other in placed)
    before, after = placed[at - 1] if at else None, placed[at] if at < len(placed) else None
    behind_us = None if before is None else one.begin_us - before[1].span()[1]
    ahead_us = None if after is None else begin_of(after[1])[0] - one.last_us
    if any(us is not None and us < -one.near_us // 2 for us in (behind_us, ahead_us)):
        return None  # it overlaps
    follows = behind_us is not None and behind_us <= one.near_us
    precedes = ahead_us is not None and ahead_us <= one.near_us
    if before is not None and after is not None:
        number = before[0] + 1 if follows or not precedes else after[0] - 1
        return number if before[0] < number < after[0] else None
    if before is not None:
        return before[0] + 1 if follows else None
    return after[0] - 1 if after is not None and precedes and after[0] > 1 else None


def _known(recording: Recording) -> _Nameless | None:
    """Return the span of its windows; None if it has none."""
    first = next((one for one in recording if isinstance(one, Frame)), None)
    if first is None:
        return None
    wall = first.wall - first.dt_us / 1e6
    last_us = max(recording.span()[1], first.mono_us)
    return _Nameless(recording, first.mono_us - first.dt_us, wall, first.dt_us, last_us)


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
        reported = sorted(_numbered([one for one in several if one not in nameless] or several), key=lambda one: one[0])
        for (before, one), (after, other) in pairwise(reported):
            if before == after:
                raise RecordingError(f"{one.path} and {other.path} are both part {after} of the capture")
        placed, left = place(reported, nameless)
        self._numbers = [number for number, _ in placed]
        self.parts = tuple(recording for _, recording in placed)
        self._begins = [begin_of(one) for one in self.parts]
        self._odd = [
            *(f"{one.path.name}: part {n} by its stamps alone" for n, one in placed if one in nameless),
            *(f"{one.path.name}: left out: its header is lost, and its times match no part" for one in left),
        ]
        begin_us, begin_wall = self._begins[0]
        self.path: Path = self.parts[0].path
        self.origin: Origin = replace(reported[0][1].origin, start_mono_us=begin_us, start_wall=begin_wall)
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
            if index and self._numbers[index] > self._numbers[index - 1] + 1 and position.began:
                yield self._missing(index, position)
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

    def _missing(self, index: int, position: _Joined) -> Gap:
        """Return the gap before part `index`; it ends where that part's first window begins."""
        begin, end = self._numbers[index - 1] + 1, self._numbers[index] - 1
        which = f"part {begin} is" if begin == end else f"parts {begin} to {end} are"
        self._note_damage(f"{which} missing before {self.parts[index].path.name}")
        behind = self._begins[index][0] - position.mono_us
        return Gap("part-missing", max(0, behind) / 1e6, max(0, position.mono_us), position.wall)

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


def _numbered(recordings: Iterable[Recording]) -> Iterator[Numbered]:
    """Return each part with its number; all are of one capture."""
    first: tuple[CapturePart, Recording] | None = None
    for recording in recordings:
        part = part_of(recording.origin)
        if part is None:
            raise RecordingError(f"{recording.path} is no part of a capture: read it by itself")
        first = first or (part, recording)
        if part.capture != first[0].capture:
            raise RecordingError(f"{recording.path} is a part of another capture than {first[1].path}")
        yield part.number, recording
