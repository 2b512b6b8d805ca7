"""Windows of the demo's host: each takes a tenth of a second to make, and four files read the same ones.

Their tests have the group `demo`, so that one worker runs all of them.
"""

import asyncio

import pytest

from latmon.model.frame import Frame
from latmon_backends.demo import host_window
from latmon_backends.demo.backend import DemoBackend

FEW = 20
"""Windows for tests of a property of every window."""


@pytest.fixture(scope="session")
def period() -> list[Frame]:
    return asyncio.run(_take(FEW))


@pytest.fixture(scope="session")
def whole_period() -> list[Frame]:
    """Return a period with all its events, for tests marked slow."""
    return asyncio.run(_take(host_window.PERIOD))


async def _take(windows: int) -> list[Frame]:
    async with DemoBackend(speed=0, limit=windows) as backend:
        return [frame async for frame in backend.frames()]
