"""The table of stages: names by the interval that each includes.

Keys of JSON and of recordings stay model.STAGES and carry `includes`. `D2C` and `Q2C` are btt's words (blktrace):
driver to completion, queue to completion. Knows no width and no colour.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from latmon.model.frame import STAGES, UNACCOUNTED

T = TypeVar("T")


class Name(NamedTuple):
    """Displayed names: `column` has at most seven cells where the stage includes others."""

    column: str
    sentence: str
    letter: str
    """In a bar."""

    @property
    def both(self) -> str:
        """Return `D2C (issue to completion)`, or the one name that there is."""
        return self.column if self.column == self.sentence else f"{self.column} ({self.sentence})"


_PLAIN = {
    stage: Name(stage, stage, letter) for stage, letter in zip((*STAGES[:-1], UNACCOUNTED), "qrhiscw?", strict=True)
}
_WITH_INTERRUPT = Name("hba+", "hba with its interrupt", "h")
_DRIVER_TO_COMPLETION = Name("D2C", "issue to completion", "d")
_QUEUE_TO_COMPLETION = Name("Q2C", "queue to completion", "b")
_INTERVALS = (_WITH_INTERRUPT, _DRIVER_TO_COMPLETION, _QUEUE_TO_COMPLETION)
_HBA = STAGES.index("hba")
COLUMNS = (*STAGES[: _HBA + 1], *(one.column for one in _INTERVALS), *STAGES[_HBA + 1 : -1], UNACCOUNTED)
"""All column names, in the order in which an I/O passes the stages."""
STAGE_OF: Mapping[str, str] = MappingProxyType(
    {name: name for name in _PLAIN} | {one.column: "hba" for one in _INTERVALS}
)
"""Column name -> stage."""
LETTERS: Mapping[str, str] = MappingProxyType({one.column: one.letter for one in (*_PLAIN.values(), *_INTERVALS)})
"""Column name -> its letter in a bar."""


def called(stage: str, includes: Collection[str] = ()) -> Name:
    """Return the names of a stage whose time includes that of these neighbours."""
    if stage != "hba" or not includes:
        return _PLAIN.get(stage, Name(stage, stage, ""))
    if "completion" not in includes:
        return _WITH_INTERRUPT
    return _QUEUE_TO_COMPLETION if "queue" in includes else _DRIVER_TO_COMPLETION


def by_column(parts: Mapping[str, T], includes: Mapping[str, Collection[str]]) -> dict[str, T]:
    """Return stage -> value as column name -> value, in the same order."""
    return {called(stage, includes.get(stage, ())).column: value for stage, value in parts.items()}


def explained(stage: str, includes: Collection[str]) -> str:
    """Return the sentence below a table on a stage that includes others; empty for one that includes none."""
    if not includes:
        return ""
    name, inside = called(stage, includes), ", ".join(includes)
    return f"{name.both} includes {inside}"
