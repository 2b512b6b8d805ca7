"""Signals that end a command, SIGTERM and SIGHUP; captures and screens have handlers of their own."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

_received: list[int] = []


def install() -> None:
    """Exit at SIGTERM and SIGHUP with 128 and the signal's number: temporary files and half an output are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, _leave)


def leave_if_received() -> None:
    """Exit if a signal came whose SystemExit was lost.

    compile() drops an exception that a handler raises while it runs (CPython 3.11 to 3.13), so that a start without
    compiled modules would go on. Called where modules were imported, and where a long work begins.
    """
    if _received:
        sys.exit(128 + _received[0])


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    _received.append(number)
    sys.exit(128 + number)
