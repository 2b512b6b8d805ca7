"""The baseline of --baseline: the same hour of another day, read from recordings in a process of its own.

Recordings may be large, damaged or hostile. So a child reads them, with the memory of commands that read recordings,
and prints the counts of one hour as JSON of bounded size; a thread of the screen waits for it. The collector is another
process, which notices nothing. As a program: `python -m latmon.diff.baseline WALL PATH`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from latmon.aggregate.accumulator import Accumulator, Minute
from latmon.aggregate.request_age import Waiting
from latmon.analysis.level_shift import Unit
from latmon.findings.baseline import FEWEST_MINUTES, MINUTE_US, Baseline, NoBaseline, levels_of
from latmon.findings.facts import Block, block_of, of_minute
from latmon.findings.latency_counts import counts_of, is_followed, latencies_of
from latmon.findings.span_load import SpanLoad, load_of
from latmon.model.frame import OPS, Completed, Device, Frame, Series
from latmon.model.histogram import TOP
from latmon.recording.parts import begin_of
from latmon.recording.reader import Recording, open_recording
from latmon.support import failures, imports, memory, trust
from latmon.support.errors import LatmonError, RecordingError
from latmon.support.process import module_path
from latmon.support.text import clean

MAX_FILES = 400
"""Files of a directory that are looked at, the newest first by name."""
MAX_DAYS = 366
MAX_OUTPUT = 64 << 20
"""Bytes of the JSON: 400 devices and ops have 6 MB."""
MAX_SECONDS = 120.0
MAX_DEVICES = 1024
_KEPT_HOURS = 4
"""Hours whose baselines are kept: the live edge needs one, and two when an hour begins."""
_MINUTE_S = 60
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_SUFFIXES = (".gz", ".latmon")
_MAX_TEXT = 300


ReadHour = Callable[[Path, float], Baseline | NoBaseline]


class _File(NamedTuple):
    """A recording with the span of its windows as Unix time."""

    recording: Recording
    begin_wall: float
    end_wall: float
    start_mono_us: int


class _Hour(NamedTuple):
    """An hour of a file: CLOCK_MONOTONIC of its begin and end, and when it was."""

    file: _File
    since_us: int
    until_us: int
    title: str


def print_hour(wall: float, path: Path) -> None:
    """Print the baseline of an hour as JSON, or a reason why there is none."""
    try:
        files, unreadable = _files(path)
        hour = _hour_of(files, wall)
        text = {"why": _no_hour(files, wall, path, unreadable)} if hour is None else _counts(hour, unreadable)
    except LatmonError as error:
        text = {"why": str(error), "is_unreadable": True}
    except Exception as error:
        if not failures.is_out_of_memory(error):
            raise
        text = {"why": f"{path} can't be read within {memory.MAX_BYTES >> 20} MiB of memory", "is_unreadable": True}
    line = json.dumps(text)
    if len(line) > MAX_OUTPUT:
        line = json.dumps({"why": f"{path.name} has too many devices", "is_unreadable": True})
    sys.stdout.write(line)


def _files(path: Path) -> tuple[list[_File], list[str]]:
    """Return the recordings at a path, and a sentence for each file that is none."""
    if not path.is_dir():
        file = _opened(path)
        if file is None:
            raise RecordingError(f"{path} has no window")
        return [file], []
    try:
        names = sorted((entry for entry in path.iterdir() if entry.name.endswith(_SUFFIXES)), reverse=True)
    except OSError as error:
        raise RecordingError(f"{path} can't be read: {error.strerror or error}") from None
    files, unreadable = [], []
    for name in names[:MAX_FILES]:
        try:
            file = _opened(name)
        except RecordingError as error:
            unreadable.append(str(error))
            continue
        if file is not None:
            files.append(file)
    if not files:
        raise RecordingError(unreadable[0] if unreadable else f"{path} has no recordings (*.gz)")
    return files, unreadable


def _opened(path: Path) -> _File | None:
    """Open a recording; None where it has no window."""
    recording = open_recording(path)
    begin = begin_of(recording)
    first_us, last_us = recording.span()
    if begin is None or last_us <= first_us:
        return None
    start_us, start_wall = begin
    return _File(recording, start_wall, start_wall + (last_us - start_us) / 1e6, start_us)


def _hour_of(files: Sequence[_File], wall: float) -> _Hour | None:
    """Return the same hour of the newest other day with enough minutes."""
    hour = _local_hour(wall)
    for days in range(1, MAX_DAYS):
        local = hour - days * _DAY
        begin = local.timestamp()
        if _local(begin) != local:  # the hour that is left out when summer time begins
            continue
        end = begin + _HOUR.total_seconds()
        for file in files:
            covered_s = min(end, file.end_wall) - max(begin, file.begin_wall)
            if covered_s >= FEWEST_MINUTES * _MINUTE_S:
                since_us = file.start_mono_us + round((begin - file.begin_wall) * 1e6)
                until_us = file.start_mono_us + round((end - file.begin_wall) * 1e6)
                title = f"{local:%Y-%m-%d %H:%M}-{local + _HOUR:%H:%M}"
                return _Hour(file, max(since_us, 1), until_us, title)
    return None


def _local_hour(wall: float) -> datetime:
    """Return the begin of the hour of a Unix time by the clock on the wall, without the offset of that day."""
    return _local(wall).replace(minute=0, second=0, microsecond=0)


def _local(wall: float) -> datetime:
    return datetime.fromtimestamp(wall).astimezone().replace(tzinfo=None)


def _no_hour(files: Sequence[_File], wall: float, path: Path, unreadable: Sequence[str]) -> str:
    hour = _local_hour(wall)
    spans = f"{_time(min(file.begin_wall for file in files))} to {_time(max(file.end_wall for file in files))}"
    text = f"{path.name} has no {hour:%H}:00-{hour + _HOUR:%H}:00 of another day; it reaches from {spans}"
    return f"{text}; {unreadable[0]}" if unreadable else text


def _time(wall: float) -> str:
    return f"{datetime.fromtimestamp(wall).astimezone():%Y-%m-%d %H:%M}"


def _counts(hour: _Hour, unreadable: Sequence[str]) -> dict[str, Any]:
    recording = hour.file.recording
    blocks = list(_blocks(recording, hour.since_us, hour.until_us))
    keys: dict[Series, None] = {}
    for block in blocks:
        keys.update(dict.fromkeys(key for key in latencies_of(block.packed).rows if is_followed(key)))
    names = sorted({key.device for key in keys})[:MAX_DEVICES]
    remarks = [*recording.damage[:1], *unreadable[:1]]
    series = [[key.device, key.op, [_unit(block, key) for block in blocks]] for key in keys if key.device in names]
    return {
        "title": hour.title,
        "series": series,
        "loads": {name: _load(load_of(name, blocks)) for name in names},
        "devices": {device.name: [device.model, device.serial] for device in recording.devices},
        "remark": "; ".join(remarks),
    }


def _unit(block: Block, key: Series) -> list[list[int]]:
    counts = counts_of(latencies_of(block.packed), key)
    return [[index, ios] for index, ios in sorted(counts.items())]


def _load(load: SpanLoad) -> dict[str, Any]:
    done = {op: [completed.count, completed.bytes] for op, completed in load.done.items()}
    values = {"us": load.us, "done": done, "busy": load.busy, "depth": load.depth, "failed": load.failed}
    return {**values, "sequential": dict(load.sequential), "ascending": load.ascending}


def _blocks(recording: Recording, since_us: int, until_us: int) -> Iterator[Block]:
    """Yield the minutes of a span; windows without a roll-up are added up to minutes."""
    waiting, sums = Waiting(), Accumulator(sums_gauges=False)
    for item in recording.summed(since_us, until_us):
        if isinstance(item, Minute):
            if sums.first is not None:
                yield block_of(sums, waiting)
                sums = Accumulator(sums_gauges=False)
            yield of_minute(item, waiting)
        elif isinstance(item, Frame):
            waiting.add(item)
            sums.add(item)
            if sums.measured_us >= MINUTE_US - MINUTE_US // 20:
                yield block_of(sums, waiting)
                sums = Accumulator(sums_gauges=False)


def decode(line: bytes) -> Baseline | NoBaseline:
    """Return what the child printed. RecordingError for a path that is no recording."""
    try:
        value = json.loads(line)
        if value.get("is_unreadable"):
            raise RecordingError(clean(str(value["why"]), _MAX_TEXT))
        if "why" in value:
            return NoBaseline(clean(str(value["why"]), _MAX_TEXT))
        minutes = dict(map(_decoded_series, value["series"]))
        return Baseline(
            title=clean(str(value["title"]), _MAX_TEXT),
            minutes=minutes,
            levels=levels_of(minutes),
            loads={str(name): _decoded_load(load) for name, load in value["loads"].items()},
            devices={name: Device(name, 0, 0, model=row[0], serial=row[1]) for name, row in value["devices"].items()},
            remark=clean(str(value["remark"]), _MAX_TEXT),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return NoBaseline("its reader ended without a baseline")


def _decoded_series(row: Sequence[Any]) -> tuple[Series, list[Unit]]:
    device, op, units = row
    return Series(device, op, "total"), [_decoded_unit(unit) for unit in units]


def _decoded_unit(unit: Sequence[Sequence[int]]) -> dict[int, int]:
    counts = {int(index): int(ios) for index, ios in unit}
    if any(not 0 <= index <= TOP or ios <= 0 for index, ios in counts.items()):
        raise ValueError("no bucket")
    return counts


def _decoded_load(load: Mapping[str, Any]) -> SpanLoad:
    done = {op: Completed(int(row[0]), int(row[1])) for op, row in load["done"].items() if op in OPS}
    return SpanLoad(
        us=int(load["us"]),
        done=done,
        busy=load["busy"],
        depth=load["depth"],
        failed=int(load["failed"]),
        sequential={str(op): float(share) for op, share in load["sequential"].items()},
        ascending=load["ascending"],
    )


def read_hour(path: Path, wall: float) -> Baseline | NoBaseline:
    """Return the baseline for the hour of a Unix time, read by a child. RecordingError where the path is none."""
    words = [*imports.CHECKED, "latmon.diff.baseline", f"{wall:.0f}", str(path.absolute())]
    try:
        child = subprocess.run(  # noqa: S603 - our own interpreter and module
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=MAX_SECONDS,
            env={**trust.environment(os.environ), "PYTHONPATH": module_path()},
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return NoBaseline(f"{path.name} was not read: {error}")
    return decode(child.stdout)


class BaselineFiles:
    """The baselines of a path. A thread reads that of an hour when it is first asked for, one hour at a time."""

    def __init__(
        self, path: Path, wall: float, read: Callable[[Path, float], Baseline | NoBaseline] = read_hour
    ) -> None:
        """Begin to read the hour of `wall`. RecordingError where the path can't be one of recordings."""
        self._path, self._read = path, read
        self._states: dict[int, Baseline | NoBaseline] = {}
        self._reader: threading.Thread | None = None
        check_path(path)
        self.at(wall)

    def at(self, wall: float) -> Baseline | NoBaseline | None:
        """Return the baseline for the hour of a Unix time; None while it, or another hour, is being read."""
        hour = _hour_number(wall)
        state = self._states.get(hour)
        if state is None and (self._reader is None or not self._reader.is_alive()):
            self._reader = threading.Thread(target=self._load, args=(hour, wall), daemon=True)
            self._reader.start()
        return state

    def _load(self, hour: int, wall: float) -> None:
        try:
            state = self._read(self._path, wall)
        except LatmonError as error:
            state = NoBaseline(str(error))
        self._states = {**dict(list(self._states.items())[1 - _KEPT_HOURS :]), hour: state}


def check_path(path: Path) -> None:
    """Raise RecordingError for a path that is missing, or a directory without recordings; read none of them."""
    try:
        if not path.is_dir():
            path.stat()
            return
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise RecordingError(f"{path} can't be read: {error.strerror or error}") from None
    if not any(name.endswith(_SUFFIXES) for name in names):
        raise RecordingError(f"{path} has no recordings (*.gz)")


def _hour_number(wall: float) -> int:
    """Return the number of the hour in local time: half of the time zones of India and Nepal begin it elsewhere."""
    return int((wall + time.localtime(wall).tm_gmtoff) // _HOUR.total_seconds())


def main() -> None:
    """Print the baseline that the command line asks for, at the lowest priority and within the memory of readers."""
    with suppress(OSError):
        os.nice(19)
    with memory.limited(memory.MAX_BYTES):
        print_hour(float(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
