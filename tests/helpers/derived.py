"""Random values of the model's types, made of their annotations.

A field that is added to a type is generated from then on, without a change here: a generator that lists the fields by
hand forgot sizes, patterns, issuers and files, and with them that a minute with sizes had no roll-up. Rows of declared
tables are made of their declarations.
"""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from latmon.model.histogram import Histogram
from latmon.model.table import AnyTable, Cell, Meaning, Part, Unit

_MANY = 4
"""Rows of a table, at most, and different names."""
_HIGH = 50

Make = Callable[[random.Random], Any]


class Derived:
    """Maker of random values of any annotated type; those with a condition are made by `by_type` and `by_field`."""

    def __init__(
        self,
        rnd: random.Random,
        by_type: Mapping[type, Make],
        by_field: Mapping[tuple[type, str], Make],
    ) -> None:
        self._rnd = rnd
        self._by_type, self._by_field = by_type, by_field

    def value(self, hint: Any) -> Any:
        """Return a random value of an annotation; TypeError for one that is not supported."""
        rnd = self._rnd
        if hint in self._by_type:
            return self._by_type[hint](rnd)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self.value(rnd.choice(arguments))
        if origin is tuple:
            cells = arguments[:1] * rnd.randrange(_MANY) if arguments[-1] is Ellipsis else arguments
            return tuple(map(self.value, cells))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            key, value = arguments
            return {self.value(key): self.value(value) for _ in range(rnd.randrange(1, _MANY))}
        if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
            return hint(**{name: self.field(hint, name) for name in fields_of(hint)})
        return self._simple(hint)

    def field(self, kind: type, name: str) -> Any:
        """Return a random value of a field of a dataclass or a named tuple."""
        make = self._by_field.get((kind, name))
        return self.value(fields_of(kind)[name]) if make is None else make(self._rnd)

    def _simple(self, hint: Any) -> Any:
        rnd = self._rnd
        simple: dict[Any, Callable[[], Any]] = {
            int: lambda: rnd.randrange(1, _HIGH),
            float: rnd.random,
            str: lambda: "abcdefgh"[rnd.randrange(_MANY)],
            bool: lambda: rnd.random() < 0.5,
            type(None): lambda: None,
        }
        if hint not in simple:
            raise TypeError(f"no random value of {hint}")
        return simple[hint]()


def declared_rows(
    rnd: random.Random, table: AnyTable, devices: Sequence[str], histogram: Callable[[int], Histogram]
) -> dict[Any, Any]:
    """Return random rows of a declared table; `histogram` makes one of a scale."""
    keys = {table.key_of(_part(rnd, part, devices) for part in table.parts) for _ in range(rnd.randrange(1, _MANY))}
    return {key: _declared_value(rnd, table, key, histogram) for key in sorted(keys)}


def _part(rnd: random.Random, part: Part, devices: Sequence[str]) -> Any:
    if part.meaning is Meaning.DEVICE:
        return rnd.choice(devices)
    if part.names:
        return rnd.choice(part.names)
    if part.highest is None:
        return "abcdefgh"[rnd.randrange(_MANY)]
    return (
        1 << rnd.randrange(12, 21) if part.is_power_of_two else rnd.randrange(part.lowest, min(part.highest + 1, _HIGH))
    )


def _content(rnd: random.Random, cell: Cell, histogram: Callable[[int], Histogram]) -> Any:
    if cell.is_histogram:
        return histogram(cell.bits)
    if cell.unit is Unit.NAMED:
        return {"abcdefgh"[rnd.randrange(_MANY)]: rnd.randrange(1, _HIGH) for _ in range(rnd.randrange(1, _MANY))}
    if cell.unit is not Unit.FACT:
        return rnd.randrange(1, _HIGH)
    if isinstance(cell.unknown, bool):
        return bool(rnd.randrange(2))
    if isinstance(cell.unknown, tuple):
        return tuple(_part(rnd, cell.part, ()) for _ in range(rnd.randrange(_MANY)))
    return _part(rnd, cell.part, ())


def _declared_value(rnd: random.Random, table: AnyTable, key: Any, histogram: Callable[[int], Histogram]) -> Any:
    """Return a random value; its first count grows until I/Os can have it."""
    cells = [getattr(key, cell.name) if cell.of_key else _content(rnd, cell, histogram) for cell in table.value.cells]
    while why_impossible(table, value := table.value.make(*cells)):
        cells[0] += _HIGH
    return value


def why_impossible(table: AnyTable, value: Any) -> str:
    """Return why no I/Os can have a value; empty where some can."""
    if table.value.impossible is None:
        return ""
    cells = list(zip(table.value.cells, table.value.split(value), strict=True))
    counts = [content for cell, content in cells if cell.is_count]
    return table.value.impossible(*counts, *(content.count for cell, content in cells if cell.is_histogram))


def fields_of(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass or a named tuple with their resolved annotations."""
    hints = typing.get_type_hints(kind)
    named = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
    return {name: hints[name] for name in named}
