"""Which block devices there are and what they are: dev_t to an admin's name, kept true while devices come and go.

/proc/diskstats is the superset of names (a hidden NVMe path has no dev file); sysfs says the rest. No kernel number
leaves this module. Must not know counters' meaning or frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from latmon.model import Device, Limit
from latmon_backends import block_kinds
from latmon_backends.controllers import controller
from latmon_backends.diskstats import Counters, Number
from latmon_backends.limits import limits, of_module
from latmon_backends.sysfs import attribute, names, number

_BIO_BASED = ("dm", "md", "zram")
"""Devices without requests, known by the start of their names where sysfs can't be asked."""
LIMITS_EVERY = 10
"""Refreshes: an admin changes a limit seldom, and a dozen small files of each device take 0.15 ms."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a refresh found: devices new or different from before, and those that are gone."""

    changed: tuple[Device, ...] = ()
    removed: tuple[Device, ...] = ()


@dataclass(slots=True)
class BlockDevices:
    """The host's block devices. `refresh` is cheap when nothing changed: a few small reads per device."""

    proc: Path
    sys: Path
    _devices: dict[str, Device] = field(default_factory=dict)
    _disks: dict[Number, str] = field(default_factory=dict)
    _whole: dict[str, str] = field(default_factory=dict)
    """Name -> its disk's name: a partition's never changes while it has its name."""
    _stamps: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _serials: dict[tuple[str, int], str] = field(default_factory=dict)
    _limits: dict[str, tuple[Limit, ...]] = field(default_factory=dict)
    _until_limits: int = 0

    @property
    def devices(self) -> Mapping[str, Device]:
        """All devices by name, as of the last refresh. Empty loops and the like are not devices."""
        return self._devices

    def refresh(self, lines: Mapping[Number, Counters]) -> Change:
        """Look again, given a reading of /proc/diskstats."""
        self._know_names({line.name for line in lines.values()})
        self._disks = {at: self._whole[line.name] for at, line in lines.items()}
        whole = {line.name: (at, line) for at, line in lines.items() if self._whole[line.name] == line.name}
        self._read_limits(whole)
        stamps = {name: self._stamp(name) for name, (_, line) in whole.items() if self._is_there(name, line)}
        # A path that comes or goes changes its multipath head as well: a new set of names looks at all of them.
        fresh = tuple(stamps) if stamps.keys() != self._stamps.keys() else _different(self._stamps, stamps)
        found = {name: self._identify(name, whole[name][0], tuple(sorted(whole))) for name in fresh}
        changed = tuple(device for name, device in found.items() if self._devices.get(name) != device)
        removed = tuple(device for name, device in self._devices.items() if name not in stamps)
        self._devices = {name: found.get(name) or self._devices[name] for name in stamps}
        self._stamps = stamps
        return Change(changed, removed)

    def device(self, major: int, minor: int) -> Device | None:
        """The whole disk with this number or with a partition of this number; None when there is none known."""
        return self._devices.get(self._disks.get(Number(major, minor), ""))

    def counts(self, name: str) -> bool | None:
        """Whether the kernel counts this device's I/O: queue/iostats. None where that can't be read."""
        flag = number(self._directory(name) / "queue/iostats")
        return None if flag is None else flag != 0

    def generation(self, name: str) -> int:
        """Changes when a device is unplugged and another takes its name: sysfs gives each directory a new inode."""
        try:
            return self._directory(name).stat().st_ino
        except OSError:
            return 0

    def _directory(self, name: str) -> Path:
        return block_kinds.directory(self.sys / "block", name)

    @property
    def _has_sysfs(self) -> bool:
        return (self.sys / "block").is_dir()

    def _know_names(self, known: set[str]) -> None:
        new = known - self._whole.keys()
        if self._has_sysfs:
            found = {name: block_kinds.whole_disk(self.sys, name) for name in new}
        else:
            found = {name: block_kinds.disk_by_name(name, known) for name in new}
        self._whole = {name: disk for name, disk in self._whole.items() if name in known} | found

    def _is_there(self, name: str, line: Counters) -> bool:
        """False for a loop without a file, a zram or nbd without a size. A real disk that lost its size stays."""
        path = self._directory(name)
        if not path.is_dir():
            return not self._has_sysfs  # with sysfs: unplugged since diskstats was read
        if name.startswith("loop"):
            return (path / "loop").is_dir()
        return number(path / "size") != 0 or (path / "device").exists() or line.in_flight > 0

    def _read_limits(self, names: Iterable[str]) -> None:
        """Of new devices at once, of the others now and then."""
        self._until_limits = (self._until_limits or LIMITS_EVERY) - 1
        known = self._limits if self._until_limits else {}
        self._limits = {
            name: known[name] if name in known else limits(self._directory(name), self.sys) for name in names
        }

    def _stamp(self, name: str) -> tuple[object, ...]:
        """What can change while the set of names stays: limits, and what is behind a name."""
        return (self._limits.get(name), *self._behind(name))

    def _behind(self, name: str) -> tuple[object, ...]:
        """The hardware behind a name, a dm or md table, a loop's file."""
        path = self._directory(name)
        if name.startswith("loop"):
            return (attribute(path / "loop/backing_file"),)
        if (path / "device").exists():
            return (self.generation(name), self._serial(name))
        return (self.generation(name), attribute(path / "dm/name"), names(path / "slaves"))

    def _serial(self, name: str) -> str:
        """Asked for once per plugged-in device; again at the next refresh where it couldn't be had without waiting."""
        key = name, self.generation(name)
        if key not in self._serials:
            found = block_kinds.serial(self._directory(name))
            if found is None:
                return ""
            self._serials[key] = found
        return self._serials[key]

    def _identify(self, name: str, at: Number, disks: tuple[str, ...]) -> Device:
        path = self._directory(name)
        if not path.is_dir():
            return Device(name, *_plain(at), kind="other", timed=not name.startswith(_BIO_BASED))
        kind = block_kinds.kind(path)
        driver, text = controller(path, self.sys)
        return Device(
            name,
            *_plain(at),
            kind=kind,
            driver=driver,
            controller=text,
            model=block_kinds.model(path, kind),
            serial=self._serial(name),
            members=block_kinds.members(path, kind, disks, self.sys),
            timed=block_kinds.has_requests(path),
            label=block_kinds.label(path, kind),
            limits=(*self._limits.get(name, ()), *of_module(driver, self.sys)),
        )


def _different(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name, stamp in after.items() if before.get(name) != stamp)


def _plain(at: Number) -> tuple[int, int]:
    return at.major, at.minor
