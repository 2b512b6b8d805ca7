"""Processes with a low I/O priority, by a made /proc, and by the kernel's own answer about a process of the test."""

import subprocess
import sys
from pathlib import Path

import pytest
from cgroup_host import at_once, put
from finding_cases import disk

from latmon.model.measurements import IO_PRIORITIES
from latmon.model.measurements.io_priorities import BEST_EFFORT, IDLE_CLASS, IoPriority
from latmon_backends.kernel import io_priorities
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.io_priorities import PriorityReader

S = 1_000_000
IDLE, USUAL, LOWEST = 3 << 13, 2 << 13 | 4, 2 << 13 | 7
BFQ = {"sda": disk("sda", {"scheduler": "bfq"})}


@pytest.fixture
def proc(tmp_path):
    for pid, name in ((7, "backup"), (8, "postgres"), (9, "a/b")):
        put(tmp_path / str(pid) / "comm", f"{name}\n")
    (tmp_path / "self").mkdir()
    return tmp_path


def rows(proc, codes, devices=BFQ, sizes=lambda _: 4096, seconds=8):
    """Return the rows of some seconds, in each of which process 7 has read `sizes(second)` bytes."""
    clock = [0]

    def priority(pid):
        if pid not in codes:
            raise ProcessLookupError
        return codes[pid]

    reader = PriorityReader(proc, at_once, lambda: clock[0], priority)
    samples = []
    for second in range(seconds):
        clock[0] = second * S
        put(proc / "7/io", f"rchar: 1\nread_bytes: {sizes(second)}\nwrite_bytes: 0\ncancelled_write_bytes: 9\n")
        samples.append(reader.sample(clock[0], is_wanted=reader.is_wanted(devices)))
    return tables_between(samples[0], samples[-1]).get(IO_PRIORITIES, {})


def test_low_priorities_and_their_bytes_between_two_looks(proc):
    actual_rows = rows(proc, {7: IDLE, 8: USUAL, 9: LOWEST}, sizes=lambda second: 4096 * (1 + second))
    assert actual_rows.keys() == {IoPriority("backup/7", IDLE_CLASS, 0), IoPriority("a_b/9", BEST_EFFORT, 7)}
    backup = actual_rows[IoPriority("backup/7", IDLE_CLASS, 0)]
    assert (backup.lasted_us, backup.io_bytes) == (6 * S, 6 * 4096)


def test_a_process_without_any_io_is_left_out(proc):
    assert rows(proc, {7: IDLE}, sizes=lambda _: 0) == {}


def test_the_kernel_s_threads_without_io_leave_room_for_programs(tmp_path):
    real_time = 1 << 13
    for pid in range(1, 400):
        put(tmp_path / str(pid) / "comm", f"migration/{pid}\n")
        put(tmp_path / str(pid) / "io", "read_bytes: 0\nwrite_bytes: 0\n")
    put(tmp_path / "5000/comm", "backup\n")
    put(tmp_path / "5000/io", "read_bytes: 4096\nwrite_bytes: 512\n")
    processes = io_priorities.look(tmp_path, 0, lambda pid: IDLE if pid == 5000 else real_time).processes
    assert processes == {5000: (IoPriority("backup/5000", IDLE_CLASS, 0), 4608)}


@pytest.mark.parametrize("scheduler", ["none", "kyber"])
def test_where_no_scheduler_heeds_priorities_nobody_is_asked(proc, scheduler):
    assert rows(proc, {7: IDLE}, {"sda": disk("sda", {"scheduler": scheduler})}) == {}


@pytest.mark.skipif(sys.platform != "linux" or not io_priorities.is_possible(), reason="needs ioprio_get")
@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (("ionice", "-c3"), IDLE | 7),
        (("ionice", "-c2", "-n7"), LOWEST),
        (("nice", "-n", "19"), LOWEST),
        (("chrt", "--idle", "0"), IDLE),
        ((), USUAL),
    ],
)
def test_the_kernel_s_answer(prefix, expected):
    with subprocess.Popen([*prefix, "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        code = io_priorities.priority_of(process.pid)
        process.kill()
    assert code == expected


def test_a_process_that_is_gone_is_no_error():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(OSError, match="ioprio_get"):
        io_priorities.priority_of(process.pid)
    assert io_priorities.look(Path("/proc"), 0).mono_us == 0
