"""page-faults: a program waits in major page faults, each of which reads a page of a mapped file from a device.

The program makes no system call for such a read, so that no operation on files shows it: it touches memory, and sleeps
until the page is there. After a restart, or with a new file, nothing is cached, and a program that reads at random gets
4 KiB at a time. The host counts major faults, and /proc/PID/stat those of a process. They are of the device that
completes about as many reads, by programs with faults where the issuers of reads are traced. Pages that are read from
swap are left out. No finding: a program's start, few faults, a fast device; pages that memory was too small for, which
are swap-thrash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.findings.evidence import WHOLE, host_before, swap_of
from latmon.findings.facts import Block, Facts, mean_time_of
from latmon.findings.op_load import op_load
from latmon.findings.programs import Program, by_program
from latmon.findings.rule import (
    FAULTS,
    NOTICE,
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
from latmon.model.frame import Flow
from latmon.model.host_context import added
from latmon.model.measurements.issuers import OTHERS
from latmon.support.units import part, rate, show_size, spelled

ID = "page-faults"
FAULTED = "major_faults"
_RELOADS, _SWAP_INS = "file_reloads", "swap_ins"
"""Values of CONTEXT."""
_ALIKE = 2.0
"""A device completes at most so many times as many reads as there are faults, and at least the inverse."""
_MOST_OF_FAULTS = 0.5
"""Share of the processes' faults that the named program has at least."""
_LEAST_OF_READS = 0.25
"""Share of a device's reads that programs with faults issue at least: it completes `_ALIKE` times as many reads as
there are faults at most, and half of those are the named program's."""
_PLACE = "PID"
_NAME_CELLS = 12
"""Cells of a program's name in the short text."""
_REFUTED = "the program's count of major faults (maj_flt of ps) does not grow while it is slow"


class _Faulting(NamedTuple):
    """What a device reads for faults, over the blocks in which it does."""

    device: str
    lasted_us: int
    per_s: float
    """Faults."""
    read_us: float
    read_bytes: float
    """Mean of a read."""

    @property
    def waiting(self) -> float:
        """Return how many threads wait in faults at a time, on average."""
        return self.per_s * self.read_us / 1e6


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per host, about its device whose reads for faults take most time."""
    worst: dict[str, _Faulting] = {}
    for device in facts.busy:
        host = host_before(facts, device)
        if swap_of(facts.device(device)) == WHOLE or not _may_read(facts, device, _faults_of_programs(facts, host)):
            continue
        faulting = _faulting(facts, host, device, limits)
        if faulting is not None and (host not in worst or faulting.waiting > worst[host].waiting):
            worst[host] = faulting
    return [_finding(facts, host, worst[host]) for host in sorted(worst)]


def _faulting(facts: Facts, host: str, device: str, limits: Thresholds) -> _Faulting | None:
    """Return the reads of a device for faults; None where they don't last."""
    blocks = [block for block in facts.window if _waiting(block, host, device) >= limits["waiting"]]
    lasted_us = sum(block.span_us for block in blocks)
    if not blocks or not facts.lasts(lasted_us, limits["lasting_us"]):
        return None
    faults = sum(_faults(block, host) for block in blocks)
    reads = op_load(blocks, device, "read")
    if reads is None or not reads.bytes:
        return None
    return _Faulting(device, lasted_us, faults * 1e6 / lasted_us, reads.mean_us, reads.size)


def _waiting(block: Block, host: str, device: str) -> float:
    """Return how many threads wait in faults for reads of a device; 0 where its reads are more or fewer than these."""
    return block.once(("waiting in faults", host, device), lambda: _waiting_of(block, host, device))


def _waiting_of(block: Block, host: str, device: str) -> float:
    faults, reads = _faults(block, host), block.counted(Flow(device, "read")).every
    if not faults or reads is None or not faults / _ALIKE <= reads.count <= faults * _ALIKE:
        return 0.0
    mean = mean_time_of((block,), device, "read")
    return 0.0 if mean is None else min(faults, reads.count) * mean.mean_us / max(block.span_us, 1)


def _faults(block: Block, host: str) -> float:
    """Return the major faults of a host in a block, without as many as pages were read from swap."""
    faults, swap_ins = block.host_context.get(host + FAULTED), block.host_context.get(host + _SWAP_INS)
    if faults is None:
        return 0.0
    from_swap = 0.0 if swap_ins is None else swap_ins.ratio
    return max(0.0, faults.ratio - from_swap) * block.span_us


def _faults_of_programs(facts: Facts, host: str) -> dict[Program, int]:
    """Return the major faults of the processes of a host, by program."""
    rows = facts[measurements.MAJOR_FAULTS].items()
    faults = by_program((row.process, count) for row, count in rows if row.cgroup.startswith(host))
    return {program: sum(counts) for program, counts in faults.items()}


def _may_read(facts: Facts, device: str, programs: Iterable[Program]) -> bool:
    """Return whether these programs may issue the reads of a device: also where they or its issuers aren't known."""
    names = {program.name for program in programs}
    pids = {pid for program in programs for pid in program.pids}
    reads = own = 0
    for issuer, done in facts[measurements.ISSUERS].items():
        if issuer.device != device or issuer.op != "read" or not issuer.is_process:
            continue
        reads += done.count
        if issuer.comm in names or str(issuer.pid) in pids or issuer.comm == OTHERS:
            own += done.count
    return not names or own >= _LEAST_OF_READS * reads


def _finding(facts: Facts, host: str, faulting: _Faulting) -> Finding:
    device, program = faulting.device, _program(facts, host, faulting.device)
    who = "a program" if program is None else program.text
    name = "a program" if program is None else within(program.name or "a program", _NAME_CELLS)
    size, each, per_s = show_size(faulting.read_bytes), spelled(faulting.read_us), rate(faulting.per_s)
    return Finding(
        id=ID,
        severity=NOTICE,
        device=device,
        summary=f"{device}: {who} waits in major page faults: {per_s} a second read pages of mapped files, {size} at "
        "a time, "
        f"{each} each",
        facts=tuple(_facts(facts, host, faulting, program)),
        where=Where("overview", device, "read"),
        steps=tuple(_steps(program)),
        refuted_by=_REFUTED,
        share=min(1.0, faulting.waiting),
        short=short_text(device, f"{name} waits in page faults, {each} each", f": {per_s}/s of {size}", ", not cached"),
    )


def _program(facts: Facts, host: str, device: str) -> Program | None:
    """Return the program with most major faults; None: it has few of them, doesn't read the device, or isn't known."""
    faults = _faults_of_programs(facts, host)
    if not faults:
        return None
    fault = max(faults, key=lambda program: faults[program])
    has_most = faults[fault] >= _MOST_OF_FAULTS * sum(faults.values())
    return fault if has_most and _may_read(facts, device, [fault]) else None


def _facts(facts: Facts, host: str, faulting: _Faulting, program: Program | None) -> Iterator[Fact]:
    device = faulting.device
    text = f"the host has {rate(faulting.per_s)} major faults a second: a thread sleeps until its page is read"
    yield Fact("faults_per_s", round(faulting.per_s, 1), text, "per_s")
    if program is not None:
        faults = _faults_of_programs(facts, host)
        text = f"{program.text} has {part(faults[program] / max(sum(faults.values()), 1))} of those of all processes"
        yield Fact("program", program.name, text)
    yield from duration_facts(("read_us", faulting.read_us, f"a read of {device} takes {{}} on average", None))
    text = f"a read of {device} has {show_size(faulting.read_bytes)} on average"
    yield Fact("read_bytes", round(faulting.read_bytes), text, "bytes")
    yield Fact(
        "waiting",
        round(faulting.waiting, 2),
        f"{faulting.waiting:.2g} threads wait in faults at a time, on average",
    )
    reloads = added(block.host_context for block in facts.window).get(host + _RELOADS)
    if reloads is not None:
        text = f"{rate(reloads.ratio * 1e6)} pages of files a second are read again after memory was taken from them"
        yield Fact("file_reloads", round(reloads.ratio * 1e6, 1), text, "per_s")


def _steps(program: Program | None) -> Iterator[Step]:
    pid = program.pids[0] if program is not None and len(program.pids) == 1 and program.pids[0].isdigit() else _PLACE
    yield Step(
        "see which files the program has mapped: one of them isn't in the page cache, such as a new or rebuilt index",
        commands=(f"grep ' /' /proc/{pid}/maps", f"ps -o pid,maj_flt,comm -p {pid}"),
    )
    yield Step(
        "read the file before the program needs it (vmtouch, MAP_POPULATE, MADV_WILLNEED), where it fits into memory",
        "memory for it is taken from other files",
    )
    yield Step(
        "let the kernel read more at once: without MADV_RANDOM a fault reads ahead",
        "more bytes are read than a program that reads at random needs",
    )


RULE = Rule(
    ID,
    "a program waits in major page faults, each of which reads a page of a mapped file from a device",
    evaluate,
    needs=FAULTS,
    thresholds={
        "waiting": Threshold(0.25, "threads", "wait in faults at least, on average, by the time of a read"),
        "lasting_us": Threshold(12_000_000, "us", "they do, or 30 % of that from the beginning of a capture on"),
    },
    explained_by=("swap-thrash",),
)
