"""Comparisons: which changes are found, which are not, and how they are worded; from synthetic loads and from files."""

import json
import re
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from diff_loads import ORIGIN, load
from diff_traffic import traffic
from recorded import DISK, frame
from recorded import ORIGIN as BOX

from latmon.analysis import neighbours
from latmon.analysis.statistics import CutRow, QuantileInterval, Survival, ratio, student, weigh
from latmon.cli.main import run as main
from latmon.diff import blocks
from latmon.diff.blocks import MAX_UNITS, coarse, of_runs, period_of
from latmon.diff.command import compared, print_compared, read
from latmon.diff.comparison import PartChange, SeriesChange, Shift, _latency, compare, sweep_of
from latmon.diff.conditions import device_load, differing, findings_change, user_views
from latmon.diff.hypotheses import Detectable
from latmon.diff.output import _no_difference, _worst, for_users, in_a_sentence, is_worse, paragraphs, render
from latmon.diff.report import _change, pair_report, sweep_report
from latmon.diff.verdict import sentence
from latmon.findings.rule import DEFAULT
from latmon.model import measurements
from latmon.model.frame import Completed, Device, Flow, Frame, Mark, Outstanding, Series, Traced
from latmon.model.histogram import EMPTY, Histogram, bucket_index, merge
from latmon.model.inflight import InFlight, InFlightList
from latmon.model.measurements import ABOVE, ERRORS
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.files import FileSeries
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report import reading
from latmon.support.errors import RecordingError, UsageError
from latmon.support.typed_json import to_json
from latmon.support.units import spelled
from latmon_backends.demo.backend import INCIDENTS

RECORDINGS = Path(__file__).resolve().parents[1] / "golden/recordings"
BUNDLED = Path(__file__).resolve().parents[2] / "docs/incidents/recordings"
BIG = {"windows": 96, "ios": 11_000.0, "phi": 0.8, "tail": 0.001, "bursts": False}
"""More than 10^6 I/Os, of which 0.1 % are the tail."""


def pair(seed, **changed):
    rng = Random(seed)
    return load(rng, **BIG), load(rng, **BIG, **changed, name="B")


def rendered(comparison):
    return render(pair_report(comparison))


def printed(comparison):
    return to_json(pair_report(comparison))


def families(pairs, devices=24, made_by=load, **given):
    """Number of comparisons of equal loads with a reported change."""
    families = 0
    for seed in range(pairs):
        rng = Random(seed)
        a, b = (made_by(rng, devices=devices, **given) for _ in range(2))
        families += any(change.changed for change in compare(a, b).changes)
    return families


def test_equal_loads_that_wander_and_burst_are_rarely_separated():
    assert families(2, devices=6, phi=0.8, windows=40) + families(2, devices=6, made_by=traffic, windows=40) <= 1


@pytest.mark.slow
def test_family_wise_false_alarms_of_1000_pairs():
    kinds = [{"phi": 0.0, "windows": 24}, {"phi": 0.8, "windows": 60}, {"phi": 0.9, "windows": 120}]
    alarms = sum(families(167, **kind) for kind in kinds)
    others = [{"windows": 24}, {"windows": 60, "memory_s": 6.0}, {"windows": 120, "memory_s": 15.0}]
    alarms += sum(families(167, made_by=traffic, **other) for other in others)
    assert alarms <= 50


@pytest.mark.parametrize("seed", range(3))
def test_a_tail_of_twice_the_time_in_a_thousandth_is_found_and_named(seed):
    a, b = pair(seed, tail_factor=2.0)
    (change,) = compare(a, b).changes
    assert change.where == "tail"
    assert change.tail.direction == 1
    assert "the tail grew: " in sentence(change, compare(a, b))
    assert "the body did not change" in sentence(change, compare(a, b))


@pytest.mark.slow
def test_the_tail_is_found_in_80_of_100():
    assert sum(compare(*pair(seed, tail_factor=2.0)).changes[0].where == "tail" for seed in range(100)) >= 80


def test_a_mode_two_buckets_slower_is_a_body_that_moved():
    change = compare(*pair(1, body_factor=1.28)).changes[0]
    assert (change.body.direction, change.where) in ((1, "body"), (1, "whole"))


def test_what_moved_by_less_than_a_bucket_is_no_difference_whatever_the_number_of_ios():
    for factor in (1.05, 1.11):
        rng = Random(7)
        given = {"devices": 1, "windows": 40, "rate": 20_000.0, "calm": True}
        change = compare(traffic(rng, **given), traffic(rng, **given, slower=factor)).changes[0]
        assert change.where == "none"
        assert change.seen.all_times > factor


def test_what_wanders_within_the_captures_gets_no_verdict():
    rng = Random(11)
    given = {"devices": 1, "rate": 3_000.0, "calm": True, "windows": 10}
    steps = [traffic(rng, **given, slower=factor) for factor in (1.0, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8, 3.1)]
    a, b = joined(steps[:4]), joined(steps[4:])
    assert not compare(a, b).changes[0].changed
    still = joined([traffic(rng, **given, slower=factor) for factor in (2.9, 3.0, 3.1, 3.0)])
    assert compare(joined([traffic(rng, **given) for _ in range(4)]), still).changes[0].where == "whole"


def joined(parts):
    for part in parts[1:]:
        parts[0].units += part.units
    return parts[0]


def test_fewer_than_20_windows_are_reported_and_not_tested():
    rng = Random(1)
    comparison = compare(load(rng, windows=19), load(rng, windows=60, factor=3.0))
    assert not comparison.changes[0].changed
    text = " ".join(rendered(comparison).split())
    assert text.startswith("no difference proven: A has 19 of 20 windows ")
    assert text.count("20 windows") == 1, "a caveat stands once"
    assert "p50 120 us -> 360 us (x2.9)" in text


def test_many_windows_of_a_moment_are_reported_and_not_tested():
    rng = Random(1)
    a, b = load(rng, windows=60), load(rng, windows=60, factor=3.0)
    for unit in a.units:
        unit.us = 100_000
    text = " ".join(rendered(compare(a, b)).split())
    assert "too short for a test: 6 s where it takes 20 s" in text


def test_what_lies_before_a_mark_has_the_settings_that_it_reported(tmp_path):
    path = tmp_path / "marked"
    origin = replace(BOX, settings={"device sda": {"scheduler": "none"}})
    with closing(Writer.create(path, origin)) as writer:
        for seq in range(100):
            mark = {60: Mark("A ends", 0, 0.0, {}), 90: Mark("B ends", 0, 0.0, {"device sda": {"scheduler": "bfq"}})}
            given_frame = frame(seq, histograms={Series("sda", "read", "total"): Histogram.of({40: 10})})
            put = mark.get(seq)
            marks = () if put is None else (replace(put, mono_us=given_frame.mono_us - 500_000),)
            writer.append(replace(given_frame, marks=marks))
    a, b = read(f"{path}@20s..A"), read(f"{path}@..B")
    assert (a.windows, b.windows) == (20, 29)
    assert read(f"{path}@..A ends").windows == 60
    assert read(f"{path}@A").windows == 29
    assert [(difference.a, difference.b) for difference in differing(a, b)] == [("none", "bfq")]
    with pytest.raises(UsageError, match=r"no mark 'C'; its marks: 'A ends', 'B ends'"):
        read(f"{path}@C")


def test_all_of_it_faster():
    change = compare(*pair(1, factor=1 / 1.5)).changes[0]
    assert (change.where, change.body.direction, change.tail.direction) == ("whole", -1, -1)
    low, high = change.shifts[0].interval
    assert low < 1 / 1.5 * 1.05 < high * 1.1


def moved(where, shares, **ratios):
    """A change of `where` alone: shares of I/Os above 8 us, and ratios of quantiles with their intervals."""
    ratios = {"p50": (1.1, 0.9, 1.2)} | ratios
    none, some = PartChange(0), PartChange(1 if shares[1] > shares[0] else -1, 0.001, 8, *shares)
    shifts = [Shift(name, 100, 240, ratio, (low, high)) for name, (ratio, low, high) in ratios.items()]
    histogram = Histogram.of({40: 100}, 4_000, 40)
    body, tail = (some, none) if where == "body" else (none, some)
    return SeriesChange(
        Series("sda", "read", "hba"),
        histogram,
        histogram,
        (*shifts, Shift("max", 300, 400)),
        body,
        tail,
        Detectable(1.1, 1.2),
    )


def test_a_quantile_whose_interval_does_not_exclude_1_is_no_evidence():
    assert text_of(moved("tail", (0.001, 0.002), **{"p99.9": (2.4, 0.00098, 2.4)})).startswith(
        "the tail grew: 0.1 % -> 0.2 % of I/Os above 8 us; the body"
    )
    assert "p99.9" not in text_of(moved("tail", (0.001, 0.002), **{"p99.9": (2.4, 1.01, 240)}))
    both = text_of(moved("tail", (0.001, 0.002), **{"p99": (2.4, 1.1, 3), "p99.9": (9, 0.5, 10)}))
    assert "the tail grew: p99 100 us -> 240 us (x2.4; 95 %: 1.1 to 3), 0.1 %" in both
    assert text_of(moved("body", (0.4, 0.6), p50=(2.4, 0.9, 3))).startswith("the body is slower: 40 % -> 60 % of I/Os")


def test_tails_come_before_bodies_in_the_list_and_in_the_sentence():
    body, tail = moved("body", (0.1, 0.9), p50=(9, 8, 10)), moved("tail", (0.01, 0.02), p99=(1.5, 1.3, 1.8))
    assert [change.where for change in _worst([_change(each, TESTED) for each in (body, tail, body)])] == [
        "tail",
        "body",
        "body",
    ]
    both = replace(
        moved("whole", (0.1, 0.9), p50=(2, 1.9, 2.1), p99=(2, 1.9, 2.1)), body=PartChange(1, 0.001, 8, 0.1, 0.9)
    )
    assert text_of(both).index("p99") < text_of(both).index("p50")
    opposed = replace(both, body=PartChange(-1, 0.001, 8, 0.9, 0.1))
    assert opposed.where == "opposed"
    assert text_of(opposed).index("the tail grew") < text_of(opposed).index("the body is faster")


def test_a_cut_between_nearly_all_and_nearly_none_is_all_of_it():
    assert text_of(moved("tail", (1.0, 0.0028), p99=(0.01, 0.009, 0.02))).startswith("all of it is faster: p99 ")
    assert text_of(moved("tail", (0.0028, 1.0), p99=(90, 80, 99))).startswith("all of it is slower: p99 ")
    assert text_of(moved("tail", (0.9, 0.0028), p99=(0.01, 0.009, 0.02))).startswith("the tail shrank: p99 ")


TESTED = SimpleNamespace(tested=True)


def text_of(change):
    return sentence(change, TESTED).removeprefix("sda read hba: ")


def test_one_sick_device_of_many_is_the_only_one():
    rng = Random(5)
    a, b = load(rng, devices=6, windows=60, phi=0.5), load(rng, devices=6, windows=60, phi=0.5)
    sick = load(rng, windows=60, phi=0.5, factor=2.0)
    for unit, other in zip(b.units, sick.units, strict=True):
        unit.counts |= other.counts
    assert [change.series.device for change in compare(a, b).changes if change.changed] == ["sd0"]


def test_too_few_ios_are_not_no_difference():
    rng = Random(1)
    a, b = load(rng, ios=0.4, windows=40), load(rng, ios=0.4, windows=40)
    comparison = compare(a, b)
    assert comparison.changes[0].where == "unknown"
    text = rendered(comparison)
    assert "not enough data: sd0 read" in text
    assert "no difference" not in text
    assert text.startswith("nothing proven: not enough data\n")


def test_what_would_have_been_found_is_reported():
    comparison = compare(*pair(2))
    (change,) = comparison.changes
    assert change.where == "none"
    assert 1.125 < change.seen.all_times <= 1.3
    assert change.seen.tail_times <= 4
    assert "would have been found (80 %)" in " ".join(rendered(comparison).split())
    reported = printed(comparison)["changes"][0]["would_have_found"]
    assert reported["all_times"] == change.seen.all_times


def test_a_test_of_few_blocks_asks_all_relabellings_and_stays_within_them():
    even = CutRow([5, 6, 5, 6, 5, 6], [6, 5, 6, 5, 6, 5], [100] * 6, [100] * 6)
    found = weigh([even], 0.0).found[0]
    assert found.p > 0.5
    high = CutRow([5, 6, 5, 6, 5, 6], [60, 61, 59, 60, 61, 59], [100] * 6, [100] * 6)
    assert weigh([high], 0.0).found[0].p < 0.01


def test_quantiles_lie_between_the_edges_and_ratios_hold_them():
    survival = Survival(Histogram.record(range(100, 200)))
    assert survival.latency(0.5) == pytest.approx(150, rel=0.05)
    assert survival.above(survival.latency(0.2)) == pytest.approx(0.2, abs=0.001)
    actual_ratio = ratio(QuantileInterval(100, 90, 110), QuantileInterval(200, 190, 220))
    assert actual_ratio.value == pytest.approx(2.0)
    assert actual_ratio.low < 2 < actual_ratio.high
    assert student(7) == pytest.approx(2.365, abs=0.01)
    assert student(23) == pytest.approx(2.069, abs=0.005)


def test_long_captures_are_kept_in_a_bounded_number_of_units():
    capture_span = period_of("A", BOX, (DISK,), [frame(i) for i in range(1000)])
    assert MAX_UNITS // 2 <= len(capture_span.units) <= MAX_UNITS
    assert capture_span.windows == 1000
    assert capture_span.us == 1000 * 1_000_000
    assert capture_span.total(Series("sda", "read", "total"), 3).count == 100_000


def test_a_coarser_histogram_later_makes_all_of_its_series_coarse():
    frames = [frame(0), frame(1, histograms={Series("sda", "read", "total"): Histogram.of({7: 5}, bits=0)})]
    capture_span = period_of("A", BOX, (DISK,), frames)
    histogram = capture_span.total(Series("sda", "read", "total"), 3)
    assert (histogram.bits, histogram.count) == (0, 105)


# The two runs of a disk with disksort on and off, DTrace quantize() in ms (tables of a published measurement).
ON = {0: 40, 1: 9, 2: 6, 4: 17, 8: 23, 16: 6, 32: 36, 64: 15407, 128: 361660, 524288: 302}
OFF = {0: 30, 1: 21, 2: 30, 16: 50, 32: 3, 64: 384, 128: 505, 256: 531169, 512: 11764}


def one_window(table, name):
    counts = {bucket_index(ms * 1024, 0): n for ms, n in table.items()}
    histogram = Histogram.of(counts, bits=0)
    flow = Flow("ssd0", "other")
    only = Frame(
        0, 1e9, 600_000_000, 600_000_000, {Series(*flow, "total"): histogram}, {flow: Completed(histogram.count, 0)}
    )
    return period_of(name, ORIGIN, (), [only])


def test_two_tables_without_windows_name_tail_and_median_and_claim_no_test():
    comparison = compare(one_window(ON, "on"), one_window(OFF, "off"))
    (change,) = comparison.changes
    assert (change.a.count, change.b.count) == (377_506, 543_956)
    assert not comparison.tested
    text = " ".join(rendered(comparison).split())
    most = "ssd0 other: 302 I/Os took 537 s or more in A, none of B's took more than 1.05 s"
    assert most in text
    assert text.index(most) < text.index("p50 270 ms -> 530 ms (x2)")
    assert "the mode 131 ms to 262 ms -> 262 ms to 524 ms" in text
    assert text.index("the tail is gone; max") < text.index("p50 270 ms")
    assert text.startswith("no difference proven: A has 1 of 20 windows and B has 1 of 20 windows ")


def write(path, frames, origin=BOX):
    writer = Writer.create(path, origin, devices=(DISK,))
    for current_frame in frames:
        writer.append(current_frame)
    writer.close("asked")
    return path


def test_files_settings_and_marks(tmp_path, capsys):
    slow = {Series("sda", "read", "total"): Histogram.record(range(9000, 9100))}
    changed = {"module vmd": {"max_vec": "8"}}
    frames = [frame(i) for i in range(20)]
    mark = Mark("vec 8", frames[19].mono_us + 400_000, 1e6, changed)
    frames.append(frame(20, marks=(mark,), histograms=slow))
    frames += [frame(i, histograms=slow) for i in range(21, 44)]
    origin = replace(BOX, settings={"module vmd": {"max_vec": "2"}})
    path = write(tmp_path / "a.gz", frames, origin)
    before = write(tmp_path / "b.gz", frames[:20], origin)
    assert read(f"{path}@vec 8").windows == 23
    assert print_compared(compared([str(before), f"{path}@vec 8"]), as_json=False) == 0
    text = capsys.readouterr().out
    assert "sda read: " in text
    assert "module vmd max_vec: 2 -> 8" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert print_compared(compared([str(before), f"{path}@vec 8"]), as_json=True) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["schema"] == "latmon.diff/1"
    assert reported["settings"] == [{"section": "module vmd", "name": "max_vec", "a": "2", "b": "8"}]
    with pytest.raises(UsageError, match="has no mark 'vec 9'; its marks: 'vec 8'"):
        read(f"{path}@vec 9")


def test_a_sweep_is_ordered_by_what_differs_and_three_are_too_few(tmp_path, capsys):
    files = []
    for vec, size in ((8, 4), (2, 8), (4, 6)):
        origin = replace(BOX, settings={"module vmd": {"max_vec": str(vec)}})
        seen = {Flow("sda", "write"): Completed(1000, size * 1_000_000_000)}
        frames = [frame(i, seen=seen, kernel=seen) for i in range(3)]
        files.append(str(write(tmp_path / f"{vec}.gz", frames, origin)))
    assert main(["diff", *files]) == 0
    text = capsys.readouterr().out
    assert text.count("captures are too few to be sure") == len(
        {trend.p for trend in sweep_of([read(f) for f in files]).tables[0].trends}
    )
    assert "by module vmd max_vec" in text
    assert [line.split()[0] for line in text.splitlines()[2:5]] == ["2", "4", "8"]
    assert "throughput falls as max_vec rises (p 0.33: 3 captures are too few" in " ".join(text.split())
    assert sweep_of([read(file) for file in files]).tables[0].trends[0].p == pytest.approx(1 / 3)


def test_loads_and_starting_points_that_differ_are_reported_first():
    rng = Random(1)
    a, b = load(rng, phi=0.2), load(rng, ios=2400.0, phi=0.2)
    b.origin = replace(ORIGIN, latency_from="issue", tier="C")
    text = rendered(compare(a, b))
    assert "the loads differ, so the latencies below are of different work" in text
    assert "IOPS" in text
    assert "totals begin at another point" in text
    assert text.index("the loads differ") < text.index(" tests, ")


def test_rates_of_an_assumed_length_are_left_out():
    rng = Random(1)
    a, b = load(rng, windows=1), load(rng, windows=1, ios=2400.0)
    why = "1 of 1 window is taken as 1 s long, because the text doesn't have the length"
    imported = replace(ORIGIN, extra={"imported": {"assumed_length": why}})
    for capture_span in (a, b):
        capture_span.origin = imported
        capture_span.units[0].counts[Series("sd0", "read", "total")][bucket_index(200_000)] = 30
    made, swept = printed(compare(a, b)), sweep_of([a, b])
    text = " ".join(rendered(compare(a, b)).split())
    assert "I/Os of 131 ms or more: 30 -> 30; the longest completed I/O: " in text
    assert f"of A {why}: rates are left out" in text
    assert f"of B {why}: rates are left out" in text
    assert [word for word in ("IOPS", "per day", "the loads differ") if word in text] == []
    assert "1 s in 1 window" not in text
    assert (made["loads_differ"], len(made["warnings"])) == ([], 2)
    assert [(capture["measured_s"], capture["load"]["iops"]) for capture in made["captures"]] == [(None, None)] * 2
    assert [(user["per_day"], user["iops"]) for user in made["users"]] == [(None, None)] * 2
    rates = [[row.values[name] for name in ("MB/s", "IOPS", "slow/day")] for row in swept.tables[0].rows]
    assert rates == [[None] * 3] * 2
    assert render(sweep_report(swept)).count("rates are left out") == 2
    a.origin = ORIGIN
    assert " -> not known (counted: 30, 30)" in " ".join(rendered(compare(a, b)).split())


@cache
def first_windows(name):
    return tuple(islice(INCIDENTS[name].frames(Random(1)), 24))


def incident(name):
    """The first windows of a bundled incident; its healthy twin has another load and the same devices."""
    return period_of(name, INCIDENTS[name].origin, (), first_windows(name))


@pytest.fixture(scope="module")
def slow_softirq():
    return incident("e810"), incident("e810-healthy")


@pytest.mark.parametrize(("sick", "way"), [(0, "faster"), (1, "slower")])
def test_the_traced_stage_that_explains_a_change_leads(slow_softirq, sick, way):
    """The always-on time from issue to completion went from 3.97 ms to 88 us, the traced hba not at all."""
    text = " ".join(rendered(compare(slow_softirq[sick], slow_softirq[1 - sick])).split())
    assert text.index(f"softirq explains what is {way}: nvme0n1") < text.index("the loads differ")
    assert text.startswith(f"B is {way}, softirq explains it: nvme0n1 write p50 ")
    assert text.index("the loads differ") < text.index("all of it is")
    assert "hba" not in text
    reported = printed(compare(slow_softirq[sick], slow_softirq[1 - sick]))
    change = next(change for change in reported["changes"] if change["op"] == "write" and change["stage"] == "total")
    assert change["cause"]["stage"] == "softirq"
    assert change["cause"]["share"] > 0.99
    hba = next(change for change in reported["changes"] if change["op"] == "write" and change["stage"] == "hba")
    assert (hba["of"], hba["includes"]) == ("traced", [])
    assert all(70 < side["a"] < 130 for side in (hba["shift_us"]["p50"],))


def without_tracing(name):
    """Return the incident as tier A counts it: totals begin before the issue, so that hba is a series of its own."""
    frames = (replace(first_window, traced=Traced()) for first_window in first_windows(name))
    return period_of(name, replace(INCIDENTS[name].origin, latency_from="queued"), (), frames)


def test_untraced_the_time_from_issue_to_completion_is_not_called_hba():
    comparison = compare(without_tracing("e810"), without_tracing("e810-healthy"))
    text = " ".join(rendered(comparison).split())
    assert "nvme0n1 write issue to completion: all of it is faster" in text
    assert "hba" not in text
    stages = [change for change in printed(comparison)["changes"] if change["stage"] == "hba"]
    assert {(stage["of"], *stage["includes"]) for stage in stages} == {("all", "irq", "softirq", "completion")}


@pytest.mark.parametrize(("sick", "says"), [(True, True), (False, False)])
def test_one_traced_side_says_where_its_time_is_if_it_is_the_slower_one(slow_softirq, sick, says):
    traced = slow_softirq[0 if sick else 1]
    text = " ".join(rendered(compare(traced, without_tracing("e810-healthy" if sick else "e810"))).split())
    assert ("softirq has most of what is faster: nvme0n1" in text) is says
    assert ("of A's time (B was not traced)" in text) is says
    assert "explains" not in text


def test_stages_that_hold_other_stages_are_not_compared():
    b = without_tracing("e810-healthy")
    b.includes = dict.fromkeys(b.includes, ())
    text = " ".join(rendered(compare(without_tracing("e810"), b)).split())
    assert "the driver's time is service (issue to completion) in A, hba in B; the two are not compared" in text
    assert "issue to completion: all of it" not in text


SLOW_US, QUICK_US = 600_000_000, 1000
TOTAL, QUEUE = Series("sda", "write", "total"), Series("sda", "write", "queue")


def waits(slow, number, above=None):
    """1,000 I/Os of 1 ms, and some that waited ten minutes in the queue; `above`: number above a threshold."""
    times = [QUICK_US] * 1000 + [SLOW_US] * slow
    histogram = Histogram.record(times)
    by = {bucket_index(QUICK_US): 1000 * QUICK_US} | ({bucket_index(SLOW_US): slow * SLOW_US} if slow else {})
    reported = {}
    if above is not None:
        reported = {"tables": {ABOVE: {Flow("sda", "write"): slow}}, "thresholds_us": {"sda": above}}
    traced = Traced({TOTAL: histogram, QUEUE: histogram}, {QUEUE: by}, one_in=1)
    return frame(number, histograms={TOTAL: histogram}, traced=traced, **reported)


def of_waits(name, slow, above=None, devices=(DISK,)):
    return period_of(name, BOX, devices, [waits(slow * (i == 20), i, above) for i in range(30)])


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("above", [None, 500_000])
def test_the_longest_i_os_that_one_side_alone_has_come_before_any_quantile(flip, above):
    a, b = of_waits("A", 40, above), of_waits("B", 0, above)
    comparison = compare(*((b, a) if flip else (a, b)))
    text = " ".join(rendered(comparison).split())
    counts = "0 -> 40" if flip else "40 -> 0"
    sides = ("B", "A") if flip else ("A", "B")
    most = (
        f"sda write: 40 I/Os took 537 s to 10 min in {sides[0]}, none of {sides[1]}'s took more than 1 ms"
        if above is None
        else f"sda write: I/Os above 500 ms: {counts}; the longest "
    )
    assert most in text
    assert "100% of their time is queue" in text
    assert text.index(most) < text.index("no other difference found: sda write")
    (total,) = [change for change in printed(comparison)["changes"] if change["stage"] == "total"]
    assert total["extreme"]["count"] == ([0, 40] if flip else [40, 0])
    assert printed(comparison)["lead"][0] in text


def test_the_stage_of_long_i_os_is_named_by_what_it_includes():
    held = ("irq", "softirq", "completion")
    sides = []
    for slow in (40, 0):
        frames = [waits(slow * (i == 20), i) for i in range(30)]
        hba = Series("sda", "write", "hba")
        traced = [
            replace(
                frame.traced,
                histograms={TOTAL: frame.traced.histograms[TOTAL], hba: frame.traced.histograms[TOTAL]},
                by_total={hba: frame.traced.by_total[QUEUE]},
                includes={"hba": held},
            )
            for frame in frames
        ]
        made = [replace(frame, traced=each) for frame, each in zip(frames, traced, strict=True)]
        sides.append(period_of("A", BOX, (DISK,), made))
    comparison = compare(*sides)
    assert "100% of their time is issue to completion" in " ".join(rendered(comparison).split())
    (total,) = [change for change in printed(comparison)["changes"] if change["stage"] == "total"]
    assert total["extreme"]["includes"] == {"hba": list(held)}


@pytest.mark.parametrize("slow", [0, 4])
def test_four_long_i_os_are_no_extreme(slow):
    assert all(change.extreme is None for change in compare(of_waits("A", slow), of_waits("B", 0)).changes)


def test_devices_of_one_side_alone_are_named():
    rng = Random(1)
    text = rendered(compare(load(rng, devices=2, windows=20), load(rng, windows=20)))
    assert "only in A: sd1" in text


def test_what_is_no_recording_and_an_empty_one_are_one_sentence(tmp_path, capsys):
    empty = write(tmp_path / "empty.gz", [])
    with pytest.raises(RecordingError, match="contains no window"):
        read(str(empty))
    assert main(["diff", str(tmp_path / "none"), str(empty)]) == 5
    assert main(["diff", str(empty)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def who(ios, syncs_us=(), process=0):
    """A span of 10 frames with so many I/Os of cgroups in each, and a sync of each of these times."""
    issuers = {Issuer("sda", "read", name): IssuedIO(n, 0) for name, n in ios.items()}
    if process:
        issuers[Issuer("sda", "read", "/web", pid=7, comm="x")] = IssuedIO(process, 0)
    files = {FileSeries("sda", "fsync", "/data", "ext4", "device"): Histogram.record(syncs_us)} if syncs_us else {}
    frames = (
        replace(frame(at), tables={**frame(at).tables, measurements.ISSUERS: issuers, measurements.FILES: files})
        for at in range(10)
    )
    return period_of("x", BOX, (), frames)


def test_cgroups_and_operations_on_files_that_differ_are_described():
    a = who({"/web": 100, "/backup": 0, "/rare": 1}, [1_000] * 20)
    b = who({"/web": 110, "/backup": 400, "/rare": 5}, [3_000] * 20, process=500)
    comparison = compare(a, b)
    text = rendered(comparison)
    assert "cgroups that issue twice as many I/Os on one side:" in text
    assert "  /backup: 0 -> 400 IOPS" in text
    assert "/web" not in text
    assert "/rare" not in text, "it is no twentieth of all"
    assert "  fsync /data: 1 ms -> 3 ms on average" in text
    reported = printed(comparison)
    assert reported["cgroups_differ"] == [{"cgroup": "/backup", "iops": [0, 400]}]
    assert reported["files_differ"] == [{"operation": "fsync /data", "mean_us": [1000, 3000]}]


def processes(**each):
    """A span of 10 frames; name of a process -> its I/Os, bytes and time in us of each of its I/Os in each."""
    issuers = {
        Issuer("sda", "read", "/", pid=at, comm=comm): IssuedIO(n, of, Histogram.record([us] * n) if us else EMPTY)
        for at, (comm, (n, of, us)) in enumerate(each.items(), 1)
    }
    seen = {Flow("sda", "read"): Completed(*(sum(column) for column in list(zip(*each.values(), strict=True))[:2]))}
    return period_of(
        "x",
        BOX,
        (),
        (
            replace(
                frame(at, seen=seen, kernel=seen),
                tables={**frame(at, seen=seen, kernel=seen).tables, measurements.ISSUERS: issuers},
            )
            for at in range(10)
        ),
    )


def test_processes_whose_share_or_latency_differs_are_described():
    a = processes(postgres=(80, 0, 1_000), cron=(1, 0, 100), steady=(80, 0, 500))
    b = processes(postgres=(90, 0, 4_000), backup=(240, 0, 2_000), cron=(9, 0, 100), steady=(80, 0, 500))
    text = rendered(compare(a, b))
    assert "processes whose share and rate of I/Os, or mean latency, is twice as large" in " ".join(text.split())
    assert "  backup: 0% -> 57% of the traced I/Os\n" in text
    assert "  postgres: 50% -> 21% of the traced I/Os; 1 ms -> 4 ms on average" in text
    assert "cron" not in text, "it is no twentieth of all"
    reported = printed(compare(a, b))["processes_differ"]
    assert [one["comm"] for one in reported] == ["backup", "postgres"], "steady issues as many"
    assert reported[0] == {"comm": "backup", "of": "ios", "share": [0, 0.573], "mean_us": [None, 2000]}
    assert "processes_differ" not in printed(compare(a, who({})))
    assert printed(compare(a, a))["processes_differ"] == []


def test_a_process_that_issues_as_many_ios_beside_a_new_one_does_not_differ():
    """Its share of the traced I/Os falls to a half; processes of B are traced in a fifth of the frames."""
    flows = [{Flow("sda", "read"): Completed(n, 0)} for n in (100, 250)]
    spans = []
    for done, each, traced in zip(flows, ({"steady": 100}, {"steady": 100, "new": 150}), (10, 2), strict=True):
        issuers = {
            Issuer("sda", "read", "/", pid=at, comm=name): IssuedIO(n, 0) for at, (name, n) in enumerate(each.items())
        }
        frames = (
            replace(
                frame(at, seen=done, kernel=done),
                tables={
                    **frame(at, seen=done, kernel=done).tables,
                    measurements.ISSUERS: issuers if at < traced else {},
                },
            )
            for at in range(10)
        )
        spans.append(period_of("x", BOX, (), frames))
    assert [one["comm"] for one in printed(compare(*spans))["processes_differ"]] == ["new"]


def test_processes_whose_ios_all_took_less_than_a_microsecond_do_not_differ():
    issuers = {Issuer("zram0", "read", "/", pid=1, comm="dd"): IssuedIO(200, 0, Histogram.record([0] * 200))}
    capture_span = period_of(
        "x",
        BOX,
        (),
        (replace(frame(at), tables={**frame(at).tables, measurements.ISSUERS: issuers}) for at in range(10)),
    )
    assert printed(compare(capture_span, capture_span))["processes_differ"] == []


def test_operations_that_all_took_less_than_a_microsecond_do_not_differ():
    quick = who({}, [0] * 100)
    assert printed(compare(quick, quick))["files_differ"] == []


def test_processes_that_proc_counts_have_shares_of_bytes():
    found = printed(compare(processes(dd=(0, 10, 0), cat=(0, 90, 0)), processes(dd=(0, 80, 0), cat=(0, 20, 0))))
    shares = {one["comm"]: (one["of"], *one["share"]) for one in found["processes_differ"]}
    assert shares == {"cat": ("bytes", 0.9, 0.2), "dd": ("bytes", 0.1, 0.8)}


def kinds(small, sequential, every=200):
    """A span of 10 frames with so many small and sequential I/Os of `every` in each."""
    sizes = {
        SizeClass("sda", "write", 8192): IssuedIO(small, 0),
        SizeClass("sda", "read", 0): IssuedIO(every - small, 0),
    }
    patterns = {Flow("sda", "write"): Pattern(every, sequential)}
    frames = (
        replace(frame(at), tables={**frame(at).tables, measurements.SIZES: sizes, measurements.PATTERNS: patterns})
        for at in range(10)
    )
    return period_of("x", BOX, (), frames)


def test_small_and_sequential_ios_whose_share_differs_are_described():
    text = rendered(compare(kinds(180, 20), kinds(20, 190)))
    assert "  sda: sequential 10% -> 95%, up to 16 KiB 90% -> 10%" in text
    reported = printed(compare(kinds(180, 20), kinds(170, 190)))
    assert reported["kinds_differ"] == [{"device": "sda", "kind": "sequential", "share": [0.1, 0.95]}]
    assert printed(compare(kinds(180, 20), kinds(1, 9, every=9)))["kinds_differ"] == [], "90 I/Os are too few"
    assert "kinds_differ" not in printed(compare(kinds(180, 20), who({})))


def test_what_one_side_did_not_measure_is_no_difference():
    a, b = who({"/web": 100}, [1_000] * 20), who({})
    reported = printed(compare(a, b))
    assert not {"cgroups_differ", "files_differ"} & reported.keys()
    assert "fsync" not in rendered(compare(a, b))
    few = who({"/web": 100}, [9_000])
    assert printed(compare(a, few))["files_differ"] == [], "10 syncs are too few"


def test_the_first_line_is_what_changed_for_the_users():
    sick, healthy = without_tracing("e810"), without_tracing("e810-healthy")
    first = " ".join(rendered(compare(sick, healthy)).partition("\n\n")[0].split())
    slow, fast = user_views((sick, healthy))
    assert first.startswith("B is faster: nvme0n1 write p50 3.97 ms -> 88 us; 1 more difference ")
    assert f"I/Os of 2 ms or more per second: 250 -> 0 (counted: {slow.above:,}, 0)" in first, "24 s are no day"
    assert slow.per_day == pytest.approx(slow.above / (sick.us / 1e6) * 86_400)
    assert "the longest completed I/O: 3.97 ms -> " in first
    assert "in flight" not in first, "none is older than the longest that completed"
    assert (slow.iops, fast.iops) == (device_load(sick).iops, device_load(healthy).iops)


def frames_in_flight(number, followed):
    """Frames with 100 reads of 1 ms each, and with I/Os in flight that never complete; in the first 8 s."""
    reads = {Flow("sda", "read"): Completed(100, 0)}
    for seq in range(8):
        given_frame = frame(seq, seen=reads, kernel=reads, outstanding={"sda": Outstanding(number, 0)})
        listed = InFlightList((InFlight("sda", "read", 1_000),) * number, {5: number}) if followed else None
        timed = {Series("sda", "read", "total"): Histogram.record([1_000] * 100)}
        yield replace(given_frame, histograms=timed, in_flight=listed)


def test_a_side_with_stuck_ios_does_not_look_better():
    stuck, free, many = (
        period_of("x", BOX, (DISK,), frames_in_flight(*how)) for how in ((2, True), (0, True), (50, False))
    )
    age = spelled(stuck.end_us - 1_000)
    for sides, text in (
        ((stuck, free), f"the oldest {age} -> none known"),
        ((many, stuck), f"50 of unknown age -> the oldest {age}"),
    ):
        first = " ".join(rendered(compare(*sides)).partition("\n\n")[0].split())
        _, _, first = first.partition("8 of 20 windows and B has 8 of 20 windows ")
        assert first == f"the longest completed I/O: 1 ms -> 1 ms; in flight at the end: {text}; IOPS: 100 -> 100"
    (view, joined) = user_views((stuck, of_runs([free, stuck])))
    assert (view.oldest_us, view.oldest_is_exact, view.unknown_age) == (stuck.end_us - 1_000, True, 0)
    assert joined.oldest_us == view.oldest_us
    few = period_of("x", BOX, (DISK,), frames_in_flight(5, followed=False))
    assert "in flight" not in rendered(compare(few, free))
    assert "in flight" not in rendered(compare(of_runs([few] * 5), free)), "rates of one run, and the I/Os of one run"


def test_what_a_side_does_not_measure_is_no_zero():
    counters = read(str(RECORDINGS / "procfs.latmon.jsonl.gz"))
    none = period_of("x", BOX, (), (replace(frame(at), seen={}, kernel={}) for at in range(2)))
    timed, counted = user_views((none, counters))
    assert (timed.iops, counted.above, counted.per_day) == (None, None, None)
    first = " ".join(rendered(compare(none, counters)).partition("\n\n")[0].split())
    assert "the longest completed I/O: 1.89 ms -> not timed" in first
    assert "IOPS: not known -> 1.93k" in first


@pytest.mark.parametrize(("disk_is_measured", "iops"), [(True, 100), (False, 50)])
def test_ios_of_a_volume_are_not_counted_again_beside_those_of_its_disk(disk_is_measured, iops):
    volume = Device("dm-0", 253, 0, members=("sda",))
    done = {Flow("dm-0", "read"): Completed(50, 0, 0)} | (
        {Flow("sda", "read"): Completed(100, 0, 0)} if disk_is_measured else {}
    )
    timed = {
        Series(flow.device, "read", "total"): Histogram.record([200_000] * completed.count)
        for flow, completed in done.items()
    }
    frames = [replace(frame(at), histograms=timed, seen=done, kernel=done, devices=(volume, DISK)) for at in range(2)]
    span = period_of("x", BOX, (), frames)
    (view,) = user_views((span,))
    assert (view.above, view.iops) == (2 * iops, iops)
    sweep_table, *each = sweep_of([span]).tables
    assert (sweep_table.rows[0].values["IOPS"], sweep_table.above_us) == (iops, view.above_us)
    assert _latency(span, "").count == 2 * iops
    assert [table.rows[0].values["IOPS"] for table in each] == ([50, 100] if disk_is_measured else [50])


@pytest.mark.parametrize(
    ("names", "disks"),
    [
        (("sda", "sda1", "sdb", "dm-0", "md127"), 2),
        (("nvme0n1", "nvme0n1p2", "md0p1", "md0"), 1),
        (("dm-0", "dm-1"), 2),
        (("sda1", "sda2"), 2),
        (("c0t0d0", "c0t0d0s0", "c1t0d0s0"), 2),
        (("randread", "job1", "all disks"), 3),
    ],
)
def test_of_an_imported_text_ios_of_volumes_and_partitions_are_not_counted_again(names, disks):
    done = {Flow(name, "read"): Completed(100, 0, 0) for name in names}
    devices = tuple(Device(name, 0, 0, kind="other") for name in names)
    span = period_of("x", BOX, (), [replace(frame(0), seen={}, kernel=done, histograms={}, devices=devices)])
    assert device_load(span).iops == user_views((span,))[0].iops == 100 * disks
    assert device_load(span, names[-1]).iops == 100


def test_without_a_common_threshold_slow_ios_are_those_of_buckets_above_100_ms():
    sick, healthy = without_tracing("e810"), without_tracing("e810-healthy")
    for device in {series.device for series in sick.series()}:
        sick._thresholds[device] = {1_000}
    assert {user_view.above_us for user_view in user_views((sick, healthy))} == {131_072}
    assert [user_view.above for user_view in user_views((sick, healthy))] == [0, 0]


def test_failed_ios_are_compared_where_they_were_counted():
    origin = replace(BOX, counted=("errors",))
    failed = {ERRORS: {FailedIO("sda", "read", "time-out"): 12}}
    healthy, failing = (
        period_of(name, origin, (Device("sda", 8, 0),), [replace(frame(0), tables=tables)])
        for name, tables in (("a", {}), ("b", failed))
    )
    assert [view.failed for view in user_views((healthy, failing))] == [0, 12]
    assert "failed I/Os: 0 -> 12" in for_users(user_views((healthy, failing)))
    uncounted = period_of("c", BOX, (), [frame(0)])
    assert "failed I/Os: not counted -> 12" in for_users(user_views((uncounted, failing)))
    assert "failed" not in for_users(user_views((uncounted, healthy)))


def test_a_finding_is_gone_only_if_its_rule_was_evaluated():
    a, b = without_tracing("e810"), without_tracing("e810-healthy")
    assert findings_change(a, b) is None
    a.findings, b.findings = (
        {("tick-quantum", "nvme0n1"): "slow", ("softirq-delay", "nvme0n1"): "late"},
        {("x", ""): "y"},
    )
    b.not_evaluated = frozenset(("softirq-delay",))
    change = findings_change(a, b)
    assert (change.gone, change.new, change.both) == (("slow (tick-quantum)",), ("y (x)",), ())
    assert change.unknown == ("nvme0n1 (softirq-delay), not evaluated in B",)
    text = " ".join(rendered(compare(a, b)).split())
    assert "finding gone: slow (tick-quantum)" in text
    assert "finding of one side: nvme0n1 (softirq-delay), not evaluated in B" in text
    devices, b.devices = b.devices, {}
    assert findings_change(a, b).gone == ()
    assert "nvme0n1 (tick-quantum), which B did not record" in findings_change(a, b).unknown
    b.devices = devices
    b.findings = {**b.findings, ("tick-quantum", "nvme0n1"): "slow"}
    assert findings_change(a, b).both == ("nvme0n1 (tick-quantum)",)


def test_the_command_evaluates_the_rules_of_both(capsys):
    paths = [str(RECORDINGS / f"demo-{name}.latmon.jsonl.gz") for name in ("bubbles", "serialised")]
    print_compared(compared(paths), as_json=True)
    (new,) = json.loads(capsys.readouterr().out)["findings"]["new"]
    assert new.endswith("(queue-depth-misconfigured)")
    off = replace(DEFAULT, off=frozenset({"queue-depth-misconfigured"}))
    print_compared(compared(paths, rules=off), as_json=True)
    assert not json.loads(capsys.readouterr().out)["findings"]["new"], "as the config has it, and `latmon report`"


@pytest.mark.parametrize("name", ["demo-host", "demo-qumulo", "import-dtrace"])
def test_the_findings_of_a_side_are_those_of_its_report(name):
    """The last seconds are a block too, and so is all of a recording shorter than one."""
    path = RECORDINGS / f"{name}.latmon.jsonl.gz"
    reported = reading.summarise(open_recording(path)).evaluated.findings
    assert read(str(path)).findings.keys() == {(finding.id, finding.device) for finding in reported}


def test_missing_windows_are_the_gaps_that_the_report_finds(tmp_path):
    path = write(tmp_path / "holes.gz", [frame for frame in frames_of(1, length=200) if frame.seq not in (30, 31, 170)])
    capture_span, gaps = read(str(path)), reading.summarise(open_recording(path)).gaps
    assert (capture_span.windows, capture_span.gaps, len(gaps)) == (197, 2, 2)
    assert "A is incomplete: 2 gaps" in rendered(compare(capture_span, run(2)))


def frames_of(number, length=30, us=100, dt_us=1_000_000):
    """Frames whose reads of a run take `us`; one of each window is 50 times as slow."""
    rng = Random(number)
    for seq in range(length):
        times = [round(us * rng.uniform(0.8, 1.2)) for _ in range(100)] + [50 * us]
        seen = {Flow(DISK.name, "read"): Completed(101, 413_696)}
        reads = {Series(DISK.name, "read", "total"): Histogram.record(times)}
        when = {"dt_us": dt_us, "mono_us": (seq + 1) * dt_us, "wall": 1e9 + (seq + 1) * dt_us / 1e6}
        above = {"tables": {ABOVE: {Flow(DISK.name, "read"): 1}}, "thresholds_us": {DISK.name: 4_000}}
        yield replace(frame(seq), histograms=reads, seen=seen, kernel=seen, **when, **above)


def run(number, **given):
    return period_of(f"r{number}", BOX, (DISK,), frames_of(number, **given))


def test_runs_of_one_side_have_the_sums_of_their_captures():
    runs = [run(1), run(2, length=45), run(3)]
    side = of_runs(runs)
    series = Series(DISK.name, "read", "total")
    each = [capture_span.total(series, 3) for capture_span in runs]
    assert side.total(series, 3).count == sum(histogram.count for histogram in each) == 105 * 101
    assert side.total(series, 3).max == max(histogram.max for histogram in each) == 5_000
    assert (side.us, side.windows, side.above[Flow(DISK.name, "read")]) == (105_000_000, 105, 105)
    assert user_views((side,))[0].per_day == pytest.approx(86_400)
    assert of_runs(runs[:1]) is runs[0]


def test_units_of_runs_are_about_equally_long_and_of_one_run_each():
    side = of_runs([run(1, length=100), run(2, length=20, dt_us=10_000_000)])
    lengths = [unit.us for unit in side.units]
    assert sum(lengths) == 300_000_000
    assert lengths == [10_000_000] * 30
    long = of_runs([run(number, length=400) for number in range(3)])
    assert len(long.units) <= 1.5 * MAX_UNITS
    assert sum(unit.us for unit in long.units) == 1_200_000_000


def test_a_coarser_run_makes_its_side_coarse():
    fine, rough = run(1), run(2)
    series = Series(DISK.name, "read", "total")
    for unit in rough.units:
        unit.counts[series] = coarse(unit.counts[series], 3, 0)
    rough.bits[series] = 0
    side = of_runs([fine, rough])
    assert side.bits[series] == 0
    assert side.total(series, 3).buckets == merge([fine.total(series, 0), rough.total(series, 0)]).buckets


def test_differences_between_the_runs_of_a_side_are_stated():
    a, b = of_runs([run(1), run(2, us=140)]), of_runs([run(3, us=120), run(4, us=130)])
    text = " ".join(rendered(compare(a, b)).split())
    assert "A 2 runs: r1, r2: box" in text
    assert "A r1: MB/s 0.4, IOPS 101, p50 104 us, p99 128 us, p99.9 5 ms, max 5 ms, slow/day 86.4k" in text
    assert re.search(r"the runs of A and B overlap in p50 \(104 us to 144 us -> 128 us to 144 us\)", text)
    slow = of_runs([run(3, us=520), run(4, us=550)])
    comparison = compare(a, slow)
    text = " ".join(rendered(comparison).split())
    assert re.search(r"every run of B is above every run of A in p50 \(104 us to 144 us -> ", text)
    reported = printed(comparison)["runs"]
    assert [row["name"] for row in reported["a"]] == ["r1", "r2"]
    (p50,) = [one for one in reported["ranges"] if one["column"] == "p50"]
    assert (p50["direction"], tuple(p50["a"])) == (1, (104, 144))
    assert "runs" not in printed(compare(run(1), run(2)))


def test_findings_of_a_side_are_those_of_any_run():
    runs = [run(1), run(2)]
    runs[0].findings, runs[1].findings = {}, {("x", "sda"): "slow"}
    runs[0].not_evaluated, runs[1].not_evaluated = frozenset("xy"), frozenset("y")
    side = of_runs(runs)
    assert (side.findings, side.not_evaluated) == ({("x", "sda"): "slow"}, frozenset("y"))


def test_the_command_joins_the_runs_of_each_side(tmp_path, capsys):
    files = [str(write(tmp_path / f"{number}.gz", frames_of(number))) for number in range(4)]
    assert main(["diff", "--a", *files[:2], "--b", *files[2:], "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [capture["windows"] for capture in reported["captures"]] == [60, 60]
    for wrong in (["--a", *files], ["--a", *files[:2], "--b", files[2], "--sweep", "x"], files[:1]):
        assert main(["diff", *wrong]) == 2
        assert capsys.readouterr().err


def sweep_files(tmp_path, values):
    for number, depth in enumerate(values):
        origin = replace(BOX, settings={"device sda": {"depth": depth}, "capture": {"run": str(number)}})
        yield str(write(tmp_path / f"{number}.gz", frames_of(number, us=100 * int(depth)), origin))


def test_a_sweep_of_a_named_setting_has_a_row_per_value(tmp_path, capsys):
    files = list(sweep_files(tmp_path, ("8", "2", "16", "8")))
    assert main(["diff", "--sweep", "depth", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all devices by depth (slow: I/Os of 4 ms or more)"
    assert [line.split("  ")[1] for line in lines[2:5]] == ["2", "8 (2 runs)", "16"]
    plot = [line for line in lines if line.endswith("|")]
    assert len(plot) == 3
    assert [line.index("5") < line.index("9") < line.index("M") for line in plot] == [True] * 3
    assert plot[2].index("M") > plot[1].index("M") > plot[0].index("M")
    assert "p50, p99, p99.9, max rise as depth rises" in " ".join(lines)
    assert all(len(line) <= 80 for line in lines)
    assert main(["diff", "--sweep", "device sda depth", *files, "--json"]) == 0
    (table, _) = json.loads(capsys.readouterr().out)["sweep"]
    assert [row.get("runs") for row in table["rows"]] == [None, 2, None]
    assert table["rows"][1]["slow/day"] == pytest.approx(86_400)


def test_a_sweep_of_an_unknown_setting_names_those_like_it(tmp_path, capsys):
    files = list(sweep_files(tmp_path, ("8", "2")))
    assert main(["diff", "--sweep", " ", *files]) == 2
    assert "expected the name of a setting" in capsys.readouterr().err
    assert main(["diff", "--sweep", "depht", *files]) == 2
    assert "0 has no setting 'depht'; it has 'depth'" in capsys.readouterr().err
    assert main(["diff", "--sweep", "max_vec", *files]) == 2
    assert "0 has no setting 'max_vec': latmon report names them" in capsys.readouterr().err
    origin = replace(BOX, settings={"device sda": {"depth": "1"}, "device sdb": {"depth": "2"}})
    files.append(str(write(tmp_path / "several.gz", frames_of(9), origin)))
    assert main(["diff", "--sweep", "depth", *files]) == 2
    assert "several has several values of 'depth': choose one of 'device sda depth', 'd" in capsys.readouterr().err


def test_a_few_slow_ios_are_no_rate_per_day_and_a_raised_limit_explains_longer_latencies():
    """The tutorial's cure: 13 slow I/Os of 20 s were 51,900 a day, as if it had made things worse."""
    rng = Random(1)
    sides = []
    for nr_requests, slow in (("4", 0), ("128", 13)):
        span = load(rng, windows=20)
        span.settings = {"device loop1": {"nr_requests": nr_requests}, "device sdb": {"nr_requests": "256"}}
        if slow:
            span.units[0].counts[Series("sd0", "read", "total")][bucket_index(200_000)] = slow
        sides.append(span)
    first, _, _ = rendered(compare(*sides)).partition("\n\n")
    text = " ".join(first.split())
    assert text.startswith("no difference found I/Os of 131 ms or more: 0 -> 13; ")
    assert "loop1 nr_requests 4 -> 128: with the higher limit I/Os wait where their latency is measured" in text
    assert "sdb" not in text


def test_a_raised_limit_leaves_longer_latencies_without_a_direction_and_the_finding_that_is_gone_comes_first():
    """More I/Os are let in, so that their wait is measured which was not before: that is no sick device."""
    a, b = pair(1, factor=3.0)
    a.settings, b.settings = ({"device sd0": {"nr_requests": nr_requests}} for nr_requests in ("4", "128"))
    report = pair_report(compare(a, b))
    verdict = in_a_sentence(report)
    assert verdict.startswith(
        "sd0 nr_requests 4 -> 128: I/Os that waited ahead of it wait in sd0 now, so latencies can't"
    )
    assert is_worse(report) is None
    (_, (first, second, *_)), *_ = paragraphs(report)
    assert first == verdict
    assert "with the higher limit" not in second
    a.findings, b.findings = {("queue-depth-misconfigured", "sd0"): "sd0: nr_requests of 4"}, {}
    a.devices = b.devices = {"sd0": replace(DISK, name="sd0")}
    (_, (first, second, *_)), *_ = paragraphs(pair_report(compare(a, b)))
    assert first == "finding gone: sd0: nr_requests of 4 (queue-depth-misconfigured)"
    assert second == verdict
    a.settings, b.settings = b.settings, a.settings
    assert is_worse(pair_report(compare(a, b))) is True


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (7, 30, "no difference proven, but B has 4 times as many I/Os of 131 ms or more"),
        (40, 0, "no difference proven, but A alone has I/Os of 131 ms or more"),
        (20, 30, "no difference found"),
        (2, 12, "no difference found"),
    ],
)
def test_far_more_slow_ios_of_a_side_are_said_where_no_difference_is_proven(a, b, words):
    view = user_views((without_tracing("e810"), without_tracing("e810-healthy")))[0]
    sides = [replace(view, above_us=131_072, above=count, per_day=count * 2880.0) for count in (a, b)]
    assert _no_difference(sides) == words


def test_rates_are_per_the_largest_unit_that_was_measured():
    view = user_views((without_tracing("e810"), without_tracing("e810-healthy")))[0]
    day = replace(view, above=1_000, per_day=1_000.0)
    for lengths, words in (
        ((86_400.0, 90_000.0), "per day: 1.00k -> 1.00k"),
        ((86_400.0, 3_600.0), "per hour: 42 -> 42"),
        ((60.0, None), "per minute: 0.7 -> 0.7"),
        ((59.0, 7_200.0), "per second: 0.0 -> 0.0"),
    ):
        assert words in for_users((day, day), lengths)


def test_the_verdict_is_on_the_longest_ios_and_names_what_went_the_other_way():
    sick, healthy = (read(str(BUNDLED / f"{name}.latmon.jsonl.gz")) for name in ("bubbles", "bubbles-healthy"))
    first = rendered(compare(sick, healthy)).partition("\nI/Os")[0]
    said = "B's longest I/Os are shorter: sd1 write max 599 s -> 590 ms; but slower: sd1 write p99.9 250 ms -> 590 ms"
    assert " ".join(first.split()) == said
    sick, healthy = (read(str(BUNDLED / f"{name}.latmon.jsonl.gz")) for name in ("emulex", "emulex-healthy"))
    output = rendered(compare(sick, healthy))
    first = " ".join(output.partition("\nI/Os")[0].split())
    times = "1.41 s -> 3.64 ms"
    assert first == f"B's longest I/Os are shorter, completion explains it: {times} (sd0 write in A)"
    head = " ".join(output.partition("settings that differ")[0].split())
    assert re.findall(r"1\.41 s -> [\d.]+ \w+", head) == [times, times], "one number for the longest of all I/Os"


def test_the_selected_device_comes_first():
    both = pair_report(compare(without_tracing("e810"), without_tracing("e810-healthy")))
    moved = next(change for change in both.changes if change.series.stage == "total" and change.changed)
    other = replace(moved, series=moved.series._replace(device="sdz"), subject="sdz write", sentence="sdz write: x")
    changed = replace(both, changes=(*both.changes, other))
    (_, (said, *_)), *parts = paragraphs(changed, "sdz")
    assert "sdz write" in said
    assert dict(parts)["Verdicts"][0] == "sdz write: x"


def test_units_with_many_buckets_are_merged_and_no_unit_has_more_than_the_bound(monkeypatch):
    """Memory of a diff: 128 units of 4,000 series would have 10 million buckets."""
    monkeypatch.setattr(blocks, "MAX_BUCKETS", 2_000)
    monkeypatch.setattr(blocks, "MAX_IN_UNIT", 150)
    spread = Histogram.of(dict.fromkeys(range(100), 1))
    latencies = {Series(f"d{number}", "read", "total"): spread for number in range(4)}
    capture_span = period_of(
        "a", ORIGIN, (), [Frame(n, float(n), n * 1_000_000, 1_000_000, latencies) for n in range(1, 200)]
    )
    assert sum(unit.buckets for unit in capture_span.units) <= 13 * 200
    assert len(capture_span.units) >= neighbours.LEAST
    assert capture_span.left_out
