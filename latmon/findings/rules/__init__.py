"""The rules, one module per finding id, and their registry.

A new rule is a module of this package, which owns its id, thresholds, input and sentences, and its lines in `RULES` and
in `TITLES`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from latmon.findings.rule import Rule
from latmon.findings.rules import (
    bimodal_tail,
    bottleneck_above_device,
    bottleneck_between,
    command_timeouts,
    completion_wakeup,
    cpu_throttled,
    device_disagrees,
    device_pauses,
    dirty_throttled,
    fsync_bound,
    full_file_system,
    hung_file_system,
    io_errors,
    io_throttled,
    late_resume,
    low_io_priority,
    maintenance,
    noisy_neighbour,
    not_the_disk,
    outside_limit,
    outstanding_ceiling,
    peer_outlier,
    queue_depth_misconfigured,
    requeue_storm,
    slow_journal,
    slow_log_device,
    slow_shared_handler,
    slower_than_baseline,
    slower_than_before,
    small_random_writes,
    softirq_delay,
    starved_io,
    swap_thrash,
    tick_quantum,
    worse_since_setting,
    writes_at_memory_limit,
)

RULES: tuple[Rule, ...] = (
    io_errors.RULE,
    command_timeouts.RULE,
    starved_io.RULE,
    device_pauses.RULE,
    completion_wakeup.RULE,
    late_resume.RULE,
    cpu_throttled.RULE,
    tick_quantum.RULE,
    softirq_delay.RULE,
    slow_shared_handler.RULE,
    outstanding_ceiling.RULE,
    bottleneck_above_device.RULE,
    bottleneck_between.RULE,
    requeue_storm.RULE,
    io_throttled.RULE,
    outside_limit.RULE,
    noisy_neighbour.RULE,
    low_io_priority.RULE,
    maintenance.RULE,
    hung_file_system.RULE,
    full_file_system.RULE,
    not_the_disk.RULE,
    swap_thrash.RULE,
    writes_at_memory_limit.RULE,
    dirty_throttled.RULE,
    slow_log_device.RULE,
    slow_journal.RULE,
    fsync_bound.RULE,
    small_random_writes.RULE,
    queue_depth_misconfigured.RULE,
    peer_outlier.RULE,
    device_disagrees.RULE,
    worse_since_setting.RULE,
    slower_than_before.RULE,
    slower_than_baseline.RULE,
    bimodal_tail.RULE,
)
"""All rules, in the order in which they are evaluated and listed."""
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "io-errors": "failed I/Os",
        "command-timeouts": "time-outs and resets",
        "starved-io": "starved I/O",
        "device-pauses": "answers nothing now and then",
        "completion-wakeup": "kernel thread ran late",
        "late-resume": "program ran late after its I/O",
        "cpu-throttled": "throttled by a CPU quota",
        "tick-quantum": "wait for the timer tick",
        "softirq-delay": "late softirq",
        "slow-shared-handler": "slow handler on a shared interrupt",
        "outstanding-ceiling": "driver limit reached",
        "bottleneck-above-device": "queue above the driver",
        "bottleneck-between": "time between two tools",
        "requeue-storm": "refused by the driver",
        "io-throttled": "throttled by a cgroup limit",
        "outside-limit": "limit outside of the host",
        "noisy-neighbour": "another cgroup's I/O in the way",
        "low-io-priority": "low I/O priority",
        "maintenance": "maintenance, or a missing disk",
        "hung-file-system": "file system hangs",
        "full-file-system": "file system is full",
        "not-the-disk": "programs wait for a lock",
        "swap-thrash": "short of memory",
        "writes-at-memory-limit": "memory limit too small for writes",
        "dirty-throttled": "writers paused for dirty pages",
        "slow-log-device": "syncs wait for a log's device",
        "slow-journal": "syncs wait for the journal",
        "fsync-bound": "programs wait for syncs",
        "small-random-writes": "small random writes",
        "queue-depth-misconfigured": "limit misconfigured",
        "peer-outlier": "slower than its peers",
        "device-disagrees": "slow, with errors of its own",
        "worse-since-setting": "worse since a setting was changed",
        "slower-than-before": "slower than before",
        "slower-than-baseline": "against another day",
        "bimodal-tail": "two groups of latencies",
    }
)
"""Id -> title on screens. The id is the name in JSON, the config, `--help` and docs/FINDINGS.md."""


def title_of(rule: str) -> str:
    """Return the title of a finding on screens; a rule without one has its id."""
    return TITLES.get(rule, rule)
