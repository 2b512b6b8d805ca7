"""What devices and their links report in sysfs: SCSI counters and states, AER, the PCIe link, NVMe's ANA."""

from __future__ import annotations

import itertools

import pytest
from fake_host import MPTSAS, NVME, VIRTIO, FakeHost

from latmon.model.frame import DeviceReport
from latmon_backends.kernel import block_devices
from latmon_backends.kernel.block_devices import directories_above, reports
from latmon_backends.kernel.counters import FrameClock, KernelSampler

PORT, ADAPTER = "devices/pci0000:00", "devices/pci0000:00/0000:00:07.0"
AER = "RxErr 3\nBadTLP 0\nBadDLLP 4\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\n"
"""Rows of aer_dev_correctable, as aer_stats_dev_attr() of drivers/pci/pcie/aer.c prints them."""


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


def values(host, name):
    block = host.sys / "block" / name
    return {report.name: report.value for report in reports(block, directories_above(block))}


def test_a_scsi_disk_reports_its_commands_its_state_and_its_adapters_link(host):
    host.mptsas()
    for name, text in {"ioerr_cnt": "0x1f", "iotmo_cnt": "0x2", "iodone_cnt": "0xffff", "state": "running"}.items():
        host.write(f"sys/{MPTSAS}/{name}", f"{text}\n")
    host.write(f"sys/{ADAPTER}/aer_dev_correctable", f"{AER}TOTAL_ERR_COR 7\n")
    host.write(f"sys/{ADAPTER}/aer_dev_fatal", "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0\n")
    host.write(f"sys/{ADAPTER}/current_link_speed", "2.5 GT/s PCIe\n")
    host.write(f"sys/{ADAPTER}/max_link_speed", "8.0 GT/s PCIe\n")
    host.write(f"sys/{ADAPTER}/current_link_width", "4\n")
    host.write(f"sys/{ADAPTER}/max_link_width", "8\n")
    block = host.sys / "block/sda"
    assert tuple(reports(block, directories_above(block))) == (
        DeviceReport("ioerr_cnt", 31, "device/ioerr_cnt"),
        DeviceReport("iotmo_cnt", 2, "device/iotmo_cnt"),
        DeviceReport("state", "running", "device/state"),
        DeviceReport("link_speed", "2.5 GT/s", "0000:00:07.0/current_link_speed"),
        DeviceReport("link_speed_best", "8.0 GT/s", "0000:00:07.0/max_link_speed"),
        DeviceReport("link_width", 4, "0000:00:07.0/current_link_width"),
        DeviceReport("link_width_best", 8, "0000:00:07.0/max_link_width"),
        DeviceReport("aer_correctable", 7, "0000:00:07.0/aer_dev_correctable"),
        DeviceReport("aer_fatal", 0, "0000:00:07.0/aer_dev_fatal"),
    )


def test_the_best_link_is_the_lesser_one_of_device_and_port(host):
    host.mptsas()
    for at, most in ((ADAPTER, "32.0 GT/s PCIe"), (PORT, "16.0 GT/s PCIe")):
        host.write(f"sys/{at}/max_link_speed", f"{most}\n")
    host.write(f"sys/{ADAPTER}/current_link_speed", "16.0 GT/s PCIe\n")
    found = values(host, "sda")
    assert found["link_speed"] == found["link_speed_best"] == "16.0 GT/s"


def test_paths_of_nvme_report_their_controller_and_their_ana_state(host):
    host.multipath()
    host.write(f"sys/{NVME}/state", "connecting\n")
    host.write(f"sys/{NVME}/nvme0c0n1/ana_state", "inaccessible\n")
    assert values(host, "nvme0c0n1") == {"state": "connecting", "ana_state": "inaccessible"}
    assert values(host, "nvme0n1") == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("current_link_speed", "Unknown\n"),
        ("current_link_width", "0\n"),
        ("current_link_width", "63\n"),  # all ones: the device is gone
        ("aer_dev_correctable", "RxErr 1\n"),
        ("aer_dev_correctable", ""),
    ],
)
def test_what_is_not_known_is_left_out(host, file, text):
    host.mptsas()
    for name in ("max_link_speed", "max_link_width"):
        host.write(f"sys/{ADAPTER}/{name}", "8.0 GT/s PCIe\n" if "speed" in name else "8\n")
    host.write(f"sys/{ADAPTER}/{file}", text)
    host.write(f"sys/{MPTSAS}/ioerr_cnt", "nonsense\n")
    assert values(host, "sda") == {}


def test_a_state_of_another_bus_is_none(host):
    host.virtio()
    host.write(f"sys/{VIRTIO}/state", "Connected\n")  # as Xen's disks have
    assert values(host, "vda") == {}


@pytest.mark.parametrize(("status", "is_read"), [("active", True), ("unsupported", True), ("suspended", False)])
def test_the_link_of_a_suspended_adapter_is_not_read(host, status, is_read):
    host.mptsas()
    host.write(f"sys/{ADAPTER}/power/runtime_status", f"{status}\n")
    for name in ("current", "max"):
        host.write(f"sys/{ADAPTER}/{name}_link_width", "8\n")
    assert bool(values(host, "sda")) == is_read


def test_a_device_without_any_has_none(host):
    host.virtio()
    host.disk("md0", (9, 0), mq=False)
    assert values(host, "vda") == values(host, "md0") == {}


def test_a_change_is_a_new_row_of_the_device_at_most_once_a_minute(host):
    host.mptsas()
    host.write(f"sys/{MPTSAS}/ioerr_cnt", "0x1\n")
    seconds = itertools.count(100, 10)
    kernel = KernelSampler(host.proc, host.sys, (), FrameClock(lambda: next(seconds) * 1_000_000, lambda: 0.0))
    (first,) = kernel.sample().devices
    assert [report.value for report in first.reports] == [1]
    host.write(f"sys/{MPTSAS}/ioerr_cnt", "0x5\n")
    samples = [kernel.sample().devices for _ in range(block_devices.REPORTS_S // 10)]
    assert not any(samples[:-1])
    assert [report.value for report in samples[-1][0].reports] == [5]


def test_another_disk_of_the_name_has_its_own_reports_at_once(host):
    host.mptsas()
    host.write(f"sys/{MPTSAS}/ioerr_cnt", "0x9\n")
    seconds = itertools.count(100, 1)
    kernel = KernelSampler(host.proc, host.sys, (), FrameClock(lambda: next(seconds) * 1_000_000, lambda: 0.0))
    kernel.sample()
    host.unplug("sda")
    host.mptsas()
    host.write(f"sys/{MPTSAS}/ioerr_cnt", "0x2\n")
    (now,) = kernel.sample().devices
    assert [report.value for report in now.reports] == [2]
