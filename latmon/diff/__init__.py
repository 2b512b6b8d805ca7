"""Two captures or more compared: what differs, where and how surely, and under which settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from latmon.diff.comparison import Comparison, compare
from latmon.diff.spans import read
from latmon.diff.stretch import Stretch, stretch_of
from latmon.diff.summary import SCHEMA, summarise, summarise_sweep
from latmon.diff.sweep import devices, sweep
from latmon.diff.text import render, render_sweep
from latmon.errors import EXIT_DONE

__all__ = ["SCHEMA", "Comparison", "Stretch", "compare", "diff_command", "read", "stretch_of", "summarise"]
_PAIR = 2


def diff_command(arguments: Sequence[str], *, as_json: bool) -> int:
    """Print what differs. RecordingError when there is nothing to read, UsageError where a note isn't there."""
    stretches = [read(one) for one in arguments]
    if len(stretches) == _PAIR:
        comparison = compare(*stretches)
        said = _json(summarise(comparison)) if as_json else render(comparison)
    else:
        sweeps = [sweep(stretches), *(sweep(stretches, one) for one in devices(stretches))]
        few = sweeps[:1] if len(sweeps) == _PAIR else sweeps
        said = _json(summarise_sweep(sweeps, stretches)) if as_json else render_sweep(few, _differ(stretches))
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(said.encode(encoding, "backslashreplace").decode(encoding))
    return EXIT_DONE


def _differ(stretches: Sequence[Stretch]) -> list[str]:
    """Totals that don't begin at one point are no sweep."""
    begins = sorted({one.origin.latency_from or "unknown" for one in stretches})
    return [f"totals begin at different points: {', '.join(begins)}."] if len(begins) > 1 else []


def _json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
