"""Values of a report: rounded, as a rate, and in the order of known names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from latmon.support.units import UNKNOWN, rate

T = TypeVar("T")


def order(known: tuple[str, ...]) -> Callable[[str], tuple[int, str]]:
    """Return a sort key: known names in their own order, then the others."""
    return lambda name: (known.index(name) if name in known else len(known), name)


def ordered(parts: Mapping[str, T], known: tuple[str, ...]) -> list[tuple[str, T]]:
    """Return the items of `parts`, known names first and in their own order."""
    key = order(known)
    return sorted(parts.items(), key=lambda item: key(item[0]))


def rounded(value: float | None, digits: int) -> float | None:
    """Return the rounded value; None stays None."""
    return None if value is None else round(value, digits)


def per_second(many: float, seconds: float | None) -> str:
    """Return a rate; UNKNOWN where the time was not measured."""
    return rate(many / seconds) if seconds else UNKNOWN
