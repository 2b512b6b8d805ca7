"""Signals that end a command: SIGINT (Ctrl-C), SIGTERM and SIGHUP; captures and screens have handlers of their own."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)

_received: list[int] = []


def install() -> None:
    """Exit at these signals with 128 and the signal's number: temporary files and half an output are removed."""
    for number in ENDING:
        if signal.getsignal(number) in _DEFAULTS:  # not under nohup
            signal.signal(number, _leave)


def uninstall() -> None:
    """End the process by the signal itself: nothing is left to be removed, and at its exit no exception is caught.

    A loop of asyncio leaves SIGINT to Python's handler, whose exception would be a traceback then.
    """
    for number in ENDING:
        if signal.getsignal(number) in (_leave, *_DEFAULTS):
            signal.signal(number, signal.SIG_DFL)


def leave_if_received() -> None:
    """Exit if a signal came whose SystemExit was lost.

    compile() drops an exception that a handler raises while it runs (CPython 3.11 to 3.13), so that a start without
    compiled modules would go on; so does a callback of a weak reference, such as importlib's for the lock of a module.
    Called where modules were imported, and where a long work begins.
    """
    if _received:
        sys.exit(128 + _received[0])


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    _received.append(number)
    sys.exit(128 + number)
