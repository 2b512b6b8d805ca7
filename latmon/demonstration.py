"""`latmon demo` without a screen: the list of scenarios, and a scenario's recording, the same bytes for the same seed.

The demo backend is asked by name; what a scenario holds is its own business.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from latmon import registry, target
from latmon.backend import Backend
from latmon.errors import EXIT_DONE, UsageError
from latmon.recording import Writer

WINDOWS = 180
"""Three minutes, which hold every phase of a scenario."""


def scenarios() -> Mapping[str, str]:
    """Name -> what it shows, in one sentence."""
    names: Mapping[str, str] = sys.modules[registry.load("demo").__module__].SCENARIOS
    return names


def check(scenario: str) -> None:
    """UsageError for a scenario that isn't there."""
    if scenario not in scenarios():
        raise UsageError(f"there is no demo {scenario!r}; the demos are {', '.join(scenarios())}")


def list_scenarios() -> int:
    """Print them; the exit code."""
    for name, purpose in scenarios().items():
        print(f"{name:<12} {purpose}")
    return EXIT_DONE


def record(scenario: str, seed: int, path: Path, duration_us: int | None = None) -> int:
    """Write the scenario's recording as fast as it can be made; nothing of this host is in it."""
    target.refuse(path)
    demo = registry.load("demo")
    interval_us = demo(scenario, seed=seed).origin.interval_us
    windows = WINDOWS if duration_us is None else max(1, round(duration_us / interval_us))
    count = asyncio.run(_write(demo(scenario, seed=seed, speed=0, limit=windows), path))
    print(f"latmon: {count} windows of {scenario}, seed {seed}, are in {path}", file=sys.stderr)
    return EXIT_DONE


async def _write(backend: Backend, path: Path) -> int:
    count = 0
    async with backend:
        writer = Writer.create(path, backend.origin)
        try:
            async for frame in backend.frames():
                writer.append(frame)
                count += 1
        finally:
            writer.close()
    return count
