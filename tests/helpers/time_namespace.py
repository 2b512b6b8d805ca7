"""A time namespace whose clocks are a day from the host's, for tests that start a program in it.

The two offsets differ, so that neither passes for the other.
"""

import os
import shutil
import subprocess
import sys
import time

import pytest

MONOTONIC_S, BOOTTIME_S = 86_400, 90_007
AHEAD = ("unshare", "--time", f"--monotonic={MONOTONIC_S}", f"--boottime={BOOTTIME_S}")
"""Words that start a command there. Without --fork, signals reach the command itself."""


def _why_not() -> str:
    """Return why no command can be started there; empty where one can."""
    if os.geteuid() != 0:
        return "needs root: only it makes a time namespace"
    if shutil.which(AHEAD[0]) is None:
        return "needs unshare"
    clock = [sys.executable, "-I", "-c", "import time; print(time.monotonic())"]
    done = subprocess.run([*AHEAD, *clock], capture_output=True, text=True, check=False)
    if done.returncode:
        return "unshare makes no time namespace here, which needs Linux 5.6 and util-linux 2.36"
    if float(done.stdout) - time.monotonic() < MONOTONIC_S / 2:
        return "exec doesn't enter a time namespace here, which needs Linux 6.2"
    return ""


WHY_NOT = _why_not()
needs_time_namespace = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
