"""The text of what the deep probes told: tails, outliers as ribbons; softirqs, handlers, wake-ups and queues in tables.

Reads the summary alone, like text.py; every line fits a ticket.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from latmon.model import STAGES, UNACCOUNTED
from latmon.priorities import scales
from latmon.report.outliers import issuer
from latmon.report.quantile_words import cell, top
from latmon.report.stages import includes_of
from latmon.report.wrapping import WIDTH, wrapped
from latmon.stage_names import called
from latmon.views.units import UNKNOWN, count, duration, exact, mean, part, sampled_as, spelled, until, whole

MAX_OUTLIERS = 5
MAX_ROWS = 12
"""Of a table: the rest is in the JSON."""
_BAR = 24
_TOLD_SHARE = 0.05
_FEW_US = 1
_Json = Mapping[str, Any]


def tail_sentence(name: str, device: _Json) -> str:
    """`sdc above 20 ms: 97 % softirq, 3 % hba (31 I/Os)`; empty without a tail."""
    if "tail" not in device:
        return ""
    tail = device["tail"]
    shares = sorted(tail["share"].items(), key=lambda one: -one[1])
    includes = includes_of(device["ops"])
    told = [
        f"{_percent(share)} {called(stage, includes.get(stage, ())).sentence}"
        for at, (stage, share) in enumerate(shares)
        if not at or share >= _TOLD_SHARE
    ]
    ios = "1 I/O" if tail["count"] == 1 else f"{tail['count']:,} I/Os"
    if not told:
        return f"{name} above {spelled(tail['cut_us'])}: {ios}"
    return f"{name} above {spelled(tail['cut_us'])}: {', '.join(told)} ({ios})"


def trust(health: _Json) -> list[str]:
    """Sentences: how many requests were traced, and of how many the path could not be followed."""
    if "traced" not in health:
        return []
    traced = health["traced"]
    sampled = sampled_as(traced.get("one_in_least", traced["one_in"]), traced["one_in"])
    sampled = sampled and f" ({sampled})"
    lost = sum(traced["unfollowed"].values())
    said = f"traced {traced['count']:,} I/Os{sampled}; path not followed {lost:,}"
    if health["untraced_share"] is not None:
        said += f" ({part(health['untraced_share'])})"
    said += f"; stages that miss their total {traced['off']:,}"
    cpu = health.get("probe_cpu_percent")
    said += "" if cpu is None else f"; deep probes {cpu:.2g} % of a CPU"
    why = [f"  not followed: {n:,} {reason}" for reason, n in _most(traced["unfollowed"])]
    return [said, *why]


def outliers(summary: _Json) -> list[str]:
    """The worst of them, a few lines each."""
    if not summary.get("outliers"):
        return []
    every = summary["outliers"]
    above = sum(sum(one.get("above", {}).values()) for one in summary["devices"].values())
    told = sum(one["repeats"] for one in every) + summary.get("outliers_left_out", 0)
    left = summary["health"].get("suppressed", 0)
    head = f"outliers: {above:,} I/Os above the threshold, {told:,} recorded, {left:,} left out by the rate limit"
    more = len(every) - MAX_OUTLIERS
    rows = [line for one in every[:MAX_OUTLIERS] for line in ribbon(one)]
    return [*wrapped(head), *rows, *([f"  and {more:,} more rows"] if more > 0 else [])]


def ribbon(one: _Json) -> Iterator[str]:
    """What it was, then each stage with its part of the total, then whom it waited for."""
    repeats = f"  x{one['repeats']}" if one["repeats"] > 1 else ""
    what = " ".join([one["op"], *one["flags"]])
    who = f"{issuer(one)}/{UNKNOWN if one['pid'] is None else one['pid']}"
    bytes_ = "" if one["bytes"] is None else f"  {one['bytes']:,} B"
    sector = "" if one["sector"] is None else f"  sector {one['sector']:,}"
    yield from wrapped(f"{one['time'] or UNKNOWN}  {one['device']}  {what}{bytes_}{sector}  {who}{repeats}", "  ")
    cpus = f"CPU {_known(one['cpu_issue'])} to {_known(one['cpu_complete'])}"
    depth = f"{_known(one['outstanding_at_issue'])} in flight at issue, overtaken by {_known(one['overtaken_by'])}"
    path = f"; {one['path']}" if one["path"] else ""
    yield from wrapped(f"total {exact(one['total_us'])} {until(one['stages_us'])}; {cpus}; {depth}{path}", "    ")
    parts = _ordered(one["stages_us"])
    if not parts and not one["unaccounted_us"]:
        yield "      stages were not traced then"
    elif one["unaccounted_us"] > _FEW_US or not parts:
        parts.append((UNACCOUNTED, one["unaccounted_us"]))
    for stage, us in parts:
        share = min(1.0, us / one["total_us"]) if one["total_us"] else 0.0
        bar = "#" * round(share * _BAR)
        name = called(stage, one["includes"].get(stage, ())).column
        yield f"      {name[:12]:<12}{exact(us):>16} {part(share):>5} {bar}".rstrip()
    for wait in one["waits"]:
        instead = f"; {wait['instead']} ran instead" if wait["instead"] else ""
        said = f"{wait['stage']}: {wait['thread']} (prio {wait['priority']}) woken, ran {exact(wait['delay_us'])} later"
        yield from wrapped(said + instead, "      ")


def interrupts(summary: _Json) -> list[str]:
    """Softirqs, handlers, wake-ups and task queues: a table each, none where nobody measured it."""
    blocks = [_softirqs(summary.get("softirqs", {})), _irqs(summary.get("irqs", [])), _wakeups(summary)]
    blocks.append(_taskqs(summary))
    return [line for block in blocks for line in block]


def _softirqs(softirqs: _Json) -> list[str]:
    if not softirqs:
        return []
    lines = [f"{'softirq':<9}{'runs':>9}{'delay p50':>10}{'p99':>7}{'max':>7}{'run p99':>8}  ran in"]
    for vector, one in softirqs.items():
        where = ", ".join(f"{part(n / sum(one['ran_in'].values()))} {name}" for name, n in _most(one["ran_in"])[:2])
        delay = one["delay_us"]
        cells = f"{cell(delay, 'p50'):>10}{cell(delay, 'p99'):>7}{top(delay):>7}{cell(one['run_us'], 'p99'):>8}"
        lines.append(f"{vector[:8]:<9}{count(one['count']):>9}{cells}  {where}"[:WIDTH].rstrip())
    return [*lines, "delay: from the raise to the entry; ran in: the two most frequent", ""]


def _irqs(irqs: list[_Json]) -> list[str]:
    if not irqs:
        return []
    lines = [f"{'irq':<6}{'handler':<18}{'runs':>9}{'not its':>8}{'p50':>7}{'p99':>7}{'waited':>8}  device"]
    shown = sorted(irqs, key=lambda one: -(one["run_us"]["sum"] or 0))[:MAX_ROWS]
    for one in shown:
        runs = sum(one["returned"].values())
        none = part(one["returned"].get("none", 0) / runs) if runs else UNKNOWN
        run = one["run_us"]
        times = f"{cell(run, 'p50'):>7}{cell(run, 'p99'):>7}{duration(one['before_us']):>8}"
        cells = f"{count(one['count']):>9}{none:>8}{times}"
        shared = f", shared with {', '.join(one['shared_with'])}" if one["shared_with"] else ""
        irq = UNKNOWN if one["irq"] is None else one["irq"]
        said = f"{irq:<6}{one['handler'][:17]:<18}{cells}  {one['device'] or UNKNOWN}{shared}"
        lines += textwrap.wrap(said, WIDTH, subsequent_indent="      ", drop_whitespace=True) or [said]
    return [*lines, *_rest(len(irqs)), "not its: runs that returned IRQ_NONE; waited: for handlers before it", ""]


def _wakeups(summary: _Json) -> list[str]:
    rows = summary.get("wakeups", [])
    if not rows:
        return []
    lines = [f"{'woken thread':<16}{'policy':>7}{'prio':>5}{'count':>8}{'p50':>7}{'p99':>7}{'max':>7}  instead"]
    for one in rows[:MAX_ROWS]:
        delay = one["delay_us"]
        who = f"{one['thread'][:15]:<16}{one['policy'][:6] or UNKNOWN:>7}{one['priority']:>5}{count(one['count']):>8}"
        cells = f"{cell(delay, 'p50'):>7}{cell(delay, 'p99'):>7}{top(delay):>7}"
        instead = next((name for name, _ in _most(one["instead"])), "")
        lines.append(f"{who}{cells}  {_shortened(instead, WIDTH - len(who) - len(cells) - 2)}".rstrip())
    left = summary.get("wakeups_left_out", 0)
    others = [f"{left:,} wake-ups of other threads"] if left else []
    return [
        *lines,
        *_rest(len(rows)),
        *others,
        *wrapped(
            "times: from woken to running; instead: what most often ran before it; prio: "
            f"{scales(summary['host']['kernel'])[0]}"
        ),
        "",
    ]


def _shortened(name: str, room: int) -> str:
    """A thread's name without its priority where both don't fit; what is cut ends so."""
    if len(name) > room:
        name = name.partition(" (prio ")[0]
    return name if len(name) <= room else name[: max(room - 1, 0)] + "…"


def _taskqs(summary: _Json) -> list[str]:
    if "taskqs" not in summary:
        return []
    rows = summary["taskqs"]
    if not rows:
        return ["no task queue was busy", ""]
    heads = f"{'prio':>5}{'threads':>8}{'active':>7}{'waiting':>8}{'most':>7}{'executed':>9}{'mean run':>9}"
    lines = [f"{'task queue':<25}{heads}"]
    for one in rows[:MAX_ROWS]:
        numbers = f"{whole(one['priority']):>5}{whole(one['threads']):>8}{whole(one['active_max']):>7}"
        who = f"{one['name'][:24]:<25}{numbers}"
        if one["permanent_loops"]:
            lines.append(f"{who}  permanent loops, not queue items")
            continue
        run = mean(one["mean_run_us"])
        lines.append(f"{who}{count(one['waiting_max']):>8}{count(one['most']):>7}{count(one['executed']):>9}{run:>9}")
    left = summary.get("taskqs_left_out", 0)
    return [
        *(line[:WIDTH] for line in lines),
        *_rest(len(rows)),
        *([f"{left:,} tasks of other queues"] if left else []),
        "active, waiting: the most at a reading; mean run: of a task, no wait in it",
        "",
    ]


def _rest(rows: int) -> list[str]:
    return [f"  and {rows - MAX_ROWS:,} more (--json has them)"] if rows > MAX_ROWS else []


def _ordered(stages: Mapping[str, int]) -> list[tuple[str, int]]:
    known = {name: at for at, name in enumerate(STAGES)}
    return sorted(stages.items(), key=lambda one: known.get(one[0], len(known)))


def _most(named: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(named.items(), key=lambda one: -one[1])


def _percent(share: float) -> str:
    return f"{part(share)[:-1]} %"


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
