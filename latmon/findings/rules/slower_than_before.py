"""slower-than-before: a device's I/Os take longer than before a certain second, for good, under the same load.

The change was found by the statistics of a diff (LatencyHistory). It is the device's only if its load explains
nothing: I/Os of the same mean size and ops, no more per second. Nor may there only be more in flight. With more in
flight a device does at least as many I/Os per second of its busy time, so that I/Os which only wait longer leave that
rate as it was. Where the device was never idle before, and has more in flight now, the two can't be told apart: no
finding. Where it is not known whether the I/Os are random now, it is a notice at most.

The latency of now counts only while the load is as it was. With another load the finding has that after the change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.findings import same_load
from latmon.findings.evidence import kernel_log_facts
from latmon.findings.facts import Facts
from latmon.findings.latency_history import Change, bounds_text
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

    @property
    def before_us(self) -> int:
        return self.first.shift.before.quantile(0.5) or 1

    @property
    def now_us(self) -> int:
        return self.now.quantile(0.5) or 1

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
    return _flushes_first(sorted(slower, key=lambda row: (-row.factor, place_of_op(row.op))))


def _flushes_first(slower: list[_Slower]) -> list[_Slower]:
    """Return flushes first where these are about as much slower: other I/Os wait while a cache is flushed."""
    most = max((row.factor for row in slower), default=0.0)
    return sorted(slower, key=lambda row: row.op != "flush" or row.factor * _AS_MUCH < most)


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
    if change.as_slow_before > limits["usual"] or change.shift.ratio.low < 1 + (limits["times"] - 1) / 2:
        return False
    if not same_load.is_same_load(before, after, limits) or same_load.is_far_less(change.shift, before, after, limits):
        return False
    return not same_load.is_other_order(before, after, limits) and same_load.is_slower_device(
        change.shift, before, after, limits
    )


def _finding(facts: Facts, device: str, slower: Mapping[str, list[_Slower]], limits: Thresholds) -> Finding:
    rows = slower[device]
    worst = rows[0]
    first = min((row.first for row in rows), key=lambda change: change.mono_us)
    added_us = worst.now_us - worst.before_us
    is_much = worst.factor >= limits["much"] and added_us >= limits["slow_us"] and worst.order != same_load.UNKNOWN
    end = same_load.OR_RANDOM if worst.order == same_load.UNKNOWN else ", and the load did not rise"
    since = since_text(first.wall, facts.wall, first.resolution_us)
    others = "".join(f", {plural_of_op(row.op)} {same_load.factor_text(row.factor)}" for row in rows[1:])
    took = f"{spelled(worst.before_us)} -> {spelled(worst.now_us)}"
    middle_us = round(math.sqrt(worst.before_us * worst.now_us))
    return Finding(
        ID,
        WARNING if is_much else NOTICE,
        device,
        f"{device}: {plural_of_op(worst.op)} take {same_load.factor_text(worst.factor)} as long since {since} "
        f"(p50 {took}){others}{end}",
        tuple(_evidence(facts, device, slower, first, limits)),
        Where("overview", device, worst.op, middle_us),
        (*same_load.order_steps(worst.order), *_steps(facts, device, first)),
        same_load.REFUTED,
        min(1.0, added_us / worst.now_us),
        short=short_text(
            device,
            f"{plural_of_op(worst.op)} take {same_load.factor_text(worst.factor)} as long",
            f" since {since}",
            "; the load did not rise" if worst.order != same_load.UNKNOWN else "",
        ),
        began=Moment(first.mono_us, first.wall),
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
        ratio = row.last.shift.ratio if len(row.steps) == 1 else None
        sure = f", at the change {ratio.low:.3g} to {ratio.high:.3g} (95%)" if ratio else ""
        ios = row.now.count + row.first.shift.before.count
        when = "after it" if row.is_other_load else "now"
        text = f"{row.op}: p50 {spelled(row.before_us)} before, {spelled(row.now_us)} {when}: x{row.factor:.3g}{sure}"
        yield Fact(f"{row.op}_factor", round(row.factor, 3), text, "times", ios)
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
        text = f"in the {spelled(first.hour_us)} before, medians of {plural_of_op(first.op)} were {bounds_text(first)}"
        yield Fact("hour_before", round(2 ** first.hour[1]), text, "us")
    yield from _load_facts(rows, first, limits)
    yield from _at_the_same_time(facts, device, slower, first)


def _step_text(change: Change) -> str:
    return f"{plural_of_op(change.op)} {same_load.factor_text(change.factor)} at {clock(change.wall)}"


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
    },
    explained_by=same_load.CAUSES,
)
