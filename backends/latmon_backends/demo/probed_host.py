"""A synthetic host under its platform's scripts: what they print of a window, decoded as a capture decodes it.

The kernel's counters are those that the platform has: before 6.10 Linux does not count what waits above the driver, and
kstat has no times. So a demo shows nothing that a capture of such a host can't.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.decode.framer import Framer
from latmon.decode.tables import followed
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Outlier, Outstanding, Thread, Traced
from latmon.model.inflight import Depths
from latmon.model.measurements.handlers import Handler
from latmon_backends.demo.scenario import INTERVAL_US, FlowIos, HostFacts
from latmon_backends.demo.script_output import Numbers, ScriptOutput
from latmon_backends.kernel.counters import Sample
from latmon_backends.kernel.depth_sampler import Spent
from latmon_backends.kernel.diskstats import Counters
from latmon_backends.kernel.interrupts import Interrupts, Vectors, Words
from latmon_backends.probe.always_on import FrameBuilder
from latmon_backends.probe.outliers import USUAL, NumberedThreads, Outliers, of_bits
from latmon_backends.probe.tick_protocol import (
    OnDemandSurroundings,
    OnDemandTicks,
    ProbeWindow,
    Surroundings,
    Ticks,
)
from latmon_backends.probe_backend import FrameJoiner
from latmon_backends.tracer.controller import TracerPart

_MAP_KEYS = 1 << 20
_MS = 1_000
_SECTOR = 512
_QUEUED_SINCE, _FLUSHES_SINCE = (6, 10), (5, 5)
"""Releases of Linux from which /proc/diskstats counts queued requests, and flushes."""
_NOT_FOLLOWED: Mapping[str, Any] = {"outstanding_at_issue": None, "overtaken_by": None}


class HostCounters:
    """The kernel's counters of a synthetic host, cumulative; the `DeviceCounters` of its frames."""

    def __init__(self, host: HostFacts) -> None:
        self._host = host
        self.mono_us = host.origin.start_mono_us
        printed = {manifest.name for manifest in host.scripts}
        own = [
            replace(device, limits=tuple(x for x in device.limits if x.source not in printed))
            for device in host.devices
        ]
        self.devices = tuple(own)
        self.known: Mapping[str, Device] = {device.name: device for device in own}
        self._names = dict(enumerate(self.known, 1))
        self._ios: dict[Flow, Completed] = {}
        self._outstanding: Mapping[str, Outstanding] = {}
        self._spent: dict[str, tuple[Counter[int], Counter[int]]] = {}

    def numbered(self, number: int) -> Device | None:
        return self.known.get(self._names.get(number, ""))

    def selects(self, _device: Device) -> bool:
        return True

    def advance(
        self,
        mono_us: int,
        completed: Mapping[Flow, Completed],
        outstanding: Mapping[str, Outstanding],
        depths: Mapping[str, Depths],
    ) -> None:
        """Count until the end of a window."""
        self.mono_us = mono_us
        for flow, done in completed.items():
            self._ios[flow] = self._ios[flow] + done if flow in self._ios else done
        self._outstanding = {name: self._gauge(now) for name, now in outstanding.items()}
        for name, device_depths in depths.items() if not self._host.is_sun else ():
            driver, queued = self._spent.setdefault(name, (Counter(), Counter()))
            driver.update(device_depths.in_driver)
            queued.update(device_depths.queued if self._host.release >= _QUEUED_SINCE else {})

    def sample(self) -> Sample:
        return Sample(
            self.mono_us,
            self._host.wall_of(self.mono_us),
            counters={name: Counters(name, self._ops(name)) for name in self.known},
            generations=dict.fromkeys(self.known, 1),
            shown=frozenset(self.known),
            outstanding=self._outstanding,
            spent={name: Spent(dict(driver), dict(queued), 1) for name, (driver, queued) in self._spent.items()},
            cgroup_limits=None if self._host.is_sun else (),
        )

    def _gauge(self, now: Outstanding) -> Outstanding:
        known = self._host.is_sun or self._host.release >= _QUEUED_SINCE
        return now if known else Outstanding(now.in_driver, None)

    def _ops(self, name: str) -> dict[str, Completed]:
        if self._host.is_sun:
            ops: tuple[str, ...] = ("read", "write")
        else:
            ops = ("read", "write", "discard", *(("flush",) if self._host.release >= _FLUSHES_SINCE else ()))
        completions = {op: self._ios.get(Flow(name, op), Completed(0, 0, 0)) for op in ops}
        return {op: self._printed(completed) for op, completed in completions.items()}

    def _printed(self, completed: Completed) -> Completed:
        """Return the counters as they are printed: kstat's without times, those of diskstats in sectors and ms."""
        if self._host.is_sun:
            return Completed(completed.count, completed.bytes)
        return Completed(completed.count, completed.bytes // _SECTOR * _SECTOR, (completed.time_us or 0) // _MS * _MS)


class HostThreads(NumberedThreads):
    """Threads of a synthetic host: as /proc has them, else by the names and priorities that scripts print."""

    def __init__(self, host: HostFacts) -> None:
        super().__init__(Path())
        self._host = host
        self._every = {thread.pid: thread for thread in host.threads}

    def of(self, pid: int) -> Thread:
        thread = self._every[pid]
        if not self._host.is_sun:
            return thread
        return replace(thread, policy="", priority=self.priority(pid), kernel=True)


class HostVectors(NamedTuple):
    """Interrupt vectors of a synthetic host, as its sysfs has them, and words in the names of a function's handlers."""

    vectors: Vectors = Vectors()
    words: Mapping[str, Words] = MappingProxyType({})


class _Interrupts(Interrupts):
    """`Interrupts` of a synthetic host."""

    def __init__(self, host_vectors: HostVectors) -> None:
        super().__init__(Path())
        self._vectors, self._here = host_vectors.vectors, host_vectors

    def _refresh(self, handlers: set[Handler]) -> None:
        """Leave the vectors as they are."""

    def _words_of(self, address: str) -> tuple[Words, Words]:
        return self._here.words.get(address, frozenset()), frozenset()


_NO_VECTORS = HostVectors()


class HostTracer:
    """The tracer of a synthetic host: it traces every I/O of all devices, and prints at the end of each window."""

    runs = False

    def __init__(self, ticks: OnDemandTicks, timed: Mapping[str, bool], *, has_scripts: bool) -> None:
        """`timed`: all devices, and whether each has requests."""
        self.ticks, self._timed, self._has_scripts = ticks, timed, has_scripts

    def part(self, frame: Frame) -> TracerPart:
        window = self.ticks.taken()
        reported = window.interval
        undecoded = window.losses.undecoded + reported.undecoded
        return TracerPart(
            window,
            replace(reported.traced, one_in=1) if self._has_scripts else Traced(),
            reported.in_flight and followed(reported.in_flight, reported.ages_of, self._timed),
            replace(frame.health, undecoded_lines=frame.health.undecoded_lines + undecoded),
        )


class ProbedHost:
    """The scripts of a synthetic host and the decoder of their output; windows are taken in their order."""

    def __init__(self, host: HostFacts, vectors: HostVectors = _NO_VECTORS) -> None:
        always, *traced = host.scripts
        self.host, self._counters = host, HostCounters(host)
        self._numbers = Numbers(host)
        self._always = ScriptOutput(always, self._numbers)
        self._traced = [ScriptOutput(manifest, self._numbers) for manifest in traced]
        self._frames = FrameBuilder(self._counters, Path(), lambda: 0)
        name, threads = self._frames.device_name, HostThreads(host)
        around = Surroundings(
            lambda: self._counters.mono_us, lambda _: 0, self._counters.sample, _MAP_KEYS, INTERVAL_US
        )
        cgroup = self._numbers.cgroups.__getitem__
        self._ticks = Ticks(always, Framer(always, name, cgroup=cgroup), around)
        self._timed = {device.name: device.timed for device in host.devices}
        tracer = OnDemandSurroundings(
            _MAP_KEYS,
            timed=lambda name: self._timed[name],
            flags=partial(of_bits, at=USUAL),
            cgroup=cgroup,
            file_system=self._numbers.file_systems.__getitem__,
        )
        self._tracer = HostTracer(OnDemandTicks(traced, name, threads, tracer), self._timed, has_scripts=bool(traced))
        self._depths_in_us = any(
            manifest.clock == "monotonic" and manifest.tool == "dtrace" for manifest in host.scripts
        )
        self._joining = FrameJoiner(
            self._frames,
            self._tracer,
            Outliers(host.scripts, name, threads),
            _Interrupts(vectors),
            lambda: self._counters.known,
            sample_us=1 if self._depths_in_us else _MS,
        )
        self._counts_overtaking = any("waiting" in manifest.records for manifest in host.scripts)
        self._request = 0
        self._begun = False

    def window(self, seq: int, loads: Iterable[FlowIos], outliers: Sequence[Outlier] = (), **tables: Any) -> Frame:
        """Return window `seq` (from 0) as a capture of this host has it.

        `tables`: `handlers`, `softirqs`, `wakeups`, `depths`, `outstanding`, `in_flight`, `issues`, `files` and
        `file_operations` as a frame has them; further fields of the frame are left as they are.
        """
        begin_us = self.host.origin.start_mono_us + seq * INTERVAL_US
        counted = [flow_ios for flow_ios in loads if flow_ios.kernel.count]
        depths, outstanding = tables.pop("depths", {}), tables.pop("outstanding", {})
        if not self._begun:
            self._begin(begin_us)
        self._count(counted, outliers)
        self._print(tables, depths)
        completed = {flow_ios.flow: flow_ios.kernel for flow_ios in counted}
        volumes = _volumes(self.host.devices, completed)
        self._counters.advance(begin_us + INTERVAL_US, completed | volumes, outstanding, depths)
        window = self._tick(begin_us + INTERVAL_US)
        skipped = None if self.host.is_sun else sum(flow_ios.missed for flow_ios in counted)
        return replace(self._frame(window, skipped), seq=seq, **tables)

    def _begin(self, mono_us: int) -> None:
        """Print the ticks from which the scripts count, and the limits that they report."""
        self._counters.mono_us = mono_us
        for script_output in (self._always, *self._traced):
            script_output.thresholds(self.host.thresholds_us)
        self._tick(mono_us)
        for device in self.host.devices:
            for limit in device.limits:
                fields = {"dev": self._numbers.devices[device.name], "value": limit.value}
                for script_output in self._traced:
                    if script_output.manifest.name == limit.source:
                        script_output.record("limit", fields, limit.name)
        self._begun = True

    def _count(self, loads: Sequence[FlowIos], outliers: Sequence[Outlier]) -> None:
        rows = Counter(Flow(outlier.device, outlier.op) for outlier in outliers)
        for output in (self._always, *self._traced):
            for flow_ios in loads:
                output.ios(flow_ios, self.host.thresholds_us[flow_ios.flow.device], rows[flow_ios.flow])
            output.thresholds(self.host.thresholds_us)
            for at, slow in enumerate(outliers, self._request + 1):
                # The scripts of stages print what the one finds that follows requests in flight.
                known = slow if self._counts_overtaking else replace(slow, **_NOT_FOLLOWED)
                output.slow(known, at)
        self._request += len(outliers)

    def _print(self, tables: dict[str, Any], depths: Mapping[str, Depths]) -> None:
        """Print the tables of a window; take them out of `tables`."""
        handlers, softirqs, wakeups = (tables.pop(table, ()) or {} for table in ("handlers", "softirqs", "wakeups"))
        in_flight, issues = tables.pop("in_flight", None), tables.pop("issues", {})
        files, operations = tables.pop("files", {}), tables.pop("file_operations", ())
        for output in self._traced:
            output.handlers(handlers)
            output.softirqs(softirqs)
            output.wakeups(wakeups)
            for name, depth in depths.items():
                if self._timed[name]:
                    output.depths(name, depth, _MS if self._depths_in_us else 1)
            for name, issue in issues.items():
                output.issued(name, issue)
            if in_flight is not None:
                output.waiting(in_flight)
            output.files(files)
            for operation in operations:
                output.file_operation(operation)

    def _tick(self, mono_us: int) -> ProbeWindow | None:
        window = None
        for event in self._always.tick(mono_us):
            window = self._ticks.take(event) or window
        for output in self._traced:
            for event in output.tick(mono_us):
                self._tracer.ticks.take(event)
        return window

    def _frame(self, window: ProbeWindow | None, skipped: int | None) -> Frame:
        assert window is not None  # noqa: S101 - each tick but the first ends a window
        health = Health(
            probes_attached=1,
            probes_wanted=1,
            undecoded_lines=window.losses.undecoded + window.interval.undecoded,
            suppressed=window.interval.suppressed,
            skipped=skipped,
        )
        return self._joining.frame(window, self._always.manifest, health)


def _volumes(devices: Iterable[Device], kernel: Mapping[Flow, Completed]) -> dict[Flow, Completed]:
    """Return the kernel's counts of volumes: the sum of their members, because each I/O goes to one of them."""
    sums: dict[Flow, Completed] = {}
    for volume in devices:
        for flow, more in kernel.items():
            if flow.device in volume.members:
                whole_flow = Flow(volume.name, flow.op)
                sums[whole_flow] = sums[whole_flow] + more if whole_flow in sums else more
    return sums
