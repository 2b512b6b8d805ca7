"""Slow I/Os of a report by hour and day, and its worst minute."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from json_schema import mistakes
from recorded import DISK, ORIGIN, frame
from report_json import summarised

from latmon.aggregate.accumulator import Minute
from latmon.cli.main import run as main
from latmon.model.frame import Completed, Device, Flow, Series
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.measurements import ABOVE
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.latencies import quantiles
from latmon.report.latency_table import volume
from latmon.report.model.device import Op
from latmon.report.model.report import CountedSpan
from latmon.report.slow_times import lines as slow_text
from latmon.report.summary import report_of, slow_ios
from latmon.report.totals import SlowTimes, Totals
from latmon.support.errors import EXIT_DONE
from latmon.support.paths import data_dir
from latmon.support.typed_json import to_json
from latmon.support.units import rfc3339

DAY = 1_767_571_200.0
"""2026-01-05."""


def slow_frames(*rows):
    """Return frames of one minute each: hours since the begin of a day, and slow I/Os of a disk in it."""
    flow = Flow(DISK.name, "read")
    for seq, (hours, above) in enumerate(rows):
        wall = DAY + hours * 3600 + 60
        when = {"wall": wall, "mono_us": int((wall - DAY + 60) * 1e6), "dt_us": 60_000_000}
        yield replace(frame(seq), **when, tables={ABOVE: {flow: above}}, thresholds_us={DISK.name: 2000})


def slow_lines(totals):
    recording = SimpleNamespace(origin=ORIGIN, is_live=False, damage=())
    return slow_text(report_of(recording, totals))


def test_slow_ios_by_hour_and_day_and_the_worst_minute():
    totals = Totals(60_000_000, {DISK.name: DISK})
    for slow_frame in slow_frames((0, 1), (1, 2), (1.5, 5), (25, 4), (26, 0)):
        totals.add(slow_frame)
    slow = slow_ios(totals)
    assert [hour.count for hour in slow.times.hours] == [1, 7, 4, 0]
    assert [day.count for day in slow.times.days] == [8, 4]
    assert (slow.above_us, slow.times.worst_minute) == (2000, CountedSpan(rfc3339(DAY + 5400), 5))
    text = " ".join(" ".join(slow_lines(totals)).split())
    assert "completed I/Os of 2 ms or longer: 12; most in the minute from 2026-01-05T01:30:00Z: 5" in text
    assert "by hour (UTC): 2026-01-05 00 1, 2026-01-05 01 7, 2026-01-06 01 4, 2026-01-06 02 0" in text
    assert "by day (UTC): 2026-01-05 8, 2026-01-06 4" in text


def moving(*thresholds_us: int):
    """Return frames of a second each with another automatic threshold and an I/O above it."""
    flow = Flow(DISK.name, "read")
    for seq, us in enumerate(thresholds_us):
        yield frame(seq, tables={ABOVE: {flow: 1}}, thresholds_us={DISK.name: us})


def test_of_a_threshold_that_moved_the_range_is_reported(tmp_path):
    """The last one is no bound of what was counted before: 44.4 ms, where the slowest I/O took 25.3 ms."""
    path = tmp_path / "r"
    writer = Writer.create(path, ORIGIN, devices=(DISK,))
    for current_frame in moving(*(3_100 + 400 * n for n in range(70)), *[44_400] * 110):
        writer.append(current_frame)
    writer.close()
    recording = open_recording(path)
    assert any(isinstance(item, Minute) for item in recording.summed())
    report = summarised(recording)
    slow, disk = report["slow"], report["devices"][DISK.name]
    assert (slow["above_us"], slow["above_range_us"]) == (None, [3_100, 44_400])
    assert (disk["threshold_us"], disk["threshold_range_us"]) == (44_400, [3_100, 44_400])
    text = " ".join(" ".join(slow_text(report.report)).split())
    assert "completed I/Os of their device's threshold at the time (3.1 ms to 44.4 ms) or longer: 180" in text
    assert [*mistakes(report, json.loads((data_dir("schemas") / "report.json").read_text()))] == []
    assert main(["report", str(path), "--html", str(tmp_path / "page.html")]) == EXIT_DONE
    page = (tmp_path / "page.html").read_text()
    assert "180 I/Os were above the threshold of 3.1 ms to 44.4 ms, which moved with its latencies." in page


def test_the_worst_minute_begins_no_earlier_than_the_recording():
    slow = SlowTimes()
    for seq in range(2):  # from 40 s after the begin of a minute of the monotonic clock
        when = {"wall": DAY + 9 * (seq + 1), "mono_us": 40_000_000 + 9_000_000 * (seq + 1), "dt_us": 9_000_000}
        slow.add(
            replace(frame(seq), **when, tables={ABOVE: {Flow(DISK.name, "read"): 1}}, thresholds_us={DISK.name: 2000}),
            {},
        )
    assert slow.worst == (2, int(DAY))


def test_the_windows_of_a_minute_count_together_whatever_the_wall_clock_s_minute_is():
    slow = SlowTimes()
    flow = Flow(DISK.name, "read")
    for seq in range(12):  # two minutes of the monotonic clock, from 40 s after a full minute on
        when = {"wall": DAY + 3600 - 40 + 10 * (seq + 1), "mono_us": 10_000_000 * (seq + 1), "dt_us": 10_000_000}
        above = {flow: 3 if 3 <= seq < 9 else 0}
        slow.add(replace(frame(seq), **when, tables={ABOVE: above}, thresholds_us={DISK.name: 2000}), {})
    assert slow.worst == (9, int(DAY) + 3600 - 40)
    assert slow.hours == {int(DAY): 9, int(DAY) + 3600: 9}


def test_of_many_hours_the_worst_are_listed():
    totals = Totals(60_000_000, {DISK.name: DISK})
    for slow_frame in slow_frames(*((hour, hour) for hour in range(40))):
        totals.add(slow_frame)
    text = " ".join(" ".join(slow_lines(totals)).split())
    assert "by hour (UTC), the worst: 2026-01-06 04 28, " in text
    assert text.count("2026-01-06 ") >= 12


def test_a_volume_is_not_counted_again_and_no_threshold_is_no_count():
    volume = Device("dm-0", 253, 0, kind="dm", members=(DISK.name,))
    totals = Totals(60_000_000, {DISK.name: DISK, volume.name: volume})
    (slow_frame,) = slow_frames((0, 3))
    totals.add(replace(slow_frame, tables={ABOVE: {**slow_frame[ABOVE], Flow("dm-0", "read"): 3}}))
    assert slow_ios(totals).times.days[0].count == 3
    alone = Totals(60_000_000, {DISK.name: DISK, volume.name: volume})
    alone.add(
        replace(slow_frame, tables={ABOVE: {Flow("dm-0", "read"): 3}}, thresholds_us={"dm-0": 2000}, histograms={})
    )
    assert slow_ios(alone).times.days[0].count == 3  # its disk is known and not measured
    assert slow_ios(Totals(60_000_000)) is None
    (none,) = slow_frames((0, 0))
    totals = Totals(60_000_000)
    totals.add(none)
    assert slow_lines(totals) == ["no completed I/O took 2 ms or longer"]


READS = Flow(DISK.name, "read")


def slo_of(slo_us, *windows, threshold_us=None):
    """Return the times of an SLO after windows of one minute, each with these latencies in us."""
    slo = SlowTimes(slo_us)
    for seq, window in enumerate(windows):
        reads = window if isinstance(window, Histogram) else Histogram.record(window)
        thresholds = {} if threshold_us is None else {DISK.name: threshold_us}
        above = {} if threshold_us is None else {READS: 7}
        when = {"wall": DAY + 60 * (seq + 1), "dt_us": 60_000_000}
        totals = {Series(*READS, "total"): reads}
        slo.add(replace(frame(seq), **when, histograms=totals, tables={ABOVE: above}, thresholds_us=thresholds), {})
    return slo


def test_an_slo_is_counted_from_the_first_edge_of_a_bucket():
    slo = slo_of(20_000, [19_000, 20_100, 20_480, 25_000], [100])
    assert (sum(slo.hours.values()), slo.begins_us, slo.worst) == (2, {20_480}, (2, int(DAY) + 54)), (
        "the window ends at 6 s of a minute"
    )
    edge = slo_of(20_480, [20_479, 20_480])
    assert (sum(edge.hours.values()), edge.begins_us) == (1, {20_480})
    rough = slo_of(20_000, Histogram.of({bucket_index(32_768, 0): 3, bucket_index(20_000, 0): 5}, bits=0))
    assert (sum(rough.hours.values()), rough.begins_us) == (3, {32_768})


def test_the_probe_s_own_count_is_exact_where_the_slo_is_the_threshold():
    slo = slo_of(20_000, [20_100, 30_000], threshold_us=20_000)
    assert (sum(slo.hours.values()), slo.begins_us) == (7, {20_000})
    other = slo_of(20_000, [20_100, 30_000], threshold_us=10_000)
    assert (sum(other.hours.values()), other.begins_us) == (1, {20_480})


def days_of(path, days, dt_us):
    """Write a recording of days: at 03:00 three of 103 reads of each window take 25 ms, else all take 100 us."""
    writer = Writer.create(path, replace(ORIGIN, interval_us=dt_us), devices=(DISK,))
    for seq in range(days * 86_400_000_000 // dt_us):
        bad = seq * dt_us // 3_600_000_000 % 24 == 3
        reads = Histogram.record([100] * 100 + [25_000] * 3 * bad)
        end_us = (seq + 1) * dt_us
        when = {"wall": DAY + end_us / 1e6, "mono_us": end_us, "dt_us": dt_us}
        counts = {"seen": {READS: Completed(reads.count, 0)}, "kernel": {READS: Completed(reads.count, 0)}}
        writer.append(replace(frame(seq), **when, **counts, histograms={Series(*READS, "total"): reads}))
    writer.close()
    return path


def check_a_week(path, tmp_path, capsys, windows):
    """Check the hours, days and the map of a week; `windows` of an hour."""
    assert main(["report", str(path), "--json", "--slo", "20ms"]) == 0
    slo = json.loads(capsys.readouterr().out)["slo"]
    assert [day["count"] for day in slo["days"]] == [3 * windows] * 7
    assert len(slo["hours"]) == 7 * 24
    assert {hour["start"][11:13] for hour in slo["hours"] if hour["count"]} == {"03"}
    out = tmp_path / "week.html"
    assert main(["report", str(path), "--html", str(out), "--slo", "20ms"]) == 0
    page = out.read_text()
    assert "time across in 168 columns" in page
    cells = re.findall(r"<title>(\d\d-\d\d \d\d:00) [^<:]*ms: ([\d,]+)</title>", page)
    slow = [f"01-{day:02} 03:00" for day in range(5, 12)]
    assert sorted(cells) == [(hour, f"{3 * windows:,}") for hour in slow]
    assert page.count('<th scope="row">2026-01-') == 7
    assert main(["report", str(path), "--slo", "20ms"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    counted = "(counted from 20.5 ms, an edge of buckets, on)"
    assert f"completed I/Os of 20 ms or longer, the SLO {counted}: {21 * windows:,}; m" in text
    assert f"the worst: 2026-01-05 03 {3 * windows:,}, 2026-01-06 03" in text


@pytest.mark.slow
def test_a_week_has_hours_days_and_a_map_with_a_column_per_hour(tmp_path, capsys):
    check_a_week(days_of(tmp_path / "week.gz", 7, 600_000_000), tmp_path, capsys, 6)


@pytest.mark.slow
def test_a_week_of_roll_ups_has_the_counts_of_its_windows(tmp_path, capsys):
    path = days_of(tmp_path / "week.gz", 7, 10_000_000)
    assert sum(1 for _ in open_recording(path).summed()) < 7 * 86_400 / 60 * 1.1
    check_a_week(path, tmp_path, capsys, 360)


@pytest.mark.parametrize("wrong", ["0", "x"])
def test_an_slo_is_a_time(wrong, capsys):
    assert main(["report", "x.gz", "--slo", wrong]) == 2
    assert "a duration" in capsys.readouterr().err


def test_the_rarest_quantile_takes_100_000_ios():
    few, many = (Histogram.of({80: n - 1, 120: 1}) for n in (99_999, 100_000))
    assert "p99.999" not in to_json(quantiles(few))
    assert to_json(quantiles(many))["p99.999"] == many.quantile(0.99999)
    latency = quantiles(Histogram.of({80: 99_998, 120: 2}))
    text = volume(Op(count=100_000, latency_us=latency, stages={}, stages_absent={}), 0)
    assert re.search(r"100,000 I/Os, p99.999 \d+ ms", text)
