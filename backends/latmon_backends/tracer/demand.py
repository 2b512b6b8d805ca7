"""The demand for tracing, and the budget that limits it. Pure but for `measure`.

The demand follows the mode, the screen that is open, and suspicious devices: those with I/Os above their threshold in
several of the last intervals, a tail far above that of their peers, or I/Os that don't complete. The clock is an
argument, in seconds.

The cost is the time in the tracer's programs, in percent of one CPU. Above the budget the sample becomes coarser.
Sampling thins out requests only: where it no longer helps, interrupts and the scheduler cause the cost, and the tracer
is stopped. While counting is on, the kernel counts all BPF programs of the host, at some 20 ns each run; so it is
switched on for a short time only.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latmon.aggregate.request_age import Waiting
from latmon.analysis.device_order import Order, Rank, in_flight_us, is_on_another, shares
from latmon.analysis.peers import unlike
from latmon.model.frame import Device, Frame
from latmon.model.histogram import Histogram, merge
from latmon_backends.probe.launcher import Launcher

INTERVALS, ABOVE_IN = 10, 3
"""I/Os above the threshold in so many of the last intervals; one bad second is no sign."""
STAYS_US = 60_000_000
"""Time after its last sign: an intermittent problem doesn't start the tracer each time."""
COMPARED_EVERY = 5
"""Frames: peers are compared less often than frames come, which costs 500 devices some 50 ms each time."""
WORTH_US = 1_000
"""A tail below this is no sign, however fast the peers are."""
_COMPARED = ("read", "write")
IN_FLIGHT_US = 2_000_000
"""An I/O in flight for so long is a sign."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A device, why as the end of a sentence, and what its place depends on: see device_order.Rank.

    `busy_us` is of the last intervals.
    """

    device: str
    why: str
    busy_us: float = 0.0
    share: float = 1.0
    unlike: float = 0.0


@dataclass(slots=True)
class _Sign:
    """The last sign of a device: when, which, and how many times slower than its peers it is."""

    at_us: int
    why: str
    unlike: float = 0.0


class Suspicion:
    """Signs of devices, from frames in their order."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=INTERVALS)
        self._above: deque[dict[str, int]] = deque(maxlen=INTERVALS)
        self._totals: deque[dict[str, Histogram]] = deque(maxlen=INTERVALS)
        self._devices: dict[str, Device] = {}
        self._signs: dict[str, _Sign] = {}
        self._waiting = Waiting()
        self._seen = 0

    def note(self, frame: Frame) -> None:
        self._seen += 1
        for name in frame.removed:
            self._devices.pop(name, None)
            self._signs.pop(name, None)
        self._devices |= {device.name: device for device in frame.devices}
        self._frames.append(frame)
        self._above.append(_by_device(frame))
        self._totals.append(_totals(frame))
        self._waiting.add(frame)
        for sign, device in (*self._often_above(frame), *self._unlike_peers(frame), *self._long_in_flight(frame)):
            self._signs[device] = sign
        self._signs = {name: sign for name, sign in self._signs.items() if frame.mono_us - sign.at_us < STAYS_US}

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the devices with signs, and the disk that may be below one of them, by name."""
        if not self._signs:
            return ()
        ios, busy = self._loads()
        share = shares(ios.items(), busy.items())
        signs = {**_beside(self._signs, busy), **self._signs}
        return tuple(
            Suspect(name, sign.why, busy[name], share.get(name, 0.0), sign.unlike)
            for name, sign in sorted(signs.items())
        )

    def _loads(self) -> tuple[Counter[str], Counter[str]]:
        """Return the I/Os of each device in the last intervals, and their time in us, completed and in flight."""
        ios, busy = Counter[str](), Counter[str]()
        for name, one in ((name, one) for totals in self._totals for name, one in totals.items()):
            ios[name] += one.count
            busy[name] += one.sum or 0
        busy.update(in_flight_us(self._waiting.ages.oldest, STAYS_US))
        return ios, busy

    def _often_above(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        for device in self._above[-1]:
            counts = [one.get(device, 0) for one in self._above]
            if sum(1 for count in counts if count) >= ABOVE_IN:
                cut = frame.thresholds_us.get(device)
                above = f"I/Os above {_duration_text(cut)}" if cut else "I/Os above its threshold"
                yield _Sign(frame.mono_us, above), device

    def _unlike_peers(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        if self._seen % COMPARED_EVERY:
            return
        window_us = sum(one.dt_us for one in self._frames)
        for name, times in unlike(self._frames, window_us, self._devices, _COMPARED).items():
            if max(one[name].max_bound or 0 for one in self._totals if name in one) >= WORTH_US:
                yield _Sign(frame.mono_us, f"a tail {times:.0f} times as long as its peers'", times), name

    def _long_in_flight(self, frame: Frame) -> Iterator[tuple[_Sign, str]]:
        for device in {one.device for one in self._waiting.ages.oldest if one.age_us >= IN_FLIGHT_US}:
            yield _Sign(frame.mono_us, f"I/Os in flight for more than {IN_FLIGHT_US // 1_000_000} s"), device


def _beside(signs: Mapping[str, _Sign], busy_us: Mapping[str, int]) -> dict[str, _Sign]:
    """Return the busiest disk with the sign of a device on a file, since the I/O of that may be the disk's."""
    own = [one for name, one in signs.items() if is_on_another(name)]
    disks = {name: us for name, us in busy_us.items() if us and not is_on_another(name)}
    return {max(disks, key=lambda name: disks[name]): replace(own[0], unlike=0.0)} if own and disks else {}


def _by_device(frame: Frame) -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for flow, count in frame.above.items():
        if count:
            counts[flow.device] += count
    return dict(counts)


def _totals(frame: Frame) -> dict[str, Histogram]:
    parts: defaultdict[str, list[Histogram]] = defaultdict(list)
    for series, histogram in frame.histograms.items():
        if series.stage == "total" and series.op in _COMPARED:
            parts[series.device].append(histogram)
    return {name: merge(found) for name, found in parts.items()}


def _duration_text(us: int) -> str:
    return f"{us / 1000:.4g} ms" if us >= WORTH_US else f"{us} us"


AT_MOST = 4
"""The kernel's filter compares with so many devices: dev0 to dev3."""
LOOKED_S = 60.0
"""The tracer runs for so long after the last screen that shows its numbers."""
LOOKED_AT = "while this screen is open"
REMIX_S = 10.0
"""Other devices are taken in at most so often: it takes a restart, and what is in flight then isn't traced."""


@dataclass(frozen=True, slots=True)
class Want:
    """Devices to trace, none named: all of them; and the reason, as the end of a sentence."""

    devices: tuple[str, ...] = ()
    why: str = ""
    forced: bool = False
    """Requested by the user: no budget stops it."""
    left: tuple[str, ...] = ()
    """Other devices, for which the kernel's filter has no room."""

    def covers(self, other: Want) -> bool:
        """Return whether a tracer that runs for this one also covers the other."""
        fewer = bool(other.devices) and set(other.devices) <= set(self.devices)
        return self.forced == other.forced and (not self.devices or fewer)


class Demand:
    """The demand by mode, screens and suspects."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._looked: dict[str, float] = {}
        self._looked_at_all = -LOOKED_S
        self._order = Order()

    def set_mode(self, mode: str) -> None:
        """Set one of STAGES_MODES, and forget the requests under the mode before."""
        self.mode = mode
        self._looked.clear()
        self._looked_at_all = -LOOKED_S

    def request_tracing(self, devices: tuple[str, ...], now: float) -> None:
        """Request tracing of these devices, which a screen shows; empty: all."""
        if not devices:
            self._looked_at_all = now
        self._looked |= dict.fromkeys(devices, now)

    def wanted(self, suspects: tuple[Suspect, ...], now: float, traced: tuple[str, ...] = ()) -> Want | None:
        """Return the devices to trace; None: none.

        Where there are more suspects than room, those traced already stay unless another one is a step of the devices'
        order worse: each change leaves a gap.
        """
        if self.mode == "basic":
            return None
        if self.mode == "all":
            return Want(why="--stages all", forced=True)
        self._looked = {name: at for name, at in self._looked.items() if now - at < LOOKED_S}
        if now - self._looked_at_all < LOOKED_S:
            return Want(why=LOOKED_AT)
        newest = sorted(self._looked, key=lambda name: -self._looked[name])
        every = tuple(dict.fromkeys((*newest, *_ranked(suspects, traced, self._order))))
        chosen = every[:AT_MOST]
        if not chosen:
            return None
        reasons = dict.fromkeys(one.why for one in suspects if one.device in chosen)
        return Want(tuple(sorted(chosen)), "; ".join(reasons) or LOOKED_AT, left=every[AT_MOST:])


def _ranked(suspects: tuple[Suspect, ...], traced: tuple[str, ...], order: Order) -> list[str]:
    """Return the suspects in the screen's order of devices."""
    return order.sort(
        [Rank(n, one.busy_us, one.share, one.unlike, is_traced=n in traced) for one in suspects if (n := one.device)]
    )


FACTOR, COARSEST = 4, 256
IN_A_ROW = 2
"""Measurements above the budget before anything is done: each is a second, and a burst is no load."""
HELPS = 0.8
"""A coarser sample that still costs more than this share of what it cost before doesn't help."""
PAUSE_S = 300.0
"""Switched off for so long, then tried again."""
GUESSED_NS = 5_000.0
"""Per traced request, before it was measured: 3.8 us for the full split, and some for its interrupts and wake-ups."""


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """A decision: trace one request in `one_in`, or stop (0), because of the measured `percent` of a CPU."""

    one_in: int
    percent: float


class Budget:
    """A budget of `percent` of one CPU; 0: unlimited."""

    def __init__(self, percent: float) -> None:
        self.percent = percent
        self._above: list[float] = []
        self._before: float | None = None

    def first(self, iops: float) -> int:
        """Return the sampling to begin with, by the requests per second."""
        one_in = 1
        while self.percent and one_in < COARSEST and iops / one_in * GUESSED_NS / 1e7 > self.percent:
            one_in *= FACTOR
        return one_in

    def exceeded(self, percent: float) -> bool:
        """Return whether a cost is above the budget, if there is one."""
        return 0 < self.percent < percent

    def evaluate(self, percent: float, one_in: int) -> BudgetVerdict | None:
        """Evaluate a measurement; None: no change."""
        self._above = [*self._above, percent] if self.exceeded(percent) else []
        if len(self._above) < IN_A_ROW:
            return None
        spent, self._above = min(self._above), []
        coarser = min(COARSEST, one_in * FACTOR)
        while coarser < COARSEST and spent * one_in / coarser > self.percent:
            coarser *= FACTOR
        helps = self._before is None or spent < self._before * HELPS
        if one_in >= COARSEST or not helps:
            self._before = None
            return BudgetVerdict(0, spent)
        self._before = spent
        return BudgetVerdict(coarser, spent)

    def forget(self) -> None:
        """Forget the measurements: after a stop they don't predict the next cost."""
        self._above, self._before = [], None


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
    """Measure the cost of each process's programs."""
    if not await launcher.count_time(on=True):
        return tuple([Measured(None, (await launcher.totals(pid)).skipped) for pid in pids])
    try:
        begun = time.monotonic_ns()
        before = [await launcher.totals(pid) for pid in pids]
        await asyncio.sleep(seconds)
        after = [await launcher.totals(pid) for pid in pids]
        passed = time.monotonic_ns() - begun
    finally:
        await launcher.count_time(on=False)
    each = zip(before, after, strict=True)
    return tuple(Measured(_percent(was.run_ns, now.run_ns, passed), now.skipped) for was, now in each)


def _percent(before: int | None, after: int | None, passed_ns: int) -> float | None:
    return None if before is None or after is None or passed_ns <= 0 else 100 * max(0, after - before) / passed_ns
