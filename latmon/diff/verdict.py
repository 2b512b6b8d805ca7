"""What was found in one series as a sentence: what moved, by how much, how surely; what would have been seen. Pure."""

from __future__ import annotations

from latmon.diff import blocks
from latmon.diff.comparison import DRIFTS, WANDERS, Change, Comparison, Moved, Shift
from latmon.diff.quantile import Ratio
from latmon.histogram import Histogram, bucket_bounds
from latmon.words import UNKNOWN, bound, in_words, rate, significant, spelled

_FACTOR_DIGITS = 100
_WAYS = {1: "grew", -1: "shrank"}
_SPEED = {1: "slower", -1: "faster"}
_HALF = 2


def subject(change: Change) -> str:
    """`sdc write`, or `sdc write hba` of a stage."""
    device, op, stage = change.series
    return f"{device} {op}" if stage == "total" else f"{device} {op} {stage}"


def sentence(change: Change, comparison: Comparison) -> str:
    """The verdict on one series, its subject first."""
    if not comparison.tested:
        return f"{subject(change)}: {untested(change)} ({too_few(comparison)})"
    said = {
        "whole": _whole,
        "opposed": _opposed,
        "tail": _tail,
        "body": _body,
        "none": _none,
        "unknown": _unknown,
    }[change.where](change)
    return f"{subject(change)}: {said}"


def untested(change: Change) -> str:
    """What the numbers say where there are too few windows for a test."""
    parts = [told for shift in change.shifts if (told := _plain(shift)) and shift.name in ("p50", "p99.9", "max")]
    one, other = mode(change.a), mode(change.b)
    if one != other and one and other:
        parts.insert(1, f"the mode {_range(one)} -> {_range(other)}")
    words = "; ".join(parts) or "no quantile that both have"
    tail = change.shifts[-1]
    if tail.a_us and tail.b_us and not _HALF > tail.b_us / tail.a_us > 1 / _HALF:
        words += (
            "; the tail is longer"
            if tail.b_us > tail.a_us
            else "; the tail is gone"
            if _gone(change)
            else ("; the tail is shorter")
        )
    return words


def too_few(comparison: Comparison) -> str:
    """`too few windows for a test: 12 where it takes 20`, or too short ones."""
    few = min(len(comparison.a.units), len(comparison.b.units))
    if few < blocks.UNITS:
        return f"too few windows for a test: {few} where it takes {blocks.UNITS}"
    short = min(comparison.a.us, comparison.b.us)
    return f"too short for a test: {spelled(short)} where it takes {spelled(blocks.UNITS_US)}"


def mode(total: Histogram) -> tuple[int, int] | None:
    """The octave (or coarser bucket) with the most I/Os: its bounds in us."""
    octaves = total.coarsen(0)
    return bucket_bounds(max(octaves.buckets, key=lambda b: (b[1], -b[0]))[0], 0) if total else None


def shift(one: Shift) -> str:
    """`p99.9 12 ms -> 31 ms (x2.6; 95 %: 2.1 to 3.0)`."""
    return f"{one.name} {_plain(one, named=False)}" if one.ratio is None else f"{_named(one)} ({ratio(one.ratio)})"


def sides(one: Shift) -> tuple[str, str]:
    """A's and B's in the digits of a table's cell, as `latmon report` says them."""

    def said(us: int | None, top_us: int | None) -> str:
        below = "≤" if one.name == "max" and top_us is None and us else ""
        return below + bound(us, top_us)

    return said(one.a_us, one.tops[0]), said(one.b_us, one.tops[1])


def ratio(one: Ratio) -> str:
    """`x2.6; 95 %: 2.1 to 3.0`."""
    return f"x{factor(one.value)}; 95 %: {factor(one.low)} to {factor(one.high)}"


def factor(value: float) -> str:
    """1.13, 2.6, 31: two digits behind the first."""
    if value >= _FACTOR_DIGITS:
        return rate(value)
    fine = 0.1 <= value < 2  # noqa: PLR2004  0.97 and 1.13 need both digits
    text = f"{value:.2f}" if fine else significant(value, 2)
    return text.rstrip("0").rstrip(".") if "." in text else text


def seen(change: Change) -> str:
    """What would have been found in four of five cases."""
    body, tail = change.seen.body, change.seen.tail
    parts = [
        f"all I/Os x{factor(body)}" if body else "",
        f"the slowest 0.1 % x{factor(tail)}" if tail else "",
    ]
    told = " or ".join(part for part in parts if part)
    return f"{told} would have been found (80 %)" if told else "only more than x16 would have been found"


def percent(share: float) -> str:
    """0.12 %, 3 %, 0.001 %."""
    value = share * 100
    return f"{value:.2g} %" if value < 10 else f"{value:.0f} %"  # noqa: PLR2004  two digits


def _whole(change: Change) -> str:
    way = _SPEED[change.body.direction or 1]
    return f"all of it is {way}: {_shift(change, 'p50')}, {_tail_shift(change)}"


def _opposed(change: Change) -> str:
    body, tail = change.body.direction or 1, change.tail.direction or 1
    return (
        f"the body is {_SPEED[body]}: {_shift(change, 'p50')}; the tail {_WAYS[tail]}: {_tail_shift(change)}, "
        f"{_shares(change.tail)}"
    )


def _tail(change: Change) -> str:
    way = _WAYS[change.tail.direction or 1]
    return f"the tail {way}: {_tail_shift(change)}, {_shares(change.tail)}; {_still(change, 'body')}"


def _body(change: Change) -> str:
    way = _SPEED[change.body.direction or 1]
    return f"the body is {way}: {_shift(change, 'p50')}; {_still(change, 'tail')}"


def _none(change: Change) -> str:
    asked = [(name, _of(change, name)) for name in ("body", "tail")]
    missing = [f"the {name}: not enough to tell ({one.why})" for name, one in asked if one.direction is None]
    return "; ".join(["no difference found", seen(change), *missing])


def _unknown(change: Change) -> str:
    for why in (DRIFTS, WANDERS):
        if why in (change.body.why, change.tail.why):
            return f"not enough to tell: {why}"
    count = min(change.a.count, change.b.count)
    return f"not enough I/Os to tell ({count}; the body takes 80 of both, the slowest 1 % takes 2,000)"


def _still(change: Change, question: str) -> str:
    """The other half: it didn't change, as far as these data would have shown."""
    answer = _of(change, question)
    if answer.direction is None:
        return f"of the {question} there is not enough to tell ({answer.why})"
    least = change.seen.body if question == "body" else change.seen.tail
    limit = f" (x{factor(least)} would have been found)" if least else " that these data could show"
    return f"the {question} did not change{limit}"


def _of(change: Change, question: str) -> Moved:
    return change.body if question == "body" else change.tail


def _shares(moved: Moved) -> str:
    """How many I/Os are above the latency where it shows most."""
    return f"{percent(moved.share_a)} -> {percent(moved.share_b)} of I/Os above {spelled(moved.cut_us)}"


def _shift(change: Change, name: str) -> str:
    return shift(next(one for one in change.shifts if one.name == name))


def _tail_shift(change: Change) -> str:
    """The quantile of the tail that moved the furthest, of those that both have; else the maximum."""
    able = [one for one in change.shifts if one.name in ("p99", "p99.9") and one.ratio]
    if not able:
        return _shift(change, "max")
    up = (change.tail.direction or 1) > 0
    return shift(max(able, key=lambda one: (one.ratio.value if one.ratio else 0) * (1 if up else -1)))


def _plain(one: Shift, *, named: bool = True) -> str:
    if one.a_us is None or one.b_us is None:
        return ""
    by = f" (x{factor(one.b_us / one.a_us)})" if one.a_us and one.b_us != one.a_us else ""
    a, b = sides(one)
    told = f"{in_words(a)} -> {in_words(b)}{by}"
    return f"{one.name} {told}" if named else told


def _named(one: Shift) -> str:
    a, b = (UNKNOWN if text == UNKNOWN else in_words(text) for text in sides(one))
    return f"{one.name} {a} -> {b}"


def _gone(change: Change) -> bool:
    """Whether the slowest bucket with I/Os of A is far beyond everything of B, behind a hole."""
    end = change.b.buckets[-1][0] if change.b else 0
    return (
        bool(change.a)
        and bucket_bounds(change.a.buckets[-1][0], change.a.bits)[0] > 4 * bucket_bounds(end, change.b.bits)[1]
    )


def _range(bounds: tuple[int, int]) -> str:
    return f"{spelled(bounds[0])} to {spelled(bounds[1])}"
