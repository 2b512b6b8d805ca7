"""Task queues: summed over readings, recorded and read again, reported; where none were read, nothing is reported."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import NAMES, ORIGIN, frame
from report_json import summarised

from latmon.aggregate import accumulator as sums
from latmon.aggregate.accumulator import TaskqSums, summed
from latmon.model.frame import Frame, Taskq
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.text import render_text
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

QLC = Taskq("qlc_0_comp_thd", 0, threads=8, priority=99, active=8, waiting=0, most=8, ever=0, span_us=10_000_000)
ZIO = Taskq("zio_write_intr", 0, 8, 99, 8, 322, 300, 6200, 10_000_000, 1530, 1200, 24_000)
WINDOW = {"type": "window", "seq": 0, "t": 1.0, "mono": 1, "dt": 1}
COUNTS = st.integers(0, 2**40)
QUEUES = st.builds(
    Taskq, NAMES, st.integers(-1, 2**31), COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS,
    st.none() | COUNTS,
)  # fmt: skip
READINGS = st.lists(QUEUES, max_size=5, unique_by=lambda one: (one.name, one.instance)).map(tuple)


@given(st.none() | READINGS)
def test_what_was_read_comes_back_as_it_was(reported):
    given_frame = replace(frame(0), taskqs=reported)
    assert decode_frame(parse(to_bytes(encode_frame(given_frame)))) == given_frame


def test_a_frame_without_a_reading_has_no_line_of_it_and_one_without_a_busy_queue_has():
    assert "taskqs" not in encode_frame(frame(0))
    assert encode_frame(replace(frame(0), taskqs=()))["taskqs"] == {"rows": []}
    assert encode_frame(replace(frame(0), taskqs=(QLC,)))["taskqs"] == {
        "rows": [["qlc_0_comp_thd", 0, 8, 99, 8, 0, 8, 0, 10_000_000, 0, 0, -1]]
    }


def test_what_a_later_version_adds_stands_at_a_row_s_end():
    row = ["q", 0, 1, 60, 1, 0, 1, 5, 10, 1, 1, 7, "more"]
    (taskq,) = decode_frame(WINDOW | {"taskqs": {"rows": [row], "more": 1}}).taskqs
    assert (taskq.name, taskq.priority, taskq.time_us) == ("q", 60, 7)


GOOD = ["q", 0, 1, 60, 1, 0, 1, 5, 10, 1, 1, 7]


@pytest.mark.parametrize(
    "reported",
    [
        *([], "x", 3, {"rows": 3}, {"rows": [3]}, {"rows": [GOOD[:-1]]}, {"rows": [GOOD, GOOD]}),
        *({"rows": [[*GOOD[:at], bad, *GOOD[at + 1 :]]]} for at in range(1, 12) for bad in (-2, 2**63, 1.5, "1", None)),
        {"rows": [["q" * 300, *GOOD[1:]]]},
        {"rows": [[7, *GOOD[1:]]]},
        {"rows": [["q", at, *GOOD[2:]] for at in range(1025)]},
    ],
)
def test_nonsense_is_refused(reported):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | {"taskqs": reported})


def test_a_name_is_clean():
    (taskq,) = decode_frame(WINDOW | {"taskqs": {"rows": [["\x1b]52;c;x\x07", *GOOD[1:]]]}}).taskqs
    assert is_clean(taskq.name)


# ---- summed


def test_without_a_reading_there_are_no_rows_at_all():
    assert summed([None, None]) is None
    assert summed([None, ()]) == ()


def test_counts_add_up_and_of_what_was_seen_the_most_is_reported():
    later = replace(ZIO, active=3, waiting=0, executed=300, tasks=10, time_us=6000, ever=6500)
    (taskq_sum,) = summed([(ZIO,), None, (later,)]) or ()
    assert (taskq_sum.last, taskq_sum.active, taskq_sum.waiting, taskq_sum.tasks, taskq_sum.executed) == (
        later,
        8,
        322,
        1540,
        1500,
    )
    assert (taskq_sum.mean_us, taskq_sum.per_second) == (20.0, 75.0)


def test_a_mean_is_of_all_or_not_known():
    (taskq_sum,) = summed([(ZIO,), (replace(ZIO, time_us=None),)]) or ()
    assert taskq_sum.mean_us is None
    (new,) = summed([(replace(ZIO, span_us=0, executed=0, time_us=None),)]) or ()
    assert (new.mean_us, new.per_second) == (None, None)


def test_who_has_most_waiting_comes_first_and_permanent_loops_last():
    other = replace(ZIO, name="other", waiting=1)
    assert [taskq_sum.last.name for taskq_sum in summed([(replace(QLC, waiting=1000), other, ZIO)]) or ()] == [
        "zio_write_intr",
        "other",
        "qlc_0_comp_thd",
    ]


def test_queues_that_come_and_go_are_bounded(monkeypatch):
    monkeypatch.setattr(sums, "MAX_QUEUES", 2)
    many = TaskqSums()
    for at in range(5):
        many.add([replace(ZIO, instance=at)])
    assert (len(many.rows), many.left_out) == (2, 3 * 1200)


# ---- the report


@pytest.fixture
def summary_of(tmp_path):
    def made(*frames: Frame):
        writer = Writer.create(tmp_path / "r", ORIGIN)
        for seq, current_frame in enumerate(frames):
            writer.append(replace(current_frame, seq=seq, mono_us=6_000_000 + seq * 1_000_000))
        writer.close()
        summary = summarised(open_recording(tmp_path / "r"))
        json.dumps(summary, allow_nan=False)
        return summary

    return made


def test_a_report_of_a_host_without_task_queues_says_nothing(summary_of):
    summary = summary_of(frame(0))
    assert not {"taskqs", "taskqs_left_out"} & set(summary)
    assert "task queue" not in render_text(summary.report)


def test_a_report_says_that_none_was_busy(summary_of):
    summary = summary_of(replace(frame(0), taskqs=()))
    assert summary["taskqs"] == []
    assert "no task queue was busy" in render_text(summary.report)


def test_a_report_of_busy_ones(summary_of):
    summary = summary_of(replace(frame(0), taskqs=(QLC, ZIO)), frame(1), replace(frame(2), taskqs=(QLC,)))
    assert summary["taskqs"][0] == {
        "name": "zio_write_intr", "instance": 0, "priority": 99, "threads": 8, "permanent_loops": False,
        "active_max": 8, "waiting_max": 322, "most": 300, "tasks": 1530, "executed": 1200, "mean_run_us": 20.0,
    }  # fmt: skip
    loops = summary["taskqs"][1]
    assert (loops["permanent_loops"], loops["mean_run_us"], loops["active_max"]) == (True, None, 8)
    lines = render_text(summary.report).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("task queue"))
    assert lines[at : at + 4] == [
        "task queue                prio threads active waiting   most executed mean run",
        "zio_write_intr              99       8      8     322    300    1,200     20us",
        "qlc_0_comp_thd              99       8      8  permanent loops, not queue items",
        "active, waiting: the most in one sample; mean run: of a task, without its wait",
    ]


def test_the_text_of_hostile_numbers_fits(summary_of):
    huge = 2**63 - 1
    taskq = Taskq("n" * 200, huge, huge, huge, huge, huge, huge, huge, 1, huge, huge, huge)
    summary = summary_of(replace(frame(0), taskqs=(taskq, *(replace(ZIO, instance=at) for at in range(30)))))
    text = render_text(summary.report)
    assert "and 19 more (--json has them)" in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("task queue"))
    assert max(map(len, lines[at : at + 15])) < 80


def test_what_there_was_no_room_for_is_reported(summary_of, monkeypatch):
    monkeypatch.setattr(sums, "MAX_QUEUES", 1)
    summary = summary_of(replace(frame(0), taskqs=(QLC, ZIO)))
    assert summary["taskqs_left_out"] == 1200
    assert "1,200 tasks of other queues" in render_text(summary.report)
