"""A FUSE file system of one directory, whose server takes a given time for each rename, unlink and stat."""

import contextlib
import ctypes
import os
import subprocess
import sys

import pytest

_SERVER = """
import ctypes, os, struct, sys, time
point, rename_s, unlink_s, stat_s = sys.argv[1], *(float(word) for word in sys.argv[2:5])
INIT, LOOKUP, GETATTR, UNLINK, RENAME, RENAME2, QUIET = 26, 1, 3, 10, 12, 45, (2, 36, 42)
ENOENT, ENOSYS = -2, -38
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"slow", point.encode(), b"fuse.slow", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
nodes = {f"file{number}".encode(): number + 2 for number in range(100)}
def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
def init(node, body):
    return struct.pack("<4I2H2I2H8I", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, *(0,) * 8)
def lookup(node, body):
    name = body.partition(b"\\0")[0]
    if name not in nodes:
        return ENOENT
    return struct.pack("<4Q2I", nodes[name], 0, 3600, 0, 0, 0) + attributes(nodes[name])
def getattr(node, body):
    if node != 1:
        time.sleep(stat_s)
    return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
def unlink(node, body):
    time.sleep(unlink_s)
    return b"" if nodes.pop(body.partition(b"\\0")[0], 0) else ENOENT
def rename(node, body):
    time.sleep(rename_s)
    old, new = body.split(b"\\0")[:2]
    nodes[new] = nodes.pop(old)
    return b""
answers = {
    INIT: init, LOOKUP: lookup, GETATTR: getattr, UNLINK: unlink,
    RENAME: lambda node, body: rename(node, body[8:]), RENAME2: lambda node, body: rename(node, body[16:]),
}
print("mounted", flush=True)
while True:
    request = os.read(device, 1 << 18)
    length, operation, unique, node = struct.unpack_from("<2I2Q", request)
    if operation in QUIET:
        continue
    answer = answers[operation](node, request[40:]) if operation in answers else ENOSYS
    body, error = (b"", answer) if isinstance(answer, int) else (answer, 0)
    os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
"""
"""Names are cached for an hour, attributes never. include/uapi/linux/fuse.h has the structures."""


@contextlib.contextmanager
def slow_directory(point, *, rename_s, unlink_s, stat_s):
    """Mount it at a new directory: file0 to file99. A request takes these times, and the time of those before it."""
    point.mkdir()
    words = [sys.executable, "-c", _SERVER, str(point), str(rename_s), str(unlink_s), str(stat_s)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        if server.stdout.readline() != b"mounted\n":
            pytest.skip("FUSE can't be mounted here")
        yield
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        ctypes.CDLL(None).umount2(os.fsencode(point), 2)  # MNT_DETACH
