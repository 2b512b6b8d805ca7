"""The sick disk of docs/TUTORIAL.md: its commands, word for word, find, cure and prove, and leave nothing behind."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "TUTORIAL.md").read_text("utf-8")
NOT_HERE = ("sudo -s", "alias latmon=", "latmon --device", "exit")
"""Another shell, and the live screen, which needs a terminal."""
CLEAN_UP = "kill $(jobs -p) 2>/dev/null; losetup --detach ${disk-} 2>/dev/null; rm -rf ${dir-}"
"""It removes what a script that fails leaves; a fio that runs on would keep the test waiting, too."""
pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("bpftrace", "fio", "losetup"))),
        reason="needs root, bpftrace, fio",
    ),
]


def commands() -> list[str]:
    section = PAGE.partition("\n## 4. ")[2].partition("\n## ")[0]
    typed = re.sub(r"(?s)```text.*?```", "", section)  # without quoted output
    return [line.strip() for line in typed.splitlines() if re.match(r"    \S", line)]


def test_the_sick_disk_is_found_cured_and_removed(tmp_path):
    script = "\n".join(command for command in commands() if not command.startswith(NOT_HERE))
    program = f"latmon() {{ {sys.executable} -P -m latmon \"$@\"; }}\ntrap '{CLEAN_UP}' EXIT\n"
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}", "XDG_CONFIG_HOME": str(tmp_path)}
    before = set(Path("/dev/shm").glob("sick.*"))
    done = subprocess.run(
        ["bash", "-uc", program + script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    report, _, diff = done.stdout.partition("I/Os of ")
    assert "limit misconfigured (queue-depth-misconfigured)" in report, done.stderr
    assert "nr_requests of 4 can't fill the 128 that the driver takes" in " ".join(report.split())
    assert "finding gone: " in diff
    assert "nr_requests: 4 -> 128" in diff
    assert list(tmp_path.iterdir()) == []
    assert set(Path("/dev/shm").glob("sick.*")) == before
    assert "/dev/shm/sick." not in subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
