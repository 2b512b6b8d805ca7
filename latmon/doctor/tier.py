"""Checks of the backends themselves: which tier of probe this host gets and why, and whether the counters work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from latmon import registry
from latmon.doctor.check import Check, Place, Status
from latmon.errors import LatmonError

_EXPLAIN = "latmon_backends.bpftrace:explain"
Load = Callable[[str, str], Callable[..., object]]


class TierReport(Protocol):
    """What the bpftrace backend's `explain()` answers; an empty tier means that it can't measure here."""

    @property
    def tier(self) -> str: ...

    @property
    def why(self) -> str: ...


def tier(_place: Place, load: Load = registry.load_target) -> Check:
    """Asks the bpftrace backend, which finds out by trying."""
    try:
        report = cast("Callable[[], TierReport]", load("bpftrace", _EXPLAIN))()
    except LatmonError as error:
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {error}")
    if report.tier in ("", "D"):
        return Check("tier", Status.DEGRADED, f"D, the kernel's counters only: {report.why}")
    return Check("tier", Status.OK, f"{report.tier}: {report.why}" if report.why else report.tier)
