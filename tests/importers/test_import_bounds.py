"""No quantile of an import is too low without a word: rows without an end, bins named by their middle, octaves."""

import json
from pathlib import Path

import pytest
from report_json import summarised

from latmon.importers.registry import import_command, read_text
from latmon.importers.values import ImportOptions
from latmon.model.frame import Series
from latmon.model.histogram import MAX_US, Histogram
from latmon.recording.reader import open_recording
from latmon.report.html import render_html
from latmon.report.html_charts import MapColumns
from latmon.report.latencies import quantiles
from latmon.report.reading import added_up
from latmon.report.source_edges import SourceEdges
from latmon.report.summary import report_of
from latmon.report.text import render_text
from latmon.support.errors import RecordingError
from latmon.views.lines import cell_len

FIO = Path(__file__).resolve().parents[1] / "golden/imports/fio.json"
ENDLESS = "value  ------------- Distribution ------------- count\n" + "".join(
    f"{label} |@@      {n}\n"
    for label, n in [("< 60000", "{}"), *((at * 60_000, 0) for at in range(1, 9)), (540_000, 300), (">= 600000", "{}")]
)
OCTAVES = "value  ------------- Distribution ------------- count\n" + "".join(
    f"{1 << at} |@@ {n}\n" for at, n in ((4, 0), (5, 900), (6, 100), (7, 100), (8, 0))
)


def imported(tmp_path, text, **asked):
    source, out = tmp_path / "a.txt", tmp_path / "a.latmon.jsonl.gz"
    source.write_text(text)
    import_command(source, out, ImportOptions(**asked))
    return open_recording(out)


def only(found):
    (one,) = found
    return one


def latency(recording):
    return only(only(summarised(recording)["devices"].values())["ops"].values())["latency_us"]


def test_what_is_in_a_row_without_an_end_is_that_or_more(tmp_path):
    recording = imported(tmp_path, ENDLESS.format(99_000, 700), unit="us")
    q = latency(recording)
    assert (q["p99"], q["p99.9"], q["max"]) == (61440, 600_000, None)
    assert (q["open_from"], q["or_more"]) == (600_000, ["p99.9", "p99.99", "p99.999", "max"])
    assert "max_bound" not in q
    text = " ".join(render_text(summarised(recording).report).split())
    assert "≥600ms" in text
    assert "≥: in a row of the source without an upper bound" in text
    assert "700 of 600,000 or more: how much more is not known" in text
    columns = MapColumns(recording.origin.interval_us)
    totals = added_up(recording, columns.add)
    assert "≥ 600.000 ms" in render_html(report_of(recording, totals), totals, columns)


def test_a_row_without_an_end_that_is_empty_says_nothing(tmp_path):
    q = latency(imported(tmp_path, ENDLESS.format(99_000, 0), unit="us"))
    assert "or_more" not in q
    assert 600_000 <= q["max_bound"] <= 700_000


@pytest.mark.parametrize(
    "reported", [None, 7, {"open": 7}, {"open": [7, {"series": [1], "from_us": 5}, {"series": ["a", "b", "c"]}]}]
)
def test_a_header_that_reports_nonsense_is_passed_over(reported):
    latency = quantiles(Histogram.record([MAX_US + 1]))
    assert SourceEdges(reported).applied(Series("a", "b", "c"), latency) == latency


def test_a_bin_of_fio_is_placed_by_its_last_value():
    for middle, last_us in ((1_003_520, 1_007), (8_256, 8), (16_640, 16), (1_022_976, 1_023), (261_120, 261)):
        whole = {"runtime": 1, "lat_ns": {"bins": {str(middle): 1}, "N": 1}}
        text = json.dumps({"fio version": "fio-3.33", "jobs": [{"jobname": "j", "read": whole}]})
        frame = only(read_text(text.encode(), "x", ImportOptions()).frames())
        bound = frame.histograms[Series("j", "read", "total")].max_bound
        assert bound > last_us, middle


def test_fios_own_quantiles_are_never_above_ours():
    document = json.loads(FIO.read_text())
    frame = only(read_text(FIO.read_bytes(), "x", ImportOptions()).frames())
    for job in document["jobs"]:
        for op in ("read", "write"):
            side = job[op]
            kind = "lat_ns" if side["lat_ns"].get("bins") else "clat_ns"
            ours = frame.histograms.get(Series(job["jobname"], op, "total"))
            for share, ns in side[kind].get("percentile", {}).items() if ours else ():
                value = ours.quantile(float(share) / 100) if float(share) < 100 else None
                assert value is None or value >= ns // 1000, (share, ns)


def test_the_widest_bucket_is_reported_as_it_is(tmp_path):
    recording = imported(tmp_path, OCTAVES, unit="us")
    assert latency(recording)["octave_parts"] == 1
    text = render_text(summarised(recording).report)
    assert "up to an octave wide (~) where the source's are; it is rounded" in " ".join(text.split())
    assert "12.5 %" not in text
    assert " ~64us" in text


def test_wide_characters_are_two_cells_of_the_eighty(tmp_path):
    text = OCTAVES.replace("value", "データベースの遅延\n" + "value", 1)
    recording = imported(tmp_path, text, unit="us", device="磁盘" * 30, host="数据库主机" * 20)
    lines = render_text(summarised(recording).report).split("\n")
    assert any("磁盘" in line for line in lines)
    assert max(map(cell_len, lines)) <= 80
    assert "\0" not in "".join(lines)


def test_untimed_depths_at_issue_are_in_the_report(tmp_path):
    text = (
        "Histogram: outstanding IOs when a new IO is issued,virtual machine worldGroupID,1,virtual disk handleID,"
        "1,(scsi0:0)\nmin,1\nmax,4\nmean,1\ncount,40\nFrequency,Histogram Bucket Limit\n30,1\n0,2\n10,4\n"
    )
    recording = imported(tmp_path, text)
    summary = summarised(recording)
    reported = summary["devices"]["scsi0:0"]["outstanding"]
    assert (reported["max"], reported["at_issue"]) == (4, {"1": 30, "4": 10})
    output = render_text(summary.report)
    assert "outstanding: max 4, for how long is not known" in output
    assert "        1        30   75%" in output
    columns = MapColumns(recording.origin.interval_us)
    totals = added_up(recording, columns.add)
    assert "at issue" in render_html(report_of(recording, totals), totals, columns)


def test_the_most_in_the_driver_is_in_the_report(tmp_path):
    summary = summarised(imported(tmp_path, "sd2 1 sd0 70\n"))
    assert summary["devices"]["sd0"]["outstanding"]["max"] == 70
    assert "outstanding: max 70" in render_text(summary.report)


def test_a_text_without_a_table_is_refused_in_a_line(tmp_path):
    with pytest.raises(RecordingError, match="no table of a known tool was found in") as text:
        imported(tmp_path, "just some prose\n")
    assert "--help" in str(text.value)
    assert len(str(text.value)) < 160
