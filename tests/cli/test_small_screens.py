"""Screens without the TUI: one as plain text, a strip below the prompt, pictures of a demo; progress on stderr."""

import contextlib
import io
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pyte
import pytest
from emulated import emulated

from latmon import __version__
from latmon.cli import headless
from latmon.cli.main import run as main
from latmon.findings.rules import RULES
from latmon.support import streams

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
HOST_RECORDING_US = 2_000_000


def command(*words):
    return [sys.executable, "-m", "latmon", *words]


def environment(**changed):
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES")}
    return {**clean, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "backends"))), **changed}


def run(*words, **environ):
    return subprocess.run(
        command(*words),
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "host.latmon.jsonl.gz"
    headless.record_demo("host", 1, path, HOST_RECORDING_US)
    return path


# ---- --once


def test_once_is_a_screen_of_80x24_as_plain_text_after_the_duration():
    begun = time.monotonic()
    done = run("--once", "--backend", "procfs", "--interval", "200ms", "--duration", "600ms")
    assert time.monotonic() - begun > 0.6
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.stdout
    assert lines[0].startswith(" latmon overview  ")
    assert "LIVE" in lines[0]
    assert any(re.match(r" (device|\d+ of \d+) .*IOPS", line) for line in lines)
    assert lines[-1].endswith(f"latmon {__version__}")
    assert "  live, 20" in lines[-1], "the day"


def test_once_takes_the_size_from_the_environment(monkeypatch):
    for columns, lines, size in ((132, 43, (132, 43)), (10, 1, (40, 10)), (9999, 9999, (500, 200))):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))
        assert headless.screen_size(os.environ) == size


def test_once_into_a_reader_that_goes_away_is_no_failure():
    capture = subprocess.Popen(
        command("--once", "--backend", "procfs", "--interval", "200ms"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    capture.stdout.close()
    text = capture.stderr.read()
    capture.stderr.close()
    assert (capture.wait(PATIENCE_S), text) == (0, b"")


def test_once_shows_what_the_options_select(recorded, capsys):
    assert main(["replay", str(recorded), "--once", "--filter", "sda", "--columns", "IOPS,max"]) == 0
    found = capsys.readouterr().out
    assert "sda" in found
    assert "sdb" not in found
    assert re.search(r"device +IOPS +max", found)
    assert main(["demo", "emulex", "--once", "--duration", "3s", "--screen", "findings"]) == 0
    assert "findings" in capsys.readouterr().out.splitlines()[1]
    assert main(["replay", str(recorded), "--once", "--view", "nope"]) == 2
    assert "nope" in capsys.readouterr().err


def test_once_of_a_replay_and_of_a_demo_are_the_exported_text(recorded, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    assert main(["export", str(recorded), "--to", "text", "--size", "100x30", "-o", "-"]) == 0
    exported = capsys.readouterr().out
    assert main(["replay", str(recorded), "--once"]) == 0
    assert capsys.readouterr().out == exported
    assert main(["demo", "host", "--once", "--duration", "2s"]) == 0
    title, *drawn = capsys.readouterr().out.splitlines()[:-1]
    assert title.endswith("DEMO")
    assert drawn == exported.splitlines()[1:-1]
    assert len(exported.splitlines()) == 30


def test_a_terminal_that_knows_ascii_alone_gets_no_error(recorded, monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), "ascii")
    with monkeypatch.context() as in_place:
        in_place.setattr(sys, "stdout", stdout)
        assert main(["replay", str(recorded), "--once"]) == 0
    stdout.flush()
    assert b"latmon" in stdout.buffer.getvalue()
    terminal = Terminal("replay", str(recorded), "--inline", "--speed", "0", PYTHONIOENCODING="ascii")
    assert terminal.end() == 0, terminal.screen()
    assert terminal.seen.isascii()


@pytest.mark.parametrize("option", ["--theme", "--ramp"])
@pytest.mark.parametrize("words", [("--inline",), ("demo", "--inline"), ("demo",)])
def test_an_unknown_theme_or_ramp_is_refused_before_anything_starts(words, option, capsys):
    assert main([*words, option, "nope"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"no {option[2:]} 'nope'; there are " in printed.err
    assert "mono" in printed.err


def test_once_has_the_configs_rules(tmp_path, monkeypatch, capsys):
    words = ["demo", "emulex", "--once", "--duration", "3s", "--screen", "findings"]
    assert main(words) == 0
    assert f"{len(RULES)} rules" in capsys.readouterr().out
    (tmp_path / "latmon").mkdir()
    (tmp_path / "latmon/config.yaml").write_text("findings: {peer-outlier: off}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(words) == 0
    assert f"{len(RULES) - 1} rules" in capsys.readouterr().out


# ---- --inline


class Terminal:
    """A process on a pty of its own, of 100x30."""

    def __init__(self, *words, **environ):
        ours, theirs = os.openpty()
        os.set_blocking(ours, False)  # a read that waits would outlast PATIENCE_S
        termios.tcsetwinsize(ours, (30, 100))
        self.before = termios.tcgetattr(ours)
        self.fd, self._theirs, self.seen = ours, theirs, b""
        self.process = subprocess.Popen(
            command(*words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm-256color", **environ),
            preexec_fn=self._lead,  # noqa: PLW1509 - no thread of ours holds a lock across it
        )

    def _lead(self):
        """Make keys of the terminal signals, as in a shell, also where this process was started with them ignored."""
        os.login_tty(self._theirs)
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)

    def read(self, until):
        end = time.monotonic() + PATIENCE_S
        while until not in self.seen and time.monotonic() < end and self.process.poll() is None:
            self.take()
        return until in self.seen

    def take(self):
        """Read what comes within a tenth of a second; return whether something did."""
        ready, _, _ = select.select([self.fd], [], [], 0.1)
        with contextlib.suppress(BlockingIOError):
            self.seen += os.read(self.fd, 1 << 16)
        return bool(ready)

    def end(self):
        end = time.monotonic() + PATIENCE_S
        while self.take() or self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                pytest.fail(f"it did not end: {self.screen()}")
        code = self.process.wait(1)
        after = termios.tcgetattr(self.fd)
        os.close(self._theirs)
        os.close(self.fd)
        assert after == self.before, "the terminal's modes are as they were"
        return code

    def screen(self):
        return [line.rstrip() for line in emulated(self.seen, 100, 30).display]


def test_the_strip_is_redrawn_in_place_and_stays_behind():
    terminal = Terminal("demo", "serialised", "--inline")
    assert terminal.read(b"IOPS"), terminal.seen
    for _ in range(3):  # three more pictures
        assert terminal.read(b"\r\x1b["), terminal.seen
        terminal.seen = terminal.seen.replace(b"\r\x1b[", b"\r \x1b[", 1)
    os.write(terminal.fd, b"Q")
    assert terminal.end() == 0
    lines = terminal.screen()
    assert sum("latmon" in line for line in lines) == 1
    assert "DEMO" in lines[0]
    assert 4 <= sum(map(bool, lines)) <= 8
    assert b"\x1b[?1049h" not in terminal.seen


@pytest.mark.parametrize(("keys", "code"), [(b"\x03", 0), pytest.param(b"\x1c", 131, marks=pytest.mark.slow)])
def test_keys_leave_the_strip(keys, code):
    terminal = Terminal("demo", "serialised", "--inline", NO_COLOR="1")
    assert terminal.read(b"IOPS")
    os.write(terminal.fd, b"xyz\r\n" + keys)
    assert terminal.end() == code
    assert b"xyz" not in terminal.seen
    assert not re.search(rb"\x1b\[[0-9;]*[34]\d[0-9;]*m", terminal.seen), "a colour"


def test_the_strip_ends_with_its_source(recorded):
    terminal = Terminal("replay", str(recorded), "--inline", "--speed", "0")
    assert terminal.end() == 0
    assert any("ENDED" in line for line in terminal.screen())


def test_the_strip_has_the_terminals_width_and_follows_it(recorded):
    terminal = Terminal("replay", str(recorded), "--inline", "--speed", "0.01", COLUMNS="60")

    def title_of(width):
        """Whether a title of so many columns comes; a blank at its end is not counted."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if any("latmon" in line and len(line) == width - 2 for line in terminal.screen()):
                return True
            terminal.take()
        return False

    assert title_of(100), terminal.screen()
    termios.tcsetwinsize(terminal.fd, (30, 70))
    assert title_of(70), terminal.screen()
    os.write(terminal.fd, b"q")
    assert terminal.end() == 0


def test_a_strip_whose_source_can_t_be_opened_says_why():
    terminal = Terminal("--inline", "--backend", "bpftrace", LATMON_BPFTRACE="/nonexistent/bpftrace")
    assert terminal.end() == 3
    assert b"latmon: " in terminal.seen.split(b"\x1b[K\r\n")[-1]


@pytest.mark.slow
def test_the_strip_rings_for_a_critical_finding():
    terminal = Terminal("demo", "host", "--inline", "--bell")
    assert terminal.read(b"\a"), terminal.screen()
    os.write(terminal.fd, b"q")
    assert terminal.end() == 0


def test_textuals_own_variables_have_no_effect(tmp_path):
    """They end the program with a traceback, write a file, as root under `sudo -E`, or press keys."""
    log = str(tmp_path / "log")
    terminal = Terminal(
        "demo", "serialised", TEXTUAL_COLOR_SYSTEM="nonsense", TEXTUAL_LOG=log, TEXTUAL_PRESS="question_mark"
    )
    assert terminal.read(b"sd1"), terminal.screen()
    os.write(terminal.fd, b"q")
    assert terminal.end() == 0
    assert not list(tmp_path.iterdir())


# ---- pictures of a demo


@pytest.mark.slow
def test_pictures_of_a_demo_are_the_same_bytes_each_time(tmp_path, capsys):
    names = [tmp_path / name for name in ("a.svg", "a.cast", "b.svg", "b.cast")]
    for svg, cast in (names[:2], names[2:]):
        words = ["demo", "emulex", "--duration", "8s", "--size", "100x30", "--svg", str(svg), "--cast", str(cast)]
        assert main(words) == 0
    assert names[0].read_bytes() == names[2].read_bytes()
    assert names[1].read_bytes() == names[3].read_bytes()
    assert ET.fromstring(names[0].read_text()).tag.endswith("svg")
    assert names[1].read_text().startswith('{"version":2,"width":100,"height":30,')
    assert "latmon demo emulex" in names[0].read_text()
    assert {name.stat().st_mode & 0o777 for name in names} == {0o600}
    assert f"latmon: 8 windows of emulex, seed 1, as svg in {names[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["--svg", "--cast"])
def test_an_error_names_the_demo_and_not_its_file_that_is_gone(tmp_path, capsys, form):
    assert main(["demo", "emulex", "--duration", "3s", form, str(tmp_path / "x"), "--at", "99h"]) != 0
    assert "latmon: latmon demo emulex contains no window to " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_demo_that_is_ended_leaves_neither_half_a_picture_nor_a_recording(tmp_path, number):
    words = command("demo", "--svg", str(tmp_path / "x.svg"), "--duration", "10h")
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(words, env=environment(TMPDIR=str(tmp_path / "tmp")), cwd=tmp_path) as popen:
        try:
            until = time.monotonic() + PATIENCE_S
            while not any((tmp_path / "tmp").rglob("latmon demo*")) and time.monotonic() < until:
                time.sleep(0.05)
            popen.send_signal(number)
            assert popen.wait(PATIENCE_S) == 128 + number
        finally:
            popen.kill()
    assert [*tmp_path.rglob("*")] == [tmp_path / "tmp"]


def test_a_name_that_is_taken_leaves_no_picture(tmp_path, capsys):
    (tmp_path / "a.cast").write_text("mine")
    words = ["demo", "--duration", "1h", "--svg", str(tmp_path / "a.svg"), "--cast", str(tmp_path / "a.cast")]
    assert main(words) == 3
    assert "it exists and is never overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.cast"]
    assert (tmp_path / "a.cast").read_text() == "mine"


# ---- progress


class Tty(io.StringIO):
    def isatty(self):
        return True


def on_a_terminal(monkeypatch):
    tty = Tty()
    monkeypatch.setattr(sys, "stderr", tty)
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(streams, "_BETWEEN_S", 0.0)
    return tty


def shares(text):
    """Return the percentages of the lines that were written over each other."""
    return [int(part.split("%")[0].split()[-1]) for part in text.split("\r") if "%" in part]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("report",),
        ("report", "--html", "OUT"),
        ("export", "--to", "csv", "-o", "OUT"),
        ("check",),
        ("check", "--repair", "-o", "OUT"),
        ("diff", "FILE"),
    ],
    ids=" ".join,
)
def test_reading_a_recording_has_progress_on_a_terminal(recorded, tmp_path, monkeypatch, words):
    stderr = on_a_terminal(monkeypatch)
    name, *options = words
    paths = {"OUT": str(tmp_path / "out"), "FILE": str(recorded)}
    assert main([name, str(recorded), *(paths.get(option, option) for option in options)]) == 0
    text = stderr.getvalue()
    assert f"\rlatmon: {'checking' if name == 'check' else 'reading'} {recorded}"[:40] in text
    assert shares(text)[-1] == 100
    emulator = pyte.Screen(200, 10)
    pyte.Stream(emulator).feed(text.replace("\n", "\r\n"))
    assert not any("%" in line for line in emulator.display), "it is removed at the end"


def test_an_import_has_progress_on_a_terminal(recorded, tmp_path, monkeypatch):
    stderr = on_a_terminal(monkeypatch)
    assert main(["export", str(recorded), "--to", "jsonl", "-o", str(tmp_path / "lines")]) == 0
    assert main(["import", str(tmp_path / "lines"), "-o", str(tmp_path / "back")]) == 0
    assert "\rlatmon: writing " in stderr.getvalue()


def test_there_is_no_progress_in_a_file(recorded, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.0)
    assert main(["export", str(recorded), "--to", "csv", "-o", str(tmp_path / "out")]) == 0
    assert "\r" not in capsys.readouterr().err
