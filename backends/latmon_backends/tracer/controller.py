"""The controller of the tracer: starts, changes and ends its process, measures its cost, adds its data to frames.

Demand, Suspicion and Budget decide whether it is wanted, for which devices and at what price; OnDemandTicks decodes its
output. Frames go on whatever happens to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from latmon.capture.backend import Options
from latmon.decode.framer import TracerInterval, with_earlier
from latmon.decode.tables import followed
from latmon.model.frame import FILES, OPS, TRACER_STARTING, Flow, Frame, Health, Missing, Traced
from latmon.model.inflight import AGES_S, InFlightList
from latmon.model.measurements import ABOVE, ISSUERS, PATTERNS, SIZES
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.memory import available_memory
from latmon.support.text import listed
from latmon_backends.probe.events import Printed
from latmon_backends.probe.launcher import ALL_DEVICES, SAMPLE, Launcher, Skipped
from latmon_backends.probe.process import LOOK_S, RefusedError, RunningProbe, Silence
from latmon_backends.probe.tick_protocol import OnDemandTicks, TracerWindow
from latmon_backends.tracer import demand
from latmon_backends.tracer.demand import (
    DEAR_S,
    LOOKED_AT,
    PAUSE_S,
    Budget,
    BudgetVerdict,
    Demand,
    Suspicion,
    Want,
)
from latmon_backends.tracer.programs import Programs, Target, TracerSample

_UNFILTERED = "the tracer's filter can't be written here"
_LIMIT = "--max-overhead"
_LAST_S = 1.5
"""A tool that doesn't end is killed 1.4 s after the request."""


class SampleSince(NamedTuple):
    """A sampling rate, and since when (us on CLOCK_MONOTONIC) it holds."""

    since_us: int
    one_in: int


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
        left = {one.name for one in self._left_out}
        absent = (*self._left_out, *(one for one in interval.traced.absent if one.name not in left))
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


def with_records_of(earlier: TracerWindow, later: TracerWindow) -> TracerWindow:
    """Return the later window with the records and losses of an earlier one without ticks."""
    return replace(
        later,
        records=(*earlier.records, *later.records),
        losses=earlier.losses + later.losses,
        issues={**earlier.issues, **later.issues},
        file_operations=(*earlier.file_operations, *later.file_operations),
    )


_OF_DEVICES = (ABOVE, ISSUERS, PATTERNS, SIZES)
"""Tables that a program counts only for the devices of its filter; others are of the host."""
_OF_HOST = ("resume", "handlers", "softirqs", FILES, "files of io_uring")
"""Names, as in Traced.absent, of what a program counts for the whole host."""
_TAKEN_OVER = "another tracer took over: part of this interval was counted by neither"
_OF_REQUESTS = ("slow", "resumed")
"""Records of the requests of these devices."""


def requests_of(window: TracerWindow) -> TracerWindow:
    """Return the requests that a process counted for the devices of its filter, and its losses."""
    whole = window.interval
    return replace(
        window,
        interval=TracerInterval(
            replace(whole.traced, raisers={}, off=0),
            whole.suppressed,
            whole.undecoded,
            whole.thresholds_us,
            tables={table: rows for table, rows in whole.tables.items() if table in _OF_DEVICES},
        ),
        records=tuple(record for record in window.records if record.kind in _OF_REQUESTS),
        file_operations=(),
    )


def have_same_sample(earlier: TracerWindow, later: TracerWindow) -> bool:
    """Return whether the counts of two windows can be added."""
    return earlier.interval.traced.one_in == later.interval.traced.one_in


def with_window_of(earlier: TracerWindow, later: TracerWindow) -> TracerWindow:
    """Return the window of a process with that of the one before it. Counts of another sample are left out."""
    if not later.ticks:
        return with_records_of(later, earlier)
    joined = with_records_of(earlier, later)
    if not earlier.ticks or not have_same_sample(earlier, later):
        return joined
    return replace(
        joined,
        interval=with_earlier(later.interval, earlier.interval),
        begun_us=min(earlier.begun_us, later.begun_us),
    )


def without_host_part(window: TracerWindow) -> TracerWindow:
    """Return a window that reports its tables of the host as incomplete."""
    traced = window.interval.traced
    left_out = {missing.name for missing in traced.absent}
    partial = tuple(Missing(name, _TAKEN_OVER) for name in _OF_HOST if name not in left_out)
    traced = replace(traced, absent=(*traced.absent, *partial))
    return replace(window, interval=replace(window.interval, traced=traced))


@dataclass(slots=True, kw_only=True)
class _Replaced:
    """A process whose successor counts already, until all that it counted is printed."""

    run: TracerRun
    before: TracerWindow
    """Counts that it had printed when it was replaced: its tables of the host end with each script's tick."""
    until_us: int
    """When its filter was emptied. What it counts of the host after that, its successor counts too."""
    is_filtered: bool
    """Whether it counts no I/O after that."""
    has_ended: bool = False
    is_cut: bool = False
    """Whether an interval was left out, of which its successor has a part."""

    def taken(self) -> TracerWindow:
        """Return the data since the last call that the successor doesn't have."""
        before, self.before = self.before, TracerWindow()
        return with_window_of(before, self._later())

    def _later(self) -> TracerWindow:
        """Return the data since the process was replaced."""
        window = self.run.taken()
        if window.ticks and window.until_us <= self.until_us:
            return window
        self.is_cut = self.is_cut or bool(window.ticks)
        return requests_of(window) if self.is_filtered else TracerWindow(losses=window.losses)


class TracerProcess:
    """The process that runs now, and the output of those before it that no frame has taken yet."""

    def __init__(self) -> None:
        self.run: TracerRun | None = None
        """From `begin` until the process has ended."""
        self._replaced: _Replaced | None = None
        self._ending: asyncio.Task[None] | None = None
        self._left: deque[TracerWindow] = deque()

    def begin(self, run: TracerRun, on_end: Callable[[], None]) -> None:
        """Take the process over; `on_end` is called when it ends by itself."""
        self.run = run
        run.begin(on_end)

    def taken(self) -> TracerWindow:
        """Return the data since the last call, of one process.

        A frame has one list of devices and one sampling: data that follows a restart waits for the next frame. The last
        frame has none of it.
        """
        left = self._left.popleft() if self._left else TracerWindow()
        if left.ticks or self._left or self.run is None:
            return left
        return with_records_of(left, self._taken_of(self.run))

    def _taken_of(self, run: TracerRun) -> TracerWindow:
        """Return the data of a process, with what the process that it replaces has counted to its end."""
        replaced, window = self._replaced, run.taken()
        if replaced is None:
            return window
        if replaced.has_ended:
            self._replaced = None
        was_cut, earlier = replaced.is_cut, replaced.taken()
        joined = with_window_of(earlier, window)
        is_begin_missing = replaced.is_cut and not (was_cut and window.ticks)
        is_left_out = bool(earlier.ticks and window.ticks) and not have_same_sample(earlier, window)
        return without_host_part(joined) if is_begin_missing or is_left_out else joined

    def replace(self, later: TracerRun, until_us: int, *, is_filtered: bool) -> None:
        """Have another process count from now on; the one before is ended by `end_replaced`.

        `until_us`: when that one's filter was emptied, if it `is_filtered`.
        """
        if self.run is not None:
            self._replaced = _Replaced(
                run=self.run, before=self.run.taken(), until_us=until_us, is_filtered=is_filtered
            )
        self.run = later

    async def end_replaced(self) -> None:
        """End the process that was replaced within 2 s."""
        if self._replaced is not None:
            try:
                await self._replaced.run.stop()
            finally:
                self._replaced.has_ended = True

    async def finish(self, *, patient: bool = False) -> None:
        """Ask it to end, and read all its output for the last frame; `patient`: however long that takes."""
        if self._ending is not None:
            await asyncio.shield(self._ending)
        elif self.run is not None:
            await asyncio.gather(self.end_replaced(), self.run.finish(patient=patient))

    async def stop(self) -> None:
        """End it within 2 s. A cancelled caller leaves it to end by itself."""
        if self._ending is None and self.run is not None:
            self._ending = asyncio.create_task(self._end(self.run))
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _end(self, run: TracerRun) -> None:
        try:
            await asyncio.gather(self.end_replaced(), run.stop())
        finally:
            self._left.append(self._taken_of(run))
            self.run = self._ending = self._replaced = None


@dataclass(slots=True)
class TracerNotices:
    """Sentences and counts for the next frame."""

    _notices: list[str] = field(default_factory=list)
    _skipped: int | None = None
    _unfollowed: Mapping[str, str] = field(default_factory=dict)

    def add(self, what: str) -> None:
        self._notices.append(what)

    def add_unfollowed(self, unfollowed: Mapping[str, str]) -> None:
        """Report devices that can't be followed, by their reason, once as long as the reason stays."""
        fresh = {name: why for name, why in unfollowed.items() if self._unfollowed.get(name) != why}
        for why in dict.fromkeys(fresh.values()):
            self.add(f"{', '.join(name for name in fresh if fresh[name] == why)}: {why}")
        self._unfollowed = dict(unfollowed)

    def add_skipped(self, runs: int | None) -> None:
        """Add runs that the kernel skipped; None: not known."""
        if runs is not None:
            self._skipped = runs + (self._skipped or 0)

    def taken(self) -> str:
        notices, self._notices = self._notices, []
        return "; ".join(notices)

    def taken_skipped(self, others: int | None) -> int | None:
        """Return the skipped runs since the last call, with those of other programs."""
        reported, self._skipped = [one for one in (self._skipped, others) if one is not None], None
        return sum(reported) if reported else None


_NAMED = 8
"""A notice names so many devices."""
_LINE = 78
"""Characters of a notice on one line of a screen of 80 cells."""
_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS, _SILENT_S = 3, 10.0
"""A process that prints nothing for so long is stuck: each of its scripts prints at least its tick."""
_ENDS_S = 0.5
"""Time in which the end of a process is known, which is why its filter couldn't be written."""
_LATE_US = 1_000_000


_BEFORE_TICK_S = 0.05
"""A process ends to count so long before the first tick that its successor counts from."""
_SPARE = 0.3
"""Share of an interval by which a tick may be late."""
_ROOM = 400 << 20
"""Bytes of memory for a second process: bpftrace takes some 200 MB while it compiles, its maps 50 MB."""
_DEAR_TIMES = 3.0
"""A process that costs so many times its budget is stopped before a cheaper one starts."""


CARRIED = 2
"""Frames that repeat a list; a process that ended or hangs makes no other."""


class LastInFlightList:
    """The last list of I/Os in flight, kept for frames without one of their own.

    A device stays on it as long as nothing contradicts it: no completion since, and no fewer in flight.
    """

    def __init__(self) -> None:
        self._kept_list: InFlightList | None = None
        self._carried = 0
        self._gauges: Mapping[str, int] = {}
        self._quiet: frozenset[str] = frozenset()

    def of(self, frame: Frame, reported: InFlightList | None) -> InFlightList | None:
        """Return the list reported in the frame, else the rest of the list before; `at_us` is its time."""
        there = reported or self._kept_list
        names = {one.device for one in there.oldest} if there is not None else set()
        gauges, quiet = _gauges(frame, names), _quiet(frame, names)
        if reported is not None:
            self._kept_list, self._carried = reported, 0
        elif frame.gap or self._carried == CARRIED:
            self._kept_list = None
        elif self._kept_list is not None:
            self._kept_list, self._carried = self._left(self._kept_list, gauges, quiet), self._carried + 1
        self._gauges, self._quiet = gauges, quiet
        return self._kept_list

    def _left(self, in_flight: InFlightList, gauges: Mapping[str, int], quiet: frozenset[str]) -> InFlightList | None:
        listed = Counter(one.device for one in in_flight.oldest)
        kept = {
            name
            for name, rows in listed.items()
            if name in quiet
            and gauges[name] >= self._gauges.get(name, 0)
            and (name in self._quiet or gauges[name] >= rows)  # completed after the list, before that frame ended
        }
        if not kept:
            return None
        rows = tuple(one for one in in_flight.oldest if one.device in kept)
        older = {age: sum(in_flight.at_us - one.began_us > age * 1_000_000 for one in rows) for age in AGES_S}
        # The rest of the list is unknown now.
        return replace(
            in_flight, oldest=rows, older=in_flight.older if kept == listed.keys() else older, devices=(*sorted(kept),)
        )


def _gauges(frame: Frame, names: Iterable[str]) -> dict[str, int]:
    known = {name: now for name in names if (now := frame.outstanding.get(name)) is not None}
    return {name: now.known for name, now in known.items() if name not in frame.removed}


def _quiet(frame: Frame, names: Iterable[str]) -> frozenset[str]:
    """Return those of the devices that completed nothing in the frame, as far as that is known."""
    done = {name: [one.count for op in OPS if (one := frame.kernel.get(Flow(name, op)))] for name in names}
    return frozenset(name for name in _gauges(frame, names) if done[name] and not any(done[name]))


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


_EARLIER = f"{TRACER_STARTING}: it counts from the next window on"


def without_earlier(began_us: int, reported: TracerWindow) -> TracerWindow:
    """Return the tracer's data without counts from before the capture began, which belong to no window.

    For devices that only the tracer times, the outliers and their counts are kept, and so are the losses.
    """
    if not reported.begun_us or reported.begun_us >= began_us:
        return reported
    whole = reported.interval
    return replace(
        reported,
        interval=TracerInterval(
            suppressed=whole.suppressed,
            undecoded=whole.undecoded,
            tables={ABOVE: whole[ABOVE]},
            thresholds_us=whole.thresholds_us,
        ),
        issues={},
    )


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
        self._interval_s = options.interval_us / 1e6
        self._proc = options.proc
        self._silent_s = max(_SILENT_S, _SILENT_TICKS * options.interval_us / 1e6)
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
            notice="; ".join(one for one in (health.notice, self._notices.taken()) if one),
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
        suspects = self._suspicion.suspects() if self._demand.mode == "auto" else ()
        await self._follow(self._demand.wanted(suspects, self._clock()), run)
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
        had = dict.fromkeys(before.numbers or (ALL_DEVICES,), False) if before else {}
        wanted = dict.fromkeys(target.numbers or (ALL_DEVICES,), True)
        changes = {number: on for number, on in (had | wanted).items() if not (number in had and number in wanted)}
        return await self._launcher.trace_devices(probe.pid, changes)

    async def _replace(self, run: TracerRun, want: Want, why: str, sample: TracerSample | None = None) -> None:
        """Have a second process trace this, and end the first one when it counts, so that no interval is untraced.

        Without memory for both, or where its filter can't be written, the first one is stopped before.
        """
        restart = f"the tracer was restarted {why}"
        if available_memory(self._proc) < _ROOM or self._programs.unfiltered:
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
            self._notices.add(_uncounted_text(uncounted_us, has_files=has_files))
        self._note_missing()

    async def _hand_over(self, run: TracerRun, later: TracerRun) -> int | None:
        """End the counting of a process, and begin that of its successor with the tick that follows.

        The first one's filter is emptied, so that no I/O is counted twice, shortly before that tick, so that hardly one
        is counted by neither. A process that ends meanwhile leaves `_process` as it is.

        No filter separates the tables of the host (interrupts, softirqs, wake-ups, operations on files): the first
        process counts them up to its own last tick. Return the longest time (us) that neither counts them, from the
        earliest of these ticks to the last first tick of the successor's scripts; None where that isn't known.
        """
        tick_us = await self._first_tick(later)
        if tick_us is None:
            return None
        begun = self._clock()
        is_filtered = run.target.filtered and await self._launcher.trace_devices(
            run.probe.pid, {SAMPLE: run.sample.one_in - 1}
        )
        # that changes nothing: a busy host takes as long for what follows
        before_s = _BEFORE_TICK_S + self._clock() - begun
        elapsed_s = self._clock() - tick_us / 1e6 + before_s
        await asyncio.sleep(math.ceil(elapsed_s / self._interval_s) * self._interval_s - elapsed_s)
        if is_filtered:
            untraced = dict.fromkeys(run.target.numbers or (ALL_DEVICES,), 0)
            is_filtered = await self._launcher.trace_devices(run.probe.pid, untraced)
        until_us = int(self._clock() * 1e6)
        scripts, last_us = len(later.counting), min(run.counting, default=None)
        later.count_from(until_us)
        self._process.replace(later, until_us, is_filtered=is_filtered)
        await asyncio.sleep((1 + _SPARE) * self._interval_s)  # a tick of the first one, with all that it counted
        await self._process.end_replaced()
        first_us = later.counts_since
        if last_us is None or not first_us or len(first_us) < scripts:
            return None
        return max(max(first_us) - last_us, 0)

    async def _first_tick(self, later: TracerRun) -> int | None:
        """Wait until all scripts of a process count, which is one after the other while hooks are attached.

        Return the earliest of their newest ticks; None where the process ends, or counts nothing for too long.
        """
        begun = self._clock()
        counting, since = 0, begun
        while not later.ended and (counting or self._clock() - begun < self._silent_s):
            if len(later.counting) != counting:
                counting, since = len(later.counting), self._clock()
            elif counting and self._clock() - since > (1 + _SPARE) * self._interval_s:
                return min(later.counting)
            await asyncio.sleep(_BEFORE_TICK_S)
        return None

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
        self._notices.add(_traced_text(run))
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
        (found,) = await demand.measure(self._launcher, [run.probe.pid])
        percent = found.percent
        if percent is not None:
            percent += (run.read_ns - read_ns) / 1e7 / max(self._clock() - begun, demand.PHASE_S)
        run.percent, run.measured = percent, self._clock() + demand.EVERY_S
        self._notices.add_skipped(run.skipped.since_last(found.skipped))
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
        percents = [one.percent for one in await demand.measure(self._launcher, pids)]
        known = [one for one in percents if one is not None]
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
    found: defaultdict[str, float] = defaultdict(float)
    for flow, done in frame.seen.items():
        found[flow.device] += done.count * 1e6 / frame.dt_us
    return found


def _sampled(sample: TracerSample) -> str:
    one_in = f", one I/O in {sample.one_in}" if sample.one_in > 1 else ""
    if sample.lean:
        return f"{one_in}, only requests"
    return one_in if sample.files else f"{one_in}, without operations on files"


def _uncounted_text(uncounted_us: int | None, *, has_files: bool) -> str:
    """Return a sentence on the time that neither a process nor its successor counted; None: not known."""
    tables = ("interrupts", "softirqs", "wake-ups", *(("operations on files",) if has_files else ()))
    time_text = "an unknown time" if uncounted_us is None else f"up to {math.ceil(uncounted_us / 1e5) / 10:.1f} s"
    return f"{', '.join(tables[:-1])} and {tables[-1]} were not counted for {time_text}"


def _traced_text(run: TracerRun) -> str:
    """Return what is traced and why, in one line; devices and reasons without room are left out."""
    why = run.target.why_all or run.want.why
    because = f" {why}" if why == LOOKED_AT else f": {why}"
    names = [] if run.target.why_all else [listed(run.want.devices, most) for most in (_NAMED, 2, 1)]
    texts = [
        f"tracing stages of {whom or 'all devices'}{_sampled(run.sample)}{reason}"
        for reason in (because, because.partition("; ")[0], "")
        for whom in names or [""]
    ]
    return next((one for one in texts if len(one) <= _LINE), texts[-1])
