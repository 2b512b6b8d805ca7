"""latmon's own usage: CPU and memory of collector, screen and bpftrace, beside top and iostat at the same time."""

from __future__ import annotations

import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import processes
from cost import VERSION_OF
from disks import loops, trickle
from figures import Figure, Section
from large import written
from processes import Usage
from screens import LATMON, Screen, shown
from tracing import tools

from latmon_backends.bpftrace.program import VARIABLE

UI_PERCENT, COLLECTOR_PERCENT, BOTH_MB = 5.0, 3.0, 120.0
_DEVICES, _PER_SECOND = 24, 10
_FULL_S, _SECONDS = 62.0, 10.0
"""Only a screen with its whole minute of history costs what it costs all day."""
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """One latmon of those that run side by side."""

    tier: str
    rows: int
    columns: int

    def __str__(self) -> str:
        return f"tier {self.tier}, {self.columns}x{self.rows}"


@dataclass(frozen=True, slots=True)
class Large:
    """A synthetic host, and its limits."""

    disks: int
    busy: int
    screen: float
    collector: float
    rss_mb: float


_LARGE = (Large(200, 200, 8.0, 5.0, 400.0), Large(5000, 200, 25.0, 10.0, 400.0))
_CASES = (Case("A", 24, 80), Case("A", 50, 160), Case("C", 24, 80))
_PEERS = (("top", "-d", "1"), ("iostat", "-x", "1"))


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    actual_tools = tools(scratch)
    seen: dict[str, list[Usage]] = defaultdict(list)
    with loops(_DEVICES, 16) as paths, trickle(paths, _PER_SECOND), ExitStack() as stack:
        pids: dict[str, int] = {}
        for case in _CASES:
            environ = {VARIABLE: actual_tools[VERSION_OF[case.tier]].path}
            words = (*LATMON, "--backend", "bpftrace")
            screen = stack.enter_context(shown(words, rows=case.rows, columns=case.columns, environ=environ))
            screen.wait_for(rf"{Path(paths[0]).name}\b.*\d", _PATIENCE_S)
            pids |= {f"{case}: {part}": pid for part, pid in parts(screen).items()}
        for peer in _PEERS:
            pids[f"peer: {shlex.join(peer)}"] = stack.enter_context(shown(peer)).process.pid
        time.sleep(_FULL_S)
        for _ in range(rounds):
            for name, usage in processes.watch(pids, _SECONDS).items():
                seen[name].append(usage)
    yield _section(seen)
    yield _large(scratch, rounds)


def _large(scratch: Path, rounds: int) -> Section:
    figures = []
    for size in _LARGE:
        with written(scratch, size.disks, size.busy) as host:
            environ = {VARIABLE: str(host.bpftrace)}
            words = (sys.executable, "-P", str(Path(__file__).with_name("large_screen.py")), str(host.root))
            with shown(words, rows=50, columns=160, environ=environ) as screen:
                screen.wait_for(r"● LIVE", _PATIENCE_S)
                time.sleep(_FULL_S)
                pids = {"screen": screen.process.pid, "collector": _collector_of(screen.process.pid)}
                runs = [processes.watch(pids, _SECONDS) for _ in range(rounds)]
        name = f"{size.disks:,} devices, {size.busy:,} with I/O"
        for part, limit in (("screen", size.screen), ("collector", size.collector)):
            values = tuple(run[part].cpu_percent for run in runs)
            figures.append(Figure(f"{name}: {part}, CPU", values, "% of a core", limit, 1))
        both = tuple(run["screen"].rss_mb + run["collector"].rss_mb for run in runs)
        figures.append(Figure(f"{name}: screen + collector, RSS", both, "MB", size.rss_mb))
    return Section(
        title="CPU and memory at 1 Hz, large hosts",
        method=(
            "Synthetic disks (large_host.py): a program in place of bpftrace prints the always-on probe's maps, and the"
            f" counters are files; 20 I/Os per second and device with I/O, 160x50; {_SECONDS:.0f} s per run, when the"
            " minute of history on screen is full."
        ),
        figures=figures,
    )


def _collector_of(screen: int) -> int:
    return next(
        descendant
        for descendant in processes.descendants(screen)
        if b"collector" in Path(f"/proc/{descendant}/cmdline").read_bytes()
    )


def parts(latmon: Screen) -> dict[str, int]:
    """Return the process of each of its parts."""
    screen = latmon.process.pid
    collector = processes.child_module(screen, "latmon.capture.collector")
    if collector is None:
        raise RuntimeError("latmon did not stay up")
    parts = {"screen": screen, "collector": collector}
    for bpftrace in processes.descendants(collector, "bpftrace"):
        parts["bpftrace"] = bpftrace
    return parts


def _section(seen: dict[str, list[Usage]]) -> Section:
    figures = []
    for name, usages in seen.items():
        limit = {"screen": UI_PERCENT, "collector": COLLECTOR_PERCENT}.get(name.rpartition(" ")[2])
        figures.append(Figure(f"{name}, CPU", tuple(usage.cpu_percent for usage in usages), "% of a core", limit, 1))
    for case in _CASES:
        both = zip(seen[f"{case}: screen"], seen[f"{case}: collector"], strict=True)
        figures.append(
            Figure(f"{case}: screen + collector, RSS", tuple(a.rss_mb + b.rss_mb for a, b in both), "MB", BOTH_MB)
        )
    figures += [
        Figure(f"{name}, RSS", tuple(usage.rss_mb for usage in usages), "MB", note=f"PSS {usages[-1].pss_mb:.0f} MB")
        for name, usages in seen.items()
    ]
    return Section(
        title=f"CPU and memory at 1 Hz, {_DEVICES} devices",
        method=(
            f"Live bpftrace on {_DEVICES} loop devices, {2 * _PER_SECOND} I/Os per second each, 4 to 512 KiB, reads and"
            f" writes; all programs side by side in the same seconds, {_SECONDS:.0f} s per run, when the minute of"
            " history on screen is full. MB are 10^6 bytes; PSS divides shared pages among those who map them."
        ),
        figures=figures,
    )
