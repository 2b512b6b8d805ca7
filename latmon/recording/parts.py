"""A capture of days is a recording in parts, each complete by itself: what marks one, and several read as one.

A header's key `part` says which part of which capture it is. Read together they are what one long recording would be;
what lies between two of them that are not neighbours is a gap `part-missing`. Opens no file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.errors import RecordingError, TooManyError
from latmon.minute import Minute
from latmon.model import Device, Frame, Origin
from latmon.recording import checks
from latmon.recording.course import MAX_SERIES
from latmon.recording.lines import End, Gap
from latmon.recording.placing import Numbered, begin_of, is_nameless, place
from latmon.recording.reader import MAX_NOTES, UNCLOSED, Recording, open_recording
from latmon.recording.summed import Item

KEY = "part"
Kind = TypeVar("Kind", bound=Item | Minute)
MAX_PARTS = 1_000
"""Read as one: nearly three years of days."""
CONTINUED = "continued in "
"""Begins the reason of the end line of every part but the last."""
_SUFFIXES = (".latmon.jsonl.gz", ".jsonl.gz", ".gz")


@dataclass(frozen=True, slots=True)
class Part:
    """`number` counts from 1; `capture` tells one capture from any other; `first` is the first part's file name."""

    number: int
    capture: str
    first: str


def part_path(first: Path, number: int) -> Path:
    """`x.latmon.jsonl.gz` -> `x.part0002.latmon.jsonl.gz`: sorts behind the first part, and behind part 1."""
    suffix = next((one for one in _SUFFIXES if first.name.endswith(one) and first.name != one), "")
    return first.with_name(f"{first.name.removesuffix(suffix)}.part{number:04}{suffix}")


def as_part(origin: Origin, part: Part) -> Origin:
    """The origin with the key that says so."""
    told = {"number": part.number, "capture": part.capture, "of": part.first}
    return replace(origin, extra=MappingProxyType({**origin.extra, KEY: told}))


def part_of(origin: Origin) -> Part | None:
    """Which part this origin begins; None for a recording that is none, or whose key makes no sense."""
    told = origin.extra.get(KEY)
    if not isinstance(told, dict):
        return None
    try:
        part = Part(
            checks.integer(told, "number", 0, low=1),
            checks.label(told.get("capture"), "capture"),
            checks.sentence(told, "of"),
        )
    except RecordingError:
        return None
    return part if part.capture else None


def open_parts(paths: Sequence[Path]) -> Recording | Parts:
    """One recording, or the parts of one capture in any order; RecordingError for parts of different ones."""
    if not paths:
        raise RecordingError("there is no recording to read")
    if len(paths) > MAX_PARTS:
        raise RecordingError(f"{len(paths)} recordings are more than the {MAX_PARTS} that can be read as one")
    # whoever is killed as he begins a part leaves it empty, and has lost nothing
    begun = [path for path in paths if not _is_empty(path)] or paths
    opened = [open_recording(path) for path in begun]
    return opened[0] if len(opened) == 1 else Parts(opened)


def _is_empty(path: Path) -> bool:
    return path.is_file() and not path.stat().st_size


class Parts:
    """What a Recording is, of several parts of one capture. `path` is that of the first of them."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        several = list(recordings)
        nameless = [one for one in several if part_of(one.origin) is None and is_nameless(one)]
        told = sorted(_numbered([one for one in several if one not in nameless] or several), key=lambda one: one[0])
        for (before, one), (after, other) in pairwise(told):
            if before == after:
                raise RecordingError(f"{one.path} and {other.path} are both part {after} of the capture")
        placed, left = place(told, nameless)
        self._numbers = [number for number, _ in placed]
        self.parts = tuple(recording for _, recording in placed)
        self._begins = [begin_of(one) for one in self.parts]
        self._odd = [
            *(f"{one.path.name}: part {n} by its stamps alone" for n, one in placed if one in nameless),
            *(f"{one.path.name}: left out, its header is lost and it fits nowhere" for one in left),
        ]
        begin_us, begin_wall = self._begins[0]
        self.path: Path = self.parts[0].path
        self.origin: Origin = replace(told[0][1].origin, start_mono_us=begin_us, start_wall=begin_wall)
        self.devices: tuple[Device, ...] = self.parts[0].devices
        self.damage: list[str] = []

    def __iter__(self) -> Iterator[Item]:
        return self.since(0)

    def since(self, mono_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Its items, without the parts and members that end before `mono_us`: they are not even unpacked."""
        return self._joined(lambda one: one.since(mono_us, totals=totals), mono_us)

    def between(self, since_us: int, until_us: int, *, totals: bool = False) -> Iterator[Item]:
        """The windows that end in [since_us, until_us], and what lies between them; nothing behind them is read."""
        return self._joined(lambda one: one.between(since_us, until_us, totals=totals), since_us, until_us)

    def summed(self, since_us: int = 0, until_us: int | None = None) -> Iterator[Item | Minute]:
        """As `between`, but a Minute for the windows that a roll-up stands for; a part's roll-ups are its own."""
        return self._joined(lambda one: one.summed(since_us, until_us), since_us, until_us)

    @property
    def is_live(self) -> bool:
        """Whether the latest reading found that a latmon still writes the last of them."""
        return self.parts[-1].is_live

    def span(self) -> tuple[int, int]:
        """CLOCK_MONOTONIC of its begin and of its last window, by what the members say about themselves."""
        return self.parts[0].span()[0], self.parts[-1].span()[1]

    def _joined(
        self, read: Callable[[Recording], Iterator[Kind]], since_us: int, until_us: int | None = None
    ) -> Iterator[Kind | Gap | End]:
        self.damage = [] if since_us else list(self._odd)
        course = _Joined()
        last = len(self.parts) - 1
        for index, recording in enumerate(self.parts):
            if index < last and self._begins[index + 1][0] < since_us:
                continue
            if until_us is not None and self._begins[index][0] > until_us:
                break
            if index and self._numbers[index] > self._numbers[index - 1] + 1 and course.began:
                yield self._missing(index, course)
            said = 0
            for item in read(recording):
                said = self._note(recording, said, last=index == last)
                try:
                    course.take(item)
                except TooManyError:
                    raise
                except RecordingError as damage:
                    self._say(f"{recording.path.name}: behind {course.mono_us} us: {damage}")
                    continue
                if not isinstance(item, End):
                    yield item
                elif index == last:
                    yield replace(item, windows=course.windows)
            self._note(recording, said, last=index == last)
            course.began = True

    def _missing(self, index: int, course: _Joined) -> Gap:
        """What lies before part `index`; its first window is where that ends."""
        begin, end = self._numbers[index - 1] + 1, self._numbers[index] - 1
        which = f"part {begin} is" if begin == end else f"parts {begin} to {end} are"
        self._say(f"{which} missing before {self.parts[index].path.name}")
        behind = self._begins[index][0] - course.mono_us
        return Gap("part-missing", max(0, behind) / 1e6, max(0, course.mono_us), course.wall)

    def _note(self, recording: Recording, said: int, *, last: bool) -> int:
        """What this part's reading found since; how much of it has been said now."""
        for damage in recording.damage[said:]:
            self._say(damage if last and damage == UNCLOSED else f"{recording.path.name}: {damage}")
        return len(recording.damage)

    def _say(self, damage: str) -> None:
        if len(self.damage) < MAX_NOTES * 2 or damage == UNCLOSED:
            self.damage.append(damage)


@dataclass
class _Joined:
    """How far the reading of all parts has come."""

    mono_us: int = -1
    wall: float = 0.0
    windows: int = 0
    began: bool = False
    """A part has been read."""

    def __post_init__(self) -> None:
        self._series: set[Any] = set()

    def take(self, item: Item | Minute) -> None:
        """RecordingError when a reader of all parts could not bear this one."""
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
    """Each with its number, all of them of one capture."""
    first: tuple[Part, Recording] | None = None
    for recording in recordings:
        part = part_of(recording.origin)
        if part is None:
            raise RecordingError(f"{recording.path} is no part of a capture: read it by itself")
        first = first or (part, recording)
        if part.capture != first[0].capture:
            raise RecordingError(f"{recording.path} is a part of another capture than {first[1].path}")
        yield part.number, recording
