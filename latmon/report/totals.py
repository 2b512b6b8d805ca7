"""Totals of a recording: its accumulator with gaps, marks, notices, the worst outliers and I/Os in flight.

Filled in one pass; memory is bounded by the number of devices and series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from latmon.aggregate.accumulator import Accumulator, Minute
from latmon.aggregate.request_age import Waiting, note_longest
from latmon.model.coverage import NONE, by_device, total
from latmon.model.devices import is_volume
from latmon.model.frame import Device, DeviceReport, FileOperation, Flow, Frame, Mark, Outlier
from latmon.model.histogram import bucket_bounds, bucket_index
from latmon.model.inflight import AgedAt, Ages
from latmon.model.measurements import ABOVE
from latmon.recording.codec import LATE, End, Gap
from latmon.recording.rollup import MINUTE_US, minute_of
from latmon.report.outliers import Longest, Worst
from latmon.report.wakeup_bound import WakeupBound

MAX_GAPS = 10_000
MAX_NOTICES = 1_000
MAX_MARKS = 1_000
MAX_DEVICES = 10_000
"""Devices with an age of their own."""
MAX_REPORTS = 64
"""Reports of one device: a damaged recording may have any number of names."""
MAX_HOURS = 100_000


@dataclass
class OutstandingSums:
    """I/Os in flight at the end of a recording, and the oldest that each device ever had."""

    longest: dict[str, AgedAt] = field(default_factory=dict)
    """By device, in the last window that had it."""
    probed: bool = False
    """Whether a probe listed the requests in flight."""
    _waiting: Waiting = field(default_factory=Waiting)

    def take(self, minute: Minute) -> None:
        """Add the windows of a roll-up."""
        self.probed = self.probed or minute.frame.in_flight is not None
        self._waiting.take(minute.frame, minute.gauges)
        note_longest(self.longest, minute.longest.values(), MAX_DEVICES)

    def add(self, frame: Frame) -> None:
        self.probed = self.probed or frame.in_flight is not None
        self._waiting.add(frame)
        note_longest(self.longest, self._waiting.oldest_at(frame), MAX_DEVICES)

    @property
    def ages(self) -> Ages:
        """Return the I/Os in flight at the end of the last window."""
        return self._waiting.ages


@dataclass(frozen=True, slots=True)
class Missed:
    """Span of time that was not measured, or was measured late."""

    start_wall: float
    seconds: float
    reason: str
    start_mono_us: int = 0


HOUR_S, _DAY_S, _MINUTE_S = 3600, 86_400, 60


@dataclass
class SlowTimes:
    """I/Os at or above their device's threshold by hour, UTC, and the minute with the most of them.

    A window counts in the minute of CLOCK_MONOTONIC in which it ends, as in a roll-up, one of more than two minutes in
    that of its middle; a minute counts in the hour of its begin. With `slo_us` it is I/Os at or above that: exact where
    it is the device's threshold, else those of the buckets that begin at or above it.
    """

    slo_us: int | None = None
    begins_us: set[int] = field(default_factory=set)
    """Latencies from which on I/Os were counted: the SLO, or the first edges of buckets above it."""
    hours: dict[int, int] = field(default_factory=dict)
    """Unix time of an hour's begin -> I/Os; hours with a window and without a slow I/O are 0."""
    worst: tuple[int, int] = (0, 0)
    """I/Os of the worst minute, and its begin or that of its first window, whichever is later."""
    _minute: int = 0
    _begin: int = 0
    _count: int = 0

    def add(self, frame: Frame, devices: Mapping[str, Device]) -> None:
        """Add a window's I/Os, but not those of a volume whose disks count them too."""
        if not frame.thresholds_us and (self.slo_us is None or not frame.histograms):
            return
        measured = {*frame.thresholds_us, *(series.device for series in frame.histograms)}
        above = sum(n for flow, n in self._above(frame) if not is_volume(devices.get(flow.device), measured))
        minute = _minute_of(frame)
        hour = minute // HOUR_S * HOUR_S
        if hour in self.hours or len(self.hours) < MAX_HOURS:
            self.hours[hour] = self.hours.get(hour, 0) + above
        if minute != self._minute:
            self._minute, self._count = minute, 0
            self._begin = max(minute, int(frame.wall - frame.dt_us / 1e6))
        self._count += above
        if self._count > self.worst[0]:
            self.worst = self._count, self._begin

    def _above(self, frame: Frame) -> Iterable[tuple[Flow, int]]:
        if self.slo_us is None:
            yield from frame[ABOVE].items()
            return
        exact = {device for device, us in frame.thresholds_us.items() if us == self.slo_us}
        yield from ((flow, n) for flow, n in frame[ABOVE].items() if flow.device in exact)
        for series, latency in frame.histograms.items():
            if series.stage != "total":
                continue
            at = bucket_index(self.slo_us, latency.bits)
            low, end = bucket_bounds(at, latency.bits)
            self.begins_us.add(self.slo_us if series.device in exact or low == self.slo_us else end)
            if series.device not in exact:
                first = at if low == self.slo_us else at + 1
                yield Flow(series.device, series.op), sum(n for index, n in latency.buckets if index >= first)

    @property
    def days(self) -> dict[int, int]:
        """Return the I/Os by day, UTC."""
        days: dict[int, int] = {}
        for hour, count in self.hours.items():
            day = hour // _DAY_S * _DAY_S
            days[day] = days.get(day, 0) + count
        return days


def _minute_of(frame: Frame) -> int:
    """Return the Unix time of the begin of a window's minute."""
    if frame.dt_us > 2 * MINUTE_US:
        return int(frame.wall - frame.dt_us / 2e6) // _MINUTE_S * _MINUTE_S
    return round(frame.wall - (frame.mono_us - MINUTE_US * minute_of(frame.mono_us)) / 1e6)


class Totals(Accumulator):
    """Sums over all items of a recording, filled by `add`."""

    def __init__(
        self, interval_us: int, devices: Mapping[str, Device] | None = None, slo_us: int | None = None
    ) -> None:
        """Start empty; `devices`: those that are known before the first window; `slo_us`: of `slo`."""
        self.wakeups = WakeupBound()
        super().__init__(interval_us, bound=self.wakeups.bounded)
        self.interval_us = interval_us
        self.coverage = NONE
        self.outstanding = OutstandingSums()
        self.devices = dict(devices or {})
        """Devices in the last window that reported them."""
        self.queue_depths: dict[str, int] = {}
        """The highest queue_depth that was reported of each."""
        self.reports: dict[str, dict[str, tuple[int | str, DeviceReport]]] = {}
        """Device -> name of a report -> its first value and its last one, whether or not it was read until the end."""
        for device in self.devices.values():
            self._note_reports(device)
        self.gaps: list[Missed] = []
        self.late: list[Missed] = []
        """Wide windows that were read late; nothing is missing in them."""
        self.notices: list[tuple[float, str]] = []
        """Notices with the time from which on the frames have them."""
        self._notice = ""
        self.worst = Worst()
        self.operations = Longest[FileOperation]()
        self.marks: list[Mark] = []
        self.slow, self.slo = SlowTimes(), None if slo_us is None else SlowTimes(slo_us)
        self.end: End | None = None

    def add(self, item: Frame | Gap | Mark | End | Minute) -> None:
        """Add the next item, of gaps also those that have no line (UnreportedGaps).

        A Minute equals its windows where a window comes before and after it.
        """
        if isinstance(item, Frame):
            self._window(item)
        elif isinstance(item, Minute):
            self._add_slow(item.frame)
            self._note_late(item.frame)
            self.outstanding.take(item)
            self.coverage += total(item.coverage, self.devices)
            self.merge(item)
        elif isinstance(item, Mark):
            self._mark(item)
        elif isinstance(item, End):
            self.end = item
        elif isinstance(item, Gap):
            self._gap(Missed(item.wall, item.seconds, item.reason, item.mono_us))

    def _add_slow(self, frame: Frame) -> None:
        for times in (self.slow, self.slo):
            if times is not None:
                times.add(frame, self.devices)

    def _note_reports(self, device: Device) -> None:
        reports = self.reports.setdefault(device.name, {}) if device.reports else {}
        for report in device.reports:
            if report.name in reports or len(reports) < MAX_REPORTS:
                first, _ = reports.get(report.name, (report.value, report))
                reports[report.name] = first, report

    def _window(self, frame: Frame) -> None:
        self._note_late(frame)
        self.devices.update((device.name, device) for device in frame.devices)
        for device in frame.devices:
            reported = (
                limit.value for limit in device.limits if limit.name == "queue_depth" and isinstance(limit.value, int)
            )
            self._note_reports(device)
            self.queue_depths[device.name] = max(self.queue_depths.get(device.name, 0), *reported, 0)
        notice, before = frame.health.notice, self._notice
        if notice not in ("", before) and len(self.notices) < MAX_NOTICES:
            self.notices.append((frame.wall, notice))
        self._notice = notice
        self._add_slow(frame)
        self.outstanding.add(frame)
        self.coverage += total(by_device(frame), self.devices)
        super().add(frame)

    def _add_outliers(self, outliers: tuple[Outlier, ...]) -> None:
        for outlier in outliers:
            self.worst.add(outlier)

    def _add_operations(self, operations: tuple[FileOperation, ...]) -> None:
        for operation in operations:
            self.operations.add(operation)

    def _note_late(self, frame: Frame) -> None:
        if frame.late and len(self.late) < MAX_GAPS:
            begin = frame.wall - frame.dt_us / 1e6
            self.late.append(Missed(begin, frame.dt_us / 1e6, LATE, frame.mono_us - frame.dt_us))

    def _mark(self, mark: Mark) -> None:
        most = MAX_MARKS // 2 if mark.device else MAX_MARKS  # a flood of the kernel's lines leaves room for the user's
        if len(self.marks) < most:
            self.marks.append(mark)

    def _gap(self, gap: Missed) -> None:
        self.counters["gaps"] += 1
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append(gap)
