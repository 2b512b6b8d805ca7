"""What each rule must be told before it can judge: that a rule is silent says nothing where nobody told it anything.

Owns which kind of measurement each rule lives by. Knows no threshold, and no screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from latmon.findings.facts import Facts

LATENCIES, TRACED, DEPTHS, LIMITS = "latencies", "traced", "depths", "limits"
"""Histograms of latency; requests that deep probes follow; how many are outstanding; what a driver may have."""

NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "starved-io": TRACED,
        "completion-wakeup": TRACED,
        "tick-quantum": LATENCIES,
        "softirq-delay": TRACED,
        "slow-shared-handler": TRACED,
        "outstanding-ceiling": DEPTHS,
        "bottleneck-above-device": DEPTHS,
        "requeue-storm": TRACED,
        "queue-depth-misconfigured": LIMITS,
        "peer-outlier": LATENCIES,
        "bimodal-tail": LATENCIES,
    },
)
"""Rule -> the kind without which it never fires."""


def unjudged(facts: Facts, off: frozenset[str] = frozenset()) -> dict[str, tuple[str, ...]]:
    """Kind -> the rules that can't judge for want of it; empty where all can. `off`: rules that aren't asked."""
    told = {
        LATENCIES: "total" in facts.origin.measured or any(one.deep.tables.get("traced") for one in facts.window),
        TRACED: facts.window[-1].deep.facts.traced.one_in > 0,
        DEPTHS: bool(facts.depth_sums),
        LIMITS: any(one.limits for one in facts.devices.values()),
    }
    missing = {kind: tuple(r for r, need in NEEDS.items() if need == kind and r not in off) for kind in told}
    return {kind: rules for kind, rules in missing.items() if rules and not told[kind]}
