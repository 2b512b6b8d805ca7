"""A window line's keys about outliers, stages, interrupts and wake-ups, back into values; all of them untrusted.

Every count and length is bounded, every string clean, every name said once; RecordingError on nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from latmon.errors import RecordingError
from latmon.model import (
    UNKNOWN_IRQ,
    Flow,
    Handler,
    HandlerRuns,
    Outlier,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wait,
    Wakeups,
)
from latmon.packed import Packed, Sums
from latmon.recording import checks
from latmon.recording.checks import Json
from latmon.recording.pieces import flow, measured, missing, once
from latmon.recording.tables import Row, rows, table

MAX_FEW = 64
"""Stages, flags, reasons or waits of one thing: ours have ten at most."""
MAX_CODES = 256
"""Of a path: what can't be named is told by its code."""
MAX_ONE_IN = 1 << 20
MAX_PID = (1 << 32) - 1
"""What a probe's record may say; the kernel's own PID_MAX_LIMIT is 2^22."""
MAX_CPU = 1 << 16
MAX_IRQ = 1 << 32
_PRIORITY = 1 << 16
_ABOVE = 3
_SERIES_CELLS, _HANDLER_CELLS, _SOFTIRQ_CELLS, _THREAD_CELLS = 3, 6, 4, 6
Counts = Mapping[str, int]
_NONE: Counts = MappingProxyType({})
_EMPTY: Mapping[Any, Any] = MappingProxyType({})


def above(line: Json) -> Mapping[Flow, int]:
    """`above`: [device, op, count]."""
    found = []
    for one in checks.items(line, "above"):
        if not isinstance(one, list) or len(one) < _ABOVE:
            raise RecordingError("'above' is not a device, an op and a count")
        name = Flow(checks.label(one[0], "above"), checks.label(one[1], "above"))
        found.append((name, checks.whole(one[2], "above")))
    return once(found)


def thresholds(line: Json) -> Counts:
    """`thresholds`: device -> us."""
    return _counts(line, "thresholds", checks.MAX_ITEMS)


def outliers(line: Json) -> tuple[Outlier, ...]:
    """`outliers`."""
    return tuple(_outlier(one) for one in checks.objects(line, "outliers"))


def traced(line: Json) -> Traced:
    """`traced`."""
    told = checks.mapping(line, "traced")
    if not told:
        return Traced()
    return Traced(
        histograms=_of_series(checks.mapping(told, "histograms")),
        by_total=Sums(_of_series(checks.mapping(told, "by_total"), low=0)),
        unfollowed=_by_device(told, "unfollowed"),
        paths=_by_device(told, "paths"),
        off=checks.integer(told, "off"),
        one_in=checks.integer(told, "one_in", high=MAX_ONE_IN),
        devices=checks.labels(told, "devices"),
        includes=measured(_few(told, "includes")),
        bio_includes=measured(_few(told, "bio_includes")),
        absent=missing(told, "absent"),
    )


def handlers(line: Json) -> Mapping[Handler, HandlerRuns]:
    """`irqs`."""
    told = checks.mapping(line, "irqs")
    if not told:
        return _EMPTY
    told_rows = rows(told, _HANDLER_CELLS)
    keys = [Handler(checks.whole(r[0], "irq", UNKNOWN_IRQ, MAX_IRQ), checks.label(r[1], "irqs")) for r in told_rows]
    return once(
        [
            (key, HandlerRuns(run, _named(r[5], "returned"), checks.whole(r[2], "before"), *_shared(r)))
            for key, r, run in zip(keys, told_rows, table(told, keys).values_in_order(), strict=True)
        ]
    )


def softirqs(line: Json) -> Mapping[SoftirqCpu, SoftirqRuns]:
    """`softirqs`."""
    told = checks.mapping(line, "softirqs")
    if not told:
        return _EMPTY
    told_rows = rows(told, _SOFTIRQ_CELLS)
    keys = [SoftirqCpu(checks.label(r[0], "vec"), checks.whole(r[1], "cpu", high=MAX_CPU)) for r in told_rows]
    delays, runs = (table(checks.mapping(told, name), keys).values_in_order() for name in ("delay", "run"))
    return once(
        [
            (key, SoftirqRuns(delay, run, _named(r[2], "ran_in"), _named(r[3], "raised_in")))
            for key, r, delay, run in zip(keys, told_rows, delays, runs, strict=True)
        ]
    )


def wakeups(line: Json) -> tuple[Wakeups, ...]:
    """`wakeups`, each thread once."""
    told = checks.mapping(line, "wakeups")
    if not told:
        return ()
    told_rows = rows(told, _THREAD_CELLS)
    threads = [_thread(row) for row in told_rows]
    delays = table(told, [one.pid for one in threads]).values_in_order()
    return tuple(
        Wakeups(thread, delay, _named(row[5], "instead", checks.MAX_ITEMS))
        for thread, row, delay in zip(threads, told_rows, delays, strict=True)
    )


def _of_series(line: Json, low: int = 1) -> Packed[Series]:
    """A table whose rows are a device, an op and the stages of these."""
    keys = []
    for device, op, stages, *_ in rows(line, _SERIES_CELLS):
        name, kind = checks.label(device, "a device"), checks.label(op, "an op")
        keys += [Series(name, kind, stage) for stage in checks.labels({"stages": stages}, "stages")]
    return table(line, keys, low)


def _outlier(line: Json) -> Outlier:
    device, op = flow(line)
    return Outlier(
        wall=checks.wall(line, "t"),
        mono_us=checks.integer(line, "mono"),
        device=device,
        op=op,
        total_us=checks.integer(line, "us"),
        stages_us=_counts(line, "stages_us"),
        unaccounted_us=checks.integer(line, "unaccounted_us"),
        flags=_few_labels(line, "flags"),
        sector=checks.optional_integer(line, "sector"),
        bytes=checks.optional_integer(line, "bytes"),
        pid=checks.optional_integer(line, "pid"),
        comm=checks.label(line.get("comm", ""), "comm"),
        cpu_issue=checks.optional_integer(line, "cpu_issue"),
        cpu_complete=checks.optional_integer(line, "cpu_complete"),
        outstanding_at_issue=checks.optional_integer(line, "outstanding_at_issue"),
        overtaken_by=checks.optional_integer(line, "overtaken_by"),
        path=checks.label(line.get("path", ""), "path"),
        includes=measured(_few(line, "includes")),
        waits=_waits(line),
        own=checks.flag(line, "own"),
    )


def _waits(line: Json) -> tuple[Wait, ...]:
    found = checks.objects(line, "waits")
    if len(found) > MAX_FEW:
        raise RecordingError(f"an outlier waited for {len(found)} threads")
    return tuple(
        Wait(
            stage=checks.label(one.get("stage"), "stage"),
            thread=checks.label(one.get("thread"), "thread"),
            pid=checks.integer(one, "pid", high=MAX_PID),
            priority=_priority(one),
            woken_us=checks.integer(one, "woken_us"),
            delay_us=checks.integer(one, "delay_us"),
            instead=checks.label(one.get("instead", ""), "instead"),
        )
        for one in found
    )


def _shared(row: Row) -> tuple[str, tuple[str, ...]]:
    """Device, and with whom a handler shares its vector."""
    return checks.sentence({"device": row[3]}, "device"), _few_labels({"shared_with": row[4]}, "shared_with")


def _thread(row: Row) -> Thread:
    pid, comm, policy, priority, kernel, *_ = row
    if not isinstance(kernel, bool):
        raise RecordingError("'kernel' is neither true nor false")
    return Thread(
        checks.whole(pid, "pid", high=MAX_PID),
        checks.label(comm, "comm"),
        checks.label(policy, "policy"),
        checks.whole(priority, "priority", low=-_PRIORITY, high=_PRIORITY),
        kernel,
    )


def _priority(line: Json) -> int:
    return checks.integer(line, "priority", low=-_PRIORITY, high=_PRIORITY)


def _by_device(line: Json, key: str) -> Mapping[str, Counts]:
    told = checks.mapping(line, key)
    return once([(checks.label(device, key), _counts(told, device, MAX_CODES)) for device in told])


def _counts(line: Json, key: str, most: int = MAX_FEW) -> Counts:
    return _named(line.get(key, {}), key, most)


def _named(told: Any, key: str, most: int = MAX_FEW) -> Counts:
    if not told and isinstance(told, dict):
        return _NONE
    return once([(checks.label(name, key), checks.whole(n, key)) for name, n in _few({key: told}, key, most).items()])


def _few(line: Json, key: str, most: int = MAX_FEW) -> Json:
    told = checks.mapping(line, key)
    if len(told) > most:
        raise RecordingError(f"{key!r} has {len(told)} entries, and {most} are the most")
    return told


def _few_labels(line: Json, key: str) -> tuple[str, ...]:
    found = checks.labels(line, key)
    if len(found) > MAX_FEW:
        raise RecordingError(f"{key!r} has {len(found)} entries, and {MAX_FEW} are the most")
    return found
