"""The text of a capture's marks and settings: what was noted when, what had changed by then, how the host was set.

Reads the summary alone; every line fits a ticket. Of many settings the first few are here, the JSON has all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latmon.report.wrapping import wrapped
from latmon.views.units import UNKNOWN

MAX_MARKS = 20
MAX_SECTIONS = 40
MAX_NAMES = 12
"""Of a section."""
_MAIN = ("kernel", "tool", "clock", "module ", "device ")
"""How sections begin that a ticket needs, in this order; probes are known by their hashes in the JSON."""
_Json = Mapping[str, Any]


def marks(summary: _Json) -> list[str]:
    """A line per mark, and what was set otherwise than at the start."""
    found = summary.get("marks", [])
    if not found:
        return []
    lines = ["marks:"]
    for one in found[:MAX_MARKS]:
        lines += wrapped(f"{one['time'] or UNKNOWN}  {one['text'] or '(no note)'}", "  ")
        lines += [line for said in changes(one["changed"]) for line in wrapped(said, "    ")]
    return [*lines, *_rest(len(found) - MAX_MARKS, "marks")]


def changes(changed: Mapping[str, Mapping[str, str]] | None) -> list[str]:
    """`device sda: scheduler is now none`, a sentence per section; none where nobody read them."""
    return [
        f"{section}: " + ", ".join(f"{name} is {f'now {value}' if value else 'gone'}" for name, value in values.items())
        for section, values in (changed or {}).items()
    ]


def settings(summary: _Json) -> list[str]:
    """A paragraph per section; sections that say the same of several devices are one."""
    found = summary.get("settings", {})
    told = sorted((one for one in found if _rank(one) < len(_MAIN)), key=lambda one: (_rank(one), one))
    lines = ["settings at the start:"] if told else []
    same: dict[str, list[str]] = {}
    for section in told:
        same.setdefault("; ".join(_named(found[section])), []).append(section)
    for said, sections in list(same.items())[:MAX_SECTIONS]:
        kind = sections[0].partition(" ")[0]
        names = ", ".join(one.partition(" ")[2] for one in sections)
        lines += wrapped(f"{kind} {names}".strip() + f": {said}", "  ")
    lines += _rest(len(same) - MAX_SECTIONS, "sections")
    others = len(found) - len(told)
    return lines + ([f"  and {others:,} sections that --json has"] if others and told else [])


def _named(values: Mapping[str, str]) -> Iterator[str]:
    for name, value in list(values.items())[:MAX_NAMES]:
        yield f"{name} {value}"
    if len(values) > MAX_NAMES:
        yield f"and {len(values) - MAX_NAMES:,} more"


def _rank(section: str) -> int:
    return next((at for at, begin in enumerate(_MAIN) if section.startswith(begin)), len(_MAIN))


def _rest(more: int, what: str) -> list[str]:
    return [f"  and {more:,} more {what} (--json has them)"] if more > 0 else []
