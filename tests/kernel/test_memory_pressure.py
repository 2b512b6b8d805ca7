"""Limits of memory that cgroups reach, major faults of processes, and swap areas, from files like those of /proc."""

import os
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
from cgroup_host import CgroupHost, at_once, put

from latmon.capture.mounts import MountTable, mounts_of
from latmon.model.frame import SWAP, DeviceReport
from latmon.model.measurements import MAJOR_FAULTS, MEMORY_LIMITS, MEMORY_USERS, MEMORY_WRITERS
from latmon.model.measurements.memory import Faulting, MemoryLimit, MemoryUser, MemoryWriter, ReachedLimit, Unwritten
from latmon.support.text import clean
from latmon_backends.kernel import memory
from latmon_backends.kernel.bounded_sums import BoundedSums, tables_between
from latmon_backends.kernel.memory import MemoryReader, look
from latmon_backends.kernel.swaps import SwapArea, SwapReader, areas

STAT = "{pid} ({name}) S 1 1 1 0 -1 4194560 900 0 {faults} 0 1 {ticks} 0 0 20 0 1 0 5 1 {pages}\n"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
S = 1_000_000
PAGE = os.sysconf("SC_PAGE_SIZE")


class Host(CgroupHost):
    def __init__(self, root, version):
        super().__init__(root, version, "memory")

    def limit(self, name, limit, hits):
        path = self.cgroups / name
        if self.version == 2:
            put(path / "memory.max", f"{limit}\n")
            put(path / "memory.high", "max\n")
            put(path / "memory.events.local", f"low 0\nhigh 3\nmax {hits}\noom 0\noom_kill 0\n")
        else:
            put(path / "memory.limit_in_bytes", f"{limit}\n")
            put(path / "memory.failcnt", f"{hits}\n")

    def process(self, pid, name, faults, cgroup="/", *, ticks=1, pages=1):
        stat = STAT.format(pid=pid, name=name, faults=faults, ticks=ticks, pages=pages)
        put(self.proc / str(pid) / "stat", stat)
        put(self.proc / str(pid) / "cgroup", f"0::{cgroup}\n" if self.version == 2 else f"3:memory:{cgroup}\n0::/\n")


def sampled(reader, mono_us, moved):
    return reader.sample(mono_us, is_wanted=reader.is_wanted(moved))


@pytest.mark.parametrize("version", [1, 2])
def test_limits_and_faults_between_two_looks(tmp_path, version):
    host, clock = Host(tmp_path, version), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    host.limit("app", 200 << 20, 5)
    host.limit("free", "max" if version == 2 else 9223372036854771712, 7)
    host.process(7, "java (x) y/z", 10, "/app")
    host.process(8, "sh", 4)
    samples = []
    for second in range(8):
        clock[0] = second * S
        samples.append(sampled(reader, clock[0], 1000 + 100 * second))
        host.limit("app", 200 << 20, 5 + 2 * second)
        host.process(7, "java (x) y/z", 10 + 3 * second, "/app")
    rows = tables_between(samples[0], samples[-1])
    limit = MemoryLimit("/app", "max", 200 << 20)
    assert rows[MEMORY_LIMITS].keys() == {limit}
    assert rows[MAJOR_FAULTS].keys() == {Faulting("/app", "java (x) y_z/7")}
    assert 6 <= rows[MEMORY_LIMITS][limit].hits <= 12
    assert tables_between(samples[-1], samples[-1]) == {}


STATS = {
    1: "cache 9\ndirty 1\nwriteback 1\ntotal_cache 9\ntotal_dirty 4096\ntotal_writeback {}\n",
    2: "anon 7\nfile 9\nfile_dirty 4096\nfile_writeback {}\n",
}


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_cgroup_at_its_limit_has_to_write_and_who_writes(tmp_path, version):
    """Looks at 1, 3, 5 and 7 s: three of them see that the limit was reached since the one before."""
    host, clock = Host(tmp_path, version), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    put(host.cgroups / "app/cgroup.procs", "7\n8\n")
    put(host.cgroups / "full/cgroup.procs", "9\n")
    put(host.cgroups / "full/memory.stat", STATS[version].format(1 << 20))
    host.limit("full", 100 << 20, 3)
    samples = []
    for second in range(9):
        clock[0] = second * S
        host.limit("app", 20 << 20, 5 + 2 * second)
        put(host.cgroups / "app/memory.stat", STATS[version].format(second * 1_000_000))
        host.process(7, "sh", 1, "/app", ticks=900)
        host.process(8, "ingest", 1, "/app", ticks=10 + second)
        host.process(9, "other", 1, "/full", ticks=5)
        samples.append(sampled(reader, clock[0], 1000 + 100 * second))
    rows = tables_between(samples[0], samples[-1])[MEMORY_WRITERS]
    assert rows == {MemoryWriter("/app", "ingest/8"): Unwritten(3, (3 + 5 + 7) * 1_000_000 + 3 * 4096)}


def test_of_processes_without_a_tick_the_one_with_most_before_is_taken(tmp_path):
    host, clock = Host(tmp_path, 2), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    put(host.cgroups / "app/cgroup.procs", "7\n8\n")
    host.process(7, "sh", 1, "/app", ticks=2)
    host.process(8, "ingest", 1, "/app", ticks=40)
    for second in range(6):
        clock[0] = second * S
        host.limit("app", 20 << 20, 5 + second)
        sample = sampled(reader, clock[0], 1000 + 100 * second)
    assert [row.process for row in sample[MEMORY_WRITERS]] == ["ingest/8"]


RELOADS = {
    1: "workingset_refault_anon 9\nworkingset_refault_file 3\ntotal_workingset_refault_file {}\n",
    2: "workingset_refault_anon 9\nworkingset_refault_file {}\n",
}


@pytest.mark.parametrize("version", [1, 2])
def test_pages_that_a_cgroup_at_its_limit_reads_again(tmp_path, version):
    """Looks at 1, 3, 5 and 7 s, of which the last three see it at its limit: the pages of 4 s are known."""
    host, clock = Host(tmp_path, version), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    for second in range(9):
        clock[0] = second * S
        host.limit("searchpod", 40 << 20, 5 + 80 * second)
        put(host.cgroups / "searchpod/memory.stat", RELOADS[version].format(1000 + 75 * second))
        sample = sampled(reader, clock[0], 1000 + 100 * second)
    assert sample[MEMORY_LIMITS] == {MemoryLimit("/searchpod", "max", 40 << 20): ReachedLimit(6 * 80, 4 * 75)}


@pytest.mark.parametrize("version", [1, 2])
def test_who_has_most_memory_of_a_cgroup_at_its_limit(tmp_path, version):
    """Looks at 1, 3, 5 and 7 s, of which the last three see it at its limit."""
    host, clock = Host(tmp_path, version), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    put(host.cgroups / "pod/cgroup.procs", "7\n8\n")
    for second in range(9):
        clock[0] = second * S
        host.limit("pod", 160 << 20, 5 + second)
        host.process(7, "searchd", 1, "/pod", pages=40)
        host.process(8, "logshipper", 1, "/pod", pages=100 + second)
        host.process(9, "other", 1, "/", pages=9000)
        sample = sampled(reader, clock[0], 1000 + 100 * second)
    ((row, used),) = sample[MEMORY_USERS].items()
    assert row == MemoryUser("/pod", "logshipper/8")
    assert used.looks == 3
    assert used.resident_bytes == (103 + 105 + 107) * PAGE
    assert used.grown_bytes == 6 * PAGE


def test_a_host_with_enough_memory_is_not_looked_at(tmp_path):
    looks = []
    proc = Host(tmp_path, 2).proc
    reader = MemoryReader(proc, MountTable(proc), looks.append)
    for second in range(20):
        sampled(reader, second * S, 1_000_000 + 10 * second)
    assert looks == []


def test_a_slow_look_makes_the_next_one_late(tmp_path):
    host, begun = Host(tmp_path, 2), []

    def run(call):
        begun.append(clock[0])
        done = Future()
        done.set_result(memory.Look(clock[0], 50_000, {}, {}))
        assert call
        return done

    clock = [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), run, lambda: clock[0])
    for second in range(25):
        clock[0] = second * S
        sampled(reader, clock[0], 1 + 100 * second)
    assert [at // S for at in begun] == [1, 11, 21]  # 50 ms each, 0.5 % of a CPU


def test_an_old_look_is_no_beginning(tmp_path):
    host, clock = Host(tmp_path, 2), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    for second, faults in ((0, 1), (1, 2), (2, 3), (100, 4), (101, 5), (102, 6)):
        clock[0] = second * S
        host.process(8, "sh", faults)
        sample = sampled(reader, clock[0], 1 + 100 * second)
    assert sample[MAJOR_FAULTS] == {}


def test_the_rows_of_processes_that_are_gone_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "BoundedSums", partial(BoundedSums, most_sums=3))
    host, clock = Host(tmp_path, 2), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    for second in range(40):
        clock[0] = second * S
        host.process(10 + second // 4, "sh", 10 + 3 * second)
        sample = sampled(reader, clock[0], 1 + 100 * second)
    assert [row.process for row in sample[MAJOR_FAULTS]] == ["sh/16", "sh/17", "sh/18"]


def test_this_machine():
    seen = look(Path("/proc"), mounts_of(), 5)
    assert any(process.row_name.rpartition("/")[0] for process in seen.processes.values())
    assert seen.spent_us >= 0


def test_areas_of_proc_swaps():
    text = f"{SWAPS}/dev/sda2                               partition\t1\t0\t-2\n/a\\040b file\t9\t0\t-3\n"
    assert list(areas(text.encode())) == [SwapArea(b"/dev/sda2", False), SwapArea(b"/a b", True)]
    assert list(areas(b"")) == []


@pytest.mark.parametrize(
    ("path", "disk"),
    [
        pytest.param("/swap", "vda", id="on the root"),
        pytest.param("/srv/deep/swap", "sdb", id="on the longest mount"),
        pytest.param("/srv/deeper/swap", "sda", id="not by a part of a name"),
        pytest.param("/a\\040b/swap\\040file", "sdc", id="with spaces"),
        pytest.param("/bound", "sdc", id="a file that is a mount point"),
        pytest.param("/mnt/nfs/swap", "", id="of a server"),
    ],
)
def test_the_disk_of_a_swap_file_is_that_of_its_mount_and_no_file_is_touched(tmp_path, monkeypatch, path, disk):
    """stat(2) does not return while a server is silent, or a device is suspended."""
    put(tmp_path / "swaps", f"{SWAPS}{path} file 8 0 -3\n")
    put(
        tmp_path / "self/mountinfo",
        "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 8:1 / /srv rw - xfs /dev/sda1 rw\n"
        "3 2 8:16 / /srv/deep rw - xfs /dev/sdb rw\n4 1 8:32 / /a\\040b rw - ext4 /dev/sdc rw\n"
        "5 1 8:32 /swap /bound rw - ext4 /dev/sdc rw\n46 1 0:41 / /mnt/nfs rw - nfs4 host:/x rw\n",
    )
    numbers = {(254, 0): "vda", (8, 1): "sda", (8, 16): "sdb", (8, 32): "sdc"}
    touched = []
    for call in ("stat", "lstat", "scandir", "listdir", "readlink"):
        monkeypatch.setattr(os, call, touched.append)
    reader = SwapReader(tmp_path, MountTable(tmp_path))
    reader.refresh(0, lambda _: "", lambda *number: numbers.get(number, ""))
    monkeypatch.undo()
    assert not touched
    assert set(reader.reports) == ({disk} if disk else set())


def test_a_disk_has_its_swap_area(tmp_path):
    reader = SwapReader(tmp_path, MountTable(tmp_path))
    put(tmp_path / "self/mountinfo", "1 0 254:0 / / rw - ext4 /dev/vda rw\n")
    disks = {"sda2": "sda", "zram0": "zram0"}
    file = Path("/deep/swap file")

    def refresh(now_s, text):
        put(tmp_path / "swaps", SWAPS + text)
        reader.refresh(now_s, lambda name: disks.get(name, ""), lambda *_number: "sdc")
        return {disk: report.value for disk, report in reader.reports.items()}

    assert refresh(5, "/dev/sda2 partition\t1\n/dev/zram0 partition\t1\n/dev/gone partition\t1\n") == {
        "sda": "sda2",
        "zram0": "whole",
    }
    assert refresh(7, "") == {"sda": "sda2", "zram0": "whole"}, "read every 5 s"
    escaped = str(file).replace(" ", "\\040")
    assert refresh(10, f"{escaped} file\t1\n") == {"sdc": clean(str(file))}
    assert reader.reports["sdc"] == DeviceReport(SWAP, clean(str(file)), "/proc/swaps")
    assert refresh(15, "") == {}


def test_major_faults_are_read_while_the_host_has_some_also_where_memory_is_not_short(tmp_path):
    host, clock = Host(tmp_path, 2), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    samples = []
    for second in range(8):
        clock[0] = second * S
        host.limit("app", 200 << 20, 5 + 2 * second)
        host.process(7, "geosearch", 10 + 300 * second, "/app")
        samples.append(reader.sample(clock[0], is_wanted=reader.is_wanted(1000, 5000 + 300 * second)))
    rows = tables_between(samples[0], samples[-1])
    assert rows[MAJOR_FAULTS] == {Faulting("/app", "geosearch/7"): 1200}
    assert MEMORY_LIMITS not in rows


@pytest.mark.parametrize("faults_per_s", [0, 100], ids=["short of memory only", "faults between"])
def test_hits_of_limits_are_counted_over_looks_for_faults_only(tmp_path, faults_per_s):
    """Memory is short every 4th second, and the last look that reads limits is that of second 36."""
    host, clock = Host(tmp_path, 2), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    put(host.cgroups / "app/cgroup.procs", "7\n")
    moved = 1000
    for second in range(40):
        clock[0] = second * S
        moved += 500 if second % 4 == 0 else 0
        host.limit("app", 200 << 20, 5 + 20 * second)
        host.process(7, "java", 10, "/app")
        sample = reader.sample(clock[0], is_wanted=reader.is_wanted(moved, 1000 + faults_per_s * second))
    assert sample[MEMORY_LIMITS] == {MemoryLimit("/app", "max", 200 << 20): ReachedLimit(20 * (36 - 4))}
    assert sample[MEMORY_USERS][MemoryUser("/app", "java/7")].looks == 8


def test_limits_that_were_read_long_ago_say_nothing_about_now(tmp_path):
    host, clock = Host(tmp_path, 2), [0]
    reader = MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    put(host.cgroups / "app/cgroup.procs", "7\n")
    moved = 1000
    for second in range(100):
        clock[0] = second * S
        moved += 500 if second in (4, 90) else 0
        host.limit("app", 200 << 20, 5 + 20 * second)
        host.process(7, "java", 10, "/app")
        sample = reader.sample(clock[0], is_wanted=reader.is_wanted(moved, 1000 + 100 * second))
    assert (sample[MEMORY_LIMITS], sample[MEMORY_USERS]) == ({}, {})


def test_few_major_faults_are_not_looked_for(tmp_path):
    reader = MemoryReader(tmp_path, MountTable(tmp_path), at_once, lambda: 0)
    assert [reader.is_wanted(1000, faults) for faults in (0, 500, 510, 540, 545)] == [False, False, False, True, False]
