"""not-the-disk: programs wait for a lock, not for the disk.

Half of the time of all operations on the files of a file system, or more, passes in sleeps without I/O of the thread's
own in a lock: of a file that many threads write, of a directory, or of the file system. The operations are slow, and
the device may be as well: both shares are in the finding. No finding: threads that wait for their own I/O, for the
journal, or for a server; a lock that costs little of the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.analysis.attribution import FileRow, file_rows, whole_path
from latmon.findings.evidence import nfs_facts, split_facts
from latmon.findings.facts import Facts
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
)
from latmon.model import measurements
from latmon.model.frame import LOCK, LOST_PATH, OWN_IO, PATH_OPS, FileOperation, FileSystem
from latmon.support.units import counted, part

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


class _Locked(NamedTuple):
    """The operations on the files of a file system in the window."""

    file_system: FileSystem
    rows: Sequence[FileRow]
    us: int
    """Their time."""
    op: str
    """The op that waits longest for locks."""
    parts: Counter[str]

    def share(self, name: str) -> float:
        """Return the share of a part, 0..1."""
        return min(1.0, self.parts[name] / self.us)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about its file system whose programs waited longest for locks."""
    by_file_system: dict[FileSystem, list[FileRow]] = {}
    for row in file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES]):
        by_file_system.setdefault(row.file_system, []).append(row)
    found: dict[str, _Locked] = {}
    for its, rows in by_file_system.items():
        locked = _locked(its, rows)
        if locked is None or not _is_slow(facts, locked, limits):
            continue
        if its.device not in found or locked.parts[LOCK] > found[its.device].parts[LOCK]:
            found[its.device] = locked
    return [_finding(facts, found[device]) for device in sorted(found)]


def _locked(its: FileSystem, rows: Sequence[FileRow]) -> _Locked | None:
    """Return the operations of a file system; None where none waited for a lock, or their time isn't known."""
    by_op = {row.op: row.parts.get(LOCK, 0) for row in rows}
    if not any(by_op.values()) or any(row.latency.sum is None for row in rows):
        return None
    parts = Counter[str]()
    for row in rows:
        parts.update(row.all_parts)
    return _Locked(its, rows, parts.total(), max(by_op, key=lambda op: by_op[op]), parts)


def _is_slow(facts: Facts, locked: _Locked, limits: Thresholds) -> bool:
    slow_us = next(row.latency.quantile(0.99) for row in locked.rows if row.op == locked.op)
    return (
        locked.share(LOCK) >= limits["share"]
        and bool(facts.span_us)
        and locked.parts[LOCK] / facts.span_us >= limits["waiting"]
        and (slow_us or 0) >= limits["slow_us"]
    )


def _finding(facts: Facts, locked: _Locked) -> Finding:
    its = locked.file_system
    name = f"{its.device}: " if its.device else ""
    slow = [
        operation
        for operation in facts.file_operations
        if operation.file_system == its and operation.split and operation.split.wait == LOCK
    ]
    path = _file_of(slow)
    of = f" of {path}" if path else f" on files of {its.mount}"
    return Finding(
        ID,
        WARNING,
        its.device,
        f"{name}{locked.op}s{of} wait for a lock {part(locked.share(LOCK))} of their time, for I/O of their own "
        f"{part(locked.share(OWN_IO))}",
        tuple(_facts(facts, locked, slow, path)),
        Where("files", its.device),
        tuple(_steps(locked, slow)),
        _REFUTED,
        locked.share(LOCK),
        short=short_text(
            its.device,
            f"{locked.op}s wait for a lock {part(locked.share(LOCK))} of their time",
            ", not for the disk",
        ),
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


def _facts(facts: Facts, locked: _Locked, slow: Sequence[FileOperation], path: str) -> Iterator[Fact]:
    its = locked.file_system
    yield Fact("mount", its.mount, f"file system: {its.mount}, {its.kind or 'of a type that is not known'}")
    yield from split_facts(locked.parts, "operations")
    yield from nfs_facts(facts, its.mount)
    waiting = locked.parts[LOCK] / facts.span_us
    yield Fact("waiting", round(waiting, 2), f"{waiting:.2g} threads waited for a lock at a time, on average")
    row = next(row for row in locked.rows if row.op == locked.op)
    own_us = row.parts.get(OWN_IO, 0) / max(row.latency.count, 1)
    yield from duration_facts(
        ("mean_us", row.latency.mean, f"a {row.op} takes {{}} on average", row.latency.count),
        ("own_us", own_us, f"of it {{}} are I/O of its own, on {its.device or 'no local device'}", row.latency.count),
        ("p99_us", row.latency.quantile(0.99), f"p99 of a {row.op}: {{}}", row.latency.count),
    )
    if path:
        here = sum(whole_path(operation.file_system.mount, operation.path) == path for operation in slow)
        yield Fact("file", path, f"{here:,} of {counted(len(slow), 'slow operation')} in a lock are on {path}")
    chains = Counter(operation.split.functions for operation in slow if operation.split and operation.split.functions)
    for chain, _ in chains.most_common(1):
        yield Fact("functions", chain, f"they sleep in {chain}")
    if held := _holders(slow):
        yield Fact("holders", held, f"who had the file's lock as the longest waits began: {held}")


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


def _steps(locked: _Locked, slow: Sequence[FileOperation]) -> Iterator[Step]:
    yield Step("see the operations that wait, and for how long each has I/O of its own: screen 2, key F")
    users = {operation.comm for operation in slow}
    others = {
        operation.split.holder for operation in slow if operation.split is not None and operation.split.holder
    } - users
    if others:
        yield Step(f"find out what {', '.join(sorted(others)[:_MOST_HOLDERS])} does with the file while others wait")
    if locked.op == "rename":
        yield _RENAMES
        return
    if locked.op == "open" or locked.op in PATH_OPS:
        yield Step("spread the files over several directories: each has a lock of its own", "paths change")
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
        "share": Threshold(0.5, "share", "of the time of all operations on the file system's files at least"),
        "waiting": Threshold(0.2, "share", "of the window is waited for locks at least, all threads together"),
        "slow_us": Threshold(1_000, "us", "p99 of the operation that waits longest for locks, at least"),
    },
)
