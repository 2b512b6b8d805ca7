"""Checks of the backends themselves: which tier of probe this host gets and why, and what measures each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from latmon import registry
from latmon.doctor.check import Check, Place, Status
from latmon.errors import LatmonError

_EXPLAIN = "latmon_backends.bpftrace_explain:explain"
_NO = "no: "
Load = Callable[[str, str], Callable[..., object]]


class StageReport(Protocol):
    """What measures one stage here; a text that begins with "no: " says why nothing does."""

    @property
    def stage(self) -> str: ...

    @property
    def always(self) -> str: ...

    @property
    def traced(self) -> Mapping[str, str]: ...


class TierReport(Protocol):
    """What the bpftrace backend's `explain()` answers; an empty tier means that it can't measure here."""

    @property
    def tier(self) -> str: ...

    @property
    def why(self) -> str: ...

    @property
    def stages(self) -> Sequence[StageReport]: ...

    @property
    def hooks(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def drivers(self) -> Mapping[str, str]: ...

    @property
    def ages(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A backend that can't even be loaded."""

    why: str
    tier: str = ""
    stages: Sequence[StageReport] = ()
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drivers: Mapping[str, str] = field(default_factory=dict)
    ages: Mapping[str, str] = field(default_factory=dict)


def report(_place: Place, load: Load = registry.load_target) -> TierReport:
    """Asks the bpftrace backend, which finds out by trying."""
    try:
        return cast("Callable[[], TierReport]", load("bpftrace", _EXPLAIN))()
    except LatmonError as error:
        return Unexplained(str(error))


def tier(found: TierReport) -> Check:
    """The tier as a check."""
    if found.tier in ("", "D"):
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {found.why}")
    return Check("tier", Status.OK, f"{found.tier}: {found.why}" if found.why else found.tier)


def matrix(found: TierReport) -> list[str]:
    """Stage by stage what measures it: always, and traced by each tier; then why not, the hooks, and the drivers."""
    if not found.stages:
        return []
    tiers = tuple(found.stages[0].traced)
    head = [
        "stage",
        "always",
        *(f"traced, tier {name}{' (here)' * (name == _deep_tier(found.tier))}" for name in tiers),
    ]
    rows = [
        head,
        *([one.stage, _cell(one.always), *(_cell(one.traced[name]) for name in tiers)] for one in found.stages),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    drivers = [f"{name} completes: {how}" for name, how in found.drivers.items()]
    return [*lines, *_reasons(found), f"in flight: {in_flight(found)}", *_hooks(found), *drivers]


def in_flight(found: TierReport) -> str:
    """What can be told here of I/Os that have not completed."""
    told = found.ages.get(_deep_tier(found.tier), f"{_NO}no deep probe runs here")
    if told.startswith(_NO):
        return f'ages are "at least", who waits for what can\'t be told: {told.removeprefix(_NO)}'
    return f'each I/O\'s age and who issued it, while the deep probes run ({told}); else ages are "at least"'


def as_values(found: TierReport) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {"stage": one.stage, "always": one.always, "traced": dict(one.traced), "here": _deep_tier(found.tier)}
        for one in found.stages
    ]


def _cell(text: str) -> str:
    return "-" if text.startswith(_NO) else text


def _reasons(found: TierReport) -> list[str]:
    """Why a stage is not measured by what runs here; once, with all the stages that it holds for."""
    here = _deep_tier(found.tier)
    reasons: dict[str, list[str]] = {}
    for one in found.stages:
        if here and one.traced.get(here, "").startswith(_NO):
            reasons.setdefault(f"not traced: {one.traced[here].removeprefix(_NO)}", []).append(one.stage)
    return [f"{', '.join(stages)} {why}" for why, stages in reasons.items()]


def _hooks(found: TierReport) -> list[str]:
    here = _deep_tier(found.tier).lower()
    return [
        f"{name} hooks {', '.join(found.hooks[name])}" for name in found.hooks if here and name.endswith(f"_{here}")
    ]


def _deep_tier(running: str) -> str:
    """Which deep probes go with an always-on tier; none with none."""
    return {"A": "A", "A'": "A", "B": "C", "C": "C"}.get(running, "")
