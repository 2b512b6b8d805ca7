"""Counters printed by a command: read by a thread, newest first; a command that hangs delays nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon.model.frame import Completed, Device, Flow, Outstanding, Taskq
from latmon.support.errors import UnavailableError
from latmon_backends.kernel import system
from latmon_backends.kernel.counters import FrameClock, Sample, difference
from latmon_backends.kernel.diskstats import Counters
from latmon_backends.kernel.kstat import EVERY_US, TaskqSampler
from latmon_backends.kernel.system import Aside, TaskQueues, sampler_of

READ = Flow("sd2", "read")
GOLDEN = Path(__file__).parents[1] / "golden" / "kstat"
WAIT_S = 60.0


class Slow:
    """Counts one more I/O at each reading; one that is held ends when it is let go."""

    def __init__(self) -> None:
        self.count, self.fails, self.threads = 0, False, set[int]()
        self.held, self.began, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.held.set()

    @property
    def devices(self) -> tuple[Device, ...]:
        return (Device("sd2", 0, self.count),)

    def sample(self) -> Sample:
        self.threads.add(threading.get_ident())
        self.began.set()
        assert self.held.wait(WAIT_S)
        if self.fails:
            raise UnavailableError("kstat can't be run.")
        self.count += 1
        counters = {"sd2": Counters("sd2", {"read": Completed(self.count, 0, None)})}
        self.ended.set()
        gauges = {"sd2": Outstanding(self.count, 0)}
        return Sample(0, 0.0, counters, {"sd2": 7}, frozenset({"sd2"}), outstanding=gauges)

    def require_selected(self) -> None:
        raise UnavailableError("No device matches.")

    def start(self) -> None:
        raise AssertionError

    close = start


class Now:
    def __init__(self) -> None:
        self.us = 1_000_000

    @property
    def clock(self) -> FrameClock:
        return FrameClock(lambda: self.us, lambda: self.us / 1e6)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def aside(slow: Slow, now: Now, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aside]:
    monkeypatch.setattr(system, "_FIRST_S", 0.0)
    made = Aside(slow, 1000, now.clock)
    yield made
    slow.held.set()
    made.close()


def newest(aside: Aside) -> Sample:
    """The sample of the reading that is under way."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if (sample := aside.sample()).shown:
            return sample
        time.sleep(0.002)
    raise AssertionError("no reading ended")


def test_before_the_start_it_reads_directly(aside, slow, now):
    now.us = 5_000_000
    first = aside.sample()
    assert (first.mono_us, first.wall, first.counters["sd2"].ops["read"].count) == (5_000_000, 5.0, 1)
    assert slow.threads == {threading.get_ident()}
    assert aside.devices == slow.devices
    slow.fails = True
    with pytest.raises(UnavailableError):
        aside.sample()
    with pytest.raises(UnavailableError, match="No device"):
        aside.require_selected()


def test_a_sample_never_waits_for_a_reading_that_hangs(aside, slow, now):
    first = aside.sample()
    slow.held.clear()
    slow.began.clear()
    aside.start()
    assert slow.began.wait(WAIT_S)
    now.us += 1000
    hanging = aside.sample()
    assert (hanging.mono_us, hanging.shown, hanging.outstanding) == (now.us, frozenset(), first.outstanding)
    assert difference(first, hanging).kernel == {}
    now.us += 5000
    assert aside.sample().outstanding == {}
    aside.close()
    assert not slow.held.is_set()  # it did not wait for the reading
    assert aside.sample().shown == frozenset()


def test_what_a_hanging_reading_missed_is_in_the_next(aside, slow):
    first = aside.sample()
    slow.held.clear()
    aside.start()
    hanging = aside.sample()
    slow.held.set()
    after = newest(aside)
    assert difference(hanging, after).kernel == {READ: Completed(1, 0, None)}
    assert after.generations == first.generations
    assert after.mono_us > hanging.mono_us
    assert len(slow.threads) == 2


def test_a_reading_has_its_own_time_and_devices(aside, slow, now):
    aside.sample()
    slow.ended.clear()
    aside.start()
    assert slow.ended.wait(WAIT_S)
    time.sleep(0.05)
    known, now.us = aside.devices, 9_000_000
    found = aside.sample()
    assert known == (Device("sd2", 0, 1),)
    assert aside.devices == (Device("sd2", 0, 2),)
    assert (found.mono_us, found.wall) == (1_000_001, 1.0)


def test_times_never_go_back(aside):
    aside.sample()
    aside.start()
    reported = [newest(aside).mono_us for _ in range(5)]
    assert reported == sorted(set(reported))


def test_a_mistake_of_ours_in_the_thread_comes_out(aside, slow):
    aside.sample()
    slow.fails = True
    aside.start()
    with pytest.raises(UnavailableError):
        newest(aside)


def test_a_reading_begins_just_before_its_sample(slow, now, monkeypatch):
    delays = []
    monkeypatch.setattr(Aside, "_later", lambda _self, delay_s: delays.append(round(delay_s, 3)))
    made = Aside(slow, 10_000_000, now.clock)
    made.sample()
    made.start()
    while len(delays) < 3:
        made.sample()
        time.sleep(0.001)
    made.close()
    assert delays[:3] == [0.8, -0.2, 9.8]


def test_disks_of_kstat_are_read_aside(tmp_path, monkeypatch):
    sampler, asked = sampler_of(Options(proc=Path("/proc")))
    assert (type(sampler).__name__, asked) == ("KernelSampler", "")
    monkeypatch.setenv("LATMON_KSTAT", "/usr/bin/true")
    sampler, asked = sampler_of(Options(proc=tmp_path))
    assert (type(sampler), asked) == (Aside, "kstat")


def queues(run, now) -> TaskQueues:
    return TaskQueues("kstat", TaskqSampler(now.clock, run))


def reported(task_queues: TaskQueues) -> tuple[Taskq, ...]:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if (taskqs := task_queues.sample()) is not None:
            return taskqs
        time.sleep(0.002)
    raise AssertionError("no reading ended")


def test_task_queues_are_read_aside_each_ten_seconds(now):
    asked = []

    def run(_words):
        asked.append(threading.get_ident())
        return (GOLDEN / "solaris-taskq-1-synthetic.txt").read_bytes() + b"nonsense\n"

    task_queues = queues(run, now)
    assert task_queues.sample() is None
    assert reported(task_queues)
    assert task_queues.undecoded == 1
    assert task_queues.sample() is None
    assert (task_queues.undecoded, len(asked)) == (0, 1)
    now.us += EVERY_US
    assert reported(task_queues)
    assert threading.get_ident() not in asked


def test_task_queues_that_hang_or_fail_are_left_out(now):
    held, ended = threading.Event(), threading.Event()

    def run(_words):
        assert held.wait(WAIT_S)
        ended.set()
        raise UnavailableError("kstat can't be run.")

    task_queues = queues(run, now)
    assert [task_queues.sample() for _ in range(3)] == [None] * 3
    held.set()
    assert ended.wait(WAIT_S)
    assert task_queues.sample() is None
    assert TaskQueues("").sample() is None
