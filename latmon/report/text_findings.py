"""The text of what rules found: a paragraph each, with its evidence, what to do next and what would refute it.

Reads the summary alone; every line fits a ticket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latmon.report.wrapping import wrapped
from latmon.views.units import UNKNOWN

MAX_FINDINGS = 20
_Json = Mapping[str, Any]


def findings(summary: _Json) -> list[str]:
    """The most urgent first; `findings: none` and by what, where rules were asked; nothing where none was."""
    if "findings" not in summary:
        return []
    found = summary["findings"]
    if not found:
        return wrapped(f"findings: none ({judged(summary)})")
    lines = [f"findings ({judged(summary)}):"]
    for one in found[:MAX_FINDINGS]:
        lines += _finding(one)
    return [*lines, *([f"  and {len(found) - MAX_FINDINGS:,} more"] if len(found) > MAX_FINDINGS else [])]


def judged(summary: _Json) -> str:
    """How they came about: `11 rules, over each minute`."""
    by = summary["findings_by"]
    how = "every 5 s over the last minute" if by["judged_by"] == "windows" else "minute by minute"
    off = f"; off by the config: {', '.join(by['rules_off'])}" if "rules_off" in by else ""
    return f"{by['rules']} rules, {how}{off}"


def when(one: _Json) -> str:
    """From its first block to its last, and how often it came and went."""
    begin, end = one["begin"] or UNKNOWN, one["end"] or UNKNOWN
    span = f"at {begin}" if begin == end else f"{begin} to {end}"
    return span if one["episodes"] == 1 else f"{span}, {one['episodes']:,} times"


def _finding(one: _Json) -> Iterator[str]:
    device = f"  {one['device']}" if one["device"] else ""
    yield from wrapped(f"{one['severity'].upper()}  {one['id']}{device}  {when(one)}", "  ")
    yield from wrapped(f"{one['summary']}.", "    ")
    for fact in one["evidence"].values():
        yield from wrapped(f"- {fact['text']}", "    ")
    for step in one["next_steps"]:
        yield from wrapped(f"next: {step['text']} (risk: {step['risk']})", "    ")
    yield from wrapped(f"refuted by: {one['refuted_by']}", "    ")
