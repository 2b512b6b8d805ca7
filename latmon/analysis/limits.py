"""Limits of devices: the most I/Os a driver can hold, and an audit of each setting against what was measured. Pure.

A default that a kernel or driver chooses for every such device is never off: at most a note says what it does.

Facts are Device.limits and Frame.depths alone; a check per setting compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from latmon.model.frame import Device, Limit
from latmon.model.inflight import EXACT, Depths, bucket_end

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


FEW = 4
"""A driver that is held at so few is serial, whatever its limit says."""


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
    at_limit: bool = False
    """It was at its bound for most of the busy time, and who waits above that isn't counted."""
    remarks: tuple[Remark, ...] = ()
    """Of the device as a whole."""

    @property
    def off(self) -> tuple[Remark, ...]:
        """Every remark that is more than a note."""
        return tuple(one for one in (*self.remarks, *(r for s in self.settings for r in s.remarks)) if not one.note)


def audit(
    devices: Iterable[Device], depths: Mapping[str, Depths], had: Mapping[str, int] | None = None
) -> tuple[Audited, ...]:
    """A row per device that has limits, by name; `depths` may be of any length of time, their moments ms.

    `had`: device -> the highest queue_depth that it had meanwhile, where that is known.
    """
    each = sorted((one for one in devices if one.limits), key=lambda one: one.name)
    hosts: dict[str, list[Device]] = {}
    alike: dict[tuple[str, str, str], list[Device]] = {}
    for one in each:
        hosts.setdefault(host_of(one), []).append(one)
        alike.setdefault(_sort(one), []).append(one)
    hosted = {host: Group(tuple(some)) for host, some in hosts.items()}
    sorts = {sort: Group(tuple(some)) for sort, some in alike.items()}
    walls = {one.name: wall(depths[one.name], ceiling(one.limits)) for one in each if one.name in depths}
    return tuple(
        _audited(
            _seen(one, hosted[host_of(one)], sorts[_sort(one)], (had or {}).get(one.name)),
            depths.get(one.name, Depths()),
            walls,
        )
        for one in each
    )


def _seen(device: Device, neighbours: Group, alike: Group, had: int | None) -> Seen:
    shared = neighbours if host_of(device) else Group((device,))
    peers = alike if device.model else Group()
    return Seen(device, {one.name: one.value for one in device.limits}, shared, peers, had)


def _audited(seen: Seen, depths: Depths, walls: Mapping[str, int | None]) -> Audited:
    device = seen.device
    bound, held_at = ceiling(device.limits), walls.get(device.name)
    full = at_limit(depths, bound, seen.settings.get("scheduler"))
    busy = {depth: n for depth, n in depths.in_driver.items() if depth and n}
    return Audited(
        device.name,
        tuple(Setting(one, tuple(remarks(one.name, seen, walls))) for one in device.limits),
        bound,
        within(depths.highest, bound) if depths.in_driver or depths.at_issue else None,
        within(max(busy, key=lambda depth: busy[depth]), bound) if busy else None,
        max(depths.queued, default=None),
        held_at,
        full,
        (*_held(held_at, bound), *(_full(seen, bound) if full and bound else ())),
    )


def _held(n: int | None, bound: Limit | None) -> Iterator[Remark]:
    if n is None or n > FEW:
        return
    if bound is not None and int(bound.value) <= n:
        yield Remark("ceiling-reached", f"held at its limit of {n} ({bound.source}) while more I/Os waited")
    else:
        known = "no limit is known" if bound is None else f"its limit is {bound.value:,} ({bound.source})"
        yield Remark(
            "ceiling-reached", f"hardly ever more than {n} in the driver while more I/Os waited, though {known}"
        )


def _full(seen: Seen, bound: Limit) -> Iterator[Remark]:
    n = int(bound.value)
    usual = n > FEW or seen.one_by_one
    yield Remark("at-limit", f"{at_limit_said(n)} ({bound.source})", note=usual)


def at_limit_said(n: int) -> str:
    """The sentence on a driver that limits.at_limit finds full."""
    return f"at its limit of {n:,} for most of the busy time; who waits above that isn't counted here"


def _sort(device: Device) -> tuple[str, str, str]:
    return device.driver, device.kind, device.model


def host_of(device: Device) -> str:
    """Whose can_queue a device shares: `host0` of `host0/can_queue`; empty where there is none."""
    return next((one.source.partition("/")[0] for one in device.limits if one.name == "can_queue"), "")
