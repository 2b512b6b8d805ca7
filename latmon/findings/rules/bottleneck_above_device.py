"""bottleneck-above-device: I/Os wait above a driver that has room for them.

It fires where nearly all of the I/Os' time, `waiting`, passes before the driver has them, `queued` of them wait there
in the mean, and the driver uses at most `used` of what it may hold (but for a few of the busy moments: `nearly`), all
of that for `lasting_us` of the last minute.
The median wait must be above `median_us`: a plug or a merge takes less. Then the device isn't what is slow, and a
faster one would help nobody.
It doesn't fire for I/Os of `bytes` and more in the mean: a few of them fill a ring of segments. Nor for a full driver:
a load that is too much for a device queues above it, and should. Nor for one burst, nor where the limit isn't known,
nor beside outstanding-ceiling, starved-io or requeue-storm, which say more.
Devices that share the host adapter's can_queue and fill it together have room each for itself: that is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from latmon.analysis.limits import Seen, ceiling, elevator, host_of, number
from latmon.findings.evidence import Above, above_driver, above_in, depths_in, many, mean, mean_bytes, mean_split
from latmon.findings.facts import Block, Facts
from latmon.findings.finding import WARNING, Fact, Finding, Step, Where, setting, sysfs
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Device, Limit
from latmon.model.inflight import Depths
from latmon.support.units import part, spelled

ID = "bottleneck-above-device"
_HOSTS = ("can_queue", "nr_tags")
"""Limits of the whole host adapter."""
_REFUTED = (
    "a driver that is full in the moments at which I/Os wait, or a wait that stays where the scheduler is none and no "
    "limit or cgroup holds I/Os back"
)


class _Shared(NamedTuple):
    """A host adapter that its devices fill together."""

    host: str
    bound: int
    used: float
    devices: tuple[str, ...]


class _Held(NamedTuple):
    """A device whose I/Os wait above it."""

    device: Device
    bound: Limit
    depths: Depths
    above: Above
    wait_us: int | None
    """The median; by Little's law the mean."""
    shared: _Shared | None
    share: float
    """Of the busy moments the driver has so many or fewer: what it uses."""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device whose I/Os wait above it."""
    hosts = _hosts(facts)
    used_of: dict[str, float] = {}
    for name in sorted(facts.depth_sums):
        device = facts.devices.get(name)
        above = above_driver(facts, name)
        if (
            device is None
            or above is None
            or above.share < limits["waiting"]
            or mean_bytes(facts, name) >= limits["bytes"]
        ):
            continue
        shared = _shared(facts, device, hosts, used_of, limits)
        bound = ceiling(one for one in device.limits if shared is None or one.name not in _HOSTS)
        if bound is None:
            continue
        blocks = [one for one in facts.window if _is_above(one, name, bound, limits)]
        wait_us = _median_us(facts, name)
        if sum(one.measured_us for one in blocks) < limits["lasting_us"]:
            continue
        if wait_us is None or wait_us >= limits["median_us"]:
            yield _finding(facts, _Held(device, bound, facts.depths(name), above, wait_us, shared, limits["nearly"]))


def _is_above(block: Block, name: str, bound: Limit, limits: Thresholds) -> bool:
    above, depths = above_in(block, name), depths_in(block, name)
    if above is None or above.share < limits["waiting"] or mean(depths.queued) < limits["queued"]:
        return False
    return used(depths, limits["nearly"]) <= limits["used"] * int(bound.value)


def used(depths: Depths, share: float) -> int:
    """What the driver has at nearly all of the busy moments, or less."""
    busy = {depth: ms for depth, ms in depths.in_driver.items() if depth}
    rest = share * sum(busy.values())
    for depth in sorted(busy):
        rest -= busy[depth]
        if rest <= 0:
            return depth
    return 0


def _median_us(facts: Facts, name: str) -> int | None:
    """Of the waits, all of them together; by the means of Little's law where none is timed."""
    timed = facts.stage("queue", name)
    if timed:
        return timed.quantile(0.5)
    done, waits = facts.completed(name), mean(facts.depths(name).queued)
    return round(waits * facts.span_us / done.count) if done and done.count else None


def _hosts(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Host adapter -> its devices, by name."""
    found: dict[str, list[str]] = {}
    for one in facts.devices.values():
        found.setdefault(host_of(one), []).append(one.name)
    return {host: tuple(sorted(some)) for host, some in found.items() if host}


def _shared(
    facts: Facts, device: Device, hosts: Mapping[str, tuple[str, ...]], used_of: dict[str, float], limits: Thresholds
) -> _Shared | None:
    """Where the host's can_queue is taken by all of its devices, of which this is one; `used_of` keeps the sums."""
    host, settings = host_of(device), {one.name: one.value for one in device.limits}
    bound = ceiling(one for one in device.limits if one.name in ("can_queue", "nr_hw_queues", "host_tagset"))
    peers = hosts.get(host, ())
    if bound is None or Seen(device, settings).one_by_one or len(peers) < 2:  # noqa: PLR2004 - one alone shares nothing
        return None
    if host not in used_of:
        used_of[host] = sum(mean(facts.depths(name).in_driver) for name in peers)
    together = used_of[host]
    most = int(bound.value)
    return _Shared(host, most, together, peers) if together >= limits["host"] * most else None


def _finding(facts: Facts, held: _Held) -> Finding:
    name, shared, most = held.device.name, held.shared, int(held.bound.value)
    why = f"its driver has room: {used(held.depths, held.share):,} of {most:,} ({held.bound.name}) are in use"
    if shared is not None:
        why = (
            f"its driver has room, but {len(shared.devices)} devices fill the {shared.bound:,} of {shared.host} "
            "together (can_queue)"
        )
    return Finding(
        ID,
        WARNING,
        name,
        f"{name}: {part(held.above.share)} of the I/Os' time passes above the driver, where "
        f"{many(mean(held.depths.queued))} wait in the mean, and {why}",
        tuple(_facts(facts, held)),
        Where("stages", name),
        tuple(_steps(facts, held.device, shared)),
        _REFUTED,
        held.above.share,
    )


def _facts(facts: Facts, held: _Held) -> Iterator[Fact]:
    name, depths, above, shared, share = held.device.name, held.depths, held.above, held.shared, held.share
    yield above.fact
    queued, ms = mean(depths.queued), sum(depths.queued.values())
    yield Fact(
        "queued", round(queued, 1), f"{many(queued)} wait above the driver in the mean of all the time", "ios", ms
    )
    most = f"{int(held.bound.value):,} ({held.bound.source or held.bound.name})"
    said = f"{used(depths, share):,} or fewer in the driver for {part(share)} of the busy time, of {most}"
    yield Fact("used", used(depths, share), said, "ios", sum(depths.in_driver.values()))
    if held.wait_us is not None:
        timed = facts.stage("queue", name)
        how = "half of the waits are above" if timed else "by Little's law the wait in the mean is"
        yield Fact("wait_us", held.wait_us, f"{how} {spelled(held.wait_us)}", "us", timed.count or None)
    driver, split = facts.stage("hba", name), mean_split(facts, name)
    driver_us = driver.mean if driver else split.driver_us if split else None
    if driver_us is not None:
        said = f"from the driver on an I/O takes {spelled(driver_us)} in the mean"
        yield Fact("driver_us", round(driver_us), said, "us", driver.count or (split.ios if split else None))
    if shared is not None:
        said = f"{many(shared.used)} in the drivers of {', '.join(shared.devices)} together, of {shared.bound:,}"
        yield Fact("host", round(shared.used, 1), said, "ios")
    scheduler = elevator(held.device.limits)
    if scheduler is not None:
        yield Fact("scheduler", scheduler, f"scheduler: {scheduler}")


def _steps(facts: Facts, device: Device, shared: _Shared | None) -> Iterator[Step]:
    name, settings = device.name, {one.name: one.value for one in device.limits}
    if shared is not None:
        some = ", ".join(shared.devices)
        yield Step(
            f"move some of {some} to another adapter, or raise its can_queue by a parameter of its driver",
            "all of its disks are gone while the driver is loaded anew",
        )
    scheduler = elevator(device.limits)
    if scheduler not in (None, "none"):
        yield Step(
            "try without the scheduler",
            f"{scheduler} no longer shares the device fairly or sorts for it; undone by its name",
            (setting(f"{sysfs(name)}/queue/scheduler", "none"),),
        )
    if number(settings.get("wbt_lat_usec", 0)):
        yield Step(
            "try without writeback throttling",
            "background writes slow down reads; undone by the old value",
            (setting(f"{sysfs(name)}/queue/wbt_lat_usec", 0),),
        )
    if facts.is_sun:
        look = "iostat -xn 5"
        yield Step("look at sd's wait queue, wsvc_t is high and asvc_t low where sd holds them", commands=(look,))
        return
    yield Step("look for a limit on a cgroup: io.max, io.latency and io.weight of the one that issues, io.pressure")
    layers = ("dmsetup info", f"cat {sysfs(name)}/device/state")
    yield Step("look for a layer that is frozen or suspended, and in the kernel's log", commands=layers)


RULE = Rule(
    ID,
    "I/Os spend their time above a driver that has room for them",
    judge,
    explained_by=("outstanding-ceiling", "starved-io", "requeue-storm"),
)
