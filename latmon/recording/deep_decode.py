"""A window line's keys about outliers, stages, interrupts and wake-ups, back into values; all of them untrusted.

Every count and length is bounded, every string clean, every name said once; RecordingError on nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping

from latmon.errors import RecordingError
from latmon.model import (
    Flow,
    Handler,
    HandlerRuns,
    Outlier,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wait,
    Wakeups,
)
from latmon.recording import checks
from latmon.recording.checks import Json
from latmon.recording.pieces import TOPS, flow, histogram, is_known, measured, missing, once, series

MAX_FEW = 64
"""Stages, flags, reasons or waits of one thing: ours have ten at most."""
MAX_ONE_IN = 1 << 20
MAX_PID = 1 << 22
"""The kernel's own PID_MAX_LIMIT."""
MAX_CPU = 1 << 16
MAX_IRQ = 1 << 32
_PRIORITY = 1 << 16
_ABOVE = 3
Counts = Mapping[str, int]


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
        histograms=once([(series(one), histogram(one)) for one in checks.objects(told, "histograms") if is_known(one)]),
        by_total=once([(series(one), _sums(one)) for one in checks.objects(told, "by_total") if is_known(one)]),
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
    return once([(_handler(one), _runs(one)) for one in checks.objects(line, "irqs")])


def softirqs(line: Json) -> Mapping[SoftirqCpu, SoftirqRuns]:
    """`softirqs`."""
    found = []
    for one in checks.objects(line, "softirqs"):
        where = SoftirqCpu(checks.label(one.get("vec"), "vec"), checks.integer(one, "cpu", high=MAX_CPU))
        runs = SoftirqRuns(
            histogram(checks.mapping(one, "delay")),
            histogram(checks.mapping(one, "run")),
            _counts(one, "ran_in"),
            _counts(one, "raised_in"),
        )
        found.append((where, runs))
    return once(found)


def wakeups(line: Json) -> tuple[Wakeups, ...]:
    """`wakeups`, each thread once."""
    found = [
        (
            checks.integer(one, "pid", high=MAX_PID),
            Wakeups(_thread(one), histogram(checks.mapping(one, "delay")), _counts(one, "instead", checks.MAX_ITEMS)),
        )
        for one in checks.objects(line, "wakeups")
    ]
    return tuple(once(found).values())


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


def _handler(line: Json) -> Handler:
    return Handler(checks.integer(line, "irq", high=MAX_IRQ), checks.label(line.get("name"), "name"))


def _runs(line: Json) -> HandlerRuns:
    return HandlerRuns(
        run=histogram(checks.mapping(line, "run")),
        returned=_counts(line, "returned"),
        before_us=checks.integer(line, "before_us"),
        device=checks.label(line.get("device", ""), "device"),
        shared_with=_few_labels(line, "shared_with"),
    )


def _thread(line: Json) -> Thread:
    kernel = line.get("kernel", True)
    if not isinstance(kernel, bool):
        raise RecordingError("'kernel' is neither true nor false")
    return Thread(
        pid=checks.integer(line, "pid", high=MAX_PID),
        comm=checks.label(line.get("comm"), "comm"),
        policy=checks.label(line.get("policy", ""), "policy"),
        priority=_priority(line),
        kernel=kernel,
    )


def _priority(line: Json) -> int:
    return checks.integer(line, "priority", low=-_PRIORITY, high=_PRIORITY)


def _sums(line: Json) -> Mapping[int, int]:
    """Flat pairs of a bucket and a sum, which may be 0, in any order."""
    flat = checks.items(line, "b")
    if len(flat) % 2:
        raise RecordingError("'b' is not a list of bucket indices and sums")
    top = max(TOPS.values())
    return once(
        [
            (checks.whole(index, "b", high=top), checks.whole(us, "b"))
            for index, us in zip(flat[::2], flat[1::2], strict=True)
        ]
    )


def _by_device(line: Json, key: str) -> Mapping[str, Counts]:
    told = checks.mapping(line, key)
    return once([(checks.label(device, key), _counts(told, device)) for device in told])


def _counts(line: Json, key: str, most: int = MAX_FEW) -> Counts:
    told = _few(line, key, most)
    return once([(checks.label(name, key), checks.whole(n, key)) for name, n in told.items()])


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
