"""bimodal-tail: a few I/Os take far longer than all others, with hardly any in between.

A tail that thins out evenly is no second mode. Nor is a pause of the whole device, which is over after a block or two,
nor a mix of two loads with more than a few slow I/Os, nor flushes and discards, which take as long on slow media. It
shows an effect without its cause: so it is a notice, unless the I/Os take very long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from latmon.analysis.peers import Counts, above, above_in, counts_of, octaves, tail_of, time_of
from latmon.findings.evidence import hardware_steps, mean_bytes
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    LATENCIES,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    short_text,
)
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.support.units import part, spelled, whole

OPS = ("read", "write")
_ANY = (*OPS, "other")
"""In an imported text, whose tables may name no op."""
_LOOK = Step("see on screen 4 what the slow I/Os have in common: size, LBA, flags, program, stage")
_HARDWARE = (
    Step(
        "see whether they come at regular times, as with a scrub, a self-test or a poll of the drive's health",
        commands=("smartctl -l selftest /dev/DEVICE",),
    ),
    Step(
        "look for retries and timeouts in the kernel's log, and for errors of the drive",
        commands=("dmesg | tail -n 50", "smartctl -x /dev/DEVICE"),
    ),
)


@dataclass(frozen=True)
class FarMode:
    """The far mode of one op of one device."""

    device: str
    op: str
    begin_us: int
    median_us: int
    """The median of all I/Os."""
    count: int
    ios: int
    between: int
    """I/Os in the sparse range below it."""
    blocks: int
    slowest_us: int | None
    """None where nothing bounds it."""
    slowest_is_exact: bool
    time_us: float
    share: float
    """Its share of the device's I/O time."""

    @property
    def ios_text(self) -> str:
        """Return the word for its I/Os."""
        return f"{self.op}s" if self.op in OPS else "I/Os"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device: on the op with the most time in its far mode."""
    for device in facts.busy:
        ops = _ANY if facts.origin.is_imported else OPS
        modes = [far for op in ops if (far := _far(facts, device, op, limits)) is not None]
        if modes:
            yield _finding(facts, max(modes, key=lambda far: far.share), limits)


def _far(facts: Facts, device: str, op: str, limits: Thresholds) -> FarMode | None:
    timed = facts.latency(device, op)
    counts = counts_of((timed,))
    middle = tail_of(counts, (timed.count + 1) // 2)
    if middle is None:
        return None
    cut = max(math.log2(max(limits["far_us"], 1)), middle + limits["apart"])
    slow = {index: n for index, n in counts.items() if octaves(index) > cut}
    count = sum(slow.values())
    if count < max(limits["ios"], 1) or count > limits["share"] * timed.count:
        return None
    begin = _beginning(slow, limits["between"] * count)
    between = above(counts, begin - limits["below"]) - above(counts, begin)
    count = above(counts, begin)
    parts = [histogram for histogram in facts.parts(device, op) if histogram]
    blocks = sum(above_in(histogram, cut) > 0 for histogram in parts)
    # another tool's table of minutes is one block
    if between > limits["between"] * count or blocks < min(limits["run"], _least(facts, parts)):
        return None
    time_us = time_of(slow, begin)
    is_open = timed.is_endless or facts.open_from_us("total", device, op) is not None
    return FarMode(
        device,
        op,
        begin_us=round(2**begin),
        median_us=round(2**middle),
        count=count,
        ios=timed.count,
        between=between,
        blocks=blocks,
        slowest_us=None if is_open else timed.max_bound,
        slowest_is_exact=timed.max is not None,
        time_us=time_us,
        share=min(1.0, time_us / max(time_of(counts_of((facts.latency(device),))), 1.0)),
    )


def _least(facts: Facts, parts: Sequence[Histogram]) -> float:
    """Return the most blocks that a rule may ask for: an imported text may have a single table."""
    return len(parts) if facts.origin.is_imported else math.inf


def _beginning(slow: Counts, before: float) -> float:
    """Return log2 of the far mode's lower bound: all but `before` of its I/Os take longer."""
    seen = 0
    for index in sorted(slow):
        seen += slow[index]
        if seen > before:
            break
    return math.log2(bucket_bounds(index)[0])  # the last bucket, where all of them may lie below


def _finding(facts: Facts, far: FarMode, limits: Thresholds) -> Finding:
    begin, usual = spelled(far.begin_us), spelled(far.median_us)
    return Finding(
        id="bimodal-tail",
        severity=WARNING if far.begin_us >= limits["long_us"] else NOTICE,
        device=far.device,
        summary=f"{far.device}: {far.count:,} of {whole(far.ios)} {far.ios_text} take {begin} or longer where half "
        "take less "
        f"than {usual}, with hardly any in between; they take {part(far.share)} of the I/O time",
        facts=(*_evidence(facts, far), *_kind(facts, far, limits)),
        where=Where("outliers", far.device, far.op, far.begin_us),
        steps=(_LOOK, *hardware_steps(facts, far.device, _HARDWARE)),
        refuted_by=(
            "the slow I/Os are of another kind (far larger, or sent by one program), or the range below them fills up"
        ),
        share=far.share,
        short=short_text(
            far.device,
            f"{far.count:,} of {whole(far.ios)} {far.ios_text} take {begin} or longer",
            f", half less than {usual}",
        ),
    )


def _evidence(facts: Facts, far: FarMode) -> Iterator[Fact]:
    begin = spelled(far.begin_us)
    yield Fact("far_ios", far.count, f"{far.count:,} {far.ios_text} took {begin} or longer", "ios", far.ios)
    yield Fact("far_from_us", far.begin_us, f"the far mode begins at {begin}", "us", far.count)
    yield Fact("median_us", far.median_us, f"half of all take less than {spelled(far.median_us)}", "us", far.ios)
    yield Fact(
        "between_ios", far.between, f"{far.between:,} lie in the sparse range below the far mode", "ios", far.ios
    )
    text = "the slowest took {}" if far.slowest_is_exact else "the slowest took at most {}"
    yield from duration_facts(("slowest_us", far.slowest_us, text, far.ios))
    single = "they are in one table: whether they came at once is not known"
    many = f"they came in {far.blocks:,} blocks"
    yield Fact("blocks", far.blocks, single if facts.origin.is_imported and far.blocks == 1 else many, "", far.count)
    text = f"they took {spelled(far.time_us)} together, {part(far.share)} of the device's I/O time"
    yield Fact("far_share", far.share, text, "share", far.ios)


def _kind(facts: Facts, far: FarMode, limits: Thresholds) -> Iterator[Fact]:
    """Yield properties that most of the far mode's recorded outliers share: their program, a larger size."""
    outliers = [
        outlier for outlier in facts.outliers(far.device) if outlier.op == far.op and outlier.total_us >= far.begin_us
    ]
    most = max(limits["alike"] * len(outliers), 3)  # two may share a program by chance
    for comm, n in Counter(outlier.comm for outlier in outliers if outlier.comm).most_common(1):
        if n >= most:
            yield Fact(
                "program", comm, f"{comm} sent {n:,} of the {len(outliers):,} that were recorded", "", len(outliers)
            )
    usual = mean_bytes(facts, far.device, far.op)
    large = sum((outlier.bytes or 0) >= limits["larger"] * usual for outlier in outliers) if usual else 0
    if large >= most:
        text = (
            f"{large:,} of {len(outliers):,} recorded ones are far larger than the mean of {whole(round(usual))} bytes"
        )
        yield Fact("larger", large, text, "ios", len(outliers))


RULE = Rule(
    "bimodal-tail",
    "a few I/Os take far longer than all others, with hardly any in between",
    evaluate,
    needs=LATENCIES,
    thresholds={
        "apart": Threshold(5, "octaves", "between the main mode and the far one"),
        "far_us": Threshold(100_000, "us", "the far mode is at least here"),
        "ios": Threshold(10, "ios", "in the far mode at least"),
        "share": Threshold(0.01, "share", "of all I/Os in the far mode at most: more are a load of two kinds"),
        "between": Threshold(0.05, "share", "of the far mode's count may lie between the two"),
        "run": Threshold(3, "blocks", "in which some of them were: one pause of everything is no second mode"),
        "below": Threshold(2.5, "octaves", "below the far mode: the sparse range between the two"),
        "alike": Threshold(0.8, "share", "of its outliers are larger than others, or of one program: that is reported"),
        "larger": Threshold(4, "times", "the mean size of an I/O: that is reported"),
        "long_us": Threshold(10_000_000, "us", "a far mode from here on is a warning; a shorter one is a notice"),
    },
    explained_by=(
        "maintenance",
        "swap-thrash",
        "command-timeouts",
        "starved-io",
        "device-pauses",
        "completion-wakeup",
        "softirq-delay",
        "tick-quantum",
        "requeue-storm",
        "outstanding-ceiling",
        "bottleneck-above-device",
        "low-io-priority",
        "peer-outlier",
    ),
)
