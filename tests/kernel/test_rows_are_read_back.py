"""Rows of the longest names that a host can have are written so that a recording with them is read again.

The reader of recordings refuses a name that is too long, and the whole window with it.
"""

import json
import os

import pytest
import test_cpu_waits
import test_file_system_errors
import test_hung_operations
import test_memory_pressure
from cgroup_host import at_once, put
from finding_cases import frame

from latmon.capture.mounts import MountTable
from latmon.model.measurements import (
    CPU_WAITS,
    DAMAGED_FILES,
    DIRTIERS,
    FILE_SERVERS,
    FILE_SLEEPS,
    LOCK_HOLDERS,
    MAJOR_FAULTS,
    MEMORY_LIMITS,
    MEMORY_USERS,
    MEMORY_WRITERS,
    SERVER_WAITS,
    WRITTEN,
)
from latmon.model.measurements.dirtiers import Dirtied, Dirtier
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.processes import row_name
from latmon_backends.kernel.written import WrittenReader

S = 1_000_000
PID = 4_194_303
NAME = "\x1b" * 80
"""Longer than TASK_COMM_LEN, as names of kernel workers are; each character is escaped with four."""
CGROUP = "/" + "/".join(["é" * 120] * 8)


def assert_is_read_back(tables, *expected):
    assert {table for table in expected if tables.get(table)} == set(expected)
    line = json.loads(to_bytes(encode_frame(frame(tables=tables))))
    assert decode_frame(line).tables == tables


def test_waits_for_a_cpu(tmp_path, monkeypatch):
    """A user may allow a process every other CPU."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1024)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(0, 1024, 2)))
    host = test_cpu_waits.Host(tmp_path, 2)

    def step(second):
        times = {"ran_ms": 2 * second, "waited_ms": 980 * second, "runs": 5 * second}
        host.thread(PID, PID, NAME, **times, sleeps=5 * second)
        host.process(PID, 4096 + 20_480 * second, CGROUP)

    assert_is_read_back({CPU_WAITS: test_cpu_waits.rows(host, step)}, CPU_WAITS)


@pytest.mark.parametrize("version", [1, 2])
def test_memory(tmp_path, version):
    host, clock = test_memory_pressure.Host(tmp_path, version), [0]
    reader = test_memory_pressure.MemoryReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    put(host.cgroups / CGROUP[1:] / "cgroup.procs", f"{PID}\n")
    samples = []
    for second in range(8):
        clock[0] = second * S
        host.limit(CGROUP[1:], (1 << 60) - 1, 5 + second)
        host.process(PID, NAME, 10 + 3 * second, CGROUP, pages=1 << 28)
        samples.append(test_memory_pressure.sampled(reader, clock[0], 1000 + 100 * second))
    tables = tables_between(samples[0], samples[-1])
    assert_is_read_back(tables, MEMORY_LIMITS, MAJOR_FAULTS, MEMORY_WRITERS, MEMORY_USERS)


def test_waits_for_servers(tmp_path):
    """A user who mounts a file system chooses the directory and the end of its type."""
    host = test_hung_operations.Host(tmp_path)
    mounts = test_hung_operations.MOUNTS.replace("/mnt/remote", "/" + "m" * 4000)
    put(host.proc / "self/mountinfo", mounts.replace("fuse.sshfs", "fuse." + "k" * 400))
    put(host.proc / f"{PID}/fdinfo/5", "flags:\t02100002\nfuse_connection:\t40\n")
    (host.proc / f"{PID}/fd").mkdir()
    (host.proc / f"{PID}/fd/5").symlink_to("/dev/fuse")
    host.file(PID, 4, 45)
    samples = []
    for second in range(8):
        host.thread(PID, PID, ("request_wait_answer",), "0 0x4", switches=5 * second)
        put(host.proc / f"{PID}/comm", f"{NAME}\n")
        samples.append(host.reader.sample(host.now_us))
        host.now_us += S
    assert_is_read_back(tables_between(samples[0], samples[-1]), SERVER_WAITS, FILE_SERVERS)


def test_writers(tmp_path):
    clock, samples = [0], []
    reader = WrittenReader(tmp_path, at_once, lambda: clock[0])
    for second in range(8):
        clock[0] = second * S
        put(tmp_path / f"{PID}/comm", f"{NAME}\n")
        put(tmp_path / f"{PID}/io", f"write_bytes: {(1 << 40) * (1 + second)}\n")
        samples.append(reader.sample(clock[0]))
    assert_is_read_back(tables_between(samples[0], samples[-1]), WRITTEN)


def test_dirtiers():
    rows = {Dirtier("loop1048575", row_name(NAME, PID)): Dirtied(1 << 50, 1 << 50)}
    assert_is_read_back({DIRTIERS: rows}, DIRTIERS)


def test_damaged_files(tmp_path):
    host = test_file_system_errors.Reader(tmp_path)
    host.open_file(PID, NAME, "/" + "d" * 240 + "\x1b" * 900, 257)
    assert_is_read_back({DAMAGED_FILES: host.sample(loop0=257)}, DAMAGED_FILES)


def test_sleeps_in_operations_on_files(tmp_path, monkeypatch):
    """A user chooses the paths of files."""
    monkeypatch.setattr(test_hung_operations.hung_operations.platform, "machine", lambda: "x86_64")
    host = test_hung_operations.Host(tmp_path)
    put(host.proc / "self/mountinfo", test_hung_operations.MOUNTS)
    path = "/srv/db/" + "/".join(["\x1b" * 60] * 8)
    for pid, number in ((7, 4), (9, 3)):
        host.file(pid, number, 44, path=path, inode=131)

    def change(second):
        host.thread(7, 7, test_hung_operations.READ_LOCKED, "17 0x4 0x7f", switches=second)
        host.thread(9, 9, test_hung_operations.WRITES_UNDER_LOCK, "18 0x3 0x7f", switches=second)
        for pid in (7, 9):
            put(host.proc / str(pid) / "comm", NAME + "\n")

    assert_is_read_back(host.tables(6, change), FILE_SLEEPS, LOCK_HOLDERS)
