"""Other tools' text as a recording: what each format takes, what is assumed, what is named as not understood."""

import gzip
import json
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from report_json import summarised

from latmon.cli.main import run as main
from latmon.exporters.latmon import write_buckets, write_jsonl
from latmon.exporters.registry import ExportOptions, Source
from latmon.importers.registry import import_command, origin, read_text
from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Flow, Frame, Origin, Series, Traced
from latmon.model.histogram import Histogram
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import EXIT_INCOMPLETE, EXIT_UNREADABLE, LatmonError, RecordingError, UsageError
from latmon.support.text import is_clean

GOLDEN = Path(__file__).resolve().parents[1] / "golden/imports"
NOTHING = ImportOptions()
HEAD = "value  ------------- Distribution ------------- count\n"
EMLXS = (
    "2016 Apr  7 12:13:04 1238999          1238914          3                6                1238738          165\n"
)


def table(rows, head=HEAD):
    return head + "".join(f"{label} |@@      {n}\n" for label, n in rows)


STRIPPED = dict(
    zip(
        [-1, 0, *(1 << n for n in range(11))],
        [0, 59, 116, 270, 353, 505, 447, 419, 120, 38, 14, 1, 0],
        strict=True,
    )
)
INDENTED = dict(
    zip([-1, 0, *(1 << n for n in range(12))], [0, 11145, 2856, 1017, 166, 6, 2, 4, 29, 4, 0, 0, 1, 0], strict=True)
)
POWERS = [-1, 0, *(1 << n for n in range(21))]
SLOW = [0, 40, 9, 6, 17, 23, 6, 36, 15407, 361660, *[0] * 11, 302, 0]
BOUNDS = [("< 60000", 377204), *((n * 60000, 0) for n in range(1, 8)), (480000, 2), (540000, 300), (">= 600000", 0)]
SCSI = (
    "00000.8442 isp1:-> 0\u00d72a (WRITE(10)) address 06:00, lba 0\u00d7143a76e, len 0\u00d7000002, control 0\u00d700\n"
    "00000.8503 isp1:<- 0\u00d72a (WRITE(10)) address 06:00, lba 0\u00d7143a76e, len 0\u00d7000002, control 0\u00d700,"
    " reason 0\u00d70 (COMPLETED) state 0\u00d75f Time 6084us\n"
    "00001.8511 isp1:<- 0x28 (READ(10)) address 06:00, lba 0x143a76e, len 0x000002, control 0x00 timeout 60,"
    " reason 0x0 (COMPLETED) state 0x5f Time 692700us\n"
)
TASKQ = """module: unix                            instance: 0
name:   qlc_0_comp_thd                  class:    taskq
crtime                          1453.363526517
executed                        0
maxtasks                        8
nactive                         8
priority                        99
tasks                           8
threads                         8
totaltime                       0
"""
SOLARIS = """Thu Apr  7 12:13:04 2016
                    extended device statistics
    r/s    w/s   kr/s   kw/s wait actv wsvc_t asvc_t  %w  %b device
    0.4    0.5    5.3   23.9  0.0  0.0    0.1    6.4   0   0 c0t0d0
Thu Apr  7 12:13:05 2016
                    extended device statistics
    r/s    w/s   kr/s   kw/s wait actv wsvc_t asvc_t  %w  %b device
  100.0   50.0  800.0  400.0 12.0  3.0   80.0   20.0   0 100 c0t0d0
"""
VSCSI = """Histogram: IO lengths of commands,virtual machine worldGroupID,2099979,virtual disk handleID,8200,(scsi0:0)
min,512
max,4096
mean,2000
count,8
Frequency,Histogram Bucket Limit
8,4096
Histogram: latency of IOs in Microseconds (us),virtual machine worldGroupID,2099979,virtual disk handleID,8200,(scsi0:0)
min,40
max,51537
mean,392
count,8
Frequency,Histogram Bucket Limit
5,100
2,500
1,>100000
Histogram: number of outstanding IOs,virtual machine worldGroupID,2099979,virtual disk handleID,8200,(scsi0:0)
min,1
max,3
mean,2
count,8
Frequency,Histogram Bucket Limit
6,1
1,2
1,4
"""
BLKPARSE = """  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002197   697  P   N [kjournald]
  8,0    3        5     0.000008770   697  D   W 223490 + 8 [kjournald]
  8,0    1        1     0.001100000     0  C   W 223490 + 8 [0]
  8,0    1        2     1.500000000   700  Q  RA 4096 + 16 [dd]
  8,0    1        3     1.500010000   700  D  RA 4096 + 16 [dd]
  8,0    1        4     1.750010000     0  C  RA 4096 + 16 [0]
  8,0    1        5     1.800010000     0  C  WS 99 + 16 [0]
  8,0    1        6     1.900010000     0  C  FN 0 + 0 [0]
"""
FTRACE = """# tracer: function
          <idle>-0     [003] d.h.  58225.458457: ib_cq_completion_softirq <-irdma_process_cq
          <idle>-0     [003] ..s.  58225.462423: nvme_rdma_send_done <-__ib_process_cq
             fio-2134  [001] 58226.000100: block_rq_issue:       8,0 WS 4096 () 2048 + 8 [fio]
          <idle>-0     [001] 58226.000400: block_rq_complete:    8,0 WS () 2048 + 8 [0]
"""
PAIR = ImportOptions(events=("ib_cq_completion_softirq", "nvme_rdma_send_done"))


def read(text, asked=NOTHING, name="", raw=None):
    return read_text(text.encode() if raw is None else raw, "text", asked, name)


def frames(text, asked=NOTHING, name=""):
    return list(read(text, asked, name).frames())


def only(found):
    (one,) = found
    return one


def counts_of(found):
    return [h.count for frame in found.frames() for h in frame.histograms.values()]


def remarks(found):
    return [remark for remark in found.found if isinstance(remark, Remark)]


def counts(every):
    return [only(one.histograms.values()).count for one in every]


def test_a_row_of_seven_columns_is_an_io_with_its_stages():
    frame = only(frames(f"TIMESTAMP  TOTAL(us) EMLXS(us)\n[...truncated...]\n{EMLXS * 8}[...truncated...]\n"))
    assert len(frame.outliers) == 8
    outlier = frame.outliers[0]
    assert dict(outlier.stages_us) == {"queue": 3, "hba": 85, "irq": 6, "completion": 1238738 + 165}
    assert (outlier.total_us, outlier.unaccounted_us, outlier.wall) == (1238999, 2, 1460031184.0)
    assert frame.histograms[Series("emlxs", "other", "hba")].max == 85
    assert not frame.health.undecoded_lines


def test_identical_rows_are_folded_in_the_report(tmp_path):
    (tmp_path / "text").write_text(EMLXS * 8)
    import_command(tmp_path / "text", tmp_path / "out", ImportOptions())
    assert only(summarised(open_recording(tmp_path / "out"))["outliers"])["repeats"] == 8


def test_stripped_and_indented_tables_keep_their_counts_and_their_highest_bucket():
    script = "@[caller] = quantize((timestamp - self->t)/1000000) ;\n"
    text = (
        f"{script}\nunix`swtch+0x165 resume 4\n{table(STRIPPED.items())}\nprose\nresume(ms)\n{table(INDENTED.items())}"
    )
    first, second = frames(text)
    one, other = only(first.histograms.values()), only(second.histograms.values())
    assert (one.count, other.count) == (2342, 15230)
    assert [series.stage for series in (*first.histograms, *second.histograms)] == ["resume", "resume"]
    assert 512_000 < one.max_bound <= 2 * 1_024_000
    assert 1_024_000 < other.max_bound <= 2 * 2_048_000
    slow = sum(n for index, n in other.buckets if index > 16)  # buckets of a power of two: from 64 ms on
    assert slow == 29 + 4 + 1
    assert (one.bits, one.sum, one.max) == (0, None, None)


def test_two_tables_of_the_same_ios_count_once_and_the_other_is_kept_as_it_was():
    key = "6597960853440\n"
    text = f"the times are milliseconds:\n{key}{table(BOUNDS)}{key}{table(zip(POWERS, SLOW, strict=True))}"
    found = read(text)
    frame = only(found.frames())
    assert only(frame.histograms) == Series("device1", "other", "total")
    assert only(frame.histograms.values()).count == 377_506
    kept = {table["kind"]: dict(table["rows"]) for table in origin(found, frame).extra["imported"]["tables"]}
    assert kept["lquantize"] == {str(label): n for label, n in BOUNDS}
    assert sum(kept["lquantize"].values()) == sum(kept["quantize"].values()) == 377_506
    assert kept["lquantize"]["480000"] + kept["lquantize"]["540000"] == kept["quantize"]["524288"] == 302
    assert "counted once" in frame.health.notice


def test_a_unit_that_is_reported_nowhere_is_asked_for():
    with pytest.raises(UsageError, match=r"line 1 .*--unit"):
        frames(f"key\n{table([(1, 5)])}")
    assert counts(frames(f"key\n{table([(1, 5)])}", ImportOptions(unit="ns"))) == [5]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (f"key\n{table([(512, 5)])}    (ms)\n", "ms"),
        (f"@[x] = quantize((timestamp - s[arg0]) / 1000);\n\nkey\n{table([(512, 5)])}", "us"),
        (f"@ = quantize(timestamp - self->ts);\n\nkey\n{table([(512, 5)])}", "ns"),
        (f"lat_us\n{table([(512, 5)])}", "us"),
    ],
    ids=["behind it", "script", "script in ns", "title"],
)
def test_where_a_unit_is_reported(text, unit):
    assert only(read(text).built.units)[0] == unit


@pytest.mark.parametrize(
    "text",
    [
        f"lat_us\n{table([(512, 5)])}",
        "     usecs    : count    distribution\n    0 -> 1    : 0        |    |\n    2 -> 3    : 5        |****|\n",
        "@us:\n[256, 512)  5 |@|\n",
    ],
    ids=["title", "head", "key"],
)
def test_an_option_does_not_replace_the_unit_that_a_table_names(text):
    """A ticket with a table without a unit made every other one 1,000 times as slow."""
    assert [unit for unit, _ in read(text, ImportOptions(unit="ms")).built.units] == ["us"]


def test_an_option_replaces_a_unit_of_the_words_around_a_table():
    text = f"key\n{table([(512, 5)])}    (ms)\n"
    assert [unit for unit, _ in read(text, ImportOptions(unit="us")).built.units] == ["us"]


def test_rows_without_bars_and_with_hard_ends_are_read():
    text = table([(1, 5), (2, 6)]).replace("|@@", "").replace("\n", "\r\n")
    assert counts(frames(text, ImportOptions(unit="us"))) == [11]


def test_times_between_tables_are_walls():
    tick = f"2016 Apr  7 12:13:0{{}}\n\nsd0\n{table([(1, 5)])}\n"
    first, second = frames(tick.format(4) + tick.format(7), ImportOptions(unit="ms"))
    assert (second.wall - first.wall, second.mono_us - first.mono_us, second.dt_us) == (3.0, 3_000_000, 3_000_000)


def test_a_row_below_0_is_left_out_and_a_row_above_stays_what_it_is():
    found = read(table([("< 0", 1), (0, 2), (100, 3), (">= 200", 4)]), ImportOptions(unit="us"))
    frame = only(found.frames())
    assert only(frame.histograms.values()).count == 9
    assert found.exit_code == EXIT_INCOMPLETE
    assert "1 of 10 took less than 0 us, which is impossible" in frame.health.notice
    assert "4 of 200 or more: how much more is not known" in frame.health.notice


def test_bpftrace_as_text_and_as_json():
    text, lines = ((GOLDEN / f"bpftrace.{kind}").read_text() for kind in ("txt", "json"))
    by_text, by_json = (frames(one, ImportOptions(unit="us")) for one in (text, lines))
    assert [sum(one.histograms[key].count for key in one.histograms) for one in by_text] == [1488, 1918, 6349]
    assert [sum(one.histograms[key].count for key in one.histograms) for one in by_json] == [1533, 2057, 6680]
    assert {key.device for one in by_text for key in one.histograms} == {"7:1", "254:0", "l"}
    assert by_text[1].wall - by_text[0].wall == 1


def test_a_stack_in_the_key_of_bpftrace_is_named_by_its_innermost_functions():
    text = (GOLDEN / "bpftrace_stacks.txt").read_text()
    frame = only(frames(text, ImportOptions(unit="us")))
    rows = re.findall(r"^[\[(].*?\s(\d+) \|", text, re.MULTILINE)
    assert sum(h.count for h in frame.histograms.values()) == sum(map(int, rows))
    assert len(frame.histograms) == text.count("]: \n")
    assert sum("__schedule+1560 < schedule+35 <" in key.device for key in frame.histograms) > 1
    assert not frame.health.undecoded_lines
    scalar = "@st[\n    schedule+35\n    io_schedule+9\n, dd]: count 1, average 18, total 18\n"
    found = read(text + scalar, ImportOptions(unit="us"))
    assert counts_of(found) == counts_of(read(text, ImportOptions(unit="us")))
    assert "@st[schedule+35 < io_schedule+9, dd]: a single value" in " ".join(remark.text for remark in remarks(found))


def test_the_edges_of_old_bpftrace():
    table = "@us:\n[0, 1]   5 |@@|\n[2, 4)   7 |@@|\n"
    lhist = "@lat_us:\n(...,0]  1 |@@|\n[0, 200) 66 |@@|\n[200,...)  3 |@@|\n"
    one = only(only(frames(table)).histograms.values())
    assert (one.count, one.max_bound) == (12, 4)
    assert only(only(frames(lhist)).histograms.values()).count == 69, "without the row that is below 0"


@pytest.mark.parametrize(
    ("bucket", "index"),
    [("[7]", 7), ("[16, 18)", 16), ("[96, 104)", 36), ("[1K, 2K)", 63)],
)
def test_edges_of_bpftrace_are_taken_from_the_line(bucket, index):
    frame = only(frames(f"@h[sda, W]:\n{bucket}   3 |@@|\n", ImportOptions(unit="us")))
    series, one = only(frame.histograms.items())
    assert (series.op, one.count) == ("write", 3)
    if index != 63:
        assert one.buckets == ((index, 3),)


def test_fio():
    frame = only(frames((GOLDEN / "fio.json").read_text()))
    reported = json.loads((GOLDEN / "fio.json").read_text())["jobs"][0]
    for op in ("read", "write"):
        histogram = frame.histograms[Series("rr", op, "total")]
        assert histogram.count == reported[op]["total_ios"] == frame.seen[Flow("rr", op)].count
        assert histogram.max == reported[op]["clat_ns"]["max"] // 1000
        assert histogram.mean == pytest.approx(reported[op]["clat_ns"]["mean"] / 1000, abs=0.01)


def test_fio_without_bins_has_its_exact_means_and_says_what_to_do():
    reported = json.loads((GOLDEN / "fio_means.json").read_text())["jobs"][0]
    frame = only(frames((GOLDEN / "fio_means.json").read_text()))
    assert not frame.histograms
    for op in ("read", "write"):
        done = frame.kernel[Flow("rr", op)]
        assert (done.count, done.bytes) == (reported[op]["total_ios"], reported[op]["io_bytes"])
        assert done.time_us == pytest.approx(done.count * reported[op]["lat_ns"]["mean"] / 1000, abs=1)
    assert "run fio with json+; the longest took 14,347 us" in frame.health.notice


def test_what_fio_prints_for_people_is_of_the_same_ios():
    found = read((GOLDEN / "fio_normal.txt").read_text())
    assert only(only(found.frames()).histograms.values()).count == 2159
    assert (found.exit_code, found.left) == (0, [])


def test_iostat_of_linux_by_its_columns():
    all_frames = frames((GOLDEN / "iostat.txt").read_text())
    assert len(all_frames) == 3
    assert all(400 < frame.kernel[Flow("vda", "read")].count < 600 for frame in all_frames[:2])
    assert frames((GOLDEN / "iostat.json").read_text())[0].kernel[Flow("vda", "write")].count == 1


def test_iostat_of_solaris_reports_the_response_and_both_queues():
    frame = only(frames(SOLARIS))
    done = frame.kernel[Flow("c0t0d0", "read")]
    assert (done.count, done.bytes, done.time_us) == (100, 800 * 1024, 100 * 100_000)
    assert (frame.outstanding["c0t0d0"].in_driver, frame.outstanding["c0t0d0"].queued) == (3, 12)
    assert not frame.histograms


def test_task_queues():
    one = only(only(frames(TASKQ)).taskqs)
    assert (one.name, one.threads, one.priority, one.active, one.loops) == ("qlc_0_comp_thd", 8, 99, 8, True)
    pairs = "".join(f"unix:0:q:{k}\t{v}\n" for k, v in (line.split() for line in TASKQ.splitlines()[3:]))
    assert only(only(frames(pairs)).taskqs).threads == 8


def test_scsi_d_lines():
    first, second = frames(SCSI)
    assert first.histograms[Series("isp1 06:00", "write", "total")].sum == 6084
    slow = only(second.outliers)
    assert (slow.op, slow.total_us, slow.sector, slow.bytes) == ("read", 692_700, 0x143A76E, 1024)


def test_vscsistats():
    frame = only(frames(VSCSI))
    assert only(frame.histograms.values()).count == 8
    assert only(frame.histograms.values()).max == 51537
    assert dict(frame.depths["scsi0:0"].at_issue) == {1: 6, 2: 1, 3: 1}
    assert "IO lengths of commands (scsi0:0): no latency, left out" in frame.health.notice


def test_blkparse_pairs_by_sector_and_names_what_has_no_other_half():
    first, second = frames(BLKPARSE)
    assert first.histograms[Series("8:0", "write", "total")].sum == 1100
    assert first.histograms[Series("8:0", "write", "queue")].sum == 8
    assert second.histograms[Series("8:0", "read", "hba")].sum == 250_000
    assert only(second.outliers).comm == "dd"
    assert "1 completions without an issue" in second.health.notice
    assert first.health.undecoded_lines == 2


def test_two_events_of_a_trace():
    one = only(only(frames(FTRACE, PAIR)).histograms.values())
    assert (one.count, one.sum, one.max) == (1, 3966, 3966)
    keyed = ImportOptions(events=("block_rq_issue", "block_rq_complete"), key="sector")
    assert only(frames(FTRACE, keyed)).histograms[Series("8:0", "write", "total")].sum == 300
    assert only(frames(FTRACE)).histograms == only(frames(FTRACE, keyed)).histograms
    with pytest.raises(RecordingError, match="2 lines of a trace need --events") as refused:
        frames("".join(FTRACE.splitlines(keepends=True)[:3]))
    assert refused.value.exit_code == EXIT_UNREADABLE


def test_lost_ends_of_lines():
    frame = only(frames("sd2 1 sd0 70\n"))
    assert {name: one.most for name, one in frame.depths.items()} == {"sd2": 1, "sd0": 70}


def test_a_document_of_several_kinds_names_the_rest_by_line():
    found = read(
        f"Prose \u201chere\u201d\n\n{EMLXS}\nmore\n\nresume(ms)\n{table(INDENTED.items())}\n{TASKQ}", ImportOptions()
    )
    assert [one.name for one in found.chosen] == ["dtrace", "emlxsoverhead", "taskq"]
    assert list(found.left) == [1, 5]
    assert next(found.frames()).health.undecoded_lines == 2


def test_all_of_it_may_be_reported_by_the_user():
    asked = ImportOptions(unit="us", device="sda", op="write", stage="hba", start=1e9, interval_us=5_000_000)
    frame = only(frames(table([(1, 5)]), asked))
    assert only(frame.histograms) == Series("sda", "write", "hba")
    assert (frame.wall, frame.dt_us) == (1e9 + 5, 5_000_000)


DATED = "2024 Mar  1 10:0{0}:{1:02}\n"


@pytest.mark.parametrize(
    ("times", "asked", "lengths", "assumed"),
    [
        (("",), ImportOptions(unit="us"), [1], "1 of 1 window is taken as 1 s long"),
        (("",), ImportOptions(unit="us", interval_us=60_000_000, has_interval=True), [60], ""),
        ((DATED.format(0, 9),), ImportOptions(unit="us"), [1], "1 of 1 window is taken as 1 s long"),
        ((DATED.format(0, 9), DATED.format(0, 19)), ImportOptions(unit="us"), [10, 10], ""),
        (tuple(DATED.format(n, 9) for n in (0, 5)), ImportOptions(unit="us"), [1, 1], "2 of 2 windows are taken as"),
        (
            (*(DATED.format(0, n) for n in (9, 19, 29)), DATED.format(5, 9)),
            ImportOptions(unit="us"), [10, 10, 10, 10], "",
        ),
    ],
)  # fmt: skip
def test_a_length_that_the_text_does_not_have_is_that_of_the_others_or_an_assumption(times, asked, lengths, assumed):
    found = read("".join(f"{time}\nsd0\n{table([(1, 5)])}\n" for time in times), asked)
    frames = list(found.frames())
    assert [frame.dt_us / 1e6 for frame in frames] == lengths
    given_origin = origin(found, frames[0])
    assert given_origin.assumed_length.startswith(assumed)
    assert bool(given_origin.assumed_length) == bool(assumed)
    assert not assumed or "taken as" in given_origin.reason


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "empty"),
        (b"\x7fELF\0\0\1", "NUL"),
        (b"\xff\xfev", "damaged UTF-16"),
        (b"\x1f\x8bxx", "damaged gzip"),
        (gzip.compress(b"sda 1\n" * 99)[:-9], "damaged gzip"),
        (gzip.compress(b"x" * (32 << 20) + b"x"), "unpacked is larger than 32 MiB.*split -C"),
        ((GOLDEN.parent / "recordings/procfs.latmon.jsonl.gz").read_bytes(), "needs no import: latmon report"),
        (b"x" * (1 << 20) + b"x", "characters"),
        (b"prose\n", "--from"),
        (b"\n" * 500_000 + b"x", "lines"),
        (b"".join(b"@us[%d]:\n[1, 2)  5 |@|\n" % n for n in range(5000)), "devices or series"),
        (b'{"fio version": "x", "jobs": ' + b"[" * 9000, "nested|read"),
        (b'{"fio version": NaN}', "read"),
    ],
    ids=[
        *("empty", "binary", "utf-16", "gzip", "short gzip", "large gzip", "recording"),
        *("a long line", "prose", "many lines", "many tables", "deep", "nan"),
    ],
)
def test_what_is_no_text_of_a_tool_is_refused_in_a_sentence(raw, why):
    with pytest.raises(RecordingError, match=why):
        read("", raw=raw)


def test_what_a_terminal_was_reported_never_comes_through():
    text = f"\x1b]0;x\x07\x1b[31mresume\x1b[0m(ms)\n{table([(1, 5)])}\x9b31m\n"
    found = read(text)
    frame = only(found.frames())
    assert all(is_clean(part) for part in (*only(frame.histograms), frame.health.notice, origin(found, frame).reason))


SAMPLES = {
    "dtrace": f"the times are milliseconds:\nx\n{table(BOUNDS)}x\n{table(zip(POWERS, SLOW, strict=True))}",
    "emlxsoverhead": EMLXS * 3,
    "scsi.d": SCSI,
    "taskq": TASKQ,
    "iostat": SOLARIS,
    "vscsistats": VSCSI,
    "blkparse": BLKPARSE,
    "ftrace": FTRACE,
    "max_sd": "sd2 1 sd0 70\n",
    **{name: (GOLDEN / path).read_text() for name, path in (
        ("bpftrace", "bpftrace.txt"), ("bpftrace-json", "bpftrace.json"), ("fio", "fio.json"),
        ("iostat-json", "iostat.json"),
    )},
}  # fmt: skip


def mutated(text, draw):
    data = list(text)
    for _ in range(draw.randrange(1, 6)):
        at, length = draw.randrange(len(data) + 1), draw.choice((0, 1, 1, 3, 40))
        data[at : at + length] = draw.choice(
            ("", "x", "\n", " ", "\x1b[", "9" * 19, "-", "|", "\u2588", "\r", "\t", ",", "{", '"', "1e999", "\0"[:0])
        )
    return "".join(data)


def fuzz(name, number):
    draw = random.Random(number)
    asked = ImportOptions(
        unit="ms", events=("ib_cq_completion_softirq", "nvme_rdma_send_done") if name == "ftrace" else None
    )
    try:
        found = read(mutated(SAMPLES[name], draw), asked, name)
        frames = list(found.frames())
    except LatmonError:
        return
    origin(found, frames[0])
    assert all(later.mono_us >= earlier.mono_us for earlier, later in pairwise(frames))
    for frame in frames:
        assert all(is_clean(part) for series in frame.histograms for part in series)


@pytest.mark.parametrize("name", SAMPLES)
def test_mutated_samples_never_raise_but_in_a_sentence(name):
    for number in range(15):
        fuzz(name, number)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_many_mutated_samples(name):
    for number in range(10_000):
        fuzz(name, number)


@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_export_and_import_keep_counts(tmp_path, to):
    source = tmp_path / "text"
    source.write_text(f"{SAMPLES['dtrace']}\nprose\n{EMLXS * 3}")
    import_command(source, tmp_path / "a", ImportOptions())
    exported = tmp_path / f"b.{to}"
    with exported.open("wb") as out:
        if to == "csv":
            write_buckets(Source(open_recording(tmp_path / "a")), out, ExportOptions())
        else:
            write_jsonl(Source(open_recording(tmp_path / "a")), out, ExportOptions())
    import_command(exported, tmp_path / "c", ImportOptions())
    before, after = (
        [
            {key: (histogram.bits, histogram.buckets) for key, histogram in item.histograms.items()}
            for item in open_recording(tmp_path / name)
            if hasattr(item, "histograms")
        ]
        for name in ("a", "c")
    )
    assert before == after
    assert sum(map(len, before)) == 6


HELD = ("irq", "softirq", "completion")


def test_what_a_stage_includes_survives_an_export_to_csv(tmp_path):
    hba = {Series("sda", "read", stage): Histogram.record([90, 120]) for stage in ("hba", "total")}
    origin = Origin(
        "bpftrace", "box", "6.1", "0.1.0", tier="A", start_mono_us=19_000_000, measured={"hba": HELD, "total": ()}
    )
    writer = Writer.create(tmp_path / "a", origin)
    traced = Traced(hba, one_in=1, includes={"hba": ("irq",)})
    writer.append(Frame(0, 1.7e9, 20_000_000, 1_000_000, hba, traced=traced))
    writer.append(Frame(1, 1.7e9 + 1, 21_000_000, 1_000_000, hba))
    writer.close("asked")
    with (tmp_path / "b.csv").open("wb") as out:
        write_buckets(Source(open_recording(tmp_path / "a")), out, ExportOptions())
    text = (tmp_path / "b.csv").read_text()
    assert ",hba,88,96,1,irq softirq completion\n" in text
    assert ",traced.hba,88,96,1,irq\n" in text
    import_command(tmp_path / "b.csv", tmp_path / "c", ImportOptions())
    back = open_recording(tmp_path / "c")
    assert back.origin.measured["hba"] == HELD
    assert next(iter(back)).traced.includes == {"hba": ("irq",)}
    # a file of an earlier release has no such column
    (tmp_path / "d.csv").write_text("\n".join(line.rpartition(",")[0] for line in text.splitlines()))
    import_command(tmp_path / "d.csv", tmp_path / "e", ImportOptions())
    old = open_recording(tmp_path / "e")
    assert old.origin.measured["hba"] == ()
    reported = [[dict(frame.histograms) for frame in each if isinstance(frame, Frame)] for each in (old, back)]
    assert reported[0] == reported[1]
    assert [histograms_by_series.keys() for histograms_by_series in reported[0]] == [hba.keys(), hba.keys()]


def test_a_threshold_of_zero_lists_every_io(tmp_path):
    counts = []
    for threshold in ("0", "1h"):
        out = tmp_path / threshold
        main(["import", str(GOLDEN / "blkparse_partial.txt"), "-o", str(out), "--threshold", threshold])
        counts.append(sum(len(frame.outliers) for frame in open_recording(out) if isinstance(frame, Frame)))
    assert counts[0] > counts[1] == 0
