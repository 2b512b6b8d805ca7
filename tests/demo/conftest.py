"""The first period of the demo's host: a window takes a tenth of a second, and four files read the same ones.

Their tests have the group `demo`, so that one worker runs all of them.
"""

import asyncio

import pytest

from latmon.model.frame import Frame
from latmon_backends.demo import host_window
from latmon_backends.demo.backend import DemoBackend


@pytest.fixture(scope="session")
def period() -> list[Frame]:
    async def take() -> list[Frame]:
        async with DemoBackend(speed=0, limit=host_window.PERIOD) as backend:
            return [frame async for frame in backend.frames()]

    return asyncio.run(take())
