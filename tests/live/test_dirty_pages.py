"""A process that is paused for dirty pages on a real kernel: a loop device whose backing device has a limit of its own.

`strict_limit` pauses the writers of that device alone, so the test leaves those of the host in peace.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import wait_for
from workload import Capture, LoopDevice

from latmon.findings.programs import program_of
from latmon.model.measurements import DIRTIERS

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("losetup", "mount", "umount", "mkfs.ext4"))),
        reason="needs losetup, mount, umount and mkfs.ext4",
    ),
]
SIZE = 256 << 20
LIMIT = 4 << 20
"""Bytes of dirty pages on the device."""
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    os.lseek(file, 0, os.SEEK_SET)
    for _ in range(100):
        os.write(file, bytes(1 << 20))
"""


class Mounted:
    """A file system on a loop device."""

    def __init__(self, device: LoopDevice, point: Path) -> None:
        self._device, self._point = device, point

    def __enter__(self):
        subprocess.run(["mkfs.ext4", "-q", "-F", self._device.path], check=True)
        self._point.mkdir()
        subprocess.run(["mount", self._device.path, self._point], check=True)
        return self._point

    def __exit__(self, *_exc):
        assert wait_for(lambda: subprocess.run(["umount", self._point], check=False).returncode == 0, 60.0, 0.5)


@each_bpftrace
def test_a_paused_writer_is_counted_by_name_and_device(suite, tmp_path):
    with LoopDevice(tmp_path / "image", SIZE) as device, Mounted(device, tmp_path / "files") as files:
        backing = Path("/sys/block", device.name, "bdi")
        if not (backing / "max_bytes").exists():
            pytest.skip("needs Linux 6.2: limits of a backing device in bytes")
        (backing / "max_bytes").write_text(str(LIMIT))
        (backing / "strict_limit").write_text("1")
        writer = subprocess.Popen([sys.executable, "-c", WRITER, files / "big"])
        try:
            words = ("--device", device.name, "--stages", "basic")
            with Capture(tmp_path, *words, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
                assert wait_for(lambda: _paused_us(capture, device.name, writer.pid) > 8_000_000, 120.0, 1.0)
                assert capture.stop() == 0, capture.stderr
        finally:
            writer.kill()
            writer.wait()
            # The device keeps them for its next users, whose writers would be paused.
            (backing / "strict_limit").write_text("0")
            (backing / "max_ratio").write_text("100")
        frames, report = capture.frames(), capture.report()
    rows = {row for frame in frames for row in frame[DIRTIERS] if row.device == device.name}
    print(suite, rows)
    assert all(row.process == f"{program_of(row.process).name}/{writer.pid}" for row in rows)
    assert all(program_of(row.process).name for row in rows)
    (finding,) = [each for each in report["findings"] if each["id"] == "dirty-throttled"]
    assert finding["device"] == device.name
    assert f"(pid {writer.pid}) is paused" in finding["summary"]
    assert any(f"/sys/block/{device.name}/bdi" in step["text"] for step in finding["next_steps"])


def _paused_us(capture, device, pid):
    rows = [item for frame in capture.frames() for item in frame[DIRTIERS].items()]
    return sum(done.paused_us for row, done in rows if row.device == device and row.process.endswith(f"/{pid}"))
