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
from latmon_backends.probe.launcher import ALL_DEVICES, SAMPLE
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.tracer.process import TracerProcess
from latmon_backends.tracer.programs import Target, TracerSample
from latmon_backends.tracer.takeover import Predecessor, Takeover, has_memory_for_two, uncounted_text
from latmon_backends.tracer.windows import requests_of, with_window_of

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


def predecessor(run, *, is_filtered=True, **ticks):
    return Predecessor(run=run, before=run.taken(), until_us=10_000_000, is_filtered=is_filtered, **ticks)


def replaced(earlier, later, *, is_filtered=True, frames=4):
    """Return what the frames have where a process is replaced after 10 s, between the first two of them."""

    async def play():
        process = TracerProcess()
        process.begin(earlier, lambda: None)
        taken = [process.taken()]
        process.replace(later, predecessor(earlier, is_filtered=is_filtered))
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
        process.replace(later, predecessor(earlier))
        await process.stop()
        assert (earlier.stops, later.stops, process.run) == (1, 1, None)
        return counts(process.taken())[:2]

    assert asyncio.run(play()) == (3, 1)


def test_losses_of_both_are_the_frame_s():
    earlier = replace(window(1, until_us=10_500_000), losses=Losses(2))
    joined = with_window_of(requests_of(earlier), window(2, until_us=11_000_000))
    assert joined.losses == Losses(3)


# The steps of a takeover

INTERVAL_S = 0.1
NUMBER = (8 << 20) | 1


class Counting(Run):
    """A process of scripts whose ticks, on the clock, become known one after the other."""

    def __init__(self, *ticks_us, target=None, sample=None, ended="", events=None):
        super().__init__(window(1, until_us=9_900_000))
        self._ticks_us, self.target, self.sample = [*ticks_us], target or Target(), sample or TracerSample()
        self.ended, self.counts_since, self.probe, self.events = ended, (), self, events if events is not None else []
        self.pid = 4711

    @property
    def counting(self):
        return self._ticks_us.pop(0) if len(self._ticks_us) > 1 else self._ticks_us[0]

    def count_from(self, mono_us):
        self.events.append(("count from", mono_us))

    def taken(self):
        self.events.append("taken")
        return super().taken()


class Filters:
    """A launcher that writes the filters of programs, or can't."""

    def __init__(self, events, *, can_write=True):
        self._events, self._can_write = events, can_write

    async def trace_devices(self, pid, changes):
        self._events.append((pid, changes))
        return self._can_write


class Clock:
    """A clock that goes on with each look at it, so that no test depends on the load of this host."""

    def __init__(self, step_s=0.01):
        self._now_s, self._step_s = 10.0, step_s

    def __call__(self):
        self._now_s += self._step_s
        return self._now_s


def begun(earlier, later, events, *, can_write=True, silent_s=1.0):
    takeover = Takeover(
        launcher=Filters(events, can_write=can_write), clock=Clock(), interval_s=INTERVAL_S, silent_s=silent_s
    )
    return asyncio.run(takeover.begin(earlier, later))


def filtered(events, **options):
    return Counting((9_900_000, 9_800_000), target=Target(numbers=(NUMBER,), filtered=True), events=events, **options)


def test_the_filter_is_emptied_before_the_successor_counts():
    events = []
    earlier, later = filtered(events, sample=TracerSample(4)), Counting((10_000_000,), events=events)
    left = begun(earlier, later, events)
    assert events == [(4711, {SAMPLE: 3}), (4711, {NUMBER: 0}), ("count from", left.until_us), "taken"]
    assert left.is_filtered
    assert left.until_us > 10_000_000
    assert counts(left.before)[:2] == (1, 1)
    assert (left.last_tick_us, left.successor_scripts) == (9_800_000, 1)


def test_a_filter_of_all_devices_is_emptied_too():
    events = []
    all_devices = Counting((9_900_000,), target=Target(filtered=True), events=events)
    begun(all_devices, Counting((10_000_000,)), events)
    assert (4711, {ALL_DEVICES: 0}) in events


@pytest.mark.parametrize(
    ("target", "can_write", "writes"), [(Target(), True, 0), (Target(numbers=(NUMBER,), filtered=True), False, 1)]
)
def test_a_process_whose_filter_is_not_emptied_is_taken_as_unfiltered(target, can_write, writes):
    events = []
    left = begun(Counting((), target=target), Counting((10_000_000,)), events, can_write=can_write)
    assert not left.is_filtered
    assert left.last_tick_us is None
    assert len(events) == writes


def test_scripts_that_begin_to_count_one_after_the_other_are_waited_for():
    later = Counting((), (), (10_000_000,), (10_000_000, 10_100_000))
    assert begun(filtered([]), later, []).successor_scripts == 2


@pytest.mark.parametrize("later", [Counting(()), Counting((10_000_000,), ended="it was killed")])
def test_a_successor_that_ends_or_counts_nothing_leaves_the_first_process_as_it_is(later):
    events = []
    assert begun(filtered(events), later, events) is None
    assert events == []


@pytest.mark.parametrize(
    ("ticks", "counts_since", "uncounted_us"),
    [
        ({"last_tick_us": 9_000_000, "successor_scripts": 2}, (9_100_000, 9_700_000), 700_000),
        ({"last_tick_us": 9_900_000, "successor_scripts": 1}, (9_800_000,), 0),
        ({"last_tick_us": None, "successor_scripts": 1}, (9_800_000,), None),
        ({"last_tick_us": 9_000_000, "successor_scripts": 2}, (9_100_000,), None),
        ({"last_tick_us": 9_000_000, "successor_scripts": 0}, (), None),
    ],
)
def test_the_time_that_neither_counts_is_known_by_the_ticks_of_all_scripts(ticks, counts_since, uncounted_us):
    assert predecessor(Run(), **ticks).uncounted_us(counts_since) == uncounted_us


@pytest.mark.parametrize(
    ("uncounted_us", "has_files", "text"),
    [
        (700_001, False, "interrupts, softirqs and wake-ups were not counted for up to 0.8 s"),
        (None, True, "interrupts, softirqs, wake-ups and operations on files were not counted for an unknown time"),
    ],
)
def test_the_notice_names_what_was_not_counted_and_how_long(uncounted_us, has_files, text):
    assert uncounted_text(uncounted_us, has_files=has_files) == text


@pytest.mark.parametrize(("available_kib", "has_room"), [(500 << 10, True), (300 << 10, False)])
def test_a_second_process_needs_memory(tmp_path, available_kib, has_room):
    (tmp_path / "meminfo").write_text(f"MemTotal: 8000000 kB\nMemAvailable: {available_kib} kB\n")
    assert has_memory_for_two(tmp_path) == has_room
