"""The replay backend: recordings as frames, at their own pace or faster, from any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

from latmon.model.frame import Frame, Origin
from latmon.support.errors import RecordingError, UsageError
from latmon.timetravel.recorded import Recorded, open_several

_BUSY_S = 0.02
"""Longest time without yielding to the event loop, while frames are taken as fast as they come."""
_SCAN_S = 0.01
"""Longest time of the scan without yielding to the event loop, which also draws and reads keys."""


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
