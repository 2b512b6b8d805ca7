"""What a window line tells of the deep probes and of outliers, as keys of its own that an older reader passes over.

Values in, plain JSON values out; what is at its default is left out. The way back is deep_decode.py's.

The histograms of a table are one, because hundreds of objects per line cost their reader more than all else: `rows`
say what each is about, `b` holds their bucket numbers, 256 x row + bucket, each less the one before it, `n` the counts
of these, `sum` and `max` a number per row, -1 where it isn't known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import sub
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
from latmon.packed import UNKNOWN, Packed, Sums

Line = dict[str, Any]
WIDTH = 256
"""Numbers that a row of a table has for its buckets, which are fewer."""


def encode_deep(frame: Frame) -> Line:
    """The keys of a window line that are about outliers, stages, interrupts and wake-ups."""
    return {
        "above": [[*flow, n] for flow, n in frame.above.items()],
        "thresholds": dict(frame.thresholds_us),
        "outliers": [_outlier(one) for one in frame.outliers],
        "traced": _traced(frame.traced),
        "irqs": _handlers(frame.handlers),
        "softirqs": _softirqs(frame.softirqs),
        "wakeups": _wakeups(frame.wakeups),
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
            ("histograms", _of_series(Packed.of(traced.histograms))),
            ("by_total", _of_series(Sums.of(traced.by_total).packed)),
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


def _handlers(handlers: Mapping[Handler, HandlerRuns]) -> Line:
    rows = [
        [*handler, runs.before_us, runs.device, list(runs.shared_with), dict(runs.returned)]
        for handler, runs in handlers.items()
    ]
    return _told(rows) | _table(Packed.of({handler: runs.run for handler, runs in handlers.items()}))


def _softirqs(softirqs: Mapping[SoftirqCpu, SoftirqRuns]) -> Line:
    if not softirqs:
        return {}
    return {
        "rows": [[*where, dict(runs.ran_in), dict(runs.raised_in)] for where, runs in softirqs.items()],
        "delay": _table(Packed.of({where: runs.delay for where, runs in softirqs.items()})),
        "run": _table(Packed.of({where: runs.run for where, runs in softirqs.items()})),
    }


def _wakeups(wakeups: Iterable[Wakeups]) -> Line:
    rows = [
        [one.thread.pid, one.thread.comm, one.thread.policy, one.thread.priority, one.thread.kernel, dict(one.instead)]
        for one in wakeups
    ]
    return _told(rows) | _table(Packed.of({one.thread.pid: one.delay for one in wakeups}))


def _told(rows: list[Any]) -> Line:
    return {"rows": rows} if rows else {}


def _of_series(packed: Packed[Series]) -> Line:
    """Its rows are a device, an op and the stages of these."""
    rows = [[*flow, [one.stage for one in some]] for flow, some in groupby(packed.rows, lambda series: series[:2])]
    return _told(rows) | _table(packed)


def _table(packed: Packed[Any]) -> Line:
    """`b`, `n`, and `sum` and `max` where one is known."""
    slots = [WIDTH * part.row + index for _, part in packed.parts() for index in packed.indices[part.begin : part.end]]
    line: Line = {"b": [*slots[:1], *map(sub, slots[1:], slots)], "n": packed.counts.tolist()} if slots else {}
    for name, values in (("sum", packed.sums), ("max", packed.maxima)):
        if any(value != UNKNOWN for value in values):
            line[name] = values.tolist()
    return line


def _includes(includes: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {stage: list(others) for stage, others in includes.items()}


def _flat(pairs: Any) -> list[int]:
    return [number for pair in pairs for number in pair]
