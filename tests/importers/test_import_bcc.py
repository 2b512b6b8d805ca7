"""Histograms of bcc, libbpf-tools and perf-tools: units, ends of buckets, sections, prints and runs."""

import re

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.registry import import_command
from latmon.importers.values import ImportedTable, ImportOptions, Remark
from latmon.model.frame import Frame, Series
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError

NAMES = ("bcc_biolatency.txt", "bcc_runqlat.txt", "bcc_runqlat_pids.txt", "iolatency.txt")
ROW = re.compile(r"^ *\d+ -> \d+ *: (\d+)|'count': (\d+)", re.MULTILINE)


def golden(name):
    return (GOLDEN / name).read_text()


def tables(text):
    return [imported_table for imported_table in read(text).found if isinstance(imported_table, ImportedTable)]


def run(*rows, head="     usecs               : count     distribution"):
    return "\n".join([head, *(f"{low:>10} -> {high:<10} : {n:<8} |{'*' * n:<40}|" for low, high, n in rows), ""])


FIRST = run((0, 1, 5), (2, 3, 7), (4, 7, 1))


@pytest.mark.parametrize("name", NAMES)
def test_totals_are_the_sums_of_the_rows(name):
    text = golden(name)
    found = read(text)
    assert sum(h.count for frame in found.frames() for h in frame.histograms.values()) == sum(
        int(a or b) for a, b in ROW.findall(text)
    )
    assert found.exit_code == EXIT_DONE


def test_disks_flags_and_both_are_series():
    all_frames = frames(golden("bcc_biolatency.txt"))
    assert [sorted(frame.histograms) for frame in all_frames] == [
        [("sda", "other", "total"), ("sdb", "other", "total")],
        [("sda", "other", "total")],
        [("all disks", op, "total") for op in ("flush", "read", "write")],
        [("nvme0n1", "discard", "total"), ("nvme0n1", "read", "total")],
        [("all disks", "other", "total")],
        [("sda", "other", "total"), ("sdb", "other", "total")],
    ]
    write = all_frames[2].histograms[Series("all disks", "write", "total")]
    assert (write.count, write.max_bound // 1000) == (5 + 1 + 11 + 3, 8)  # Write and Sync-Write; msecs to 7 inclusive
    assert [len(frame.marks) for frame in all_frames] == [0, 0, 1, 1, 1, 0]


def test_times_of_day_go_over_midnight_and_a_date_sets_the_day():
    first, second, *_, last = frames(golden("bcc_biolatency.txt"))
    assert second.wall - first.wall == 1
    assert last.wall == 1_709_287_207


def test_the_printed_mean_is_exact():
    histogram = frames(golden("bcc_biolatency.txt"))[4].histograms[Series("all disks", "other", "total")]
    assert (histogram.count, histogram.sum) == (25, 6150)
    text = "# biolatency -e\n" + FIRST + "\navg = 3 usecs, total: 99 usecs, count: 99\n"
    assert only(only(frames(text)).histograms.values()).sum is None
    assert "the mean is of 99 values, and the tables above have 13" in only(frames(text)).health.notice


def test_a_run_queue_is_no_disk_and_each_interval_a_window():
    first, second = frames(golden("bcc_runqlat.txt"))
    assert list(first.histograms) == list(second.histograms) == [Series("run queue", "other", "resume")]


def test_the_end_of_a_bucket_of_iolatency_is_exclusive():
    rows = tables(golden("iolatency.txt"))[0].rows
    assert [(row.low, row.high) for row in rows[:3]] == [(0, 1), (1, 2), (2, 4)]
    assert [(row.low, row.high) for row in tables("# biolatency\n" + FIRST)[0].rows] == [(0, 2), (2, 4), (4, 8)]


@pytest.mark.parametrize(
    ("begin", "series"),
    [
        ("Tracing ext4 operation latency... Hit Ctrl-C to end.\n\noperation = 'fsync'\n", ("ext4", "flush", "total")),
        (
            "Tracing ext4 operation latency... Hit Ctrl-C to end.\n\noperation = 'open'\n",
            ("ext4 open", "other", "total"),
        ),
        ("# xfsdist-bpfcc 1 1\n\noperation = 'read'\n", ("xfs", "read", "total")),
        ("$ sudo /usr/share/bcc/tools/runqlat -P\n\npid = 4505 fio\n", ("run queue pid 4505 fio", "other", "resume")),
        ('Tracing 1 functions for "vfs_read"... Hit Ctrl-C to end.\n\n', ("vfs_read", "other", "total")),
        ("Tracing do_sys_open.  Hit Ctrl-C to exit\n\n", ("do_sys_open", "other", "total")),
        ("\n", ("table", "other", "total")),
    ],
)
def test_what_a_table_is_of(begin, series):
    assert only(only(frames(begin + FIRST)).histograms) == series


@pytest.mark.parametrize(
    "text",
    [
        "Tracing hard irq event time... Hit Ctrl-C to end.\n\nhardirq = b'eth0'\n" + FIRST,
        "Tracing block device I/O... Hit Ctrl-C to end.\n\nProcess Name = dd\n" + FIRST.replace("usecs", "Kbytes"),
    ],
)
def test_what_is_no_latency_is_named_and_left_out(text):
    found = read("# biolatency\n" + FIRST + text)
    assert only(h.count for frame in found.frames() for h in frame.histograms.values()) == 13
    assert any("no latency, left out" in remark.text for remark in found.found if isinstance(remark, Remark))
    assert found.exit_code == EXIT_DONE
    with pytest.raises(RecordingError):
        read(text)


@pytest.mark.parametrize("wrong", [("2 -> 3", "2 -> x"), ("2 -> 3", "2 -> 4"), (": 7", ": x7"), ("0 -> 1", "1 -> 1")])
def test_a_damaged_row_leaves_out_its_table(wrong):
    damaged = re.sub(re.escape(wrong[0]), wrong[1], FIRST, count=1)
    assert damaged != FIRST
    found = read("# biolatency\n" + FIRST + "\n" + damaged)
    assert found.exit_code == EXIT_INCOMPLETE
    assert only(h.count for frame in found.frames() for h in frame.histograms.values()) == 13


@pytest.mark.parametrize("wrong", ["'count': 75", "'interval-end': 63", "]"])
def test_a_damaged_dictionary_is_left_out(wrong):
    text = golden("bcc_biolatency.txt")
    lines = text.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith("{"))
    found = read("".join([*lines[:at], lines[at].replace(wrong, "x"), *lines[at + 1 :]]))
    assert found.exit_code == EXIT_INCOMPLETE
    assert [sum(h.count for h in frame.histograms.values()) for frame in found.frames()][-1] == 5


def test_lost_events_are_counted():
    found = read("# biolatency\n" + FIRST + "\nLost 7 events on CPU #3!\n")
    assert only(found.frames()).health.lost_events == 7
    assert found.exit_code == EXIT_INCOMPLETE


def test_unit_and_device_can_be_overruled():
    one = only(frames("# biolatency\n" + FIRST, ImportOptions(device="sdz", op="read", stage="hba")))
    assert only(one.histograms) == Series("sdz", "read", "hba")


def test_a_count_that_no_recording_can_have_leaves_out_its_table(tmp_path):
    source, out = tmp_path / "text", tmp_path / "out.latmon.jsonl.gz"
    source.write_text("# biolatency\n" + FIRST + "\n" + FIRST.replace(": 7 ", f": {10**20 - 1} "))
    assert import_command(source, out, ImportOptions()) == EXIT_INCOMPLETE
    assert [
        sum(h.count for h in frame.histograms.values()) for frame in open_recording(out) if isinstance(frame, Frame)
    ] == [13]


def test_a_window_that_no_recording_can_have_is_refused_before_anything_is_written(tmp_path):
    source, out = tmp_path / "text", tmp_path / "out.latmon.jsonl.gz"
    tables = (f"disk = '{disk}'\n{FIRST.replace(': 7 ', f': {2**52 - 20} ')}\n" for disk in ("sda", "sdb"))
    source.write_text("# biolatency\n" + "".join(tables))
    with pytest.raises(RecordingError, match="window 1 of 1 from text can't be recorded"):
        import_command(source, out, ImportOptions())
    assert not out.exists()


def test_a_hole_is_named_by_the_line_behind_it():
    lines = ("# biolatency\n" + FIRST + "\n" + FIRST).splitlines()
    gone = max(at for at, line in enumerate(lines) if "2 -> 3" in line)
    found = read("\n".join(lines[:gone] + lines[gone + 1 :]))
    assert any(f"is damaged in line {gone + 1}:" in remark.text for remark in found.found if isinstance(remark, Remark))


def test_tables_beside_funclatencys_are_not_taken_for_growing_ones():
    tool, more = "Tracing block device I/O... Hit Ctrl-C to end.\n", run((0, 1, 6), (2, 3, 9), (4, 7, 1))
    text = f"Tracing vfs_read.  Hit Ctrl-C to exit\n{FIRST}\n{tool}\n{FIRST}\n{more}"
    assert [table.count for table in tables(text)] == [13, 13, 16]
    assert [only(frame.histograms.values()).count for frame in frames(text)] == [13, 13, 16]
