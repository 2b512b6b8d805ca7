"""A balance of a btrfs file system on a real kernel: its time by sysfs, beside the time that the tool took."""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from terminal import wait_for
from workload import LoopDevice

from latmon.model.measurements import MAINTENANCE, Maintenance
from latmon_backends.kernel.counters import KernelSampler, difference

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif("btrfs" not in Path("/proc/filesystems").read_text(), reason="needs btrfs in the kernel"),
    pytest.mark.skipif(not all(map(shutil.which, ("mkfs.btrfs", "btrfs"))), reason="needs btrfs-progs"),
]
MB = 1 << 20


def timed(sampler, over):
    """Return the time of each work until `over` is set."""
    before, sums = sampler.sample(), {}
    while not over.wait(0.05):
        after = sampler.sample()
        for row, us in difference(before, after).tables[MAINTENANCE].items():
            sums[row] = sums.get(row, 0) + us
        before = after
    return sums


def test_a_balance_is_counted_while_it_runs(tmp_path):
    point, over, measured = tmp_path / "mount", threading.Event(), []
    point.mkdir()
    with LoopDevice(tmp_path / "image", 1024 * MB) as disk:
        subprocess.run(["mkfs.btrfs", "-q", "-f", disk.path], check=True, capture_output=True)
        subprocess.run(["mount", disk.path, point], check=True)
        try:
            with (point / "file").open("wb") as file:
                for _ in range(100):
                    file.write(os.urandom(MB))
            os.sync()
            sampler = KernelSampler(Path("/proc"), Path("/sys"))
            thread = threading.Thread(target=lambda: measured.append(timed(sampler, over)))
            thread.start()
            time.sleep(0.5)
            begin_s = time.monotonic()
            balance = ["btrfs", "balance", "start", "--full-balance", str(point)]
            subprocess.run(balance, check=True, capture_output=True)
            took_us = (time.monotonic() - begin_s) * 1e6
            time.sleep(0.3)
            over.set()
            thread.join()
        finally:
            assert wait_for(lambda: subprocess.run(["umount", point], check=False).returncode == 0, 30.0)
    print(measured, took_us)
    work = Maintenance(disk.name, "btrfs balance")
    assert measured[0].keys() <= {work}
    if took_us > 500_000:  # else it may have run between two readings
        assert 0.5 * took_us <= measured[0][work] <= took_us + 1e6
