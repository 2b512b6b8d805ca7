"""read-only-file-system: the kernel made a file system read-only after an error, so that nothing can be written to it.

The failed I/Os are few and over in an instant: ext4 aborts its journal after one failed write, btrfs its transaction.
From then on each write, create and delete fails at once (EROFS; EIO of one that is shut down), and the device is fast
and idle: no latency shows it. So the state is the finding, as long as it lasts, and failed writes are its cause. No
finding: a file system that is mounted read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from latmon.findings.evidence import host_before, kernel_log_facts, kernel_log_step
from latmon.findings.facts import Facts
from latmon.findings.programs import Program, by_program, most_written
from latmon.findings.rule import (
    CRITICAL,
    MOUNTS,
    PATH_CELLS,
    PLAIN_PATH,
    Fact,
    Finding,
    Moment,
    Rule,
    Step,
    Thresholds,
    Where,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.frame import READ_ONLY_CAUSE, READ_ONLY_KIND, READ_ONLY_MOUNT, READ_ONLY_SINCE, Device
from latmon.model.measurements import errors
from latmon.model.stages import plural_of_op
from latmon.support.text import path_end
from latmon.support.units import clock, spelled

ID = "read-only-file-system"
_WRITES = frozenset(("write", "flush"))
"""Ops whose failure makes a file system read-only, and is named by this finding."""
_SHUTS_DOWN = "xfs"
_REFUTED = (
    "a program creates a file there, or it was made read-only on purpose (an emergency remount by sysrq u, a remount "
    "in another mount namespace)"
)


class _Writer(NamedTuple):
    """A program that wrote to the device in the window."""

    program: Program
    wrote: str
    """What is known of it: that it wrote most, or that it waited for syncs."""

    @property
    def text(self) -> str:
        return f"{self.program.text} {self.wrote} in the last minute"


@dataclass(frozen=True, slots=True)
class _ReadOnly:
    """A file system that is read-only, and what is known of it."""

    device: Device
    mount: str
    """Empty where it is hidden."""
    kind: str
    cause: str
    """The file system's own word for its last error; empty where it is not known."""
    since: Moment | None
    failed: Mapping[errors.FailedIO, int]
    """Failed writes and flushes of the device in the window."""
    writer: _Writer | None

    @property
    def place(self) -> str:
        return self.mount or "a file system"

    @property
    def is_shut_down(self) -> bool:
        return self.kind == _SHUTS_DOWN


def evaluate(facts: Facts, _limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per disk with such a file system."""
    for name in sorted(facts.devices):
        device = facts.device(name)
        kind = device.reported_value(READ_ONLY_KIND)
        if kind is not None:
            yield _finding(facts, _read_only(facts, device, str(kind)))


def _read_only(facts: Facts, device: Device, kind: str) -> _ReadOnly:
    counts = facts[measurements.ERRORS].items()
    failed = {row: ios for row, ios in counts if row.device == device.name and row.op in _WRITES and ios}
    return _ReadOnly(
        device,
        str(device.reported_value(READ_ONLY_MOUNT) or "").removeprefix(host_before(facts, device.name)),
        kind,
        str(device.reported_value(READ_ONLY_CAUSE) or ""),
        _since(facts, device),
        failed,
        _writer(facts, device.name),
    )


def _writer(facts: Facts, device: str) -> _Writer | None:
    """Return the program that wrote most to a device, else the one with most syncs of files on it."""
    written = most_written(facts, device)
    if written is not None and written[0].name:
        return _Writer(written[0], f"wrote most to {device}")
    rows = ((row.process, done.syncs) for row, done in facts[measurements.SYNCS].items() if row.device == device)
    syncs = by_program(rows)
    sync = max(syncs, key=lambda program: sum(syncs[program]), default=None)
    return None if sync is None or not sync.name else _Writer(sync, f"synced files on {device}")


def _since(facts: Facts, device: Device) -> Moment | None:
    """Return when the file system became read-only; None where it is not known, or not a time before now."""
    try:
        wall = datetime.fromisoformat(str(device.reported_value(READ_ONLY_SINCE))).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    age_us = round((facts.wall - wall) * 1e6)
    return Moment(facts.end_us - age_us, wall) if 0 <= age_us <= facts.end_us else None


def _finding(facts: Facts, file_system: _ReadOnly) -> Finding:
    name, writer = file_system.device.name, file_system.writer
    since = "" if file_system.since is None else f" since {clock(file_system.since.wall)}"
    causes = "; ".join(_causes(file_system))
    because = f" ({causes})" if causes else ""
    before = "" if writer is None else f"; {writer.text}"
    return Finding(
        id=ID,
        severity=CRITICAL,
        device=name,
        summary=f"{name}: {file_system.place} ({file_system.kind}) {_state(file_system)}{since}{because}: "
        f"{_effect(file_system)}{before}",
        facts=tuple(_facts(facts, file_system)),
        where=Where("overview", name, "write"),
        steps=tuple(_steps(file_system)),
        refuted_by=_REFUTED,
        state=(file_system.mount, ""),
        began=file_system.since,
        short=short_text(
            name,
            f"{path_end(file_system.place, PATH_CELLS)} {_state(file_system)}",
            since,
            _short_cause(file_system),
            "" if writer is None else f"; {within(writer.program.name)} wrote there",
        ),
    )


def _state(file_system: _ReadOnly) -> str:
    return "is shut down" if file_system.is_shut_down else "is read-only"


def _effect(file_system: _ReadOnly) -> str:
    if file_system.is_shut_down:
        return "all calls on its files fail (EIO)"
    return "writes, creates and deletes fail (EROFS)"


def _causes(file_system: _ReadOnly) -> Iterator[str]:
    for row, ios in file_system.failed.items():
        yield _failed_text(row, ios)
    if file_system.cause:
        yield file_system.cause


def _failed_text(row: errors.FailedIO, ios: int) -> str:
    """Return `2 writes failed: I/O error`."""
    ops = row.op if ios == 1 else plural_of_op(row.op)
    return f"{ios:,} {ops} failed: {row.status}"


def _short_cause(file_system: _ReadOnly) -> str:
    if file_system.failed:
        return " after failed writes"
    cause = file_system.cause.partition(" (")[0]
    return f"; {cause}" if cause else ""


def _facts(facts: Facts, file_system: _ReadOnly) -> Iterator[Fact]:
    device, since = file_system.device, file_system.since
    report = device.report(READ_ONLY_KIND)
    source = "" if report is None else f", by {report.source}"
    text = f"{file_system.place} ({file_system.kind}) {_state(file_system)}{source}"
    yield Fact("file_system", file_system.place, text)
    if since is not None:
        age_us = facts.end_us - since.mono_us
        yield Fact("since_us", age_us, f"it is so since {clock(since.wall)}, for {spelled(age_us)}", "us")
    if file_system.cause:
        yield Fact("cause", file_system.cause, f"its last error: {file_system.cause}")
    for at, (row, ios) in enumerate(file_system.failed.items(), 1):
        yield Fact(f"failed_{at}", ios, f"of {device.name}, in the last minute: {_failed_text(row, ios)}", "ios")
    if file_system.writer is not None:
        yield Fact("writer", file_system.writer.program.text, file_system.writer.text)
    yield from kernel_log_facts(facts, device.name)


def _steps(file_system: _ReadOnly) -> Iterator[Step]:
    name = file_system.device.name
    place = file_system.mount if PLAIN_PATH.fullmatch(file_system.mount) else "/MOUNT"
    yield kernel_log_step("read in the kernel's log what failed first")
    if not file_system.is_shut_down:
        yield Step("copy what is not in a backup: it can still be read", "a copy reads all of a device that may fail")
    if file_system.failed or "I/O error" in file_system.cause:
        yield Step(f"find out why writes of {name} fail before it is used again: a disk that fails needs another one")
    yield Step(
        f"end the programs that use {place}, unmount it and check it ({_check(file_system.kind)}); don't only remount "
        "it: its structures may be damaged",
        "a repair changes the file system: make an image of it first where there is no backup",
        (f"fuser -vm {place}", f"umount {place}"),
    )


def _check(kind: str) -> str:
    if kind.startswith("ext"):
        return "e2fsck -f"
    if kind == _SHUTS_DOWN:
        return "mount it once, so that its log is replayed; then xfs_repair"
    if kind == "btrfs":
        return "btrfs check --readonly"
    return f"fsck.{kind}"


RULE = Rule(
    ID,
    "the kernel made a file system read-only after an error, so that nothing can be written to it",
    evaluate,
    needs=MOUNTS,
)
