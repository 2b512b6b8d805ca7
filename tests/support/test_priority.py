"""The raised priority of a start: of this process and its session, restored for every thread and child."""

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
groups = pytest.mark.skipif(not GROUPS.exists() or not GROUPS.read_text(), reason="this kernel has no autogroups")
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


def run(code, start="", **options):
    words = [sys.executable, "-c", BEGIN + code, start]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=60, start_new_session=True, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_threads_children_and_the_session_are_raised_and_restored():
    raised, restored, again = run(THREADS)
    has_groups = GROUPS.exists()
    assert raised == f"{[OURS - 5] * 2} {OURS - 5} {-5 if has_groups else None}"
    assert restored == f"{[OURS] * 2} {OURS} {0 if has_groups else None}"
    assert again == f"{[OURS] * 2} {0 if has_groups else None}"


@groups
@pytest.mark.parametrize("killed", ["a start alone", "one of two"])
def test_a_start_that_is_killed_leaves_the_session_as_it_was(killed):
    """Each start that was killed would raise it further, and other sessions would starve."""
    start = "START.begin(); print('up', flush=True); sys.stdin.readline(); START.end(); print('over', flush=True)"
    code = f"""
import time
def start():
    words = [sys.executable, "-c", sys.argv[1]]
    one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert one.stdout.readline() == "up\\n"
    return one
def settled(value):
    end = time.monotonic() + 60
    while session() != value and time.monotonic() < end:
        time.sleep(0.02)
    return session()
some = [start() for _ in range({1 if killed == "a start alone" else 2})]
print(session())
some[0].kill()
some[0].wait()
print(settled(0))
for one in some[1:]:
    print(*one.communicate("\\n"), session())
"""
    raised, *others = run(code, start=BEGIN + start)
    assert raised == "-5"
    assert others[0] == "0"
    assert others[1:] == ([] if killed == "a start alone" else ["over", " None 0"])


@groups
def test_a_session_that_has_a_priority_keeps_it():
    code = (
        "open('/proc/self/autogroup', 'w').write('3'); START.begin(); print(session()); START.end(); print(session())"
    )
    assert run(code) == ["3", "3"]


def test_a_nice_start_stays_nice():
    lines = run("START.begin(); print(nices()); START.end(); print(nices())", preexec_fn=lambda: os.nice(7))
    assert lines == [str([OURS + 2]), str([OURS + 7])]


def test_it_is_restored_after_root_was_dropped():
    first, last = run(f"START.begin(); print(nices(), session()); {DROP}; START.end(); print(nices(), session())")
    assert first.startswith(str([OURS - 5]))
    assert last == f"{[OURS]} {0 if GROUPS.exists() else None}"


def test_a_plain_user_changes_nothing():
    (line,) = run(f"{DROP}; START.begin(); print(nices(), session()); START.end()")
    assert line == f"{[OURS]} {0 if GROUPS.exists() else None}"


@groups
def test_a_session_is_restored_whose_leader_has_ended():
    """Start latmon as a command does that ssh started and that outlives its shell."""
    code = """
import time
leader = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == leader:
    time.sleep(0.02)
START.begin()
print(session())
START.end()
print(session(), flush=True)
"""
    assert run(code) == ["-5", "0"]


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
