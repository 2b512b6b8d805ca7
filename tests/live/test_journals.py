"""Commits of a journal and the syncs that wait for them on a real kernel, on a loop device."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import wait_for
from workload import Capture, LoopDevice

from latmon.model.measurements import JOURNAL_WRITERS, JOURNALS, SYNCS, XFS_LOGS

TRACEFS = Path("/sys/kernel/tracing/events")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("losetup", "mount", "umount", "mkfs.ext4"))),
        reason="needs losetup, mount, umount and mkfs.ext4",
    ),
    pytest.mark.skipif(not (TRACEFS / "jbd2").exists(), reason="the kernel has no jbd2, or tracefs is not mounted"),
]
SIZE = 64 << 20
SYNCS_OF_WRITER = 20
WRITER = f"""
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range({SYNCS_OF_WRITER}):
    os.write(file, bytes(512))
    os.fsync(file)
    time.sleep(0.05)
print(os.getpid())
"""


@each_bpftrace
def test_commits_and_syncs_are_counted_by_device_and_process(suite, tmp_path):
    point = tmp_path / "files"
    with LoopDevice(tmp_path / "image", SIZE) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device.path], check=True)
        point.mkdir()
        subprocess.run(["mount", device.path, point], check=True)
        try:
            words = ("--device", device.name, "--stages", "all")
            with Capture(tmp_path, *words, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
                assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), 120.0, 0.5)
                done = subprocess.run(
                    [sys.executable, "-c", WRITER, point / "log"], capture_output=True, text=True, check=True
                )
                wait_for(lambda: summed(capture.frames(), device.name)[1].syncs >= SYNCS_OF_WRITER, 20.0, 0.5)
                assert capture.stop() == 0, capture.stderr
        finally:
            assert wait_for(lambda: subprocess.run(["umount", point], check=False).returncode == 0, 60.0, 0.5)
        frames = capture.frames()
    commits, syncs, processes = summed(frames, device.name)
    skipped = sum(frame.health.skipped or 0 for frame in frames)
    print(suite, commits, syncs, processes, "skipped", skipped)
    assert {process.rpartition("/")[2] for process in processes} == {done.stdout.strip()}
    assert SYNCS_OF_WRITER - skipped <= syncs.syncs <= SYNCS_OF_WRITER
    # Each sync of a file that grew ends with a commit; others come by the timer and at the mount.
    assert commits.commits >= SYNCS_OF_WRITER - skipped
    assert commits.blocks >= commits.commits - skipped
    assert commits.total_us > 0
    writes = written_by(frames, device.name, done.stdout.strip())
    # Each write grows the file: its inode, and now and then its extents and a bitmap.
    assert writes.operations >= SYNCS_OF_WRITER - skipped
    assert SYNCS_OF_WRITER - skipped <= writes.blocks <= commits.blocks
    assert syncs.waited_us > 0


def written_by(frames, device, pid):
    """Return what a process has put into the journal."""
    rows = [
        writes
        for frame in frames
        for row, writes in frame[JOURNAL_WRITERS].items()
        if row.device == device and row.process.endswith(f"/{pid}")
    ]
    return JOURNAL_WRITERS.value.sum_values(rows or [JOURNAL_WRITERS.value.make()])


def summed(frames, device):
    """Return the sums of commits and syncs of a device, and the processes."""
    commits = [frame[JOURNALS][device] for frame in frames if device in frame[JOURNALS]]
    rows = {row for frame in frames for row in frame[SYNCS] if row.device == device}
    syncs = [done for frame in frames for row, done in frame[SYNCS].items() if row.device == device]
    processes = {row.process for row in rows}
    return JOURNALS.value.sum_values(commits or [_NO_COMMITS]), SYNCS.value.sum_values(syncs or [_NO_SYNCS]), processes


_NO_COMMITS = JOURNALS.value.make()
_NO_SYNCS = SYNCS.value.make()


XFS_SIZE = 400 << 20
XFS_SYNCS = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
took_us = []
for _ in range(60):
    os.write(file, bytes(512))
    begun = time.monotonic()
    os.fsync(file)
    took_us.append((time.monotonic() - begun) * 1e6)
print(sum(took_us))
"""
"""Syncs of a file that grows: each writes the log once. It prints the time that they took."""


@each_bpftrace
@pytest.mark.skipif(not shutil.which("mkfs.xfs"), reason="needs mkfs.xfs")
@pytest.mark.skipif(not (TRACEFS / "xfs/xlog_iclog_sync_done").exists(), reason="the kernel has no xfs")
def test_writes_of_an_xfs_log_take_most_of_the_time_of_its_syncs(suite, tmp_path):
    point = tmp_path / "files"
    with LoopDevice(tmp_path / "image", XFS_SIZE) as device:
        subprocess.run(["mkfs.xfs", "-q", "-f", device.path], check=True)
        point.mkdir()
        subprocess.run(["mount", device.path, point], check=True)
        try:
            words = ("--device", device.name, "--stages", "all")
            with Capture(tmp_path, *words, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
                assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), 120.0, 0.5)
                program = [sys.executable, "-c", XFS_SYNCS, point / "log"]
                done = subprocess.run(program, capture_output=True, text=True, check=True)
                wait_for(lambda: log_of(capture.frames(), device.name).writes >= 60, 20.0, 0.5)
                assert capture.stop() == 0, capture.stderr
        finally:
            assert wait_for(lambda: subprocess.run(["umount", point], check=False).returncode == 0, 60.0, 0.5)
        frames = capture.frames()
    log, syncs_us = log_of(frames, device.name), float(done.stdout)
    skipped = sum(frame.health.skipped or 0 for frame in frames)
    print(suite, log, "syncs", round(syncs_us), "skipped", skipped)
    assert 60 - skipped <= log.writes <= 70
    assert 0.3 * syncs_us < log.writing_us < 1.05 * syncs_us + 50_000
    assert log.bytes > log.writes * 100  # an inode's change, without the header of a sector
    assert log.waits == 0


def log_of(frames, device):
    """Return the sum of the writes of a device's xfs log."""
    rows = [frame[XFS_LOGS][device] for frame in frames if device in frame[XFS_LOGS]]
    return XFS_LOGS.value.sum_values(rows or [XFS_LOGS.value.make()])
