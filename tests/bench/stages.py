"""Cost of tracing all stages: BPF run time per I/O beside a plain latency map and a printed line per I/O, and IOPS.

The deep probes run without their budget here. The program that comes first on a tracepoint pays for the cold caches, so
both orders are run and averaged.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, median

import bpf_stats
from cost import VERSION_OF, one_loop
from disks import Load, file_on_disk
from disks import iops as load_iops
from figures import Figure, Section
from throughput import Watcher, recording
from tracing import BIOLATENCY, BIOSNOOP, PLAIN_MAP, Script, on_demand, running, tools

from latmon_backends.bpftrace.program import BpftraceTool

LIMIT = 3.0
LOST_LIMIT = 3.0
_GROUPS = (
    ("stages",),
    ("inflight", "stages"),
    ("stages", "order"),
    ("inflight", "stages", "irqs", "softirqs", "wakeups", "order"),
)
_PEERS = {"A": PLAIN_MAP, "C": BIOLATENCY}


@dataclass(slots=True)
class Pair:
    """Deep probes and the peer that ran at the same time: ns per I/O that the peer saw, the mean of both orders."""

    probe: Script
    peer: Script
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    programs: dict[str, list[float]] = field(default_factory=dict)

    def run(self, load: Load) -> None:
        both = [self._together(load, order) for order in ((self.probe, self.peer), (self.peer, self.probe))]
        self.ours.append(mean(ours for ours, _ in both))
        self.theirs.append(mean(theirs for _, theirs in both))

    def _together(self, load: Load, order: tuple[Script, Script]) -> tuple[float, float]:
        with running(order[0]) as first, running(order[1]) as second:
            first.begin()
            second.begin()
            load_iops(load)
            spent = {one.script.name: one.each() for one in (first, second)}
        completed = max(one.runs for _, one in spent[self.peer.name])
        for name, one in spent[self.probe.name]:
            self.programs.setdefault(name, []).append(one.ns / completed)
        ours, theirs = (sum(one.ns for _, one in spent[script.name]) for script in (self.probe, self.peer))
        return ours / completed, theirs / completed

    def figures(self, limit: float | None) -> list[Figure]:
        ratios = tuple(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))
        each = ", ".join(f"{name} {median(values):.0f}" for name, values in sorted(self.programs.items()))
        return [
            Figure(self.probe.label, tuple(self.ours), "ns/IO", note=each),
            Figure(f"... beside it: {self.peer.label}", tuple(self.theirs), "ns/IO"),
            Figure("... latmon / peer", ratios, "x", limit, 2),
        ]


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    """Run time on a fast disk, then IOPS on a virtual disk and on the fast one."""
    found = tools(scratch)
    yield _run_time(found, rounds)
    names = (scratch / f"stages-{number}.latmon.jsonl.gz" for number in itertools.count())
    for disk, target, limit in (
        ("a file on a virtual disk", file_on_disk(256), LOST_LIMIT),
        ("a loop device on memory", one_loop(), None),
    ):
        with target as path:
            yield _throughput(disk, _watchers(found, names), path, rounds, limit)


def _run_time(found: dict[str, BpftraceTool], rounds: int) -> Section:
    # Tier C has no inflight: what is left of two choices is one.
    each = {
        script.name: (Pair(script, Script("plain map", found[version], _PEERS[tier])), groups)
        for tier, version in reversed(VERSION_OF.items())
        for groups in reversed(_GROUPS)
        for script in (on_demand(tier, found[version], groups),)
    }
    pairs = list(each.values())[::-1]
    snoops = [
        Pair(Script("biosnoop", found[version], BIOSNOOP), Script("plain map", found[version], _PEERS[tier]))
        for tier, version in VERSION_OF.items()
    ]
    with bpf_stats.counted(), one_loop() as path:
        for _ in range(rounds):
            for pair in (*(pair for pair, _ in pairs), *snoops):
                pair.run(Load(path))
    figures = [one for pair, groups in pairs for one in pair.figures(LIMIT if groups == ("stages",) else None)]
    return Section(
        title="BPF run time of the deep probes, a loop device on memory",
        method=(
            "fio, 4 KiB random reads and writes, 32 in flight, 3 s for each order of the two; run_time_ns of all"
            " programs for each completed I/O. The plain map keeps a start per request and has one histogram"
            " (tier A: by request pointer, tier C: by device and sector)."
        ),
        figures=[*figures, *(one for snoop in snoops for one in snoop.figures(None))],
        remarks=("The budget is off, as with --stages all.",),
    )


def _watchers(found: dict[str, BpftraceTool], names: Iterator[Path]) -> list[Watcher]:
    watchers = [Watcher("nothing (the noise)", contextlib.nullcontext)]
    for tier, version in VERSION_OF.items():
        tool = found[version]
        for stages in ("basic", "all"):
            name = f"latmon tier {tier}, recording, --stages {stages}"
            watchers.append(Watcher(name, partial(recording, tool, names, "--stages", stages)))
        watchers.append(Watcher(f"peer: biosnoop, bpftrace {tool.version}", partial(running, _snoop(tool))))
    return watchers


def _snoop(tool: BpftraceTool) -> Script:
    return Script("biosnoop", tool, BIOSNOOP)


def _throughput(disk: str, watchers: list[Watcher], path: str, rounds: int, limit: float | None) -> Section:
    for number in range(rounds):
        for watcher in watchers:
            watcher.run(Load(path), watched_first=number % 2 == 1)
    return Section(
        title=f"IOPS lost by tracing all stages, {disk}",
        method=(
            "fio, 4 KiB random reads and writes, 32 in flight, 3 s with and 3 s without the watcher, one right after"
            " the other, the order alternating. A negative figure is noise."
        ),
        figures=[watcher.figure(limit if watcher.name.endswith("all") else None) for watcher in watchers],
        remarks=("The budget is off, as with --stages all.",),
    )
