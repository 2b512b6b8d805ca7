"""starved-io: an I/O waits while many later ones are completed, or nothing completes while I/Os wait.

A probe counts the I/Os that overtook it; without one, the completions since its arrival are counted. Where none follows
I/Os, Little's law gives a lower bound: what the depths count and no completed I/O explains. It doesn't fire for a load
so slow that everything waits (the p99 is as long). Only the oldest and slowest I/Os are recorded one by one: all are
counted by the ages of I/Os in flight and by histograms; where neither is exact, the finding has "at least".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.analysis.issue_order import summary
from latmon.analysis.limits import elevator, sorter
from latmon.findings.evidence import hardware_steps, kernel_log_facts, kernel_log_step, sd_config, without_scheduler
from latmon.findings.facts import Block, Facts
from latmon.findings.rule import (
    AGE,
    CRITICAL,
    TRACED,
    WARNING,
    Fact,
    Finding,
    Rule,
    Severity,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    sd_walk,
    setting,
    short_text,
    sysfs,
)
from latmon.model.devices import thread_of
from latmon.model.frame import OPS as EVERY_OP
from latmon.model.frame import Completed, Device, Flow, Outlier
from latmon.model.histogram import bucket_bounds
from latmon.model.inflight import PROBE, Aged, Depths, bucket_middle
from latmon.model.measurements import KERNEL, SEEN
from latmon.model.stages import ABOVE_DRIVER
from latmon.support.units import spelled

OPS = ("read", "write", "flush")
"""Ops that may starve; not discards and commands of the drive itself (a format, a self-test), which may be slow."""
_BEFORE_COMPLETION = (*ABOVE_DRIVER, "hba")
_S = 1_000_000
_COUNTED = 0.9
"""Least share of the window whose depths a probe timed."""
_PART = 0.1
"""Least share of the most I/Os in flight: a smaller one may be an error of the depths."""
ID = "starved-io"
WAITING = "waiting"
"""Name of the fact with the least number of I/Os in flight that have waited too long, where nothing follows I/Os."""
_REFUTED = "an order of issue without overtaking, or a device error that is retried (the kernel's log)"
_IDLE = "; or a program of the idle class, which is meant to wait (ionice)"


class SilentDevice(NamedTuple):
    """A device that completes nothing for `us` while I/Os are in flight."""

    us: int
    ios: int
    all_along: int
    """Number of I/Os that were in flight all of that time."""
    known: bool
    """Whether one of them is known to be of OPS; gauges alone don't show the op."""
    above: bool | None
    """Whether all wait in the block layer (True) or in the driver and below (False); None: both, or not known."""


def silent_of(facts: Facts, name: str, limits: Thresholds) -> SilentDevice | None:
    """Return a device that completes nothing while I/Os wait; None where it does, or where not for `silent_us`."""
    rows = [aged for aged in facts.waiting if aged.device == name and _counts(aged, limits)]
    if not rows:
        return None
    least = [aged.age_us for aged in rows if aged.at_least]
    us = max(least) if least else min(_quiet_us(facts, name), rows[0].age_us)
    if us < limits["silent_us"]:
        return None
    issued = {None if aged.request is None or aged.request.issued is None else aged.request.issued for aged in rows}
    above = not issued.pop() if issued in ({True}, {False}) else None
    known = any(aged.request is not None and aged.age_us >= limits["silent_us"] for aged in rows)
    all_along = sum(aged.count for aged in rows if aged.age_us >= us)
    return SilentDevice(us, sum(aged.count for aged in rows), all_along, known, above)


def _counts(aged: Aged, limits: Thresholds) -> bool:
    """Return whether the I/O may starve: not a discard, and not a flush before `flush_us`."""
    if aged.request is None:
        return True
    return aged.request.op in OPS and (aged.request.op != "flush" or aged.age_us >= limits["flush_us"])


def _quiet_us(facts: Facts, name: str) -> int:
    """Return the time since the last block with a completion, by the kernel's and the probe's counters."""
    for block in reversed(facts.blocks):
        if any(done.count for op in EVERY_OP for done in _of_flow(block, Flow(name, op))):
            return facts.end_us - block.end_us
    return facts.end_us - facts.blocks[0].begin_us


def _of_flow(block: Block, flow: Flow) -> Iterator[Completed]:
    """Yield the completions by the kernel's and the probe's counters."""
    yield from (done for table in (block[KERNEL], block[SEEN]) if (done := table.get(flow)) is not None)


class StarvedRequest(NamedTuple):
    """One starved I/O; `waits` where it is in flight."""

    age_us: int
    op: str
    overtaken: int
    waits: bool
    above: bool | None
    """Whether it waits in the block layer; None: not known."""
    comm: str = ""
    pid: int | None = None
    sector: int | None = None
    later: bool = True
    """Whether all of `overtaken` arrived later; else some of them may have been in flight when it arrived."""
    done_us: int | None = None
    """When it was completed, on CLOCK_MONOTONIC; None where it waits."""


class StarvedCount(NamedTuple):
    """The number of starved I/Os, and of those that are in flight."""

    ios: int
    waiting: int
    at_least: bool
    """Whether there may be more."""

    @property
    def text(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.ios:,}"


def starved_of(facts: Facts, name: str, limits: Thresholds) -> list[StarvedRequest]:
    """Return the starved I/Os that are known one by one, the one that waited longest first."""
    usual = facts.latency(name).quantile(0.99)
    if usual is None:
        return []
    requests = (*_waiting(facts, name), *_completed(facts, name, usual, limits))
    return sorted(
        (request for request in requests if _is_starved(request, usual, limits)), key=lambda request: -request.age_us
    )


def count_of(facts: Facts, name: str, starved: Sequence[StarvedRequest], limits: Thresholds) -> StarvedCount:
    """Return the number of all starved I/Os; `starved` are those that are known one by one."""
    usual = facts.latency(name).quantile(0.99) or 0
    listed = sum(request.waits for request in starved)
    now, more = _count_waiting(facts, listed, limits, usual) if listed else (0, False)
    completed = len(starved) - listed
    done, others = _count_completed(facts, name, completed, limits, usual) if completed else (0, False)
    return StarvedCount(now + done, now, more or others)


def _is_starved(request: StarvedRequest, usual: int, limits: Thresholds) -> bool:
    return (
        request.op in OPS
        and request.age_us >= _shortest(request.op, usual, limits)
        and request.overtaken >= limits["overtaken"]
    )


def _shortest(op: str, usual: int, limits: Thresholds) -> float:
    return max(limits["flush_us" if op == "flush" else "age_us"], limits["times"] * usual)


def _waiting(facts: Facts, name: str) -> Iterator[StarvedRequest]:
    for aged in facts.waiting:
        r = aged.request
        if aged.device == name and r is not None:
            later = r.overtaken_by is not None
            overtaken = _completed_since(facts, name, aged.age_us) if r.overtaken_by is None else r.overtaken_by
            above = None if r.issued is None else not r.issued
            yield StarvedRequest(
                age_us=aged.age_us,
                op=r.op,
                overtaken=overtaken,
                waits=True,
                above=above,
                comm=r.comm,
                pid=r.pid,
                sector=r.sector,
                later=later,
            )


def _completed(facts: Facts, name: str, usual: int, limits: Thresholds) -> Iterator[StarvedRequest]:
    for outlier in facts.outliers(name):
        age_us = outlier.total_us - outlier.stages_us.get("resume", 0)
        if age_us < _shortest(outlier.op, usual, limits):  # most: what others did meanwhile need not be counted
            continue
        if _is_followed(facts, outlier) and _waited_before_completion(outlier, limits):
            later = outlier.overtaken_by is not None
            overtaken = (
                outlier.overtaken_by
                if outlier.overtaken_by is not None
                else _completed_between(facts, name, outlier.mono_us, age_us)
            )
            queue = sum(outlier.stages_us.get(stage, 0) for stage in ABOVE_DRIVER)
            above = queue >= outlier.stages_us.get("hba", 0) if outlier.stages_us else None
            done_us = outlier.mono_us + age_us
            yield StarvedRequest(
                age_us=age_us,
                op=outlier.op,
                overtaken=overtaken,
                waits=False,
                above=above,
                comm=outlier.comm,
                pid=outlier.pid,
                sector=outlier.sector,
                later=later,
                done_us=done_us,
            )


def _is_followed(facts: Facts, outlier: Outlier) -> bool:
    """Return whether an outlier is certainly one I/O.

    A script that finds requests by sector (tier C) can take the start of another one, and counts no overtaking.
    """
    return outlier.overtaken_by is not None or facts.is_sun


def _waited_before_completion(outlier: Outlier, limits: Thresholds) -> bool:
    """Return whether enough of its time passed before the completion; True where its stages are not known."""
    before_us = sum(outlier.stages_us.get(stage, 0) for stage in _BEFORE_COMPLETION)
    return not outlier.stages_us or before_us >= limits["held"] * outlier.total_us


def _completed_since(facts: Facts, name: str, age_us: int) -> int:
    """Return all completions in the blocks that began since then; a few may have been in flight before."""
    return _completed_between(facts, name, facts.end_us - age_us, age_us)


def _completed_between(facts: Facts, name: str, began_us: int, age_us: int) -> int:
    """Return all completions in the blocks that lie in a wait of `age_us`."""
    return sum(
        done.count
        for b in facts.blocks
        if b.begin_us >= began_us and b.end_us <= began_us + age_us
        for op in EVERY_OP
        if (done := b[KERNEL].get(Flow(name, op))) is not None
    )


def _count_waiting(facts: Facts, listed: int, limits: Thresholds, usual: int) -> tuple[int, bool]:
    """Return the number of starved I/Os in flight, and whether there may be more.

    Ages are counted over all devices, so they only apply where every listed I/O is one of these.
    """
    older, rows = facts.older, [aged for aged in facts.waiting if aged.age_us > _S]
    if older.get(1, 0) <= sum(aged.count for aged in rows):
        return listed, False
    counted = [n for s, n in older.items() if s * _S >= _shortest("read", usual, limits)]
    n = max((*counted, listed)) if listed == len(rows) else listed
    return n, n < older.get(1, 0)


def _count_completed(facts: Facts, name: str, listed: int, limits: Thresholds, usual: int) -> tuple[int, bool]:
    """Return the number of starved I/Os that completed, and whether there may be more.

    Histograms count all I/Os, but not how many overtook them.
    """
    all_starved = all(
        _is_followed(facts, outlier) and _waited_before_completion(outlier, limits)
        for outlier in facts.outliers(name)
        if outlier.op in OPS and outlier.total_us >= _shortest(outlier.op, usual, limits)
    )
    certain = possible = 0
    for op in OPS:
        for index, n in facts.latency(name, op).buckets:
            low, high = bucket_bounds(index, facts.latency(name, op).bits)
            possible += n if high > _shortest(op, usual, limits) else 0
            certain += n if low >= _shortest(op, usual, limits) else 0
    n = max(certain, listed) if all_starved else listed
    return n, possible > n


class StarvedBound(NamedTuple):
    """At least `ios` I/Os in flight are older than `age_us`, of those that no probe follows."""

    ios: int
    age_us: int
    completed: int
    """I/Os completed in a time as long as the mean of `age_us`."""
    above: bool
    """Whether more wait above the driver than there are."""


def bound_of(facts: Facts, name: str, limits: Thresholds) -> StarvedBound | None:
    """Return how many I/Os have waited too long, by Little's law; None where none certainly has.

    The sum of depths times their time is the time that all I/Os spent in the window. What the completed ones don't
    explain is of those in flight: each spent the whole window in it at most, or the age from which it is too old. In
    flight are at most as many as there ever were.
    """
    if not facts.is_sun:
        return None
    latency, depths, done = facts.latency(name), facts.depths(name), facts.completed(name)
    usual = latency.quantile(0.99)
    if depths.source != PROBE or usual is None or latency.sum is None or done is None:
        return None
    if sum(depths.in_driver.values()) * 1000 < _COUNTED * facts.span_us:
        return None
    age_us, explained_us = int(_shortest("read", usual, limits)), latency.sum * max(1.0, done.count / latency.count)
    bound = _bound_at(facts, depths, done.count, explained_us, age_us)
    if bound is None or bound.completed < limits["overtaken"]:
        return None
    critical_us = max(int(limits["critical_us"]), age_us)
    # later, and of fewer I/Os, it is certain that they have waited for as long as makes it critical
    return _bound_at(facts, depths, done.count, explained_us, critical_us) or bound


def _bound_at(facts: Facts, depths: Depths, completed: int, explained_us: float, age_us: int) -> StarvedBound | None:
    """Return the I/Os in flight that are older than `age_us`; None where too few certainly are.

    `explained_us`: the time that the I/Os completed in the window spent in it, at most.
    """
    span_us = facts.span_us
    if 2 * age_us > span_us:
        return None
    spent_us = [_least(counts) * 1000 for counts in (depths.in_driver, depths.queued)]
    most = max(depths.in_driver, default=0) + max(depths.queued, default=0)
    ios = int((sum(spent_us) - explained_us - most * age_us) / (span_us - age_us))
    if ios < max(2, _PART * most):
        return None
    return StarvedBound(ios, age_us, completed * age_us // span_us, spent_us[1] >= ios * span_us)


def _least(counts: Mapping[int, int]) -> float:
    """Return the sum of depths times their milliseconds; a depth above 256 is the least of its bucket."""
    return sum((2 * bucket_middle(end) - end) * ms for end, ms in counts.items())


def classes(device: Device) -> bool:
    """Return whether its scheduler lets the idle class (ionice) wait for all others."""
    return elevator(device.limits) in ("mq-deadline", "bfq", "cfq")


def unsorting(device: Device) -> Iterator[Step]:
    """Yield steps that turn sorting off: they trade more seeks for bounded waits."""
    name, at = sorter(device), f"{sysfs(device.name)}/queue"
    if name == "disksort":
        yield from sd_config(
            device,
            "disksort:false",
            "turn disksort off for this product",
            "less throughput for a bounded wait: a single spindle seeks more and most I/Os take longer; undone by "
            "removing the line",
        )
        look = sd_walk(device, "un_f_disksort_disabled")
        yield Step("check that it is off: un_f_disksort_disabled is 1", commands=(look,))
    elif name is not None:
        yield without_scheduler(device, name, "less throughput for a bounded wait: a single spindle seeks more")
    if name in ("mq-deadline", "deadline"):
        yield Step(
            f"or limit how long {name} delays one I/O",
            "more seeks; undone by the old value (16); lower read_expire and write_expire have the same effect",
            (setting(f"{at}/iosched/fifo_batch", 1),),
        )


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device."""
    names = {row.device for row in facts.waiting} | {row.device for row in facts.outliers()} | {*facts.depth_sums}
    for name in sorted(names):
        device = facts.device(name)
        silent = silent_of(facts, name, limits)
        if silent is not None:
            yield _silent_finding(facts, device, silent, limits)
        elif starved := starved_of(facts, name, limits):
            yield _starved_finding(facts, device, starved, limits)
        elif bound := bound_of(facts, name, limits):
            yield _bound_finding(facts, device, bound, limits)


def _starved_finding(facts: Facts, device: Device, starved: list[StarvedRequest], limits: Thresholds) -> Finding:
    worst, name, count = starved[0], device.name, count_of(facts, device.name, starved, limits)
    return Finding(
        id=ID,
        severity=CRITICAL if worst.age_us >= limits["critical_us"] else WARNING,
        device=name,
        summary=f"{name}: {_starved_text(worst, count)} while {_overtaken_text(worst, is_single=count.ios == 1)}; "
        f"{_layer_text(facts, device, worst, is_single=count.ios == 1)}",
        facts=tuple(_facts(facts, device, starved, count)),
        # an I/O in flight is not on the latency map yet
        where=Where(
            "outstanding" if count.waiting else "outliers",
            name,
            worst.op,
            None if count.waiting else starved[-1].age_us,
        ),
        steps=tuple(_steps(facts, device, worst)),
        refuted_by=_REFUTED + (_IDLE if worst.above is not False and classes(device) else ""),
        share=1.0,
        short=_short(facts, device, starved, count, spelled(worst.age_us)),
        at=None if worst.done_us is None else facts.moment(worst.done_us),
        peak_us=worst.age_us,
        age_us=worst.age_us if worst.waits else 0,
        short_of_age=_short(facts, device, starved, count, AGE) if worst.waits else "",
    )


def _bound_finding(facts: Facts, device: Device, bound: StarvedBound, limits: Thresholds) -> Finding:
    name = device.name
    worst = StarvedRequest(bound.age_us, "", bound.completed, True, True if bound.above else None)
    place = _place_text(facts, device, worst) if bound.above else ", in which layer is not known"
    waited = f"at least {bound.ios:,} I/Os have waited for {spelled(bound.age_us)} or longer"
    order = facts.order(name)
    facts_of = [
        Fact(WAITING, bound.ios, f"by Little's law {bound.ios:,} in flight are of no I/O that completed", "ios"),
        Fact("completed", bound.completed, f"completed in {spelled(bound.age_us)}: {bound.completed:,}", "ios"),
    ]
    if order is not None and order.ascending_share is not None:
        text = summary(order).partition(";")[0]
        facts_of.append(
            Fact("ascending", round(order.ascending_share, 3), f"order of issue: {text}", "share", order.pairs)
        )
    return Finding(
        id=ID,
        severity=CRITICAL if bound.age_us >= limits["critical_us"] else WARNING,
        device=name,
        summary=f"{name}: {waited} while {bound.completed:,} others were completed; they wait{place}",
        facts=tuple(facts_of),
        where=Where("outstanding", name),
        steps=tuple(_steps(facts, device, worst)),
        refuted_by=_REFUTED,
        share=1.0,
        short=short_text(
            name,
            f"at least {bound.ios:,} I/Os stuck for {spelled(bound.age_us)} or longer",
            _sorting_text(facts, device) or place,
        ),
        age_us=bound.age_us,
    )


def _starved_text(worst: StarvedRequest, count: StarvedCount) -> str:
    """Return the begin of the sentence: `at least 64 I/Os have waited for up to 116 s`."""
    have = ("has " if count.ios == 1 else "have ") if count.waiting else ""
    return f"{_ios_text(worst, count)} {have}waited for {_time_text(worst, count)}"


def _short(facts: Facts, device: Device, starved: list[StarvedRequest], count: StarvedCount, age: str) -> str:
    """Return the short text: how many are stuck, for how long, where or why, and how many overtook them.

    The cause has precedence over the number of others. `age`: that of the oldest in words.
    """
    worst = starved[0]
    were = "" if count.waiting else "was " if count.ios == 1 else "were "
    stuck = f"{_ios_text(worst, count)} {were}stuck for {_up_to(count)}{age}"
    place = _place_of_all(facts, device, starved, count)
    if place and place not in short_text(device.name, stuck, place):
        place = _cause_text(facts, device, worst)
    later = f"; {worst.overtaken:,} later ones overtook" if worst.later else f"; {worst.overtaken:,} overtook"
    return short_text(device.name, stuck, place, later)


def _cause_text(facts: Facts, device: Device, worst: StarvedRequest) -> str:
    """Return what sorts the I/Os of a device in few words; empty where the oldest is not above the driver."""
    if not worst.above:
        return ""
    name = sorter(device)
    return _sorting_text(facts, device) or (f", {name} decides the order" if name else "")


def _sorting_text(facts: Facts, device: Device) -> str:
    """Return what sorts the I/Os of a device by LBA, as their order shows; empty where nothing does."""
    name, order = sorter(device), facts.order(device.name)
    return f", {name} sorts by LBA" if name and order is not None and order.is_sorted else ""


def _ios_text(worst: StarvedRequest, count: StarvedCount) -> str:
    if not _is_one(count):
        return f"{count.text} I/O{'' if count.ios == 1 else 's'}"
    return f"a {worst.op}{f' of {worst.comm}' if worst.comm else ''}"


def _time_text(worst: StarvedRequest, count: StarvedCount) -> str:
    return f"{_up_to(count)}{spelled(worst.age_us)}"


def _up_to(count: StarvedCount) -> str:
    return "" if _is_one(count) else "up to "


def _is_one(count: StarvedCount) -> bool:
    return count.ios == 1 and not count.at_least


def _overtaken_text(worst: StarvedRequest, *, is_single: bool) -> str:
    """Return how many overtook the I/O that waited longest, the number that the facts report."""
    if not worst.later:
        return f"at least {worst.overtaken:,} were completed meanwhile"  # the blocks reach back a few minutes
    return f"{worst.overtaken:,} that came later{'' if is_single else ' than the oldest'} were completed"


def _layer_text(facts: Facts, device: Device, worst: StarvedRequest, *, is_single: bool) -> str:
    subject = "it" if is_single else "the oldest"
    if worst.above is None:
        return f"in which layer {subject} waited is not known"
    waits = "waits" if worst.waits else "waited"
    if not worst.above:
        thread = thread_of(device.name, device.driver)
        below = f"{thread} or what is below it" if thread else "its adapter or the device"
        return f"{subject} {waits} in the driver, {below}"
    return f"{subject} {waits}{_place_text(facts, device, worst)}"


def _place_text(facts: Facts, device: Device, worst: StarvedRequest) -> str:
    """Return the place of the wait in a few words; empty where it is not known."""
    if not worst.above:
        return "" if worst.above is None else " in the driver or below"
    if (name := sorter(device)) is None:
        return " above the driver"
    order = facts.order(device.name)
    does = "sorts by LBA" if order is not None and order.is_sorted else "decides which I/O is next"
    return f" above the driver, where {name} {does}"


def _place_of_all(facts: Facts, device: Device, starved: list[StarvedRequest], count: StarvedCount) -> str:
    """Return the place as `_place_text`, as that of the oldest alone where not all are known to wait there."""
    place = _place_text(facts, device, starved[0])
    all_there = len({request.above for request in starved}) == 1 and count.ios <= len(starved)
    return place if all_there or not place else f", the oldest{place}"


def _facts(facts: Facts, device: Device, starved: list[StarvedRequest], count: StarvedCount) -> Iterator[Fact]:
    worst, whole_of = starved[0], facts.latency(device.name)
    still = f", and {count.waiting:,} of them still wait" if count.waiting < count.ios else " and still wait"
    still = still if count.waiting else ""
    yield Fact("ios", count.ios, f"{count.text} waited so long{still}", "ios", whole_of.count)
    by = f" of {worst.comm}" if worst.comm else ""
    at = f" at sector {worst.sector:,}" if worst.sector is not None else ""
    yield Fact("age_us", worst.age_us, f"the longest wait is {spelled(worst.age_us)}, of a {worst.op}{by}{at}", "us")
    came = "came later than it and were completed" if worst.later else "were completed since it came"
    text = f"{worst.overtaken:,} I/Os of the device {came}"
    yield Fact("overtaken", worst.overtaken, text, "ios")
    usual = whole_of.quantile(0.99)
    if usual is not None:
        text = f"99% of all take {spelled(usual)} or less: it waits {worst.age_us / max(usual, 1):,.0f} times as long"
        yield Fact("p99_us", usual, text, "us", whole_of.count)
    order = facts.order(device.name)
    if order is not None and order.ascending_share is not None:
        text = summary(order).partition(";")[0]  # the rest is the longest wait in the bursts, which is shorter
        yield Fact("ascending", round(order.ascending_share, 3), f"order of issue: {text}", "share", order.pairs)
    yield from kernel_log_facts(facts, device.name)


def _silent_finding(facts: Facts, device: Device, silent: SilentDevice, limits: Thresholds) -> Finding:
    name = device.name
    ios = "1 I/O waits" if silent.ios == 1 else f"{silent.ios:,} I/Os wait"
    where = {None: "", True: " above its driver", False: " in its driver or below"}[silent.above]
    look = Step("look at its layers", commands=("dmsetup info", "multipath -ll", f"cat {sysfs(name)}/device/state"))
    if facts.is_sun:
        look = Step("look at its paths and errors", commands=("iostat -En", "fmadm faulty", "mpathadm list lu"))
    discards = 0 if silent.known else _discards(facts, name)
    # Where ops are unknown it may be a first discard, a format or a drive that spins up.
    is_sure = silent.known or (not discards and silent.us >= limits["critical_us"])
    severity: Severity = CRITICAL if is_sure else WARNING
    maybe = "; they may be discards" if discards else ""
    return Finding(
        id=ID,
        severity=severity,
        device=name,
        summary=f"{name}: nothing has completed for {spelled(silent.us)} though {ios}{where}{maybe}",
        facts=(*_silent_facts(silent, discards), *kernel_log_facts(facts, name)),
        where=Where("outstanding", name),
        steps=(
            kernel_log_step(f"read the kernel's log for {name}: timeouts, resets, a path that is gone or suspended"),
            look,
        ),
        refuted_by=(
            "a completion in that time, or a device that spins up, formats itself or takes a discard of its whole size"
        ),
        share=1.0,
        short=short_text(name, f"nothing completed for {spelled(silent.us)}, and {ios}", where, maybe),
    )


def _discards(facts: Facts, name: str) -> int:
    """Return the discards that the device completed in the last minute: another one may take a minute."""
    done = facts.completed(name, "discard")
    return done.count if done is not None else 0


def _silent_facts(silent: SilentDevice, discards: int) -> Iterator[Fact]:
    yield Fact("age_us", silent.us, f"nothing has completed for {spelled(silent.us)} or longer", "us")
    yield Fact("ios", silent.ios, f"in flight: {silent.ios:,}", "ios")
    yield Fact("all_along", silent.all_along, f"in flight all of that time: {silent.all_along:,}", "ios")
    if not silent.known:
        yield Fact("ops", "not known", "which operations wait is not known: I/Os in flight are only counted")
    if discards:
        yield Fact("discards", discards, f"before that it completed discards, which may be large: {discards:,}", "ios")


def _steps(facts: Facts, device: Device, worst: StarvedRequest) -> Iterator[Step]:
    if worst.above is not False:
        if worst.pid is not None and classes(device):
            of = f" of {worst.comm}" if worst.comm else ""
            look = f"ionice -p {worst.pid}"
            yield Step(f"look at the I/O class{of}: the idle class waits for all others", commands=(look,))
        yield from unsorting(device)
    if worst.above is not True:
        yield from _below_sd(device) if facts.is_sun else _below(facts, device, worst)
    yield Step("see which I/Os are overtaken, and in which order they were issued: screen 3, key i")


def _below(facts: Facts, device: Device, worst: StarvedRequest) -> Iterator[Step]:
    """Yield steps for an I/O that the driver or the device delays, on Linux."""
    name = device.name
    yield kernel_log_step(f"read the kernel's log for {name}: errors that are retried, resets, a task abort")
    look = f"smartctl -x /dev/{name if plain(name) else 'DEVICE'}"
    hardware = (
        Step("read the drive's own log: errors that it retries", commands=(look,)),
        Step(
            "let the device queue fewer I/Os, so that it can't delay one for as long",
            "fewer IOPS; undone by the old value",
            (setting(f"{sysfs(name)}/device/queue_depth", 8),),
        ),
    )
    if worst.above is False and not thread_of(name, device.driver):
        yield from hardware  # this I/O is in the driver or below, whatever others have
    else:
        yield from hardware_steps(facts, name, hardware)


def _below_sd(device: Device) -> Iterator[Step]:
    """Yield steps for an I/O that sd's device delays.

    With disksort on, a smaller throttle makes sd sort more. So both are set.
    """
    yield Step("read the device's errors", commands=("iostat -En", "fmdump -e"))
    yield from sd_config(
        device,
        "throttle-max:2, disksort:false",
        "let a single disk queue fewer I/Os, with disksort off in the same line: with 2 it can't sort by itself",
        "fewer IOPS; undone by removing the line",
    )


RULE = Rule(
    ID,
    "an I/O waits while many that came later are completed",
    evaluate,
    needs=TRACED,
    explained_by=("command-timeouts", "low-io-priority"),
    thresholds={
        "age_us": Threshold(5_000_000, "us", "a read or write waits so long or longer"),
        "flush_us": Threshold(30_000_000, "us", "a flush does: a slow disk takes seconds to empty its cache"),
        "overtaken": Threshold(100, "ios", "that came later and were completed earlier"),
        "times": Threshold(20, "times", "its device's p99, at least"),
        "held": Threshold(0.5, "share", "of a completed one's time passed before its completion, at least"),
        "silent_us": Threshold(10_000_000, "us", "nothing completes while I/Os wait; a disk spins up in less"),
        "critical_us": Threshold(30_000_000, "us", "a wait of this makes it critical: nine minutes were seen"),
    },
)
