"""max_sd.d's list: the most commands queued to each LUN. Its lines may have lost their ends: `sd2 1 sd0 70`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latmon.imports.found import Asked, Counts, Found, Remark, Where
from latmon.imports.naming import one_device
from latmon.outstanding import PROBE, Depths

_LINE = re.compile(r"\s*(?:s?sd\d{1,5}\s+\d{1,6}(?:\s+|$))+")
_PAIR = re.compile(r"(s?sd\d{1,5})\s+(\d{1,6})(?!\S)")
_SAID = 8


def sniff(head: str) -> bool:
    """Lines that are nothing but LUNs and numbers."""
    return any(_LINE.fullmatch(line) for line in head.split("\n"))


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Each pair is a maximum: no time, no distribution; it is told as the depth that was reached."""
    every = [name for line in lines if _LINE.fullmatch(line) for name, _ in _PAIR.findall(line)]
    one_device(asked, list(dict.fromkeys(every)))
    for at, line in enumerate(lines, 1):
        if not _LINE.fullmatch(line):
            continue
        where = Where(at, at)
        pairs = _PAIR.findall(line)
        depths = {asked.device or name: Depths(most=int(most), source=PROBE) for name, most in pairs}
        yield Counts(where, {}, {}, depths)
        said = ", ".join(f"{name} {most}" for name, most in pairs[:_SAID])
        yield Remark(where, f"at most so many commands in the driver, no time told: {said}")
