"""low-io-priority: programs of the idle class that wait in the scheduler's queue, and what is no harm."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from finding_cases import disk, done, facts_of, found, lasting, timed

from latmon.findings.engine import RuleEngine, not_evaluated, unexplained
from latmon.findings.rule import PRIORITIES, Finding, Where
from latmon.model.frame import Origin, Outlier
from latmon.model.measurements import IO_PRIORITIES, ISSUERS
from latmon.model.measurements.io_priorities import BEST_EFFORT, IDLE_CLASS, REAL_TIME, IoPriority, PriorityTime
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer

ID = "low-io-priority"
BACKUP = IoPriority("backup/7", IDLE_CLASS, 0)
SLOW = Outlier(
    1_700_000_100.0,
    100_000_000,
    "sda",
    "read",
    248_000,
    {"queue": 243_000, "hba": 5_000},
    pid=7,
    comm="backup",
    overtaken_by=203,
)
LOAD = timed("sda", ((4000, {"queue": 1000, "hba": 4000}), (20, {"queue": 243_000, "hba": 5_000})))
SHARED = {("sda", 7): 20, ("sda", 5): 4000, ("sdb", 7): 500_000}
"""The I/Os of backup, which copies from sda to sdb, and of another program on sda."""


def minute(*, outlier=SLOW, key=BACKUP, ios_of=None, blocks=12, outliers=(), moved=20, elsewhere=500_000):
    """`ios_of`: pid -> its I/Os of 4 kB on sda, as the table of processes has them, which is measured on demand.

    `moved`: I/Os of the process with the priority, on all devices; `elsewhere`: those of all programs on sdb.
    """
    tables = {IO_PRIORITIES: {key: PriorityTime(5_000_000, moved * 4096)}} if key else {}
    if ios_of is not None:
        tables[ISSUERS] = {
            Issuer(device, "read", "/", pid=pid, comm="name"): IssuedIO(ios, ios * 4096)
            for (device, pid), ios in ios_of.items()
        }
    return lasting(
        blocks,
        histograms=LOAD,
        kernel=done("sda", 4020) | done("sdb", elsewhere),
        outliers=(outlier,) * 3 + tuple(outliers),
        tables=tables,
    )


def of(frames, scheduler="bfq", **origin):
    return found(ID, frames, [disk("sda", {"scheduler": scheduler})], **origin)


@pytest.mark.parametrize("scheduler", ["bfq", "mq-deadline"])
def test_the_program_its_class_and_the_scheduler_are_named(scheduler):
    (finding,) = of(minute(ios_of=SHARED), scheduler)
    assert (finding.severity, finding.device) == ("warning", "sda")
    assert finding.summary == (
        f"sda: reads of backup (pid 7) wait 243 ms in the queue of {scheduler}, because its I/O priority is the idle "
        "class: 203 later I/Os are completed meanwhile"
    )
    assert finding.short == f"sda: backup waits 243 ms: I/O class idle in {scheduler}'s queue"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["others"] == ">99% of the bytes of sda are of other programs"
    assert finding.share == pytest.approx(3 * 243_000 / (4000 * 5_000 + 20 * 248_000), rel=0.1), (
        "of the I/O time of sda"
    )
    assert [step.commands for step in finding.steps] == [("ionice -p 7",), ("ionice -c2 -n4 -p 7",), ()]


def test_a_low_level_of_best_effort_counts_under_bfq_alone():
    low = minute(key=IoPriority("backup/7", BEST_EFFORT, 7))
    (finding,) = of(low)
    assert "its I/O priority is best-effort 7 of 7" in finding.summary
    assert of(low, "mq-deadline") == []


DUMPER = IoPriority("dumper/9", REAL_TIME, 0)
VICTIM = replace(SLOW, comm="mongod", pid=5)
MOST = {("sda", 9): 4000, ("sda", 5): 20}


@pytest.mark.parametrize("scheduler", ["bfq", "mq-deadline"])
def test_a_program_of_the_real_time_class_is_named_by_those_that_wait_behind_it(scheduler):
    (finding,) = of(minute(outlier=VICTIM, key=DUMPER, ios_of=MOST), scheduler)
    assert finding.summary == (
        f"sda: reads of mongod (pid 5) wait 243 ms in the queue of {scheduler}, because dumper (pid 9) has the I/O "
        "class real-time: 203 later I/Os are completed meanwhile"
    )
    assert finding.short == f"sda: mongod waits 243 ms: dumper is real-time in {scheduler}'s queue"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["behind"] == "dumper/9 has the I/O class real-time, level 0"
    assert facts["behind_share"] == ">99% or more of the bytes of sda are of dumper/9"
    assert facts["process"] == "mongod/5 has the usual I/O priority"
    assert finding.share == pytest.approx(3 * 243_000 / (4000 * 5_000 + 20 * 248_000), rel=0.1)


@pytest.mark.parametrize(("elsewhere", "fires"), [(1000, True), (3000, False)])
def test_where_processes_are_not_measured_the_rest_of_the_bytes_must_be_the_device_s(elsewhere, fires):
    frames = minute(outlier=VICTIM, key=DUMPER, moved=4000, elsewhere=elsewhere)
    disks = [disk("sda", {"scheduler": "mq-deadline"}), disk("sdb")]
    findings = found(ID, frames, disks)
    assert bool(findings) is fires
    for finding in findings:
        assert "75% or more of the bytes of sda are of dumper/9" in [fact.text for fact in finding.facts]


def test_the_steps_about_a_program_of_the_real_time_class():
    (finding,) = of(minute(outlier=VICTIM, key=DUMPER, ios_of=MOST))
    assert [step.commands for step in finding.steps] == [("ionice -p 9",), ("ionice -c2 -n4 -p 9",), ()]
    assert finding.steps[0].what.startswith("ask whether dumper needs the real-time class")
    assert finding.steps[1].risk == "its own I/Os wait like those of others; undone by `ionice -c1 -n0 -p 9`"
    assert finding.refuted_by == "the waits stay after that program has the usual priority (`ionice -c2 -n4`)"


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(
            minute(outlier=VICTIM, key=DUMPER, ios_of={("sda", 9): 100, ("sda", 5): 3920}), id="it does little"
        ),
        pytest.param(
            minute(outlier=VICTIM, key=DUMPER, ios_of={("sdb", 9): 500_000, ("sda", 5): 4020}), id="on another device"
        ),
        pytest.param(minute(outlier=VICTIM, key=DUMPER), id="its bytes on the device are not known"),
        pytest.param(minute(outlier=replace(SLOW, pid=9), key=DUMPER, ios_of=MOST), id="its own I/Os wait"),
        pytest.param(minute(outlier=replace(VICTIM, overtaken_by=0), key=DUMPER, ios_of=MOST), id="all wait"),
    ],
)
def test_a_program_of_the_real_time_class_that_does_no_harm(frames):
    assert of(frames) == []


def waiting(ms):
    """Seventeen slow reads of a program of the usual priority, which wait so long in the queue."""
    stages_us = {"queue": ms * 1000, "hba": 250_000 - ms * 1000}
    return (replace(VICTIM, total_us=250_000, stages_us=stages_us),) * 17


def test_where_the_usual_priority_waits_as_long_it_is_not_the_priority():
    job = minute(key=IoPriority("backup/7", BEST_EFFORT, 6), outliers=waiting(243))
    assert of(job) == []


def test_where_the_usual_priority_waits_clearly_less_it_is_the_priority():
    (finding,) = of(minute(key=IoPriority("backup/7", BEST_EFFORT, 6), outliers=waiting(100)))
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["usual_us"] == "slow I/Os of the usual priority wait there for 100 ms on average"


def test_slow_writes_of_others_say_nothing_about_reads():
    writes = tuple(replace(outlier, op="write") for outlier in waiting(243))
    assert len(of(minute(outliers=writes))) == 1


def test_it_is_known_early_where_it_was_so_from_the_start():
    assert len(of(minute(blocks=2))) == 1


def test_without_a_process_s_bytes_on_the_device_the_overtaken_count():
    (finding,) = of(minute())
    assert "others" not in {fact.name for fact in finding.facts}
    assert of(minute(outlier=replace(SLOW, overtaken_by=None))) == []


def test_where_it_is_not_known_which_were_overtaken_the_bytes_count():
    (finding,) = of(minute(outlier=replace(SLOW, overtaken_by=None), ios_of=SHARED))
    assert finding.summary.endswith("others' I/Os are completed meanwhile")


@pytest.mark.parametrize(
    ("frames", "scheduler"),
    [
        pytest.param(minute(), "none", id="no scheduler"),
        pytest.param(minute(), "kyber", id="a scheduler that heeds no priority"),
        pytest.param(minute(key=None), "bfq", id="the usual priority"),
        pytest.param(minute(key=BACKUP._replace(process="other/8")), "bfq", id="another process"),
        pytest.param(minute(ios_of={("sda", 7): 3500, ("sda", 5): 520}), "bfq", id="hardly any other I/O"),
        pytest.param(minute(outlier=replace(SLOW, overtaken_by=3)), "bfq", id="others wait as long"),
        pytest.param(
            minute(outlier=replace(SLOW, stages_us={"queue": 5_000, "hba": 243_000})), "bfq", id="the device is slow"
        ),
        pytest.param(minute(outlier=replace(SLOW, stages_us={})), "bfq", id="stages are not known"),
        pytest.param([*minute(outlier=replace(SLOW, pid=8))[:11], minute(blocks=12)[11]], "bfq", id="a burst"),
    ],
)
def test_others_are_not_found(frames, scheduler):
    assert of(frames, scheduler) == []


def test_of_a_fleet_the_name_must_be_the_same():
    """Another host may have a process of the same number."""
    outlier = replace(SLOW, device="db1:sda", comm="postgres")
    frames = lasting(12, histograms=timed("db1:sda", ((100, {"queue": 1000}),)), outliers=(outlier,) * 3)
    frames = [replace(frame, tables=minute()[0].tables) for frame in frames]
    device = disk("db1:sda", {"scheduler": "bfq"})
    assert found(ID, frames, [device], backend="fleet") == []
    frames = [replace(frame, outliers=(replace(outlier, comm="backup"),) * 3) for frame in frames]
    assert len(found(ID, frames, [device], backend="fleet")) == 1


def test_that_priorities_are_read_is_an_input():
    assert ID in not_evaluated(facts_of(lasting(2)))[PRIORITIES]
    assert PRIORITIES not in not_evaluated(facts_of(lasting(2), counted=(IO_PRIORITIES.name,)))


def test_it_explains_a_starved_io():
    (finding,) = of(minute())
    starved = Finding("starved-io", "warning", "sda", "sda: x", (), Where("outliers", "sda"), (), "", 1.0)
    assert [kept.id for kept in unexplained((starved, finding))] == [ID]


def test_what_it_explains_is_not_kept_beside_it():
    """Starved I/Os are found before: that finding stood on the first screen for a minute as one of an earlier time."""
    (finding,) = of(minute())
    starved = Finding("starved-io", "warning", "sda", "sda: x", (), Where("outliers", "sda"), (), "", 1.0)
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0"))
    engine.take(lasting(1)[0])
    engine._log = SimpleNamespace(kept=lambda _: (SimpleNamespace(last=starved),))
    assert len(engine.kept) == 1
    engine.current = (finding,)
    assert engine.kept == ()
