"""requeue-storm: a driver refuses a large share of the I/Os, which are sent again.

SCSI drivers requeue when the target answers TASK SET FULL or BUSY, or the adapter is full. The share of the I/Os alone
is no finding: a virtio disk whose ring is full refuses nearly all that a deep queue sends, which costs little time. Nor
is a wait that is longer than the I/Os took in all: their totals lie outside of the minute, and the share is unknown.

Without indirect descriptors a virtio ring has an entry for each segment of an I/O (drivers/block/virtio_blk.c), and a
large I/O a segment for each page, so fewer I/Os at once do not help. Of writes of 1 MiB to a ring of 256 entries 76 to
98 % were refused with any nr_requests from 8 to 256, 15 % with max_sectors_kb 128 or 512 (Linux 6.18).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.analysis.limits import elevator, number
from latmon.findings.evidence import limit_values, mean_bytes
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    NOTICE,
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
    duration_facts,
    setting,
    short_text,
    sysfs,
)
from latmon.model.frame import Device
from latmon.model.histogram import Histogram
from latmon.support.units import part, spelled

ID = "requeue-storm"
_STAGE = "requeue"
_SENT = ("queue_depth", "can_queue", "cmd_per_lun", "sqsize", "nr_tags", "nr_requests")
"""Limits of the number of I/Os that a driver is sent at once."""
_VIRTIO = ("virtio_blk", "virtio-blk")
_LARGE_BYTES = 64 * 1024
_SMALLER_KB = 128
"""32 pages: seven such I/Os fit into a ring of 256 entries."""
_REFUTED = (
    "a device that gets no faster when fewer are sent: then it is slow, and its refusals only show that it is busy"
)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device."""
    for device in facts.busy:
        refused, total = facts.traced_stage(_STAGE, device), facts.traced_stage("total", device)
        if refused.count < max(1, limits["ios"]) or refused.count < limits["share"] * total.count or not total.sum:
            continue
        lost = (refused.sum or 0) / total.sum
        if limits["time"] <= lost <= 1:
            yield _finding(facts, facts.device(device), refused, total, limits)


def _fills_a_ring_by_size(facts: Facts, device: Device) -> bool:
    """Return whether the segments of a few of the device's reads or writes fill a virtio ring."""
    size = max(mean_bytes(facts, device.name, op) for op in ("read", "write"))
    return device.driver in _VIRTIO and size >= _LARGE_BYTES


def _finding(facts: Facts, device: Device, refused: Histogram, total: Histogram, limits: Thresholds) -> Finding:
    share, lost = refused.count / total.count, (refused.sum or 0) / (total.sum or 1)
    driver = f"its driver ({device.driver})" if device.driver else "its driver"
    return Finding(
        id=ID,
        severity=_severity(lost, limits),
        device=device.name,
        summary=f"{device.name}: {driver} refused {part(share)} of the I/Os, which waited "
        f"{spelled(refused.mean or 0.0)} on "
        f"average to be sent again: {part(lost)} of their time",
        facts=tuple(_facts(refused, total, lost, device)),
        where=Where("stages", device.name),
        steps=tuple(_steps(device, is_sun=facts.is_sun, too_large=_fills_a_ring_by_size(facts, device))),
        refuted_by=_REFUTED,
        share=lost,
        short=short_text(
            device.name,
            f"{part(share)} of the I/Os were refused by its driver",
            f", and waited {spelled(refused.mean or 0.0)} on average",
        ),
    )


def _severity(lost: float, limits: Thresholds) -> Severity:
    return CRITICAL if lost >= limits["critical"] else WARNING if lost >= limits["warning"] else NOTICE


def _facts(refused: Histogram, total: Histogram, lost: float, device: Device) -> Iterator[Fact]:
    text = f"{refused.count:,} of {total.count:,} traced I/Os were refused once or more"
    yield Fact("refused", refused.count / total.count, text, "share", total.count)
    yield Fact("time_share", lost, f"{part(lost)} of the I/Os' time is the wait to be sent again", "share", total.count)
    yield from duration_facts(
        ("wait_mean", refused.mean or 0.0, "each waited {} on average", refused.count),
        ("wait_p99", refused.quantile(0.99), "the p99 of the waits is {}", refused.count),
    )
    for limit in device.limits:
        if limit.name in _SENT:
            yield Fact(limit.name, limit.value, f"{limit.name} is {limit.value} ({limit.source})")


def _steps(device: Device, *, is_sun: bool, too_large: bool) -> Iterator[Step]:
    limits, at = limit_values(device), sysfs(device.name)
    if too_large:
        yield _smaller(device)
        return
    log = "egrep -i 'full|busy' /var/adm/messages" if is_sun else "dmesg | grep -iE 'full|busy'"
    yield Step("read the array's log and the kernel's: is a target, a port or a host group full?", commands=(log,))
    if "queue_depth" in limits:
        yield Step(
            "send fewer I/Os at once, until none is refused",
            "less throughput if it is too low; undone by the old value",
            (setting(f"{at}/device/queue_depth", _half(limits["queue_depth"])),),
        )
    elif "nr_requests" in limits:
        has_scheduler = elevator(device.limits) not in (None, "", "none")
        yield Step(
            "send fewer I/Os at once" + ("" if has_scheduler else ", or use a scheduler that queues them"),
            "less throughput if it is too low; undone by the old value",
            (setting(f"{at}/queue/nr_requests", _half(limits["nr_requests"])),),
        )
    else:
        yield Step("let the application send fewer I/Os at once", "less throughput if it is too little")
    yield Step(
        "share the target among fewer hosts, or raise the number of I/Os that it accepts",
        "other hosts use the target too",
    )


def _smaller(device: Device) -> Step:
    """Return the step for I/Os whose segments fill a virtio ring: neither a target nor nr_requests is the reason."""
    now = number(limit_values(device).get("max_sectors_kb", ""))
    if now is not None and now <= _SMALLER_KB:
        return Step("let the application send fewer I/Os at once", "less throughput if it is too little")
    return Step(
        "send smaller I/Os: the segments of a few large ones fill the virtio ring, with any nr_requests; measure the "
        "throughput before and after",
        "more I/Os for the same bytes; undone by the old value",
        (setting(f"{sysfs(device.name)}/queue/max_sectors_kb", _SMALLER_KB),),
    )


def _half(value: int | str) -> str:
    now = number(value)
    return str(max(now // 2, 1)) if now else "N"


RULE = Rule(
    ID,
    "a driver refuses a good part of the I/Os, which are sent again",
    evaluate,
    needs=TRACED,
    thresholds={
        "share": Threshold(0.05, "share", "of the I/Os were refused by the driver and sent again"),
        "ios": Threshold(50, "ios", "so many of them at least"),
        "time": Threshold(0.2, "share", "of all I/Os' time is that wait: a notice"),
        "warning": Threshold(0.5, "share", "of the time: a warning; an adapter that is often busy takes 0.8"),
        "critical": Threshold(0.9, "share", "of the time: nearly all is lost, critical"),
    },
)
