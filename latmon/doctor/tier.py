"""Checks of the backends: which tier of probe this host gets and why, and what measures each stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from latmon.capture import registry
from latmon.capture.backend import NO, ProbeReport
from latmon.doctor import dtrace
from latmon.doctor.checks import Check, Place, Status
from latmon.support.errors import LatmonError
from latmon.support.text import aligned

_EXPLAIN = {
    "bpftrace": "latmon_backends.bpftrace.explain:explain",
    "dtrace": "latmon_backends.dtrace.explain:explain",
}
_NONE = ("", "D")
"""Tiers without a probe."""
_TIERS_OF = {"A": "A", "A'": "A", "B": "C", "C": "C"}
"""Tier of bpftrace's always-on probe -> that of its tracer."""
_TIERS = frozenset(_TIERS_OF.values())
Load = Callable[[str, str], Callable[..., object]]


def report(place: Place, load: Load = registry.load_target, backend: str = "") -> ProbeReport:
    """Return the explanation of the backend that latmon would use here; backends find out by trying.

    `backend` is the one that the user or the config selects.
    """
    if place.platform != "linux" or backend == "dtrace":
        return _asked("dtrace", load)
    found = _asked("bpftrace", load)
    if found.tier in _NONE and dtrace.is_there(place):
        other = _asked("dtrace", load, reason=found.why)
        return found if other.tier in _NONE else other
    return found


def _asked(backend: str, load: Load, **why: str) -> ProbeReport:
    try:
        return cast("Callable[..., ProbeReport]", load(backend, _EXPLAIN[backend]))(**why)
    except LatmonError as error:
        return ProbeReport("", str(error))


def tier(found: ProbeReport) -> Check:
    """Return the tier as a check."""
    if found.tier in _NONE:
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {found.why}")
    return Check("tier", Status.OK, f"{found.tier}: {found.why}" if found.why else found.tier)


def beside(place: Place, found: ProbeReport, load: Load = registry.load_target) -> tuple[Check, ...]:
    """Check the tier of `--backend dtrace` where bpftrace measures and the user named a dtrace."""
    asked = any("dtrace" in one.traced for one in found.stages)
    if place.platform != "linux" or not place.environ.get(dtrace.VARIABLE) or asked or found.tier in _NONE:
        return ()
    other = _asked("dtrace", load)
    if other.tier in _NONE:
        return (Check("dtrace tier", Status.DEGRADED, f"--backend dtrace measures nothing here: {other.why}"),)
    return (Check("dtrace tier", Status.OK, f"{other.tier} with --backend dtrace: {other.why}"),)


def matrix(found: ProbeReport) -> list[str]:
    """Return the lines of the stage matrix, then the reasons for missing stages, the hooks and the drivers."""
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
    drivers = [f"{name} completes: {how}" for name, how in found.drivers.items()]
    return [*aligned(rows), *_reasons(found), f"in flight: {in_flight(found)}", *_hooks(found), *drivers]


def in_flight(found: ProbeReport) -> str:
    """Return a sentence on the ages of I/Os in flight."""
    reported = found.ages.get(_here(found), f"{NO}no script of the tracer runs here")
    if reported.startswith(NO):
        return f'ages are "at least", the waiting threads are not known: {reported.removeprefix(NO)}'
    return f'each I/O\'s age and its issuer, while the tracer runs ({reported}); else ages are "at least"'


def as_values(found: ProbeReport) -> list[dict[str, Any]]:
    """Return the stage matrix for JSON."""
    return [
        {"stage": one.stage, "always": one.always, "traced": dict(one.traced), "here": _here(found)}
        for one in found.stages
    ]


def _cell(text: str) -> str:
    return "-" if text.startswith(NO) else text


def _reasons(found: ProbeReport) -> list[str]:
    """Return each reason why stages are not traced on this host, with its stages."""
    here = _here(found)
    reasons: dict[str, list[str]] = {}
    for one in found.stages:
        if here and one.traced.get(here, "").startswith(NO):
            reasons.setdefault(f"not traced: {one.traced[here].removeprefix(NO)}", []).append(one.stage)
    return [f"{', '.join(stages)} {why}" for why, stages in reasons.items()]


def _hooks(found: ProbeReport) -> list[str]:
    """Return the hooks of this host's scripts; bpftrace's have their tier in their name."""
    here = _here(found)
    ending = f"_{here.lower()}" if here in _TIERS else ""
    return [f"{name} hooks {', '.join(hooks)}" for name, hooks in found.hooks.items() if here and name.endswith(ending)]


def _title(name: str) -> str:
    return f"traced, tier {name}" if name in _TIERS else f"traced, {name}"


def _here(found: ProbeReport) -> str:
    """Return the key in `traced` of this host's tracer; empty without one."""
    names = tuple(found.stages[0].traced) if found.stages else ()
    if found.tier in _NONE:
        return ""
    return _TIERS_OF.get(found.tier, "") if not names or names[0] in _TIERS else names[0]
