"""Counters of disks from psutil, where there is no /proc/diskstats.

No identity beyond a name, nothing in flight, no flushes or discards: what psutil lacks is absent, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import psutil

from latmon.model.frame import Device
from latmon.support.errors import UnavailableError
from latmon.support.text import clean
from latmon_backends.kernel.counters import CLOCK, Clock, Sample
from latmon_backends.kernel.diskstats import Counters, Tally


def _ask() -> Mapping[str, Any]:
    # nowrap=True would keep psutil's own state between calls; resets are the difference's business.
    return psutil.disk_io_counters(perdisk=True, nowrap=False)


class PsutilSampler:
    """As KernelSampler, as far as psutil knows."""

    def __init__(
        self,
        devices: tuple[str, ...] = (),
        clock: Clock = CLOCK,
        ask: Callable[[], Mapping[str, Any]] = _ask,
    ) -> None:
        self._globs, self._clock, self._ask = devices, clock, ask
        self._known: dict[str, Device] = {}

    def start(self) -> None:
        """Nothing to look at between samples."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """All selected devices as of the last sample."""
        return tuple(self._known.values())

    def sample(self) -> Sample:
        """Everything now. UnavailableError when psutil can't tell."""
        mono_us, wall = self._clock.mono_us(), self._clock.wall()
        counters = {
            clean(name): _counters(clean(name), io) for name, io in self._counts().items() if self._selects(name)
        }
        # psutil knows no dev_t: devices are numbered in the order of their appearance, which nothing shows.
        known = {name: self._known.get(name) or Device(name, 0, at, kind="other") for at, name in enumerate(counters)}
        changed = tuple(device for name, device in known.items() if name not in self._known)
        removed = tuple(name for name in self._known if name not in known)
        self._known = known
        return Sample(mono_us, wall, counters, shown=frozenset(known), devices=changed, removed=removed)

    def require_selected(self) -> None:
        """UnavailableError where the globs mean no device that is there."""
        if self._globs and not self._known:
            raise UnavailableError(f"No device matches --device {' '.join(self._globs)}.")

    def _counts(self) -> Mapping[str, Any]:
        try:
            return self._ask()
        except (OSError, RuntimeError, psutil.Error) as error:
            raise UnavailableError(f"This system's I/O counters can't be read: {error}.") from error

    def _selects(self, name: str) -> bool:
        return not self._globs or any(fnmatchcase(name, glob) for glob in self._globs)


def _counters(name: str, io: Any) -> Counters:
    read_ms, write_ms = getattr(io, "read_time", 0), getattr(io, "write_time", 0)
    ops = {
        "read": Tally(io.read_count, io.read_bytes, read_ms),
        "write": Tally(io.write_count, io.write_bytes, write_ms),
    }
    return Counters(name, ops)
