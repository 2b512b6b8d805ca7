"""iostat's columns and units, and --device where a text has several disks."""

import json

import pytest
from test_imports import GOLDEN

from latmon.importers.registry import read_text
from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Completed, Flow
from latmon.model.inflight import MEANS
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, UsageError

NOTHING = ImportOptions()
LINUX = "Device            r/s     {0}   rrqm/s  %rrqm r_await rareq-sz     w/s     {1} w_await  aqu-sz  %util\n"
ROW = "{name}             100.00      2.00     0.00   0.00    0.20     4.00   50.00      1.00    1.00    0.02   1.00\n"
SOLARIS = (
    "                    extended device statistics\n"
    "    r/s    w/s   {0}   {1} wait actv wsvc_t asvc_t  %w  %b device\n"
)
SOLARIS_ROW = "  100.0   50.0    2.0    1.0  0.0  1.0    0.0   10.0   0   9 c0t0d0\n"
PLAIN = "                 extended device statistics\ndevice    r/s    w/s   {0}   {1} wait actv  svc_t  %w  %b\n"
PLAIN_ROW = "sd0     100.0   50.0    2.0    1.0  0.0  1.0   10.0   0   9\n"
VSCSI = (
    "Histogram: outstanding IOs when a new IO is issued,virtual machine worldGroupID,1,"
    "virtual disk handleID,{},(scsi0:{})\n"
    "min,1\nmax,1\nmean,1\ncount,{}\nFrequency,Histogram Bucket Limit\n{},1\n"
)


def read(text, asked=NOTHING):
    return read_text(text.encode(), "x", asked)


def frames(text, asked=NOTHING):
    return list(read(text, asked).frames())


@pytest.mark.parametrize(
    ("columns", "unit"), [(("rkB/s", "wkB/s"), 1024), (("rMB/s", "wMB/s"), 1 << 20), (("rsec/s", "wsec/s"), 512)]
)
def test_bytes_of_linux_in_the_unit_of_the_head(columns, unit):
    frame = frames(LINUX.format(*columns) + ROW.format(name="sda"))[0]
    assert frame.kernel[Flow("sda", "read")].bytes == 2 * unit
    assert frame.kernel[Flow("sda", "write")].bytes == unit


@pytest.mark.parametrize("layout", [SOLARIS + SOLARIS_ROW, PLAIN + PLAIN_ROW])
@pytest.mark.parametrize(("columns", "unit"), [(("kr/s", "kw/s"), 1024), (("Mr/s", "Mw/s"), 1 << 20)])
def test_bytes_and_times_of_solaris_in_the_unit_of_the_head(layout, columns, unit):
    (frame,) = frames(layout.format(*columns))
    read_, write = (frame.kernel[key] for key in sorted(frame.kernel))
    assert (read_.count, read_.bytes, read_.time_us) == (100, 2 * unit, 1_000_000)
    assert (write.count, write.bytes) == (50, unit)


def test_a_column_of_bytes_that_is_not_known_is_named():
    all_frames = frames(LINUX.format("rPB/s", "wPB/s") + ROW.format(name="sda"))
    assert "no column of bytes" in all_frames[0].health.notice
    assert "rPB/s" in all_frames[0].health.notice
    assert "rPB/s" not in frames(LINUX.format("rMB/s", "wMB/s") + ROW.format(name="sda"))[0].health.notice


def test_a_report_of_idle_disks_without_rows_is_a_window():
    head = SOLARIS.format("kr/s", "kw/s")
    all_frames = frames(head + SOLARIS_ROW + head + SOLARIS_ROW + head + head + SOLARIS_ROW)
    assert [bool(frame.kernel) for frame in all_frames] == [True, False, True]
    assert all_frames[1].outstanding["c0t0d0"].in_driver == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (LINUX.format("rkB/s", "wkB/s") + ROW.format(name="sda") + ROW.format(name="sdb"), "sda, sdb"),
        ("sd2 1 sd0 70\n", "sd2, sd0"),
        (VSCSI.format(1, "0", 5, 5) + VSCSI.format(2, "1", 7, 7), "scsi0:0, scsi0:1"),
    ],
)
def test_two_disks_never_become_one_by_overwriting(text, names):
    with pytest.raises(UsageError, match=names):
        read(text, ImportOptions(device="X"))
    assert read(text)


def test_one_disk_may_be_renamed():
    assert frames(LINUX.format("rkB/s", "wkB/s") + ROW.format(name="sda"), ImportOptions(device="X"))[0].kernel[
        Flow("X", "read")
    ]


def test_a_second_reading_of_the_same_is_a_window_of_its_own():
    twice = frames(VSCSI.format(1, "0", 5, 5) + VSCSI.format(1, "0", 7, 7))
    assert [sum(frame.depths["scsi0:0"].at_issue.values()) for frame in twice] == [5, 7]
    assert [frame.depths["sd2"].most for frame in frames("sd2 1\nsd2 9\n")] == [1, 9]


@pytest.mark.parametrize(
    ("name", "windows", "ops"),
    [
        ("iostat_h.txt", 1, {"read", "write", "flush"}),
        ("iostat_s.txt", 1, {"other"}),
        ("iostat_sxh.txt", 1, {"other"}),
        ("iostat_h_plain.txt", 1, {"other"}),
        ("sar_d.txt", 3, {"other"}),
        ("sar_dp.txt", 2, {"other"}),
    ],
)
def test_other_layouts_of_sysstat(name, windows, ops):
    found = read((GOLDEN / name).read_text())
    frames = list(found.frames())
    assert len(frames) == windows
    assert all({flow.device for flow in frame.kernel} == {"loop0", "loop28", "vda"} for frame in frames)
    assert {flow.op for frame in frames for flow in frame.kernel} == ops
    assert (found.exit_code, found.left) == (EXIT_DONE, [])


def test_the_tables_of_a_report_with_h_are_one_report():
    (frame,) = frames((GOLDEN / "iostat_h.txt").read_text())
    assert (frame.kernel[Flow("loop28", "write")].count, frame.kernel[Flow("loop28", "write")].time_us) == (
        165,
        150_150,
    )
    assert frame.kernel[Flow("loop28", "write")].bytes == pytest.approx(10.3 * 1024 * 1024, abs=1)
    assert frame.depths["loop28"].source == MEANS
    assert "bytes are rounded" in frame.health.notice


def test_a_row_that_one_table_of_a_report_lacks_leaves_out_its_disk():
    lines = (GOLDEN / "iostat_h.txt").read_text().splitlines(keepends=True)
    at = max(n for n, line in enumerate(lines) if line.rstrip().endswith("loop28"))
    found = read("".join(lines[:at] + lines[at + 1 :]))
    assert found.exit_code == EXIT_INCOMPLETE
    assert {flow.device for frame in found.frames() for flow in frame.kernel} == {"loop0", "vda"}


def test_sar_counts_transfers_of_its_intervals_and_its_date_is_that_of_its_header():
    text = (GOLDEN / "sar_d.txt").read_text()
    all_frames = frames(text)
    assert [frame.wall for frame in all_frames] == [1_795_727_439, 1_795_727_440, 1_795_727_441]
    assert all_frames[0].dt_us == 1_000_000
    rates = [float(line.split()[2]) for line in text.splitlines() if " loop0 " in line and line[0].isdigit()]
    assert [frame.kernel[Flow("loop0", "other")].count for frame in all_frames] == [round(rate) for rate in rates]
    assert all_frames[0].kernel[Flow("loop0", "other")].time_us is not None


def test_rows_of_sar_without_a_head_of_their_own_are_reports():
    text = (
        "Linux 4.18.0 (db1) \t04/07/2016 \t_x86_64_\t(4 CPU)\n\n"
        "12:00:01 PM       DEV       tps  rd_sec/s  wr_sec/s  avgrq-sz  avgqu-sz     await     svctm     %util\n"
        "12:10:01 PM    dev8-0     10.00     80.00    160.00     24.00      0.03      3.00      1.00      1.00\n"
        "12:10:01 PM   dev8-16      1.00      8.00      0.00      8.00      0.00      2.00      2.00      0.20\n"
        "12:20:01 PM    dev8-0     20.00     80.00    160.00     12.00      0.12      6.00      1.00      2.00\n"
        "12:20:01 PM   dev8-16      0.00      0.00      0.00      0.00      0.00      0.00      0.00      0.00\n"
        "Average:       dev8-0     15.00     80.00    160.00     16.00      0.07      4.50      1.00      1.50\n"
    )
    first, second = frames(text)
    assert first.kernel[Flow("dev8-0", "other")] == Completed(6000, 240 * 512 * 600, 18_000_000)
    assert (second.kernel[Flow("dev8-0", "other")].count, second.dt_us) == (12_000, 600_000_000)
    assert first.wall == 1_460_031_001.0


@pytest.mark.parametrize(
    "word", ["Average:", "Durchschn.:", "Moyenne :", "Moyenne\xa0:", "Media:", "Średnia:", "平均値:", "Trung bình:"]
)
@pytest.mark.parametrize("name", ["sar_d.txt", "sar_dp.txt"])
def test_the_averages_of_sar_are_no_report_in_any_language(name, word):
    """The counts are those of the golden file, whose averages are in English."""
    text = (GOLDEN / name).read_text()
    assert "Average:" in text
    found = read(text.replace("Average:", word))
    assert [frame.kernel for frame in found.frames()] == [frame.kernel for frame in frames(text)]
    assert found.exit_code == EXIT_DONE
    assert not found.left


def test_a_row_of_sar_without_its_time_is_named_beside_averages_in_german():
    text = (GOLDEN / "sar_d.txt").read_text().replace("Average:", "Durchschn.:")
    at = max(n for n, line in enumerate(text.splitlines()) if " loop0 " in line and line[0].isdigit())
    lines = text.splitlines(keepends=True)
    lines[at] = lines[at][8:]
    found = read("".join(lines))
    assert found.exit_code == EXIT_INCOMPLETE
    assert any("a line of sar can't be read" in remark.text for remark in found.found if isinstance(remark, Remark))


def test_an_op_is_given_to_rows_that_name_none():
    asked = ImportOptions(op="flush")
    assert {flow.op for frame in frames((GOLDEN / "iostat_s.txt").read_text(), asked) for flow in frame.kernel} == {
        "flush"
    }
    (given_frame,) = frames(LINUX.format("rkB/s", "wkB/s") + ROW.format(name="sda"), asked)
    assert {flow.op: done.count for flow, done in given_frame.kernel.items() if done.count} == {
        "read": 100,
        "write": 50,
    }


def test_disks_whose_long_names_begin_alike_stay_apart():
    names = ["n" * 70 + end for end in "ab"]
    found = read(LINUX.format("rkB/s", "wkB/s") + "".join(ROW.format(name=name) for name in names))
    (frame,) = found.frames()
    assert [done.count for flow, done in frame.kernel.items() if flow.op == "read"] == [100, 100]
    assert found.exit_code == EXIT_DONE


def test_a_start_after_the_times_of_day_keeps_them_apart():
    table = "@us[sda]:\n[1]   5 |@@|\n"
    all_frames = frames(
        f"10:00:00\n{table}\n10:00:05\n{table}\n10:00:10\n{table}", ImportOptions(start=1e9 - 1e9 % 86400 + 80_000)
    )
    assert [frame.wall - all_frames[0].wall for frame in all_frames] == [0, 5, 10]


def test_stacks_that_share_their_innermost_frames_are_one_window():
    stack = "@us[\n    a+1\n    b+2\n    c+3\n    {}+4\n]:\n[1]   5 |@@|\n\n"
    (frame,) = frames(stack.format("d") + stack.format("e"))
    assert sorted(histogram.count for histogram in frame.histograms.values()) == [5, 5]


def test_a_job_of_fio_with_bins_and_one_without_are_counted_together():
    bins = {"total_ios": 2, "io_bytes": 8192, "lat_ns": {"bins": {"1000": 2}, "N": 2}}
    jobs = [{"jobname": "j", "read": side} for side in (bins, {"total_ios": 3, "io_bytes": 12288})]
    found = read(json.dumps({"fio version": "fio-3.33", "jobs": jobs}))
    (frame,) = found.frames()
    assert not frame.kernel
    assert (frame.seen[Flow("j", "read")].count, frame.seen[Flow("j", "read")].bytes) == (5, 20_480)
    assert "3 I/Os without bins" in frame.health.notice
