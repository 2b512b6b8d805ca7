"""The running sums of a window of traced frames equal a merge of its frames, in little memory."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
from depth_sums import merge_depths
from frame_sums import FrameSums
from hypothesis import given, settings
from hypothesis import strategies as st
from on_demand_frames import ON_DEMAND_FRAMES, outlier, traced_disk

from latmon.aggregate.depth_sum import DepthSum, packed
from latmon.aggregate.histogram_sum import HistogramSums
from latmon.aggregate.history import OnDemandLog, Store, packed_of
from latmon.analysis.attribution import tail, untraced_share
from latmon.model import measurements
from latmon.model.frame import Frame, Health, Outstanding, Series, Thread, Traced
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths
from latmon.model.measurements import ABOVE, HANDLERS, SIZES, SOFTIRQS, WAKEUPS
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.sizes import SizeClass
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.model.packed_frame import RATES, Pressed, Rate, pack
from latmon.views.history import PATIENCE, History, OnDemandWindow

SECOND = 1_000_000


def at(second: int, frame: Frame | None = None, **changed: object) -> Frame:
    wanted = {"seq": second, "mono_us": second * SECOND, "dt_us": SECOND}
    return replace(frame or Frame(0, 0.0, 0, 0), **(wanted | changed))  # type: ignore[arg-type]


def values(sums):
    return (
        sums.traced,
        sums[HANDLERS],
        sums[SOFTIRQS],
        sums[WAKEUPS],
        sums[measurements.ISSUERS],
        sums[ABOVE],
        sums.suppressed,
        sums.thresholds_us,
    )


@settings(max_examples=settings.default.max_examples // 4)
@given(ON_DEMAND_FRAMES)
def test_what_is_pressed_comes_back(one):
    assert Pressed(pack(one)).packed == pack(one)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 4)  # each is up to five of the dearest
@given(st.lists(ON_DEMAND_FRAMES, min_size=1, max_size=5), st.integers(1, 3))
def test_running_sums_equal_a_fresh_merge(frames, length):
    log = OnDemandLog()
    window = OnDemandWindow(length * SECOND, log)
    for second, current_frame in enumerate(frames):
        log.append(at(second, current_frame))
        window.advance(second * SECOND)
    kept = frames[-length:]
    fresh = FrameSums(kept)
    assert values(window) == values(fresh) == values(OnDemandWindow(length * SECOND, log))
    assert window.outliers == tuple(outlier for frame in kept for outlier in frame.outliers)


def test_a_new_window_merges_nothing_and_an_old_one_what_the_log_has_merged(monkeypatch):
    """A merge of ten frames takes 20 ms: a new window of five minutes took 0.17 s, of ten minutes twice that."""
    log, merged = OnDemandLog(), []
    monkeypatch.setattr(log, "combine", lambda parts, combine=log.combine: merged.append(parts) or combine(parts))
    for second in range(1, 131):
        log.append(at(second, traced=traced_disk()))
    merged.clear()
    window = OnDemandWindow(300 * SECOND, log)
    assert window.copy(log).traced == window.traced
    assert not merged
    before = window.traced.histograms[next(iter(window.traced.histograms))].count
    for second in range(131, 261):
        log.append(at(second, traced=traced_disk()))
        window.advance(second * SECOND)
        assert len(window._sums.entries) <= 100, "one by one for a minute at most"
    assert window.traced.histograms[next(iter(window.traced.histograms))].count == before * 2
    assert values(window) == values(OnDemandWindow(300 * SECOND, log))


@settings(max_examples=settings.default.max_examples // 4)
@given(st.lists(ON_DEMAND_FRAMES, min_size=1, max_size=5))
def test_what_is_known_of_slow_ios_needs_no_histograms_of_their_stages(frames):
    log, window = OnDemandLog(), None
    for second, frame in enumerate(frames, 1):
        log.append(at(second, frame))
        window = OnDemandWindow(2 * SECOND, log) if window is None else window
        window.advance(second * SECOND)
    tails, traced = window.tails, window.traced
    totals = {series: histogram for series, histogram in traced.histograms.items() if series.stage == "total"}
    assert dict(tails.histograms) == totals
    assert dict(tails.by_total) == dict(traced.by_total)
    assert (tails.rates, tails.off, tails.devices) == (traced.rates, traced.off, traced.devices)
    for device in {series.device for series in totals}:
        assert untraced_share(tails, device) == untraced_share(traced, device)
        assert tails.includes_of(device) == traced.includes_of(device)


def test_bytes_of_a_request_that_has_not_completed_are_its_cgroup_s():
    issuer = Issuer("sda", "read", "/a")
    part, issued_io = IssuedIO(0, 4096), IssuedIO(1, 512, Histogram.record([9]))
    assert FrameSums([at(1, tables={measurements.ISSUERS: {issuer: part}})])[measurements.ISSUERS] == {issuer: part}
    both = FrameSums(
        [
            at(1, tables={measurements.ISSUERS: {issuer: part}}),
            at(2, tables={measurements.ISSUERS: {issuer: issued_io}}),
        ]
    )
    assert both[measurements.ISSUERS] == {issuer: IssuedIO(1, 4608, Histogram.record([9]))}


def test_a_softirq_that_has_only_been_raised_is_in_a_sum_of_sums():
    where = SoftirqCpu("BLOCK", 0)
    raised = SoftirqRuns(Histogram(), Histogram(), {}, {"irq": 1})
    ran = SoftirqRuns(Histogram.record([5]), Histogram.record([7]), {"irq_exit": 1})
    frames = [at(second, tables={SOFTIRQS: {where: runs}}) for second, runs in ((1, raised), (2, ran))]
    sums = FrameSums()
    for frame in frames:
        sums.add(FrameSums([frame]).packed)
    assert sums[SOFTIRQS] == FrameSums(frames)[SOFTIRQS] == {where: replace(ran, raised_in={"irq": 1})}


def test_the_always_on_stages_are_summed_beside_the_total():
    hba, series = Series("sda", "read", "hba"), Series("sda", "read", "total")
    log = OnDemandLog()
    window = OnDemandWindow(2 * SECOND, log)
    for second in range(1, 5):
        log.append(at(second, histograms={hba: Histogram.record([second]), series: Histogram.record([9])}))
        window.advance(second * SECOND)
    assert window.basic == {hba: Histogram.record([3, 4])}


def test_a_window_without_frames_forgets_all_devices():
    log = OnDemandLog()
    log.append(at(1, traced=traced_disk(), health=Health(suppressed=3)))
    window = OnDemandWindow(SECOND, log)
    assert window.traced.histograms
    log.append(at(9))
    window.advance(9 * SECOND)
    assert values(window) == values(FrameSums([Frame(0, 0.0, 0, 0)]))
    for sums in window._sums.sums.values():
        for table in sums.tables.values():
            assert not table._facts
            assert not any(histograms.sums for histograms in table.histograms.values())


def test_rates_are_those_of_all_that_was_traced_in_the_window():
    log = OnDemandLog()
    window = OnDemandWindow(3 * SECOND, log)
    seen = []
    for second, one_in in enumerate((1, 8, 8, 0, 256, 256, 256), 1):
        log.append(at(second, traced=replace(traced_disk(), one_in=one_in)))
        window.advance(second * SECOND)
        seen.append(window.traced.sampled)
    assert seen == [(1, 1), (1, 8), (1, 8), (8, 8), (8, 256), (256, 256), (256, 256)]


def test_a_long_window_forgets_a_finer_sample_with_its_frames():
    """Entries that are a minute old are merged, and were subtracted as one frame: counts were 16 times as many."""
    log = OnDemandLog()
    window = OnDemandWindow(120 * SECOND, log)
    size, total = SizeClass("sda", "read", 4096), Series("sda", "read", "total")
    sizes = {SIZES: {size: IssuedIO(10, 40_960)}}
    for second in range(1, 362):
        one_in = 1 if 90 <= second < 100 else 16
        traced = Traced({total: Histogram.record([100])}, one_in=one_in)
        log.append(at(second, traced=traced, tables=sizes))
        window.advance(second * SECOND)
        assert window[SIZES][size]
        assert window.traced
        if second == 151:
            assert window[SIZES][size].count == 10 * (10 + 110 * 16)
    assert window[SIZES][size].count == 10 * 120
    assert window.traced.histograms[total].count == 120


def test_a_long_window_forgets_unknown_sums_with_their_frames():
    """A merged entry without a sum left the sums of its other frames behind: 101.3 us for latencies of 100 us."""
    log = OnDemandLog()
    window = OnDemandWindow(120 * SECOND, log)
    issuer, latencies = Issuer("sda", "read", "/a"), Histogram.record([100] * 10)
    means = []
    for second in range(1, 362):
        latency = replace(latencies, sum=None) if second in (90, 92, 93) else latencies
        log.append(at(second, tables={measurements.ISSUERS: {issuer: IssuedIO(10, 40_960, latency)}}))
        window.advance(second * SECOND)
        means.append(window[measurements.ISSUERS][issuer].latency.mean)
    assert means[:89] == [100] * 89
    assert means[92:210] == [None] * 118
    assert means[215:] == [100] * 146


def test_one_in_is_what_it_is_now():
    log = OnDemandLog()
    for second, traced in enumerate((traced_disk(), Traced())):
        log.append(at(second, traced=traced))
    window = OnDemandWindow(60 * SECOND, log)
    assert window.traced.one_in == 0
    assert window.traced.histograms == traced_disk().histograms


def test_a_stage_that_took_no_time_leaves_as_it_came():
    log = OnDemandLog()
    window = OnDemandWindow(2 * SECOND, log)
    for second, sums in enumerate(({4: 0}, {4: 0}, {5: 3}, {}, {})):
        log.append(at(second, traced=Traced(by_total={Series("sda", "read", "irq"): sums})))
        window.advance(second * SECOND)
        assert sum(us for of in window.traced.by_total.values() for us in of.values()) == 3 * (second in (2, 3))


def test_the_delays_of_every_frame_are_there_for_a_heat_map():
    log = OnDemandLog()
    one = {SoftirqCpu("BLOCK", cpu): SoftirqRuns(Histogram.record([4000]), Histogram.record([5])) for cpu in (0, 1)}
    for second in (1, 2):
        log.append(at(second, tables={SOFTIRQS: one}))
    delays = OnDemandWindow(60 * SECOND, log).delays
    assert [stamp for stamp, _ in delays] == [SECOND, 2 * SECOND]
    assert delays[0][1]["BLOCK"].count == 2


def test_a_paused_window_sees_nothing_that_came_later():
    log = OnDemandLog()
    for second in (1, 2, 3):
        log.append(at(second, outliers=(outlier(second),)))
    window = OnDemandWindow(60 * SECOND, log, until_us=2 * SECOND)
    assert [outlier.mono_us for outlier in window.outliers] == [1, 2]
    window.advance(3 * SECOND)
    assert len(window.outliers) == 3


def test_the_newest_outliers_are_kept_and_no_more():
    log = OnDemandLog(max_outliers=5)
    for second in range(4):
        log.append(at(second, outliers=(outlier(second), outlier(second + 100))))
    assert [outlier.mono_us for outlier in log.outliers(-1, 10 * SECOND)] == [101, 2, 102, 3, 103]


def test_the_store_keeps_on_demand_values_packed_and_as_long_as_its_frames():
    store = Store()
    for second in range(0, 2000, 20):
        kept = store.append(at(second, traced=traced_disk(), outliers=(outlier(second),)))
        assert (kept.traced, kept.outliers) == (Traced(), ())
    assert len(store.on_demand.every()) == len(store.frames)
    assert len(store.on_demand.outliers(0, 2000 * SECOND)) == len(store.frames)
    assert sum(map(len, store.on_demand.keys.values())) <= 12
    store.append(at(5, traced=traced_disk()))
    assert len(store.on_demand.entries) == 1
    assert not store.on_demand.outliers(0, 2000 * SECOND)


def test_time_that_goes_backwards_restarts_the_window():
    store = Store()
    window = OnDemandWindow(60 * SECOND, store.on_demand)
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
    given_frame = at(1, traced=Traced(stages, {series: dict(stage.buckets) for series, stage in stages.items()}))
    frame = pack(given_frame)
    assert len(Pressed(frame).numbers) < 15_000
    packed_histograms = [table.histograms[0] for table in frame.tables.values() if table.histograms]
    arrays = [a for t in packed_histograms for a in (t.indices, t.ends, t.counts, t.sums, t.maxima)]
    assert sum(memoryview(a).nbytes for a in arrays) < 50_000


def _spied(before, seen):
    def spied(self, table, stamp):
        seen.append(table)
        return before(self, table, stamp)

    return spied


@pytest.fixture
def added(monkeypatch):
    """The tables that were added to a sum or taken away from one."""
    seen = []
    for name in ("add", "remove"):
        monkeypatch.setattr(HistogramSums, name, _spied(getattr(HistogramSums, name), seen))
    return seen


def traced_for(seconds: int, window: OnDemandWindow, log: OnDemandLog, read=lambda _: None) -> None:
    softirqs = {SoftirqCpu("BLOCK", 0): SoftirqRuns(Histogram.record([9]), Histogram.record([9]))}
    for _ in range(seconds):
        second = log.entries[-1].mono_us // SECOND + 1 if log.entries else 1
        log.append(at(second, traced=traced_disk(), tables={SOFTIRQS: softirqs}))
        window.advance(second * SECOND)
        read(window)


def test_unread_sums_are_not_computed(added):
    log = OnDemandLog()
    traced_for(50, OnDemandWindow(30 * SECOND, log), log)
    assert added == []


def test_a_frame_is_added_once_and_taken_away_once_whatever_is_read(added):
    log = OnDemandLog()
    window = OnDemandWindow(30 * SECOND, log)

    def read(window):
        for _ in range(3):
            assert untraced_share(window.traced) == 0
            assert tail(window.traced, "sdc").count

    traced_for(45, window, log, read)
    added.clear()
    traced_for(10, window, log, read)
    latencies_and_times = 2
    assert len(added) == 10 * 2 * latencies_and_times
    assert set(window._sums.sums) == {"traced", "always"}


def test_sums_stop_when_unread_and_restart_when_read(added):
    log = OnDemandLog()
    window = OnDemandWindow(60 * SECOND, log)
    traced_for(30, window, log)
    assert len(window[SOFTIRQS]) == 1
    traced_for(PATIENCE + 1, window, log)
    added.clear()
    traced_for(5, window, log)
    assert added == []
    assert window[SOFTIRQS] == OnDemandWindow(60 * SECOND, log)[SOFTIRQS]


def test_a_window_that_was_read_is_freed_without_the_garbage_collector():
    log = OnDemandLog()
    window = OnDemandWindow(30 * SECOND, log)
    traced_for(3, window, log, lambda one: tail(one.traced, "sdc"))
    freed = weakref.ref(window)
    gc.disable()
    try:
        del window
        assert freed() is None
    finally:
        gc.enable()


def test_depths_without_samples_keep_their_source_as_others_leave():
    """A device without sampled depths has a count at issue alone."""
    packed_depths = packed(Depths(at_issue={1: 3}, source="probe"), SECOND)
    sums = DepthSum()
    sums.add(packed_depths, 1)
    sums.add(packed_depths, 2)
    before = sums.depths.source
    sums.remove(packed_depths, 1)
    assert sums.depths.source == before
    assert merge_depths([Depths(at_issue={1: 3}, source="probe")] * 2).source == "probe"


def test_equal_keys_of_two_tables_stay_keys_of_their_own():
    """The thread with the pid 4, and one I/O of 4 that is traced."""
    thread = Thread(4, "worker", "other", 120)
    log = OnDemandLog()
    log.append(at(0, tables={WAKEUPS: by_thread((Wakeups(thread, Histogram.record([20]), {}, {}),))}))
    log.append(at(1, traced=replace(traced_disk(), one_in=4)))
    (rate,) = packed_of(log.every()[-1]).tables[RATES].counts.rows
    assert (type(rate), rate.one_in) == (Rate, 4)


def test_a_device_is_busy_with_an_io_in_flight_or_one_of_the_last_seconds():
    done = {Series("sda", "read", "total"): Histogram.of({50: 1})}

    def history_of(frames: list[Frame]) -> History:
        history = History(60 * SECOND, ("read",))
        for frame in frames:
            history.append(frame)
        return history

    frames = [at(second, histograms=done if second < 40 else {}) for second in range(1, 60)]
    assert history_of(frames[:48]).busy == {"sda"}
    assert history_of(frames).busy == frozenset()
    last = at(60, outstanding={"sda": Outstanding(1, 0), "sdb": Outstanding(0, 0)})
    assert history_of([*frames, last]).busy == {"sda"}
