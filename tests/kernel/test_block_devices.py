import pytest
from fake_host import MPTSAS_HOST, NVME, VIRTIO, FakeHost, columns

from latmon.model.frame import BACKING_DEVICE, Device, Limit
from latmon_backends.kernel.block_devices import LIMITS_S, BlockDevices
from latmon_backends.kernel.diskstats import parse


class Looking:
    """BlockDevices with the fake host's diskstats read for it."""

    def __init__(self, host):
        self.host, self.block, self._now_us = host, BlockDevices(host.proc, host.sys), 0

    def refresh(self, after_s=1):
        self._now_us += after_s * 1_000_000
        return self.block.refresh(parse((self.host.proc / "diskstats").read_bytes()).counters, self._now_us)

    def __getitem__(self, name):
        return self.block.devices[name]


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


@pytest.fixture
def looking(host):
    return Looking(host)


def test_virtio(host, looking):
    host.virtio()
    assert looking.refresh().changed == (
        Device(
            "vda",
            254,
            0,
            driver="virtio_blk",
            controller="virtio0 virtio_blk 0000:00:04.0",
            serial="overlayblk",
            limits=(Limit("iostats", 1, "queue/iostats"), Limit("hardware queues", 1, "mq")),
        ),
    )


def test_a_disk_behind_a_host_adapter_names_the_adapter_not_sd(host, looking):
    host.mptsas()
    looking.refresh()
    disk = looking["sda"]
    assert (disk.driver, disk.controller) == ("mptsas", "host2 mptsas 0000:00:07.0")
    assert (disk.model, disk.serial) == ("QEMU QEMU HARDDISK", "SN-0042")


@pytest.mark.parametrize("named", ["<NULL>\n", "(null)\n", ""])
def test_a_host_adapter_without_a_name_has_its_pci_driver(host, looking, named):
    host.mptsas()
    host.write("sys/class/scsi_host/host2/proc_name", named)
    looking.refresh()
    assert looking["sda"].controller == "host2 mptsas 0000:00:07.0"


def test_ata_is_no_maker(host, looking):
    path = host.mptsas()
    host.write(f"{path}/device/vendor", "ATA     \n")
    looking.refresh()
    assert looking["sda"].model == "QEMU HARDDISK"


def test_a_serial_that_is_missing_is_the_world_wide_name(host, looking):
    path = host.mptsas()
    (host.proc.parent / path / "device/vpd_pg80").unlink()
    host.write(f"{path}/device/wwid", "naa.5000c500a1b2c3d4\n")
    looking.refresh()
    assert looking["sda"].serial == "naa.5000c500a1b2c3d4"


def test_nvme_multipath_has_a_head_and_its_hidden_path(host, looking):
    host.multipath()
    looking.refresh()
    head, path = looking["nvme0n1"], looking["nvme0c0n1"]
    assert (head.kind, head.timed, head.members) == ("nvme-head", False, ("nvme0c0n1",))
    assert (head.model, head.serial, head.driver) == ("QEMU NVMe Ctrl", "deadbeef", "nvme")
    assert (path.kind, path.timed, path.label) == ("nvme-path", True, "nvme0n1")
    assert path.controller == "nvme0 nvme 0000:00:05.0"


def test_a_second_path_changes_the_head(host, looking):
    host.multipath()
    looking.refresh()
    host.disk("nvme0c1n1", (259, 2), NVME)
    changed = {device.name: device for device in looking.refresh().changed}
    assert set(changed) == {"nvme0n1", "nvme0c1n1"}
    assert changed["nvme0n1"].members == ("nvme0c0n1", "nvme0c1n1")


def test_nvme_over_fabrics_has_a_transport_and_an_address(host, looking):
    where = "devices/virtual/nvme-fabrics/ctl/nvme3"
    host.write(f"sys/{where}/transport", "tcp\n")
    host.write(f"sys/{where}/address", "traddr=10.0.0.5,trsvcid=4420\n")
    host.disk("nvme3c3n1", (259, 5), where)
    looking.refresh()
    assert looking["nvme3c3n1"].driver == "nvme-tcp"
    assert looking["nvme3c3n1"].controller == "nvme3 nvme-tcp traddr=10.0.0.5,trsvcid=4420"


def test_a_plain_nvme_disk_is_a_disk(host, looking):
    host.disk("nvme0n1", (259, 0), NVME)
    looking.refresh()
    assert (looking["nvme0n1"].kind, looking["nvme0n1"].timed) == ("disk", True)


def test_partitions_are_their_disk(host, looking):
    host.virtio()
    host.partition("vda", "vda1", (254, 1))
    looking.refresh()
    assert list(looking.block.devices) == ["vda"]
    assert looking.block.device(254, 1) == looking["vda"]


def test_device_mapper_over_partitions_belongs_to_their_disks(host, looking):
    host.virtio()
    host.mptsas()
    for disk, name, number in (("vda", "vda1", (254, 1)), ("vda", "vda2", (254, 2)), ("sda", "sda1", (8, 1))):
        host.partition(disk, name, number)
    path = host.disk("dm-0", (252, 0), mq=False)
    host.write(f"{path}/dm/name", "vg0-root\n")
    host.write(f"{path}/dm/uuid", "LVM-abcdef\n")
    for name in ("vda1", "vda2", "sda1"):
        (host.proc.parent / path / "slaves" / name).mkdir(parents=True)
    looking.refresh()
    mapped = looking["dm-0"]
    assert (mapped.kind, mapped.label, mapped.model, mapped.timed) == ("dm", "vg0-root", "lvm", False)
    assert mapped.members == ("sda", "vda")


def test_request_based_device_mapper_is_timed(host, looking):
    path = host.disk("dm-1", (252, 1), mq=True)
    host.write(f"{path}/dm/name", "mpatha\n")
    host.write(f"{path}/dm/uuid", "mpath-3600\n")
    looking.refresh()
    assert (looking["dm-1"].model, looking["dm-1"].timed) == ("multipath", True)


def test_a_renamed_or_reloaded_mapping_is_a_change(host, looking):
    path = host.disk("dm-0", (252, 0), mq=False)
    host.write(f"{path}/dm/name", "old\n")
    looking.refresh()
    host.write(f"{path}/dm/name", "new\n")
    assert [device.label for device in looking.refresh().changed] == ["new"]
    (host.proc.parent / path / "slaves/sdz").mkdir(parents=True)
    assert [device.members for device in looking.refresh().changed] == [("sdz",)]
    assert looking.refresh().changed == ()


def test_raid(host, looking):
    path = host.disk("md127", (9, 127), mq=False)
    host.write(f"{path}/md/level", "raid1\n")
    (host.proc.parent / path / "slaves/sdb").mkdir(parents=True)
    looking.refresh()
    array = looking["md127"]
    assert (array.kind, array.model, array.members, array.timed) == ("md", "raid1", ("sdb",), False)


def test_a_loop_is_there_while_it_has_a_file(host, looking):
    path = host.disk("loop0", (7, 0))
    assert looking.refresh().changed == ()
    host.write(f"{path}/loop/backing_file", "/var/lib/a b\x1b[0m.img\n")
    (loop,) = looking.refresh().changed
    assert (loop.kind, loop.timed, loop.label) == ("loop", True, "/var/lib/a b\\x1b[0m.img")
    (host.proc.parent / path / "loop/backing_file").unlink()
    (host.proc.parent / path / "loop").rmdir()
    assert looking.refresh().removed == (loop,)


@pytest.mark.parametrize(
    ("mount", "disk"), [("8:16 / /srv rw - ext4 /dev/sdb rw", "sdb"), ("0:50 / /srv rw - fuse.x y rw", None)]
)
def test_a_loop_reports_the_disk_that_its_file_is_on(host, looking, mount, disk):
    host.disk("sdb", (8, 16))
    numbers = host.proc.parent / "sys/dev/block"
    numbers.mkdir(parents=True, exist_ok=True)
    (numbers / "8:16").symlink_to(host.proc.parent / "sys/block/sdb")
    host.write("proc/self/mountinfo", f"22 1 0:20 / / rw - tmpfs t rw\n27 22 {mount}\n")
    host.write(f"{host.disk('loop0', (7, 0))}/loop/backing_file", "/srv/images/mail.img\n")
    looking.refresh()
    assert looking["loop0"].reported_value(BACKING_DEVICE) == disk


def test_zram_is_there_once_it_has_a_size(host, looking):
    path = host.disk("zram0", (253, 0), mq=False, size=0)
    assert looking.refresh().changed == ()
    host.write(f"{path}/size", "4096\n")
    (device,) = looking.refresh().changed
    assert (device.kind, device.timed) == ("zram", False)


def test_a_real_disk_that_lost_its_size_stays(host, looking):
    path = host.mptsas()
    host.write(f"{path}/size", "0\n")
    assert [device.name for device in looking.refresh().changed] == ["sda"]


def test_hot_plug_and_unplug(host, looking):
    host.virtio()
    looking.refresh()
    host.mptsas()
    assert [device.name for device in looking.refresh().changed] == ["sda"]
    host.unplug("sda")
    change = looking.refresh()
    assert change.changed == ()
    assert [device.name for device in change.removed] == ["sda"]
    assert looking.block.device(8, 0) is None


def test_another_drive_in_the_same_place_is_a_change(host, looking):
    path = host.mptsas()
    looking.refresh()
    before = looking.block.generation("sda")
    host.unplug("sda")
    host.mptsas()
    host.write(f"{path}/device/vpd_pg80", b"\x00\x80\x00\x02XY")
    assert looking.block.generation("sda") != before
    assert [device.serial for device in looking.refresh().changed] == ["XY"]


def test_a_busy_virtio_disk_is_not_asked_for_its_serial_until_it_is_idle(host, looking):
    path = host.virtio()
    host.write(f"{path}/inflight", "1 0\n")
    looking.refresh()
    assert looking["vda"].serial == ""
    host.write(f"{path}/inflight", "0 0\n")
    assert [device.serial for device in looking.refresh().changed] == ["overlayblk"]
    host.write(f"{path}/inflight", "1 0\n")
    assert looking.refresh().changed == ()


def test_a_name_with_a_slash(host, looking):
    host.disk("cciss/c0d0", (104, 0), MPTSAS_HOST)
    host.partition("cciss!c0d0", "cciss!c0d0p1", (104, 1))
    looking.refresh()
    assert "cciss/c0d0" in looking.block.devices


def test_an_unknown_device_number_is_no_device(host, looking):
    host.virtio()
    looking.refresh()
    assert looking.block.device(99, 7) is None


def test_without_sysfs_names_come_from_diskstats(tmp_path):
    host = FakeHost(tmp_path)
    for name, number in (
        ("sda", (8, 0)),
        ("sda1", (8, 1)),
        ("nvme0n1", (259, 0)),
        ("nvme0n1p2", (259, 1)),
        ("dm-0", (252, 0)),
    ):
        host.count(name, columns(), number)
    looking = Looking(host)
    looking.block = BlockDevices(host.proc, tmp_path / "nowhere")
    looking.refresh()
    assert {device.name: device.timed for device in looking.block.devices.values()} == {
        "sda": True,
        "nvme0n1": True,
        "dm-0": False,
    }
    assert looking.block.device(259, 1) == looking["nvme0n1"]


def test_a_name_in_diskstats_whose_sysfs_is_gone_was_just_unplugged(host, looking):
    host.virtio()
    host.count("sdx", columns(), (65, 112))
    looking.refresh()
    assert list(looking.block.devices) == ["vda"]
    assert looking.block.device(65, 112) is None


def test_io_of_a_device_that_is_not_counted(host, looking):
    path = host.virtio()
    looking.refresh()
    assert not looking.block.uncounted
    host.write(f"{path}/queue/iostats", "0\n")
    looking.refresh()
    assert looking.block.uncounted == {"vda"}


def test_the_bus_device_without_a_driver_is_still_named(host, looking):
    host.driver(VIRTIO, "virtio")
    host.disk("vda", (254, 0), VIRTIO)
    looking.refresh()
    assert looking["vda"].controller == "virtio0"


# Limits


def values(device):
    return {limit.name: (limit.value, limit.source) for limit in device.limits}


def test_a_scsi_disk_s_limits_and_its_host_s(host, looking):
    path = host.mptsas()
    for name, text in {"queue_depth": "64\n", "queue_type": "none\n"}.items():
        host.write(f"{path}/device/{name}", text)
    for name, text in {"can_queue": "127\n", "cmd_per_lun": "7\n", "nr_hw_queues": "1\n"}.items():
        host.write(f"sys/class/scsi_host/host2/{name}", text)
    host.write(f"{path}/queue/scheduler", "none [mq-deadline] kyber\n")
    host.write(f"{path}/mq/0/nr_tags", "127\n")
    looking.refresh()
    found = values(looking["sda"])
    assert found["queue_depth"] == (64, "device/queue_depth")
    assert found["queue_type"] == ("none", "device/queue_type")
    assert found["can_queue"] == (127, "host2/can_queue")
    assert found["scheduler"] == ("mq-deadline", "queue/scheduler")
    assert found["nr_tags"] == (127, "mq/0/nr_tags")


def test_an_nvme_disk_s_limits_and_its_controller_s(host, looking):
    host.driver("devices/pci0000:00/0000:00:05.0", "pci", "nvme")
    path = host.disk("nvme0n1", (259, 0), NVME)
    host.write(f"sys/{NVME}/sqsize", "127\n")
    host.write(f"sys/{NVME}/queue_count", "3\n")
    host.write(f"{path}/mq/0/nr_tags", "127\n")
    host.write(f"{path}/mq/1/nr_tags", "127\n")
    looking.refresh()
    found = values(looking["nvme0n1"])
    assert found["sqsize"] == (127, "nvme0/sqsize")
    assert found["hardware queues"] == (2, "mq")


@pytest.mark.parametrize("interval_s", [1, 5, 60])
def test_a_limit_that_was_changed_is_reported_soon(host, looking, interval_s):
    path = host.mptsas()
    host.write(f"{path}/device/queue_depth", "64\n")
    looking.refresh()
    host.write(f"{path}/device/queue_depth", "3\n")
    times = -(-LIMITS_S // interval_s)
    reported = [one for _ in range(times) for one in looking.refresh(interval_s).changed]
    assert [values(one)["queue_depth"][0] for one in reported] == [3]


def test_what_a_driver_was_reported_for_all_of_its_devices(host, looking):
    path = host.mptsas()
    host.write(f"{path}/device/queue_depth", "64\n")
    host.write(f"{path}/device/queue_ramp_up_period", "120000\n")
    for name, text in {
        "max_queue_depth": "16\n",
        "poll_queues": "2\n",
        "debug": "1\n",
        "queue_depth": "(none)\n",
    }.items():
        host.write(f"sys/module/mptsas/parameters/{name}", text)
    looking.refresh()
    found = values(looking["sda"])
    assert found["queue_ramp_up_period"] == (120_000, "device/queue_ramp_up_period")
    assert found["mptsas.max_queue_depth"] == (16, "module mptsas/max_queue_depth")
    assert found["mptsas.poll_queues"] == (2, "module mptsas/poll_queues")
    assert found["queue_depth"] == (64, "device/queue_depth")
    assert "mptsas.debug" not in found


def test_what_a_disk_is_beside_its_limits(host, looking):
    path = host.virtio()
    host.write(f"{path}/queue/rotational", "1\n")
    host.write(f"{path}/queue/max_sectors_kb", "1280\n")
    looking.refresh()
    found = values(looking["vda"])
    assert (found["rotational"][0], found["max_sectors_kb"][0]) == (1, 1280)


def test_a_disk_that_takes_over_a_number_replaces_the_one_before(host, looking):
    host.disk("nvme0n1", (259, 0))
    looking.refresh()
    host.unplug("nvme0n1")
    host.disk("nvme1n1", (259, 0))
    change = looking.refresh()
    assert [device.name for device in change.removed] == ["nvme0n1"]
    assert [device.name for device in change.changed] == ["nvme1n1"]
    assert looking.block.device(259, 0) == looking["nvme1n1"]
