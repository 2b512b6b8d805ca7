"""A finding as a frozen value: one sentence, the numbers behind it, what to do, and what would refute it.

Owns the severities and their order. Knows no rule, no frame and no screen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from latmon.findings.commands import ran

NOTICE, WARNING, CRITICAL = "notice", "warning", "critical"
SEVERITIES = (NOTICE, WARNING, CRITICAL)
"""Worth knowing; I/Os are slow for this; I/Os that somebody waits for are stuck, or nearly all of the time is lost."""


class Fact(NamedTuple):
    """A number that gave it away. `name` is its key in a report, `said` the words that a person reads."""

    name: str
    value: float | str
    said: str
    unit: str = ""
    """us, ios, share (0..1), per_s; empty for a plain number or a text."""
    of: int | None = None
    """How many samples it is of; None where it is a setting or one of a kind."""


class Step(NamedTuple):
    """What to do next, what may go wrong with it, and commands to copy, which never stand in `what`."""

    what: str
    risk: str = "none: it only looks"
    commands: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return what a person reads: what to do, then the commands, and which of them were not run here."""
        lines = ", ".join(line if ran(line) else f"{line} (not run here)" for line in self.commands)
        between = " " if self.what.endswith("?") else ": "
        return f"{self.what}{between}{lines}" if lines else self.what


class Where(NamedTuple):
    """The view that shows the evidence: a screen of the TUI, what is selected there, and the region on its map."""

    screen: str
    """overview, stages, outstanding, outliers, interrupts."""
    device: str = ""
    op: str = ""
    """Empty: all."""
    low_us: int | None = None
    high_us: int | None = None
    """Of the latencies that it is about; None: no bound."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a window. Equal ones in windows that follow each other are one episode (watch.py)."""

    id: str
    severity: str
    device: str
    """Empty: the host's."""
    summary: str
    """One sentence without its full stop: who, what, how much, why."""
    facts: tuple[Fact, ...]
    where: Where
    steps: tuple[Step, ...]
    refuted_by: str
    """What would show that it is something else."""
    share: float = 0.0
    """Which part of the time of the I/Os that it is about it explains, 0..1."""
    also: tuple[str, ...] = ()
    """Other devices that it is about: what it explains on them needn't be told either."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same finding in another window."""
        return self.id, self.device

    @property
    def weight(self) -> tuple[int, float]:
        """Greater is more urgent."""
        return SEVERITIES.index(self.severity), self.share

    @property
    def rank(self) -> tuple[int, float, tuple[str, str]]:
        """To sort by, the most urgent one first: by severity, then by the share of time they explain."""
        return -self.weight[0], -self.weight[1], self.key


def in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The most urgent one first."""
    return tuple(sorted(findings, key=lambda one: one.rank))


def sized(said: str, of: int | None) -> str:
    """What is said, and how many samples it is of where that isn't said."""
    if of is None or any(re.search(rf"(?<![\d.,]){text}(?!\d|[.,]\d)", said) for text in (str(of), f"{of:,}")):
        return said
    return f"{said} (of {of:,})"
