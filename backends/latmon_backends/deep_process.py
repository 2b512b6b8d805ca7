"""The deep process as the backend sees it: one more of its tool, there while it is wanted, and what a frame says of it.

What it measures is decoded elsewhere (DeepTicks); when it runs, and for whom, is Steering's. Whatever becomes of it,
frames go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from latmon.backend import Options
from latmon.deep_depths import followed
from latmon.model import Frame, Health, Missing, Traced
from latmon_backends.deep_news import News
from latmon_backends.deep_steering import Steering
from latmon_backends.deep_ticks import DeepWindow
from latmon_backends.last_look import LastLook
from latmon_backends.launching import Launcher
from latmon_backends.programs import Programs

_LATE_US = 1_000_000


class Deep:
    """For each frame of the always-on probe `taken` and `add_to`; in between it follows what is wanted, by itself."""

    def __init__(
        self,
        options: Options,
        launcher: Launcher,
        programs: Programs,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._programs = programs
        self._news = News()
        self._steering = Steering(options, launcher, programs, self._news, clock)
        self._life = self._steering.life
        self._look = LastLook()

    def begin(self) -> None:
        """From now on it follows what is wanted."""
        self._steering.begin()

    async def tried(self) -> None:
        """Once they run for the first time, or can't."""
        await self._steering.tried()

    def deepen(self, devices: tuple[str, ...]) -> None:
        self._steering.deepen(devices)

    def set_stages(self, mode: str) -> None:
        self._steering.set_stages(mode)

    @property
    def runs(self) -> bool:
        """Until it has ended for certain."""
        return self._life.run is not None

    async def settled(self, seconds: float) -> None:
        """What it tells of the interval that just ended is there, or it took too long."""
        if self._life.run is not None:
            await self._life.run.settled(seconds)

    def taken(self, frame: Frame) -> DeepWindow:
        """What was traced since the frame before this one; the frame tells who is to be traced from now on."""
        window = self._life.taken()
        self._steering.note(replace(frame, in_flight=window.interval.in_flight))
        late_us = frame.mono_us - frame.dt_us - window.begun_us
        if window.begun_us and late_us > max(frame.dt_us, _LATE_US):
            self._news.say(f"told late: the window also has what was traced in the {late_us / 1e6:.1f} s before it")
        return window

    def add_to(self, frame: Frame, window: DeepWindow) -> Frame:
        """The frame with what was traced."""
        self._steering.note_failure()
        deep = window.interval
        still = deep.in_flight and followed(deep.in_flight, deep.ages_of, self._programs.timed)
        return replace(
            frame,
            above={**deep.above, **frame.above},
            thresholds_us={**deep.thresholds_us, **frame.thresholds_us},
            traced=self._traced(deep.traced),
            handlers=deep.handlers,
            softirqs=deep.softirqs,
            wakeups=deep.wakeups,
            in_flight=self._look.of(frame, still),
            issues=window.issues,
            health=self._health(frame.health, window),
        )

    async def finish(self, *, patient: bool = False) -> None:
        """The process ends and all it said is read, so that the last frame has it."""
        await self._steering.end()
        await self._life.finish(patient=patient)

    async def close(self) -> None:
        """Ended for certain when this returns, within 2 s."""
        await self._steering.end()
        await self._life.stop()

    def _traced(self, traced: Traced) -> Traced:
        if traced.one_in:
            return traced
        run = self._life.run
        if run is None:
            why = self._steering.why_not
        else:
            why = "the deep probes told nothing of this interval" if run.windows else "the deep probes are starting"
        return replace(traced, absent=tuple(Missing(stage, why) for stage in self._programs.stages) if why else ())

    def _health(self, health: Health, window: DeepWindow) -> Health:
        run, losses = self._life.run, window.losses
        return replace(
            health,
            probes_attached=health.probes_attached + (run.probe.attached if run else 0),
            probes_wanted=health.probes_wanted + (run.probe.wanted if run else 0),
            lost_events=health.lost_events + losses.lost,
            map_full=health.map_full + losses.map_full,
            dropped_records=health.dropped_records + losses.unkept,
            suppressed=health.suppressed + window.interval.suppressed + losses.dropped,
            undecoded_lines=health.undecoded_lines + losses.undecoded + window.interval.undecoded,
            skipped=self._news.taken_skipped(health.skipped),
            probe_cpu_percent=run.percent if run else None,
            notice="; ".join(one for one in (health.notice, self._news.taken()) if one),
        )
