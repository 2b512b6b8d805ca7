"""A terminal emulator shows what bytes make of a screen; helpers reduce it to what is visible."""

import re

import pyte


def emulated(seen, columns=80, lines=24):
    """The pyte screen after these bytes."""
    screen = pyte.Screen(columns, lines)
    # pyte takes kitty's and Textual's private modes for text or for SGR; a real terminal ignores them
    pyte.ByteStream(screen).feed(
        re.sub(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z$]+p?|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)", b"", seen)
    )
    return screen


def seen_cells(screen):
    """The cells of a pyte screen, line by line: of a blank only the background, underline and reverse are seen."""
    return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


def _seen(cell):
    seen = (cell.data, cell.bg, cell.underscore, cell.reverse)
    return seen if cell.data == " " and not cell.underscore and not cell.reverse else (*seen, cell.fg, cell.bold)
