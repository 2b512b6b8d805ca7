"""The real DTrace for tests of the backend: LATMON_DTRACE's or that of tests/lab/dtrace-in; what it leaves behind."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from latmon_backends.dtrace import program as dtrace_program

IN_CHROOT = Path(__file__).resolve().parents[1] / "lab/dtrace-in"
DTRACE = os.environ.get(dtrace_program.VARIABLE) or str(IN_CHROOT)
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "latmon-chroot"
CACHE = os.environ.get("LATMON_CHROOT_CACHE") or str(_CACHE)
"""Directory of the chroots, passed to a latmon under sudo: its home is another user's."""
_BUILT = Path(CACHE) / "dtrace-sid.done"
STARTING_S = 120.0
needs_dtrace = [
    pytest.mark.dtrace,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: DTrace runs for no other user"),
    pytest.mark.skipif(
        str(IN_CHROOT) == DTRACE and not _BUILT.exists(), reason="needs a DTrace (tests/lab/dtrace-in --build)"
    ),
    pytest.mark.skipif(
        not all(map(shutil.which, ("fio", "losetup", "bpftool"))), reason="needs fio, losetup and bpftool"
    ),
]
_EVENTS = [Path("/sys/kernel/tracing") / name for name in ("kprobe_events", "uprobe_events")]


def tool():
    """Return the tool as the backend finds it."""
    return dtrace_program.find({**os.environ, dtrace_program.VARIABLE: DTRACE})


def tools(processes):
    """Process ids of the dtraces among (pid, command line)."""
    return [pid for pid, command in processes if command.startswith("dtrace ")]


class Traces:
    """A dtrace's objects in the kernel: its events in tracefs and its BPF programs."""

    def __init__(self, pid):
        self.pid = pid
        self.programs = set()
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                self.programs |= {int(line.split()[1]) for line in info.read_text().splitlines() if "prog_id" in line}

    def left(self):
        """Return the objects that still exist, and the process."""
        events = [
            line
            for file in _EVENTS
            if file.exists()
            for line in file.read_text().splitlines()
            if f"dt_{self.pid}_" in line
        ]
        programs = [f"program {number}" for number in self.programs if _is_there(number)]
        return [*events, *programs, *([self.pid] if Path(f"/proc/{self.pid}").exists() else [])]


def _is_there(program):
    command = ["bpftool", "prog", "show", "id", str(program)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
