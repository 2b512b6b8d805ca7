"""A tool's report for the doctor: the probe that runs, why no better one does, which scripts measure each stage."""

from __future__ import annotations

from collections.abc import Sequence

from latmon.capture.backend import NO
from latmon.manifest.loader import Manifest
from latmon.model.frame import Origin
from latmon.model.stages import called


def always(stage: str, origin: Origin | None) -> str:
    """Return whether the always-on probe measures a stage, or why not; `origin` None where none runs."""
    if origin is None:
        return f"{NO}no always-on probe runs here"
    if stage in origin.measured:
        inside = origin.measured[stage]
        name = called(stage, inside)
        interval = f" as {name.both}" if name.column != stage else ""
        return f"yes{interval}, with {', '.join(inside)} in it" if inside else "yes"
    why = next((one.reason for one in origin.absent if one.name == stage), "not measured by this probe")
    return f"{NO}{why}"


def traced(stage: str, manifests: Sequence[Manifest]) -> str:
    """Return the tracer's scripts that measure a stage, and the stages that it includes; empty where none does."""
    feeding = [one for one in manifests if one.group != "bios" and stage in one.stages]
    inside = tuple(dict.fromkeys(into for one in feeding for into in one.includes.get(stage, ())))
    return ", ".join(one.name for one in feeding) + (f", with {', '.join(inside)} in it" if inside else "")


def following(manifests: Sequence[Manifest], why_not: str) -> str:
    """Return the scripts that follow each I/O in flight; NO and the reason where none does."""
    return ", ".join(one.name for one in manifests if "waiting" in one.records) or f"{NO}{why_not}"
