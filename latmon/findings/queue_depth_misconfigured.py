"""queue-depth-misconfigured: a setting keeps a device from being given enough I/Os, or the right ones."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule(
    "queue-depth-misconfigured",
    "a setting keeps a device from being given enough I/Os, or the right ones",
    judge,
    explained_by=("outstanding-ceiling",),
)
