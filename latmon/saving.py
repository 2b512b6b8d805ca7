"""What was captured as a recording of its own, made of what was kept after it happened. Knows no screen and no name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

from latmon import new_file, target
from latmon.errors import UnavailableError
from latmon.model import Frame, Origin
from latmon.recording import Writer

_REASON = "saved after the event"


def save(frames: Iterable[Frame], origin: Origin, path: Path, *, redact: bool = False) -> int:
    """These, with header, marks and gaps; how many. All of them, or UnavailableError and no file."""
    target.refuse(path)
    rest = iter(frames)
    first = next(rest, None)
    if first is None:
        return 0
    begun = replace(origin, start_mono_us=first.mono_us - first.dt_us, start_wall=first.wall - first.dt_us / 1e6)
    writer = Writer.create(path, begun, redact=redact, devices=first.devices)
    held = writer.hold()
    many = 0
    try:
        for frame in chain((first,), rest):
            writer.append(frame)
            _need(writer, path)
            many += 1
        writer.close(_REASON)
        _need(writer, path)
    except BaseException:
        with contextlib.suppress(OSError):  # a part of it would pass for the whole
            new_file.unlink(path, held)
        with contextlib.suppress(OSError):
            writer.close(_REASON)
        raise
    finally:
        os.close(held)
    return many


def _need(writer: Writer, path: Path) -> None:
    if writer.trouble:
        raise UnavailableError(f"can't save to {path}: {writer.trouble}")
