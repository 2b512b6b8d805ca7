"""What a device's limits come to: the most I/Os that its driver can hold, and whether it is held there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from latmon.model import Device, Limit
from latmon.outstanding import EXACT, Depths, bucket_end

_MOSTLY = 0.5
"""Of the busy moments."""
_STRAY = 0.01
"""Moments above a wall that two gauges read one after the other may show."""
_LEAST_BUSY_MS, _LEAST_BUSY = 1000, 0.05
"""Of fewer moments, or of a smaller part of the intervals with any I/O, nothing is said."""
_COUNTED_ABOVE = ("queue_depth", "un_throttle")
"""Who waits for one of these has a request, and is counted as queued."""
_SD = "un_throttle (sd)"
"""Where that one is from, if nobody says: not from a file."""
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")


def ceiling(limits: Iterable[Limit]) -> Limit | None:
    """The least of what bounds the I/Os in the driver, and where it was read; None where nothing is known to.

    Of equal ones the one that the others can't exceed: the kernel refuses a queue_depth above can_queue.
    Tags are counted per hardware queue unless the host shares one set among them (host_tagset); `can_queue` is then of
    the whole host, and otherwise of each of its queues (include/scsi/scsi_host.h). `nr_requests` are a scheduler's
    tags, which a request holds until it completes (__blk_mq_free_request); without a scheduler it takes that many of
    the driver's tags and no more (blk_mq_update_nr_requests; sysfs goes on to tell all of nr_tags). Queues that are
    only polled (a driver's parameter poll_queues) take no ordinary I/O. `cmd_per_lun` is what queue_depth begins with.
    On Solaris `un_throttle` is what sd has in transport at most (sd.c, sd_start_cmds); others wait in its own queue.
    """
    known = {one.name: one._replace(value=n) for one in limits if (n := number(one.value)) is not None}
    shared = known["host_tagset"].value == 1 if "host_tagset" in known else False
    polled = sum(int(one.value) for name, one in known.items() if name.endswith(".poll_queues"))
    bounds = []
    for name, queues in (
        ("can_queue", "nr_hw_queues"),
        ("nr_tags", "hardware queues"),
        ("queue_depth", ""),
        ("un_throttle", ""),
        ("nr_requests", "hardware queues"),
    ):
        if name in known and (name != "nr_requests" or "nr_tags" in known):  # a dm of bios has one without meaning
            bounds.append(_of_all(known[name], None if shared else known.get(queues), polled))
    least = min(bounds, key=lambda one: int(one.value), default=None)
    return least._replace(source=_SD) if least and least.name == "un_throttle" and not least.source else least


def number(value: int | str) -> int | None:
    """A limit's value where it is a number, be it as a debugger prints it (0x100)."""
    if isinstance(value, int):
        return value
    return int(value, 16) if _HEX.fullmatch(value) else None


def ceilings(device: Device, devices: Mapping[str, Device]) -> dict[str, Limit | None]:
    """Whose limits hold for a device: its own, or those of the disks that a dm or md hands its I/O to, by name."""
    below = [devices[name] for name in device.members if name in devices]
    if device.timed or not below:
        return {device.name: ceiling(device.limits)}
    others = {name: one for name, one in devices.items() if name != device.name}  # a recording may tell of a circle
    return {name: limit for one in below for name, limit in ceilings(one, others).items()}


def wall(depths: Depths, bound: Limit | None = None) -> int | None:
    """The depth at which a driver is held while more I/Os wait above it; None where that isn't seen or not known.

    At most of the busy moments, in ms, it has that many and hardly ever more, and at as many more wait. What is in the
    driver and what is queued are known apart, so that is proved in one of two ways: the moments of both don't fit into
    the intervals with any I/O without coinciding, or more are queued than the driver ever has, which are none that it
    has just done and the kernel not yet. A wall with nothing queued is the application's own: it sends no more.
    The bucket of a depth above 256 is told as `bound` where that lies in it.
    """
    most = _usual(depths)
    if most is None:
        return None
    whole, busy, at = _with_any(depths), _busy(depths), depths.in_driver[most]
    queued = sum(n for depth, n in depths.queued.items() if depth)
    beyond = sum(n for depth, n in depths.queued.items() if depth > most)
    waited = max(at + queued - whole, beyond)
    return within(most, bound) if waited >= _MOSTLY * busy else None


def at_limit(depths: Depths, bound: Limit | None, scheduler: str | int | None = None) -> bool:
    """Whether the driver is at `bound` for most of the busy moments where nobody can tell who waits above it.

    Who waits for a tag without a scheduler, or for one of the scheduler's own, has no request: it is queued nowhere.
    `scheduler` is the setting, None where there is none known.
    """
    most = _usual(depths)
    if bound is None or most is None or within(most, bound) < int(bound.value) or wall(depths, bound) is not None:
        return False
    tags = bound.name not in _COUNTED_ABOVE
    return not depths.queued or bound.name == "nr_requests" or (tags and scheduler in ("none", None))


def within(depth: int, bound: Limit | None) -> int:
    """A depth as it is told; the end of the bucket that the limit lies in is the limit."""
    return int(bound.value) if bound is not None and EXACT < depth == bucket_end(int(bound.value)) else depth


def _usual(depths: Depths) -> int | None:
    """The depth of most busy moments, where there is hardly ever a greater one; None with too few to tell."""
    busy = _busy(depths)
    if busy < max(_LEAST_BUSY_MS, _LEAST_BUSY * _with_any(depths)):
        return None
    most = max((depth for depth in depths.in_driver if depth), key=lambda depth: depths.in_driver[depth])
    above = sum(n for depth, n in depths.in_driver.items() if depth > most)
    return most if depths.in_driver[most] >= _MOSTLY * busy and above <= _STRAY * busy else None


def _with_any(depths: Depths) -> int:
    """Moments of the intervals that saw an I/O."""
    return sum(depths.in_driver.values()) - depths.quiet


def _busy(depths: Depths) -> int:
    return sum(n for depth, n in depths.in_driver.items() if depth)


def _of_all(one: Limit, queues: Limit | None, polled: int) -> Limit:
    n = 1 if queues is None else int(queues.value)
    n = max(n - polled, 1)  # a driver keeps one for all others
    if queues is None or n == 1:
        return one
    return Limit(one.name, int(one.value) * n, f"{one.source} x {n} {queues.name}")


def elevator(limits: Iterable[Limit]) -> str | None:
    """The name of the device's scheduler, `none` without one; None where it isn't known."""
    return next((str(one.value) for one in limits if one.name == "scheduler"), None)
