"""Disks that are slow for a reason outside of them, each beside a healthy twin: a limit, and a storm of discards."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest
from served_disk import ServedDisk, Service
from workload import Capture

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs /dev/fuse"),  # noqa: PTH110
    pytest.mark.skipif(
        not all(map(shutil.which, ("fio", "losetup", "blkdiscard"))), reason="needs fio, losetup and blkdiscard"
    ),
]
IOPS = 100
"""With 8 and 24 in flight a crowded host that wakes the loads late leaves no part of it unused."""

ROUNDS = 8
"""Of more and of less in flight, at most: a busy host may take longer until its rate is a steady one."""


@contextlib.contextmanager
def running(*words):
    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(load.pid, signal.SIGKILL)


def reads(disk, depth, *more):
    """Random reads by fio until the end of the block."""
    job = ("--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", f"--iodepth={depth}", "--thread")
    return running(
        "fio", "--name=t", f"--filename={disk.path}", "--readonly", *job, "--time_based", "--runtime=600", *more
    )


def discards(disk):
    """Four discards of 256 kB ten times a second at most, of a part that is not read."""
    command = f"while :; do blkdiscard --force --offset 32M --length 1M --step 256K {disk.path}; sleep 0.1; done"
    return running("sh", "-c", command)


def findings(capture, rule):
    findings = capture.report()["findings"]
    print(*(finding["summary"] for finding in findings), sep="\n")
    return {finding["device"]: finding for finding in findings if finding["id"] == rule}


def test_a_limit_outside_is_named_and_a_paced_load_is_not(tmp_path):
    (tmp_path / "limited").mkdir()
    (tmp_path / "free").mkdir()
    with (
        ServedDisk(tmp_path / "limited", Service(300)) as limited,
        ServedDisk(tmp_path / "free", Service(300)) as free,
        reads(limited, 8),
        reads(free, 4, "--rate_iops=50"),
        Capture(tmp_path, "--device", limited.name, "--device", free.name) as capture,
    ):
        time.sleep(5)
        limited.service.iops = IOPS
        for _ in range(ROUNDS):
            with reads(limited, 16):
                time.sleep(4)
            actual_findings = findings(capture, "outside-limit")
            if actual_findings:
                break
            time.sleep(4)
        assert capture.stop() == 0, capture.stderr
    (name, finding), *others = actual_findings.items()
    assert not others
    assert name == limited.name
    assert finding["severity"] == "warning"
    assert "a limit outside of this host holds it at " in finding["summary"]
    assert finding["evidence"]["rate"]["value"] == pytest.approx(IOPS, rel=0.05)


def test_a_storm_of_discards_is_named_and_fast_ones_are_not(tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "fast").mkdir()
    with (
        ServedDisk(tmp_path / "slow", Service(300, is_serial=True, discard_us=30_000)) as slow,
        ServedDisk(tmp_path / "fast", Service(300, is_serial=True)) as fast,
        reads(slow, 1, "--rate_iops=60", "--size=32M"),
        reads(fast, 1, "--rate_iops=60", "--size=32M"),
        Capture(tmp_path, "--device", slow.name, "--device", fast.name) as capture,
    ):
        time.sleep(5)
        with discards(slow), discards(fast):
            time.sleep(9)
        assert capture.stop() == 0, capture.stderr
    (name, finding), *others = findings(capture, "maintenance").items()
    assert not others
    assert name == slow.name
    assert finding["severity"] == "warning"
    assert "a storm of discards runs" in finding["summary"]
