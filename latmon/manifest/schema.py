"""The schema of a manifest: keys, maps and their roles, records, parameters, and checks that name file and key.

The words that a manifest may use are listed here; loader.py applies the checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from latmon.model.frame import OPS
from latmon.model.stages import MEASURED_STAGES, UNACCOUNTED
from latmon.support.errors import ManifestError

PLATFORMS = ("linux", "illumos", "freebsd", "portable")
"""portable: wherever its tool has the hooks."""
TOOLS = ("bpftrace", "dtrace")
COSTS = ("cheap", "moderate", "invasive")
CLOCKS = ("monotonic", "boottime", "hrtime")
"""hrtime: the tool's own clock, which is neither of the others."""
GROUPS = (
    "always",
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
"""always: from the first frame to the last. trace: `latmon trace` alone. The others are traced on demand."""
DECODERS = ("dev_t", "op", "bucket", "depth", "integer", "name")
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
    "softirq_delay": ("vec", "cpu", "bucket"),
    "softirq_delay_sum": ("vec", "cpu"),
    "softirq_run": ("vec", "cpu", "bucket"),
    "softirq_run_sum": ("vec", "cpu"),
    "softirq_ran_in": ("vec", "cpu", "context"),
    "softirq_raised_in": ("vec", "cpu", "context"),
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
    "size_latency": ("size", "dev", "op", "bucket"),
    "size_sum": ("size", "dev", "op"),
    "size_bytes": ("size", "dev", "op"),
    "pattern": ("dev", "op", "pattern"),
    "file": ("dev", "wait", "call", "bucket"),
    "file_sum": ("dev", "wait", "call"),
    "file_max": ("dev", "wait", "call"),
    "file_suppressed": ("dev",),
}
"""A map's role -> the parts that its key must have."""
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
}
"""Bits of a part where the reader packs the key; 8 of all others."""
TABLE_ROLES = {
    "softirqs": "softirq",
    "handlers": "handler",
    "wake-ups": "wakeup",
    "issues": "issue",
    "issuers": "cgroup",
    "processes": "process",
    "sizes": "size_latency",
    "files": "file",
}
"""Table -> the beginning of the roles of its maps, or of its record's name."""
STACKS = ("cause", "completer", "raiser")
"""Roles whose script has a kernel stack in place of the code in `context`."""
FEED_STAGES = ("histogram", "sum", "max", "by_total")
PARTS = tuple(dict.fromkeys(part for parts in ROLES.values() for part in parts))
TIMES = ("total_us", *(f"{stage}_us" for stage in MEASURED_STAGES if stage != "resume"), f"{UNACCOUNTED}_us")
"""Times of one I/O; `resume` is a record of its own, after the I/O completed."""
RECORDS: dict[str, tuple[str, ...]] = {
    "slow": (
        *("request", "dev", "op", "flags", "rwbs", "sector", "bytes", "begun_ns", "done_ns", *TIMES),
        *("cpu_issue", "cpu_complete", "pid", "path", "outstanding", "overtaken", "thread"),
        *("admission_us", "inserted_us"),
    ),
    "resumed": ("request", "dev", "sector", "done_ns", "resume_us", "thread", "priority"),
    "late": ("thread", "priority", "woken_ns", "delay_us", "instead", "instead_priority", "ran_us"),
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
}
UNFOLLOWED_FROM = 64
"""Codes of a path part: below it `paths`, from it on `unfollowed`."""
_OPS = {0: OPS[0], 1: OPS[1], 2: OPS[2], 3: OPS[3], 7: OPS[1]}


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
        found = [match for part in parts if (match := _RANGE.fullmatch(part))]
        ranges = [(int(one[1]), int(one[2])) for one in found if int(one[1]) <= int(one[2]) < MAX_IN_RANGE]
        if value != "" and (len(ranges) != len(parts) or not 0 < len(parts) <= self.most):
            raise ManifestError(f"parameter {self.name} takes at most {self.most} ranges such as 8-15,100-200")
        return ranges


_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
MAX_IN_RANGE = 1 << 62
"""Greater numbers can't be compared by the sign of a difference."""


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
