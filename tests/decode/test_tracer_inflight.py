"""Depths and ages that the inflight scripts print: indices, devices, ticks."""

import pytest

from latmon.decode.framer import TracerFramer, joined
from latmon.decode.tables import MOST_REPORTED, all_waiting, depth_of, followed, record
from latmon.manifest import load
from latmon.model.frame import Thread
from latmon.model.inflight import PROBE, InFlight, InFlightList, Took, bucket_end
from latmon.support.paths import data_dir

MANIFEST = load(data_dir("probes") / "linux/inflight_a.yaml")
SDA, GONE = 8 << 20, 7 << 20


def framer():
    return TracerFramer(MANIFEST, {SDA: "sda"}.get, lambda flags: ("sync",) if flags >> 11 & 1 else ())


def reported(one, tick=None):
    return one.interval(tick, lambda pid: Thread(pid, "", "", -1))


def key(index, device=SDA):
    return device << 16 | index


def line(begun_ns, device=SDA, *, issued=1, pid=7, comm="fio", overtaken=3):
    fields = f"18446612688001995904 {device} 1 2049 128 4096 {begun_ns} {pid} {issued} {overtaken}"
    text = f"waiting inflight_a {fields} {comm}"
    return record(text, MANIFEST.records["waiting"])


def test_depths_are_exact_to_256_then_the_highest_of_a_bucket():
    assert [depth_of(n) for n in (0, 1, 256)] == [0, 1, 256]
    assert [depth_of(n) for n in (257, 258, 264, 265)] == [288, 320, 512, 576]


def test_a_probe_s_indices_are_the_buckets_of_everybody_else():
    """All of them, in order, to the last that a script can report: 65,535 requests."""
    ends = list(dict.fromkeys(bucket_end(depth) for depth in range(1 << 16)))
    assert ends == [depth_of(index) for index in range(257 + 8 * 8)]


def test_what_an_interval_gained_by_device():
    tracer_framer = framer()
    tracer_framer.printed("inflight_a_driver", {key(2): 5, key(3): 1, key(1, GONE): 9})
    reported(tracer_framer)
    tracer_framer.printed("inflight_a_driver", {key(2): 15, key(3): 1, key(1, GONE): 99})
    tracer_framer.printed("inflight_a_queued", {key(0): 10})
    tracer_framer.printed("inflight_a_issue", {key(2): 4, key(257): 1})
    tracer_framer.printed("inflight_a_ios", {key(2): 4, key(253): 1, key(254): 2})
    tracer_framer.printed("inflight_a_time", {key(2): 400, key(253): 10, key(254): 30})
    tracer_framer.printed("inflight_a_most", {key(1): 260, key(2): 300})
    tracer_framer.printed("inflight_a_corrected", {SDA: 2})
    tracer_framer.printed("inflight_a_again", {SDA: 1})
    depths = reported(tracer_framer, tick=1).depths
    assert depths.keys() == {"sda"}
    sda = depths["sda"]
    assert (sda.in_driver, sda.queued, sda.at_issue) == ({2: 10}, {0: 10}, {2: 4, 288: 1})
    assert sda.latency == {2: Took(4, 400), 256: Took(3, 40)}
    assert (sda.most, sda.corrected, sda.source) == (260, 3, PROBE)


def test_ages_are_of_the_newest_tick_and_oldest_first():
    tracer_framer = framer()
    tracer_framer.printed("inflight_a_since", {0: 1_000_000})
    tracer_framer.printed("inflight_a_older", {key(0): 2, key(1): 1, key(2): 0, key(0, GONE): 5})
    tracer_framer.waiting([line(9_000_000, issued=0), line(5_000_000), line(1, GONE)], 11_000_000)
    waiting = reported(tracer_framer).in_flight
    assert waiting == InFlightList(
        (
            InFlight("sda", "write", 5000, ("sync",), 128, 4096, 7, "fio", True, 3),
            InFlight("sda", "write", 9000, ("sync",), 128, 4096, 7, "fio", False, 3),
        ),
        {1: 2, 10: 1, 60: 0},
        1000,
        11_000,
    )
    assert reported(tracer_framer).in_flight is None


def test_before_it_follows_requests_nothing_is_claimed():
    tracer_framer = framer()
    tracer_framer.waiting([], 5)
    assert reported(tracer_framer).in_flight is None


def test_an_issuer_that_is_not_known():
    tracer_framer = framer()
    tracer_framer.printed("inflight_a_since", {0: 1_000_000})
    tracer_framer.waiting([line(5_000_000, pid=-1, comm="")], 6_000_000)
    (only,) = reported(tracer_framer).in_flight.oldest
    assert (only.pid, only.comm) == (None, "")


def test_what_overtook_a_request_is_reported_while_it_waits():
    tracer_framer = framer()
    tracer_framer.printed("inflight_a_since", {0: 1_000_000})
    tracer_framer.waiting([line(5_000_000, overtaken=412), line(6_000_000, overtaken=-1)], 7_000_000)
    assert [(two.overtaken_by, two.comm) for two in reported(tracer_framer).in_flight.oldest] == [
        (412, "fio"),
        (None, "fio"),
    ]


TIMED = {"sda": True, "sdb": True, "dm-0": False}


@pytest.mark.parametrize(
    ("named", "groups", "follows"),
    [
        ((), ("inflight", "bios"), ()),
        ((), ("inflight",), ("sda", "sdb")),
        ((), ("bios",), ("dm-0",)),
        (("dm-0", "sda"), ("inflight", "bios"), ("sda", "dm-0")),
        (("dm-0", "sda"), ("inflight",), ("sda",)),
        (("sda",), ("bios",), None),
    ],
)
def test_devices_are_followed_by_the_scripts_for_their_kind(named, groups, follows):
    in_flight_list = followed(InFlightList(devices=named), groups, TIMED)
    assert (in_flight_list and in_flight_list.devices) == follows
    assert followed(InFlightList(), ("inflight",), {"sda": True}).devices == ()


def test_stamps_of_a_list_are_put_on_the_clock_of_its_requests():
    tracer_framer = framer()
    tracer_framer.printed("inflight_a_since", {0: 1_000_000})
    tracer_framer.waiting([line(19_000_000)], 11_000_000, ahead_ns=-10_000_000)
    waiting = reported(tracer_framer).in_flight
    assert (waiting.since_us, waiting.oldest[0].began_us, waiting.at_us) == (11_000, 19_000, 21_000)


def test_a_script_says_of_which_group_its_list_is():
    tracer_framer = framer()
    assert reported(tracer_framer).ages_of == ()
    tracer_framer.printed("inflight_a_since", {0: 1_000_000})
    tracer_framer.waiting([], 6_000_000)
    assert joined([reported(tracer_framer), reported(framer())], [MANIFEST]).ages_of == ("inflight",)


def test_several_scripts_follow_the_devices_of_each():
    in_flight_list, other, given_in_flight_list = (
        InFlightList(devices=names) for names in (("sda", "sdb"), ("sdb", "dm-0"), ())
    )
    assert all_waiting([in_flight_list, other]).devices == ("sda", "sdb", "dm-0")
    assert all_waiting([in_flight_list, given_in_flight_list]).devices == ()
    assert not all_waiting([in_flight_list, other]).follows("sdc")
    assert all_waiting([in_flight_list, given_in_flight_list]).follows("sdc")


def test_several_scripts_as_one_are_bounded():
    parts = [
        InFlightList(tuple(InFlight("sda", "read", n) for n in range(at, 200, 2)), {1: 100}, at, 9 - at)
        for at in (0, 1)
    ]
    both = all_waiting([*parts, None])
    assert [one.began_us for one in both.oldest] == list(range(MOST_REPORTED))
    assert (both.older, both.since_us, both.at_us) == ({1: 200}, 1, 8)
    assert all_waiting([None]) is None
