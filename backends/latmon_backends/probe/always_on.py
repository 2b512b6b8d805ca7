"""The always-on probe: choice among its scripts, windows, silence, restarts, end; and the builder of its frames.

A frame has the probe's histograms beside the kernel's counters of the same interval. The builder numbers frames, and
keeps the gap and the notice of the next one. Each tool has a subclass of AlwaysOn.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from latmon.capture.backend import Options
from latmon.manifest import Manifest
from latmon.model.devices import busy_rows, rows_kept
from latmon.model.frame import Completed, Device, Flow, Frame, Health
from latmon.model.measurements import ABOVE, LATENCIES, SEEN
from latmon.model.table import filled
from latmon.support import host
from latmon.support.errors import ProbeGoneError, UnavailableError, UntrustedError
from latmon.support.paths import matching
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel.counters import CLOCK, FrameClock, Sample
from latmon_backends.kernel.diskstats import SECTOR
from latmon_backends.kernel.recoveries import DeviceEvents
from latmon_backends.probe.events import Event, Printed
from latmon_backends.probe.launcher import AnyProgram, Launcher, Script
from latmon_backends.probe.launcher import Start as StartProcess
from latmon_backends.probe.process import LOOK_S, Child, RefusedError, RunningProbe, Silence
from latmon_backends.probe.tick_protocol import LastWindow, ProbeWindow, Ticks

_SLEPT_US = 100_000
_SAME_TIME_US = 20_000
_SAME_TIME_SHARE = 50
"""20 ms of an interval of one second; a wide one may differ by the same share."""
_STARTING = 3
"""Most windows after a start whose counters may be late: the first ticks come while the reader prepares."""
_SILENT_TICKS = 3
Start = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class MeasuredHost:
    """The host that a probe measures: this one, or another one behind a connection. Times in us, by its clocks."""

    start: StartProcess = Child.start
    now_us: Callable[[], int] = kernel_counters.monotonic_us
    """Its CLOCK_MONOTONIC, as processes there read it."""
    suspended_us: Callable[[], int] = host.suspended_us
    """How far its kernel's CLOCK_BOOTTIME is ahead of its kernel's CLOCK_MONOTONIC."""
    probe_ahead_us: Callable[[str], int] = host.probe_ahead_us
    """How far a clock of its probes is ahead of `now_us`, by the clock's name in a manifest."""
    clock: FrameClock = CLOCK
    """The clocks of the counters."""
    refresh: Callable[[], Awaitable[None]] | None = None
    """Reads its counters and devices into the files below the roots of the options; None where these are its own."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Another host has reported these about itself."""


HERE = MeasuredHost()


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
        self,
        counters: DeviceCounters,
        sys: Path,
        suspended_us: Callable[[], int] = host.suspended_us,
        device_events: Callable[[int, float], DeviceEvents] = lambda _mono_us, _wall: DeviceEvents(),
    ) -> None:
        """`device_events`: lines of the kernel's log about the devices, and time-outs, since its last call."""
        self._device_events = device_events
        self._sampler, self._sys, self._suspended_us = counters, sys, suspended_us
        self._ended_us = counters.sample().mono_us
        self._slept_us = suspended_us()
        self._seq = 0
        self._wanted_of: tuple[Mapping[str, Device], frozenset[str]] = ({}, frozenset())
        """Devices, and the names of those that are selected."""
        self._starting = _STARTING
        self.gap = self.notice = ""

    def make(self, window: ProbeWindow, manifest: Manifest, health: Health) -> Frame:
        """Return what the always-on probe and the kernel counted in the window. `manifest`: the probe's."""
        begin, end = window.begin, window.end
        gap = self._why_gap()
        # A suspend falsifies the times of a probe whose clock goes on meanwhile.
        bent = gap == "suspended" and manifest.clock == "boottime"
        counts_bytes = any(spec.role == "bytes" for spec in manifest.maps)
        interval = kernel_counters.difference(begin.sample, end.sample)
        kernel = interval.kernel
        events = self._device_events(end.mono_us, end.sample.wall - window.lag_us / 1e6)
        tables = {**interval.tables, **filled(window.interval.tables), **events.tables}
        if bent:
            tables = {ABOVE: window.interval.tables.get(ABOVE, {})}
        seen = window.interval.seen if counts_bytes else _with_bytes(window.interval.seen, kernel)
        frame = Frame(
            seq=self._seq,
            wall=end.sample.wall - window.lag_us / 1e6,
            mono_us=end.mono_us,
            dt_us=max(1, end.mono_us - (self._ended_us if self.gap else begin.mono_us)),
            histograms={} if bent else rows_kept(LATENCIES, window.interval.histograms, self._is_wanted),
            seen=rows_kept(SEEN, seen, self._is_wanted),
            kernel=kernel if self._counted_together(window) else _of_idle(kernel),
            thresholds_us=self._of_selected(window.interval.thresholds_us),
            outstanding=end.sample.outstanding,
            depths=interval.depths,
            cgroup_limits=interval.cgroup_limits,
            host_context=interval.host_context,
            tables={table: rows_kept(table, rows, self._is_wanted) for table, rows in tables.items()},
            devices=self._sampler.devices if self._seq == 0 else end.sample.devices,
            removed=end.sample.removed,
            health=replace(
                health,
                notice="; ".join(filter(None, (self.notice, *interval.notices))),
                undecoded_lines=health.undecoded_lines + interval.undecoded,
            ),
            gap=gap,
            late=window.late,
            marks=events.marks,
        )
        self._seq += 1
        self.gap = self.notice = ""
        self._ended_us = end.mono_us
        return frame

    def final_frame(self, health: Health) -> Frame:
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
        return len(matching(self._sys / "block" / name / "mq", "[0-9]*")) > 1

    def _why_gap(self) -> str:
        slept, self._slept_us = self._slept_us, self._suspended_us()
        if self._slept_us - slept > _SLEPT_US:
            return "suspended"
        return self.gap

    def _counted_together(self, window: ProbeWindow) -> bool:
        """Return False where probe and kernel counted different times, at the start or at the end of a probe.

        In between the difference is left to the next window, so that sums over windows are right: the first ticks were
        read up to 0.8 s late, which made 155 % coverage of the first seconds. bpftrace 0.17 detached for 0.16 s, which
        made 37 % coverage of the last 0.25 s.
        """
        if self.gap:
            self._starting = _STARTING
        begin, length_us = window.begin, window.end.mono_us - window.begin.mono_us
        apart_us = abs(window.lag_us - (begin.sample.mono_us - begin.mono_us))
        apart_us += window.detaching_us if isinstance(window, LastWindow) else 0
        together = apart_us <= max(_SAME_TIME_US, length_us // _SAME_TIME_SHARE)
        starting, self._starting = self._starting, 0 if together else max(0, self._starting - 1)
        return together or not (starting or isinstance(window, LastWindow))

    def _is_wanted(self, name: str) -> bool:
        return name in self._wanted()

    def _of_selected(self, table: Mapping[str, int]) -> dict[str, int]:
        wanted = self._wanted()
        return {name: value for name, value in table.items() if name in wanted}

    def _wanted(self) -> frozenset[str]:
        devices = self._sampler.known
        if devices is not self._wanted_of[0]:
            names = frozenset(name for name, device in devices.items() if self._sampler.selects(device))
            self._wanted_of = devices, names
        return self._wanted_of[1]


def _with_bytes(seen: Mapping[Flow, Completed], kernel: Mapping[Flow, Completed]) -> Mapping[Flow, Completed]:
    """Return the I/Os seen by the probe, with the kernel's mean size of the interval: a number of whole sectors."""
    sectors = {flow: done.bytes / done.count / SECTOR for flow, done in busy_rows(kernel).items() if done.count}
    return {flow: replace(done, bytes=round(done.count * sectors.get(flow, 0)) * SECTOR) for flow, done in seen.items()}


def _of_idle(kernel: Mapping[Flow, Completed]) -> dict[Flow, Completed]:
    """Return the counters of devices that completed nothing: those are true for any part of the interval."""
    busy = {flow.device for flow, done in busy_rows(kernel).items() if done.count}
    return {flow: done for flow, done in kernel.items() if flow.device not in busy}


_RESTARTS, _WITHIN_S = 3, 60.0


class ProbeSupervisor:
    """Restarts of one probe process; it is stuck when it prints nothing for `silent_s` and three ticks."""

    def __init__(self, tool: str, frames: FrameBuilder, interval_us: int, silent_s: float) -> None:
        self._tool, self._frames = tool, frames
        self._silent_s = max(_SILENT_TICKS * interval_us / 1e6, silent_s)
        self._why_ended, self._is_down = "", False
        self._silence = Silence()
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    async def next(self, probe: RunningProbe) -> Event | None:
        """Return the next event; None where the probe ended, or was ended because it was silent."""
        try:
            # A time limit costs more than an event, of which a portion of the output has hundreds.
            event = probe.decoded() or await self._listened(probe)
        except TimeoutError:
            self._why_ended, self._is_down = f"it printed nothing for {self._silent_s:.0f} s", True
            await probe.stop()
            return None
        if event is None:
            self._why_ended, self._is_down = "its output ended", True
            self._why_ended = await probe.complaint()
        return event

    async def _listened(self, probe: RunningProbe) -> Event | None:
        """Return the next event; TimeoutError where the probe is silent, not where this process was stopped."""
        self._silence.reset()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    return await probe.next()
            if self._silence.look() >= self._silent_s:
                raise TimeoutError

    def check(self) -> None:
        """Raise ProbeGoneError where the probe has ended and no other one runs yet."""
        if self._is_down:
            raise self.gone()

    def gone(self) -> ProbeGoneError:
        """Return the error with the reason why nothing was counted since the last frame."""
        why = f": {self._why_ended}" if self._why_ended else " by itself"
        return ProbeGoneError(f"{self._tool} had ended{why}")

    async def restart(self, probe: RunningProbe, start: Start) -> bool:
        """Restart it after an end that was not requested, at most three times a minute; return whether it runs."""
        why = self._why_ended
        await probe.stop()
        now = time.monotonic()
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _WITHIN_S:
            self._frames.notice = f"{self._tool} ended {_RESTARTS + 1} times within a minute, the last time: {why}"
            return False
        self._restarts.append(now)
        await asyncio.sleep(0.2 * len(self._restarts))
        return await self.start_again(start, f"it had ended: {why}")

    async def start_again(self, start: Start, why: str) -> bool:
        """Start it again, which is a gap; return whether it runs. The notice has the reason."""
        self._is_down = True
        try:
            await start()
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._frames.notice = f"{self._tool} could not be started again ({why}): {refusal}"
            return False
        self._is_down = False
        self._frames.gap, self._frames.notice = "probe-restart", f"{self._tool} was started again ({why})"
        return True


class AlwaysOn(ABC):
    """The always-on probe process of one tool: the first of its scripts that runs, kept running."""

    script: Script
    program: AnyProgram
    probe: RunningProbe
    _ticks: Ticks

    def __init__(
        self,
        tool: str,
        silent_s: float,
        options: Options,
        launcher: Launcher,
        frames: FrameBuilder,
        *,
        at: MeasuredHost = HERE,
    ) -> None:
        """`silent_s`: a probe that prints nothing for so long is stuck."""
        self._options, self.launcher, self._frames, self._at = options, launcher, frames, at
        self._kept = ProbeSupervisor(tool, frames, options.interval_us, silent_s)

    @property
    def manifest(self) -> Manifest:
        return self.script.manifest

    async def choose(self) -> dict[str, str]:
        """Start the first script that runs. Return the others' refusals by name; UnavailableError where none runs."""
        refusals: dict[str, str] = {}
        for script in self._candidates(refusals):
            try:
                await self._start(script)
            except RefusedError as refusal:
                refusals[script.name] = str(refusal)
                if why := self._why_none_would(str(refusal)):
                    raise UnavailableError(why) from refusal
            else:
                return refusals
        raise UnavailableError(self._why_none(refusals))

    async def window(self) -> ProbeWindow | None:
        """Return the next window; None where the probe ended and can't be kept running."""
        while True:
            event = await self._kept.next(self.probe)
            if event is None:
                if not await self._kept.restart(self.probe, self._again):
                    return None
                continue
            if self._at.refresh is not None and isinstance(event, Printed) and event.text.startswith("tick "):
                await self._at.refresh()
            if (window := self._take(event)) is not None:
                return window

    async def restart_if_needed(self, window: ProbeWindow, gap: str) -> str:  # noqa: ARG002 - subclasses use it
        """Restart the probe where the frame of a window shows that it must be; return why the tracer must be, too."""
        if gap == "suspended":
            await self._restart("the host was suspended")
        return ""

    async def _restart(self, why: str) -> None:
        await self.probe.stop()
        await self._kept.start_again(self._again, why)

    @abstractmethod
    async def finish(self, on_demand: asyncio.Task[None], patience_s: float) -> ProbeWindow | None:
        """End the probe beside the tracer, whose end `on_demand` is; return the window of the interval that was begun.

        ProbeGoneError where the probe had ended before.
        """

    async def skipped(self) -> int | None:
        """Return the runs of its programs that the kernel skipped since the last call; None where not known."""
        return None

    @abstractmethod
    def _candidates(self, refusals: Mapping[str, str]) -> Iterator[Script]:
        """Yield the scripts, the best first; `refusals` has those of the scripts before."""

    @abstractmethod
    async def _start(self, script: Script) -> None:
        """Start the script: sets `script`, `program`, `probe` and the ticks."""

    @abstractmethod
    async def _again(self) -> None:
        """Start the same script once more."""

    @abstractmethod
    def _why_none_would(self, refusal: str) -> str:
        """Return the sentence for a refusal that no other script would avoid, else nothing."""

    @abstractmethod
    def _why_none(self, refusals: dict[str, str]) -> str: ...

    def _take(self, event: Event) -> ProbeWindow | None:
        return self._ticks.take(event)

    def _last(self) -> ProbeWindow | None:
        """Return the interval that was begun; ProbeGoneError where the probe printed no last line."""
        if not self._ticks.saw_last_line:
            raise self._kept.gone()
        return self._ticks.last()


async def drop_windows_until(task: asyncio.Task[None], window: Callable[[], Awaitable[object | None]]) -> None:
    """Drop the windows until `task` is done: a capture begins when all that it needs is there.

    The task has ended when this returns; its error is reported by the code that created it.
    """
    try:
        while not task.done() and await window() is not None:
            pass
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
