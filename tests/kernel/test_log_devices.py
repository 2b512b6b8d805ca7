"""The device of a file system's log, from files like those of /proc and /sys, and of real file systems."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cgroup_host import put
from terminal import wait_for
from workload import LoopDevice

from latmon.capture.mounts import MountTable
from latmon.model.frame import LOG_DEVICE, DeviceReport
from latmon_backends.kernel import log_devices
from latmon_backends.kernel.mount_reports import MountReportReader

DISKS = {
    "sda1": "sda",
    "sda2": "sda",
    "sdb1": "sdb",
    "dm-0": "dm-0",
    "dm-1": "dm-1",
    "dm-12": "dm-12",
    "nvme10n1p10": "nvme10n1",
    "nvme11n1": "nvme11n1",
}
NUMBERS = {(8, 1): "sda", (8, 17): "sdb", (1, 3): "sdc"}
"""1:3 is that of /dev/null, which is everywhere."""


def refreshed(root, now_s=0):
    reader = MountReportReader(root / "proc", root / "sys", MountTable(root / "proc"))
    reader.refresh(now_s, lambda name: DISKS.get(name, ""), lambda *number: NUMBERS.get(number, ""))
    return {disk: report.value for disk, (report,) in reader.reports.items()}


def mounted(root, *options, number="8:1", kind="xfs"):
    lines = [f"30 1 {number} / /data rw - {kind} /dev/sda1 rw,{option}\n" for option in options]
    put(root / "proc/self/mountinfo", "21 1 0:40 / / rw - tmpfs none rw\n" + "".join(lines))


@pytest.mark.parametrize(
    ("option", "changed", "reports"),
    [
        ("attr2,logdev=/dev/null,noquota", {}, {"sda": "sdc"}),
        ("attr2,noquota", {}, {}),
        ("logdev=/dev/not-there", {}, {}),
        ("logdev=/mnt/server/node", {}, {}),
        ("logdev=/dev/null", {"number": "0:44"}, {}),
        ("logdev=/dev/null", {"kind": "overlay"}, {}),
    ],
)
def test_xfs_has_it_among_the_options_of_its_mount(tmp_path, option, changed, reports):
    mounted(tmp_path, option, **changed)
    assert refreshed(tmp_path) == reports


def test_another_partition_of_the_same_disk_is_no_other_device(tmp_path, monkeypatch):
    mounted(tmp_path, "logdev=/dev/null")
    monkeypatch.setitem(NUMBERS, (1, 3), "sda")
    assert refreshed(tmp_path) == {}


@pytest.mark.parametrize(
    ("device", "thread", "journals", "reports"),
    [
        pytest.param("sda1", "jbd2/sdb1", ("sdb1", "sda2-8"), {"sda": "sdb"}, id="a device"),
        pytest.param("sda1", "jbd2/sda1-8", ("sda1-8",), {}, id="in the file system"),
        pytest.param("sda1", "jbd2/sda2", ("sda2",), {}, id="the same disk"),
        pytest.param("sda1", "jbd2/dm-0", ("dm-0", "dm-0-8"), {"sda": "dm-0"}, id="a name with a dash"),
        pytest.param("dm-12", "jbd2/dm-1", ("dm-1", "dm-1-8"), {"dm-12": "dm-1"}, id="the beginning of its own name"),
        pytest.param("dm-0", "jbd2/dm-0-8", ("dm-0-8",), {}, id="in a file system on such a one"),
        pytest.param("sda1", "jbd2/nvme10n1p", ("nvme10n1p10",), {"sda": "nvme10n1"}, id="a name that is cut"),
        pytest.param("nvme10n1p10", "jbd2/nvme10n1p1", ("nvme10n1p10-8",), {}, id="its own name, cut"),
        pytest.param("sda1", "jbd2/nvme1", ("nvme10n1p10", "nvme11n1"), {}, id="one of two"),
        pytest.param("sda1", "sh", ("sdb1",), {}, id="another process has the pid now"),
    ],
)
def test_ext4_has_it_in_the_name_of_its_journal_s_thread(tmp_path, device, thread, journals, reports):
    put(tmp_path / "sys/fs/ext4/features/lazy_itable_init", "supported\n")
    put(tmp_path / "sys/fs/ext4" / device / "journal_task", "77\n")
    put(tmp_path / "sys/fs/ext4/vda/journal_task", "<none>\n")
    put(tmp_path / "proc/77/comm", f"{thread}\n")
    for journal in journals:
        (tmp_path / "proc/fs/jbd2" / journal).mkdir(parents=True)
    assert refreshed(tmp_path) == reports


def test_it_is_read_again_after_5_s(tmp_path):
    now = [0.0]
    reader = MountReportReader(tmp_path / "proc", tmp_path / "sys", MountTable(tmp_path / "proc", lambda: now[0]))

    def refresh(now_s):
        now[0] = now_s
        reader.refresh(now_s, lambda name: DISKS.get(name, ""), lambda *number: NUMBERS.get(number, ""))
        return reader.reports

    assert refresh(10) == {}
    mounted(tmp_path, "logdev=/dev/null")
    assert refresh(12) == {}
    assert refresh(15) == {"sda": (DeviceReport(LOG_DEVICE, "sdc", "/proc/self/mountinfo"),)}
    mounted(tmp_path)
    assert refresh(20) == {}


MAKE = {
    "ext4": (("mke2fs", "-q", "-F", "-b", "4096", "-O", "journal_dev", "{log}"),
             ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "device={log}", "{data}"), ()),
    "xfs": (("mkfs.xfs", "-q", "-f", "-l", "logdev={log},size=64m", "{data}"), ("-o", "logdev={log}")),
}  # fmt: skip
"""File system -> the commands that make it; the last is of options of mount."""


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("kind", MAKE)
def test_a_real_file_system(tmp_path, kind):
    *commands, options = MAKE[kind]
    needed = ("losetup", "mount", "umount", *(command[0] for command in commands))
    if not all(map(shutil.which, needed)):
        pytest.skip(f"needs {', '.join(needed)}")
    with LoopDevice(tmp_path / "data", 400 << 20) as data, LoopDevice(tmp_path / "log", 100 << 20) as log:
        names = {"data": data.path, "log": log.path}
        for command in commands:
            subprocess.run([word.format(**names) for word in command], check=True)
        point = tmp_path / "files"
        point.mkdir()
        subprocess.run(["mount", "-t", kind, *(word.format(**names) for word in options), data.path, point], check=True)
        try:
            reader = MountReportReader(Path("/proc"), Path("/sys"), MountTable())
            reader.refresh(0, lambda name: name, disk_with_number)
        finally:
            assert wait_for(lambda: subprocess.run(["umount", point], check=False).returncode == 0, 60.0, 0.5)
    (report,) = [report for report in reader.reports[data.name] if report.name == LOG_DEVICE]
    assert report.value == log.name


def disk_with_number(major, minor):
    """Return the name of a block device without partitions; empty where there is none."""
    return log_devices.os.path.basename(log_devices.os.path.realpath(f"/sys/dev/block/{major}:{minor}"))
