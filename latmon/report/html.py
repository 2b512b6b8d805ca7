"""The report and the comparison of two captures as one HTML file each: no script, nothing from outside, prints on A4.

The first page has the impact in one sentence and the map of the device that it is about. The rest has the report's
order, then the section of each device, then the tables of the whole capture; the brief page ends before them. Numbers
are from the report, pictures from the totals and the columns of time. A section that was not measured is empty.

`latmon diff --html` has the text's paragraphs in their order, then the distributions of A and B below each other on the
same axes; of a sweep it has a table and a picture of each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from latmon import __version__
from latmon.analysis.limits import Advice
from latmon.diff import output
from latmon.diff.comparison import COLUMNS as SWEEP_COLUMNS
from latmon.diff.comparison import SweepTable
from latmon.diff.report import SCHEMA as DIFF_SCHEMA
from latmon.diff.report import Change, DiffReport, PairReport, SweepReport
from latmon.findings.rule import NOT_RUN
from latmon.model.frame import UNACCOUNTED, Series
from latmon.model.histogram import BITS, Histogram, merge
from latmon.model.inflight import MEANS, PROBE, SYSFS
from latmon.model.measurements import LATENCIES
from latmon.model.stages import COLUMNS, by_column
from latmon.report import (
    captured,
    completeness,
    definitions,
    device_text,
    in_flight,
    limit_remarks,
    outstanding,
    slow_times,
)
from latmon.report import findings as finding_words
from latmon.report import outliers as outlier_words
from latmon.report.files import file_table, operation_table
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
from latmon.report.interrupts import host_tables
from latmon.report.issuers import cgroup_table, process_table
from latmon.report.latency_table import LATENCY, includes_of, latency_rows, stages_without, volume
from latmon.report.model.depth import DepthLatency, Depths, DepthsAtIssue, DepthShares, Outstanding, SampledDepths
from latmon.report.model.device import NOT_MEASURED, NOT_PASSED, Device, Op
from latmon.report.model.finding import Finding, Findings, NextStep
from latmon.report.model.latency import Quantiles, SummedQuantiles
from latmon.report.model.report import CountedTime, Report
from latmon.report.model.request import SlowRequest
from latmon.report.nfs import nfs_table
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
_BRIEF_PARTS = ((5, 3), (2, 1))
"""Facts and steps of each finding on the brief page, which has two pages on A4."""
_BRIEF_DEVICES, _BRIEF_LIMITS = 8, 3
"""Devices and limits that are off, on the brief page."""
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


def findings(evaluated: Findings | None, *, is_brief: bool = False) -> str:
    """Return the section of the findings, the worst ones where there are many; empty if no rule was evaluated."""
    if evaluated is None:
        return ""
    most = len(_BRIEF_PARTS) if is_brief else MAX_FINDINGS
    rows, by = evaluated.findings, finding_words.evaluated(evaluated.findings_by)
    if is_brief:
        by = by.partition("; not evaluated: ")[0]
    remainder = f"<p>and {len(rows) - most:,} more</p>\n" if len(rows) > most else ""
    how = f'<p class="small">{text(f"By {by}." if rows else f"None, by {by}.")}</p>\n'
    parts = _BRIEF_PARTS if is_brief else [(None, None)] * most
    listed_findings = "".join(_finding(finding, *part) for finding, part in zip(rows, parts, strict=False))
    return f'<section id="findings"><h2>Findings</h2>\n{listed_findings}{remainder}{how}</section>\n'


def _finding(finding: Finding, most_facts: int | None, most_steps: int | None) -> str:
    """Return a finding with at most so many facts and steps; None: all."""
    evidence, steps = list(finding.evidence.values())[:most_facts], finding.next_steps[:most_steps]
    severity, about = text(finding.severity), finding.summary.removeprefix(f"{finding.device}: ")
    title = f'{text(finding_words.named(finding))} <span class="small {severity}">{severity}</span>'
    return (
        f'<article class="finding {severity}"><h3>{title} '
        f'<span class="small">{text(finding.id)}, {text(finding_words.when(finding))}</span></h3>\n'
        f"<p><strong>{text(about)}.</strong></p>\n"
        f"{listed(text(finding_words.fact_text(fact)) for fact in evidence)}"
        f"<p>Shown on: {text(finding_words.shown_on(finding.view))}</p>\n"
        f"<p>What to do next:</p>\n{listed(map(_step, steps))}"
        f"<p>What would refute it: {text(finding.refuted_by)}</p></article>\n"
    )


def _step(step: NextStep) -> str:
    """Return what to do, its risk, and each command on a line of its own, so that it can be pasted."""
    not_run = f'<span class="risk">{NOT_RUN}</span>'
    commands = (
        f'<br><code class="command">{text(command.line)}</code>{"" if command.ran else not_run}'
        for command in step.commands
    )
    what = text(step.text if step.what is None else step.what)
    return f'{what} <span class="risk">Risk: {text(step.risk)}.</span>{"".join(commands)}'


def render_html(
    report: Report,
    totals: Totals,
    columns: MapColumns,
    parts: int = 1,
    shown: Look | None = None,
    *,
    is_brief: bool = False,
) -> str:
    """Return the whole page, or the brief one. `shown`: its colours; None: the default ones."""
    shown = shown or look()
    frame = map_frame(columns, shown.paper.ramp.steps, _marks(totals), _gaps(totals))
    devices, first = _shown(report), _device_of_impact(report)
    start = f"{report.start[:10]} {report.start[11:16]} UTC" if report.start else UNKNOWN
    title = f"Storage latency of {report.host.name}, {start}"
    body = [
        f"<h1>{text(title)}</h1>",
        _impact(report, frame, first),
        _facts(report, parts),
        _verdict(report),
        findings(report.evaluated, is_brief=is_brief),
        _overview(report, [] if is_brief else devices, _brief_devices(report, first) if is_brief else report.devices),
    ]
    if is_brief:
        return document(title, body, _footer(report), shown)
    maps = {label: _map(label, report.devices[label], frame, str(at)) for at, label in enumerate(devices)}
    maps[first] = '<p class="small">Its map is on the first page.</p>'
    body += [
        _slow_hours(report),
        _mark_table(report),
        _trust(report),
        *(_device(at, label, report, totals, maps[label]) for at, label in enumerate(devices)),
        _outliers(report),
        _issuers(report),
        _files(report),
        _interrupts(report),
        _settings(report),
        _meaning(report, frame),
    ]
    return document(title, body, _footer(report), shown)


def _impact(report: Report, frame: MapFrame, label: str) -> str:
    """Return the worst finding as one sentence, and the map of the device `label`, which may be none."""
    rows = report.evaluated.findings if report.evaluated else ()
    sentence = f'<p class="impact">{text(f"{rows[0].summary}." if rows else "No finding.")}</p>\n'
    if not label:
        return sentence
    return f'{sentence}<p class="small">{name(label)}</p>\n{_map(label, report.devices[label], frame, "first")}'


def _device_of_impact(report: Report) -> str:
    """Return the device of the worst finding, else the one with most I/Os; empty without devices."""
    rows = report.evaluated.findings if report.evaluated else ()
    if rows and rows[0].device in report.devices:
        return rows[0].device
    return max(report.devices, key=lambda label: _ios(report.devices[label]), default="")


def _ios(device: Device) -> int:
    return sum(op.count for op in device.ops.values())


def _verdict(report: Report) -> str:
    lost, old = completeness.verdict(report), _in_flight_at_end(report)
    old = f'\n<p class="verdict lost">{text(old)}</p>' if old else ""
    if lost:
        why = f"; gaps: {completeness.gaps(report)}" if report.gaps else ""
        return f'<p class="verdict lost">{text(lost)}{text(why)}.</p>{old}'
    damage = " Some of the file could not be read." if report.damage else ""
    gap = f"there is no gap{completeness.open_end(report)}"
    return f'<p class="verdict">Complete: no event was lost, no map was full, {gap}.{damage}</p>{old}'


def _in_flight_at_end(report: Report) -> str:
    """Return the sentence on old I/Os in flight at the end; empty without any."""
    old = completeness.older(report)
    return old if old.startswith("IN FLIGHT") else ""


def _facts(report: Report, parts: int) -> str:
    host, tier = report.host, report.health.tier
    means = f" ({text(_TIERS[tier])})" if tier in _TIERS and report.backend == "bpftrace" else ""
    how = f", tier {text(tier)}{means}" if tier else ""
    return facts(
        [
            ("Host", name(host.name)),
            ("Kernel", name(host.kernel)),
            ("Measured by", f"{name(host.tool or report.backend)}{how}; latmon {text(host.latmon)}"),
            ("Why this way", text(report.reason)),
            ("From", f"{text(report.start or UNKNOWN)} to {text(captured.end(report))}"),
            ("Length", f"{report.duration_s:,} s, {text(captured.windows(report))}"),
            ("Runs", text(captured.runs(report.runs))),
            ("Parts", f"{parts:,} files of one capture" if parts > 1 else ""),
            ("Gaps", text(completeness.gaps(report))),
        ]
    )


def _shown(report: Report) -> list[str]:
    """Return the devices with a section: busy ones by name; of too many those with most I/Os."""
    devices = report.devices
    busy = [name for name, device in devices.items() if device_text.is_busy(device)]
    busy.sort(key=lambda name: -_ios(devices[name]))
    return sorted(busy[:MAX_SECTIONS])


def _brief_devices(report: Report, first: str) -> dict[str, Device]:
    """Return the devices of the brief page: that of its map, then those with most I/Os above the threshold."""

    def rank(label: str) -> tuple[bool, int, int]:
        device = report.devices[label]
        return label != first, -sum((device.above or {}).values()), -_ios(device)

    return {label: report.devices[label] for label in sorted(report.devices, key=rank)[:_BRIEF_DEVICES]}


def _overview(report: Report, shown: list[str], devices: Mapping[str, Device]) -> str:
    rows = [_line(name, device, report.measured_s, shown) for name, device in devices.items()]
    if not rows:
        return "<p>No device was seen.</p>"
    heads = ("device", "what", "I/Os", "IOPS", "B/s", "slowest completed", "above threshold", "most in driver", "limit")
    off = limit_remarks.off(report)[: None if shown else _BRIEF_LIMITS]
    remarks = f"<h3>Limits that are off</h3>\n{listed(map(text, off))}" if off else ""
    tails = [text(device_text.tail_sentence(name, report.devices[name])) for name in shown]
    slow = listed(tail for tail in tails if tail)
    slow = f"<h3>Where the time of the slow I/Os goes</h3>\n{slow}" if slow else ""
    left = len(report.devices) - len(devices)
    caption = f"{len(devices)} of {len(report.devices)} devices" if left else "All devices of the capture"
    return f"<h2>Devices</h2>\n{table(caption, heads, rows, words=(0, 1))}{slow}{remarks}"


def _line(label: str, device: Device, seconds: float | None, shown: list[str]) -> tuple[str, ...]:
    ops = device.ops.values()
    count, moved = sum(op.count for op in ops), sum(op.bytes or 0 for op in ops)
    totals: list[Quantiles | None] = [op.latency_us or op.traced_us for op in ops]
    tops = [latency for latency in totals if latency and latency.count]
    slowest = max(tops, key=lambda latency: latency.highest_us or 0, default=None)
    most_us = slowest.highest_us or 0 if slowest else 0
    limit = number(outstanding.bound_of(device.outstanding))
    old = in_flight.longest_in_flight(device)
    is_older = old is not None and old.row.age_us > most_us
    older = f'<br><span class="bad">in flight for {in_flight.age(old.row)}</span>' if old and is_older else ""
    what = (device.label, device.model, device.driver)
    return (
        f'<a href="#device-{shown.index(label)}">{name(label)}</a>' if label in shown else name(label),
        " ".join(name(word) for word in what if word),
        number(count),
        per_second(count, seconds),
        per_second(moved, seconds),
        (maximum(slowest) if slowest else UNKNOWN) + older,
        UNKNOWN if device.above is None else number(sum(device.above.values())),
        number(outstanding.highest(device.outstanding)),
        f'<span class="bad">{limit}, reached</span>' if outstanding.is_limited(device.outstanding) else limit,
    )


def _slow_hours(report: Report) -> str:
    """Return the I/Os above the threshold and above an SLO, in a table with a row per day and a column per hour."""
    slow = list(slow_times.slow_times(report))
    body = "".join(f"<p>{text(sentence)}</p>\n{_day_table(times)}" for times, sentence in slow)
    return f"<h2>Slow I/Os by hour and day</h2>\n{body}" if slow else ""


def _day_table(slow: CountedTime) -> str:
    if not slow.worst_minute or len(slow.hours) <= 1:
        return ""
    by_hour = {(hour.start or UNKNOWN)[:13]: hour.count for hour in slow.hours}
    by_day = {(day.start or UNKNOWN)[:10]: day.count for day in slow.days}
    rows = [
        (day, number(count), *(number(by_hour.get(f"{day}T{hour:02}")) for hour in range(24)))
        for day, count in by_day.items()
    ]
    heads = ("day (UTC)", "all", *(f"{hour:02}" for hour in range(24)))
    caption = f"Completed I/Os in each hour; {UNKNOWN}: not measured{left_out(len(rows), MAX_ROWS)}"
    return table(caption, heads, rows[:MAX_ROWS])


def _trust(report: Report) -> str:
    old = _in_flight_at_end(report)
    markup = listed(text(sentence) for sentence in completeness.trust(report) if sentence != old)
    notices = [f"{text(notice.time or UNKNOWN)} {text(notice.text)}" for notice in report.notices]
    section = f"<h2>How far to trust it</h2>\n{markup}{_gap_table(report)}"
    section += f"<h3>Notices</h3>\n{listed(notices[:MAX_NOTES])}" if notices else ""
    damage = listed(map(text, report.damage[:MAX_NOTES]))
    return section + (f"<h3>Damage of the file</h3>\n{damage}" if damage else "")


def _device(at: int, label: str, report: Report, totals: Totals, drawn: str) -> str:
    """Return a device's section. `drawn`: its map, or where that is."""
    all_latencies = merge(_totals_of(label, totals[LATENCIES]))
    all_latencies = all_latencies or merge(_totals_of(label, totals.traced.histograms))
    return _section(label, report, _Pictures(drawn, histogram(label, all_latencies)), f"device-{at}")


def _map(label: str, device: Device, frame: MapFrame, key: str) -> str:
    """Return the heat map of a device with its caption; `key` makes its ids unique on the page."""
    limit = outstanding.bound_of(device.outstanding)
    fixed_us = device.threshold_us if device.threshold_range_us is None else None
    caption = "No map: more devices than there is room for." if label in frame.columns.left_out else _map_text(frame)
    return figure(heat_map(label, frame, fixed_us, limit, key), caption, "map")


def _totals_of(device: str, histograms: Mapping[Series, Histogram]) -> list[Histogram]:
    return [latency for series, latency in histograms.items() if (series.device, series.stage) == (device, "total")]


def _map_text(frame: MapFrame) -> str:
    columns = frame.columns
    return (
        f"Latency of all I/Os over the whole capture, in columns of {columns.width_us / 1e6:g} s; all devices have "
        "the same axes, and colours of their own counts. Point at a cell for its time (UTC), latency and I/Os."
    )


def _meaning(report: Report, frame: MapFrame) -> str:
    sentences = [*definitions.meaning(report)[:-1], _ERROR, _map_meaning(frame)]
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


def _footer(report: Report) -> str:
    return (
        f'<footer class="small">Made by latmon {text(report.host.latmon)} from a recording; its numbers are '
        f"also in `latmon report --json` of it ({text(report.schema)}).</footer>\n"
    )


def _marks(totals: Totals) -> list[Note]:
    return [Note(mark.mono_us, mark.mono_us, mark.sentence or "(no note)") for mark in totals.marks[:MAX_NOTES]]


def _gaps(totals: Totals) -> list[Note]:
    return [
        Note(
            gap.start_mono_us,
            gap.start_mono_us + round(gap.seconds * 1e6),
            f"{spelled(gap.seconds * 1e6)}: {gap.reason}",
        )
        for gap in totals.gaps[:MAX_NOTES]
    ]


class _Pictures(NamedTuple):
    """The heat map of a device with its caption, and the picture of its distribution."""

    heat_map: str
    histogram: str


def _section(label: str, report: Report, drawn: _Pictures, anchor: str) -> str:
    """Return a device's section of the page, as HTML."""
    device = report.devices[label]
    pieces = [
        f'<section class="device" id="{anchor}"><h2>{name(label)}</h2>',
        _identity(device),
        _reported(label, device),
        drawn.heat_map,
        _ops(device, report.measured_s, report.latency_from),
        figure(drawn.histogram, "I/Os by latency, all operations together; both axes are logarithmic."),
        _stages(label, device),
        *_depths(label, device.outstanding),
        _in_flight(device),
        _limits(device),
        "</section>",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _identity(device: Device) -> str:
    words = (device.kind, device.model, device.driver, device.controller, device.serial, device.label)
    sentences = [text(word) for word in words if word]
    sentences += [] if device.major is None else [f"{device.major}:{device.minor}"]
    sentences += ["on " + ", ".join(name(member) for member in device.members)] if device.members else []
    markup = f'<p class="what">{" &middot; ".join(sentences)}</p>\n' if sentences else ""
    if device.timed is False:
        markup += f"<p>Not timed by the always-on probe: {device_text.why_untimed(device)}.</p>\n"
    if (active := outstanding.active_sentence(device)) is not None:
        markup += f"<p>{text(active)}.</p>\n"
    if device.threshold_us is not None:
        above = sum((device.above or {}).values())
        threshold = _threshold(device.threshold_us, device.threshold_range_us)
        markup += f"<p>{number(above)} I/Os were above the threshold of {threshold}.</p>\n"
    return markup


def _threshold(latest_us: int, bounds_us: tuple[int, int] | None) -> str:
    """Return the device's threshold, or the range of one that moved."""
    if bounds_us is None:
        return spelled(latest_us)
    return f"{' to '.join(map(spelled, bounds_us))}, which moved with its latencies"


def _reported(label: str, device: Device) -> str:
    """Return the sentences on the tail, Little's law and the issue order."""
    sentences = list(device_text.device_sentences(label, device))
    law, order = outstanding.law_of(device.outstanding), device.issue_order
    sentences.append(law.sentence if law else "")
    sentences.append(f"issue order: {order.summary}" if order and order.ascending is not None else "")
    return "".join(f'<p class="key">{text(sentence)}</p>\n' for sentence in sentences if sentence)


def _ops(device: Device, seconds: float | None, begins: str) -> str:
    ops = device.ops
    if not ops:
        return "<p>No I/O completed.</p>"
    absent = listed((_absent(why, stages) for why, stages in stages_without(ops).items()), "small")
    if not any(op.latency_us or op.of or op.stages for op in ops.values()):
        volumes = (f"<b>{text(name)}</b> {text(volume(op, seconds))}" for name, op in ops.items())
        return listed(volumes) + absent
    rows = chain.from_iterable(_op(name, op, seconds, begins) for name, op in ops.items())
    caption = "Latency by operation and stage; each time to the microsecond, as in the JSON report"
    return table(caption, ("", *(column.title for column in LATENCY)), rows) + absent


def _op(label: str, op: Op, seconds: float | None, begins: str) -> Iterator[tuple[str, ...]]:
    """Yield a row that heads the op's, then its total and its stages."""
    yield (f'<b>{text(label)}</b> <span class="small">{text(volume(op, seconds))}</span>',)
    for row in latency_rows(op, begins):
        yield (f"&emsp;{text(row.name)}", *cells(LATENCY, row))


def _absent(why: str, stages: list[str]) -> str:
    word = "n/a" if why.startswith(NOT_PASSED) else "not measured"
    return f"{text(', '.join(stages))} {word}: {text(why.removeprefix(NOT_PASSED).removeprefix(NOT_MEASURED))}"


def _stages(label: str, device: Device) -> str:
    """Return the stages' shares of the time of all I/Os, and of the slow ones."""
    all_shares, tail = _shares(device.ops), device.tail
    rows: list[tuple[str, Mapping[str, float]]] = [("all I/O", all_shares)]
    if tail:
        rows.append((f"above {spelled(tail.cut_us)}", by_column(tail.share, includes_of(device.ops))))
    drawn = stage_bars(label, rows) if all_shares else ""
    if not drawn:
        return ""
    seen = [part for part in COLUMNS if any(part in parts for _, parts in rows)]
    legend = listed(swatches(seen), "parts")
    of = "traced" if any(op.of for op in device.ops.values()) else "timed"
    ios = f"; {tail.count:,} I/Os are above {time_of(tail.cut_us)}" if tail else ""
    heads = ("stage", *(text(row) for row, _ in rows))
    figures = table(
        "Share of the time", heads, [(text(p), *(share(of.get(p)) for _, of in rows)) for p in seen], kind="narrow"
    )
    pictured = figure(drawn, f"Parts of the summed time of the {of} I/Os{ios}.")
    return f"<h3>Where the time goes</h3>\n{pictured}{legend}{figures}"


def _shares(ops: Mapping[str, Op]) -> dict[str, float]:
    """Return each stage's share of the time of all ops, by its column's name; empty if a sum is unknown."""
    sums_us: dict[str, int] = {}
    for op in ops.values():
        stages: dict[str, SummedQuantiles] = {**op.stages}
        if op.unaccounted:
            stages[UNACCOUNTED] = op.unaccounted
        for stage, latency in by_column(stages, includes_of({"": op})).items():
            if latency.sum is None:
                return {}
            if stage != "resume":
                sums_us[stage] = sums_us.get(stage, 0) + latency.sum
    whole_us = sum(sums_us.values())
    return {stage: us / whole_us for stage, us in sums_us.items()} if whole_us else {}


def _depths(label: str, depths: Outstanding | None) -> Iterator[str]:
    if depths is None:
        return
    yield f"<h3>Outstanding I/O</h3>\n{listed(map(text, outstanding.sentences(depths)))}"
    if not isinstance(depths, SampledDepths):
        yield f'<p class="small">Counted by {_COUNTED_BY.get(depths.source, _COUNTED_BY[SYSFS])}.</p>'
    limit, of = outstanding.bound_of(depths), "of the ends of the windows"
    driver: DepthShares = {}
    if isinstance(depths, Depths):
        driver, of = depths.busy_time_share, "of the time with any there"
    elif isinstance(depths, SampledDepths):
        driver = depths.time_share
    yield figure(depth_bars(label, driver, limit, "in the driver"), f"In the driver: share {of}, by number of I/Os.")
    if isinstance(depths, Depths) and depths.queued:
        drawn = depth_bars(label, depths.queued.busy_time_share, None, "queued above it")
        yield figure(drawn, "Queued above the driver: share of the time with any there.")
    if isinstance(depths, Depths):
        yield _depth_table(depths.busy_time_share, depths.at_issue, depths.latency_by_depth or {})
    elif isinstance(depths, DepthsAtIssue):
        yield _depth_table({}, depths.at_issue, {})


def _depth_table(busy: DepthShares, issued: Mapping[int, int], took: Mapping[int, DepthLatency]) -> str:
    depths = sorted({*busy, *issued, *took})
    if not depths:
        return ""
    shown = depths[:MAX_DEPTHS]
    columns = [("depth", [number(at) for at in shown])]
    columns += [("busy time", [share(busy.get(at, 0.0)) for at in shown])] * bool(busy)
    columns += [("at issue", [number(issued.get(at, 0)) for at in shown])] * bool(issued)
    means = [time_of(took[at].mean_us) if at in took else "" for at in shown]
    columns += [("mean latency of I/Os by depth at their start", means)] * bool(took)
    more = f"; {len(depths) - MAX_DEPTHS:,} more depths are in the JSON report" if len(depths) > MAX_DEPTHS else ""
    caption = f"I/Os in the driver, and latency by all outstanding{more}"
    rows = zip(*(cells for _, cells in columns), strict=True)
    drawn = table(caption, [head for head, _ in columns], rows, kind="narrow")
    return f"<details open><summary>The same in numbers</summary>{drawn}</details>"


def _in_flight(device: Device) -> str:
    rows = [text(in_flight.waiting(row)) for row in in_flight.waiting_rows(device)]
    markup = listed(rows[:MAX_WAITING]) + (
        f"<p>and {len(rows) - MAX_WAITING:,} more</p>" if len(rows) > MAX_WAITING else ""
    )
    head = '<h3 class="bad">In flight at the end</h3>\n' if rows else ""
    longest = in_flight.longest_in_flight(device)
    if longest:
        seen = text(longest.seen or "a time unknown")
        markup += f"<p>Longest in flight: {text(in_flight.waiting(longest.row))}, seen at {seen}.</p>"
    return head + markup


def _limits(device: Device) -> str:
    """Return the settings as configured, and which limits are off."""
    rows = []
    for setting in device.limits or ():
        remarks = "; ".join(map(_remark, setting.remarks))
        limit = setting.limit
        rows.append((text(limit.name), text(limit.value), remarks, text(limit.source)))
    limits_text = listed(map(_remark, device.limits_remarks))
    if not rows and not limits_text:
        return ""
    heads = ("setting", "value", "remark", "read from")
    return f"<h3>Limits</h3>\n{limits_text}" + table("As configured", heads, rows, words=(0, 2, 3)) * bool(rows)


def _remark(remark: Advice) -> str:
    caption = text(remark.text)
    return caption if remark.note else f'<span class="bad">off: {caption}</span>'


def _outliers(report: Report) -> str:
    """Return the section of the longest outliers, each with its stages as a ribbon and as a sum."""
    if not report.outliers:
        return ""
    outlier_counts, shown = outlier_words.counts(report), report.outliers[:MAX_OUTLIERS]
    markup = (
        f"<p>{number(outlier_counts.above)} I/Os were above their threshold; "
        f"{number(outlier_counts.recorded)} of them were recorded one by one, "
        f"{number(outlier_counts.left_out)} were left out by the rate limit. "
        f"The longest {len(shown)} follow.</p>\n"
    )
    passed = set(chain.from_iterable(map(_parts, shown)))
    markup += listed(swatches([part for part in COLUMNS if part in passed]), "parts")
    rows = "".join(_outlier(at, row) for at, row in enumerate(shown, 1))
    return f'<section class="page" id="outliers"><h2>Outliers</h2>\n{markup}{rows}</section>\n'


def _outlier(at: int, row: SlowRequest) -> str:
    again = f" x{row.repeats:,}" if row.repeats > 1 else ""
    waits = "".join(f"<p>{name(sentence)}</p>" for sentence in outlier_words.waits(row))
    return (
        f'<div class="outlier"><p><b>{at}. {name(row.device)} {time_of(row.total_us)}</b> '
        f"{text(until(row.stages_us))}{again}: {text(', '.join(outlier_words.request(row)))}, "
        f"by {name(outlier_words.issuer(row))}, began {text(row.time or UNKNOWN)}</p>\n"
        f"{ribbon(_parts(row), row.unaccounted_us, row.total_us)}\n"
        f'<p>{_sum(row)}</p>\n{waits}<p class="small">{text("; ".join(outlier_words.circumstances(row)))}</p></div>\n'
    )


def _parts(row: SlowRequest) -> dict[str, int]:
    """Return the outlier's stages by their names in a column."""
    return by_column(row.stages_us, row.includes)


def _sum(row: SlowRequest) -> str:
    """Return `queue 3 us + hba 85 us + unaccounted 2 us = 90 us`."""
    stages = outlier_words.sum_of(row)
    if stages is None:
        return outlier_words.NOT_TRACED
    parts = " + ".join(f"{text(stage)} {time_of(us)}" for stage, us in stages.parts.items())
    return ", ".join(filter(None, (f"{parts} = {time_of(stages.whole)}", off_total(stages.missing))))


def _issuers(report: Report) -> str:
    """Return the tables of cgroups and processes."""
    tables = column_table(cgroup_table(report), MAX_ROWS) + column_table(process_table(report), MAX_ROWS)
    return f'<section id="who"><h2>Who issued the I/Os</h2>\n{tables}</section>\n' if tables else ""


def _files(report: Report) -> str:
    """Return the tables of operations on files, and of the slow ones."""
    tables = column_table(file_table(report), MAX_ROWS) + column_table(operation_table(report), MAX_ROWS)
    tables += column_table(nfs_table(report), MAX_ROWS)
    return f'<section id="files"><h2>What programs waited for</h2>\n{tables}</section>\n' if tables else ""


def _interrupts(report: Report) -> str:
    """Return the tables of softirqs, handlers, wake-ups and task queues."""
    tables = "".join(column_table(host_table, MAX_ROWS) for host_table in host_tables(report))
    return f'<section id="interrupts"><h2>Interrupts and threads</h2>\n{tables}</section>\n' if tables else ""


def _gap_table(report: Report) -> str:
    rows = [(text(gap.start or UNKNOWN), f"{gap.duration_s:,} s", text(gap.reason)) for gap in report.gaps]
    caption = f"Gaps{_rest(len(rows))}"
    return table(caption, ("from", "for", "because"), rows[:MAX_ROWS], words=(0, 2)) if rows else ""


def _mark_table(report: Report) -> str:
    """Return the table of marks, numbered as on the maps."""
    rows = [
        (
            str(at),
            text(mark.time or UNKNOWN),
            name(mark.text or "(no note)"),
            "; ".join(map(text, captured.changes(mark.changed))),
        )
        for at, mark in enumerate(report.marks, 1)
    ]
    heads = ("mark", "at", "note", "set otherwise than at the start")
    return table(f"Marks{_rest(len(rows))}", heads, rows[:MAX_ROWS], words=(0, 1, 2, 3)) if rows else ""


def _settings(report: Report) -> str:
    """Return all settings in the capture's header, unfolded because a folded part is not printed."""
    sections = report.settings
    tables = [
        table(text(section), ("name", "value"), [(text(k), text(v)) for k, v in values.items()], words=(0, 1))
        for section, values in list(sections.items())[:MAX_SETTINGS]
    ]
    if not tables:
        return ""
    names = sum(map(len, sections.values()))
    head = f"<summary>All {number(names)} settings, as they were when the capture began</summary>"
    remainder = f"<p>and {len(sections) - MAX_SETTINGS:,} more sections</p>" if len(sections) > MAX_SETTINGS else ""
    folded = f"<details open>{head}\n{''.join(tables)}{remainder}</details>"
    return f'<section id="settings"><h2>Configuration</h2>\n{folded}</section>\n'


def _rest(rows: int) -> str:
    return left_out(rows, MAX_ROWS)


def write_diff(make_report: Callable[[], DiffReport], path: Path) -> int:
    """Write the page of what `made` returns to a new file, or to stdout; the file is opened first."""
    with streams.output(path) as file:
        report = make_report()
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
    for sentence in sentences:
        if sentence.startswith(" ") and items:
            items[-1][1].append(text(sentence.strip()))
        else:
            items.append((text(sentence.strip()), []))
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
