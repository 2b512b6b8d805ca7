"""The replay backend: recordings as frames, at their own pace or faster, from any moment.

`Recorded` reads any time of a recording from its file. Time stamps are read at once from the members' heads; events and
devices are known as far as `scan` has read.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from latmon.aggregate.request_age import Waiting
from latmon.model.frame import Device, Frame, Mark, Origin
from latmon.recording.archive import MAX_MOMENTS, Before, DevicesThen, Stamps, TimelineEvent, frames_of, moments
from latmon.recording.codec import Gap
from latmon.recording.items import Item, item_of
from latmon.recording.packed_tables import slowest_us
from latmon.recording.parts import Parts, is_nameless, part_of
from latmon.recording.reader import Recording, open_recording, raw_lines
from latmon.support.errors import RecordingError, UsageError

_PLAIN = re.compile(
    rb'\{"type":"window","seq":(\d{1,18}),"t":(\d{1,12}(?:\.\d{1,12})?),"mono":(\d{1,18}),"dt":(\d{1,18}),'
)
"""Begin of a window's line as latmon writes it, with all that `scan` needs of most windows."""
_WORTH = tuple(
    f'"{key}":'.encode()
    for key in (
        *("gap", "marks", "devices", "removed"),
        *("lost_events", "map_full", "undecoded_lines", "dropped_frames"),
    )
)
_NEARLY = 0.99
"""The share of a scan that has read the last frame, and is not over."""
_BUSY_S = 0.02
"""Longest time without yielding to the event loop, while frames are taken as fast as they come."""
_SCAN_S = 0.01
"""Longest time of the scan without yielding to the event loop, which also draws and reads keys."""


class Several:
    """Several recordings of one boot in order; where they overlap, no window is read twice."""

    def __init__(self, recordings: Sequence[Recording | Parts]) -> None:
        first = recordings[0]
        for other in recordings[1:]:
            if _source(other.origin) != _source(first.origin):
                raise UsageError(f"{other.path} is not from the same host, boot and backend as {first.path}")
        self._several = sorted(recordings, key=lambda recording: recording.origin.start_mono_us)
        self.parts = tuple(part for recording_part in self._several for part in _all(recording_part))
        self.origin: Origin = self._several[0].origin
        self.devices: tuple[Device, ...] = self._several[0].devices
        self.damage: list[str] = []

    def since(self, mono_us: int, *, totals: bool = False) -> Iterator[Item]:
        """See Recording."""
        return self._joined(lambda part: part.since(mono_us, totals=totals))

    def between(self, since_us: int, until_us: int, *, totals: bool = False) -> Iterator[Item]:
        """See Recording."""
        return self._joined(lambda part: part.between(since_us, until_us, totals=totals))

    def _joined(self, read: Callable[[Recording | Parts], Iterator[Item]]) -> Iterator[Item]:
        self.damage = []
        last_us = -1
        for part in self._several:
            counted = 0
            for item in read(part):
                self.damage += part.damage[counted:]
                counted = len(part.damage)
                if isinstance(item, Frame):
                    if item.mono_us <= last_us:
                        continue
                    last_us = item.mono_us
                yield item
            self.damage += part.damage[counted:]


def open_several(paths: Sequence[Path]) -> Recording | Parts | Several:
    """Open the parts of one capture, and other captures of the same boot, as one recording."""
    opened = [(recording, part_of(recording.origin)) for recording in map(open_recording, paths)]
    capture_ids = {part.capture for _, part in opened if part}
    captures: dict[str, list[Recording]] = {}
    for at, (recording, part) in enumerate(opened):
        # one without a header may be a part
        alone = next(iter(capture_ids)) if len(capture_ids) == 1 and is_nameless(recording) else f" {at}"
        captures.setdefault(part.capture if part else alone, []).append(recording)
    joined = [recordings[0] if len(recordings) == 1 else Parts(recordings) for recordings in captures.values()]
    return joined[0] if len(joined) == 1 else Several(joined)


def _source(origin: Origin) -> tuple[str, str, str]:
    return origin.host, origin.boot_id, origin.backend


class Recorded:
    """The Past of a recording."""

    def __init__(self, recording: Recording | Parts | Several) -> None:
        self.origin: Origin = recording.origin
        self.moments: deque[TimelineEvent] = deque(maxlen=MAX_MOMENTS)
        self.scanned = 0.0
        self._recording = recording
        self._stamps = _guessed(recording)
        self._devices = DevicesThen(recording.devices)

    @property
    def stamps(self) -> Stamps:
        return self._stamps

    def play(self, after_us: int = -1, *, totals: bool = False) -> Iterator[Frame]:
        """Return the frames that end after `after_us`; the last one has the recording's end as notice."""
        known = () if after_us >= 0 else self._recording.devices
        recording = self._recording
        items = recording.since(max(after_us + 1, 0), totals=totals)
        return (frame for frame in frames_of(items, lambda: recording.damage, known) if frame.mono_us > after_us)

    def frames(self, after_us: int, until_us: int, *, totals: bool = False) -> Iterator[Frame]:
        """See Past; the last frame has the recording's end as notice."""
        if self._is_end(until_us):
            found_frames = self.play(after_us, totals=totals)
        else:
            items = self._recording.between(max(after_us + 1, 0), until_us, totals=totals)
            found_frames = frames_of(items, lambda: self._recording.damage)
        for frame in found_frames:
            if frame.mono_us > until_us:
                return
            yield frame

    def _is_end(self, us: int) -> bool:
        return not len(self._stamps) or us >= self._stamps[-1].mono_us

    def known(self, at_us: int) -> tuple[Device, ...]:
        """See Past; as far as it was scanned."""
        return self._devices.at(at_us)

    def waiting(self, at_us: int) -> tuple[int, Waiting] | None:  # noqa: ARG002  the protocol's
        """See Past: never known, so ages are lower bounds since the first frame that is read."""
        return None

    def scan(self) -> Iterator[None]:
        """Read time stamps, devices and events, one member with each step; the recording may be played meanwhile."""
        stamps = Stamps()
        before: Before | None = None
        marks: list[Mark] = []
        reason = ""
        for line in raw_lines(_all(self._recording)):
            if line is None:  # a member is over
                self.scanned = self._share(before)
                yield
                continue
            item = _glanced(line)
            if isinstance(item, Gap):
                reason = item.reason
            elif isinstance(item, Mark):
                marks.append(item)
            elif isinstance(item, Frame) and (before is None or item.mono_us > before.mono_us):
                frame = replace(item, gap=item.gap or reason, marks=(*marks, *item.marks))
                self.moments.extend(moments(frame, before))
                self._devices.add(frame)
                stamps.add(frame, slowest_us(line))
                before, marks, reason = Before(frame.mono_us, frame.wall), [], ""
        if len(stamps):
            self._stamps = stamps
        self.scanned = 1.0

    def _share(self, before: Before | None) -> float:
        """Return the share of the recording's time up to a frame, below 1."""
        ends = self._stamps.mono_us
        if before is None or not ends:
            return 0.0
        return min(max(before.mono_us - ends[0], 0) / max(ends[-1] - ends[0], 1), _NEARLY)


def _all(recording: Recording | Parts | Several) -> Sequence[Recording]:
    return (recording,) if isinstance(recording, Recording) else recording.parts


def _guessed(recording: Recording | Parts | Several) -> Stamps:
    """Return the time stamps of the members' heads: exact where each member is a window and the clock was not set."""
    origin = recording.origin
    ends = sorted({us for part in _all(recording) for us in part.ends()})
    offset = origin.start_wall - origin.start_mono_us / 1e6
    return Stamps(ends, [offset + us / 1e6 for us in ends], [0] * len(ends))


def _glanced(line: bytes) -> Item | None:
    """Decode a line; of a window without events only its time stamps."""
    plain = _PLAIN.match(line)
    if plain is not None and not any(key in line for key in _WORTH):
        seq, wall, mono_us, dt_us = plain.groups()
        return Frame(int(seq), float(wall), int(mono_us), int(dt_us))
    try:
        return item_of(line)
    except RecordingError:
        return None


class ReplayBackend:
    """Backend that plays recordings one after the other. `speed` 2 is twice as fast, 0 as fast as frames are taken."""

    def __init__(self, paths: Sequence[Path], speed: float = 1.0) -> None:
        if not paths:
            raise UsageError("there is nothing to replay: name a recording")
        if not 0 <= speed < float("inf"):
            raise UsageError(f"a replay can't run at speed {speed:g}: 0 is as fast as possible, 1 is real time")
        self._paths = tuple(paths)
        self.speed = speed
        self._recorded: Recorded | None = None
        self._scanning: asyncio.Task[None] | None = None
        self._going = asyncio.Event()
        self._going.set()
        self._after_us = -1
        self._turn = 0
        """Counts the calls of `go_on`: when it changes, the playing loop begins at another moment."""

    @property
    def origin(self) -> Origin:
        return self.past().origin

    def past(self) -> Recorded:
        """See Seekable."""
        if self._recorded is None:
            raise RecordingError("the recording has not been opened yet")
        return self._recorded

    async def __aenter__(self) -> Self:
        self._recorded = Recorded(open_several(self._paths))
        self._scanning = asyncio.create_task(self._scan(self._recorded))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the scan. Each reading closes its file."""
        if self._scanning is not None:
            self._scanning.cancel()

    def hold(self) -> None:
        """See Seekable."""
        self._going.clear()

    def go_on(self, after_us: int) -> None:
        """See Seekable."""
        self._after_us = after_us
        self._turn += 1
        self._going.set()

    async def gone_on(self) -> None:
        """See Seekable."""
        turn = self._turn
        while turn == self._turn:
            self._going.clear()
            await self._going.wait()

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the frames from the start at each call, or from the moment that `go_on` gave."""
        while True:
            turn, after_us, self._after_us = self._turn, self._after_us, -1
            async for frame in self._played(after_us):
                yield frame
                if turn != self._turn:
                    break
            if turn == self._turn:
                return

    async def _played(self, after_us: int) -> AsyncIterator[Frame]:
        """Yield frames after `after_us` at their own pace, until the next `go_on`."""
        loop = asyncio.get_running_loop()
        due, turn = loop.time(), self._turn
        first, rested = after_us < 0, due
        for frame in self.past().play(after_us):
            if self.speed and not first:
                due += frame.dt_us / 1e6 / self.speed
            first = False
            now = loop.time()
            if due > now or now - rested > _BUSY_S:  # even at full speed other tasks get to run
                await asyncio.sleep(max(0.0, due - now))
                rested = loop.time()
            if not self._going.is_set():
                await self._going.wait()
                due = loop.time()
            if turn != self._turn:
                return
            yield frame

    async def _scan(self, recorded: Recorded) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _SCAN_S
        for _ in recorded.scan():
            if loop.time() > until:
                await asyncio.sleep(_SCAN_S)
                until = loop.time() + _SCAN_S
