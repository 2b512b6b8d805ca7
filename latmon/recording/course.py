"""How far one reading of a recording has come: what the next window is held against.

Owns the bounds of what one recording may name. Knows no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from latmon.deep_flat import names
from latmon.errors import RecordingError, TooManyError
from latmon.model import Flow, Frame, Origin, Series
from latmon.text import clean

UNKNOWN = "unknown"
"""The host of a recording whose header is lost."""
MAX_DEVICES = 8_192
"""In one recording: a device costs a report more than its series do. 5,000 are the most that anybody has."""
MAX_KINDS = 512
"""Pairs of an op and a stage in one recording: ours have 60."""
MAX_SERIES = 65_536
"""In one recording: a reader's memory grows with their number. Who adds up threads sets his own limit."""


@dataclass
class Course:
    """How far one reading has come: what the next window is held against."""

    mono_us: int = -1
    ended: bool = False
    host: tuple[str, str] | None = None
    """Host and boot of the first header."""
    is_foreign: bool = False
    """The latest header is of another host or boot: no window behind it belongs to this recording."""
    series: set[tuple[Any, ...] | str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    kinds: set[tuple[str, str]] = field(default_factory=set)


def enter(origin: Origin, course: Course) -> None:
    """Note a header. RecordingError when it is of another host or boot: what is behind it is left out.

    The header of a repaired copy whose own was lost names no host.
    """
    host = origin.host, origin.boot_id
    if course.host is None and origin.host != UNKNOWN:
        course.host = host
    course.is_foreign = course.host is not None and host != course.host
    if course.is_foreign:
        named = clean(origin.host)
        raise RecordingError(f"a second header, of another host or boot ({named}): what is behind it is left out")


def admit(frame: Frame, course: Course, also: Iterable[str] = ()) -> None:
    """RecordingError for a window that goes back in time; TooManyError where a recording names too much to be read on.

    `also`: what else is named beside the frame.
    """
    if frame.mono_us <= course.mono_us:
        raise RecordingError("a window goes back in time and is left out")
    found: set[tuple[Any, ...] | str] = {*frame.histograms, *frame.seen, *frame.kernel}
    found.update(frame.outstanding, frame.depths, frame.issues, (one.name for one in frame.devices), names(frame), also)
    new = found - course.series
    if len(course.series) + len(new) > MAX_SERIES:
        raise TooManyError(f"a window brings the recording's series beyond {MAX_SERIES}, more than any host has")
    devices = {_device_of(one) for one in new} - course.devices
    if len(course.devices) + len(devices) > MAX_DEVICES:
        raise TooManyError(f"a window brings the recording's devices beyond {MAX_DEVICES}, more than any host has")
    kinds = {(one.op, one.stage) for one in new if isinstance(one, Series)} - course.kinds
    if len(course.kinds) + len(kinds) > MAX_KINDS:
        raise TooManyError(f"a window brings the recording's ops and stages beyond {MAX_KINDS}, more than any host has")
    course.mono_us = frame.mono_us
    course.kinds |= kinds
    course.series |= new
    course.devices |= devices


def _device_of(found: tuple[Any, ...] | str) -> str:
    """Whose it is; empty for what is no device's."""
    return found.device if isinstance(found, Series | Flow) else found if isinstance(found, str) else ""
