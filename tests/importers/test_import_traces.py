"""Traces and summaries of them: perf script, trace-cmd, btt, blkparse's summary, a drive's latency monitor."""

import pytest
from test_imports import BLKPARSE, GOLDEN, NOTHING, frames, only, read

from latmon.importers.values import ImportOptions
from latmon.model.frame import Flow, Series
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE


def in_golden(name, asked=NOTHING):
    return frames((GOLDEN / name).read_text(), asked)


def totals_of(every):
    return {key: (h.count, h.sum, h.max) for one in every for key, h in one.histograms.items()}


def test_perf_script_and_trace_cmd_pair_requests_by_sector_and_flushes_without_one():
    """The numbers are those of a separate script over the same lines."""
    assert totals_of(in_golden("perf_script.txt")) == {
        Series("7:0", "write", "total"): (11, 322, 41),
        Series("7:0", "read", "total"): (12, 381, 42),
        Series("254:0", "read", "total"): (1, 153, 153),
    }
    assert totals_of(in_golden("trace_cmd.txt")) == {
        Series("259:0", "read", "total"): (9, 3490, 805),
        Series("259:0", "write", "total"): (17, 18_588, 5301),
        Series("259:0", "flush", "total"): (2, 275, 146),
    }


def test_call_chains_of_perf_are_of_the_line_above_them():
    found = read((GOLDEN / "perf_stacks.txt").read_text())
    assert not found.left
    assert sum(count for count, _, _ in totals_of(found.frames()).values()) == 3


SOFTIRQ = """  fio 13292/13292   100.000100: irq:softirq_raise: vec=3 [action=NET_RX]
  fio 13292/13292   100.000110: irq:softirq_raise: vec=4 [action=BLOCK]
  ksoftirqd/0    14 [000]   100.000150:   irq:softirq_entry: vec=4 [action=BLOCK]
  ksoftirqd/0    14 [000]   100.000400:   irq:softirq_entry: vec=3 [action=NET_RX]
"""


def test_any_two_events_of_perf_script_with_the_group_in_their_name_or_without():
    for events in (("softirq_raise", "softirq_entry"), ("irq:softirq_raise", "irq:softirq_entry")):
        asked = ImportOptions(events=events, key="vec", stage="softirq")
        (one,) = totals_of(frames(SOFTIRQ, asked)).values()
        assert one == (2, 340, 300)
    assert not totals_of(frames(f"{SOFTIRQ}\nsd2 1 sd0 70\n", ImportOptions(events=events, key="vec,action,none")))


@pytest.mark.parametrize(
    ("line", "lost"),
    [("  fio 1 [000] 544.483560: PERF_RECORD_LOST lost 42\n", 42), ("Processed 50 events and lost 3 chunks!\n", 3)],
)
def test_events_that_perf_lost_are_counted_and_no_pair_reaches_over_them(line, lost):
    lines = (GOLDEN / "perf_script.txt").read_text().splitlines(keepends=True)
    all_frames = frames("".join([*lines[:2], line, *lines[2:]]))
    assert sum(frame.health.lost_events for frame in all_frames) == lost
    assert sum(count for count, _, _ in totals_of(all_frames).values()) == 22


def test_btt_has_exact_means_of_whole_and_driver_and_its_longest_in_words():
    found = read((GOLDEN / "btt.txt").read_text())
    one = only(found.frames())
    done = one.kernel[Flow("259:0", "other")]
    assert (done.count, done.bytes) == (1128, 9072 * 512)
    assert (done.time_us, done.queue_us) == (round(1292.736 * 1128), round(1292.736 * 1128) - round(1187.867 * 1128))
    assert one.dt_us == round(3534.056 * 1127, -1) + 1
    assert "D2C min 73.060, mean 1,187.867, max 39,880.370 us of 1,128" in one.health.notice
    assert found.exit_code == EXIT_DONE


def test_btt_per_device_is_each_device_and_its_processes_are_not_counted_again():
    rows = "Q2C MIN AVG MAX N\n--- --- --- --- ---\n{}\n"
    of = "{} 0.000087130 0.001292736 0.039931320 {}"
    text = "==================== Per Process ====================\n\n" + rows.format(of.format("fio", 30))
    text += "==================== Per Device ====================\n\n"
    text += rows.format(f"{of.format('(  8,  0)', 10)}\n{of.format('(  8, 16)', 20)}")
    one = only(frames(text))
    assert {flow.device: done.count for flow, done in one.kernel.items()} == {"8:0": 10, "8:16": 20}
    assert (
        len(frames(text + "==================== All Devices ====================\n\n" + text.replace("8, 16", "8, 32")))
        == 1
    )


def test_a_summary_of_blkparse_counts_where_its_events_are_absent():
    text = (GOLDEN / "blkparse_summary.txt").read_text()
    one = only(frames(text))
    assert {flow.op: (done.count, done.bytes) for flow, done in one.kernel.items()} == {
        "read": (550, 1920 * 1024),
        "write": (660, 2616 * 1024),
    }
    cpus = "".join(part for part in text.split("\n\n") if "Total" not in part)
    summed = only(frames(f"{cpus}\n{text[text.index('Throughput') :]}"))
    assert summed.kernel == one.kernel
    assert not any(frame.kernel for frame in frames(f"{BLKPARSE}{text}"))


def test_later_logs_of_a_latency_monitor_have_only_what_came_since():
    every = in_golden("latency_monitor.txt")
    counts = [{k.op: h.count for k, h in one.histograms.items()} for one in every]
    assert counts == [
        {"read": 123, "write": 34, "discard": 1},  # the full period before the first log
        {"read": 50, "write": 9},
        {"read": 15, "write": 1},  # the same period: 65 - 50, 10 - 9
        {"read": 93 - 65, "write": 11 - 10},  # the rest of it
        {"read": 5},
    ]
    assert [one.dt_us // 60_000_000 for one in every] == [60, 20, 30, 60, 10]
    assert {k.stage for one in every for k in one.histograms} == {"hba"}


@pytest.mark.parametrize(
    ("good", "bad"), [('"Active Threshold A": 10', '"Active Threshold A": 60'), ('"Read": 55', '"Read": "x"')]
)
def test_a_latency_monitor_with_a_wrong_number_is_incomplete(good, bad):
    assert read((GOLDEN / "latency_monitor.txt").read_text().replace(good, bad, 1)).exit_code == EXIT_INCOMPLETE
