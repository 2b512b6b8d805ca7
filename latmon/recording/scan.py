"""Scan of a recording from begin to end: every line with its place, every damage, roll-ups against their windows.

It goes the reader's way, step for step, so that what is clean here is read whole there. A damage is told right before
the next window, when it is known how much time is missing. Streams: one member at a time is in memory. Knows neither
what is printed nor what is written.

One whose minute is damaged is no damage of its own: readers see that it doesn't fit and read the windows. Knows no line
but the roll-up's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from latmon.model.frame import Frame, Origin
from latmon.model.histogram import Histogram
from latmon.recording import decode, validate
from latmon.recording.encode import End, Gap
from latmon.recording.members import GIVEN_UP, Members, Part, head_of, unpack
from latmon.recording.reader import MAX_LINES, UNCLOSED, Item, item_behind, lines_of
from latmon.recording.rollup import KIND, decode_minute
from latmon.recording.validate import Course, admit
from latmon.recording.writer import Rolling
from latmon.support.errors import RecordingError, TooManyError
from latmon.support.text import clean

WRONG = "the roll-up of a minute is not the sum of its windows: reports that trust it would be wrong"


class RollUps:
    """Tell it every part that can be read, in their order; it answers with what is wrong, at which byte."""

    def __init__(self) -> None:
        self._rolling = Rolling()
        self._held: Part | None = None

    def hold(self, roll_up: Part) -> None:
        """The next windows will tell whether its minute is over."""
        self._held = roll_up

    def took(self, part: Part, windows: Sequence[Frame], *, alone: bool) -> int | None:
        """The place of a roll-up before this part that is wrong."""
        held, self._held = self._held, None
        made = self._rolling.due(windows, part.begin if held is None else held.begin)
        self._rolling.took(windows, part.begin, alone=alone)
        return held.begin if held is not None and made and not _same(held, made) else None

    def missed(self) -> None:
        """Something can't be read here."""
        self._held = None
        self._rolling.missed()


def _same(held: Part, made: bytes) -> bool:
    try:
        told = decode_minute(validate.parse(held.text))
    except RecordingError:
        return False
    return head_of(made[:64]) == _measured(held, len(made)) and told == decode_minute(validate.parse(unpack(made)))


def _measured(held: Part, length: int) -> object:
    """Its head as if it were as long as ours: a later version's line may say more."""
    return None if held.head is None else held.head._replace(length=length)


_PATIENCE = 128 * 1024 * 1024
_LOOKS = 2
"""Times that a damaged file is read at most, beside `_PATIENCE`: heads that lie about their length are read in vain."""
_MEMBER_BYTES = 4 * 1024 * 1024
"""A writer writes at the latest then: what is longer has no roll-up."""
_HOUR_US = 3_600_000_000
"""A damaged head's stamps are not covered by any sum: a longer loss is not believed."""
_JITTER_US = 1000
_TO = ", to byte "
HEADLESS = "its header can't be read: host and stages are unknown"


@dataclass(frozen=True, slots=True)
class Line:
    """What can be read. Without an `item` it is a header or what a later version added: `kind` tells."""

    part: Part
    raw: bytes
    item: Item | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Damage:
    """Where, what, and how much time is missing behind `mono_us`; None where that can't be told."""

    at: int
    what: str
    lost_us: int | None = 0
    mono_us: int = 0
    wall: float = 0.0
    mild: bool = False
    """Nothing that was whole is lost by it."""
    line: int = 0
    """Of the member at that place; 0 for the whole of it."""


class Passages:
    """Iterate it once. `members` are those that are whole; `ended` is the closing line, if it was the last one."""

    def __init__(self, file: BinaryIO, origin: Origin, *, live: bool, headless: bool) -> None:
        self.size = os.fstat(file.fileno()).st_size
        self.members = self.place = 0
        self.ended: End | None = None
        self._file, self.live, self._headless = file, live, headless
        self._course = Course()
        self._mono_us, self._wall = origin.start_mono_us, origin.start_wall
        self._told_us = 0
        self._open: Damage | None = None
        self._until = 0
        self._claimed_us = 0
        self._windows = 0
        self._roll_ups = RollUps()
        self._imported = is_imported(origin)
        self._given_up = False

    def __iter__(self) -> Iterator[Line | Damage]:
        if self._headless:
            yield Damage(0, HEADLESS)
        for part in Members(self._file, _ignored, _PATIENCE + _LOOKS * self.size).parts():
            if part.begin >= self.size or (self.live and part.damage and part.end >= self.size):
                break  # a live latmon is about to write it
            self.place = part.end
            if self._given_up:
                break
            if part.damage:
                yield from self._damaged(part)
            else:
                self.members += 1
                yield from self._lines(part)
        if self._open is not None:
            yield self._settled(self._claim())
        if self.ended is None and not self.live:
            yield Damage(self.size, UNCLOSED, 0, self._mono_us, self._wall, mild=True)

    def _damaged(self, part: Part) -> Iterator[Damage]:
        """A damage that goes on is one; one of several before the same window counts what all of them lose."""
        self._roll_ups.missed()
        if part.head is not None:
            self._claimed_us = max(self._claimed_us, part.head.last_us)
        if part.damage.startswith(GIVEN_UP):
            yield Damage(part.begin, part.damage, None, self._mono_us, self._wall)
        elif self._open is not None and self._until == part.begin:
            self._open = replace(self._open, what=f"{self._open.what.partition(_TO)[0]}{_TO}{part.end - 1}")
            self._until = part.end
        else:
            if self._open is None:
                self._until = part.end
            yield from self._note(part.begin, f"{part.damage}{_TO}{part.end - 1}")

    def _note(self, at: int, what: str, line: int = 0) -> Iterator[Damage]:
        damage = Damage(at, what, 0, self._mono_us, self._wall, line=line)
        if self._open is None:
            self._open = damage
        else:
            yield damage

    def _lines(self, part: Part) -> Iterator[Line | Damage]:
        surplus: list[str] = []
        windows: list[Frame] = []
        others = 0
        for number, raw in enumerate(lines_of(part.text, surplus.append), 1):
            try:
                line = self._line(part, raw)
            except TooManyError as refusal:
                yield Damage(part.begin, f"{refusal}: nothing behind it is read", None, self._mono_us, self._wall)
                self._given_up = True
                return
            except RecordingError as refusal:
                self._roll_ups.missed()
                yield from self._note(part.begin, str(refusal), number)
                continue
            if self._course.is_foreign:
                continue
            if isinstance(line.item, Frame):
                if self._open is not None:
                    yield self._settled(line.item.mono_us - line.item.dt_us)
                if len(part.text) > _MEMBER_BYTES:
                    del windows[1:]  # no roll-up can need those between
                windows.append(line.item)
                self._mono_us, self._wall, self._told_us = line.item.mono_us, line.item.wall, 0
            others += not isinstance(line.item, Frame)
            yield line
            if isinstance(line.item, End):
                yield from self._counted(part, line.item)
        if surplus:
            yield from self._note(part.begin, f"more than {MAX_LINES} lines in one member: the rest is not read")
        yield from self._held_together(part, windows, others)

    def _held_together(self, part: Part, windows: Sequence[Frame], others: int) -> Iterator[Damage]:
        """Stamps against windows, and a roll-up against those that it stands for."""
        if self._course.is_foreign:
            self._roll_ups.missed()
            return
        if windows and part.head is not None:
            if (part.head.first_us, part.head.last_us) != (windows[0].mono_us, windows[-1].mono_us):
                what = "its stamps are not those of its windows: a seek may miss them"
                yield Damage(part.begin, what, 0, self._mono_us, self._wall)
        elif part.head is not None and part.head.stands_for:
            self._roll_ups.hold(part)
            return
        alone = not others and len(part.text) <= _MEMBER_BYTES
        if (wrong := self._roll_ups.took(part, windows, alone=alone)) is not None:
            yield Damage(wrong, WRONG, 0, self._mono_us, self._wall, mild=True)

    def _line(self, part: Part, raw: bytes) -> Line:
        """RecordingError for a line that no reader takes."""
        item, kind = line_of(raw, self._course, imported=self._imported)
        if self._course.is_foreign:
            return Line(part, raw, item, kind)
        self._windows += isinstance(item, Frame)
        if isinstance(item, Gap):
            self._told_us += round(item.seconds * 1e6)
        if item is not None or kind == "header":
            self.ended = item if isinstance(item, End) else None
        return Line(part, raw, item, kind)

    def _counted(self, part: Part, end: End) -> Iterator[Damage]:
        """A closing line counts the windows since the one before it."""
        found, self._windows = self._windows, 0
        if end.windows != found:
            what = f"the closing line counts {end.windows} windows, and {found} can be read"
            yield Damage(part.begin, what, 0, self._mono_us, self._wall, mild=True)

    def _settled(self, begins_us: int | None) -> Damage:
        """The damage that was open, with the time that is missing from the last window to where the next one begins."""
        damage = self._open or Damage(0, "")
        self._open, self._until, self._claimed_us = None, 0, 0
        if begins_us is None:
            return replace(damage, lost_us=None)
        # a file without header and without a window before has no time to begin at
        lost_us = begins_us - damage.mono_us - self._told_us if damage.mono_us else 0
        return replace(damage, lost_us=lost_us if lost_us >= _JITTER_US else 0)

    def _claim(self) -> int | None:
        """How far a damaged tail says that it goes, if that can be believed."""
        return self._claimed_us if 0 < self._claimed_us - self._mono_us <= _HOUR_US else None


def line_of(raw: bytes, course: Course, *, imported: bool) -> tuple[Item | None, str]:
    """Return a line's value, and its type where readers pass over it; RecordingError for a line that can't be true.

    `imported`: sums and maxima are another tool's, whose buckets were moved to ours: they are not compared.
    """
    item = item_behind(raw, course)
    if isinstance(item, Frame) and not course.is_foreign:
        admit(item, course)
        if not imported:
            _compare(item)
    return item, "" if item is not None else _kind(raw)


def is_imported(origin: Origin) -> bool:
    """Whether another tool counted what is in this recording."""
    return origin.backend == "import" or "imported" in origin.extra


def _compare(frame: Frame) -> None:
    """RecordingError where a sum or a maximum contradicts the buckets beside it."""
    for series, one in frame.histograms.items():
        if why := one.contradiction():
            raise RecordingError(f"{' '.join(series)} has {why}")
    tables: dict[str, Iterable[Histogram]] = {
        "a traced stage": frame.traced.histograms.values(),
        "an interrupt handler": (runs.run for runs in frame.handlers.values()),
        "a softirq": (one for runs in frame.softirqs.values() for one in (runs.delay, runs.run)),
        "a wake-up": (one.delay for one in frame.wakeups),
    }
    for name, some in tables.items():
        for one in some:
            if why := one.contradiction(coarse=True):
                raise RecordingError(f"{name} has {why}")


def _kind(raw: bytes) -> str:
    """The type of a line that no decoder knows; RecordingError for a header that can't be obeyed."""
    value = validate.parse(raw)
    kind = value.get("type")
    if kind == "header":
        decode.decode_origin(value)
        decode.decode_devices(value)
    if kind == KIND:
        decode_minute(value)
    return clean(kind) if isinstance(kind, str) else ""


def _ignored(_: str) -> None:
    """Members tell their damage in its place."""
