"""One pass after the other over the kernel's in-flight gauges: busy devices at each, quiet ones now and then.

A busy device is read through files kept open. The quiet ones are one reading of /proc/diskstats for all of them: a
line that says that nothing is in flight and that hasn't moved is a depth of 0; one that moved makes the device busy.
Owns which device is which, and the open files. Must not know clocks, threads or frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from latmon.files import content
from latmon_backends import block_kinds
from latmon_backends.depth_files import DepthFiles, Gauge

MOST_OPEN = 128
"""Devices whose files are open at once: two each, of the 1024 that a process may have. Others open theirs each time."""
_QUIET = 64
"""Passes without any I/O after which a device is quiet."""
_NAME, _COLUMN = 2, 11
"""Of a line of /proc/diskstats: name and in-flight (Documentation/admin-guide/iostats.rst)."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What is to be read of a device. Another `generation` is another device with the same name."""

    generation: int
    has_queued: bool
    """As in inflight.py, for this device."""


@dataclass(slots=True)
class _Busy:
    watched: Watched
    files: DepthFiles
    passes_without: int = 0


class Passes:
    """`tell` gets each reading. A device that can't be read is left out until it moves again."""

    def __init__(self, proc: Path, sys: Path, tell: Callable[[str, Watched, Gauge], None]) -> None:
        self._diskstats, self._block, self._tell = proc / "diskstats", sys / "block", tell
        self._watched: Mapping[str, Watched] = {}
        self._names: dict[bytes, str] = {}
        self._busy: dict[str, _Busy] = {}
        self._lines: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for name in tuple(self._busy):
            self._close(name)

    @property
    def open(self) -> frozenset[str]:
        """Devices whose files are open."""
        return frozenset(self._busy)

    def watch(self, devices: Mapping[str, Watched]) -> None:
        """These and no others, from the next pass on."""
        if devices is self._watched:
            return
        self._watched = devices
        self._names = {name.encode(): name for name in devices}
        self._lines = {name: line for name, line in self._lines.items() if name in devices}
        for name, busy in tuple(self._busy.items()):
            if devices.get(name) != busy.watched:
                self._close(name)

    def one(self, *, quiet: bool) -> None:
        """A pass; over the quiet devices too where `quiet` says so."""
        for name, busy in tuple(self._busy.items()):
            self._read(name, busy)
        if quiet:
            for line in content(self._diskstats).splitlines():
                self._look(line)

    def _read(self, name: str, busy: _Busy) -> None:
        try:
            gauge = busy.files.read()
        except (OSError, ValueError):  # ENODEV: it has gone
            self._close(name)
            return
        self._tell(name, busy.watched, gauge)
        busy.passes_without = 0 if gauge.moved or gauge.in_driver or gauge.queued else busy.passes_without + 1
        if busy.passes_without > _QUIET:
            self._close(name)

    def _look(self, line: bytes) -> None:
        words = line.split(None, _COLUMN + 1)
        name = self._names.get(words[_NAME]) if len(words) > _COLUMN else None
        if name is None or name in self._busy:
            return
        watched, before, self._lines[name] = self._watched[name], self._lines.get(name, line), line
        if line == before and words[_COLUMN] == b"0":
            self._tell(name, watched, Gauge(0, 0 if watched.has_queued else None, moved=False))
            return
        try:
            files = DepthFiles(block_kinds.directory(self._block, name), has_queued=watched.has_queued)
        except OSError:
            return
        busy = self._busy[name] = _Busy(watched, files)
        self._read(name, busy)
        if len(self._busy) > MOST_OPEN:
            self._close(name)

    def _close(self, name: str) -> None:
        if busy := self._busy.pop(name, None):
            busy.files.close()
