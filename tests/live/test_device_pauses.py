"""A disk that completes no I/O now and then, beside a healthy twin with the same load, on a real kernel."""

import os
import shutil

import pytest
from served_disk import ServedDisk, Service
from terminal import wait_for
from test_outside_the_device import findings, running
from workload import Capture

from latmon.findings.rules.device_pauses import ID

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs /dev/fuse"),  # noqa: PTH110
    pytest.mark.skipif(not all(map(shutil.which, ("fio", "losetup"))), reason="needs fio and losetup"),
]
PAUSE_S, EVERY_S = 0.9, 6.0
JOBS = 4


def mixed(disk):
    """Reads and writes of four threads at a steady rate, one at a time each, until the end of the block."""
    job = ("--rw=randrw", "--rwmixread=60", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=1", "--thread")
    rate = (f"--numjobs={JOBS}", "--rate_iops=15,10", "--time_based", "--runtime=600")
    return running("fio", "--name=t", f"--filename={disk.path}", *job, *rate)


def test_pauses_are_named_and_the_twin_is_not(tmp_path):
    (tmp_path / "pausing").mkdir()
    (tmp_path / "healthy").mkdir()
    with (
        ServedDisk(tmp_path / "pausing", Service(300, pause_s=PAUSE_S, every_s=EVERY_S)) as pausing,
        ServedDisk(tmp_path / "healthy", Service(300)) as healthy,
        mixed(pausing),
        mixed(healthy),
        Capture(tmp_path, "--device", pausing.name, "--device", healthy.name) as capture,
    ):
        # Four pauses are enough where others' slow I/Os on a crowded host don't hide them.
        assert wait_for(lambda: findings(capture, ID), 90.0, 5.0)
        assert capture.stop() == 0, capture.stderr
    (name, finding), *others = findings(capture, ID).items()
    assert not others
    assert name == pausing.name
    assert finding["severity"] == "warning"
    evidence = finding["evidence"]
    assert evidence["pauses"]["value"] >= 3
    assert evidence["shortest_us"]["value"] == pytest.approx(PAUSE_S * 1e6, rel=0.2)
    assert evidence["ios"]["value"] <= JOBS
    if "period_us" in evidence:  # a pause in which a crowded host had no I/O is not seen
        assert evidence["period_us"]["value"] == pytest.approx(EVERY_S * 1e6, rel=0.1)
