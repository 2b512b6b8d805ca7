"""A frozen file system on a real kernel: its writers are seen, and those of one that is thawed aren't."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from latmon.capture.mounts import MountTable
from latmon.model.measurements import HUNG_OPERATIONS
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.hung_operations import HangReader

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists() or shutil.which("fsfreeze") is None,
        reason="needs root, loop devices and fsfreeze",
    ),
]
PROGRAM = """
import os, sys, time
file = os.open(sys.argv[1] + "/file", os.O_CREAT | os.O_RDWR)
end = time.monotonic() + 60
while time.monotonic() < end:
    os.pwrite(file, b"x" * 4096, 0)
    time.sleep(0.01)
"""


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def mounted(tmp_path):
    """Return a file system on a loop device of its own, with the device's name."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    mount.mkdir()
    device = run("losetup", "--find", "--show", str(image))
    try:
        run("mkfs.ext4", "-q", "-F", device)
        run("mount", device, str(mount))
        yield mount, Path(device).name
    finally:
        for words in (("fsfreeze", "-u", str(mount)), ("umount", str(mount)), ("losetup", "-d", device)):
            with contextlib.suppress(subprocess.CalledProcessError):
                run(*words)


@contextlib.contextmanager
def writer(mount):
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(mount)])
    try:
        yield child.pid
    finally:
        child.kill()
        run("sh", "-c", f"fsfreeze -u '{mount}' 2>&1; true")  # a frozen writer ends only then
        child.wait()


def rows_within(seconds, mount):
    """Return the rows of a mount as soon as there are some."""
    reader = HangReader(Path("/proc"), Path("/sys"), MountTable())
    first = reader.sample(time.monotonic_ns() // 1000)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.25)
        rows = tables_between(first, reader.sample(time.monotonic_ns() // 1000)).get(HUNG_OPERATIONS, {})
        rows = {key: value for key, value in rows.items() if key.mount == str(mount)}
        if rows:
            return rows
    return {}


def test_a_writer_of_a_frozen_file_system_is_seen_with_mount_and_device(mounted):
    mount, device = mounted
    with writer(mount) as pid:
        time.sleep(1)
        run("fsfreeze", "-f", str(mount))
        rows = rows_within(40, mount)
        run("fsfreeze", "-u", str(mount))
        ((key, value),) = rows.items()
        assert (key.device, key.kind, key.cause) == (device, "ext4", "frozen")
        assert key.process.endswith(f"/{pid}")
        assert value.lasted_us > 0
        assert rows_within(6, mount) == {}
