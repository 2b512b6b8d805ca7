"""The bpftrace of this host and of two other Debian releases, for tests that run what we ship on each of them.

The host's runs by default; the others under the marker `versions`, from the chroots of tests/lab/bpftrace-in.
"""

import os
import shutil
from pathlib import Path

import pytest

from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.program import BpftraceTool

IN_CHROOT = Path(__file__).resolve().parents[1] / "lab/bpftrace-in"
ROOT = os.geteuid() == 0
TIMEOUT_S = 60


def _wanting() -> str:
    if not ROOT:
        return "needs root: bpftrace runs for no other user"
    return (
        ""
        if os.environ.get(bpftrace_program.VARIABLE) or shutil.which("bpftrace")
        else "bpftrace is not installed here"
    )


each_bpftrace = pytest.mark.parametrize(
    "suite",
    [
        pytest.param("host", marks=[pytest.mark.live, pytest.mark.skipif(bool(_wanting()), reason=_wanting() or "-")]),
        *(
            pytest.param(suite, marks=[pytest.mark.versions, pytest.mark.skipif(not ROOT, reason="needs root")])
            for suite in ("trixie", "sid")
        ),
    ],
)


def tool(suite: str, directory: Path) -> BpftraceTool:
    """Name the tool as a user would: by a wrapper's absolute path, which is written to `directory`."""
    if suite == "host":
        return bpftrace_program.find()
    wrapper = directory / f"bpftrace-of-{suite}"
    wrapper.write_text(f'#!/bin/sh\nexec {IN_CHROOT} {suite} "$@"\n')
    wrapper.chmod(0o755)
    return bpftrace_program.find({**os.environ, bpftrace_program.VARIABLE: str(wrapper)})
