"""Values that every script of ours takes, whichever tool runs it: how often it prints, and what makes an outlier."""

from __future__ import annotations

import math

_STEP_MS = 200


def pace(interval_ms: int, step_ms: int = _STEP_MS) -> dict[str, int | str]:
    """A script wakes every `step_ms` and prints when `gate_ns` have passed since it last did, half a step early.

    `step_ms` is the most; what fits into the interval is taken.
    """
    step = interval_ms // math.ceil(interval_ms / step_ms)
    return {"step_ms": step, "gate_ns": (interval_ms - step // 2) * 1_000_000}


def outliers(threshold_us: int | None) -> dict[str, int | str]:
    """What makes an I/O an outlier. A script's 0 means that it finds one per device, so the user's 0 is 1 us."""
    return {"threshold_us": 0 if threshold_us is None else max(1, threshold_us)}
