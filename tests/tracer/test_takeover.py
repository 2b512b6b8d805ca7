"""A process of the tracer takes over from another one: no I/O is counted twice, no interval is untraced."""

import asyncio
from collections import deque
from dataclasses import replace

import pytest

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


def window(*us, until_us, one_in=1, devices=("sda",), runs=1):
    """Return one with these I/Os, and runs of a handler."""
    traced = Traced({HBA: Histogram.record(us)}, raisers={"BLOCK": {"f": 1}}, one_in=one_in, devices=devices)
    records = tuple(Record(kind, "stages_a", {}, "", "") for kind in ("slow", "late"))
    interval = TracerInterval(
        traced,
        in_flight=InFlightList((), {}, 0, until_us),
        tables={ABOVE: {FLOW: len(us)}, HANDLERS: {HANDLER: HandlerRuns(Histogram.record([1] * runs))}},
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
        return taken[:-1]

    return asyncio.run(play())


def ios_and_handled(taken):
    return [counts(window)[:2] for window in taken]


def partial(taken):
    """Return the places of the windows that report their handlers as incomplete."""
    names = [{missing.name for missing in window.interval.traced.absent} for window in taken]
    return [place for place, absent in enumerate(names) if "handlers" in absent]


SUCCESSOR = TracerWindow(), window(6, 7, until_us=11_100_000), window(8, until_us=12_100_000)


def test_each_frame_has_data_and_what_both_count_is_the_successor_s():
    earlier = Run(
        window(1, 2, until_us=9_500_000),
        TracerWindow(),
        window(3, until_us=9_900_000),
        window(4, until_us=10_900_000),
        last=window(5, until_us=11_500_000),
    )
    taken = replaced(earlier, Run(*SUCCESSOR))
    assert ios_and_handled(taken) == [(2, 1), (1, 1), (3, 1), (2, 1)]


@pytest.mark.parametrize(
    ("printed", "frames"),
    [
        (TracerWindow(), [(1, 1000), (1, 0), (2, 1), (2, 1)]),
        (window(2, until_us=9_950_000, runs=1000), [(1, 1000), (2, 1000), (2, 1), (2, 1)]),
    ],
)
def test_an_interval_that_no_process_counted_whole_is_reported_as_incomplete(printed, frames):
    """Between the last tick of the first one and the first tick of its successor nothing counts for the host."""
    earlier = Run(
        window(1, until_us=8_950_000, runs=1000),
        printed,
        window(3, until_us=10_950_000, runs=1000),
        last=window(4, until_us=11_500_000, runs=550),
    )
    taken = replaced(earlier, Run(*SUCCESSOR))
    assert ios_and_handled(taken) == frames
    assert partial(taken) == [1]
    (reason,) = {missing.reason for missing in taken[1].interval.traced.absent}
    assert "counted by neither" in reason


def test_what_was_printed_before_the_takeover_is_kept_whole():
    """On a busy host a frame has several ticks: those before it are no part of the interval that is cut."""
    earlier = Run(
        window(1, until_us=8_900_000), window(2, until_us=9_900_000, runs=500), window(3, until_us=10_900_000)
    )
    taken = replaced(earlier, Run(*SUCCESSOR), frames=3)
    assert ios_and_handled(taken)[1] == (2, 500)
    assert counts(taken[1])[2] == ("slow", "late", "slow")
    assert partial(taken) == [1]


def test_counts_of_another_sample_are_reported_as_incomplete():
    earlier = Run(
        window(1, until_us=8_900_000), TracerWindow(), window(2, until_us=9_900_000), window(3, until_us=9_990_000)
    )
    later = Run(window(6, until_us=11_100_000, one_in=4), window(7, until_us=12_100_000, one_in=4))
    assert partial(replaced(earlier, later)) == [1, 2]


def test_without_a_filter_what_both_may_count_is_the_successor_s():
    earlier = Run(
        window(1, 2, until_us=9_500_000),
        TracerWindow(),
        window(3, until_us=10_900_000),
        last=window(5, until_us=11_500_000),
    )
    taken = replaced(earlier, Run(*SUCCESSOR), is_filtered=False)
    assert ios_and_handled(taken) == [(2, 1), (0, 0), (2, 1), (1, 1)]


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
