"""busy-device: a device is busy nearly all the time, and its I/Os wait: which program keeps how many in flight.

This is the general row for a device that no other rule explains. It says who fills it (program, op, size, depth), and
what the device did before in the same minute, which tells three cases apart:

- with fewer I/Os in flight it was busy as well, and completed as many per second: more in flight only wait;
- it was not busy, and completed as many: its I/Os take longer than before, whoever issues them;
- it completed fewer I/Os or bytes: the load grew.

It is a notice, since a busy device by itself is no harm: a backup may keep it busy. It is a warning where the load of a
program grew, and others wait meanwhile: another program, or a device whose file is on this one. The I/Os of such a
device (a loop device) are issued by threads of the kernel; named is the program that issues them on the device above.
No finding: I/Os that are quick nevertheless, and bursts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from latmon.findings import same_load
from latmon.findings.evidence import host_before, many
from latmon.findings.facts import Block, Facts
from latmon.findings.op_load import op_load
from latmon.findings.program_ios import ProgramIos, ios_by_program
from latmon.findings.programs import most_buffered, writes_for_programs
from latmon.findings.rule import (
    NOTICE,
    PROCESSES,
    WARNING,
    Fact,
    Finding,
    Moment,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    short_text,
    within,
)
from latmon.model.frame import BACKING_DEVICE
from latmon.model.inflight import busy_share
from latmon.model.stages import plural_of_op
from latmon.support.units import clock, part, rate, show_size, spelled

ID = "busy-device"
_NEWEST = 2
"""Blocks whose mean depth is that of now."""
_AS_DEEP = 0.5
"""Part of it from which on a block before has as many in flight."""
_EXPECTED_BUSY = 0.5
"""Share of the time for which a load that grew keeps a device busy at least, by what the smaller one before took: below
that the device takes longer for each I/O."""
_OTHER_SIZE = 4.0
"""Sizes before that differ by so many times are named."""
_MOST_BYTES = 0.5
"""Part of the bytes that threads of the kernel read or write, from which on a program above is named for them."""
_FAR_LONGER, _SAME_RATE = 10.0, 1.2
"""Times as long as before, and at most so many times as often, from which on a program's I/Os wait, however many."""
_MOST_WAITERS = 3
_NAME_CELLS = 11
_REFUTED = "its I/Os take as long with one of them in flight: then it is slow, not busy"


class _Change(Enum):
    """Says what is different from the blocks before in the window."""

    UNKNOWN = "it was busy in all of the window"
    DEEPER = "more in flight, not more completed"
    SLOWER = "as many completed, each takes longer"
    GREW = "more completed"


@dataclass(frozen=True, slots=True)
class _Load:
    """Reads and writes of a device over blocks."""

    ios_per_s: float
    bytes_per_s: float
    latency_us: float
    busy: float

    @property
    def in_flight(self) -> float:
        """Return the mean number of them in flight, by Little's law."""
        return self.ios_per_s * self.latency_us / 1e6

    @property
    def mean_bytes(self) -> float:
        return self.bytes_per_s / self.ios_per_s if self.ios_per_s else 0.0


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A program whose I/Os wait on the busy device, or on a device above it."""

    ios: ProgramIos
    device: str


@dataclass(frozen=True, slots=True)
class _Busy:
    """A busy device, the program that keeps most of its I/Os in flight, and what was before."""

    device: str
    load: _Load
    since: Moment
    holder: ProgramIos
    holder_device: str
    """The device on which the program issues them: the busy one, or one above it."""
    writer: str
    """The program whose writes threads of the kernel issue; empty: the holder issues them, or it is not known."""
    in_flight: float
    """Mean number of its I/Os in flight."""
    share: float
    """Share of the time of the busy device's I/Os that is the holder's, or of the threads' that do its I/Os there."""
    before: _Load | None
    """None: it was busy since the window began."""
    op_us: float
    """Mean time of all I/Os of the holder's op on the busy device."""
    before_us: float | None
    """Mean time of I/Os of the holder's op before; None: there were none."""
    change: _Change
    waiters: tuple[_Waiter, ...]

    @property
    def name(self) -> str:
        return self.writer or self.holder.name

    @property
    def lets_others_wait(self) -> bool:
        """Whether others wait because of the load: not where the device takes longer, or nothing is known before."""
        return bool(self.waiters) and self.change in (_Change.DEEPER, _Change.GREW)

    @property
    def ops_text(self) -> str:
        """Return the I/Os in flight: `64 reads`."""
        ios = max(1, round(self.in_flight))
        return f"{ios} {self.holder.op if ios == 1 else plural_of_op(self.holder.op)}"

    @property
    def size_text(self) -> str:
        return show_size(round(self.holder.mean_bytes))

    @property
    def through(self) -> str:
        return "" if self.holder_device == self.device else f" through {self.holder_device}"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per busy device; one above another busy device is left to that."""
    busy = {name: _busy(facts, name, limits) for name in facts.busy}
    for name, device in busy.items():
        if device is not None and all(busy.get(below) is None for below in _devices_below(facts, name)):
            yield _finding(facts, device)


def _busy(facts: Facts, device: str, limits: Thresholds) -> _Busy | None:
    blocks = _busy_blocks(facts, device, limits)
    span_us = sum(block.span_us for block in blocks)
    if not blocks or not facts.lasts(span_us, limits["lasting_us"]):
        return None
    load = _load(blocks, device)
    if load is None or load.latency_us < limits["wait_us"]:
        return None
    holder = _holder(blocks, device)
    if holder is None or holder.share < limits["holds"]:
        return None
    above = _devices_above(facts, device)
    named = _holder_above(blocks, above, holder.ios) or holder
    written = most_buffered(facts, device) if named.ios.is_writeback else None
    earlier = [block for block in facts.window if block.end_us <= blocks[0].begin_us]
    before, times_slower = _load(earlier, device), same_load.times_slower(device, holder.ios.op, earlier, blocks)
    before_op, now_op = op_load(earlier, device, holder.ios.op), op_load(blocks, device, holder.ios.op)
    return _Busy(
        device=device,
        load=load,
        since=_begin_of(blocks[0]),
        holder=named.ios,
        holder_device=named.device,
        in_flight=named.in_flight,
        writer="" if written is None else written[0].name,
        share=holder.share,
        before=before,
        op_us=0.0 if now_op is None else now_op.mean_us,
        before_us=None if before_op is None else before_op.mean_us,
        change=_change(before, load, times_slower, limits),
        waiters=tuple(_waiters((_settled(earlier), blocks), named, (device, *above), limits)),
    )


def _busy_blocks(facts: Facts, device: str, limits: Thresholds) -> Sequence[Block]:
    """Return the newest blocks without a gap in which the device is busy with about as many in flight as now."""
    if _block_load(facts.window[-1], device).busy < limits["busy"]:
        return ()
    now = _load(facts.window[-_NEWEST:], device)
    least = max(limits["in_flight"], _AS_DEEP * now.in_flight) if now is not None else 0.0
    blocks: list[Block] = []
    for block in reversed(facts.window):
        load = _block_load(block, device)
        if load.busy < limits["busy"] or load.in_flight < least:
            break
        blocks.insert(0, block)
    return blocks


def _load(blocks: Sequence[Block], device: str) -> _Load | None:
    """Return the load of a device over blocks; None without blocks. Times in use that were not counted are 0."""
    span_us = sum(block.span_us for block in blocks)
    if not span_us:
        return None
    loads = [(_block_load(block, device), block.span_us) for block in blocks]
    ios_per_s = sum(load.ios_per_s * us for load, us in loads) / span_us
    waited = sum(load.in_flight * us for load, us in loads) / span_us
    return _Load(
        ios_per_s,
        sum(load.bytes_per_s * us for load, us in loads) / span_us,
        waited * 1e6 / ios_per_s if ios_per_s else 0.0,
        sum(load.busy * us for load, us in loads) / span_us,
    )


def _block_load(block: Block, device: str) -> _Load:
    def load() -> _Load:
        rates = block.rate_of(device)
        busy = busy_share(block.depths(device).in_driver)
        if rates is None:
            return _Load(0.0, 0.0, 0.0, busy)
        return _Load(rates.ios_per_s, rates.bytes_per_s, rates.latency_us, busy)

    return block.once(("load", device), load)


def _begin_of(block: Block) -> Moment:
    return Moment(block.begin_us, block.wall - (block.end_us - block.begin_us) / 1e6)


def _change(before: _Load | None, now: _Load, times_slower: float | None, limits: Thresholds) -> _Change:
    """Return the change; `times_slower`: of the holder's op, without which only a load that grew is known."""
    if before is None:
        return _Change.UNKNOWN
    if not before.ios_per_s or not before.bytes_per_s:
        return _Change.GREW
    times = max(now.ios_per_s / before.ios_per_s, now.bytes_per_s / before.bytes_per_s)
    if times >= limits["grew"] and times * before.busy >= _EXPECTED_BUSY:
        return _Change.GREW
    if times_slower is None:
        return _Change.UNKNOWN
    if before.busy >= limits["busy"]:
        return _Change.DEEPER if now.in_flight >= before.in_flight / _AS_DEEP else _Change.UNKNOWN
    return _Change.SLOWER if times_slower >= limits["slower"] else _Change.UNKNOWN


def _devices_below(facts: Facts, device: str) -> tuple[str, ...]:
    """Return the members of a volume, or the device that the file of a loop device is on; empty where it is a disk."""
    known = facts.device(device)
    value = known.reported_value(BACKING_DEVICE)
    return known.members if value is None else (host_before(facts, device) + str(value), *known.members)


def _devices_above(facts: Facts, device: str) -> tuple[str, ...]:
    def above() -> dict[str, list[str]]:
        by_device: dict[str, list[str]] = defaultdict(list)
        for name in facts.devices:
            for below in _devices_below(facts, name):
                by_device[below].append(name)
        return by_device

    return tuple(sorted(facts.once("devices above", above).get(device, ())))


class _Holder(NamedTuple):
    """The I/Os of an op of the program that has the longest time of I/Os on a device."""

    ios: ProgramIos
    device: str
    share: float
    """Share of the time of the device's I/Os."""
    in_flight: float
    """The share of all that are in flight: I/Os are counted by process in a part of the time only."""


def _holder(blocks: Sequence[Block], device: str) -> _Holder | None:
    """Return the holder on a device; None where I/Os were not counted by process."""
    programs = ios_by_program(blocks, device)
    load = _load(blocks, device)
    if not programs or load is None:
        return None
    longest = max(programs, key=lambda ios: ios.time_us)
    share = longest.time_us / max(1, sum(ios.time_us for ios in programs))
    return _Holder(longest, device, share, share * load.in_flight)


def _holder_above(blocks: Sequence[Block], above: Sequence[str], below: ProgramIos) -> _Holder | None:
    """Return the program that issues most of the bytes of threads of the kernel, on one of the devices above.

    `below`: the I/Os of these threads. None: they are none, or their I/Os are those of no device above.
    """
    if not below.is_of_kernel:
        return None
    holders = [holder for name in above if (holder := _holder(blocks, name)) is not None]
    of_op = [holder for holder in holders if holder.ios.op == below.op and not holder.ios.is_of_kernel]
    most = max(of_op, key=lambda holder: holder.ios.bytes, default=None)
    is_most = most is not None and most.ios.bytes >= _MOST_BYTES * below.bytes
    return most if is_most else None


def _settled(earlier: Sequence[Block]) -> Sequence[Block]:
    """Return the blocks before the change, without the last one, in which it may have begun, where there are others."""
    return earlier[:-1] or earlier


def _waiters(
    spans: tuple[Sequence[Block], Sequence[Block]], holder: _Holder, devices: Iterable[str], limits: Thresholds
) -> Iterator[_Waiter]:
    """Yield other programs whose I/Os waited far less before, the longest time in all first.

    They have few in flight. One with more may be a part of the load, except where it issues no more than before, and
    its I/Os wait ten times as long: then it has more in flight because they wait.
    """
    earlier, blocks = spans
    programs = [_Waiter(ios, name) for name in devices for ios in ios_by_program(blocks, name)]
    programs.sort(key=lambda waiter: -waiter.ios.time_us)
    names = {holder.ios.name}
    for waiter in programs:
        ios = waiter.ios
        if ios.name in names or ios.is_of_kernel or writes_for_programs(ios.name):
            continue
        if ios.latency.count < limits["ios"] or ios.mean_us < limits["others_us"]:
            continue
        before = op_load(earlier, waiter.device, ios.op)
        if before is None or ios.mean_us < limits["slower"] * before.mean_us:
            continue
        is_same_load = ios.per_s <= _SAME_RATE * before.iops
        waits_far_longer = ios.mean_us >= _FAR_LONGER * before.mean_us
        if ios.in_flight <= _AS_DEEP * holder.in_flight or (is_same_load and waits_far_longer):
            names.add(ios.name)
            yield waiter


def _finding(facts: Facts, busy: _Busy) -> Finding:
    is_warning = busy.lets_others_wait
    return Finding(
        id=ID,
        severity=WARNING if is_warning else NOTICE,
        device=busy.device,
        summary=_summary(busy),
        facts=tuple(_facts(busy)),
        where=Where("who", busy.holder_device),
        steps=tuple(_steps(facts, busy)),
        refuted_by=_REFUTED,
        share=_lost_share(busy),
        also=tuple(dict.fromkeys(waiter.device for waiter in busy.waiters if waiter.device != busy.device)),
        state=("", busy.name),
        began=busy.since if busy.before is not None else None,
        short=_short(busy),
    )


def _summary(busy: _Busy) -> str:
    keeps = (
        f"{busy.name}{busy.through} keeps {busy.ops_text} of {busy.size_text} in flight, "
        f"{spelled(busy.holder.mean_us)} each"
    )
    if busy.change is _Change.SLOWER:
        return f"{busy.device}: {_slower_text(busy)}; {keeps}"
    waits = f"; {_waiter_text(busy.waiters[0], busy.device)}" if busy.lets_others_wait else ""
    return f"{busy.device} is busy {part(busy.load.busy)} of the time: {keeps}{waits}{_change_text(busy)}"


def _slower_text(busy: _Busy) -> str:
    """Return what took how long before and takes now, and the rates."""
    before_per_s = busy.before.ios_per_s if busy.before is not None else 0.0
    return (
        f"{plural_of_op(busy.holder.op)} take {spelled(busy.op_us)}, and took {spelled(busy.before_us or 0)} until "
        f"{clock(busy.since.wall)}, at {rate(busy.load.ios_per_s)} and {rate(before_per_s)} IOPS"
    )


def _short(busy: _Busy) -> str:
    name = within(busy.name, _NAME_CELLS)
    if busy.change is _Change.SLOWER:
        verdict = f"{plural_of_op(busy.holder.op)} take {spelled(busy.op_us)}, {spelled(busy.before_us or 0)} before"
        return short_text(busy.device, verdict, f"; {name} waits {spelled(busy.holder.mean_us)}")
    clauses: list[str] = []
    if busy.lets_others_wait:
        waiter = busy.waiters[0].ios
        clauses.append(f"; {within(waiter.name)} waits {spelled(waiter.mean_us)}")
    if _change_text(busy):
        clauses.append(f", {_short_change(busy)}")
    return short_text(
        busy.device, f"{busy.ops_text} of {name} in flight, {spelled(busy.holder.mean_us)} each", *clauses
    )


def _waiter_text(waiter: _Waiter, device: str) -> str:
    where = "" if waiter.device == device else f" on {waiter.device}"
    return f"{plural_of_op(waiter.ios.op)} of {waiter.ios.name}{where} take {spelled(waiter.ios.mean_us)}"


def _change_text(busy: _Busy) -> str:
    """Return what was before, as the end of the sentence; empty where that is not known."""
    before, now = busy.before, busy.load
    if before is None or busy.change is _Change.UNKNOWN:
        return ""
    until = f"; until {clock(busy.since.wall)}"
    if busy.change is _Change.DEEPER:
        rates = f"{rate(before.ios_per_s)} IOPS with {many(before.in_flight)} in flight, now {rate(now.ios_per_s)}"
        return f"{until} it completed {rates}: more of them only wait"
    if not before.ios_per_s:
        return f"{until} it had no I/O"
    is_other = not 1 / _OTHER_SIZE < now.mean_bytes / max(1.0, before.mean_bytes) < _OTHER_SIZE
    sizes = f" of {show_size(round(before.mean_bytes))}" if is_other else ""
    return f"{until} it had {rate(before.ios_per_s)} IOPS{sizes}, now {rate(now.ios_per_s)}"


def _short_change(busy: _Busy) -> str:
    before = busy.before
    if before is None or not before.ios_per_s:
        return "no I/O before"
    if busy.change is _Change.DEEPER:
        return f"IOPS as with {before.in_flight:.0f}"
    return f"{rate(before.ios_per_s)} IOPS before"


def _lost_share(busy: _Busy) -> float:
    """Return the share of the time of its I/Os that they took less before; 0 where that is not known."""
    if busy.before is None or not busy.before.latency_us or busy.change is _Change.UNKNOWN:
        return 0.0
    return max(0.0, 1 - busy.before.latency_us / busy.load.latency_us)


def _facts(busy: _Busy) -> Iterator[Fact]:
    holder, now = busy.holder, busy.load
    yield Fact(
        "busy", round(now.busy, 3), f"{busy.device} has I/Os in its driver {part(now.busy)} of the time", "share"
    )
    text = (
        f"it completes {rate(now.ios_per_s)} I/Os of {show_size(round(now.mean_bytes))} a second, with "
        f"{many(now.in_flight)} in flight by Little's law"
    )
    yield Fact("iops", round(now.ios_per_s, 1), text, "per_s")
    text = f"{part(busy.share)} of their time is that of {holder.name}{busy.through}, {rate(holder.per_s)} a second"
    yield Fact("holder", holder.name, text)
    if busy.writer:
        yield Fact("writer", busy.writer, f"{busy.writer} made most of the written pages dirty")
    elif holder.is_of_kernel:
        yield Fact("writer", "", "for which program the kernel issues them is not known")
    yield from duration_facts(
        ("mean_us", holder.mean_us, f"{plural_of_op(holder.op)} of {holder.name} take {{}}", holder.latency.count),
        ("op_us", busy.op_us, f"all {plural_of_op(holder.op)} of {busy.device} take {{}}", None),
        ("before_us", busy.before_us, f"before, {plural_of_op(holder.op)} took {{}} there", None),
    )
    if busy.before is not None:
        before = busy.before
        rates = f"{rate(before.ios_per_s)} I/Os of {show_size(round(before.mean_bytes))} a second"
        text = (
            f"before {clock(busy.since.wall)}: {rates}, {many(before.in_flight)} in flight, "
            f"busy {part(before.busy)} of the time"
        )
        yield Fact("iops_before", round(before.ios_per_s, 1), text, "per_s")
    for at, waiter in enumerate(busy.waiters[:_MOST_WAITERS], 1):
        ios = waiter.ios
        text = f"{_waiter_text(waiter, busy.device)}, {rate(ios.per_s)} a second, {many(ios.in_flight)} in flight"
        yield Fact(f"waiter_{at}", round(ios.mean_us), text, "us", ios.latency.count)


def _steps(facts: Facts, busy: _Busy) -> Iterator[Step]:
    yield Step(f"see who issues how much on {busy.holder_device}: screen 7")
    if busy.change is _Change.SLOWER:
        yield from same_load.device_steps(facts, busy.device)
        return
    name = busy.name if not busy.holder.is_of_kernel or busy.writer else "the program behind them"
    if busy.change is _Change.DEEPER:
        yield Step(
            f"let {name} keep fewer in flight (threads, queue depth): the device completes no more with more",
            "undone by the old number",
        )
    yield Step(
        f"find out why {name} needs so many I/Os, and whether a cache, larger I/Os or fewer syncs save some of them"
    )
    if busy.waiters:
        yield Step(
            f"limit {name} (io.max of its cgroup), or run it at other times",
            f"{name} takes longer",
        )
    yield Step("if all of its I/Os are needed, spread them over more devices, or use a faster one")


RULE = Rule(
    ID,
    "a device is busy nearly all the time, and its I/Os wait: which program keeps how many in flight",
    evaluate,
    needs=PROCESSES,
    thresholds={
        "busy": Threshold(0.9, "share", "of the time an I/O is in the driver at least"),
        "in_flight": Threshold(1, "ios", "in flight on average at least"),
        "wait_us": Threshold(8_000, "us", "they take on average at least"),
        "holds": Threshold(0.5, "share", "of the time of the device's I/Os is one program's at least"),
        "grew": Threshold(1.5, "times", "as many I/Os or bytes as before are another load"),
        "slower": Threshold(3.0, "times", "as long as before at about the same rate is slower"),
        "others_us": Threshold(20_000, "us", "I/Os of another program take on average at least, for a warning"),
        "ios": Threshold(20, "ios", "of that program at least"),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute it was so, or 30 % of that all the time from the start: no burst"
        ),
    },
    explained_by=(
        "io-errors",
        "command-timeouts",
        "starved-io",
        "device-pauses",
        "completion-wakeup",
        "softirq-delay",
        "slow-shared-handler",
        "outstanding-ceiling",
        "requeue-storm",
        "io-throttled",
        "outside-limit",
        "noisy-neighbour",
        "behind-large-ios",
        "low-io-priority",
        "maintenance",
        "swap-thrash",
        "dirty-throttled",
        "full-journal",
        "slow-journal",
        "fsync-bound",
        "page-faults",
        "read-ahead-off",
        "queue-depth-misconfigured",
        "peer-outlier",
        "slower-than-before",
        "slower-than-baseline",
    ),
)
