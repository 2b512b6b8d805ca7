"""Full file systems of a real kernel: an ext4 that a program fills, and one whose preallocated file is overwritten.

The healthy twin of the first, in the same capture, is 80 % full, and writes go on.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import wait_for
from workload import Capture

from latmon.findings.rules.full_file_system import ID
from latmon.model.measurements import FILE_SYSTEM_SPACE

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None,
        reason="needs root, loop devices and mkfs.ext4",
    ),
]
MB = 1 << 20
WRITER = """
import os, sys, time
file = os.open(sys.argv[1] + "/log", os.O_CREAT | os.O_RDWR)
end, at = time.monotonic() + 180, 0
while time.monotonic() < end:
    os.pwrite(file, b"x" * 65536, at % (4 << 20))
    os.fsync(file)
    at += 65536
    time.sleep(0.1)
"""
FILLER = """
import errno, os, sys, time
file = os.open(sys.argv[1] + "/fill", os.O_CREAT | os.O_WRONLY)
end, failed = time.monotonic() + 180, False
while time.monotonic() < end:
    try:
        os.write(file, b"x" * 65536)
    except OSError as error:
        assert error.errno == errno.ENOSPC
        if not failed:
            print("full", flush=True)
        failed = True
        time.sleep(0.1)
"""
"""Goes on to write after it has failed, as a program with a log does."""


OVERWRITER = """
import os, sys, time
file = os.open(sys.argv[1] + "/image", os.O_RDWR)
end, at = time.monotonic() + 180, 0
while time.monotonic() < end:
    os.pwrite(file, b"x" * (1 << 20), at % (16 << 20))
    os.fsync(file)
    at += 1 << 20
    time.sleep(0.2)
"""
"""As a virtual machine on its preallocated image; fails at the first write that fails."""


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def file_system(directory, name, size):
    """Mount an ext4 on a loop device of its own; yield its mount point and the device's name."""
    image, mount = directory / f"{name}.img", directory / name
    with image.open("wb") as file:
        file.truncate(size)
    mount.mkdir()
    device = run("losetup", "--find", "--show", str(image))
    try:
        run("mkfs.ext4", "-q", "-F", device)
        run("mount", device, str(mount))
        yield mount, Path(device).name
    finally:
        for words in (("umount", str(mount)), ("losetup", "-d", device)):
            with contextlib.suppress(subprocess.CalledProcessError):
                run(*words)


@contextlib.contextmanager
def program(text, mount):
    child = subprocess.Popen([sys.executable, "-c", text, str(mount)], stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def rows(frames, mount):
    return [looks for frame in frames for row, looks in frame[FILE_SYSTEM_SPACE].items() if row.mount == str(mount)]


@pytest.mark.parametrize("backend", ["procfs", "bpftrace"])
def test_a_full_one_is_found_and_its_healthy_twin_is_not(backend, tmp_path):
    if backend == "bpftrace" and shutil.which("bpftrace") is None:
        pytest.skip("needs bpftrace")
    with contextlib.ExitStack() as stack:
        sick, device = stack.enter_context(file_system(tmp_path, "sick", 64 * MB))
        twin, twin_device = stack.enter_context(file_system(tmp_path, "twin", 64 * MB))
        space = os.statvfs(twin)
        (twin / "data").write_bytes(bytes(round(0.72 * space.f_bavail) * space.f_frsize))
        stack.enter_context(program(WRITER, twin))
        capture = stack.enter_context(
            Capture(tmp_path, "--backend", backend, "--device", device, "--device", twin_device)
        )
        assert wait_for(lambda: rows(capture.frames(), sick), 60.0, 0.5), "it is looked at while it has room"
        filler = stack.enter_context(program(FILLER, sick))
        assert filler.stdout.readline() == "full\n"
        assert os.statvfs(sick).f_bavail == 0
        assert wait_for(lambda: f"{sick} (ext4) is full" in capture.stderr, 60.0, 0.5), capture.stderr
        time.sleep(6)
        assert capture.stop() == 0, capture.stderr
        frames, report = capture.frames(), capture.report()
    (finding,) = (finding for finding in report["findings"] if finding["id"] == ID)
    assert (finding["device"], finding["severity"]) == (device, "critical")
    newest = rows(frames, sick)[-1]
    assert (newest.available_bytes, newest.active_looks) == (0, 1)
    twins = rows(frames, twin)
    assert len(twins) >= 3
    assert sum(looks.written_bytes for looks in twins) > MB, "writes go on"
    assert 0.1 < twins[-1].available_bytes / twins[-1].size_bytes < 0.3


def test_a_full_one_whose_preallocated_file_is_overwritten_is_a_warning(tmp_path):
    with contextlib.ExitStack() as stack:
        mount, device = stack.enter_context(file_system(tmp_path, "images", 64 * MB))
        with (mount / "image").open("wb") as image:
            os.posix_fallocate(image.fileno(), 0, os.statvfs(mount).f_bavail * os.statvfs(mount).f_frsize - MB)
        with contextlib.suppress(OSError), (mount / "rest").open("wb", buffering=0) as rest:
            while os.statvfs(mount).f_bavail:
                rest.write(bytes(4096))
                os.fsync(rest.fileno())
        assert os.statvfs(mount).f_bavail == 0
        writer = stack.enter_context(program(OVERWRITER, mount))
        capture = stack.enter_context(Capture(tmp_path, "--backend", "procfs", "--device", device))
        assert wait_for(lambda: f"{mount} (ext4) is full" in capture.stderr, 60.0, 0.5), capture.stderr
        time.sleep(6)
        assert writer.poll() is None, "no write failed"
        assert capture.stop() == 0, capture.stderr
        report = capture.report()
    (finding,) = (finding for finding in report["findings"] if finding["id"] == ID)
    assert finding["severity"] == "warning"
    assert "written to blocks that files have already" in finding["summary"]
