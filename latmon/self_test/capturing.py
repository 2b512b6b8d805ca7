"""The capture: the device watched by the backend that a live start would take, while the load plays. Judges nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from latmon.backend import Options
from latmon.capture import Capture, Tally
from latmon.errors import LatmonError, UnavailableError
from latmon.model import Frame, Origin
from latmon.request import Request
from latmon.self_test import load
from latmon.self_test.device import Own
from latmon.text import clean

INTERVAL_US = 500_000
THRESHOLD_US = 100_000
_OPENING_S = 300.0
"""A backend gives up by itself long before."""
_STARTING_S = 60.0
"""bpftrace 0.17 compiles the deep probes for so long on a busy host."""
_AGES_S = 3.0
_SETTLING_S = 6.0
_AFTER = 3
"""Frames after the last write: a record of a slow I/O may wait for one more."""
_STEP_S = 0.1
_STARTING = "the deep probes are starting"
"""How a backend begins its reason while they do."""
_SIGNALS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal's hang-up",
}


@dataclass(frozen=True, slots=True)
class Captured:
    """What was done to the device, and all that was told of it."""

    device: str
    origin: Origin
    frames: tuple[Frame, ...]
    done: load.Done
    deep: str
    """Why the deep probes didn't run, as far as that was told; empty where they did."""


def capture(own: Own, backend: str, say: Callable[[str], None]) -> Captured:
    """UnavailableError where nothing can be captured; privileges are given up as by any capture."""
    try:
        file = os.open(own.path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise UnavailableError(_refused(own, "open", error)) from error
    try:
        return asyncio.run(_Watch(own, file, backend, say).run())
    finally:
        os.close(file)


def _refused(own: Own, what: str, error: OSError) -> str:
    why = clean(error.strerror or str(error), 200)
    return f"the self-test can't {what} its device {own.path}: {why}; it takes 20 MB of memory and no disk, try again."


class _Watch:
    """A sink, and what goes on beside it."""

    def __init__(self, own: Own, file: int, backend: str, say: Callable[[str], None]) -> None:
        self._own, self._file, self._say = own, file, say
        options = Options(INTERVAL_US, (own.name,), threshold_us=THRESHOLD_US, stages="all")
        self._capture = Capture(Request(backend, options), self)
        self._origin: Origin | None = None
        self._frames: list[Frame] = []
        self._stopped = threading.Event()
        self._done: load.Done | None = None
        self._interrupted = self._deep = ""

    def opened(self, origin: Origin) -> None:
        self._origin = origin
        self._say(f"measuring with {origin.tool or origin.backend}")

    def offer(self, frame: Frame, _: Tally) -> None:
        self._frames.append(frame)

    async def run(self) -> Captured:
        loop = asyncio.get_running_loop()
        for number, name in _SIGNALS.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._interrupt, name)
        self._say("starting the probes; an old bpftrace takes up to a minute, on a loaded host several")
        beside = asyncio.create_task(self._beside())
        try:
            outcome = await self._capture.run()
        finally:
            self._stopped.set()
            beside.cancel()
            results = await asyncio.gather(beside, return_exceptions=True)
        if self._interrupted:
            raise LatmonError(f"the self-test was ended by {self._interrupted}")
        failed = next((one for one in results if isinstance(one, Exception)), None)
        if isinstance(failed, OSError):
            raise UnavailableError(_refused(self._own, "write to", failed)) from failed
        if failed is not None:
            raise failed
        if self._done is None or self._origin is None:
            raise UnavailableError(f"the capture ended before the self-test was over: {outcome.reason}")
        return Captured(self._own.name, self._origin, tuple(self._frames), self._done, self._deep)

    def _interrupt(self, name: str) -> None:
        self._interrupted = name
        self._stopped.set()
        self._capture.stop(f"ended by {name}", at_once=True)

    async def _beside(self) -> None:
        """Waits for the probes, plays the load, waits for what is told of it, ends the capture."""
        try:
            await self._until(lambda: self._origin is not None, _OPENING_S)
            await self._until(lambda: bool(self._frames), _STARTING_S)
            if not self._frames:
                after = _STARTING_S if self._origin else _OPENING_S
                raise UnavailableError(f"the self-test waited for {after:.0f} s, and the probes told nothing.")
            await self._until(self._traces, _STARTING_S)
            await self._until(self._ages, _AGES_S)
            self._deep = self._why_not_deep()
            self._say("writing")
            self._done = await asyncio.to_thread(load.play, self._own, self._file, self._stopped, self._say)
            after = len(self._frames) + _AFTER
            await self._until(lambda: len(self._frames) >= after and self._all_told(), _SETTLING_S)
        finally:
            self._capture.stop("the self-test is over", at_once=True)

    async def _until(self, ready: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not ready() and loop.time() < end:  # noqa: ASYNC110  time counts as well
            await asyncio.sleep(_STEP_S)

    def _traces(self) -> bool:
        """Whether the deep probes run, or never will."""
        assert self._origin is not None  # noqa: S101  told before the first frame
        last = self._frames[-1]
        starting = any(one.reason.startswith(_STARTING) for one in last.traced.absent)
        if last.traced.one_in or not self._probes():
            return True
        return bool(last.traced.absent) and not starting

    def _ages(self) -> bool:
        """Whether what waits is told too, which may begin a little later, or never is."""
        last = self._frames[-1]
        return last.in_flight is not None or not last.traced.one_in

    def _probes(self) -> bool:
        """Whether there may be deep probes at all."""
        origin = self._origin
        return origin is not None and "total" in origin.measured and origin.traces_stages

    def _why_not_deep(self) -> str:
        last = self._frames[-1]
        if last.traced.one_in:
            return ""
        if told := next((one.reason for one in last.traced.absent), ""):
            return told
        if self._probes():
            return f"the deep probes did not start within {_STARTING_S:.0f} s"
        untraced = self._origin.why_untraced("hba") if self._origin else ""
        return untraced or "it has no deep probes"

    def _all_told(self) -> bool:
        """Each held write has its line, where lines are told."""
        if self._origin is None or "total" not in self._origin.measured:
            return True
        told = {one.sector for frame in self._frames for one in frame.outliers if one.device == self._own.name}
        return self._done is None or told >= {one.sector for one in self._done.held}
