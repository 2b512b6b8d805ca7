"""Latencies and stages of all I/Os, and completions by the probe and by the kernel's counters."""

from __future__ import annotations

from latmon.model.frame import Completed, Flow, Series
from latmon.model.table import DEVICE, OP, TEXT, Table, Value, latencies, record_of_counts

COMPLETED: Value[Completed] = record_of_counts(Completed)
LATENCIES = Table(
    "histograms",
    Series,
    (DEVICE, OP, TEXT),
    latencies(),
    group="basic",
    export_name="latency",
    attribute="histograms",
    counts_ios=False,
)
"""Latencies and stages that the always-on probe times, of all I/Os."""
SEEN = Table(
    "seen",
    Flow,
    (DEVICE, OP),
    COMPLETED,
    group="completions",
    export_name="seen",
    attribute="seen",
    counts_ios=False,
    counts_nothing_too=True,
)
"""Completions that the probe counted, timed or not."""
KERNEL = Table(
    "kernel",
    Flow,
    (DEVICE, OP),
    COMPLETED,
    group="completions",
    export_name="kernel",
    attribute="kernel",
    counts_ios=False,
    counts_nothing_too=True,
)
"""Completions by the kernel's own counters (/proc/diskstats)."""
