"""Checks of a YAML tree's values, each of which names file and key when it refuses. Knows no manifest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from latmon.errors import ManifestError


class Checks:
    """Of one file. Every check gives the value, typed, or raises ManifestError."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, where: str, what: str) -> ManifestError:
        return ManifestError(f"{self.file}: {where}: {what}")

    def table(
        self, tree: Any, where: str, needed: tuple[str, ...] = (), optional: Iterable[str] | None = ()
    ) -> dict[str, Any]:
        """A table of keys; `optional` None allows every key."""
        if not isinstance(tree, dict):
            raise self.fail(where, "must be a table of keys")
        for key in tree:
            if optional is not None and key not in needed and key not in optional:
                raise self.fail(where, f"unknown key {key!r}")
        for key in needed:
            if key not in tree:
                raise self.fail(where, f"key {key!r} is missing")
        return tree

    def text(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.fail(where, "must be text")
        return " ".join(value.split())

    def integer(self, value: Any, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(where, "must be an integer")
        return value

    def within(self, value: Any, where: str, low: int, high: int) -> int:
        if not low <= self.integer(value, where) <= high:
            raise self.fail(where, f"must lie from {low} to {high}")
        return int(value)

    def word(self, value: Any, where: str, words: Iterable[str]) -> str:
        known = tuple(words)
        if value not in known:
            shown = repr(value) if isinstance(value, str | int) else f"a {type(value).__name__}"
            raise self.fail(where, f"must be one of {', '.join(known)}, not {shown}")
        return str(value)

    def words(self, value: Any, where: str, words: Iterable[str]) -> tuple[str, ...]:
        known = tuple(words)
        return tuple(self.word(each, where, known) for each in self.texts(value, where))

    def texts(self, value: Any, where: str, at_most: int | None = None) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.fail(where, "must be a list")
        if at_most is not None and len(value) > at_most:
            raise self.fail(where, f"must hold at most {at_most}")
        return tuple(self.text(each, where) for each in value)
