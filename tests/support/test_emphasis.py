"""Colours of reports on a terminal: none in a pipe, and the text without them is the same."""

import io
import re

import pytest

from latmon.support import emphasis
from latmon.support.text import WIDTH, lines_of, wrapped

REPORT = """verdict: CRITICAL  sda: 2 I/Os wait

latmon report: box
backend x, slower than before

  WARNING  sdb  a title
    next: look (risk: none)
        dmesg | tail

tier    remark  C
"""


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_severities_headings_and_commands_have_colours_and_the_text_is_the_same():
    coloured = emphasis.emphasised(REPORT)
    assert "\x1b[1;31mCRITICAL\x1b[0m" in coloured
    assert "\x1b[1mlatmon report: box\x1b[0m" in coloured
    assert "\x1b[1;33mWARNING\x1b[0m" in coloured
    assert "\x1b[2m        dmesg | tail\x1b[0m" in coloured
    assert "backend x, slower than before\n" in coloured, "only a verdict, a finding and a check have coloured words"
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == REPORT


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, False)],
)
def test_no_colour_is_wished_or_possible(environ, expected):
    assert emphasis.is_coloured(Terminal(), environ) is expected
    assert not emphasis.is_coloured(io.StringIO(), environ)


def test_a_terminal_has_its_width_and_a_pipe_that_of_a_ticket(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "61")
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr("sys.stdout", stream)
        emphasis.print_text(lambda: "\n".join(wrapped("word " * 60)))
    assert max(map(len, terminal.getvalue().splitlines())) in range(50, 61)
    assert max(map(len, pipe.getvalue().splitlines())) in range(70, WIDTH + 1)


def test_a_line_is_never_longer_than_the_terminal():
    with lines_of(80):
        assert max(map(len, wrapped("word " * 60))) < 80
