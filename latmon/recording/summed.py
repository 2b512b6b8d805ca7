"""A recording's items with a Minute for the windows that a roll-up stands for, wherever it can be believed.

A sum begins and ends with a window, and a Minute has a window or another one behind it. So no number comes twice;
where a roll-up is damaged, or can't be what it says, its windows are read. Knows no path and no place in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

from latmon.errors import RecordingError
from latmon.mark import Mark
from latmon.minute import Minute
from latmon.model import Frame
from latmon.recording import checks, minutes
from latmon.recording.course import Course, admit
from latmon.recording.lines import End, Gap
from latmon.recording.members import Members, Part
from latmon.recording.summing import Stretch

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
            found = minutes.decode_minute(checks.parse(stretch.part.text))
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
    why = minutes.doubt(found)
    return f"{why}; its windows are read" if why else ""


def _devices(minute: Minute) -> set[str]:
    """Those that a minute has I/Os of: a new one comes with a window that names it."""
    flows = {(one.device, one.op) for one in minute.histograms} | {*minute.seen, *minute.kernel}
    return {device for device, _ in flows}
