"""Operations on files are asked for while the tracer runs: another tracer takes over, on a real kernel."""

import asyncio
import mmap
import os
import shutil
import threading
import time

import pytest
from bpftraces import each_bpftrace, tool
from workload import LoopDevice

from latmon.capture.backend import Options
from latmon.model.measurements import FILES
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.backend import BpftraceBackend

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("losetup"), reason="needs losetup"),
]
RATE, BLOCK = 200, 4096
TRACED_S, WITHIN_S = 4.0, 150.0
"""Seconds for which the first tracer runs, and for all: an old bpftrace on a busy host compiles for a minute."""
MOST_UNTRACED = 3
"""Frames without traced requests: a tool that gets no CPU prints late."""


class Reads(threading.Thread):
    """Reads of a device at a steady rate."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self._path, self._ends = path, threading.Event()

    def run(self):
        file = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as aligned:
            while not self._ends.wait(1 / RATE):
                os.preadv(file, [aligned], 0)
        os.close(file)

    def end(self):
        self._ends.set()
        self.join()


async def taken_over(name):
    """Return the frames from the first traced one on, to some after another tracer has taken over."""
    kept, began, has_files_s = [], None, None
    deadline = time.monotonic() + WITHIN_S
    async with BpftraceBackend(Options(stages="auto", budget_percent=0)) as backend:
        async for frame in backend.frames():
            now = time.monotonic()
            assert now < deadline, [one.health.notice for one in kept]
            is_asked_for = began is not None and now - began > TRACED_S
            backend.request_tracing((name,), files=is_asked_for)
            if began is None and frame.traced.one_in:
                began = now
            if began is None:
                continue
            kept.append(frame)
            if has_files_s is None and "took over" in frame.health.notice:
                has_files_s = now
            if has_files_s is not None and now - has_files_s > TRACED_S:
                return kept
    return kept


@each_bpftrace
def test_no_window_is_untraced_and_no_request_counted_twice(suite, tmp_path, monkeypatch):
    monkeypatch.setenv(bpftrace_program.VARIABLE, tool(suite, tmp_path).path)
    with LoopDevice(tmp_path / "image", 16 << 20) as device:
        reads = Reads(device.path)
        reads.start()
        try:
            frames = asyncio.run(taken_over(device.name))
        finally:
            reads.end()
    flows = [(flow, done.count) for frame in frames[1:] for flow, done in frame.seen.items()]
    seen = sum(count for flow, count in flows if flow.device == device.name)
    totals = [
        histogram.count
        for frame in frames[1:]
        for series, histogram in frame.traced.histograms.items()
        if series.device == device.name and series.stage == "total"
    ]
    untraced = [frame.seq for frame in frames if not frame.traced.one_in]
    print(suite, "traced", sum(totals), "of", seen, "frames", len(frames), "untraced", untraced)
    assert len(untraced) <= MOST_UNTRACED
    assert sum(totals) <= seen + 2 * RATE, "ticks of the tracer and of the always-on probe are up to a second apart"
    assert sum(totals) >= seen - (len(untraced) + 3) * RATE
    assert any(frame[FILES] for frame in frames[-4:])
