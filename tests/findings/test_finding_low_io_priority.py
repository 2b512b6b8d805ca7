"""low-io-priority: programs of the idle class that wait in the scheduler's queue, and what is no harm."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from finding_cases import disk, done, facts_of, found, lasting, timed

from latmon.findings.engine import RuleEngine, not_evaluated, unexplained
from latmon.findings.rule import PRIORITIES, Finding, Where
from latmon.model.frame import Origin, Outlier
from latmon.model.measurements import IO_PRIORITIES
from latmon.model.measurements.io_priorities import BEST_EFFORT, IDLE_CLASS, REAL_TIME, IoPriority, PriorityTime

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
OTHERS_BYTES = 4020 * 4096


def minute(*, outlier=SLOW, key=BACKUP, io_bytes=20 * 4096, blocks=12, ios=4020):
    tables = {IO_PRIORITIES: {key: PriorityTime(5_000_000, io_bytes)}} if key else {}
    return lasting(blocks, histograms=LOAD, kernel=done("sda", ios), outliers=(outlier,) * 3, tables=tables)


def of(frames, scheduler="bfq", **origin):
    return found(ID, frames, [disk("sda", {"scheduler": scheduler})], **origin)


@pytest.mark.parametrize("scheduler", ["bfq", "mq-deadline"])
def test_the_program_its_class_and_the_scheduler_are_named(scheduler):
    (finding,) = of(minute(), scheduler)
    assert (finding.severity, finding.device) == ("warning", "sda")
    assert finding.summary == (
        f"sda: reads of backup (pid 7) wait 243 ms in the queue of {scheduler}, because its I/O priority is the idle "
        "class: 203 later I/Os are completed meanwhile"
    )
    assert finding.short == f"sda: backup waits 243 ms: I/O class idle in {scheduler}'s queue"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["others"] == ">99% of the bytes of sda are of other programs"
    assert [step.commands for step in finding.steps] == [("ionice -p 7",), ("ionice -c2 -n4 -p 7",), ()]


def test_a_low_level_of_best_effort_counts_under_bfq_alone():
    low = minute(key=IoPriority("backup/7", BEST_EFFORT, 7))
    (finding,) = of(low)
    assert "its I/O priority is best-effort 7 of 7" in finding.summary
    assert of(low, "mq-deadline") == []


DUMPER = IoPriority("dumper/9", REAL_TIME, 0)


@pytest.mark.parametrize("scheduler", ["bfq", "mq-deadline"])
def test_a_program_of_the_real_time_class_is_named_by_those_that_wait_behind_it(scheduler):
    victim = replace(SLOW, comm="mongod", pid=5)
    (finding,) = of(minute(outlier=victim, key=DUMPER, io_bytes=4000 * 4096), scheduler)
    assert finding.summary == (
        f"sda: reads of mongod (pid 5) wait 243 ms in the queue of {scheduler}, because dumper (pid 9) has the I/O "
        "class real-time: 203 later I/Os are completed meanwhile"
    )
    assert finding.short == f"sda: mongod waits 243 ms: dumper is real-time in {scheduler}'s queue"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["others"] == ">99% of the bytes of sda are that program's"
    assert [step.commands for step in finding.steps] == [("ionice -p 9",), ("ionice -c2 -n4 -p 9",), ()]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(minute(key=DUMPER, io_bytes=100 * 4096), id="it does little"),
        pytest.param(minute(outlier=replace(SLOW, pid=9), key=DUMPER, io_bytes=4000 * 4096), id="its own I/Os wait"),
        pytest.param(minute(outlier=replace(SLOW, overtaken_by=0), key=DUMPER, io_bytes=4000 * 4096), id="all wait"),
    ],
)
def test_a_program_of_the_real_time_class_that_does_no_harm(frames):
    assert of(frames) == []


def test_it_is_known_early_where_it_was_so_from_the_start():
    assert len(of(minute(blocks=2))) == 1


def test_without_a_process_s_bytes_the_overtaken_count():
    (finding,) = of(minute(io_bytes=0))
    assert "others" not in {fact.name for fact in finding.facts}
    assert of(minute(io_bytes=0, outlier=replace(SLOW, overtaken_by=None))) == []


def test_where_it_is_not_known_which_were_overtaken_the_bytes_count():
    (finding,) = of(minute(outlier=replace(SLOW, overtaken_by=None)))
    assert finding.summary.endswith("others' I/Os are completed meanwhile")


@pytest.mark.parametrize(
    ("frames", "scheduler"),
    [
        pytest.param(minute(), "none", id="no scheduler"),
        pytest.param(minute(), "kyber", id="a scheduler that heeds no priority"),
        pytest.param(minute(key=None), "bfq", id="the usual priority"),
        pytest.param(minute(key=BACKUP._replace(process="other/8")), "bfq", id="another process"),
        pytest.param(minute(io_bytes=3500 * 4096), "bfq", id="hardly any other I/O"),
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
