"""What each rule must be told before it can judge: that a rule is silent says nothing where nobody told it anything.

Owns which kind of measurement each rule lives by, and the words for where there is none. Knows no threshold and no
screen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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

WHY: Mapping[str, str] = MappingProxyType(
    {
        LATENCIES: "no latencies were timed",
        TRACED: "stages were not traced",
        DEPTHS: "nobody counted how many I/Os are outstanding",
        LIMITS: "no device told a limit of its driver",
    }
)


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


def by_kind(rules: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Kind -> those of these rules that live by it."""
    found = {kind: tuple(rule for rule, need in NEEDS.items() if need == kind and rule in rules) for kind in WHY}
    return {kind: some for kind, some in found.items() if some}


def who_judged(rules: int, missing: Mapping[str, Sequence[str]], failed: Mapping[str, str]) -> tuple[str, str]:
    """Of so many rules that were asked: how many judged, and which didn't and why; nothing where all did.

    `11 rules`, or `9 of 11 rules judged` and `not judged: starved-io, requeue-storm (stages were not traced)`.
    """
    without = {*failed, *(rule for some in missing.values() for rule in some)}
    why = [f"{', '.join(some)} ({WHY[kind]})" for kind, some in missing.items()]
    why += [f"{rule} (it failed: {words})" for rule, words in failed.items()]
    if not without:
        return f"{rules} rules", ""
    return f"{rules - len(without)} of {rules} rules judged", f"not judged: {', '.join(why)}"
