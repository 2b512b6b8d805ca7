"""Which frames make a device a suspect, and when it stops being one."""

from dataclasses import replace

from latmon.histogram import Histogram
from latmon.model import Device, Flow, Frame, Series
from latmon_backends.suspicion import ABOVE_IN, STAYS_US, Suspicion

SECOND = 1_000_000


def frame(seq, above=(), p99_us=None, *, removed=(), devices=(), many=1):
    """One second; `above` are devices with slow I/Os, `p99_us` says of a device what all its I/Os took."""
    return Frame(
        seq=seq,
        wall=0.0,
        mono_us=seq * SECOND,
        dt_us=SECOND,
        above={Flow(name, "read"): many for name in above},
        thresholds_us=dict.fromkeys(above, 20_000),
        histograms={Series(n, "read", "total"): Histogram.record([us] * 200) for n, us in (p99_us or {}).items()},
        devices=devices,
        removed=removed,
    )


def noted(*frames):
    suspicion = Suspicion()
    for one in frames:
        suspicion.note(one)
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


def test_the_worst_come_first():
    frames = [replace(frame(n), above={Flow(f"sd{k}", "read"): k + 1 for k in range(9)}) for n in range(5)]
    suspects = noted(*frames).suspects()
    assert [(one.device, one.slow) for one in suspects] == [(f"sd{k}", 5 * (k + 1)) for k in reversed(range(9))]


ALIKE = tuple(Device(f"sd{n}", 8, 16 * n, driver="megasas", model="ST4000") for n in range(4))


def test_a_device_far_from_its_peers():
    slow = {"sd0": 1_000, "sd1": 1_200, "sd2": 900, "sd3": 40_000}
    suspicion = noted(frame(0, devices=ALIKE), *(frame(n, p99_us=slow) for n in range(1, 11)))
    (suspect,) = suspicion.suspects()
    assert suspect.device == "sd3"
    assert "peers" in suspect.why


def test_both_signs_weigh_by_the_slow_ios_of_the_last_intervals():
    slow = {"sd0": 1_000, "sd1": 1_200, "sd2": 900, "sd3": 40_000}  # 200 I/Os each second
    many, few = Flow("sda", "read"), Flow("sdb", "read")
    frames = (replace(frame(n, p99_us=slow), above={many: 900, few: 1}) for n in range(1, 6))
    assert [one.device for one in noted(frame(0, devices=ALIKE), *frames).suspects()] == ["sda", "sd3", "sdb"]


def test_another_model_is_no_peer():
    others = (*ALIKE[:3], replace(ALIKE[3], model="tape robot"))
    slow = {"sd0": 1_000, "sd1": 1_200, "sd2": 900, "sd3": 40_000}
    assert noted(frame(0, devices=others), *(frame(n, p99_us=slow) for n in range(1, 11))).suspects() == ()


def test_far_from_peers_but_fast_enough():
    fast = {"sd0": 20, "sd1": 20, "sd2": 20, "sd3": 400}
    assert noted(frame(0, devices=ALIKE), *(frame(n, p99_us=fast) for n in range(1, 11))).suspects() == ()


def test_a_device_that_is_gone_is_no_suspect():
    suspicion = noted(*(frame(n, above=["sda"]) for n in range(5)))
    suspicion.note(frame(5, removed=("sda",)))
    assert suspicion.suspects() == ()
