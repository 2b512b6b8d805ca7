"""peer-outlier: one of several like devices has a far slower tail, and keeps it."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule("peer-outlier", "one of several like devices has a far slower tail, and keeps it", judge)
