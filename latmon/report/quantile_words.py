"""The report's Q as cells of a text: its quantiles in the digits that they have, and its maximum.

`~` where a bucket is half an octave and more; `≥` where nobody knows how much more it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon.histogram import BITS
from latmon.views.units import bound, duration

_ROUGH = 2
"""Parts of an octave: a bucket as wide has no second digit."""


def cell(q: Mapping[str, Any], name: str) -> str:
    """One of its quantiles."""
    value = q[name]
    if name in q.get("or_more", ()):
        return f"≥{duration(value, 2)}"
    if value is not None and value != q["max"] and q.get("octave_parts", 2**BITS) <= _ROUGH:
        return f"~{duration(value, 1, up=True)}"
    return bound(value, q["max"])


def top(q: Mapping[str, Any]) -> str:
    """The maximum, or what is known of it."""
    if "max" in q.get("or_more", ()):
        return f"≥{duration(q['open_from'], 2)}"
    return f"≤{duration(q['max_bound'], 2, up=True)}" if q.get("max_bound") is not None else duration(q["max"])
