"""The priority of a process that latmon prefers, and of the session in which latmon is started."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from latmon.support import process

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="only root on Linux may raise a priority"
)
ROOT = Path(process.__file__).parents[2]
GROUPS = Path("/proc/self/autogroup")
groups = pytest.mark.skipif(not GROUPS.exists() or not GROUPS.read_text(), reason="this kernel has no autogroups")


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


@groups
@pytest.mark.parametrize("command", [("--backend", "procfs", "--once"), ("demo", "host", "--once")])
def test_the_session_that_latmon_is_started_in_keeps_its_priority(tmp_path, command):
    """A start that raised the session of a user's login left it raised where it was killed."""
    words = [sys.executable, "-m", "latmon", *command]
    seen = set()
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": str(tmp_path)}
    ) as latmon:
        while latmon.poll() is None:
            group = Path(f"/proc/{latmon.pid}/autogroup").read_text().split()[2:]
            seen.add((*group, os.getpriority(os.PRIO_PROCESS, latmon.pid)))
            time.sleep(0.01)
    assert seen - {(os.getpriority(os.PRIO_PROCESS, 0),)} == {("0", os.getpriority(os.PRIO_PROCESS, 0))}
    assert latmon.returncode == 0
