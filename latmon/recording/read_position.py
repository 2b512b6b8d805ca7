"""Position of one reading: a header and a window are checked against those before them."""

from __future__ import annotations

from dataclasses import dataclass

from latmon.model.frame import Frame, Origin
from latmon.support.errors import RecordingError
from latmon.support.text import clean

UNKNOWN = "unknown"
"""The host of a recording whose header is lost."""


@dataclass
class ReadPosition:
    """Position of one reading, against which the next window is checked."""

    mono_us: int = -1
    ended: bool = False
    host: tuple[str, str] | None = None
    """Host and boot of the first header."""
    is_foreign: bool = False
    """The latest header is of another host or boot: no window after it belongs to this recording."""


def enter(origin: Origin, position: ReadPosition) -> None:
    """Note a header. RecordingError when it is of another host or boot: the rest is left out.

    The header of a repaired copy whose own was lost names no host.
    """
    host = origin.host, origin.boot_id
    if position.host is None and origin.host != UNKNOWN:
        position.host = host
    position.is_foreign = position.host is not None and host != position.host
    if position.is_foreign:
        named = clean(origin.host)
        raise RecordingError(f"a second header, of another host or boot ({named}): what follows it is left out")


def admit(frame: Frame, position: ReadPosition) -> None:
    """Go on to a window; RecordingError where it goes back in time."""
    if frame.mono_us <= position.mono_us:
        raise RecordingError("a window goes back in time and is left out")
    position.mono_us = frame.mono_us
