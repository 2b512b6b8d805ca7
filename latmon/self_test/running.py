"""The steps of the self-test, in their order.

`device` makes the device, `load` the delay, `capturing` watches it as a live start would, `judging` compares. Knows
neither arguments nor how the lines are printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from latmon import opening
from latmon.errors import UnavailableError, UsageError
from latmon.self_test import SelfTest, capturing, device, judging


def check_backend(name: str) -> None:
    """UsageError for a backend that doesn't measure this host."""
    opening.check(name)
    if name in opening.FINITE:
        raise UsageError(f"--self-test measures this host, and {name} doesn't; leave --backend {name} out")


def self_test(backend: str, say: Callable[[str], None]) -> SelfTest:
    """Takes about ten seconds of an idle host, and what the probes take to start. `say` is told of its progress."""
    try:
        device.refuse(sys.platform, os.geteuid(), os.environ)
        with device.made(os.environ, say) as own:
            say(f"made {own.path}: {own.how}")
            captured = capturing.capture(own, backend, say)
    except UnavailableError as refusal:
        return SelfTest(refused=str(refusal))
    origin = captured.origin
    tier = f", tier {origin.tier}" if origin.tier else ""
    return SelfTest("", own.name, f"{origin.tool or origin.backend}{tier}", judging.judge(captured))
