"""The limits audit: each device's settings beside what was seen, with a remark on what is off. Pure.

Facts are Device.limits and Frame.depths alone. A default that its kernel or driver chooses for every such device is
never off: at most a note says what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from latmon.limits import ceiling, wall
from latmon.model import Device, Limit
from latmon.outstanding import Depths

FEW = 4
"""A driver that is held at so few is serial, whatever its limit says."""
_LOW_DEPTH = 8
"""Disks that order by themselves, and arrays behind a host adapter, need at least as many to do so."""
_SHARED_LOW = 16
_DEFAULT_REQUESTS = 128
"""The kernel's own nr_requests is never less than this or the tags (block/blk-mq.h, BLKDEV_DEFAULT_RQ)."""
_SORTING = ("mq-deadline", "bfq", "deadline", "cfq")
_ONE_BY_ONE = ("usb-storage", "ums-", "ata_", "pata_", "sr")
"""Drivers whose devices take one command at a time by design, without tags."""
_OWN_ORDER = ("nvme", "ahci", "sata_", "virtio", "scsi_debug", "uas", "xen", "hv_")
"""Not host adapters in front of arrays."""


class Remark(NamedTuple):
    """What is off with a setting. `note`: worth knowing, and a usual default."""

    id: str
    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: a limit or a setting as configured, and what there is to say of it."""

    limit: Limit
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """A device's settings, the bound that they come to, and what it made of them. A None is "not known"."""

    device: str
    settings: tuple[Setting, ...]
    bound: Limit | None = None
    most: int | None = None
    """The most requests in the driver that were seen."""
    usual: int | None = None
    """In the driver at most of the busy moments."""
    queued: int | None = None
    """The most requests that waited above the driver: what could have been sent beside those in it."""
    held_at: int | None = None
    """The depth at which the driver was held while more waited."""
    remarks: tuple[Remark, ...] = ()
    """Of the device as a whole."""

    @property
    def off(self) -> tuple[Remark, ...]:
        """Every remark that is more than a note."""
        return tuple(one for one in (*self.remarks, *(r for s in self.settings for r in s.remarks)) if not one.note)


class _Seen(NamedTuple):
    device: Device
    settings: Mapping[str, int | str]
    bound: Limit | None
    depths: Depths
    held_at: int | None
    neighbours: tuple[Device, ...]
    """Devices with the same host, itself among them."""

    def number(self, name: str) -> int | None:
        value = self.settings.get(name)
        return value if isinstance(value, int) else None

    def driven_by(self, names: tuple[str, ...]) -> bool:
        return self.device.driver.startswith(names)


def audit(devices: Iterable[Device], depths: Mapping[str, Depths]) -> tuple[Audited, ...]:
    """A row per device that has limits, by name; `depths` may be of any length of time."""
    each = sorted((one for one in devices if one.limits), key=lambda one: one.name)
    hosts: dict[str, list[Device]] = {}
    for one in each:
        hosts.setdefault(_host(one), []).append(one)
    walls = {name: wall(one) for name, one in depths.items()}
    return tuple(_audited(one, depths.get(one.name, Depths()), hosts[_host(one)], walls) for one in each)


def _audited(device: Device, depths: Depths, neighbours: list[Device], walls: Mapping[str, int | None]) -> Audited:
    settings = {one.name: one.value for one in device.limits}
    shared = tuple(neighbours) if _host(device) else (device,)
    seen = _Seen(device, settings, ceiling(device.limits), depths, walls.get(device.name), shared)
    busy = {depth: n for depth, n in depths.in_driver.items() if depth and n}
    return Audited(
        device.name,
        tuple(Setting(one, tuple(_remarks(one.name, seen, walls))) for one in device.limits),
        seen.bound,
        depths.highest if depths.in_driver or depths.at_issue else None,
        max(busy, key=lambda depth: busy[depth], default=None),
        max(depths.queued, default=None),
        seen.held_at,
        tuple(_held(seen)),
    )


def _held(seen: _Seen) -> Iterator[Remark]:
    if seen.held_at is None or seen.held_at > FEW:
        return
    n, bound = seen.held_at, seen.bound
    if bound is not None and int(bound.value) <= n:
        yield Remark("ceiling-reached", f"held at its limit of {n} ({bound.source}) while more I/Os waited")
    else:
        known = "no limit is known" if bound is None else f"its limit is {bound.value:,} ({bound.source})"
        yield Remark("ceiling-reached", f"never more than {n} in the driver while more I/Os waited, though {known}")


def _remarks(name: str, seen: _Seen, walls: Mapping[str, int | None]) -> Iterator[Remark]:
    if name == "queue_depth":
        yield from _same_on_all(seen, walls)
    if seen.device.driver and name.startswith(f"{seen.device.driver}."):
        yield from _parameter(seen, name)
    remark = _CHECKS[name](seen) if name in _CHECKS else None
    if remark is not None:
        yield remark


def _queue_depth(seen: _Seen) -> Remark | None:
    depth, began = seen.number("queue_depth"), seen.number("cmd_per_lun")
    if depth is None or seen.driven_by(_ONE_BY_ONE):
        return None
    if began is not None and depth < began:
        return Remark("depth-below-minimum", f"{depth} is below the {began} that its host begins with (cmd_per_lun)")
    if seen.driven_by(("ahci", "sata_")) and depth == 1:
        return Remark("depth-low", "1: native command queueing is off, the disk can't order by itself")
    return Remark("depth-low", f"{depth} is too few for a device to order by itself") if depth < _LOW_DEPTH else None


def _throttle(seen: _Seen) -> Remark | None:
    now, least = seen.number("un_throttle"), seen.number("un_min_throttle")
    if now is None or least is None or now >= least:
        return None
    return Remark("depth-below-minimum", f"{now} is below its own minimum of {least} (un_min_throttle)")


def _sqsize(seen: _Seen) -> Remark | None:
    entries = seen.number("sqsize")
    low = entries is not None and entries < _SHARED_LOW
    return Remark("depth-low", f"a submission queue of {entries} is too few for NVMe") if low else None


def _queue_type(seen: _Seen) -> Remark | None:
    if seen.settings.get("queue_type") != "none" or seen.driven_by(_ONE_BY_ONE):
        return None
    return Remark("tagged-queueing-off", "none: tagged queueing is off, so it gets one command after the other")


def _wbt(seen: _Seen) -> Remark | None:
    target = seen.number("wbt_lat_usec")
    if not target:
        return None
    return Remark("writeback-throttling", f"background writes wait while reads take above {target:,} us", note=True)


def _scheduler(seen: _Seen) -> Remark | None:
    name = seen.settings.get("scheduler")
    if name not in _SORTING or seen.device.kind != "disk":
        return None
    adapter = "can_queue" in seen.settings and not seen.driven_by((*_OWN_ORDER, *_ONE_BY_ONE))
    if seen.device.driver.startswith("nvme"):
        return Remark("scheduler-sorts", f"{name} sorts by LBA, which NVMe gains nothing by: one far away may starve")
    if adapter and (seen.number("queue_depth") or 0) >= _SHARED_LOW:
        why = f"{name} sorts by LBA before an array or disk that orders by itself: one far away may starve"
        return Remark("scheduler-sorts", why, note=name == "mq-deadline")
    if name == "bfq" and seen.number("rotational") == 0:
        return Remark("scheduler-sorts", "bfq on a device that doesn't rotate: it idles for seeks that cost nothing")
    return None


def _nr_requests(seen: _Seen) -> Remark | None:
    requests, queues = seen.number("nr_requests"), seen.number("hardware queues") or 1
    others = ceiling(one for one in seen.device.limits if one.name != "nr_requests")
    if requests is None or others is None or requests >= _DEFAULT_REQUESTS:
        return None
    bound = int(others.value)
    if requests * queues >= bound:
        return None
    return Remark("requests-below-depth", f"{requests} can't fill the {bound:,} that the driver takes")


def _can_queue(seen: _Seen) -> Remark | None:
    host, n = seen.number("can_queue"), len(seen.neighbours)
    if host is None or n < 2 or seen.driven_by(_ONE_BY_ONE):  # noqa: PLR2004 - one alone shares nothing
        return None
    depths = [one.value for device in seen.neighbours for one in device.limits if one.name == "queue_depth"]
    queues = 1 if seen.number("host_tagset") == 1 else seen.number("nr_hw_queues") or 1
    whole, wanted = host * queues, sum(value for value in depths if isinstance(value, int))
    if whole >= wanted:
        return None
    why = f"{n} devices share {whole:,}, and their depths come to {wanted:,}: a busy one takes from all"
    return Remark("host-limit-shared", why, note=whole // n >= _SHARED_LOW)


def _same_on_all(seen: _Seen, walls: Mapping[str, int | None]) -> Iterator[Remark]:
    depth, n = seen.number("queue_depth"), len(seen.neighbours)
    same = {one.value for device in seen.neighbours for one in device.limits if one.name == "queue_depth"}
    if depth is None or depth >= _LOW_DEPTH or n < 2 or len(same) > 1 or seen.driven_by(_ONE_BY_ONE):  # noqa: PLR2004
        return
    held = [device.name for device in seen.neighbours if walls.get(device.name) == depth]
    who = f"; only {held[0]} is held at it" if len(held) == 1 else ""
    yield Remark("global-setting", f"{depth} is the same on all {n} devices of its host: it penalises all{who}")


def _parameter(seen: _Seen, name: str) -> Iterator[Remark]:
    value = seen.number(name)
    if value and value < _LOW_DEPTH:  # 0 and less are "the driver's default"
        yield Remark("global-setting", f"{value} holds for every device of {seen.device.driver}: it penalises all")


def _iostats(seen: _Seen) -> Remark | None:
    if seen.number("iostats") != 0 or not seen.device.timed:
        return None
    return Remark("blind", "0: the kernel counts nothing for it, neither I/Os nor what is in flight")


def _rq_affinity(seen: _Seen) -> Remark | None:
    if seen.number("rq_affinity") != 0:
        return None
    return Remark("completes-anywhere", "0: I/Os complete on the CPU of the interrupt, not near their issuer")


def _host(device: Device) -> str:
    """`host0` of `host0/can_queue`; empty where there is none."""
    return next((one.source.partition("/")[0] for one in device.limits if one.name == "can_queue"), "")


_CHECKS: Mapping[str, Callable[[_Seen], Remark | None]] = {
    "queue_depth": _queue_depth,
    "un_throttle": _throttle,
    "sqsize": _sqsize,
    "queue_type": _queue_type,
    "wbt_lat_usec": _wbt,
    "scheduler": _scheduler,
    "nr_requests": _nr_requests,
    "can_queue": _can_queue,
    "iostats": _iostats,
    "rq_affinity": _rq_affinity,
}
