"""fsync-bound: programs wait for syncs, not for their reads and writes, on a file system of a device.

Most of the time of all operations on the files of a file system is in fsync and fdatasync, and it is a good part of the
window: each sync waits until the data, the journal and the device's cache are written. A file system that is mounted
with `sync` lets each write wait so. A sync that is rare, or fast, is no finding, nor are programs that mostly read.
Whether the device or a lock kept a sync waiting is a fact of its own, as is that its thread ran late after a
completion: the device is then not what to change. Without traced operations the tracepoints of syncs (ext4) are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from latmon.analysis.attribution import FileRow, file_rows
from latmon.findings.evidence import (
    ELSEWHERE,
    explained_by_locks,
    files_facts,
    hardware_steps,
    host_before,
    nfs_facts,
    split_facts,
    waits_elsewhere,
)
from latmon.findings.facts import Block, Facts
from latmon.findings.log_devices import log_device_of
from latmon.findings.programs import Program, by_program, program_of
from latmon.findings.rule import (
    FILES,
    NOTICE,
    PLAIN_PATH,
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
from latmon.model import measurements
from latmon.model.frame import FILE_WAITS, MOUNTED_DIRSYNC, MOUNTED_SYNC, FileSystem, Flow
from latmon.model.histogram import Histogram
from latmon.model.measurements.journals import Syncs
from latmon.support.units import part, show_size, spelled

ID = "fsync-bound"
_SYNC, _XFS = "fsync", "xfs"
_CHANGE = "change"
"""A write, rename or unlink, which the tracepoints of syncs don't tell apart."""
_ITS_OPS = ("write", "flush")
"""Ops of a sync's I/Os."""
_REFUTED = "the program is as slow on tmpfs, or with its syncs turned off in a test"
_REFUTED_MOUNT = "the writes are as slow after the file system is mounted without the option"
_SMALL_BYTES, _OFTEN_PER_S, _MOST_OF_SYNCS = 65_536, 5.0, 0.5
"""Bytes that the device writes for a sync at most, and syncs of one program a second at least, from which on it is told
to sync less often; it has that share of the syncs."""
_SYNCHRONOUS = MappingProxyType(
    {
        "": (_SYNC,),
        "sync": (_SYNC, "write", "rename", "unlink"),
        "dirsync": (_SYNC, "rename", "unlink"),
    }
)
"""Option of a mount -> the operations that end only when their changes are on the device. Few opens make a file."""
_WAITED = {
    "cached": "the thread did not sleep",
    "device": "the thread issued I/O and slept, for that I/O, a lock or a CPU",
    "unknown": "the thread slept without I/O of its own, such as for the journal's",
}
_DEVICE = Step(
    "use a device whose cache survives a power failure: a flush costs it nothing; or put the log on a device of its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Syncs:
    """Calls that end only when what they changed is on the device, on the files of a file system."""

    file_system: FileSystem
    """Its mount is empty where only the syncs of its device are known."""
    count: int
    us: int
    op: str = _SYNC
    """What the calls are; others than a sync where the mount makes them synchronous."""
    option: str = ""
    """The option of the mount that does so: `sync`, `dirsync`."""
    share: float | None = None
    """Their part of the time of all operations; None where only they are measured."""
    row: FileRow | None = None
    """None where operations on files were not traced."""

    @property
    def mean_us(self) -> float:
        return self.us / max(self.count, 1)

    @property
    def noun(self) -> str:
        """Return what the calls are called."""
        return "syncs" if self.op == _SYNC else f"{self.op}s"


class _Syncer(NamedTuple):
    """The program that waits for most syncs of a device."""

    program: Program
    per_s: float
    """In the newest seconds with syncs."""
    bytes_per_sync: float | None
    """What the device writes for each of all syncs meanwhile, with the journal; None: not known."""

    @property
    def name(self) -> str:
        return self.program.name or "a program"

    @property
    def is_small_and_often(self) -> bool:
        """Return whether it syncs each of many small changes."""
        is_small = self.bytes_per_sync is not None and self.bytes_per_sync <= _SMALL_BYTES
        return is_small and self.per_s >= _OFTEN_PER_S


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about its file system whose programs waited most for syncs."""
    worst: dict[str, _Syncs] = {}
    for syncs in (*_of_files(facts), *_of_devices(facts)):
        device = syncs.file_system.device
        enough = syncs.count >= limits["syncs"] and syncs.mean_us >= limits["mean_us"]
        is_long = enough and syncs.us >= limits["waiting"] * facts.span_us
        if not is_long or (syncs.share is not None and syncs.share < limits["share"]):
            continue
        if device not in worst or (syncs.row is not None and _lost(facts, syncs) > _lost(facts, worst[device])):
            worst[device] = syncs
    return [_finding(worst[device], facts) for device in sorted(worst)]


def _lost(facts: Facts, syncs: _Syncs) -> float:
    """Return how much of the window is lost to them, 0..1."""
    return (1.0 if syncs.share is None else syncs.share) * min(1.0, syncs.us / facts.span_us)


def _of_files(facts: Facts) -> Iterator[_Syncs]:
    """Yield the syncs of each file system by its traced operations."""
    if not facts.span_us:
        return
    for its, rows in _by_file_system(file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES])).items():
        option = _option(facts, its)
        timed = {row.op: row for row in rows if row.latency.sum is not None and row.op in _SYNCHRONOUS[option]}
        if not timed:
            continue
        row = max(timed.values(), key=lambda row: row.latency.sum or 0)
        if row.op == _SYNC:
            option = ""
        whole_us = sum(row.latency.sum or 0 for row in rows)
        us = row.latency.sum or 0
        yield _Syncs(
            file_system=its,
            op=row.op,
            option=option,
            count=row.latency.count,
            us=us,
            share=us / max(whole_us, 1),
            row=row,
        )


def _option(facts: Facts, its: FileSystem) -> str:
    """Return the option by which the operations on a file system are synchronous; empty where none is known."""
    device = facts.device(its.device)
    for report, option in ((MOUNTED_SYNC, "sync"), (MOUNTED_DIRSYNC, "dirsync")):
        mount = device.reported_value(report)
        if mount is not None and its.mount == host_before(facts, its.device) + str(mount):
            return option
    return ""


def _of_devices(facts: Facts) -> Iterator[_Syncs]:
    """Yield the syncs of each device by their tracepoints, where operations on its files were hardly traced.

    A write to a file system that is mounted with `sync` has one, too.
    """
    sums: dict[str, list[Syncs]] = {}
    for row, syncs in facts[measurements.SYNCS].items():
        sums.setdefault(row.device, []).append(syncs)
    for device, values in sums.items():
        if _has_files(facts, device):
            continue
        mount = _mount_of_all(facts, device)
        yield _Syncs(
            file_system=FileSystem(mount, "", device),
            op=_CHANGE if mount else _SYNC,
            option="sync" if mount else "",
            count=sum(value.syncs for value in values),
            us=sum(value.waited_us for value in values),
        )


def _has_files(facts: Facts, device: str) -> bool:
    """Return whether operations on the files of a device were traced in half of the blocks with its syncs or more."""
    blocks = _blocks_with_syncs(facts, device)
    traced = [block for block in blocks if any(series.device == device for series in block[measurements.FILES])]
    return len(traced) >= _MOST_OF_SYNCS * len(blocks)


def _mount_of_all(facts: Facts, device: str) -> str:
    """Return the mount with `sync` where it is known to be the only one of a device; empty: syncs may be of others."""
    report = facts.device(device).reported_value(MOUNTED_SYNC)
    if report is None:
        return ""
    mount = host_before(facts, device) + str(report)
    mounts = {row.mount for row in facts[measurements.FILE_SYSTEM_SPACE] if row.device == device}
    return mount if mounts == {mount} else ""


def _blocks_with_syncs(facts: Facts, device: str) -> list[Block]:
    return [block for block in facts.window if any(row.device == device for row in block[measurements.SYNCS])]


def _syncer(facts: Facts, device: str) -> _Syncer | None:
    """Return the program with most of the syncs of a device; None where it has few of them, or none is known."""
    rows = {row.process: syncs for row, syncs in facts[measurements.SYNCS].items() if row.device == device}
    programs = by_program(rows.items())
    if not programs:
        return None
    waited_us = {program: sum(value.waited_us for value in values) for program, values in programs.items()}
    program = max(waited_us, key=lambda program: waited_us[program])
    if waited_us[program] < _MOST_OF_SYNCS * sum(waited_us.values()):
        return None
    # The newest block: the first one may have been traced in part.
    newest = _blocks_with_syncs(facts, device)[-1]
    rows = {row.process: syncs for row, syncs in newest[measurements.SYNCS].items() if row.device == device}
    own = sum(syncs.syncs for process, syncs in rows.items() if program_of(process).name == program.name)
    written = newest.counted(Flow(device, "write")).every
    all_syncs = sum(syncs.syncs for syncs in rows.values())
    bytes_per_sync = None if written is None or not all_syncs else written.bytes / all_syncs
    return _Syncer(program, own * 1e6 / max(newest.span_us, 1), bytes_per_sync)


def _by_file_system(rows: Iterable[FileRow]) -> dict[FileSystem, list[FileRow]]:
    by_file_system: dict[FileSystem, list[FileRow]] = {}
    for row in rows:
        by_file_system.setdefault(row.file_system, []).append(row)
    return by_file_system


def _finding(syncs: _Syncs, facts: Facts) -> Finding:
    its = syncs.file_system
    syncer = _syncer(facts, its.device)
    resume = facts.traced_stage("resume", its.device, *_ITS_OPS)
    is_late = (resume.mean or 0) > (facts.latency(its.device, *_ITS_OPS).mean or 0)
    name = f"{its.device}: " if its.device else ""
    return Finding(
        id=ID,
        severity=WARNING if syncs.option else NOTICE,
        device=its.device,
        summary=f"{name}{_summary(syncs, syncer)}",
        facts=(*_facts(syncs, facts, syncer), *(_late_facts(its, resume) if is_late else ())),
        where=Where("files", its.device),
        steps=tuple(_steps(facts, syncs, syncer, is_late=is_late)),
        refuted_by=_REFUTED_MOUNT if syncs.option else _REFUTED,
        share=_lost(facts, syncs),
        short=short_text(its.device, *_short(syncs, syncer)),
        explained_by=explained_by_locks(facts, its.device),
    )


def _summary(syncs: _Syncs, syncer: _Syncer | None) -> str:
    its, mean = syncs.file_system, spelled(syncs.mean_us)
    who = "" if syncer is None else syncer.program.text
    if syncs.option:
        waits = f": {who} waits" if who else ""
        effect = f"{syncs.noun} there wait for the disk and the journal, {mean} on average"
        return f"{its.mount} is mounted with {syncs.option}: {effect}{waits}"
    each = ""
    if syncer is not None:
        each = f"; {who} syncs {syncer.per_s:.0f} times a second"
        if syncer.is_small_and_often:
            each += f", for {show_size(syncer.bytes_per_sync or 0)} each: too often"
    if syncs.share is None:
        return f"programs wait for {syncs.count:,} syncs, which take {mean} on average{each}"
    time = f"{part(syncs.share)} of the time of operations on files of {its.mount}"
    return f"{time} is in {syncs.count:,} syncs, which take {mean} on average{each}"


def _short(syncs: _Syncs, syncer: _Syncer | None) -> tuple[str, ...]:
    """Return the verdict and the clauses of the short text."""
    mean = spelled(syncs.mean_us)
    name = "" if syncer is None else within(syncer.name)
    if syncs.option:
        waits = f"; {name} waits" if name else ""
        return f"mounted with {syncs.option}: {syncs.noun} take {mean}", waits, ", without fsync"
    if syncer is not None and syncer.is_small_and_often:
        size = show_size(syncer.bytes_per_sync or 0)
        return f"{name} syncs {syncer.per_s:.0f}/s, {mean} each", f", for {size}: batch them"
    if syncs.share is None:
        return f"syncs take {mean}", f"; {name} waits" if name else ""
    return f"{part(syncs.share)} of file operations' time is in syncs", f", {mean} each on average"


def _facts(syncs: _Syncs, facts: Facts, syncer: _Syncer | None) -> Iterator[Fact]:
    its = syncs.file_system
    if its.mount:
        yield Fact("mount", its.mount, f"file system: {its.mount}, {its.kind or 'of a type that is not known'}")
    if syncs.option:
        text = f"mounted with {syncs.option} (/proc/self/mountinfo): the program need not sync, nor open with O_SYNC"
        yield Fact("option", syncs.option, text)
    if syncs.share is not None:
        text = f"{syncs.noun} have {part(syncs.share)} of the time of all operations on its files"
        yield Fact("share", round(syncs.share, 3), text, "share", syncs.count)
    call = "sync" if syncs.op == _SYNC else syncs.op
    waiting = syncs.us / facts.span_us
    yield Fact("waiting", round(waiting, 2), f"{waiting:.2g} threads waited for a {call} at a time, on average")
    yield from duration_facts(("mean_us", syncs.mean_us, f"a {call} takes {{}} on average", syncs.count))
    if syncs.row is not None:
        yield from _row_facts(syncs.row, syncs.noun, call)
    if syncer is not None:
        text = f"{syncer.program.text} waits for {syncer.per_s:.0f} of them a second"
        yield Fact("per_s", round(syncer.per_s, 1), text, "per_s")
        if syncer.bytes_per_sync is not None:
            size = show_size(syncer.bytes_per_sync)
            text = f"{its.device} writes {size} for each, with the journal"
            yield Fact("bytes_per_sync", round(syncer.bytes_per_sync), text, "bytes")
    if log_device := log_device_of(facts, its.device):
        yield Fact("log_device", log_device, f"the log of the file system on {its.device} is on {log_device}")
    yield from nfs_facts(facts, its.mount)
    yield from files_facts(facts, its.device, (syncs.op,), _ITS_OPS)
    if its.kind == _XFS:
        yield from _log_facts(facts, its.device)
    if its.device and (flush := facts.latency(its.device, "flush")):
        yield from duration_facts(
            ("flush_us", flush.mean, f"a flush of the cache of {its.device} takes {{}} on average", flush.count)
        )


def _row_facts(row: FileRow, noun: str, call: str) -> Iterator[Fact]:
    """Yield what the calls waited for, by traced operations on files."""
    yield from duration_facts(
        ("p99_us", row.latency.quantile(0.99), f"p99 of a {call}: {{}}", row.latency.count),
    )
    for wait in FILE_WAITS:
        if share := row.share(wait):
            yield Fact(f"{wait}_share", round(share, 3), f"{_WAITED[wait]}: {part(share)} of the {noun}' time", "share")
    if row.parts:
        yield from split_facts(row.all_parts, noun)


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


def _steps(facts: Facts, syncs: _Syncs, syncer: _Syncer | None, *, is_late: bool) -> Iterator[Step]:
    its = syncs.file_system
    if syncs.option:
        yield from _mount_steps(its.mount, syncs.option)
        return
    yield Step("see which files are synced and by whom, and the I/O of a slow sync: screen 2, key F")
    batch = "let the program sync once for several changes (group commit), or write its log with O_DSYNC"
    if syncer is not None and syncer.is_small_and_often:
        batch = f"let {syncer.name} sync once for several changes (group commit), or at times, by its configuration"
    yield Step(batch, "changes since the last sync are lost when the host fails")
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


def _mount_steps(mount: str, option: str) -> Iterator[Step]:
    """Yield the steps that make the operations of a mount asynchronous again."""
    place = mount if PLAIN_PATH.fullmatch(mount) else "/MOUNT"
    yield Step(
        "find out who set the option and why: fstab, a unit of systemd, an automounter; the program may sync by itself",
        commands=(f"grep ' {place} ' /proc/self/mountinfo",),
    )
    if option == "sync":
        yield Step(
            "mount without it",
            "programs that don't sync lose the changes of the last 30 s when the host fails",
            (f"mount -o remount,async {place}",),
        )
    else:
        yield Step(
            "mount without it: unmount, and mount again without dirsync",
            "names that were created or changed in the last seconds are lost when the host fails",
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
    explained_by=("swap-thrash", "slow-log-device", "slow-journal"),
)
