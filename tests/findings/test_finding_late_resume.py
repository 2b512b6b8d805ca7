"""late-resume: a program that runs late after its I/O, and what looks like it and isn't."""

import pytest
from finding_cases import BEGIN_S, S, found, frame, hist, lasting, traced

from latmon.model.frame import Outlier, Thread, Wait
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.wakeups import Wakeups, by_thread

RULE = "late-resume"
FAST = (1000, {"hba": 90, "irq": 5, "resume": 20})
HOG = "rtlogger (prio 49)"
FIO = Thread(4711, "fio", "other", 120, kernel=False)


def late(us, ios, stage="resume"):
    return ios, {"hba": 90, "irq": 5, stage: us}


def recorded(us, ios):
    end_us = (BEGIN_S + 55) * S
    wait = Wait("resume", FIO.comm, FIO.pid, FIO.priority, end_us - us, us, HOG, us, 1, "other", "fifo")
    outlier = Outlier(
        float(BEGIN_S + 55), end_us - us, "sda", "read", us + 95, {"hba": 90, "resume": us}, waits=(wait,)
    )
    return (outlier,) * ios


def minute(load, outliers=(), threads=(), instead=HOG, in_time=1000):
    """`in_time`: the waiters of 5 s that run at once."""
    fast = (in_time, FAST[1])
    quiet = lasting(11, traced=traced("sda", (fast,)))
    delay = hist({20: 1000, 945_000: 1})
    rows = by_thread(Wakeups(thread, delay, {instead: 1}, {instead: 945_000}) for thread in threads)
    bad = frame(BEGIN_S + 55, traced=traced("sda", (fast, load)), outliers=outliers, tables={WAKEUPS: rows})
    return found(RULE, [*quiet, bad], kernel="6.18.0")


def test_the_thread_and_who_had_its_cpu_are_named():
    (one,) = minute(late(945_000, 12), recorded(945_000, 12), (FIO,))
    assert (one.severity, one.device, one.where.screen) == ("critical", "sda", "stages")
    assert one.summary == (
        "sda: fio ran up to 945 ms after the completion of 12 I/Os that it waited for, on CPU 1: rtlogger (prio 49) "
        "had its CPU"
    )
    facts = {fact.name: fact.text for fact in one.facts}
    assert facts["policy"] == "the policy of fio is SCHED_OTHER, nice 0"
    assert facts["cpu"] == "it waited longest for CPU 1"
    texts = " ".join(step.text for step in one.steps)
    assert "taskset -cp CPUS 4711" in texts
    assert "chrt -o -p 0 TID" in texts
    assert "smartctl" not in texts


def test_without_a_recorded_wait_the_latest_program_is_named():
    (one,) = minute(late(945_000, 12), threads=(FIO, Thread(12, "kworker/0:1H", "other", 100)))
    assert "sda: fio ran up to" in one.summary


def test_a_finding_without_a_thread_names_none():
    (one,) = minute(late(145_000, 60), in_time=50)
    assert one.severity == "notice"
    assert "programs ran up to 145 ms after the completion of 60 I/Os that they waited for" in one.summary


def test_a_busy_host_is_a_notice_and_no_ones_fault():
    (one,) = minute(late(945_000, 12), threads=(FIO,), instead="ruff (prio 120)", in_time=10)
    assert one.severity == "notice"
    assert one.summary.endswith("the CPUs are busy with programs of ordinary priority, ruff (prio 120)")
    texts = " ".join(step.text for step in one.steps)
    assert "no faster disk helps" in texts
    assert not any(word in texts for word in ("chrt", "taskset"))


def test_few_late_waiters_of_many_on_a_busy_host_are_no_harm():
    """A browser's threads ran up to 106 ms late after 25 of 9,937 I/Os, beside a program that computes."""
    assert minute(late(106_000, 25), threads=(FIO,), instead="ruff (prio 120)", in_time=800) == []


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(late(40, 12), id="the hog is on another CPU"),
        pytest.param(late(945_000, 5), id="few I/Os"),
        pytest.param(late(945_000, 12, "hba"), id="the device is slow"),
        pytest.param(late(945_000, 12, "worker"), id="a kernel thread is late"),
        pytest.param((12, {"hba": 2_000_000, "irq": 5, "resume": 20_000}), id="most of it is the device"),
    ],
)
def test_others_are_not_found(load):
    assert minute(load, threads=(FIO,)) == []
