"""The rules, each in a file of its own, in the order in which causes come before what they cause.

The one place that knows all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

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
from latmon.findings.finding import SEVERITIES, Finding
from latmon.findings.rule import Rule
from latmon.findings.thresholds import Settings

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
_MAX_SAID = 200
"""Characters of how a rule failed."""


def asked(facts: Facts, settings: Settings, failed: MutableMapping[str, str]) -> Iterator[tuple[Finding, ...]]:
    """Rule by rule, all that each finds; `failed`: here it is noted of one that failed, and how."""
    for rule in RULES:
        if rule.id not in settings.off:
            yield _all_of(rule, facts, settings, failed)


def _all_of(rule: Rule, facts: Facts, settings: Settings, failed: MutableMapping[str, str]) -> tuple[Finding, ...]:
    try:
        return tuple(rule.judge(facts, settings.of(rule.id)))
    except Exception as error:  # noqa: BLE001 - it reads whatever a recording holds; a mistake here must end no capture
        failed.setdefault(rule.id, " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_SAID].rstrip(": "))
        return ()


def unexplained(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Without what another one explains that is on the same device, or about it too, and as urgent; no key twice."""
    known: dict[tuple[str, str], Finding] = {}
    for one in found:
        if one.key not in known or one.weight > known[one.key].weight:
            known[one.key] = one
    causes: dict[tuple[str, str], int] = {}
    for one in known.values():
        for device in (one.device, *one.also):
            causes[one.id, device] = max(causes.get((one.id, device), 0), SEVERITIES.index(one.severity))
    why = {rule.id: rule.explained_by for rule in RULES}
    return tuple(
        one
        for one in known.values()
        if all(causes.get((cause, one.device), -1) < SEVERITIES.index(one.severity) for cause in why[one.id])
    )
