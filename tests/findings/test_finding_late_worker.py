"""completion-wakeup on the stage `worker`: kernel threads that run late before they send or complete I/Os."""

from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, S, depths, facts_of, found, frame, hist, lasting, timed, together, traced

from latmon.findings.engine import evaluate_rules, unexplained
from latmon.findings.rule import DEFAULT
from latmon.findings.rules import completion_wakeup
from latmon.model.frame import Missing, Outlier, Thread, Wait
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
    outlier = Outlier(float(BEGIN_S + 55), end_us - us, "loop0", "read", us + 52, stages, waits=(wait,))
    return (outlier,) * ios


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
    assert "is a wait for kernel threads that were woken and not run, 145 ms on average; which ones" in one.summary


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


TOOL = "bpftrace (prio 110)"


def pool(ran_meanwhile):
    """Return the finding of a minute in which two workers of a pool were late: the second one while others ran."""
    often, once = Thread(78, "kworker/u8:15", "other", 120), KWORKER
    rows = (
        Wakeups(often, hist({20: 1000, 26_000: 10}), {TOOL: 10}, {TOOL: 260_000}),
        Wakeups(once, hist({20: 1000, 945_000: 1}), {HOG: 1}, ran_meanwhile),
    )
    outliers = (*recorded(26_000, 10, often), *recorded(945_000, 4, once))
    bad = frame(
        BEGIN_S + 55,
        traced=traced("loop0", (FAST, late(945_000, 8))),
        outliers=outliers,
        tables={WAKEUPS: by_thread(rows)},
    )
    return found(RULE, [*lasting(11, traced=traced("loop0", (FAST,))), bad], kernel="6.18.0")


def test_workers_of_a_pool_wait_for_each_others_cpus():
    """Most waits are short, for one worker and behind one program; most of the time is another one's."""
    (finding,) = pool({HOG: 945_000})
    assert finding.short == "loop0: up to 945 ms late: kworker/u8:8 was not run, rtlogger had its CPU"


def test_what_ran_for_less_than_half_of_the_waits_is_no_culprit_in_the_short_text():
    (finding,) = pool({HOG: 250_000, "audio (prio 79)": 240_000})
    assert "while bpftrace (prio 110), among others, had its CPU" in finding.summary
    assert finding.short == "loop0: up to 945 ms late: kworker/u8:8 was not run; the device took 30 us"


KSOFTIRQD = Thread(21, "ksoftirqd/1", "other", 120)
HALF = (8, {"queue": 2, "worker": 450_000, "hba": 50_000, "softirq": 440_000})


def half_each(culprit):
    """A minute whose slow I/Os waited for a worker, and as long for ksoftirqd while `culprit` ran."""
    rows = (
        Wakeups(KWORKER, hist({20: 1000, 450_000: 8}), {HOG: 8}, {HOG: 3_600_000}),
        Wakeups(KSOFTIRQD, hist({20: 1000, 440_000: 8}), {culprit: 8}, {culprit: 3_520_000}),
    )
    bad = frame(BEGIN_S + 55, traced=traced("loop0", (FAST, HALF)), tables={WAKEUPS: by_thread(rows)})
    return found(RULE, [*lasting(11, traced=traced("loop0", (FAST,))), bad], kernel="6.18.0")


def test_waits_of_worker_and_ksoftirqd_behind_one_program_are_taken_together():
    (one,) = half_each(HOG)
    assert one.summary.startswith("loop0: 95% of the time of I/Os above")
    assert "while rtlogger (prio 49) had its CPU; ksoftirqd waited behind the same program" in one.summary
    assert "with_softirq" in [fact.name for fact in one.facts]


def test_waits_behind_two_programs_are_not_taken_together():
    assert half_each("audio (prio 79)") == []


ABSENT = (Missing("worker", "needs tier A"),)
FAST_C = (1000, {"queue": 2, "hba": 30, "softirq": 20})


def tier_c(load, *, device="loop0", late_us=945_000, wakeups=12, thread=KWORKER, fast=FAST_C, outstanding=4):
    """Frames of a minute in which waits of workers are in queue and hba, and a thread was late."""
    values = {
        "traced": traced(device, (fast, load), absent=ABSENT),
        "histograms": timed(device, (fast, load)),
        "depths": {device: depths({0: 2500, outstanding: 2500})},
    }
    rows = (Wakeups(thread, hist({20: 1000, late_us: wakeups}), {HOG: wakeups}, {HOG: late_us * wakeups}),)
    return [*lasting(11, **values), frame(BEGIN_S + 55, **values, tables={WAKEUPS: by_thread(rows)})]


def stalled(us=945_000, ios=4, stage="hba"):
    """Four I/Os of each block that a stall of its worker holds."""
    return ios, {"queue": 2, "hba": 30, "softirq": 20} | {stage: us}


def test_tier_c_names_the_late_worker_and_says_that_it_cannot_split_its_wait():
    (finding,) = found(RULE, tier_c(stalled()), kernel="6.18.0")
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert "the kernel thread kworker/u8:8 (prio 120) was woken and ran up to" in finding.summary
    assert "later while rtlogger (prio 49) had its CPU, as long as its" in finding.summary
    facts = {fact.name: fact.text for fact in finding.facts}
    assert "not known: tier C has it in queue and hba" in facts["unsplit"]
    assert facts["instead_priority"].startswith("the priority of rtlogger is 49 (real time)")
    texts = " ".join(step.text for step in finding.steps)
    assert "chrt -o -p 0 TID" in texts
    assert not any(word in texts for word in ("smartctl", "nvme", "dmesg"))


def test_tier_c_leaves_out_what_the_late_worker_explains():
    frames = tier_c(stalled(ios=2), wakeups=24)
    findings = [finding for rule in evaluate_rules(facts_of(frames, kernel="6.18.0"), DEFAULT, {}) for finding in rule]
    assert "bimodal-tail" in [finding.id for finding in findings]
    left = [finding.id for finding in unexplained(findings)]
    assert RULE in left
    assert "bimodal-tail" not in left


@pytest.mark.parametrize(
    ("changed", "severity"),
    [
        pytest.param({"wakeups": 1, "outstanding": 1}, "notice", id="too few wake-ups for so many I/Os"),
        pytest.param({"fast": (10, {"queue": 2, "hba": 400_000, "softirq": 20})}, "notice", id="all I/Os are slow"),
    ],
)
def test_tier_c_a_late_worker_that_does_not_explain_the_ios_is_a_notice(changed, severity):
    (finding,) = found(RULE, tier_c(stalled(), **changed), kernel="6.18.0")
    assert finding.severity == severity
    assert "which may be a part of its" in finding.summary


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(tier_c(stalled(), late_us=40), id="the hog is on another CPU"),
        pytest.param(tier_c(stalled(), late_us=20_000, wakeups=400), id="slow disk, busy worker"),
        pytest.param(tier_c(stalled(us=90_000), late_us=720_000), id="late for longer than any I/O took"),
        pytest.param(tier_c(stalled(), thread=replace(KWORKER, comm="rcu_preempt")), id="another thread"),
        pytest.param(tier_c(stalled(), thread=replace(KWORKER, kernel=False, comm="grep")), id="a program"),
        pytest.param(tier_c(stalled(), device="nvme0n1"), id="no thread does its I/Os"),
        pytest.param(tier_c(stalled(stage="resume")), id="the program is late"),
    ],
)
def test_tier_c_others_are_not_found(frames):
    assert found(RULE, frames, kernel="6.18.0") == []


def test_tier_c_kblockd_late_is_found_where_ios_wait_in_the_queue():
    kblockd = replace(KWORKER, comm="kworker/1:1H", priority=100)
    (finding,) = found(RULE, tier_c(stalled(stage="queue"), device="nvme0n1", thread=kblockd), kernel="6.18.0")
    assert finding.severity == "warning"


def test_hosts_of_a_fleet_wait_for_workers_of_their_own():
    """Their workers have the same names: the devices of two hosts were one finding."""
    devices = ("db1:loop0", "db2:loop0")
    quiet = lasting(11, traced=together(*(traced(device, (FAST,)) for device in devices)))
    outliers = [replace(outlier, device=device) for device in devices for outlier in recorded(945_000, 8)]
    slow = together(*(traced(device, (FAST, late(945_000, 8))) for device in devices))
    frames = [*quiet, frame(BEGIN_S + 55, traced=slow, outliers=tuple(outliers))]
    assert [(finding.device, finding.also) for finding in found(RULE, frames, backend="fleet")] == [
        ("db1:loop0", ()),
        ("db2:loop0", ()),
    ]


def test_a_program_that_calls_itself_a_worker_is_none():
    thread = Thread(99, "kworker/u8:3", "other", 120, kernel=False)
    impostor = Wakeups(thread, hist({9: 1}), {HOG: 1}, {HOG: 9_000_000})
    facts = facts_of([frame(tables={WAKEUPS: by_thread((impostor,))})])
    assert completion_wakeup._rows_of(facts, "", "kworker/u8") == []
