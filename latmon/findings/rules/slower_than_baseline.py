"""slower-than-baseline: a device is slower than in the recordings of --baseline, in the same hour of another day.

Nothing is left out in silence: a missing hour, other devices, another load and damage are a notice on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from latmon.analysis.level_shift import LevelShift
from latmon.findings import same_load
from latmon.findings.baseline import (
    FEWEST_MINUTES,
    MINUTE_US,
    Baseline,
    BaselineComparison,
    SlowerThanBaseline,
    names_of,
)
from latmon.findings.facts import Facts
from latmon.findings.rule import LATENCIES, NOTICE, WARNING, Fact, Finding, Rule, Step, Thresholds, Where, short_text
from latmon.findings.span_load import SpanLoad
from latmon.model.stages import plural_of_op
from latmon.support.units import counted, rate, show_size, spelled

ID = "slower-than-baseline"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device that is slower than in the baseline, and what is compared with what."""
    comparison = facts.comparison
    if comparison is None:
        return
    baseline = comparison.state
    if not isinstance(baseline, Baseline):
        why = "it is being read" if baseline is None else baseline.why
        yield _on_baseline(f"--baseline: nothing is compared: {why}", "--baseline: nothing is compared", ())
        return
    other_load: dict[str, str] = {}
    for device in sorted(comparison.slower):
        rows = []
        for row in comparison.slower[device]:
            reason = _other_load(row, limits)
            if reason:
                other_load[device] = reason
            elif same_load.is_slower_device(row.shift, row.before, row.now, limits) and _is_enough(row.shift, limits):
                rows.append(row)
        if rows:
            rows.sort(key=_by_factor)
            yield _than_baseline(facts, device, baseline=baseline, rows=rows, limits=limits)
    yield from _what_is_compared(comparison, baseline, other_load)


def _other_load(row: SlowerThanBaseline, limits: Thresholds) -> str:
    """Return in what the load differs from that of the baseline, so that latencies can't be compared; or nothing."""
    before, now = row.before, row.now
    if not same_load.is_same_load(before, now, limits) or same_load.is_far_less(row.shift, before, now, limits):
        return f"another load: {_load_text(before)}, now {_load_text(now)}"
    if same_load.is_other_order(before, now, limits):
        return f"another load: {same_load.order_text(before, now)}"
    return ""


def _what_is_compared(
    comparison: BaselineComparison, baseline: Baseline, other_load: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a notice on the host where not all is compared."""
    not_compared = {**comparison.not_compared, **other_load}
    texts = [Fact("not_compared", name, f"{name}: {why}") for name, why in sorted(not_compared.items())]
    if comparison.by_name:
        names = names_of(sorted(comparison.by_name))
        text = f"compared by name, because the recordings have no serials: {names}"
        texts.append(Fact("by_name", len(comparison.by_name), text))
    if baseline.remark:
        texts.append(Fact("damage", baseline.remark, f"of the recording not all can be read: {baseline.remark}"))
    if comparison.minutes_us < FEWEST_MINUTES * MINUTE_US:
        text = f"--baseline {baseline.title}: compared from {FEWEST_MINUTES} minutes on"
        yield _on_baseline(text, f"--baseline: compared from {FEWEST_MINUTES} minutes on", texts)
    elif texts:
        compared = len(comparison.compared - other_load.keys())
        text = f"--baseline {baseline.title}: {counted(compared, 'device')} compared"
        if not_compared:
            text += f", not compared: {names_of(sorted(not_compared))}"
        if comparison.by_name:
            text += f", {len(comparison.by_name):,} only by name"
        short = f"--baseline: {counted(compared, 'device')} compared"
        if not_compared:
            short += f", {len(not_compared):,} not: another load, or no such device then"
        yield _on_baseline(text, short, texts)


def _on_baseline(summary: str, short: str, facts: Iterable[Fact]) -> Finding:
    return Finding(
        id=ID,
        severity=NOTICE,
        device="",
        summary=summary,
        facts=tuple(facts),
        where=Where("overview"),
        steps=(Step("name recordings of this host and of this hour: latmon watch --record DIR makes them"),),
        refuted_by="recordings of the same hour of another day, with these devices and their load",
        short=short_text("", short),
    )


def _by_factor(row: SlowerThanBaseline) -> float:
    return -row.shift.ratio.value


def _is_enough(shift: LevelShift, limits: Thresholds) -> bool:
    """Return whether a factor and the time that it adds are enough for a finding."""
    before_us, now_us = _medians(shift)
    return shift.ratio.value >= limits["times"] and now_us - before_us >= limits["added_us"]


def _medians(shift: LevelShift) -> tuple[int, int]:
    return shift.before.quantile(0.5) or 1, shift.after.quantile(0.5) or 1


def _load_text(load: SpanLoad) -> str:
    return f"{rate(load.iops)} IOPS of {show_size(load.mean_bytes)}"


def _than_baseline(
    facts: Facts,
    device: str,
    *,
    baseline: Baseline,
    rows: list[SlowerThanBaseline],
    limits: Thresholds,
) -> Finding:
    worst = rows[0]
    before_us, now_us = _medians(worst.shift)
    factor = worst.shift.ratio.value
    order = same_load.order_of(worst.before, worst.now, limits)
    is_much = factor >= limits["much"] and now_us - before_us >= limits["slow_us"] and order != same_load.UNKNOWN
    end = same_load.OR_RANDOM if order == same_load.UNKNOWN else ", under the same load"
    took = f"{spelled(before_us)} -> {spelled(now_us)}"
    slower = f"{plural_of_op(worst.op)} take {same_load.factor_text(factor)} as long as on {baseline.title}"
    others = "".join(f", {plural_of_op(row.op)} {same_load.factor_text(row.shift.ratio.value)}" for row in rows[1:])
    evidence = []
    for row in rows:
        ratio, (was, now) = row.shift.ratio, _medians(row.shift)
        text = (
            f"{row.op}: p50 {spelled(was)} then, {spelled(now)} now: x{ratio.value:.3g}, "
            f"{ratio.low:.3g} to {ratio.high:.3g} (95%), in {row.minutes[0]} and {row.minutes[1]} minutes"
        )
        ios = row.shift.before.count + row.shift.after.count
        evidence.append(Fact(f"{row.op}_factor", round(ratio.value, 3), text, "times", ios))
    text = f"load then and now: {_load_text(worst.before)}, {_load_text(worst.now)}"
    evidence += [
        Fact("iops", round(worst.now.iops, 1), text, "per_s"),
        same_load.order_fact(worst.before, worst.now, limits),
    ]
    if baseline.remark:
        evidence.append(Fact("damage", baseline.remark, f"of the recording not all can be read: {baseline.remark}"))
    steps = (
        *same_load.order_steps(order),
        Step("find out what changed since then: latmon diff of the recordings names settings that differ"),
        *same_load.device_steps(facts, device),
    )
    return Finding(
        id=ID,
        severity=WARNING if is_much else NOTICE,
        device=device,
        summary=f"{device}: {slower} (p50 {took}){others}{end}",
        facts=tuple(evidence),
        where=Where("overview", device, worst.op, round(math.sqrt(before_us * now_us))),
        steps=steps,
        refuted_by=same_load.REFUTED,
        share=min(1.0, (now_us - before_us) / now_us),
        short=short_text(
            device,
            f"{plural_of_op(worst.op)} take {same_load.factor_text(factor)} as long as another day",
            f": {baseline.title}",
        ),
    )


RULE = Rule(
    ID,
    "I/Os of a device take longer than in the recordings of --baseline, or these can't be compared",
    evaluate,
    needs=LATENCIES,
    thresholds=same_load.THRESHOLDS,
    explained_by=(*same_load.CAUSES, "slower-than-before"),
)
