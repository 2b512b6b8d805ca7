"""The metrics of a live host: sums since the exporter's start, and the state at the end of the last frame.

Labels are devices, ops, stages and rules: never threads, files or sectors, whose number has no bound.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from latmon import __version__
from latmon.aggregate.accumulator import COUNTERS, CompletionSums
from latmon.aggregate.histogram_sum import TableSum
from latmon.analysis.limits import ceiling
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import Settings
from latmon.metrics.families import COUNTER, GAUGE, HISTOGRAM, Family, MetricSample
from latmon.model.devices import NONE
from latmon.model.frame import Device, Frame, Origin, Series
from latmon.model.histogram import Histogram
from latmon.support.process import own_cost

BOUNDS_US = tuple(2 ** (2 * step + 7) for step in range(8))
"""Edges of the text form's histograms: 128 us, 512 us, 2 ms, 8 ms, 33 ms, 131 ms, 524 ms, 2.1 s."""
INCLUDES = "A stage's label includes names the stages whose time is in it: hba with completion is issue to completion."
Includes = Callable[[str], Mapping[str, tuple[str, ...]]]
"""Device -> stage -> the stages that it includes."""
_TOTAL = "total"
_MAX_FINDINGS = 100
"""Findings that are shown at the same time, the most urgent ones."""


def latency(series: Series, one: Histogram, includes_of: Includes) -> MetricSample:
    """Return a series of latencies, with a label for the stages that it includes."""
    inside = ",".join(includes_of(series.device).get(series.stage, ()))
    return MetricSample(series._asdict() | ({"includes": inside} if inside else {}), one)


def in_flight(last: Frame) -> tuple[MetricSample, ...]:
    """Return the I/Os in flight at the end of a window, in the driver and in the queue, where they are known."""
    return tuple(
        MetricSample({"device": device, "where": where}, n)
        for device, now in sorted(last.outstanding.items())
        for where, n in (("driver", now.in_driver), ("queue", now.queued))
        if n is not None
    )


class HostMetrics:
    """The metrics of one capture. `add` and `families` may be called in different threads."""

    def __init__(self, origin: Origin, settings: Settings, *, stages: bool = False) -> None:
        """Start at 0. `settings` are those of the rules; without `stages` only total latencies are counted."""
        self._origin, self._stages = origin, stages
        self._engine = RuleEngine(origin, (), settings)
        self._sums = CompletionSums(None if stages else _is_total, peaks=False)
        self._traced: TableSum[Series] = TableSum(peaks=False)
        self._outliers = Counter[str]()
        self._counters = Counter[str]()
        self._missing_us = Counter[str]()
        self._measured_us = 0
        self._devices: dict[str, Device] = {}
        self._removed: set[str] = set()
        self._last: Frame | None = None
        self._lock = threading.Lock()

    def add(self, frame: Frame) -> None:
        """Add the next frame, and evaluate the rules when a block ends."""
        with self._lock:
            self._count(frame)
        self._engine.take(frame)

    def _count(self, frame: Frame) -> None:
        if frame.gap:
            self._missing_us[frame.gap] += frame.dt_us
        self._forget(frame)
        self._devices.update((one.name, one) for one in frame.devices)
        self._sums.add(frame)
        if self._stages:
            self._traced.add(frame.traced.histograms)
        for flow, n in frame.above.items():
            self._outliers[flow.device] += n
        for name in COUNTERS:
            self._counters[name] += getattr(frame.health, name)
        self._measured_us += frame.dt_us
        self._last = frame

    def _forget(self, frame: Frame) -> None:
        """Drop the sums of removed devices: one that gets such a name later begins at 0.

        They are dropped once more when it does: I/Os of the removed device may have been counted after its removal.
        """
        added = {one.name for one in frame.devices}
        for name in frame.removed:
            self._devices.pop(name, None)
        gone = (self._removed & added).union(frame.removed)
        self._removed = (self._removed | gone) - added
        if not gone:
            return
        self._sums.forget(gone)
        self._traced.forget([series for series in self._traced if series.device in gone])
        for name in gone:
            self._outliers.pop(name, None)

    def families(self) -> tuple[Family, ...]:
        """Return all metrics as they are now; devices that are gone have none."""
        with self._lock:
            return tuple(one for one in self._all() if one.samples)

    def _all(self) -> Iterator[Family]:
        origin = self._origin
        about = {"version": __version__, "backend": origin.backend, "tool": origin.tool, "tier": origin.tier}
        about |= {"kernel": origin.kernel, "latency_from": origin.latency_from}
        text = "Tool and tier of this host's measurement, and the begin of latencies."
        yield Family("latmon_build_info", GAUGE, text, _one(about, 1))
        text = f"Latency of I/Os by device, op and stage. {INCLUDES}"
        yield self._latencies("latmon_io_latency", text, self._sums.histograms, lambda _: origin.measured)
        text = f"Latency of the traced I/Os, one in so many: never add them to the others. {INCLUDES}"
        includes = self._last.traced.includes_of if self._last else lambda _: {}
        yield self._latencies("latmon_traced_latency", text, self._traced, includes)
        yield from self._of_devices()
        yield from self._of_capture()
        yield self._findings()

    def _latencies(self, name: str, text: str, found: Mapping[Series, Histogram], includes: Includes) -> Family:
        there = sorted(one for one in found if one.device in self._devices)
        some = tuple(latency(series, found[series], includes) for series in there)
        return Family(f"{name}_seconds", HISTOGRAM, text, some, "seconds")

    def _of_devices(self) -> Iterator[Family]:
        if self._last is None:
            return
        about = tuple(
            MetricSample(
                {"device": one.name, "model": one.model, "driver": one.driver, "controller": one.controller}, 1
            )
            for _, one in sorted(self._devices.items())
        )
        text = "Model, driver and controller of a device: equal models are peers, on all hosts."
        yield Family("latmon_device_info", GAUGE, text, about)
        now = tuple(one for one in in_flight(self._last) if one.labels["device"] in self._devices)
        yield Family("latmon_outstanding_ios", GAUGE, "I/Os in flight at the end of the last interval.", now)
        bounds = {name: ceiling(one.limits) for name, one in sorted(self._devices.items())}
        limits = tuple(
            MetricSample({"device": name}, int(one.value)) for name, one in bounds.items() if one is not None
        )
        yield Family("latmon_outstanding_limit", GAUGE, "Lowest limit of the I/Os that a driver has at once.", limits)
        compared = sorted(self._last.thresholds_us.keys() & self._devices.keys())
        above = tuple(MetricSample({"device": name}, self._outliers[name]) for name in compared)
        yield Family("latmon_outliers", COUNTER, "I/Os above their device's threshold.", above)
        kernel = Counter[str]()
        for flow, done in self._sums.kernel.items():
            if flow.device in self._devices:
                kernel[flow.device] += done.count
        some = tuple(MetricSample({"device": name}, n) for name, n in sorted(kernel.items()))
        text = "I/Os completed, by the kernel's own counters."
        yield Family("latmon_kernel_completed_ios", COUNTER, text, some)
        counted = tuple(
            MetricSample({"device": name}, self._sums.covered.get(name, NONE).seen) for name in sorted(kernel)
        )
        text = "I/Os completed, by the probe: coverage is its rate over that of the kernel's own counters."
        yield Family("latmon_probe_completed_ios", COUNTER, text, counted)

    def _of_capture(self) -> Iterator[Family]:
        for name in COUNTERS:
            text = f"Total since the start: {name.replace('_', ' ')}."
            yield Family(f"latmon_{name}", COUNTER, text, _one({}, self._counters[name]))
        missing = tuple(MetricSample({"reason": why}, us / 1e6) for why, us in sorted(self._missing_us.items()))
        text = "Time without a complete measurement, by reason."
        yield Family("latmon_missing_seconds", COUNTER, text, missing, "seconds")
        measured = _one({}, self._measured_us / 1e6)
        yield Family("latmon_measured_seconds", COUNTER, "Sum of the intervals' lengths.", measured, "seconds")
        if self._last is not None:
            ended = _one({}, self._last.wall)
            yield Family("latmon_last_interval_end_seconds", GAUGE, "End of the last interval.", ended, "seconds")
        cpu_s, resident = own_cost()
        whose = "of the exporter, its collector and its probe tool; of the exporter alone without Linux's /proc."
        text = f"CPU time {whose}"
        yield Family("latmon_cpu_seconds", COUNTER, text, _one({}, cpu_s), "seconds")
        if resident is not None:
            text = f"Memory {whose}"
            yield Family("latmon_resident_memory_bytes", GAUGE, text, _one({}, resident), "bytes")

    def _findings(self) -> Family:
        found = self._engine.current[:_MAX_FINDINGS]
        keys = {(one.id, one.device): one.severity for one in reversed(found)}
        some = tuple(
            MetricSample({"rule": rule, "device": device, "severity": severity}, 1)
            for (rule, device), severity in sorted(keys.items())
        )
        return Family("latmon_finding", GAUGE, "1 while a finding stands.", some)


def _one(labels: Mapping[str, str], value: float) -> tuple[MetricSample, ...]:
    return (MetricSample(labels, value),)


def _is_total(series: Series) -> bool:
    return series.stage == _TOTAL
