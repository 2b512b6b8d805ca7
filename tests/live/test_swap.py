"""A program that has more pages than its cgroup may have, and a swap device, on a real kernel without a probe."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import wait_for
from workload import Capture, LoopDevice

from latmon.findings.evidence import WHOLE, swap_of
from latmon.model.measurements import MAJOR_FAULTS, MEMORY_LIMITS

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("losetup", "mkswap", "swapon", "swapoff"))),
        reason="needs losetup, mkswap, swapon and swapoff",
    ),
]
SWAP_BYTES, LIMIT, PAGES_BYTES = 256 << 20, 48 << 20, 96 << 20
EATER = f"""
import mmap, random
memory = mmap.mmap(-1, {PAGES_BYTES}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, {PAGES_BYTES}, 4096):
    memory[at] = 1
while True:
    at = random.randrange(0, {PAGES_BYTES}, 4096)
    memory[at] = (memory[at] + 1) & 255
"""


@contextlib.contextmanager
def limited():
    """Yield the directory of a cgroup with a limit of memory; skip where none can be made."""
    if (V1 / "memory.limit_in_bytes").exists():
        path, name = V1 / "latmon-test", "memory.limit_in_bytes"
    elif "memory" in (V2 / "cgroup.subtree_control").read_text().split():
        path, name = V2 / "latmon-test", "memory.max"
    else:
        pytest.skip("the memory controller is in no hierarchy")
    path.mkdir()
    try:
        (path / name).write_text(str(LIMIT))
        yield path
    finally:
        assert wait_for(lambda: not (path / "cgroup.procs").read_text(), 10.0, 0.1)
        path.rmdir()


@contextlib.contextmanager
def swap(image):
    """Yield a loop device with swap; its file has no holes."""
    with LoopDevice(image, SWAP_BYTES) as device:
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={image}", "bs=1M", "count=256", "conv=notrunc"], check=True, stderr=-3
        )
        subprocess.run(["mkswap", device.path], check=True, stdout=subprocess.DEVNULL)
        if subprocess.run(["swapon", device.path], check=False).returncode:
            pytest.skip("swapon is not allowed here")
        try:
            yield device
        finally:
            assert wait_for(lambda: subprocess.run(["swapoff", device.path], check=False).returncode == 0, 30.0, 0.5)


def test_a_cgroup_at_its_limit_and_its_process_are_named(tmp_path):
    with swap(tmp_path / "swap") as device, limited() as cgroup:
        eater = subprocess.Popen(
            ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', cgroup, sys.executable, "-c", EATER]
        )
        try:
            with Capture(tmp_path, "--backend", "procfs") as capture:
                assert wait_for(lambda: has_named(capture, cgroup, eater.pid), 60.0, 1.0)
                time.sleep(6)  # the limits that it names are in a whole block
                assert capture.stop() == 0, capture.stderr
        finally:
            eater.kill()
            eater.wait()
        report, frames = capture.report(), capture.frames()
    devices = {device.name: device for frame in frames for device in frame.devices}
    assert swap_of(devices[device.name]) == WHOLE
    (finding,) = [each for each in report["findings"] if each["id"] == "swap-thrash"]
    print(finding["summary"])
    assert finding["device"] == device.name
    assert f"cgroup /{cgroup.name} is at its limit of 48 MiB" in finding["summary"]
    assert f"(pid {eater.pid}) waits most" in finding["summary"]


def has_named(capture, cgroup, pid):
    limits = {row.cgroup for frame in capture.frames() for row in frame[MEMORY_LIMITS]}
    processes = {row.process.rpartition("/")[2] for frame in capture.frames() for row in frame[MAJOR_FAULTS]}
    return f"/{cgroup.name}" in limits and str(pid) in processes


READER = """
import os, random, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
size = 64 << 20
while True:
    for at in range(0, size, 1 << 20):
        os.pread(file, 1 << 20, at)
    while sys.argv[2] == "random":
        os.pread(file, 4096, random.randrange(0, size, 4096))
"""


@pytest.mark.parametrize("order", ["random", "scanned"])
def test_a_cgroup_that_reads_more_than_its_limit_at_random_is_found_and_a_scan_is_not(tmp_path, order):
    with LoopDevice(tmp_path / "disk") as device, limited() as cgroup:
        command = [sys.executable, "-c", READER, device.path, order]
        reader = subprocess.Popen(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', cgroup, *command])
        try:
            with Capture(tmp_path, "--backend", "procfs", "--device", device.name) as capture:
                time.sleep(20)
                assert capture.stop() == 0, capture.stderr
        finally:
            reader.kill()
            reader.wait()
        report, frames = capture.report(), capture.frames()
    reloads = sum(frame.host_context["file_reloads"].total for frame in frames if "file_reloads" in frame.host_context)
    assert reloads > 5_000
    summaries = [each["summary"] for each in report["findings"] if each["id"] == "swap-thrash"]
    print(reloads, summaries, {name: value.total for name, value in frames[-1].host_context.items()})
    named = [text for text in summaries if f"cgroup /{cgroup.name} is at its limit of 48 MiB" in text]
    assert bool(named) == (order == "random")
