"""Cost of time travel: a seek and a step with their pictures, the first screen, and an hour of history."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from figures import Figure, Section

from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection
from latmon_backends.replay import Recorded, open_several

_SIZE = (160, 50)
_SEEKS = 8
_FAR = 997
"""Frames from one seek to the next: nothing of the one before is of use."""
_KEPT = """
import gzip, re, sys
from pathlib import Path
from latmon.recording.archive import Archive
from latmon.recording.codec import decode_frame
from latmon.recording.json_line import parse

def rss():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

archive, before = Archive(), rss()
with gzip.open(sys.argv[1]) as lines:
    for line in lines:
        if line.startswith(b'{"type":"window"'):
            archive.append(decode_frame(parse(line)), line)
print(archive.size, rss() - before)
"""


def looks(hour: Path, runs: range) -> Section:
    """Return the section on an hour's recording."""
    kept = [_kept(hour) for _ in runs[:1]]
    return Section(
        title="Back in time, an hour of 24 devices",
        method=(
            f"The recording above, the overview at {_SIZE[0]}x{_SIZE[1]}: everything from the key to the lines of the"
            " screen, CPU of one process, without Textual and the terminal. A seek is to a time of which nothing was"
            " decoded. Ten minutes are read between keys, 70 ms at a time. MB are 10^6 bytes."
        ),
        figures=[
            Figure("open, newest minute on the screen", _each(runs, lambda: _first(hour)), "ms", 1000, 0),
            Figure("seek, a minute on the screen", tuple(_seeks(hour, 60, len(runs) * _SEEKS)), "ms", 60, 0),
            Figure("step forward, a minute on the screen", tuple(_steps(hour, 60, 1, len(runs) * _SEEKS)), "ms", 15, 0),
            Figure("step back, a minute on the screen", tuple(_steps(hour, 60, -1, len(runs) * _SEEKS)), "ms", 15, 0),
            Figure("seek, ten minutes on the screen", tuple(_seeks(hour, 600, len(runs))), "ms", None, 0),
            Figure("step, ten minutes on the screen", tuple(_steps(hour, 600, 1, len(runs))), "ms", None, 0),
            Figure("the last hour of a live capture, compressed", tuple(size for size, _ in kept), "MB", None, 1),
            Figure("... with all that is known of it, growth of RSS", tuple(rss for _, rss in kept), "MB", 100, 1),
        ],
    )


def _scene(hour: Path, window_s: int = 60) -> Scene:
    recorded = Recorded(open_several([hour]))
    scene = Scene(Selection(window_us=window_s * 1_000_000), mode="REPLAY", archive=recorded)
    scene.opened(recorded.origin, recorded)
    return scene


def _shown(scene: Scene, number: int) -> None:
    stamps = scene.archive.stamps
    scene.travel(stamps[number % len(stamps)])
    screen_lines(scene, (), *_SIZE)


def _first(hour: Path) -> None:
    _shown(_scene(hour), -1)


def _seeks(hour: Path, window_s: int, many: int) -> list[float]:
    scene = _scene(hour, window_s)
    _shown(scene, 0)
    return [_cpu_ms(lambda at=at: _shown(scene, 700 + at * _FAR)) for at in range(1, many + 1)]


def _steps(hour: Path, window_s: int, by: int, many: int) -> list[float]:
    scene, begin = _scene(hour, window_s), 2000
    _shown(scene, begin)
    return [_cpu_ms(lambda at=at: _shown(scene, begin + by * at)) for at in range(1, many + 1)]


def _kept(hour: Path) -> tuple[float, float]:
    command = [sys.executable, "-c", _KEPT, str(hour)]
    reported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    size, rss = (int(one) / 1e6 for one in reported)
    return size, rss


def _each(runs: range, what: Callable[[], object]) -> tuple[float, ...]:
    return tuple(_cpu_ms(what) for _ in runs)


def _cpu_ms(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return (time.process_time() - began) * 1000
