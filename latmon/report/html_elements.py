"""HTML elements: escaped text, tables, numbers, and the style sheet.

Foreign strings are escaped by `text`, as content and as attributes. Paper is always light. The colours of the maps are
those of a ramp of the screen: by default cividis, which is in order of brightness for colour-blind readers too.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from latmon.model.histogram import BITS
from latmon.report.columns import WORDS, Column, NamedQuantile, ReportTable, Row, cell, most_first
from latmon.report.model.latency import Quantiles
from latmon.support.paths import data_dir
from latmon.support.theme import AUTO, Theme, load_ramp, read_theme, role_colours
from latmon.support.units import UNKNOWN, in_words
from latmon.views.units import exact

_BIDI = dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"))
_MAX = 2000
_FINE = 2**BITS
LEVELS = 9
"""Levels of a map's cells."""
_RULES = """
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:70rem;background:var(--background);color:var(--text);
 font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif}
h1{font-size:1.6rem;margin:0 0 .3rem;color:var(--strong)}
h2{font-size:1.3rem;margin:2.2rem 0 .4rem;padding-bottom:.15rem;border-bottom:2px solid var(--rule);color:var(--strong)}
h3{font-size:1.05rem;margin:1.3rem 0 .3rem;color:var(--strong)}
p{margin:.4rem 0}
a{color:var(--accent)}
bdi{unicode-bidi:isolate}
table.narrow{width:auto}
table.narrow caption{white-space:nowrap}
.what{color:var(--dim)}
.impact{font-size:1.25rem;font-weight:600}
.verdict{border-left:5px solid var(--accent);padding:.4rem .8rem;background:var(--band);font-weight:600}
.verdict.lost{border-color:var(--bad);color:var(--bad)}
.key{font-size:1.02rem;color:var(--strong)}
.small,figcaption,caption{font-size:.86rem;color:var(--dim)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.6rem 0}
dt{color:var(--dim)}
dd{margin:0;overflow-wrap:anywhere}
ul{margin:.3rem 0;padding-left:1.3rem}
.wide{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.2rem 0}
th,td{padding:.14rem .3rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--band)}
thead th{border-bottom:1px solid var(--rule);color:var(--dim);font-weight:600;vertical-align:bottom}
tbody th{font-weight:400;white-space:nowrap}
th[colspan]{padding-top:.5rem}
th .small{padding-left:.6em}
.n{text-align:right;white-space:nowrap}
.bad{color:var(--bad);font-weight:600}
figure{margin:.8rem 0}
figcaption{margin-top:.2rem}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif;fill:var(--text)}
svg .dim{fill:var(--dim)}
svg .lab{fill:var(--strong);stroke:var(--background);stroke-width:3px;paint-order:stroke;font-weight:600}
svg .bound{fill:var(--limit)}
svg .grid{stroke:var(--rule);stroke-width:1;opacity:.45;fill:none}
svg .axis{stroke:var(--rule);fill:none}
svg .frame{fill:var(--background);stroke:var(--rule)}
svg .limit{stroke:var(--limit);stroke-width:1.5;stroke-dasharray:6 3;fill:none}
svg .mark{stroke:var(--strong);stroke-width:1.2;stroke-dasharray:2 2;fill:none}
svg .cells{shape-rendering:crispEdges}
svg .bar{fill:var(--area)}
svg .depth{fill:var(--depth)}
svg .tail{fill:var(--tail)}
svg .part{stroke:var(--background);stroke-width:1}
svg .left{fill:none;stroke:var(--dim);stroke-dasharray:2 2}
svg .hatch{stroke:var(--bad);stroke-width:2}
ul.parts{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.86rem}
.parts svg{display:inline-block;width:.8em;height:.8em}
.outlier{margin:.7rem 0;padding-top:.4rem;border-top:1px solid var(--band)}
.outlier p{margin:.1rem 0}
.finding{margin:.8rem 0;padding-left:.7rem;border-left:3px solid var(--rule)}
.finding.warning{border-left-color:var(--accent)}
.finding.critical{border-left-color:var(--bad)}
.finding .critical{color:var(--bad)}
h3 .small{font-weight:400}
.finding p,.finding h3{margin:.15rem 0}
.risk{color:var(--dim)}
.command{white-space:pre-wrap}
details{margin:.5rem 0}
summary{cursor:pointer;color:var(--accent)}
footer{margin-top:2.5rem;border-top:1px solid var(--rule);padding-top:.4rem}
@page{size:A4;margin:14mm 12mm}
@media print{
html{font-size:9pt}
body{max-width:none;padding:0;font-size:9pt}
h2{margin-top:0}
section.device,section.page{break-before:page}
h2,h3,caption{break-after:avoid}
figure,.outlier,.finding,tr,dl{break-inside:avoid}
thead{display:table-header-group}
.wide{overflow:visible}
table{font-size:7.6pt}
th,td{padding:.08rem .28rem}
a{color:inherit;text-decoration:none}
details::details-content{content-visibility:visible;display:block;height:auto}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""


def text(value: object) -> str:
    """Return a value as HTML text or attribute: escaped, on one line, without bidirectional controls."""
    caption = str(value).translate(_BIDI)[:_MAX]
    shown = caption if caption.isprintable() else "".join(c if c.isprintable() else " " for c in caption)
    return html.escape(shown, quote=True)


def name(value: object) -> str:
    """Return a foreign name in an element of its own, which isolates its writing direction."""
    return f"<bdi>{text(value)}</bdi>"


def time_of(us: float | None) -> str:
    """Return microseconds to the digit: 85 us, 18.250 ms, 1.238999 s; a mean has a tenth."""
    if us is None:
        return UNKNOWN
    if isinstance(us, int) or us >= 1000:  # noqa: PLR2004  below a millisecond a tenth is shown
        return exact(us) if isinstance(us, int) else f"{us / 1000:,.4f} ms"
    return f"{us:.1f} us"


def number(value: float | None) -> str:
    """Return a count with separators of thousands."""
    return UNKNOWN if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """Return per cent with two decimals, 100 only for all."""
    if value is None:
        return UNKNOWN
    return f"{min(value * 100, 99.99 if value < 1 else 100):.2f} %" if value >= 0.0001 or not value else "&lt; 0.01 %"  # noqa: PLR2004  what rounds away


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Iterable[int] = (0,), kind: str = ""
) -> str:
    """Return a table of HTML cells whose first column heads the rows; `words`: columns without numbers.

    A row of one cell heads the rows below it, over all columns.
    """
    left = frozenset(words)

    def tr(row: Sequence[str]) -> str:
        if len(row) == 1 < len(heads):
            return f'<tr><th scope="rowgroup" colspan="{len(heads)}">{row[0]}</th></tr>'
        return f"<tr>{''.join(td(at, cell_html) for at, cell_html in enumerate(row))}</tr>"

    def td(at: int, inner: str) -> str:
        if not at:
            return f'<th scope="row">{inner}</th>'
        return f"<td>{inner}</td>" if at in left else f'<td class="n">{inner}</td>'

    head = "".join(
        f'<th scope="col"{"" if at in left else " class=" + chr(34) + "n" + chr(34)}>{head}</th>'
        for at, head in enumerate(heads)
    )
    body = "\n".join(map(tr, rows))
    named = f' class="{kind}"' if kind else ""
    return (
        f'<div class="wide"><table{named}><caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
    )


def left_out(rows: int, limit: int) -> str:
    """Return the end of a caption for a table that has more rows than are shown."""
    return f"; the first {limit} of {rows:,}, the JSON report has all" if rows > limit else ""


def column_table(report_table: ReportTable[Row], limit: int) -> str:
    """Return a table of the report with at most `limit` rows; empty without rows."""
    if not report_table.rows:
        return ""
    shown = sorted(
        (column for column in report_table.columns if column.html is not None),
        key=lambda c: c.title != report_table.first,
    )
    caption = "; ".join(filter(None, (report_table.title, report_table.note, report_table.more)))
    words = [at for at, column in enumerate(shown) if column.format in WORDS]
    rows = (cells(shown, row) for row in report_table.rows[:limit])
    heads = [column.html or column.title for column in shown]
    return table(f"{text(caption)}{left_out(len(report_table.rows), limit)}", heads, rows, words=words)


def cells(columns: Sequence[Column[Row]], row: Row) -> list[str]:
    """Return a row's values as HTML."""
    return [_cell(column, row) for column in columns]


def _cell(column: Column[Row], row: Row) -> str:
    value = column.value(row)
    if isinstance(value, str) and column.format not in WORDS:
        return text(value)
    return UNKNOWN if value is None else _FORMATS[column.format](value)


def _shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name(each)} {share(n)}" for each, n in most_first(counts, 4))


def listed(items: Iterable[str], kind: str = "") -> str:
    """Return a list of HTML items; empty without items."""
    inner = "".join(f"<li>{entry_html}</li>\n" for entry_html in items)
    named = f' class="{kind}"' if kind else ""
    return f"<ul{named}>\n{inner}</ul>\n" if inner else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of terms and values, both HTML; pairs without a value are left out."""
    return (
        "<dl>\n" + "".join(f"<dt>{word}</dt><dd>{sentence}</dd>\n" for word, sentence in pairs if sentence) + "</dl>\n"
    )


def figure(svg: str, caption: str, kind: str = "") -> str:
    """Return a picture with its caption."""
    named = f' class="{kind}"' if kind else ""
    return f"<figure{named}>\n{svg}\n<figcaption>{caption}</figcaption></figure>\n" if svg else ""


def maximum(latency: Quantiles) -> str:
    """Return the exact maximum, or its upper (≤) or lower (≥) bound."""
    if "max" in latency.or_more:
        return f"≥ {time_of(latency.open_from)}"
    return f"≤ {time_of(latency.max_bound)}" if latency.max_bound is not None else time_of(latency.max)


def quantile(latency: Quantiles, name: str) -> str:
    """Return a quantile: `≥` if its bucket has no upper bound, `~` as in the text report."""
    us = latency.quantile(name)
    if name in latency.or_more:
        return f"≥ {time_of(us)}"
    if us is None or us == latency.max:
        return time_of(us)
    return in_words(cell(latency, name)).replace("~", "~ ")


def _quantile(value: NamedQuantile) -> str:
    return maximum(value.latency) if value.name == "max" else quantile(value.latency, value.name)


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "count": number,
    "whole": number,
    "number": number,
    "time": time_of,
    "share": share,
    "quantile": _quantile,
    "name": name,
    "words": text,
    "shares": _shares,
}
"""Formats of report.columns as HTML."""


class Look(NamedTuple):
    """Colours of a page, whose ramps have a step for each level: on paper and light screens, and on dark screens."""

    paper: Theme
    screen: Theme


def look(ramp: str = AUTO) -> Look:
    """Return the colours with a ramp by its name. Raises ThemeError for one that can't be used."""
    return Look(_theme("light", ramp), _theme("dark", ramp))


def _theme(name: str, ramp: str) -> Theme:
    theme = read_theme(data_dir("themes") / f"{name}.yaml")
    chosen = theme.ramp if ramp == AUTO else load_ramp(ramp, dark=theme.dark)
    steps = [round(n * (len(chosen.steps) - 1) / (LEVELS - 1)) for n in range(LEVELS)]
    rgb, xterm = tuple(chosen.steps[n] for n in steps), tuple(chosen.steps_256[n] for n in steps)
    return replace(theme, ramp=replace(chosen, steps=rgb, steps_256=xterm))


def document(title: str, body: Iterable[str], footer: str, shown: Look) -> str:
    """Return a whole page of these parts, without those that are empty."""
    inner = "\n".join(each for each in body if each)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{text(title)}</title>\n<style>\n{style_sheet(shown)}</style>\n</head>\n"
        f"<body>\n<main>\n{inner}\n</main>\n{footer}</body>\n</html>\n"
    )


def style_sheet(shown: Look) -> str:
    """Return the style sheet; it loads nothing."""
    paper = _variables(shown.paper, "#ffffff", "#f3f3f3", "#b0b0b0")
    screen = _variables(shown.screen, "", "#1e1e1e", "#5a5a5a")
    levels = "".join(f".h{n}{{fill:var(--heat{n})}}" for n in range(1, LEVELS + 1))
    return (
        f":root{{color-scheme:light dark;{paper}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{screen}}}}}\n"
        f"@media print{{:root{{color-scheme:light}}}}\n{levels}\n{_RULES}"
    )


def _variables(theme: Theme, background: str, band: str, rule: str) -> str:
    colours = {role: role_colour.rgb for role, role_colour in role_colours(theme, ()).items()} | {
        "band": band,
        "rule": rule,
    }
    colours |= {"background": background} if background else {}
    return "".join(f"--{role}:{value};" for role, value in colours.items())
