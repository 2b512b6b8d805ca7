"""Runs in one text are conditions: the report names them, evaluates rules run by run, and compares them."""

import json

import pytest

from latmon.cli.main import run as main
from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions
from latmon.recording.reader import open_recording
from latmon.report.reading import summarise
from latmon.report.text import render_text


def table(counts):
    """Return a table of quantize(), from 32 ms on."""
    rows = [f"{32 << at:16} |@@@@@                                    {counts.get(32 << at, 0)}" for at in range(16)]
    return "\n".join(("           value  ------------- Distribution ------------- count", *rows, ""))


BEGIN = "dtrace: script 'ssdrwtime.d' matched 4 probes ^C\n\n"


@pytest.fixture
def imported(tmp_path):
    def make(text):
        source, out = tmp_path / "post.txt", tmp_path / "x.latmon.jsonl.gz"
        source.write_text(text)
        import_command(source, out, ImportOptions(unit="ms", device="ssd0"))
        return out

    return make


SORTED, UNSORTED = table({64: 15_000, 128: 360_000, 524_288: 302}), table({128: 505, 256: 531_169, 512: 11_764})
SECOND = "line 23"
TWO = f"{BEGIN}{SORTED}\nNow the same with disksort disabled:\n\n{BEGIN}{UNSORTED}"


def test_runs_are_named_and_rules_evaluated_on_each(imported):
    recording = open_recording(imported(TWO))
    assert recording.origin.runs == ("line 1", SECOND)
    report = summarise(recording)
    assert report.runs == recording.origin.runs
    text = " ".join(render_text(report).split())
    assert "2 runs are in this text" in text
    assert "latmon report --runs FILE compares them" in text
    assert f"latmon diff FILE@'line 1' FILE@'{SECOND}'" in text
    (finding,) = report.evaluated.findings
    assert "302 of 375k I/Os" in finding.summary, "not of the I/Os of both"


def test_the_runs_are_compared(imported, capsys):
    out = imported(TWO)
    assert main(["report", "--runs", str(out)]) == 0
    text = capsys.readouterr().out
    assert "the tail is gone" in text
    assert main(["report", "--runs", "--json", str(out)]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert [capture["name"].partition(":")[0] for capture in compared["captures"]] == ["line 1", SECOND]


def test_what_comes_before_the_first_begin_of_a_run_is_one_too(imported, capsys):
    out = imported(f"{SORTED}\nand without:\n\n{BEGIN}{UNSORTED}")
    assert open_recording(out).origin.runs == ("..line 21", "line 21")
    assert main(["report", "--runs", str(out)]) == 0
    assert "the tail is gone" in capsys.readouterr().out


def test_a_single_run_is_not_compared(imported, capsys):
    out = imported(f"{BEGIN}{SORTED}")
    assert open_recording(out).origin.runs == ()
    assert main(["report", "--runs", str(out)]) == 2
    assert "has a single run: report --runs compares at least two" in capsys.readouterr().err
