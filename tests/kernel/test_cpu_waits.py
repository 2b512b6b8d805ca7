"""Programs that wait for a CPU, by a made /proc."""

import os
import shutil

import pytest
from cgroup_host import CgroupHost, at_once, put

from latmon.capture.mounts import MountTable
from latmon.model.measurements import CPU_WAITS
from latmon.model.measurements.cpu_waits import SHARES, WEIGHT, CpuWait, CpuWaiter
from latmon_backends.kernel import cpu_waits
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.cpu_waits import CpuWaitReader, cpu_list

S, MS = 1_000_000, 1_000_000
STAT = "{tid} ({name}) {state} 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 {nice} 1 0 5 1 1" + " 0" * 14 + " {cpu} 0\n"


class Host(CgroupHost):
    def __init__(self, root, version=1):
        super().__init__(root, version, "cpu")

    def thread(self, pid, tid, name, *, ran_ms, waited_ms, runs, sleeps, state="S", cpu=0, nice=0):
        for path in (self.proc / f"{pid}", self.proc / f"{pid}/task/{tid}"):
            put(path / "stat", STAT.format(tid=tid, name=name, state=state, nice=nice, cpu=cpu))
        put(self.proc / f"{pid}/comm", f"{name}\n")
        put(self.proc / f"{pid}/task/{tid}/schedstat", f"{ran_ms * MS} {waited_ms * MS} {runs}\n")
        put(self.proc / f"{pid}/task/{tid}/status", f"voluntary_ctxt_switches:\t{sleeps}\n")

    def process(self, pid, io_bytes, cgroup="/"):
        put(self.proc / f"{pid}/io", f"rchar: 1\nread_bytes: {io_bytes}\nwrite_bytes: 0\n")
        put(self.proc / f"{pid}/cgroup", f"0::{cgroup}\n" if self.version == 2 else f"3:cpu,cpuacct:{cgroup}\n0::/\n")


def rows(host, step, pressure=0.8, seconds=8):
    """Return the rows of some seconds; `step` makes the files of a second."""
    clock = [0]
    reader = CpuWaitReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    samples = []
    for second in range(1, seconds + 1):
        clock[0] = second * S
        step(second)
        is_wanted = reader.is_wanted(round(second * S * pressure), clock[0])
        samples.append(reader.sample(clock[0], is_wanted=is_wanted))
    return tables_between(samples[0], samples[-1]).get(CPU_WAITS, {})


def starved(host, second, *, sleeps_per_s=5, io_per_s=20_480):
    """Two threads that run 2 ms a second, and wait nearly all of it."""
    for tid in (7, 8):
        times = {"ran_ms": 2 * second, "waited_ms": 980 * second, "runs": 5 * second}
        host.thread(7, tid, "apiserver", **times, sleeps=sleeps_per_s * second)
    host.process(7, 4096 + io_per_s * second, "/kubepods/besteffort/pod1")


def hog(host, second, cpu=0):
    """A program whose first thread sleeps while another one runs."""
    host.thread(20, 20, "cc1plus", ran_ms=1, waited_ms=1, runs=1, sleeps=1, cpu=9)
    host.thread(20, 21, "cc1plus", ran_ms=990 * second, waited_ms=0, runs=second, sleeps=0, state="R", cpu=cpu)
    host.process(20, 0)


@pytest.fixture(autouse=True)
def one_of_two_cpus(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


@pytest.mark.parametrize(("version", "file", "weight"), [(1, SHARES, 2), (2, WEIGHT, 1)])
def test_a_program_with_io_that_waits_for_a_cpu(tmp_path, version, file, weight):
    host = Host(tmp_path, version)
    put(host.cgroups / "kubepods/besteffort/cpu.shares", "2\n")
    put(host.cgroups / "kubepods/besteffort/cpu.weight", "1\n")
    put(host.cgroups / "kubepods/besteffort/pod1/cpu.shares", "1024\n")
    put(host.cgroups / "cgroup.controllers", "cpu\n")

    def step(second):
        starved(host, second)
        hog(host, second)

    ((row, wait),) = rows(host, step).items()
    assert row == CpuWaiter("apiserver/7", "/kubepods/besteffort", file, weight, "0", 0, "cc1plus/20")
    seconds = wait.lasted_us // S
    assert seconds >= 2
    expected = CpuWait(seconds * S, seconds * 4_000, seconds * 1_960_000, seconds * 10, seconds * 20_480)
    assert wait == expected


def test_what_runs_on_other_cpus_is_not_named(tmp_path):
    host = Host(tmp_path)

    def step(second):
        starved(host, second)
        hog(host, second, cpu=1)

    (row,) = rows(host, step)
    assert row.instead == ""
    assert (row.cgroup, row.weight_file, row.weight) == ("/kubepods/besteffort/pod1", "", 0)


@pytest.mark.parametrize(
    "other", [{"sleeps_per_s": 1}, {"io_per_s": 0}], ids=["it computes: time slices end its runs", "it does no I/O"]
)
def test_a_build_is_no_victim(tmp_path, other):
    host = Host(tmp_path)
    assert rows(host, lambda second: starved(host, second, **other)) == {}


def test_a_quiet_host_is_not_looked_at(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(cpu_waits, "look", lambda *_: looks.append(1))
    host = Host(tmp_path)
    assert rows(host, lambda second: starved(host, second), pressure=0.1) == {}
    assert looks == []


def test_on_a_host_with_many_cpus_one_cpu_is_a_small_part_of_the_pressure(tmp_path, monkeypatch):
    host = Host(tmp_path)
    assert rows(host, lambda second: starved(host, second), pressure=0.1) == {}
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert rows(host, lambda second: starved(host, second), pressure=0.1) != {}


def test_a_process_that_ends_between_two_files_is_left_out(tmp_path):
    host = Host(tmp_path)
    starved(host, 1)
    (host.proc / "7/task/8/schedstat").unlink()
    put(host.proc / "9/comm", "gone\n")
    look = cpu_waits.look(host.proc, MountTable(host.proc).read(), 0)
    assert look.turns == {7: (2_000, 980_000, 5, {"7"})}


def test_a_process_of_which_a_thread_ended_is_left_out(tmp_path):
    """The sums of the ones that are left are less than what the process ran and waited."""
    host = Host(tmp_path)

    def step(second):
        starved(host, second)
        for tid in range(1000, 1000 + second):
            shutil.rmtree(host.proc / f"7/task/{tid}", ignore_errors=True)
        times = {"ran_ms": 950, "waited_ms": 10, "runs": 5, "sleeps": 5}
        host.thread(7, 1000 + second, "apiserver", **times)

    assert rows(host, step) == {}


def test_a_thread_that_began_counts_from_its_beginning(tmp_path):
    host = Host(tmp_path)

    def step(second):
        starved(host, second)
        host.thread(7, 1000 + second, "apiserver", ran_ms=1, waited_ms=10, runs=5, sleeps=5)

    ((_, wait),) = rows(host, step).items()
    seconds = wait.lasted_us // S
    assert (wait.ran_us, wait.waited_us) == (seconds * 5_000, seconds * 1_970_000)


def test_cpus_are_listed_as_the_kernel_does():
    assert cpu_list({5, 0, 1, 2}) == "0-2,5"
    assert cpu_list({3}) == "3"
    assert cpu_list(()) == ""
    assert cpu_list(range(0, 256, 2)) == "128 CPUs"
