"""The file system of a new file: mounts and block devices from a /proc and a /sys made by hand."""

import os
from pathlib import Path

import pytest

from latmon.capture import mounts as mount_module
from latmon.capture.mounts import MountTable, mounts_of
from latmon.capture.target import remarks


def mounts(tmp_path, *lines):
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/mountinfo").write_text("".join(f"{line}\n" for line in lines))
    return proc


@pytest.fixture
def sys(tmp_path):
    """sda with two partitions, the second of them and sdb below dm-0; loop0 beside."""
    root = tmp_path / "sys"
    (root / "dev/block").mkdir(parents=True)
    (root / "class/block").mkdir(parents=True)
    for where, number in (("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("sdb", "8:16"), ("dm-0", "253:0")):
        block = root / "devices" / where
        (block / "slaves").mkdir(parents=True)
        if "/" in where:
            (block / "partition").write_text("1\n")
        (root / "dev/block" / number).symlink_to(block)
        (root / "class/block" / block.name).symlink_to(block)
    for below in ("sda2", "sdb"):
        (root / "devices/dm-0/slaves" / below).symlink_to(root / "class/block" / below)
    return root


@pytest.fixture
def lies_on(monkeypatch):
    """Every directory has this device number."""

    def lie(major, minor):
        monkeypatch.setattr(mount_module, "_number", lambda _: os.makedev(major, minor))

    return lie


ROOT = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw"
NFS = "40 22 0:50 / /srv rw - nfs4 filer:/x rw,vers=4.2"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse"])
def test_a_server_behind_the_file_is_remarked(tmp_path, kind):
    proc = mounts(tmp_path, ROOT, NFS.replace("nfs4", kind))
    text = remarks(Path("/srv/sub/new"), (), proc, tmp_path)
    assert text == f"the recording goes to a {kind} file system: a server that hangs makes gaps in it"


def test_the_longest_and_the_latest_mount_counts(tmp_path):
    proc = mounts(tmp_path, ROOT, NFS, "41 40 8:2 / /srv/local rw - xfs /dev/sda2 rw", "nonsense", "1 2 - x")
    assert mounts_of(proc).above(Path("/srv")).kind == "nfs4"
    assert mounts_of(proc).above(Path("/srvice")).kind == "ext4"
    assert mounts_of(proc).above(Path("/srv/local/deep")).kind == "xfs"
    over = mounts(tmp_path / "2", NFS, NFS.replace("nfs4", "tmpfs"))
    assert mounts_of(over).above(Path("/srv")).kind == "tmpfs"
    assert mounts_of(tmp_path).above(Path("/srv")) is None


def test_a_mount_point_with_a_space_is_found(tmp_path):
    proc = mounts(tmp_path, ROOT, NFS.replace("/srv", "/my\\040files"))
    assert mounts_of(proc).above(Path("/my files/x")).kind == "nfs4"


@pytest.mark.parametrize(
    ("number", "devices"),
    [((8, 0), ("sda",)), ((8, 1), ("sda",)), ((253, 0), ("dm-0", "sda", "sdb")), ((9, 9), ())],
)
def test_disks_below_a_directory(tmp_path, sys, lies_on, number, devices):
    lies_on(*number)
    assert mounts_of(tmp_path).devices_below(Path("/srv"), sys) == devices


def test_only_a_measured_device_is_remarked(tmp_path, sys, monkeypatch):
    monkeypatch.setattr(mount_module.Mounts, "devices_below", lambda *_args: ("dm-0", "sda", "sdb"))
    assert "lies on sda, which is measured" in remarks(Path("/srv/x"), ("sda", "nvme*"), tmp_path, sys)
    assert "lies on sda and sdb, which are measured" in remarks(Path("/srv/x"), ("sd*",), tmp_path, sys)
    assert "lies on dm-0, sda and sdb, which" in remarks(Path("/srv/x"), (), tmp_path, sys)
    assert remarks(Path("/srv/x"), ("nvme*",), tmp_path, sys) == ""


def test_a_file_system_without_a_number_is_found_by_its_source(tmp_path, sys, lies_on):
    (sys / "fs/btrfs/uuid/devices").mkdir(parents=True)
    for name in ("sda2", "sdb"):
        (sys / "fs/btrfs/uuid/devices" / name).symlink_to(sys / "class/block" / name)
    proc = mounts(tmp_path, "30 22 0:30 / /data rw - btrfs /dev/sdb rw", "31 22 0:31 / /pool rw - zfs tank/x rw")
    lies_on(0, 30)
    assert mounts_of(proc).devices_below(Path("/data/x"), sys) == ("sda", "sdb")
    assert mounts_of(proc).devices_below(Path("/pool"), sys) == ()
    assert mounts_of(proc).devices_below(Path("/else"), sys) == ()


def test_an_overlay_lies_where_its_upper_directory_does(tmp_path, sys, monkeypatch):
    proc = mounts(tmp_path, "30 22 0:30 / /merged rw - overlay overlay rw,lowerdir=/low,upperdir=/up,workdir=/w")
    numbers = {"/merged": os.makedev(0, 30), "/up": os.makedev(8, 16)}
    monkeypatch.setattr(mount_module, "_number", lambda directory: numbers.get(str(directory), 0))
    assert mounts_of(proc).devices_below(Path("/merged"), sys) == ("sdb",)


def test_no_directory_is_touched_whose_mount_is_known(tmp_path, sys, monkeypatch):
    """A look at a directory on a suspended device does not return."""

    def hangs(directory):
        raise AssertionError(f"{directory} is looked at")

    monkeypatch.setattr(mount_module, "_number", hangs)
    overlay = "30 22 0:30 / /merged rw - overlay overlay rw,lowerdir=/low,upperdir=/var/up,workdir=/w"
    proc = mounts(tmp_path, ROOT, "23 22 8:16 / /var rw - xfs /dev/sdb rw", overlay)
    assert mounts_of(proc).devices_below(Path("/merged"), sys) == ("sdb",)
    (sys / "devices/dm-0/loop").mkdir()
    (sys / "devices/dm-0/loop/backing_file").write_text("/var/disk.img\n")
    assert mounts_of(proc).devices_below(Path("/else"), sys) == ("sda",)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([ROOT, NFS], id="a server's own files"),
        pytest.param(
            [
                ROOT,
                NFS.replace("/srv", "/up"),
                "30 22 0:30 / /srv rw - overlay overlay rw,upperdir=/up/x,workdir=/up/w",
            ],
            id="an overlay on them",
        ),
    ],
)
def test_no_file_of_a_server_is_touched(tmp_path, sys, monkeypatch, lines):
    """stat(2) does not return while the server is silent."""
    proc, touched = mounts(tmp_path, *lines), []
    remote = mounts_of(proc).above(Path("/up" if len(lines) > 2 else "/srv")).point
    monkeypatch.setattr(mount_module, "_number", lambda directory: touched.append(str(directory)) or 0)
    monkeypatch.setattr(mount_module, "resolved", lambda path: touched.append(str(path)) or path)
    assert mounts_of(proc).devices_below(Path("/srv/x"), sys) == ()
    mounted = mounts_of(proc)
    for mount in mounted.all:
        mounted.disk_of(mount, sys)
    assert not [path for path in touched if path.startswith(remote)]


def test_layers_without_end_are_not_followed(tmp_path, sys, lies_on):
    (sys / "devices/sdb/slaves/dm-0").symlink_to(sys / "class/block/dm-0")
    lies_on(253, 0)
    assert set(mounts_of(tmp_path).devices_below(Path("/srv"), sys)) == {"dm-0", "sda", "sdb"}


def test_this_very_host(tmp_path):
    assert isinstance(remarks(tmp_path / "x"), str)
    assert remarks(Path("/nowhere/at/all")) == remarks(Path("/nowhere/at/all"), ())


def test_readers_share_a_reading_of_the_mounts_and_its_lines(tmp_path):
    proc, now = mounts(tmp_path, ROOT), [0.0]
    table = MountTable(proc, lambda: now[0])
    first = table.read()
    assert [mount.point for mount in first.all] == ["/"]
    (proc / "self/mountinfo").write_text(f"{ROOT}\n{NFS}\n")
    now[0] = 3.0
    assert table.read() is first
    assert [mount.point for mount in table.read(max_age_s=0).all] == ["/", "/srv"], "a reader may need them now"
    second = table.read()
    now[0] = 8.0
    assert table.read() is second, "nothing has changed"


def test_a_mount_point_with_a_carriage_return_is_kept_and_its_files_are_its_own():
    text = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 20 0:55 / /home/u/f\rx rw - fuse.sshfs h:/ rw\n"
    mount = mount_module.Mounts(text).above(Path("/home/u/f\rx/file"))
    assert mount is not None
    assert mount.kind == "fuse.sshfs"
