"""The doctor's view of DTrace: the always-on script that runs here, and what traces each stage.

The tracer's scripts are looked up, not tried: by their manifests, and by which of their hooks `dtrace -l` lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from latmon.capture.backend import NO, Options, ProbeReport, StageCoverage
from latmon.manifest.loader import Manifest
from latmon.model.frame import STAGES, Origin
from latmon.support.errors import UnavailableError
from latmon_backends.dtrace import program, tool
from latmon_backends.dtrace.backend import DtraceBackend
from latmon_backends.probe.explain import always, following, traced
from latmon_backends.tracer.programs import ChosenScripts

_LONGEST_S = 120
"""An emulated host takes a minute; a dtrace that hangs is given up."""
TRACED = "dtrace"
"""The tracer's D scripts have no tiers: those whose hooks exist run."""
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


def explain(reason: str = "") -> ProbeReport:
    """Open the backend, which takes as long as a start, and report what runs. `reason`: why no better backend."""
    return asyncio.run(_explain(reason))


async def _explain(reason: str) -> ProbeReport:
    try:
        system = tool.find().system
        # auto: the hooks of the tracer's scripts are listed
        async with asyncio.timeout(_LONGEST_S), DtraceBackend(Options(stages="auto"), reason) as backend:
            origin = backend.origin
    except TimeoutError:
        return ProbeReport("", f"dtrace runs no script within {_LONGEST_S} s")
    except UnavailableError as refusal:
        return ProbeReport("", str(refusal))
    return report(origin, program.manifests(system), system)


def report(origin: Origin, found: Sequence[Manifest], system: str) -> ProbeReport:
    """Return the report from an open backend's origin and its system's scripts."""
    choice = program.choose(found, lambda _: None, refused={one.name: one.reason for one in origin.probes_missing})
    running = f"{origin.extra.get('probe', '')} of {origin.tool}"
    return ProbeReport(
        origin.tier,
        f"{running}; {origin.reason}" if origin.reason else running,
        tuple(StageCoverage(stage, always(stage, origin), {TRACED: _traced(stage, choice, found)}) for stage in STAGES),
        {one.name: one.hooks for one in choice.manifests},
        DRIVERS.get(system, {}),
        {TRACED: following(choice.manifests, "no D script follows each I/O")},
    )


def _traced(stage: str, choice: ChosenScripts, found: Sequence[Manifest]) -> str:
    """Return the scripts that measure a stage, else why none does."""
    return traced(stage, choice.manifests) or f"{NO}{program.why_not(stage, choice, found)}"
