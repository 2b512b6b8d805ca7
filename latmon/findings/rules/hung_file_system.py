"""hung-file-system: programs hang in operations on files, because the file system is frozen or its server is silent.

A frozen file system (fsfreeze, a snapshot of LVM, of a backup or of a hypervisor's guest agent) lets all writers sleep
until it is thawed: no device is busy, and no latency of a device shows it. A server of FUSE, NFS, SMB, Ceph or 9P that
does not answer looks alike. No finding: a freeze of a second, as for a snapshot; a server that answers slowly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.findings.facts import Block, Facts
from latmon.findings.programs import by_program
from latmon.findings.rule import (
    CRITICAL,
    HANGS,
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
)
from latmon.model.frame import FROZEN, FileSystem
from latmon.model.measurements import HUNG_OPERATIONS
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.support.units import counted, spelled

ID = "hung-file-system"
_PLAIN = re.compile(r"/[\w.@/+:-]*", re.ASCII)
_MOST_PROGRAMS = 4
_REFUTED = {
    True: "another program writes to the file system meanwhile, or its writers don't sleep in percpu_rwsem_wait",
    False: "another program reads a file of the mount that is not in the page cache",
}


class _Hung(NamedTuple):
    """A file system on which operations hang now, with the sums of the blocks since they do."""

    file_system: FileSystem
    is_frozen: bool
    lasted_us: int
    threads_us: int
    rows: Sequence[tuple[str, HungTime]]
    """The processes that wait now, NAME/PID, those with most time first."""
    ios: int | None
    """I/Os that its device completed in the last block; None: not counted."""

    @property
    def threads(self) -> float:
        """Return how many threads wait, on average."""
        return self.threads_us / self.lasted_us


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about its file system on which operations have hung longest."""
    longest: dict[str, _Hung] = {}
    for row in facts.window[-1][HUNG_OPERATIONS]:
        hung = _hung(facts, row)
        before = longest.get(row.device)
        is_longer = before is None or (hung.lasted_us, hung.threads_us) > (before.lasted_us, before.threads_us)
        if hung.lasted_us >= limits["lasting_us"] and is_longer:
            longest[row.device] = hung
    return [_finding(hung, limits) for _, hung in sorted(longest.items())]


def _hung(facts: Facts, row: HungOperation) -> _Hung:
    """Return the operations that hang for the cause of a row, on its file system."""
    lasted_us = threads_us = 0
    for block in reversed(facts.window):
        times = [time for _, time in _alike(block, row)]
        if not times:
            break
        lasted_us += max(time.lasted_us for time in times)
        threads_us += sum(time.threads_us for time in times)
    now = sorted(_alike(facts.window[-1], row), key=lambda pair: -pair[1].threads_us)
    processes = [(key.process, time) for key, time in now]
    completed = facts.newest(1).completed(row.device) if row.device else None
    ios = None if completed is None else completed.count
    return _Hung(
        FileSystem(row.mount, row.kind, row.device), row.cause == FROZEN, lasted_us, threads_us, processes, ios
    )


def _alike(block: Block, row: HungOperation) -> list[tuple[HungOperation, HungTime]]:
    """Return the processes of a block that hang on the same file system for the same cause."""
    return [(key, time) for key, time in block[HUNG_OPERATIONS].items() if key[:-1] == row[:-1]]


def _finding(hung: _Hung, limits: Thresholds) -> Finding:
    device = hung.file_system.device
    before = f"{device}: " if device else ""
    who = _who(hung)
    if hung.is_frozen:
        where = hung.file_system.mount or "a file system"
        frozen = f"{before}{where} is frozen (fsfreeze, a snapshot) for {spelled(hung.lasted_us)}: writes wait"
        summary = f"{frozen}, not for the device: {who}"
        short = [f"frozen for {spelled(hung.lasted_us)}: writes wait", f" on {where}", ", not for the device"]
    else:
        silent = f"{before}the server of {hung.file_system.mount} is silent for {spelled(hung.lasted_us)}"
        summary = f"{silent}: {who}"
        short = [f"a server is silent for {spelled(hung.lasted_us)}", f": that of {hung.file_system.mount}"]
    return Finding(
        ID,
        CRITICAL if hung.lasted_us >= limits["critical_us"] else WARNING,
        device,
        summary,
        tuple(_facts(hung)),
        Where("overview", device),
        tuple(_steps(hung)),
        _REFUTED[hung.is_frozen],
        1.0,
        short=short_text(device, *short),
        state=(hung.file_system.mount, FROZEN if hung.is_frozen else ""),
    )


def _who(hung: _Hung) -> str:
    programs = list(by_program(hung.rows))
    others = len(programs) - 1
    more = f" and {counted(others, 'other program')}" if others else ""
    return f"{programs[0].text}{more} {'wait' if others else 'waits'}"


def _facts(hung: _Hung) -> Iterator[Fact]:
    mount, kind, device = hung.file_system
    if mount:
        on = f", on {device}" if device else ""
        yield Fact("mount", mount, f"file system: {mount}, {kind or 'of a type that is not known'}{on}")
    else:
        yield Fact("mount", "", "which file system it is, is not known: the calls that wait have paths, no open files")
    yield from duration_facts(("lasted_us", hung.lasted_us, "operations hang for {} or longer", None))
    yield Fact("threads", round(hung.threads, 1), f"{hung.threads:.3g} threads wait, on average")
    for at, (program, times) in enumerate(list(by_program(hung.rows).items())[:_MOST_PROGRAMS], 1):
        us = max(time.lasted_us for time in times)
        text = f"{program.text} waited for {spelled(us)} of the last seconds"
        yield Fact(f"program_{at}", program.name, text)
    if hung.ios is not None:
        yield Fact("ios", hung.ios, f"{device} completed {counted(hung.ios, 'I/O')} in the last seconds", "ios")


def _steps(hung: _Hung) -> Iterator[Step]:
    mount, kind, device = hung.file_system
    place = mount if _PLAIN.fullmatch(mount) else "/MOUNT"
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
    },
)
