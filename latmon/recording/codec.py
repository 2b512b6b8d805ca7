"""Encoder and decoder of recording lines, and of the live feed's, which leave out idle devices. Knows no file.

The fields are in records.py. The decoder cleans strings, keeps numbers within bounds, and raises RecordingError
otherwise. Unknown keys are ignored in a window and kept in a header's `extra`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import is_
from types import MappingProxyType
from typing import Any

from latmon.model.devices import IdleRows, WithIdle, busy_rows
from latmon.model.frame import Device, Flow, Frame, Mark, Origin
from latmon.model.histogram import MAX_US
from latmon.model.stages import OPS
from latmon.recording import validate
from latmon.recording.declared_tables import tables_in
from latmon.recording.records import (
    DEVICE,
    FORMAT,
    HEADER,
    LATE,
    NOTES,
    SCALE,
    WINDOW,
    End,
    Gap,
)
from latmon.recording.validate import Json, Line
from latmon.support.errors import RecordingError

_HEADER_KEYS = HEADER.keys | {"type", "format", "devices"}
_KINDS = {Gap: "gap", Mark: "mark", End: "end"}
IDLE = "idle"
"""Key of a feed's window: the idle devices are left out of `kernel`, `outstanding` and `depths`."""
_NO_ROWS: Mapping[Flow, Any] = MappingProxyType({})


def decode_origin(line: Json) -> Origin:
    """Return the origin of a `header` line."""
    check_format(line)
    extra = validate.cleaned({key: value for key, value in line.items() if key not in _HEADER_KEYS})
    return replace(HEADER.decode(line), extra=MappingProxyType(extra))


def decode_devices(line: Json) -> tuple[Device, ...]:
    """Return the devices of a header or window line."""
    return tuple(DEVICE.decode(device_line) for device_line in validate.objects(line.get("devices", []), "devices"))


def decode_item(line: Json) -> Frame | Gap | Mark | End | None:
    """Return the value of a line; None for the header and for types that a later version added."""
    kind = line.get("type")
    if kind == "window":
        return decode_frame(line)
    note = NOTES.get(kind) if isinstance(kind, str) else None
    return None if note is None else note.decode(line)


def decode_frame(line: Json) -> Frame:
    """Return the frame of a `window` line."""
    values = WINDOW.decode(line)
    totals, stages = values.pop("h"), values.pop("stages")
    gap, late = values.pop("gap"), values.pop("late")
    return Frame(
        histograms=totals.joined(stages) if stages else totals,
        tables=tables_in(values),
        gap="" if gap == LATE else gap,
        late=LATE in (gap, late),
        **values,
    )


def check_format(line: Json) -> None:
    """Raise RecordingError unless this header's version and scale are ones that this latmon reads."""
    if line.get("type") != "header":
        raise RecordingError("it does not begin with a latmon header")
    version = validate.items(line.get("format", []), "format")
    known = version[: len(FORMAT)]
    if len(known) < len(FORMAT) or not all(type(number) is int and 0 <= number < MAX_US for number in known):
        raise RecordingError("its header names no format version")
    if version[0] != FORMAT[0]:
        raise RecordingError(
            f"its format is {version[0]}.{version[1]} and this latmon reads {FORMAT[0]}.x: use a newer latmon"
        )
    if version[1] < FORMAT[1]:
        raise RecordingError(
            f"its format is {version[0]}.{version[1]}, which no release wrote, and this latmon reads "
            f"{FORMAT[0]}.{FORMAT[1]} and later ones: read it with the checkout that wrote it, or record again"
        )
    scale = validate.mapping(line.get("scale", {}), "scale")
    if any(scale.get(key) != value for key, value in SCALE.items()):
        raise RecordingError("its histograms have a scale that this latmon doesn't know: use a newer latmon")


__all__ = ["FORMAT", "LATE", "End", "Gap"]


def encode_origin(origin: Origin, devices: tuple[Device, ...] = ()) -> Line:
    """Return the `header` line. `devices` are those known at the start; the first window names them again."""
    line = {"type": "header", "format": list(FORMAT)} | HEADER.encode(origin)
    if devices:
        line["devices"] = [DEVICE.encode(device) for device in devices]
    return line | {key: value for key, value in origin.extra.items() if key not in line}


def encode_frame(frame: Frame) -> Line:
    """Return the `window` line."""
    return {"type": "window"} | WINDOW.encode(frame)


class IdleWriter:
    """Encoder of windows without the rows of idle devices, for the feed. A recording has all rows."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._made_of: tuple[object, object] = (None, None)
        self._made: Line = {}

    def encode(self, frame: Frame) -> Line:
        """Return the `window` line. `idle` names the devices that are neither in it nor idle, which are few."""
        if frame.removed or frame.devices:
            self._names.difference_update(frame.removed)
            self._names.update(device.name for device in frame.devices)
            self._made_of = (None, None)
        kernel, gauges, depths = frame.kernel, frame.outstanding, frame.depths
        # A first frame has no counters yet, and idle devices nevertheless.
        counters = kernel.idle if isinstance(kernel, WithIdle) else _NO_ROWS
        if not isinstance(gauges, WithIdle) or not (counters or gauges.idle):
            return encode_frame(frame)
        lean = replace(frame, kernel=busy_rows(kernel), outstanding=gauges.busy, depths=busy_rows(depths))
        idle = self._idle(counters, gauges.idle) | {"depths": isinstance(depths, WithIdle)}
        return encode_frame(lean) | {IDLE: idle}

    def _idle(self, counters: Mapping[Flow, Any], gauges: Mapping[str, Any]) -> Line:
        made_of = (counters, gauges)
        if not all(map(is_, made_of, self._made_of)):
            self._made_of, self._made = (
                made_of,
                {
                    "but": sorted(self._names - gauges.keys()),
                    "ops": sorted({flow.op for flow in counters}, key=OPS.index),
                    "queued": any(gauge.queued is not None for gauge in gauges.values()),
                },
            )
        return self._made


class IdleReader:
    """Decoder of windows in their order, which puts back the rows of idle devices."""

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        """`devices`: those known before the first window."""
        self._devices = {device.name: device for device in devices}
        self._made: tuple[object, IdleRows] = (None, IdleRows())

    def decode(self, line: Json) -> Frame:
        """Return the frame of a `window` line."""
        frame = decode_frame(line)
        if frame.devices or frame.removed:
            for name in frame.removed:
                self._devices.pop(name, None)
            self._devices |= {device.name: device for device in frame.devices}
            self._made = None, IdleRows()
        idle_line = line.get(IDLE)
        if not isinstance(idle_line, dict):
            return frame
        rows = self._rows(validate.labels(idle_line.get("but", []), "but"), idle_line)
        depths = WithIdle(frame.depths, rows.depths(frame.dt_us)) if idle_line.get("depths") else frame.depths
        kernel, gauges = WithIdle(frame.kernel, rows.kernel), WithIdle(frame.outstanding, rows.outstanding)
        return replace(frame, kernel=kernel, outstanding=gauges, depths=depths)

    def _rows(self, but: tuple[str, ...], idle_line: Json) -> IdleRows:
        ops, has_queued = validate.labels(idle_line.get("ops", []), "ops"), bool(idle_line.get("queued"))
        made_of = (but, ops, has_queued)
        if self._made[0] != made_of:
            idle = (device for name, device in self._devices.items() if name not in frozenset(but))
            self._made = made_of, IdleRows.of(idle, ops, has_queued=has_queued)
        return self._made[1]


def encode_note(note: Gap | Mark | End) -> Line:
    """Return the `gap`, `mark` or `end` line."""
    kind = _KINDS[type(note)]
    return {"type": kind} | NOTES[kind].encode(note)


def to_bytes(line: Mapping[str, Any]) -> bytes:
    """Return one line of a file, escaped to ASCII: every reader takes it, and clean names are hardly ever longer."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
