"""slow-log-device: syncs that wait for a log on another device, and those that wait for something else."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, hist, lasting

from latmon.findings.engine import unexplained
from latmon.findings.rule import DEFAULT
from latmon.findings.rules import fsync_bound, slow_log_device
from latmon.model.frame import LOG_DEVICE, Completed, DeviceReport, Flow, Series
from latmon.model.measurements import FILE_TIMES, FILES
from latmon.model.measurements.files import FilePart, FileSeries

MS, S = 1000, 1_000_000
RULE = slow_log_device.ID
DEVICES = (disk(reports=(DeviceReport(LOG_DEVICE, "sdb", "/proc/self/mountinfo"),)), disk("sdb"))


def syncing(
    *,
    sync_us=44 * MS,
    syncs=95,
    log_us=25 * MS,
    flush_us=300,
    data_us=300,
    data_flush_us=200,
    data_flushes=95,
    journal=0.9,
    host="",
    blocks=12,
    log_ios=190,
):
    """Frames of a file system on sda with its log on sdb, as of the incident that was measured."""
    data, log = f"{host}sda", f"{host}sdb"
    times = (
        {} if journal is None else {FilePart(data, "fsync", "/data", "xfs", "journal"): int(journal * sync_us * syncs)}
    )
    return lasting(
        blocks,
        tables={
            FILES: {FileSeries(data, "fsync", "/data", "xfs", "unknown"): hist({sync_us: syncs})},
            FILE_TIMES: times,
        },
        histograms={
            Series(data, "write", "total"): hist({data_us: 500}),
            Series(data, "flush", "total"): hist({data_flush_us: data_flushes}),
            Series(log, "write", "total"): hist({log_us: log_ios}),
            Series(log, "flush", "total"): hist({flush_us: log_ios}),
        },
        kernel={Flow(log, "write"): Completed(log_ios, log_ios * 4096, min(5 * S, log_ios * log_us))},
    )


def test_the_device_of_the_log_is_named_and_not_that_of_the_files():
    (finding,) = found(RULE, syncing(), DEVICES)
    assert (finding.device, finding.also, finding.severity) == ("sdb", ("sda",), "warning")
    assert finding.summary == (
        "sdb: syncs of /data (xfs on sda) take 44 ms: they wait for its log on sdb, whose writes take 25 ms"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["log_device"] == "sdb"
    assert facts["log_write_us"] == 25 * MS
    assert facts["data_write_us"] == 300
    assert facts["log_busy"] == pytest.approx(0.95)
    assert facts["log_share"] == pytest.approx(0.9, abs=0.001)
    assert facts["waiting"] == pytest.approx(0.84, abs=0.01)
    assert (finding.where.device, finding.where.op) == ("sdb", "write")


def test_it_explains_that_programs_wait_for_syncs():
    facts = facts_of(syncing(), DEVICES)
    rules = (fsync_bound.RULE, slow_log_device.RULE)
    findings = [finding for rule in rules for finding in rule.evaluate(facts, DEFAULT.of(rule))]
    assert {finding.id for finding in findings} == {"fsync-bound", RULE}
    assert [finding.id for finding in unexplained(findings)] == [RULE]


def test_a_flush_may_be_what_is_slow():
    (finding,) = found(RULE, syncing(log_us=400, flush_us=20 * MS), DEVICES)
    assert finding.summary.endswith("whose flushes take 20 ms")


def test_where_the_syncs_time_is_not_split():
    (finding,) = found(RULE, syncing(journal=None), DEVICES)
    assert "log_share" not in {fact.name for fact in finding.facts}


def test_the_devices_of_a_fleet_have_their_host_in_front():
    reports = (DeviceReport(LOG_DEVICE, "sdb", "/proc/self/mountinfo"),)
    devices = (disk("db1:sda", reports=reports), disk("db1:sdb"), disk("sdb"))
    (finding,) = found(RULE, syncing(host="db1:"), devices, backend="fleet")
    assert (finding.device, finding.also) == ("db1:sdb", ("db1:sda",))


@pytest.mark.parametrize(
    "load",
    [
        pytest.param({"log_us": 400, "sync_us": 2 * MS}, id="the log is fast"),
        pytest.param({"log_us": 400}, id="the log is fast, and the syncs wait for something else"),
        pytest.param({"data_us": 20 * MS}, id="the files' device is as slow"),
        pytest.param({"data_flush_us": 20 * MS}, id="the files' device flushes as slowly"),
        pytest.param({"journal": 0.2}, id="most of the time is no wait for the log"),
        pytest.param({"syncs": 15}, id="little of the time"),
        pytest.param({"sync_us": 400 * MS}, id="a log's write is a small part of a sync"),
    ],
)
def test_no_finding(load):
    assert found(RULE, syncing(**load), DEVICES) == []


def test_a_slow_flush_that_comes_once_is_no_proof():
    """One flush of 60 ms in a minute of syncs that take 40 ms, whose log writes take 0.2 ms."""
    frames = syncing(sync_us=40 * MS, log_us=200, journal=None)
    flushes = {Series("sdb", "flush", "total"): hist({60 * MS: 1})}
    flushless = {Series("sdb", "flush", "total"): hist({})}
    frames = [
        replace(frame, histograms=frame.histograms | (flushes if at == 3 else flushless))
        for at, frame in enumerate(frames)
    ]
    assert found(RULE, frames, DEVICES) == []


def test_few_slow_writes_of_a_log_are_not_those_of_the_syncs():
    assert found(RULE, syncing(log_ios=30, log_us=44 * MS), DEVICES) == []


def test_a_slow_flush_of_the_files_device_that_comes_seldom_says_nothing():
    (finding,) = found(RULE, syncing(data_flush_us=400 * MS, data_flushes=1), DEVICES)
    assert "data_flush_us" not in {fact.name for fact in finding.facts}


def test_a_write_of_the_log_serves_all_syncs_that_wait():
    """32 threads that sync: a sync waits for two writes of the log, which end the syncs of the others, too."""
    (finding,) = found(RULE, syncing(sync_us=50 * MS, syncs=3200, log_us=25 * MS), DEVICES)
    assert finding.device == "sdb"


def test_a_log_beside_its_files_is_none():
    assert found(RULE, syncing(), (disk(), disk("sdb"))) == []
