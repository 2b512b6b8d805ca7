"""What is on the screen as a recording of its own, made of what was kept after it happened. Knows no screen."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from latmon.model import Origin
from latmon.past import Past, completed
from latmon.recording import Writer


def save(past: Past, origin: Origin, after_us: int, until_us: int, path: Path) -> int:
    """The frames of that time, with header, marks and gaps; how many. UnavailableError where there can't be a file."""
    writer: Writer | None = None
    many = 0
    reason = "saved after the event"
    try:
        for frame in completed(past.frames(after_us, until_us), past.known(after_us)):
            if writer is None:
                begin_us = frame.mono_us - frame.dt_us
                begun = replace(origin, start_mono_us=begin_us, start_wall=frame.wall - frame.dt_us / 1e6)
                writer = Writer.create(path, begun, devices=frame.devices)
            writer.append(frame)
            many += 1
    finally:
        if writer is not None:
            writer.close(reason)
    return many


def name_for(host: str, wall: float) -> str:
    """HOST-YYYYmmddTHHMMSSZ.latmon.jsonl.gz, of where it begins."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in host) or "host"
    return f"{plain}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}.latmon.jsonl.gz"
