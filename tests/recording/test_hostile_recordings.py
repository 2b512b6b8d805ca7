"""Hostile recordings cost each command that reads one no traceback and no memory, and the good window is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import endless
import hostile
import pytest
from hostile import GOOD, HOSTILE
from recorded import ORIGIN

from latmon.cli.main import run as main
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import Histogram
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

MAX_KB = 256 * 1024
FIRST_S = 2.0
QUICK = ("evil strings",)
REFUSED = ("new labels in each window",)
"""Those without damage that need too much memory."""
RUN = Path(__file__).parents[1] / "helpers/hostile_run.py"
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")


def run(*words):
    """Its output, in two parts: before the memory that it took, and that."""
    done = subprocess.run(
        [sys.executable, RUN, *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    *text, peak = done.stderr.splitlines()
    assert int(peak) <= MAX_KB
    assert all(line.isprintable() for line in (*done.stdout.splitlines(), *text))
    return done.returncode, done.stdout, text


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in HOSTILE])
def test_every_reader_bears_it(tmp_path, name):
    path, copy = tmp_path / "r", tmp_path / "copy"
    hostile.write(path, name)
    if name in REFUSED:
        assert run("report", path)[0] == 5
        return
    code, out, _ = run("check", path)
    assert code == (0 if name == "evil strings" else 5)
    assert ("damage " in out) == (code == 5)
    assert run("check", path, "--repair", "-o", copy)[0] == 0
    assert run("check", copy)[0] == 0
    seqs = [[item.seq for item in open_recording(one) if isinstance(item, Frame)] for one in (path, copy)]
    assert seqs[0] == seqs[1]
    assert seqs[0][-1] == GOOD
    assert run("report", path)[0] == 0
    _, out, _ = run("replay", path)
    first, last = map(float, out.split())
    assert last == GOOD
    # one that has nothing else that can be read is read to its end before the first screen: 1 GiB takes its time
    assert first < FIRST_S or hostile.WINDOWS.get(name, 1) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"r", "copy"}


COMMANDS = (
    ("report", "F"),
    ("report", "F", "--json"),
    ("report", "F", "--html", "OUT"),
    ("diff", "F", "F"),
    ("export", "F", "--to", "jsonl", "-o", "OUT"),
    ("export", "F", "--to", "openmetrics", "-o", "OUT"),
    ("check", "F"),
    ("replay", "F", "--once", "--max-memory", "256M"),
)


def _require_bounded(directory, *words):
    """Run a command of a recording that needs more memory than is allowed; `run` compares its memory."""
    path = directory / "r"
    code, _, err = run(*({"F": path, "OUT": directory / "OUT"}.get(word, word) for word in words))
    if code == 0:
        assert words[0] != "report", "the shape needs no more memory than is allowed"
        return
    assert code == 5
    (sentence,) = err
    assert sentence.startswith(f"latmon: {path} can't be read within 256 MiB of memory: ")
    assert "--max-memory" in sentence
    assert {file.name for file in directory.iterdir()} == {"r"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_more_buckets_than_any_host_has_are_refused(tmp_path, words):
    """1.4 million buckets in 35 kB."""
    endless.write(tmp_path / "r", endless.SHAPES["buckets"]())
    _require_bounded(tmp_path, *words)


@pytest.mark.slow
@pytest.mark.parametrize("shape", endless.SHAPES)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_shape_of_names_and_rows_takes_more_memory(tmp_path, words, shape):
    endless.write(tmp_path / "r", endless.SHAPES[shape]())
    _require_bounded(tmp_path, *words)


@pytest.mark.parametrize("words", [("report", "F"), ("check", "F")], ids=" ".join)
def test_a_header_takes_no_more_memory(tmp_path, words):
    endless.write(tmp_path / "r", iter(['"h":{}'] * 2), endless.header_of_lists())
    _require_bounded(tmp_path, *words)


def test_an_option_allows_more_memory_and_less(tmp_path):
    path = tmp_path / "r"
    endless.write(path, endless.buckets(2000))
    assert run("report", path)[0] == 0
    code, out, err = run("report", path, "--max-memory", "64M")
    assert (code, out) == (5, "")
    (sentence,) = err
    allowed = "if you know who made it, --max-memory 256M allows more"
    assert sentence == f"latmon: {path} can't be read within 64 MiB of memory: {allowed}"
    assert run("report", path, "--max-memory", "250M")[0] == 0


def test_a_file_of_more_devices_than_any_host_has_is_read_by_the_latmon_that_wrote_it(tmp_path, capsys):
    path = tmp_path / "r.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN)
    for seq in range(3):
        writer.append(_busy(seq, 10_000))
    writer.close()
    (frame, *_) = (item for item in open_recording(path) if isinstance(item, Frame))
    assert len(frame.histograms) == 10_000
    assert main(["check", str(path)]) == 0, capsys.readouterr()


@pytest.mark.slow
def test_a_hole_of_2_gib_is_looked_behind(tmp_path):
    path = tmp_path / "r"
    hostile.write(path, "time goes back")
    data = path.read_bytes()
    with path.open("wb") as file:
        file.write(data[:-600])
        file.seek(2**31, os.SEEK_SET)
        file.write(data)
    code, out, _ = run("check", path)
    assert code == 5
    assert "to byte 2147483647" in out
    assert run("check", path, "--repair", "-o", tmp_path / "copy")[0] == 0
    assert run("report", path)[0] == 0


def _busy(seq: int, series: int) -> Frame:
    """Return a window in which each series has 30 buckets, other ones in each second."""
    histogram = Histogram.of({(seq * 7 + at * 5) % 200: 1 for at in range(30)})
    latencies = {Series(f"d{number}", "read", "total"): histogram for number in range(series)}
    kernel = {Flow(f"d{number}", "read"): Completed(30, 512) for number in range(series)}
    return Frame(seq, 1_000_000.0 + seq, 6_000_000 + seq * 1_000_000, 1_000_000, latencies, kernel=kernel)
