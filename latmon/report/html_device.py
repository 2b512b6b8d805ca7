"""Device sections and tables of the HTML report, made of the summary.

Pictures that need more than the summary are arguments. A section that was not measured is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from latmon.model.frame import UNACCOUNTED
from latmon.model.inflight import MEANS, PROBE, SYSFS
from latmon.model.stages import COLUMNS, by_column
from latmon.report import outliers as outlier_words
from latmon.report import outstanding, sections
from latmon.report.devices import LATENCY, NOT_PASSED, includes_of, latency_rows, stages_without, volume
from latmon.report.html_charts import depth_bars, ribbon, stage_bars, swatches
from latmon.report.html_elements import (
    cells,
    column_table,
    figure,
    left_out,
    listed,
    name,
    number,
    share,
    table,
    text,
    time_of,
)
from latmon.report.interrupts import host_tables
from latmon.report.sections import changes
from latmon.support.units import UNKNOWN, spelled
from latmon.views.units import off_total, until

_COUNTED_BY = {
    PROBE: "the probe, at each I/O",
    SYSFS: "gauges of the kernel, sampled",
    MEANS: "means of each interval: no distribution was measured",
}
MAX_OUTLIERS = 50
MAX_ROWS = 60
MAX_SETTINGS = 400
"""Sections of settings; the JSON report has all."""
MAX_DEPTHS = 24
MAX_WAITING = 20
_Json = Mapping[str, Any]
_WORDS = ("kind", "model", "driver", "controller", "serial", "label")


class Pictures(NamedTuple):
    """SVG pictures of a device, with the caption of the heat map."""

    heat_map: str
    map_text: str
    histogram: str


def section(device: str, summary: _Json, drawn: Pictures, anchor: str) -> str:
    """Return a device's section of the page, as HTML."""
    one = summary["devices"][device]
    pieces = [
        f'<section class="device" id="{anchor}"><h2>{name(device)}</h2>',
        _identity(one),
        _reported(device, one),
        figure(drawn.heat_map, drawn.map_text, "map"),
        _ops(one, summary["duration_s"], summary.get("latency_from", "")),
        figure(drawn.histogram, "I/Os by latency, all operations together; both axes are logarithmic."),
        _stages(device, one),
        *_depths(device, one),
        _in_flight(one),
        _limits(one),
        "</section>",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _identity(one: _Json) -> str:
    sentences = [text(one[word]) for word in _WORDS if one.get(word)]
    sentences += [f"{one['major']}:{one['minor']}"] if "major" in one else []
    sentences += ["on " + ", ".join(name(member) for member in one["members"])] if one.get("members") else []
    found = f'<p class="what">{" &middot; ".join(sentences)}</p>\n' if sentences else ""
    if not one.get("timed", True):
        found += f"<p>Not timed by the always-on probe: {sections.why_untimed(one)}.</p>\n"
    if "threshold_us" in one:
        above = sum(one.get("above", {}).values())
        found += f"<p>{number(above)} I/Os were above the threshold of {time_of(one['threshold_us'])}.</p>\n"
    return found


def _reported(device: str, one: _Json) -> str:
    """Return the sentences on the tail, Little's law and the issue order."""
    sentences = [sections.tail_sentence(device, one)]
    sentences.append(one.get("outstanding", {}).get("littles_law", {}).get("sentence", ""))
    order = one.get("issue_order", {})
    sentences.append(f"issue order: {order['summary']}" if order.get("ascending") is not None else "")
    return "".join(f'<p class="key">{text(each)}</p>\n' for each in sentences if each)


def _ops(one: _Json, seconds: float, begins: str) -> str:
    if not one["ops"]:
        return "<p>No I/O completed.</p>"
    rows = [row for op, figures in one["ops"].items() for row in _op(op, figures, seconds, begins)]
    caption = "Latency by operation and stage; each time to the microsecond, as in the JSON report"
    absent = (_absent(why, stages) for why, stages in stages_without(one["ops"]).items())
    return table(caption, ("", *(column.title for column in LATENCY)), rows) + listed(absent, "small")


def _op(op: str, one: _Json, seconds: float, begins: str) -> Iterator[tuple[str, ...]]:
    """Yield a row of the op, then one for each of its stages."""
    named = {"total": "", "of traced": " traced"}
    head = f'<b>{text(op)}</b> <br><span class="small">{volume(one, seconds)}</span>'
    if not any(name in one for name in ("latency_us", "of")):
        yield (head, *[""] * len(LATENCY))
        head = ""
    for row in latency_rows(one, begins):
        is_total = row["name"] in named
        caption = (head or f"{text(op)}{named[row['name']]}") if is_total else f"&emsp;{text(row['name'])}"
        yield (caption, *cells(LATENCY, row))
        head = ""


def _absent(why: str, stages: list[str]) -> str:
    word = "n/a" if why.startswith(NOT_PASSED) else "not measured"
    return f"{text(', '.join(stages))}: {word}: {text(why.removeprefix(NOT_PASSED))}"


def _stages(device: str, one: _Json) -> str:
    """Return the stages' shares of the time of all I/Os, and of the slow ones."""
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
    """Return each stage's share of the time of all ops, by its column's name; empty if a sum is unknown."""
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


def _depths(device: str, one: _Json) -> Iterator[str]:
    if "outstanding" not in one:
        return
    reported = one["outstanding"]
    limit = reported.get("limit")
    yield f"<h3>Outstanding I/O</h3>\n{listed(map(text, outstanding.sentences(reported)))}"
    if "source" in reported:
        yield f'<p class="small">Counted by {_COUNTED_BY.get(reported["source"], _COUNTED_BY[SYSFS])}.</p>'
    driver = {
        int(depth): part for depth, part in reported.get("busy_time_share", reported.get("time_share", {})).items()
    }
    of = "of the time with any there" if "busy_time_share" in reported else "of the ends of the windows"
    yield figure(depth_bars(device, driver, limit, "in the driver"), f"In the driver: share {of}, by number of I/Os.")
    queued = {int(depth): part for depth, part in reported.get("queued", {}).get("busy_time_share", {}).items()}
    drawn = depth_bars(device, queued, None, "queued above it")
    yield figure(drawn, "Queued above the driver: share of the time with any there.")
    yield _depth_table(reported)


def _depth_table(reported: _Json) -> str:
    busy, issued, took = (
        reported.get("busy_time_share", {}),
        reported.get("at_issue", {}),
        reported.get("latency_by_depth", {}),
    )
    depths = sorted({int(depth) for depth in (*busy, *issued, *took)})
    if not depths:
        return ""
    shown = depths[:MAX_DEPTHS]
    columns = [("depth", [number(at) for at in shown])]
    columns += [("busy time", [share(busy.get(str(at), 0.0)) for at in shown])] * bool(busy)
    columns += [("at issue", [number(issued.get(str(at), 0)) for at in shown])] * bool(issued)
    means = [time_of(took[str(at)]["mean_us"]) if str(at) in took else "" for at in shown]
    columns += [("mean latency of I/Os by depth at their start", means)] * bool(took)
    more = f"; {len(depths) - MAX_DEPTHS:,} more depths are in the JSON report" if len(depths) > MAX_DEPTHS else ""
    caption = f"I/Os in the driver, and latency by all outstanding{more}"
    rows = zip(*(cells for _, cells in columns), strict=True)
    drawn = table(caption, [head for head, _ in columns], rows, kind="narrow")
    return f"<details open><summary>The same in numbers</summary>{drawn}</details>"


def _in_flight(one: _Json) -> str:
    rows = [text(outstanding.waiting(row)) for row in one.get("in_flight", [])]
    markup = listed(rows[:MAX_WAITING]) + (
        f"<p>and {len(rows) - MAX_WAITING:,} more</p>" if len(rows) > MAX_WAITING else ""
    )
    head = '<h3 class="bad">In flight at the end</h3>\n' if rows else ""
    longest = outstanding.longest_in_flight(one)
    if longest:
        seen = text(longest["seen"] or "a time unknown")
        markup += f"<p>Longest in flight: {text(outstanding.waiting(longest))}, seen at {seen}.</p>"
    return head + markup


def _limits(one: _Json) -> str:
    """Return the settings as configured, and which limits are off."""
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
    caption = text(each["text"])
    return caption if each["note"] else f'<span class="bad">off: {caption}</span>'


def outliers(summary: _Json) -> str:
    """Return the section of the longest outliers, each with its stages as a ribbon and as a sum."""
    every = summary.get("outliers", [])
    if not every:
        return ""
    of = outlier_words.counts(summary)
    markup = (
        f"<p>{number(of.above)} I/Os were above their threshold; {number(of.recorded)} of them were recorded one by "
        f"one, {number(of.left_out)} were left out by the rate limit. "
        f"The longest {min(MAX_OUTLIERS, len(every))} follow.</p>\n"
    )
    passed = {name for one in every[:MAX_OUTLIERS] for name in _parts(one)}
    markup += listed(swatches([part for part in COLUMNS if part in passed]), "parts")
    rows = "".join(_outlier(at, one) for at, one in enumerate(every[:MAX_OUTLIERS], 1))
    return f'<section class="page" id="outliers"><h2>Outliers</h2>\n{markup}{rows}</section>\n'


def _outlier(at: int, one: _Json) -> str:
    again = f" x{one['repeats']:,}" if one["repeats"] > 1 else ""
    waits = "".join(f"<p>{name(sentence)}</p>" for sentence in outlier_words.waits(one))
    return (
        f'<div class="outlier"><p><b>{at}. {name(one["device"])} {time_of(one["total_us"])}</b> '
        f"{text(until(one['stages_us']))}{again}: {text(', '.join(outlier_words.request(one)))}, "
        f"by {name(outlier_words.issuer(one))}, began {text(one['time'] or UNKNOWN)}</p>\n"
        f"{ribbon(_parts(one), one['unaccounted_us'], one['total_us'])}\n"
        f'<p>{_sum(one)}</p>\n{waits}<p class="small">{text("; ".join(outlier_words.circumstances(one)))}</p></div>\n'
    )


def _parts(one: _Json) -> dict[str, int]:
    """Return the outlier's stages by their names in a column."""
    return by_column(one["stages_us"], one["includes"])


def _sum(one: _Json) -> str:
    """Return `queue 3 us + hba 85 us + unaccounted 2 us = 90 us`."""
    found = outlier_words.sum_of(one)
    if found is None:
        return outlier_words.NOT_TRACED
    parts = " + ".join(f"{text(stage)} {time_of(us)}" for stage, us in found.parts.items())
    return ", ".join(filter(None, (f"{parts} = {time_of(found.whole)}", off_total(found.missing))))


def interrupts(summary: _Json) -> str:
    """Return the tables of softirqs, handlers, wake-ups and task queues."""
    found = "".join(column_table(one, MAX_ROWS) for one in host_tables(summary))
    return f'<section id="interrupts"><h2>Interrupts and threads</h2>\n{found}</section>\n' if found else ""


def gaps(summary: _Json) -> str:
    """Return the table of gaps."""
    rows = [(text(one["start"] or UNKNOWN), f"{one['duration_s']:,} s", text(one["reason"])) for one in summary["gaps"]]
    caption = f"Gaps{_rest(len(rows))}"
    return table(caption, ("from", "for", "because"), rows[:MAX_ROWS], words=(0, 2)) if rows else ""


def marks(summary: _Json) -> str:
    """Return the table of marks, numbered as on the maps."""
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
    """Return all settings in the capture's header, unfolded because a folded part is not printed."""
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


def _rest(rows: int) -> str:
    return left_out(rows, MAX_ROWS)
