"""Inside a lab guest: reads at a steady rate while the clock is set forward and the machine is paused for a while.

The file `pause` asks the host to pause this machine. The results are JSON in the file that is named.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import disks  # noqa: E402 - its place is known only now
from workload import Capture, fio  # noqa: E402

SETTLED_S = 4.0
PAUSED_S = 8.0
"""A jump of the clock by so much between two looks is the pause."""
PATIENCE_S = 600.0
RATE = 50


def load(until: threading.Event, directory: Path, disk: str, issued: list[int]) -> None:
    """Read at a steady rate until the event is set; the number of I/Os of each run goes to `issued`."""
    job = {"name": "job", "filename": f"/dev/{disk}", "size": "64M", "rw": "randread", "rate_iops": RATE}
    while not until.is_set():
        issued.append(fio(directory, 2, job)["job"]["read"].count)


def wait_for_pause(asks: Path) -> float:
    """Ask for the pause and return the length of the machine's pause, in s."""
    before = time.monotonic()
    begun = before
    asks.touch()
    while (now := time.monotonic()) - before < PAUSED_S:
        if now - begun > PATIENCE_S:
            raise TimeoutError("this machine was not paused")
        before = now
        time.sleep(0.05)
    return now - before


def main(result: Path) -> None:
    disk = disks()[0]
    work = Path("/tmp/latmon-lab")
    work.mkdir()
    until, issued = threading.Event(), list[int]()
    with Capture(work, "--backend", "bpftrace") as capture:
        reading = threading.Thread(target=load, args=(until, work, disk, issued))
        reading.start()
        time.sleep(SETTLED_S)
        subprocess.run(["date", "-s", "+1 hour"], check=True, stdout=subprocess.DEVNULL)
        time.sleep(SETTLED_S)
        paused_s = wait_for_pause(result.with_name("pause"))
        time.sleep(SETTLED_S)
        until.set()
        reading.join()
        time.sleep(SETTLED_S)
        exit_code = capture.stop()
        frames = capture.frames()
        reported = {
            "exit": exit_code,
            "stderr": capture.stderr,
            "paused_s": paused_s,
            "issued": sum(issued),
            "diskstats": capture.watch.between(0, 2**63, disk)["read"][0],
            "disk": disk,
            "gaps": [frame.gap for frame in frames if frame.gap],
            "late_us": [frame.dt_us for frame in frames if frame.late],
            "steps_s": [b.wall - a.wall - b.dt_us / 1e6 for a, b in itertools.pairwise(frames)],
            "report": capture.report(),
        }
    result.write_text(json.dumps(reported))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
