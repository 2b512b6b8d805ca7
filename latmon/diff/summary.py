"""A comparison as plain JSON values: schema latmon.diff/1, additive changes only. What can't be told is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from latmon.diff import verdict
from latmon.diff.burden import burden, unlike
from latmon.diff.comparison import Change, Comparison, Moved, Shift
from latmon.diff.evidence import ALPHA
from latmon.diff.power import POWER, TAIL_SHARE
from latmon.diff.setting import differing
from latmon.diff.stretch import Stretch
from latmon.diff.sweep import Sweep
from latmon.diff.text import warnings

SCHEMA = "latmon.diff/1"
_WAYS = {1: "slower", -1: "faster", 0: "none"}


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Two stretches."""
    a, b = comparison.a, comparison.b
    return {
        "schema": SCHEMA,
        "captures": [_stretch(a), _stretch(b)],
        "method": {
            "tested": comparison.tested,
            "alpha": ALPHA,
            "questions": comparison.rows,
            "blocks": {name: [one.in_a, one.in_b] for name, one in comparison.lengths.items()},
            "block_correlation": {name: round(one.alike, 3) for name, one in comparison.lengths.items()},
            "power": POWER,
        },
        "lead": verdict.lead(comparison),
        "warnings": warnings(comparison),
        "loads_differ": [asdict(one) for one in unlike(a, b)],
        "settings": [asdict(one) for one in differing(a, b)],
        "changes": [_change(one, comparison) for one in comparison.changes],
        "only_a": [one._asdict() for one in comparison.only_a],
        "only_b": [one._asdict() for one in comparison.only_b],
    }


def summarise_sweep(sweeps: Sequence[Sweep], stretches: Sequence[Stretch]) -> dict[str, Any]:
    """More than two."""
    return {
        "schema": SCHEMA,
        "captures": [_stretch(one) for one in stretches],
        "sweep": [
            {
                "device": one.device or None,
                "setting": one.setting or None,
                "rows": [{"name": entry.name, **entry.values} for entry in one.entries],
                "trends": [asdict(trend) | {"significant": trend.sure} for trend in one.trends],
            }
            for one in sweeps
        ],
    }


def _stretch(one: Stretch) -> dict[str, Any]:
    return {
        "name": one.name,
        "host": one.origin.host,
        "kernel": one.origin.kernel,
        "backend": one.origin.backend,
        "tier": one.origin.tier or None,
        "latency_from": one.origin.latency_from or None,
        "start": _rfc3339(one.start_wall),
        "end": _rfc3339(one.end_wall),
        "measured_s": round(one.us / 1e6, 6),
        "windows": one.windows,
        "gaps": one.gaps,
        "lost": one.lost,
        **({"damage": list(one.damage)} if one.damage else {}),
        "load": asdict(burden(one)),
    }


def _change(one: Change, comparison: Comparison) -> dict[str, Any]:
    return {
        **one.series._asdict(),
        **({} if one.series.stage == "total" else {"of": "traced" if one.traced else "all"}),
        **({} if one.series.stage == "total" else {"includes": list(one.includes)}),
        "where": one.where if comparison.tested else "untested",
        "sentence": verdict.sentence(one, comparison),
        "count": [one.a.count, one.b.count],
        "shift_us": {shift.name: _shift(shift) for shift in one.shifts},
        **_led(one),
        "body": _moved(one.body),
        "tail": _moved(one.tail),
        "would_have_found": {
            "all_times": one.seen.body,
            "tail_times": one.seen.tail,
            "tail_share": TAIL_SHARE,
        },
    }


def _led(one: Change) -> dict[str, Any]:
    """Return the keys `extreme` and `cause`, where there are such."""
    found: dict[str, Any] = {}
    if (most := one.extreme) is not None:
        found["extreme"] = {
            "above_us": most.above_us,
            "count": list(most.count),
            "max_us": list(most.max_us),
            "stages": {stage: round(share, 6) for stage, share in most.stages.items()},
            "includes": {stage: list(inside) for stage, inside in most.includes.items()},
        }
    if (why := one.cause) is not None:
        found["cause"] = {
            "stage": why.stage,
            "includes": list(why.includes),
            "share": round(why.share, 6),
            "us_per_io": [None if us is None else round(us, 1) for us in why.us],
            "above_us": why.low_us,
        }
    return found


def _shift(one: Shift) -> dict[str, Any]:
    ratio = one.ratio
    interval = None if ratio is None else [round(ratio.low, 4), round(ratio.high, 4)]
    return {
        "a": one.a_us,
        "b": one.b_us,
        "ratio": None if ratio is None else round(ratio.value, 4),
        "interval": interval,
    }


def _moved(one: Moved) -> dict[str, Any]:
    if one.direction is None:
        return {"changed": None, "why": one.why}
    return {
        "changed": bool(one.direction),
        "direction": _WAYS[one.direction],
        "p": None if one.p is None else round(one.p, 5),
        "above_us": one.cut_us,
        "share": [round(one.share_a, 8), round(one.share_b, 8)],
    }


def _rfc3339(wall: float) -> str | None:
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
