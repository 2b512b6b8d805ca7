"""cpu-throttled: programs that do I/O have used up the CPU quota of their cgroup, and run on in its next period.

CFS bandwidth control stops all threads of a cgroup until the next period. A program whose I/O has been completed then
runs late, and no latency of a device shows it. No finding: a quota that is not reached, or of programs without I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from latmon.findings.evidence import host_before
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import most_used_device
from latmon.findings.rule import (
    QUOTAS,
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
    within,
)
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.measurements import CPU_QUOTAS
from latmon.model.measurements.cpu_quotas import CpuQuota, QuotaPeriods
from latmon.support.units import part, show_size, spelled

ID = "cpu-throttled"
_PLAIN = re.compile(r"/[\w.@/-]+", re.ASCII)
_REFUTED = "nr_throttled in the cgroup's cpu.stat does not grow while the program is slow"


class _Throttled(NamedTuple):
    """A cgroup that used up its quota, with the sums of the window."""

    cgroup: str
    quota: CpuQuota
    """Of its process with most I/O."""
    periods: int
    throttled: int
    throttled_us: int
    io_bytes: int
    serves_fuse: bool

    @property
    def share(self) -> float:
        """Return the share of the periods in which the quota was used up."""
        return self.throttled / self.periods if self.periods else 0.0

    @property
    def process(self) -> str:
        """Return the name of the process with most I/O; empty where it is left out."""
        return self.quota.process.rpartition("/")[0]


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per host, about the cgroup that was throttled in most of its periods."""
    by_host: dict[str, list[_Throttled]] = {}
    for cgroup in dict.fromkeys(row.cgroup for row in facts[CPU_QUOTAS]):
        throttled = _throttled(facts[CPU_QUOTAS], cgroup)
        if throttled is None or throttled.share < limits["share"]:
            continue
        lasted_us = sum(block.span_us for block in facts.window if _is_used_up(block, cgroup, limits["share"]))
        if facts.lasts(lasted_us, limits["lasting_us"], _read_us(facts)):
            by_host.setdefault(host_before(facts, cgroup), []).append(throttled)
    for host, throttled_groups in by_host.items():
        yield _finding(facts, host, sorted(throttled_groups, key=lambda row: (-row.share, row.cgroup)))


def _throttled(rows: Mapping[CpuQuota, QuotaPeriods], cgroup: str) -> _Throttled | None:
    """Return the sums of a cgroup; None where its programs did no I/O."""
    own = {row: periods for row, periods in rows.items() if row.cgroup == cgroup}
    cpu_quota = max(own, key=lambda row: own[row].moved_bytes)
    if not own[cpu_quota].moved_bytes:
        return None
    return _Throttled(
        cgroup,
        cpu_quota,
        sum(row.periods for row in own.values()),
        sum(row.throttled for row in own.values()),
        sum(row.throttled_us for row in own.values()),
        sum(row.moved_bytes for row in own.values()),
        own[cpu_quota].served_bytes > 0,
    )


def _is_used_up(block: Block, cgroup: str, share: float) -> bool:
    rows = [periods for row, periods in block[CPU_QUOTAS].items() if row.cgroup == cgroup]
    periods = sum(row.periods for row in rows)
    return bool(periods) and sum(row.throttled for row in rows) >= share * periods


def _read_us(facts: Facts) -> int:
    """Return the length of the window's blocks from the first with a quota on: a first look has no numbers."""
    blocks = facts.window
    first = next((at for at, block in enumerate(blocks) if block[CPU_QUOTAS]), 0)
    return sum(block.span_us for block in blocks[first:])


def _finding(facts: Facts, host: str, throttled_groups: list[_Throttled]) -> Finding:
    worst = throttled_groups[0]
    device = most_used_device(facts, worst.quota.process, worst.cgroup)
    devices = (most_used_device(facts, throttled.quota.process, throttled.cgroup) for throttled in throttled_groups)
    who = worst.process or "the programs"
    periods = f"{part(worst.share)} of the periods"
    used_up = f"{who} of cgroup {worst.cgroup} used up its CPU quota ({_quota(worst)}) in {periods}"
    if worst.serves_fuse:
        summary = f"{used_up}: it serves a FUSE file system, so that all I/O of that file system waits for it"
        program, harm = f"FUSE server {within(who)}", ", so all its I/O waits"
    else:
        summary = f"{used_up}: it runs late, whenever its I/Os {_latency(facts, device)}are completed"
        program, harm = within(who), ", so it runs late after its I/Os"
    return Finding(
        id=ID,
        severity=WARNING,
        device=host,  # which device is not known at first: another one would begin another episode
        summary=summary,
        facts=tuple(_facts(facts, device, throttled_groups)),
        where=Where("overview", device),
        steps=tuple(_steps(worst.cgroup)),
        refuted_by=_REFUTED,
        share=worst.share,
        also=tuple(filter(None, dict.fromkeys(devices))),
        state=(worst.cgroup, _quota(worst)),
        short=short_text(
            host.rstrip(HOST_SEPARATOR),
            f"{program} used up its CPU quota in {periods}",
            harm,
        ),
    )


def _quota(throttled: _Throttled) -> str:
    return f"{spelled(throttled.quota.quota_us)} of {spelled(throttled.quota.period_us)}"


def _latency(facts: Facts, device: str) -> str:
    """Return the device and its mean latency as a part of a sentence; empty where they are not known."""
    mean_us = facts.latency(device).mean
    return "" if mean_us is None else f"on {device} (mean {spelled(mean_us)}) "


def _facts(facts: Facts, device: str, throttled_groups: list[_Throttled]) -> Iterator[Fact]:
    worst = throttled_groups[0]
    text = f"it was used up in {worst.throttled:,} of {worst.periods:,} periods (cpu.stat)"
    yield Fact("throttled", round(worst.share, 3), text, "share", worst.periods)
    yield from duration_facts(
        ("throttled_us", worst.throttled_us, "its threads were stopped for {}, of all CPUs together", worst.throttled),
    )
    yield Fact("quota", worst.quota.quota_us, f"the quota is {_quota(worst)}", "us")
    who = worst.process or "a process"
    yield Fact("io_bytes", worst.io_bytes, f"{who} read and wrote {show_size(worst.io_bytes)} meanwhile", "bytes")
    timed = facts.latency(device)
    yield from duration_facts(("io_mean", timed.mean, f"I/Os of {device} took {{}} on average", timed.count))
    for at, other in enumerate(throttled_groups[1:4], 1):
        text = f"cgroup {other.cgroup} too: in {part(other.share)} of its periods"
        yield Fact(f"other_{at}", other.cgroup, text)


def _steps(cgroup: str) -> Iterator[Step]:
    at = cgroup if _PLAIN.fullmatch(cgroup) else "/CGROUP"
    yield Step(
        "watch nr_throttled, and ask who set the quota: a pod's CPU limit, systemd (CPUQuota), a container runtime",
        commands=(f"cat /sys/fs/cgroup{at}/cpu.stat /sys/fs/cgroup/cpu{at}/cpu.stat",),
    )
    yield Step(
        "raise the quota, or let the program use less CPU for each I/O; no faster disk helps",
        "others on the host have less CPU; undone by the old value",
    )


RULE = Rule(
    ID,
    "programs with I/O use up the CPU quota of their cgroup, and run late for that",
    evaluate,
    needs=QUOTAS,
    thresholds={
        "share": Threshold(0.5, "share", "of the periods in which the cgroup ran, the quota was used up"),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute it was so, or 30 % of that all the time from the start: no burst"
        ),
    },
)
