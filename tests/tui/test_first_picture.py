"""The picture of a terminal while the modules of a screen load: the real program on a real pty."""

import os
import signal

import pytest
from terminal import ROOT, Terminal, latmon, wait_for

from latmon.support.errors import EXIT_UNREADABLE

BEGIN = b"\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H\x1b[1m latmon "
END = b"\x1b[2J\x1b[?1049l\x1b[?25h"


def test_it_comes_first_and_goes_where_the_screen_begins(tmp_path):
    with Terminal(latmon("demo", "emulex"), tmp_path) as terminal:
        assert wait_for(lambda: b"overview" in terminal.output)
        terminal.type(b"q")
        assert terminal.status() == 0
        assert terminal.output.startswith(BEGIN)
        picture, end, screen = terminal.output.partition(END)
        assert end
        assert b"starting: opening the backend" in picture
        assert screen.startswith(b"\x1b[?1049h")
        assert terminal.modes() == {}


def test_an_error_is_printed_where_the_shell_is(tmp_path):
    file = ROOT / "pyproject.toml"
    with Terminal(latmon("replay", str(file)), tmp_path) as terminal:
        assert terminal.status() == EXIT_UNREADABLE
        picture, _, after = terminal.output.partition(END)
        assert b"starting: reading the recording" in picture
        assert b"is not a latmon recording" in after
        assert terminal.modes() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_is_shown_leaves_the_terminal_as_it_was(tmp_path, number):
    command = f"sleep 60 | {' '.join(latmon('replay', '-'))}"
    with Terminal(["bash", "-c", command], tmp_path, job_control=False) as terminal:
        assert wait_for(lambda: b"starting: reading the recording" in terminal.output)
        (pid,) = (pid for pid, command in terminal.processes("-m latmon replay") if not command.startswith("bash"))
        os.kill(pid, number)
        assert wait_for(lambda: terminal.output.endswith(END))
        assert terminal.modes() == {}


def test_ctrl_z_while_it_is_shown_gives_the_terminal_back(tmp_path):
    command = f"sleep 60 | {' '.join(latmon('replay', '-'))}"
    with Terminal(["bash", "-c", command], tmp_path, job_control=False) as terminal:
        assert wait_for(lambda: b"starting: reading the recording" in terminal.output)
        (pid,) = (pid for pid, command in terminal.processes("-m latmon replay") if not command.startswith("bash"))
        os.kill(pid, signal.SIGTSTP)
        assert wait_for(lambda: terminal.output.endswith(END))
        assert terminal.modes() == {}
        os.kill(pid, signal.SIGCONT)
