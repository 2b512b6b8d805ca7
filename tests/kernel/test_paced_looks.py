"""Paced looks: one that fails is counted and reported, and neither the reader nor the others end."""

from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from latmon.model.measurements import MAJOR_FAULTS
from latmon.model.measurements.memory import Faulting
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.counters import Sample, difference
from latmon_backends.kernel.paced_looks import PacedLooks

S = 1_000_000
ROW = Faulting("/", "a/1")


@dataclass
class Look:
    mono_us: int
    spent_us: int = 0


def at_once(call):
    done = Future()
    try:
        done.set_result(call())
    except ValueError as error:
        done.set_exception(error)
    return done


class Reader(PacedLooks):
    """Looks that take the next of some outcomes: an error to raise, or None."""

    def __init__(self, outcomes, run=at_once):
        super().__init__("faults", [BoundedSums(MAJOR_FAULTS, int)], run, lambda: self.now_us)
        self.outcomes, self.now_us = outcomes, 0

    def look(self, mono_us, _before):
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        return Look(mono_us)

    def gains(self, before, now):
        return {MAJOR_FAULTS: {ROW: (now.mono_us - before.mono_us) // S}}

    def at(self, second):
        self.now_us = second * S
        return self.sample(self.now_us)


def test_a_look_that_raises_once_is_counted_and_the_next_ones_go_on():
    reader = Reader([None, ValueError("a file\nwith nonsense")])
    for second in range(5):
        reader.at(second)
    assert reader.failed == 1
    assert reader.left_out == r"faults could not be read: ValueError: a file\nwith nonsense"
    for second in range(5, 30):
        rows = reader.at(second)
    assert (reader.failed, reader.left_out) == (1, "")
    assert rows[MAJOR_FAULTS][ROW] == 27, "the first look after the failure has the time since the look before it"


def test_the_next_look_after_a_failure_is_later():
    reader = Reader([ValueError()] * 9)
    for second in range(31):
        reader.at(second)
    assert reader.failed == 3


def test_no_thread_can_be_started():
    def refuse(_call):
        raise RuntimeError("can't start new thread")

    reader = Reader([], refuse)
    assert reader.at(0) == {}
    assert reader.left_out == "faults could not be read: RuntimeError: can't start new thread"


@pytest.mark.parametrize(
    ("before", "after", "notices"),
    [
        pytest.param((), ("no x",), ("no x",), id="new"),
        pytest.param(("no x",), ("no x",), (), id="as before"),
        pytest.param(("no x",), ("no y",), ("no y",), id="another"),
        pytest.param(("no x",), (), (), id="read again"),
    ],
)
def test_an_interval_has_what_is_not_read_since_then(before, after, notices):
    interval = difference(
        Sample(0, 0.0, failed_looks=2, left_out=before), Sample(S, 1.0, failed_looks=3, left_out=after)
    )
    assert interval.undecoded == 1
    assert interval.notices == notices
