"""The devices of the report: what each is, its thresholds, its outstanding I/O and its ops. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from latmon.analysis import attribution
from latmon.analysis.limits import Audited, audit
from latmon.model.frame import OPS, Device, DeviceReport, Flow
from latmon.model.measurements import ABOVE, DEVICE_COUNTERS
from latmon.report import depths, ops
from latmon.report.formatting import order
from latmon.report.model import device
from latmon.report.model.device import Reported
from latmon.report.op_sums import Ops, OpSums


def devices(sums: OpSums) -> dict[str, device.Device]:
    """Return the devices of the recording."""
    totals = sums.totals
    depth_sums = {name: depth_times.depths for name, depth_times in totals.depths.items()}
    unqueued = [name for name, of_device in depth_sums.items() if not of_device.queued]
    waiting = {name: depths.mean_waiting_of(name, sums) for name in unqueued}
    rows = audit(totals.devices.values(), depth_sums, totals.queue_depths, waiting, settings=sums.origin.settings)
    audited = {row.device: row for row in rows}
    return {name: _device(name, by_op, sums, audited.get(name)) for name, by_op in sums.by_device.items()}


def _device(name: str, by_op: Ops, sums: OpSums, audited: Audited | None) -> device.Device:
    origin, totals = sums.origin, sums.totals
    known = totals.devices.get(name)
    named = known or Device(name, 0, 0)
    cut_us = attribution.tail_cut(totals.traced, name, threshold_us=origin.threshold_us)
    threshold = totals.thresholds.get(name)
    has_moved = threshold is not None and threshold.least_us < threshold.most_us
    above = {flow.op: n for flow, n in totals[ABOVE].items() if flow.device == name}
    longest = totals.worst.longest.get(name)
    counters = totals[DEVICE_COUNTERS].get(name)
    active_us = None if counters is None else counters.active_us
    outstanding = depths.outstanding_of(name, by_op, sums)
    order_of_issue = depths.issue_order(totals.orders.get(name), known, depths.overtaken_us(name, totals))
    rows = {op: ops.op_of(Flow(name, op), by_op[op], cut_us, sums) for op in sorted(by_op, key=order(OPS))}
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
        ops={op: row for op, row in rows.items() if row.count},
        tail=ops.tail(name, tuple(by_op), totals.traced, cut_us),
        traced=ops.followed(name, totals.traced),
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
        issue_order=order_of_issue,
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
