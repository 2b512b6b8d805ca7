"""A cast plays in asciinema itself, shows what the screen showed, and leaves the prompt below it."""

import os
import shutil
import subprocess
import time

import pytest

from latmon.cli import headless
from latmon.exporters.registry import ExportOptions, Source, writer
from latmon.exporters.screen import of_source, palette, windows
from latmon.recording.reader import open_recording
from latmon.support.theme import load_theme
from latmon.views.lines import fit, plain

PLAYER = os.environ.get("LATMON_ASCIINEMA") or shutil.which("asciinema")
WISH = ExportOptions(at="0s", duration_us=12_000_000)


def tmux(*args):
    return subprocess.run(
        ["tmux", "-L", f"cast{os.getpid()}", *args], capture_output=True, text=True, check=True
    ).stdout


def rows(text):
    return [line.rstrip() for line in text.split("\n")][:24]


@pytest.mark.slow
@pytest.mark.skipif(not PLAYER or not shutil.which("tmux"), reason="asciinema (or LATMON_ASCIINEMA) or tmux is missing")
def test_asciinema_shows_the_screens_that_the_recording_had(tmp_path):
    path, cast = tmp_path / "a.latmon.jsonl.gz", tmp_path / "a.cast"
    headless.record_demo("host", 1, path, 12_000_000)
    with cast.open("wb") as out:
        writer("cast", WISH)(Source(open_recording(path)), out, WISH)
    source = Source(open_recording(path))
    shown, screens = of_source(source, WISH, palette(load_theme("dark")).ink), []
    for frame in windows(source, 0):
        shown.append(frame)
        screens.append(rows("\n".join(plain(fit(line, 80)) for line in shown.lines())))
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    command = ["tmux", "-L", f"cast{os.getpid()}", "-u", "new-session", "-d", "-x", "80", "-y", "26"]
    subprocess.run([*command, f"{PLAYER} play {cast}; echo prompt; sleep 60"], check=True, env=env)
    try:
        tmux("set-option", "-g", "status", "off")
        time.sleep(6.5)
        middle = rows(tmux("capture-pane", "-p"))
        time.sleep(10)
        end = tmux("capture-pane", "-p")
    finally:
        tmux("kill-server")
    assert screens.index(middle) in range(3, 9)
    assert rows(end) == screens[-1]
    assert end.split("\n")[24] == "prompt"
