"""What a backend reports to the doctor: the probe that runs, why no better one, what measures each stage.

Values, and what an origin says of the always-on probe. Knows no probe tool; who finds it out is the tool's own module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from latmon.model.frame import Origin
from latmon.model.stages import called

NO = "no: "
"""Begins the reason why nothing measures a stage."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """What measures one stage here; a text that begins with NO says why nothing does."""

    stage: str
    always: str
    """By the always-on probe."""
    traced: Mapping[str, str]
    """By the deep probes, by tier."""


@dataclass(frozen=True, slots=True)
class TierReport:
    """What this host gets: the tier ("" for none), why not a better one, stages, and the deep scripts' hooks."""

    tier: str
    why: str
    stages: tuple[StageReport, ...] = ()
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Driver -> how its I/Os complete, which decides what stages they have."""
    ages: Mapping[str, str] = field(default_factory=dict)
    """By tier of deep scripts, what tells of I/Os that have not completed; NO and why nothing does."""


def always(stage: str, origin: Origin | None) -> str:
    """What the always-on probe says of a stage; `origin` None where none runs."""
    if origin is None:
        return f"{NO}no always-on probe runs here"
    if stage in origin.measured:
        inside = origin.measured[stage]
        name = called(stage, inside)
        interval = f" as {name.both}" if name.column != stage else ""
        return f"yes{interval}, with {', '.join(inside)} in it" if inside else "yes"
    why = next((one.reason for one in origin.absent if one.name == stage), "not measured by this probe")
    return f"{NO}{why}"
