"""Items of a recording for exports: selected devices, gaps and damage in their places; one window in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from latmon.model.frame import Device, Frame, Mark, Origin, Traced
from latmon.recording.encode import End, Gap
from latmon.recording.reader import Recording
from latmon.support.errors import UsageError

_MAX_NAMED = 20
_BY_DEVICE = ("histograms", "seen", "kernel", "above", "thresholds_us", "outstanding", "depths", "issues")
_TRACED_BY_DEVICE = ("histograms", "by_total", "unfollowed", "paths")
Item = Frame | Gap | Mark | End


@dataclass(frozen=True, slots=True)
class DamageNote:
    """Damage, in the place of the file where it was found."""

    text: str


Reported = Frame | Gap | Mark | DamageNote


class UnreportedGaps:
    """Gaps without a line: holes between two windows, and windows with a gap of their own."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._last: Frame | None = None
        self._excused = False

    def before(self, item: Item) -> Iterator[Gap]:
        """Yield the gaps before this item, which is the next one."""
        if not isinstance(item, Frame):
            self._excused = self._excused or isinstance(item, Gap)
            return
        last, excused = self._last, self._excused
        self._last, self._excused = item, False
        if last is not None and not excused and (hole := self._hole(last, item)):
            yield hole
        if item.gap:
            yield Gap(item.gap, item.dt_us / 1e6, item.mono_us - item.dt_us, item.wall - item.dt_us / 1e6)

    def _hole(self, last: Frame, now: Frame) -> Gap | None:
        """Return the gap between two windows if no line explains it; the report finds the same ones."""
        missing_us = now.mono_us - now.dt_us - last.mono_us
        if missing_us <= max(self._interval_us, now.dt_us) / 2:
            return None
        return Gap("windows-missing", missing_us / 1e6, last.mono_us, last.wall)


def is_redacted(origin: Origin) -> bool:
    """Return whether names that identify the host or its users were left out."""
    return origin.extra.get("redacted") is True


class Source:
    """Recording as one export sees it, with counts of the windows, gaps and damages of the latest reading."""

    def __init__(self, recording: Recording, globs: tuple[str, ...] = ()) -> None:
        self.recording, self.globs = recording, globs
        self.windows = 0
        self.gaps = 0
        self.damaged = 0
        self.devices: dict[str, Device] = {}
        self._names: set[str] = set()

    @property
    def origin(self) -> Origin:
        return self.recording.origin

    @property
    def redacted(self) -> bool:
        return is_redacted(self.origin)

    def items(self, since_us: int = 0) -> Iterator[Item]:
        """Yield items as they are in the file; the first window also names the header's devices."""
        self.windows = self.gaps = 0
        self.devices = {one.name: one for one in self.recording.devices}
        for item in self.recording.since(since_us):
            if isinstance(item, Frame):
                self.devices.update((one.name, one) for one in item.devices)
                named = item if self.windows else replace(item, devices=tuple(self.devices.values()))
                self.windows += 1
                yield self.only(named)
            else:
                self.gaps += isinstance(item, Gap)
                yield item
        self.damaged = len(self.recording.damage)
        self.check()

    def reported(self, since_us: int = 0) -> Iterator[Reported]:
        """Yield windows, and every gap, mark and damage in its place; the gap of a window is before it."""
        unreported, said = UnreportedGaps(self.origin.interval_us), 0
        for item in self.items(since_us):
            for gap in unreported.before(item):
                self.gaps += 1
                yield gap
            yield from (DamageNote(text) for text in self.recording.damage[said:])
            said = len(self.recording.damage)
            if not isinstance(item, End):
                yield item
        yield from (DamageNote(text) for text in self.recording.damage[said:])

    def wants(self, name: str) -> bool:
        """Return whether a device is selected, by its name or label."""
        if not self.globs:
            return True
        device = self.devices.get(name)
        names = (name, device.label) if device and device.label else (name,)
        return any(fnmatchcase(n, glob) for n in names for glob in self.globs)

    def only(self, frame: Frame) -> Frame:
        """Return the window without devices that are not selected."""
        if not self.globs:
            return frame
        traced, still = frame.traced, frame.in_flight
        for found in (frame.histograms, frame.seen, frame.kernel):
            self._names.update(one.device for one in found)
        self._names.update(frame.outstanding)
        if still is not None:  # counts by age are of all devices, and have no device
            still = replace(still, oldest=tuple(one for one in still.oldest if self.wants(one.device)), older={})
        return replace(
            frame,
            **self._wanted(frame, _BY_DEVICE),
            outliers=tuple(one for one in frame.outliers if self.wants(one.device)),
            traced=replace(traced, **self._wanted(traced, _TRACED_BY_DEVICE)),
            devices=tuple(one for one in frame.devices if self.wants(one.name)),
            removed=tuple(name for name in frame.removed if self.wants(name)),
            in_flight=still,
        )

    def _wanted(self, value: Frame | Traced, names: Iterable[str]) -> dict[str, Any]:
        """Return these mappings of a value without other devices; their keys are devices' names or have a device."""
        return {
            name: {key: one for key, one in getattr(value, name).items() if self.wants(getattr(key, "device", key))}
            for name in names
        }

    def check(self) -> None:
        """Raise UsageError when no device is selected by the given names."""
        every = self._names | {*self.devices}
        if self.globs and not any(map(self.wants, every)):
            names = sorted(every)
            more = " ..." if len(names) > _MAX_NAMED else ""
            there = ", ".join(names[:_MAX_NAMED]) or "none"
            raise UsageError(f"--device {' '.join(self.globs)}: no such device in it; there are {there}{more}")
