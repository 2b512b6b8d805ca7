"""Bytes that processes write, by a made /proc."""

import pytest
from cgroup_host import at_once, put

from latmon.model.measurements import WRITTEN
from latmon.model.measurements.written import Writer
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.written import WrittenReader, look

S, MIB = 1_000_000, 1 << 20


def written(proc, dirtied_per_s, write_per_s, seconds=10):
    """Return the rows of some seconds in which the host dirties pages, and processes write."""
    clock = [0]
    reader = WrittenReader(proc, at_once, lambda: clock[0])
    samples = []
    for second in range(seconds):
        clock[0] = second * S
        put(proc / "vmstat", f"nr_dirty 5\nnr_dirtied {second * dirtied_per_s // 4096}\n")
        for pid, (name, bytes_per_s) in enumerate(write_per_s.items(), 10):
            put(proc / str(pid) / "comm", f"{name}\n")
            size = 8 * MIB + second * bytes_per_s
            put(proc / str(pid) / "io", f"rchar: 1\nread_bytes: 7\nwrite_bytes: {size}\ncancelled_write_bytes: 9\n")
        samples.append(reader.sample(clock[0]))
    return tables_between(samples[0], samples[-1]).get(WRITTEN, {})


def test_the_processes_that_write_while_the_host_dirties_pages(tmp_path):
    rows = written(tmp_path, 32 * MIB, {"dump": 30 * MIB, "a/b": 2 * MIB, "logger": 4096})
    assert rows.keys() == {Writer("dump/10"), Writer("a_b/11")}
    assert rows[Writer("dump/10")] == pytest.approx(15 * rows[Writer("a_b/11")])
    assert rows[Writer("dump/10")] >= 4 * 30 * MIB


def test_on_a_host_that_dirties_nothing_no_process_is_read(tmp_path):
    assert written(tmp_path, 4096, {"dump": 30 * MIB}) == {}


def test_a_process_that_ends_and_a_counter_that_may_not_be_read_are_left_out(tmp_path):
    put(tmp_path / "vmstat", "nr_dirtied 0\n")
    before = look(tmp_path, 0)
    put(tmp_path / "vmstat", "nr_dirtied 1000000\n")
    put(tmp_path / "7/comm", "gone\n")
    assert look(tmp_path, S, before).processes == {}
