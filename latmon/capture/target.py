"""The target of a recording: its name, directory, file system, and every reason to refuse before a probe starts.

No file is opened here: the recording's writer creates it, never follows a link and never overwrites. Mounts and devices
come from /proc/self/mountinfo and sysfs, whose roots are arguments; nothing is found where a system has neither.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from latmon.support import output_files, paths, streams
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.paths import content
from latmon.support.streams import STANDARD
from latmon.support.text import clean, clean_path
from latmon.support.units import show_size

SUFFIX = ".latmon.jsonl.gz"
_TRIES = 100
_MAX_MOUNT = 256
"""Characters of the name of a mount."""
MIN_FREE_BYTES = 256 * 1024 * 1024
MIN_FREE_SHARE = 0.05
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_KINDS = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"))


def recording_name(host: str, wall: float, suffix: str = SUFFIX) -> str:
    """Return HOST-YYYYmmddTHHMMSSZ and the suffix; no host name gives a path, a hidden file or an option."""
    cleaned = _NOT_IN_A_NAME.sub("_", host).lstrip("._-")[:64] or "host"
    return f"{cleaned}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}{suffix}"


def unused(path: Path, suffix: str = SUFFIX) -> Path:
    """Return the path, or `NAME-2` and so on before the suffix if it exists already."""
    stem = path.name.removesuffix(suffix)
    others = (path.with_name(f"{stem}-{n}{suffix}") for n in range(2, _TRIES))
    return next((one for one in (path, *others) if not os.path.lexists(one)), path)


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the current directory, or the user's state directory where that is not writable or was removed.

    Root doesn't write to a current directory that another user can change.
    """
    cwd = paths.current()
    is_writable = cwd is not None and os.access(cwd, os.W_OK | os.X_OK, effective_ids=True)
    if cwd is not None and is_writable and output_files.may_write_in(cwd):
        return cwd
    directory = output_files.state(environ) / "recordings"
    try:
        output_files.make_directories(directory)
    except OSError as error:
        raise UnavailableError(
            f"can't save a file: {cwd or 'this directory'} is not writable and neither is {directory}: {_why(error)}"
        ) from None
    return directory


def refuse(path: Path) -> None:
    """Raise UnavailableError if a recording can't be started at `path`, UsageError for a terminal."""
    if path == STANDARD:
        if sys.stdout.isatty():
            raise UsageError("a recording is binary, and standard output is a terminal: name a file, or pipe it on")
        if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise streams.explain(streams.StdoutError(errno.EBADF, ""))
        return
    output_files.require(path)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        _refuse_directory(path)
    except OSError as error:
        raise UnavailableError(f"can't record to {path}: {_why(error)}") from None
    else:
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "")
        what = f"is {kind}" if kind else "exists and is never overwritten" if stat.S_ISREG(mode) else "is no plain file"
        raise UnavailableError(f"can't record to {path}: it {what}; name a new file")


def refuse_for_hosts(directory: Path) -> None:
    """Raise UnavailableError if a fleet can't be recorded into `directory`, which may be new."""
    output_files.require(directory / "recording" if paths.mode(directory) else directory, str(directory))
    if os.path.islink(directory) or (  # noqa: PTH114 - Path.is_symlink raises OSError for a long name
        paths.mode(directory) and not paths.is_directory(directory)
    ):
        raise UnavailableError(f"can't record to {directory}: it is no directory, and each host gets a file in it")
    if not paths.mode(directory):
        _refuse_directory(directory)
    elif not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise UnavailableError(f"can't record to {directory}: it is not writable")


def short_of_space(path: Path) -> str:
    """Return why the file system of `path` has too little room, or an empty text: a recorder must not fill a disk."""
    if path == STANDARD:
        return ""
    try:
        room = os.statvfs(path.parent)
    except OSError as error:
        return f"the free space of the file system of {path} is not known: {_why(error)}"
    free, share = room.f_bavail * room.f_frsize, room.f_bavail / max(1, room.f_blocks)
    if free >= MIN_FREE_BYTES and share >= MIN_FREE_SHARE:
        return ""
    return (
        f"only {show_size(free)} ({share:.0%}) are free beside {path}, and recording needs "
        f"{show_size(MIN_FREE_BYTES)} and {MIN_FREE_SHARE:.0%}"
    )


def _refuse_directory(path: Path) -> None:
    directory = path.parent
    if not paths.is_directory(directory):
        raise UnavailableError(f"can't record to {path}: there is no directory {directory}")
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise UnavailableError(f"can't record to {path}: {directory} is not writable; name a file elsewhere")
    shortage = short_of_space(path)
    if shortage:
        raise UnavailableError(f"can't record: {shortage}")


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


_REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "beegfs", "gpfs", "fuse")
)
_OCTAL = re.compile(rb"\\([0-7]{3})")
_DEEPEST = 8
"""Maximal depth of stacked devices (dm, md, loop)."""
_PLACES = 6
"""Number of mountinfo's fields before the optional ones."""
OWN_WRITES = "one write a second and what the file system adds to it"


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

    @property
    def is_remote(self) -> bool:
        """Whether a server provides it, on another host or in another process."""
        return self.kind in _REMOTE or self.kind.startswith("fuse.")


def remarks(path: Path, globs: Sequence[str] = (), proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> str:
    """Return a warning about the file system of the new file `path`; empty when there is nothing unusual."""
    directory = _resolved(path.parent)
    mount = mount_of(directory, proc)
    if mount is not None and mount.is_remote:
        return f"the recording goes to a {mount.kind} file system: a server that hangs makes gaps in it"
    below = devices_below(directory, proc, sys)
    measured = [one for one in below if not globs or any(fnmatchcase(one, glob) for glob in globs)]
    if not measured:
        return ""
    which = f"{', '.join(measured[:-1])} and {measured[-1]}, which are" if measured[1:] else f"{measured[0]}, which is"
    return f"the recording lies on {which} measured: latmon's own writes ({OWN_WRITES}) are in the numbers"


def mount_of(directory: Path, proc: Path = Path("/proc")) -> Mount | None:
    """Return the mount of a directory: the latest one with the longest mount point above it."""
    best: Mount | None = None
    for mount in mounts(proc):
        above = mount.point == "/" or directory == Path(mount.point) or Path(mount.point) in directory.parents
        if above and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def devices_below(directory: Path, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> tuple[str, ...]:
    """Return the disks of a directory and all mappings above them; empty where they aren't known."""
    return tuple(dict.fromkeys(_below(directory, proc, sys, _DEEPEST)))


def _below(directory: Path, proc: Path, sys: Path, depth: int) -> Iterator[str]:
    if not depth:
        return
    mount = mount_of(directory, proc)
    if mount is not None and mount.is_remote:  # stat(2) does not return while its server is silent
        return
    if mount is None:
        yield from _of_mount(_number(directory), None, proc, sys, depth)
        return
    # stat(2) of a directory on a suspended device does not return either
    yield from _of_mount(_number_of(mount), mount, proc, sys, depth)


def _of_mount(number: int, mount: Mount | None, proc: Path, sys: Path, depth: int) -> Iterator[str]:
    """Yield the devices below a file system: by its device's number, else by its mount."""
    if os.major(number):
        yield from _stack(sys / f"dev/block/{os.major(number)}:{os.minor(number)}", proc, sys, depth)
        return
    # btrfs, overlay and the like have no device number of their own
    if mount is None:
        return
    upper = next((one[9:] for one in mount.options.split(",") if one.startswith("upperdir=")), "")
    if mount.kind == "overlay" and upper:
        above = mount_of(Path(upper), proc)
        if above is None or not above.is_remote:
            yield from _below(Path(upper), proc, sys, depth - 1)
    elif mount.source.startswith("/dev/"):
        name = _resolved(Path(mount.source)).name
        for one in _btrfs_devices(name, sys):
            yield from _stack(sys / "class/block" / one, proc, sys, depth)


def _number(directory: Path) -> int:
    """Return the number of a directory's device; 0 where it can't be read."""
    try:
        return directory.stat().st_dev
    except OSError:
        return 0


def _btrfs_devices(name: str, sys: Path) -> list[str]:
    """Return all devices of the btrfs that contains this one; elsewhere the device alone."""
    for devices in _entries(sys / "fs/btrfs"):
        names = [one.name for one in _entries(devices / "devices")]
        if name in names:
            return names
    return [name]


def _stack(block: Path, proc: Path, sys: Path, depth: int) -> Iterator[str]:
    """Yield a block device's whole disk and the devices below it."""
    block = _resolved(block)
    if not depth or not block.is_dir():
        return
    if (block / "partition").exists():
        block = block.parent
    yield clean(block.name)
    backing = content(block / "loop/backing_file").strip()
    if backing:
        yield from _below(Path(os.fsdecode(backing)).parent, proc, sys, depth - 1)
    for below in _entries(block / "slaves"):
        yield from _stack(sys / "class/block" / below.name, proc, sys, depth - 1)


def mounts(proc: Path = Path("/proc"), process: str = "self") -> Iterator[Mount]:
    """Yield the mounts of a process in the order of mountinfo: none where there is no such file."""
    for line in content(proc / process / "mountinfo").splitlines():
        before, separator, after = line.partition(b" - ")
        places, kinds = before.split(b" "), after.split(b" ")
        if separator and len(places) >= _PLACES and len(kinds) > 2:  # noqa: PLR2004 - kind, source, options
            major, _, minor = places[2].partition(b":")
            number = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
            names = clean(plain_field(kinds[0])), plain_field(kinds[1]), plain_field(kinds[2])
            number_of_mount = int(places[0]) if places[0].isdigit() else 0
            yield Mount(plain_field(places[4]), *names, number, plain_field(places[3]), number_of_mount)


def usual_mounts(each: Iterable[Mount]) -> dict[tuple[int, int], Mount]:
    """Return one mount of each file system by its number: not a bind mount of a directory in it, and the shortest."""
    usual: dict[tuple[int, int], Mount] = {}
    for mount in each:
        before = usual.get(mount.number)
        if before is None or _mount_rank(mount) < _mount_rank(before):
            usual[mount.number] = mount
    return usual


def _mount_rank(mount: Mount) -> tuple[bool, int]:
    return mount.root != "/", len(mount.point)


def disk_of(mount: Mount, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> str:
    """Return the block device of a mount, the whole disk of a partition; empty where it is on none, or not known."""
    return next(_of_mount(_number_of(mount), mount, proc, sys, _DEEPEST), "")


def _number_of(mount: Mount) -> int:
    """Return the number of a mount's block device; 0 where it has none of its own."""
    return os.makedev(*mount.number) if mount.number[0] else 0


def mount_name(point: str) -> str:
    """Return a mount point as all tables and file systems name it, by which their rows are matched."""
    return clean_path(point, _MAX_MOUNT)


def plain_field(field: bytes) -> str:
    """Return a field of mountinfo or mountstats without its octal escapes."""
    return os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), field))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
