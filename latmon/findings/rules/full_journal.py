"""full-journal: operations that change files wait for a file system's journal: for room in it, or for a transaction.

A create, a chown, a rename or a write that grows a file puts blocks into the journal (jbd2 of ext4, the log of xfs),
also without a sync. Where the journal is full, an operation waits until older changes are written to their places, by a
checkpoint that it may have to make itself: those I/Os then seem to be its own. Who waits need not be who fills it. A
journal is small for what is changed, or the device is slow. No finding: waits for syncs, which are slow-journal; a
journal that commits well, short waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.analysis.attribution import FileRow, file_rows
from latmon.findings.facts import Facts
from latmon.findings.file_sleeps import Sleeper, sleepers, traced_op
from latmon.findings.hangs import is_known_mount
from latmon.findings.programs import Program, by_program
from latmon.findings.rule import (
    PLAIN_PATH,
    SLEEPS,
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
from latmon.model.frame import JOURNAL, LOCK, FileSystem
from latmon.model.measurements.file_sleeps import LOG_SPACE, JournalOf
from latmon.support.units import part, show_size, spelled

ID = "full-journal"
_SYNCS = frozenset(("fsync", "sync"))
_ROOM = 0.2
"""Share of the waits for a journal that are for room in it, from which on it is full."""
_WRITES_MOST = 0.5
"""Share of the journal's blocks, or times as many sleeps as the others have, from which on a program is named."""
_SMALL_BYTES = 64 << 20
"""mke2fs makes journals of 64 MiB from file systems of 16 GiB on (misc/util.c figure_journal_size())."""
_MOST_PROGRAMS = 3
_NAME_CELLS = 12
_XFS = "xfs"
_JBD2 = frozenset(("ext3", "ext4", "ocfs2"))
"""File systems whose blocks in a journal are counted by process."""
_REFUTED = "the operations are as slow while no other program changes files of the file system"


class _Writer(NamedTuple):
    """The program that fills the journal."""

    program: Program
    share: float | None
    """Of the blocks in it; None: they were not counted, and it changes files more often than others that wait."""


class _Full(NamedTuple):
    """A journal that programs wait for."""

    file_system: FileSystem
    waiters: Sequence[Sleeper]
    """The programs that wait longest at a time come first."""
    size_bytes: int
    """0: not known."""
    writer: _Writer | None
    rows: Sequence[FileRow]
    """Traced operations on its files."""

    @property
    def waiter(self) -> Sleeper:
        return self.waiters[0]

    @property
    def is_full(self) -> bool:
        """Whether the waits are for room in it."""
        room_us = sum(waiter.cause_us[LOG_SPACE] for waiter in self.waiters)
        return room_us >= _ROOM * sum(waiter.waited_us for waiter in self.waiters)

    @property
    def name(self) -> str:
        return "log" if self.file_system.kind == _XFS else "journal"

    @property
    def row(self) -> FileRow | None:
        """Return the traced operation in which the program waits most."""
        return next((row for row in self.rows if row.op == traced_op(self.waiter.op)), None)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per file system whose journal programs wait for."""
    by_file_system: dict[FileSystem, list[Sleeper]] = {}
    for sleeper in sleepers(facts, (JOURNAL, LOG_SPACE), limits["waiting"], _SYNCS):
        by_file_system.setdefault(sleeper.file_system, []).append(sleeper)
    findings: dict[str, Finding] = {}
    for file_system, all_waiters in by_file_system.items():
        waiters = [waiter for waiter in all_waiters if _waits_long(waiter, limits)]
        if waiters and file_system.device not in findings:
            findings[file_system.device] = _finding(facts, _full(facts, file_system, waiters, all_waiters))
    return [findings[device] for device in sorted(findings)]


def _waits_long(waiter: Sleeper, limits: Thresholds) -> bool:
    return (
        waiter.lasted_us >= limits["lasting_us"]
        and waiter.waited_us >= limits["waited_us"]
        and waiter.mean_us >= limits["slow_us"]
    )


def _full(facts: Facts, file_system: FileSystem, waiters: Sequence[Sleeper], all_waiters: Sequence[Sleeper]) -> _Full:
    size = facts[measurements.JOURNAL_SIZES].get(JournalOf(file_system.device, file_system.mount))
    writer = _writer(facts, file_system, all_waiters)
    victims = [waiter for waiter in waiters if writer is None or waiter.program.name != writer.program.name]
    first = max(victims or waiters, key=lambda waiter: (waiter.mean_us, waiter.program))
    others = [waiter for waiter in waiters if waiter is not first]
    rows = [
        row
        for row in file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES])
        if row.file_system.mount == file_system.mount
    ]
    return _Full(file_system, [first, *others], 0 if size is None else size.mean_bytes, writer, rows)


def _writer(facts: Facts, file_system: FileSystem, waiters: Sequence[Sleeper]) -> _Writer | None:
    """Return the program that puts most blocks into the journal; where that isn't known, who waits most often.

    Programs whose names are hidden are one.
    """
    writer = _counted_writer(facts, file_system) if _is_only_journal(facts, file_system) else None
    if writer is None:
        writer = _most_frequent(waiters)
    return writer if writer is not None and writer.program.name else None


def _is_only_journal(facts: Facts, file_system: FileSystem) -> bool:
    """Return whether no other journal is known on the device: blocks are counted by device, not by journal."""
    known = (
        *((row.device, row.kind, row.mount) for row in facts[measurements.FILE_SYSTEM_SPACE]),
        *((row.device, row.kind, row.mount) for row in facts[measurements.FILE_SLEEPS]),
        *((row.device, row.kind, row.mount) for row in facts[measurements.FILES]),
    )
    mounts = {
        mount
        for device, kind, mount in known
        if device == file_system.device and kind in _JBD2 and is_known_mount(mount)
    }
    return file_system.kind in _JBD2 and mounts <= {file_system.mount}


def _counted_writer(facts: Facts, file_system: FileSystem) -> _Writer | None:
    rows = facts[measurements.JOURNAL_WRITERS].items()
    blocks = {
        program: sum(counts)
        for program, counts in by_program(
            (row.process, writes.blocks) for row, writes in rows if row.device == file_system.device
        ).items()
    }
    if not sum(blocks.values()):
        return None
    block = max(blocks, key=lambda program: blocks[program])
    share = blocks[block] / sum(blocks.values())
    return _Writer(block, share) if share >= _WRITES_MOST else None


def _most_frequent(waiters: Sequence[Sleeper]) -> _Writer | None:
    sleeps = sorted(waiters, key=lambda waiter: -waiter.sleeps)
    if len(sleeps) > 1 and sum(waiter.sleeps for waiter in sleeps[1:]) <= _WRITES_MOST * sleeps[0].sleeps:
        return _Writer(sleeps[0].program, None)
    return None


def _finding(facts: Facts, full: _Full) -> Finding:
    its, waiter = full.file_system, full.waiter
    before = f"{its.device.removesuffix(':')}: " if its.device else ""
    size = f" ({show_size(full.size_bytes)})" if full.size_bytes else ""
    what = f"room in the {full.name}" if full.is_full else f"a transaction of the {full.name}"
    where = f" on {its.mount}" if is_known_mount(its.mount) else ""
    ops = f"{waiter.op}s" if waiter.op else "operations that change files"
    row = full.row
    time = "" if row is None or row.latency.mean is None else f", which take {spelled(row.latency.mean)} on average"
    return Finding(
        id=ID,
        severity=WARNING,
        device=its.device,
        summary=f"{before}{waiter.program.text} waits {waiter.share_text} for {what}{size} of the "
        f"{its.kind or 'file system'}"
        f"{where}, in its {ops}{time}{_filled_by(full)}",
        facts=tuple(_facts(facts, full)),
        where=Where("files" if full.rows else "overview", its.device),
        steps=tuple(_steps(full)),
        refuted_by=_REFUTED,
        share=min(1.0, waiter.waiting),
        short=_short(full),
    )


def _filled_by(full: _Full) -> str:
    """Return who fills the journal, as the end of a sentence."""
    writer = full.writer
    if writer is None:
        return ""
    who = "it" if writer.program.name == full.waiter.program.name else writer.program.text
    if writer.share is not None:
        return f"; {who} writes {part(writer.share)} of what is in it"
    return f"; {who} changes files there most often"


def _short(full: _Full) -> str:
    writer = full.writer
    size = f" ({show_size(full.size_bytes)})" if full.size_bytes else ""
    name = within(full.waiter.program.name or "a program", _NAME_CELLS)
    state = f": full{size}" if full.is_full else size
    clauses = []
    if writer is not None and writer.program.name != full.waiter.program.name:
        clauses.append(f", {within(writer.program.name, _NAME_CELLS)} fills it")
    clauses.append(f", {full.waiter.share_text}")
    device = full.file_system.device.removesuffix(":")
    return short_text(device, f"{name} waits for the {full.name}{state}", *clauses)


def _facts(facts: Facts, full: _Full) -> Iterator[Fact]:
    its, waiter = full.file_system, full.waiter
    if is_known_mount(its.mount):
        placed = "; its calls have paths, and are taken to be there as others are" if waiter.is_placed else ""
        yield Fact("mount", its.mount, f"file system: {its.mount}, {its.kind or 'of a type that is not known'}{placed}")
    if full.size_bytes:
        text = f"its {full.name} has {show_size(full.size_bytes)}"
        yield Fact("journal_bytes", full.size_bytes, text, "bytes")
    for sleeper in full.waiters[:_MOST_PROGRAMS]:
        text = f"{sleeper.program.text} waits for the {full.name} {sleeper.share_text}, {{}} or more each time"
        yield from duration_facts((f"{sleeper.program.name}_us", round(sleeper.mean_us), text, sleeper.sleeps))
    room_us = sum(sleeper.cause_us[LOG_SPACE] for sleeper in full.waiters)
    share = room_us / max(sum(sleeper.waited_us for sleeper in full.waiters), 1)
    text = f"{part(share)} of these waits are for room, until older changes are written to their places (a checkpoint)"
    yield Fact("room_share", round(share, 3), text, "share")
    for sleeper in sleepers(facts, (LOCK,), 0.0):
        if sleeper.program == waiter.program and sleeper.file_system == its:
            text = f"its other threads wait for locks meanwhile, such as that of a directory, {sleeper.share_text}"
            yield Fact("locks", round(sleeper.waiting, 2), text)
    yield from _device_facts(facts, full)


def _device_facts(facts: Facts, full: _Full) -> Iterator[Fact]:
    device = full.file_system.device
    latency = facts.latency(device, "write") if device else None
    if latency:
        yield from duration_facts(
            ("write_us", latency.mean, f"a write of {device} takes {{}} on average", latency.count)
        )
    row = full.row
    if row is not None:
        p99 = row.latency.quantile(0.99)
        yield from duration_facts(("p99_us", p99, f"p99 of a {row.op} there: {{}}", row.latency.count))


def _steps(full: _Full) -> Iterator[Step]:
    mount, kind, _ = full.file_system
    find = (f"findmnt -no SOURCE {mount}",) if PLAIN_PATH.fullmatch(mount) else ()
    yield Step(
        "see which threads wait for it, and who changes files",
        commands=("grep -l -E 'jbd2_|start_this_handle|xlog_' /proc/[0-9]*/task/*/stack 2>/dev/null",),
    )
    if full.writer is not None:
        yield Step(
            f"let {full.writer.program.text} change fewer files at a time, or later: with pauses, in a cgroup with a "
            "limit of its own, or only those files that need it",
            f"{full.writer.program.text} takes longer",
        )
    if kind == _XFS:
        yield Step(
            "make the file system again with a larger log (mkfs.xfs -l size=), or one on another device (-l logdev=)",
            "the files are copied, and the file system is not there meanwhile",
        )
        return
    is_small = 0 < full.size_bytes < _SMALL_BYTES
    yield Step(
        f"give it a larger journal{', of 128 MB or more' if is_small else ''}: it is removed and made again while the "
        "file system is not mounted",
        "without a journal a crash in between can lose the file system: check it (e2fsck -f) before and after",
        (*find, "tune2fs -O ^has_journal DEVICE", "tune2fs -J size=128 DEVICE"),
    )
    yield Step(
        "put the journal on another, fast device (mke2fs -O journal_dev, tune2fs -J device=)",
        "the file system needs both devices from then on",
    )


RULE = Rule(
    ID,
    "programs wait for a file system's journal in operations that change files: for room in it, or for a transaction",
    evaluate,
    needs=SLEEPS,
    thresholds={
        "waiting": Threshold(
            0.2, "share", "of the time a program waits for the journal at least, all its threads together"
        ),
        "waited_us": Threshold(2_000_000, "us", "it waits at least, of the last minute"),
        "lasting_us": Threshold(8_000_000, "us", "it waits so at least"),
        "slow_us": Threshold(2_000, "us", "a wait takes at least, on average"),
    },
    explained_by=("swap-thrash",),
)
