"""A real terminal for tests: a pty, bash with job control as its session leader, latmon as its foreground job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import uuid
from pathlib import Path

from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.support.errors import RecordingError

ROOT = Path(__file__).resolve().parents[2]
MARK = "LATMON_TEST_MARK"
_MODES = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
AT_REST = {25: "h", 7: "h"}
"""DEC private modes that are on in a terminal at rest; all others are off."""


def latmon(*words):
    """The real command line."""
    return [sys.executable, "-m", "latmon", *words]


def environment(**more):
    """This environment, with a terminal's name and colours and both of the checkout's roots."""
    roots = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
    return {**os.environ, "PYTHONPATH": roots, "TERM": "xterm-256color", "XDG_CONFIG_HOME": "/nonexistent", **more}


def wait_for(what, seconds=60.0, every=0.02):
    """The first true value of `what()`, or the last false one. To ask should take much less than `every`."""
    deadline = time.monotonic() + seconds
    while not (wait := what()) and time.monotonic() < deadline:
        time.sleep(every)
    return wait


def holds_frames(file):
    """It is asked often while its writer needs the CPU: no more is read than the first."""
    try:
        return any(isinstance(one, Frame) for one in open_recording(file))
    except RecordingError:
        return False


ASK, ANSWER = b"\x1b[6n", b"\x1b[1;1R"


class Terminal:
    """`output` is every byte that reached the terminal. Whatever happens, `end` leaves nothing running."""

    def __init__(self, argv, cwd, *, ignore_hang_up=False, job_control=True, answers=True, size=(24, 80), **environ):
        """`answers`: to requests for the cursor's position; a shell gets those that a stopped screen doesn't read."""
        self._answers = answers
        self.mark = uuid.uuid4().hex
        self._others: set[str] = set()
        """Processes that are not of this terminal; none becomes one of it, and most of a host's are read only once."""
        self.status_file = Path(cwd) / f"status-{self.mark}"
        self.output = b""
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        command = f"{shlex.join(argv)}; echo $? > {shlex.quote(str(self.status_file))}; sleep 60"
        if ignore_hang_up:
            command = f"trap '' HUP; {command}"
        self.leader = subprocess.Popen(
            ["bash", "-c", f"set -m; {command}" if job_control else command],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=cwd,
            env=environment(**{MARK: self.mark} | environ),
            preexec_fn=self._lead,  # noqa: PLW1509 - no thread of ours holds a lock across it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.end()

    def _lead(self):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _read(self):
        """Keep the output, and answer requests for the cursor's position: without an answer each end waits for 1 s."""
        try:
            while data := os.read(self.master, 65536):
                asked = (self.output[1 - len(ASK) :] + data).count(ASK)
                self.output += data
                os.write(self.master, ANSWER * (asked if self._answers else 0))
        except OSError:
            pass

    def type(self, keys):
        os.write(self.master, keys)

    def drop(self):
        """The connection is gone."""
        os.close(self.slave)
        os.dup2(os.open(os.devnull, os.O_RDWR), self.master)

    def processes(self, word=""):
        """(pid, command line) of everything that descends from this terminal, the leader and any `sleep` apart."""
        processes = []
        running = {path.name for path in Path("/proc").iterdir() if path.name.isdigit()} - {str(self.leader.pid)}
        self._others &= running
        for name in running - self._others:
            entry = Path("/proc", name)
            try:
                environ = (entry / "environ").read_bytes()
                if self.mark.encode() not in environ:
                    if environ:  # for a moment of its start it is empty
                        self._others.add(name)
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            # the leader sleeps, and a shim's `sleep` outlives what it would have killed by a moment
            if command and not command.startswith("sleep ") and word in command:
                processes.append((int(name), command))
        return processes

    def pid(self, word):
        wait = wait_for(lambda: self.processes(word), 300)  # beside 20 busy sessions a start took more than 60 s
        assert wait, f"no {word!r} runs: {self.processes()}\n{self.output[-2000:]!r}"
        return min(wait)[0]

    @property
    def collector(self):
        return self.pid(" latmon.capture.collector")

    @property
    def screen(self):
        return self.pid("-m latmon ")

    def status(self, seconds=60.0):
        """Exit status of the command, once it has one."""
        text = wait_for(lambda: self.status_file.exists() and self.status_file.read_text().strip(), seconds)
        return int(text) if text else None

    def left(self, seconds=30.0):
        """Return the processes that run after so long, and what each is doing; on a quiet host 2 s are enough."""
        wait_for(lambda: not self.processes(), seconds)
        return [(*process, _doing(process[0])) for process in self.processes()]

    def modes(self):
        """DEC private modes that are not as a terminal at rest has them."""
        last = {int(mode): state.decode() for modes, state in _MODES.findall(self.output) for mode in modes.split(b";")}
        return {mode: state for mode, state in last.items() if AT_REST.get(mode, "l") != state}

    def end(self):
        for pid, _ in self.processes():
            with_kill(pid)
        self.leader.kill()
        self.leader.wait()
        os.close(self.master)


def _doing(pid):
    """State and waiting channel of each thread, CPU time in ticks, open files: why a process is still there."""
    entry = Path("/proc", str(pid))
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        threads = [
            ((path / "stat").read_text().rpartition(")")[2].split()[0], (path / "wchan").read_text())
            for path in (entry / "task").iterdir()
        ]
        return {
            "threads": threads,
            "cpu": fields[11:13],
            "files": [str(path.readlink()) for path in entry.glob("fd/*")],
        }
    except OSError as error:
        return str(error)


def with_kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
