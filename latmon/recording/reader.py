"""The recording's reader: whatever can be read of a file, in order, and a word about what can't.

Streams: one member at a time is in memory. Only the header must be readable for a recording to open, and even
without it the windows are. Knows no clock and no UI.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from latmon.errors import RecordingError, TooManyError
from latmon.minute import Minute
from latmon.model import Device, Frame, Origin
from latmon.new_file import named
from latmon.recording import checks, columns, decode
from latmon.recording.course import UNKNOWN, Course, admit, enter
from latmon.recording.lines import End
from latmon.recording.members import GIVEN_UP, Members, ReadError
from latmon.recording.places import Places
from latmon.recording.repacked import is_repacked
from latmon.recording.summed import Item, Summed, lying_in
from latmon.recording.summing import units
from latmon.recording.written import is_written

UNCLOSED = "ended without a closing line (killed?)"
MAX_NOTES = 100
MAX_BEFORE_HEADER = 20
"""Damaged places before anything readable: a file that begins like that is none of ours."""
MAX_LINES = 100_000
"""In one member; a second of 10 windows and a thousand outliers has a hundredth of it."""
_DECODERS: dict[str, Callable[[checks.Json], Item]] = {
    "gap": decode.decode_gap,
    "mark": decode.decode_mark,
    "end": decode.decode_end,
}


class Recording:
    """Iterate it for its items, as often as you like; `damage` is what the latest reading found, a sentence each."""

    def __init__(self, path: Path, origin: Origin, devices: tuple[Device, ...], headless: str) -> None:
        self.path, self.origin, self.devices = path, origin, devices
        self.damage: list[str] = []
        self.is_live = False
        """Whether the latest reading found that a latmon still writes it."""
        self._headless = headless
        self._named = {one.name for one in devices}
        self._unsaid = 0
        self._places = Places()

    @property
    def headless(self) -> bool:
        """Whether its header is lost, so that its origin is unknown."""
        return bool(self._headless)

    def __iter__(self) -> Iterator[Item]:
        return self.since(0)

    def since(self, mono_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Its items, without the members that end before `mono_us`: they are not even unpacked.

        `totals`: of the always-on probe's histograms those alone, where that saves reading the others.
        """
        return self._read(mono_us, None, totals=totals)

    def between(self, since_us: int, until_us: int, *, totals: bool = False) -> Iterator[Item]:
        """The windows that end in [since_us, until_us], and what lies between them; nothing behind them is read.

        A gap or a mark is its next window's: it is left out with that one.
        """
        yield from lying_in(self._read(since_us, until_us, totals=totals), since_us, until_us)

    def summed(self, since_us: int = 0, until_us: int | None = None) -> Iterator[Item | Minute]:
        """As `between`, but a Minute for the windows that a roll-up stands for (summed.py)."""
        self._begin()
        course = Course()
        with opened(self.path) as file:
            members = Members(file, self._note)
            begin = self._places.behind(file, since_us) if since_us else 0
            summed = Summed(members, course, self._items, self._note, self._named)
            yield from lying_in(summed.items(units(members, begin, until_us), since_us), since_us, until_us)
        self._end(course, until_us)

    def span(self) -> tuple[int, int]:
        """CLOCK_MONOTONIC of its begin and of its last window, by what the members say about themselves."""
        with opened(self.path) as file:
            first, last = self._places.follow(file)
            for part in Members(file, lambda _: None).parts(last + 1, begin=self._places.end):
                last = max(last, part.head.last_us if part.head and not part.damage else 0)
        return first, last

    def ends(self) -> list[int]:
        """The last stamp of each member, by what its head says, where time goes forward."""
        first, last = self.span()
        return self._places.ends() if first <= last else []

    def texts(self) -> Iterator[bytes]:
        """The text of each member that can be read."""
        with opened(self.path) as file:
            yield from Members(file, lambda _: None).texts()

    def _read(self, since_us: int, until_us: int | None, *, totals: bool = False) -> Iterator[Item]:
        self._begin()
        course = Course()
        with opened(self.path) as file:
            begin = self._places.behind(file, since_us) if since_us else 0
            for part in Members(file, self._note).parts(since_us, until_us, begin=begin):
                yield from self._items(part.text, course, totals=totals)
        self._end(course, until_us)

    def _begin(self) -> None:
        self.damage, self._unsaid = [self._headless] if self._headless else [], 0

    def _end(self, course: Course, until_us: int | None) -> None:
        if not course.ended and until_us is None:
            with opened(self.path) as file:
                self.is_live = is_written(file)
            if not self.is_live:
                self._note(UNCLOSED)
        if self._unsaid:
            self.damage.append(f"and {self._unsaid} more damaged places")

    def told(self) -> Iterator[tuple[bytes, Item | None]]:
        """Every line that can be read, with its item; None where a reader of items passes it over."""
        self._begin()
        course = Course()
        with opened(self.path) as file:
            for part in Members(file, self._note).parts():
                yield from self._told(part.text, course)
        self._end(course, None)

    def _items(self, text: bytes, course: Course, *, totals: bool = False) -> Iterator[Item]:
        for _, item in self._told(text, course, totals=totals):
            if item is not None:
                yield item

    def _told(self, text: bytes, course: Course, *, totals: bool = False) -> Iterator[tuple[bytes, Item | None]]:
        for line in lines_of(text, self._note):
            try:
                item = item_behind(columns.totals_alone(line) if totals else line, course)
                if course.is_foreign:
                    continue
                if isinstance(item, Frame):
                    admit(item, course)
            except TooManyError as refusal:
                raise TooManyError(f"{named(self.path)} can't be read: {refusal}") from None
            except RecordingError as damage:
                self._note(f"behind {course.mono_us} us: {damage}" if course.mono_us >= 0 else str(damage))
                continue
            if item is not None:
                course.ended = isinstance(item, End)
            yield line, item

    def _note(self, damage: str) -> None:
        # how a reading ended is always said
        if len(self.damage) < MAX_NOTES or damage.startswith((UNCLOSED, GIVEN_UP)):
            self.damage.append(damage)
        else:
            self._unsaid += 1


def open_recording(path: Path) -> Recording:
    """RecordingError when it is no recording of ours, a newer one, or nothing of it can be read."""
    damage: list[str] = []

    def note(what: str) -> None:
        damage.append(what)
        if len(damage) > MAX_BEFORE_HEADER:
            raise _not_ours(path, damage[0])

    with opened(path) as file:
        for text in Members(file, note).texts():
            for line in lines_of(text, note):
                found = _first(path, line)
                if found is not None:
                    origin, devices = found
                    headless = "" if devices is not None else "its header can't be read: host and stages are unknown"
                    return Recording(path, origin, devices or (), headless)
    raise _not_ours(path, damage[0] if damage else "it is empty")


def _not_ours(path: Path, why: str) -> RecordingError:
    with opened(path) as file:
        if is_repacked(file):
            remedy = f"`latmon check {path} --repair -o OUT` makes a recording of it"
            return RecordingError(f"{path} was unpacked or packed again by another program: {remedy}")
    return RecordingError(f"{path} is not a latmon recording: {why}")


def _first(path: Path, line: bytes) -> tuple[Origin, tuple[Device, ...] | None] | None:
    """Origin and devices, if this line tells them; an unknown origin and None, if it is a window without a header."""
    try:
        value = checks.parse(line)
        if value.get("type") == "header":
            return decode.decode_origin(value), decode.decode_devices(value)
        is_window = value.get("type") == "window" and decode.decode_frame(value) is not None
    except RecordingError as refusal:
        raise RecordingError(f"{path} can't be read: {refusal}") from None
    return (Origin(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN), None) if is_window else None


def item_of(line: bytes) -> Item | None:
    """A line's value; None for the header and for what a later version added."""
    return _item(checks.parse(line), line)


def item_behind(line: bytes, course: Course) -> Item | None:
    """The same; a header is held against the first one, see `enter`."""
    value = checks.parse(line)
    if value.get("type") == "header":
        enter(decode.decode_origin(value), course)
    return _item(value, line)


def _item(value: dict[str, Any], line: bytes) -> Item | None:
    kind = value.get("type")
    if kind == "window":
        return decode.decode_frame(value, booleans=checks.may_hold_booleans(line))
    decoder = _DECODERS.get(kind) if isinstance(kind, str) else None
    return None if decoder is None else decoder(value)


def raw_lines(recordings: Sequence[Recording]) -> Iterator[bytes | None]:
    """Every line that can be read, undecoded; None behind each member."""
    for recording in recordings:
        for text in recording.texts():
            yield from lines_of(text, lambda _: None)
            yield None


def lines_of(text: bytes, note: Callable[[str], None]) -> Iterator[bytes]:
    """A member's lines, as many as one of ours may have."""
    lines = io.BytesIO(text)
    yield from islice(lines, MAX_LINES)
    if lines.read(1):
        note(f"a member has more than {MAX_LINES} lines: the rest is left out")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A plain file for reading; a FIFO would hang us and a device would never end.

    What is said of it is what reading it comes to, never how whoever reads it writes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        file = open(descriptor, "rb")  # noqa: PTH123, SIM115 - a path can't open a descriptor; closed below
    except OSError as error:
        raise _unreadable(path, error) from None
    with file:
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RecordingError(f"{path} is not a plain file")
            yield file
        except ReadError as error:
            raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(f"{path} can't be read: {error.strerror or error}")
