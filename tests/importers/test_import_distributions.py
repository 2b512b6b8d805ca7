"""Histograms of SystemTap, tracefs, sysbench, cyclictest and rtla: edges, units, exact maxima, what is refused."""

import re

import pytest
from test_imports import GOLDEN, frames, only, read, remarks

from latmon.importers.values import ImportedTable, ImportOptions
from latmon.model.frame import Flow, Series
from latmon.support.errors import EXIT_INCOMPLETE, RecordingError, UsageError

STAP_HEAD = "value |-------------------------------------------------- count\n"
TRIGGER = "# event histogram\n#\n# trigger info: hist:keys={}:vals=hitcount:sort=hitcount:size=2048 [active]\n#\n\n"


def golden(name):
    return (GOLDEN / name).read_text()


def tables(text, options=None):
    return [one for one in read(text, options or ImportOptions()).found if isinstance(one, ImportedTable)]


def edges(table):
    return [(row.low, row.high, row.count) for row in table.rows if row.count]


def test_a_row_of_hist_log_ends_where_the_next_power_of_two_begins():
    text = f"lat (us)\n{STAP_HEAD}" + "".join(f"{low:>5} |@  {n}\n" for low, n in ((0, 3), (1, 4), (2, 5), (4, 6)))
    (table,) = tables(text)
    assert edges(table) == [(0, 1, 3), (1, 2, 4), (2, 4, 5), (4, 8, 6)]
    assert table.unit == "us"


def test_the_last_row_of_hist_linear_begins_behind_the_row_of_its_name():
    (table,) = tables(golden("systemtap_linear.txt"))
    assert edges(table)[0] == (0, 10, 640)
    assert edges(table)[-1] == (60, None, 3)
    assert table.unit == "ms"


def test_a_row_below_the_first_one_of_hist_linear_has_no_begin():
    text = f"lat (us)\n{STAP_HEAD}  <10 |   2\n   10 |   5\n   20 |   1\n"
    assert edges(tables(text)[0]) == [(None, 10, 2), (10, 20, 5), (20, 30, 1)]


def test_values_of_systemtap_below_0_are_no_latencies():
    found = read(f"lat (us)\n{STAP_HEAD}   -4 |  2\n   -2 |  0\n   -1 |  0\n    0 |  0\n    1 | 7\n")
    assert only(found.frames()).histograms[Series("lat", "other", "total")].count == 7
    assert found.exit_code == EXIT_INCOMPLETE


def test_the_unit_of_systemtap_is_that_of_its_script_where_no_line_names_it():
    text = golden("systemtap_log.txt").replace(" (us)", "")
    assert {table.unit for table in tables(text)} == {"us"}
    without = re.sub("# stap.*", "", text)
    with pytest.raises(UsageError, match="--unit"):
        read(without)
    assert {table.unit for table in tables(without.replace("latency", "latency (ns)"))} == {"ns"}


def test_the_maximum_that_is_printed_above_a_table_is_exact():
    (frame,) = frames(golden("systemtap_log.txt"))
    by_op = {series.op: histogram.max for series, histogram in frame.histograms.items()}
    assert by_op["write"] == 5210


def test_sizes_that_systemtap_prints_are_left_out():
    text = f"sizes of reads\n{STAP_HEAD}    1 |  0\n    2 |  5\n    4 |  6\n\n{golden('systemtap_log.txt')}"
    assert any("sizes of reads: no latency, left out" in one.text for one in remarks(read(text)))


def test_a_power_of_two_of_a_trigger_is_the_last_value_of_its_row():
    """`~ 2^12` has 2,049 to 4,096 us: its quantile is 4.1 ms, not 8.2 ms."""
    text = "# common_timestamp.usecs\n" + TRIGGER.format("lat.log2") + "{ lat: ~ 2^12 } hitcount:          9\n"
    (table,) = tables(text)
    assert edges(table) == [(2048, 4096, 9)]
    (frame,) = frames(text)
    assert only(frame.histograms.values()).quantile(0.5) == 4096


def test_a_bucket_of_a_trigger_has_both_of_its_ends():
    (table,) = tables(golden("hist_trigger_buckets.txt"))
    assert edges(table) == [(0, 100, 951), (100, 200, 204), (200, 300, 17), (4000, 4100, 1)]
    assert table.unit == "us"


def test_events_that_a_trigger_dropped_are_lost():
    found = read(golden("hist_trigger_buckets.txt"))
    assert only(found.frames()).health.lost_events == 2
    assert found.exit_code == EXIT_INCOMPLETE


def test_each_combination_of_the_other_keys_of_a_trigger_is_a_series():
    (frame,) = frames(golden("hist_trigger.txt"))
    assert {series.device: one.count for series, one in frame.histograms.items()} == {"8:0": 2167, "8:16": 966}


@pytest.mark.parametrize(
    ("keys", "entry", "words"),
    [
        ("call_site,bytes_req", "{ call_site: 18446744071583, bytes_req: 32 } hitcount: 5", "of which none is a time"),
        ("next_comm", "{ next_comm: fio } hitcount: 5", "by next_comm, of which none is a time"),
        ("lat.log2", "{ lat: ~ 2^x } hitcount: 5", "is damaged in line"),
    ],
)
def test_a_trigger_without_a_time_is_refused(keys, entry, words):
    with pytest.raises(RecordingError, match=words):
        read(f"# common_timestamp.usecs\n{TRIGGER.format(keys)}{entry}\n")


def test_entries_of_a_trigger_that_are_missing_are_named():
    text = golden("hist_trigger.txt").replace("{ dev:    8388608, lat: ~ 2^7  } hitcount:       1840\n", "")
    with pytest.raises(RecordingError, match="its rows have 1,293 of 3,133 hits"):
        read(text)


def test_cyclictest_has_a_row_for_each_us_and_an_open_one():
    first, second = tables(golden("cyclictest.txt"))
    assert edges(first)[-1] == (60, None, 2590)
    assert all(high == low + 1 for low, high, _ in edges(first)[:-1])
    assert (first.max_us, second.max_us) == (5926, 4741)
    (frame,) = frames(golden("cyclictest.txt"))
    assert {series.stage for series in frame.histograms} == {"resume"}


def test_rtla_measures_the_handler_and_the_thread():
    (frame,) = frames(golden("rtla_timerlat.txt"))
    counts = {(series.device, series.stage): one.count for series, one in frame.histograms.items()}
    assert counts == {(f"timer CPU {cpu}", stage): 10_000 for cpu in (0, 1) for stage in ("irq", "resume")}
    assert frame.dt_us == 10_000_000


def test_rtla_with_wider_buckets():
    text = re.sub(r"(?m)^(\d+) ", lambda match: f"{int(match[1]) * 5} ", golden("rtla_timerlat.txt"))
    table = next(table for table in tables(text) if table.title == "Thr-000")
    assert edges(table)[0] == (5, 10, 2240)
    assert edges(table)[-1] == (65, None, 8)


def test_a_row_of_sysbench_has_the_edges_of_all_buckets_of_its_name():
    (table,) = tables(golden("sysbench.txt"))
    rows = {row.count: row for row in table.rows}
    low, high, _ = rows[1]  # 11.242 ms is the last one
    assert low < 11_242_000 < high < 1.03 * low
    assert table.count == 121_175
    assert (table.where.dt_us, table.layer) == (2_053_300, "application")


def test_events_of_sysbench_that_are_missing_are_named():
    text = re.sub(r"(?m)^ +0\.002 .*\n", "", golden("sysbench.txt"), count=1)
    with pytest.raises(RecordingError, match="of 121,175 events"):
        read(text)


def test_the_mean_of_pg_test_fsync_is_the_inverse_of_its_rate():
    text = golden("pg_test_fsync.txt").replace("1 second per test", "5 seconds per test")
    every = frames(text)
    done = every[1].kernel[Flow("fdatasync, one 8kB write", "flush")]
    assert done.count == round(4404.489 * 5)
    assert abs(done.time_us / done.count - 227) < 0.5
    assert {frame.dt_us for frame in every} == {5_000_000}
    assert len(every) == 16


def test_a_heading_with_a_unit_is_that_of_the_tables_below_it():
    table = f"value |{'-' * 50} count\n  1024 |@ 3\n  2048 |@ 4\n\n"
    text = f"FS latency (ns):\n\nFS call: read\n{table}FS call: write\n{table}I/O size (bytes):\n\nprocess a\n{table}"
    assert [(one.unit, one.title) for one in tables(text)] == [("ns", "FS call: read"), ("ns", "FS call: write")]
    assert any("process a: no latency, left out" in one.text for one in remarks(read(text)))


@pytest.mark.parametrize(
    ("above", "unit", "most_us"),
    [
        ("interval min:1197us, max:1858us avg:1519us, cnt:7", "us", 1858),
        ("count: 7, avg: 1519 us, max: 2858 us, dist (us):", "us", 2858),
        ("max:2.65 dev:1.58 count:7\nDuration in ms (shared queue):", "ms", 2650),
    ],
)
def test_numbers_about_a_table_are_no_title_and_have_its_maximum(above, unit, most_us):
    rows = (
        "1 |@ 3\n 2 |@ 4\n"
        if unit == "ms"
        else "1024 |@ 3\n 2048 |@ 4\n"
        if most_us > 2048
        else "512 | 0\n 1024 |@ 7\n"
    )
    (table,) = tables(f"{above}\n{STAP_HEAD} {rows}")
    assert (table.unit, table.max_us, table.count) == (unit, most_us, 7)
    assert "max" not in table.title


def test_a_word_of_prose_above_a_table_of_systemtap_is_no_stage():
    text = f"Latency (us) in TCP Receive Queue\n{STAP_HEAD}   32 |@ 2\n   64 |  0\n"
    assert {series.stage for series in only(frames(text)).histograms} == {"total"}


def test_rows_of_pg_test_fsync_right_below_a_fence_are_read():
    rows = (("fsync", "6676.001", 150), ("open_sync", "6087.783", 164), ("fdatasync", "6012.000", 166))
    lines = "".join(f"        {name:<20} {rate:>10} ops/sec  {us:>6} usecs/op\n" for name, rate, us in rows)
    found = read(f"in FreeBSD 10:\n\n```\n{lines}```\n")
    assert found.exit_code == 0
    assert [done.count for frame in found.frames() for done in frame.kernel.values()] == [6676, 6088, 6012]
