"""The kernel's gauges of one busy block device, kept open: /sys/block/X/stat and X/inflight.

Owns two descriptors and how few reads tell a depth. Must not know schedules or other devices.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Self

from latmon_backends import inflight

_STAT_BYTES, _INFLIGHT_BYTES = 512, 64
_COLUMN = 8
"""In-flight, in /sys/block/X/stat: what column 12 is in /proc/diskstats (Documentation/block/stat.rst)."""


class Gauge(NamedTuple):
    """A reading. `moved` is False where no I/O came or completed since the one before."""

    in_driver: int
    queued: int | None
    moved: bool


class DepthFiles:
    """`read` it as often as wanted; `close` it when it fails or isn't wanted any more."""

    def __init__(self, block: Path, *, has_queued: bool) -> None:
        """OSError where the device has gone or no more files can be opened: nothing is left open then.

        `has_queued` as in inflight.py, for this device.
        """
        self._has_queued = has_queued
        self._stat = os.open(block / "stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._inflight = os.open(block / "inflight", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._stat)
            raise
        self._line = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def read(self) -> Gauge:
        """The gauge now. OSError (ENODEV) when the device has gone, ValueError when it says what nobody understands.

        The two files are read one after the other: what completed in between would look as if it waited. Where
        something seems to wait the column is read again, and the smaller number is the queue.
        """
        line = os.pread(self._stat, _STAT_BYTES, 0)
        moved, self._line = line != self._line, line
        column = _column(line)
        if not column:
            return Gauge(0, 0 if self._has_queued else None, moved)
        driver = sum(map(int, os.pread(self._inflight, _INFLIGHT_BYTES, 0).split()))
        if self._has_queued and column > driver:
            column = min(column, _column(os.pread(self._stat, _STAT_BYTES, 0)))
        told = inflight.outstanding(driver, column, has_queued=self._has_queued)
        return Gauge(driver, told.queued, moved)

    def close(self) -> None:
        os.close(self._stat)
        os.close(self._inflight)


def _column(line: bytes) -> int:
    words = line.split(None, _COLUMN + 1)
    if len(words) <= _COLUMN:
        raise ValueError("fewer columns than any supported kernel prints")
    return int(words[_COLUMN])
