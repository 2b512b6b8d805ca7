"""Programs that wait for a CPU, by a made /proc."""

import os
import shutil

import pytest
from cgroup_host import CgroupHost, at_once, put

from latmon.capture.mounts import MountTable
from latmon.model.measurements import CPU_WAITS
from latmon.model.measurements.cpu_waits import IDLE, SHARES, WEIGHT, CpuWait, CpuWaiter
from latmon_backends.kernel import cpu_waits
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.cpu_waits import CpuWaitReader, cpu_list

S, MS = 1_000_000, 1_000_000
STAT = "{tid} ({name}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 1 1 0 0 20 {nice} 1 0 5 1 1" + " 0" * 14 + " {cpu} 0\n"


class Host(CgroupHost):
    def __init__(self, root, version=1):
        super().__init__(root, version, "cpu")

    def thread(self, pid, tid, name, *, ran_ms, waited_ms, runs, sleeps, state="S", cpu=0, nice=0, flags=0):
        for path in (self.proc / f"{pid}", self.proc / f"{pid}/task/{tid}"):
            put(path / "stat", STAT.format(tid=tid, name=name, state=state, flags=flags, nice=nice, cpu=cpu))
        put(self.proc / f"{pid}/comm", f"{name}\n")
        put(self.proc / f"{pid}/task/{tid}/schedstat", f"{ran_ms * MS} {waited_ms * MS} {runs}\n")
        put(self.proc / f"{pid}/task/{tid}/status", f"voluntary_ctxt_switches:\t{sleeps}\n")

    def process(self, pid, io_bytes, cgroup="/"):
        put(self.proc / f"{pid}/io", f"rchar: 1\nread_bytes: {io_bytes}\nwrite_bytes: 0\n")
        put(self.proc / f"{pid}/cgroup", f"0::{cgroup}\n" if self.version == 2 else f"3:cpu,cpuacct:{cgroup}\n0::/\n")


def rows(host, step, pressure=0.8, seconds=8):
    """Return the rows of some seconds; `step` makes the files of a second."""
    clock = [0]
    reader = CpuWaitReader(host.proc, host.proc.parent / "sys", MountTable(host.proc), at_once, lambda: clock[0])
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
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_getparam", lambda _: os.sched_param(0))


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


def test_a_program_that_waits_for_another_process_of_its_own_is_left_out(tmp_path):
    host = Host(tmp_path)

    def step(second):
        starved(host, second)
        host.thread(20, 20, "apiserver", ran_ms=990 * second, waited_ms=0, runs=second, sleeps=0, state="R")

    assert rows(host, step) == {}


BATCH, PODS = "batch.slice", "kubepods/besteffort"


@pytest.mark.parametrize(
    ("weights", "own", "runner", "reason"),
    [
        pytest.param({PODS: 20}, f"/{PODS}/pod1", f"/{PODS}/pod1", ("", 0, 0), id="both in the same cgroup"),
        pytest.param(
            {"a": 20, "a/b": 100, "a/c": 100}, "/a/b", "/a/c", ("", 0, 0), id="siblings in a cgroup with a low weight"
        ),
        pytest.param({"a": 20, "b": 10}, "/a", "/b", ("", 0, 0), id="what runs has a lower weight"),
        pytest.param({"a": 20, "b": 30}, "/a", "/b", (WEIGHT, 20, 1), id="what runs has a higher weight"),
        pytest.param({"a": 100, "a/b": 20}, "/a/b", "/", ("", 0, 0), id="the weight below does not decide"),
        pytest.param({"a": 20}, "/a", "/", (WEIGHT, 20, 1), id="what runs is in no cgroup"),
        pytest.param({PODS: 20}, f"/{PODS}/pod1", "/", (WEIGHT, 20, 0), id="a pod without a CPU request"),
        pytest.param({BATCH: 0}, f"/{BATCH}/x", "/", (IDLE, 1, 1), id="idle"),
        pytest.param({BATCH: 0, "b": 0}, f"/{BATCH}/x", "/b", ("", 0, 0), id="both are idle"),
    ],
)
def test_a_weight_is_a_reason_against_that_of_what_runs(tmp_path, weights, own, runner, reason):
    host = Host(tmp_path, 2)
    for cgroup, weight in weights.items():
        put(host.cgroups / cgroup / WEIGHT, f"{weight}\n")
        put(host.cgroups / cgroup / IDLE, f"{int(weight == 0)}\n")

    def step(second):
        starved(host, second)
        host.process(7, 4096 + 20_480 * second, own)
        hog(host, second)
        host.process(20, 0, runner)

    (row,) = rows(host, step)
    assert (row.weight_file, row.weight, row.is_background) == reason
    assert row.cgroup == (f"/{next(iter(weights))}" if row.weight_file else own)


@pytest.mark.parametrize(
    ("nice_of_runner", "weights", "nice"),
    [(0, {}, 19), (19, {}, 0), (0, {"own": 100}, 0)],
    ids=["it is", "both have it", "it is in another cgroup"],
)
def test_a_nice_value_is_a_reason_against_that_of_what_runs(tmp_path, nice_of_runner, weights, nice):
    host = Host(tmp_path, 2)
    for cgroup, weight in weights.items():
        put(host.cgroups / cgroup / WEIGHT, f"{weight}\n")

    def step(second):
        times = {"ran_ms": 2 * second, "waited_ms": 980 * second, "runs": 5 * second, "sleeps": 5 * second}
        host.thread(7, 7, "updatedb", **times, nice=19)
        host.process(7, 4096 + 20_480 * second, "/own")
        times = {"ran_ms": 990 * second, "waited_ms": 0, "runs": second, "sleeps": 0}
        host.thread(20, 20, "cc1plus", **times, state="R", nice=nice_of_runner)
        host.process(20, 0)

    (row,) = rows(host, step)
    assert (row.nice, row.is_background, row.instead) == (nice, 1, "cc1plus/20")


KERNEL_THREAD = 0x0420_8060


def real_time_hog(monkeypatch, tid=21, policy=os.SCHED_FIFO):
    """Give a thread of the hog a real-time policy."""
    monkeypatch.setattr(os, "sched_getscheduler", lambda at: policy if at == tid else os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_getparam", lambda at: os.sched_param(50 if at == tid else 0))


def kernel_thread(host, second, name="kworker/0:1-events"):
    times = {"ran_ms": second, "waited_ms": 400 * second, "runs": 2 * second, "sleeps": 2 * second}
    host.thread(30, 30, name, **times, flags=KERNEL_THREAD)
    put(host.proc / "30/io", "read_bytes: 0\nwrite_bytes: 4096\n")


def test_a_kernel_thread_of_a_cpu_that_a_real_time_program_has(tmp_path, monkeypatch):
    host = Host(tmp_path)
    real_time_hog(monkeypatch)

    def step(second):
        work = ("events", "kblockd", "virtio_vsock")[second % 3]
        kernel_thread(host, second, f"kworker/0:1{'+-'[second % 2]}{work}")
        hog(host, second)

    ((row, wait),) = rows(host, step).items()
    assert row == CpuWaiter("kworker_0:1/30", "/", "", 0, "0", 0, "cc1plus/20", 0, "SCHED_FIFO 50")
    assert (wait.waited_us / wait.lasted_us, wait.io_bytes) == (0.4, 0)


@pytest.mark.parametrize("file", ["isolated", "nohz_full"])
@pytest.mark.parametrize(("cpus", "is_background"), [("0,2-3", 1), ("2-3", 0), ("", 0), ("(null)", 0), ("0-", 0)])
def test_an_isolated_cpu_was_given_to_the_real_time_program(tmp_path, monkeypatch, file, cpus, is_background):
    """The finding's own advice is to isolate the CPU: who had followed it was warned all the same."""
    host = Host(tmp_path)
    real_time_hog(monkeypatch)
    put(tmp_path / "sys/devices/system/cpu" / file, f"{cpus}\n")

    def step(second):
        kernel_thread(host, second)
        hog(host, second)

    (row,) = rows(host, step)
    assert row.is_background == is_background


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"tid": 20}, id="the thread with the policy sleeps"),
        pytest.param({"cpu": 1}, id="it runs on another CPU"),
        pytest.param({"policy": os.SCHED_BATCH}, id="no real-time policy"),
        pytest.param({"flags": 0x0040_0000}, id="no kernel thread, and no I/O"),
    ],
)
def test_other_threads_without_io_are_left_out(tmp_path, monkeypatch, other):
    host = Host(tmp_path)
    real_time_hog(monkeypatch, other.get("tid", 21), other.get("policy", os.SCHED_FIFO))

    def step(second):
        times = {"ran_ms": second, "waited_ms": 400 * second, "runs": 2 * second, "sleeps": 2 * second}
        host.thread(30, 30, "ksoftirqd/0", **times, flags=other.get("flags", KERNEL_THREAD))
        hog(host, second, other.get("cpu", 0))

    assert rows(host, step) == {}


def test_no_weight_and_nice_value_is_a_reason_against_a_real_time_policy(tmp_path, monkeypatch):
    host = Host(tmp_path)
    put(host.cgroups / "kubepods/besteffort/cpu.shares", "2\n")
    real_time_hog(monkeypatch, policy=os.SCHED_RR)

    def step(second):
        starved(host, second)
        hog(host, second)

    (row,) = rows(host, step)
    assert row == CpuWaiter("apiserver/7", "/kubepods/besteffort/pod1", "", 0, "0", 0, "cc1plus/20", 0, "SCHED_RR 50")


def test_of_too_many_threads_each_has_its_turn_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_waits, "_MOST_THREADS", 4)
    host, clock = Host(tmp_path), [0]
    reader = CpuWaitReader(host.proc, host.proc.parent / "sys", MountTable(host.proc), at_once, lambda: clock[0])
    for second in range(1, 60):
        clock[0] = second * S
        for pid in range(100, 110):
            host.thread(pid, pid, "idle", ran_ms=1, waited_ms=1, runs=1, sleeps=1)
        for tid in range(200, 205):
            host.thread(200, tid, "large", ran_ms=1, waited_ms=1, runs=1, sleeps=1)
        times = {"ran_ms": 2 * second, "waited_ms": 980 * second, "runs": 5 * second}
        host.thread(300, 300, "late", **times, sleeps=5 * second)
        host.process(300, 4096 + 20_480 * second)
        sample = reader.sample(clock[0], is_wanted=reader.is_wanted(second * S, clock[0]))
    assert [row.process for row in sample[CPU_WAITS]] == ["late/300"]
    assert "of the host's threads 4 at a time are read" in reader.left_out
    assert "processes with more than 4 threads are not read" in reader.left_out


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
