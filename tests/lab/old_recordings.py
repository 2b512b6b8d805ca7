"""Recordings that no command makes, written by the checkout of an old commit that runs this module.

`python old_recordings.py KIND FILE`, or `python old_recordings.py samples DIRECTORY`, with PYTHONPATH of that checkout,
its backends, tests/helpers and tests/importers. The names that it uses are that commit's, which compare_recordings.py
states: it is never run with the present code.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_dtrace import Fake, manifests
from fake_host import FakeHost
from test_imports import SAMPLES

from latmon.capture.backend import Options
from latmon.model.frame import Frame, Origin
from latmon.recording.parts import RecordingLimits, Rotation
from latmon.recording.writer import Writer
from latmon_backends.demo.backend import DemoBackend
from latmon_backends.dtrace import backend as dtrace_backend
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import DtraceBackend
from latmon_backends.dtrace.probe import NoCounters
from latmon_backends.dtrace.program import DtraceTool

SCRIPTS = {
    "illumos": (
        "sd",
        *("sd_depth", "sd_limits", "scsi_pkt", "mpt_flags", "emlxs_sli4", "emlxs_thread"),
        *("taskqs", "intr", "callouts", "zfs_slow", "vop_files"),
    ),
    "freebsd": ("devstat", "devdepth", "cam"),
    "linux": ("requests_d",),
}
"""System -> its always-on script, then those on demand, whose printed lines are in tests/golden/dtrace."""
FRAMES_AFTER_FIRST = 10
"""Windows after the first one with latencies: the lines of all scripts have been played by then."""
PARTS_SIZE = 8 << 20
"""Bytes of all parts: a part has an eighth, which the demo `emulex` of 180 s exceeds."""


async def play(system: str, path: Path) -> None:
    """Record what a stand-in for dtrace prints: the lines of real scripts, with their stamps moved to now."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        goldens = {name: f"{system}-{name}.txt" for name in SCRIPTS[system]}
        fake = Fake(root, goldens=goldens, pace=0.1, go=str(root / "go"))
        program.load_all = lambda _: manifests()
        options = Options(interval_us=100_000, stages="all", proc=root, sys=root)
        more: dict[str, Any] = {}
        if system == "linux":
            host = FakeHost(root / "host")
            host.virtio()
            options = replace(options, stages="basic", proc=host.proc, sys=host.sys)
            more = {"only": SCRIPTS[system]}
        else:  # this host's counters are none of the stand-in's
            dtrace_backend._counters = lambda _: (NoCounters(), "")
        backend = DtraceBackend(options, find_tool=lambda: DtraceTool(str(fake.path), system), **more)
        async with asyncio.timeout(120), backend:
            writer = Writer.create(path, backend.origin)
            after_first = 0
            async for frame in backend.frames():
                writer.append(frame)
                fake.release()
                after_first += bool(after_first or frame.histograms)
                if after_first > FRAMES_AFTER_FIRST:
                    break
            for frame in await backend.finish(30.0):
                writer.append(frame)
            writer.close()


def demo_frames(scenario: str, windows: int) -> tuple[Origin, AsyncIterator[Frame]]:
    """Return the origin and the frames of a demo, without pauses."""
    backend = DemoBackend(scenario, seed=1, speed=0, limit=windows)
    return backend.origin, backend.frames()


async def rotate(path: Path) -> None:
    """Write a demo in parts, with roll-ups."""
    origin, frames = demo_frames("emulex", 180)
    rotation = Rotation.create(path, origin, RecordingLimits(max_size=PARTS_SIZE))
    async for frame in frames:
        rotation.append(frame)
    rotation.close()


async def redact(path: Path) -> None:
    """Write a demo with issuers, files and settings, redacted."""
    origin, frames = demo_frames("host", 65)
    rotation = Rotation.create(path, origin, RecordingLimits(redact=True))
    async for frame in frames:
        rotation.append(frame)
    rotation.close()


async def without_thresholds(path: Path) -> None:
    """Write a demo whose roll-ups are read: the old commit's have no range of thresholds, so those with one are not."""
    origin, frames = demo_frames("bubbles", 600)
    writer = Writer.create(path, origin)
    async for frame in frames:
        writer.append(replace(frame, thresholds_us={}, above={}, outliers=()))
    writer.close()


def write_samples(directory: Path) -> None:
    """Write the sample of each importer that has no file of its own."""
    directory.mkdir()
    for name, text in SAMPLES.items():
        (directory / name).write_text(text)


KINDS: dict[str, Callable[[Path], Coroutine[Any, Any, None]]] = {
    "dtrace-illumos": lambda path: play("illumos", path),
    "dtrace-freebsd": lambda path: play("freebsd", path),
    "dtrace-linux": lambda path: play("linux", path),
    "demo-in-parts": rotate,
    "demo-redacted": redact,
    "demo-summed": without_thresholds,
}


if __name__ == "__main__":
    if sys.argv[1] == "samples":
        write_samples(Path(sys.argv[2]))
    else:
        asyncio.run(KINDS[sys.argv[1]](Path(sys.argv[2])))
