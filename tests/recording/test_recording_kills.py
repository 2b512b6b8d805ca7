"""kill -9 of a recording process, at any moment, with real processes and a real file; and a real disk that is full."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon.capture.registry import Request
from latmon.capture.session import Session
from latmon.cli.check import repair, survey
from latmon.model.frame import Frame
from latmon.recording.codec import End, Gap
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.support.errors import RecordingError, UnavailableError

ROOT = Path(__file__).parents[2]
LATMON = (sys.executable, "-m", "latmon")
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "backends")))}
AT_ONCE = 4
FAST = ("--backend", "procfs", "--interval", "100ms")


class Command:
    """A latmon without a screen."""

    def __init__(self, *words):
        self._process = subprocess.Popen([*LATMON, *map(str, words)], env=ENVIRON, stderr=subprocess.DEVNULL)

    def kill(self):
        self._process.kill()
        self._process.wait(60)


class Collector:
    """The collector of a latmon with a screen, which outlives it."""

    def __init__(self, path):
        self._session = Session(Request("procfs", Options(interval_us=100_000), record=path))

    def kill(self):
        os.kill(self._session.pid, signal.SIGKILL)
        self._session.close()


KINDS = {
    "a capture": lambda path: Command(*FAST, "--record", path),
    "the demo, as fast as it can": lambda path: Command("demo", "--record", path, "--duration", "10h"),
    "a collector": Collector,
}


def windows(path):
    try:
        return [item for item in open_recording(path) if isinstance(item, Frame)]
    except RecordingError:  # killed before its header was there
        return []


def gaps(path):
    return [item for item in open_recording(path) if isinstance(item, Gap)]


def until(true, seconds=120.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for(path):
    until(lambda: path.exists() and path.stat().st_size)


@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=() if one == "a capture" else pytest.mark.slow) for one in KINDS]
)
@pytest.mark.parametrize("kills", [1, pytest.param(67, marks=pytest.mark.slow)])
def test_a_kill_loses_nothing_that_was_written(tmp_path, kind, kills):
    rng = random.Random(kills)
    cut = late = total = 0
    for first in range(0, kills, AT_ONCE):
        paths = [tmp_path / f"r{number}" for number in range(first, min(first + AT_ONCE, kills))]
        running = [KINDS[kind](path) for path in paths]
        for path, recorder in zip(paths, running, strict=True):
            wait_for(path)
            time.sleep(rng.uniform(0, 0.3 if "demo" in kind else 1.5))
            acknowledged = windows(path)
            recorder.kill()
            kept = windows(path)
            assert kept[: len(acknowledged)] == acknowledged
            total += len(kept)
            late += len(kept) - len(acknowledged)
            cut += is_clean_but_for_its_end(path, tmp_path / "copy", kept)
    print(f"{kind}: {kills} kills, {total} windows read, {cut} members cut, {late} written since the last look")


def is_clean_but_for_its_end(path, copy, kept):
    """How many members were cut: one at most. The copy has all windows and is clean."""
    recording = open_recording(path)
    check_report = survey(recording)
    *cut, last = check_report.damages
    assert last.what == UNCLOSED
    assert ["cut off" in damage.what for damage in cut] in ([], [True])
    copy.unlink(missing_ok=True)
    repair(recording, copy)
    assert windows(copy) == kept
    assert [item.reason for item in open_recording(copy) if isinstance(item, End)] == ["repaired"]
    return len(cut)


@pytest.fixture
def disk(tmp_path):
    """Makes a real file system of so many kB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    place = tmp_path / "disk"
    place.mkdir()

    def mounted(size_kb):
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", place]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("a tmpfs can't be mounted here")
        return place

    yield mounted
    subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)


def fill(place):
    """All of the room that is left, in one file: in pieces, for a recorder takes some of it meanwhile."""
    hog = place / "hog"
    with hog.open("wb") as file:
        for piece in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
    assert os.statvfs(place).f_bavail == 0
    return hog


UNGUARDED = (
    "import sys; from latmon.cli.main import run; from latmon.capture import target; "
    "target.MIN_FREE_BYTES = target.MIN_FREE_SHARE = 0; "
    "sys.exit(run(sys.argv[1:]))"
)
"""latmon on a disk that is smaller than it would accept."""


class Watched:
    """A capture of the demo's windows, 15 kB each, a second apart; its progress is read on a terminal of its own."""

    def __init__(self, path):
        self._ours, theirs = os.openpty()
        words = ("--backend", "demo", "--record", str(path))
        self.process = subprocess.Popen([sys.executable, "-c", UNGUARDED, *words], env=ENVIRON, stderr=theirs)
        os.close(theirs)
        self.output = ""

    def until(self, seconds):
        """It has recorded, or tried to record, so many."""
        end = time.monotonic() + 120
        while self.seconds() < seconds:
            ready, _, _ = select.select([self._ours], [], [], max(0, end - time.monotonic()))
            assert ready, self.output
            self.output += os.read(self._ours, 65536).decode()

    def seconds(self):
        return max(map(int, re.findall(r"\r(\d+) s, [\d,]+ I/Os", self.output)), default=0)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):
            while more := os.read(self._ours, 65536):
                self.output += more.decode()
        os.close(self._ours)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Whatever was found: a process that goes on would keep its disk."""
        self.process.kill()
        self.process.wait(60)


@pytest.mark.slow
def test_a_capture_goes_on_when_a_full_disk_has_room_again(disk):
    place = disk(8192)
    path = place / "r"
    with Watched(path) as latmon:
        until(lambda: len(windows(path)) >= 5)
        hog = fill(place)
        latmon.until(latmon.seconds() + 2)
        time.sleep(1)  # the file is written behind the frames
        hog.unlink()
        until(lambda: isinstance(list(open_recording(path))[-1], Frame) and gaps(path))
        assert latmon.end() == 4, latmon.output
    assert "Traceback" not in latmon.output
    items = list(recording := open_recording(path))
    [gap] = gaps(path)
    frames = [item for item in items if isinstance(item, Frame)]
    assert gap.reason == "enospc"
    assert len(frames) + gap.seconds == frames[-1].seq + 1, "each second is in it, or in a gap"
    check_report = survey(recording)
    assert [damage.what for damage in check_report.damages if damage.what != UNCLOSED] == []
    fill(place)
    with pytest.raises(UnavailableError, match=r"can't write .*/copy: No space left on device$"):
        repair(recording, place / "copy")
    assert not (place / "copy").exists()


@pytest.mark.slow
def test_a_capture_ends_when_a_disk_stays_full(disk):
    place = disk(400 * 1024)
    path = place / "r"
    with subprocess.Popen([*LATMON, *FAST, "--record", path], env=ENVIRON, stderr=subprocess.PIPE) as latmon:
        try:
            wait_for(path)
            time.sleep(1.5)
            fill(place)
            text = latmon.stderr.read().decode()
        finally:
            latmon.kill()
    assert latmon.returncode == 4
    assert "are free beside" in text
    assert "Traceback" not in text
    assert len(windows(path)) >= 9
    check_report = survey(open_recording(path))
    # The closing line is written where the file's last block has room for it.
    assert {damage.what for damage in check_report.damages} <= {UNCLOSED}
