"""The bpftrace tool, its programs assembled from whole scripts, the always-on probe's tiers, and this kernel's hooks.

The tool has a path, privileges, a map limit, and error messages as sentences. It runs nothing but `--version`.

A block's braces are at the beginning of a line. A variant is chosen by trying it; it is left out only where a look-up
shows that it can't run (a kernel without kprobes).

Hooks are tracepoints from tracefs or BTF (Documentation/bpf/btf.rst), and the arguments of raw tracepoints. Argument
counts decide, because version numbers lie: RHEL 8.7's 4.18 and stable 5.10.137 have the one-argument tracepoints of
5.11. A look-up reads files, whose roots are arguments; nothing is mounted, run or kept open. It returns None where a
file can't be read: then only a trial shows what the kernel has.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from latmon.manifest import COARSER, Manifest, load
from latmon.support import privileges
from latmon.support.errors import UnavailableError
from latmon.support.host import install_command
from latmon.support.paths import content, data_dir
from latmon.support.process import bounded_output
from latmon.support.text import clean
from latmon.support.trust import find_tool
from latmon_backends.probe.launcher import TRACED, AnyProgram, Script, Values
from latmon_backends.probe.process import is_mounted, shimmed
from latmon_backends.tracer.programs import outliers, pace

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_PTR, _ENUM, _TYPEDEF, _FUNC_PROTO = 2, 6, 8, 13
# 32-bit words of each kind (0 to 19): always 3, some more, and some more per member (vlen).
_WORDS = (3, 4, 3, 6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 3, 3, 4, 3, 3)
_PER_MEMBER = (0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3)
_CGROUP = "$rq->bio->bi_blkg->blkcg->css.cgroup->kn->id"
CGROUPS = (_CGROUP, f"{_CGROUP}.id", "0")
"""Number of the cgroup that a request is charged to: since 5.5, before; where the kernel charges I/O to none."""
_EVENTS = ("kernel/tracing/events", "kernel/debug/tracing/events")
VARIABLE = "LATMON_BPFTRACE"
_CAPABILITIES_SINCE = (0, 25)
_RAW_SINCE = (0, 19)
"""rawtracepoint and nsecs(monotonic)."""
_BATCH = "nvme_complete_batch_req"
_TIME = re.compile(r"[0-9]{1,18}")
"""Nanoseconds, up to 30 years."""
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_VERSION = re.compile(r"bpftrace v?(\d+\.\d+(?:\.\d+)?)")
_ERRORS = (re.compile(r"(?:ERROR|FATAL|error):\s*(.+)"), re.compile(r"WARNING:\s*(.+)"))
_REFUSED_BY_SUDO = re.compile(r"\bis not allowed to execute .* as ")
_NOISE = ("RLIMIT_MEMLOCK", "available_filter_functions", "Addrspace is not set", "Return value discarded")
_PRIVILEGE = ("root user", "CAP_", "Operation not permitted", "a password is required", "not allowed to execute")
_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""glibc's: what the compiler no longer needs is given back, 6 MB of 32. The compiler's code, 75 MB, stays mapped."""
_ENTRIES_PER_MAP = 1 << 20
"""Slots over all CPUs that one map may take: 8 MB, because per-CPU maps are allocated whole."""
_KEYS_PER_PAIR = 320
"""Two ops with each of 14 octaves are 224 keys, 50 us to 1 s, which a busy pair has after hours; the rest is for I/Os
of no cgroup. A full map would lose the new buckets of all devices, which are their tails."""
_STEP_MS = 100
_PAGE = {"page": os.sysconf("SC_PAGE_SIZE")}
"""Two steps after the start are the first data."""
_BLOCK = re.compile(r"^(BEGIN|END)\s*\{\n(.*?)^\}\n", re.MULTILINE | re.DOTALL)
_SHAPES = re.compile(r"^interval:s:3600\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
"""Blocks that give maps their types, where BEGIN has no room for them: before all that reads these maps."""
_HOOKS = re.compile(r"^((?:raw)?tracepoint:[^{/]+|k(?:ret)?probe:[^{/]+)", re.MULTILINE)
_COMMA = re.compile(r"\s*,\s*")
_OWN = re.compile(r"^(?:BEGIN|END|interval:)", re.MULTILINE)
_TRACEPOINT = re.compile(
    r"^(?P<hook>(?:raw)?tracepoint:[\w:]+)\s*(?:/(?P<only>[^{]*)/\s*)?\{(?: (?P<line>[^\n]*) \}|\n(?P<lines>.*?)^\})\n",
    re.MULTILINE | re.DOTALL,
)
_VARIABLE = re.compile(r"\$(\w+)")
_FULL = ("tracepoint:block:block_rq_complete", "tracepoint:irq:irq_handler_exit", "tracepoint:raw_syscalls:sys_exit")
"""Tracepoints on which a script of tier C, compiled by bpftrace 0.17, takes most of a program's 512 bytes of stack."""
_MAP = re.compile(r"@\w+")
_LARGE = 30
"""Maps of a block that is a program of its own. A program may use 64 maps (MAX_USED_MAPS), of which bpftrace 0.23
takes up to eight, and the verifier follows a million instructions: on Linux 6.18 it followed 465,000 of stages_a's
completion, and 985,000 where that was joined with seven others, before it had late workers."""
_ONCE = {
    "$coarser": COARSER,
    "$clock": "nsecs(monotonic)",
    "$stamp": "((struct request *)arg0)->start_time_ns",
    "$tag": "((struct request *)arg0)->tag",
}
"""Calls of 50 to 90 ns."""
_FILTER = f"""\
interval:s:3600
{{
	@{TRACED}[(uint64)4294967296] = (uint64)0;
}}

END
{{
	clear(@{TRACED});
}}
"""
"""Declares the map of traced devices, which only latmon writes: no device has this number. BEGIN has no room for it."""
_KPROBES = (
    (
        f"kprobe:blk_update_request, kprobe:{_BATCH}",
        '(uint64)reg("ip") - (uint64)kaddr("blk_update_request") > 16',
    ),
    ("kprobe:blk_update_request", "1 == 0"),
)
_MEMBER = re.compile(r"\bdisk\b|rq_disk", re.IGNORECASE)
_STAMP = re.compile(r"io_start_time_ns")


def request_argument(path: Path, tracepoint: str) -> int | None:
    """Return the index of `struct request *` among the arguments: 0 for (rq), 1 for (q, rq); None when not known."""
    try:
        count = btf_arguments(path.read_bytes(), f"btf_trace_{tracepoint}")
    except (OSError, struct.error, ValueError, IndexError):
        return None
    # The first is the void * of every btf_trace_ typedef.
    return {2: 0, 3: 1}.get(count or 0)


def cgroup_of_request(path: Path) -> dict[str, str]:
    """Return the words for this kernel: those for none also where its types can't be read."""
    types = content(path)
    if b"\0bi_blkg\0" not in types:
        return {"group": "0", "cgroup": CGROUPS[-1]}
    return {"group": "$rq->bio->bi_blkg", "cgroup": CGROUPS[b"\0kernfs_node_id\0" in types]}


def enumerators(path: Path, enum: str) -> dict[str, int]:
    """Name -> value of an enum of 32 bits; empty when it is not known."""
    try:
        return btf_values(path.read_bytes(), enum)
    except (OSError, struct.error, ValueError, IndexError):
        return {}


def btf_arguments(blob: bytes, typedef: str) -> int | None:
    """Return the number of parameters of a typedef to a function pointer; ValueError when it isn't BTF."""
    types, strings = _areas(blob)
    wanted = _place(strings, typedef)
    offsets = _offsets(types) if wanted else []
    for at in offsets:
        if types[at] == wanted and _kind(types[at + 1]) == _TYPEDEF:
            return _parameters(types, offsets, types[at + 2])
    return None


def btf_values(blob: bytes, enum: str) -> dict[str, int]:
    """Name -> value of an enum of 32 bits, empty when there is none; ValueError when it isn't BTF."""
    types, strings = _areas(blob)
    wanted = _place(strings, enum)
    for at in _offsets(types) if wanted else ():
        if types[at] == wanted and _kind(types[at + 1]) == _ENUM:
            rows = range(at + 3, at + 3 + 2 * (types[at + 1] & 0xFFFF), 2)
            return {_string(strings, types[row]): types[row + 1] for row in rows}
    return {}


def _areas(blob: bytes) -> tuple[memoryview[int], bytes]:
    """Return the types' words and the strings."""
    magic, _, _, header, type_at, type_size, string_at, string_size = _HEADER.unpack_from(blob)
    if magic != _MAGIC:
        raise ValueError("not little-endian BTF")
    area = memoryview(blob)[header + type_at : header + type_at + type_size]
    return area[: len(area) // 4 * 4].cast("I"), blob[header + string_at : header + string_at + string_size]


def _place(strings: bytes, name: str) -> int:
    """Return the offset of a name; 0, that of the empty name, when it isn't there."""
    return strings.find(b"\0" + name.encode() + b"\0") + 1


def _string(strings: bytes, at: int) -> str:
    return clean(strings[at : strings.find(b"\0", at)])


def _offsets(types: memoryview[int]) -> list[int]:
    """Return the begin of each type, in words: a type's id is its index from 1; IndexError for an unknown kind."""
    offsets, at, end = [], 0, len(types)
    while at < end:
        offsets.append(at)
        info = types[at + 1]
        kind = (info >> 24) & 0x1F  # as _kind: a call for each of 150,000 types would take as long as all the rest
        at += _WORDS[kind] + _PER_MEMBER[kind] * (info & 0xFFFF)
    return offsets


def _parameters(types: memoryview[int], offsets: list[int], number: int) -> int | None:
    """Return the parameters of typedef -> pointer -> function."""
    for _ in range(4):
        if not 0 < number <= len(offsets):
            return None
        at = offsets[number - 1]
        kind = _kind(types[at + 1])
        if kind == _FUNC_PROTO:
            return types[at + 1] & 0xFFFF
        if kind not in (_PTR, _TYPEDEF):
            return None
        number = types[at + 2]
    return None


def _kind(info: int) -> int:
    return (info >> 24) & 0x1F


def has_kprobes(sys: Path = Path("/sys")) -> bool:
    """Return False where the kernel was built without kprobes: perf has no such event source then."""
    return (sys / "bus/event_source/devices/kprobe").exists() or (sys / "kernel/kprobes").exists()


class Tracepoints:
    """The kernel's tracepoints in /sys."""

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys

    def has(self, hook: str) -> bool | None:
        """Return whether `tracepoint:CATEGORY:NAME` or `rawtracepoint:NAME` exists; None where that is not known.

        A kernel without kprobes has none of them.
        """
        kind, _, name = hook.partition(":")
        if kind == "kprobe" and not has_kprobes(self._sys):
            return False
        if kind not in ("tracepoint", "rawtracepoint"):
            return None
        event = name.rpartition(":")[2]
        if self._named is not None:
            return (name if kind == "tracepoint" else event) in self._named
        return f"btf_trace_{event}" in self if self._types else None

    def __contains__(self, name: str) -> bool:
        """Return whether the BTF of the kernel or a module has a type or member of that name."""
        return any(b"\0" + name.encode() + b"\0" in blob for blob in self._types)

    @cached_property
    def _named(self) -> frozenset[str] | None:
        """Return the names with and without their category; None where tracefs can't be read."""
        for place in _EVENTS:
            try:
                categories = [path for path in (self._sys / place).iterdir() if path.is_dir()]
            except OSError:
                continue
            if categories:
                pairs = [(category.name, event.name) for category in categories for event in category.iterdir()]
                return frozenset((*(f"{category}:{event}" for category, event in pairs), *(e for _, e in pairs)))
        return None

    @cached_property
    def _types(self) -> tuple[bytes, ...]:
        try:
            files = sorted((self._sys / "kernel/btf").iterdir())
        except OSError:
            return ()
        return tuple(blob for file in files if (blob := content(file)))


_RING_BUFFER_SINCE, _RING_BUFFER_SINCE_LINUX = (0, 18), (5, 8)
_LEAST_KEYS, _KEYS_PER_DEVICE, _MORE_DEVICES = 16_384, 1024, 8
"""Four ops with each of 27 octaves are 864 keys. Allocating 65,536 keys takes the kernel 0.5 s of CPU at a start."""


@dataclass(frozen=True, slots=True)
class BpftraceTool:
    """The installed bpftrace and how it must be started."""

    name: ClassVar[str] = "bpftrace"
    """The tool's name in manifests."""
    path: str
    sudo: bool
    mount_tracefs: bool
    map_keys: int
    reported: str = ""
    """The version that another host has reported."""
    beside: str = ""
    """Number of the process there that answers questions, with whose end the tool ends."""
    buffer_pages: int = 0
    """Pages of each CPU's buffer for printed lines; 0: the tool's default, 64."""

    @property
    def version(self) -> str:
        """The version, or empty; read once, which takes 0.1 s."""
        return self.reported or _versions(self.path)

    def running(self, program: AnyProgram) -> list[str]:
        """Return the words that run a program with its number of keys per map."""
        return replace(self, map_keys=program.map_keys).command(program.text())

    def command(self, program: str) -> list[str]:
        """Return the words that run `program`, given as text: a chroot or a wrapper needs no file of ours."""
        keys = str(self.map_keys)
        # The first name is 0.17's, the second came with 0.20.
        variables = {"BPFTRACE_MAP_KEYS_MAX": keys, "BPFTRACE_MAX_MAP_KEYS": keys, "LC_ALL": "C"} | _MEMORY
        if self.buffer_pages:
            variables["BPFTRACE_PERF_RB_PAGES"] = str(self.buffer_pages)
        words = [self.path, "-f", "json", "--no-warnings", "-e", program]
        return shimmed(words, variables, sudo=self.sudo, mount_tracefs=self.mount_tracefs, beside=self.beside)


def find(environ: Mapping[str, str] = os.environ, proc: Path = Path("/proc"), euid: int | None = None) -> BpftraceTool:
    """Find the tool that LATMON_BPFTRACE names, else `bpftrace`; UnavailableError when there is none."""
    try:
        path = str(find_tool("bpftrace", VARIABLE, environ))
    except UnavailableError as error:
        if environ.get(VARIABLE):
            raise
        remedy = install_command("bpftrace") or "install the package bpftrace"
        raise UnavailableError(f"bpftrace is not installed: {remedy}.") from error
    euid = os.geteuid() if euid is None else euid
    if euid == 0 and environ.get(VARIABLE) and not _versions(path):
        raise UnavailableError(f"{VARIABLE}: {path} is no bpftrace: `{path} --version` prints no version of it")
    mount = not is_mounted("tracefs", proc) and not is_mounted("debugfs", proc)
    return BpftraceTool(
        path=path,
        sudo=euid != 0 and shutil.which("sudo") is not None and not _is_capable(path, proc, mount=mount),
        mount_tracefs=mount,
        map_keys=map_keys(os.cpu_count() or 1, len(content(proc / "partitions").splitlines())),
    )


def of_remote(facts: Mapping[str, str], devices: int) -> BpftraceTool:
    """Return the tool of another host, from what its shell reported; UnavailableError where it can't measure there."""
    if "denied" in facts:
        how = "connect as root, or let sudo start sh there without a password (NOPASSWD)"
        raise UnavailableError(f"its bpftrace needs root ({facts['denied'] or 'there is no sudo'}): {how}")
    match = _VERSION.search(facts.get("version", ""))
    if match is None:
        raise UnavailableError("its bpftrace prints no version")
    if not _TIME.fullmatch(facts.get("ahead", "")):
        raise UnavailableError("it hides /proc/timer_list, which has the distance of its clocks")
    cpus = facts.get("cpus", "")
    return BpftraceTool(
        path=facts["bpftrace"],
        sudo=facts.get("rights") == "sudo",
        mount_tracefs="tracefs" not in facts,
        map_keys=map_keys(int(cpus) if cpus.isdecimal() and int(cpus) else 1, devices),
        reported=match[1],
        beside=facts["shell"] if _NUMBER.fullmatch(facts.get("shell", "")) else "",
    )


def version(path: str) -> str:
    """Return `0.23.2`, or nothing where the tool doesn't print it."""
    try:
        _, printed = bounded_output([path, "--version"], 10, os.environ, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = _VERSION.search(printed.decode("utf-8", "replace"))
    return match[1] if match else ""


_versions = cache(version)


def map_keys(cpus: int, devices: int) -> int:
    """Return the keys per map (devices x ops x used buckets): 8,192 to 65,536, as the memory for them allows.

    `devices`: block devices and partitions of the host; some more may be added while the probe runs.
    """
    wanted = max(_LEAST_KEYS, (devices + _MORE_DEVICES) * _KEYS_PER_DEVICE)
    return min(65_536, max(8_192, _ENTRIES_PER_MAP // cpus), wanted)


def reason(complaints: Sequence[str], status: int) -> str:
    """Return why the tool ended, as one sentence without a full stop."""
    lines = [line for line in complaints if not any(noise in line for noise in _NOISE)]
    if lines and _REFUSED_BY_SUDO.search(lines[-1]):  # it names the user and the host, which recordings keep
        return "sudo: this user is not allowed to execute sh as root"
    for kind in _ERRORS:
        for line in lines:
            if match := kind.search(line):
                return match[1].strip(" .")
    return lines[-1].strip(" .") if lines else f"bpftrace ended with status {status}"


def is_privilege(why: str) -> bool:
    """Return whether more rights, not another probe, would help."""
    return any(sign in why for sign in _PRIVILEGE)


def has_raw_tracepoints(tool: BpftraceTool) -> bool:
    """Return whether a tool has what the scripts of tier A need."""
    return _numbers(tool.version) >= _RAW_SINCE


def has_ring_buffer(tool: BpftraceTool, kernel: str) -> bool:
    """Return whether all CPUs share the buffer of printed lines: bpftrace 0.18 and Linux 5.8 (`kernel`, its release).

    Else each CPU has one that the tool opens as it starts. Lines of a CPU that comes online later are lost, uncounted,
    also where it was online before (0.17, measured).
    """
    return _numbers(tool.version) >= _RING_BUFFER_SINCE and _numbers(kernel) >= _RING_BUFFER_SINCE_LINUX


def _is_capable(path: str, proc: Path, *, mount: bool) -> bool:
    """Return whether the tool, started by this user, has the capabilities that it needs instead of root."""
    if privileges.missing_in_children(proc) or (mount and not privileges.can_mount_in_children(proc)):
        return False
    return _numbers(_versions(path)) >= _CAPABILITIES_SINCE


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def hooks_of(script: Script) -> tuple[str, ...]:
    """Return what a script's text attaches to, except BEGIN, END and intervals; a manifest's list is for people."""
    return hooks_in(script.text())


def hooks_in(text: str) -> tuple[str, ...]:
    """Return what a program attaches to, except BEGIN, END and intervals, in its order."""
    return tuple(hook for hooks in _HOOKS.findall(text) for hook in _COMMA.split(hooks.strip()))


def _joined(text: str) -> str:
    """Return a program with one block for each tracepoint, in the place of the first: each attached one costs a call.

    The blocks' variables get different names, because a variable has one type in a block. What several of them begin
    with is called once. A large block stays apart.
    """
    blocks = list(_TRACEPOINT.finditer(text))
    bodies: dict[str, list[str]] = {}
    for at, block in enumerate(blocks):
        bodies.setdefault(block["hook"], []).append(_VARIABLE.sub(rf"$\1_{at}", _body(block)))
    begun: set[str] = set()

    def put(block: re.Match[str]) -> str:
        hook, probe_bodies = block["hook"], bodies[block["hook"]]
        if len(probe_bodies) == 1 or hook in _FULL:
            return block[0]
        if hook in begun:
            return ""
        begun.add(hook)
        return "".join(f"{hook}\n{{\n{_calling_once(body)}}}\n" for body in _joinable(probe_bodies))

    return _TRACEPOINT.sub(put, text)


def _joinable(bodies: Iterable[str]) -> list[str]:
    """Return the bodies in their order, joined but for large ones."""
    runs = groupby(bodies, key=lambda body: len(set(_MAP.findall(body))) > _LARGE)
    return [body for is_large, run in runs for body in (run if is_large else ("".join(run),))]


def _calling_once(body: str) -> str:
    """Return a block's body that calls once what several scripts begin with."""
    for variable, call in _ONCE.items():
        if len(re.findall(rf"^\t[^\t].*{re.escape(call)}", body, re.MULTILINE)) > 1:
            body = f"\t{variable} = {call};\n{body.replace(call, variable)}"
    return body


def _body(block: re.Match[str]) -> str:
    """Return the statements of a block, below its predicate."""
    body = block["lines"] or f"\t{block['line']}\n"
    return f"\tif ({block['only'].strip()}) {{\n{body}\t}}\n" if block["only"] else body


@dataclass(frozen=True, slots=True)
class BpftraceProgram:
    """The scripts that one bpftrace process runs, and how many keys each of its maps may have."""

    scripts: tuple[Script, ...]
    map_keys: int
    joined: bool = True
    """Whether several scripts on a tracepoint are one attached program."""

    @property
    def hooks(self) -> tuple[str, ...]:
        """Hooks of all scripts; several scripts on a tracepoint are one attached probe."""
        return hooks_in(self.text())

    @property
    def attaches(self) -> int:
        """The number of probes that the tool attaches in addition to the hooks."""
        return len(_OWN.findall(self.text()))

    def text(self) -> str:
        """Return the scripts with the bodies of BEGIN and of END joined: up to 0.23 a program has one of each."""
        texts = [script.text() for script in self.scripts]
        if any(f"@{TRACED}[" in text for text in texts):
            texts = [_FILTER, *texts]
        if len(texts) == 1:
            return texts[0]
        blocks = [(match[1], match[2]) for text in texts for match in _BLOCK.finditer(text)]
        bodies = {kind: "".join(body for name, body in blocks if name == kind) for kind in ("BEGIN", "END")}
        begin, end = (f"{kind}\n{{\n{body}}}\n" if body else "" for kind, body in bodies.items())
        others = "".join(_BLOCK.sub("", text) for text in texts)
        shapes = "".join(_SHAPES.findall(others))
        hooked = _SHAPES.sub("", others)
        return begin + shapes + (_joined(hooked) if self.joined else hooked) + end

    def script_at(self, line: int) -> Script | None:
        """Return the script of a line of the text (from 1), by the nearest map's name; None beyond the text."""
        lines = self.text().splitlines()
        if not 0 < line <= len(lines):
            return None
        near = sorted(range(len(lines)), key=lambda at: abs(at - line + 1))
        owners = (script for at in near for script in self.scripts if f"@{script.manifest.name}_" in lines[at])
        return next(owners, None)


@dataclass(frozen=True, slots=True)
class Variant(Script):
    """An always-on script. `only_after`, where given, must be found in the refusal of the variant before."""

    only_after: re.Pattern[str] | None = None

    @property
    def name(self) -> str:
        words = [str(v) for k, v in self.values.items() if k in ("disk", "request", "hooks")]
        return " ".join([self.manifest.name, *words])

    @property
    def counts_cgroups(self) -> bool:
        """Whether the script counts I/Os by cgroup."""
        return self.values.get("cgroup", CGROUPS[-1]) != CGROUPS[-1]

    @property
    def knows_clock(self) -> bool:
        """Whether the script has a parameter for how far its clock is ahead of the requests' stamps.

        A suspend changes that distance.
        """
        return "ahead_ns" in self.values

    def with_clock(self, ahead_ns: int) -> Variant:
        """Return the variant with another distance of the clocks, where its script takes one."""
        return replace(self, values={**self.values, "ahead_ns": ahead_ns}) if self.knows_clock else self


def variants(
    interval_ms: int,
    ahead_ns: int,
    sys: Path = Path("/sys"),
    probes: Path | None = None,
    threshold_us: int | None = None,
    *,
    manifest: str = "",
    map_keys: int = _LEAST_KEYS,
) -> Iterator[Variant]:
    """Yield the variants, the best first. `ahead_ns`: how far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC.

    `manifest`: only those of the manifest with this name.
    """
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    base = pace(interval_ms, _STEP_MS) | outliers(threshold_us) | _PAGE | {"ahead_ns": ahead_ns}
    if manifest != "block_c":
        base |= _cgroups(sys, map_keys)
    if manifest in ("", "block_a"):
        stamps = load(directory / "block_a.yaml")
        yield variant_of(stamps, base | {"disk": "q->disk"})
        yield variant_of(stamps, base | {"disk": "rq_disk"}, _MEMBER)
    if manifest in ("", "block_ap"):
        yield from pointers(interval_ms, sys, probes, _STAMP, threshold_us, map_keys=map_keys)
    if manifest in ("", "block_b") and has_kprobes(sys):
        kernel = load(directory / "block_b.yaml")
        for disk in ("q->disk", "rq_disk"):
            for hooks, batch in _KPROBES:
                yield variant_of(kernel, base | {"disk": disk, "hooks": hooks, "batch": batch})
    if manifest in ("", "block_c"):
        yield variant_of(load(directory / "block_c.yaml"), base)


def lacking(variant: Variant, tool: BpftraceTool, types: frozenset[str]) -> str:
    """Return what an always-on script needs and a host lacks; empty where it may run there.

    `types`: names that the BTF of its kernel has, of those that the scripts depend on; empty without BTF.
    """
    tier = variant.manifest.tier
    if tier == "A" and not has_raw_tracepoints(tool):
        return f"needs bpftrace 0.19 or newer, and this is {tool.version}"
    if tier != "C" and not types:
        return "needs a kernel with BTF"
    if tier != "C" and "io_start_time_ns" not in types:
        return "needs requests with a stamp of their issue"
    return ""


def is_for(variant: Variant, types: frozenset[str]) -> bool:
    """Return whether of several variants of a script this one is for a kernel with these types."""
    disk, hooks = variant.values.get("disk"), str(variant.values.get("hooks", ""))
    has_disk = disk is None or ("rq_disk" in types) == (disk == "rq_disk")
    return has_disk and (not hooks or (_BATCH in types) == (_BATCH in hooks))


def _cgroups(sys: Path, map_keys: int) -> dict[str, int | str]:
    """Return the values by which a script counts I/Os by cgroup; a cgroup's I/Os to a device take up to 224 keys."""
    return {"pairs": map_keys // _KEYS_PER_PAIR, **cgroup_of_request(sys / "kernel/btf/vmlinux")}


def pointers(
    interval_ms: int,
    sys: Path,
    probes: Path | None = None,
    only_after: re.Pattern[str] | None = None,
    threshold_us: int | None = None,
    *,
    map_keys: int = _LEAST_KEYS,
) -> Iterator[Variant]:
    """Yield the variants of tier A', for requests without stamps; BTF shows which argument is the request."""
    issued = request_argument((sys / "kernel/btf/vmlinux"), "block_rq_issue")
    if issued is None:
        return
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    manifest = load(directory / "block_ap.yaml")
    base = pace(interval_ms, _STEP_MS) | outliers(threshold_us) | _PAGE
    base |= _cgroups(sys, map_keys)
    for disk, after in (("q->disk", only_after), ("rq_disk", _MEMBER)):
        yield variant_of(manifest, base | {"disk": disk, "request": f"arg{issued}"}, after)


def variant_of(manifest: Manifest, values: Values, only_after: re.Pattern[str] | None = None) -> Variant:
    """Return the script with those of the values that it takes."""
    return replace(Variant.fitted(manifest, values), only_after=only_after)
