"""A JSON document in a text that may have a line of something else before it. Bounded; RecordingError on nonsense."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from latmon.errors import RecordingError
from latmon.imports.source import MAX_JSON


def document(lines: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """The line where it begins, and the object."""
    first = next((at for at, line in enumerate(lines) if line.lstrip().startswith("{")), None)
    if first is None:
        raise RecordingError("there is no JSON object in it")
    return first + 1, parse("\n".join(lines[first:]))


def parse(text: str) -> dict[str, Any]:
    """One object."""
    if len(text) > MAX_JSON:
        raise RecordingError(f"its JSON is larger than {MAX_JSON >> 20} MiB; import it in parts")
    try:
        value, end = json.JSONDecoder(parse_constant=_refused).raw_decode(text.lstrip())
    except RecursionError:
        raise RecordingError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise RecordingError(f"its JSON can't be read: {error}") from None
    if not isinstance(value, dict) or text.lstrip()[end:].strip():
        raise RecordingError("its JSON is not one object")
    return value


def whole(value: Any, most: int = 2**63 - 1) -> int | None:
    """An integer from 0 on, also one that was quoted; None where it is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 20:  # noqa: PLR2004
        value = int(value)
    return value if type(value) is int and 0 <= value <= most else None


def real(value: Any) -> float | None:
    """A finite number from 0 on; None where it is none."""
    return float(value) if type(value) in (int, float) and 0 <= value < math.inf else None


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
