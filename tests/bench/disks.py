"""Fast disks and loads: loop devices on memory that vanish with this process, and fio.

A loop device with the autoclear flag is freed at its last close, and its backing file has no name: nothing is left
behind, SIGKILL included.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE = 0x4C82, 0x4C0A
_AUTOCLEAR = 4
_CONFIG = struct.Struct("=II 52x I 176x 64x")
"""struct loop_config: backing fd, block size, lo_flags within loop_info64, reserved."""


@contextlib.contextmanager
def loops(count: int, megabytes: int) -> Iterator[list[str]]:
    """Paths of that many new loop devices, each on memory of its own."""
    with contextlib.ExitStack() as held:
        yield [held.enter_context(_loop(megabytes)) for _ in range(count)]


@contextlib.contextmanager
def _loop(megabytes: int) -> Iterator[str]:
    backing = os.memfd_create("latmon-bench")
    try:
        os.truncate(backing, megabytes << 20)
        path, fd = _configured(backing)
    finally:
        os.close(backing)
    try:
        yield path
    finally:
        os.close(fd)


def _configured(backing: int) -> tuple[str, int]:
    """A free loop device on `backing`; another process may take the free one first."""
    while True:
        with Path("/dev/loop-control").open("rb") as control:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        path = f"/dev/loop{number}"
        if not Path(path).exists():  # a container whose /dev is not the kernel's
            os.mknod(path, 0o60600, os.makedev(7, number))
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.ioctl(fd, _LOOP_CONFIGURE, _CONFIG.pack(backing, 4096, _AUTOCLEAR))
        except OSError as error:
            os.close(fd)
            if error.errno != errno.EBUSY:
                raise
        else:
            return path, fd


@contextlib.contextmanager
def file_on_disk(megabytes: int) -> Iterator[str]:
    """A laid-out file on the disk that holds the temporary directory."""
    with tempfile.NamedTemporaryFile(prefix="latmon-bench-") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        yield file.name


@dataclass(frozen=True, slots=True)
class Load:
    """A fio job: 4 KiB random I/O past the page cache."""

    target: str
    mix: str = "randrw"
    depth: int = 32
    seconds: float = 3.0

    def words(self) -> list[str]:
        return [
            *("fio", "--name=bench", f"--filename={self.target}", "--direct=1", "--ioengine=libaio", "--bs=4k"),
            *(f"--rw={self.mix}", f"--iodepth={self.depth}", f"--runtime={self.seconds}", "--time_based"),
            *("--allow_mounted_write=1", "--thread", "--output-format=json", "--norandommap"),
        ]


def iops(load: Load) -> float:
    """Runs the load; reads and writes per second."""
    text = subprocess.run(load.words(), capture_output=True, text=True, check=True, cwd="/").stdout
    job = json.loads(text[text.index("{") :])["jobs"][0]
    return float(job["read"]["iops"] + job["write"]["iops"])


@contextlib.contextmanager
def trickle(paths: Sequence[str], per_second: int) -> Iterator[None]:
    """So many I/Os per second on each device, of sizes that spread their latency, until the block ends."""
    words = ["fio", "--direct=1", "--ioengine=psync", "--rw=randrw", "--bsrange=4k-512k", "--thread", "--time_based"]
    words += ["--runtime=3600", f"--rate_iops={per_second},{per_second}", "--rate_process=poisson", "--norandommap"]
    for path in paths:
        words += [f"--name={Path(path).name}", f"--filename={path}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)
