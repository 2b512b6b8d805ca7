"""The demo backend: synthetic hosts that need no privilege, deterministic per seed.

It has the scenarios' names and order, and the pace. It measures nothing of the host it runs on, not even its clock: a
recording of it is reproducible. `host` has no end, an incident has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from random import Random
from types import MappingProxyType
from typing import Self

from latmon.model.frame import Frame, Origin
from latmon.support.errors import UsageError
from latmon_backends.demo import host_window
from latmon_backends.demo.bubbles import BUBBLES, BUBBLES_HEALTHY
from latmon_backends.demo.e810 import E810_CASE, E810_HEALTHY
from latmon_backends.demo.emulex import EMULEX, EMULEX_HEALTHY
from latmon_backends.demo.qumulo import QUMULO, QUMULO_HEALTHY
from latmon_backends.demo.scenario import Scenario
from latmon_backends.demo.serialised import SERIALISED, SERIALISED_HEALTHY

INCIDENTS: Mapping[str, Scenario] = MappingProxyType(
    {
        "emulex": EMULEX,
        "emulex-healthy": EMULEX_HEALTHY,
        "e810": E810_CASE,
        "e810-healthy": E810_HEALTHY,
        "serialised": SERIALISED,
        "serialised-healthy": SERIALISED_HEALTHY,
        "qumulo": QUMULO,
        "qumulo-healthy": QUMULO_HEALTHY,
        "bubbles": BUBBLES,
        "bubbles-healthy": BUBBLES_HEALTHY,
    }
)
"""Scenarios by name, each followed by its healthy counterpart."""


SCENARIOS: dict[str, str] = {
    "host": "nine devices behind three drivers: one SAS disk waits for a completion thread, one for softirqs that the "
    "tick runs, two requests of a third never complete; a LUN takes three at a time; a backup bursts, an SSD pauses.",
    **{name: incident.purpose for name, incident in INCIDENTS.items()},
}
"""Name -> one sentence, for `latmon demo --list`."""

BACKFILL = 90
"""First windows, yielded as fast as they are made: they fill the map of a window of 60 s on most widths of a screen."""


class DemoBackend:
    """Yields windows of a synthetic host; `speed` 0 is as fast as they can be taken, `limit` ends it after so many."""

    def __init__(self, scenario: str = "host", seed: int = 1, speed: float = 1.0, limit: int | None = None) -> None:
        if scenario not in SCENARIOS:
            raise UsageError(f"there is no demo {scenario!r}; the demos are: {', '.join(SCENARIOS)}")
        if speed < 0:
            raise UsageError(f"the demo can't run backwards: speed {speed:g}")
        self._incident = INCIDENTS.get(scenario)
        self._seed = seed
        self._speed = speed
        self._limit = limit
        origin = (self._incident.host if self._incident else host_window.host)().origin
        self._origin = replace(origin, tool=f"{scenario}, seed {seed}")

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def windows(self) -> int | None:
        """The number of windows that the scenario has; None: it is endless."""
        return self._incident.windows if self._incident else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the frames from the start; each call yields the same ones."""
        drawn = islice(self._drawn(), self._limit)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for seq in count():
            await asyncio.sleep(max(0.0, start + self._due(seq) - loop.time()))
            frame = next(drawn, None)
            if frame is None:
                return
            yield frame

    def _drawn(self) -> Iterator[Frame]:
        rng = Random(self._seed)  # noqa: S311 - reproducible numbers are the point
        if self._incident:
            return islice(self._incident.frames(rng), self._incident.windows)
        on_demand = Random(self._seed + 1)  # noqa: S311 - see above
        return host_window.frames(rng, on_demand)

    def _due(self, seq: int) -> float:
        """Return the seconds after the start at which window `seq` is due."""
        late = max(0, seq + 1 - BACKFILL)
        return late * self._origin.interval_us / 1e6 / self._speed if self._speed else 0.0
