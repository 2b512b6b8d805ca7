"""Rows without an upper bound (`>= 600000`) in tables that were imported: what lies in one is told as `or more`.

The header of such a recording says where each series' last row begins. It is foreign: what isn't as it should be is
passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon.histogram import MAX_US
from latmon.report.figures import opened

_NAMES = 3
"""Device, op, stage."""


def opens(devices: Mapping[str, Any], imported: object) -> None:
    """Into the report's devices."""
    told = imported.get("open") if isinstance(imported, Mapping) else None
    for one in told if isinstance(told, list) else ():
        series, from_us = (one.get("series"), one.get("from_us")) if isinstance(one, Mapping) else (None, None)
        if type(from_us) is not int or not 0 <= from_us <= MAX_US:
            continue
        if not isinstance(series, list) or len(series) != _NAMES or not all(isinstance(part, str) for part in series):
            continue
        device, op, stage = series
        ops = devices.get(device, {}).get("ops", {}).get(op, {})
        q = ops.get("latency_us") if stage == "total" else ops.get("stages", {}).get(stage)
        if q:
            opened(q, from_us)
