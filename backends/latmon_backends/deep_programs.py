"""The deep process's program: which scripts, for which devices, with which values; and what to leave out when refused.

Finds out by looking where that can be read, else by trying. Decides neither when it runs nor for whom.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from latmon import host
from latmon.backend import Options
from latmon.errors import ManifestError
from latmon.manifest import Manifest
from latmon.model import Device, Missing
from latmon_backends import bpftrace_tool, btf, deep_scripts, request_flags, script_values
from latmon_backends.bpftrace_probe import Probe
from latmon_backends.bpftrace_program import Program, Script
from latmon_backends.deep_scripts import Choice
from latmon_backends.deep_ticks import DeepSurroundings, DeepTicks
from latmon_backends.demand import AT_MOST
from latmon_backends.launching import Launcher
from latmon_backends.programs import Target
from latmon_backends.running_probe import RefusedError
from latmon_backends.threads import Threads
from latmon_backends.tracepoints import Tracepoints

_MAJOR = 20
_SKIPS = tuple(f"skip{at}" for at in range(8))
"""Parameters of bios_c: majors that it leaves out. What is beyond them is traced, and dropped as it has requests."""
_ENTRIES_PER_MAP = 1 << 17
"""Slots over all CPUs that one map may take: 1 MB, because per-CPU maps are allocated whole and there are some 50."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the deep programs need to know of where they run."""

    tier: str
    always_on: Mapping[str, int | str]
    """Values that the always-on probe runs with."""
    devices: Callable[[], Mapping[str, Device]]
    """All of them, as of now."""
    selects: Callable[[Device], bool]
    """Whether the user wants to see a device."""
    device_name: Callable[[int], str | None]
    threads: Threads


class Inventory:
    """The deep scripts, and what is looked up for them: half a second of work, off the loop, as root if we are."""

    def __init__(self, options: Options, probes: Path | None = None) -> None:
        self.manifests = deep_scripts.deep_manifests(probes)
        self.tracepoints = Tracepoints(options.sys)
        self.words = deep_scripts.words(self.tracepoints, options.sys)
        self.flag_bits = request_flags.positions(btf.enumerators(options.sys / "kernel/btf/vmlinux", "req_flag_bits"))
        self.cpus = deep_scripts.possible_cpus(options.sys)
        self.tracepoints.has("tracepoint:block:block_rq_issue")  # what only root may look at is looked at now


class DeepPrograms:
    """Starts what of the deep scripts runs here, and remembers what was refused."""

    def __init__(self, options: Options, here: Host, inventory: Inventory) -> None:
        self._options, self._here = options, here
        self.manifests = inventory.manifests
        self._tracepoints = inventory.tracepoints
        self._words = deep_scripts.with_found(inventory.words, here.always_on)
        self._cpus = inventory.cpus
        self._looks = deep_scripts.looks(self._cpus or os.cpu_count() or 1)
        self._flags = partial(request_flags.of_bits, at=inventory.flag_bits)
        self._refused: dict[str, str] = {}
        self._choice: Choice | None = None
        self._running: dict[str, Script] = {}
        """By stem, the scripts that were started last."""
        self._told = {one.name for one in self.choice().missing}

    def choice(self) -> Choice:
        """What runs here as far as is known by now."""
        if self._choice is None:
            self._choice = self._choose(self._refused)
        return self._choice

    def _choose(self, refused: Mapping[str, str]) -> Choice:
        tier, has = self._here.tier, self._tracepoints.has
        return deep_scripts.choose(self.manifests, tier, has, self._words, refused, cpus=self._cpus)

    def _affordable(self, one_in: int) -> Choice:
        """What is in flight is counted with every request: not where they are too many to be traced each."""
        if one_in == 1:
            return self.choice()
        dear = {
            one.name: "counts every request, and they are sampled"
            for one in self.manifests
            if one.group == "inflight" or (one.group == "order" and one.needs)
        }
        return self._choose({**dear, **self._refused})

    def refuse(self, name: str, why: str) -> None:
        """Another variant is tried from now on, else none."""
        self._refused[name] = why
        self._choice = None

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there is no word about while the deep probes don't run."""
        traced = (one for one in self.manifests if one.group != "bios")
        return tuple(sorted({stage for one in traced for stage in one.stages} - {"total"}))

    @property
    def sample_us(self) -> int:
        """The time between two looks at depths."""
        return self._looks["sample_us"]

    def news(self) -> tuple[Missing, ...]:
        """What was refused since it was asked last; what is known before the first start is the origin's."""
        fresh = tuple(one for one in self.choice().missing if one.name not in self._told)
        self._told |= {one.name for one in fresh}
        return fresh

    def target(self, devices: tuple[str, ...]) -> Target:
        """A device without requests is traced itself, by its bios, and at its members."""
        numbers = self._numbers(devices)
        if len(numbers) > AT_MOST:
            return Target(why_all=f"{len(numbers)} are wanted, the kernel's filter has room for {AT_MOST}")
        if devices and not numbers:
            return Target(why_all=f"{', '.join(devices)} not found")
        return Target(tuple(numbers), tuple(numbers.values()))

    def _numbers(self, devices: tuple[str, ...]) -> dict[str, int]:
        """Name -> dev_t of the devices that are wanted and of their members; empty: all, or none is there."""
        known = self._here.devices()
        wanted = devices or (tuple(known) if self._options.devices else ())
        chosen = [known[name] for name in wanted if name in known and self._here.selects(known[name])]
        names = dict.fromkeys(name for one in chosen for name in (one.name, *one.members) if name in known)
        return {name: known[name].major << _MAJOR | known[name].minor for name in names}

    def outgrown(self, target: Target, devices: tuple[str, ...]) -> bool:
        """Whether the kernel's filter of a program for `target` lacks one of these devices: it was created later."""
        return bool(target.numbers) and not set(self._numbers(devices).values()) <= set(target.numbers)

    async def start(self, launcher: Launcher, target: Target, one_in: int) -> tuple[Probe, DeepTicks]:
        """RefusedError where no script runs; each refusal leaves one script out, or has its lesser variant tried."""
        while True:
            program = self.program(target, one_in)
            if not program.scripts:
                why = "; ".join(f"{one.name}: {one.reason}" for one in self.choice().missing)
                raise RefusedError(f"none of the deep probes runs here ({why})")
            try:
                probe = await Probe.start(launcher, program)
            except RefusedError as refusal:
                if bpftrace_tool.is_privilege(str(refusal)):
                    raise
                self.refuse(_refused_script(program, refusal), str(refusal))
                continue
            manifests = [one.manifest for one in program.scripts]
            self._running = {deep_scripts.stem(one.manifest.name): one for one in program.scripts}
            around = DeepSurroundings(program.map_keys, host.suspended_us, self._times, self._flags)
            return probe, DeepTicks(manifests, self._here.device_name, self._here.threads, around)

    def unfollowed(self, target: Target) -> dict[str, str]:
        """Device without requests that the running program can't follow, in all or in part -> why."""
        known = self._here.devices()
        bare = [known[name] for name in target.devices or known if name in known and not known[name].timed]
        found = {one.name: self._why_unfollowed(one) for one in bare if self._here.selects(one)}
        return {name: why for name, why in found.items() if why}

    def _why_unfollowed(self, device: Device) -> str:
        reasons = {one.name: one.reason for one in self.choice().missing}
        bios = self._running.get("bios")
        if bios is None:
            return f"its bios are not traced: {reasons.get('bios', 'the tracer started without them')}"
        if device.major in (value for name, value in bios.values.items() if name in _SKIPS):
            return f"its bios are not traced: its major, {device.major}, had only devices with requests before"
        if "bio_ages" not in self._running:
            return f"the ages of its I/Os in flight are not known: {reasons.get('bio_ages', 'no script tells them')}"
        return ""

    def _skipped_majors(self) -> list[int]:
        """Majors whose devices all have requests. Not dm's: volumes with requests (multipath) and without share it."""
        known = self._here.devices().values()
        kept = {one.major for one in known if not one.timed or one.kind == "dm"}
        return sorted({one.major for one in known} - kept)

    @property
    def timed(self) -> dict[str, bool]:
        """All devices, and whether each has requests."""
        return {name: one.timed for name, one in self._here.devices().items()}

    def _times(self, name: str) -> bool:
        device = self._here.devices().get(name)
        return device is not None and device.timed

    def program(self, target: Target, one_in: int) -> Program:
        """The scripts that run here, put together.

        Those for bios are left out only where the filter's devices all have requests: a volume may be created later.
        """
        values = self._values(target, one_in)
        has_bios = not target.numbers or not all(map(self._times, target.devices))
        wanted = (one for one in self._affordable(one_in).manifests if one.group != "bios" or has_bios)
        scripts = [script for one in wanted if (script := self._script(one, values)) is not None]
        return Program(tuple(scripts), map_keys(os.cpu_count() or 1))

    def _script(self, manifest: Manifest, values: Mapping[str, int | str]) -> Script | None:
        try:
            return deep_scripts.script(manifest, self._tracepoints.has, self._words, values)
        except ManifestError as error:
            self.refuse(manifest.name, str(error))
            return None

    def _values(self, target: Target, one_in: int) -> dict[str, int | str]:
        interval_ms = self._options.interval_us // 1000
        numbers = [*target.numbers, *(0,) * AT_MOST][:AT_MOST]
        return {
            **script_values.pace(interval_ms),
            **script_values.outliers(self._options.threshold_us),
            "one_in": one_in,
            **self._looks,
            "any_dev": int(not target.numbers),
            **{f"dev{at}": number for at, number in enumerate(numbers)},
            **dict(zip(_SKIPS, (*self._skipped_majors(), *(0,) * len(_SKIPS)), strict=False)),
        }


def map_keys(cpus: int) -> int:
    """Keys per map: fewer than the always-on probe's, because there are many more maps."""
    return min(16_384, max(4_096, _ENTRIES_PER_MAP // cpus))


def _refused_script(program: Program, refusal: RefusedError) -> str:
    """Whose fault it was: by the line, by the hook that is named, else the last one, which is wanted least."""
    at = program.script_at(refusal.line)
    if at is None:
        named = (one for one in program.scripts if any(_event(hook) in str(refusal) for hook in one.hooks))
        at = next(named, program.scripts[-1])
    return at.manifest.name


def _event(hook: str) -> str:
    return hook.rpartition(":")[2]
