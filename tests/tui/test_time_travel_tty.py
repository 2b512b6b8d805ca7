"""The demo on a real pty: back in time, a mark, a file of what was on the screen, and back to the newest."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

import pyte
import pytest

from latmon.model.frame import Frame
from latmon.recording.reader import open_recording

NOT_OURS = ("NO_COLOR", "COLORTERM", "TERM", "COLUMNS", "LINES")


class Demo:
    """A demo on a pty of 80x24."""

    def __init__(self, directory):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.chdir(directory)
            paths = os.pathsep.join(one for one in sys.path if one.startswith("/"))
            kept = {key: value for key, value in os.environ.items() if key not in NOT_OURS}
            env = kept | {"TERM": "xterm-256color", "NO_COLOR": "1", "TZ": "UTC", "PYTHONPATH": paths}
            os.execve(sys.executable, [sys.executable, "-m", "latmon", "demo"], env)
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)

    def until(self, pattern, seconds=40):
        """The screen, once it shows this."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                # pyte takes kitty's and Textual's private modes for text
                self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z]", b"", os.read(self.fd, 1 << 16)))
            shown = "\n".join(self._screen.display)
            if re.search(pattern, shown):
                return shown
        raise AssertionError(f"no {pattern!r} on:\n{shown}")

    def press(self, keys):
        os.write(self.fd, keys)


@pytest.mark.slow
def test_a_user_goes_back_marks_and_saves(tmp_path):
    demo = Demo(tmp_path)
    try:
        demo.until(r"DEMO")
        demo.until(r"sdd")
        demo.press(b"m")
        demo.until(r" mark ")
        demo.press(b"before the change\r")
        demo.until(r"─M─")
        demo.press(b"{")
        at = re.search(r"PAUSED (\d\d:\d\d:\d\d)", demo.until(r"PAUSED \S+, [\d:]+ \w+ behind"))[1]
        demo.press(b"t")
        demo.until(r" time ")
        demo.press(b"+4s\r")
        demo.until(rf"PAUSED (?!{at})")
        time.sleep(2)
        for _ in range(5):
            shown = demo.until(r"[\d:]+ \w+ behind")
        device, ios = re.search(r"─ (\w+) .*?([\d,]+) I/Os", shown).groups()
        demo.press(b"w")
        demo.until(r"saved \d+ windows")
        demo.press(b"G")
        demo.until(r"last 60 s +DEMO")
        demo.press(b"q")
        os.waitpid(demo.pid, 0)
    finally:
        os.close(demo.fd)
    recording = open_recording(next(tmp_path.glob("*.latmon.jsonl.gz")))
    windows = [frame for frame in recording if isinstance(frame, Frame)]
    assert not recording.damage
    seen = sum(
        h.count for window in windows for s, h in window.histograms.items() if s[0] == device and s[2] == "total"
    )
    assert f"{seen:,}" == ios
