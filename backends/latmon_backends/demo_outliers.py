"""The demo's outliers: the slowest of its I/Os one by one, as many as a rate limit lets through. Draws no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from latmon.histogram import bucket_bounds
from latmon.model import Flow, Frame, Outlier, Wait
from latmon_backends.demo_splits import Load, Split

THRESHOLDS_US = {name: 2_000 if name.startswith("nvme") else 40_000 for name in (
    "nvme0n1", "nvme1n1", "sda", "sdb", "sdc", "sdd", "sde", "sdf",
)}  # fmt: skip
PER_WINDOW = 40
PROGRAMS = {
    "nvme0n1": ("postgres", 4211),
    "nvme1n1": ("mongod", 4630),
    "sdd": ("ora_lgwr", 5102),
    "sdf": ("oracle", 5140),
}
BACKUP = ("backup", 7781)
COMPLETER = "mpt3sas_cmpl"
COMPLETER_PID = 388
HOG = "rt-logger (prio 49)"
_FLAGS = {"read": (), "write": ("sync",), "flush": ("sync", "preflush"), "discard": ("background",)}
_CPUS = 8
_WAKING_US = 15


class Told(NamedTuple):
    """`above` counts every I/O above its threshold, `suppressed` those of them that have no row."""

    outliers: tuple[Outlier, ...]
    above: dict[Flow, int]
    suppressed: int


def told(rng: Random, frame: Frame, loads: Iterable[Load]) -> Told:
    """The window's outliers in the order in which they began."""
    found: list[tuple[Load, Split]] = []
    above: dict[Flow, int] = {}
    for load in loads:
        slow = [one for one in load.splits if one.total > THRESHOLDS_US[load.drawn.flow.device]]
        if slow:
            above[load.drawn.flow] = sum(one.size for one in slow)
            found += [(load, one) for one in slow for _ in range(one.size)]
    let_through = sorted(found, key=lambda _: rng.random())[:PER_WINDOW]
    rows = sorted((_outlier(rng, frame, *one) for one in let_through), key=lambda one: one.mono_us)
    return Told(tuple(rows), above, len(found) - len(rows))


def _outlier(rng: Random, frame: Frame, load: Load, split: Split) -> Outlier:
    device, op = load.drawn.flow
    done_us = frame.mono_us - int(rng.random() * frame.dt_us)
    begun_us = done_us - split.total
    stages = split.stages()
    comm, pid = PROGRAMS.get(device, BACKUP)
    waits = tuple(_waits(split, begun_us))
    resume = _resume(rng, load)
    if resume:
        stages["resume"] = resume
        waits = (*waits, Wait("resume", comm, pid, 120, done_us, resume))
    return Outlier(
        wall=frame.wall - (frame.mono_us - begun_us) / 1e6,
        mono_us=begun_us,
        device=device,
        op=op,
        total_us=split.total + resume,
        stages_us=stages,
        unaccounted_us=split.unaccounted,
        flags=_FLAGS.get(op, ()),
        sector=8 * int(rng.random() * 2**31),
        bytes=load.drawn.sizes[rng.random() < 0.06],  # noqa: PLR2004 - the host's share of large ones
        pid=pid,
        comm=comm,
        cpu_issue=int(rng.random() * _CPUS),
        cpu_complete=1 + ord(device[-1]) % (_CPUS - 1),
        outstanding_at_issue=int(rng.random() * (2 + load.drawn.hba.count / 200)),
        overtaken_by=int(split.total * load.drawn.hba.count / frame.dt_us * rng.random()),
        path=split.path,
        waits=waits,
    )


def _waits(split: Split, begun_us: int) -> Iterator[Wait]:
    """Whom a request waited for behind its interrupt."""
    if split.completion is not None:
        woken_us = begun_us + split.queue + (split.hba or 0) + (split.irq or 0)
        delay_us = max(0, split.completion - _WAKING_US)
        yield Wait("completion", COMPLETER, COMPLETER_PID, 120, woken_us, delay_us, HOG)


def _resume(rng: Random, load: Load) -> int:
    """One of those that were drawn."""
    if not load.resume:
        return 0
    index, _ = load.resume.buckets[int(rng.random() * len(load.resume.buckets))]
    return load.resume.cap(bucket_bounds(index)[0])
