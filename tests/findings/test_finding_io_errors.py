"""io-errors: reads, writes and flushes that fail, and statuses that are no failures."""

from dataclasses import replace

import pytest
from finding_cases import disk, done, facts_of, found, frame, lasting, timed

from latmon.findings.engine import RuleEngine, not_evaluated
from latmon.findings.rule import ERRORS as INPUT
from latmon.findings.rules.io_errors import ID
from latmon.model.frame import Mark, Origin, Outlier
from latmon.model.measurements import ERRORS, FAILED_BY
from latmon.model.measurements.errors import FailedBy, FailedIO, status_name

COUNTED = (ERRORS.name,)


def failing(*rows, blocks=12, ops=("read", "write"), by=None, outliers=()):
    """Findings about a device of which so many I/Os fail in each block, beside 50 reads and writes that don't.

    `rows`: (op, status, I/Os); `by`: (op, status, cgroup) -> I/Os.
    """
    failed = {FailedIO("sda", op, status): ios for op, status, ios in rows}
    kernel, histograms = {}, {}
    for op in {*ops, *(row.op for row in failed)}:
        of_op = sum(ios for row, ios in failed.items() if row.op == op)
        kernel |= done("sda", 50 + of_op, op)
        histograms |= timed("sda", ((50, {"hba": 900}),), op)
    healthy = {"kernel": kernel | done("sdb", 50), "histograms": histograms | timed("sdb", ((50, {"hba": 900}),))}
    failed_by = {FailedBy("sda", *key): ios for key, ios in (by or {}).items()}
    frames = lasting(blocks, tables={ERRORS: failed, FAILED_BY: failed_by}, outliers=outliers, **healthy)
    return found(ID, frames, [disk(), disk("sdb")], counted=COUNTED)


def test_failed_reads_and_writes_are_critical_and_have_their_statuses():
    (finding,) = failing(("read", "I/O error", 4), ("read", "time-out", 1), ("write", "no space", 10))
    assert (finding.severity, finding.device) == ("critical", "sda")
    assert finding.summary == (
        "sda: 60 of 660 reads failed (I/O error 48, time-out 12), 120 of 720 writes failed (no space)"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["write_failed"] == 120
    assert facts["left_out"] == 180
    assert facts["still_failed"] == 15
    assert finding.share == pytest.approx(180 / 1380)


def test_whose_ios_they_are_is_said():
    mongod = Outlier(1_700_000_100.0, 1, "sda", "read", 30_000_000, pid=7, comm="mongod", status="time-out")
    sent_again = replace(mongod, status=status_name(11), comm="mpathd")
    outliers = (mongod, replace(mongod, status="", comm="sh"), sent_again)
    by = {("read", "time-out", "/db"): 3, ("read", "time-out", "/"): 1, ("read", status_name(11), "/dm"): 50}
    (finding,) = failing(("read", "time-out", 4), by=by, outliers=outliers, blocks=2)
    assert finding.summary == "sda: 8 of 108 reads failed (time-out); 6 failed I/Os of cgroup /db"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["cgroup_2"] == "cgroup /: 2 failed I/Os"
    assert "cgroup_3" not in facts, "what dm sends again is no failure"
    assert facts["process_1"] == "mongod/7 issued 2 slow I/Os that failed"
    assert "process_2" not in facts, "nor of a process"
    assert "process_2" not in facts


def test_the_root_cgroup_says_no_more():
    (finding,) = failing(("read", "time-out", 4), by={("read", "time-out", "/"): 4}, blocks=1)
    assert finding.summary == "sda: 4 of 54 reads failed (time-out)"


def test_one_failed_flush_is_enough():
    (finding,) = failing(("flush", "I/O error", 1), blocks=1)
    assert (finding.severity, finding.summary) == ("critical", "sda: 1 of 51 flushes failed (I/O error)")


def test_another_op_is_a_warning():
    (finding,) = failing(("discard", "I/O error", 2))
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("op", "status"),
    [
        ("read", status_name(11)),  # dm sends it again
        ("read", status_name(12)),  # NOWAIT
        ("discard", "not supported"),
        ("other", "not supported"),
    ],
)
def test_what_is_no_failure_is_no_finding(op, status):
    assert failing((op, status, 5)) == []


def test_a_write_that_the_device_does_not_support_failed():
    assert [finding.severity for finding in failing(("write", "not supported", 5))] == ["critical"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("no space", "make room"),
        ("time-out", "the way to the device"),
        ("reservation conflict", "the host that holds a reservation"),
        ("medium error", "copy what is not in a backup"),
        ("status 17", "copy what is not in a backup"),
    ],
)
def test_the_step_is_that_of_the_status(status, words):
    (finding,) = failing(("read", status, 5))
    assert finding.steps[0].commands == ("dmesg | tail -n 50",)
    assert any(words in step.what for step in finding.steps[1:])
    assert len(finding.steps) == 2


def test_the_kernels_newest_line_is_quoted_beside_the_step_to_read_them_all():
    failed = {FailedIO("sda", "read", "I/O error"): 3}
    frames = lasting(2, tables={ERRORS: failed}, kernel=done("sda", 3))
    last = frames[-1]
    lines = [Mark(f"I/O error, dev sda, sector {n}", last.mono_us, last.wall - 20 + n, device="sda") for n in (1, 8)]
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0", counted=COUNTED), (disk(),))
    for one in (frames[0], replace(last, marks=(*lines, Mark("a note of the user", last.mono_us, last.wall)))):
        engine.take(one)
    engine.finish()
    (finding,) = engine.current
    assert finding.facts[-1].text == "the kernel's log, 12 s ago: I/O error, dev sda, sector 8"
    assert finding.steps[0].commands == ("dmesg | tail -n 50",)


@pytest.mark.parametrize(
    ("returned", "is_quoted"),
    [(None, True), (disk(serial="A"), True), (disk(serial="B"), False), (disk(), False)],
)
def test_the_log_of_a_removed_disk_is_quoted_until_its_name_is_another_ones(returned, is_quoted):
    failed = {FailedIO("sda", "read", "I/O error"): 3}
    frames = lasting(3, tables={ERRORS: failed}, kernel=done("sda", 3))
    line = Mark("I/O error, dev sda, sector 8", frames[0].mono_us, frames[0].wall, device="sda")
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0", counted=COUNTED), (disk(serial="A"),))
    engine.take(replace(frames[0], marks=(line,)))
    engine.take(replace(frames[1], removed=("sda",)))
    engine.take(replace(frames[2], devices=() if returned is None else (returned,)))
    engine.finish()
    (finding,) = engine.current
    assert ("kernel_log" in {fact.name for fact in finding.facts}) is is_quoted


def test_a_line_of_long_ago_or_about_another_device_is_not_quoted():
    failed = {FailedIO("sda", "read", "I/O error"): 3}
    first, last = lasting(2, tables={ERRORS: failed}, kernel=done("sda", 3))
    lines = Mark("old", first.mono_us, first.wall - 700, device="sda"), Mark("other", 0, first.wall, device="sdb")
    engine = RuleEngine(Origin("test", "here", "6.1.0", "0", counted=COUNTED), (disk(),))
    engine.take(replace(first, marks=lines))
    engine.take(last)
    engine.finish()
    (finding,) = engine.current
    assert "kernel_log" not in {fact.name for fact in finding.facts}
    assert finding.steps[0].commands == ("dmesg | tail -n 50",)


def test_a_device_whose_ios_all_fail_has_no_latency_and_its_finding():
    frames = lasting(2, tables={ERRORS: {FailedIO("sda", "read", "offline"): 3}}, kernel=done("sda", 3))
    (finding,) = found(ID, frames, [disk()], counted=COUNTED)
    assert (finding.summary, finding.share) == ("sda: 6 of 6 reads failed (offline)", 1.0)


def test_without_counts_of_failed_ios_the_rule_is_not_evaluated():
    load = {"histograms": timed("sda", ((50, {"hba": 900}),))}
    assert ID in not_evaluated(facts_of([frame(**load)]))[INPUT]
    assert INPUT not in not_evaluated(facts_of([frame(**load)], counted=COUNTED))
    assert failing() == []


def test_failures_are_a_part_of_what_the_probe_counted_not_the_kernel():
    """The two are read at different times: 5 of 15 reads had failed, and 5 of 6 were reported."""
    failed = {FailedIO("sda", "read", "I/O error"): 5}
    frames = lasting(1, tables={ERRORS: failed}, seen=done("sda", 15), kernel=done("sda", 6))
    (finding,) = found(ID, frames, [disk()], counted=COUNTED)
    assert finding.summary.startswith("sda: 5 of 15 reads failed")


def test_an_op_of_a_later_release_fails_as_the_others_do():
    findings = failing(("read", "I/O error", 4), ("append", "I/O error", 1))
    assert "sda: 48 of" in findings[0].summary
    assert "appends failed" in findings[0].summary
