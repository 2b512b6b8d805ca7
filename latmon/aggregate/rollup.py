"""One-minute roll-ups: the sum of a minute's frames, which replaces them in every sum over a recording.

Only a plain minute has a roll-up, so that a sum is the same with it and with its frames. A minute is plain if it has no
gap, notice, mark, new, changed or removed device and no new probe; few outliers; and histograms of which all have a
maximum, or none. Of other minutes the frames are read.

I/Os that were in flight before the minute have no age in its roll-up, because that depends on where reading began.
Their last appearance is stored instead (CarriedOver).
"""

from __future__ import annotations

from latmon.aggregate.accumulator import MAX_OUTLIERS, Accumulator, Minute
from latmon.aggregate.request_age import MAX_ROWS, MAX_SINCE, Waiting
from latmon.model.frame import Frame
from latmon.model.inflight import AgedAt, CarriedOver, MinuteAges, StillInFlight
from latmon.model.packed import Flat

MAX_LONGEST = 1024
"""Devices with an age in one roll-up."""


class MinuteAgesSum:
    """Collector of the ages of I/Os in flight over the frames of one minute."""

    def __init__(self) -> None:
        self._first_us: int | None = None
        self._carried: dict[str, CarriedOver] = {}
        self._longest: dict[str, AgedAt] = {}
        self._fewest: dict[str, int] = {}
        self._probes: set[int | None] = set()
        self._claims: dict[str, tuple[tuple[int, int], ...]] = {}
        self._exact = True

    def add(self, frame: Frame, waiting: Waiting) -> None:
        """Add the next frame, which `waiting` already has."""
        first_us = self._first_us = self._first_us or frame.mono_us
        still = frame.in_flight
        self._probes.add(None if still is None else still.since_us)
        for name, now in frame.outstanding.items():
            self._fewest[name] = min(self._fewest.get(name, now.known), now.known)
        rows = waiting.ages.oldest
        self._note_carried(frame, waiting, first_us)
        self._claims = {
            name: new
            for name, claims in waiting.claims.items()
            if (new := tuple((us, ios) for us, ios in claims if us >= first_us))
        }
        for row in reversed(rows):
            if row.at_least and frame.mono_us - row.age_us < first_us:
                self._exact = self._exact and not _is_followed(row.device, still)
                continue
            had = self._longest.get(row.device)
            if had is None or row.age_us >= had.row.age_us:
                self._longest[row.device] = AgedAt(row, frame.wall, frame.mono_us)
        if len(rows) >= MAX_ROWS or len(self._longest) > MAX_LONGEST:
            self._exact = False

    def ages(self) -> MinuteAges | None:
        """Return the minute's ages; None where only its frames give exact ones."""
        if not self._exact or len(self._probes) != 1:
            return None
        return MinuteAges(self._claims, self._carried, self._longest, self._fewest, next(iter(self._probes)))

    def _note_carried(self, frame: Frame, waiting: Waiting, first_us: int) -> None:
        for name, claims in waiting.claims.items():
            if len(claims) >= MAX_SINCE:
                self._exact = False
            if any(us < first_us and ios for us, ios in claims):
                followed = _is_followed(name, frame.in_flight)
                had = self._carried.get(name)
                self._exact = self._exact and (had is None or had.followed == followed)
                self._carried[name] = CarriedOver(frame.mono_us, frame.wall, followed)


def _is_followed(device: str, still: StillInFlight | None) -> bool:
    return still is not None and (still.follows(device) or any(one.device == device for one in still.oldest))


MINUTE_US = 60_000_000
MIN_WINDOWS = 3


def minute_of(mono_us: int) -> int:
    """Return the number of the minute in which a frame ends."""
    return (mono_us - 1) // MINUTE_US


class MinuteSums:
    """Sum of all frames of one minute, filled by `add`; `waiting` is the whole recording's and gets them, too."""

    def __init__(self, waiting: Waiting, before_us: int | None) -> None:
        self.plain = before_us is not None
        self._waiting, self._before_us = waiting, before_us
        self._sums = Accumulator()
        self._rates: set[int] = set()
        self._ages = MinuteAgesSum()

    def spoil(self) -> None:
        """Leave the minute without a roll-up, because something is missing or written between its frames."""
        self.plain = False

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        self._waiting.add(frame)
        if self.plain:
            self.plain = self._is_plain(frame)
        self._before_us = frame.mono_us
        if not self.plain:
            return
        self._sums.add(frame)
        self._ages.add(frame, self._waiting)
        if frame.traced.one_in:
            self._rates.add(frame.traced.one_in)

    def minute(self) -> Minute | None:
        """Return the roll-up; None where only the frames themselves give the right sums."""
        sums, ages = self._sums, self._ages.ages()
        if not self.plain or ages is None or len(self._rates) > 1 or sums.first is None:
            return None
        uniform = sums.histograms.is_uniform and all(table.is_uniform for table in sums.on_demand.tables.values())
        if sums.taskqs.left_out or sums.windows < MIN_WINDOWS or not uniform:
            return None
        return Minute(
            sums.frame,
            sums.windows,
            sums.longest_us,
            sums.first.dt_us,
            sums.covered,
            sums.gauges,
            sums.depths,
            sums.orders,
            ages,
            sums.taskqs.in_order if sums.taskqs.read else None,
            sums.cpu,
            sums.probe_cpu,
            sums.probe_ns,
        )

    @property
    def flat(self) -> Flat:
        """Sum of the on-demand values, to compare a roll-up with."""
        return self._sums.on_demand.flat

    def _is_plain(self, frame: Frame) -> bool:
        began_us = 0 if frame.in_flight is None else frame.in_flight.since_us
        hole_us = frame.mono_us - frame.dt_us - (self._before_us or 0)
        odd = frame.gap or frame.late or frame.health.notice or frame.devices or frame.removed or frame.marks
        probed = began_us <= frame.mono_us - frame.dt_us
        full = len(self._sums.outliers) + len(frame.outliers) > MAX_OUTLIERS
        return not odd and probed and hole_us <= frame.dt_us // 2 and not full
