"""`latmon demo` without a screen: the list of scenarios, and the recording of one, deterministic per seed.

The demo backend is loaded by name and owns the scenarios.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from latmon.capture import registry, target
from latmon.capture.backend import Backend
from latmon.recording.writer import Writer
from latmon.support.errors import EXIT_DONE, UsageError
from latmon.support.streams import named
from latmon.support.units import counted

WINDOWS = 180
"""Windows of a scenario without an end: three minutes, which include all of its phases."""


def scenarios() -> Mapping[str, str]:
    """Return the scenarios: name -> one sentence."""
    names: Mapping[str, str] = sys.modules[registry.load("demo").__module__].SCENARIOS
    return names


def check(scenario: str) -> None:
    """Raise UsageError for an unknown scenario."""
    if scenario not in scenarios():
        raise UsageError(f"there is no demo {scenario!r}; the demos are {', '.join(scenarios())}")


def list_scenarios() -> int:
    """Print the scenarios, wrapped on a terminal and one per line in a pipe; return the exit code."""
    known = scenarios()
    column = max(map(len, known)) + 2
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for name, purpose in known.items():
        lines = textwrap.wrap(purpose, max(width - column - 1, column)) or [""]
        print(f"{name:<{column}}{lines[0]}")
        for line in lines[1:]:
            print(f"{'':<{column}}{line}")
    return EXIT_DONE


def record(scenario: str, seed: int, path: Path, duration_us: int | None = None) -> int:
    """Write a scenario's recording without pauses and without data of this host; return the exit code."""
    target.refuse(path)
    demo = registry.load("demo")
    known = demo(scenario, seed=seed)
    windows = known.windows or WINDOWS
    if duration_us is not None:
        windows = max(1, round(duration_us / known.origin.interval_us))
    count = asyncio.run(_write(demo(scenario, seed=seed, speed=0, limit=windows), path))
    verb = "is" if count == 1 else "are"
    print(f"latmon: {counted(count, 'window')} of {scenario}, seed {seed}, {verb} in {named(path)}", file=sys.stderr)
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
