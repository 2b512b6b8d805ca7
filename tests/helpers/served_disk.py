"""A loop device on a file that this process serves through /dev/fuse: a disk whose times a test decides.

`ServedDisk` speaks as much of the protocol (include/uapi/linux/fuse.h, 7.31) as one file takes. Each read, write and
discard is answered when it is due: after the time of a service, and not before a token bucket or a single server has
room for it. The kernel's I/O goes through it, so that nothing of the limit is a setting of the host.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import os
import select
import stat
import struct
import threading
import time
from pathlib import Path
from typing import Self

from workload import LoopDevice

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
_FLUSH, _INIT, _OPENDIR, _RELEASEDIR, _FSYNC, _INTERRUPT, _BATCH_FORGET, _FALLOCATE = 25, 26, 27, 29, 20, 36, 42, 43
_NAME, _FILE = b"disk", 2
_MAX_WRITE = 1 << 17
_DETACH = 2
_CREDIT_S = 0.05
"""What a bucket keeps of a time without requests: a busy host wakes the loads and this process late."""


class Service:
    """When requests are answered: an I/O takes `service_us`; `iops` limits how many per second; `discard_us`.

    In the first `pause_s` of each `every_s` nothing is answered.
    """

    def __init__(
        self,
        service_us: int = 300,
        *,
        iops: int = 0,
        is_serial: bool = False,
        discard_us: int = 0,
        pause_s: float = 0.0,
        every_s: float = 1.0,
    ) -> None:
        self.service_us, self.iops, self.is_serial, self.discard_us = service_us, iops, is_serial, discard_us
        self.pause_s, self.every_s = pause_s, every_s
        self._free_s = 0.0

    def due_s(self, now_s: float, *, is_discard: bool) -> float:
        """Return the time of the answer to a request that came now."""
        due_s = self._due_s(now_s, is_discard=is_discard)
        pause_end_s = due_s - due_s % self.every_s + self.pause_s
        return max(due_s, pause_end_s) if self.pause_s else due_s

    def _due_s(self, now_s: float, *, is_discard: bool) -> float:
        takes_s = (self.discard_us if is_discard else self.service_us) / 1e6
        if self.is_serial:
            self._free_s = max(self._free_s, now_s) + takes_s
            return self._free_s
        if not self.iops:
            return now_s + takes_s
        begin_s = max(self._free_s, now_s - _CREDIT_S)
        self._free_s = begin_s + 1 / self.iops
        return max(begin_s, now_s) + takes_s


class ServedDisk:
    """The mounted file and the loop device on it, until the end of the block."""

    def __init__(self, directory: Path, service: Service, size: int = 64 << 20) -> None:
        self._point, self.service, self._size = directory / "served", service, size
        self._data = bytearray(size)
        self._answers: list[tuple[float, int, bytes]] = []
        self._over = False

    def __enter__(self) -> Self:
        self._point.mkdir()
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fuse},rootmode=40000,user_id=0,group_id=0"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"served", os.fsencode(self._point), b"fuse", 6, options.encode()):
            number = ctypes.get_errno()
            os.close(self._fuse)
            raise OSError(number, f"mount: {os.strerror(number)}")
        self._libc = libc
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.loop = LoopDevice(self._point / _NAME.decode(), self._size)
        self.path, self.name = self.loop.path, self.loop.name
        return self

    def __exit__(self, *_exc: object) -> None:
        self.service = Service(0)
        self.loop.detach()
        self._over = True
        self._libc.umount2(os.fsencode(self._point), _DETACH)
        self._thread.join(10)
        os.close(self._fuse)

    def _serve(self) -> None:
        while True:
            wait_s = max(0.0, self._answers[0][0] - time.monotonic()) if self._answers else 0.1
            if select.select([self._fuse], [], [], wait_s)[0]:
                try:
                    request = os.read(self._fuse, _MAX_WRITE + 4096)
                except OSError as error:
                    if error.errno == errno.ENODEV:  # unmounted
                        return
                    continue
                self._take(request)
            now_s = time.monotonic()
            while self._answers and self._answers[0][0] <= now_s:
                _, _, answer = heapq.heappop(self._answers)
                self._send(answer)
            if self._over and not self._answers:
                return

    def _send(self, answer: bytes) -> None:
        try:
            os.write(self._fuse, answer)
        except OSError:  # its request was aborted
            return

    def _take(self, request: bytes) -> None:
        _length, opcode, unique, node, *_ = _IN.unpack_from(request)
        body = request[_IN.size :]
        if opcode in (_FORGET, _BATCH_FORGET, _INTERRUPT):
            return
        handler = _HANDLERS.get(opcode)
        result = -errno.ENOSYS if handler is None else handler(self, body, node)
        code, data = (result, b"") if isinstance(result, int) else (0, result)
        answer = _OUT.pack(_OUT.size + len(data), code, unique) + data
        if opcode in (_READ, _WRITE, _FALLOCATE):
            due_s = self.service.due_s(time.monotonic(), is_discard=opcode == _FALLOCATE)
            heapq.heappush(self._answers, (due_s, unique, answer))
        else:
            self._send(answer)

    def _attributes(self, node: int) -> bytes:
        is_file = node == _FILE
        mode = stat.S_IFREG | 0o600 if is_file else stat.S_IFDIR | 0o700
        size = self._size if is_file else 0
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def init(self, _body: bytes, _node: int) -> bytes:
        asynchronous = 1 << 0
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, asynchronous, 64, 48, _MAX_WRITE, 1, 0, 0, 0)

    def lookup(self, body: bytes, _node: int) -> bytes | int:
        if body.rstrip(b"\0") != _NAME:
            return -errno.ENOENT
        return struct.pack("<QQQQII", _FILE, 0, 100, 100, 0, 0) + self._attributes(_FILE)

    def attributes(self, _body: bytes, node: int) -> bytes:
        return struct.pack("<QII", 100, 0, 0) + self._attributes(node)

    def opened(self, _body: bytes, _node: int) -> bytes:
        return struct.pack("<QII", 1, 0, 0)

    def read(self, body: bytes, _node: int) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self._data[offset : offset + size])

    def write(self, body: bytes, _node: int) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        self._data[offset : offset + size] = body[40 : 40 + size]
        return struct.pack("<II", size, 0)

    def done(self, _body: bytes, _node: int) -> bytes:
        return b""

    def statistics(self, _body: bytes, _node: int) -> bytes:
        return struct.pack("<QQQQQIIII24x", 1 << 20, 1 << 20, 1 << 20, 9, 9, 4096, 255, 4096, 0)


_HANDLERS = {
    _INIT: ServedDisk.init,
    _LOOKUP: ServedDisk.lookup,
    _GETATTR: ServedDisk.attributes,
    _SETATTR: ServedDisk.attributes,  # the image is "truncated" to its own size
    _OPEN: ServedDisk.opened,
    _OPENDIR: ServedDisk.opened,
    _READ: ServedDisk.read,
    _WRITE: ServedDisk.write,
    _STATFS: ServedDisk.statistics,
    **dict.fromkeys((_RELEASE, _RELEASEDIR, _FLUSH, _FSYNC, _FALLOCATE), ServedDisk.done),
}
