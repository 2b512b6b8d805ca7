"""`latmon export`: the same numbers in every format, missing time marked in each, nothing overwritten."""

import base64
import csv
import errno
import gzip
import io
import json
import os
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from dataclasses import replace

import pyte
import pytest
from report_json import summarised

from latmon.cli import arguments
from latmon.cli import headless as cli_demo
from latmon.cli.main import run as main
from latmon.exporters.hdrhistogram import encode, slot, tag
from latmon.exporters.latmon import row
from latmon.exporters.perfetto import MAX_LANES
from latmon.exporters.registry import FORMATS, ExportOptions, Source, moment_us, writer
from latmon.exporters.screen import of_source, palette, windows
from latmon.model import measurements
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Mark, Origin, Outlier, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.model.measurements import ERRORS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.files import FileSeries
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.model.redaction import Redaction
from latmon.recording import codec as recording_encode
from latmon.recording.codec import Gap
from latmon.recording.members import pack
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support import streams
from latmon.support.errors import RecordingError, UsageError
from latmon.support.theme import load_theme, nearest
from latmon.support.units import clock
from latmon.views.lines import fit, plain
from latmon.views.selection import screen_options

SECOND = 1_000_000
ORIGIN = Origin("bpftrace", "db-07", "6.12", "0.1.0", tier="A", start_mono_us=10 * SECOND, start_wall=1_767_582_000.0)
EVIL = '=cmd|"x",[/red]'


def one(number, **fields):
    end = 10 + number + 1
    return Frame(number, 1_767_582_000.0 + number + 1, end * SECOND, SECOND, **fields)


def io_of(device, us, op="read"):
    return {Series(device, op, "total"): Histogram.record(us)}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "host.latmon.jsonl.gz"
    cli_demo.record_demo("host", 1, path, 6 * SECOND)
    return path


@pytest.fixture
def small(tmp_path):
    """A name that means harm, an idle window, a gap, a mark, a hole without a gap line, and no end."""
    path = tmp_path / "small.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN)
    given_writer.append(
        one(
            0,
            histograms=io_of("sda", [5, 63, 64, 100_000]) | io_of(EVIL, [7]),
            seen={Flow("sda", "read"): Completed(4, 4096)},
            outstanding={"sda": Outstanding(3, 1)},
        )
    )
    given_writer.append(one(1))
    given_writer.gap("enospc", 2.0)
    given_writer.mark(Mark("max_vec 4\u2192", 14 * SECOND, 1_767_582_004.0))
    given_writer.append(one(4, histograms=io_of("sda", [64]), health=Health(lost_events=3)))
    given_writer.append(one(9, histograms=io_of("sda", [2**33])))
    given_writer.flush()
    os.close(given_writer._descriptor)  # killed: the lock goes with the process
    return path


def export(path, form, *globs, **wish):
    out, source = io.BytesIO(), Source(open_recording(path), globs)
    shown = {name: wish.pop(name) for name in ("screen", "theme") if name in wish}
    options = ExportOptions(**wish, shown=screen_options(**shown))
    writer(form, options)(source, out, options)
    return out.getvalue()


def rows(data):
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def counted(path):
    """DEVICE/OP/STAGE -> I/Os, as the report has them."""
    found = {}
    for name, device in summarised(open_recording(path))["devices"].items():
        for op, reported in device["ops"].items():
            for stage, q in {"total": reported.get("latency_us")}.items():
                if q and q.get("count"):
                    found[f"{name}/{op}/{stage}"] = q["count"]
    return found


def test_every_format_has_the_reports_counts(demo):
    expected = {key: n for key, n in counted(demo).items() if key.endswith("/total")}
    assert len(expected) > 10
    buckets, wide = Counter(), Counter()
    for r in rows(export(demo, "csv", buckets=True)):
        buckets[f"{r['device']}/{r['op']}/{r['stage']}"] += int(r["count"]) if r["device"] else 0
    for r in rows(export(demo, "csv")):
        wide[f"{r['device']}/{r['op']}/{r['stage']}"] += int(r["count"]) if r["population"] == "all" else 0
    metrics = dict(
        re.findall(
            r'latmon_io_latency_seconds_bucket{device="(.*)",le="\+Inf"} (\d+)', export(demo, "openmetrics").decode()
        )
    )
    metrics = {key.replace('",op="', "/").replace('",stage="', "/"): int(n) for key, n in metrics.items()}
    logged = Counter()
    for name, _, _, counts in hlog(export(demo, "hlog")):
        logged[name] += sum(counts.values())
    for name, n in expected.items():
        assert (buckets[name], wide[name], metrics[name], logged[name]) == (n, n, n, n), name


def test_jsonl_is_the_recording_itself(demo, small):
    assert export(demo, "jsonl") == gzip.decompress(demo.read_bytes())
    reported = [json.loads(line) for line in export(small, "jsonl").splitlines()]
    assert [line["type"] for line in reported] == [
        *("header", "window", "window", "gap", "mark", "window", "window", "damage")
    ]
    alone = [json.loads(line) for line in export(small, "jsonl", "sda").splitlines()]
    assert [len(line["h"].get("rows", ())) for line in alone if line["type"] == "window"] == [1, 0, 1, 1]


def test_jsonl_has_no_number_that_json_has_not(tmp_path):
    path = tmp_path / "inf.latmon.jsonl.gz"
    header = recording_encode.to_bytes(recording_encode.encode_origin(ORIGIN))
    path.write_bytes(pack(header + b'{"type":"new","x":1e999}\n{"type":"new","y":"\xc2\x9b"}\n', 0, 0))
    lines = export(path, "jsonl").splitlines()
    assert json.loads(lines[1]) == {"type": "damage", "text": "a line has a number that is out of range"}
    assert lines[2] == b'{"type":"new","y":"\\u009b"}'


@pytest.mark.parametrize("headless", [False, True])
def test_every_format_says_as_many_windows_gaps_and_damages(tmp_path, headless):
    def window(number, **changed):
        return recording_encode.to_bytes(
            recording_encode.encode_frame(one(number, histograms=io_of("sda", [5]))) | changed
        )

    path = tmp_path / "odd.latmon.jsonl.gz"
    header = b"" if headless else recording_encode.to_bytes(recording_encode.encode_origin(ORIGIN))
    gap = recording_encode.to_bytes(recording_encode.encode_note(Gap("enospc", 2.0)))
    texts = [
        header + window(0),
        window(1, h="odd"),  # no reader takes it
        window(0),  # back in time
        b"{nonsense}\n" + window(2, gap="clock-step"),
        gap + window(5),
        window(9),  # without a reason
    ]
    path.write_bytes(b"".join(pack(text, 0, 0) for text in texts) + b"cut off")
    reported = set()
    for form in ("jsonl", "csv", "openmetrics", "hlog", "perfetto"):
        source = Source(open_recording(path))
        writer(form, ExportOptions())(source, io.BytesIO(), ExportOptions())
        reported.add((source.windows, source.gaps, source.damaged))
    assert reported == {(4, 4, 5 + headless)}
    kinds = [json.loads(line)["type"] for line in export(path, "jsonl").splitlines()]
    assert kinds.count("window") == 4
    assert kinds.count("damage") == 5 + headless


def test_csv_is_tidy_and_no_formula(small):
    data = export(small, "csv", buckets=True)
    assert data.startswith(b"time,mono_us,dt_us,device,op,stage,low_us,high_us,count,includes\r\n")
    assert b'"\'=cmd|""x"",[/red]"' in data
    actual_rows = rows(data)
    assert [r["stage"] for r in actual_rows if not r["device"]] == [
        *("", "", "gap: enospc", "mark: max_vec 4\u2192", "", "gap: windows-missing", ""),
        "damage: ended without a closing line (killed?)",
    ]
    sda = [(int(r["low_us"]), int(r["high_us"]), int(r["count"])) for r in actual_rows if r["device"] == "sda"]
    assert sda[:3] == [(5, 6, 1), (60, 64, 1), (64, 72, 1)]
    assert row(["-1", "@x", "+1", 'a"b', "a,b", None, 7]) == b'\'-1,\'@x,\'+1,"a""b","a,b",,7\r\n'


HELD = ("irq", "softirq", "completion")


def test_each_export_says_what_hba_includes(tmp_path):
    """The key stays hba; without its tracing it is the time from issue to completion."""
    path, series = tmp_path / "held.latmon.jsonl.gz", Series("sda", "read", "hba")
    late = Outlier(1.0, 20_000_000, "sda", "read", 900, {"queue": 3, "hba": 897}, includes={"hba": HELD})
    writer_of = Writer.create(path, replace(ORIGIN, measured={"queue": ("requeue",), "hba": HELD}))
    writer_of.append(one(1, histograms={series: Histogram.record([897])}, outliers=(late,)))
    writer_of.close("asked")
    header, window, *_ = map(json.loads, export(path, "jsonl").splitlines())
    assert header["measured"]["hba"] == list(HELD)
    assert window["outliers"][0]["includes"] == {"hba": list(HELD)}
    for buckets in (True, False):
        (row,) = [each for each in rows(export(path, "csv", buckets=buckets)) if each["stage"] == "hba"]
        assert row["includes"] == " ".join(HELD)
    metrics = export(path, "openmetrics").decode()
    assert 'stage="hba",includes="irq,softirq,completion",le="+Inf"} 1' in metrics
    assert "hba with completion is issue to completion" in metrics
    assert (
        "#[Includes: service (issue to completion) includes irq, softirq, completion]" in export(path, "hlog").decode()
    )
    events = json.loads(export(path, "perfetto"))["traceEvents"]
    (slice_,) = [event for event in events if event["name"] == "hba"]
    assert slice_["args"]["includes"] == list(HELD)
    assert slice_["args"]["interval"] == "issue to completion"
    assert all("includes" not in event["args"] for event in events if event["name"] == "queue")


def test_csv_windows_have_what_was_in_flight(small):
    first, *_ = (r for r in rows(export(small, "csv")) if r["device"] == "sda")
    assert (first["count"], first["sum_us"], first["max_us"], first["bytes"]) == ("4", "100132", "100000", "4096")
    assert (first["p50_us"], first["p99_us"], first["in_driver"], first["queued"]) == ("64", "", "3", "1")


@pytest.mark.parametrize(("counted", "other"), [((), ""), (("errors",), "0")])
def test_csv_windows_have_the_failed_ios_in_their_last_column(tmp_path, counted, other):
    path = tmp_path / "failed.latmon.jsonl.gz"
    writer_of = Writer.create(path, replace(ORIGIN, counted=counted))
    failed = {ERRORS: {FailedIO("sda", "read", "time-out"): 2, FailedIO("sda", "read", "I/O error"): 1}}
    seen = {Flow("sda", "read"): Completed(9, 0), Flow("sdb", "read"): Completed(9, 0)}
    writer_of.append(one(1, tables=failed, seen=seen))
    writer_of.close("asked")
    assert export(path, "csv").splitlines()[0].endswith(b",includes,failed")
    assert [row["failed"] for row in rows(export(path, "csv")) if row["device"] in ("sda", "sdb")] == ["3", other]
    metrics = export(path, "openmetrics").decode()
    assert "# HELP latmon_failed_ios I/Os that completed with an error, by the kernel's status" in metrics


def test_openmetrics_is_cumulative_by_octave(small):
    text = export(small, "openmetrics").decode()
    bucket = 'latmon_io_latency_seconds_bucket{device="sda",op="read",stage="total",le="%s"} %d'
    for le, n in (("0.000004", 0), ("0.000008", 1), ("0.000064", 2), ("0.000128", 4), ("0.131072", 5), ("+Inf", 6)):
        assert bucket % (le, n) in text
    assert r'device="=cmd|\"x\",[/red]"' in text
    assert "latmon_lost_events_total 3" in text
    assert 'latmon_missing_seconds_total{reason="windows-missing"} 4.0' in text
    assert 'latmon_missing_seconds_total{reason="enospc"} 2.0' in text
    assert text.endswith("latmon_damaged_places 1\n# EOF\n")


@pytest.mark.parametrize("name", [pytest.param("demo", marks=pytest.mark.slow), "small"])
def test_openmetrics_is_read_by_prometheus_own_parser(name, request):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="pip install prometheus-client")
    text = export(request.getfixturevalue(name), "openmetrics").decode()
    families = list(parser.text_string_to_metric_families(text))
    assert {"latmon_io_latency_seconds", "latmon_lost_events"} <= {family.name for family in families}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt-get install prometheus")
def test_promtool_finds_nothing_to_say(demo):
    # promtool reads the older text format, where a counter's own name ends in _total
    text = export(demo, "openmetrics").decode()
    for name in re.findall(r"# TYPE (\S+) counter", text):
        text = re.sub(rf"^# (HELP|TYPE) {name} ", rf"# \1 {name}_total ", text, flags=re.MULTILINE)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def hlog(data):
    """(tag, begin, length, slot -> count) by the format's own description, not by our writer."""
    for line in data.decode().splitlines():
        if not line.startswith("Tag="):
            continue
        name, begin, length, _, packed = line.removeprefix("Tag=").split(",")
        raw = base64.b64decode(packed)
        cookie, size = struct.unpack(">II", raw[:8])
        assert (cookie, size) == (0x1C849314, len(raw) - 8)
        inside = zlib.decompress(raw[8:])
        cookie, size, offset, digits, low, _, ratio = struct.unpack(">IIIIQQd", inside[:40])
        assert (cookie, size, offset, digits, low, ratio) == (0x1C849313, len(inside) - 40, 0, 1, 1, 1.0)
        yield name, float(begin), float(length), dict(_words(inside[40:]))


def _words(data):
    at, value, shift = 0, 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            number = value >> 1 if not value & 1 else -(value + 1 >> 1)
            if number < 0:
                at -= number
            else:
                yield at, number
                at += 1
            value = shift = 0


def test_hlog_has_intervals_with_tags_and_comments(small):
    data = export(small, "hlog")
    assert data.split(b"\n")[1] == b"#[Histogram log format version 1.3]"
    assert b"#[Gap: 2.000000 s behind 2.000000: enospc]" in data
    assert b"#[Mark: 4.000000: max_vec 4" in data
    assert b"#[Damage: " in data
    found = list(hlog(data))
    assert found[0][:3] == ("sda/read/total", 0.0, 1.0)
    assert found[0][3] == {slot(5): 1, slot(63): 1, slot(71): 1, slot(100_000): 1}
    assert found[1][0] == "=cmd%7C%22x%22%2C[%2Fred]/read/total".replace("%7C", "|").replace("%22", "%22")
    assert tag(Series("a,b c", "read", "hba")) == "a%2Cb%20c/read/hba"


def test_hlog_says_the_quantiles_that_latmon_says():
    oracle = pytest.importorskip("hdrh.histogram", reason="pip install hdrhistogram")
    for values in ([1, 2, 3], [5, 63, 64, 100_000], list(range(1, 50_000, 7)), [2**31]):
        reported = Histogram.record(values)
        read = oracle.HdrHistogram.decode(encode(reported))
        assert read.get_total_count() == reported.count
        for q in (0.5, 0.9, 0.99):
            if (own := reported.quantile(q)) is not None:
                bound = read.get_value_at_percentile(100 * q)
                assert own - 1 <= bound <= own * 1.07


def test_perfetto_nests_stages_in_outliers(demo):
    document = json.loads(export(demo, "perfetto"))
    events = document["traceEvents"]
    assert {e["ph"] for e in events} <= {"M", "X", "C", "i"}
    assert document["otherData"]["windows"] == 6
    open_until, stamps = {}, {}
    for e in events:
        if e["ph"] == "C":
            track = e["pid"], e["name"]
            assert e["ts"] > stamps.get(track, -1)
            stamps[track] = e["ts"]
        if e["ph"] == "X" and e["cat"] == "outlier":
            assert e["ts"] >= open_until.get((e["pid"], e["tid"]), (0, 0))[1]
            open_until[e["pid"], e["tid"]] = e["ts"], e["ts"] + e["dur"]
        if e["ph"] == "X" and e["cat"] == "stage":
            begin, end = open_until[e["pid"], e["tid"]]
            assert begin <= e["ts"] <= e["ts"] + e["dur"] <= end
    reported = sum(len(f.outliers) for f in open_recording(demo) if isinstance(f, Frame))
    assert sum(e.get("cat") == "outlier" for e in events) == reported > 0
    assert {"IOPS", "p99_us", "outstanding"} == {e["name"] for e in events if e["ph"] == "C"}


def test_perfetto_has_a_lane_for_each_at_once_and_says_what_is_missing(tmp_path):
    path = tmp_path / "a.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN)
    many = tuple(Outlier(0.0, 10 * SECOND + i, "sda", "read", 500_000) for i in range(MAX_LANES + 5))
    given_writer.append(one(0, outliers=many))
    given_writer.gap("enospc", 1.0)
    given_writer.append(one(2, seen={Flow("sda", "read"): Completed(4, 4096)}))
    given_writer.append(one(3))
    given_writer.close()
    events = json.loads(export(path, "perfetto"))["traceEvents"]
    assert len({e["tid"] for e in events if e["ph"] == "X"}) == MAX_LANES
    assert sum(e["ph"] == "i" and e["args"].get("dur") == 500_000 for e in events) == 5
    assert [e["name"] for e in events if e["ph"] == "i" and e["s"] == "g"] == ["gap: enospc"]
    assert [e["args"]["read"] for e in events if e["name"] == "IOPS"] == [4.0, 0.0]


def test_perfetto_ends_its_counters_at_a_gap_and_begins_them_again(tmp_path):
    path = tmp_path / "a.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN)
    busy = {"seen": {Flow("sda", "read"): Completed(4, 4096)}, "outstanding": {"sda": Outstanding(3, 1)}}
    for number in (0, 1, 62, 63):
        given_writer.append(one(number, **busy))
    given_writer.close()
    events = json.loads(export(path, "perfetto"))["traceEvents"]
    begin = next(e["ts"] for e in events if e["name"] == "IOPS")
    for name, key, value in (("IOPS", "read", 4.0), ("outstanding", "in_driver", 3)):
        reported = [(round((e["ts"] - begin) / SECOND), e["args"][key]) for e in events if e["name"] == name]
        assert reported == [(0, value), (2, 0), (62, value), (64, 0)]


def test_perfetto_leaves_out_what_is_in_flight_where_it_is_not_known(tmp_path):
    path = tmp_path / "a.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN)
    for number, now in enumerate((Outstanding(3, 1), Outstanding(None, None), Outstanding(2, None), Outstanding(0, 0))):
        given_writer.append(one(number, outstanding={"sda": now}))
    given_writer.append(one(4, outstanding={"sda": Outstanding(5, 1)}))
    given_writer.append(one(5))
    given_writer.close()
    events = [e for e in json.loads(export(path, "perfetto"))["traceEvents"] if e["name"] == "outstanding"]
    begin = events[0]["ts"]
    assert [(round((e["ts"] - begin) / SECOND), e["args"]) for e in events] == [
        (0, {"in_driver": 3, "queued": 1}),
        (2, {"in_driver": 2}),
        (3, {"in_driver": 0, "queued": 0}),
        (4, {"in_driver": 5, "queued": 1}),
        (5, {"in_driver": 0, "queued": 0}),
    ]


def test_svg_stands_alone_and_has_the_screens_text(demo):
    data = export(demo, "svg", screen="zoom").decode()
    root = ET.fromstring(data)
    text = " ".join("".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "demo-db-07" in text
    assert "REPLAY" in text
    assert "▲" not in text
    assert not re.search(r"https?://(?!www\.w3\.org)|@import|@font-face|<script|<image", data)
    assert "#0e1217" in data
    assert "#ffffff" in export(demo, "svg", theme="mono").decode()


@pytest.mark.parametrize("theme", ["dark", pytest.param("mono", marks=pytest.mark.slow)])
def test_a_cast_leaves_the_screen_as_it_was(demo, theme):
    wish = ExportOptions(shown=screen_options(theme=theme))
    header, *events = map(json.loads, export(demo, "cast", theme=theme).decode().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 80, 24)
    source = Source(open_recording(demo))
    shown, terminal = of_source(source, wish, palette(load_theme(theme)).ink), pyte.Screen(80, 24)
    stream = pyte.Stream(terminal)
    first = next(windows(source, 0)).mono_us / SECOND
    for frame, (at, code, text) in zip(windows(source, 0), events, strict=False):
        shown.append(frame)
        stream.feed(text)
        assert (at, code) == (frame.mono_us / SECOND - first, "o")
        assert terminal.display == [plain(fit(line, 80)) for line in shown.lines()]
        axis = next(line for line in terminal.display if "└─" in line)
        assert f"─{clock(frame.wall)} " in axis or "!" in axis  # the letter of an event is in place of the time
    assert events[-1][0] == 6.0
    assert sum(len(e[2]) for e in events) < 50_000


@pytest.mark.parametrize("height", [24, 25, 40])
def test_the_prompt_after_a_cast_is_below_its_picture(demo, height):
    _, *events = map(json.loads, export(demo, "cast").decode().splitlines())
    terminal = pyte.Screen(80, height)
    stream = pyte.Stream(terminal)
    for _, _, text in events[:-1]:
        stream.feed(text)
    picture = terminal.display[:24]
    stream.feed(f"{events[-1][2]}$ ")
    scrolled = 1 if height == 24 else 0
    assert terminal.display[: 24 - scrolled] == picture[scrolled:]
    assert terminal.display[24 - scrolled].rstrip() == "$"


@pytest.mark.parametrize(
    "screen", ["maps", *(pytest.param(one, marks=pytest.mark.slow) for one in ("overview", "offsets", "stages"))]
)
def test_a_cast_is_named_after_its_screen(demo, screen):
    header = json.loads(export(demo, "cast", screen=screen).decode().splitlines()[0])
    assert header["title"] == f"latmon {screen}: demo-db-07"


def test_a_cast_may_be_faster_shorter_and_of_version_3(demo):
    header, *events = map(
        json.loads, export(demo, "cast", cast_version=3, speed=2, at="2s", size=(100, 30)).splitlines()
    )
    assert header["term"]["cols"] == 100
    theme = header["term"]["theme"]
    assert theme.keys() == {"fg", "bg", "palette"}  # version 3 knows no theme without one of them
    assert len(theme["palette"].split(":")) in (8, 16)
    assert all(re.fullmatch("#[0-9a-f]{6}", part) for part in (theme["fg"], theme["bg"], *theme["palette"].split(":")))
    assert [e[0] for e in events] == [0, 0.5, 0.5, 0.5, 0.5, 1.0]
    _, *fast = map(json.loads, export(demo, "cast", speed=1000).splitlines())
    assert len(fast) == 3
    _, *short = map(json.loads, export(demo, "cast", at="1s", duration_us=2 * SECOND).splitlines())
    assert len(short) == 4
    _, *begin = map(json.loads, export(demo, "cast", duration_us=2 * SECOND).splitlines())
    assert len(begin) == 3
    with pytest.raises(RecordingError, match="no window"):
        export(demo, "cast", at="90s")
    with pytest.raises(RecordingError, match=r"no window to draw at --at 99h$"):
        export(demo, "text", at="99h")


def test_a_moment_is_reported_in_several_ways():
    assert moment_us("90s", ORIGIN) == 100 * SECOND
    assert moment_us("2026-01-05T03:00:30Z", ORIGIN) == 40 * SECOND
    for wrong in ("noon", "25:00", "2026-13-01"):
        with pytest.raises(UsageError, match="--at"):
            moment_us(wrong, ORIGIN)


def test_a_colour_has_its_nearest_of_256():
    assert [nearest(c) for c in ("#000000", "#ffffff", "#5fd7ff", "#121212", "#8a8a8a")] == [16, 231, 81, 233, 245]


def test_redaction_is_carried_on(tmp_path):
    path = tmp_path / "r.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN, redaction=Redaction())
    given_writer.append(one(0, histograms=io_of("sda", [5])))
    given_writer.close()
    for form in FORMATS:
        assert b"redacted" in export(path, form), form


WEB, BACKUP = "/system.slice/web.service", "/system.slice/backup.service"


@pytest.fixture
def who(tmp_path):
    """Two windows with issuers, sizes, order and files of sda, and a process of sdb."""
    path = tmp_path / "who.latmon.jsonl.gz"
    given_writer = Writer.create(path, ORIGIN)
    for number in range(2):
        given_writer.append(
            one(
                number,
                devices=(Device("sda", 8, 0), Device("sdb", 8, 16)),
                tables={
                    measurements.ISSUERS: {
                        Issuer("sda", "write", WEB): IssuedIO(3, 12_288, Histogram.record([100, 200, 300])),
                        Issuer("sda", "write", BACKUP): IssuedIO(5, 500_000),
                        Issuer("sdb", "read", WEB, pid=7, comm=EVIL): IssuedIO(1, 512, Histogram.record([9])),
                    },
                    measurements.BEHIND: {Behind("sda", WEB, BACKUP): 250_000},
                    measurements.SIZES: {
                        SizeClass("sda", "write", 4096): IssuedIO(3, 12_288, Histogram.record([100, 200, 300]))
                    },
                    measurements.PATTERNS: {Flow("sda", "write"): Pattern(8, 5, 1, 0, 2)},
                    measurements.FILES: {
                        FileSeries("sda", "fsync", "/data", "ext4", "device"): Histogram.record([8_000])
                    },
                },
            )
        )
    given_writer.close()
    return path


def test_who_issued_what_is_in_csv_and_openmetrics(who):
    counts, times = Counter(), Counter()
    for r in rows(export(who, "csv", who=True)):
        if r["table"]:
            key = r["table"], r["device"], r["op"], r["name"], r["detail"]
            counts[key] += int(r["count"] or 0)
            times[key] += int(r["sum_us"] or 0)
    web = ("cgroup", "sda", "write", WEB, "web.service")
    assert (counts[web], times[web]) == (6, 1200)
    backup = ("cgroup", "sda", "write", BACKUP, "backup.service")
    assert (counts[backup], times[backup]) == (10, 0)
    assert counts["process", "sdb", "read", f"'{EVIL}/7", WEB] == 2
    assert times["behind", "sda", "", WEB, BACKUP] == 500_000
    assert counts["size", "sda", "write", "4096", ""] == 6
    assert counts["pattern", "sda", "write", "sequential", ""] == 10
    assert times["file", "sda", "fsync", "/data", "ext4 device"] == 16_000
    metrics = export(who, "openmetrics").decode()
    for line in (
        f'latmon_cgroup_ios_total{{device="sda",op="write",cgroup="{WEB}",name="web.service"}} 6',
        f'latmon_cgroup_latency_seconds_count{{device="sda",op="write",cgroup="{WEB}",name="web.service"}} 6',
        f'latmon_cgroup_bytes_total{{device="sda",op="write",cgroup="{BACKUP}",name="backup.service"}} 1000000',
        f'latmon_cgroup_behind_seconds_total{{device="sda",cgroup="{WEB}",other="{BACKUP}"}} 0.5',
        'latmon_size_ios_total{device="sda",op="write",upto="4096"} 6',
        'latmon_pattern_ios_total{device="sda",op="write",pattern="unaligned"} 4',
        'latmon_file_latency_seconds_sum{device="sda",op="fsync",mount="/data",kind="ext4",wait="device"} 0.016',
    ):
        assert line in metrics.splitlines(), metrics
    assert "latmon_cgroup_latency_seconds_count" in metrics
    assert EVIL not in metrics


def test_who_is_of_the_selected_devices(who):
    found = {r["device"] for r in rows(export(who, "csv", "sdb", who=True))}
    assert found == {"", "sdb"}


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--to", "csv", "--buckets"], ["--to", "jsonl"]])
def test_what_is_exported_and_imported_again_keeps_its_counts(args, demo, tmp_path):
    out, back = tmp_path / "out.txt", tmp_path / "back.latmon.jsonl.gz"
    assert main(["export", str(demo), *args, "-o", str(out)]) == 0
    assert main(["import", str(out), "-o", str(back)]) == 0
    assert counted(back) == counted(demo)


@pytest.mark.parametrize("form", FORMATS)
def test_the_command_writes_a_new_file_or_stdout(form, small, tmp_path, capfdbinary):
    out = tmp_path / "out"
    args = ["export", str(small), "--to", form]
    assert main([*args, "-o", str(out)]) == 0
    assert b"4 windows, 2 gaps" in (text := capfdbinary.readouterr().err) or form == "jsonl"
    assert b"1 damaged place of" in text
    assert main([*args, "-o", str(out)]) == 3
    assert b"never overwritten" in capfdbinary.readouterr().err
    assert main([*args, "-o", "-"]) == 0
    assert capfdbinary.readouterr().out == out.read_bytes()


def test_what_is_wrong_is_reported_and_leaves_no_file(small, tmp_path, capfd):
    out = str(tmp_path / "out")
    for args, why in (
        (["--to", "csv", "--at", "5s"], "--at needs --to svg, --to text or --to cast"),
        (["--to", "svg", "--buckets"], "--buckets needs --to csv"),
        (["--to", "csv", "--buckets", "--who"], "--buckets and --who are two files"),
        (["--to", "cast", "--speed", "0"], "--speed: '0' is not a speed above 0"),
        (["--to", "csv", "--device", "xv*"], "no such device in it; there are"),
        (["--to", "svg", "--theme", "pink"], "no theme 'pink'"),
        (["--to", "svg", "--size", "3x4"], "40x10 to 500x200"),
        (["--to", "tar"], "--to: 'tar' is not one of jsonl, csv"),
    ):
        assert main(["export", str(small), *args, "-o", out]) == 2, args
        assert why in capfd.readouterr().err
        assert not (tmp_path / "out").exists()
    assert main(["export", "/nowhere", "--to", "csv", "-o", out]) == 5
    with pytest.raises(UsageError, match="-o"):
        arguments.parse(["export", "x", "--to", "csv"])


def test_a_full_disk_leaves_no_half_export(small, tmp_path, monkeypatch, capfd):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["export", str(small), "--to", "csv", "-o", str(tmp_path / "out")]) == 3
    assert "No space left on device" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_disk_that_fills_up_is_no_fault_of_the_recording(demo, tmp_path, monkeypatch, capfd, form):
    class Full(io.FileIO):
        def write(self, _some):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(streams.os, "fdopen", lambda descriptor, mode: io.BufferedWriter(Full(descriptor, mode)))
    assert main(["export", str(demo), "--to", form, "-o", str(tmp_path / "out")]) == 3
    assert capfd.readouterr().err == f"latmon: can't write {tmp_path / 'out'}: No space left on device\n"
    assert not (tmp_path / "out").exists()


def test_stamps_and_gaps_beyond_the_calendar_are_exported(tmp_path):
    path = tmp_path / "far.latmon.jsonl.gz"
    given_writer = Writer.create(path, replace(ORIGIN, start_wall=253_402_300_799.0))
    given_writer.append(replace(one(0, histograms=io_of("sda", [5])), wall=253_402_300_799.0))
    given_writer.gap("odd", 1e99)
    given_writer.close()
    for form in FORMATS:
        assert export(path, form), form
    assert export(path, "csv", buckets=True)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("is_damaged", [False, True], ids=["without a window", "damaged"])
def test_an_export_without_a_window_is_refused_and_leaves_no_file(tmp_path, capsys, form, is_damaged):
    path = tmp_path / "empty.latmon.jsonl.gz"
    header = pack(recording_encode.to_bytes(recording_encode.encode_origin(ORIGIN)), 0, 0)
    window = pack(b'{"type":"window"}\n', 11 * SECOND, 11 * SECOND)
    path.write_bytes(header + window if is_damaged else header)
    assert main(["export", "--to", form, "-o", str(tmp_path / "out"), str(path)]) == 5
    complaint = capsys.readouterr().err
    assert "no window" in complaint
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_p99_of_few_ios_is_the_slowest_one_in_perfetto_and_an_untimed_device_has_none(tmp_path):
    """Fewer than 100 I/Os have no p99 elsewhere; as 0 it was the best latency of the day."""
    path = tmp_path / "r"
    writer = Writer.create(path, ORIGIN, devices=(Device("sda", 8, 0), Device("dm-0", 253, 0, timed=False)))
    few = {Series("sda", "read", "total"): Histogram.record([900, 1_800])}
    for seq in range(3):
        counts = {Flow("sda", "read"): Completed(2, 8192), Flow("dm-0", "read"): Completed(2, 8192)}
        outstanding = {"sda": Outstanding(1, 0), "dm-0": Outstanding(1, 0)}
        writer.append(one(seq, histograms=few, kernel=counts, outstanding=outstanding))
    writer.close()
    events = json.loads(export(path, "perfetto"))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    values = [(names[event["pid"]], event["args"]["p99_us"]) for event in events if event["name"] == "p99_us"]
    assert values == [("sda", 1_800), ("sda", 0.0)]  # the counter ends with the recording
