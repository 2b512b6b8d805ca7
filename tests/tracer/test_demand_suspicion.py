"""Frames that make a device suspicious, and the end of the suspicion."""

import re
from dataclasses import replace

import pytest

from latmon.model.frame import Completed, Device, Flow, Frame, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.model.inflight import InFlight, InFlightList
from latmon.model.measurements import ABOVE, FILE_SLEEPS, SERVER_WAITS
from latmon.model.measurements.file_sleeps import FileSleep
from latmon.model.measurements.server_waits import ServerWait, WaitedTime
from latmon_backends.tracer.demand import ABOVE_IN, STAYS_US, Demand, Suspicion

SECOND = 1_000_000


def frame(seq, above=(), p99_us=None, *, removed=(), devices=(), many=1):
    """One second; `above` are devices with slow I/Os, `p99_us`: device -> time of all of its I/Os."""
    return Frame(
        seq=seq,
        wall=0.0,
        mono_us=seq * SECOND,
        dt_us=SECOND,
        tables={ABOVE: {Flow(name, "read"): many for name in above}},
        thresholds_us=dict.fromkeys(above, 20_000),
        histograms={Series(n, "read", "total"): Histogram.record([us] * 200) for n, us in (p99_us or {}).items()},
        devices=devices,
        removed=removed,
    )


def noted(*frames):
    suspicion = Suspicion()
    for frame in frames:
        suspicion.note(frame)
    return suspicion


def test_one_bad_second_is_none():
    frames = [frame(n, above=["sda"] if n < ABOVE_IN - 1 else [], many=500) for n in range(10)]
    assert noted(*frames).suspects() == ()


def test_slow_ios_in_several_of_the_last_intervals():
    suspicion = noted(frame(0, above=["sda"]), frame(1), frame(2, above=["sda"]), frame(3), frame(4, above=["sda"]))
    (suspect,) = suspicion.suspects()
    assert suspect.device == "sda"
    assert suspect.why == "I/Os above 20 ms"


def test_seldom_is_not_often():
    frames = [frame(n, above=["sda"] if n % 6 == 0 else []) for n in range(60)]
    assert noted(*frames).suspects() == ()


def test_a_suspect_stays_for_a_while_after_its_last_sign():
    suspicion = noted(*(frame(n, above=["sda"]) for n in range(3)))
    last = 2 + 7  # the last interval in which three of the last ten had slow I/Os
    for n in range(3, last + STAYS_US // SECOND + 2):
        suspicion.note(frame(n))
        if n < 2 + STAYS_US // SECOND:
            assert suspicion.suspects(), n
    assert suspicion.suspects() == ()


ALIKE = tuple(Device(f"sd{n}", 8, 16 * n, driver="megasas", model="ST4000") for n in range(4))


def test_a_device_far_from_its_peers():
    slow = {"sd0": 1_000, "sd1": 1_200, "sd2": 900, "sd3": 40_000}
    suspicion = noted(frame(0, devices=ALIKE), *(frame(n, p99_us=slow) for n in range(1, 11)))
    (suspect,) = suspicion.suspects()
    assert suspect.device == "sd3"
    assert "peers" in suspect.why


def test_a_suspect_says_how_many_times_slower_than_its_peers_it_is():
    slow = {"sd0": 1_000, "sd1": 1_000, "sd2": 1_000, "sd3": 40_000}
    suspicion = noted(frame(0, devices=ALIKE), *(frame(n, p99_us=slow) for n in range(1, 11)))
    (suspect,) = suspicion.suspects()
    times = int(re.search(r"a tail (\d+) times as long as its peers'", suspect.why)[1])
    assert 30 < times < 50


def test_another_model_is_no_peer():
    others = (*ALIKE[:3], replace(ALIKE[3], model="tape robot"))
    slow = {"sd0": 100, "sd1": 120, "sd2": 90, "sd3": 4_000}
    assert noted(frame(0, devices=others), *(frame(n, p99_us=slow) for n in range(1, 11))).suspects() == ()


def test_far_from_peers_but_fast_enough():
    fast = {"sd0": 20, "sd1": 20, "sd2": 20, "sd3": 400}
    assert noted(frame(0, devices=ALIKE), *(frame(n, p99_us=fast) for n in range(1, 11))).suspects() == ()


def test_a_device_that_is_gone_is_no_suspect():
    suspicion = noted(*(frame(n, above=["sda"]) for n in range(5)))
    suspicion.note(frame(5, removed=("sda",)))
    assert suspicion.suspects() == ()


def held(seq, in_flight, done=0, *, still=None):
    kernel = {Flow("loop3", op): Completed(done, 0) for op in ("read", "write")}
    gauge = {"loop3": Outstanding(in_flight, 0)}
    return replace(frame(seq), kernel=kernel, outstanding=gauge, in_flight=still)


def test_ios_that_do_not_complete():
    """No threshold counts them: they have no latency yet."""
    frames = [held(n, 2) for n in range(1, 4)]
    assert noted(*frames[:2]).suspects() == ()
    (suspect,) = noted(*frames).suspects()
    assert (suspect.device, suspect.why) == ("loop3", "I/Os in flight for more than 2 s")


def test_a_device_that_is_busy_is_none():
    assert noted(*(held(n, 64, done=500) for n in range(1, 30))).suspects() == ()


def test_one_that_starves_while_others_complete_is_known_by_the_probe_alone():
    still = InFlightList((InFlight("loop3", "write", 0),), {}, 1, 5 * SECOND)
    (suspect,) = noted(held(4, 64, done=500), held(5, 64, done=500, still=still)).suspects()
    assert suspect.device == "loop3"


def test_when_they_have_completed_it_stays_for_a_while():
    suspicion = noted(*(held(n, 2) for n in range(1, 5)))
    suspicion.note(held(5, 0, done=2))
    assert suspicion.suspects()
    suspicion.note(held(4 + STAYS_US // SECOND, 0))
    assert suspicion.suspects() == ()


def test_the_busiest_disk_is_traced_with_a_device_on_a_file():
    took = {"loop0": 30_000, "vda": 4_000, "vdb": 100}
    suspicion = noted(*(frame(n, above=["loop0"], p99_us=took) for n in range(ABOVE_IN)))
    assert [(suspect.device, suspect.why) for suspect in suspicion.suspects()] == [
        ("loop0", "I/Os above 20 ms"),
        ("vda", "I/Os above 20 ms"),
    ]
    alone = noted(*(frame(n, above=["loop0"], p99_us={"loop0": 30_000}) for n in range(ABOVE_IN)))
    assert [suspect.device for suspect in alone.suspects()] == ["loop0"]
    both = noted(*(frame(n, above=["loop0", "vdb"], p99_us=took) for n in range(ABOVE_IN)))
    assert Demand("auto").wanted(both.suspects(), 0.0).devices == ("loop0", "vda", "vdb")


@pytest.mark.parametrize(("ios", "us", "suspects"), [(90, 10_800, ["loop0"]), (4_000, 300, []), (60, 10_800, [])])
def test_slow_reads_that_keep_a_device_busy_are_a_sign(ios, us, suspects):
    latency = Histogram.record([us] * ios)
    frames = (replace(frame(n), histograms={Series("loop0", "read", "total"): latency}) for n in range(ABOVE_IN))
    assert [suspect.device for suspect in noted(*frames).suspects()] == suspects


@pytest.mark.parametrize(("ios", "us", "suspects"), [(179, 5_500, ["loop0"]), (179, 500, []), (6_000, 5_500, [])])
@pytest.mark.parametrize("has_sum", [True, False])
def test_few_writes_that_keep_a_device_busy_are_known_without_sums_too(has_sum, ios, us, suspects):
    exact = Histogram.record([us] * ios)
    latency = exact if has_sum else replace(exact, sum=None)
    frames = (replace(frame(n), histograms={Series("loop0", "write", "total"): latency}) for n in range(ABOVE_IN))
    assert [suspect.device for suspect in noted(*frames).suspects()] == suspects


def waiting(seq, waited_us=SECOND, sleeps=5):
    """One second in which a thread waits for a server, `sleeps` times."""
    waits = {ServerWait("", "fuse", "thumbnailer/7"): WaitedTime(waited_us, sleeps)}
    return replace(frame(seq), tables={SERVER_WAITS: waits})


def test_programs_that_wait_for_a_slow_server_want_operations_on_files_traced():
    suspicion = noted(waiting(0), waiting(1))
    assert suspicion.suspects() == ()
    want = Demand("auto").wanted((), 0.0, file_waits=suspicion.file_waits)
    assert (want.files, want.why) == (True, "programs wait for the server of a file system")
    for n in range(2, 20 + STAYS_US // SECOND):
        suspicion.note(frame(n))
    assert suspicion.file_waits is None


def test_the_busiest_device_alone_is_traced_with_operations_on_files():
    """All devices were: a slow sshfs made the tracer follow each I/O of 24 disks."""
    busy = replace(frame(0, p99_us={"sda": 100, "sdb": 400, "loop0": 900}), devices=ALIKE)
    suspicion = noted(busy, waiting(1), waiting(2))

    def devices():
        return Demand("auto").wanted((), 0.0, file_waits=suspicion.file_waits).devices

    assert devices() == ("sdb",)
    suspicion.note(replace(frame(3, p99_us={"sda": 90_000}), tables=waiting(3).tables))
    assert devices() == ("sdb",)
    suspicion.note(replace(waiting(4), removed=("sdb",)))
    assert devices() == ("sda",)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([waiting(0)], id="one look"),
        pytest.param([waiting(n, sleeps=1_000) for n in range(9)], id="a fast server"),
        pytest.param([waiting(n, sleeps=0) for n in range(9)], id="a silent one"),
    ],
)
def test_other_waits_for_servers_are_no_sign(frames):
    assert noted(*frames).file_waits is None


def locked(seq, waited_us=780_000, sleeps=120, cause="lock", device="loop0"):
    """One second in which reads of a program wait for a lock, `sleeps` times."""
    row = FileSleep(device, "/srv/db", "xfs", cause, "read", "catalog.idx", "searchapi/7")
    return replace(frame(seq), tables={FILE_SLEEPS: {row: WaitedTime(waited_us, sleeps)}})


@pytest.mark.parametrize("cause", ["lock", "journal"])
def test_programs_that_wait_for_a_lock_want_the_device_of_its_file_system_traced(cause):
    busy = replace(frame(0, p99_us={"sda": 100, "sdb": 400}), devices=ALIKE)
    suspicion = noted(busy, *(locked(seq, cause=cause) for seq in range(1, 4)))
    want = Demand("auto").wanted((), 0.0, file_waits=suspicion.file_waits)
    assert (want.files, want.devices) == (True, ("loop0",))
    assert want.why == "programs wait for a lock or a journal of a file system"
    (unknown,) = [noted(busy, *(locked(seq, cause=cause, device="") for seq in range(1, 4))).file_waits]
    assert unknown.device == "sdb"


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([locked(0)], id="one look"),
        pytest.param([locked(n, sleeps=1_000) for n in range(9)], id="short waits"),
        pytest.param([locked(n, cause="server") for n in range(9)], id="a server, which has its own sign"),
    ],
)
def test_other_waits_in_operations_on_files_are_no_sign(frames):
    assert noted(*frames).file_waits is None
