"""The report and the comparison of two captures as one HTML file each: no script, nothing from outside, prints on A4.

First the report's page and its order, then the section of each device, then the tables of the whole capture. Numbers
are from the summary, pictures from the totals and the columns of time. A section that was not measured is empty.

`latmon diff --html` has the text's paragraphs in their order, then the distributions of A and B below each other on the
same axes; of a sweep it has a table and a picture of each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from latmon import __version__
from latmon.diff import output
from latmon.diff.comparison import COLUMNS as SWEEP_COLUMNS
from latmon.diff.comparison import SweepTable
from latmon.diff.report import SCHEMA as DIFF_SCHEMA
from latmon.diff.report import Change, DiffReport, PairReport, SweepReport
from latmon.findings.rule import NOT_RUN
from latmon.model.frame import UNACCOUNTED
from latmon.model.histogram import BITS, merge
from latmon.model.inflight import MEANS, PROBE, SYSFS
from latmon.model.measurements import LATENCIES
from latmon.model.stages import COLUMNS, by_column
from latmon.report import outliers as outlier_words
from latmon.report import outstanding, sections
from latmon.report.devices import LATENCY, NOT_MEASURED, NOT_PASSED, includes_of, latency_rows, stages_without, volume
from latmon.report.formatting import per_second
from latmon.report.html_charts import (
    MapColumns,
    MapFrame,
    Note,
    depth_bars,
    heat_map,
    histogram,
    map_frame,
    ribbon,
    stage_bars,
    swatches,
    sweep_chart,
)
from latmon.report.html_elements import (
    Look,
    cells,
    column_table,
    document,
    facts,
    figure,
    left_out,
    listed,
    look,
    maximum,
    name,
    number,
    share,
    table,
    text,
    time_of,
)
from latmon.report.interrupts import cgroup_table, host_tables, process_table
from latmon.report.outliers import file_table, operation_table
from latmon.report.sections import changes, evaluated, fact_text, named, shown_on, when
from latmon.report.totals import Totals
from latmon.support import streams
from latmon.support.errors import EXIT_DONE
from latmon.support.units import UNKNOWN, spelled
from latmon.views.units import off_total, until

MAX_SECTIONS = 64
"""Devices with a section: those with most I/Os; the overview has all."""
MAX_NOTES = 200
"""Marks, and gaps, on a map."""
_TIERS = {
    "A": "each request's own time stamps",
    "A'": "each request's own time stamps, the issue kept beside it",
    "B": "each request's own time stamps, read by kprobes",
    "C": "requests by device and sector, from their issue on",
    "D": "the kernel's own counters: no distribution",
}
_ERROR = (
    "A quantile is the upper bound of its bucket, rounded up to two digits, never above the exact maximum. A bucket is "
    "at most 12.5 % wide (by size 25 %; ~: as wide as the source's own). ≥: it is in a row of the source with no "
    "end. It is left out (-) if fewer than 1 / (1 - q) I/Os were timed. Counts, sums, means "
    "and maxima are exact; ≤ marks a bound if the exact maximum isn't known."
)
MAX_FINDINGS = 50
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
_WORDS = ("kind", "model", "driver", "controller", "serial", "label")
_Json = Mapping[str, Any]


def findings(summary: _Json) -> str:
    """Return the section of the findings; empty if no rule was evaluated."""
    if "findings" not in summary:
        return ""
    found = summary["findings"]
    head = f'<section id="findings"><h2>Findings</h2>\n<p>{text(_headline(found, evaluated(summary)))}</p>\n'
    rest = f"<p>and {len(found) - MAX_FINDINGS:,} more</p>\n" if len(found) > MAX_FINDINGS else ""
    return f"{head}{''.join(map(_finding, found[:MAX_FINDINGS]))}{rest}</section>\n"


def _headline(found: list[_Json], by: str) -> str:
    return f"By {by}." if found else f"None, by {by}."


def _finding(one: _Json) -> str:
    severity, about = text(one["severity"]), one["summary"].removeprefix(f"{one['device']}: ")
    return (
        f'<article class="finding {severity}"><h3>{text(named(one))} <span class="small {severity}">{severity}</span> '
        f'<span class="small">{text(one["id"])}, {text(when(one))}</span></h3>\n'
        f"<p><strong>{text(about)}.</strong></p>\n"
        f"{listed(text(fact_text(fact)) for fact in one['evidence'].values())}"
        f"<p>Shown on: {text(shown_on(one))}</p>\n"
        f"<p>What to do next:</p>\n{listed(map(_step, one['next_steps']))}"
        f"<p>What would refute it: {text(one['refuted_by'])}</p></article>\n"
    )


def _step(step: _Json) -> str:
    """Return what to do, its risk, and each command on a line of its own, so that it can be pasted."""
    not_run = f'<span class="risk">{NOT_RUN}</span>'
    commands = (
        f'<br><code class="command">{text(one["line"])}</code>{"" if one["ran"] else not_run}'
        for one in step.get("commands", ())
    )
    what = text(step.get("what", step["text"]))
    return f'{what} <span class="risk">Risk: {text(step["risk"])}.</span>{"".join(commands)}'


def render_html(summary: _Json, totals: Totals, columns: MapColumns, parts: int = 1, shown: Look | None = None) -> str:
    """Return the whole page. `shown`: its colours; None: the default ones."""
    shown = shown or look()
    frame = map_frame(columns, shown.paper.ramp.steps, _marks(totals), _gaps(totals))
    devices = _shown(summary)
    start = f"{summary['start'][:10]} {summary['start'][11:16]} UTC" if summary["start"] else UNKNOWN
    title = f"Storage latency of {summary['host']['name']}, {start}"
    body = [
        f"<h1>{text(title)}</h1>",
        _verdict(summary),
        _facts(summary, parts),
        findings(summary),
        _overview(summary, devices),
        _slow_hours(summary),
        _mark_table(summary),
        _trust(summary),
        *(_device(at, each, summary, totals, frame) for at, each in enumerate(devices)),
        _outliers(summary),
        _issuers(summary),
        _files(summary),
        _interrupts(summary),
        _settings(summary),
        _meaning(summary, frame),
    ]
    return document(title, body, _footer(summary), shown)


def _verdict(summary: _Json) -> str:
    lost, old = sections.verdict(summary), _in_flight_at_end(summary)
    old = f'\n<p class="verdict lost">{text(old)}</p>' if old else ""
    if lost:
        why = f"; gaps: {sections.gaps(summary)}" if summary["gaps"] else ""
        return f'<p class="verdict lost">{text(lost)}{text(why)}.</p>{old}'
    damage = " Some of the file could not be read." if "damage" in summary else ""
    gap = f"there is no gap{sections.open_end(summary)}"
    return f'<p class="verdict">Complete: no event was lost, no map was full, {gap}.{damage}</p>{old}'


def _in_flight_at_end(summary: _Json) -> str:
    """Return the sentence on old I/Os in flight at the end; empty without any."""
    old = outstanding.older(summary)
    return old if old.startswith("IN FLIGHT") else ""


def _facts(summary: _Json, parts: int) -> str:
    host, tier = summary["host"], summary["health"]["tier"]
    means = f" ({text(_TIERS[tier])})" if tier in _TIERS and summary["backend"] == "bpftrace" else ""
    how = f", tier {text(tier)}{means}" if tier else ""
    return facts(
        [
            ("Host", name(host["name"])),
            ("Kernel", name(host["kernel"])),
            ("Measured by", f"{name(host['tool'] or summary['backend'])}{how}; latmon {text(host['latmon'])}"),
            ("Why this way", text(summary.get("reason", ""))),
            ("From", f"{text(summary['start'] or UNKNOWN)} to {text(sections.end(summary))}"),
            ("Length", f"{summary['duration_s']:,} s, {text(sections.windows(summary))}"),
            ("Parts", f"{parts:,} files of one capture" if parts > 1 else ""),
            ("Gaps", text(sections.gaps(summary))),
        ]
    )


def _shown(summary: _Json) -> list[str]:
    """Return the devices with a section: busy ones by name; of too many those with most I/Os."""
    found = summary["devices"]
    busy = [each for each, one in found.items() if outstanding.is_busy(one)]
    busy.sort(key=lambda each: -sum(op["count"] for op in found[each]["ops"].values()))
    return sorted(busy[:MAX_SECTIONS])


def _overview(summary: _Json, shown: list[str]) -> str:
    rows = [_line(each, one, summary["measured_s"], shown) for each, one in summary["devices"].items()]
    if not rows:
        return "<p>No device was seen.</p>"
    heads = ("device", "what", "I/Os", "IOPS", "B/s", "slowest completed", "above threshold", "most in driver", "limit")
    off = outstanding.off(summary)
    remarks = f"<h3>Limits that are off</h3>\n{listed(map(text, off))}" if off else ""
    tails = [text(sections.tail_sentence(each, summary["devices"][each])) for each in shown]
    slow = listed(each for each in tails if each)
    slow = f"<h3>Where the time of the slow I/Os goes</h3>\n{slow}" if slow else ""
    return f"<h2>Devices</h2>\n{table('All devices of the capture', heads, rows, words=(0, 1))}{slow}{remarks}"


def _line(device: str, one: _Json, seconds: float | None, shown: list[str]) -> tuple[str, ...]:
    ops = one["ops"].values()
    count, moved = sum(op["count"] for op in ops), sum(op.get("bytes", 0) for op in ops)
    figures = [op.get("latency_us") or op.get("of", {}).get("latency_us") for op in ops]
    tops = [q for q in figures if q and q["count"]]
    slowest = max(tops, key=lambda q: q["max"] or q.get("max_bound") or 0, default=None)
    reported = one.get("outstanding", {})
    is_limited = reported.get("held_at") is not None or reported.get("at_limit")
    limit = number(reported.get("limit"))
    most_us = (slowest["max"] or slowest.get("max_bound") or 0) if slowest else 0
    old = outstanding.longest_in_flight(one)
    is_older = old is not None and old["age_us"] > most_us
    older = f'<br><span class="bad">in flight for {outstanding.age(old)}</span>' if old and is_older else ""
    return (
        f'<a href="#device-{shown.index(device)}">{name(device)}</a>' if device in shown else name(device),
        " ".join(name(one[key]) for key in ("label", "model", "driver") if one.get(key)),
        number(count),
        per_second(count, seconds),
        per_second(moved, seconds),
        (maximum(slowest) if slowest else UNKNOWN) + older,
        number(sum(one["above"].values())) if "above" in one else UNKNOWN,
        number(reported.get("max")),
        f'<span class="bad">{limit}, reached</span>' if is_limited else limit,
    )


def _slow_hours(summary: _Json) -> str:
    """Return the I/Os above the threshold and above an SLO, in a table with a row per day and a column per hour."""
    found = list(sections.slow_times(summary))
    body = "".join(f"<p>{text(sentence)}</p>\n{_day_table(slow)}" for slow, sentence in found)
    return f"<h2>Slow I/Os by hour and day</h2>\n{body}" if found else ""


def _day_table(slow: _Json) -> str:
    if not slow["worst_minute"] or len(slow["hours"]) <= 1:
        return ""
    hours = {one["start"][:13]: one["count"] for one in slow["hours"]}
    rows = [
        (day, number(one["count"]), *(number(hours.get(f"{day}T{hour:02}")) for hour in range(24)))
        for one in slow["days"]
        if (day := one["start"][:10])
    ]
    heads = ("day (UTC)", "all", *(f"{hour:02}" for hour in range(24)))
    caption = f"Completed I/Os in each hour; {UNKNOWN}: not measured{left_out(len(rows), MAX_ROWS)}"
    return table(caption, heads, rows[:MAX_ROWS])


def _trust(summary: _Json) -> str:
    markup = listed(text(each) for each in sections.trust(summary) if each != _in_flight_at_end(summary))
    notices = [f"{text(one['time'] or UNKNOWN)} {text(one['text'])}" for one in summary.get("notices", [])]
    damage = [text(one) for one in summary.get("damage", [])]
    found = f"<h2>How far to trust it</h2>\n{markup}{_gap_table(summary)}"
    found += f"<h3>Notices</h3>\n{listed(notices[:MAX_NOTES])}" if notices else ""
    return found + (f"<h3>Damage of the file</h3>\n{listed(damage[:MAX_NOTES])}" if damage else "")


def _device(at: int, device: str, summary: _Json, totals: Totals, frame: MapFrame) -> str:
    one = summary["devices"][device]
    limit = one.get("outstanding", {}).get("limit")
    fixed_us = None if "threshold_range_us" in one else one.get("threshold_us")
    drawn = heat_map(device, frame, fixed_us, limit, str(at))
    caption = "No map: more devices than there is room for." if device in frame.columns.left_out else _map_text(frame)
    figures = [each for series, each in totals[LATENCIES].items() if (series.device, series.stage) == (device, "total")]
    if not any(figures):
        traced = totals.traced.histograms.items()
        figures = [each for series, each in traced if (series.device, series.stage) == (device, "total")]
    whole = merge(figures)
    pictures = _Pictures(drawn, caption, histogram(device, whole))
    return _section(device, summary, pictures, f"device-{at}")


def _map_text(frame: MapFrame) -> str:
    columns = frame.columns
    return (
        f"Latency of all I/Os over the whole capture, in columns of {columns.width_us / 1e6:g} s; all devices have "
        "the same axes, and colours of their own counts. Point at a cell for its time (UTC), latency and I/Os."
    )


def _meaning(summary: _Json, frame: MapFrame) -> str:
    sentences = [*sections.meaning(summary)[:-1], _ERROR, _map_meaning(frame)]
    head = "How it was measured, and what each number includes"
    return f'<section class="page" id="meaning"><h2>{head}</h2>\n{listed(map(text, sentences))}</section>'


def _map_meaning(frame: MapFrame) -> str:
    scale, columns = frame.scale, frame.columns
    octaves = Fraction(scale.step, 1 << BITS)
    height = (
        f"{float(octaves):g} doublings" if octaves > 1 else "a doubling" if octaves == 1 else f"{octaves} of a doubling"
    )
    below = "; the lowest row has everything faster" if scale.open_below else ""
    return (
        f"Heat maps: time in UTC, in {frame.count:,} columns of {columns.width_us / 1e6:g} s; a row is {height} of "
        f"latency high{below}. Hatched: not measured."
    )


def _footer(summary: _Json) -> str:
    return (
        f'<footer class="small">Made by latmon {text(summary["host"]["latmon"])} from a recording; its numbers are '
        f"also in `latmon report --json` of it ({text(summary['schema'])}).</footer>\n"
    )


def _marks(totals: Totals) -> list[Note]:
    return [Note(one.mono_us, one.mono_us, one.text or "(no note)") for one in totals.marks[:MAX_NOTES]]


def _gaps(totals: Totals) -> list[Note]:
    return [
        Note(
            one.start_mono_us,
            one.start_mono_us + round(one.seconds * 1e6),
            f"{spelled(one.seconds * 1e6)}: {one.reason}",
        )
        for one in totals.gaps[:MAX_NOTES]
    ]


class _Pictures(NamedTuple):
    """SVG pictures of a device, with the caption of the heat map."""

    heat_map: str
    map_text: str
    histogram: str


def _section(device: str, summary: _Json, drawn: _Pictures, anchor: str) -> str:
    """Return a device's section of the page, as HTML."""
    one = summary["devices"][device]
    pieces = [
        f'<section class="device" id="{anchor}"><h2>{name(device)}</h2>',
        _identity(one),
        _reported(device, one),
        figure(drawn.heat_map, drawn.map_text, "map"),
        _ops(one, summary["measured_s"], summary.get("latency_from", "")),
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
        found += f"<p>{number(above)} I/Os were above the threshold of {_threshold(one)}.</p>\n"
    return found


def _threshold(one: _Json) -> str:
    """Return the device's threshold, or the range of one that moved."""
    if "threshold_range_us" not in one:
        return spelled(one["threshold_us"])
    return f"{' to '.join(map(spelled, one['threshold_range_us']))}, which moved with its latencies"


def _reported(device: str, one: _Json) -> str:
    """Return the sentences on the tail, Little's law and the issue order."""
    sentences = [sections.tail_sentence(device, one), sections.admission_sentence(device, one)]
    sentences += (*sections.stack_sentences(device, one), *sections.size_sentences(one), sections.reports_sentence(one))
    sentences.append(one.get("outstanding", {}).get("littles_law", {}).get("sentence", ""))
    order = one.get("issue_order", {})
    sentences.append(f"issue order: {order['summary']}" if order.get("ascending") is not None else "")
    return "".join(f'<p class="key">{text(each)}</p>\n' for each in sentences if each)


def _ops(one: _Json, seconds: float | None, begins: str) -> str:
    if not one["ops"]:
        return "<p>No I/O completed.</p>"
    absent = listed((_absent(why, stages) for why, stages in stages_without(one["ops"]).items()), "small")
    if not any("latency_us" in op or "of" in op or op["stages"] for op in one["ops"].values()):
        volumes = (f"<b>{text(op)}</b> {text(volume(figures, seconds))}" for op, figures in one["ops"].items())
        return listed(volumes) + absent
    rows = [row for op, figures in one["ops"].items() for row in _op(op, figures, seconds, begins)]
    caption = "Latency by operation and stage; each time to the microsecond, as in the JSON report"
    return table(caption, ("", *(column.title for column in LATENCY)), rows) + absent


def _op(op: str, one: _Json, seconds: float | None, begins: str) -> Iterator[tuple[str, ...]]:
    """Yield a row that heads the op's, then its total and its stages."""
    yield (f'<b>{text(op)}</b> <span class="small">{text(volume(one, seconds))}</span>',)
    for row in latency_rows(one, begins):
        yield (f"&emsp;{text(row['name'])}", *cells(LATENCY, row))


def _absent(why: str, stages: list[str]) -> str:
    word = "n/a" if why.startswith(NOT_PASSED) else "not measured"
    return f"{text(', '.join(stages))} {word}: {text(why.removeprefix(NOT_PASSED).removeprefix(NOT_MEASURED))}"


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


def _outliers(summary: _Json) -> str:
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


def _issuers(summary: _Json) -> str:
    """Return the tables of cgroups and processes."""
    found = "".join(column_table(one(summary), MAX_ROWS) for one in (cgroup_table, process_table))
    return f'<section id="who"><h2>Who issued the I/Os</h2>\n{found}</section>\n' if found else ""


def _files(summary: _Json) -> str:
    """Return the tables of operations on files, and of the slow ones."""
    found = "".join(column_table(one(summary), MAX_ROWS) for one in (file_table, operation_table))
    return f'<section id="files"><h2>What programs waited for</h2>\n{found}</section>\n' if found else ""


def _interrupts(summary: _Json) -> str:
    """Return the tables of softirqs, handlers, wake-ups and task queues."""
    found = "".join(column_table(one, MAX_ROWS) for one in host_tables(summary))
    return f'<section id="interrupts"><h2>Interrupts and threads</h2>\n{found}</section>\n' if found else ""


def _gap_table(summary: _Json) -> str:
    rows = [(text(one["start"] or UNKNOWN), f"{one['duration_s']:,} s", text(one["reason"])) for one in summary["gaps"]]
    caption = f"Gaps{_rest(len(rows))}"
    return table(caption, ("from", "for", "because"), rows[:MAX_ROWS], words=(0, 2)) if rows else ""


def _mark_table(summary: _Json) -> str:
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


def _settings(summary: _Json) -> str:
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


def write_diff(made: Callable[[], DiffReport], path: Path) -> int:
    """Write the page of what `made` returns to a new file, or to stdout; the file is opened first."""
    with streams.output(path) as file:
        report = made()
        page = diff_page(report) if isinstance(report, PairReport) else sweep_page(report)
        file.write(page.encode("utf-8", "replace"))
    return EXIT_DONE


def diff_page(report: PairReport) -> str:
    """Return the page of two spans, or of the runs of two sides."""
    (_, users), *parts = output.paragraphs(report)
    title = " against ".join(capture.name for capture in report.captures)
    body = [f"<h1>{text(title)}</h1>", *(f'<p class="verdict">{text(sentence)}</p>' for sentence in users)]
    body += [f"<h2>{text(heading)}</h2>\n{_nested(sentences)}" for heading, sentences in parts]
    body += [*_distributions(output.shown_totals(report))]
    return document(title, body, _diff_footer(), look())


def sweep_page(report: SweepReport) -> str:
    """Return the page of a sweep: a table and a picture of each device."""
    title = f"Sweep of {report.setting}" if report.setting else f"{len(report.captures)} captures"
    warnings = (f'<p class="verdict lost">{text(sentence)}</p>' for sentence in report.warnings)
    tables = map(_swept, output.shown_tables(report))
    return document(title, [f"<h1>{text(title)}</h1>", *warnings, *tables], _diff_footer(), look())


def _swept(swept: SweepTable) -> str:
    names = [output.row_name(row) for row in swept.rows]
    columns = {column: [row.values[column] for row in swept.rows] for column in SWEEP_COLUMNS}
    rows = [
        (text(name), *(text(output.sweep_cell(column, row.values[column])) for column in SWEEP_COLUMNS))
        for name, row in zip(names, swept.rows, strict=True)
    ]
    times = {column: columns[column] for column in ("p50", "p99", "max")}
    rates = {column: columns[column] for column in ("IOPS", "slow/day")}
    title = output.sweep_title(swept)
    return (
        f"<h2>{text(swept.device or 'all devices')}</h2>\n"
        f"{table(text(title), (text(swept.setting or 'capture'), *SWEEP_COLUMNS), rows)}"
        f"{listed(map(text, output.trends(swept)))}"
        f"{figure(sweep_chart(title, names, times, rates), 'Latencies on a logarithmic axis; rates from 0.')}"
    )


def _nested(sentences: Sequence[str]) -> str:
    """Return a list; sentences that begin with blanks are a list within the item before them."""
    items: list[tuple[str, list[str]]] = []
    for one in sentences:
        if one.startswith(" ") and items:
            items[-1][1].append(text(one.strip()))
        else:
            items.append((text(one.strip()), []))
    return listed(f"{first}{listed(more)}" for first, more in items)


def _distributions(changes: Sequence[Change]) -> Iterator[str]:
    """Yield the table of quantiles and the pictures of A and of B."""
    if not changes:
        return
    heads = ("", "I/Os", *changes[0].shift_us)
    rows = [row for change in changes for row in ([text(change.subject)], *_rows(change))]
    yield f"<h2>Distributions</h2>\n{table('Quantiles of A and of B', heads, rows)}"
    for change in changes:
        yield f"<h3>{text(change.subject)}</h3>"
        for which, side, other in (("A", change.a, change.b), ("B", change.b, change.a)):
            yield figure(histogram(f"{change.subject} of {which}", side, other), f"{which}: I/Os by latency")


def _rows(change: Change) -> list[list[str]]:
    return [list(map(text, row)) for row in output.quantile_rows(change)]


def _diff_footer() -> str:
    return (
        f'<footer class="small">Made by latmon {text(__version__)} from recordings; the numbers are also in '
        f"`latmon diff --json` of them ({DIFF_SCHEMA}).</footer>\n"
    )
