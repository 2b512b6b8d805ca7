"""full-file-system: a file system has no free block or inode, so that nothing new can be allocated on it.

Calls that need it fail at once (ENOSPC), and the device is fast and idle: no latency shows it. Writes to blocks that a
file has already succeed, as to preallocated files of virtual machines and databases. Then much is written, and what is
free stays the same: a warning. Where all calls fail, only the journal is written. What counts is what ordinary
users may use: root may also use reserved blocks (of ext4 5 % by default), so its programs go on for a while. No
finding: file systems that are mounted read-only or full by design (squashfs, ISO images), and those that are nearly
full to which nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from latmon.findings.evidence import host_before
from latmon.findings.facts import Facts
from latmon.findings.programs import most_written
from latmon.findings.rule import (
    CRITICAL,
    NOTICE,
    PATH_CELLS,
    PLAIN_PATH,
    SEVERITIES,
    SPACE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Severity,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.measurements.file_system_space import SpaceLooks, SpaceOf
from latmon.model.measurements.issuers import is_root_cgroup
from latmon.support.text import path_end
from latmon.support.units import part, show_size, spelled

ID = "full-file-system"
_FULL, _NO_INODE, _NEARLY, _FEW_INODES = "full", "no inode", "nearly full", "few inodes"
_RECENT_BLOCKS = 3
"""The newest look is in the last blocks: else the file system is gone, or does not answer."""
_OWN_RESERVE_SHARE, _OWN_RESERVE_BYTES = 0.025, 16 << 20
"""ext4 keeps 2 % of all blocks, with those that are not for files, at most 4,096 blocks, to write what it has promised
room for (fs/ext4/super.c ext4_calculate_resv_clusters())."""
_REFUTED = (
    "df and df -i show free blocks and inodes, or an ordinary user's program creates a file there and writes to it, or "
    "all programs write to blocks of preallocated files (of virtual machines, of databases), which succeeds"
)


@dataclass(frozen=True, slots=True)
class _Level:
    """A file system that is full, or nearly so, as of the newest looks."""

    row: SpaceOf
    host: str
    """Host in front of names in a fleet, with its colon."""
    state: str
    looks: SpaceLooks
    """Of the newest block."""
    first: SpaceLooks
    """Of the oldest block in the window."""
    first_age_us: int
    """Time between these two."""
    overwritten_bytes: float
    """Bytes written per look while what is free stayed the same, where that is much: to blocks that files have."""

    @property
    def is_full(self) -> bool:
        return self.state in (_FULL, _NO_INODE)

    @property
    def is_active(self) -> bool:
        """Whether it was written in the last minutes."""
        return self.looks.active_looks > 0

    @property
    def is_of_inodes(self) -> bool:
        return self.state in (_NO_INODE, _FEW_INODES)

    @property
    def severity(self) -> Severity:
        if not self.is_full or not self.is_active:
            return NOTICE
        return WARNING if self.overwritten_bytes else CRITICAL

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Return the sort key of the fullest one that is in use, which is the greatest."""
        return SEVERITIES.index(self.severity), self.is_full, -_free_share(self.looks)

    @property
    def mount(self) -> str:
        return self.row.mount.removeprefix(self.host) or "a file system"

    @property
    def size(self) -> str:
        return show_size(self.looks.size_bytes / self.looks.looks)

    @property
    def available_bytes(self) -> float:
        return self.looks.available_bytes / self.looks.looks

    @property
    def root_bytes(self) -> float:
        """Return how much root can use that others can't, at least; 0 of file systems without such blocks.

        What f_bfree has more than f_bavail is more than that: ext4 has a reserve of its own in it, and in btrfs it is
        all for metadata.
        """
        if not self.row.kind.startswith("ext"):
            return 0.0
        own = min(_OWN_RESERVE_SHARE * self.looks.size_bytes / self.looks.looks, _OWN_RESERVE_BYTES)
        return max(0.0, (self.looks.free_bytes - self.looks.available_bytes) / self.looks.looks - own)

    @property
    def free_text(self) -> str:
        """Return what is free of how much."""
        if self.is_of_inodes:
            inodes, free = self.looks.inodes // self.looks.looks, self.looks.free_inodes // self.looks.looks
            return f"{free:,} of {inodes:,} inodes"
        available = show_size(self.available_bytes) if self.available_bytes else "0"
        return f"{available} of {self.size}"


@dataclass(frozen=True, slots=True)
class _Writer:
    """What wrote most in the window."""

    name: str
    text: str
    written_bytes: int


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per disk, about the file system on it that is the fullest of those in use."""
    fullest: dict[str, _Level] = {}
    for row in facts[measurements.FILE_SYSTEM_SPACE]:
        level = _level(facts, row, limits)
        if level is not None and (row.device not in fullest or level.rank > fullest[row.device].rank):
            fullest[row.device] = level
    return [_finding(facts, fullest[device]) for device in sorted(fullest)]


def _level(facts: Facts, row: SpaceOf, limits: Thresholds) -> _Level | None:
    """Return the state of a file system; None where it has room, or nobody writes to one that is nearly full."""
    blocks = [block for block in facts.window if row in block[measurements.FILE_SYSTEM_SPACE]]
    if not blocks or blocks[-1].end_us < facts.window[-_RECENT_BLOCKS:][0].end_us:
        return None
    history = [block[measurements.FILE_SYSTEM_SPACE][row] for block in blocks]
    newest = history[-1]
    state = _state(newest, limits)
    if not state or (state in (_NEARLY, _FEW_INODES) and not newest.active_looks):
        return None

    def is_as_full(looks: SpaceLooks) -> bool:
        before = _state(looks, limits)
        return before == state or (bool(before) and state in (_NEARLY, _FEW_INODES))

    lasted = list(takewhile(is_as_full, reversed(history)))
    number_of_looks = sum(looks.looks for looks in lasted)
    if number_of_looks < limits["looks"]:
        return None
    age_us = blocks[-1].end_us - blocks[0].end_us
    written_per_look = sum(looks.written_bytes for looks in lasted) / number_of_looks
    is_unchanged = len(lasted) == len(history) and _is_unchanged(row, history, limits)
    overwritten_bytes = written_per_look if is_unchanged and written_per_look > limits["much_bytes"] else 0.0
    return _Level(row, host_before(facts, row.device), state, newest, history[0], age_us, overwritten_bytes)


def _is_unchanged(row: SpaceOf, history: Sequence[SpaceLooks], limits: Thresholds) -> bool:
    """Return whether a full file system has as much free space at all looks, without or with what root can use.

    Of ext4 single blocks for metadata go from the reserve as preallocated blocks are written.
    """
    if _state(history[-1], limits) != _FULL:
        return True  # no inode is free at any of them
    available = {looks.available_bytes / looks.looks for looks in history}
    free = [looks.free_bytes / looks.looks for looks in history]
    uses_reserve = row.kind.startswith("ext") and max(free) - min(free) > limits["much_bytes"]
    return len(available) == 1 and not uses_reserve


def _state(looks: SpaceLooks, limits: Thresholds) -> str:
    """Return how full a file system is; empty where it has room."""
    is_nearly = looks.available_bytes < limits["nearly"] * looks.size_bytes
    if is_nearly and looks.available_bytes <= limits["full_bytes"] * looks.looks:
        return _FULL
    if looks.inodes and not looks.free_inodes:
        return _NO_INODE
    if is_nearly:
        return _NEARLY
    if looks.inodes and looks.free_inodes < limits["nearly"] * looks.inodes:
        return _FEW_INODES
    return ""


def _free_share(looks: SpaceLooks) -> float:
    """Return the share of a file system's blocks or inodes that is free, the smaller one."""
    share = looks.available_bytes / max(looks.size_bytes, 1)
    return min(share, looks.free_inodes / looks.inodes) if looks.inodes else share


def _finding(facts: Facts, level: _Level) -> Finding:
    device = level.row.device
    writer = _writer(facts, device)
    kind = f" ({level.row.kind})" if level.row.kind else ""
    wrote = f"; {writer.text} wrote most in the last minute" if writer is not None and level.is_active else ""
    return Finding(
        id=ID,
        severity=level.severity,
        device=device,
        summary=f"{device}: {level.mount}{kind} {_effect(level)}{wrote}",
        facts=tuple(_facts(level, writer)),
        where=Where("overview", device, "write"),
        steps=tuple(_steps(level)),
        refuted_by=_REFUTED,
        short=short_text(level.host.rstrip(HOST_SEPARATOR), *_short(level, writer)),
        state=(level.row.mount, level.state),
    )


def _effect(level: _Level) -> str:
    free = f"{level.free_text} are free for ordinary users"
    if not level.is_full:
        return f"is nearly full: {free}, and writes go on"
    if not level.is_active:
        return f"is full: {free}; nothing was written to it in the last minutes"
    overwritten = f"; {_overwritten(level)}" if level.overwritten_bytes else ""
    if level.is_of_inodes:
        return f"is full: {free}: new files can't be created (ENOSPC){overwritten}"
    others = ", except root's" if level.root_bytes else ""
    return f"is full: {free}: new blocks can't be allocated (ENOSPC){others}{overwritten}"


def _overwritten(level: _Level) -> str:
    place = "files that exist" if level.is_of_inodes else "blocks that files have already"
    return f"{show_size(level.overwritten_bytes)} per look are written to {place}"


def _short(level: _Level, writer: _Writer | None) -> Iterator[str]:
    where = path_end(level.mount, PATH_CELLS)
    if not level.is_full:
        yield f"{where} is nearly full: {level.free_text} free"
    else:
        yield f"{where} is full: {level.free_text} free"
        yield _short_effect(level)
    if writer is not None and level.is_active:
        yield f"; {within(writer.name)} wrote most"


def _short_effect(level: _Level) -> str:
    if not level.is_active:
        return "; nothing is written"
    if level.overwritten_bytes:
        return "; writes go to existing files" if level.is_of_inodes else "; writes go to old blocks"
    return "; no new files" if level.is_of_inodes else "; no new blocks"


def _facts(level: _Level, writer: _Writer | None) -> Iterator[Fact]:
    looks = level.looks
    available, free_inodes = round(level.available_bytes), looks.free_inodes // looks.looks
    share = part(looks.available_bytes / looks.size_bytes)
    text = (
        f"{show_size(available) if available else 0} of {level.size} ({share}) are free for ordinary users (f_bavail)"
    )
    yield Fact("available_bytes", available, text, "bytes")
    root = round(level.root_bytes)
    if root:
        yield Fact("root_bytes", root, f"about {show_size(root)} more are free for root: reserved blocks", "bytes")
    if looks.inodes:
        inodes = looks.inodes // looks.looks
        yield Fact("free_inodes", free_inodes, f"{free_inodes:,} of {inodes:,} inodes are free")
    written = looks.written_bytes
    text = f"{show_size(written)} were written to the disks or partitions of the file system in the last seconds"
    yield Fact("written_bytes", written, text, "bytes")
    if level.is_full and level.overwritten_bytes:
        text = f"{_overwritten(level)}: what is free stayed the same, and whether calls fail is not measured"
        yield Fact("overwritten_bytes", round(level.overwritten_bytes), text, "bytes")
    yield from _speed_facts(level)
    yield from _writer_facts(level, writer)


def _speed_facts(level: _Level) -> Iterator[Fact]:
    """Yield how fast the free space became less, and when there is none at that rate."""
    before = level.first.available_bytes / level.first.looks
    lost = before - level.available_bytes
    if lost <= 0 or level.first_age_us <= 0:
        return
    text = f"{show_size(before)} were free {spelled(level.first_age_us)} before"
    if level.available_bytes and not level.is_full:
        left_us = level.first_age_us * level.available_bytes / lost
        text += f": at that rate none is in {spelled(left_us)}"
    yield Fact("available_before_bytes", round(before), text, "bytes")


def _writer_facts(level: _Level, writer: _Writer | None) -> Iterator[Fact]:
    """Yield what wrote most to the disk."""
    if writer is not None:
        text = f"{writer.text} wrote {show_size(writer.written_bytes)} to {level.row.device} in the last minute"
        yield Fact("writer", writer.text, f"{text}, more than any other")


def _writer(facts: Facts, device: str) -> _Writer | None:
    """Return the program that wrote most to a disk, else the cgroup; None where neither is measured."""
    written = most_written(facts, device)
    if written is None:
        return _cgroup(facts, device)
    program, size = written
    return _Writer(program.name or "a program", program.text, size)


def _cgroup(facts: Facts, device: str) -> _Writer | None:
    """Return the cgroup that wrote most to a device; None where it is the root, which names nothing."""
    written = {
        issuer: done.bytes
        for issuer, done in facts[measurements.ISSUERS].items()
        if issuer.device == device and issuer.op == "write" and done.bytes and not issuer.is_process
    }
    most = max(written, key=lambda issuer: written[issuer], default=None)
    if most is None or is_root_cgroup(most.cgroup):
        return None
    return _Writer(most.name, f"cgroup {most.name}", written[most])


def _steps(level: _Level) -> Iterator[Step]:
    place = level.mount if PLAIN_PATH.fullmatch(level.mount) else "/MOUNT"
    yield Step("see what is free, of blocks and of inodes", commands=(f"df -h {place}", f"df -i {place}"))
    if level.is_of_inodes:
        yield Step(
            "find the directories with most files, and delete or archive old ones",
            "it reads all directories; deleted files are gone",
            (f"find {place} -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail",),
        )
        if level.row.kind.startswith("ext"):
            yield Step(
                "inodes of ext4 are made once, by mkfs -i or -N: more of them need a new or a larger file system"
            )
        return
    yield Step(
        "find what takes the space",
        "it reads all directories",
        (f"du -xh --max-depth=2 {place} | sort -h | tail -n 20",),
    )
    yield Step(
        "find deleted files that a program still has open: their space is free when it closes them or ends",
        commands=(f"lsof -w +aL1 {place}",),
    )
    if level.root_bytes:
        yield Step(
            f"give ordinary users a part of the {show_size(level.root_bytes)} that are reserved for root",
            "root's programs, and room against fragmentation, have less",
            (f"tune2fs -m 1 $(findmnt -no SOURCE {place})",),
        )
    if level.row.kind == "btrfs":
        yield Step("see how data and metadata are allocated", commands=(f"btrfs filesystem usage {place}",))
    yield Step("delete or move files, or make the file system larger", "deleted files are gone")


RULE = Rule(
    ID,
    "a file system has no free block or inode, so that nothing new can be allocated on it",
    evaluate,
    needs=SPACE,
    thresholds={
        "full_bytes": Threshold(65_536, "bytes", "or less are free for ordinary users in a full file system"),
        "nearly": Threshold(0.01, "share", "of the blocks or inodes is free at most in one that is nearly full"),
        "much_bytes": Threshold(
            1 << 20,
            "bytes",
            "per look are written at most where calls fail; more, with what is free unchanged, is a warning",
        ),
        "looks": Threshold(2, "looks", "one after another must see it, 5 s apart"),
    },
)
