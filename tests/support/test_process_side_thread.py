"""Calls beside the event loop: in order, results and errors passed back, without blocking the loop."""

import asyncio
import threading
import time

import pytest

from latmon.support.process import SideThread


@pytest.fixture
def side():
    made = SideThread("side")
    yield made
    made.shutdown()


def test_calls_are_made_in_order_and_answer(side):
    made = []
    futures = [side.submit(lambda n: made.append(n) or n, n) for n in range(5)]
    assert [future.result(1) for future in futures] == made == [0, 1, 2, 3, 4]


def test_an_error_is_raised_in_the_waiting_caller_only(side):
    with pytest.raises(ZeroDivisionError):
        side.submit(lambda: 1 // 0).result(1)
    assert side.submit(lambda: 7).result(1) == 7


def test_what_was_cancelled_before_its_turn_is_not_done(side):
    hanging, made = threading.Event(), []
    side.submit(hanging.wait, 60)
    assert side.submit(made.append, 1).cancel()
    after = side.submit(made.append, 2)
    hanging.set()
    after.result(60)
    assert made == [2]


async def test_the_loop_goes_on_beside_a_call_that_hangs(side):
    hanging = threading.Event()
    call = asyncio.get_running_loop().run_in_executor(side, hanging.wait, 60)
    _, pending = await asyncio.wait({call}, timeout=0.05)
    assert pending == {call}
    hanging.set()
    assert await call


def test_its_thread_ends_behind_the_last_call():
    side = SideThread("ending")
    made = []
    side.submit(time.sleep, 0.05)
    side.submit(made.append, 1)
    side.shutdown()
    for thread in threading.enumerate():
        if thread.name == "ending":
            assert thread.daemon
            thread.join(60)
            assert not thread.is_alive()
    assert made == [1]
