"""A frame has the data of one tracer process; what an ended process left comes first."""

import asyncio

from latmon.decode.framer import TracerInterval
from latmon.model.frame import Series, Traced
from latmon.model.histogram import Histogram
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.tracer.process import TracerProcess

HBA = Series("sda", "read", "hba")


def window(us, ticks=1):
    interval = TracerInterval(Traced({HBA: Histogram.record([us])}, one_in=1)) if ticks else TracerInterval()
    return TracerWindow(interval, (f"record {us}",), Losses(1, 2, 3, 4), ticks, us)


class Run:
    """A process that ends at once and leaves these windows."""

    def __init__(self, *windows):
        self._windows = [*windows]

    def begin(self, on_end):
        pass

    async def stop(self):
        pass

    def taken(self):
        return self._windows.pop(0) if self._windows else TracerWindow()


def after(*ended, now=None):
    async def play():
        process = TracerProcess()
        for one in ended:
            process.begin(Run(one), lambda: None)
            await process.stop()
        if now is not None:
            process.begin(Run(now), lambda: None)
        return [process.taken() for _ in range(len(ended) + 2)]

    return asyncio.run(play())


def test_data_that_follows_a_restart_waits_for_the_next_frame():
    assert after(window(10), now=window(30)) == [window(10), window(30), TracerWindow()]


def test_several_ends_between_two_frames_lose_nothing():
    assert after(window(10), window(20)) == [window(10), window(20), TracerWindow(), TracerWindow()]


def test_losses_without_a_tick_are_the_next_window_s():
    first, *_ = after(window(10, ticks=0), now=window(30))
    assert first.interval == window(30).interval
    assert (first.records, first.losses, first.ticks) == (("record 10", "record 30"), Losses(2, 4, 6, 8), 1)
