"""small-random-writes: most of the time of a slow device is in small writes that are not sequential.

A disk that rotates moves its head for each of them, some 8 ms, and a parity RAID reads before it writes; so either
completes some hundreds per second. A device counts as slow by what it completes while such writes are in flight. The
kernel's flag of rotation is a fact of the finding and not a condition, because virtual disks and volumes of RAID
controllers often have it. No finding: small writes that are sequential, or merged into larger ones; a cache that takes
them at once; a fast device that has many; writes that were quick earlier in the same minute; reads that take the time;
a device whose I/Os a thread of this host does (loop), while programs wait for CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis.limits import number
from latmon.findings.evidence import (
    ELSEWHERE,
    WHOLE,
    explained_by_locks,
    files_facts,
    hardware_steps,
    host_before,
    limit_values,
    swap_of,
    waits_elsewhere,
)
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    NOTICE,
    PATTERNS,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    short_text,
)
from latmon.findings.same_load import were_quick
from latmon.model import measurements
from latmon.model.devices import thread_of
from latmon.model.frame import FILE_OPS, Flow
from latmon.model.histogram import merge
from latmon.model.host_context import added
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.sizes import SizeClass
from latmon.support.units import part, spelled

ID = "small-random-writes"
_SMALL = 16_384
"""Bytes: the pages of databases and file systems, 4 to 16 KiB; a stripe of a RAID has 64 KiB or more."""
_OF_THE_WRITES = 0.75
"""Least part of all writes that are small: what is known of the pattern is of writes of any size."""
_REFUTED = (
    "the same writes are as slow in order of their sectors, or a device with a cache that survives a power failure is "
    "as slow"
)
_HARDWARE = (
    Step(
        "turn on the write cache of the controller, if a battery or flash keeps it, or of the array",
        "without battery or flash, data that was synced is lost when the power fails",
    ),
    Step("give the file system a journal on another device"),
    Step("move these files to an SSD, or from RAID 5 or 6 to RAID 10: parity takes two reads and two writes each"),
)


class _Small(NamedTuple):
    """The small writes of a device in the window, as far as they were traced."""

    device: str
    writes: IssuedIO
    share: float
    """Of the time of all traced I/Os of the device."""
    sequential: float
    """Share of the writes, of any size, that began where another one had ended."""
    waiting: float
    """Mean number of them in flight."""
    iops: float
    """All completed I/Os of the device per second."""
    rotates: bool | None


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device."""
    by_device: dict[str, dict[SizeClass, IssuedIO]] = {}
    for row, done in facts[measurements.SIZES].items():
        by_device.setdefault(row.device, {})[row] = done
    for name in sorted(by_device):
        if swap_of(facts.device(name)) == WHOLE:
            continue  # the kernel writes its pages one by one, wherever there is room
        if _waits_for_cpus(facts, name, limits):
            continue
        small = _small(facts, name, by_device[name])
        if small is not None and _is_slow(small, limits) and not were_quick(facts, name, "write"):
            yield _finding(facts, small)


def _waits_for_cpus(facts: Facts, name: str, limits: Thresholds) -> bool:
    """Return whether a thread of this host does the device's I/Os and CPUs are short: its writes may wait for that."""
    device = facts.device(name)
    pressure = added(block.host_context for block in facts.window).get(host_before(facts, name) + "psi_cpu_some")
    is_short = pressure is not None and pressure.ratio >= limits["cpu"]
    return is_short and bool(thread_of(name, device.driver))


def _small(facts: Facts, name: str, sizes: dict[SizeClass, IssuedIO]) -> _Small | None:
    """Return the small writes; None where they are few of the writes, or their pattern or time is not known."""
    writes = {row: done for row, done in sizes.items() if row.op == "write"}
    small_writes = [done for row, done in writes.items() if 0 < row.upto <= _SMALL]
    pattern = facts[measurements.PATTERNS].get(Flow(name, "write"))
    completed = facts.completed(name)
    every_us = sum(done.latency.sum or 0 for done in sizes.values())
    count = sum(done.count for done in small_writes)
    unknown = pattern is None or not pattern.issued or completed is None or not facts.span_us
    if unknown or not every_us or count < _OF_THE_WRITES * sum(done.count for done in writes.values()):
        return None
    assert pattern is not None  # noqa: S101  for the type checker
    assert completed is not None  # noqa: S101
    small = IssuedIO(count, sum(done.bytes for done in small_writes), merge(done.latency for done in small_writes))
    share = (small.latency.sum or 0) / every_us
    in_flight = facts.latency(name).nearest_sum / facts.span_us
    rotates = number(limit_values(facts.device(name)).get("rotational", ""))
    return _Small(
        name,
        small,
        share,
        pattern.sequential / pattern.issued,
        share * in_flight,
        completed.count * 1e6 / facts.span_us,
        None if rotates is None else bool(rotates),
    )


def _is_slow(small: _Small, limits: Thresholds) -> bool:
    """Return whether they are most of what a slow device does."""
    return (
        small.writes.latency.count >= limits["ios"]
        and small.share >= limits["share"]
        and small.sequential <= limits["sequential"]
        and small.waiting >= limits["waiting"]
        and (small.writes.latency.mean or 0) >= limits["mean_us"]
        and small.iops <= limits["iops"]
    )


def _finding(facts: Facts, small: _Small) -> Finding:
    latency = small.writes.latency
    return Finding(
        id=ID,
        severity=NOTICE,
        device=small.device,
        summary=f"{small.device}: {part(small.share)} of the time of its I/Os is in writes of 16 KiB or less that "
        "are not "
        f"sequential; they take {spelled(latency.mean or 0)} on average",
        facts=(*_facts(small), *files_facts(facts, small.device, FILE_OPS)),
        where=Where("stages", small.device),
        steps=tuple(_steps(facts, small.device)),
        refuted_by=_REFUTED,
        share=small.share,
        short=short_text(
            small.device,
            f"{part(small.share)} of its I/O time is in small random writes",
            f", {spelled(latency.mean or 0)} each",
        ),
        explained_by=explained_by_locks(facts, small.device),
    )


def _facts(small: _Small) -> Iterator[Fact]:
    latency, count = small.writes.latency, small.writes.latency.count
    yield Fact("share", round(small.share, 3), f"{part(small.share)} of the time of all I/Os is theirs", "share", count)
    text = f"{part(small.sequential)} of the writes began where another one had ended"
    yield Fact("sequential", round(small.sequential, 3), text, "share")
    mean = round(small.writes.bytes / max(small.writes.count, 1))
    yield Fact("bytes", mean, f"they have {mean:,} bytes on average", "bytes", small.writes.count)
    yield from duration_facts(
        ("mean_us", latency.mean, "one takes {} on average", count),
        ("p99_us", latency.quantile(0.99), "p99: {}", count),
    )
    yield Fact("waiting", round(small.waiting, 2), f"{small.waiting:.2g} of them are in flight, on average")
    its = {True: "it rotates", False: "it does not rotate", None: "whether it rotates is not known"}[small.rotates]
    yield Fact("iops", round(small.iops), f"the device completes {small.iops:,.0f} I/Os per second; {its}", "per_s")


def _steps(facts: Facts, device: str) -> Iterator[Step]:
    yield Step("see the sizes and who writes: screen 2, Enter on the device; screen 7")
    yield Step("let the program write larger or sequential pieces: a log, a batch, fewer syncs")
    if waits_elsewhere(facts, device, FILE_OPS):
        yield ELSEWHERE
    else:
        yield from hardware_steps(facts, device, _HARDWARE)


RULE = Rule(
    ID,
    "most of the time of a slow device is in small writes that are not sequential",
    evaluate,
    needs=PATTERNS,
    thresholds={
        "share": Threshold(0.5, "share", "of the time of the device's I/Os is in writes of 16 KiB or less, at least"),
        "sequential": Threshold(0.25, "share", "of the writes begins where another one ended, at most"),
        "mean_us": Threshold(1_000, "us", "such a write takes at least, on average: a cache takes less"),
        "waiting": Threshold(0.5, "ios", "such writes in flight at least, on average"),
        "iops": Threshold(1_000, "ios", "of all kinds completes the device per second at most; a disk 100 to 400"),
        "cpu": Threshold(0.5, "share", "of the time a program waits for a CPU (PSI): then a loop device may, too"),
        "ios": Threshold(100, "ios", "such writes traced in the window at least"),
    },
    explained_by=("completion-wakeup", "starved-io", "io-throttled", "swap-thrash"),
)
