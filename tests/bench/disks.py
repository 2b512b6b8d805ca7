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
import resource
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE = 0x4C82, 0x4C0A
_AUTOCLEAR = 4
_BEGINS_S = 0.2
_TRIES = 3
_JOBS = 2
_CONFIG = struct.Struct("=II 52x I 176x 64x")
"""struct loop_config: backing fd, block size, lo_flags within loop_info64, reserved."""


@contextlib.contextmanager
def loops(count: int, megabytes: int) -> Iterator[list[str]]:
    """Paths of that many new loop devices, each on memory of its own."""
    with contextlib.ExitStack() as held:
        yield [held.enter_context(_loop(megabytes)) for _ in range(count)]


@contextlib.contextmanager
def mounted(path: str) -> Iterator[str]:
    """A directory where a new ext4 of the disk is mounted until the block ends."""
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", path], check=True)
    with tempfile.TemporaryDirectory(prefix="latmon-bench-") as point:
        subprocess.run(["mount", path, point], check=True)
        try:
            yield point
        finally:
            subprocess.run(["umount", point], check=True)


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


@dataclass(frozen=True, slots=True)
class Load:
    """A fio job: 4 KiB random I/O past the page cache."""

    target: str
    mix: str = "randrw"
    depth: int = 32
    seconds: float = 3.0
    rate: int = 0
    """I/Os per second; 0: as many as there can be."""
    file: str = ""
    """A file on the disk, which two threads read and write by pread and pwrite; empty: the disk itself, by libaio."""

    def words(self) -> list[str]:
        jobs = _JOBS if self.file else 1
        each = self.rate // 2 // jobs
        how = (
            ("--ioengine=psync", f"--numjobs={jobs}") if self.file else ("--ioengine=libaio", f"--iodepth={self.depth}")
        )
        return [
            *("fio", "--name=bench", f"--filename={self.file or self.target}", "--direct=1", "--bs=4k", *how),
            *(f"--rw={self.mix}", f"--runtime={self.seconds}", "--time_based", "--group_reporting"),
            *("--allow_mounted_write=1", "--thread", "--output-format=json", "--norandommap"),
            *(["--size=256m"] if self.file else []),
            *([f"--rate_iops={each},{each}"] if self.rate else []),
        ]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a load did: I/Os per second, CPU time of the whole host for each, and the slower p99 of reads and writes."""

    iops: float
    cpu_us: float
    p99_us: float
    ios: int
    own_us: float
    """CPU time of the load for each, with the programs that run in its threads, and without that of other processes."""


def run(load: Load, settles_s: float = 0.0) -> Ran:
    """Run the load after `settles_s` of it, which only p99 includes; a run without an I/O is repeated."""
    for _ in range(_TRIES):
        with contextlib.suppress(KeyError, ZeroDivisionError):
            return _run(load, settles_s)
    raise RuntimeError("fio completed nothing in its time")


def _run(load: Load, settles_s: float) -> Ran:
    # Not fio's ramp_time: with rate_iops it times nothing then (fio 3.33).
    words = replace(load, seconds=settles_s + load.seconds).words()
    own_s = _children_s()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/") as fio:
        first = _completed(load.target)
        while _completed(load.target) == first and fio.poll() is None:
            time.sleep(0.01)
        time.sleep(settles_s + _BEGINS_S)
        begun, before, idle_s = time.monotonic(), _completed(load.target), _idle_s()
        time.sleep(max(0.1, load.seconds - 2 * _BEGINS_S))
        passed, done, idle_s = time.monotonic() - begun, _completed(load.target) - before, _idle_s() - idle_s
        busy_s = max(0.0, (os.cpu_count() or 1) * passed - idle_s)
        text = fio.communicate()[0]
    job = json.loads(text[text.index("{") :])["jobs"][0]
    p99_ns = max(job[kind]["clat_ns"]["percentile"]["99.000000"] for kind in ("read", "write"))
    ios = job["read"]["total_ios"] + job["write"]["total_ios"]
    return Ran(done / passed, busy_s * 1e6 / done, p99_ns / 1e3, ios, (_children_s() - own_s) * 1e6 / ios)


def _children_s() -> float:
    """Return the CPU time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _completed(path: str) -> int:
    """Return the reads and writes that a disk completed so far."""
    fields = Path(f"/sys/block/{Path(path).name}/stat").read_text().split()
    return int(fields[0]) + int(fields[4])


def _idle_s() -> float:
    """Return the time so far that the host's CPUs were idle, waited for I/O or were another guest's.

    A kernel with NO_HZ stamps these; the other columns of /proc/stat count ticks, of which 1.5 s have 375 per CPU.
    """
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(fields[at] for at in (3, 4, 7)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def trickle(paths: Sequence[str], per_second: int) -> Iterator[None]:
    """So many I/Os per second on each device, of sizes that spread their latency, until the block ends."""
    words = ["fio", "--direct=1", "--ioengine=psync", "--rw=randrw", "--bsrange=4k-512k", "--thread", "--time_based"]
    words += ["--runtime=86400", f"--rate_iops={per_second},{per_second}", "--rate_process=poisson", "--norandommap"]
    for path in paths:
        words += [f"--name={Path(path).name}", f"--filename={path}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)
