"""What an incident is to those who play it: where its frames come from, how many there are, and how they are drawn.

Knows no incident, no pace and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from latmon.model import Frame, Origin

WINDOWS = 180
"""Three minutes: enough for a tail of a few I/Os in a million, short enough to be watched to its end."""


@dataclass(frozen=True)
class Scenario:
    """A host with a known illness, or the same host without it. Ends after `windows`; `frames` may go on."""

    purpose: str
    """One sentence, for `latmon demo --list`."""
    origin: Origin
    """`tool` is filled in by whoever plays it: scenario and seed."""
    windows: int
    frames: Callable[[Random], Iterator[Frame]]
    """Nothing but the generator decides: the same seed, the same frames."""
    healthy: str = ""
    """The name of the same host without the illness; empty for that one."""
