"""The sentence for one series of a comparison: what changed, by how much, how surely. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from latmon.analysis import neighbours
from latmon.diff.comparison import DRIFTS, VARIES, Comparison, PartChange, SeriesChange, Shift
from latmon.diff.hypotheses import FEWEST_EXTREME, Cause, Detectable, Extreme
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.model.stages import called
from latmon.support.units import UNKNOWN, bound, in_words, part, rate, significant, spelled

_FACTOR_DIGITS = 100
_WAYS = {1: "grew", -1: "shrank"}
_SPEED = {1: "slower", -1: "faster"}
_HALF = 2
_WIDEST = 100
"""A wider interval (two decades) doesn't show the size of a change."""
_MOST_NAMED = 4
_MOST_EXTREMES = 3


def subject(change: SeriesChange) -> str:
    """Return `sdc write`, or `sdc write issue to completion` of a stage."""
    device, op, stage = change.series
    return f"{device} {op}" if stage == "total" else f"{device} {op} {called(stage, change.includes).sentence}"


def sentence(change: SeriesChange, comparison: Comparison) -> str:
    """Return the verdict on one series, its subject first."""
    if not comparison.tested:
        return f"{subject(change)}: {untested(change)}"  # the verdict above has the reason, once
    text = {
        "whole": _whole,
        "opposed": _opposed,
        "tail": _tail,
        "body": _body,
        "none": _none,
        "unknown": _unknown,
    }[change.where](change)
    return f"{subject(change)}: {text}"


def lead(comparison: Comparison) -> list[str]:
    """Return the sentences at the top: very long I/Os of one side only, then the stages that explain changes."""
    return [*_extremes(comparison), *_causes(comparison)]


def _extremes(comparison: Comparison) -> list[str]:
    """Return a sentence per common threshold, or per series without one; the longest I/Os first."""
    extremes = [
        (series_change, series_change.extreme)
        for series_change in comparison.changes
        if series_change.extreme is not None
    ]
    counted: dict[tuple[int, int], list[tuple[SeriesChange, Extreme]]] = {}
    for change, extreme in extremes:
        # without a common threshold each series has its own bound
        key = (extreme.above_us, extreme.slower) if extreme.exact else (-len(counted) - 1, 0)
        counted.setdefault(key, []).append((change, extreme))
    extreme_groups = [
        group
        for group in counted.values()
        if sum(extreme.count[extreme.slower] for _, extreme in group) >= FEWEST_EXTREME
    ]
    groups = sorted(extreme_groups, key=lambda group: -max(max(extreme.max_us) for _, extreme in group))
    return [_extreme(group) for group in groups[:_MOST_EXTREMES]] + _left_out(groups[_MOST_EXTREMES:])


def _left_out(groups: Sequence[Sequence[tuple[SeriesChange, Extreme]]]) -> list[str]:
    names = [subject(change) for group in groups for change, _ in group]
    return [f"other long I/Os that one side alone has: {_several(names)}"] if names else []


def _extreme(group: Sequence[tuple[SeriesChange, Extreme]]) -> str:
    """Return `I/Os above 500 ms: 40 -> 0 (sd0 write 20 -> 0)`, or `sd1 write: 302 I/Os took 537 s to 10 min in A`."""
    change, extreme = group[0]
    stages = _stage_clause([each for _, each in group])
    longest = [max(each.max_us[side] for _, each in group) for side in (0, 1)]
    if not extreme.exact:
        slow, other = "AB"[extreme.slower], "AB"[1 - extreme.slower]
        known = (change.a, change.b)[extreme.slower].max is not None
        least = f"{spelled(extreme.above_us)} {f'to {spelled(longest[extreme.slower])}' if known else 'or more'}"
        return (
            f"{subject(change)}: {extreme.count[extreme.slower]:,} I/Os took {least} in {slow}, none of {other}'s took "
            f"more than {spelled(longest[1 - extreme.slower])}{stages}"
        )
    sums = [sum(each.count[side] for _, each in group) for side in (0, 1)]
    by = _several([f"{subject(c)} {each.count[0]:,} -> {each.count[1]:,}" for c, each in group])
    of = f" ({by})" if len(group) > 1 else ""
    who = "" if len(group) > 1 else f"{subject(change)}: "
    # of several series it is not that of any of them
    most = "" if len(group) > 1 else f"; the longest {spelled(longest[0])} -> {spelled(longest[1])}"
    return f"{who}I/Os above {spelled(extreme.above_us)}: {sums[0]:,} -> {sums[1]:,}{of}{most}{stages}"


def _stage_clause(extremes: Sequence[Extreme]) -> str:
    """Return a clause on the stage with most of their time, if they were traced."""
    shares: dict[str, float] = {}
    for extreme in extremes:
        for stage, share in extreme.stages.items():
            shares[stage] = shares.get(stage, 0.0) + share * extreme.count[extreme.slower]
    total_share = sum(shares.values())
    if not total_share:
        return ""
    top = max(sorted(shares), key=lambda stage: shares[stage])
    includes = next((extreme.includes[top] for extreme in extremes if top in extreme.includes), ())
    return f"; {part(shares[top] / total_share)} of their time is {called(top, includes).sentence}"


def _causes(comparison: Comparison) -> list[str]:
    """Return a sentence per stage that explains changes, with all series that it explains."""
    groups: dict[tuple[str, str, bool], list[tuple[SeriesChange, Cause]]] = {}
    for change in comparison.changes:
        cause = change.cause
        if cause is not None:
            both = None not in cause.us_per_io
            key = called(cause.stage, cause.includes).sentence, _how(change), both
            groups.setdefault(key, []).append((change, cause))
    return [_cause(name, how, group) for (name, how, _), group in groups.items()]


def _how(change: SeriesChange) -> str:
    """Return what the stage explains, in words."""
    if change.where == "tail":
        return f"the {'longer' if change.tail.direction == 1 else 'shorter'} tail"
    times = [shift for shift in change.shifts if shift.name == "p50"]
    slower = any((shift.b_us or 0) > (shift.a_us or 0) for shift in times)
    return "what is slower" if slower else "what is faster"


def _cause(name: str, how: str, group: Sequence[tuple[SeriesChange, Cause]]) -> str:
    """Return `softirq explains what is faster: sda write 3.8 ms -> 8 us per traced I/O, >99% of the difference`."""
    largest_first = sorted(group, key=lambda pair: -pair[1].share)
    items = []
    for number, (change, cause) in enumerate(largest_first):
        a, b = cause.us_per_io
        above = f" above {spelled(cause.above_us)}" if cause.above_us else ""
        if a is None or b is None:
            traced, other = ("A", "B") if b is None else ("B", "A")
            items.append(f"{subject(change)} {part(cause.share)} of {traced}'s time{above} ({other} was not traced)")
            continue
        below = f" below {spelled(cause.below_us)}" if cause.below_us else ""
        times = "" if cause.above_us else f" {spelled(a)} -> {spelled(b)} per traced I/O,"
        what = f" of the difference{above}" if not number else ""
        items.append(f"{subject(change)}{below}{times} {part(cause.share)}{what}")
    verb = "has most of" if None in largest_first[0][1].us_per_io else "explains"
    return f"{name} {verb} {how}: {_several(items)}"


def _several(items: Sequence[str]) -> str:
    more = f" and {len(items) - _MOST_NAMED:,} more" if len(items) > _MOST_NAMED else ""
    return ", ".join(items[:_MOST_NAMED]) + more


def untested(change: SeriesChange) -> str:
    """Return the differences of the numbers if there are too few windows for a test."""
    slowest_first = [shift for shift in reversed(change.shifts) if shift.name in ("p50", "p99.9", "max")]
    parts = [reported for shift in slowest_first if (reported := _plain(shift))]
    mode_a, other = mode(change.a), mode(change.b)
    if mode_a != other and mode_a and other:
        parts.append(f"the mode {_range(mode_a)} -> {_range(other)}")
    tail = change.shifts[-1]
    if tail.a_us and tail.b_us and not _HALF > tail.b_us / tail.a_us > 1 / _HALF:
        longer, gone = tail.b_us > tail.a_us, _gone(change)
        parts.insert(0, f"the tail is {'longer' if longer else 'gone' if gone else 'shorter'}")
    return "; ".join(parts) or "no quantile that both have"


def too_few(comparison: Comparison) -> str:
    """Return `too few windows for a test: 12 where it takes 20`, or that they are too short."""
    few = min(len(comparison.a.units), len(comparison.b.units))
    if few < neighbours.UNITS:
        return f"too few windows for a test: {few} where it takes {neighbours.UNITS}"
    short = min(comparison.a.us, comparison.b.us)
    return f"too short for a test: {spelled(short)} where it takes {spelled(neighbours.UNITS_US)}"


def mode(total: Histogram) -> tuple[int, int] | None:
    """Return the bounds in us of the octave (or coarser bucket) with most I/Os."""
    octaves = total.coarsen(0)
    return bucket_bounds(max(octaves.buckets, key=lambda b: (b[1], -b[0]))[0], 0) if total else None


def shift(shift: Shift) -> str:
    """Return `p99.9 12 ms -> 31 ms (x2.6; 95 %: 2.1 to 3.0)`."""
    if shift.ratio is None or shift.interval is None:
        return f"{shift.name} {_plain(shift, named=False)}"
    return f"{_named(shift)} ({ratio(shift.ratio, shift.interval)})"


def sides(one: Shift) -> tuple[str, str]:
    """Return A's and B's values in the digits of a table's cell, as in `latmon report`."""

    def in_digits(us: int | None, top_us: int | None) -> str:
        below = "≤" if one.name == "max" and top_us is None and us else ""
        return below + bound(us, top_us)

    return in_digits(one.a_us, one.tops[0]), in_digits(one.b_us, one.tops[1])


def ratio(value: float, interval: tuple[float, float]) -> str:
    """Return `x2.6; 95 %: 2.1 to 3.0`."""
    low, high = interval
    return f"x{factor(value)}; 95 %: {factor(low)} to {factor(high)}"


def factor(value: float) -> str:
    """Return 1.13, 2.6, 31: two digits after the first."""
    if value >= _FACTOR_DIGITS:
        return rate(value)
    fine = 0.1 <= value < 2  # noqa: PLR2004  0.97 and 1.13 need both digits
    text = f"{value:.2f}" if fine else significant(value, 2)
    return text.rstrip("0").rstrip(".") if "." in text else text


def seen(smallest: Detectable) -> str:
    """Return the changes that would have been found in four of five cases."""
    parts = [
        f"all I/Os x{factor(smallest.all_times)}" if smallest.all_times else "",
        f"the slowest 0.1 % x{factor(smallest.tail_times)}" if smallest.tail_times else "",
    ]
    reported = " or ".join(part for part in parts if part)
    return f"{reported} would have been found (80 %)" if reported else "only changes above x16 would have been found"


def percent(share: float) -> str:
    """Return 0.12 %, 3 %, 0.001 %."""
    value = share * 100
    return f"{value:.2g} %" if value < 10 else f"{value:.0f} %"  # noqa: PLR2004  two digits


def _whole(change: SeriesChange) -> str:
    way = _SPEED[change.body.direction or change.tail.direction or 1]
    return f"all of it is {way}: {_listed(_tail_shift(change), _body_shift(change)) or _shares(change.tail)}"


def _opposed(change: SeriesChange) -> str:
    body, tail = change.body.direction or 1, change.tail.direction or 1
    return (
        f"the tail {_WAYS[tail]}: {_listed(_tail_shift(change), _shares(change.tail))}; the body is {_SPEED[body]}: "
        f"{_body_shift(change) or _shares(change.body)}"
    )


def _tail(change: SeriesChange) -> str:
    way = _WAYS[change.tail.direction or 1]
    return f"the tail {way}: {_listed(_tail_shift(change), _shares(change.tail))}; {_still(change, 'body')}"


def _body(change: SeriesChange) -> str:
    way = _SPEED[change.body.direction or 1]
    return f"the body is {way}: {_body_shift(change) or _shares(change.body)}; {_still(change, 'tail')}"


def _none(change: SeriesChange) -> str:
    parts = [(name, _of(change, name)) for name in ("body", "tail")]
    missing = [
        f"the {name}: not enough data ({part_change.why})"
        for name, part_change in parts
        if part_change.direction is None
    ]
    return "; ".join(["no difference found", seen(change.seen), *missing])


def _unknown(change: SeriesChange) -> str:
    for why in (DRIFTS, VARIES):
        if why in (change.body.why, change.tail.why):
            return f"not enough data: {why}"
    count = min(change.a.count, change.b.count)
    return f"not enough I/Os ({count}; the body takes 80 of both, the slowest 1 % takes 2,000)"


def _still(change: SeriesChange, name: str) -> str:
    """Return a clause on the part that didn't change, as far as these data could show it."""
    other = _of(change, name)
    if other.direction is None:
        return f"there is not enough data on the {name} ({other.why})"
    least = change.seen.all_times if name == "body" else change.seen.tail_times
    limit = f" (a change of x{factor(least)} would have been found)" if least else " that these data could show"
    return f"the {name} did not change{limit}"


def _of(change: SeriesChange, name: str) -> PartChange:
    return change.body if name == "body" else change.tail


def _shares(moved: PartChange) -> str:
    """Return the shares of I/Os above the latency where they differ most."""
    return f"{percent(moved.share_a)} -> {percent(moved.share_b)} of I/Os above {spelled(moved.cut_us)}"


def _shift(change: SeriesChange, name: str) -> str:
    return shift(next(shift for shift in change.shifts if shift.name == name))


def _body_shift(change: SeriesChange) -> str:
    """Return the change of the p50; empty where its interval does not exclude 1."""
    p50 = next(each for each in change.shifts if each.name == "p50")
    return shift(p50) if p50.interval is None or _is_sure(p50.interval) else ""


def _tail_shift(change: SeriesChange) -> str:
    """Return the quantile of the tail that moved the furthest; the maximum where no quantile has an interval.

    Empty where no interval excludes 1.
    """
    able = [each for each in change.shifts if each.name in ("p99", "p99.9") and each.interval]
    if not able:
        return _shift(change, "max")
    sure = [each for each in able if each.interval and _is_sure(each.interval)]
    furthest = max if (change.tail.direction or 1) > 0 else min
    return shift(furthest(sure, key=lambda each: each.ratio or 0.0)) if sure else ""


def _is_sure(interval: tuple[float, float]) -> bool:
    """Return whether the interval of a ratio excludes 1 and is narrow enough to give the size of the change."""
    low, high = interval
    return not low <= 1 <= high and high <= _WIDEST * low


def _listed(*parts: str) -> str:
    return ", ".join(clause for clause in parts if clause)


def _plain(shift: Shift, *, named: bool = True) -> str:
    if shift.a_us is None or shift.b_us is None:
        return ""
    by = f" (x{factor(shift.b_us / shift.a_us)})" if shift.a_us and shift.b_us != shift.a_us else ""
    a, b = sides(shift)
    reported = f"{in_words(a)} -> {in_words(b)}{by}"
    return f"{shift.name} {reported}" if named else reported


def _named(shift: Shift) -> str:
    a, b = (UNKNOWN if text == UNKNOWN else in_words(text) for text in sides(shift))
    return f"{shift.name} {a} -> {b}"


def _gone(change: SeriesChange) -> bool:
    """Return whether A has I/Os in buckets far above all of B's."""
    end = change.b.buckets[-1][0] if change.b else 0
    return (
        bool(change.a)
        and bucket_bounds(change.a.buckets[-1][0], change.a.bits)[0] > 4 * bucket_bounds(end, change.b.bits)[1]
    )


def _range(bounds: tuple[int, int]) -> str:
    return f"{spelled(bounds[0])} to {spelled(bounds[1])}"
