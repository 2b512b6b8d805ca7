"""A probe's manifest, the YAML beside a script that declares its requirements and output: schema, checks, loader.

A new driver's probe needs no Python: its maps and records are declared in the manifest and decoded by decode/framer.py
and decode/tables.py. Programs are made of whole scripts; `{{name}}` is replaced by a checked integer or one of a
manifest's listed words, and `$i = bucket($u);` by the computation of latmon's bucket index. A variant that differs from
another script in a few places is made of it by replacements (`script:`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from latmon.model.frame import OPS, STAGES
from latmon.model.histogram import BITS
from latmon.model.measurements import TABLES
from latmon.model.stages import ADMISSION, FROM_SUBMISSION, MEASURED_STAGES, THROTTLING, UNACCOUNTED, WHOLE
from latmon.support import strict_yaml
from latmon.support.errors import ManifestError

PLATFORMS = ("linux", "illumos", "freebsd", "portable")
"""portable: wherever its tool has the hooks."""
TOOLS = ("bpftrace", "dtrace")
COSTS = ("cheap", "moderate", "invasive")
CLOCKS = ("monotonic", "boottime", "hrtime")
"""hrtime: the tool's own clock, which is neither of the others."""
ALWAYS = "always"
_SCRIPT_GROUPS = (
    ALWAYS,
    "inflight",
    "stages",
    "wakeups",
    "irqs",
    "softirqs",
    "bios",
    "order",
    "files",
    "limits",
    "processes",
    "sizes",
    "trace",
)
DECLARED_GROUPS = tuple(dict.fromkeys(table.group for table in TABLES if table.roles and table.group != ALWAYS))
"""Groups of the tables whose rows are made of their declarations: a script of the tracer may be of one of them."""
GROUPS = tuple(dict.fromkeys((*_SCRIPT_GROUPS, *DECLARED_GROUPS)))
"""always: from the first frame to the last. trace: `latmon trace` alone. The others are traced on demand."""
DECODERS = ("dev_t", "op", "bucket", "depth", "integer", "name")
NAMED = ("dev", "handler", "thread", "other", "instead")
"""Parts, and fields of records, that DTrace's scripts print as names."""
WIDTHS = {
    "bucket": 8,
    "dev": 32,
    "handler": 31,
    "thread": 31,
    "other": 31,
    "depth": 16,
    "cpu": 16,
    "priority": 16,
    "wait": 4,
    "call": 4,
    "process": 24,
    "status": 9,
}
"""Bits of a part where the reader packs the key; 8 of all others."""
_TABLE_ROLES = {
    "softirqs": "softirq",
    "handlers": "handler",
    "wake-ups": "wakeup",
    "issues": "issue",
    "issuers": "cgroup",
    "processes": "process",
    "sizes": "size_latency",
    "files": "file",
}
TABLE_ROLES: dict[str, str] = {
    **_TABLE_ROLES,
    **{
        table.name: f"{table.export_name}_"
        for table in TABLES
        if table.group in DECLARED_GROUPS and table.roles and table.name not in _TABLE_ROLES
    },
}
"""Table of the tracer -> the beginning of the roles of its maps, or of its record's name."""
STACKS = ("cause", "completer", "raiser", "file_asleep")
WAITS = ("cause", "file_asleep")
"""Roles whose script has a kernel stack in place of the code in `context`; those in WAITS name waits by functions."""
FEED_STAGES = ("histogram", "sum", "max", "by_total")
TIMES = ("total_us", *(f"{stage}_us" for stage in MEASURED_STAGES if stage != "resume"), f"{UNACCOUNTED}_us")
"""Times of one I/O; `resume` is a record of its own, after the I/O completed."""
RECORDS: dict[str, tuple[str, ...]] = {
    "slow": (
        *("request", "dev", "op", "flags", "rwbs", "sector", "bytes", "begun_ns", "done_ns", *TIMES),
        *("cpu_issue", "cpu_complete", "pid", "path", "outstanding", "overtaken", "thread"),
        *("dispatch_us", "admission_us", "inserted_us", "status"),
    ),
    "resumed": ("request", "dev", "sector", "done_ns", "resume_us", "thread", "priority"),
    "late": ("thread", "priority", "woken_ns", "delay_us", "instead", "instead_priority", "ran_us", "cpu"),
    "waiting": ("request", "dev", "op", "flags", "sector", "bytes", "begun_ns", "pid", "issued", "overtaken"),
    "handler": ("handler", "irq", "caller"),
    "issue": ("window_ns", "dev", "op", "sector", "bytes", "issued_ns", "queued_us"),
    "thread": ("thread", "priority", "policy", "flags"),
    "limit": ("dev", "value"),
    "path": ("thread", "bytes"),
    "file": (
        *("thread", "dev", "call", "wait", "begun_ns", "total_us", "bytes", "offset"),
        *("disk", "sector", "sector_end", "pid"),
    ),
    "split": ("thread", "begun_ns", "own_io_us", "cpu_us", "asleep_us", "longest_us", "holder"),
}
"""A record line's kind -> the fields that it may have. All are integers except rwbs, a word of letters."""
TEXTS = {
    "slow": "comm",
    "waiting": "comm",
    "resumed": "comm",
    "late": "comm",
    "handler": "name",
    "issue": "",
    "thread": "comm",
    "limit": "name",
    "path": "name",
    "file": "comm",
    "split": "stack",
}
UNFOLLOWED_FROM = 64
"""Codes of a path part: below it `paths`, from it on `unfollowed`."""
_OPS = {0: OPS[0], 1: OPS[1], 2: OPS[2], 3: OPS[3], 7: OPS[1]}
_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
MAX_IN_RANGE = 1 << 62
"""Greater numbers can't be compared by the sign of a difference."""
MAX_BYTES = 64 * 1024
_NEEDED = ("name", "purpose", "platform", "tool", "tier", "cost", "clock", "hooks", "requirements", "maps")
_OPTIONAL = (
    *("latency_from", "key", "keys", "parameters", "includes", "absent", "notes"),
    *("paths", "unfollowed", "contexts", "records", "needs", "group", "max_cpus", "unless", "sources", "ran_on"),
    "script",
)
_MERGED = ("parameters", "keys", "maps", "includes", "absent", "records")
_NOT_YAML = (yaml.YAMLError, RecursionError)
"""The latter of deep nesting."""
_COMMENT = {
    "bpftrace": re.compile(r"^\s*//.*\n|^\s*\n", re.MULTILINE),
    "dtrace": re.compile(r"^\s*/\*.*?\*/[ \t]*\n|^\s*\n", re.MULTILINE | re.DOTALL),
}
_SUFFIX = {"bpftrace": ".bt", "dtrace": ".d"}
_EVERY_FUNCTION = re.compile(r"fbt:[^:]*:[^:]*[*?\[][^:]*:|fbt:[^:]*::")
_MACRO = re.compile(r"^(?P<indent>\t*)\$(?P<index>\w+) = (?P<name>\w*bucket)\(\$(?P<value>\w+)\);$", re.MULTILINE)
_BUCKETS = {
    "bucket": r"""
\g<indent>$v = $\g<value>; $e = (uint64)0;
\g<indent>if ($v >= 65536) { $e = 16; $v = $v >> 16; }
\g<indent>if ($v >= 256) { $e = $e + 8; $v = $v >> 8; }
\g<indent>if ($v >= 16) { $e = $e + 4; $v = $v >> 4; }
\g<indent>if ($v >= 4) { $e = $e + 2; $v = $v >> 2; }
\g<indent>if ($v >= 2) { $e = $e + 1; }
\g<indent>$\g<index> = $\g<value>;
\g<indent>if ($e >= 3) { $\g<index> = (($e - 2) << 3) + (($\g<value> >> ($e - 3)) & 7); }
""".strip("\n"),
    "branchless_bucket": r"""
\g<indent>$v = ($\g<value> >> 3) | 1;
\g<indent>$e = (((uint64)65535 - $v) >> 63) << 4; $v = $v >> $e;
\g<indent>$a = (((uint64)255 - $v) >> 63) << 3; $v = $v >> $a; $e = $e + $a;
\g<indent>$a = (((uint64)15 - $v) >> 63) << 2; $v = $v >> $a; $e = $e + $a;
\g<indent>$a = (((uint64)3 - $v) >> 63) << 1; $v = $v >> $a; $e = $e + $a + ($v >> 1);
\g<indent>$\g<index> = ($e << 3) + ($\g<value> >> $e);
""".strip("\n"),
}
"""Macros such as `$i = bucket($u);` of bpftrace's scripts: model.histogram.bucket_index of $u below 2^32, which the
verifier accepts without a loop. They use $v, $e (the exponent of two) and $a. A program with several values needs the
one without branches, because the verifier follows each path."""
_TRACED = re.compile(r"\btraced\(([$>\w-]+)\)")
_FILTER = r"({{any_dev}} == 1 || @traced[(uint64)\1] != 0 || @traced[(uint64)0] != 0)"
"""Macro `traced($dev)` of bpftrace's scripts: whether the device is traced, by a map that latmon writes while they
run (`trace_devices` in latmon_backends/probe/launcher.py). Its key 0 means all devices; its values are when they were
added, in ns of CLOCK_BOOTTIME, else 0."""
_SAMPLED = re.compile(r"\bsampled\(([$>\w-]+)\)")
COARSER = "@traced[(uint64)4294967297]"
"""In bpftrace's scripts: how much coarser the sample is than at the start, a power of two less one."""
_SAMPLE = (
    r"((((uint64)\1 * 2654435761) >> 20) % {{one_in}} == 0"
    rf" && ((((uint64)\1 * 2654435761) >> 20) & {COARSER}) == 0)"
)
"""Macro `sampled($number)` of bpftrace's scripts: whether an I/O with this number is one of the sample, which is fixed
at the start (`one_in`) and made coarser by an entry of the same map: one I/O in value + 1, a power of two."""
_ELAPSED = re.compile(r"\belapsed_us\(([$\w.]+), ([$\w.]+)\)")
_US_BETWEEN = r"(\2 / 1000 - \1 / 1000)"
"""Macro `elapsed_us($begin, $end)` of bpftrace's scripts: microseconds between two stamps in ns.

Each stamp is truncated by itself: such differences are right on average, and those of consecutive stamps add up. A
truncated difference is 0.5 us low on average, which is a tenth of the time of a fast device.
"""
_LLQUANTIZE = re.compile(r"\bllquantize\((?P<value>.+?), 2, 3, 34, 16(?P<weight>(?:, .+)?)\);")
"""A histogram of eighths of a microsecond in a D script, at BITS."""
_KEY_BITS = 63
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def _declared_roles() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the roles of the maps of declared tables, each with the parts of its keys."""
    for table in TABLES:
        for role, content in table.roles.items():
            yield role, content.parts


DECLARED_ROLES: dict[str, tuple[str, ...]] = dict(_declared_roles())
ROLES: dict[str, tuple[str, ...]] = {
    "histogram": ("dev", "op", "bucket"),
    "sum": ("dev", "op"),
    "bytes": ("dev", "op"),
    "untimed": ("dev", "op"),
    "unmatched": ("dev", "op"),
    "max": ("dev", "op"),
    "by_total": ("dev", "op", "bucket"),
    "path": ("dev", "path"),
    "cause": ("dev", "context"),
    "completer": ("dev", "context"),
    "raiser": ("vec", "context"),
    "off": ("dev", "op"),
    "above": ("dev", "op"),
    "started": ("dev", "op"),
    "suppressed": ("dev",),
    "level": ("dev",),
    "handler_run": ("handler", "returned", "bucket"),
    "handler_sum": ("handler", "returned"),
    "handler_before": ("handler",),
    "wakeup": ("thread", "bucket"),
    "wakeup_sum": ("thread",),
    "wakeup_instead": ("thread", "other"),
    "wakeup_ran": ("thread", "other"),
    "depth_driver": ("dev", "depth"),
    "depth_queued": ("dev", "depth"),
    "depth_issue": ("dev", "depth"),
    "depth_ios": ("dev", "depth"),
    "depth_time": ("dev", "depth"),
    "depth_most": ("dev", "slot"),
    "depth_corrected": ("dev",),
    "depth_older": ("dev", "age"),
    "depth_since": (),
    "cgroup": ("slot", "dev"),
    "process": ("slot", "dev"),
    "behind": ("other", "slot", "dev"),
    "pattern": ("dev", "op", "pattern"),
    "file": ("dev", "wait", "call", "bucket"),
    "file_sum": ("dev", "wait", "call"),
    "file_max": ("dev", "wait", "call"),
    "file_suppressed": ("dev",),
    "file_own_io": ("dev", "call"),
    "file_cpu": ("dev", "call"),
    "file_asleep": ("dev", "call", "context"),
    **DECLARED_ROLES,
}
"""A map's role -> the parts that its key must have."""
PARTS = tuple(dict.fromkeys(part for parts in ROLES.values() for part in parts))


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A field packed into a map's integer key, `bits` wide, `shift` from the right; decoder: one of DECODERS."""

    name: str
    shift: int
    bits: int
    decoder: str

    def read(self, key: int) -> int:
        return (key >> self.shift) & ((1 << self.bits) - 1)

    def put(self, value: int) -> int | None:
        """Return the value shifted to its place; None where it doesn't fit."""
        return value << self.shift if 0 <= value < 1 << self.bits else None


@dataclass(frozen=True, slots=True)
class MapSpec:
    """Content of one cumulative map (for `level`: the value itself), by its role."""

    name: str
    role: str
    stages: tuple[str, ...] = ()
    """The series that it feeds."""
    rest_of: str = ""
    """The stage whose other I/Os, not counted by this histogram, are in its bucket 0."""
    key: tuple[KeyPart, ...] = ()
    contexts: tuple[str, ...] = ()
    """The names of a `context` part's codes."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Kernel function -> name in `contexts`, for the stacks of a `cause`."""
    skips: tuple[str, ...] = ()
    """Innermost functions that the name of another stack leaves out, because all such stacks have them."""

    @property
    def columns(self) -> tuple[KeyPart, ...]:
        """The parts in the order in which DTrace's script prints them; a bucket is a row of the table, not a column."""
        return tuple(part for part in self.key if part.name != "bucket")

    def part(self, name: str) -> KeyPart:
        """Return a part by name. KeyError where the key lacks it; it always has its role's parts."""
        for part in self.key:
            if part.name == name:
                return part
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """A line `KIND PROBE F1 F2 ... TEXT`: its fields in their order, and the name of the text at its end."""

    kind: str
    fields: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value of the script: an integer in [low, high], one of `words`, or at most `most` ranges of integers.

    Ranges are a text such as `8-15,100-200`, without one any number fits.
    """

    name: str
    low: int = 0
    high: int = 0
    words: tuple[str, ...] = ()
    most: int = 0
    default: int | str | None = None
    """Its value where none is given; None: one must be."""

    def check(self, value: int | str) -> str:
        """Return the text to substitute; ManifestError for a value that is not allowed."""
        if self.most:
            return overlap(self._ranges(value))
        if self.words:
            if value not in self.words:
                raise ManifestError(f"parameter {self.name} takes one of {', '.join(self.words)}, not {value!r}")
            return str(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ManifestError(f"parameter {self.name} takes an integer from {self.low} to {self.high}, not {value!r}")
        return str(value)

    def _ranges(self, value: int | str) -> list[tuple[int, int]]:
        parts = value.split(",") if isinstance(value, str) and value else []
        matches = [match for part in parts if (match := _RANGE.fullmatch(part))]
        ranges = [(int(match[1]), int(match[2])) for match in matches if int(match[1]) <= int(match[2]) < MAX_IN_RANGE]
        if value != "" and (len(ranges) != len(parts) or not 0 < len(parts) <= self.most):
            raise ManifestError(f"parameter {self.name} takes at most {self.most} ranges such as 8-15,100-200")
        return ranges


def overlap(ranges: Iterable[tuple[int, int]]) -> str:
    """Return bpftrace's condition that $low to $high overlaps one of the ranges; without any it holds.

    The highest bit of a range's term is its "no". The verifier follows each branch, and comparisons are branches.
    """
    terms = [f"(((uint64){high} - $low) | ($high - (uint64){low}))" for low, high in ranges]
    return f"(({' & '.join(terms)}) >> 63) == 0" if terms else "1 == 1"


def op_name(number: int) -> str:
    """Return the op of a REQ_OP number (include/linux/blk_types.h): zone append (7) is a write, others are `other`."""
    return _OPS.get(number, "other")


class Checks:
    """Checks of one file's values. Each returns the value, typed, or raises ManifestError."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, where: str, what: str) -> ManifestError:
        return ManifestError(f"{self.file}: {where}: {what}")

    def table(
        self, tree: Any, where: str, needed: tuple[str, ...] = (), optional: Iterable[str] | None = ()
    ) -> dict[str, Any]:
        """Return a table of keys; `optional` None allows every key."""
        if not isinstance(tree, dict):
            raise self.fail(where, "must be a table of keys")
        for key in tree:
            if optional is not None and key not in needed and key not in optional:
                raise self.fail(where, f"unknown key {key!r}")
        for key in needed:
            if key not in tree:
                raise self.fail(where, f"key {key!r} is missing")
        return tree

    def text(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.fail(where, "must be text")
        return " ".join(value.split())

    def integer(self, value: Any, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(where, "must be an integer")
        return value

    def within(self, value: Any, where: str, low: int, high: int) -> int:
        if not low <= self.integer(value, where) <= high:
            raise self.fail(where, f"must lie from {low} to {high}")
        return int(value)

    def word(self, value: Any, where: str, words: Iterable[str]) -> str:
        known = tuple(words)
        if value not in known:
            shown = repr(value) if isinstance(value, str | int) else f"a {type(value).__name__}"
            raise self.fail(where, f"must be one of {', '.join(known)}, not {shown}")
        return str(value)

    def words(self, value: Any, where: str, words: Iterable[str]) -> tuple[str, ...]:
        known = tuple(words)
        return tuple(self.word(each, where, known) for each in self.texts(value, where))

    def texts(self, value: Any, where: str, at_most: int | None = None) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.fail(where, "must be a list")
        if at_most is not None and len(value) > at_most:
            raise self.fail(where, f"must have at most {at_most}")
        return tuple(self.text(each, where) for each in value)


def _expanded(match: re.Match[str]) -> str:
    return match.expand(_BUCKETS[match["name"]]) if match["name"] in _BUCKETS else match[0]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One probe. `includes`: per measured stage the neighbours whose time it has; `absent`: why others are missing."""

    name: str
    path: Path
    purpose: str
    platform: str
    tool: str
    tier: str
    cost: str
    clock: str
    latency_from: str
    """queued or issue; empty where the script times no totals."""
    hooks: tuple[str, ...]
    requirements: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    keys: Mapping[str, tuple[KeyPart, ...]] = field(default_factory=dict)
    """Layouts of keys by name; that of `key:` has the empty name."""
    maps: tuple[MapSpec, ...] = ()
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    unfollowed: tuple[str, ...] = ()
    records: Mapping[str, RecordSpec] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Scripts whose maps this one reads: they come before it in the same program."""
    group: str = "always"
    max_cpus: int = 0
    """The most CPUs that it is for, because its cost grows with their number. 0: any."""
    unless: tuple[str, ...] = ()
    """Scripts that measure the same: where one of them runs, this one isn't needed."""
    sources: tuple[str, ...] = ()
    """The hooks and types that it uses: file and symbols of the platform's own sources."""
    ran_on: tuple[str, ...] = ()
    """The systems that it has been run on."""
    parents: tuple[Path, ...] = ()
    """The manifests that this one extends."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Replacements that make its script of its parent's; empty where it has a script of its own."""
    bits: int = BITS
    """The scale of its histograms; 0 for a DTrace without llquantize(), whose quantize() has one bucket per octave."""

    @property
    def script(self) -> Path:
        """The file with its script, or with its parent's if its own is made of it."""
        return (self.parents[0] if self.changes else self.path).with_suffix(_SUFFIX[self.tool])

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that determine its program."""
        return (self.path, self.script, *self.parents)

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(sorted({stage for spec in self.maps for stage in spec.stages} - {UNACCOUNTED}))

    @property
    def counted_tables(self) -> tuple[str, ...]:
        """Names of the declared tables whose rows are made of maps of this script."""
        printed = {spec.role for spec in self.maps}
        return tuple(table.name for table in TABLES if not printed.isdisjoint(table.roles))

    def path_name(self, code: int) -> str:
        """Return how a request completed, by a path part's code; empty for a code that the manifest doesn't list."""
        followed = code < UNFOLLOWED_FROM
        names, at = (self.paths, code) if followed else (self.unfollowed, code - UNFOLLOWED_FROM)
        return names[at] if 0 <= at < len(names) else ""

    @property
    def text(self) -> str:
        """The script's text. ManifestError if a replacement doesn't occur in the parent's."""
        text = self.script.read_text(encoding="utf-8")
        for old, new in self.changes.items():
            if old not in text:
                raise ManifestError(f"{self.path.name}: script: {self.script.name} has no {old!r}")
            text = text.replace(old, new)
        return re.sub(rf"\b{self.script.stem}(?=_|\b)", self.name, text) if self.changes else text

    @property
    def source(self) -> str:
        """The script's text without comment lines, with macros expanded."""
        text = _COMMENT[self.tool].sub("", self.text)
        if self.tool == "dtrace" and not self.bits:
            text = _LLQUANTIZE.sub(r"quantize(\g<value>\g<weight>);", text)
        if self.tool == "bpftrace":
            text = _ELAPSED.sub(_US_BETWEEN, _MACRO.sub(_expanded, text))
            text = _SAMPLED.sub(_SAMPLE, _TRACED.sub(_FILTER, text))
        return text

    def program(self, values: Mapping[str, int | str]) -> str:
        """Return the source with every `{{parameter}}` replaced by its checked value."""
        known = {p.name: p for p in self.parameters}

        def put(place: re.Match[str]) -> str:
            name = place[1]
            value = values.get(name, known[name].default) if name in known else None
            if value is None:
                raise ManifestError(f"{self.script.name}: no value for {{{{{name}}}}}")
            return known[name].check(value)

        return _PLACE.sub(put, self.source)


def load_all(directory: Path) -> list[Manifest]:
    """Return the manifests below `directory`, by name; ManifestError where one needs a probe that isn't there."""
    manifests = sorted((load(p) for p in directory.rglob("*.yaml")), key=lambda m: m.name)
    names = {manifest.name for manifest in manifests}
    for loaded in manifests:
        for missing in (*loaded.needs, *loaded.unless):
            if missing not in names:
                raise ManifestError(f"{loaded.path.name}: needs, unless: there is no probe {missing!r}")
    return manifests


def load(path: Path) -> Manifest:
    """Return one manifest; ManifestError names the file and the key that is wrong."""
    tree, parents = _extended(path)
    manifest = replace(_ManifestReader(path.name).manifest(path, tree), parents=parents)
    if manifest.changes and not parents:
        raise ManifestError(f"{path.name}: script: replaces texts of a parent's script, and it extends none")
    if not manifest.script.is_file():
        raise ManifestError(f"{path.name}: no script {manifest.script.name} beside it")
    return manifest


def _extended(path: Path, variants: tuple[str, ...] = ()) -> tuple[Any, tuple[Path, ...]]:
    """Return a manifest's tree merged with its parent's, the manifest that `extends:` names, and all parents' paths.

    A key replaces the parent's. Tables of _MERGED are merged entry by entry. A null removes a key or an entry. Names of
    maps begin with the manifest's name, so the parent's maps are renamed. The parent's `script:` is not inherited.
    `variants`: manifests that extend this one.
    """
    tree = _parsed(path)
    if not isinstance(tree, dict) or "extends" not in tree:
        return tree, ()
    own = {key: value for key, value in tree.items() if key != "extends"}
    name = _ManifestReader(path.name).text(tree["extends"], "extends")
    parent = path.with_name(f"{name}.yaml") if re.fullmatch(r"\w+", name) else path.parent
    if not parent.is_file():
        raise ManifestError(f"{path.name}: extends: there is no manifest {name!r} in its directory")
    if name in (path.stem, *variants):
        raise ManifestError(f"{path.name}: extends: a cycle, {name} extends {path.stem}")
    merged, parents = _extended(parent, (path.stem, *variants))
    if not isinstance(merged, dict):
        raise ManifestError(f"{path.name}: extends: {parent.name} is not a table of keys")
    merged.pop("script", None)
    if isinstance(merged.get("maps"), dict):
        merged["maps"] = {
            path.stem + str(name).removeprefix(parent.stem): value for name, value in merged["maps"].items()
        }
    for key, value in own.items():
        both = key in _MERGED and isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _without_null(merged[key] | value) if both else value
    return _without_null(merged), (parent, *parents)


def _without_null(table: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _parsed(path: Path) -> Any:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{path.name}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ManifestError(f"{path.name}: larger than {MAX_BYTES // 1024} KiB")
    try:
        return strict_yaml.load(raw)
    except _NOT_YAML as error:
        raise ManifestError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error


class _ManifestReader(Checks):
    """Reader of a manifest's YAML tree; an error names the key that is wrong."""

    has_columns = False
    """DTrace prints the parts of a key side by side, bpftrace one integer."""

    def manifest(self, path: Path, tree: Any) -> Manifest:
        top = self.table(tree, "manifest", _NEEDED, _OPTIONAL)
        name = self.text(top["name"], "name")
        if name != path.stem:
            raise self.fail("name", f"must be the file's: {path.stem}")
        tool = self.word(top["tool"], "tool", TOOLS)
        self.has_columns = tool == "dtrace"
        keys = self.keys(top)
        cost = self.word(top["cost"], "cost", COSTS)
        contexts = self.texts(top.get("contexts", []), "contexts")
        group = self.word(top.get("group", "always"), "group", GROUPS)
        if group == "always" and cost == "invasive":
            raise self.fail("cost", "a probe that always runs can't be invasive: it must be requested")
        return Manifest(
            name=name,
            path=path,
            purpose=self.text(top["purpose"], "purpose"),
            platform=self.word(top["platform"], "platform", PLATFORMS),
            tool=tool,
            tier=self.text(top["tier"], "tier"),
            cost=cost,
            clock=self.word(top["clock"], "clock", CLOCKS),
            latency_from=self.latency_from(top),
            hooks=self.hooks(top, cost),
            requirements=self.texts(top["requirements"], "requirements"),
            parameters=tuple(self.parameter(key, value) for key, value in self.any(top, "parameters").items()),
            keys=keys,
            maps=tuple(self.map(name, key, value, keys, contexts) for key, value in self.any(top, "maps").items()),
            includes={
                stage: self.words(value, f"includes.{stage}", (*STAGES, THROTTLING))
                for stage, value in self.table(top.get("includes", {}), "includes", (), (*STAGES, ADMISSION)).items()
            },
            absent={
                stage: self.text(value, f"absent.{stage}")
                for stage, value in self.table(top.get("absent", {}), "absent", (), STAGES).items()
            },
            notes=self.texts(top.get("notes", []), "notes"),
            paths=self.texts(top.get("paths", []), "paths", UNFOLLOWED_FROM),
            unfollowed=self.texts(top.get("unfollowed", []), "unfollowed", UNFOLLOWED_FROM),
            records={
                kind: self.record(kind, value)
                for kind, value in self.table(top.get("records", {}), "records", (), RECORDS).items()
            },
            needs=self.texts(top.get("needs", []), "needs"),
            group=group,
            max_cpus=self.within(top.get("max_cpus", 0), "max_cpus", 0, 1 << 16),
            unless=self.texts(top.get("unless", []), "unless"),
            sources=self.texts(top.get("sources", []), "sources"),
            ran_on=self.texts(top.get("ran_on", []), "ran_on"),
            changes=self.changes(top),
        )

    def hooks(self, top: dict[str, Any], cost: str) -> tuple[str, ...]:
        """Return the hooks; one on every function of a module, or of the kernel, must be declared invasive."""
        hooks = self.texts(top["hooks"], "hooks")
        many = [hook for hook in hooks if _EVERY_FUNCTION.match(hook)]
        if many and cost != "invasive":
            raise self.fail("hooks", f"{many[0]} is more than one function: its cost must be invasive")
        return hooks

    def changes(self, top: dict[str, Any]) -> dict[str, str]:
        """Return the replacements in the parent's script."""
        changes = self.any(top, "script")
        for old, new in changes.items():
            if not isinstance(old, str) or not old or not isinstance(new, str):
                raise self.fail("script", "must be a table of texts and their replacements")
        return changes

    def any(self, top: dict[str, Any], name: str) -> dict[str, Any]:
        return self.table(top.get(name, {}), name, (), None)

    def latency_from(self, top: dict[str, Any]) -> str:
        """Return where totals begin; an always-on probe must declare it, because its totals are the latency."""
        if top.get("group", "always") == "always":
            self.table(top, "manifest", ("latency_from",), None)
        elif "latency_from" not in top:
            return ""
        return self.word(top["latency_from"], "latency_from", ("queued", "issue"))

    def parameter(self, name: str, tree: Any) -> Parameter:
        where = f"parameters.{name}"
        fields = self.table(tree, where, ("type",), ("low", "high", "words", "most", "default"))
        kind = self.word(fields["type"], where, ("integer", "word", "ranges"))
        if kind == "word":
            parameter = Parameter(name, words=self.texts(fields.get("words"), where))
        elif kind == "ranges":
            parameter = Parameter(name, most=self.within(fields.get("most"), where, 1, 64))
        else:
            parameter = Parameter(name, self.integer(fields.get("low"), where), self.integer(fields.get("high"), where))
        if "default" not in fields:
            return parameter
        try:
            parameter.check(fields["default"])
        except ManifestError as error:
            raise self.fail(where, f"default: {error}") from None
        return replace(parameter, default=fields["default"])

    def keys(self, top: dict[str, Any]) -> dict[str, tuple[KeyPart, ...]]:
        """Return the layouts by name; `key` is that of the maps that name none."""
        keys = {name: self.layout(tree, f"keys.{name}") for name, tree in self.any(top, "keys").items()}
        if "key" in top or "keys" not in top:
            self.table(top, "manifest", ("key",), None)
            keys[""] = self.layout(top["key"], "key", ("dev", "op", "bucket"))
        return keys

    def layout(self, tree: Any, where: str, needed: tuple[str, ...] = ()) -> tuple[KeyPart, ...]:
        """Return a key's parts: from a table with the place of each in a packed key, or a list of DTrace's columns."""
        if isinstance(tree, list) and self.has_columns:
            return self.packed(self.words(tree, where, PARTS), where)
        fields = self.table(tree, where, needed, PARTS)
        return tuple(self.part(name, value, f"{where}.{name}") for name, value in fields.items())

    def packed(self, names: tuple[str, ...], where: str) -> tuple[KeyPart, ...]:
        key_parts: list[KeyPart] = []
        free = 0
        for name in reversed(names):
            bits = WIDTHS.get(name, 8)
            decoder = "name" if name in NAMED else name if name in DECODERS else "integer"
            key_parts.insert(0, KeyPart(name, free, bits, decoder))
            free += bits
        if len(set(names)) < len(names) or free > _KEY_BITS:
            raise self.fail(where, f"names a part twice, or more than {_KEY_BITS} bits of parts")
        return tuple(key_parts)

    def part(self, name: str, tree: Any, where: str) -> KeyPart:
        fields = self.table(tree, where, ("shift", "bits", "decoder"))
        decoder = self.word(fields["decoder"], where, DECODERS)
        shift, bits = self.within(fields["shift"], where, 0, 63), self.within(fields["bits"], where, 1, 64)
        return KeyPart(name, shift, bits, decoder)

    def map(
        self, probe: str, name: str, tree: Any, keys: Mapping[str, tuple[KeyPart, ...]], contexts: tuple[str, ...]
    ) -> MapSpec:
        where = f"maps.{name}"
        if not str(name).startswith(probe + "_"):
            raise self.fail(where, f"a map's name begins with {probe}_")
        fields = self.table(tree, where, ("role",), ("stages", "rest_of", "key", "contexts", "functions", "skips"))
        # YAML 1.1 reads a plain off as false.
        role = self.word("off" if fields["role"] is False else fields["role"], where, ROLES)
        stages = self.words(fields.get("stages", []), where, (*STAGES, UNACCOUNTED, *FROM_SUBMISSION))
        if bool(stages) != (role in FEED_STAGES):
            raise self.fail(where, "histogram, sum, max, by_total feed stages, the others don't")
        rest_of = self.word(fields["rest_of"], where, (*STAGES, WHOLE)) if "rest_of" in fields else ""
        key = self.layout_of(fields.get("key"), role, where, keys)
        own = self.texts(fields["contexts"], where) if "contexts" in fields else contexts
        functions = self.functions(fields, where)
        if bool(functions) != (role in WAITS):
            raise self.fail(where, f"{' and '.join(WAITS)} have functions, nothing else has")
        skips = self.texts(fields.get("skips", []), where)
        if bool(skips) != (role in STACKS and not functions):
            raise self.fail(where, "a completer and a raiser have skips, nothing else has")
        names = tuple(dict.fromkeys(functions.values())) if functions else own
        return MapSpec(
            name=name,
            role=role,
            stages=stages,
            rest_of=rest_of,
            key=key,
            contexts=names,
            functions=functions,
            skips=skips,
        )

    def functions(self, fields: dict[str, Any], where: str) -> dict[str, str]:
        """Return the names by the functions of a kernel stack."""
        function_fields = self.table(fields.get("functions", {}), f"{where}.functions", (), None)
        return {str(name): self.text(value, f"{where}.functions.{name}") for name, value in function_fields.items()}

    def layout_of(
        self, name: Any, role: str, where: str, keys: Mapping[str, tuple[KeyPart, ...]]
    ) -> tuple[KeyPart, ...]:
        """Return a map's layout: the one that it names, `key`, or the only one; it must have the parts of its role."""
        if name is None and len(keys) != 1 and "" not in keys:
            raise self.fail(where, f"must name its key, one of {', '.join(keys)}")
        default = "" if "" in keys else next(iter(keys))
        key = keys[default if name is None else self.word(name, where, keys)]
        missing = [part for part in ROLES[role] if part not in {part.name for part in key}]
        if missing:
            raise self.fail(where, f"role {role} needs {', '.join(missing)} in its key")
        return key

    def record(self, kind: str, tree: Any) -> RecordSpec:
        where = f"records.{kind}"
        tables = self.table(tree, where, ("fields",), ("text",))
        fields = self.words(tables["fields"], where, RECORDS[kind])
        if len(set(fields)) < len(fields):
            raise self.fail(where, "names a field twice")
        text = self.word(tables["text"], where, (TEXTS[kind],)) if "text" in tables else ""
        return RecordSpec(kind, fields, text)
