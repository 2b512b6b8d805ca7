"""slow-log-device: programs wait for syncs of a file system, because its log is on another device, which is slow.

XFS (mkfs.xfs -l logdev=) and ext4 (mke2fs -O journal_dev) can have their log on a device of its own. Each sync waits
for a write of it, so the device of the files has nothing to do with the wait, however slow the syncs are. No finding: a
log that is fast, or not slower than the files' device with its flushes, and syncs that wait for something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.analysis.attribution import FileRow, file_rows
from latmon.findings.evidence import split_facts
from latmon.findings.facts import Facts
from latmon.findings.log_devices import SlowLog, log_facts, log_steps, slow_log
from latmon.findings.rule import (
    FILES,
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
from latmon.model import measurements
from latmon.model.frame import JOURNAL
from latmon.support.units import part, spelled

ID = "slow-log-device"
_SYNC = "fsync"
_REFUTED = "the log's device gets faster and the syncs stay as slow, or they are as slow with the log beside the files"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device of a log, about the file system whose syncs wait for it the longest."""
    by_log: dict[str, Finding] = {}
    for row in file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES]):
        if row.op != _SYNC or not _is_waited_for(row, facts, limits):
            continue
        log = slow_log(facts, row.file_system.device, row.latency.count, row.latency.sum or 0)
        if log is None or log.mean_us < limits["io_us"]:
            continue
        finding = _finding(facts, row, log)
        if log.device not in by_log or finding.share > by_log[log.device].share:
            by_log[log.device] = finding
    return [by_log[device] for device in sorted(by_log)]


def _is_waited_for(row: FileRow, facts: Facts, limits: Thresholds) -> bool:
    """Return whether programs wait for these syncs, and, where their time is split, these for the log."""
    if row.latency.sum is None or row.latency.count < limits["syncs"]:
        return False
    if row.latency.sum < limits["waiting"] * facts.span_us:
        return False
    share = row.part_share(JOURNAL)
    return share is None or share >= limits["log_share"]


def _finding(facts: Facts, row: FileRow, log: SlowLog) -> Finding:
    file_system, sync_us = row.file_system, spelled(row.latency.mean or 0)
    kind = f"{file_system.kind} on {log.data_device}" if file_system.kind else f"on {log.data_device}"
    waiting = (row.latency.sum or 0) / facts.span_us
    return Finding(
        id=ID,
        severity=WARNING,
        device=log.device,
        summary=(
            f"{log.device}: syncs of {file_system.mount} ({kind}) take {sync_us}: they wait for its log on {log.text}"
        ),
        facts=tuple(_facts(facts, row, log)),
        where=Where("overview", log.device, log.op),
        steps=tuple(_steps(facts, log)),
        refuted_by=_REFUTED,
        share=min(1.0, waiting),
        also=(log.data_device,),
        short=short_text(
            log.device,
            f"{log.ops} of the log of {log.data_device} take {spelled(log.mean_us)}",
            f", a sync {sync_us}",
        ),
    )


def _facts(facts: Facts, row: FileRow, log: SlowLog) -> Iterator[Fact]:
    yield Fact("mount", row.file_system.mount, f"file system: {row.file_system.mount}, {row.file_system.kind}")
    yield from log_facts(log)
    yield from duration_facts(
        ("mean_us", row.latency.mean, "a sync takes {} on average", row.latency.count),
        ("p99_us", row.latency.quantile(0.99), "p99 of a sync: {}", row.latency.count),
    )
    waiting = (row.latency.sum or 0) / facts.span_us
    yield Fact("waiting", round(waiting, 2), f"{waiting:.2g} threads waited for a sync at a time, on average")
    if (share := row.part_share(JOURNAL)) is not None:
        yield Fact("log_share", round(share, 3), f"the syncs slept for the log {part(share)} of their time", "share")
        yield from split_facts({name: us for name, us in row.all_parts.items() if name != JOURNAL}, "syncs")


def _steps(facts: Facts, log: SlowLog) -> Iterator[Step]:
    yield Step(f"see the writes of {log.device} and who else writes to it: screen 2 and screen 7 on {log.device}")
    yield from log_steps(facts, log)
    yield Step("let the program sync once for several changes (group commit)", "changes since then are lost at a crash")


RULE = Rule(
    ID,
    "programs wait for syncs of a file system, because its log is on another device, which is slow",
    evaluate,
    needs=FILES,
    thresholds={
        "io_us": Threshold(5_000, "us", "a write or a flush of the log takes at least, on average"),
        "log_share": Threshold(0.5, "share", "of the syncs' time they sleep for the log at least, where it is split"),
        "waiting": Threshold(0.2, "share", "of the window is waited for syncs at least, all threads together"),
        "syncs": Threshold(20, "syncs", "in the window at least"),
    },
    explained_by=("swap-thrash",),
)
