"""slow-journal: who waits for syncs, the phase of a commit, whose data it waits for, and what is no finding."""

import pytest
from finding_cases import disk, done, facts_of, found, frame, hist, lasting

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import JOURNALS as INPUT
from latmon.findings.rules.slow_journal import ID
from latmon.model.frame import LOG_DEVICE, DeviceReport, Series
from latmon.model.measurements import DIRTIERS, JOURNALS, SYNCS
from latmon.model.measurements.dirtiers import Dirtied, Dirtier
from latmon.model.measurements.journals import Commits, Syncing, Syncs

MS = 1000
MB = 1_000_000


def journal(*waits, commits=None, written=0, blocks=12, devices=None, dirtied=None, **values):
    """Findings where each block of 5 s has these syncs: (process, syncs, ms waited)."""
    commits = Commits(5, 1 * MS, 200 * MS, 2300 * MS, 40) if commits is None else commits
    tables = {
        JOURNALS: {"sda": commits},
        SYNCS: {Syncing("sda", process): Syncs(n, ms * MS) for process, n, ms in waits},
        DIRTIERS: {Dirtier("sda", process): Dirtied(0, size) for process, size in (dirtied or {}).items()},
    }
    frames = lasting(blocks, tables=tables, kernel=done("sda", 100, "write", written // 100), **values)
    return found(ID, frames, devices or [disk()])


def test_a_program_that_waits_for_the_data_of_another_one():
    (finding,) = journal(("db/7", 5, 2600), ("sh/9", 1, 100), written=100 * MB)
    assert (finding.severity, finding.device) == ("warning", "sda")
    assert finding.summary == (
        "sda: db (pid 7) waits 520 ms for a sync: a commit of the journal takes 500 ms, "
        "while 19.1 MiB of files' data are written"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["logging_us"] == 460 * MS
    assert facts["flushing_us"] == 40 * MS
    assert facts["bytes_per_commit"] == 20 * MB
    assert finding.share == pytest.approx(0.52)
    assert any("data=writeback" in step.what for step in finding.steps)


def test_the_program_whose_data_a_commit_writes_is_named():
    (finding,) = journal(("db/7", 5, 2600), written=100 * MB, dirtied={"exportd/12": 90 * MB, "cron/3": MB})
    assert finding.summary.endswith("while 19.1 MiB of files' data are written, and exportd (pid 12) wrote the most")
    assert finding.short == "sda: a sync takes 520 ms: the journal writes exportd's data; db waits"
    steps = " ".join(f"{step.what}; {step.risk}" for step in finding.steps)
    assert "let exportd (pid 12) sync its files as it goes" in steps
    assert "exportd (pid 12) gets slower" in steps
    assert "the program that writes the large files" not in steps
    assert {fact.name: fact.value for fact in finding.facts}["writer"] == "exportd (pid 12)"


def test_a_program_that_waits_for_its_own_data():
    (finding,) = journal(("db/7", 5, 2600), written=100 * MB, dirtied={"db/7": 90 * MB})
    assert finding.summary.endswith("while 19.1 MiB of files' data are written, and it wrote the most")
    assert finding.short == "sda: a sync takes 520 ms: the journal writes db's data; db waits"
    steps = " ".join(step.what for step in finding.steps)
    assert "let db (pid 7) sync its files as it goes, or write them with O_DIRECT" in steps


def test_a_slow_device_whose_journal_is_all_that_it_writes():
    (finding,) = journal(("db/7", 5, 2600), written=400_000)
    assert "92% of it writing the journal" in finding.summary
    assert any("journal on another device" in step.what for step in finding.steps)


EXTERNAL = [disk(reports=(DeviceReport(LOG_DEVICE, "sdb", "/proc/fs/jbd2"),)), disk("sdb")]


@pytest.mark.parametrize(("log_us", "is_named"), [(160 * MS, True), (2 * MS, False)])
def test_a_journal_on_another_device(log_us, is_named):
    latencies = {Series(name, "write", "total"): hist({us: 20}) for name, us in (("sda", 300), ("sdb", log_us))}
    (finding,) = journal(("db/7", 5, 2600), written=400_000, histograms=latencies, devices=EXTERNAL)
    assert (finding.device, finding.also) == (("sdb", ("sda",)) if is_named else ("sda", ()))
    if is_named:
        assert finding.summary.startswith(
            "sdb: db (pid 7) waits 520 ms for a sync of sda: a commit of the journal takes"
        )
        assert finding.summary.endswith("on sdb, whose writes take 160 ms")
        assert {fact.name: fact.value for fact in finding.facts}["log_device"] == "sdb"
    steps = " ".join(step.what for step in finding.steps)
    assert "put the journal on another device" not in steps
    assert ("faster device than sdb" in steps) is is_named
    assert ("screen 2 on sdb" in steps) is not is_named


def test_a_slow_flush_of_the_files_device_is_named_and_not_the_journal_s():
    """A commit flushes the device of the files, too, where its journal is on another one."""
    latencies = {
        Series("sda", "write", "total"): hist({300: 20}),
        Series("sda", "flush", "total"): hist({400 * MS: 5}),
        Series("sdb", "write", "total"): hist({80 * MS: 20}),
    }
    (finding,) = journal(("db/7", 5, 2600), written=400_000, histograms=latencies, devices=EXTERNAL)
    assert (finding.device, finding.also) == ("sda", ())
    assert finding.summary.endswith(
        "a commit of the journal takes 500 ms, with flushes of the device's cache, 400 ms each"
    )


@pytest.mark.parametrize(("write_us", "names_flush"), [(500, True), (300_000, False)])
def test_a_cache_whose_flush_is_slow_is_named_and_not_the_data(write_us, names_flush):
    """Commits of a real volume whose flush took 140 ms; where writes are as slow, the flush is no cause of its own."""
    latencies = {Series("sda", op, "total"): hist({us: 20}) for op, us in (("flush", 300_000), ("write", write_us))}
    (finding,) = journal(("orders/7", 5, 2600), written=100 * MB, histograms=latencies)
    assert ("with flushes of the device's cache, 30" in finding.summary) == names_flush
    assert ("flush_us" in {fact.name for fact in finding.facts}) == names_flush
    assert ("files' data" in finding.summary) != names_flush


def test_a_commit_that_waits_for_an_operation():
    (finding,) = journal(("db/7", 5, 2600), commits=Commits(5, 2400 * MS, 10, 100 * MS, 40), written=100 * MB)
    assert "96% of it waiting for operations that had begun" in finding.summary
    assert any("truncate" in step.what for step in finding.steps)


def test_processes_of_one_name_are_one_program():
    (finding,) = journal(("git/7", 3, 1300), ("git/8", 2, 1300), written=100 * MB)
    assert finding.summary.startswith("sda: git waits 520 ms for a sync")


@pytest.mark.parametrize(
    "case",
    [
        {"waits": ()},  # commits by the timer
        {"waits": (("db/7", 5, 500),)},  # a tenth of the time
        {"waits": (("db/7", 100, 2600),), "commits": Commits(100, 0, 0, 2500 * MS, 800)},  # 25 ms, a good disk
        {"waits": (("db/7", 2, 2600),), "blocks": 1, "commits": Commits(2, 0, 0, 2500 * MS, 16)},  # a burst so far
    ],
)
def test_no_finding(case):
    waits = case.pop("waits")
    assert journal(*waits, written=100 * MB, **case) == []


def test_without_commits_the_rule_is_not_evaluated():
    assert ID in not_evaluated(facts_of([frame()]))[INPUT]
    traced = frame(tables={JOURNALS: {"sda": Commits(1, 0, 0, 5, 1)}})
    assert INPUT not in not_evaluated(facts_of([traced]))
