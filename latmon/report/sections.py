"""Sentences that the text and the HTML report share: completeness, definitions, findings, changed settings.

All are made of the summary alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

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
from latmon.report.devices import NOT_PASSED, includes_of
from latmon.report.formatting import ROUGH, cell
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
_Json = Mapping[str, Any]
_REPORTED_SHARE = 0.05


def tail_sentence(name: str, device: _Json) -> str:
    """Return `sdc above 20 ms: 97% softirq, 3% hba (31 I/Os)`; empty without a tail."""
    if "tail" not in device:
        return ""
    tail = device["tail"]
    shares = sorted(tail["share"].items(), key=lambda one: -one[1])
    includes = includes_of(device["ops"])
    reported = [
        f"{part(share)} {called(stage, includes.get(stage, ())).sentence}"
        for at, (stage, share) in enumerate(shares)
        if not at or share >= _REPORTED_SHARE
    ]
    ios = "1 I/O" if tail["count"] == 1 else f"{tail['count']:,} I/Os"
    if not reported:
        return f"{name} above {spelled(tail['cut_us'])}: {ios}"
    return f"{name} above {spelled(tail['cut_us'])}: {', '.join(reported)} ({ios})"


def admission_sentence(name: str, device: _Json) -> str:
    """Return the sentence on a large admission with known causes; empty without."""
    ops = [op for op in device["ops"].values() if "admission_us" in op]
    admission_us, whole_us = (sum(op[key]["sum"] or 0 for op in ops) for key in ("admission_us", "latency_whole_us"))
    causes = causes_text(device.get("traced", {}).get("admission_causes", {}), admission_us)
    return admission_text(name, admission_us / whole_us, causes) if causes and admission_us > MUCH * whole_us else ""


def stack_sentences(name: str, device: _Json) -> tuple[str, ...]:
    """Return which kernel functions complete a device's requests, and which raise its softirqs."""
    traced = device.get("traced", {})
    return stacks_text(name, traced.get("completers", {}), traced.get("raisers", {}))


def size_sentences(device: _Json) -> tuple[str, ...]:
    """Return a sentence per op on its latencies by size."""
    return tuple(_sizes(op, one["sizes"]) for op, one in device["ops"].items() if "sizes" in one)


def _sizes(op: str, sizes: _Json) -> str:
    rows = [
        (one["upto"] or 0, one["count"], *(cell(one["latency_us"], at) for at in ("p50", "p99")))
        for one in sizes["latency"]
    ]
    return size_text(op, rows, sizes.get("pattern", {}))


def _when(report: _Json) -> str:
    """Return ` (3 at first, not read until the end)`, or the part of it that holds; empty without one."""
    notes = [f"{report['first']} at first"] if "first" in report else []
    notes += [] if report.get("read_until_end", True) else ["not read until the end"]
    return f" ({', '.join(notes)})" if notes else ""


def reports_sentence(device: _Json) -> str:
    """Return `by its own reports: state running, ioerr_cnt 12 (3 at first)`; empty without any."""
    rows = {one["name"]: one for one in device.get("reports", [])}
    names = shown_reports({name: one["value"] for name, one in rows.items()})
    values = [f"{name} {rows[name]['value']}{_when(rows[name])}" for name in names]
    return f"by its own reports: {', '.join(values)}" if values else ""


def tracing_trust(health: _Json) -> list[str]:
    """Return how many requests were traced, and how many could not be followed."""
    if "traced" not in health:
        return []
    traced = health["traced"]
    sampled = sampled_as(traced.get("one_in_least", traced["one_in"]), traced["one_in"])
    sampled = sampled and f" ({sampled})"
    lost = sum(traced["unfollowed"].values())
    text = f"traced {traced['count']:,} I/Os{sampled}; path not followed {lost:,}"
    if health["untraced_share"] is not None:
        text += f" ({part(health['untraced_share'])})"
    text += f"; stages that miss their total {traced['off']:,}"
    cpu = health.get("probe_cpu_percent")
    text += "" if cpu is None else f"; tracer {cpu:.2g} % of a CPU"
    why = [f"  not followed: {n:,} {reason}" for reason, n in _most(traced["unfollowed"])]
    return [text, *why]


def _most(named: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(named.items(), key=lambda one: -one[1])


def trust(summary: _Json) -> list[str]:
    """Return sentences on completeness and cost; gaps, notices and damage are lists of their own."""
    health = summary["health"]
    live = "still being written: what comes later is not in it" if summary.get("live") else ""
    sentences = [
        live,
        coverage(health, summary["duration_s"] or 0.0),
        counters(health),
        full_tables(health),
        late(summary),
        *tracing_trust(health),
        outstanding.older(summary),
    ]
    return [one for one in sentences if one]


def gaps(summary: _Json) -> str:
    """Return how many gaps there are and why: `3, 12 s in all (enospc 2, windows-missing 1)`; `none`."""
    found = summary["gaps"]
    if not found:
        return f"none{open_end(summary)}"
    reasons = Counter(one["reason"] for one in found).most_common()
    why = ", ".join(f"{reason} {n:,}" for reason, n in reasons[:_MAX_REASONS])
    return f"{len(found):,}, {sum(one['duration_s'] for one in found):,.6g} s in all ({why}){open_end(summary)}"


def why_untimed(device: _Json) -> str:
    """Return why the always-on probe has no latency of a device."""
    has_disks = device.get("members") or device.get("kind") in ("dm", "md")
    return "no request passes; its I/O is timed at the devices below it" if has_disks else "only the tracer measures it"


def open_end(summary: _Json) -> str:
    """Return a clause for a recording that was not closed, else an empty text: its last gap may not be in the file."""
    is_open = any(one.endswith(UNCLOSED) for one in summary.get("damage", ()))
    return ", but the file has no closing line: its end is not known" if is_open else ""


def late(summary: _Json) -> str:
    """Return how many windows are wide because they were read late; they miss nothing."""
    found = [one["duration_s"] for one in summary.get("late", ())]
    many = f"{counted(len(found), 'window')} {'were' if len(found) > 1 else 'was'}"
    how = f"up to {max(found, default=0):,.3g} s" if len(found) > 1 else f"{sum(found):,.3g} s"
    return f"{many} read late ({LATE}), {how} wide; nothing is missing there" if found else ""


def verdict(summary: _Json) -> str:
    """Return the losses of an incomplete capture; empty for a complete one."""
    return f"INCOMPLETE: {', '.join(_lost(summary))}; sums and counts are too small" if incomplete(summary) else ""


def _lost(summary: _Json) -> Iterator[str]:
    found, health = summary["gaps"], summary["health"]
    if found:
        yield f"{sum(one['duration_s'] for one in found):,.4g} s in {len(found):,} gap{'s' * (len(found) != 1)}"
    for name, words in (("lost_events", "event{} lost"), ("map_full", "map update{} lost")):
        if health[name]:
            yield f"{health[name]:,} {words.format('s' * (health[name] != 1))}"


def full_tables(health: _Json) -> str:
    """Return which tables of the tracer had no room, and what is right all the same; empty without one."""
    tables = health.get("full_tables")
    if not tables:
        return ""
    named = ", ".join(f"{name} in {counted(windows, 'window')}" for name, windows in tables.items())
    return (
        f"full tables of the tracer: {named}; threads, processes or stages that they count are incomplete, "
        "counts and latencies of I/Os are not"
    )


def end(summary: _Json) -> str:
    """Return the time at which the last window ended."""
    try:
        ended = datetime.fromisoformat(summary["start"]) + timedelta(seconds=summary["duration_s"])
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    return ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def windows(summary: _Json) -> str:
    """Return the number and length of the windows, and the longest if ticks came late."""
    text = f"{counted(summary['intervals'], 'window')} of {summary['interval_s']:g} s"
    return (
        f"{text}, the longest {summary['longest_s']:,.1f} s (ticks came late)"
        if summary["longest_s"] > _LONG * summary["interval_s"]
        else text
    )


def coverage(health: _Json, seconds: float) -> str:
    """Return the share of the kernel's completions that the probe saw in so many seconds."""
    if health["coverage"] is None:
        return "coverage unknown: the kernel's own counters and a probe's are not both here"
    done = health["completions"]
    text = (
        f"coverage {percent(health['coverage'])}: the probe saw {done['seen']:,} of {done['kernel']:,} "
        "completions that the kernel counted"
    )
    if health["coverage"] < _EXPLAINED:
        return f"{text}; causes: docs/COVERAGE.md"
    twice = counts_twice(done["seen"] / done["kernel"], round(seconds * 1e6))
    return f"{text}; more than all: some were counted twice" if twice else text


def counters(health: _Json) -> str:
    """Return the counters of losses, and what measuring cost."""
    skipped = "" if health["skipped"] is None else f", skipped by the kernel {health['skipped']:,}"
    own = "" if health["self_cpu_percent"] is None else f"; own CPU {health['self_cpu_percent']:.2g} %"
    probe = "" if health["probe_ns_per_io"] is None else f"; probes {health['probe_ns_per_io']:.0f} ns per I/O"
    dropped = f", records dropped {health['dropped_records']:,}" if health["dropped_records"] else ""
    return (
        f"probes {health['probes_attached']} of {health['probes_wanted']}; lost events {health['lost_events']:,}, "
        f"map full {health['map_full']:,}, unmatched {health['unmatched']:,}, stale {health['stale']:,}, "
        f"lines not understood {health['undecoded_lines']:,}{dropped}{skipped}{own}{probe}"
    )


def meaning(summary: _Json) -> list[str]:
    """Return definitions of the numbers, and why some are missing."""
    how = _HOW.format(width=_width(summary))
    seconds = summary["measured_s"]
    rates = f"/s: per second of the windows, of {seconds:,.6g} s in all" if seconds and summary["gaps"] else ""
    some = (*_begins(summary), *_measured(summary), *_words(summary), *outstanding.limit_meaning(summary), rates, how)
    return [one for one in some if one]


def _width(summary: _Json) -> str:
    """Return the width of the coarsest buckets of latency rows, and of those by size, and the digits."""
    ops = [op for device in summary["devices"].values() for op in device["ops"].values()]
    rows = [row for op in ops for row in (op.get("latency_us"), *op["stages"].values()) if row]
    by_size = [size["latency_us"] for op in ops for size in op.get("sizes", {}).get("latency", ())]
    parts, of_size = (sorted({row.get("octave_parts", 2**BITS) for row in some}) for some in (rows, by_size))
    if not parts or parts[0] == 2**BITS:
        text = "at most 12.5 % wide"
    else:
        wide = "an octave" if parts[0] == 1 else f"1/{parts[0]} of an octave"
        others = "; others' are at most 12.5 %" if parts[-1] == 2**BITS else ""
        text = f"up to {wide} wide{' (~)' if parts[0] <= ROUGH else ''} where the source's are{others}"
    if of_size and of_size[0] < 2**BITS:
        text += f" (by size {100 / of_size[0]:g} %)"
    text += "; it is rounded up to two digits"
    more = any("or_more" in row for row in rows)
    return text + (". ≥: in a row of the source without an upper bound" if more else "")


def _begins(summary: _Json) -> Iterator[str]:
    if summary.get("latency_from") in _FROM:
        yield _FROM[summary["latency_from"]]


def _measured(summary: _Json) -> Iterator[str]:
    includes: dict[str, None] = {}
    absent: dict[str, list[str]] = {}
    for device in summary["devices"].values():
        for op in device["ops"].values():
            sentences = (explained(stage, one["includes"]) for stage, one in op["stages"].items())
            includes |= dict.fromkeys(sentence for sentence in sentences if sentence)
            for stage, why in op["stages_absent"].items() if device.get("timed", True) else ():
                if why.startswith(NOT_PASSED):
                    continue
                stages = absent.setdefault(why, [])
                stages += [] if stage in stages else [stage]
    yield from includes
    yield from _threads(summary)
    yield from (f"not measured: {', '.join(stages)} ({why})" for why, stages in absent.items())
    missing: dict[str, list[str]] = {}
    for one in summary["health"]["probes_missing"]:
        missing.setdefault(one["reason"], []).append(one["name"])
    for why, names in missing.items():
        yield f"probe{'s' * (len(names) != 1)} not attached: {', '.join(names)} ({why})"


def _threads(summary: _Json) -> Iterator[str]:
    """Yield a sentence for each device whose driver hands I/Os to a thread of this host, whose waits are in hba."""
    for name, device in summary["devices"].items():
        sentence = thread_sentence(name, device.get("driver") or "")
        if sentence and any("hba" in op["stages"] for op in device["ops"].values()):
            yield sentence


def _words(summary: _Json) -> Iterator[str]:
    """Yield definitions of the terms that occur."""
    ops = [op for device in summary["devices"].values() for op in device["ops"].values()]
    traced = [op for op in ops if "of" in op]
    if any("untimed" in op for op in ops):
        yield _UNTIMED
    if any(op["stages"] for op in ops):
        yield _SHARE
    if traced:
        yield _TRACED
    if submitted := [op for op in ops if "latency_whole_us" in op]:
        yield _WHOLE if all(op["admission_us"]["includes"] for op in submitted) else f"{_WHOLE}. {_LATER}"
    if summary.get("latency_from") == "issue" and any("queue" in op["stages"] for op in traced):
        yield _BEGINS
    if any("tail" in device for device in summary["devices"].values()):
        yield _CUT
    if any(_sumless(op) for op in ops):
        yield _MEAN


def _sumless(op: _Json) -> bool:
    """Return whether the mean of a row with I/Os is unknown."""
    rows = [op.get("latency_us"), op.get("of", {}).get("latency_us"), *op["stages"].values()]
    return any(one and one["count"] and one["mean"] is None for one in rows)


def changes(changed: Mapping[str, Mapping[str, str]] | None) -> list[str]:
    """Return a sentence per section: `device sda: scheduler is now none`; none if settings were not read."""
    return [
        f"{section}: " + ", ".join(f"{name} is {f'now {value}' if value else 'gone'}" for name, value in values.items())
        for section, values in (changed or {}).items()
    ]


def evaluated(summary: _Json) -> str:
    """Return how rules were evaluated: `13 rules, minute by minute`, and which of them lacked inputs."""
    by = summary["findings_by"]
    who, why = evaluated_by(by["rules"], by["not_judged"], by.get("failed", {}), by.get("partly_evaluated", {}))
    how = "every 5 s over the last minute" if by["judged_by"] == "windows" else "minute by minute"
    off = f"off by the config: {', '.join(by['rules_off'])}" if "rules_off" in by else ""
    left = f"{counted(by['episodes_left_out'], 'episode')} left out" if "episodes_left_out" in by else ""
    return "; ".join(filter(None, (f"{who}, {how}", why, off, left)))


def named(one: _Json) -> str:
    """Return the device and the title of a finding: `sde starved I/O`."""
    return f"{one['device']} {title_of(one['id'])}".strip()


def when(one: _Json) -> str:
    """Return the time from the first block to the last, and the number of episodes."""
    begin, end = one["begin"] or UNKNOWN, one["end"] or UNKNOWN
    span = f"at {begin}" if begin == end else f"{begin} to {end}"
    return span if one["episodes"] == 1 else f"{span}, {one['episodes']:,} times"


def fact_text(fact: _Json) -> str:
    """Return the fact with its number of samples, if its text doesn't contain it."""
    return sized(fact["text"], fact.get("samples"))


def shown_on(one: _Json) -> str:
    """Return the view with the evidence: `stages screen, sdc, 100 ms and more`."""
    view = one["view"]
    low, high = (spelled(view[name]) if name in view else "" for name in ("low_us", "high_us"))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    parts = (f"{view.get('screen', '')} screen", view.get("device"), view.get("op"), region)
    return ", ".join(part for part in parts if part)


def slow_times(summary: _Json) -> Iterator[tuple[_Json, str]]:
    """Yield the keys `slow` and `slo` of the summary, each with a sentence on their number and worst minute."""
    if "slow" in summary:
        slow = summary["slow"]
        yield (
            slow,
            _slowest_minute(slow, f"{_threshold(slow)} or longer") + _longer_in_flight(summary, slow["above_us"]),
        )
    if "slo" in summary:
        slo = summary["slo"]
        begins = [spelled(us) for us in slo["counted_from_us"]]
        edges = " to ".join(dict.fromkeys((begins[0], begins[-1]))) if begins else ""
        exact = slo["counted_from_us"] == [slo["slo_us"]]
        how = f" (counted from {edges}, an edge of buckets, on)" if begins and not exact else ""
        if begins:
            bar = f"{spelled(slo['slo_us'])} or longer, the SLO{how}"
            yield slo, _slowest_minute(slo, bar) + _longer_in_flight(summary, slo["slo_us"])
        else:
            yield slo, f"SLO of {spelled(slo['slo_us'])}: no I/O was timed"


def _threshold(slow: _Json) -> str:
    """Return the threshold of all devices, or `their device's threshold at the time, 3.1 to 44.4 ms`."""
    if slow["above_us"] is not None:
        return spelled(slow["above_us"])
    least_us, most_us = slow.get("above_range_us", (None, None))
    values = f" ({spelled(least_us)} to {spelled(most_us)})" if least_us is not None else ""
    return f"their device's threshold at the time{values}"


def _slowest_minute(slow: _Json, bar: str) -> str:
    worst, whole = slow["worst_minute"], sum(one["count"] for one in slow["days"])
    if worst is None:
        return f"no completed I/O took {bar}"
    return f"completed I/Os of {bar}: {whole:,}; most in the minute from {worst['start'][:19]}Z: {worst['count']:,}"


def _highest_threshold_us(device: _Json) -> int:
    """Return the device's threshold, of one that moved the highest; MAX_US without one."""
    return max(device.get("threshold_range_us", (device.get("threshold_us", MAX_US),)), default=MAX_US)


def _longer_in_flight(summary: _Json, bar_us: int | None) -> str:
    """Return `; longest in flight: at least 5 s on sdb` of I/Os at or above the bar, by default each threshold."""
    found = {
        name: row
        for name, one in summary["devices"].items()
        if (row := outstanding.longest_in_flight(one)) and row["age_us"] >= (bar_us or _highest_threshold_us(one))
    }
    if not found:
        return ""
    name = max(found, key=lambda name: found[name]["age_us"])
    return f"; longest in flight: {outstanding.age(found[name])} on {name}"
