"""From cumulative maps to intervals: nothing is lost or counted twice, however the printing was torn."""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.framer import Framer, TracerFramer, joined
from latmon.manifest import MapSpec, load
from latmon.model import measurements
from latmon.model.frame import Completed, Flow, Series, Thread, Traced
from latmon.model.histogram import MAX_US, Histogram, bucket_bounds, bucket_index, merge
from latmon.model.measurements import ABOVE, ERRORS, FAILED_BY
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.errors import FailedBy, FailedIO
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass

PROBES = Path(__file__).resolve().parents[2] / "probes/linux"
A, C, P = (load(PROBES / f"{name}.yaml") for name in ("block_a", "block_c", "processes_a"))
NAMES = {254 << 20: "vda", 8 << 20 | 16: "sdb"}
READ, WRITE, FLUSH, DISCARD = range(4)
VDA, SDB, GHOST = 254 << 20, 8 << 20 | 16, 7 << 20


def key(us=None, dev=VDA, op=READ):
    return dev << 16 | op << 8 | (0 if us is None else bucket_index(us))


def framer(manifest=A, several=lambda _: False):
    return Framer(manifest, NAMES.get, several)


def series(stage, device="vda", op="read"):
    return Series(device, op, stage)


def of(tick, us):
    """Return what a script keeps as the maximum of a tick."""
    return tick << 32 | us


def interval(one, tick=None, probe="block_a", at=None, **maps):
    """Prints maps by their short names, then closes; `at`: names threads, for a framer of the tracer."""
    for name, values in maps.items():
        one.printed(f"{probe}_{name}", values)
    return one.interval(tick, *([at] if at else []))


def status(code, dev=VDA, op=READ):
    """Return a key of failed I/Os."""
    return code << 48 | key(dev=dev, op=op)


@pytest.mark.parametrize(("manifest", "probe"), [(A, "block_a"), (C, "block_c")])
def test_failed_ios_are_counted_by_status_and_seen_but_not_timed(manifest, probe):
    errno = 256
    failed = {status(10): 3, status(errno + 110): 2, status(errno + 28, SDB, WRITE): 1, status(10, GHOST): 7}
    timed = {"same" if probe == "block_a" else "hba": {key(20): 5}}
    untimed = {key(): 5, key(dev=SDB, op=WRITE): 1}
    actual_interval = interval(framer(manifest), probe=probe, errors=failed, untimed=untimed, **timed)
    assert actual_interval.tables[ERRORS] == {
        FailedIO("vda", "read", "I/O error"): 3,
        FailedIO("vda", "read", "time-out"): 2,
        FailedIO("sdb", "write", "no space"): 1,
    }
    assert {flow: done.count for flow, done in actual_interval.seen.items()} == {
        ("vda", "read"): 10,
        ("sdb", "write"): 1,
    }
    assert actual_interval.histograms[series("total")].count == 5
    assert series("total", "sdb", "write") not in actual_interval.histograms
    assert actual_interval.undecoded == 0


# Cgroups


def test_failed_ios_have_their_cgroup():
    failed = {status(10) | 5: 3, status(10): 2, status(10, SDB, WRITE) | 5: 1}
    actual_interval = interval(framer(A), probe="block_a", errors=failed, cgroup=cgroups(s5=77))
    assert actual_interval.tables[ERRORS][FailedIO("vda", "read", "I/O error")] == 5
    assert actual_interval.tables[FAILED_BY] == {FailedBy("vda", "read", "I/O error", "#77"): 3}, (
        "slot 5 of sdb has no name"
    )


def slot(number, us=None, dev=VDA, op=READ):
    return number << 48 | key(us, dev, op)


def cgroups(**numbers):
    """Return what @block_a_cgroup has: slot -> number of the cgroup."""
    return {slot(int(name[1:]), op=0): number for name, number in numbers.items()}


def named(number):
    return {7: ("/a", ""), 9: ("/docker/1", "web")}[number]


def by_cgroup(**maps):
    return interval(Framer(A, NAMES.get, cgroup=named), **maps)


def test_the_cgroups_of_a_device_add_up_to_the_device():
    actual_by_cgroup = by_cgroup(
        tick=4,
        same={slot(1, 10): 3, slot(2, 10): 1, slot(2, 50): 1, key(20): 2},
        total={slot(1, 3000): 1},
        hba={key(9): 1},
        queue={key(2990): 1},
        hba_sum={slot(1): 39, slot(2): 60, key(): 40},
        queue_sum={slot(1): 2990},
        bytes={slot(1): 4096, slot(2): 1024, key(): 512},
        max={slot(1): of(4, 3000), slot(2): of(4, 50), key(): of(4, 20)},
        cgroup=cgroups(_1=7, _2=9),
    )
    issuer, other = Issuer("vda", "read", "/a"), Issuer("vda", "read", "/docker/1", "web")
    assert actual_by_cgroup.tables[measurements.ISSUERS] == {
        issuer: IssuedIO(4, 4096, Histogram.of({bucket_index(10): 3, bucket_index(3000): 1}, 3029, 3000)),
        other: IssuedIO(2, 1024, Histogram.of({bucket_index(10): 1, bucket_index(50): 1}, 60, 50)),
        Issuer("vda", "read", OTHERS): IssuedIO(2, 512, Histogram.of({bucket_index(20): 2}, 40, 20)),
    }
    histogram = actual_by_cgroup.histograms[series("total")]
    assert histogram == replace(
        merge(done.latency for done in actual_by_cgroup.tables[measurements.ISSUERS].values()), max=histogram.max
    )
    assert (histogram.count, histogram.sum, histogram.max) == (8, 3129, 3000)
    assert actual_by_cgroup.seen == {Flow("vda", "read"): Completed(8, 5632)}


def test_a_slot_is_another_cgroup_s_on_another_device_and_later():
    framer = Framer(A, NAMES.get, cgroup=named)
    two = {slot(1, 5): 2, slot(1, 5, SDB): 3}
    first = interval(framer, same=two, cgroup={slot(1, op=0): 7, slot(1, dev=SDB, op=0): 9})
    assert {(i.device, i.cgroup): done.count for i, done in first.tables[measurements.ISSUERS].items()} == {
        ("vda", "/a"): 2,
        ("sdb", "/docker/1"): 3,
    }
    later = interval(framer, same=two | {slot(1, 5): 6}, cgroup={slot(1, op=0): 9, slot(1, dev=SDB, op=0): 9})
    assert {(i.device, i.cgroup): done.count for i, done in later.tables[measurements.ISSUERS].items()} == {
        ("vda", "/docker/1"): 4
    }


def test_a_slot_of_the_tracer_is_a_process_of_a_cgroup_and_its_ios_are_no_series():
    tracer_framer = TracerFramer(P, NAMES.get, cgroup=named, comm={33: "fio", 34: ""}.get)
    actual_partial = partial(interval, tracer_framer, probe="processes_a", at=lambda pid: Thread(pid, "", "", -1))
    maps = {
        "total": {slot(1, 10): 2, slot(1, 70): 1, slot(2, 10): 1, slot(0, 30): 4, slot(1, 10, SDB): 5},
        "sum": {slot(1): 90, slot(2): 10, slot(0): 120, slot(1, dev=SDB): 50},
        "bytes": {slot(1): 12_288, slot(2): 4096, slot(0): 2048, slot(1, dev=SDB): 512},
        "behind": {
            2 << 55 | slot(1, op=0): 4_000_999,
            1 << 55 | slot(1, op=0): 2_000_000,
            slot(2, op=0): 7000,
            1 << 55 | slot(1, dev=GHOST, op=0): 5000,
            1 << 55 | slot(1, dev=SDB, op=0): 999,
        },
        "pid": {slot(1, op=0): 33, slot(2, op=0): 34, slot(1, dev=SDB, op=0): 34},
        "cgroup": {slot(1, op=0): 7, slot(2, op=0): 7, slot(1, dev=SDB, op=0): 9},
    }
    window = actual_partial(4, **maps)
    fio = Histogram.of({bucket_index(10): 2, bucket_index(70): 1}, 90)
    assert window.tables[measurements.ISSUERS][Issuer("vda", "read", "/a", "", 33, "fio")] == IssuedIO(3, 12_288, fio)
    assert {(one.device, *one[2:]): done.count for one, done in window.tables[measurements.ISSUERS].items()} == {
        ("vda", "/a", "", 33, "fio"): 3,
        ("vda", "/a", "", 34, ""): 1,
        ("vda", OTHERS, "", 0, OTHERS): 4,
        ("sdb", "/docker/1", "web", 34, ""): 5,
    }
    assert all(one.is_process for one in window.tables[measurements.ISSUERS])
    assert window.tables[measurements.BEHIND] == {Behind("vda", "/a", "/a"): 6000, Behind("vda", "/a", OTHERS): 7}
    assert joined([window], [P]).tables[measurements.BEHIND] == window.tables[measurements.BEHIND]
    assert joined([window], [P]).tables[measurements.ISSUERS] == window.tables[measurements.ISSUERS]
    assert joined([window], [P]).traced == Traced()
    maps["total"] = maps["total"] | {slot(2, 10): 4}
    maps["pid"] = maps["pid"] | {slot(2, op=0): 33}
    assert {one.pid: done.count for one, done in actual_partial(5, **maps).tables[measurements.ISSUERS].items()} == {
        33: 3
    }


def test_latencies_by_size_and_how_much_is_sequential():
    def sized(exponent, us=None, dev=VDA, op=READ):
        return exponent << 48 | key(us, dev, op) & ~1

    tracer_framer = TracerFramer(load(PROBES / "sizes_a.yaml"), NAMES.get)
    window = interval(
        tracer_framer,
        4,
        "sizes_a",
        at=lambda pid: Thread(pid, "", "", -1),
        latency={
            sized(12, 10): 3,
            sized(12, 900): 1,
            sized(21, 5000): 2,
            sized(16, 10, SDB, WRITE): 1,
            sized(12, 1, GHOST): 9,
        },
        sum={sized(12): 930, sized(21): 10_000, sized(16, dev=SDB, op=WRITE): 10},
        bytes={sized(12): 16_384, sized(21): 4 << 20, sized(16, dev=SDB, op=WRITE): 65_536},
        pattern={VDA << 16 | 0: 4, VDA << 16 | 1: 2, VDA << 16 | 2 | 4 | 8: 3, GHOST << 16: 7},
    )
    small = window.tables[measurements.SIZES][SizeClass("vda", "read", 4096)]
    assert (small.count, small.bytes, small.latency.sum, small.latency.bits) == (4, 16_384, 930, 2)
    low, high = bucket_bounds(small.latency.buckets[-1][0], 2)
    assert low <= 900 < high
    assert {one[:]: done.bytes for one, done in window.tables[measurements.SIZES].items()} == {
        ("vda", "read", 4096): 16_384,
        ("vda", "read", 0): 4 << 20,
        ("sdb", "write", 65_536): 65_536,
    }
    assert window.tables[measurements.PATTERNS] == {Flow("vda", "read"): Pattern(9, 2, 3, 3, 3)}
    assert not window.traced.histograms


def test_without_a_cgroup_nothing_is_said_of_issuers():
    assert interval(framer(), same={key(5): 1}).tables[measurements.ISSUERS] == {}
    assert interval(framer(C), probe="block_c", hba={key(5): 1}).tables[measurements.ISSUERS] == {}


def test_a_sum_of_a_cgroup_that_is_ahead_of_its_counts_waits():
    framer = Framer(A, NAMES.get, cgroup=named)
    numbers = cgroups(_1=7)
    interval(framer, same={slot(1, 10): 1}, hba_sum={slot(1): 30}, cgroup=numbers)
    actual_interval = interval(framer, same={slot(1, 10): 1, slot(1, 20): 1}, hba_sum={slot(1): 30}, cgroup=numbers)
    assert actual_interval.tables[measurements.ISSUERS][Issuer("vda", "read", "/a")].latency.sum == 20
    assert not framer._issuers_owed


def test_a_cgroup_has_one_name_in_an_interval():
    """Its name may be found while an interval is read: without it, and with it, it would be two."""
    answers = iter([("/a", ""), ("/a", "web")])
    framer = Framer(A, NAMES.get, cgroup=lambda _: next(answers))
    numbers = cgroups(_1=7)
    first = interval(framer, same={slot(1, 5): 1, slot(1, 9): 1}, bytes={slot(1): 1024}, cgroup=numbers)
    assert [(i.container, done.bytes) for i, done in first.tables[measurements.ISSUERS].items()] == [("", 1024)]
    later = interval(framer, same={slot(1, 5): 2, slot(1, 9): 1}, cgroup=numbers)
    assert [i.container for i in later.tables[measurements.ISSUERS]] == ["web"]


# Differences


def test_nothing_printed_is_an_empty_interval():
    probe_interval = framer().interval(0)
    assert (
        probe_interval.histograms,
        probe_interval.seen,
        probe_interval.unmatched,
        probe_interval.unnamed,
        probe_interval.undecoded,
    ) == ({}, {}, 0, 0, 0)


def test_an_interval_is_what_the_maps_gained():
    given_framer = framer()
    first = interval(given_framer, same={key(100): 3}, hba_sum={key(): 300}, bytes={key(): 12288})
    assert first.histograms[series("hba")] == Histogram.of({bucket_index(100): 3}, 300)
    assert first.seen == {Flow("vda", "read"): Completed(3, 12288)}
    second = interval(given_framer, same={key(100): 4, key(9): 1}, hba_sum={key(): 409}, bytes={key(): 20480})
    assert second.histograms[series("total")] == Histogram.of({bucket_index(9): 1, bucket_index(100): 1}, 109)
    assert second.seen == {Flow("vda", "read"): Completed(2, 8192)}
    assert interval(given_framer, same={key(100): 4, key(9): 1}, bytes={key(): 20480}).seen == {}


def test_one_map_feeds_two_stages_and_two_maps_feed_one():
    histograms = interval(
        framer(),
        same={key(10): 5},
        hba={key(20): 2},
        total={key(3000): 2},
        queue={key(2980): 2},
        hba_sum={key(): 90},
        queue_sum={key(): 5960},
    ).histograms
    assert histograms[series("hba")] == Histogram.of({bucket_index(10): 5, bucket_index(20): 2}, 90)
    assert histograms[series("total")] == Histogram.of({bucket_index(10): 5, bucket_index(3000): 2}, 6050)
    assert histograms[series("queue")] == Histogram.of({0: 5, bucket_index(2980): 2}, 5960)


def test_devices_and_ops_are_kept_apart():
    values = {key(5): 1, key(5, op=WRITE): 2, key(5, dev=SDB): 3, key(5, op=FLUSH): 4, key(5, op=9): 5}
    assert interval(framer(), same=values).seen == {
        Flow("vda", "read"): Completed(1, 0),
        Flow("vda", "write"): Completed(2, 0),
        Flow("sdb", "read"): Completed(3, 0),
        Flow("vda", "flush"): Completed(4, 0),
        Flow("vda", "other"): Completed(5, 0),
    }


def test_ops_that_have_one_name_are_added_up():
    actual_interval = interval(
        framer(), same={key(5, op=WRITE): 1, key(5, op=7): 2}, hba_sum={key(op=WRITE): 5, key(op=7): 10}
    )
    assert actual_interval.histograms[series("hba", op="write")] == Histogram.of({5: 3}, 15)


def test_a_lost_line_is_made_up_for_by_the_next():
    given_framer = framer()
    interval(given_framer, same={key(5): 1}, hba_sum={key(): 5}, bytes={key(): 512})
    torn = interval(given_framer, hba_sum={key(): 10}, bytes={key(): 1024})
    assert torn.histograms == {}
    assert torn.seen == {Flow("vda", "read"): Completed(0, 512)}
    after = interval(given_framer, same={key(5): 3}, hba_sum={key(): 15}, bytes={key(): 1536})
    assert after.histograms[series("hba")] == Histogram.of({5: 2}, 10)
    assert after.seen == {Flow("vda", "read"): Completed(2, 512)}


def test_of_a_map_that_is_printed_twice_the_later_counts():
    given_framer = framer()
    given_framer.printed("block_a_same", {key(5): 1})
    assert interval(given_framer, same={key(5): 4}).seen == {Flow("vda", "read"): Completed(4, 0)}


def test_maps_that_the_manifest_does_not_have_are_counted():
    given_framer = framer()
    given_framer.printed("block_a_tick", {0: 1})
    given_framer.printed("something", {})
    assert given_framer.interval(None).undecoded == 2
    assert given_framer.interval(None).undecoded == 0


def test_devices_without_a_name_are_counted_once_per_request():
    ghost = {"dev": GHOST}
    actual_interval = interval(
        framer(),
        same={key(5, **ghost): 2},
        hba={key(5, **ghost): 3},
        total={key(50, **ghost): 3},
        queue={key(45, **ghost): 3},
        hba_sum={key(**ghost): 25},
        bytes={key(**ghost): 4096},
        untimed={key(**ghost): 1},
        unmatched={key(**ghost): 1},
        max={key(**ghost): of(0, 50)},
        tick=0,
    )
    assert (actual_interval.histograms, actual_interval.seen, actual_interval.unmatched, actual_interval.unnamed) == (
        {},
        {},
        0,
        7,
    )


def test_a_device_gets_its_name_later():
    names = {}
    framer = Framer(A, names.get)
    assert interval(framer, same={key(5): 2}).unnamed == 2
    names[VDA] = "vda"
    assert interval(framer, same={key(5): 3}).seen == {Flow("vda", "read"): Completed(1, 0)}


# Seen, not timed


def test_untimed_and_unmatched_are_seen_and_not_timed():
    actual_interval = interval(
        framer(), same={key(5): 1}, untimed={key(op=WRITE): 2}, unmatched={key(): 3, key(op=WRITE): 1}
    )
    assert actual_interval.seen == {Flow("vda", "read"): Completed(4, 0), Flow("vda", "write"): Completed(3, 0)}
    assert actual_interval.unmatched == 4
    assert actual_interval.histograms[series("total")].count == 1
    assert series("total", op="write") not in actual_interval.histograms


def test_flushes_of_several_queues_are_seen_and_not_timed_in_tier_c():
    given_framer = framer(C, several=lambda name: name == "vda")
    actual_interval = interval(
        given_framer,
        tick=0,
        probe="block_c",
        hba={key(2000, op=FLUSH): 5, key(100, op=WRITE): 2, key(300, dev=SDB, op=FLUSH): 1},
        unmatched={key(op=FLUSH): 1},
        max={key(op=FLUSH): of(0, 2000)},
    )
    assert actual_interval.seen == {
        Flow("vda", "flush"): Completed(6, 0),
        Flow("vda", "write"): Completed(2, 0),
        Flow("sdb", "flush"): Completed(1, 0),
    }
    assert {s for s in actual_interval.histograms if s.op == "flush"} == {
        series("hba", "sdb", "flush"),
        series("total", "sdb", "flush"),
    }


def test_flushes_of_several_queues_are_timed_by_their_stamps():
    actual_interval = interval(framer(A, several=lambda _: True), same={key(2000, op=FLUSH): 5})
    assert actual_interval.histograms[series("total", op="flush")].count == 5


def test_where_there_is_no_sum_the_mean_is_not_known():
    histogram = interval(framer(C), probe="block_c", hba={key(100): 2}).histograms[series("hba")]
    assert (histogram.sum, histogram.mean) == (None, None)


# Maxima


@pytest.mark.parametrize("tick", [0, 1, 2, 2**31 - 2])
def test_the_maximum_is_that_of_the_tick_or_of_the_next_so_far(tick):
    def maximum(*values):
        most = {key() | n: value for n, value in enumerate(values)}
        histograms = interval(framer(), tick=tick, same={key(5): 9, key(1000): 1}, max=most).histograms
        assert histograms[series("hba")].max is None
        return histograms[series("total")].max

    assert maximum(of(tick, 1001)) == 1001
    # The tick was on its way to be printed: counted in this interval, by a stamp of the next.
    assert maximum(of(tick, 5), of(tick + 1, 1002)) == 1002
    assert maximum(of(tick, 1003), of(tick + 1, 1002)) == 1003
    # Only the next interval counts it.
    assert maximum(of(tick, 1001), of(tick + 1, 9000)) == 1001
    assert maximum(of(tick + 2, 1001)) is None
    assert not tick or maximum(of(tick - 1, 1001)) is None


def test_where_ticks_were_missed_there_is_no_maximum():
    actual_interval = interval(
        framer(), tick=None, same={key(1000): 1}, max={key(): of(0, 1000), key() | 1: of(1, 1000)}
    )
    assert actual_interval.histograms[series("total")].max is None


def test_a_maximum_that_was_not_printed_is_not_remembered():
    given_framer = framer()
    interval(given_framer, tick=0, same={key(1000): 1}, max={key(): of(0, 1000)})
    assert interval(given_framer, tick=0, same={key(1000): 2}).histograms[series("total")].max is None


@pytest.mark.parametrize(
    ("counted", "maximum", "shown"),
    [
        (1000, 1000, 1000),
        (1000, 1023, 1023),  # the same bucket
        (1000, 1024, None),  # its count came with the interval before
        (1000, 500, None),  # the count of a later one is there already
        (MAX_US, MAX_US, MAX_US),
        (0, 0, 0),
    ],
)
def test_a_maximum_outside_the_highest_bucket_is_of_other_requests(counted, maximum, shown):
    actual_interval = interval(framer(), tick=1, same={key(counted): 1}, max={key() | 1: of(1, maximum)})
    assert actual_interval.histograms[series("total")].max == shown


def test_a_maximum_without_a_count_is_dropped():
    assert interval(framer(), tick=1, max={key() | 1: of(1, 1000)}).histograms == {}


def test_of_ops_that_have_one_name_the_larger_maximum_counts():
    actual_interval = interval(
        framer(),
        tick=2,
        same={key(1000, op=WRITE): 1, key(9000, op=7): 1},
        max={key(op=WRITE): of(2, 1000), key(op=7): of(2, 9000)},
    )
    assert actual_interval.histograms[series("total", op="write")].max == 9000


# The bucket 0 that the queue's histogram leaves out


def test_the_rest_when_the_queues_map_is_ahead():
    given_framer = framer()
    first = interval(given_framer, hba={key(5): 1}, total={key(50): 1}, queue={key(45): 3}, queue_sum={key(): 135})
    assert first.histograms[series("queue")] == Histogram.of({bucket_index(45): 3}, 135)
    second = interval(given_framer, same={key(5): 1}, hba={key(5): 3}, total={key(50): 3}, queue={key(45): 3})
    assert second.histograms[series("hba")].count == 3
    assert second.histograms[series("queue")] == Histogram.of({0: 1}, 0)


def test_the_rest_when_the_other_map_is_ahead_of_the_queues():
    given_framer = framer()
    first = interval(given_framer, hba={key(5): 3}, total={key(50): 3}, queue={key(45): 2})
    assert first.histograms[series("queue")].buckets == ((0, 1), (bucket_index(45), 2))
    second = interval(given_framer, same={key(5): 4}, hba={key(5): 3}, total={key(50): 3}, queue={key(45): 3})
    assert second.histograms[series("queue")].buckets == ((0, 3), (bucket_index(45), 1))


def test_a_queue_that_is_ahead_on_an_idle_device_is_not_counted_twice():
    given_framer = framer()
    first = interval(given_framer, queue={key(45): 1})
    second = interval(given_framer, hba={key(5): 1}, total={key(50): 1}, queue={key(45): 1})
    histogram = merge(
        each.histograms[series("queue")] for each in (first, second) if series("queue") in each.histograms
    )
    assert histogram.count == 1
    assert series("queue") not in second.histograms


def test_a_sum_is_never_more_or_less_than_the_buckets_can_hold():
    given_framer = framer()
    first = interval(given_framer, hba={key(100): 1}, hba_sum={key(): 100 + 5000})
    assert first.histograms[series("hba")].sum == bucket_bounds(bucket_index(100))[1] - 1
    second = interval(given_framer, hba={key(100): 1, key(5000): 1}, hba_sum={key(): 100 + 5000})
    assert first.histograms[series("hba")].sum + second.histograms[series("hba")].sum == 5100
    third = interval(given_framer, hba={key(100): 5, key(5000): 1}, hba_sum={key(): 100 + 5000})
    assert third.histograms[series("hba")].sum == 4 * bucket_bounds(bucket_index(100))[0]
    fourth = interval(given_framer, hba={key(100): 15, key(5000): 1}, hba_sum={key(): 100 + 5000 + 14 * 100})
    assert third.histograms[series("hba")].sum + fourth.histograms[series("hba")].sum == 1400


def test_a_sum_that_is_ahead_waits_for_its_count():
    given_framer = framer()
    assert interval(given_framer, hba_sum={key(): 5}).histograms == {}
    histograms = interval(given_framer, same={key(5): 1}, hba_sum={key(): 5}).histograms
    assert histograms[series("hba")] == Histogram.of({5: 1}, 5)
    assert histograms[series("total")] == Histogram.of({5: 1}, 5)


# All of it together, as a probe that prints while requests complete

requests = st.tuples(
    st.sampled_from([VDA, SDB]), st.sampled_from([READ, WRITE]), st.integers(0, 5000), st.sampled_from([0, 0, 7, 900])
)
MAPS = ("same", "hba", "total", "queue", "hba_sum", "queue_sum", "bytes")


def count(request, maps):
    """Count one request as the script does: device time, then queue time."""
    dev, op, us, queued = request
    flow = key(None, dev, op)
    maps["hba_sum"][flow] += us
    maps["bytes"][flow] += 4096
    if queued:
        maps["queue"][key(queued, dev, op)] += 1
        maps["queue_sum"][flow] += queued
    if bucket_index(us) == bucket_index(us + queued):
        maps["same"][key(us, dev, op)] += 1
    else:
        maps["hba"][key(us, dev, op)] += 1
        maps["total"][key(us + queued, dev, op)] += 1


@given(st.lists(st.tuples(st.lists(requests, max_size=6), st.sets(st.sampled_from(MAPS), max_size=3)), max_size=8))
def test_intervals_add_up_to_the_maps_however_lines_are_torn_and_lost(ticks):
    given_framer, maps, intervals = framer(), defaultdict(Counter), []
    for arriving, lost in [*ticks, ([], set())]:
        waiting = list(arriving)
        for name in MAPS:  # a request completes between any two prints
            if waiting:
                count(waiting.pop(), maps)
            if name not in lost and maps[name]:
                given_framer.printed(f"block_a_{name}", dict(maps[name]))
        intervals.append(given_framer.interval(None))
    one_go = framer()
    for name in MAPS:
        one_go.printed(f"block_a_{name}", dict(maps[name]))
    probe_interval = one_go.interval(None)
    for each in intervals:
        assert all(histogram and histogram.sum >= 0 for histogram in each.histograms.values())
    for which in probe_interval.histograms.keys() | {s for each in intervals for s in each.histograms}:
        parts = merge(each.histograms[which] for each in intervals if which in each.histograms)
        # What a lost line moved past the last request is known, and waits for the next request.
        assert parts.count + given_framer._ahead.get(which, 0) == probe_interval.histograms[which].count
        assert parts.sum + given_framer._owed.get(which, 0) == probe_interval.histograms[which].sum
        rest = {0} if which.stage == "queue" else set()
        assert [b for b in parts.buckets if b[0] not in rest] == [
            b for b in probe_interval.histograms[which].buckets if b[0] not in rest
        ]
    for flow, done in probe_interval.seen.items():
        assert sum(each.seen[flow].count for each in intervals if flow in each.seen) == done.count
        assert sum(each.seen[flow].bytes for each in intervals if flow in each.seen) == done.bytes


@pytest.mark.parametrize("value", [-1, 2**63, 10**30])
def test_what_no_kernel_counts_is_not_counted(value):
    given_framer = framer()
    given_framer.printed("block_a_same", {key(5): value})
    added = given_framer.interval(None)
    assert (added.histograms, added.undecoded) == ({}, 1)


# I/Os above the threshold


MAPS_ABOVE = ("above", "suppressed", "level")


def looking(manifest=A, several=lambda _: False):
    """Return the framer of a probe that looks for slow I/Os."""
    others = [spec for spec in manifest.maps if spec.role not in MAPS_ABOVE]
    own = [MapSpec(f"{manifest.name}_{role}", role, key=manifest.keys[""]) for role in MAPS_ABOVE]
    return framer(replace(manifest, maps=(*others, *own)), several)


def test_what_is_above_the_threshold_is_reported_by_flow_and_what_was_left_out_by_number():
    framer = looking()
    first = interval(framer, above={key(): 3, key(dev=SDB, op=WRITE): 1}, suppressed={key(): 2})
    assert first.tables[ABOVE] == {Flow("vda", "read"): 3, Flow("sdb", "write"): 1}
    assert (first.suppressed, first.seen, first.unnamed) == (2, {}, 0)
    second = interval(framer, above={key(): 4, key(dev=SDB, op=WRITE): 1}, suppressed={key(): 2})
    assert (second.tables[ABOVE], second.suppressed) == ({Flow("vda", "read"): 1}, 0)


def test_what_was_left_out_of_a_device_that_is_not_selected_is_not_reported():
    framer = looking()
    framer._selects = lambda name: name == "vda"
    assert interval(framer, suppressed={key(): 2, key(dev=SDB): 40}).suppressed == 2


def test_a_threshold_stays_until_another_is_reported():
    framer = looking()
    assert interval(framer).thresholds_us == {}
    assert interval(framer, level={key(): 1000, key(dev=SDB): 8000}).thresholds_us == {"vda": 1000, "sdb": 8000}
    assert interval(framer).thresholds_us == {"vda": 1000, "sdb": 8000}
    assert interval(framer, level={key(): 4000}).thresholds_us == {"vda": 4000, "sdb": 8000}


def test_a_threshold_of_an_unknown_device_is_not_reported():
    assert interval(looking(), level={key(dev=GHOST): 1000}).thresholds_us == {}


def test_flushes_that_are_not_timed_are_not_above_a_threshold():
    framer = looking(C, several=lambda name: name == "vda")
    actual_interval = interval(framer, probe="block_c", above={key(op=FLUSH): 3, key(dev=SDB, op=FLUSH): 2})
    assert actual_interval.tables[ABOVE] == {Flow("sdb", "flush"): 2}
    assert not framer.times(Flow("vda", "flush"))
    assert framer.times(Flow("vda", "write"))
