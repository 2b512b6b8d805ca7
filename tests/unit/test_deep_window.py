"""The deep window's running sums are what merging its frames afresh would give, in little memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deep_frames import DEEP_FRAMES, outlier, traced_disk
from hypothesis import given, settings
from hypothesis import strategies as st

from latmon.deep_sums import DeepSums, flatten
from latmon.deep_window import DeepLog, DeepWindow, pack, unpack
from latmon.histogram import Histogram
from latmon.model import Frame, Health, Series, SoftirqCpu, SoftirqRuns, Traced
from latmon.store import Store

SECOND = 1_000_000


def at(second: int, one: Frame | None = None, **changed: object) -> Frame:
    wanted = {"seq": second, "mono_us": second * SECOND, "dt_us": SECOND}
    return replace(one or Frame(0, 0.0, 0, 0), **(wanted | changed))  # type: ignore[arg-type]


def values(sums):
    return (
        sums.traced,
        sums.handlers,
        sums.softirqs,
        sorted(sums.wakeups, key=lambda one: one.thread.pid),
        sums.above,
        sums.suppressed,
        sums.thresholds_us,
    )


@given(DEEP_FRAMES)
def test_what_is_packed_comes_back(one):
    assert unpack(pack(flatten(one), 0, {})) == flatten(one)


@settings(max_examples=25)
@given(st.lists(DEEP_FRAMES, min_size=1, max_size=5), st.integers(1, 3))
def test_running_sums_equal_a_fresh_merge(frames, length):
    log = DeepLog()
    window = DeepWindow(length * SECOND, log)
    for second, one in enumerate(frames):
        log.append(at(second, one))
        window.advance(second * SECOND)
    kept = frames[-length:]
    fresh = DeepSums(kept)
    assert values(window) == values(fresh) == values(DeepWindow(length * SECOND, log))
    assert window.outliers == tuple(one for frame in kept for one in frame.outliers)


def test_the_always_on_stages_are_summed_beside_the_total():
    hba, whole = Series("sda", "read", "hba"), Series("sda", "read", "total")
    log = DeepLog()
    window = DeepWindow(2 * SECOND, log)
    for second in range(1, 5):
        log.append(at(second, histograms={hba: Histogram.record([second]), whole: Histogram.record([9])}))
        window.advance(second * SECOND)
    assert window.basic == {hba: Histogram.record([3, 4])}


def test_a_window_that_all_left_is_empty_and_remembers_nobody():
    log = DeepLog()
    log.append(at(1, traced=traced_disk(), health=Health(suppressed=3)))
    window = DeepWindow(SECOND, log)
    assert window.traced.histograms
    log.append(at(9))
    window.advance(9 * SECOND)
    assert values(window) == values(DeepSums([Frame(0, 0.0, 0, 0)]))
    assert not any((window._sums._peaks, window._sums._threads, window._sums._handlers))


def test_one_in_is_what_it_is_now():
    log = DeepLog()
    for second, one in enumerate((traced_disk(), Traced())):
        log.append(at(second, traced=one))
    window = DeepWindow(60 * SECOND, log)
    assert window.traced.one_in == 0
    assert window.traced.histograms == traced_disk().histograms


def test_the_delays_of_every_frame_are_there_for_a_heat_map():
    log = DeepLog()
    one = {SoftirqCpu("BLOCK", cpu): SoftirqRuns(Histogram.record([4000]), Histogram.record([5])) for cpu in (0, 1)}
    for second in (1, 2):
        log.append(at(second, softirqs=one))
    delays = DeepWindow(60 * SECOND, log).delays
    assert [stamp for stamp, _ in delays] == [SECOND, 2 * SECOND]
    assert delays[0][1]["BLOCK"].count == 2


def test_a_paused_window_sees_nothing_that_came_later():
    log = DeepLog()
    for second in (1, 2, 3):
        log.append(at(second, outliers=(outlier(second),)))
    window = DeepWindow(60 * SECOND, log, until_us=2 * SECOND)
    assert [one.mono_us for one in window.outliers] == [1, 2]
    window.advance(3 * SECOND)
    assert len(window.outliers) == 3


def test_the_newest_outliers_are_kept_and_no_more():
    log = DeepLog(max_outliers=5)
    for second in range(4):
        log.append(at(second, outliers=(outlier(second), outlier(second + 100))))
    assert [one.mono_us for one in log.outliers(-1, 10 * SECOND)] == [101, 2, 102, 3, 103]


def test_the_store_keeps_deep_values_packed_and_as_long_as_its_frames():
    store = Store()
    for second in range(0, 2000, 20):
        kept = store.append(at(second, traced=traced_disk(), outliers=(outlier(second),)))
        assert (kept.traced, kept.outliers) == (Traced(), ())
    assert len(store.deep.every()) == len(store.frames)
    assert len(store.deep.outliers(0, 2000 * SECOND)) == len(store.frames)
    assert len(store.deep.keys) <= 4
    store.append(at(5, traced=traced_disk()))
    assert len(store.deep.entries) == 1
    assert not store.deep.outliers(0, 2000 * SECOND)


def test_time_that_goes_backwards_begins_anew():
    store = Store()
    window = DeepWindow(60 * SECOND, store.deep)
    for second in (100, 101, 5):
        window.advance(store.append(at(second, traced=traced_disk())).mono_us)
    assert window.traced.histograms[Series("sdc", "write", "total")].count == 100


@pytest.mark.parametrize("devices", [24])
def test_eleven_minutes_of_many_traced_devices_are_small(devices):
    stages = {
        Series(f"sd{device}", op, stage): Histogram.record(range(40, 90_000, 7_000 + device))
        for device in range(devices)
        for op in ("read", "write")
        for stage in ("queue", "hba", "irq", "softirq", "completion", "unaccounted", "total")
    }
    one = at(1, traced=Traced(stages, {series: dict(one.buckets) for series, one in stages.items()}))
    packed = pack(flatten(one), 0, {})
    assert len(packed.numbers) < 12_000
