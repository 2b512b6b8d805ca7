"""A last frame without a list of waiting requests keeps the previous list while nothing contradicts it."""

import pytest

from latmon.aggregate.request_age import Waiting
from latmon.model.frame import Completed, Flow, Frame, Outstanding
from latmon.model.inflight import InFlight, InFlightList
from latmon_backends.tracer.in_flight import CARRIED, LastInFlightList

S = 1_000_000
WRITE = InFlight("loop3", "write", 2 * S, (), 2048, 4096, 77, "dd", issued=True)
READ = InFlight("sda", "read", 5 * S)
LOOK = InFlightList((WRITE, READ), {1: 2, 10: 1, 60: 0}, S, 19 * S)


def frame(second, loop3=1, sda=1, *, done=(), known=("loop3", "sda"), **changed):
    """`done`: devices that completed something."""
    kernel = {Flow(name, op): Completed(int(name in done), 0) for name in known for op in ("read", "write")}
    gauges = {"loop3": Outstanding(loop3, 0), "sda": Outstanding(sda, 0)}
    return Frame(second, 0.0, second * S, S, kernel=kernel, outstanding=gauges, **changed)


def last(*later, first=None, look=LOOK):
    last_in_flight_list = LastInFlightList()
    assert last_in_flight_list.of(first or frame(20), look) == look
    reported = None
    for one in later:
        reported = last_in_flight_list.of(one, None)
    return reported


def devices(still):
    return [] if still is None else [one.device for one in still.oldest]


def test_the_last_list_keeps_its_own_time():
    reported = last(frame(21))
    assert (reported.oldest, reported.older, reported.at_us) == (LOOK.oldest, LOOK.older, 19 * S)
    assert reported.devices == ("loop3", "sda"), "of others nothing is known any more"


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(frame(21, done=["sda"]), id="it may have completed"),
        pytest.param(frame(21, sda=0), id="fewer in flight"),
        pytest.param(frame(21, known=["loop3"]), id="completions not known"),
        pytest.param(frame(21, removed=["sda"]), id="gone"),
    ],
)
def test_what_contradicts_a_device_takes_its_rows_and_no_other_s(later):
    reported = last(later)
    assert devices(reported) == ["loop3"]
    assert reported.older == {1: 1, 10: 1, 60: 0}
    assert reported.devices == ("loop3",)


def test_completed_after_the_look_and_before_that_frame_ended():
    assert devices(last(frame(21, sda=0), first=frame(20, sda=0, done=["sda"]))) == ["loop3"]


def test_bios_that_no_gauge_counts_stay():
    assert devices(last(frame(21, loop3=0), first=frame(20, loop3=0))) == ["loop3", "sda"]


def test_a_gap_ends_it_and_so_do_more_frames():
    assert last(frame(21, gap="probe-restart")) is None
    later = [frame(21 + n) for n in range(CARRIED + 1)]
    assert devices(last(*later[:-1])) == ["loop3", "sda"]
    assert last(*later) is None


def test_an_empty_list_of_waiting_requests_says_nothing_about_later():
    assert last(frame(21), look=InFlightList((), {1: 0, 10: 0, 60: 0}, S, 19 * S)) is None


def test_a_new_list_is_the_list():
    last_in_flight_list, newer = LastInFlightList(), InFlightList((WRITE,), {}, S, 21 * S)
    last_in_flight_list.of(frame(20), LOOK)
    assert last_in_flight_list.of(frame(22), newer) == newer


def test_the_ages_at_the_end_name_the_request():
    last_in_flight_list, waiting = LastInFlightList(), Waiting()
    for one, reported in ((frame(20), LOOK), (frame(21, done=["sda"]), None)):
        waiting.add(Frame(one.seq, 0.0, one.mono_us, S, kernel=one.kernel, outstanding=one.outstanding,
                          in_flight=last_in_flight_list.of(one, reported)))  # fmt: skip
    assert [(one.device, one.request) for one in waiting.ages.oldest] == [("loop3", WRITE)]
