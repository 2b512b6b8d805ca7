"""`latmon doctor --self-test`: makes a known delay and checks that every panel shows it.

Contains the results as values and imports nothing else, because the doctor without a self-test needs no panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Result of one check; `unmeasured` where no probe measures it on this host."""

    OK = "ok"
    FAILED = "failed"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True)
class PanelCheck:
    """One check: the panel's name, the verdict, and the panel's value beside the real one."""

    name: str
    verdict: Verdict
    what: str


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of the self-test; `refused` is the reason why it can't run here, and then there are no checks."""

    refused: str = ""
    device: str = ""
    measured_with: str = ""
    checks: tuple[PanelCheck, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether it ran and no panel showed a wrong value."""
        return not self.refused and all(one.verdict is not Verdict.FAILED for one in self.checks)
