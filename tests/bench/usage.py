"""What latmon itself uses: CPU and memory of collector, screen and bpftrace, beside top and iostat at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import processes
from disks import loops, trickle
from figures import Figure, Section
from processes import Usage
from screens import LATMON, Screen, shown

UI_PERCENT, COLLECTOR_PERCENT, BOTH_MB = 5.0, 3.0, 120.0
_DEVICES, _PER_SECOND = 24, 10
_WARM_UP_S, _SECONDS = 6.0, 10.0
_PATIENCE_S = 20.0
_SIZES = ((24, 80), (50, 160))


def measure(_scratch: Path, rounds: int) -> Iterator[Section]:
    with loops(_DEVICES, 16) as paths, trickle(paths, _PER_SECOND):
        for rows, columns in _SIZES:
            yield _section(rows, columns, _runs(rows, columns, Path(paths[0]).name, rounds))


def _runs(rows: int, columns: int, device: str, rounds: int) -> dict[str, list[Usage]]:
    seen: dict[str, list[Usage]] = defaultdict(list)
    with (
        shown((*LATMON, "--backend", "bpftrace"), rows=rows, columns=columns) as latmon,
        shown(("top", "-d", "1"), rows=rows, columns=columns) as top,
        shown(("iostat", "-x", "1"), rows=rows, columns=columns) as iostat,
    ):
        latmon.wait_for(rf"{device}\b.*\d", _PATIENCE_S)
        pids = _parts(latmon) | {"top -d 1": top.process.pid, "iostat -x 1": iostat.process.pid}
        processes.watch(pids, _WARM_UP_S)
        for _ in range(rounds):
            for name, usage in processes.watch(pids, _SECONDS).items():
                seen[name].append(usage)
    return seen


def _parts(latmon: Screen) -> dict[str, int]:
    screen = latmon.process.pid
    collector = processes.child_module(screen, "latmon.collector")
    if collector is None:
        raise RuntimeError("latmon did not stay up")
    found = {"screen": screen, "collector": collector}
    for bpftrace in processes.descendants(collector, "bpftrace"):
        found["bpftrace"] = bpftrace
    return found


def _section(rows: int, columns: int, seen: dict[str, list[Usage]]) -> Section:
    limits = {"screen": UI_PERCENT, "collector": COLLECTOR_PERCENT}
    figures = [
        Figure(f"{name}: CPU", tuple(one.cpu_percent for one in usages), "% of a core", limits.get(name), 1)
        for name, usages in seen.items()
    ]
    both = zip(seen["screen"], seen["collector"], strict=True)
    figures.append(Figure("screen + collector: RSS", tuple(a.rss_mb + b.rss_mb for a, b in both), "MB", BOTH_MB))
    figures += [
        Figure(f"{name}: RSS", tuple(one.rss_mb for one in usages), "MB", note=f"PSS {usages[-1].pss_mb:.0f} MB")
        for name, usages in seen.items()
    ]
    return Section(
        title=f"CPU and memory at 1 Hz, {_DEVICES} devices, {columns}x{rows}",
        method=(
            f"Live bpftrace on {_DEVICES} loop devices, {2 * _PER_SECOND} I/Os per second each, 4 to 512 KiB, reads and"
            f" writes; the peers run in the same seconds on terminals of the same size. {_SECONDS:.0f} s per run,"
            f" after {_WARM_UP_S:.0f} s. MB are 10^6 bytes."
        ),
        figures=figures,
    )
