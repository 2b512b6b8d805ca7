"""The screen on a real terminal with the real DTrace: its views, its keys, what is recorded of it, its replay."""

import re
import subprocess
import time

import pytest
from dtraces import DTRACE, STARTING_S, needs_dtrace
from terminal import Terminal, environment, holds_frames, latmon, wait_for
from test_dtrace_measures import SIZE, reads
from test_processes import read
from workload import LoopDevice, fio

pytestmark = needs_dtrace
_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")


def shown(terminal, since=0):
    return _ESCAPES.sub(b" ", terminal.output[since:]).decode(errors="replace")


def shows(terminal, *words, since=0, seconds=20.0):
    wait = wait_for(lambda: all(word in shown(terminal, since) for word in words), seconds, 0.2)
    assert wait, (words, shown(terminal, since)[-3000:])


@pytest.fixture
def disk(tmp_path):
    with LoopDevice(tmp_path / "image", SIZE) as device:
        yield device


def test_the_views_and_a_recording(tmp_path, disk):
    argv = latmon("--backend", "dtrace", "--device", disk.name)
    with Terminal(argv, tmp_path, LATMON_DTRACE=DTRACE, XDG_STATE_HOME=str(tmp_path / "state")) as terminal:
        shows(terminal, disk.name, seconds=STARTING_S)
        job = reads(disk.path, 10**9, rate_iops=2000, time_based=1)
        load = subprocess.Popen(
            ["fio", *(f"--{key}={value}" for key, value in job.items()), "--direct=1", "--ioengine=libaio",
             "--thread", "--bs=4k", "--runtime=90"],
            cwd=tmp_path, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            shows(terminal, disk.name, "dtrace", "coverage")
            for key, words in ((b"2", ("hba", "queue")), (b"3", ("driver",)), (b"1", ("p99",))):
                since = len(terminal.output)
                terminal.type(key)
                shows(terminal, *words, since=since)
            terminal.type(b"R")
            file = wait_for(lambda: next(iter(tmp_path.rglob("*.latmon.jsonl.gz")), None), 20.0, 0.2)
            assert file, shown(terminal)[-2000:]
            assert wait_for(lambda: holds_frames(file), 20.0, 0.2)
            terminal.type(b"S")
            time.sleep(5)
        finally:
            load.kill()
            load.wait()
        begun = time.monotonic()
        terminal.type(b"q")
        left = terminal.left()
        print(f"closed in {time.monotonic() - begun:.2f} s")
        assert left == []
        assert terminal.status() == 0
        assert terminal.modes() == {}
    frames, ends, recording = read(file)
    assert frames
    assert len(ends) == 1
    assert recording.damage == []
    assert sum(done.count for frame in frames for flow, done in frame.seen.items() if flow.device == disk.name) > 0
    reported = subprocess.run(
        latmon("report", str(file)), env=environment(), capture_output=True, text=True, check=True
    )
    assert disk.name in reported.stdout
    assert "dtrace" in reported.stdout
    with Terminal(latmon("replay", str(file)), tmp_path) as terminal:
        shows(terminal, disk.name, "dtrace")
        terminal.type(b"q")
        assert terminal.left() == []


def test_a_recording_beside_the_screen(tmp_path, disk):
    file = tmp_path / "x.latmon.jsonl.gz"
    argv = latmon("--backend", "dtrace", "--device", disk.name, "--record", str(file), "--tui", "--stages", "basic")
    with Terminal(argv, tmp_path, LATMON_DTRACE=DTRACE) as terminal:
        assert wait_for(lambda: holds_frames(file), STARTING_S, 0.2), shown(terminal)[-2000:]
        issued = fio(tmp_path, 60, reads(disk.path, 5000))["reads"]["read"].count
        time.sleep(3)
        terminal.type(b"q")
        assert terminal.left() == []
    frames, _, _ = read(file)
    seen = sum(done.count for frame in frames for flow, done in frame.seen.items() if flow == (disk.name, "read"))
    assert 0.99 * issued <= seen <= issued + 100
