"""Captures in several files: the key that marks a part, several parts read as one recording, and rotation.

A header's key `part` has the part's number and its capture. Read together, parts give the items of one long recording;
time between two that are not neighbours is a gap `part-missing`. A part is identified by its number alone, so that
damage in one header doesn't cost the others.

Rotation begins a new part every day or at its share of --max-size, and removes the oldest parts. Each part is a whole
recording, and no frame is lost or doubled between two. Only parts of this capture are unlinked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Self, TypeVar

from latmon.aggregate.accumulator import Minute
from latmon.model.devices import Inventory
from latmon.model.frame import Device, Frame, Origin
from latmon.model.redaction import Redaction
from latmon.recording.codec import End, Gap
from latmon.recording.items import Item
from latmon.recording.read_position import UNKNOWN
from latmon.recording.reader import MAX_NOTES, UNCLOSED, Recording, open_recording
from latmon.recording.validate import RecordCodec, RecordField, label, text, within
from latmon.recording.writer import LostFileError, Writer
from latmon.support import output_files, paths, streams
from latmon.support.errors import RecordingError, UnavailableError

DAY_US = 86_400_000_000
SHARES = 8
"""Parts in which a capture with a maximum is kept: unlinking one loses an eighth of it."""
MIN_SHARE = 1024 * 1024
MIN_SIZE = 2 * MIN_SHARE
"""One part that is whole, and the one that is written."""
_RETRY_US = 60_000_000
_NAMES_TRIED = 1_000
KEY = "part"
Kind = TypeVar("Kind", bound=Item | Minute)
MAX_PARTS = 1_000
"""Most parts of one capture: nearly three years of days."""
CONTINUED = "continued in "
"""Begins the reason of the end line of every part but the last."""
_SUFFIXES = (".latmon.jsonl.gz", ".jsonl.gz", ".gz")


def is_nameless(recording: Recording) -> bool:
    """Return whether its header is lost; in a repaired copy the header has no values."""
    origin = recording.origin
    return recording.headless or (origin.backend, origin.host) == (UNKNOWN, UNKNOWN)


def begin_of(recording: Recording) -> tuple[int, float] | None:
    """Return CLOCK_MONOTONIC and wall clock of its begin; None where neither a header nor a window has it."""
    if not is_nameless(recording):
        return recording.origin.start_mono_us, recording.origin.start_wall
    first = next((first_item for first_item in recording if isinstance(first_item, Frame)), None)
    return None if first is None else (first.mono_us - first.dt_us, first.wall - first.dt_us / 1e6)


@dataclass(frozen=True, slots=True)
class CapturePart:
    """Number of a part from 1, random id of its capture, and the first part's file name."""

    number: int
    capture: str
    first: str


def part_path(first: Path, number: int) -> Path:
    """Return `x.part0002.latmon.jsonl.gz` for `x.latmon.jsonl.gz`: it sorts after the parts before it."""
    suffix = next(
        (
            suffix_candidate
            for suffix_candidate in _SUFFIXES
            if first.name.endswith(suffix_candidate) and first.name != suffix_candidate
        ),
        "",
    )
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
    begun = [path for path in paths if not is_empty(path)] or paths
    opened = [open_recording(path) for path in begun]
    return opened[0] if len(opened) == 1 else Parts(opened)


def is_empty(path: Path) -> bool:
    """Return whether a part has no byte: latmon was killed as it began it, and nothing is lost."""
    return stat.S_ISREG(paths.mode(path)) and not path.stat().st_size


class Parts:
    """Several parts of one capture, read like one Recording. `path` is that of the first of them."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        several_recordings = list(recordings)
        nameless = [
            recording
            for recording in several_recordings
            if part_of(recording.origin) is None and is_nameless(recording)
        ]
        reported = _numbers(
            [recording for recording in several_recordings if recording not in nameless] or several_recordings
        )
        begun = [(begin, recording) for recording in several_recordings if (begin := begin_of(recording)) is not None]
        begun.sort(key=lambda pair: pair[0])
        self.parts = tuple(recording for _, recording in begun)
        self._begins = [begin for begin, _ in begun]
        self._numbers = [reported.get(part.path) for part in self.parts]
        left_out = (recording for recording in several_recordings if recording not in self.parts)
        self._odd = [
            f"{recording.path.name}: left out: neither its header nor a window can be read" for recording in left_out
        ]
        named = next(part for part in self.parts if part.path in reported)
        begin_us, begin_wall = self._begins[0]
        self.path: Path = self.parts[0].path
        self.origin: Origin = replace(named.origin, start_mono_us=begin_us, start_wall=begin_wall)
        self.devices: tuple[Device, ...] = self.parts[0].devices
        self.damage: list[str] = []

    def __iter__(self) -> Iterator[Item]:
        return self.since(0)

    def since(self, mono_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Yield items; parts and members that end before `mono_us` are not even unpacked."""
        return self._joined(lambda recording: recording.since(mono_us, totals=totals), mono_us)

    def between(self, since_us: int, until_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Yield the windows that end in [since_us, until_us] and what lies between them; nothing later is read."""
        return self._joined(lambda recording: recording.between(since_us, until_us, totals=totals), since_us, until_us)

    def summed(self, since_us: int = 0, until_us: int | None = None) -> Iterator[Item | Minute]:
        """Yield items as `between` does, but a Minute for windows that have a roll-up in their part."""
        return self._joined(lambda recording: recording.summed(since_us, until_us), since_us, until_us)

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
                self._note_damage(missing)
                behind = self._begins[index][0] - position.mono_us
                yield Gap("part-missing", max(0, behind) / 1e6, max(0, position.mono_us), position.wall)
            reported = 0
            for item in read(recording):
                reported = self._note(recording, reported, last=index == last)
                try:
                    position.take(item)
                except RecordingError as damage:
                    self._note_damage(f"{recording.path.name}: after {position.mono_us} us: {damage}")
                    continue
                if not isinstance(item, End):
                    yield item
                elif index == last:
                    yield replace(item, windows=position.windows)
            self._note(recording, reported, last=index == last)
            position.began = True

    @property
    def missing(self) -> list[str]:
        """Return a sentence for each place between two of them where parts are missing."""
        return list(filter(None, map(self._missing_before, range(len(self.parts)))))

    def _missing_before(self, index: int) -> str:
        """Return how many numbers are missing before this part; one without a header has one of them."""
        number = self._numbers[index]
        before = ((n, index - at) for at in range(index - 1, -1, -1) if (n := self._numbers[at]) is not None)
        known, apart = next(before, (0, 0))
        missing = number - known - apart if number and known else 0
        if missing <= 0:
            return ""
        which = "1 part is" if missing == 1 else f"{missing} parts are"
        return f"{which} missing before {self.parts[index].path.name}"

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

    def take(self, item: Item | Minute) -> None:
        """Go on to the next item; RecordingError where time goes back from one part to the next."""
        if isinstance(item, End):
            self.windows += item.windows
        if not isinstance(item, Frame | Minute):
            return
        if item.mono_us <= self.mono_us:
            raise RecordingError("a window goes back in time and is left out")
        self.mono_us, self.wall = item.mono_us, item.wall


def _numbers(recordings: Sequence[Recording]) -> dict[Path, int]:
    """Return the number of each part; RecordingError unless all are different parts of one capture."""
    found_recordings: dict[int, Recording] = {}
    first: CapturePart | None = None
    for recording in recordings:
        part = part_of(recording.origin)
        if part is None:
            raise RecordingError(f"{recording.path} is no part of a capture: read it by itself")
        first = first or part
        if part.capture != first.capture:
            raise RecordingError(f"{recording.path} is a part of another capture than {recordings[0].path}")
        other = found_recordings.setdefault(part.number, recording)
        if other is not recording:
            raise RecordingError(f"{other.path} and {recording.path} are both part {part.number} of the capture")
    return {found_recording.path: number for number, found_recording in found_recordings.items()}


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """Limits of a recording: bytes in all, the age at which a part is removed, and whether it is redacted."""

    max_size: int | None = None
    redaction: Redaction | None = None
    keep_us: int | None = None

    @property
    def share(self) -> int | None:
        """Return the bytes of a part."""
        return None if self.max_size is None else max(MIN_SHARE, self.max_size // SHARES)

    @property
    def length_us(self) -> int:
        """Return the longest time of a part: with --keep 1h a part of a day would be too long."""
        return DAY_US if self.keep_us is None else min(DAY_US, self.keep_us)


@dataclass(frozen=True, slots=True)
class _Finished:
    """Closed part. Another file may have its name by now, and even its inode number, but hardly its size, too."""

    path: Path
    inode: tuple[int, int]
    size: int
    ended_us: int

    @property
    def is_there(self) -> bool:
        """Return whether its name is still its own; True for a file server that doesn't answer."""
        try:
            return self.is_own(self.path.lstat())
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def is_own(self, status: os.stat_result) -> bool:
        """Return whether this is the status of its file."""
        return (status.st_dev, status.st_ino, status.st_size) == (*self.inode, self.size)


class Rotation:
    """Writer of parts with a Writer's methods. `trouble`: why nothing is written; `refusal`: why parts stay."""

    def __init__(self, first: Path, origin: Origin, limits: RecordingLimits) -> None:
        self._first, self._origin, self._limits = first, origin, limits
        self._is_stream = first == streams.STANDARD
        self._capture = secrets.token_hex(8)
        self._inventory = Inventory()
        self._finished: deque[_Finished] = deque()
        self._number = self._name = 1
        self._largest = 0
        self._fresh = False
        self._last: Frame | None = None
        self._retry_us = 0
        self.path = first
        self._writer = self._open(first)
        self._began_us: int | None = None
        self._size = self._writer.size
        self.refusal = ""

    @classmethod
    def create(cls, path: Path, origin: Origin, limits: RecordingLimits) -> Self:
        """Create the first part with its header; UnavailableError when there can't be one."""
        return cls(path, origin, limits)

    @property
    def trouble(self) -> str:
        return self._writer.trouble

    @property
    def size(self) -> int:
        """Return the bytes of all parts after the latest frame; one number, so that other threads may read it."""
        return self._size

    def append(self, frame: Frame) -> None:
        """Write a frame to this part, or to the next one if this one is full."""
        if self._is_due(frame):
            self._rotate(frame)
        if self._began_us is None:
            self._began_us = frame.mono_us - frame.dt_us
        self._inventory.note(frame)
        before = self._writer.size
        # removed devices are listed again, because a reader of all parts knew them from the part before
        whole_frame = replace(self._inventory.complete(frame), removed=frame.removed) if self._fresh else frame
        self._writer.append(whole_frame)
        self._fresh = False
        self._last = frame
        self._largest = max(self._largest, self._writer.size - before)
        self._retire(frame.mono_us)
        self._size = self._bytes()

    def gap(self, reason: str, seconds: float) -> None:
        """Note time without a frame before the next one."""
        self._writer.gap(reason, seconds)

    def require_file(self) -> None:
        """Raise LostFileError if the part that is written was removed or truncated."""
        self._writer.require_file()

    def close(self, reason: str = "closed") -> None:
        """Close the part that is written; no more is written unless `begin_again` is called."""
        self._finish(self._writer, self.path, reason)
        self._size = sum(part.size for part in self._finished)

    def begin_again(self) -> None:
        """Begin the next part after `close`: of the same capture, so that its limits are those of all parts.

        UnavailableError or OSError if it can't be created.
        """
        self._open_next()

    def _bytes(self) -> int:
        return self._writer.size + sum(finished.size for finished in self._finished)

    def _is_due(self, frame: Frame) -> bool:
        if self._began_us is None or self._last is None or frame.mono_us < self._retry_us or self._is_stream:
            return False
        share = self._limits.share
        return frame.mono_us - self._began_us > self._limits.length_us or (
            share is not None and self._writer.size + self._largest > share
        )

    def _rotate(self, frame: Frame) -> None:
        """Begin the next part; if that fails, go on with this one and try again in a minute."""
        self._writer.flush()
        if self._writer.trouble:
            return
        old, old_path = self._writer, self.path
        try:
            self._open_next()
        except (UnavailableError, OSError) as refusal:
            self.refusal = f"{refusal}; {old_path.name} goes on instead"
            self._retry_us = frame.mono_us + _RETRY_US
            return
        self._finish(old, old_path, CONTINUED + (f"part {self._number}" if self._limits.redaction else self.path.name))

    def _open_next(self) -> None:
        """Open the next part; after an error nothing has changed: no number is left out."""
        path = self._free_name()
        self._number += 1
        try:
            self._writer = self._open(path)
        except (UnavailableError, OSError):
            self._number -= 1
            self._name -= 1
            raise
        self.path, self._fresh, self.refusal, self._began_us = path, True, "", None

    def _finish(self, old: Writer, path: Path, reason: str) -> None:
        """Close a part whose windows are written."""
        inode = (0, 0)
        with contextlib.suppress(OSError):  # a file server without the file
            inode = old.inode
        try:
            old.close(reason)
        except LostFileError:
            raise
        except OSError:  # its windows are there
            pass
        finally:
            ended_us = self._last.mono_us if self._last is not None else 0
            self._finished.append(_Finished(path, inode, old.size, ended_us))

    def _free_name(self) -> Path:
        """Return the next free name: parts of an earlier capture may be beside an unlinked first file."""
        for _ in range(_NAMES_TRIED):
            self._name += 1
            path = part_path(self._first, self._name)
            if not os.path.lexists(path):
                return path
        raise UnavailableError(f"{path.name} and the names before it are taken")

    def _open(self, path: Path) -> Writer:
        # a name may have what --redact hides
        part = CapturePart(self._number, self._capture, "" if self._limits.redaction else self._first.name)
        last = self._last
        origin = self._origin if last is None else beginning_after(last, self._origin)
        return Writer.create(path, as_part(origin, part), redaction=self._limits.redaction)

    def _retire(self, now_us: int) -> None:
        """Unlink parts that are too old, and the oldest part while the next member might not fit."""
        for finished in [finished for finished in self._finished if not finished.is_there]:
            self._finished.remove(finished)
        keep_us, max_size = self._limits.keep_us, self._limits.max_size
        while self._finished and keep_us is not None and now_us - self._finished[0].ended_us > keep_us:
            self._unlink(self._finished.popleft())
        while self._finished and max_size is not None and self._bytes() + self._largest > max_size:
            self._unlink(self._finished.popleft())

    def _unlink(self, part: _Finished) -> None:
        try:
            output_files.unlink_if(part.path, part.is_own)
        except (UnavailableError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self.refusal = f"{part.path.name} can't be unlinked: {why or error}"


def beginning_after(last: Frame, origin: Origin) -> Origin:
    """Return the origin of a recording that begins in the middle of a capture, after its frame `last`."""
    return replace(origin, start_wall=last.wall, start_mono_us=last.mono_us)
