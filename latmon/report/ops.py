"""An op's part of the report: its latency, its stages, its I/Os by size, the kernel's counts.

A stage without a number has a reason. Pure: sums in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from latmon.analysis import attribution
from latmon.model.frame import STAGES, UNACCOUNTED, Completed, Flow, Missing, Origin, Series, Traced
from latmon.model.measurements import ERRORS
from latmon.model.packed_frame import SEEN_ALONE
from latmon.model.stages import ADMISSION, FACTS_OF, why_unmeasured
from latmon.report.formatting import order
from latmon.report.latencies import of_stage, quantiles, summed
from latmon.report.model.device import (
    NOT_MEASURED,
    NOT_PASSED,
    KernelCounts,
    Op,
    Sampling,
    TracedPaths,
    TracedTotal,
)
from latmon.report.model.latency import StageQuantiles, SummedQuantiles, Tail
from latmon.report.op_sums import TOTAL, OpSums, Stages
from latmon.views.anatomy import NO_WAITER


def op_of(flow: Flow, by_stage: Stages, cut_us: int | None, sums: OpSums) -> Op:
    """Return an op's row; `cut_us`: the latency from which on its slow I/Os are a tail."""
    totals, edges = sums.totals, sums.edges
    of_op = stages(flow, by_stage, sums.origin, totals.traced)
    count = count_of(flow, by_stage, sums)
    kernel = sums.kernel.get(flow)
    counted = sums.seen.get(flow) or kernel
    latency = by_stage.get(TOTAL)
    total = None if latency is None else edges.applied(Series(*flow, TOTAL), quantiles(latency))
    return Op(
        count=count,
        untimed=0 if latency is None else max(0, count - latency.count),
        failed=_failed(flow, sums),
        bytes=counted.bytes if counted else None,
        latency_us=total,
        stages={stage: edges.applied(Series(*flow, stage), figures) for stage, figures in of_op.stages.items()},
        stages_absent=of_op.absent,
        of=of_op.of,
        unaccounted=of_op.unaccounted,
        latency_whole_us=of_op.whole,
        admission_us=of_op.admission,
        tail=tail(flow.device, (flow.op,), totals.traced, cut_us),
        kernel=_kernel(kernel, totals[SEEN_ALONE].get(flow)) if kernel else None,
        sizes=sums.sizes.get(flow),
    )


def _failed(flow: Flow, sums: OpSums) -> dict[str, int] | None:
    """Return the failed I/Os by status; None where they were not counted."""
    failed = {row.status: ios for row, ios in sums.totals[ERRORS].items() if (row.device, row.op) == flow and ios}
    if not failed and ERRORS.name not in sums.origin.counted:
        return None
    return failed


def stages(flow: Flow, always: Stages, origin: Origin, traced: Traced) -> OpStages:
    """Return an op's stages; of traced requests also their total, its unaccounted part and their submission."""
    by_stage = attribution.stages_of(traced, flow.device, (flow.op,))
    total = attribution.total_of(traced, flow.device, (flow.op,))
    if not total:
        # the time after an I/O's completion is also measured by scripts that don't trace I/Os
        resumed = {name: histogram for name, histogram in by_stage.items() if name == "resume"}
        return _always({**always, **resumed}, origin, traced)
    passed = {name: histogram for name, histogram in by_stage.items() if name != UNACCOUNTED}
    submitted = attribution.submission_of(traced, flow.device, (flow.op,))
    includes = traced.includes_of(flow.device)
    before = includes.get(ADMISSION, ())
    return OpStages(
        _each(passed, includes),
        _absent(flow.device, passed, traced),
        of=TracedTotal(sampling=sampling(traced), latency_us=summed(total)),
        unaccounted=summed(by_stage[UNACCOUNTED]) if UNACCOUNTED in by_stage else None,
        whole=of_stage(submitted.whole, before) if submitted.whole else None,
        admission=of_stage(submitted.admission, before) if submitted.whole else None,
    )


class OpStages(NamedTuple):
    """Stages of an op with their reasons; None is what isn't traced."""

    stages: Mapping[str, StageQuantiles]
    absent: Mapping[str, str]
    of: TracedTotal | None = None
    unaccounted: SummedQuantiles | None = None
    whole: StageQuantiles | None = None
    """From submission to completion."""
    admission: StageQuantiles | None = None


def count_of(flow: Flow, by_stage: Stages, sums: OpSums) -> int:
    """Return the completions that the probe saw; without a probe the I/Os timed or traced, or the kernel's count."""
    counted = sums.seen.get(flow) or sums.kernel.get(flow)
    if counted:
        return counted.count
    traced = attribution.total_of(sums.totals.traced, flow.device, (flow.op,))
    return max((histogram.count for histogram in (*by_stage.values(), traced)), default=0)


def sampling(traced: Traced) -> Sampling:
    """Return how many I/Os the tracer followed, at the coarsest, and at the finest if it changed."""
    least, most = traced.sampled
    return Sampling(one_in=most, one_in_least=least if least != most else None)


def tail(device: str, ops: Iterable[str], traced: Traced, cut_us: int | None) -> Tail | None:
    """Return the tail; None if no I/O is above the cut, or none was traced."""
    if cut_us is None:
        return None
    above = attribution.tail(traced, device, ops, cut_us)
    if not above.count:
        return None
    return Tail(above.cut_us, above.count, {stage: round(share, 6) for stage, share in above.share.items()})


def followed(device: str, traced: Traced) -> TracedPaths | None:
    """Return how traced requests completed, why some weren't followed, and what tasks waited for before (us).

    `completers` (of one completion in 64) and `raisers` (by vector) are the most frequent kernel functions.
    """
    raisers = attribution.raisers_of(traced, device)
    paths = TracedPaths(
        paths=traced.paths.get(device, {}),
        unfollowed=traced.unfollowed.get(device, {}),
        admission_causes=traced.admission_causes.get(device, {}),
        completers=attribution.frequent(traced.completers.get(device, {})),
        raisers={vector: attribution.frequent(stacks) for vector, stacks in raisers.items()},
    )
    is_any = paths.paths or paths.unfollowed or paths.admission_causes or paths.completers or paths.raisers
    return paths if is_any else None


def _always(by_stage: Stages, origin: Origin, traced: Traced) -> OpStages:
    reasons = _reasons(origin.absent)
    if origin.backend == "dtrace" and traced.one_in and not origin.why_untraced("resume"):
        reasons["resume"] = NOT_PASSED + NO_WAITER
    return OpStages(
        _each({name: histogram for name, histogram in by_stage.items() if name != TOTAL}, origin.measured),
        {name: why for name, why in reasons.items() if name not in by_stage},
    )


def _each(by_stage: Stages, includes: Mapping[str, tuple[str, ...]]) -> dict[str, StageQuantiles]:
    names = sorted(by_stage, key=order(STAGES))
    return {name: of_stage(by_stage[name], includes.get(name, ())) for name in names}


def _absent(device: str, passed: Stages, traced: Traced) -> dict[str, str]:
    """Return why each other stage has no number: not measured, or no request passed it."""
    reasons = _reasons(traced.absent)
    absent = {}
    for name in STAGES:
        if name == TOTAL or name in passed:
            continue
        if why := why_unmeasured(name, passed, reasons, traced.includes_of(device)):
            absent[name] = why if name in reasons else f"{NOT_MEASURED}{why}"
        else:
            absent[name] = NOT_PASSED + (FACTS_OF[name].not_passed or _completes(device, traced))
    return absent


def _reasons(absent: Iterable[Missing]) -> dict[str, str]:
    return {missing.name: missing.reason for missing in absent}


def _completes(device: str, traced: Traced) -> str:
    paths = traced.paths.get(device, {})
    if not paths:
        return "no followed request of this device passed it"
    path = max(paths, key=lambda name: paths[name])
    where = f"in the {path}" if path == "hard interrupt" else f"by {path}"
    return f"completes {where}" if len(paths) == 1 else f"no followed request passed it; most complete {where}"


def _kernel(done: Completed, alone: Completed | None) -> KernelCounts:
    mean_us = queue_us = driver_us = None
    if done.time_us is not None and done.count:
        mean_us = round(done.time_us / done.count, 1)
        if done.queue_us is not None:
            queue_us = round(done.queue_us / done.count, 1)
            driver_us = round((done.time_us - done.queue_us) / done.count, 1)
    return KernelCounts(
        count=done.count,
        bytes=done.bytes,
        time_us=done.time_us,
        mean_us=mean_us,
        queue_mean_us=queue_us,
        driver_mean_us=driver_us,
        merged=done.merged,
        seen_alone=alone.count if alone else 0,
    )
