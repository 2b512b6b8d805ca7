"""I/Os that fail on a real kernel, beside a healthy device.

One loop device has lost the second half of its file, another lies on a file system without room.
"""

import contextlib
import mmap
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import wait_for
from workload import Capture, LoopDevice, diskstats, gained

from latmon.model.frame import Flow, Mark, Series
from latmon.model.measurements import ERRORS, FAILED_BY
from latmon.model.measurements.errors import FailedIO
from latmon.recording.reader import open_recording

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("losetup", "mount", "umount"))), reason="needs losetup, mount and umount"
    ),
]
SIZE, HALF, BLOCK = 64 << 20, 32 << 20, 4096
ROOM = 2 << 20
"""Bytes of the full file system."""
IOS = 40
LOST_AT_A_CLEAR = 2
"""I/Os that end between a table's print and its clear: bpftrace drops them, and coverage shows them as not seen."""


class FullFileSystem:
    """A tmpfs with no room left."""

    def __init__(self, point: Path) -> None:
        self._point = point

    def __enter__(self):
        self._point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", self._point], check=True)
        return self

    def fill(self):
        with contextlib.suppress(OSError), (self._point / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(BLOCK)):
                pass

    def __exit__(self, *_exc):
        # A loop device lets go of its file a moment after it is detached.
        assert wait_for(lambda: subprocess.run(["umount", self._point], check=False).returncode == 0, 30.0)


def read_blocks(path, first):
    """Read single blocks from an offset on; return how many reads failed."""
    return sum(_fails(path, os.O_RDONLY, first + n * BLOCK) for n in range(IOS))


def write_blocks(path):
    return sum(_fails(path, os.O_WRONLY, n * BLOCK) for n in range(IOS))


def _fails(path, how, offset):
    file = os.open(path, how | os.O_DIRECT)
    try:
        with mmap.mmap(-1, BLOCK) as aligned:
            if how == os.O_RDONLY:
                os.preadv(file, [aligned], offset)
            else:
                os.pwrite(file, aligned, offset)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def summed(frames, table):
    sums = {}
    for frame in frames:
        for row, ios in table(frame).items():
            sums[row] = sums.get(row, 0) + ios
    return sums


@each_bpftrace
@pytest.mark.parametrize("stages", ["basic", "all"])
def test_failed_ios_are_counted_by_status_and_not_timed(suite, stages, tmp_path):
    with (
        FullFileSystem(tmp_path / "full") as full,
        LoopDevice(tmp_path / "half", SIZE) as half,
        LoopDevice(tmp_path / "whole", SIZE) as whole,
        LoopDevice(tmp_path / "full/image", SIZE) as thin,
    ):
        os.truncate(tmp_path / "half", HALF)
        full.fill()
        names = (half.name, whole.name, thin.name)
        watched = [word for name in names for word in ("--device", name)]
        words = (*watched, "--stages", stages, "--threshold", "1us")
        with Capture(tmp_path, *words, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
            if stages == "all":
                assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), 120.0, 0.5)
            before = diskstats()
            failed = read_blocks(half.path, HALF), read_blocks(half.path, 0), read_blocks(whole.path, 0)
            failed_writes = write_blocks(thin.path), write_blocks(whole.path)
            kernel = {name: gained(before, diskstats(), name) for name in names}
            enough = IOS * 5
            wait_for(lambda: sum(summed(capture.frames(), _seen).values()) >= enough, 20.0)
            assert capture.stop() == 0, capture.stderr
        frames, report = capture.frames(), capture.report()
        marks = [item for item in open_recording(capture.file) if isinstance(item, Mark)]
    assert (failed, failed_writes) == ((IOS, 0, 0), (IOS, 0))
    skipped = sum(frame.health.skipped or 0 for frame in frames)
    errors, seen, timed = (summed(frames, table) for table in (lambda frame: frame[ERRORS], _seen, _timed))
    print(suite, stages, errors, seen, timed, "skipped", skipped, "by", summed(frames, lambda frame: frame[FAILED_BY]))
    bad_reads, bad_writes = FailedIO(half.name, "read", "I/O error"), FailedIO(thin.name, "write", "no space")
    assert errors.keys() == {bad_reads, bad_writes}
    for row, ios in summed(frames, lambda frame: frame[FAILED_BY]).items():
        assert row.cgroup.startswith("/")
        assert 0 < ios <= errors[FailedIO(row.device, row.op, row.status)]
    lost = {}
    for name, op, ios in ((half.name, "read", 2 * IOS), (whole.name, "read", IOS), (thin.name, "write", IOS)):
        assert kernel[name][op].count == ios
        lost[name] = ios - seen[Flow(name, op)]
        assert 0 <= lost[name] <= skipped + LOST_AT_A_CLEAR
    for row in (bad_reads, bad_writes):
        assert IOS - lost[row.device] <= errors[row] <= IOS
    assert IOS - lost[half.name] <= timed[half.name, "read"] <= IOS
    assert (thin.name, "write") not in timed
    slow = [outlier for frame in frames for outlier in frame.outliers]
    assert {(outlier.device, outlier.op) for outlier in slow if outlier.status} == {row[:2] for row in errors}
    assert {outlier.status for outlier in slow} == {"", bad_reads.status, bad_writes.status}
    assert {row["status"] for row in report["outliers"] if row.get("status")} <= {row.status for row in errors}
    if stages == "all":
        followed, failed_ios = traced_ios(frames)
        print("traced", followed, "failed", failed_ios)
        for row in (bad_reads, bad_writes):
            assert abs(failed_ios[row.device] - errors[row]) <= lost[row.device] + LOST_AT_A_CLEAR
        assert IOS - skipped - LOST_AT_A_CLEAR <= followed[half.name, "read"] <= IOS
        assert (thin.name, "write") not in followed
    check_kernel_log(marks, report, half.name)
    assert whole.name not in {mark.device for mark in marks}
    ops = report["devices"][half.name]["ops"]["read"]
    assert ops["failed"] == {"I/O error": errors[bad_reads]}
    assert report["devices"][whole.name]["ops"]["read"]["failed"] == {}
    fired = {finding["device"]: finding["severity"] for finding in report["findings"] if finding["id"] == "io-errors"}
    assert fired == {half.name: "critical", thin.name: "critical"}


def check_kernel_log(marks, report, device):
    """Check that a device's lines of the kernel's log, which limits their number, are marks and evidence."""
    words = f"I/O error, dev {device}, "
    if words in subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout:
        assert any(words in mark.text for mark in marks if mark.device == device)
        found = {(finding["id"], finding["device"]): finding["evidence"] for finding in report["findings"]}
        assert "kernel_log" in found["io-errors", device]


def traced_ios(frames):
    """Return the I/Os in the tracer's histograms by device and op, and those that failed by device."""
    followed, failed = {}, {}
    for frame in frames:
        for series, histogram in frame.traced.histograms.items():
            if series.stage == "total":
                flow = series.device, series.op
                followed[flow] = followed.get(flow, 0) + histogram.count
        for device, reasons in frame.traced.unfollowed.items():
            if "failed" in reasons:
                failed[device] = failed.get(device, 0) + reasons["failed"]
    return followed, failed


def _seen(frame):
    return {flow: done.count for flow, done in frame.seen.items() if done.count}


def _timed(frame):
    return {
        (series.device, series.op): histogram.count
        for series, histogram in frame.histograms.items()
        if series == Series(series.device, series.op, "total")
    }
