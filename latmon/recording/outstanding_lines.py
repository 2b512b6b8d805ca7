"""What a window line tells of outstanding I/O, as keys of its own that an older reader passes over.

Values in, plain JSON values out; what is at its default is left out. Depths are flat lists, because there are many:
`d` in the driver, `q` queued, `i` at issue as pairs of depth and count, `l` as depth, I/Os and their time. A burst of
issues is one flat list too, with a table of its ops. The way back is outstanding_decode.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from latmon.model import Frame
from latmon.outstanding import SYSFS, Depths, InFlight, Issue, StillInFlight

Line = dict[str, Any]
_REQUIRED = ("device", "op", "began_us")


def encode_outstanding(frame: Frame) -> Line:
    """The keys of a window line that are about depths, requests still in flight and the order of issue."""
    return {
        "depths": {device: _depths(one) for device, one in frame.depths.items()},
        "in_flight": None if frame.in_flight is None else _in_flight(frame.in_flight),
        "issues": {device: _issues(some) for device, some in frame.issues.items()},
    }


def _depths(one: Depths) -> Line:
    line: Line = {
        "d": _flat(sorted(one.in_driver.items())),
        "q": _flat(sorted(one.queued.items())),
        "i": _flat(sorted(one.at_issue.items())),
        "l": _flat((depth, *took) for depth, took in sorted(one.latency.items())),
        "corrected": one.corrected,
        "by": "" if one.source == SYSFS else one.source,
    }
    told = {key: value for key, value in line.items() if value}
    return told if one.most is None else told | {"most": one.most}


def _in_flight(still: StillInFlight) -> Line:
    line: Line = {"since": still.since_us}
    if still.oldest:
        line["oldest"] = [encode_request(one) for one in still.oldest]
    if still.at_us:
        line["at"] = still.at_us
    if still.devices:
        line["devices"] = list(still.devices)
    if still.older:
        line["older"] = _flat(sorted(still.older.items()))
    return line


def encode_request(one: InFlight) -> Line:
    """A request of `in_flight`."""
    line: Line = {"l": [one.device, one.op], "began": one.began_us}
    told = {key: value for key, value in one._asdict().items() if key not in _REQUIRED and (key != "own" or value)}
    # False is told: the request waits in the block layer, and None is "not known"
    return line | {key: value for key, value in told.items() if value is not None and value not in ("", ())}


def _issues(some: Iterable[Issue]) -> Line:
    each = list(some)
    ops = list(dict.fromkeys(one.op for one in each))
    at: Mapping[str, int] = {op: index for index, op in enumerate(ops)}
    return {"ops": ops, "n": _flat((one.mono_us, one.sector, one.bytes, at[one.op], one.queued_us) for one in each)}


def _flat(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return [number for row in rows for number in row]
