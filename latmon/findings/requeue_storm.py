"""requeue-storm: a driver refuses a good part of the I/Os, which are sent again."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule("requeue-storm", "a driver refuses a good part of the I/Os, which are sent again", judge)
