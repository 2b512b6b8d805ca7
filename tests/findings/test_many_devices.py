"""What the rules cost on a host with thousands of devices."""

from __future__ import annotations

import gc
import random
import time
from functools import cache

import pytest
from finding_cases import S, facts_of, frame, hist

from latmon.findings.rule import DEFAULT
from latmon.findings.rules import RULES
from latmon.model.frame import Completed, Device, Flow, Outstanding, Series

FEW, MANY = 500, 2_000
OPS = ("read", "write")
MUCH_MORE_THAN_LINEAR = 12
"""Times of four times as many devices: a linear rule takes 4 times as long, a quadratic one 16 times."""
UNMEASURABLE_S = 0.5


@cache
def facts_with(devices: int):
    """Return the facts of 10 s of devices that differ in their latencies, with I/Os in flight."""
    draw = random.Random(devices)
    disks = tuple(Device(f"nvme{n}n1", 259, n, driver="nvme", model="SSD") for n in range(devices))
    frames = []
    for second in range(100, 110, 5):
        histograms, completed = {}, {}
        for number, disk in enumerate(disks):
            usual_us = 100 if number % 10 else 5_000
            for op in OPS:
                latency = hist({round(usual_us * 2 ** draw.uniform(0, 6)): 40 for _ in range(3)})
                histograms[Series(disk.name, op, "total")] = latency
                completed[Flow(disk.name, op)] = Completed(latency.count, latency.count * 4096, latency.sum)
        outstanding = {disk.name: Outstanding(draw.randrange(1, 20), 0) for disk in disks}
        values = {"histograms": histograms, "seen": completed, "kernel": completed, "outstanding": outstanding}
        frames.append(frame(second, dt_us=5 * S, **values))
    return facts_of(frames, disks)


def cpu_s(rule, devices: int) -> float:
    """Return the CPU time of a rule without a collection of garbage, which looks at all objects of the test run."""
    facts = facts_with(devices)
    gc.disable()
    try:
        begin = time.process_time()
        list(rule.evaluate(facts, DEFAULT.of(rule)))
        return time.process_time() - begin
    finally:
        gc.enable()


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_rule_takes_no_device_with_each_other(rule):
    """One that did took 13 s of 2,000 devices, after every block of 5 s."""
    much_s = cpu_s(rule, MANY)
    if much_s > UNMEASURABLE_S:
        assert much_s < MUCH_MORE_THAN_LINEAR * max(cpu_s(rule, FEW), UNMEASURABLE_S / MUCH_MORE_THAN_LINEAR)
