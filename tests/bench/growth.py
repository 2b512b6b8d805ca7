"""How costs grow: with I/Os per second, with outliers per second and with the hours of a recording.

`large` has the curve by number of devices.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import processes
from cost import VERSION_OF, one_loop
from disks import Load, run
from figures import Figure, Section
from loads import IOPS, sampled
from recording import HOUR_S, cpu_s, write
from throughput import ALL_PROGRAMS, recording
from tracing import tools

from latmon.cli.check import survey
from latmon.model.frame import Frame
from latmon.model.measurements import ABOVE
from latmon.recording.reader import open_recording
from latmon.report.reading import summarise
from latmon_backends.bpftrace.program import BpftraceTool

RATES = (1_000, 5_000, 15_000, 50_000, 0)
"""I/Os per second; 0: as many as the disk takes."""
OUTLIERS = (10, 100, 1_000, 10_000, 0)
HOURS = (1, 3, 6)
_WEEK_H = 168
_SECONDS, _SETTLES_S, _OUTLIERS_S = 2.0, 2.0, 10.0


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    tool = tools(scratch)[VERSION_OF["A"]]
    names = (scratch / f"growth-{number}.latmon.jsonl.gz" for number in itertools.count())
    with one_loop() as path:
        run(Load(path))  # the memory of its file is allocated once
        yield _by_rate(path, tool, names, rounds)
        yield _by_outliers(path, tool, names)
    yield _by_hours(scratch)


def _by_rate(path: str, tool: BpftraceTool, names: Iterator[Path], rounds: int) -> Section:
    watchers = {
        "always-on": partial(recording, tool, names, "--stages", "basic"),
        "--stages all": partial(recording, tool, names, "--stages", "all", programs=ALL_PROGRAMS),
    }
    found: dict[tuple[int, str], list[float]] = {}
    reached: dict[int, list[float]] = {}
    for _ in range(max(rounds, 3)):
        for name, start in watchers.items():
            before = {rate: run(Load(path, seconds=_SECONDS, rate=rate)) for rate in RATES}
            with start():
                watched = {rate: run(Load(path, seconds=_SECONDS, rate=rate), _SETTLES_S) for rate in RATES}
            after = {rate: run(Load(path, seconds=_SECONDS, rate=rate)) for rate in RATES}
            for rate in RATES:
                alone_us = (before[rate].cpu_us + after[rate].cpu_us) / 2
                found.setdefault((rate, name), []).append(watched[rate].cpu_us - alone_us)
                reached.setdefault(rate, []).append(watched[rate].iops)
    figures = []
    for (rate, name), values in found.items():
        note = "" if rate else f"{min(reached[0]):,.0f} to {max(reached[0]):,.0f} I/Os per second"
        label = f"{rate:,} I/Os per second" if rate else "as many as there can be"
        figures.append(Figure(f"{label}: {name}", tuple(values), "us", None, 2, note, 0.0))
    return Section(
        title="CPU time per I/O by I/Os per second",
        method=(
            f"fio, 4 KiB random reads and writes, 32 in flight, {_SECONDS:.0f} s at each rate: CPU time of the whole"
            " host per I/O with latmon, less the mean of a run before and one after it. latmon's own second costs the"
            " same at each rate, so it weighs most where I/Os are few."
        ),
        figures=figures,
    )


def _by_outliers(path: str, tool: BpftraceTool, names: Iterator[Path]) -> Section:
    figures = []
    for rate in OUTLIERS:
        file = next(names)
        with recording(tool, iter((file,)), "--threshold", "1us") as process:
            pids = {"collector": process.pid, "bpftrace": processes.descendants(process.pid, "bpftrace")[-1]}
            before, began = {name: processes.cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
            ran = run(Load(path, seconds=_OUTLIERS_S, rate=rate))
            passed = time.monotonic() - began
            spent = {name: 100 * (processes.cpu_s(pid) - before[name]) / passed for name, pid in pids.items()}
        frames = [frame for frame in open_recording(file) if isinstance(frame, Frame)]
        above = sum(sum(frame[ABOVE].values()) for frame in frames)
        listed = sum(len(frame.outliers) for frame in frames)
        label = (
            f"{rate:,} outliers per second" if rate else f"{ran.iops:,.0f} outliers per second, as many as there can be"
        )
        for name, percent in spent.items():
            note = f"{listed:,} of {above:,} listed, the others counted" if name == "collector" else ""
            figures.append(Figure(f"{label}: {name}", (percent,), "% of a core", None, 1, note))
    return Section(
        title="CPU time by outliers per second",
        method=(
            f"`latmon --threshold 1us --record`: every I/O of the load is an outlier. {_OUTLIERS_S:.0f} s each, user"
            " and system time of the process, the collector's with its recording."
        ),
        figures=figures,
    )


def _by_hours(scratch: Path) -> Section:
    some, costs = sampled(), {}
    for hours in HOURS:
        file = scratch / f"{hours}-hours.latmon.jsonl.gz"
        write(file, hours * HOUR_S, some)
        costs[hours] = {
            "report, CPU": (cpu_s(lambda file=file: summarise(open_recording(file))), "s"),
            "check, CPU": (cpu_s(lambda file=file: survey(open_recording(file))), "s"),
            "open and seek, CPU": (1000 * cpu_s(lambda file=file: _seek(file)), "ms"),
            "size": (file.stat().st_size / 1e6, "MB"),
        }
        file.unlink()
    figures = [
        Figure(f"{hours} h: {name}", (value,), unit, None, 1)
        for hours, cost in costs.items()
        for name, (value, unit) in cost.items()
    ]
    few, many = HOURS[-2:]
    for name, (value, unit) in costs[many].items():
        slope = (value - costs[few][name][0]) / (many - few)
        week = value + slope * (_WEEK_H - many)
        figures.append(Figure(f"{_WEEK_H} h: {name}", (week,), unit, None, 1, f"by the slope of {few} to {many} h"))
    return Section(
        title="Cost by hours of a recording",
        method=f"24 devices at 1 s, {IOPS} I/Os per second each, three stages, in one file; one process.",
        figures=figures,
    )


def _seek(file: Path) -> None:
    recorded = open_recording(file)
    first_us, last_us = recorded.span()
    middle_us = (first_us + last_us) // 2
    for _ in recorded.between(middle_us, middle_us + 1_000_000):
        pass
