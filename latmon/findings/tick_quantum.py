"""tick-quantum: I/Os take just below one or two timer ticks, and nothing in between."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule("tick-quantum", "I/Os take just below one or two timer ticks, and nothing in between", judge)
