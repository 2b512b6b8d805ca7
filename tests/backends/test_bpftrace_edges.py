"""The edges of a capture: what the deep probes count before it begins, and what is waited for when it ends."""

import asyncio
from types import SimpleNamespace

import pytest

from latmon.backend import Options
from latmon.deep_framing import DeepInterval
from latmon.model import Flow, Traced
from latmon_backends.bpftrace import since
from latmon_backends.bpftrace_always import AlwaysOn
from latmon_backends.bpftrace_deep_ticks import DeepWindow

SECOND = 1_000_000
BEGAN_US = 100 * SECOND
ABOVE = {Flow("dm-0", "read"): 3}


def told(mono_us, ticks=1):
    return DeepWindow(
        DeepInterval(Traced(off=5), above=ABOVE, suppressed=2), ("a record",), ticks=ticks, mono_us=mono_us
    )


@pytest.mark.parametrize(("mono_us", "ticks"), [(BEGAN_US + SECOND - 1, 1), (BEGAN_US + SECOND, 2), (BEGAN_US - 5, 3)])
def test_what_began_before_the_capture_is_of_no_window(mono_us, ticks):
    window = since(BEGAN_US, told(mono_us, ticks), SECOND)
    assert window.interval == DeepInterval(above=ABOVE, suppressed=2)
    assert window.records == ("a record",)


@pytest.mark.parametrize("window", [told(BEGAN_US + SECOND), told(BEGAN_US + 9 * SECOND, 3), DeepWindow()])
def test_what_began_within_it_counts(window):
    assert since(BEGAN_US, window, SECOND) is window


class Telling:
    """A probe that tells something each 10 ms until it is asked to end."""

    def __init__(self):
        self.told, self._asked = 0, False

    def end(self):
        self._asked = True

    async def next(self):
        await asyncio.sleep(0.01)
        if self._asked:
            return None
        self.told += 1
        return self.told


@pytest.fixture
def always():
    taken = []
    one = AlwaysOn(Options(), None, None, None, None)
    one.probe = Telling()
    one._ticks = SimpleNamespace(end=lambda: None, take=taken.append, last=lambda: taken)
    return one


async def test_the_always_on_probe_outlasts_the_deep_ones(always):
    deep = asyncio.create_task(asyncio.sleep(0.1))
    await always.outlast(deep, 5)
    assert deep.done()
    assert (await always.last())[:3] == [1, 2, 3]


async def test_it_does_not_wait_for_ever(always):
    deep = asyncio.create_task(asyncio.sleep(60))
    await asyncio.wait_for(always.outlast(deep, 0.05), 1)
    deep.cancel()
    assert await always.last()


async def test_in_a_hurry_it_ends_with_them(always):
    deep = asyncio.create_task(asyncio.sleep(60))
    await always.outlast(deep, 0)
    deep.cancel()
    assert await always.last() == []
