"""The report of a recording: schema latmon.report/1, additive changes only.

Pure: a recording in, a value out, of which text, JSON and HTML are made. devices.py, depths.py, issuers.py,
interrupts.py, files.py and outliers.py make the parts. The rules are evaluated on windows, of long recordings on
roll-ups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from latmon.aggregate.accumulator import Minute
from latmon.analysis.attribution import added, untraced_share
from latmon.findings.engine import FindingSummary, RuleEngine, by_kind, summarise_episodes
from latmon.findings.facts import Block
from latmon.findings.rule import DEFAULT, Fact, Finding, Settings, Step, ran
from latmon.findings.rules import RULES
from latmon.model.devices import NONE
from latmon.model.frame import Frame, Mark, Origin, Traced
from latmon.model.frame import Health as HostHealth
from latmon.model.inflight import AGES_S
from latmon.model.measurements import BEHIND, FILES, HANDLERS, ISSUERS, SEEN, SOFTIRQS, WAKEUPS
from latmon.model.packed_frame import FILES_LEFT_OUT, SUPPRESSED
from latmon.recording.codec import End, Gap
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.report import outliers
from latmon.report.devices import devices, sampling
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
from latmon.report.model import finding
from latmon.report.model.finding import Evaluation, Findings
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
from latmon.report.totals import Missed, SlowTimes, Totals
from latmon.support.units import rfc3339

SHORT_US = 4 * 60 * 1_000_000
"""Longest recording that is read window by window, as live; 24 devices take 2 s."""
Item = Frame | Gap | Mark | End


def summarise(recording: Recording | Parts, settings: Settings = DEFAULT, slo_us: int | None = None) -> Report:
    """Return the report of a recording; `settings` are the rules'."""
    evaluated = Evaluated(recording, settings)
    totals = added_up(recording, evaluated=evaluated, whole=evaluated.by_windows, slo_us=slo_us)
    return report_of(recording, totals, evaluated.findings())


def added_up(
    recording: Recording | Parts,
    add: Callable[[Item | Minute], None] | None = None,
    *,
    evaluated: Evaluated | None = None,
    whole: bool = False,
    slo_us: int | None = None,
) -> Totals:
    """Return totals after one pass, which also feeds `add` and evaluates rules; `whole`: windows only, no roll-ups."""
    devices = {device.name: device for device in recording.devices}
    totals = Totals(recording.origin.interval_us, devices=devices, slo_us=slo_us)
    if evaluated is not None:
        totals.by_blocks, evaluated.on_block = True, totals.take
    for item in recording if whole else recording.summed():
        totals.add(item)
        if evaluated is not None:
            evaluated.add(item)
        if add is not None:
            add(item)
    if evaluated is not None:
        evaluated.finish()
    return totals


def report_of(recording: Recording | Parts, totals: Totals, findings: Findings | None = None) -> Report:
    """Return the report of these totals; without findings no rule was evaluated."""
    origin = recording.origin
    issued, behind = totals[ISSUERS], totals[BEHIND]
    by_cgroup, by_process = cgroups(issued, behind), processes(issued, behind)
    files = file_tables(totals[FILES], totals.operations, totals.sums.counter(FILES_LEFT_OUT), totals.worst.kept)
    threads = wakeups(totals[WAKEUPS].values(), totals.wakeups_left_out)
    queues = taskqs(totals.taskqs)
    context = host_context(totals.host_context)
    slow_requests = outliers.slow_requests(totals.worst)
    has_outliers = bool(totals.thresholds_us or totals.worst.seen)
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
        devices=devices(origin, totals),
        cgroups=by_cgroup.rows,
        cgroups_left_out=by_cgroup.left_out,
        processes=by_process.rows,
        processes_left_out=by_process.left_out,
        files=files.rows,
        file_operations=files.operations,
        file_operations_left_out=files.left_out,
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
        slow=slow_ios(totals),
        slo=service_level(totals),
        settings=origin.settings,
        marks=tuple(MarkedTime(rfc3339(mark.wall), mark.text, mark.changed) for mark in totals.marks),
        latency_from=origin.latency_from,
        reason=origin.reason,
        live=recording.is_live,
        damage=tuple(recording.damage),
        evaluated=findings,
    )


def incomplete(report: Report) -> bool:
    """Return whether the capture lost something, which is exit code 4; mere coverage never is."""
    return bool(report.health.lost_events or report.health.map_full or report.gaps)


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


class Evaluated:
    """Rule evaluation over a recording's items; `findings` returns the result."""

    def __init__(self, recording: Recording | Parts, settings: Settings = DEFAULT) -> None:
        begin_us, end_us = recording.span()
        self.by_windows = end_us - begin_us <= SHORT_US
        """Whether it needs windows, not roll-ups: all forms of the report must have the same findings."""
        self._of_minutes = False
        self._off = settings.off
        self.on_block: Callable[[Block], None] | None = None
        """Called with the sums of each block."""
        self._watch = RuleEngine(recording.origin, tuple(recording.devices), settings, on_block=self._pass)

    def _pass(self, block: Block) -> None:
        if self.on_block is not None:
            self.on_block(block)

    def add(self, item: Frame | Gap | Mark | End | Minute) -> None:
        """Evaluate the rules on the next item. Gaps are skipped: a hole between frames ends an episode."""
        self._of_minutes = self._of_minutes or isinstance(item, Minute)
        if isinstance(item, Frame | Minute):
            self._watch.take(item)

    def finish(self) -> None:
        """Evaluate what is not in a block yet: no more items come."""
        self._watch.finish()

    def findings(self) -> Findings | None:
        """Return the findings, maybe none, of the rules that were evaluated; None if none was."""
        self.finish()
        watch = self._watch
        if not watch.evaluated:
            return None
        return Findings(tuple(map(_lasting, summarise_episodes(watch.episodes))), self._by(watch))

    def _by(self, watch: RuleEngine) -> Evaluation:
        """Return how many rules there were and how many had their inputs."""
        rules, silent = len(RULES) - len(self._off), watch.silent - self._off
        return Evaluation(
            rules=rules,
            judged=rules - len(silent | watch.failed.keys()),
            judged_by="minutes" if self._of_minutes else "windows",
            not_judged=by_kind(silent),
            partly_evaluated=watch.partly,
            rules_off=tuple(sorted(self._off)),
            failed=watch.failed,
            episodes_left_out=watch.left_out,
        )


def _lasting(summary: FindingSummary) -> finding.Finding:
    lasted = finding.Lasted(rfc3339(summary.begin_wall), rfc3339(summary.end_wall), summary.episodes)
    return replace(reported_finding(summary.finding), lasted=lasted)


def reported_finding(result: Finding) -> finding.Finding:
    """Return a finding as a report has it, without its time."""
    where = result.where
    return finding.Finding(
        id=result.id,
        severity=result.severity,
        device=result.device,
        summary=result.summary,
        share=round(result.share, 4),
        evidence={fact.name: _fact(fact) for fact in result.facts},
        view=finding.View(where.screen, where.device, where.op, where.low_us, where.high_us),
        next_steps=tuple(map(_step, result.steps)),
        refuted_by=result.refuted_by,
    )


def _fact(fact: Fact) -> finding.Fact:
    value = fact.value if isinstance(fact.value, str) else rounded(fact.value, 6)
    return finding.Fact(value=value, unit=fact.unit, samples=fact.of, text=fact.text)


def _step(step: Step) -> finding.NextStep:
    """Return the step: `text` has the commands, `what` is without them; each command has whether it was run here."""
    commands = tuple(finding.Command(line, ran(line)) for line in step.commands)
    return finding.NextStep(step.text, step.risk, step.what if commands else None, commands)
