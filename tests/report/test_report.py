"""The report of a recording: right sums, honest quantiles, nothing that wasn't measured."""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import replace

import pytest
from recorded import DISK, ORIGIN, frame
from report_json import ReportJson, summarised

from latmon.cli.check import contents, survey
from latmon.cli.main import run as main
from latmon.model import measurements
from latmon.model.coverage import Coverage
from latmon.model.frame import Completed, Device, Flow, Health, Missing, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.model.measurements import ERRORS
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.recording.writer import Writer
from latmon.report.command import report_command
from latmon.report.completeness import incomplete
from latmon.report.html import render_html
from latmon.report.html_charts import MapColumns
from latmon.report.reading import added_up
from latmon.report.summary import report_of
from latmon.report.text import render_text
from latmon.support.errors import EXIT_DONE, RecordingError
from latmon.support.units import rfc3339

PROCFS = replace(
    ORIGIN,
    backend="procfs",
    tool="",
    tier="",
    measured={},
    absent=(Missing("total", "counters have no distribution"), Missing("hba", "counters have no distribution")),
    latency_from="",
    reason="bpftrace is not installed",
)


def record(path, *frames, origin=ORIGIN, gaps=(), close=True):
    writer = Writer.create(path, origin)
    for current_frame in frames:
        if current_frame.seq in gaps:
            writer.gap("enospc", 2.0)
        writer.append(current_frame)
    writer.flush()
    if close:
        writer.close()
    else:  # as a killed one's: its lock is gone
        held = writer.hold()
        fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)
    return open_recording(path)


@pytest.fixture
def summary_of(tmp_path):
    return lambda *frames, **options: summarised(record(tmp_path / "r", *frames, **options))


def counted(seq, **counts):
    """A procfs window: kernel counts alone."""
    kernel = {Flow("sda", op): Completed(n, 4096 * n, 1500 * n) for op, n in counts.items()}
    return frame(seq, histograms={}, seen={}, kernel=kernel, outstanding={"sda": Outstanding(2, None)})


def test_the_schema_s_frame(summary_of):
    summary = summary_of(*(frame(i) for i in range(20)))
    assert summary["schema"] == "latmon.report/1"
    assert summary["host"] == {"name": "box", "kernel": "6.1.0", "latmon": "0.1.0", "tool": "by hand"}
    assert summary["start"] == "1970-01-12T13:46:40.000Z"
    assert (summary["duration_s"], summary["intervals"], summary["gaps"]) == (20.0, 20, [])
    assert summary["findings"] == []
    assert "damage" not in summary
    json.dumps(summary, allow_nan=False)


def test_counts_bytes_and_latencies_add_up(summary_of):
    frames = [frame(i) for i in range(200)]
    read = summary_of(*frames)["devices"]["sda"]["ops"]["read"]
    exact = [frame.histograms[Series("sda", "read", "total")] for frame in frames]
    assert (read["count"], read["bytes"]) == (20_000, 200 * 409_600)
    assert read["kernel"] == {
        "count": 20_000, "bytes": 200 * 409_600, "time_us": 28_000_000, "mean_us": 1400.0
    }  # fmt: skip
    latency = read["latency_us"]
    assert list(latency) == ["count", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"]
    assert (latency["count"], latency["max"]) == (20_000, max(histogram.max for histogram in exact))
    assert latency["mean"] == pytest.approx(sum(histogram.sum for histogram in exact) / 20_000, abs=0.1)
    assert latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert read["stages"]["hba"]["sum"] == sum(histogram.sum for histogram in exact)
    assert read["stages"]["hba"]["includes"] == ["irq", "softirq"]
    assert "total" not in read["stages"]
    assert read["stages_absent"] == {"resume": "no probe for it"}


def test_a_quantile_without_enough_ios_is_null(summary_of):
    latency = summary_of(*(frame(i) for i in range(5)))["devices"]["sda"]["ops"]["read"]["latency_us"]
    assert latency["p99"] is not None
    assert (latency["p99.9"], latency["p99.99"]) == (None, None)


def test_a_maximum_that_is_not_exact_is_null_and_bounded(summary_of):
    series = Series("sda", "read", "total")
    blind = frame(1, histograms={series: Histogram.of({80: 10}, 90_000)})
    latency = summary_of(frame(0), blind)["devices"]["sda"]["ops"]["read"]["latency_us"]
    assert latency["max"] is None
    assert latency["max_bound"] >= 1024


def test_one_unknown_sum_makes_the_mean_null(summary_of):
    series = Series("sda", "read", "total")
    blind = frame(1, histograms={series: Histogram.of({63: 10}, None, 1000)})
    assert summary_of(frame(0), blind)["devices"]["sda"]["ops"]["read"]["latency_us"]["mean"] is None


def test_merges_are_beside_the_requests_that_they_went_into(summary_of):
    frames = [frame(n, kernel={Flow("sda", "read"): Completed(100, 0, 1, merged=m)}) for n, m in enumerate((1200, 34))]
    summary = summary_of(*frames)
    assert summary["devices"]["sda"]["ops"]["read"]["kernel"]["merged"] == 1234
    assert "1,234 more were merged into them" in " ".join(render_text(summary.report).split())


def test_failed_ios_are_named_by_status_and_apart_from_others_that_are_not_timed(summary_of):
    failed = {FailedIO("sda", "read", "I/O error"): 3, FailedIO("sda", "read", "time-out"): 1}
    timed = {Series("sda", "read", "total"): Histogram.record([90] * 10)}
    seen = {Flow("sda", "read"): Completed(16, 0), Flow("sda", "write"): Completed(2, 0)}
    frames = [frame(n, histograms=timed, seen=seen, tables={ERRORS: failed}) for n in range(2)]
    summary = summary_of(*frames)
    ops = summary["devices"]["sda"]["ops"]
    assert (ops["read"]["untimed"], ops["read"]["failed"]) == (12, {"I/O error": 6, "time-out": 2})
    assert "failed" not in ops["write"]
    text = " ".join(render_text(summary.report).split())
    assert "8 of them failed (I/O error 6, time-out 2) and are not timed; 4 others not timed" in text


def test_no_failed_io_is_said_where_they_are_counted(summary_of):
    summary = summary_of(frame(0), origin=replace(ORIGIN, counted=(ERRORS.name,)))
    assert summary["devices"]["sda"]["ops"]["read"]["failed"] == {}


def test_merges_are_unknown_where_a_window_has_none(summary_of):
    frames = [frame(0, kernel={Flow("sda", "read"): Completed(100, 0, 1, merged=5)})]
    unknown = summary_of(*frames, frame(1, kernel={Flow("sda", "read"): Completed(100, 0, 1)}))
    assert "merged" not in unknown["devices"]["sda"]["ops"]["read"]["kernel"]


@pytest.mark.parametrize(("us", "shown"), [(None, True), (10_000, False)])
def test_where_the_probe_has_no_sums_the_text_has_the_kernel_s_mean(summary_of, us, shown):
    kernel = {Flow("sda", "read"): Completed(10, 40_960, 15_000)}
    given_frame = frame(0, histograms={Series("sda", "read", "total"): Histogram.of({80: 10}, us, 1100)}, kernel=kernel)
    text = " ".join(render_text(summary_of(given_frame).report).split())
    assert ("mean 1.5 ms by the kernel's own clock, which includes the queue" in text) == shown


def test_coarse_and_fine_windows_are_summed_coarsely(summary_of):
    series = Series("sda", "read", "total")
    coarse = frame(1, histograms={series: Histogram.of({11: 100}, 100_000, 1000, bits=0)})
    latency = summary_of(frame(0), coarse)["devices"]["sda"]["ops"]["read"]["latency_us"]
    assert latency["count"] == 200


def test_more_seen_than_timed_is_visible(summary_of):
    given_frame = frame(0, seen={Flow("sda", "read"): Completed(130, 1)})
    read = summary_of(given_frame)["devices"]["sda"]["ops"]["read"]
    assert (read["count"], read["latency_us"]["count"]) == (130, 100)


@pytest.mark.parametrize(
    ("kernels", "said"),
    [(100, ""), (103, "; the kernel counted 103 in windows where the probe counted 100")],
)
def test_the_kernel_s_count_is_compared_in_windows_that_have_both(summary_of, kernels, said):
    flow = Flow("sda", "read")
    first = frame(0, seen={flow: Completed(50, 1)}, kernel={})
    summary = summary_of(first, frame(1, seen={flow: Completed(100, 1)}, kernel={flow: Completed(kernels, 1)}))
    read = summary["devices"]["sda"]["ops"]["read"]
    assert (read["count"], read["kernel"]["count"], read["kernel"]["seen_alone"]) == (150, kernels, 50)
    text = " ".join(render_text(summary.report).split())
    assert ("; the kernel counted" in text) == bool(said)
    assert said in text


def test_coverage_is_of_what_both_could_count(summary_of):
    seen = {Flow("sda", "read"): Completed(990, 1), Flow("sda", "other"): Completed(7, 0)}
    kernel = {Flow("sda", "read"): Completed(1000, 1), Flow("dm-0", "read"): Completed(500, 1)}
    volume = Device("dm-0", 253, 0, "dm", members=("sda",), timed=False)
    health = summary_of(frame(0, seen=seen, kernel=kernel, devices=(DISK, volume)))["health"]
    assert health["coverage"] == 0.997
    assert health["completions"] == {"seen": 997, "kernel": 1000}


def test_coverage_never_hides_what_was_counted_twice(summary_of):
    summary = summary_of(frame(0, seen={Flow("sda", "read"): Completed(150, 1)}))
    assert summary["health"]["coverage"] == 1.0
    assert summary["health"]["completions"] == {"seen": 150, "kernel": 100}
    assert "counted twice" in render_text(summary.report)


def test_counters_that_are_read_at_two_moments_are_not_counted_twice(summary_of):
    """Seen: 2,717 of 2,670 in 5 s, with a coverage of 100 %."""
    frames = [frame(n, seen={Flow("sda", "read"): Completed(101 + (n == 0), 1)}) for n in range(5)]
    assert "counted twice" not in render_text(summary_of(*frames).report)


def test_without_a_probe_there_is_no_coverage_and_no_distribution(summary_of):
    summary = summary_of(counted(0, read=3, flush=0), counted(1, read=5, write=1), origin=PROCFS)
    assert summary["health"]["coverage"] is None
    assert "completions" not in summary["health"]
    ops = summary["devices"]["sda"]["ops"]
    assert list(ops) == ["read", "write"]
    assert "latency_us" not in ops["read"]
    assert ops["read"]["stages"] == {}
    assert set(ops["read"]["stages_absent"]) == {"total", "hba"}
    assert ops["read"]["kernel"]["mean_us"] == 1500.0
    text = render_text(summary.report)
    assert "why this backend: bpftrace is not installed" in text
    assert "mean 1.5 ms by the kernel's own clock" in text


def test_an_empty_recording_has_a_report(summary_of):
    summary = summary_of()
    assert (summary["intervals"], summary["duration_s"], summary["devices"]) == (0, 0.0, {})
    assert summary["start"] == "1970-01-12T13:46:40.000Z"
    assert render_text(summary.report)


def test_outstanding_is_weighed_by_time(summary_of):
    depths = [0, 0, 0, 7]
    frames = [
        frame(i, outstanding={"sda": Outstanding(depth - depth // 2, depth // 2)}) for i, depth in enumerate(depths)
    ]
    assert summary_of(*frames)["devices"]["sda"]["outstanding"] == {
        "windows": 4, "max": 7, "mode": 0, "time_share": {"0": 0.75, "7": 0.25}
    }  # fmt: skip


def test_unknown_outstanding_is_absent(summary_of):
    assert "outstanding" not in summary_of(frame(0, outstanding={"sda": Outstanding(None, None)}))["devices"]["sda"]


def test_a_device_says_what_it_is_and_nothing_it_does_not_know(summary_of):
    device = summary_of(frame(0))["devices"]["sda"]
    assert (device["controller"], device["model"], device["major"], device["minor"]) == (
        DISK.controller, DISK.model, 8, 0
    )  # fmt: skip
    assert "serial" not in device


def test_gaps_of_every_kind_are_listed(summary_of):
    frames = [frame(0), frame(3), frame(4, gap="probe-restart"), frame(9)]
    gaps = summary_of(*frames, gaps={3})["gaps"]
    assert [(gap["reason"], gap["duration_s"]) for gap in gaps] == [
        ("enospc", 2.0),
        ("probe-restart", 1.0),
        ("windows-missing", 4.0),
    ]
    assert gaps[0]["start"] == "1970-01-12T13:46:41.000Z"


def test_rates_are_of_the_measured_time(tmp_path):
    issuers = {Issuer("sda", "read", "/a"): IssuedIO(100, 409_600)}
    recorded = record(tmp_path / "r", *(frame(n, tables={measurements.ISSUERS: issuers}) for n in (0, 1, 6, 7)))
    columns = MapColumns(1_000_000)
    totals = added_up(recorded, columns.add)
    summary = ReportJson(report_of(recorded, totals))
    assert (summary["duration_s"], summary["measured_s"]) == (8.0, 4.0)
    text, page = render_text(summary.report), render_html(summary.report, totals, columns)
    assert "read: 400 I/Os, 100/s, 410 kB/s" in text
    assert "/s: per second of the windows, of 4 s in all" in text
    assert re.search(r"^/a +400 +100 +0.4 ", text, re.MULTILINE)
    overview = '<td class="n">400</td><td class="n">100</td><td class="n">410k</td>'
    assert overview in page
    assert "400 I/Os, 100/s, 410 kB/s" in page


def test_rates_of_an_assumed_length_are_left_out(tmp_path):
    issuers = {Issuer("sda", "read", "/a"): IssuedIO(100, 409_600)}
    imported = {"imported": {"assumed_length": "1 of 1 window is taken as 1 s long"}}
    frames = (frame(n, tables={measurements.ISSUERS: issuers}) for n in (0, 1, 6, 7))
    recorded = record(tmp_path / "r", *frames, origin=replace(ORIGIN, extra=imported))
    columns = MapColumns(1_000_000)
    totals = added_up(recorded, columns.add)
    summary = ReportJson(report_of(recorded, totals))
    assert (summary["duration_s"], summary["measured_s"]) == (8.0, None)
    text, page = render_text(summary.report), render_html(summary.report, totals, columns)
    assert "read: 400 I/Os\n" in text
    assert re.search(r"^/a +400 +- +- ", text, re.MULTILINE)
    assert '<td class="n">400</td><td class="n">-</td><td class="n">-</td>' in page
    assert [rate for rate in ("100/s", "410 kB/s", "410k") if rate in text + page] == []


@pytest.mark.parametrize(
    ("health", "gap", "lost"),
    [
        (Health(), "", False),
        (Health(lost_events=1), "", True),
        (Health(map_full=1), "", True),
        (Health(), "suspended", True),
        (Health(unmatched=9, stale=9, skipped=9, undecoded_lines=9, dropped_records=9), "", False),
    ],
)
def test_what_makes_a_capture_incomplete(summary_of, health, gap, lost):
    summary = summary_of(frame(0, health=health, gap=gap))
    assert incomplete(summary.report) is lost
    text = " ".join(render_text(summary.report).split())
    causes = ("1 event lost",) * bool(health.lost_events) + ("1 map update lost",) * bool(health.map_full)
    causes += ("s in 1 gap",) * bool(gap)
    assert all(f"INCOMPLETE: {cause}" in text or f"{cause}; sums and counts" in text for cause in causes)
    assert ("INCOMPLETE" in text) is lost
    assert ("records dropped 9" in " ".join(render_text(summary.report).split())) is bool(health.dropped_records)


def test_a_full_table_of_the_tracer_is_named_and_leaves_the_capture_complete(summary_of):
    full = Health(full_tables={"wakeups_a_delay": 1})
    summary = summary_of(frame(0), frame(1, health=full), frame(2, health=full))
    assert not incomplete(summary.report)
    assert summary["health"]["full_tables"] == {"wakeups_a_delay": 2}
    text = " ".join(render_text(summary.report).split())
    assert "full tables of the tracer: wakeups_a_delay in 2 windows; threads, processes or stages" in text
    assert "counts and latencies of I/Os are not" in text
    assert "INCOMPLETE" not in text


def test_mere_coverage_makes_nothing_incomplete(summary_of):
    assert not incomplete(summary_of(frame(0, seen={Flow("sda", "read"): Completed(1, 1)})).report)


def test_counters_are_summed_and_gauges_averaged(summary_of):
    health = summary_of(
        frame(0, health=Health(3, 4, unmatched=2, self_cpu_percent=1.0, probe_ns_per_io=500.0)),
        frame(1, health=Health(4, 4, unmatched=3, self_cpu_percent=2.0)),
    )["health"]
    assert (health["unmatched"], health["probes_attached"], health["probes_wanted"]) == (5, 4, 4)
    assert (health["self_cpu_percent"], health["probe_ns_per_io"]) == (1.5, 500.0)


def test_what_was_not_measured_is_null(summary_of):
    health = summary_of(frame(0))["health"]
    assert (health["self_cpu_percent"], health["probe_ns_per_io"]) == (None, None)


def test_what_was_reported_while_it_measured_is_listed(summary_of):
    text = replace(counted(1), health=Health(notice="stages: nothing was traced for 3.0 s"))
    summary = summary_of(counted(0), text, counted(2))
    (notice,) = summary["notices"]  # and nothing of windows without a notice
    assert (notice["text"], notice["time"]) == ("stages: nothing was traced for 3.0 s", rfc3339(text.wall))
    assert "notices: 1970" in " ".join(render_text(summary.report).split())


def test_a_notice_that_several_windows_have_is_listed_with_the_first(summary_of):
    said = [replace(counted(seq), health=Health(notice=text)) for seq, text in enumerate(("a", "a", "b", "", "a"))]
    listed = [(notice["text"], notice["time"]) for notice in summary_of(*said)["notices"]]
    assert listed == [(said[at].health.notice, rfc3339(said[at].wall)) for at in (0, 2, 4)]


def test_what_is_still_written_is_not_called_killed(tmp_path):
    path = tmp_path / "live"
    writer = Writer.create(path, ORIGIN)
    writer.append(frame(0))
    summary = summarised(open_recording(path))
    assert summary["live"]
    assert "damage" not in summary
    assert "still being written" in render_text(summary.report)
    writer.close()
    assert "live" not in summarised(open_recording(path))


def test_damage_is_in_the_report(summary_of):
    summary = summary_of(frame(0), close=False)
    assert summary["damage"] == [UNCLOSED]
    assert UNCLOSED in render_text(summary.report)
    assert "gaps: none, but the file has no closing line: its end is not known" in " ".join(
        render_text(summary.report).split()
    )
    assert "1 window of 1 s" in " ".join(render_text(summary.report).split())
    assert not incomplete(summary.report)


def test_a_stamp_beyond_the_calendar_has_no_date(summary_of):
    assert rfc3339(-1e12) is None
    assert "from - to -, " in render_text(replace(summary_of(frame(0)).report, start=None))


def test_the_text_fits_a_ticket(summary_of):
    names = ["sda", "a-very-long-device-name-of-some-multipath-head"]
    flows = [Flow(name, op) for name in names for op in ("read", "other")]
    slow = Histogram.record([3_500_000_000] * 200)
    frames = [
        frame(
            i,
            histograms={Series(*flow, "total"): slow for flow in flows},
            seen=dict.fromkeys(flows, Completed(10**12, 10**16)),
            devices=tuple(Device(name, 8, 0, driver="x" * 30, controller="y" * 30, model="z" * 40) for name in names),
        )
        for i in range(3)
    ]
    text = render_text(summary_of(*frames, gaps=range(3)).report)
    assert max(map(len, text.splitlines())) <= 80
    assert text.endswith("\n")


def test_probes_that_are_missing_for_one_reason_share_a_line(summary_of):
    needs = "needs tier A: bpftrace 0.19 or newer, kernel BTF"
    missing = [Missing("softirqs", needs), Missing("files", "lost"), Missing("wakeups", needs), Missing("uring", needs)]
    text = " ".join(
        render_text(summary_of(frame(0), origin=replace(ORIGIN, probes_missing=tuple(missing))).report).split()
    )
    assert f"probes not attached: softirqs, wakeups, uring ({needs})" in text
    assert "probe not attached: files (lost)" in text


def test_the_text_says_what_each_number_includes(summary_of):
    text = " ".join(render_text(summary_of(frame(0)).report).split())
    assert "total: from the moment the request was queued to its completion" in text
    assert "hba+ (hba with its interrupt) includes irq, softirq" in text
    assert "not measured: resume (no probe for it)" in text
    assert "coverage 100%: the probe saw 100 of 100 completions" in text
    assert "gaps: none" in text


def test_less_coverage_names_where_its_causes_are(summary_of):
    report = summary_of(frame(0)).report

    def text(seen):
        health = replace(report.health, coverage=seen / 10_000, completions=Coverage(seen, 10_000))
        return " ".join(render_text(replace(report, health=health)).split())

    assert "causes: docs/COVERAGE.md" in text(9_989)
    assert "docs/COVERAGE.md" not in text(9_991)


@pytest.mark.parametrize("known", [True, False])
def test_a_mean_that_is_not_known_says_why(summary_of, known):
    values = Histogram.record([300] * 100) if known else Histogram.of({40: 100})
    text = render_text(summary_of(frame(0, histograms={Series("sda", "read", "total"): values})).report)
    assert ("mean -: the sum of some window is unknown" in text) is not known


def test_a_device_without_requests_says_where_its_time_is(summary_of):
    volume = Device("dm-0", 253, 0, "dm", members=("sda",), timed=False)
    given_frame = frame(0, kernel={Flow("dm-0", "read"): Completed(5, 1)}, devices=(DISK, volume))
    text = render_text(summary_of(given_frame).report)
    assert "its I/O is timed at the devices below it" in text
    assert text.count("p99.99") == 1  # the titles of sda: those of dm-0 would have no row below them


def test_a_mean_below_a_microsecond_does_not_touch_the_count(summary_of):
    values = Histogram.record([0] * 99_999 + [1] * 20_000)
    text = render_text(summary_of(frame(0, histograms={Series("sda", "read", "total"): values})).report)
    [row] = [line for line in text.splitlines() if line.startswith("    total")]
    assert row.split()[:3] == ["total", "119,999", "0.2us"]


def test_a_capture_without_ios_says_so(summary_of):
    bare = frame(0, histograms={}, seen={}, kernel={}, outstanding={})
    assert "no I/O completed on any device in this time: sda" in render_text(summary_of(bare).report)


def test_no_quantile_is_printed_above_the_maximum(summary_of):
    given_frame = frame(0, histograms={Series("sda", "read", "total"): Histogram.record([2370] * 10)})
    [row] = [line for line in render_text(summary_of(given_frame).report).splitlines() if line.startswith("    total")]
    assert row.split()[2:] == ["2.37ms", "2.37ms", "2.37ms", "-", "-", "-", "2.37ms"]


def test_the_command_prints_json_or_text(tmp_path, capsys):
    record(tmp_path / "r", frame(0))
    assert report_command([tmp_path / "r"], as_json=True) == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["intervals"] == 1
    assert report_command([tmp_path / "r"], as_json=False) == EXIT_DONE
    assert "latmon report: box, kernel 6.1.0\n" in capsys.readouterr().out


def test_the_command_refuses_what_is_no_recording(tmp_path):
    (tmp_path / "r").write_text("hello")
    with pytest.raises(RecordingError):
        report_command([tmp_path / "r"], as_json=True)


@pytest.mark.parametrize("words", [(), ("--json",), ("--html", "OUT")])
def test_a_file_without_a_whole_window_is_refused(tmp_path, capsys, words):
    path = tmp_path / "r"
    writer = Writer.create(path, ORIGIN)
    for seq in range(3):
        writer.append(frame(seq))
    writer.close()
    whole_bytes, first = path.read_bytes(), path.read_bytes().index(b"\x1f\x8b\x08\x04", 1)
    damaged = bytearray(whole_bytes)
    for at in range(first + 100, len(whole_bytes) - 200, 50):
        damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    assert main(["report", str(path), *(str(tmp_path / "OUT") if word == "OUT" else word for word in words)]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"latmon: no window of {path} can be read (bytes ")
    assert "`latmon check" in err
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_capture_that_was_killed_before_its_first_window_has_a_report(tmp_path, capsys):
    path = tmp_path / "r"
    Writer.create(path, ORIGIN).close()
    whole_bytes = path.read_bytes()
    path.write_bytes(whole_bytes[: whole_bytes.index(b"\x1f\x8b\x08\x04", 1)])
    assert main(["report", str(path)]) == 0
    assert "ended without a closing line" in capsys.readouterr().out


def test_what_was_seen_and_not_timed_is_reported(summary_of):
    seen = {Flow("sda", "write"): Completed(110, 1)}
    series = Series("sda", "write", "total")
    summary = summary_of(frame(0, seen=seen, histograms={series: Histogram.of({40: 100})}))
    assert summary["devices"]["sda"]["ops"]["write"]["untimed"] == 10
    text = render_text(summary.report)
    assert "10 of them not timed" in text
    assert "the empty write of each fsync" in text


def test_a_window_that_was_read_late_is_no_gap(tmp_path):
    wide = replace(frame(1), dt_us=13_000_000, mono_us=frame(0).mono_us + 13_000_000, late=True)
    recording = record(tmp_path / "r", frame(0), wide)
    summary = summarised(recording)
    assert (summary["gaps"], incomplete(summary.report)) == ([], False)
    assert summary["late"] == [{"start": rfc3339(wide.wall - 13), "duration_s": 13.0, "reason": "reader-late"}]
    text = render_text(summary.report)
    assert "1 window was read late (reader-late), 13 s wide; nothing is missing" in " ".join(text.split())
    assert "INCOMPLETE" not in text
    check_report = survey(recording)
    assert check_report.clean
    assert any("2, 14 s in all, 1 read late" in line for line in contents(check_report))


def test_check_counts_the_gaps_that_a_report_counts(tmp_path):
    restarted = replace(frame(5), dt_us=5_000_000, gap="probe-restart")
    recording = record(tmp_path / "r", frame(0), restarted, frame(8), gaps=(8,))
    check_report = survey(recording)
    assert len(summarised(recording)["gaps"]) == check_report.gaps == 2
    assert any("2 gaps of 7 s in all" in line for line in contents(check_report))


def test_the_gauge_at_the_end_of_a_stop_does_not_stand_for_all_of_it(summary_of):
    wide = replace(frame(13), dt_us=13_000_000, late=True, outstanding={"sda": Outstanding(40, 0)})
    usual = frame(0, outstanding={"sda": Outstanding(1, 0)})
    summary = summary_of(usual, wide)
    assert summary["devices"]["sda"]["outstanding"]["time_share"] == {"1": 0.5, "40": 0.5}


@pytest.mark.parametrize("step_s", [-7200.0, -0.7, 7200.0])
def test_a_clock_that_is_set_loses_nothing(tmp_path, step_s):
    """Order, lengths and gaps are of CLOCK_MONOTONIC; the wall clock may go back."""
    frames = [frame(number) for number in range(6)]
    frames = [replace(frame, wall=frame.wall + step_s * (frame.seq >= 3)) for frame in frames]
    recording = record(tmp_path / "r", *frames)
    summary = summarised(recording)
    assert (summary["gaps"], summary["duration_s"], incomplete(summary.report)) == ([], 6.0, False)
    assert "late" not in summary
    check_report = survey(recording)
    assert (check_report.clean, check_report.windows, check_report.gaps) == (True, 6, 0)
