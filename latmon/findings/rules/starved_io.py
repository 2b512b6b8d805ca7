"""starved-io: an I/O waits while many later ones are completed.

It fires for a read or write that has waited for `age_us`, or did until it was completed at last, for `times` as long
as its device's p99, and that `overtaken` or more of its device that came later have overtaken (where no probe tells
that: that were completed since). A flush must wait for `flush_us`, and a discard or a command of the drive itself may
take what it takes. Who holds it is said where it is known: the block layer, where a sorting scheduler or disksort
passes over what lies far away, or the driver and what is below.
It fires as well where a device completes nothing at all for `silent_us` while I/Os wait: nobody is overtaken then, the
device hangs, is frozen or suspended. Where nobody tells which operations wait, that is a notice: a format takes hours.
It is critical from `critical_us` on.
It doesn't fire for a load so slow that everything waits (the p99 is as long), nor for a completed one of whose time
less than `held` passed before the completion: other rules are about that. Without a probe that follows requests an age
is only known while nothing completes.

By the ages of what is in flight where a probe follows it or nothing completed, and by the blocks' completions. Judges
nothing but what counts as an I/O that somebody waits for.

Only the oldest and the slowest are told one by one, so they are counted by what counts all: what is in flight by ages,
what was completed by its histograms. Where neither says it, the count is a least one. Knows the thresholds of
starved-io, and no words.

Knows the schedulers of Linux and sd's disksort, and no rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.analysis.issue_order import summary
from latmon.analysis.limits import elevator, number
from latmon.findings.evidence import sd_config
from latmon.findings.facts import Facts
from latmon.findings.finding import (
    CRITICAL,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Step,
    Where,
    plain,
    sd_walk,
    setting,
    sysfs,
)
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Device, Outlier
from latmon.model.histogram import bucket_bounds
from latmon.model.inflight import Aged
from latmon.support.units import spelled

OPS = ("read", "write", "flush")
"""A discard may take what it takes, and a command of the drive itself: a format, a self-test."""


class Silent(NamedTuple):
    """For how long nothing was completed, and what is in flight meanwhile."""

    us: int
    ios: int
    all_along: int
    """Of them those that were in flight all of that time."""
    known: bool
    """One of them is known to be such an operation; gauges alone don't tell."""
    above: bool | None
    """All of them held in the block layer, or in the driver and below; None: both, or not known."""


def silent_of(facts: Facts, name: str, limits: Thresholds) -> Silent | None:
    """Where nothing completes though I/Os wait that should."""
    rows = [one for one in facts.waiting if one.device == name and _counts(one, limits)]
    if not rows:
        return None
    least = [one.age_us for one in rows if one.at_least]
    us = max(least) if least else min(_quiet_us(facts, name), rows[0].age_us)
    if us < limits["silent_us"]:
        return None
    issued = {None if one.request is None or one.request.issued is None else one.request.issued for one in rows}
    above = not issued.pop() if issued in ({True}, {False}) else None
    known = any(one.request is not None and one.age_us >= limits["silent_us"] for one in rows)
    all_along = sum(one.count for one in rows if one.age_us >= us)
    return Silent(us, sum(one.count for one in rows), all_along, known, above)


def _counts(one: Aged, limits: Thresholds) -> bool:
    """Not a discard, nor a flush that isn't late."""
    if one.request is None:
        return True
    return one.request.op in OPS and (one.request.op != "flush" or one.age_us >= limits["flush_us"])


def _quiet_us(facts: Facts, name: str) -> int:
    """Since the last block that completed one, by the kernel's count and what was seen."""
    for one in reversed(facts.blocks):
        told = (*one.kernel.items(), *one.seen.items())
        if any(flow.device == name and done.count for flow, done in told):
            return facts.end_us - one.end_us
    return facts.end_us - facts.blocks[0].begin_us


_HELD = ("queue", "requeue", "hba")
_S = 1_000_000


class Starved(NamedTuple):
    """One I/O that still waits, or did."""

    age_us: int
    op: str
    overtaken: int
    waits: bool
    above: bool | None
    """Held in the block layer; None: not known."""
    comm: str = ""
    pid: int | None = None
    sector: int | None = None
    later: bool = True
    """Those that overtook it came later; else some of them may have been in flight when it came."""


class Number(NamedTuple):
    """How many are starved, and how many of them wait still."""

    ios: int
    waiting: int
    at_least: bool
    """There may be more."""

    @property
    def said(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.ios:,}"


def starved_of(facts: Facts, name: str, limits: Thresholds) -> list[Starved]:
    """Those that are told one by one, the one that waited longest first."""
    usual = facts.latency(name).quantile(0.99)
    if usual is None:
        return []
    each = (*_waiting(facts, name), *_completed(facts, name, limits))
    return sorted((one for one in each if _is_starved(one, usual, limits)), key=lambda one: -one.age_us)


def number_of(facts: Facts, name: str, starved: Sequence[Starved], limits: Thresholds) -> Number:
    """Of all of them; `starved` are those that are told."""
    usual = facts.latency(name).quantile(0.99) or 0
    waiting = sum(one.waits for one in starved)
    now, more = _still(facts, waiting, limits, usual) if waiting else (0, False)
    done, others = _done(facts, name, len(starved) - waiting, limits, usual) if waiting < len(starved) else (0, False)
    return Number(now + done, now, more or others)


def _is_starved(one: Starved, usual: int, limits: Thresholds) -> bool:
    return one.op in OPS and one.age_us >= _shortest(one.op, usual, limits) and one.overtaken >= limits["overtaken"]


def _shortest(op: str, usual: int, limits: Thresholds) -> float:
    return max(limits["flush_us" if op == "flush" else "age_us"], limits["times"] * usual)


def _waiting(facts: Facts, name: str) -> Iterator[Starved]:
    for one in facts.waiting:
        r = one.request
        if one.device == name and r is not None:
            passed = _since(facts, name, one.age_us) if r.overtaken_by is None else r.overtaken_by
            above = None if r.issued is None else not r.issued
            later = r.overtaken_by is not None
            yield Starved(one.age_us, r.op, passed, True, above, r.comm, r.pid, r.sector, later)


def _completed(facts: Facts, name: str, limits: Thresholds) -> Iterator[Starved]:
    for one in facts.outliers(name):
        if one.overtaken_by is not None and _is_held(one, limits):
            age_us = one.total_us - one.stages_us.get("resume", 0)
            queue = one.stages_us.get("queue", 0) + one.stages_us.get("requeue", 0)
            above = queue >= one.stages_us.get("hba", 0) if one.stages_us else None
            yield Starved(age_us, one.op, one.overtaken_by, False, above, one.comm, one.pid, one.sector)


def _is_held(one: Outlier, limits: Thresholds) -> bool:
    """By what is above the completion, as far as its stages are known."""
    held = sum(one.stages_us.get(stage, 0) for stage in _HELD)
    return not one.stages_us or held >= limits["held"] * one.total_us


def _since(facts: Facts, name: str, age_us: int) -> int:
    """All completions in the blocks that began since then: a few of those may have been in flight before it."""
    began = facts.end_us - age_us
    return sum(
        done.count
        for b in facts.blocks
        if b.begin_us >= began
        for flow, done in b.kernel.items()
        if flow.device == name
    )


def _still(facts: Facts, listed: int, limits: Thresholds, usual: int) -> tuple[int, bool]:
    """Of those that wait: ages are counted for all devices together, so only where none but these are listed."""
    older, rows = facts.older, [one for one in facts.waiting if one.age_us > _S]
    if older.get(1, 0) <= sum(one.count for one in rows):
        return listed, False
    counted = [n for s, n in older.items() if s * _S >= _shortest("read", usual, limits)]
    n = max((*counted, listed)) if listed == len(rows) else listed
    return n, n < older.get(1, 0)


def _done(facts: Facts, name: str, listed: int, limits: Thresholds, usual: int) -> tuple[int, bool]:
    """Of those that were completed: histograms have them all, and not who overtook them."""
    told = {
        (one.op, one.overtaken_by is not None and _is_held(one, limits)) for one in _long(facts, name, limits, usual)
    }
    certain = possible = 0
    for op in OPS:
        for index, n in facts.latency(name, op).buckets:
            low, high = bucket_bounds(index, facts.latency(name, op).bits)
            possible += n if high > _shortest(op, usual, limits) else 0
            certain += n if low >= _shortest(op, usual, limits) else 0
    if any(not held for _, held in told):
        return listed, possible > listed
    n = max(certain, listed)
    return n, possible > n


def _long(facts: Facts, name: str, limits: Thresholds, usual: int) -> Iterable[Outlier]:
    return (one for one in facts.outliers(name) if one.op in OPS and one.total_us >= _shortest(one.op, usual, limits))


_SORTING = ("mq-deadline", "bfq", "deadline", "cfq")


def sorter(device: Device) -> str | None:
    """The name of what sorts them; None where nothing is known to."""
    if any(one.name == "un_f_disksort_disabled" and number(one.value) == 0 for one in device.limits):
        return "disksort"
    name = elevator(device.limits)
    return name if name in _SORTING else None


def classes(device: Device) -> bool:
    """Whether its scheduler lets the idle class (ionice) wait for all others."""
    return elevator(device.limits) in ("mq-deadline", "bfq", "cfq")


def unsorting(device: Device) -> Iterator[Step]:
    """Bounded waits for fewer seeks: the trade-off is in the risk."""
    name, at = sorter(device), f"{sysfs(device.name)}/queue"
    if name == "disksort":
        yield from sd_config(
            device,
            "disksort:false",
            "turn disksort off for this product",
            "throughput for a bounded wait: a single spindle seeks more and most I/Os take longer; undone by "
            "taking the line out",
        )
        look = sd_walk(device, "un_f_disksort_disabled")
        yield Step("see that it is off then, un_f_disksort_disabled is 1", commands=(look,))
    elif name is not None:
        yield Step(
            "try without it",
            f"throughput for a bounded wait: a single spindle seeks more; undone by writing {name}",
            (setting(f"{at}/scheduler", "none"),),
        )
    if name in ("mq-deadline", "deadline"):
        yield Step(
            f"or limit how long {name} delays one I/O",
            "more seeks; undone by the old value (16); read_expire and write_expire beside it do the same",
            (setting(f"{at}/iosched/fifo_batch", 1),),
        )


ID = "starved-io"
_REFUTED = "an order of issue in which nobody is passed over, or a device error that is retried (the kernel's log)"
_IDLE = "; or a program of the idle class, which is meant to wait (ionice)"


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device."""
    names = {one.device for one in facts.waiting} | {one.device for one in facts.outliers()}
    for name in sorted(names):
        device = facts.devices.get(name) or Device(name, 0, 0)
        silent = silent_of(facts, name, limits)
        if silent is not None:
            yield _hangs(facts, device, silent, limits)
        elif starved := starved_of(facts, name, limits):
            yield _found(facts, device, starved, limits)


def _found(facts: Facts, device: Device, starved: list[Starved], limits: Thresholds) -> Finding:
    worst, name, number = starved[0], device.name, number_of(facts, device.name, starved, limits)
    return Finding(
        ID,
        CRITICAL if worst.age_us >= limits["critical_us"] else WARNING,
        name,
        f"{name}: {_who(worst, number)} while {_overtaking(worst, alone=number.ios == 1)}; "
        f"{_holder(facts, device, worst, alone=number.ios == 1)}",
        tuple(_facts(facts, device, starved, number)),
        Where("outstanding" if number.waiting else "outliers", name, worst.op, _from_us(starved, number)),
        tuple(_steps(facts, device, worst)),
        _REFUTED + (_IDLE if worst.above is not False and classes(device) else ""),
        1.0,
    )


def _from_us(starved: list[Starved], number: Number) -> int | None:
    """What to see on the map: nothing, where they aren't on it yet."""
    return None if number.waiting else starved[-1].age_us


def _who(worst: Starved, number: Number) -> str:
    """`at least 64 I/Os have waited for up to 1:56 min`."""
    one = number.ios == 1 and not number.at_least
    by = f" of {worst.comm}" if one and worst.comm else ""
    some = f"a {worst.op}{by}" if one else f"{number.said} I/O{'' if number.ios == 1 else 's'}"
    have = ("has " if number.ios == 1 else "have ") if number.waiting else ""
    return f"{some} {have}waited for {'' if one else 'up to '}{spelled(worst.age_us)}"


def _overtaking(worst: Starved, *, alone: bool) -> str:
    """Tell the same number as the facts do: of the one that waited longest."""
    if not worst.later:
        return f"{worst.overtaken:,} were completed meanwhile"
    return f"{worst.overtaken:,} that came later{'' if alone else ' than the oldest'} were completed"


def _holder(facts: Facts, device: Device, worst: Starved, *, alone: bool) -> str:
    it, order = "it" if alone else "the oldest", facts.order(device.name)
    if worst.above is None:
        return f"who held {it} is not known"
    held = "is" if worst.waits else "was"
    if not worst.above:
        return f"{it} {held} in the driver, its adapter or the device"
    if (name := sorter(device)) is None:
        return f"{it} {held} held above the driver"
    does = "sorts by LBA" if order is not None and order.is_sorted else "decides who is next"
    return f"{it} {held} held above the driver, where {name} {does}"


def _facts(facts: Facts, device: Device, starved: list[Starved], number: Number) -> Iterator[Fact]:
    worst, whole_of = starved[0], facts.latency(device.name)
    still = f", {number.waiting:,} of them still" if number.waiting < number.ios else " and still do"
    still = still if number.waiting else ""
    yield Fact("ios", number.ios, f"{number.said} waited so long{still}", "ios", whole_of.count)
    by = f" of {worst.comm}" if worst.comm else ""
    at = f" at sector {worst.sector:,}" if worst.sector is not None else ""
    yield Fact("age_us", worst.age_us, f"the longest: a {worst.op}{by}{at}, {spelled(worst.age_us)}", "us")
    came = "came later than it and were completed" if worst.later else "were completed since it came"
    said = f"{worst.overtaken:,} I/Os of the device {came}"
    yield Fact("overtaken", worst.overtaken, said, "ios")
    usual = whole_of.quantile(0.99)
    if usual is not None:
        said = f"99% of all take {spelled(usual)} or less: it waits {worst.age_us / max(usual, 1):,.0f} times as long"
        yield Fact("p99_us", usual, said, "us", whole_of.count)
    order = facts.order(device.name)
    if order is not None and order.ascending_share is not None:
        said = summary(order).partition(";")[0]  # not the one that waited longest of those: these wait longer
        yield Fact("ascending", round(order.ascending_share, 3), f"order of issue: {said}", "share", order.pairs)


def _hangs(facts: Facts, device: Device, silent: Silent, limits: Thresholds) -> Finding:
    name = device.name
    ios = "1 I/O waits" if silent.ios == 1 else f"{silent.ios:,} I/Os wait"
    where = {None: "", True: " above its driver", False: " in its driver or below"}[silent.above]
    steps = [
        Step(f"read the kernel's log for {name}: timeouts, resets, a path that is gone, frozen or suspended"),
        Step(
            "look at its layers",
            commands=(
                "dmsetup info",
                "multipath -ll",
                f"cat {sysfs(name)}/device/state",
            ),
        ),
    ]
    if facts.is_sun:
        paths = ("iostat -En", "fmadm faulty", "mpathadm list lu")
        steps[1] = Step("look at its paths and errors", commands=paths)
    severity = CRITICAL if silent.us >= limits["critical_us"] else WARNING
    unknown = "" if silent.known else "; which operations they are isn't known here"
    return Finding(
        ID,
        severity if silent.known else NOTICE,
        name,
        f"{name}: nothing has completed for {spelled(silent.us)} though {ios}{where}{unknown}",
        (
            Fact("age_us", silent.us, f"without a completion for {spelled(silent.us)} or longer", "us"),
            Fact("ios", silent.ios, f"in flight: {silent.ios:,}", "ios"),
            Fact("all_along", silent.all_along, f"in flight all of that time: {silent.all_along:,}", "ios"),
        ),
        Where("outstanding", name),
        tuple(steps),
        "a completion in that time, or a device that spins up, formats itself or takes a discard of its whole size",
        1.0,
    )


def _steps(facts: Facts, device: Device, worst: Starved) -> Iterator[Step]:
    name = device.name
    if worst.above is not False:
        if worst.pid is not None and classes(device):
            who = f" of {worst.comm}" if worst.comm else ""
            look = f"ionice -p {worst.pid}"
            yield Step(f"see the I/O class{who}, idle waits for all others", commands=(look,))
        yield from unsorting(device)
    if worst.above is not True:
        yield from _below_sd(device) if facts.is_sun else _below(name)
    yield Step("see who is passed and how the issues are ordered: the screen of outstanding I/O")


def _below(name: str) -> Iterator[Step]:
    """Where the device has put it off, on Linux."""
    look = f"smartctl -x /dev/{name if plain(name) else 'DEVICE'}"
    yield Step(f"read the kernel's log for {name}: errors that are retried, resets, a task abort", commands=(look,))
    yield Step(
        "let the device queue less, so that it can't put one off for as long",
        "fewer IOPS; undone by the old value",
        (setting(f"{sysfs(name)}/device/queue_depth", 8),),
    )


def _below_sd(device: Device) -> Iterator[Step]:
    """The same under sd. With disksort on, a smaller throttle makes sd sort more: both are set together."""
    yield Step("read its errors", commands=("iostat -En", "fmdump -e"))
    yield from sd_config(
        device,
        "throttle-max:2, disksort:false",
        "let a single disk queue less, with disksort off in the same line: with 2 it can't sort by itself",
        "fewer IOPS; undone by taking the line out",
    )


RULE = Rule(ID, "an I/O waits while many that came later are completed", judge)
