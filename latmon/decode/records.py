"""Decoder of a probe's record lines, `KIND PROBE F1 F2 ... TEXT`, by the fields in its manifest.

Owns the limits of fields: -1 means not known and is left out; any other impossible value makes the line undecoded.
Knows neither the tool that printed the line nor what joins records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from latmon.manifest.schema import RecordSpec
from latmon.support.text import clean

_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_RWBS = re.compile(r"[A-Z]{1,10}", re.ASCII)
_ALL_BITS = 2**64 - 1
_MOST = 2**63 - 1
_MOST_OF = {
    **dict.fromkeys(("request", "handler", "flags"), _ALL_BITS),
    **dict.fromkeys(("pid", "thread", "instead", "outstanding", "overtaken", "bytes", "dev", "irq"), 2**32 - 1),
    **dict.fromkeys(("cpu_issue", "cpu_complete"), 0xFFFF),
    **dict.fromkeys(("op", "path"), 0xFF),
    # Linux' p->prio: 0 to 139, a deadline thread's -1 is left out as if it were not known; Solaris' t_pri: 0 to 169;
    # FreeBSD's td_priority: 0 to 255.
    **dict.fromkeys(("priority", "instead_priority"), 255),
    "policy": 0xFF,
    "issued": 1,
}
_MOST_US = 2**40
"""12 days. A longer time of a request is a wrong stamp."""
_STAMPS = ("begun_ns", "done_ns", "woken_ns", "issued_ns")


@dataclass(frozen=True, slots=True)
class Record:
    """A record line. `fields` has the known numbers; `rwbs` is the only field of letters; `text` is clean."""

    kind: str
    probe: str
    fields: Mapping[str, int] = field(default_factory=dict)
    rwbs: str = ""
    text: str = ""

    def get(self, name: str) -> int | None:
        return self.fields.get(name)


def record(line: str, spec: RecordSpec) -> Record | None:
    """Return the line's record; None if it is torn or has an impossible value."""
    words = line.split(" ", 2 + len(spec.fields))
    if len(words) == 2 + len(spec.fields):
        words.append("")
    if len(words) != 3 + len(spec.fields) or (words[-1] and not spec.text) or words[0] != spec.kind:
        return None
    fields: dict[str, int] = {}
    rwbs = ""
    for name, word in zip(spec.fields, words[2:-1], strict=True):
        if name == "rwbs" and _RWBS.fullmatch(word):
            rwbs = word
        elif name == "rwbs" or not _INTEGER.fullmatch(word):
            return None
        elif (value := _known(name, int(word))) is not None:
            if not _is_sane(name, value):
                return None
            fields[name] = value
    return Record(spec.kind, clean(words[1]), fields, rwbs, clean(words[-1]))


def shifted(one: Record, ahead_ns: int) -> Record:
    """Return the record with the stamps of a clock that is ahead moved back."""
    if not ahead_ns:
        return one
    moved = {name: one.fields[name] - ahead_ns for name in _STAMPS if name in one.fields}
    return replace(one, fields={**one.fields, **moved})


def _known(name: str, value: int) -> int | None:
    """Return the value; None for -1, which an unsigned conversion prints as 2^64 - 1. A pointer may be signed."""
    if value in (-1, _ALL_BITS):
        return None
    return value & _ALL_BITS if _MOST_OF.get(name) == _ALL_BITS and value >= -_MOST else value


def _is_sane(name: str, value: int) -> bool:
    most = _MOST_US if name.endswith("_us") else _MOST_OF.get(name, _MOST)
    return 0 <= value <= most
