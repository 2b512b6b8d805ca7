"""The frame builder: the probe's histograms beside the kernel's counters of the same interval.

It numbers frames, and keeps the gap and the notice of the next one. It knows neither processes nor events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from latmon.model.frame import Completed, Device, Flow, Frame, Health, Series
from latmon.support import host
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel.counters import Sample
from latmon_backends.probe.tick_protocol import LastWindow, ProbeWindow

_SLEPT_US = 100_000
_SAME_TIME_US = 20_000
_SAME_TIME_SHARE = 50
"""20 ms of an interval of one second; a wide one may differ by the same share."""
Key = TypeVar("Key", Flow, Series)
Value = TypeVar("Value")


class DeviceCounters(Protocol):
    """The kernel's counters by device, and the devices."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that the user selects, at the last sample."""
        ...

    @property
    def known(self) -> Mapping[str, Device]:
        """All devices."""
        ...

    def sample(self) -> Sample: ...

    def selects(self, device: Device) -> bool: ...

    def numbered(self, number: int) -> Device | None:
        """Return the device with this number in the probes' output."""
        ...


class FrameBuilder:
    """Builder of frames, in their order. `gap` and `notice` go into the next one."""

    def __init__(
        self, counters: DeviceCounters, sys: Path, suspended_us: Callable[[], int] = host.suspended_us
    ) -> None:
        self._sampler, self._sys, self._suspended_us = counters, sys, suspended_us
        self._ended_us = counters.sample().mono_us
        self._slept_us = suspended_us()
        self._seq = 0
        self.gap = self.notice = ""

    def make(self, window: ProbeWindow, health: Health, *, counts_bytes: bool, keeps_time_asleep: bool) -> Frame:
        """Return the window's frame.

        `counts_bytes`: the probe has the bytes itself. `keeps_time_asleep`: a suspend bends the times that it measured,
        so that those of the interval are left out.
        """
        begin, end = window.begin, window.end
        gap = self._why_gap()
        bent = gap == "suspended" and keeps_time_asleep
        interval = kernel_counters.difference(begin.sample, end.sample)
        kernel = interval.kernel
        seen = window.interval.seen if counts_bytes else _with_bytes(window.interval.seen, kernel)
        frame = Frame(
            seq=self._seq,
            wall=end.sample.wall - window.lag_us / 1e6,
            mono_us=end.mono_us,
            dt_us=max(1, end.mono_us - (self._ended_us if self.gap else begin.mono_us)),
            histograms={} if bent else self._selected(window.interval.histograms),
            seen=self._selected(seen),
            kernel=_of_idle(kernel) if _detached_before(window) else kernel,
            above=self._selected(window.interval.above),
            thresholds_us=self._of_selected(window.interval.thresholds_us),
            outstanding=end.sample.outstanding,
            depths=interval.depths,
            devices=self._sampler.devices if self._seq == 0 else end.sample.devices,
            removed=end.sample.removed,
            health=replace(health, notice=self.notice),
            gap=gap,
            late=window.late,
        )
        self._seq += 1
        self.gap = self.notice = ""
        self._ended_us = end.mono_us
        return frame

    def farewell(self, health: Health) -> Frame:
        """Return the last frame, whose notice is why there are no more."""
        now = self._sampler.sample()
        return Frame(
            seq=self._seq,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=max(1, now.mono_us - self._ended_us),
            outstanding=now.outstanding,
            health=replace(health, notice=self.notice),
            gap="probe-restart",
        )

    def device_name(self, number: int) -> str | None:
        """Return the device's name at the last sample."""
        device = self._sampler.numbered(number)
        return None if device is None else device.name

    def selected_name(self, number: int) -> str | None:
        """Return the device's name; None also where the user's globs don't select it."""
        device = self._sampler.numbered(number)
        return None if device is None or not self._sampler.selects(device) else device.name

    def is_selected(self, name: str) -> bool:
        """Return whether the user's globs select a device."""
        device = self._sampler.known.get(name)
        return device is not None and self._sampler.selects(device)

    def has_several_queues(self, name: str) -> bool:
        """Return whether flushes can't be separated by device: each hardware queue has a flush queue."""
        return sum(1 for _ in (self._sys / "block" / name / "mq").glob("[0-9]*")) > 1

    def _why_gap(self) -> str:
        slept, self._slept_us = self._slept_us, self._suspended_us()
        if self._slept_us - slept > _SLEPT_US:
            return "suspended"
        return self.gap

    def _selected(self, table: Mapping[Key, Value]) -> dict[Key, Value]:
        """Return the entries of devices that the user's globs select."""
        wanted = self._wanted()
        return {key: value for key, value in table.items() if key.device in wanted}

    def _of_selected(self, table: Mapping[str, int]) -> dict[str, int]:
        wanted = self._wanted()
        return {name: value for name, value in table.items() if name in wanted}

    def _wanted(self) -> set[str]:
        devices = self._sampler.known
        return {name for name, device in devices.items() if self._sampler.selects(device)}


def _with_bytes(seen: Mapping[Flow, Completed], kernel: Mapping[Flow, Completed]) -> Mapping[Flow, Completed]:
    """Return the I/Os seen by the probe, with the kernel's mean size of the interval."""
    sizes = {flow: done.bytes / done.count for flow, done in kernel.items() if done.count}
    return {flow: replace(done, bytes=round(done.count * sizes.get(flow, 0))) for flow, done in seen.items()}


def _of_idle(kernel: Mapping[Flow, Completed]) -> dict[Flow, Completed]:
    """Return the counters of devices that completed nothing: those are true for any part of the interval."""
    busy = {flow.device for flow, done in kernel.items() if done.count}
    return {flow: done for flow, done in kernel.items() if flow.device not in busy}


def _detached_before(window: ProbeWindow) -> bool:
    """Return whether the kernel counted on while the probe detached: the intervals differ then."""
    same_us = max(_SAME_TIME_US, (window.end.mono_us - window.begin.mono_us) // _SAME_TIME_SHARE)
    return isinstance(window, LastWindow) and window.lag_us > same_us
