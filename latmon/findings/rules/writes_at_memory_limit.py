"""writes-at-memory-limit: a cgroup's limit of memory is too small for what its programs write.

A written page can't be reclaimed before it is on the disk. Where the cgroup is at its limit, write() reclaims itself
and sleeps until other pages are written: on version 1, which pauses no writer before (no dirty limit of a cgroup), in
folio_wait_writeback(). Nothing is read again, so neither swap nor refaults show it, and a faster disk only makes the
sleeps shorter. Evidence is the share of the limit that is dirty or in write-back in the looks that saw it reached. No
finding: a limit that is reached by pages that are written already, such as of a scan, which are reclaimed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from latmon.analysis.attribution import file_rows
from latmon.findings.evidence import host_before
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import Program, by_program
from latmon.findings.rule import (
    MEMORY,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.frame import MEMORY as MEMORY_PART
from latmon.model.host_context import CONTEXT, added
from latmon.model.measurements.memory import MemoryLimit, Unwritten
from latmon.support.units import part, show_size

ID = "writes-at-memory-limit"
_STALLS, _UNWRITTEN = "psi_memory_some", "unwritten_reclaims"
"""Values of CONTEXT."""
_REFUTED = (
    "the writes are as slow while memory.failcnt of the cgroup (version 2: max in memory.events) does not grow, "
    "or with a limit several times as large"
)


@dataclass(frozen=True, slots=True)
class _FullCgroup:
    """A cgroup at its limit of memory, whose pages are to be written."""

    limit: MemoryLimit
    host: str
    """Host in front of the cgroup's name in a fleet, with its colon."""
    hits: int
    writer: Program
    looks: int
    unwritten_bytes: float
    """Mean over the looks."""
    stalled: float | None
    """Share of the time in which a task of the host waited for memory; None where that is not measured."""

    @property
    def name(self) -> str:
        return self.limit.cgroup.removeprefix(self.host)

    @property
    def share(self) -> float:
        """Return the share of the limit that is to be written."""
        return self.unwritten_bytes / self.limit.limit_bytes

    @property
    def program(self) -> str:
        return within(self.writer.name or "a program")


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per host, about the cgroup that reached its limit most often."""
    by_host: dict[str, _FullCgroup] = {}
    for limit, reached in facts[measurements.MEMORY_LIMITS].items():
        full = _full_cgroup(facts, limit, reached.hits)
        if full is None or not _is_found(facts, full, limits):
            continue
        if full.host not in by_host or full.hits > by_host[full.host].hits:
            by_host[full.host] = full
    for host in sorted(by_host):
        yield _finding(facts, by_host[host])


def _full_cgroup(facts: Facts, limit: MemoryLimit, hits: int) -> _FullCgroup | None:
    """Return what the looks saw of a cgroup; None where nothing of it was to be written."""
    rows = [
        (row.process, seen) for row, seen in facts[measurements.MEMORY_WRITERS].items() if row.cgroup == limit.cgroup
    ]
    looks = sum(seen.looks for _, seen in rows)
    unwritten_bytes = sum(seen.unwritten_bytes for _, seen in rows)
    if not looks or not unwritten_bytes or not limit.limit_bytes:
        return None
    writers = by_program(rows)
    host = host_before(facts, limit.cgroup)
    return _FullCgroup(
        limit=limit,
        host=host,
        hits=hits,
        writer=max(writers, key=lambda program: _looks(writers[program])),
        looks=looks,
        unwritten_bytes=unwritten_bytes / looks,
        stalled=_stalled(facts, host),
    )


def _looks(seen: Iterable[Unwritten]) -> int:
    return sum(unwritten.looks for unwritten in seen)


def _stalled(facts: Facts, host: str) -> float | None:
    stalls = added(block.host_context for block in facts.window).get(host + _STALLS)
    return None if stalls is None else min(1.0, stalls.ratio)


def _is_found(facts: Facts, full: _FullCgroup, limits: Thresholds) -> bool:
    if full.share < limits["unwritten"] or full.hits < limits["hits"] * facts.span_us / 1e6:
        return False
    if full.stalled is not None and full.stalled < limits["stalled"]:
        return False

    def is_seen(block: Block) -> bool:
        return any(row.cgroup == full.limit.cgroup for row in block[measurements.MEMORY_WRITERS])

    return facts.lasts(facts.lasted_us(is_seen), limits["lasting_us"])


def _finding(facts: Facts, full: _FullCgroup) -> Finding:
    size = show_size(full.limit.limit_bytes)
    about = full.host.replace(HOST_SEPARATOR, ": ")
    return Finding(
        id=ID,
        severity=WARNING,
        device=full.host,
        summary=f"{about}cgroup {full.name} is at its memory limit of {size}, {part(full.share)} of which is written "
        "data that "
        f"is not yet on the disk: writes of {full.writer.text} reclaim memory and wait for write-back",
        facts=tuple(_facts(facts, full)),
        where=Where("overview", ""),
        steps=tuple(_steps(full)),
        refuted_by=_REFUTED,
        share=full.stalled or 0.0,
        short=short_text(
            full.host.rstrip(HOST_SEPARATOR),
            "memory limit too small for the writes",
            f" of {full.program}",
            f": cgroup {within(full.name)}, {size}",
        ),
    )


def _facts(facts: Facts, full: _FullCgroup) -> Iterator[Fact]:
    kind = "memory.high" if full.limit.kind == "high" else "memory.max (version 1: limit_in_bytes)"
    text = f"cgroup {full.name} reached its {kind} of {show_size(full.limit.limit_bytes)} {full.hits:,} times"
    yield Fact("limit_hits", full.hits, text)
    size = show_size(round(full.unwritten_bytes))
    text = f"{size} of its memory was dirty or in write-back on average, {part(full.share)} of the limit"
    yield Fact("unwritten", round(full.share, 3), text, "share", full.looks)
    yield Fact("writer", full.writer.text, f"most CPU time of the kernel there is that of {full.writer.text}")
    context = added(block.host_context for block in facts.window)
    if (value := context.get(full.host + _UNWRITTEN)) is not None:
        per_s = value.ratio * 1e6
        kind_of_value = CONTEXT[_UNWRITTEN]
        yield Fact(_UNWRITTEN, round(per_s, 1), f"{kind_of_value.title}: {kind_of_value.text(per_s)}", "per_s")
    if full.stalled is not None:
        text = f"a task waited for memory {part(full.stalled)} of the time (PSI)"
        yield Fact("stalled", round(full.stalled, 3), text, "share")
    yield from _slept_facts(facts)


def _slept_facts(facts: Facts) -> Iterator[Fact]:
    """Yield for which part of their time writes slept in reclaim, of each file system where that was traced."""
    for row in file_rows(facts[measurements.FILES], facts[measurements.FILE_TIMES]):
        share = row.part_share(MEMORY_PART)
        if row.op == "write" and share:
            text = f"writes of {row.file_system.mount} slept for free memory {part(share)} of their time"
            yield Fact("slept_for_memory", round(share, 3), text, "share", row.latency.count)


def _steps(full: _FullCgroup) -> Iterator[Step]:
    yield Step(
        f"give cgroup {full.name} more memory than {show_size(full.limit.limit_bytes)}: as much as its programs write "
        "at once, beside their own",
        "others have less memory",
    )
    yield Step(
        f"or let {full.program} write less at once: with O_DIRECT, or with sync_file_range() or fdatasync() after each "
        "few MB",
        "each of its writes takes as long as the disk's",
    )
    yield Step(
        "on cgroup version 1 nothing pauses a writer before the limit is reached; version 2 does, where its "
        "controllers memory and io are both on",
        "a reboot, and limits under other names",
    )


RULE = Rule(
    ID,
    "programs that write reclaim memory and wait for write-back, because their cgroup's limit of memory is too small",
    evaluate,
    needs=MEMORY,
    thresholds={
        "unwritten": Threshold(0.2, "share", "of the limit is dirty or in write-back at least, on average"),
        "hits": Threshold(5.0, "times", "per second the limit is reached at least"),
        "stalled": Threshold(0.03, "share", "of the time a task waits for memory at least, where PSI is measured"),
        "lasting_us": Threshold(12_000_000, "us", "of the last minute, or 30 % of that all the time from the start"),
    },
)
