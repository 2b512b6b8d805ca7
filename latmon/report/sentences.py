"""What a report says of itself in sentences: how far its numbers can be trusted, and what each of them includes.

Reads the summary alone. Knows no width: text.py wraps them, the HTML report makes paragraphs of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from latmon.histogram import BITS
from latmon.recording.lines import LATE
from latmon.report import text_deep, text_outstanding
from latmon.report.stages import NOT_PASSED
from latmon.report.summary import incomplete
from latmon.stage_names import explained
from latmon.views.units import UNKNOWN, percent

_FROM = {
    "queued": "total: from the moment the request was queued to its completion",
    "issue": "total: from the issue to the driver to the completion; the time in the scheduler's queue is not in it",
}
_HOW = (
    "u, m, s: micro-, milliseconds, seconds. A quantile is the upper bound of a bucket {width}. "
    "-: not measured, or too few I/Os to tell (p99.9 needs 1,000). ≤: the exact maximum is not known."
)
_SHARE = "share: of the summed time of the I/Os that the stages are of; resume comes after their total and has none"
_TRACED = (
    "total: of all timed I/Os; of traced: of those whose stages were traced, which the stages, their means and their "
    "shares are of. Both end at the completion"
)
_MEAN = f"mean {UNKNOWN}: the sum of some window isn't known; quantiles are of all of it"
_BEGINS = "of traced: begins with the queue, where there is one; the total of all timed I/Os begins at the issue here"
_CUT = "above: the first bucket's bound at or above --threshold, without one behind the p99"
_EXPLAINED = 0.999
"""Less coverage has a cause; docs/COVERAGE.md knows those that were found."""
_LONG = 1.5
"""Of an interval: a window so long has ticks in it that never came, and what they would have told."""
_MAX_REASONS = 8
_UNTIMED = (
    "not timed, though counted as the kernel does: the empty write of each fsync, which carries the flush and never "
    "goes to the driver, and completions without a start (unmatched)"
)
_Json = Mapping[str, Any]


def trust(summary: _Json) -> list[str]:
    """How far the numbers can be trusted, without what is a list of its own: gaps, notices, damage."""
    health = summary["health"]
    live = "still being written: what comes later is not in it" if summary.get("live") else ""
    said = [
        live,
        coverage(health),
        counters(health),
        late(summary),
        *text_deep.trust(health),
        text_outstanding.older(summary),
    ]
    return [one for one in said if one]


def gaps(summary: _Json) -> str:
    """How many, and for which reasons: `3, 12 s in all (enospc 2, windows-missing 1)`; `none`."""
    found = summary["gaps"]
    if not found:
        return "none"
    reasons = Counter(one["reason"] for one in found).most_common()
    why = ", ".join(f"{reason} {n:,}" for reason, n in reasons[:_MAX_REASONS])
    return f"{len(found):,}, {sum(one['duration_s'] for one in found):,.6g} s in all ({why})"


def late(summary: _Json) -> str:
    """How many windows are wide because they were read late; nothing is missing in them."""
    found = [one["duration_s"] for one in summary.get("late", ())]
    many = f"{len(found):,} windows were" if len(found) > 1 else "1 window was"
    how = f"up to {max(found, default=0):,.3g} s" if len(found) > 1 else f"{sum(found):,.3g} s"
    return f"{many} read late ({LATE}), {how} wide; nothing is missing there" if found else ""


def verdict(summary: _Json) -> str:
    """What was lost, and how much of it; empty where nothing was."""
    return f"INCOMPLETE: {', '.join(_lost(summary))}; sums and counts are too small" if incomplete(summary) else ""


def _lost(summary: _Json) -> Iterator[str]:
    found, health = summary["gaps"], summary["health"]
    if found:
        yield f"{sum(one['duration_s'] for one in found):,.4g} s in {len(found):,} gap{'s' * (len(found) != 1)}"
    for name, words in (("lost_events", "event{} lost"), ("map_full", "map update{} lost")):
        if health[name]:
            yield f"{health[name]:,} {words.format('s' * (health[name] != 1))}"


def end(summary: _Json) -> str:
    """When the last window ended."""
    try:
        ended = datetime.fromisoformat(summary["start"]) + timedelta(seconds=summary["duration_s"])
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    return ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def windows(summary: _Json) -> str:
    """How many, how long, and that one was longer than it should have been."""
    said = f"{summary['intervals']:,} windows of {summary['interval_s']:g} s"
    return (
        f"{said}, the longest {summary['longest_s']:,.1f} s (ticks came late)"
        if summary["longest_s"] > _LONG * summary["interval_s"]
        else said
    )


def coverage(health: _Json) -> str:
    """What the probe saw of what the kernel counted."""
    if health["coverage"] is None:
        return "coverage unknown: the kernel's own counters and a probe's are not both here"
    done = health["completions"]
    said = (
        f"coverage {percent(health['coverage'])}: the probe saw {done['seen']:,} of {done['kernel']:,} "
        "completions that the kernel counted"
    )
    if health["coverage"] < _EXPLAINED:
        return f"{said}; causes: docs/COVERAGE.md"
    return f"{said}; more than all: some were counted twice" if done["seen"] > 1.005 * done["kernel"] else said


def counters(health: _Json) -> str:
    """What was lost or left out, each counted, and what the measuring cost."""
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
    """What each number includes, and why what is missing is missing."""
    how = _HOW.format(width=_width(summary))
    return [*_begins(summary), *_measured(summary), *_words(summary), *text_outstanding.meaning(summary), how]


def _width(summary: _Json) -> str:
    """Of the widest bucket that a row of latencies has, where it isn't latmon's own."""
    ops = [op for device in summary["devices"].values() for op in device["ops"].values()]
    rows = [row for op in ops for row in (op.get("latency_us"), *op["stages"].values()) if row]
    parts = sorted({row.get("octave_parts", 2**BITS) for row in rows})
    if not parts or parts[0] == 2**BITS:
        said = "at most 12.5 % wide"
    else:
        wide = "an octave" if parts[0] == 1 else f"1/{parts[0]} of an octave"
        others = "; others' are at most 12.5 %" if parts[-1] == 2**BITS else ""
        said = f"up to {wide} wide (~) where the source's are{others}"
    more = any("or_more" in row for row in rows)
    return said + (". ≥: in a row of the source without an upper bound" if more else "")


def _begins(summary: _Json) -> Iterator[str]:
    if summary.get("latency_from") in _FROM:
        yield _FROM[summary["latency_from"]]


def _measured(summary: _Json) -> Iterator[str]:
    includes: dict[str, None] = {}
    absent: dict[str, list[str]] = {}
    for device in summary["devices"].values():
        for op in device["ops"].values():
            said = (explained(stage, one["includes"]) for stage, one in op["stages"].items())
            includes |= dict.fromkeys(sentence for sentence in said if sentence)
            for stage, why in op["stages_absent"].items() if device.get("timed", True) else ():
                if why.startswith(NOT_PASSED):
                    continue
                stages = absent.setdefault(why, [])
                stages += [] if stage in stages else [stage]
    yield from includes
    yield from (f"not measured: {', '.join(stages)} ({why})" for why, stages in absent.items())
    for one in summary["health"]["probes_missing"]:
        yield f"probe not attached: {one['name']} ({one['reason']})"


def _words(summary: _Json) -> Iterator[str]:
    """Definitions, of what was said alone."""
    ops = [op for device in summary["devices"].values() for op in device["ops"].values()]
    traced = [op for op in ops if "of" in op]
    if any("untimed" in op for op in ops):
        yield _UNTIMED
    if any(op["stages"] for op in ops):
        yield _SHARE
    if traced:
        yield _TRACED
    if summary.get("latency_from") == "issue" and any("queue" in op["stages"] for op in traced):
        yield _BEGINS
    if any("tail" in device for device in summary["devices"].values()):
        yield _CUT
    if any(_sumless(op) for op in ops):
        yield _MEAN


def _sumless(op: _Json) -> bool:
    """Whether a mean of its rows isn't known, though there are I/Os."""
    rows = [op.get("latency_us"), op.get("of", {}).get("latency_us"), *op["stages"].values()]
    return any(one and one["count"] and one["mean"] is None for one in rows)
