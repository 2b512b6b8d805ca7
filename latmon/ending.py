"""How one capture ends: when it is due, who asked for it, and what a backend still has, fetched within a deadline.

Owns the clock of the end: everything is closed LEAVING_S after somebody was in a hurry. Knows no recorder.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

from latmon.backend import Finishing
from latmon.errors import ProbeGoneError
from latmon.model import Frame

SILENT_INTERVALS, SILENT_S = 1.5, 1.0
"""A backend is silent after so many intervals, and at least one and SILENT_S: a busy host reads 0.4 s late."""
SAME_TIME_S = 0.05
GRACE_S = 2.0
"""A duration also ends when the backend has been silent for so long behind it."""
LEAVING_S = 1.9
"""From the end of a capture to a closed recording, whatever hangs: 2 s are all there are when the UI is gone."""
FINISHING_S = 1.4
"""A probe tool takes up to 1.3 s to detach; the rest of LEAVING_S is the recording's."""
PATIENCE_S = 3.6
"""So much longer a capture that nobody hurries waits for what the deep probes have counted: 5 s with FINISHING_S."""


def now() -> float:
    """Of the loop's clock."""
    return asyncio.get_running_loop().time()


class Ending:
    """The end of one capture. `stopped` is why it was stopped; `gone` is why the probe ended before that."""

    def __init__(self) -> None:
        self.stopped = self.gone = ""
        self._scope: asyncio.Timeout | None = None
        self._hurried = asyncio.Event()
        self._over = False
        self._leave_by = math.inf
        self._heard = self._ended = 0.0

    @property
    def is_asked_for(self) -> bool:
        """Whether a stop or the duration ended the capture, and not a cancelled task or an error."""
        return bool(self.stopped) or (self._scope is not None and self._scope.expired())

    def scoped(self, scope: asyncio.Timeout) -> None:
        """What a stop or the duration cancels."""
        self._scope = scope

    def stop(self, reason: str, *, at_once: bool) -> None:
        """The first reason counts; the second time, or `at_once`, is a hurry."""
        if at_once or self.stopped or self._over:
            self._hurried.set()
        if self.stopped:
            return
        self.stopped = reason
        self._reschedule(0)

    def heard(self) -> None:
        """The backend has spoken."""
        self._heard = now()

    def due(self, duration_us: int | None, interval_us: int) -> float:
        """When the frame that completes the duration has come; a silent backend is given GRACE_S more."""
        if duration_us is None or self._scope is None:
            return math.inf
        end = now() + duration_us / 1e6
        self._scope.reschedule(end + GRACE_S)
        return end - interval_us / 2e6

    def begun(self) -> None:
        """The capture is over, and neither a stop nor its duration may cancel what is still to be done."""
        if not self._over:
            self._ended = now()
        self._over = True
        self._reschedule(None)
        self._scope = None
        self._hurry()

    def _reschedule(self, when: float | None) -> None:
        """A scope that has been left, or is being left, is over already."""
        with contextlib.suppress(RuntimeError):
            if self._scope is not None and not self._scope.expired():
                self._scope.reschedule(when)

    def leave_by(self) -> float:
        """When all must be closed."""
        return min(self._leave_by, now() + LEAVING_S)

    async def fetch(self, backend: Finishing) -> Frame | None:
        """Return what was counted since the last frame; None where it can't be had, `gone` says where it is lost."""
        try:
            frame = await self._fetched(backend)
        except ProbeGoneError as gone:
            self.gone = str(gone)
            return None
        if frame is not None:
            self._heard = now()
        return frame

    async def _fetched(self, backend: Finishing) -> Frame | None:
        """With patience until a hurry begins, then what comes at once."""
        if not self._hurried.is_set():
            hurrying = asyncio.create_task(self._hurried.wait())
            frame = await _first(asyncio.create_task(backend.finish(PATIENCE_S)), hurrying, PATIENCE_S + FINISHING_S)
            if frame is not None or not self._hurried.is_set():
                return frame
        self._hurry()
        return await _first(asyncio.create_task(backend.finish(0.0)), None, FINISHING_S)

    def silent_s(self, interval_us: int) -> float:
        """Seconds at the end of the capture of which no frame tells; 0 where less than an interval is missing.

        A probe that had ended counted nothing since: then it is missing unless the last frame had just come.
        """
        silent_s = (self._ended or now()) - self._heard
        interval_s = interval_us / 1e6
        allowed_s = SAME_TIME_S if self.gone else max(SILENT_INTERVALS * interval_s, interval_s + SILENT_S)
        return silent_s if silent_s > allowed_s else 0.0

    def _hurry(self) -> None:
        if self._hurried.is_set():
            self._leave_by = self.leave_by()


async def _first(finishing: asyncio.Task[Frame | None], other: asyncio.Task[Any] | None, within: float) -> Frame | None:
    """What `finishing` makes before `other` is done or the time is up; both have ended then."""
    waiting: set[asyncio.Task[Any]] = {finishing, *([other] if other else [])}
    try:
        await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        return finishing.result() if finishing.done() else None
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
