"""A program whose cgroup has too little memory for what it writes, on a real kernel without a probe."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import wait_for
from test_swap import limited
from workload import Capture, LoopDevice

from latmon.findings.rules.writes_at_memory_limit import ID
from latmon.model.measurements import MEMORY_WRITERS

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("losetup", "mount", "umount", "mkfs.ext4"))),
        reason="needs losetup, mount, umount and mkfs.ext4",
    ),
]
FEW = 1_000
"""Pages in a minute that were to be reclaimed before they were written."""
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    for _ in range(160):
        os.write(file, bytes(1 << 20))
    os.lseek(file, 0, 0)
"""


def test_the_writer_and_what_its_cgroup_has_to_write_are_seen(tmp_path):
    """The disk may be fast, so that the writer hardly waits: the finding is not asserted, its evidence is."""
    point = tmp_path / "files"
    point.mkdir()
    with LoopDevice(tmp_path / "disk", 512 << 20) as device, limited() as cgroup:
        subprocess.run(["mkfs.ext4", "-q", "-F", device.path], check=True)
        subprocess.run(["mount", device.path, point], check=True)
        words = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', cgroup, sys.executable, "-c", WRITER]
        writer = subprocess.Popen([*words, point / "file"])
        try:
            with Capture(tmp_path, "--backend", "procfs") as capture:
                before = reclaims_of_unwritten_pages()
                are_seen = wait_for(lambda: looks(capture, cgroup) >= 3, 40.0, 1.0)
                if reclaims_of_unwritten_pages() - before < FEW:
                    pytest.skip("this disk writes so fast that no page at the limit waits for it")
                assert are_seen
                assert capture.stop() == 0, capture.stderr
        finally:
            writer.kill()
            writer.wait()
            assert wait_for(lambda: subprocess.run(["umount", point], check=False).returncode == 0, 60.0, 0.5)
        report, frames = capture.report(), capture.frames()
    rows = [(row, seen) for frame in frames for row, seen in frame[MEMORY_WRITERS].items()]
    ours = [(row, seen) for row, seen in rows if row.cgroup == f"/{cgroup.name}"]
    print(ours, [each["summary"] for each in report["findings"] if each["id"] == ID])
    assert {row.process.rpartition("/")[2] for row, _ in ours} == {str(writer.pid)}
    unwritten = sum(seen.unwritten_bytes for _, seen in ours) / sum(seen.looks for _, seen in ours)
    assert (1 << 20) < unwritten < (48 << 20)


def reclaims_of_unwritten_pages():
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("nr_vmscan_immediate_reclaim "))


def looks(capture, cgroup):
    rows = (item for frame in capture.frames() for item in frame[MEMORY_WRITERS].items())
    return sum(seen.looks for row, seen in rows if row.cgroup == f"/{cgroup.name}")
