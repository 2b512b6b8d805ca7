"""slow-server: programs wait for the server of a file system (FUSE, NFS, SMB, Ceph, 9P), which answers slowly.

No device of the host is slow then, and none may be busy. Threads that wait for a server are seen by looks at the kernel
functions in which they sleep; those make the tracer follow operations on files, which has the operation and the mount.
Of NFS the client's own counters have them without a tracer. No finding: a server that is fast; one that is silent,
which is hung-file-system: the time of an operation that has not returned is none of slow ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from latmon.analysis.attribution import FileRow, file_rows, nfs_rows
from latmon.findings.evidence import disk_facts, host_before, nfs_facts
from latmon.findings.facts import Block, Facts
from latmon.findings.hangs import server_of, stuck_until_us
from latmon.findings.programs import by_program
from latmon.findings.rule import (
    SERVERS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    plain,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.frame import SERVER, FileSystem
from latmon.model.measurements.server_waits import ServerWait, WaitedTime
from latmon.support.text import path_end
from latmon.support.units import part, spelled

ID = "slow-server"
_OF_PAGE_CACHE = frozenset(("WRITE", "COMMIT"))
"""NFS operations that the kernel calls for the page cache: no program waits for them, unless it calls fsync or writes
with O_SYNC, which are operations on files."""
_COMPARABLE = 0.25
"""Least part of the time of NFS calls in which programs were seen waiting, where looks could see that: the first look
at a thread is one of a walk over all threads, which may be 12 s apart."""
_SHORT_PATH, _SHORT_NAME = 14, 12
"""Cells of a mount and of a program's name in the short text."""
_REFUTED = "the same operation by hand, such as stat or head on a file of the mount, returns at once meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slow:
    """Operations that wait for a server."""

    mount: str
    """As tables have it, in a fleet with the host in front."""
    host: str
    """`HOST:` in a fleet, else empty."""
    kind: str
    op: str
    """As a noun, such as open; empty: not known."""
    mean_us: float
    """Of an operation; where the op isn't known, of a wait."""
    waited_us: int
    """Of all threads together."""
    span_us: int
    """The time in which that was measured."""
    is_estimate: bool = False
    """Whether `mean_us` is an estimate by looks."""
    rows: Sequence[FileRow] = ()
    """The traced operations on the mount."""

    @property
    def path(self) -> str:
        """Return the mount on its host; empty where it is not known."""
        return self.mount.removeprefix(self.host)

    @property
    def waiting(self) -> float:
        """Return the threads that wait at a time, on average."""
        return self.waited_us / max(self.span_us, 1)

    @property
    def row(self) -> FileRow | None:
        return next((row for row in self.rows if row.op == self.op), None)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per mount, and one for waits of which the mount isn't known, if no other explains them."""
    slow: dict[str, _Slow] = {}
    for operations in (*_traced(facts), *_of_nfs(facts), *_sampled(facts)):
        is_slow = operations.mean_us >= limits["slow_us"] and operations.waiting >= limits["waiting"]
        is_much = operations.waited_us >= limits["waited_us"]
        if is_slow and is_much and operations.mount not in slow:
            slow[operations.mount] = operations
    known = {operations.host for operations in slow.values() if operations.path}
    shown = [operations for operations in slow.values() if operations.path or operations.host not in known]
    return [_finding(facts, operations) for operations in sorted(shown, key=lambda operations: operations.mount)]


def _traced(facts: Facts) -> Iterator[_Slow]:
    """Yield the op of each mount that waits longest for a server, where that is half of its time or more."""
    span_us = facts.lasted_us(_has_files)
    by_mount: dict[FileSystem, list[FileRow]] = {}
    for row in file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES]):
        by_mount.setdefault(row.file_system, []).append(row)
    for file_system, rows in by_mount.items():
        row = max(rows, key=lambda row: row.parts.get(SERVER, 0))
        server_us, latency_us = row.parts.get(SERVER, 0), row.latency.sum
        if not server_us or not latency_us or 2 * server_us < latency_us:
            continue
        yield _Slow(
            mount=file_system.mount,
            host=host_before(facts, file_system.mount),
            kind=file_system.kind,
            op=row.op,
            mean_us=row.latency.mean or 0,
            waited_us=min(server_us, latency_us),
            span_us=span_us,
            rows=rows,
        )


def _has_files(block: Block) -> bool:
    return bool(block[measurements.FILES])


def _of_nfs(facts: Facts) -> Iterator[_Slow]:
    """Yield the NFS operation of each mount with most time, where programs wait for them."""
    is_sampled = measurements.HUNG_OPERATIONS.name in facts.origin.counted
    waited_us = Counter[str]()
    for row, waited in facts[measurements.SERVER_WAITS].items():
        if row.kind.startswith("nfs"):
            waited_us[row.mount] += waited.waited_us
    for operation, calls in nfs_rows(facts[measurements.NFS_OPERATIONS]):
        if operation.op in _OF_PAGE_CACHE:
            continue
        if is_sampled and waited_us[operation.mount] < _COMPARABLE * calls.execute_us:
            continue  # such as reads ahead
        yield _Slow(
            mount=operation.mount,
            host=host_before(facts, operation.mount),
            kind="nfs",
            op=operation.op,
            mean_us=calls.execute_mean_us,
            waited_us=calls.execute_us,
            span_us=facts.span_us,
        )


def _sampled(facts: Facts) -> Iterator[_Slow]:
    """Yield the waits that looks at threads have seen, by mount, or by kind where the mount isn't known."""
    waits: dict[tuple[str, str], list[WaitedTime]] = {}
    for row in facts[measurements.SERVER_WAITS]:
        ends_us = stuck_until_us(facts, row.mount, row.process)
        times = [
            block[measurements.SERVER_WAITS][row]
            for block in facts.window
            if row in block[measurements.SERVER_WAITS] and block.end_us not in ends_us
        ]
        waits.setdefault((row.mount, row.kind), []).extend(times)
    for (mount, kind), times in waits.items():
        waited_us, sleeps = sum(time.waited_us for time in times), sum(time.sleeps for time in times)
        if sleeps:  # else it is silent
            mean_us = WaitedTime(waited_us, sleeps).mean_us
            yield _Slow(
                mount=mount,
                host=host_before(facts, mount),
                kind=kind,
                op="",
                mean_us=mean_us,
                waited_us=waited_us,
                span_us=facts.span_us,
                is_estimate=True,
            )


def _finding(facts: Facts, slow: _Slow) -> Finding:
    programs = _programs(facts, slow)
    server = server_of(facts, slow.mount)
    where = f"{slow.path} ({slow.kind})" if slow.path else f"a {slow.kind} file system"
    time = f"{'about ' if slow.is_estimate else ''}{spelled(slow.mean_us)}"
    who = f"{programs[0]} waits" if programs else "programs wait"
    of_server = f" ({server})" if server else ""
    before = f"{slow.host} " if slow.host else ""
    each = f"for each {slow.op}" if slow.op.islower() else f"for each {slow.op} call" if slow.op else "each time"
    share = "" if slow.row is None else f"{part(slow.row.part_share(SERVER) or 0)} of it "
    return Finding(
        id=ID,
        severity=WARNING,
        device=slow.host,
        summary=f"{before}{who} {time} {each} on {where}, {share}for its server{of_server}, not for a disk",
        facts=tuple(_facts(facts, slow, server, programs)),
        where=Where("files" if slow.rows else "overview", slow.host),
        steps=tuple(_steps(slow, server)),
        refuted_by=_REFUTED,
        share=min(1.0, slow.waiting),
        short=_short(slow, server, programs),
        state=(slow.mount, ""),
    )


def _short(slow: _Slow, server: str, programs: Sequence[str]) -> str:
    """Return the short text: the verdict has 50 cells at most."""
    where = path_end(slow.path, _SHORT_PATH) or f"a {slow.kind} mount"
    ops = f"{slow.op}s" if slow.op.islower() else f"{within(slow.op, _SHORT_NAME)} calls" if slow.op else "operations"
    about = "about " if slow.is_estimate else ""
    clauses = [f": server {within(server, _SHORT_NAME)}"] if server else []
    if programs:
        clauses.append(f", {within(programs[0].partition(' (')[0], _SHORT_NAME)} waits")
    clauses.append(", not the disk")
    return short_text(
        slow.host.removesuffix(HOST_SEPARATOR),
        f"{ops} on {where} take {about}{spelled(slow.mean_us)}",
        *clauses,
    )


def _programs(facts: Facts, slow: _Slow) -> list[str]:
    """Return the programs that wait, those with most time first: by the slow operations, else by the looks."""
    waited = Counter[str]()
    for operation in facts.file_operations:
        if operation.file_system.mount == slow.mount and operation.op == slow.op and operation.comm:
            waited[f"{operation.comm}/{operation.pid or ''}"] += operation.total_us
    if not waited:
        for row, time in facts[measurements.SERVER_WAITS].items():
            if _may_be_on(row, slow):
                waited[row.process] += time.waited_us
    programs = by_program(waited.items())
    return [program.text for program in sorted(programs, key=lambda program: -sum(programs[program]))]


def _may_be_on(row: ServerWait, slow: _Slow) -> bool:
    return row.mount == slow.mount or (row.mount == slow.host and slow.kind.partition(".")[0].startswith(row.kind))


def _facts(facts: Facts, slow: _Slow, server: str, programs: Sequence[str]) -> Iterator[Fact]:
    if slow.path:
        yield Fact("mount", slow.path, f"file system: {slow.path}, {slow.kind}")
    else:
        text = f"which {slow.kind} file system it is, is not known: the calls that wait have paths, no open files"
        yield Fact("mount", "", text)
    if server:
        yield Fact("server", server, f"the process {server} serves it")
    row = slow.row
    if row is not None:
        yield from duration_facts(
            ("mean_us", row.latency.mean, f"a {row.op} takes {{}} on average", row.latency.count),
            ("p99_us", row.latency.quantile(0.99), f"p99 of a {row.op}: {{}}", row.latency.count),
        )
        share = row.part_share(SERVER) or 0
        yield Fact("server_share", round(share, 3), f"asleep for the server: {part(share)} of its time", "share")
    yield Fact("waiting", round(slow.waiting, 2), f"{slow.waiting:.2g} threads wait at a time, on average")
    for other in slow.rows:
        if other.op != slow.op:
            text = f"a {other.op} there takes {{}} on average"
            yield from duration_facts((f"{other.op}_us", other.latency.mean, text, other.latency.count))
    for at, program in enumerate(programs[1:4], 2):
        yield Fact(f"program_{at}", program, f"{program} waits, too")
    yield from nfs_facts(facts, slow.mount)
    yield from disk_facts(facts, slow.host)


def _steps(slow: _Slow, server: str) -> Iterator[Step]:
    if slow.rows:
        yield Step("see the slow operations with their files and programs: screen 2, key F")
    if slow.kind.startswith("fuse"):
        name = server if plain(server) else "SERVER"
        yield Step(
            "see what the process that serves it waits for: its network, its own disk, a lock, one thread for all",
            commands=(f"ps -eLo pid,tid,stat,wchan:24,comm | grep -w {name}",),
        )
    elif slow.kind.startswith("nfs"):
        yield Step(
            "separate network and server: round trips are of both, and ping of the network",
            commands=("nfsstat -c", "nfsiostat 5 2"),
        )
    else:
        yield Step("see whether the network or the server is slow", commands=("dmesg | tail -n 50",))
    yield Step(
        "let the program ask less often: keep files open, cache what it opens and stats; or let the mount cache "
        "attributes and entries for longer (FUSE: attr_timeout, entry_timeout; NFS: actimeo)",
        "changes by other hosts are seen later",
    )


RULE = Rule(
    ID,
    "programs wait for the server of a file system (FUSE, NFS, SMB, Ceph, 9P), which answers slowly",
    evaluate,
    needs=SERVERS,
    thresholds={
        "slow_us": Threshold(50_000, "us", "an operation takes at least, on average"),
        "waiting": Threshold(0.2, "share", "of the time programs wait for the server at least, all threads together"),
        "waited_us": Threshold(2_000_000, "us", "they wait at least, of the last minute"),
    },
)
