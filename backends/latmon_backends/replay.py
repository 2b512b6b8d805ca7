"""The replay backend: recordings as frames again, at their own pace or faster.

What the file says between its windows (gaps, damage, a missing end) reaches the screen in the next frame's `gap` and
`notice`. Knows nothing of the file's layout; recording.py owns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from latmon.errors import RecordingError, UsageError
from latmon.mark import Mark
from latmon.model import Device, Frame, Origin
from latmon.recording import Gap, Recording, open_recording


class ReplayBackend:
    """Plays recordings one behind the other. `speed` 2 is twice as fast, 0 as fast as frames are taken."""

    def __init__(self, paths: Sequence[Path], speed: float = 1.0) -> None:
        if not paths:
            raise UsageError("there is nothing to replay: name a recording")
        if not 0 <= speed < float("inf"):
            raise UsageError(f"a replay can't run at speed {speed:g}: 0 is as fast as possible, 1 is real time")
        self._paths = tuple(paths)
        self._speed = speed
        self._recordings: tuple[Recording, ...] = ()

    @property
    def origin(self) -> Origin:
        if not self._recordings:
            raise RecordingError("the recording has not been opened yet")
        return self._recordings[0].origin

    async def __aenter__(self) -> Self:
        self._recordings = tuple(open_recording(path) for path in self._paths)
        for other in self._recordings[1:]:
            if _source(other.origin) != _source(self.origin):
                raise UsageError(f"{other.path} is not from the same host, boot and backend as {self._paths[0]}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Each reading closes its file."""

    async def frames(self) -> AsyncIterator[Frame]:
        """The same frames from the start at each call; the last one's notice says how a broken recording ended."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        first = True
        for frame in _told(self._recordings):
            if self._speed and not first:
                due += frame.dt_us / 1e6 / self._speed
            first = False
            # even at full speed the loop gets its turn
            await asyncio.sleep(max(0.0, due - loop.time()))
            yield frame


def _source(origin: Origin) -> tuple[str, str, str]:
    return origin.host, origin.boot_id, origin.backend


def _told(recordings: Sequence[Recording]) -> Iterator[Frame]:
    """The frames of all recordings, in the order of time; one is read ahead, to know the last one."""
    held: Frame | None = None
    for recording in recordings:
        said = 0
        for frame in _frames(recording):
            if held is not None and frame.mono_us <= held.mono_us:
                continue  # two recordings may overlap; what has been shown is not shown again
            if held is not None:
                yield held
            held = _noticed(frame, recording.damage[said:])
            said = len(recording.damage)
        if held is not None:
            held = _noticed(held, recording.damage[said:])
    if held is not None:
        yield held


def _frames(recording: Recording) -> Iterator[Frame]:
    """Windows alone: gap and mark lines become a part of the next window, the header's devices the first one's."""
    reason = ""
    known = recording.devices
    marks: list[Mark] = []
    for item in recording:
        if isinstance(item, Gap):
            reason = item.reason
        if isinstance(item, Mark):
            marks.append(item)
        if isinstance(item, Frame):
            together = _together(known, item.devices)
            yield replace(item, gap=item.gap or reason, devices=together, marks=(*marks, *item.marks))
            reason, known, marks = "", (), []


def _together(known: tuple[Device, ...], named: tuple[Device, ...]) -> tuple[Device, ...]:
    """Devices of the header and of the first window; the window's are the newer."""
    return tuple({one.name: one for one in (*known, *named)}.values()) if known else named


def _noticed(frame: Frame, damage: Sequence[str]) -> Frame:
    if not damage:
        return frame
    more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
    said = f"recording: {damage[-1]}{more}"
    notice = f"{frame.health.notice}; {said}" if frame.health.notice else said
    return replace(frame, health=replace(frame.health, notice=notice))
