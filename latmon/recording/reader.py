"""The recording's reader: whatever can be read of a file, in order, and a word about what can't.

Streams: one member at a time is in memory. Only the header must be readable for a recording to open, and even
without it the windows are. Knows no clock and no UI.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from latmon.deep_flat import names
from latmon.errors import RecordingError
from latmon.mark import Mark
from latmon.minute import Minute
from latmon.model import Device, Flow, Frame, Origin, Series
from latmon.recording import checks, columns, decode, minutes
from latmon.recording.lines import End, Gap
from latmon.recording.members import GIVEN_UP, Members, Part, ReadError
from latmon.recording.places import Places
from latmon.recording.repacked import is_repacked
from latmon.recording.summing import Stretch, units
from latmon.recording.written import is_written

Item = Frame | Gap | Mark | End
UNCLOSED = "ended without a closing line (killed?)"
UNKNOWN = "unknown"
MAX_NOTES = 100
MAX_BEFORE_HEADER = 20
"""Damaged places before anything readable: a file that begins like that is none of ours."""
MAX_LINES = 100_000
"""In one member; a second of 10 windows and a thousand outliers has a hundredth of it."""
MAX_DEVICES = 16_384
"""In one recording: a device costs a report more than its series do. 5,000 are the most that anybody has."""
MAX_SERIES = 65_536
"""In one recording: a reader's memory grows with their number. Who adds up threads sets his own limit."""

_DECODERS: dict[str, Callable[[checks.Json], Item]] = {
    "gap": decode.decode_gap,
    "mark": decode.decode_mark,
    "end": decode.decode_end,
}


@dataclass
class Course:
    """How far one reading has come: what the next window is held against."""

    mono_us: int = -1
    ended: bool = False
    series: set[tuple[Any, ...] | str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)


class _Held(NamedTuple):
    """A minute that waits for what is behind it; `before_us` is the last window's stamp before it."""

    minute: Minute
    stretch: Stretch
    before_us: int


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
        asides: list[Item] = []
        for item in self._read(since_us, until_us, totals=totals):
            if not isinstance(item, Frame):
                asides.append(item)
                continue
            if _lies_in(item, since_us, until_us):
                yield from asides
                yield item
            asides = []
        yield from asides

    def summed(self, since_us: int = 0, until_us: int | None = None) -> Iterator[Item | Minute]:
        """As `between`, but a Minute for the windows that a roll-up stands for.

        A sum begins and ends with a window, and a Minute has a window or another one behind it. So no number comes
        twice; where a roll-up is damaged, or can't be what it says, its windows are read.
        """
        self._begin()
        course, held, began = Course(), None, False
        with opened(self.path) as file:
            members = Members(file, self._note)
            begin = self._places.behind(file, since_us) if since_us else 0
            for unit in units(members, begin, until_us):
                minute = self._minute(unit, course) if began and isinstance(unit, Stretch) else None
                if isinstance(unit, Stretch) and minute is not None:
                    if held is not None:
                        yield held.minute
                    held = _Held(minute, unit, course.mono_us)
                    course.mono_us = minute.mono_us
                    continue
                for part in _parts(members, unit):
                    for item in self._items(part.text, course):
                        is_window = isinstance(item, Frame)
                        if held is not None:
                            yield from (held.minute,) if is_window else self._released(members, held)
                            held = None
                        if not is_window or _lies_in(item, since_us, until_us):
                            began = began or is_window
                            yield item
            if held is not None:
                yield from self._released(members, held)
        self._end(course, until_us)

    def _minute(self, stretch: Stretch, course: Course) -> Minute | None:
        """What a roll-up says; None where that can't be read, or can't be."""
        part = stretch.part
        if part is None or part.damage:
            return None
        try:
            found = minutes.decode_minute(checks.parse(part.text))
            # a sum of windows begins and ends where their members do, and counts as many as these may hold
            begins = found.mono_us - found.dt_us + found.first_dt_us == stretch.first_us
            counts = stretch.fewest <= found.windows <= stretch.most
            if part.head is None or found.mono_us != part.head.last_us or not begins or not counts:
                self._note(f"behind {course.mono_us} us: a roll-up is not of its windows, which are read")
                return None
            if why := minutes.doubt(found):
                self._note(f"behind {course.mono_us} us: {why}; its windows are read")
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

    def _released(self, members: Members, held: _Held) -> Iterator[Item]:
        """A minute's windows after all."""
        course = Course(held.before_us)
        for part in _parts(members, held.stretch):
            yield from self._items(part.text, course)

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
                item = item_of(columns.totals_alone(line) if totals else line)
                if isinstance(item, Frame):
                    admit(item, course)
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


def _devices(minute: Minute) -> set[str]:
    """Those that a minute has I/Os of: a new one comes with a window that names it."""
    flows = {(one.device, one.op) for one in minute.histograms} | {*minute.seen, *minute.kernel}
    return {device for device, _ in flows}


def _parts(members: Members, unit: Part | Stretch) -> Iterable[Part]:
    """What is to be read of it, window by window."""
    return (unit,) if isinstance(unit, Part) else members.parts(begin=unit.behind, end=unit.roll_up)


def _lies_in(item: Item, since_us: int, until_us: int | None) -> bool:
    return isinstance(item, Frame) and since_us <= item.mono_us and (until_us is None or item.mono_us <= until_us)


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
    value: dict[str, Any] = checks.parse(line)
    kind = value.get("type")
    if kind == "window":
        return decode.decode_frame(value, booleans=checks.may_hold_booleans(line))
    decoder = _DECODERS.get(kind) if isinstance(kind, str) else None
    return None if decoder is None else decoder(value)


def admit(frame: Frame, course: Course, also: Iterable[str] = ()) -> None:
    """RecordingError when a reader of all frames could not bear this one; `also`: what else is named beside it."""
    if frame.mono_us <= course.mono_us:
        raise RecordingError("a window goes back in time and is left out")
    found: set[tuple[Any, ...] | str] = {*frame.histograms, *frame.seen, *frame.kernel}
    found.update(frame.outstanding, frame.depths, frame.issues, (one.name for one in frame.devices), names(frame), also)
    new = found - course.series
    if len(course.series) + len(new) > MAX_SERIES:
        raise RecordingError(f"a window brings the recording's series beyond {MAX_SERIES} and is left out")
    devices = {_device_of(one) for one in new} - course.devices
    if len(course.devices) + len(devices) > MAX_DEVICES:
        raise RecordingError(f"a window brings the recording's devices beyond {MAX_DEVICES} and is left out")
    course.mono_us = frame.mono_us
    course.series |= new
    course.devices |= devices


def _device_of(found: tuple[Any, ...] | str) -> str:
    """Whose it is; empty for what is no device's."""
    return found.device if isinstance(found, Series | Flow) else found if isinstance(found, str) else ""


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
