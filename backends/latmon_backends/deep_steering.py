"""Steers the deep process: starts, changes and ends it as is wanted, measures what it costs, and says each in News.

Whether it is wanted, for whom and at what price is decided by Demand, Suspicion and Budget; its life is Life's. Knows
no frame but those that tell what is wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from latmon.backend import Options
from latmon.errors import UnavailableError, UntrustedError
from latmon.model import Frame
from latmon_backends import deep_meter
from latmon_backends.budget import PAUSE_S, Budget, Verdict
from latmon_backends.deep_life import Life
from latmon_backends.deep_news import News
from latmon_backends.deep_run import Run
from latmon_backends.demand import REMIX_S, Demand, Want
from latmon_backends.launching import Launcher
from latmon_backends.programs import Programs
from latmon_backends.running_probe import LOOK_S, RefusedError
from latmon_backends.suspicion import Suspicion

_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS, _SILENT_S = 3, 10.0
"""A process that prints nothing for so long is stuck: each of its scripts prints at least its tick."""


@dataclass(frozen=True, slots=True)
class _Hole:
    """What nothing is traced of, until the next start: from when on, and what that start is."""

    since: float
    why: str


class Steering:
    """From `begin` to `end`, in a task of its own; `why_not` says why nothing is traced, where that isn't wanted."""

    def __init__(
        self, options: Options, launcher: Launcher, programs: Programs, news: News, clock: Callable[[], float]
    ) -> None:
        self.life = Life()
        self.why_not = ""
        self._launcher, self._programs, self._news, self._clock = launcher, programs, news, clock
        self._demand, self._suspicion = Demand(options.stages), Suspicion()
        self._budget = Budget(options.budget_percent)
        self._silent_s = max(_SILENT_S, _SILENT_TICKS * options.interval_us / 1e6)
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)
        self._paused_until = 0.0
        self._hole: _Hole | None = None
        self._iops = 0.0
        self._coarse = 1
        self._changed = asyncio.Event()
        self._tried = asyncio.Event()
        self._steering: asyncio.Task[None] | None = None
        self._asked_to_end = False

    def begin(self) -> None:
        if self._steering is None:
            self._steering = asyncio.create_task(self._steer())

    async def end(self) -> None:
        """No step is taken any more, the one at hand is over; the run goes on. May be asked again while it waits."""
        steering = self._steering
        if steering is None:
            return
        if not self._asked_to_end:  # a second cancel would cut short what the first has it clean up
            self._asked_to_end = True
            steering.cancel()
        await asyncio.wait({steering})

    async def tried(self) -> None:
        """Once they run for the first time, or can't."""
        await self._tried.wait()

    def note(self, frame: Frame) -> None:
        """A frame tells who is to be traced from now on."""
        self._iops = sum(done.count for done in frame.seen.values()) / (frame.dt_us / 1e6)
        self._suspicion.note(frame)

    def deepen(self, devices: tuple[str, ...]) -> None:
        self._demand.deepen(devices, self._clock())
        self._changed.set()

    def set_stages(self, mode: str) -> None:
        """A user's word ends a pause, and with it the pause's reason; any other goes with the step that follows."""
        self._demand.set_mode(mode)
        if self._paused_until:
            self._paused_until, self.why_not = 0.0, ""
        self._coarse = 1
        self._budget.forget()
        self._changed.set()

    def note_failure(self) -> None:
        """A mistake of ours is said once; the capture goes on without the deep probes."""
        steering = self._steering
        if steering is not None and steering.done() and not steering.cancelled() and steering.exception() is not None:
            self._steering = None
            self.why_not = f"the deep probes failed: {steering.exception()!r}"
            self._news.say(self.why_not)

    async def _steer(self) -> None:
        while True:
            await self._step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            self._changed.clear()

    async def _step(self) -> None:
        """What is due, and who is left out then."""
        run = self.life.run
        want = self._demand.wanted(self._suspicion.suspects(), self._clock(), () if run is None else run.want.devices)
        await self._follow(want, run)
        if self.life.run is not None:
            traced = self.life.run.target
            left = want.left if want is not None and traced.numbers else ()
            self._news.say_left(tuple(name for name in left if name not in traced.devices))
            self._news.say_unfollowed(self._programs.unfollowed(traced))

    async def _follow(self, want: Want | None, run: Run | None) -> None:
        """One thing at a time: bury, end, begin, change, or measure."""
        now = self._clock()
        if run is not None and run.is_dead(self._silent_s):
            await self._bury(run, now)
        elif want is None:
            await self._end_unwanted()
        elif run is None:
            if now >= self._paused_until:
                await self._start(want)
        elif not run.covers(want):
            if want.forced or now - run.begun >= REMIX_S:
                await self._stop("started again for other devices")
                await self._start(want)
        elif self._programs.outgrown(run.target, want.devices) and now - run.begun >= REMIX_S:
            await self._stop("started again for a new device")
            await self._start(want)
        elif now >= run.measured:
            await self._measure(run)

    async def _bury(self, run: Run, now: float) -> None:
        """After an end that nobody asked for: again, at most three times a minute."""
        await self._stop("started again after its end", run.heard)
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < _WITHIN_S:
            self._pause(f"the deep probes ended {_RESTARTS + 1} times within a minute, the last time: {run.ended}")
            self._deaths.clear()
            return
        self._deaths.append(now)
        self._news.say(f"the deep probes ended and are started again ({run.ended})")
        self._changed.set()

    async def _end_unwanted(self) -> None:
        self.why_not, self._coarse = "", 1
        if self.life.run is not None:
            await self.life.stop()
            self._budget.forget()
            self._news.say(
                "no longer traced" + ("" if self._demand.mode == "basic" else ": nobody looks, nothing is slow")
            )
        self._hole = None
        self._news.say_left(())
        self._news.say_unfollowed({})

    async def _start(self, want: Want) -> None:
        one_in = 1 if want.forced else max(self._coarse, self._budget.first(self._iops))
        target = self._programs.target(want.devices)
        self._paused_until, self.why_not = 0.0, "the deep probes are starting"
        try:
            probe, ticks = await self._programs.start(self._launcher, target, one_in)
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._pause(str(refusal))
            return
        finally:
            self._tried.set()
        run = Run(probe, ticks, want, target, one_in=one_in, clock=self._clock)
        run.measured = run.begun + deep_meter.FIRST_AFTER_S
        self.life.begin(run, self._changed.set)
        self._say_start(run)

    def _say_start(self, run: Run) -> None:
        want, target = run.want, run.target
        whom = "all devices" if target.why_all else ", ".join(want.devices) or "all devices"
        because = f"{want.why} ({target.why_all})" if target.why_all else want.why
        self._news.say(f"tracing {whom}{_sampled(run.one_in)}: {because}")
        hole, self._hole = self._hole, None
        if hole is not None:
            self._news.say(f"nothing was traced for {run.begun - hole.since:.1f} s: {hole.why}")
        for missing in self._programs.news():
            self._news.say(f"without {missing.name}: {missing.reason}")

    async def _stop(self, why: str, since: float | None = None) -> None:
        """To be started again: what is in flight meanwhile isn't traced, which that start says."""
        self._hole = _Hole(self._clock() if since is None else since, why)
        await self.life.stop()

    def _pause(self, why: str) -> None:
        self._paused_until, self.why_not = self._clock() + PAUSE_S, why
        self._news.say(f"not traced for {PAUSE_S / 60:.0f} min: {why}")

    # The budget

    async def _measure(self, run: Run) -> None:
        (found,) = await deep_meter.measure(self._launcher, [run.probe.pid])
        percent = found.percent
        run.percent, run.measured = percent, self._clock() + deep_meter.EVERY_S
        self._news.add_skipped(run.skipped.since_last(found.skipped))
        if percent is None or run.want.forced:
            return
        verdict = self._budget.judge(percent, run.one_in)
        if verdict is not None:
            await self._obey(verdict, run)
        elif self._budget.exceeded(percent):
            run.measured = self._clock()

    async def _obey(self, verdict: Verdict, run: Run) -> None:
        cost = f"they took {verdict.percent:.1f} % of a CPU, the budget is {self._budget.percent:g} %"
        if not verdict.one_in:
            await self._stop("they were off")
            self._budget.forget()
            self._pause(f"the deep probes are off, {cost} (--stages all knows no budget)")
            return
        await self._stop("started again for a coarser sample")
        self._coarse = verdict.one_in
        self._news.say(cost)
        await self._start(run.want)


def _sampled(one_in: int) -> str:
    return f", one I/O in {one_in}" if one_in > 1 else ""
