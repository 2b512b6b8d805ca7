"""What may be off with a setting of a device: one check each, of values alone. Pure.

A default that a kernel or driver chooses for every such device is never off: at most a note says what it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from latmon.limits import ceiling, number
from latmon.model import Device

_LOW_DEPTH = 8
"""Disks that order by themselves, and arrays behind a host adapter, need at least as many to do so."""
_SHARED_LOW = 16
_ALL_TARGETS = 0xFFFF
_DEFAULT_REQUESTS = 128
"""The kernel's own nr_requests is never less than this or the tags (block/blk-mq.h, BLKDEV_DEFAULT_RQ)."""
_SORTING = ("mq-deadline", "bfq", "deadline", "cfq")
_ONE_BY_ONE = ("usb-storage", "ums-", "ata_", "pata_", "sr", "mmc")
"""Drivers whose devices take one command at a time by design, without tags."""
_SERIAL_NAMES = re.compile(r"(?:mmcblk|sr)\d")
"""An SD card's and a CD-ROM's, whose driver may be another's name."""
_ZONED = ("host-managed", "host-aware")
"""A zone takes one write at a time: mq-deadline locks it."""
_OWN_ORDER = ("nvme", "ahci", "sata_", "virtio", "scsi_debug", "uas", "xen", "hv_")
"""Not host adapters in front of arrays."""
_DEPTH = re.compile(r"depth|can_queue|cmd_per_lun|max_queue|queue_size")
"""Parameters of a driver that are numbers of commands; others of its limits are switches."""


class Remark(NamedTuple):
    """What is off with a setting. `note`: worth knowing, and a usual default."""

    id: str
    text: str
    note: bool = False


@dataclass(frozen=True)
class Group:
    """Devices that have something in common, and what their settings come to: looked at once for all of them."""

    devices: tuple[Device, ...] = ()

    @cached_property
    def depths(self) -> tuple[int | str, ...]:
        return tuple(one.value for device in self.devices for one in device.limits if one.name == "queue_depth")

    @cached_property
    def wanted(self) -> int:
        return sum(value for value in self.depths if isinstance(value, int))

    @cached_property
    def highest(self) -> int:
        return max((value for value in self.depths if isinstance(value, int)), default=0)

    @cached_property
    def is_same(self) -> bool:
        return len(set(self.depths)) <= 1


class Seen(NamedTuple):
    """A device as its checks see it."""

    device: Device
    settings: Mapping[str, int | str]
    neighbours: Group = Group()
    """Devices with the same host, itself among them."""
    alike: Group = Group()
    """Devices of the same driver, kind and model, itself among them."""
    had: int | None = None
    """The highest queue_depth that it had of late."""

    def number(self, name: str) -> int | None:
        value = self.settings.get(name)
        return None if value is None else number(value)

    @property
    def one_by_one(self) -> bool:
        """Whether its driver gives it one command after the other by design."""
        zoned = self.settings.get("zoned") in _ZONED
        return zoned or self.driven_by(_ONE_BY_ONE) or _SERIAL_NAMES.match(self.device.name) is not None

    def driven_by(self, names: tuple[str, ...]) -> bool:
        return self.device.driver.startswith(names)


def remarks(name: str, seen: Seen, walls: Mapping[str, int | None]) -> Iterator[Remark]:
    """Of the setting `name`; `walls`: device -> the depth at which its driver is held."""
    if name == "queue_depth":
        yield from _same_on_all(seen, walls)
    if seen.device.driver and name.startswith(f"{seen.device.driver}."):
        yield from _parameter(seen, name)
    remark = _CHECKS[name](seen) if name in _CHECKS else None
    if remark is not None:
        yield remark


def _queue_depth(seen: Seen) -> Remark | None:
    depth, began = seen.number("queue_depth"), seen.number("cmd_per_lun")
    if depth is None or seen.one_by_one:
        return None
    if began is not None and depth < began:
        fell = seen.had is not None and depth < seen.had
        since = f", and was {seen.had}" if fell else ""
        why = f"{depth} is below the {began} that its host begins with (cmd_per_lun){since}"
        return Remark("depth-below-minimum", why, note=depth >= _LOW_DEPTH and not fell and not _is_lowest(seen, depth))
    if seen.driven_by(("ahci", "sata_")) and depth == 1:
        return Remark("depth-low", "1: native command queueing is off, the disk can't order by itself")
    return Remark("depth-low", f"{depth} is too few for a device to order by itself") if depth < _LOW_DEPTH else None


def _is_lowest(seen: Seen, depth: int) -> bool:
    """Whether another such device has more: then it isn't what the driver sets for its kind."""
    return seen.alike.highest > depth


def _throttle(seen: Seen) -> Remark | None:
    """Of sd on illumos and Solaris, which lowers it when the device says that it is full or busy."""
    now, least = seen.number("un_throttle"), seen.number("un_min_throttle")
    began = seen.number("un_saved_throttle")
    if now is None or seen.device.kind != "disk":  # a CD-ROM is sd's too
        return None
    fell = began is not None and 2 * now <= began
    if least is not None and now < least:
        since = f", and was {began} (un_saved_throttle)" if fell else ""
        return Remark("depth-below-minimum", f"{now} is below its own minimum of {least} (un_min_throttle){since}")
    if fell:
        return Remark("depth-low", f"{now} of {began} (un_saved_throttle): sd lowers it for a device that is full")
    return Remark("depth-low", f"{now} is too few for a device to order by itself") if now < _LOW_DEPTH else None


def _opt_queueing(seen: Seen) -> Remark | None:
    """sd.c, sd_unit_attach: set where the adapter has no tags and queues by itself; the throttle is 3 at most then."""
    if seen.number("un_f_opt_queueing") != 1 or seen.device.kind != "disk":
        return None
    return Remark("tagged-queueing-off", "1: tagged queueing is off, only the adapter queues; sd sends it 3 at most")


def _notag(seen: Seen) -> Remark | None:
    """A bit of mpt for each target without tags: all are set at first, and cleared as sd asks for tags."""
    if (seen.number("m_notag") or 0) & _ALL_TARGETS != _ALL_TARGETS:
        return None
    return Remark("tagged-queueing-off", f"{_ALL_TARGETS:#x}: no target of the adapter has tagged queueing")


def _disksort(seen: Seen) -> Remark | None:
    """A default of sd, and right for a disk that is sent one after the other."""
    throttle = seen.number("un_throttle")
    if seen.number("un_f_disksort_disabled") != 0 or seen.device.kind != "disk" or throttle == 1:
        return None
    cached = seen.number("un_f_write_cache_enabled") == 1 or seen.settings.get("write_cache") == "write back"
    before = " before a device with its own cache" if cached else ""
    return Remark("scheduler-sorts", f"0: sd sorts by LBA{before} (disksort): one far away may starve", note=not cached)


def _sqsize(seen: Seen) -> Remark | None:
    entries = seen.number("sqsize")
    low = entries is not None and entries < _SHARED_LOW
    return Remark("depth-low", f"a submission queue of {entries} is too few for NVMe") if low else None


def _queue_type(seen: Seen) -> Remark | None:
    if seen.settings.get("queue_type") != "none" or seen.one_by_one:
        return None
    return Remark("tagged-queueing-off", "none: tagged queueing is off, so it gets one command after the other")


def _wbt(seen: Seen) -> Remark | None:
    target = seen.number("wbt_lat_usec")
    if not target:
        return None
    return Remark("writeback-throttling", f"background writes wait while reads take above {target:,} us", note=True)


def _scheduler(seen: Seen) -> Remark | None:
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


def _nr_requests(seen: Seen) -> Remark | None:
    """Per hardware queue, of all where the host shares its tags among them: as limits.ceiling has it."""
    requests, whole = seen.number("nr_requests"), ceiling(seen.device.limits)
    others = ceiling(one for one in seen.device.limits if one.name != "nr_requests")
    if requests is None or whole is None or others is None or requests >= _DEFAULT_REQUESTS:
        return None
    bound = int(others.value)
    if int(whole.value) >= bound:
        return None
    return Remark("requests-below-depth", f"{requests} can't fill the {bound:,} that the driver takes")


def _can_queue(seen: Seen) -> Remark | None:
    host, n = seen.number("can_queue"), len(seen.neighbours.devices)
    if host is None or n < 2 or seen.one_by_one:  # noqa: PLR2004 - one alone shares nothing
        return None
    queues = 1 if seen.number("host_tagset") == 1 else seen.number("nr_hw_queues") or 1
    whole, wanted = host * queues, seen.neighbours.wanted
    if whole >= wanted:
        return None
    why = f"{n} devices share {whole:,}, and their depths come to {wanted:,}: a busy one takes from all"
    return Remark("host-limit-shared", why, note=whole // n >= _SHARED_LOW)


def _same_on_all(seen: Seen, walls: Mapping[str, int | None]) -> Iterator[Remark]:
    depth, n = seen.number("queue_depth"), len(seen.neighbours.devices)
    if depth is None or depth >= _LOW_DEPTH or n < 2 or not seen.neighbours.is_same or seen.one_by_one:  # noqa: PLR2004
        return
    held = [device.name for device in seen.neighbours.devices if walls.get(device.name) == depth]
    who = f"; only {held[0]} is held at it" if len(held) == 1 else ""
    yield Remark("global-setting", f"{depth} is the same on all {n} devices of its host: it penalises all{who}")


def _parameter(seen: Seen, name: str) -> Iterator[Remark]:
    value = seen.number(name)
    if value and value < _LOW_DEPTH and _DEPTH.search(name):  # 0 and less are "the driver's default"
        yield Remark("global-setting", f"{value} holds for every device of {seen.device.driver}: it penalises all")


def _iostats(seen: Seen) -> Remark | None:
    if seen.number("iostats") != 0 or not seen.device.timed:
        return None
    return Remark("blind", "0: the kernel counts nothing for it, neither I/Os nor what is in flight")


def _rq_affinity(seen: Seen) -> Remark | None:
    if seen.number("rq_affinity") != 0:
        return None
    return Remark("completes-anywhere", "0: I/Os complete on the CPU of the interrupt, not near their issuer")


_CHECKS: Mapping[str, Callable[[Seen], Remark | None]] = {
    "queue_depth": _queue_depth,
    "un_throttle": _throttle,
    "un_f_opt_queueing": _opt_queueing,
    "un_f_disksort_disabled": _disksort,
    "m_notag": _notag,
    "sqsize": _sqsize,
    "queue_type": _queue_type,
    "wbt_lat_usec": _wbt,
    "scheduler": _scheduler,
    "nr_requests": _nr_requests,
    "can_queue": _can_queue,
    "iostats": _iostats,
    "rq_affinity": _rq_affinity,
}
