"""noisy-neighbour: the I/Os of one cgroup make those of others on the same device wait.

The others' I/Os are far slower in the blocks in which one cgroup has most of the device's time than in those in which
it has hardly any. Both kinds of blocks must be there: beside a cgroup that is always busy it isn't known how fast they
are without it. I/Os of one op are compared, because reads may be slower than writes at any time. No finding: others
that issue more or larger I/Os at the same time, which may be why they are slow; and others whose I/Os were traced and
were hardly in flight while the device served those of the neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from latmon.findings.facts import Block, Facts
from latmon.findings.rule import (
    ISSUERS,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.support.units import counted, part, spelled

ID = "noisy-neighbour"
_QUIET = 0.1
"""Greatest share of the device's time in a block in which the neighbour counts as quiet."""
_OF_PEAK = 0.85
"""Share of its highest mean number of I/Os in flight from which on a cgroup is busy in all of a block."""
_NEARLY = 0.95
"""Blocks of 5 s may be some milliseconds short."""
_MORE = 2.0
"""How many times as many, or as large, the others' own I/Os may become."""
_MEDIAN = 1.5
"""How many times the median must be: a few slow I/Os alone may have another cause."""
_SAMPLED = 30
"""Traced I/Os from which on the time behind the neighbour counts: a few are no mean."""
_MOST_OTHERS = 3
_REFUTED = "the others are as slow while the neighbour is stopped, or their own I/Os became more or larger meanwhile"


class _Done(NamedTuple):
    """I/Os of one cgroup to one device in a block, or in several, of one op or of all."""

    issuer: Issuer
    latency: Histogram
    bytes: int

    @property
    def time_us(self) -> int:
        return self.latency.sum or 0


class _Victim(NamedTuple):
    """A cgroup that waited: its I/Os of one op while the neighbour was busy, and while it was quiet."""

    busy: _Done
    quiet: _Done
    waited_us: float
    """Time that its I/Os took more than they would have, all together."""
    behind: float | None = None
    """Share of the time of its traced I/Os in which the device served those of the neighbour; None: not measured."""

    @property
    def what(self) -> str:
        op = self.busy.issuer.op
        return f"{op}s" if op in ("read", "write") else "I/Os"

    @property
    def words(self) -> str:
        return f"{self.what} of {self.busy.issuer.name}"

    @property
    def times(self) -> float:
        return (self.busy.latency.mean or 0) / (self.quiet.latency.mean or 1)


class _Neighbour(NamedTuple):
    """A cgroup, how long it was busy and quiet, its part of the device's time while busy, and who waited."""

    done: _Done
    busy_us: int
    quiet_us: int
    share: float
    victims: tuple[_Victim, ...]

    @property
    def waited_us(self) -> float:
        return sum(victim.waited_us for victim in self.victims)


_Groups = Mapping[str, Mapping[str, _Done]]
"""Cgroup -> op -> its I/Os."""


class _Part(NamedTuple):
    """I/Os of the cgroups to one device in a block, the block's length, and the times behind each other."""

    groups: _Groups
    us: int
    behind: Mapping[Behind, int]


_Table = Mapping[str, _Groups]
"""By device."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device, about the cgroup for which the others waited most."""
    tables = [_table(block) for block in facts.blocks]
    for name in sorted({device for table in tables for device, groups in table.items() if len(groups) > 1}):
        pairs = zip(tables, facts.blocks, strict=True)
        parts = [_Part(table.get(name, {}), block.span_us, _behind(block, name)) for table, block in pairs]
        names = dict.fromkeys(group for part in parts for group in part.groups if group != OTHERS)
        neighbours = [neighbour for group in names if (neighbour := _neighbour(group, parts, limits)) is not None]
        if neighbours:
            yield _finding(name, max(neighbours, key=lambda neighbour: neighbour.waited_us), facts, limits)


def _table(block: Block) -> _Table:
    return block.once("by cgroup", lambda: _made(block))


def _made(block: Block) -> _Table:
    groups_by_device: dict[str, dict[str, dict[str, _Done]]] = {}
    for issuer, done in block[measurements.ISSUERS].items():
        if done.latency and not issuer.is_process and done.latency.sum is not None:
            ops = groups_by_device.setdefault(issuer.device, {}).setdefault(issuer.cgroup, {})
            issuer_done = _Done(issuer, done.latency, done.bytes)
            ops[issuer.op] = _sum((ops[issuer.op], issuer_done)) if issuer.op in ops else issuer_done
    return groups_by_device


def _behind(block: Block, device: str) -> Mapping[Behind, int]:
    return {pair: us for pair, us in block[measurements.BEHIND].items() if pair.device == device}


def _by_op(groups: Iterable[_Groups], group: str) -> dict[str, _Done]:
    """Return the sums of a cgroup's I/Os."""
    parts_by_op: dict[str, list[_Done]] = {}
    for ops_by_group in groups:
        for op, done in ops_by_group.get(group, {}).items():
            parts_by_op.setdefault(op, []).append(done)
    return {op: _sum(parts) for op, parts in parts_by_op.items()}


def _sum(parts: Iterable[_Done]) -> _Done:
    summands = tuple(parts)
    return _Done(summands[-1].issuer, merge(done.latency for done in summands), sum(done.bytes for done in summands))


def _neighbour(group: str, parts: list[_Part], limits: Thresholds) -> _Neighbour | None:
    """Return the cgroup with those who waited for it; None where none did, or where that is not known."""
    busy, quiet = [], []
    for part_of_block in parts:
        total = sum(done.time_us for ops in part_of_block.groups.values() for done in ops.values())
        own = sum(done.time_us for done in part_of_block.groups.get(group, {}).values())
        if total and own >= limits["share"] * total:
            busy.append(part_of_block)
        elif own <= _QUIET * total:
            quiet.append(part_of_block)
    least_us = _NEARLY * limits["lasting_us"] / 2
    if min(_length_us(busy), _length_us(quiet)) < least_us:
        return None
    busy = _wholly_busy(busy, group, _NEARLY * limits["lasting_us"])
    busy_us, quiet_us = _length_us(busy), _length_us(quiet)
    others = dict.fromkeys(name for busy_part in busy for name in busy_part.groups if name not in (group, OTHERS))
    victims = []
    for name in others:
        slow, quick = (_by_op((block.groups for block in blocks), name) for blocks in (busy, quiet))
        if slow and quick and not _became_more(_sum(slow.values()), busy_us, _sum(quick.values()), quiet_us):
            share = _share_behind(busy, _sum(slow.values()), group)
            ops = [_victim(slow[op], quick[op], share, limits) for op in slow if op in quick]
            victims += sorted(filter(None, ops), key=lambda victim: -victim.waited_us)[:1]
    if not victims:
        return None
    done = _sum(done for busy_part in busy for done in busy_part.groups[group].values())
    total = sum(done.time_us for busy_part in busy for ops in busy_part.groups.values() for done in ops.values())
    victims.sort(key=lambda victim: -victim.waited_us)
    return _Neighbour(done, busy_us, quiet_us, done.time_us / total, tuple(victims))


def _length_us(blocks: Iterable[_Part]) -> int:
    return sum(block.us for block in blocks)


def _wholly_busy(busy: list[_Part], group: str, enough_us: float) -> list[_Part]:
    """Return the blocks in which a cgroup has the most I/Os in flight, where these are enough; else all of them.

    A block in which it begins or ends has I/Os of both times: others that had waited issue many fast ones at once.
    """
    in_flight = [
        sum(done.time_us for done in busy_part.groups.get(group, {}).values()) / busy_part.us for busy_part in busy
    ]
    busiest = [busy_part for busy_part, mean in zip(busy, in_flight, strict=True) if mean >= _OF_PEAK * max(in_flight)]
    return busiest if _length_us(busiest) >= enough_us else busy


def _share_behind(busy: Iterable[_Part], slow: _Done, group: str) -> float | None:
    """Return the share of a cgroup's traced time in which the device served `group`; None where few were traced."""
    its = [
        (key.other, us)
        for busy_part in busy
        for key, us in busy_part.behind.items()
        if key.cgroup == slow.issuer.cgroup
    ]
    total = sum(us for _, us in its)
    traced = total * slow.latency.count / max(slow.time_us, 1)
    return sum(us for other, us in its if other == group) / total if traced >= _SAMPLED else None


def _became_more(slow: _Done, slow_us: int, quick: _Done, quick_us: int) -> bool:
    """Return whether a cgroup's own I/Os became more or larger."""
    rates = slow.latency.count / slow_us, quick.latency.count / quick_us
    sizes = slow.bytes / slow.latency.count, quick.bytes / quick.latency.count
    return rates[0] > _MORE * rates[1] or sizes[0] > _MORE * sizes[1]


def _victim(slow: _Done, quick: _Done, behind: float | None, limits: Thresholds) -> _Victim | None:
    """Return a cgroup whose I/Os of this op became slower, behind the neighbour where that was traced; else None."""
    least = min(slow.latency.count, quick.latency.count)
    if least < limits["ios"] or (behind is not None and behind < limits["behind"]):
        return None
    mean, before = slow.latency.mean or 0.0, quick.latency.mean or 0.0
    median, median_before = (sums.latency.quantile(0.5) or 0 for sums in (slow, quick))
    if mean < limits["times"] * before or mean - before < limits["more_us"] or median < _MEDIAN * median_before:
        return None
    return _Victim(slow, quick, (mean - before) * slow.latency.count, behind)


def _finding(device: str, neighbour: _Neighbour, facts: Facts, limits: Thresholds) -> Finding:
    """Return the finding: a warning once it was busy for long enough, a notice before."""
    first, more = neighbour.victims[0], len(neighbour.victims) - 1
    also = f" and {counted(more, 'more cgroup')}" if more else ""
    slower = sum(victim.busy.time_us for victim in neighbour.victims)
    name = neighbour.done.issuer.name
    return Finding(
        id=ID,
        severity=WARNING if neighbour.busy_us >= _NEARLY * limits["lasting_us"] else NOTICE,
        device=device,
        summary=f"{device}: {first.words}{also} take {first.times:.1f} x as long while {name} is busy, "
        f"which then has {part(neighbour.share)} of the device's time",
        facts=tuple(_facts(neighbour)),
        where=Where("who", device),
        steps=tuple(_steps(neighbour, device)),
        refuted_by=_REFUTED,
        share=neighbour.waited_us / slower * neighbour.busy_us / facts.span_us if slower and facts.span_us else 0.0,
        short=short_text(
            device,
            f"another cgroup's {first.what} take {first.times:.1f} x as long",
            f" while {within(name.rpartition('/')[2] or name, 24)} is busy",
        ),
    )


def _facts(neighbour: _Neighbour) -> Iterator[Fact]:
    done = neighbour.done
    yield Fact("cgroup", done.issuer.cgroup, f"neighbour: {done.issuer.name}, cgroup {done.issuer.cgroup}")
    text = f"it was busy for {spelled(neighbour.busy_us)}, with {part(neighbour.share)} of the time of all I/Os"
    yield Fact("share", round(neighbour.share, 3), text, "share", done.latency.count)
    yield Fact("quiet_us", neighbour.quiet_us, f"it was quiet for {spelled(neighbour.quiet_us)}", "us")
    for at, victim in enumerate(neighbour.victims[:_MOST_OTHERS], 1):
        means = [done.latency.mean or 0 for done in (victim.busy, victim.quiet)]
        text = f"{victim.words}: {spelled(means[0])} on average while it was busy, else {spelled(means[1])}"
        yield Fact(f"mean_{at}_us", round(means[0]), text, "us", victim.busy.latency.count)
        if victim.behind is not None:
            time_words = f"{part(victim.behind)} of the time of I/Os of {victim.busy.issuer.name}"
            text = f"for {time_words} the device served those of {done.issuer.name}"
            yield Fact(f"behind_{at}", round(victim.behind, 3), text, "share")
    yield Fact(
        "waited_us",
        round(neighbour.waited_us),
        f"the others waited {spelled(neighbour.waited_us)} more, all I/Os together",
        "us",
    )


def _steps(neighbour: _Neighbour, device: str) -> Iterator[Step]:
    root, *slices, unit = neighbour.done.issuer.cgroup.split("/")
    # The system's manager knows a unit below slices alone: one in a user's or a container's has a manager of its own.
    is_system_s = not root and all(part.endswith(".slice") for part in slices)
    if not unit:
        yield Step(
            "give services IOAccounting=yes: those without it are one cgroup, the root, which nothing limits",
            "the kernel counts and schedules their I/O apart",
        )
    elif is_system_s and unit.endswith((".service", ".scope")) and plain(unit) and plain(device):
        limits = " ".join(f"'IO{op}IOPSMax=/dev/{device} 500'" for op in ("Read", "Write"))
        command = f"systemctl set-property --runtime {unit} {limits}"
        yield Step(
            "limit the neighbour for a moment, and look whether the others get faster",
            f"{unit} gets slower; undone by the value infinity",
            (command,),
        )
    else:
        yield Step(
            "limit the neighbour (io.max) or stop it for a moment, and look whether the others get faster",
            "the neighbour gets slower, or stops",
        )
    yield Step(
        "give each its share: io.weight with the scheduler bfq, or io.cost.qos; or move one to another device",
        "the neighbour gets slower; a scheduler costs CPU",
    )


RULE = Rule(
    ID,
    "I/Os of one cgroup make those of others on the same device wait",
    evaluate,
    needs=ISSUERS,
    thresholds={
        "share": Threshold(0.5, "share", "of the device's time at least: a cgroup is busy"),
        "times": Threshold(3.0, "times", "as long at least take the others' I/Os on average while it is busy"),
        "more_us": Threshold(200, "us", "longer at least"),
        "ios": Threshold(
            100, "ios", "of one op of another cgroup at least, while it is busy and while it has 10 % at most"
        ),
        "behind": Threshold(
            0.2, "share", "of the others' time the device serves the neighbour's I/Os at least, where that was traced"
        ),
        "lasting_us": Threshold(10_000_000, "us", "busy at least, half of that for a notice, and half of that quiet"),
    },
    explained_by=("swap-thrash",),
)
