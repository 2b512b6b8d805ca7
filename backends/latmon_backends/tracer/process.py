"""The process of the tracer that runs now, and the output of those before it that no frame has taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from latmon_backends.probe.tick_protocol import TracerWindow
from latmon_backends.tracer.run import TracerRun
from latmon_backends.tracer.takeover import Predecessor
from latmon_backends.tracer.windows import with_records_of


class TracerProcess:
    """The process that runs now, and the output of those before it that no frame has taken yet."""

    def __init__(self) -> None:
        self.run: TracerRun | None = None
        """From `begin` until the process has ended."""
        self._predecessor: Predecessor | None = None
        self._ending: asyncio.Task[None] | None = None
        self._left: deque[TracerWindow] = deque()

    def begin(self, run: TracerRun, on_end: Callable[[], None]) -> None:
        """Take the process over; `on_end` is called when it ends by itself."""
        self.run = run
        run.begin(on_end)

    def taken(self) -> TracerWindow:
        """Return the data since the last call, of one process.

        A frame has one list of devices and one sampling: data that follows a restart waits for the next frame. The last
        frame has none of it.
        """
        left = self._left.popleft() if self._left else TracerWindow()
        if left.ticks or self._left or self.run is None:
            return left
        return with_records_of(left, self._taken_of(self.run))

    def _taken_of(self, run: TracerRun) -> TracerWindow:
        """Return the data of a process, with what the process that it replaces has counted to its end."""
        predecessor, window = self._predecessor, run.taken()
        if predecessor is None:
            return window
        if predecessor.has_ended:
            self._predecessor = None
        return predecessor.add_to(window)

    def replace(self, later: TracerRun, predecessor: Predecessor) -> None:
        """Have another process count from now on; the one before is ended by `end_replaced`."""
        self.run, self._predecessor = later, predecessor

    async def end_replaced(self) -> None:
        """End the process that was replaced within 2 s."""
        if self._predecessor is not None:
            await self._predecessor.end()

    async def finish(self, *, patient: bool = False) -> None:
        """Ask it to end, and read all its output for the last frame; `patient`: however long that takes."""
        if self._ending is not None:
            await asyncio.shield(self._ending)
        elif self.run is not None:
            await asyncio.gather(self.end_replaced(), self.run.finish(patient=patient))

    async def stop(self) -> None:
        """End it within 2 s. A cancelled caller leaves it to end by itself."""
        if self._ending is None and self.run is not None:
            self._ending = asyncio.create_task(self._end(self.run))
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _end(self, run: TracerRun) -> None:
        try:
            await asyncio.gather(self.end_replaced(), run.stop())
        finally:
            self._left.append(self._taken_of(run))
            self.run = self._ending = self._predecessor = None
