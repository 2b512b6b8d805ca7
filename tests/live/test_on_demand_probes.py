"""The on-demand probes of a real bpftrace beside the always-on one: with --stages all, and with tracing of one device.

fio on a loop device of its own, at a rate that any machine keeps up with.
"""

import asyncio
import os
import shutil
import subprocess
import threading
import time
from functools import cache
from typing import Any, NamedTuple

import pytest
from bpftraces import TIMEOUT_S, each_bpftrace, tool
from workload import Capture, LoopDevice, fio, wait_for

from latmon.capture.backend import Options
from latmon.model.frame import UNACCOUNTED, Flow, Frame
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS, WAKEUPS
from latmon_backends.bpftrace.backend import BpftraceBackend
from latmon_backends.probe.launcher import totals

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio and losetup"
    ),
]
RATE = 500


def load(device, directory, seconds):
    job = {"name": "reads", "filename": device.path, "size": "32M", "rw": "randread", "bs": "4k", "rate_iops": RATE}
    return fio(directory, seconds, job)["reads"]


def load_until(over, device, directory):
    while not over.is_set():
        load(device, directory, 1)


def counts(frames, name):
    """Stage -> how many traced reads passed it."""
    counts = {}
    for frame in frames:
        for series, histogram in frame.traced.histograms.items():
            if (series.device, series.op) == (name, "read"):
                counts[series.stage] = counts.get(series.stage, 0) + histogram.count
    return counts


class Recorded(NamedTuple):
    """A capture of all stages: fio's reads of one disk, `dd` of another, which the tool itself reads as well."""

    name: str
    both: set[str]
    issued: int
    other: int
    frames: list[Frame]
    report: dict[str, Any]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Records once with each bpftrace."""

    @cache
    def record(suite):
        directory = tmp_path_factory.mktemp("traced")
        with LoopDevice(directory / "image") as disk, LoopDevice(directory / "cold", 256 << 10) as cold:
            words = ("--backend", "bpftrace", "--stages", "all", "--threshold", "0")
            words += ("--device", disk.name, "--device", cold.name)
            with Capture(directory, *words, LATMON_BPFTRACE=reading_tool(suite, directory, cold)) as capture:
                wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), TIMEOUT_S, 1.0)
                done = load(disk, directory, 2.5)
                words = ("dd", f"if={cold.path}", "of=/dev/null", "iflag=direct", "bs=4096")
                with subprocess.Popen(words, stderr=subprocess.DEVNULL) as other:
                    assert other.wait() == 0
                reads_on(directory).unlink()
                time.sleep(4)  # an outlier waits for two frames
                assert capture.stop() == 0, capture.stderr
            both = {disk.name, cold.name}
            return Recorded(disk.name, both, done["read"].count, other.pid, capture.frames(), capture.report())

    return record


def seen(frames, name):
    """The reads that the always-on probe counted."""
    flow = Flow(name, "read")
    return sum(frame.seen[flow].count for frame in frames if flow in frame.seen)


def test_every_request_is_traced_and_its_stages_add_up(recorded):
    name, both, issued, _, frames, _ = recorded("host")
    passed = counts(frames, name)
    assert passed["total"] >= 0.9 * issued, passed
    assert passed["queue"] >= 0.99 * passed["total"]
    assert passed["hba"] + passed.get(UNACCOUNTED, 0) >= 0.99 * passed["total"]
    traced = [frame for frame in frames if frame.traced.one_in]
    assert {frame.traced.one_in for frame in traced} == {1}
    assert [set(frame.traced.devices) for frame in traced] == [both] * len(traced)
    notices = [frame.health.notice for frame in frames if frame.health.notice]
    # Of a tracer that had begun before the first frame, on a crowded host, that is what is said.
    began = ("tracing stages", "the tracer's output was late")
    assert any(words in notice for notice in notices for words in began), notices
    assert not any("lost" in notice or "ended" in notice for notice in notices), notices
    assert sum(frame.health.lost_events + frame.health.map_full for frame in frames) == 0
    assert any(frame[SOFTIRQS] for frame in traced)
    assert any(frame[HANDLERS] for frame in traced)
    assert any(frame[WAKEUPS] for frame in traced)
    # All that is counted is reported or left out, and nothing is traced that isn't counted, to the capture's very end.
    reported = sum(len(frame.outliers) + frame.health.suppressed for frame in frames)
    assert reported == sum(sum(frame[ABOVE].values()) for frame in frames)
    assert passed["total"] <= seen(frames, name)
    # Nothing of it is late, or takes from what is always on.
    assert not [frame.gap for frame in frames if frame.gap]


def reads_on(directory):
    """A file; while it is there, the tool reads its disk."""
    return directory / "reads-on"


def reading_tool(suite, directory, device):
    """A bpftrace beside whose process a child of it reads a cold disk, as it does itself where memory is short."""
    reads_on(directory).touch()
    wrapper = directory / "reading-bpftrace"
    wrapper.write_text(
        f"""#!/bin/sh
while [ "$1" != --version ] && [ -e {reads_on(directory)} ] && kill -0 $$; do
    blockdev --flushbufs {device.path}; read -r _ < {device.path}; sleep 0.3
done </dev/null >/dev/null 2>&1 &
exec {tool(suite, directory).path} "$@"
"""
    )
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.mark.slow
@each_bpftrace
def test_what_latmon_and_its_tool_read_is_marked(recorded, suite):
    _, _, _, other, frames, report = recorded(suite)
    found = [outlier for frame in frames for outlier in frame.outliers if outlier.pid is not None]
    assert {one.own for one in found if one.pid == other} == {False}
    assert {one.own for one in found if one.comm == "reading-bpftrac"} == {True}
    assert {outlier["comm"] for outlier in report["outliers"] if outlier.get("own")} == {"reading-bpftrac"}


@pytest.mark.slow
async def test_the_tracer_starts_with_a_screen_costs_what_it_reports_and_leaves_no_process(tmp_path):
    with LoopDevice(tmp_path / "image") as device:
        seen = []
        async with BpftraceBackend(Options(interval_us=500_000)) as backend, asyncio.timeout(TIMEOUT_S):
            over = threading.Event()
            reading = asyncio.create_task(asyncio.to_thread(load_until, over, device, tmp_path))
            async for frame in backend.frames():
                seen.append(frame)
                if len(seen) == 2:
                    assert frame.traced.one_in == 0
                    backend.request_tracing((device.name,))
                if frame.health.probe_cpu_percent is not None and counts(seen, device.name):
                    break
            pid = backend._on_demand._process.run.probe.pid
            assert totals(pid).runs is not None
            backend.set_stages("basic")
            async for frame in backend.frames():
                if not backend._on_demand.runs and "no longer traced" in frame.health.notice:
                    break
            assert not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240, PTH110 - /proc does not wait
            over.set()
            await reading
    traced = [frame for frame in seen if frame.traced.one_in]
    # The host may make another disk suspicious meanwhile.
    assert all(device.name in frame.traced.devices for frame in traced)
    assert counts(traced, device.name)["total"] > 0
    assert all(series.device in frame.traced.devices for frame in traced for series in frame.traced.histograms)
    assert 0 < seen[-1].health.probe_cpu_percent < 100
