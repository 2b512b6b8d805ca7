"""latmon's own processes: by pid, name and time, against real processes and a made-up /proc."""

import gc
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from latmon.support.process import OwnProcesses, descendants, seldom_collecting

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


def now_us():
    return time.monotonic_ns() // 1000


@pytest.fixture
def sleeper():
    """A child's child, as the tool is the shim's."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE) as shim:
        pid = int(shim.stdout.readline())
        while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        yield pid
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


def test_what_this_process_starts_is_its_own_while_it_lives(sleeper):
    family, other = OwnProcesses(os.getpid()), OwnProcesses(sleeper)
    begun = now_us()
    family.refresh()
    other.refresh()
    assert family.has(sleeper, "sleep", begun)
    assert family.has(os.getpid(), Path("/proc/self/comm").read_text().strip(), begun)
    assert not other.has(os.getpid(), "sleep", begun)
    assert not family.has(sleeper, "sleep", begun - 3_600_000_000)  # another process had the number then
    assert not family.has(1, "sleep", begun)
    assert not family.has(None, "sleep", begun)
    os.kill(sleeper, 9)
    while Path(f"/proc/{sleeper}/comm").exists():
        time.sleep(0.01)
    family.refresh()
    assert family.has(sleeper, "sleep", begun)  # its outliers are known only after its end
    assert not family.has(sleeper, "sleep", now_us())


def in_namespace(proc, name):
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(name)


@pytest.mark.parametrize(("namespace", "renamed"), [("pid:[4026531836]", True), ("pid:[4026532201]", False)])
def test_in_a_container_the_name_must_be_known_too(tmp_path, namespace, renamed):
    """Elsewhere a process may have had another name: the tool's was a shell's before."""
    in_namespace(tmp_path, namespace)
    family = OwnProcesses(10, proc=tmp_path, now_us=lambda: 1_000_000, boottime_ahead_us=lambda: 0)
    process(tmp_path, 10, 1)
    family.refresh()
    assert family.has(10, "bpftrace", 500_000)
    assert family.has(10, "sh", 500_000) is renamed


def process(proc, pid, started, *children, comm="bpftrace"):
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(" ".join(map(str, children)))
    (task / "comm").write_text(f"{comm}\n")
    fields = ["S", "1", *["0"] * 17, started, "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} (a) b (c) {' '.join(map(str, fields))}\n")


def test_a_pid_that_another_process_has_later_is_not_its_own(tmp_path):
    now = [1_000_000]
    family = OwnProcesses(10, proc=tmp_path, now_us=lambda: now[0], boottime_ahead_us=lambda: 0)
    process(tmp_path, 10, 1, 11)
    process(tmp_path, 11, 50)
    family.refresh()
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 150, comm="bpftrace")
    now[0] = 2_000_000
    family.refresh()
    assert family.has(11, "bpftrace", 50 * TICK_US)
    assert family.has(11, "bpftrace", 1_500_000)
    assert not family.has(11, "bpftrace", 2_500_000)


def test_a_process_whose_parent_ended_stays(tmp_path):
    family = OwnProcesses(10, proc=tmp_path, now_us=lambda: 1_000_000, boottime_ahead_us=lambda: 0)
    process(tmp_path, 10, 1, 11)
    process(tmp_path, 11, 2)
    family.refresh()
    process(tmp_path, 10, 1)
    family.refresh()
    assert family.has(11, "bpftrace", 5_000_000)


def test_of_a_collectors_parent_only_itself(tmp_path):
    family = OwnProcesses(10, 1, proc=tmp_path, boottime_ahead_us=lambda: 0)
    process(tmp_path, 1, 0, 10, 99)
    process(tmp_path, 10, 2)
    process(tmp_path, 99, 2, comm="bpftrace")
    family.refresh()
    assert family.has(1, "bpftrace", 5_000_000)
    assert not family.has(99, "bpftrace", 5_000_000)


def test_time_asleep_is_no_time_of_a_start(tmp_path):
    family = OwnProcesses(10, proc=tmp_path, now_us=lambda: 2_000_000, boottime_ahead_us=lambda: 60_000_000)
    process(tmp_path, 10, 61_000_000 // TICK_US)
    family.refresh()
    assert family.has(10, "bpftrace", 1_500_000)
    assert not family.has(10, "bpftrace", 900_000)


def test_what_ended_is_forgotten_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("latmon.support.process._MOST_GONE", 16)
    family = OwnProcesses(10, proc=tmp_path, now_us=lambda: 1_000_000, boottime_ahead_us=lambda: 0)
    for pid in range(100, 150):
        process(tmp_path, 10, 1, pid)
        process(tmp_path, pid, 2)
        family.refresh()
        (tmp_path / str(pid) / "stat").unlink()
    family.refresh()
    assert family.has(149, "bpftrace", 500_000)
    assert not family.has(100, "bpftrace", 500_000)


def test_a_process_that_ends_while_its_threads_are_listed_is_left_out(sleeper, monkeypatch):
    """It raised FileNotFoundError, which ended the capture."""
    scandir = os.scandir

    def ended(path="."):
        if str(sleeper) in str(path):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scandir(path)

    family = OwnProcesses(os.getpid())
    assert sleeper in descendants(os.getpid())
    monkeypatch.setattr(os, "scandir", ended)
    family.refresh()
    assert sleeper in descendants(os.getpid())
    assert list(descendants(sleeper)) == []


def test_the_garbage_collector_is_as_before_after_a_command_that_fails():
    before = gc.get_threshold()

    def fail():
        with seldom_collecting():
            assert gc.isenabled()
            assert gc.get_threshold() > before
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fail()
    assert gc.get_threshold() == before
