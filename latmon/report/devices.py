"""A device's part of the report: what it is, its ops with their latency and stages, its outstanding I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon import deep
from latmon.audit import Audited, audit
from latmon.histogram import Histogram, merge
from latmon.littles_law import COUNTED, Times, times
from latmon.model import OPS, Completed, Device, Flow, Origin
from latmon.outstanding import Depths
from latmon.report import outstanding
from latmon.report.figures import order, quantiles
from latmon.report.stages import followed, ops_of, stages, tail
from latmon.report.totals import Totals

_TOTAL = "total"
_Ops = dict[str, dict[str, Histogram]]
"""Op -> stage -> histogram."""


def devices(origin: Origin, totals: Totals) -> dict[str, Any]:
    """Every device of the recording."""
    sums = {name: one.depths for name, one in totals.outstanding.devices.items()}
    audited = {one.device: one for one in audit(totals.devices.values(), sums, totals.queue_depths)}
    return {name: _device(name, ops, origin, totals, audited.get(name)) for name, ops in _by_device(totals).items()}


def _device(name: str, ops: _Ops, origin: Origin, totals: Totals, audited: Audited | None) -> dict[str, Any]:
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
        **_outstanding(name, ops, origin, totals),
        **outstanding.in_flight(name, totals.outstanding, totals.last),
        **outstanding.issue_order(totals.outstanding.orders.get(name), known),
        **outstanding.limits(audited),
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
    split = {}
    if mean and done.time_us is not None and done.queue_us is not None:
        driver_us = done.time_us - done.queue_us
        split = {
            "queue_mean_us": round(done.queue_us / done.count, 1),
            "driver_mean_us": round(driver_us / done.count, 1),
        }
    return {"count": done.count, "bytes": done.bytes} | timed | mean | split


def _outstanding(name: str, ops: _Ops, origin: Origin, totals: Totals) -> dict[str, Any]:
    """From depths over time where there are some, else from the gauges at the windows' ends."""
    known, sums = totals.devices.get(name), totals.outstanding.devices.get(name)
    if sums is not None and sums.in_driver:
        driver, whole = _times(name, ops, origin, totals, sums.depths)
        now = totals.last.outstanding.get(name) if totals.last else None
        timed = outstanding.littles_law(
            sums,
            known,
            driver,
            whole,
            totals.measured_us,
            waiting=(one for one in totals.outstanding.ages.oldest if one.device == name),
            left=now.known if now else 0,
        )
        return {"outstanding": outstanding.depths(sums, known, timed)}
    if sums is not None and (sums.at_issue or sums.highest):
        return {"outstanding": outstanding.counts(sums, known)}
    if name in totals.depths:
        return {"outstanding": outstanding.gauge(totals.depths[name], known)}
    return {}


def _times(
    name: str, ops: _Ops, origin: Origin, totals: Totals, depths: Depths
) -> tuple[Histogram | None, Times | None]:
    """Times in the driver to the completion, and whole ones, of all I/Os that the gauges count: flushes they don't."""
    each = [stages for op, stages in ops.items() if op in COUNTED]
    total = _merged(_TOTAL, each)
    done = {op: totals.kernel.get(Flow(name, op)) for op in OPS}
    known = outstanding.times_of(total) if origin.latency_from == "queued" else None
    whole = times(depths, done, known, total.max_bound)
    if origin.latency_from == "issue":
        return total or None, whole
    to_end = "completion" in origin.measured.get("hba", ())
    driver = _merged("hba", each) if to_end else None
    return driver or None, whole


def _merged(stage: str, each: list[dict[str, Histogram]]) -> Histogram:
    found = [one[stage] for one in each if stage in one]
    bits = min((one.bits for one in found), default=0)
    return merge(one if one.bits == bits else one.coarsen(bits) for one in found)


def _by_device(totals: Totals) -> dict[str, _Ops]:
    """Every device of the recording, its ops, and their stages."""
    traced = {one.device for one in totals.traced.histograms}
    told = totals.outstanding
    named = (*totals.depths, *told.devices, *told.longest, *told.orders, *totals.thresholds_us, *traced)
    found: dict[str, _Ops] = {name: {} for name in (*totals.devices, *named)}
    for flow in (*totals.seen, *totals.kernel):
        found.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, one in totals.histograms.items():
        found.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = one
    for name in traced:
        for op in ops_of(totals.traced, name):
            found[name].setdefault(op, {})
    return dict(sorted(found.items()))
