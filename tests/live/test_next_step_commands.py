"""Every command that a finding marks as run, run here: on a loop device and a process of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_stages_c import loop  # noqa: F401 - a fixture is found by its name

from latmon.findings.rule import RAN

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists(), reason="needs root and loop devices"
    ),
]
NOTHING_FOUND = ("grep -w", "grep -iE", "grep -H")
"""grep finds nothing in a log without such lines: 1 is an answer."""


def irq():
    """The first interrupt that a device has, and where it may go now."""
    for path in sorted(Path("/proc/irq").glob("[0-9]*/smp_affinity_list")):
        if any(entry.is_dir() for entry in path.parent.iterdir()):
            return path.parent.name, path.read_text().strip()
    return None


def filled(line, disk, process):
    """The command with names and numbers of this host; None where the host has no such thing."""
    if "smp_affinity" in line:
        actual_irq = irq()
        return line.format(actual_irq[1], actual_irq[0]) if actual_irq else None
    queue = Path(f"/sys/block/{disk}/queue")
    values = {"nr_requests": "64", "scheduler": "none", "fifo_batch": "1", "wbt_lat_usec": "0"}
    name = next((name for name in values if line.endswith(name)), None)
    if name is not None:
        return line.format(values[name], disk) if queue.exists() else None
    number = next((row.split(":")[0].strip() for row in Path("/proc/interrupts").read_text().splitlines()[1:]), "1")
    words = {
        "taskset": ("0", str(process)),
        "chrt": (str(process),),
        "ionice": (str(process),),
        "ps": ("sleep",),
        "fio": (disk, "3"),
        "bpftrace": ("4",),
        "losetup": (disk,),
        **dict.fromkeys(("df", "du", "find"), ("/etc",)),
    }
    if line.startswith("grep '"):
        return line.replace("{}", number)
    for value in words.get(line.split()[0], ("loop",)):
        line = line.replace("{}", value, 1)
    return line


@pytest.mark.parametrize(
    "line",
    [pytest.param(one, marks=[pytest.mark.slow] * (one.split()[0] in ("fio", "bpftrace")), id=one[:50]) for one in RAN],
)
def test_a_command_of_a_next_step_works(line, loop):  # noqa: F811
    tool = line.split()[0]
    if tool != "echo" and not shutil.which(tool):
        pytest.skip(f"no {tool} here")
    disk = loop.name
    if "fifo_batch" in line:
        Path(f"/sys/block/{disk}/queue/scheduler").write_text("mq-deadline")
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            command = filled(line, disk, process.pid)
            if command is None:
                pytest.skip("this host has no such thing")
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
        finally:
            process.kill()
    assert done.returncode in ((0, 1) if any(part in line for part in NOTHING_FOUND) else (0,)), (command, done.stderr)
    assert "syntax" not in done.stderr
    assert done.stdout or tool in ("echo", "chrt") or " -c2 " in line or done.returncode == 1
