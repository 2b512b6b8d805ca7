"""slow-shared-handler: a stranger's slow interrupt handler runs before a disk's on the same vector."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule("slow-shared-handler", "a stranger's slow interrupt handler runs before a disk's on the same vector", judge)
