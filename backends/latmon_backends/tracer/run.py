"""One process of the tracer: its ticks, its devices and its sampling, window by window."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Missing
from latmon_backends.probe.events import Printed
from latmon_backends.probe.launcher import Skipped
from latmon_backends.probe.process import RunningProbe, Silence
from latmon_backends.probe.tick_protocol import OnDemandTicks, TracerWindow
from latmon_backends.tracer.demand import Want
from latmon_backends.tracer.programs import Target, TracerSample

_LAST_S = 1.5
"""A tool that doesn't end is killed 1.4 s after the request."""


class SampleSince(NamedTuple):
    """A sampling rate, and since when (us on CLOCK_MONOTONIC) it holds."""

    since_us: int
    one_in: int


class TracerRun:
    """One process of the tracer, from `begin` to `stop`.

    The meter keeps here the cost that it measured (`percent` of a CPU), and when to measure again (`measured`).
    """

    def __init__(
        self,
        probe: RunningProbe,
        ticks: OnDemandTicks,
        want: Want,
        target: Target,
        *,
        sample: TracerSample,
        left_out: tuple[Missing, ...],
        clock: Callable[[], float],
    ) -> None:
        self.probe, self.want, self.target, self.sample = probe, want, target, sample
        self._left_out = left_out
        self._take_ns = 0
        self._ticks, self._clock = ticks, clock
        self._devices = target.devices
        """Devices that were traced since the last window; empty: all."""
        self._steady: tuple[str, ...] | None = target.devices
        """Devices that were traced all the time, whose I/Os in flight are known; empty: all; None: no device."""
        self._samples = [SampleSince(0, self.sample.one_in)]
        """Sampling rates since the last window's end."""
        self.resamples = True
        """Whether its sample can be changed while it runs, as far as is known."""
        self._since_us = 0
        """When devices were added: I/Os that were in flight then are not known. CLOCK_MONOTONIC; 0: never."""
        self.begun = self.last_output = self.measured = clock()
        self._silence = Silence(clock)
        self.percent: float | None = None
        self.skipped = Skipped()
        self.skipped.since_last(0)  # no program has run before it was loaded
        self.ended = ""
        """Why it ended; empty while it runs."""
        self.windows = 0
        """Windows in which a script completed a tick."""
        self._reading: asyncio.Task[None] | None = None
        self._whole = asyncio.Event()

    @property
    def read_ns(self) -> int:
        """CPU time for reading its output."""
        return self.probe.decode_ns + self._take_ns

    def begin(self, on_end: Callable[[], None]) -> None:
        """Read its output from now on; `on_end` is called when it ends by itself."""
        self._reading = asyncio.create_task(self._read(on_end))

    @property
    def counting(self) -> tuple[int, ...]:
        """Return the newest tick of each script that counts, on CLOCK_MONOTONIC."""
        return self._ticks.counting

    @property
    def counts_since(self) -> tuple[int, ...]:
        """Return the tick from which each script that counts does so, on CLOCK_MONOTONIC."""
        return self._ticks.counts_since

    def count_from(self, mono_us: int) -> None:
        """Drop all counts before the first tick of each script at or after this time."""
        self._ticks.count_from(mono_us)
        self.windows += 1  # it has printed ticks

    async def wait_for_tick(self, seconds: float) -> None:
        """Wait until each of its scripts has printed the interval that ends now, at most so long."""
        if self.windows and not self.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._whole.wait()

    def taken(self) -> TracerWindow:
        """Return the data of the ticks that it completed since the last call, with its devices and its sampling."""
        self._whole.clear()
        window = self._ticks.taken()
        self.windows += bool(window.ticks)
        if not window.ticks:
            return window
        interval, devices, steady = window.interval, self._devices, self._steady
        self._devices = self._steady = self.target.devices
        left = {missing.name for missing in self._left_out}
        absent = (*self._left_out, *(missing for missing in interval.traced.absent if missing.name not in left))
        one_in = sampled_over(self._samples, window.begun_us, window.until_us)
        while self._samples[1:] and self._samples[1].since_us <= window.until_us:
            self._samples.pop(0)
        traced = replace(interval.traced, one_in=one_in, devices=devices, absent=absent)
        waiting = interval.in_flight if steady is not None else None
        if waiting is not None:
            since_us = max(waiting.since_us, self._since_us)
            waiting = replace(waiting, devices=steady or (), since_us=since_us)
        return replace(window, interval=replace(interval, traced=traced, in_flight=waiting))

    def retarget(self, want: Want, target: Target) -> None:
        """Note the devices that it traces from now on. The window at hand has the data of those before, too."""
        before = self.target.numbers
        if before and not (target.numbers and {*target.numbers} <= {*before}):
            self._since_us = int(self._clock() * 1e6)
        self.want, self.target = want, target
        both = self._devices and target.devices
        self._devices = tuple(sorted({*self._devices, *target.devices})) if both else ()
        if self._steady is not None and target.devices:
            kept = tuple(name for name in target.devices if not self._steady or name in self._steady)
            self._steady = kept or None

    def resample(self, one_in: int) -> None:
        """Note the sample from now on. The window at hand has I/Os of both."""
        self._samples.append(SampleSince(int(self._clock() * 1e6), one_in))
        self.sample = replace(self.sample, one_in=one_in)

    def is_dead(self, silent_s: float) -> bool:
        """Return whether it ended or was silent for too long. To be called once in LOOK_S."""
        if not self.ended and self._silence.look() > silent_s:
            self.ended = f"it printed nothing for {silent_s:.0f} s"
        return bool(self.ended)

    async def finish(self, *, patient: bool = False) -> None:
        """Ask it to end, and take all that it prints then; `patient`: however long that takes."""
        self.probe.end(patient=patient)
        try:
            if self._reading is not None:
                await asyncio.wait({self._reading}, timeout=None if patient else _LAST_S)
        finally:
            self._ticks.end()

    async def stop(self) -> None:
        """End it within 2 s; its last output can be taken."""
        try:
            await self.finish()
        finally:
            await self.probe.stop()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait({self._reading})

    async def _read(self, on_end: Callable[[], None]) -> None:
        while (event := await self.probe.next()) is not None:
            begun = time.thread_time_ns()
            self._ticks.take(event)
            self._take_ns += time.thread_time_ns() - begun
            self.last_output = self._clock()
            self._silence.reset()
            if not self._whole.is_set() and self._ticks.whole():
                self._whole.set()
            if not isinstance(event, Printed):
                await asyncio.sleep(0)  # other tasks run between two maps, which take the longest
        why = await self.probe.complaint()
        self.ended = self.ended or why  # an end for silence keeps its own reason
        on_end()


def sampled_over(samples: Sequence[SampleSince], begin_us: int, end_us: int) -> int:
    """Return how many I/Os each traced one of an interval stands for, by the time for which each rate held.

    Half a second of each I/O and half a second of one in 16 trace 53 % of the I/Os of a steady load: one in 2.
    """
    first_us = min(begin_us, end_us - 1)
    share = 0.0
    ends = [*(later.since_us for later in samples[1:]), end_us]
    for sample, until_us in zip(samples, ends, strict=True):
        held_us = min(until_us, end_us) - max(sample.since_us, first_us)
        share += max(held_us, 0) / sample.one_in / (end_us - first_us)
    return max(1, round(1 / share)) if share > 0 else samples[0].one_in
