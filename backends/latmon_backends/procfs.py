"""The procfs backend (tier D): kernel counters only, no privilege, one frame per interval.

A frame has counts, bytes, mean times and I/Os in flight. The kernel's counters have no distribution and no stages, so
it has no histograms, and the origin has the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Self

from latmon import __version__
from latmon.capture.backend import Options
from latmon.model.frame import ISSUERS, KERNEL_LOG, STAGES, Device, Frame, Health, Missing, Origin, Settings
from latmon.support import host
from latmon_backends.kernel import settings as kernel_settings
from latmon_backends.kernel.counters import CounterInterval, KernelSampler, Sample, difference, monotonic_us
from latmon_backends.kernel.recoveries import DeviceEvents
from latmon_backends.kernel.system import TaskQueues, sampler_of

_FIRST_US = 1_000_000
"""The first frame comes after this time even when intervals are longer; its `dt_us` is its own."""
_SLEPT_US = 100_000
_NO_DISTRIBUTION = "the kernel's counters are sums without a distribution: only the mean is known"
_NO_STAGES = "the kernel's counters don't separate stages: this needs bpftrace or dtrace"


class ProcfsBackend:
    """Backend that reads the system's counters: /proc/diskstats and sysfs, kstat, or psutil."""

    def __init__(self, options: Options, reason: str = "", suspended_us: Callable[[], int] = host.suspended_us) -> None:
        self._options, self._suspended_us = options, suspended_us
        self._sampler, source = sampler_of(options)
        self._queues = TaskQueues(source)
        reads_cgroups = isinstance(self._sampler, KernelSampler)
        without_cgroups = () if reads_cgroups else (Missing(ISSUERS, "the system has no cgroups"),)
        if isinstance(self._sampler, KernelSampler):
            self._sampler.read_cgroups()
            self._sampler.read_processes()
        self._before = Sample(0, 0.0)
        self._seq, self._slept_us = 0, 0
        self._news: tuple[Device, ...] = ()
        self._origin = Origin(
            backend="procfs",
            host=host.name(),
            kernel=host.kernel(),
            latmon=__version__,
            tool=source,
            tier="D",
            interval_us=options.interval_us,
            boot_id=host.boot_id(options.proc),
            hz=host.hz(options.proc),
            absent=tuple(Missing(s, _NO_DISTRIBUTION if s == "total" else _NO_STAGES) for s in STAGES),
            untraced=(*without_cgroups, *self._why_no_log()),
            reason=reason,
        )
        self._notice = _without_effect(options)

    @property
    def origin(self) -> Origin:
        return self._origin

    def begin(self) -> None:
        """Begin the first interval now, before the backend is opened."""
        self._before = self._sampler.sample()

    async def __aenter__(self) -> Self:
        if not self._before.mono_us:
            self.begin()
        self._sampler.require_selected()
        settings = await self.settings()
        self._sampler.start()
        start_wall, start_mono_us = self._before.wall, self._before.mono_us
        self._origin = replace(
            self._origin,
            start_wall=start_wall,
            start_mono_us=start_mono_us,
            settings=settings,
            counted=self._sampler.counted if isinstance(self._sampler, KernelSampler) else (),
        )
        return self

    async def settings(self) -> Settings:
        return await kernel_settings.bounded(self._options, self._sampler.devices, {"tool": {"latmon": __version__}})

    async def __aexit__(self, *exc: object) -> None:
        self._sampler.close()

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield one frame per interval without end."""
        self._seq, self._news, self._slept_us = 0, self._sampler.devices, self._suspended_us()
        async for _ in _ticks(self._before.mono_us, self._options.interval_us):
            yield self._next()

    async def finish(self, patience_s: float) -> tuple[Frame, ...]:  # noqa: ARG002 - it takes no time
        """Return the frame that is overdue, as after this process was stopped, if one is."""
        overdue = monotonic_us() - self._before.mono_us >= self._options.interval_us
        return (self._next(),) if overdue else ()

    def _device_events(self) -> DeviceEvents:
        if not isinstance(self._sampler, KernelSampler):
            return DeviceEvents()
        return self._sampler.device_events(self._before.mono_us, self._before.wall)

    def _why_no_log(self) -> tuple[Missing, ...]:
        why = self._sampler.why_no_log if isinstance(self._sampler, KernelSampler) else "the system has no /dev/kmsg"
        return (Missing(KERNEL_LOG, why),) if why else ()

    def _next(self) -> Frame:
        """Return the frame of the time since the last one."""
        before, self._before = self._before, self._sampler.sample()
        slept_us, self._slept_us = self._slept_us, self._suspended_us()
        interval = difference(before, self._before)
        notice, self._notice = "; ".join(filter(None, (self._notice, *interval.notices))), ""
        events = self._device_events()
        frame = Frame(
            seq=self._seq,
            wall=self._before.wall,
            mono_us=self._before.mono_us,
            dt_us=interval.dt_us,
            kernel=interval.kernel,
            outstanding=interval.outstanding,
            depths=interval.depths,
            cgroup_limits=interval.cgroup_limits,
            host_context=interval.host_context,
            tables={**interval.tables, **events.tables},
            devices=_merge(self._news, interval),
            removed=interval.removed,
            health=Health(undecoded_lines=interval.undecoded, notice=notice),
            gap="suspended" if self._slept_us - slept_us > _SLEPT_US else "",
            late=interval.dt_us >= 2 * self._options.interval_us,
            taskqs=self._queues.sample(),
            marks=events.marks,
        )
        self._seq, self._news = self._seq + 1, ()
        return frame


def _without_effect(options: Options) -> str:
    """Return the notice about options that need more than the kernel's counters."""
    requested = {"--stages all": options.stages == "all", "--threshold": options.threshold_us is not None}
    vain = [name for name, wanted in requested.items() if wanted]
    have = "have" if len(vain) > 1 else "has"
    return f"{' and '.join(vain)} {have} no effect: the kernel's counters don't time single I/Os" if vain else ""


async def _ticks(start_us: int, interval_us: int) -> AsyncIterator[None]:
    """Wake at start + n intervals, however long the work between took."""
    due, first = start_us + interval_us, start_us + min(interval_us, _FIRST_US)
    await _until(first)
    yield
    if first < due:
        await _until(due)
        yield
    while True:
        missed = max(0, monotonic_us() - due) // interval_us
        due += (missed + 1) * interval_us
        await _until(due)
        yield


async def _until(due_us: int) -> None:
    await asyncio.sleep(max(0, due_us - monotonic_us()) / 1e6)


def _merge(news: tuple[Device, ...], interval: CounterInterval) -> tuple[Device, ...]:
    """Return the devices known before, updated by the interval's changes."""
    known = {device.name: device for device in (*news, *interval.devices)}
    return tuple(device for name, device in known.items() if name not in interval.removed)
