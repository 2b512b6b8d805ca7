"""Ages of I/Os in flight: exact with a probe, a lower bound without one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.aggregate.request_age import MAX_SINCE, Waiting
from latmon.model.frame import Completed, Device, Flow, Frame, Outstanding
from latmon.model.inflight import Aged, Ages, InFlight, InFlightList

S = 1_000_000


def at(second, in_flight, done=0, *, device="sda", still=None, **changed):
    """A frame that ends at `second`; `done` None: completions aren't known."""
    kernel = {} if done is None else {Flow(device, "read"): Completed(done, 0), Flow(device, "write"): Completed(0, 0)}
    now = in_flight if isinstance(in_flight, Outstanding) else Outstanding(in_flight, 0)
    values = {"dt_us": S, "kernel": kernel, "outstanding": {device: now}, "in_flight": still} | changed
    return Frame(second, float(second), second * S, **values)


def ages(*frames):
    waiting = Waiting()
    for frame in frames:
        waiting.add(frame)
    return waiting.ages


def test_nothing_is_known_before_the_first_frame():
    assert ages() == Ages()
    assert ages().oldest_us is None
    assert ages().older == {1: 0, 10: 0, 60: 0}


def test_in_flight_without_a_completion_is_a_least_age():
    actual_ages = ages(*(at(n, 2) for n in range(10, 41)))
    assert actual_ages.oldest == (Aged("sda", 30 * S, at_least=True, count=2),)
    assert (actual_ages.older, actual_ages.at_least, actual_ages.oldest_us) == ({1: 2, 10: 2, 60: 0}, True, 30 * S)


def test_queued_ones_wait_as_well():
    assert ages(at(1, Outstanding(1, 4)), at(3, Outstanding(1, 4), dt_us=2 * S)).oldest[0].count == 5
    assert ages(at(1, Outstanding(1, None)), at(2, Outstanding(1, None))).oldest[0].count == 1


def test_later_ones_are_younger():
    actual_ages = ages(at(1, 1), at(2, 1), at(3, 4), at(4, 4))
    assert [(one.age_us, one.count) for one in actual_ages.oldest] == [(3 * S, 1), (1 * S, 3)]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param((at(2, 2, done=1),), id="a completion may have been the oldest"),
        pytest.param((at(2, 2, done=None),), id="completions not known"),
        pytest.param((at(2, Outstanding(None, None)),), id="in flight not known"),
        pytest.param((at(2, 0),), id="gone"),
        pytest.param((at(2, 2, removed=("sda",)),), id="removed"),
        pytest.param((at(2, 2, outstanding={}),), id="not looked at"),
        pytest.param((at(9, 2),), id="frames are missing"),
        pytest.param((at(2, 2, gap="probe-restart"),), id="counts begin again"),
        pytest.param((at(2, 1),), id="fewer without a completion: not all are counted"),
        pytest.param((at(2, 0), at(3, 2)), id="others"),
    ],
)
def test_nothing_else_is_claimed(later):
    actual_ages = ages(at(0, 2), at(1, 2), *later)
    assert (actual_ages.oldest, set(actual_ages.older.values())) == ((), {0})
    last = later[-1]
    count = sum(now.in_driver or 0 for device, now in last.outstanding.items() if device not in last.removed)
    assert (actual_ages.of_unknown_age, actual_ages.at_least) == (count, count > 0)


@pytest.mark.parametrize("kind", [{"gap": "suspended"}, {"late": True}], ids=["suspended", "late"])
def test_a_window_that_keeps_the_counts_keeps_the_claim(kind):
    assert ages(at(1, 1), at(5, 1, dt_us=4 * S, **kind), at(6, 1)).oldest_us == 5 * S


def test_a_claim_begins_again_after_what_ended_it():
    assert ages(at(1, 2), at(2, 2, done=1), at(3, 2), at(4, 2)).oldest_us == 2 * S


def test_short_intervals_make_no_news_of_a_moment():
    short = Frame(1, 1.1, 1_100_000, 100_000, kernel=at(1, 1).kernel, outstanding=at(1, 1).outstanding)
    assert ages(at(1, 1), short).oldest == ()


def test_of_a_busy_device_without_a_probe_no_age_is_known():
    actual_ages = ages(*(at(n, 6, done=500) for n in range(5)))
    assert (actual_ages.oldest, actual_ages.older, actual_ages.oldest_us) == ((), {1: 0, 10: 0, 60: 0}, None)
    assert (actual_ages.unknown, actual_ages.of_unknown_age, actual_ages.at_least) == ({"sda": 6}, 6, True)


def test_what_has_a_least_age_is_not_of_unknown_age():
    actual_ages = ages(at(1, 2), at(2, 2), at(3, 3))
    assert [(one.age_us, one.count) for one in actual_ages.oldest] == [(2 * S, 2)]
    assert actual_ages.unknown == {"sda": 1}


def test_a_device_that_the_probe_doesn_t_follow_is_of_unknown_age():
    still = InFlightList(older={1: 3}, since_us=S, devices=("sdb", "sdc"))
    busy = [at(n, 6, done=500, still=still) for n in range(2, 6)]
    assert (ages(*busy).unknown, ages(*busy).at_least) == ({"sda": 6}, True)
    assert not ages(*busy).is_followed("sda")
    stuck = ages(*(at(n, 2, still=still) for n in range(2, 6)))
    assert [(one.at_least, one.count) for one in stuck.oldest] == [(True, 2)]  # the 3 are not its


def test_what_may_have_begun_before_the_probe_is_of_unknown_age():
    """Its 6 may be any; once only 2 were in flight no more than those can be as old as that; then none."""
    still = InFlightList(since_us=2 * S)
    frames = [at(1, 0, done=9), *(at(n, 6, done=500, still=still) for n in (2, 3))]
    assert (ages(*frames).unknown, ages(*frames).is_followed("sda")) == ({"sda": 6}, True)
    frames += [at(4, 2, done=500, still=still), at(5, 6, done=500, still=still)]
    assert ages(*frames).unknown == {"sda": 2}
    frames += [at(6, 0, done=500, still=still), at(7, 6, done=500, still=still)]
    assert (ages(*frames).unknown, ages(*frames).at_least) == ({}, False)
    later = at(8, 6, done=500, still=InFlightList(since_us=8 * S))
    assert ages(*frames, later).unknown == {"sda": 6}  # the probe was started again


def test_a_request_that_the_probe_reports_is_not_of_unknown_age():
    still = InFlightList((HELD,), {1: 1}, S)
    assert ages(*(at(n, 3, done=5, still=still) for n in range(5, 8))).unknown == {"sda": 2}
    assert ages(*(at(n, 1, done=5, still=still) for n in range(5, 8))).unknown == {}


def test_a_probe_that_saw_the_beginning_knows_all():
    assert ages(*(at(n, 6, done=500, still=InFlightList()) for n in range(3))).unknown == {}


HELD = InFlight("sda", "write", 2 * S, ("sync",), 8, 4096, 42, "ora_lgwr", issued=True)


def test_a_probe_s_ages_are_exact():
    actual_ages = ages(at(5, 1, still=InFlightList((HELD,), {1: 1, 10: 0}, S)))
    assert actual_ages.oldest == (Aged("sda", 3 * S, request=HELD),)
    assert (actual_ages.older, actual_ages.at_least) == ({1: 1, 10: 0, 60: 0}, False)


def test_an_age_is_of_the_moment_at_which_the_probe_looked():
    """A busy tool reports late, and the request may have completed meanwhile."""
    actual_ages = ages(at(5, 1, still=InFlightList((HELD,), {1: 1}, S, 4 * S)))
    assert actual_ages.oldest == (Aged("sda", 2 * S, request=HELD),)


def test_a_request_that_the_probe_knows_is_not_claimed_twice():
    actual_ages = ages(*(at(n, 1, still=InFlightList((HELD,), {1: 1}, S)) for n in range(3, 10)))
    assert actual_ages.oldest == (Aged("sda", 7 * S, request=HELD),)


def test_a_request_that_came_while_the_gauges_were_read_is_not_claimed_twice():
    late = HELD._replace(began_us=2 * S + 30_000)
    actual_ages = ages(*(at(n, 1, still=InFlightList((late,), {1: 1}, S)) for n in range(2, 10)))
    assert [(one.at_least, one.count) for one in actual_ages.oldest] == [(False, 1)]


def test_what_began_before_the_probe_has_a_least_age_beside_it():
    still = InFlightList((HELD,), {1: 1}, S)
    actual_ages = ages(at(1, 2), *(at(n, 3, still=still) for n in range(2, 10)))
    assert [(one.age_us, one.at_least, one.count) for one in actual_ages.oldest] == [
        (8 * S, True, 2),
        (7 * S, False, 1),
    ]
    assert (actual_ages.older, actual_ages.at_least) == ({1: 3, 10: 0, 60: 0}, True)


def test_what_the_probe_counts_without_a_row_is_not_claimed():
    frames = [at(n, 5, still=InFlightList((HELD,), {1: 4}, 0)) for n in range(3, 10)]
    actual_ages = ages(*frames)
    assert [(one.at_least, one.count) for one in actual_ages.oldest] == [(False, 1), (True, 1)]
    assert actual_ages.older[1] == 5


def test_a_probe_that_ends_leaves_the_least_age():
    with_probe = [at(n, 1, still=InFlightList((HELD,), {1: 1}, S)) for n in range(3, 10)]
    assert ages(*with_probe, at(10, 1)).oldest == (Aged("sda", 7 * S, at_least=True),)


def test_devices_that_the_probe_doesn_t_follow_have_their_least_age():
    other = {Flow("dm-0", "read"): Completed(0, 0)}
    frames = [at(n, 1, device="dm-0", kernel=other, still=InFlightList((HELD,), {1: 1}, S)) for n in range(3, 6)]
    assert [(one.device, one.at_least) for one in ages(*frames).oldest] == [("sda", False), ("dm-0", True)]


VOLUME = Device("dm-0", 253, 0, kind="dm", members=("sda", "sdb"), timed=False)


@pytest.mark.parametrize(
    ("still", "in_flight", "unknown"),
    [
        pytest.param(InFlightList(devices=("sda", "sdb")), {"sda": 4, "sdb": 3, "dm-0": 9}, 0, id="merged bios"),
        pytest.param(InFlightList(devices=("sda", "sdb")), {"sda": 0, "sdb": 0, "dm-0": 9}, 9, id="suspended"),
        pytest.param(None, {"sda": 4, "sdb": 3, "dm-0": 9}, 7, id="no probe"),
    ],
)
def test_a_volume_s_ios_of_unknown_age_are_not_counted_beside_its_disks(still, in_flight, unknown):
    now = {name: Outstanding(n, 0) for name, n in in_flight.items()}
    done = {Flow(name, "read"): Completed(500, 0) for name in now}
    frames = [at(n, 0, still=still, outstanding=now, kernel=done, devices=(VOLUME,) * (n == 3)) for n in range(3, 6)]
    actual_ages = ages(*frames)
    assert (actual_ages.of_unknown_age, actual_ages.at_least, actual_ages.unknown["dm-0"]) == (unknown, unknown > 0, 9)
    assert ages(*frames[1:]).of_unknown_age == unknown + 9 * (unknown != 9), "no frame has the volume's disks"


@pytest.mark.parametrize(
    "still",
    [
        pytest.param(None, id="no probe"),
        pytest.param(InFlightList((HELD,), {1: 1}, devices=("sda", "sdb")), id="listed"),
        pytest.param(InFlightList((HELD._replace(device="sdc"),), {1: 70}, devices=("sda", "sdc")), id="not listed"),
    ],
)
def test_a_volume_s_old_ios_are_not_counted_beside_its_disks(still):
    now = {"sda": Outstanding(1, 0), "dm-0": Outstanding(1, 0)}
    done = {Flow(name, "read"): Completed(0, 0) for name in now}
    actual_ages = ages(*(at(n, 0, still=still, outstanding=now, kernel=done, devices=(VOLUME,)) for n in range(3, 6)))
    assert "dm-0" in {one.device for one in actual_ages.oldest}
    assert actual_ages.older[1] == (still.older[1] if still else 1)
    alone = {"dm-0": Outstanding(1, 0)}
    assert ages(*(at(n, 0, outstanding=alone, kernel=done, devices=(VOLUME,)) for n in range(3, 6))).older[1] == 1


def aged(device, *ages_s):
    return [InFlight(device, "read", 6 * S - int(age_s * S)) for age_s in ages_s]


@pytest.mark.parametrize(
    ("listed", "older", "in_flight", "number"),
    [
        pytest.param(aged("sda", 2, 3) + aged("dm-0", 2, 3), 4, {"sda": 2, "dm-0": 2}, 2, id="all listed"),
        pytest.param(aged("sdb", 2) + aged("dm-0", 2, 3, 4), 4, {"sdb": 1, "dm-0": 3}, 1, id="merged by the disk"),
        pytest.param(aged("dm-0", 2, 3), 2, {"sda": 0, "dm-0": 2}, 2, id="suspended"),
        pytest.param(aged("dm-0", 2, 3) + aged("sda", 0.7), 2, {"sda": 1, "dm-0": 2}, 2, id="its disk's are younger"),
        pytest.param(aged("sdc", 2) + aged("dm-0", 2), 2, {"sdc": 1, "dm-0": 1}, 2, id="another disk's"),
        pytest.param(aged("sda", 2) + aged("dm-0", 2), 200, {"sda": 100, "dm-0": 100}, 100, id="most not listed"),
        pytest.param(aged("dm-0", 2, 3), 200, {"sda": 100, "dm-0": 100}, 100, id="only the volume's are listed"),
        pytest.param(aged("sda", 2), 70, {"sda": 70}, 70, id="no volume"),
    ],
)
def test_old_ios_that_a_probe_follows_on_a_volume_and_on_its_disks_are_counted_once(listed, older, in_flight, number):
    now = {name: Outstanding(n, 0) for name, n in in_flight.items()}
    done = {Flow(name, "read"): Completed(9, 0) for name in now}
    still = InFlightList(tuple(listed), {1: older}, at_us=6 * S)
    actual_ages = ages(at(6, 0, still=still, outstanding=now, kernel=done, devices=(VOLUME,)))
    assert actual_ages.older[1] == number


def test_memory_is_bounded():
    waiting = Waiting()
    for n in range(1, 500):
        waiting.add(at(n, n))
    rows = waiting.ages.oldest
    assert len(rows) <= MAX_SINCE
    assert rows[0].age_us == 498 * S
    assert sum(row.count for row in rows) < 499


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=2, max_size=25))
def test_no_claim_is_more_than_the_truth(steps):
    """A device that completes any of its requests at random; each claim holds of the real ones."""
    waiting, began = Waiting(), []
    for second, (come, go, oldest_first) in enumerate(steps, 1):
        began += [second * S - 1] * come
        done = min(go, len(began))
        began = began[done:] if oldest_first else began[: len(began) - done]
        waiting.add(at(second, len(began), done))
        real = Counter({one: sum(second * S - at_us >= one.age_us for at_us in began) for one in waiting.ages.oldest})
        claimed = 0
        assert waiting.ages.of_unknown_age + sum(one.count for one in waiting.ages.oldest) == len(began)
        for one in waiting.ages.oldest:
            claimed += one.count
            assert real[one] >= claimed


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=2, max_size=25))
def test_nothing_old_is_forgotten_beside_a_probe(steps):
    """Of what began before the probe did, no more is in flight than has a least age or is of unknown age."""
    waiting, began, since_us = Waiting(), [], 4 * S
    for second, (come, go, oldest_first) in enumerate(steps, 1):
        began += [second * S - 1] * come
        done = min(go, len(began))
        began = began[done:] if oldest_first else began[: len(began) - done]
        known = [InFlight("sda", "read", us) for us in began if us >= since_us and second * S - us >= S // 2]
        still = InFlightList(tuple(known), since_us=since_us) if second * S > since_us else None
        waiting.add(at(second, len(began), done, still=still))
        least = sum(one.count for one in waiting.ages.oldest if one.at_least)
        before = sum(us < since_us for us in began) if still else len(began)
        assert before <= least + waiting.ages.of_unknown_age <= len(began)


def test_counts_of_a_hostile_recording_take_neither_memory_nor_time():
    still = InFlightList((), {1: 2**62, 10: 0, 60: 2**62}, S)
    actual_ages = ages(*(at(n, 1, still=still) for n in range(3, 10)))
    assert actual_ages.older[60] == 2**62


def test_counted_ones_without_a_row_are_of_the_device_that_must_have_them():
    """The probe lists one of 300; 5 of them may be sdb's, for as many are in flight there."""
    still = InFlightList((HELD,), {1: 300, 10: 200}, S)
    both = {"sda": Outstanding(300, 50), "sdb": Outstanding(5, 0)}
    actual_ages = ages(*(at(n, 0, done=9, still=still, outstanding=both) for n in range(15, 18)))
    assert actual_ages.unlisted == (
        Aged("sda", 10 * S, at_least=True, count=194),
        Aged("sda", 1 * S, at_least=True, count=100),
    )
    assert sum(one.count for one in actual_ages.of("sda")) == 295
    few = {"sda": Outstanding(30, 0), "sdb": Outstanding(280, 0)}
    actual_ages = ages(*(at(n, 0, done=9, still=still, outstanding=few) for n in range(15, 18)))
    assert [(one.device, one.count) for one in actual_ages.unlisted] == [("sdb", 170), ("sda", 19), ("sdb", 100)]


def test_ages_are_computed_once_per_frame():
    waiting = Waiting()
    waiting.add(at(10, 2))
    first = waiting.ages
    assert waiting.ages is first
    waiting.add(at(11, 2))
    assert waiting.ages is not first
    assert waiting.copy().ages == waiting.ages


def test_busy_devices_are_listed_once_for_all(monkeypatch):
    """A report of 5,000 devices took more than an hour, when each one listed all that were busy."""
    compared = []

    def is_volume(device, busy):
        compared.append((device, busy))
        return False

    monkeypatch.setattr("latmon.aggregate.request_age.is_volume", is_volume)
    names = [f"sd{number}" for number in range(50)]
    kernel = {Flow(name, "read"): Completed(0, 0) for name in names}
    outstanding = {name: Outstanding(1, 0) for name in names}
    frames = (
        Frame(second, float(second), second * S, S, kernel=kernel, outstanding=outstanding) for second in range(10, 15)
    )
    assert len(ages(*frames).of("sd7")) == 1
    assert len({id(busy) for _, busy in compared}) < 10
