"""outstanding-ceiling: a driver never has more than a few I/Os of a device in flight while more wait above it."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule(
    "outstanding-ceiling",
    "a driver never has more than a few I/Os of a device in flight while more wait above it",
    judge,
)
