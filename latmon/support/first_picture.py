"""The picture of a terminal while the modules of its screen load, which takes seconds on a busy host.

It has the title and what is awaited. It needs no module of the screen, and goes where the screen begins, or before the
sentence of the error for which there is none. The screen draws on stderr, and so does it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from latmon.support.text import clean

_BEGIN = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H"
"""Alternate screen, no cursor, cleared."""
_END = "\x1b[2J\x1b[?1049l\x1b[?25h"
_TITLE, _STARTING = " latmon", "STARTING"
_USUAL_COLUMNS = 80
_HANDLED = (signal.SIGTSTP, signal.SIGQUIT)
"""Signals by Ctrl-Z and Ctrl-\\; at the others the command ends by an exception."""
_awaited: list[str] = []
"""What the picture that is shown names."""


def show(awaited: str) -> None:
    """Draw the picture where stderr is a terminal, unless that is another job's.

    `awaited`: what is awaited, in words for one row.
    """
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return
    with suppress(OSError):  # not our controlling terminal
        if os.tcgetpgrp(sys.stderr.fileno()) != os.getpgrp():
            return
    title = f"{_TITLE}{_STARTING:>{max(columns - len(_TITLE) - 1, 0)}}"
    row = f"  starting: {clean(awaited)}"
    _write(f"{_BEGIN}\x1b[1m{title[:columns]}\x1b[0m\x1b[4;1H{row[:columns]}")
    _awaited.append(awaited)
    for number in _HANDLED:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def end() -> None:
    """Remove the picture, where it is shown."""
    if _awaited:
        _awaited.clear()
        _write(_END)
    for number in _HANDLED:
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _frame: FrameType | None) -> None:
    """Give the terminal back before the signal stops or ends the process; the picture is not drawn again."""
    end()
    os.kill(os.getpid(), number)


def _write(text: str) -> None:
    """Write past the buffer of stderr. A terminal that is gone is noticed by the screen."""
    try:
        os.write(sys.stderr.fileno(), text.encode())
    except OSError:
        _awaited.clear()
