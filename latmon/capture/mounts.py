"""Mounts by /proc/PID/mountinfo, and the devices below them by sysfs.

All readers of mounts use `Mounts`, and those that read them again and again share a `MountTable`: hosts with containers
have thousands of mounts. The roots of /proc and sysfs are arguments; nothing is found where a system has neither. No
file of a mounted file system is touched where its mount is known: stat(2) does not return while a server is silent or a
device is suspended.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from latmon.support.paths import content, resolved
from latmon.support.text import clean, clean_path

FRESH_S = 4.0
"""Age of the mounts up to which they are not read again: less than the 5 s after which most readers ask."""
_MAX_MOUNT = 256
"""Characters of the name of a mount."""
_REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "beegfs", "gpfs", "fuse")
)
_OCTAL = re.compile(rb"\\([0-7]{3})")
_DEEPEST = 8
"""Maximal depth of stacked devices (dm, md, loop)."""
_PLACES = 6
"""Number of mountinfo's fields before the optional ones."""
_UPPER = "upperdir="


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo."""

    point: str
    kind: str
    source: str
    options: str
    number: tuple[int, int] = (0, 0)
    """Major and minor of its device, which is an anonymous one where the file system isn't on a block device alone."""
    root: str = "/"
    """The directory in the file system that is mounted."""
    number_of_mount: int = 0
    """The kernel's mnt_id, which /proc/PID/fdinfo has as well."""
    own_options: str = ""
    """Options of this mount alone, such as `ro` of a bind mount; `options` are those of the file system."""

    @property
    def is_remote(self) -> bool:
        """Whether a server provides it, on another host or in another process."""
        return self.kind in _REMOTE or self.kind.startswith("fuse.")

    @property
    def is_read_only(self) -> bool:
        """Return whether nothing can be written through this mount, by its own options."""
        return "ro" in self.own_options.split(",")


class Mounts:
    """The mounts of a process at one moment; its lines are parsed when they are first asked for."""

    def __init__(self, text: bytes = b"") -> None:
        """`text`: mountinfo."""
        self._text = text

    def has_text(self, text: bytes) -> bool:
        """Return whether a line contains this text, without parsing them."""
        return text in self._text

    @cached_property
    def all(self) -> tuple[Mount, ...]:
        """All mounts in the order of mountinfo."""
        return tuple(_parse(self._text))

    @cached_property
    def by_number_of_mount(self) -> Mapping[int, Mount]:
        """The mounts by the kernel's mnt_id."""
        return {mount.number_of_mount: mount for mount in self.all}

    @cached_property
    def usual(self) -> Mapping[tuple[int, int], Mount]:
        """One mount of each file system by its number: not a bind mount of a directory in it, and the shortest."""
        usual: dict[tuple[int, int], Mount] = {}
        for mount in self.all:
            before = usual.get(mount.number)
            if before is None or _mount_rank(mount) < _mount_rank(before):
                usual[mount.number] = mount
        return usual

    @cached_property
    def read_only(self) -> frozenset[tuple[int, int]]:
        """The numbers of file systems with a mount that is read-only by its own options."""
        return frozenset(mount.number for mount in self.all if mount.is_read_only)

    @cached_property
    def _by_point(self) -> Mapping[str, Mount]:
        """The latest mount at each mount point, which hides those before."""
        return {mount.point: mount for mount in self.all}

    def above(self, path: Path) -> Mount | None:
        """Return the mount of a file or directory: the latest one with the longest mount point above it."""
        points = (str(directory) for directory in (path, *path.parents))
        return next((self._by_point[point] for point in points if point in self._by_point), None)

    def disk_of(self, mount: Mount, sys: Path = Path("/sys")) -> str:
        """Return a mount's block device, the whole disk of a partition; empty where it is on none, or not known."""
        return next(self._of_mount(_number_of(mount), mount, sys, _DEEPEST), "")

    def block_directories(self, mount: Mount, sys: Path = Path("/sys")) -> tuple[Path, ...]:
        """Return the directories in sysfs of the disks or partitions that a mount's file system is on."""
        if mount.number[0]:
            return (_block_directory(os.makedev(*mount.number), sys),)
        if mount.source.startswith("/dev/"):
            names = _btrfs_devices(resolved(Path(mount.source)).name, sys)
            return tuple(sys / "class/block" / name for name in names)
        return ()

    def devices_below(self, directory: Path, sys: Path = Path("/sys")) -> tuple[str, ...]:
        """Return the disks of a directory and all mappings above them; empty where they aren't known."""
        return tuple(dict.fromkeys(self._below(directory, sys, _DEEPEST)))

    def _below(self, directory: Path, sys: Path, depth: int) -> Iterator[str]:
        if not depth:
            return
        mount = self.above(directory)
        if mount is None:
            yield from self._of_mount(_number(directory), None, sys, depth)
        elif not mount.is_remote:
            yield from self._of_mount(_number_of(mount), mount, sys, depth)

    def _of_mount(self, number: int, mount: Mount | None, sys: Path, depth: int) -> Iterator[str]:
        """Yield the devices below a file system: by its device's number, else by its mount."""
        if os.major(number):
            yield from self._stack(_block_directory(number, sys), sys, depth)
            return
        # btrfs, overlay and the like have no device number of their own
        if mount is None:
            return
        options = mount.options.split(",")
        upper = next((option.removeprefix(_UPPER) for option in options if option.startswith(_UPPER)), "")
        if mount.kind == "overlay" and upper:
            yield from self._below(Path(upper), sys, depth - 1)
        else:
            for block in self.block_directories(mount, sys):
                yield from self._stack(block, sys, depth)

    def _stack(self, block: Path, sys: Path, depth: int) -> Iterator[str]:
        """Yield a block device's whole disk and the devices below it."""
        block = resolved(block)
        if not depth or not block.is_dir():
            return
        if (block / "partition").exists():
            block = block.parent
        yield clean(block.name)
        backing = content(block / "loop/backing_file").strip()
        if backing:
            yield from self._below(Path(os.fsdecode(backing)).parent, sys, depth - 1)
        for below in _entries(block / "slaves"):
            yield from self._stack(sys / "class/block" / below.name, sys, depth - 1)


class MountTable:
    """The mounts of this process, shared by readers on several threads; parsed again only where they have changed."""

    def __init__(self, proc: Path = Path("/proc"), now_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._now_s = proc, now_s
        self._lock = threading.Lock()
        self._text = b""
        self._mounts = Mounts()
        self._read_s: float | None = None

    def read(self, max_age_s: float = FRESH_S) -> Mounts:
        """Return the mounts as of `max_age_s` ago at most."""
        with self._lock:
            now_s = self._now_s()
            if self._read_s is None or now_s - self._read_s >= max_age_s:
                self._read_s = now_s
                text = content(self._proc / "self/mountinfo")
                if text != self._text:
                    self._text, self._mounts = text, Mounts(text)
            return self._mounts


def mounts_of(proc: Path = Path("/proc"), process: str = "self") -> Mounts:
    """Return the mounts of a process now: none where there is no such file."""
    return Mounts(content(proc / process / "mountinfo"))


def mount_name(point: str) -> str:
    """Return a mount point as all tables and file systems name it, by which their rows are matched."""
    return clean_path(point, _MAX_MOUNT)


def plain_bytes(field: bytes) -> bytes:
    """Return a field of mountinfo, mountstats or swaps without its octal escapes."""
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field)


def plain_field(field: bytes) -> str:
    """Return such a field as a text."""
    return os.fsdecode(plain_bytes(field))


def _parse(text: bytes) -> Iterator[Mount]:
    for line in text.split(b"\n"):  # a name may have \r, which the kernel does not escape
        before, separator, after = line.partition(b" - ")
        places, kinds = before.split(b" "), after.split(b" ")
        if separator and len(places) >= _PLACES and len(kinds) > 2:  # noqa: PLR2004 - kind, source, options
            major, _, minor = places[2].partition(b":")
            number = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
            names = clean(plain_field(kinds[0])), plain_field(kinds[1]), plain_field(kinds[2])
            number_of_mount = int(places[0]) if places[0].isdigit() else 0
            root, own_options = plain_field(places[3]), plain_field(places[5])
            yield Mount(plain_field(places[4]), *names, number, root, number_of_mount, own_options)


def _mount_rank(mount: Mount) -> tuple[bool, int]:
    return mount.root != "/", len(mount.point)


def _number_of(mount: Mount) -> int:
    """Return the number of a mount's block device; 0 where it has none of its own."""
    return os.makedev(*mount.number) if mount.number[0] else 0


def _number(directory: Path) -> int:
    """Return the number of a directory's device; 0 where it can't be read."""
    try:
        return directory.stat().st_dev
    except OSError:
        return 0


def _block_directory(number: int, sys: Path) -> Path:
    return sys / f"dev/block/{os.major(number)}:{os.minor(number)}"


def _btrfs_devices(name: str, sys: Path) -> list[str]:
    """Return all devices of the btrfs that contains this one; elsewhere the device alone."""
    for devices in _entries(sys / "fs/btrfs"):
        names = [entry.name for entry in _entries(devices / "devices")]
        if name in names:
            return names
    return [name]


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
