"""The doctor's view of bpftrace: the tier that attaches here, and what measures each stage.

The tracer's scripts are looked up, not tried: by their manifests and the hooks that the kernel has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from latmon.capture.backend import NO, Options, ProbeReport, StageCoverage
from latmon.manifest.loader import Manifest
from latmon.model.frame import STAGES, Origin
from latmon.support.errors import UnavailableError
from latmon_backends.bpftrace import tracer
from latmon_backends.bpftrace.backend import BpftraceBackend
from latmon_backends.bpftrace.tracer import ScriptInventory
from latmon_backends.probe.explain import always, following, traced
from latmon_backends.tracer.programs import ChosenScripts

DRIVERS: Mapping[str, str] = MappingProxyType(
    {
        "nvme": "hard interrupt: hba, irq",
        "ahci": "BLOCK softirq: hba, irq, softirq",
        "virtio-blk, one queue": "BLOCK softirq (6.18: every request)",
        "megaraid_sas (MFI), scsi_debug": "tasklet or timer, then BLOCK softirq: no irq stage from a timer",
        "nvme-rdma, iSER, mpt3sas, megaraid_sas (fusion)": "IRQ_POLL softirq",
        "loop": "BLOCK softirq, which its worker raises outside of a handler: hba, softirq, no irq",
        "nvme-tcp, dm-crypt": "a worker: followed when an interrupt or a softirq woke it (tier A), "
        "else named as not followed",
        "null_blk (timer)": "in the timer's interrupt, which has no handler: not followed",
        "dm, md, zram": "no requests: their bios, queued to complete, are Q2C (queue to completion) of the volume; "
        "stages are at the disks below",
    }
)
"""How a driver's requests complete where each queue has its own vector: docs/STAGES.md has the other kernels."""
_NO_PROBE = "no probe measures it"
_TIERS = ("A", "C")
"""Tiers of the tracer's scripts: A' traces as A does, B as C."""


def explain() -> ProbeReport:
    """Open the backend, which takes as long as a start, and report what runs."""
    return asyncio.run(_explain())


async def _explain() -> ProbeReport:
    options = Options(stages="basic")
    inventory = ScriptInventory(options)
    has, words = inventory.tracepoints.has, inventory.words
    choices = {tier: tracer.choose(inventory.manifests, tier, has, words, cpus=inventory.cpus) for tier in _TIERS}
    hooks = {
        one.name: tracer.hooks(one, has, words)
        for choice in choices.values()
        for one in choice.manifests
        if one.group != "bios"
    }
    try:
        async with BpftraceBackend(options) as backend:
            origin = backend.origin
    except UnavailableError as refusal:
        return ProbeReport("", str(refusal), stages(None, choices), hooks, DRIVERS, ages(choices))
    return ProbeReport(origin.tier, origin.reason, stages(origin, choices), hooks, DRIVERS, ages(choices))


def stages(origin: Origin | None, choices: Mapping[str, ChosenScripts]) -> tuple[StageCoverage, ...]:
    """Return the coverage of every stage; `origin` None where no always-on probe runs."""
    return tuple(
        StageCoverage(stage, always(stage, origin), {tier: _traced(stage, one) for tier, one in choices.items()})
        for stage in STAGES
    )


def ages(choices: Mapping[str, ChosenScripts]) -> dict[str, str]:
    """Return, by tier, the scripts that follow each I/O in flight."""
    return {tier: _following(one) for tier, one in choices.items()}


def _following(choice: ChosenScripts) -> str:
    why = next((one.reason for one in choice.missing if one.name == "inflight"), _NO_PROBE)
    return following(choice.manifests, why)


def _traced(stage: str, choice: ChosenScripts) -> str:
    """Return the scripts that measure a stage, else why none does."""
    why = _why_not(stage, choice.manifests) or "; ".join(_refusals(choice)) or _NO_PROBE
    return traced(stage, choice.manifests) or f"{NO}{why}"


def _why_not(stage: str, manifests: tuple[Manifest, ...]) -> str:
    return next((one.absent[stage] for one in manifests if one.group == "stages" and stage in one.absent), "")


def _refusals(choice: ChosenScripts) -> list[str]:
    return [f"{one.name}: {one.reason}" for one in choice.missing if one.name in ("stages", "wakeups")]
