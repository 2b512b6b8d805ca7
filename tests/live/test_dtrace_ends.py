"""However a latmon with DTrace ends, under load: no process, no event in tracefs, no BPF program of it stays.

test_processes.py has the whole list of ways to leave; here are the hard ones, and the tool's own death.
"""

import os
import signal
import subprocess
import time
import uuid

import pytest
from dtraces import DTRACE, STARTING_S, Traces, needs_dtrace, tools
from terminal import MARK, Terminal, environment, holds_frames, latmon, wait_for
from test_no_orphans import busy  # noqa: F401 - a fixture
from test_processes import read
from workload import Capture, now_us

from latmon.support.errors import EXIT_INCOMPLETE

pytestmark = [*needs_dtrace, pytest.mark.usefixtures("busy")]
LEFT_S = 2.0
SETTLED_S = 3.0
"""The kernel frees what a killed process had a moment later."""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.latmon.jsonl.gz"


def screen(directory, file, *words):
    argv = latmon("--backend", "dtrace", "--record", str(file), "--tui", *words)
    return Terminal(argv, directory, LATMON_DTRACE=DTRACE)


def traces_of(terminal):
    traces = [Traces(pid) for pid in tools(terminal.processes("dtrace "))]
    assert traces
    assert any(trace.programs for trace in traces)
    return traces


def left(traces):
    wait_for(lambda: not any(trace.left() for trace in traces), SETTLED_S, 0.2)
    return [what for trace in traces for what in trace.left()]


def kill_collector(terminal):
    os.kill(terminal.collector, signal.SIGKILL)


def kill_screen(terminal):
    os.kill(terminal.screen, signal.SIGKILL)


def end_screen(terminal):
    os.kill(terminal.screen, signal.SIGTERM)


def quit_screen(terminal):
    terminal.type(b"q")


WAYS = {
    "collector": kill_collector,
    "screen": kill_screen,
    "hang-up": Terminal.drop,
    "SIGTERM": end_screen,
    "q": quit_screen,
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_stays_of_a_screen(tmp_path, file, way):
    with screen(tmp_path, file) as terminal:
        assert wait_for(lambda: holds_frames(file), STARTING_S), terminal.output[-2000:]
        time.sleep(1.2)
        traces = traces_of(terminal)
        at_us = now_us()
        WAYS[way](terminal)
        assert wait_for(lambda: not tools(terminal.processes("dtrace ")), LEFT_S), terminal.processes()
        print(f"{way}: no dtrace after {(now_us() - at_us) / 1e6:.2f} s; programs {[len(t.programs) for t in traces]}")
        assert left(traces) == []
        frames, _, _ = read(file)
        # DTrace leaves out ticks: the last frame may be seconds old.
        assert at_us - frames[-1].mono_us < 15_000_000
        if way == "q":
            assert terminal.left() == []
            assert terminal.status() == 0


@pytest.mark.parametrize("way", ["collector", "screen", "hang-up", "q"])
@pytest.mark.parametrize("after_s", [0.8, 2.0, 3.0])
def test_nothing_stays_of_a_start(tmp_path, file, way, after_s):
    with screen(tmp_path, file) as terminal:
        time.sleep(after_s)
        traces = [Traces(pid) for pid in tools(terminal.processes("dtrace "))]
        WAYS[way](terminal)
        wait_for(lambda: not tools(terminal.processes("dtrace ")), 5.0)
        assert tools(terminal.processes("dtrace ")) == []
        assert left(traces) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_stays_of_a_capture(tmp_path, number):
    mark = uuid.uuid4().hex
    with Capture(tmp_path, "--backend", "dtrace", LATMON_DTRACE=DTRACE, **{MARK: mark}) as capture:
        time.sleep(1.5)
        traces = [Traces(pid) for pid in tools(marked(mark))]
        assert traces
        begun = time.monotonic()
        status = capture.stop(number)
        print(f"{number.name}: ended after {time.monotonic() - begun:.2f} s")
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0), capture.stderr
        assert wait_for(lambda: not marked(mark), LEFT_S), marked(mark)
        assert left(traces) == []
        assert capture.frames()


def marked(mark):
    stdout = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    reported = []
    for line in stdout.splitlines():
        pid, command = line.split(None, 1)
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:  # noqa: PTH123 - as short as it can be
                if mark.encode() in environ.read() and not command.startswith("sleep "):
                    reported.append((int(pid), command))
        except OSError:
            continue
    return reported


def test_a_dtrace_that_is_killed_is_started_again(tmp_path, file):
    with screen(tmp_path, file, "--stages", "basic") as terminal:
        assert wait_for(lambda: holds_frames(file), STARTING_S), terminal.output[-2000:]
        (killed,) = traces_of(terminal)
        before = len(read(file)[0])
        os.kill(killed.pid, signal.SIGKILL)
        again = wait_for(lambda: [one for one in read(file)[0] if one.gap], STARTING_S, 0.5)
        assert again, terminal.output[-2000:]
        print(f"gap after {before} frames: {again[0].dt_us / 1e6:.1f} s, {again[0].health.notice}")
        assert again[0].gap == "probe-restart"
        assert "dtrace was started again" in again[0].health.notice
        assert left([killed]) == []
        number = again[0].seq
        assert wait_for(lambda: read(file)[0][-1].seq > number + 1, 30.0, 0.5)
        terminal.type(b"q")
        assert terminal.left(10.0) == [], (
            "on a busy host the screen takes its time; the collector's 2 s are tested above"
        )
        assert terminal.status() == EXIT_INCOMPLETE
    report = subprocess.run(
        latmon("report", str(file)), env=environment(), capture_output=True, text=True, check=True
    ).stdout
    assert "probe-restart" in report or "started again" in report
    frames, ends, recording = read(file)
    assert frames
    assert len(ends) == 1
    assert recording.damage == []
