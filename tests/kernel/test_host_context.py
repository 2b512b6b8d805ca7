"""The host's context from /proc: each file's values and their differences, absence, pace, and this machine's own."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from latmon.model.host_context import CONTEXT, ContextValue
from latmon_backends.kernel.counters import HostContextReader, context_difference

PAGE = os.sysconf("SC_PAGE_SIZE")
MS = 1_000_000


class Clock:
    """Nanoseconds that go on by `step` with each reading of the clock."""

    def __init__(self, step=0):
        self.ns, self.step = 1_000_000 * MS, step

    def __call__(self):
        self.ns += self.step
        return self.ns

    def sleep(self, seconds):
        self.ns += int(seconds * 1e9)


def put(proc, name, text):
    path = proc / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def psi(some, full):
    lines = (f"{kind} avg10=1.23 avg60=0.00 avg300=0.00 total={us}" for kind, us in (("some", some), ("full", full)))
    return "\n".join(lines) + "\n"


def after_a_second(proc, before, after):
    """Return what two samples of these files differ by; a file is name -> text."""
    clock = Clock()
    reader = HostContextReader(proc, clock, clock)
    for name, text in before.items():
        put(proc, name, text)
    first = reader.sample()
    clock.sleep(1)
    for name, text in after.items():
        put(proc, name, text)
    return context_difference(first, reader.sample())


S = 1_000_000
SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 {} 0\nUdp: InDatagrams\nUdp: 5\n"


@pytest.mark.parametrize(
    ("file", "before", "after", "found"),
    [
        ("pressure/cpu", psi(100, 0), psi(250_100, 0), {"psi_cpu_some": ContextValue(250_000, S, 0.25)}),
        (
            "pressure/io",
            psi(7, 5),
            psi(500_007, 5),
            {"psi_io_some": ContextValue(500_000, S, 0.5), "psi_io_full": ContextValue(0, S)},
        ),
        ("pressure/irq", psi(0, 1).partition("\n")[2], psi(0, 100_001).partition("\n")[2], {"psi_irq_full": 0.1}),
        ("stat", "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1", "cpu  41 2 43 14 5 6 7 18 0 0\n",
         {"steal": 0.1, "cpu_busy": 0.9}),
        ("stat", "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1", "cpu  21 2 3 34 35 6 7 8 0 0\n",
         {"steal": 0.0, "cpu_busy": 0.25}),
        ("vmstat", "x 1\nnr_dirty 3\n", "nr_free 1\nnr_dirty 5\nnr_dirty_threshold_x 9\n", {"dirty": 5 * PAGE}),
        ("vmstat", "x 1\nnr_dirty_threshold 3\nnr_dirty_background_threshold 2\n",
         "x 1\nnr_dirty_threshold 9\nnr_dirty_background_threshold 4\n",
         {"dirty_limit": 9 * PAGE, "dirty_background": 4 * PAGE}),
        ("vmstat", "x 1\nnr_writeback 3\n", "x 1\nnr_writeback 0\nnr_writeback_temp 4\n", {"writeback": 0.0}),
        ("vmstat", "x 0\nallocstall_dma 1\nallocstall_normal 2\n", "x 0\nallocstall_dma 2\nallocstall_normal 5\n",
         {"direct_reclaims": ContextValue(4, S, 4e-6)}),
        ("vmstat", "x 0\nworkingset_refault_anon 1\nworkingset_refault_file 2\nworkingset_activate_file 1\n",
         "x 0\nworkingset_refault_anon 9\nworkingset_refault_file 7\nworkingset_activate_file 2\n",
         {"file_reloads": ContextValue(5, S, 5e-6), "file_refaults": ContextValue(1, S, 1e-6)}),
        ("vmstat", "x 0\nworkingset_refault 2\n", "x 0\nworkingset_refault 7\n",
         {"file_reloads": ContextValue(5, S, 5e-6)}),
        ("vmstat", "x 0\nnr_vmscan_immediate_reclaim 1\n", "x 0\nnr_vmscan_immediate_reclaim 9\n",
         {"unwritten_reclaims": ContextValue(8, S, 8e-6)}),
        ("vmstat", "x 0\npgmajfault 1\nnr_dirtied 5\n", "x 0\npgmajfault 9\nnr_dirtied 12\n",
         {"major_faults": ContextValue(8, S, 8e-6), "dirtied": ContextValue(7, S, 7e-6)}),
        ("vmstat", "x 0\nallocstall 1\n", "x 0\nallocstall 3\n", {"direct_reclaims": ContextValue(2, S, 2e-6)}),
        ("net/snmp", SNMP.format(5), SNMP.format(12), {"tcp_retransmits": ContextValue(7, S, 7e-6)}),
        ("net/rpc/nfs", "net 0 0 0 0\nrpc 9 1 9\n", "net 0 0 0 0\nrpc 99 3 9\n",
         {"nfs_retransmits": ContextValue(2, S, 2e-6)}),
        ("spl/kstat/zfs/arcstats", "name type data\nsize 4 1000\n", "x 1 2\nsize     4    5000\nc_max 4 9\n",
         {"arc": ContextValue(5000, 1, 5000.0)}),
    ],
)  # fmt: skip
def test_values_of_a_file(tmp_path, file, before, after, found):
    context_values = after_a_second(tmp_path, {file: before}, {file: after})
    assert context_values.keys() == found.keys()
    for name, value in found.items():
        assert context_values[name] == value if isinstance(value, ContextValue) else context_values[name].ratio == value


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("pressure/cpu", psi(100, 0), psi(50, 0)),  # restarted
        ("stat", "cpu  1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4 5 6 7 8\n"),  # no tick since
        ("stat", "cpu  1 2 3 4\n", "cpu  2 3 4 5\n"),  # Linux before 2.6.11 has no steal
        ("net/snmp", SNMP.format("x"), SNMP.format("x")),
        ("pressure/io", "", ""),  # a kernel with psi=0 refuses to read it
    ],
)
def test_what_is_no_difference_has_no_value(tmp_path, file, before, after):
    assert after_a_second(tmp_path, {file: before}, {file: after}) == {}


def test_a_host_without_the_files_has_no_values(tmp_path):
    assert after_a_second(tmp_path, {}, {}) == {}


def test_a_slow_file_is_read_less_often_and_its_next_value_covers_all_of_the_time(tmp_path):
    clock = Clock()
    reader = HostContextReader(tmp_path, clock, Clock(step=3 * MS))  # CPU time of a reading
    put(tmp_path, "pressure/cpu", psi(0, 0))
    samples = [reader.sample()]
    for at in range(1, 8):
        clock.sleep(1)
        put(tmp_path, "pressure/cpu", psi(at * 100_000, 0))
        samples.append(reader.sample())
    context_values = [context_difference(one, other).get("psi_cpu_some") for one, other in pairwise(samples)]
    measured = [context_value for context_value in context_values if context_value]
    assert len(measured) == 2, "every third second"
    assert {(context_value.total, context_value.weight) for context_value in measured} == {(300_000, 3 * S)}


def test_a_file_that_comes_later_is_found(tmp_path):
    clock = Clock()
    reader = HostContextReader(tmp_path, clock, clock)
    assert reader.sample() == {}
    put(tmp_path, "net/rpc/nfs", "rpc 1 0 0\n")
    clock.sleep(61)
    assert reader.sample().keys() == {"nfs_retransmits"}


def test_this_machine():
    reader = HostContextReader(Path("/proc"))
    before = reader.sample()
    for file in reader._files:
        file.due_ns = 0
    time.sleep(0.2)
    context_values = context_difference(before, reader.sample())
    assert context_values.keys() <= CONTEXT.keys()
    assert {"dirty", "writeback", "tcp_retransmits", "direct_reclaims"} <= context_values.keys()
    assert ("psi_io_some" in context_values) == bool(_readable("/proc/pressure/io"))
    assert context_values["direct_reclaims"].weight >= 200_000
    for name, value in context_values.items():
        assert CONTEXT[name].scaled(value.ratio) >= 0


def _readable(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""
