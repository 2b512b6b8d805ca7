"""Disks that come, go and lie on each other while the probe records: each by its name, timed where requests pass."""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from terminal import wait_for
from workload import Capture, LoopDevice, fio

from latmon.model.frame import Flow, Series

SECONDS = 0.5
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio and losetup"
    ),
]


SHARE = 0.98
"""A probe sees this part of the I/Os at least, apart from runs that latmon reports as skipped by the kernel."""


def write(directory, path):
    """Direct writes; how many fio issued."""
    job = {"name": "job", "filename": path, "size": "16M", "rw": "randwrite", "iodepth": 4}
    return fio(directory, SECONDS, job)["job"]["write"]


def seen(capture, name):
    return sum(frame.seen[Flow(name, "write")].count for frame in capture.frames() if Flow(name, "write") in frame.seen)


def skipped(capture):
    """Runs of probes that the kernel skipped: each may be an issue or a completion, of any disk."""
    return sum(frame.health.skipped or 0 for frame in capture.frames())


def are_seen(capture, name, issued):
    least = max(SHARE * issued.count - skipped(capture), issued.count / 2)
    return seen(capture, name) >= least


class Volume:
    """A linear dm volume of 16 MiB; without udev, as in a container."""

    def __init__(self, disk):
        self.name = f"latmon-test-{uuid.uuid4().hex[:8]}"
        table = f"0 32768 linear {disk} 0"
        subprocess.run(["dmsetup", "create", self.name, "--noudevsync", "--table", table], check=True)
        subprocess.run(["dmsetup", "mknodes", self.name], check=True)
        self.path = f"/dev/mapper/{self.name}"
        self.kernel_name = f"dm-{os.minor(Path(self.path).stat().st_rdev)}"

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        subprocess.run(["dmsetup", "remove", "--noudevsync", "--retry", self.name], check=True)


@pytest.mark.slow
def test_a_disk_that_comes_and_goes(tmp_path):
    with Capture(tmp_path, "--backend", "bpftrace", "--interval", "500ms") as capture:
        with LoopDevice(tmp_path / "late disk") as loop:
            name = loop.name
            issued = write(tmp_path, loop.path)
            wait_for(lambda: are_seen(capture, name, issued), 60, 0.3)
        wait_for(lambda: any(name in frame.removed for frame in capture.frames()), 60, 0.3)
        assert capture.stop() == 0, capture.stderr
        frames = capture.frames()
    reported = [device for frame in frames for device in frame.devices if device.name == name and device.label]
    print(f"{name}: seen {seen(capture, name)} of {issued.count}, skipped {skipped(capture)}")
    assert [Path(device.label).name for device in reported] == ["late disk"]
    assert (reported[0].kind, reported[0].timed) == ("loop", True)
    assert are_seen(capture, name, issued)
    assert seen(capture, name) <= issued.count
    assert any(Series(name, "write", "total") in frame.histograms for frame in frames)
    assert any(name in frame.removed for frame in frames)
    assert sum(frame.health.unmatched for frame in frames) <= (1 - SHARE) * issued.count + skipped(capture)


@pytest.mark.skipif(
    shutil.which("dmsetup") is None or "device-mapper" not in Path("/proc/misc").read_text(),
    reason="needs dmsetup and a kernel with the device mapper",
)
def test_a_volume_is_timed_at_its_members(tmp_path):
    with LoopDevice(tmp_path / "disk") as loop, Volume(loop.path) as volume:
        with Capture(tmp_path, "--backend", "bpftrace", "--interval", "500ms") as capture:
            issued = write(tmp_path, volume.path)
            wait_for(lambda: are_seen(capture, loop.name, issued), 60, 0.3)
            assert capture.stop() == 0, capture.stderr
        report = capture.report()
    above, below = report["devices"][volume.kernel_name], report["devices"][loop.name]
    assert (above["label"], above["kind"], above["timed"]) == (volume.name, "dm", False)
    assert above["members"] == [loop.name]
    assert "latency_us" not in above["ops"]["write"]
    assert above["ops"]["write"]["kernel"]["count"] >= 0.98 * issued.count
    missing = (report["health"]["skipped"] or 0) + (1 - SHARE) * issued.count
    assert below["ops"]["write"]["latency_us"]["count"] >= issued.count - missing
    assert report["health"]["coverage"] <= 1
    assert report["health"]["coverage"] >= 1 - missing / issued.count - 0.03
