"""What was seen, as far back as it is kept: compressed members of the recording's own lines, decoded when looked at.

Owns how far back it goes, in time and in bytes, and what is known without decoding: stamps, devices, moments. The
same questions are answered of recordings by recorded.py. Knows no screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from latmon.model import Device, Frame
from latmon.moments import Before, Moment, moments
from latmon.past import Stamps
from latmon.recording import decode_frame, encode_frame, members, parse
from latmon.recording.checks import may_hold_booleans
from latmon.recording.columns import totals_alone
from latmon.recording.lines import to_bytes
from latmon.waiting import Waiting

KEEP_US = 3_600_000_000
MAX_BYTES = 24_000_000
"""An hour of 24 devices x 3 series takes 18 MB; deep probes on all devices fill it sooner."""
_MEMBER_FRAMES = 5
"""In one member: 15 % smaller than each alone, and a seek unpacks at most so many in vain."""
_CHECKPOINT = 10
MAX_MOMENTS = 10_000


class _Told(NamedTuple):
    mono_us: int
    devices: tuple[Device, ...]
    removed: tuple[str, ...]


class DevicesThen:
    """Which devices there were, at any time of what is kept."""

    def __init__(self, devices: tuple[Device, ...] = ()) -> None:
        self._before = {one.name: one for one in devices}
        self._told: deque[_Told] = deque()

    def add(self, frame: Frame) -> None:
        if frame.devices or frame.removed:
            self._told.append(_Told(frame.mono_us, frame.devices, frame.removed))

    def forget(self, before_us: int) -> None:
        while self._told and self._told[0].mono_us <= before_us:
            _apply(self._before, self._told.popleft())

    def at(self, mono_us: int) -> tuple[Device, ...]:
        found = dict(self._before)
        for one in self._told:
            if one.mono_us > mono_us:
                break
            _apply(found, one)
        return tuple(found.values())


def _apply(devices: dict[str, Device], told: _Told) -> None:
    devices.update((one.name, one) for one in told.devices)
    for name in told.removed:
        devices.pop(name, None)


class _Member(NamedTuple):
    packed: bytes
    first_us: int
    last_us: int
    frames: int


class Archive:
    """The last `keep_us` of a live capture, in `max_bytes` at most."""

    def __init__(self, keep_us: int = KEEP_US, max_bytes: int = MAX_BYTES) -> None:
        self.moments: deque[Moment] = deque(maxlen=MAX_MOMENTS)
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
        """Bytes of what is kept."""
        return self._bytes + sum(len(line) for _, line in self._open)

    def append(self, frame: Frame, line: bytes | None = None) -> None:
        """One more frame; `line`: as it came. Time that went backwards (another boot) starts anew."""
        stamps = self._stamps
        before = Before(*stamps[-1]) if len(stamps) else None
        if before is not None and frame.mono_us <= before.mono_us:
            self._clear()
            stamps, before = self._stamps, None
        self.moments.extend(moments(frame, before))
        stamps.add(frame)
        self._devices.add(frame)
        self._waiting.add(frame)
        if self._arrived % _CHECKPOINT == 0:
            self._checkpoints.append((frame.mono_us, self._waiting.copy()))
        self._arrived += 1
        text = to_bytes(encode_frame(frame)) if line is None else line.rstrip(b"\n") + b"\n"
        self._open.append((frame.mono_us, text))
        if len(self._open) >= _MEMBER_FRAMES:
            self._close()
        self._forget(frame.mono_us - self._keep_us)

    def frames(self, after_us: int, until_us: int, *, totals: bool = False) -> Iterator[Frame]:
        """See Past."""
        # frames arrive while a long stretch is read, in turns or by another thread
        opened, closed = tuple(self._open), tuple(self._members)
        if closed:
            opened = tuple(one for one in opened if one[0] > closed[-1].last_us)
        for member in closed:
            if member.last_us > after_us and member.first_us <= until_us:
                for line in members.unpack(member.packed).splitlines():
                    frame = _decoded(line, totals=totals)
                    if after_us < frame.mono_us <= until_us:
                        yield frame
        for mono_us, line in opened:
            if after_us < mono_us <= until_us:
                yield _decoded(line, totals=totals)

    def known(self, at_us: int) -> tuple[Device, ...]:
        """See Past."""
        return self._devices.at(at_us)

    def waiting(self, at_us: int) -> tuple[int, Waiting] | None:
        """See Past."""
        found = next((one for one in reversed(self._checkpoints) if one[0] <= at_us), None)
        return None if found is None else (found[0], found[1].copy())

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
            for some in (self._checkpoints, self.moments):
                while some and _stamp_of(some[0]) <= gone.last_us:
                    some.popleft()

    def _clear(self) -> None:
        devices = self._devices.at(self._stamps.mono_us[-1])
        for some in (self.moments, self._members, self._open, self._checkpoints):
            some.clear()
        self._stamps, self._bytes, self._waiting = Stamps(), 0, Waiting()
        self._devices = DevicesThen(devices)


def _decoded(line: bytes, *, totals: bool) -> Frame:
    return decode_frame(parse(totals_alone(line) if totals else line), booleans=may_hold_booleans(line))


def _stamp_of(one: Moment | tuple[int, Waiting]) -> int:
    return one.mono_us if isinstance(one, Moment) else one[0]
