"""io-throttled: a cgroup does as many I/Os or bytes per second on a device as its limit allows.

blk-throttle holds an I/O back before it is a request, so that no total contains the wait. The kernel's counters show
the limit and the rate; they don't show how long an I/O waits, or whether the programs would do more.
Version 1 of cgroups counts an I/O when it is submitted: what exceeds the limit in one block still waits in the next.
A limit that is changed is another one: the sentence is about the one that was reached last, which begins an episode of
its own, and the evidence has those before it. No finding: a limit that is not reached, or for a moment only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from latmon.analysis.attribution import submission_of
from latmon.findings.facts import Block, Facts
from latmon.findings.rule import (
    CGROUPS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    within,
)
from latmon.model.frame import CgroupLimit, Device
from latmon.model.stages import ADMISSION, THROTTLING
from latmon.support.units import counted, part, rate, speed, spelled

ID = "io-throttled"
_IOS, _BYTES = "ios", "bytes"
_SHORT = {_IOS: "iops", _BYTES: "bps"}
"""Kind of limit -> its name in the kernel's files."""
_PLAIN = re.compile(r"/[\w!.:@/-]+", re.ASCII)
_MAX_NAME = 40
_EXACT = 0.99
"""Least share of a limit, less one I/O, that blk-throttle let through in 5 s, for I/Os of 4 kB to 1 MB (6.18)."""
_STALLED = 0.01
_MOST_OTHERS = 3
_REFUTED = (
    "a program that itself does so many I/Os per second and no more: raise the limit, and neither its rate nor its "
    "latency changes"
)


class _Throttled(NamedTuple):
    """A cgroup at its limit: `row` has the counts of that time."""

    row: CgroupLimit
    kind: str
    """The limit that is reached: ios or bytes."""
    lasted_us: int
    per_s: float
    stalled: float | None
    """Share of the time in which a task waited for I/O; None where it isn't known."""
    last_us: int
    """End of the last block in which it was reached."""
    exact: bool
    """Whether it did all that the limit allows, less one I/O: a program of its own speed hardly does exactly that."""

    @property
    def limit(self) -> str:
        return _amount(_limit(self.row, self.kind), self.row.op, self.kind)

    @property
    def name(self) -> str:
        """Return the cgroup's path, or the last part of a long one."""
        path = self.row.cgroup
        return path if len(path) <= _MAX_NAME else f".../{path.rpartition('/')[2]}"


class _LimitedBlock(NamedTuple):
    """Counts of a cgroup's limit in a block, a row per value of the limit; empty without I/O."""

    rows: tuple[CgroupLimit, ...]
    span_us: int
    """The block's time in which limits were read."""
    end_us: int


class _ThrottledCgroup(NamedTuple):
    """A cgroup at its limit: the one that it reached last, and those before it."""

    now: _Throttled
    before: tuple[_Throttled, ...]

    @property
    def lasted_us(self) -> int:
        return self.now.lasted_us + sum(limit.lasted_us for limit in self.before)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device, about the cgroup that was at its limit for the longest time."""
    span_us = sum(block.limits_us for block in facts.window)
    by_device: dict[str, list[_ThrottledCgroup]] = {}
    for key in dict.fromkeys(row.key for block in facts.window for row in block.cgroup_limits or ()):
        throttled_cgroup = _throttled_cgroup([_of_block(block, key) for block in facts.window], limits["share"])
        if throttled_cgroup is None:
            continue
        lasts = throttled_cgroup.lasted_us >= limits["lasting_us"]
        exact = throttled_cgroup.now.exact or any(limit.exact for limit in throttled_cgroup.before)
        if lasts or (exact and facts.lasts(throttled_cgroup.lasted_us, limits["lasting_us"], span_us)):
            by_device.setdefault(throttled_cgroup.now.row.device, []).append(throttled_cgroup)
    for name, cgroups in sorted(by_device.items()):
        cgroups.sort(key=lambda cgroup: (-cgroup.lasted_us, -cgroup.now.row.bytes, cgroup.now.row.key))
        yield _finding(facts, facts.device(name), cgroups)


def _of_block(block: Block, key: tuple[str, str, str, str]) -> _LimitedBlock:
    rows = tuple(row for row in block.cgroup_limits or () if row.key == key)
    return _LimitedBlock(rows, block.limits_us, block.end_us)


def _throttled_cgroup(blocks: list[_LimitedBlock], share: float) -> _ThrottledCgroup | None:
    """Return the limits of a cgroup that were reached; None where none was."""
    values = dict.fromkeys(row.limits for block in blocks for row in block.rows)
    reached = [throttled for value in values if (throttled := _throttled(blocks, value, share)) is not None]
    if not reached:
        return None
    reached.sort(key=lambda limit: limit.last_us)
    return _ThrottledCgroup(reached[-1], tuple(reached[:-1]))


def _throttled(blocks: list[_LimitedBlock], value: tuple[int | None, int | None], share: float) -> _Throttled | None:
    """Return how long a limit of this value was reached and what was counted then; None where it was not reached."""
    rows = [row for block in blocks for row in block.rows if row.limits == value]
    kind = max((_IOS, _BYTES), key=lambda kind: sum(_needed_us(row, kind) for row in rows))
    reached: list[CgroupLimit] = []
    lasted_us = last_us = 0
    late_us = 0.0
    """Time that the limit still needs for I/Os that were counted earlier."""
    for block in blocks:
        span_us = block.span_us
        row = next((row for row in block.rows if row.limits == value), None)
        if row is None and block.rows:
            late_us = 0.0  # what waits, waits for the other limit
            continue
        needed_us = _needed_us(row, kind) if row else 0.0
        one_io_us = needed_us / row.ios if row and row.ios else 0.0
        if late_us + needed_us + one_io_us >= share * span_us:
            lasted_us += span_us
            last_us = block.end_us
            reached += [row] if row else []
        late_us = max(0.0, late_us + needed_us - span_us)
    if not reached or not _limit(reached[-1], kind):
        return None
    known = [row.stalled_us for row in reached if row.stalled_us is not None]
    ios, done_bytes = sum(row.ios for row in reached), sum(row.bytes for row in reached)
    cgroup_limit = replace(reached[-1], ios=ios, bytes=done_bytes)
    needed_us = _needed_us(cgroup_limit, kind)
    return _Throttled(
        cgroup_limit,
        kind,
        lasted_us,
        (ios if kind == _IOS else done_bytes) * 1e6 / lasted_us,
        min(1.0, sum(known) / lasted_us) if known else None,
        last_us,
        needed_us * (1 + 1 / max(ios, 1)) >= _EXACT * lasted_us,
    )


def _limit(row: CgroupLimit, kind: str) -> int:
    """Return I/Os or bytes per second; 0: no such limit."""
    return (row.ios_per_s if kind == _IOS else row.bytes_per_s) or 0


def _needed_us(row: CgroupLimit, kind: str) -> float:
    """Return the time that the limit needs to admit the counted I/Os."""
    limit = _limit(row, kind)
    return (row.ios if kind == _IOS else row.bytes) * 1e6 / limit if limit else 0.0


def _finding(facts: Facts, device: Device, cgroups: list[_ThrottledCgroup]) -> Finding:
    worst, before, others = cgroups[0].now, cgroups[0].before, [cgroup.now for cgroup in cgroups[1:]]
    row = worst.row
    names = f" ({', '.join(row.names)})" if row.names else ""
    more = f"; {counted(len(others), 'more limit')} reached" if others else ""
    return Finding(
        id=ID,
        severity=WARNING,
        device=device.name,
        summary=f"{device.name}: cgroup {worst.name}{names} is throttled at {worst.limit}, which it reached for "
        f"{spelled(worst.lasted_us)}{_earlier(before)}{more}",
        facts=(*_limit_facts(worst), *_before_facts(before), *_device_facts(facts, row), *_other_facts(others)),
        where=Where("overview", device.name, row.op),
        steps=tuple(_steps(worst, device)),
        refuted_by=_REFUTED,
        share=min(1.0, worst.lasted_us / facts.span_us) if facts.span_us else 0.0,
        state=("\n".join(row.key), worst.limit),
        short=short_text(
            device.name,
            f"throttled at {worst.limit}",
            f" by cgroup {within(worst.name.rpartition('/')[2] or worst.name, 24)}",
            f" for {spelled(worst.lasted_us)}",
        ),
    )


def _earlier(before: tuple[_Throttled, ...]) -> str:
    """Return the limits before this one as a part of the sentence; empty without any."""
    if not before:
        return ""
    lasted = spelled(sum(limit.lasted_us for limit in before))
    return f", and before that at {counted(len(before), 'other limit')} for {lasted}"


def _before_facts(before: tuple[_Throttled, ...]) -> Iterator[Fact]:
    for at, earlier in enumerate(before[-_MOST_OTHERS:], 1):
        text = f"earlier in this minute it was throttled at {earlier.limit} for {spelled(earlier.lasted_us)}"
        yield Fact(f"before_{at}", _limit(earlier.row, earlier.kind), text)


def _limit_facts(worst: _Throttled) -> Iterator[Fact]:
    row = worst.row
    yield Fact("cgroup", row.cgroup, f"cgroup: {row.cgroup} (version {row.version})")
    yield Fact("limit", _limit(row, worst.kind), f"configured: at most {worst.limit} ({_file(row, worst.kind)})")
    done = _amount(worst.per_s, row.op, worst.kind)
    yield Fact("rate", round(worst.per_s, 1), f"it did {done} in that time", "per_s", row.ios)
    if row.processes:
        named = f": {', '.join(row.names)}" if row.names else ""
        yield Fact("processes", row.processes, f"processes in it: {row.processes:,}{named}")
    if worst.stalled is not None and worst.stalled >= _STALLED:
        text = f"one of its tasks or more waited for I/O {part(worst.stalled)} of that time (io.pressure)"
        yield Fact("stalled", round(worst.stalled, 3), text, "share")


def _device_facts(facts: Facts, row: CgroupLimit) -> Iterator[Fact]:
    """Yield how long I/Os wait where that is traced, and how busy the device is: what a higher limit could give."""
    submission = submission_of(facts.traced, row.device, (row.op,))
    if submission.admission.mean is not None and THROTTLING in facts.traced.includes_of(row.device).get(ADMISSION, ()):
        waits = spelled(submission.admission.mean)
        text = f"a {row.op} on {row.device} waits {waits} on average before its request exists"
        yield Fact("wait_us", round(submission.admission.mean), text, "us", submission.admission.count)
    timed = facts.latency(row.device, row.op)
    if timed.mean is not None:
        text = f"{row.device} takes {spelled(timed.mean)} on average for a {row.op} after the wait for the limit"
        yield Fact("device_us", round(timed.mean), f"{text}, which no total contains", "us", timed.count)
    depths = facts.depths(row.device).in_driver
    if idle := depths.get(0, 0):
        share = idle / sum(depths.values())
        text = f"{row.device} had nothing to do {part(share)} of the time"
        yield Fact("idle", round(share, 3), text, "share")


def _other_facts(others: list[_Throttled]) -> Iterator[Fact]:
    for at, other in enumerate(others[:_MOST_OTHERS], 1):
        text = f"cgroup {other.name} too: throttled at {other.limit} for {spelled(other.lasted_us)}"
        yield Fact(f"other_{at}", other.row.cgroup, text)


def _steps(worst: _Throttled, device: Device) -> Iterator[Step]:
    row, kind = worst.row, worst.kind
    root, path = row.root or "/CGROUPS", f"{row.root}{row.cgroup}".rstrip("/")
    at = path if row.root and _PLAIN.fullmatch(path) else f"{root if _PLAIN.fullmatch(root) else '/CGROUPS'}/CGROUP"
    number, file = f"{device.major}:{device.minor}", f"{at}/{_file(row, kind)}"
    key = f"{row.op[0]}{_SHORT[kind]}"
    lifted = f"echo '{number} 0' > {file}" if row.version == 1 else f"echo '{number} {key}=max' > {file}"
    yield Step(
        "ask who set the limit: systemd (systemctl show), a container runtime, an admin", commands=(f"cat {file}",)
    )
    yield Step(
        "lift the limit for a moment and look at rate and latency",
        f"others on {device.name} get slower if it protects them; undone by the old value",
        (lifted,),
    )


def _file(row: CgroupLimit, kind: str) -> str:
    return f"blkio.throttle.{row.op}_{_SHORT[kind]}_device" if row.version == 1 else "io.max"


def _amount(per_s: float, op: str, kind: str) -> str:
    """Return `50 reads/s` or `10.5 MB/s of reads`."""
    if kind == _BYTES:
        return f"{speed(per_s)} of {op}s"
    return f"{per_s:,} {op}s/s" if isinstance(per_s, int) else f"{rate(per_s)} {op}s/s"


RULE = Rule(
    ID,
    "a cgroup does as much I/O on a device as its limit allows",
    evaluate,
    needs=CGROUPS,
    thresholds={
        "share": Threshold(0.95, "share", "of the limit is done, less one I/O: the limit is reached"),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute it was reached, or 30 % of that all the time from the start: no burst"
        ),
    },
)
