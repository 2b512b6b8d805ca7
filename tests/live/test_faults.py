"""Faults of the host: a disk that fails or hangs, processes killed at any moment, no process to be had, no memory.

What was acknowledged stays, nothing is left behind, and a sentence has the reason. Other faults: a full disk in
test_recording_kills.py, open files in test_internal_error.py, a lost terminal in test_processes.py, stopped processes
and killed probes in test_stopped.py, a lying tool in test_bpftrace_probe.py.
"""

import contextlib
import fcntl
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pytest
from terminal import Terminal, environment, holds_frames, latmon, wait_for
from test_processes import NO_BPFTRACE

from latmon.cli.check import survey
from latmon.model.frame import Frame
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.support.errors import RecordingError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not all(map(shutil.which, ("losetup", "mkfs.ext4", "fsfreeze"))), reason="needs a loop device"),
]
FAST = ("--backend", "procfs", "--interval", "100ms")
ENDING_S = 60.0
BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a service that a crowded host has not started when it is ended."""
EXT4_IOC_SHUTDOWN = 0x8004587D


def frames(path):
    try:
        return [frame for frame in open_recording(path) if isinstance(frame, Frame)]
    except RecordingError:  # ended before its header was there
        return []


def damages(path):
    return {damage.what for damage in survey(open_recording(path)).damages}


class Capture:
    """A latmon without a screen. It never outlives the test."""

    def __init__(self, *words, **how):
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.process = subprocess.Popen(latmon(*map(str, words)), env=environment(), stderr=self._err, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._err.close()

    def said(self):
        return os.pread(self._err.fileno(), 1 << 20, 0).decode()

    def ended(self, number):
        """Return exit code and what was printed, after this signal."""
        self.process.send_signal(number)
        self.process.wait(ENDING_S)
        said = self.said()
        assert "Traceback" not in said, said
        assert "please report" not in said, said
        return self.process.returncode, said


class Disk:
    """A file system of 4 GiB on a loop device, of which the image has little."""

    def __init__(self, directory):
        self.image, self.place = directory / "image", directory / "disk"
        self.place.mkdir()
        with self.image.open("wb") as image:
            image.truncate(4 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", self.image], check=True)
        self.mount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.place], check=True)

    def fail(self):
        """Everything that was written is on the disk; each further operation is an error (EIO)."""
        number = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(number, EXT4_IOC_SHUTDOWN, struct.pack("I", 0))
        finally:
            os.close(number)

    def read_only(self):
        """Make it read-only, as an error of the file system does with errors=remount-ro (EROFS)."""
        subprocess.run(["sync", "-f", self.place], check=True)
        subprocess.run(["mount", "-o", "remount,abort", self.place], check=True)

    def remounted(self):
        subprocess.run(["umount", self.place], check=True)
        assert wait_for(lambda: not self._loop())  # mount takes a loop device again that is just being detached
        self.mount()

    def _loop(self):
        return subprocess.run(["losetup", "-j", self.image], capture_output=True, check=True).stdout

    def freeze(self, *, thaw=False):
        subprocess.run(["fsfreeze", "-u" if thaw else "-f", self.place], check=not thaw, capture_output=True)


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path)
    yield disk
    disk.freeze(thaw=True)
    subprocess.run(["umount", "--lazy", disk.place], check=False)


FAILED = [(Disk.fail, "Input/output error"), (Disk.read_only, "Read-only file system")]


@pytest.mark.parametrize(("fault", "why"), FAILED, ids=["EIO", "EROFS"])
def test_a_disk_that_fails_is_named_at_once_and_what_it_had_acknowledged_stays(disk, fault, why):
    path = disk.place / "r"
    with Capture(*FAST, "--record", path) as capture:
        assert wait_for(lambda: len(frames(path)) > 10)
        acknowledged = frames(path)
        fault(disk)
        assert wait_for(lambda: why in capture.said()), capture.said()
        code, said = capture.ended(signal.SIGINT)
    assert code == 4, said
    assert said.count(why) == 1
    assert "the recording is incomplete" in said
    disk.remounted()
    assert frames(path)[: len(acknowledged)] == acknowledged
    assert damages(path) <= {UNCLOSED}


def test_a_disk_that_hangs_holds_up_neither_frames_nor_the_end(disk):
    path = disk.place / "r"
    with Capture(*FAST, "--record", path) as capture:
        assert wait_for(lambda: len(frames(path)) > 10)
        acknowledged = frames(path)
        disk.freeze()
        try:
            time.sleep(3)
            capture.process.send_signal(signal.SIGINT)
            assert wait_for(lambda: "did not answer within" in capture.said()), capture.said()
        finally:
            disk.freeze(thaw=True)  # until then the kernel ends no process that waits for the disk
        code, said = capture.ended(signal.SIGCONT)
    assert code == 4, said
    assert frames(path)[: len(acknowledged)] == acknowledged
    assert damages(path) <= {UNCLOSED}


@pytest.mark.parametrize("victim", ["screen", "collector"])
@pytest.mark.parametrize("kills", [4, 100])
def test_a_process_that_is_killed_at_any_moment_leaves_nothing(tmp_path, victim, kills):
    """A capture without a screen is killed in test_recording_kills.py, a probe in test_stopped.py."""
    draw = random.Random(kills)
    for number in range(kills):
        path = tmp_path / f"{number}.gz"
        with Terminal(
            latmon("--backend", "demo", "--interval", "100ms", "--record", str(path), "--tui"), tmp_path
        ) as terminal:
            pid = terminal.collector if victim == "collector" else terminal.screen
            time.sleep(draw.random() * 2)
            before = frames(path) if path.exists() else []
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if victim == "collector":
                terminal.type(b"qq")
            left = terminal.left(ENDING_S)
            assert not left, (number, left, terminal.output[-500:])
            assert b"Traceback" not in terminal.output
        after = frames(path) if path.exists() else []
        assert after[: len(before)] == before
        path.unlink(missing_ok=True)


class Limit:
    """A cgroup of this host with one limit, of version 1 or 2."""

    def __init__(self, controller, files, value):
        root = Path("/sys/fs/cgroup")
        one = (root / controller).is_dir()
        self.path = root / (controller if one else "") / f"latmon-test-{os.getpid()}"
        self._file, self._value = files[0] if one else files[1], value

    def __enter__(self):
        try:
            self.path.mkdir()
            (self.path / self._file).write_text(str(self._value))
        except OSError as error:
            with contextlib.suppress(OSError):
                self.path.rmdir()
            pytest.skip(f"needs the cgroup controller: {error}")
        return self

    def __exit__(self, *_):
        assert wait_for(lambda: not self.inside()), self.inside()
        self.path.rmdir()

    def inside(self):
        return (self.path / "cgroup.procs").read_text().split()

    def enter(self):
        (self.path / "cgroup.procs").write_text("0")


SERVICES = {
    "a capture": (*FAST, "--duration", "2s", "--record"),
    "watch": ("watch", "--backend", "demo", "--record"),
    "exporter": ("exporter", "--backend", "demo", "--listen"),
}


FINDING = re.compile(r"latmon: (notice|warning|critical), ")
"""A line of `latmon watch` about the demo's disks."""


def service(name, directory):
    last = f"unix:{directory}/s" if name == "exporter" else str(directory / "r.gz")
    return (*SERVICES[name], last)


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_process_or_thread_to_be_had_is_a_sentence(tmp_path, name, most):
    with Limit("pids", ("pids.max", "pids.max"), most) as limit:
        with Capture(*service(name, tmp_path), preexec_fn=limit.enter) as capture:
            wait_for(lambda: capture.process.poll() is not None, 10.0, every=0.1)
            code, said = capture.ended(signal.SIGTERM)
        assert code in (0, 1, 3, *BY_SIGTERM), said
        assert (
            code in (0, *BY_SIGTERM) or "pids.max" in said or "temporarily unavailable" in said or "new thread" in said
        ), said


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("most_mb", [16, 32, 48, 64])
def test_a_process_that_is_ended_for_its_memory_leaves_none_behind(tmp_path, name, most_mb):
    """The kernel kills any of them, or none where it is enough."""
    files = ("memory.limit_in_bytes", "memory.max")
    with Limit("memory", files, most_mb << 20) as limit:
        with Capture(*service(name, tmp_path), preexec_fn=limit.enter) as capture:
            wait_for(lambda: capture.process.poll() is not None, 10.0, every=0.1)
            code, said = capture.ended(signal.SIGTERM)
        assert code in (0, 1, 3, -signal.SIGKILL, *BY_SIGTERM), said
        about_itself = [line for line in said.splitlines() if not FINDING.match(line)]
        assert code in (0, -signal.SIGKILL, *BY_SIGTERM) or len(about_itself) <= 5, said
    assert all(frame.dt_us > 0 for frame in frames(tmp_path / "r.gz"))


def has_disk(path, loop):
    """Return whether the disk is there at the end of a recording."""
    name, there = Path(loop).name, False
    for frame in frames(path):
        there = (there and name not in frame.removed) or any(device.name == name for device in frame.devices)
    return there


@pytest.mark.parametrize(
    "backend",
    [
        "procfs",
        pytest.param("bpftrace", marks=[pytest.mark.live, pytest.mark.skipif(NO_BPFTRACE, reason="no bpftrace")]),
    ],
)
def test_a_storm_of_disks_that_come_and_go(tmp_path, backend):
    image, path = tmp_path / "image", tmp_path / "r"
    image.write_bytes(bytes(1 << 20))
    with Capture("--backend", backend, "--interval", "100ms", "--record", path) as capture:
        assert wait_for(lambda: holds_frames(path), 300.0)
        for _ in range(100):
            words = ["losetup", "-f", "--show", image]
            loop = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
            with contextlib.suppress(OSError):
                Path(loop).read_bytes()
            subprocess.run(["losetup", "-d", loop], check=True)
        # Each of them may come and go between two samples of a crowded host; this one waits for its samples.
        loop = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        assert wait_for(lambda: has_disk(path, loop), 60.0)
        subprocess.run(["losetup", "-d", loop], check=True)
        assert wait_for(lambda: not has_disk(path, loop), 60.0)
        code, said = capture.ended(signal.SIGINT)
    assert code == 0, said
    assert damages(path) == set()
    actual_frames = frames(path)
    assert all(now.mono_us > before.mono_us for before, now in pairwise(actual_frames))
