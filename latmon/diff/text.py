"""A comparison as text for a ticket: 80 columns, no colour, the verdict first, a sentence for each that changed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from latmon.diff import verdict
from latmon.diff.burden import Burden, Unlike, unlike
from latmon.diff.comparison import Change, Comparison, devices_of
from latmon.diff.evidence import ALPHA
from latmon.diff.setting import Difference, differing
from latmon.diff.stretch import Stretch
from latmon.diff.sweep import COLUMNS, Sweep
from latmon.words import MINUTE_US, duration, rate, spelled, whole

WIDTH = 80
_MOST = 40
"""Sentences of one kind; what is beyond is counted."""
_SHORT = 0.3
_ROWS = 12
"""Of the table: what changed, then the first of the others."""


def render(comparison: Comparison) -> str:
    """The whole text."""
    a, b = comparison.a, comparison.b
    lines = [*_said(f"A  {_named(a)}", 3), *_said(f"B  {_named(b)}", 3), ""]
    for part in (loads(unlike(a, b)), warnings(comparison), _verdicts(comparison), _settings(a, b), _only(comparison)):
        lines += [line for said in part for line in _said(said)]
        if part:
            lines.append("")
    lines += [line for said in _how(comparison) for line in _said(said)]
    return "\n".join([*lines, "", *_table(comparison)]).rstrip() + "\n"


def loads(some: Sequence[Unlike]) -> list[str]:
    """Loads that differ, said first: latencies compare unlike things then."""
    if not some:
        return []
    first = "the loads differ, so the latencies below are of unlike work:"
    return _capped([first, *(f"  {one.device}: {', '.join(_load(one))}" for one in some)])


def warnings(comparison: Comparison) -> list[str]:
    """What makes the two hard to compare."""
    a, b = comparison.a, comparison.b
    said = []
    if a.origin.latency_from != b.origin.latency_from:
        said.append(
            f"totals begin at another point: A's at {a.origin.latency_from or 'unknown'} (tier {a.origin.tier or '-'}),"
            f" B's at {b.origin.latency_from or 'unknown'} (tier {b.origin.tier or '-'}); compare their stages instead."
        )
    for name, one in (("A", a), ("B", b)):
        if one.lost or one.gaps:
            said.append(f"{name} is incomplete: {_many(one.gaps, 'gap')}, {_many(one.lost, 'event')} lost.")
        if one.is_live:
            said.append(f"{name} is still being written: what comes later is not in it.")
        if one.damage:
            said.append(f"{name} is damaged: {one.damage[0]}")
        if one.left_out:
            said.append(f"of {name} some series are left out: there are too many.")
    if comparison.tested and comparison.alike > _SHORT:
        said.append(
            "stretches that follow each other resemble each other as far as these captures reach: longer ones would"
            " tell more, and a slow drift can't be told from a change."
        )
    return said


def render_sweep(sweeps: Sequence[Sweep], warned: Sequence[str]) -> str:
    """The table of more than two captures."""
    lines: list[str] = []
    for one in sweeps:
        lines += [*_sweep(one), ""]
    lines += [line for said in warned for line in _said(said)]
    return "\n".join(lines).rstrip() + "\n"


def _sweep(one: Sweep) -> Iterator[str]:
    by = f" by {one.setting}" if one.setting else ""
    yield f"{one.device or 'all devices'}{by}"
    name = max([len("capture"), *(len(entry.name) for entry in one.entries)])
    name = min(name, WIDTH - 9 * len(COLUMNS) - 2)
    yield f"  {'capture':<{name}}" + "".join(f"{column:>9}" for column in COLUMNS)
    for entry in one.entries:
        cells = (_value(column, entry.values[column]) for column in COLUMNS)
        yield f"  {entry.name[:name]:<{name}}" + "".join(f"{text:>9}" for text in cells)
    for trend in one.trends:
        what = "throughput" if trend.column == "MB/s" else trend.column
        by = one.setting.split()[-1] + " rises" if one.setting else "from each to the next"
        told = f"{what} {'rises' if trend.rises else 'falls'} {'as ' if one.setting else ''}{by}"
        if trend.sure:
            told += f" (p {trend.p:.3f})"
        else:
            told += f" (p {trend.p:.2g}: {len(one.entries)} captures are too few to be sure; it takes 5)"
        yield from _said(told, 2, 2)


def _value(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    return rate(value) if column in ("MB/s", "IOPS") else duration(value)


def _verdicts(comparison: Comparison) -> list[str]:
    """Devices that changed, then the ones of which nothing can be told; the rest in one sentence."""
    if not comparison.tested:
        return _capped([verdict.sentence(one, comparison) for one in comparison.changes])
    totals = [one for one in comparison.changes if one.series.stage == "total"]
    stages = [one for one in comparison.changes if one.series.stage != "total"]
    said = [verdict.sentence(one, comparison) for one in (*_worst(totals), *_worst(stages))]
    unknown = [one for one in totals if one.where == "unknown"]
    if unknown:
        why = sorted({part.why for one in unknown for part in (one.body, one.tail)})
        said.append(f"not enough to tell: {', '.join(map(verdict.subject, unknown[:_MOST]))} ({'; '.join(why[:3])})")
    still = [one for one in totals if one.where == "none"]
    if still:
        said.append(f"no difference found: {', '.join(map(verdict.subject, still[:_MOST]))}")
        said.append(f"  of {verdict.subject(still[0])} {verdict.seen(still[0])}")
    return _capped(said) or ["the two have no I/O of one kind on one device: nothing can be compared"]


def _worst(some: Sequence[Change]) -> list[Change]:
    """Those that changed, the furthest first."""
    return sorted((one for one in some if one.changed), key=_far, reverse=True)


def _far(change: Change) -> float:
    found = [one.ratio.value for one in change.shifts if one.ratio is not None]
    return max((max(value, 1 / value) for value in found), default=1.0)


def _settings(a: Stretch, b: Stretch) -> list[str]:
    found = differing(a, b)
    if not found:
        told = bool(a.settings and b.settings)
        return ["settings: no difference" if told else "settings: not in both files, as far as they tell no difference"]
    return _capped(["settings that differ (A -> B):", *map(setting, found)])


def setting(one: Difference) -> str:
    """`module vmd max_vec: 2 -> 8`, indented."""
    return f"  {one.section} {one.name}: {one.a or '(none)'} -> {one.b or '(none)'}"


def _only(comparison: Comparison) -> list[str]:
    shared = {one.series.device for one in comparison.changes}
    said = []
    for name, some in (("A", comparison.only_a), ("B", comparison.only_b)):
        names = [one for one in devices_of(some) if one not in shared]
        if names:
            said.append(f"only in {name}: {', '.join(names[:_MOST])}")
    return said


def _how(comparison: Comparison) -> list[str]:
    if not comparison.tested:
        return [f"{verdict.too_few(comparison)} of each: what is told above is what was seen, not what is sure."]
    how = "; ".join(f"{one.in_a} and {one.in_b} blocks for the {name}" for name, one in comparison.lengths.items())
    said = f"{comparison.rows} questions, {how}: the chance of any false alarm in all of this is {ALPHA:.0%}."
    return [f"{said} Intervals are of each number by itself. docs/DIFF.md"]


def _table(comparison: Comparison) -> Iterator[str]:
    """Quantiles of the totals, A above B."""
    totals = [one for one in comparison.changes if one.series.stage == "total"]
    totals = [*_worst(totals), *(one for one in totals if not one.changed)][:_ROWS]
    if not totals:
        return
    yield f"{'':<24}{'I/Os':>9}" + "".join(f"{shift.name:>11}" for shift in totals[0].shifts)
    for one in totals:
        for at, (name, count) in enumerate((("A", one.a.count), ("B", one.b.count))):
            label = verdict.subject(one) if name == "A" else ""
            cells = "".join(f"{verdict.sides(shift)[at]:>11}" for shift in one.shifts)
            yield f"{label[:21]:<22}{name} {whole(count):>9}{cells}"


def _named(one: Stretch) -> str:
    length = one.us / 1e6
    span = f"{length:.0f} s" if one.us < MINUTE_US else f"{spelled(one.us)}"
    return f"{one.name}: {one.origin.host}, {one.origin.kernel}, {span} in {_many(one.windows, 'window')}"


def _load(one: Unlike) -> Iterator[str]:
    def told(side: Burden, what: str) -> str:
        return {"IOPS": rate(side.iops), "mix": f"{side.reads:.0%} reads", "size": f"{side.size / 1024:.3g} KiB"}[what]

    for what in one.what:
        yield f"{what} {told(one.a, what)} -> {told(one.b, what)}"


def _capped(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST else [*lines[:_MOST], f"... and {len(lines) - _MOST} more (--json has all)"]


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _said(text: str, hanging: int = 4, indent: int = 0) -> list[str]:
    begin = " " * max(indent, len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.strip(), WIDTH, initial_indent=begin, subsequent_indent=begin + " " * hanging, break_on_hyphens=False
    ) or [""]
