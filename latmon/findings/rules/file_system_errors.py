"""file-system-errors: a file system, or a check below it, finds that a device returned wrong data, or failed.

A device that returns other data than were written reports success and is as fast as always. Only a checksum above the
block layer shows it: of btrfs, of metadata of ext4 and XFS, of dm-verity, dm-integrity and dm-crypt. A read of such
data fails with EIO, where there is no other copy of them. So the file system's own words are the finding; failed I/Os
of the device, where they are counted, are io-errors. It is a warning where all that is known is that wrong data were
corrected from another copy. The program is one that has the damaged file open, else it isn't named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.evidence import kernel_log_facts, kernel_log_step
from latmon.findings.facts import Facts
from latmon.findings.programs import Program, by_program
from latmon.findings.rule import (
    CRITICAL,
    FILE_SYSTEM_ERRORS,
    PATH_CELLS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.measurements.file_system_errors import CORRECTED, CORRUPT_METADATA, FAILED_IO, FOUND, WRONG_CHECKSUM
from latmon.support.text import path_end
from latmon.support.units import counted, rate

ID = "file-system-errors"
_COUNTED: Mapping[str, tuple[str, ...]] = MappingProxyType({"btrfs": (WRONG_CHECKSUM, FAILED_IO), "ext4": FOUND})
"""Who counts which errors in full; of all others the lines of the kernel's log are counted."""
_OTHER_COPIES = frozenset(("btrfs", "bcachefs"))
"""File systems that know data to be wrong of a device that doesn't."""
_CHECKS: Mapping[str, str] = MappingProxyType(
    {"ext4": "e2fsck -fn {}", "xfs": "xfs_repair -n {}", "f2fs": "fsck.f2fs --dry-run {}"}
)
_LINES_PER_S = 2
"""The kernel prints 10 of one kind in 5 s (include/linux/ratelimit_types.h DEFAULT_RATELIMIT_BURST)."""
_MOST_FILES = 3
_NAME_CELLS = 12
_LINES_LOST = "the kernel suppresses lines like these where there are many, such as more than 10 in 5 s of btrfs"
_REFUTED = (
    "no program gets an error, and a check of the file system finds nothing (btrfs scrub, e2fsck -n, xfs_repair -n)"
)


class _Errors(NamedTuple):
    """What was found on a device in the window."""

    device: str
    finder: str
    events: Mapping[str, int]
    """Error -> number, the one that does most harm first."""
    span_us: int
    """The time from the block with the first ones on."""
    program: Program | None
    """The one that has the damaged files open; None: not known."""
    files: Mapping[str, int]
    """Path of a damaged file -> lines of the kernel's log about it."""
    is_silent: bool
    """Whether the device's I/Os are counted by status, and none of them failed."""

    @property
    def is_corrected(self) -> bool:
        """Return whether most of the wrong data were read from another copy, as far as lines say.

        Of so many counted errors as the kernel has lines for, more than half have a line that they were.
        """
        wrong = self.events.get(WRONG_CHECKSUM, 0) + self.events.get(CORRUPT_METADATA, 0)
        of_lines = max(sum(self.files.values()), min(wrong, _LINES_PER_S * self.span_us / 1e6))
        return self.events.get(CORRECTED, 0) > of_lines / 2

    @property
    def worst(self) -> str:
        return next(iter(self.events))

    def is_counted(self, error: str) -> bool:
        return error in _COUNTED.get(self.finder, ())

    @property
    def found_text(self) -> str:
        """Return what does most harm, with its rate: `btrfs finds wrong checksums, 11/s`."""
        events = self.events[self.worst]
        per_s = events * 1e6 / max(self.span_us, 1)
        least = "" if self.is_counted(self.worst) else "at least "
        often = f", {least}{rate(per_s)}/s" if per_s >= 1 else ""
        texts = {
            WRONG_CHECKSUM: "finds wrong checksums" if events > 1 else "finds a wrong checksum",
            CORRUPT_METADATA: "finds corrupt metadata",
            FAILED_IO: "reports failed I/Os" if events > 1 else "reports a failed I/O",
            CORRECTED: "corrects wrong data",
        }
        return f"{self.finder} {texts[self.worst]}{often}"

    def harm_text(self, name: str) -> str:
        """Return what follows for programs; `name`: the one that is hurt, empty: not known."""
        if self.is_corrected:
            return "corrected from another copy"
        if self.finder == "btrfs" and self.worst == WRONG_CHECKSUM:
            return f"reads of {name} fail with EIO" if name else "reads of these data fail with EIO"
        return f"calls of {name} fail" if name else "calls that need it fail"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device with such errors."""
    by_device: dict[str, dict[str, Counter[str]]] = {}
    for row, events in facts[measurements.FILE_SYSTEM_ERRORS].items():
        if events:
            by_device.setdefault(row.device, {}).setdefault(row.finder, Counter())[row.error] += events
    for device in sorted(by_device):
        finders = by_device[device]
        finder = max(sorted(finders), key=lambda name: finders[name].total())
        if finders[finder].total() >= limits["errors"]:
            yield _finding(facts, _errors(facts, device, finder, finders[finder]))


def _errors(facts: Facts, device: str, finder: str, events: Mapping[str, int]) -> _Errors:
    rows = [(row, lines) for row, lines in facts[measurements.DAMAGED_FILES].items() if row.device == device]
    programs = by_program((row.process, lines) for row, lines in rows if row.process)
    files: Counter[str] = Counter()
    for row, lines in rows:
        files[row.path] += lines
    failed = (row for row, ios in facts[measurements.ERRORS].items() if row.device == device and ios)
    return _Errors(
        device,
        finder,
        {error: events[error] for error in FOUND if error in events},
        _span_us(facts, device),
        max(programs, key=lambda program: sum(programs[program]), default=None),
        dict(files.most_common(_MOST_FILES)),
        measurements.ERRORS.name in facts.origin.counted and not any(failed),
    )


def _span_us(facts: Facts, device: str) -> int:
    """Return the time of the window's blocks from the first one with errors on."""
    span_us = 0
    for block in facts.window:
        if span_us or any(row.device == device for row in block[measurements.FILE_SYSTEM_ERRORS]):
            span_us += block.span_us
    return span_us


def _finding(facts: Facts, errors: _Errors) -> Finding:
    name = errors.device
    program = "" if errors.program is None else errors.program.text
    short_program = "" if errors.program is None else within(errors.program.name or "a program", _NAME_CELLS)
    silent = ", while the device reports success" if errors.is_silent else ""
    file = next((path for path in errors.files if path), "")
    of_file = f" ({path_end(file, PATH_CELLS)})" if file and not errors.is_corrected else ""
    return Finding(
        id=ID,
        severity=WARNING if errors.is_corrected else CRITICAL,
        device=name,
        summary=f"{name}: {errors.found_text}: {errors.harm_text(program)}{of_file}{silent}",
        facts=tuple(_facts(facts, errors)),
        where=Where("overview", name, "read"),
        steps=tuple(_steps(errors)),
        refuted_by=_REFUTED,
        explained_by=_explained_by(errors),
        short=short_text(name, errors.found_text, f"; {errors.harm_text(short_program)}"),
    )


def _explained_by(errors: _Errors) -> tuple[str, ...]:
    """Return the rules that name the cause: not of data that are wrong though the device reported success."""
    if errors.worst == WRONG_CHECKSUM and errors.finder in _OTHER_COPIES:
        return ()
    return "io-errors", "read-only-file-system"


def _facts(facts: Facts, errors: _Errors) -> Iterator[Fact]:
    for error, events in errors.events.items():
        least = "" if errors.is_counted(error) else "at least "
        text = f"{errors.finder}, {error}: {least}{events:,} in the last minute"
        yield Fact(error.replace(" ", "_").replace("/", "").lower(), events, text)
    if not all(map(errors.is_counted, errors.events)):
        yield Fact("suppressed", "", _LINES_LOST)
    if errors.program is not None:
        yield Fact("program", errors.program.name, f"{errors.program.text} has a damaged file open")
    for at, (path, lines) in enumerate(errors.files.items(), 1):
        if path:
            yield Fact(
                f"file_{at}", path, f"{path}: {counted(lines, 'line')} of the kernel's log say that it is damaged"
            )
    if errors.is_silent:
        yield Fact("failed", 0, f"I/Os of {errors.device} that failed: 0, as its driver reports them", "ios")
    yield from kernel_log_facts(facts, errors.device)


def _steps(errors: _Errors) -> Iterator[Step]:
    name = f"/dev/{errors.device}" if plain(errors.device) else "DEVICE"
    yield kernel_log_step("read what the kernel's log has about it: which files or blocks")
    if errors.finder == "btrfs":
        yield Step("see what it counted on each device", commands=("btrfs device stats /MOUNT",))
        yield Step(
            "find all that is damaged: a scrub reads everything",
            "other I/Os wait for its reads",
            ("btrfs scrub start -Br /MOUNT",),
        )
    elif check := _CHECKS.get(errors.finder):
        yield Step(
            "unmount the file system and check it, at first without a repair",
            "its programs have to stop; a repair changes it: make an image of it first where there is no backup",
            (check.format(name),),
        )
    yield Step(
        "restore what is damaged from a backup or a replica, after it is known what damages it",
        "what was written since is lost",
    )
    yield Step(
        "find out what changes data between program and disk: memory (errors of ECC), cable, adapter, firmware, the "
        "disk; of a virtual disk, or a volume of an array, what it lies on",
        commands=(f"smartctl -x {name}",),
    )


RULE = Rule(
    ID,
    "a file system, or a check below it, finds that a device returned wrong data, or reports failed I/Os",
    evaluate,
    needs=FILE_SYSTEM_ERRORS,
    thresholds={"errors": Threshold(1, "times", "errors were found in the last minute at least")},
)
