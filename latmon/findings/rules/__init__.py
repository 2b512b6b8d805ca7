"""The rules, one module per finding id, and their registry.

A new rule is a module of this package, which owns its id, thresholds, input and sentences, and its line in `RULES`.
"""

from latmon.findings.rule import Rule
from latmon.findings.rules import (
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
"""All rules, in the order in which they are evaluated and listed."""
