"""Settings of a span: those of the marks before it, where they were read."""

from __future__ import annotations

from dataclasses import replace

from recorded import ORIGIN, frame

from latmon.diff.command import read
from latmon.diff.conditions import differing, with_marks
from latmon.model.frame import Mark
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

BEFORE = {"device sda": {"scheduler": "mq-deadline"}}
NONE = {"device sda": {"scheduler": "none"}}


def recorded(path, *marks):
    """A second of each mark, then some more."""
    writer = Writer.create(path, replace(ORIGIN, settings=BEFORE))
    by_seq = {4 * (at + 1): mark for at, mark in enumerate(marks)}
    for seq in range(4 * len(marks) + 8):
        one = frame(seq)
        mark = by_seq.get(seq)
        here = () if mark is None else (replace(mark, mono_us=one.mono_us - 1, wall=one.wall),)
        writer.append(replace(one, marks=here))
    writer.close()
    return path


def test_what_was_set_back_is_as_before(tmp_path):
    path = recorded(tmp_path / "r", Mark("none", changed=NONE), Mark("back", changed={}))
    none, back = read(f"{path}@none"), read(f"{path}@back")
    assert [(one.name, one.a, one.b) for one in differing(none, back)] == [("scheduler", "none", "mq-deadline")]


def test_a_mark_without_settings_reports_no_change(tmp_path):
    path = recorded(tmp_path / "r", Mark("none", changed=NONE), Mark("later"))
    assert [one.changed for one in open_recording(path) if isinstance(one, Mark)] == [NONE, None]
    assert differing(read(f"{path}@none"), read(f"{path}@later")) == ()


def test_the_latest_that_read_them_counts():
    marks = [Mark("a", changed=NONE), Mark("b", changed={}), Mark("c")]
    assert with_marks(BEFORE, marks) == BEFORE
    assert with_marks(BEFORE, marks[:1]) == NONE
