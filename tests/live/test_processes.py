"""However latmon ends, nothing of it stays: no process after 2 s, a sane terminal, a recording that opens.

Real pty, real signals, the real command line. A backend joins by its name in BACKENDS.
"""

import contextlib
import fcntl
import importlib.util
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import termios
import time
import tty
from pathlib import Path

import pytest
from dtraces import CACHE, DTRACE, needs_dtrace, tools
from emulated import emulated
from terminal import Terminal, environment, holds_frames, latmon, wait_for

from latmon.model.frame import Frame
from latmon.recording.codec import End
from latmon.recording.reader import open_recording

NO_BPFTRACE = not (
    importlib.util.find_spec("latmon_backends.bpftrace.backend") and shutil.which("bpftrace") and os.geteuid() == 0
)
BACKENDS = [
    "procfs",
    pytest.param(
        "bpftrace",
        marks=[
            pytest.mark.crash,  # a start and a detaching each: a minute and a half in all
            pytest.mark.live,
            pytest.mark.skipif(NO_BPFTRACE, reason="needs root and bpftrace"),
        ],
    ),
    pytest.param("dtrace", marks=[*needs_dtrace, pytest.mark.live]),
]
OFTEN = {"procfs": ("--interval", "200ms")}
"""The first frames come sooner; how soon those of a probe come is the probe's."""
STARTING_S = 60.0
slow = pytest.mark.slow
SOME_OUTPUT = 2000


def of(backend):
    return ("--backend", backend, *OFTEN.get(backend, ()))


def kill(number):
    return lambda terminal: os.kill(terminal.screen, number)


WAYS = {
    "q": (lambda terminal: terminal.type(b"q"), 0),
    "Ctrl-C": (lambda terminal: terminal.type(b"\x03"), 0),
    "SIGINT": (kill(signal.SIGINT), 0),
    "SIGTERM": (kill(signal.SIGTERM), 143),
    "SIGHUP": (kill(signal.SIGHUP), 129),
    "SIGKILL": (kill(signal.SIGKILL), 137),
}


@pytest.fixture(autouse=True)
def the_dtrace(monkeypatch):
    monkeypatch.setenv("LATMON_DTRACE", DTRACE)
    monkeypatch.setenv("LATMON_CHROOT_CACHE", CACHE)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.latmon.jsonl.gz"


@pytest.fixture
def started(tmp_path, file):
    """A screen on a backend that is recording, both seen to work."""
    terminals = []

    def start(backend, **how):
        terminal = Terminal(latmon(*of(backend), "--record", str(file), "--tui"), tmp_path, **how)
        terminals.append(terminal)
        recording = wait_for(lambda: holds_frames(file), STARTING_S)
        drawn = wait_for(lambda: len(terminal.output) > SOME_OUTPUT, STARTING_S)
        assert recording, terminal.output
        assert drawn, terminal.output
        return terminal

    yield start
    for terminal in terminals:
        terminal.end()


def read(path):
    recording = open_recording(path)
    items = list(recording)
    return (
        [frame for frame in items if isinstance(frame, Frame)],
        [end for end in items if isinstance(end, End)],
        recording,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", [pytest.param(one, marks=() if one in ("q", "SIGTERM") else slow) for one in WAYS])
def test_leaving(started, file, backend, way):
    terminal = started(backend)
    act, status = WAYS[way]
    act(terminal)
    assert terminal.left() == []
    assert terminal.status() == status
    frames, ends, recording = read(file)
    assert frames
    assert len(ends) == 1
    assert recording.damage == []
    if way != "SIGKILL":
        assert terminal.modes() == {}
        assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ignore_hang_up", [False, pytest.param(True, marks=slow)], ids=["", "nohup"])
def test_the_terminal_goes_away(started, file, backend, ignore_hang_up):
    terminal = started(backend, ignore_hang_up=ignore_hang_up)
    terminal.drop()
    assert terminal.left() == []
    if ignore_hang_up:  # else bash is gone too
        assert terminal.status() == 129
    frames, ends, _ = read(file)
    assert frames
    assert len(ends) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_collector_is_killed(started, file, backend):
    terminal = started(backend)
    time.sleep(0.4)
    before = len(read(file)[0])
    os.kill(terminal.collector, signal.SIGKILL)
    assert wait_for(lambda: len(terminal.processes()) == 1), terminal.processes()
    assert wait_for(lambda: b"SIGKILL" in terminal.output), terminal.output[-3000:]
    frames, ends, _ = read(file)
    assert len(frames) >= before
    assert ends == []
    terminal.type(b"q")
    assert terminal.left() == []
    assert terminal.status() == 1
    assert terminal.modes() == {}


@pytest.mark.slow
def test_the_collector_says_its_last_sentence_and_no_traceback(started):
    terminal = started("demo")
    os.kill(terminal.collector, signal.SIGABRT)
    assert wait_for(lambda: b"SIGABRT" in terminal.output)
    assert b"Traceback" not in terminal.output


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stopped_screen_does_not_stop_the_recording(started, file, backend):
    terminal = started(backend, job_control=False)  # with it, bash would take the terminal back
    screen = terminal.screen
    os.kill(screen, signal.SIGSTOP)
    try:
        before = len(read(file)[0])
        time.sleep(3.3)
        assert wait_for(lambda: len(read(file)[0]) >= before + 2, every=0.5)
    finally:
        os.kill(screen, signal.SIGCONT)
    terminal.type(b"q")
    assert terminal.left(60.0) == [], "what came meanwhile is taken in first"
    assert terminal.status() == 0, terminal.output[-3000:]


@pytest.mark.slow
def test_a_screen_goes_on_after_a_shell_had_its_terminal(started):
    terminal = started("demo", job_control=False)
    screen = terminal.screen
    assert wait_for(lambda: b"1" in terminal.output)
    threads = Path(f"/proc/{screen}/task")
    before = wait_for(lambda: len(list(threads.iterdir())))
    os.kill(screen, signal.SIGSTOP)
    termios.tcsetattr(terminal.slave, termios.TCSANOW, terminal.before)
    written = len(terminal.output)
    os.kill(screen, signal.SIGCONT)
    assert wait_for(lambda: not termios.tcgetattr(terminal.slave)[tty.LFLAG] & termios.ICANON), "keys need no return"
    assert wait_for(lambda: b"demo" in terminal.output[written:].lower()), "the whole screen is painted again"
    assert len(list(threads.iterdir())) == before, "one thread reads the keys"
    terminal.type(b"q")
    assert terminal.left(60.0) == []
    assert termios.tcgetattr(terminal.slave) == terminal.before
    assert terminal.modes() == {}


def shown(terminal):
    """The text of its screen; the output has only the cells that differ from the picture before."""
    return "\n".join(emulated(terminal.output).display)


LIGHT = ("demo", "serialised")
"""The demo whose windows are made in a sixth of the time of the default host's: it begins with ninety at once."""


def python_of(terminal):
    """The process of the screen, not its parent, whose command line has the screen's; None where there is none."""
    running = terminal.processes("-m latmon demo")
    return next((pid for pid, command in running if command.startswith(sys.executable)), None)


def jobs_of(terminal, parent=""):
    """The screen, started as a job of an interactive shell; the job's first process may be its `parent`, as make is."""
    command = shlex.join(latmon(*LIGHT))
    terminal.type((shlex.join([parent, "-c", f"{command}; exit"]) if parent else command).encode() + b"\n")
    assert wait_for(lambda: python_of(terminal), STARTING_S, 0.2), terminal.output
    screen = python_of(terminal)
    drawn = wait_for(lambda: b"[?2004h" in terminal.output and "DEMO" in shown(terminal), STARTING_S, 0.2)
    assert drawn, shown(terminal)
    return screen


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


CTRL_Z = None
"""The key instead of a signal."""
BACKGROUND = 'bg; until [ "$(jobs -sp)" ]; do sleep 0.1; done'
"""It ends when the job has stopped again: a `fg` that comes before the stop is undone by it."""


def stop_and_go_on(terminal, screen, number, commands):
    """Stop the screen as a job and type the shell's commands."""
    if number is CTRL_Z:
        terminal.type(b"/x\x1a")  # also while a line is typed
    else:
        os.kill(screen, number)
    if number == signal.SIGTSTP:  # twice at once is once
        os.kill(screen, number)
    assert wait_for(lambda: state(screen) == "T")
    written = len(terminal.output)
    for command in commands:
        terminal.type(command.encode() + b"\n")
    assert wait_for(lambda: b"DEMO" in terminal.output[written:]), "the whole screen is painted again"
    if number is CTRL_Z:
        terminal.type(b"\r")


@pytest.mark.parametrize(
    ("number", "parent"),
    [
        *(pytest.param(one, "", marks=pytest.mark.slow) for one in (signal.SIGSTOP, signal.SIGTSTP, CTRL_Z)),
        (CTRL_Z, "sh"),
    ],
)
def test_a_job_of_a_shell_stops_and_goes_on(tmp_path, number, parent):
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with Terminal(shell, tmp_path, job_control=False, answers=False) as terminal:
        screen = jobs_of(terminal, parent)
        for commands in (["fg"], ["stty sane", BACKGROUND, BACKGROUND, "fg"]):
            stop_and_go_on(terminal, screen, number, commands)
        terminal.type(b"q")
        assert wait_for(lambda: not Path(f"/proc/{screen}").exists())
        assert terminal.modes() in ({}, {2004: "h"}), "bash switches its own paste mode on"


@pytest.mark.slow
def test_sigcont_at_any_time_changes_nothing(started):
    terminal = started("demo", job_control=False)
    screen = terminal.screen
    for turn in range(120):
        os.kill(screen, signal.SIGCONT)
        if turn % 3 == 0:
            os.kill(screen, signal.SIGSTOP)
            os.kill(screen, signal.SIGCONT)
        time.sleep(0.002)
    terminal.type(b"q")
    until = time.monotonic() + STARTING_S
    while (running := terminal.processes("-m latmon ")) and time.monotonic() < until:
        for pid, _ in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    assert terminal.left(60.0) == []
    assert terminal.status() == 0, terminal.output[-3000:]
    assert termios.tcgetattr(terminal.slave) == terminal.before
    assert b"Traceback" not in terminal.output


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 120), pytest.param((0, 0), marks=pytest.mark.slow)])
def test_a_screen_whose_output_is_no_terminal_leaves_at_q(tmp_path, size):
    """Textual has two notions of the size then; it painted without end."""
    command = f"{shlex.join(latmon(*LIGHT))} > /dev/null"
    with Terminal(["bash", "-c", command], tmp_path, job_control=False) as terminal:
        fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        assert wait_for(lambda: not termios.tcgetattr(terminal.slave)[tty.LFLAG] & termios.ICANON)
        time.sleep(1.0)
        before = len(terminal.output)
        time.sleep(2.0)
        assert len(terminal.output) - before < 200_000
        terminal.type(b"q")
        assert terminal.left(60.0) == []
        assert termios.tcgetattr(terminal.slave) == terminal.before


SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = {"SUDO_UID": "65534", "SUDO_GID": "65534"}


def system_python_runs_it():
    """Whether a Python that every user may read finds what this one has."""
    done = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import textual, yaml, psutil, enum; enum.StrEnum"],
        env={"PYTHONPATH": sysconfig.get_paths()["purelib"]},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def users_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return {key: set(value.split()) for key, value in (line.split(":", 1) for line in status.splitlines())}


def privileges_of(pid):
    """Whether what it starts may gain privileges, and its capabilities."""
    return {key: int(*users_of(pid)[key], 16) for key in ("NoNewPrivs", "CapEff")}


def test_the_screen_has_no_privilege_and_gains_none(started):
    terminal = started("procfs")
    assert wait_for(lambda: len(terminal.output) > SOME_OUTPUT, STARTING_S), terminal.output
    assert privileges_of(terminal.screen) == {"NoNewPrivs": 1, "CapEff": 0}
    terminal.type(b"q")
    assert terminal.status() == 0


@pytest.fixture
def nobodys():
    """A directory of the user nobody; pytest's own is closed to all but root."""
    with tempfile.TemporaryDirectory() as made:
        os.chown(made, 65534, 65534)
        yield Path(made)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_under_sudo_only_the_probe_stays_root(nobodys, backend):
    if not Path(SYSTEM_PYTHON).exists() or not system_python_runs_it():
        pytest.skip("needs a system Python that can run latmon")
    file = nobodys / "x.latmon.jsonl.gz"
    argv = [SYSTEM_PYTHON, *latmon("--backend", backend, "--record", str(file), "--tui")[1:]]
    roots = os.pathsep.join((environment()["PYTHONPATH"], sysconfig.get_paths()["purelib"]))
    with Terminal(argv, nobodys, PYTHONPATH=roots, **NOBODY) as terminal:
        assert wait_for(lambda: holds_frames(file), STARTING_S), terminal.output
        assert wait_for(lambda: len(terminal.output) > SOME_OUTPUT, STARTING_S), terminal.output
        for pid in (terminal.screen, terminal.collector):
            assert users_of(pid)["Uid"] == users_of(pid)["Gid"] == {"65534"}
            assert privileges_of(pid) == {"NoNewPrivs": 1, "CapEff": 0}
        if backend == "bpftrace":
            assert users_of(terminal.pid("/bpftrace "))["Uid"] == {"0"}
        if backend == "dtrace":
            assert all(users_of(pid)["Uid"] == {"0"} for pid in tools(terminal.processes("dtrace ")))
        assert file.stat().st_uid == 65534
        terminal.type(b"q")
        assert terminal.left() == []
        assert terminal.status() == 0


@pytest.fixture
def headless(tmp_path, file):
    running = []

    def start(*words):
        process = subprocess.Popen(
            latmon("--record", str(file), *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(),
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=slow), signal.SIGTERM, pytest.param(signal.SIGHUP, marks=slow)],
    ids=lambda number: number.name,
)
def test_a_headless_capture_ends_complete(headless, file, backend, number):
    process = headless(*of(backend))
    assert wait_for(lambda: holds_frames(file), STARTING_S)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == ""
    assert "\r" not in err
    assert "ended by" in err
    frames, ends, recording = read(file)
    assert frames
    assert "ended by" in ends[0].reason
    assert recording.damage == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_headless_capture_is_killed(headless, file, backend):
    process = headless(*of(backend))
    assert wait_for(lambda: holds_frames(file), STARTING_S)
    process.kill()
    process.wait()
    frames, ends, _ = read(file)
    assert frames
    assert ends == []


@pytest.mark.slow
def test_a_capture_in_the_background_of_a_script_is_not_ended_by_the_terminal(file):
    """Signals that nohup and a script's `&` ignore stay ignored."""
    code = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    words = latmon("--record", str(file), "--backend", "demo", "--duration", "2s")
    with subprocess.Popen([sys.executable, "-c", code, *words], env=environment(), stderr=subprocess.PIPE) as process:
        assert wait_for(lambda: holds_frames(file), STARTING_S)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        assert b"ended after 2s as asked" in process.stderr.read()
