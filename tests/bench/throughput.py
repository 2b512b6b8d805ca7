"""Cost as the load feels it: IOPS, CPU time of the whole host and the load's own p99, with and without a watcher.

A watcher is measured between runs without it: what drifts slowly is in both halves of the pairs.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median

from cost import RATE, VERSION_OF, file_scripts, one_loop
from disks import Load, Ran, mounted, run
from figures import Figure, Section
from screens import LATMON, environment
from tracing import (
    BIOLATENCY,
    BIOSNOOP,
    Script,
    attached,
    empty,
    running,
    tools,
)

from latmon_backends.bpftrace.program import VARIABLE, BpftraceTool

PAIRS = 12
"""At least so many: then the median's interval of 95 % leaves out two on either side."""
_SECONDS, _PACED_S, _SETTLES_S = 1.0, 2.0, 1.5
"""The sample of the I/Os is chosen by the rate of the second before."""
_EACH = 4
"""Runs with a watcher each time that it is started, and as many without it: a half before, a half after."""
_READY_S, _LEAVE_S = 30.0, 60.0
ALL_PROGRAMS = 10
"""Programs that `--stages all` attaches."""


@dataclass(frozen=True, slots=True)
class Felt:
    """One run of both loads: as fast as it goes, and at RATE."""

    fast: Ran
    paced: Ran


@dataclass(slots=True)
class Watcher:
    """Something that watches, and each pair's (without, with)."""

    name: str
    start: Callable[[], AbstractContextManager[object]]
    pairs: list[tuple[Felt, Felt]] = field(default_factory=list)

    def run(self, load: Load) -> None:
        alone = _felt(load, _EACH // 2, 0.0)
        with self.start():
            watched = _felt(load, _EACH, _SETTLES_S)
        alone += _felt(load, _EACH // 2, 0.0)
        self.pairs += zip(alone, watched, strict=True)

    def figures(self) -> list[Figure]:
        iops = tuple(felt.fast.iops / alone.fast.iops for alone, felt in self.pairs)
        kept = tuple(felt.paced.iops / alone.paced.iops for alone, felt in self.pairs)
        cpu = tuple(felt.paced.cpu_us - alone.paced.cpu_us for alone, felt in self.pairs)
        tail = tuple(felt.fast.p99_us / alone.fast.p99_us for alone, felt in self.pairs)
        paced = tuple(felt.paced.p99_us / alone.paced.p99_us for alone, felt in self.pairs)
        own = tuple(felt.paced.own_us - alone.paced.own_us for alone, felt in self.pairs)
        return [
            Figure(f"{self.name}: IOPS", iops, "x", None, 3, _beside(self.pairs, lambda one: one.fast.iops), 1.0),
            Figure("... its p99", tail, "x", None, 2, _beside(self.pairs, lambda one: one.fast.p99_us, "us"), 1.0),
            Figure(
                *(f"... CPU per I/O at {RATE:,} IOPS", cpu, "us", None, 2),
                *(_beside(self.pairs, lambda one: one.paced.cpu_us, "us"), 0.0),
            ),
            Figure(
                "... of it fio's own", own, "us", None, 2, _beside(self.pairs, lambda one: one.paced.own_us, "us"), 0.0
            ),
            Figure(
                *(f"... IOPS of {RATE:,}", kept, "x", None, 3),
                *(_beside(self.pairs, lambda one: one.paced.iops), 1.0),
            ),
            Figure("... its p99", paced, "x", None, 2, _beside(self.pairs, lambda one: one.paced.p99_us, "us"), 1.0),
        ]


def _beside(pairs: Sequence[tuple[Felt, Felt]], value: Callable[[Felt], float], unit: str = "") -> str:
    alone, felt = (median(value(pair[at]) for pair in pairs) for at in range(2))
    return f"{alone:,.0f} alone, {felt:,.0f} watched {unit}".strip()


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    names = (scratch / f"throughput-{number}.latmon.jsonl.gz" for number in itertools.count())
    yield compared("What the load feels, a loop device on memory", _watchers(tools(scratch), names), rounds)
    watchers = _file_watchers(tools(scratch)[VERSION_OF["A"]])
    yield compared("What operations on files feel, ext4 on a loop device on memory", watchers, rounds, files=True)


def compared(title: str, watchers: Sequence[Watcher], rounds: int, *, files: bool = False) -> Section:
    """Run the load with and without each watcher in turn; `files`: on a file of a file system."""
    with one_loop() as path, mounted(path) if files else contextlib.nullcontext("") as point:
        load = Load(path, file=f"{point}/file" if files else "")
        run(load)  # the memory of its file is allocated once
        for _ in range(-(-max(rounds, PAIRS) // _EACH)):
            for watcher in watchers:
                watcher.run(load)
    how = "2 threads with pread and pwrite past the cache" if files else "32 in flight"
    return Section(
        title=title,
        method=(
            f"fio, 4 KiB random reads and writes, {how}, {_SECONDS} s as fast as it goes and {_PACED_S} s at"
            f" {RATE:,} IOPS; watched, after {_SETTLES_S:.0f} s of that load. Pairs without and with it, in the"
            " order A A B B B B A A; the median of their ratios or differences, and its interval of 95 % by order"
            " statistics. CPU time is the time in which no CPU of the whole host was idle (/proc/stat: idle, iowait,"
            " steal), with latmon's collector and its recording; p99 is fio's."
        ),
        figures=[figure for watcher in watchers for figure in watcher.figures()],
        remarks=("fio takes a whole CPU or more here: what runs beside it is felt at once.",),
    )


def _watchers(bpftrace_tools: Mapping[str, BpftraceTool], names: Iterator[Path]) -> list[Watcher]:
    tool = bpftrace_tools[VERSION_OF["A"]]
    return [
        Watcher("nothing", contextlib.nullcontext),
        Watcher("latmon, always-on", partial(recording, tool, names, "--stages", "basic")),
        Watcher("latmon, --stages all", partial(recording, tool, names, "--stages", "all", programs=ALL_PROGRAMS)),
        Watcher("biolatency", partial(running, Script("biolatency", tool, BIOLATENCY))),
        Watcher("biosnoop", partial(running, Script("biosnoop", tool, BIOSNOOP))),
    ]


def _file_watchers(tool: BpftraceTool) -> list[Watcher]:
    scripts = file_scripts(tool)
    watched = [Watcher(script.name, partial(running, script)) for script in (empty(scripts[0]), *scripts)]
    return [Watcher("nothing", contextlib.nullcontext), *watched]


def _felt(load: Load, times: int, settles_s: float) -> list[Felt]:
    fast, paced = (
        [run(one, 0.0 if number else settles_s) for number in range(times)]
        for one in (replace(load, seconds=_SECONDS), replace(load, seconds=_PACED_S, rate=RATE))
    )
    return [Felt(*both) for both in zip(fast, paced, strict=True)]


@contextlib.contextmanager
def recording(
    tool: BpftraceTool, names: Iterator[Path], *options: str, programs: int = 1
) -> Iterator[subprocess.Popen[bytes]]:
    """A headless capture, once all that these options ask for is attached."""
    words = [*LATMON, "--backend", "bpftrace", "--record", str(next(names)), *options]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(**{VARIABLE: tool.path}),
    )
    try:
        if attached(process, programs, _READY_S) is None:
            raise RuntimeError("latmon --record did not start its probe")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_LEAVE_S)
