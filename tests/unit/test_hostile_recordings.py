"""What a hostile recording costs each command that reads one: no traceback, no memory, and the good window is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from hostile import GOOD, HOSTILE

from latmon.model import Frame
from latmon.recording import open_recording

MAX_KB = 256 * 1024
FIRST_S = 2.0
QUICK = ("evil strings",)
RUN = Path(__file__).with_name("hostile_run.py")
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")


def run(*words):
    """Its output, and what it said before the memory that it took."""
    done = subprocess.run(
        [sys.executable, RUN, *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    *said, peak = done.stderr.splitlines()
    assert int(peak) <= MAX_KB
    assert all(line.isprintable() for line in (*done.stdout.splitlines(), *said))
    return done.returncode, done.stdout, said


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in HOSTILE])
def test_every_reader_bears_it(tmp_path, name):
    path, copy = tmp_path / "r", tmp_path / "copy"
    hostile.write(path, name)
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
    assert {one.name for one in tmp_path.iterdir()} == {"r", "copy"}


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
