"""The little that is needed of kernel BTF: which argument of a raw tracepoint is the request.

Format: Documentation/bpf/btf.rst. Argument counts decide, because version numbers lie: RHEL 8.7's 4.18 and stable
5.10.137 have the one-argument tracepoints of 5.11. Reads bytes, runs nothing; a file it can't read says None.
"""

from __future__ import annotations

import struct
from pathlib import Path

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_PTR, _TYPEDEF, _FUNC_PROTO = 2, 8, 13
# 32-bit words of each kind (0 to 19): always 3, some more, and some more per member (vlen).
_WORDS = (3, 4, 3, 6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 3, 3, 4, 3, 3)
_PER_MEMBER = (0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3)


def request_argument(path: Path, tracepoint: str) -> int | None:
    """Index of `struct request *` among the tracepoint's arguments: 0 for (rq), 1 for (q, rq); None when not known."""
    try:
        count = arguments(path.read_bytes(), f"btf_trace_{tracepoint}")
    except (OSError, struct.error, ValueError, IndexError):
        return None
    # The first is the void * of every btf_trace_ typedef.
    return {2: 0, 3: 1}.get(count or 0)


def arguments(blob: bytes, typedef: str) -> int | None:
    """How many parameters the function behind a typedef to a function pointer takes; ValueError when it isn't BTF."""
    magic, _, _, header, type_at, type_size, string_at, string_size = _HEADER.unpack_from(blob)
    if magic != _MAGIC:
        raise ValueError("not little-endian BTF")
    strings = blob[header + string_at : header + string_at + string_size]
    wanted = strings.find(b"\0" + typedef.encode() + b"\0") + 1
    if not wanted:
        return None
    area = memoryview(blob)[header + type_at : header + type_at + type_size]
    types = area[: len(area) // 4 * 4].cast("I")
    offsets = _offsets(types)
    for at in offsets:
        if types[at] == wanted and _kind(types[at + 1]) == _TYPEDEF:
            return _parameters(types, offsets, types[at + 2])
    return None


def _offsets(types: memoryview[int]) -> list[int]:
    """Where each type begins, in words: a type's id is its place here, from 1; IndexError for an unknown kind."""
    offsets, at, end = [], 0, len(types)
    while at < end:
        offsets.append(at)
        info = types[at + 1]
        kind = (info >> 24) & 0x1F  # as _kind: a call for each of 150,000 types would take as long as all the rest
        at += _WORDS[kind] + _PER_MEMBER[kind] * (info & 0xFFFF)
    return offsets


def _parameters(types: memoryview[int], offsets: list[int], number: int) -> int | None:
    """Follows typedef -> pointer -> function."""
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
