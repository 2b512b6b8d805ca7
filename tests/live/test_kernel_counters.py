"""The kernel's own counters on the host that the tests run on: read as anybody, hot plug as root."""

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import wait_for
from workload import LoopDevice

from latmon.model.frame import Flow
from latmon_backends.kernel.counters import KernelSampler, difference

PROC, SYS = Path("/proc"), Path("/sys")
ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(not Path("/proc/diskstats").exists(), reason="needs /proc/diskstats")
loops = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("losetup") is None or not Path("/dev/loop-control").exists(),
    reason="needs root and loop devices",
)


@linux
def test_every_disk_of_this_host_has_a_name_and_counts():
    sampler = KernelSampler(PROC, SYS)
    before = sampler.sample()
    interval = difference(before, sampler.sample())
    names = {device.name for device in sampler.devices}
    assert {flow.device for flow in interval.kernel} <= names
    assert all(done.count >= 0 and done.bytes >= 0 for done in interval.kernel.values())
    partitions = {path.parent.name for path in SYS.glob("class/block/*/partition")}
    assert not names & partitions


@linux
@loops
def test_a_loop_device_is_plugged_written_to_and_unplugged(tmp_path):
    image = tmp_path / "disk image"
    image.write_bytes(bytes(1 << 20))
    sampler = KernelSampler(PROC, SYS)
    sampler.sample()
    loop = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True).stdout.strip()
    try:
        attached = sampler.sample()
        # Others may attach and detach loop devices meanwhile.
        (device,) = [device for device in attached.devices if device.name == Path(loop).name]
        assert (device.kind, device.timed) == ("loop", True)
        assert device.label.endswith("/disk image")
        fd = os.open(loop, os.O_WRONLY | os.O_DIRECT | os.O_SYNC)
        try:
            with mmap.mmap(-1, 65536) as aligned:
                os.pwrite(fd, aligned, 0)
        finally:
            os.close(fd)
        kernel = difference(attached, sampler.sample()).kernel
        assert kernel[Flow(device.name, "write")].bytes == 65536
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)
    assert wait_for(lambda: not has_file(sampler, device), 60.0)


def has_file(sampler, device):
    """Return whether the device is still there with its file; another program may have its name by now."""
    sampler.sample()
    now = sampler.known.get(device.name)
    return now is not None and now.label == device.label


AS_NOBODY = """
import asyncio
import sys
from latmon.capture.backend import Options
from latmon_backends.procfs import ProcfsBackend

async def main():
    options = Options(interval_us=50_000, devices=tuple(sys.argv[1:]))
    async with ProcfsBackend(options, "no privilege") as backend:
        async for frame in backend.frames():
            assert frame.devices, "no device"
            assert all(each.in_driver is not None for each in frame.outstanding.values()), frame.outstanding
            return print(len(frame.kernel))

asyncio.run(main())
"""


@linux
@loops
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_no_privilege_is_needed(tmp_path):
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with LoopDevice(tmp_path / "image", 1 << 20) as own:
        done = subprocess.run(
            [*nobody, sys.executable, "-c", AS_NOBODY, own.name],
            env={
                "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}",
                "PATH": os.environ["PATH"],
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    if "No module named" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("the checkout or the interpreter is not readable for another user")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def stalled_us():
    """The time in which a task waited for I/O since boot, read without latmon."""
    return int(Path("/proc/pressure/io").read_text(encoding="ascii").partition("total=")[2].split()[0])


@linux
@pytest.mark.skipif(
    not os.access("/proc/pressure/io", os.R_OK) or shutil.which("fio") is None, reason="needs PSI and fio"
)
def test_io_pressure_beside_fio_is_between_readings_around_it(tmp_path):
    fio = [
        *("fio", "--name=sync", f"--filename={tmp_path / 'file'}", "--size=16m", "--rw=randwrite", "--bs=4k"),
        *("--fsync=1", "--ioengine=psync", "--time_based", "--runtime=1"),
    ]
    sampler = KernelSampler(PROC, SYS)
    outer = stalled_us()
    before = sampler.sample()
    inner = stalled_us()
    subprocess.run(fio, check=True, capture_output=True)
    inner = stalled_us() - inner
    after = sampler.sample()
    outer = stalled_us() - outer
    context = difference(before, after).host_context
    assert inner <= context["psi_io_some"].total <= outer
    assert context["psi_io_some"].weight >= 1_000_000
    assert context["psi_io_full"].total <= context["psi_io_some"].total
