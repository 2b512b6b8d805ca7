"""Rows of an import's source in a report: rows of other widths than our buckets, and rows without an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from latmon.model.frame import Series, named_series, open_rows
from latmon.model.histogram import MAX_US
from latmon.report.model.latency import Quantiles

_POWER_OF_NS = 1.024
"""A power of two of ns, such as 2^20 ns, in the power of two of us that is just below it."""
_BOUNDS = ("p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "max_bound")
"""Fields of Quantiles that are bounds of buckets."""
Q = TypeVar("Q", bound=Quantiles)


class SourceEdges:
    """Edges of the source's rows that the header of an import names, by series.

    `open`: series with a row without an upper edge; `powers_of_ns`: series whose edges are powers of two of ns.
    Malformed entries are ignored.
    """

    def __init__(self, imported: object) -> None:
        in_powers = imported.get("powers_of_ns") if isinstance(imported, Mapping) else None
        self._in_powers_of_ns = {named_series(value) for value in (in_powers if isinstance(in_powers, list) else ())}
        self._open_from_us = open_rows(imported)

    def applied(self, series: Series, latency: Q) -> Q:
        """Return a series' quantiles with the edges of its source."""
        if series in self._in_powers_of_ns:
            latency = _raised(latency)
        from_us = self._open_from_us.get(series)
        return latency if from_us is None else _opened(latency, from_us)


def _raised(latency: Q) -> Q:
    """Return the quantiles of rows that end at powers of two of ns, 1.024 times the edges of their buckets."""
    changes: dict[str, Any] = {}
    for name in _BOUNDS:
        bound_us = getattr(latency, name)
        if bound_us is not None and bound_us <= MAX_US:
            us = round(bound_us * _POWER_OF_NS)
            changes[name] = us if latency.max is None else min(us, latency.max)
    return replace(latency, **changes)


def _opened(latency: Q, from_us: int) -> Q:
    """Return the quantiles of a distribution whose last row begins at `from_us` and has no upper bound."""
    beyond = [name for name in _BOUNDS if (getattr(latency, name) or 0) > MAX_US]
    if not beyond:
        return latency
    changes: dict[str, Any] = dict.fromkeys(beyond, from_us)
    names = [name.replace("_", ".") for name in beyond]
    if "max_bound" in beyond:
        changes["max_bound"] = None
        names[-1] = "max"
    return replace(latency, **changes, open_from=from_us, or_more=tuple(names))
