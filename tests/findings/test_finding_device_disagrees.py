"""device-disagrees: a slow device that reports errors, a bad state or a degraded link; and what is no such thing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, disk, frame, timed

from latmon.findings.engine import RuleEngine
from latmon.findings.facts import ReportGrowth
from latmon.findings.rule import NOTICE, WARNING
from latmon.model.frame import DeviceReport, Origin

S = 1_000_000
SLOW, FAST = ((180, {"hba": 1_000}), (20, {"hba": 40_000})), ((200, {"hba": 900}),)


def reporting(device=None, **values):
    """A device that reports these values."""
    device_reports = tuple(DeviceReport(name, value, f"device/{name}") for name, value in values.items())
    return replace(device or disk(), reports=device_reports)


def findings(*rows, load=SLOW, minutes=2, also=()):
    """Return the findings after some minutes; `rows`: rows of the device, each in its minute; `also`: other devices."""
    engine = RuleEngine(Origin("test", "here", "6.1", "0", interval_us=5 * S, start_mono_us=BEGIN_S * S))
    for at in range(12 * max(minutes, len(rows))):
        row = rows[at // 12] if at % 12 == 0 and at // 12 < len(rows) else None
        changed = (*also, row) if row else ()
        engine.take(frame(BEGIN_S + 5 * (at + 1), histograms=timed("sda", load), devices=changed))
    return [finding for finding in engine.current if finding.id == "device-disagrees"]


@pytest.mark.parametrize(
    ("name", "before", "after", "severity", "words"),
    [
        ("ioerr_cnt", 90, 102, NOTICE, "12 commands with errors in the readings of 10 min (ioerr_cnt)"),
        ("iotmo_cnt", 3, 4, WARNING, "1 command timed out in the readings of 10 min (iotmo_cnt)"),
        (
            "aer_correctable",
            0,
            4_000,
            NOTICE,
            "4,000 corrected PCIe errors in the readings of 10 min (aer_correctable)",
        ),
        ("aer_nonfatal", 0, 2, WARNING, "2 uncorrected PCIe errors in the readings of 10 min (aer_nonfatal)"),
        ("media_errors", 2, 3, WARNING, "1 media error in the readings of 10 min (media_errors)"),
        (
            "thm_temp1_trans_count",
            0,
            6,
            NOTICE,
            "6 light thermal throttlings in the readings of 10 min (thm_temp1_trans_count)",
        ),
        ("path_failures", 1, 2, WARNING, "1 failure of a path in the readings of 10 min (path_failures)"),
        ("paths_failed", 0, 2, WARNING, "2 of - paths failed"),
        ("critical_warning", 0, 4, WARNING, "its health log has a critical warning: reliability is degraded"),
        ("critical_warning", 0, 9, WARNING, "its health log has a critical warning: few spare blocks, read-only"),
        ("critical_warning", 0, 128, WARNING, "its health log has a critical warning: bits 0x80"),
        ("state", "running", "blocked", WARNING, "state is blocked"),
        ("access_state", "active/optimized", "standby", WARNING, "access state is standby"),
        ("ana_state", "optimized", "inaccessible", WARNING, "ana state is inaccessible"),
    ],
)
def test_a_slow_device_and_what_it_reports(name, before, after, severity, words):
    (finding,) = findings(reporting(**{name: before}), reporting(**{name: after}))
    assert (finding.severity, finding.device) == (severity, "sda")
    assert finding.summary == f"sda: p99 is 40 ms, and the device reports: {words}"
    assert {fact.name: fact.value for fact in finding.facts}["p99"] == 40_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"link_speed": "2.5 GT/s", "link_speed_best": "16.0 GT/s"},
         "its PCIe link runs at 2.5 GT/s, and both of its ends can do 16.0 GT/s"),
        ({"link_width": 1, "link_width_best": 4}, "its PCIe link runs at 1 lane, and both of its ends can do 4 lanes"),
    ],
)  # fmt: skip
def test_a_degraded_link(values, words):
    (finding,) = findings(reporting(**values))
    assert finding.severity == NOTICE
    assert words in finding.summary


def test_several_reports_are_one_finding():
    good = {"ioerr_cnt": 0, "state": "running", "link_width": 4, "link_width_best": 4}
    (finding,) = findings(reporting(**good), reporting(**good | {"ioerr_cnt": 50, "link_width": 2}))
    assert finding.summary.endswith("(ioerr_cnt) and 1 more report")
    assert [fact.name for fact in finding.facts] == ["p99", "ioerr_cnt", "link_width", "ioerr_cnt_in_all"]


@pytest.mark.parametrize(
    "rows",
    [
        (disk(),),  # reports nothing
        (reporting(ioerr_cnt=9_000, aer_fatal=7),),  # since boot, before the capture
        (reporting(ioerr_cnt=1), reporting(ioerr_cnt=9)),  # a monitor asks what the drive doesn't know
        (reporting(iotmo_cnt=5), reporting(iotmo_cnt=0)),  # restarted
        (reporting(iotmo_cnt=1), reporting(disk(serial="another"), iotmo_cnt=9)),  # another drive
        (reporting(link_speed="16.0 GT/s", link_speed_best="16.0 GT/s", link_width=4, link_width_best=4),),
        (reporting(link_speed="odd", link_speed_best="16.0 GT/s"),),  # a later kernel's words
        (reporting(state="live", ana_state="non-optimized"),),
        (reporting(state="Connected", access_state="new word", ana_state="invalid state"),),
        (reporting(critical_warning="x", state=1),),  # a recording of another program
        (reporting(num_err_log_entries=1), reporting(num_err_log_entries=900)),  # commands that it doesn't know
    ],
)
def test_a_slow_device_without_a_word_of_its_own(rows):
    assert findings(*rows) == []


def test_a_fast_device_with_errors():
    assert findings(reporting(ioerr_cnt=0), reporting(ioerr_cnt=500), load=FAST) == []


def test_few_ios_are_no_latency():
    assert findings(reporting(state="blocked"), load=((1, {"hba": 90_000}),)) == []


def test_what_is_no_counter_does_not_grow():
    grown = ReportGrowth()
    moved = {"sync_percent": 3, "sync_speed": 5_000, "self_test_percent": 2, "link_width": 4, "paths": 2, "degraded": 1}
    zeros = dict.fromkeys(moved, 0)
    grown.add(reporting(aer_correctable=0, **zeros), reporting(aer_correctable=2, **moved), 100 * S)
    assert grown.until(200 * S) == {"sda": {"aer_correctable": 2}}


def test_growth_ends_after_ten_minutes_and_with_another_boot():
    grown = ReportGrowth()
    grown.add(reporting(ioerr_cnt=1), reporting(ioerr_cnt=5), 100 * S)
    grown.add(reporting(ioerr_cnt=5), reporting(ioerr_cnt=7), 400 * S)
    assert grown.until(500 * S) == {"sda": {"ioerr_cnt": 6}}
    assert grown.until(701 * S) == {"sda": {"ioerr_cnt": 2}}
    assert grown.until(1_001 * S) == {}
    grown.clear()
    assert grown.until(500 * S) == {}


@pytest.mark.parametrize(
    ("state", "named"),
    [({"state": "transport-offline"}, True), ({"state": "running", "access_state": "standby"}, False), ({}, False)],
)
def test_a_volume_is_slow_and_a_path_below_it_is_not_there(state, named):
    volume = replace(disk(), members=("sdb", "sdc"))
    actual_findings = findings(volume, also=(reporting(disk("sdb"), **state),))
    assert [finding.severity for finding in actual_findings] == [WARNING] * named
    assert not named or actual_findings[0].summary.endswith("state of sdb below it is transport-offline")
