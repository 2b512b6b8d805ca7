"""The reader of a recording: every readable item in order, damage as items; roll-ups where only sums are needed.

Streams: one member at a time is in memory. Only the header must be readable for a recording to open, and even
without it the windows are. Knows no clock and no UI.

A roll-up counts only where it fits: the heads from the first of its members to its own follow each other, and its
stamps are theirs. Reads no line itself; whether the roll-up can be read is its reader's.

A sum begins and ends with a window, and a Minute has a window or another one behind it. So no number comes twice;
where a roll-up is damaged, or can't be what it says, its windows are read. Knows no path and no place in a file.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from latmon.aggregate.rollup import Minute
from latmon.model.frame import Device, Frame, Mark, Origin
from latmon.recording import decode, packed_tables, rollup, validate
from latmon.recording.encode import End, Gap
from latmon.recording.members import GIVEN_UP, Members, Part, Places, ReadError, is_repacked, is_written
from latmon.recording.validate import UNKNOWN, Course, admit, enter
from latmon.support.errors import RecordingError, TooManyError
from latmon.support.streams import named

MAX_AHEAD = 1024
"""Members that are looked at for one roll-up: a minute has 60 of them."""


MIN_WINDOW_US = 1000
"""Shorter windows have no roll-up."""


class Stretch(NamedTuple):
    """Members to byte `end - 1`; with `roll_up` the one there stands for those from byte `behind` on."""

    end: int
    behind: int = 0
    roll_up: int = 0
    first_us: int = 0
    fewest: int = 0
    most: int = 0
    """Windows that its members may hold, by their heads."""
    part: Part | None = None
    """The roll-up itself."""


def units(members: Members, begin: int, until_us: int | None) -> Iterator[Part | Stretch]:
    """What is to be read as it is, and what a roll-up stands for, in their order."""
    at = begin
    while at < members.size:
        found = _ahead(members, at, until_us)
        stop = found.behind if found.roll_up else found.end
        for part in members.parts(0, until_us, begin=at, end=stop):
            yield part
            at = part.end
        if at < stop:  # what comes is later than what was asked for
            return
        if found.roll_up and at == stop:
            part = next(members.parts(begin=found.roll_up, end=found.end))
            yield found._replace(part=part)
            at = part.end  # where its head lies about its length that is where the next one begins


def _ahead(members: Members, begin: int, until_us: int | None) -> Stretch:
    """To the next roll-up, or as far as the heads follow each other; at least one member."""
    firsts: dict[int, tuple[int, int, int]] = {}
    last_us, at = 0, begin
    fewest = most = 0
    for _ in range(MAX_AHEAD):
        head = members.head(at)
        if head is None:
            return Stretch(max(at, begin + 1))
        if head.stands_for:
            behind = at - head.stands_for
            first_us, before, most_before = firsts.get(behind, (-1, 0, 0))
            fits = first_us == head.first_us and last_us == head.last_us
            if fits and (until_us is None or last_us <= until_us):
                return Stretch(at + head.length, behind, at, first_us, fewest - before, most - most_before)
            return Stretch(at + head.length)
        if head.first_us <= last_us:  # no minute goes back in time
            firsts.clear()
        firsts[at], last_us = (head.first_us, fewest, most), head.last_us
        span_us = head.last_us - head.first_us
        fewest += 2 if span_us > 0 else 1
        most += 1 + max(span_us, 0) // MIN_WINDOW_US
        at += head.length
    return Stretch(at)


Item = Frame | Gap | Mark | End
T = TypeVar("T", Item, Item | Minute)


class _Held(NamedTuple):
    """A minute that waits for what is behind it; `before_us` is the last window's stamp before it."""

    minute: Minute
    stretch: Stretch
    before_us: int


class Summed:
    """One reading: `read` makes a member's text items, `note` is told what can't be believed."""

    def __init__(
        self,
        members: Members,
        course: Course,
        read: Callable[[bytes, Course], Iterator[Item]],
        note: Callable[[str], None],
        named: set[str],
    ) -> None:
        """`named`: the devices that the header names."""
        self._members, self._course, self._read, self._note, self._named = members, course, read, note, named
        self._held: _Held | None = None

    def items(self, units: Iterable[Part | Stretch], since_us: int) -> Iterator[Item | Minute]:
        """In their order; no Minute before the first window from `since_us` on."""
        began = False
        for unit in units:
            if began and isinstance(unit, Stretch) and (minute := self._minute(unit)) is not None:
                yield from self._passed()
                self._held = _Held(minute, unit, self._course.mono_us)
                self._course.mono_us = minute.mono_us
                continue
            for item in self._of_parts(unit, self._course):
                yield from self._passed() if isinstance(item, Frame) else self._released()
                began = began or (isinstance(item, Frame) and item.mono_us >= since_us)
                yield item
        yield from self._released()

    def _passed(self) -> Iterator[Minute]:
        """The minute that is held, now that something to be summed is behind it."""
        held, self._held = self._held, None
        if held is not None:
            yield held.minute

    def _released(self) -> Iterator[Item]:
        """A minute's windows after all."""
        held, self._held = self._held, None
        if held is not None:
            yield from self._of_parts(held.stretch, Course(held.before_us))

    def _of_parts(self, unit: Part | Stretch, course: Course) -> Iterator[Item]:
        """What is to be read of it, window by window."""
        parts = (unit,) if isinstance(unit, Part) else self._members.parts(begin=unit.behind, end=unit.roll_up)
        for part in parts:
            yield from self._read(part.text, course)

    def _minute(self, stretch: Stretch) -> Minute | None:
        """What a roll-up says; None where that can't be read, or can't be."""
        if stretch.part is None or stretch.part.damage or self._course.is_foreign:
            return None
        course = self._course
        try:
            found = rollup.decode_minute(validate.parse(stretch.part.text))
            if why := _doubt(found, stretch):
                self._note(f"behind {course.mono_us} us: {why}")
                return None
            if not _devices(found).issubset(course.devices | self._named):
                return None
            waiting = found.waiting
            also = {*found.gauges, *found.depths, *found.orders, *waiting.fewest, *waiting.held, *waiting.longest}
            admit(found.frame, replace(course), also)
        except RecordingError as damage:
            self._note(f"behind {course.mono_us} us: {damage}; its windows are read")
            return None
        hole_us = found.mono_us - found.dt_us - course.mono_us
        return found if abs(hole_us) <= found.first_dt_us // 2 else None  # it says nothing of what waited in a hole


def lying_in(items: Iterable[T], since_us: int, until_us: int | None) -> Iterator[T]:
    """The windows that end in [since_us, until_us], Minutes between them, and what lies between them.

    A gap or a mark is its next window's: it is left out with that one.
    """
    asides: list[T] = []
    for item in items:
        if not isinstance(item, Frame | Minute):
            asides.append(item)
            continue
        if isinstance(item, Minute) or (since_us <= item.mono_us and (until_us is None or item.mono_us <= until_us)):
            yield from asides
            yield item
        asides = []
    yield from asides


def _doubt(found: Minute, stretch: Stretch) -> str:
    """Why a roll-up can't be of its windows; empty where it can."""
    # a sum of windows begins and ends where their members do, and counts as many as these may hold
    begins = found.mono_us - found.dt_us + found.first_dt_us == stretch.first_us
    counts = stretch.fewest <= found.windows <= stretch.most
    head = stretch.part.head if stretch.part else None
    if head is None or found.mono_us != head.last_us or not begins or not counts:
        return "a roll-up is not of its windows, which are read"
    why = rollup.doubt(found)
    return f"{why}; its windows are read" if why else ""


def _devices(minute: Minute) -> set[str]:
    """Those that a minute has I/Os of: a new one comes with a window that names it."""
    flows = {(one.device, one.op) for one in minute.histograms} | {*minute.seen, *minute.kernel}
    return {device for device, _ in flows}


UNCLOSED = "ended without a closing line (killed?)"
MAX_NOTES = 100
MAX_BEFORE_HEADER = 20
"""Damaged places before anything readable: a file that begins like that is none of ours."""
MAX_LINES = 100_000
"""In one member; a second of 10 windows and a thousand outliers has a hundredth of it."""
_DECODERS: dict[str, Callable[[validate.Json], Item]] = {
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
        """As `between`, but a Minute for the windows that a roll-up stands for."""
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
                item = item_behind(packed_tables.totals_alone(line) if totals else line, course)
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
        value = validate.parse(line)
        if value.get("type") == "header":
            return decode.decode_origin(value), decode.decode_devices(value)
        is_window = value.get("type") == "window" and decode.decode_frame(value) is not None
    except RecordingError as refusal:
        raise RecordingError(f"{path} can't be read: {refusal}") from None
    return (Origin(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN), None) if is_window else None


def item_of(line: bytes) -> Item | None:
    """A line's value; None for the header and for what a later version added."""
    return _item(validate.parse(line), line)


def item_behind(line: bytes, course: Course) -> Item | None:
    """The same; a header is held against the first one, see `enter`."""
    value = validate.parse(line)
    if value.get("type") == "header":
        enter(decode.decode_origin(value), course)
    return _item(value, line)


def _item(value: dict[str, Any], line: bytes) -> Item | None:
    kind = value.get("type")
    if kind == "window":
        return decode.decode_frame(value, booleans=validate.may_hold_booleans(line))
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
