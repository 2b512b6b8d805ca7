"""fsync-bound: programs that wait for syncs, and loads that only look like them."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, frame, hist

from latmon.findings.engine import not_evaluated
from latmon.model.frame import FileSeries, FileSystem, Series, Traced

RULE = "fsync-bound"
SDA = disk()
DATA = FileSystem("/data", "ext4", "sda")


def done(*rows, its=DATA):
    """(op, wait, operations, us of each) -> a frame's operations on files."""
    return {FileSeries(its.device, op, its.mount, its.kind, wait): hist({us: n}) for op, wait, n, us in rows}


def load(*rows, its=DATA, blocks=12):
    return [replace(frame(100 + 5 * at), files=done(*rows, its=its)) for at in range(blocks)]


SYNCS = (("fsync", "device", 100, 8_000), ("fsync", "unknown", 100, 12_000), ("write", "cached", 200, 20))


def test_what_syncs_take_and_what_they_wait_for():
    (one,) = found(RULE, load(*SYNCS), [SDA])
    assert one.summary == (
        "sda: >99% of the time of operations on files of /data is in 2,400 syncs, which take 10 ms in the mean"
    )
    facts = {fact.name: fact for fact in one.facts}
    assert facts["mount"].text == "file system: /data, ext4"
    assert facts["device_share"].value == pytest.approx(0.4, abs=0.01)
    assert facts["unknown_share"].value == pytest.approx(0.6, abs=0.01)
    assert facts["waiting"].value == pytest.approx(0.4, abs=0.01)
    assert "cached_share" not in facts
    assert (one.where.screen, one.where.device, one.severity) == ("files", "sda", "notice")


def test_the_file_system_that_waits_most_is_named_and_a_server_s_has_no_device():
    log = FileSystem("/log", "xfs", "sda")
    both = [replace(one, files={**one.files, **done(("fsync", "device", 300, 9_000), its=log)}) for one in load(*SYNCS)]
    (one,) = found(RULE, both, [SDA])
    assert "/log" in one.summary
    (one,) = found(RULE, load(*SYNCS, its=FileSystem("/net", "nfs4")), [SDA])
    assert one.summary.startswith(">99% of the time of operations on files of /net")
    assert one.device == ""


@pytest.mark.parametrize(("resume_us", "is_late"), [(30_000, True), (300, False)])
def test_where_threads_run_late_the_device_is_not_blamed(resume_us, is_late):
    stages = {"resume": resume_us, "total": 1_000}
    traced = Traced({Series("sda", "write", stage): hist({us: 100}) for stage, us in stages.items()}, one_in=1)
    (one,) = found(RULE, [replace(each, traced=traced) for each in load(*SYNCS)], [SDA])
    facts = {fact.name: fact for fact in one.facts}
    assert ("resume_us" in facts) is is_late
    steps = " ".join(step.what for step in one.steps)
    assert ("higher priority" in steps, "cache survives" in steps) == (is_late, not is_late)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((("fsync", "device", 100, 200), ("write", "cached", 100, 5)), id="fast"),
        pytest.param((("fsync", "device", 3, 9_000),), id="rare"),
        pytest.param((("fsync", "device", 20, 9_000),), id="of little of the time"),
        pytest.param((*SYNCS, ("read", "device", 900, 4_000)), id="reads take more"),
        pytest.param((("write", "device", 900, 9_000),), id="no sync"),
    ],
)
def test_no_finding(rows):
    assert found(RULE, load(*rows), [SDA]) == []


def test_a_burst_is_none():
    assert found(RULE, [*load(blocks=11), *load(("fsync", "device", 60, 9_000), blocks=1)], [SDA]) == []


def test_without_operations_it_is_not_evaluated():
    assert not_evaluated(facts_of([frame(100)], [SDA]))["files"] == (RULE,)
    assert "files" not in not_evaluated(facts_of(load(*SYNCS), [SDA]))
