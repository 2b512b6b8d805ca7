"""Delays and runs of softirqs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.histogram import Histogram
from latmon.model.table import Meaning, Part, Table, Unit, always, record

VECTORS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
"""By their numbers in include/linux/interrupt.h, the same since 4.1."""


class SoftirqCpu(NamedTuple):
    """A softirq vector on a CPU."""

    vector: str
    cpu: int


@dataclass(frozen=True, slots=True)
class SoftirqRuns:
    """A softirq vector on one CPU in an interval: delays from the first raise to the run, and run times."""

    delay: Histogram
    run: Histogram
    ran_in: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """irq_exit, timer (the exit of the timer's interrupt), ksoftirqd, other -> runs."""
    raised_in: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """irq, softirq, other (a thread, or an interrupt that no tracepoint shows) -> first raises."""


def vector(number: int) -> str:
    """Return the name of a softirq vector."""
    return VECTORS[number] if number < len(VECTORS) else f"vector {number}"


SOFTIRQS = Table(
    "softirqs",
    SoftirqCpu,
    (Part(Meaning.NAME, probe_part="vec", from_code=vector), Part(highest=1 << 16, probe_part="cpu")),
    record(SoftirqRuns, delay=Unit.LATENCIES, run=Unit.LATENCIES, ran_in=Unit.NAMED, raised_in=Unit.NAMED),
    group="interrupts",
    export_name="softirq",
    row_title="a softirq",
    is_sampled=always,
    counts_ios=False,
    is_timed=True,
)
"""A vector that was raised and has not run yet has only raises, which a sum leaves out."""
