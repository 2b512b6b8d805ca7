"""starved-io: an I/O waits while many that came later are completed.

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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.findings.commands import plain, setting, sysfs
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Fact, Finding, Step, Where
from latmon.findings.raising import sd_config
from latmon.findings.rule import Rule, Thresholds
from latmon.findings.silence import Silent, silent_of
from latmon.findings.starving import Number, Starved, number_of, starved_of
from latmon.findings.unsorting import classes, sorter, unsorting
from latmon.lba_order import summary
from latmon.model import Device
from latmon.words import spelled

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
