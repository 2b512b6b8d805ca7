"""The doctor's view of bpftrace: the tier that attaches here, and what measures each stage.

Stages are looked up, not tried: the deep scripts by their manifests and the hooks that the kernel has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from latmon.capture.backend import Options
from latmon.manifest.loader import Manifest
from latmon.model.frame import STAGES, Origin
from latmon.support.errors import UnavailableError
from latmon_backends.bpftrace import tracer
from latmon_backends.bpftrace.backend import BpftraceBackend
from latmon_backends.bpftrace.tracer import Choice, Inventory
from latmon_backends.probe.explain import StageReport, TierReport, always

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
_TIERS = ("A", "C")
"""Of deep scripts: A' traces as A does, B as C."""


def explain() -> TierReport:
    """Finds out by trying, which takes as long as a start."""
    return asyncio.run(_explain())


async def _explain() -> TierReport:
    options = Options(stages="basic")
    inventory = Inventory(options)
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
        return TierReport("", str(refusal), stages(None, choices), hooks, DRIVERS, ages(choices))
    return TierReport(origin.tier, origin.reason, stages(origin, choices), hooks, DRIVERS, ages(choices))


def stages(origin: Origin | None, choices: Mapping[str, Choice]) -> tuple[StageReport, ...]:
    """Every stage; `origin` None where no always-on probe runs."""
    return tuple(
        StageReport(stage, always(stage, origin), {tier: _traced(stage, one) for tier, one in choices.items()})
        for stage in STAGES
    )


def ages(choices: Mapping[str, Choice]) -> dict[str, str]:
    """By tier, the scripts that follow each I/O in flight."""
    return {tier: _following(one) for tier, one in choices.items()}


def _following(choice: Choice) -> str:
    scripts = [one.name for one in choice.manifests if "waiting" in one.records]
    why = next((one.reason for one in choice.missing if one.name == "inflight"), "no probe measures it")
    return ", ".join(scripts) or f"no: {why}"


def _traced(stage: str, choice: Choice) -> str:
    """The scripts that feed it, and whose time it holds; else why none does."""
    feeding = [one for one in choice.manifests if one.group != "bios" and stage in one.stages]
    if feeding:
        inside = tuple(dict.fromkeys(into for one in feeding for into in one.includes.get(stage, ())))
        return ", ".join(one.name for one in feeding) + (f", with {', '.join(inside)} in it" if inside else "")
    return f"no: {_why_not(stage, choice.manifests) or '; '.join(_refusals(choice)) or 'no probe measures it'}"


def _why_not(stage: str, manifests: tuple[Manifest, ...]) -> str:
    return next((one.absent[stage] for one in manifests if one.group == "stages" and stage in one.absent), "")


def _refusals(choice: Choice) -> list[str]:
    return [f"{one.name}: {one.reason}" for one in choice.missing if one.name in ("stages", "wakeups")]
