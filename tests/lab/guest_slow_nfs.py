"""Inside a lab guest: files of an NFS mount that are written and closed, on a quick, a slow and then a dead network.

    guest_slow_nfs.py RESULT

The time of each close and open is measured in the program that calls them, beside latmon's report.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "helpers"), *os.environ["PYTHONPATH"].split(":")]

from guest_counts import NFS_SERVER  # noqa: E402 - its place is known only now
from guest_findings import WORK, say  # noqa: E402
from guest_stages import run  # noqa: E402
from terminal import wait_for  # noqa: E402
from workload import STARTING_S, Capture, now_us  # noqa: E402

from latmon.model import measurements  # noqa: E402

DELAY_MS = 40
"""Of each packet over lo, so of a round trip twice that."""
LASTS_S = {"quick": 45, "slow": 90}
"""An emulated guest on a busy host may read mountstats every 30 s only, for 0.5 % of a CPU."""
SILENT_S = 55
"""An emulated guest looks at all threads every 15 s."""
PAUSE_S = 0.1
CONTENT = b"x" * 16_384


def written(seconds: float) -> dict[str, list[float]]:
    """Write files and close them for so long; return the times of the calls in ms."""
    times: dict[str, list[float]] = {"open": [], "write": [], "close": []}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        file = os.open("/mnt/nfs/file", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        opened = time.monotonic()
        os.write(file, CONTENT)
        wrote = time.monotonic()
        os.close(file)
        closed = time.monotonic()
        for name, duration in (("open", opened - begun), ("write", wrote - opened), ("close", closed - wrote)):
            times[name].append(1000 * duration)
        time.sleep(PAUSE_S)
    return times


def main(result: str) -> None:
    WORK.mkdir(exist_ok=True)
    subprocess.run(["sh", "-exc", NFS_SERVER], check=True)
    spans = {}
    with Capture(WORK, "--backend", "bpftrace", "--stages", "all", "--interval", "5s") as capture:
        say("the first frame came")
        capture.watch.stop()

        def is_traced() -> bool:
            written(1)
            return any(frame[measurements.FILES] for frame in capture.frames())

        wait_for(is_traced, STARTING_S, 1.0)
        say("files are traced")
        for name in ("quick", "slow"):
            if name == "slow":
                run("modprobe", "sch_netem")
                run(*f"tc qdisc add dev lo root netem delay {DELAY_MS}ms".split())
            begun_us = now_us()
            times = written(LASTS_S[name])
            spans[name] = {"us": [begun_us, now_us()], "ms": times}
            say(name)
        time.sleep(8)
        begun_us = now_us()
        run(*["tc", "qdisc", "change", "dev", "lo", "root", "netem", "loss", "100%"])
        with ThreadPoolExecutor() as pool:
            pool.submit(written, 1)
            time.sleep(SILENT_S)
            spans["silent"] = {"us": [begun_us, now_us()]}
            run(*["tc", "qdisc", "del", "dev", "lo", "root"])
        say("silent")
        time.sleep(8)
        code, stderr = capture.stop(), capture.stderr
    shutil.copy(capture.file, Path(result).parent / "all.latmon.jsonl.gz")
    Path(result).write_text(json.dumps({"exit": code, "stderr": stderr, "spans": spans}))


if __name__ == "__main__":
    main(*sys.argv[1:])
