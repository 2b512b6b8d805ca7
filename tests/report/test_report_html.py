"""The report as one HTML file: well-formed, closed to the outside, foreign text inert, numbers those of the JSON."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from on_demand_frames import DISK as SDC_WRITE
from on_demand_frames import outlier, traced_disk
from recorded import DISK, ORIGIN, frame
from report_json import summarised

from latmon.diff.command import read
from latmon.diff.comparison import COLUMNS, compare, sweep_of
from latmon.diff.output import paragraphs, quantile_rows, shown_totals, sweep_cell
from latmon.diff.report import pair_report, sweep_report
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Limit, Mark, Outlier, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths
from latmon.model.stages import called
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report import columns
from latmon.report.command import report_command
from latmon.report.html import diff_page, render_html, sweep_page, write_diff
from latmon.report.html_charts import MapColumns, histogram
from latmon.report.html_elements import LEVELS, look, style_sheet, time_of
from latmon.report.model.latency import QUANTILES
from latmon.report.reading import added_up, summarise
from latmon.report.summary import report_of
from latmon.report.text import render_text
from latmon.support.errors import EXIT_DONE, UnavailableError, UsageError
from latmon.support.paths import data_dir
from latmon.support.theme import load_ramp
from latmon.support.units import in_words

GOLDEN = Path(__file__).parents[1] / "golden"
VOID = {"meta", "br"}
EVIL = ("<script>alert(1)</script>", '"onload="alert(1)', "a]]>b&amp;", "\u202egnp.exe", "שלום", "'><img src=x>")
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Refuses what isn't balanced; keeps elements with their attributes, and tables as text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.text, self.tables = [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)
        if "tr" in self.open and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1] += data

    def every(self, tag):
        return [attrs for name, attrs in self.seen if name == tag]


def page_of(path, *, whole=True):
    recording = open_recording(path)
    columns = MapColumns(recording.origin.interval_us)
    totals = added_up(recording, columns.add, whole=whole)
    return render_html(report_of(recording, totals), totals, columns)


def record(path, *frames, origin=ORIGIN, gap_before=None):
    writer = Writer.create(path, origin)
    for current_frame in frames:
        if current_frame.seq == gap_before:
            writer.gap("enospc", 2.0)
        writer.append(current_frame)
    writer.close()
    return path


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """All that a page can hold: stages, an outlier, depths at a limit, marks, a gap, settings."""
    disk = Device("sdc", 8, 32, driver="mpt3sas", model="HDD", limits=(Limit("queue_depth", 3, "device/queue_depth"),))
    depths = Depths({0: 100, 3: 900}, {0: 500, 40: 500}, {3: 50}, source="probe")
    frames = [
        frame(
            seq,
            devices=(DISK, disk) if seq == 0 else (),
            traced=traced_disk(),
            seen={Flow("sda", "read"): Completed(100, 409_600), SDC_WRITE: Completed(100, 1)},
            outliers=(outlier(6_000_000 + seq * 1_000_000),) if seq == 3 else (),
            thresholds_us={"sdc": 20_000},
            depths={"sdc": depths},
            marks=(Mark("scheduler off", 9_500_000, 1_000_004.5, {"device sdc": {"scheduler": "none"}}),)
            if seq == 4
            else (),
        )
        for seq in range(10)
        if seq != 6
    ]
    origin = replace(ORIGIN, settings={"device sdc": {"scheduler": "mq-deadline", "nr_requests": "64"}})
    return record(tmp_path_factory.mktemp("rich") / "r", *frames, origin=origin, gap_before=7)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    frames = [
        frame(
            0,
            devices=tuple(Device(f"d{at}{evil}", 8, at, driver=evil, model=evil) for at, evil in enumerate(EVIL)),
            histograms={Series(f"d{at}{evil}", evil, "total"): Histogram.record([100]) for at, evil in enumerate(EVIL)},
            seen={Flow(f"d{at}{evil}", evil): Completed(1, 1) for at, evil in enumerate(EVIL)},
            outliers=tuple(outlier(device=f"d0{EVIL[0]}", comm=evil, path=evil, flags=(evil,)) for evil in EVIL),
            thresholds_us={f"d0{EVIL[0]}": 1000},
            marks=tuple(Mark(evil, 6_500_000, 1_000_001.0, {evil: {evil: evil}}) for evil in EVIL),
            health=Health(notice=EVIL[0]),
            gap=EVIL[1],
        )
    ]
    origin = replace(
        ORIGIN, host=EVIL[0], kernel=EVIL[3], tool=EVIL[1], reason=EVIL[5], settings={EVIL[0]: {"k": EVIL[1]}}
    )
    return record(tmp_path_factory.mktemp("hostile") / "r", *frames, origin=origin)


def pages():
    return sorted(GOLDEN.glob("*.latmon.jsonl.gz"))


@pytest.mark.parametrize("name", ["rich", "hostile", *pages()], ids=lambda one: getattr(one, "name", one))
def test_a_page_is_balanced_needs_nothing_from_outside_and_can_be_read_aloud(name, request):
    page = page_of(request.getfixturevalue(name) if isinstance(name, str) else name)
    parsed = Page(page)
    tags = {tag for tag, _ in parsed.seen}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "image", "use", "foreignobject", "form"}
    assert {attrs["href"][0] for attrs in parsed.every("a")} <= {"#"}
    attributes = {name for _, attrs in parsed.seen for name in attrs}
    assert not [
        name for name in attributes if name.startswith("on") or name in ("src", "style", "srcdoc", "xlink:href")
    ]
    urls = set(re.findall(r"url\(([^)]*)\)", page)) | set(re.findall(r"@import[^;]*", page))
    assert all(url.startswith("#hatch-") for url in urls)
    ids = [attrs["id"] for _, attrs in parsed.seen if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all("scope" in attrs for attrs in parsed.every("th"))
    pictures = [attrs for attrs in parsed.every("svg") if "aria-hidden" not in attrs]
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in pictures)
    levels = [int(tag[1]) for tag, _ in parsed.seen if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= before + 1 for before, later in pairwise(levels))
    for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)


def test_foreign_text_is_text(hostile):
    page = page_of(hostile)
    parsed = Page(page)
    text = " ".join(parsed.text)
    for evil in (EVIL[0], EVIL[1], EVIL[2], EVIL[4], EVIL[5]):
        assert evil in text
    assert "\u202e" not in page


def quantile_text(q, name):
    """Format as the text report does, but a quantile that is the exact maximum to the digit."""
    us = q.quantile(name)
    exact = us is None or us == q.max
    return time_of(us) if exact else in_words(columns.cell(q, name))


def test_every_number_is_that_of_the_json_and_a_quantile_has_the_text_s_digits(rich):
    report = summarise(open_recording(rich))
    parsed = Page(page_of(rich))
    tables = [table for table in parsed.tables if table[0][1:3] == ["timed", "mean"]]
    busy = [device for device in report.devices.values() if device.ops]
    assert len(tables) == len(busy) == 2
    for table, device in zip(tables, busy, strict=True):
        heads = [at for at, row in enumerate(table) if len(row) == 1]
        assert [table[at][0].split()[0] for at in heads] == [*device.ops]
        for (at, end), op in zip(pairwise([*heads, len(table)]), device.ops.values(), strict=True):
            reported = {row[0].strip(): row[1:] for row in table[at + 1 : end]}
            total = {"total": op.latency_us} if op.latency_us else {}
            rows = total | ({"of traced": op.traced_us} if "of traced" in reported else {})
            rows |= {called(stage, q.includes).column: q for stage, q in op.stages.items()}
            for name, q in rows.items():
                expected = [
                    f"{q.count:,}",
                    time_of(q.mean),
                    *(quantile_text(q, at) for at in QUANTILES),
                    time_of(q.max),
                ]
                assert reported[name][: len(expected)] == expected


def test_a_time_is_reported_to_the_microsecond():
    assert [time_of(us) for us in (85, 18_250, 1_238_999, 92.4, 5935.2, None, 0)] == [
        "85 us", "18.250 ms", "1.238999 s", "92.4 us", "5.9352 ms", "-", "0 us"
    ]  # fmt: skip


def svgs(page, label):
    return [
        ET.fromstring(one) for one in re.findall(r"<svg .*?</svg>", page, re.DOTALL) if label in one.partition(">")[0]
    ]


def test_gaps_are_hatched_and_marks_are_lines_with_their_notes(rich):
    page = page_of(rich)
    for drawn in svgs(page, "Latency heat map of sdc"):
        titles = [one.text for one in drawn.iter(f"{SVG}title")]
        assert "mark 1 scheduler off" in titles
        assert "2 s: enospc" in titles
        assert [one.text for one in drawn.iter(f"{SVG}text") if one.get("class") == "lab"] == ["1 scheduler off"]
    assert "set otherwise than at the start" in page
    assert "device sdc: scheduler is now none" in page
    assert "INCOMPLETE" in page


def test_an_outlier_s_parts_add_up(rich):
    page = page_of(rich)
    assert "queue 3 us + hba 85 us + irq 6 us + completion 1.238903 s + unaccounted 2 us = 1.238999 s" in page
    (ribbon,) = svgs(page, "1.238999 s: queue 3 us")
    assert sum(float(one.get("width")) for one in ribbon.iter(f"{SVG}rect")) == pytest.approx(960, abs=0.5)


def test_an_outlier_of_which_little_is_known_has_a_row(tmp_path):
    unknown = ("sector", "bytes", "pid", "cpu_issue", "cpu_complete", "outstanding_at_issue", "overtaken_by")
    known = {"comm": "", "path": "", "stages_us": {}, "unaccounted_us": 0, "waits": (), "flags": ()}
    bare = outlier(**dict.fromkeys(unknown), **known)
    page = page_of(record(tmp_path / "r", frame(0, outliers=(bare,), thresholds_us={"sdc": 20_000})))
    assert "write, by <bdi>-/-</bdi>, began" in page
    assert "stages were not traced then" in page


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"total_us": 1_238_997}, "2 us more than the total"),
        ({"total_us": 1_239_003}, "4 us less than the total"),
        ({"stages_us": {}, "unaccounted_us": 1_238_999}, "unaccounted 1.238999 s = 1.238999 s"),
    ],
)
def test_the_sum_of_an_outlier_says_what_is_missing(tmp_path, changed, text):
    page = page_of(record(tmp_path / "r", frame(0, outliers=(outlier(**changed),), thresholds_us={"sdc": 20_000})))
    assert text in page
    assert "-2 us" not in page


def test_a_single_io_among_millions_is_a_cell_of_its_own(tmp_path):
    series = Series("sda", "read", "total")
    seen = {Flow("sda", "read"): Completed(5_000_000, 0)}
    bound = {"sda": 10_000}
    frames = [
        frame(seq, histograms={series: Histogram.of({60: 5_000_000})}, seen=seen, thresholds_us=bound)
        for seq in range(900)
    ]
    frames[700] = frame(700, histograms={series: Histogram.of({60: 5_000_000, 130: 1})}, seen=seen, thresholds_us=bound)
    path = record(tmp_path / "r", *frames)
    for whole, column in ((True, "M175"), (False, "M11")):  # of 4 s, and by the recording's roll-ups of 60 s
        (drawn,) = svgs(page_of(path, whole=whole), "Latency heat map of sda")
        alone = [one for one in drawn.iter(f"{SVG}g") if one.get("class") == "tail"]
        assert [[path.get("d").split()[0] for path in group] for group in alone] == [[column]]
        assert alone[0][0][0].text.endswith(": 1")
        assert "above 10 ms" in "".join(drawn.itertext())


def test_each_map_has_steps_of_its_own_counts(tmp_path):
    few, many = Series("sda", "read", "total"), Series("sdb", "read", "total")
    seen = {Flow(series.device, series.op): Completed(5, 0) for series in (few, many)}
    frames = [frame(0, histograms={few: Histogram.of({60: 5}), many: Histogram.of({60: 10**6})}, seen=seen)]
    page = page_of(record(tmp_path / "r", *frames))
    legends = ["".join(svg.itertext()) for name in ("sda", "sdb") for svg in svgs(page, f"Latency heat map of {name}")]
    assert "1,000,000" not in legends[0]
    assert "5+" in legends[0]
    assert "above" not in legends[0], "no threshold is known"


def test_columns_are_few_and_hold_everything_however_long_it_was():
    series = [Series(f"sd{at}", "read", "total") for at in range(3)]
    values = {one: Histogram.of({40: 3, 80 + at: 1}) for at, one in enumerate(series)}
    columns = MapColumns(1_000_000)
    for seq in range(3000):
        columns.add(frame(seq, histograms=values, outstanding={"sd0": Outstanding(seq, 0)}))
    assert 120 <= columns.count <= 240
    assert columns.width_us == 16_000_000
    for at, current_series in enumerate(series):
        sums = [
            sum(counts.get(index, 0) for counts in columns.of(current_series.device).values())
            for index in (40, 80 + at)
        ]
        assert sums == [9000, 3000]
    assert max(column.depths["sd0"] for column in columns.columns.values()) == 2999


def test_a_long_window_covers_its_columns_and_makes_no_other_wider():
    columns = MapColumns(1_000_000)
    for seq, dt_us in ((0, 1_000_000), (3, 3_000_000), (4, 1_000_000)):
        columns.add(replace(frame(seq), dt_us=dt_us))
    assert columns.width_us == 1_000_000
    assert {number: column.wide for number, column in columns.columns.items()} == {0: 1, 1: 3, 4: 1}
    assert columns.count == 5


def test_a_window_without_end_is_borne():
    columns = MapColumns(1_000_000)
    for current_frame in (replace(frame(0), dt_us=2**62), frame(2**40)):
        columns.add(current_frame)
    assert columns.count <= 240


def test_columns_are_round_where_the_length_is_known():
    assert MapColumns(1_000_000, 3_600_000_000).width_us == 15_000_000
    assert MapColumns(1_000_000, 86_400_000_000).width_us == 600_000_000
    assert MapColumns(100_000, 60_000_000).width_us == 500_000
    assert MapColumns(1_000_000, 60_000_000).width_us == 1_000_000


def test_many_devices_make_wider_columns_and_a_page_of_bounded_size(tmp_path):
    buckets = {40 + 3 * at: 5 for at in range(20)}
    values = {Series(f"sd{at}", "read", "total"): Histogram.of(buckets) for at in range(24)}
    seen = {Flow(series.device, "read"): Completed(100, 1) for series in values}
    path = record(tmp_path / "r", *(frame(seq, histograms=values, seen=seen) for seq in range(120)))
    page = page_of(path)
    assert len(page) < 3_000_000
    assert page.count("h1v1h-1z") <= 22_000


def test_the_first_page_has_the_worst_finding_and_the_map_of_its_device(rich):
    page = page_of(rich)
    impact, _, remainder = page.partition("<dl")
    assert '<p class="impact">' in impact
    (label,) = re.findall(r"Latency heat map of (\S+):", impact)
    assert page.count(f"Latency heat map of {label}:") == 1, "its section has no second one"
    assert "Its map is on the first page." in remainder


def test_a_brief_page_ends_after_the_devices(rich, tmp_path):
    whole, brief = tmp_path / "case.html", tmp_path / "brief.html"
    assert report_command([rich], html=whole) == report_command([rich], html=brief, is_brief=True) == EXIT_DONE
    heads = re.findall(r"<h2>(.*?)</h2>", brief.read_text())
    assert heads == ["Findings", "Devices"]
    assert len(re.findall(r"<h2>(.*?)</h2>", whole.read_text())) > len(heads)
    Page(brief.read_text())


def test_a_brief_page_has_few_parts_of_few_findings_so_that_it_fits_on_two(tmp_path):
    """Chromium printed three pages of A4 of this recording, with 24 devices and two findings, before."""
    path, brief = (
        Path(__file__).resolve().parents[2] / "docs/incidents/recordings/qumulo.latmon.jsonl.gz",
        tmp_path / "b",
    )
    assert report_command([path], html=brief, is_brief=True) == EXIT_DONE
    page = brief.read_text()
    first, second = re.findall(r'<article class="finding.*?</article>', page, re.DOTALL)
    assert [finding.count("<li>") for finding in (first, second)] == [5 + 3, 2 + 1]
    assert "8 of 24 devices" in page
    devices = re.findall(r"<tr><t[hd][^>]*>(?:<bdi>)?(nvme[^<]*)<", page)
    assert len(devices) == 8
    assert devices[0] == "nvme13n1", "that of the finding"
    assert "not evaluated" not in page


def test_the_command_writes_a_new_private_file(rich, tmp_path, capsysbinary):
    out = tmp_path / "case.html"
    assert report_command([rich], html=out) == EXIT_DONE
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert out.read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(UnavailableError, match="never overwritten"):
        report_command([rich], html=out)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnavailableError):
        report_command([rich], html=tmp_path / "link")
    assert report_command([rich], html=Path("-")) == EXIT_DONE
    assert capsysbinary.readouterr().out == out.read_bytes()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110  a device, not a file
def test_a_page_that_cannot_be_written_leaves_nothing_behind(rich, tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("latmon.report.command._page", broken)
    with pytest.raises(UnavailableError, match="No space left"):
        report_command([rich], html=tmp_path / "case.html")
    assert not list(tmp_path.iterdir())


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_enough_contrast_on_paper_and_on_both_screens():
    paper, screen = re.findall(r":root\{(?:color-scheme:light dark;)?(--[^}]*)\}", style_sheet(look()))
    for sheet in (paper, screen):
        colours = dict(re.findall(r"--(\w+):(#\w{6})", sheet))
        for ground in ("background", "band"):
            for ink in ("text", "dim", "strong", "accent", "bad"):
                low, high = sorted((luminance(colours[ground]), luminance(colours[ink])))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (ground, ink)


@pytest.mark.parametrize("ramp", ["auto", "viridis", "short"])
def test_maps_have_the_colours_of_the_ramp(rich, tmp_path, monkeypatch, ramp):
    own = tmp_path / "latmon/themes/ramps/short.yaml"
    own.parent.mkdir(parents=True)
    inferno = yaml.safe_load((data_dir("themes") / "ramps/inferno.yaml").read_text())
    few = {
        side: {**inferno[side], **{key: inferno[side][key][:4] for key in ("steps", "steps_256")}}
        for side in ("dark", "light")
    }
    own.write_text(yaml.safe_dump({"name": "short", **few}, allow_unicode=True))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert report_command([rich], html=tmp_path / "case.html", ramp=ramp) == 0
    page = (tmp_path / "case.html").read_text()
    steps = load_ramp("cividis" if ramp == "auto" else ramp, dark=False).steps
    assert len(look(ramp).paper.ramp.steps) == LEVELS
    assert f"--heat1:{steps[0]};" in page
    assert f"--heat{LEVELS}:{steps[-1]};" in page
    assert set(re.findall(r'<g class="h\d" fill="(#\w+)">', page)) <= set(steps)


def test_an_unknown_ramp_is_refused_before_the_file_is_made(rich, tmp_path):
    with pytest.raises(UsageError, match="no ramp 'pink'; there are auto, cividis"):
        report_command([rich], html=tmp_path / "case.html", ramp="pink")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", pages(), ids=lambda one: one.name)
def test_the_text_of_every_golden_recording_fits_a_ticket(path, capsys):
    report_command([path])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_nothing_is_closed_or_hidden_on_paper(rich):
    page = page_of(rich)
    every = [dict(attrs) for tag, attrs in Page(page).seen if tag == "details"]
    assert len(every) >= 2  # the configuration, and depths in numbers
    assert all("open" in one for one in every)
    assert "display:none" not in page


def test_the_time_from_issue_to_completion_is_not_called_hba_in_text_or_html(tmp_path):
    origin = replace(ORIGIN, measured={"queue": ("requeue",), "hba": ("irq", "softirq", "completion"), "total": ()})
    late = Outlier(1.0, 20_000_000, "sda", "read", 900, {"queue": 3, "hba": 897}, includes=origin.measured)
    held = {Series("sda", "read", stage): Histogram.record([900] * 200) for stage in ("queue", "hba", "total")}
    only = Frame(0, 1.7e9, 20_000_000, 1_000_000, held, outliers=(late,), thresholds_us={"sda": 500})
    path = record(tmp_path / "r", only, origin=origin)
    summary = summarised(open_recording(path))
    assert summary["devices"]["sda"]["ops"]["read"]["stages"]["hba"]["includes"] == ["irq", "softirq", "completion"]
    html = re.sub(r"<style.*?</style>|<[^>]*>", " ", page_of(path), flags=re.DOTALL)
    for text in (" ".join(render_text(summary.report).split()), html):
        assert "hba" not in text
        assert "service (issue to completion) includes irq, softirq, completion" in text


def recordings(*names):
    return [read(str(GOLDEN / "recordings" / f"demo-{name}.latmon.jsonl.gz")) for name in names]


def flat(sentences):
    return " ".join(" ".join(sentences).split())


def test_the_page_of_a_diff_has_the_text_in_its_order_and_both_distributions():
    compared = pair_report(compare(*recordings("bubbles", "serialised")))
    page = Page(diff_page(compared))
    shown = flat(page.text)
    at = 0
    for _, sentences in paragraphs(compared):
        for shown_total in sentences:
            at = shown.index(flat([shown_total]), at)
    for shown_total in shown_totals(compared):
        assert all(row in page.tables[0] for row in quantile_rows(shown_total))
    labels = [one["aria-label"] for one in page.every("svg")]
    assert len(labels) == 2 * len(shown_totals(compared)) > 0
    assert [label.split(":")[0].rsplit(" ", 1)[-1] for label in labels[:2]] == ["A", "B"]
    assert not page.every("script") + page.every("link") + page.every("img")


def test_both_distributions_have_the_same_axes():
    fast, slow = Histogram.record([100] * 50), Histogram.record([100] * 5 + [90_000])
    for current_histogram, other in ((fast, slow), (slow, fast)):
        ticks = re.findall(r">(1 ms|10 ms|10|1)</text>", histogram("x", current_histogram, other))
        assert sorted(ticks) == ["1", "1 ms", "10", "10 ms"]
    assert "10 ms" not in histogram("x", fast)


def test_the_page_of_a_sweep_has_its_table_and_a_picture():
    spans = recordings("bubbles", "serialised", "bubbles")
    swept = sweep_report(sweep_of(spans))
    page = Page(sweep_page(swept))
    table = swept.sweep[0]
    assert page.tables[0][0] == ["capture", *COLUMNS]
    assert [row[1:] for row in page.tables[0][1:]] == [
        [sweep_cell(column, row.values[column]) for column in COLUMNS] for row in table.rows
    ]
    (picture, *_) = re.findall(r"<svg.*?</svg>", sweep_page(swept), re.DOTALL)
    drawn = ET.fromstring(picture)
    assert len(list(drawn.iter(f"{SVG}circle"))) == 3 * len(spans)
    assert len(list(drawn.iter(f"{SVG}rect"))) == 1 + 2 * len(spans)
    assert {one.text for one in drawn.iter(f"{SVG}text")} >= {"IOPS", "slow/day", "p50", "p99", "max"}


def test_foreign_text_is_inert_on_the_page_of_a_diff(tmp_path):
    a, b = recordings("bubbles", "bubbles")
    a.name, b.settings = EVIL[0], {"module x": {"y": EVIL[1]}}
    page = Page(diff_page(pair_report(compare(a, b))))
    assert not page.every("script")
    out = tmp_path / "d.html"
    assert write_diff(lambda: sweep_report(sweep_of([a, b], "driver")), out) == EXIT_DONE
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with pytest.raises(UnavailableError):
        write_diff(lambda: pytest.fail("read before the name was found taken"), out)
