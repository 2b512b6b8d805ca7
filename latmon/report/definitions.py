"""Definitions of the numbers in a report as far as they occur, and why some numbers are missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from latmon.model.devices import thread_sentence
from latmon.model.histogram import BITS
from latmon.model.inflight import SYSFS
from latmon.model.stages import AFTER_LIMIT, explained
from latmon.report.columns import ROUGH
from latmon.report.model.depth import Depths, DepthsAtIssue, MeanDepths
from latmon.report.model.device import NOT_PASSED, Op
from latmon.report.model.latency import Quantiles
from latmon.report.model.report import Report
from latmon.support.units import UNKNOWN

_FROM = {
    "queued": "total: from the moment the request was queued to its completion",
    "issue": "total: from the issue to the driver to the completion; the time in the scheduler's queue is not in it",
}
_HOW = (
    "us, ms, s: micro-, milliseconds, seconds. A quantile is the upper bound of a bucket {width}. "
    "-: not measured, or too few I/Os (p99.9 needs 1,000). ≤: the exact maximum is not known."
)
_SHARE = "share: of the summed time of the I/Os whose stages were measured; resume follows the total and has no share"
_TRACED = (
    "total: all timed I/Os; of traced: I/Os whose stages were traced, to which the stages, their means and shares "
    "refer. Both end at the completion"
)
_WHOLE = (
    "whole: traced I/Os from submission to completion; admission: its part before the request exists, which total lacks"
)
_LATER = f"{AFTER_LIMIT} the wait for a cgroup's limit is before both, and not measured here"
_MEAN = f"mean {UNKNOWN}: the sum of some window is unknown; quantiles include all windows"
_BEGINS = "of traced: begins with the queue, if there is one; the total of all timed I/Os begins at the issue here"
_CUT = "above: the bound of the first bucket at or above --threshold, or after the p99 without a threshold"
_UNTIMED = (
    "not timed, though counted as the kernel does: the empty write of each fsync, which carries the flush and never "
    "goes to the driver, and completions without a start (unmatched)"
)


def meaning(report: Report) -> list[str]:
    """Return definitions of the numbers, and why some are missing."""
    how = _HOW.format(width=_width(report))
    seconds = report.measured_s
    rates = f"/s: per second of the windows, of {seconds:,.6g} s in all" if seconds and report.gaps else ""
    sentences = (
        *_begins(report),
        *_measured(report),
        *_words(report),
        *_depth_terms(report),
        rates,
        how,
    )
    return [sentence for sentence in sentences if sentence]


def _begins(report: Report) -> Iterator[str]:
    if report.latency_from in _FROM:
        yield _FROM[report.latency_from]


def _measured(report: Report) -> Iterator[str]:
    includes: dict[str, None] = {}
    absent: dict[str, list[str]] = {}
    for device in report.devices.values():
        for op in device.ops.values():
            sentences = (explained(stage, latency.includes) for stage, latency in op.stages.items())
            includes |= dict.fromkeys(sentence for sentence in sentences if sentence)
            for stage, why in op.stages_absent.items() if device.timed is not False else ():
                if why.startswith(NOT_PASSED):
                    continue
                stages = absent.setdefault(why, [])
                stages += [] if stage in stages else [stage]
    yield from includes
    yield from _threads(report)
    yield from (f"not measured: {', '.join(stages)} ({why})" for why, stages in absent.items())
    missing: dict[str, list[str]] = {}
    for probe in report.health.probes_missing:
        missing.setdefault(probe.reason, []).append(probe.name)
    for why, names in missing.items():
        yield f"probe{'s' * (len(names) != 1)} not attached: {', '.join(names)} ({why})"


def _threads(report: Report) -> Iterator[str]:
    """Yield a sentence for each device whose driver hands I/Os to a thread of this host, whose waits are in hba."""
    for name, device in report.devices.items():
        sentence = thread_sentence(name, device.driver)
        if sentence and any("hba" in op.stages for op in device.ops.values()):
            yield sentence


def _words(report: Report) -> Iterator[str]:
    """Yield definitions of the terms that occur."""
    ops = _ops(report)
    traced = [op for op in ops if op.of]
    if any(op.untimed > op.failures for op in ops):
        yield _UNTIMED
    if any(op.stages for op in ops):
        yield _SHARE
    if traced:
        yield _TRACED
    if admissions := [op.admission_us for op in ops if op.admission_us]:
        yield _WHOLE if all(admission.includes for admission in admissions) else f"{_WHOLE}. {_LATER}"
    if report.latency_from == "issue" and any("queue" in op.stages for op in traced):
        yield _BEGINS
    if any(device.tail for device in report.devices.values()):
        yield _CUT
    if any(_is_sumless(op) for op in ops):
        yield _MEAN


def _is_sumless(op: Op) -> bool:
    """Return whether the mean of a row with I/Os is unknown."""
    rows = [op.latency_us, op.traced_us, *op.stages.values()]
    return any(row and row.count and row.mean is None for row in rows)


def _depth_terms(report: Report) -> list[str]:
    """Return definitions of the terms on depths."""
    by_device = [device.outstanding for device in report.devices.values()]
    counted = [outstanding for outstanding in by_device if isinstance(outstanding, Depths | DepthsAtIssue)]
    lines: list[str] = []
    if any(isinstance(outstanding, MeanDepths) for outstanding in by_device):
        lines.append("mean in the driver, outstanding: of the printed intervals; no distribution was measured")
    if counted:
        lines.append("in the driver: shares of the busy time, in which the device had any there")
    if any(outstanding.at_issue for outstanding in counted):
        lines.append("at issue: requests by the number in the driver, themselves included")
    if any(isinstance(outstanding, Depths) and outstanding.latency_by_depth is not None for outstanding in counted):
        lines.append("latency by outstanding: of I/Os by the number outstanding at their start, queued ones included")
    if any(outstanding.source == SYSFS for outstanding in counted):
        lines.append("depths by sysfs: sampled, not counted at each I/O; depths at issue are unknown")
    return lines


def _width(report: Report) -> str:
    """Return the width of the coarsest buckets of latency rows, and of those by size, and the digits."""
    ops = _ops(report)
    rows: list[Quantiles] = [op.latency_us for op in ops if op.latency_us]
    rows += chain.from_iterable(op.stages.values() for op in ops)
    by_size = chain.from_iterable(op.sizes.latency for op in ops if op.sizes)
    parts = sorted({row.parts for row in rows})
    of_size = sorted({size.latency_us.parts for size in by_size})
    if not parts or parts[0] == 2**BITS:
        text = "at most 12.5 % wide"
    else:
        wide = "an octave" if parts[0] == 1 else f"1/{parts[0]} of an octave"
        others = "; others' are at most 12.5 %" if parts[-1] == 2**BITS else ""
        text = f"up to {wide} wide{' (~)' if parts[0] <= ROUGH else ''} where the source's are{others}"
    if of_size and of_size[0] < 2**BITS:
        text += f" (by size {100 / of_size[0]:g} %)"
    text += "; it is rounded up to two digits"
    is_open = any(row.or_more for row in rows)
    return text + (". ≥: in a row of the source without an upper bound" if is_open else "")


def _ops(report: Report) -> list[Op]:
    return list(chain.from_iterable(device.ops.values() for device in report.devices.values()))
