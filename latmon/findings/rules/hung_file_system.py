"""hung-file-system: programs hang in operations on files, because the file system is frozen or its server is silent.

A frozen file system (fsfreeze, a snapshot of LVM, of a backup or of a hypervisor's guest agent) lets all writers sleep
until it is thawed: no device is busy, and no latency of a device shows it. A server of FUSE, NFS, SMB, Ceph or 9P that
does not answer looks alike: the operation, the mount and the process that serves it are named, as far as they are
known. No finding: a freeze of a second, as for a snapshot; a server that answers slowly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from latmon.findings.evidence import disk_facts, nfs_facts
from latmon.findings.facts import Block, Facts
from latmon.findings.hangs import file_system_of, is_known_mount, server_of, unbroken
from latmon.findings.programs import by_program
from latmon.findings.rule import (
    CRITICAL,
    HANGS,
    PATH_CELLS,
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
    plain,
    short_text,
    within,
)
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.frame import FROZEN, SERVER, FileSystem
from latmon.model.measurements import FILE_SERVERS, FILE_SLEEPS, HUNG_OPERATIONS, NFS_REQUESTS
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.model.measurements.nfs import NfsMount
from latmon.support.text import path_end
from latmon.support.units import clock, counted, spelled

ID = "hung-file-system"
_MOST_PROGRAMS = 4
_MOST_CANDIDATES = 3
"""So many mounts are named where it isn't known which one it is."""
_SHORT_PATH, _NAME_CELLS = 14, 12
"""Cells of a mount, beside its server, and of a program's name in the short text."""
_LEAST_TIMES = 3
"""Freezes within the window: two may be a snapshot and its backup."""
_REFUTED = {
    True: "another program writes to the file system meanwhile, or its writers don't sleep in percpu_rwsem_wait",
    False: "another program reads a file of the mount that is not in the page cache",
}


_Subject = tuple[str, str, str, str]
"""A HungOperation without its process."""


class _Hung(NamedTuple):
    """A file system on which operations hang, with the sums of the blocks in which they do."""

    file_system: FileSystem
    is_frozen: bool
    lasted_us: int
    threads_us: int
    rows: Sequence[tuple[str, HungTime]]
    """The processes that wait, NAME/PID, those with most time first."""
    ios: int | None
    """I/Os that its device completed in the last block; None: not counted."""
    began_us: int | None = None
    """When it began, as far as looks tell; None: before the window."""
    times: int = 1
    """How often it was frozen within `window_us`; 1: without a break."""
    window_us: int = 0

    @property
    def threads(self) -> float:
        """Return how many threads wait, on average."""
        return self.threads_us / self.lasted_us

    @property
    def is_repeated(self) -> bool:
        """Whether operations hung several times, each time shortly."""
        return self.times > 1


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per server's mount, and per device about the file system on which operations hung longest."""
    longest: dict[tuple[str, str], _Hung] = {}
    hung_file_systems = [*_lasting(facts, limits), *_repeated(facts, limits)]
    are_known = {hung.is_frozen for hung in hung_file_systems if is_known_mount(hung.file_system.mount)}
    for hung in hung_file_systems:
        file_system = hung.file_system
        if hung.is_frozen in are_known and not is_known_mount(
            file_system.mount
        ):  # most likely calls with paths on that one
            continue
        is_of_device = file_system.device and not file_system.device.endswith(HOST_SEPARATOR)
        key = file_system.device, "" if is_of_device else file_system.mount
        before = longest.get(key)
        if before is None or _weight(hung) > _weight(before):
            longest[key] = hung
    return [_finding(facts, hung, limits) for _, hung in sorted(longest.items())]


def _weight(hung: _Hung) -> tuple[bool, int, int]:
    return not hung.is_repeated, hung.lasted_us, hung.threads_us


def _lasting(facts: Facts, limits: Thresholds) -> Iterator[_Hung]:
    """Yield the file systems on which operations of a process hang now and have done so long enough."""
    longest: dict[_Subject, tuple[int, HungOperation]] = {}
    for row in facts.window[-1][HUNG_OPERATIONS]:
        blocks = unbroken(facts.window, row)
        lasted_us = sum(block[HUNG_OPERATIONS][row].lasted_us for block in blocks)
        if lasted_us >= limits["lasting_us"] and lasted_us > longest.get(row[:-1], (0, row))[0]:
            longest[row[:-1]] = lasted_us, row
    for lasted_us, row in longest.values():
        blocks = unbroken(facts.window, row)
        yield _hung(facts, row, blocks, lasted_us)._replace(began_us=_began_us(facts, row, blocks[-1]))


def _began_us(facts: Facts, row: HungOperation, first: Block) -> int | None:
    """Return when the operations began to hang, by the first block in which they did; None: before the window."""
    time = first[HUNG_OPERATIONS][row]
    return first.end_us - time.lasted_us if time.times or first is not facts.window[0] else None


def _repeated(facts: Facts, limits: Thresholds) -> Iterator[_Hung]:
    """Yield the file systems that were frozen again and again within the window."""
    of_file_systems = {row[:-1]: row for row in facts[HUNG_OPERATIONS]}
    for row in of_file_systems.values():
        if row.cause != FROZEN:  # each slow operation would be a time in which a server is silent
            continue
        blocks = [block for block in facts.window if _alike(block, row)]
        lasted_us = sum(_lasted_us(block, row) for block in blocks)
        times = sum(max(time.times for time in _alike(block, row).values()) for block in blocks)
        if lasted_us >= limits["repeated_us"] and times >= _LEAST_TIMES:
            yield _hung(facts, row, blocks, lasted_us)._replace(
                times=times, window_us=sum(block.span_us for block in facts.window)
            )


def _hung(facts: Facts, row: HungOperation, blocks: Sequence[Block], lasted_us: int) -> _Hung:
    """Return the operations that hang for the cause of a row, on its file system."""
    threads_us = sum(time.threads_us for block in blocks for time in _alike(block, row).values())
    newest = next(block for block in reversed(facts.window) if _alike(block, row))
    rows = sorted(_alike(newest, row).items(), key=lambda pair: -pair[1].threads_us)
    completed = facts.newest(1).completed(row.device) if row.device else None
    ios = None if completed is None else completed.count
    return _Hung(file_system_of(facts, row), row.cause == FROZEN, lasted_us, threads_us, rows, ios)


def _lasted_us(block: Block, row: HungOperation) -> int:
    return max(time.lasted_us for time in _alike(block, row).values())


def _alike(block: Block, row: HungOperation) -> Mapping[str, HungTime]:
    """Return the processes of a block that hang on the same file system for the same cause, NAME/PID -> time."""
    by_subject = block.once("hung operations by subject", lambda: _by_subject(block))
    return by_subject.get(row[:-1], {})


def _by_subject(block: Block) -> dict[_Subject, dict[str, HungTime]]:
    by_subject: dict[_Subject, dict[str, HungTime]] = {}
    for row, time in block[HUNG_OPERATIONS].items():
        by_subject.setdefault(row[:-1], {})[row.process] = time
    return by_subject


def _finding(facts: Facts, hung: _Hung, limits: Thresholds) -> Finding:
    device = hung.file_system.device
    before = f"{device.removesuffix(':')}: " if device else ""  # of a fleet's file system without a disk: HOST:
    where = hung.file_system.mount if is_known_mount(hung.file_system.mount) else "a file system"
    lasted = spelled(hung.lasted_us)
    if hung.is_repeated:
        window = f"{lasted} of the last {spelled(hung.window_us)}"
        effect = f"{where} is frozen again and again: writes waited {window}, not for the device"
        short = [f"frozen again and again, {window}", ": writes wait", f" on {where}"]
    elif hung.is_frozen:
        effect = f"{where} is frozen (fsfreeze, a snapshot) for {lasted}: writes wait, not for the device"
        short = [f"frozen for {lasted}: writes wait", f" on {where}", ", not for the device"]
    else:
        return _silent_finding(facts, hung, limits)
    is_critical = not hung.is_repeated and hung.lasted_us >= limits["critical_us"]
    return Finding(
        id=ID,
        severity=CRITICAL if is_critical else WARNING,
        device=device,
        summary=f"{before}{effect}: {_who(hung)}",
        facts=(
            *_facts(hung),
            *_request_facts(facts, hung.file_system.mount),
            *nfs_facts(facts, hung.file_system.mount),
        ),
        where=Where("overview", device),
        steps=tuple(_steps(hung)),
        refuted_by=_REFUTED[hung.is_frozen],
        share=1.0,
        short=short_text(device, *short),
        state=(hung.file_system.mount, FROZEN if hung.is_frozen else ""),
    )


def _silent_finding(facts: Facts, hung: _Hung, limits: Thresholds) -> Finding:
    """Return the finding about a server that does not answer."""
    mount, kind, device = hung.file_system
    before = f"{device.removesuffix(':')}: " if device else ""
    op, server = _op(facts, hung), server_of(facts, mount)
    began = None if hung.began_us is None else facts.moment(hung.began_us)
    since = clock((began or facts.moment(facts.end_us - hung.lasted_us)).wall)
    if began is None:
        since = f"before {since}"
    is_known = is_known_mount(mount)
    candidates = [] if is_known else _candidates(facts, hung)
    where = (mount if is_known else " or ".join(candidates)) or f"a {kind} mount"
    of_kind = f" ({kind})" if is_known and kind else ""
    programs = list(by_program(hung.rows))
    others = len(programs) - 1
    are = f" and {counted(others, 'other program')} are" if others else " is"
    stuck = f"stuck since {since}, for {spelled(hung.lasted_us)}{' or longer' if began is None else ''}"
    doing = f" in {op}" if op else ""
    silent = f"its server{f' ({server})' if server else ''} does not answer"
    name = within(programs[0].name or "a program", _NAME_CELLS)
    place = path_end(where.rpartition(":")[2] if device else where, _SHORT_PATH if server else PATH_CELLS)
    return Finding(
        id=ID,
        severity=CRITICAL if hung.lasted_us >= limits["critical_us"] else WARNING,
        device=device,
        summary=f"{before}{programs[0].text}{are} {stuck},{doing} on {where}{of_kind}: {silent}",
        facts=(
            *_server_facts(facts, server, candidates),
            *_facts(hung),
            *_request_facts(facts, mount),
            *nfs_facts(facts, mount),
            *disk_facts(facts, device if device.endswith(HOST_SEPARATOR) else ""),
        ),
        where=Where("overview", device),
        steps=tuple(_steps(hung)),
        refuted_by=_REFUTED[False],
        share=1.0,
        short=short_text(
            device.removesuffix(":"),
            f"{name} stuck{doing} on {place} since {since}",
            f": {within(server, _NAME_CELLS)} is silent" if server else ": its server is silent",
        ),
        state=(mount, ""),
        began=began,
    )


def _op(facts: Facts, hung: _Hung) -> str:
    """Return the operation in which the threads of the first program are stuck; empty where it is not known."""
    process = hung.rows[0][0]
    ops = Counter[str]()
    for row, time in facts.window[-1][FILE_SLEEPS].items():
        if row.cause == SERVER and row.process == process and row.mount == hung.file_system.mount and row.op:
            ops[row.op] += time.waited_us
    return max(ops, key=lambda op: (ops[op], op), default="")


def _candidates(facts: Facts, hung: _Hung) -> list[str]:
    """Return the mounts that it may be, of those whose servers are known; none: too many, or none is known."""
    if not hung.file_system.kind.startswith("fuse"):
        return []
    mounts = sorted({row.mount for row in facts[FILE_SERVERS] if row.mount.startswith(hung.file_system.mount)})
    return mounts if len(mounts) <= _MOST_CANDIDATES else []


def _server_facts(facts: Facts, server: str, candidates: Sequence[str]) -> Iterator[Fact]:
    if server:
        yield Fact("server", server, f"the process {server} serves it")
    for at, mount in enumerate(candidates, 1):
        serves = server_of(facts, mount)
        yield Fact(f"mount_{at}", mount, f"it may be {mount}, which {serves or 'a process that is not known'} serves")


def _who(hung: _Hung) -> str:
    programs = list(by_program(hung.rows))
    others = len(programs) - 1
    more = f" and {counted(others, 'other program')}" if others else ""
    waits = "waited" if hung.is_repeated else "wait" if others else "waits"
    return f"{programs[0].text}{more} {waits}"


def _facts(hung: _Hung) -> Iterator[Fact]:
    mount, kind, device = hung.file_system
    if is_known_mount(mount):
        on = f", on {device}" if device and not device.endswith(HOST_SEPARATOR) else ""
        yield Fact("mount", mount, f"file system: {mount}, {kind or 'of a type that is not known'}{on}")
    else:
        yield Fact("mount", "", "which file system it is, is not known: the calls that wait have paths, no open files")
    if hung.is_repeated:
        yield Fact("times", hung.times, f"it was frozen {hung.times} times or more")
        yield from duration_facts(("lasted_us", hung.lasted_us, "operations hung for {} or longer in all", None))
    else:
        yield from duration_facts(("lasted_us", hung.lasted_us, "operations hang for {} or longer", None))
    yield Fact("threads", round(hung.threads, 1), f"{hung.threads:.3g} threads wait, on average")
    for at, (program, times) in enumerate(list(by_program(hung.rows).items())[:_MOST_PROGRAMS], 1):
        us = max(time.lasted_us for time in times)
        text = f"{program.text} waited for {spelled(us)} of the last seconds"
        yield Fact(f"program_{at}", program.name, text)
    if hung.ios is not None:
        yield Fact("ios", hung.ios, f"{device} completed {counted(hung.ios, 'I/O')} in the last seconds", "ios")


def _request_facts(facts: Facts, mount: str) -> Iterator[Fact]:
    """Yield for how long the server of an NFS mount has answered nothing, or that it answers other requests."""
    rows = [block[NFS_REQUESTS].get(NfsMount(mount)) for block in facts.window]
    newest = rows[-1]
    if newest is None:
        return
    if newest.answered:
        requests = counted(newest.answered, "NFS request")
        text = f"the server answers others: {requests} on its connections in the last seconds"
        yield Fact("nfs_answered", newest.answered, text)
        return
    unanswered = list(takewhile(lambda row: row is not None and not row.answered, reversed(rows)))
    silent_us = sum(row.waited_us for row in unanswered if row is not None)
    sent = sum(row.sent for row in unanswered if row is not None)
    text = f"no NFS request on the connections to its server was answered for {{}}; {sent:,} went out in that time"
    yield from duration_facts(("nfs_silent_us", silent_us, text, None))


def _steps(hung: _Hung) -> Iterator[Step]:
    mount, kind, device = hung.file_system
    place = mount if PLAIN_PATH.fullmatch(mount) else "/MOUNT"
    if hung.is_frozen:
        yield Step(
            "find out who froze it: a snapshot of LVM, of a backup, of the hypervisor's guest agent, or a person",
            commands=("ps -eo pid,etime,stat,wchan:20,args | grep -E 'fsfreeze|lv|dmsetup|snap|backup|qemu-ga'",),
        )
        if device.startswith("dm-") and plain(device):
            yield Step(
                "see whether the device is suspended (1), and resume it then",
                "the snapshot that suspended it may be inconsistent",
                (f"cat /sys/block/{device}/dm/suspended", f"dmsetup resume /dev/{device}"),
            )
        yield Step(
            "thaw it",
            "a snapshot that is still being made is not consistent then",
            (f"fsfreeze -u {place}",),
        )
    elif kind.startswith("fuse"):
        yield Step(
            "see what the process does that serves it, and start it again; its connection can be aborted",
            "aborting fails the operations that wait; data that was not written is lost",
            (f"grep ' {place} ' /proc/self/mountinfo", "echo 1 > /sys/fs/fuse/connections/MINOR/abort"),
        )
    else:
        yield Step(
            "see whether its server answers", commands=(f"grep ' {place} ' /proc/self/mountinfo", "dmesg | tail")
        )
        yield Step(
            "let the server run again, or take the mount away from programs that can do without it",
            "programs that wait go on only when the server answers",
            (f"umount -f -l {place}",),
        )


RULE = Rule(
    ID,
    "programs hang in operations on files: the file system is frozen, or its server does not answer",
    evaluate,
    needs=HANGS,
    thresholds={
        "lasting_us": Threshold(5_000_000, "us", "operations hang without a break at least"),
        "critical_us": Threshold(30_000_000, "us", "of that are critical"),
        "repeated_us": Threshold(4_000_000, "us", "of the last minute, writes waited in three freezes or more"),
    },
)
