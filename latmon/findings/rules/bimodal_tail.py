"""bimodal-tail: a few I/Os take far longer than all others, with hardly any in between.

Looks at a device's reads and at its writes, each by itself. Fires when at least `ios` I/Os, and at most `share` of all,
take `far_us` or more and are `apart` doublings from the median, while the stretch of latencies just below them (`below`
doublings) is empty but for `between` of their count: the slow ones met something that others don't meet at all.
A tail that thins out evenly is no second mode. Nor is a pause of the whole device, which is over after a block or two
(`run`), nor two loads of which the slow one is more than a few I/Os, nor flushes and discards, which take as long on
slow media. It says that there is something, not what: so it is a notice, unless they take `long_us` and more. However
much of the time they hold, they may be larger I/Os or another program's: a write-back beside commits looks like that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from latmon.analysis.peers import Counts, above, counts_of, octaves, tail_of, time_of
from latmon.findings.facts import Facts
from latmon.findings.finding import NOTICE, WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.model.histogram import bucket_bounds
from latmon.support.units import part, spelled, whole

OPS = ("read", "write")


@dataclass(frozen=True)
class Far:
    """The far mode of one op of one device."""

    device: str
    op: str
    begin_us: int
    median_us: int
    """Of all I/Os."""
    count: int
    ios: int
    between: int
    """I/Os in the stretch below it."""
    blocks: int
    slowest_us: int
    time_us: float
    share: float
    """Of all the device's I/O time."""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """A device's op with the most time in its far mode."""
    for device in facts.busy:
        modes = [far for op in OPS if (far := _far(facts, device, op, limits)) is not None]
        if modes:
            yield _finding(facts, max(modes, key=lambda far: far.share), limits)


def _far(facts: Facts, device: str, op: str, limits: Thresholds) -> Far | None:
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
    blocks = sum(above(counts_of((one,)), cut) > 0 for one in facts.parts(device, op))
    if between > limits["between"] * count or blocks < limits["run"]:
        return None
    time_us = time_of(slow, begin)
    return Far(
        device,
        op,
        begin_us=round(2**begin),
        median_us=round(2**middle),
        count=count,
        ios=timed.count,
        between=between,
        blocks=blocks,
        slowest_us=timed.max_bound or 0,
        time_us=time_us,
        share=min(1.0, time_us / max(time_of(counts_of((facts.latency(device),))), 1.0)),
    )


def _beginning(slow: Counts, before: float) -> float:
    """Where the far mode begins: but for so many of its I/Os all take longer."""
    seen, each = 0, sorted(slow)
    for index in each:
        seen += slow[index]
        if seen > before:
            break
    return math.log2(bucket_bounds(index)[0])  # the last one's, where all of them may lie before it


def _finding(facts: Facts, far: Far, limits: Thresholds) -> Finding:
    begin, usual = spelled(far.begin_us), spelled(far.median_us)
    return Finding(
        "bimodal-tail",
        WARNING if far.begin_us >= limits["long_us"] else NOTICE,
        far.device,
        f"{far.device}: {far.count:,} of {whole(far.ios)} {far.op}s take {begin} or longer where half take less than "
        f"{usual}, with hardly any in between; they hold {part(far.share)} of the I/O time",
        (*_evidence(far), *_kind(facts, far, limits)),
        Where("outliers", far.device, far.op, far.begin_us),
        _STEPS,
        "the slow I/Os are of another kind (far larger, or sent by one program), or the stretch below them fills up",
        far.share,
    )


def _evidence(far: Far) -> Iterator[Fact]:
    begin = spelled(far.begin_us)
    yield Fact("far_ios", far.count, f"{far.count:,} {far.op}s took {begin} or longer", "ios", far.ios)
    yield Fact("far_from_us", far.begin_us, f"the far mode begins at {begin}", "us", far.count)
    yield Fact("median_us", far.median_us, f"half of all take less than {spelled(far.median_us)}", "us", far.ios)
    yield Fact("between_ios", far.between, f"{far.between:,} lie in the stretch below the far mode", "ios", far.ios)
    yield Fact("slowest_us", far.slowest_us, f"the slowest took {spelled(far.slowest_us)}", "us", far.ios)
    yield Fact("blocks", far.blocks, f"they came in {far.blocks:,} blocks", "", far.count)
    text = f"they took {spelled(far.time_us)} together, {part(far.share)} of the device's I/O time"
    yield Fact("far_share", far.share, text, "share", far.ios)


def _kind(facts: Facts, far: Far, limits: Thresholds) -> Iterator[Fact]:
    """What those that are told one by one have in common, where that is most of them."""
    told = [one for one in facts.outliers(far.device) if one.op == far.op and one.total_us >= far.begin_us]
    most = max(limits["alike"] * len(told), 3)  # of two anybody may be the same
    comm, n = Counter(one.comm for one in told if one.comm).most_common(1)[0] if any(o.comm for o in told) else ("", 0)
    if n >= most:
        yield Fact("program", comm, f"{n:,} of the {len(told):,} that are told are of {comm}", "", len(told))
    done = facts.completed(far.device, far.op)
    usual = done.bytes / done.count if done and done.count else 0.0
    large = sum((one.bytes or 0) >= limits["larger"] * usual for one in told) if usual else 0
    if large >= most:
        said = (
            f"{large:,} of the {len(told):,} that are told are far larger than the mean of {whole(round(usual))} bytes"
        )
        yield Fact("larger", large, said, "ios", len(told))


_STEPS = (
    Step("see on the outliers screen what the slow I/Os have in common: size, LBA, flags, program, stage"),
    Step(
        "see if they come at regular times: a scrub, a self-test, a poll of the drive's health",
        commands=("smartctl -l selftest /dev/DEVICE",),
    ),
    Step(
        "look for retries and timeouts in the kernel's log, and for errors of the drive",
        commands=("dmesg | tail -n 50", "smartctl -x /dev/DEVICE"),
    ),
)

RULE = Rule(
    "bimodal-tail",
    "a few I/Os take far longer than all others, with hardly any in between",
    judge,
    explained_by=(
        "starved-io",
        "completion-wakeup",
        "softirq-delay",
        "tick-quantum",
        "requeue-storm",
        "outstanding-ceiling",
        "bottleneck-above-device",
        "peer-outlier",
    ),
)
