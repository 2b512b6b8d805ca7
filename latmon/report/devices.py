"""A device's part of the report: ops with latency and stages, outstanding I/O, limits; interrupts and threads.

Says of every stage that has no number why. Pure: merged values in, plain JSON values out.

Pure: sums in, plain JSON values out. A key that nobody measured is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from latmon.aggregate.accumulator import DepthSums, TaskqSums
from latmon.analysis import attribution
from latmon.analysis.attribution import by_vector
from latmon.analysis.device_order import by_name
from latmon.analysis.issue_order import LbaOrder, summary
from latmon.analysis.limits import Audited, Remark, at_limit, audit, ceiling, elevator, wall, within
from latmon.analysis.littles_law import COUNTED, Times, of, times, times_of
from latmon.model.frame import (
    OPS,
    STAGES,
    UNACCOUNTED,
    UNKNOWN_IRQ,
    Completed,
    Device,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Limit,
    Missing,
    Origin,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Traced,
    Wakeups,
    pid_of,
)
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import AGES_S, MEANS, Aged, Ages, Depths, Seen, bucket_middle
from latmon.model.stages import called
from latmon.report.formatting import order, quantiles, rfc3339, rounded, shares, summed
from latmon.report.totals import OutstandingSums, Totals
from latmon.views.anatomy import NO_WAITER

NOT_PASSED = "n/a: "
"""How the reason begins for a stage that is measured and that no request passed."""
_PASSED = {
    "requeue": "no request was refused by the driver",
    "resume": "no thread was seen to wait for it",
}


def stages(flow: Flow, always: Mapping[str, Histogram], origin: Origin, traced: Traced) -> dict[str, Any]:
    """The keys `stages`, `stages_absent`, and of traced requests `of` and `unaccounted`."""
    found = attribution.stages_of(traced, flow.device, (flow.op,))
    total = attribution.total_of(traced, flow.device, (flow.op,))
    if not total:
        # What follows an I/O's end is counted by itself, and by scripts that need not trace I/Os.
        return _always({**always, **{name: one for name, one in found.items() if name == "resume"}}, origin, traced)
    passed = {name: one for name, one in found.items() if name != UNACCOUNTED}
    return {
        "stages": _each(passed, traced.includes_of(flow.device)),
        "stages_absent": _absent(flow.device, passed, traced),
        "of": {**sampling(traced), "latency_us": summed(total)},
        **({"unaccounted": summed(found[UNACCOUNTED])} if UNACCOUNTED in found else {}),
    }


def sampling(traced: Traced) -> dict[str, int]:
    """The key `one_in`, at its coarsest, and `one_in_least` where it changed."""
    least, most = traced.sampled
    return {"one_in": most, **({"one_in_least": least} if least != most else {})}


def tail(device: str, ops: Iterable[str], traced: Traced, cut_us: int | None) -> dict[str, Any]:
    """The key `tail`; nothing when no I/O is above the cut, or none was traced."""
    if cut_us is None:
        return {}
    found = attribution.tail(traced, device, ops, cut_us)
    if not found.count:
        return {}
    return {"tail": {"cut_us": found.cut_us, "count": found.count, "share": shares(found.share)}}


def includes_of(ops: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return stage -> stages that it includes, of a device's ops in the report: of the traced ones where there are."""
    some = [op for op in ops.values() if "of" in op] or list(ops.values())
    return {stage: figures["includes"] for op in some for stage, figures in op["stages"].items()}


def followed(device: str, traced: Traced) -> dict[str, Any]:
    """How the device's traced requests completed, and why some could not be followed."""
    told = {"paths": traced.paths.get(device, {}), "unfollowed": traced.unfollowed.get(device, {})}
    return {"traced": {key: dict(value) for key, value in told.items() if value}} if any(told.values()) else {}


def ops_of(traced: Traced, device: str) -> set[str]:
    """Ops of which a request was traced."""
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
    """Not measured here, or measured and passed by none of them."""
    reasons = _reasons(traced.absent)
    includes = traced.includes_of(device)
    holders = {inner: name for name, others in includes.items() for inner in others}
    found = {}
    for name in (one for one in STAGES if one != _TOTAL and one not in passed):
        if name in reasons:
            found[name] = reasons[name]
        elif holders.get(name) in passed:
            held = called(holders[name], includes[holders[name]]).both
            found[name] = f"not measured: its time is in {held}"
        else:
            found[name] = NOT_PASSED + (_PASSED.get(name) or _completes(device, traced))
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


MAX_DEPTHS = 1024
MAX_ROWS = 256
"""Requests in flight of one device."""
_Json = dict[str, Any]


def gauge(depths: Counter[int], device: Device | None) -> _Json:
    """Without depths: sampled at the end of each window; `time_share` is the share of windows, by their length."""
    return {
        "max": max(depths),
        "mode": depths.most_common(1)[0][0],
        **_limit(device),
        "time_share": _shares(depths),
    }


def depths(sums: DepthSums, device: Device | None, timed: Mapping[str, Any]) -> _Json:
    """The depth in the driver over all time and over busy time, beside it the queue, and what came of them."""
    told = sums.depths
    busy = _busy(sums.in_driver)
    bound = ceiling(device.limits) if device else None
    held = wall(told, bound)
    if told.source == MEANS:
        return means(sums, device, timed) | ({"held_at": held} if held is not None else {})
    scheduler = elevator(device.limits) if device else None
    return {
        "max": within(sums.highest, bound),
        **({"max_at": rfc3339(sums.highest_at)} if sums.highest_at is not None else {}),
        "mode": _within(_mode(sums.in_driver), bound),
        "busy_mode": _within(_mode(busy), bound),
        "mean": _mean(sums.in_driver),
        **_limit(device),
        **({"held_at": held} if held is not None else {}),
        **({"at_limit": True} if at_limit(told, bound, scheduler) else {}),
        "time_share": _shares(sums.in_driver),
        "busy_time_share": _shares(busy),
        **({"queued": _queued(sums.queued)} if sums.queued else {}),
        **({"at_issue": {str(depth): n for depth, n in sorted(sums.at_issue.items())}} if sums.at_issue else {}),
        **({"latency_by_depth": _latency(sums)} if sums.latency else {}),
        **timed,
        "corrected": sums.corrected,
        "source": told.source,
    }


def means(sums: DepthSums, device: Device | None, timed: Mapping[str, Any]) -> _Json:
    """Return the means and busy shares of the driver and the queue: no distribution of them was measured."""
    queued = {"queued": _mean_and_busy(sums.queued)} if sums.queued else {}
    return {**_mean_and_busy(sums.in_driver), **_limit(device), **queued, **timed, "source": sums.depths.source}


def counts(sums: DepthSums, device: Device | None) -> _Json:
    """Where nobody knows for how long it was so many: I/Os at issue and a maximum, as other tools print them."""
    at_issue = {str(depth): n for depth, n in sorted(sums.at_issue.items())}
    return {
        "max": max(sums.highest, *sums.at_issue) if sums.at_issue else sums.highest,
        **_limit(device),
        **({"at_issue": at_issue} if at_issue else {}),
        "source": sums.depths.source,
    }


def littles_law(
    sums: DepthSums,
    device: Device | None,
    driver: Histogram | None,
    whole: Times | None,
    time_us: int,
    *,
    waiting: Iterable[Aged] = (),
    left: int = 0,
) -> _Json:
    """The key `littles_law`; empty where one of its three isn't known for most of the time (littles_law.of).

    `driver`: times in the driver alone; `whole`: from the block layer on. Either may be unknown. `waiting`, `left`: the
    device's I/Os in flight at the end, those with an age and all of them.
    """
    bound = ceiling(device.limits) if device else None
    times = times_of(driver)
    found = of(sums.depths, sums.span_us, time_us, whole=whole, driver=times, bound=bound, waiting=waiting, left=left)
    if found is None:
        return {}
    told = {name: round(value, 3) for name, value in found.law._asdict().items()}
    return {
        "littles_law": {
            "of": found.of,
            **told,
            "by_law": round(found.law.by_law, 3),
            "agrees": found.law.agrees,
            **({"lift": {k: round(v, 1) for k, v in found.lift._asdict().items()}} if found.lift else {}),
            "sentence": found.sentence,
        }
    }


def in_flight(name: str, sums: OutstandingSums, last: Frame | None) -> _Json:
    """What waits at the end of the recording, oldest first, and the longest wait that was ever seen of the device.

    Without rows the list is told only where nobody waits for certain: an empty one is a fact.
    """
    rows = [one for one in sums.ages.oldest if one.device == name]
    unknown = sums.ages.unknown.get(name, 0)
    told: _Json = {}
    if last and (rows or (_is_counted(name, last) and not unknown)):
        told["in_flight"] = [row(Seen(one, last.wall, last.mono_us)) for one in rows[:MAX_ROWS]]
        told["in_flight_oldest_us"] = rows[0].age_us if rows else None
    if unknown:
        told["in_flight_of_unknown_age"] = unknown
    if name in sums.longest:
        seen = sums.longest[name]
        told["in_flight_longest"] = {"seen": rfc3339(seen.wall_s), **row(seen)}
    return told


def _is_counted(name: str, last: Frame) -> bool:
    """Whether anybody looked at the end."""
    now = last.outstanding.get(name)
    return now is not None and now.in_driver is not None


def row(seen: Seen) -> _Json:
    """A request, or I/Os of which only a least age is known."""
    one = seen.row
    told = {"age_us": one.age_us, "at_least": one.at_least, "count": one.count}
    if one.request is None:
        return told
    request = one.request
    return told | {
        "began": rfc3339(seen.wall_s - (seen.mono_us - request.began_us) / 1e6),
        "began_mono_us": request.began_us,
        "op": request.op,
        "flags": list(request.flags),
        "sector": request.sector,
        "bytes": request.bytes,
        "pid": request.pid,
        "comm": request.comm or None,
        "in_driver": request.issued,
        "overtaken_by": request.overtaken_by,
        **({"own": True} if request.own else {}),
    }


def older(ages: Ages) -> _Json:
    """Of the health: `in_flight_older`, counts at the end of the recording, and how many of no known age there are."""
    unknown = {"in_flight_of_unknown_age": ages.of_unknown_age} if ages.of_unknown_age else {}
    return {
        "in_flight_older": {**{f"{age} s": ages.older[age] for age in AGES_S}, "at_least": ages.at_least},
        **unknown,
    }


def limits(audited: Audited | None) -> _Json:
    """The keys `limits`, with remarks where there is one, and `limits_remarks` of the device as a whole."""
    if audited is None:
        return {}
    rows = [one.limit._asdict() | _remarks("remarks", one.remarks) for one in audited.settings]
    return {"limits": rows, **_remarks("limits_remarks", audited.remarks)}


def issue_order(order: LbaOrder | None, device: Device | None = None, known_us: int = 0) -> _Json:
    """The key `issue_order`, of the windows of consecutive issues that were recorded; `known_us` as of summary()."""
    if order is None or not order.count:
        return {}
    return {
        "issue_order": {
            "count": order.count,
            "ascending": order.ascending_share,
            "ascending_by_arrival": order.arrival_share,
            "reordered": order.reordered,
            "most_overtaken": order.most_overtaken,
            "longest_wait_us": order.longest_wait_us,
            "summary": summary(order, elevator(device.limits) if device else None, known_us=known_us),
        }
    }


def _overtaken_us(name: str, totals: Totals) -> int:
    """Return the age of the longest I/O of a device of which all that overtook it are counted; 0 without one."""
    seen, outlier = totals.outstanding.longest.get(name), totals.worst.longest.get(name)
    request = seen.row.request if seen else None
    in_flight_us = seen.row.age_us if seen and request and request.overtaken_by is not None else 0
    return max(in_flight_us, outlier.total_us if outlier and outlier.overtaken_by is not None else 0)


def _remarks(key: str, remarks: Iterable[Remark]) -> _Json:
    told = [one._asdict() for one in remarks]
    return {key: told} if told else {}


def _queued(queued: Counter[int]) -> _Json:
    busy = _busy(queued)
    return {
        "max": max(queued),
        "mode": _mode(queued),
        "busy_mode": _mode(busy),
        "mean": _mean(queued),
        "time_share": _shares(queued),
        "busy_time_share": _shares(busy),
    }


def _mean_and_busy(depths: Counter[int]) -> _Json:
    return {"mean": _mean(depths), "busy": round(sum(_busy(depths).values()) / (sum(depths.values()) or 1), 4)}


def _latency(sums: DepthSums) -> _Json:
    return {
        str(depth): {"count": took.ios, "mean_us": round(took.time_us / took.ios, 1)}
        for depth, took in sorted(sums.latency.items())
        if took.ios
    }


def _limit(device: Device | None) -> _Json:
    bound = ceiling(device.limits) if device else None
    return {"limit": bound.value, "limit_source": bound.source} if bound else {}


def _busy(depths: Counter[int]) -> Counter[int]:
    return Counter({depth: us for depth, us in depths.items() if depth and us})


def _mode(depths: Counter[int]) -> int | None:
    return depths.most_common(1)[0][0] if depths else None


def _within(depth: int | None, bound: Limit | None) -> int | None:
    return None if depth is None else within(depth, bound)


def _mean(depths: Counter[int]) -> float | None:
    whole = sum(depths.values())
    return round(sum(bucket_middle(depth) * us for depth, us in depths.items()) / whole, 4) if whole else None


def _shares(depths: Counter[int]) -> dict[str, float]:
    whole = sum(depths.values()) or 1
    shown = sorted(depth for depth, _ in depths.most_common(MAX_DEPTHS))
    return {str(depth): round(depths[depth] / whole, 6) for depth in shown}


_TOTAL = "total"
_Ops = dict[str, dict[str, Histogram]]
"""Op -> stage -> histogram."""


def devices(origin: Origin, totals: Totals) -> dict[str, Any]:
    """Every device of the recording."""
    sums = {name: one.depths for name, one in totals.outstanding.devices.items()}
    audited = {one.device: one for one in audit(totals.devices.values(), sums, totals.queue_depths)}
    return {name: _device(name, ops, origin, totals, audited.get(name)) for name, ops in _by_device(totals).items()}


def _device(name: str, ops: _Ops, origin: Origin, totals: Totals, audited: Audited | None) -> dict[str, Any]:
    known = totals.devices.get(name)
    busy = [op for op in sorted(ops, key=order(OPS)) if _count(Flow(name, op), ops[op], totals)]
    above = {flow.op: n for flow, n in totals.deep.above.items() if flow.device == name}
    cut_us = attribution.tail_cut(totals.traced, name, threshold_us=origin.threshold_us)
    longest = totals.worst.longest.get(name)
    return {
        **(_identity(known) if known else {}),
        "ops": {op: _op(Flow(name, op), ops[op], origin, totals, cut_us) for op in busy},
        **tail(name, tuple(ops), totals.traced, cut_us),
        **followed(name, totals.traced),
        **({"threshold_us": totals.thresholds_us[name], "above": above} if name in totals.thresholds_us else {}),
        **_outstanding(name, ops, origin, totals),
        **in_flight(name, totals.outstanding, totals.last),
        **({"outlier_longest_us": longest.total_us} if longest else {}),
        **issue_order(totals.outstanding.orders.get(name), known, _overtaken_us(name, totals)),
        **limits(audited),
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


def _op(
    flow: Flow, found: Mapping[str, Histogram], origin: Origin, totals: Totals, cut_us: int | None
) -> dict[str, Any]:
    kernel = totals.kernel.get(flow)
    counted = totals.seen.get(flow) or kernel
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
        **({"kernel": _kernel(kernel)} if kernel else {}),
    }


def _count(flow: Flow, found: Mapping[str, Histogram], totals: Totals) -> int:
    """Completions that the probe saw; without a probe's count what was timed or traced, or what the kernel says."""
    counted = totals.seen.get(flow) or totals.kernel.get(flow)
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
    return {"count": done.count, "bytes": done.bytes} | timed | mean | split


def _outstanding(name: str, ops: _Ops, origin: Origin, totals: Totals) -> dict[str, Any]:
    """From depths over time where there are some, else from the gauges at the windows' ends."""
    known, sums = totals.devices.get(name), totals.outstanding.devices.get(name)
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
        return {"outstanding": depths(sums, known, timed)}
    if sums is not None and (sums.at_issue or sums.highest):
        return {"outstanding": counts(sums, known)}
    if name in totals.depths:
        return {"outstanding": gauge(totals.depths[name], known)}
    return {}


def _times(
    name: str, ops: _Ops, origin: Origin, totals: Totals, depths: Depths
) -> tuple[Histogram | None, Times | None]:
    """Times in the driver to the completion, and whole ones, of all I/Os that the gauges count: flushes they don't."""
    each = [stages for op, stages in ops.items() if op in COUNTED]
    total = _merged(_TOTAL, each)
    done = {op: totals.kernel.get(Flow(name, op)) for op in OPS}
    known = times_of(total) if origin.latency_from == "queued" else None
    whole = times(depths, done, known, total.max_bound)
    if origin.latency_from == "issue":
        return total or None, whole
    to_end = "completion" in origin.measured.get("hba", ())
    driver = _merged("hba", each) if to_end else None
    return driver or None, whole


def _merged(stage: str, each: list[dict[str, Histogram]]) -> Histogram:
    found = [one[stage] for one in each if stage in one]
    bits = min((one.bits for one in found), default=0)
    return merge(one if one.bits == bits else one.coarsen(bits) for one in found)


def _by_device(totals: Totals) -> dict[str, _Ops]:
    """Every device of the recording, its ops, and their stages."""
    traced = {one.device for one in totals.traced.histograms}
    told = totals.outstanding
    named = (*totals.depths, *told.devices, *told.longest, *told.orders, *totals.thresholds_us, *traced)
    found: dict[str, _Ops] = {name: {} for name in (*totals.devices, *named)}
    for flow in (*totals.seen, *totals.kernel):
        found.setdefault(flow.device, {}).setdefault(flow.op, {})
    for series, one in totals.histograms.items():
        found.setdefault(series.device, {}).setdefault(series.op, {})[series.stage] = one
    for name in traced:
        for op in ops_of(totals.traced, name):
            found[name].setdefault(op, {})
    return {name: found[name] for name in sorted(found, key=by_name)}


MAX_THREADS = 1000


def softirqs(found: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, Any]:
    """Per vector, all CPUs together, and how many runs each CPU had."""
    told = {vector: _softirq(vector, runs, found) for vector, runs in sorted(by_vector(found).items())}
    return {"softirqs": told} if told else {}


def irqs(found: Mapping[Handler, HandlerRuns]) -> dict[str, Any]:
    """A row per handler; `before_us` is what handlers earlier on its vector took before the runs that were its own."""
    rows = [
        {
            "irq": None if handler.irq == UNKNOWN_IRQ else handler.irq,
            "handler": handler.name,
            "device": runs.device or None,
            "count": runs.run.count,
            "run_us": summed(runs.run),
            "returned": dict(runs.returned),
            "before_us": runs.before_us,
            "shared_with": list(runs.shared_with),
        }
        for handler, runs in sorted(found.items())
    ]
    return {"irqs": rows} if rows else {}


def wakeups(found: tuple[Wakeups, ...], left_out: int = 0) -> dict[str, Any]:
    """A row per thread, the one that waited longest first; `left_out`: wake-ups of threads that are not in `found`."""
    worst = sorted(found, key=lambda one: -(one.delay.max_bound or 0))
    rows = [
        {
            "thread": one.thread.comm,
            "pid": pid_of(one.thread.pid),
            "policy": one.thread.policy,
            "priority": one.thread.priority,
            "kernel": one.thread.kernel,
            "count": one.delay.count,
            "delay_us": quantiles(one.delay),
            "instead": dict(one.instead),
        }
        for one in worst[:MAX_THREADS]
    ]
    left_out += sum(one.delay.count for one in worst[MAX_THREADS:])
    return {"wakeups": rows, **({"wakeups_left_out": left_out} if left_out else {})} if rows else {}


def taskqs(sums: TaskqSums) -> dict[str, Any]:
    """A row per task queue that was ever busy, the one that had most waiting first; no row where all were idle."""
    if not sums.read:
        return {}
    rows = [
        {
            "name": one.last.name,
            "instance": one.last.instance,
            "priority": one.last.priority,
            "threads": one.last.threads,
            "permanent_loops": one.last.loops,
            "active_max": one.active,
            "waiting_max": one.waiting,
            "most": one.last.most,
            "tasks": one.tasks,
            "executed": one.executed,
            "mean_run_us": rounded(one.mean_us, 3),
        }
        for one in sums.rows
    ]
    return {"taskqs": rows, **({"taskqs_left_out": sums.left_out} if sums.left_out else {})}


def _softirq(vector: str, runs: SoftirqRuns, every: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, Any]:
    return {
        "count": runs.run.count or runs.delay.count,
        "delay_us": summed(runs.delay),
        "run_us": summed(runs.run),
        "ran_in": dict(runs.ran_in),
        "raised_in": dict(runs.raised_in),
        "cpus": {str(at.cpu): one.run.count for at, one in sorted(every.items()) if at.vector == vector},
    }
