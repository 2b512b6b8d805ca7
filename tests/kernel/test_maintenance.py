"""Maintenance that sysfs names: arrays of md and file systems of btrfs, in a made sysfs."""

import os
import time

import pytest
from fake_host import FakeHost, columns

from latmon.model.frame import DeviceReport
from latmon.model.measurements import MAINTENANCE, Maintenance
from latmon_backends.kernel.counters import FrameClock, KernelSampler, difference

UUID = "0b4bd9a4-7a4c-4a2c-9f2e-5e1f6f0e3c11"


@pytest.fixture
def host(tmp_path):
    host = FakeHost(tmp_path)
    host.virtio()
    array = host.disk("md0", (9, 0), mq=False)
    host.array = array
    host.write(f"{array}/md/level", "raid1\n")
    host.write(f"{array}/md/raid_disks", "2\n")
    host.write(f"{array}/md/degraded", "0\n")
    host.link(f"{array}/slaves/vda", "sys/block/vda")
    return host


def rows_of(host):
    """Return the rows of an interval of a second."""
    now = iter(range(1_000_000, 9_000_000, 1_000_000))
    sampler = KernelSampler(host.proc, host.sys, clock=FrameClock(lambda: next(now), lambda: 0.0))
    before = sampler.sample()
    host.count("vda", columns(reads=10), (254, 0))
    return dict(difference(before, sampler.sample()).tables[MAINTENANCE])


@pytest.mark.parametrize(
    ("action", "completed", "rows"),
    [
        ("check", "512 / 2048", {Maintenance("md0", "md check"): 1_000_000}),
        ("recover", "none", {Maintenance("md0", "md recover"): 1_000_000}),
        ("reshape", "1 / 2", {Maintenance("md0", "md reshape"): 1_000_000}),
        ("resync", "delayed", {}),
        ("idle", "none", {}),
        ("frozen", "none", {}),
        ("\x1b[2J", "none", {}),
    ],
)
def test_an_array_s_work_is_counted_while_it_runs(host, action, completed, rows):
    host.write(f"{host.array}/md/sync_action", f"{action}\n")
    host.write(f"{host.array}/md/sync_completed", f"{completed}\n")
    assert rows_of(host) == rows


@pytest.mark.parametrize(
    ("operation", "work"),
    [
        ("balance", ["btrfs balance"]),
        ("device replace", ["btrfs device replace"]),
        ("balance paused", []),
        ("none", []),
    ],
)
def test_a_file_system_s_work_is_that_of_its_disks(host, operation, work):
    host.partition("vda", "vda1", (254, 1))
    host.write(f"sys/fs/btrfs/{UUID}/exclusive_operation", f"{operation}\n")
    host.link(f"sys/fs/btrfs/{UUID}/devices/vda1", "sys/class/block/vda1")
    host.write("sys/fs/btrfs/features/raid56", "0\n")
    assert [row.work for row in rows_of(host)] == work
    assert {row.device for row in rows_of(host)} <= {"vda"}


def test_an_array_reports_how_far_it_is_and_what_it_lacks(host):
    host.write(f"{host.array}/md/sync_action", "recover\n")
    host.write(f"{host.array}/md/sync_completed", "512 / 2048\n")
    host.write(f"{host.array}/md/sync_speed", "20480\n")
    host.write(f"{host.array}/md/degraded", "1\n")
    sampler = KernelSampler(host.proc, host.sys)
    sampler.sample()
    (array,) = (device for device in sampler.devices if device.name == "md0")
    assert array.reports == (
        DeviceReport("degraded", 1, "md/degraded"),
        DeviceReport("raid_disks", 2, "md/raid_disks"),
        DeviceReport("sync_action", "recover", "md/sync_action"),
        DeviceReport("sync_speed", 20_480, "md/sync_speed"),
        DeviceReport("sync_percent", 25, "md/sync_completed"),
    )


_RUNS, _ENDED = "|t_start:5|duration:1|canceled:0|finished:0\n", "|t_start:5|duration:9|canceled:0|finished:1\n"


@pytest.mark.parametrize(
    ("state", "age_s", "work"),
    [
        pytest.param(_RUNS, 4, ["btrfs scrub"], id="it runs"),
        pytest.param("", 4, [], id="it is empty"),
        pytest.param(_ENDED, 1, [], id="it has ended"),
        pytest.param(_RUNS.replace("canceled:0", "canceled:1"), 1, [], id="it was stopped"),
        pytest.param(_RUNS, 60, [], id="it was killed"),
        pytest.param(_RUNS, -60, [], id="of a clock that was set back"),
    ],
)
def test_a_scrub_is_known_by_the_state_that_it_writes(host, state, age_s, work):
    host.partition("vda", "vda1", (254, 1))
    host.write(f"sys/fs/btrfs/{UUID}/exclusive_operation", "none\n")
    host.link(f"sys/fs/btrfs/{UUID}/devices/vda1", "sys/class/block/vda1")
    host.write(f"var/lib/btrfs/scrub.status.{UUID}", f"scrub status:1\n{UUID}:1{state}" if state else "")
    written = time.time() - age_s
    os.utime(host.sys.parent / f"var/lib/btrfs/scrub.status.{UUID}", (written, written))
    assert [row.work for row in rows_of(host)] == work
