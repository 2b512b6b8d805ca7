"""A terminal emulator shows what bytes make of a screen; helpers reduce it to what is visible."""

import re

import pyte

# pyte takes kitty's and Textual's private modes for text or for SGR; a real terminal ignores them
_NOT_PYTES = re.compile(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z$]+p?|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)")
_LONGEST = 100
"""Bytes of a sequence."""


def emulated(seen, columns=80, lines=24):
    """The pyte screen after these bytes."""
    screen = pyte.Screen(columns, lines)
    pyte.ByteStream(screen).feed(_NOT_PYTES.sub(b"", seen))
    return screen


class Watched:
    """The screen of a running program, to which each look adds what came since: pyte takes a second for a megabyte."""

    def __init__(self, output, columns=80, lines=24):
        """`output`: returns all bytes so far."""
        self._output, self._taken = output, 0
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    def lines(self):
        """The lines now, without a sequence whose end has not come."""
        output = self._output()
        begun = output.rfind(b"\x1b", max(self._taken, len(output) - _LONGEST))
        until = len(output) if begun < 0 else begun
        self._stream.feed(_NOT_PYTES.sub(b"", output[self._taken : until]))
        self._taken = until
        return self._screen.display


def seen_cells(screen):
    """The cells of a pyte screen, line by line: of a blank only the background, underline and reverse are seen."""
    return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


def _seen(cell):
    seen = (cell.data, cell.bg, cell.underscore, cell.reverse)
    return seen if cell.data == " " and not cell.underscore and not cell.reverse else (*seen, cell.fg, cell.bold)
