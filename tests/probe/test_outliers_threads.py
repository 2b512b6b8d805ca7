"""Names and priorities of threads: from a record, from /proc, and kept after the thread has ended."""

import os
from pathlib import Path

import pytest

from latmon.decode.tables import Record
from latmon.model.frame import Thread
from latmon_backends.probe import outliers
from latmon_backends.probe.outliers import KTHREAD, Threads, read

STAT = (
    "{pid} ({comm}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 {priority} 0 1 0 52 0 0 "
    + "0 " * 13
    + "17 0 {rt} {policy} 0 0\n"
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def known(tmp_path, clock):
    return Threads(tmp_path, clock)


@pytest.fixture
def runs(tmp_path):
    def written(pid, comm, priority=20, policy=0, flags=KTHREAD | 0x40):
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        line = STAT.format(pid=pid, comm=comm, priority=priority, policy=policy, flags=flags, rt=0)
        (tmp_path / str(pid) / "stat").write_text(line)

    return written


def record(pid=12, comm="ksoftirqd/0", **fields):
    return Record("thread", "wakeups_a", {"thread": pid, **fields}, text=comm)


@pytest.mark.parametrize(
    ("priority", "policy", "thread"),
    [
        (20, 0, Thread(12, "ksoftirqd/0", "other", 120)),
        (0, 0, Thread(12, "ksoftirqd/0", "other", 100)),
        (39, 3, Thread(12, "ksoftirqd/0", "batch", 139)),
        (-51, 1, Thread(12, "ksoftirqd/0", "fifo", 49)),
        (-2, 2, Thread(12, "ksoftirqd/0", "rr", 98)),
        (-101, 6, Thread(12, "ksoftirqd/0", "deadline", -1)),
        (20, 4, Thread(12, "ksoftirqd/0", "", 120)),
        (20, 99, Thread(12, "ksoftirqd/0", "", 120)),
    ],
)
def test_priority_and_policy_are_the_kernels(known, runs, priority, policy, thread):
    runs(12, "ksoftirqd/0", priority, policy)
    assert known.of(12) == thread


@pytest.mark.parametrize(
    ("comm", "shown"), [("a) b (c", "a) b (c"), ("(sd-pam)", "(sd-pam)"), ("\x1b[2J", "\\x1b[2J"), ("", "")]
)
def test_any_comm(known, runs, comm, shown):
    runs(5, comm, flags=0)
    assert known.of(5) == Thread(5, shown, "other", 120, kernel=False)


@pytest.mark.parametrize("line", [b"", b"5", b"5 (x) S", b"5 (x) S " + b"x " * 50, b"\xff" * 99])
def test_a_stat_that_is_none(tmp_path, line):
    (tmp_path / "5").mkdir()
    (tmp_path / "5/stat").write_bytes(line)
    assert read(tmp_path, 5) is None


def test_an_unknown_thread(known):
    assert known.of(77) == Thread(77, "", "", -1)


def test_a_record_reports_it(known):
    known.learn(record(priority=49, policy=1, flags=KTHREAD))
    assert known.of(12) == Thread(12, "ksoftirqd/0", "fifo", 49)
    known.learn(record(13, "fio", policy=5, flags=0x40))
    assert known.of(13) == Thread(13, "fio", "idle", -1, kernel=False)


def test_a_record_without_flags_leaves_more_to_proc(known, runs):
    runs(12, "ksoftirqd/0", -51, 1)
    known.learn(record(priority=120))
    assert known.of(12) == Thread(12, "ksoftirqd/0", "fifo", 49)
    known.learn(record(99, "gone", priority=120))
    assert known.of(99) == Thread(99, "gone", "", 120, kernel=False)
    known.learn(Record("thread", "wakeups_c", {"priority": 5}))


def test_a_thread_is_read_again_now_and_then(known, runs, clock):
    runs(12, "kworker/0:1")
    assert known.of(12).comm == "kworker/0:1"
    runs(12, "kworker/0:1-events", -51, 1)
    assert known.of(12).comm == "kworker/0:1"
    clock.now = 10.0
    assert known.of(12) == Thread(12, "kworker/0:1-events", "fifo", 49)


def test_a_thread_that_is_gone_is_remembered(known, runs, clock, tmp_path):
    runs(12, "nvme-wq")
    known.of(12)
    (tmp_path / "12/stat").unlink()
    clock.now = 60.0
    assert known.of(12).comm == "nvme-wq"


def test_what_is_remembered_is_bounded(known, monkeypatch):
    monkeypatch.setattr(outliers, "_MAX_THREADS", 3)
    for pid in range(10):
        known.learn(record(pid, flags=0))
    assert sorted(known._known) == [7, 8, 9]


def test_this_very_thread():
    pid = os.getpid()
    thread = read(Path("/proc"), pid)
    assert (thread.pid, thread.comm, thread.kernel) == (pid, Path("/proc/self/comm").read_text().strip(), False)
    names = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}
    assert thread.policy == names[os.sched_getscheduler(0)]
    assert thread.priority == 120 + os.getpriority(os.PRIO_PROCESS, 0)
