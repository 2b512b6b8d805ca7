"""A device's part of the report: what it is, its ops with their latency and stages, its outstanding I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from latmon import deep
from latmon.histogram import Histogram
from latmon.limits import ceiling
from latmon.model import OPS, Completed, Device, Flow, Origin
from latmon.report.figures import order, quantiles
from latmon.report.stages import followed, ops_of, stages, tail
from latmon.report.totals import Totals

MAX_DEPTHS = 1024
_TOTAL = "total"
_Ops = dict[str, dict[str, Histogram]]
"""Op -> stage -> histogram."""


def devices(origin: Origin, totals: Totals) -> dict[str, Any]:
    """Every device of the recording."""
    return {name: _device(name, ops, origin, totals) for name, ops in _by_device(totals).items()}


def _device(name: str, ops: _Ops, origin: Origin, totals: Totals) -> dict[str, Any]:
    known = totals.devices.get(name)
    busy = [op for op in sorted(ops, key=order(OPS)) if _count(Flow(name, op), ops[op], totals)]
    above = {flow.op: n for flow, n in totals.deep.above.items() if flow.device == name}
    cut_us = deep.cut(totals.traced, name, threshold_us=origin.threshold_us)
    return {
        **(_identity(known) if known else {}),
        "ops": {op: _op(Flow(name, op), ops[op], origin, totals, cut_us) for op in busy},
        **tail(name, tuple(ops), totals.traced, cut_us),
        **followed(name, totals.traced),
        **({"threshold_us": totals.thresholds_us[name], "above": above} if name in totals.thresholds_us else {}),
        **({"outstanding": _outstanding(totals.depths[name], known)} if name in totals.depths else {}),
        **({"limits": [one._asdict() for one in known.limits]} if known and known.limits else {}),
    }


def _identity(device: Device) -> dict[str, Any]:
    told = {
        "controller": device.controller,
        "driver": device.driver,
        "model": device.model,
        "serial": device.serial,
        "label": device.label,
        "members": list(device.members),
    }
    numbers = {"major": device.major, "minor": device.minor, "kind": device.kind, "timed": device.timed}
    return {key: value for key, value in told.items() if value} | numbers


def _op(
    flow: Flow, found: Mapping[str, Histogram], origin: Origin, totals: Totals, cut_us: int | None
) -> dict[str, Any]:
    kernel = totals.kernel.get(flow)
    counted = totals.seen.get(flow) or kernel
    latency = found.get(_TOTAL)
    count = _count(flow, found, totals)
    untimed = max(0, count - latency.count) if latency is not None else 0
    return {
        "count": count,
        **({"untimed": untimed} if untimed else {}),
        **({"bytes": counted.bytes} if counted else {}),
        **({"latency_us": quantiles(latency)} if latency is not None else {}),
        **stages(flow, found, origin, totals.traced),
        **tail(flow.device, (flow.op,), totals.traced, cut_us),
        **({"kernel": _kernel(kernel)} if kernel else {}),
    }


def _count(flow: Flow, found: Mapping[str, Histogram], totals: Totals) -> int:
    """Completions that the probe saw; without a probe's count what was timed or traced, or what the kernel says."""
    counted = totals.seen.get(flow) or totals.kernel.get(flow)
    if counted:
        return counted.count
    traced = deep.total_of(totals.traced, flow.device, (flow.op,))
    return max((one.count for one in (*found.values(), traced)), default=0)


def _kernel(done: Completed) -> dict[str, Any]:
    timed = {} if done.time_us is None else {"time_us": done.time_us}
    mean = {} if done.time_us is None or not done.count else {"mean_us": round(done.time_us / done.count, 1)}
    return {"count": done.count, "bytes": done.bytes} | timed | mean


def _outstanding(depths: Counter[int], device: Device | None) -> dict[str, Any]:
    """Sampled at the end of each window; `time_share` is the share of windows, by their length."""
    bound = ceiling(device.limits) if device else None
    whole = sum(depths.values()) or 1
    shown = sorted(depth for depth, _ in depths.most_common(MAX_DEPTHS))
    return {
        "max": max(depths),
        "mode": depths.most_common(1)[0][0],
        **({"limit": bound.value, "limit_source": bound.source} if bound else {}),
        "time_share": {str(depth): round(depths[depth] / whole, 6) for depth in shown},
    }


def _by_device(totals: Totals) -> dict[str, _Ops]:
    """Every device of the recording, its ops, and their stages."""
    traced = {one.device for one in totals.traced.histograms}
    found: dict[str, _Ops] = {name: {} for name in (*totals.devices, *totals.depths, *totals.thresholds_us, *traced)}
    for flow in (*totals.seen, *totals.kernel):
        found.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, one in totals.histograms.items():
        found.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = one
    for name in traced:
        for op in ops_of(totals.traced, name):
            found[name].setdefault(op, {})
    return dict(sorted(found.items()))
