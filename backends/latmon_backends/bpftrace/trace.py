"""`latmon trace` with bpftrace: each I/O of a device with its stages, for a while.

While it runs nothing is decoded: the tool's output is kept in a file, and the frames are made of it afterwards. The
program is stages_a with the scripts that add to it (or stages_c), which then print each I/O; the limit of I/Os a second
is in the program, and its maps count those that it leaves out, too.

The target is a disk, and which of its I/Os, by LBA, by a file's blocks, by process or cgroup. Sectors have 512 bytes
and are those of the whole disk, as in its requests; those of a partition begin with it. The blocks of a file are from
FIEMAP (Documentation/filesystems/fiemap.rst), as of the start of the trace.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from latmon import __version__
from latmon.capture.backend import Options, TraceCost, TraceCounts, TraceRequest
from latmon.decode.tables import folded, folded_with_user, record, shifted
from latmon.manifest import Manifest, load
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Origin, Outlier, missing_stages
from latmon.model.measurements import ABOVE, ERRORS
from latmon.model.measurements.errors import FAILED, FailedIO
from latmon.support import host, privileges, trust
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.paths import data_dir
from latmon.support.process import cpu_ns
from latmon.support.text import clean
from latmon.support.units import UNKNOWN
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.program import CGROUPS, BpftraceTool
from latmon_backends.bpftrace.tracer import BpftracePrograms, ScriptInventory, TracerHost, stem
from latmon_backends.kernel import block_devices, cgroups
from latmon_backends.kernel.counters import KernelSampler, monotonic_us
from latmon_backends.probe.events import MapPrinted, Printed
from latmon_backends.probe.launcher import Direct, Launcher, ProgramTotals, RootLauncher, needed
from latmon_backends.probe.outliers import ClockPair, RecordContext, RequestRecords, Threads, outlier
from latmon_backends.probe.process import RefusedError, RunningProbe
from latmon_backends.probe.tick_protocol import OnDemandTicks, TracerWindow, stamped
from latmon_backends.tracer.programs import Target, TracerSample, pace

INTERVAL_MS = 250
"""Length of a frame: with 20,000 I/Os a second its line in a recording is a few MB, and 8 MB are the most."""
_STEP_MS = 50
_SCRIPTS = frozenset(("trace", "stages", "who", "csd", "workers", "scsi", "nvme"))
"""Stems of the scripts: those of requests, without those that count the I/Os in flight, and admission's, which trace_a
measures for each I/O."""
_STACKS, _USER_STACKS = "stacks_a", "user_stacks_a"
"""The script that counts stacks, by whether the user's are wanted; its map is the same with `_slow`."""
_TRACED = {"steps": "@trace_a_steps[(uint64)arg0]", "issued": "@trace_a_issued[(uint64)arg0]"}
_ENDING_S = 30.0
"""Output is still read after the end: the tool detaches, and prints what waits in its buffers."""
_TICKS = 2
_PIECE = 1 << 20
_PAGES, _ALL_PAGES = (64, 512), 1 << 15
"""Pages of a CPU's buffer, which are locked in memory: 2 MB are 0.4 s of 20,000 lines a second; of all CPUs 128 MB."""
MAX_RANGES = 64
"""Ranges that a probe compares; the parameter `wanted` of stages_a.yaml has the same bound."""
BY_LBA, BY_PID, BY_CGROUP = 1, 2, 3
"""Values of the parameter `by` of stages_a.yaml."""
_SECTOR = 512
_MAX_EXTENTS = 65_536
_FIEMAP = 0xC020660B
_SYNC = 1
_HEAD, _EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
_AT_ONCE = 256
_LAST, _NOWHERE = 1, 0x2 | 0x4 | 0x200
"""FIEMAP_EXTENT_LAST; UNKNOWN, DELALLOC and DATA_INLINE: no place on the device."""
_LISTED = 20


class TracePrograms(BpftracePrograms):
    """The scripts of a trace of one target."""

    def __init__(
        self,
        options: Options,
        tracer_host: TracerHost,
        inventory: ScriptInventory,
        *,
        target: TraceTarget,
        request: TraceRequest,
    ) -> None:
        self._target, self._request = target, request
        super().__init__(options, tracer_host, inventory)

    @property
    def stages_script(self) -> Manifest | None:
        """The script that prints the I/Os; None where none runs here."""
        return next((manifest for manifest in self.choice().manifests if stem(manifest.name) == "stages"), None)

    def why_not(self) -> str:
        """Return why this target can't be traced by the scripts that run here; empty where it can."""
        script = self.stages_script
        if script is None:
            return "; ".join(f"{missing.name}: {missing.reason}" for missing in self.choice().missing)
        stacks = _stacks_script(self._request)
        if stacks and not self._has(stacks):
            reasons = {missing.name: missing.reason for missing in self.choice().missing}
            return f"--stacks: {reasons.get(stem(stacks), '')}"
        if self._target.by == BY_CGROUP and "cgroup" not in {parameter.name for parameter in script.parameters}:
            return "--cgroup needs tier A (bpftrace 0.19 or newer, kernel BTF), and this host has tier C"
        if self._target.by == BY_CGROUP and self._words["cgroup"][0] == CGROUPS[-1]:
            return "--cgroup needs a kernel that charges I/O to cgroups (CONFIG_BLK_CGROUP) and has BTF"
        return ""

    def _has(self, name: str) -> bool:
        return any(manifest.name == name for manifest in self.choice().manifests)

    def _values(self, target: Target, one_in: int) -> dict[str, int | str]:
        per_s = self._request.per_s
        return {
            **super()._values(target, one_in),
            **pace(INTERVAL_MS, _STEP_MS),
            "threshold_us": 1,
            "every": 1,
            "burst": max(1, per_s // 2),
            "per_s": per_s,
            "apart_ns": 0,
            "by": self._target.by,
            "wanted": self._target.wanted,
            "slow_us": self._request.stacks_us or 0,
            **(_TRACED if self._has("trace_a") else {}),
        }


class DeviceTrace:
    """One trace: `run` it, then `frames` may be read once; `counts` are complete after that."""

    def __init__(self, request: TraceRequest, find_tool: Callable[[], BpftraceTool] | None = None) -> None:
        """Find the target. UnavailableError or UsageError where that can't be traced."""
        self._request = request
        self._find_tool = find_tool or partial(bpftrace_program.find, trust.with_tools(request.tools))
        self.target = trace_target(request)
        self.counts = TraceCounts()
        self.cost = TraceCost(0.0, None, 0)
        self.ios = 0
        """I/Os in the tool's output."""
        self.ended = ""
        """Why it ended before its time; empty where it didn't."""
        self.stacks: dict[str, int] = {}
        """Folded stack -> slow I/Os that it submitted; known after the frames. A user stack is below its process."""
        self._stack_counts: Mapping[str, object] = {}
        self._comms: dict[int, str] = {}
        """Process -> its name when it issued an I/O."""
        self.completed = (0, 0)
        """I/Os that the disk completed by the kernel's counters: meanwhile, and with those at the begin and the end."""

    async def run(self, progress: Callable[[str], None], stop: asyncio.Event) -> None:
        """Trace for the requested time, until `stop` is set, or until the most I/Os are traced.

        Root is given up once the tool runs through a helper (`sudo latmon`). UnavailableError where nothing runs here.
        """
        options = Options(devices=(self.target.disk,), proc=self._request.proc, sys=self._request.sys)
        pages = max(_PAGES[0], min(_PAGES[1], _ALL_PAGES // (os.cpu_count() or 1)))
        tool = replace(self._find_tool(), buffer_pages=pages)
        self._sampler = KernelSampler(options.proc, options.sys, options.devices)
        self._sampler.sample()
        self._programs = self._chosen(tool, options)
        if why := self._programs.why_not():
            raise UnavailableError(f"nothing can be traced: {why}")
        by_helper = needed()
        launcher: Launcher = RootLauncher(tool, os.getpid()) if by_helper else Direct(tool, options.proc)
        try:
            privileges.drop_root(privileges.invoker(os.environ, os.geteuid()))
            self._spool: BinaryIO = tempfile.TemporaryFile(prefix="latmon-")  # noqa: SIM115 - read after the end
            progress("starting bpftrace, which compiles the probes first")
            self._probe, self._ticks = await self._started(launcher, tool)
            try:
                if why := self._programs.why_not():  # a script that is refused is left out
                    raise UnavailableError(f"nothing can be traced: {why}")
                await self._traced(launcher, progress, stop)
            finally:
                await self._probe.stop()
        finally:
            await launcher.close()
        self._origin = self._made_origin(tool, options)

    @property
    def origin(self) -> Origin:
        return self._origin

    def _chosen(self, tool: BpftraceTool, options: Options) -> TracePrograms:
        found_manifests = [load(path) for path in sorted((data_dir("probes") / "linux").glob("*.yaml"))]
        stems = _SCRIPTS | {stem(_stacks_script(self._request))}
        manifests = tuple(
            manifest
            for manifest in found_manifests
            if manifest.group in ("trace", "stages") and stem(manifest.name) in stems
        )
        inventory = ScriptInventory(options, manifests=manifests)
        has_types = "io_start_time_ns" in inventory.tracepoints
        tier = "A" if bpftrace_program.has_raw_tracepoints(tool) and has_types else "C"
        disk = "rq_disk" if "rq_disk" in inventory.tracepoints else "q->disk"
        self._threads = Threads(options.proc)
        tracer_host = TracerHost(
            tier=tier,
            always_on={"disk": disk},
            devices=lambda: self._sampler.block.devices,
            selects=self._sampler.selects,
            device_name=self._name,
            threads=self._threads,
            cgroup=self._sampler.cgroups.named,
            mounts=self._sampler.mounts,
        )
        self._flag_bits = inventory.flag_bits
        return TracePrograms(options, tracer_host, inventory, target=self.target, request=self._request)

    def _name(self, number: int) -> str | None:
        return self.target.disk if number == self.target.number else None

    async def _started(self, launcher: Launcher, tool: BpftraceTool) -> tuple[RunningProbe, OnDemandTicks]:
        target = Target((self.target.disk,), (self.target.number,), filtered=True)
        try:
            return await self._programs.start(launcher, target, TracerSample())
        except RefusedError as refusal:
            if bpftrace_program.is_privilege(str(refusal)):
                raise UnavailableError(f"bpftrace needs root ({refusal}): run `sudo latmon trace`.") from None
            raise UnavailableError(f"bpftrace {tool.version} can't trace here: {refusal}.") from None

    async def _traced(self, launcher: Launcher, progress: Callable[[str], None], stop: asyncio.Event) -> None:
        probe = self._probe
        await self._attached()
        await launcher.count_time(on=True)
        outside = self._kernel_counts()
        if not await launcher.trace_devices(probe.pid, {self.target.number: True}):
            raise UnavailableError("the program's map of traced devices can't be written: run latmon as root.")
        inside = self._kernel_counts()
        self._wall, self._mono_us = time.time(), monotonic_us()
        begun, cpu, totals = time.monotonic(), self._cpu_ns(), await launcher.totals(probe.pid)
        duration_s = self._request.duration_us / 1e6
        progress(f"tracing {self.target.text} for {duration_s:g} s")
        reading, stopped = asyncio.create_task(self._keep(stop)), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({reading, stopped}, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                raise UnavailableError(f"bpftrace ended while it traced: {await probe.complaint()}.")
            if stop.is_set() and not self.ended:
                self.ended = "it was interrupted"
            least = self._kernel_counts(inside).count
            # Detaching takes a second, on a busy host several.
            await launcher.trace_devices(probe.pid, {self.target.number: False})
            completed = self._kernel_counts(outside)
            self.completed, self._merged = (least, completed.count), completed.merged or 0
            self.cost = TraceCost(
                time.monotonic() - begun,
                _since(totals, await launcher.totals(probe.pid)),
                self._cpu_ns() - cpu,
            )
            probe.end(patient=True)
            await asyncio.wait({reading}, timeout=_ENDING_S)
        finally:
            for task in (reading, stopped):
                task.cancel()
            await asyncio.wait({reading, stopped})

    async def _attached(self) -> None:
        """Wait for the second tick: every probe is attached by then, and the maps count from the first one on."""
        ticks = 0
        while ticks < _TICKS:
            portion = await self._probe.undecoded()
            if not portion:
                raise UnavailableError(f"bpftrace ended before it traced: {await self._probe.complaint()}.")
            self._spool.write(portion)
            ticks += portion.count(b"done stages_")

    async def _keep(self, stop: asyncio.Event) -> None:
        """Write the output to the file, and end the trace after the most I/Os."""
        while portion := await self._probe.undecoded():
            self._spool.write(portion)
            self.ios += portion.count(b'"slow ')
            if self.ios >= self._request.most and not stop.is_set():
                self.ended = f"it reached the limit of {self._request.most:,} I/Os"
                stop.set()

    def _cpu_ns(self) -> int:
        """Return the CPU time of this process and of the tool."""
        return cpu_ns(os.getpid(), self._request.proc)

    def _kernel_counts(self, before: Completed | None = None) -> Completed:
        """Return what the disk has completed by the kernel's counters, or has since `before`."""
        line = self._sampler.sample().counters.get(self.target.disk)
        ops = line.ops.values() if line is not None else ()
        count, merged = sum(completed.count for completed in ops), sum(completed.merged or 0 for completed in ops)
        return Completed(
            count - (before.count if before else 0), 0, merged=merged - ((before.merged or 0) if before else 0)
        )

    def _made_origin(self, tool: BpftraceTool, options: Options) -> Origin:
        script = self._programs.stages_script
        assert script is not None  # noqa: S101 - it ran
        missing = self._programs.choice().missing
        return Origin(
            backend="bpftrace",
            host=host.name(),
            kernel=host.kernel(),
            latmon=__version__,
            tool=f"bpftrace {tool.version}".strip(),
            tier=script.tier,
            interval_us=INTERVAL_MS * 1000,
            start_wall=self._wall,
            start_mono_us=self._mono_us,
            boot_id=host.boot_id(options.proc),
            hz=host.hz(options.proc),
            measured={"total": ()},
            absent=missing_stages(("total",), {}, {}, "traced I/Os have it"),
            probes_missing=missing,
            latency_from="queued",
            extra={"trace": self.target.text, "threshold_us": 0},
        )

    def frames(self) -> Iterator[Frame]:
        """Yield the frames, each with its I/Os as outliers, in the order of their begins."""
        for frame in self._frames():
            self._comms.update((slow_io.pid, slow_io.comm) for slow_io in frame.outliers if slow_io.pid is not None)
            yield frame
        values = self._stack_counts
        self.stacks = self._by_process(values) if self._request.user_stacks else folded(values)

    def _frames(self) -> Iterator[Frame]:
        script = self._programs.stages_script
        assert script is not None  # noqa: S101 - it ran
        context = RecordContext(self._name, self._threads, {script.name: script}, self._flag_bits)
        probes = Health(probes_attached=self._probe.attached, probes_wanted=self._probe.wanted)
        new_frames = _Frames(
            self._ticks, script, context, ClockPair(self._wall, self._mono_us), device=self._device(), probes=probes
        )
        self._spool.seek(0)
        with self._spool:
            while True:
                piece = self._spool.read(_PIECE)
                for event in self._probe.decode_later(piece):
                    if isinstance(event, Printed):
                        yield from new_frames.line(event)
                    elif isinstance(event, MapPrinted) and event.name == f"{_stacks_script(self._request)}_slow":
                        self._stack_counts = event.values
                    else:
                        self._ticks.take(event)
                if not piece:
                    break
        yield from new_frames.last()
        self.counts = replace(new_frames.counts, completed=self.completed, merged=self._merged)

    def _by_process(self, values: Mapping[str, object]) -> dict[str, int]:
        """Return the folded stacks with the name of their process in front; equal ones of several are one."""
        counts: Counter[str] = Counter()
        for (pid, stack), n in folded_with_user(values).items():
            name = self._comms.get(pid) or self._threads.of(pid).comm
            counts[f"{name.replace(';', ':') or UNKNOWN};{stack}"] += n
        return dict(counts)

    def _device(self) -> Device:
        known = self._sampler.block.devices.get(self.target.disk)
        return known or Device(self.target.disk, self.target.number >> 20, self.target.number & 0xFFFFF)


def _stacks_script(request: TraceRequest) -> str:
    """Return the script that counts the stacks; empty where none are requested."""
    if request.stacks_us is None:
        return ""
    return _USER_STACKS if request.user_stacks else _STACKS


class _Frames:
    """Frames of the tool's output, and what it counted so far."""

    def __init__(
        self,
        ticks: OnDemandTicks,
        script: Manifest,
        context: RecordContext,
        begun: ClockPair,
        *,
        device: Device,
        probes: Health,
    ) -> None:
        self._ticks, self._script, self._context, self._begun, self._device = ticks, script, context, begun, device
        self._probes = probes
        self._untimed = _untimed(script)
        self._outliers: list[Outlier] = []
        self._tick_us = self._end_us = 0
        self._seq = self._in_file = 0
        self.counts = TraceCounts()

    def line(self, event: Printed) -> Iterator[Frame]:
        """Take a line; yield a frame that it completes."""
        kind, _, remainder = event.text.partition(" ")
        if kind == "slow":
            self._slow(event.text)
            return
        if kind in ("tick", "last") and remainder.startswith(self._script.name) and (at := stamped(event.text.split())):
            self._tick_us = at[1] // 1000 - self._ahead_us
        self._ticks.take(event)
        if kind == "done" and remainder.startswith(self._script.name):
            yield from self._frame()

    def last(self) -> Iterator[Frame]:
        """Yield the frame of the unfinished interval."""
        self._ticks.end()
        yield from self._frame(is_last=True)

    @property
    def _ahead_us(self) -> int:
        return host.probe_ahead_us(self._script.clock)

    def _slow(self, text: str) -> None:
        found_record = record(text, self._script.records["slow"])
        done = None if found_record is None else shifted(found_record, self._ahead_us * 1000)
        new_outlier = None
        if done is not None and (at := done.get("done_ns")) is not None:
            new_outlier = outlier(RequestRecords(at, on_demand=done), {}, self._context, self._begun)
        if new_outlier is None:
            self.counts = replace(self.counts, undecoded=self.counts.undecoded + 1)
        else:
            self._outliers.append(new_outlier)

    def _frame(self, *, is_last: bool = False) -> Iterator[Frame]:
        window = self._ticks.taken()
        begin_us = max(self._end_us, self._begun.mono_us)
        end_us = max(self._tick_us, *(slow_io.mono_us + slow_io.total_us for slow_io in self._outliers), 0)
        if is_last:
            end_us = max(end_us, begin_us + 1)
        if end_us <= begin_us:  # before the device was traced
            return
        self._end_us = end_us
        self._count(window)
        # Records and maps are printed one after the other: before the last ones either may be a few I/Os ahead.
        dropped = self._drop() if is_last else 0
        outliers, self._outliers = tuple(sorted(self._outliers, key=lambda slow_io: slow_io.mono_us)), []
        sizes: Counter[Flow] = Counter()
        errors: Counter[FailedIO] = Counter()
        for one in outliers:
            sizes[Flow(one.device, one.op)] += one.bytes or 0
            if one.status:
                errors[FailedIO(one.device, one.op, one.status)] += 1
        traced = window.interval.traced
        totals = {series: histogram for series, histogram in traced.histograms.items() if series.stage == "total"}
        done = Counter({Flow(series.device, series.op): histogram.count for series, histogram in totals.items()})
        for row, ios in errors.items():
            done[Flow(row.device, row.op)] += ios
        yield Frame(
            seq=self._seq,
            wall=self._begun.wall + (end_us - self._begun.mono_us) / 1e6,
            mono_us=end_us,
            dt_us=end_us - begin_us,
            histograms=totals,
            seen={flow: Completed(n, sizes[flow]) for flow, n in done.items()},
            tables={ABOVE: dict(done), ERRORS: dict(errors)},
            outliers=outliers,
            thresholds_us={self._device.name: 0},
            traced=replace(traced, one_in=1, devices=(self._device.name,)),
            devices=() if self._seq else (self._device,),
            health=replace(
                self._probes,
                lost_events=window.losses.lost,
                map_full=window.losses.map_full,
                undecoded_lines=window.losses.undecoded,
                suppressed=dropped,
            ),
        )
        self._seq += 1

    def _count(self, window: TracerWindow) -> None:
        """Add the counts of a window."""
        traced, losses, before = window.interval.traced, window.losses, self.counts
        self._in_file += len(self._outliers)
        untimed = Counter(before.untimed)
        failed = sum(reasons.get(FAILED, 0) for reasons in traced.unfollowed.values())
        for reasons in traced.unfollowed.values():
            untimed.update({why: count for why, count in reasons.items() if why in self._untimed})
        self.counts = replace(
            before,
            # A failed I/O is in no histogram, but has its line.
            traced=before.traced
            + failed
            + sum(histogram.count for series, histogram in traced.histograms.items() if series.stage == "total"),
            lost=before.lost + losses.lost,
            untimed=dict(untimed),
            undecoded=before.undecoded + losses.undecoded,
        )

    def _drop(self) -> int:
        """Count the I/Os that the limit left out: the maps have all, the lines those that are in the file or lost."""
        now = self.counts
        self.counts = replace(now, dropped=max(0, now.traced - self._in_file - now.lost - now.undecoded))
        return self.counts.dropped


def _untimed(script: Manifest) -> frozenset[str]:
    """Return the reasons why requests were not followed, of those that a script doesn't time at all."""
    words = ("iostats off", "71 minutes", "start not seen")
    return frozenset(reason for reason in script.unfollowed if any(word in reason for word in words))


def _since(before: ProgramTotals, after: ProgramTotals) -> int | None:
    return None if before.run_ns is None or after.run_ns is None else after.run_ns - before.run_ns


class BlockRange(NamedTuple):
    """The first and the last sector, or number."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """A disk with requests, and its I/Os by a value of the parameter `by`; 0: all."""

    disk: str
    number: int
    """dev_t of the kernel."""
    by: int = 0
    ranges: tuple[BlockRange, ...] = ()
    text: str = ""
    """The target in words."""
    remark: str = ""
    """Sentence on what else is traced; empty where nothing is."""

    @property
    def wanted(self) -> str:
        """The parameter `wanted`."""
        return ",".join(f"{block_range.low}-{block_range.high}" for block_range in self.ranges)


class _Place(NamedTuple):
    """A disk or a partition: its name, its disk's name, its first sector on the disk, its sectors."""

    name: str
    disk: str
    first: int
    sectors: int


def trace_target(request: TraceRequest) -> TraceTarget:
    """Return the target. UnavailableError where it isn't there, UsageError where the options contradict each other."""
    place = _place(request.device, request.sys)
    number = _number(request.sys / "block" / place.disk.replace("/", "!"), place)
    if request.lba is not None:
        return _by_sectors(place, number, [BlockRange(*request.lba)], _lba_text(place, request.lba))
    if request.file is not None:
        return _by_file(place, number, request.file, request.sys)
    if request.pid is not None:
        if not (request.proc / str(request.pid)).exists():
            raise UnavailableError(f"--pid {request.pid}: there is no such process")
        return TraceTarget(
            place.disk, number, BY_PID, (BlockRange(request.pid, request.pid),), f"{place.disk}, process {request.pid}"
        )
    if request.cgroup:
        return _by_cgroup(place, number, request.cgroup, request.proc)
    if place.name != place.disk:
        return _by_sectors(place, number, [BlockRange(0, place.sectors - 1)], place.name)
    return TraceTarget(place.disk, number, text=place.disk)


def _place(name: str, sys: Path) -> _Place:
    """Return a block device by its name, or by its path in /dev."""
    short = Path(name).resolve().name if name.startswith("/") else name
    path = block_devices.directory(sys / "class/block", short)
    sectors = block_devices.number(path / "size")
    if not short or short in (".", "..") or sectors is None:
        names = [name for name in block_devices.names(sys / "class/block") if block_devices.number(_size(sys, name))]
        more = " ..." if len(names) > _LISTED else ""
        raise UnavailableError(
            f"there is no block device {clean(name, 80)!r}; there are: {', '.join(names[:_LISTED]) or 'none'}{more}"
        )
    disk = block_devices.whole_disk(sys, short)
    own = block_devices.directory(sys / "block", disk)
    if not block_devices.has_requests(own):
        below = ", ".join(clean(name) for name in block_devices.names(own / "slaves"))
        instead = f"trace what is below it: {below}" if below else "only devices with requests can be traced"
        raise UnavailableError(f"{disk} has no requests of its own: {instead}")
    if not sectors:
        raise UnavailableError(f"{short} has no sectors: no medium, or no file behind it")
    return _Place(clean(short), disk, block_devices.number(path / "start") or 0, sectors)


def _size(sys: Path, name: str) -> Path:
    return block_devices.directory(sys / "class/block", name) / "size"


def _number(path: Path, place: _Place) -> int:
    major, _, minor = block_devices.attribute(path / "dev").partition(":")
    if not (major.isdecimal() and minor.isdecimal()):
        raise UnavailableError(f"the kernel gives {place.disk} no number: a hidden path can't be traced alone")
    return int(major) << 20 | int(minor)


def _lba_text(place: _Place, lba: tuple[int, int]) -> str:
    if lba[1] >= place.sectors:
        raise UsageError(
            f"--lba {lba[0]}-{lba[1]}: {place.name} has the sectors 0 to {place.sectors - 1} (of {_SECTOR} bytes)"
        )
    return f"{place.name}, sectors {lba[0]:,} to {lba[1]:,}"


def _by_sectors(place: _Place, number: int, ranges: Iterable[BlockRange], text: str, remark: str = "") -> TraceTarget:
    moved = tuple(BlockRange(place.first + low, place.first + high) for low, high in ranges)
    return TraceTarget(place.disk, number, BY_LBA, moved, text, remark)


def _by_file(place: _Place, number: int, file: Path, sys: Path) -> TraceTarget:
    shown = f"--file {clean(str(file), 200)}"
    try:
        with file.open("rb", buffering=0) as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{shown}: it is no regular file")
            lies_on = _lies_on(status.st_dev, shown, sys)
            if place.name not in (lies_on.name, lies_on.disk):
                raise UsageError(f"{shown}: it lies on {lies_on.name}, not on {place.name}")
            extents = list(_extents(opened.fileno()))
    except OSError as error:
        raise UnavailableError(f"{shown}: {error.strerror or error}") from None
    if not extents:
        raise UsageError(f"{shown}: it has no blocks on {lies_on.name}: it is empty, or is kept in its inode")
    ranges, more = covered(extents, MAX_RANGES)
    remark = ""
    if more:
        share = more / sum(high - low + 1 for low, high in ranges)
        remark = (
            f"the file has {len(extents):,} extents: {MAX_RANGES} ranges that cover them are traced, "
            f"{share:.1%} of their sectors are not the file's"
        )
    return _by_sectors(lies_on, number, ranges, f"{place.disk}, file {clean(str(file), 200)}", remark)


def _lies_on(device: int, shown: str, sys: Path) -> _Place:
    """Return the device of a file system by its number."""
    path = sys / f"dev/block/{os.major(device)}:{os.minor(device)}"
    if not os.major(device) or not path.exists():
        raise UsageError(f"{shown}: its file system (btrfs, overlay, nfs, tmpfs, ...) is on no single block device")
    return _place(path.resolve().name.replace("!", "/"), sys)


def _extents(descriptor: int) -> Iterator[BlockRange]:
    """Yield the sectors of an open file on its file system's device, in the order of the file."""
    at = 0
    for _ in range(_MAX_EXTENTS // _AT_ONCE):
        buffer = bytearray(_HEAD.pack(at, 2**64 - 1 - at, _SYNC, 0, _AT_ONCE, 0) + bytes(_EXTENT.size * _AT_ONCE))
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
        count = _HEAD.unpack_from(buffer)[3]
        for number in range(count):
            logical, physical, length, _, _, flags, *_ = _EXTENT.unpack_from(buffer, _HEAD.size + number * _EXTENT.size)
            if not flags & _NOWHERE and length:
                yield BlockRange(physical // _SECTOR, (physical + length - 1) // _SECTOR)
            at = logical + length
            if flags & _LAST:
                return
        if not count:
            return
    raise UsageError(f"the file has more than {_MAX_EXTENTS:,} extents: trace a range of its device, --lba A-B")


def covered(extents: Sequence[BlockRange], most: int) -> tuple[list[BlockRange], int]:
    """Return at most so many ranges that cover the extents, and how many other sectors they have.

    The smallest gaps are covered first.
    """
    joined: list[BlockRange] = []
    for low, high in sorted(extents):
        if joined and low <= joined[-1].high + 1:
            joined[-1] = BlockRange(joined[-1].low, max(joined[-1].high, high))
        else:
            joined.append(BlockRange(low, high))
    gaps = sorted(range(1, len(joined)), key=lambda at: joined[at].low - joined[at - 1].high)
    closed = set(gaps[: max(0, len(joined) - most)])
    block_ranges: list[BlockRange] = []
    more = 0
    for at, block_range in enumerate(joined):
        if at in closed:
            more += block_range.low - block_ranges[-1].high - 1
            block_ranges[-1] = BlockRange(block_ranges[-1].low, block_range.high)
        else:
            block_ranges.append(block_range)
    return block_ranges, more


def _by_cgroup(place: _Place, number: int, wanted: str, proc: Path) -> TraceTarget:
    """Trace a cgroup and those below it, by its path or the end of it."""
    known = cgroups.numbers(proc)
    shown = f"--cgroup {clean(wanted, 200)}"
    if not known:
        raise UnavailableError(f"{shown}: no hierarchy of cgroups with the I/O controller is mounted")
    path = wanted.rstrip("/") if wanted != "/" else "/"
    exact = path if path in known.values() else f"/{path}"
    named = [path for path in known.values() if path == exact] or [
        one for one in known.values() if one.endswith(f"/{path.lstrip('/')}")
    ]
    if not named:
        raise UnavailableError(f"{shown}: there is no such cgroup in the hierarchy of the I/O controller")
    if len(named) > 1:
        raise UsageError(f"{shown}: these are several cgroups, {named[0]} and {named[1]}: name the whole path")
    above = named[0].rstrip("/")
    numbers = sorted(number for number, name in known.items() if name == named[0] or name.startswith(f"{above}/"))
    if len(numbers) > MAX_RANGES:
        raise UsageError(
            f"{shown}: it has {len(numbers) - 1} cgroups below it, and at most {MAX_RANGES - 1} are traced"
        )
    below = len(numbers) - 1
    with_below = f" and {below} below it" if below else ""
    ranges = tuple(BlockRange(number, number) for number in numbers)
    return TraceTarget(place.disk, number, BY_CGROUP, ranges, f"{place.disk}, cgroup {named[0]}{with_below}")
