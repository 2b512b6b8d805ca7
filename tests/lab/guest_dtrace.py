"""Inside a lab guest: latmon with DTrace's scripts while reads of known number run; what came of it as JSON.

    guest_dtrace.py requests_d|io_d invasive|harmless RESULT

Runs with the guest's own Python, like guest_stages.py beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_stages import debug_disk, mapped, run  # noqa: E402 - its place is known only now
from terminal import wait_for  # noqa: E402
from workload import Capture, diskstats, fio, gained  # noqa: E402

SECONDS = 6
DD_READS = 400
SETTLED_S = 6.0
WORK = Path("/tmp/latmon-lab")
DELAY_MS = 25
HOOKS = ("io:::wait-start", "io:::wait-done", "sched:::on-cpu", "fbt::submit_bio_wait:entry")
KPROBES = Path("/sys/kernel/tracing/kprobe_events")
WILD = "wild_d"
"""A script of our own on several functions: it counts their calls as wake-ups of a thread of its name."""
ON_DEMAND_S = 330.0
"""A start of DTrace takes 40 s in an emulated guest on a quiet host, and the on-demand scripts have their own."""
Told = dict[str, Any]


def dd(path: str) -> None:
    """Reads whose thread waits for each by itself."""
    run("dd", f"if={path}", "of=/dev/null", "bs=4k", f"count={DD_READS}", "iflag=direct")


def listed() -> list[str]:
    """Return the HOOKS that DTrace has here."""
    words = [word for hook in HOOKS for word in ("-n", hook)]
    text = subprocess.run(["dtrace", "-l", *words], capture_output=True, text=True, check=False)
    rows = [line.split() for line in text.stdout.splitlines()[1:]]
    return [f"{row[1]}:{':'.join(row[2:])}" for row in rows]


def captured(disk: str, volume: str, member: str, *words: str) -> Told:
    """The report of a capture around the loads; what the kernel's counters gained while DTrace counted."""
    with Capture(WORK, "--backend", "dtrace", "--stages", "all", *words) as capture:
        if not wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), ON_DEMAND_S, 2.0):
            sys.exit(f"no stages were traced within {ON_DEMAND_S:.0f} s: {capture.stop()} {capture.stderr}")
        time.sleep(2)
        before = diskstats()
        jobs = {
            "waited": {"filename": f"/dev/{disk}", "ioengine": "psync", "size": "64M"},
            "volume": {"filename": "/dev/mapper/lab", "ioengine": "psync", "size": "32M"},
        }
        issued = fio(WORK, SECONDS, *({"name": name, "rw": "randread", **job} for name, job in jobs.items()))
        dd(f"/dev/{disk}")
        time.sleep(SETTLED_S)
        after = diskstats()
        exit_code = capture.stop()
        shutil.copy(capture.file, Path(__file__).parents[2])  # beside the result
        return {
            "kernel": os.uname().release,
            "exit": exit_code,
            "stderr": capture.stderr,
            "report": capture.report(),
            "issued": {name: ops["read"].count for name, ops in issued.items()},
            "kernel_reads": {name: gained(before, after, name)["read"].count for name in (disk, volume, member)},
            "devices": {"disk": disk, "volume": volume, "member": member},
        }


def main(always: str, invasive: str, result: str) -> None:
    WORK.mkdir(exist_ok=True)
    probes = Path(__file__).parents[2] / "probes/dtrace"
    for other in {"requests_d", "io_d"} - {always}:  # the host's share is a copy of our own
        (probes / f"{other}.yaml").unlink()
    for suffix in ("yaml", "d"):
        shutil.copy(Path(__file__).with_name("wild") / f"{WILD}.{suffix}", probes)
    slow = debug_disk(DELAY_MS)
    disk = "nvme0n1"
    volume = mapped("lab", f"0 65536 linear /dev/{slow} 0")
    reported = {"before": KPROBES.read_text(), "hooks": listed()}
    reported |= captured(disk, volume, slow, *(("--invasive", WILD) if invasive == "invasive" else ()))
    wait_for(lambda: not subprocess.run(["pgrep", "-x", "dtrace"], capture_output=True, check=False).stdout, 30)
    Path(result).write_text(json.dumps(reported | {"after": KPROBES.read_text()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
