"""worse-since-setting: a setting of a device was changed, and since then it moves far fewer bytes or takes far longer.

Read-ahead that is off, a smaller request or queue, another scheduler: latencies may be as before while a program gets a
fraction of its bytes, in smaller I/Os. Blocks before and after the change are compared: in the first minute since then
it must be worse, and stay so without a better minute. No finding: a load that wants less since then, which has fewer
I/Os in flight; what got worse later, which is not by the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from latmon.findings.changed_settings import LEAST_IOS, BestMinute, ChangedSetting
from latmon.findings.facts import Facts
from latmon.findings.latency_history import DeviceChange
from latmon.findings.op_load import OpLoad
from latmon.findings.rule import (
    LATENCIES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    setting,
    short_text,
    sysfs,
    within,
)
from latmon.findings.same_load import factor_text
from latmon.support.units import clock, part, show_size, speed, spelled

ID = "worse-since-setting"
_OF_SIZES = ("read_ahead_kb", "max_sectors_kb", "nomerges")
"""Settings that make I/Os smaller: with others fewer bytes are another load's."""
_REFUTED = "the old value does not bring the old throughput or latency back"


class _Worse(NamedTuple):
    """An op that got worse with a change."""

    op: str
    before: OpLoad
    after: OpLoad
    is_slower: bool
    """Whether it takes longer; else it moves fewer bytes."""

    @property
    def factor(self) -> float:
        if self.is_slower:
            return self.after.mean_us / self.before.mean_us
        return self.before.bytes_per_s / self.after.bytes_per_s


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about its newest change, if I/Os got worse with it."""
    if facts.changed_settings is None:
        return
    for device, changed in sorted(facts.changed_settings.by_device.items()):
        worse = _worse(changed, limits) if changed.before and facts.has_io(device) else None
        if worse is not None:
            yield _finding(facts, changed.change, worse)


def _worse(changed: ChangedSetting, limits: Thresholds) -> _Worse | None:
    """Return the op that got worse most with the change; None where none did, or where too little was measured since.

    That it is worse now is the change's doing only where it was so in the first minute since then, and ever since.
    """
    lasting: list[_Worse] = []
    for op in changed.before:
        at_first = {worse.is_slower for worse in _of_op(changed, op, changed.first, limits)}
        for worse in _of_op(changed, op, changed.last, limits):
            best = changed.best.get(op)
            if worse.is_slower in at_first and best is not None and not _was_as_before(worse, best, limits):
                lasting.append(worse)
    return max(lasting, key=lambda worse: worse.factor, default=None)


def _of_op(changed: ChangedSetting, op: str, minute: Mapping[str, OpLoad], limits: Thresholds) -> list[_Worse]:
    """Return how an op is worse in a minute than before the change; empty where it isn't."""
    before, after = changed.before[op], minute.get(op)
    if after is None or min(before.ios, after.ios) < limits["ios"] or not before.mean_us or not after.bytes:
        return []
    is_of_sizes = changed.change.name in _OF_SIZES
    return list(_compared(op, before, after, limits) if is_of_sizes else _slower(op, before, after, limits))


def _was_as_before(worse: _Worse, best: BestMinute, limits: Thresholds) -> bool:
    """Return whether the best minute since the change was like the time before it."""
    if worse.is_slower:
        return best.mean_us <= limits["alike"] * worse.before.mean_us
    return best.bytes_per_s * limits["alike"] >= worse.before.bytes_per_s


def _compared(op: str, before: OpLoad, after: OpLoad, limits: Thresholds) -> Iterator[_Worse]:
    fewer = _Worse(op, before, after, is_slower=False)
    if fewer.factor >= limits["times"] and after.in_flight >= limits["in_flight"] and after.size < before.size:
        yield fewer
    yield from _slower(op, before, after, limits)


def _slower(op: str, before: OpLoad, after: OpLoad, limits: Thresholds) -> Iterator[_Worse]:
    slower = _Worse(op, before, after, is_slower=True)
    is_alike = after.size <= limits["alike"] * before.size and after.iops <= limits["alike"] * before.iops
    if slower.factor >= limits["times"] and after.mean_us - before.mean_us >= limits["added_us"] and is_alike:
        yield slower


def _finding(facts: Facts, change: DeviceChange, worse: _Worse) -> Finding:
    before, after = worse.before, worse.after
    if worse.is_slower:
        what = f"take {spelled(after.mean_us)} on average instead of {spelled(before.mean_us)}"
        short = f"{worse.op}s take {factor_text(worse.factor)} as long"
    else:
        sizes = f"in I/Os of {show_size(after.size)} instead of {show_size(before.size)}"
        what = f"move {speed(after.bytes_per_s)} instead of {speed(before.bytes_per_s)}, {sizes}"
        short = f"{worse.op} bytes/s fell to {part(1 / worse.factor)}"
    where = clock(facts.wall - (facts.window[-1].end_us - change.mono_us) / 1e6)
    return Finding(
        id=ID,
        severity=WARNING,
        device=change.device,
        summary=f"{change.device}: since {change.text} (seen at {where}) {worse.op}s {what}",
        facts=tuple(_evidence(change, worse)),
        where=Where("overview", change.device, worse.op),
        steps=tuple(_steps(facts, change)),
        refuted_by=_REFUTED,
        share=1 - 1 / worse.factor,
        state=(change.text, worse.op),
        short=short_text(change.device, f"{within(change.text, 23)}: {short}"),
    )


def _evidence(change: DeviceChange, worse: _Worse) -> Iterator[Fact]:
    before, after = worse.before, worse.after
    yield Fact("changed", change.text, f"a setting changed up to 10 s before it was read: {change.text}")
    text = f"{worse.op}s move {speed(after.bytes_per_s)}, before {speed(before.bytes_per_s)}"
    yield Fact("bytes_per_s", round(after.bytes_per_s), text, "bytes", after.ios)
    yield Fact(
        "size", round(after.size), f"an I/O has {show_size(after.size)}, before {show_size(before.size)}", "bytes"
    )
    text = f"an I/O takes {spelled(after.mean_us)} on average, before {spelled(before.mean_us)}"
    yield Fact("mean_us", round(after.mean_us), text, "us", after.ios)
    text = f"{after.in_flight:.2g} {worse.op}s are in flight on average, before {before.in_flight:.2g}"
    yield Fact("in_flight", round(after.in_flight, 2), text)


def _steps(facts: Facts, change: DeviceChange) -> Iterator[Step]:
    sources = {limit.name: limit.source for limit in facts.device(change.device).limits}
    source = sources.get(change.name, "")
    is_file = source.startswith(("queue/", "device/")) and plain(source.replace("/", "_")) and plain(change.was)
    yield Step(
        "write the old value back, and look whether the old numbers come back",
        "what it was changed for comes back, too; undone by the new value",
        (setting(f"{sysfs(change.device)}/{source}", change.was),) if is_file else (),
    )
    yield Step("find out who changed it: a tuning profile (tuned), a udev rule, a database's installer, a person")


RULE = Rule(
    ID,
    "a setting of a device was changed, and since then its I/Os move far fewer bytes or take far longer",
    evaluate,
    needs=LATENCIES,
    thresholds={
        "times": Threshold(2.0, "times", "fewer bytes per second, or as long, at least"),
        "added_us": Threshold(1_000, "us", "longer at least"),
        "in_flight": Threshold(0.3, "ios", "in flight on average since then at least: the load wants more"),
        "alike": Threshold(1.25, "times", "as many and as large I/Os at most, where they take longer; and as before"),
        "ios": Threshold(LEAST_IOS, "ios", "of the op on each side at least"),
    },
)
