"""Bytes per hour of a recording, beside what the peers would write of the same seconds."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from cost import VERSION_OF
from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, environment
from tracing import BIOSNOOP, attached, tools

from latmon_backends.bpftrace.program import VARIABLE, BpftraceTool

_HOUR_S = 3600
_SECONDS = 15.0
_READY_S = 20.0
_LEAVE_S = 8.0
_DEVICES = (8, 24)
_PER_SECOND = 40


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    figures = []
    tool = tools(scratch)[VERSION_OF["A"]]
    for devices in _DEVICES:
        with loops(devices, 16) as paths, trickle(paths, _PER_SECOND):
            runs = [_together(scratch / f"size-{devices}-{number}", tool) for number in range(rounds)]
        figures += [
            Figure(f"{devices} devices: {name}", tuple(run[name] for run in runs), "MB/h", None, 1) for name in runs[0]
        ]
    yield Section(
        title="Size of a recording",
        method=(
            f"latmon --record, bpftrace tier A, one window per second, loop devices with {2 * _PER_SECOND} I/Os per"
            " second each, 4 to 512 KiB; at the same time `iostat -x 1` and a biosnoop script write into files."
            f" {_SECONDS:.0f} s per run, by the bytes of the windows that were written. MB are 10^6 bytes. latmon's"
            " size follows devices and used histogram buckets, biosnoop's the number of I/Os."
        ),
        figures=figures,
    )


def _together(stem: Path, tool: BpftraceTool) -> dict[str, float]:
    """MB per hour of each."""
    recording = stem.with_suffix(".latmon.jsonl.gz")
    texts = {"peer: iostat -x 1": stem.with_suffix(".iostat"), "peer: biosnoop": stem.with_suffix(".biosnoop")}
    commands = (["iostat", "-x", "1"], tool.command(BIOSNOOP))
    latmon = _started([*LATMON, "--backend", "bpftrace", "--record", str(recording)], None, tool)
    peers = [_started(words, path, tool) for words, path in zip(commands, texts.values(), strict=True)]
    try:
        if attached(latmon, 1, _READY_S) is None or attached(peers[1], 2, _READY_S) is None:
            raise RuntimeError("a probe did not start")
        before, began = [path.stat().st_size for path in texts.values()], time.monotonic()
        time.sleep(_SECONDS)
        hours = (time.monotonic() - began) / _HOUR_S
        grown = [path.stat().st_size - size for path, size in zip(texts.values(), before, strict=True)]
    finally:
        for process in (latmon, *peers):
            process.send_signal(signal.SIGINT)
            if process.stdin is not None:
                process.stdin.close()
        for process in (latmon, *peers):
            process.wait(_LEAVE_S)
    found = {"latmon": _per_hour(recording)}
    for (name, path), size in zip(texts.items(), grown, strict=True):
        found[f"{name}, text"] = size / hours / 1e6
        found[f"{name}, gzip -6 as a whole"] = found[f"{name}, text"] * _ratio(path)
    return found


def _started(words: list[str], output: Path | None, tool: BpftraceTool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL if output is None else output.open("wb"),
        stderr=subprocess.DEVNULL,
        env=environment(**{VARIABLE: tool.path}),
        start_new_session=True,
    )


def _per_hour(recording: Path) -> float:
    """The windows' members, by the time they cover."""
    packed = recording.read_bytes()
    microseconds = (int(json.loads(line).get("dt", 0)) for line in gzip.decompress(packed).splitlines())
    return len(packed) / sum(microseconds) * _HOUR_S


def _ratio(path: Path) -> float:
    text = path.read_bytes()
    return len(gzip.compress(text, 6)) / len(text)
