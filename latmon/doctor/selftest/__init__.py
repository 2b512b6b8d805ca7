"""`latmon doctor --self-test`: a known delay, and whether every panel shows it.

Owns what came of it, as values; `running` owns the steps. Loads nothing else: the doctor alone needs no panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`unmeasured`: nobody measures it here, for the reason that is told."""

    OK = "ok"
    FAILED = "failed"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True)
class Shown:
    """One check: of which panel, what it shows and what was made."""

    name: str
    verdict: Verdict
    what: str


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What came of it; `refused` is why it can't run here, and then there is nothing else."""

    refused: str = ""
    device: str = ""
    measured_with: str = ""
    shown: tuple[Shown, ...] = ()

    @property
    def passed(self) -> bool:
        """It ran, and nothing that is measured here was shown wrong."""
        return not self.refused and all(one.verdict is not Verdict.FAILED for one in self.shown)
