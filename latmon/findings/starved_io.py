"""starved-io: an I/O waits while many that came later are completed."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule("starved-io", "an I/O waits while many that came later are completed", judge)
