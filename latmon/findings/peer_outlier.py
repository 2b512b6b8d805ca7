"""peer-outlier: one of several like devices is far slower than the others, and stays so.

Like devices are those of one kind, driver and model that do the same op with I/Os about as large (`size`), at least
`peers` beside this one. They are compared at the median, the slowest 10%, 1%, 0.1% and the third slowest. Three I/Os
are the fewest: of few I/Os they are a larger share, which is the one that is named. Fires when a device's is at least
`octaves` doublings beyond the median of its peers', and `scatters` times as far as theirs scatter; or when what is
slow for all (of theirs the slowest 1%, 0.5%, 0.2%, 0.1%) is as much more frequent with it. And that in `run` blocks
or more, so many that chance (`chance`) doesn't give one of equal devices as many.
A single bad moment, a slow moment of all, a mean that is a little higher and a heavy tail that all have are no
finding. Nor is a device that gets far more I/Os than its peers (`hot`): more work is a reason to be slower. Nor one
that has less than `in_flight` of theirs in flight: that has another load. Who is slow for a load like theirs has as
many in flight or more, and completes fewer. A shared handler doesn't explain it away: that says why, this says who.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from latmon.findings.alike import Odd, alike, drives_of, unlike
from latmon.findings.facts import Facts
from latmon.findings.finding import WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.peers import above, like, slowest_of, tail_of, time_of
from latmon.words import part, spelled

OPS = ("read", "write")
"""Flushes and discards take what they take; a device that gets none of them isn't the faster one."""
_NUMBERS = {2: "half of its {op}s take", 10: "one {op} in ten takes"}
_NUMBERS |= {100: "one {op} in a hundred takes", 1000: "one {op} in a thousand takes"}
_DIGITS = 2
"""Of `one read in 120`."""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Group by group, a device's worse op."""
    for names in like(one for one in facts.devices.values() if one.timed):
        worst: dict[str, Odd] = {}
        for op in OPS if len(names) > limits["peers"] else ():
            for odd in _unlike(facts, names, op, limits):
                if odd.name not in worst or odd.share > worst[odd.name].share:
                    worst[odd.name] = odd
        for odd in worst.values():
            yield _finding(facts, odd)


def _unlike(facts: Facts, names: list[str], op: str, limits: Thresholds) -> Iterator[Odd]:
    """Without those that have more to do, which is a reason to be slower, or hardly anything."""
    for group in alike(drives_of(facts, names, op, limits), limits["size"]):
        for odd in unlike(group, op, limits):
            if odd.times_busy <= limits["hot"] and odd.times_in_flight >= limits["in_flight"]:
                yield odd


def _sentence(odd: Odd) -> str:
    own, usual = 2**odd.far.own, 2**odd.far.middle
    times = own / usual
    if odd.level.often:
        told = f"{part(own)} of its {odd.op}s take {spelled(round(2**odd.bar))} or longer"
        return f"{told}, {times:.0f} times as many as of its {odd.far.peers} peers'"
    return (
        f"{_slowest(odd)} {spelled(round(own))} or longer, {times:.0f} times what its {odd.far.peers} peers' take "
        f"({spelled(round(usual))})"
    )


def _slowest(odd: Odd) -> str:
    """Name the share of its I/Os that was compared: their rank over all, not the level that was asked for."""
    if not odd.level.share:
        return f"its slowest {odd.op}s take"
    one_in = odd.own.ios / odd.own.rank(odd.level.share)
    step = 10 ** max(0, len(str(int(one_in))) - _DIGITS)
    rounded = round(one_in / step) * step
    return _NUMBERS.get(rounded, f"one {{op}} in {rounded:,} takes").format(op=odd.op)


def _finding(facts: Facts, odd: Odd) -> Finding:
    return Finding(
        "peer-outlier",
        WARNING,
        odd.name,
        f"{odd.name}: {_sentence(odd)}",
        tuple(_evidence(facts, odd)),
        Where("overview", odd.name, odd.op, round(2**odd.bar)),
        _STEPS,
        "its peers show the same tail under the same load, or its slow I/Os are of a load that they don't have",
        odd.share,
    )


def _evidence(facts: Facts, odd: Odd) -> Iterator[Fact]:
    own, peers = odd.own, odd.peers
    n, bar = sum(one.ios for one in peers), spelled(round(2**odd.bar))
    for name, said, value, of in (
        ("tail_us", f"the slowest {odd.op}s at that rank take", odd.far.own, own.ios),
        ("peers_tail_us", "in the median its peers' take", odd.far.middle, n),
    ):
        if not odd.level.often:
            yield Fact(name, round(2**value), f"{said} {spelled(round(2**value))}", "us", of)
    slow, others = above(own.whole, odd.bar), sum(above(one.whole, odd.bar) for one in peers)
    text = f"{slow:,} of its {own.ios:,} {odd.op}s took longer than {bar}, {others:,} of its peers' {n:,}"
    yield Fact("slow_ios", slow, text, "ios", own.ios)
    blocks = f"it was unlike its peers in {odd.blocks:,} of {len(own.parts):,} blocks"
    yield Fact("blocks", odd.blocks, blocks, "", len(own.parts))
    mean, means = time_of(own.whole) / own.ios, median(time_of(one.whole) / one.ios for one in peers)
    text = f"means say less: {spelled(round(mean))} against {spelled(round(means))}"
    yield Fact("mean_us", round(mean), text, "us", own.ios)
    yield from _fan_out(odd)
    yield from _stripe(facts, odd)


def _fan_out(odd: Odd) -> Iterator[Fact]:
    """What one I/O takes that waits for all of them, with this device and without it."""
    every = slowest_of([one.whole for one in odd.drives.values()])
    others = slowest_of([one.whole for one in odd.peers])
    for name, share in (("median", 0.5), ("p99", 0.01)):
        pair = [tail_of(one, max(1, round(share * sum(one.values())))) for one in (every, others)]
        if None in pair:
            continue
        slow, quick = (round(2**one) for one in pair if one is not None)
        if slow == quick:
            continue
        text = f"a stripe over all {len(odd.drives):,} waits for the slowest: its {name} is {spelled(slow)}"
        yield Fact(f"stripe_{name}_us", slow, text, "us", odd.own.ios)
        text = f"a stripe without this one: its {name} is {spelled(quick)}"
        yield Fact(f"stripe_{name}_without_us", quick, text, "us", odd.own.ios)


def _stripe(facts: Facts, odd: Odd) -> Iterator[Fact]:
    """What is built on it and on peers of it."""
    for one in facts.devices.values():
        together = [name for name in odd.drives if name in one.members]
        if odd.name in together and len(together) > 1:
            text = f"{one.name} is built on it and on {len(together) - 1:,} of its peers: it waits for the slowest"
            yield Fact("built_on_it", one.name, text)


_STEPS = (
    Step("see on the stages screen where its slow I/Os spend their time that its peers' don't"),
    Step(
        "compare it with a peer: firmware, link speed and width, errors",
        commands=(
            "smartctl -x /dev/DEVICE",
            "nvme smart-log /dev/DEVICE",
            "lspci -vv",
        ),
    ),
    Step(
        "see which other handlers share its interrupt vector, on the interrupts screen too",
        commands=("cat /proc/interrupts",),
    ),
    Step(
        "if nothing else tells, move it to a peer's slot: the tail goes with the drive or stays with the slot",
        "the drive is away while it is moved; what is built on it runs without its redundancy",
    ),
)

RULE = Rule(
    "peer-outlier",
    "one of several like devices has a far slower tail, and keeps it",
    judge,
    explained_by=(
        "starved-io",
        "completion-wakeup",
        "tick-quantum",
        "softirq-delay",
        "outstanding-ceiling",
        "bottleneck-above-device",
        "requeue-storm",
    ),
)
