"""Outstanding I/O in a report: shares that add up, I/Os that never completed, limits that are off."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from recorded import ORIGIN, frame
from report_json import ReportJson, summarised
from test_report import record

from latmon.aggregate.depth_sum import DepthTimes
from latmon.model.frame import Completed, Device, Flow, Frame, Limit, Outlier, Outstanding, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.inflight import EXACT, MEANS, PROBE, SYSFS, Depths, InFlight, InFlightList, Issue, Took
from latmon.report.html import render_html
from latmon.report.html_charts import MapColumns
from latmon.report.reading import added_up
from latmon.report.slow_times import slow_times
from latmon.report.summary import report_of
from latmon.report.text import render_text
from latmon.report.totals import OutstandingSums

LIMITS = (
    Limit("queue_depth", 3, "device/queue_depth"),
    Limit("queue_type", "none", "device/queue_type"),
    Limit("wbt_lat_usec", 2000, "queue/wbt_lat_usec"),
)
LUN = Device("sda", 8, 0, driver="lpfc", model="LUN", limits=LIMITS)
SERIAL = Depths(
    {0: 100, 3: 900}, {0: 100, 13: 900}, {1: 10, 3: 990}, {1: Took(10, 10_000), 16: Took(990, 15_840_000)}, 3, 2, PROBE
)
READS = {Flow("sda", "read"): Completed(900, 3_686_400, 14_400_000)}
HELD = InFlight("sdb", "write", 5_500_000, ("sync", "fua"), 81_920, 4096, 4211, "ora_lgwr", issued=True)


def serial(seq, **changed):
    """A LUN whose driver never has more than three, with 13 above them: 900 reads a second of 3 ms in the driver."""
    values = {
        "histograms": {
            Series("sda", "read", "hba"): Histogram.record([3000] * 900),
            Series("sda", "read", "total"): Histogram.record([16_000] * 900),
        },
        "seen": READS,
        "kernel": READS,
        "devices": (LUN,) if seq == 0 else (),
        "outstanding": {"sda": Outstanding(3, 13)},
        "depths": {"sda": SERIAL},
    } | changed
    return frame(seq, **values)


@pytest.fixture
def summary_of(tmp_path):
    origin = replace(ORIGIN, measured={"hba": ("completion",)})
    return lambda *frames, **changed: summarised(record(tmp_path / "r", *frames, origin=replace(origin, **changed)))


def test_the_schema_s_keys(summary_of):
    reported = summary_of(*(serial(n) for n in range(10)))["devices"]["sda"]["outstanding"]
    assert (reported["max"], reported["mode"], reported["busy_mode"], reported["mean"]) == (3, 3, 3, 2.7)
    assert (reported["limit"], reported["limit_source"], reported["held_at"]) == (3, "device/queue_depth", 3)
    assert reported["time_share"] == {"0": 0.1, "3": 0.9}
    assert reported["busy_time_share"] == {"3": 1.0}
    assert (reported["queued"]["max"], reported["queued"]["mean"], reported["queued"]["busy_time_share"]) == (
        13,
        11.7,
        {"13": 1.0},
    )
    assert reported["at_issue"] == {"1": 100, "3": 9900}
    assert reported["latency_by_depth"] == {
        "1": {"count": 100, "mean_us": 1000.0},
        "16": {"count": 9900, "mean_us": 16_000.0},
    }
    assert (reported["corrected"], reported["source"]) == (20, PROBE)


def test_shares_add_up_whatever_the_windows_length_and_the_number_of_looks(summary_of):
    frames = [
        serial(0, depths={"sda": Depths({0: 1, 1: 2})}),
        Frame(1, 1_000_005.0, 10_000_000, 4_000_000, depths={"sda": Depths({0: 1000, 7: 3000})}),
    ]
    reported = summary_of(*frames)["devices"]["sda"]["outstanding"]
    assert sum(reported["time_share"].values()) == pytest.approx(1.0, abs=1e-5)
    assert sum(reported["busy_time_share"].values()) == pytest.approx(1.0, abs=1e-5)
    assert reported["time_share"]["7"] == pytest.approx(3 / 5, abs=1e-5)
    assert reported["source"] == SYSFS
    assert not {"at_issue", "latency_by_depth", "queued", "held_at"} & set(reported)


def test_little_s_law_and_what_lifting_the_limit_would_give(summary_of):
    law = summary_of(*(serial(n) for n in range(10)))["devices"]["sda"]["outstanding"]["littles_law"]
    assert (law["of"], law["outstanding"], law["latency_us"], law["iops"], law["agrees"]) == (
        "all",
        14.4,
        16_000.0,
        900.0,
        True,
    )
    assert law["lift"] == {"limit": 3, "depth": 16, "iops": pytest.approx(5333.3), "most": 1000.0}
    assert law["sentence"].startswith("900 IOPS = 14.4 in flight / 16 ms; at 16 in flight up to 5,330")


def fsync(seq):
    """400 writes of 1 ms, and 200 empty ones that wait 2 ms for their flush: no probe times an empty write."""
    write, flush = Flow("sda", "write"), Flow("sda", "flush")
    return serial(
        seq,
        histograms={
            Series("sda", "write", "total"): Histogram.record([1000] * 400),
            Series("sda", "write", "hba"): Histogram.record([1000] * 400),
            Series("sda", "flush", "total"): Histogram.record([2000] * 200),
        },
        seen={write: Completed(400, 1_638_400), flush: Completed(200, 0)},
        kernel={write: Completed(600, 1_638_400, 800_000), flush: Completed(200, 0, 400_000)},
        outstanding={"sda": Outstanding(0, 1)},
        depths={"sda": Depths({0: 600, 1: 400}, {0: 600, 1: 400}, source=PROBE)},
    )


def test_both_sides_of_the_law_have_the_empty_writes_that_carry_flushes(summary_of):
    law = summary_of(*(fsync(n) for n in range(10)))["devices"]["sda"]["outstanding"]["littles_law"]
    assert (law["of"], law["outstanding"], law["by_law"], law["agrees"]) == ("all", 0.8, 0.8, True)


def sampled(make):
    """Make the same frames with samples of the kernel's gauges, without what a probe alone counts."""
    return lambda seq: (
        (one := make(seq))
        and replace(one, depths={"sda": replace(one.depths["sda"], source=SYSFS, at_issue={}, latency={})})
    )


@pytest.mark.parametrize(
    ("make", "iops"),
    [(serial, 900), (sampled(serial), 900), (sampled(fsync), 580)],
    ids=["by a probe", "by samples", "by samples, with the writes of flushes, which no probe times"],
)
@pytest.mark.parametrize("latency_from", ["queued", "issue"])
def test_the_rate_of_the_law_includes_windows_without_the_kernel_s_counters(summary_of, make, iops, latency_from):
    """The first windows after a start have none: the rate was the kernel's count divided by all of the time."""
    frames = [replace(make(n), kernel={}) if n == 0 else make(n) for n in range(10)]
    law = summary_of(*frames, latency_from=latency_from)["devices"]["sda"]["outstanding"]["littles_law"]
    assert (law["of"], law["iops"], law["agrees"]) == ("all", iops, True)


@pytest.mark.parametrize(
    ("listed", "older", "text"),
    [
        pytest.param(2, {}, "+ 2 stuck = 4.7 counted in driver and queue", id="both have a row"),
        pytest.param(1, {1: 2}, "+ 1.1 to 2 stuck, 4.7 counted in driver and queue", id="one is only counted, at 1 s"),
    ],
)
def test_what_never_completes_is_reported_beside_the_law(summary_of, listed, older, text):
    """Two writes that are there from before the first window to the end of the last, above 900 reads of 3 ms."""
    held = tuple(HELD._replace(device="sda", began_us=n) for n in (1, 2))
    stuck = InFlightList(held[:listed], older, since_us=1)
    busy = Depths({5: 700, 4: 300}, {0: 1000}, source=PROBE)
    done = {Flow("sda", "read"): Completed(900, 3_686_400, 2_700_000)}
    frames = [
        serial(
            n,
            histograms={Series("sda", "read", "total"): Histogram.record([3000] * 900)},
            kernel=done,
            depths={"sda": busy},
            outstanding={"sda": Outstanding(2, 0)},
            in_flight=replace(stuck, at_us=0),
        )
        for n in range(10)
    ]
    law = summary_of(*frames)["devices"]["sda"]["outstanding"]["littles_law"]
    assert (law["stuck_most"], law["agrees"]) == (2, True)
    assert law["sentence"].startswith(f"900 IOPS at 3 ms: 2.7 by Little's law {text}")


def test_there_is_no_law_of_a_part_of_the_time_nor_of_a_few_looks(summary_of):
    part = summary_of(serial(0), *(serial(n, depths={}) for n in range(1, 5)))
    assert "littles_law" not in part["devices"]["sda"]["outstanding"]


def test_a_few_ios_make_no_law(summary_of):
    few = {Series("sda", "read", "total"): Histogram.record([3000] * 9)}
    done = {Flow("sda", "read"): Completed(9, 36_864, 27_000)}
    reported = summary_of(*(serial(n, histograms=few, kernel=done) for n in range(10)))
    assert "littles_law" not in reported["devices"]["sda"]["outstanding"]


def test_a_few_looks_make_no_law(summary_of):
    rare = Depths({0: 990, 3: 10}, {0: 1000})
    reported = summary_of(*(serial(n, depths={"sda": rare}) for n in range(10)))
    assert "littles_law" not in reported["devices"]["sda"]["outstanding"]


def test_a_recording_without_depths_keeps_the_gauge_s_numbers(summary_of):
    reported = summary_of(*(serial(n, depths={}) for n in range(4)))["devices"]["sda"]["outstanding"]
    assert reported == {
        "windows": 4, "max": 16, "mode": 16, "limit": 3, "limit_source": "device/queue_depth",
        "time_share": {"16": 1.0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("depths", "dt_us", "text"),
    [
        ((16, 16, 16), 1_000_000, "max 16, mostly 16 (in 3 of 3 windows)"),
        ((16, 16, 2, 3, 4), 1_000_000, "max 16, most often 16 (in 2 of 5 windows)"),
        ((16, 16, 16), 600_000, "max 16, mostly 16 (100% of them)"),
        ((16, 16, None), 1_000_000, "max 16, mostly 16 (100% of them)"),
        ((*[16] * 12, *range(1, 10)), 1_000_000, "max 16, mostly 16 (57.14% of them)"),
    ],
)
def test_a_few_samples_are_counted(summary_of, depths, dt_us, text):
    """The last window has this length; shares of windows of different lengths are none of their number."""
    frames = [serial(n, depths={}, outstanding={"sda": Outstanding(depth, None)}) for n, depth in enumerate(depths)]
    last = frames[-1]
    frames[-1] = replace(last, dt_us=dt_us, mono_us=last.mono_us - last.dt_us + dt_us)
    assert f"outstanding at the windows' ends: {text}" in " ".join(render_text(summary_of(*frames).report).split())


def held(seq, **changed):
    """sdb has one write in flight and completes nothing."""
    idle = {Flow("sdb", "write"): Completed(0, 0)}
    values = {"histograms": {}, "seen": {}, "kernel": idle, "outstanding": {"sdb": Outstanding(1, 0)}} | changed
    return frame(seq, **values)


def test_a_request_that_never_completes_is_in_the_report(summary_of):
    frames = [held(n, in_flight=InFlightList((HELD,), {1: 1, 10: int(n > 10), 60: 0}, 1)) for n in range(31)]
    summary = summary_of(*frames)
    reported = summary["devices"]["sdb"]
    (row,) = reported["in_flight"]
    assert (row["age_us"], row["at_least"], row["op"], row["flags"]) == (30_500_000, False, "write", ["sync", "fua"])
    assert (row["sector"], row["bytes"], row["pid"], row["comm"], row["in_driver"]) == (
        81_920,
        4096,
        4211,
        "ora_lgwr",
        True,
    )
    assert (row["began"], row["began_mono_us"]) == ("1970-01-12T13:46:40.500Z", 5_500_000)
    assert reported["in_flight_oldest_us"] == 30_500_000
    assert summary["health"]["in_flight_older"] == {"1 s": 1, "10 s": 1, "60 s": 0, "at_least": False}
    assert row["overtaken_by"] is None
    text = render_text(summary.report)
    assert "IN FLIGHT at the end: sdb: 1 I/O for 30.5 s (1 for more than 1 s, 1 for" in text
    assert "in flight at the end: write sync fua 4,096 B sector 81,920" in text
    assert "no I/O: sdb" not in text


def test_a_request_of_latmons_own_says_so_in_the_report(summary_of):
    own = HELD._replace(own=True, comm="bpftrace")
    summary = summary_of(*(held(n, in_flight=InFlightList((own,), {1: 1}, 1)) for n in range(31)))
    assert summary["devices"]["sdb"]["in_flight"][0]["own"] is True
    assert "latmon's bpftrace/4211" in " ".join(render_text(summary.report).split())


def test_when_it_began_is_reported_by_the_frame_s_two_clocks(summary_of):
    """The probe looked 4 s before the frame's end: the age is of then, the beginning is the beginning."""
    frames = [held(n, in_flight=InFlightList((HELD,), {1: 1}, 1, at_us=(n + 2) * 1_000_000)) for n in range(26, 31)]
    reported = summary_of(*frames)["devices"]["sdb"]
    (row,) = reported["in_flight"]
    end = frames[-1]
    assert row["age_us"] == end.in_flight.at_us - 5_500_000 < end.mono_us - 5_500_000
    assert row["began"] == reported["in_flight_longest"]["began"] == "1970-01-12T13:46:40.500Z"


def test_what_overtook_it_is_reported_while_it_waits(summary_of):
    still = InFlightList((HELD._replace(overtaken_by=4120),), {1: 1}, 1)
    summary = summary_of(*(held(n, in_flight=still) for n in range(9)))
    assert summary["devices"]["sdb"]["in_flight"][0]["overtaken_by"] == 4120
    assert "in the driver, overtaken by 4,120" in " ".join(render_text(summary.report).split())


@pytest.mark.parametrize(("total_us", "is_listed"), [(9_000_000, True), (11_000_000, False)])
def test_the_longest_io_is_described_once(summary_of, total_us, is_listed):
    """The longest in flight is reported unless an outlier, which is another request, took as long."""
    still = InFlightList((HELD._replace(began_us=frame(0).mono_us, overtaken_by=4120),), {1: 1}, 1)
    waits = [held(n, in_flight=still) for n in range(1, 11)]
    last = waits[-1].mono_us
    done = Outlier(0.0, last - total_us, "sdb", "write", total_us, {"queue": total_us}, overtaken_by=5000)
    burst = tuple(Issue(last + n, 8 * n, 4096, "write", 8_000_000 if n == 40 else 0) for n in range(41))
    over = held(11, outstanding={"sdb": Outstanding(0, 0)}, outliers=(done,), issues={"sdb": burst})
    summary = summary_of(*waits, over)
    text = " ".join(render_text(summary.report).split())
    assert summary["devices"]["sdb"]["in_flight_longest"]["age_us"] == 10_000_000
    assert ("longest in flight: write" in text) is is_listed
    assert summary["devices"]["sdb"]["issue_order"]["longest_wait_us"] == 8_000_000
    assert "the request that waited longest" not in text


def busy(seq, still=None, **changed):
    """Six in flight and 500 completions a second: any of them may be the oldest that there is."""
    done = {Flow("sdb", "write"): Completed(500, 4096)}
    now = {"outstanding": {"sdb": Outstanding(6, 0)}} | changed
    return held(seq, kernel=done, seen=done, in_flight=still, **now)


@pytest.mark.parametrize("still", [None, InFlightList(devices=("sda",)), InFlightList(since_us=5_500_000)])
def test_an_unknown_age_is_no_empty_list(summary_of, still):
    """Ages without a probe, with one that follows others, and with one that began later than the I/Os."""
    summary = summary_of(*(busy(n, still) for n in range(5)))
    reported = summary["devices"]["sdb"]
    assert reported["in_flight_of_unknown_age"] == 6
    assert not {"in_flight", "in_flight_oldest_us"} & reported.keys()
    assert summary["health"]["in_flight_older"] == {"1 s": 0, "10 s": 0, "60 s": 0, "at_least": True}
    assert summary["health"]["in_flight_of_unknown_age"] == 6
    assert "in flight at the end: 6 of unknown age" in render_text(summary.report)


def test_an_empty_list_has_no_old_io_and_the_number_of_all_ages_is_beside_it(summary_of):
    summary = summary_of(*(busy(n, InFlightList()) for n in range(5)))
    assert summary["devices"]["sdb"]["in_flight_count"] == 6
    assert (summary["devices"]["sdb"]["in_flight"], summary["devices"]["sdb"]["in_flight_oldest_us"]) == ([], None)
    assert summary["health"]["in_flight_older"]["at_least"] is False
    assert "in flight at the end" not in render_text(summary.report)


def test_without_a_probe_it_has_a_least_age(summary_of):
    summary = summary_of(*(held(n) for n in range(31)))
    assert summary["devices"]["sdb"]["in_flight"] == [{"age_us": 30_000_000, "at_least": True, "count": 1}]
    text = render_text(summary.report)
    assert "1 I/O for at least 30 s" in text
    assert "at least 1 for more than 1 s" in " ".join(text.split())


def test_a_count_that_the_kernel_lacks_is_absent(summary_of):
    unknown = {"outstanding": {"sda": Outstanding(1, None), "sdb": Outstanding(None, None)}}
    devices = summary_of(*(busy(n) for n in range(3)), busy(3, **unknown))["devices"]
    assert devices["sda"]["in_flight_count"] == 1
    assert "in_flight_count" not in devices["sdb"]


@pytest.mark.parametrize(
    ("held_us", "slo_us", "then"),
    [
        ({"sdb": 2000}, 4_000_000, "longest in flight: at least 8 s on sdb"),
        ({"sda": 9_000_000, "sdb": 2000}, 60_000_000, "longest in flight: at least 8 s on sdb"),
        ({"sdb": 9_000_000}, 60_000_000, ""),
    ],
)
def test_ios_in_flight_are_beside_the_slow_ones_that_completed(tmp_path, held_us, slo_us, then):
    timed = {Series("sda", "read", "total"): Histogram.record([100] * 900)}
    frames = [held(n, thresholds_us=held_us, seen=READS, histograms=timed) for n in range(9)]
    recorded = record(tmp_path / "r", *frames)
    columns = MapColumns(1_000_000)
    totals = added_up(recorded, columns.add, slo_us=slo_us)
    summary = ReportJson(report_of(recorded, totals))
    text = " ".join(render_text(summary.report).split())
    assert text.count("no completed I/O took ") == 2
    slow = [sentence for _, sentence in slow_times(summary.report)]
    assert [one.partition("; ")[2] for one in slow] == [then, then if slo_us < 8_000_000 else ""]
    page = render_html(summary.report, totals, columns)
    assert '>-<br><span class="bad">in flight for at least 8 s</span></td>' in page


def test_what_was_held_in_the_middle_is_still_reported(summary_of):
    done = {Flow("sdb", "write"): Completed(1, 4096)}
    after = [held(n, kernel=done if n == 31 else {}, outstanding={"sdb": Outstanding(0, 0)}) for n in range(31, 60)]
    summary = summary_of(*(held(n) for n in range(31)), *after)
    reported = summary["devices"]["sdb"]
    assert (reported["in_flight"], reported["in_flight_oldest_us"]) == ([], None)
    assert reported["in_flight_longest"] == {
        "seen": "1970-01-12T13:47:11.000Z", "age_us": 30_000_000, "at_least": True, "count": 1
    }  # fmt: skip
    assert "longest in flight: 1 I/O for at least 30 s, seen at 1970-01-12T13:47:11" in render_text(summary.report)


def test_limits_have_their_remarks_and_the_text_reports_what_is_off(summary_of):
    summary = summary_of(*(serial(n) for n in range(3)))
    reported = summary["devices"]["sda"]
    ids = {row["name"]: [remark["id"] for remark in row.get("remarks", [])] for row in reported["limits"]}
    assert ids == {
        "queue_depth": ["depth-low"],
        "queue_type": ["tagged-queueing-off"],
        "wbt_lat_usec": ["writeback-throttling"],
    }
    assert [limits_remark["id"] for limits_remark in reported["limits_remarks"]] == ["ceiling-reached"]
    text = render_text(summary.report)
    assert "limits that are off:" in text
    assert "at its limit of 3 (device/queue_depth) while more I/Os waited" in text
    assert "background writes" not in text


def test_the_order_of_issue_is_summed_up(summary_of):
    window = tuple(Issue(5_500_000 + n * 100, n * 8, 4096, "read", 10) for n in range(100))
    reported = summary_of(*(serial(n, issues={"sda": window}) for n in range(3)))["devices"]["sda"]
    assert (reported["issue_order"]["count"], reported["issue_order"]["ascending"]) == (300, 1.0)


def test_the_order_of_a_few_has_no_line(summary_of):
    summary = summary_of(serial(0, issues={"sda": (Issue(5_500_000, 8, 4096, "read", 10),)}))
    assert summary["devices"]["sda"]["issue_order"]["ascending"] is None
    assert "issue order" not in render_text(summary.report)


def test_the_text_fits_a_ticket(summary_of):
    busy = Depths(
        {n: 10 + n for n in range(40)}, {0: 1, 400: 9}, dict.fromkeys(range(1, 40), 5), {900: Took(1, 5)}, 39, 0, PROBE
    )
    text = render_text(summary_of(*(serial(n, depths={"sda": busy}) for n in range(3))).report)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "and 31 more depths" in text
    json.dumps(text)


def test_depths_are_folded_so_that_a_day_s_memory_is_bounded():
    sums = DepthTimes()
    for depth in range(0, 1 << 16, 7):
        sums.add(Depths({depth: 1}, {depth: 1}, {depth: 1}, {depth: Took(1, 1)}), 1000, 0.0)
    assert max(map(len, (sums.in_driver, sums.queued, sums.at_issue, sums.latency))) < EXACT + 100
    assert sums.highest == 7 * ((1 << 16) // 7)
    ends = {1: 1, 288: 1, 512: 1, 576: 1, 1024: 1}
    sums = DepthTimes()
    sums.add(Depths(ends, ends, ends, most=1001), 5000, 7.0)
    assert sums.at_issue.keys() == sums.in_driver.keys() == ends.keys(), "each reported end is one"
    assert (sums.highest, sums.highest_at) == (1001, 7.0)


def test_devices_that_come_and_go_keep_their_longest_wait():
    sums = OutstandingSums()
    for n in range(3):
        sums.add(held(n))
    sums.add(held(3, removed=("sdb",), outstanding={}))
    assert sums.ages.oldest == ()
    assert sums.longest["sdb"].row.age_us == 2_000_000


@pytest.mark.parametrize(("queue_us", "held_at"), [(13_000, 3), (3_000, None)])
def test_waiting_i_os_that_the_kernel_does_not_count_are_those_of_the_traced_times(summary_of, queue_us, held_at):
    """900 reads a second, as before Linux 6.10: 11.7 wait, or 2.7, which may be a queue that is stopped and started."""
    stages = {"queue": queue_us, "hba": 3_000, "total": queue_us + 3_000}
    timed = {Series("sda", "read", stage): Histogram.record([us] * 90) for stage, us in stages.items()}
    depths = {"sda": replace(SERIAL, queued={}, source=SYSFS)}
    frames = [serial(n, depths=depths, histograms={}, traced=Traced(timed, one_in=10)) for n in range(20)]
    reported = summary_of(*frames)["devices"]["sda"]
    assert reported["outstanding"].get("held_at") == held_at
    assert ("at_limit" in reported["outstanding"]) is (held_at is None)
    remarks = [limits_remark["id"] for limits_remark in reported["limits_remarks"]]
    assert remarks == ["at-limit" if held_at is None else "ceiling-reached"]


@pytest.mark.parametrize(
    ("sampled", "depth"),
    [
        pytest.param({"depths": {}, "outstanding": {"md0": Outstanding(9, None)}}, 9, id="gauges"),
        pytest.param({"depths": {"md0": Depths({0: 500, 9: 500}, source=SYSFS)}}, 9, id="sampled"),
        pytest.param({"depths": {"md0": Depths({0: 500, 9: 500}, source=MEANS)}}, None, id="means"),
    ],
)
def test_a_volume_s_limit_is_the_sum_of_its_disks(summary_of, sampled, depth):
    disks = [Device(name, 8, at, limits=(Limit("queue_depth", 4, "q"),)) for at, name in enumerate(("sdx", "sdy"))]
    volume = Device("md0", 9, 0, "md", members=("sdx", "sdy"), timed=False)
    kernel = {Flow("md0", "read"): Completed(5, 20_480)}
    summary = summary_of(frame(0, devices=(*disks, volume), kernel=kernel, **sampled))
    reported = summary["devices"]["md0"]["outstanding"]
    assert (reported["limit"], reported["limit_of_disks"], reported.get("max")) == (8, {"sdx": 4, "sdy": 4}, depth)
    assert "held_at" not in reported
    assert "its disks take 8 (sdx 4, sdy 4)" in " ".join(render_text(summary.report).split())


def test_a_volume_with_a_disk_of_unknown_limit_has_none(summary_of):
    disks = [Device("sdx", 8, 0, limits=(Limit("queue_depth", 4, "q"),)), Device("sdy", 8, 1)]
    volume = Device("md0", 9, 0, "md", members=("sdx", "sdy"), timed=False)
    now = {"md0": Outstanding(9, None)}
    summary = summary_of(frame(0, devices=(*disks, volume), depths={}, outstanding=now))
    assert not [key for key in summary["devices"]["md0"]["outstanding"] if key.startswith("limit")]
