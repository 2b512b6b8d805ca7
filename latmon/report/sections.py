"""Sentences that the text and the HTML report share: completeness, definitions, findings, changed settings.

All are made of the report alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import chain

from latmon.findings.engine import evaluated_by
from latmon.findings.rule import sized
from latmon.findings.rules import title_of
from latmon.model.devices import counts_twice, thread_sentence
from latmon.model.frame import shown_reports
from latmon.model.histogram import BITS, MAX_US
from latmon.model.stages import AFTER_LIMIT, called, explained
from latmon.recording.codec import LATE
from latmon.recording.reader import UNCLOSED
from latmon.report import outstanding
from latmon.report.formatting import ROUGH, cell
from latmon.report.latency_table import includes_of
from latmon.report.model.depth import InFlight
from latmon.report.model.device import NOT_PASSED, Device, Op, Reported, Sizes
from latmon.report.model.finding import Evaluation, Fact, Finding, View
from latmon.report.model.latency import Quantiles
from latmon.report.model.report import CountedTime, Health, MissedTime, Report, SlowIOs
from latmon.report.summary import incomplete
from latmon.support.units import UNKNOWN, counted, part, spelled
from latmon.views.anatomy import MUCH, admission_text, causes_text, size_text, stacks_text
from latmon.views.units import percent, sampled_as

_FROM = {
    "queued": "total: from the moment the request was queued to its completion",
    "issue": "total: from the issue to the driver to the completion; the time in the scheduler's queue is not in it",
}
_HOW = (
    "us, ms, s: micro-, milliseconds, seconds. A quantile is the upper bound of a bucket {width}. "
    "-: not measured, or too few I/Os (p99.9 needs 1,000). ≤: the exact maximum is not known."
)
_SHARE = "share: of the summed time of the I/Os whose stages were measured; resume follows the total and has no share"
_TRACED = (
    "total: all timed I/Os; of traced: I/Os whose stages were traced, to which the stages, their means and shares "
    "refer. Both end at the completion"
)
_WHOLE = (
    "whole: traced I/Os from submission to completion; admission: its part before the request exists, which total lacks"
)
_LATER = f"{AFTER_LIMIT} the wait for a cgroup's limit is before both, and not measured here"
_MEAN = f"mean {UNKNOWN}: the sum of some window is unknown; quantiles include all windows"
_BEGINS = "of traced: begins with the queue, if there is one; the total of all timed I/Os begins at the issue here"
_CUT = "above: the bound of the first bucket at or above --threshold, or after the p99 without a threshold"
_EXPLAINED = 0.999
"""Less coverage has a cause; docs/COVERAGE.md lists the known ones."""
_LONG = 1.5
"""Factor on the interval: a longer window contains missed ticks."""
_MAX_REASONS = 8
_UNTIMED = (
    "not timed, though counted as the kernel does: the empty write of each fsync, which carries the flush and never "
    "goes to the driver, and completions without a start (unmatched)"
)
_REPORTED_SHARE = 0.05


def tail_sentence(name: str, device: Device) -> str:
    """Return `sdc above 20 ms: 97% softirq, 3% hba (31 I/Os)`; empty without a tail."""
    tail = device.tail
    if tail is None:
        return ""
    shares = sorted(tail.share.items(), key=lambda item: -item[1])
    includes = includes_of(device.ops)
    reported = [
        f"{part(share)} {called(stage, includes.get(stage, ())).sentence}"
        for at, (stage, share) in enumerate(shares)
        if not at or share >= _REPORTED_SHARE
    ]
    ios = "1 I/O" if tail.count == 1 else f"{tail.count:,} I/Os"
    if not reported:
        return f"{name} above {spelled(tail.cut_us)}: {ios}"
    return f"{name} above {spelled(tail.cut_us)}: {', '.join(reported)} ({ios})"


def admission_sentence(name: str, device: Device) -> str:
    """Return the sentence on a large admission with known causes; empty without."""
    admissions = [op.admission_us for op in device.ops.values() if op.admission_us]
    wholes = [op.latency_whole_us for op in device.ops.values() if op.latency_whole_us]
    admission_us, whole_us = (sum(latency.sum or 0 for latency in latencies) for latencies in (admissions, wholes))
    causes = causes_text(device.traced.admission_causes if device.traced else {}, admission_us)
    return admission_text(name, admission_us / whole_us, causes) if causes and admission_us > MUCH * whole_us else ""


def stack_sentences(name: str, device: Device) -> tuple[str, ...]:
    """Return which kernel functions complete a device's requests, and which raise its softirqs."""
    traced = device.traced
    return stacks_text(name, traced.completers, traced.raisers) if traced else stacks_text(name, {}, {})


def size_sentences(device: Device) -> tuple[str, ...]:
    """Return a sentence per op on its latencies by size."""
    return tuple(_sizes(name, op.sizes) for name, op in device.ops.items() if op.sizes)


def _sizes(op: str, sizes: Sizes) -> str:
    rows = [
        (size.upto or 0, size.count, cell(size.latency_us, "p50"), cell(size.latency_us, "p99"))
        for size in sizes.latency
    ]
    return size_text(op, rows, asdict(sizes.pattern) if sizes.pattern else {})


def _when(reported: Reported) -> str:
    """Return ` (3 at first, not read until the end)`, or the part of it that holds; empty without one."""
    notes = [] if reported.first is None else [f"{reported.first} at first"]
    notes += ["not read until the end"] if reported.read_until_end is False else []
    return f" ({', '.join(notes)})" if notes else ""


def reports_sentence(device: Device) -> str:
    """Return `by its own reports: state running, ioerr_cnt 12 (3 at first)`; empty without any."""
    rows = {reported.name: reported for reported in device.reports}
    names = shown_reports({name: reported.value for name, reported in rows.items()})
    values = [f"{name} {rows[name].value}{_when(rows[name])}" for name in names]
    return f"by its own reports: {', '.join(values)}" if values else ""


def tracing_trust(health: Health) -> list[str]:
    """Return how many requests were traced, and how many could not be followed."""
    if health.tracing is None:
        return []
    traced, untraced_share = health.tracing.traced, health.tracing.untraced_share
    sampled = sampled_as(traced.sampling.finest, traced.sampling.one_in)
    sampled = sampled and f" ({sampled})"
    lost = sum(traced.unfollowed.values())
    text = f"traced {traced.count:,} I/Os{sampled}; path not followed {lost:,}"
    if untraced_share is not None:
        text += f" ({part(untraced_share)})"
    text += f"; stages that miss their total {traced.off:,}"
    cpu = health.probe_cpu_percent
    text += "" if cpu is None else f"; tracer {cpu:.2g} % of a CPU"
    why = [f"  not followed: {n:,} {reason}" for reason, n in _most(traced.unfollowed)]
    return [text, *why]


def _most(named: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(named.items(), key=lambda item: -item[1])


def trust(report: Report) -> list[str]:
    """Return sentences on completeness and cost; gaps, notices and damage are lists of their own."""
    health = report.health
    live = "still being written: what comes later is not in it" if report.live else ""
    sentences = [
        live,
        coverage(health, report.duration_s),
        counters(health),
        full_tables(health),
        late(report),
        *tracing_trust(health),
        outstanding.older(report),
    ]
    return [sentence for sentence in sentences if sentence]


def gaps(report: Report) -> str:
    """Return how many gaps there are and why: `3, 12 s in all (enospc 2, windows-missing 1)`; `none`."""
    if not report.gaps:
        return f"none{open_end(report)}"
    reasons = Counter(gap.reason for gap in report.gaps).most_common()
    why = ", ".join(f"{reason} {n:,}" for reason, n in reasons[:_MAX_REASONS])
    return f"{len(report.gaps):,}, {_seconds(report.gaps):,.6g} s in all ({why}){open_end(report)}"


def _seconds(spans: Iterable[MissedTime]) -> float:
    return sum(span.duration_s for span in spans)


def why_untimed(device: Device) -> str:
    """Return why the always-on probe has no latency of a device."""
    has_disks = device.members or device.kind in ("dm", "md")
    return "no request passes; its I/O is timed at the devices below it" if has_disks else "only the tracer measures it"


def open_end(report: Report) -> str:
    """Return a clause for a recording that was not closed, else an empty text: its last gap may not be in the file."""
    is_open = any(damage.endswith(UNCLOSED) for damage in report.damage)
    return ", but the file has no closing line: its end is not known" if is_open else ""


def late(report: Report) -> str:
    """Return how many windows are wide because they were read late; they miss nothing."""
    windows = report.late
    if not windows:
        return ""
    widest = max(window.duration_s for window in windows)
    many = f"{counted(len(windows), 'window')} {'were' if len(windows) > 1 else 'was'}"
    how = f"up to {widest:,.3g} s" if len(windows) > 1 else f"{widest:,.3g} s"
    return f"{many} read late ({LATE}), {how} wide; nothing is missing there"


def verdict(report: Report) -> str:
    """Return the losses of an incomplete capture; empty for a complete one."""
    return f"INCOMPLETE: {', '.join(_lost(report))}; sums and counts are too small" if incomplete(report) else ""


def _lost(report: Report) -> Iterator[str]:
    gaps, health = report.gaps, report.health
    if gaps:
        yield f"{_seconds(gaps):,.4g} s in {len(gaps):,} gap{'s' * (len(gaps) != 1)}"
    for lost, words in ((health.lost_events, "event{} lost"), (health.map_full, "map update{} lost")):
        if lost:
            yield f"{lost:,} {words.format('s' * (lost != 1))}"


def full_tables(health: Health) -> str:
    """Return which tables of the tracer had no room, and what is right all the same; empty without one."""
    if not health.full_tables:
        return ""
    named = ", ".join(f"{name} in {counted(windows, 'window')}" for name, windows in health.full_tables.items())
    return (
        f"full tables of the tracer: {named}; threads, processes or stages that they count are incomplete, "
        "counts and latencies of I/Os are not"
    )


def end(report: Report) -> str:
    """Return the time at which the last window ended."""
    try:
        ended = datetime.fromisoformat(report.start or "") + timedelta(seconds=report.duration_s)
    except (ValueError, OverflowError):
        return UNKNOWN
    return ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def windows(report: Report) -> str:
    """Return the number and length of the windows, and the longest if ticks came late."""
    text = f"{counted(report.intervals, 'window')} of {report.interval_s:g} s"
    is_late = report.longest_s > _LONG * report.interval_s
    return f"{text}, the longest {report.longest_s:,.1f} s (ticks came late)" if is_late else text


def coverage(health: Health, seconds: float) -> str:
    """Return the share of the kernel's completions that the probe saw in so many seconds."""
    done = health.completions
    if health.coverage is None or done is None:
        return "coverage unknown: the kernel's own counters and a probe's are not both here"
    text = (
        f"coverage {percent(health.coverage)}: the probe saw {done.seen:,} of {done.kernel:,} "
        "completions that the kernel counted"
    )
    if health.coverage < _EXPLAINED:
        return f"{text}; causes: docs/COVERAGE.md"
    twice = counts_twice(done.seen / done.kernel, round(seconds * 1e6))
    return f"{text}; more than all: some were counted twice" if twice else text


def counters(health: Health) -> str:
    """Return the counters of losses, and what measuring cost."""
    skipped = "" if health.skipped is None else f", skipped by the kernel {health.skipped:,}"
    own = "" if health.self_cpu_percent is None else f"; own CPU {health.self_cpu_percent:.2g} %"
    probe = "" if health.probe_ns_per_io is None else f"; probes {health.probe_ns_per_io:.0f} ns per I/O"
    dropped = f", records dropped {health.dropped_records:,}" if health.dropped_records else ""
    return (
        f"probes {health.probes_attached} of {health.probes_wanted}; lost events {health.lost_events:,}, "
        f"map full {health.map_full:,}, unmatched {health.unmatched:,}, stale {health.stale:,}, "
        f"lines not understood {health.undecoded_lines:,}{dropped}{skipped}{own}{probe}"
    )


def meaning(report: Report) -> list[str]:
    """Return definitions of the numbers, and why some are missing."""
    how = _HOW.format(width=_width(report))
    seconds = report.measured_s
    rates = f"/s: per second of the windows, of {seconds:,.6g} s in all" if seconds and report.gaps else ""
    sentences = (
        *_begins(report),
        *_measured(report),
        *_words(report),
        *outstanding.limit_meaning(report),
        rates,
        how,
    )
    return [sentence for sentence in sentences if sentence]


def _ops(report: Report) -> list[Op]:
    return list(chain.from_iterable(device.ops.values() for device in report.devices.values()))


def _width(report: Report) -> str:
    """Return the width of the coarsest buckets of latency rows, and of those by size, and the digits."""
    ops = _ops(report)
    rows: list[Quantiles] = [op.latency_us for op in ops if op.latency_us]
    rows += chain.from_iterable(op.stages.values() for op in ops)
    by_size = chain.from_iterable(op.sizes.latency for op in ops if op.sizes)
    parts = sorted({row.parts for row in rows})
    of_size = sorted({size.latency_us.parts for size in by_size})
    if not parts or parts[0] == 2**BITS:
        text = "at most 12.5 % wide"
    else:
        wide = "an octave" if parts[0] == 1 else f"1/{parts[0]} of an octave"
        others = "; others' are at most 12.5 %" if parts[-1] == 2**BITS else ""
        text = f"up to {wide} wide{' (~)' if parts[0] <= ROUGH else ''} where the source's are{others}"
    if of_size and of_size[0] < 2**BITS:
        text += f" (by size {100 / of_size[0]:g} %)"
    text += "; it is rounded up to two digits"
    is_open = any(row.or_more for row in rows)
    return text + (". ≥: in a row of the source without an upper bound" if is_open else "")


def _begins(report: Report) -> Iterator[str]:
    if report.latency_from in _FROM:
        yield _FROM[report.latency_from]


def _measured(report: Report) -> Iterator[str]:
    includes: dict[str, None] = {}
    absent: dict[str, list[str]] = {}
    for device in report.devices.values():
        for op in device.ops.values():
            sentences = (explained(stage, latency.includes) for stage, latency in op.stages.items())
            includes |= dict.fromkeys(sentence for sentence in sentences if sentence)
            for stage, why in op.stages_absent.items() if device.timed is not False else ():
                if why.startswith(NOT_PASSED):
                    continue
                stages = absent.setdefault(why, [])
                stages += [] if stage in stages else [stage]
    yield from includes
    yield from _threads(report)
    yield from (f"not measured: {', '.join(stages)} ({why})" for why, stages in absent.items())
    missing: dict[str, list[str]] = {}
    for probe in report.health.probes_missing:
        missing.setdefault(probe.reason, []).append(probe.name)
    for why, names in missing.items():
        yield f"probe{'s' * (len(names) != 1)} not attached: {', '.join(names)} ({why})"


def _threads(report: Report) -> Iterator[str]:
    """Yield a sentence for each device whose driver hands I/Os to a thread of this host, whose waits are in hba."""
    for name, device in report.devices.items():
        sentence = thread_sentence(name, device.driver)
        if sentence and any("hba" in op.stages for op in device.ops.values()):
            yield sentence


def _words(report: Report) -> Iterator[str]:
    """Yield definitions of the terms that occur."""
    ops = _ops(report)
    traced = [op for op in ops if op.of]
    if any(op.untimed > op.failures for op in ops):
        yield _UNTIMED
    if any(op.stages for op in ops):
        yield _SHARE
    if traced:
        yield _TRACED
    if admissions := [op.admission_us for op in ops if op.admission_us]:
        yield _WHOLE if all(admission.includes for admission in admissions) else f"{_WHOLE}. {_LATER}"
    if report.latency_from == "issue" and any("queue" in op.stages for op in traced):
        yield _BEGINS
    if any(device.tail for device in report.devices.values()):
        yield _CUT
    if any(_is_sumless(op) for op in ops):
        yield _MEAN


def _is_sumless(op: Op) -> bool:
    """Return whether the mean of a row with I/Os is unknown."""
    rows = [op.latency_us, op.traced_us, *op.stages.values()]
    return any(row and row.count and row.mean is None for row in rows)


def changes(changed: Mapping[str, Mapping[str, str]] | None) -> list[str]:
    """Return a sentence per section: `device sda: scheduler is now none`; none if settings were not read."""
    return [
        f"{section}: " + ", ".join(f"{name} is {f'now {value}' if value else 'gone'}" for name, value in values.items())
        for section, values in (changed or {}).items()
    ]


def evaluated(by: Evaluation) -> str:
    """Return how rules were evaluated: `13 rules, minute by minute`, and which of them lacked inputs."""
    who, why = evaluated_by(by.rules, by.not_judged, by.failed, by.partly_evaluated)
    how = "every 5 s over the last minute" if by.judged_by == "windows" else "minute by minute"
    off = f"off by the config: {', '.join(by.rules_off)}" if by.rules_off else ""
    left = f"{counted(by.episodes_left_out, 'episode')} left out" if by.episodes_left_out else ""
    return "; ".join(filter(None, (f"{who}, {how}", why, off, left)))


def named(finding: Finding) -> str:
    """Return the device and the title of a finding: `sde starved I/O`."""
    return f"{finding.device} {title_of(finding.id)}".strip()


def when(finding: Finding) -> str:
    """Return the time from the first block to the last, and the number of episodes; empty where it is not known."""
    lasted = finding.lasted
    if lasted is None:
        return ""
    begin, end = lasted.begin or UNKNOWN, lasted.end or UNKNOWN
    span = f"at {begin}" if begin == end else f"{begin} to {end}"
    return span if lasted.episodes == 1 else f"{span}, {lasted.episodes:,} times"


def fact_text(fact: Fact) -> str:
    """Return the fact with its number of samples, if its text doesn't contain it."""
    return sized(fact.text, fact.samples)


def shown_on(view: View) -> str:
    """Return the view with the evidence: `stages screen, sdc, 100 ms and more`."""
    low, high = ("" if us is None else spelled(us) for us in (view.low_us, view.high_us))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    return ", ".join(part for part in (f"{view.screen} screen", view.device, view.op, region) if part)


def slow_times(report: Report) -> Iterator[tuple[CountedTime, str]]:
    """Yield the I/Os above the threshold and above an SLO, each with a sentence on their number and worst minute."""
    slow, slo = report.slow, report.slo
    if slow:
        sentence = _slowest_minute(slow.times, f"{_threshold(slow)} or longer")
        yield slow.times, sentence + _longer_in_flight(report, slow.above_us)
    if slo:
        begins = [spelled(us) for us in slo.counted_from_us]
        edges = " to ".join(dict.fromkeys((begins[0], begins[-1]))) if begins else ""
        is_exact = slo.counted_from_us == (slo.slo_us,)
        how = f" (counted from {edges}, an edge of buckets, on)" if begins and not is_exact else ""
        if begins:
            bar = f"{spelled(slo.slo_us)} or longer, the SLO{how}"
            yield slo.times, _slowest_minute(slo.times, bar) + _longer_in_flight(report, slo.slo_us)
        else:
            yield slo.times, f"SLO of {spelled(slo.slo_us)}: no I/O was timed"


def _threshold(slow: SlowIOs) -> str:
    """Return the threshold of all devices, or `their device's threshold at the time, 3.1 to 44.4 ms`."""
    if slow.above_us is not None:
        return spelled(slow.above_us)
    bounds_us = slow.above_range_us
    values = f" ({spelled(bounds_us[0])} to {spelled(bounds_us[1])})" if bounds_us else ""
    return f"their device's threshold at the time{values}"


def _slowest_minute(slow: CountedTime, bar: str) -> str:
    worst, whole = slow.worst_minute, sum(day.count for day in slow.days)
    if worst is None:
        return f"no completed I/O took {bar}"
    start = (worst.start or UNKNOWN)[:19]
    return f"completed I/Os of {bar}: {whole:,}; most in the minute from {start}Z: {worst.count:,}"


def _highest_threshold_us(device: Device) -> int:
    """Return the device's threshold, of one that moved the highest; MAX_US without one."""
    if device.threshold_range_us is not None:
        return max(device.threshold_range_us)
    return MAX_US if device.threshold_us is None else device.threshold_us


def _longer_in_flight(report: Report, bar_us: int | None) -> str:
    """Return `; longest in flight: at least 5 s on sdb` of I/Os at or above the bar, by default each threshold."""
    rows: dict[str, InFlight] = {}
    for name, device in report.devices.items():
        longest = outstanding.longest_in_flight(device)
        if longest and longest.row.age_us >= (bar_us or _highest_threshold_us(device)):
            rows[name] = longest.row
    if not rows:
        return ""
    name = max(rows, key=lambda name: rows[name].age_us)
    return f"; longest in flight: {outstanding.age(rows[name])} on {name}"
