"""Sums of a recording by device and op, of which the rows of devices, depths and ops are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon.analysis import attribution
from latmon.analysis.peers import by_name
from latmon.model.frame import Completed, Flow, Origin
from latmon.model.histogram import Histogram
from latmon.model.measurements import KERNEL, LATENCIES, PATTERNS, SEEN, SIZES
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.report.latencies import summed
from latmon.report.model.device import SizeCount, SizeLatency, Sizes
from latmon.report.source_edges import SourceEdges
from latmon.report.totals import Totals

TOTAL = "total"
Stages = Mapping[str, Histogram]
"""Histograms by stage."""
Ops = dict[str, dict[str, Histogram]]
"""Histograms by op and stage."""


class OpSums(NamedTuple):
    """Sums of which the rows of all devices and ops are made."""

    origin: Origin
    totals: Totals
    by_device: Mapping[str, Ops]
    seen: Mapping[Flow, Completed]
    kernel: Mapping[Flow, Completed]
    sizes: Mapping[Flow, Sizes]
    edges: SourceEdges


def op_sums(origin: Origin, totals: Totals) -> OpSums:
    """Return the sums of a recording by device and op."""
    return OpSums(
        origin,
        totals,
        by_device=_by_device(totals),
        seen=dict(totals[SEEN]),
        kernel=dict(totals[KERNEL]),
        sizes=_sizes(totals[SIZES], totals[PATTERNS]),
        edges=SourceEdges(origin.extra.get("imported")),
    )


def _by_device(totals: Totals) -> dict[str, Ops]:
    """Return the devices of the recording with their ops, and the histograms of these by stage."""
    traced = totals.traced.histograms
    names_traced = {series.device for series in traced}
    longest = totals.outstanding.longest
    named = (*totals.gauges, *totals.depths, *longest, *totals.orders, *totals.thresholds_us, *names_traced)
    by_device: dict[str, Ops] = {name: {} for name in (*totals.devices, *named)}
    for flow in (*totals[SEEN], *totals[KERNEL]):
        by_device.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, histogram in totals[LATENCIES].items():
        by_device.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = histogram
    for series in traced:
        if series.stage == TOTAL:
            by_device[series.device].setdefault(series.op, {})
    return {name: by_device[name] for name in sorted(by_device, key=by_name)}


def _sizes(io_by_size: Mapping[SizeClass, IssuedIO], patterns: Mapping[Flow, Pattern]) -> dict[Flow, Sizes]:
    """Return the I/Os by size, latencies by size, and where they lay, of each traced flow."""
    by_flow: dict[Flow, dict[SizeClass, IssuedIO]] = {}
    for size, done in io_by_size.items():
        by_flow.setdefault(Flow(size.device, size.op), {})[size] = done
    return {flow: _sized(by_flow.get(flow, {}), patterns.get(flow)) for flow in {**by_flow, **patterns}}


def _sized(sizes: Mapping[SizeClass, IssuedIO], pattern: Pattern | None) -> Sizes:
    counted = attribution.by_size(sizes)
    return Sizes(
        tuple(SizeCount(upto or None, done.count, done.bytes) for upto, done in counted.items()),
        tuple(
            SizeLatency(upto or None, done.count, done.bytes, summed(done.latency))
            for upto, done in attribution.latency_by_size(counted).items()
        ),
        pattern or None,
    )
