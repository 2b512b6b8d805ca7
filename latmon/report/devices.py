"""A device's part of the report: its ops with latency and stages.

A stage without a number has a reason. Pure: sums in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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
from latmon.model.measurements import ABOVE, DEVICE_COUNTERS, KERNEL, LATENCIES, PATTERNS, SEEN, SIZES
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.model.packed_frame import SEEN_ALONE
from latmon.model.stages import ADMISSION, FACTS_OF, why_unmeasured
from latmon.report import depths
from latmon.report.formatting import order
from latmon.report.latencies import SourceEdges, of_stage, quantiles, summed
from latmon.report.model import device
from latmon.report.model.depth import Outstanding
from latmon.report.model.device import (
    NOT_MEASURED,
    NOT_PASSED,
    KernelCounts,
    Op,
    Reported,
    Sampling,
    SizeCount,
    SizeLatency,
    Sizes,
    TracedPaths,
    TracedTotal,
)
from latmon.report.model.latency import StageQuantiles, SummedQuantiles, Tail
from latmon.report.totals import Totals
from latmon.views.anatomy import NO_WAITER

_TOTAL = "total"
_Ops = dict[str, dict[str, Histogram]]
"""Histograms by op and stage."""


def devices(origin: Origin, totals: Totals) -> dict[str, device.Device]:
    """Return the devices of the recording."""
    sums = {name: depth_times.depths for name, depth_times in totals.depths.items()}
    waiting = {name: _waiting(name, origin, totals) for name, depths in sums.items() if not depths.queued}
    rows = audit(totals.devices.values(), sums, totals.queue_depths, waiting, settings=origin.settings)
    made = _Devices(
        origin,
        totals,
        {row.device: row for row in rows},
        _sizes(totals),
        SourceEdges(origin.extra.get("imported")),
    )
    return {name: _device(name, ops, made) for name, ops in _by_device(totals).items()}


class _Devices(NamedTuple):
    """What the rows of all devices are made of."""

    origin: Origin
    totals: Totals
    audited: Mapping[str, Audited]
    sizes: Mapping[Flow, Sizes]
    edges: SourceEdges


def _device(name: str, ops: _Ops, made: _Devices) -> device.Device:
    origin, totals = made.origin, made.totals
    known = totals.devices.get(name)
    named = known or Device(name, 0, 0)
    outstanding = _outstanding(name, ops, origin, totals)
    cut_us = attribution.tail_cut(totals.traced, name, threshold_us=origin.threshold_us)
    threshold = totals.thresholds.get(name)
    has_moved = threshold is not None and threshold.least_us < threshold.most_us
    above = {flow.op: n for flow, n in totals[ABOVE].items() if flow.device == name}
    longest = totals.worst.longest.get(name)
    audited = made.audited.get(name)
    counters = totals[DEVICE_COUNTERS].get(name)
    active_us = None if counters is None else counters.active_us
    reported = {op: _op(Flow(name, op), ops[op], cut_us, made) for op in sorted(ops, key=order(OPS))}
    return device.Device(
        controller=named.controller,
        driver=named.driver,
        model=named.model,
        serial=named.serial,
        label=named.label,
        members=named.members,
        major=known.major if known else None,
        minor=known.minor if known else None,
        kind=known.kind if known else None,
        timed=known.timed if known else None,
        ops={op: figures for op, figures in reported.items() if figures.count},
        tail=tail(name, tuple(ops), totals.traced, cut_us),
        traced=followed(name, totals.traced),
        threshold_us=None if threshold is None else totals.thresholds_us[name],
        threshold_range_us=(threshold.least_us, threshold.most_us) if threshold and has_moved else None,
        above=None if threshold is None else above,
        active_us=active_us,
        active_share=None if active_us is None or not totals.measured_us else _share(active_us, totals.measured_us),
        outstanding=outstanding,
        in_flight_count=depths.in_flight_count(name, totals.last),
        at_end=depths.in_flight_at_end(name, totals.outstanding, totals.last),
        in_flight_of_unknown_age=totals.outstanding.ages.unknown.get(name, 0),
        in_flight_longest=depths.longest_seen(name, totals.outstanding),
        outlier_longest_us=longest.total_us if longest else None,
        issue_order=depths.issue_order(totals.orders.get(name), known, depths.overtaken_us(name, totals)),
        limits=depths.limit_settings(audited) if audited else None,
        limits_remarks=audited.remarks if audited else (),
        reports=_reports(known, totals.reports.get(name, {})),
    )


def _share(part_us: int, whole_us: int) -> float:
    """Return a part of the time; clocks of kernel and latmon differ a little."""
    return round(min(1.0, part_us / whole_us), 6)


def _reports(known: Device | None, reports: Mapping[str, tuple[int | str, DeviceReport]]) -> tuple[Reported, ...]:
    """Return what the device reported about itself: last values, each with its first one where that was another."""
    now = {report.name for report in known.reports} if known else set()
    return tuple(
        Reported(
            name=last.name,
            value=last.value,
            first=first if first != last.value else None,
            read_until_end=None if last.name in now else False,
            source=last.source,
        )
        for first, last in reports.values()
    )


def _waiting(name: str, origin: Origin, totals: Totals) -> float | None:
    """Return the mean number of I/Os that wait above a driver whose kernel doesn't count them; None where unknown."""
    if origin.assumed_length:
        return None
    done = sum(_count(Flow(name, op), {}, totals) for op in COUNTED)
    return mean_waiting(totals.traced.histograms, name, done, totals.measured_us)


def _op(flow: Flow, by_stage: Mapping[str, Histogram], cut_us: int | None, made: _Devices) -> Op:
    totals, edges = made.totals, made.edges
    of_op = stages(flow, by_stage, made.origin, totals.traced)
    count = _count(flow, by_stage, totals)
    kernel = totals[KERNEL].get(flow)
    counted = totals[SEEN].get(flow) or kernel
    latency = by_stage.get(_TOTAL)
    total = None if latency is None else edges.applied(Series(*flow, _TOTAL), quantiles(latency))
    return Op(
        count=count,
        untimed=0 if latency is None else max(0, count - latency.count),
        bytes=counted.bytes if counted else None,
        latency_us=total,
        stages={stage: edges.applied(Series(*flow, stage), figures) for stage, figures in of_op.stages.items()},
        stages_absent=of_op.absent,
        of=of_op.of,
        unaccounted=of_op.unaccounted,
        latency_whole_us=of_op.whole,
        admission_us=of_op.admission,
        tail=tail(flow.device, (flow.op,), totals.traced, cut_us),
        kernel=_kernel(kernel, totals[SEEN_ALONE].get(flow)) if kernel else None,
        sizes=made.sizes.get(flow),
    )


def _sizes(totals: Totals) -> dict[Flow, Sizes]:
    """Return the I/Os by size, latencies by size, and where they lay, of each traced flow."""
    by_flow: dict[Flow, dict[SizeClass, IssuedIO]] = {}
    for size, done in totals[SIZES].items():
        by_flow.setdefault(Flow(size.device, size.op), {})[size] = done
    patterns = totals[PATTERNS]
    return {flow: _sized(by_flow.get(flow, {}), patterns.get(flow)) for flow in {**by_flow, **patterns}}


def _sized(sizes: Mapping[SizeClass, IssuedIO], pattern: Pattern | None) -> Sizes:
    counted = attribution.by_size(sizes)
    return Sizes(
        tuple(SizeCount(upto or None, done.count, done.bytes) for upto, done in counted.items()),
        tuple(
            SizeLatency(upto or None, done.count, done.bytes, summed(done.latency))
            for upto, done in attribution.latency_by_size(counted).items()
        ),
        pattern or None,
    )


def _count(flow: Flow, by_stage: Mapping[str, Histogram], totals: Totals) -> int:
    """Return the completions that the probe saw; without a probe the I/Os timed or traced, or the kernel's count."""
    counted = totals[SEEN].get(flow) or totals[KERNEL].get(flow)
    if counted:
        return counted.count
    traced = attribution.total_of(totals.traced, flow.device, (flow.op,))
    return max((histogram.count for histogram in (*by_stage.values(), traced)), default=0)


def _kernel(done: Completed, alone: Completed | None) -> KernelCounts:
    mean_us = queue_us = driver_us = None
    if done.time_us is not None and done.count:
        mean_us = round(done.time_us / done.count, 1)
        if done.queue_us is not None:
            queue_us = round(done.queue_us / done.count, 1)
            driver_us = round((done.time_us - done.queue_us) / done.count, 1)
    return KernelCounts(
        count=done.count,
        bytes=done.bytes,
        time_us=done.time_us,
        mean_us=mean_us,
        queue_mean_us=queue_us,
        driver_mean_us=driver_us,
        merged=done.merged,
        seen_alone=alone.count if alone else 0,
    )


def _outstanding(name: str, ops: _Ops, origin: Origin, totals: Totals) -> Outstanding | None:
    """Return depths over time if measured, else samples at the windows' ends."""
    known, sums = totals.devices.get(name), totals.depths.get(name)
    limit = depths.driver_limit(known, totals.devices)
    if sums is not None and sums.in_driver:
        driver, whole = _times(name, ops, origin, totals, sums.depths)
        now = totals.last.outstanding.get(name) if totals.last else None
        law = depths.littles_law(
            sums,
            known,
            driver,
            whole,
            totals.measured_us,
            waiting=totals.outstanding.ages.of(name),
            left=now.known if now else 0,
        )
        waiting = None if sums.queued else _waiting(name, origin, totals)
        return depths.depths_over_time(sums, known, limit, law, waiting)
    if sums is not None and (sums.at_issue or sums.highest):
        return depths.depths_at_issue(sums, limit)
    if name in totals.gauges:
        return depths.sampled_depths(totals.gauges[name], known, totals)
    return None


def _times(
    name: str, ops: _Ops, origin: Origin, totals: Totals, depths: Depths
) -> tuple[Histogram | None, MeanTimes | None]:
    """Return times from issue to completion and total times of the I/Os that gauges count: no flushes."""
    counted = [by_stage for op, by_stage in ops.items() if op in COUNTED]
    total = _merged(_TOTAL, counted)
    done = {op: totals.counted(Flow(name, op)) for op in OPS}
    known = times_of(total) if origin.latency_from == "queued" else None
    whole = times(depths, done, known, total.max_bound)
    if origin.latency_from == "issue":
        return total or None, whole
    to_end = "completion" in origin.measured.get("hba", ())
    driver = _merged("hba", counted) if to_end else None
    return driver or None, whole


def _merged(stage: str, of_ops: list[dict[str, Histogram]]) -> Histogram:
    return merge(by_stage[stage] for by_stage in of_ops if stage in by_stage)


def _by_device(totals: Totals) -> dict[str, _Ops]:
    """Return the devices of the recording with their ops, and the histograms of these by stage."""
    traced = {series.device for series in totals.traced.histograms}
    longest = totals.outstanding.longest
    named = (*totals.gauges, *totals.depths, *longest, *totals.orders, *totals.thresholds_us, *traced)
    by_device: dict[str, _Ops] = {name: {} for name in (*totals.devices, *named)}
    for flow in (*totals[SEEN], *totals[KERNEL]):
        by_device.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, histogram in totals[LATENCIES].items():
        by_device.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = histogram
    for name in traced:
        for op in ops_of(totals.traced, name):
            by_device[name].setdefault(op, {})
    return {name: by_device[name] for name in sorted(by_device, key=by_name)}


def stages(flow: Flow, always: Mapping[str, Histogram], origin: Origin, traced: Traced) -> OpStages:
    """Return an op's stages; of traced requests also their total, its unaccounted part and their submission."""
    by_stage = attribution.stages_of(traced, flow.device, (flow.op,))
    total = attribution.total_of(traced, flow.device, (flow.op,))
    if not total:
        # the time after an I/O's completion is also measured by scripts that don't trace I/Os
        resumed = {name: histogram for name, histogram in by_stage.items() if name == "resume"}
        return _always({**always, **resumed}, origin, traced)
    passed = {name: histogram for name, histogram in by_stage.items() if name != UNACCOUNTED}
    submitted = attribution.submission_of(traced, flow.device, (flow.op,))
    includes = traced.includes_of(flow.device)
    before = includes.get(ADMISSION, ())
    return OpStages(
        _each(passed, includes),
        _absent(flow.device, passed, traced),
        of=TracedTotal(sampling=sampling(traced), latency_us=summed(total)),
        unaccounted=summed(by_stage[UNACCOUNTED]) if UNACCOUNTED in by_stage else None,
        whole=of_stage(submitted.whole, before) if submitted.whole else None,
        admission=of_stage(submitted.admission, before) if submitted.whole else None,
    )


class OpStages(NamedTuple):
    """Stages of an op with their reasons; None is what isn't traced."""

    stages: Mapping[str, StageQuantiles]
    absent: Mapping[str, str]
    of: TracedTotal | None = None
    unaccounted: SummedQuantiles | None = None
    whole: StageQuantiles | None = None
    """From submission to completion."""
    admission: StageQuantiles | None = None


def sampling(traced: Traced) -> Sampling:
    """Return how many I/Os the tracer followed, at the coarsest, and at the finest if it changed."""
    least, most = traced.sampled
    return Sampling(one_in=most, one_in_least=least if least != most else None)


def tail(device: str, ops: Iterable[str], traced: Traced, cut_us: int | None) -> Tail | None:
    """Return the tail; None if no I/O is above the cut, or none was traced."""
    if cut_us is None:
        return None
    above = attribution.tail(traced, device, ops, cut_us)
    if not above.count:
        return None
    return Tail(above.cut_us, above.count, {stage: round(share, 6) for stage, share in above.share.items()})


def followed(device: str, traced: Traced) -> TracedPaths | None:
    """Return how traced requests completed, why some weren't followed, and what tasks waited for before (us).

    `completers` (of one completion in 64) and `raisers` (by vector) are the most frequent kernel functions.
    """
    raisers = attribution.raisers_of(traced, device)
    paths = TracedPaths(
        paths=traced.paths.get(device, {}),
        unfollowed=traced.unfollowed.get(device, {}),
        admission_causes=traced.admission_causes.get(device, {}),
        completers=attribution.frequent(traced.completers.get(device, {})),
        raisers={vector: attribution.frequent(stacks) for vector, stacks in raisers.items()},
    )
    is_any = paths.paths or paths.unfollowed or paths.admission_causes or paths.completers or paths.raisers
    return paths if is_any else None


def ops_of(traced: Traced, device: str) -> set[str]:
    """Return the ops of which a request was traced."""
    return {series.op for series in traced.histograms if series == Series(device, series.op, _TOTAL)}


def _always(by_stage: Mapping[str, Histogram], origin: Origin, traced: Traced) -> OpStages:
    reasons = _reasons(origin.absent)
    if origin.backend == "dtrace" and traced.one_in and not origin.why_untraced("resume"):
        reasons["resume"] = NOT_PASSED + NO_WAITER
    return OpStages(
        _each({name: histogram for name, histogram in by_stage.items() if name != _TOTAL}, origin.measured),
        {name: why for name, why in reasons.items() if name not in by_stage},
    )


def _each(by_stage: Mapping[str, Histogram], includes: Mapping[str, tuple[str, ...]]) -> dict[str, StageQuantiles]:
    names = sorted(by_stage, key=order(STAGES))
    return {name: of_stage(by_stage[name], includes.get(name, ())) for name in names}


def _absent(device: str, passed: Mapping[str, Histogram], traced: Traced) -> dict[str, str]:
    """Return why each other stage has no number: not measured, or no request passed it."""
    reasons = _reasons(traced.absent)
    absent = {}
    for name in STAGES:
        if name == _TOTAL or name in passed:
            continue
        if why := why_unmeasured(name, passed, reasons, traced.includes_of(device)):
            absent[name] = why if name in reasons else f"{NOT_MEASURED}{why}"
        else:
            absent[name] = NOT_PASSED + (FACTS_OF[name].not_passed or _completes(device, traced))
    return absent


def _reasons(absent: Iterable[Missing]) -> dict[str, str]:
    return {missing.name: missing.reason for missing in absent}


def _completes(device: str, traced: Traced) -> str:
    paths = traced.paths.get(device, {})
    if not paths:
        return "no followed request of this device passed it"
    most = max(paths, key=lambda name: paths[name])
    where = f"in the {most}" if most == "hard interrupt" else f"by {most}"
    return f"completes {where}" if len(paths) == 1 else f"no followed request passed it; most complete {where}"
