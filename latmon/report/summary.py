"""The summary of a recording: schema latmon.report/1, additive changes only.

A key whose feature isn't measured is absent, never 0. Pure: a recording in, plain JSON values out. devices.py,
outstanding.py, interrupts.py and outliers.py make the parts. The rules are evaluated on windows, of long recordings on
roll-ups.

The header of an imported recording has the begin of each series' open last row; malformed entries are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from latmon.aggregate.accumulator import COUNTERS, Minute
from latmon.analysis.attribution import added, untraced_share
from latmon.findings.engine import FindingSummary, RuleEngine, by_kind, summarise_episodes
from latmon.findings.facts import Block
from latmon.findings.rule import DEFAULT, Fact, Finding, Settings, Step, ran
from latmon.findings.rules import RULES
from latmon.model.devices import NONE
from latmon.model.frame import Frame, Health, Mark, Origin, Series, Traced, named_series, open_rows
from latmon.model.frame import Settings as HostSettings
from latmon.model.measurements import BEHIND, FILES, HANDLERS, ISSUERS, SEEN, SOFTIRQS, WAKEUPS
from latmon.model.packed_frame import FILES_LEFT_OUT, SUPPRESSED
from latmon.recording.codec import End, Gap
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.report.devices import devices, sampling
from latmon.report.formatting import missing, opened, raised, rounded
from latmon.report.interrupts import host_context, irqs, issuers, softirqs, taskqs, wakeups
from latmon.report.outliers import files, outliers
from latmon.report.outstanding import older_counts
from latmon.report.totals import Missed, SlowTimes, Totals
from latmon.support.units import rfc3339


def apply_source_edges(devices: Mapping[str, Any], imported: object) -> None:
    """Apply what the header of an import has on the rows of its source to the devices of the report.

    `open`: series with a row without an upper edge; `powers_of_ns`: series whose edges are powers of two of ns.
    """
    if not isinstance(imported, Mapping):
        return
    in_powers_of_ns = imported.get("powers_of_ns")
    for value in in_powers_of_ns if isinstance(in_powers_of_ns, list) else ():
        series = named_series(value)
        q = None if series is None else _latencies_of(devices, series)
        if q:
            raised(q)
    for series, from_us in open_rows(imported).items():
        q = _latencies_of(devices, series)
        if q:
            opened(q, from_us)


def _latencies_of(devices: Mapping[str, Any], series: Series) -> dict[str, Any] | None:
    """Return the quantiles of a series; None without any."""
    values = devices.get(series.device, {}).get("ops", {}).get(series.op, {})
    q = values.get("latency_us") if series.stage == "total" else values.get("stages", {}).get(series.stage)
    return cast("dict[str, Any] | None", q)


SCHEMA = "latmon.report/1"
Item = Frame | Gap | Mark | End


def summarise(recording: Recording | Parts, settings: Settings = DEFAULT, slo_us: int | None = None) -> dict[str, Any]:
    """Return the summary, with `damage` if there is any; `settings` are the rules'."""
    evaluated = Evaluated(recording, settings)
    totals = added_up(recording, evaluated=evaluated, whole=evaluated.by_windows, slo_us=slo_us)
    return summary_of(recording, totals) | evaluated.summary()


def added_up(
    recording: Recording | Parts,
    add: Callable[[Item | Minute], None] | None = None,
    *,
    evaluated: Evaluated | None = None,
    whole: bool = False,
    slo_us: int | None = None,
) -> Totals:
    """Return totals after one pass, which also feeds `add` and evaluates rules; `whole`: windows only, no roll-ups."""
    devices = {one.name: one for one in recording.devices}
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


def summary_of(recording: Recording | Parts, totals: Totals) -> dict[str, Any]:
    """Return the summary of these totals."""
    summary = _whole(recording.origin, totals)
    apply_source_edges(summary["devices"], recording.origin.extra.get("imported"))
    live = {"live": True} if recording.is_live else {}
    return summary | live | ({"damage": recording.damage} if recording.damage else {})


def incomplete(summary: Mapping[str, Any]) -> bool:
    """Return whether the capture lost something, which is exit code 4; mere coverage never is."""
    health = summary["health"]
    return bool(health["lost_events"] or health["map_full"] or summary["gaps"])


def _whole(origin: Origin, totals: Totals) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "backend": origin.backend,
        "host": {"name": origin.host, "kernel": origin.kernel, "latmon": origin.latmon, "tool": origin.tool},
        "start": rfc3339(_start(origin, totals.first)),
        "duration_s": _duration_s(totals),
        "measured_s": None if origin.assumed_length else round(totals.measured_us / 1e6, 6),
        "intervals": totals.windows,
        "interval_s": origin.interval_us / 1e6,
        "longest_s": round(totals.longest_us / 1e6, 6),
        "gaps": [_missed(one) for one in totals.gaps],
        **({"late": [_missed(one) for one in totals.late]} if totals.late else {}),
        **_notices(totals),
        "health": _health(origin, totals),
        "devices": devices(origin, totals),
        **issuers(totals[ISSUERS], totals[BEHIND]),
        **files(totals[FILES], totals.operations, totals.sums.counter(FILES_LEFT_OUT), totals.worst.kept),
        **softirqs(totals[SOFTIRQS]),
        **irqs(totals[HANDLERS]),
        **wakeups(totals[WAKEUPS].values(), totals.wakeups_left_out),
        **taskqs(totals.taskqs),
        **host_context(totals.host_context),
        **(outliers(totals.worst) if totals.thresholds_us or totals.worst.seen else {}),
        **_slow_times(totals),
        **_noted(origin, totals),
        **({"latency_from": origin.latency_from} if origin.latency_from else {}),
        **({"reason": origin.reason} if origin.reason else {}),
    }


def _missed(one: Missed) -> dict[str, Any]:
    return {"start": rfc3339(one.start_wall), "duration_s": round(one.seconds, 6), "reason": one.reason}


def _health(origin: Origin, totals: Totals) -> dict[str, Any]:
    last = totals.last.health if totals.last else Health()
    coverage = totals.coverage if totals[SEEN] else NONE
    return {
        "tier": origin.tier or None,
        "coverage": rounded(coverage.share, 6),
        **({"completions": coverage._asdict()} if coverage.kernel else {}),
        "probes_attached": last.probes_attached,
        "probes_wanted": last.probes_wanted,
        "probes_missing": missing(origin.probes_missing),
        **{name: totals.counters[name] for name in COUNTERS},
        **({"full_tables": dict(totals.full_tables)} if totals.full_tables else {}),
        **({"suppressed": totals.sums.counter(SUPPRESSED)} if totals.thresholds_us else {}),
        **(_traced(totals.traced) if totals.traced.one_in and origin.traces_stages else {}),
        **(older_counts(totals.outstanding.ages) if totals.gauges or totals.outstanding.probed else {}),
        "skipped": totals.skipped,
        "self_cpu_percent": rounded(totals.cpu.mean, 2),
        **({} if totals.probe_cpu.mean is None else {"probe_cpu_percent": rounded(totals.probe_cpu.mean, 2)}),
        "probe_ns_per_io": rounded(totals.probe_ns.mean, 1),
    }


def _slow_times(totals: Totals) -> dict[str, Any]:
    """Return I/Os at or above the threshold, and those at or above an SLO, by hour and day, with the worst minute."""
    found = {"slow": _counted_above(totals) | _by_time(totals.slow)} if totals.slow.hours else {}
    if totals.slo is not None:
        counted_from = {"slo_us": totals.slo.slo_us, "counted_from_us": sorted(totals.slo.begins_us)}
        found["slo"] = counted_from | _by_time(totals.slo)
    return found


def _counted_above(totals: Totals) -> dict[str, Any]:
    """Return the threshold of all devices all the time; else null, and the range of their thresholds."""
    bounds = [us for some in totals.thresholds.values() for us in some]
    if not bounds:
        return {"above_us": None}
    if min(bounds) == max(bounds):
        return {"above_us": bounds[0]}
    return {"above_us": None, "above_range_us": [min(bounds), max(bounds)]}


def _by_time(slow: SlowTimes) -> dict[str, Any]:
    count, begin = slow.worst
    return {
        "worst_minute": {"start": rfc3339(begin), "count": count} if count else None,
        "hours": [{"start": rfc3339(hour), "count": n} for hour, n in sorted(slow.hours.items())],
        "days": [{"start": rfc3339(day), "count": n} for day, n in sorted(slow.days.items())],
    }


def _notices(totals: Totals) -> dict[str, Any]:
    reported = [{"time": rfc3339(wall), "text": text} for wall, text in totals.notices]
    return {"notices": reported} if reported else {}


def _noted(origin: Origin, totals: Totals) -> dict[str, Any]:
    """Return the settings at the begin, and the marks with the settings that had changed by then."""
    settings = {section: dict(values) for section, values in origin.settings.items()}
    marks = [{"time": rfc3339(one.wall), "text": one.text, "changed": _plain(one.changed)} for one in totals.marks]
    return {**({"settings": settings} if settings else {}), **({"marks": marks} if marks else {})}


def _plain(changed: HostSettings | None) -> dict[str, dict[str, str]] | None:
    """Return plain dictionaries; None if settings were not read."""
    return None if changed is None else {name: dict(of) for name, of in changed.items()}


def _traced(traced: Traced) -> dict[str, Any]:
    """Return how many requests were traced, how many could not be followed, and why."""
    return {
        "untraced_share": rounded(untraced_share(traced), 6),
        "traced": {
            "count": sum(one.count for series, one in traced.histograms.items() if series.stage == "total"),
            **sampling(traced),
            "unfollowed": added(traced.unfollowed.values()),
            "off": traced.off,
        },
    }


def _start(origin: Origin, first: Frame | None) -> float:
    return origin.start_wall if first is None else first.wall - first.dt_us / 1e6


def _duration_s(totals: Totals) -> float:
    """Return the time from the first window's begin to the last one's end, gaps included."""
    if totals.first is None or totals.last is None:
        return 0.0
    return round((totals.last.mono_us - totals.first.mono_us + totals.first.dt_us) / 1e6, 6)


SHORT_US = 4 * 60 * 1_000_000
"""Longest recording that is read window by window, as live; 24 devices take 2 s."""


class Evaluated:
    """Rule evaluation over a recording's items; `summary` returns the findings."""

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

    def summary(self) -> dict[str, Any]:
        """Return the key `findings`, empty if rules were evaluated and found nothing; no key if none was evaluated."""
        self.finish()
        watch = self._watch
        if not watch.evaluated:
            return {}
        return {
            "findings": [_finding(one) for one in summarise_episodes(watch.episodes)],
            "findings_by": self._by(watch),
        }

    def _by(self, watch: RuleEngine) -> dict[str, Any]:
        """Return how many rules there were and how many had their inputs; `not_judged` is never left out."""
        rules, silent = len(RULES) - len(self._off), watch.silent - self._off
        reported_of = {
            "partly_evaluated": watch.partly,
            "rules_off": sorted(self._off),
            "failed": watch.failed,
            "episodes_left_out": watch.left_out,
        }
        return {
            "rules": rules,
            "judged": rules - len(silent | watch.failed.keys()),
            "judged_by": "minutes" if self._of_minutes else "windows",
            "not_judged": {kind: list(some) for kind, some in by_kind(silent).items()},
            **{name: value for name, value in reported_of.items() if value},
        }


def _finding(one: FindingSummary) -> dict[str, Any]:
    lasted = {"begin": rfc3339(one.begin_wall), "end": rfc3339(one.end_wall), "episodes": one.episodes}
    found = finding_values(one.finding)
    first = ("id", "severity", "device", "summary")
    return {name: found.pop(name) for name in first} | lasted | found


def finding_values(finding: Finding) -> dict[str, Any]:
    """Return a finding's values for JSON."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "device": finding.device,
        "summary": finding.summary,
        "share": rounded(finding.share, 4),
        "evidence": {fact.name: _fact(fact) for fact in finding.facts},
        "view": _where(finding),
        "next_steps": [_step(step) for step in finding.steps],
        "refuted_by": finding.refuted_by,
    }


def _fact(fact: Fact) -> dict[str, Any]:
    value = fact.value if isinstance(fact.value, str) else rounded(fact.value, 6)
    unit = {"unit": fact.unit} if fact.unit else {}
    return {"value": value, **unit, **({} if fact.of is None else {"samples": fact.of}), "text": fact.text}


def _where(finding: Finding) -> dict[str, Any]:
    """Return the known keys of the view, by their names in Where."""
    return {name: value for name, value in finding.where._asdict().items() if value not in ("", None)}


def _step(step: Step) -> dict[str, Any]:
    """Return the step: `text` has the commands, `what` is without them; each command has whether it was run here."""
    commands = [{"line": line, "ran": ran(line)} for line in step.commands]
    apart = {"what": step.what, "commands": commands} if commands else {}
    return {"text": step.text, "risk": step.risk} | apart
