"""Lines and events of the output of bpftrace and DTrace, which their decoders share."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NO_DIGIT = re.compile(r"[^-0-9]")


@dataclass(frozen=True, slots=True)
class Attached:
    """The number of attached probes, with BEGIN, END and intervals."""

    probes: int


@dataclass(frozen=True, slots=True)
class Printed:
    """The text of one printf, without its newline; not yet clean."""

    text: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of hist or lhist: low <= value <= high; None where it is open."""

    low: int | None
    high: int | None
    count: int


Value = int | str | tuple[Bucket, ...] | Mapping[str, int] | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class MapPrinted:
    """One print() of a map, by key as bpftrace joins it with commas; "" is the key of a map without keys."""

    name: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def integers(self) -> dict[int, int]:
        """Return key -> value of the rows with integer keys and values."""
        values = self.values.values()
        if {*map(type, values)} <= {int} and not _NO_DIGIT.search("".join(self.values)):
            with contextlib.suppress(ValueError):
                return dict(zip(map(int, self.values), cast("Iterable[int]", values), strict=True))
        return {int(k): v for k, v in self.values.items() if isinstance(v, int) and _INTEGER.fullmatch(k)}


@dataclass(frozen=True, slots=True)
class CountedMap:
    """One print of a map whose keys are integers already, as a manifest packs them."""

    name: str
    values: dict[int, int]

    def integers(self) -> dict[int, int]:
        return self.values


@dataclass(frozen=True, slots=True)
class HandlerNamed:
    """The name of a handler's number, where the probe prints no record line of it."""

    probe: str
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Events that the tool could not pass on."""

    events: int


@dataclass(frozen=True, slots=True)
class HelperFailed:
    """A BPF helper's error: `code` is the negative errno (-7: the map is full)."""

    helper: str
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Entries that a probe could not keep: what they begin is not timed."""

    entries: int


@dataclass(frozen=True, slots=True)
class UndecodedLine:
    """A line that is not understood, cut and clean."""

    line: str


Event = Attached | Printed | MapPrinted | CountedMap | HandlerNamed | Lost | HelperFailed | NoRoom | UndecodedLine


class WholeLines:
    """Splitter of bytes in any portions into whole lines of at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._is_overlong = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that `data` completes, without newlines; None for each that was longer."""
        complete, newline, remainder = data.rpartition(b"\n")
        lines: list[bytes | None] = []
        if newline:
            split = (bytes(self._rest) + complete).split(b"\n")
            lines = [line if len(line) <= self._most else None for line in split]
            if self._is_overlong:
                lines[0] = None
            self._rest, self._is_overlong = bytearray(), False
        self._rest += remainder
        if len(self._rest) > self._most:
            self._rest, self._is_overlong = bytearray(), True
        return lines

    def close(self) -> bytes | None:
        """Return the last line, which has no newline; None if it was longer."""
        remainder, is_overlong = bytes(self._rest), self._is_overlong
        self._rest, self._is_overlong = bytearray(), False
        return None if is_overlong else remainder
