"""completion-wakeup: slow I/Os wait for a completion thread that was woken and not run."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule, Thresholds


def judge(_facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Nothing yet."""
    return ()


RULE = Rule("completion-wakeup", "slow I/Os wait for a completion thread that was woken and not run", judge)
