"""The tick protocol: one window per tick, wide where the reader was late, and nothing lost on the way out."""

from dataclasses import replace
from pathlib import Path

import pytest

from latmon.decode.framer import Framer
from latmon.manifest import RecordSpec, load
from latmon.model.frame import Completed, Flow, Series
from latmon.model.histogram import bucket_index
from latmon_backends.kernel.counters import Sample
from latmon_backends.probe import tick_protocol
from latmon_backends.probe.events import Attached, HelperFailed, Lost, MapPrinted, Printed, UndecodedLine
from latmon_backends.probe.tick_protocol import LastWindow, Surroundings, Ticks

PROBES = Path(__file__).resolve().parents[2] / "probes/linux"
FLOW = 8 << 36
KEY = FLOW | bucket_index(1000)
READ, TOTAL = Flow("sda", "read"), Series("sda", "read", "total")


SAME_CLOCKS = {"monotonic": 0, "boottime": 0}
ASLEEP = {"monotonic": 0, "boottime": 400_000}
IN_NAMESPACE = {"monotonic": -4_000_000, "boottime": -3_600_000}
"""The process's CLOCK_MONOTONIC is 4 s ahead of the kernel's, and the host slept for 0.4 s."""


class Run:
    """A probe that ticks once a second, tick 0 at 0 where counting begins; `now_us` is when its lines are read."""

    load = staticmethod(load)

    def __init__(self, name="block_a", ahead_us=SAME_CLOCKS, count=0):
        self.name, self.now_us = name, max(0, *(-one for one in ahead_us.values()))
        around = Surroundings(
            now_us=lambda: self.now_us,
            ahead_us=lambda clock: ahead_us[clock],
            sample=lambda: Sample(mono_us=self.now_us, wall=1000.0 + self.now_us / 1e6),
            map_keys=100,
            interval_us=1_000_000,
        )
        manifest = self.load(PROBES / f"{name}.yaml")
        self.ticks = Ticks(manifest, Framer(manifest, {8 << 20: "sda"}.get), around)
        self.line(f"tick {name} 0 {max(0, ahead_us[manifest.clock]) * 1000}")
        self.count(count)
        assert self.line(f"done {name}") is None

    def line(self, text):
        return self.ticks.take(Printed(text))

    def map(self, name, **values):
        return self.ticks.take(MapPrinted(f"{self.name}_{name}", values))

    def count(self, count, key=KEY):
        self.ticks.take(MapPrinted(f"{self.name}_same", {str(key): count}))

    def tick(self, number, count=None, late_us=0, maximum=None):
        """A tick's lines, read `late_us` after they were printed; the window that they complete."""
        at = (number + 1) * 1_000_000
        self.now_us = at + late_us
        assert self.line(f"tick {self.name} {number + 1} {at * 1000}") is None
        if count is not None:
            self.count(count)
        if maximum is not None:
            self.ticks.take(MapPrinted(f"{self.name}_max", {str(FLOW): (number + 1) << 32 | maximum}))
        return self.line(f"done {self.name}")

    def last(self, number, us, count):
        self.line(f"last {self.name} {number + 1} {us * 1000}")
        self.count(count)
        return self.ticks.last()


def test_each_tick_is_a_window_of_what_was_added():
    run = Run()
    first, second = run.tick(0, 3), run.tick(1, 5)
    assert (first.begin.mono_us, first.end.number, first.end.mono_us) == (0, 1, 1_000_000)
    assert first.interval.seen == {READ: Completed(3, 0)}
    assert (second.begin, second.end.mono_us) == (first.end, 2_000_000)
    assert second.interval.seen == {READ: Completed(2, 0)}
    assert (first.late, second.late) == (False, False)


def test_the_kernels_counters_are_those_at_the_tick_line():
    window = Run().tick(0, late_us=300)
    assert (window.end.sample.mono_us, window.lag_us) == (1_000_300, 300)


def test_maxima_go_with_their_ticks():
    run = Run()
    assert [run.tick(n, n + 1, maximum=1000 + n).interval.histograms[TOTAL].max for n in range(6)] == [
        *(1000, 1001, 1002, 1003, 1004, 1005),
    ]


def test_after_a_missed_tick_the_maximum_is_not_known():
    run = Run()
    run.tick(0, 1, maximum=1000)
    assert run.tick(2, 2, maximum=1000).interval.histograms[TOTAL].max is None
    assert run.tick(3, 3, maximum=1000).interval.histograms[TOTAL].max == 1000


def test_late_ticks_are_one_wide_window():
    run = Run()
    begin = run.tick(0, 1).end
    for number in range(1, 6):
        assert run.tick(number, 9, late_us=(6 - number) * 1_000_000 + 100_000) is None
    assert run.tick(6, 9, late_us=200_000) is None
    window = run.tick(7, 9, maximum=1000)
    assert (window.begin, window.end.number, window.late) == (begin, 8, True)
    assert window.interval.seen == {READ: Completed(8, 0)}
    assert window.interval.histograms[TOTAL].max is None
    assert not run.tick(8, 10).late


def test_the_wide_window_ends_at_a_tick_that_was_printed_after_the_reader_was_back():
    """A queued tick that is almost in time has the counts of its own moment; the kernel's would be 0.9 s newer."""
    run = Run()
    run.tick(0, 1)
    assert run.tick(1, 5, late_us=1_900_000) is None
    assert run.tick(2, 6, late_us=900_000) is None
    window = run.tick(3, 7, late_us=5_000)
    assert (window.late, window.lag_us, window.end.mono_us) == (True, 5_000, 4_000_000)
    assert window.interval.seen == {READ: Completed(6, 0)}


def test_a_reader_that_is_always_half_an_interval_late_still_has_a_window_per_tick():
    run = Run()
    assert [run.tick(number, number, late_us=900_000).late for number in range(4)] == [False] * 4


def test_a_paused_machine_is_one_wide_window():
    """CLOCK_MONOTONIC goes on, neither the probe nor the reader ran: the next tick comes in time."""
    run = Run()
    run.tick(0, 1)
    window = run.tick(12, 9)
    assert (window.end.mono_us - window.begin.mono_us, window.interval.seen) == (12_000_000, {READ: Completed(8, 0)})
    assert window.late
    assert not run.tick(14, 9).late, "one tick that is missing is an ordinary delay"


def test_a_capture_that_ends_before_its_reader_caught_up_has_all_of_it():
    run = Run()
    begin = run.tick(0, 1).end
    run.ticks.end()
    for number in range(1, 6):
        assert run.tick(number, 9, late_us=(6 - number) * 1_000_000) is None
    window = run.last(6, 7_100_000, 12)
    assert (window.begin, window.end.mono_us, window.late) == (begin, 7_100_000, True)
    assert window.interval.seen == {READ: Completed(11, 0)}


def test_ticks_on_the_way_out_that_come_in_time_are_not_late():
    run = Run()
    run.tick(0, 1)
    run.ticks.end()
    for number in (1, 2):
        run.tick(number, 5, late_us=1000)
    assert not run.last(3, 3_100_000, 6).late


@pytest.mark.parametrize("at_us", [1_500_000, 9_000_000, 10**15])
def test_stamps_that_go_back_or_are_of_the_future_are_none(at_us):
    run = Run()
    run.tick(0, 1)
    run.tick(1, 3)
    assert run.line(f"tick {run.name} 3 {at_us * 1000}") is None
    assert run.line(f"done {run.name}") is None
    window = run.tick(2, 6)
    assert (window.losses.undecoded, window.end.mono_us) == (1, 3_000_000)
    assert window.interval.seen == {READ: Completed(3, 0)}


def test_records_before_the_first_tick_are_dropped():
    run = Run(count=7)
    assert run.tick(0, 9).interval.seen == {READ: Completed(2, 0)}


def test_boottime_stamps_are_put_on_the_monotonic_clock():
    assert Run("block_c", ASLEEP).tick(0).end.mono_us == 600_000
    assert Run("block_a", ASLEEP).tick(0).end.mono_us == 1_000_000


def test_stamps_are_put_on_the_clock_of_a_time_namespace():
    assert Run("block_c", IN_NAMESPACE).tick(0, late_us=4_000_000).end.mono_us == 4_600_000
    assert Run("block_a", IN_NAMESPACE).tick(0, late_us=4_000_000).end.mono_us == 5_000_000


def test_losses_belong_to_their_window():
    run = Run()
    for event in (
        Lost(7),
        Lost(2),
        HelperFailed("map_update_elem", -7, ""),
        HelperFailed("x", -2, ""),
        UndecodedLine("?"),
    ):
        assert run.ticks.take(event) is None
    losses = run.tick(0).losses
    assert (losses.lost, losses.map_full, losses.undecoded) == (9, 1, 1)
    assert run.tick(1).losses == type(losses)()


def test_a_map_with_as_many_keys_as_it_can_hold_is_full():
    run = Run()
    run.map("same", **{str(key): 1 for key in range(99)})
    assert run.tick(0).losses.map_full == 0
    run.map("same", **{str(key): 1 for key in range(100)})
    assert run.tick(1).losses.map_full == 1


@pytest.mark.parametrize(
    "text", ["tick", "tick block_a", "tick block_a x 1", "tick block_a ² 1", "tick block_a 1 -1", "tick block_a 1 1 1"]
)
def test_a_torn_tick_line_makes_no_window_and_is_counted(text):
    run = Run()
    assert run.line(text) is None
    run.count(2)
    assert run.line("done block_a") is None
    window = run.tick(1, 3)
    assert window.losses.undecoded == 1
    assert window.interval.seen == {READ: Completed(3, 0)}


def test_lines_that_are_no_ticks_are_nothing():
    run = Run()
    for text in ("", "ready block_a 1", "done block_a", "hello"):
        assert run.line(text) is None
    assert run.ticks.take(Attached(3)) is None
    assert run.tick(0).losses.undecoded == 0


def test_a_done_that_was_lost_joins_two_ticks():
    run = Run()
    run.tick(0, 1)
    run.line("tick block_a 2 2000000000")
    run.count(5)
    window = run.tick(2, 9, maximum=1000)
    assert window.begin.number == 1
    assert window.interval.seen == {READ: Completed(8, 0)}
    assert window.interval.histograms[TOTAL].max is None


# Slow I/Os

SLOW = RecordSpec("slow", ("dev", "done_ns", "total_us"), "comm")


def slow(run, done_ns, text="fio"):
    return run.line(f"slow {run.name} 8388608 {done_ns} 9000 {text}")


@pytest.fixture
def looking(monkeypatch):
    """Let the probes look for slow I/Os."""
    monkeypatch.setattr(Run, "load", staticmethod(lambda path: replace(load(path), records={"slow": SLOW})))


@pytest.mark.usefixtures("looking")
def test_slow_ios_are_of_the_window_in_which_they_are_reported():
    run = Run()
    assert slow(run, 500_000_000) is None
    slow(run, 600_000_000, "my program")
    (first, second), (none,) = run.tick(0).records, [run.tick(1).records]
    assert (first.get("done_ns"), first.text, second.text, none) == (500_000_000, "fio", "my program", ())


@pytest.mark.usefixtures("looking")
def test_slow_ios_before_the_first_tick_are_dropped_and_those_at_the_end_belong_to_the_last_window():
    run = Run()
    run.tick(0)
    slow(run, 1_100_000_000)
    run.ticks.end()
    (record,) = run.last(1, 1_250_000, 4).records
    assert record.get("done_ns") == 1_100_000_000


@pytest.mark.usefixtures("looking")
def test_stamps_of_slow_ios_are_put_on_the_monotonic_clock():
    run = Run("block_c", ASLEEP)
    slow(run, 1_000_000_000)
    (record,) = run.tick(0).records
    assert record.get("done_ns") == 600_000_000


@pytest.mark.usefixtures("looking")
def test_a_torn_slow_line_is_counted_and_a_flood_is_bounded(monkeypatch):
    monkeypatch.setattr(tick_protocol, "MAX_RECORDS", 3)
    run = Run()
    run.line("slow block_a 1 2")
    for done in range(5):
        slow(run, done)
    window = run.tick(0)
    assert (len(window.records), window.losses.dropped, window.losses.undecoded) == (3, 2, 1)


# The end


def test_the_last_window_is_what_was_not_finished():
    run = Run()
    run.tick(0, 1)
    run.ticks.end()
    window = run.last(1, 1_250_000, 4)
    assert isinstance(window, LastWindow)
    assert (window.begin.number, window.end.mono_us) == (1, 1_250_000)
    assert window.interval.seen == {READ: Completed(3, 0)}


def test_the_last_window_knows_how_long_the_probe_detached():
    """Its last line comes after that, and the probe may have seen nothing since it was asked to end."""
    run = Run()
    run.tick(0, 1)
    run.now_us = 1_090_000
    run.ticks.ask()
    assert run.last(1, 1_250_000, 4).detaching_us == 160_000
    quick = Run()
    quick.tick(0, 1)
    quick.now_us = 1_250_100  # the stamp of the last line is taken in the kernel, before this process goes on
    quick.ticks.ask()
    assert quick.last(1, 1_250_000, 4).detaching_us == 0


def test_a_tick_on_the_way_out_is_part_of_the_last_window():
    run = Run()
    run.tick(0, 1)
    run.ticks.end()
    assert run.tick(1, 2) is None
    assert run.last(2, 2_100_000, 4).interval.seen == {READ: Completed(3, 0)}


def test_what_a_script_keeps_for_itself_is_no_result():
    run = Run()
    run.tick(0, 1)
    run.ticks.end()
    run.line("last block_a 1 1500000000")
    run.map("tick", **{"": 1})
    run.map("start", **{"5": 1})
    run.count(2)
    window = run.ticks.last()
    assert (window.interval.undecoded, window.interval.seen) == (0, {READ: Completed(1, 0)})


def test_without_a_last_line_there_is_no_last_window():
    run = Run()
    run.tick(0, 1)
    run.ticks.end()
    assert run.ticks.last() is None
