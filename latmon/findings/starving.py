"""I/Os of a device that wait, or waited, while many others were completed: which, and how many there are of them.

Only the oldest and the slowest are told one by one, so they are counted by what counts all: what is in flight by ages,
what was completed by its histograms. Where neither says it, the count is a least one. Knows the thresholds of
starved-io, and no words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.rule import Thresholds
from latmon.findings.silence import OPS
from latmon.histogram import bucket_bounds
from latmon.model import Outlier

_HELD = ("queue", "requeue", "hba")
_S = 1_000_000


class Starved(NamedTuple):
    """One I/O that still waits, or did."""

    age_us: int
    op: str
    overtaken: int
    waits: bool
    above: bool | None
    """Held in the block layer; None: not known."""
    comm: str = ""
    pid: int | None = None
    sector: int | None = None
    later: bool = True
    """Those that overtook it came later; else some of them may have been in flight when it came."""


class Number(NamedTuple):
    """How many are starved, and how many of them wait still."""

    ios: int
    waiting: int
    at_least: bool
    """There may be more."""

    @property
    def said(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.ios:,}"


def starved_of(facts: Facts, name: str, limits: Thresholds) -> list[Starved]:
    """Those that are told one by one, the one that waited longest first."""
    usual = facts.latency(name).quantile(0.99)
    if usual is None:
        return []
    each = (*_waiting(facts, name), *_completed(facts, name, limits))
    return sorted((one for one in each if _is_starved(one, usual, limits)), key=lambda one: -one.age_us)


def number_of(facts: Facts, name: str, starved: Sequence[Starved], limits: Thresholds) -> Number:
    """Of all of them; `starved` are those that are told."""
    usual = facts.latency(name).quantile(0.99) or 0
    waiting = sum(one.waits for one in starved)
    now, more = _still(facts, waiting, limits, usual) if waiting else (0, False)
    done, others = _done(facts, name, len(starved) - waiting, limits, usual) if waiting < len(starved) else (0, False)
    return Number(now + done, now, more or others)


def _is_starved(one: Starved, usual: int, limits: Thresholds) -> bool:
    return one.op in OPS and one.age_us >= _least(one.op, usual, limits) and one.overtaken >= limits["overtaken"]


def _least(op: str, usual: int, limits: Thresholds) -> float:
    return max(limits["flush_us" if op == "flush" else "age_us"], limits["times"] * usual)


def _waiting(facts: Facts, name: str) -> Iterator[Starved]:
    for one in facts.waiting:
        r = one.request
        if one.device == name and r is not None:
            passed = _since(facts, name, one.age_us) if r.overtaken_by is None else r.overtaken_by
            above = None if r.issued is None else not r.issued
            later = r.overtaken_by is not None
            yield Starved(one.age_us, r.op, passed, True, above, r.comm, r.pid, r.sector, later)


def _completed(facts: Facts, name: str, limits: Thresholds) -> Iterator[Starved]:
    for one in facts.outliers(name):
        if one.overtaken_by is not None and _is_held(one, limits):
            age_us = one.total_us - one.stages_us.get("resume", 0)
            queue = one.stages_us.get("queue", 0) + one.stages_us.get("requeue", 0)
            above = queue >= one.stages_us.get("hba", 0) if one.stages_us else None
            yield Starved(age_us, one.op, one.overtaken_by, False, above, one.comm, one.pid, one.sector)


def _is_held(one: Outlier, limits: Thresholds) -> bool:
    """By what is above the completion, as far as its stages are known."""
    held = sum(one.stages_us.get(stage, 0) for stage in _HELD)
    return not one.stages_us or held >= limits["held"] * one.total_us


def _since(facts: Facts, name: str, age_us: int) -> int:
    """All completions in the blocks that began since then: a few of those may have been in flight before it."""
    began = facts.end_us - age_us
    return sum(
        done.count
        for b in facts.blocks
        if b.begin_us >= began
        for flow, done in b.kernel.items()
        if flow.device == name
    )


def _still(facts: Facts, listed: int, limits: Thresholds, usual: int) -> tuple[int, bool]:
    """Of those that wait: ages are counted for all devices together, so only where none but these are listed."""
    older, rows = facts.older, [one for one in facts.waiting if one.age_us > _S]
    if older.get(1, 0) <= sum(one.count for one in rows):
        return listed, False
    counted = [n for s, n in older.items() if s * _S >= _least("read", usual, limits)]
    n = max((*counted, listed)) if listed == len(rows) else listed
    return n, n < older.get(1, 0)


def _done(facts: Facts, name: str, listed: int, limits: Thresholds, usual: int) -> tuple[int, bool]:
    """Of those that were completed: histograms have them all, and not who overtook them."""
    told = {
        (one.op, one.overtaken_by is not None and _is_held(one, limits)) for one in _long(facts, name, limits, usual)
    }
    certain = possible = 0
    for op in OPS:
        for index, n in facts.latency(name, op).buckets:
            low, high = bucket_bounds(index, facts.latency(name, op).bits)
            possible += n if high > _least(op, usual, limits) else 0
            certain += n if low >= _least(op, usual, limits) else 0
    if any(not held for _, held in told):
        return listed, possible > listed
    n = max(certain, listed)
    return n, possible > n


def _long(facts: Facts, name: str, limits: Thresholds, usual: int) -> Iterable[Outlier]:
    return (one for one in facts.outliers(name) if one.op in OPS and one.total_us >= _least(one.op, usual, limits))
