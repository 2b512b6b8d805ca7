"""starved-io: an I/O waits while many that came later are completed.

It fires for a read or write that has waited for `age_us`, or did until it was completed at last, for `times` as long
as its device's p99, and that `overtaken` or more of its device that came later have overtaken. A flush must wait for
`flush_us`, and a discard may take what it takes. Who holds it is said where it is known: the block layer, where a
sorting scheduler or disksort passes over what lies far away, or the driver and what is below.
It fires as well where a device completes nothing at all for `silent_us` while I/Os wait: nobody is overtaken then, the
device hangs, is frozen or suspended. It is critical from `critical_us` on.
It doesn't fire for a load so slow that everything waits (the p99 is as long), nor for a wait that the completion took
and not the queue, driver or device: other rules are about that. Without a probe that follows requests an age is only
known while nothing completes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.findings.silence import OPS, Silent, silent_of
from latmon.findings.unsorting import sorter, unsorting
from latmon.lba_order import summary
from latmon.model import Device, Outlier
from latmon.words import spelled

ID = "starved-io"
_HELD = ("queue", "requeue", "hba")
_MOSTLY = 0.5
"""Of its time, before it is completed: else it is not the one who holds it."""
_REFUTED = "an order of issue in which nobody is passed over, or a device error that is retried (the kernel's log)"


class _Starved(NamedTuple):
    """One I/O that still waits, or did."""

    age_us: int
    op: str
    overtaken: int
    waits: bool
    above: bool | None
    """Held in the block layer; None: not known."""
    comm: str = ""
    sector: int | None = None


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device."""
    names = {one.device for one in facts.waiting} | {one.device for one in facts.outliers()}
    for name in sorted(names):
        device = facts.devices.get(name) or Device(name, 0, 0)
        silent = silent_of(facts, name, limits)
        if silent is not None:
            yield _hangs(facts, device, silent, limits)
            continue
        starved = sorted(_starved(facts, name, limits), key=lambda one: -one.age_us)
        if starved:
            yield _found(facts, device, starved, limits)


def _starved(facts: Facts, name: str, limits: Thresholds) -> Iterator[_Starved]:
    usual = facts.latency(name).quantile(0.99)
    if usual is None:
        return
    for one in (*_waiting(facts, name), *_completed(facts, name)):
        least = max(limits["flush_us" if one.op == "flush" else "age_us"], limits["times"] * usual)
        if one.op in OPS and one.age_us >= least and one.overtaken >= limits["overtaken"]:
            yield one


def _waiting(facts: Facts, name: str) -> Iterator[_Starved]:
    for one in facts.waiting:
        request = one.request
        if one.device == name and request is not None:
            passed = request.overtaken_by
            passed = _since(facts, name, one.age_us) if passed is None else passed
            above = None if request.issued is None else not request.issued
            yield _Starved(one.age_us, request.op, passed, True, above, request.comm, request.sector)


def _completed(facts: Facts, name: str) -> Iterator[_Starved]:
    for one in facts.outliers(name):
        if one.overtaken_by is not None and _is_held(one):
            resume = one.stages_us.get("resume", 0)
            queue = one.stages_us.get("queue", 0) + one.stages_us.get("requeue", 0)
            above = queue >= one.stages_us.get("hba", 0) if one.stages_us else None
            yield _Starved(one.total_us - resume, one.op, one.overtaken_by, False, above, one.comm, one.sector)


def _is_held(one: Outlier) -> bool:
    """By what is above the completion, as far as its stages are known."""
    held = sum(one.stages_us.get(stage, 0) for stage in _HELD)
    return not one.stages_us or held >= _MOSTLY * one.total_us


def _since(facts: Facts, name: str, age_us: int) -> int:
    """Completions in the blocks that began since then."""
    began = facts.end_us - age_us
    return sum(
        done.count
        for b in facts.blocks
        if b.begin_us >= began
        for flow, done in b.kernel.items()
        if flow.device == name
    )


def _found(facts: Facts, device: Device, starved: list[_Starved], limits: Thresholds) -> Finding:
    worst, name = starved[0], device.name
    waiting = [one for one in starved if one.waits]
    return Finding(
        ID,
        CRITICAL if worst.age_us >= limits["critical_us"] else WARNING,
        name,
        f"{name}: {_who(starved, waiting)} while {_least(starved)} that came later were completed; "
        f"{_holder(facts, device, worst, alone=len(starved) == 1)}",
        tuple(_facts(facts, device, starved, waiting)),
        Where("outstanding" if waiting else "outliers", name, worst.op, None if waiting else starved[-1].age_us),
        tuple(_steps(facts, device, worst.above)),
        _REFUTED,
        1.0,
    )


def _who(starved: list[_Starved], waiting: list[_Starved]) -> str:
    """`2 I/Os have waited for up to 1:56 min`."""
    worst, n = starved[0], len(starved)
    some = f"a {worst.op}" if n == 1 else f"{n:,} I/Os"
    by = f" of {worst.comm}" if n == 1 and worst.comm else ""
    if not waiting:
        return f"{some}{by} waited for {'' if n == 1 else 'up to '}{spelled(worst.age_us)}"
    have = "has" if n == 1 else "have"
    return f"{some}{by} {have} waited for {'' if n == 1 else 'up to '}{spelled(worst.age_us)}"


def _least(starved: list[_Starved]) -> str:
    fewest = min(one.overtaken for one in starved)
    return f"{fewest:,}" if len(starved) == 1 else f"{fewest:,} or more"


def _holder(facts: Facts, device: Device, worst: _Starved, *, alone: bool) -> str:
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


def _facts(facts: Facts, device: Device, starved: list[_Starved], waiting: list[_Starved]) -> Iterator[Fact]:
    worst, whole_of = starved[0], facts.latency(device.name)
    still = f", {len(waiting):,} of them still" if len(waiting) < len(starved) else " and still do"
    yield Fact("ios", len(starved), f"{len(starved):,} waited so long{still if waiting else ''}", "ios", whole_of.count)
    by = f" of {worst.comm}" if worst.comm else ""
    at = f" at sector {worst.sector:,}" if worst.sector is not None else ""
    yield Fact("age_us", worst.age_us, f"the longest: a {worst.op}{by}{at}, {spelled(worst.age_us)}", "us")
    said = f"{worst.overtaken:,} I/Os of the device came later than it and were completed"
    yield Fact("overtaken", worst.overtaken, said, "ios")
    usual = whole_of.quantile(0.99)
    if usual is not None:
        said = f"99% of all take {spelled(usual)} or less: it waits {worst.age_us / max(usual, 1):,.0f} times as long"
        yield Fact("p99_us", usual, said, "us", whole_of.count)
    order = facts.order(device.name)
    if order is not None and order.ascending_share is not None:
        yield Fact(
            "ascending", round(order.ascending_share, 3), f"order of issue: {summary(order)}", "share", order.pairs
        )


def _hangs(facts: Facts, device: Device, silent: Silent, limits: Thresholds) -> Finding:
    name = device.name
    ios = "1 I/O waits" if silent.ios == 1 else f"{silent.ios:,} I/Os wait"
    where = {None: "", True: " above its driver", False: " in its driver or below"}[silent.above]
    steps = [
        Step(f"read the kernel's log for {name}: timeouts, resets, a path that is gone, frozen or suspended"),
        Step(f"look at its layers: dmsetup info, multipath -ll, /sys/block/{name}/device/state"),
    ]
    if facts.origin.kernel.startswith("SunOS"):
        steps[1] = Step("look at its paths and errors: iostat -En, fmadm faulty, mpathadm list lu")
    return Finding(
        ID,
        CRITICAL if silent.us >= limits["critical_us"] else WARNING,
        name,
        f"{name}: nothing has completed for {spelled(silent.us)} though {ios}{where}",
        (
            Fact("age_us", silent.us, f"without a completion for {spelled(silent.us)} or longer", "us"),
            Fact("ios", silent.ios, f"in flight all of that time: {silent.ios:,}", "ios"),
        ),
        Where("outstanding", name),
        tuple(steps),
        "a completion in that time, or a device that spins up or takes a discard of its whole size",
        1.0,
    )


def _steps(facts: Facts, device: Device, above: bool | None) -> Iterator[Step]:
    name = device.name
    if above is not False:
        yield from unsorting(device)
    if above is not True:
        yield Step(
            f"read the kernel's log for {name}: errors that are retried, resets, a task abort; smartctl -x"
            if not facts.origin.kernel.startswith("SunOS")
            else "read its errors: iostat -En, fmdump -e"
        )
        yield Step(
            "let the device queue less, so that it can't put one off for as long: a smaller queue_depth",
            "fewer IOPS; undone by the old value",
        )
    yield Step("see who is passed and how the issues are ordered: the screen of outstanding I/O")


RULE = Rule(ID, "an I/O waits while many that came later are completed", judge)
