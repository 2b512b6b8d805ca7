"""No import is silently wrong: what a text lacks is absent, what is left out is named and decides the exit code."""

import re

import pytest
import test_imports
from report_json import summarised
from test_imports import BLKPARSE, BOUNDS, EMLXS, HEAD, PAIR, SAMPLES, SCSI, SOLARIS, VSCSI, frames, only, read, table

from latmon.exporters.latmon import write_buckets, write_jsonl
from latmon.exporters.registry import ExportOptions, Source
from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions
from latmon.model.frame import Completed, Flow
from latmon.model.inflight import MEANS
from latmon.recording.reader import open_recording
from latmon.report.outstanding import sentences
from latmon.report.text import render_text
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_UNREADABLE, RecordingError

GOLDEN = test_imports.GOLDEN
US = ImportOptions(unit="us")
PROSE = "The disks were slow on Tuesday.\n"
BPFTRACE = """@us[sda]:
[1]                    5 |@@@@@@@                                             |
[2, 4)                35 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 8)                 7 |@@@@@@@@@@                                          |
[8, 16)                1 |@                                                   |

"""
JSON_TABLE = '{"type": "hist", "data": {"@us": [{"min": 1, "max": 1, "count": 5}]}}\n'
OTHER = BPFTRACE.replace("sda", "sdb")
RANGES = """latency range of reads          operations
     0us -  100us                     12
   100us -  500us                     94
   500us -    2ms                      3
     2ms -   10ms                      1
"""
EDGES = """<= 262us           12
<= 524us           10
<= 1ms              3
<= 2ms              1
"""
PERCENTILES = """    clat percentiles (usec):
     |  1.00th=[   12],  5.00th=[   14], 10.00th=[   15], 20.00th=[   17],
     | 30.00th=[   19], 40.00th=[   20], 50.00th=[   22], 60.00th=[   25],
     | 70.00th=[   30], 80.00th=[   44], 90.00th=[   61], 95.00th=[   80],
"""
ROW_OF_SOLARIS = "  100.0   50.0  800.0  400.0 {wait} {actv}   80.0   20.0 {w:3} {b:3} c0t0d0\n"
HEAD_OF_SOLARIS = "\n".join(SOLARIS.split("\n")[1:3]) + "\n"


def imported(tmp_path, text, asked=US, name="text"):
    (tmp_path / name).write_text(text)
    out = tmp_path / f"{name}.latmon.jsonl.gz"
    return import_command(tmp_path / name, out, asked), open_recording(out)


def golden(name):
    return (GOLDEN / name).read_text()


# iostat


@pytest.mark.parametrize("name", ["iostat_plain.json", "iostat_plain.txt"])
def test_without_x_what_iostat_does_not_print_is_absent(tmp_path, name):
    code, recording = imported(tmp_path, golden(name))
    first = next(iter(frames(golden(name))))
    assert {flow.op for flow in first.kernel} == {"other"}
    loop = first.kernel[Flow("loop0", "other")]
    assert loop.count > 390
    assert loop.bytes == loop.count * 4096
    assert loop.time_us is None
    assert not first.outstanding
    assert not first.depths
    assert code == EXIT_DONE
    device = summarised(recording)["devices"]["loop0"]
    assert "outstanding" not in device
    assert "mean_us" not in device["ops"]["other"]["kernel"]


def test_every_idle_interval_without_x_is_a_window():
    text = golden("iostat_plain.txt")
    head = next(line for line in text.split("\n") if line.startswith("Device"))
    idle = f"\n{head}\nvda               0.00         0.00         0.00         0.00          0          0          0\n"
    assert len(frames(text + 2 * idle)) == len(frames(text)) + 2


def test_the_first_interval_of_iostat_y_is_a_window_and_an_average_since_the_boot_is_none():
    by_y, by_x = frames(golden("iostat_y.txt")), frames(golden("iostat_x.txt"))
    assert (len(by_y), len(by_x)) == (3, 3)
    assert [one.kernel[Flow("loop0", "read")].count for one in by_y][1:] == [397, 401]
    assert all(one.kernel[Flow("loop0", "read")].count < 500 for one in (*by_y, *by_x))  # 2,7xx since the boot
    assert "is of an interval, by its numbers" in by_y[0].health.notice
    assert "of the time since the boot, by its numbers" in by_x[0].health.notice


@pytest.mark.parametrize(
    ("prefix", "asked", "number"),
    [
        ("", ImportOptions(first_report="keep"), 4),
        ("", ImportOptions(first_report="drop"), 3),
        ("root@host:~# iostat -xy 1 4\n", ImportOptions(), 4),
        ("$ /usr/bin/iostat -x -y 1 4\n", ImportOptions(), 4),
        ("$ iostat -x 1 4\n", ImportOptions(), 3),
    ],
)
def test_an_option_or_the_command_line_decides_on_the_first_report(prefix, asked, number):
    assert len(frames(prefix + golden("iostat_x.txt"), asked)) == number


def test_the_first_interval_is_as_long_as_the_later_ones_where_the_reports_have_times():
    head = "\nDevice            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
    rows = "".join(f"sd{name}            {rate}   53.10     10.00      0.00      0.12    0.00    0.00   0.10\n"
                   for name, rate in (("a", 112.30), ("b", 145.70), ("c", 133.40)))  # fmt: skip
    first, second = frames("".join(f"\n01/05/2026 10:00:{at} AM{head}{rows}" for at in (10, 20)))
    assert (first.dt_us, first.mono_us, second.dt_us) == (10_000_000, 10_000_000, 10_000_000)
    assert first.kernel[Flow("sda", "read")].count == 1123
    assert "by its numbers (iostat -y); it is taken as 10 s long, as the later reports are" in first.health.notice


def test_where_the_numbers_fit_both_the_first_report_is_left_out_and_the_option_is_named():
    head = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
    row = "sda              3.00    0.00     12.00      0.00      0.10    0.00    0.00   0.10\n"
    all_frames = frames(3 * (head + row + "\n"))
    assert len(all_frames) == 2
    assert "--first-report keep" in all_frames[0].health.notice


def test_a_single_report_is_reported_as_an_average():
    head = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
    row = "sda              3.10    0.00     12.00      0.00      0.10    0.00    0.00   0.10\n"
    assert (
        "a single report is an average since the boot unless iostat ran with -y"
        in only(frames(head + row)).health.notice
    )


@pytest.mark.parametrize(
    ("command", "seconds"),
    [("iostat -x 5 3", 5), ("iostat -x sda 5", 5), ("iostat -xnl 8 2 3", 2), ("iostat -xnl 8", 1), ("iostat -x", 1)],
)
def test_the_interval_of_a_command_line_is_that_of_reports_without_times(command, seconds):
    head = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
    row = "sda              3.00    0.00     12.00      0.00      0.10    0.00    0.00   0.10\n"
    all_frames = frames(f"$ {command}\n" + 3 * (head + row + "\n"))
    assert [frame.dt_us for frame in all_frames] == [seconds * 1_000_000] * 2
    assert [frame.kernel[Flow("sda", "read")].count for frame in all_frames] == [3 * seconds] * 2


def test_a_time_that_falls_begins_a_run_of_iostat():
    head = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
    row = "sda              3.00    0.00     12.00      0.00      0.10    0.00    0.00   0.10\n"
    times = ("05:00", "05:05", "05:10", "01:00", "01:05")
    all_frames = frames(
        "".join(f"03/01/2024 10:{one}\n{head}{row}\n" for one in times), ImportOptions(first_report="keep")
    )
    assert [frame.dt_us / 1e6 for frame in all_frames] == [5, 5, 5, 5, 5]
    assert [len(frame.marks) for frame in all_frames] == [1, 0, 0, 0, 0]
    assert [frame.wall for frame in all_frames] == sorted(frame.wall for frame in all_frames)


def test_a_second_run_of_iostat_has_a_first_report_of_its_own():
    all_frames = frames(golden("iostat_x.txt") + golden("iostat_x.txt"))
    assert len(all_frames) == 6
    assert all(frame.kernel[Flow("loop0", "read")].count < 500 for frame in all_frames)
    assert [len(frame.marks) for frame in all_frames] == [0, 0, 0, 1, 0, 0]
    assert "another run of iostat begins" in all_frames[3].marks[0].text


def test_output_of_two_hosts_is_refused():
    text = golden("iostat_x.txt")
    with pytest.raises(RecordingError, match=r"line \d+: output of another host begins \(db2, before it vm\)"):
        frames(text + text.replace("(vm)", "(db2)"))


def test_solaris_wait_and_service_stay_apart(tmp_path):
    text = HEAD_OF_SOLARIS + 15 * (HEAD_OF_SOLARIS + ROW_OF_SOLARIS.format(wait=12.1, actv=3.0, w=100, b=100))
    asked = ImportOptions(interval_us=5_000_000)
    frame = frames(text, asked)[-1]
    done = frame.kernel[Flow("c0t0d0", "read")]
    assert (done.time_us, done.queue_us) == (500 * 100_000, 500 * 80_000)
    depths = frame.depths["c0t0d0"]
    assert depths.source == MEANS
    assert dict(depths.in_driver) == {3: 5000}
    assert dict(depths.queued) == {12: 4500, 13: 500}
    code, recording = imported(tmp_path, text, asked)
    summary = summarised(recording)
    device = summary["devices"]["c0t0d0"]
    kernel = device["ops"]["read"]["kernel"]
    assert (kernel["mean_us"], kernel["queue_mean_us"], kernel["driver_mean_us"]) == (100_000, 80_000, 20_000)
    assert device["outstanding"]["mean"] == 3
    assert device["outstanding"]["queued"] == {"mean": 12.1, "busy": 1.0}
    assert "time_share" not in device["outstanding"]  # a mean is no distribution
    assert not any("max" in output for output in sentences(summary.report.devices["c0t0d0"].outstanding))
    output = " ".join(render_text(summary.report).split())
    assert "mean 100 ms by the kernel's own clock: 80 ms queued above the driver + 20 ms in it" in output
    assert "in the driver: mean 3, any for 100% of the time" in output
    finding = only(summary["findings"])
    assert finding["id"] == "outstanding-ceiling"
    evidence = finding["evidence"]
    assert (evidence["mean"]["value"], evidence["driver_us"]["value"]) == (3.0, 20_000)
    assert "ceiling" not in evidence  # only a distribution shows it
    assert summary["host"]["kernel"] == "SunOS"
    assert code == EXIT_DONE


def test_aqu_sz_of_linux_is_a_mean_of_the_interval(tmp_path):
    code, recording = imported(tmp_path, golden("iostat_x.txt"))
    summary = summarised(recording)
    outstanding = summary["devices"]["loop0"]["outstanding"]
    assert (outstanding["source"], outstanding["mean"]) == (MEANS, pytest.approx(0.09, abs=0.02))
    assert "time_share" not in outstanding
    text = " ".join(render_text(summary.report).split())
    assert "outstanding, queued or in the driver: mean 0.0" in text
    assert "outstanding at the windows' ends" not in text
    assert summary["host"]["kernel"] == "unknown"
    assert code == EXIT_DONE


def test_a_busy_share_makes_a_mean_a_burst():
    text = HEAD_OF_SOLARIS + ROW_OF_SOLARIS.format(wait=0.0, actv=25.6, w=0, b=23)
    depths = only(frames(text)).depths["c0t0d0"]
    assert dict(depths.in_driver) == {0: 770, 111: 160, 112: 70}  # 25.6 / 0.23 = 111.3 at once
    assert dict(depths.queued) == {0: 1000}


def test_a_stuck_device_of_solaris_keeps_what_waits():
    row = "    0.0    0.0    0.0    0.0  5.0  3.0    0.0    0.0 100 100 c0t0d0\n"
    frame = frames(HEAD_OF_SOLARIS + row)[0]
    assert not frame.kernel
    assert (dict(frame.depths["c0t0d0"].in_driver), dict(frame.depths["c0t0d0"].queued)) == ({3: 1000}, {5: 1000})


def test_a_sum_with_an_unknown_part_is_unknown():
    assert Completed(1, 2, 30, 20) + Completed(1, 2, 50, 10) == Completed(2, 4, 80, 30)
    assert (Completed(1, 2, 30, 20) + Completed(1, 2, 50)).queue_us is None


# exact values, negative rows


@pytest.mark.parametrize("csv", [True, False])
def test_vscsistats_exact_values_are_kept(tmp_path, csv):
    text = VSCSI
    if not csv:
        text = text.replace("Frequency,Histogram Bucket Limit\n", "").replace(
            ",virtual machine", " for virtual machine"
        )
        for value in ("min", "max", "mean", "count"):
            text = text.replace(f"{value},", f" {value} : ")
        text = "".join(
            f"   {a}   ({'>' if b.startswith('>') else '<='}   {b.strip('>')})\n" if a.isdecimal() else f"{line}\n"
            for line in text.splitlines()
            for a, _, b in [line.partition(",")]
        )
    _, recording = imported(tmp_path, text)
    device = summarised(recording)["devices"]["scsi0:0"]
    latency = device["ops"]["other"]["latency_us"]
    assert (latency["mean"], latency["max"]) == (392, 51537)
    assert (device["outstanding"]["max"], device["outstanding"]["at_issue"]) == (3, {"1": 6, "2": 1, "3": 1})
    reported = [table["told"] for table in recording.origin.extra["imported"]["tables"]]
    assert {"min": 40, "max": 51537, "mean": 392, "count": 8} in reported
    assert {"min": 1, "max": 3, "mean": 2, "count": 8} in reported
    assert "min 1, max 3, mean 2" in " ".join(render_text(summarised(recording).report).split())


def test_a_negative_count_of_dtrace_is_named_and_incomplete(tmp_path, capsys):
    text = "lat_us\n" + table([(0, 0), (1, 8), (2, -4), (4, 0)])
    code, recording = imported(tmp_path, text)
    device = only(summarised(recording)["devices"].values())
    assert only(device["ops"].values())["latency_us"]["count"] == 8
    assert only(device["ops"].values())["count"] == 8
    assert code == EXIT_INCOMPLETE
    assert "1 rows with a count below 0 are left out (2: -4)" in capsys.readouterr().err


def test_times_below_0_of_dtrace_are_left_out_and_named(tmp_path, capsys):
    code, recording = imported(
        tmp_path, "lat_us\n" + table([(-8, 0), (-4, 3), (-2, 0), (-1, 1), (0, 0), (1, 8), (2, 0)])
    )
    text = "4 of 12 took less than 0 us, which is impossible"
    assert text in capsys.readouterr().err
    assert text in " ".join(render_text(summarised(recording).report).split())
    assert only(only(summarised(recording)["devices"].values())["ops"].values())["latency_us"]["count"] == 8
    assert code == EXIT_INCOMPLETE


# traces

PARTIAL = """  8,0    0        1     0.000000000   697  Q   R 4096 + 64 [dd]
  8,0    0        2     0.000010000   697  D   R 4096 + 64 [dd]
  8,0    0        3     0.001010000     0  C   R 4096 + 52 [0]
  8,0    0        4     0.090010000     0  C   R 4148 + 12 [0]
"""


def test_a_partial_completion_does_not_end_the_io():
    frame = only(frames(PARTIAL, ImportOptions(threshold_us=1000)))
    one = only(frame.outliers)
    assert (one.total_us, one.stages_us["hba"], one.sector, one.bytes) == (90_010, 90_000, 4096, 64 * 512)
    assert frame.seen[Flow("8:0", "read")].count == 1
    assert "1 completions of a part of a request" in frame.health.notice
    assert not frame.health.undecoded_lines


def test_partial_completions_of_a_real_trace():
    """scsi_debug with short transfers: of six reads of 32 KiB one completes in halves."""
    frame = only(frames(golden("blkparse_partial.txt"), ImportOptions(threshold_us=0)))
    assert [outlier.bytes for outlier in frame.outliers] == [32_768] * 6
    assert [outlier.sector for outlier in frame.outliers] == [0, 64, 128, 192, 256, 320]
    assert max(frame.outliers, key=lambda outlier: outlier.total_us).sector == 192


def test_a_retry_of_what_is_left_is_the_same_io():
    lines = PARTIAL.splitlines(keepends=True)
    retry = "  8,0    0        4     0.002010000   697  D   R 4148 + 12 [dd]\n"
    one = only(
        only(
            frames("".join([*lines[:3], retry, lines[3].replace("  4 ", "  5 ")]), ImportOptions(threshold_us=1000))
        ).outliers
    )
    assert (one.total_us, one.stages_us["hba"], one.bytes) == (90_010, 88_000, 64 * 512)


def test_a_rest_that_never_completes_is_outstanding_at_the_end():
    assert (
        "1 I/Os had not completed"
        in frames(BLKPARSE + "".join(PARTIAL.splitlines(keepends=True)[:3]).replace("8,0 ", "8,16"))[-1].health.notice
    )


def test_events_that_ftrace_lost_are_counted(tmp_path):
    asked = ImportOptions(events=("block_rq_issue", "block_rq_complete"), key="sector")
    code, recording = imported(tmp_path, golden("ftrace_lost.txt"), asked)
    summary = summarised(recording)
    assert summary["health"]["lost_events"] == 945 + 189
    assert "INCOMPLETE" in render_text(summary.report)
    assert code == EXIT_INCOMPLETE


@pytest.mark.parametrize("line", ["CPU:3 [LOST 7 EVENTS]", "CPU:3 [7 EVENTS DROPPED]", "CPU:3 [LOST EVENTS]"])
def test_no_pair_reaches_over_lost_events(line):
    begin, end = test_imports.FTRACE.splitlines()[1:3]
    later = [one.replace("58225.4", "58225.5") for one in (begin, end)]
    frame = only(frames("\n".join([begin, line, *later]) + "\n", PAIR))
    assert only(frame.histograms.values()).max == 3966
    assert frame.health.lost_events == (1 if "LOST EVENTS" in line else 7)
    assert "1 ib_cq_completion_softirq before lost events: not paired" in frame.health.notice


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (BPFTRACE + "Lost 12 events\n", 12),
        (BLKPARSE + "Skips: 3 forward (345 -   1.2%)\n", 345),
        (f"lat_us\n{table([(1, 5)])}\ndtrace: 5 aggregation drops on CPU 1\n", 5),
        (JSON_TABLE + '{"type": "lost_events", "data": {"events": 20}}\n', 20),
    ],
    ids=["bpftrace", "blkparse", "dtrace", "bpftrace-json"],
)  # fmt: skip
def test_what_other_tools_lost_is_counted(tmp_path, text, lost):
    code, recording = imported(tmp_path, text)
    assert summarised(recording)["health"]["lost_events"] == lost
    assert code == EXIT_INCOMPLETE


def ios(every):
    """The most I/Os of a window, of each way in which windows count them."""
    return (
        max((h.count for one in every for h in one.histograms.values()), default=0),
        max((done.count for one in every for done in (*one.kernel.values(), *one.seen.values())), default=0),
        max((sum(d.at_issue.values()) for one in every for d in one.depths.values()), default=0),
    )


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("fio", "iostat-json", "bpftrace-json")])
def test_two_runs_in_one_text_are_not_added_up(name):
    asked = ImportOptions(unit="us", events=PAIR.events if name == "ftrace" else None)
    text = {"blkparse": PARTIAL, "emlxsoverhead": f"TIMESTAMP  TOTAL(us) EMLXS(us)\n{EMLXS * 3}"}.get(
        name, SAMPLES[name]
    )
    once, twice = frames(text, asked, name), frames(text + text, asked, name)
    assert ios(twice) == ios(once)
    assert len(twice) >= 2 * len(once) - (name == "iostat")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (PARTIAL, ImportOptions()),
        (test_imports.FTRACE, PAIR),
        (SCSI, ImportOptions()),
        (f"Attaching 1 probe...\n{BPFTRACE}", US),
    ],
    ids=["blkparse", "ftrace", "scsi.d", "bpftrace"],
)
def test_a_second_run_has_a_mark_where_it_begins(text, asked):
    all_frames = frames(text + text, asked)
    assert [bool(frame.marks) for frame in all_frames] == [
        bool(at == len(all_frames) // 2) for at in range(len(all_frames))
    ]
    assert "another " in all_frames[len(all_frames) // 2].marks[0].text


@pytest.mark.parametrize("name", ["fio", "iostat-json"])
def test_two_documents_of_json_are_two_runs_and_text_around_them_is_none_of_theirs(name):
    once = frames(SAMPLES[name], US)
    document = SAMPLES[name].rstrip() + "\n"
    found = read(PROSE + document + PROSE + BPFTRACE + document + PROSE, US)
    all_frames = list(found.frames())
    assert len(all_frames) == 2 * len(once) + 1
    assert sum(bool(frame.marks) for frame in all_frames) == 1
    assert found.exit_code == EXIT_DONE
    assert len(found.left) == 3


@pytest.mark.parametrize("name", ["fio", "iostat-json"])
def test_a_document_that_is_cut_off_is_named(name):
    found = read(BPFTRACE + SAMPLES[name][: len(SAMPLES[name]) // 2], US)
    assert found.exit_code == EXIT_INCOMPLETE
    with pytest.raises(RecordingError, match=r"its JSON can't be read"):
        read(SAMPLES[name][: len(SAMPLES[name]) // 2], US)


# what looks like a distribution and is not in the recording


@pytest.mark.parametrize("unknown", [RANGES, EDGES, PERCENTILES], ids=["ranges", "edges", "fio"])
def test_an_unknown_distribution_beside_a_known_table_is_exit_4(tmp_path, capsys, unknown):
    code, recording = imported(tmp_path, PROSE + SOLARIS + PROSE + "\n" + unknown + PROSE)
    assert code == EXIT_INCOMPLETE
    begin = (PROSE + SOLARIS + PROSE + "\n").count("\n") + 1
    text = capsys.readouterr().err
    first, last = next(
        (int(words[0]), int(words[2]))
        for line in text.split("\n")
        if "look like a distribution" in line
        for words in [line.partition("lines ")[2].split()]
    )
    assert begin <= first < last == begin + unknown.count("\n") - 1
    assert f"lines {first} to {last} look like a distribution" in " ".join(
        render_text(summarised(recording).report).split()
    )


@pytest.mark.parametrize("unknown", [RANGES, EDGES, PERCENTILES, PROSE])
def test_nothing_taken_is_exit_5(tmp_path, unknown):
    with pytest.raises(RecordingError) as refused:
        imported(tmp_path, PROSE + unknown)
    assert refused.value.exit_code == EXIT_UNREADABLE
    assert not list(tmp_path.glob("*.gz"))


@pytest.mark.parametrize("name", SAMPLES)
def test_no_sample_of_a_known_tool_is_reported_as_incomplete(tmp_path, name):
    asked = ImportOptions(unit="us", events=PAIR.events if name == "ftrace" else None)
    code, _ = imported(tmp_path, PROSE + SAMPLES[name] if not SAMPLES[name].startswith("{") else SAMPLES[name], asked)
    assert code == EXIT_DONE


def test_columns_of_other_tools_are_no_distribution():
    text = BPFTRACE + (
        "procs -----------memory---------- ---swap-- -----io----\n"
        " r  b   swpd   free   buff  cache   si   so    bi    bo\n"
        " 1  0      0 123456  78900 456789    0    0     5    12\n"
        " 2  0      0 123400  78900 456789    0    0     5    12\n"
        " 3  0      0 123300  78900 456789    0    0     5    12\n"
        "12:00:01 1 2\n12:00:02 3 4\n12:00:03 5 6\n"
        "1. first\n2. second\n3. third\n"
    )
    assert read(text, US).exit_code == EXIT_DONE


DAMAGED = ["[4, 8)                 x |@@@@@@@@@@ ", "[4, 8)", "garbage", "\N{REPLACEMENT CHARACTER}7 |@@"]


@pytest.mark.parametrize("row", DAMAGED)
def test_a_damaged_row_leaves_out_the_whole_table_of_bpftrace(tmp_path, capsys, row):
    damaged = BPFTRACE.replace(BPFTRACE.splitlines()[3], row)
    code, recording = imported(tmp_path, OTHER + damaged)
    assert code == EXIT_INCOMPLETE
    assert {one for one, device in summarised(recording)["devices"].items() if device["ops"]} == {"us[sdb]"}
    assert "the table @us[sda] is damaged in line 10: all of it is left out" in capsys.readouterr().err
    with pytest.raises(RecordingError, match="damaged in line 4"):
        imported(tmp_path, damaged, name="alone")


def test_a_row_that_is_missing_leaves_out_the_table_of_bpftrace():
    lines = BPFTRACE.splitlines(keepends=True)
    found = read(OTHER + "".join(lines[:2] + lines[3:]), US)
    assert found.exit_code == EXIT_INCOMPLETE
    assert len(found.built.windows) == 1


@pytest.mark.parametrize("row", ["2 |@@x     6", "   2 |", "2 6x"])
def test_a_damaged_row_leaves_out_the_whole_table_of_dtrace(row):
    whole, damaged = (f"sd{n} lat_us\n{table([(0, 0), (1, 5), (2, 6), (4, 7), (8, 0)])}\n" for n in (0, 1))
    damaged = damaged.replace("2 |@@      6", row)
    found = read(whole + damaged, US)
    assert found.exit_code == EXIT_INCOMPLETE
    assert [only(window.tables.values()).table.count for window in found.built.windows] == [18]


def test_a_damaged_row_of_vscsistats_leaves_out_its_histogram():
    found = read(VSCSI.replace("2,500\n", "2;5x0\n"))
    assert found.exit_code == EXIT_INCOMPLETE
    assert [bool(window.tables) for window in found.built.windows] == [False]
    assert f"is damaged in line {VSCSI.splitlines().index('2,500') + 1}" in only(found.frames()).health.notice


IOSTAT_HEAD = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
IOSTAT_ROW = "{name}              {rate}    0.00     12.00      0.00      0.10    0.00    0.00   0.10\n"


@pytest.mark.parametrize(
    ("name", "line", "wrong"),
    [
        ("iostat_x.txt", 19, ("1524.00", "152x.00")),
        ("iostat.txt", 24, ("504.00", "504x00")),
        ("iostat_y.txt", 8, ("399.00", "39x.00")),
        ("bpftrace.txt", 13, ("2K", "xK")),
        ("blkparse_partial.txt", 7, ("5337175", "53x7175")),
    ],
)
def test_a_damaged_row_is_named_and_exit_4(tmp_path, capsys, name, line, wrong):
    lines = golden(name).splitlines(keepends=True)
    assert wrong[0] in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(*wrong)
    code, _ = imported(tmp_path, "".join(lines))
    assert code == EXIT_INCOMPLETE
    text = capsys.readouterr().err
    assert any(f"line {line}" in one and "not understood" not in one for one in text.splitlines())


def test_a_damaged_row_of_iostat_leaves_the_other_disks_of_its_report():
    lines = golden("iostat_x.txt").splitlines(keepends=True)
    lines[18] = lines[18].replace("1524.00", "152x.00")
    whole_frames, damaged = frames(golden("iostat_x.txt")), frames("".join(lines))
    assert [len(one.kernel) for one in damaged[1:]] == [len(frame.kernel) for frame in whole_frames[1:]]
    assert {flow.device for flow in whole_frames[0].kernel} - {flow.device for flow in damaged[0].kernel} == {"loop1"}


def test_a_report_with_a_damaged_row_is_not_idle():
    text = golden("iostat.txt").splitlines(keepends=True)
    text[23] = text[23].replace("504.00", "504x00")
    all_frames = frames("".join(text))
    assert len(all_frames) == len(frames(golden("iostat.txt"))) - 1
    assert all(sum(done.count for done in frame.kernel.values()) for frame in all_frames)


def test_a_disk_twice_in_a_report_of_iostat_is_exit_4():
    rows = IOSTAT_ROW.format(name="sda", rate="3.00") + IOSTAT_ROW.format(name="sda", rate="9.00")
    found = read(IOSTAT_HEAD + rows + "\n")
    assert found.exit_code == EXIT_INCOMPLETE
    frame = only(found.frames())
    assert "sda has another row in the same report" in frame.health.notice
    assert frame.kernel[Flow("sda", "read")].count == 3


def test_the_row_of_all_disks_is_left_out_beside_those_of_each():
    rows = [IOSTAT_ROW.format(name=name, rate="3.00") for name in ("sda", "sdb", "ALL")]
    beside, alone = read(IOSTAT_HEAD + "".join(rows) + "\n"), read(IOSTAT_HEAD + rows[2] + "\n")
    assert beside.exit_code == alone.exit_code == EXIT_DONE
    assert {flow.device for flow in only(beside.frames()).kernel} == {"sda", "sdb"}
    assert {flow.device for flow in only(alone.frames()).kernel} == {"ALL"}


@pytest.mark.parametrize("behind", ["", "\n"])
def test_prose_and_a_prompt_behind_a_report_of_iostat_are_no_damage(behind):
    text = golden("iostat_x.txt").rstrip("\n") + "\n" + behind
    assert read(text + PROSE).exit_code == EXIT_DONE
    assert read(text + "root@host:~# date\n").exit_code == EXIT_DONE


def test_a_column_that_is_missing_in_json_of_iostat_is_exit_4():
    text = golden("iostat_plain.json").replace('"tps": 400.00, ', "", 1)
    found = read(text)
    assert found.exit_code == EXIT_INCOMPLETE
    assert "the row of loop0 lacks tps" in next(found.frames()).health.notice


def test_a_damaged_label_of_dtrace_leaves_out_its_table_and_is_no_scalar():
    whole, damaged = (
        f"sd{n} lat_us\n"
        + HEAD
        + "".join(f"{label:>16} |@@@@@@@{'':34}5\n" for label in (32, 64, 128, 256, 512))
        + "\n"
        for n in (0, 1)
    )
    found = read(whole + damaged.replace(" 128 ", " x28 "), US)
    assert found.exit_code == EXIT_INCOMPLETE
    assert [only(window.tables.values()).table.count for window in found.built.windows] == [25]
    assert "a count, no latency" not in " ".join(frame.health.notice for frame in found.frames())


@pytest.mark.parametrize("missing", [64, 128, 256])
def test_a_row_that_is_missing_leaves_out_the_table_of_dtrace(missing):
    labels = (16, 32, 64, 128, 256, 512, 1024)
    found = read(f"a_us\n{table([(n, 5) for n in labels])}\nb_us\n{table([(n, 5) for n in labels if n != missing])}")
    assert found.exit_code == EXIT_INCOMPLETE
    assert [only(window.tables.values()).table.count for window in found.built.windows] == [35]


def test_a_row_of_dtrace_above_its_head_leaves_out_the_table():
    lines = table(BOUNDS).splitlines(keepends=True)
    found = read("".join([lines[1], lines[0], *lines[2:]]) + EMLXS, ImportOptions(unit="ms"))
    assert found.exit_code == EXIT_INCOMPLETE
    assert not any(
        "total" in key.stage and key.device != "emlxs" for frame in found.frames() for key in frame.histograms
    )


@pytest.mark.parametrize(
    ("good", "bad"),
    [("5,100\n", ""), ("5,100\n", "x,100\n"), ("max,51537", "max,5x537"), ("5,100\n", "4,100\n")],
    ids=["row deleted", "first row", "maximum", "another count"],
)
def test_a_damaged_histogram_of_vscsistats_is_left_out(good, bad):
    found = read(VSCSI.replace(good, bad))
    assert found.exit_code == EXIT_INCOMPLETE
    assert not any(window.tables for window in found.built.windows)
    assert [dict(depths.at_issue) for window in found.built.windows for depths in window.depths.values()]


def test_rows_of_vscsistats_without_a_title_look_like_a_distribution():
    text = VSCSI + PROSE + "Frequency,Histogram Bucket Limit\n100,100\n300,1000\n"
    assert read(VSCSI + PROSE).exit_code == EXIT_DONE
    assert read(text).exit_code == EXIT_INCOMPLETE


@pytest.mark.parametrize(
    ("text", "asked", "good", "bad"),
    [
        (test_imports.FTRACE + test_imports.FTRACE.replace(" 58225.", " 58227."), PAIR, "58225.458457", "58225.45x457"),
        (EMLXS * 2, ImportOptions(), "1238738", "12387x8"),
        (SCSI, ImportOptions(), "00001.8511 isp1:<-", "00001.8511 isp1;<-"),
        (SCSI, ImportOptions(), "Time 692700us", "Time 692x00us"),
    ],
)
def test_an_event_that_cannot_be_read_is_exit_4(text, asked, good, bad):
    assert read(text, asked).exit_code == EXIT_DONE
    assert read(text.replace(good, bad, 1), asked).exit_code == EXIT_INCOMPLETE


def test_messages_of_a_scheduler_in_blkparse_are_no_damage():
    message = "  8,0    1        0     0.004312042     0  m   N bfq3213 slice expired\n"
    found = read(PARTIAL + message)
    assert (found.exit_code, found.undecoded) == (EXIT_DONE, 0)


def test_absent_sequence_numbers_of_blkparse_are_named():
    notice = frames(PARTIAL.replace("  3     0.001010000", "  9     0.001010000").replace("  4  ", " 10  "))[
        -1
    ].health.notice
    assert "6 sequence numbers are absent" in notice


def test_a_damaged_line_of_bpftrace_json_is_exit_4():
    good = JSON_TABLE
    assert read(good + good.replace(', "count": 5}', ', "cou'), US).exit_code == EXIT_INCOMPLETE
    assert read(good, US).exit_code == EXIT_DONE
    assert read(good + '{"type": "hist", "data": {"@us": []}}\n', US).exit_code == EXIT_DONE


def test_a_bucket_that_is_missing_in_json_of_bpftrace_is_exit_4():
    text = golden("bpftrace.json")
    buckets = re.findall(r'\{"min": \d+, "max": \d+, "count": \d+\}, ', text)
    assert read(text, US).exit_code == EXIT_DONE
    assert read(text.replace(buckets[1], "", 1), US).exit_code == EXIT_INCOMPLETE


def test_a_damaged_row_of_latmons_own_lines_is_exit_4(tmp_path):
    _, recording = imported(tmp_path, OTHER)
    for write, good, bad in ((write_buckets, ",35,\n", ",x,\n"), (write_jsonl, '"n":[48]', '"n":["x"]')):
        out = tmp_path / "exported"
        with out.open("wb") as file:
            write(Source(recording), file, ExportOptions())
        text = out.read_text()
        assert read(text).exit_code == EXIT_DONE
        assert read(text.replace(good, bad) + text).exit_code == EXIT_INCOMPLETE


def test_a_table_of_dtrace_without_understood_rows_is_exit_4():
    assert read(f"sd0 lat_us\n{table([(1, 5)])}\nsd1\n{HEAD}  5 |@@ 1\n  3 |@@ 2\n", US).exit_code == EXIT_INCOMPLETE


def test_the_header_says_what_was_not_taken():
    found = read(SOLARIS + "\n" + EDGES)
    frame = next(found.frames())
    assert "look like a distribution" in frame.health.notice
    first, last = SOLARIS.count("\n") + 2, (SOLARIS + EDGES).count("\n") + 1
    assert only(found.unknown) == f"lines {first} to {last} look like a distribution of no known format: left out"
