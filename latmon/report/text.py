"""The summary as text for a ticket: 80 columns, no colour, and every number with what it includes.

Reads the summary alone, so that nothing is in the text that a script can't have too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from latmon.report import text_deep, text_outstanding
from latmon.report.figures import QUANTILES
from latmon.report.stages import NOT_PASSED
from latmon.report.summary import incomplete
from latmon.views.units import UNKNOWN, bound, count, duration, part, percent, rate

WIDTH = 79
MAX_LISTED = 20
_FROM = {
    "queued": "total: from the moment the request was queued to its completion",
    "issue": "total: from the issue to the driver to the completion; the time in the scheduler's queue is not in it",
}
_HOW = (
    "u, m, s: micro-, milliseconds, seconds. A quantile is the upper bound of a bucket at most 12.5 % wide. "
    f"{UNKNOWN}: not measured, or too few I/Os to tell (p99.9 needs 1,000). ≤: the exact maximum is not known."
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
_HEADS = f"    {'':<11}{'timed':>10}" + "".join(f"{title:>7}" for title in ("mean", *QUANTILES, "max"))
_LONG = 1.5
"""Of an interval: a window so long has ticks in it that never came, and what they would have told."""
_Json = Mapping[str, Any]


def render_text(summary: _Json) -> str:
    """The whole report, with a newline at its end."""
    blocks = [_head(summary), _trust(summary)]
    begins = summary.get("latency_from", "")
    blocks += [list(_device(name, one, summary["duration_s"], begins)) for name, one in _busy(summary)]
    blocks += [text_deep.outliers(summary), text_deep.interrupts(summary)[:-1], text_outstanding.remarks(summary)]
    blocks += [_idle(summary), _meaning(summary)]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(summary: _Json) -> list[str]:
    host = summary["host"]
    tier = f", tier {summary['health']['tier']}" if summary["health"]["tier"] else ""
    return [
        *_wrapped(f"latmon report: {host['name']}, kernel {host['kernel']}"),
        *_wrapped(
            f"from {summary['start'] or UNKNOWN} for {summary['duration_s']:,.1f} s, "
            f"{_windows(summary)}, by latmon {host['latmon']}"
        ),
        *_wrapped(f"backend {host['tool'] or summary['backend']}{tier}"),
        *(_wrapped(f"why this backend: {summary['reason']}") if "reason" in summary else []),
    ]


def _windows(summary: _Json) -> str:
    said = f"{summary['intervals']:,} windows of {summary['interval_s']:g} s"
    return (
        f"{said}, the longest {summary['longest_s']:,.1f} s (ticks came late)"
        if summary["longest_s"] > _LONG * summary["interval_s"]
        else said
    )


def _trust(summary: _Json) -> list[str]:
    """How far the numbers can be trusted."""
    lines = [*_wrapped(_coverage(summary["health"])), *_wrapped(_counters(summary["health"]))]
    lines += text_deep.trust(summary["health"])
    lines += text_outstanding.older(summary)
    lines += _wrapped(f"gaps: {len(summary['gaps']) or 'none'}")
    lines += _listed(
        [f"{one['start'] or UNKNOWN}  {one['duration_s']:g} s  {one['reason']}" for one in summary["gaps"]]
    )
    lines += _wrapped("notices:") if "notices" in summary else []
    lines += _listed([f"{one['time'] or UNKNOWN}  {one['text']}" for one in summary.get("notices", [])])
    lines += _wrapped("damage: some of the file can't be read") if "damage" in summary else []
    lines += _listed(summary.get("damage", []))
    lines += _wrapped("INCOMPLETE: something was lost; sums and counts are too small") if incomplete(summary) else []
    return lines


def _coverage(health: _Json) -> str:
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


def _counters(health: _Json) -> str:
    skipped = "" if health["skipped"] is None else f", skipped by the kernel {health['skipped']:,}"
    own = "" if health["self_cpu_percent"] is None else f"; own CPU {health['self_cpu_percent']:.2g} %"
    probe = "" if health["probe_ns_per_io"] is None else f"; probes {health['probe_ns_per_io']:.0f} ns per I/O"
    dropped = f", records dropped {health['dropped_records']:,}" if health["dropped_records"] else ""
    return (
        f"probes {health['probes_attached']} of {health['probes_wanted']}; lost events {health['lost_events']:,}, "
        f"map full {health['map_full']:,}, unmatched {health['unmatched']:,}, stale {health['stale']:,}, "
        f"lines not understood {health['undecoded_lines']:,}{dropped}{skipped}{own}{probe}"
    )


def _busy(summary: _Json) -> list[tuple[str, _Json]]:
    """Devices with a block of their own: I/Os completed, or some never did."""
    return [(name, one) for name, one in summary["devices"].items() if one["ops"] or text_outstanding.is_told(one)]


def _idle(summary: _Json) -> list[str]:
    busy = {name for name, _ in _busy(summary)}
    idle = [name for name in summary["devices"] if name not in busy]
    if not idle:
        return _wrapped("no device was seen") if not summary["devices"] else []
    if len(idle) == len(summary["devices"]):
        return _wrapped(f"no I/O completed on any device in this time: {', '.join(idle)}")
    return _wrapped(f"no I/O: {', '.join(idle)}")


_OF_DISKS = ("dm", "md")


def _device(name: str, device: _Json, seconds: float, begins: str) -> Iterator[str]:
    parts = [device.get(key, "") for key in ("label", "model", "driver", "controller")]
    on = f"on {', '.join(device['members'])}" if device.get("members") else ""
    yield from _wrapped("  ".join(part for part in (name, *parts, on) if part))
    if not device.get("timed", True):
        below = device.get("members") or device.get("kind") in _OF_DISKS
        why = "no request passes; its I/O is timed at the devices below it" if below else "only deep probes tell of it"
        yield from _wrapped(f"not timed here: {why}", "  ")
    if not device["ops"]:
        yield "  no I/O completed"
    else:
        yield _HEADS + (f"{'share':>6}" if any(one["stages"] for one in device["ops"].values()) else "")
    for op, one in device["ops"].items():
        yield from _wrapped(f"{op}: {_volume(one, seconds)}", "  ")
        yield from _stages(one, begins)
    yield from _not_passed(device["ops"])
    if sentence := text_deep.tail_sentence(name, device):
        yield from _wrapped(sentence, "  ")
    yield from text_outstanding.device(device)


def _stages(op: _Json, begins: str) -> Iterator[str]:
    """The latency, then the stages with their shares of all the time of the I/Os whose stages they are.

    Where the latency `begins` at the issue, a traced total holds more, even of as many I/Os.
    """
    latency, traced = op.get("latency_us"), op.get("of", {}).get("latency_us")
    base = traced or latency
    whole = (base["mean"] or 0) * base["count"] if base else 0
    if latency:
        yield _row("total", latency)
    longer = begins == "issue" and "queue" in op["stages"]
    if traced and (not latency or longer or traced["count"] != latency["count"]):
        yield _row("of traced", traced)
    rows = op["stages"] | ({"unaccounted": op["unaccounted"]} if "unaccounted" in op else {})
    for stage, figures in rows.items():
        known = whole and figures["sum"] is not None and stage != "resume"
        yield _row(stage, figures) + (f"{part(min(1.0, figures['sum'] / whole)):>6}" if known else "")


def _not_passed(ops: _Json) -> Iterator[str]:
    """Stages that are measured and that none of the device's I/Os passed."""
    reasons: dict[str, list[str]] = {}
    for stage, why in {stage: why for op in ops.values() for stage, why in op["stages_absent"].items()}.items():
        if why.startswith(NOT_PASSED) and all(stage not in op["stages"] for op in ops.values()):
            reasons.setdefault(why.removeprefix(NOT_PASSED), []).append(stage)
    for why, stages in reasons.items():
        yield from _wrapped(f"n/a: {', '.join(stages)} ({why})", "  ")


def _volume(op: _Json, seconds: float) -> str:
    said = f"{op['count']:,} I/Os"
    if seconds:
        said += f", {rate(op['count'] / seconds)}/s"
        said += f", {rate(op['bytes'] / seconds)}B/s" if op.get("bytes") else ""
    kernel = op.get("kernel")
    if "untimed" in op:
        said += f"; {op['untimed']:,} of them not timed"
    if kernel and kernel["count"] != op["count"]:
        said += f"; the kernel counted {kernel['count']:,}"
    if kernel and "latency_us" not in op and "mean_us" in kernel:
        said += f"; mean {duration(kernel['mean_us'])} by the kernel's own clock"
    return said


def _row(stage: str, q: _Json) -> str:
    limit = q.get("max_bound")
    top = f"≤{duration(limit, 2, up=True)}" if limit is not None else duration(q["max"])
    cells = [duration(q["mean"]), *(bound(q[name], q["max"]) for name in QUANTILES), top]
    return f"    {stage:<11}{count(q['count']):>10}" + "".join(f"{cell:>7}" for cell in cells)


_UNTIMED = (
    "not timed, though counted as the kernel does: the empty write of each fsync, which carries the flush and never "
    "goes to the driver, and completions without a start (unmatched)"
)


def _meaning(summary: _Json) -> list[str]:
    """What each number includes, and why what is missing is missing."""
    includes: dict[str, list[str]] = {}
    absent: dict[str, list[str]] = {}
    for device in summary["devices"].values():
        for op in device["ops"].values():
            includes |= {stage: one["includes"] for stage, one in op["stages"].items() if one["includes"]}
            for stage, why in op["stages_absent"].items() if device.get("timed", True) else ():
                if why.startswith(NOT_PASSED):
                    continue
                stages = absent.setdefault(why, [])
                stages += [] if stage in stages else [stage]
    lines = _wrapped(_FROM[summary["latency_from"]]) if summary.get("latency_from") in _FROM else []
    for stage, others in includes.items():
        lines += _wrapped(f"{stage}: includes {', '.join(others)}")
    for why, stages in absent.items():
        lines += _wrapped(f"not measured: {', '.join(stages)} ({why})")
    if any("untimed" in op for device in summary["devices"].values() for op in device["ops"].values()):
        lines += _wrapped(_UNTIMED)
    for one in summary["health"]["probes_missing"]:
        lines += _wrapped(f"probe not attached: {one['name']} ({one['reason']})")
    ops = [op for device in summary["devices"].values() for op in device["ops"].values()]
    lines += _wrapped(_SHARE) if any(op["stages"] for op in ops) else []
    traced = [op for op in ops if "of" in op]
    lines += _wrapped(_TRACED) if traced else []
    if summary.get("latency_from") == "issue" and any("queue" in op["stages"] for op in traced):
        lines += _wrapped(_BEGINS)
    lines += _wrapped(_CUT) if any("tail" in device for device in summary["devices"].values()) else []
    lines += _wrapped(_MEAN) if any(_sumless(op) for op in ops) else []
    return [*lines, *text_outstanding.meaning(summary), *_wrapped(_HOW)]


def _sumless(op: _Json) -> bool:
    """Whether a mean of its rows isn't known, though there are I/Os."""
    rows = [op.get("latency_us"), op.get("of", {}).get("latency_us"), *op["stages"].values()]
    return any(one and one["count"] and one["mean"] is None for one in rows)


def _listed(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return [part for line in (*lines[:MAX_LISTED], *more) for part in _wrapped(line, "  ")]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
