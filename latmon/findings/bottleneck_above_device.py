"""bottleneck-above-device: I/Os spend their time above a driver that has room for them."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule(
    "bottleneck-above-device",
    "I/Os spend their time above a driver that has room for them",
    judge,
    explained_by=("outstanding-ceiling",),
)
