"""not-the-disk: programs wait for a lock, not for the disk.

Half of the time of one kind of operation on the files of a file system, or more, passes in sleeps without I/O of the
thread's own in a lock: of a file that another thread writes, of a directory, or of the file system. The operations are
slow, and the device may be as well: both shares are in the finding. Operations that are traced have their times. Looks
at the functions in which threads sleep need no tracer, and have the programs that wait, the file, and those that work
on it meanwhile. No finding: threads that wait for their own I/O, for the journal, or for a server; a lock that costs
little of the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.analysis.attribution import FileRow, file_rows, whole_path
from latmon.findings.evidence import nfs_facts, split_facts
from latmon.findings.facts import Block, Facts
from latmon.findings.file_sleeps import Sleeper, sleepers, traced_op
from latmon.findings.hangs import is_known_mount
from latmon.findings.programs import Program, by_program
from latmon.findings.rule import (
    FILE_TIMES,
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
from latmon.model.frame import JOURNAL, LOCK, LOST_PATH, OWN_IO, PATH_OPS, FileOperation, FileSystem
from latmon.model.inflight import busy_share
from latmon.model.measurements.file_sleeps import LOG_SPACE
from latmon.support.text import path_end
from latmon.support.units import counted, part, spelled

ID = "not-the-disk"
_REFUTED = (
    "the operations are as slow when one thread alone does them, or when each thread has a file and a directory of its "
    "own"
)
_RENAMES = Step(
    "rename within a directory, each program in one of its own: a rename from one directory to another takes the one "
    "rename lock of the file system (s_vfs_rename_mutex), however many directories there are; else put the files on "
    "several file systems",
    "paths change",
)
"""fs/namei.c lock_rename(): in one directory only that directory's lock is taken."""
_MOST_HOLDERS = 3
"""So many names of threads that have a lock are in a fact."""
_EXCLUSIVE = frozenset(("write", "truncate", "fallocate", "setxattr", "chmod", "chown"))
"""Operations that take the lock of an inode for themselves (fs/*/file.c, fs/attr.c): readers wait meanwhile."""
_IN_DIRECTORIES = frozenset(("open", "create", "mkdir", "rmdir", "link", "mknod", "list", *PATH_OPS))
_OF_LOCK = 0.2
"""Share of the time for a lock that is waited for the journal by those who have it: they may be one at a time."""
_BUSY = 0.5
"""Share of the time with I/O of the device in flight from which on a lock may be had by what waits for the device."""
_NAME_CELLS = 12
"""Cells of a program's name in the short text."""


class _Locked(NamedTuple):
    """The operations of one kind on the files of a file system, as the tracer has them."""

    row: FileRow
    parts: Mapping[str, int]
    span_us: int
    """The time in which operations were traced."""

    @property
    def file_system(self) -> FileSystem:
        return self.row.file_system

    @property
    def op(self) -> str:
        return self.row.op

    @property
    def us(self) -> int:
        """Return their time in locks."""
        return self.parts.get(LOCK, 0)

    @property
    def waiting(self) -> float:
        """Return the threads that wait at a time, on average."""
        return self.us / max(self.span_us, 1)

    def share(self, name: str) -> float:
        """Return the share of a part, 0..1."""
        return min(1.0, self.parts.get(name, 0) / max(sum(self.parts.values()), 1))


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about its file system whose programs waited longest for locks."""
    traced: dict[str, _Locked] = {}
    span_us = facts.lasted_us(_has_files)
    for row in file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES]):
        if row.latency.sum is None:
            continue
        locked = _Locked(row, row.all_parts, span_us)
        device = row.file_system.device
        if _is_slow(locked, limits) and (device not in traced or locked.us > traced[device].us):
            traced[device] = locked
    waiters = _waiters(facts, limits)
    findings: dict[str, Finding] = {}
    for device, locked in traced.items():
        own = [waiter for waiter in waiters if waiter.file_system.mount == locked.file_system.mount]
        findings[device] = _traced_finding(facts, locked, own)
    for waiter in waiters:
        if waiter.file_system.device not in findings:
            findings[waiter.file_system.device] = _sampled_finding(facts, waiter, waiters)
    return [findings[device] for device in sorted(findings)]


def _has_files(block: Block) -> bool:
    return bool(block[measurements.FILES])


def _is_slow(locked: _Locked, limits: Thresholds) -> bool:
    latency = locked.row.latency
    p99_or_mean_us = latency.quantile(0.99) or latency.mean or 0  # few operations have no p99
    return (
        locked.share(LOCK) >= limits["share"]
        and locked.waiting >= limits["waiting"]
        and locked.us >= limits["waited_us"]
        and p99_or_mean_us >= limits["slow_us"]
    )


def _waiters(facts: Facts, limits: Thresholds) -> list[Sleeper]:
    """Return the programs that were seen waiting for locks long enough, those with most time first."""
    return [
        sleeper
        for sleeper in sleepers(facts, (LOCK,), limits["waiting"])
        if sleeper.lasted_us >= limits["lasting_us"]
        and sleeper.waited_us >= limits["waited_us"]
        and sleeper.mean_us >= limits["slow_us"]
    ]


class _Holder(NamedTuple):
    """A program that works on the file for whose lock others wait, and does not wait for it itself."""

    program: Program
    op: str
    us: int

    @property
    def doing(self) -> str:
        return "writes it" if self.op in _EXCLUSIVE else "works on it"

    @property
    def has(self) -> str:
        """Return whether it has the lock: not each read takes one, by its file system."""
        return "has" if self.op in _EXCLUSIVE else "may have"


def _sampled_holders(facts: Facts, waiter: Sleeper) -> list[_Holder]:
    """Return those that were seen in an operation on the waiter's file, those with most time first."""
    mount, file = waiter.file_system.mount, waiter.file
    rows = [
        (row, us)
        for row, us in facts[measurements.LOCK_HOLDERS].items()
        if row.mount == mount and file and whole_path(mount, row.file) == file
    ]
    times: dict[Program, Counter[str]] = {}
    for program, pairs in by_program((row.process, (row.op, us)) for row, us in rows).items():
        for op, us in pairs:
            times.setdefault(program, Counter())[op] += us
    holders = [_Holder(program, max(ops, key=lambda op: ops[op]), ops.total()) for program, ops in times.items()]
    return sorted(holders, key=lambda holder: -holder.us)


def _sampled_finding(facts: Facts, waiter: Sleeper, waiters: Sequence[Sleeper]) -> Finding:
    """Return the finding about a program that was seen waiting, where operations were not traced."""
    its = waiter.file_system
    holders = _sampled_holders(facts, waiter)
    name = f"{its.device.removesuffix(':')}: " if its.device else ""
    ops = f"{waiter.op}s" if waiter.op else "operations"
    busy = busy_share(facts.depths(its.device).in_driver)
    beside = (
        ", not for the disk" if busy < _BUSY else f", while {its.device} has I/O in flight {part(busy)} of the time"
    )
    return Finding(
        id=ID,
        severity=WARNING,
        device=its.device,
        summary=f"{name}{waiter.program.text} waits {waiter.share_text} {_lock_of(waiter)}, in its {ops}{beside}"
        f"{_held_by(waiter, holders)}",
        facts=(*_sampled_facts(waiter, waiters, holders), *_device_facts(facts, its.device, busy)),
        where=Where("overview", its.device),
        steps=tuple(_steps_of(waiter.op, [holder.program.text for holder in holders if _is_other(holder, waiter)])),
        refuted_by=_REFUTED,
        share=min(1.0, waiter.waiting),
        short=_short(its.device, waiter, "", holders, busy),
        explained_by=_behind_journal(facts, its, waiter.waited_us, _names(waiter, holders)),
    )


def _names(waiter: Sleeper, holders: Sequence[_Holder]) -> frozenset[str]:
    return frozenset((waiter.program.name, *(holder.program.name for holder in holders)))


def _behind_journal(
    facts: Facts, file_system: FileSystem, locked_us: int, names: frozenset[str] | None
) -> tuple[str, ...]:
    """Return the rule about the journal, where those who may have the lock wait for that.

    `names`: the program that waits for the lock, which may have it in another thread, and those that have it; None:
    neither is known, it may be any program on the file system.
    """
    in_journal_us = sum(
        sleeper.waited_us
        for sleeper in sleepers(facts, (JOURNAL, LOG_SPACE), 0.0)
        if sleeper.file_system == file_system and (names is None or sleeper.program.name in names)
    )
    return ("full-journal",) if in_journal_us >= _OF_LOCK * locked_us else ()


def _lock_of(waiter: Sleeper) -> str:
    if waiter.file:
        return f"for the lock of {waiter.file}"
    mount, kind = waiter.file_system.mount, waiter.file_system.kind
    where = mount if is_known_mount(mount) else f"a file system ({kind or 'of a type that is not known'})"
    return f"for the lock of a {'directory' if waiter.op in _IN_DIRECTORIES else 'file'} on {where}"


def _is_other(holder: _Holder, waiter: Sleeper) -> bool:
    return holder.program.name != waiter.program.name


def _held_by(waiter: Sleeper, holders: Sequence[_Holder]) -> str:
    """Return who has the lock, as the end of a sentence; empty where that is not known."""
    if not holders:
        return ""
    holder = holders[0]
    who = holder.program.text if _is_other(holder, waiter) else "another thread of it"
    return f"; {who} {holder.doing} meanwhile and {holder.has} the lock"


def _device_facts(facts: Facts, device: str, busy: float) -> Iterator[Fact]:
    """Yield the device's part, where what has the lock may wait for it."""
    latency = facts.latency(device)
    if busy < _BUSY:
        return
    text = f"{device} has I/O in flight {part(busy)} of the time: what has the lock may wait for that"
    yield Fact("busy", round(busy, 3), text, "share")
    yield from duration_facts(("io_us", latency.mean, f"an I/O of {device} takes {{}} on average", latency.count))


def _short(device: str, waiter: Sleeper, mean: str, holders: Sequence[_Holder], busy: float = 0.0) -> str:
    """Return the short text.

    `mean`: the time of an operation, empty where it is not known. `busy`: share of the time with I/O of the device in
    flight, of operations that were not traced.
    """
    file = path_end(waiter.file.rpartition("/")[2], _NAME_CELLS)
    has_other = bool(holders) and _is_other(holders[0], waiter)
    clauses = []
    if has_other:
        time = f", {mean}" if mean else ""
        clauses.append(f"{time}: {within(holders[0].program.name, _NAME_CELLS)} {holders[0].has} it")
    else:
        clauses.append(f", {mean} each" if mean else f", {waiter.share_text}")
    clauses.append(", not the disk" if busy < _BUSY else f", disk busy {part(busy)}")
    name = within(waiter.program.name or "a program", _NAME_CELLS)
    lock = f"{file}'s lock" if file else "a lock"
    return short_text(device.removesuffix(":"), f"{name} waits for {lock}", *clauses)


def _sampled_facts(waiter: Sleeper, waiters: Sequence[Sleeper], holders: Sequence[_Holder]) -> Iterator[Fact]:
    its = waiter.file_system
    if is_known_mount(its.mount):
        placed = "; its calls have paths, and are taken to be there as others are" if waiter.is_placed else ""
        yield Fact("mount", its.mount, f"file system: {its.mount}, {its.kind or 'of a type that is not known'}{placed}")
    text = f"{waiter.waiting:.2g} threads of {waiter.program.text} wait for locks at a time, on average"
    yield Fact("waiting", round(waiter.waiting, 2), text)
    if waiter.file:
        yield _file_fact(waiter)
    yield from _other_facts([waiter, *(other for other in waiters if other is not waiter)])
    yield from _holder_facts(holders)
    text = "an estimate by looks about 1 s apart: each wait takes {} or more"
    yield from duration_facts(("mean_us", round(waiter.mean_us), text, waiter.sleeps))


def _file_fact(waiter: Sleeper) -> Fact:
    share = part(waiter.file_us[waiter.file] / max(waiter.waited_us, 1))
    return Fact("file", waiter.file, f"{share} of the time that {waiter.program.text} waits is on {waiter.file}")


def _other_facts(waiters: Sequence[Sleeper]) -> Iterator[Fact]:
    for at, other in enumerate(waiters[1 : _MOST_HOLDERS + 1], 2):
        text = f"{other.program.text} waits for locks, too, {other.share_text}"
        yield Fact(f"program_{at}", other.program.name, text)


def _holder_facts(holders: Sequence[_Holder]) -> Iterator[Fact]:
    for at, holder in enumerate(holders[:_MOST_HOLDERS], 1):
        text = (
            f"{holder.program.text} was seen in a {holder.op or 'call'} on that file while others waited for its lock"
        )
        yield Fact(f"holder_{at}", holder.program.text, text)


def _traced_finding(facts: Facts, locked: _Locked, waiters: Sequence[Sleeper]) -> Finding:
    """Return the finding about traced operations; `waiters`: the programs that were seen waiting there."""
    its = locked.file_system
    name = f"{its.device}: " if its.device else ""
    slow = [
        operation
        for operation in facts.file_operations
        if operation.file_system == its
        and operation.op == locked.op
        and operation.split
        and operation.split.wait == LOCK
    ]
    waiters = [waiter for waiter in waiters if traced_op(waiter.op) in ("", locked.op)]
    waiter = waiters[0] if waiters else None
    path = _file_of(slow) or (waiter.file if waiter is not None else "")
    holders = _sampled_holders(facts, waiter) if waiter is not None else []
    of = f" of {path}" if path else f" on files of {its.mount}"
    whose = f"{waiter.program.text}'s " if waiter is not None else ""
    mean = spelled(locked.row.latency.mean or 0)
    time = f", {mean} each" if waiter is not None else ""
    return Finding(
        id=ID,
        severity=WARNING,
        device=its.device,
        summary=f"{name}{whose}{locked.op}s{of} wait for a lock {part(locked.share(LOCK))} of their time{time}, "
        "for I/O of "
        f"their own {part(locked.share(OWN_IO))}{_held_by(waiter, holders) if waiter is not None else ''}",
        facts=(*_facts(facts, locked), *_sleep_facts(slow, path, waiters), *_holder_facts(holders)),
        where=Where("files", its.device),
        steps=tuple(_steps(locked, slow, waiter, holders)),
        refuted_by=_REFUTED,
        share=locked.share(LOCK),
        short=_short(its.device, waiter, mean, holders)
        if waiter is not None
        else short_text(
            its.device,
            f"{locked.op}s wait for a lock {part(locked.share(LOCK))} of their time",
            ", not for the disk",
        ),
        explained_by=_behind_journal(facts, its, locked.us, None if waiter is None else _names(waiter, holders)),
    )


def _file_of(slow: Sequence[FileOperation]) -> str:
    """Return the path of the file that half or more of the slow operations are on; empty where there is none."""
    paths = Counter(
        whole_path(operation.file_system.mount, operation.path)
        for operation in slow
        if operation.path not in ("", LOST_PATH)
    )
    path, operations = max(paths.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return path if operations * 2 >= len(slow) else ""


def _facts(facts: Facts, locked: _Locked) -> Iterator[Fact]:
    its, row = locked.file_system, locked.row
    yield Fact("mount", its.mount, f"file system: {its.mount}, {its.kind or 'of a type that is not known'}")
    yield from split_facts(locked.parts, f"{locked.op}s")
    yield from nfs_facts(facts, its.mount)
    text = f"{locked.waiting:.2g} threads waited for a lock at a time, on average"
    yield Fact("waiting", round(locked.waiting, 2), text)
    own_us = row.parts.get(OWN_IO, 0) / max(row.latency.count, 1)
    yield from duration_facts(
        ("mean_us", row.latency.mean, f"a {row.op} takes {{}} on average", row.latency.count),
        ("own_us", own_us, f"of it {{}} are I/O of its own, on {its.device or 'no local device'}", row.latency.count),
        ("p99_us", row.latency.quantile(0.99), f"p99 of a {row.op}: {{}}", row.latency.count),
    )


def _sleep_facts(slow: Sequence[FileOperation], path: str, waiters: Sequence[Sleeper]) -> Iterator[Fact]:
    slow_here = sum(whole_path(operation.file_system.mount, operation.path) == path for operation in slow)
    if path and slow_here:
        yield Fact("file", path, f"{slow_here:,} of {counted(len(slow), 'slow operation')} in a lock are on {path}")
    elif path:
        yield _file_fact(waiters[0])
    chains = Counter(operation.split.functions for operation in slow if operation.split and operation.split.functions)
    for chain, _ in chains.most_common(1):
        yield Fact("functions", chain, f"they sleep in {chain}")
    if held := _holders(slow):
        yield Fact("holders", held, f"who had the file's lock as the longest waits began: {held}")
    yield from _other_facts(waiters)


def _holders(slow: Sequence[FileOperation]) -> str:
    """Return who had the locks, `python3 (16 threads)`; empty where that is not known."""
    threads: dict[str, set[int]] = {}
    waits = Counter[str]()
    for operation in slow:
        if operation.split is not None and operation.split.holder:
            threads.setdefault(operation.split.holder, set()).add(operation.split.holder_thread)
            waits[operation.split.holder] += 1
    return ", ".join(
        f"{name} ({counted(len(threads[name]), 'thread')})" for name, _ in waits.most_common(_MOST_HOLDERS)
    )


def _steps(
    locked: _Locked, slow: Sequence[FileOperation], waiter: Sleeper | None, holders: Sequence[_Holder]
) -> Iterator[Step]:
    yield Step("see the operations that wait, and for how long each has I/O of its own: screen 2, key F")
    users = {operation.comm for operation in slow}
    others = {
        operation.split.holder for operation in slow if operation.split is not None and operation.split.holder
    } - users
    if waiter is not None:
        others |= {holder.program.name for holder in holders if _is_other(holder, waiter)}
    yield from _steps_of(locked.op, sorted(others))


def _steps_of(op: str, others: Sequence[str]) -> Iterator[Step]:
    """Yield what to do about operations of one kind; `others`: the programs that have the lock, but the waiting one."""
    if others:
        yield Step(f"find out what {', '.join(others[:_MOST_HOLDERS])} does with the file while others wait")
    if op == "rename":
        yield _RENAMES
        return
    if op in _IN_DIRECTORIES:
        yield Step("spread the files over several directories: each has a lock of its own", "paths change")
        return
    if op == "read":
        yield Step(
            "let what writes the file write aligned blocks, or a copy that takes its place at the end: readers wait as "
            "long as a write has the file's lock, and a write of part of a block reads it first (xfs: reads wait, too; "
            "ext4: only writes and direct I/O)",
            "a change of the program that writes",
        )
        return
    yield Step(
        "let one thread write for the others, with one sync for several changes (group commit), or give each thread a "
        "file of its own",
        "a change of the program: its configuration may have it",
    )
    yield Step(
        "write with O_DIRECT into a file that was written once before: ext4 and xfs let aligned writes inside of it go "
        "on side by side",
        "reads and writes of the file then bypass the page cache, also where that was faster",
    )


RULE = Rule(
    ID,
    "programs wait for a lock of a file or a file system, not for the disk",
    evaluate,
    needs=FILE_TIMES,
    thresholds={
        "share": Threshold(0.5, "share", "of the time of one kind of operation on the file system's files at least"),
        "waiting": Threshold(0.2, "share", "of the time is waited for locks at least, all threads together"),
        "waited_us": Threshold(2_000_000, "us", "are waited for them at least, of the last minute"),
        "slow_us": Threshold(1_000, "us", "p99 of the operation at least; on average, where it is not traced"),
        "lasting_us": Threshold(8_000_000, "us", "a program waits so at least, where it is not traced"),
    },
)
