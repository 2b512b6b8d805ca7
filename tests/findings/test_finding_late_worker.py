"""completion-wakeup on the stage `worker`: kernel threads that run late before they send or complete I/Os."""

from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, S, found, frame, hist, lasting, traced

from latmon.model.frame import Outlier, Thread, Wait
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.wakeups import Wakeups, by_thread

RULE = "completion-wakeup"
FAST = (1000, {"queue": 2, "hba": 30, "softirq": 20})
HOG = "rtlogger (prio 49)"
KWORKER = Thread(77, "kworker/u8:8", "other", 120)


def late(us, ios, stage="worker"):
    return ios, {"queue": 2, stage: us, "hba": 30, "softirq": 20}


def recorded(us, ios, thread=KWORKER):
    """`ios` outliers that waited for one wake-up of a thread."""
    end_us = (BEGIN_S + 55) * S
    wait = Wait("worker", thread.comm, thread.pid, thread.priority, end_us - us, us, HOG, us, 1, "other", "fifo")
    stages = {"queue": 2, "worker": us, "hba": 30, "softirq": 20}
    one = Outlier(float(BEGIN_S + 55), end_us - us, "loop0", "read", us + 52, stages, waits=(wait,))
    return (one,) * ios


def minute(load, outliers=(), thread=None):
    """A minute whose last block has this load."""
    quiet = lasting(11, traced=traced("loop0", (FAST,)))
    rows = () if thread is None else (Wakeups(thread, hist({20: 1000, 945_000: 1}), {HOG: 1}, {HOG: 945_000}),)
    bad = frame(
        BEGIN_S + 55,
        traced=traced("loop0", (FAST, load)),
        outliers=outliers,
        tables={WAKEUPS: by_thread(rows)},
    )
    return found(RULE, [*quiet, bad], kernel="6.18.0")


def test_the_thread_its_cpu_and_who_ran_there_are_named():
    (one,) = minute(late(945_000, 8), recorded(945_000, 8), KWORKER)
    assert (one.severity, one.device, one.where.screen) == ("critical", "loop0", "stages")
    assert "is a wait for the kernel thread kworker/u8:8 (prio 120), which was woken and ran up to 945 ms later" in (
        one.summary
    )
    assert "later on CPU 1 while rtlogger (prio 49) had its CPU" in one.summary
    facts = {fact.name: fact.text for fact in one.facts}
    assert facts["thread"] == "kworker/u8:8 sends or completes them"
    assert facts["policy"] == "its policy is SCHED_OTHER, nice 0"
    assert facts["cpu"] == "it waited longest for CPU 1"
    assert facts["instead_policy"] == "the policy of rtlogger is SCHED_FIFO 50"
    assert all(step.risk for step in one.steps)
    texts = " ".join(step.text for step in one.steps)
    assert "chrt -o -p 0 TID" in texts
    assert "/sys/devices/virtual/workqueue/cpumask" in texts
    assert not any(word in texts for word in ("smartctl", "nvme", "chrt -f"))


def test_a_worker_of_one_cpu_is_not_moved_by_the_mask_of_unbound_ones():
    bound = replace(KWORKER, comm="kworker/1:4")
    (one,) = minute(late(945_000, 8), recorded(945_000, 8, bound), bound)
    assert "workqueue" not in " ".join(step.text for step in one.steps)


def test_without_a_recorded_wait_the_latest_worker_is_named():
    (one,) = minute(late(945_000, 8), thread=KWORKER)
    assert "the kernel thread kworker/u8:8 (prio 120)" in one.summary
    assert "instead_policy" not in [fact.name for fact in one.facts]


def test_a_measured_wait_is_a_warning_where_no_thread_is_known():
    (one,) = minute(late(145_000, 8))
    assert one.severity == "warning"
    assert "is a wait for kernel threads that were woken and not run, 145 ms in the mean; which ones" in one.summary


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(late(40, 8), id="the hog is on another CPU"),
        pytest.param(late(945_000, 2), id="too few"),
        pytest.param(late(945_000, 8, "hba"), id="the device is slow"),
        pytest.param(late(945_000, 8, "queue"), id="they wait in the queue"),
        pytest.param(late(945_000, 8, "resume"), id="the program is late"),
    ],
)
def test_others_are_not_found(load):
    assert minute(load, thread=KWORKER) == []
