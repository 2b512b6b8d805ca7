"""Large hosts: CPU time by number of devices, and a day of windows on a fast clock, with the memory that it takes.

`python tests/bench/large.py HOURS` runs the day alone, with a line per hour.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import processes
from figures import Figure, Section
from large_host import LargeHost
from pipeline import COLLECTOR, SCREEN, Pipeline

SIZES = ((1, 1), (10, 10), (100, 100), (200, 200), (1000, 200), (5000, 200), (1000, 1000))
"""Devices, and how many of them have I/O in each second."""
_WARM, _SECONDS = 65, 20
_DAY_H, _HOUR_S = 24, 3600
_DAY = (16, 2)
_GROWTH_MB = 10.0
"""Most that memory may grow from the end of the second hour, when the archive is full, to the end of the day."""


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    figures = [figure for size in SIZES for figure in _cost(scratch, *size, rounds)]
    yield Section(
        title="CPU time by number of devices",
        method=(
            f"The always-on probe's output of synthetic disks, 20 I/Os per second each, through decoder, feed, history,"
            f" rules and a screen of 160x50 in one process; {_SECONDS} s after {_WARM} s. Percent of a core at 1 Hz,"
            " without the event loops and the terminal."
        ),
        figures=figures,
    )
    yield _day(scratch)


def _cost(scratch: Path, disks: int, busy: int, rounds: int) -> Iterator[Figure]:
    name = f"{disks:,} devices, {busy:,} with I/O"
    with written(scratch, disks, busy) as host:
        pipeline = Pipeline(host)
        pipeline.seconds(_WARM)
        runs = [_percent(pipeline) for _ in range(rounds)]
    for part in ("collector", "screen"):
        yield Figure(f"{name}: {part}", tuple(run[part] for run in runs), "% of a core", None, 1)


def _percent(pipeline: Pipeline) -> dict[str, float]:
    pipeline.spent_s.clear()
    pipeline.seconds(_SECONDS)
    spent = pipeline.spent_s
    parts = {"collector": COLLECTOR, "screen": SCREEN}
    return {name: 100 * sum(spent[part] for part in some) / _SECONDS for name, some in parts.items()}


@contextlib.contextmanager
def written(scratch: Path, disks: int, busy: int) -> Iterator[LargeHost]:
    """The directory of a host, which is removed again."""
    root = scratch / f"host-{disks}-{busy}"
    host = LargeHost(root, disks, busy)
    try:
        host.write()
        yield host
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _day(scratch: Path) -> Section:
    readings = list(hours(scratch, _DAY_H))
    grown = readings[-1][0] - readings[min(1, len(readings) - 1)][0]
    return Section(
        title=f"{_DAY_H} h of windows",
        method=f"As above, {_DAY[0]} devices, {_DAY[1]} with I/O; a window of each second, as fast as possible.",
        figures=[
            Figure("RSS at the end of each hour", tuple(mb for mb, _ in readings), "MB"),
            Figure("growth of RSS from the second hour on", (grown,), "MB", _GROWTH_MB, 1),
            Figure("open files", tuple(float(files) for _, files in readings), ""),
        ],
    )


def hours(scratch: Path, many: int) -> Iterator[tuple[float, int]]:
    """Yield RSS in MB and the number of open files after each hour."""
    with written(scratch, *_DAY) as host:
        pipeline = Pipeline(host)
        for _ in range(many):
            pipeline.seconds(_HOUR_S)
            yield processes.memory_mb(os.getpid()), len(list(Path("/proc/self/fd").iterdir()))


def main() -> None:
    """Run the day alone."""
    scratch = Path(os.environ.get("TMPDIR", "/tmp"))
    for hour, (mb, files) in enumerate(hours(scratch, int(sys.argv[1])), 1):
        print(f"{hour:3} h  {mb:6.1f} MB  {files} files", flush=True)


if __name__ == "__main__":
    main()
