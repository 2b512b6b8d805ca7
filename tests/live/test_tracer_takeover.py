"""Operations on files are asked for while the tracer runs: another tracer takes over, on a real kernel.

A busy host delays each step, so that nothing is compared with a clock: the reads are counted, they begin when the first
tracer counts, and frames are added until both probes have printed the last read.
"""

import asyncio
import mmap
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from bpftraces import each_bpftrace, tool
from workload import LoopDevice

from latmon.capture.backend import Options
from latmon.model.measurements import FILES
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.backend import BpftraceBackend
from latmon_backends.bpftrace.tracer import stem

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("losetup"), reason="needs losetup"),
]
RATE, BLOCK = 200, 4096
SCRIPTS = {"stages", "irqs", "files"}
"""Scripts of the tracer that the test runs: an old bpftrace on a busy host compiles all of them for a minute, twice."""
TRACED_FRAMES, LAST_FRAMES = 2, 3
"""Frames with reads before and after the takeover; frames without further reads, after which all are printed."""
WITHIN_S = 300.0
"""Ends a test that hangs."""


class Reads(threading.Thread):
    """Reads of a device at a steady rate, which are counted."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self._path, self._ends = path, threading.Event()
        self.count = 0

    def run(self):
        file = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as aligned:
            while not self._ends.wait(1 / RATE):
                os.preadv(file, [aligned], 0)
                self.count += 1
        os.close(file)

    def end(self):
        self._ends.set()
        self.join()


READS_A_FILE = """
import time
while True:
    with open(__file__) as file:
        file.read()
    time.sleep(0.05)
"""
"""Another process whose operations on files are timed: a capture leaves out those of latmon itself."""


class Takeover:
    """The frames of a capture in which another tracer takes over, and the reads from the first of them on."""

    def __init__(self, device):
        self.device, self.reads, self.frames = device.name, Reads(device.path), []

    @property
    def notices(self):
        return "; ".join(frame.health.notice for frame in self.frames if frame.health.notice)

    def counted(self, frames):
        """Return the reads that the always-on probe has counted, and those that a tracer has."""
        flows = [(flow, done.count) for frame in frames for flow, done in frame.seen.items()]
        series = [pair for frame in frames for pair in frame.traced.histograms.items()]
        return (
            sum(count for flow, count in flows if (flow.device, flow.op) == (self.device, "read")),
            sum(
                times.count
                for key, times in series
                if (key.device, key.op, key.stage) == (self.device, "read", "total")
            ),
        )

    async def _taken(self, frames, is_last, *, files):
        """Ask for the tracer and add frames until `is_last` is true of one."""
        async for frame in frames:
            assert time.monotonic() < self._deadline, self.notices
            self._backend.request_tracing((self.device,), files=files)
            self.frames.append(frame)
            if is_last(frame):
                return

    async def play(self):
        self._deadline = time.monotonic() + WITHIN_S
        async with BpftraceBackend(Options(stages="auto", budget_percent=0)) as backend:
            self._backend, programs = backend, backend._programs
            for manifest in programs.manifests:
                if stem(manifest.name) not in SCRIPTS:
                    programs.refuse(manifest.name, "the test does not need it")
            frames = backend.frames()
            await self._taken(frames, lambda frame: frame.traced.one_in, files=False)
            self.frames.clear()
            self.reads.start()
            await self._taken(frames, lambda _: len(self.frames) == TRACED_FRAMES, files=False)
            await self._taken(frames, lambda frame: "took over" in frame.health.notice, files=True)
            many = len(self.frames) + TRACED_FRAMES
            await self._taken(frames, lambda _: len(self.frames) == many, files=True)
            self.reads.end()
            for _ in range(LAST_FRAMES):
                await self._taken(frames, lambda frame: frame.traced.one_in, files=True)


@each_bpftrace
def test_another_tracer_takes_over_and_counts_no_request_twice(suite, tmp_path, monkeypatch):
    monkeypatch.setenv(bpftrace_program.VARIABLE, tool(suite, tmp_path).path)
    script = tmp_path / "reads_a_file.py"
    script.write_text(READS_A_FILE)
    with LoopDevice(tmp_path / "image", 16 << 20) as device, subprocess.Popen([sys.executable, script]) as reader:
        takeover = Takeover(device)
        try:
            asyncio.run(takeover.play())
        finally:
            reader.kill()
            if takeover.reads.is_alive():
                takeover.reads.end()
    frames = takeover.frames
    seen, traced = takeover.counted(frames)
    untraced_us = sum(frame.dt_us for frame in frames if not frame.traced.one_in)
    print(suite, "read", takeover.reads.count, "seen", seen, "traced", traced, "untraced us", untraced_us)
    assert seen >= 0.98 * takeover.reads.count, "a bpftrace of tier C counts some of them nowhere"
    assert traced <= max(seen, takeover.reads.count), "a request is counted twice"
    assert traced >= seen - RATE * (1 + untraced_us / 1e6)
    assert "restarted" not in takeover.notices
    assert "no stage was traced" not in takeover.notices
    assert "wake-ups and operations on files were not counted for" not in takeover.notices, "the first one had none"
    assert "interrupts, softirqs and wake-ups were not counted for" in takeover.notices
    assert any(frame[FILES] for frame in frames[-LAST_FRAMES - TRACED_FRAMES :])
