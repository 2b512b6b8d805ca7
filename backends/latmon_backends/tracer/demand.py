"""The demand for tracing, and the budget that limits it. Pure but for `measure`.

The demand follows the mode, the screen that is open, and suspicious devices: those with I/Os above their threshold in
several of the last intervals, a tail far above that of their peers, I/Os that don't complete, and few writes or slow
I/Os that keep them busy. Programs that wait for the server of a file system, for a lock or a journal want operations on
files traced, whatever the devices do; since the tracer's programs are for devices, that of the file system is traced
with them, or the busiest one where none is known. The clock is an argument, in seconds.

The cost is the time in the tracer's programs and their calls, in its process and in reading its output, in percent of
one CPU. Above the budget the sample becomes coarser, or, where interrupts, switches and the output cause the cost, only
requests are traced; if that is too much, too, the tracer is stopped. While counting is on, the kernel counts all BPF
programs of the host, at some 20 ns each run; so it is switched on for a short time only.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from latmon.aggregate.request_age import Waiting
from latmon.analysis.peers import in_flight_us, is_on_another, unlike
from latmon.model.frame import SERVER, Device, Frame, Series
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements import ABOVE, FILE_SLEEPS, SERVER_WAITS
from latmon.model.measurements.server_waits import WaitedTime
from latmon.support.process import cpu_ns
from latmon.support.text import listed
from latmon_backends.probe.launcher import Launcher, ProgramTotals
from latmon_backends.tracer.programs import TracerSample

INTERVALS, ABOVE_IN = 10, 3
"""I/Os above the threshold in so many of the last intervals; one bad second is no sign."""
STAYS_US = 60_000_000
"""Time after its last sign: an intermittent problem doesn't start the tracer each time."""
COMPARED_EVERY = 5
"""Frames: peers are compared less often than frames come, which costs 500 devices some 50 ms each time."""
WORTH_US = 1_000
"""A tail below this is no sign, however fast the peers are."""
_COMPARED = ("read", "write")
_WRITING = ("write", "flush")
BUSY_WITH_WRITES = 0.5
"""Writes and flushes in flight on average: programs may wait for files."""
MOST_BUSY = 5_000
"""So many I/Os a second at most are a sign where they keep a device busy: the switches of so few cost little to trace.
A fast disk with a deep queue is no sign."""
BUSY, SLOW_US = 0.9, 5_000
"""I/Os in flight on average, and the mean time of an I/O, at which it is a sign that they wait for each other."""
IN_FLIGHT_US = 2_000_000
"""An I/O in flight for so long is a sign."""
SERVER_WAIT_US, LOCK_WAIT_US, WAITED_US = 20_000, 2_000, 1_500_000
"""Waits for servers of so long on average, those for locks and journals, and so much of either in the last intervals,
are a sign: of a fast server a thread is seldom seen waiting at two looks."""
WAITS_FOR_SERVER = "programs wait for the server of a file system"
WAITS_FOR_LOCK = "programs wait for a lock or a journal of a file system"
LOOKED_S = 60.0
"""The tracer runs for so long after the last screen that shows its numbers."""
LOOKED_AT = "while this screen is open"
_REASONS = 3
"""A notice names so many."""
IN_A_ROW = 2
"""Measurements above the budget before anything is done: each is a second, and a burst is no load."""
WORTH = 0.25
"""A coarser sample is worth it where requests cause at least this share of the cost."""
PAUSE_S = 300.0
"""Switched off for so long, then tried again."""
DEAR_S = 60.0
"""Pause after a load that was too much for the budget, which may be a burst: a try of 10 s costs little of a minute."""
GUESSED_NS = 5_000.0
"""Per traced request: 3.8 us for the full split, and some for its interrupts and wake-ups."""
TRACED_A_SECOND = 2_500
"""I/Os from which on `--stages all` traces a sample: tracing must not take most of a fast disk's time."""
CALL_NS = 50
"""Time to call a program, which the kernel doesn't count as its run time: an empty raw tracepoint program takes 48 to
60 ns of a system call, a `tracepoint:` program 105 ns and 20 for each other one (prctl(PR_SET_NAME), Linux 6.18)."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspicious device, and the reason as the end of a sentence."""

    device: str
    why: str


@dataclass(frozen=True, slots=True)
class FileWaits:
    """Waits of programs in operations on files: these are suspicious, and no device need be."""

    device: str
    """The one to trace with them: all devices cost as much as all of their I/Os. Empty: none is known."""
    why: str
    """The end of a sentence."""


@dataclass(slots=True)
class _Sign:
    """Time and reason of a device's last sign."""

    at_us: int
    why: str


class Suspicion:
    """Signs of devices, from frames in their order."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=INTERVALS)
        self._above: deque[dict[str, int]] = deque(maxlen=INTERVALS)
        self._busy: deque[Mapping[str, str]] = deque(maxlen=INTERVALS)
        """Devices that I/Os kept busy, with the reason of the sign, by interval."""
        self._devices: dict[str, Device] = {}
        self._signs: dict[str, _Sign] = {}
        self._file_waits: Mapping[str, deque[WaitedTime]] = {
            why: deque(maxlen=INTERVALS) for why in (WAITS_FOR_LOCK, WAITS_FOR_SERVER)
        }
        """The slow waits in operations on files, by reason and interval."""
        self._files_sign: _Sign | None = None
        """The last sign of such waits."""
        self._beside_files = ""
        """The device that is traced with operations on files, chosen at the first sign: that of the file system, or the
        busiest one, if any is."""
        self._waiting = Waiting()
        self._seen = 0

    def note(self, frame: Frame) -> None:
        self._seen += 1
        for name in frame.removed:
            self._devices.pop(name, None)
            self._signs.pop(name, None)
            if name == self._beside_files:
                self._beside_files = ""
        self._devices |= {device.name: device for device in frame.devices}
        self._frames.append(frame)
        self._above.append(_by_device(frame))
        self._busy.append(_busy(frame))
        self._waiting.add(frame)
        signs = (
            self._often_busy(frame),
            self._often_above(frame),
            self._unlike_peers(frame),
            self._long_in_flight(frame),
        )
        for sign, device in chain.from_iterable(signs):
            self._signs[device] = sign
        self._signs = {name: sign for name, sign in self._signs.items() if frame.mono_us - sign.at_us < STAYS_US}
        self._note_file_waits(frame)

    @property
    def file_waits(self) -> FileWaits | None:
        """Return what to trace while programs wait in operations on files, or did shortly ago."""
        sign = self._files_sign
        return None if sign is None else FileWaits(self._beside_files, sign.why)

    def _note_file_waits(self, frame: Frame) -> None:
        """Take the waits of an interval. An operation that does not end hangs: it takes no tracer to see that."""
        sleeps = {row: time for row, time in frame[FILE_SLEEPS].items() if row.cause != SERVER}
        self._file_waits[WAITS_FOR_SERVER].append(_slow_waits(frame[SERVER_WAITS].values(), SERVER_WAIT_US))
        self._file_waits[WAITS_FOR_LOCK].append(_slow_waits(sleeps.values(), LOCK_WAIT_US))
        has_sign = False
        for why, waits in self._file_waits.items():
            has_ended = any(waited.sleeps for waited in waits)
            if has_ended and sum(waited.waited_us for waited in waits) >= WAITED_US:
                self._files_sign = _Sign(frame.mono_us, why)
                has_sign = True
        if has_sign:
            longest = max(sleeps, key=lambda row: (bool(row.device), sleeps[row].waited_us), default=None)
            of_sleeps = "" if longest is None else longest.device
            self._beside_files = self._beside_files or of_sleeps or self._busiest()
        elif self._files_sign is not None and frame.mono_us - self._files_sign.at_us >= STAYS_US:
            self._files_sign, self._beside_files = None, ""

    def _busiest(self) -> str:
        """Return the device with most time of I/Os, a disk if there is one; empty where none is known."""
        busy_us = self._busy_us()
        ranks = {name: (not is_on_another(name), busy_us.get(name, 0), name) for name in {*self._devices, *busy_us}}
        return max(ranks, key=lambda name: ranks[name], default="")

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the devices with signs, and the disk that may be below one of them, by name."""
        signs = {**_beside(self._signs, self._busy_us), **self._signs}
        return tuple(Suspect(name, sign.why) for name, sign in sorted(signs.items()))

    def _busy_us(self) -> Mapping[str, float]:
        """Return the time of each device's I/Os in the last intervals, completed and in flight."""
        busy = defaultdict[str, float](float)
        for frame in self._frames:
            for series, histogram in frame.histograms.items():
                if _is_total(series):
                    busy[series.device] += histogram.nearest_sum
        for name, us in in_flight_us(self._waiting.ages.oldest, STAYS_US).items():
            busy[name] += us
        return busy

    def _often_above(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        for device in self._above[-1]:
            counts = [by_device.get(device, 0) for by_device in self._above]
            if sum(1 for count in counts if count) >= ABOVE_IN:
                cut = frame.thresholds_us.get(device)
                above = f"I/Os above {_duration_text(cut)}" if cut else "I/Os above its threshold"
                yield _Sign(frame.mono_us, above), device

    def _often_busy(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        """Yield the devices that are busy, which is why where there is no better reason."""
        for device, why in self._busy[-1].items():
            known = self._signs.get(device)
            is_reason = known is None or known.why == why
            if is_reason and sum(device in busy for busy in self._busy) >= ABOVE_IN:
                yield _Sign(frame.mono_us, why), device

    def _unlike_peers(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        if self._seen % COMPARED_EVERY:
            return
        window_us = sum(earlier.dt_us for earlier in self._frames)
        tails = unlike(self._frames, window_us, self._devices, _COMPARED)
        totals = [_totals(earlier) for earlier in self._frames] if tails else []
        for name, times in tails.items():
            if max(frame_totals[name].max_bound or 0 for frame_totals in totals if name in frame_totals) >= WORTH_US:
                yield _Sign(frame.mono_us, f"a tail {times:.0f} times as long as its peers'"), name

    def _long_in_flight(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        for device in {request.device for request in self._waiting.ages.oldest if request.age_us >= IN_FLIGHT_US}:
            yield _Sign(frame.mono_us, f"I/Os in flight for more than {IN_FLIGHT_US // 1_000_000} s"), device


def _slow_waits(times: Iterable[WaitedTime], least_us: int) -> WaitedTime:
    """Return the sum of the waits that take long enough on average."""
    slow = [time for time in times if time.mean_us >= least_us]
    return WaitedTime(sum(time.waited_us for time in slow), sum(time.sleeps for time in slow))


def _beside(signs: Mapping[str, _Sign], busy_us: Callable[[], Mapping[str, float]]) -> dict[str, _Sign]:
    """Return the busiest disk with the sign of a device on a file, since the I/O of that may be the disk's."""
    own = [sign for name, sign in signs.items() if is_on_another(name)]
    disks = {name: us for name, us in busy_us().items() if us and not is_on_another(name)} if own else {}
    return {max(disks, key=lambda name: disks[name]): own[0]} if disks else {}


def _by_device(frame: Frame) -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for flow, count in frame[ABOVE].items():
        if count:
            counts[flow.device] += count
    return dict(counts)


def _busy(frame: Frame) -> dict[str, str]:
    """Return the devices that few writes and flushes, or slow I/Os of any kind, keep busy in an interval, and which.

    Their time is estimated from the buckets where the probe has no sum (tier C).
    """
    writes, times = _Times(), _Times()
    for series, histogram in frame.histograms.items():
        if series.stage == "total":
            times.add(series.device, histogram)
            if series.op in _WRITING:
                writes.add(series.device, histogram)
    most = MOST_BUSY * frame.dt_us / 1e6
    reasons: dict[str, str] = {}
    for name, us in times.us.items():
        if us >= BUSY * frame.dt_us and times.is_slow(name) and times.ios[name] <= most:
            reasons[name] = "it is busy"
    for name, us in writes.us.items():
        if us >= BUSY_WITH_WRITES * frame.dt_us and writes.ios[name] <= most:
            reasons[name] = "it is busy with writes"
    return reasons


class _Times:
    """The I/Os of devices in an interval, and their time."""

    def __init__(self) -> None:
        self.us = defaultdict[str, float](float)
        self.ios = Counter[str]()

    def add(self, device: str, latency: Histogram) -> None:
        self.us[device] += latency.nearest_sum
        self.ios[device] += latency.count

    def is_slow(self, device: str) -> bool:
        """Return whether a mean I/O is slow."""
        return self.us[device] >= SLOW_US * self.ios[device]


def _is_total(series: Series) -> bool:
    return series.stage == "total" and series.op in _COMPARED


def _totals(frame: Frame) -> dict[str, Histogram]:
    parts: defaultdict[str, list[Histogram]] = defaultdict(list)
    for series, histogram in frame.histograms.items():
        if _is_total(series):
            parts[series.device].append(histogram)
    return {name: merge(part) for name, part in parts.items()}


def _duration_text(us: int) -> str:
    return f"{us / 1000:.4g} ms" if us >= WORTH_US else f"{us} us"


@dataclass(frozen=True, slots=True)
class Want:
    """Devices to trace, none named: all of them; and the reason, as the end of a sentence."""

    devices: tuple[str, ...] = ()
    why: str = ""
    forced: bool = False
    """Requested by the user: no budget stops it."""
    files: bool = False
    """Whether operations on files are wanted too, whose hooks every system call of the host passes."""


class Demand:
    """The demand by mode, screens and suspects."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._looked: dict[str, float] = {}
        self._looked_at_all = self._looked_at_files = -LOOKED_S

    def set_mode(self, mode: str) -> None:
        """Set one of STAGES_MODES, and forget the requests under the mode before."""
        self.mode = mode
        self._looked.clear()
        self._looked_at_all = self._looked_at_files = -LOOKED_S

    def request_tracing(self, devices: tuple[str, ...], now: float, *, files: bool = False) -> None:
        """Request tracing of these devices, which a screen shows (empty: all), and of operations on files."""
        if files:
            self._looked_at_files = now
        if not devices:
            self._looked_at_all = now
        self._looked |= dict.fromkeys(devices, now)

    def wanted(self, suspects: tuple[Suspect, ...], now: float, *, file_waits: FileWaits | None = None) -> Want | None:
        """Return the devices to trace; None: none."""
        if self.mode == "basic":
            return None
        if self.mode == "all":
            return Want(why="--stages all", forced=True, files=True)
        self._looked = {name: at for name, at in self._looked.items() if now - at < LOOKED_S}
        files = bool(suspects) or file_waits is not None or now - self._looked_at_files < LOOKED_S
        if now - self._looked_at_all < LOOKED_S:
            return Want(why=LOOKED_AT, files=files)
        chosen = {*self._looked, *(suspect.device for suspect in suspects)}
        if chosen:
            return Want(tuple(sorted(chosen)), _reasons(suspects) or LOOKED_AT, files=files)
        if file_waits is None:
            return None
        return Want((file_waits.device,) if file_waits.device else (), file_waits.why, files=True)


def _reasons(suspects: Iterable[Suspect]) -> str:
    """Return why devices are suspicious; several reasons, such as a threshold of each, with their devices."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for suspect in suspects:
        reasons[suspect.why].append(suspect.device)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join([f"{why} ({listed(names)})" for why, names in reasons.items()][:_REASONS])


FACTOR, COARSEST = 4, 256


def one_in(iops: float, before: int) -> int:
    """Return the sample of a tracer without a budget at this rate of I/Os, a power of FACTOR.

    It becomes finer where a quarter more than that would still fit: a rate at the edge doesn't change it each second.
    """
    divisor = 1
    while divisor < COARSEST and iops / divisor > TRACED_A_SECOND * (0.75 if divisor < before else 1.0):
        divisor *= FACTOR
    return divisor


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """A decision: trace only this sample, None: stop, because of the measured `percent` of a CPU."""

    sample: TracerSample | None
    percent: float


class Budget:
    """A budget of `percent` of one CPU, which the setting `name` limits; 0: unlimited."""

    def __init__(self, percent: float, name: str = "the budget") -> None:
        self.percent, self.name = percent, name
        self._above: list[float] = []

    def __str__(self) -> str:
        return f"{self.name} is {self.percent:g} %"

    def first(self, iops: float) -> int:
        """Return the sampling to begin with, by the requests per second."""
        one_in = 1
        while self.percent and one_in < COARSEST and iops / one_in * GUESSED_NS / 1e7 > self.percent:
            one_in *= FACTOR
        return one_in

    def exceeded(self, percent: float) -> bool:
        """Return whether a cost is above the budget, if there is one."""
        return 0 < self.percent < percent

    def evaluate(self, percent: float, sample: TracerSample, iops: float) -> BudgetVerdict | None:
        """Evaluate a measurement at this rate of requests; None: no change."""
        spent = self.above(percent)
        return None if spent is None else BudgetVerdict(self._cheaper(spent, sample, iops), spent)

    def above(self, percent: float) -> float | None:
        """Take a measurement; return the least of IN_A_ROW above the budget, None where there are not as many."""
        if not self.exceeded(percent):
            self.forget()
            return None
        self._above.append(percent)
        if len(self._above) < IN_A_ROW:
            return None
        spent = min(self._above)
        self.forget()
        return spent

    def _cheaper(self, spent: float, sample: TracerSample, iops: float) -> TracerSample | None:
        """Return a sample that costs less; None: there is none.

        A coarser one saves the time of requests. Where that is a small part, interrupts, switches, system calls and the
        output cost more: then operations on files are left out, and at last only requests are traced. The first sample
        also leaves out what counts every request.
        """
        requests = iops * GUESSED_NS / 1e7
        if sample.one_in < COARSEST and requests / sample.one_in >= WORTH * spent:
            coarser = sample.one_in * FACTOR
            while coarser < COARSEST and requests / coarser > WORTH * self.percent:
                coarser *= FACTOR
            return replace(sample, one_in=coarser)
        if sample.files:
            return replace(sample, files=False)
        if not sample.lean:
            return replace(sample, lean=True)
        return replace(sample, one_in=FACTOR) if sample.one_in == 1 else None

    def forget(self) -> None:
        """Forget the measurements: after a stop, and once it fitted the budget, they don't predict the next cost."""
        self._above = []


PHASE_S, EVERY_S, FIRST_AFTER_S = 1.0, 10.0, 2.0
"""One second in ten; the first soon, because a probe that is too dear must not run for long."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Cost and skipped runs of a process's programs; None: not known."""

    percent: float | None = None
    """Percent of one CPU."""
    skipped: int | None = None
    """Runs that the kernel skipped since the programs were loaded."""


async def measure(launcher: Launcher, pids: Sequence[int], seconds: float = PHASE_S) -> tuple[Measured, ...]:
    """Measure the cost of each process: its programs, their calls, and its own CPU time."""
    if not await launcher.count_time(on=True):
        return tuple([Measured(None, (await launcher.totals(pid)).skipped) for pid in pids])
    try:
        begun = time.monotonic_ns()
        before = [(await launcher.totals(pid), cpu_ns(pid)) for pid in pids]
        await asyncio.sleep(seconds)
        after = [(await launcher.totals(pid), cpu_ns(pid)) for pid in pids]
        passed = time.monotonic_ns() - begun
    finally:
        await launcher.count_time(on=False)
    readings = zip(before, after, strict=True)
    return tuple(Measured(_percent(_ns(*was), _ns(*now), passed), now[0].skipped) for was, now in readings)


def _ns(totals: ProgramTotals, process_ns: int) -> int | None:
    """Return the time that a process and its programs took so far; None where that of the programs is not known."""
    return None if totals.run_ns is None else totals.run_ns + CALL_NS * (totals.runs or 0) + process_ns


def _percent(before: int | None, after: int | None, passed_ns: int) -> float | None:
    return None if before is None or after is None or passed_ns <= 0 else 100 * max(0, after - before) / passed_ns
