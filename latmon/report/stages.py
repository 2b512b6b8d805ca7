"""Where an op's time goes: its stages from the traced requests where some were, else from the always-on probe.

Says of every stage that has no number why. Pure: merged values in, plain JSON values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from latmon import deep
from latmon.histogram import Histogram
from latmon.model import STAGES, UNACCOUNTED, Flow, Missing, Origin, Series, Traced
from latmon.report.figures import order, shares, summed
from latmon.stage_names import called
from latmon.views.anatomy import NO_WAITER

_TOTAL = "total"
NOT_PASSED = "n/a: "
"""How the reason begins for a stage that is measured and that no request passed."""
_PASSED = {
    "requeue": "no request was refused by the driver",
    "resume": "no thread was seen to wait for it",
}


def stages(flow: Flow, always: Mapping[str, Histogram], origin: Origin, traced: Traced) -> dict[str, Any]:
    """The keys `stages`, `stages_absent`, and of traced requests `of` and `unaccounted`."""
    found = deep.stages_of(traced, flow.device, (flow.op,))
    total = deep.total_of(traced, flow.device, (flow.op,))
    if not total:
        # What follows an I/O's end is counted by itself, and by scripts that need not trace I/Os.
        return _always({**always, **{name: one for name, one in found.items() if name == "resume"}}, origin, traced)
    passed = {name: one for name, one in found.items() if name != UNACCOUNTED}
    return {
        "stages": _each(passed, traced.includes_of(flow.device)),
        "stages_absent": _absent(flow.device, passed, traced),
        "of": {**sampling(traced), "latency_us": summed(total)},
        **({"unaccounted": summed(found[UNACCOUNTED])} if UNACCOUNTED in found else {}),
    }


def sampling(traced: Traced) -> dict[str, int]:
    """The key `one_in`, at its coarsest, and `one_in_least` where it changed."""
    least, most = traced.sampled
    return {"one_in": most, **({"one_in_least": least} if least != most else {})}


def tail(device: str, ops: Iterable[str], traced: Traced, cut_us: int | None) -> dict[str, Any]:
    """The key `tail`; nothing when no I/O is above the cut, or none was traced."""
    if cut_us is None:
        return {}
    found = deep.tail(traced, device, ops, cut_us)
    if not found.count:
        return {}
    return {"tail": {"cut_us": found.cut_us, "count": found.count, "share": shares(found.share)}}


def includes_of(ops: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return stage -> stages that it includes, of a device's ops in the report: of the traced ones where there are."""
    some = [op for op in ops.values() if "of" in op] or list(ops.values())
    return {stage: figures["includes"] for op in some for stage, figures in op["stages"].items()}


def followed(device: str, traced: Traced) -> dict[str, Any]:
    """How the device's traced requests completed, and why some could not be followed."""
    told = {"paths": traced.paths.get(device, {}), "unfollowed": traced.unfollowed.get(device, {})}
    return {"traced": {key: dict(value) for key, value in told.items() if value}} if any(told.values()) else {}


def ops_of(traced: Traced, device: str) -> set[str]:
    """Ops of which a request was traced."""
    return {one.op for one in traced.histograms if one == Series(device, one.op, _TOTAL)}


def _always(found: Mapping[str, Histogram], origin: Origin, traced: Traced) -> dict[str, Any]:
    reasons = _reasons(origin.absent)
    if origin.backend == "dtrace" and traced.one_in and not origin.why_untraced("resume"):
        reasons["resume"] = NOT_PASSED + NO_WAITER
    return {
        "stages": _each({name: one for name, one in found.items() if name != _TOTAL}, origin.measured),
        "stages_absent": {name: why for name, why in reasons.items() if name not in found},
    }


def _each(found: Mapping[str, Histogram], includes: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        name: summed(found[name]) | {"includes": list(includes.get(name, ()))}
        for name in sorted(found, key=order(STAGES))
    }


def _absent(device: str, passed: Mapping[str, Histogram], traced: Traced) -> dict[str, str]:
    """Not measured here, or measured and passed by none of them."""
    reasons = _reasons(traced.absent)
    includes = traced.includes_of(device)
    holders = {inner: name for name, others in includes.items() for inner in others}
    found = {}
    for name in (one for one in STAGES if one != _TOTAL and one not in passed):
        if name in reasons:
            found[name] = reasons[name]
        elif holders.get(name) in passed:
            held = called(holders[name], includes[holders[name]]).both
            found[name] = f"not measured: its time is in {held}"
        else:
            found[name] = NOT_PASSED + (_PASSED.get(name) or _completes(device, traced))
    return found


def _reasons(absent: Iterable[Missing]) -> dict[str, str]:
    return {one.name: one.reason for one in absent}


def _completes(device: str, traced: Traced) -> str:
    paths = traced.paths.get(device, {})
    if not paths:
        return "no followed request of this device passed it"
    most = max(paths, key=lambda name: paths[name])
    where = f"in the {most}" if most == "hard interrupt" else f"by {most}"
    return f"completes {where}" if len(paths) == 1 else f"no followed request passed it; most complete {where}"
