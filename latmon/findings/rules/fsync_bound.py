"""fsync-bound: programs wait for syncs, not for their reads and writes, on a file system of a device.

Most of the time of all operations on the files of a file system is in fsync and fdatasync, and it is a good part of the
window: each sync waits until the data, the journal and the device's cache are written. A sync that is rare, or fast, is
no finding, nor are programs that mostly read. Whether the device or a lock kept a sync waiting is a fact of its own, as
is that its thread ran late after a completion: the device is then not what to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.analysis.attribution import FileRow, file_rows
from latmon.findings.evidence import ELSEWHERE, files_facts, hardware_steps, nfs_facts, split_facts, waits_elsewhere
from latmon.findings.facts import Facts
from latmon.findings.log_devices import log_device_of
from latmon.findings.rule import (
    FILES,
    NOTICE,
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
from latmon.model.frame import FILE_WAITS, FileSystem
from latmon.model.histogram import Histogram
from latmon.support.units import part, spelled

ID = "fsync-bound"
_SYNC, _XFS = "fsync", "xfs"
_ITS_OPS = ("write", "flush")
"""Ops of a sync's I/Os."""
_REFUTED = "the program is as slow on tmpfs, or with its syncs turned off in a test"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about its file system whose programs waited most for syncs."""
    found: dict[str, Finding] = {}
    for its, rows in _by_file_system(file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES])).items():
        sync = next((row for row in rows if row.op == _SYNC), None)
        whole_us = sum(row.latency.sum or 0 for row in rows)
        if sync is None or sync.latency.sum is None or not facts.span_us:
            continue
        share, waiting = sync.latency.sum / max(whole_us, 1), sync.latency.sum / facts.span_us
        enough = sync.latency.count >= limits["syncs"] and (sync.latency.mean or 0) >= limits["mean_us"]
        if not enough or share < limits["share"] or waiting < limits["waiting"]:
            continue
        finding = _finding(its, sync, share, facts)
        if its.device not in found or finding.share > found[its.device].share:
            found[its.device] = finding
    return [found[device] for device in sorted(found)]


def _by_file_system(rows: Iterable[FileRow]) -> dict[FileSystem, list[FileRow]]:
    found: dict[FileSystem, list[FileRow]] = {}
    for row in rows:
        found.setdefault(row.file_system, []).append(row)
    return found


def _finding(its: FileSystem, sync: FileRow, share: float, facts: Facts) -> Finding:
    mean, resume = spelled(sync.latency.mean or 0), facts.traced_stage("resume", its.device, *_ITS_OPS)
    is_late = (resume.mean or 0) > (facts.latency(its.device, *_ITS_OPS).mean or 0)
    name = f"{its.device}: " if its.device else ""
    return Finding(
        ID,
        NOTICE,
        its.device,
        f"{name}{part(share)} of the time of operations on files of {its.mount} is in {sync.latency.count:,} syncs, "
        f"which take {mean} on average",
        (*_facts(its, sync, share, facts), *(_late_facts(its, resume) if is_late else ())),
        Where("files", its.device),
        tuple(_steps(facts, its, is_late=is_late)),
        _REFUTED,
        share * min(1.0, (sync.latency.sum or 0) / facts.span_us),
        short=short_text(
            its.device, f"{part(share)} of file operations' time is in syncs", f", {mean} each on average"
        ),
    )


def _facts(its: FileSystem, sync: FileRow, share: float, facts: Facts) -> Iterator[Fact]:
    yield Fact("mount", its.mount, f"file system: {its.mount}, {its.kind or 'of a type that is not known'}")
    text = f"syncs have {part(share)} of the time of all operations on its files"
    yield Fact("share", round(share, 3), text, "share", sync.latency.count)
    waiting = (sync.latency.sum or 0) / facts.span_us
    yield Fact("waiting", round(waiting, 2), f"{waiting:.2g} threads waited for a sync at a time, on average")
    yield from duration_facts(
        ("mean_us", sync.latency.mean, "a sync takes {} on average", sync.latency.count),
        ("p99_us", sync.latency.quantile(0.99), "p99 of a sync: {}", sync.latency.count),
    )
    for wait in FILE_WAITS:
        if of := sync.share(wait):
            yield Fact(f"{wait}_share", round(of, 3), f"{_WAITED[wait]}: {part(of)} of the syncs' time", "share")
    if sync.parts:
        yield from split_facts(sync.all_parts, "syncs")
    if log_device := log_device_of(facts, its.device):
        yield Fact("log_device", log_device, f"the log of the file system on {its.device} is on {log_device}")
    yield from nfs_facts(facts, its.mount)
    yield from files_facts(facts, its.device, (_SYNC,), _ITS_OPS)
    if its.kind == _XFS:
        yield from _log_facts(facts, its.device)
    if its.device and (flush := facts.latency(its.device, "flush")):
        yield from duration_facts(
            ("flush_us", flush.mean, f"a flush of the cache of {its.device} takes {{}} on average", flush.count)
        )


def _log_facts(facts: Facts, device: str) -> Iterator[Fact]:
    """Yield what writes of the xfs log take, which a sync waits for, and the waits for room in it."""
    log = facts[measurements.XFS_LOGS].get(device)
    if log is None or not log.writes:
        yield Fact("log", "", "writes of the xfs log: not measured, because no probe traced its tracepoints (xfs_logs)")
        return
    mean_us = log.writing_us / log.writes
    yield from duration_facts(("log_us", mean_us, "a write of the xfs log takes {} on average", log.writes))
    if log.waits:
        text = "a transaction without room in the xfs log waits {} on average"
        yield from duration_facts(("log_room_us", log.waited_us / log.waits, text, log.waits))


def _late_facts(its: FileSystem, resume: Histogram) -> Iterator[Fact]:
    text = f"the threads that waited for I/Os of {its.device} ran {{}} after the completion on average, longer than it"
    yield from duration_facts(("resume_us", resume.mean, f"{text} took", resume.count))


_WAITED = {
    "cached": "the thread did not sleep",
    "device": "the thread issued I/O and slept, for that I/O, a lock or a CPU",
    "unknown": "the thread slept without I/O of its own, such as for the journal's",
}


def _steps(facts: Facts, its: FileSystem, *, is_late: bool) -> Iterator[Step]:
    yield Step("see which files are synced and by whom, and the I/O of a slow sync: screen 2, key F")
    yield Step(
        "let the program sync once for several changes (group commit), or write its log with O_DSYNC",
        "changes since the last sync are lost when the host fails",
    )
    if is_late:
        yield Step(
            "give the programs that sync a CPU of their own, or higher priority: screen 2, key F has the other threads",
            "what runs there now gets slower",
        )
    elif waits_elsewhere(facts, its.device, (_SYNC,), _ITS_OPS):
        yield ELSEWHERE
    elif log_device := log_device_of(facts, its.device):
        yield Step(f"see whether the writes of the log's device are slow: screen 2 on {log_device}")
    elif its.device:
        yield from hardware_steps(facts, its.device, (_DEVICE,))


_DEVICE = Step(
    "use a device whose cache survives a power failure: a flush costs it nothing; or put the log on a device of its own"
)


RULE = Rule(
    ID,
    "programs wait for syncs of a file system, not for their reads and writes",
    evaluate,
    needs=FILES,
    thresholds={
        "share": Threshold(0.5, "share", "of the time of all operations on the file system's files at least"),
        "waiting": Threshold(0.2, "share", "of the window is waited for syncs at least, all threads together"),
        "mean_us": Threshold(1_000, "us", "a sync takes at least, on average"),
        "syncs": Threshold(50, "syncs", "in the window at least"),
    },
    explained_by=("not-the-disk", "swap-thrash", "slow-log-device", "slow-journal"),
)
