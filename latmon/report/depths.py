"""Outstanding I/O of a device in a report, from its sums: depths, law, limits, issue order, I/Os in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from latmon.aggregate.depth_sum import DepthTimes
from latmon.analysis.issue_order import LbaOrder, summary
from latmon.analysis.limits import (
    Audited,
    at_limit,
    ceiling,
    ceilings,
    elevator,
    wall,
    within,
)
from latmon.analysis.littles_law import COUNTED, MeanTimes, mean_waiting, of, times, times_of
from latmon.model.frame import OPS, Device, Flow, Frame
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import MEANS, Aged, AgedAt, bucket_middle
from latmon.model.inflight import Depths as DepthSums
from latmon.report.model.depth import (
    DepthLatency,
    Depths,
    DepthsAtIssue,
    DriverLimit,
    InFlight,
    InFlightAtEnd,
    IssueOrder,
    LittlesLaw,
    LongestInFlight,
    MeanDepths,
    MeanQueue,
    Outstanding,
    Queue,
    RequestInFlight,
    SampledDepths,
)
from latmon.report.model.device import LimitSetting
from latmon.report.op_sums import TOTAL, OpSums, Stages
from latmon.report.ops import count_of
from latmon.report.totals import OutstandingSums, Totals
from latmon.support.units import rfc3339

MAX_JSON_DEPTHS = 1024
MAX_JSON_ROWS = 256
"""Rows of I/Os in flight per device in the JSON report."""
_FEW_WINDOWS = 20


def outstanding_of(name: str, by_op: Mapping[str, Stages], op_sums: OpSums) -> Outstanding | None:
    """Return depths over time if measured, else samples at the windows' ends."""
    totals = op_sums.totals
    known, sums = totals.devices.get(name), totals.depths.get(name)
    limit = _driver_limit(known, totals.devices)
    if sums is not None and sums.in_driver:
        driver, mean_times = _times(name, by_op, op_sums, sums.depths)
        now = totals.last.outstanding.get(name) if totals.last else None
        law = _littles_law(
            sums,
            known,
            driver,
            mean_times,
            totals.measured_us,
            waiting=totals.outstanding.ages.of(name),
            left=now.known if now else 0,
        )
        waiting = None if sums.queued else mean_waiting_of(name, op_sums)
        return _depths_over_time(sums, known, limit, law, waiting)
    if sums is not None and (sums.at_issue or sums.highest):
        return _depths_at_issue(sums, limit)
    if name in totals.gauges:
        return _sampled_depths(totals.gauges[name], known, totals)
    return None


def mean_waiting_of(name: str, sums: OpSums) -> float | None:
    """Return the mean number of I/Os that wait above a driver whose kernel doesn't count them; None where unknown."""
    totals = sums.totals
    if sums.origin.assumed_length:
        return None
    done = sum(count_of(Flow(name, op), {}, sums) for op in COUNTED)
    return mean_waiting(totals.traced.histograms, name, done, totals.measured_us)


def _times(
    name: str, by_op: Mapping[str, Stages], sums: OpSums, depths: DepthSums
) -> tuple[Histogram | None, MeanTimes | None]:
    """Return times from issue to completion and total times of the I/Os that gauges count: no flushes."""
    origin, totals = sums.origin, sums.totals
    counted = [by_stage for op, by_stage in by_op.items() if op in COUNTED]
    total = _merged(TOTAL, counted)
    done = {op: totals.counted(Flow(name, op)) for op in OPS}
    known = times_of(total) if origin.latency_from == "queued" else None
    mean_times = times(depths, done, known, total.max_bound)
    if origin.latency_from == "issue":
        return total or None, mean_times
    to_end = "completion" in origin.measured.get("hba", ())
    driver = _merged("hba", counted) if to_end else None
    return driver or None, mean_times


def _merged(stage: str, of_ops: list[Stages]) -> Histogram:
    return merge(by_stage[stage] for by_stage in of_ops if stage in by_stage)


def _sampled_depths(sampled: Counter[int], device: Device | None, totals: Totals) -> SampledDepths:
    """Return depths sampled at the windows' ends; `time_share` is the share of windows, by their length.

    `windows`: their number if it is small, so that a share by length is one of so many windows. Windows that are at
    most 2 % longer than the mean one, which was sampled in all of them, differ by less than half of one in all.
    """
    are_few = 0 < totals.windows <= _FEW_WINDOWS and sum(sampled.values()) == totals.measured_us
    are_alike = are_few and totals.longest_us * totals.windows <= 1.02 * totals.measured_us
    return SampledDepths(
        windows=totals.windows if are_alike else None,
        max=max(sampled),
        mode=_mode(sampled),
        bound=_driver_limit(device, totals.devices),
        time_share=_shares(sampled),
    )


def _depths_over_time(
    sums: DepthTimes,
    device: Device | None,
    limit: DriverLimit | None,
    law: LittlesLaw | None,
    waiting: float | None = None,
) -> Depths | MeanDepths:
    """Return the depth in the driver over all time and over busy time, the queue, and latency by depth.

    `waiting`: the mean number of waiting I/Os where these aren't counted, as for `wall`.
    """
    bound = ceiling(device.limits) if device else None
    held_at = wall(sums.depths, bound, waiting)
    if sums.depths.source == MEANS:
        return _mean_depths(sums, limit, law, held_at)
    busy = _busy(sums.in_driver)
    scheduler = elevator(device.limits) if device else None
    return Depths(
        max=within(sums.highest, bound),
        max_at=None if sums.highest_at is None else rfc3339(sums.highest_at),
        mode=within(_mode(sums.in_driver), bound),
        busy_mode=within(_mode(busy), bound) if busy else None,
        mean=_mean(sums.in_driver),
        bound=limit,
        held_at=held_at,
        at_limit=at_limit(sums.depths, bound, scheduler, waiting),
        time_share=_shares(sums.in_driver),
        busy_time_share=_shares(busy),
        queued=_queue(sums.queued) if sums.queued else None,
        at_issue=dict(sorted(sums.at_issue.items())),
        latency_by_depth=_latency(sums) if sums.latency else None,
        littles_law=law,
        corrected=sums.corrected,
        source=sums.depths.source,
    )


def _mean_depths(
    sums: DepthTimes, limit: DriverLimit | None, law: LittlesLaw | None, held_at: int | None
) -> MeanDepths:
    """Return the means and busy shares of the driver and the queue: no distribution of them was measured."""
    return MeanDepths(
        mean=_mean(sums.in_driver),
        busy=_busy_share(sums.in_driver),
        bound=limit,
        held_at=held_at,
        queued=MeanQueue(_mean(sums.queued), _busy_share(sums.queued)) if sums.queued else None,
        littles_law=law,
        source=sums.depths.source,
    )


def _depths_at_issue(sums: DepthTimes, limit: DriverLimit | None) -> DepthsAtIssue:
    """Return I/Os at issue and a maximum, as imported tools print them: the time at each depth is unknown."""
    return DepthsAtIssue(
        max=max(sums.highest, *sums.at_issue) if sums.at_issue else sums.highest,
        bound=limit,
        at_issue=dict(sorted(sums.at_issue.items())),
        source=sums.depths.source,
    )


def _littles_law(
    sums: DepthTimes,
    device: Device | None,
    driver: Histogram | None,
    mean_times: MeanTimes | None,
    time_us: int,
    *,
    waiting: Iterable[Aged] = (),
    left: int = 0,
) -> LittlesLaw | None:
    """Return Little's law; None if one of its three is unknown for most of the time (littles_law.of).

    `driver`: times in the driver alone; `whole`: from the block layer on. Either may be unknown. `waiting`, `left`: the
    device's I/Os in flight at the end, those with an age and all of them.
    """
    bound = ceiling(device.limits) if device else None
    times = times_of(driver)
    check = of(
        sums.depths, sums.span_us, time_us, whole=mean_times, driver=times, bound=bound, waiting=waiting, left=left
    )
    if check is None:
        return None
    law, lift = check.law, check.lift
    return LittlesLaw(
        of=check.of,
        outstanding=round(law.outstanding, 3),
        latency_us=round(law.latency_us, 3),
        iops=round(law.iops, 3),
        stuck=round(law.stuck, 3),
        error=round(law.error, 3),
        stuck_most=round(law.stuck_most, 3),
        unknown_age=law.unknown_age,
        by_law=round(law.by_law, 3),
        agrees=law.agrees,
        lift=None if lift is None else lift._replace(iops=round(lift.iops, 1), most=round(lift.most, 1)),
        sentence=check.sentence,
    )


def in_flight_count(name: str, last: Frame | None) -> int | None:
    """Return the device's I/Os in flight at the end of the recording, of all ages, by the kernel's gauges."""
    now = last.outstanding.get(name) if last else None
    return now.known if now is not None and now.is_known else None


def in_flight_at_end(name: str, sums: OutstandingSums, last: Frame | None) -> InFlightAtEnd | None:
    """Return the I/Os older than 0.5 s that were in flight at the end of the recording, oldest first.

    They are empty only if it is known that there were none; else None is returned.
    """
    if last is None:
        return None
    rows = [aged for aged in sums.ages.oldest if aged.device == name]
    now = last.outstanding.get(name)
    is_known = now is not None and now.in_driver is not None and not sums.ages.unknown.get(name, 0)
    if not rows and not is_known:
        return None
    listed = tuple(_in_flight_row(AgedAt(aged, last.wall, last.mono_us)) for aged in rows[:MAX_JSON_ROWS])
    return InFlightAtEnd(listed, rows[0].age_us if rows else None)


def longest_seen(name: str, sums: OutstandingSums) -> LongestInFlight | None:
    """Return the device's I/O that was longest in flight in any window."""
    seen = sums.longest.get(name)
    return None if seen is None else LongestInFlight(rfc3339(seen.wall_s), _in_flight_row(seen))


def _in_flight_row(seen: AgedAt) -> InFlight:
    """Return a request, or a number of I/Os with a least age."""
    aged = seen.row
    return InFlight(aged.age_us, aged.at_least, aged.count, _request_in_flight(seen))


def _request_in_flight(seen: AgedAt) -> RequestInFlight | None:
    request = seen.row.request
    if request is None:
        return None
    return RequestInFlight(
        began=rfc3339(seen.wall_s - (seen.mono_us - request.began_us) / 1e6),
        began_mono_us=request.began_us,
        op=request.op,
        flags=request.flags,
        sector=request.sector,
        bytes=request.bytes,
        pid=request.pid,
        comm=request.comm or None,
        in_driver=request.issued,
        overtaken_by=request.overtaken_by,
        own=request.own,
    )


def limit_settings(audited: Audited) -> tuple[LimitSetting, ...]:
    """Return the settings of a device with the remarks on each."""
    return tuple(LimitSetting(setting.limit, setting.remarks) for setting in audited.settings)


def issue_order(order: LbaOrder | None, device: Device | None = None, known_us: int = 0) -> IssueOrder | None:
    """Return the order over the recorded windows of consecutive issues; `known_us` as in summary()."""
    if order is None or not order.count:
        return None
    return IssueOrder(
        count=order.count,
        ascending=order.ascending_share,
        ascending_by_arrival=order.arrival_share,
        reordered=order.reordered,
        most_overtaken=order.most_overtaken,
        longest_wait_us=order.longest_wait_us,
        summary=summary(order, elevator(device.limits) if device else None, known_us=known_us),
    )


def overtaken_us(name: str, totals: Totals) -> int:
    """Return the age of the device's longest I/O whose overtaking I/Os were counted; 0 without one."""
    seen, outlier = totals.outstanding.longest.get(name), totals.worst.longest.get(name)
    request = seen.row.request if seen else None
    in_flight_us = seen.row.age_us if seen and request and request.overtaken_by is not None else 0
    return max(in_flight_us, outlier.total_us if outlier and outlier.overtaken_by is not None else 0)


def _queue(queued: Counter[int]) -> Queue:
    busy = _busy(queued)
    return Queue(
        max=max(queued),
        mode=_mode(queued),
        busy_mode=_mode(busy) if busy else None,
        mean=_mean(queued),
        time_share=_shares(queued),
        busy_time_share=_shares(busy),
    )


def _busy_share(depths: Counter[int]) -> float:
    return round(sum(_busy(depths).values()) / (sum(depths.values()) or 1), 4)


def _latency(sums: DepthTimes) -> dict[int, DepthLatency]:
    return {
        depth: DepthLatency(took.ios, round(took.time_us / took.ios, 1))
        for depth, took in sorted(sums.latency.items())
        if took.ios
    }


def _driver_limit(device: Device | None, devices: Mapping[str, Device]) -> DriverLimit | None:
    """Return the limit of I/Os in the driver; None where it isn't known.

    A volume has no driver. Its limit is the sum of those of its disks or paths, known if each of them is.
    """
    if device is None:
        return None
    bound = ceiling(device.limits)
    if bound is not None:
        return DriverLimit(int(bound.value), bound.source)
    of_disks = ceilings(device, devices)
    values = {name: int(limit.value) for name, limit in of_disks.items() if limit is not None}
    if device.name in of_disks or len(values) < len(of_disks):
        return None
    return DriverLimit(sum(values.values()), "the sum of its disks", values)


def _busy(depths: Counter[int]) -> Counter[int]:
    return Counter({depth: us for depth, us in depths.items() if depth and us})


def _mode(depths: Counter[int]) -> int:
    return depths.most_common(1)[0][0]


def _mean(depths: Counter[int]) -> float | None:
    total = sum(depths.values())
    return round(sum(bucket_middle(depth) * us for depth, us in depths.items()) / total, 4) if total else None


def _shares(depths: Counter[int]) -> dict[int, float]:
    total = sum(depths.values()) or 1
    shown = sorted(depth for depth, _ in depths.most_common(MAX_JSON_DEPTHS))
    return {depth: round(depths[depth] / total, 6) for depth in shown}
