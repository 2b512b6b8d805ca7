"""What a table's key says it is about: a device, an op, a stage. Pure.

A key is what a script's author chose, so only plain words count; what is left of it names the row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from latmon.errors import UsageError
from latmon.imports.found import Asked
from latmon.model import STAGES, Series
from latmon.text import clean

UNKNOWN_OP = "other"
_OPS = {
    **dict.fromkeys(("r", "rd", "read", "reads", "b_read", "rs", "ra", "ram", "rm"), "read"),
    **dict.fromkeys(("w", "wr", "write", "writes", "b_write", "ws", "wm", "wsm", "fws", "wfs"), "write"),
    **dict.fromkeys(("f", "ff", "flush", "sync", "fsync"), "flush"),
    **dict.fromkeys(("d", "ds", "discard", "trim", "unmap"), "discard"),
}
_STAGES = {
    **{name: name for name in STAGES},
    **dict.fromkeys(("waitq", "wait", "qtime", "q2d"), "queue"),
    **dict.fromkeys(("d2c", "device", "service", "san"), "hba"),
    **dict.fromkeys(("intr", "hardirq"), "irq"),
    "swtch": "resume",
}
_PARTS = re.compile(r"[\s,\[\]()@:]+")
_UNITS = re.compile(r"\(?\b(us|ms|ns|s|usecs?|msecs?|nsecs?)\b\)?", re.IGNORECASE)
_POINTER = re.compile(r"(?:0x[0-9a-f]{8,16}|[0-9]{12,20}|[0-9a-f]*[a-f][0-9a-f]*(?<=[0-9a-f]{11}))\Z", re.IGNORECASE)
_DEV_T = re.compile(r"[0-9]{7,10}\Z")
_MINOR_BITS = 20
_LONGEST = 64
_SAID = 6


def one_device(asked: Asked, names: Sequence[str]) -> None:
    """UsageError where --device would make one of several whose values don't add up."""
    if asked.device and len(names) > 1:
        told = ", ".join(names[:_SAID]) + (f" and {len(names) - _SAID:,} more" if len(names) > _SAID else "")
        raise UsageError(
            f"--device {clean(asked.device, _LONGEST)}: the text tells of {len(names):,} devices ({told}), "
            "which can't be one; leave the option out, or give the lines of one device alone"
        )


class Names:
    """Keys to series; a key that is a kernel's address gets a name that tells as much and is shorter."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._addresses: dict[str, str] = {}
        self.assumed: dict[str, str] = {}
        """Key -> what it was taken for."""

    def series(self, title: str) -> Series:
        """Of a table by its title."""
        parts = [one for one in _PARTS.split(_UNITS.sub(" ", title)) if one]
        op = next((_OPS[one.lower()] for one in parts if one.lower() in _OPS), UNKNOWN_OP)
        stage = next((_STAGES[one.lower()] for one in parts if one.lower() in _STAGES), "total")
        return Series(
            self._asked.device or self._device(title, parts), self._asked.op or op, self._asked.stage or stage
        )

    def _device(self, title: str, parts: list[str]) -> str:
        """What is left when an op is taken out; all of the title where that is nothing."""
        if (address := next((one for one in parts if _POINTER.fullmatch(one)), "")) != "":
            named = self._addresses.setdefault(address, f"device{len(self._addresses) + 1}")
            self.assumed[address] = f"{address} is an address in a kernel and is called {named}"
            return named
        if (number := next((one for one in parts if _DEV_T.fullmatch(one)), "")) != "":
            major, minor = int(number) >> _MINOR_BITS, int(number) & ((1 << _MINOR_BITS) - 1)
            self.assumed[number] = f"{number} is taken for the device number {major}:{minor}"
            return f"{major}:{minor}"
        left = [one for one in title.strip().strip("@").split() if one.strip("[](),").lower() not in _OPS]
        return clean(" ".join(left) or title.strip() or "table", _LONGEST)


def op_of(rwbs: str) -> str:
    """Of the kernel's letters: a flush may come before a write (FW), a discard is no write."""
    if "D" in rwbs:
        return "discard"
    if "R" in rwbs:
        return "read"
    if "W" in rwbs:
        return "write"
    return "flush" if "F" in rwbs else UNKNOWN_OP
