"""Readers of a recording: its items in their order, or roll-ups where only sums are needed; damage as sentences.

One member at a time is in memory. A recording opens without its header, too. A roll-up is used only if the heads from
the first of its members to its own follow each other without damage and its stamps are theirs. A sum begins and ends
with a window, and after a Minute comes a window or another Minute, so that nothing is counted twice.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import Device, Frame, Mark, Origin
from latmon.recording import codec, rollup
from latmon.recording.items import Item, lines_of, read_lines
from latmon.recording.json_line import parse
from latmon.recording.members import (
    GIVEN_UP,
    GZIP_WITH_EXTRA,
    MemberPart,
    Members,
    Places,
    ReadError,
    is_written,
    read_at,
)
from latmon.recording.read_position import UNKNOWN, ReadPosition, admit
from latmon.support.errors import RecordingError

MAX_AHEAD = 1024
"""Most members of one roll-up: a minute has 60 of them."""
T = TypeVar("T", Item, Item | Minute)
UNCLOSED = "ended without a closing line (killed?)"
MAX_NOTES = 100
MAX_BEFORE_HEADER = 20
"""Damaged places before the first readable member; a file with more is no recording."""


class Period(NamedTuple):
    """Members to byte `end - 1`; the roll-up at byte `roll_up` sums up those from byte `behind` on."""

    end: int
    behind: int = 0
    roll_up: int = 0
    first_us: int = 0
    part: MemberPart | None = None
    """The roll-up itself."""


def units(members: Members, begin: int, until_us: int | None) -> Iterator[MemberPart | Period]:
    """Yield members to be read one by one, and periods that may have a roll-up, in their order."""
    at = begin
    while at < members.size:
        period = _ahead(members, at, until_us)
        stop = period.behind if period.roll_up else period.end
        for part in members.parts(0, until_us, begin=at, end=stop):
            yield part
            at = part.end
        if at < stop:  # the rest is later than the requested time
            return
        if period.roll_up and at == stop:
            part = next(members.parts(begin=period.roll_up, end=period.end))
            yield period._replace(part=part)
            at = part.end  # with a wrong length in its head: the begin of the next one


def _ahead(members: Members, begin: int, until_us: int | None) -> Period:
    """Return the period to the next roll-up, or as far as the heads follow each other; at least one member."""
    firsts: dict[int, int] = {}
    last_us, at = 0, begin
    for _ in range(MAX_AHEAD):
        head = members.head(at)
        if head is None:
            return Period(max(at, begin + 1))
        if head.stands_for:
            behind = at - head.stands_for
            fits = firsts.get(behind) == head.first_us and last_us == head.last_us
            if fits and (until_us is None or last_us <= until_us):
                return Period(at + head.length, behind, at, head.first_us)
            return Period(at + head.length)
        if head.first_us <= last_us:  # time goes back: a minute ends before it
            firsts.clear()
        firsts[at], last_us = head.first_us, head.last_us
        at += head.length
    return Period(at)


U = TypeVar("U", MemberPart, MemberPart | Period)


class _PendingMinute(NamedTuple):
    """Minute that is yielded once something follows that is summed; `before_us` is the last stamp before it."""

    minute: Minute
    period: Period
    before_us: int


class SummedReading:
    """One reading with Minutes in place of windows: `read` decodes a member's text, `note` takes damage."""

    def __init__(
        self,
        members: Members,
        position: ReadPosition,
        read: Callable[[bytes, ReadPosition], Iterator[Item]],
        note: Callable[[str], None],
        named: set[str],
    ) -> None:
        """Take the names of the header's devices, too."""
        self._members, self._position, self._read, self._note = members, position, read, note
        self._named = set(named)
        self._pending: _PendingMinute | None = None
        self._later: list[Mark] = []
        """The lines of the kernel's log after the pending minute: a disk may write one in each second."""

    def items(self, units: Iterable[MemberPart | Period], since_us: int) -> Iterator[Item | Minute]:
        """Yield items in their order; no Minute before the first window from `since_us` on."""
        began = False
        for unit in units:
            if began and isinstance(unit, Period) and (pending := self._minute(unit)) is not None:
                yield from self._passed()
                self._pending = pending
                self._position.mono_us = pending.minute.mono_us
                continue
            for item in self._of_parts(unit, self._position):
                if self._pending is not None and isinstance(item, Mark) and item.device:
                    self._later.append(item)
                    continue
                yield from self._passed() if isinstance(item, Frame) else self._released()
                if isinstance(item, Frame):
                    self._named |= _devices(item)
                began = began or (isinstance(item, Frame) and item.mono_us >= since_us)
                yield item
        yield from self._released()

    def _passed(self) -> Iterator[Mark | Minute]:
        """Yield the pending minute, now that something to be summed follows."""
        pending, self._pending = self._pending, None
        later, self._later = self._later, []
        if pending is not None:
            yield from pending.minute.frame.marks
            yield pending.minute
            yield from later

    def _released(self) -> Iterator[Item]:
        """Yield the windows of the pending minute instead of it."""
        pending, self._pending = self._pending, None
        later, self._later = self._later, []
        if pending is not None:
            yield from self._of_parts(pending.period, ReadPosition(pending.before_us))
            yield from later

    def _of_parts(self, unit: MemberPart | Period, position: ReadPosition) -> Iterator[Item]:
        parts = (unit,) if isinstance(unit, MemberPart) else self._members.parts(begin=unit.behind, end=unit.roll_up)
        for part in parts:
            yield from self._read(part.text, position)

    def _minute(self, period: Period) -> _PendingMinute | None:
        """Return a roll-up; None if it can't be read or doesn't fit."""
        head = period.part.head if period.part else None
        if period.part is None or head is None or period.part.damage or self._position.is_foreign:
            return None
        position = self._position
        try:
            line = parse(period.part.text)
            if rollup.lacks_threshold_ranges(line):
                return None
            minute = rollup.decode_minute(line)
            _require_span(minute, period.first_us, head.last_us)
            if not _devices(minute.frame).issubset(self._named):
                return None
            admit(minute.frame, replace(position))
        except RecordingError as damage:
            self._note(f"behind {position.mono_us} us: {damage}; its windows are read")
            return None
        hole_us = minute.mono_us - minute.dt_us - position.mono_us
        if abs(hole_us) > minute.first_dt_us // 2:
            return None  # a sum has no I/Os that waited in a hole
        return _PendingMinute(minute, period, position.mono_us)


def lying_in(items: Iterable[T], since_us: int, until_us: int | None) -> Iterator[T]:
    """Yield the windows that end in [since_us, until_us], Minutes between them, and what lies between them.

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


def _require_span(minute: Minute, first_us: int, last_us: int) -> None:
    """Raise RecordingError unless a sum of windows begins and ends where their members do."""
    if (minute.mono_us - minute.dt_us + minute.first_dt_us, minute.mono_us) != (first_us, last_us):
        raise RecordingError("a roll-up is not the sum of its windows")


def _devices(frame: Frame) -> set[str]:
    """Return the devices that a frame describes, or has I/Os of: a new one comes with a window that names it."""
    names = {device.name for device in frame.devices}
    for table in (frame.histograms, frame.seen, frame.kernel):
        names.update(key.device for key in table)
    return names


_GZIP, _MOST_OF_HEADER = b"\x1f\x8b", 1024 * 1024


class Recording:
    """Items of a recording, iterated any number of times; `damage` has the sentences of the latest reading."""

    def __init__(self, path: Path, origin: Origin, devices: tuple[Device, ...], headless: str) -> None:
        self.path, self.origin, self.devices = path, origin, devices
        self.damage: list[str] = []
        self.is_live = False
        """Whether the latest reading found that a latmon still writes it."""
        self.progress: Callable[[int, int], None] = lambda _done, _bytes: None
        """Called after each member with its end and the size of the file."""
        self._headless = headless
        self._named = {device.name for device in devices}
        self._unreported = 0
        self._places = Places()

    @property
    def headless(self) -> bool:
        """Return whether its header is lost, so that its origin is unknown."""
        return bool(self._headless)

    def __iter__(self) -> Iterator[Item]:
        return self.since(0)

    def since(self, mono_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Yield items; members that end before `mono_us` are not even unpacked.

        `totals`: of the always-on probe's histograms those alone, where that saves reading the others.
        """
        return self._read(mono_us, None, totals=totals)

    def between(self, since_us: int, until_us: int, *, totals: bool = False) -> Iterator[Item]:
        """Yield the windows that end in [since_us, until_us] and what lies between them; nothing later is read.

        A gap or a mark is its next window's: it is left out with that one.
        """
        yield from lying_in(self._read(since_us, until_us, totals=totals), since_us, until_us)

    def summed(self, since_us: int = 0, until_us: int | None = None) -> Iterator[Item | Minute]:
        """Yield items as `between` does, but a Minute for windows that have a roll-up."""
        self._begin()
        position = ReadPosition()
        with opened(self.path) as file:
            members = Members(file, self._note)
            begin = self._places.behind(file, since_us) if since_us else 0
            summed = SummedReading(members, position, self._items, self._note, self._named)
            followed = self._followed(units(members, begin, until_us), members.size)
            yield from lying_in(summed.items(followed, since_us), since_us, until_us)
        self._end(position, until_us)

    def span(self) -> tuple[int, int]:
        """Return CLOCK_MONOTONIC of the begin and of the last window, by the members' heads."""
        with opened(self.path) as file:
            first, last = self._places.follow(file)
            for part in Members(file, lambda _: None).parts(last + 1, begin=self._places.end):
                last = max(last, part.head.last_us if part.head and not part.damage else 0)
        return first, last

    def ends(self) -> list[int]:
        """Return the last stamp of each member, by its head, as far as time goes forward."""
        first, last = self.span()
        return self._places.ends() if first <= last else []

    def texts(self) -> Iterator[bytes]:
        """Yield the text of each member that can be read."""
        with opened(self.path) as file:
            yield from Members(file, lambda _: None).texts()

    def _read(self, since_us: int, until_us: int | None, *, totals: bool = False) -> Iterator[Item]:
        return (item for _, item in self._walk(since_us, until_us, totals=totals) if item is not None)

    def _walk(
        self, since_us: int = 0, until_us: int | None = None, *, totals: bool = False
    ) -> Iterator[tuple[bytes, Item | None]]:
        self._begin()
        position = ReadPosition()
        with opened(self.path) as file:
            begin = self._places.behind(file, since_us) if since_us else 0
            members = Members(file, self._note)
            for part in self._followed(members.parts(since_us, until_us, begin=begin), members.size):
                yield from read_lines(part.text, position, self._note, totals=totals)
        self._end(position, until_us)

    def _followed(self, windows: Iterator[U], size: int) -> Iterator[U]:
        """Yield parts of a file of `size` bytes, and report how far they reach."""
        for window in windows:
            yield window
            self.progress(window.end, size)

    def _begin(self) -> None:
        self.damage, self._unreported = [self._headless] if self._headless else [], 0

    def _end(self, position: ReadPosition, until_us: int | None) -> None:
        if not position.ended and until_us is None:
            with opened(self.path) as file:
                self.is_live = is_written(file)
            if not self.is_live:
                self._note(UNCLOSED)
        if self._unreported:
            self.damage.append(f"and {self._unreported} more damaged places")

    def reported(self) -> Iterator[tuple[bytes, Item | None]]:
        """Yield every line that can be read, with its item; None for a line that is no item of readers."""
        return self._walk()

    def _items(self, text: bytes, position: ReadPosition) -> Iterator[Item]:
        return (item for _, item in read_lines(text, position, self._note) if item is not None)

    def _note(self, damage: str) -> None:
        # how a reading ended is always reported
        if len(self.damage) < MAX_NOTES or damage.startswith((UNCLOSED, GIVEN_UP)):
            self.damage.append(damage)
        else:
            self._unreported += 1


def open_recording(path: Path) -> Recording:
    """Return a recording; RecordingError if the file is none, is of a newer format, or can't be read at all."""
    damage: list[str] = []

    def note(what: str) -> None:
        damage.append(what)
        if len(damage) > MAX_BEFORE_HEADER:
            raise _not_ours(path, damage[0])

    with opened(path) as file:
        for text in Members(file, note).texts():
            for line in lines_of(text, note):
                first = _first(path, line)
                if first is not None:
                    origin, devices = first
                    headless = "" if devices is not None else "its header can't be read: host and stages are unknown"
                    return Recording(path, origin, devices or (), headless)
    raise _not_ours(path, damage[0] if damage else "it is empty")


def _not_ours(path: Path, why: str) -> RecordingError:
    with opened(path) as file:
        header = _header_of_text(read_at(file, 0, _MOST_OF_HEADER))
    if header is not None:
        try:
            codec.check_format(header)
        except RecordingError as refusal:
            return RecordingError(f"{path} can't be read: {refusal}")
        why = (
            f"it was unpacked or packed again; `zcat -f {path} | latmon import - -o OUT` makes a recording of its lines"
        )
    return RecordingError(f"{path} is not a latmon recording: {why}")


def _header_of_text(begin: bytes) -> dict[str, Any] | None:
    """Return the header with which a text begins, also one that was packed by hand; None of anything else."""
    try:
        if begin.startswith(_GZIP) and not begin.startswith(GZIP_WITH_EXTRA):
            begin = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(begin, _MOST_OF_HEADER)
        value = parse(begin.partition(b"\n")[0])
    except (zlib.error, RecordingError):
        return None
    return value if value.get("type") == "header" else None


def _first(path: Path, line: bytes) -> tuple[Origin, tuple[Device, ...] | None] | None:
    """Return origin and devices of a header; an unknown origin and None for a window before any header."""
    try:
        value = parse(line)
        if value.get("type") == "header":
            return codec.decode_origin(value), codec.decode_devices(value)
        is_window = value.get("type") == "window" and codec.decode_frame(value) is not None
    except RecordingError as refusal:
        raise RecordingError(f"{path} can't be read: {refusal}") from None
    return (Origin(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN), None) if is_window else None


def raw_lines(recordings: Sequence[Recording]) -> Iterator[bytes | None]:
    """Yield every line that can be read, undecoded; None after each member."""
    for recording in recordings:
        for text in recording.texts():
            yield from lines_of(text, lambda _: None)
            yield None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file for reading; a FIFO would block and a device would never end.

    A failure to read it is a RecordingError; errors of the caller's own writes pass through.
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
