"""softirq-delay: slow I/Os wait for the softirq that completes them.

It fires when the wait from a softirq's raise to the completion is `tail` or more of the slow I/Os' time, `delay_us` or
more in their mean, for `ios` of them at least. There must be such waits in `blocks` blocks of a minute, or in as many
minutes where a long capture is read by minutes: a busy host lets ksoftirqd wait for a tick now and then, and a burst
that comes once is no trouble to look for.
A wait for the timer's tick has a rule of its own (tick-quantum), which explains this one. A device that completes in
the hard interrupt has no such stage. It is critical where the mean is `critical_us`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis.attribution import stages_of
from latmon.findings import evidence
from latmon.findings.evidence import Slow, lasting, slow
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, WARNING, Fact, Finding, Step, Where, setting, threads
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import SoftirqRuns
from latmon.model.histogram import Histogram
from latmon.support.units import part, spelled

ID = "softirq-delay"
_STAGE = "softirq"
_KSOFTIRQD = "ksoftirqd/"
_REFUTED = (
    "waits of that vector (screen 5) that are short while these I/Os are slow: then the time passes in its run, behind "
    "other completions"
)


class _Vector(NamedTuple):
    """The softirq that they waited for, and where its longest wait was."""

    name: str
    runs: SoftirqRuns
    cpu: int | None
    hog: str
    """Who had the CPU instead of ksoftirqd, as comm (prio N); empty when not known."""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device."""
    for device in facts.busy:
        found = next((one for one in slow(facts, device) if _waits(one, limits)), None)
        if found and lasting(facts, device, _STAGE, limits["delay_us"]) >= limits["blocks"]:
            yield _finding(facts, found, limits)


def _waits(one: Slow, limits: Thresholds) -> bool:
    return (
        one.count >= limits["ios"] and one.share(_STAGE) >= limits["tail"] and one.mean_us(_STAGE) >= limits["delay_us"]
    )


def _vector(facts: Facts, device: str) -> _Vector | None:
    """Of the device's the one that waited longest; None where no softirq is watched."""
    found = max(evidence.of_device(facts, device), key=lambda one: one[1].delay.max_bound or 0, default=None)
    if found is None:
        return None
    name, runs = found
    cpu = evidence.latest_cpu(facts, name)
    return _Vector(name, runs, cpu, evidence.hog(facts.outliers(device)) or _instead(facts, cpu))


def _instead(facts: Facts, cpu: int | None) -> str:
    """By the wake-ups of that CPU's ksoftirqd."""
    late = [one for one in facts.wakeups if one.thread.comm == f"{_KSOFTIRQD}{cpu}"]
    return evidence.most((name, n) for one in late for name, n in one.instead.items())


def _finding(facts: Facts, found: Slow, limits: Thresholds) -> Finding:
    vector = _vector(facts, found.device)
    mean = found.mean_us(_STAGE)
    share = found.share(_STAGE)
    return Finding(
        ID,
        CRITICAL if mean >= limits["critical_us"] else WARNING,
        found.device,
        f"{found.device}: {part(share)} of the time of I/Os above {spelled(found.cut_us)} is a wait for "
        f"{_called(vector)}, {spelled(mean)} in the mean{_how(vector)}",
        tuple(_facts(facts, found, vector)),
        Where("stages", found.device, low_us=found.cut_us),
        tuple(_steps(vector)),
        _REFUTED,
        share,
    )


def _called(vector: _Vector | None) -> str:
    return f"the softirq {vector.name}" if vector else "the softirq that completes them"


def _how(vector: _Vector | None) -> str:
    if vector is None:
        return ""
    cpu = f", the longest on CPU {vector.cpu}" if vector.cpu is not None else ""
    if vector.hog:
        return f"{cpu}: {vector.hog} ran there instead of ksoftirqd"
    by = evidence.ran_by(vector.runs)
    return f"{cpu}; it runs mostly in {by}" if by == "ksoftirqd" else cpu


def _facts(facts: Facts, found: Slow, vector: _Vector | None) -> Iterator[Fact]:
    share, mean = found.share(_STAGE), found.mean_us(_STAGE)
    above = f"I/Os above {spelled(found.cut_us)}"
    yield Fact("tail_share", share, f"{part(share)} of the time of {above}", "share", found.count)
    yield Fact("wait_mean", mean, f"{spelled(mean)} each in the mean", "us", found.count)
    waits = stages_of(facts.traced, found.device).get(_STAGE, Histogram())
    if (longest := waits.max_bound) is not None:
        yield Fact("wait_max", longest, f"{spelled(longest)} the longest", "us", waits.count)
    if vector is None:
        return
    delay = vector.runs.delay
    yield Fact("vector", vector.name, f"{vector.name} completes them")
    if (p99 := delay.quantile(0.99)) is not None:
        yield Fact("vector_p99", p99, f"p99 of its waits {spelled(p99)}, of all that raised it", "us", delay.count)
    for name, counts, said in (
        ("ran_in", vector.runs.ran_in, evidence.ran_by(vector.runs)),
        ("raised_in", vector.runs.raised_in, evidence.raised_by(vector.runs)),
    ):
        if said:
            verb = "run by" if name == "ran_in" else "raised by"
            of = sum(counts.values())
            yield Fact(name, said, f"it is mostly {verb} {said}: {max(counts.values()):,} of {of:,}", of=of)
    if vector.hog:
        yield Fact("instead", vector.hog, f"{vector.hog} ran instead of ksoftirqd")


def _steps(vector: _Vector | None) -> Iterator[Step]:
    cpu = "" if vector is None or vector.cpu is None else f" of CPU {vector.cpu}"
    if vector and vector.hog:
        yield Step(
            f"see where {vector.hog} runs, and move it to CPUs that take no interrupts of disks, or lower its priority",
            "its own work gets slower, which may be real-time work",
            (threads(vector.hog, is_sun=False), "taskset -cp CPUS TID"),
        )
    else:
        yield Step(f"look at screen 5 at what keeps the softirqs{cpu}: another vector's long runs, or a busy thread")
    yield Step(
        "move the disk's interrupt to another CPU",
        "managed interrupts refuse it; others on the new CPU may wait; gone after a reboot",
        (setting("/proc/irq/N/smp_affinity_list", "LIST"),),
    )


RULE = Rule(ID, "slow I/Os wait for the softirq that completes them", judge, explained_by=("tick-quantum",))
