"""softirq-delay: slow I/Os wait for the softirq that completes them.

The waits must be in several blocks (minutes, where a long recording is read by minutes): on a busy host ksoftirqd
sometimes waits for a tick, and one burst is not worth a finding. A wait for the timer's tick is tick-quantum, which
explains this one. A device that completes in the hard interrupt has no such stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis.attribution import in_table
from latmon.findings import evidence
from latmon.findings.evidence import Instead, SlowIos, blocks_with, ran_instead, slow_ios
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    TRACED,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    longest_fact,
    setting,
    short_text,
    threads,
    within,
)
from latmon.model.frame import comm_of
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.softirqs import SoftirqRuns
from latmon.support.units import part, spelled

ID = "softirq-delay"
_STAGE = "softirq"
_KSOFTIRQD = "ksoftirqd/"
_REFUTED = (
    "waits of that vector (screen 5) that are short while these I/Os are slow: then the time passes in its run, behind "
    "other completions"
)


class _SlowVector(NamedTuple):
    """The softirq vector that the slow I/Os waited for, and the CPU of its longest wait."""

    name: str
    runs: SoftirqRuns
    cpu: int | None
    instead: Instead
    """The thread that ran instead of ksoftirqd."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device."""
    for device in facts.busy:
        if blocks_with(facts, device, _STAGE, limits["delay_us"]) < limits["blocks"]:
            continue
        slow_waits = next((slow for slow in slow_ios(facts, device) if _waits(slow, limits)), None)
        if slow_waits:
            yield _finding(facts, slow_waits, limits)


def _waits(slow: SlowIos, limits: Thresholds) -> bool:
    return (
        slow.count >= limits["ios"]
        and slow.share(_STAGE) >= limits["tail"]
        and slow.mean_us(_STAGE) >= limits["delay_us"]
    )


def _vector(facts: Facts, device: str) -> _SlowVector | None:
    """Return the device's vector with the longest wait; None where softirqs are not traced."""
    completing_softirq = max(
        evidence.completing_softirqs(facts, device), key=lambda pair: pair[1].delay.max_bound or 0, default=None
    )
    if completing_softirq is None:
        return None
    name, runs = completing_softirq
    cpu = evidence.slowest_cpu(facts, name)
    return _SlowVector(name, runs, cpu, _instead(facts, device, cpu))


def _instead(facts: Facts, device: str, cpu: int | None) -> Instead:
    """Return the thread that ran instead of that CPU's ksoftirqd."""
    thread = f"{_KSOFTIRQD}{cpu}"
    key = in_table(thread, device, {wakeup.thread.comm for wakeup in facts[WAKEUPS].values()})
    return ran_instead(
        (wakeup for wakeup in facts[WAKEUPS].values() if wakeup.thread.comm == key),
        (wait for outlier in facts.outliers(device) for wait in outlier.waits if wait.thread == thread),
    )


def _finding(facts: Facts, slow: SlowIos, limits: Thresholds) -> Finding:
    vector = _vector(facts, slow.device)
    mean = slow.mean_us(_STAGE)
    share = slow.share(_STAGE)
    return Finding(
        id=ID,
        severity=CRITICAL if mean >= limits["critical_us"] else WARNING,
        device=slow.device,
        summary=f"{slow.device}: {slow.share_text(_STAGE)} is a wait for {_name(vector)}, {spelled(mean)} on average"
        f"{_how(vector)}",
        facts=tuple(_facts(facts, slow, vector)),
        where=Where("stages", slow.device, low_us=slow.cut_us),
        steps=tuple(_steps(vector)),
        refuted_by=_REFUTED,
        share=slow.lost_share(facts, _STAGE),
        short=short_text(
            slow.device,
            f"{part(share)} of slow I/Os' time waits for a softirq",
            f", {spelled(mean)} on average",
            f": {within(vector.instead.name)} ran" if vector and vector.instead.us else "",
        ),
    )


def _name(vector: _SlowVector | None) -> str:
    return f"the softirq {vector.name}" if vector else "the softirq that completes them"


def _how(vector: _SlowVector | None) -> str:
    if vector is None:
        return ""
    cpu = f", the longest on CPU {vector.cpu}" if vector.cpu is not None else ""
    if vector.instead.us:
        return f"{cpu}: {vector.instead.who} ran there instead of ksoftirqd"
    if vector.instead.label:
        return f"{cpu}: ksoftirqd ran after {vector.instead.label}"
    by = evidence.ran_by(vector.runs)
    return f"{cpu}; it runs mostly in {by}" if by == "ksoftirqd" else cpu


def _facts(facts: Facts, slow: SlowIos, vector: _SlowVector | None) -> Iterator[Fact]:
    yield Fact("tail_share", slow.share(_STAGE), slow.share_text(_STAGE), "share", slow.count)
    waits = facts.traced_stage(_STAGE, slow.device)
    yield from duration_facts(("wait_mean", slow.mean_us(_STAGE), "each waited {} on average", slow.count))
    yield from longest_fact("wait_max", waits, "the longest wait was {}")
    if vector is None:
        return
    delay = vector.runs.delay
    yield Fact("vector", vector.name, f"{vector.name} completes them")
    yield from duration_facts(("vector_p99", delay.quantile(0.99), "the p99 of all its waits is {}", delay.count))
    for name, counts, verb, where in (
        ("ran_in", vector.runs.ran_in, "run by", evidence.ran_by(vector.runs)),
        ("raised_in", vector.runs.raised_in, "raised by", evidence.raised_by(vector.runs)),
    ):
        if where:
            of = sum(counts.values())
            yield Fact(name, where, f"it is mostly {verb} {where}: {max(counts.values()):,} of {of:,}", of=of)
    yield from evidence.raiser(facts, vector.name)
    if vector.instead.label:
        yield vector.instead.fact


def _steps(vector: _SlowVector | None) -> Iterator[Step]:
    cpu = "" if vector is None or vector.cpu is None else f" of CPU {vector.cpu}"
    if vector and vector.instead.us:
        by = vector.instead.label
        yield Step(
            f"see where {by} runs, and move it to CPUs without interrupts of disks, or lower its priority",
            "its own work gets slower, which may be real-time work",
            (threads(comm_of(by), is_sun=False), "taskset -cp CPUS TID"),
        )
    else:
        yield Step(f"see on screen 5 what delays the softirqs{cpu}: another vector's long runs, or a busy thread")
    yield Step(
        "move the disk's interrupt to another CPU",
        "managed interrupts refuse it; others on the new CPU may wait; gone after a reboot",
        (setting("/proc/irq/N/smp_affinity_list", "LIST"),),
    )


RULE = Rule(
    ID,
    "slow I/Os wait for the softirq that completes them",
    evaluate,
    needs=TRACED,
    traced_part="softirqs",
    thresholds={
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is waiting for their softirq"),
        "delay_us": Threshold(5_000, "us", "that wait, in the slow I/Os' mean; ksoftirqd may wait for a tick"),
        "ios": Threshold(10, "ios", "slow ones at least"),
        "blocks": Threshold(3, "blocks", "of a minute in which there is such a wait"),
        "critical_us": Threshold(500_000, "us", "a mean wait of this makes it critical"),
    },
    explained_by=("tick-quantum",),
)
