"""BPF run time per I/O: latmon's always-on probe beside a plain (dev, sector) biolatency that runs at the same time.

The program that comes first on a tracepoint pays for the cold caches, so both orders are run and averaged.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import bpf_stats
from disks import Load, file_on_disk, iops, loops
from figures import Figure, Section
from tracing import BIOLATENCY, BIOSNOOP, Script, always_on, ns_per_io, running, tools

from latmon_backends.bpftrace.program import BpftraceTool

LIMITS = {"A": 0.75, "C": 1.25}
VERSION_OF = {"A": "0.23", "C": "0.17"}
"""The bpftrace that gives this host that tier."""


@dataclass(slots=True)
class Pair:
    """A probe of latmon's and its peer, with what each round gave: ns per I/O, the mean of both orders."""

    tier: str
    probe: Script
    peer: Script
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    programs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, load: Load) -> None:
        both = [self._together(load, (self.probe, self.peer)), self._together(load, (self.peer, self.probe))]
        self.ours.append(mean(ours for ours, _ in both))
        self.theirs.append(mean(theirs for _, theirs in both))

    def _together(self, load: Load, order: tuple[Script, Script]) -> tuple[float, float]:
        with running(order[0]) as first, running(order[1]) as second:
            first.begin()
            second.begin()
            iops(load)
            spent = {one.script.name: one.spent() for one in (first, second)}
        for script, programs in spent.items():
            for name, one in programs.items():
                self.programs[f"{script}: {name}"].append(one.ns / one.runs)
        return ns_per_io(spent[self.probe.name]), ns_per_io(spent[self.peer.name])

    def figures(self) -> list[Figure]:
        ratios = tuple(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))
        limit = LIMITS[self.tier] if self.peer.name == "biolatency" else None
        each = ", ".join(f"{name} {median(values):.0f}" for name, values in sorted(self.programs.items()))
        return [
            Figure(self.probe.label, tuple(self.ours), "ns/IO"),
            Figure(f"... beside it: {self.peer.label}", tuple(self.theirs), "ns/IO", note=each),
            Figure("... latmon / peer", ratios, "x", limit, 2),
        ]


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    """A section per disk."""
    found = tools(scratch)
    with bpf_stats.counted():
        for disk, target in (("a loop device on memory", one_loop()), ("a file on a virtual disk", file_on_disk(256))):
            with target as path:
                pairs = _pairs(found)
                for _ in range(rounds):
                    for pair in pairs:
                        pair.run(Load(path))
            yield _section(disk, pairs)


@contextlib.contextmanager
def one_loop() -> Iterator[str]:
    """Path of a fast disk."""
    with loops(1, 512) as paths:
        yield paths[0]


def _pairs(found: dict[str, BpftraceTool]) -> list[Pair]:
    """Per tier: the peer on the same version, on the other, and the per-event one."""
    pairs = []
    for tier, version in VERSION_OF.items():
        other = next(one for one in found if one != version)
        probe = always_on(tier, found[version])
        pairs += [Pair(tier, probe, Script("biolatency", found[one], BIOLATENCY)) for one in (version, other)]
        pairs.append(Pair(tier, probe, Script("biosnoop", found[version], BIOSNOOP)))
    return pairs


def _section(disk: str, pairs: list[Pair]) -> Section:
    return Section(
        title=f"BPF run time per I/O, {disk}",
        method=(
            "fio, 4 KiB random reads and writes, 32 in flight, 3 s. Both scripts are attached at the same time, and"
            " each run is the mean of both orders of starting them. All programs of a script together, per run of"
            " the busiest one: the kernel's run_time_ns and run_cnt. The peer keeps a start per (dev, sector) and one"
            " histogram per device; latmon counts queue and device time, bytes and maxima per device and op."
        ),
        figures=[figure for pair in pairs for figure in pair.figures()],
        remarks=[
            "The last column: each program's own ns per run.",
            "biosnoop prints a line per I/O; what bpftrace spends on formatting it is not in these figures.",
        ],
    )
