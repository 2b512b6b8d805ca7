"""What a window line tells of the deep probes and of outliers, as keys of its own that an older reader passes over.

Values in, plain JSON values out; what is at its default is left out. The way back is deep_decode.py's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from latmon.histogram import BITS, Histogram
from latmon.model import (
    Frame,
    Handler,
    HandlerRuns,
    Missing,
    Outlier,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Traced,
    Wait,
    Wakeups,
)

Line = dict[str, Any]


def encode_deep(frame: Frame) -> Line:
    """The keys of a window line that are about outliers, stages, interrupts and wake-ups."""
    return {
        "above": [[*flow, n] for flow, n in frame.above.items()],
        "thresholds": dict(frame.thresholds_us),
        "outliers": [_outlier(one) for one in frame.outliers],
        "traced": _traced(frame.traced),
        "irqs": [_handler(handler, runs) for handler, runs in frame.handlers.items()],
        "softirqs": [_softirq(where, runs) for where, runs in frame.softirqs.items()],
        "wakeups": [_woken(one) for one in frame.wakeups],
    }


def histogram(one: Histogram) -> Line:
    """Sum and maximum where they are known, and flat pairs of bucket and count."""
    line: Line = {}
    if one.sum is not None:
        line["sum"] = one.sum
    if one.max is not None:
        line["max"] = one.max
    if one.bits != BITS:
        line["k"] = one.bits
    line["b"] = _flat(one.buckets)
    return line


def missing(one: Missing) -> dict[str, str]:
    """What is not measured, and why."""
    return {"name": one.name, "reason": one.reason}


def unlike_default(value: Any) -> Line:
    """A dataclass's fields that have a default and differ from it."""
    found = {}
    for one in dataclasses.fields(value):
        now = getattr(value, one.name)
        if one.default is not dataclasses.MISSING:
            if now != one.default:
                found[one.name] = now
        elif one.default_factory is not dataclasses.MISSING and now:
            found[one.name] = now
    return found


def _traced(traced: Traced) -> Line:
    told = unlike_default(traced)
    return told | {
        key: value
        for key, value in (
            ("histograms", [_labels(series) | histogram(one) for series, one in traced.histograms.items()]),
            ("by_total", [_labels(series) | {"b": _flat(sums.items())} for series, sums in traced.by_total.items()]),
            ("unfollowed", {device: dict(named) for device, named in traced.unfollowed.items()}),
            ("paths", {device: dict(named) for device, named in traced.paths.items()}),
            ("includes", _includes(traced.includes)),
            ("bio_includes", _includes(traced.bio_includes)),
            ("absent", [missing(one) for one in traced.absent]),
        )
        if value
    }


def _outlier(one: Outlier) -> Line:
    line = {"t": one.wall, "mono": one.mono_us, "l": [one.device, one.op], "us": one.total_us} | unlike_default(one)
    if one.stages_us:
        line["stages_us"] = dict(one.stages_us)
    if one.includes:
        line["includes"] = _includes(one.includes)
    if one.waits:
        line["waits"] = [_wait(wait) for wait in one.waits]
    return line


def _wait(one: Wait) -> Line:
    return dataclasses.asdict(one)


def _handler(handler: Handler, runs: HandlerRuns) -> Line:
    line = {"irq": handler.irq, "name": handler.name, "run": histogram(runs.run)} | unlike_default(runs)
    return line | ({"returned": dict(runs.returned)} if runs.returned else {})


def _softirq(where: SoftirqCpu, runs: SoftirqRuns) -> Line:
    line: Line = {"vec": where.vector, "cpu": where.cpu, "delay": histogram(runs.delay), "run": histogram(runs.run)}
    return line | {key: dict(named) for key, named in (("ran_in", runs.ran_in), ("raised_in", runs.raised_in)) if named}


def _woken(one: Wakeups) -> Line:
    line = dataclasses.asdict(one.thread) | {"delay": histogram(one.delay)}
    return line | ({"instead": dict(one.instead)} if one.instead else {})


def _labels(series: Series) -> Line:
    return {"m": series.stage, "l": [series.device, series.op]}


def _includes(includes: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {stage: list(others) for stage, others in includes.items()}


def _flat(pairs: Any) -> list[int]:
    return [number for pair in pairs for number in pair]
