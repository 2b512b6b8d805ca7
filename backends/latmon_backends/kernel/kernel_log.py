"""Lines of the kernel's log about devices, from /dev/kmsg.

The file is opened once, read only, as long as this process may: a descriptor stays valid after root is given up. A read
returns one record and never waits. What is read at a time is bounded; beyond that the reader goes to the newest record,
and the numbers of records give how many it passed. Lines that programs wrote into the log are no evidence of the kernel
and are left out, as are lines about how a healthy device came up. A program chooses its own name, with which the kernel
begins lines about it (`sda[4711]: segfault at ...`). So a line is about a device only where a driver or a file system
names it at its own place (`_SUBJECT`), or where the record has the number of the device.

A record is `PREFIX,SEQUENCE,MICROSECONDS,FLAGS;TEXT` with lines ` KEY=VALUE` after it (ABI/testing/dev-kmsg).
PREFIX is facility << 3 | level. Its clock is near CLOCK_MONOTONIC, and drifts from it by seconds in weeks.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Device, Mark
from latmon.model.measurements.file_system_errors import FileSystemError
from latmon.model.measurements.recoveries import Recovery
from latmon.support.text import clean
from latmon_backends.kernel.file_system_errors import Inode, LoggedErrors, inode_of
from latmon_backends.kernel.recoveries import DeviceEvents, events_of

_RECORD = 8192
"""CONSOLE_EXT_LOG_MAX: the longest record."""
_SKIPPED = (errno.EPIPE, errno.EINVAL)
"""A record was overwritten before it was read, or is longer than the longest one: the next read is of the next."""
_READ_AT_START, _READ = 20_000, 400
"""Records that are read at a time."""
_KEPT = 16
"""Lines of one interval."""
_RECENT_US = 300_000_000
"""Lines of this time before the start are read."""
_GONE_US = 300_000_000
"""A removed device is known for so long: the last lines about it come after its removal."""
_LONGEST = 200
"""Characters of a line."""
_MADE_ANEW = ("loop", "nbd", "zram", "dm-", "md")
"""Devices whose names are given again: a line from before the start may be of another one."""
_WARNING = 4
"""Less urgent levels have lines about healthy devices, too."""
_TROUBLE = re.compile(
    r"error(?!s=)|fail|reset|abort|time[ d-]?out(?! set)|offline|dead|sense key|add\. sense|retr[iy]|fault|lost"
    r"|remov(?!able)|detach|disconnect|link.* down|stuck request",
    re.IGNORECASE,
)
_OF_PROGRAM = re.compile(r".{0,15}?(?:\[\d+\]| ?\(\d+\)[: ])|.*, mode:0x[0-9a-f]+\(")
"""Lines that begin with a program's name, of at most 15 characters: `NAME[pid]: segfault` (arch/x86/mm/fault.c),
`NAME (pid): drop_caches`, `NAME: page allocation failure: order:0, mode:0x...(GFP_KERNEL)` (mm/page_alloc.c)."""
_FILE_SYSTEM = "EXT[234]-fs|XFS|BTRFS|F2FS-fs|FAT-fs|exFAT-fs|erofs|NILFS|UDF-fs|bcachefs|JFS|REISERFS"
_DISK = r"(?:nvme\d+(?:c\d+)?n|mmcblk|loop|zram|nbd|rbd|drbd|dm-|md|pmem)\d+(?:p\d+)?"
_SUBJECT = re.compile(
    "|".join(
        (
            # block/blk-core.c blk_status_to_str(), fs/buffer.c; before Linux 5.15 with the name of the function
            r"(?:\w+: )?[A-Za-z][\w/ ]* error(?:,| on) dev(?:ice)? ([\w!/.-]+)",
            # drivers/scsi: sd, sr and scsi_transport; of an adapter's driver after its PCI address
            r"(?:[\w-]+ [\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d: )?(?:sd|sr|scsi|ses|st|ch) (host\d+|\d+:\d+:\d+:\d+):",
            r"(ata\d+)(?:\.\d+)?: ",
            r"nvme (nvme\d+\w*): ",
            # drivers/nvme/host/core.c nvme_log_error()
            r"(nvme\d+(?:c\d+)?n\d+): [\w /-]+\(0x[\da-f]+\)",
            r"block ([\w-]+): ",
            r"virtio_blk virtio\d+: \[(\w+)\]",
            r"blkfront: (\w+): ",
            # a line of raid and multipath names the array and the failed member; the member has the hardware
            r"device-mapper: multipath: \d+:\d+: Failing path (\d+:\d+)",
            r"device-mapper: [\w -]+: (\d+:\d+|dm-\d+): ",
            r"md/raid[\w-]*:\w+: (?:Disk failure on |(?=\w+: rescheduling))(\w+)",
            r"md/raid[\w-]*:(\w+): ",
            r"md: (?:kicking non-fresh |could not open device )?(\w+)",
            # fs/btrfs: the file system has the name of its first device, `bdev` is the one that failed
            r"BTRFS \w+ \(device [^)]*\): bdev /dev/([\w-]+) errs",
            rf"(?:{_FILE_SYSTEM}):?[ \w]*\((?:device )?([\w!-]+)[^)]*\)",
            # fs/jbd2: the device and the inode of the journal
            r"(?:Aborting journal on device |JBD2: .*\b(?:for|on) )([\w!-]+?)-\d+\b",
            r"(?:Read|Write)-error on swap-device \((\d+:\d+):",
            # block/blk-core.c bio_check_eod(): after the program's name and an escaped end of line
            r".{1,15}: attempt to access beyond end of device\\x0a([\w!-]+): rw=",
            r"([\w!-]+): rw=\d+, (?:want|sector)=",  # the same before Linux 5.10, as a line of its own
            rf"({_DISK}): ",
        )
    )
)
"""The place where a line names its device."""
_PARTITION = re.compile(r"(?<=\d)p\d+$|(?<=[a-z])\d+$")
_SCSI = re.compile(r"\d+:\d+:\d+:\d+")
_PORT = re.compile(r"(?:ata|host)\d+")
_NVME = re.compile(r"(nvme\d+)(?:c\d+)?n\d+")
_BLOCK_NUMBER, _SCSI_NAME = "DEVICE=b", "DEVICE=+scsi:"
_ADAPTER = "host"


class _Line(NamedTuple):
    """One record of the log."""

    level: int
    sequence: int
    us: int
    text: str
    values: tuple[str, ...]
    is_kernel: bool


class KernelLog:
    """Reader of /dev/kmsg; `why_unread` where it can't be opened."""

    def __init__(self, path: Path, sys: Path, read: Callable[[int, int], bytes] = os.read) -> None:
        self._read_record = read
        self._next: int | None = None
        """The number of the next record."""
        self._names = _DeviceNames(sys)
        self._errors = LoggedErrors()
        self._left_out = 0
        """Records without a line, of which no mark has the number yet."""
        self._before_us = 0
        self.why_unread = ""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._file = -1
            self.why_unread = f"{path}: {error.strerror or error}"

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def events(self, mono_us: int, wall: float, devices: Mapping[str, Device]) -> DeviceEvents:
        """Return the lines about the devices since the last call; at first those of the last minutes.

        What they say that the kernel did about commands, and that file systems found, is counted, but not of lines from
        before the first call. A line
        gets a time in the interval that ends at `mono_us`: its own clock is another one. A first mark says how many
        lines there was no room for, with the records that were passed or overwritten unread.
        """
        if self._file < 0:
            return DeviceEvents()
        self._names.follow(devices, mono_us)
        is_first, before_us = not self._before_us, self._before_us
        self._before_us = mono_us
        marks: list[Mark] = []
        recoveries: Counter[Recovery] = Counter()
        errors: Counter[FileSystemError] = Counter()
        damaged: Counter[Inode] = Counter()
        for line in self._read(_READ_AT_START if is_first else _READ):
            if self._next is not None and line.sequence > self._next and not is_first:
                self._left_out += line.sequence - self._next
            self._next = line.sequence + 1
            if (is_first and line.us < mono_us - _RECENT_US) or not _is_of_trouble(line):
                continue
            device = self._names.subject(line)
            if device is None or (is_first and device.startswith(_MADE_ANEW)):
                continue
            at_us = mono_us if is_first else min(max(line.us, before_us), mono_us)
            age_us = mono_us - (min(line.us, mono_us) if is_first else at_us)
            marks.append(Mark(clean(line.text, _LONGEST), at_us, wall - age_us / 1e6, device=device))
            recoveries.update(Recovery(device, event) for event in events_of(line.text))
            errors.update(self._errors.count(device, line.text, is_old=is_first))
            inode = inode_of(line.text)
            if inode is not None:
                damaged[Inode(device, inode)] += 1
        if is_first:
            return DeviceEvents(tuple(marks[-_KEPT:]))
        self._left_out += max(0, len(marks) - _KEPT)
        kept = marks[:_KEPT]
        if self._left_out and kept:
            # first, so that the newest mark of a device is a line
            text = f"{self._left_out:,} more lines of the kernel's log were not read"
            kept.insert(0, replace(kept[0], text=text))
            self._left_out = 0
        return DeviceEvents(tuple(kept), recoveries, errors, damaged)

    def _read(self, most: int) -> Iterator[_Line]:
        """Yield records up to the newest one; after `most` go to the end."""
        for _ in range(most):
            try:
                raw = self._read_record(self._file, _RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SKIPPED:
                    continue
                return
            if not raw:
                return
            if (line := _parsed(raw)) is not None:
                yield line
        try:
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            self.close()


class _DeviceNames:
    """Words by which lines name devices, of those that are known and of those that were removed minutes ago."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._followed: Mapping[str, Device] = {}
        self._words: dict[str, tuple[Device, tuple[str, ...]]] = {}
        self._gone: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Removed device -> when it is forgotten, its words."""
        self._device_of: dict[str, str] = {}
        self._until_us: float = inf
        """When the first removed device is forgotten."""

    def follow(self, devices: Mapping[str, Device], mono_us: int) -> None:
        """Take the devices of now. The words of a device are looked up once, in sysfs, which has no removed one."""
        if self._followed is devices and mono_us <= self._until_us:
            return
        for name in self._words.keys() - devices.keys():
            self._gone[name] = (mono_us + _GONE_US, self._words.pop(name)[1])
        for name, device in devices.items():
            known = self._words.get(name)
            if known is None or known[0] is not device:
                self._words[name] = (device, tuple(_words(self._sys, device)))
        for name in tuple(self._gone):
            if name in devices or mono_us > self._gone[name][0]:
                del self._gone[name]
        self._until_us = min((until_us for until_us, _ in self._gone.values()), default=inf)
        self._followed = devices
        self._device_of = self._by_word()

    def _by_word(self) -> dict[str, str]:
        """Return word -> device. A word of a removed device may be another one's by now, whose it is then."""
        by_word: dict[str, str] = {}
        for name, (_, words) in self._gone.items():
            by_word.update(dict.fromkeys(words, name))
        adapters: Counter[str] = Counter()
        for name, (_, words) in self._words.items():
            by_word.update(dict.fromkeys(words, name))
            adapters.update(word for word in words if word.startswith(_ADAPTER))
        for adapter, disks in adapters.items():
            if disks > 1:
                del by_word[adapter]  # a line about an adapter is about none of its disks
        by_word.update(zip(self._words, self._words, strict=True))
        return by_word

    def subject(self, line: _Line) -> str | None:
        """Return the device that a line is about; None without a known one."""
        for value in line.values:
            for prefix in (_BLOCK_NUMBER, _SCSI_NAME):
                name = self._device_of.get(value.removeprefix(prefix)) if value.startswith(prefix) else None
                if name is not None:
                    return name
        if _OF_PROGRAM.match(line.text):
            return None
        match = _SUBJECT.match(line.text)
        if match is None or match.lastindex is None:
            return None
        word = match[match.lastindex]
        return self._device_of.get(word) or self._device_of.get(_PARTITION.sub("", word))


def _is_of_trouble(line: _Line) -> bool:
    return line.is_kernel and (line.level <= _WARNING or bool(_TROUBLE.search(line.text)))


def _parsed(raw: bytes) -> _Line | None:
    """Return a record; None for one that can't be read."""
    head, separator, body = raw.partition(b";")
    text, *values = body.decode("utf-8", "replace").split("\n")
    try:
        prefix, sequence, us = (int(number) for number in head.split(b",")[:3])
    except ValueError:
        return None
    if not separator:
        return None
    return _Line(prefix & 7, sequence, us, text, tuple(value.strip() for value in values), prefix >> 3 == 0)


def _words(sys: Path, device: Device) -> Iterator[str]:
    """Yield what lines call a device: its NVMe controller, SCSI address, ATA port, host adapter, number and name."""
    if (controller := _NVME.fullmatch(device.name)) is not None:
        yield controller[1]
    path = os.path.realpath(sys / "block" / device.name.replace("/", "!") / "device")
    for part in path.split("/"):
        if _PORT.fullmatch(part) or _SCSI.fullmatch(part):
            yield part
    if device.major or device.minor:
        yield f"{device.major}:{device.minor}"
    yield device.name
