"""The stage `worker` on a real kernel: a real-time program has the CPU that a loop device's worker was woken on."""

import contextlib
import mmap
import os
import subprocess
import sys
import time

import pytest
from bpftraces import each_bpftrace
from test_stages_a import STAGES, Run, spent
from test_stages_c import loop  # noqa: F401 - a fixture is found by its name

from latmon.model.frame import UNACCOUNTED, Series

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs: the hog takes one"),
]
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
end = time.monotonic() + 8
while time.monotonic() < end:
    pass
"""
"""It ends by itself: a test that is killed leaves no CPU taken."""
READS, BLOCK = 1500, 4096


@contextlib.contextmanager
def hog(cpu):
    process = subprocess.Popen([sys.executable, "-c", HOG, str(cpu)])
    try:
        time.sleep(0.3)
        if process.poll() is not None:
            pytest.skip("no program may have real-time priority here")
        yield
    finally:
        process.kill()
        process.wait()


def read_for(path, seconds):
    """Read single blocks on the first CPU, one every 2 ms at most."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    os.sched_setaffinity(0, CPUS[:1])
    try:
        with mmap.mmap(-1, BLOCK) as aligned:
            end = time.monotonic() + seconds
            for block in range(READS):
                if time.monotonic() > end:
                    break
                os.preadv(file, [aligned], block % 64 * BLOCK)
                time.sleep(0.002)
    finally:
        os.sched_setaffinity(0, CPUS)
        os.close(file)


@each_bpftrace
def test_waits_for_a_cpu_are_a_stage_and_all_add_up(suite, loop, tmp_path):  # noqa: F811
    with Run(suite, tmp_path, loop, threshold_us=1) as run, hog(CPUS[1]):
        read_for(loop.path, 6.0)
    total = run.traced.histograms[Series("disk", "read", "total")]
    late = run.traced.histograms.get(Series("disk", "read", "worker"))
    assert late, "no worker was late behind a program that has a CPU"
    assert late.sum <= total.sum
    missing = total.sum - sum(spent(run.traced, stage, "read") for stage in (*STAGES, UNACCOUNTED))
    assert abs(missing) <= 2 * total.count
    slow = [record.fields for record in run.slow if (record.get("worker_us") or 0) > 0]
    assert all(fields["worker_us"] <= fields["total_us"] for fields in slow)
    assert all(fields["dispatch_us"] <= fields["worker_us"] for fields in slow)
    # Without the wait the driver of a file in memory is fast.
    longest = max(slow, key=lambda fields: fields["worker_us"])
    if longest["worker_us"] > 10_000:
        assert longest["hba_us"] < longest["worker_us"]
