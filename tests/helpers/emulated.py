"""Helpers reduce the screen of a terminal emulator to what is visible."""


def seen_cells(screen):
    """The cells of a pyte screen, line by line: of a blank only the background, underline and reverse are seen."""
    return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


def _seen(cell):
    seen = (cell.data, cell.bg, cell.underscore, cell.reverse)
    return seen if cell.data == " " and not cell.underscore and not cell.reverse else (*seen, cell.fg, cell.bold)
