"""Checks of the backends: which tier of probe this host gets and why, and what measures each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from latmon.capture import registry
from latmon.doctor import dtrace
from latmon.doctor.checks import Check, Place, Status
from latmon.support.errors import LatmonError

_EXPLAIN = {
    "bpftrace": "latmon_backends.bpftrace.explain:explain",
    "dtrace": "latmon_backends.dtrace.explain:explain",
}
_NO = "no: "
_NONE = ("", "D")
"""Tiers of a host that no probe runs on."""
_TIERS_OF = {"A": "A", "A'": "A", "B": "C", "C": "C"}
"""An always-on tier of bpftrace's -> that of its deep probes."""
_TIERS = frozenset(_TIERS_OF.values())
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
    """What a backend's `explain()` answers; an empty tier means that it can't measure here."""

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


def report(place: Place, load: Load = registry.load_target, backend: str = "") -> TierReport:
    """Asks the backend that would open here, which finds out by trying: the first that measures, else the first.

    `backend`: the one that the config asks for.
    """
    if place.platform != "linux" or backend == "dtrace":
        return _asked("dtrace", load)
    found = _asked("bpftrace", load)
    if found.tier in _NONE and dtrace.is_there(place):
        other = _asked("dtrace", load, reason=found.why)
        return found if other.tier in _NONE else other
    return found


def _asked(backend: str, load: Load, **why: str) -> TierReport:
    try:
        return cast("Callable[..., TierReport]", load(backend, _EXPLAIN[backend]))(**why)
    except LatmonError as error:
        return Unexplained(str(error))


def tier(found: TierReport) -> Check:
    """The tier as a check."""
    if found.tier in _NONE:
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {found.why}")
    return Check("tier", Status.OK, f"{found.tier}: {found.why}" if found.why else found.tier)


def beside(place: Place, found: TierReport, load: Load = registry.load_target) -> tuple[Check, ...]:
    """Where bpftrace measures and the user named a dtrace: what `--backend dtrace` would measure with."""
    asked = any("dtrace" in one.traced for one in found.stages)
    if place.platform != "linux" or not place.environ.get(dtrace.VARIABLE) or asked or found.tier in _NONE:
        return ()
    other = _asked("dtrace", load)
    if other.tier in _NONE:
        return (Check("dtrace tier", Status.DEGRADED, f"--backend dtrace measures nothing here: {other.why}"),)
    return (Check("dtrace tier", Status.OK, f"{other.tier} with --backend dtrace: {other.why}"),)


def matrix(found: TierReport) -> list[str]:
    """Stage by stage what measures it: always, and traced by each tier; then why not, the hooks, and the drivers."""
    if not found.stages:
        return []
    tiers = tuple(found.stages[0].traced)
    head = [
        "stage",
        "always",
        *(_title(name) + " (here)" * (name == _here(found)) for name in tiers),
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
    told = found.ages.get(_here(found), f"{_NO}no script of the tracer runs here")
    if told.startswith(_NO):
        return f'ages are "at least", who waits for what is not known: {told.removeprefix(_NO)}'
    return f'each I/O\'s age and who issued it, while the tracer runs ({told}); else ages are "at least"'


def as_values(found: TierReport) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {"stage": one.stage, "always": one.always, "traced": dict(one.traced), "here": _here(found)}
        for one in found.stages
    ]


def _cell(text: str) -> str:
    return "-" if text.startswith(_NO) else text


def _reasons(found: TierReport) -> list[str]:
    """Why a stage is not measured by what runs here; once, with all the stages that it holds for."""
    here = _here(found)
    reasons: dict[str, list[str]] = {}
    for one in found.stages:
        if here and one.traced.get(here, "").startswith(_NO):
            reasons.setdefault(f"not traced: {one.traced[here].removeprefix(_NO)}", []).append(one.stage)
    return [f"{', '.join(stages)} {why}" for why, stages in reasons.items()]


def _hooks(found: TierReport) -> list[str]:
    """Of the scripts that would run here: those of bpftrace have their tier in their name."""
    here = _here(found)
    ending = f"_{here.lower()}" if here in _TIERS else ""
    return [f"{name} hooks {', '.join(hooks)}" for name, hooks in found.hooks.items() if here and name.endswith(ending)]


def _title(name: str) -> str:
    return f"traced, tier {name}" if name in _TIERS else f"traced, {name}"


def _here(found: TierReport) -> str:
    """Which deep probes go with what runs here, by their name in `traced`; none with none."""
    names = tuple(found.stages[0].traced) if found.stages else ()
    if found.tier in _NONE:
        return ""
    return _TIERS_OF.get(found.tier, "") if not names or names[0] in _TIERS else names[0]
