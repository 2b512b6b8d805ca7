"""The steps of the self-test, in order.

`device` makes the device, `load` the delay, `capturing` watches it as a live start would, `judging` compares. Knows
neither arguments nor how the lines are printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from latmon.capture import registry
from latmon.doctor.selftest import SelfTest, verdicts, workload
from latmon.support.errors import UnavailableError, UsageError


def check_backend(name: str) -> None:
    """UsageError for a backend that doesn't measure this host."""
    registry.check(name)
    if name in registry.FINITE:
        raise UsageError(f"--self-test measures this host, and {name} doesn't; leave --backend {name} out")


def self_test(backend: str, say: Callable[[str], None]) -> SelfTest:
    """Takes about ten seconds of an idle host, and what the probes take to start. `say` is told of its progress."""
    try:
        workload.refuse(sys.platform, os.geteuid(), os.environ)
        with workload.made(os.environ, say) as own:
            say(f"made {own.path}: {own.how}")
            captured = workload.capture(own, backend, say)
    except UnavailableError as refusal:
        return SelfTest(refused=str(refusal))
    origin = captured.origin
    tier = f", tier {origin.tier}" if origin.tier else ""
    return SelfTest("", own.name, f"{origin.tool or origin.backend}{tier}", verdicts.judge(captured))
