"""slower-than-before: a device's I/Os take longer than before a certain second, for good, under the same load.

The change was found by the statistics of a diff (LatencyHistory). It is the device's only if its load explains
nothing: I/Os of the same mean size and ops, no more per second. Nor may there only be more in flight. With more in
flight a device does at least as many I/Os per second of its busy time, so that I/Os which only wait longer leave that
rate as it was. Where the device was never idle before, and has more in flight now, the two can't be told apart: no
finding. Where it is not known whether the I/Os are random now, it is a notice at most.

The latency of now counts only while the load is as it was. With another load the finding has that after the change.

A part of the I/Os may become slower while the others stay as quick: one of a disk's heads, one path of two, one drive
of an array. Then I/Os of the slow part must have been quick before: the quick ones are fewer by at least half of the
slow ones, and no other op, size or order has come that is half as frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.analysis.level_shift import SlowPart, slow_part
from latmon.findings import same_load
from latmon.findings.evidence import kernel_log_facts
from latmon.findings.facts import Facts
from latmon.findings.latency_history import LONGEST_SIDE_US, SIDE_US, Change, bounds_text
from latmon.findings.rule import (
    LATENCIES,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Moment,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
)
from latmon.findings.span_load import SpanLoad, load_of
from latmon.model.devices import host_and_device
from latmon.model.frame import Device
from latmon.model.histogram import Histogram, merge
from latmon.model.stages import place_of_op, plural_of_op
from latmon.support.units import clock, counted, part, rate, show_size, spelled

ID = "slower-than-before"
_TOGETHER_US = 10_000_000
"""Changes within this time are of one moment, as are changes of settings."""
_FEWEST_OF_SIZE = 40
_DAY_S = 86_400
_NEWEST = 4
"""Blocks that are what it is like now."""
_NAMED = 4
"""Devices and settings that are named."""
_BUSY_CPUS, _CPU_WAIT_US = 0.25, 50_000
"""CPU pressure from which on a slow part may wait for a CPU, where the pressure rose with it, and for how long."""
_AS_MUCH = 2
"""Factors that differ by no more than this are of one cause."""


class _Slower(NamedTuple):
    """The changes of one op of a device that last, as one: from before the first to now."""

    op: str
    first: Change
    last: Change
    steps: tuple[Change, ...]
    now: Histogram
    """Latencies of the newest blocks after the change, or those at the change where the load is another one now."""
    load: SpanLoad
    """Load of the newest blocks."""
    is_other_load: bool
    order: str
    """Order of the I/Os, compared with before the change."""
    slow: SlowPart | None = None
    """The part of the I/Os that is slower, where the others are not."""

    @property
    def before_us(self) -> int:
        """Return what the I/Os took: the median, or at most where only a part of them is slower now."""
        return self.first.shift.before.quantile(0.5) or 1 if self.slow is None else self.slow.before_us

    @property
    def now_us(self) -> int:
        return self.now.quantile(0.5) or 1 if self.slow is None else self.slow.us

    @property
    def lost_share(self) -> float:
        """Return the share of the time of its I/Os that they took less before."""
        if self.slow is None or not self.now.nearest_sum:
            return min(1.0, (self.now_us - self.before_us) / self.now_us)
        return min(1.0, self.slow.share * self.now.count * (self.now_us - self.before_us) / self.now.nearest_sum)

    @property
    def is_short(self) -> bool:
        """Return whether less is known of the time before than a sure change needs, and it is not long ago."""
        before = self.first.before
        return before is not None and before.us < SIDE_US

    @property
    def factor(self) -> float:
        return self.now_us / self.before_us

    @property
    def is_known(self) -> bool:
        return self.now.quantile(0.5) is not None


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device whose latency changed for good."""
    changes = {} if facts.history is None else facts.history.changes
    slower = {name: _of_device(facts, name, rows, limits) for name, rows in changes.items() if facts.has_io(name)}
    for name in sorted(slower):
        if slower[name]:
            yield _finding(facts, name, slower, limits)


def _of_device(facts: Facts, device: str, changes: Iterable[Change], limits: Thresholds) -> list[_Slower]:
    """Return the device's ops that are slower than before, the one with the largest factor first."""
    by_op: dict[str, list[Change]] = {}
    for change in changes:
        if is_slower(change, limits):
            by_op.setdefault(change.op, []).append(change)
    slower = []
    for op, steps in by_op.items():
        blocks = [block for block in facts.window if block.end_us - block.span_us // 2 > steps[-1].mono_us]
        newest = blocks[-_NEWEST:] or facts.window[-1:]
        load = load_of(device, newest)
        is_other = _is_other_load(steps[0], steps[-1], load, limits)
        parts = [block.stage("total", device, op) for block in newest]
        now = steps[-1].shift.after if is_other else merge(parts)
        row = _Slower(
            op=op,
            first=steps[0],
            last=steps[-1],
            steps=tuple(steps),
            now=now,
            load=load,
            is_other_load=is_other,
            order=_order_of(steps, limits),
        )
        if row.is_known and row.factor >= limits["times"] and row.now_us - row.before_us >= limits["added_us"]:
            slower.append(row)
        elif part_row := _part_of(row, limits):
            slower.append(part_row)
    return _flushes_first(sorted(slower, key=lambda row: (-row.factor, place_of_op(row.op))))


def _part_of(row: _Slower, limits: Thresholds) -> _Slower | None:
    """Return the part of an op's I/Os that is still slower than before; None where there is none."""
    step = next((step for step in reversed(row.steps) if step.shift.slow is not None), None)
    if step is None or step.shift.slow is None:
        return None
    slow = slow_part(row.now, step.shift.slow.before_us)
    if slow is None or slow.share < limits["part"]:
        return None
    return row._replace(first=step, last=step, steps=(step,), slow=slow)


def _flushes_first(slower: list[_Slower]) -> list[_Slower]:
    """Return flushes first where these are about as much slower: other I/Os wait while a cache is flushed."""
    factor = max((row.factor for row in slower), default=0.0)
    return sorted(slower, key=lambda row: row.op != "flush" or row.factor * _AS_MUCH < factor)


def _is_other_load(first: Change, last: Change, load: SpanLoad, limits: Thresholds) -> bool:
    """Return whether a load explains a part of the latency now: another one than before, or with more in flight."""
    if first.before is None or last.after is None or not load.ios:
        return False
    if not same_load.is_same_load(first.before, load, limits) or same_load.is_other_order(first.before, load, limits):
        return True
    return bool(load.depth and last.after.depth and load.depth > limits["load"] * last.after.depth)


def _order_of(steps: Sequence[Change], limits: Thresholds) -> str:
    """Return the order of the I/Os as far as it is known of all steps: that of the least known one."""
    sides = [(step.before, step.after) for step in steps]
    orders = [same_load.order_of(before, after, limits) for before, after in sides if before and after]
    return same_load.UNKNOWN if same_load.UNKNOWN in orders else orders[0]


def is_slower(change: Change, limits: Thresholds) -> bool:
    """Return whether the load before and after a change leaves the device as its cause."""
    before, after = change.before, change.after
    if before is None or after is None or not before.ios or not after.ios:
        return False
    if change.as_slow_before > limits["usual"]:
        return False
    if change.shift.slow is not None:
        return _is_slower_part(change, change.shift.slow, before, after, limits)
    if change.shift.ratio.low < 1 + (limits["times"] - 1) / 2:
        return False
    if not same_load.is_same_load(before, after, limits) or same_load.is_far_less(change.shift, before, after, limits):
        return False
    return not same_load.is_other_order(before, after, limits) and same_load.is_slower_device(
        change.shift, before, after, limits
    )


def _is_slower_part(change: Change, slow: SlowPart, before: SpanLoad, after: SpanLoad, limits: Thresholds) -> bool:
    """Return whether the I/Os that are slow were quick before, and not another load that came since."""
    if slow.share < limits["part"] or slow.us - slow.before_us < limits["slow_us"]:
        return False
    room = slow.share / 2
    same = {**limits, "mix": room, "order": min(room, limits["order"]), "size": 1 + slow.share}
    if not same_load.is_same_load(before, after, same) or same_load.is_other_order(before, after, same):
        return False
    quick_before, quick = before.iops_of(change.op), (1 - slow.share) * after.iops_of(change.op)
    if quick > (1 - room) * quick_before or same_load.is_far_less(change.shift, before, after, limits):
        return False
    if any(_came(op, before, after, limits) >= room for op in after.in_flight.keys() - {change.op}):
        return False
    if _may_wait_for_cpus(before, after) and slow.us < _CPU_WAIT_US:
        return False
    return same_load.is_slower_device(change.shift, before, after, limits)


def _came(op: str, before: SpanLoad, after: SpanLoad, limits: Thresholds) -> float:
    """Return how many more I/Os of an op are in flight on average, for each of which others may wait; 0: no more came.

    So many is the share of the time in which one is in flight, and of the other I/Os that come meanwhile.
    """
    if after.iops_of(op) <= limits["load"] * before.iops_of(op):
        return 0.0
    return after.in_flight[op] - before.in_flight.get(op, 0.0)


def _may_wait_for_cpus(before: SpanLoad, after: SpanLoad) -> bool:
    if after.cpu_pressure is None or after.cpu_pressure < _BUSY_CPUS:
        return False
    return before.cpu_pressure is None or after.cpu_pressure >= _AS_MUCH * before.cpu_pressure


def _finding(facts: Facts, device: str, slower: Mapping[str, list[_Slower]], limits: Thresholds) -> Finding:
    rows = slower[device]
    worst = rows[0]
    first = min((row.first for row in rows), key=lambda change: change.mono_us)
    added_us = worst.now_us - worst.before_us
    is_much = worst.factor >= limits["much"] and added_us >= limits["slow_us"] and worst.order != same_load.UNKNOWN
    is_sure = not worst.is_short or facts.end_us - worst.first.mono_us >= LONGEST_SIDE_US
    since = since_text(first.wall, facts.wall, first.resolution_us)
    middle_us = round(math.sqrt(worst.before_us * worst.now_us))
    return Finding(
        id=ID,
        severity=WARNING if is_much and is_sure else NOTICE,
        device=device,
        summary=f"{device}: {_summary(rows, since)}",
        facts=tuple(_evidence(facts, device, slower, first, limits)),
        where=Where("overview", device, worst.op, middle_us),
        steps=(*same_load.order_steps(worst.order), *_steps(facts, device, first)),
        refuted_by=same_load.REFUTED,
        share=worst.lost_share,
        short=_short(device, worst, since),
        began=Moment(first.mono_us, first.wall),
    )


def _summary(rows: Sequence[_Slower], since: str) -> str:
    """Return how much longer I/Os take: all of them, or a part."""
    worst = rows[0]
    others = "".join(f", {_factor_text(row)}" for row in rows[1:])
    end = same_load.OR_RANDOM if worst.order == same_load.UNKNOWN else ", and the load did not rise"
    if worst.slow is not None:
        p50 = " -> ".join(spelled(side.quantile(0.5) or 1) for side in (worst.first.shift.before, worst.now))
        return (
            f"{part(worst.slow.share)} of the {plural_of_op(worst.op)} take {spelled(worst.now_us)} since {since}, and "
            f"99% took {spelled(worst.before_us)} or less before; the others are as quick (p50 {p50}){others}{end}"
        )
    took = f"{spelled(worst.before_us)} -> {spelled(worst.now_us)}"
    factor = same_load.factor_text(worst.factor)
    return f"{plural_of_op(worst.op)} take {factor} as long since {since} (p50 {took}){others}{end}"


def _factor_text(row: _Slower) -> str:
    which = "" if row.slow is None else f"{part(row.slow.share)} of the "
    return f"{which}{plural_of_op(row.op)} {same_load.factor_text(row.factor)}"


def _short(device: str, worst: _Slower, since: str) -> str:
    ops = plural_of_op(worst.op)
    if worst.slow is not None:
        verdict = f"{part(worst.slow.share)} of {ops} take {spelled(worst.now_us)}"
        return short_text(device, verdict, f" since {since}", ", the others as before")
    return short_text(
        device,
        f"{ops} take {same_load.factor_text(worst.factor)} as long",
        f" since {since}",
        "; the load did not rise" if worst.order != same_load.UNKNOWN else "",
    )


def since_text(wall: float, now: float, resolution_us: int) -> str:
    """Return the time of a change, with the date where it is not of the last day, and as a minute where it is one."""
    text = clock(wall)
    if resolution_us > 2 * _TOGETHER_US:
        text = f"about {text[:5]}"
    days = int((now - wall) // _DAY_S)
    return f"{text} ({counted(days, 'day')} ago)" if days else text


def _evidence(
    facts: Facts, device: str, slower: Mapping[str, list[_Slower]], first: Change, limits: Thresholds
) -> Iterator[Fact]:
    rows = slower[device]
    for row in rows:
        yield _row_fact(row)
    resolution = f"known to {spelled(first.resolution_us)}"
    chance = first.shift.p
    text = f"changed at {clock(first.wall)}, {resolution}; chance of as large a difference: {chance:.2g}"
    yield Fact("changed_at", round(first.wall, 3), text)
    steps = sorted({change.mono_us: change for row in rows for change in row.steps}.values(), key=lambda c: c.mono_us)
    later = [change for change in steps if change.mono_us - first.mono_us > _TOGETHER_US]
    if later:
        words = ", ".join(
            f"{plural_of_op(change.op)} {same_load.factor_text(change.factor)} at {clock(change.wall)}"
            for change in later
        )
        yield Fact("further_steps", len(later), f"in further steps: {words}")
    if first.hour_us > 0:
        what = "medians" if first.shift.slow is None else "p95 of blocks"
        text = f"in the {spelled(first.hour_us)} before, {what} of {plural_of_op(first.op)} were {bounds_text(first)}"
        yield Fact("hour_before", round(2 ** first.hour[1]), text, "us")
    yield from _load_facts(rows, first, limits)
    yield from _at_the_same_time(facts, device, slower, first)


def _row_fact(row: _Slower) -> Fact:
    """Return the latencies of an op before and now."""
    ios = row.now.count + row.first.shift.before.count
    when = "after it" if row.is_other_load else "now"
    if row.slow is not None:
        quick = max(row.first.shift.before.quantile(0.5) or 1, 1)
        text = (
            f"{row.op}: {part(row.slow.share)} of them take {spelled(row.slow.from_us)} or more {when}, "
            f"half of these {spelled(row.slow.us)} or more; before, 99% took up to {spelled(row.before_us)} "
            f"and half {spelled(quick)}"
        )
        return Fact(f"{row.op}_slow_share", round(row.slow.share, 3), text, "share", ios)
    ratio = row.last.shift.ratio if len(row.steps) == 1 else None
    sure = f", at the change {ratio.low:.3g} to {ratio.high:.3g} (95%)" if ratio else ""
    text = f"{row.op}: p50 {spelled(row.before_us)} before, {spelled(row.now_us)} {when}: x{row.factor:.3g}{sure}"
    return Fact(f"{row.op}_factor", round(row.factor, 3), text, "times", ios)


def _load_facts(rows: list[_Slower], first: Change, limits: Thresholds) -> Iterator[Fact]:
    before, after = first.before, first.after
    if before is None or after is None:
        return
    text = f"load before -> after: {rate(before.iops)} -> {rate(after.iops)} IOPS"
    text += f", mean size {show_size(before.mean_bytes)} -> {show_size(after.mean_bytes)}"
    yield Fact("iops", round(after.iops, 1), text, "per_s")
    yield same_load.order_fact(before, after, limits)
    if rows[0].is_other_load:
        now = rows[0].load
        depth = "" if now.depth is None else f", {now.depth:.1f} in flight"
        size = show_size(now.mean_bytes)
        text = f"another load now, whose latency is not compared: {rate(now.iops)} IOPS of {size}"
        yield Fact("iops_now", round(now.iops, 1), text + depth, "per_s")
    if before.busy and after.busy:
        then, later = before.iops / before.busy, after.iops / after.busy
        text = f"busy, it did {rate(then)} I/Os per second before, {rate(later)} after; more load does not lower that"
        yield Fact("busy_rate", round(later, 1), text, "per_s")
    if before.depth and after.depth:
        text = f"in flight while busy: {before.depth:.1f} -> {after.depth:.1f} on average; busy {part(before.busy)} -> "
        yield Fact("depth", round(after.depth, 2), text + part(after.busy))
    yield Fact("failed", after.failed, f"failed I/Os before -> after: {before.failed:,} -> {after.failed:,}", "ios")
    yield from _size_facts(rows, before, after)


def _size_facts(rows: list[_Slower], before: SpanLoad, after: SpanLoad) -> Iterator[Fact]:
    """Yield the factor of each size class; where sizes were not traced on both sides, that they were not."""
    texts = []
    for row in rows:
        for op, upto in sorted(before.sizes.keys() & after.sizes.keys()):
            sides = before.sizes[op, upto], after.sizes[op, upto]
            was, now = (side.quantile(0.5) for side in sides)
            if op == row.op and min(side.count for side in sides) >= _FEWEST_OF_SIZE and was and now:
                size = f"up to {show_size(upto)}" if upto else "larger"
                texts.append(f"{plural_of_op(op)} {size} x{now / was:.3g}")
    if texts:
        yield Fact("sizes", len(texts), f"by size: {', '.join(texts)}")
    else:
        yield Fact("sizes", 0, "by size: not measured, because sizes were not traced before and after the change")


def _at_the_same_time(facts: Facts, device: str, slower: Mapping[str, list[_Slower]], first: Change) -> Iterator[Fact]:
    """Yield what changed within ten seconds: settings, reports, other devices behind the same controller or driver."""
    if facts.history is None:
        return
    room_us = max(_TOGETHER_US, first.resolution_us)
    changed = facts.history.device_changes(first.mono_us - 6 * room_us, first.mono_us + 6 * room_us)
    changes = [change for change in changed if change.device == device]
    own = [change.text for change in sorted(changes, key=lambda change: not change.is_setting)]
    text = ", ".join(own[:_NAMED]) if own else "no setting, link or report of it that latmon reads"
    yield Fact("changed_too", len(own), f"changed within a minute of it: {text}")
    grown = {name: n for name, n in facts.grown.get(device, {}).items() if n}
    if grown:
        rows = ", ".join(f"{name} +{n:,}" for name, n in sorted(grown.items())[:_NAMED])
        yield Fact("reports", len(grown), f"counters of its own that grew: {rows}")
    yield from kernel_log_facts(facts, device)
    yield from _others(facts, device, slower, first, room_us)


def _others(
    facts: Facts, device: str, slower: Mapping[str, list[_Slower]], first: Change, room_us: int
) -> Iterator[Fact]:
    own = facts.device(device)
    for kind, value in (("controller", own.controller), ("driver", own.driver)):
        alike = [other.name for other in facts.devices.values() if _is_alike(own, other, kind)]
        known = [name for name in alike if facts.has_io(name)]
        if not value or not known:
            continue
        too = [
            name
            for name in known
            if any(abs(row.first.mono_us - first.mono_us) <= room_us for row in slower.get(name, ()))
        ]
        names = f" ({', '.join(too[:_NAMED])})" if too else ""
        text = (
            f"of {counted(len(known), 'other busy device')} with its {kind} {value}, {len(too)} changed with it{names}"
        )
        yield Fact(f"with_its_{kind}", len(too), text, "", len(known))
        return


def _is_alike(own: Device, other: Device, kind: str) -> bool:
    """Return whether another device of the same host has the same controller or driver."""
    hosts = {host_and_device(device.name)[0] for device in (own, other)}
    return own.name != other.name and len(hosts) == 1 and getattr(own, kind) == getattr(other, kind)


def _steps(facts: Facts, device: str, first: Change) -> Iterator[Step]:
    yield Step(
        f"find out what happened at {clock(first.wall)}: the kernel's log, jobs, updates, work on the storage",
        commands=() if facts.kernel_line(device) else ("dmesg | tail -n 50",),
    )
    yield from same_load.device_steps(facts, device)
    yield Step("compare what was with what is: latmon diff of two recordings, or the key D before and after a repair")


RULE = Rule(
    ID,
    "I/Os of a device take longer than before some second, for good, and its load did not rise",
    evaluate,
    needs=LATENCIES,
    thresholds={
        **same_load.THRESHOLDS,
        "usual": Threshold(0.02, "share", "of the hour before at most in which it was as slow"),
        "part": Threshold(0.05, "share", "of the I/Os at least that became slower, where the others did not"),
    },
    explained_by=same_load.CAUSES,
)
