"""The controller of the tracer: starts, changes and ends its process, measures its cost, reports its state.

What it measures is decoded elsewhere (DeepTicks); when it runs, and for whom, is Steering's. Whatever becomes of it,
frames go on.

Knows neither why it was started nor what it may cost.

What it said to its end is kept for the next frame. Decides nothing.

Knows neither the process nor why something is said.

Whether it is wanted, for whom and at what price is decided by Demand, Suspicion and Budget; its life is Life's. Knows
no frame but those that tell what is wanted.

A list is kept as long as nothing contradicts it: of a device without a completion since, and with no fewer in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from latmon.aggregate.accumulator import DeepSums
from latmon.capture.backend import Options
from latmon.decode.framer import DeepInterval
from latmon.decode.inflight import followed
from latmon.model import inflight
from latmon.model.frame import TRACER_STARTING, Frame, Health, Missing, Traced
from latmon.model.inflight import AGES_S, Depths, StillInFlight
from latmon.support.errors import UnavailableError, UntrustedError
from latmon_backends.probe.bpf_stats import Skipped
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import LOOK_S, RefusedError, RunningProbe, Silence
from latmon_backends.probe.tick_protocol import DeepTicks, DeepWindow
from latmon_backends.tracer import budget
from latmon_backends.tracer.budget import PAUSE_S, Budget, Verdict
from latmon_backends.tracer.demand import AT_MOST, LOOKED_AT, REMIX_S, Demand, Suspicion, Want
from latmon_backends.tracer.programs import Programs, Target

_LAST_S = 1.5
"""Who doesn't obey is killed 1.4 s after it was asked to end."""


class Run:
    """From `begin` to `stop`. `percent` and `measured` are its meter's: what it takes, and when to look again."""

    def __init__(
        self,
        probe: RunningProbe,
        ticks: DeepTicks,
        want: Want,
        target: Target,
        *,
        one_in: int,
        clock: Callable[[], float],
    ) -> None:
        self.probe, self.want, self.target, self.one_in = probe, want, target, one_in
        self._ticks, self._clock = ticks, clock
        self.begun = self.heard = self.measured = clock()
        self._silence = Silence(clock)
        self.percent: float | None = None
        self.skipped = Skipped()
        self.skipped.since_last(0)  # no program has run before it was loaded
        self.ended = ""
        """Why, once it has."""
        self.windows = 0
        """Those that had something in them."""
        self._reading: asyncio.Task[None] | None = None
        self._whole = asyncio.Event()

    def begin(self, tell: Callable[[], None]) -> None:
        """Read it from now on; `tell` is called when it ends by itself."""
        self._reading = asyncio.create_task(self._read(tell))

    async def settled(self, seconds: float) -> None:
        """Its scripts have each told of the window that ends now, or it took too long."""
        if self.windows and not self.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._whole.wait()

    def taken(self) -> DeepWindow:
        """What it completed since the last call; where something was, with whom it traces and how much."""
        self._whole.clear()
        window = self._ticks.taken()
        self.windows += bool(window.ticks)
        if not window.ticks:
            return window
        interval, devices = window.interval, self.target.devices
        traced = replace(interval.traced, one_in=self.one_in, devices=devices)
        waiting = None if interval.in_flight is None else replace(interval.in_flight, devices=devices)
        return replace(window, interval=replace(interval, traced=traced, in_flight=waiting))

    def covers(self, want: Want) -> bool:
        """Whether it will do for another want."""
        all_devices = not self.target.numbers and self.want.forced == want.forced
        return all_devices or self.want.covers(want)

    def is_dead(self, silent_s: float) -> bool:
        """It ended, or has been silent for too long. To be asked once in LOOK_S."""
        if not self.ended and self._silence.look() > silent_s:
            self.ended = f"it printed nothing for {silent_s:.0f} s"
        return bool(self.ended)

    async def finish(self, *, patient: bool = False) -> None:
        """It is asked to end, and all that it says then is taken; `patient`: however long that takes."""
        self.probe.end(patient=patient)
        try:
            if self._reading is not None:
                await asyncio.wait({self._reading}, timeout=None if patient else _LAST_S)
        finally:
            self._ticks.end()

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s; what it said to its end can be taken."""
        try:
            await self.finish()
        finally:
            await self.probe.stop()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait({self._reading})

    async def _read(self, tell: Callable[[], None]) -> None:
        """Between two events everybody else has a turn."""
        while (event := await self.probe.next()) is not None:
            self._ticks.take(event)
            self.heard = self._clock()
            self._silence.heard()
            if not self._whole.is_set() and self._ticks.whole():
                self._whole.set()
            await asyncio.sleep(0)
        why = await self.probe.complaint()
        self.ended = self.ended or why  # what it says when it is ended for its silence is no reason
        tell()


EMPTY = DeepWindow()


def together(earlier: DeepWindow, later: DeepWindow) -> DeepWindow:
    """Counts are added; whom and how much the later one traces stands for both, where it has traced."""
    if EMPTY in (earlier, later):
        return later if earlier == EMPTY else earlier
    begun = [one.begun_us for one in (earlier, later) if one.begun_us]
    return DeepWindow(
        _sum(earlier.interval, later.interval),
        (*earlier.records, *later.records),
        earlier.losses + later.losses,
        earlier.ticks + later.ticks,
        min(begun, default=0),
        {**earlier.issues, **later.issues},
    )


def _sum(earlier: DeepInterval, later: DeepInterval) -> DeepInterval:
    sums = DeepSums(_frame(one) for one in (earlier, later))
    newest = later.traced if later.traced.one_in else earlier.traced
    traced = replace(
        sums.traced,
        histograms=sums.raw,
        by_total=dict(sums.traced.by_total),
        one_in=newest.one_in,
        devices=newest.devices,
        includes=newest.includes,
        bio_includes=newest.bio_includes,
        absent=newest.absent,
    )
    return DeepInterval(
        traced,
        sums.handlers,
        sums.softirqs,
        sums.wakeups,
        sums.suppressed,
        earlier.undecoded + later.undecoded,
        sums.above,
        {**earlier.thresholds_us, **later.thresholds_us},
        _depths(earlier.depths, later.depths),
        later.in_flight or earlier.in_flight,
        later.ages_of if later.in_flight else earlier.ages_of,
    )


def _depths(earlier: Mapping[str, Depths], later: Mapping[str, Depths]) -> dict[str, Depths]:
    each = {name: [told[name] for told in (earlier, later) if name in told] for name in {**earlier, **later}}
    return {name: inflight.together(parts) for name, parts in each.items()}


def _frame(one: DeepInterval) -> Frame:
    return Frame(
        seq=0,
        wall=0.0,
        mono_us=0,
        dt_us=1,
        above=one.above,
        traced=one.traced,
        handlers=one.handlers,
        softirqs=one.softirqs,
        wakeups=one.wakeups,
        health=Health(suppressed=one.suppressed),
    )


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


@dataclass(slots=True)
class News:
    """Filled as things happen, emptied by each frame."""

    _notices: list[str] = field(default_factory=list)
    _skipped: int | None = None
    _left: tuple[str, ...] = ()
    _unfollowed: Mapping[str, str] = field(default_factory=dict)

    def say(self, what: str) -> None:
        self._notices.append(what)

    def say_left(self, left: tuple[str, ...]) -> None:
        """Devices for which the kernel's filter has no room: once, as long as it has none for them."""
        if fresh := [name for name in left if name not in self._left]:
            self.say(f"stages of {', '.join(fresh)} are not traced: the kernel's filter has room for {AT_MOST} devices")
        self._left = left

    def say_unfollowed(self, unfollowed: Mapping[str, str]) -> None:
        """Name devices that can't be followed, by their reason: each once, as long as it is there."""
        fresh = {name: why for name, why in unfollowed.items() if self._unfollowed.get(name) != why}
        for why in dict.fromkeys(fresh.values()):
            self.say(f"{', '.join(name for name in fresh if fresh[name] == why)}: {why}")
        self._unfollowed = dict(unfollowed)

    def add_skipped(self, runs: int | None) -> None:
        """None: not known."""
        if runs is not None:
            self._skipped = runs + (self._skipped or 0)

    def taken(self) -> str:
        said, self._notices = "; ".join(self._notices), []
        return said

    def taken_skipped(self, others: int | None) -> int | None:
        """With those of other programs."""
        told, self._skipped = [one for one in (self._skipped, others) if one is not None], None
        return sum(told) if told else None


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
            self.why_not = f"the tracer failed: {steering.exception()!r}"
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
                await self._stop("the tracer was restarted for other devices")
                await self._start(want)
        elif self._programs.outgrown(run.target, want.devices) and now - run.begun >= REMIX_S:
            await self._stop("the tracer was restarted for a new device")
            await self._start(want)
        elif now >= run.measured:
            await self._measure(run)

    async def _bury(self, run: Run, now: float) -> None:
        """After an end that nobody asked for: again, at most three times a minute."""
        await self._stop("the tracer was restarted after its end", run.heard)
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < _WITHIN_S:
            self._pause(f"the tracer ended {_RESTARTS + 1} times within a minute, the last time: {run.ended}")
            self._deaths.clear()
            return
        self._deaths.append(now)
        self._news.say(f"the tracer ended and is restarted ({run.ended})")
        self._changed.set()

    async def _end_unwanted(self) -> None:
        self.why_not, self._coarse = "", 1
        if self.life.run is not None:
            await self.life.stop()
            self._budget.forget()
            why = "" if self._demand.mode == "basic" else ": no open screen shows them and no device is slow"
            self._news.say(f"stages are no longer traced{why}")
        self._hole = None
        self._news.say_left(())
        self._news.say_unfollowed({})

    async def _start(self, want: Want) -> None:
        one_in = 1 if want.forced else max(self._coarse, self._budget.first(self._iops))
        target = self._programs.target(want.devices)
        self._paused_until, self.why_not = 0.0, TRACER_STARTING
        try:
            probe, ticks = await self._programs.start(self._launcher, target, one_in)
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._pause(str(refusal))
            return
        finally:
            self._tried.set()
        run = Run(probe, ticks, want, target, one_in=one_in, clock=self._clock)
        run.measured = run.begun + budget.FIRST_AFTER_S
        self.life.begin(run, self._changed.set)
        self._say_start(run)

    def _say_start(self, run: Run) -> None:
        want, target = run.want, run.target
        whom = "all devices" if target.why_all else ", ".join(want.devices) or "all devices"
        because = f"{want.why} ({target.why_all})" if target.why_all else want.why
        colon = "" if want.why == LOOKED_AT else ":"
        self._news.say(f"tracing stages of {whom}{_sampled(run.one_in)}{colon} {because}")
        hole, self._hole = self._hole, None
        if hole is not None:
            self._news.say(f"no stage was traced for {run.begun - hole.since:.1f} s: {hole.why}")
        for missing in self._programs.news():
            self._news.say(f"tracing without {missing.name}: {missing.reason}")

    async def _stop(self, why: str, since: float | None = None) -> None:
        """To be started again: what is in flight meanwhile isn't traced, which that start says."""
        self._hole = _Hole(self._clock() if since is None else since, why)
        await self.life.stop()

    def _pause(self, why: str) -> None:
        self._paused_until, self.why_not = self._clock() + PAUSE_S, why
        self._news.say(f"stages are not traced for {PAUSE_S / 60:.0f} min: {why}")

    # The budget

    async def _measure(self, run: Run) -> None:
        (found,) = await budget.measure(self._launcher, [run.probe.pid])
        percent = found.percent
        run.percent, run.measured = percent, self._clock() + budget.EVERY_S
        self._news.add_skipped(run.skipped.since_last(found.skipped))
        if percent is None or run.want.forced:
            return
        verdict = self._budget.judge(percent, run.one_in)
        if verdict is not None:
            await self._obey(verdict, run)
        elif self._budget.exceeded(percent):
            run.measured = self._clock()

    async def _obey(self, verdict: Verdict, run: Run) -> None:
        cost = f"the tracer took {verdict.percent:.1f} % of a CPU, the budget is {self._budget.percent:g} %"
        if not verdict.one_in:
            await self._stop("the tracer was off")
            self._budget.forget()
            self._pause(f"{cost} (--stages all has no budget)")
            return
        await self._stop("the tracer was restarted for a coarser sample")
        self._coarse = verdict.one_in
        self._news.say(cost)
        await self._start(run.want)


def _sampled(one_in: int) -> str:
    return f", one I/O in {one_in}" if one_in > 1 else ""


CARRIED = 2
"""Frames in which it stands for a look of their own; a process that ended or hangs looks no more."""


class LastLook:
    """Follows frames in their order."""

    def __init__(self) -> None:
        self._still: StillInFlight | None = None
        self._carried = 0
        self._gauges: Mapping[str, int] = {}
        self._quiet: frozenset[str] = frozenset()

    def of(self, frame: Frame, told: StillInFlight | None) -> StillInFlight | None:
        """What was told in the frame, else what is left of the list before; its `at_us` says of when it is."""
        gauges, quiet = _gauges(frame), _quiet(frame)
        if told is not None:
            self._still, self._carried = told, 0
        elif frame.gap or self._carried == CARRIED:
            self._still = None
        elif self._still is not None:
            self._still, self._carried = self._left(self._still, gauges, quiet), self._carried + 1
        self._gauges, self._quiet = gauges, quiet
        return self._still

    def _left(self, still: StillInFlight, gauges: Mapping[str, int], quiet: frozenset[str]) -> StillInFlight | None:
        listed = Counter(one.device for one in still.oldest)
        kept = {
            name
            for name, rows in listed.items()
            if name in quiet
            and gauges[name] >= self._gauges.get(name, 0)
            and (name in self._quiet or gauges[name] >= rows)  # after the look, before that frame ended
        }
        if not kept:
            return None
        rows = tuple(one for one in still.oldest if one.device in kept)
        older = {age: sum(still.at_us - one.began_us > age * 1_000_000 for one in rows) for age in AGES_S}
        # Of other devices nothing is known any more.
        return replace(
            still, oldest=rows, older=still.older if kept == listed.keys() else older, devices=(*sorted(kept),)
        )


def _gauges(frame: Frame) -> dict[str, int]:
    return {name: now.known for name, now in frame.outstanding.items() if name not in frame.removed}


def _quiet(frame: Frame) -> frozenset[str]:
    """Devices that are known to have completed nothing in the frame."""
    counted = {flow.device for flow in frame.kernel}
    busy = {flow.device for flow, done in frame.kernel.items() if done.count}
    return frozenset((counted - busy) & _gauges(frame).keys())


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
            self._news.say(f"the tracer's output was late: the window includes the {late_us / 1e6:.1f} s before it")
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
            why = "the tracer printed nothing in this interval" if run.windows else TRACER_STARTING
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
