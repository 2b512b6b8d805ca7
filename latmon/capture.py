"""One capture from opening to its end: backend -> recorder and sink, privileges given up on the way, an honest exit.

The headless command and the collector process run the same `Capture`; they differ in the sink. Knows neither terminal,
socket nor signal.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from latmon import opening, privileges, target
from latmon.backend import Backend, Deepening, Finishing
from latmon.errors import EXIT_DONE, EXIT_FAILED, EXIT_INCOMPLETE
from latmon.model import Frame, Origin
from latmon.own_cpu import OwnCpu
from latmon.quantities import show_duration
from latmon.recorder import Limits, Recorder
from latmon.request import Request

SILENT_INTERVALS = 3
"""A backend that has been silent for so many at the end of a capture has lost them."""
GRACE_S = 2.0
"""A duration also ends when the backend has been silent for so long behind it."""
LEAVING_S = 1.9
"""From the end of a capture to a closed recording, whatever hangs: 2 s are all there are when the UI is gone."""
FINISHING_S = 1.4
"""A probe tool takes up to 1.3 s to detach; the rest of LEAVING_S is the recording's."""
PATIENCE_S = 3.6
"""So much longer a capture that nobody hurries waits for what the deep probes have counted: 5 s with FINISHING_S."""
TOGGLING_S = 0.5
"""A key pressed in the last moment is waited for so long."""

Opener = Callable[[Request], AbstractAsyncContextManager[Backend]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Why a capture ended, in one sentence, and the exit code that goes with it."""

    reason: str
    exit: int = EXIT_DONE


@dataclass(slots=True)
class Tally:
    """What was counted over the whole capture; `complete` is false after a loss that makes its sums too small."""

    frames: int = 0
    completed: int = 0
    lost_events: int = 0
    map_full: int = 0
    gaps: int = 0
    above: int = 0
    """I/Os above their device's threshold."""
    suppressed: int = 0
    """Of these the ones that are not told one by one."""
    one_in: int = 0
    """One request in so many is traced at the moment; 0: none."""

    def note(self, frame: Frame) -> None:
        self.frames += 1
        self.completed += sum(done.count for done in (frame.seen or frame.kernel).values())
        self.lost_events += frame.health.lost_events
        self.map_full += frame.health.map_full
        self.gaps += bool(frame.gap)
        self.above += sum(frame.above.values())
        self.suppressed += frame.health.suppressed
        self.one_in = frame.traced.one_in

    @property
    def complete(self) -> bool:
        return not (self.lost_events or self.map_full or self.gaps)


class Sink(Protocol):
    """Who watches a capture. Neither call may wait."""

    def opened(self, origin: Origin) -> None: ...

    def offer(self, frame: Frame, tally: Tally) -> None: ...


class Capture:
    """Run once by `run`, ended from outside by `stop`, told by `toggle_recording` what the user wants."""

    def __init__(self, request: Request, sink: Sink, opener: Opener = opening.opened) -> None:
        self._request, self._sink, self._opener = request, sink, opener
        self._tally = Tally()
        self._scope: asyncio.Timeout | None = None
        self._recorder: Recorder | None = None
        self._backend: Backend | None = None
        self._stages = request.options.stages
        self._toggling: asyncio.Task[None] | None = None
        self._stopped = ""
        self._hurried = asyncio.Event()
        self._over = False
        self._heard = 0.0
        self._silence = ""

    async def run(self) -> Outcome:
        """LatmonError when there is nothing to capture with or to; otherwise how it ended."""
        user = privileges.invoker(os.environ, os.geteuid())
        if self._request.record is not None:
            with privileges.acting_as(user):
                target.refuse(self._request.record)
        try:
            async with asyncio.timeout(0 if self._stopped else None) as scope:
                self._scope = scope
                async with self._opener(self._request) as backend:
                    privileges.settle(user)
                    ended = await self._follow(backend)
        except TimeoutError:
            if not scope.expired():
                raise
            ended = Outcome((self._stopped or self._full_duration()) + self._silence)
        return self._honest(ended)

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """End the capture complete; the first reason counts. `at_once`, or the second time: waiting for little more."""
        if at_once or self._stopped or self._over:
            self._hurried.set()
        if self._stopped:
            return
        self._stopped = reason
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(0)

    def toggle_recording(self) -> None:
        """Start or stop a recording named by host and time; nothing happens before the backend is open."""
        if self._recorder is not None and (self._toggling is None or self._toggling.done()):
            self._toggling = asyncio.create_task(self._recorder.toggle())

    def set_stages(self, mode: str) -> None:
        """When the deep probes run, where the backend has any; what comes of it is in the next frames."""
        self._stages = mode
        if isinstance(self._backend, Deepening):
            self._backend.set_stages(mode)

    def deepen(self, devices: tuple[str, ...]) -> None:
        """Somebody looks at these devices (empty: all). To be repeated while they do, so one that is early is none."""
        if isinstance(self._backend, Deepening):
            self._backend.deepen(devices)

    @property
    def recording(self) -> bool:
        return self._recorder is not None and self._recorder.active

    async def _follow(self, backend: Backend) -> Outcome:
        """Frames to recorder and sink; the recording is closed before the backend is, whatever ends them."""
        origin = backend.origin
        self._recorder = recorder = Recorder(origin, Limits(self._request.max_size, self._request.redact))
        if self._request.record is not None:
            await recorder.start(self._request.record)
        self._backend = backend
        if self._stages != self._request.options.stages:  # the user was faster than the probes
            self.set_stages(self._stages)
        self._sink.opened(origin)
        leave_by = math.inf
        try:
            return await self._pump(backend, recorder)
        except asyncio.CancelledError:
            self._unscope()
            leave_by = self._leaving() if self._hurried.is_set() else math.inf
            silent_s = asyncio.get_running_loop().time() - self._heard
            if not (self._stopped and recorder.active and await self._last_frame(backend, recorder)):
                self._note_silence(silent_s, origin.interval_us)
            raise
        finally:
            self._unscope()
            await self._close(recorder, min(leave_by, self._leaving()))

    def _unscope(self) -> None:
        """The capture is over, and neither a stop nor its duration may cancel what is still to be done."""
        self._over = True
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(None)
        self._scope = None

    def _leaving(self) -> float:
        """When all must be closed."""
        return asyncio.get_running_loop().time() + LEAVING_S

    async def _close(self, recorder: Recorder, leave_by: float) -> None:
        clock = asyncio.get_running_loop().time
        if self._toggling is not None:
            await asyncio.wait({self._toggling}, timeout=min(TOGGLING_S, leave_by - clock()))
        await recorder.stop(self._stopped or "closed", within=leave_by - clock())

    async def _pump(self, backend: Backend, recorder: Recorder) -> Outcome:
        due = self._due(backend.origin.interval_us)
        self._heard = asyncio.get_running_loop().time()
        cpu = OwnCpu()
        notice = ""
        async for bare in backend.frames():
            frame = _with_own_health(bare, cpu, recorder.state)
            notice = frame.health.notice
            self._heard = asyncio.get_running_loop().time()
            self._tally.note(frame)
            recorder.put(frame)
            self._sink.offer(frame, self._tally)
            if asyncio.get_running_loop().time() >= due:
                self._unscope()
                if recorder.active:
                    await self._last_frame(backend, recorder)
                return Outcome(self._full_duration())
        failed = backend.origin.backend not in opening.FINITE
        return Outcome(notice or f"{backend.origin.backend} has no more frames", EXIT_FAILED if failed else EXIT_DONE)

    async def _last_frame(self, backend: Backend, recorder: Recorder) -> bool:
        """What was counted since the last frame, so that an ended capture's totals are those of its end."""
        frame = await self._finished(backend) if isinstance(backend, Finishing) else None
        if frame is not None:
            self._tally.note(frame)
            recorder.put(frame)
            self._sink.offer(frame, self._tally)
        return frame is not None

    async def _finished(self, backend: Finishing) -> Frame | None:
        """Waits for little once the user, or a UI that is gone, is in a hurry."""
        patience = 0.0 if self._hurried.is_set() else PATIENCE_S
        finishing = asyncio.create_task(backend.finish(patience))
        waiting: set[asyncio.Task[Any]] = {finishing}
        if patience:
            waiting.add(asyncio.create_task(self._hurried.wait()))
        try:
            await asyncio.wait(waiting, timeout=FINISHING_S + patience, return_when=asyncio.FIRST_COMPLETED)
            return finishing.result() if finishing.done() else None
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.wait(waiting)

    def _note_silence(self, silent_s: float, interval_us: int) -> None:
        """The end of a capture that nothing was heard of is a gap, though no later frame shows it."""
        if silent_s > SILENT_INTERVALS * interval_us / 1e6:
            self._tally.gaps += 1
            self._silence = f"; nothing was heard of the probe for the last {silent_s:.0f} s"

    def _due(self, interval_us: int) -> float:
        """When the frame that completes the duration has come; a silent backend is given GRACE_S more."""
        if self._request.duration_us is None or self._scope is None:
            return math.inf
        end = asyncio.get_running_loop().time() + self._request.duration_us / 1e6
        self._scope.reschedule(end + GRACE_S)
        return end - interval_us / 2e6

    def _full_duration(self) -> str:
        return f"the capture is complete: {show_duration(self._request.duration_us or 0)}"

    def _honest(self, ended: Outcome) -> Outcome:
        """Exit 4 for what ended well but lost something on the way."""
        whole = self._tally.complete and (self._recorder is None or self._recorder.complete)
        return ended if whole or ended.exit != EXIT_DONE else replace(ended, exit=EXIT_INCOMPLETE)


def _with_own_health(frame: Frame, cpu: OwnCpu, recording: str) -> Frame:
    """The frame with what only the capture knows; a synthetic host's own CPU figure is left as it is."""
    spent = cpu.percent() if frame.health.self_cpu_percent is None else frame.health.self_cpu_percent
    return replace(frame, health=replace(frame.health, self_cpu_percent=spent, recording=recording))
