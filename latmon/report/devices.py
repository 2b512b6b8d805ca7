"""A device's part of the report: JSON keys of ops with latency and stages, and rows of latencies for text and HTML.

A stage without a number has a reason, and a key that was not measured is absent. Pure: sums in, plain JSON values out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from latmon.analysis import attribution
from latmon.analysis.limits import Audited, audit
from latmon.analysis.littles_law import COUNTED, MeanTimes, mean_waiting, times, times_of
from latmon.analysis.peers import by_name
from latmon.model.frame import (
    OPS,
    STAGES,
    UNACCOUNTED,
    Completed,
    Device,
    DeviceReport,
    Flow,
    Missing,
    Origin,
    Series,
    Traced,
)
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import Depths
from latmon.model.measurements import ABOVE, KERNEL, LATENCIES, PATTERNS, SEEN, SIZES
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.patterns import PATTERN, Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.model.packed_frame import SEEN_ALONE
from latmon.model.stages import ADMISSION, AFTER_LIMIT, FACTS_OF, WHOLE, called, why_unmeasured
from latmon.report.formatting import QUANTILES, RAREST, Column, cell, key, order, quantiles, shares, summed
from latmon.report.outstanding import (
    counts,
    depths,
    gauge,
    in_flight,
    issue_order,
    limit_keys,
    limits,
    littles_law,
    overtaken_us,
)
from latmon.report.totals import Totals
from latmon.support.units import in_words, rate, spelled
from latmon.views.anatomy import NO_WAITER

NOT_PASSED = "n/a: "
"""Prefix of the reason for a stage that is measured but that no request passed."""
NOT_MEASURED = "not measured: "
"""Prefix of the reason for a stage that is not measured where others of the same requests are."""


def stages(flow: Flow, always: Mapping[str, Histogram], origin: Origin, traced: Traced) -> dict[str, Any]:
    """Return the keys `stages`, `stages_absent`, and of traced requests `of` and `unaccounted`."""
    found = attribution.stages_of(traced, flow.device, (flow.op,))
    total = attribution.total_of(traced, flow.device, (flow.op,))
    if not total:
        # the time after an I/O's completion is also measured by scripts that don't trace I/Os
        return _always({**always, **{name: one for name, one in found.items() if name == "resume"}}, origin, traced)
    passed = {name: one for name, one in found.items() if name != UNACCOUNTED}
    return {
        "stages": _each(passed, traced.includes_of(flow.device)),
        "stages_absent": _absent(flow.device, passed, traced),
        "of": {**sampling(traced), "latency_us": summed(total)},
        **({"unaccounted": summed(found[UNACCOUNTED])} if UNACCOUNTED in found else {}),
        **_submitted(flow, traced),
    }


def _submitted(flow: Flow, traced: Traced) -> dict[str, Any]:
    """Return the keys of latencies that begin at submission; nothing where they aren't traced."""
    found = attribution.submission_of(traced, flow.device, (flow.op,))
    if not found.whole:
        return {}
    includes = list(traced.includes_of(flow.device).get(ADMISSION, ()))
    rows = {"latency_whole_us": found.whole, "admission_us": found.admission}
    return {name: summed(latency) | {"includes": includes} for name, latency in rows.items()}


def sampling(traced: Traced) -> dict[str, int]:
    """Return the key `one_in` at its coarsest, and `one_in_least` if it changed."""
    least, most = traced.sampled
    return {"one_in": most, **({"one_in_least": least} if least != most else {})}


def tail(device: str, ops: Iterable[str], traced: Traced, cut_us: int | None) -> dict[str, Any]:
    """Return the key `tail`; nothing if no I/O is above the cut, or none was traced."""
    if cut_us is None:
        return {}
    found = attribution.tail(traced, device, ops, cut_us)
    if not found.count:
        return {}
    return {"tail": {"cut_us": found.cut_us, "count": found.count, "share": shares(found.share)}}


def includes_of(ops: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the stages that each stage includes, from the report of a device's traced ops, or else of all its ops."""
    some = [op for op in ops.values() if "of" in op] or list(ops.values())
    return {stage: figures["includes"] for op in some for stage, figures in op["stages"].items()}


def followed(device: str, traced: Traced) -> dict[str, Any]:
    """Return how traced requests completed, why some weren't followed, and what tasks waited for before (us).

    `completers` (of one completion in 64) and `raisers` (by vector) are the most frequent kernel functions.
    """
    raisers = attribution.raisers_of(traced, device)
    reported = {
        "paths": traced.paths.get(device, {}),
        "unfollowed": traced.unfollowed.get(device, {}),
        "admission_causes": traced.admission_causes.get(device, {}),
        "completers": attribution.frequent(traced.completers.get(device, {})),
        "raisers": {vector: attribution.frequent(stacks) for vector, stacks in raisers.items()},
    }
    return {"traced": {key: dict(value) for key, value in reported.items() if value}} if any(reported.values()) else {}


def ops_of(traced: Traced, device: str) -> set[str]:
    """Return the ops of which a request was traced."""
    return {one.op for one in traced.histograms if one == Series(device, one.op, _TOTAL)}


def _always(found: Mapping[str, Histogram], origin: Origin, traced: Traced) -> dict[str, Any]:
    reasons = _reasons(origin.absent)
    if origin.backend == "dtrace" and traced.one_in and not origin.why_untraced("resume"):
        reasons["resume"] = NOT_PASSED + NO_WAITER
    return {
        "stages": _each({name: one for name, one in found.items() if name != _TOTAL}, origin.measured),
        "stages_absent": {name: why for name, why in reasons.items() if name not in found},
    }


def _each(found: Mapping[str, Histogram], includes: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        name: summed(found[name]) | {"includes": list(includes.get(name, ()))}
        for name in sorted(found, key=order(STAGES))
    }


def _absent(device: str, passed: Mapping[str, Histogram], traced: Traced) -> dict[str, str]:
    """Return why each other stage has no number: not measured, or no request passed it."""
    reasons = _reasons(traced.absent)
    found = {}
    for name in (one for one in STAGES if one != _TOTAL and one not in passed):
        if why := why_unmeasured(name, passed, reasons, traced.includes_of(device)):
            found[name] = why if name in reasons else f"{NOT_MEASURED}{why}"
        else:
            found[name] = NOT_PASSED + (FACTS_OF[name].not_passed or _completes(device, traced))
    return found


def _reasons(absent: Iterable[Missing]) -> dict[str, str]:
    return {one.name: one.reason for one in absent}


def _completes(device: str, traced: Traced) -> str:
    paths = traced.paths.get(device, {})
    if not paths:
        return "no followed request of this device passed it"
    most = max(paths, key=lambda name: paths[name])
    where = f"in the {most}" if most == "hard interrupt" else f"by {most}"
    return f"completes {where}" if len(paths) == 1 else f"no followed request passed it; most complete {where}"


_TOTAL = "total"
_Ops = dict[str, dict[str, Histogram]]
"""Histograms by op and stage."""


def devices(origin: Origin, totals: Totals) -> dict[str, Any]:
    """Return the devices of the recording."""
    sums = {name: one.depths for name, one in totals.depths.items()}
    waiting = {name: _waiting(name, origin, totals) for name, depths in sums.items() if not depths.queued}
    rows = audit(totals.devices.values(), sums, totals.queue_depths, waiting, settings=origin.settings)
    audited = {one.device: one for one in rows}
    sized = _sizes(totals)
    return {
        name: _device(name, ops, origin, totals, audited.get(name), sized=sized)
        for name, ops in _by_device(totals).items()
    }


def _device(
    name: str,
    ops: _Ops,
    origin: Origin,
    totals: Totals,
    audited: Audited | None,
    *,
    sized: Mapping[Flow, dict[str, Any]],
) -> dict[str, Any]:
    known = totals.devices.get(name)
    busy = [op for op in sorted(ops, key=order(OPS)) if _count(Flow(name, op), ops[op], totals)]
    above = {flow.op: n for flow, n in totals[ABOVE].items() if flow.device == name}
    cut_us = attribution.tail_cut(totals.traced, name, threshold_us=origin.threshold_us)
    longest = totals.worst.longest.get(name)
    return {
        **(_identity(known) if known else {}),
        "ops": {
            op: _op(Flow(name, op), ops[op], origin, totals, cut_us) | sized.get(Flow(name, op), {}) for op in busy
        },
        **tail(name, tuple(ops), totals.traced, cut_us),
        **followed(name, totals.traced),
        **_threshold(name, totals, above),
        **_outstanding(name, ops, origin, totals),
        **in_flight(name, totals.outstanding, totals.last),
        **({"outlier_longest_us": longest.total_us} if longest else {}),
        **issue_order(totals.orders.get(name), known, overtaken_us(name, totals)),
        **limits(audited),
        **_reports(known, totals.reports.get(name, {})),
    }


def _threshold(name: str, totals: Totals, above: Mapping[str, int]) -> dict[str, Any]:
    """Return the latest threshold and the I/Os above the threshold at their time, of one that moved its range too."""
    threshold = totals.thresholds.get(name)
    if threshold is None:
        return {}
    moved = {"threshold_range_us": [*threshold]} if threshold.least_us < threshold.most_us else {}
    return {"threshold_us": totals.thresholds_us[name], **moved, "above": above}


def _reports(device: Device | None, reports: Mapping[str, tuple[int | str, DeviceReport]]) -> dict[str, Any]:
    """Return what the device reported about itself: last values, each with its first one where that was another.

    `read_until_end` is False for what was not read any more at the end.
    """
    now = {one.name for one in device.reports} if device else set()
    rows = [
        {
            "name": one.name,
            "value": one.value,
            **({"first": first} if first != one.value else {}),
            **({"read_until_end": False} if one.name not in now else {}),
            "source": one.source,
        }
        for first, one in reports.values()
    ]
    return {"reports": rows} if rows else {}


def _waiting(name: str, origin: Origin, totals: Totals) -> float | None:
    """Return the mean number of I/Os that wait above a driver whose kernel doesn't count them; None where unknown."""
    if origin.assumed_length:
        return None
    done = sum(_count(Flow(name, op), {}, totals) for op in COUNTED)
    return mean_waiting(totals.traced.histograms, name, done, totals.measured_us)


def _identity(device: Device) -> dict[str, Any]:
    reported = {
        "controller": device.controller,
        "driver": device.driver,
        "model": device.model,
        "serial": device.serial,
        "label": device.label,
        "members": list(device.members),
    }
    numbers = {"major": device.major, "minor": device.minor, "kind": device.kind, "timed": device.timed}
    return {key: value for key, value in reported.items() if value} | numbers


def _op(
    flow: Flow, found: Mapping[str, Histogram], origin: Origin, totals: Totals, cut_us: int | None
) -> dict[str, Any]:
    kernel = totals[KERNEL].get(flow)
    counted = totals[SEEN].get(flow) or kernel
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
        **({"kernel": _kernel(kernel) | _seen_alone(totals[SEEN_ALONE].get(flow))} if kernel else {}),
    }


def _seen_alone(done: Completed | None) -> dict[str, int]:
    return {"seen_alone": done.count} if done and done.count else {}


def _sizes(totals: Totals) -> dict[Flow, dict[str, Any]]:
    """Return the key `sizes` of each traced flow: I/Os by size, latencies by size, and where they lay.

    `upto` is in bytes, None for what is larger than all others.
    """
    by_flow: dict[Flow, dict[SizeClass, IssuedIO]] = {}
    for one, done in totals[SIZES].items():
        by_flow.setdefault(Flow(one.device, one.op), {})[one] = done
    patterns = totals[PATTERNS]
    return {flow: {"sizes": _sized(by_flow.get(flow, {}), patterns.get(flow))} for flow in {**by_flow, **patterns}}


def _sized(sizes: Mapping[SizeClass, IssuedIO], pattern: Pattern | None) -> dict[str, Any]:
    counted = attribution.by_size(sizes)
    return {
        "histogram": [{"upto": upto or None} | _done(one) for upto, one in counted.items()],
        "latency": [
            {"upto": upto or None} | _done(one) | {"latency_us": summed(one.latency)}
            for upto, one in attribution.latency_by_size(counted).items()
        ],
        **({"pattern": {name: getattr(pattern, name) for name in PATTERN}} if pattern else {}),
    }


def _done(one: IssuedIO) -> dict[str, int]:
    return {"count": one.count, "bytes": one.bytes}


def _count(flow: Flow, found: Mapping[str, Histogram], totals: Totals) -> int:
    """Return the completions that the probe saw; without a probe the I/Os timed or traced, or the kernel's count."""
    counted = totals[SEEN].get(flow) or totals[KERNEL].get(flow)
    if counted:
        return counted.count
    traced = attribution.total_of(totals.traced, flow.device, (flow.op,))
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
    merged = {} if done.merged is None else {"merged": done.merged}
    return {"count": done.count, "bytes": done.bytes} | timed | mean | split | merged


def _outstanding(name: str, ops: _Ops, origin: Origin, totals: Totals) -> dict[str, Any]:
    """Return the key `outstanding`: depths over time if measured, else samples at the windows' ends."""
    known, sums = totals.devices.get(name), totals.depths.get(name)
    limit = limit_keys(known, totals.devices)
    if sums is not None and sums.in_driver:
        driver, whole = _times(name, ops, origin, totals, sums.depths)
        now = totals.last.outstanding.get(name) if totals.last else None
        timed = littles_law(
            sums,
            known,
            driver,
            whole,
            totals.measured_us,
            waiting=totals.outstanding.ages.of(name),
            left=now.known if now else 0,
        )
        waiting = None if sums.queued else _waiting(name, origin, totals)
        return {"outstanding": depths(sums, known, limit, timed, waiting)}
    if sums is not None and (sums.at_issue or sums.highest):
        return {"outstanding": counts(sums, limit)}
    if name in totals.gauges:
        return {"outstanding": gauge(totals.gauges[name], known, totals)}
    return {}


def _times(
    name: str, ops: _Ops, origin: Origin, totals: Totals, depths: Depths
) -> tuple[Histogram | None, MeanTimes | None]:
    """Return times from issue to completion and total times of the I/Os that gauges count: no flushes."""
    each = [stages for op, stages in ops.items() if op in COUNTED]
    total = _merged(_TOTAL, each)
    done = {op: totals.counted(Flow(name, op)) for op in OPS}
    known = times_of(total) if origin.latency_from == "queued" else None
    whole = times(depths, done, known, total.max_bound)
    if origin.latency_from == "issue":
        return total or None, whole
    to_end = "completion" in origin.measured.get("hba", ())
    driver = _merged("hba", each) if to_end else None
    return driver or None, whole


def _merged(stage: str, each: list[dict[str, Histogram]]) -> Histogram:
    return merge(one[stage] for one in each if stage in one)


def _by_device(totals: Totals) -> dict[str, _Ops]:
    """Return the devices of the recording with their ops, and the histograms of these by stage."""
    traced = {one.device for one in totals.traced.histograms}
    longest = totals.outstanding.longest
    named = (*totals.gauges, *totals.depths, *longest, *totals.orders, *totals.thresholds_us, *traced)
    found: dict[str, _Ops] = {name: {} for name in (*totals.devices, *named)}
    for flow in (*totals[SEEN], *totals[KERNEL]):
        found.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, one in totals[LATENCIES].items():
        found.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = one
    for name in traced:
        for op in ops_of(totals.traced, name):
            found[name].setdefault(op, {})
    return {name: found[name] for name in sorted(found, key=by_name)}


def _at(name: str) -> Callable[[_Row], Any]:
    return lambda row: (row, name)


LATENCY = (
    Column("timed", "count", key("count"), 10),
    Column("mean", "time", key("mean"), 7),
    *(Column(name, "quantile", _at(name), 7) for name in (*QUANTILES, "max")),
    Column("share", "share", key("share"), 6),
)
"""Columns of latency_rows, after the name."""
_Row = Mapping[str, Any]


def latency_rows(op: _Row, begins: str) -> Iterator[_Row]:
    """Yield what begins at submission, the op's total, its total of traced I/Os if it differs, and its stages.

    A row is a Q with `name` and `share`, the stage's part of the summed time, 0..1; "" where it is unknown. A traced
    total includes the queue, so it is longer than a latency that `begins` at the issue, even of as many I/Os.
    """
    latency, traced = op.get("latency_us"), op.get("of", {}).get("latency_us")
    base = traced or latency
    whole = (base["mean"] or 0) * base["count"] if base else 0
    for name, submitted in ((WHOLE, "latency_whole_us"), (ADMISSION, "admission_us")):
        if submitted in op:
            mark = "" if op[submitted]["includes"] else AFTER_LIMIT
            yield {"name": name + mark, **op[submitted], "share": ""}
    if latency:
        yield {"name": "total", **latency, "share": ""}
    longer = begins == "issue" and "queue" in op["stages"]
    if traced and (not latency or longer or traced["count"] != latency["count"]):
        yield {"name": "of traced", **traced, "share": ""}
    rows = op["stages"] | ({UNACCOUNTED: op[UNACCOUNTED]} if UNACCOUNTED in op else {})
    for stage, figures in rows.items():
        known = whole and figures["sum"] is not None and stage != "resume"
        share = min(1.0, figures["sum"] / whole) if known else ""
        yield {"name": called(stage, figures.get("includes", ())).column, **figures, "share": share}


def stages_without(ops: _Row) -> dict[str, list[str]]:
    """Return the stages that have no number in any op, by the reason."""
    reasons: dict[str, list[str]] = {}
    for stage, why in {stage: why for op in ops.values() for stage, why in op["stages_absent"].items()}.items():
        if all(stage not in op["stages"] for op in ops.values()):
            reasons.setdefault(why, []).append(stage)
    return reasons


def volume(op: _Row, seconds: float | None) -> str:
    """Return the op's I/Os, rates over `seconds`, rarest quantile, how far the kernel's counters differ, their mean.

    `seconds` is None where they were not measured. The kernel's mean includes the queue, so it is apart from latencies
    that begin at the issue.
    """
    text = f"{op['count']:,} I/Os"
    if seconds:
        text += f", {rate(op['count'] / seconds)}/s"
        text += f", {rate(op['bytes'] / seconds)}B/s" if op.get("bytes") else ""
    if RAREST in (latency := op.get("latency_us", {})):
        text += f", {RAREST} {in_words(cell(latency, RAREST))}"
    kernel = op.get("kernel")
    if "untimed" in op:
        text += f"; {op['untimed']:,} of them not timed"
    if kernel and kernel["count"] != (both := op["count"] - kernel.get("seen_alone", 0)):
        where = f" in windows where the probe counted {both:,}" if both < op["count"] else ""
        text += f"; the kernel counted {kernel['count']:,}{where}"
    if kernel and kernel.get("merged"):
        text += f"; {kernel['merged']:,} more were merged into them"
    if kernel and op.get("latency_us", {}).get("mean") is None and "mean_us" in kernel:
        text += f"; mean {spelled(kernel['mean_us'])} by the kernel's own clock"
        text += ", which includes the queue" if "latency_us" in op else ""
        if "queue_mean_us" in kernel:
            queue, driver = (spelled(kernel[f"{part}_mean_us"]) for part in ("queue", "driver"))
            text += f": {queue} queued above the driver + {driver} in it"
    return text
