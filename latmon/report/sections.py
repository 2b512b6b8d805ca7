"""Sections of the text report: trust, settings, findings, outstanding I/O, traced stages and threads.

Reads the summary alone. Knows no width: text.py wraps them, the HTML report makes paragraphs of them.

Reads the summary alone, like text.py; every line fits a ticket.

Reads the summary alone, like text.py; every line fits a ticket.

Reads the summary alone; every line fits a ticket. Of many settings the first few are here, the JSON has all.

Reads the summary alone; every line fits a ticket.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from latmon.analysis.limits import at_limit_said
from latmon.analysis.priorities import scales
from latmon.findings.engine import who_judged
from latmon.findings.finding import NOT_RUN, sized
from latmon.model.frame import STAGES, UNACCOUNTED
from latmon.model.histogram import BITS
from latmon.model.inflight import AGES_S, MEANS
from latmon.model.stages import called, explained
from latmon.recording.encode import LATE
from latmon.recording.reader import UNCLOSED
from latmon.report.devices import NOT_PASSED, includes_of
from latmon.report.formatting import WIDTH, at_the_end, cell, held, top, wrapped
from latmon.report.summary import incomplete
from latmon.report.totals import issuer
from latmon.support.units import UNKNOWN, counted, duration, part, spelled, whole
from latmon.views.units import count, exact, mean, percent, sampled_as, until

MAX_DEPTHS = 8
"""Rows of a device's table: the most frequent ones; the rest is in the JSON."""
MAX_WAITING = 5
MAX_REMARKS = 40
_DEPTH_BAR = 20


def device(one: _Json) -> Iterator[str]:
    """A device's lines: depths, law, issue order, what is in flight."""
    if "outstanding" in one:
        told = one["outstanding"]
        if told.get("source") == MEANS:
            yield from _means(told)
        else:
            yield from (
                _counts(told) if "time_share" not in told else _depths(told) if "source" in told else _gauge(told)
            )
    if one.get("issue_order", {}).get("ascending") is not None:
        yield from wrapped(f"issue order: {one['issue_order']['summary']}", "  ")
    yield from _in_flight(one)


def is_told(one: _Json) -> bool:
    """Whether a device without completions has a line of its own: I/Os that wait, or how many there were at issue."""
    depths = one.get("outstanding", {"mean": 0})
    counted = "time_share" not in depths and depths.get("mean") != 0
    return bool(one.get("in_flight")) or "in_flight_longest" in one or counted


def older(summary: _Json) -> str:
    """Who had I/Os in flight for long when the recording ended, how many, and those of unknown age; empty without."""
    told = dict(summary["health"].get("in_flight_older", {}))
    least = "at least " if told.pop("at_least", False) else ""
    unknown = summary["health"].get("in_flight_of_unknown_age", 0)
    if not any(told.get(f"{age} s") for age in AGES_S):
        return f"in flight at the end: {unknown:,} of unknown age" if unknown else ""
    said = ", ".join(f"{told[age]:,} for more than {age}" for age in (f"{age} s" for age in AGES_S) if told.get(age))
    who = at_the_end(held(_waiting(summary)))
    many = f"{who} ({least}{said})" if who else f"{least}{said}"
    return f"IN FLIGHT at the end: {many}" + (f"; {unknown:,} of unknown age" if unknown else "")


def _waiting(summary: _Json) -> Iterator[tuple[str, int, int, bool]]:
    for name, one in summary["devices"].items():
        yield from ((name, row["count"], row["age_us"], row["at_least"]) for row in one.get("in_flight", ()))


def remarks(summary: _Json) -> list[str]:
    """The limits that are off, a line each; usual defaults, with what they do, are in the JSON alone."""
    lines = off(summary)
    if not lines:
        return []
    more = [f"and {len(lines) - MAX_REMARKS:,} more (--json has them)"] if len(lines) > MAX_REMARKS else []
    return ["limits that are off:", *(part for line in (*lines[:MAX_REMARKS], *more) for part in wrapped(line, "  "))]


def off(summary: _Json) -> list[str]:
    """A sentence for each limit that is off."""
    return [
        f"{name}{_model(one)}: {text}"
        for name, one in summary["devices"].items()
        for text in (*_of_device(one), *_of_settings(one))
    ]


def limit_meaning(summary: _Json) -> list[str]:
    """Sentences: what the words of these lines mean, where any of them was said."""
    every = [one["outstanding"] for one in summary["devices"].values() if "source" in one.get("outstanding", {})]
    told = [one for one in every if one["source"] != MEANS]
    lines: list[str] = []
    if len(told) < len(every):
        lines.append("mean in the driver, outstanding: of the intervals as printed; no distribution was measured")
    if told:
        lines.append("in the driver: shares of the time that the device had any there (busy)")
    if any("at_issue" in one for one in told):
        lines.append("at issue: requests that made it so many in the driver, themselves counted")
    if any("latency_by_depth" in one for one in told):
        lines.append("latency by outstanding: of I/Os that made it so many, queued ones counted, to completion")
    if any(one["source"] == "sysfs" for one in told):
        lines.append("depths by sysfs: looked at now and then, not at each I/O; nothing is known at issue")
    return lines


def _gauge(told: _Json) -> Iterator[str]:
    share = percent(told["time_share"][str(told["mode"])])
    said = f"outstanding at the windows' ends: max {told['max']}, mostly {told['mode']} ({share} of them)"
    yield from wrapped(said + _limit(told), "  ")


def _means(told: _Json) -> Iterator[str]:
    queue = told.get("queued")
    where = "in the driver" if queue else "outstanding, queued or in the driver"
    yield from wrapped(
        f"{where}: mean {told['mean']:.3g}, any for {part(told['busy'])} of the time{_limit(told)}", "  "
    )
    if queue:
        yield from wrapped(
            f"queued above it: mean {queue['mean']:.3g}, any for {part(queue['busy'])} of the time", "  "
        )
    if told.get("held_at") is not None:
        yield from wrapped(f"held at {told['held_at']:,} in the driver while more were queued", "  ")
    if "littles_law" in told:
        yield from wrapped(told["littles_law"]["sentence"], "  ")


def _counts(told: _Json) -> Iterator[str]:
    yield from wrapped(f"outstanding: max {told['max']:,}, for how long is not known{_limit(told)}", "  ")
    issued = told.get("at_issue", {})
    requests = sum(issued.values())
    if issued:
        yield f"    {'depth':>7}{'at issue':>10}{'share':>6}"
    shown = sorted(sorted(issued, key=lambda depth: -issued[depth])[:MAX_DEPTHS], key=int)
    for depth in shown:
        each = issued[depth] / requests
        yield f"    {int(depth):>7,}{count(issued[depth]):>10}{part(each):>6} {'#' * round(each * _DEPTH_BAR)}".rstrip()
    if len(issued) > len(shown):
        yield f"    and {len(issued) - len(shown):,} more depths"


def _depths(told: _Json) -> Iterator[str]:
    if told["busy_mode"] is None:
        yield from wrapped(f"outstanding: none was seen in the driver{_limit(told)}", "  ")
    else:
        yield from wrapped(f"in the driver: {_highest(told)}{_limit(told)}", "  ")
    queue = told.get("queued")
    if queue:
        said = "none was seen" if queue["busy_mode"] is None else _most_queued(queue)
        yield from wrapped(f"queued above it: {said}", "  ")
    if told.get("held_at") is not None:
        yield from wrapped(f"held at {told['held_at']:,} in the driver while more were queued", "  ")
    elif told.get("at_limit"):
        yield from wrapped(at_limit_said(told["limit"]), "  ")
    yield from _table(told)
    if told.get("latency_by_depth"):
        depths = sorted(told["latency_by_depth"].items(), key=lambda one: -one[1]["count"])[:MAX_DEPTHS]
        each = ", ".join(f"{depth}: {duration(one['mean_us'])}" for depth, one in sorted(depths, key=_number))
        yield from wrapped(f"mean latency by outstanding: {each}", "  ")
    if told["corrected"]:
        yield from wrapped(f"the probe's count was set right by {told['corrected']:,} requests that it missed", "  ")
    if "littles_law" in told:
        yield from wrapped(told["littles_law"]["sentence"], "  ")


def _highest(one: _Json) -> str:
    """Of the driver: how many at most and when, how many mostly."""
    share = percent(max(one["busy_time_share"].values()))
    seen = f" (reached by {one['max_at']})" if one.get("max_at") else ""
    return f"max {one['max']:,}{seen}, mostly {one['busy_mode']:,} ({share} of the busy time), mean {one['mean']:.3g}"


def _most_queued(one: _Json) -> str:
    """A queue is told with how often there is one: what is usual in it says nothing of that."""
    any_queued = sum(share for depth, share in one["time_share"].items() if depth != "0")
    share = percent(max(one["busy_time_share"].values()))
    usual = f"then mostly {one['busy_mode']:,} ({share})"
    return f"any for {part(any_queued)} of the time, max {one['max']:,}, {usual}; mean of all time {one['mean']:.3g}"


def _table(told: _Json) -> Iterator[str]:
    """The depths in the driver with their shares of the busy time, and how many requests made it so many."""
    busy, issued = told["busy_time_share"], told.get("at_issue", {})
    if len(busy) + len(issued) <= 1:
        return
    requests = sum(issued.values())
    shown = {depth for depth, _ in sorted(busy.items(), key=lambda one: -one[1])[:MAX_DEPTHS]} or set(issued)
    yield f"    {'depth':>7}{'busy':>6}" + (f"{'at issue':>10}" if issued else "")
    for depth in sorted(shown, key=int)[:MAX_DEPTHS]:
        share = busy.get(depth, 0.0)
        at_issue = f"{part(issued.get(depth, 0) / requests):>10}" if requests else ""
        yield f"    {int(depth):>7,}{part(share):>6}{at_issue} {'#' * round(share * _DEPTH_BAR)}".rstrip()
    if len(busy) > len(shown):
        yield f"    and {len(busy) - len(shown):,} more depths"


def _in_flight(one: _Json) -> Iterator[str]:
    rows = one.get("in_flight", [])
    for row in rows[:MAX_WAITING]:
        yield from wrapped(f"in flight at the end: {waiting(row)}", "  ")
    if len(rows) > MAX_WAITING:
        yield f"  and {len(rows) - MAX_WAITING:,} more rows"
    longest = longest_in_flight(one)
    if longest and not (rows and rows[0]["age_us"] >= longest["age_us"]):
        yield from wrapped(f"longest in flight: {waiting(longest)}, seen at {longest['seen'] or UNKNOWN}", "  ")


def longest_in_flight(one: _Json) -> _Json | None:
    """Return the longest that was ever in flight; None where a listed outlier took as long and says more of it."""
    longest: _Json | None = one.get("in_flight_longest")
    return longest if longest and longest["age_us"] > one.get("outlier_longest_us", 0) else None


def waiting(row: _Json) -> str:
    """`write 4,096 B sector 81,920 ora_lgwr/4211 for 30.2 s, queued, overtaken by 9`; `2 I/Os for at least 30 s`."""
    if "op" not in row:
        ios = "1 I/O" if row["count"] == 1 else f"{count(row['count'])} I/Os"
        return f"{ios} for at least {spelled(row['age_us'])}"
    parts = [row["op"], *row["flags"]]
    parts += [] if row["bytes"] is None else [f"{row['bytes']:,} B"]
    parts += [] if row["sector"] is None else [f"sector {row['sector']:,}"]
    parts += [f"{issuer(row)}/{UNKNOWN if row['pid'] is None else row['pid']}"]
    where = {True: ", in the driver", False: ", queued"}.get(row["in_driver"], "")
    passed = "" if row["overtaken_by"] is None else f", overtaken by {row['overtaken_by']:,}"
    return f"{' '.join(parts)} for {spelled(row['age_us'])}{where}{passed}"


def _limit(told: _Json) -> str:
    return f"; the driver takes {told['limit']:,} ({told['limit_source']})" if "limit" in told else ""


def _model(one: _Json) -> str:
    return f" ({one['model']})" if one.get("model") else ""


def _of_device(one: _Json) -> Iterator[str]:
    yield from (remark["text"] for remark in one.get("limits_remarks", []) if not remark["note"])


def _of_settings(one: _Json) -> Iterator[str]:
    for setting in one.get("limits", []):
        for remark in setting.get("remarks", []):
            if not remark["note"]:
                yield f"{setting['name']} {remark['text']} ({setting['source']})"


def _number(pair: tuple[str, Any]) -> int:
    return int(pair[0])


MAX_OUTLIERS = 5
MAX_ROWS = 12
"""Of a table: the rest is in the JSON."""
_BAR = 24
_TOLD_SHARE = 0.05
_FEW_US = 1


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


def tracing_trust(health: _Json) -> list[str]:
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
    said += "" if cpu is None else f"; tracer {cpu:.2g} % of a CPU"
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
    return [*lines, *_left_out(len(irqs)), "not its: runs that returned IRQ_NONE; waited: for handlers before it", ""]


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
        *_left_out(len(rows)),
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
        *_left_out(len(rows)),
        *([f"{left:,} tasks of other queues"] if left else []),
        "active, waiting: the most at a reading; mean run: of a task, no wait in it",
        "",
    ]


def _left_out(rows: int) -> list[str]:
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
        *tracing_trust(health),
        older(summary),
    ]
    return [one for one in said if one]


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
    """How many windows are wide because they were read late; nothing is missing in them."""
    found = [one["duration_s"] for one in summary.get("late", ())]
    many = f"{counted(len(found), 'window')} {'were' if len(found) > 1 else 'was'}"
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
    said = f"{counted(summary['intervals'], 'window')} of {summary['interval_s']:g} s"
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
    return [*_begins(summary), *_measured(summary), *_words(summary), *limit_meaning(summary), how]


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


MAX_MARKS = 20
MAX_SECTIONS = 40
MAX_NAMES = 12
"""Of a section."""
_MAIN = ("kernel", "tool", "clock", "module ", "device ")
"""How sections begin that a ticket needs, in this order; probes are known by their hashes in the JSON."""


def marks(summary: _Json) -> list[str]:
    """A line per mark, and what was set otherwise than at the start."""
    found = summary.get("marks", [])
    if not found:
        return []
    lines = ["marks:"]
    for one in found[:MAX_MARKS]:
        lines += wrapped(f"{one['time'] or UNKNOWN}  {one['text'] or '(no note)'}", "  ")
        lines += [line for said in changes(one["changed"]) for line in wrapped(said, "    ")]
    return [*lines, *_rest(len(found) - MAX_MARKS, "marks")]


def changes(changed: Mapping[str, Mapping[str, str]] | None) -> list[str]:
    """`device sda: scheduler is now none`, a sentence per section; none where nobody read them."""
    return [
        f"{section}: " + ", ".join(f"{name} is {f'now {value}' if value else 'gone'}" for name, value in values.items())
        for section, values in (changed or {}).items()
    ]


def settings(summary: _Json) -> list[str]:
    """A paragraph per section; sections that say the same of several devices are one."""
    found = summary.get("settings", {})
    told = sorted((one for one in found if _rank(one) < len(_MAIN)), key=lambda one: (_rank(one), one))
    lines = ["settings at the start:"] if told else []
    same: dict[str, list[str]] = {}
    for section in told:
        same.setdefault("; ".join(_named(found[section])), []).append(section)
    for said, sections in list(same.items())[:MAX_SECTIONS]:
        kind = sections[0].partition(" ")[0]
        names = ", ".join(one.partition(" ")[2] for one in sections)
        lines += wrapped(f"{kind} {names}".strip() + f": {said}", "  ")
    lines += _rest(len(same) - MAX_SECTIONS, "sections")
    others = len(found) - len(told)
    return lines + ([f"  and {others:,} sections that --json has"] if others and told else [])


def _named(values: Mapping[str, str]) -> Iterator[str]:
    for name, value in list(values.items())[:MAX_NAMES]:
        yield f"{name} {value}"
    if len(values) > MAX_NAMES:
        yield f"and {len(values) - MAX_NAMES:,} more"


def _rank(section: str) -> int:
    return next((at for at, begin in enumerate(_MAIN) if section.startswith(begin)), len(_MAIN))


def _rest(more: int, what: str) -> list[str]:
    return [f"  and {more:,} more {what} (--json has them)"] if more > 0 else []


MAX_FINDINGS = 20


def findings(summary: _Json) -> list[str]:
    """The most urgent first; `findings: none` and by what, where rules were asked; nothing where none was."""
    if "findings" not in summary:
        return []
    found = summary["findings"]
    if not found:
        return wrapped(f"findings: none ({judged(summary)})")
    lines = wrapped(f"findings ({judged(summary)}):")
    for one in found[:MAX_FINDINGS]:
        lines += _finding(one)
    return [*lines, *([f"  and {len(found) - MAX_FINDINGS:,} more"] if len(found) > MAX_FINDINGS else [])]


def judged(summary: _Json) -> str:
    """How they came about: `11 rules, minute by minute`, and which of them couldn't judge."""
    by = summary["findings_by"]
    who, why = who_judged(by["rules"], by["not_judged"], by.get("failed", {}))
    how = "every 5 s over the last minute" if by["judged_by"] == "windows" else "minute by minute"
    off = f"off by the config: {', '.join(by['rules_off'])}" if "rules_off" in by else ""
    left = f"{counted(by['episodes_left_out'], 'episode')} left out" if "episodes_left_out" in by else ""
    return "; ".join(filter(None, (f"{who}, {how}", why, off, left)))


def when(one: _Json) -> str:
    """From its first block to its last, and how often it came and went."""
    begin, end = one["begin"] or UNKNOWN, one["end"] or UNKNOWN
    span = f"at {begin}" if begin == end else f"{begin} to {end}"
    return span if one["episodes"] == 1 else f"{span}, {one['episodes']:,} times"


def fact_said(fact: _Json) -> str:
    """With how many samples it is of, where the words don't say so."""
    return sized(fact["text"], fact.get("samples"))


def shown_on(one: _Json) -> str:
    """The view that shows the evidence: `stages screen, sdc, 100 ms and more`."""
    view = one["view"]
    low, high = (spelled(view[name]) if name in view else "" for name in ("low_us", "high_us"))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    parts = (f"{view.get('screen', '')} screen", view.get("device"), view.get("op"), region)
    return ", ".join(part for part in parts if part)


def _finding(one: _Json) -> Iterator[str]:
    device = f"  {one['device']}" if one["device"] else ""
    yield from wrapped(f"{one['severity'].upper()}  {one['id']}{device}  {when(one)}", "  ")
    yield from wrapped(f"{one['summary']}.", "    ")
    for fact in one["evidence"].values():
        yield from wrapped(f"- {fact_said(fact)}", "    ")
    yield from wrapped(f"shown on: {shown_on(one)}", "    ")
    for step in one["next_steps"]:
        yield from wrapped(f"next: {step.get('what', step['text'])} (risk: {step['risk']})", "    ")
        for command in step.get("commands", ()):  # on a line of its own, so that it can be pasted
            yield f"        {command['line']}{'' if command['ran'] else NOT_RUN}"
    yield from wrapped(f"refuted by: {one['refuted_by']}", "    ")
