"""A process of the tracer takes over from another one: no I/O is counted twice, no interval is untraced."""

import asyncio
from collections import deque
from dataclasses import replace

from latmon.decode.framer import TracerInterval
from latmon.decode.tables import Record
from latmon.model.frame import Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.inflight import InFlightList
from latmon.model.measurements import ABOVE, HANDLERS
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.tracer.controller import TracerProcess, requests_of, with_window_of

HBA = Series("sda", "read", "hba")
FLOW = ("sda", "read")
HANDLER = Handler(5, "nvme")


def window(*us, until_us, one_in=1, devices=("sda",)):
    """Return one with these I/Os, and a run of a handler."""
    traced = Traced({HBA: Histogram.record(us)}, raisers={"BLOCK": {"f": 1}}, one_in=one_in, devices=devices)
    records = tuple(Record(kind, "stages_a", {}, "", "") for kind in ("slow", "late"))
    interval = TracerInterval(
        traced,
        in_flight=InFlightList((), {}, 0, until_us),
        tables={ABOVE: {FLOW: len(us)}, HANDLERS: {HANDLER: HandlerRuns(Histogram.record([1]))}},
    )
    return TracerWindow(interval, records, Losses(1), 1, until_us - 1_000_000, until_us=until_us)


def counts(taken):
    """Return the I/Os of a window, its runs of the handler, and the kinds of its records."""
    interval = taken.interval
    ios = sum(histogram.count for histogram in interval.traced.histograms.values())
    handled = sum(runs.run.count for runs in interval.tables.get(HANDLERS, {}).values())
    return ios, handled, tuple(record.kind for record in taken.records)


class Run:
    """A process that has these windows for the frames, one after the other, and others when it has ended."""

    def __init__(self, *windows, last=None):
        self._windows, self._last, self.stops = deque(windows), last or TracerWindow(), 0

    def begin(self, on_end):
        pass

    async def stop(self):
        self.stops += 1
        self._windows.append(self._last)

    def taken(self):
        return self._windows.popleft() if self._windows else TracerWindow()


def test_of_a_process_that_was_replaced_only_requests_are_left():
    left = requests_of(window(1, 2, until_us=5))
    assert counts(left) == (2, 0, ("slow",))
    assert left.interval.tables == {ABOVE: {FLOW: 2}}
    assert (left.interval.traced.raisers, left.interval.in_flight) == ({}, None)
    assert left.losses == Losses(1)


def test_windows_of_two_processes_are_added():
    earlier, later = requests_of(window(1, 2, until_us=9_000_000)), window(3, until_us=10_000_000, devices=("sdb",))
    joined = with_window_of(earlier, later)
    assert counts(joined) == (3, 1, ("slow", "slow", "late"))
    assert joined.interval.tables[ABOVE] == {FLOW: 3}
    assert joined.interval.traced.devices == ("sda", "sdb")
    assert joined.interval.in_flight is later.interval.in_flight
    assert (joined.losses, joined.begun_us, joined.until_us) == (Losses(2), 8_000_000, 10_000_000)


def test_a_sum_with_a_window_of_all_devices_is_of_all():
    joined = with_window_of(window(1, until_us=9), window(1, until_us=10, devices=()))
    assert joined.interval.traced.devices == ()


def test_counts_of_another_sample_are_left_out():
    joined = with_window_of(window(1, 2, until_us=9, one_in=4), window(3, until_us=10))
    assert counts(joined)[0] == 1
    assert joined.losses == Losses(2)


def replaced(earlier, later, *, is_filtered=True, frames=4):
    """Return what the frames have where a process is replaced after 10 s, between the first two of them."""

    async def play():
        process = TracerProcess()
        process.begin(earlier, lambda: None)
        taken = [process.taken()]
        process.replace(later, 10_000_000, is_filtered=is_filtered)
        taken += [process.taken() for _ in range(frames - 2)]
        await process.end_replaced()
        taken += [process.taken(), process.taken()]
        await process.stop()
        assert (earlier.stops, later.stops) == (1, 1)
        return [counts(one)[:2] for one in taken[:-1]]

    return asyncio.run(play())


def test_each_frame_has_data_and_what_both_count_is_the_successor_s():
    earlier = Run(
        window(1, 2, until_us=9_500_000),
        window(3, until_us=9_900_000),
        window(4, until_us=10_900_000),
        last=window(5, until_us=11_500_000),
    )
    later = Run(TracerWindow(), window(6, 7, until_us=11_100_000), window(8, until_us=12_100_000))
    assert replaced(earlier, later) == [(2, 1), (1, 1), (3, 1), (2, 1)]


def test_without_a_filter_what_both_may_count_is_the_successor_s():
    earlier = Run(window(1, 2, until_us=9_500_000), window(3, until_us=10_900_000), last=window(5, until_us=11_500_000))
    later = Run(TracerWindow(), window(6, 7, until_us=11_100_000), window(8, until_us=12_100_000))
    assert replaced(earlier, later, is_filtered=False) == [(2, 1), (0, 0), (2, 1), (1, 1)]


def test_a_capture_that_ends_meanwhile_ends_both_and_has_their_last_output():
    async def play():
        earlier, later = Run(last=window(1, until_us=10_500_000)), Run(last=window(2, 3, until_us=11_500_000))
        process = TracerProcess()
        process.begin(earlier, lambda: None)
        process.replace(later, 10_000_000, is_filtered=True)
        await process.stop()
        assert (earlier.stops, later.stops, process.run) == (1, 1, None)
        return counts(process.taken())[:2]

    assert asyncio.run(play()) == (3, 1)


def test_losses_of_both_are_the_frame_s():
    earlier = replace(window(1, until_us=10_500_000), losses=Losses(2))
    joined = with_window_of(requests_of(earlier), window(2, until_us=11_000_000))
    assert joined.losses == Losses(3)
