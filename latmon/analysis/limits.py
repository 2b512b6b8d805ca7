"""Limits of devices: the most I/Os in a driver, and an audit of each setting against the measured depths.

There is a check per setting, whose input is Device.limits and Frame.depths. A default that a kernel or driver sets for
all devices of a kind is never wrong: at most a note describes its effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import MOUNTED_DIRSYNC, MOUNTED_SYNC, Device, Limit, Settings
from latmon.model.inflight import EXACT, Depths, bucket_end

_MOSTLY = 0.5
"""Share of the busy samples."""
_STRAY = 0.01
"""Share of samples above a wall that is tolerated, because two gauges are not read at the same time."""
_LEAST_BUSY_MS, _LEAST_BUSY = 1000, 0.05
"""Least busy time, absolute and as a share of the intervals with any I/O, for a statement."""
_COUNTED_ABOVE = ("queue_depth", "un_throttle")
"""I/Os that wait because of one of these limits have a request, and are counted as queued."""
_SD = "un_throttle (sd)"
"""Source of un_throttle where none is given, because it is not read from a file."""
_BOUNDS = MappingProxyType(
    {
        "can_queue": "nr_hw_queues",
        "nr_tags": "hardware queues",
        "queue_depth": "",
        "un_throttle": "",
        "nr_requests": "hardware queues",
    }
)
"""Limit of the I/Os in a driver -> the number of queues that have so many each."""
_OF_CEILING = frozenset({*_BOUNDS, *_BOUNDS.values(), "host_tagset"})
_POLLED = ".poll_queues"
_C_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[1-9][0-9]{0,8}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_LOW_DEPTH = 8
"""Least depth for disks that order requests by themselves, and for arrays at a host adapter."""
_SHARED_LOW = 16
_ALL_TARGETS = 0xFFFF
_MAX_THROTTLES = ("sd_max_throttle", "ssd_max_throttle")
_DEFAULT_THROTTLE = 256
"""SD_MAX_THROTTLE of illumos (uts/common/sys/scsi/targets/sddef.h), the default of both."""
_DEFAULT_REQUESTS = 128
"""The kernel's default of nr_requests is not below this or the number of tags (block/blk-mq.h, BLKDEV_DEFAULT_RQ)."""
_SMALL_REQUEST_KIB = 32
"""No disk of today takes less: 128 KiB is the least of SATA (LBA28), and the kernel's own bound is 1280 KiB or more."""
_SORTING = ("mq-deadline", "bfq", "deadline", "cfq")
_ONE_BY_ONE = ("usb-storage", "ums-", "ata_", "pata_", "sr", "mmc")
"""Drivers whose devices take one command at a time by design, without tags."""
_SERIAL_NAMES = re.compile(r"(?:mmcblk|sr)\d")
"""Names of SD cards and CD-ROMs, whose driver has various names."""
_ZONED = ("host-managed", "host-aware")
"""Zoned devices: a zone accepts one write at a time, and mq-deadline locks it."""
_OWN_ORDER = ("nvme", "ahci", "sata_", "virtio", "scsi_debug", "uas", "xen", "hv_")
"""Drivers that are no host adapters of arrays."""
_DEPTH = re.compile(r"depth|can_queue|cmd_per_lun|max_queue|queue_size")
"""Parameters of a driver that are numbers of commands; others of its limits are switches."""
FEW = 4
"""A driver that is limited to so few is serial, whatever its limit is."""


def ceiling(limits: Iterable[Limit]) -> Limit | None:
    """Return the lowest upper bound of the I/Os in the driver with its source; None where none is known.

    Of equal limits it is the one that the others can't exceed: the kernel refuses a queue_depth above can_queue.
    Tags are counted per hardware queue unless the host shares one set among them (host_tagset); `can_queue` applies to
    the whole host then, and otherwise to each queue (include/scsi/scsi_host.h). `nr_requests` is the number of a
    scheduler's tags, which a request has until it completes (__blk_mq_free_request); without a scheduler it limits the
    driver's tags in use (blk_mq_update_nr_requests), while nr_tags in sysfs doesn't change. Queues that are only polled
    (a driver's parameter poll_queues) get no ordinary I/O. `cmd_per_lun` is the initial queue_depth. On Solaris
    `un_throttle` limits the commands that sd has in transport (sd.c, sd_start_cmds); others wait in sd's queue.
    """
    ceiling_limits = (limit for limit in limits if limit.name in _OF_CEILING or limit.name.endswith(_POLLED))
    known = {limit.name: limit._replace(value=n) for limit in ceiling_limits if (n := number(limit.value)) is not None}
    shared = known["host_tagset"].value == 1 if "host_tagset" in known else False
    polled = sum(int(limit.value) for name, limit in known.items() if name.endswith(_POLLED))
    bounds = []
    for name, queues in _BOUNDS.items():
        if name in known and (name != "nr_requests" or "nr_tags" in known):  # a dm of bios has one without meaning
            bounds.append(_of_all(known[name], None if shared else known.get(queues), polled))
    least = min(bounds, key=lambda limit: int(limit.value), default=None)
    return least._replace(source=_SD) if least and least.name == "un_throttle" and not least.source else least


def number(value: int | str) -> int | None:
    """Return a limit's value where it is a number, also in the notation of a debugger (0x100)."""
    if isinstance(value, int):
        return value
    return int(value, 16) if _HEX.fullmatch(value) else None


def ceilings(device: Device, devices: Mapping[str, Device]) -> dict[str, Limit | None]:
    """Return the limits that apply to a device, by device name: its own, or those of the disks below a dm or md."""
    below = [devices[name] for name in device.members if name in devices]
    if device.timed or not below:
        return {device.name: ceiling(device.limits)}
    others = {
        name: other_device for name, other_device in devices.items() if name != device.name
    }  # a recording may contain a circle
    return {name: limit for device in below for name, limit in ceilings(device, others).items()}


def wall(depths: Depths, bound: Limit | None = None, waiting: float | None = None) -> int | None:
    """Return the depth that a driver is limited to while more I/Os wait above it; None where there is none or no proof.

    The driver has this depth for most of the busy samples and hardly ever more, while others are queued for as long.
    Depths in the driver and queued are sampled separately, so there are two proofs: the samples of both don't fit into
    the intervals with any I/O without coinciding; or more are queued than the driver ever has, so these can't be
    completed requests that the kernel has not processed yet. Without queued I/Os the application sends no more. Where
    these aren't sampled, `waiting` is their mean number, which is the second proof alone: a queue that is stopped and
    started holds no more than the driver has after it. A depth above 256 is the end of a bucket, and is returned as
    `bound` where that lies in the bucket. At nr_requests there is no proof: I/Os that wait for one of these requests
    aren't counted (at_limit). Above it neither function states anything: the setting was changed and not read since.
    """
    usual = _usual(depths)
    if usual is None or (
        bound is not None and bound.name == "nr_requests" and within(usual, bound) >= int(bound.value)
    ):
        return None
    if not depths.queued:
        return within(usual, bound) if waiting is not None and waiting > usual else None
    total, busy, at = _with_any(depths), _busy(depths), depths.in_driver[usual]
    queued = sum(n for depth, n in depths.queued.items() if depth)
    beyond = sum(n for depth, n in depths.queued.items() if depth > usual)
    waited = max(at + queued - total, beyond)
    return within(usual, bound) if waited >= _MOSTLY * busy else None


def at_limit(
    depths: Depths, bound: Limit | None, scheduler: str | int | None = None, waiting: float | None = None
) -> bool:
    """Return whether the driver is at `bound` for most of the busy samples, while waiting I/Os can't be counted.

    I/Os that wait for a tag, without a scheduler or for one of the scheduler's, have no request and are not counted.
    `scheduler` is the setting, None where it isn't known; `waiting` as for `wall`.
    """
    usual = _usual(depths)
    if bound is None or usual is None or within(usual, bound) != int(bound.value):
        return False  # a greater depth: the setting was changed and not read since, or isn't the limit
    if wall(depths, bound, waiting) is not None:
        return False
    tags = bound.name not in _COUNTED_ABOVE
    return not depths.queued or bound.name == "nr_requests" or (tags and scheduler in ("none", None))


def within(depth: int, bound: Limit | None) -> int:
    """Return a depth to show: the limit for the end of the bucket that contains it."""
    return int(bound.value) if bound is not None and EXACT < depth == bucket_end(int(bound.value)) else depth


def _usual(depths: Depths) -> int | None:
    """Return the depth of most busy samples, if hardly any is greater; None with too few samples."""
    busy = _busy(depths)
    if busy < max(_LEAST_BUSY_MS, _LEAST_BUSY * _with_any(depths)):
        return None
    most = max((depth for depth in depths.in_driver if depth), key=lambda depth: depths.in_driver[depth])
    above = sum(n for depth, n in depths.in_driver.items() if depth > most)
    return most if depths.in_driver[most] >= _MOSTLY * busy and above <= _STRAY * busy else None


def _with_any(depths: Depths) -> int:
    """Return the samples of the intervals with any I/O."""
    return sum(depths.in_driver.values()) - depths.quiet


def _busy(depths: Depths) -> int:
    return sum(n for depth, n in depths.in_driver.items() if depth)


def _of_all(limit: Limit, queues: Limit | None, polled: int) -> Limit:
    n = 1 if queues is None else int(queues.value)
    n = max(n - polled, 1)  # a driver has at least one for ordinary I/O
    if queues is None or n == 1:
        return limit
    return Limit(limit.name, int(limit.value) * n, f"{limit.source} x {n} {queues.name}")


def elevator(limits: Iterable[Limit]) -> str | None:
    """Return the name of the device's scheduler, `none` without one; None where it isn't known."""
    return next((str(limit.value) for limit in limits if limit.name == "scheduler"), None)


def sorter(device: Device) -> str | None:
    """Return the name of what sorts the device's I/Os: disksort or a scheduler; None where nothing is known to."""
    if any(limit.name == "un_f_disksort_disabled" and number(limit.value) == 0 for limit in device.limits):
        return "disksort"
    name = elevator(device.limits)
    return name if name in _SORTING else None


REQUESTS, SMALL_REQUESTS = "requests-below-depth", "requests-small"
"""Remarks on a low nr_requests, and on a low max_sectors_kb."""


class Advice(NamedTuple):
    """A remark on a setting. `note`: it is a usual default, and worth knowing."""

    id: str
    text: str
    note: bool = False


@dataclass(frozen=True)
class DeviceGroup:
    """Devices that share something, with sums over their settings that are computed once."""

    devices: tuple[Device, ...] = ()

    @cached_property
    def depths(self) -> tuple[int | str, ...]:
        return tuple(limit.value for device in self.devices for limit in device.limits if limit.name == "queue_depth")

    @cached_property
    def wanted(self) -> int:
        return sum(value for value in self.depths if isinstance(value, int))

    @cached_property
    def highest(self) -> int:
        return max((value for value in self.depths if isinstance(value, int)), default=0)

    @cached_property
    def is_same(self) -> bool:
        return len(set(self.depths)) <= 1


class Tuning(NamedTuple):
    """Input of the checks of one device."""

    device: Device
    settings: Mapping[str, int | str]
    neighbours: DeviceGroup = DeviceGroup()
    """Devices of the same host, including this one."""
    alike: DeviceGroup = DeviceGroup()
    """Devices of the same driver, kind and model, including this one."""
    had: int | None = None
    """The highest queue_depth in the time that is audited."""

    def number(self, name: str) -> int | None:
        value = self.settings.get(name)
        return None if value is None else number(value)

    @property
    def one_by_one(self) -> bool:
        """Whether its driver sends one command at a time by design."""
        zoned = self.settings.get("zoned") in _ZONED
        return zoned or self.driven_by(_ONE_BY_ONE) or _SERIAL_NAMES.match(self.device.name) is not None

    def driven_by(self, names: tuple[str, ...]) -> bool:
        return self.device.driver.startswith(names)


def remarks(name: str, seen: Tuning, walls: Mapping[str, int | None]) -> Iterator[Advice]:
    """Yield the remarks on the setting `name`; `walls`: device -> the depth that its driver is limited to."""
    if name == "queue_depth":
        yield from _same_on_all(seen, walls)
    if seen.device.driver and name.startswith(f"{seen.device.driver}."):
        yield from _parameter(seen, name)
    remark = _CHECKS[name](seen) if name in _CHECKS else None
    if remark is not None:
        yield remark


def _queue_depth(seen: Tuning) -> Advice | None:
    depth, began = seen.number("queue_depth"), seen.number("cmd_per_lun")
    if depth is None or seen.one_by_one:
        return None
    if began is not None and depth < began:
        fell = seen.had is not None and depth < seen.had
        since = f", and was {seen.had}" if fell else ""
        why = f"{depth} is below the {began} that its host begins with (cmd_per_lun){since}"
        return Advice("depth-below-minimum", why, note=depth >= _LOW_DEPTH and not fell and not _is_lowest(seen, depth))
    if seen.driven_by(("ahci", "sata_")) and depth == 1:
        return Advice("depth-low", "1: native command queueing is off, the disk can't order by itself")
    return Advice("depth-low", f"{depth} is too few for a device to order by itself") if depth < _LOW_DEPTH else None


def _is_lowest(seen: Tuning, depth: int) -> bool:
    """Return whether another device of the kind has more, so that this isn't the driver's default."""
    return seen.alike.highest > depth


def _throttle(seen: Tuning) -> Advice | None:
    """Check the throttle of sd (illumos, Solaris), which sd lowers when the device reports that it is full or busy."""
    now, least = seen.number("un_throttle"), seen.number("un_min_throttle")
    began = seen.number("un_saved_throttle")
    if now is None or seen.device.kind != "disk":  # sd also drives CD-ROMs
        return None
    fell = began is not None and 2 * now <= began
    if least is not None and now < least:
        since = f", and was {began} (un_saved_throttle)" if fell else ""
        return Advice("depth-below-minimum", f"{now} is below its own minimum of {least} (un_min_throttle){since}")
    if fell:
        return Advice("depth-low", f"{now} of {began} (un_saved_throttle): sd lowers it for a device that is full")
    return Advice("depth-low", f"{now} is too few for a device to order by itself") if now < _LOW_DEPTH else None


def _global_throttle(seen: Tuning) -> Advice | None:
    """Check sd_max_throttle of /etc/system, which holds for disks without a `throttle-max` of their own in sd.conf."""
    value = next((n for name in _MAX_THROTTLES if (n := seen.number(name)) is not None), None)
    saved = seen.number("un_saved_throttle")
    own = saved is not None and value is not None and saved > value
    if value is None or value >= _DEFAULT_THROTTLE or own or seen.device.kind != "disk":
        return None
    return Advice("global-setting", f"{value} in /etc/system applies to every disk of the driver: it penalises all")


def _opt_queueing(seen: Tuning) -> Advice | None:
    """Check un_f_opt_queueing: the adapter has no tags and queues by itself, with 3 at most (sd.c, sd_unit_attach)."""
    if seen.number("un_f_opt_queueing") != 1 or seen.device.kind != "disk":
        return None
    return Advice("tagged-queueing-off", "1: tagged queueing is off, only the adapter queues; sd sends it 3 at most")


def _notag(seen: Tuning) -> Advice | None:
    """Check m_notag of mpt, a bit per target without tags: all are set at first, and cleared when sd requests tags."""
    if (seen.number("m_notag") or 0) & _ALL_TARGETS != _ALL_TARGETS:
        return None
    return Advice("tagged-queueing-off", f"{_ALL_TARGETS:#x}: no target of the adapter has tagged queueing")


def _disksort(seen: Tuning) -> Advice | None:
    """Check sd's disksort, a default that is right for a disk that gets one command at a time."""
    throttle = seen.number("un_throttle")
    if seen.number("un_f_disksort_disabled") != 0 or seen.device.kind != "disk" or throttle == 1:
        return None
    cached = seen.number("un_f_write_cache_enabled") == 1 or seen.settings.get("write_cache") == "write back"
    before = " before a device with its own cache" if cached else ""
    return Advice(
        "scheduler-sorts", f"0: sd sorts by LBA{before} (disksort): an I/O far away may starve", note=not cached
    )


def _sqsize(seen: Tuning) -> Advice | None:
    entries = seen.number("sqsize")
    low = entries is not None and entries < _SHARED_LOW
    return Advice("depth-low", f"a submission queue of {entries} is too few for NVMe") if low else None


def _queue_type(seen: Tuning) -> Advice | None:
    if seen.settings.get("queue_type") != "none" or seen.one_by_one:
        return None
    return Advice("tagged-queueing-off", "none: tagged queueing is off, so it gets one command at a time")


def _wbt(seen: Tuning) -> Advice | None:
    target = seen.number("wbt_lat_usec")
    if not target:
        return None
    return Advice("writeback-throttling", f"background writes wait while reads take above {target:,} us", note=True)


def _scheduler(seen: Tuning) -> Advice | None:
    name = seen.settings.get("scheduler")
    if name not in _SORTING or seen.device.kind != "disk":
        return None
    adapter = "can_queue" in seen.settings and not seen.driven_by((*_OWN_ORDER, *_ONE_BY_ONE))
    if seen.device.driver.startswith("nvme"):
        return Advice(
            "scheduler-sorts", f"{name} sorts by LBA, which NVMe gains nothing by: an I/O far away may starve"
        )
    if adapter and (seen.number("queue_depth") or 0) >= _SHARED_LOW:
        why = f"{name} sorts by LBA before an array or disk that orders by itself: an I/O far away may starve"
        return Advice("scheduler-sorts", why, note=name == "mq-deadline")
    if name == "bfq" and seen.number("rotational") == 0:
        return Advice("scheduler-sorts", "bfq on a device that doesn't rotate: it idles for seeks that cost nothing")
    return None


def _nr_requests(seen: Tuning) -> Advice | None:
    """Check nr_requests, which applies per hardware queue unless the host shares its tags: see `ceiling`."""
    requests = seen.number("nr_requests")
    if requests is None or requests >= _DEFAULT_REQUESTS:
        return None
    limit = ceiling(seen.device.limits)
    others = ceiling(limit for limit in seen.device.limits if limit.name != "nr_requests")
    if limit is None or others is None:
        return None
    bound = int(others.value)
    if int(limit.value) >= bound:
        return None
    return Advice(REQUESTS, f"{requests} can't fill the {bound:,} that the driver takes")


def _max_sectors(seen: Tuning) -> Advice | None:
    kib = seen.number("max_sectors_kb")
    if not kib or kib >= _SMALL_REQUEST_KIB or seen.device.kind != "disk":
        return None
    return Advice(SMALL_REQUESTS, f"a larger I/O is sent in pieces of {kib} KiB, each with the whole cost of an I/O")


def _can_queue(seen: Tuning) -> Advice | None:
    host, n = seen.number("can_queue"), len(seen.neighbours.devices)
    if host is None or n < 2 or seen.one_by_one:  # noqa: PLR2004 - one alone shares nothing
        return None
    queues = 1 if seen.number("host_tagset") == 1 else seen.number("nr_hw_queues") or 1
    total, wanted = host * queues, seen.neighbours.wanted
    if total >= wanted:
        return None
    why = f"{n} devices share {total:,}, and the sum of their depths is {wanted:,}: a busy one takes from the others"
    return Advice("host-limit-shared", why, note=total // n >= _SHARED_LOW)


def _same_on_all(seen: Tuning, walls: Mapping[str, int | None]) -> Iterator[Advice]:
    depth, n = seen.number("queue_depth"), len(seen.neighbours.devices)
    if depth is None or depth >= _LOW_DEPTH or n < 2 or not seen.neighbours.is_same or seen.one_by_one:  # noqa: PLR2004
        return
    limited = [device.name for device in seen.neighbours.devices if walls.get(device.name) == depth]
    who = f"; only {limited[0]} reaches it" if len(limited) == 1 else ""
    yield Advice("global-setting", f"{depth} is the same on all {n} devices of its host: it penalises all{who}")


def _parameter(seen: Tuning, name: str) -> Iterator[Advice]:
    value = seen.number(name)
    if value and value < _LOW_DEPTH and _DEPTH.search(name):  # 0 and less are "the driver's default"
        yield Advice("global-setting", f"{value} applies to every device of {seen.device.driver}: it penalises all")


def _iostats(seen: Tuning) -> Advice | None:
    if seen.number("iostats") != 0 or not seen.device.timed:
        return None
    return Advice("blind", "0: the kernel counts nothing for it, neither I/Os nor those in flight")


def _rq_affinity(seen: Tuning) -> Advice | None:
    if seen.number("rq_affinity") != 0:
        return None
    return Advice("completes-anywhere", "0: I/Os complete on the CPU of the interrupt, not near their issuer")


_CHECKS: Mapping[str, Callable[[Tuning], Advice | None]] = {
    "queue_depth": _queue_depth,
    "un_throttle": _throttle,
    **dict.fromkeys(_MAX_THROTTLES, _global_throttle),
    "un_f_opt_queueing": _opt_queueing,
    "un_f_disksort_disabled": _disksort,
    "m_notag": _notag,
    "sqsize": _sqsize,
    "queue_type": _queue_type,
    "wbt_lat_usec": _wbt,
    "scheduler": _scheduler,
    "nr_requests": _nr_requests,
    "max_sectors_kb": _max_sectors,
    "can_queue": _can_queue,
    "iostats": _iostats,
    "rq_affinity": _rq_affinity,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A limit or another setting of a device, with the remarks on it."""

    limit: Limit
    remarks: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """Audit of a device: its settings, their lowest bound, and the depths that it had. None is "not known"."""

    device: str
    settings: tuple[Setting, ...]
    bound: Limit | None = None
    most: int | None = None
    """The most requests in the driver."""
    usual: int | None = None
    """Depth in the driver in most of the busy samples."""
    queued: int | None = None
    """The most requests that waited above the driver."""
    limited_to: int | None = None
    """Depth that the driver was limited to while more waited (see `wall`)."""
    at_limit: bool = False
    """Whether it was at its bound for most of the busy time, while waiting I/Os aren't counted (see `at_limit`)."""
    remarks: tuple[Advice, ...] = ()
    """Remarks on the device as a whole."""

    @property
    def lacks_requests(self) -> bool:
        """Return whether it is full at nr_requests, a setting that is too low."""
        if not self.at_limit or self.bound is None:
            return False
        wrong = (setting.limit.name for setting in self.settings for remark in setting.remarks if remark.id == REQUESTS)
        return self.bound.name in wrong

    @property
    def off(self) -> tuple[Advice, ...]:
        """All remarks that are more than a note."""
        return tuple(
            advice for advice in (*self.remarks, *(r for s in self.settings for r in s.remarks)) if not advice.note
        )


class AuditGroups:
    """Devices with limits, grouped, and the audits of those without depths: the same until a device changes."""

    def __init__(self, devices: Iterable[Device], settings: Settings = MappingProxyType({})) -> None:
        """Group devices; `settings` are the host's."""
        self._every = tuple(devices)
        limited = (_with_global(device, settings) for device in self._every if device.limits)
        self.each = sorted(limited, key=lambda device: device.name)
        hosts: dict[str, list[Device]] = {}
        alike: dict[tuple[str, str, str], list[Device]] = {}
        for device in self.each:
            hosts.setdefault(host_of(device), []).append(device)
            alike.setdefault(_sort(device), []).append(device)
        self._hosted = {host: DeviceGroup(tuple(devices)) for host, devices in hosts.items()}
        self._alike = {sort: DeviceGroup(tuple(devices)) for sort, devices in alike.items()}
        self.idle: dict[str, Audited] = {}
        """Audits where no driver is limited."""

    def is_of(self, devices: Collection[Device]) -> bool:
        """Return whether the groups are of exactly these devices."""
        return len(devices) == len(self._every) and all(map(is_, devices, self._every))

    def seen(self, device: Device, former_limit: int | None) -> Tuning:
        """Return the input of the checks of a device."""
        return _seen(device, self._hosted[host_of(device)], self._alike[_sort(device)], former_limit)


def audit(
    devices: Iterable[Device],
    depths: Mapping[str, Depths],
    former_limits: Mapping[str, int] | None = None,
    waiting: Mapping[str, float | None] = MappingProxyType({}),
    *,
    settings: Settings = MappingProxyType({}),
    groups: AuditGroups | None = None,
) -> tuple[Audited, ...]:
    """Return an audit of each device with limits, by name; `depths` have one sample per ms, over any time.

    `had`: device -> the highest queue_depth in that time, where that is known; `waiting`: device -> the mean number of
    waiting I/Os in that time, for devices whose depths lack it (littles_law.mean_waiting); `settings`: the host's;
    `groups`: those of the devices and settings, where a caller keeps them.
    """
    groups = groups or AuditGroups(devices, settings)
    walls = {
        device.name: wall(depths[device.name], ceiling(device.limits), waiting.get(device.name))
        for device in groups.each
        if device.name in depths
    }
    idle = groups.idle if former_limits is None and not any(n is not None for n in walls.values()) else {}
    audited_rows: list[Audited] = []
    for device in groups.each:
        audited = None if device.name in depths else idle.get(device.name)
        if audited is None:
            seen = groups.seen(device, (former_limits or {}).get(device.name))
            audited = _audited(seen, depths.get(device.name, Depths()), walls, waiting.get(device.name))
            if device.name not in depths:
                idle[device.name] = audited
        audited_rows.append(audited)
    return tuple(audited_rows)


def _with_global(device: Device, settings: Settings) -> Device:
    """Add the throttle that /etc/system sets for all disks of sd or ssd, which is a setting of each of them."""
    for driver in ("sd", "ssd"):
        name = f"{driver}_max_throttle"
        value = settings.get(f"module {driver}", {}).get(f"/etc/system {name}", "")
        if _C_NUMBER.fullmatch(value) and device.driver == driver:
            return replace(device, limits=(*device.limits, Limit(name, int(value, 0), "/etc/system")))
    return device


def _seen(device: Device, neighbours: DeviceGroup, alike: DeviceGroup, former_limit: int | None) -> Tuning:
    shared = neighbours if host_of(device) else DeviceGroup((device,))
    peers = alike if device.model else DeviceGroup()
    return Tuning(device, {limit.name: limit.value for limit in device.limits}, shared, peers, former_limit)


def _audited(seen: Tuning, depths: Depths, walls: Mapping[str, int | None], waiting: float | None) -> Audited:
    device = seen.device
    bound, limited_to = ceiling(device.limits), walls.get(device.name)
    full = at_limit(depths, bound, seen.settings.get("scheduler"), waiting)
    busy = {depth: n for depth, n in depths.in_driver.items() if depth and n}
    return Audited(
        device=device.name,
        settings=tuple(Setting(limit, tuple(remarks(limit.name, seen, walls))) for limit in device.limits),
        bound=bound,
        most=within(depths.highest, bound) if depths.in_driver or depths.at_issue else None,
        usual=within(max(busy, key=lambda depth: busy[depth]), bound) if busy else None,
        queued=max(depths.queued, default=None),
        limited_to=limited_to,
        at_limit=full,
        remarks=(*_walled(limited_to, bound), *(_full(seen, bound) if full and bound else ()), *_mounted_sync(device)),
    )


def _mounted_sync(device: Device) -> Iterator[Advice]:
    for report, option, ops in ((MOUNTED_SYNC, "sync", "write"), (MOUNTED_DIRSYNC, "dirsync", "change of a directory")):
        mount = device.reported_value(report)
        if mount is not None:
            yield Advice("mounted-sync", f"{mount} is mounted with {option}: each {ops} there waits for the disk")


def _walled(n: int | None, bound: Limit | None) -> Iterator[Advice]:
    if n is None or n > FEW:
        return
    if bound is not None and int(bound.value) <= n:
        yield Advice("ceiling-reached", f"at its limit of {n} ({bound.source}) while more I/Os waited")
    else:
        known = "no limit is known" if bound is None else f"its limit is {bound.value:,} ({bound.source})"
        yield Advice(
            "ceiling-reached", f"hardly ever more than {n} in the driver while more I/Os waited, though {known}"
        )


def _full(seen: Tuning, bound: Limit) -> Iterator[Advice]:
    n = int(bound.value)
    usual = n > FEW or seen.one_by_one
    yield Advice("at-limit", f"{at_limit_text(n)} ({bound.source})", note=usual)


def at_limit_text(n: int) -> str:
    """Return the sentence on a driver that is at its limit (see `at_limit`)."""
    return f"at its limit of {n:,} for most of the busy time; I/Os that wait above aren't counted here"


def _sort(device: Device) -> tuple[str, str, str]:
    return device.driver, device.kind, device.model


def host_of(device: Device) -> str:
    """Return the host whose can_queue a device shares: `host0` of `host0/can_queue`; empty where there is none."""
    return next((limit.source.partition("/")[0] for limit in device.limits if limit.name == "can_queue"), "")
