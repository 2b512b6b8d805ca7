"""Clocks on the screen are local time: the tests live in UTC. Keys by the hundred, without a wait after each."""

import asyncio

import pytest
from local_time import _utc  # noqa: F401  a fixture of each test

TURNS = 50
"""Of the event loop, in which a key gets from the driver to what it does; 5 are enough."""


@pytest.fixture
def brisk(monkeypatch):
    """Textual's pilot waits twice after each key, 20 ms and more, until the process needs no CPU."""

    async def turns(*_):
        for _ in range(TURNS):
            await asyncio.sleep(0)

    monkeypatch.setattr("textual.app.wait_for_idle", turns)
