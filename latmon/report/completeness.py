"""How far to trust a report: coverage, losses, gaps, notices and damage, I/Os in flight at the end; sentences, lines.

All are made of the report alone. HTML has the sentences, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from latmon.model.coverage import counts_twice
from latmon.recording.codec import LATE
from latmon.recording.reader import UNCLOSED
from latmon.report.in_flight import at_the_end, in_flight_by_device, waiting_rows
from latmon.report.model.report import Health, MissedTime, Report
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, counted, part
from latmon.views.units import percent, sampled_as

MAX_LISTED = 20
_EXPLAINED = 0.999
"""Less coverage has a cause; docs/COVERAGE.md lists the known ones."""
_MAX_REASONS = 8


def lines(report: Report) -> list[str]:
    """Return the lines on completeness: trust, gaps, notices, damage, verdict."""
    shown: list[str] = []
    for sentence in trust(report):
        shown += wrapped(sentence)
    shown += wrapped(f"gaps: {gaps(report)}")
    shown += _listed([f"{gap.start or UNKNOWN}  {gap.duration_s:g} s  {gap.reason}" for gap in report.gaps])
    shown += wrapped("notices:") if report.notices else []
    shown += _listed([f"{notice.time or UNKNOWN}  {notice.text}" for notice in report.notices])
    shown += wrapped("damage: some of the file can't be read") if report.damage else []
    shown += _listed(list(report.damage))
    return [*shown, *wrapped(verdict(report))]


def _listed(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return [part for line in (*lines[:MAX_LISTED], *more) for part in wrapped(line, "  ")]


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
        older(report),
    ]
    return [sentence for sentence in sentences if sentence]


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


def full_tables(health: Health) -> str:
    """Return which tables of the tracer had no room, and what is right all the same; empty without one."""
    if not health.full_tables:
        return ""
    named = ", ".join(f"{name} in {counted(windows, 'window')}" for name, windows in health.full_tables.items())
    return (
        f"full tables of the tracer: {named}; threads, processes or stages that they count are incomplete, "
        "counts and latencies of I/Os are not"
    )


def late(report: Report) -> str:
    """Return how many windows are wide because they were read late; they miss nothing."""
    windows = report.late
    if not windows:
        return ""
    widest = max(window.duration_s for window in windows)
    many = f"{counted(len(windows), 'window')} {'were' if len(windows) > 1 else 'was'}"
    how = f"up to {widest:,.3g} s" if len(windows) > 1 else f"{widest:,.3g} s"
    return f"{many} read late ({LATE}), {how} wide; nothing is missing there"


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


def older(report: Report) -> str:
    """Return the I/Os in flight for long at the end, and those of unknown age; empty without any."""
    counts = report.health.in_flight_older
    unknown = report.health.in_flight_of_unknown_age
    if counts is None or not any(counts.by_age.values()):
        return f"in flight at the end: {unknown:,} of unknown age" if unknown else ""
    text = ", ".join(f"{ios:,} for more than {age}" for age, ios in counts.by_age.items() if ios)
    least = "at least " if counts.at_least else ""
    who = at_the_end(in_flight_by_device(_waiting(report)))
    many = f"{who} ({least}{text})" if who else f"{least}{text}"
    return f"IN FLIGHT at the end: {many}" + (f"; {unknown:,} of unknown age" if unknown else "")


def _waiting(report: Report) -> Iterator[tuple[str, int, int, bool]]:
    for name, device in report.devices.items():
        yield from ((name, row.count, row.age_us, row.at_least) for row in waiting_rows(device))


def gaps(report: Report) -> str:
    """Return how many gaps there are and why: `3, 12 s in all (enospc 2, windows-missing 1)`; `none`."""
    if not report.gaps:
        return f"none{open_end(report)}"
    reasons = Counter(gap.reason for gap in report.gaps).most_common()
    why = ", ".join(f"{reason} {n:,}" for reason, n in reasons[:_MAX_REASONS])
    return f"{len(report.gaps):,}, {_seconds(report.gaps):,.6g} s in all ({why}){open_end(report)}"


def _seconds(spans: Iterable[MissedTime]) -> float:
    return sum(span.duration_s for span in spans)


def open_end(report: Report) -> str:
    """Return a clause for a recording that was not closed, else an empty text: its last gap may not be in the file."""
    is_open = any(damage.endswith(UNCLOSED) for damage in report.damage)
    return ", but the file has no closing line: its end is not known" if is_open else ""


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


def incomplete(report: Report) -> bool:
    """Return whether the capture lost something, which is exit code 4; mere coverage never is."""
    return bool(report.health.lost_events or report.health.map_full or report.gaps)
