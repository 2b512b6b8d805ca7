"""Latencies of an op and its stages as rows for text and HTML, and the sentence on its volume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from latmon.model.frame import (
    UNACCOUNTED,
)
from latmon.model.measurements import errors
from latmon.model.stages import ADMISSION, AFTER_LIMIT, WHOLE, called
from latmon.report.columns import Column, cell, quantile
from latmon.report.model.device import (
    KernelCounts,
    Op,
)
from latmon.report.model.latency import QUANTILES, RAREST, Quantiles, SummedQuantiles
from latmon.support.units import in_words, rate, speed, spelled

LATENCY: Sequence[Column[LatencyRow]] = (
    Column("timed", "count", attrgetter("latency.count"), 10),
    Column("mean", "time", attrgetter("latency.mean"), 7),
    *(quantile(attrgetter("latency"), name, name, 7) for name in (*QUANTILES, "max")),
    Column("share", "share", attrgetter("share"), 6),
)
"""Columns of latency_rows, after the name."""


def includes_of(ops: Mapping[str, Op]) -> dict[str, tuple[str, ...]]:
    """Return the stages that each stage includes, from the report of a device's traced ops, or else of all its ops."""
    chosen = [op for op in ops.values() if op.of] or list(ops.values())
    return {stage: latency.includes for op in chosen for stage, latency in op.stages.items()}


class LatencyRow(NamedTuple):
    """A row of an op's latencies. `share`: the stage's part of the summed time, 0..1; "" where it is unknown."""

    name: str
    latency: Quantiles
    share: float | Literal[""] = ""


def latency_rows(op: Op, begins: str) -> Iterator[LatencyRow]:
    """Yield what begins at submission, the op's total, its total of traced I/Os if it differs, and its stages.

    A traced total includes the queue, so it is longer than a latency that `begins` at the issue, even of as many I/Os.
    """
    latency, traced = op.latency_us, op.traced_us
    base = traced or latency
    whole_us = (base.mean or 0) * base.count if base else 0
    for name, submitted in ((WHOLE, op.latency_whole_us), (ADMISSION, op.admission_us)):
        if submitted:
            yield LatencyRow(name + ("" if submitted.includes else AFTER_LIMIT), submitted)
    if latency:
        yield LatencyRow("total", latency)
    is_longer = begins == "issue" and "queue" in op.stages
    if traced and (not latency or is_longer or traced.count != latency.count):
        yield LatencyRow("of traced", traced)
    for stage, stage_us in op.stages.items():
        name = called(stage, stage_us.includes).column
        yield LatencyRow(name, stage_us, "" if stage == "resume" else _share(stage_us, whole_us))
    if op.unaccounted:
        yield LatencyRow(called(UNACCOUNTED).column, op.unaccounted, _share(op.unaccounted, whole_us))


def _share(latency: SummedQuantiles, whole_us: float) -> float | Literal[""]:
    return "" if not whole_us or latency.sum is None else min(1.0, latency.sum / whole_us)


def stages_without(ops: Mapping[str, Op]) -> dict[str, list[str]]:
    """Return the stages that have no number in any op, by the reason."""
    reasons: dict[str, list[str]] = {}
    for stage, why in {stage: why for op in ops.values() for stage, why in op.stages_absent.items()}.items():
        if all(stage not in op.stages for op in ops.values()):
            reasons.setdefault(why, []).append(stage)
    return reasons


def volume(op: Op, seconds: float | None) -> str:
    """Return the op's I/Os, rates over `seconds`, rarest quantile, how far the kernel's counters differ, their mean.

    `seconds` is None where they were not measured. The kernel's mean includes the queue, so it is apart from latencies
    that begin at the issue.
    """
    text = f"{op.count:,} I/Os"
    if seconds:
        text += f", {rate(op.count / seconds)}/s"
        text += f", {speed(op.bytes / seconds)}" if op.bytes else ""
    if op.latency_us and op.latency_us.p99_999 is not None:
        text += f", {RAREST} {in_words(cell(op.latency_us, RAREST))}"
    if op.failed:
        text += f"; {op.failures:,} of them failed ({errors.in_words(op.failed)}) and are not timed"
    if op.untimed > op.failures:
        text += f"; {op.untimed - op.failures:,} {'others' if op.failures else 'of them'} not timed"
    return text + (_kernel_text(op, op.kernel) if op.kernel else "")


def _kernel_text(op: Op, kernel: KernelCounts) -> str:
    """Return how far the kernel's counters differ from an op's, and their mean."""
    text = ""
    both = op.count - kernel.seen_alone
    if kernel.count != both:
        where = f" in windows where the probe counted {both:,}" if both < op.count else ""
        text += f"; the kernel counted {kernel.count:,}{where}"
    if kernel.merged:
        text += f"; {kernel.merged:,} more were merged into them"
    is_mean_known = op.latency_us is not None and op.latency_us.mean is not None
    if not is_mean_known and kernel.mean_us is not None:
        text += f"; mean {spelled(kernel.mean_us)} by the kernel's own clock"
        text += ", which includes the queue" if op.latency_us else ""
        if kernel.queue_mean_us is not None and kernel.driver_mean_us is not None:
            queue, driver = spelled(kernel.queue_mean_us), spelled(kernel.driver_mean_us)
            text += f": {queue} queued above the driver + {driver} in it"
    return text
