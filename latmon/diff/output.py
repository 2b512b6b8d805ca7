"""The report of a comparison as text for a ticket (80 columns), and as paragraphs for page and panel. Pure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

from latmon.analysis.neighbours import UNITS
from latmon.diff import verdict
from latmon.diff.comparison import COLUMNS, Shift, SweepRow, SweepTable, devices_of, is_number
from latmon.diff.conditions import (
    CgroupDifference,
    DeviceLoad,
    Difference,
    FindingsChange,
    KindDifference,
    LoadDifference,
    ProcessDifference,
    UserView,
)
from latmon.diff.hypotheses import FEWEST_EXTREME
from latmon.diff.report import Capture, Change, DiffReport, PairReport, Runs, SweepReport
from latmon.model.histogram import MAX_US
from latmon.model.stages import called
from latmon.support.text import line_width
from latmon.support.units import MINUTE_US, UNKNOWN, counted, duration, in_words, part, rate, show_size, spelled, whole

USERS, SIDES, METHOD = "For the users", "Captures", "Method"
SETTINGS, LOADS, WARNINGS, VERDICTS = "Settings", "Loads", "Warnings", "Verdicts"
SAME = "No difference found"
WIDTH = 80
_MOST = 40
"""Sentences of one kind; further ones are counted."""
_MOST_SETTINGS = 16
"""Lines of settings, which come before the findings."""
_FEW = 3
"""Devices that are named."""
_STAGES = 6
"""Sentences on single stages; the stage that explains a change is at the top already."""
_SAME = 2
"""Tables of a sweep with one device: that of all devices is the same."""
_BAR_CELLS = 12
_FAR_MORE = 3
"""Times as many slow I/Os: a reader would take `no difference` for a contradiction."""
_LEAST_FOR_A_RATE = 20
"""Slow I/Os that are said per day: 13 of 20 s were 51,900 a day, as many as one burst has."""
_FEW_PER_UNIT = 10
"""A rate below this has a decimal."""
_MOST_OF_IT = 0.5
"""Share of the time of very long I/Os from which on a stage explains them."""
_DEVICE = "device "
"""Begin of the names of a device's settings."""
_TIMES = {"p50", "p99", "p99.9", "max"}
_MARKS = {"5": "p50", "9": "p99", "M": "max"}
MARKED = ", ".join(f"{mark} {column}" for mark, column in _MARKS.items())
"""Legend of the plot of a sweep."""
_ROWS = 12
"""Rows of the table: series that changed, then others."""
_UNITS_S = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
"""Units of rates, with their seconds."""


def render(report: DiffReport) -> str:
    """Return the report as text."""
    lines = _sweep_lines(report) if isinstance(report, SweepReport) else _pair_lines(report)
    return "\n".join(lines).rstrip() + "\n"


def _pair_lines(report: PairReport) -> Iterator[str]:
    for heading, sentences in paragraphs(report):
        hanging = 3 if heading == SIDES else 4
        for sentence in sentences:
            yield from _wrapped(sentence, hanging)
        yield ""
    yield from _table(report)


def paragraphs(report: PairReport, device: str = "", *, named: int = _MOST) -> list[tuple[str, list[str]]]:
    """Return the paragraphs in their order: a heading, which the text leaves out, and sentences.

    A sentence that begins with blanks belongs to the one before it. The verdict comes first, then what changed for the
    users, the stage, the settings; tails come before the body of the distributions. `device`: comes before others.
    `named`: how many of those that did not change are named.
    """
    a, b = report.captures
    lengths = [capture.measured_s for capture in report.captures]
    users = for_users(report.users, lengths)
    parts = [
        (USERS, _for_users(report, device, users)),
        (SIDES, [f"A  {_named(a)}", f"B  {_named(b)}"]),
        ("Longest I/Os and causes", list(report.lead)),
        (SETTINGS, _settings(report)),
        ("Findings", _findings(report.findings)),
        (LOADS, _loads(report.loads_differ)),
        ("Cgroups, processes and files", _who(report)),
        (WARNINGS, list(report.warnings)),
        ("Runs", _runs(report.runs)),
        (VERDICTS, _verdicts(report, device)),
        (SAME, _unchanged(report, named)),
        ("Devices of one side", _only(report)),
        (METHOD, _how(report)),
    ]
    return [(heading, sentences) for heading, sentences in parts if sentences]


def _for_users(report: PairReport, device: str, users: str) -> list[str]:
    """Return the verdict, the findings that are gone where it has no direction, and what the users notice."""
    verdict_sentence = in_a_sentence(report, device)
    change = report.findings
    if change is not None and change.gone and not change.new and is_worse(report, device) is None:
        return [_gone(change.gone), verdict_sentence, users]
    named_limit = _limit_in_the_verdict(report, device)
    return [verdict_sentence, users, *_raised_limits([each for each in report.raised_limits if each != named_limit])]


def _gone(summaries: Sequence[str]) -> str:
    more = f" and {counted(len(summaries) - 1, 'more finding')}" if len(summaries) > 1 else ""
    return f"finding gone: {summaries[0]}{more}"


def in_a_sentence(report: PairReport, device: str = "") -> str:
    """Return the verdict: whether a difference is proven, and the stage that explains the largest one.

    `device`: its change is named where it has one, else the largest of all.
    """
    totals = _totals(report)
    if not report.method.tested:
        return f"no difference proven: {_too_little(report)}"
    changed = _worst(totals, device)
    longest = _longest_of_one_side(totals, device)
    if longest is not None:
        return _on_the_longest(longest, changed, report.users)
    if not changed:
        is_known = any(change.where == "none" for change in totals)
        return _no_difference(report.users) if is_known else "nothing proven: not enough data"
    limit = _limit_in_the_verdict(report, device)
    if limit is not None:
        waits = f"I/Os that waited ahead of it wait in {_device_of(limit)} now"
        return f"{_changed(limit)}: {waits}, so latencies can't tell which is better; IOPS can"
    first = changed[0]
    left = len(changed) - 1
    more = f"; {counted(left, 'more difference')}" if left else ""
    way = "slower" if _is_slower(first) else "faster"
    cause = first.cause
    explains = ""
    if cause is not None and None not in cause.us_per_io:
        explains = f", {called(cause.stage, cause.includes).sentence} explains it"
    return f"B is {way}{explains}: {_moved(first, _furthest(first))}{more}"


def is_worse(report: PairReport, device: str = "") -> bool | None:
    """Return whether B is worse by the verdict; None where it has no direction."""
    if not report.method.tested:
        return None
    totals = _totals(report)
    longest, changed = _longest_of_one_side(totals, device), _worst(totals, device)
    if longest is not None and longest.extreme is not None:
        return longest.extreme.slower == 1
    if not changed or _limit_in_the_verdict(report, device) is not None:
        return None
    return _is_slower(changed[0])


def _limit_in_the_verdict(report: PairReport, device: str) -> Difference | None:
    """Return the raised limit of the device of the verdict, if it is slower: its I/Os waited where none were timed.

    None where the verdict is on the longest I/Os, or nothing is proven.
    """
    totals = _totals(report)
    changed = _worst(totals, device)
    if not report.method.tested or not changed or _longest_of_one_side(totals, device) is not None:
        return None
    if not _is_slower(changed[0]):
        return None
    section = f"{_DEVICE}{changed[0].series.device}"
    return next((limit for limit in report.raised_limits if limit.section == section), None)


def _no_difference(users: Sequence[UserView]) -> str:
    """Return that no difference was found, and where the slow I/Os are far more on a side nevertheless, that side."""
    a, b = users[0], users[-1]
    most = max(a.above or 0, b.above or 0)
    if most < _LEAST_FOR_A_RATE or a.per_day is None or b.per_day is None:
        return "no difference found"
    side, many, few = ("B", b.per_day, a.per_day) if b.per_day > a.per_day else ("A", a.per_day, b.per_day)
    if many < _FAR_MORE * few:
        return "no difference found"
    has = f"has {many / few:.0f} times as many" if few else "alone has"
    return f"no difference proven, but {side} {has} I/Os of {spelled(a.above_us)} or more"


def _longest_of_one_side(totals: Sequence[Change], device: str) -> Change | None:
    """Return the change with the longest of the I/Os that one side alone has; None without any."""
    changes = [
        change for change in totals if change.extreme and change.extreme.count[change.extreme.slower] >= FEWEST_EXTREME
    ]
    return max(
        changes,
        key=lambda change: (change.series.device == device, max(change.extreme.max_us) if change.extreme else 0),
        default=None,
    )


def _on_the_longest(change: Change, changed: Sequence[Change], users: Sequence[UserView]) -> str:
    """Return the verdict where one side alone has very long I/Os, and a change in the other direction.

    The times are those of all I/Os, as in the sentence on what users saw, unless another series has the longest.
    """
    extreme = change.extreme
    assert extreme is not None  # noqa: S101  chosen by it
    is_slower = extreme.slower == 1
    stage = max(extreme.stages, key=lambda name: extreme.stages[name], default="")
    explains = ""
    if stage and extreme.stages[stage] >= _MOST_OF_IT:
        explains = f", {called(stage, extreme.includes.get(stage, ())).sentence} explains it"
    times = f"{change.subject} max {' -> '.join(map(spelled, extreme.max_us))}"
    of_all = tuple(view.longest_us for view in users)
    if of_all != extreme.max_us and of_all[extreme.slower] == extreme.max_us[extreme.slower]:
        times = f"{' -> '.join(map(_longest, users))} ({change.subject} in {'AB'[extreme.slower]})"
    text = f"B's longest I/Os are {'longer' if is_slower else 'shorter'}{explains}: {times}"
    against = next((change for change in changed if _is_slower(change) != is_slower), None)
    if against is None:
        return text
    return f"{text}; but {'faster' if is_slower else 'slower'}: {_moved(against, _furthest(against))}"


def _too_little(report: PairReport) -> str:
    """Return which side has too few windows, or why else nothing was tested."""
    few = [
        f"{name} has {capture.windows} of {UNITS} windows"
        for name, capture in zip("AB", report.captures, strict=True)
        if capture.windows < UNITS
    ]
    return " and ".join(few) or report.method.why_untested


def _is_slower(change: Change) -> bool:
    moved = _furthest(change)
    return (moved.b_us or 0) > (moved.a_us or 0)


def _furthest(change: Change) -> Shift:
    """Return the quantile that moved the furthest, up or down."""
    return max(change.shift_us.values(), key=lambda shift: _factor(shift.ratio))


def _moved(change: Change, moved: Shift) -> str:
    """Return `sdd write p99 691 ms -> 2 ms`."""
    a, b = (UNKNOWN if text == UNKNOWN else in_words(text) for text in verdict.sides(moved))
    return f"{change.subject} {moved.name} {a} -> {b}"


def _unit_of(lengths_s: Sequence[float | None]) -> tuple[str, int]:
    """Return the largest unit that each measured span has at least one of: seconds say nothing about a day."""
    shortest = min((length for length in lengths_s if length is not None), default=0.0)
    return next((unit for unit in _UNITS_S if shortest >= unit[1]), _UNITS_S[-1])


def for_users(views: Sequence[UserView], lengths_s: Sequence[float | None] = ()) -> str:
    """Return what changed for the users of the spans, from the first to the last, in one sentence.

    Left out are slow I/Os where no span has any, those in flight where none is older than any that completed, and rates
    where no span has a measured length. `lengths_s`: those of the spans; rates are per the largest unit in all of them.
    """
    parts = []
    if any(view.above for view in views):
        bar = spelled(views[0].above_us)
        counts = ["-" if view.above is None else f"{view.above:,}" for view in views]
        above = max(view.above or 0 for view in views)
        if above >= _LEAST_FOR_A_RATE and any(view.per_day is not None for view in views):
            unit, seconds = _unit_of(lengths_s)
            rates = " -> ".join(_slow_rate(view, seconds) for view in views)
            parts.append(f"I/Os of {bar} or more per {unit}: {rates} (counted: {', '.join(counts)})")
        else:
            parts.append(f"I/Os of {bar} or more: {' -> '.join(counts)}")
    if any(view.failed for view in views):
        counts = ["not counted" if view.failed is None else f"{view.failed:,}" for view in views]
        parts.append(f"failed I/Os: {' -> '.join(counts)}")
    parts.append(f"the longest completed I/O: {' -> '.join(map(_longest, views))}")
    if any(view.is_stuck for view in views):
        parts.append(f"in flight at the end: {' -> '.join(map(_oldest, views))}")
    if any(view.iops is not None for view in views):
        parts.append(f"IOPS: {' -> '.join('not known' if view.iops is None else rate(view.iops) for view in views)}")
    return "; ".join(parts)


def _changed(limit: Difference) -> str:
    """Return `sda nr_requests 4 -> 128`."""
    return f"{_device_of(limit)} {limit.name} {limit.a} -> {limit.b}"


def _device_of(limit: Difference) -> str:
    return limit.section.removeprefix(_DEVICE)


def _raised_limits(raised: Sequence[Difference]) -> list[str]:
    """Return why I/Os may take longer in B though it is better: more of them are let into the device at once."""
    if not raised:
        return []
    limits = [_changed(limit) for limit in raised[:_FEW]]
    what = "with the higher limit I/Os wait where their latency is measured, before they waited ahead of it"
    return [f"{', '.join(limits)}: {what}; IOPS tell whether it is better"]


def _findings(change: FindingsChange | None) -> list[str]:
    """Return the findings that are gone and new; nothing where neither side has one."""
    if change is None:
        return []
    lines = [f"finding gone: {summary}" for summary in change.gone]
    lines += [f"finding new: {summary}" for summary in change.new]
    lines += [f"findings of both: {', '.join(change.both)}"] if change.both else []
    return _capped([*lines, *(f"finding of one side: {subject}" for subject in change.unknown)])


def _slow_rate(view: UserView, seconds: int) -> str:
    """Return the slow I/Os in so many seconds."""
    if view.above is None:
        return "not timed"
    if view.per_day is None:
        return "not known"
    per_unit = view.per_day * seconds / _UNITS_S[0][1]
    return whole(round(per_unit)) if per_unit >= _FEW_PER_UNIT or not per_unit else rate(per_unit)


def _longest(view: UserView) -> str:
    if view.longest_us is None:
        return "not timed"
    if view.longest_us > MAX_US and not view.longest_is_exact:
        return "not known"
    return f"{'' if view.longest_is_exact else 'at most '}{spelled(view.longest_us)}"


def _oldest(view: UserView) -> str:
    if view.oldest_us is None or (view.unknown_age and view.oldest_us <= (view.longest_us or 0)):
        return f"{view.unknown_age:,} of unknown age" if view.unknown_age else "none known"
    return f"the oldest {'' if view.oldest_is_exact else 'at least '}{spelled(view.oldest_us)}"


def _loads(differences: Sequence[LoadDifference]) -> list[str]:
    """Return the loads that differ: latencies of different work compare badly. Equal devices are one line."""
    if not differences:
        return []
    first = "the loads differ, so the latencies below are of different work:"
    devices: dict[str, list[str]] = {}
    for load in differences:
        devices.setdefault(", ".join(_load(load)), []).append(load.device)
    return _capped([first, *(f"  {_devices(names)}: {how}" for how, names in devices.items())])


def _who(report: PairReport) -> list[str]:
    """Return the cgroups, the processes, the operations on files and the kinds of I/Os that differ."""
    tables = {
        "cgroups that issue twice as many I/Os on one side:": map(_cgroup, report.cgroups_differ or ()),
        "processes whose share and rate of I/Os, or mean latency, is twice as large on one side:": map(
            _process, report.processes_differ or ()
        ),
        "operations on files that take twice as long:": (
            f"  {file.operation}: {' -> '.join(map(spelled, file.mean_us))} on average"
            for file in report.files_differ or ()
        ),
        "shares of small or of sequential I/Os that differ:": _kinds(report.kinds_differ or ()),
    }
    lines: list[str] = []
    for head, rows in tables.items():
        listed = list(rows)
        if listed:
            lines += _capped([head, *listed])
    return lines


def _cgroup(cgroup: CgroupDifference) -> str:
    return f"  {cgroup.cgroup}: {' -> '.join(map(rate, cgroup.iops))} IOPS"


def _process(process: ProcessDifference) -> str:
    """Return a line on a process: its shares, and its mean latencies where both sides have one."""
    of = "the traced I/Os" if process.of == "ios" else "the bytes of processes"
    means = [us for us in process.mean_us if us is not None]
    mean = f"; {' -> '.join(map(spelled, means))} on average" if len(means) == len(process.mean_us) else ""
    return f"  {process.comm or UNKNOWN}: {' -> '.join(map(part, process.share))} of {of}{mean}"


def _kinds(kinds: Sequence[KindDifference]) -> list[str]:
    """Return a line per device, with all kinds of its I/Os that differ."""
    by_device: dict[str, list[str]] = {}
    for kind in kinds:
        shares = " -> ".join(map(part, kind.share))
        by_device.setdefault(kind.device, []).append(f"{kind.kind} {shares}")
    return [f"  {device}: {', '.join(shares)}" for device, shares in by_device.items()]


def _sweep_lines(report: SweepReport) -> Iterator[str]:
    """Yield the tables and plots of a sweep."""
    for table in shown_tables(report):
        yield from _sweep_table(table)
        yield ""
    for sentence in report.warnings:
        yield from _wrapped(sentence)


def shown_tables(report: SweepReport) -> tuple[SweepTable, ...]:
    """Return the tables that are shown: of a single device that of all is enough."""
    return report.sweep[:1] if len(report.sweep) == _SAME else report.sweep


def _sweep_table(table: SweepTable) -> Iterator[str]:
    yield sweep_title(table)
    names = [row_name(row) for row in table.rows]
    wide = min(max([len("capture"), *map(len, names)]), WIDTH - 9 * len(COLUMNS) - 2)
    yield f"  {'capture':<{wide}}" + "".join(f"{column:>9}" for column in COLUMNS)
    for name, row in zip(names, table.rows, strict=True):
        cells = (sweep_cell(column, row.values[column]) for column in COLUMNS)
        yield f"  {name[:wide]:<{wide}}" + "".join(f"{text:>9}" for text in cells)
    for sentence in trends(table):
        yield from _wrapped(sentence, 2, 2)
    yield from _plot(table, [name[:wide] for name in names], wide)


def sweep_title(table: SweepTable) -> str:
    """Return `sda by queue_depth (slow: I/Os of 20 ms or more)`."""
    by = f" by {table.setting}" if table.setting else ""
    return f"{table.device or 'all devices'}{by} (slow: I/Os of {spelled(table.above_us)} or more)"


def row_name(row: SweepRow) -> str:
    """Return the value or name of a row, and how many captures it joins."""
    return row.name if row.runs is None else f"{row.name} ({row.runs} runs)"


def trends(table: SweepTable) -> Iterator[str]:
    """Yield the columns that only rise or only fall, those of the same certainty in one sentence."""
    by = "from each to the next"
    if table.setting and all(is_number(row.name) for row in table.rows):
        by = f"as {table.setting.split()[-1]} rises"
    columns: dict[str, dict[bool, list[str]]] = {}
    for trend in table.trends:
        few = f"p {trend.p:.2g}: {len(table.rows)} captures are too few to be sure; it takes 5"
        what = "throughput" if trend.column == "MB/s" else trend.column
        certainty = f"p {trend.p:.3f}" if trend.significant else few
        columns.setdefault(certainty, {}).setdefault(trend.rises, []).append(what)
    for certainty, directions in columns.items():
        verbs = {rises: ("rise" if rises else "fall") + "s" * (len(names) == 1) for rises, names in directions.items()}
        parts = (f"{', '.join(names)} {verbs[rises]}" for rises, names in directions.items())
        yield f"{', '.join(parts)} {by} ({certainty})"


def _plot(table: SweepTable, names: Sequence[str], wide: int) -> Iterator[str]:
    """Yield a line per row: its IOPS as a bar, its p50, p99 and maximum on a logarithmic axis."""
    times = [us for row in table.rows for us in marked(row).values()]
    if not times:
        return
    cells = WIDTH - wide - _BAR_CELLS - 8
    low, high = math.log(min(times)), math.log(max(times))
    iops = max(row.values.iops or 0 for row in table.rows)
    ends = f"{spelled(min(times))} to {spelled(max(times))}, log: {MARKED}"
    yield f"  {'':<{wide}}  {'IOPS':<{_BAR_CELLS}}  {ends}"
    for name, row in zip(names, table.rows, strict=True):
        axis = [" "] * cells
        for mark, us in marked(row).items():
            axis[round((math.log(us) - low) / ((high - low) or 1) * (cells - 1))] = mark
        bar = "#" * math.ceil((row.values.iops or 0) / (iops or 1) * _BAR_CELLS)
        yield f"  {name:<{wide}}  {bar:<{_BAR_CELLS}} |{''.join(axis)}|"


def marked(row: SweepRow) -> dict[str, float]:
    """Return the known times in us of a row's plot, by their marks."""
    return {mark: us for mark, column in _MARKS.items() if (us := row.values[column])}


def _worded(column: str, value: float | None) -> str:
    return in_words(sweep_cell(column, value)) if column in _TIMES else sweep_cell(column, value)


def sweep_cell(column: str, value: float | None) -> str:
    """Return a value of a sweep in its column's unit."""
    if value is None:
        return UNKNOWN
    return duration(value) if column in _TIMES else rate(value)


def _verdicts(report: PairReport, device: str = "") -> list[str]:
    """Return sentences: devices that changed, those with too little data, the rest in one sentence."""
    if not report.method.tested:
        in_order = sorted(report.changes, key=lambda change: change.series.device != device)
        return _capped([change.sentence for change in in_order])
    totals = _totals(report)
    stages = _worst([change for change in report.changes if change.series.stage != "total"], device)
    sentences = [change.sentence for change in (*_worst(totals, device), *stages[:_STAGES])]
    left = len(stages) - _STAGES
    sentences += [f"... and {left} more stages changed (--json has all)"] if left > 0 else []
    if not totals:
        return ["the two have no I/O of one kind on one device: nothing can be compared"]
    return _capped(sentences)


def _unchanged(report: PairReport, named: int) -> list[str]:
    """Return sentences on the devices with too little data, and on those without a difference."""
    if not report.method.tested:
        return []
    totals, sentences = _totals(report), []
    unknown = [change for change in totals if change.where == "unknown"]
    if unknown:
        why = sorted({result.why or "" for change in unknown for result in (change.body, change.tail)})
        sentences.append(f"not enough data: {_subjects(unknown, named)} ({'; '.join(why[:3])})")
    still = [change for change in totals if change.where == "none"]
    for other, has in (("", False), ("other ", True)):
        alike = [change for change in still if (change.extreme is not None) is has]
        if alike:
            sentences.append(f"no {other}difference found: {_subjects(alike, named)}")
    if still:
        sentences.append(f"  of {still[0].subject} {verdict.seen(still[0].would_have_found)}")
    return sentences


def _totals(report: PairReport) -> list[Change]:
    return [change for change in report.changes if change.series.stage == "total"]


def _subjects(changes: Sequence[Change], most: int) -> str:
    """Return the names of the first ones, and how many others there are."""
    left = len(changes) - most
    return ", ".join(change.subject for change in changes[:most]) + (f" and {left} more" if left > 0 else "")


def _worst(changes: Sequence[Change], device: str = "") -> list[Change]:
    """Return the series that changed: those whose tail did before the others, those that changed most first.

    `device`: its series come before all others.
    """
    changed = [change for change in changes if change.changed]
    return sorted(
        changed,
        key=lambda change: (change.series.device == device, change.where != "body", _largest_factor(change)),
        reverse=True,
    )


def _largest_factor(change: Change) -> float:
    """Return how far a quantile moved at most, up or down; 1 where no ratio is known."""
    return max((_factor(shift.ratio) for shift in change.shift_us.values()), default=1.0)


def _factor(ratio: float | None) -> float:
    return max(ratio, 1 / ratio) if ratio else 1.0


def _settings(report: PairReport) -> list[str]:
    if not report.settings:
        if report.has_settings:
            return ["settings: no difference"]
        return ["settings: not known of both sides; those known don't differ"]
    lines = ["settings that differ (A -> B):", *(f"  {setting}" for setting in settings(report.settings))]
    return _capped(lines, _MOST_SETTINGS)


def settings(differences: Sequence[Difference]) -> list[str]:
    """Return `module vmd max_vec: 2 -> 8` of each; devices with the same difference are one line."""
    devices: dict[str, list[str]] = {}
    for setting in differences:
        kind, _, device = setting.section.partition(" ")
        how = f"{setting.name}: {setting.a or '(none)'} -> {setting.b or '(none)'}"
        if kind == "device":
            devices.setdefault(how, []).append(device)
        else:
            devices.setdefault(f"{setting.section} {how}", [])
    return [f"{_kind(names)}{_devices(names)} {how}" if names else how for how, names in devices.items()]


def _kind(names: Sequence[str]) -> str:
    """Return the word before devices that are named; their number has it already."""
    return "" if len(names) > _FEW else "device " if len(names) == 1 else "devices "


def _devices(names: Sequence[str]) -> str:
    """Return their names, of many the first of them and how many they are."""
    return ", ".join(names) if len(names) <= _FEW else f"{len(names):,} devices ({', '.join(names[:_FEW])}, ...)"


def _runs(runs: Runs | None) -> list[str]:
    """Return the numbers of each run, and how far the runs of a side differ; nothing without several runs."""
    if runs is None:
        return []
    lines = [f"runs, all devices (slow: I/Os of {spelled(runs.above_us)} or more):"]
    for side, rows in (("A", runs.a), ("B", runs.b)):
        for row in rows:
            numbers = ", ".join(f"{column} {_worded(column, row.values[column])}" for column in COLUMNS)
            lines.append(f"  {side} {row.name}: {numbers}")
    lines = _capped(lines)
    for direction, begin, end in (
        (1, "every run of B is above every run of A in ", ""),
        (-1, "every run of B is below every run of A in ", ""),
        (0, "the runs of A and B overlap in ", ": there the sides may differ no more than runs do"),
    ):
        columns = [
            f"{spread.column} ({_range(spread.column, spread.a)} -> {_range(spread.column, spread.b)})"
            for spread in runs.ranges
            if spread.direction == direction and spread.a != spread.b
        ]
        lines += [begin + ", ".join(columns) + end] if columns else []
    for side, of_runs in (("A", runs.settings_a), ("B", runs.settings_b)):
        different = dict.fromkeys(text for differences in of_runs for text in settings(differences))
        lines += [f"settings differ between the runs of {side}: {'; '.join(different)}"] if different else []
    return lines


def _range(column: str, ends: tuple[float, float]) -> str:
    low, high = (_worded(column, value) for value in ends)
    return low if low == high else f"{low} to {high}"


def _only(report: PairReport) -> list[str]:
    shared = {change.series.device for change in report.changes}
    sentences = []
    for side, series in (("A", report.only_a), ("B", report.only_b)):
        devices = [device for device in devices_of(series) if device not in shared]
        if devices:
            sentences.append(f"only in {side}: {', '.join(devices[:_MOST])}")
    return sentences


def _how(report: PairReport) -> list[str]:
    method = report.method
    if not method.tested:
        return []  # the verdict says so
    how = "; ".join(f"{in_a} and {in_b} blocks for the {name}" for name, (in_a, in_b) in method.blocks.items())
    text = f"{method.questions} tests, {how}: the chance of any false alarm in all of this is {method.alpha:.0%}."
    return [f"{text} Each interval is for its own number. docs/DIFF.md"]


def shown_totals(report: PairReport) -> list[Change]:
    """Return the totals that have numbers in the output."""
    return ranked(report)[:_ROWS]


def ranked(report: PairReport) -> list[Change]:
    """Return the totals: those that changed, tails before bodies, then others."""
    totals = _totals(report)
    return [*_worst(totals), *(change for change in totals if not change.changed)]


def quantile_rows(change: Change) -> list[list[str]]:
    """Return the rows of A and of B: the side, its I/Os and quantiles."""
    cells = [verdict.sides(shift) for shift in change.shift_us.values()]
    count_a, count_b = change.count
    return [["A", whole(count_a), *(a for a, _ in cells)], ["B", whole(count_b), *(b for _, b in cells)]]


def _table(report: PairReport) -> Iterator[str]:
    """Yield quantiles of the totals, A above B."""
    totals = shown_totals(report)
    if not totals:
        return
    yield f"{'':<24}{'I/Os':>9}" + "".join(f"{name:>11}" for name in totals[0].shift_us)
    for change in totals:
        for side, count, *values in quantile_rows(change):
            label = change.subject if side == "A" else ""
            yield f"{label[:21]:<22}{side} {count:>9}" + "".join(f"{value:>11}" for value in values)


def _named(capture: Capture) -> str:
    runs = f"{capture.runs} runs: " if capture.runs else ""
    windows = counted(capture.windows, "window")
    return f"{runs}{capture.name}: {capture.host}, {capture.kernel}, {_length(capture.measured_s)}{windows}"


def _length(measured_s: float | None) -> str:
    """Return `150 s in `; empty where the length was not measured."""
    if measured_s is None:
        return ""
    us = round(measured_s * 1e6)
    return f"{measured_s:.0f} s in " if us < MINUTE_US else f"{spelled(us)} in "


def _load(load: LoadDifference) -> Iterator[str]:
    for what in load.what:
        yield f"{what} {_number(load.a, what)} -> {_number(load.b, what)}"


def _number(load: DeviceLoad, what: Literal["IOPS", "mix", "size"]) -> str:
    if what == "IOPS":
        return rate(load.iops or 0.0)
    return f"{load.reads:.0%} reads" if what == "mix" else show_size(load.size)


def _capped(lines: list[str], most: int = _MOST) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"... and {len(lines) - most} more (--json has all)"]


def _wrapped(text: str, hanging: int = 4, indent: int = 0) -> list[str]:
    begin = " " * max(indent, len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.strip(),
        line_width(WIDTH),
        initial_indent=begin,
        subsequent_indent=begin + " " * hanging,
        break_on_hyphens=False,
    ) or [""]
