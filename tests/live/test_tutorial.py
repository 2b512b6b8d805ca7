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
    return [line.strip() for line in section.splitlines() if re.match(r"    \S", line)]


def test_the_sick_disk_is_found_cured_and_removed(tmp_path):
    script = "\n".join(one for one in commands() if not one.startswith(NOT_HERE))
    program = f'latmon() {{ {sys.executable} -P -m latmon "$@"; }}\n'
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}", "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-euc", program + script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report, diff = done.stdout.split("I/Os of ", 1)
    assert "limit misconfigured (queue-depth-misconfigured)" in report
    assert "nr_requests of 4 can't fill the 128 that the driver takes" in " ".join(report.split())
    assert "finding gone: " in diff
    assert "nr_requests: 4 -> 128" in diff
    assert list(tmp_path.iterdir()) == []
    assert not Path("/dev/shm/sick.img").exists()
    assert "sick.img" not in subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
