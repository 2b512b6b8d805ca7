"""The tracer's bpftrace program: which scripts, for which devices, with which values.

Finds out by looking where that can be read, else by trying. Decides neither when it runs nor for whom.

Pure but for reading manifests. A script that is left out is named with its reason. Starts nothing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from latmon.capture.backend import Options
from latmon.manifest.loader import Manifest, load
from latmon.model.frame import Device, Missing
from latmon.support import host
from latmon.support.errors import ManifestError
from latmon.support.paths import data_dir
from latmon_backends.bpftrace import kernel_hooks, tool
from latmon_backends.bpftrace.kernel_hooks import Tracepoints
from latmon_backends.bpftrace.probe import Probe
from latmon_backends.bpftrace.program import Program, Script
from latmon_backends.probe import outliers
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.outliers import Threads
from latmon_backends.probe.process import RefusedError
from latmon_backends.probe.tick_protocol import DeepSurroundings, DeepTicks
from latmon_backends.tracer import programs
from latmon_backends.tracer.demand import AT_MOST
from latmon_backends.tracer.programs import Target

GROUPS = ("inflight", "stages", "irqs", "softirqs", "wakeups", "bios", "order")
"""In the order of their text: what is in flight is counted before a completion's stages are told."""
_VARIANTS = {"A": ("A", "C"), "A'": ("A", "C")}
"""Always-on tier -> tiers of deep scripts, the better one first. Where raw tracepoints attach, others do as well."""
_CPUS_EACH = 16
"""Up to so many CPUs sums are read at each request: some 0.1 us for a CPU and a request."""
_LOOK_US = 3719
"""A prime: it shares no period with ticks of 1, 2.5, 4 or 10 ms."""
Has = Callable[[str], bool | None]
"""Whether the kernel has a hook; None: not known."""
Values = Mapping[str, int | str]
Words = Mapping[str, tuple[int | str, ...]]
"""Parameter -> what it is to be on this host; scripts differ in what they take, so the first that one takes counts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The scripts in the order of their text, and what of the deep probes is missing here."""

    manifests: tuple[Manifest, ...] = ()
    missing: tuple[Missing, ...] = ()


def deep_manifests(probes: Path | None = None) -> tuple[Manifest, ...]:
    """All of them; a file that isn't right is an error, as of every probe."""
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    found = (load(path) for path in sorted(directory.glob("*.yaml")))
    return tuple(one for one in found if one.group in GROUPS)


def choose(
    found: Sequence[Manifest],
    tier: str,
    has: Has,
    words: Words,
    refused: Mapping[str, str] | None = None,
    *,
    cpus: int | None = None,
) -> Choice:
    """One variant of each script, the best that can run; `refused`: those that were tried, and what was said.

    `cpus`: how many the kernel may ever have, as far as that is known.
    """
    chosen: dict[str, Manifest] = {}
    missing: list[Missing] = []
    for stem in _stems(found):
        why = "needs tier A: bpftrace 0.19 or newer, kernel BTF"
        for one in _variants(found, stem, tier):
            if chosen.keys() & set(one.unless):
                break
            why = (refused or {}).get(one.name, "") or _too_many(one, cpus) or _obstacle(one, has, words, chosen)
            if not why:
                chosen[one.name] = one
                break
        else:
            missing.append(Missing(stem, why))
    return Choice(tuple(chosen.values()), tuple(missing))


def script(manifest: Manifest, has: Has, words: Words, values: Values) -> Script:
    """With its values; ManifestError where one is not known."""
    known = _words_of(manifest, has, words)
    unknown = [one.name for one in manifest.parameters if one.name not in {**known, **values}]
    if unknown:
        raise ManifestError(f"nothing is known to be the value of {', '.join(unknown)}")
    taken = {one.name for one in manifest.parameters}
    return Script(manifest, {name: value for name, value in {**known, **values}.items() if name in taken})


def hooks(manifest: Manifest, has: Has, words: Words) -> tuple[str, ...]:
    """What it attaches to here."""
    return tuple(dict.fromkeys(_hooks(manifest, _words_of(manifest, has, words))))


def words(tracepoints: Tracepoints, sys: Path, machine: str = platform.machine()) -> Words:
    """What this kernel calls things."""
    told = tracepoints.has("tracepoint:irq_vectors:local_timer_entry")
    has_timer = machine in ("x86_64", "i686") if told is None else told
    entry, leave = ("local_timer_entry", "local_timer_exit") if has_timer else ("irq_handler_entry", "irq_handler_exit")
    category = "irq_vectors" if has_timer else "irq"
    bio = kernel_hooks.request_argument(sys / "kernel/btf/vmlinux", "block_bio_queue") or 0
    issued = kernel_hooks.request_argument(sys / "kernel/btf/vmlinux", "block_rq_issue") or 0
    return {
        "disk": ("q->disk", "bi_disk" if "bi_disk" in tracepoints else "bi_bdev->bd_disk"),
        "request": (f"arg{issued}",),
        "bio": (f"arg{bio}",),
        "queue": (_bio_queue(tracepoints),),
        "timer_entry": (f"{category}:{entry}", entry),
        "timer_exit": (f"{category}:{leave}", leave),
        "timer_context": (int(has_timer),),
    }


def _bio_queue(tracepoints: Tracepoints) -> str:
    """Return the shortest path from a bio to its device's request_queue that this kernel's types have."""
    if "bi_disk" in tracepoints:
        return "bi_disk->queue"
    return "bi_bdev->bd_queue" if "bd_queue" in tracepoints else "bi_bdev->bd_disk->queue"


def possible_cpus(sys: Path) -> int | None:
    """CPUs that a map has a place for, plugged in or not: "0-3" or "0,2-5"; None: not known."""
    try:
        ranges = (sys / "devices/system/cpu/possible").read_text(encoding="ascii").strip().split(",")
        ends = [[int(end) for end in one.split("-")] for one in ranges]
    except (OSError, ValueError):
        return None
    return sum(one[-1] - one[0] + 1 for one in ends)


def looks(cpus: int) -> dict[str, int]:
    """How often sums that are kept per CPU are read, which costs as much as there are CPUs.

    Every 4 ms, 0.25 % of a CPU, and at every request, where there are few. Not quite 4 ms: a load that is periodic
    itself, by the timer's tick for one, is met at all of its phases.
    """
    each = max(1, -(-cpus // _CPUS_EACH))
    return {"sample_us": min(200_000, _LOOK_US * each), "read_one_in": min(1024, each)}


def with_found(words: Words, always_on: Values) -> Words:
    """What the always-on probe found by trying is better than what was looked up."""
    return {
        name: (*((always_on[name],) if name in always_on else ()), *words.get(name, ())) for name in {*words, "disk"}
    }


def _stems(found: Sequence[Manifest]) -> Iterator[str]:
    """Names without their variant's letter, in the order of GROUPS and so that what a script needs is before it."""
    ordered = sorted(found, key=lambda one: (GROUPS.index(one.group), len(one.needs), one.name))
    yield from dict.fromkeys(stem(one.name) for one in ordered)


def stem(name: str) -> str:
    """`stages` of stages_a and stages_c."""
    return name.rpartition("_")[0] or name


def _variants(found: Sequence[Manifest], of: str, tier: str) -> Iterator[Manifest]:
    for letter in _VARIANTS.get(tier, ("C",)):
        yield from (one for one in found if stem(one.name) == of and one.tier == letter)


def _obstacle(one: Manifest, has: Has, words: Words, chosen: Mapping[str, Manifest]) -> str:
    """Why the script can't run; empty when nothing is known against it."""
    absent = next((need for need in one.needs if need not in chosen), "")
    if absent:
        return f"needs {absent}"
    lost = next((hook for hook in _hooks(one, _words_of(one, has, words)) if has(hook) is False), "")
    return f"this kernel has no tracepoint {lost.partition(':')[2]}" if lost else ""


def _too_many(one: Manifest, cpus: int | None) -> str:
    """Why the script costs too much here."""
    if not one.max_cpus or cpus is None or cpus <= one.max_cpus:
        return ""
    return f"costs too much on more than {one.max_cpus} CPUs, this kernel has room for {cpus}"


def _words_of(manifest: Manifest, has: Has, words: Words) -> dict[str, int | str]:
    """Parameters that this host decides: as `words` says, else the first word whose hooks the kernel has."""
    found: dict[str, int | str] = {}
    for one in manifest.parameters:
        fitting = [word for word in words.get(one.name, ()) if not one.words or word in one.words]
        if fitting:
            found[one.name] = fitting[0]
        elif one.words:
            found[one.name] = next(
                (word for word in one.words if _attaches(manifest, {**found, one.name: word}, has)), one.words[0]
            )
    return found


def _attaches(manifest: Manifest, values: Values, has: Has) -> bool:
    return all(has(hook) is not False for hook in _hooks(manifest, values))


def _hooks(manifest: Manifest, values: Values) -> tuple[str, ...]:
    """With anything for the values that don't matter here."""
    others = {one.name: one.words[0] if one.words else one.low for one in manifest.parameters}
    return Script(manifest, {**others, **values}).hooks


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
        self.manifests = deep_manifests(probes)
        self.tracepoints = Tracepoints(options.sys)
        self.words = words(self.tracepoints, options.sys)
        self.flag_bits = outliers.positions(
            kernel_hooks.enumerators(options.sys / "kernel/btf/vmlinux", "req_flag_bits")
        )
        self.cpus = possible_cpus(options.sys)
        self.tracepoints.has("tracepoint:block:block_rq_issue")  # what only root may look at is looked at now


class DeepPrograms:
    """Starts what of the deep scripts runs here, and remembers what was refused."""

    def __init__(self, options: Options, here: Host, inventory: Inventory) -> None:
        self._options, self._here = options, here
        self.manifests = inventory.manifests
        self._tracepoints = inventory.tracepoints
        self._words = with_found(inventory.words, here.always_on)
        self._cpus = inventory.cpus
        self._looks = looks(self._cpus or os.cpu_count() or 1)
        self._flags = partial(outliers.of_bits, at=inventory.flag_bits)
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
        return choose(self.manifests, tier, has, self._words, refused, cpus=self._cpus)

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
                raise RefusedError(f"no script of the tracer runs here ({why})")
            try:
                probe = await Probe.start(launcher, program)
            except RefusedError as refusal:
                if tool.is_privilege(str(refusal)):
                    raise
                self.refuse(_refused_script(program, refusal), str(refusal))
                continue
            manifests = [one.manifest for one in program.scripts]
            self._running = {stem(one.manifest.name): one for one in program.scripts}
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
            return f"the ages of its I/Os in flight are not known: {reasons.get('bio_ages', 'no script measures them')}"
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
            return script(manifest, self._tracepoints.has, self._words, values)
        except ManifestError as error:
            self.refuse(manifest.name, str(error))
            return None

    def _values(self, target: Target, one_in: int) -> dict[str, int | str]:
        interval_ms = self._options.interval_us // 1000
        numbers = [*target.numbers, *(0,) * AT_MOST][:AT_MOST]
        return {
            **programs.pace(interval_ms),
            **programs.outliers(self._options.threshold_us),
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
