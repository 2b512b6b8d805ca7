"""The rules, each in a file of its own, in the order in which causes come before what they cause.

The one place that knows all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latmon.findings import (
    bimodal_tail,
    bottleneck_above_device,
    completion_wakeup,
    outstanding_ceiling,
    peer_outlier,
    queue_depth_misconfigured,
    requeue_storm,
    slow_shared_handler,
    softirq_delay,
    starved_io,
    tick_quantum,
)
from latmon.findings.facts import Facts
from latmon.findings.finding import Finding
from latmon.findings.rule import Rule
from latmon.findings.thresholds import DEFAULT, Settings

RULES: tuple[Rule, ...] = (
    starved_io.RULE,
    completion_wakeup.RULE,
    tick_quantum.RULE,
    softirq_delay.RULE,
    slow_shared_handler.RULE,
    outstanding_ceiling.RULE,
    bottleneck_above_device.RULE,
    requeue_storm.RULE,
    queue_depth_misconfigured.RULE,
    peer_outlier.RULE,
    bimodal_tail.RULE,
)


def asked(facts: Facts, settings: Settings = DEFAULT) -> Iterator[tuple[Finding, ...]]:
    """Rule by rule, all that each finds."""
    for rule in RULES:
        if rule.id not in settings.off:
            yield tuple(rule.judge(facts, settings.of(rule.id)))


def unexplained(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Without what another one on the same device explains."""
    known = {one.key for one in found}
    why = {rule.id: rule.explained_by for rule in RULES}
    return tuple(one for one in found if not any((cause, one.device) in known for cause in why[one.id]))
