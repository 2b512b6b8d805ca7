"""No bpftrace and no shim of ours outlives latmon by 2 s, while the disk is busy, on each bpftrace version.

test_processes.py has the whole list of ways to leave, on the host's bpftrace and an idle disk; here are the hard ones.
"""

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import MARK, Terminal, latmon, wait_for
from workload import Capture

from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.support.errors import RecordingError

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("busy")]
STARTING_S = 60.0


@pytest.fixture
def busy(tmp_path):
    """Direct I/O and fsyncs to the disk under the temporary directory, until the test is over.

    fio's jobs are threads: as processes they lead sessions of their own and outlive it.
    """
    words = ["fio", "--name=busy", "--filename=file", "--size=32M", "--rw=randrw", "--direct=1", "--ioengine=libaio"]
    words += ["--thread", "--iodepth=8", "--fsync=32", "--bs=4k", "--rate_iops=4000", "--time_based", "--runtime=300"]
    try:
        load = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("needs fio")
    yield
    load.kill()
    load.wait()


def running(mark):
    """Command lines of what carries this mark in its environment, any `sleep` apart."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                marked = mark.encode() in (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if marked and command and not command.startswith("sleep "):  # a shim's, for a moment more
                found.append(command)
    return found


def whole_seconds(file, ended_us):
    """The recording's frames; the last of them is of the last second, give or take the one that was being written."""
    frames = [item for item in open_recording(file) if isinstance(item, Frame)]
    assert ended_us - frames[-1].mono_us < 2_200_000, (ended_us, frames[-1].mono_us)
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert sum(done.count for frame in frames for done in frame.seen.values()) > 0
    return frames


@each_bpftrace
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_capture_without_a_screen(suite, tmp_path, number):
    mark = uuid.uuid4().hex
    environ = {MARK: mark, "LATMON_BPFTRACE": tool(suite, tmp_path).path}
    with Capture(tmp_path, "--backend", "bpftrace", **environ) as capture:
        assert any("latmon-probe" in command for command in running(mark))
        time.sleep(1.5)
        now_us = time.monotonic_ns() // 1000
        status = capture.stop(number)
        wait_for(lambda: not running(mark), 2.0)
        assert running(mark) == []
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0), capture.stderr
        whole_seconds(capture.file, now_us)


def kill_collector(terminal):
    os.kill(terminal.collector, signal.SIGKILL)


def kill_screen(terminal):
    os.kill(terminal.screen, signal.SIGKILL)


WAYS = {"collector": kill_collector, "screen": kill_screen, "hang-up": Terminal.drop}


@pytest.mark.versions
@each_bpftrace
@pytest.mark.parametrize("way", WAYS)
def test_a_screen(suite, tmp_path, way):
    file = tmp_path / "x.latmon.jsonl.gz"
    words = latmon("--backend", "bpftrace", "--record", str(file), "--tui")
    with Terminal(words, tmp_path, LATMON_BPFTRACE=tool(suite, tmp_path).path) as terminal:
        assert wait_for(lambda: recorded(file), STARTING_S), terminal.output[-2000:]
        time.sleep(1.2)
        now_us = time.monotonic_ns() // 1000
        WAYS[way](terminal)
        assert wait_for(lambda: not probes(terminal), 2.0), probes(terminal)
        whole_seconds(file, now_us)


def recorded(file):
    try:
        return any(isinstance(item, Frame) for item in open_recording(file))
    except RecordingError:
        return False


def probes(terminal):
    return terminal.processes("latmon-probe") + terminal.processes("bpftrace -f")
