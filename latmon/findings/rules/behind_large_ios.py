"""behind-large-ios: small I/Os of a program wait behind the large ones that another program keeps in flight.

A backup or the writeback of a dump keeps a device full with I/Os of a megabyte. A small I/O that comes meanwhile waits
for those in front of it, and takes about as long as they do, however fast the device is with it alone. So no time
without the other program is needed for a comparison (noisy-neighbour): the sizes and times of the moment are the
evidence. Pages that a program made dirty are written by the kernel's threads: named is the program that made most of
them dirty, where it is known to be of this device. No finding: a program that keeps as many I/Os in flight itself, and
I/Os of about the same size. A device that takes as long for any I/O looks the same, which other rules find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from latmon.findings.evidence import lost_share
from latmon.findings.facts import Block, Facts
from latmon.findings.program_ios import ProgramIos, ios_by_program
from latmon.findings.programs import most_buffered, writes_for_programs
from latmon.findings.rule import (
    PROCESSES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    sysfs,
    within,
)
from latmon.findings.same_load import were_quick
from latmon.model import measurements
from latmon.model.histogram import merge
from latmon.model.stages import plural_of_op
from latmon.support.units import counted, part, show_size, speed, spelled

ID = "behind-large-ios"
_OPS = ("read", "write")
_MOST_WAITERS = 3
_REFUTED = (
    "its I/Os are as slow while the other program is stopped: then the device takes as long for any I/O, large or small"
)


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Large I/Os that fill a device, and the small ones that wait behind them."""

    device: str
    large: ProgramIos
    share_of_bytes: float
    waiters: tuple[ProgramIos, ...]
    """The one whose I/Os waited longest in all is first."""
    lost: float
    """Share of the time of the device's I/Os that is the waiters'."""
    writer: str = ""
    """The program whose writes the kernel's threads issue; empty: not known, or the large I/Os are a program's own."""
    writer_per_s: float = 0.0

    @property
    def large_text(self) -> str:
        """Return the program that keeps the large I/Os in flight, or the writeback of which program they are."""
        if not self.large.is_writeback:
            return self.large.name
        return f"the writeback of {self.writer}" if self.writer else "the writeback of dirty pages"

    @property
    def large_name(self) -> str:
        return self.writer or self.large.name


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about the program whose I/Os waited longest in all."""
    devices = {issuer.device for issuer in facts[measurements.ISSUERS] if issuer.is_process}
    for device in sorted(devices):
        crowd = _crowd(facts, device, limits)
        if crowd is not None and facts.lasts(_lasted_us(facts, crowd), limits["lasting_us"]):
            yield _finding(crowd)


def _crowd(facts: Facts, device: str, limits: Thresholds) -> _Crowd | None:
    programs = ios_by_program(facts.window, device)
    large = max(programs, key=lambda ios: ios.time_us, default=None)
    if large is None or large.op not in _OPS or large.in_flight < limits["in_flight"]:
        return None
    share = large.bytes / max(1, sum(ios.bytes for ios in programs))
    if share < limits["bytes"]:
        return None
    waiters = [ios for ios in programs if _waits_behind(ios, large, limits)]
    waiters.sort(key=lambda ios: -(ios.time_us))
    if not waiters or were_quick(facts, device, large.op):
        return None
    waited_us = sum(ios.time_us for ios in waiters)
    lost = lost_share(waited_us, merge(ios.latency for ios in programs))
    crowd = _Crowd(device, large, share, tuple(waiters), lost)
    written = most_buffered(facts, device) if large.is_writeback else None
    if written is None:
        return crowd
    writer, size = written
    return replace(crowd, writer=writer.name, writer_per_s=size * 1e6 / facts.span_us)


def _waits_behind(ios: ProgramIos, large: ProgramIos, limits: Thresholds) -> bool:
    if ios is large or ios.op not in _OPS or ios.name == large.name:
        return False
    if ios.is_of_kernel or writes_for_programs(ios.name):
        return False
    if ios.latency.count < limits["ios"] or ios.mean_us < max(limits["wait_us"], limits["as_long"] * large.mean_us):
        return False
    return ios.mean_bytes * limits["smaller"] <= large.mean_bytes and ios.in_flight * 2 <= large.in_flight


def _lasted_us(facts: Facts, crowd: _Crowd) -> int:
    names = {ios.name for ios in crowd.waiters}

    def waits_in(block: Block) -> bool:
        rows = (row for row in block[measurements.ISSUERS] if row.device == crowd.device and row.is_process)
        return not names.isdisjoint(row.comm for row in rows)

    return facts.lasted_us(waits_in)


def _finding(crowd: _Crowd) -> Finding:
    first = crowd.waiters[0]
    more = len({ios.name for ios in crowd.waiters}) - 1
    also = f" and {counted(more, 'more program')}" if more else ""
    size, ops = show_size(round(crowd.large.mean_bytes)), plural_of_op(crowd.large.op)
    return Finding(
        id=ID,
        severity=WARNING,
        device=crowd.device,
        summary=f"{crowd.device}: {plural_of_op(first.op)} of {first.name}{also} take {spelled(first.mean_us)} behind "
        f"{crowd.large.in_flight:.0f} {ops} of {size}, which {crowd.large_text} keeps in flight",
        facts=tuple(_facts(crowd)),
        where=Where("who", crowd.device),
        steps=tuple(_steps(crowd)),
        refuted_by=_REFUTED,
        share=crowd.lost,
        state=(first.name, crowd.large_name),
        short=short_text(
            crowd.device,
            f"{plural_of_op(first.op)} of {within(first.name)} take {spelled(first.mean_us)}",
            f" behind {size} {ops}",
            f" of {within(crowd.large_name)}",
        ),
    )


def _facts(crowd: _Crowd) -> Iterator[Fact]:
    large = crowd.large
    ops = plural_of_op(large.op)
    ios_in_flight = f"{large.in_flight:.1f} {ops} of {crowd.large_text}"
    text = f"{ios_in_flight} are in flight on average, each for {spelled(large.mean_us)}"
    yield Fact("in_flight", round(large.in_flight, 1), text, "ios", large.latency.count)
    yield Fact("large_bytes", round(large.mean_bytes), f"they are of {show_size(round(large.mean_bytes))}", "bytes")
    per_s = large.bytes * 1e6 / max(1, large.span_us)
    text = f"they have {part(crowd.share_of_bytes)} of the bytes of {crowd.device}, {speed(per_s)}"
    yield Fact("share", round(crowd.share_of_bytes, 3), text, "share")
    if crowd.writer:
        text = f"{crowd.writer} made most of these pages dirty, {speed(crowd.writer_per_s)} on average"
        yield Fact("writer", crowd.writer, text)
    elif large.is_writeback:
        yield Fact("writer", "", "which program made these pages dirty is not known")
    for at, ios in enumerate(crowd.waiters[:_MOST_WAITERS], 1):
        text = (
            f"{plural_of_op(ios.op)} of {ios.name}: {show_size(round(ios.mean_bytes))} in {spelled(ios.mean_us)} on "
            f"average, {ios.in_flight:.1f} of them in flight"
        )
        yield Fact(f"mean_{at}_us", round(ios.mean_us), text, "us", ios.latency.count)


def _steps(crowd: _Crowd) -> Iterator[Step]:
    name = crowd.writer or ("the program that writes" if crowd.large.is_writeback else crowd.large.name)
    yield Step("see who issues how much: screen 7; files and their writers: key F")
    yield Step(
        f"stop {name} for a moment, and look whether the others get faster",
        f"{name} does not run meanwhile",
    )
    yield Step(
        f"limit its bytes per second (io.max of its cgroup, rsync --bwlimit, pv -L), or run {name} at other times",
        f"{name} takes longer",
    )
    if crowd.large.is_writeback:
        yield Step(
            "let fewer pages be written at a time: wbt_lat_usec of the device above 0, or O_DIRECT in the program that "
            "writes",
            "writes take longer",
            (f"grep -H . {sysfs(crowd.device)}/queue/wbt_lat_usec /proc/sys/vm/dirty_*",),
        )
    else:
        yield Step(
            "give small I/Os their share: the scheduler bfq or mq-deadline, or fewer large ones in flight",
            "the large ones get slower; a scheduler costs CPU",
        )


RULE = Rule(
    ID,
    "small I/Os of a program wait behind large ones that another program keeps in flight",
    evaluate,
    needs=PROCESSES,
    thresholds={
        "in_flight": Threshold(3, "ios", "large ones in flight on average at least"),
        "bytes": Threshold(0.8, "share", "of the device's bytes are theirs at least"),
        "smaller": Threshold(8.0, "times", "the size of the others' I/Os at least"),
        "as_long": Threshold(0.3, "times", "as long as the large ones the small ones take at least"),
        "wait_us": Threshold(20_000, "us", "the small ones take on average at least"),
        "ios": Threshold(20, "ios", "small ones of a program in the last minute at least"),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute they came, or 30 % of that all the time from the start: no burst"
        ),
    },
    explained_by=(
        "noisy-neighbour",
        "swap-thrash",
        "io-throttled",
        "low-io-priority",
        "slower-than-before",
        "peer-outlier",
        "outside-limit",
        "completion-wakeup",
        "softirq-delay",
        "slow-shared-handler",
        "device-pauses",
    ),
)
