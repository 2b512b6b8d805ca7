"""tick-quantum: I/Os take just below one or two timer ticks, and nothing in between.

A bucket is wider than the band below a tick: where exact times are known, their mean must lie in it. It is a warning
only if the softirq confirms it: raised outside of interrupts, run by the timer's interrupt, its own wait in the band,
or below it by the time of the device and all else. Such a raise wakes no thread (__raise_softirq_irqoff), so most of
those raised there wait so long; or, where others are raised there and run at once, most of the long waits end just
below a tick. On a busy host some softirqs wait for the tick by chance, and an SSD may take 4 ms by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis import attribution
from latmon.findings import evidence
from latmon.findings.evidence import count_from, time_in
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    LATENCIES,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
)
from latmon.model.frame import Device
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model.measurements.softirqs import SoftirqRuns
from latmon.support.units import part, spelled

ID = "tick-quantum"
_SOFTIRQ = "softirq"
_HZ = range(24, 10_001)
"""Values of CONFIG_HZ that kernels are built with; others are errors of a recording."""
_STAGES = tuple(stage for stage in attribution.PARTS if stage != "resume")
_IRDMA = (
    "; known: Intel's irdma 1.15.11 (E810) under NVMe over RDMA took 4 ms on a kernel of 250 Hz, and about 0.1 ms on "
    "kernel 5.10 or with the completion in a tasklet"
)
_REFUTED = (
    "the same times under a kernel of another CONFIG_HZ, or waits of the softirq (screen 5) that are short: then the "
    "device itself takes so long"
)


class _TickMode(NamedTuple):
    """A narrow mode just below `ticks` ticks, in a device's latency or in its wait for a softirq."""

    device: str
    stage: str
    """The histogram that has the mode: total or softirq."""
    ticks: int
    tick_us: float
    low_us: int
    high_us: int
    """The bounds of the buckets in which the band lies."""
    ios: int
    of: int
    exact_us: float | None
    """The mean of the times in it; None where it is not known."""

    @property
    def share(self) -> float:
        return self.ios / self.of

    @property
    def us(self) -> float:
        """Return the time to print: the exact mean, else the ticks."""
        return self.ticks * self.tick_us if self.exact_us is None else self.exact_us


class _DelayedVector(NamedTuple):
    """A softirq vector that waits for the tick."""

    vector: str
    runs: SoftirqRuns
    waits: int
    """Number of its waits in the band's buckets."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield at most one finding per device: on the mode with the most I/Os."""
    if (hz := facts.origin.hz) is None or hz not in _HZ:
        return
    for device in facts.busy:
        modes = list(_modes(facts, device, 1e6 / hz, limits))
        # traced waits for a softirq prove it or refute it; only without them a mode may be a guess
        if any(True for _ in evidence.completing_softirqs(facts, device)) or facts.traced.paths.get(device):
            proven = [(mode, delayed) for mode in modes if (delayed := _delayed_vector(facts, mode, limits))]
            if proven:
                yield _proven(facts, *max(proven, key=lambda pair: pair[0].ios), limits)
        else:
            likely = [mode for mode in modes if mode.exact_us is not None and mode.share >= limits["most"]]
            if likely:
                yield _likely(facts, max(likely, key=lambda mode: mode.ios))


def _modes(facts: Facts, device: str, tick_us: float, limits: Thresholds) -> Iterator[_TickMode]:
    total = facts.traced_stage("total", device) or facts.latency(device)
    waits = facts.traced_stage(_SOFTIRQ, device)
    if facts.origin.is_imported:  # such as the time between two events of a trace
        waits = waits or facts.stage(_SOFTIRQ, device)
    for stage, histogram in (("total", total), (_SOFTIRQ, waits)):
        ios = total.count or histogram.count
        counts = dict(histogram.buckets)
        for ticks in (1, 2):
            upto = ticks * tick_us
            band = (max(0.0, 1 - limits["below"]) * upto, upto)
            first, last = bucket_index(int(band[0]), histogram.bits), bucket_index(int(upto) - 1, histogram.bits)
            count = sum(counts.get(index, 0) for index in range(first, last + 1))
            beside = max(counts.get(first - 1, 0), counts.get(last + 1, 0))
            if count < max(1, limits["ios"], limits["share"] * ios) or count < limits["narrow"] * beside:
                continue
            exact = _exact(facts, device, stage, histogram, range(first, last + 1))
            if exact is None or band[0] <= exact <= band[1]:
                low, high = bucket_bounds(first, histogram.bits)[0], bucket_bounds(last, histogram.bits)[1]
                yield _TickMode(
                    device=device,
                    stage=stage,
                    ticks=ticks,
                    tick_us=tick_us,
                    low_us=low,
                    high_us=high,
                    ios=count,
                    of=ios,
                    exact_us=exact,
                )


def _exact(facts: Facts, device: str, stage: str, histogram: Histogram, buckets: range) -> float | None:
    """Return the mean of the times in the mode: from traced stages, from outliers, else the mean of all in it."""
    inside = sum(n for index, n in histogram.buckets if index in buckets)
    if stage == "total" and facts.traced_stage("total", device):
        first, last = (bucket_index(bucket_bounds(at, histogram.bits)[0]) for at in (buckets.start, buckets.stop))
        return sum(time_in(facts, device, name, range(first, last)) for name in _STAGES) / inside
    times = [
        us
        for outlier in facts.outliers(device)
        if (
            us := outlier.total_us - outlier.stages_us.get("resume", 0)
            if stage == "total"
            else outlier.stages_us.get(stage, 0)
        )
        and bucket_index(us, histogram.bits) in buckets
    ]
    if times:
        return sum(times) / len(times)
    return histogram.mean if inside == histogram.count else None


def _delayed_vector(facts: Facts, mode: _TickMode, limits: Thresholds) -> _DelayedVector | None:
    """Return a vector of the device that is raised outside of interrupts and waits for the timer's; None without."""
    upto = mode.ticks * mode.tick_us
    if (others := _others_us(facts, mode, limits)) is None:
        return None
    least = int(max(0.0, (1 - limits["below"]) * upto - others))
    for vector, runs in evidence.completing_softirqs(facts, mode.device):
        band = range(bucket_index(least, runs.delay.bits), bucket_index(int(upto) - 1, runs.delay.bits) + 1)
        waits = sum(n for index, n in runs.delay.buckets if index in band)
        outside = runs.raised_in.get("other", 0)
        few = min(waits, outside, runs.ran_in.get("timer", 0)) < limits["ios"]
        all_wait = count_from(runs.delay, least) >= limits["raises"] * outside
        if not few and (all_wait or waits >= limits["late"] * count_from(runs.delay, mode.tick_us // 4)):
            return _DelayedVector(vector, runs, waits)
    return None


def _others_us(facts: Facts, mode: _TickMode, limits: Thresholds) -> float | None:
    """Return the mean time of the mode's I/Os without their wait; None where the wait is too small a share of it."""
    if mode.stage == _SOFTIRQ:
        return 0.0
    buckets = range(bucket_index(mode.low_us), bucket_index(mode.high_us - 1) + 1)
    total, wait = (
        sum(time_in(facts, mode.device, stage, buckets) for stage in stages) for stages in (_STAGES, (_SOFTIRQ,))
    )
    return (total - wait) / mode.ios if total and wait >= limits["waiting"] * total else None


def _proven(facts: Facts, mode: _TickMode, delayed: _DelayedVector, limits: Thresholds) -> Finding:
    share = _time_share(facts, mode.device)
    return Finding(
        id=ID,
        severity=CRITICAL if share >= limits["critical"] else WARNING,
        device=mode.device,
        summary=f"{_begin(mode, delayed.vector)}: it is raised outside of interrupts and runs only when the timer's "
        "interrupt "
        "ends",
        facts=(*_facts(mode, delayed, share), *evidence.raiser(facts, delayed.vector)),
        where=Where("stages", mode.device, low_us=mode.low_us if mode.stage == "total" else None),
        steps=tuple(_steps(facts.device(mode.device), delayed.vector)),
        refuted_by=_REFUTED,
        share=share,
        short=short_text(mode.device, _short(mode), f": {delayed.vector} waits for it"),
    )


def _likely(facts: Facts, mode: _TickMode) -> Finding:
    unknown = "whether they wait for the tick is not known: softirqs are not traced"
    if mode.stage == _SOFTIRQ:
        unknown = "which one, and what raises it, is not in the text"
    return Finding(
        id=ID,
        severity=NOTICE,
        device=mode.device,
        summary=f"{_begin(mode, '')}; {unknown}",
        facts=tuple(_facts(mode, None, None)),
        where=Where("overview", mode.device, low_us=mode.low_us, high_us=mode.high_us),
        steps=(
            Step(
                "trace the softirqs: press S, or start with --stages all",
                "some percent of a CPU while it runs, within the budget",
            ),
        ),
        refuted_by=_REFUTED,
        share=evidence.lost_share(
            mode.ios * mode.us, facts.traced_stage("total", mode.device) or facts.latency(mode.device)
        ),
        short=short_text(mode.device, _short(mode)),
    )


def _begin(mode: _TickMode, vector: str) -> str:
    share, tick = f"{mode.device}: {part(mode.share)}", f"{_ticks(mode)} of 1/{round(1e6 / mode.tick_us)} s"
    if mode.stage != "total":
        return f"{share} of I/Os wait just below {tick} ({spelled(mode.us)}) for the softirq {vector}".rstrip()
    waiting = f", waiting for the softirq {vector}" if vector else ""
    return f"{share} of I/Os take {spelled(mode.us)}, just below {tick}{waiting}"


def _short(mode: _TickMode) -> str:
    verb = "take" if mode.stage == "total" else "wait"
    return f"{part(mode.share)} of I/Os {verb} {_ticks(mode)} ({spelled(mode.us)})"


def _ticks(mode: _TickMode) -> str:
    return "one tick" if mode.ticks == 1 else "two ticks"


def _facts(mode: _TickMode, delayed: _DelayedVector | None, share: float | None) -> Iterator[Fact]:
    hz = round(1e6 / mode.tick_us)
    verb = "take" if mode.stage == "total" else "wait"
    if mode.exact_us is not None:
        text = f"they {verb} {spelled(mode.exact_us)} on average: {mode.exact_us / mode.tick_us:.3f} ticks"
        yield Fact("mode_us", mode.exact_us, text, "us", mode.ios)
    buckets = f"between {spelled(mode.low_us)} and {spelled(mode.high_us)}"
    yield Fact("mode_share", mode.share, f"{part(mode.share)} of I/Os {verb} {buckets}", "share", mode.of)
    yield Fact("hz", hz, f"CONFIG_HZ is {hz}: a tick is {spelled(mode.tick_us)}")
    if share is not None:
        yield Fact("time_share", share, f"{part(share)} of the I/Os' time is that wait", "share", mode.of)
    if delayed is None:
        return
    raised, ran = delayed.runs.raised_in, delayed.runs.ran_in
    for name, n, text, of in (
        ("raised_outside", raised.get("other", 0), "was raised outside of interrupts", sum(raised.values())),
        ("run_by_timer", ran.get("timer", 0), "was run by the timer's interrupt", sum(ran.values())),
        ("waited_a_tick", delayed.waits, f"waited nearly {_ticks(mode)}", delayed.runs.delay.count),
    ):
        yield Fact(name, n, f"{delayed.vector} {text} {n:,} times of {of:,}", "runs", of)


def _steps(device: Device, vector: str) -> Iterator[Step]:
    yield Step(
        f"find what raises {vector}; __raise_softirq_irqoff from a thread wakes no thread, raise_softirq_irqoff wakes "
        "ksoftirqd",
        "a stack per raise costs CPU: some seconds are enough",
        (evidence.raise_stacks(vector),),
    )
    known = _IRDMA if "irdma" in f"{device.driver} {device.controller}" else ""
    yield Step(
        f"run a kernel and a driver of {device.name}'s adapter that wake ksoftirqd there, or that complete in an "
        f"interrupt or a tasklet{known}",
        "a driver built by hand may not load, may crash the kernel or lose connections: try it on a test host",
    )
    yield Step(
        "leave CONFIG_HZ as it is: with more ticks the wait is shorter, but still a wait for the tick",
        "none, it changes nothing",
        ("grep CONFIG_HZ= /boot/config-$(uname -r) || zgrep CONFIG_HZ= /proc/config.gz",),
    )


def _time_share(facts: Facts, device: str) -> float:
    waits = facts.traced_stage(_SOFTIRQ, device)
    return evidence.lost_share(waits.nearest_sum, facts.traced_stage("total", device))


RULE = Rule(
    ID,
    "I/Os take just below one or two timer ticks, and nothing in between",
    evaluate,
    needs=LATENCIES,
    thresholds={
        "below": Threshold(0.05, "share", "a mode so far below 1 or 2 ticks of 1/CONFIG_HZ"),
        "ios": Threshold(20, "ios", "in the mode at least"),
        "share": Threshold(0.01, "share", "of all I/Os in the mode at least; a busy host has some by chance"),
        "narrow": Threshold(3.0, "times", "as many in the mode's buckets as in a neighbour on each side"),
        "raises": Threshold(0.5, "share", "of its softirq's raises outside of interrupts wait so long or longer"),
        "late": Threshold(0.9, "share", "or of its softirq's waits of a quarter of a tick or more end there"),
        "waiting": Threshold(0.5, "share", "of the time of the I/Os in the mode is waiting for the softirq"),
        "most": Threshold(0.5, "share", "of all I/Os in the mode, for a notice where softirqs are not traced"),
        "critical": Threshold(0.9, "share", "of the I/Os' time is that wait: critical"),
    },
)
