"""tick-quantum: I/Os take just below one or two timer ticks, and nothing in between.

It fires when the latency of a device, or its wait for the softirq that completes it, has a narrow mode in the band that
ends at 1 or 2 ticks of 1/CONFIG_HZ and is `below` of them wide: `ios` I/Os and `share` of all, `narrow` times as many
as in the buckets beside it. A bucket is wider than the band: where exact times are known, their mean must lie in it.
It is a warning only if the softirq tells the same: it was raised outside of interrupts, the timer's interrupt ran it,
and its own wait ends there too: it lies in the band, or so far below as the device and all else takes. That is a raise
that wakes nobody (__raise_softirq_irqoff in a thread), so `raises` of those that were raised there wait so long or
longer; or, where others are raised there and run at once, `late` of its waits of a quarter of a tick or more end just
below one. On a busy host some softirqs wait for the tick by chance, and for any part of it. I/Os whose latency is the
tick must have spent `waiting` of it on that softirq.
Where no softirq is watched, a mode that holds `most` of the I/Os is a notice: an SSD may happen to take 4 ms too.
A kernel of 1000 Hz has ticks of 1 ms, so 3.97 ms are none of its 1 or 2 ticks. It is critical where `critical` of the
device's time is that wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis import attribution
from latmon.findings import evidence
from latmon.findings.evidence import long_ones, time_in
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Device, SoftirqRuns
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.support.units import part, spelled

ID = "tick-quantum"
_SOFTIRQ = "softirq"
_HZ = range(24, 10_001)
"""What kernels are built with; another one is a mistake of a recording."""
_STAGES = tuple(one for one in attribution.PARTS if one != "resume")
_IRDMA = (
    "; known: Intel's irdma 1.15.11 (E810) under NVMe over RDMA took 4 ms on a kernel of 250 Hz, and about 0.1 ms on "
    "kernel 5.10 or with the completion in a tasklet"
)
_REFUTED = (
    "the same times under a kernel of another CONFIG_HZ, or waits of the softirq (screen 5) that are short: then it is "
    "the device that takes so long"
)


class _Mode(NamedTuple):
    """A narrow mode just below `ticks` ticks, in a device's latency or in its wait for a softirq."""

    device: str
    stage: str
    """total or softirq."""
    ticks: int
    tick_us: float
    low_us: int
    high_us: int
    """Of the buckets in which the band lies."""
    ios: int
    of: int
    exact_us: float | None
    """The mean of those in it, where that is known."""

    @property
    def share(self) -> float:
        return self.ios / self.of

    @property
    def us(self) -> float:
        """What a sentence says that it is."""
        return self.ticks * self.tick_us if self.exact_us is None else self.exact_us


class _Polled(NamedTuple):
    """A softirq vector that waits for the tick."""

    vector: str
    runs: SoftirqRuns
    waits: int
    """In the band's buckets."""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """At most one finding per device: on the mode with the most I/Os."""
    if (hz := facts.origin.hz) is None or hz not in _HZ:
        return
    for device in facts.busy:
        modes = list(_modes(facts, device, 1e6 / hz, limits))
        # waits for a softirq that are watched tell it or refute it; nothing is left to guess
        if any(True for _ in evidence.of_device(facts, device)) or facts.traced.paths.get(device):
            proven = [(mode, polled) for mode in modes if (polled := _polled(facts, mode, limits))]
            if proven:
                yield _proven(facts, *max(proven, key=lambda one: one[0].ios), limits)
        else:
            likely = [one for one in modes if one.exact_us is not None and one.share >= limits["most"]]
            if likely:
                yield _likely(max(likely, key=lambda one: one.ios))


def _modes(facts: Facts, device: str, tick_us: float, limits: Thresholds) -> Iterator[_Mode]:
    traced = attribution.total_of(facts.traced, device)
    total = traced or facts.latency(device)
    waits = attribution.stages_of(facts.traced, device).get(_SOFTIRQ, Histogram())
    for stage, found in (("total", total), (_SOFTIRQ, waits)):
        for ticks in (1, 2):
            upto = ticks * tick_us
            band = (max(0.0, 1 - limits["below"]) * upto, upto)
            first, last = bucket_index(int(band[0]), found.bits), bucket_index(int(upto) - 1, found.bits)
            counts = dict(found.buckets)
            count = sum(counts.get(index, 0) for index in range(first, last + 1))
            beside = max(counts.get(first - 1, 0), counts.get(last + 1, 0))
            if count < max(1, limits["ios"], limits["share"] * total.count) or count < limits["narrow"] * beside:
                continue
            exact = _exact(facts, device, stage, found, range(first, last + 1))
            if exact is None or band[0] <= exact <= band[1]:
                low, high = bucket_bounds(first, found.bits)[0], bucket_bounds(last, found.bits)[1]
                yield _Mode(device, stage, ticks, tick_us, low, high, count, total.count, exact)


def _exact(facts: Facts, device: str, stage: str, found: Histogram, buckets: range) -> float | None:
    """The mean of the mode's own: of traced totals by their stages' sums, else of all where nearly all are in it."""
    inside = sum(n for index, n in found.buckets if index in buckets)
    if stage == "total" and attribution.total_of(facts.traced, device):
        return sum(time_in(facts, device, one, buckets) for one in _STAGES) / inside
    times = [
        us
        for one in facts.outliers(device)
        if (us := one.total_us - one.stages_us.get("resume", 0) if stage == "total" else one.stages_us.get(stage, 0))
        and bucket_index(us, found.bits) in buckets
    ]
    if times:
        return sum(times) / len(times)
    # the few others can't move the mean out of the mode's bucket, nor far in it
    return found.mean if inside == found.count else None


def _polled(facts: Facts, mode: _Mode, limits: Thresholds) -> _Polled | None:
    """A vector of the device's that is raised outside of interrupts and waits for the timer's."""
    upto = mode.ticks * mode.tick_us
    if (others := _others_us(facts, mode, limits)) is None:
        return None
    least = int(max(0.0, (1 - limits["below"]) * upto - others))
    for vector, runs in evidence.of_device(facts, mode.device):
        band = range(bucket_index(least, runs.delay.bits), bucket_index(int(upto) - 1, runs.delay.bits) + 1)
        waits = sum(n for index, n in runs.delay.buckets if index in band)
        outside = runs.raised_in.get("other", 0)
        few = min(waits, outside, runs.ran_in.get("timer", 0)) < limits["ios"]
        all_wait = long_ones(runs.delay, least) >= limits["raises"] * outside
        if not few and (all_wait or waits >= limits["late"] * long_ones(runs.delay, mode.tick_us // 4)):
            return _Polled(vector, runs, waits)
    return None


def _others_us(facts: Facts, mode: _Mode, limits: Thresholds) -> float | None:
    """What an I/O of the mode took beside its wait, in the mean; None where that wait isn't what took the time."""
    if mode.stage == _SOFTIRQ:
        return 0.0
    buckets = range(bucket_index(mode.low_us), bucket_index(mode.high_us - 1) + 1)
    total, wait = (sum(time_in(facts, mode.device, one, buckets) for one in some) for some in (_STAGES, (_SOFTIRQ,)))
    return (total - wait) / mode.ios if total and wait >= limits["waiting"] * total else None


def _proven(facts: Facts, mode: _Mode, polled: _Polled, limits: Thresholds) -> Finding:
    share = _time_share(facts, mode.device)
    return Finding(
        ID,
        CRITICAL if share >= limits["critical"] else WARNING,
        mode.device,
        f"{_begin(mode, polled.vector)}: it is raised outside of interrupts and runs only when the timer's interrupt "
        "ends",
        tuple(_facts(mode, polled, share)),
        Where("stages", mode.device, low_us=mode.low_us if mode.stage == "total" else None),
        tuple(_steps(facts.devices.get(mode.device, Device(mode.device, 0, 0)), polled.vector)),
        _REFUTED,
        share,
    )


def _likely(mode: _Mode) -> Finding:
    return Finding(
        ID,
        NOTICE,
        mode.device,
        f"{_begin(mode, '')}; whether they wait for the tick is not known: no softirq is watched",
        tuple(_facts(mode, None, None)),
        Where("overview", mode.device, low_us=mode.low_us, high_us=mode.high_us),
        (
            Step(
                "watch the softirqs: S, or start it with --stages all",
                "some percent of a CPU while it runs, within the budget",
            ),
        ),
        _REFUTED,
        mode.share,
    )


def _begin(mode: _Mode, vector: str) -> str:
    tick = f"{_ticks(mode)} of 1/{round(1e6 / mode.tick_us)} s"
    if mode.stage == "total":
        what = f"{mode.device}: {part(mode.share)} of I/Os take {spelled(mode.us)}, just below {tick}"
        return f"{what}, waiting for the softirq {vector}" if vector else what
    what = f"{mode.device}: {part(mode.share)} of I/Os wait just below {tick} ({spelled(mode.us)})"
    return f"{what} for the softirq {vector}"


def _ticks(mode: _Mode) -> str:
    return "one tick" if mode.ticks == 1 else "two ticks"


def _facts(mode: _Mode, polled: _Polled | None, share: float | None) -> Iterator[Fact]:
    hz = round(1e6 / mode.tick_us)
    what = "take" if mode.stage == "total" else "wait"
    if mode.exact_us is not None:
        said = f"they {what} {spelled(mode.exact_us)} in the mean: {mode.exact_us / mode.tick_us:.3f} ticks"
        yield Fact("mode_us", mode.exact_us, said, "us", mode.ios)
    buckets = f"between {spelled(mode.low_us)} and {spelled(mode.high_us)}, the bounds of its buckets"
    yield Fact("mode_share", mode.share, f"{part(mode.share)} of I/Os lie {buckets}", "share", mode.of)
    yield Fact("hz", hz, f"CONFIG_HZ is {hz}: a tick is {spelled(mode.tick_us)}")
    if share is not None:
        yield Fact("time_share", share, f"{part(share)} of the I/Os' time is that wait", "share", mode.of)
    if polled is None:
        return
    raised, ran = polled.runs.raised_in, polled.runs.ran_in
    for name, n, said, of in (
        ("raised_outside", raised.get("other", 0), "was raised outside of interrupts", sum(raised.values())),
        ("run_by_timer", ran.get("timer", 0), "was run by the timer's interrupt", sum(ran.values())),
        ("waited_a_tick", polled.waits, f"waited nearly {_ticks(mode)}", polled.runs.delay.count),
    ):
        yield Fact(name, n, f"{polled.vector} {said} {n:,} times of {of:,}", "runs", of)


def _steps(device: Device, vector: str) -> Iterator[Step]:
    yield Step(
        f"find who raises {vector}; __raise_softirq_irqoff from a thread wakes nobody, raise_softirq_irqoff wakes "
        "ksoftirqd",
        "a stack per raise costs CPU: some seconds are enough",
        (evidence.raisers(vector),),
    )
    known = _IRDMA if "irdma" in f"{device.driver} {device.controller}" else ""
    yield Step(
        f"run a kernel and a driver of {device.name}'s adapter that wake ksoftirqd there, or that complete in an "
        f"interrupt or a tasklet{known}",
        "a driver built by hand may not load, may crash the kernel or lose connections: try it on a host of no use",
    )
    yield Step(
        "leave CONFIG_HZ as it is: with more ticks the wait gets shorter and stays a wait for the tick",
        "none: it changes nothing",
        ("grep CONFIG_HZ= /boot/config-$(uname -r) || zgrep CONFIG_HZ= /proc/config.gz",),
    )


def _time_share(facts: Facts, device: str) -> float:
    total = attribution.total_of(facts.traced, device).sum or 0
    waits = attribution.stages_of(facts.traced, device).get(_SOFTIRQ, Histogram()).sum or 0
    return min(1.0, waits / total) if total else 0.0


RULE = Rule(ID, "I/Os take just below one or two timer ticks, and nothing in between", judge)
