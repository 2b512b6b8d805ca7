"""--baseline: comparison of a live screen with recordings of the same hour of another day."""

import time
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from queued_device import BEGIN_S, Open, S, frames_of, lognormal

from latmon.diff.baseline import BaselineFiles, read_hour
from latmon.findings.baseline import Baseline, BaselineComparison, NoBaseline, levels_of
from latmon.findings.engine import NEEDS, RuleEngine
from latmon.findings.facts import Block
from latmon.findings.rule import Settings
from latmon.findings.rules.slower_than_baseline import ID
from latmon.findings.span_load import load_of
from latmon.model import measurements
from latmon.model.frame import Device, Origin, Series
from latmon.model.histogram import Histogram
from latmon.model.packed_frame import PackedFrame, pack_table
from latmon.recording.archive import Stamp
from latmon.recording.writer import Writer
from latmon.support.errors import RecordingError
from latmon.views.findings_state import FindingsState

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


def files(path, wall=NOW, **reads):
    """Return the baselines of a path, when that of an hour has been read."""
    source = BaselineFiles(path, wall, **reads)
    wait_for(source, wall)
    return source


def wait_for(source, wall):
    for _ in range(1_200):
        if source.at(wall) is not None:
            return source.at(wall)
        time.sleep(0.05)
    raise AssertionError("the baseline is never read")


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
    source = files(yesterday)
    findings = compared(source, simulated(480, 4_000, begin_wall=NOW, serial="S1"))
    assert findings["sda"].summary.startswith("sda: reads take 4.0x as long as on 2026-11-28 21:00-22:00 (p50 1.")
    assert findings["sda"].severity == "warning"
    facts = {fact.name: fact.text for fact in findings["sda"].facts}
    assert "minutes" in facts["read_factor"]
    assert "40.0 IOPS of 4 KiB" in facts["iops"]


def test_a_device_that_is_as_fast_has_no_finding(yesterday):
    assert compared(files(yesterday), simulated(480, 1_000, begin_wall=NOW, serial="S1")) == {}


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
    (notice,) = compared(files(yesterday), simulated(480, us, begin_wall=NOW, **values)).values()
    assert (notice.device, notice.severity) == ("", "notice")
    assert words in notice.facts[0].text


def test_the_first_minutes_and_a_missing_hour_are_said(yesterday):
    source = files(yesterday)
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

    source = files(Path(__file__), read=read)
    assert source.at(NOW + 60).why == "hour 1"
    assert wait_for(source, NOW + 3_660).why == "hour 2"
    assert source.at(NOW).why == "hour 1"
    assert asked == [NOW, NOW + 3_660]


def test_other_hours_are_asked_for_again_and_again_and_one_is_read_at_a_time():
    reading, most, asked = [], [], []

    def read(_path, wall):
        reading.append(wall)
        asked.append(wall)
        time.sleep(0.1)
        most.append(len(reading))
        reading.remove(wall)
        return NoBaseline("none")

    source = BaselineFiles(Path(__file__), NOW, read)
    for _ in range(30):
        source.at(NOW)
        source.at(NOW - 3_600)
        time.sleep(0.02)
    assert wait_for(source, NOW)
    assert wait_for(source, NOW - 3_600)
    assert (max(most), len(asked)) == (1, 2)


def test_recordings_and_earlier_times_are_not_compared_with_another_day():
    frames = list(simulated(30, 1_000, begin_wall=NOW))
    stamps = [Stamp(frame.mono_us, frame.wall) for frame in frames]
    past = SimpleNamespace(stamps=stamps, known=lambda _: (), frames=lambda _since, _until: iter(frames))
    settings = Settings(baseline=AlwaysThe(NoBaseline("not asked for")))
    state = FindingsState(settings)
    state.survey(past, ORIGIN)
    state.finish()
    assert settings.baseline.asked == 0


def test_the_screen_does_not_wait_for_the_recordings():
    begun = time.monotonic()

    def read(_path, _wall):
        time.sleep(3)
        return NoBaseline("none")

    assert BaselineFiles(Path(__file__), NOW, read).at(NOW) is None
    assert time.monotonic() - begun < 2


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_the_hour_is_that_of_the_clock_on_the_wall_before_and_after_summer_time(tmp_path):
    now = time.mktime((2026, 11, 2, 14, 30, 0, 0, 0, -1))
    begin = time.mktime((2026, 10, 21, 14, 0, 0, 0, 0, -1))
    recorded(tmp_path / "a.gz", simulated(1_200, 1_000, begin_wall=begin), begin)
    baseline = read_hour(tmp_path, now)
    assert baseline.title == "2026-10-21 14:00-15:00"
    assert sum(map(len, baseline.minutes.values())) >= 18


def test_ops_of_which_the_recording_has_too_few_minutes_are_named(tmp_path):
    begin_wall = NOW - DAY_S - 600
    rare = (*LOAD, Open(lambda second: 40 * (second < 240), op="write"))
    recorded(tmp_path / "a.gz", simulated(1_200, 1_000, begin_wall=begin_wall, loads=rare, serial="S1"), begin_wall)
    both = (*LOAD, Open(lambda _: 40, op="write"), Open(lambda _: 5, op="flush"))
    live = simulated(480, 1_000, begin_wall=NOW, loads=both, serial="S1")
    (notice,) = compared(files(tmp_path), live).values()
    texts = {fact.text for fact in notice.facts}
    assert "sda flushes: none in it" in texts
    assert any(text.startswith("sda writes: only in ") for text in texts)
    assert "1 device compared, not compared: sda flushes, sda writes" in notice.summary


def test_a_recording_without_serials_is_compared_only_by_name(tmp_path):
    begin_wall = NOW - DAY_S - 600
    recorded(tmp_path / "a.gz", simulated(1_200, 1_000, begin_wall=begin_wall), begin_wall)
    (notice,) = compared(files(tmp_path), simulated(480, 1_000, begin_wall=NOW, serial="S1")).values()
    assert notice.summary.endswith("1 device compared, 1 only by name")


def test_the_end_of_a_minute_of_a_thousand_devices_does_not_stop_the_screen():
    rows = {Series(f"d{at}", op, "total"): Histogram.of({40: 30}) for at in range(1_000) for op in ("read", "write")}
    devices = {f"d{at}": Device(f"d{at}", 8, at) for at in range(1_000)}
    loads = {name: load_of(name, []) for name in devices}
    minutes = {key: [{40: 30}] * 20 for key in rows}
    baseline = Baseline(title="", minutes=minutes, loads=loads, devices=devices, levels=levels_of(minutes))
    comparison = BaselineComparison(source=AlwaysThe(baseline))
    table = pack_table(measurements.LATENCIES, rows)
    longest = 0.0
    for at in range(12 * 12):
        begin_us = at * 5 * S
        packed = PackedFrame({measurements.LATENCIES: table})
        block = Block(begin_us=begin_us, end_us=begin_us + 5 * S, wall=NOW, span_us=5 * S, packed=packed)
        begun = time.process_time()
        comparison.add_block(block, devices)
        longest = max(longest, time.process_time() - begun)
    assert len(comparison.compared) == 1_000
    assert longest < 1.5  # 6 s with a search for each row


class AlwaysThe:
    """A source with the same baseline at all times."""

    def __init__(self, baseline):
        self.baseline = baseline
        self.asked = 0

    def at(self, _wall):
        self.asked += 1
        return self.baseline


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
    whole_bytes = (yesterday / "host.latmon.jsonl.gz").read_bytes()
    at = len(whole_bytes) // 2
    (tmp_path / "host.latmon.jsonl.gz").write_bytes(whole_bytes[:at] + bytes(200) + whole_bytes[at + 200 :])
    baseline = read_hour(tmp_path, NOW)
    assert isinstance(baseline, Baseline)
    assert "broken.gz" in baseline.remark
    findings = compared(files(tmp_path), simulated(480, 1_000, begin_wall=NOW, serial="S1"))
    assert findings[""].facts[-1].name == "damage"
