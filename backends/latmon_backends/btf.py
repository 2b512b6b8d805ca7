"""The little that is needed of kernel BTF: which argument of a raw tracepoint is the request.

Format: Documentation/bpf/btf.rst. Argument counts decide, because version numbers lie: RHEL 8.7's 4.18 and stable
5.10.137 have the one-argument tracepoints of 5.11. Reads bytes, runs nothing; a file it can't read says None.
"""

from __future__ import annotations

import struct
from pathlib import Path

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_PTR, _TYPEDEF, _FUNC_PROTO = 2, 8, 13
# Bytes behind a type's 12: fixed, or per member (vlen).
_FIXED = {1: 4, 3: 12, 14: 4, 17: 4}
_PER_MEMBER = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}


def request_argument(path: Path, tracepoint: str) -> int | None:
    """Index of `struct request *` among the tracepoint's arguments: 0 for (rq), 1 for (q, rq); None when not known."""
    try:
        count = arguments(path.read_bytes(), f"btf_trace_{tracepoint}")
    except (OSError, struct.error, ValueError):
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
    types = memoryview(blob)[header + type_at : header + type_at + type_size]
    offsets = _offsets(types)
    for at in offsets:
        name, info, target = _TYPE.unpack_from(types, at)
        if name == wanted and _kind(info) == _TYPEDEF:
            return _parameters(types, offsets, target)
    return None


def _offsets(types: memoryview) -> list[int]:
    """Where each type begins; a type's id is its place in this list, from 1."""
    offsets, at = [], 0
    while at < len(types):
        offsets.append(at)
        info = int.from_bytes(types[at + 4 : at + 8], "little")
        kind = _kind(info)
        at += 12 + _FIXED.get(kind, 0) + _PER_MEMBER.get(kind, 0) * (info & 0xFFFF)
    return offsets


def _parameters(types: memoryview, offsets: list[int], number: int) -> int | None:
    """Follows typedef -> pointer -> function."""
    for _ in range(4):
        if not 0 < number <= len(offsets):
            return None
        _, info, target = _TYPE.unpack_from(types, offsets[number - 1])
        if _kind(info) == _FUNC_PROTO:
            return int(info) & 0xFFFF
        if _kind(info) not in (_PTR, _TYPEDEF):
            return None
        number = target
    return None


def _kind(info: int) -> int:
    return (info >> 24) & 0x1F
