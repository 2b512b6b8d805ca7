"""bottleneck-above-device: I/Os wait above a driver that is far from its configured limit.

The device isn't slow, and a faster one would not help. A full driver is no finding: a load that is too much for
a device queues above it, and should. Nor is a device without a known limit. A driver that has the same depth all of
the time (limits.wall) has no room, whatever its configured limit is: both are named then. outstanding-ceiling,
starved-io and requeue-storm explain this one. Devices that together fill the host adapter's can_queue, while each has
room in its own limit, are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from latmon.analysis.limits import Tuning, ceiling, elevator, host_of, number, wall
from latmon.findings.evidence import (
    AboveDriver,
    above_driver,
    limit_values,
    many,
    mean_bytes,
    mean_split,
    waiting,
    without_scheduler,
)
from latmon.findings.facts import Block, Facts
from latmon.findings.rule import (
    DEPTHS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    setting,
    short_text,
    sysfs,
)
from latmon.model.frame import Device, Limit
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths, mean_depth
from latmon.support.units import part, spelled

ID = "bottleneck-above-device"
_HOSTS = ("can_queue", "nr_tags")
"""Limits of the whole host adapter."""
_REFUTED = (
    "a driver that is full in the moments at which I/Os wait, or a wait that stays where the scheduler is none and no "
    "limit or cgroup throttles I/Os"
)


class _SharedHost(NamedTuple):
    """A host adapter whose can_queue its devices fill together."""

    host: str
    bound: int
    used: float
    devices: tuple[str, ...]


class _WaitingAbove(NamedTuple):
    """A device whose I/Os wait above its driver."""

    device: Device
    bound: Limit
    depths: Depths
    queued: float
    """The mean number of waiting I/Os."""
    above: AboveDriver
    wait_us: int | None
    """The median wait; by Little's law the mean where waits were not timed."""
    shared: _SharedHost | None
    used: int
    """The depth that the driver doesn't exceed during `busy_share` of the busy time."""
    busy_share: float
    walled: int | None
    """The depth that it is limited to for most of the time (limits.wall); None where it has room."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device whose I/Os wait above its driver."""
    hosts = _hosts(facts)
    used_of: dict[str, float] = {}
    for name in sorted(facts.depth_sums):
        device, above = facts.device(name), above_driver(facts, name)
        if above is None or above.share < limits["waiting"] or mean_bytes(facts, name) >= limits["bytes"]:
            continue
        shared = _shared(facts, device, hosts, used_of, limits)
        bound = ceiling(limit for limit in device.limits if shared is None or limit.name not in _HOSTS)
        if bound is None:
            continue
        waits_above = partial(_waits_above, name=name, bound=bound, limits=limits)
        if facts.lasted_us(waits_above) < limits["lasting_us"]:
            continue
        walled = _walled(filter(waits_above, facts.window), name, bound)
        wait_us, depths, nearly = _median_us(facts, name), facts.depths(name), limits["nearly"]
        if wait_us is None or wait_us >= limits["median_us"]:
            queued = waiting(facts, name) or 0.0
            most = used(depths, nearly)
            waiting_above = _WaitingAbove(
                device=device,
                bound=bound,
                depths=depths,
                queued=queued,
                above=above,
                wait_us=wait_us,
                shared=shared,
                used=most,
                busy_share=nearly,
                walled=walled,
            )
            yield _finding(facts, waiting_above)


def _waits_above(block: Block, name: str, bound: Limit, limits: Thresholds) -> bool:
    above, depths = above_driver(block, name), block.depths(name)
    if above is None or above.share < limits["waiting"] or (waiting(block, name) or 0) < limits["queued"]:
        return False
    return used(depths, limits["nearly"]) <= limits["used"] * int(bound.value)


def _walled(blocks: Iterable[Block], name: str, bound: Limit) -> int | None:
    """Return the highest depth that the driver was limited to in these blocks; None where it mostly had room."""
    limited_us, whole_us, highest = 0, 0, 0
    for block in blocks:
        whole_us += block.span_us
        depth = wall(block.depths(name), bound, waiting(block, name))
        if depth is not None:
            limited_us += block.span_us
            highest = max(highest, depth)
    return highest if 2 * limited_us > whole_us else None


def used(depths: Depths, share: float) -> int:
    """Return the depth that the driver doesn't exceed during this share of the busy time."""
    busy = {depth: ms for depth, ms in depths.in_driver.items() if depth}
    remainder = share * sum(busy.values())
    for depth in sorted(busy):
        remainder -= busy[depth]
        if remainder <= 0:
            return depth
    return 0


def _median_us(facts: Facts, name: str) -> int | None:
    """Return the median wait above the driver; the mean by Little's law where none was timed; None without both."""
    timed = _timed(facts, "queue", name)
    if timed:
        return timed.quantile(0.5)
    done, waits = facts.completed(name), mean_depth(facts.depths(name).queued)
    return round(waits * facts.span_us / done.count) if done and done.count else None


def _timed(facts: Facts, stage: str, name: str) -> Histogram:
    return facts.stage(stage, name) or facts.traced_stage(stage, name)


def _hosts(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return the devices of each host adapter, by name."""
    disks_by_host: dict[str, list[str]] = {}
    for device in facts.devices.values():
        disks_by_host.setdefault(host_of(device), []).append(device.name)
    return {host: tuple(sorted(names)) for host, names in disks_by_host.items() if host}


def _shared(
    facts: Facts, device: Device, hosts: Mapping[str, tuple[str, ...]], used_of: dict[str, float], limits: Thresholds
) -> _SharedHost | None:
    """Return the device's host adapter if its devices fill its can_queue; `used_of` caches the sums by adapter."""
    host, settings = host_of(device), limit_values(device)
    bound = ceiling(limit for limit in device.limits if limit.name in ("can_queue", "nr_hw_queues", "host_tagset"))
    peers = hosts.get(host, ())
    if bound is None or Tuning(device, settings).one_by_one or len(peers) < 2:  # noqa: PLR2004 - one alone shares nothing
        return None
    if host not in used_of:
        used_of[host] = sum(mean_depth(facts.depths(name).in_driver) for name in peers)
    in_use, most = used_of[host], int(bound.value)
    return _SharedHost(host, most, in_use, peers) if in_use >= limits["host"] * most else None


def _finding(facts: Facts, waiting_above: _WaitingAbove) -> Finding:
    name, shared, bound = waiting_above.device.name, waiting_above.shared, waiting_above.bound
    why = f"its driver has room: {waiting_above.used:,} of {int(bound.value):,} ({bound.name}) are in use"
    if waiting_above.walled is not None:
        walled, allowed = waiting_above.walled, int(bound.value)
        why = f"its driver is limited to {walled:,} in flight, though {bound.name} allows {allowed:,}"
    if shared is not None:
        why = (
            f"its own limit is not reached, but {len(shared.devices)} devices fill the {shared.bound:,} of "
            f"{shared.host} together (can_queue)"
        )
    return Finding(
        id=ID,
        severity=WARNING,
        device=name,
        summary=f"{name}: {part(waiting_above.above.share)} of the I/Os' time passes above the driver, where "
        f"{many(waiting_above.queued)} wait on average, and {why}",
        facts=tuple(_facts(facts, waiting_above)),
        where=Where("stages", name),
        steps=tuple(_steps(facts, waiting_above.device, shared)),
        refuted_by=_REFUTED,
        share=waiting_above.above.share,
        short=short_text(
            name,
            f"{part(waiting_above.above.share)} of the I/Os' time passes above the driver",
            f", where {many(waiting_above.queued)} wait",
        ),
    )


def _facts(facts: Facts, waiting_above: _WaitingAbove) -> Iterator[Fact]:
    name, depths, bound, shared = (
        waiting_above.device.name,
        waiting_above.depths,
        waiting_above.bound,
        waiting_above.shared,
    )
    yield waiting_above.above.fact
    how = "over all of the time" if any(depths.queued.values()) else "by Little's law, from their times"
    text = f"{many(waiting_above.queued)} wait above the driver on average {how}"
    yield Fact("queued", round(waiting_above.queued, 1), text, "ios")
    most = f"{int(bound.value):,} ({bound.source or bound.name})"
    used, busy = waiting_above.used, part(waiting_above.busy_share)
    text = f"the driver has {used:,} or fewer for {busy} of the busy time; its limit is {most}"
    yield Fact("used", used, text, "ios")
    timed = _timed(facts, "queue", name)
    how = "half of the waits are above {}" if timed else "by Little's law the mean wait is {}"
    yield from duration_facts(("wait_us", waiting_above.wait_us, how, timed.count or None))
    driver, split = _timed(facts, "hba", name), mean_split(facts, name)
    driver_us = driver.mean if driver else split.driver_us if split else None
    if driver_us is not None:
        text = f"in driver and device an I/O takes {spelled(driver_us)} on average"
        yield Fact("driver_us", round(driver_us), text, "us", driver.count or (split.ios if split else None))
    if shared is not None:
        names = ", ".join(shared.devices)
        text = f"{names} have {many(shared.used)} in their drivers together; the limit is {shared.bound:,}"
        yield Fact("host", round(shared.used, 1), text, "ios")
    if (scheduler := elevator(waiting_above.device.limits)) is not None:
        yield Fact("scheduler", scheduler, f"scheduler: {scheduler}")


def _steps(facts: Facts, device: Device, shared: _SharedHost | None) -> Iterator[Step]:
    name, scheduler = device.name, elevator(device.limits)
    if shared is not None:
        names = ", ".join(shared.devices)
        yield Step(
            f"move some of {names} to another adapter, or raise its can_queue by a parameter of its driver",
            "all of its disks are gone while the driver reloads",
        )
    if scheduler is not None and scheduler != "none":
        yield without_scheduler(device, scheduler)
    if number(limit_values(device).get("wbt_lat_usec", 0)):
        yield Step(
            "try without writeback throttling",
            "background writes may slow down reads; undone by the old value",
            (setting(f"{sysfs(name)}/queue/wbt_lat_usec", 0),),
        )
    if facts.is_sun:
        look = "iostat -xn 5"
        yield Step("look at sd's wait queue: where sd throttles, wsvc_t is high and asvc_t low", commands=(look,))
        return
    yield Step(
        "look for a limit on a cgroup: io.max, io.latency, io.weight and io.pressure of the issuing process' cgroup"
    )
    layers = ("dmsetup info", f"cat {sysfs(name)}/device/state")
    yield Step("look for a layer that is frozen or suspended, and read the kernel's log", commands=layers)


RULE = Rule(
    ID,
    "I/Os spend their time above a driver that is far from its configured limit",
    evaluate,
    needs=DEPTHS,
    thresholds={
        "waiting": Threshold(0.8, "share", "of the I/Os' time is spent above the driver"),
        "queued": Threshold(2, "ios", "wait above the driver on average"),
        "used": Threshold(0.5, "share", "of the driver's limit is in use, or less"),
        "nearly": Threshold(0.95, "share", "of the busy time the driver has so many or fewer: its use"),
        "median_us": Threshold(1_000, "us", "the median wait above the driver; a plug or a merge takes less"),
        "lasting_us": Threshold(12_000_000, "us", "of the last minute it was so: longer than a burst"),
        "bytes": Threshold(131_072, "bytes", "an I/O has on average, or more: few fill a ring or link, no finding"),
        "host": Threshold(0.9, "share", "of the host's can_queue is in use by all of its devices: it is full"),
    },
    explained_by=(
        "command-timeouts",
        "outstanding-ceiling",
        "starved-io",
        "requeue-storm",
        "low-io-priority",
        "swap-thrash",
    ),
)
