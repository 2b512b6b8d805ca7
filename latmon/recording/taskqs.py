"""A window line's `taskqs`: task queues as they were read, there and back; the way back trusts nothing.

An object with `rows`, because there may have been a reading and no busy queue. A row is a list of numbers behind its
name, in the order of model.Taskq's fields; what a later version adds to it stands at its end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from latmon.errors import RecordingError
from latmon.model import Frame, Taskq
from latmon.recording import checks
from latmon.recording.checks import Json

MAX_QUEUES = 1024
"""Of one reading; ours tells 64."""
_FIELDS = tuple(one.name for one in dataclasses.fields(Taskq))
_UNKNOWN = -1
"""For `time_us`."""
_LOW = {"instance": -1, "time_us": _UNKNOWN}


def encode_taskqs(frame: Frame) -> dict[str, Any]:
    """The key of a window line, None where nothing was read."""
    return {"taskqs": None if frame.taskqs is None else {"rows": [_row(one) for one in frame.taskqs]}}


def taskqs(line: Json) -> tuple[Taskq, ...] | None:
    """The way back."""
    if line.get("taskqs") is None:
        return None
    rows = checks.items(checks.mapping(line, "taskqs"), "rows")
    if len(rows) > MAX_QUEUES:
        raise RecordingError(f"'taskqs' has {len(rows)} rows, and {MAX_QUEUES} are the most")
    found = tuple(_taskq(row) for row in rows)
    if len({(one.name, one.instance) for one in found}) != len(found):
        raise RecordingError("'taskqs' names one queue twice")
    return found


def _row(one: Taskq) -> list[str | int]:
    values = (getattr(one, name) for name in _FIELDS)
    return [_UNKNOWN if value is None else value for value in values]


def _taskq(row: Any) -> Taskq:
    if not isinstance(row, list) or len(row) < len(_FIELDS):
        raise RecordingError("'taskqs' has a row that is too short")
    name, *told = row[: len(_FIELDS)]
    numbers = {key: checks.whole(n, key, _LOW.get(key, 0)) for key, n in zip(_FIELDS[1:], told, strict=True)}
    time_us = numbers.pop("time_us")
    return Taskq(checks.label(name, "taskqs"), **numbers, time_us=None if time_us == _UNKNOWN else time_us)
