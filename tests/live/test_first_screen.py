"""The first screen at 80x24 names the cause of a live problem, whole.

That takes 6 to 10 s on a quiet host; how long it takes here is printed, as a crowded host compiles the probes first.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from emulated import emulated
from terminal import Terminal, latmon, wait_for
from test_processes import NO_BPFTRACE
from workload import LoopDevice

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio"),
    pytest.mark.skipif(shutil.which("losetup") is None, reason="needs losetup"),
]
PATIENT_S = 240.0
SIZE_MB = 64


@pytest.fixture
def disk(tmp_path):
    """A disk whose first blocks are on a real one: reads of a hole would take no time, and never fill the driver."""
    with LoopDevice(tmp_path / "image") as device:
        words = ("dd", "if=/dev/zero", f"of={device.path}", "bs=1M", f"count={SIZE_MB}", "oflag=direct", "status=none")
        subprocess.run(words, check=True)
        yield device


@contextlib.contextmanager
def reading(disk, cgroup=None):
    """Random reads by fio, in a cgroup where one is named."""
    job = f"--filename={disk.path} --size={SIZE_MB}M --readonly --rw=randread --direct=1 --ioengine=libaio --iodepth=32"
    entered = f"echo 0 > {cgroup}/cgroup.procs && " if cgroup else ""
    command = f"{entered}exec fio --name=t {job} --thread --time_based --runtime=600 > /dev/null"
    fio = subprocess.Popen(["sh", "-c", command], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(fio.pid, signal.SIGKILL)
        fio.wait()


@contextlib.contextmanager
def limited_cgroup(disk, per_s):
    """A cgroup of version 1 or 2 that may read the disk so many times per second."""
    root = Path("/sys/fs/cgroup")
    one = (root / "blkio").is_dir()
    path = root / ("blkio" if one else "") / f"latmon-test-{os.getpid()}"
    file = path / ("blkio.throttle.read_iops_device" if one else "io.max")
    with contextlib.suppress(OSError):
        path.mkdir()
    try:
        if not file.exists():
            pytest.skip("no cgroup can limit I/O here")
        number = Path(f"/sys/block/{disk.name}/dev").read_text().strip()
        file.write_text(f"{number} {per_s if one else f'riops={per_s}'}")
        yield path
    finally:
        assert wait_for(lambda: _removed(path), 30)  # a killed process is in it for a moment


def _removed(path):
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()


@contextlib.contextmanager
def throttled(disk):
    with limited_cgroup(disk, 50) as path, reading(disk, path):
        yield rf"! {disk.name}: throttled at 50 reads/s by cgroup {path.name}"


@contextlib.contextmanager
def short_of_requests(disk):
    queue = Path(f"/sys/block/{disk.name}/queue")
    (queue / "scheduler").write_text("mq-deadline")
    (queue / "nr_requests").write_text("4")
    try:
        with reading(disk):
            yield rf"! {disk.name}: nr_requests 4 is misconfigured"
    finally:  # the next user of the loop device would have it
        (queue / "scheduler").write_text("none")
        (queue / "nr_requests").write_text("128")


@pytest.mark.parametrize(
    ("problem", "backends"),
    [
        (throttled, ("procfs",) if NO_BPFTRACE else ("procfs", "bpftrace")),
        (short_of_requests, ("procfs",)),
    ],
    ids=["throttled", "short_of_requests"],
)
def test_the_cause_is_named_whole(disk, tmp_path, problem, backends):
    """All backends watch the same load at the same time."""
    with problem(disk) as sentence, contextlib.ExitStack() as stack:
        begun = time.monotonic()
        terminals = {}
        for name in backends:
            (tmp_path / name).mkdir()
            argv, state = latmon("--backend", name), str(tmp_path / name / "state")
            terminals[name] = stack.enter_context(Terminal(argv, tmp_path / name, XDG_STATE_HOME=state))
        for name, terminal in terminals.items():
            # Seldom: the emulator takes as long for the output as the screen took to draw it.
            named = wait_for(lambda one=terminal: re.search(sentence, shown(one)), PATIENT_S, 2.0)
            print(f"{problem.__name__}, {name}: {time.monotonic() - begun:.1f} s")
            assert named, "\n".join(emulated(terminal.output).display)
        for terminal in terminals.values():
            terminal.type(b"q")
        assert [terminal.status() for terminal in terminals.values()] == [0] * len(terminals)


def shown(terminal):
    return " ".join(" ".join(emulated(terminal.output).display).split())
