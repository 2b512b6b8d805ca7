"""Costs of an hour of recording: size, report, replay, seek, beside the floors of its parts."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from figures import Figure, Section
from loads import DEVICES, IOPS, ONE_IN, buckets_each, sampled, uniform
from looking_back import looks

from latmon.cli.check import survey
from latmon.diff.command import read as read_span
from latmon.diff.comparison import compare
from latmon.model.frame import Frame, Origin
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.reading import summarise
from latmon.support.process import seldom_collecting
from latmon_backends.demo.backend import DemoBackend
from latmon_backends.replay import ReplayBackend

HOUR_S = 3600
_PART_S = 600
"""What is read or written per window needs no whole hour."""
_START_US = 10**9
_SEEKS = 20


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    runs = range(rounds)
    yield _hour(scratch, runs)
    yield looks(scratch / "hour.latmon.jsonl.gz", runs)
    yield _all_stages(scratch, runs)
    yield _traced(scratch, runs)


def _hour(scratch: Path, runs: range) -> Section:
    hour, other, few, worst = (scratch / f"{name}.latmon.jsonl.gz" for name in ("hour", "other", "few", "worst"))
    some = sampled()
    took = write(hour, HOUR_S, some)
    write(other, HOUR_S, sampled(iops=IOPS - 20))
    write(few, _PART_S, some)
    lines = [line for line in gzip.decompress(few.read_bytes()).splitlines() if b'"type":"window"' in line[:20]]
    database = scratch / "peer.sqlite"
    _sqlite(database, lines)
    per, hours = _PART_S / 1000, HOUR_S / _PART_S
    sizes = [Figure(f"size, {buckets_each(some):.0f} buckets each", (_mb(hour),), "MB", 10, 1)]
    for name, others in (
        ("busy: 4,000 I/Os per second", sampled(iops=4000, different=10)),
        ("worst case: drawn", uniform(15)),
        ("worst case: drawn, 31 buckets in all", uniform(31)),
    ):
        write(worst, _PART_S, others)
        text = f"size, {name}, {buckets_each(others):.0f} buckets each"
        sizes.append(Figure(text, (_mb(worst) * hours,), "MB", None, 1))
    seeks = [seek for _ in runs for seek in _seeks(hour)]
    figures = [
        *sizes,
        Figure("peer: SQLite, a row with the line in zlib per window", (_mb(database) * hours,), "MB", None, 1),
        Figure("encode, sum up and write, CPU per window", (took * 1000 / HOUR_S,), "ms", None, 2),
        Figure("report", tuple(cpu_s(lambda: summarise(open_recording(hour))) for _ in runs), "s", 2, 2),
        Figure("diff with another hour", tuple(cpu_s(lambda: compare(*(read_span(str(path)) for path in (hour, other))))
               for _ in runs), "s", 2, 2),
        Figure("check, CPU per window", tuple(cpu_s(lambda: survey(open_recording(few))) / per for _ in runs), "ms",
               None, 2),
        Figure("decode, CPU per window", tuple(cpu_s(lambda: _read(few)) / per for _ in runs), "ms", None, 2),
        Figure("floor: json.loads of its line", tuple(cpu_s(lambda: [*map(json.loads, lines)]) / per for _ in runs),
               "ms", None, 2),
        Figure("floor: zcat | wc -l of the hour, wall", tuple(_wall(lambda: _zcat(hour)) for _ in runs), "s", None, 2),
        Figure("peer: SQLite, unpack and json.loads per row", tuple(cpu_s(lambda: _rows(database)) / per for _ in runs),
               "ms", None, 2),
        Figure("replay at speed 0, CPU per second of recording", tuple(cpu_s(lambda: _replay(few)) / per for _ in runs),
               "ms", 1, 2, "1 ms is 1,000 times real time"),
        Figure("first seek of an open recording, wall", tuple(_first_seek(hour) for _ in runs), "ms", 100, 1),
        Figure("any later seek, wall", tuple(seeks), "ms", 100, 1),
    ]  # fmt: skip
    return Section(
        title="An hour of 24 devices at 1 s",
        method=(
            f"3,600 windows of 24 devices with {IOPS} I/Os per second each, one op, three stages: 72 histograms. Times"
            " of each request are lognormal, 0.1 % of them 30 times as long; its total is its time in the queue and in"
            " the driver, and counts, sums and maxima are those of the same requests. The worst case is no load: every"
            " number of it is drawn by itself. Written by the recording's own writer with its roll-ups; read by its"
            " reader, by `latmon report`'s summary and by the replay backend, one process, one core. Numbers per"
            f" window is of {_PART_S} of them, as are sizes beside the first. MB are 10^6 bytes."
        ),
        figures=figures,
    )


def _all_stages(scratch: Path, runs: range) -> Section:
    on_demand, worst = (scratch / f"{name}.latmon.jsonl.gz" for name in ("deep", "deep-worst"))
    took = write(on_demand, _PART_S, sampled(on_demand=True))
    write(worst, _PART_S, uniform(15, on_demand=True))
    per, hours = _PART_S / 1000, HOUR_S / _PART_S
    return Section(
        title="All stages and two ops",
        method=(
            f"As above, but {_PART_S} windows with reads and writes, and in each the deep probes' table of one I/O in"
            f" {ONE_IN}: eight stages and the unaccounted rest of 48 flows, with the sums by total. In the worst case"
            " each of these 624 histograms has 15 to 31 buckets, every number drawn by itself. Sizes are for an"
            " hour."
        ),
        figures=[
            Figure("size", (_mb(on_demand) * hours,), "MB/h", 25, 1),
            Figure("size, worst case", (_mb(worst) * hours,), "MB/h", None, 1),
            Figure("encode, sum up and write, CPU per window", (took / per,), "ms", None, 2),
            Figure("decode, CPU per window", tuple(cpu_s(lambda: _read(on_demand)) / per for _ in runs), "ms", None, 2),
            Figure("decode, worst case, CPU per window", tuple(cpu_s(lambda: _read(worst)) / per for _ in runs), "ms",
                   None, 2),
            Figure("report of ten minutes", tuple(cpu_s(lambda: summarise(open_recording(on_demand)))
                                                    for _ in runs), "s", None, 2),
            Figure("report of ten minutes, worst case", tuple(cpu_s(lambda: summarise(open_recording(worst)))
                   for _ in runs), "s", None, 2),
        ],
    )  # fmt: skip


def _traced(scratch: Path, runs: range) -> Section:
    short, long = (scratch / f"{name}.latmon.jsonl.gz" for name in ("short", "long"))
    _write_demo(short, 180)
    _write_demo(long, _PART_S)
    hours = HOUR_S / _PART_S
    return Section(
        title="Nine devices, every request traced",
        method=(
            f"`latmon demo host`: all stages, interrupts, wake-ups, depths and outliers. Figures of an hour are of"
            f" {_PART_S} windows, times {hours:.0f}."
        ),
        figures=[
            Figure("report of 3 minutes", tuple(cpu_s(lambda: summarise(open_recording(short))) for _ in runs), "s",
                   1, 2),
            Figure("report of an hour", tuple(hours * cpu_s(lambda: summarise(open_recording(long))) for _ in runs),
                   "s", 2, 2),
            Figure("check of an hour", tuple(hours * cpu_s(lambda: survey(open_recording(long))) for _ in runs), "s",
                   10, 1),
            Figure("size", (_mb(long) * hours,), "MB/h", None, 1),
        ],
    )  # fmt: skip


def _write_demo(path: Path, seconds: int) -> None:
    async def fill() -> None:
        async with DemoBackend(speed=0, limit=seconds) as demo:
            writer = Writer.create(path, demo.origin)
            async for frame in demo.frames():
                writer.append(frame)
            writer.close()

    path.unlink(missing_ok=True)
    asyncio.run(fill())


def write(path: Path, seconds: int, frames: list[Frame]) -> float:
    """A recording of them, over and over; the CPU seconds that it took."""
    origin = Origin("bpftrace", "db-07", "Linux 6.12", "0.1.0", start_wall=1.7e9, start_mono_us=_START_US)
    path.unlink(missing_ok=True)
    writer = Writer.create(path, origin, devices=DEVICES)
    began = time.process_time()
    for second in range(seconds):
        mono_us = _START_US + (second + 1) * 1_000_000
        writer.append(replace(frames[second % len(frames)], seq=second, wall=1.7e9 + second + 1, mono_us=mono_us))
    writer.close()
    return time.process_time() - began


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


def cpu_s(what: Callable[[], object]) -> float:
    """Return the CPU time that a call takes in a command that reads recordings."""
    with seldom_collecting():
        began = time.process_time()
        what()
        return time.process_time() - began


def _wall(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
