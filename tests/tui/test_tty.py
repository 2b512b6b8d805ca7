"""The real thing on a real pty: bytes per second, what a terminal emulator shows of them, and every way out."""

import fcntl
import importlib
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from random import Random

import psutil
import pytest
from emulated import Watched, emulated, seen_cells
from terminal import Terminal as ShellTerminal
from terminal import wait_for

import latmon
from latmon.tui.terminal import missing_glyphs

PROGRAMS = Path(latmon.__file__).parent
PROGRAM = Path(__file__).with_name("on_a_tty.py")
COLOUR = re.compile(rb"\x1b\[[0-9;]*?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])[0-9;]*m")
BUDGET = 8_000
IDLE_LOOP_S = 0.1
"""CPU time of the loop of times_slower() on an idle machine."""
NOT_OURS = ("NO_COLOR", "COLORTERM", "TERM", "TZ", "COLUMNS", "LINES")
"""With a size in the environment, as pytest's workers have it, Textual never asks the terminal for its own."""


class Terminal:
    """A child on a pty of its own, as the session leader's shell would have it."""

    def __init__(self, size=(80, 24), *, bytes_per_s=None, **env):
        """With `bytes_per_s` it reads no faster, and answers requests for the position of its cursor."""
        self.size, self.bytes_per_s = size, bytes_per_s
        self.seen = b""
        self.answered = 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            clean = {k: v for k, v in os.environ.items() if k not in NOT_OURS}
            os.execve(
                sys.executable, [sys.executable, str(PROGRAM)], clean | {"TERM": "xterm-256color", "PACE": "1"} | env
            )
        self.before = termios.tcgetattr(self.fd)

    def read(self, seconds, until=None):
        """Read for so long, or until something was written; True when it was."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if until is not None and until in self.seen:
                return True
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, self.bytes_per_s // 20 if self.bytes_per_s else 1 << 16)
                except OSError:
                    break
                if self.bytes_per_s:
                    time.sleep(0.05)
                    asked = self.seen.count(b"\x1b[6n")
                    os.write(self.fd, b"\x1b[1;1R" * (asked - self.answered))
                    self.answered = asked
        return until is not None and until in self.seen

    def resize(self, rows, cells, done):
        """Wait for at most 60 s until it is `done`; what was seen before is forgotten. Two at once would be none."""
        self.size, self.seen, until = (cells, rows), b"", time.monotonic() + 60
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cells, 0, 0))
        while not done():
            assert time.monotonic() < until, self.screen()
            os.kill(self.pid, signal.SIGWINCH)
            self.read(1)

    def write(self, keys):
        os.write(self.fd, keys)

    def screen(self):
        """The terminal's screen after the bytes so far."""
        return self.emulator().display

    def emulator(self):
        return emulated(self.seen, *self.size)

    def end(self, seconds=60):
        """The exit status, and how long it took."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            if self.fd >= 0:
                self.read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), time.monotonic() - begin
            time.sleep(0.02)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        pytest.fail("it did not end")
        return None


@pytest.mark.slow
def test_a_slow_link_is_enough_and_shows_the_outliers():
    """On three terminals at once: each is looked at for seconds, in which it has little to do."""
    envs = [{}, {"TERM": "linux"}, {"NO_COLOR": "1"}]
    terminals = [Terminal(**env) for env in envs]
    for terminal in terminals:
        assert terminal.read(60, until=b"nvme5n1")
    read_all(terminals, 1.5)
    starts, begin = [len(terminal.seen) for terminal in terminals], time.monotonic()
    read_all(terminals, 3)
    took = time.monotonic() - begin
    for env, terminal, start in zip(envs, terminals, starts, strict=True):
        rate = (len(terminal.seen) - start) / took
        lines = terminal.screen()
        terminal.write(b"q")
        assert terminal.end()[0] == 0
        shows_the_outliers(env, terminal, lines)
        assert 0 < rate < BUDGET, env


STYLE = re.compile(rb"\x1b\[([\d;]*)m")
PARAMETER = re.compile(rb"[345]8;(?:5;\d+|2;\d+;\d+;\d+)|\d+")
FOREGROUND = re.compile(rb"3[0-7]$|9[0-7]$|38;[25]")
SEQUENCES = {
    "none": set(),
    "8": {b"3"},
    "16": {b"3", b"9"},
    "256": {b"38;5"},
    "truecolor": {b"38;2"},
}
"""Depth -> the kinds of foreground colours that are sent."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "depth"),
    [
        ({"TERM": "screen"}, "8"),
        ({"TERM": "vt100"}, "none"),
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "tmux-256color"}, "256"),
        ({"TERM": "screen", "COLORTERM": "truecolor"}, "8"),
        ({"TERM": "linux"}, "16"),
        ({"TERM": "linux", "THEME": "light", "RAMP": "inferno"}, "16"),
        ({"TERM": "xterm"}, "16"),
        ({"TERM": "xterm-16color"}, "16"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else value,
)
def test_a_terminal_gets_the_colours_that_it_has(env, depth):
    terminal = Terminal(**env)
    assert terminal.read(60, until=b"nvme5n1")
    terminal.read(2)
    emulator = terminal.emulator()
    terminal.write(b"q")
    assert terminal.end()[0] == 0
    shows_the_outliers(env, terminal, emulator.display)
    sent = {one for style in STYLE.findall(terminal.seen) for one in PARAMETER.findall(style)}
    kinds = {match[0] for one in sent if (match := FOREGROUND.match(one))}
    found = {kind if b";" in kind else kind[:1] for kind in kinds}
    assert found == SEQUENCES[depth]
    cells = {cell.fg for y in range(6, 20) for cell in emulator.buffer[y].values() if cell.data in "▀▄█▒▓░:·"}
    assert len(cells) >= {"none": 1, "8": 3, "16": 4}.get(depth, 5)


CP437 = {*map(chr, range(32, 127)), *bytes(range(128, 256)).decode("cp437"), *"☺☻♥♦♣♠•◘○◙♂♀♪♫☼►◄↕‼¶§▬↨↑↓→←∟↔▲▼"}
"""The characters of the Linux console's default font."""


@pytest.mark.slow
def test_the_linux_console_gets_only_glyphs_of_its_font():
    """The dashed line, triangles and bars in eighths were empty boxes there."""
    terminal = Terminal(TERM="linux")
    assert terminal.read(60, until=b"nvme5n1")
    shown = set()
    for key in (b"\t", b"\r", b"2", b"3", b"4", b"5", b"6", b"?"):
        terminal.read(1)
        shown.update(*terminal.screen())
        terminal.write(key)
    terminal.read(1)
    shown.update(*terminal.screen())
    terminal.write(b"\x1b")
    terminal.read(1)
    terminal.write(b"q")
    assert terminal.end()[0] == 0
    assert shown <= CP437
    assert shown >= set("►│┤└-▄")


def test_each_glyph_is_in_the_consoles_font_or_has_another_one():
    table = missing_glyphs({"TERM": "linux"})
    glyphs = {char for path in PROGRAMS.rglob("*.py") for char in path.read_text() if not char.isascii()}
    assert {char for char in glyphs if char.translate(table) not in CP437} == set()
    assert missing_glyphs({"TERM": "xterm-256color"}) == {}


SIZES = (b"99999;99999;0;0", b"0;0;0;0", b"24;99999;480;800", b"24;80;0;0")
"""Reports of a new size (lines, columns, both in pixels) that no terminal has; the last one's pixels are not known."""


@pytest.mark.slow
def test_bytes_that_are_no_text_impossible_sizes_and_ctrl_z_in_a_terminals_first_program_do_not_end_the_screen():
    terminal = Terminal()
    assert terminal.read(60, until=b"nvme5n1")
    terminal.write(b"\xff\xfe\x1b[M\x20\xc8\x30")
    terminal.read(1)
    terminal.write(b"\x1b")
    terminal.read(1)
    terminal.write(b"\x1a")
    assert terminal.read(60, until=b"no shell to go back to")
    for size in SIZES:
        terminal.write(b"\x1b[48;" + size + b"t")
        terminal.write(b"\x1b[<0;5;4M\x1b[<0;5;4m")  # a click divides by the size
    terminal.read(1)  # keys that come with a resize may be lost
    terminal.seen = b""
    terminal.write(b"6")
    assert terminal.read(60, until=b"evaluated"), terminal.seen[-2000:]
    assert re.search(rb"\x1b\[2[5-9];", terminal.seen) is None, "it draws below the last line"
    terminal.write(b"q")
    assert terminal.end()[0] == 0


@pytest.mark.slow
def test_the_screen_has_the_terminals_size_and_not_that_of_the_environment():
    """A container that was started with COLUMNS and LINES would keep them after each resize."""
    terminal = Terminal(COLUMNS="99999", LINES="3")
    assert terminal.read(60, until=b"nvme5n1")
    terminal.resize(30, 100, done=lambda: "q quit" in terminal.screen()[29])
    assert "LIVE" in terminal.screen()[0][80:]
    terminal.write(b"q")
    assert terminal.end()[0] == 0


PILOTED = """
import asyncio
from frames import Source, host
from latmon.support.theme import load_theme
from latmon.tui.app import LatmonApp
from latmon.views.selection import ScreenOptions

async def main():
    app = LatmonApp(Source(host(2, 3)), ScreenOptions(theme=load_theme("dark")), depth="256")
    async with app.run_test() as pilot:
        await pilot.press("ctrl+z")

asyncio.run(main())
"""


@pytest.mark.slow
def test_under_another_driver_the_job_is_not_suspended():
    """Ctrl-Z in a test stopped all that ran in its process group, pytest and the script around it too."""
    roots = os.pathsep.join(str(PROGRAMS.parent / one) for one in (".", "backends", "tests/helpers"))
    job = subprocess.Popen([sys.executable, "-c", PILOTED], process_group=0, env={**os.environ, "PYTHONPATH": roots})
    try:
        assert job.wait(60) == 0
    finally:
        job.kill()
        job.wait()


def read_all(terminals, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for terminal in terminals:
            terminal.read(0.05)


def shows_the_outliers(env, terminal, lines):
    assert lines[2].startswith(("▸nvme5n1", "►nvme5n1"))
    assert any(re.match(r"\s*\d+(us|ms|s)┤.*[▀▄█▒·:░]", line) for line in lines), "the outliers' cells"
    assert any(line.endswith(" not recording ") for line in lines)
    if "NO_COLOR" in env:
        assert not COLOUR.search(terminal.seen)
    if env.get("TERM") in ("linux", "screen"):
        assert b"38;5" not in terminal.seen
        assert b"38;2" not in terminal.seen


@pytest.mark.slow
def test_a_resize_sends_one_picture():
    """It was three: that of the size before, its lines at the new size, and those that belong there."""
    terminal = Terminal(PACE="600", COLORTERM="truecolor")
    assert terminal.read(60, until=b"nvme5n1")
    read_until_quiet(terminal)
    terminal.size, terminal.seen = (100, 30), b""
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    assert terminal.read(60, until=b"\x1b[30;")
    read_until_quiet(terminal)
    resized = len(terminal.seen)
    terminal.seen = b""
    terminal.write(b"\x0c")
    assert terminal.read(60, until=b"\x1b[30;")
    read_until_quiet(terminal)
    assert resized < 1.5 * len(terminal.seen)
    terminal.write(b"q")
    assert terminal.end()[0] == 0


@pytest.mark.slow
def test_partial_repaints_make_the_same_picture_as_a_whole_one():
    """After a sweep's worth of cell-wise repaints the terminal shows what a fresh drawing of it shows."""
    terminal = Terminal(PACE="0.05")
    assert terminal.read(60, until=b"nvme5n1")
    read_until_quiet(terminal)
    swept = terminal.screen()
    terminal.resize(30, 100, lambda: b"\x1b[30;" in terminal.seen)  # a resize draws everything again
    terminal.resize(24, 80, lambda: swept[1:-1] == terminal.screen()[1:-1])
    drawn = terminal.screen()
    terminal.write(b"q")
    assert terminal.end()[0] == 0
    assert swept[1:-1] == drawn[1:-1]


@pytest.mark.slow
@pytest.mark.parametrize("env", [{"COLORTERM": "truecolor"}, {}, {"TERM": "linux"}], ids=["truecolor", "256", "16"])
def test_after_any_keys_and_resizes_the_terminal_shows_what_a_redraw_shows(env):
    terminal, rng = Terminal(PACE="0.1", **env), Random(5)
    assert terminal.read(60, until=b"nvme5n1")
    for size in ((24, 80), (40, 120), (24, 80), (30, 101)):
        if size != (24, 80) or terminal.size != (80, 24):
            last = b"\x1b[%d;" % size[0]
            terminal.resize(*size, lambda last=last: last in terminal.seen)
        for _ in range(25):
            terminal.write(rng.choice(KEYS))
            terminal.read(rng.choice((0.0, 0.05, 0.3)))
        terminal.write(b"\x1b")
        read_until_quiet(terminal)
        before = seen_cells(terminal.emulator())
        terminal.seen, end = b"", time.monotonic() + 60
        while b"\x1b[%d;" % size[0] not in terminal.seen and time.monotonic() < end:
            terminal.write(b"\x0c")
            read_until_quiet(terminal)
        assert before == seen_cells(terminal.emulator())
    terminal.write(b"\x03")
    assert terminal.end()[0] == 0


ARROWS = (b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[6~")
KEYS = [*(bytes([key]) for key in b"123456+-forv[]dai?I\t\r"), *ARROWS, b"\x1b", b"\x1b"]


def read_until_quiet(terminal):
    """Until nothing was written for a second, after the last frame and the last message."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        size = len(terminal.seen)
        terminal.read(1)
        if len(terminal.seen) == size:
            return


@pytest.mark.slow
def test_on_a_link_of_9600_baud_a_key_comes_before_the_pictures_that_wait():
    """Counted in bytes, which are the time on such a link: 960 are a second."""
    terminal = Terminal(bytes_per_s=960)
    assert terminal.read(120, until=b"evaluated") or terminal.read(1, until=b"nvme5n1")
    terminal.read(6)
    before = len(terminal.seen)
    terminal.write(b"\x1b[B")
    end = time.monotonic() + 60
    while any(line.startswith("▸nvme5n1") for line in terminal.screen()) and time.monotonic() < end:
        terminal.read(0.5)
    took = len(terminal.seen) - before
    terminal.bytes_per_s = None
    terminal.write(b"q")
    assert terminal.end()[0] == 0
    assert took < 4 * 960


def test_a_signal_leaves_a_sane_terminal():
    """tests/live/test_processes.py leaves the whole program in all other ways."""
    terminal = Terminal()
    assert terminal.read(60, until=b"nvme5n1")
    os.kill(terminal.pid, signal.SIGQUIT)
    assert terminal.end()[0] == 131
    for left in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l"):
        assert left in terminal.seen
    assert termios.tcgetattr(terminal.fd) == terminal.before


@pytest.mark.slow
def test_a_terminal_that_is_frozen_can_be_killed():
    """The terminal is not read: Textual's writer fills and its event loop stops; SIGTERM still ends it."""
    terminal = Terminal(PACE="0.001")
    assert terminal.read(60, until=b"nvme5n1")
    fd, terminal.fd = terminal.fd, -1
    for _ in range(3000):
        try:
            os.set_blocking(fd, False)
            os.write(fd, b"t")  # each key repaints the whole screen
        except BlockingIOError:
            break
    time.sleep(0.5)
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end()[0] == 143
    os.close(fd)


@pytest.mark.slow
def test_a_source_that_refuses_is_a_sentence_on_a_sane_terminal():
    terminal = Terminal(REFUSE="no usable backend here: try sudo")
    assert terminal.end()[0] == 3
    assert terminal.seen.endswith(b"latmon: no usable backend here: try sudo\r\n")
    assert b"\x1b[?1049l" in terminal.seen


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: bpftrace, in whose place a program is, runs for no other")
def test_five_thousand_devices_on_a_terminal(tmp_path, monkeypatch, alone):
    """From a probe's output to the screen: the worst device is in the first row, and sorting and leaving still work."""
    bench = Path(__file__).resolve().parents[1] / "bench"
    monkeypatch.syspath_prepend(bench)
    large_host = importlib.import_module("large_host")
    host = large_host.LargeHost(tmp_path / "host", 5000, 200)
    host.write()
    slowest = large_host.disk_name(100 * 5000 // 200)  # of the busy ones the one in the middle
    words = (sys.executable, "-P", str(bench / "large_screen.py"), str(host.root))
    variables = {"LATMON_BPFTRACE": str(host.bpftrace)}
    with alone(), ShellTerminal(words, tmp_path, size=(50, 160), **variables) as terminal:
        watched = Watched(lambda: terminal.output, 160, 50)
        shown = wait_for(lambda: first_device(watched.lines()) == slowest, 240, 0.5)
        assert shown, "\n".join(watched.lines())
        lines = watched.lines()
        assert any("5,000" in line for line in lines), lines
        pids = [pid for pid, _ in terminal.processes("large_screen.py")]
        assert len(pids) == 2
        assert sum(psutil.Process(pid).memory_info().rss for pid in pids) < 600e6
        time.sleep(20)  # sysfs is read for the first time
        before, begun, slower = sum(cpu_s(pid) for pid in pids), time.monotonic(), []
        while time.monotonic() < begun + 10:
            time.sleep(1)
            slower.append(times_slower())
        spent = (sum(cpu_s(pid) for pid in pids) - before) / (time.monotonic() - begun)
        terminal.type(b"q")
        assert not terminal.left(30)
    busy = max(statistics.median(slower), 1)
    print(
        f"screen and collector of 5,000 devices: {100 * spent:.0f} % of a CPU that is {busy:.2f} times slower than idle"
    )
    assert spent / busy < 0.6


def times_slower():
    """Return how many times longer a loop takes in CPU time than on an idle machine.

    Where other processes use the caches and the other thread of a core, the same work takes more CPU time.
    """
    begun = time.process_time()
    for _ in range(20):
        sorted({f"sd{n}": (n % 7, -n) for n in range(5_000)}.items(), key=lambda item: item[1])
    return (time.process_time() - begun) / IDLE_LOOP_S


def first_device(lines):
    """Return the name in the first row of the device table."""
    at = next((at for at, line in enumerate(lines) if re.search(r"IOPS.*p99", line)), len(lines))
    words = " ".join(lines[at + 1 : at + 2]).strip("\u2502 \u25b8").split()
    return words[0] if words else ""


def cpu_s(pid):
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


@pytest.mark.parametrize(
    ("attributes", "setting", "has_truecolor"),
    [
        pytest.param(b"\x1b[?65;1;9c", b"\x1bP1$r0;38:2::1:2:3m\x1b\\", True, id="a terminal behind ssh"),
        pytest.param(b"\x1b[?64;1c", b"\x1bP1$r0;38:5:16m\x1b\\", False, id="a palette of 256"),
        pytest.param(b"\x1b[?1;2c", b"", False, id="tmux: it is not asked"),
    ],
)
def test_a_terminal_is_asked_for_its_colours_and_keeps_its_keys(attributes, setting, has_truecolor):
    terminal = Terminal()
    assert terminal.read(60, until=b"\x1b[c")
    terminal.write(attributes)
    if setting:
        assert terminal.read(60, until=b"\x1bP$qm\x1b\\")
        terminal.write(setting)
    assert terminal.read(60 if has_truecolor else 3, until=b"48;2;") is has_truecolor
    assert (b"$qm" in terminal.seen) is bool(setting)
    terminal.write(b"q")
    assert terminal.end()[0] == 0
