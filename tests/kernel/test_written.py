"""Bytes that processes write, by a made /proc."""

import pytest
from cgroup_host import at_once, put

from latmon.model.measurements import WRITTEN
from latmon.model.measurements.written import Writer
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.cgroups import CountedProcess
from latmon_backends.kernel.written import WrittenReader, look

S, MIB = 1_000_000, 1 << 20


def written(proc, dirtied_per_s, write_per_s, seconds=10):
    """Return the rows of some seconds in which the host dirties pages, and processes write."""
    clock = [0]
    reader = WrittenReader(proc, at_once, lambda: clock[0])
    samples = []
    for second in range(seconds):
        clock[0] = second * S
        is_wanted = reader.is_wanted(clock[0], 1_000 + second * dirtied_per_s // 4096)
        for pid, (name, bytes_per_s) in enumerate(write_per_s.items(), 10):
            put(proc / str(pid) / "comm", f"{name}\n")
            size = 8 * MIB + second * bytes_per_s
            put(proc / str(pid) / "io", f"rchar: 1\nread_bytes: 7\nwrite_bytes: {size}\ncancelled_write_bytes: 9\n")
        samples.append(reader.sample(clock[0], is_wanted=is_wanted))
    return tables_between(samples[0], samples[-1]).get(WRITTEN, {})


def test_the_processes_that_write_while_the_host_dirties_pages(tmp_path):
    rows = written(tmp_path, 32 * MIB, {"dump": 30 * MIB, "a/b": 2 * MIB, "logger": 4096})
    assert rows.keys() == {Writer("dump/10"), Writer("a_b/11")}
    assert rows[Writer("dump/10")] == pytest.approx(15 * rows[Writer("a_b/11")])
    assert rows[Writer("dump/10")] >= 4 * 30 * MIB


def test_on_a_host_that_dirties_nothing_no_process_is_read(tmp_path):
    assert written(tmp_path, 4096, {"dump": 30 * MIB}) == {}


def test_a_process_that_ends_and_a_counter_that_may_not_be_read_are_left_out(tmp_path):
    put(tmp_path / "7/comm", "gone\n")
    assert look(tmp_path, 0).processes == {}


def test_a_host_that_counts_no_dirty_pages_reads_no_process(tmp_path):
    assert not WrittenReader(tmp_path, at_once).is_wanted(S, 0)


def test_numbers_of_another_reader_are_taken(tmp_path):
    """Both read /proc/PID/io of all processes."""
    clock = [0]
    reader = WrittenReader(tmp_path / "not there", at_once, lambda: clock[0])
    sizes = [0]
    reader.counted = lambda: {10: CountedProcess("a/b", "", (0, sizes[0]), {})}
    samples = []
    for second in range(8):
        clock[0], sizes[0] = second * S, second * 30 * MIB
        samples.append(reader.sample(clock[0]))
    rows = tables_between(samples[0], samples[-1])[WRITTEN]
    assert rows.keys() == {Writer("a_b/10")}
    assert rows[Writer("a_b/10")] >= 4 * 30 * MIB
