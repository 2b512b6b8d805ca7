"""Lines of the kernel's log about devices, from /dev/kmsg.

The file is opened once, read only, as long as this process may: a descriptor stays valid after root is given up. A read
returns one record and never waits. What is read at a time is bounded; beyond that the reader goes to the newest record,
and the numbers of records tell how many it passed. Lines that programs wrote into the log are no evidence of the kernel
and are left out, as are lines that say how a healthy device came up.

A record is `PREFIX,SEQUENCE,MICROSECONDS,FLAGS;TEXT` with lines ` KEY=VALUE` after it (ABI/testing/dev-kmsg).
PREFIX is facility << 3 | level. Its clock is near CLOCK_MONOTONIC, and drifts from it by seconds in weeks.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Device, Mark
from latmon.support.text import clean

_RECORD = 8192
"""CONSOLE_EXT_LOG_MAX: the longest record."""
_UNREADABLE = (errno.EPIPE, errno.EINVAL)
"""A record was overwritten before it was read, or is longer than the longest one: the next read is of the next."""
_READ_AT_START, _READ = 20_000, 400
"""Records that are read at a time."""
_KEPT = 16
"""Lines of one interval."""
_RECENT_US = 300_000_000
"""Lines of this time before the start are read."""
_LONGEST = 200
"""Characters of a line."""
_MADE_ANEW = ("loop", "nbd", "zram", "dm-", "md")
"""Devices whose names are given again: a line from before the start may be of another one."""
_NOTICE = 5
"""Less urgent levels have lines about healthy devices, too."""
_TROUBLE = re.compile(
    r"error|fail|reset|abort|time[ d-]?out|offline|dead|sense|retr|fault|lost|remov|detach|disconnect|link.* down",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"(?<![\d:.])(\d{1,4}:\d{1,7}|\d+:\d+:\d+:\d+)(?!:?\d)")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_PARTITION = re.compile(r"(?<=\d)p\d+$|(?<=[a-z])\d+$")
_SCSI = re.compile(r"\d+:\d+:\d+:\d+")
_PORT = re.compile(r"(?:ata|host)\d+")
_NVME = re.compile(r"(nvme\d+)(?:c\d+)?n\d+")
_BLOCK_NUMBER, _SCSI_NAME = "DEVICE=b", "DEVICE=+scsi:"


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
        self._sys = sys
        self._next: int | None = None
        """The number of the next record."""
        self._tokens: dict[str, str] = {}
        self._tokens_of: Mapping[str, Device] = {}
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

    def lines(self, mono_us: int, wall: float, devices: Mapping[str, Device]) -> tuple[Mark, ...]:
        """Return the lines about the devices since the last call; at first those of the last minutes.

        A line gets a time in the interval that ends at `mono_us`: its own clock is another one. A first mark says how
        many lines there was no room for, with the records that were passed or overwritten unread.
        """
        if self._file < 0:
            return ()
        is_first, before_us = not self._before_us, self._before_us
        self._before_us = mono_us
        found: list[Mark] = []
        left_out = 0
        for line in self._read(_READ_AT_START if is_first else _READ):
            if self._next is not None and line.sequence > self._next and not is_first:
                left_out += line.sequence - self._next
            self._next = line.sequence + 1
            if (is_first and line.us < mono_us - _RECENT_US) or not _is_of_trouble(line):
                continue
            device = self._device(line, devices)
            if device is None or (is_first and device.startswith(_MADE_ANEW)):
                continue
            at_us = mono_us if is_first else min(max(line.us, before_us), mono_us)
            age_us = mono_us - (min(line.us, mono_us) if is_first else at_us)
            found.append(Mark(clean(line.text, _LONGEST), at_us, wall - age_us / 1e6, device=device))
        if is_first:
            return tuple(found[-_KEPT:])
        left_out += max(0, len(found) - _KEPT)
        kept = found[:_KEPT]
        if left_out and kept:
            # first, so that the newest mark of a device is a line
            text = f"{left_out:,} more lines of the kernel's log were not read"
            kept.insert(0, replace(kept[0], text=text))
        return tuple(kept)

    def _read(self, most: int) -> Iterator[_Line]:
        """Yield records up to the newest one; after `most` go to the end."""
        for _ in range(most):
            try:
                raw = self._read_record(self._file, _RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (
                    errno.EPIPE,
                    errno.EINVAL,
                ):  # overwritten before it was read; longer than the longest
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

    def _device(self, line: _Line, devices: Mapping[str, Device]) -> str | None:
        """Return the first known device that a line names; None without one."""
        if self._tokens_of is not devices:
            self._tokens_of, self._tokens = devices, dict(_tokens(self._sys, devices))
        for value in line.values:
            for prefix in (_BLOCK_NUMBER, _SCSI_NAME):
                if value.startswith(prefix) and (name := self._tokens.get(value.removeprefix(prefix))):
                    return name
        words = (match[0] for pattern in (_WORD, _NUMBERS) for match in pattern.finditer(line.text))
        for word in words:
            name = self._tokens.get(word) or self._tokens.get(_PARTITION.sub("", word))
            if name is not None:
                return name
        return None


def _is_of_trouble(line: _Line) -> bool:
    return line.is_kernel and (line.level <= _NOTICE or bool(_TROUBLE.search(line.text)))


def _parsed(raw: bytes) -> _Line | None:
    """Return a record; None for one that can't be read."""
    head, separator, rest = raw.partition(b";")
    text, *values = rest.decode("utf-8", "replace").split("\n")
    try:
        prefix, sequence, us = (int(number) for number in head.split(b",")[:3])
    except ValueError:
        return None
    if not separator:
        return None
    return _Line(prefix & 7, sequence, us, text, tuple(value.strip() for value in values), prefix >> 3 == 0)


def _tokens(sys: Path, devices: Mapping[str, Device]) -> Iterator[tuple[str, str]]:
    """Yield what lines call each device: its name and number, its NVMe controller, its SCSI address, its ATA port."""
    for name, device in devices.items():
        if (controller := _NVME.fullmatch(name)) is not None:
            yield controller[1], name
        real = os.path.realpath(sys / "block" / name.replace("/", "!") / "device")
        for part in real.split("/"):
            if _PORT.fullmatch(part) or _SCSI.fullmatch(part):
                yield part, name
        if device.major or device.minor:
            yield f"{device.major}:{device.minor}", name
    for name in devices:
        yield name, name
