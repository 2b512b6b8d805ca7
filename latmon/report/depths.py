"""A recording's outstanding I/O added up, device by device: depths as running sums, ages as they were seen.

Memory grows with the number of devices alone: depths above 256 share a bucket (outstanding.bucket_end).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from latmon.ages import Ages, Seen
from latmon.depth_totals import DepthSums
from latmon.lba_order import LbaOrder, lba_order, together
from latmon.minute import Minute
from latmon.model import Frame
from latmon.waiting import Waiting

MAX_DEVICES = 10_000
"""With an age of their own."""


@dataclass
class OutstandingSums:
    """All devices', and what was in flight: now, and the longest that each device ever showed."""

    devices: dict[str, DepthSums] = field(default_factory=dict)
    longest: dict[str, Seen] = field(default_factory=dict)
    """By device, as it was seen last."""
    orders: dict[str, LbaOrder] = field(default_factory=dict)
    """Of the windows of consecutive issues."""
    probed: bool = False
    """Whether a probe told of requests in flight."""
    _waiting: Waiting = field(default_factory=Waiting)

    def take(self, minute: Minute) -> None:
        """Windows that are already added up."""
        for name, sums in minute.depths.items():
            self.devices.setdefault(name, DepthSums()).take(sums)
        for name, order in minute.orders.items():
            self.orders[name] = together((*((self.orders[name],) if name in self.orders else ()), order))
        self.probed = self.probed or minute.waiting.probed_since is not None
        for seen in (*self._waiting.take(minute.waiting, minute.mono_us), *minute.waiting.longest.values()):
            self._note(seen)

    def add(self, frame: Frame) -> None:
        for name, one in frame.depths.items():
            self.devices.setdefault(name, DepthSums()).add(one, frame.dt_us, frame.wall)
        for name, window in frame.issues.items():
            before = (self.orders[name],) if name in self.orders else ()
            self.orders[name] = together((*before, lba_order(window)))
        self.probed = self.probed or frame.in_flight is not None
        self._waiting.add(frame)
        for row in reversed(self._waiting.ages.oldest):
            self._note(Seen(row, frame.wall, frame.mono_us))

    def _note(self, seen: Seen) -> None:
        had = self.longest.get(seen.row.device)
        room = had is not None or len(self.longest) < MAX_DEVICES
        if room and (had is None or seen.row.age_us >= had.row.age_us):
            self.longest[seen.row.device] = seen

    @property
    def ages(self) -> Ages:
        """What was in flight at the end of the last window."""
        return self._waiting.ages
