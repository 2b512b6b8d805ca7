"""The life of the deep process, whoever asks for its end: one run at a time, gone only when it has ended for certain.

What it said to its end is kept for the next frame. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from latmon_backends.deep_left import EMPTY, together
from latmon_backends.deep_run import Run
from latmon_backends.deep_ticks import DeepWindow


class Life:
    """`run` is there from `begin` until its end is over."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self._ending: asyncio.Task[None] | None = None
        self._left = EMPTY
        self._finished = False

    def begin(self, run: Run, tell: Callable[[], None]) -> None:
        """`tell` is called when it ends by itself."""
        self.run = run
        run.begin(tell)

    def taken(self) -> DeepWindow:
        """What was told since the last call.

        A frame says whom it traces and how much: what follows a restart waits for the next one, if there is one.
        """
        left, self._left = self._left, EMPTY
        if self.run is None or (left.ticks and not self._finished):
            return left
        return together(left, self.run.taken())

    async def finish(self, *, patient: bool = False) -> None:
        """Asked to end, and all it says is there for the last frame; `patient`: however long that takes."""
        self._finished = True
        if self._ending is not None:
            await asyncio.shield(self._ending)
        elif self.run is not None:
            await self.run.finish(patient=patient)

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s; who is cancelled while waiting leaves it to end."""
        if self._ending is None and self.run is not None:
            self._ending = asyncio.create_task(self._end(self.run))
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _end(self, run: Run) -> None:
        try:
            await run.stop()
        finally:
            self._left = together(self._left, run.taken())
            self.run = self._ending = None
