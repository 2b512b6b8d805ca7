"""--baseline: comparison of a live screen with recordings of the same hour of another day."""

import time
from dataclasses import replace
from random import Random

import pytest
from queued_device import BEGIN_S, Open, S, frames_of, lognormal

from latmon.diff.baseline import BaselineFiles, read_hour
from latmon.findings.baseline import Baseline, NoBaseline
from latmon.findings.engine import NEEDS, RuleEngine
from latmon.findings.rule import Settings
from latmon.findings.rules.slower_than_baseline import ID
from latmon.model.frame import Device, Origin
from latmon.recording.writer import Writer
from latmon.support.errors import RecordingError

ORIGIN = Origin("test", "here", "6.1", "0", interval_us=S, start_mono_us=BEGIN_S * S)
DAY_S = 86_400
NOW = time.mktime((2026, 11, 29, 21, 20, 0, 0, 0, -1))
LOAD = (Open(lambda _: 40, is_paced=True),)


def simulated(seconds, us, *, begin_wall, loads=LOAD, name="sda", serial=""):
    """Yield frames that begin at a Unix time."""
    for frame in frames_of(Random(1), seconds, loads, lognormal(us), servers=4, name=name):
        devices = (Device(name, 8, 0, driver="sd", serial=serial),) if frame.devices else ()
        yield replace(frame, wall=begin_wall + frame.seq + 1, devices=devices)


def recorded(path, frames, begin_wall):
    frames = list(frames)
    origin = replace(ORIGIN, start_wall=begin_wall)
    writer = Writer.create(path, origin, devices=frames[0].devices)
    for frame in frames:
        writer.append(frame)
        writer.flush()
    writer.close()
    return path


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory):
    """A directory with 20 minutes from 21:10 on of the day before."""
    directory = tmp_path_factory.mktemp("watch")
    begin_wall = NOW - DAY_S - 600
    frames = simulated(1_200, 1_000, begin_wall=begin_wall, serial="S1")
    recorded(directory / "host.latmon.jsonl.gz", frames, begin_wall)
    return directory


def compared(source, frames):
    engine = RuleEngine(ORIGIN, settings=Settings(off=frozenset(NEEDS) - {ID}, baseline=source))
    for frame in frames:
        engine.take(frame)
    assert not engine.failed
    return {finding.device: finding for finding in engine.current}


def test_the_same_hour_of_the_day_before_is_read_by_a_child(yesterday):
    baseline = read_hour(yesterday, NOW)
    assert isinstance(baseline, Baseline)
    assert baseline.title == "2026-11-28 21:00-22:00"
    (units,) = baseline.minutes.values()
    assert 18 <= len(units) <= 21
    assert sum(sum(unit.values()) for unit in units) == pytest.approx(48_000, rel=0.06)
    assert baseline.loads["sda"].iops == pytest.approx(40, rel=0.05)
    assert baseline.loads["sda"].busy == pytest.approx(0.04, rel=0.3)


def test_a_device_that_is_slower_than_on_the_day_before_is_named_with_factor_and_minutes(yesterday):
    source = BaselineFiles(yesterday, NOW)
    findings = compared(source, simulated(480, 4_000, begin_wall=NOW, serial="S1"))
    assert findings["sda"].summary.startswith("sda: reads take 4.0x as long as on 2026-11-28 21:00-22:00 (p50 1.")
    assert findings["sda"].severity == "warning"
    facts = {fact.name: fact.text for fact in findings["sda"].facts}
    assert "minutes" in facts["read_factor"]
    assert "40.0 IOPS of 4 KiB" in facts["iops"]


def test_a_device_that_is_as_fast_has_no_finding(yesterday):
    assert compared(BaselineFiles(yesterday, NOW), simulated(480, 1_000, begin_wall=NOW, serial="S1")) == {}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "sdb"}, "sdb: not in it"),
        ({"serial": "S2"}, "sda: another disk then: serial S1, now S2"),
        (
            {"us": 4_000, "loads": (Open(lambda _: 200, is_paced=True),)},
            "sda: another load: 40.0 IOPS of 4 KiB, now 200",
        ),
        (
            {"us": 4_000, "loads": (Open(lambda _: 3, is_paced=True),)},
            "sda: another load: 40.0 IOPS of 4 KiB, now 3.00",
        ),
    ],
)
def test_what_can_not_be_compared_is_named(yesterday, changed, words):
    values = {"us": 1_000, "serial": "S1"} | changed
    us = values.pop("us")
    (notice,) = compared(BaselineFiles(yesterday, NOW), simulated(480, us, begin_wall=NOW, **values)).values()
    assert (notice.device, notice.severity) == ("", "notice")
    assert words in notice.facts[0].text


def test_the_first_minutes_and_a_missing_hour_are_said(yesterday):
    source = BaselineFiles(yesterday, NOW)
    (notice,) = compared(source, simulated(60, 1_000, begin_wall=NOW)).values()
    assert notice.summary == "--baseline 2026-11-28 21:00-22:00: compared from 6 minutes on"
    late = read_hour(yesterday, NOW + 5 * 3_600)
    assert isinstance(late, NoBaseline)
    assert "has no 02:00-03:00 of another day; it reaches from 2026-11-28 21:10 to 2026-11-28 21:30" in late.why


def test_the_next_hour_is_read_when_it_begins():
    asked = []

    def read(_path, wall):
        asked.append(wall)
        return NoBaseline(f"hour {len(asked)}")

    source = BaselineFiles("x", NOW, read)
    assert source.at(NOW + 60).why == "hour 1"
    source.at(NOW + 3_600)
    for _ in range(100):
        if source.at(NOW + 3_660) is not None:
            break
        time.sleep(0.05)
    assert source.at(NOW + 3_660).why == "hour 2"
    assert asked == [NOW, NOW + 3_600]


def test_files_that_are_no_recordings_are_refused(tmp_path):
    with pytest.raises(RecordingError, match="no recordings"):
        read_hour(tmp_path, NOW)
    (tmp_path / "x.gz").write_bytes(b"no recording")
    with pytest.raises(RecordingError, match="is not a latmon recording"):
        read_hour(tmp_path, NOW)
    with pytest.raises(RecordingError, match="can't be read"):
        read_hour(tmp_path / "missing", NOW)


def test_damage_is_said(yesterday, tmp_path):
    (tmp_path / "broken.gz").write_bytes(b"no recording")
    whole = (yesterday / "host.latmon.jsonl.gz").read_bytes()
    at = len(whole) // 2
    (tmp_path / "host.latmon.jsonl.gz").write_bytes(whole[:at] + bytes(200) + whole[at + 200 :])
    baseline = read_hour(tmp_path, NOW)
    assert isinstance(baseline, Baseline)
    assert "broken.gz" in baseline.remark
    findings = compared(BaselineFiles(tmp_path, NOW), simulated(480, 1_000, begin_wall=NOW, serial="S1"))
    assert findings[""].facts[-1].name == "damage"
