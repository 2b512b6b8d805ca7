"""Settings from a /proc and a /sys made by hand; files that are missing or hang are left out."""

import asyncio
import threading
from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon.model.frame import Device
from latmon.support import host
from latmon.support.errors import UnavailableError
from latmon_backends.kernel import settings
from latmon_backends.kernel.settings import bounded, kernel, module, preemption, probe, queue


def put(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def sys(tmp_path):
    """sda behind mpt3sas, with the links that a real one has."""
    root = tmp_path / "sys"
    disk = root / "devices/pci0/0000:03:00.0/host2/target2:0:0/2:0:0:0"
    put(disk, queue_depth="254", queue_type="simple", model="HDD 8T  ", rev="SN04", vendor="ACME", wwid="naa.5000")
    put(disk / "block/sda/queue", scheduler="none [mq-deadline] kyber", nr_requests="256", write_cache="write back")
    (disk / "block/sda/device").symlink_to(disk)
    (root / "class/block").mkdir(parents=True)
    (root / "class/block/sda").symlink_to(disk / "block/sda")
    put(root / "class/scsi_host/host2", version_fw="16.00.11.00", proc_name="mpt3sas", unique_id="0")
    put(root / "module/mpt3sas", version="48.100.00.00", srcversion="ABC", parameters__max_queue_depth="-1")
    put(root / "module/scsi_mod", parameters__use_blk_mq="Y")
    (root / "module/nvme_core").mkdir()
    (root / "bus/pci/drivers/mpt3sas").mkdir(parents=True)
    (root / "bus/pci/drivers/mpt3sas/module").symlink_to(root / "module/mpt3sas")
    (root / "devices/pci0/0000:03:00.0/driver").symlink_to(root / "bus/pci/drivers/mpt3sas")
    return root


@pytest.fixture
def proc(tmp_path):
    put(tmp_path / "proc", cmdline="root=UUID=12-34 ro scsi_mod.use_blk_mq=1 threadirqs ip=10.0.0.1 nvme.poll_queues=2")
    return tmp_path / "proc"


def test_a_disk_s_queue_its_firmware_and_its_adapter_s(sys):
    assert dict(queue("sda", sys)) == {
        "scheduler": "mq-deadline",
        "nr_requests": "256",
        "write_cache": "write back",
        "queue_depth": "254",
        "queue_type": "simple",
        "model": "HDD 8T",
        "rev": "SN04",
        "hba version_fw": "16.00.11.00",
    }


@pytest.mark.parametrize(("strict", "settings"), [("1", {"bdi strict_limit": "1"}), ("0", {})])
def test_a_limit_of_dirty_pages_of_the_device_s_own(sys, strict, settings):
    put(sys / "class/block/sda/bdi", strict_limit=strict)
    assert {name: value for name, value in queue("sda", sys) if name.startswith("bdi")} == settings


def test_a_device_that_is_gone_has_no_settings(sys):
    assert dict(queue("sdz", sys)) == {}


def test_a_module_s_version_and_parameters(sys):
    reported = {"version": "48.100.00.00", "srcversion": "ABC", "max_queue_depth": "-1"}
    assert module("mpt3sas", sys) == reported
    assert module("none", sys) == {}


def test_of_the_boot_line_only_what_matters_to_io(proc, sys, tmp_path):
    reported = dict(kernel(proc, sys, tmp_path))
    booted = {name: value for name, value in reported.items() if name.startswith("boot ")}
    assert booted == {"boot scsi_mod.use_blk_mq": "1", "boot threadirqs": "yes", "boot nvme.poll_queues": "2"}


@pytest.mark.parametrize(
    ("file", "config", "version", "found"),
    [
        ("none voluntary (full) lazy", b"", "#1 SMP PREEMPT_DYNAMIC", "full"),
        ("", b"", "#1 SMP PREEMPT_DYNAMIC", "dynamic"),
        ("", b"CONFIG_PREEMPT_VOLUNTARY=y\n", "#1 SMP", "voluntary"),
        ("", b"CONFIG_PREEMPT_NONE=y\n", "#1 SMP", "none"),
        ("", b"", "#1 SMP PREEMPT_RT", "rt"),
        ("", b"", "#1 SMP", ""),
    ],
)
def test_preemption(sys, file, config, version, found):
    put(sys, kernel__debug__sched__preempt=file)
    assert preemption(config, version, sys) == found


async def test_all_of_a_host(proc, sys):
    options = Options(proc=proc, sys=sys)
    reported = await bounded(options, (Device("sda", 8, 0, driver="mpt3sas"),), {"tool": {"bpftrace": "0.23.2"}})
    assert [*reported] == ["tool", "clock", "kernel", "module scsi_mod", "module mpt3sas", "device sda"]
    assert reported["clock"].keys() >= {"mono", "wall", "utc_offset"}
    assert "12-34" not in str(reported)
    assert "naa" not in str(reported)


def test_clocks_of_a_time_namespace_can_be_converted_to_the_kernel_s(monkeypatch):
    monkeypatch.setattr(host, "clock_offsets", host.ClockOffsets)
    assert not settings.clocks().keys() & {"mono_offset", "boottime_offset"}
    monkeypatch.setattr(host, "clock_offsets", lambda: host.ClockOffsets(86_400_000_000_000, -1_500_000_000))
    reported = settings.clocks()
    assert (reported["mono_offset"], reported["boottime_offset"]) == ("86400000000", "-1500000")


async def test_a_file_that_hangs_leaves_what_came_before(proc, sys, monkeypatch):
    hanging = threading.Event()
    monkeypatch.setattr(settings, "queue", lambda *_args: hanging.wait(600) and ())
    try:
        async with asyncio.timeout(60):
            reported = await bounded(Options(proc=proc, sys=sys), (Device("sda", 8, 0),), {}, 0.1)
    finally:
        hanging.set()
    assert [*reported][-1] == "module mpt3sas"


async def test_a_thousand_devices_fit_into_a_header(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "queue", lambda *_args: [(one, "12345678") for one in settings._QUEUE])
    devices = tuple(Device(f"sd{n}", 8, n) for n in range(1000))
    reported = await bounded(Options(proc=tmp_path, sys=tmp_path), devices, {})
    assert "device sd0" in reported
    assert int(reported["left out"]["sections"]) > 100


def test_a_program_is_known_by_its_text():
    reported = probe("BEGIN {}", ("block_a", "stages_a"))
    assert reported["scripts"] == "block_a, stages_a"
    assert len(reported["sha256"]) == 64
    assert reported["sha256"] != probe("BEGIN { }", ())["sha256"]
    assert probe("", ()) == {}


def test_this_very_host():
    assert dict(kernel(Path("/proc"), Path("/sys")))["release"]


def test_freebsd_has_sysctls_which_are_only_read():
    ran = []

    def run(words, given):
        ran.append((words, given))
        return b"kern.hz=1000\nkern.cam.da.default_timeout=60\nkern.cam.da.retry_count=4\nother=1\n"

    found = {"kernel": {"release": "14.1-RELEASE"}}
    settings.freebsd(found, run)
    assert found == {
        "kernel": {"release": "14.1-RELEASE", "kern.hz": "1000"},
        "module cam": {"kern.cam.da.default_timeout": "60", "kern.cam.da.retry_count": "4"},
    }
    ((words, given),) = ran
    assert (words[:2], given) == (("/sbin/sysctl", "-ie"), b"")
    assert not any("=" in word for word in words), "sysctl writes NAME=VALUE"


def test_a_freebsd_without_sysctl_has_the_rest():
    def run(*_):
        raise UnavailableError("no such file")

    settings.freebsd(found := {}, run)
    assert found == {}
