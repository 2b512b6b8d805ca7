"""A FUSE server that is silent, on a real kernel: who waits for it is seen, and latmon touches no file of it itself."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import wait_for
from workload import Capture

from latmon.capture.mounts import MountTable
from latmon.model.measurements import HUNG_OPERATIONS
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.hung_operations import HangReader

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and FUSE"),
]
SERVER = """
import ctypes, os, struct, sys
INIT, LOOKUP, GETATTR, OPEN, READ, QUIET = 26, 1, 3, 14, 15, (2, 36, 42)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"silent", sys.argv[1].encode(), b"fuse.silent", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
SIZE = 1 << 20
def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100644, SIZE)
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
answers = {
    INIT: lambda node: struct.pack("<4I2H2I2H8I", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, *(0,) * 8),
    LOOKUP: lambda node: struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2),
    GETATTR: lambda node: struct.pack("<Q2I", 3600, 0, 0) + attributes(node),
    OPEN: lambda node: struct.pack("<Q2I", 0, 0, 0),
}
print("mounted", flush=True)
is_silent = False
while True:
    request = os.read(device, 1 << 18)
    length, operation, unique, node = struct.unpack_from("<2I2Q", request)
    is_silent |= operation == READ
    if is_silent or operation in QUIET:
        continue
    body, error = (answers[operation](node), 0) if operation in answers else (b"", -38)
    os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
"""
"""From the first read on it answers nothing. include/uapi/linux/fuse.h has the structures; its end aborts all waits."""
READER = "import sys; print(len(open(sys.argv[1], 'rb', 0).read(4096)))"


@contextlib.contextmanager
def silent_mount(point):
    """Mount a file system whose server is silent, let a process read a file on it; yield the process's number."""
    point.mkdir()
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(point)], stdout=subprocess.PIPE)
    reader = None
    try:
        if server.stdout.readline() != b"mounted\n":
            pytest.skip("FUSE can't be mounted here")
        reader = subprocess.Popen([sys.executable, "-c", READER, str(point / "file")], stderr=subprocess.DEVNULL)
        yield reader.pid
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        if reader is not None:
            reader.kill()
            reader.wait()
        ctypes.CDLL(None).umount2(os.fsencode(point), 2)  # MNT_DETACH


def hung_rows(tables, point):
    """Return the rows of a mount, of a frame or of tables."""
    return {key: hung for key, hung in tables[HUNG_OPERATIONS].items() if key.mount == str(point)}


def hung_us(frames, point):
    return sum(hung.lasted_us for frame in frames for hung in hung_rows(frame, point).values())


def test_a_reader_of_a_silent_server_is_seen(tmp_path):
    point = tmp_path / "mount"
    reader = HangReader(Path("/proc"), Path("/sys"), MountTable())
    with silent_mount(point) as pid:
        first = reader.sample(time.monotonic_ns() // 1000)

        def rows():
            return hung_rows(
                {HUNG_OPERATIONS: {}, **tables_between(first, reader.sample(time.monotonic_ns() // 1000))}, point
            )

        assert wait_for(rows, 40.0, 0.25)
        ((key, hung),) = rows().items()
    assert (key.device, key.kind, key.cause) == ("", "fuse.silent", "server")
    assert key.process.endswith(f"/{pid}")
    assert hung.lasted_us > 0


@pytest.mark.parametrize("backend", ["procfs", "bpftrace"])
def test_a_capture_names_it_and_ends_in_time(backend, tmp_path):
    """The rows have no device: the frames of a probe left them out once."""
    if backend == "bpftrace" and shutil.which("bpftrace") is None:
        pytest.skip("needs bpftrace")
    point = tmp_path / "mount"
    with silent_mount(point) as pid, Capture(tmp_path, "--backend", backend) as capture:
        assert wait_for(lambda: hung_us(capture.frames(), point) >= 6_000_000, 90.0, 0.5)
        time.sleep(12)  # the block in which it has lasted for that long ends, on a crowded host a later one
        assert capture.stop() == 0, capture.stderr
        frames = capture.frames()
    processes = {key.process for frame in frames for key in hung_rows(frame, point)}
    assert {process.rpartition("/")[2] for process in processes} == {str(pid)}
    assert f"in read on {point} (fuse.silent): its server" in capture.stderr
