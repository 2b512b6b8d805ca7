"""clean(): the one filter for every foreign string (comm, device, host, handler, anything in a recording).

The decoder calls it once; what is drawn passes `drawable`, whatever a decoder missed. A terminal obeys control
characters, C1 codes, OSC 52 and bidirectional overrides. After `clean` the text is printable and of
bounded length. Brackets stay, because drawn text is never parsed as markup.
"""

from __future__ import annotations

import os
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from latmon.support.units import NO_BREAK, unbroken

MAX_CELLS = 64
WIDTH = 79
"""Characters of a line of a report."""
_MAX_PATH = 4 * 4096
"""Characters of the longest path (PATH_MAX) when each of its bytes is escaped."""
_WIDE = "WF"
"""East Asian Width (UAX #11): wide and fullwidth take two cells."""
_SECOND = "\0"
"""Placeholder for the second cell of a wide character; clean text has none."""
_ASCII = str.maketrans({"≤": "<", "≥": ">", "…": "~", "·": "."})
_width: ContextVar[int | None] = ContextVar("width", default=None)


def clean(raw: str | bytes, limit: int = MAX_CELLS) -> str:
    r"""Return printable text of at most `limit` characters, with escapes (`\x1b`) for other characters.

    A blank is printable; a newline, a tab, a zero-width or bidirectional control is not. Cut text ends in `…`.
    """
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def clean_path(path: str, limit: int) -> str:
    """Return a path as printable text of at most `limit` characters; of a longer one its end, which tells it apart."""
    shown = clean(os.fsencode(path), _MAX_PATH)
    return shown if len(shown) <= limit else "…" + shown[1 - limit :]


def path_end(path: str, cells: int) -> str:
    """Return a path in at most `cells` of a line; of a longer one its end, which tells it apart, after an ellipsis."""
    if sum(map(_cells, path)) <= cells:
        return path
    begin, room = len(path), cells - 1
    while begin and _cells(path[begin - 1]) <= room:
        begin -= 1
        room -= _cells(path[begin])
    return f"…{path[begin:]}"


def _cells(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1


def is_clean(text: str) -> bool:
    """Return whether all characters are printable."""
    return text.isprintable()


def drawable(text: str) -> str:
    """Return the text with `?` for each character that isn't printable: the last gate before a terminal.

    Decoders clean what they read, so that this changes nothing. The length stays, because cells were counted before.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def encodable(text: str, encoding: str) -> str:
    """Return the text with characters that `encoding` has; the length of lines stays."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as a line, with columns two blanks apart; all rows have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


LEAST_WIDTH, MOST_WIDTH = 40, 119
"""Characters of a line of sentences on the narrowest and on the widest terminal."""


@contextmanager
def lines_of(columns: int) -> Iterator[None]:
    """Break sentences at the width of a terminal within the block; elsewhere a line has WIDTH characters."""
    before = _width.set(min(max(columns - 1, LEAST_WIDTH), MOST_WIDTH))
    try:
        yield
    finally:
        _width.reset(before)


def line_width(otherwise: int = WIDTH) -> int:
    """Return the characters of a line of sentences: of the terminal within `lines_of`, else `otherwise`."""
    columns = _width.get()
    return otherwise if columns is None else columns


def wrapped(text: str, indent: str = "") -> list[str]:
    """Break the text into lines, not between a number and its unit; those after the first are indented by two more."""
    if not text.isascii():
        text = "".join(char + _SECOND * (_cells(char) - 1) for char in text)
    lines = textwrap.wrap(unbroken(text), line_width(), initial_indent=indent, subsequent_indent=indent + "  ")
    return [line.replace(NO_BREAK, " ").replace(_SECOND, "") for line in lines]


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
