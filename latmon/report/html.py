"""The report as one HTML file: no script, nothing from outside, prints on A4.

Has the page's order. Numbers are from the summary, pictures from the totals and the columns of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon.findings.rule import NOT_RUN
from latmon.model.histogram import BITS, merge
from latmon.report import html_device, outstanding, sections
from latmon.report.heatmap_columns import MapColumns
from latmon.report.html_charts import MapFrame, Note, heat_map, histogram, map_frame
from latmon.report.html_device import Pictures, section
from latmon.report.html_elements import facts, listed, maximum, name, number, style_sheet, table, text
from latmon.report.sections import evaluated, fact_text, shown_on, when
from latmon.report.totals import Totals
from latmon.support.units import UNKNOWN, rate, spelled

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
    "A quantile is the upper bound of the bucket that holds it, never above the exact maximum: it is at most 12.5 % "
    "too high (~: by what the source's own buckets are wide), never too low; ≥: it is in a row of the source with no "
    "end. It is left out (-) if fewer than 1 / (1 - q) I/Os were timed. Counts, sums, means "
    "and maxima are exact; ≤ marks a bound if the exact maximum isn't known."
)
_Json = Mapping[str, Any]
MAX_FINDINGS = 50


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
    about = " ".join(each for each in (one["severity"], one["id"], one["device"]) if each)
    return (
        f'<article class="finding {text(one["severity"])}"><h3>{text(about)}</h3>\n'
        f"<p><strong>{text(one['summary'])}.</strong></p>\n<p>{text(when(one))}</p>\n"
        f"{listed(text(fact_text(fact)) for fact in one['evidence'].values())}"
        f"<p>Shown on: {text(shown_on(one))}</p>\n"
        f"<p>What to do next:</p>\n{listed(map(_step, one['next_steps']))}"
        f"<p>What would refute it: {text(one['refuted_by'])}</p></article>\n"
    )


def _step(step: _Json) -> str:
    """Return what to do, its risk, and each command on a line of its own, so that it can be pasted."""
    commands = (
        f'<br><code class="command">{text(one["line"])}</code>{"" if one["ran"] else NOT_RUN}'
        for one in step.get("commands", ())
    )
    what = text(step.get("what", step["text"]))
    return f'{what} <span class="risk">Risk: {text(step["risk"])}.</span>{"".join(commands)}'


def render_html(summary: _Json, totals: Totals, columns: MapColumns, parts: int = 1) -> str:
    """Return the whole page."""
    frame = map_frame(columns, _marks(totals), _gaps(totals))
    shown = _shown(summary)
    start = f"{summary['start'][:10]} {summary['start'][11:16]} UTC" if summary["start"] else UNKNOWN
    title = f"Storage latency of {summary['host']['name']}, {start}"
    body = [
        f"<h1>{text(title)}</h1>",
        _verdict(summary),
        _facts(summary, parts),
        findings(summary),
        _overview(summary, shown),
        html_device.marks(summary),
        _trust(summary),
        *(_device(at, each, summary, totals, frame) for at, each in enumerate(shown)),
        html_device.outliers(summary),
        html_device.interrupts(summary),
        html_device.settings(summary),
        _meaning(summary, frame),
    ]
    inner = "\n".join(each for each in body if each)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{text(title)}</title>\n<style>\n{style_sheet()}</style>\n</head>\n"
        f"<body>\n<main>\n{inner}\n</main>\n{_footer(summary)}</body>\n</html>\n"
    )


def _verdict(summary: _Json) -> str:
    lost = sections.verdict(summary)
    if lost:
        why = f"; gaps: {sections.gaps(summary)}" if summary["gaps"] else ""
        return f'<p class="verdict lost">{text(lost)}{text(why)}.</p>'
    damage = " Some of the file could not be read." if "damage" in summary else ""
    old = outstanding.older(summary)
    old = f'\n<p class="verdict lost">{text(old)}</p>' if old.startswith("IN FLIGHT") else ""
    gap = f"there is no gap{sections.open_end(summary)}"
    return f'<p class="verdict">Complete: no event was lost, no map was full, {gap}.{damage}</p>{old}'


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
    rows = [_line(each, one, summary["duration_s"], shown) for each, one in summary["devices"].items()]
    if not rows:
        return "<p>No device was seen.</p>"
    heads = ("device", "what", "I/Os", "IOPS", "B/s", "slowest", "above threshold", "most in driver", "limit")
    off = outstanding.off(summary)
    remarks = f"<h3>Limits that are off</h3>\n{listed(map(text, off))}" if off else ""
    tails = [text(sections.tail_sentence(each, summary["devices"][each])) for each in shown]
    slow = listed(each for each in tails if each)
    slow = f"<h3>Where the time of the slow I/Os goes</h3>\n{slow}" if slow else ""
    return f"<h2>Devices</h2>\n{table('All devices of the capture', heads, rows, words=(0, 1))}{slow}{remarks}"


def _line(device: str, one: _Json, seconds: float, shown: list[str]) -> tuple[str, ...]:
    ops = one["ops"].values()
    count, moved = sum(op["count"] for op in ops), sum(op.get("bytes", 0) for op in ops)
    figures = [op.get("latency_us") or op.get("of", {}).get("latency_us") for op in ops]
    tops = [q for q in figures if q and q["count"]]
    slowest = max(tops, key=lambda q: q["max"] or q.get("max_bound") or 0, default=None)
    reported = one.get("outstanding", {})
    is_limited = reported.get("held_at") is not None or reported.get("at_limit")
    limit = number(reported.get("limit"))
    return (
        f'<a href="#device-{shown.index(device)}">{name(device)}</a>' if device in shown else name(device),
        " ".join(name(one[key]) for key in ("label", "model", "driver") if one.get(key)),
        number(count),
        rate(count / seconds) if seconds else UNKNOWN,
        rate(moved / seconds) if seconds else UNKNOWN,
        maximum(slowest) if slowest else UNKNOWN,
        number(sum(one["above"].values())) if "above" in one else UNKNOWN,
        number(reported.get("max")),
        f'<span class="bad">{limit}, reached</span>' if is_limited else limit,
    )


def _trust(summary: _Json) -> str:
    markup = listed(text(each) for each in sections.trust(summary))
    notices = [f"{text(one['time'] or UNKNOWN)} {text(one['text'])}" for one in summary.get("notices", [])]
    damage = [text(one) for one in summary.get("damage", [])]
    found = f"<h2>How far to trust it</h2>\n{markup}{html_device.gaps(summary)}"
    found += f"<h3>Notices</h3>\n{listed(notices[:MAX_NOTES])}" if notices else ""
    return found + (f"<h3>Damage of the file</h3>\n{listed(damage[:MAX_NOTES])}" if damage else "")


def _device(at: int, device: str, summary: _Json, totals: Totals, frame: MapFrame) -> str:
    one = summary["devices"][device]
    limit = one.get("outstanding", {}).get("limit")
    drawn = heat_map(device, frame, one.get("threshold_us"), limit, str(at))
    caption = "No map: more devices than there is room for." if device in frame.columns.left_out else _map_text(frame)
    figures = [each for series, each in totals.histograms.items() if (series.device, series.stage) == (device, "total")]
    if not any(figures):
        traced = totals.traced.histograms.items()
        figures = [each for series, each in traced if (series.device, series.stage) == (device, "total")]
    whole = merge(figures)
    pictures = Pictures(drawn, caption, histogram(device, whole))
    return section(device, summary, pictures, f"device-{at}")


def _map_text(frame: MapFrame) -> str:
    columns = frame.columns
    return (
        f"Latency of all I/Os over the whole capture, in columns of {columns.width_us / 1e6:g} s; all devices have "
        "the same scales. Point at a cell for its time (UTC), latency and I/Os."
    )


def _meaning(summary: _Json, frame: MapFrame) -> str:
    sentences = [*sections.meaning(summary)[:-1], _ERROR, _map_meaning(frame)]
    head = "How it was measured, and what each number includes"
    return f'<section class="page" id="meaning"><h2>{head}</h2>\n{listed(map(text, sentences))}</section>'


def _map_meaning(frame: MapFrame) -> str:
    scale, columns = frame.scale, frame.columns
    octaves = scale.step / (1 << BITS)
    height = (
        f"{octaves:g} doublings" if octaves > 1 else "a doubling" if octaves == 1 else f"1/{1 / octaves:g} doubling"
    )
    below = "; the lowest row holds everything faster" if scale.open_below else ""
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
