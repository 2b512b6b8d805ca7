"""Free space of file systems, by a made /proc and answers of a made kernel, and by the kernel's own about this host."""

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from cgroup_host import at_once, put
from terminal import wait_for

from latmon.capture.mounts import Mount, Mounts, MountTable
from latmon.model.measurements import FILE_SYSTEM_SPACE
from latmon.model.measurements.file_system_space import SpaceLooks, SpaceOf
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.file_system_space import Space, SpaceReader, ask_kernel

S = 1_000_000
MB = 1 << 20
ROOM = Space(500 * MB, 100 * MB, 125 * MB, 1000, 400)
VAR = SpaceOf("sda", "/var", "ext4")


class Host:
    """A /proc and sysfs with disk sda (8:0), its partitions 1 and 2 (8:1, 8:2), and answers by mount point."""

    def __init__(self, root):
        self.proc, self.sys = root / "proc", root / "sys"
        self.answers = {"/var": ROOM}
        self.asked = []
        for number, name in ((1, "sda1"), (2, "sda2")):
            directory = self.sys / "devices/sda" / name
            put(directory / "partition", f"{number}\n")
            self.write(name, 0)
            (self.sys / "dev/block").mkdir(parents=True, exist_ok=True)
            (self.sys / f"dev/block/8:{number}").symlink_to(directory)
        self.mount("20 1 8:1 / /var rw,relatime - ext4 /dev/sda1 rw")
        self.now_us = 0
        self.reader = SpaceReader(
            self.proc,
            self.sys,
            MountTable(self.proc, lambda: self.now_us / S),
            run=at_once,
            now_us=lambda: self.now_us,
            ask=self.ask,
            patience_s=0.2,
        )
        self.reader.watch({"sda"})

    def mount(self, *lines):
        put(self.proc / "self/mountinfo", "".join(f"{line}\n" for line in lines))

    def write(self, partition, sectors):
        put(self.sys / "devices/sda" / partition / "stat", f"1 0 8 1 1 0 {sectors} 1 0 1 1\n")

    def ask(self, mount):
        self.asked.append(mount.point)
        answer = self.answers[mount.point]
        return answer() if callable(answer) else answer

    def at(self, second):
        self.now_us = second * S
        self.reader.sample(self.now_us)  # begins a look
        return self.reader.sample(self.now_us)

    def rows(self, *seconds):
        """Return what was gained from the first of the looks at these times to the last one."""
        samples = [self.at(second) for second in seconds]
        return tables_between(samples[0], samples[-1]).get(FILE_SYSTEM_SPACE, {})


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_what_is_free_and_what_is_written_to_the_partition(host):
    host.at(0)
    host.write("sda1", 2000)
    host.write("sda2", 9)
    row = SpaceLooks(1, 500 * MB, 100 * MB, 125 * MB, 1000, 400, 2000 * 512, 1)
    assert host.at(5)[FILE_SYSTEM_SPACE] == {VAR: row}
    looks = SpaceLooks(3, 1500 * MB, 300 * MB, 375 * MB, 3000, 1200, 2000 * 512, 3)
    assert host.rows(5, 10, 300)[VAR] == SpaceLooks(2, 1000 * MB, 200 * MB, 250 * MB, 2000, 800, 0, 2)
    assert host.reader.sample(host.now_us)[FILE_SYSTEM_SPACE] == {VAR: looks}


def test_looks_are_5_s_apart(host):
    for second in range(12):
        host.at(second)
    assert len(host.asked) == 3


def test_it_is_active_for_five_minutes_after_a_write(host):
    host.at(0)
    assert host.rows(5, 10)[VAR].active_looks == 0, "what was written before is not known"
    host.write("sda1", 8)
    assert host.rows(10, 15)[VAR].active_looks == 1
    assert host.rows(15, 315)[VAR].active_looks == 1
    assert host.rows(315, 320)[VAR].active_looks == 0


def test_without_counters_of_the_device_a_change_of_what_is_free_is_a_write(host):
    host.at(0)
    host.answers["/var"] = ROOM._replace(available_bytes=99 * MB)
    assert host.rows(0, 5)[VAR].active_looks == 1


def test_a_file_system_that_is_mounted_anew_was_not_written(host):
    host.at(0)
    host.mount("31 1 8:1 / /var rw - ext4 /dev/sda1 rw")
    host.write("sda1", 2000)
    assert host.rows(0, 5)[VAR] == SpaceLooks(1, *ROOM[:5], 0, 0)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("20 1 8:1 / /var rw - ext4 /dev/sda1 ro,errors=remount-ro", id="read-only"),
        pytest.param("20 1 7:1 / /snap rw - squashfs /dev/loop1 rw", id="full by design"),
        pytest.param("20 1 0:40 / /net rw - nfs4 server:/x rw", id="a server's"),
        pytest.param("20 1 8:1 / /ntfs rw - fuseblk /dev/sda1 rw", id="a FUSE server's on a block device"),
        pytest.param("20 1 0:40 / /tmp rw - tmpfs tmpfs rw", id="on no device"),
        pytest.param("20 1 8:99 / /var rw - ext4 /dev/sdz rw", id="on a device that is not watched"),
        pytest.param(
            "20 1 8:1 / /remote/data rw - ext4 /dev/sda1 rw\n21 1 0:44 / /remote rw - fuse.sshfs x rw",
            id="below a server's mount",
        ),
        pytest.param(
            "20 1 8:1 / /boot rw - ext4 /dev/sda1 rw\n21 1 0:44 / /boot rw - autofs systemd-1 rw", id="an automount"
        ),
        pytest.param("20 1 8:1 / /var rw - ext4 /dev/sda1 rw\n21 1 0:44 / /var rw - nfs4 x rw", id="covered"),
    ],
)
def test_others_are_not_asked(host, line):
    host.mount(line)
    assert host.rows(0, 5) == {}
    assert host.asked == []


def others(host, number, line):
    """Return lines of mountinfo for so many file systems with devices of their own, and add these to sysfs."""
    for minor in range(100, 100 + number):
        (host.sys / f"dev/block/8:{minor}").symlink_to(host.sys / "devices/sda/sda2")
        host.answers[f"/{minor}"] = ROOM
    return [line.format(minor) for minor in range(100, 100 + number)]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("20 1 9:{0} / /{0} rw - ext4 /dev/sdz rw", id="on devices that are not watched"),
        pytest.param("20 1 8:{0} / /remote/{0} rw - ext4 /dev/sda2 rw", id="below a server's mount"),
    ],
)
def test_file_systems_that_are_not_asked_take_no_place_of_those_that_are(host, line):
    lines = others(host, 64, line)
    host.mount("21 1 0:44 / /remote rw - nfs4 server:/x rw", *lines, "22 1 8:1 / /var rw - ext4 /dev/sda1 rw")
    assert host.rows(0, 5).keys() == {VAR}


def test_64_file_systems_are_asked_and_the_number_of_the_others_is_said(host):
    lines = others(host, 66, "20 1 8:{0} / /{0} rw - ext4 /dev/sda2 rw")
    host.mount("21 1 0:44 / /net rw - fuse.x x rw", *lines, "22 1 8:1 / /net/disk rw - ext4 /dev/sda1 rw")
    assert host.rows(0, 60)
    assert len(set(host.asked)) == 64
    expected = "2 beyond the first 64, 1 below the mount of a server or an automount"
    assert host.reader.left_out == f"free space is not known of 3 file systems: {expected}"


def test_where_the_root_is_a_server_s_no_row_says_nothing(host):
    assert host.reader.is_possible
    host.now_us = 10 * S
    host.mount("20 1 0:44 / / rw - nfs4 server:/root rw", "21 20 8:1 / /var rw - ext4 /dev/sda1 rw")
    assert not host.reader.is_possible
    assert host.rows(10, 15) == {}
    assert host.asked == []


def test_a_sibling_of_a_server_s_mount_is_asked(host):
    host.mount("20 1 8:1 / /var rw - ext4 /dev/sda1 rw", "21 1 0:44 / /va rw - nfs4 server:/x rw")
    assert host.rows(0, 5).keys() == {VAR}


def test_octal_escapes_of_a_mount_point(host):
    host.mount(r"20 1 8:1 / /my\040data\134x rw - ext4 /dev/sda1 rw")
    host.answers["/my data\\x"] = ROOM
    (key,) = host.rows(0, 5)
    assert host.asked[0] == "/my data\\x"
    assert key.mount == "/my data\\x"


def test_a_mount_that_hangs_costs_one_thread_and_the_others_are_looked_at(host):
    release = threading.Event()

    def hang():
        release.wait(60)
        return ROOM

    host.mount("20 1 8:1 / /var rw - ext4 /dev/sda1 rw", "21 1 8:2 / /srv rw - ext4 /dev/sda2 rw")
    host.answers |= {"/var": hang, "/srv": ROOM}
    before = threading.active_count()
    began = time.monotonic()
    rows = host.rows(0, 5, 10, 15, 20)
    assert time.monotonic() - began < 5
    assert {key.mount: looks.looks for key, looks in rows.items()} == {"/srv": 4}
    assert host.asked.count("/var") == 1
    assert host.reader.left_out == "free space is not known of 1 file system: 1 without an answer"
    assert wait_for(lambda: threading.active_count() == before + 1, 10.0)
    release.set()
    assert wait_for(lambda: threading.active_count() == before, 10.0)
    host.answers["/var"] = ROOM
    assert host.rows(20, 25).keys() == {VAR, VAR._replace(mount="/srv")}
    assert host.reader.left_out == ""


def test_the_collector_does_not_wait_for_a_look(host):
    never = Future()
    host.reader._run = lambda _call: never
    assert host.at(0) == {}
    assert host.at(60) == {}


@pytest.mark.parametrize("answer", [None, Space(0, 0, 0, 0, 0)])
def test_a_mount_that_vanished_or_has_no_size_has_no_row(host, answer):
    host.answers["/var"] = answer
    assert host.rows(0, 5) == {}


def test_a_mount_point_that_is_gone_is_no_error(host):
    def gone():
        raise FileNotFoundError

    host.answers["/var"] = gone
    assert host.rows(0, 5) == {}


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="needs Linux")
def test_a_file_system_that_is_shut_down_still_answers(host):
    host.at(0)
    assert host.reader.shut_down == frozenset()
    host.answers["/var"] = ROOM._replace(is_shut_down=True)
    assert host.at(5)[FILE_SYSTEM_SPACE][VAR].free_inodes == 400
    assert host.reader.shut_down == {20}


def test_the_kernel_s_answer():
    proc = Path("/proc")
    mount = Mounts((proc / "self/mountinfo").read_bytes()).above(Path("/proc/self"))
    expected = os.statvfs(mount.point)
    files = len(list(Path("/proc/self/fd").iterdir()))
    assert ask_kernel(proc, mount).inodes == expected.f_files
    other = Mount(mount.point, mount.kind, mount.source, mount.options, number_of_mount=mount.number_of_mount + 100_000)
    assert ask_kernel(proc, other) is None, "another mount is there"
    assert len(list(Path("/proc/self/fd").iterdir())) == files
