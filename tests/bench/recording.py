"""What an hour of recording costs to keep and to read: size, report, replay, seek, beside the floors of its parts."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import sqlite3
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from figures import Figure, Section

from latmon.histogram import Histogram
from latmon.model import STAGES, UNACCOUNTED, Completed, Device, Flow, Frame, Origin, Outstanding, Series, Traced
from latmon.recording import Writer, open_recording
from latmon.report import summarise
from latmon_backends.replay import ReplayBackend

HOUR_S = 3600
_PART_S = 600
"""What is read or written per window needs no whole hour."""
_DIFFERENT = 120
"""Windows that differ; each is packed by itself, so that more would not be larger."""
_START_US = 10**9
_SEEKS = 20
DEVICES = tuple(Device(f"sd{chr(97 + i)}", 8, 16 * i, driver="mptsas") for i in range(24))


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    hour, few, wide, deep = (scratch / f"{name}.latmon.jsonl.gz" for name in ("hour", "few", "wide", "deep"))
    took = write(hour, HOUR_S, windows(15))
    write(few, _PART_S, windows(15))
    write(wide, _PART_S, windows(31))
    deep_took = write(deep, _PART_S, windows(15, deep=True))
    lines = gzip.decompress(few.read_bytes()).splitlines()
    plain = [line for line in lines if b'"type":"window"' in line[:20]]
    database = scratch / "peer.sqlite"
    _sqlite(database, plain)
    per, hours = _PART_S / 1000, HOUR_S / _PART_S
    runs = range(rounds)
    seeks = [seek for _ in runs for seek in _seeks(hour)]
    figures = [
        Figure("size, 15 to 31 buckets each", (_mb(hour),), "MB", 20, 1),
        Figure("size, 31 buckets each", (_mb(wide) * hours,), "MB", None, 1),
        Figure("peer: SQLite, a row with the line in zlib per window", (_mb(database) * hours,), "MB", None, 1),
        Figure("encode, sum up and write, CPU per window", (took * 1000 / HOUR_S,), "ms", None, 2),
        Figure("report", tuple(_cpu(lambda: summarise(open_recording(hour))) for _ in runs), "s", 4, 2),
        Figure("decode, CPU per window", tuple(_cpu(lambda: _read(few)) / per for _ in runs), "ms", None, 2),
        Figure("floor: json.loads of its line", tuple(_cpu(lambda: [*map(json.loads, plain)]) / per for _ in runs),
               "ms", None, 2),
        Figure("floor: zcat | wc -l of the hour, wall", tuple(_wall(lambda: _zcat(hour)) for _ in runs), "s", None, 2),
        Figure("peer: SQLite, unpack and json.loads per row", tuple(_cpu(lambda: _rows(database)) / per for _ in runs),
               "ms", None, 2),
        Figure("replay at speed 0, CPU per second of recording", tuple(_cpu(lambda: _replay(few)) / per for _ in runs),
               "ms", 1, 2, "1 ms is 1,000 times real time"),
        Figure("first seek of an open recording, wall", tuple(_first_seek(hour) for _ in runs), "ms", 100, 1),
        Figure("any later seek, wall", tuple(seeks), "ms", 100, 1),
    ]  # fmt: skip
    yield Section(
        title="An hour of 24 devices at 1 s",
        method=(
            "3,600 windows of 24 devices, one op, three stages: 72 histograms with 15 to 31 buckets each and random"
            " counts, which pack worse than real ones; counts by probe and kernel, gauges. Written by the recording's"
            " own writer with its roll-ups; read by its reader, by `latmon report`'s summary and by the replay backend,"
            f" one process, one core. What is told per window is of {_PART_S} of them. MB are 10^6 bytes."
        ),
        figures=figures,
    )
    yield Section(
        title="All stages and two ops",
        method=(
            f"As above, but {_PART_S} windows with reads and writes, and in each the deep probes' table: eight stages"
            " and the unaccounted rest of 48 flows, with the sums by total. Sizes and times are told for an hour."
        ),
        figures=[
            Figure("size", (_mb(deep) * hours,), "MB/h", None, 1),
            Figure("encode, sum up and write, CPU per window", (deep_took * 1000 / _PART_S,), "ms", None, 2),
            Figure("decode, CPU per window", tuple(_cpu(lambda: _read(deep)) * 1000 / _PART_S for _ in runs), "ms",
                   None, 2),
            Figure("report of ten minutes", tuple(_cpu(lambda: summarise(open_recording(deep))) for _ in runs), "s",
                   None, 2),
        ],
    )  # fmt: skip


def windows(least: int, *, deep: bool = False) -> list[Frame]:
    """Windows that differ, with `least` to 31 buckets per histogram."""
    rnd = random.Random(3)
    ops = ("read", "write") if deep else ("read",)
    flows = [Flow(one.name, op) for one in DEVICES for op in ops]
    stages = (*(one for one in STAGES if one != "resume"), UNACCOUNTED)
    found = []
    for _ in range(_DIFFERENT):
        done = {flow: Completed(4000 + rnd.randrange(500), 4096 * rnd.randrange(4000, 4500)) for flow in flows}
        traced = {Series(*flow, stage): _histogram(rnd, least) for flow in flows for stage in stages if deep}
        found.append(
            Frame(
                0,
                0.0,
                0,
                1_000_000,
                {Series(*flow, stage): _histogram(rnd, least) for flow in flows for stage in ("total", "hba", "queue")},
                seen=done,
                kernel=done,
                outstanding={one.name: Outstanding(rnd.randrange(32), rnd.randrange(4)) for one in DEVICES},
                traced=Traced(
                    traced,
                    {series: dict(one.buckets) for series, one in traced.items() if series.stage != "total"},
                    one_in=16 if deep else 0,
                ),
            )
        )
    return found


def write(path: Path, seconds: int, some: list[Frame]) -> float:
    """A recording of them, over and over; the CPU seconds that it took."""
    origin = Origin("bpftrace", "db-07", "Linux 6.12", "0.1.0", start_wall=1.7e9, start_mono_us=_START_US)
    path.unlink(missing_ok=True)
    writer = Writer.create(path, origin, devices=DEVICES)
    began = time.process_time()
    for second in range(seconds):
        mono_us = _START_US + (second + 1) * 1_000_000
        writer.append(replace(some[second % len(some)], seq=second, wall=1.7e9 + second + 1, mono_us=mono_us))
    writer.close()
    return time.process_time() - began


def _histogram(rnd: random.Random, least: int) -> Histogram:
    base, width = rnd.randrange(40, 70), rnd.randint(least, 31)
    counts = {base + i: max(1, int(400 * rnd.random() * 2 ** (-abs(i - 8) / 3))) for i in range(width)}
    return Histogram.of(counts, sum(counts.values()) * rnd.randrange(200, 400), 400_000 + rnd.randrange(99_999))


def _read(path: Path) -> int:
    return sum(1 for _ in open_recording(path))


def _replay(path: Path) -> None:
    async def play() -> None:
        async with ReplayBackend([path], 0) as backend:
            async for _ in backend.frames():
                pass

    asyncio.run(play())


def _seeks(path: Path) -> list[float]:
    recording = open_recording(path)
    first_us, last_us = recording.span()
    places = [first_us + (last_us - first_us) * n // _SEEKS for n in range(_SEEKS)]
    return [_wall(lambda at=at: [*recording.between(at, at + 1_000_000)]) * 1000 for at in places]


def _first_seek(path: Path) -> float:
    recording = open_recording(path)
    return _wall(lambda: [*recording.between(_START_US + 3_000_000_000, _START_US + 3_001_000_000)]) * 1000


def _zcat(path: Path) -> None:
    subprocess.run(["sh", "-c", 'zcat "$1" | wc -l', "sh", str(path)], check=True, stdout=subprocess.DEVNULL)


def _sqlite(path: Path, lines: list[bytes]) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.execute("create table windows (mono integer primary key, line blob)")
        rows = ((number, zlib.compress(line)) for number, line in enumerate(lines))
        database.executemany("insert into windows values (?, ?)", rows)


def _rows(path: Path) -> None:
    with sqlite3.connect(path) as database:
        for (blob,) in database.execute("select line from windows order by mono"):
            json.loads(zlib.decompress(blob))


def _mb(path: Path) -> float:
    return path.stat().st_size / 1e6


def _cpu(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


def _wall(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
