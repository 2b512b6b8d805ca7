"""BPF run time per I/O: latmon's probes beside a plain latency map that runs at the same time.

The program that comes first on a tracepoint pays for the cold caches, so both orders are run and averaged.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from disks import Load, loops, mounted, run
from figures import Figure, Section
from tracing import (
    BIOLATENCY,
    BIOSNOOP,
    BIOTOP,
    FILESLOWER,
    PLAIN_MAP,
    Script,
    always_on,
    counted,
    on_demand,
    running,
    tools,
)

from latmon.model.frame import FILES
from latmon_backends.bpftrace.program import BpftraceTool

VERSION_OF = {"A": "0.23", "C": "0.17"}
"""The bpftrace that gives this host that tier."""
ALL = ("inflight", "stages", "irqs", "softirqs", "wakeups", "order")
"""Groups of `--stages all` but that for devices without requests."""
_ALWAYS_ON_LIMITS = {"A": 0.75, "C": 1.25}
_STAGES_LIMIT = 3.0
_PEERS = {"A": PLAIN_MAP, "C": BIOLATENCY}
_SECONDS = 2.0
RATE = 15_000


@dataclass(slots=True)
class Pair:
    """A probe of latmon's and a peer at the same time: ns per I/O that the peer saw, the mean of both orders."""

    probe: Script
    peer: Script
    limit: float | None = None
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    programs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, load: Load) -> None:
        both = [self._together(load, order) for order in ((self.probe, self.peer), (self.peer, self.probe))]
        self.ours.append(mean(ours for ours, _ in both))
        self.theirs.append(mean(theirs for _, theirs in both))

    def _together(self, load: Load, order: tuple[Script, Script]) -> tuple[float, float]:
        with running(order[0]) as first, running(order[1]) as second:
            first.begin()
            second.begin()
            run(load)
            spent = {one.script.name: one.each() for one in (first, second)}
        completed = max(one.runs for _, one in spent[self.peer.name])
        for name, one in spent[self.probe.name]:
            self.programs[name].append(one.ns / completed)
        ours, theirs = (sum(one.ns for _, one in spent[script.name]) for script in (self.probe, self.peer))
        return ours / completed, theirs / completed

    def figures(self) -> list[Figure]:
        ratios = tuple(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))
        each = ", ".join(f"{name} {median(values):.0f}" for name, values in sorted(self.programs.items()))
        return [
            Figure(self.probe.label, tuple(self.ours), "ns/IO", note=each),
            Figure(f"... beside it: {self.peer.label}", tuple(self.theirs), "ns/IO"),
            Figure("... latmon / peer", ratios, "x", self.limit, 2),
        ]


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    actual_tools = tools(scratch)
    with counted(), one_loop() as path:
        pairs = list(_pairs(actual_tools))
        for _ in range(rounds):
            for pair in pairs:
                pair.run(Load(path, seconds=_SECONDS))
    yield Section(
        title="BPF run time per I/O, a loop device on memory",
        method=(
            f"fio, 4 KiB random reads and writes, 32 in flight, {_SECONDS:.0f} s. Both scripts are attached at the same"
            " time, and each run is the mean of both orders of starting them: run_time_ns of all programs of a script"
            " for each completed I/O. biolatency keeps a start per (dev, sector) and one histogram per device; the"
            " plain map, tier A's, a start per request pointer and one histogram."
        ),
        figures=[figure for pair in pairs for figure in pair.figures()],
        remarks=(
            "The last column: each program's ns per I/O.",
            "Every I/O is traced here: above 2,500 I/Os per second --stages all traces a sample.",
        ),
    )
    yield _of_files(file_scripts(actual_tools[VERSION_OF["A"]]), rounds)


def file_scripts(tool: BpftraceTool) -> tuple[Script, ...]:
    """Return latmon's file layer and its peers."""
    peers = {"fileslower": FILESLOWER, "biotop": BIOTOP, "biosnoop": BIOSNOOP}
    return on_demand("A", tool, (FILES,)), *(Script(name, tool, text) for name, text in peers.items())


def _of_files(scripts: Sequence[Script], rounds: int) -> Section:
    spent: dict[Script, list[float]] = {script: [] for script in scripts}
    programs: dict[Script, list[int]] = {script: [] for script in scripts}
    with counted(), one_loop() as path, mounted(path) as point:
        load = Load(path, seconds=_SECONDS, rate=RATE, file=f"{point}/file")
        run(load)  # the file is written once
        for script in (script for _ in range(rounds) for script in scripts):
            with running(script) as one:
                one.begin()
                ios = run(load).ios
                each = [found for _, found in one.each()]
            spent[script].append(sum(found.ns for found in each) / ios)
            programs[script].append(round(sum(found.runs for found in each) / ios))
    return Section(
        title="BPF run time per operation on a file, ext4 on a loop device on memory",
        method=(
            f"fio, 2 threads with pread and pwrite of 4 KiB past the cache, {RATE:,} per second, {_SECONDS:.0f} s."
            " run_time_ns of all programs of a script for each operation, one script after the other. A program that is"
            " called takes some 50 ns more, which run_time_ns doesn't have."
        ),
        figures=[
            Figure(
                script.label, tuple(spent[script]), "ns/op", note=f"{median(programs[script]):.0f} calls of programs"
            )
            for script in scripts
        ],
        remarks=("All scripts but biotop and biosnoop see each system call of the host.",),
    )


@contextlib.contextmanager
def one_loop() -> Iterator[str]:
    """Path of a fast disk."""
    with loops(1, 512) as paths:
        yield paths[0]


def _pairs(bpftrace_tools: dict[str, BpftraceTool]) -> Iterator[Pair]:
    for tier, version in VERSION_OF.items():
        tool = bpftrace_tools[version]
        biolatency = Script("biolatency", tool, BIOLATENCY)
        yield Pair(always_on(tier, tool), biolatency, _ALWAYS_ON_LIMITS[tier])
        plain = Script("plain map", tool, _PEERS[tier])
        yield Pair(on_demand(tier, tool, ("stages",)), plain, _STAGES_LIMIT)
        if tier == "A":
            yield Pair(on_demand(tier, tool, ALL), plain)
