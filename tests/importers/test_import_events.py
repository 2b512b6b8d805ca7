"""Tables with a row for each I/O, and single lines of an I/O: columns, runs, thresholds, damaged rows."""

import re

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Flow, Series
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError


def golden(name):
    return (GOLDEN / name).read_text()


DISKS, FILES = ((GOLDEN / f"events_{name}.txt").read_text() for name in ("disks", "files"))
ALL = ImportOptions(threshold_us=0)


def remarks(text):
    return [remark.text for remark in read(text).found if isinstance(remark, Remark)]


@pytest.mark.parametrize(("text", "rows"), [(DISKS, 10), (FILES, 11)])
def test_each_row_is_an_io(text, rows):
    found = read(text)
    whole = [h for frame in found.frames() for key, h in frame.histograms.items() if key.stage in ("total", "resume")]
    assert sum(h.count for h in whole) == rows
    assert found.exit_code == EXIT_DONE


def test_the_wait_in_the_queue_and_the_latency_of_the_disk_stay_apart():
    one = only(outlier for frame in frames(DISKS) for outlier in frame.outliers)
    assert (one.total_us, dict(one.stages_us), one.unaccounted_us) == (215_830, {"queue": 3750, "hba": 212_080}, 0)
    assert (one.comm, one.pid, one.device, one.op) == ("Web Content", 4711, "sda", "read")
    assert (one.sector, one.bytes) == (2048, 4096)


def test_without_a_queue_there_is_no_stage():
    outlier = frames(DISKS, ALL)[-1].outliers[0]
    assert (dict(outlier.stages_us), outlier.unaccounted_us, outlier.total_us) == ({}, 620, 620)
    assert (outlier.device, outlier.op) == ("202:1", "write")


def test_rows_in_another_order_stay_in_their_second_and_a_new_head_is_another_run():
    all_frames = frames(DISKS)
    assert [frame.wall for frame in all_frames] == [1, 2, 3, 1, 5_982_801]
    assert [len(frame.marks) for frame in all_frames] == [0, 0, 0, 1, 1]
    assert [sum(done.count for done in frame.seen.values()) for frame in all_frames] == [3, 2, 1, 2, 2]


def test_a_time_that_falls_is_another_run():
    row = "{}    fio            5120    sda     R    4112       4096    0.350\n"
    head = "TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES     LAT(ms)\n"
    all_frames = frames(head + row.format("7.500000") + row.format("0.250000"))
    assert [len(frame.marks) for frame in all_frames] == [0, 1]


def test_a_table_of_slow_operations_lists_all_of_them_and_says_so():
    assert [len(frame.outliers) for frame in frames(FILES)] == [2, 1, 1, 2, 1, 1, 1, 0, 0]
    assert "the table below has only what took longer than 1 ms" in remarks(FILES)
    outlier = frames(FILES)[0].outliers[0]
    assert (outlier.device, outlier.op, outlier.total_us, outlier.path) == ("ext4", "flush", 836_200, "file pg wal")


def test_what_a_tool_traces_names_the_device():
    devices = [sorted({key.device for key in frame.histograms}) for frame in frames(FILES)]
    assert devices == [
        ["ext4"],
        ["ext4"],
        ["ext4"],
        ["xfs"],
        ["xfs"],
        ["files"],
        ["files"],
        ["run queue"],
        ["run queue"],
    ]


def test_a_wait_for_the_cpu_is_no_io():
    frame = frames(FILES)[-1]
    assert only(frame.histograms) == Series("run queue", "other", "resume")
    assert not frame.outliers


@pytest.mark.parametrize(("good", "bad"), [("0.41", "0.4x"), ("40961024", "4096x024"), ("  16384  ", "  ")])
def test_a_damaged_row_is_named(good, bad):
    found = read(DISKS.replace(good, bad, 1))
    assert found.exit_code == EXIT_INCOMPLETE
    assert "a row can't be read: its I/O is left out" in remarks(DISKS.replace(good, bad, 1))


def test_prose_behind_a_table_is_no_damage():
    assert read(DISKS + "There are 4 write IOPS, and 3 of them are slow.\n").exit_code == EXIT_DONE


def test_a_latency_that_the_tool_does_not_know_is_left_out():
    text = DISKS.replace("    0.41", "   -1.00", 1)
    assert read(text).exit_code == EXIT_INCOMPLETE
    assert frames(DISKS.replace("0.02    0.41", "  -1    0.41", 1))[0].seen[Flow("sda", "write")].count == 1


def test_a_slow_log_write_of_oracle():
    text = (
        "*** 2016-04-07 12:13:04.836\nWarning: log write elapsed time 836ms, size 2KB\n"
        "*** 2016-04-07 12:13:09.100\nWarning: log write elapsed time 500ms, size 20KB\n"
    )
    first, second = frames(text)
    one = only(first.outliers)
    assert (one.total_us, one.bytes, one.op, one.device) == (836_000, 2048, "write", "log writer")
    assert one.wall == 1_460_031_184.0
    assert second.wall - first.wall == 5
    assert read("x\n" + text.replace("size 2KB", "size 2xKB")).undecoded > read("x\n" + text).undecoded


def test_events_that_were_lost():
    found = read(DISKS + "Possibly lost 12 samples\n")
    assert found.exit_code == EXIT_INCOMPLETE
    assert sum(frame.health.lost_events for frame in found.frames()) == 12


def test_rows_that_were_timed_until_the_submission_are_left_out():
    """ext4slower prints -529 (EIOCBQUEUED) bytes for an asynchronous I/O, with the time of its submission."""
    found = read(golden("events_async.txt"))
    rows = [line.split() for line in golden("events_async.txt").splitlines()[2:]]
    taken = [row for row in rows if row[4] != "-529"]
    all_frames = list(found.frames())
    assert sum(done.count for frame in all_frames for done in frame.seen.values()) == len(taken)
    assert f"{len(rows) - len(taken)} rows are of asynchronous I/Os" in all_frames[0].health.notice
    assert found.exit_code == EXIT_DONE


def test_an_error_of_an_operation_is_no_size():
    text = golden("events_async.txt").replace("F LL_MAX", "F -5    ")
    assert all(done.bytes >= 0 for frame in frames(text) for done in frame.seen.values())


def test_prose_with_numbers_below_rows_is_no_damaged_row():
    text = "TIME(s)        PID          MS QUERY\n1.315800       25776  2000.999 call getproduct(97)\n\n"
    assert read(f"{text}This traced 5 queries, 4 of which took about 130 milliseconds.\n").exit_code == EXIT_DONE
    assert read(f"{text}x.315800       25776  2000.999 call getproduct(97)\n").exit_code == EXIT_INCOMPLETE
    assert read(f"{text}1.31x800       25776  2000.999 call getproduct(97)\n").exit_code == EXIT_INCOMPLETE


def test_functions_slower_than_a_threshold():
    text = "Tracing function calls slower than 1 us... Ctrl+C to quit.\n"
    text += (
        "COMM           PID    LAT(us)             RVAL FUNC\nless           27074    33.77                3 vfs_read\n"
    )
    (flow,) = frames(text)[0].seen
    assert flow.device == "vfs_read"


def test_tables_that_count_from_the_begin_are_their_differences():
    """funclatency of libbpf-tools 0.26 doesn't clear what it printed: 62, 124, 186, 248, 309."""
    text = golden("bcc_funclatency_sums.txt")
    all_frames = frames(text)
    assert [only(frame.histograms.values()).count for frame in all_frames] == [62, 62, 62, 62, 61]
    assert "5 tables count all values since the begin" in all_frames[0].health.notice
    cleared = text.replace("0 -> 1          : 298", "0 -> 1          : 3")
    assert sum(only(frame.histograms.values()).count for frame in frames(cleared)) == 62 + 124 + 186 + 248 + 14


@pytest.mark.parametrize("tool", ["Tracing TCP RTT... Hit Ctrl-C to end.", "# ./tcpcong -d"])
def test_times_of_tcp_are_no_latencies_of_ios(tool):
    table = "     usecs               : count     distribution\n         0 -> 1          : 2        |***|\n"
    with pytest.raises(RecordingError, match="times of TCP"):
        read(f"{tool}\n{table}")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("bcc_ext4dist.txt", r"-> \d+ *: (\d+)"),
        ("bcc_biolatency_flags.txt", r"-> \d+ *: (\d+)"),
    ],
)
def test_totals_of_real_output_are_the_sum_of_its_rows(name, pattern):
    rows = sum(int(n) for n in re.findall(pattern, golden(name)))
    assert sum(h.count for frame in frames(golden(name)) for h in frame.histograms.values()) == rows > 0


def test_rows_of_iosnoop():
    lines = golden("events_iosnoop.txt").splitlines()
    number = sum(line[:1].isdigit() for line in lines)
    assert (
        sum(done.count for frame in frames(golden("events_iosnoop.txt")) for done in frame.seen.values()) == number > 30
    )
