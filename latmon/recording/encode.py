"""Encoder of recording lines: values to JSON objects. The live feed uses the same lines.

A line's "type" is header, window, gap, mark or end. A window's line is complete by itself: labels are inline and
histograms hold this window only, so that a reader can begin at any of them. The fields are in records.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from latmon.model.frame import Device, Frame, Mark, Origin
from latmon.recording.fields import Line, RecordCodec
from latmon.recording.packed_tables import encode_histogram
from latmon.recording.records import (
    DEVICE,
    END,
    FORMAT,
    GAP,
    HEADER,
    LATE,
    MARK,
    WINDOW_HEAD,
    WINDOW_VALUES,
    End,
    Gap,
)

__all__ = ["FORMAT", "LATE", "End", "Gap"]

_HEAD = RecordCodec[Line](dict, *WINDOW_HEAD)
_VALUES = RecordCodec[Line](dict, *WINDOW_VALUES)


def encode_origin(origin: Origin, devices: tuple[Device, ...] = ()) -> Line:
    """Return the `header` line. `devices` are those known at the start; the first window names them again."""
    line = {"type": "header", "format": list(FORMAT)} | HEADER.encode(origin)
    if devices:
        line["devices"] = [DEVICE.encode(one) for one in devices]
    return line | {key: value for key, value in origin.extra.items() if key not in line}


def encode_frame(frame: Frame) -> Line:
    """Return the `window` line."""
    return {
        "type": "window",
        **_HEAD.encode(frame),
        "h": [encode_histogram(series, one) for series, one in frame.histograms.items()],
        **_VALUES.encode(frame),
    }


def encode_gap(gap: Gap) -> Line:
    """Return the `gap` line."""
    return {"type": "gap"} | GAP.encode(gap)


def encode_mark(mark: Mark) -> Line:
    """Return the `mark` line."""
    return {"type": "mark"} | MARK.encode(mark)


def encode_end(end: End) -> Line:
    """Return the `end` line."""
    return {"type": "end"} | END.encode(end)


def to_bytes(line: Mapping[str, Any]) -> bytes:
    """Return one line of a file, escaped to ASCII: every reader takes it, and clean names are hardly ever longer."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
