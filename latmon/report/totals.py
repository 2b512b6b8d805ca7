"""Totals of a recording's frames: per series, flow and device; depths, outliers, losses.

One pass, and memory that grows with the number of series alone. Makes no quantile and no text.

Memory grows with the number of devices alone: depths above 256 share a bucket (outstanding.bucket_end).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from latmon.aggregate import rollup
from latmon.aggregate.accumulator import DeepSums, DepthSums, TaskqSums
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.rollup import Minute, Weighted, add_all, deep_of
from latmon.analysis.attribution import Folded, fold
from latmon.analysis.issue_order import LbaOrder, lba_order, together
from latmon.model.devices import NONE, Coverage, by_device, total
from latmon.model.frame import Completed, Device, Flow, Frame, Mark, Outlier, Outstanding, Series, Traced, Wait, pid_of
from latmon.model.histogram import EMPTY, Histogram, merge
from latmon.model.inflight import Ages, Seen
from latmon.recording.encode import LATE, End, Gap
from latmon.report.formatting import rfc3339
from latmon.support.units import UNKNOWN

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


MAX_ROWS = 1000
_KEPT = 4 * MAX_ROWS
"""Before neighbours are folded."""


@dataclass
class Worst:
    """The longest of any number of outliers, in bounded memory."""

    seen: int = 0
    longest: dict[str, Outlier] = field(default_factory=dict)
    """By device."""
    _heap: list[tuple[int, int, Outlier]] = field(default_factory=list)

    def add(self, one: Outlier) -> None:
        self.seen += 1
        had = self.longest.get(one.device)
        if had is None or one.total_us > had.total_us:
            self.longest[one.device] = one
        entry = (one.total_us, -self.seen, one)
        if len(self._heap) < _KEPT:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[Folded]:
        """(outlier, repeats), the longest first."""
        folded = fold([one for _, _, one in self._heap])
        return sorted(folded, key=lambda row: (-row.outlier.total_us, row.outlier.mono_us))[:MAX_ROWS]


def outliers(worst: Worst) -> dict[str, Any]:
    """The keys `outliers` and, where some have no row, `outliers_left_out`."""
    rows = worst.rows()
    left_out = worst.seen - sum(repeats for _, repeats in rows)
    told = {"outliers": [_row(one, repeats) for one, repeats in rows]}
    return told | ({"outliers_left_out": left_out} if left_out else {})


def issuer(row: Mapping[str, Any]) -> str:
    """Return the name of the process that issued a row's I/O: `ora_lgwr`, of latmon itself `latmon's bpftrace`."""
    own = "latmon's " if row.get("own") else ""
    return f"{own}{row['comm'] or UNKNOWN}"


def _row(one: Outlier, repeats: int) -> dict[str, Any]:
    return {
        "time": rfc3339(one.wall, "microseconds"),
        "mono_us": one.mono_us,
        "device": one.device,
        "op": one.op,
        "flags": list(one.flags),
        "sector": one.sector,
        "bytes": one.bytes,
        "pid": one.pid,
        "comm": one.comm or None,
        "cpu_issue": one.cpu_issue,
        "cpu_complete": one.cpu_complete,
        "outstanding_at_issue": one.outstanding_at_issue,
        "overtaken_by": one.overtaken_by,
        "total_us": one.total_us,
        "stages_us": dict(one.stages_us),
        "unaccounted_us": one.unaccounted_us,
        "repeats": repeats,
        "path": one.path or None,
        "includes": {stage: list(others) for stage, others in one.includes.items()},
        "waits": [_wait(wait) for wait in one.waits],
        **({"own": True} if one.own else {}),
    }


def _wait(one: Wait) -> dict[str, Any]:
    return {
        "stage": one.stage,
        "thread": one.thread,
        "pid": pid_of(one.pid),
        "priority": one.priority,
        "woken_mono_us": one.woken_us,
        "delay_us": one.delay_us,
        "instead": one.instead or None,
    }


COUNTERS = rollup.COUNTERS
_BATCH = 8192
"""Histograms that wait to be merged at once, because one sum over many is cheaper: 113 windows of 24 devices."""
MAX_GAPS = 10_000
MAX_NOTICES = 1_000
MAX_MARKS = 1_000
MAX_THREADS = 10_000
"""Threads come and go for as long as a recording lasts."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Time that was not measured, or not in the ordinary way."""

    start_wall: float
    seconds: float
    reason: str
    start_mono_us: int = 0


@dataclass
class Totals:
    """Filled by `add`; `finish` before reading the histograms."""

    interval_us: int
    windows: int = 0
    measured_us: int = 0
    """The windows' lengths."""
    longest_us: int = 0
    first: Frame | None = None
    last: Frame | None = None
    histograms: dict[Series, Histogram] = field(default_factory=dict)
    seen: dict[Flow, Completed] = field(default_factory=dict)
    kernel: dict[Flow, Completed] = field(default_factory=dict)
    coverage: Coverage = NONE
    depths: dict[str, Counter[int]] = field(default_factory=dict)
    """Of the gauges at the windows' ends."""
    outstanding: OutstandingSums = field(default_factory=OutstandingSums)
    devices: dict[str, Device] = field(default_factory=dict)
    """As they were told last."""
    queue_depths: dict[str, int] = field(default_factory=dict)
    """The highest queue_depth that was told of each."""
    gaps: list[Missed] = field(default_factory=list)
    late: list[Missed] = field(default_factory=list)
    """Wide windows that were read late; nothing is missing in them."""
    notices: list[tuple[float, str]] = field(default_factory=list)
    """What latmon said while it measured, with the end of its window."""
    counters: Counter[str] = field(default_factory=Counter)
    skipped: int | None = None
    """Probe runs that the kernel skipped; None where it never said."""
    deep: DeepSums = field(default_factory=DeepSums)
    traced: Traced = field(default_factory=Traced)
    """What was traced in all; how and what can't be is said by the last window that traced something."""
    thresholds_us: dict[str, int] = field(default_factory=dict)
    """The latest of each device."""
    worst: Worst = field(default_factory=Worst)
    cpu: Weighted = field(default_factory=Weighted)
    probe_cpu: Weighted = field(default_factory=Weighted)
    probe_ns: Weighted = field(default_factory=Weighted)
    marks: list[Mark] = field(default_factory=list)
    end: End | None = None
    _waiting: dict[Series, list[Histogram]] = field(default_factory=dict)
    _unmerged: int = 0
    wakeups_left_out: int = 0
    """Of threads for which there was no room."""
    taskqs: TaskqSums = field(default_factory=TaskqSums)
    _threads: set[int] = field(default_factory=set)
    _excused: bool = False

    def add(self, item: Frame | Gap | Mark | End | Minute) -> None:
        """The next item. A Minute is as good as its windows, where a window comes before and behind it."""
        if isinstance(item, Frame):
            self._window(item)
        elif isinstance(item, Minute):
            self._minute(item)
        elif isinstance(item, Gap):
            self._gap(Missed(item.wall, item.seconds, item.reason, item.mono_us))
            self._excused = True
        elif isinstance(item, Mark):
            self._mark(item)
        elif isinstance(item, End):
            self.end = item

    def finish(self) -> None:
        """Merge what still waits."""
        self._merge()
        summed = self.deep.traced
        self.traced = replace(
            self.traced,
            histograms=summed.histograms,
            by_total=summed.by_total,
            unfollowed=summed.unfollowed,
            paths=summed.paths,
            off=summed.off,
            rates=summed.rates,
        )

    def _merge(self) -> None:
        for series in list(self._waiting):
            self._settle(series)
        self._unmerged = 0

    def _minute(self, minute: Minute) -> None:
        frame = minute.frame
        self._look_behind(frame, minute.first_dt_us)
        self.last = frame
        self.windows += minute.windows
        self._counts(frame)
        self.coverage += total(minute.coverage, self.devices)
        for name, depths in minute.gauges.items():
            self.depths.setdefault(name, Counter()).update(depths)
        self.outstanding.take(minute)
        self.measured_us += frame.dt_us
        self.longest_us = max(self.longest_us, minute.longest_us)
        self._health(frame)
        self.cpu.take(minute.cpu)
        self.probe_cpu.take(minute.probe_cpu)
        self.probe_ns.take(minute.probe_ns)
        self.taskqs.take(minute.taskqs)
        self._deep(frame)

    def _window(self, frame: Frame) -> None:
        self._look_behind(frame, frame.dt_us)
        self.first = self.first or frame
        self.last = frame
        self.windows += 1
        self.devices.update((one.name, one) for one in frame.devices)
        for device in frame.devices:
            told = (of.value for of in device.limits if of.name == "queue_depth" and isinstance(of.value, int))
            self.queue_depths[device.name] = max(self.queue_depths.get(device.name, 0), *told, 0)
        self._counts(frame)
        self.coverage += total(by_device(frame), self.devices)
        for name, now in frame.outstanding.items():
            # A gauge is one look: after a stop it stands for an interval, not for all of the time that nobody looked.
            self._outstanding(name, now, min(frame.dt_us, self.interval_us) if frame.late else frame.dt_us)
        self.outstanding.add(frame)
        self.measured_us += frame.dt_us
        self.longest_us = max(self.longest_us, frame.dt_us)
        self._health(frame)
        self.taskqs.add(frame.taskqs)
        self._deep(frame)

    def _counts(self, frame: Frame) -> None:
        for series, one in frame.histograms.items():
            self._waiting.setdefault(series, []).append(one)
        self._unmerged += len(frame.histograms)
        if self._unmerged >= _BATCH:
            self._merge()
        add_all(self.seen, frame.seen.items())
        add_all(self.kernel, frame.kernel.items())

    def _deep(self, frame: Frame) -> None:
        """What the deep probes told; of threads that are new beyond a limit the wake-ups are counted alone."""
        room = MAX_THREADS - len(self._threads)
        new = [one.thread.pid for one in frame.wakeups if one.thread.pid not in self._threads][:room]
        self._threads.update(new)
        known = tuple(one for one in frame.wakeups if one.thread.pid in self._threads)
        self.wakeups_left_out += sum(one.delay.count for one in frame.wakeups)
        self.wakeups_left_out -= sum(one.delay.count for one in known)
        self.deep.add(deep_of(replace(frame, wakeups=known)))
        self.thresholds_us.update(frame.thresholds_us)
        for one in frame.outliers:
            self.worst.add(one)
        if frame.traced.one_in:
            self.traced = frame.traced

    def _look_behind(self, frame: Frame, dt_us: int) -> None:
        """Note what lies between this one and the window before it, and whether it is ordinary; `dt_us`: a window's."""
        if frame.gap:
            self._gap(_whole(frame, frame.gap))
        if frame.late and len(self.late) < MAX_GAPS:
            self.late.append(_whole(frame, LATE))
        if self.last is not None and not self._excused:
            hole_us = frame.mono_us - frame.dt_us - self.last.mono_us
            if hole_us > max(self.interval_us, dt_us) / 2:
                self._gap(Missed(self.last.wall, hole_us / 1e6, "windows-missing", self.last.mono_us))
        self._excused = False

    def _mark(self, mark: Mark) -> None:
        if len(self.marks) < MAX_MARKS:
            self.marks.append(mark)

    def _gap(self, gap: Missed) -> None:
        self.counters["gaps"] += 1
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append(gap)

    def _settle(self, series: Series) -> None:
        """Merge what waits; a histogram with fewer bits brings the others down to its own."""
        parts = [self.histograms.get(series, EMPTY), *self._waiting.pop(series)]
        parts = [one for one in parts if one]
        if len(parts) == 1:
            self.histograms[series] = parts[0]
            return
        bits = min((one.bits for one in parts), default=EMPTY.bits)
        self.histograms[series] = merge(one if one.bits == bits else one.coarsen(bits) for one in parts)

    def _outstanding(self, name: str, now: Outstanding, dt_us: int) -> None:
        known = [part for part in (now.in_driver, now.queued) if part is not None]
        if known:
            self.depths.setdefault(name, Counter())[sum(known)] += dt_us

    def _health(self, frame: Frame) -> None:
        if frame.health.notice and len(self.notices) < MAX_NOTICES:
            self.notices.append((frame.wall, frame.health.notice))
        for name in COUNTERS:
            self.counters[name] += getattr(frame.health, name)
        if frame.health.skipped is not None:
            self.skipped = (self.skipped or 0) + frame.health.skipped
        self.probe_cpu.add(frame.health.probe_cpu_percent, frame.dt_us)
        self.cpu.add(frame.health.self_cpu_percent, frame.dt_us)
        self.probe_ns.add(frame.health.probe_ns_per_io, sum(done.count for done in frame.seen.values()))


def _whole(frame: Frame, reason: str) -> Missed:
    """Return all of a window's time."""
    return Missed(frame.wall - frame.dt_us / 1e6, frame.dt_us / 1e6, reason, frame.mono_us - frame.dt_us)
