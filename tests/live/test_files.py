"""The file-system layer of a real bpftrace: operations on files of mounted file systems, against fio's own counts."""

import asyncio
import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from bpftraces import TIMEOUT_S, each_bpftrace, tool
from emulated import Watched
from slow_directory import slow_directory
from terminal import Terminal, latmon
from workload import CALLS, STARTING_S, Capture, LoopDevice, buckets_apart, by_strace, fio, of_mount, strace, wait_for

from latmon.analysis.attribution import by_process, requests_of
from latmon.capture.backend import Options
from latmon.model import measurements
from latmon.model.frame import FILES
from latmon_backends.bpftrace.backend import BpftraceBackend
from latmon_backends.bpftrace.program import has_kprobes

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio and losetup"
    ),
]
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f"), "btrfs": ("mkfs.btrfs", "-q", "-f")}
KINDS = (*MAKE, "overlay")
HOSTILE = "a\nb\x1b[31m \\x41ä".encode() + b"\xff"

SYNCS = """
import itertools, os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY)
for n in itertools.cycle(range(200)):
    os.pwrite(file, bytes(4096), n * 4096)
    os.fdatasync(file)
    time.sleep(0.1)
"""


WRITERS = """
import os, sys, threading
def write(path, offset):
    file = os.open(path, os.O_WRONLY | os.O_DSYNC)
    while True:
        os.pwrite(file, bytes(4096), offset)
for n in range(16):
    threading.Thread(target=write, args=(sys.argv[1 + n % (len(sys.argv) - 1)], n << 16)).start()
"""


def nearest_rank(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


@contextlib.contextmanager
def mount(*words):
    """Mount a file system at the last word; skip where the kernel can't."""
    done = subprocess.run(["mount", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"can't be mounted here: {done.stderr}")
    try:
        yield Path(words[-1])
    finally:
        subprocess.run(["umount", words[-1]], check=True)


@contextlib.contextmanager
def mounted(directory, kind):
    """A new file system of its own; its loop device and its mount point."""
    make = MAKE["ext4" if kind == "overlay" else kind]
    if shutil.which(make[0]) is None:
        pytest.skip(f"{make[0]} is not installed")
    places = {name: directory / name for name in ("mnt", "merged")}
    for place in places.values():
        place.mkdir()
    with LoopDevice(directory / "image", 512 << 20) as disk:
        subprocess.run([*make, disk.path], check=True, stdout=subprocess.DEVNULL)
        with mount(disk.path, str(places["mnt"])) as point:
            if kind != "overlay":
                yield disk, point
                return
            for name in ("lower", "upper", "work"):
                (point / name).mkdir()
            options = ",".join(f"{name}dir={point / name}" for name in ("lower", "upper", "work"))
            with mount("-t", "overlay", "overlay", "-o", options, str(places["merged"])) as merged:
                yield disk, merged


@contextlib.contextmanager
def captured(directory, suite, *words):
    path = tool(suite, directory).path
    with Capture(directory, "--backend", "bpftrace", "--stages", "all", *words, LATMON_BPFTRACE=path) as capture:
        assert wait_for(lambda: any(frame[measurements.FILES] for frame in capture.frames()), STARTING_S, 1.0), (
            capture.stderr
        )
        yield capture
        time.sleep(3)  # the last interval, and outliers wait for two frames
        assert capture.stop() == 0, capture.stderr


@pytest.mark.slow
@each_bpftrace
@pytest.mark.parametrize(
    "kind", ["ext4", *(pytest.param(one, marks=pytest.mark.slow) for one in KINDS if one != "ext4")]
)
def test_counts_and_times_are_those_of_fio(suite, kind, tmp_path):
    with mounted(tmp_path, kind) as (disk, point):
        sync = {"direct": 0, "ioengine": "psync", "directory": point, "size": "16M", "rate_iops": 150}
        writes = {"name": "writes", "rw": "randwrite", "fsync": 1, **sync}
        reads = {"name": "reads", "rw": "randread", **sync, "direct": 1}
        fio(tmp_path, 0.5, reads)  # writes its file
        with captured(tmp_path, suite) as capture:
            done = fio(tmp_path, 3, writes, reads)
        frames = capture.frames()
    its = of_mount(frames, point)
    assert its["fsync"].count - done["writes"]["flush"].count in range(3), its  # fio syncs a new file once more
    assert its["write"].count == done["writes"]["write"].count
    assert its["read"].count == done["reads"]["read"].count
    for op, (job, name) in {"fsync": ("writes", "flush"), "read": ("reads", "read")}.items():
        if (p99 := done[job][name].p99) is not None:
            assert buckets_apart(its[op].quantile(0.99), p99) <= 2
    kinds = {(one.kind, one.device) for frame in frames for one in frame[measurements.FILES] if one.mount == str(point)}
    assert kinds == {(kind, disk.name)}
    waits = Counter()
    for frame in frames:
        for one, latency in frame[measurements.FILES].items():
            if (one.mount, one.op) == (str(point), "read"):
                waits[one.wait] += latency.count
    assert waits["device"] > 0.9 * its["read"].count, waits  # direct reads


@each_bpftrace
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_counts_are_those_of_strace(suite, kind, tmp_path):
    with mounted(tmp_path, kind) as (_, point):
        with captured(tmp_path, suite) as capture:
            traced = strace(tmp_path, sys.executable, "-c", CALLS, point)
        its = of_mount(capture.frames(), point)
    calls = by_strace(traced, point)
    if kind == "ext4" and not has_kprobes():
        # Without kprobes a stat of an inode in memory has no file system.
        del calls["stat"]
        its.pop("stat", None)
    assert {op: one.count for op, one in its.items()} == {op: len(seconds) for op, seconds in calls.items()}
    assert len(calls["fsync"]) == 120
    assert len(calls["write"]) == 3 * (50 * 3 + 40)
    assert {op: len(calls[op]) for op in ("rename", "unlink")} == {"rename": 6, "unlink": 3}
    for op, seconds in calls.items():
        assert its[op].sum < sum(seconds) * 1e6, "strace's times are those of the calls and its own"
    own_us = sum(calls["fsync"]) * 1e6 / len(calls["fsync"]) - its["fsync"].mean
    if (p99_us := nearest_rank(calls["fsync"], 0.99) * 1e6) > 10 * own_us:
        assert buckets_apart(its["fsync"].quantile(0.99), p99_us) <= 2


RENAME_S, UNLINK_S, STAT_S, FILES_THERE = 0.05, 0.02, 0.005, 40
IN_DIRECTORY = """
import json, os, sys, time
took = {"rename": [], "unlink": [], "stat": []}
def timed(op, call, *words):
    begun = time.monotonic()
    call(*words)
    took[op].append(time.monotonic() - begun)
os.chdir(sys.argv[1])
for number in range(int(sys.argv[2])):
    old, new = f"file{number}", f"{sys.argv[1]}/new{number}"
    timed("rename", os.rename, old, new)
    timed("stat", os.stat, new)
    timed("unlink", os.unlink, new)
try:
    os.unlink("none")
except FileNotFoundError:
    print(json.dumps(took))
"""
"""Paths from the working directory and from the root; one call fails. It prints what it measured itself."""


@each_bpftrace
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs FUSE")
def test_renames_unlinks_and_stats_of_a_slow_server_have_its_times(suite, tmp_path):
    point = tmp_path / "slow"
    with slow_directory(point, rename_s=RENAME_S, unlink_s=UNLINK_S, stat_s=STAT_S):
        path = tool(suite, tmp_path).path
        with Capture(tmp_path, "--backend", "bpftrace", "--stages", "all", LATMON_BPFTRACE=path) as capture:
            assert wait_for(lambda: any(frame[measurements.FILES] for frame in capture.frames()), STARTING_S, 1.0)
            words = [sys.executable, "-c", IN_DIRECTORY, str(point), str(FILES_THERE)]
            program = subprocess.run(words, check=True, capture_output=True, text=True)
            time.sleep(3)  # the last interval
            assert capture.stop() == 0, capture.stderr
            frames = capture.frames()
            report = capture.report()
    took = json.loads(program.stdout)
    its = of_mount(frames, point)
    for op, least_s in {"rename": RENAME_S, "unlink": UNLINK_S, "stat": STAT_S}.items():
        own_us = [seconds * 1e6 for seconds in took[op]]
        print(suite, op, "program", round(sum(own_us) / FILES_THERE), "latmon", round(its[op].mean), its[op].count)
        # The shell's own look at the directory is a stat, too.
        assert its[op].count - FILES_THERE in (range(10) if op == "stat" else range(1))
        assert its[op].quantile(0.5) > least_s * 1e6 * 0.85
        assert buckets_apart(its[op].quantile(0.5), nearest_rank(own_us, 0.5)) <= 1
        assert its[op].max <= max(own_us) * 1.02
    parts = Counter()
    for row, us in (item for frame in frames for item in frame[measurements.FILE_TIMES].items()):
        if (row.mount, row.op) == (str(point), "rename"):
            parts[row.part] += us
    assert parts["server"] > 0.9 * its["rename"].sum, parts
    slow = [
        file_operation
        for frame in frames
        for file_operation in frame.file_operations
        if file_operation.file_system.mount == str(point)
    ]
    renames = {one.path for one in slow if one.op == "rename"}
    assert renames <= {f"…/file{number}" for number in range(FILES_THERE)}
    assert renames
    unlinks = {one.path for one in slow if one.op == "unlink"}
    assert unlinks <= {f"new{number}" for number in range(FILES_THERE)}
    assert unlinks
    elsewhere = [finding for finding in report["findings"] if not finding["device"]]
    advised = [step["text"] for finding in elsewhere for step in finding["next_steps"]]
    assert not any("device" in text or "disk" in text for text in advised), advised


@pytest.mark.slow
@each_bpftrace
def test_operations_of_io_uring_are_counted(suite, tmp_path):
    with mounted(tmp_path, "ext4") as (_, point):
        job = {"name": "ring", "rw": "randwrite", "fsync": 1, "ioengine": "io_uring", "rate_iops": 100}
        with captured(tmp_path, suite) as capture:
            done = fio(tmp_path, 2, {**job, "direct": 0, "directory": point, "size": "16M"})["ring"]
        frames = capture.frames()
    ring = [
        (one, took) for frame in frames for one, took in frame[measurements.FILES].items() if one.mount == str(point)
    ]
    found = {
        op: sum(took.count for one, took in ring if (one.op, one.wait) == (op, "unknown")) for op in ("write", "fsync")
    }
    assert found["write"] == done["write"].count
    assert found["fsync"] - done["flush"].count in range(3)


@pytest.mark.slow
@each_bpftrace
def test_a_slow_sync_has_its_file_its_process_and_the_request_below_it(suite, tmp_path):
    with mounted(tmp_path, "ext4") as (disk, point), captured(tmp_path, suite, "--threshold", "0") as capture:
        (point / "some/where").mkdir(parents=True)
        with (point / "some/where" / os.fsdecode(HOSTILE)).open("wb") as file:
            file.write(b"x" * 5000)
            file.flush()
            os.fsync(file.fileno())
    outliers = [
        file_operation
        for frame in capture.frames()
        for file_operation in frame.file_operations
        if file_operation.file_system.mount == str(point)
    ]
    assert {outlier.op for outlier in outliers} == {"open", "write", "fsync"}, outliers
    assert {outlier.path for outlier in outliers} == {r"some/where/a\nb\x1b[31m Aä\xff"}
    sync = next(outlier for outlier in outliers if outlier.op == "fsync")
    assert (sync.pid, sync.wait, sync.disk) == (os.getpid(), "device", disk.name)
    assert sync.sectors[0] > 0, "a flush, whose bio begins at 0, is none of them"
    assert next((outlier.bytes, outlier.offset) for outlier in outliers if outlier.op == "write") == (5000, 0)
    assert all(one.isprintable() for one in (sync.path, sync.comm))
    outliers = requests_of(sync, by_process(outlier for frame in capture.frames() for outlier in frame.outliers))
    assert {outlier.device for outlier in outliers} == {disk.name}, sync
    assert any(outlier.stages_us for outlier in outliers)


@each_bpftrace
@pytest.mark.parametrize("files", [1, 16], ids=["one file", "a file each"])
def test_threads_that_write_one_file_wait_for_its_lock_and_those_with_a_file_each_do_not(suite, files, tmp_path):
    with mounted(tmp_path, "ext4") as (disk, point):
        paths = [point / f"file{number}" for number in range(files)]
        for path in paths:
            path.write_bytes(bytes(1 << 20))
        os.sync()
        with captured(tmp_path, suite) as capture, subprocess.Popen([sys.executable, "-c", WRITERS, *paths]) as writers:
            time.sleep(6)
            writers.kill()
        frames = capture.frames()
        report = subprocess.run(
            latmon("report", "--json", str(capture.file)), check=True, capture_output=True, text=True
        ).stdout
    parts = Counter()
    for one, us in (item for frame in frames for item in frame[measurements.FILE_TIMES].items()):
        if (one.mount, one.op) == (str(point), "write"):
            parts[one.part] += us
    took_us = of_mount(frames, point)["write"].sum
    assert took_us > 8_000_000, "16 threads wait all the time"
    assert 0.8 * took_us < parts.total() < 1.2 * took_us, (parts, took_us)
    found = {finding["id"]: finding for finding in json.loads(report)["findings"] if finding["device"] == disk.name}
    operations = [
        file_operation
        for frame in frames
        for file_operation in frame.file_operations
        if file_operation.file_system.mount == str(point)
    ]
    if files > 1:
        assert parts["lock"] < 0.3 * took_us, (parts, took_us)
        assert "not-the-disk" not in found
        return
    assert parts["lock"] > 0.5 * took_us, (parts, took_us)
    assert "/file0" in found["not-the-disk"]["summary"]
    slept = [operation.split for operation in operations if operation.split and operation.split.wait == "lock"]
    assert slept, operations
    assert all("down_write" in one.functions or "down_read" in one.functions for one in slept)
    assert any(one.holder for one in slept)


def write_and_sync(path):
    with path.open("wb") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def spinning(pinned):
    """A shell that uses the CPU."""
    with subprocess.Popen([*pinned, "sh", "-c", "while :; do :; done"]) as shell:
        try:
            yield
        finally:
            shell.kill()


@contextlib.contextmanager
def syncing(path, cpu):
    """A program that syncs 10 times a second, and a shell that mostly has the one CPU of both."""
    path.write_bytes(bytes(1 << 20))
    os.sync()
    pinned = ["taskset", "-c", str(cpu)]
    with spinning(pinned), subprocess.Popen([*pinned, "nice", "-n", "19", sys.executable, "-c", SYNCS, path]) as popen:
        try:
            yield
        finally:
            popen.kill()


class Walk:
    """A real terminal whose keys are pressed one after another, and what its screen shows."""

    def __init__(self, terminal, size):
        self._terminal, self._screen = terminal, Watched(lambda: terminal.output, size[1], size[0])

    def shown(self):
        return "\n".join(line.strip("│ ") for line in self._screen.lines())

    def press(self, keys, pattern, seconds=TIMEOUT_S):
        """Press keys, and wait for a screen with the pattern; return whether it came."""
        self._terminal.type(keys)
        return wait_for(lambda: re.search(pattern, " ".join(self.shown().split())), seconds, 0.5)

    def late_sync(self):
        """Go down the list to a sync, and open its I/O, that waited for a thread while a shell ran; both screens."""
        for _ in range(_ROWS):
            operation = self.shown()
            if _INSTEAD.search(" ".join(operation.split())) and self.press(b"\r", "sum .*= total", 5):
                request = self.shown()
                if _INSTEAD.search(" ".join(request.split())):
                    return operation, request
                self.press(b"\x1b", "slow operations")
            self.press(b"\x1b[B", "slow operations")
            time.sleep(0.5)
        return None


_ROUNDS, _ROWS = 5, 8
_INSTEAD = re.compile(r"\S+ \(prio \d+\) +(had its CPU|ran instead|ran last before that)|later, after \S+ \(prio \d+\)")


@pytest.mark.slow
@each_bpftrace
@pytest.mark.parametrize("size", [(24, 80), (50, 160)], ids=["80x24", "160x50"])
def test_keys_lead_from_a_slow_sync_to_who_ran_instead_of_its_thread(suite, size, tmp_path):
    argv = ("--backend", "bpftrace", "--threshold", "0.1ms")
    environ = {"LATMON_BPFTRACE": tool(suite, tmp_path).path, "XDG_STATE_HOME": str(tmp_path / "state")}
    with (
        mounted(tmp_path, "ext4") as (disk, point),
        syncing(point / "orders.wal", min(os.sched_getaffinity(0))),
        Terminal(latmon(*argv, "--device", disk.name), tmp_path, size=size, **environ) as terminal,
    ):
        walk = Walk(terminal, size)
        assert walk.press(b"", disk.name, 4 * TIMEOUT_S), walk.shown()
        assert walk.press(b"2", "I/Os traced|files fsync", 4 * TIMEOUT_S), walk.shown()
        assert walk.press(b"F", r"fsync of \S*/orders.wal", 4 * TIMEOUT_S), walk.shown()
        assert walk.press(b"s", "longest first"), walk.shown()
        for _ in range(_ROUNDS):
            time.sleep(10)  # more operations, and the I/Os of those that are listed
            assert walk.press(b" ", "PAUSED"), walk.shown()
            if found := walk.late_sync():
                break
            assert walk.press(b" ", "LIVE"), walk.shown()
        else:
            pytest.fail(f"no sync has an I/O whose thread was late:\n{walk.shown()}")
        operation, request = found
        print(operation, request, sep="\n")
        assert "orders.wal" in operation
        assert "resume" in request
        assert walk.press(b"\x1b", r"fsync of \S*/orders.wal"), walk.shown()
        terminal.type(b"q")
        assert terminal.status() == 0


@pytest.mark.slow
async def test_operations_on_files_are_traced_from_the_screen_on_that_shows_them(tmp_path):
    """Writes to a file are counted once a screen requests it, and not while another one has the stages of the disk."""
    with mounted(tmp_path, "ext4") as (disk, point):
        before, after = [], []
        async with BpftraceBackend(Options(interval_us=500_000)) as backend, asyncio.timeout(2 * TIMEOUT_S):
            backend.request_tracing((disk.name,))
            async for frame in backend.frames():
                write_and_sync(point / "file")
                if frame.traced.one_in:
                    (after if after or frame[measurements.FILES] else before).append(frame)
                if len(before) == 4:
                    backend.request_tracing((disk.name,), files=True)
                if len(after) == 4:
                    break
    assert {FILES} <= {one.name for frame in before[:4] for one in frame.traced.absent}
    assert FILES not in {one.name for one in after[-1].traced.absent}
    assert of_mount(after, point)["fsync"].count > 0
