"""The bpftrace backend: the always-on probe's variants, the switch to pointers, and what the tracer needs on Linux.

`explain` is the doctor's view: the tier that attaches here, and what measures each stage. The tracer's scripts are
looked up, not tried: by their manifests and the hooks that the kernel has.

A cache has the variant that an earlier start chose, so that a start tries one script and not all of them. It is a small
file of names and sentences; nothing in it is run. As root it is below /var/cache, where only root can write, and it is
ignored where another user can change it. Its key depends on the tool's file, the kernel with its types, its lockdown
and kprobes, the capabilities of this process, and the scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from latmon import __version__
from latmon.capture.backend import NO, Options, ProbeReport, StageCoverage
from latmon.decode.framer import Framer
from latmon.manifest import TABLE_ROLES, Manifest
from latmon.model.frame import KERNEL_LOG, STAGES, Missing, Origin, Settings, capped
from latmon.model.stages import ADMISSION
from latmon.support import host, output_files, paths, privileges, trust
from latmon.support.errors import UnavailableError
from latmon.support.text import clean, listed
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace import tracer
from latmon_backends.bpftrace.probe import BpftraceProbe
from latmon_backends.bpftrace.program import BpftraceProgram, BpftraceTool, Variant, has_kprobes
from latmon_backends.bpftrace.tracer import BpftracePrograms, ScriptInventory, TracerHost
from latmon_backends.kernel.counters import KernelSampler
from latmon_backends.kernel.settings import Sections
from latmon_backends.probe.always_on import HERE, AlwaysOn, FrameBuilder, MeasuredHost
from latmon_backends.probe.launcher import Direct, Script, Skipped
from latmon_backends.probe.outliers import Outliers, Threads
from latmon_backends.probe.process import RefusedError
from latmon_backends.probe.tick_protocol import ProbeWindow, Surroundings, Ticks
from latmon_backends.probe_backend import ProbeBackend, always, following, traced
from latmon_backends.tracer.programs import ChosenScripts

ROOT_CACHE = Path("/var/cache/latmon")
"""The directory of root. No variable changes it: under `sudo -E` root would write where a user wants."""
_CACHE_FILE = "bpftrace-probes.json"
_SCHEMA = "latmon.probes/1"
_MOST_CACHE_BYTES = 64 * 1024
_MOST_CHOICES = 8
"""Entries: tools and kernels that take turns."""
_CHOICE_AGE_S = 30 * 86_400
_MOST_REFUSALS, _SENTENCE = 16, 300
_PASSING = re.compile(r"memory|temporarily|[Tt]oo many|busy|[Tt]imed out|Interrupted|ended with status", re.IGNORECASE)
"""Refusals that another start may not meet: what was chosen after one is not kept."""
_TOO_OLD = ("Unknown function: nsecs", "Invalid probe type")
"""Beginnings of the errors that 0.17 and 0.18 print for nsecs(monotonic) and rawtracepoint."""
_SILENT_S = 6.0
"""Each tick prints at least its number."""
_ENOUGH = 100
"""Completions in an interval from which it is judged whether requests carry stamps."""
_FINISHING_S = 1.1
"""A capture waits 1.4 s for its last frame."""
_NO_POINTERS = "only latmon on the host finds them by its kernel's types"
_NO_TRACER = "this needs latmon on the host, which measures and limits the cost of tracing"
DRIVERS: Mapping[str, str] = MappingProxyType(
    {
        "nvme": "hard interrupt: hba, irq",
        "ahci": "BLOCK softirq: hba, irq, softirq",
        "virtio-blk, one queue": "BLOCK softirq (6.18: every request)",
        "megaraid_sas (MFI), scsi_debug": "tasklet or timer, then BLOCK softirq: no irq stage from a timer",
        "nvme-rdma, iSER, mpt3sas, megaraid_sas (fusion)": "IRQ_POLL softirq",
        "loop": "BLOCK softirq, which its worker raises outside of a handler: hba, softirq, no irq",
        "nvme-tcp, dm-crypt": "a worker: followed when an interrupt or a softirq woke it (tier A), "
        "else named as not followed",
        "null_blk (timer)": "in the timer's interrupt, which has no handler: not followed",
        "dm, md, zram": "no requests: their bios, queued to complete, are Q2C (queue to completion) of the volume; "
        "stages are at the disks below",
    }
)
"""How a driver's requests complete where each queue has its own vector: docs/STAGES.md has the other kernels."""
_NO_PROBE = "no probe measures it"
_TIERS = ("A", "C")
"""Tiers of the tracer's scripts: A' traces as A does, B as C."""


@dataclass(frozen=True, slots=True)
class ProbeChoice:
    """The script that ran, by its name, and the refusals of those before it."""

    key: str
    probe: str
    tool: str
    wall: float
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeCache:
    """The cache of the choices of one user."""

    directory: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> ProbeCache:
        """Return root's cache, or that of the user."""
        return cls(ROOT_CACHE if os.geteuid() == 0 else paths.cache(environ))

    @property
    def path(self) -> Path:
        return self.directory / _CACHE_FILE

    def read(self, key: str) -> ProbeChoice | None:
        """Return the choice with this key; None without one, for an old one, and where the file can't be trusted."""
        now = time.time()
        probe_choice = next((entry for entry in self._entries() if entry.key == key), None) if key else None
        return probe_choice if probe_choice is not None and 0 <= now - probe_choice.wall < _CHOICE_AGE_S else None

    def shown(self, key: str) -> str:
        """Return a sentence about the choice with this key; empty without one."""
        probe_choice = self.read(key)
        remedy = "the doctor tries all again; to forget it remove the file"
        return "" if probe_choice is None else f"a start tries {probe_choice.probe} first, by {self.path}: {remedy}"

    def write(self, key: str, probe: str, tool: str, refused: Mapping[str, str]) -> None:
        """Keep a choice, unless a refusal before it may be a passing one. A file that can't be written is no error."""
        if not key or any(_PASSING.search(sentence) for sentence in refused.values()):
            return
        kept = [probe_choice for probe_choice in self._entries() if probe_choice.key != key][: _MOST_CHOICES - 1]
        entries = [
            asdict(probe_choice) for probe_choice in (ProbeChoice(key, probe, tool, time.time(), dict(refused)), *kept)
        ]
        with contextlib.suppress(OSError, UnavailableError):
            output_files.make_directories(self.directory)
            if self._is_ours():
                data = json.dumps({"schema": _SCHEMA, "entries": entries}, indent=1)
                output_files.replace(self.path, data.encode())

    def _is_ours(self) -> bool:
        """Return whether only this user and root can change the file or a directory above it."""
        try:
            return trust.flaw(self.path, frozenset({0, os.geteuid()})) is None
        except OSError:
            return False

    def _entries(self) -> list[ProbeChoice]:
        if not self._is_ours():
            return []
        try:
            tree = json.loads(paths.regular(self.path, _MOST_CACHE_BYTES))
            return (
                [_choice_of(choice) for choice in tree["entries"][:_MOST_CHOICES]] if tree["schema"] == _SCHEMA else []
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []


def _choice_of(value: Mapping[str, Any]) -> ProbeChoice:
    """Return an entry; raises KeyError, TypeError, ValueError or AttributeError for anything else."""
    refused = [(clean(str(name), _SENTENCE), clean(str(why), _SENTENCE)) for name, why in value["refused"].items()]
    key, probe, tool = (clean(str(value[name]), _SENTENCE) for name in ("key", "probe", "tool"))
    return ProbeChoice(key, probe, tool, float(value["wall"]), dict(refused[:_MOST_REFUSALS]))


def cache_key(tool: str, sys: Path = Path("/sys"), probes: Path | None = None, proc: Path = Path("/proc")) -> str:
    """Return a hash of all that decides which script runs; empty where the tool's file can't be examined.

    A start inside of a service with few capabilities must not decide for those that have all.
    """
    try:
        program = Path(tool).stat()
        scripts = [(path.name, path.read_bytes()) for path in sorted(_files_of_key(probes))]
    except OSError:
        return ""
    kernel = platform.uname()
    types = sys / "kernel/btf/vmlinux"
    facts = (
        *(str(Path(tool).resolve()), program.st_mtime_ns, program.st_size, program.st_ino),
        *(kernel.release, kernel.version, kernel.machine, types.stat().st_size if types.exists() else 0),
        *(paths.content(sys / "kernel/security/lockdown"), has_kprobes(sys), privileges.capability_bits(proc)),
        *(__version__, *scripts),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _files_of_key(probes: Path | None) -> list[Path]:
    return paths.matching((paths.data_dir("probes") if probes is None else probes) / "linux", "block_*")


class BpftraceAlwaysOn(AlwaysOn):
    """The always-on bpftrace process: one of the variants of tiers A to C."""

    script: Variant

    def __init__(
        self,
        options: Options,
        tool: BpftraceTool,
        sampler: KernelSampler,
        frames: FrameBuilder,
        *,
        only: tuple[str, ...] = (),
        choices: ProbeCache | None = None,
        tries_all: bool = False,
        at: MeasuredHost = HERE,
    ) -> None:
        """`only` names the manifests that may be tried; empty means all.

        `choices`: those of earlier starts; `tries_all`: they are replaced and not used.
        """
        super().__init__("bpftrace", _SILENT_S, options, Direct(tool, options.proc, at.start), frames, at=at)
        self._tool, self._sampler, self._only = tool, sampler, only
        self._choices, self._tries_all = choices, tries_all
        self._stamps_given_up = False
        self._skipped = Skipped()
        self._online: frozenset[int] = frozenset()
        """CPUs that were online at the last window."""
        self._printing: frozenset[int] = frozenset()
        """CPUs whose lines the tool prints, where each CPU has a buffer: online from the probe's start on."""

    async def choose(self) -> dict[str, str]:
        """Start the script of an earlier start, else the first one that runs, which later starts begin with."""
        if self._choices is None or self._only:
            return await super().choose()
        key = self._key()
        known = None if self._tries_all else self._choices.read(key)
        if known is not None:
            for variant in self._variants(known.probe.partition(" ")[0]):
                if variant.name == known.probe:
                    with contextlib.suppress(RefusedError):  # all are tried again
                        await self._start(variant)
                        return dict(known.refused)
        refusals = await super().choose()
        self._choices.write(key, self.script.name, self._tool.path, refusals)
        return refusals

    def kept(self) -> str:
        """Return a sentence about what later starts try first; empty where nothing is kept."""
        return "" if self._choices is None else self._choices.shown(self._key())

    def _key(self) -> str:
        return cache_key(self._tool.path, self._options.sys, proc=self._options.proc)

    def _variants(self, manifest: str = "") -> Iterator[Variant]:
        options = self._options
        return bpftrace_program.variants(
            options.interval_us // 1000,
            self._at.suspended_us() * 1000,
            options.sys,
            threshold_us=options.threshold_us,
            manifest=manifest,
            map_keys=self._tool.map_keys,
        )

    def _candidates(self, refusals: Mapping[str, str]) -> Iterator[Variant]:
        for variant in self._variants():
            if self._only:
                if variant.manifest.name in self._only:
                    yield variant
            elif variant.only_after is None or variant.only_after.search(next(reversed([*refusals.values()]), "")):
                yield variant

    def _why_none_would(self, refusal: str) -> str:
        if not bpftrace_program.is_privilege(refusal):
            return ""
        if os.geteuid() == 0:
            return f"the kernel refuses bpftrace though it is root ({refusal}), as in a container: see `latmon doctor`."
        how = "run `sudo latmon`" if shutil.which("sudo") else "run latmon as root"
        if self._options.by_ssh:
            how = "connect as root, or let sudo start sh there without a password (NOPASSWD)"
        return f"bpftrace needs root ({refusal}): {how}."

    def _why_none(self, refusals: dict[str, str]) -> str:
        why = "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
        return f"{f'bpftrace {self._tool.version}'.strip()} runs none of the probes here: {why}."

    def why_lesser(self, refusals: Mapping[str, str]) -> str:
        """Return why this tier runs and not A; nothing for A."""
        if not refusals or self.manifest.tier == "A":
            return ""
        refusal = next(iter(refusals.values()))
        if any(sign in refusal for sign in _TOO_OLD):
            why = f"needs bpftrace 0.19 or newer, and this is {self._tool.version}"
        elif refusal.startswith("needs "):
            why = refusal
        else:
            why = f"is refused: {refusal}"
        return f"tier {self.manifest.tier}, because tier A {why}"

    async def finish(self, on_demand: asyncio.Task[None], patience_s: float) -> ProbeWindow | None:
        """End the tracer first, then this probe; return the window of the interval that was begun.

        The tracer has many more probes to detach: with some patience it ends first, so that every traced I/O is
        counted. What it hasn't printed in time is left out.
        """
        await self.read_until_done(on_demand, patience_s)
        begun = time.monotonic()
        window = await self.last()
        await asyncio.wait({on_demand}, timeout=max(0.0, begun + _FINISHING_S - time.monotonic()))
        return window

    async def read_until_done(self, others: asyncio.Task[None], seconds: float) -> None:
        """Read on until `others` is done, at most so long: what is counted meanwhile is part of the last interval."""
        self._ticks.end()
        if not seconds:
            return
        reading = asyncio.create_task(self._read_on())
        try:
            await asyncio.wait({others, reading}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def last(self) -> ProbeWindow | None:
        """End the probe and return the interval that was begun. ProbeGoneError where the probe was gone already."""
        self._kept.check()
        self._ticks.ask()
        self.probe.end()
        await self._read_on()
        return self._ticks.last() if await self.probe.was_killed() else self._last()

    async def _read_on(self) -> None:
        while (event := await self.probe.next()) is not None:
            self._ticks.take(event)

    async def restart_if_needed(self, window: ProbeWindow, gap: str) -> str:
        """Restart the probe with the clocks' new distance, or replace it where requests carry no stamps.

        Restart both after a CPU came online where each CPU has a buffer of its own; a suspend takes all but one CPU
        offline. A CPU that goes and comes back between two windows is not noticed.
        """
        if gap == "suspended" and (self.script.knows_clock or self._has_buffers):
            await super().restart_if_needed(window, gap)
            return "the host was suspended" if self._has_buffers else ""
        if new := self._new_cpus():
            names = f"CPU{'s' * (len(new) > 1)} {listed([str(cpu) for cpu in new])}"
            why = f"{names} came online, whose lines bpftrace doesn't print here"
            await self._restart(why)
            return why
        if self._lacks_stamps(window):
            await self._keep_issues()
        return ""

    @property
    def _has_buffers(self) -> bool:
        """Return whether each CPU has a buffer of its own for printed lines."""
        return not bpftrace_program.has_ring_buffer(self._tool, platform.release())

    def _new_cpus(self) -> list[int]:
        """Return the CPUs whose lines the tool doesn't print, once none has come or gone for a window."""
        now = host.cpus("online", self._options.sys) if self._has_buffers else frozenset()
        if not now:  # not known
            return []
        is_steady, self._online = now == self._online, now
        self._printing = (self._printing or now) & now
        new = now - self._printing if is_steady else frozenset()
        self._printing |= new
        return sorted(new)

    async def skipped(self) -> int | None:
        return self._skipped.since_last((await self.launcher.totals(self.probe.pid)).skipped)

    async def _start(self, script: Script) -> None:
        assert isinstance(script, Variant)  # noqa: S101 - `_candidates` yields no other
        program = BpftraceProgram((script,), self._tool.map_keys)
        self.probe = await BpftraceProbe.start(self.launcher, program, in_a_hurry=True)
        self.script, self.program = script, program
        frames, threads = self._frames, Threads(self._options.proc)
        framer = Framer(
            script.manifest,
            frames.device_name,
            frames.has_several_queues,
            frames.is_selected,
            self._sampler.cgroups.named,
            comm=lambda pid: threads.of(pid).comm,
        )
        around = Surroundings(
            now_us=self._at.now_us,
            ahead_us=self._at.probe_ahead_us,
            sample=self._sampler.sample,
            map_keys=self._tool.map_keys,
            interval_us=self._options.interval_us,
            learn=threads.learn,
        )
        self._ticks = Ticks(script.manifest, framer, around)
        self._skipped = Skipped()

    async def _again(self) -> None:
        await self._start(self.script.with_clock(self._at.suspended_us() * 1000))

    def _lacks_stamps(self, window: ProbeWindow) -> bool:
        """Return whether most requests had no stamp, as tier A needs. Some queues keep none (QUEUE_FLAG_STATS)."""
        if self._stamps_given_up or self.manifest.tier != "A":
            return False
        seen = sum(done.count for done in window.interval.seen.values())
        return window.interval.unmatched * 2 > seen >= _ENOUGH

    async def _keep_issues(self) -> None:
        """Replace stamps by pointers, once, where the kernel's types show how; else the running probe stays."""
        self._stamps_given_up = True
        why = "the kernel's types don't show which argument is the request"
        options = self._options
        for variant in bpftrace_program.pointers(
            options.interval_us // 1000,
            options.sys,
            threshold_us=options.threshold_us,
            map_keys=self._tool.map_keys,
        ):
            running = self.probe
            try:
                await self._start(variant)
            except (RefusedError, UnavailableError) as refusal:
                why = str(refusal)
                continue
            await running.stop()
            self._frames.gap = "probe-restart"
            self._frames.notice = "requests carry no stamp of their issue here: it is kept by request (tier A')"
            return
        self._frames.notice = f"most requests carry no stamp of their issue here and can't be timed: {why}"


class RemoteAlwaysOn(BpftraceAlwaysOn):
    """The always-on bpftrace process of another host, whose facts decide which variants can run there."""

    async def choose(self) -> dict[str, str]:
        lacking = {variant.name: why for variant in self._variants() if (why := self._lacking(variant))}
        return {**lacking, **await super().choose()}

    def _candidates(self, refusals: Mapping[str, str]) -> Iterator[Variant]:  # noqa: ARG002 - facts decide, not trials
        for variant in self._variants():
            if not self._lacking(variant) and bpftrace_program.is_for(variant, self._types):
                yield variant

    @property
    def _has_buffers(self) -> bool:
        return False  # its CPUs are not read

    def _lacking(self, variant: Variant) -> str:
        return bpftrace_program.lacking(variant, self._tool, self._types)

    @property
    def _types(self) -> frozenset[str]:
        return frozenset(self._at.facts.get("types", "").split())

    def _why_none_would(self, refusal: str) -> str:
        if not bpftrace_program.is_privilege(refusal):
            return ""
        return f"its kernel refuses bpftrace though it is root there ({refusal})"

    async def _keep_issues(self) -> None:
        self._stamps_given_up = True
        self._frames.notice = f"most requests carry no stamp of their issue and can't be timed: {_NO_POINTERS}"


class BpftraceBackend(ProbeBackend):
    """Frames from bpftrace. Times come from the kernel's stamps, never from when a line was read."""

    name = "bpftrace"
    _always: BpftraceAlwaysOn

    def __init__(
        self,
        options: Options,
        find_tool: Callable[[], BpftraceTool] | None = None,
        only: tuple[str, ...] = (),
        *,
        tries_all: bool = False,
    ) -> None:
        """`only` names the always-on manifests that may be tried; empty means all. `tries_all`: as at a first start."""
        super().__init__(options)
        self._find_tool = find_tool or partial(bpftrace_program.find, trust.with_tools(options.tools))
        self._only, self._tries_all = only, tries_all
        self._devices: KernelSampler = KernelSampler(options.proc, options.sys, options.devices)

    def _opened(self, refusals: Mapping[str, str], settings: Settings) -> Origin:
        origin, why = super()._opened(refusals, settings), self._devices.why_no_log
        origin = replace(origin, counted=(*origin.counted, *self._devices.counted))
        return replace(origin, untraced=(*origin.untraced, Missing(KERNEL_LOG, why))) if why else origin

    def kept(self) -> str:
        """Return a sentence about what later starts try first; empty where nothing is kept."""
        return self._always.kept()

    async def _prepare(self) -> None:
        tool = self._tool = self._find_tool()
        self._frames = FrameBuilder(self._devices, self._options.sys, device_events=self._devices.device_events)
        self._devices.require_selected()
        self._always = BpftraceAlwaysOn(
            self._options,
            tool,
            self._devices,
            self._frames,
            only=self._only,
            choices=ProbeCache.of(),
            tries_all=self._tries_all,
        )

    async def _look(self) -> None:
        self._inventory, _ = await asyncio.gather(
            asyncio.to_thread(ScriptInventory, self._options), asyncio.to_thread(lambda: self._tool.version)
        )

    async def _prepare_tracer(self, looking: asyncio.Task[None]) -> None:
        if not self._always.script.counts_cgroups:
            self._devices.read_cgroups()
        await looking
        variant, name = self._always.script, self._frames.selected_name
        threads = Threads(self._options.proc)
        tracer_host = TracerHost(
            tier=variant.manifest.tier,
            always_on=variant.values,
            devices=lambda: self._devices.block.devices,
            selects=self._devices.selects,
            device_name=name,
            threads=threads,
            cgroup=self._devices.cgroups.named,
            mounts=self._devices.mounts,
        )
        self._programs = BpftracePrograms(self._options, tracer_host, self._inventory)
        manifests = (variant.manifest, *self._programs.manifests)
        self._join(Outliers(manifests, name, threads, self._inventory.flag_bits, self._times))

    def _why(self, refusals: Mapping[str, str]) -> str:
        return self._always.why_lesser(refusals)

    def _times(self, device: str, op: str) -> bool:
        """Return False where the always-on probe's own times of these I/Os are left out of its histograms."""
        guesses = self._always.manifest.latency_from == "issue" and op == "flush"
        return not (guesses and self._frames.has_several_queues(device))


class RemoteBpftrace(BpftraceBackend):
    """Frames from bpftrace of another host, by its always-on probe alone. Times are that host's."""

    def __init__(self, options: Options, at: MeasuredHost) -> None:
        """`options`: its roots have the files that `at.refresh` writes, which must be there."""
        super().__init__(replace(options, stages="basic"), self._found)
        self._at = at
        self._devices = _RemoteSampler(options.proc, options.sys, options.devices, at.clock)
        facts = {name: clean(at.facts.get(name, "")) for name in ("host", "kernel", "boot")}
        self._origin = replace(self._origin, host=facts["host"] or "unknown", kernel=facts["kernel"])
        self._boot_id = facts["boot"]

    def _found(self) -> BpftraceTool:
        return bpftrace_program.of_remote(self._at.facts, len(self._devices.sample().counters))

    async def _prepare(self) -> None:
        tool = self._tool = self._find_tool()
        self._frames = FrameBuilder(self._devices, self._options.sys, self._at.suspended_us)
        self._devices.require_selected()
        self._always = RemoteAlwaysOn(self._options, tool, self._devices, self._frames, at=self._at)

    async def _look(self) -> None:
        self._inventory = ScriptInventory(self._options, manifests=())

    def _needs_root_helper(self) -> bool:
        return False

    async def _settings(self, reported: Sections) -> Settings:
        return capped(reported)

    def _opened(self, refusals: Mapping[str, str], settings: Settings) -> Origin:
        return replace(
            super()._opened(refusals, settings),
            start_mono_us=self._at.now_us(),
            boot_id=self._boot_id,
            untraced=tuple(Missing(name, _NO_TRACER) for name in (*STAGES, *TABLE_ROLES) if name != "total"),
        )


class _RemoteSampler(KernelSampler):
    """Sampler of files that another host's shell reports once in an interval: nothing changes in between."""

    def start(self) -> None:
        pass


def explain(environ: Mapping[str, str]) -> ProbeReport:
    """Open the backend, which takes as long as a first start, and report what runs. `environ` may name the tool."""
    return asyncio.run(_explain(environ))


async def _explain(environ: Mapping[str, str]) -> ProbeReport:
    options = Options(stages="basic")
    inventory = ScriptInventory(options)
    has, words = inventory.tracepoints.has, inventory.words
    choices = {tier: tracer.choose(inventory.manifests, tier, has, words, cpus=inventory.cpus) for tier in _TIERS}
    hooks = {
        manifest.name: tracer.hooks(manifest, has, words)
        for choice in choices.values()
        for manifest in choice.manifests
        if manifest.group != "bios"
    }
    try:
        async with BpftraceBackend(options, partial(bpftrace_program.find, environ), tries_all=True) as backend:
            origin, kept = backend.origin, backend.kept()
    except UnavailableError as refusal:
        return ProbeReport("", str(refusal), stages(None, choices), hooks, DRIVERS, ages(choices))
    return ProbeReport(origin.tier, origin.reason, stages(origin, choices), hooks, DRIVERS, ages(choices), kept)


def stages(origin: Origin | None, choices: Mapping[str, ChosenScripts]) -> tuple[StageCoverage, ...]:
    """Return the coverage of every stage; `origin` None where no always-on probe runs."""
    return tuple(
        StageCoverage(
            stage, always(stage, origin), {tier: _traced(stage, scripts) for tier, scripts in choices.items()}
        )
        for stage in (ADMISSION, *STAGES)
    )


def ages(choices: Mapping[str, ChosenScripts]) -> dict[str, str]:
    """Return, by tier, the scripts that follow each I/O in flight."""
    return {tier: _following(scripts) for tier, scripts in choices.items()}


def _following(choice: ChosenScripts) -> str:
    why = next((missing.reason for missing in choice.missing if missing.name == "inflight"), _NO_PROBE)
    return following(choice.manifests, why)


def _traced(stage: str, choice: ChosenScripts) -> str:
    """Return the scripts that measure a stage, else why none does."""
    why = _why_not(stage, choice.manifests) or "; ".join(_refusals(choice)) or _NO_PROBE
    return traced(stage, choice.manifests) or f"{NO}{why}"


def _why_not(stage: str, manifests: tuple[Manifest, ...]) -> str:
    return next(
        (manifest.absent[stage] for manifest in manifests if manifest.group == "stages" and stage in manifest.absent),
        "",
    )


def _refusals(choice: ChosenScripts) -> list[str]:
    return [
        f"{missing.name}: {missing.reason}"
        for missing in choice.missing
        if missing.name in (ADMISSION, "stages", "wakeups")
    ]
