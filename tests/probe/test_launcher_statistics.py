"""A tool's BPF programs in fdinfo: each program once, unknown where it can't be read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from latmon_backends.probe.launcher import ProgramTotals, Skipped, totals

ROOT = Path(__file__).resolve().parents[2]


def fdinfo(proc, pid, number, **fields):
    directory = proc / str(pid) / "fdinfo"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / str(number)).write_text("".join(f"{name}:\t{value}\n" for name, value in fields.items()))


def children(proc, pid, *others):
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(" ".join(map(str, others)))


def test_each_program_of_the_family_counts_once(tmp_path):
    children(tmp_path, 10, 11)
    fdinfo(tmp_path, 11, 5, prog_type=17, prog_id=7, recursion_misses=100, run_time_ns=5000, run_cnt=10)
    fdinfo(tmp_path, 11, 6, prog_type=17, prog_id=8, recursion_misses=4, run_time_ns=70, run_cnt=2)
    fdinfo(tmp_path, 11, 9, prog_type=17, prog_id=7, recursion_misses=100, run_time_ns=5000, run_cnt=10)
    fdinfo(tmp_path, 11, 3, link_type="raw_tracepoint", prog_id=7)
    assert totals(10, tmp_path) == ProgramTotals(run_ns=5070, runs=12, skipped=104)


def test_what_cannot_be_read_is_unknown_not_zero(tmp_path):
    assert totals(10, tmp_path) == ProgramTotals(None, None, None)


def test_a_kernel_that_does_not_count_misses_says_nothing_of_them(tmp_path):
    fdinfo(tmp_path, 10, 5, prog_type=17, prog_id=7, run_time_ns=9, run_cnt=3)
    assert totals(10, tmp_path) == ProgramTotals(9, 3, None)


def test_skipped_runs_are_reported_from_call_to_call():
    skipped = Skipped()
    assert [skipped.since_last(now) for now in (100, 104, 104, None, 110, 111, 7, 9)] == [
        *(None, 4, 0, None, None, 1),
        *(None, 2),
    ]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_without_rights_no_map_is_opened_by_its_number():
    words = [sys.executable, "-c", "from latmon_backends.probe.launcher import may_open_maps; print(may_open_maps())"]
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *words],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "False\n", done.stderr
