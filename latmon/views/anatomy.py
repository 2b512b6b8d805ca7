"""The composition of a device's latency: a row per stage, and the stages' shares in slow I/Os. Pure.

`anatomy` sums over buckets once per frame; drawing only reads its result. The numbers are of the traced requests where
the tracer runs, else of the always-on stages, never of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.analysis.attribution import (
    PARTS,
    by_size,
    by_vector,
    frequent,
    in_table,
    latency_by_size,
    parts_of,
    parts_us,
    raisers_of,
    stages_of,
    submission_of,
    tail_cut,
    total_of,
    untraced_share,
    vectors_of,
)
from latmon.model.frame import TRACER_STARTING, UNACCOUNTED, Device, Flow, Origin, Outlier, Series, Traced
from latmon.model.histogram import EMPTY, Histogram, bucket_bounds, bucket_index
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.patterns import PATTERN, Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.stages import (
    ABOVE_DRIVER,
    ADMISSION,
    AFTER_LIMIT,
    FACTS_OF,
    WHOLE,
    WORKER,
    by_column,
    called,
    why_unmeasured,
)
from latmon.support.text import listed
from latmon.support.units import part, show_size, spelled
from latmon.views.units import count, maximum, quantile, sampled_as

ALL_OPS = "all ops"
Parts = Mapping[str, float]
"""Stage -> time in us."""
NO_WAITER = "no I/O had a thread waiting in the kernel (libaio has none)"
"""Reason of D scripts, which probe the kernel's own waits."""
BEGINS = (
    f"{AFTER_LIMIT} whole and admission begin when an I/O is queued; a cgroup's limit holds it back before that: not "
    "measured here"
)
_NAMED_CAUSE = 0.05
"""Least share of a cause that is named."""
MUCH = 0.1
"""Share of admission from which on latencies that begin with the request mislead."""
_PATTERNS = {
    "sequential": "sequential",
    "ahead": "read ahead",
    "sync": "flagged SYNC",
    "unaligned": "not aligned to physical blocks",
}
"""Field of a Pattern -> its name in the sentence on sizes."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage. `share`: of all time; `tail`: of the time above the threshold; `reason`: for a missing number."""

    stage: str
    histogram: Histogram = EMPTY
    share: float | None = None
    tail: float | None = None
    includes: tuple[str, ...] = ()
    reason: str = ""
    after_limit: bool = False
    """Whether it begins after the wait for a cgroup's limit, which is not measured: a mark refers to the sentence."""

    @property
    def column(self) -> str:
        return called(self.stage, self.includes).column + AFTER_LIMIT * self.after_limit


_NO_ADMISSION = (StageRow(ADMISSION, reason="not measured here: throttling, waiting for a tag"),)
"""Row of the time before an I/O's request exists, where no script measures it."""


@dataclass(frozen=True, slots=True)
class LatencyBand:
    """The I/Os between two latencies (`high_us` None: no end): their number and their time by stage."""

    low_us: int
    high_us: int | None
    count: int
    parts: Parts
    """With the ages of those in flight."""
    waiting: int = 0
    """Number of I/Os in flight for so long, which `count` lacks."""

    @property
    def ios(self) -> int:
        return self.count + self.waiting


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A device's stages over the window."""

    device: str
    op_label: str = ALL_OPS
    total: Histogram = EMPTY
    rows: tuple[StageRow, ...] = ()
    whole: Parts = field(default_factory=lambda: MappingProxyType({}))
    """The time of all I/Os by stage."""
    bands: tuple[LatencyBand, ...] = ()
    """Up to p50, from there to the threshold, and above it; empty without tracing or with too few I/Os."""
    on_demand: bool = False
    sampled: str = ""
    """1 in so many, where not all are traced."""
    untraced_share: float | None = None
    """Share of the device's traced requests, of all ops, whose path could not be followed; None: no traced requests."""
    unfollowed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    paths: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> the stages whose time it includes."""
    why: str = ""
    """Why it isn't traced, or why there is no tail."""
    threshold_us: int | None = None
    """The user's threshold; None: the threshold is p99."""
    admission: float = 0.0
    """Share of the time from submission to completion that passes before the requests exist."""
    causes: str = ""
    """The parts of that time by what tasks waited for, of all ops."""
    softirqs: tuple[str, ...] = ()
    """Sentences on softirqs that others use, too, and that completions wait for."""
    stacks: tuple[str, ...] = ()
    """Sentences on the kernel functions that complete its requests and raise its softirqs."""
    sizes: tuple[str, ...] = ()
    """Sentences on latencies by size."""
    driver: str = ""
    """The device's driver, where the caller sets it."""
    has_queue_apart: bool = False
    """`total` includes the queue, and the always-on latency of the overview begins at the issue."""

    @property
    def tail(self) -> LatencyBand | None:
        return _tail(self.bands)

    def by_column(self, parts: Parts) -> Parts:
        """Return the parts of one of its bars by the names that stages have in a column."""
        return by_column(parts, self.includes)


def anatomy(
    device: str,
    ops: tuple[str, ...],
    traced: Traced,
    origin: Origin,
    *,
    total: Histogram = EMPTY,
    basic: Mapping[Series, Histogram] = MappingProxyType({}),
    cut_us: int | None = None,
    op_label: str = ALL_OPS,
    detailed: bool = True,
    of_bucket: Sequence[Outlier] | None = None,
    outliers: Sequence[Outlier] = (),
    waiting: int = 0,
    waited_us: Mapping[str, int] = MappingProxyType({}),
) -> Anatomy:
    """Return the composition of a device's latency.

    `total` and `basic`: the always-on latency and stages of these ops; `cut_us`: the user's threshold, else p99.
    `detailed`: with rows, which take half of the time and which a bar doesn't need. `of_bucket`: the I/Os above the
    threshold in its own bucket, as `of_threshold_bucket` returns them; None: the slow ones begin at the next bucket.
    `outliers`: recorded I/Os of these ops, which have exact times. `waiting`, `waited_us`: number of I/Os in flight
    that are slow already, and stage -> their ages.
    """
    of_traced = total_of(traced, device, ops)
    if not of_traced:
        # `resume` is counted by itself, and by scripts that need not trace I/Os.
        waiters = {stage: histogram for stage, histogram in stages_of(traced, device, ops).items() if stage == "resume"}
        stages = parts_of(stages_of(Traced(histograms=basic), device, ops), total) | waiters
        return _basic(device, traced, origin, {**stages, "total": total}, op_label)
    bounds = _part_bounds(of_traced, tail_cut(traced, device, ops, cut_us))
    times = _times(traced, device, ops, bounds)
    all_times = {stage: sum(by) for stage, by in times.items()}
    bands = _bands(of_traced, times, bounds)
    if of_bucket is not None and cut_us is not None and bands:
        bands = _from_threshold(bands, of_bucket, cut_us)
    if waiting and bands:
        bands = (*bands[:-1], _with_waiting(bands[-1], waiting, waited_us))
    tail = _tail(bands)
    rows: tuple[StageRow, ...] = ()
    if detailed:
        stages = _within_total(parts_of(stages_of(traced, device, ops), of_traced), total, origin)
        stages = {stage: histogram.with_longest(_times_in(outliers, stage)) for stage, histogram in stages.items()}
        rows = (*_admission(traced, device, ops), *_rows(device, traced, stages, all_times, tail))
    return Anatomy(
        device=device,
        op_label=op_label,
        total=of_traced,
        rows=rows,
        whole=all_times,
        bands=bands,
        on_demand=True,
        has_queue_apart=origin.latency_from == "issue",
        sampled=sampled_as(*traced.sampled),
        untraced_share=untraced_share(traced, device),
        unfollowed=traced.unfollowed.get(device, {}),
        paths=traced.paths.get(device, {}),
        includes=traced.includes_of(device),
        why="" if tail else "no tail: p99 needs 100 I/Os" if not bands else "no I/O above the threshold",
        threshold_us=cut_us,
        admission=submission_of(traced, device, ops).share,
        stacks=stacks_text(device, traced.completers.get(device, {}), raisers_of(traced, device)),
        causes=causes_text(traced.admission_causes.get(device, {}), submission_of(traced, device).admission.sum or 0),
    )


def _times_in(outliers: Iterable[Outlier], stage: str) -> list[int]:
    """Return the us of recorded I/Os in a stage."""
    if stage == UNACCOUNTED:
        return [outlier.unaccounted_us for outlier in outliers]
    return [outlier.stages_us[stage] for outlier in outliers if stage in outlier.stages_us]


def _from_threshold(
    bands: tuple[LatencyBand, ...], of_bucket: Sequence[Outlier], threshold_us: int
) -> tuple[LatencyBand, ...]:
    """Return the bands with those of the threshold's bucket that are above it in the last band."""
    fast, between, slow = bands
    count, moved = len(of_bucket), {stage: us for stage, us in parts_us(of_bucket).items() if us}
    if between.count >= count:
        between = _without(between, moved, count)
    else:  # p50 is in the threshold's bucket
        fast = _without(fast, moved, count)
    parts = {stage: slow.parts.get(stage, 0.0) + moved.get(stage, 0) for stage in (*slow.parts, *moved)}
    return fast, replace(between, high_us=threshold_us), LatencyBand(threshold_us, None, slow.count + count, parts)


def _without(band: LatencyBand, moved: Mapping[str, int], count: int) -> LatencyBand:
    """Return a band without `count` I/Os whose time by stage is `moved`."""
    parts = {stage: max(us - moved.get(stage, 0), 0.0) for stage, us in band.parts.items()}
    return replace(band, count=band.count - count, parts=parts)


def _with_waiting(band: LatencyBand, waiting: int, waited_us: Mapping[str, int]) -> LatencyBand:
    """Return a band with `waiting` I/Os in flight, whose ages by stage are `waited_us`."""
    parts = {stage: band.parts.get(stage, 0.0) + waited_us.get(stage, 0) for stage in (*band.parts, *waited_us)}
    return replace(band, parts=parts, waiting=waiting)


def share(parts: Parts, stage: str) -> float | None:
    """Return a stage's share of all time; None when there is no time, or the stage's is not measured."""
    total = sum(parts.values())
    return parts[stage] / total if total > 0 and stage in parts else None


def _tail(bands: tuple[LatencyBand, ...]) -> LatencyBand | None:
    return bands[-1] if bands and bands[-1].ios else None


def _within_total(stages: Mapping[str, Histogram], total: Histogram, origin: Origin) -> dict[str, Histogram]:
    """Return the traced stages with the bounds of the always-on total, which may begin at the issue only."""
    before = ABOVE_DRIVER if origin.latency_from == "issue" else ()
    later = {stage: times for stage, times in stages.items() if stage not in before}
    return {**stages, **parts_of(later, total)}


def _admission(traced: Traced, device: str, ops: tuple[str, ...]) -> tuple[StageRow, ...]:
    """Return the rows that begin at submission. They have no share: those are of the total, which begins later."""
    submission = submission_of(traced, device, ops)
    if not submission.whole:
        return _NO_ADMISSION
    includes = traced.includes_of(device).get(ADMISSION, ())
    later = not includes
    return (
        StageRow(WHOLE, submission.whole, after_limit=later),
        StageRow(ADMISSION, submission.admission, includes=includes, after_limit=later),
    )


def _rows(
    device: str, traced: Traced, stages: Mapping[str, Histogram], all_times: Parts, tail: LatencyBand | None
) -> tuple[StageRow, ...]:
    paths, includes = traced.paths.get(device, {}), traced.includes_of(device)
    # where the tracer starts again, the window has what it traced before
    reasons = {
        missing_stage.name: missing_stage.reason
        for missing_stage in traced.absent
        if not (stages and missing_stage.reason.startswith(TRACER_STARTING))
    }
    return tuple(
        StageRow(
            stage,
            stages.get(stage, EMPTY),
            _share_of(stages, all_times, stage),
            _share_of(stages, tail.parts, stage) if tail else None,
            includes.get(stage, ()),
            "" if stage in stages else _no_number(stage, why_unmeasured(stage, stages, reasons, includes), paths),
        )
        for stage in _in_order(PARTS, stages)
    )


def _in_order(parts: Sequence[str], stages: Mapping[str, Histogram]) -> list[str]:
    """Return the stages in their order, `worker` last where no I/O passed it: few do, and a screen has few lines."""
    return sorted(parts, key=lambda stage: stage == WORKER and not stages.get(stage))


def _share_of(stages: Mapping[str, Histogram], parts: Parts, stage: str) -> float | None:
    """Return the share of a stage that I/Os passed.

    A sum of 0 is not recorded, so it is known only where no I/O took more than 1 us in the stage.
    """
    if stage not in stages:
        return None
    reported = share(parts, stage)
    return 0.0 if reported is None and parts and (stages[stage].max_bound or 0) <= 1 else reported


def largest(parts: Parts) -> str:
    """Return the stage with the most time."""
    return max(parts, key=lambda stage: parts[stage]) if parts else ""


def admission_sentence(anatomy: Anatomy) -> str:
    """Return the sentence on a large admission; empty where it is small or not measured."""
    if anatomy.admission <= MUCH:
        return ""
    return (
        f"{admission_text(anatomy.device, anatomy.admission, anatomy.causes)}; total, shares and other screens lack it"
    )


def admission_text(device: str, of_whole: float, causes: str) -> str:
    """Return `sdc: 75% of the time from submission is admission (94% no tag free)`."""
    return f"{device}: {part(of_whole)} of the time from submission is admission{causes and f' ({causes})'}"


def causes_text(causes: Mapping[str, int], admission_us: int) -> str:
    """Return `94% no tag free, 6% iocost`, the parts of the admission's time; empty where no large cause is known.

    The causes are less than that time where no task waits: a cgroup's limit holds the bios back.
    """
    total = max(admission_us, sum(causes.values()))
    cause_counts = sorted(causes.items(), key=lambda name_and_count: -name_and_count[1])
    return ", ".join(f"{part(us / total)} {name}" for name, us in cause_counts if us and us >= _NAMED_CAUSE * total)


def stacks_text(
    device: str, completers: Mapping[str, int], raisers: Mapping[str, Mapping[str, int]]
) -> tuple[str, ...]:
    """Return `sdc is completed by nvme_irq < __handle_irq (93%)`, and the host's raises outside of interrupts."""
    named = {f"{device} is completed by": completers}
    # the driver of another device may raise it: a vector is the host's
    outside = "is raised outside of interrupts on this host by"
    named |= {f"softirq {vector} {outside}": stacks for vector, stacks in raisers.items()}
    return tuple(f"{begin} {_stacks(stacks)}" for begin, stacks in named.items() if stacks)


def _stacks(stacks: Mapping[str, int]) -> str:
    total = sum(stacks.values())
    return ", ".join(f"{name} ({part(n / total)})" for name, n in frequent(stacks).items())


def size_sentences(
    device: str, ops: Iterable[str], sizes: Mapping[SizeClass, IssuedIO], patterns: Mapping[Flow, Pattern]
) -> tuple[str, ...]:
    """Return a sentence per op with latencies by size, and how much of it is sequential; nothing for an op without."""
    sentences_found = []
    for op in ops:
        its = {
            size_class: done for size_class, done in sizes.items() if (size_class.device, size_class.op) == (device, op)
        }
        rows = latency_by_size(by_size(its))
        pattern = patterns.get(Flow(device, op), Pattern())
        size_rows = [
            (upto, row.count, quantile(row.latency, 0.5), quantile(row.latency, 0.99)) for upto, row in rows.items()
        ]
        if size_rows or pattern.issued:
            sentences_found.append(size_text(op, size_rows, {name: getattr(pattern, name) for name in PATTERN}))
    return tuple(sentences_found)


def size_text(op: str, rows: Sequence[tuple[int, int, str, str]], pattern: Mapping[str, int]) -> str:
    """Return `read by size: 90% up to 4 KiB (p50 80us, p99 1.2ms), 10% larger ..; 12% sequential`.

    `rows`: size (0: larger than the others), I/Os, p50 and p99.
    """
    total, issued = sum(n for _, n, _, _ in rows), pattern.get("issued", 0)
    texts = [
        f"{part(n / total)} {f'up to {show_size(upto)}' if upto else 'larger'} (p50 {p50}, p99 {p99})"
        for upto, n, p50, p99 in rows
        if n
    ]
    shares = [
        f"{part(pattern[pattern_name] / issued)} {name}"
        for pattern_name, name in _PATTERNS.items()
        if issued and pattern[pattern_name]
    ]
    by_size = f" by size: {', '.join(texts)};" if texts else ":"
    return f"{op}{by_size} {', '.join(shares) or 'none of them is sequential'}"


def softirq_sentences(
    device: Device, paths: Collection[str], softirqs: Mapping[SoftirqCpu, SoftirqRuns]
) -> tuple[str, ...]:
    """Return the delay of each shared softirq that the device's completions wait for, on all CPUs."""
    by_vectors = by_vector(softirqs)
    keys = {name: in_table(name, device.name, by_vectors) for name in vectors_of(device, paths)}
    delays = [(name, by_vectors[key].delay) for name, key in keys.items() if key in by_vectors]
    return tuple(
        f"{device.name} completes after softirq {name}: it ran {quantile(histogram, 0.99)} (p99), "
        f"{maximum(histogram)} (max) after its raise, in {count(histogram.count)} runs for all its users"
        for name, histogram in delays
        if histogram
    )


def tail_sentence(anatomy: Anatomy) -> str:
    """Return `sdc above 20 ms: 97% softirq (31 I/Os)`, or the reason for a missing tail."""
    tail = anatomy.tail
    if tail is None or not (top := largest(tail.parts)):
        return f"{anatomy.device}: {anatomy.why}" if anatomy.why else ""
    ios = "1 I/O" if tail.ios == 1 else f"{tail.ios:,} I/Os"
    ios += f", {tail.waiting:,} in flight" if tail.waiting else ""
    name = called(top, anatomy.includes.get(top, ())).sentence
    return f"{anatomy.device} above {spelled(tail.low_us)}: {part(share(tail.parts, top))} {name} ({ios})"


def _basic(device: str, traced: Traced, origin: Origin, basic: Mapping[str, Histogram], op_label: str) -> Anatomy:
    all_times = {stage: float(h.sum) for stage, h in basic.items() if stage in PARTS and h and h.sum is not None}
    all_times.pop("resume", None)
    waited = traced.one_in and not origin.why_untraced("resume")
    within = {inner: called(outer, inners).both for outer, inners in origin.measured.items() for inner in inners}
    reasons = {m.name: m.reason for m in origin.absent}
    rows = list(_NO_ADMISSION)
    for stage in _in_order(PARTS[:-1], basic):
        histogram = basic.get(stage, EMPTY)
        reason = f"its time is in {within[stage]}" if stage in within else reasons.get(stage, "")
        if stage in origin.measured and not reason:
            reason = "no I/O"
        if stage == "resume" and waited and origin.backend == "dtrace":
            reason = NO_WAITER
        rows.append(
            StageRow(
                stage,
                histogram,
                share(all_times, stage) if histogram else None,
                None,
                origin.measured.get(stage, ()) if histogram else (),
                "" if histogram else reason or "only the tracer measures it",
            )
        )
    verb = "is" if len(traced.devices) == 1 else "are"
    beside = traced.devices and device not in traced.devices
    only = f"only {listed(traced.devices)} {verb} traced" if beside else ""
    return Anatomy(
        device, op_label, basic.get("total", EMPTY), tuple(rows), all_times, includes=origin.measured, why=only
    )


def _no_number(stage: str, why: str, paths: Mapping[str, int]) -> str:
    if why:
        return f"not measured here: {why}"
    if stage in FACTS_OF and FACTS_OF[stage].not_passed:
        return FACTS_OF[stage].not_passed
    ways = sorted(paths, key=lambda p: -paths[p])
    return f"n/a: completes by {', '.join(ways)}" if ways else "n/a: no I/O passed it"


def _part_bounds(total: Histogram, cut_us: int | None) -> tuple[int, int] | None:
    """Return the first bucket of BITS above p50, and the first above the threshold; None without a threshold."""
    if cut_us is None:
        return None
    first = bucket_index(cut_us)
    return min(bucket_index(bucket_bounds(_rank(total, 0.5), total.bits)[1]), first), first


def _times(
    traced: Traced, device: str, ops: tuple[str, ...], bounds: tuple[int, int] | None
) -> dict[str, tuple[float, float, float]]:
    """Return stage -> us in each band; in one pass, since this is the largest computation of a screen."""
    middle, first = bounds or (0, 0)
    times = {}
    for stage in PARTS:
        fast = between = slow = 0
        reported = [by for op in ops if (by := traced.by_total.get(Series(device, op, stage))) is not None]
        for by in reported:
            for index, us in by.items():
                if index >= first:
                    slow += us
                elif index >= middle:
                    between += us
                else:
                    fast += us
        if reported:
            times[stage] = (float(fast), float(between), float(slow))
    return times


def _bands(
    total: Histogram, times: Mapping[str, tuple[float, float, float]], bounds: tuple[int, int] | None
) -> tuple[LatencyBand, ...]:
    if bounds is None:
        return ()
    edges = [bucket_bounds(index)[0] for index in (0, *bounds)]
    begins = [(bucket_bounds(index, total.bits)[0], n) for index, n in total.buckets]
    return tuple(
        LatencyBand(
            low,
            None if high is None else total.cap(high),
            sum(n for us, n in begins if us >= low and (high is None or us < high)),
            {stage: by[number] for stage, by in times.items()},
        )
        for number, (low, high) in enumerate(zip(edges, (*edges[1:], None), strict=True))
    )


def _rank(total: Histogram, q: float) -> int:
    """Return the bucket of a quantile."""
    seen = 0
    for index, n in total.buckets:
        seen += n
        if seen >= q * total.count:
            return index
    return total.buckets[-1][0]
