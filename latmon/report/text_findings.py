"""The text of what rules found: a paragraph each, with its evidence, what to do next and what would refute it.

Reads the summary alone; every line fits a ticket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latmon.findings.finding import sized
from latmon.findings.needs import who_judged
from latmon.report.wrapping import wrapped
from latmon.words import UNKNOWN, spelled

MAX_FINDINGS = 20
_Json = Mapping[str, Any]


def findings(summary: _Json) -> list[str]:
    """The most urgent first; `findings: none` and by what, where rules were asked; nothing where none was."""
    if "findings" not in summary:
        return []
    found = summary["findings"]
    if not found:
        return wrapped(f"findings: none ({judged(summary)})")
    lines = wrapped(f"findings ({judged(summary)}):")
    for one in found[:MAX_FINDINGS]:
        lines += _finding(one)
    return [*lines, *([f"  and {len(found) - MAX_FINDINGS:,} more"] if len(found) > MAX_FINDINGS else [])]


def judged(summary: _Json) -> str:
    """How they came about: `11 rules, minute by minute`, and which of them couldn't judge."""
    by = summary["findings_by"]
    who, why = who_judged(by["rules"], by["not_judged"], by.get("failed", {}))
    how = "every 5 s over the last minute" if by["judged_by"] == "windows" else "minute by minute"
    off = f"off by the config: {', '.join(by['rules_off'])}" if "rules_off" in by else ""
    left = f"{by['episodes_left_out']:,} episodes left out" if "episodes_left_out" in by else ""
    return "; ".join(filter(None, (f"{who}, {how}", why, off, left)))


def when(one: _Json) -> str:
    """From its first block to its last, and how often it came and went."""
    begin, end = one["begin"] or UNKNOWN, one["end"] or UNKNOWN
    span = f"at {begin}" if begin == end else f"{begin} to {end}"
    return span if one["episodes"] == 1 else f"{span}, {one['episodes']:,} times"


def fact_said(fact: _Json) -> str:
    """With how many samples it is of, where the words don't say so."""
    return sized(fact["text"], fact.get("samples"))


def shown_on(one: _Json) -> str:
    """The view that shows the evidence: `stages screen, sdc, 100 ms and more`."""
    view = one["view"]
    low, high = (spelled(view[name]) if name in view else "" for name in ("low_us", "high_us"))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    parts = (f"{view.get('screen', '')} screen", view.get("device"), view.get("op"), region)
    return ", ".join(part for part in parts if part)


def _finding(one: _Json) -> Iterator[str]:
    device = f"  {one['device']}" if one["device"] else ""
    yield from wrapped(f"{one['severity'].upper()}  {one['id']}{device}  {when(one)}", "  ")
    yield from wrapped(f"{one['summary']}.", "    ")
    for fact in one["evidence"].values():
        yield from wrapped(f"- {fact_said(fact)}", "    ")
    yield from wrapped(f"shown on: {shown_on(one)}", "    ")
    for step in one["next_steps"]:
        yield from wrapped(f"next: {step['text']} (risk: {step['risk']})", "    ")
    yield from wrapped(f"refuted by: {one['refuted_by']}", "    ")
