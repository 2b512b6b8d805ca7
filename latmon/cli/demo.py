"""`latmon demo` without a live screen: the list of scenarios, recordings and pictures of them, deterministic per seed.

The demo backend is loaded by name and owns the scenarios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

from latmon.capture import registry, target
from latmon.capture.backend import Backend
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import EXIT_DONE, UsageError
from latmon.support.streams import named, output
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


def export(args: argparse.Namespace) -> int:
    """Write the pictures and films that the command line names, from a recording that is then removed.

    The same arguments make the same bytes. Return the exit code.
    """
    from latmon.cli import headless  # noqa: PLC0415  the other commands draw nothing
    from latmon.exporters import registry as exporters  # noqa: PLC0415
    from latmon.exporters.options import ExportOptions  # noqa: PLC0415
    from latmon.exporters.screen import screen_at  # noqa: PLC0415
    from latmon.exporters.source import Source  # noqa: PLC0415

    given = {
        name: value for name in ("screen", "size", "at", "speed", "theme", "ramp") if (value := getattr(args, name))
    }
    if args.speed == 0:
        raise UsageError("--speed 0: a cast needs a speed above 0, such as 10")
    outs = {form: out for form in ("svg", "cast") if (out := getattr(args, form)) is not None}
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory, contextlib.ExitStack() as files:
        # a name that is taken is refused before the demo is made
        opened = {form: files.enter_context(output(out)) for form, out in outs.items()}
        path = Path(directory) / f"latmon demo {args.scenario}"  # the caption of its pictures
        count = _recorded(args.scenario, args.seed, path, args.duration)
        source = Source(open_recording(path), tuple(args.device))
        if args.once:
            sized = {"size": headless.screen_size(os.environ)} | given
            headless.show(screen_at(source, ExportOptions(**sized)))
        for form, file in opened.items():
            options = ExportOptions(**given)
            exporters.writer(form, options)(source, file, options)
            what = f"{counted(count, 'window')} of {args.scenario}, seed {args.seed}, as {form}"
            print(f"latmon: {what} in {named(outs[form])}", file=sys.stderr)
    return EXIT_DONE


def record(scenario: str, seed: int, path: Path, duration_us: int | None = None) -> int:
    """Write a scenario's recording without pauses and without data of this host; return the exit code."""
    target.refuse(path)
    count = _recorded(scenario, seed, path, duration_us)
    verb = "is" if count == 1 else "are"
    print(f"latmon: {counted(count, 'window')} of {scenario}, seed {seed}, {verb} in {named(path)}", file=sys.stderr)
    return EXIT_DONE


def _recorded(scenario: str, seed: int, path: Path, duration_us: int | None) -> int:
    """Write the recording and return the number of its windows."""
    demo = registry.load("demo")
    known = demo(scenario, seed=seed)
    windows = known.windows or WINDOWS
    if duration_us is not None:
        windows = max(1, round(duration_us / known.origin.interval_us))
    return asyncio.run(_write(demo(scenario, seed=seed, speed=0, limit=windows), path))


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
