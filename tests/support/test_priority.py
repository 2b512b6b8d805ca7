"""The raised priority of a start: restored for every thread and child, and never of the session."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from latmon.support import priority, process

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="only root on Linux may raise a priority"
)
OURS = os.getpriority(os.PRIO_PROCESS, 0)
ROOT = Path(priority.__file__).parents[2]
GROUPS = Path("/proc/self/autogroup")
DROP = "os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)"
BEGIN = f"""
import os, subprocess, sys, threading
sys.path.insert(0, {str(ROOT)!r})
from latmon.support.priority import START
def nices():
    return [os.getpriority(os.PRIO_PROCESS, int(one)) for one in os.listdir("/proc/self/task")]
def session():
    try:
        return int(open("/proc/self/autogroup").read().split()[2])
    except OSError:
        return None
"""
THREADS = """
START.begin()
ready, go = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: (ready.set(), go.wait()))
thread.start(); ready.wait()
child = subprocess.Popen(["sleep", "60"])
print(nices(), os.getpriority(os.PRIO_PROCESS, child.pid), session())
START.end(child.pid)
print(nices(), os.getpriority(os.PRIO_PROCESS, child.pid), session())
START.begin(); START.end(); START.end()
print(nices(), session())
go.set(); child.kill(); child.wait()
"""


def run(code, **options):
    words = [sys.executable, "-c", BEGIN + code]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=60, start_new_session=True, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_threads_and_children_are_raised_and_restored_and_the_session_is_left_alone():
    """A session would keep the priority of a start that is killed, and each such start would raise it further."""
    session = 0 if GROUPS.exists() else None
    raised, restored, again = run(THREADS)
    assert raised == f"{[OURS - 5] * 2} {OURS - 5} {session}"
    assert restored == f"{[OURS] * 2} {OURS} {session}"
    assert again == f"{[OURS] * 2} {session}"


def test_a_nice_start_stays_nice():
    lines = run("START.begin(); print(nices()); START.end(); print(nices())", preexec_fn=lambda: os.nice(7))
    assert lines == [str([OURS + 2]), str([OURS + 7])]


def test_it_is_restored_after_root_was_dropped():
    assert run(f"START.begin(); print(nices()); {DROP}; START.end(); print(nices())") == [str([OURS - 5]), str([OURS])]


def test_a_plain_user_changes_nothing():
    assert run(f"{DROP}; START.begin(); print(nices()); START.end()") == [str([OURS])]


def test_a_process_that_leads_a_session_is_preferred_to_other_sessions():
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as shell:
        try:
            while not (below := list(process.descendants(shell.pid))):
                pass
            process.prioritise(shell.pid, -7)
            assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in (shell.pid, *below)] == [-7, -7]
            if GROUPS.exists():
                assert Path(f"/proc/{shell.pid}/autogroup").read_text().split()[2] == "-7"
        finally:
            os.killpg(shell.pid, 9)
