"""Settings of a span: those of the marks before it, where they were read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recorded import ORIGIN, frame

from latmon.diff.blocks import period_of
from latmon.diff.command import read
from latmon.diff.comparison import compare
from latmon.diff.conditions import differing, with_marks
from latmon.diff.output import render
from latmon.diff.report import pair_report
from latmon.model.frame import Mark
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import UsageError

BEFORE = {"device sda": {"scheduler": "mq-deadline"}}
NONE = {"device sda": {"scheduler": "none"}}


def recorded(path, *marks):
    """A second of each mark, then some more."""
    writer = Writer.create(path, replace(ORIGIN, settings=BEFORE))
    by_seq = {4 * (at + 1): mark for at, mark in enumerate(marks)}
    for seq in range(4 * len(marks) + 8):
        given_frame = frame(seq)
        mark = by_seq.get(seq)
        here = () if mark is None else (replace(mark, mono_us=given_frame.mono_us - 1, wall=given_frame.wall),)
        writer.append(replace(given_frame, marks=here))
    writer.close()
    return path


def test_what_was_set_back_is_as_before(tmp_path):
    path = recorded(tmp_path / "r", Mark("none", changed=NONE), Mark("back", changed={}))
    none, back = read(f"{path}@none"), read(f"{path}@back")
    assert [(difference.name, difference.a, difference.b) for difference in differing(none, back)] == [
        ("scheduler", "none", "mq-deadline")
    ]


def test_a_mark_without_settings_reports_no_change(tmp_path):
    path = recorded(tmp_path / "r", Mark("none", changed=NONE), Mark("later"))
    assert [mark.changed for mark in open_recording(path) if isinstance(mark, Mark)] == [NONE, None]
    assert differing(read(f"{path}@none"), read(f"{path}@later")) == ()


def test_a_line_of_the_kernels_log_ends_no_span(tmp_path):
    line = Mark("XFS (sda1): metadata I/O error", device="sda")
    capture_span = read(f"{recorded(tmp_path / 'plain', Mark('none', changed=NONE), Mark('back'))}@none")
    path = recorded(tmp_path / "with line", Mark("none", changed=NONE), line)
    assert read(f"{path}@none").windows > capture_span.windows
    with pytest.raises(UsageError, match="has no mark 'XFS"):
        read(f"{path}@XFS")


def test_the_latest_that_read_them_counts():
    marks = [Mark("a", changed=NONE), Mark("b", changed={}), Mark("c")]
    assert with_marks(BEFORE, marks) == BEFORE
    assert with_marks(BEFORE, marks[:1]) == NONE


def test_a_device_of_one_side_alone_has_no_settings_that_differ():
    a = period_of("a", replace(ORIGIN, settings=BEFORE | {"kernel": {"hz": "250"}}), (), [frame(0)])
    more = {"device sdz": {"scheduler": "none", "nr_requests": "64"}, "kernel": {"hz": "1000"}}
    b = period_of("b", replace(ORIGIN, settings=BEFORE | more), (), [frame(0)])
    assert [(difference.section, difference.name) for difference in differing(a, b)] == [("kernel", "hz")]


def test_the_text_has_the_first_settings_and_counts_the_rest():
    """They come before the findings, and two hosts differ in a hundred."""
    many = {"kernel": {f"key{n:02}": "1" for n in range(30)}}
    a = period_of("a", replace(ORIGIN, settings=many), (), [frame(0)])
    b = period_of("b", replace(ORIGIN, settings={"kernel": dict.fromkeys(many["kernel"], "2")}), (), [frame(0)])
    text = render(pair_report(compare(a, b)))
    assert "kernel key14: 1 -> 2" in text
    assert "kernel key15" not in text
    assert "... and 15 more (--json has all)" in text
