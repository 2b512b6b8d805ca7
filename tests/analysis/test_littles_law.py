"""IOPS = outstanding / latency, whether the three agree, and what lifting a limit would give."""

from dataclasses import replace

import pytest

from latmon.analysis.littles_law import Law, MeanTimes, law, lift, of, sentence, times
from latmon.model.frame import Completed, Counted
from latmon.model.inflight import PROBE, SYSFS, Aged, Depths, InFlight, Took


def test_the_line_of_a_serialised_device():
    reported = sentence(Law(3.0, 3000.0, 1000.0), lift(3, 32, 3000.0))
    assert (
        reported
        == "1,000 IOPS = 3 in flight / 3 ms; at 32 in flight up to 10,700 if the time in the driver stayed the same"
    )


def test_the_limit_s_own_rate_is_the_most_that_it_allows():
    found = lift(3, 16, 1000.0)
    assert (found.most, found.iops) == (3000.0, 16_000.0)


@pytest.mark.parametrize(
    ("held", "depth", "driver_us"), [(None, 32, 1.0), (32, 32, 1.0), (3, 32, None), (3, 32, 0.0), (0, 4, 1.0)]
)
def test_nothing_is_promised_where_the_limit_isn_t_what_holds_it(held, depth, driver_us):
    assert lift(held, depth, driver_us) is None


@pytest.mark.parametrize("three", [(None, 1.0, 1.0), (1.0, None, 1.0), (1.0, 1.0, 0.0), (0.0, 1.0, 1.0)])
def test_there_is_no_law_of_two(three):
    assert law(*three) is None


def test_three_that_don_t_agree_are_reported_not_to():
    found = law(6.0, 3000.0, 1000.0)
    assert not found.agrees
    assert sentence(found) == (
        "1,000 IOPS at 3 ms: 3 by Little's law, 6 counted in driver and queue; "
        "what explains the difference is not known"
    )
    assert law(3.2, 3000.0, 1000.0).agrees


MINUTE_US = 60_000_000
STUCK = (Aged("sda", 300_000_000), Aged("sda", 200_000_000))


def window(in_driver, ios, mean_us, longest_us=50_000, *, queued=None, source=PROBE, time_us=MINUTE_US, **more):
    """A device that had so many in the driver, and the same number all of the time where that is an int."""
    share = in_driver % 1
    reported = Depths(
        {int(in_driver): round(60_000 * (1 - share)), int(in_driver) + 1: round(60_000 * share)}, queued or {0: 1}
    )
    return of(replace(reported, source=source), time_us, time_us, whole=MeanTimes(ios, mean_us, longest_us), **more)


def test_what_is_stuck_explains_the_difference():
    """172 IOPS at 3.43 ms: 2.6 in flight are explained only with the two that never complete."""
    law_check = window(2.63, 10_320, 3430.0, waiting=STUCK, left=3)
    assert (law_check.law.stuck, law_check.law.agrees) == (2, True)
    assert law_check.sentence == "172 IOPS at 3.43 ms: 0.6 by Little's law + 2 stuck = 2.6 counted in driver and queue"


@pytest.mark.parametrize(
    ("left", "why"),
    [
        pytest.param(3, "3 of unknown age in flight at the end may be stuck", id="more than the difference of 2.04"),
        pytest.param(2, "what explains the difference is not known", id="fewer"),
    ],
)
def test_ios_of_unknown_age_may_be_stuck(left, why):
    law_check = window(2.63, 10_320, 3430.0, left=left)
    assert law_check.sentence == f"172 IOPS at 3.43 ms: 0.59 by Little's law, 2.63 counted in driver and queue; {why}"


def test_stuck_for_a_part_of_the_window_counts_for_that_part():
    late = Aged("sda", 30_000_000, count=4)
    law_check = window(2.6, 10_320, 3430.0, waiting=(late,), left=4)
    assert law_check.sentence == "172 IOPS at 3.43 ms: 0.6 by Little's law + 2 stuck = 2.6 counted in driver and queue"


def test_what_waits_above_the_driver_isn_t_stuck_in_it():
    rows = [Aged("sda", 300_000_000, request=InFlight("sda", "read", 0, issued=issued)) for issued in (True, False)]
    reported = Depths({1: 24_000, 2: 36_000}, source=PROBE)
    law_check = of(reported, MINUTE_US, MINUTE_US, driver=MeanTimes(10_320, 3430.0, 50_000), waiting=rows, left=2)
    assert (law_check.of, law_check.law.stuck) == ("driver", 1)
    assert "counted in the driver" in law_check.sentence


def test_the_sides_are_equal_only_within_a_tenth():
    """Seen: 587 IOPS = 0.439 in flight / 899 us, whose product is 0.528."""
    law_check = window(0.439, 5870, 899.0, source=SYSFS, time_us=10_000_000)
    assert law_check.law.agrees
    assert law_check.sentence == (
        "587 IOPS at 899 us: 0.528 by Little's law, 0.439 counted in driver and queue (within the sampling error)"
    )
    assert window(0.5, 5870, 899.0, source=SYSFS, time_us=10_000_000).sentence == "587 IOPS = 0.5 in flight / 899 us"


def test_stuck_ios_without_an_exact_age_have_two_bounds():
    """The probe lists 64 of 300 that wait for 44 s, and reports that the others are older than 10 s."""
    rows = (Aged("sda", 44_000_000, count=64), Aged("sda", 10_000_000, at_least=True, count=236))
    law_check = window(396, 28_300, 193_000.0, 250_000, waiting=rows, left=300, time_us=45_000_000)
    assert law_check.law.agrees
    assert law_check.sentence == (
        "629 IOPS at 193 ms: 121 by Little's law + 115 to 299 stuck, 380 counted in driver and queue"
    )
    later = (Aged("sda", 104_000_000, count=64), Aged("sda", 60_000_000, at_least=True, count=100))
    law_check = window(225, 18_870, 194_000.0, 250_000, waiting=later, left=164)
    assert law_check.sentence == "314 IOPS at 194 ms: 61 by Little's law + 164 stuck = 225 counted in driver and queue"
    too_many = window(600, 28_300, 193_000.0, 250_000, waiting=rows, left=300, time_us=45_000_000)
    assert too_many.sentence.endswith("568 counted in driver and queue; what explains the difference is not known")


@pytest.mark.parametrize(
    ("longest_us", "left", "is_known"),
    [
        pytest.param(3_000_000, 0, True, id="a twentieth of the window"),
        pytest.param(3_000_001, 0, False, id="an I/O that may have begun long before it"),
        pytest.param(50_000, 600, True, id="a tenth of the I/Os is in flight at its end"),
        pytest.param(50_000, 601, False, id="more came than were completed"),
        pytest.param(None, 0, True, id="the kernel's counters alone: by the mean"),
    ],
)
def test_only_a_stationary_window_has_a_law(longest_us, left, is_known):
    assert (window(1, 6_000, 10_000.0, longest_us, left=left) is not None) is is_known


def test_sampled_gauges_may_differ_by_their_sampling_error():
    """Seen: 0.17 sampled for 0.15 by the kernel's times, over 30 s with 381 IOPS."""
    sampled = window(0.17, 22_860, 396.0, source=SYSFS)
    assert sampled.law.agrees
    assert not window(0.19, 22_860, 396.0).law.agrees
    assert not window(0.8, 22_860, 396.0, source=SYSFS).law.agrees


def test_sampled_gauges_that_see_less_are_reported_to():
    """Seen on a busy host: 0.06 sampled of 0.1, for the sampler takes a CPU from the load."""
    law_check = window(0.06, 17_400, 712.0, source=SYSFS)
    assert law_check.sentence == (
        "290 IOPS at 712 us: 0.206 by Little's law, 0.06 counted in driver and queue: sampled gauges miss fast I/Os"
    )


PROBED = MeanTimes(80, 500.0, 700)
BY_DEPTH = {1: Took(60, 60_000), 2: Took(40, 80_000)}


@pytest.mark.parametrize(
    ("source", "done", "latency", "expected"),
    [
        pytest.param(
            SYSFS, {"read": Completed(100, 0, 90_000)}, {}, MeanTimes(100, 900.0, 700), id="the kernel's gauges"
        ),
        pytest.param(SYSFS, {"read": Completed(100, 0, 9), "write": Completed(1, 0)}, {}, PROBED, id="not all timed"),
        pytest.param(SYSFS, {"read": None, "write": Completed(0, 0)}, {}, PROBED, id="not counted"),
        pytest.param(PROBE, {"read": Completed(100, 0, 90_000)}, BY_DEPTH, PROBED, id="a probe's gauges"),
        pytest.param(
            PROBE,
            {"write": Completed(100, 0, 90_000), "flush": Completed(20, 0, 9)},
            BY_DEPTH,
            MeanTimes(100, 1400.0, 700),
            id="with empty writes: its times by depth",
        ),
        pytest.param(
            PROBE,
            {"write": Completed(100, 0, 90_000), "flush": Completed(20, 0, 9)},
            {},
            MeanTimes(100, 900.0, 700),
            id="with empty writes: the kernel's",
        ),
    ],
)
def test_times_are_of_the_requests_that_the_gauges_count(source, done, latency, expected):
    assert times(Depths({1: 1}, latency=latency, source=source), both(done), PROBED, 700) == expected


def both(done):
    return {op: Counted(one, one) for op, one in done.items()}


def test_where_the_kernel_timed_a_part_its_mean_is_of_that_and_the_number_of_all():
    done = {"write": Counted(Completed(120, 0), Completed(100, 0, 90_000))}
    assert times(Depths({1: 1}), done, PROBED, 700) == MeanTimes(120, 900.0, 700)
