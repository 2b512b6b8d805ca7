"""The recording's lines as JSON objects: values in, plain dicts out. The live feed's lines are the very same.

A line's "type" says what it is: header, window, gap, mark, end. Every window stands alone (labels inline, histograms
hold this window only), so a reader may begin at any of them; its outliers are in it, so that a frame is one line. What
is at its default is left out. The way back, with its suspicion, is decode.py's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from latmon.histogram import BITS, Histogram
from latmon.mark import Mark, Settings
from latmon.model import Completed, Device, Flow, Frame, Health, Origin, Series
from latmon.recording.deep_lines import encode_deep, histogram, missing, unlike_default
from latmon.recording.outstanding_lines import encode_outstanding
from latmon.recording.taskqs import encode_taskqs

FORMAT = (1, 0)
LATE = "reader-late"
"""The value of a window's key `late`. Earlier releases wrote it into the key `gap`."""
SCALE: dict[str, Any] = {"kind": "loglinear", "k": BITS, "unit": "us"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Time that is not in the recording, and why. It begins at `mono_us`, the last window's stamp."""

    reason: str
    seconds: float
    mono_us: int = 0
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """The closing line: a recording without it was killed, or is still being written."""

    reason: str
    windows: int


def encode_origin(origin: Origin, devices: tuple[Device, ...] = ()) -> dict[str, Any]:
    """The `header` line. `devices` are those known at the start; the first window names them again."""
    line: dict[str, Any] = {
        "type": "header",
        "format": list(FORMAT),
        "latmon": origin.latmon,
        "backend": origin.backend,
        "tool": origin.tool,
        "tier": origin.tier,
        "host": origin.host,
        "kernel": origin.kernel,
        "boot_id": origin.boot_id,
        "clock": {"wall": origin.start_wall, "mono": origin.start_mono_us},
        "window": origin.interval_us,
        "scale": SCALE,
        "latency_from": origin.latency_from,
        "measured": {stage: list(includes) for stage, includes in origin.measured.items()},
        "absent": [missing(one) for one in origin.absent],
        "probes_missing": [missing(one) for one in origin.probes_missing],
        "reason": origin.reason,
    }
    if origin.untraced:
        line["untraced"] = [missing(one) for one in origin.untraced]
    if origin.hz is not None:
        line["hz"] = origin.hz
    if origin.settings:
        line["settings"] = _encode_settings(origin.settings)
    if devices:
        line["devices"] = [_encode_device(one) for one in devices]
    return line | {key: value for key, value in origin.extra.items() if key not in line}


def encode_frame(frame: Frame) -> dict[str, Any]:
    """The `window` line."""
    line: dict[str, Any] = {
        "type": "window",
        "seq": frame.seq,
        "t": frame.wall,
        "mono": frame.mono_us,
        "dt": frame.dt_us,
        "h": [_encode_histogram(series, one) for series, one in frame.histograms.items()],
        "seen": [_encode_completed(flow, done) for flow, done in frame.seen.items()],
        "kernel": [_encode_completed(flow, done) for flow, done in frame.kernel.items()],
        "outstanding": {name: [now.in_driver, now.queued] for name, now in frame.outstanding.items()},
        "devices": [_encode_device(one) for one in frame.devices],
        "removed": list(frame.removed),
        "health": _encode_health(frame.health),
        "marks": [encode_mark(one) for one in frame.marks],
        "gap": frame.gap,
        "late": LATE if frame.late else "",
        **encode_deep(frame),
        **encode_outstanding(frame),
        **encode_taskqs(frame),
    }
    return {key: value for key, value in line.items() if key in _ALWAYS or value}


_ALWAYS = frozenset({"seq", "t", "mono", "dt", "h"})


def encode_gap(gap: Gap) -> dict[str, Any]:
    """The `gap` line."""
    return {"type": "gap", "reason": gap.reason, "s": gap.seconds, "mono": gap.mono_us, "t": gap.wall}


def encode_mark(mark: Mark) -> dict[str, Any]:
    """The `mark` line."""
    line: dict[str, Any] = {"type": "mark", "text": mark.text, "mono": mark.mono_us, "t": mark.wall}
    return line | ({} if mark.changed is None else {"changed": _encode_settings(mark.changed)})


def encode_end(end: End) -> dict[str, Any]:
    """The `end` line."""
    return {"type": "end", "reason": end.reason, "windows": end.windows}


def to_bytes(line: Mapping[str, Any]) -> bytes:
    """One line of a file. Escaped to ASCII: no reader can stumble over it, and a clean name hardly ever is longer."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _encode_histogram(series: Series, one: Histogram) -> dict[str, Any]:
    return {"m": series.stage, "l": [series.device, series.op], "n": one.count} | histogram(one)


def _encode_settings(settings: Settings) -> dict[str, dict[str, str]]:
    return {section: dict(named) for section, named in settings.items()}


def _encode_completed(flow: Flow, done: Completed) -> dict[str, Any]:
    line: dict[str, Any] = {"l": [flow.device, flow.op], "n": done.count, "bytes": done.bytes}
    times = {"us": done.time_us, "queue": done.queue_us}
    return line | {key: us for key, us in times.items() if us is not None}


def _encode_device(device: Device) -> dict[str, Any]:
    return {"name": device.name, "major": device.major, "minor": device.minor} | unlike_default(device)


def _encode_health(health: Health) -> dict[str, Any]:
    return {k: v for k, v in unlike_default(health).items() if not isinstance(v, float) or math.isfinite(v)}
