"""The doctor's view of DTrace: the always-on script that runs here, and what traces each stage.

The deep scripts are looked up, not tried: by their manifests, and by which of their hooks `dtrace -l` lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from latmon.capture.backend import Options
from latmon.manifest.loader import Manifest
from latmon.model.frame import STAGES, Origin
from latmon.support.errors import UnavailableError
from latmon_backends.dtrace import program, tool
from latmon_backends.dtrace.backend import DtraceBackend
from latmon_backends.dtrace.program import Choice
from latmon_backends.probe.explain import NO, StageReport, TierReport, always

_LONGEST_S = 120
"""An emulated host takes a minute; one whose dtrace hangs is not waited for."""
TRACED = "dtrace"
"""D scripts have no tiers of deep ones: what has its hooks runs."""
DRIVERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "illumos": {
            "sd, ssd": "sd's probe where a command is sent, then biodone: queue, requeue, D2C (issue to completion)",
            "emlxs": "interrupt, then a completion thread per channel: queue, hba, irq, completion",
            "qlc": "task queues that hold permanent loops: their work is in D2C (issue to completion)",
            "others": "io:::start to biodone: a total alone",
        },
        "freebsd": {
            "da, ada, nda (CAM)": "CAM's done thread, or the interrupt thread: queue, requeue, hba, completion",
            "nvd and others without CAM": "queue in GEOM, the rest is D2C (issue to completion)",
        },
    }
)
"""By system, how a driver's I/Os complete: docs/DTRACE.md."""


def explain(reason: str = "") -> TierReport:
    """Finds out by trying, which takes as long as a start. `reason`: why no better backend."""
    return asyncio.run(_explain(reason))


async def _explain(reason: str) -> TierReport:
    try:
        system = tool.find().system
        # auto: the deep ones' hooks are listed
        async with asyncio.timeout(_LONGEST_S), DtraceBackend(Options(stages="auto"), reason) as backend:
            origin = backend.origin
    except TimeoutError:
        return TierReport("", f"dtrace runs no script within {_LONGEST_S} s")
    except UnavailableError as refusal:
        return TierReport("", str(refusal))
    return report(origin, program.manifests(system), system)


def report(origin: Origin, found: Sequence[Manifest], system: str) -> TierReport:
    """What an open backend's origin says, with the scripts that there are for its system."""
    choice = program.choose(found, lambda _: None, refused={one.name: one.reason for one in origin.probes_missing})
    running = f"{origin.extra.get('probe', '')} of {origin.tool}"
    return TierReport(
        origin.tier,
        f"{running}; {origin.reason}" if origin.reason else running,
        tuple(StageReport(stage, always(stage, origin), {TRACED: _traced(stage, choice, found)}) for stage in STAGES),
        {one.name: one.hooks for one in choice.manifests},
        DRIVERS.get(system, {}),
        {TRACED: _following(choice)},
    )


def _traced(stage: str, choice: Choice, found: Sequence[Manifest]) -> str:
    """The scripts that feed it, and whose time it holds; else why none does."""
    feeding = [one for one in choice.manifests if one.group != "bios" and stage in one.stages]
    if feeding:
        inside = tuple(dict.fromkeys(into for one in feeding for into in one.includes.get(stage, ())))
        return ", ".join(one.name for one in feeding) + (f", with {', '.join(inside)} in it" if inside else "")
    return f"{NO}{program.why_not(stage, choice, found)}"


def _following(choice: Choice) -> str:
    scripts = [one.name for one in choice.manifests if "waiting" in one.records]
    return ", ".join(scripts) or f"{NO}no D script follows each I/O"
