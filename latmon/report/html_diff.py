"""`latmon diff --html`: a comparison or a sweep as one page that loads nothing.

It has the text's paragraphs in their order, then the distributions of A and B below each other on the same axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from latmon import __version__
from latmon.diff import output, verdict
from latmon.diff.comparison import COLUMNS, Comparison, SeriesChange, Sweep, SweepTable
from latmon.report.html_charts import histogram, sweep_chart
from latmon.report.html_elements import document, figure, listed, look, table, text
from latmon.support import streams
from latmon.support.errors import EXIT_DONE


def write_diff(made: Callable[[], Comparison | Sweep], path: Path) -> int:
    """Write the page of what `made` returns to a new file, or to stdout; the file is opened first."""
    with streams.output(path) as file:
        found = made()
        page = diff_page(found) if isinstance(found, Comparison) else sweep_page(found)
        file.write(page.encode("utf-8", "replace"))
    return EXIT_DONE


def diff_page(comparison: Comparison) -> str:
    """Return the page of two spans, or of the runs of two sides."""
    (_, users), *parts = output.paragraphs(comparison)
    title = f"{comparison.a.name} against {comparison.b.name}"
    body = [f"<h1>{text(title)}</h1>", *(f'<p class="verdict">{text(one)}</p>' for one in users)]
    body += [f"<h2>{text(heading)}</h2>\n{_nested(sentences)}" for heading, sentences in parts]
    body += [*_distributions(output.shown_totals(comparison))]
    return document(title, body, _footer(), look())


def sweep_page(one: Sweep) -> str:
    """Return the page of a sweep: a table and a picture of each device."""
    title = f"Sweep of {one.setting}" if one.setting else f"{len(one.spans)} captures"
    body = [f"<h1>{text(title)}</h1>", *(f'<p class="verdict lost">{text(w)}</p>' for w in output.sweep_warnings(one))]
    return document(title, [*body, *map(_swept, output.shown_tables(one))], _footer(), look())


def _swept(one: SweepTable) -> str:
    names = [output.entry_name(entry) for entry in one.entries]
    columns = {column: [entry.values[column] for entry in one.entries] for column in COLUMNS}
    rows = [
        (text(name), *(text(output.sweep_cell(column, entry.values[column])) for column in COLUMNS))
        for name, entry in zip(names, one.entries, strict=True)
    ]
    times = {column: columns[column] for column in ("p50", "p99", "max")}
    rates = {column: columns[column] for column in ("IOPS", "slow/day")}
    title = output.sweep_title(one)
    return (
        f"<h2>{text(one.device or 'all devices')}</h2>\n"
        f"{table(text(title), (text(one.setting or 'capture'), *COLUMNS), rows)}"
        f"{listed(map(text, output.trends(one)))}"
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


def _distributions(changes: Sequence[SeriesChange]) -> Iterator[str]:
    """Yield the table of quantiles and the pictures of A and of B."""
    if not changes:
        return
    heads = ("", "I/Os", *(shift.name for shift in changes[0].shifts))
    rows = [row for one in changes for row in ([text(verdict.subject(one))], *_rows(one))]
    yield f"<h2>Distributions</h2>\n{table('Quantiles of A and of B', heads, rows)}"
    for one in changes:
        yield f"<h3>{text(verdict.subject(one))}</h3>"
        for name, side, other in (("A", one.a, one.b), ("B", one.b, one.a)):
            yield figure(histogram(f"{verdict.subject(one)} of {name}", side, other), f"{name}: I/Os by latency")


def _rows(one: SeriesChange) -> list[list[str]]:
    return [list(map(text, row)) for row in output.quantile_rows(one)]


def _footer() -> str:
    return (
        f'<footer class="small">Made by latmon {text(__version__)} from recordings; the numbers are also in '
        f"`latmon diff --json` of them ({output.SCHEMA}).</footer>\n"
    )
