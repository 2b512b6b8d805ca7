"""A line of a recording or of the live feed, which may be anything, as a JSON object of bounded size."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from latmon.support.errors import RecordingError

MAX_LINE = 8 * 1024 * 1024
"""A window of 24 devices is 17 kB. The worst JSON (`[],[],...`) takes 21 times its size in memory: 170 MB here."""


def parse(line: bytes) -> dict[str, Any]:
    """Return a JSON object; RecordingError for NaN, too deep nesting, or numbers that take a minute to convert."""
    if len(line) > MAX_LINE:
        raise RecordingError(f"a line of {len(line)} bytes is longer than any that latmon writes")
    try:
        value = _DECODER.decode(line.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise RecordingError("a line is nested too deeply") from None
    except ValueError:
        raise RecordingError("a line is not JSON") from None
    if not isinstance(value, dict):
        raise RecordingError("a line is not a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
