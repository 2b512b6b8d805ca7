"""The tracer's bpftrace program: which scripts run on this kernel, for which devices, with which values.

Hooks and types are looked up where they can be read; other scripts are tried. A script that is left out is listed with
its reason.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from latmon.capture.backend import Options
from latmon.capture.mounts import FRESH_S, Mounts, MountTable, mount_name
from latmon.manifest import DECLARED_GROUPS, Manifest, load
from latmon.model.frame import FILES, PROCESSES, SIZES, Device, FileSystem, Missing
from latmon.support import host
from latmon.support.errors import ManifestError
from latmon.support.paths import data_dir
from latmon_backends.bpftrace.probe import BpftraceProbe
from latmon_backends.bpftrace.program import (
    BpftraceProgram,
    Tracepoints,
    cgroup_of_request,
    enumerators,
    hooks_of,
    is_privilege,
    request_argument,
)
from latmon_backends.probe import outliers
from latmon_backends.probe.launcher import ALL_DEVICES, Launcher, Script, Values
from latmon_backends.probe.outliers import USUAL, Threads
from latmon_backends.probe.process import RefusedError, RunningProbe
from latmon_backends.probe.tick_protocol import OnDemandSurroundings, OnDemandTicks
from latmon_backends.tracer import programs
from latmon_backends.tracer.programs import ChosenScripts, Programs, Target, TracerSample, stages_of

_IN_ORDER = ("inflight", "stages", "irqs", "softirqs", "wakeups", "bios", "order", FILES, PROCESSES, SIZES)
GROUPS = tuple(dict.fromkeys((*_IN_ORDER, *DECLARED_GROUPS)))
"""In the order of their text: I/Os in flight are counted before a completion's stages are recorded."""
_ORDER = ("trace", *GROUPS)
_VARIANTS = {"A": ("A", "C"), "A'": ("A", "C")}
"""Always-on tier -> tiers of the tracer's scripts, the better one first. Tier A adds raw tracepoints."""
_OF_EVENTS = {
    "wakeups": "resume",
    "irqs": "handlers",
    "softirqs": "softirqs",
    "order": "issues",
    "files": FILES,
    "uring": "files of io_uring",
    "admission_waits": "admission_causes",
}
"""Script, without its variant's letter, whose cost no sample of requests reduces -> what is lacking without it."""
_TOO_LARGE = "rror loading"
"""In the refusal of a program that the kernel's verifier doesn't take."""
_NEEDS_TIER_A = "needs tier A: bpftrace 0.19 or newer, kernel BTF"
_LEAN = "left out because tracing cost more than its budget"
_UNSEEN = (
    "their probes run while a live screen 2 is open, a device is suspicious, and with --stages all: each system call "
    "passes them"
)
_CPUS_EACH = 16
"""CPUs up to which sums are read at each request, at some 0.1 us for a CPU and a request."""
_LOOK_US = 3719
"""A prime: it shares no period with ticks of 1, 2.5, 4 or 10 ms."""
Has = Callable[[str], bool | None]
"""Whether the kernel has a hook; None: not known."""
Words = Mapping[str, tuple[int | str, ...]]
"""Parameter -> its possible values on this host; a script gets the first one that it allows."""
_AGAIN_S = 1.0
"""Age of the mounts up to which they are not read again for the number of a file system that is new."""
_MOST_UNKNOWN = 4096
"""Numbers of file systems in other mount namespaces, such as those of containers, that are kept as unknown."""
_MINOR_BITS = 20
_CALLS = {
    "read": (0, 63),
    "readv": (19, 65),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "preadv2": (327, 286),
    "write": (1, 64),
    "writev": (20, 66),
    "pwrite64": (18, 68),
    "pwritev": (296, 70),
    "pwritev2": (328, 287),
    "open": (2, 65535),
    "openat": (257, 56),
    "openat2": (437, 437),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "close": (3, 57),
    "rename": (82, 65535),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "unlink": (87, 65535),
    "unlinkat": (263, 35),
    "stat": (4, 65535),
    "lstat": (6, 65535),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "statx": (332, 291),
}
"""Numbers of system calls on x86_64, and where asm-generic/unistd.h has them; 65535: there is none."""
_GENERIC = ("aarch64", "riscv64", "loongarch64")
_MAJOR = 20
_SKIPS = tuple(f"skip{at}" for at in range(8))
"""Parameters of bios_c: majors that it leaves out. Bios of other devices with requests are traced and dropped."""
_KEYS_PER_DEVICE = 256
"""Some 100 buckets of two ops, and others."""
_KEYS_PER_PROCESS = 64
"""Two ops with each of 4 octaves: the rest is for I/Os of processes without a place of their own."""
_KEYS_BY_SIZE = 512
"""Two ops with each of 6 sizes and 6 octaves, 4 buckets per octave, are 288 keys. With less room: every other size."""
_FLAGS = {"sync": "sync", "ahead": "readahead"}
"""Parameter -> word of a request's flag, whose bit is its value."""
_ENTRIES_PER_MAP = 1 << 17
"""Slots over all CPUs that one map may take: 1 MB, because per-CPU maps are allocated whole and there are some 50."""


def on_demand_manifests(probes: Path | None = None) -> tuple[Manifest, ...]:
    """Load the tracer's manifests; ManifestError for a malformed file."""
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    manifests = (load(path) for path in sorted(directory.glob("*.yaml")))
    return tuple(manifest for manifest in manifests if manifest.group in GROUPS)


def choose(
    manifests: Sequence[Manifest],
    tier: str,
    has: Has,
    words: Words,
    refused: Mapping[str, str] | None = None,
    *,
    cpus: int | None = None,
) -> ChosenScripts:
    """Choose one variant of each script, the best that can run.

    `refused`: scripts that were tried -> why they don't run. `cpus`: the most that the kernel may have, if known.
    """
    chosen: dict[str, Manifest] = {}
    missing: list[Missing] = []
    for stem in _stems(manifests):
        reasons: list[str] = []
        for manifest in _variants(manifests, stem, tier):
            if chosen.keys() & set(manifest.unless):
                break
            why = (
                (refused or {}).get(manifest.name, "")
                or _too_many(manifest, cpus)
                or _obstacle(manifest, has, words, chosen)
            )
            if not why:
                chosen[manifest.name] = manifest
                break
            reasons.append(why)
        else:
            missing.append(Missing(stem, _reason(reasons)))
    return ChosenScripts(tuple(chosen.values()), tuple(missing))


def _reason(reasons: Sequence[str]) -> str:
    """Return why no variant of a script runs: the last one's reason, unless that is another script that it needs."""
    own = [reason for reason in reasons if not reason.startswith("needs ")]
    return (own or reasons or [_NEEDS_TIER_A])[-1]


def script(manifest: Manifest, has: Has, words: Words, values: Values) -> Script:
    """Return the script with its values; ManifestError where one is not known."""
    parameters = {**_words_of(manifest, has, words), **values}
    unknown = [
        parameter.name
        for parameter in manifest.parameters
        if parameter.name not in parameters and parameter.default is None
    ]
    if unknown:
        raise ManifestError(f"no value is known for {', '.join(unknown)}")
    return Script.fitted(manifest, parameters)


def hooks(manifest: Manifest, has: Has, words: Words) -> tuple[str, ...]:
    """Return the hooks that a script attaches to on this kernel."""
    return tuple(dict.fromkeys(_hooks(manifest, _words_of(manifest, has, words))))


def words(tracepoints: Tracepoints, sys: Path, machine: str = platform.machine()) -> Words:
    """Return this kernel's names of hooks, arguments and struct members, by parameter."""
    reported = tracepoints.has("tracepoint:irq_vectors:local_timer_entry")
    has_timer = machine in ("x86_64", "i686") if reported is None else reported
    entry, leave = ("local_timer_entry", "local_timer_exit") if has_timer else ("irq_handler_entry", "irq_handler_exit")
    category = "irq_vectors" if has_timer else "irq"
    bio = request_argument(sys / "kernel/btf/vmlinux", "block_bio_queue") or 0
    issued = request_argument(sys / "kernel/btf/vmlinux", "block_rq_issue") or 0
    return {
        "disk": ("q->disk", "bi_disk" if "bi_disk" in tracepoints else "bi_bdev->bd_disk"),
        "request": (f"arg{issued}",),
        "bio": (f"arg{bio}",),
        "queue": (_bio_queue(tracepoints),),
        **{
            name: (word, word.replace("$rq->bio", "$bio"))
            for name, word in cgroup_of_request(sys / "kernel/btf/vmlinux").items()
        },
        "timer_entry": (f"{category}:{entry}", entry),
        "timer_exit": (f"{category}:{leave}", leave),
        "timer_context": (int(has_timer),),
        **_system_calls(machine),
    }


def _system_calls(machine: str) -> dict[str, tuple[int | str, ...]]:
    """Return the numbers of a machine's system calls, their registers, and the test for a 64-bit program's call.

    None of them where the machine isn't known: its registers may be named as another's, which the compiler refuses.
    """
    if machine == "x86_64":
        compat = "((uint64)$task->thread_info.status & 2) == 0"
        registers = {
            "descriptor": ("di",),
            "path": ("si",),
            "flags": ("dx",),
            "position": ("r10",),
            "number": ("orig_ax",),
        }
        return {"native": (compat,), **registers, **{name: (x86,) for name, (x86, _) in _CALLS.items()}}
    if machine in _GENERIC:
        registers = {
            "descriptor": ("regs[0]",),
            "path": ("regs[1]",),
            "flags": ("regs[2]",),
            "position": ("regs[3]",),
            "number": ("syscallno",),
        }
        return {"native": ("1 == 1",), **registers, **{name: (generic,) for name, (_, generic) in _CALLS.items()}}
    return {}


def _bio_queue(tracepoints: Tracepoints) -> str:
    """Return the shortest path from a bio to its device's request_queue that this kernel's types have."""
    if "bi_disk" in tracepoints:
        return "bi_disk->queue"
    return "bi_bdev->bd_queue" if "bd_queue" in tracepoints else "bi_bdev->bd_disk->queue"


def sampling(cpus: int) -> dict[str, int]:
    """Return how often sums that are kept per CPU are read, whose cost grows with the CPUs.

    With few CPUs: at each request, and every 4 ms, which costs 0.25 % of a CPU. Not exactly 4 ms: a periodic load, as
    one by the timer's tick, is sampled at all of its phases.
    """
    each = max(1, -(-cpus // _CPUS_EACH))
    return {"sample_us": min(200_000, _LOOK_US * each), "read_one_in": min(1024, each)}


def with_found(words: Words, always_on: Values) -> Words:
    """Return the words with the always-on probe's values first: those were tried, the others only looked up."""
    return {
        name: (*((always_on[name],) if name in always_on else ()), *words.get(name, ())) for name in {*words, "disk"}
    }


def _stems(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield names without their variant's letter, in the order of GROUPS; needed scripts come first."""
    ordered = sorted(manifests, key=lambda manifest: (_ORDER.index(manifest.group), len(manifest.needs), manifest.name))
    yield from dict.fromkeys(stem(manifest.name) for manifest in ordered)


def stem(name: str) -> str:
    """Return a name without its variant's letter: `stages` of stages_a and stages_c."""
    return name.rpartition("_")[0] or name


def _variants(manifests: Sequence[Manifest], of: str, tier: str) -> Iterator[Manifest]:
    for letter in _VARIANTS.get(tier, ("C",)):
        yield from (manifest for manifest in manifests if stem(manifest.name) == of and manifest.tier == letter)


def _obstacle(manifest: Manifest, has: Has, words: Words, chosen: Mapping[str, Manifest]) -> str:
    """Return why the script can't run; empty when it may."""
    absent = next((need for need in manifest.needs if need not in chosen), "")
    if absent:
        return f"needs {absent}"
    lost = next((hook for hook in _hooks(manifest, _words_of(manifest, has, words)) if has(hook) is False), "")
    kind, _, event = lost.partition(":")
    if kind == "kprobe":
        return "this kernel has no kprobes"
    return f"this kernel has no tracepoint {event}" if event else ""


def _too_many(manifest: Manifest, cpus: int | None) -> str:
    """Return why the script costs too much here; empty where it doesn't."""
    if not manifest.max_cpus or cpus is None or cpus <= manifest.max_cpus:
        return ""
    return f"costs too much on more than {manifest.max_cpus} CPUs, this kernel has room for {cpus}"


def _words_of(manifest: Manifest, has: Has, words: Words) -> dict[str, int | str]:
    """Return the parameters that this host decides: from `words`, else the first word whose hooks the kernel has."""
    found: dict[str, int | str] = {}
    for parameter in manifest.parameters:
        fitting = [word for word in words.get(parameter.name, ()) if not parameter.words or word in parameter.words]
        if fitting:
            found[parameter.name] = fitting[0]
        elif parameter.words and parameter.default is None:
            found[parameter.name] = next(
                (word for word in parameter.words if _attaches(manifest, {**found, parameter.name: word}, has)),
                parameter.words[0],
            )
    return found


def _attaches(manifest: Manifest, values: Values, has: Has) -> bool:
    return all(has(hook) is not False for hook in _hooks(manifest, values))


def _hooks(manifest: Manifest, values: Values) -> tuple[str, ...]:
    """Return the hooks; other parameters get any value."""
    others = {
        parameter.name: parameter.words[0] if parameter.words else parameter.low
        for parameter in manifest.parameters
        if parameter.default is None
    }
    return hooks_of(Script(manifest, {**others, **values}))


@dataclass(frozen=True, slots=True)
class TracerHost:
    """The host as the tracer's programs need it."""

    tier: str
    always_on: Mapping[str, int | str]
    """Values of the always-on probe's parameters."""
    devices: Callable[[], Mapping[str, Device]]
    """Returns all devices now."""
    selects: Callable[[Device], bool]
    """Whether the user selects a device."""
    device_name: Callable[[int], str | None]
    threads: Threads
    cgroup: Callable[[int], tuple[str, str]]
    """Path and container of a cgroup's number in the kernel."""
    mounts: MountTable
    """The readers of the kernel's files share it."""


class ScriptInventory:
    """The tracer's scripts and look-ups for them: half a second of work, in a thread, as root if latmon is."""

    def __init__(
        self, options: Options, probes: Path | None = None, manifests: tuple[Manifest, ...] | None = None
    ) -> None:
        """`manifests`: the scripts that may run, other than all."""
        self.manifests = on_demand_manifests(probes) if manifests is None else manifests
        self.tracepoints = Tracepoints(options.sys)
        self.words = words(self.tracepoints, options.sys)
        self.flag_bits = outliers.positions(enumerators(options.sys / "kernel/btf/vmlinux", "req_flag_bits"))
        self.cpus = len(host.cpus("possible", options.sys)) or None
        self.tracepoints.has(
            "tracepoint:block:block_rq_issue"
        )  # only root may read it, and latmon may be root only now


class BpftracePrograms(Programs[BpftraceProgram]):
    """The tracer's scripts for bpftrace."""

    _is_privilege = staticmethod(is_privilege)

    def __init__(self, options: Options, tracer_host: TracerHost, inventory: ScriptInventory) -> None:
        super().__init__(inventory.manifests, tracer_host.threads)
        self._options, self._here = options, tracer_host
        self._tracepoints = inventory.tracepoints
        self._words = with_found(inventory.words, tracer_host.always_on)
        self._cpus = inventory.cpus
        self._sampling = sampling(self._cpus or os.cpu_count() or 1)
        self._flag_bits = inventory.flag_bits
        self._flags = partial(outliers.of_bits, at=inventory.flag_bits)
        self._file_systems = FileSystems(tracer_host.mounts, options.sys)
        self._choice: ChosenScripts | None = None
        self._joined = True
        """Whether the kernel takes the scripts on one tracepoint as one program, as far as is known."""
        self._running: dict[str, Script] = {}
        """By stem, the scripts that were started last."""
        self._reported = {missing.name for missing in self.choice().missing}

    def choice(self) -> ChosenScripts:
        if self._choice is None:
            self._choice = self._choose(self._refused)
        return self._choice

    def _choose(self, refused: Mapping[str, str]) -> ChosenScripts:
        tier, has = self._here.tier, self._tracepoints.has
        return choose(self.manifests, tier, has, self._words, refused, cpus=self._cpus)

    def left_out(self, target: Target, sample: TracerSample) -> tuple[Missing, ...]:
        if sample.lean:
            return tuple(Missing(name, _LEAN) for name in _OF_EVENTS.values())
        if target.files and sample.files:
            return ()
        why = _LEAN if target.files else _UNSEEN
        return tuple(Missing(_OF_EVENTS[name], why) for name in ("files", "uring"))

    def _affordable(self, sample: TracerSample) -> ChosenScripts:
        """Return the choice without scripts that count every request of which a sample is traced, or events."""
        if sample == TracerSample():
            return self.choice()
        all_manifests = [
            manifest
            for manifest in self.manifests
            if manifest.group == "inflight" or (manifest.group == "order" and manifest.needs)
        ]
        dear = {
            manifest.name: "counts every request, but only a sample is traced"
            for manifest in all_manifests
            if sample.one_in > 1
        }
        if not sample.files:
            dear |= {manifest.name: _LEAN for manifest in self.manifests if manifest.group == FILES}
        if sample.lean:
            dear |= {manifest.name: _LEAN for manifest in self.manifests if stem(manifest.name) in _OF_EVENTS}
        return self._choose({**dear, **self._refused})

    def refuse(self, name: str, why: str) -> None:
        """Leave a script out from now on; a lesser variant is tried, if there is one."""
        self._refused[name] = why
        self._choice = None

    @property
    def stages(self) -> tuple[str, ...]:
        return stages_of(self.manifests)

    @property
    def sample_us(self) -> int:  # type: ignore[override]  # decided by the number of CPUs
        return self._sampling["sample_us"]

    def target(self, devices: tuple[str, ...], *, forced: bool, files: bool) -> Target:
        """Return the devices and their members; a device without requests is traced by its bios too."""
        numbers = self._numbers(devices)
        filtered = not self.unfiltered and (not forced or bool(self._options.devices))
        why_all = self.unfiltered if numbers else self._why_none(devices)
        if why_all or not numbers:
            return Target(why_all=why_all, filtered=filtered, files=files)
        return Target(tuple(numbers), tuple(numbers.values()), filtered=filtered, files=files)

    def _numbers(self, devices: tuple[str, ...]) -> dict[str, int]:
        """Return name -> dev_t of the wanted devices and their members; empty: all, or none exists."""
        known = self._here.devices()
        wanted = devices or (tuple(known) if self._options.devices else ())
        chosen = [known[name] for name in wanted if name in known and self._here.selects(known[name])]
        names = dict.fromkeys(name for device in chosen for name in (device.name, *device.members) if name in known)
        numbers = {name: known[name].major << _MAJOR | known[name].minor for name in names}
        return {name: number for name, number in numbers.items() if number != ALL_DEVICES}

    def _why_none(self, devices: tuple[str, ...]) -> str:
        """Return why none of these devices has a number, so that all are traced; empty where none is wanted."""
        known = self._here.devices()
        hidden = [name for name in devices if name in known and known[name].major == known[name].minor == 0]
        if hidden:
            return f"the kernel gives {', '.join(hidden)} no number"
        return f"{', '.join(devices)} not found" if devices else ""

    def lacks(self, target: Target, sample: TracerSample) -> str:
        """Return whose scripts the running program lacks though they run here and are needed: bios', or files'."""
        running = {script.manifest.group for script in self._running.values()}
        others = {manifest.group for manifest in self._affordable(sample).manifests} - running
        if "bios" in others and not all(map(self._times, target.devices)):
            return "a device without requests"
        return "operations on files" if target.files and FILES in others else ""

    async def _launch(self, launcher: Launcher, program: BpftraceProgram) -> RunningProbe:
        probe = await BpftraceProbe.start(launcher, program)
        self._running = {stem(script.name): script for script in program.scripts}
        return probe

    def _ticks(self, program: BpftraceProgram) -> OnDemandTicks:
        manifests = [script.manifest for script in program.scripts]
        around = OnDemandSurroundings(
            program.map_keys,
            host.probe_ahead_us,
            self._times,
            self._flags,
            self._here.cgroup,
            file_system=self._file_systems.of,
        )
        return OnDemandTicks(manifests, self._here.device_name, self.threads, around)

    async def _leave_out(self, launcher: Launcher, program: BpftraceProgram, refusal: RefusedError) -> None:  # noqa: ARG002 - the text names it
        if program.joined and _TOO_LARGE in str(refusal):
            self._joined = False
            return
        self.refuse(_refused_script(program, refusal), str(refusal))

    def unfollowed(self, target: Target) -> dict[str, str]:
        """Return devices without requests that the running program can't follow, in all or in part -> why."""
        known = self._here.devices()
        bare = [known[name] for name in target.devices or known if name in known and not known[name].timed]
        reasons = {device.name: self._why_unfollowed(device) for device in bare if self._here.selects(device)}
        return {name: why for name, why in reasons.items() if why}

    def _why_unfollowed(self, device: Device) -> str:
        reasons = {missing.name: missing.reason for missing in self.choice().missing}
        bios = self._running.get("bios")
        if bios is None:
            return f"its bios are not traced: {reasons.get('bios', 'the tracer started without them')}"
        if device.major in (value for name, value in bios.values.items() if name in _SKIPS):
            return f"its bios are not traced: its major, {device.major}, had only devices with requests before"
        if "bio_ages" not in self._running:
            return f"the ages of its I/Os in flight are not known: {reasons.get('bio_ages', 'no script measures them')}"
        return ""

    def _skipped_majors(self) -> list[int]:
        """Return majors whose devices all have requests, except dm's: only some volumes (multipath) have them."""
        known = self._here.devices().values()
        kept = {device.major for device in known if not device.timed or device.kind == "dm"}
        return sorted({device.major for device in known} - kept)

    @property
    def timed(self) -> dict[str, bool]:
        """Return all devices, and whether each has requests."""
        return {name: device.timed for name, device in self._here.devices().items()}

    def _times(self, name: str) -> bool:
        device = self._here.devices().get(name)
        return device is not None and device.timed

    def program(self, target: Target, sample: TracerSample) -> BpftraceProgram:
        """Return the scripts that run here, put together.

        Those for bios are left out only where all devices of a host have requests and some are wanted, those for
        operations on files where no screen shows them: each system call of the host passes their hooks.
        """
        values = self._values(target, sample.one_in)
        has_bios = not target.numbers or not all(self.timed.values())
        unneeded = {*(() if has_bios else ("bios",)), *(() if target.files else (FILES,))}
        wanted = (manifest for manifest in self._affordable(sample).manifests if manifest.group not in unneeded)
        scripts = [script for manifest in wanted if (script := self._script(manifest, values)) is not None]
        return BpftraceProgram(tuple(scripts), self._map_keys(), self._joined)

    def _map_keys(self) -> int:
        return map_keys(os.cpu_count() or 1, len(self._here.devices()))

    def _script(self, manifest: Manifest, values: Mapping[str, int | str]) -> Script | None:
        try:
            return script(manifest, self._tracepoints.has, self._words, values)
        except ManifestError as error:
            self.refuse(manifest.name, str(error))
            return None

    def _values(self, target: Target, one_in: int) -> dict[str, int | str]:
        interval_ms = self._options.interval_us // 1000
        return {
            **programs.pace(interval_ms),
            **programs.outliers(self._options.threshold_us),
            "one_in": one_in,
            **self._sampling,
            "any_dev": int(not target.filtered),
            "slots": self._map_keys() // _KEYS_PER_PROCESS,
            "coarse": int(len(self._here.devices()) * _KEYS_BY_SIZE > self._map_keys()),
            **{name: self._flag_bits.get(flag, USUAL[flag]) for name, flag in _FLAGS.items()},
            **dict(zip(_SKIPS, (*self._skipped_majors(), *(0,) * len(_SKIPS)), strict=False)),
        }


def map_keys(cpus: int, devices: int) -> int:
    """Return the keys per map: fewer than the always-on probe's, because there are many more maps.

    To walk a map takes 17 ns for each key it has room for, with interrupts off, and to make one as long for each CPU.
    """
    return max(4_096, min(16_384, _ENTRIES_PER_MAP // cpus, _KEYS_PER_DEVICE * devices))


def _refused_script(program: BpftraceProgram, refusal: RefusedError) -> str:
    """Return the refused script: by the line, by the named hook, else the last one, which matters least."""
    at = program.script_at(refusal.line)
    if at is None:
        named = (script for script in program.scripts if any(_event(hook) in str(refusal) for hook in hooks_of(script)))
        at = next(named, program.scripts[-1])
    return at.manifest.name


def _event(hook: str) -> str:
    return hook.rpartition(":")[2]


class FileSystems:
    """Look-ups of file systems by the table of mounts that all readers share.

    The mounts are as old as those of the other readers at most. For a number that isn't among them they are read again
    once after it was asked for first, as of a file system that was just mounted; a host may have 10,000 mounts, and
    mounts of other namespaces stay unknown.
    """

    def __init__(self, mounts: MountTable, sys: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._table, self._sys, self._now_s = mounts, sys, now_s
        self._mounts = Mounts()
        self._known: dict[int, FileSystem] = {}
        """File systems that were asked for since `_known_s`: sysfs is read for these alone."""
        self._known_s = 0.0
        self._unknown: dict[int, float] = {}
        """Number that no mount had -> when it was asked for first."""

    def of(self, number: int) -> FileSystem:
        """Return the file system with the kernel's number of a device, major << 20 | minor."""
        now_s = self._now_s()
        mounts = self._table.read(self._max_age_s(number, now_s))
        if mounts is not self._mounts or now_s - self._known_s >= FRESH_S:
            self._mounts, self._known, self._known_s = mounts, {}, now_s
        if number not in self._known:
            self._known[number] = self._file_system(number)
        return self._known[number]

    def _max_age_s(self, number: int, now_s: float) -> float:
        """Return how old the mounts may be in which a number is looked for."""
        if _device(number) in self._mounts.usual:
            return FRESH_S
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._unknown.clear()
        first_s = self._unknown.setdefault(number, now_s)
        return min(FRESH_S, max(_AGAIN_S, now_s - first_s))

    def _file_system(self, number: int) -> FileSystem:
        mount = self._mounts.usual.get(_device(number))
        if mount is None:
            major, minor = _device(number)
            return FileSystem(f"{major}:{minor}")
        disk = self._mounts.disk_of(mount, self._sys)
        return FileSystem(mount_name(mount.point), mount.kind, disk)


def _device(number: int) -> tuple[int, int]:
    """Return the major and the minor of a kernel's number of a device."""
    return number >> _MINOR_BITS, number & ((1 << _MINOR_BITS) - 1)
