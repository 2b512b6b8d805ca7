"""Inventory of devices, and rows of idle ones.

The inventory completes the first frame of a reader that starts later: a recording, or a screen that missed frames. The
rows of idle devices are in no frame by themselves: a frame's table has its busy rows, and refers to the idle ones that
many frames share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar, overload

from latmon.model.frame import Completed, Device, Flow, Frame, Mark, Outstanding
from latmon.model.inflight import Depths
from latmon.model.measurements import TABLES
from latmon.model.table import AnyTable, Meaning

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
HOST_SEPARATOR = ":"
"""What is between host and device in the names of a fleet; no host's name has it."""
_BY_THREADS: Mapping[str, str] = MappingProxyType(
    {
        "loop": "the loop device's worker",
        "nbd": "nbd's worker",
        "rbd": "rbd's worker",
        "nvme-tcp": "nvme-tcp's worker",
        "iscsi_tcp": "iSCSI's transmit worker",
        "usb-storage": "usb-storage's thread",
    }
)
"""Driver, or beginning of a name, -> the thread of this host that does its I/Os after they were issued (Linux 6.18:
loop_queue_work, nbd's recv_work, rbd_queue_workfn, nvme_tcp_io_work, iscsi_xmitworker, usb_stor_control_thread)."""
_BEGINNING = re.compile(r"[a-z]+(?=\d)")
_VOLUME = re.compile(r"(?:dm-|md)\d+")
_NOT_BELOW = re.compile(r"(?:fd|loop|ram|sr|zram)\d+")
"""Devices that an array or a logical volume is hardly ever on."""
_PARTITION = re.compile(r"((?:[hsv]|xv)d[a-z]+)\d+|(.*\d)[ps]\d+")
"""Partition or slice; the first or the second group is its disk."""
_BY_DEVICE = ("thresholds_us", "outstanding", "depths", "issues")
"""Attributes of a frame with a row per device that are no declared tables."""


def host_and_device(name: str) -> tuple[str, str]:
    """Return the host and the device of a fleet's name; an empty host for a name without one."""
    host, separator, device = name.partition(HOST_SEPARATOR)
    return (host, device) if separator else ("", name)


def thread_of(name: str, driver: str = "") -> str:
    """Return the thread of this host to which a device's driver hands its I/Os; empty where none is known.

    The time from the issue to the interrupt (hba) contains that thread's waits for a CPU.
    """
    beginning = _BEGINNING.match(host_and_device(name)[1])
    return _BY_THREADS.get(driver) or _BY_THREADS.get(beginning[0] if beginning else "", "")


def thread_sentence(name: str, driver: str = "", stage: str = "hba") -> str:
    """Return the sentence on the thread whose waits are in the stage hba, here called `stage`; empty without one."""
    thread = thread_of(name, driver)
    return f"{stage} of {name} contains the waits of {thread} for a CPU" if thread else ""


_TCP_DRIVERS, _TCP_DEVICES = ("nvme-tcp", "iscsi_tcp"), ("nbd", "rbd", "drbd")
"""Drivers, and beginnings of the names of devices without one, whose I/O goes through TCP."""


def is_behind_tcp(name: str, driver: str = "") -> bool:
    """Return whether a device's I/O goes through TCP: a thread completes what the softirq NET_RX received."""
    return driver in _TCP_DRIVERS or host_and_device(name)[1].startswith(_TCP_DEVICES)


def is_volume(device: Device | None, measured: Collection[str]) -> bool:
    """Return whether a device's I/Os are those of measured disks, with which they must not be counted again.

    An imported text has names alone (kind `other`): of those a partition of a measured disk is one, and dm-N, mdN or a
    partition of it beside a disk.
    """
    if device is None or device.kind != "other" or device.members:
        return device is not None and any(member in measured for member in device.members)
    part = _PARTITION.fullmatch(device.name)
    disk = (part[1] or part[2]) if part else device.name
    if part and disk in measured:
        return True
    beside = (name for name in measured if name != device.name)
    return bool(_VOLUME.fullmatch(disk)) and not all(
        _VOLUME.match(name_below) or _NOT_BELOW.fullmatch(name_below) for name_below in beside
    )


class Inventory:
    """The devices after the latest of the frames that were added."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}

    def note(self, frame: Frame) -> None:
        """Apply a frame's `devices` and `removed`."""
        for name in frame.removed:
            self._devices.pop(name, None)
        self._devices.update((device.name, device) for device in frame.devices)

    def complete(self, frame: Frame) -> Frame:
        """Return the frame as the first one of a reader, with every device known after it."""
        return replace(frame, devices=tuple(self._devices.values()), removed=())


def carry(missed: Iterable[Frame], frame: Frame) -> Frame:
    """Return `frame` with the device changes and marks of earlier frames that were not delivered."""
    devices: dict[str, Device] = {}
    removed: dict[str, None] = {}
    marks: list[Mark] = []
    for missed_frame in (*missed, frame):
        marks += missed_frame.marks
        for name in missed_frame.removed:
            devices.pop(name, None)
            removed[name] = None
        for device in missed_frame.devices:
            removed.pop(device.name, None)
            devices[device.name] = device
    return replace(frame, devices=tuple(devices.values()), removed=tuple(removed), marks=tuple(marks))


def of_devices(frame: Frame, keeps: Callable[[str], bool]) -> Frame:
    """Return the frame with those devices alone whose name `keeps` takes, and with the tables without a device."""
    in_flight, limits = frame.in_flight, frame.cgroup_limits
    if in_flight is not None:  # counts by age are of all devices, and have no device
        oldest = tuple(io for io in in_flight.oldest if keeps(io.device))
        in_flight = replace(in_flight, oldest=oldest, older={})
    of_devices_alone = frame.with_tables({table: rows_kept(table, frame[table], keeps) for table in TABLES})
    by_device: dict[str, Any] = {}
    for name in _BY_DEVICE:
        rows: Mapping[str, Any] = getattr(frame, name)
        by_device[name] = {device: value for device, value in rows.items() if keeps(device)}
    return replace(
        of_devices_alone,
        **by_device,
        outliers=tuple(outlier for outlier in frame.outliers if keeps(outlier.device)),
        file_operations=tuple(
            operation
            for operation in frame.file_operations
            if not operation.file_system.device or keeps(operation.file_system.device)
        ),
        cgroup_limits=None
        if limits is None
        else tuple(cgroup_limit for cgroup_limit in limits if keeps(cgroup_limit.device)),
        devices=tuple(device for device in frame.devices if keeps(device.name)),
        removed=tuple(name for name in frame.removed if keeps(name)),
        in_flight=in_flight,
    )


def rows_kept(table: AnyTable, rows: Mapping[Any, Any], keeps: Callable[[str], bool]) -> Mapping[Any, Any]:
    """Return the rows of a table without those of other devices; all of a table whose keys name none.

    Rows without a device stay: those of a file system that has a server belong to no other device. It is the same table
    where nothing goes, because packed values take long.
    """
    places = table.of_meaning(Meaning.DEVICE)
    if not places:
        return rows
    parts_of = table.parts_of
    kept: list[Any] = []
    for key in rows:
        parts = parts_of(key)
        if all(not parts[place] or keeps(parts[place]) for place in places):
            kept.append(key)
    return rows if len(kept) == len(rows) else {key: rows[key] for key in kept}


def named_devices(frame: Frame) -> set[str]:
    """Return the names of all devices that a frame has rows of, or describes."""
    names = {device.name for device in frame.devices}
    for by_name in (frame.outstanding, frame.depths, frame.issues):
        names.update(by_name)
    for table in TABLES:
        for place in table.of_meaning(Meaning.DEVICE):
            names.update(table.parts_of(key)[place] for key in frame[table])
    return names


class WithIdle(Mapping[K, V]):
    """A table of a frame: the rows of busy devices, and for all others the idle rows that frames share."""

    __slots__ = ("busy", "idle")

    def __init__(self, busy: Mapping[K, V], idle: Mapping[K, V]) -> None:
        """`idle` may have rows of busy devices as well, which are hidden."""
        self.busy, self.idle = busy, idle

    def __getitem__(self, key: K) -> V:
        busy_value = self.busy.get(key)
        return self.idle[key] if busy_value is None else busy_value

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """Return a row; Mapping's own catches a KeyError for each device that has none."""
        busy_value = self.busy.get(key)
        return self.idle.get(key, default) if busy_value is None else busy_value

    def __iter__(self) -> Iterator[K]:
        yield from self.busy
        yield from (key for key in self.idle if key not in self.busy)

    def __len__(self) -> int:
        return len(self.idle) + sum(key not in self.idle for key in self.busy)

    def __contains__(self, key: object) -> bool:
        return key in self.busy or key in self.idle


def busy_rows(table: Mapping[K, V]) -> Mapping[K, V]:
    """Return a table's rows without those of idle devices, for a sum that they don't change."""
    return table.busy if isinstance(table, WithIdle) else table


class _IdleDepths(Mapping[str, Depths]):
    """Depth histograms of an interval in which no device of `queued` had an I/O."""

    __slots__ = ("_values", "queued")

    def __init__(self, queued: Mapping[str, bool], dt_us: int) -> None:
        self.queued, depths = queued, {0: dt_us // 1000}
        self._values = (Depths(depths), Depths(depths, depths))

    def __getitem__(self, key: str) -> Depths:
        return self._values[self.queued[key]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.queued)

    def __len__(self) -> int:
        return len(self.queued)


def idle_devices(depths: Mapping[str, Depths]) -> Mapping[str, bool] | None:
    """Return the devices with idle rows in a frame's depths, and whether the queue of each is known.

    Frames with the same devices share the mapping. None: all rows are the devices' own.
    """
    if not isinstance(depths, WithIdle):
        return None
    idle = depths.idle
    return (
        idle.queued
        if isinstance(idle, _IdleDepths)
        else {name: bool(idle_depth.queued) for name, idle_depth in idle.items()}
    )


@dataclass(frozen=True, slots=True)
class IdleRows:
    """The rows of devices that are there, are counted, and do nothing: what frames share."""

    kernel: Mapping[Flow, Completed] = field(default_factory=dict)
    outstanding: Mapping[str, Outstanding] = field(default_factory=dict)
    queued: Mapping[str, bool] = field(default_factory=dict)
    """Device -> whether its queue is known."""

    @classmethod
    def of(cls, devices: Iterable[Device], ops: Iterable[str], *, has_queued: bool) -> IdleRows:
        """Return the rows of these devices; `has_queued`: the kernel counts the queue of devices with requests."""
        each, none = list(devices), Completed(0, 0, 0, merged=0)
        queued = {device.name: has_queued and device.timed for device in each}
        gauges = (Outstanding(0, None), Outstanding(0, 0))
        kernel = {Flow(device.name, op): none for op in ops for device in each}
        return cls(kernel, {name: gauges[known] for name, known in queued.items()}, queued)

    def depths(self, dt_us: int) -> Mapping[str, Depths]:
        """Return the depths of an interval of `dt_us`."""
        return _IdleDepths(self.queued, dt_us)

    def without(self, names: frozenset[str]) -> IdleRows:
        """Return the rows without those of some devices."""
        if names.isdisjoint(self.queued):
            return self
        kernel = {flow: completed for flow, completed in self.kernel.items() if flow.device not in names}
        outstanding = {name: outstanding for name, outstanding in self.outstanding.items() if name not in names}
        return IdleRows(kernel, outstanding, {name: one for name, one in self.queued.items() if name not in names})
