"""The deep process: one more bpftrace, started while it is wanted and ended when it isn't, or costs too much.

Owns its life and what a frame says of it. What it measures is decoded elsewhere (DeepTicks); whether it is wanted, for
whom and at what price is decided by Demand, Suspicion and Budget. Whatever becomes of it, frames go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.model import Frame, Health, Missing, Traced
from latmon_backends import deep_meter
from latmon_backends.bpftrace_deep_ticks import DeepWindow
from latmon_backends.bpftrace_probe import RefusedError
from latmon_backends.budget import PAUSE_S, Budget, Verdict
from latmon_backends.deep_news import News
from latmon_backends.deep_programs import DeepPrograms
from latmon_backends.deep_run import Run
from latmon_backends.demand import REMIX_S, Demand, Want
from latmon_backends.launching import Launcher
from latmon_backends.suspicion import Suspicion

_STEP_S = 1.0
_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS, _SILENT_S = 3, 10.0
"""A process that prints nothing for so long is stuck: each of its scripts prints at least its tick."""


class Deep:
    """For each frame of the always-on probe `taken` and `add_to`; in between it follows what is wanted, by itself."""

    def __init__(
        self,
        options: Options,
        launcher: Launcher,
        programs: DeepPrograms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._launcher, self._programs, self._clock = options, launcher, programs, clock
        self._demand, self._suspicion = Demand(options.stages), Suspicion()
        self._budget = Budget(options.budget_percent)
        self._silent_s = max(_SILENT_S, _SILENT_TICKS * options.interval_us / 1e6)
        self._run: Run | None = None
        self._news = News()
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)
        self._paused_until, self._why_paused = 0.0, ""
        self._iops = 0.0
        self._coarse = 1
        self._changed = asyncio.Event()
        self._tried = asyncio.Event()
        self._steering: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """From now on it follows what is wanted."""
        if self._steering is None:
            self._steering = asyncio.create_task(self._steer())

    async def tried(self) -> None:
        """Once they run for the first time, or can't."""
        await self._tried.wait()

    def deepen(self, devices: tuple[str, ...]) -> None:
        self._demand.deepen(devices, self._clock())
        self._changed.set()

    def set_stages(self, mode: str) -> None:
        """A user's word ends a pause, and its reason."""
        self._demand.set_mode(mode)
        if self._paused_until:
            self._why_paused = ""
        self._paused_until, self._coarse = 0.0, 1
        self._budget.forget()
        self._changed.set()

    @property
    def runs(self) -> bool:
        return self._run is not None

    def taken(self, frame: Frame) -> DeepWindow:
        """What was traced since the frame before this one; the frame tells who is to be traced from now on."""
        self._iops = sum(done.count for done in frame.seen.values()) / (frame.dt_us / 1e6)
        self._suspicion.note(frame)
        run = self._run
        if run is None:
            return DeepWindow()
        return run.taken()

    def add_to(self, frame: Frame, window: DeepWindow) -> Frame:
        """The frame with what was traced."""
        self._note_failure()
        deep = window.interval
        return replace(
            frame,
            above={**deep.above, **frame.above},
            thresholds_us={**deep.thresholds_us, **frame.thresholds_us},
            traced=self._traced(deep.traced),
            handlers=deep.handlers,
            softirqs=deep.softirqs,
            wakeups=deep.wakeups,
            health=self._health(frame.health, window),
        )

    async def finish(self, *, patient: bool = False) -> None:
        """The process ends and all it said is read, so that the last frame has it."""
        await self._stop_steering()
        if self._run is not None:
            await self._run.finish(patient=patient)

    async def close(self) -> None:
        """Ended for certain when this returns, within 2 s."""
        await self._stop_steering()
        await self._stop()

    # What a frame says

    def _traced(self, traced: Traced) -> Traced:
        run = self._run
        if run is None or not run.windows:
            why = self._why_paused if run is None else "the deep probes are starting"
            return replace(traced, absent=tuple(Missing(stage, why) for stage in self._programs.stages) if why else ())
        return replace(traced, one_in=run.one_in, devices=run.target.devices)

    def _health(self, health: Health, window: DeepWindow) -> Health:
        run, losses = self._run, window.losses
        return replace(
            health,
            probes_attached=health.probes_attached + (run.probe.attached if run else 0),
            probes_wanted=health.probes_wanted + (run.probe.wanted if run else 0),
            lost_events=health.lost_events + losses.lost,
            map_full=health.map_full + losses.map_full,
            suppressed=health.suppressed + window.interval.suppressed + losses.dropped,
            undecoded_lines=health.undecoded_lines + losses.undecoded + window.interval.undecoded,
            skipped=self._news.taken_skipped(health.skipped),
            probe_cpu_percent=run.percent if run else None,
            notice="; ".join(one for one in (health.notice, self._news.taken()) if one),
        )

    def _note_failure(self) -> None:
        """A mistake of ours in steering is said once; the capture goes on without the deep probes."""
        steering = self._steering
        if steering is not None and steering.done() and not steering.cancelled() and steering.exception() is not None:
            self._steering = None
            self._why_paused = f"the deep probes failed: {steering.exception()!r}"
            self._news.say(self._why_paused)

    # Following what is wanted

    async def _steer(self) -> None:
        while True:
            await self._step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STEP_S):
                    await self._changed.wait()
            self._changed.clear()

    async def _step(self) -> None:
        """One thing at a time: bury, end, begin, change, or measure."""
        now, run = self._clock(), self._run
        traced = () if run is None else run.want.devices
        want = self._demand.wanted(self._suspicion.suspects(), now, traced)
        self._news.say_left(() if want is None else want.left)
        if run is not None and run.is_dead(now, self._silent_s):
            await self._bury(run, now)
        elif want is None:
            await self._end_unwanted()
        elif run is None:
            if now >= self._paused_until:
                await self._start(want)
        elif not run.want.covers(want):
            if want.forced or now - run.begun >= REMIX_S:
                await self._remix(want)
        elif now >= run.measured:
            await self._measure(run)

    async def _remix(self, want: Want) -> None:
        """For other devices it takes another process: what was in flight meanwhile isn't traced, and that is said."""
        left = self._clock()
        await self._stop()
        await self._start(want)
        if self._run is not None:
            self._news.say(f"nothing was traced for {self._clock() - left:.1f} s: started again for other devices")

    async def _bury(self, run: Run, now: float) -> None:
        """After an end that nobody asked for: again, at most three times a minute."""
        await self._stop()
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < _WITHIN_S:
            self._pause(f"the deep probes ended {_RESTARTS + 1} times within a minute, the last time: {run.ended}")
            self._deaths.clear()
            return
        self._deaths.append(now)
        self._news.say(f"the deep probes ended and are started again ({run.ended})")
        self._changed.set()

    async def _end_unwanted(self) -> None:
        self._why_paused, self._coarse = "", 1
        if self._run is not None:
            await self._stop()
            self._budget.forget()
            self._news.say(
                "no longer traced" + ("" if self._demand.mode == "basic" else ": nobody looks, nothing is slow")
            )

    async def _start(self, want: Want) -> None:
        one_in = 1 if want.forced else max(self._coarse, self._budget.first(self._iops))
        target = self._programs.target(want.devices)
        self._why_paused = "the deep probes are starting"
        try:
            probe, ticks = await self._programs.start(self._launcher, target, one_in)
        except (RefusedError, UnavailableError) as refusal:
            self._pause(str(refusal))
            return
        finally:
            self._tried.set()
        self._run = run = Run(probe, ticks, want, target, one_in=one_in, clock=self._clock)
        run.measured = run.begun + deep_meter.FIRST_AFTER_S
        run.begin(self._changed.set)
        self._why_paused = ""
        whom = "all devices" if target.why_all else ", ".join(want.devices) or "all devices"
        because = f"{want.why} ({target.why_all})" if target.why_all else want.why
        self._news.say(f"tracing {whom}{_sampled(one_in)}: {because}")
        if majors := ", ".join(map(str, self._programs.unfiltered())):
            self._news.say(f"without bios of major {majors}: the kernel's filter has no room")
        for missing in self._programs.news():
            self._news.say(f"without {missing.name}: {missing.reason}")

    async def _stop(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            await run.stop()

    async def _stop_steering(self) -> None:
        steering, self._steering = self._steering, None
        if steering is not None:
            steering.cancel()
            await asyncio.wait({steering})

    def _pause(self, why: str) -> None:
        self._paused_until, self._why_paused = self._clock() + PAUSE_S, why
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
        await self._stop()
        cost = f"they took {verdict.percent:.1f} % of a CPU, the budget is {self._budget.percent:g} %"
        if not verdict.one_in:
            self._budget.forget()
            self._pause(f"the deep probes are off, {cost} (--stages all knows no budget)")
            return
        self._coarse = verdict.one_in
        self._news.say(cost)
        await self._start(run.want)


def _sampled(one_in: int) -> str:
    return f", one I/O in {one_in}" if one_in > 1 else ""
