"""Programs that wait for the lock of a file on a real kernel: they are seen with the file, and who has the lock."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import wait_for
from workload import LoopDevice

from latmon.capture.mounts import MountTable
from latmon.model.measurements import FILE_SLEEPS, LOCK_HOLDERS
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.hung_operations import HangReader

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("losetup", "mount", "umount", "mkfs.ext4"))),
        reason="needs root, losetup, mount, umount and mkfs.ext4",
    ),
]
SIZE = 400 << 20
APPEND = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
page = mmap.mmap(-1, 1 << 20)
while True:
    os.pwrite(file, page, os.fstat(file).st_size)
    if os.fstat(file).st_size > 1 << 27:
        os.ftruncate(file, 0)
"""
"""Direct writes beyond the end of a file of ext4 have its lock until their I/O ends."""


@contextlib.contextmanager
def appending(path, processes):
    children = [subprocess.Popen([sys.executable, "-c", APPEND, path]) for _ in range(processes)]
    try:
        yield {str(child.pid) for child in children}
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_who_waits_for_a_file_s_lock_and_who_has_it_are_seen(tmp_path):
    point = tmp_path / "files"
    point.mkdir()
    with LoopDevice(tmp_path / "image", SIZE) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device.path], check=True)
        subprocess.run(["mount", device.path, point], check=True)
        try:
            with appending(point / "log", 4) as pids:
                sleeps, holders = seen(40.0)
        finally:
            assert wait_for(lambda: subprocess.run(["umount", point], check=False).returncode == 0, 60.0, 0.5)
    own = {row for row in sleeps if row.process.rpartition("/")[2] in pids}
    print(own, holders)
    assert {(row.device, row.mount, row.kind) for row in own} == {(device.name, str(point), "ext4")}
    assert "write" in {row.op for row in own} <= {"write", "truncate"}
    assert {row.file for row in own} == {"log"}
    assert {row.process.rpartition("/")[2] for row in holders} <= pids
    assert {row.file for row in holders} == {"log"}


def seen(seconds):
    """Return the waits for locks and the holders as soon as there are some of both."""
    reader = HangReader(Path("/proc"), Path("/sys"), MountTable())
    first = reader.sample(time.monotonic_ns() // 1000)
    tables = {}

    def has_both():
        tables.update(tables_between(first, reader.sample(time.monotonic_ns() // 1000)))
        return any(row.cause == "lock" for row in tables.get(FILE_SLEEPS, ())) and bool(tables.get(LOCK_HOLDERS))

    assert wait_for(has_both, seconds, 0.25)
    return [row for row in tables[FILE_SLEEPS] if row.cause == "lock"], list(tables[LOCK_HOLDERS])
