"""Device sections and host tables of the HTML report.

Reads the device's part of the summary; pictures that need more than that are given to it.

Reads the summary alone. Each is an empty string where nobody measured it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from latmon.analysis.priorities import scales
from latmon.model.frame import UNACCOUNTED
from latmon.model.inflight import MEANS, PROBE, SYSFS
from latmon.model.stages import COLUMNS, by_column, called
from latmon.report import sections
from latmon.report.devices import NOT_PASSED, includes_of
from latmon.report.formatting import QUANTILES
from latmon.report.html_charts import depth_bars, ribbon, stage_bars, swatches
from latmon.report.html_elements import (
    facts,
    figure,
    listed,
    maximum,
    name,
    number,
    quantile,
    share,
    table,
    text,
    time_of,
)
from latmon.report.sections import changes
from latmon.report.totals import issuer
from latmon.support.units import UNKNOWN, rate, spelled
from latmon.views.units import until

MAX_DEPTHS = 24
MAX_WAITING = 20
_Json = Mapping[str, Any]
_WORDS = ("kind", "model", "driver", "controller", "serial", "label")


class Drawn(NamedTuple):
    """A device's pictures, and what they say of themselves."""

    heat_map: str
    map_said: str
    histogram: str


def section(device: str, one: _Json, seconds: float, drawn: Drawn, anchor: str) -> str:
    """The whole of it, as HTML."""
    pieces = [
        f'<section class="device" id="{anchor}"><h2>{name(device)}</h2>',
        _identity(one),
        _told(device, one),
        figure(drawn.heat_map, drawn.map_said, "map"),
        _ops(one, seconds),
        figure(drawn.histogram, "I/Os by latency, all operations together; both axes are logarithmic."),
        _stages(device, one),
        *_outstanding(device, one),
        _in_flight(one),
        _limits(one),
        "</section>",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _identity(one: _Json) -> str:
    said = [text(one[word]) for word in _WORDS if one.get(word)]
    said += [f"{one['major']}:{one['minor']}"] if "major" in one else []
    said += ["on " + ", ".join(name(member) for member in one["members"])] if one.get("members") else []
    found = f'<p class="what">{" &middot; ".join(said)}</p>\n' if said else ""
    if not one.get("timed", True):
        found += f"<p>Not timed by the always-on probe: {sections.why_untimed(one)}.</p>\n"
    if "threshold_us" in one:
        above = sum(one.get("above", {}).values())
        found += f"<p>{number(above)} I/Os were above the threshold of {time_of(one['threshold_us'])}.</p>\n"
    return found


def _told(device: str, one: _Json) -> str:
    """What there is to say in a sentence: the tail, the law, the issue order."""
    said = [sections.tail_sentence(device, one)]
    said.append(one.get("outstanding", {}).get("littles_law", {}).get("sentence", ""))
    order = one.get("issue_order", {})
    said.append(f"issue order: {order['summary']}" if order.get("ascending") is not None else "")
    return "".join(f'<p class="told">{text(each)}</p>\n' for each in said if each)


def _ops(one: _Json, seconds: float) -> str:
    if not one["ops"]:
        return "<p>No I/O completed.</p>"
    rows = [row for op, figures in one["ops"].items() for row in _op(op, figures, seconds)]
    heads = ("", "timed", "mean", *QUANTILES, "max", "share")
    said = "Latency by operation and stage; each time to the microsecond, as in the JSON report"
    return table(said, heads, rows) + listed(_absent(one["ops"]), "small")


def _op(op: str, one: _Json, seconds: float) -> Iterator[tuple[str, ...]]:
    """A row of the op, then one for each of its stages."""
    latency, traced = one.get("latency_us"), one.get("of", {}).get("latency_us")
    base = traced or latency
    whole = (base["mean"] or 0) * base["count"] if base else 0
    said = f"<b>{text(op)}</b> {_volume(one, seconds)}"
    if latency or not traced:
        yield _row(said, latency)
    if traced and (not latency or traced != {**latency, "sum": traced.get("sum")}):
        yield _row(f"{text(op)} traced" if latency else said, traced)
    stages = one["stages"] | ({UNACCOUNTED: one["unaccounted"]} if UNACCOUNTED in one else {})
    for stage, figures in stages.items():
        known = whole and figures["sum"] is not None and stage != "resume"
        of_all = share(min(1.0, figures["sum"] / whole)) if known else ""
        name_of = called(stage, figures.get("includes", ())).column
        yield _row(f"&emsp;{text(name_of)}", figures, of_all)
    kernel = one.get("kernel", {})
    if not base and "mean_us" in kernel:
        blank = ("",) * (len(QUANTILES) + 2)
        yield ("&emsp;by the clock of the kernel", number(kernel["count"]), time_of(kernel["mean_us"]), *blank)


def _row(head: str, q: _Json | None, of_all: str = "") -> tuple[str, ...]:
    if q is None:
        return (head, *[""] * (len(QUANTILES) + 4))
    return (head, number(q["count"]), time_of(q["mean"]), *(quantile(q, at) for at in QUANTILES), maximum(q), of_all)


def _volume(one: _Json, seconds: float) -> str:
    said = [f"{one['count']:,}"]
    if seconds:
        said.append(f"{rate(one['count'] / seconds)}/s")
        said += [f"{rate(one['bytes'] / seconds)}B/s"] if one.get("bytes") else []
    kernel = one.get("kernel")
    said += [f"{one['untimed']:,} not timed"] if "untimed" in one else []
    said += [f"kernel: {kernel['count']:,}"] if kernel and kernel["count"] != one["count"] else []
    return f'<br><span class="small">{"; ".join(said)}</span>'


def _absent(ops: _Json) -> Iterator[str]:
    """Stages without a number, and why."""
    reasons: dict[str, list[str]] = {}
    for stage, why in {stage: why for op in ops.values() for stage, why in op["stages_absent"].items()}.items():
        if all(stage not in op["stages"] for op in ops.values()):
            word = "n/a: " if why.startswith(NOT_PASSED) else "not measured: "
            reasons.setdefault(word + why.removeprefix(NOT_PASSED), []).append(stage)
    yield from (f"{text(', '.join(stages))}: {text(why)}" for why, stages in reasons.items())


def _stages(device: str, one: _Json) -> str:
    """All I/O beside the slow ones."""
    whole = _shares(one["ops"])
    tail = one.get("tail")
    rows: list[tuple[str, Mapping[str, float]]] = [("all I/O", whole)]
    if tail:
        rows.append((f"above {spelled(tail['cut_us'])}", by_column(tail["share"], includes_of(one["ops"]))))
    drawn = stage_bars(device, rows) if whole else ""
    if not drawn:
        return ""
    seen = [part for part in COLUMNS if any(part in parts for _, parts in rows)]
    legend = listed(swatches(seen), "parts")
    of = "traced" if any("of" in op for op in one["ops"].values()) else "timed"
    ios = f"; {tail['count']:,} I/Os are above {time_of(tail['cut_us'])}" if tail else ""
    heads = ("stage", *(text(row) for row, _ in rows))
    figures = table(
        "Share of the time", heads, [(text(p), *(share(of.get(p)) for _, of in rows)) for p in seen], kind="narrow"
    )
    pictured = figure(drawn, f"Parts of the summed time of the {of} I/Os{ios}.")
    return f"<h3>Where the time goes</h3>\n{pictured}{legend}{figures}"


def _shares(ops: _Json) -> dict[str, float]:
    """Return each stage's part of the time of all ops, by its column's name; empty where a sum isn't known."""
    sums: dict[str, int] = {}
    for op in ops.values():
        stages = op["stages"] | ({UNACCOUNTED: op["unaccounted"]} if UNACCOUNTED in op else {})
        for stage, figures in by_column(stages, includes_of({"": op})).items():
            if figures["sum"] is None:
                return {}
            if stage != "resume":
                sums[stage] = sums.get(stage, 0) + figures["sum"]
    whole = sum(sums.values())
    return {stage: us / whole for stage, us in sums.items()} if whole else {}


def _outstanding(device: str, one: _Json) -> Iterator[str]:
    if "outstanding" not in one:
        return
    told = one["outstanding"]
    limit = told.get("limit")
    yield f"<h3>Outstanding I/O</h3>\n{facts(_depth_facts(told))}"
    driver = {int(depth): part for depth, part in told.get("busy_time_share", told.get("time_share", {})).items()}
    of = "of the time with any there" if "busy_time_share" in told else "of the ends of the windows"
    yield figure(depth_bars(device, driver, limit, "in the driver"), f"In the driver: share {of}, by number of I/Os.")
    queued = {int(depth): part for depth, part in told.get("queued", {}).get("busy_time_share", {}).items()}
    drawn = depth_bars(device, queued, None, "queued above it")
    yield figure(drawn, "Queued above the driver: share of the time with any there.")
    yield _depth_table(told)


_COUNTED_BY = {
    PROBE: "the probe, at each I/O",
    SYSFS: "gauges of the kernel, now and then",
    MEANS: "means of each interval: no distribution was measured",
}


def _depth_facts(told: _Json) -> Iterator[tuple[str, str]]:
    at = f", reached by {text(told['max_at'])}" if told.get("max_at") else ""
    if "max" in told:
        yield "At most", f"{number(told['max'])}{at}"
    if told.get("mean") is not None:
        yield "Mean", f"{told['mean']:,}"
    if "mode" in told:
        usual = told.get("busy_mode", told["mode"])
        yield "Mostly", number(usual) + (" while there is any" if "busy_mode" in told else "")
    if "limit" in told:
        yield "The driver takes", f"{number(told['limit'])} ({text(told['limit_source'])})"
    if told.get("held_at") is not None:
        yield "Held", f'<span class="bad">at {number(told["held_at"])} in the driver while more were queued</span>'
    elif told.get("at_limit"):
        yield "At its limit", '<span class="bad">for most of the busy time</span>'
    if "source" in told:
        yield "Counted by", _COUNTED_BY.get(told["source"], _COUNTED_BY[SYSFS])


def _depth_table(told: _Json) -> str:
    busy, issued, took = told.get("busy_time_share", {}), told.get("at_issue", {}), told.get("latency_by_depth", {})
    depths = sorted({int(depth) for depth in (*busy, *issued, *took)})
    if not depths:
        return ""
    shown = depths[:MAX_DEPTHS]
    columns = [("depth", [number(at) for at in shown])]
    columns += [("busy time", [share(busy.get(str(at), 0.0)) for at in shown])] * bool(busy)
    columns += [("at issue", [number(issued.get(str(at), 0)) for at in shown])] * bool(issued)
    means = [time_of(took[str(at)]["mean_us"]) if str(at) in took else "" for at in shown]
    columns += [("mean latency of those that made it so many", means)] * bool(took)
    more = f"; {len(depths) - MAX_DEPTHS:,} more depths are in the JSON report" if len(depths) > MAX_DEPTHS else ""
    said = f"I/Os in the driver, and latency by all outstanding{more}"
    rows = zip(*(cells for _, cells in columns), strict=True)
    drawn = table(said, [head for head, _ in columns], rows, kind="narrow")
    return f"<details open><summary>The same in numbers</summary>{drawn}</details>"


def _in_flight(one: _Json) -> str:
    rows = [text(sections.waiting(row)) for row in one.get("in_flight", [])]
    said = listed(rows[:MAX_WAITING]) + (
        f"<p>and {len(rows) - MAX_WAITING:,} more</p>" if len(rows) > MAX_WAITING else ""
    )
    head = '<h3 class="bad">In flight at the end</h3>\n' if rows else ""
    longest = sections.longest_in_flight(one)
    if longest:
        seen = text(longest["seen"] or "a time unknown")
        said += f"<p>Longest in flight: {text(sections.waiting(longest))}, seen at {seen}.</p>"
    return head + said


def _limits(one: _Json) -> str:
    """The settings as configured, with what is off."""
    rows = []
    for setting in one.get("limits", []):
        remarks = "; ".join(_remark(each) for each in setting.get("remarks", []))
        rows.append((text(setting["name"]), text(setting["value"]), remarks, text(setting["source"])))
    whole = listed(_remark(each) for each in one.get("limits_remarks", []))
    if not rows and not whole:
        return ""
    heads = ("setting", "value", "remark", "read from")
    return f"<h3>Limits</h3>\n{whole}" + table("As configured", heads, rows, words=(0, 2, 3)) * bool(rows)


def _remark(each: _Json) -> str:
    said = text(each["text"])
    return said if each["note"] else f'<span class="bad">off: {said}</span>'


MAX_OUTLIERS = 50
MAX_ROWS = 60
MAX_SETTINGS = 400
"""Sections; the JSON has all."""
_Q = ("p50", "p99", "p99.9")


def outliers(summary: _Json) -> str:
    """The worst, each with its way as a ribbon and as a sum."""
    every = summary.get("outliers", [])
    if not every:
        return ""
    above = sum(sum(one.get("above", {}).values()) for one in summary["devices"].values())
    told = sum(one["repeats"] for one in every) + summary.get("outliers_left_out", 0)
    left = summary["health"].get("suppressed", 0)
    said = (
        f"<p>{number(above)} I/Os were above their threshold; {number(told)} of them were recorded one by one, "
        f"{number(left)} were left out by the rate limit. The longest {min(MAX_OUTLIERS, len(every))} follow.</p>\n"
    )
    passed = {name for one in every[:MAX_OUTLIERS] for name in _parts(one)}
    said += listed(swatches([part for part in COLUMNS if part in passed]), "parts")
    rows = "".join(_outlier(at, one) for at, one in enumerate(every[:MAX_OUTLIERS], 1))
    return f'<section class="page" id="outliers"><h2>Outliers</h2>\n{said}{rows}</section>\n'


def _outlier(at: int, one: _Json) -> str:
    what = " ".join(text(each) for each in (one["op"], *one["flags"]))
    where = [] if one["bytes"] is None else [f"{one['bytes']:,} B"]
    where += [] if one["sector"] is None else [f"sector {one['sector']:,}"]
    who = f"{name(issuer(one))}/{UNKNOWN if one['pid'] is None else one['pid']}"
    again = f" x{one['repeats']:,}" if one["repeats"] > 1 else ""
    facts = [f"CPU {_known(one['cpu_issue'])} to {_known(one['cpu_complete'])}"]
    facts += [
        f"{_known(one['outstanding_at_issue'])} in flight at issue",
        f"overtaken by {_known(one['overtaken_by'])}",
    ]
    facts += [text(one["path"])] if one["path"] else []
    return (
        f'<div class="outlier"><p><b>{at}. {name(one["device"])} {time_of(one["total_us"])}</b> '
        f"{text(until(one['stages_us']))}{again}: {', '.join([what, *where])}, by {who}, "
        f"began {text(one['time'] or UNKNOWN)}</p>\n"
        f"{ribbon(_parts(one), one['unaccounted_us'], one['total_us'])}\n"
        f"<p>{_sum(one)}</p>\n{''.join(f'<p>{said}</p>' for said in _waits(one))}"
        f'<p class="small">{"; ".join(facts)}</p></div>\n'
    )


def _parts(one: _Json) -> dict[str, int]:
    """Return the outlier's stages by their names in a column."""
    return by_column(one["stages_us"], one["includes"])


def _sum(one: _Json) -> str:
    """`queue 3 us + hba 85 us + unaccounted 2 us = 90 us`."""
    parts = [f"{text(stage)} {time_of(us)}" for stage, us in _parts(one).items()]
    if not parts:
        return "stages were not traced then"
    whole = sum(one["stages_us"].values()) + one["unaccounted_us"]
    rest = "" if whole == one["total_us"] else f", {time_of(one['total_us'] - whole)} less than the total"
    return " + ".join([*parts, f"{UNACCOUNTED} {time_of(one['unaccounted_us'])}"]) + f" = {time_of(whole)}{rest}"


def _waits(one: _Json) -> Iterator[str]:
    for wait in one["waits"]:
        instead = f"; {name(wait['instead'])} ran instead" if wait["instead"] else ""
        yield (
            f"{text(wait['stage'])}: {name(wait['thread'])} (prio {wait['priority']}) was woken and ran "
            f"{time_of(wait['delay_us'])} later{instead}"
        )


def interrupts(summary: _Json) -> str:
    """Softirqs, handlers, wake-ups and task queues."""
    found = _softirqs(summary.get("softirqs", {})) + _irqs(summary.get("irqs", [])) + _wakeups(summary)
    found += _taskqs(summary)
    return f'<section id="interrupts"><h2>Interrupts and threads</h2>\n{found}</section>\n' if found else ""


def _softirqs(found: _Json) -> str:
    rows = [
        (name(vector), number(one["count"]), *_delays(one["delay_us"]), *_delays(one["run_us"]), _named(one["ran_in"]))
        for vector, one in found.items()
    ]
    delay, run = ([f"{what} {of}" for of in (*_Q, "max")] for what in ("delay", "run"))
    said = "Softirqs; delay: from the raise to the entry"
    return table(said, ("vector", "runs", *delay, *run, "ran in"), rows, words=(0, 10)) if rows else ""


def _irqs(found: list[_Json]) -> str:
    rows = [
        (
            name(one["handler"]),
            UNKNOWN if one["irq"] is None else number(one["irq"]),
            number(one["count"]),
            *_delays(one["run_us"]),
            time_of(one["before_us"]),
            _named(one["returned"]),
            text(one["device"] or UNKNOWN),
            ", ".join(name(each) for each in one["shared_with"]),
        )
        for one in sorted(found, key=lambda one: -(one["run_us"]["sum"] or 0))[:MAX_ROWS]
    ]
    heads = ("handler", "irq", "runs", *_Q, "max", "waited", "returned", "device", "shared with")
    said = f"Interrupt handlers; waited: for handlers before it on its vector{_rest(len(found))}"
    return table(said, heads, rows, words=(0, 8, 9, 10)) if rows else ""


def _wakeups(summary: _Json) -> str:
    found = summary.get("wakeups", [])
    rows = [
        (
            f"{name(one['thread'])}/{UNKNOWN if one['pid'] is None else one['pid']}",
            f"{text(one['policy'] or UNKNOWN)} {one['priority']}",
            number(one["count"]),
            *_delays(one["delay_us"]),
            _named(one["instead"]),
        )
        for one in found[:MAX_ROWS]
    ]
    left = summary.get("wakeups_left_out", 0)
    more = _rest(len(found)) + (f"; {left:,} wake-ups of other threads" if left else "")
    heads = ("thread", "policy, prio", "wake-ups", *_Q, "max", "ran instead")
    said = f"From woken to running; {scales(summary['host']['kernel'])[0]}{more}"
    return table(said, heads, rows, words=(0, 1, 7)) if rows else ""


def _taskqs(summary: _Json) -> str:
    found = summary.get("taskqs", [])
    rows = []
    for one in found[:MAX_ROWS]:
        loops = "permanent loops, not queue items" if one["permanent_loops"] else ""
        numbers = (number(one[key]) for key in ("priority", "threads", "active_max", "waiting_max", "most", "executed"))
        rows.append((name(f"{one['name']} {one['instance']}"), *numbers, time_of(one["mean_run_us"]), loops))
    heads = ("task queue", "prio", "threads", "active", "waiting", "most", "executed", "mean run", "")
    return table(f"Task queues{_rest(len(found))}", heads, rows, words=(0, 8)) if rows else ""


def gaps(summary: _Json) -> str:
    """Where time is missing."""
    rows = [(text(one["start"] or UNKNOWN), f"{one['duration_s']:,} s", text(one["reason"])) for one in summary["gaps"]]
    said = f"Gaps{_rest(len(rows))}"
    return table(said, ("from", "for", "because"), rows[:MAX_ROWS], words=(0, 2)) if rows else ""


def marks(summary: _Json) -> str:
    """Numbered as on the maps."""
    rows = [
        (
            str(at),
            text(one["time"] or UNKNOWN),
            name(one["text"] or "(no note)"),
            "; ".join(map(text, changes(one["changed"]))),
        )
        for at, one in enumerate(summary.get("marks", []), 1)
    ]
    heads = ("mark", "at", "note", "set otherwise than at the start")
    return table(f"Marks{_rest(len(rows))}", heads, rows[:MAX_ROWS], words=(0, 1, 2, 3)) if rows else ""


def settings(summary: _Json) -> str:
    """Every setting that the capture's header tells; open, for a closed one is missing on paper."""
    found = summary.get("settings", {})
    tables = [
        table(text(section), ("name", "value"), [(text(k), text(v)) for k, v in values.items()], words=(0, 1))
        for section, values in list(found.items())[:MAX_SETTINGS]
    ]
    if not tables:
        return ""
    names = sum(map(len, found.values()))
    head = f"<summary>All {number(names)} settings, as they were when the capture began</summary>"
    rest = f"<p>and {len(found) - MAX_SETTINGS:,} more sections</p>" if len(found) > MAX_SETTINGS else ""
    folded = f"<details open>{head}\n{''.join(tables)}{rest}</details>"
    return f'<section id="settings"><h2>Configuration</h2>\n{folded}</section>\n'


def _delays(q: _Json) -> tuple[str, ...]:
    return (*(quantile(q, each) for each in _Q), maximum(q))


def _named(counts: Mapping[str, int]) -> str:
    whole = sum(counts.values()) or 1
    most = sorted(counts.items(), key=lambda one: -one[1])[:4]
    return ", ".join(f"{name(each)} {share(n / whole)}" for each, n in most)


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _rest(rows: int) -> str:
    return f"; the first {MAX_ROWS} of {rows:,}, the JSON report has all" if rows > MAX_ROWS else ""
