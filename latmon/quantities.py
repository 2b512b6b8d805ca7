"""Durations and sizes as people write them: `250ms`, `1s`, `5m`, `512M`. Knows no option; the caller names it."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]*)", re.ASCII)
_THOUSAND = 1000
_DURATIONS = {
    "us": 1,
    "ms": 1_000,
    "": 1_000_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
}
_SIZES = {
    prefix + tail: 1024**power for power, prefix in enumerate(("", "k", "m", "g", "t")) for tail in ("", "b", "ib")
}


def duration_us(text: str) -> int:
    """Microseconds of `250ms`, `1s`, `5m`, `1h`; a bare number is seconds. ValueError says what was expected."""
    return _scaled(text, _DURATIONS, "a duration such as 250ms, 1s or 5m")


def size_bytes(text: str) -> int:
    """Bytes of `512M`, `2G`, `100k`, in powers of 1024; a bare number is bytes. ValueError says what was expected."""
    return _scaled(text, _SIZES, "a size such as 512M or 2G")


def show_duration(us: int) -> str:
    """The shortest of the forms that `duration_us` reads: 1s, 250ms, 1.5s."""
    for unit in ("h", "m", "s", "ms", "us"):
        if us >= _DURATIONS[unit] and (us % _DURATIONS[unit] == 0 or unit == "s"):
            return f"{us / _DURATIONS[unit]:.12g}{unit}"
    return "0s"


def show_size(count: int) -> str:
    """Bytes in powers of 1000 with one digit behind the point: 812 B, 3.4 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if round(value, 1) < _THOUSAND:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _THOUSAND
    return f"{value:.1f} TB"


def _scaled(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {expected}")
    return int(Decimal(match[1]) * factor)
