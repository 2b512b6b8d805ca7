"""What mounts say about the disks of their file systems, in one walk: here of sync and dirsync, and of all together."""

import pytest
from cgroup_host import put

from latmon.capture.mounts import MountTable
from latmon.model.frame import MOUNTED_DIRSYNC, MOUNTED_SYNC, READ_ONLY_KIND, READ_ONLY_MOUNT, DeviceReport
from latmon_backends.kernel.mount_reports import MountReportReader

LINE = "44 27 7:0 / /srv/db rw,noatime - ext4 /dev/loop0 rw,{}errors=remount-ro\n"


@pytest.fixture
def reports(tmp_path):
    block = tmp_path / "sys/devices/loop0"
    block.mkdir(parents=True)
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/7:0").symlink_to(block)

    def read(*lines):
        put(tmp_path / "proc/self/mountinfo", "".join(lines))
        reader = MountReportReader(tmp_path / "proc", tmp_path / "sys", MountTable(tmp_path / "proc"))
        reader.refresh(10, str, lambda *_number: "")
        return reader.reports

    return read


@pytest.mark.parametrize(("option", "name"), [("sync", MOUNTED_SYNC), ("dirsync", MOUNTED_DIRSYNC)])
def test_the_disk_of_such_a_mount_is_reported_with_its_place(reports, option, name):
    expected = {"loop0": (DeviceReport(name, "/srv/db", "/proc/self/mountinfo"),)}
    assert reports(LINE.format(f"{option},")) == expected


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(LINE.format(""), id="neither"),
        pytest.param(LINE.format("async,").replace("/srv/db", "/srv/sync"), id="in the path, or another option"),
        pytest.param("45 27 0:40 / /mnt/nfs rw - nfs4 host:/x rw,sync\n", id="of a server"),
    ],
)
def test_others_are_not(reports, line):
    assert reports(line) == {}


def test_one_disk_has_the_reports_of_all_kinds(reports):
    line = "44 27 7:0 / /srv/db rw,noatime - btrfs /dev/loop0 ro,sync\n"
    names = [report.name for report in reports(line)["loop0"]]
    assert names == [MOUNTED_SYNC, READ_ONLY_KIND, READ_ONLY_MOUNT]
