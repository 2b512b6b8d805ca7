"""bimodal-tail: a few I/Os take far longer than all others, with nothing in between."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule(
    "bimodal-tail",
    "a few I/Os take far longer than all others, with nothing in between",
    judge,
    explained_by=("starved-io", "completion-wakeup", "softirq-delay", "tick-quantum", "requeue-storm"),
)
