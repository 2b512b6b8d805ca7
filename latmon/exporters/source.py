"""The items of a recording that an export reads: selected devices, gaps and damage in their places.

Holds one window at a time. Knows no format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from latmon.model.frame import Device, Frame, Mark, Origin
from latmon.recording.encode import End, Gap
from latmon.recording.reader import Recording
from latmon.support.errors import UsageError

_MAX_NAMED = 20
Item = Frame | Gap | Mark | End


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that can't be read: what it says stands where it was found."""

    text: str


Told = Frame | Gap | Mark | Damage


class Unsaid:
    """Gaps that no line says: time between two windows, and windows that say of themselves that they are unusual."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._last: Frame | None = None
        self._excused = False

    def before(self, item: Item) -> Iterator[Gap]:
        """Those that are told before this item, which is the next."""
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
        """Time between two windows that nobody says anything about; the report finds the same."""
        missing_us = now.mono_us - now.dt_us - last.mono_us
        if missing_us <= max(self._interval_us, now.dt_us) / 2:
            return None
        return Gap("windows-missing", missing_us / 1e6, last.mono_us, last.wall)


class Source:
    """A recording as one export sees it. `windows`, `gaps` and `damaged` are what the latest reading came upon."""

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
        return self.origin.extra.get("redacted") is True

    def items(self, since_us: int = 0) -> Iterator[Item]:
        """As they are in the file; the first window names the header's devices too."""
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

    def told(self, since_us: int = 0) -> Iterator[Told]:
        """Windows, and in their place every gap, mark and damage; an unusual window has its gap before it."""
        unsaid, said = Unsaid(self.origin.interval_us), 0
        for item in self.items(since_us):
            for gap in unsaid.before(item):
                self.gaps += 1
                yield gap
            yield from (Damage(text) for text in self.recording.damage[said:])
            said = len(self.recording.damage)
            if not isinstance(item, End):
                yield item
        yield from (Damage(text) for text in self.recording.damage[said:])

    def wants(self, name: str) -> bool:
        """Whether a device is one of those that were asked for, by its name or label."""
        if not self.globs:
            return True
        device = self.devices.get(name)
        names = (name, device.label) if device and device.label else (name,)
        return any(fnmatchcase(n, glob) for n in names for glob in self.globs)

    def only(self, frame: Frame) -> Frame:
        """The window without other devices; what isn't about devices stays."""
        if not self.globs:
            return frame
        traced, still = frame.traced, frame.in_flight
        for found in (frame.histograms, frame.seen, frame.kernel):
            self._names.update(one.device for one in found)
        self._names.update(frame.outstanding)
        if still is not None:  # counts by age are of all devices, and can't be told apart
            still = replace(still, oldest=tuple(one for one in still.oldest if self.wants(one.device)), older={})
        return replace(
            frame,
            histograms={s: one for s, one in frame.histograms.items() if self.wants(s.device)},
            seen={f: one for f, one in frame.seen.items() if self.wants(f.device)},
            kernel={f: one for f, one in frame.kernel.items() if self.wants(f.device)},
            above={f: n for f, n in frame.above.items() if self.wants(f.device)},
            outliers=tuple(one for one in frame.outliers if self.wants(one.device)),
            thresholds_us={name: us for name, us in frame.thresholds_us.items() if self.wants(name)},
            traced=replace(
                traced,
                histograms={s: one for s, one in traced.histograms.items() if self.wants(s.device)},
                by_total={s: one for s, one in traced.by_total.items() if self.wants(s.device)},
                unfollowed={name: why for name, why in traced.unfollowed.items() if self.wants(name)},
                paths={name: how for name, how in traced.paths.items() if self.wants(name)},
            ),
            outstanding={name: now for name, now in frame.outstanding.items() if self.wants(name)},
            depths={name: one for name, one in frame.depths.items() if self.wants(name)},
            issues={name: one for name, one in frame.issues.items() if self.wants(name)},
            devices=tuple(one for one in frame.devices if self.wants(one.name)),
            removed=tuple(name for name in frame.removed if self.wants(name)),
            in_flight=still,
        )

    def check(self) -> None:
        """UsageError when devices were asked for and none of them was there."""
        every = self._names | {*self.devices}
        if self.globs and not any(map(self.wants, every)):
            names = sorted(every)
            more = " ..." if len(names) > _MAX_NAMED else ""
            there = ", ".join(names[:_MAX_NAMED]) or "none"
            raise UsageError(f"--device {' '.join(self.globs)}: no such device in it; there are {there}{more}")
