"""A capture's marks and settings in a report, and text that a terminal can't show."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from recorded import ORIGIN, frame
from report_json import summarised

from latmon.model.frame import Mark
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.text import render_text
from latmon.support.text import encodable

SETTINGS = {
    "kernel": {"release": "6.1.0", "cmdline": "quiet"},
    "device sda": {"scheduler": "mq-deadline", "nr_requests": "64"},
    "device sdb": {"scheduler": "mq-deadline", "nr_requests": "64"},
    "probe block_a": {"sha256": "12ab"},
}
MARK = Mark("scheduler off", 7_500_000, 1_000_002.5, {"device sda": {"scheduler": "none", "nr_requests": ""}})


@pytest.fixture
def summary(tmp_path):
    writer = Writer.create(tmp_path / "r", replace(ORIGIN, settings=SETTINGS))
    for seq in range(4):
        writer.append(frame(seq, marks=(MARK,) if seq == 2 else ()))
    writer.close()
    return summarised(open_recording(tmp_path / "r"))


def test_marks_and_settings_are_keys_of_their_own(summary):
    assert summary["settings"] == SETTINGS
    assert summary["marks"] == [
        {
            "time": "1970-01-12T13:46:42.500Z",
            "text": "scheduler off",
            "changed": {"device sda": {"scheduler": "none", "nr_requests": ""}},
        }
    ]
    json.dumps(summary, allow_nan=False)


def test_the_text_reports_them(summary):
    text = render_text(summary.report)
    assert (
        "  1970-01-12T13:46:42.500Z  scheduler off\n    device sda: scheduler is now none, nr_requests is gone" in text
    )
    assert "  device sda, sdb: scheduler mq-deadline; nr_requests 64" in text
    assert "  and 1 sections that --json has" in text
    assert "from 1970-01-12T13:46:40.000Z to 1970-01-12T13:46:44.000Z, 4.0 s, 4 windows" in " ".join(text.split())


def test_without_any_nothing_is_reported(tmp_path):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    writer.close()
    summary = summarised(open_recording(tmp_path / "r"))
    assert "settings" not in summary
    assert "marks" not in summary
    assert "marks" not in render_text(summary.report)


def test_what_a_terminal_cannot_show_takes_no_more_room():
    text = "≤1.2m größe…"
    assert encodable(text, "utf-8") == text
    assert encodable(text, "ascii") == "<1.2m gr??e~"
    assert encodable(text, "latin-1") == "<1.2m größe~"


def test_a_mark_reports_whether_settings_were_read(tmp_path):
    writer = Writer.create(tmp_path / "r", replace(ORIGIN, settings=SETTINGS))
    writer.append(frame(0, marks=(Mark("unread", 5_500_000, 1.0), Mark("as before", 5_600_000, 1.1, {}))))
    writer.close()
    summary = summarised(open_recording(tmp_path / "r"))
    assert [mark["changed"] for mark in summary["marks"]] == [None, {}]
    assert "  1970-01-01T00:00:01.100Z  as before" in render_text(summary.report)
