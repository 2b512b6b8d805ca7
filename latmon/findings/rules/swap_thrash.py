"""swap-thrash: memory is short, so that pages are read again that were taken from programs.

Pages come back from swap all the time, or pages of files are read again soon after they were reclaimed, beside direct
reclaims, stalls or a cgroup at its limit. A cgroup that reads files at random, somewhat larger than its limit, shows in
none of the host's counters but in that of all reloads: its reclaims are neither allocstall nor pgscan_direct, its tasks
hardly stall by PSI, and 5 % of its reloads count as refaults (workingset_activate_file), because half of its pages are
active (measured on Linux 6.18: 820 reloads, 820 hits of the limit and 45 refaults per second). The cgroup has a counter
of its own reloads: beside others' reloads those of the host are not its. A page that was swapped
out once and stays there is no harm. The I/O of a swap device is small, random and no program's choice: no advice about
its writes helps. The finding names the cgroup that reaches its limit of memory with the process that has most of it,
and the process with most major faults, where those are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.findings.evidence import WHOLE, host_before, swap_of
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import Program, program_of
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
from latmon.model.frame import Flow
from latmon.model.host_context import CONTEXT, HostContext, added
from latmon.model.measurements.memory import MemoryLimit, ReachedLimit, UsedMemory
from latmon.support.text import path_end
from latmon.support.units import part, rate, show_size

ID = "swap-thrash"
SWAP_INS, SWAP_OUTS, REFAULTS, RELOADS, RECLAIMS, STALLS = (
    "swap_ins",
    "swap_outs",
    "file_refaults",
    "file_reloads",
    "direct_reclaims",
    "psi_memory_some",
)
"""Values of CONTEXT."""
_LEAST_RECLAIMS, _LEAST_STALLS = 1.0, 0.05
"""Per second, and share of the time: from there on refaults of files are for want of memory."""
_HITS = 0.5
"""Least number of hits of a limit per page that is reloaded: each page that is read there is charged, and hits it."""
_STILL_SWAPS = 0.5
"""Part of the least rate of pages from swap from which on a finding about files is of the swap device, too."""
_PAGE_BYTES = 4096
"""Least bytes of a page: larger ones make the condition on small reads weaker."""
_PART = 0.25
"""Least part of the reloaded pages that a device's small reads can be, from which on tasks wait for its reads."""
_OF_FAULTS = 0.5
"""Least number of major faults of a process per page that its cgroup reloads, from which on it waits in these."""
_SMALL_BYTES = 32_768
"""Mean bytes of a device's reads up to which they are not those of a scan: read-ahead reads 128 KiB at once."""
_CGROUP_CELLS, _NAME_CELLS = 11, 10
"""Of a cgroup's path, and of the name of a program with page faults, in the short text."""
_NOT_REACHED = ReachedLimit(0)
_REFUTED = "the programs are as slow while si and so of `vmstat 1` are 0 and no cgroup is at its limit"


class _Limit(NamedTuple):
    """The limit whose cgroup reads most pages again, else that was reached most often."""

    limit: MemoryLimit
    hits: int
    reloads: int
    """Pages of files that its cgroup read again; 0: none, or not known."""
    reloading: tuple[Block, ...]
    """The blocks from the first one with some of these on."""

    @property
    def reloads_per_us(self) -> float:
        return self.reloads / max(1, sum(block.span_us for block in self.reloading))


class _Reloads(NamedTuple):
    """Pages of files that are read again, in some blocks: those of the cgroup at its limit, else of all the host."""

    per_us: float
    blocks: tuple[Block, ...]


class _User(NamedTuple):
    """The process with most memory in the cgroup at its limit."""

    program: Program
    used: UsedMemory

    @property
    def resident_bytes(self) -> int:
        """Return its memory on average over the looks."""
        return self.used.resident_bytes // max(self.used.looks, 1)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per host that reads pages again: about its swap device, else about the host."""
    names = {name for block in facts.window for name in block.host_context}
    for host in sorted({name.removesuffix(SWAP_INS) for name in names if name.endswith(SWAP_INS)}):
        for name, least, holds in (
            (SWAP_INS, limits["swapped_in"], _always),
            (REFAULTS, limits["refaults"], _is_short),
            (RELOADS, limits["refaults"], _is_short_in_cgroup),
        ):
            lasted_us = facts.lasted_us(_reads_again(host + name, least))
            if facts.lasts(lasted_us, limits["lasting_us"]) and holds(facts, host, limits):
                yield _finding(facts, host, name, limits)
                break
        else:
            lasted_us = facts.lasted_us(_waits_for_reloads(facts, host, limits))
            if facts.lasts(lasted_us, limits["waiting_us"]) and _is_short_in_cgroup(facts, host, limits):
                yield _finding(facts, host, RELOADS, limits)


def _always(_facts: Facts, _host: str, _limits: Thresholds) -> bool:
    return True


def _reads_again(name: str, least: float) -> Callable[[Block], bool]:
    """Return whether a block has so many pages per second of a value of CONTEXT."""
    return lambda block: _per_s(block.host_context, name) >= least


def _waits_for_reloads(facts: Facts, host: str, limits: Thresholds) -> Callable[[Block], bool]:
    """Return whether a block has reloads, and reads in flight where they come from: of a slow disk few are harm."""
    reads_again = _reads_again(host + RELOADS, limits["slow_reloads"])
    reloads, devices = _reloads(facts, host), _reloading_devices(facts, host)

    def holds(block: Block) -> bool:
        return reads_again(block) and _waited_us(block, devices, reloads) >= limits["waited"] * block.span_us

    return holds


def _reloads(facts: Facts, host: str) -> _Reloads:
    hit = _most_hit(facts, host)
    if hit is not None and hit.reloads:
        return _Reloads(hit.reloads_per_us, hit.reloading)
    value = added(block.host_context for block in facts.window).get(host + RELOADS)
    return _Reloads(0.0 if value is None else value.ratio, facts.window)


def _waited_for(facts: Facts, host: str, limits: Thresholds) -> list[str]:
    """Return the devices whose reads the programs wait for."""
    reloads = _reloads(facts, host)
    least_us = limits["waited"] * sum(block.span_us for block in reloads.blocks)

    def is_waited_for(device: str) -> bool:
        return sum(_waited_us(block, (device,), reloads) for block in reloads.blocks) >= least_us

    return sorted(filter(is_waited_for, _reloading_devices(facts, host)))


def _waited_us(block: Block, devices: Collection[str], reloads: _Reloads) -> float:
    """Return the time of the reads of some devices in a block, added up, of as many as pages are reloaded."""
    waited_us = 0.0
    for name in devices:
        done = block[measurements.KERNEL].get(Flow(name, "read"))
        if done is not None and done.count and done.time_us:
            waited_us += done.time_us * min(1.0, reloads.per_us * block.span_us / done.count)
    return waited_us


def _reading_us(block: Block, devices: Collection[str]) -> int:
    """Return the time of all reads of some devices in a block, added up."""
    reads = (done for flow, done in block[measurements.KERNEL].items() if flow.op == "read" and flow.device in devices)
    return sum(done.time_us or 0 for done in reads)


def _is_short(facts: Facts, host: str, _limits: Thresholds) -> bool:
    """Return whether memory is what lacks: a file that is larger than memory is read again, too."""
    context = added(block.host_context for block in facts.window)
    stalls = context.get(host + STALLS)
    is_stalled = stalls is not None and stalls.ratio >= _LEAST_STALLS
    return is_stalled or _per_s(context, host + RECLAIMS) >= _LEAST_RECLAIMS or _most_hit(facts, host) is not None


def _is_short_in_cgroup(facts: Facts, host: str, limits: Thresholds) -> bool:
    """Return whether a cgroup at its limit is the one that reloads pages, and small reads can be what reloads them.

    Its own counter says so, else that it hits its limit for the pages that are reloaded. A scan of a file that is
    larger than memory reloads it as well, with large reads: more memory helps it only where all of the file fits.
    """
    hit = _most_hit(facts, host)
    if hit is None:
        return False
    if hit.reloads_per_us * 1e6 >= limits["slow_reloads"]:
        return bool(_reloading_devices(facts, host))
    reloads = added(block.host_context for block in facts.window).get(host + RELOADS)
    if reloads is None or hit.hits < _HITS * reloads.total:
        return False
    return sum(_small_reads(facts, host, facts.window).values()) >= _PAGE_BYTES * _HITS * reloads.total


def _small_reads(facts: Facts, host: str, blocks: Sequence[Block]) -> dict[str, int]:
    """Return the bytes that a host's devices read in some blocks, of those with small reads."""
    sizes: dict[str, int] = {}
    for name in facts.devices:
        reads = [done for block in blocks if (done := block[measurements.KERNEL].get(Flow(name, "read"))) is not None]
        count, size = sum(done.count for done in reads), sum(done.bytes for done in reads)
        if host_before(facts, name) == host and count and size <= _SMALL_BYTES * count:
            sizes[name] = size
    return sizes


def _reloading_devices(facts: Facts, host: str) -> frozenset[str]:
    """Return the devices whose small reads can be a good part of the pages of files that are reloaded."""
    reloads = _reloads(facts, host)
    least = _PART * _PAGE_BYTES * reloads.per_us * sum(block.span_us for block in reloads.blocks)
    if not least:
        return frozenset()
    sizes = _small_reads(facts, host, reloads.blocks)
    return frozenset(name for name, size in sizes.items() if size >= least)


def _per_s(context: HostContext, name: str) -> float:
    value = context.get(name)
    return 0.0 if value is None else value.ratio * 1e6


def _most_hit(facts: Facts, host: str) -> _Limit | None:
    """Return the limit of the cgroup that reads most pages again, else the one that was reached most often.

    None where none was reached, or where that isn't known.
    """
    return facts.once(("limit of memory", host), lambda: _limit_of(facts, host))


def _limit_of(facts: Facts, host: str) -> _Limit | None:
    rows = {row: seen for row, seen in facts[measurements.MEMORY_LIMITS].items() if row.cgroup.startswith(host)}
    if not rows:
        return None
    limit = max(rows, key=lambda row: (rows[row].reloads, rows[row].hits))
    has_reloads = [bool(block[measurements.MEMORY_LIMITS].get(limit, _NOT_REACHED).reloads) for block in facts.window]
    reloading = facts.window[has_reloads.index(True) :] if any(has_reloads) else ()
    return _Limit(limit, rows[limit].hits, rows[limit].reloads, reloading)


def _most_faults(facts: Facts, host: str, hit: _Limit | None) -> Mapping[str, int]:
    """Return the process with most major faults -> their number, of the cgroup at its limit where that has some.

    Empty where that isn't known.
    """
    rows = {row: n for row, n in facts[measurements.MAJOR_FAULTS].items() if row.cgroup.startswith(host)}
    of_cgroup = {row: n for row, n in rows.items() if hit is not None and row.cgroup == hit.limit.cgroup}
    rows = of_cgroup or rows
    if not rows:
        return {}
    process = max(rows, key=lambda row: rows[row])
    return {process.process: rows[process]}


def _faults_for_reloads(hit: _Limit | None, faulting: Mapping[str, int]) -> bool:
    """Return whether the process waits in page faults for the reloaded pages: it has mapped the files."""
    return hit is not None and hit.reloads > 0 and sum(faulting.values()) >= _OF_FAULTS * hit.reloads


def _largest_user(facts: Facts, hit: _Limit | None) -> _User | None:
    """Return the process with most memory in the cgroup at its limit; None where that isn't known.

    A page that is mapped several times is in its resident set as often: above the limit that says nothing.
    """
    if hit is None:
        return None
    rows = {row: used for row, used in facts[measurements.MEMORY_USERS].items() if row.cgroup == hit.limit.cgroup}
    if not rows:
        return None
    row = max(rows, key=lambda row: rows[row].resident_bytes)
    user = _User(program_of(row.process), rows[row])
    return user if user.resident_bytes <= hit.limit.limit_bytes else None


def _swap_devices(facts: Facts, host: str) -> list[str]:
    """Return the host's devices with a swap area, that with most I/Os first."""
    names = [name for name, device in facts.devices.items() if swap_of(device) and host_before(facts, name) == host]
    return sorted(names, key=lambda name: -_ios(facts, name))


def _ios(facts: Facts, name: str) -> int:
    completed = facts.completed(name)
    return 0 if completed is None else completed.count


def _finding(facts: Facts, host: str, name: str, limits: Thresholds) -> Finding:
    context = added(block.host_context for block in facts.window)
    per_s = _per_s(context, host + name)
    # of one device as long as swap takes part, so that want of memory whose pages come from both is one finding
    is_swapping = _per_s(context, host + SWAP_INS) >= _STILL_SWAPS * limits["swapped_in"]
    devices = _swap_devices(facts, host) if name == SWAP_INS or is_swapping else []
    device = devices[0] if devices else ""
    hit = _most_hit(facts, host)
    faulting = _most_faults(facts, host, hit)
    if name == RELOADS and hit is not None and hit.reloads:
        per_s = hit.reloads_per_us * 1e6
    reloading = _waited_for(facts, host, limits) if name == RELOADS else []
    pages = "pages/s are read again from swap" if name == SWAP_INS else "pages/s of files are read again"
    about = f"{device}: " if device and name == SWAP_INS else host.replace(HOST_SEPARATOR, ": ")
    summary = f"{about}{rate(per_s)} {pages}, for want of memory"
    if hit is not None:
        summary += f"; cgroup {_cgroup(hit.limit, host)} is at its limit of {show_size(hit.limit.limit_bytes)}"
    user = _largest_user(facts, hit)
    if user is not None:
        summary += f", where {user.program.text} has {show_size(user.resident_bytes)}"
    for process in faulting:
        is_mapped = _faults_for_reloads(hit, faulting)
        how = "waits in page faults, for pages of its mapped files" if is_mapped else "waits most"
        summary += f"; {program_of(process).text} {how}"
    return Finding(
        id=ID,
        severity=WARNING,
        device=device or host,
        summary=summary,
        facts=tuple(_facts(facts, host, context, hit, faulting)),
        where=Where("overview", device),
        steps=tuple(_steps(hit, host, name)),
        refuted_by=_REFUTED,
        share=_share(facts, host, context, devices),
        also=tuple(dict.fromkeys((*devices[1:], *reloading))),
        short=short_text(device or host.rstrip(HOST_SEPARATOR), *_short_clauses(per_s, pages, hit, host, faulting)),
    )


def _short_clauses(
    per_s: float, pages: str, hit: _Limit | None, host: str, faulting: Mapping[str, int]
) -> Iterator[str]:
    """Yield the verdict and the clauses of the short text: of a cgroup at its limit first, since that is the cause."""
    if hit is None:
        yield f"{rate(per_s)} {pages}"
        yield ", for want of memory"
    elif _faults_for_reloads(hit, faulting) and not host:
        cgroup, size = path_end(_cgroup(hit.limit, host), _CGROUP_CELLS), show_size(hit.limit.limit_bytes)
        program = program_of(next(iter(faulting)))
        yield f"{within(program.name or 'a program', _NAME_CELLS)} waits in page faults"
        yield f": cgroup {cgroup} at its {size} limit"
        return
    else:
        cgroup = path_end(_cgroup(hit.limit, host), _CGROUP_CELLS)
        yield f"cgroup {cgroup} at its memory limit of {show_size(hit.limit.limit_bytes)}"
        yield f": {rate(per_s)} pages/s read again"
    for process in faulting:
        yield f"; {within(program_of(process).name or 'a program')} waits"


def _cgroup(limit: MemoryLimit, host: str) -> str:
    return limit.cgroup.removeprefix(host)


def _share(facts: Facts, host: str, context: HostContext, devices: Collection[str]) -> float:
    """Return the share of the time in which tasks waited: by PSI, or as far as reads of these devices were in flight.

    The stalls of a cgroup at its own limit are hardly in those of the host.
    """
    reloads, reloading = _reloads(facts, host), _reloading_devices(facts, host)
    waited_us = sum(
        _reading_us(block, devices) if devices else _waited_us(block, reloading, reloads) for block in facts.window
    )
    in_flight = waited_us / max(1, facts.span_us)
    return min(1.0, max(_stalled(context, host) or 0.0, in_flight))


def _stalled(context: HostContext, host: str) -> float | None:
    value = context.get(host + STALLS)
    return None if value is None else min(1.0, value.ratio)


def _facts(
    facts: Facts, host: str, context: HostContext, hit: _Limit | None, faulting: Mapping[str, int]
) -> Iterator[Fact]:
    for name in (SWAP_INS, SWAP_OUTS, REFAULTS, RELOADS, RECLAIMS):
        if host + name in context:
            per_s = _per_s(context, host + name)
            yield Fact(name, round(per_s, 1), f"{CONTEXT[name].title}: {CONTEXT[name].text(per_s)}", "per_s")
    stalled = _stalled(context, host)
    if stalled is not None:
        yield Fact("stalled", round(stalled, 3), f"a task waited for memory {part(stalled)} of the time (PSI)", "share")
    if hit is not None:
        limit = f"memory.{hit.limit.kind}" if hit.limit.kind != "max" else "memory.max (version 1: limit_in_bytes)"
        size = show_size(hit.limit.limit_bytes)
        text = f"cgroup {_cgroup(hit.limit, host)} reached its {limit} of {size} {hit.hits:,} times"
        yield Fact("limit_hits", hit.hits, text)
        if hit.reloads:
            text = f"it reads {rate(hit.reloads_per_us * 1e6)} pages of files a second again, by its own counter"
            yield Fact("cgroup_reloads", round(hit.reloads_per_us * 1e6, 1), text, "per_s")
    user = _largest_user(facts, hit)
    if user is not None:
        grown = f", {show_size(user.used.grown_bytes)} more than before" if user.used.grown_bytes else ""
        text = f"{user.program.text} has most of its memory: {show_size(user.resident_bytes)}{grown}"
        yield Fact("largest", user.resident_bytes, text, "bytes")
    for process, faults in faulting.items():
        yield Fact(
            "major_faults", faults, f"{program_of(process).text} waited for {faults:,} pages to be read (major faults)"
        )
    for name in _swap_devices(facts, host):
        latency = facts.latency(name, "read")
        where = swap_of(facts.device(name))
        area = "all of it is swap" if where == WHOLE else f"swap on {where}"
        mean = "" if latency.mean is None else f"; a read takes {latency.mean / 1000:.3g} ms on average"
        yield Fact(f"swap_{name}", where, f"{name}: {area}{mean}")


def _steps(hit: _Limit | None, host: str, name: str) -> Iterator[Step]:
    yield Step(
        "see who uses the memory, and which processes wait for pages",
        commands=("ps -eo pid,rss,maj_flt,comm --sort=-rss | head -n 15",),
    )
    if hit is not None:
        size = show_size(hit.limit.limit_bytes)
        yield Step(
            f"give cgroup {_cgroup(hit.limit, host)} more memory than {size}, or its programs smaller caches, heaps or "
            "fewer workers",
            "others have less memory",
        )
    else:
        yield Step(
            "stop or move what takes the memory, or limit it in a cgroup of its own (memory.high), or add memory",
            "what is limited gets slower",
        )
    if name == SWAP_INS:
        yield Step(
            "don't tune the swap device: a faster one, or zram, makes the wait shorter, not the memory larger",
            "zram takes CPU time and some of the memory",
        )


RULE = Rule(
    ID,
    "memory is short, so that pages are read again that were taken from programs",
    evaluate,
    needs=MEMORY,
    thresholds={
        "swapped_in": Threshold(100.0, "pages", "per second are read from swap at least"),
        "refaults": Threshold(500.0, "pages", "of files per second are read again at least, beside more evidence"),
        "slow_reloads": Threshold(20.0, "pages", "of files per second are read again at least, where programs wait"),
        "waited": Threshold(0.25, "ios", "reads in flight on average from which on programs wait for them"),
        "lasting_us": Threshold(12_000_000, "us", "of the last minute, or 30 % of that all the time from the start"),
        "waiting_us": Threshold(8_000_000, "us", "they wait so, where a cgroup is at its limit, or 30 % as above"),
    },
)


def is_measured(block: Block) -> bool:
    """Return whether a block has the host's pages that were read again."""
    return any(name.endswith((SWAP_INS, REFAULTS)) for name in block.host_context)
