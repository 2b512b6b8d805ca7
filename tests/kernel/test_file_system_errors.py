"""Errors that file systems find: by their counters in sysfs, by lines of the kernel's log, and whose files they are."""

from __future__ import annotations

import pytest
from cgroup_host import at_once, put
from test_kernel_log import Kmsg, kmsg, record  # noqa: F401 - a fixture

from latmon.capture import mounts
from latmon.capture.mounts import MountTable
from latmon.model.frame import Device
from latmon.model.measurements import DAMAGED_FILES
from latmon.model.measurements.file_system_errors import (
    CORRECTED,
    CORRUPT_METADATA,
    FAILED_IO,
    WRONG_CHECKSUM,
    DamagedFile,
    FileSystemError,
)
from latmon_backends.kernel import mount_namespaces
from latmon_backends.kernel.damaged_files import DamagedFileReader
from latmon_backends.kernel.file_system_errors import ErrorCounters, Inode, inode_of, not_counted

UUID = "1b2f4e9e-90ab-4c8e-8d6d-0f2f3b6a7c11"
CSUM = (
    "BTRFS warning (device loop0): csum failed root 5 ino 257 off 8192 csum 0x8941f998 expected csum 0x{:08x} mirror 1"
)
ERRS = "BTRFS error (device loop0): bdev /dev/loop0 errs: wr {}, rd {}, flush 0, corrupt {}, gen 0"
LOOPS = {name: Device(name, 7, number) for number, name in enumerate(("loop0", "loop1"))}


@pytest.mark.parametrize(
    ("line", "device", "finder", "error"),
    [
        (
            "BTRFS info (device loop0): read error corrected: ino 257 off 0 (dev /dev/loop0 sector 16)",
            "loop0",
            *("btrfs", CORRECTED),
        ),
        (
            "BTRFS error (device sda1): fixed up error at logical 22020096 on dev /dev/sda1",
            "sda",
            *("btrfs", CORRECTED),
        ),
        (
            "BTRFS warning (device sda1): checksum verify failed on logical 30441472 mirror 1 wanted 0x1",
            "sda",
            *("btrfs", CORRUPT_METADATA),
        ),
        (
            "BTRFS critical (device sda1): corrupt leaf: root=5 block=29556736 slot=0",
            "sda",
            *("btrfs", CORRUPT_METADATA),
        ),
        (
            "XFS (sda1): Metadata CRC error detected at xfs_agf_read_verify+0x10/0x20 [xfs], xfs_agf block 0x1",
            "sda",
            *("xfs", CORRUPT_METADATA),
        ),
        (
            'XFS (sda1): metadata I/O error in "xfs_imap_to_bp+0x5e/0x90" at daddr 0x40 len 32 error 5',
            "sda",
            *("xfs", FAILED_IO),
        ),
        ("device-mapper: verity: 7:0: data block 7 is corrupted", "loop0", *("dm-verity", WRONG_CHECKSUM)),
        ("device-mapper: integrity: 7:0: Checksum failed at sector 0x123", "loop0", *("dm-integrity", WRONG_CHECKSUM)),
        ("F2FS-fs (sda1): inconsistent node block, nid:4, node_footer[nid:9]", "sda", *("f2fs", CORRUPT_METADATA)),
    ],
)
def test_what_a_line_says_that_was_found(kmsg, line, device, finder, error):  # noqa: F811 - the fixture
    assert kmsg.events(record(line, level=4 if "info" not in line else 6)).errors == {
        FileSystemError(device, finder, error): 1
    }


@pytest.mark.parametrize(
    "line",
    [
        'XFS (sda1): metadata I/O error in "xfs_read_agf+0x5e/0x90" at daddr 0x1 len 1 error 74',  # the CRC has a line
        "XFS (sda1): Unmount and run xfs_repair",
        "XFS (sda1): First 128 bytes of corrupted metadata buffer:",
        "EXT4-fs error (device sda1): ext4_lookup:1: inode #2: comm cat: checksum invalid",  # it has a counter
        "EXT4-fs (sda1): warning: mounting fs with errors, running e2fsck is recommended",
        "BTRFS info (device loop0): using crc32c (crc32c-intel) checksum algorithm",
        CSUM.format(1),  # the counter says how many
        "I/O error, dev sda, sector 65536 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
    ],
)
def test_lines_that_say_nothing_new(kmsg, line):  # noqa: F811 - the fixture
    assert kmsg.events(record(line, level=4)).errors == {}


def test_lines_have_the_counters_of_btrfs_also_of_what_the_kernel_suppressed(kmsg):  # noqa: F811 - the fixture
    wrong = FileSystemError("loop0", "btrfs", WRONG_CHECKSUM)
    assert kmsg.events(record(ERRS.format(0, 0, 40))).errors == {wrong: 1}, "they began long ago"
    events = kmsg.events(*(record(ERRS.format(0, 0, 40 + n), 101.5, number=n) for n in (3, 55)), at_s=102)
    assert events.errors == {wrong: 55}
    assert kmsg.events(record(ERRS.format(2, 0, 95), 102.5, number=60), at_s=103).errors == {
        FileSystemError("loop0", "btrfs", FAILED_IO): 2
    }


def test_counters_of_before_the_start_are_what_later_ones_are_compared_with(tmp_path):
    log = Kmsg(tmp_path)
    devices = {"sda": Device("sda", 8, 0)}
    before = ERRS.replace("loop0", "sda1")
    assert log.events(record(before.format(0, 3, 40), 990), at_s=1000, devices=devices).errors == {}
    after = log.events(record(before.format(0, 3, 47), 1000.5, number=9), at_s=1001, devices=devices)
    assert after.errors == {FileSystemError("sda", "btrfs", WRONG_CHECKSUM): 7}


def test_lines_do_not_count_what_sysfs_counts():
    logged = {
        FileSystemError("loop0", "btrfs", WRONG_CHECKSUM): 9,
        FileSystemError("loop0", "btrfs", CORRECTED): 3,
        FileSystemError("loop1", "btrfs", WRONG_CHECKSUM): 4,
    }
    assert [events for _, events in not_counted(logged, {"loop0"})] == [3, 4]


class Host:
    """File systems in a made sysfs."""

    def __init__(self, tmp_path):
        self.sys = tmp_path / "sys"
        self.counters = ErrorCounters(self.sys)

    def put_btrfs(self, *, corrupt=0, written=0, devices=("loop0",)):
        base = self.sys / "fs/btrfs" / UUID
        for number, name in enumerate(devices, 1):
            put(base / "devices" / name / "size", "1")
            stats = f"write_errs {written}\nread_errs 0\nflush_errs 0\ncorruption_errs {corrupt}\ngeneration_errs 0\n"
            put(base / f"devinfo/{number}/error_stats", stats)

    def put_ext4(self, name, errors, code="5"):
        put(self.sys / "fs/ext4" / name / "errors_count", f"{errors}\n")
        put(self.sys / "fs/ext4" / name / "last_error_errcode", f"{code}\n")

    def read(self):
        return self.counters.since_last(LOOPS)


def test_counters_of_btrfs_since_the_last_reading(tmp_path):
    host = Host(tmp_path)
    assert not host.counters.has_any
    host.put_btrfs(corrupt=40)
    assert host.counters.has_any
    assert host.read() == {}, "of before the start"
    assert host.counters.disks_of_btrfs == {"loop0"}
    host.put_btrfs(corrupt=51, written=2)
    assert host.read() == {
        FileSystemError("loop0", "btrfs", WRONG_CHECKSUM): 11,
        FileSystemError("loop0", "btrfs", FAILED_IO): 2,
    }
    assert host.read() == {}


def test_errors_on_a_host_with_dozens_of_file_systems_are_of_the_second_in_which_they_were_found(tmp_path):
    """They were read in turn, so that the errors of seconds were a rate of one."""
    host = Host(tmp_path)
    for number in range(40):
        host.put_ext4(f"dm-{number}", 0)
    host.put_ext4("loop1", 3)
    host.read()
    host.put_ext4("loop1", 4)
    assert host.read() == {FileSystemError("loop1", "ext4", CORRUPT_METADATA): 1}


def test_which_of_several_devices_of_a_btrfs_is_meant_is_not_in_sysfs(tmp_path):
    host = Host(tmp_path)
    host.put_btrfs(devices=("loop0", "loop1"))
    host.read()
    host.put_btrfs(corrupt=5, devices=("loop0", "loop1"))
    assert host.read() == {}
    assert host.counters.disks_of_btrfs == frozenset()


@pytest.mark.parametrize(
    ("code", "error"),
    [("5", CORRUPT_METADATA), ("4", CORRUPT_METADATA), ("2", FAILED_IO), ("6", None), ("", CORRUPT_METADATA)],
)
def test_errors_of_ext4_by_the_code_of_the_last_one(tmp_path, code, error):
    host = Host(tmp_path)
    host.put_ext4("loop1", 3)
    host.put_ext4("sdz", 3)  # not selected
    put(host.sys / "fs/ext4/features/lazy_itable_init", "supported")
    host.read()
    host.put_ext4("loop1", 5, code)
    host.put_ext4("sdz", 9)
    assert host.read() == ({} if error is None else {FileSystemError("loop1", "ext4", error): 2})


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (CSUM.format(7), 257),
        ("EXT4-fs error (device loop0): ext4_find_entry:1455: inode #12: comm ls: reading directory lblock 0", 12),
        (
            "EXT4-fs error (device loop0): ext4_validate_block_bitmap:423: comm dd: bg 1: bad block bitmap checksum",
            None,
        ),
        ("XFS (loop0): Metadata CRC error detected", None),
        (  # a program's name and a path may be anything
            "EXT4-fs error (device loop0): ext4_lookup:1855: inode #2: comm inode #99: : deleted inode referenced: 5",
            2,
        ),
        (
            "EXT4-fs error (device loop0): ext4_readdir:2: inode #12: block 7: comm ls: path /h/inode #77: bad entry",
            12,
        ),
        ("EXT4-fs error (device loop0): ext4_mb_generate_buddy:1: comm inode #99: group 2, 3 clusters", None),
    ],
)
def test_the_file_that_a_line_is_about(line, number):
    assert inode_of(line) == number


class Reader:
    """A reader of damaged files whose looks run at once."""

    def __init__(self, tmp_path):
        self.proc, self.sys, self.now_us = tmp_path / "proc", tmp_path / "sys", 0
        put(self.proc / "self/mountinfo", "44 27 0:40 / /srv/db rw - btrfs /dev/loop0 rw,subvolid=5\n")
        put(self.sys / "fs/btrfs" / UUID / "devices/loop0/size", "1")
        (self.sys / "class/block/loop0").mkdir(parents=True)
        self.reader = DamagedFileReader(self.proc, self.sys, MountTable(self.proc), at_once, lambda: self.now_us)

    def open_file(self, pid, name, path, inode, mount=44):
        put(self.proc / f"{pid}/comm", f"{name}\n")
        put(self.proc / f"{pid}/fdinfo/3", f"pos:\t0\nflags:\t0140000\nmnt_id:\t{mount}\nino:\t{inode}\n")
        (self.proc / f"{pid}/fd").mkdir()
        (self.proc / f"{pid}/ns").mkdir()
        (self.proc / f"{pid}/ns/mnt").symlink_to(f"mnt:[{pid if mount > 900 else 1}]")
        (self.proc / f"{pid}/fd/3").symlink_to(path)

    def sample(self, **inodes):
        self.reader.report({Inode(name, number): 4 for name, number in inodes.items()})
        for _ in range(2):
            self.now_us += 60_000_000
            rows = self.reader.sample(self.now_us, is_wanted=self.reader.is_wanted)
        return rows.get(DAMAGED_FILES, {})


def test_the_program_that_has_a_damaged_file_open(tmp_path):
    host = Reader(tmp_path)
    assert not host.reader.is_wanted
    host.open_file(71, "mysqld", "/srv/db/ibdata1", 257)
    host.open_file(72, "reportd", "/srv/db/main.db", 258)
    host.open_file(73, "other", "/home/x", 257, mount=27)  # another file system
    host.open_file(74, "nginx", "socket:[257]", 257)
    assert host.sample(loop0=257) == {DamagedFile("loop0", "/srv/db/ibdata1", "mysqld/71"): 4}
    assert host.sample(loop0=999) == {DamagedFile("loop0", "/srv/db/ibdata1", "mysqld/71"): 4}, "of no open file"
    assert host.sample(loop1=257) == host.sample()


def test_a_process_in_a_mount_namespace_of_its_own(tmp_path):
    host = Reader(tmp_path)
    host.open_file(71, "mysqld", "/var/lib/mysql/ibdata1", 257, mount=910)
    put(host.proc / "71/mountinfo", "910 27 0:40 / /var/lib/mysql rw - btrfs /dev/loop0 rw,subvolid=5\n")
    assert host.sample(loop0=257) == {DamagedFile("loop0", "/var/lib/mysql/ibdata1", "mysqld/71"): 4}


def test_mounts_of_a_namespace_are_read_once_for_thousands_of_open_files(tmp_path, monkeypatch):
    """Any user can make a namespace with thousands of mounts: 4,096 open files in it took 72 s of CPU time."""
    host, paths = Reader(tmp_path), []
    read = mount_namespaces._beginning
    monkeypatch.setattr(mount_namespaces, "_beginning", lambda path: paths.append(path) or read(path))
    host.open_file(71, "mallory", "/f", 257, mount=910)
    put(host.proc / "71/mountinfo", "911 27 0:40 / /elsewhere rw - tmpfs none rw\n")
    for descriptor in range(4, 40):
        put(host.proc / f"71/fdinfo/{descriptor}", f"flags:\t0\nmnt_id:\t{1000 + descriptor}\nino:\t257\n")
        (host.proc / f"71/fd/{descriptor}").symlink_to("/f")
    assert host.sample(loop0=257) == {}
    assert paths == [host.proc / "71/mountinfo"]


def test_the_source_of_a_mount_with_a_server_is_no_path_to_follow(tmp_path, monkeypatch):
    """It is any text: one that leads to a file system whose server is silent would keep the look."""
    host, touched = Reader(tmp_path), []
    monkeypatch.setattr(mounts, "resolved", lambda path: touched.append(path) or path)
    host.open_file(71, "sshfs", "/home/u/m/f", 257, mount=910)
    put(host.proc / "71/mountinfo", "910 27 0:41 / /home/u/m rw - fuse.sshfs /dev/shm/u/link rw\n")
    assert host.sample(loop0=257) == {}
    assert touched == []
