"""Disks of file systems that the kernel made read-only after an error, and those that are mounted so."""

import pytest
from cgroup_host import put

from latmon.capture.mounts import MountTable
from latmon.model.frame import READ_ONLY_CAUSE, READ_ONLY_KIND, READ_ONLY_MOUNT, READ_ONLY_SINCE
from latmon_backends.kernel.mount_reports import MountReportReader

LINE = "44 27 7:0 / /srv/db {} - {} /dev/loop0 {}\n"
"""Of 6.18, after an error: `44 27 7:0 / /srv/db rw,noatime - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro`."""
BIND = "45 27 7:0 /a /mnt/a ro - ext4 /dev/loop0 ro\n"
FAILED_S = 1_796_068_556
FAILED = "2026-11-30T19:55:56Z"


class Host:
    def __init__(self, path):
        self.path = path
        self.wall = FAILED_S + 40.0
        block = path / "sys/devices/loop0"
        block.mkdir(parents=True)
        (path / "sys/dev/block").mkdir(parents=True)
        (path / "sys/dev/block/7:0").symlink_to(block)
        mounts = MountTable(path / "proc", lambda: self.wall)
        self.reader = MountReportReader(path / "proc", path / "sys", mounts, lambda: self.wall)

    def mount(self, *lines):
        put(self.path / "proc/self/mountinfo", "".join(lines))

    def error(self, function="ext4_journal_check_start", code=2):
        fields = {"last_error_time": FAILED_S, "last_error_func": function, "last_error_errcode": code}
        for name, value in fields.items():
            put(self.path / "sys/fs/ext4/loop0" / name, f"{value}\n")

    def read(self, after_s=5, shut_down=()):
        self.wall += after_s
        self.reader.refresh(round(self.wall), str, lambda *_number: "", shut_down)
        return {report.name: report.value for report in self.reader.reports.get("loop0", ())}


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("ext4", "rw,errors=remount-ro,emergency_ro", id="ext4 since 6.15"),
        pytest.param("ext4", "rw,shutdown", id="ext4 that is shut down"),
        pytest.param("ext4", "ro,errors=remount-ro", id="ext4 before 6.12"),
        pytest.param("btrfs", "ro,space_cache=v2", id="btrfs"),
        pytest.param("vfat", "ro,errors=remount-ro", id="FAT"),
    ],
)
def test_one_that_the_kernel_made_read_only(host, kind, options):
    host.mount(LINE.format("rw,noatime", kind, options))
    assert host.read() == {READ_ONLY_KIND: kind, READ_ONLY_MOUNT: "/srv/db"}


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([LINE.format("rw", "ext4", "rw,errors=remount-ro")], id="writable"),
        pytest.param([LINE.format("ro,noatime", "ext4", "ro")], id="mounted read-only"),
        pytest.param([LINE.format("ro", "ext4", "ro,emergency_ro")], id="mounted read-only, with an error since"),
        pytest.param([LINE.format("ro", "ext4", "rw")], id="a bind mount that is read-only"),
        pytest.param([LINE.format("rw", "squashfs", "ro,errors=continue")], id="an image"),
        pytest.param([LINE.format("rw", "ext4", "ro"), BIND], id="a remount through another mount point"),
        pytest.param([LINE.format("rw", "ext4", "rw").replace("/srv/db", "/srv/emergency_ro")], id="in the path"),
    ],
)
def test_others_are_not(host, lines):
    host.mount(*lines)
    assert host.read() == {}


def test_ext4_has_the_time_and_the_cause(host):
    host.error()
    host.mount(LINE.format("rw", "ext4", "rw,emergency_ro"))
    assert host.read() == {
        READ_ONLY_KIND: "ext4",
        READ_ONLY_MOUNT: "/srv/db",
        READ_ONLY_SINCE: FAILED,
        READ_ONLY_CAUSE: "journal aborted (I/O error)",
    }


@pytest.mark.parametrize(
    ("function", "code", "cause"),
    [
        ("ext4_lookup", 5, "error in ext4_lookup (corrupted structures)"),
        ("ext4_lookup", 99, "error in ext4_lookup"),
        ("ext4_journal_check_start", 1, "journal aborted"),
    ],
)
def test_causes(host, function, code, cause):
    host.error(function, code)
    host.mount(LINE.format("rw", "ext4", "rw,emergency_ro"))
    assert host.read()[READ_ONLY_CAUSE] == cause


def test_errors_of_ext4_decide_where_a_mount_is_read_only(host):
    """Containers have such mounts; without errors it may be a remount on purpose."""
    host.error()
    host.mount(LINE.format("rw", "ext4", "ro"), BIND)
    assert host.read()[READ_ONLY_MOUNT] == "/srv/db"


def test_another_one_is_known_since_it_was_first_seen(host):
    host.mount(LINE.format("rw", "btrfs", "rw"))
    assert host.read(after_s=-45) == {}
    host.mount(LINE.format("rw", "btrfs", "ro"))
    assert host.read()[READ_ONLY_SINCE] == "2026-11-30T19:55:56Z"
    assert host.read()[READ_ONLY_SINCE] == "2026-11-30T19:55:56Z"
    host.mount(LINE.format("rw", "btrfs", "rw").replace("44 27", "50 27"))
    assert host.read() == {}


def test_one_that_was_so_at_the_start_is_of_an_unknown_time(host):
    host.mount(LINE.format("rw", "btrfs", "ro"))
    assert READ_ONLY_SINCE not in host.read()


def test_one_that_is_shut_down_is_not_in_mountinfo(host):
    host.mount(LINE.format("rw", "xfs", "rw,inode64"))
    assert host.read() == {}
    assert host.read(shut_down=(44,))[READ_ONLY_KIND] == "xfs"
    assert host.read() == {}
