"""The archive of a live session, and the events on its time axis: marks, gaps, losses, restarts, suspends, clock steps.

The archive has compressed members of the recording's lines, decoded when shown. It is limited in time and in bytes.
Time stamps, devices and events are available without decoding. `Past` is the interface that the replay backend
implements for recordings. `LETTERS` are the signs of the events' kinds on screens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from operator import lt
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from latmon.aggregate.request_age import Waiting
from latmon.model.frame import Device, Frame, Mark, Settings
from latmon.recording import members
from latmon.recording.codec import Gap, IdleReader, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.packed_tables import slowest_us, totals_alone
from latmon.support.units import show_duration, spelled

T = TypeVar("T")
LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "mark": "M",
        "finding": "!",
        "failed": "E",
        "log": "K",
        "clock": "C",
        "restart": "R",
        "suspended": "S",
        "lost": "L",
        "gap": "G",
        "late": "W",
    },
)
"""Kind -> letter, in order of preference where several share a cell."""
STEP_S = 0.5
"""Difference of wall clock and monotonic clock in a frame from which on the former was set."""
_KINDS = MappingProxyType({"probe-restart": "restart", "suspended": "suspended"})
_NOTES = MappingProxyType(
    {
        "restart": "the probe was restarted",
        "suspended": "the host was suspended",
        "probe-silent": "gap: the probe printed nothing",
        "enospc": "gap: the disk of the recording was full",
        "disk-stalled": "gap: the disk of the recording hung",
    },
)
_BURST = 8
"""A burst has I/Os so many times slower than the slowest one of the median frame."""
_APART_US = 5_000_000
"""Slow frames with less time between them are one burst."""
_SAMPLE = 10_000
"""Frames of which the median is taken: sorting all 600,000 of a long recording takes 0.2 s."""
KEEP_US = 3_600_000_000
MAX_BYTES = 24_000_000
"""An hour of 24 devices x 3 series takes 18 MB, with all devices traced more."""
_MEMBER_FRAMES = 5
"""Frames of one member: 15 % smaller than single ones, and a seek unpacks few needlessly."""
_CHECKPOINT = 10
MAX_MOMENTS = 10_000


class TimelineEvent(NamedTuple):
    """An event: its kind (one of LETTERS), time and description."""

    kind: str
    mono_us: int
    wall: float
    text: str
    changed: Settings | None = None
    """Changed settings of a mark."""


class Before(NamedTuple):
    """End of the previous frame on both clocks."""

    mono_us: int
    wall: float


def moments(frame: Frame, before: Before | None) -> Iterator[TimelineEvent]:
    """Yield the events in a frame, and between it and the previous one."""
    for mark in frame.marks:
        if mark.device:
            yield TimelineEvent("log", mark.mono_us, mark.wall, mark.sentence)
        else:
            yield TimelineEvent("mark", mark.mono_us, mark.wall, f"mark: {mark.text}", mark.changed)
    if frame.gap:
        kind = _KINDS.get(frame.gap, "gap")
        yield _here(frame, kind, _NOTES.get(kind) or _NOTES.get(frame.gap, f"gap: {frame.gap}"))
    if frame.late:
        yield _here(frame, "late", f"read late: one window of {show_duration(frame.dt_us // 100_000 * 100_000)}")
    if before is not None:
        yield from _between(frame, before)
    health = frame.health
    losses = (
        (health.lost_events, "events"),
        (health.map_full, "map updates"),
        (health.undecoded_lines, "lines"),
        (health.dropped_frames, "frames"),
    )
    if loss_texts := [f"{count:,} {what}" for count, what in losses if count]:
        yield _here(frame, "lost", f"lost: {', '.join(loss_texts)}")


def _between(frame: Frame, before: Before) -> Iterator[TimelineEvent]:
    missing = frame.mono_us - frame.dt_us - before.mono_us
    if missing > frame.dt_us // 2 and not frame.gap:
        yield _here(frame, "gap", f"gap: nothing for {show_duration(missing)}")
    stepped = (frame.wall - before.wall) - (frame.mono_us - before.mono_us) / 1e6
    if abs(stepped) > STEP_S and frame.gap != "suspended":
        way = "forward" if stepped > 0 else "back"
        yield _here(frame, "clock", f"the clock was set {way} by {show_duration(round(abs(stepped) * 10) * 100_000)}")


def _here(frame: Frame, kind: str, text: str) -> TimelineEvent:
    return TimelineEvent(kind, frame.mono_us, frame.wall, text)


def bursts(mono_us: Sequence[int], wall: Sequence[float], slowest_us: Sequence[int]) -> list[TimelineEvent]:
    """Return the begins of outlier bursts, of kind `burst`. The arguments: end and slowest I/O of each frame."""
    known = sorted(filter(None, slowest_us[:: max(len(slowest_us) // _SAMPLE, 1)])) or sorted(filter(None, slowest_us))
    if not known:
        return []
    least_us = _BURST * known[len(known) // 2]
    bursts_found: list[list[int]] = []
    for at in [at for at, us in enumerate(slowest_us) if us > least_us]:
        if bursts_found and mono_us[at] - mono_us[bursts_found[-1][-1]] < _APART_US:
            bursts_found[-1].append(at)
        else:
            bursts_found.append([at])
    return [
        TimelineEvent(
            "burst", mono_us[burst_row[0]], wall[burst_row[0]], f"outliers of up to {_slowest(slowest_us, burst_row)}"
        )
        for burst_row in bursts_found
    ]


def _slowest(slowest_us: Sequence[int], frames: Sequence[int]) -> str:
    return spelled(max(slowest_us[at] for at in frames))


def letter(events: list[TimelineEvent]) -> str:
    """Return the letter of the preferred event."""
    kinds = {event.kind for event in events}
    return next((sign for kind, sign in LETTERS.items() if kind in kinds), "")


class Stamp(NamedTuple):
    """The end of a frame, on both clocks."""

    mono_us: int
    wall: float


class Past(Protocol):
    """Captured data, to be read at any time of the past."""

    moments: deque[TimelineEvent]
    scanned: float
    """The share of the frames whose `moments` are known; at 1 `stamps` are exact."""

    @property
    def stamps(self) -> Stamps: ...

    def frames(self, after_us: int, until_us: int, *, totals: bool = False) -> Iterator[Frame]:
        """Yield the frames that end in (after_us, until_us], oldest first.

        `totals`: of the always-on probe's histograms only those of `total` are needed.
        """
        ...

    def known(self, at_us: int) -> tuple[Device, ...]:
        """Return the devices at that time."""
        ...

    def waiting(self, at_us: int) -> tuple[int, Waiting] | None:
        """Return the state of I/Os in flight at a time not after `at_us`, and that time; None where it isn't known."""
        ...


@dataclass
class Stamps:
    """Time stamps of all kept frames, oldest first, and the slowest I/O of each in us, 0 where none is known."""

    mono_us: list[int] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    slowest_us: list[int] = field(default_factory=list)
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.mono_us)

    def __getitem__(self, at: int) -> Stamp:
        return Stamp(self.mono_us[at], self.wall[at])

    def add(self, frame: Frame, slowest_us: int = 0) -> None:
        self.mono_us.append(frame.mono_us)
        self.wall.append(frame.wall)
        self.slowest_us.append(slowest_us)
        self._made.clear()

    def forget(self, many: int) -> None:
        del self.mono_us[:many], self.wall[:many], self.slowest_us[:many]
        self._made.clear()

    def made(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return a value derived from the stamps, made once until they change. `what` names all else it depends on."""
        if what not in self._made:
            self._made[what] = make()
        cached: T = self._made[what]
        return cached

    def bursts(self) -> Sequence[TimelineEvent]:
        """Return the begins of outlier bursts, oldest first."""
        return self.made("bursts", lambda: bursts(self.mono_us, self.wall, self.slowest_us))

    def beside(self, mono_us: int, by: int) -> Stamp:
        """Return the frame `by` frames after the one at `mono_us`, or the last one in that direction."""
        at = bisect_left(self.mono_us, mono_us) if by >= 0 else bisect_right(self.mono_us, mono_us) - 1
        return self[min(max(at + by, 0), len(self) - 1)]

    def nearest(self, mono_us: int) -> Stamp:
        """Return the frame that contains this time, else the closest one."""
        at = bisect_left(self.mono_us, mono_us)
        if at == 0 or (at < len(self) and self.mono_us[at] - mono_us <= mono_us - self.mono_us[at - 1]):
            return self[min(at, len(self) - 1)]
        return self[at - 1]

    def at_wall(self, wall: float, near_us: int = 0) -> Stamp:
        """Return the frame that ends closest to that time of the wall clock.

        A clock that was set back has shown some times twice; the one closer to `near_us` is returned.
        """

        def off(at: int) -> float:
            return abs(self.wall[at] - wall)

        usual_s = (self.mono_us[-1] - self.mono_us[0]) / 1e6 / max(len(self) - 1, 1)
        closest, shown = [], []
        for begin, end in self.made("runs", lambda: _rising(self.wall)):
            after = bisect_left(self.wall, wall, begin, end)
            at = min(max(after - 1, begin), min(after, end - 1), key=off)
            closest.append(at)
            if off(at) <= usual_s and self.wall[begin] <= wall <= self.wall[end - 1]:
                shown.append(at)
        if shown:
            return self[min(shown, key=lambda at: abs(self.mono_us[at] - near_us))]
        return self[min(closest, key=off)]


def _rising(wall: Sequence[float]) -> Sequence[tuple[int, int]]:
    """Return the runs [begin, end) in which the wall clock was not set back."""
    back = compress(range(1, len(wall)), map(lt, wall[1:], wall))
    return tuple(pairwise((0, *back, len(wall))))


def completed(frames: Iterable[Frame], known: Iterable[Device]) -> Iterator[Frame]:
    """Yield the frames, the first one with all devices known before it."""
    first = True
    for frame in frames:
        if first:
            devices = {device.name: device for device in (*known, *frame.devices)}
            yield replace(frame, devices=tuple(devices.values()))
            first = False
        else:
            yield frame


def frames_of(
    items: Iterable[object], damage: Callable[[], Sequence[str]], known: tuple[Device, ...] = ()
) -> Iterator[Frame]:
    """Yield the frames, reading one ahead to know the last one. `damage`: the damage found so far.

    Gap and mark lines become a part of the next frame, damage and a missing end its notice.
    """
    ahead: Frame | None = None
    reason, text = "", 0
    marks: list[Mark] = []
    for item in items:
        if isinstance(item, Gap):
            reason = item.reason
        elif isinstance(item, Mark):
            marks.append(item)
        elif isinstance(item, Frame):
            if ahead is not None:
                yield ahead
            frame = item
            if reason or known or marks:
                devices = merge_devices(known, item.devices)
                frame = replace(item, gap=item.gap or reason, devices=devices, marks=(*marks, *item.marks))
                reason, known, marks = "", (), []
            problems = damage()
            ahead = _noticed(frame, problems[text:]) if len(problems) > text else frame
            text = len(problems)
    if ahead is not None:
        yield _noticed(ahead, damage()[text:])


def merge_devices(known: tuple[Device, ...], named: tuple[Device, ...]) -> tuple[Device, ...]:
    """Merge devices of the header and of the first window, which are newer."""
    return tuple({device.name: device for device in (*known, *named)}.values()) if known else named


def _noticed(frame: Frame, damage: Sequence[str]) -> Frame:
    if not damage:
        return frame
    more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
    text = f"recording: {damage[-1]}{more}"
    notice = f"{frame.health.notice}; {text}" if frame.health.notice else text
    return replace(frame, health=replace(frame.health, notice=notice))


class _DeviceChange(NamedTuple):
    mono_us: int
    devices: tuple[Device, ...]
    removed: tuple[str, ...]


class DevicesThen:
    """The devices at any time of a history."""

    def __init__(self, devices: tuple[Device, ...] = ()) -> None:
        self._before = {device.name: device for device in devices}
        self._reported: deque[_DeviceChange] = deque()

    def add(self, frame: Frame) -> None:
        if frame.devices or frame.removed:
            self._reported.append(_DeviceChange(frame.mono_us, frame.devices, frame.removed))

    def forget(self, before_us: int) -> None:
        while self._reported and self._reported[0].mono_us <= before_us:
            _apply(self._before, self._reported.popleft())

    def at(self, mono_us: int) -> tuple[Device, ...]:
        found_devices = dict(self._before)
        for device_change in self._reported:
            if device_change.mono_us > mono_us:
                break
            _apply(found_devices, device_change)
        return tuple(found_devices.values())


def _apply(devices: dict[str, Device], reported: _DeviceChange) -> None:
    devices.update((device.name, device) for device in reported.devices)
    for name in reported.removed:
        devices.pop(name, None)


class _Member(NamedTuple):
    packed: bytes
    first_us: int
    last_us: int
    frames: int


class Archive:
    """The last `keep_us` of a live capture in at most `max_bytes`."""

    def __init__(self, keep_us: int = KEEP_US, max_bytes: int = MAX_BYTES) -> None:
        self.moments: deque[TimelineEvent] = deque(maxlen=MAX_MOMENTS)
        self.scanned = 1.0
        self._keep_us, self._max_bytes = keep_us, max_bytes
        self._members: deque[_Member] = deque()
        self._open: list[tuple[int, bytes]] = []
        self._stamps = Stamps()
        self._bytes = 0
        self._devices = DevicesThen()
        self._waiting = Waiting()
        self._checkpoints: deque[tuple[int, Waiting]] = deque()
        self._arrived = 0

    @property
    def stamps(self) -> Stamps:
        return self._stamps

    @property
    def size(self) -> int:
        return self._bytes + sum(len(line) for _, line in self._open)

    def append(self, frame: Frame, line: bytes | None = None) -> None:
        """Add a frame; `line`: its encoded form. Time that went backwards (another boot) clears the archive."""
        stamps = self._stamps
        before = Before(*stamps[-1]) if len(stamps) else None
        if before is not None and frame.mono_us <= before.mono_us:
            self._clear()
            stamps, before = self._stamps, None
        text = to_bytes(encode_frame(frame)) if line is None else line.rstrip(b"\n") + b"\n"
        self.moments.extend(moments(frame, before))
        stamps.add(frame, slowest_us(text))
        self._devices.add(frame)
        self._waiting.add(frame)
        if self._arrived % _CHECKPOINT == 0:
            self._checkpoints.append((frame.mono_us, self._waiting.copy()))
        self._arrived += 1
        self._open.append((frame.mono_us, text))
        if len(self._open) >= _MEMBER_FRAMES:
            self._close()
        self._forget(frame.mono_us - self._keep_us)

    def frames(self, after_us: int, until_us: int, *, totals: bool = False) -> Iterator[Frame]:
        """See Past."""
        # frames may be added while this generator runs, also by another thread
        opened, closed = tuple(self._open), tuple(self._members)
        if closed:
            opened = tuple(member for member in opened if member[0] > closed[-1].last_us)
        begin_us = next((member.first_us for member in closed if member.last_us > after_us), after_us + 1)
        windows = IdleReader(self._devices.at(min(begin_us - 1, after_us)))
        for member in closed:
            if member.last_us > after_us and member.first_us <= until_us:
                for line in members.unpack(member.packed).splitlines():
                    frame = _decoded(windows, line, totals=totals)
                    if after_us < frame.mono_us <= until_us:
                        yield frame
        for mono_us, line in opened:
            if after_us < mono_us <= until_us:
                yield _decoded(windows, line, totals=totals)

    def known(self, at_us: int) -> tuple[Device, ...]:
        """See Past."""
        return self._devices.at(at_us)

    def waiting(self, at_us: int) -> tuple[int, Waiting] | None:
        """See Past."""
        checkpoint_before = next(
            (checkpoint for checkpoint in reversed(self._checkpoints) if checkpoint[0] <= at_us), None
        )
        return None if checkpoint_before is None else (checkpoint_before[0], checkpoint_before[1].copy())

    def _close(self) -> None:
        first, last = self._open[0][0], self._open[-1][0]
        packed = members.pack(b"".join(line for _, line in self._open), first, last)
        self._members.append(_Member(packed, first, last, len(self._open)))
        self._bytes += len(packed)
        self._open = []

    def _forget(self, before_us: int) -> None:
        while self._members and (self._members[0].last_us <= before_us or self._bytes > self._max_bytes):
            gone = self._members.popleft()
            self._bytes -= len(gone.packed)
            self._stamps.forget(gone.frames)
            self._devices.forget(gone.last_us)
            for stamped_rows in (self._checkpoints, self.moments):
                while stamped_rows and _stamp_of(stamped_rows[0]) <= gone.last_us:
                    stamped_rows.popleft()

    def _clear(self) -> None:
        devices = self._devices.at(self._stamps.mono_us[-1])
        for cached_rows in (self.moments, self._members, self._open, self._checkpoints):
            cached_rows.clear()
        self._stamps, self._bytes, self._waiting = Stamps(), 0, Waiting()
        self._devices = DevicesThen(devices)


def _decoded(windows: IdleReader, line: bytes, *, totals: bool) -> Frame:
    return windows.decode(parse(totals_alone(line) if totals else line))


def _stamp_of(stamped: TimelineEvent | tuple[int, Waiting]) -> int:
    return stamped.mono_us if isinstance(stamped, TimelineEvent) else stamped[0]
