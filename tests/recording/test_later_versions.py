"""Recordings of a later 1.x, with names that this version doesn't know: every reader of recordings reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_json import summarised

from latmon.cli.main import run as main
from latmon.exporters.registry import FORMATS, SCREENS
from latmon.recording import members
from latmon.recording.reader import open_recording

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN, LATER = b'"hba"', b'"fabric"'


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A recording with a stage that no version has."""
    written = (GOLDEN / "recording-1.1-stages.latmon.jsonl.gz").read_bytes()
    path = tmp_path_factory.mktemp("later") / "later.latmon.jsonl.gz"
    place = 0
    with path.open("wb") as file:
        while place < len(written):
            head = members.head_of(written[place : place + members.HEAD_BYTES])
            text = members.unpack(written[place : place + head.length]).replace(KNOWN, LATER)
            file.write(members.pack(text, head.first_us, head.last_us, head.stands_for))
            place += head.length
    return path


@pytest.mark.parametrize("options", [[], ["--json"], ["--html", "-"]], ids=["text", "json", "html"])
def test_a_report_has_a_stage_of_a_later_version(recording, capfd, options):
    assert main(["report", *options, str(recording)]) == 0
    assert "fabric" in capfd.readouterr().out


@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_is_drawn(recording, tmp_path, screen):
    for theme in ("dark", "mono"):
        path = tmp_path / f"{theme}.svg"
        words = ["export", "--to", "svg", "--screen", screen, "--size", "160x50", "--theme", theme]
        assert main([*words, "-o", str(path), str(recording)]) == 0
        assert screen != "stages" or "fabric" in path.read_text()


@pytest.mark.parametrize("form", FORMATS)
def test_each_export_is_written(recording, tmp_path, form):
    path = tmp_path / "out"
    assert main(["export", "--to", form, "-o", str(path), str(recording)]) == 0
    assert path.stat().st_size


def test_it_is_checked_and_compared(recording, capsys):
    assert main(["check", str(recording)]) == 0
    assert main(["diff", str(recording), str(recording)]) == 0
    known = summarised(open_recording(GOLDEN / "recording-1.1-stages.latmon.jsonl.gz"))
    assert "everything in it can be read" in capsys.readouterr().out
    later = summarised(open_recording(recording))
    assert len(later["devices"]) == len(known["devices"])
