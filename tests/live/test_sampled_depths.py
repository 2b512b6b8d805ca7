"""How many I/Os are outstanding, against fio's own depth and the kernel's gauge, on a disk of our own.

Exact where requests are held: a loop device whose file is on a frozen file system completes none. Where they run, fio
is to keep its depth for most of the time, which takes requests that are long beside what a CPU needs for one.
"""

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from workload import LoopDevice, fio, now_us

from latmon_backends.kernel.counters import KernelSampler, difference

PROC, SYS = Path("/proc"), Path("/sys")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists() or not shutil.which("fio"),
        reason="needs root, loop devices and fio",
    ),
]
DEPTHS = (1, 3, 16, 64)
SIZE = 32 << 20
frozen = pytest.mark.skipif(
    not all(map(shutil.which, ("mkfs.ext4", "fsfreeze"))), reason="needs mkfs.ext4 and fsfreeze"
)


@pytest.fixture
def disk(tmp_path):
    image = tmp_path / "disk"
    image.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    with LoopDevice(image, SIZE) as disk:
        yield disk


@contextmanager
def looking(disk, glob=""):
    sampler = KernelSampler(PROC, SYS, (glob or disk.name,))
    sampler.sample()
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.close()


def reads(disk, depth):
    return {"name": "reads", "filename": disk.path, "rw": "randread", "bs": "256k", "size": SIZE, "iodepth": depth}


def inflight(disk):
    return sum(map(int, (SYS / "block" / disk.name / "inflight").read_text().split()))


def until(happened, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("depth", [pytest.param(one, marks=() if one == 16 else pytest.mark.slow) for one in DEPTHS])
def test_the_distribution_is_fio_s_own_depth(disk, tmp_path, depth):
    """Never more. Only held requests test the frequency: a disk in memory needs the CPUs of the readings."""
    with looking(disk) as sampler:
        before = sampler.sample()
        fio(tmp_path, 0.8, reads(disk, depth), urgent=True)
        interval = difference(before, sampler.sample())
    reported = interval.depths[disk.name]
    assert reported.highest <= depth
    # The first and the last reading are some time from the samples, which a busy machine makes long.
    assert sum(reported.in_driver.values()) == pytest.approx(interval.dt_us / 1000, rel=0.3)


@contextmanager
def held(outer, tmp_path):
    """A loop device that completes nothing while this lasts."""
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", outer.path], check=True, capture_output=True)
    subprocess.run(["mount", outer.path, place], check=True)
    try:
        (place / "image").write_bytes(bytes(SIZE // 4))
        with LoopDevice(place / "image", SIZE // 4) as inner:
            subprocess.run(["fsfreeze", "--freeze", place], check=True)
            thawed = []

            def thaw():
                if not thawed:
                    subprocess.run(["fsfreeze", "--unfreeze", place], check=True)
                    thawed.append(True)

            try:
                yield inner, thaw
            finally:
                thaw()
    finally:
        until(lambda: subprocess.run(["umount", place], capture_output=True, check=False).returncode == 0)


@frozen
@pytest.mark.parametrize("depth", [3, pytest.param(64, marks=pytest.mark.slow)])
def test_requests_that_are_held_are_counted_exactly(disk, tmp_path, depth):
    with held(disk, tmp_path) as (inner, thaw), looking(inner) as sampler:
        # Neighbours would be merged: 4 KB are left out behind each.
        job = ["fio", "--name=writes", f"--filename={inner.path}", "--rw=write:4k", "--bs=4k", f"--iodepth={depth}"]
        writing = subprocess.Popen(
            [*job, "--direct=1", "--ioengine=libaio", "--size=4M", f"--number_ios={depth}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: inflight(inner) == depth)
            # A reading that was under way when the last request came is stamped after it, on busy CPUs long after.
            time.sleep(0.2)
            early_us, before, begun_us = now_us(), sampler.sample(), now_us()
            time.sleep(0.4)
            over_us, after, late_us = now_us(), sampler.sample(), now_us()
            reported = difference(before, after)
        finally:
            thaw()
            writing.wait(60)
        assert after.outstanding[inner.name].in_driver == depth
        assert after.outstanding[inner.name].queued == 0
        moments = reported.depths[inner.name].in_driver
        assert moments == {depth: sum(moments.values())}
        # From the last reading of one sample to that of the other, each somewhere in the time its sample took.
        assert (over_us - begun_us) // 1000 - 1 <= moments[depth] <= (late_us - early_us) // 1000 + 1
        until(lambda: inflight(inner) == 0)
        assert sampler.sample().outstanding[inner.name].in_driver == 0


def runs(disk, tmp_path, count):
    """Short loads one after the other; after each of them nothing is outstanding by both."""
    with looking(disk) as sampler:
        for depth in (DEPTHS[at % len(DEPTHS)] for at in range(count)):
            before = sampler.sample()
            fio(tmp_path, 0.1, reads(disk, depth))
            # udev reads a disk that was open for writing.
            until(lambda: inflight(disk) == 0)
            after = sampler.sample()
            gauge = after.outstanding[disk.name]
            assert (gauge.in_driver, gauge.queued or 0) == (inflight(disk), 0) == (0, 0)
            moments = difference(before, after).depths[disk.name].in_driver
            assert max(moments) <= depth
            yield moments


@pytest.mark.slow
def test_after_the_load_nothing_is_outstanding(disk, tmp_path):
    """Two loads at least. On busy CPUs every other passes between two readings: then some more, until one is seen."""
    seen = [max(moments) > 0 for moments in runs(disk, tmp_path, 2)]
    assert any(seen) or any(max(moments) > 0 for moments in runs(disk, tmp_path, 14))


@pytest.mark.slow
def test_after_the_load_nothing_is_outstanding_a_hundred_times(disk, tmp_path):
    reported = list(runs(disk, tmp_path, 100))
    assert len(reported) == 100
    assert sum(max(moments) > 0 for moments in reported) > 50


def test_a_disk_that_is_unplugged_leaves_no_file_open(tmp_path):
    image = tmp_path / f"unplugged-{os.getpid()}"
    image.write_bytes(bytes(1 << 20))
    disk = LoopDevice(image, 1 << 20)
    before = len(list(Path("/proc/self/fd").iterdir()))
    # By its file: another program may have its name as soon as it is detached.
    with looking(disk, f"*/{image.name}") as sampler:
        fio(tmp_path, 0.3, reads(disk, 4) | {"size": 1 << 20})
        until(lambda: disk.name in sampler._depths._passes.open)
        disk.detach()
        until(lambda: disk.name in sampler.sample().removed)
        until(lambda: not sampler._depths._passes.open - {"vda"})
        assert disk.name not in sampler.sample().spent
    assert len(list(Path("/proc/self/fd").iterdir())) == before
