"""`latmon doctor --self-test`: a delay of a known length on a device of our own, and whether the panels show it.

Owns the order of the steps and what they came to: `device` makes the device, `load` the delay, `capturing` watches it
as a live start would, `judging` compares. Knows neither arguments nor how the lines are printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from latmon import opening
from latmon.errors import UnavailableError, UsageError
from latmon.self_test import capturing, device, judging
from latmon.self_test.judging import Shown, Verdict

__all__ = ["SelfTest", "Shown", "Verdict", "check_backend", "self_test"]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What came of it; `refused` is why it can't run here, and then there is nothing else."""

    refused: str = ""
    device: str = ""
    measured_with: str = ""
    shown: tuple[Shown, ...] = ()

    @property
    def passed(self) -> bool:
        """It ran, and nothing that is measured here was shown wrong."""
        return not self.refused and all(one.verdict is not Verdict.FAILED for one in self.shown)


def check_backend(name: str) -> None:
    """UsageError for a backend that doesn't measure this host."""
    opening.check(name)
    if name in opening.FINITE:
        raise UsageError(f"--self-test measures this host, and {name} doesn't; leave --backend {name} out")


def self_test(backend: str, say: Callable[[str], None]) -> SelfTest:
    """Takes about ten seconds, and what the probes take to start. `say` is told of its progress."""
    try:
        device.refuse(sys.platform, os.geteuid(), os.environ)
        with device.made(os.environ) as own:
            say(f"made {own.path}: {own.how}")
            captured = capturing.capture(own, backend, say)
    except UnavailableError as refusal:
        return SelfTest(refused=str(refusal))
    origin = captured.origin
    tier = f", tier {origin.tier}" if origin.tier else ""
    return SelfTest("", own.name, f"{origin.tool or origin.backend}{tier}", judging.judge(captured))
