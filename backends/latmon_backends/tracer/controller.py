"""The controller of the tracer: starts, changes and ends its process, measures its cost, adds its data to frames.

Demand, Suspicion and Budget decide whether it is wanted, for which devices and at what price; OnDemandTicks decodes its
output. Frames go on whatever happens to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from latmon.capture.backend import Options
from latmon.decode.tables import followed
from latmon.model.frame import TRACER_STARTING, Frame, Health, Missing, Traced
from latmon.model.inflight import InFlightList
from latmon.support.errors import UnavailableError, UntrustedError
from latmon_backends.probe.launcher import ALL_DEVICES, SAMPLE, Launcher
from latmon_backends.probe.process import LOOK_S, RefusedError, RunningProbe
from latmon_backends.probe.tick_protocol import TracerWindow
from latmon_backends.tracer import demand
from latmon_backends.tracer.demand import (
    DEAR_S,
    PAUSE_S,
    Budget,
    BudgetVerdict,
    Demand,
    Suspicion,
    Want,
)
from latmon_backends.tracer.in_flight import LastInFlightList
from latmon_backends.tracer.notices import TracerNotices, traced_text
from latmon_backends.tracer.process import TracerProcess
from latmon_backends.tracer.programs import Programs, Target, TracerSample
from latmon_backends.tracer.run import TracerRun
from latmon_backends.tracer.takeover import Takeover, has_memory_for_two, uncounted_text
from latmon_backends.tracer.windows import without_earlier

_UNFILTERED = "the tracer's filter can't be written here"
_LIMIT = "--max-overhead"
_EARLIER = f"{TRACER_STARTING}: it counts from the next window on"
_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS, _SILENT_S = 3, 10.0
"""A process that prints nothing for so long is stuck: each of its scripts prints at least its tick."""
_ENDS_S = 0.5
"""Time in which the end of a process is known, which is why its filter couldn't be written."""
_LATE_US = 1_000_000
_DEAR_TIMES = 3.0
"""A process that costs so many times its budget is stopped before a cheaper one starts."""


@dataclass(frozen=True, slots=True)
class _Hole:
    """Time in which nothing is traced: its begin, and what the start is that ends it."""

    since: float
    why: str


@dataclass(frozen=True, slots=True)
class TracerPart:
    """The tracer's part of one frame."""

    window: TracerWindow
    """Its tables and records."""
    traced: Traced
    in_flight: InFlightList | None
    health: Health
    """Health of the always-on probe, with the losses, the cost and the notices of the tracer."""


class OnDemand:
    """The tracer of a capture: it follows what is wanted by itself.

    For each frame of the always-on probe call `part`.
    """

    def __init__(
        self,
        options: Options,
        launcher: Launcher,
        programs: Programs[Any],
        clock: Callable[[], float] = time.monotonic,
        always_on: Callable[[], int] | None = None,
    ) -> None:
        """`always_on` returns the pid of the always-on probe, which Options.max_overhead includes."""
        self._launcher, self._programs, self._clock = launcher, programs, clock
        self._process, self._notices, self._last_list = TracerProcess(), TracerNotices(), LastInFlightList()
        self._demand, self._suspicion = Demand(options.stages), Suspicion()
        self._budget, self._limit = Budget(options.budget_percent), Budget(options.max_overhead, _LIMIT)
        if 0 < options.max_overhead < (options.budget_percent or math.inf):
            self._budget = Budget(options.max_overhead, _LIMIT)
        self._always_on, self._limit_due = always_on, clock() + demand.FIRST_AFTER_S
        self._limit_unknown = False
        """Whether a notice has reported that the limit can't be measured."""
        self.too_dear = ""
        """Why the capture has to end: the always-on probe by itself takes more than Options.max_overhead."""
        self._proc = options.proc
        self._silent_s = max(_SILENT_S, _SILENT_TICKS * options.interval_us / 1e6)
        self._takeover = Takeover(
            launcher=launcher, clock=clock, interval_s=options.interval_us / 1e6, silent_s=self._silent_s
        )
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)
        self._why_not = ""
        """Why nothing is traced although it is wanted."""
        self._why_restart = ""
        """Why the process must be restarted; also while it starts."""
        self._paused_until = 0.0
        self._filter_again = 0.0
        """When the filter of devices is tried again after it couldn't be written."""
        self._hole: _Hole | None = None
        self._began_us: int | None = None
        """Begin of the first frame."""
        self._late_us = 0
        """The longest time that was reported as late."""
        self._iops: Mapping[str, float] = {}
        self._sample = TracerSample()
        """The one that fitted the budget."""
        self._changed = asyncio.Event()
        self._tried = asyncio.Event()
        self._steering: asyncio.Task[None] | None = None
        self._end_requested = False

    @property
    def runs(self) -> bool:
        """Whether a process of the tracer has not ended."""
        return self._process.run is not None

    @property
    def pid(self) -> int | None:
        """The tracer's process; None where it does not run."""
        return self._process.run.probe.pid if self._process.run else None

    def begin(self) -> None:
        """Follow what is wanted from now on."""
        if self._steering is None:
            self._steering = asyncio.create_task(self._steer())

    async def tried(self, seconds: float) -> None:
        """Wait until the tracer runs for the first time, or can't; for so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tried.wait()

    def request_tracing(self, devices: tuple[str, ...], *, files: bool = False) -> None:
        self._demand.request_tracing(devices, self._clock(), files=files)
        self._changed.set()

    def set_stages(self, mode: str) -> None:
        """Set the mode. The user's choice ends a pause and drops its reason; other reasons go with the next step."""
        self._demand.set_mode(mode)
        if self._paused_until:
            self._paused_until, self._why_not = 0.0, ""
        self._sample = TracerSample()
        self._budget.forget()
        self._changed.set()

    def restart(self, why: str) -> None:
        """Restart the process where one runs or starts."""
        self._why_restart = why
        self._changed.set()

    async def wait_for_tick(self, seconds: float) -> None:
        """Wait until the tracer has printed the interval that just ended, at most so long."""
        if self._process.run is not None:
            await self._process.run.wait_for_tick(seconds)

    def part(self, frame: Frame) -> TracerPart:
        """Return the data since the frame before this one; the frame decides which devices are traced from now on."""
        self._note_failure()
        begin_us = frame.mono_us - frame.dt_us
        if self._began_us is None:
            self._began_us = begin_us
        reported = self._process.taken()
        self._iops = _iops(frame)
        self._suspicion.note(replace(frame, in_flight=reported.interval.in_flight))
        if reported.begun_us:
            self._note_late(frame, begin_us - reported.begun_us)
        window = without_earlier(self._began_us, reported)
        traced = self._traced(window.interval.traced) if window is reported else Traced(absent=self._absent(_EARLIER))
        return TracerPart(window, traced, self._in_flight(frame, window), self._health(frame.health, window))

    def _note_late(self, frame: Frame, late_us: int) -> None:
        """Report that the tracer's data begin before the frame: once, and again where twice as much is late."""
        if late_us > max(frame.dt_us, _LATE_US, 2 * self._late_us):
            self._late_us = late_us
            self._notices.add(f"the tracer's output was late: the window includes the {late_us / 1e6:.1f} s before it")

    def _in_flight(self, frame: Frame, window: TracerWindow) -> InFlightList | None:
        """Return the frame's list of I/Os in flight: the window's, else the rest of the list before."""
        on_demand = window.interval
        reported = on_demand.in_flight and followed(on_demand.in_flight, on_demand.ages_of, self._programs.timed)
        return self._last_list.of(frame, reported)

    async def finish(self, *, patient: bool = False) -> None:
        """End the process and read all its output, so that the last frame has it."""
        await self._end_steering()
        await self._process.finish(patient=patient)

    async def close(self) -> None:
        """End the process within 2 s."""
        await self._end_steering()
        await self._process.stop()

    async def _end_steering(self) -> None:
        """End the step at hand and take no other; the process goes on. May be called again while it waits."""
        steering = self._steering
        if steering is None:
            return
        if not self._end_requested:  # a second cancel would cut short the cleaning up of the first
            self._end_requested = True
            steering.cancel()
        await asyncio.wait({steering})

    def _note_failure(self) -> None:
        """Report a mistake of ours once; the capture goes on without the tracer."""
        steering = self._steering
        if steering is not None and steering.done() and not steering.cancelled() and steering.exception() is not None:
            self._steering = None
            self._why_not = f"the tracer failed: {steering.exception()!r}"
            self._notices.add(self._why_not)

    def _traced(self, traced: Traced) -> Traced:
        """Return the traced requests; where nothing is traced, the reason by stage."""
        if traced.one_in:
            return traced
        run = self._process.run
        if run is None:
            why = self._why_not
        else:
            why = "the tracer printed nothing in this interval" if run.windows else TRACER_STARTING
        return replace(traced, absent=self._absent(why) if why else ())

    def _absent(self, why: str) -> tuple[Missing, ...]:
        return tuple(Missing(stage, why) for stage in self._programs.stages)

    def _health(self, health: Health, window: TracerWindow) -> Health:
        """Return the health of a frame with the tracer's losses, cost and notices."""
        run, losses = self._process.run, window.losses
        return replace(
            health,
            probes_attached=health.probes_attached + (run.probe.attached if run else 0),
            probes_wanted=health.probes_wanted + (run.probe.wanted if run else 0),
            lost_events=health.lost_events + losses.lost,
            full_tables={**health.full_tables, **dict.fromkeys(sorted(losses.full), 1)},
            dropped_records=health.dropped_records + losses.unkept,
            suppressed=health.suppressed + window.interval.suppressed + losses.dropped,
            undecoded_lines=health.undecoded_lines + losses.undecoded + window.interval.undecoded,
            skipped=self._notices.taken_skipped(health.skipped),
            probe_cpu_percent=run.percent if run else None,
            notice="; ".join(notice for notice in (health.notice, self._notices.taken()) if notice),
        )

    # Steps

    async def _steer(self) -> None:
        while True:
            await self._step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            self._changed.clear()

    async def _step(self) -> None:
        """Do what is due, and report the devices that can't be followed then."""
        await self._keep_limit()
        run = self._process.run
        is_auto = self._demand.mode == "auto"
        suspects = self._suspicion.suspects() if is_auto else ()
        file_waits = self._suspicion.file_waits if is_auto else None
        await self._follow(self._demand.wanted(suspects, self._clock(), file_waits=file_waits), run)
        if self._process.run is not None:
            self._notices.add_unfollowed(self._programs.unfollowed(self._process.run.target))

    async def _follow(self, want: Want | None, run: TracerRun | None) -> None:
        """Do one thing: bury, end, begin, change, or measure."""
        now = self._clock()
        if run is not None and run.is_dead(self._silent_s):
            await self._restart_ended(run, now)
        elif want is None:
            await self._end_unwanted()
        elif run is None:
            if now >= self._paused_until:
                await self._start(want)
        elif self._why_restart:
            await self._restart(want, f"the tracer was restarted: {self._why_restart}")
        elif run.want.forced != want.forced:
            await self._replace(run, want, "for another mode")
        elif (target := self._target(want)) != run.target:
            await self._retarget(run, want, target)
        elif want.forced and (one_in := demand.one_in(self._iops_of(target), run.sample.one_in)) != run.sample.one_in:
            await self._resample(run, one_in, now)
        elif now >= run.measured:
            await self._measure(run)

    async def _retarget(self, run: TracerRun, want: Want, target: Target) -> None:
        """Have the process trace other devices, by its filter."""
        if lack := self._programs.lacks(target, run.sample):
            await self._replace(run, want, f"for {lack}", run.sample)
        elif not target.filtered or await self._filter(run.probe, target, run.target):
            before = run.want.devices
            run.retarget(want, target)
            if before and (not want.devices or not {*want.devices} <= {*before}):
                run.measured = min(run.measured, self._clock() + demand.FIRST_AFTER_S)
        else:
            await self._restart(want, "the tracer was restarted for other devices")

    async def _resample(self, run: TracerRun, one_in: int, now: float) -> None:
        """Have the process trace another sample of the I/Os; where that isn't possible, each one is traced on."""
        if run.resamples and await self._launcher.trace_devices(run.probe.pid, {SAMPLE: one_in - 1}):
            run.resample(one_in)
        else:
            run.resamples = False
            if now >= run.measured:
                await self._measure(run)

    async def _filter(self, probe: RunningProbe, target: Target, before: Target | None = None) -> bool:
        """Write what changed into the filter of a program; return False where that isn't possible here."""
        switches = dict.fromkeys(before.numbers or (ALL_DEVICES,), False) if before else {}
        wanted = dict.fromkeys(target.numbers or (ALL_DEVICES,), True)
        changes = {
            number: on for number, on in (switches | wanted).items() if not (number in switches and number in wanted)
        }
        return await self._launcher.trace_devices(probe.pid, changes)

    async def _replace(self, run: TracerRun, want: Want, why: str, sample: TracerSample | None = None) -> None:
        """Have a second process trace this, and end the first one when it counts, so that no interval is untraced.

        Without memory for both, or where its filter can't be written, the first one is stopped before.
        """
        restart = f"the tracer was restarted {why}"
        if self._programs.unfiltered or not has_memory_for_two(self._proc):
            await self._restart(want, restart)
            return
        later: TracerRun | None = None
        uncounted_us: int | None = None
        try:
            later = await self._started(want, sample)
            if later is not None:
                later.begin(self._changed.set)
                uncounted_us = await self._hand_over(run, later)
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._notices.add(f"no second tracer started {why}: {refusal}")
        finally:
            if later is not None and self._process.run is not later:
                await later.stop()
        if later is None or self._process.run is not later:
            await self._restart(want, restart)
            return
        later.measured = self._clock() + demand.FIRST_AFTER_S
        self._budget.forget()
        self._notices.add(f"another tracer took over {why}")
        if not (run.sample.lean or later.sample.lean):
            has_files = run.target.files and run.sample.files
            self._notices.add(uncounted_text(uncounted_us, has_files=has_files))
        self._note_missing()

    async def _hand_over(self, run: TracerRun, later: TracerRun) -> int | None:
        """Let a successor count instead of a process, and end that process.

        Return the longest time (us) that neither counts the tables of the host; None where that isn't known. A
        successor that ends meanwhile leaves `_process` as it is.
        """
        predecessor = await self._takeover.begin(run, later)
        if predecessor is None:
            return None
        self._process.replace(later, predecessor)
        await self._takeover.wait_for_last_tick()
        await self._process.end_replaced()
        return predecessor.uncounted_us(later.counts_since)

    async def _restart(self, want: Want, why: str) -> None:
        await self._stop(why)
        await self._start(want)

    async def _restart_ended(self, run: TracerRun, now: float) -> None:
        """Restart it after an end that was not requested, at most three times a minute."""
        await self._stop("the tracer was restarted after its end", run.last_output)
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < _WITHIN_S:
            self._pause(f"the tracer ended {_RESTARTS + 1} times within a minute, the last time: {run.ended}")
            self._deaths.clear()
            return
        self._deaths.append(now)
        self._notices.add(f"the tracer ended and is restarted ({run.ended})")
        self._changed.set()

    async def _end_unwanted(self) -> None:
        self._why_not, self._sample = "", TracerSample()
        if self._process.run is not None:
            await self._process.stop()
            self._budget.forget()
            why = "" if self._demand.mode == "basic" else ": no open screen shows them and no device is slow"
            self._notices.add(f"stages are no longer traced{why}")
        self._hole = None
        self._notices.add_unfollowed({})

    async def _start(self, want: Want) -> None:
        """Start a process, and a second one without a filter of devices where that of the first can't be written.

        Where it is known before that none can be, as without root, only the second one is compiled. Else the filter is
        tried again after PAUSE_S: each try where it can't be written compiles the program twice.
        """
        self._paused_until, self._why_not, self._why_restart = 0.0, TRACER_STARTING, ""
        try:
            tries_filter = self._launcher.writes_maps and self._clock() >= self._filter_again
            first = ("",) if tries_filter else ()
            for self._programs.unfiltered in (*first, _UNFILTERED):
                if run := await self._started(want):
                    self._process.begin(run, self._changed.set)
                    self._note_start(run)
                    return
                self._filter_again = self._clock() + PAUSE_S
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._pause(str(refusal))

    async def _started(self, want: Want, sample: TracerSample | None = None) -> TracerRun | None:
        """Return a new process for these devices; None where it lives and its filter can't be written.

        `sample`: instead of the one that is expected to fit the budget.
        """
        target = self._target(want)
        sample = sample or self._first_sample(want, target)
        try:
            probe, ticks = await self._programs.start(self._launcher, target, sample)
        finally:
            self._tried.set()
        is_started = False
        try:
            # A process that has ended already is a run of its own, and restarted as any other.
            is_started = not target.filtered or await self._filter(probe, target) or await probe.ends_within(_ENDS_S)
        finally:
            if not is_started:  # also where this step is cancelled: nothing else stops the process yet
                await probe.stop()
        if not is_started:
            return None
        left_out = self._programs.left_out(target, sample)
        run = TracerRun(probe, ticks, want, target, sample=sample, left_out=left_out, clock=self._clock)
        run.measured = run.begun + demand.FIRST_AFTER_S
        return run

    def _first_sample(self, want: Want, target: Target) -> TracerSample:
        if want.forced:
            return TracerSample()
        first = max(self._sample.one_in, self._budget.first(self._iops_of(target)))
        return replace(self._sample, one_in=first)

    def _target(self, want: Want) -> Target:
        return self._programs.target(want.devices, forced=want.forced, files=want.files)

    def _note_start(self, run: TracerRun) -> None:
        self._notices.add(traced_text(run))
        hole, self._hole = self._hole, None
        if hole is not None:
            self._notices.add(f"no stage was traced for {run.begun - hole.since:.1f} s: {hole.why}")
        self._note_missing()

    def _note_missing(self) -> None:
        for missing in self._programs.news():
            self._notices.add(f"tracing without {missing.name}: {missing.reason}")

    def _iops_of(self, target: Target) -> float:
        return sum(self._iops.get(name, 0.0) for name in target.devices or self._iops)

    async def _stop(self, why: str, since: float | None = None) -> None:
        """Stop it for a restart: I/Os in flight meanwhile aren't traced, which the next start reports."""
        self._hole = _Hole(self._clock() if since is None else since, why)
        await self._process.stop()

    def _pause(self, why: str, seconds: float = PAUSE_S) -> None:
        self._paused_until, self._why_not = self._clock() + seconds, why
        self._notices.add(f"stages are not traced for {seconds / 60:.0f} min: {why}")

    # The budget

    async def _measure(self, run: TracerRun) -> None:
        begun, read_ns = self._clock(), run.read_ns
        (measured_load,) = await demand.measure(self._launcher, [run.probe.pid])
        percent = measured_load.percent
        if percent is not None:
            percent += (run.read_ns - read_ns) / 1e7 / max(self._clock() - begun, demand.PHASE_S)
        run.percent, run.measured = percent, self._clock() + demand.EVERY_S
        self._notices.add_skipped(run.skipped.since_last(measured_load.skipped))
        if percent is None or run.want.forced:
            return
        sample = replace(run.sample, files=run.sample.files and run.target.files)
        verdict = self._budget.evaluate(percent, sample, self._iops_of(run.target))
        if verdict is not None:
            await self._enforce(verdict, run)
        elif self._budget.exceeded(percent):
            run.measured = self._clock()

    async def _keep_limit(self) -> None:
        """Measure all probes when that is due; above the limit stop the tracer, or end the capture where none runs."""
        if self._always_on is None or not self._limit.percent or self.too_dear or self._clock() < self._limit_due:
            return
        run = self._process.run
        pids = [self._always_on(), *([run.probe.pid] if run else [])]
        percents = [measured.percent for measured in await demand.measure(self._launcher, pids)]
        known = [percent for percent in percents if percent is not None]
        self._limit_due = self._clock() + demand.EVERY_S
        if len(known) < len(percents):
            if not self._limit_unknown:
                self._notices.add(f"{_LIMIT} is not kept: the kernel does not count the run time of probes here")
            self._limit_unknown = True
            return
        spent = self._limit.above(sum(known))
        if spent is None:
            if self._limit.exceeded(sum(known)):
                self._limit_due = self._clock()
            return
        cost = f"the probes took {spent:.1f} % of a CPU, {self._limit}"
        if run is None:
            self.too_dear = cost
            return
        await self._stop("the tracer was off")
        self._budget.forget()
        self._pause(cost, DEAR_S)
        self._limit_due = self._clock()

    async def _enforce(self, verdict: BudgetVerdict, run: TracerRun) -> None:
        cost = f"tracing took {verdict.percent:.1f} % of a CPU, {self._budget}"
        if verdict.sample is None:
            await self._stop("the tracer was off")
            self._budget.forget()
            self._pause(cost if self._budget.name == _LIMIT else f"{cost} (--stages all has no budget)", DEAR_S)
            return
        self._sample = verdict.sample
        self._notices.add(cost)
        if verdict.percent > _DEAR_TIMES * self._budget.percent:
            await self._restart(run.want, "the tracer was restarted to cost less")
        else:
            await self._replace(run, run.want, "to cost less")


def _iops(frame: Frame) -> dict[str, float]:
    """Return the completed I/Os per second of each device."""
    iops: defaultdict[str, float] = defaultdict(float)
    for flow, done in frame.seen.items():
        iops[flow.device] += done.count * 1e6 / frame.dt_us
    return iops
