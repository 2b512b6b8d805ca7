"""Samples of the I/O counters of all disks and of the host's context, and the difference of two samples.

A sample has counters, identity and in-flight gauges of one moment, from /proc/diskstats with sysfs. Roots and clocks
are arguments.

The host's context is seven files of /proc, which take 5 to 40 us of CPU each on a host with two CPUs. A file is read
again after 1,000 times the CPU time of its last reading, so that each costs at most 0.1 % of a CPU where it takes
longer (/proc/stat and /proc/net/snmp add up all CPUs). An interval without a new reading has no value; the next one
covers its time as well.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import is_
from pathlib import Path
from typing import Any

from latmon.capture.mounts import MountTable
from latmon.model.devices import IdleRows, WithIdle, busy_rows
from latmon.model.frame import CgroupLimit, Completed, Device, Flow, Outstanding
from latmon.model.host_context import NO_CONTEXT, ContextValue, HostContext, interval_value
from latmon.model.inflight import Depths
from latmon.model.measurements import (
    CPU_QUOTAS,
    CPU_WAITS,
    DEVICE_COUNTERS,
    FILE_SLEEPS,
    FILE_SYSTEM_ERRORS,
    FILE_SYSTEM_SPACE,
    HUNG_OPERATIONS,
    IO_PRIORITIES,
    ISSUERS,
    MAINTENANCE,
    RECOVERIES,
)
from latmon.model.measurements.device_counters import DeviceCounters
from latmon.model.measurements.maintenance import Maintenance
from latmon.model.measurements.recoveries import TIMED_OUT, Recovery
from latmon.model.table import NO_TABLES, AnyTable, Tables
from latmon.support.errors import UnavailableError
from latmon.support.paths import content
from latmon_backends.kernel import (
    block_devices,
    cgroups,
    cpu_waits,
    depth_sampler,
    diskstats,
    io_priorities,
)
from latmon_backends.kernel.block_devices import BlockDevices
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.cgroups import (
    CgroupCounters,
    CgroupIos,
    CgroupNames,
    CgroupReader,
    ProcessCounters,
    ProcessIos,
)
from latmon_backends.kernel.cpu_quotas import QuotaReader
from latmon_backends.kernel.cpu_waits import CpuWaitReader
from latmon_backends.kernel.damaged_files import DamagedFileReader
from latmon_backends.kernel.depth_sampler import DepthSampler, Spent, Watched
from latmon_backends.kernel.diskstats import MOST_GAINED, UNNUMBERED, Counters, Diskstats
from latmon_backends.kernel.file_system_errors import ErrorCounters, not_counted
from latmon_backends.kernel.file_system_space import SpaceReader
from latmon_backends.kernel.hung_operations import HangReader
from latmon_backends.kernel.io_priorities import PriorityReader
from latmon_backends.kernel.kernel_log import KernelLog
from latmon_backends.kernel.maintenance import MaintenanceReader
from latmon_backends.kernel.memory import MemoryReader
from latmon_backends.kernel.nfs import NfsReader
from latmon_backends.kernel.paced_looks import PacedLooks
from latmon_backends.kernel.recoveries import DeviceEvents, TimeOutCounters, marks_of
from latmon_backends.kernel.written import WrittenReader

_CONTEXT_PACE = 1000
"""Least time between two readings of a file, in times of a reading's CPU time: a preempted one costs nothing."""
_CONTEXT_LATER_NS = 60_000_000_000
"""Longest time between two readings, and that after which a file that doesn't exist is looked for again: modules are
loaded later."""
_DIGITS = 20
"""Digits of 2^64."""
_IDLE, _IOWAIT, _STEAL, _CPU_TIMES = 3, 4, 7, 8
"""user nice system idle iowait irq softirq steal; the guest times after them are in user and nice."""
_PSI_TOTAL = re.compile(rb"^(some|full) .*\btotal=(\d{1,20})\b", re.MULTILINE)
_PAGES = re.compile(rb"\nnr_(dirty|writeback|dirty_threshold|dirty_background_threshold) (\d{1,20})\b")
"""A literal newline, not `^`: the file has 170 lines, and a search for a literal prefix takes a tenth of the time."""
_EVENTS_OF_PAGES = re.compile(
    rb"\n(pswpin|pswpout|workingset_(?:activate|refault)(?:_file)?|nr_vmscan_immediate_reclaim|pgmajfault|nr_dirtied)"
    rb" (\d{1,20})\b"
)
_NAMES_OF_EVENTS = {
    b"pswpin": "swap_ins",
    b"pswpout": "swap_outs",
    b"workingset_activate": "file_refaults",  # up to 5.8 of files only
    b"workingset_activate_file": "file_refaults",
    b"workingset_refault": "file_reloads",  # the same
    b"workingset_refault_file": "file_reloads",
    b"nr_vmscan_immediate_reclaim": "unwritten_reclaims",
    b"pgmajfault": "major_faults",
    b"nr_dirtied": "dirtied",
}
_SHORT_OF_MEMORY = (
    *("swap_ins", "swap_outs", "file_refaults", "file_reloads"),
    *("direct_reclaims", "unwritten_reclaims"),
)
"""Values that grow where pages in use, or not yet written, are reclaimed."""
_NAMES_OF_PAGES = {
    b"dirty": "dirty",
    b"writeback": "writeback",
    b"dirty_threshold": "dirty_limit",
    b"dirty_background_threshold": "dirty_background",
}
_ALLOCSTALL = re.compile(rb"\nallocstall\w* (\d{1,20})\b")
_ARC_SIZE = re.compile(rb"^size +\d+ +(\d{1,20})$", re.MULTILINE)
_NFS_RPC = re.compile(rb"^rpc \d+ (\d{1,20})\b", re.MULTILINE)

Cumulative = tuple[int, int]
"""Total and weight, as in ContextValue, since any begin."""
_Parsed = Iterator[tuple[str, int, int]]
"""Name, total and weight of a value; a weight of 0 means the time of the reading."""
_SIZES = frozenset((*_NAMES_OF_PAGES.values(), "arc"))
"""Values that are no counters: their readings are added up."""


def monotonic_us() -> int:
    """Return the kernel's CLOCK_MONOTONIC, the clock of a Frame's mono_us."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class FrameClock:
    """The two clocks of a frame."""

    mono_us: Callable[[], int] = monotonic_us
    wall: Callable[[], float] = time.time


CLOCK = FrameClock()


@dataclass(frozen=True, slots=True)
class Sample:
    """Absolute counters at one moment, by whole disk's name, and the changes since the sampler's last sample."""

    mono_us: int
    wall: float
    counters: Mapping[str, Counters] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()
    """Devices that exist, match the user's globs and whose I/O is counted."""
    maybe: frozenset[str] = frozenset()
    """Shown only where they moved: the kernel doesn't count for them (iostats off), their own driver may."""
    outstanding: Mapping[str, Outstanding] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    removed: tuple[str, ...] = ()
    undecoded: int = 0
    spent: Mapping[str, Spent] = field(default_factory=dict)
    """Time by depth of the devices that are sampled between the frames."""
    cgroup_limits: tuple[CgroupLimit, ...] | None = None
    """With absolute counters; None where limits of cgroups are not read."""
    host_context: Mapping[str, Cumulative] = field(default_factory=dict)
    host_sums: Tables = field(default_factory=lambda: NO_TABLES)
    """Sums of the readers of host state (`PacedLooks`)."""
    failed_looks: int = 0
    """Looks of these readers that failed since the capture began."""
    left_out: tuple[str, ...] = ()
    """Sentences about what these readers don't read now."""
    cgroup_ios: CgroupCounters | None = None
    """Absolute counters by cgroup; None where they are not read."""
    process_ios: ProcessCounters | None = None
    """Absolute counters by process; None where they are not read."""
    idle: IdleRows = field(default_factory=IdleRows)
    """Rows of the devices in `shown`, for those whose counters have not changed and that have no I/O in flight."""
    skipped: frozenset[str] = frozenset()
    """Devices that had no line in this reading; their counters are those of the one before."""
    maintenance: frozenset[Maintenance] = frozenset()
    """Work that runs at this moment."""


@dataclass(frozen=True, slots=True)
class CounterInterval:
    """The difference of two samples, as fields of a Frame."""

    dt_us: int
    kernel: Mapping[Flow, Completed]
    outstanding: Mapping[str, Outstanding]
    devices: tuple[Device, ...]
    removed: tuple[str, ...]
    undecoded: int = 0
    depths: Mapping[str, Depths] = field(default_factory=dict)
    cgroup_limits: tuple[CgroupLimit, ...] | None = None
    host_context: HostContext = field(default_factory=lambda: NO_CONTEXT)
    tables: Tables = field(default_factory=lambda: NO_TABLES)
    notices: tuple[str, ...] = ()
    """Each is a sentence about what is not read since this interval."""


class CounterSampler:
    """Base of the samplers: the devices that the user's globs select, and how they change between samples."""

    def __init__(self, globs: tuple[str, ...], clock: FrameClock) -> None:
        self._globs, self._clock = globs, clock
        self._known: dict[str, Device] = {}

    def start(self) -> None:
        """Begin to sample depths between the frames, where the sampler can."""

    def close(self) -> None:
        """Stop sampling between the frames and close all files."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """All selected devices as of the last sample: what a first frame must carry."""
        return tuple(self._known.values())

    def selects(self, device: Device) -> bool:
        """Return whether the user's globs match this device's name or label."""
        names = tuple(name for name in (device.name, device.label) if name)
        return not self._globs or any(fnmatchcase(name, glob) for glob in self._globs for name in names)

    def _replace(self, devices: Iterable[Device]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
        """Replace the known devices by the selected ones of those found; return which changed and which are gone."""
        now = {device.name: device for device in devices if self.selects(device)}
        changed = tuple(device for name, device in now.items() if self._known.get(name) != device)
        removed = tuple(name for name in self._known if name not in now)
        self._known = now
        return changed, removed

    def _require_selected(self, names: Iterable[str], none: str) -> None:
        """Raise UnavailableError where there is nothing to watch, as with a mistyped glob: it would record nothing."""
        known_names = ", ".join(sorted(names))
        if not known_names:
            raise UnavailableError(f"There is no disk to measure: {none}.")
        if not self.devices:
            raise UnavailableError(f"No device matches --device {' '.join(self._globs)}; there are: {known_names}.")


class KernelSampler(CounterSampler):
    """Reads the kernel's counters of the selected devices. `start` also samples their depths, until `close`."""

    def __init__(self, proc: Path, sys: Path, devices: tuple[str, ...] = (), clock: FrameClock = CLOCK) -> None:
        super().__init__(devices, clock)
        self.mounts = MountTable(proc)
        self.block = BlockDevices(proc, sys, self.mounts)
        self._proc, self._sys, self._block = proc, sys, sys / "block"
        self._reading: Diskstats | None = None
        self._cgroups = CgroupReader(proc)
        self._context = HostContextReader(proc)
        self._maintenance = MaintenanceReader(sys)
        self._memory = MemoryReader(proc, self.mounts)
        self._quotas = QuotaReader(proc, self.mounts)
        self._hangs = HangReader(proc, sys, self.mounts)
        self._priorities = PriorityReader(proc)
        self._nfs = NfsReader(proc, self.mounts)
        self._space = SpaceReader(proc, sys, self.mounts)
        self._written = WrittenReader(proc)
        self._cpu_waits = CpuWaitReader(proc, sys, self.mounts)
        self._damaged_files = DamagedFileReader(proc, sys, self.mounts)
        self._readers: tuple[PacedLooks[Any], ...] = (
            *(self._memory, self._priorities, self._quotas, self._hangs, self._nfs, self._space, self._written),
            *(self._cpu_waits, self._damaged_files),
        )
        self.cgroups = CgroupNames(proc)
        self._cgroup_ios: CgroupIos | None = None
        self._process_ios: ProcessIos | None = None
        self._has_queued = diskstats.column_has_queued(proc, sys)
        self._log = KernelLog(proc.parent / "dev/kmsg", sys)
        self._time_outs = TimeOutCounters(sys)
        self._file_system_errors = ErrorCounters(sys)
        self._depths: DepthSampler | None = None
        self._gauges: tuple[int, Mapping[str, Watched], Mapping[str, Outstanding]] = (0, {}, {})
        """Time of the last sample in us, devices whose depths are sampled, gauges of the busy ones."""
        self._watched_of: tuple[object, ...] = (None, None, None, None)
        """Inputs from which those devices were selected; they are selected again after a change."""
        self._lines: Mapping[str, Counters] = {}
        """The lines of the last sample by name."""
        self._unread: set[str] = set()
        """Devices whose I/Os in flight could not be read."""
        self._chosen: dict[str, Device] = {}
        self._idle = IdleRows()
        self._made_of: tuple[object, ...] = ()

    def start(self) -> None:
        """Sample depths from now on, of the devices of the last sample."""
        self._depths = DepthSampler(self._proc, self._sys, self._clock.mono_us)
        self._depths.watch(*self._gauges)
        self._depths.start()

    def read_cgroups(self) -> None:
        """Read the I/Os by cgroup from now on, because no probe counts them."""
        self._cgroup_ios = CgroupIos(self._proc)

    def read_processes(self) -> None:
        """Read the bytes by process from now on, because no probe may run."""
        self._process_ios = ProcessIos(self._proc)
        self._written.counted = self._process_ios.last

    def close(self) -> None:
        """Stop sampling depths, and close their files and the kernel's log."""
        if self._depths is not None:
            self._depths.close()
            self._depths = None
        self._log.close()

    def sample(self) -> Sample:
        """Return a sample of this moment. UnavailableError when /proc/diskstats can't be read."""
        mono_us, wall = self._clock.mono_us(), self._clock.wall()
        reading, before = self._read(), self._lines
        skipped = self._skipped(before, reading)
        lines = {**reading.counters, **skipped}
        moved = {name for name, line in lines.items() if before.get(name) is not line or line.in_flight != 0}
        moved |= self._unread
        # At once: between the column and this gauge every millisecond of work lets I/Os move from one to the other.
        gauges = {name: self._in_driver(name) for name in moved if name in self._chosen}
        numbered_before = self.block.generations
        self.block.shut_down = self._space.shut_down
        change = self.block.refresh(lines, mono_us)
        lines |= self._lines_of_new(numbered_before)
        self._lines = lines
        silent = self.block.uncounted
        chosen_before = self._chosen
        self._choose(silent, lines)
        chosen = self._chosen
        # A device is removed for this capture, too, where it has a label now that the user's globs don't match.
        removed = () if chosen is chosen_before else tuple(name for name in chosen_before if name not in chosen)
        busy = {
            name: self._outstanding(chosen[name], lines[name], gauges, counted=name not in silent)
            for name in sorted((moved | silent) & chosen.keys())
        }
        self._unread = {name for name, gauge in busy.items() if gauge.in_driver is None and name not in silent}
        outstanding = WithIdle(busy, self._idle.outstanding)
        context = self._context.sample()
        process_ios = None if self._process_ios is None else self._process_ios.sample()
        host_sums = self._host_sums(mono_us, context)
        numbered = {f"{d.major}:{d.minor}": d.name for d in chosen.values() if (d.major, d.minor) != UNNUMBERED}
        return Sample(
            mono_us,
            wall,
            counters=lines,
            skipped=frozenset(skipped),
            generations=self.block.generations,
            shown=frozenset(chosen) - silent,
            maybe=frozenset(name for name in silent & chosen.keys() if not chosen[name].timed),
            outstanding=outstanding,
            devices=tuple(device for device in change.changed if self.selects(device)),
            removed=removed,
            undecoded=reading.undecoded,
            spent=self._spent(mono_us, outstanding),
            host_context=context,
            host_sums=host_sums,
            failed_looks=sum(reader.failed for reader in self._readers),
            left_out=tuple(reader.left_out for reader in self._readers if reader.left_out),
            cgroup_limits=self._cgroups.sample(mono_us, numbered),
            cgroup_ios=None if self._cgroup_ios is None else self._cgroup_ios.sample(mono_us, numbered),
            process_ios=process_ios,
            idle=self._idle,
            maintenance=self._maintenance.sample(chosen),
        )

    def _host_sums(self, mono_us: int, context: Mapping[str, Cumulative]) -> Tables:
        moved = sum(context[name][0] for name in _SHORT_OF_MEMORY if name in context)
        faults, _ = context.get("major_faults", (0, 0))
        dirtied, _ = context.get("dirtied", (0, 0))
        cpu_pressure = context.get("psi_cpu_some", (0, 0))
        self._space.watch(self._chosen)
        return {
            **self._memory.sample(mono_us, is_wanted=self._memory.is_wanted(moved, faults)),
            **self._priorities.sample(mono_us, is_wanted=self._priorities.is_wanted(self._chosen)),
            **self._quotas.sample(mono_us),
            **self._hangs.sample(mono_us),
            **self._nfs.sample(mono_us),
            **self._space.sample(mono_us),
            **self._written.sample(mono_us, is_wanted=self._written.is_wanted(mono_us, dirtied)),
            **self._cpu_waits.sample(mono_us, is_wanted=self._cpu_waits.is_wanted(*cpu_pressure)),
            **self._damaged_files.sample(mono_us, is_wanted=self._damaged_files.is_wanted),
        }

    def device_events(self, mono_us: int, wall: float) -> DeviceEvents:
        """Return lines of the kernel's log about the devices, and what was counted, from the last call to this time."""
        logged = self._log.events(mono_us, wall, self._chosen)
        timed_out = self._time_outs.since_last(self._chosen, self.block.generations)
        recoveries = Counter(logged.recoveries)
        recoveries.update({Recovery(device, TIMED_OUT): commands for device, commands in timed_out.items()})
        errors = self._file_system_errors.since_last(self._chosen)
        errors.update(dict(not_counted(logged.errors, self._file_system_errors.disks_of_btrfs)))
        self._damaged_files.report(logged.damaged)
        return DeviceEvents((*logged.marks, *marks_of(timed_out, mono_us, wall)), recoveries, errors)

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the tables of this sampler of which no rows mean that there was nothing."""
        is_counted: dict[AnyTable, bool] = {
            RECOVERIES: not self.why_no_log or self._time_outs.has_any(self._chosen.values()),
            CPU_QUOTAS: self._quotas.is_possible,
            CPU_WAITS: cpu_waits.is_possible(self._proc),
            HUNG_OPERATIONS: self._hangs.is_possible,
            FILE_SLEEPS: self._hangs.is_possible,
            IO_PRIORITIES: io_priorities.is_possible(),
            FILE_SYSTEM_SPACE: self._space.is_possible,
            FILE_SYSTEM_ERRORS: not self.why_no_log or self._file_system_errors.has_any,
        }
        return tuple(table.name for table, holds in is_counted.items() if holds)

    @property
    def why_no_log(self) -> str:
        """Return why lines of the kernel's log are not read; empty where they are."""
        return self._log.why_unread

    def _choose(self, silent: frozenset[str], lines: Mapping[str, Counters]) -> None:
        """Select the devices again where they have changed, and make the rows of the idle ones."""
        made_of = (self.block.devices, silent)
        if len(self._made_of) == len(made_of) and all(map(is_, made_of, self._made_of)):
            return
        self._made_of = made_of
        self._chosen = {name: device for name, device in self.block.devices.items() if self.selects(device)}
        counted = [device for name, device in self._chosen.items() if name not in silent]
        ops = tuple(dict.fromkeys(op for device in counted[:1] for op in lines[device.name].ops))
        self._idle = IdleRows.of(counted, ops, has_queued=self._has_queued)

    @property
    def devices(self) -> tuple[Device, ...]:
        """See CounterSampler."""
        return tuple(self._chosen.values())

    @property
    def known(self) -> Mapping[str, Device]:
        """All devices as of the last sample, selected or not."""
        return self.block.devices

    def numbered(self, number: int) -> Device | None:
        """Return the device of a kernel dev_t (major << 20 | minor), as of the last sample."""
        return self.block.device(number >> 20, number & 0xFFFFF)

    def require_selected(self) -> None:
        """Raise UnavailableError where no device is selected."""
        self._require_selected(self.block.devices, f"{self._proc / 'diskstats'} and sysfs name none")

    def _read(self) -> Diskstats:
        try:
            self._reading = diskstats.parse((self._proc / "diskstats").read_bytes(), self._reading)
        except OSError as error:
            raise UnavailableError(f"The kernel's I/O counters can't be read: {error}.") from error
        return self._reading

    def _skipped(self, before: Mapping[str, Counters], reading: Diskstats) -> dict[str, Counters]:
        """Return the earlier lines of devices that are still there, but have none in this reading.

        The kernel prints the file a page at a time and goes on at the number of the next line, so it leaves out a line
        when a device before it is removed in between. With the next reading it would look like a new device. A line
        that is not understood is missing, too.
        """
        missing = before.keys() - reading.counters.keys()
        generations = self.block.generations
        return {
            name: before[name]
            for name in missing
            if generations.get(name) and generations[name] == self.block.generation(name)
        }

    def _lines_of_new(self, before: Mapping[str, int]) -> dict[str, Counters]:
        """Return the lines of devices that took the name of another one, by its generation `before`; read again.

        The reading may have been of the other one, whose counters would be counted as those of the new device.
        """
        now = self.block.generations
        new = [name for name, number in now.items() if before.get(name, number) != number]
        lines = self._read().counters if new else {}
        return {name: lines[name] for name in new if name in lines}

    def _in_driver(self, name: str) -> int | None:
        return diskstats.in_driver(block_devices.below(self._block, name, "inflight"))

    def _outstanding(
        self, device: Device, line: Counters, gauges: Mapping[str, int | None], *, counted: bool
    ) -> Outstanding:
        if not counted:
            return Outstanding(None, None)  # without iostats the kernel doesn't count I/Os in flight either
        now = gauges[device.name] if device.name in gauges else self._in_driver(device.name)
        return diskstats.outstanding(now, line.in_flight, has_queued=self._has_queued and device.timed)

    def _spent(self, mono_us: int, outstanding: WithIdle[str, Outstanding]) -> dict[str, Spent]:
        generations, idle, busy = self.block.generations, outstanding.idle, outstanding.busy
        unreadable = frozenset(name for name, counters in busy.items() if counters.in_driver is None)
        without_idle_row = frozenset(name for name in busy if name not in idle)
        made_of = (generations, idle, unreadable, without_idle_row)
        before_us, watched, busy_before = self._gauges
        if made_of[2:] != self._watched_of[2:] or not all(map(is_, made_of[:2], self._watched_of)):
            self._watched_of = made_of
            rows = {**idle, **busy}.items()
            watched = {
                name: Watched(generations.get(name, 0), gauge.queued is not None)
                for name, gauge in rows
                if name not in unreadable
            }
        self._gauges = mono_us, watched, busy
        if self._depths is None:
            return {}
        # The thread may have seen them seconds ago, and had no reason to look again.
        woken = {name: idle[name] for name in busy.keys() - busy_before.keys() if name in idle}
        self._depths.watch(before_us, watched, woken)
        self._depths.watch(*self._gauges)
        return self._depths.spent()


def difference(before: Sample, after: Sample) -> CounterInterval:
    """Return the changes from `before` to `after`; devices and removed are those since the sample before `after`."""
    busy: dict[Flow, Completed] = {}
    idle = after.idle
    half_counted = before.generations.keys() - before.shown  # iostats was off: the counters miss I/Os
    lost = after.shown & half_counted
    gauges = busy_rows(after.outstanding)
    moved = [name for name, now in after.counters.items() if before.counters.get(name) is not now or name in gauges]
    moved += before.skipped | after.skipped
    named = after.shown.union(after.maybe).difference(lost)
    unknown: set[str] = set()
    of_devices: dict[str, DeviceCounters] = {}
    names = sorted(named.intersection(moved).union(_replaced(before, after) & named)) if idle.queued else sorted(named)
    for name in names:
        spans = _completed(name, before, after)
        if spans is None:
            unknown.add(name)
        elif name in after.shown or any(span.count for span in spans.values()):
            busy |= {Flow(name, op): span for op, span in spans.items()}
            earlier = None if _replugged(name, before, after) else before.counters.get(name)
            of_devices[name] = diskstats.device_difference(earlier, after.counters[name])
    dt_us = after.mono_us - before.mono_us
    depths = _depths(before.spent, after.spent, {*names, *gauges} if idle.queued else after.spent.keys(), dt_us)
    issuers = {
        **cgroups.ios_between(before.cgroup_ios, after.cgroup_ios),
        **cgroups.bytes_between(before.process_ios, after.process_ios),
    }
    return CounterInterval(
        dt_us=dt_us,
        kernel=WithIdle(busy, idle.without(frozenset(lost | unknown)).kernel) if idle.queued else busy,
        outstanding=after.outstanding,
        devices=after.devices,
        removed=after.removed,
        undecoded=after.undecoded + len(unknown) + after.failed_looks - before.failed_looks,
        depths=WithIdle(depths, idle.depths(dt_us)) if idle.queued and after.spent else depths,
        cgroup_limits=cgroups.difference(before.cgroup_limits, after.cgroup_limits),
        host_context=context_difference(before.host_context, after.host_context),
        tables={
            ISSUERS: issuers,
            DEVICE_COUNTERS: of_devices,
            MAINTENANCE: dict.fromkeys(after.maintenance, dt_us),
            **tables_between(before.host_sums, after.host_sums),
        },
        notices=tuple(text for text in after.left_out if text not in before.left_out),
    )


def _completed(name: str, before: Sample, after: Sample) -> dict[str, Completed] | None:
    """Return the I/Os of one device in an interval, by op; None where its counters don't give them."""
    earlier, now = before.counters.get(name), after.counters[name]
    if name in before.skipped or name in after.skipped:
        return None
    if _replugged(name, before, after):
        earlier = None
    elif earlier is None and not after.generations.get(name) and not diskstats.is_near_0(now):
        return None  # without an identity it may be a device whose line was missing before
    return diskstats.difference(earlier, now)


def _depths(
    before: Mapping[str, Spent], after: Mapping[str, Spent], names: Iterable[str], dt_us: int
) -> dict[str, Depths]:
    pairs = ((name, before.get(name, Spent()), after[name]) for name in names if name in after)
    depths_by_device = {name: depth_sampler.between(was, now, dt_us) for name, was, now in pairs}
    return {name: depths for name, depths in depths_by_device.items() if depths is not None}


def _replaced(before: Sample, after: Sample) -> frozenset[str]:
    """Return the names whose device is another one now."""
    if before.generations is after.generations:
        return frozenset()
    return frozenset(name for name in after.generations if _replugged(name, before, after))


def _replugged(name: str, before: Sample, after: Sample) -> bool:
    was, now = before.generations.get(name, 0), after.generations.get(name, 0)
    return 0 not in (was, now) and was != now


@dataclass(slots=True)
class _File:
    """A file of /proc with the sums of its last reading."""

    path: Path
    parse: Callable[[bytes], _Parsed]
    due_ns: int = 0
    sums: dict[str, Cumulative] = field(default_factory=dict)

    def read(self, now_ns: Callable[[], int], cpu_ns: Callable[[], int]) -> None:
        """Read the file if it is due."""
        began_ns, spent_ns = now_ns(), cpu_ns()
        if began_ns < self.due_ns:
            return
        data = content(self.path)
        self.due_ns = began_ns + min(
            _CONTEXT_PACE * (cpu_ns() - spent_ns) if data else _CONTEXT_LATER_NS, _CONTEXT_LATER_NS
        )
        before, self.sums = self.sums, {}
        for name, total, weight in self.parse(data):
            before_values = before.get(name, (0, 0)) if name in _SIZES else (0, 0)
            self.sums[name] = before_values[0] + total, before_values[1] + (weight or began_ns // 1000)


def _psi(resource: str, *kinds: str) -> Callable[[bytes], _Parsed]:
    def parse(data: bytes) -> _Parsed:
        for kind, total in _PSI_TOTAL.findall(data):
            if (name := kind.decode()) in kinds:
                yield f"psi_{resource}_{name}", int(total), 0

    return parse


def _is_number(word: bytes) -> bool:
    """Return whether a word is a number of at most 64 bits, roughly."""
    return word.isdigit() and len(word) <= _DIGITS


def _stat(data: bytes) -> _Parsed:
    """Yield the shares of steal and of busy time in all CPU time, in ticks; a CPU that waits for I/O is idle."""
    fields = data.partition(b"\n")[0].split()
    times = [int(number) for number in fields[1 : 1 + _CPU_TIMES] if _is_number(number)]
    if fields[:1] == [b"cpu"] and len(times) == _CPU_TIMES:
        total = sum(times)
        yield "steal", times[_STEAL], total
        yield "cpu_busy", total - times[_IDLE] - times[_IOWAIT], total


def _vmstat(data: bytes) -> _Parsed:
    page = os.sysconf("SC_PAGE_SIZE")
    for name, pages in _PAGES.findall(data):
        yield _NAMES_OF_PAGES[name], int(pages) * page, 1
    for name, pages in _EVENTS_OF_PAGES.findall(data):
        yield _NAMES_OF_EVENTS[name], int(pages), 0
    if stalls := _ALLOCSTALL.findall(data):  # one per zone since 4.10
        yield "direct_reclaims", sum(map(int, stalls)), 0


def _arcstats(data: bytes) -> _Parsed:
    if match := _ARC_SIZE.search(data):
        yield "arc", int(match[1]), 1


def _snmp(data: bytes) -> _Parsed:
    rows = [line.split() for line in data.splitlines() if line.startswith(b"Tcp:")]
    values = dict(zip(*rows, strict=False)) if len(rows) == 2 else {}  # noqa: PLR2004 - names and numbers
    if _is_number(retransmissions := values.get(b"RetransSegs", b"")):
        yield "tcp_retransmits", int(retransmissions), 0


def _nfs(data: bytes) -> _Parsed:
    if match := _NFS_RPC.search(data):
        yield "nfs_retransmits", int(match[1]), 0


_FILES: Mapping[str, Callable[[bytes], _Parsed]] = {
    # "full" of cpu is always 0 for a whole host
    "pressure/cpu": _psi("cpu", "some"),
    "pressure/io": _psi("io", "some", "full"),
    "pressure/memory": _psi("memory", "some", "full"),
    "pressure/irq": _psi("irq", "full"),
    "stat": _stat,
    "vmstat": _vmstat,
    "spl/kstat/zfs/arcstats": _arcstats,
    "net/snmp": _snmp,
    "net/rpc/nfs": _nfs,
}


class HostContextReader:
    """Reader of all files; those that don't exist have no values."""

    def __init__(
        self,
        proc: Path,
        now_ns: Callable[[], int] = time.monotonic_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._files = [_File(proc / name, parse) for name, parse in _FILES.items()]
        self._now_ns, self._cpu_ns = now_ns, cpu_ns

    def sample(self) -> dict[str, Cumulative]:
        """Return the cumulative sums as of the last reading of each file."""
        cumulative_by_device: dict[str, Cumulative] = {}
        for file in self._files:
            file.read(self._now_ns, self._cpu_ns)
            cumulative_by_device |= file.sums
        return cumulative_by_device


def context_difference(before: Mapping[str, Cumulative], after: Mapping[str, Cumulative]) -> dict[str, ContextValue]:
    """Return the values of the time between two samples; none of a file without a new reading, or that restarted."""
    context_differences: dict[str, ContextValue] = {}
    for name, (total, weight) in after.items():
        if name in before:
            grown, span = total - before[name][0], weight - before[name][1]
            if 0 <= grown <= MOST_GAINED and 0 < span <= MOST_GAINED:
                context_differences[name] = interval_value(grown, span)
    return context_differences
