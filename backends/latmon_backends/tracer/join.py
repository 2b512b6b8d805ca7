"""One frame from four sources: the always-on probe's interval, the tracer, outliers, irq names.

Knows no process and no clock: only what each source told by now.

Owns what was told last. Knows no probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from latmon.decode.framer import DeepInterval
from latmon.decode.records import Record
from latmon.manifest.loader import Manifest
from latmon.model.frame import TRACER_STARTING, Device, Frame, Health, Limit, Missing, Traced
from latmon.model.inflight import SYSFS, Depths
from latmon_backends.kernel.interrupts import Interrupts
from latmon_backends.probe import outliers
from latmon_backends.probe.frame_builder import Frames
from latmon_backends.probe.outliers import Outliers
from latmon_backends.probe.process import RunningProbe
from latmon_backends.probe.tick_protocol import DeepWindow, Window
from latmon_backends.tracer.controller import Deep

_MOST = 64
"""Of one device."""


class ToldLimits:
    """`device_name`: as of probes' numbers."""

    def __init__(self, device_name: Callable[[int], str | None]) -> None:
        self._device_name = device_name
        self._told: dict[str, dict[str, Limit]] = {}
        self._changed: set[str] = set()

    def take(self, records: Iterable[Record]) -> None:
        """`limit` records; others are nothing."""
        for one in records:
            value = one.get("value")
            name = self._device_name(one.get("dev") or 0) if one.kind == "limit" else None
            if name is None or value is None:
                continue
            limits = self._told.setdefault(name, {})
            limit = Limit(one.text, value, one.probe)
            if limits.get(one.text) != limit and (one.text in limits or len(limits) < _MOST):
                limits[one.text] = limit
                self._changed.add(name)

    def put(self, devices: tuple[Device, ...], known: Mapping[str, Device]) -> tuple[Device, ...]:
        """A frame's new or changed devices, and those of which a limit changed."""
        told = {device.name: device for device in devices}
        for name in sorted(self._changed & known.keys()):
            told.setdefault(name, known[name])
        self._changed -= told.keys()
        return tuple(self._with_limits(device) for device in told.values())

    def _with_limits(self, device: Device) -> Device:
        limits = self._told.get(device.name)
        return replace(device, limits=(*device.limits, *limits.values())) if limits else device


_EARLIER = f"{TRACER_STARTING}: it counts from the next window on"


class Joining:
    """Frames in their order. `stages` are those that the deep probes can tell; they look at depths each `sample_us`."""

    def __init__(
        self,
        frames: Frames,
        deep: Deep,
        waiting: Outliers,
        interrupts: Interrupts,
        devices: Callable[[], Mapping[str, Device]],
        *,
        stages: tuple[str, ...],
        sample_us: int,
        fresh: Callable[[tuple[Device, ...]], tuple[Device, ...]] = lambda devices: devices,
    ) -> None:
        """`fresh` adds the devices that the probes named for a frame."""
        self._frames, self._deep, self._outliers, self._interrupts = frames, deep, waiting, interrupts
        self._devices, self._stages, self._sample_us, self._fresh = devices, stages, sample_us, fresh
        self._limits = ToldLimits(frames.selected_name)
        self._began_us = self._flood = 0

    def frame(self, window: Window, manifest: Manifest, health: Health, *, ending: bool = False) -> Frame:
        """The window's. `ending`: nothing comes after it, so that no outlier waits for more to be told of it."""
        counts_bytes = any(spec.role == "bytes" for spec in manifest.maps)
        asleep = manifest.clock == "boottime"
        frame = self._frames.make(window, health, counts_bytes=counts_bytes, keeps_time_asleep=asleep)
        self._began_us = self._began_us or frame.mono_us - frame.dt_us
        told = self._deep.taken(frame)
        deep = since(self._began_us, told)
        whole = self._deep.add_to(self._with_outliers(frame, window, deep, ending=ending), deep)
        whole = replace(whole, depths=with_probe(frame.depths, deep.interval.depths, frame.dt_us, self._sample_us))
        self._limits.take((*window.records, *deep.records))
        whole = replace(whole, devices=self._limits.put(self._fresh(whole.devices), self._devices()))
        if deep is not told:
            whole = replace(whole, traced=Traced(absent=tuple(Missing(one, _EARLIER) for one in self._stages)))
        return replace(whole, handlers=self._interrupts.told(whole.handlers, self._devices()))

    def _with_outliers(self, frame: Frame, window: Window, deep: DeepWindow, *, ending: bool) -> Frame:
        self._outliers.take((*window.records, *deep.records))
        hold = outliers.HOLD if self._deep.runs and not ending else 0
        self._flood = outliers.HOLD + 1 if frame.health.suppressed else max(0, self._flood - 1)
        settled = self._outliers.settled(frame.wall, frame.mono_us, hold, flood=self._flood > 0)
        health = replace(
            frame.health,
            suppressed=frame.health.suppressed + settled.dropped,
            dropped_records=frame.health.dropped_records + settled.lost,
            undecoded_lines=frame.health.undecoded_lines + settled.undecoded,
        )
        return replace(frame, outliers=settled.outliers, health=health)


def with_probe(
    sampled: Mapping[str, Depths], told: Mapping[str, Depths], span_us: int, sample_us: int
) -> dict[str, Depths]:
    """By device what the probe told, where its looks, each `sample_us`, cover half of the interval; else the samples.

    The probe's looks become milliseconds of the interval, as samples are: a busy CPU drops some, and an interval
    with fewer looks weighs no less. A few alone, of its last moments after a start, are not the interval. Where its
    counts had to be set right, depths that never were may be among what it counted: nothing is told of that interval.
    """
    found = dict(sampled)
    for name, one in told.items():
        if one.corrected:
            found[name] = replace(sampled.get(name, Depths()), corrected=one.corrected)
        elif 2 * sum(one.in_driver.values()) * sample_us >= span_us:
            found[name] = replace(one, in_driver=_in_ms(one.in_driver, span_us), queued=_in_ms(one.queued, span_us))
        elif name in sampled:
            found[name] = replace(one, in_driver=sampled[name].in_driver, queued=sampled[name].queued, source=SYSFS)
        else:
            found[name] = replace(one, in_driver={}, queued={})
    return found


def _in_ms(looks: Mapping[int, int], span_us: int) -> dict[int, int]:
    """The milliseconds of the interval, all of them and no more, in the shares of the looks."""
    whole, span_ms = sum(looks.values()), span_us // 1000
    parts = {depth: divmod(n * span_ms, whole) for depth, n in looks.items() if n}
    left = span_ms - sum(ms for ms, _ in parts.values())
    more = set(sorted(parts, key=lambda depth: (-parts[depth][1], depth))[:left])
    return {depth: ms + (depth in more) for depth, (ms, _) in parts.items() if ms + (depth in more)}


def health_of(window: Window, probe: RunningProbe, skipped: int | None) -> Health:
    """What the always-on probe's interval says of its measuring."""
    interval, losses = window.interval, window.losses
    return Health(
        probes_attached=probe.attached,
        probes_wanted=probe.wanted,
        lost_events=losses.lost,
        map_full=losses.map_full,
        unmatched=interval.unmatched + interval.unnamed,
        suppressed=interval.suppressed + losses.dropped,
        undecoded_lines=losses.undecoded + interval.undecoded + window.end.sample.undecoded,
        skipped=skipped,
    )


def since(began_us: int, told: DeepWindow) -> DeepWindow:
    """What the deep probes told, without what they counted from before the capture began: that is of no window.

    Of devices that they alone time, the outliers come with their count: those stay together. So does what was lost.
    """
    if not told.begun_us or told.begun_us >= began_us:
        return told
    whole = told.interval
    return replace(
        told,
        interval=DeepInterval(
            suppressed=whole.suppressed,
            undecoded=whole.undecoded,
            above=whole.above,
            thresholds_us=whole.thresholds_us,
        ),
        issues={},
    )
