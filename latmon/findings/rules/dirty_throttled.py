"""dirty-throttled: programs are paused, because they dirty pages faster than a device writes them.

A write to the page cache costs no I/O, until the dirty pages of the host are above the middle of the background limit
and the limit: from there on the kernel pauses each program that dirties more, so that together they dirty no faster
than the device writes. No I/O contains such a pause, and its victim may write little. The probe counts pauses and pages
by process. Without it (procfs) the dirty pages beside their limits show that writers are paused, not which.

A program that alone dirties and alone waits is a notice, unless the limit is small: a copy of a large file ends like
this. No finding: dirty pages far below the limits, or a burst that the limits hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from latmon.findings.evidence import host_before
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import Program, by_program
from latmon.findings.rule import (
    DIRTY,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    sysfs,
    within,
)
from latmon.model import measurements
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.host_context import BYTES, CONTEXT, HostContext, added
from latmon.model.measurements.dirtiers import Dirtied, Dirtier
from latmon.support.text import listed
from latmon.support.units import part, speed, spelled

ID = "dirty-throttled"
DIRTY_LIMIT, BACKGROUND, PAGES, WRITEBACK = "dirty_limit", "dirty_background", "dirty", "writeback"
"""Values of CONTEXT."""
_MOST_WAITERS = 3
_LEAST_OF_WRITTEN = 0.1
"""Part of what the device writes that a program has dirtied, from which on it is named as who fills the limit. Changes
of metadata dirty pages too, later and in the name of no program: those that a chown puts into the journal."""
_NEAR = 0.95
"""Share of the middle of the limits: there the kernel holds the dirty pages (6.18: 310 to 325 of 315 MB for 20 s)."""
_REFUTED = "the programs are as slow while Dirty and Writeback in /proc/meminfo are far below the limit"


@dataclass(frozen=True, slots=True)
class _Writer:
    """A program that writes: what it dirtied, and its pauses."""

    program: Program
    dirtied: Dirtied

    @property
    def text(self) -> str:
        return self.program.text

    @property
    def name(self) -> str:
        return self.program.name or "a program"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device whose writers are paused; without a probe one about the host."""
    if measurements.DIRTIERS.name not in facts.origin.counted and not facts[measurements.DIRTIERS]:
        yield from _of_host(facts, limits)
        return
    paused_us = Counter[str]()
    for row, dirtied in facts[measurements.DIRTIERS].items():
        paused_us[row.device] += dirtied.paused_us
    least_us = limits["paused"] * facts.span_us
    for device in sorted(device for device, us in paused_us.items() if us >= least_us):
        if not facts.lasts(_lasted_us(facts, device, limits["paused"]), limits["lasting_us"]):
            continue
        programs = _writers(facts[measurements.DIRTIERS], device)
        longest = max(programs, key=lambda program: program.dirtied.paused_us)
        if longest.dirtied.paused_us >= least_us:
            yield _finding(facts, limits, device, programs)


def _lasted_us(facts: Facts, device: str, paused: float) -> int:
    return facts.lasted_us(lambda block: _pauses(block, device) >= paused)


def _pauses(block: Block, device: str) -> float:
    """Return how many programs of a device were paused at a time, on average."""
    rows = block[measurements.DIRTIERS].items()
    return sum(dirtied.paused_us for row, dirtied in rows if row.device == device) / max(block.span_us, 1)


def _writers(rows: Mapping[Dirtier, Dirtied], device: str) -> list[_Writer]:
    """Return the programs that write to a device."""
    programs = by_program((row.process, dirtied) for row, dirtied in rows.items() if row.device == device)
    return [_Writer(program, _added(values)) for program, values in programs.items()]


def _added(values: Iterable[Dirtied]) -> Dirtied:
    paused_us = dirtied_bytes = 0
    for dirtied in values:
        paused_us += dirtied.paused_us
        dirtied_bytes += dirtied.dirtied_bytes
    return Dirtied(paused_us, dirtied_bytes)


def _finding(facts: Facts, limits: Thresholds, device: str, programs: list[_Writer]) -> Finding:
    writer = max(programs, key=lambda program: program.dirtied.dirtied_bytes)
    waiters = sorted(programs, key=lambda program: -program.dirtied.paused_us)
    others = [program for program in waiters if program is not writer]
    victim = others[0] if others and others[0].dirtied.paused_us >= limits["paused"] * facts.span_us else None
    context = _of(host_before(facts, device), added(block.host_context for block in facts.window))
    limit, is_own = _mean(context, DIRTY_LIMIT), _is_own(facts, device)
    is_small = limit is not None and limit < limits["small_bytes"] and not is_own
    longest = victim or waiters[0]
    share = longest.dirtied.paused_us / facts.span_us
    near = "near their limit"
    if is_own and _is_strict(facts, device):
        near = f"near a limit of {device}'s own (strict_limit)"
    elif is_own:
        near = f"near a limit of {device}'s own, or of a cgroup"
    return Finding(
        id=ID,
        severity=WARNING if victim or is_small else NOTICE,
        device=device,
        summary=f"{device}: {longest.text} is paused {_share(share)}, because dirty pages are {near}"
        f"{_dirties(facts, device, writer, longest)}",
        facts=tuple(_facts(facts, device, writer, waiters, context)),
        where=Where("overview", device, "write"),
        steps=tuple(_steps(writer, device, is_small=is_small, is_own=is_own)),
        refuted_by=_REFUTED,
        share=min(1.0, share),
        short=short_text(
            device,
            f"{within(longest.name)} is paused {_share(share)}",
            " for dirty pages",
            f"; {'it' if longest is writer else within(writer.name)} dirties the most"
            if _is_most_written(facts, device, writer)
            else "; it dirties little",
        ),
    )


def _dirties(facts: Facts, device: str, writer: _Writer, longest: _Writer) -> str:
    """Return who dirties most, as the end of a sentence: not a program with a small part of what is written."""
    dirtied = speed(writer.dirtied.dirtied_bytes * 1e6 / facts.span_us)
    if not _is_most_written(facts, device, writer):
        return f"; {writer.text} dirties {dirtied}, which is little of what {device} writes, such as metadata"
    return f"; {'it' if longest is writer else writer.text} dirties the most, {dirtied}"


def _is_most_written(facts: Facts, device: str, writer: _Writer) -> bool:
    """Return whether a program dirties enough to be what the device writes, as far as that is counted."""
    written = facts.completed(device, "write")
    return written is None or writer.dirtied.dirtied_bytes >= _LEAST_OF_WRITTEN * written.bytes


def _share(share: float) -> str:
    """Return the share of the time, or how many threads are paused at a time."""
    return f"{part(share)} of the time" if share <= 1 else f"in {share:.1f} threads at a time"


def _facts(facts: Facts, device: str, writer: _Writer, waiters: list[_Writer], context: HostContext) -> Iterator[Fact]:
    per_s = writer.dirtied.dirtied_bytes * 1e6 / facts.span_us
    text = f"{writer.text} dirties the most: {speed(per_s)} while the dirty pages are near their limit"
    yield Fact("dirtied_bytes", writer.dirtied.dirtied_bytes, text, "bytes")
    written = facts.completed(device, "write")
    if written is not None:
        per_s = written.bytes * 1e6 / facts.span_us
        yield Fact("written_bytes", written.bytes, f"{device} writes {speed(per_s)}", "bytes", written.count)
    for at, waiter in enumerate(waiters[:_MOST_WAITERS], 1):
        if paused_us := waiter.dirtied.paused_us:
            text = f"{waiter.text} was paused for {spelled(paused_us)} in all, {_share(paused_us / facts.span_us)}"
            yield Fact(f"paused_{at}", paused_us, text, "us")
    if others := _other_devices(facts, device):
        text = (
            f"writers of {listed(others)} are paused, too: the limit is the host's, and the slowest of these fills it"
        )
        yield Fact("also_paused", ", ".join(others), text)
    yield from _limit_facts(context)


def _other_devices(facts: Facts, device: str) -> list[str]:
    """Return the other devices of the host whose writers are paused, that with the longest pauses first."""
    host = host_before(facts, device)
    paused = Counter[str]()
    for row, dirtied in facts[measurements.DIRTIERS].items():
        if row.device != device and dirtied.paused_us and host_before(facts, row.device) == host:
            paused[row.device] += dirtied.paused_us
    return [name for name, _ in paused.most_common(_MOST_WAITERS)]


def _limit_facts(context: HostContext) -> Iterator[Fact]:
    """Yield the dirty pages beside their limits."""
    names = {
        PAGES: "dirty pages: {} on average",
        WRITEBACK: "being written: {} on average",
        BACKGROUND: "background limit, from which the kernel writes: {}",
        DIRTY_LIMIT: "limit, from whose middle with the background limit on writers are paused: {}",
    }
    for name, text in names.items():
        mean = _mean(context, name)
        if mean is not None:
            yield Fact(name, round(mean), text.format(CONTEXT[name].text(mean)), BYTES)


def _of(host: str, context: HostContext) -> HostContext:
    """Return the values of a fleet's host, by their own names."""
    return {name.removeprefix(host): value for name, value in context.items() if name.startswith(host)}


def _mean(context: HostContext, name: str) -> float | None:
    value = context.get(name)
    return None if value is None else value.ratio


def _is_own(facts: Facts, device: str) -> bool:
    """Return whether the host's dirty pages were low: then the limit is the device's, or that of a cgroup."""
    contexts = [_of(host_before(facts, device), block.host_context) for block in facts.window]
    return any(DIRTY_LIMIT in context for context in contexts) and not any(map(_is_throttling, contexts))


def _is_strict(facts: Facts, device: str) -> bool:
    """Return whether the device has a limit of its own (/sys/block/DEVICE/bdi/strict_limit)."""
    return facts.origin.settings.get(f"device {device}", {}).get("bdi strict_limit") == "1"


def _steps(writer: _Writer | None, device: str, *, is_small: bool, is_own: bool) -> Iterator[Step]:
    named = writer.text if writer is not None else "the program that writes most"
    yield Step(
        "see the limits, and whether bytes or ratios are set",
        commands=("grep -H . /proc/sys/vm/dirty_*", "grep -E 'Dirty|Writeback:' /proc/meminfo"),
    )
    if is_own:
        yield Step(
            "the host's dirty pages are far below its limits: see the limits of the device, and memory.max and "
            "memory.high of the program's cgroup",
            commands=(f"grep -H . {sysfs(device)}/bdi/*",),
        )
    elif is_small:
        yield Step(
            "raise vm.dirty_bytes or vm.dirty_ratio: the limit holds less than a second of writes of a fast disk",
            "more is lost when the host fails, and a sync takes longer",
        )
    yield Step(
        f"limit {named} alone: in a cgroup of its own (version 2) with memory.high and io.max, it is paused before the "
        "others are; ionice has no effect on it, because the kernel writes its pages later",
        f"{named} gets slower",
    )
    yield Step(
        f"let {named} pass the page cache by (O_DIRECT, dd oflag=direct), or sync as it goes (dd oflag=dsync, rsync "
        "--bwlimit)",
        f"{named} gets slower",
    )
    if not is_small and not is_own:
        yield Step(
            "lower vm.dirty_background_bytes, so that the kernel begins to write earlier",
            "data that is overwritten soon is written more often",
        )


def _of_host(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Yield a finding per host whose dirty pages are where the kernel pauses writers."""
    context = added(block.host_context for block in facts.window)
    for host in sorted(name.removesuffix(DIRTY_LIMIT) for name in context if name.endswith(DIRTY_LIMIT)):
        lasted_us = facts.lasted_us(_is_host_throttling(host))
        if facts.lasts(lasted_us, limits["lasting_us"]):
            yield _finding_of_host(host, _of(host, context), limits)


def _is_host_throttling(host: str) -> Callable[[Block], bool]:
    return lambda block: _is_throttling(_of(host, block.host_context))


def _finding_of_host(host: str, context: HostContext, limits: Thresholds) -> Finding:
    limit = _mean(context, DIRTY_LIMIT) or 0.0
    pages = (_mean(context, PAGES) or 0.0) + (_mean(context, WRITEBACK) or 0.0)
    is_small = limit < limits["small_bytes"]
    about = host.replace(HOST_SEPARATOR, ": ")
    dirty, most = CONTEXT[PAGES].text(pages), CONTEXT[DIRTY_LIMIT].text(limit)
    return Finding(
        id=ID,
        severity=WARNING if is_small else NOTICE,
        device=host,
        summary=f"{about}{dirty} are dirty or being written, of a limit of {most}: "
        "programs that write are paused, which ones isn't measured here",
        facts=tuple(_limit_facts(context)),
        where=Where("overview"),
        steps=tuple(_steps(None, "", is_small=is_small, is_own=False)),
        refuted_by=_REFUTED,
        short=short_text(
            host.rstrip(HOST_SEPARATOR),
            f"{dirty} of {most} are dirty",
            ": programs that write are paused",
        ),
    )


def _is_throttling(context: HostContext) -> bool:
    """Return whether dirty pages were at the middle of the limits (mm/page-writeback.c: dirty_freerun_ceiling)."""
    limit, background = _mean(context, DIRTY_LIMIT), _mean(context, BACKGROUND)
    if not limit or background is None:
        return False
    return (_mean(context, PAGES) or 0.0) + (_mean(context, WRITEBACK) or 0.0) > _NEAR * (limit + background) / 2


RULE = Rule(
    ID,
    "programs are paused, because they dirty pages faster than a device writes them",
    evaluate,
    needs=DIRTY,
    thresholds={
        "paused": Threshold(0.05, "share", "of the window a program is paused at least, all its threads together"),
        "lasting_us": Threshold(12_000_000, "us", "of the last minute, or 30 % of that all the time from the start"),
        "small_bytes": Threshold(134_217_728, "bytes", "of dirty pages: a limit below it is too small for any disk"),
    },
    explained_by=("full-journal",),
)
