"""Two hours of a live screen, in real time: memory and open files of each process must not grow.

`python tests/bench/soak.py [HOURS]` runs it alone. It can be ended and started again: each minute is a line of
.cache/soak.jsonl, and what the present commit lacks of HOURS is run. Every run begins with new processes, so growth is
that within the longest run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

import processes
from cells import commit
from cost import VERSION_OF
from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, ROOT, Screen, shown
from tracing import tools
from usage import parts

from latmon_backends.bpftrace.program import VARIABLE

LOG = ROOT / ".cache/soak.jsonl"
_HOURS, _MINUTE_S = 2.0, 60.0
_DEVICES, _PER_SECOND = 24, 10
_FULL, _READINGS = 30, 10
"""Minutes after which memory is compared, and the readings at either end whose medians are."""
_GROWTH_MB = 5.0
_PATIENCE_S = 60.0
_VISIT = (b"?", b"\x1b", b"\r", b"\x1b")
"""Keys of each minute: the help and a device's page, and back."""


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    """`rounds` is not used: the log says how long it has run."""
    del rounds
    for _ in minutes(scratch, _HOURS):
        pass
    yield section(_logged())


def minutes(scratch: Path, hours: float) -> Iterator[dict[str, Any]]:
    """Run what the log lacks of so many hours; yield each minute after it was appended to the log."""
    done, code = _logged(), commit()
    left = round(hours * 60) - len(done)
    if left <= 0:
        return
    run = 1 + max((one["run"] for one in done), default=0)
    LOG.parent.mkdir(exist_ok=True)
    tool = tools(scratch)[VERSION_OF["A"]]
    words = (*LATMON, "--backend", "bpftrace")
    with (
        loops(_DEVICES, 16) as paths,
        trickle(paths, _PER_SECOND),
        shown(words, rows=50, columns=160, environ={VARIABLE: tool.path}) as screen,
    ):
        if screen.wait_for(rf"{Path(paths[0]).name}\b.*\d", _PATIENCE_S) is None:
            raise RuntimeError("latmon did not show its devices")
        pids = parts(screen)
        for minute in range(1, left + 1):
            _pass_a_minute(screen)
            line: dict[str, Any] = {
                "run": run,
                "minute": minute,
                "commit": code,
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            line |= {name: {"mb": processes.memory_mb(pid), "files": _files(pid)} for name, pid in pids.items()}
            with LOG.open("a") as log:
                log.write(json.dumps(line) + "\n")
            yield line


def section(lines: Sequence[dict[str, Any]]) -> Section:
    """Return the figures of the longest run of these lines."""
    runs: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        runs.setdefault(line["run"], []).append(line)
    longest = max(runs.values(), key=len, default=[])
    later = longest[_FULL:]
    figures = []
    for name in [name for name, value in later[-1].items() if isinstance(value, dict)] if later else ():
        memory = [one[name]["mb"] for one in later]
        grown = median(memory[-_READINGS:]) - median(memory[:_READINGS])
        figures += [
            Figure(f"{name}: RSS", tuple(memory), "MB", None, 1),
            Figure(f"{name}: growth of RSS after {_FULL} minutes", (grown,), "MB", _GROWTH_MB, 1),
            Figure(f"{name}: open files", tuple(float(one[name]["files"]) for one in later), ""),
        ]
    return Section(
        title=f"{len(longest)} minutes of a live screen",
        method=(
            f"Live bpftrace on {_DEVICES} loop devices, {2 * _PER_SECOND} I/Os per second each, 160x50, one reading per"
            f" minute; {len(lines)} minutes in {len(runs)} runs, this is the longest. Growth is the difference between"
            f" the medians of the first and the last {_READINGS} readings."
        ),
        figures=figures,
    )


def _pass_a_minute(screen: Screen) -> None:
    due = time.monotonic() + _MINUTE_S
    for key in _VISIT:
        screen.press(key)
        time.sleep(2.0)
    time.sleep(max(0.0, due - time.monotonic()))
    if screen.process.poll() is not None:
        raise RuntimeError("latmon ended")
    screen.chunks.clear()


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _logged() -> list[dict[str, Any]]:
    """Return the minutes of the present commit."""
    lines = [json.loads(line) for line in LOG.read_text().splitlines()] if LOG.exists() else []
    return [line for line in lines if line.get("commit") == commit()]


def main() -> None:
    """Run it alone, with a line per minute."""
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else _HOURS
    with tempfile.TemporaryDirectory(prefix="latmon-bench-") as scratch:
        for line in minutes(Path(scratch), hours):
            print(json.dumps(line), flush=True)
    print(section(_logged()).markdown("python tests/bench/soak.py", time.strftime("%Y-%m-%d", time.gmtime())))


if __name__ == "__main__":
    main()
