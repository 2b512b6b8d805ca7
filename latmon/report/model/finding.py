"""Findings of a report: results of the rules, and which rules had their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from latmon.findings.rule import Severity
from latmon.support.typed_json import MERGED, IfAny, OrAbsent


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A number of the evidence with its sentence."""

    value: float | str | None
    unit: IfAny[str] = ""
    """us, ios, share (0 to 1), per_s, bytes, ..."""
    samples: OrAbsent[int] = None
    """Number of samples."""
    text: str


@dataclass(frozen=True)
class View:
    """The screen that shows the evidence."""

    screen: str
    device: IfAny[str] = ""
    op: IfAny[str] = ""
    low_us: OrAbsent[int] = None
    high_us: OrAbsent[int] = None


@dataclass(frozen=True)
class Command:
    """A command of a next step."""

    line: str
    ran: bool
    """Whether it was run on a test machine."""


@dataclass(frozen=True)
class NextStep:
    """A next step."""

    text: str
    """What to do, with the commands."""
    risk: str
    what: OrAbsent[str] = None
    """Without the commands."""
    commands: IfAny[tuple[Command, ...]] = ()


@dataclass(frozen=True)
class Lasted:
    """Time of a finding in a report."""

    begin: str | None
    end: str | None
    episodes: int
    found_s: float
    """Length of the blocks after which it was found."""
    of_s: float
    """Time from the first of them to the end of the last one."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding; `begin`, `end` and `episodes` are those of a report."""

    id: str
    """The rule, as `latmon rules` lists it."""
    severity: Severity
    device: str
    """Empty for the host."""
    summary: str
    lasted: Annotated[Lasted | None, MERGED] = None
    share: float | None
    """Part of the device's or the program's time that it explains."""
    evidence: Mapping[str, Fact]
    view: View
    next_steps: tuple[NextStep, ...]
    refuted_by: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Which rules were evaluated, and how."""

    rules: int
    judged: int
    judged_by: Literal["windows", "minutes"]
    not_judged: Mapping[str, tuple[str, ...]]
    """Missing input -> rules."""
    partly_evaluated: IfAny[Mapping[str, float]]
    """Rule -> part of the evaluations that lacked an input."""
    rules_off: IfAny[tuple[str, ...]]
    failed: IfAny[Mapping[str, str]]
    episodes_left_out: IfAny[int]


@dataclass(frozen=True)
class Findings:
    """Findings of a recording with rules that were evaluated."""

    findings: tuple[Finding, ...]
    """Absent where no rule was evaluated."""
    findings_by: Evaluation
