"""requeue-storm: a driver refuses a large share of the I/Os, which are sent again.

It fires when `share` or more of a device's traced I/Os, `ios` at least, came back from their driver and waited to be
sent again, and that wait is `time` or more of the time of all of its I/Os. SCSI drivers do so when the target answers
TASK SET FULL or BUSY or the adapter is full. It is a notice, from `warning` of the time on a warning, and critical
where `critical` of it is lost so.
It doesn't fire on the share of the I/Os alone: a virtio disk whose ring is full refuses nearly all that a deep queue
sends, and that costs little time. Nor does it fire where that wait is longer than the I/Os took in all: then their
totals lie outside of the minute, and their share is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.analysis.attribution import stages_of, total_of
from latmon.analysis.limits import elevator, number
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Fact, Finding, Step, Where, setting, sysfs
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Device
from latmon.model.histogram import Histogram
from latmon.support.units import part, spelled

ID = "requeue-storm"
_STAGE = "requeue"
_SENT = ("queue_depth", "can_queue", "cmd_per_lun", "sqsize", "nr_tags", "nr_requests")
"""Limits that decide how many I/Os a driver is given at once."""
_REFUTED = (
    "a device that gets no faster when fewer are sent: then it is slow, and its refusals only tell that it has enough"
)


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device."""
    for device in facts.busy:
        refused = stages_of(facts.traced, device).get(_STAGE, Histogram())
        total = total_of(facts.traced, device)
        if refused.count < max(1, limits["ios"]) or refused.count < limits["share"] * total.count or not total.sum:
            continue
        lost = (refused.sum or 0) / total.sum
        if limits["time"] <= lost <= 1:
            yield _finding(facts, device, refused, lost, limits)


def _finding(facts: Facts, name: str, refused: Histogram, lost: float, limits: Thresholds) -> Finding:
    total = total_of(facts.traced, name)
    share, mean = refused.count / total.count, refused.mean or 0.0
    device = facts.devices.get(name)
    return Finding(
        ID,
        _severity(lost, limits),
        name,
        f"{name}: {_driver(device)} refused {part(share)} of the I/Os, which waited {spelled(mean)} in the mean to be "
        f"sent again: {part(lost)} of their time",
        tuple(_facts(refused, total, lost, device)),
        Where("stages", name),
        tuple(_steps(name, device, is_sun=facts.is_sun)),
        _REFUTED,
        lost,
    )


def _severity(lost: float, limits: Thresholds) -> str:
    return CRITICAL if lost >= limits["critical"] else WARNING if lost >= limits["warning"] else NOTICE


def _driver(device: Device | None) -> str:
    return f"its driver ({device.driver})" if device and device.driver else "its driver"


def _facts(refused: Histogram, total: Histogram, lost: float, device: Device | None) -> Iterator[Fact]:
    share, mean = refused.count / total.count, refused.mean or 0.0
    told = f"{refused.count:,} of {total.count:,} traced I/Os"
    yield Fact("refused", share, f"{told} were refused once or more", "share", total.count)
    yield Fact("time_share", lost, f"{part(lost)} of the I/Os' time is the wait to be sent again", "share", total.count)
    yield Fact("wait_mean", mean, f"{spelled(mean)} each in the mean", "us", refused.count)
    if (p99 := refused.quantile(0.99)) is not None:
        yield Fact("wait_p99", p99, f"{spelled(p99)} at the p99", "us", refused.count)
    for one in device.limits if device else ():
        if one.name in _SENT:
            yield Fact(one.name, one.value, f"{one.name} is {one.value} ({one.source})")


def _steps(name: str, device: Device | None, *, is_sun: bool) -> Iterator[Step]:
    names = {one.name: one.value for one in device.limits} if device else {}
    sun = "egrep -i 'full|busy' /var/adm/messages"
    log = sun if is_sun else "dmesg | grep -iE 'full|busy'"
    yield Step("read the array's log and the kernel's, is a target, a port or a host group full?", commands=(log,))
    at = sysfs(name)
    if "queue_depth" in names:
        yield Step(
            "send less at once, until nothing is refused",
            "less throughput if it is too low; undone by the old value",
            (setting(f"{at}/device/queue_depth", _half(names["queue_depth"])),),
        )
    elif "nr_requests" in names:
        scheduler = elevator(device.limits) if device else ""
        yield Step(
            "send less at once" + ("" if scheduler and scheduler != "none" else ", or use a scheduler that keeps them"),
            "less throughput if it is too low; undone by the old value",
            (setting(f"{at}/queue/nr_requests", _half(names["nr_requests"])),),
        )
    else:
        yield Step("let the application send less at once", "less throughput if it is too little")
    yield Step("share the target among fewer hosts, or let it take more", "others' load: ask who else uses the target")


def _half(value: int | str) -> str:
    now = number(value)
    return str(max(now // 2, 1)) if now else "N"


RULE = Rule(ID, "a driver refuses a good part of the I/Os, which are sent again", judge)
