"""What a device's limits come to: the most I/Os that its driver can hold, and whether it is held there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from latmon.model import Device, Limit
from latmon.outstanding import Depths

_MOSTLY = 0.5
"""Of the busy moments."""
_STRAY = 0.01
"""Moments above a wall that two gauges read one after the other may show."""


def ceiling(limits: Iterable[Limit]) -> Limit | None:
    """The least of what bounds the I/Os in the driver, and where it was read; None where nothing is known to.

    Of equal ones the one that the others can't exceed: the kernel refuses a queue_depth above can_queue.
    Tags are counted per hardware queue unless the host shares one set among them (host_tagset); `can_queue` is then of
    the whole host, and otherwise of each of its queues (include/scsi/scsi_host.h). `nr_requests` bounds what waits in
    a scheduler; without one it takes that many of the tags and no more (blk_mq_update_nr_requests; sysfs goes on to
    tell all of nr_tags). `cmd_per_lun` is only what queue_depth begins with.
    """
    limits = tuple(limits)
    known = {one.name: one for one in limits if isinstance(one.value, int)}
    shared = known["host_tagset"].value == 1 if "host_tagset" in known else False
    bounds = []
    for name, queues in (("can_queue", "nr_hw_queues"), ("nr_tags", "hardware queues"), ("queue_depth", "")):
        if name in known:
            bounds.append(_of_all(known[name], None if shared else known.get(queues)))
    unsorted = any(one.name == "scheduler" and one.value == "none" for one in limits)
    if unsorted and "nr_tags" in known and "nr_requests" in known:
        bounds.append(_of_all(known["nr_requests"], None if shared else known.get("hardware queues")))
    return min(bounds, key=lambda one: int(one.value), default=None)


def ceilings(device: Device, devices: Mapping[str, Device]) -> dict[str, Limit | None]:
    """Whose limits hold for a device: its own, or those of the disks that a dm or md hands its I/O to, by name."""
    below = [devices[name] for name in device.members if name in devices]
    if device.timed or not below:
        return {device.name: ceiling(device.limits)}
    others = {name: one for name, one in devices.items() if name != device.name}  # a recording may tell of a circle
    return {name: limit for one in below for name, limit in ceilings(one, others).items()}


def wall(depths: Depths) -> int | None:
    """The depth at which a driver is held while more I/Os wait above it; None where that isn't seen or not known.

    At most of the busy moments it has that many and hardly ever more, and at as many something is queued. A wall with
    nothing queued is the application's own: it sends no more.
    """
    busy = {depth: n for depth, n in depths.in_driver.items() if depth and n}
    moments = sum(busy.values())
    if not moments or _queued(depths.queued) < _MOSTLY * moments:
        return None
    most = max(busy, key=lambda depth: busy[depth])
    above = sum(n for depth, n in busy.items() if depth > most)
    return most if busy[most] >= _MOSTLY * moments and above <= _STRAY * moments else None


def _queued(queued: Mapping[int, int]) -> int:
    return sum(n for depth, n in queued.items() if depth)


def _of_all(one: Limit, queues: Limit | None) -> Limit:
    if queues is None or queues.value == 1:
        return one
    return Limit(one.name, int(one.value) * int(queues.value), f"{one.source} x {queues.value} {queues.name}")
