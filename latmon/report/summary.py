"""The report of a recording: schema latmon.report/1, additive changes only.

Pure: totals and findings in, a value out, of which text, JSON and HTML are made. devices.py, depths.py, issuers.py,
interrupts.py, files.py and outliers.py make the parts.
"""

from __future__ import annotations

from itertools import chain

from latmon.analysis.attribution import added, untraced_share
from latmon.model.coverage import NONE
from latmon.model.frame import Frame, Origin, Traced
from latmon.model.frame import Health as HostHealth
from latmon.model.inflight import AGES_S
from latmon.model.measurements import (
    BEHIND,
    FILE_TIMES,
    FILES,
    HANDLERS,
    ISSUERS,
    NFS_OPERATIONS,
    SEEN,
    SOFTIRQS,
    WAKEUPS,
)
from latmon.model.packed_frame import FILES_LEFT_OUT, SUPPRESSED
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.report import limit_remarks, outliers
from latmon.report.devices import devices
from latmon.report.files import file_tables
from latmon.report.formatting import rounded
from latmon.report.interrupts import (
    host_context,
    host_context_absent,
    irqs,
    softirqs,
    taskqs,
    wakeups,
)
from latmon.report.issuers import cgroups, processes
from latmon.report.model.finding import Findings
from latmon.report.model.host import NamedReason
from latmon.report.model.report import (
    CountedSpan,
    CountedTime,
    Health,
    Host,
    InFlightOlder,
    MarkedTime,
    MissedTime,
    Notice,
    Report,
    ServiceLevel,
    SlowIOs,
    TracedCounts,
    Tracing,
)
from latmon.report.nfs import nfs_latencies
from latmon.report.op_sums import op_sums
from latmon.report.ops import sampling
from latmon.report.totals import Missed, SlowTimes, Totals
from latmon.support.units import rfc3339


def report_of(recording: Recording | Parts, totals: Totals, findings: Findings | None = None) -> Report:
    """Return the report of these totals; without findings no rule was evaluated."""
    origin = recording.origin
    issued, behind = totals[ISSUERS], totals[BEHIND]
    by_cgroup, by_process = cgroups(issued, behind), processes(issued, behind)
    files = file_tables(
        totals[FILES], totals[FILE_TIMES], totals.operations, totals.sums.counter(FILES_LEFT_OUT), totals.worst.kept
    )
    threads = wakeups(totals[WAKEUPS].values(), totals.wakeups.left_out)
    queues = taskqs(totals.taskqs)
    context = host_context(totals.host_context)
    slow_requests = outliers.slow_requests(totals.worst)
    slow, service = slow_ios(totals), service_level(totals)
    has_outliers = bool(totals.thresholds_us or totals.worst.seen)
    by_device = devices(op_sums(origin, totals))
    return Report(
        backend=origin.backend,
        host=Host(origin.host, origin.kernel, origin.latmon, origin.tool),
        start=rfc3339(_start(origin, totals.first)),
        duration_s=_duration_s(totals),
        measured_s=None if origin.assumed_length else round(totals.measured_us / 1e6, 6),
        intervals=totals.windows,
        interval_s=origin.interval_us / 1e6,
        longest_s=round(totals.longest_us / 1e6, 6),
        gaps=tuple(map(_missed, totals.gaps)),
        late=tuple(map(_missed, totals.late)),
        notices=tuple(Notice(rfc3339(wall), text) for wall, text in totals.notices),
        health=_health(origin, totals),
        devices=by_device,
        cgroups=by_cgroup.rows,
        cgroups_left_out=by_cgroup.left_out,
        processes=by_process.rows,
        processes_left_out=by_process.left_out,
        files=files.rows,
        file_operations=files.operations,
        file_operations_left_out=files.left_out,
        nfs=nfs_latencies(totals[NFS_OPERATIONS]),
        softirqs=softirqs(totals[SOFTIRQS]),
        irqs=irqs(totals[HANDLERS]),
        wakeups=threads.rows,
        wakeups_left_out=threads.left_out,
        taskqs=None if queues is None else queues.rows,
        taskqs_left_out=0 if queues is None else queues.left_out,
        host_context=context,
        host_context_absent=host_context_absent(context),
        outliers=slow_requests.rows if has_outliers else None,
        outliers_left_out=slow_requests.left_out if has_outliers else 0,
        slow=slow,
        slo=service,
        settings=origin.settings,
        marks=tuple(MarkedTime(rfc3339(mark.wall), mark.sentence, mark.changed) for mark in totals.marks),
        limits_differ=limit_remarks.differences(by_device) if origin.is_imported else (),
        runs=origin.runs,
        latency_from=origin.latency_from,
        reason=origin.reason,
        live=recording.is_live,
        damage=tuple(recording.damage),
        evaluated=findings,
    )


def _missed(missed: Missed) -> MissedTime:
    return MissedTime(rfc3339(missed.start_wall), round(missed.seconds, 6), missed.reason)


def _health(origin: Origin, totals: Totals) -> Health:
    last = totals.last.health if totals.last else HostHealth()
    coverage = totals.coverage if totals[SEEN] else NONE
    ages = totals.outstanding.ages
    has_ages = bool(totals.gauges) or totals.outstanding.probed
    one_s, ten_s, minute = (ages.older[age] for age in AGES_S)
    counters = totals.counters
    return Health(
        tier=origin.tier or None,
        coverage=rounded(coverage.share, 6),
        completions=coverage if coverage.kernel else None,
        probes_attached=last.probes_attached,
        probes_wanted=last.probes_wanted,
        probes_missing=tuple(NamedReason(missing.name, missing.reason) for missing in origin.probes_missing),
        lost_events=counters["lost_events"],
        map_full=counters["map_full"],
        unmatched=counters["unmatched"],
        stale=counters["stale"],
        undecoded_lines=counters["undecoded_lines"],
        dropped_records=counters["dropped_records"],
        full_tables=totals.full_tables,
        suppressed=totals.sums.counter(SUPPRESSED) if totals.thresholds_us else None,
        tracing=_tracing(totals.traced) if totals.traced.one_in and origin.traces_stages else None,
        in_flight_older=InFlightOlder(one_s, ten_s, minute, ages.at_least) if has_ages else None,
        in_flight_of_unknown_age=ages.of_unknown_age if has_ages else 0,
        skipped=totals.skipped,
        self_cpu_percent=rounded(totals.cpu.mean, 2),
        probe_cpu_percent=rounded(totals.probe_cpu.mean, 2),
        probe_ns_per_io=rounded(totals.probe_ns.mean, 1),
    )


def slow_ios(totals: Totals) -> SlowIOs | None:
    """Return I/Os at or above the threshold by hour and day; with the threshold of all devices all the time, if any."""
    if not totals.slow.hours:
        return None
    bounds_us = list(chain.from_iterable(totals.thresholds.values()))
    least_us, most_us = min(bounds_us, default=0), max(bounds_us, default=0)
    is_same = bool(bounds_us) and least_us == most_us
    return SlowIOs(
        above_us=least_us if is_same else None,
        above_range_us=(least_us, most_us) if bounds_us and not is_same else None,
        times=_by_time(totals.slow),
    )


def service_level(totals: Totals) -> ServiceLevel | None:
    """Return I/Os at or above the SLO by hour and day; None without an SLO."""
    if totals.slo is None or totals.slo.slo_us is None:
        return None
    begins_us = tuple(sorted(totals.slo.begins_us))
    return ServiceLevel(slo_us=totals.slo.slo_us, counted_from_us=begins_us, times=_by_time(totals.slo))


def _by_time(slow: SlowTimes) -> CountedTime:
    count, begin = slow.worst
    return CountedTime(
        worst_minute=CountedSpan(rfc3339(begin), count) if count else None,
        hours=tuple(CountedSpan(rfc3339(hour), ios) for hour, ios in sorted(slow.hours.items())),
        days=tuple(CountedSpan(rfc3339(day), ios) for day, ios in sorted(slow.days.items())),
    )


def _tracing(traced: Traced) -> Tracing:
    """Return how many requests were traced, how many could not be followed, and why."""
    counts = TracedCounts(
        count=sum(total.count for series, total in traced.histograms.items() if series.stage == "total"),
        sampling=sampling(traced),
        unfollowed=added(traced.unfollowed.values()),
        off=traced.off,
    )
    return Tracing(rounded(untraced_share(traced), 6), counts)


def _start(origin: Origin, first: Frame | None) -> float:
    return origin.start_wall if first is None else first.wall - first.dt_us / 1e6


def _duration_s(totals: Totals) -> float:
    """Return the time from the first window's begin to the last one's end, gaps included."""
    if totals.first is None or totals.last is None:
        return 0.0
    return round((totals.last.mono_us - totals.first.mono_us + totals.first.dt_us) / 1e6, 6)
