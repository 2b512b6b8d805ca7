"""Colours of the text that a command prints on a terminal: severities, verdicts and headings. None in a pipe."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from latmon.support.streams import terminal_size
from latmon.support.text import encodable, lines_of

_BOLD, _DIM, _RED, _YELLOW, _GREEN, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;32m", "\x1b[0m"
_WORDS = (
    (re.compile(r"\b(?:CRITICAL|MISSING|missing|SLOWER|slower)\b"), _RED),
    (re.compile(r"\b(?:WARNING|degraded|remark)\b"), _YELLOW),
    (re.compile(r"\b(?:FASTER|faster)\b|\bno finding by \d+ rules$"), _GREEN),
)
"""Words that are coloured in a verdict and in a line of LABELLED; `no finding` is good news only from all rules."""
_LABELLED = re.compile(r" {2}(?:CRITICAL|WARNING|NOTICE) | *[a-z][a-z -]* {2,}(?:missing|degraded|remark) ")
"""The beginning of a line whose words are coloured: a finding, a check of the host."""
_HEADING = re.compile(r"\S")
_COMMAND = re.compile(r" {8}\S")


def is_coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal with colours, and NO_COLOR (no-color.org) is not set."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", "dumb")


def emphasised(text: str) -> str:
    """Return the text of a report with colours; without them it is the same text."""
    lines = text.split("\n")
    before = ["", *lines]
    coloured = [_line(line, is_first=not above) for line, above in zip(lines, before, strict=False)]
    return "\n".join([_verdict(lines[0]), *coloured[1:]])


def _verdict(line: str) -> str:
    """Return the first line, which says what the text comes to: its words coloured, else all of it bold."""
    coloured = _with_words(line)
    return f"{_BOLD}{line}{_OFF}" if coloured == line and line else coloured


def _with_words(line: str) -> str:
    for word, colour in _WORDS:
        line = word.sub(f"{colour}\\g<0>{_OFF}", line, count=1)
    return line


def _line(line: str, *, is_first: bool) -> str:
    """Return a line with colours. `is_first`: it is below a blank line, so that it may be a heading."""
    if _LABELLED.match(line):
        return _with_words(line)
    if _COMMAND.match(line):
        return f"{_DIM}{line}{_OFF}"
    if is_first and _HEADING.match(line):
        return f"{_BOLD}{line}{_OFF}"
    return line


def print_text(render: Callable[[], str]) -> None:
    """Print a text, on a terminal in its width and with colours, with characters that the output's encoding has."""
    stream = sys.stdout
    if stream.isatty():
        with lines_of(terminal_size(stream).columns):
            text = render()
    else:
        text = render()
    text = encodable(text, stream.encoding or "utf-8")
    stream.write(emphasised(text) if is_coloured(stream, os.environ) else text)
