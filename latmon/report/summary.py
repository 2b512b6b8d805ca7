"""The summary of a recording: schema latmon.report/1, additive changes only.

A key whose feature isn't measured is absent, never 0; a quantile that the counts don't carry is null. Pure: a recording
in, plain JSON values out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from latmon.coverage import NONE
from latmon.histogram import Histogram
from latmon.model import OPS, STAGES, Completed, Device, Flow, Frame, Health, Missing, Origin
from latmon.recording import Recording
from latmon.report.totals import COUNTERS, Totals

SCHEMA = "latmon.report/1"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
MAX_DEPTHS = 1024
_TOTAL = "total"
_Ops = dict[str, dict[str, Histogram]]
"""Op -> stage -> histogram."""


def summarise(recording: Recording) -> dict[str, Any]:
    """One pass over the recording; `damage` is in it when there was any."""
    totals = Totals(recording.origin.interval_us, devices={one.name: one for one in recording.devices})
    for item in recording:
        totals.add(item)
    totals.finish()
    summary = _whole(recording.origin, totals)
    return summary | ({"damage": recording.damage} if recording.damage else {})


def incomplete(summary: Mapping[str, Any]) -> bool:
    """Whether the capture lost something, which is exit code 4; mere coverage never is."""
    health = summary["health"]
    return bool(health["lost_events"] or health["map_full"] or summary["gaps"])


def _whole(origin: Origin, totals: Totals) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "backend": origin.backend,
        "host": {"name": origin.host, "kernel": origin.kernel, "latmon": origin.latmon, "tool": origin.tool},
        "start": rfc3339(_start(origin, totals.first)),
        "duration_s": _duration_s(totals),
        "intervals": totals.windows,
        "interval_s": origin.interval_us / 1e6,
        "gaps": [
            {"start": rfc3339(one.start_wall), "duration_s": round(one.seconds, 6), "reason": one.reason}
            for one in totals.gaps
        ],
        "health": _health(origin, totals),
        "devices": {name: _device(name, ops, origin, totals) for name, ops in _by_device(totals).items()},
        **({"latency_from": origin.latency_from} if origin.latency_from else {}),
        **({"reason": origin.reason} if origin.reason else {}),
    }


def _health(origin: Origin, totals: Totals) -> dict[str, Any]:
    last = totals.last.health if totals.last else Health()
    coverage = totals.coverage if totals.seen else NONE
    return {
        "tier": origin.tier or None,
        "coverage": _rounded(coverage.share, 6),
        **({"completions": coverage._asdict()} if coverage.kernel else {}),
        "probes_attached": last.probes_attached,
        "probes_wanted": last.probes_wanted,
        "probes_missing": [_missing(one) for one in origin.probes_missing],
        **{name: totals.counters[name] for name in COUNTERS},
        "skipped": totals.skipped,
        "self_cpu_percent": _rounded(totals.cpu.mean, 2),
        "probe_ns_per_io": _rounded(totals.probe_ns.mean, 1),
    }


def _device(name: str, ops: _Ops, origin: Origin, totals: Totals) -> dict[str, Any]:
    known = totals.devices.get(name)
    busy = [op for op in sorted(ops, key=_order(OPS)) if _count(Flow(name, op), ops[op], totals)]
    return {
        **(_identity(known) if known else {}),
        "ops": {op: _op(Flow(name, op), ops[op], origin, totals) for op in busy},
        **({"outstanding": _outstanding(totals.depths[name])} if name in totals.depths else {}),
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


def _op(flow: Flow, stages: Mapping[str, Histogram], origin: Origin, totals: Totals) -> dict[str, Any]:
    kernel = totals.kernel.get(flow)
    counted = totals.seen.get(flow) or kernel
    latency = stages.get(_TOTAL)
    measured = [name for name in sorted(stages, key=_order(STAGES)) if name != _TOTAL]
    absent = {one.name: one.reason for one in origin.absent}
    count = _count(flow, stages, totals)
    untimed = max(0, count - latency.count) if latency is not None else 0
    return {
        "count": count,
        **({"untimed": untimed} if untimed else {}),
        **({"bytes": counted.bytes} if counted else {}),
        **({"latency_us": _quantiles(latency)} if latency is not None else {}),
        "stages": {name: _stage(name, stages[name], origin) for name in measured},
        "stages_absent": {name: why for name, why in absent.items() if name not in stages},
        **({"kernel": _kernel(kernel)} if kernel else {}),
    }


def _count(flow: Flow, stages: Mapping[str, Histogram], totals: Totals) -> int:
    """Completions that the probe saw; without a probe's count what was timed, or what the kernel says."""
    counted = totals.seen.get(flow) or totals.kernel.get(flow)
    return counted.count if counted else max((one.count for one in stages.values()), default=0)


def _stage(name: str, one: Histogram, origin: Origin) -> dict[str, Any]:
    return _quantiles(one) | {"sum": one.sum, "includes": list(origin.measured.get(name, ()))}


def _quantiles(one: Histogram) -> dict[str, Any]:
    """Q of the schema. Where the maximum isn't exact it is null, and `max_bound` says what it can't be above."""
    return {
        "count": one.count,
        **{name: one.quantile(q) for name, q in QUANTILES.items()},
        "max": one.max,
        "mean": _rounded(one.mean, 1),
        **({"max_bound": one.max_bound} if one and one.max is None else {}),
    }


def _kernel(done: Completed) -> dict[str, Any]:
    timed = {} if done.time_us is None else {"time_us": done.time_us}
    mean = {} if done.time_us is None or not done.count else {"mean_us": round(done.time_us / done.count, 1)}
    return {"count": done.count, "bytes": done.bytes} | timed | mean


def _outstanding(depths: Counter[int]) -> dict[str, Any]:
    """Sampled at the end of each window; `time_share` is the share of windows, by their length."""
    whole = sum(depths.values()) or 1
    shown = sorted(depth for depth, _ in depths.most_common(MAX_DEPTHS))
    return {
        "max": max(depths),
        "mode": depths.most_common(1)[0][0],
        "time_share": {str(depth): round(depths[depth] / whole, 6) for depth in shown},
    }


def _by_device(totals: Totals) -> dict[str, _Ops]:
    """Every device of the recording, its ops, and their stages."""
    found: dict[str, _Ops] = {name: {} for name in (*totals.devices, *totals.depths)}
    for flow in (*totals.seen, *totals.kernel):
        found.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, one in totals.histograms.items():
        found.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = one
    return dict(sorted(found.items()))


def _order(known: tuple[str, ...]) -> Callable[[str], tuple[int, str]]:
    return lambda name: (known.index(name) if name in known else len(known), name)


def _missing(one: Missing) -> dict[str, str]:
    return {"name": one.name, "reason": one.reason}


def _start(origin: Origin, first: Frame | None) -> float:
    return origin.start_wall if first is None else first.wall - first.dt_us / 1e6


def _duration_s(totals: Totals) -> float:
    """From the first window's begin to the last one's end, gaps included."""
    if totals.first is None or totals.last is None:
        return 0.0
    return round((totals.last.mono_us - totals.first.mono_us + totals.first.dt_us) / 1e6, 6)


def rfc3339(wall: float) -> str | None:
    """UTC to the millisecond; None for a stamp beyond the calendar."""
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
