"""Hooks of this kernel: tracepoints from tracefs or BTF, arguments of raw tracepoints.

Format: Documentation/bpf/btf.rst. Argument counts decide, because version numbers lie: RHEL 8.7's 4.18 and stable
5.10.137 have the one-argument tracepoints of 5.11. It reads files and runs nothing; None where a file can't be read.

Roots are arguments; nothing is mounted, run or kept open. "Not known" is an answer: then one has to try.
"""

from __future__ import annotations

import struct
from functools import cached_property
from pathlib import Path

from latmon.support.paths import content
from latmon.support.text import clean

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_PTR, _ENUM, _TYPEDEF, _FUNC_PROTO = 2, 6, 8, 13
# 32-bit words of each kind (0 to 19): always 3, some more, and some more per member (vlen).
_WORDS = (3, 4, 3, 6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 3, 3, 4, 3, 3)
_PER_MEMBER = (0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3)


def request_argument(path: Path, tracepoint: str) -> int | None:
    """Return the index of `struct request *` among the arguments: 0 for (rq), 1 for (q, rq); None when not known."""
    try:
        count = arguments(path.read_bytes(), f"btf_trace_{tracepoint}")
    except (OSError, struct.error, ValueError, IndexError):
        return None
    # The first is the void * of every btf_trace_ typedef.
    return {2: 0, 3: 1}.get(count or 0)


_CGROUP = "$rq->bio->bi_blkg->blkcg->css.cgroup->kn->id"
CGROUPS = (_CGROUP, f"{_CGROUP}.id", "0")
"""Number of the cgroup that a request is charged to: since 5.5, before; where the kernel charges I/O to none."""


def cgroup_of_request(path: Path) -> dict[str, str]:
    """Return the words for this kernel: those for none also where its types can't be read."""
    types = content(path)
    if b"\0bi_blkg\0" not in types:
        return {"group": "0", "cgroup": CGROUPS[-1]}
    return {"group": "$rq->bio->bi_blkg", "cgroup": CGROUPS[b"\0kernfs_node_id\0" in types]}


def enumerators(path: Path, enum: str) -> dict[str, int]:
    """Name -> value of an enum of 32 bits; empty when it is not known."""
    try:
        return values(path.read_bytes(), enum)
    except (OSError, struct.error, ValueError, IndexError):
        return {}


def arguments(blob: bytes, typedef: str) -> int | None:
    """Return the number of parameters of a typedef to a function pointer; ValueError when it isn't BTF."""
    types, strings = _areas(blob)
    wanted = _place(strings, typedef)
    offsets = _offsets(types) if wanted else []
    for at in offsets:
        if types[at] == wanted and _kind(types[at + 1]) == _TYPEDEF:
            return _parameters(types, offsets, types[at + 2])
    return None


def values(blob: bytes, enum: str) -> dict[str, int]:
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


_EVENTS = ("kernel/tracing/events", "kernel/debug/tracing/events")


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
