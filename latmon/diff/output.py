"""A comparison as text for a ticket (80 columns) and as JSON (schema latmon.diff/1)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from latmon.diff import verdict
from latmon.diff.blocks import CaptureSpan
from latmon.diff.comparison import (
    COLUMNS,
    Comparison,
    Entry,
    PartChange,
    SeriesChange,
    Shift,
    Sweep,
    SweepTable,
    devices_of,
    is_number,
    runs_of,
)
from latmon.diff.conditions import (
    DeviceLoad,
    Difference,
    FindingsChange,
    LoadDifference,
    ProcessDifference,
    UserView,
    device_load,
    differing,
    findings_change,
    unlike,
    unlike_cgroups,
    unlike_files,
    unlike_kinds,
    unlike_processes,
    user_views,
)
from latmon.diff.hypotheses import POWER, TAIL_SHARE
from latmon.diff.statistics import ALPHA
from latmon.model.histogram import MAX_US
from latmon.model.stages import called
from latmon.support.units import MINUTE_US, UNKNOWN, counted, duration, in_words, part, rate, rfc3339, spelled, whole

WIDTH = 80
_MOST = 40
"""Sentences of one kind; further ones are counted."""
_MOST_SETTINGS = 16
"""Lines of settings, which come before the findings."""
_SHORT = 0.3
_FEW = 3
"""Devices that are named."""
_STAGES = 6
"""Sentences on single stages; the stage that explains a change is at the top already."""
_SAME = 2
"""Tables of a sweep with one device: that of all devices is the same."""
_BAR_CELLS = 12
_LEAST_FOR_A_RATE = 20
"""Slow I/Os that are said per day: 13 of 20 s were 51,900 a day, as many as one burst has."""
_DEVICE = "device "
"""Begin of the names of a device's settings."""
_LIMITS = ("nr_requests", "queue_depth")
"""Settings that limit the I/Os in flight."""
_TIMES = {"p50", "p99", "p99.9", "max"}
_ROWS = 12
"""Rows of the table: series that changed, then others."""


def render(comparison: Comparison) -> str:
    """Return the comparison as text."""
    lines: list[str] = []
    for heading, sentences in paragraphs(comparison):
        hanging = 3 if heading == SIDES else 4
        lines += [*(line for sentence in sentences for line in _wrapped(sentence, hanging)), ""]
    return "\n".join([*lines, *_table(comparison)]).rstrip() + "\n"


USERS, SIDES, METHOD = "For the users", "Captures", "Method"
SETTINGS, LOADS, WARNINGS, VERDICTS = "Settings", "Loads", "Warnings", "Verdicts"


def paragraphs(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return the paragraphs in their order: a heading, which the text leaves out, and sentences.

    A sentence that begins with blanks belongs to the one before it. What changed for the users comes first, then the
    stage, then the settings; tails come before the body of the distributions.
    """
    a, b = comparison.a, comparison.b
    parts = [
        (USERS, [for_users(user_views((a, b))), *raised_limits(a, b)]),
        (SIDES, [f"A  {_named(a)}", f"B  {_named(b)}"]),
        ("Longest I/Os and causes", verdict.lead(comparison)),
        (SETTINGS, _settings(a, b)),
        ("Findings", _findings(findings_change(a, b))),
        (LOADS, loads(unlike(a, b))),
        ("Cgroups, processes and files", _who(a, b)),
        (WARNINGS, warnings(comparison)),
        ("Runs", _runs(a, b)),
        (VERDICTS, _verdicts(comparison)),
        ("Devices of one side", _only(comparison)),
        (METHOD, _how(comparison)),
    ]
    return [(heading, sentences) for heading, sentences in parts if sentences]


def for_users(views: Sequence[UserView]) -> str:
    """Return what changed for the users of the spans, from the first to the last, in one sentence.

    Left out are slow I/Os where no span has any, those in flight where none is older than any that completed, and rates
    where no span has a measured length.
    """
    parts = []
    if any(one.above for one in views):
        bar = spelled(views[0].above_us)
        counts = ["-" if one.above is None else f"{one.above:,}" for one in views]
        slow = " -> ".join(_per_day(one) for one in views)
        most = max(one.above or 0 for one in views)
        if most >= _LEAST_FOR_A_RATE and any(one.per_day is not None for one in views):
            parts.append(f"I/Os of {bar} or more per day: {slow} (counted: {', '.join(counts)})")
        else:
            parts.append(f"I/Os of {bar} or more: {' -> '.join(counts)}")
    parts.append(f"the longest completed I/O: {' -> '.join(map(_longest, views))}")
    if any(one.is_stuck for one in views):
        parts.append(f"in flight at the end: {' -> '.join(map(_oldest, views))}")
    if any(one.iops is not None for one in views):
        parts.append(f"IOPS: {' -> '.join('not known' if one.iops is None else rate(one.iops) for one in views)}")
    return "; ".join(parts)


def raised_limits(a: CaptureSpan, b: CaptureSpan) -> list[str]:
    """Return why I/Os may take longer in B though it is better: more of them are let into the device at once."""
    raised = []
    for section, before in a.settings.items():
        later = b.settings.get(section, {})
        for name in _LIMITS:
            values = before.get(name, ""), later.get(name, "")
            if section.startswith(_DEVICE) and _is_less(*values):
                raised.append(f"{section.removeprefix(_DEVICE)} {name} {' -> '.join(values)}")
    if not raised:
        return []
    what = "with the higher limit I/Os wait where their latency is measured, before they waited ahead of it"
    return [f"{', '.join(raised[:_FEW])}: {what}; IOPS tell whether it is better"]


def _is_less(before: str, later: str) -> bool:
    return before.isdecimal() and later.isdecimal() and int(before) < int(later)


def _findings(change: FindingsChange | None) -> list[str]:
    """Return the findings that are gone and new; nothing where neither side has one."""
    if change is None or not any(change):
        return []
    lines = [f"finding gone: {one}" for one in change.gone] + [f"finding new: {one}" for one in change.new]
    lines += [f"findings of both: {', '.join(change.both)}"] if change.both else []
    return _capped([*lines, *(f"finding of one side: {one}" for one in change.unknown)])


def _per_day(one: UserView) -> str:
    if one.above is None:
        return "not timed"
    return "not known" if one.per_day is None else whole(round(one.per_day))


def _longest(one: UserView) -> str:
    if one.longest_us is None:
        return "not timed"
    if one.longest_us > MAX_US and not one.longest_is_exact:
        return "not known"
    return f"{'' if one.longest_is_exact else 'at most '}{spelled(one.longest_us)}"


def _oldest(one: UserView) -> str:
    if one.oldest_us is None or (one.unknown_age and one.oldest_us <= (one.longest_us or 0)):
        return f"{one.unknown_age:,} of unknown age" if one.unknown_age else "none known"
    return f"the oldest {'' if one.oldest_is_exact else 'at least '}{spelled(one.oldest_us)}"


def loads(some: Sequence[LoadDifference]) -> list[str]:
    """Return the loads that differ: latencies of different work compare badly. Equal devices are one line."""
    if not some:
        return []
    first = "the loads differ, so the latencies below are of different work:"
    equal: dict[str, list[str]] = {}
    for one in some:
        equal.setdefault(", ".join(_load(one)), []).append(one.device)
    return _capped([first, *(f"  {_devices(names)}: {how}" for how, names in equal.items())])


def _who(a: CaptureSpan, b: CaptureSpan) -> list[str]:
    """Return the cgroups, the processes, the operations on files and the kinds of I/Os that differ."""
    groups = [f"  {one.name}: {rate(one.a)} -> {rate(one.b)} IOPS" for one in unlike_cgroups(a, b)]
    processes = [_process(one) for one in unlike_processes(a, b)]
    files = [f"  {one.name}: {spelled(one.a)} -> {spelled(one.b)} in the mean" for one in unlike_files(a, b)]
    kinds = [
        f"  {device}: " + ", ".join(f"{one.name} {part(one.a)} -> {part(one.b)}" for one in some)
        for device, some in unlike_kinds(a, b).items()
    ]
    heads = {
        "cgroups that issue twice as many I/Os on one side:": groups,
        "processes whose share and rate of I/Os, or mean latency, is twice as large on one side:": processes,
        "operations on files that take twice as long:": files,
        "shares of small or of sequential I/Os that differ:": kinds,
    }
    return [line for head, some in heads.items() if some for line in _capped([head, *some])]


def _process(one: ProcessDifference) -> str:
    """Return a line on a process: its shares, and its mean latencies where both sides have one."""
    of = "the traced I/Os" if one.of == "ios" else "the bytes of processes"
    means = () if one.mean_a is None or one.mean_b is None else (one.mean_a, one.mean_b)
    mean = f"; {' -> '.join(map(spelled, means))} in the mean" if means else ""
    return f"  {one.name or UNKNOWN}: {part(one.a)} -> {part(one.b)} of {of}{mean}"


def warnings(comparison: Comparison) -> list[str]:
    """Return the reasons why the two are hard to compare."""
    a, b = comparison.a, comparison.b
    sentences = []
    if a.origin.latency_from != b.origin.latency_from:
        sentences.append(
            f"totals begin at another point: A's at {a.origin.latency_from or 'unknown'} (tier {a.origin.tier or '-'}),"
            f" B's at {b.origin.latency_from or 'unknown'} (tier {b.origin.tier or '-'}); compare their stages instead."
        )
    for name, one in (("A", a), ("B", b)):
        sentences += _assumed(name, one)
        if one.lost or one.gaps:
            sentences.append(f"{name} is incomplete: {counted(one.gaps, 'gap')}, {counted(one.lost, 'event')} lost.")
        if one.is_live:
            sentences.append(f"{name} is still being written: what comes later is not in it.")
        if one.damage:
            sentences.append(f"{name} is damaged: {one.damage[0]}")
        if one.left_out:
            sentences.append(f"of {name} some series are left out: there are too many.")
    sentences += _unlike_stages(comparison)
    if comparison.tested and comparison.correlation > _SHORT:
        sentences.append(
            "successive blocks correlate, however long they are: a slow drift can't be distinguished from a change;"
            " longer captures are needed."
        )
    return sentences


def _assumed(name: str, one: CaptureSpan) -> list[str]:
    """Return the warnings that the length of a span was assumed."""
    why = "rates are left out, and loads are not compared; `latmon import --interval` sets the length."
    return [f"of {name} {text}: {why}" for text in one.assumed_lengths]


def _unlike_stages(comparison: Comparison) -> list[str]:
    """Return a sentence for stages that include different stages in A and in B."""
    found: dict[str, list[str]] = {}
    for series, a, b in comparison.unlike:
        names = [called(series.stage, inside).both for inside in (a, b)]
        if names[0] != names[1]:
            found.setdefault(f"{names[0]} in A, {names[1]} in B", []).append(f"{series.device} {series.op}")
    return [
        f"{series[0]}{f' and {len(series) - 1} more' if len(series) > 1 else ''}: the driver's time is {how}; "
        "the two are not compared."
        for how, series in found.items()
    ]


def render_sweep(one: Sweep) -> str:
    """Return the tables and plots of a sweep."""
    lines: list[str] = []
    for table in shown_tables(one):
        lines += [*_sweep(table), ""]
    lines += [line for sentence in sweep_warnings(one) for line in _wrapped(sentence)]
    return "\n".join(lines).rstrip() + "\n"


def shown_tables(one: Sweep) -> list[SweepTable]:
    """Return the tables that are shown: of a single device that of all is enough."""
    tables = one.tables
    return tables[:1] if len(tables) == _SAME else tables


def sweep_warnings(one: Sweep) -> list[str]:
    """Return the warnings of a sweep: totals should begin at one point, and windows have a length of their own."""
    begins = sorted({span.origin.latency_from or "unknown" for span in one.captures})
    different = [f"totals begin at different points: {', '.join(begins)}."] if len(begins) > 1 else []
    return [*different, *(text for span in one.captures for text in _assumed(span.name, span))]


def _sweep(one: SweepTable) -> Iterator[str]:
    yield sweep_title(one)
    names = [entry_name(entry) for entry in one.entries]
    wide = min(max([len("capture"), *map(len, names)]), WIDTH - 9 * len(COLUMNS) - 2)
    yield f"  {'capture':<{wide}}" + "".join(f"{column:>9}" for column in COLUMNS)
    for name, entry in zip(names, one.entries, strict=True):
        cells = (sweep_cell(column, entry.values[column]) for column in COLUMNS)
        yield f"  {name[:wide]:<{wide}}" + "".join(f"{text:>9}" for text in cells)
    for sentence in trends(one):
        yield from _wrapped(sentence, 2, 2)
    yield from _plot(one, [name[:wide] for name in names], wide)


def sweep_title(one: SweepTable) -> str:
    """Return `sda by queue_depth (slow: I/Os of 20 ms or more)`."""
    by = f" by {one.setting}" if one.setting else ""
    return f"{one.device or 'all devices'}{by} (slow: I/Os of {spelled(one.above_us)} or more)"


def entry_name(one: Entry) -> str:
    """Return the value or name of a row, and how many captures it joins."""
    return one.name if one.runs == 1 else f"{one.name} ({one.runs} runs)"


def trends(one: SweepTable) -> Iterator[str]:
    """Yield the columns that only rise or only fall, those of the same certainty in one sentence."""
    ordered = one.setting and all(is_number(entry.name) for entry in one.entries)
    by = f"as {one.setting.split()[-1]} rises" if ordered else "from each to the next"
    found: dict[str, dict[bool, list[str]]] = {}
    for trend in one.trends:
        few = f"p {trend.p:.2g}: {len(one.entries)} captures are too few to be sure; it takes 5"
        what = "throughput" if trend.column == "MB/s" else trend.column
        known = f"p {trend.p:.3f}" if trend.sure else few
        found.setdefault(known, {}).setdefault(trend.rises, []).append(what)
    for why, some in found.items():
        verbs = {rises: ("rise" if rises else "fall") + "s" * (len(names) == 1) for rises, names in some.items()}
        parts = (f"{', '.join(names)} {verbs[rises]}" for rises, names in some.items())
        yield f"{', '.join(parts)} {by} ({why})"


def _plot(one: SweepTable, names: Sequence[str], wide: int) -> Iterator[str]:
    """Yield a line per row: its IOPS as a bar, its p50, p99 and maximum on a logarithmic axis."""
    times = [us for entry in one.entries for us in marked(entry).values()]
    if not times:
        return
    cells = WIDTH - wide - _BAR_CELLS - 8
    low, high = math.log(min(times)), math.log(max(times))
    most = max(entry.values["IOPS"] or 0 for entry in one.entries)
    ends = f"{spelled(min(times))} to {spelled(max(times))}, log: {MARKED}"
    yield f"  {'':<{wide}}  {'IOPS':<{_BAR_CELLS}}  {ends}"
    for name, entry in zip(names, one.entries, strict=True):
        row = [" "] * cells
        for mark, us in marked(entry).items():
            row[round((math.log(us) - low) / ((high - low) or 1) * (cells - 1))] = mark
        bar = "#" * math.ceil((entry.values["IOPS"] or 0) / (most or 1) * _BAR_CELLS)
        yield f"  {name:<{wide}}  {bar:<{_BAR_CELLS}} |{''.join(row)}|"


_MARKS = {"5": "p50", "9": "p99", "M": "max"}
MARKED = ", ".join(f"{mark} {column}" for mark, column in _MARKS.items())
"""Legend of the plot of a sweep."""


def marked(one: Entry) -> dict[str, float]:
    """Return the known times in us of a row's plot, by their marks."""
    return {mark: us for mark, column in _MARKS.items() if (us := one.values[column])}


def _worded(column: str, value: float | None) -> str:
    return in_words(sweep_cell(column, value)) if column in _TIMES else sweep_cell(column, value)


def sweep_cell(column: str, value: float | None) -> str:
    """Return a value of a sweep in its column's unit."""
    if value is None:
        return UNKNOWN
    return duration(value) if column in _TIMES else rate(value)


def _verdicts(comparison: Comparison) -> list[str]:
    """Return sentences: devices that changed, those with too little data, the rest in one sentence."""
    if not comparison.tested:
        return _capped([verdict.sentence(one, comparison) for one in comparison.changes])
    totals = [one for one in comparison.changes if one.series.stage == "total"]
    stages = [one for one in comparison.changes if one.series.stage != "total"]
    sentences = [verdict.sentence(one, comparison) for one in (*_worst(totals), *_worst(stages)[:_STAGES])]
    left = len(_worst(stages)) - _STAGES
    sentences += [f"... and {left} more stages changed (--json has all)"] if left > 0 else []
    unknown = [one for one in totals if one.where == "unknown"]
    if unknown:
        why = sorted({part.why for one in unknown for part in (one.body, one.tail)})
        sentences.append(f"not enough data: {', '.join(map(verdict.subject, unknown[:_MOST]))} ({'; '.join(why[:3])})")
    still = [one for one in totals if one.where == "none"]
    for other, has in (("", False), ("other ", True)):
        some = [one for one in still if (one.extreme is not None) is has]
        if some:
            sentences.append(f"no {other}difference found: {', '.join(map(verdict.subject, some[:_MOST]))}")
    if still:
        sentences.append(f"  of {verdict.subject(still[0])} {verdict.seen(still[0])}")
    return _capped(sentences) or ["the two have no I/O of one kind on one device: nothing can be compared"]


def _worst(some: Sequence[SeriesChange]) -> list[SeriesChange]:
    """Return the series that changed: those whose tail did before the others, those that changed most first."""
    return sorted((one for one in some if one.changed), key=lambda one: (one.where != "body", _far(one)), reverse=True)


def _far(change: SeriesChange) -> float:
    found = [one.ratio.value for one in change.shifts if one.ratio is not None]
    return max((max(value, 1 / value) for value in found), default=1.0)


def _settings(a: CaptureSpan, b: CaptureSpan) -> list[str]:
    found = differing(a, b)
    if not found:
        reported = bool(a.settings and b.settings)
        return [
            "settings: no difference" if reported else "settings: not known of both sides; those known don't differ"
        ]
    return _capped(["settings that differ (A -> B):", *(f"  {one}" for one in settings(found))], _MOST_SETTINGS)


def settings(found: Sequence[Difference]) -> list[str]:
    """Return `module vmd max_vec: 2 -> 8` of each; devices with the same difference are one line."""
    equal: dict[str, list[str]] = {}
    for one in found:
        kind, _, device = one.section.partition(" ")
        how = f"{one.name}: {one.a or '(none)'} -> {one.b or '(none)'}"
        if kind == "device":
            equal.setdefault(how, []).append(device)
        else:
            equal.setdefault(f"{one.section} {how}", [])
    return [f"{_kind(names)}{_devices(names)} {how}" if names else how for how, names in equal.items()]


def _kind(names: Sequence[str]) -> str:
    """Return the word before devices that are named; their number has it already."""
    return "" if len(names) > _FEW else "device " if len(names) == 1 else "devices "


def _devices(names: Sequence[str]) -> str:
    """Return their names, of many the first of them and how many they are."""
    return ", ".join(names) if len(names) <= _FEW else f"{len(names):,} devices ({', '.join(names[:_FEW])}, ...)"


def _runs(a: CaptureSpan, b: CaptureSpan) -> list[str]:
    """Return the numbers of each run, and how far the runs of a side differ; nothing without several runs."""
    tables, spreads = runs_of(a, b)
    if not tables:
        return []
    each = [(name, one) for name, table in zip("AB", tables, strict=True) for one in table.entries]
    numbers = (", ".join(f"{column} {_worded(column, one.values[column])}" for column in COLUMNS) for _, one in each)
    lines = [f"  {name} {one.name}: {text}" for (name, one), text in zip(each, numbers, strict=True)]
    lines = _capped([f"runs, all devices (slow: I/Os of {spelled(tables[0].above_us)} or more):", *lines])
    for direction, begin, end in (
        (1, "every run of B is above every run of A in ", ""),
        (-1, "every run of B is below every run of A in ", ""),
        (0, "the runs of A and B overlap in ", ": there the sides may differ no more than runs do"),
    ):
        some = [
            f"{one.column} ({_range(one.column, one.a)} -> {_range(one.column, one.b)})"
            for one in spreads
            if one.direction == direction and one.a != one.b
        ]
        lines += [begin + ", ".join(some) + end] if some else []
    for name, side in (("A", a), ("B", b)):
        found = [text for run in side.runs[1:] for text in settings(differing(side.runs[0], run))]
        lines += [f"settings differ between the runs of {name}: {'; '.join(dict.fromkeys(found))}"] if found else []
    return lines


def _range(column: str, ends: tuple[float, float]) -> str:
    low, high = (_worded(column, value) for value in ends)
    return low if low == high else f"{low} to {high}"


def _only(comparison: Comparison) -> list[str]:
    shared = {one.series.device for one in comparison.changes}
    sentences = []
    for name, some in (("A", comparison.only_a), ("B", comparison.only_b)):
        names = [one for one in devices_of(some) if one not in shared]
        if names:
            sentences.append(f"only in {name}: {', '.join(names[:_MOST])}")
    return sentences


def _how(comparison: Comparison) -> list[str]:
    if not comparison.tested:
        return [f"{verdict.too_few(comparison)} of each: the differences above are not tested."]
    how = "; ".join(f"{one.in_a} and {one.in_b} blocks for the {name}" for name, one in comparison.lengths.items())
    text = f"{comparison.rows} tests, {how}: the chance of any false alarm in all of this is {ALPHA:.0%}."
    return [f"{text} Each interval is for its own number. docs/DIFF.md"]


def shown_totals(comparison: Comparison) -> list[SeriesChange]:
    """Return the totals that have numbers in the output."""
    return ranked(comparison)[:_ROWS]


def ranked(comparison: Comparison) -> list[SeriesChange]:
    """Return the totals: those that changed, tails before bodies, then others."""
    totals = [one for one in comparison.changes if one.series.stage == "total"]
    return [*_worst(totals), *(one for one in totals if not one.changed)]


def quantile_rows(one: SeriesChange) -> list[list[str]]:
    """Return the rows of A and of B: the side, its I/Os and quantiles."""
    sides = (("A", one.a.count), ("B", one.b.count))
    return [[name, whole(n), *(verdict.sides(it)[at] for it in one.shifts)] for at, (name, n) in enumerate(sides)]


def _table(comparison: Comparison) -> Iterator[str]:
    """Yield quantiles of the totals, A above B."""
    totals = shown_totals(comparison)
    if not totals:
        return
    yield f"{'':<24}{'I/Os':>9}" + "".join(f"{shift.name:>11}" for shift in totals[0].shifts)
    for one in totals:
        for name, count, *values in quantile_rows(one):
            label = verdict.subject(one) if name == "A" else ""
            yield f"{label[:21]:<22}{name} {count:>9}" + "".join(f"{value:>11}" for value in values)


def _named(one: CaptureSpan) -> str:
    length = f"{one.us / 1e6:.0f} s" if one.us < MINUTE_US else spelled(one.us)
    span = "" if one.seconds is None else f"{length} in "
    runs = f"{len(one.runs)} runs: " if one.runs else ""
    return f"{runs}{one.name}: {one.origin.host}, {one.origin.kernel}, {span}{counted(one.windows, 'window')}"


def _load(one: LoadDifference) -> Iterator[str]:
    def reported(side: DeviceLoad, what: str) -> str:
        return {
            "IOPS": rate(side.iops or 0.0),
            "mix": f"{side.reads:.0%} reads",
            "size": f"{side.size / 1024:.3g} KiB",
        }[what]

    for what in one.what:
        yield f"{what} {reported(one.a, what)} -> {reported(one.b, what)}"


def _capped(lines: list[str], most: int = _MOST) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"... and {len(lines) - most} more (--json has all)"]


def _wrapped(text: str, hanging: int = 4, indent: int = 0) -> list[str]:
    begin = " " * max(indent, len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.strip(), WIDTH, initial_indent=begin, subsequent_indent=begin + " " * hanging, break_on_hyphens=False
    ) or [""]


SCHEMA = "latmon.diff/1"
_WAYS = {1: "slower", -1: "faster", 0: "none"}


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Return the JSON of two spans."""
    a, b = comparison.a, comparison.b
    return {
        "schema": SCHEMA,
        "captures": [_period(a), _period(b)],
        "method": {
            "tested": comparison.tested,
            "alpha": ALPHA,
            "questions": comparison.rows,
            "blocks": {name: [one.in_a, one.in_b] for name, one in comparison.lengths.items()},
            "block_correlation": {name: round(one.correlation, 3) for name, one in comparison.lengths.items()},
            "power": POWER,
        },
        "users": [asdict(one) for one in user_views((a, b))],
        "findings": None if (change := findings_change(a, b)) is None else change._asdict(),
        "lead": verdict.lead(comparison),
        "warnings": warnings(comparison),
        "loads_differ": [asdict(one) for one in unlike(a, b)],
        **_who_keys(a, b),
        **_run_keys(a, b),
        "settings": [asdict(one) for one in differing(a, b)],
        "changes": [_change(one, comparison) for one in comparison.changes],
        "only_a": [one._asdict() for one in comparison.only_a],
        "only_b": [one._asdict() for one in comparison.only_b],
    }


def _who_keys(a: CaptureSpan, b: CaptureSpan) -> dict[str, Any]:
    """Return `cgroups_differ`, `processes_differ`, `files_differ` and `kinds_differ`: where both sides have them."""
    found: dict[str, Any] = {}
    if a.issued and b.issued:
        found["cgroups_differ"] = [
            {"cgroup": one.name, "iops": [round(one.a, 3), round(one.b, 3)]} for one in unlike_cgroups(a, b)
        ]
    if a.processes and b.processes:
        found["processes_differ"] = [
            {
                "comm": one.name,
                "of": one.of,
                "share": [round(one.a, 3), round(one.b, 3)],
                "mean_us": [None if us is None else round(us, 1) for us in (one.mean_a, one.mean_b)],
            }
            for one in unlike_processes(a, b)
        ]
    if a.files and b.files:
        found["files_differ"] = [
            {"operation": one.name, "mean_us": [round(one.a, 1), round(one.b, 1)]} for one in unlike_files(a, b)
        ]
    if a.kinds and b.kinds:
        found["kinds_differ"] = [
            {"device": device, "kind": one.name, "share": [round(one.a, 3), round(one.b, 3)]}
            for device, some in unlike_kinds(a, b).items()
            for one in some
        ]
    return found


def summarise_sweep(one: Sweep) -> dict[str, Any]:
    """Return the JSON of a sweep."""
    return {
        "schema": SCHEMA,
        "captures": [_period(span) for span in one.captures],
        "sweep": [
            {
                "device": table.device or None,
                "setting": table.setting or None,
                "above_us": table.above_us,
                "rows": [_row(entry) for entry in table.entries],
                "trends": [asdict(trend) | {"significant": trend.sure} for trend in table.trends],
            }
            for table in one.tables
        ],
    }


def _row(one: Entry) -> dict[str, Any]:
    return {"name": one.name, **({"runs": one.runs} if one.runs > 1 else {}), **one.values}


def _run_keys(a: CaptureSpan, b: CaptureSpan) -> dict[str, Any]:
    """Return the key `runs` where a side has several."""
    tables, spreads = runs_of(a, b)
    if not tables:
        return {}
    sides = {name: [_row(one) for one in table.entries] for name, table in zip("ab", tables, strict=True)}
    ranges = [asdict(one) | {"direction": one.direction} for one in spreads]
    return {"runs": {"above_us": tables[0].above_us, **sides, "ranges": ranges}}


def _period(one: CaptureSpan) -> dict[str, Any]:
    return {
        "name": one.name,
        "host": one.origin.host,
        "kernel": one.origin.kernel,
        "backend": one.origin.backend,
        "tier": one.origin.tier or None,
        "latency_from": one.origin.latency_from or None,
        "start": rfc3339(one.start_wall),
        "end": rfc3339(one.end_wall),
        "measured_s": None if one.seconds is None else round(one.seconds, 6),
        "windows": one.windows,
        "gaps": one.gaps,
        "lost": one.lost,
        **({"damage": list(one.damage)} if one.damage else {}),
        "load": asdict(device_load(one)),
    }


def _change(one: SeriesChange, comparison: Comparison) -> dict[str, Any]:
    return {
        **one.series._asdict(),
        **({} if one.series.stage == "total" else {"of": "traced" if one.traced else "all"}),
        **({} if one.series.stage == "total" else {"includes": list(one.includes)}),
        "where": one.where if comparison.tested else "untested",
        "sentence": verdict.sentence(one, comparison),
        "count": [one.a.count, one.b.count],
        "shift_us": {shift.name: _shift(shift) for shift in one.shifts},
        **_led(one),
        "body": _moved(one.body),
        "tail": _moved(one.tail),
        "would_have_found": {
            "all_times": one.seen.body,
            "tail_times": one.seen.tail,
            "tail_share": TAIL_SHARE,
        },
    }


def _led(one: SeriesChange) -> dict[str, Any]:
    """Return the keys `extreme` and `cause`, as far as they exist."""
    found: dict[str, Any] = {}
    if (most := one.extreme) is not None:
        found["extreme"] = {
            "above_us": most.above_us,
            "count": list(most.count),
            "max_us": list(most.max_us),
            "stages": {stage: round(share, 6) for stage, share in most.stages.items()},
            "includes": {stage: list(inside) for stage, inside in most.includes.items()},
        }
    if (why := one.cause) is not None:
        found["cause"] = {
            "stage": why.stage,
            "includes": list(why.includes),
            "share": round(why.share, 6),
            "us_per_io": [None if us is None else round(us, 1) for us in why.us],
            "above_us": why.low_us,
        }
    return found


def _shift(one: Shift) -> dict[str, Any]:
    ratio = one.ratio
    interval = None if ratio is None else [round(ratio.low, 4), round(ratio.high, 4)]
    return {
        "a": one.a_us,
        "b": one.b_us,
        "ratio": None if ratio is None else round(ratio.value, 4),
        "interval": interval,
    }


def _moved(one: PartChange) -> dict[str, Any]:
    if one.direction is None:
        return {"changed": None, "why": one.why}
    return {
        "changed": bool(one.direction),
        "direction": _WAYS[one.direction],
        "p": None if one.p is None else round(one.p, 5),
        "above_us": one.cut_us,
        "share": [round(one.share_a, 8), round(one.share_b, 8)],
    }
