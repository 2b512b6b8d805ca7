"""Stages of the slow I/Os, the cut from which I/Os are slow, and which rows are merged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from frame_sums import FrameSums
from hypothesis import given
from hypothesis import strategies as st
from on_demand_frames import DISK, NVME, of, outlier, traced_disk

from latmon.aggregate.histogram_sum import Peak
from latmon.analysis.attribution import by_vector, fold, parts_of, stages_of, tail, tail_cut, total_of, untraced_share
from latmon.model.frame import OPS, UNACCOUNTED, Frame, Series, Traced
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns

SDC = traced_disk()


def test_the_tail_names_the_stage_that_makes_it():
    where = tail_cut(SDC, "sdc")
    assert where == bucket_bounds(bucket_index(30_093))[0]
    actual_tail = tail(SDC, "sdc", OPS, where)
    assert actual_tail.count == 2
    assert actual_tail.share["softirq"] == pytest.approx(30_000 / 30_093)
    assert sum(actual_tail.share.values()) == pytest.approx(1)


def test_the_tail_of_all_is_the_share_of_all_time():
    actual_tail = tail(SDC, "sdc", OPS, 0)
    assert actual_tail.count == 100
    assert actual_tail.share["hba"] == pytest.approx(9_000 / (98 * 100 + 2 * 30_093))


def test_a_fixed_threshold_is_a_bucket_s_bound_that_is_not_below_it():
    for threshold in (20_000, 20_480, 7, 1_000_000):
        where = tail_cut(SDC, "sdc", threshold_us=threshold)
        assert where >= threshold
        assert bucket_bounds(bucket_index(where))[0] == where


def test_too_few_have_no_tail():
    assert tail_cut(traced_disk(90, 2), "sdc") is None
    assert tail_cut(SDC, "sda") is None


def test_the_cut_is_behind_the_p99_where_something_is_there():
    assert tail_cut(traced_disk(999, 1), "sdc") == bucket_bounds(bucket_index(100))[1]


def test_stages_come_in_the_order_in_which_a_request_passes():
    more = replace(SDC, histograms={Series(*DISK, UNACCOUNTED): of(1), **SDC.histograms})
    assert list(stages_of(more, "sdc")) == ["queue", "hba", "softirq", UNACCOUNTED]
    assert total_of(SDC, "sdc", ("write",)).count == 100
    assert not total_of(SDC, "sdc", ("read",))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=30), st.data())
def test_shares_are_those_of_the_ios_above_the_cut(times, data):
    totals = [queue + hba for queue, hba in times]
    sums: dict[str, dict[int, int]] = {"queue": {}, "hba": {}}
    for (queue, hba), total in zip(times, totals, strict=True):
        for stage, us in (("queue", queue), ("hba", hba)):
            index = bucket_index(total)
            sums[stage][index] = sums[stage].get(index, 0) + us
    traced = Traced(
        {Series(*NVME, "total"): of(*totals)}, {Series(*NVME, stage): one for stage, one in sums.items()}, one_in=1
    )
    low, _ = bucket_bounds(bucket_index(data.draw(st.sampled_from(totals))))
    above = [one for one, total in zip(times, totals, strict=True) if total >= low]
    actual_tail = tail(traced, "nvme0n1", OPS, low)
    assert actual_tail.count == len(above)
    whole_total = sum(map(sum, above))
    assert actual_tail.share.get("queue", 0) == pytest.approx(
        sum(q for q, _ in above) / whole_total if whole_total else 0
    )


def test_what_was_not_followed_is_a_share_of_what_was_traced():
    lost = replace(SDC, paths={"sdc": {"BLOCK softirq": 90}}, unfollowed={"sdc": {"polled": 5, "batched": 5}})
    assert untraced_share(lost) == untraced_share(lost, "sdc") == 0.1
    assert untraced_share(lost, "sda") is None
    assert untraced_share(Traced()) is None


def test_a_share_is_of_one_population_however_few_totals_are_there():
    sick = replace(SDC, histograms={}, paths={"sdc": {"BLOCK softirq": 10}}, unfollowed={"sdc": {"polled": 30}})
    assert untraced_share(sick) == 0.75


def test_bios_have_no_path_that_could_be_lost():
    assert untraced_share(replace(SDC, paths={})) is None
    disk_and_volume = replace(SDC, paths={"sdc": {"BLOCK softirq": 1}}, unfollowed={"sdc": {"polled": 1}})
    assert untraced_share(disk_and_volume, "dm-0") is None


def test_softirqs_of_all_cpus_together():
    runs = {SoftirqCpu("BLOCK", cpu): SoftirqRuns(of(cpu), of(5), {"ksoftirqd": 1}, {"irq": 2}) for cpu in range(3)}
    assert by_vector(runs) == {"BLOCK": SoftirqRuns(of(0, 1, 2), of(5, 5, 5), {"ksoftirqd": 3}, {"irq": 6})}


def test_eight_identical_rows_are_one():
    rows = [outlier(10_000_000 + n, sector=n) for n in range(8)]
    assert [(row.outlier.sector, row.repeats) for row in fold(rows)] == [(0, 8)]


@pytest.mark.parametrize(
    "other",
    [
        outlier(20_000_000),
        outlier(op="read"),
        outlier(device="sdd"),
        outlier(path="hard interrupt"),
        outlier(waits=(), total_us=1_238_999 + 10, unaccounted_us=12),
        outlier(waits=(), stages_us={"queue": 8, "hba": 80, "irq": 6, "completion": 1_238_903}),
        outlier(total_us=300_000),
    ],
    ids=["later", "op", "device", "path", "unaccounted", "stages", "another wait's length"],
)
def test_what_differs_is_reported_apart(other):
    first = outlier() if other.waits else outlier(waits=())
    if other.total_us == 300_000:
        other = replace(other, stages_us={"completion": 299_998})
    assert [row.repeats for row in fold([first, other])] == [1, 1]


def test_rows_that_waited_for_one_thread_are_one_though_they_began_apart():
    first, second = outlier(), outlier(10_050_000, total_us=1_189_000, stages_us={"hba": 20, "completion": 1_188_980})
    assert [(row.outlier, row.repeats) for row in fold([second, first])] == [(first, 2)]


def test_folding_a_flood_is_quick():
    rows = [outlier(n, waits=(), total_us=50_000 + 3 * n, stages_us={"hba": 3 * n}) for n in range(10_000)]
    assert len(fold(rows)) == 10_000


def test_merged_frames_are_of_the_model_s_own_types():
    frames = [Frame(0, 0.0, 0, 0, traced=SDC), Frame(1, 0.0, 1, 0, traced=SDC)]
    merged = FrameSums(frames).traced
    assert merged.histograms[Series(*DISK, "total")].count == 200
    assert merged.by_total[Series(*DISK, "hba")][bucket_index(100)] == 2 * 98 * 90
    assert merged.paths == {"sdc": {"BLOCK softirq": 200}}


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=20), st.integers(1, 5))
def test_a_sliding_maximum_is_that_of_the_window(values, length):
    peak = Peak()
    for stamp, (value, known) in enumerate(values):
        histogram = Histogram.record([value]) if known else Histogram(((bucket_index(value), 1),))
        peak.add(stamp, histogram)
        peak.forget(stamp - length)
        window = values[max(0, stamp - length + 1) : stamp + 1]
        best = max((v for v, is_known in window if is_known), default=-1)
        bound = max((bucket_bounds(bucket_index(v))[1] - 1 for v, is_known in window if not is_known), default=-1)
        assert peak.maximum() == (best if best >= max(bound, 0) else None)


def test_no_quantile_of_a_part_exceeds_that_of_the_whole():
    """The total has an exact maximum and its parts have none: 3.97 ms, and 4.1 ms the edge of the parts' bucket."""
    total = Histogram.record([3_900, 3_950, 3_970] * 50)
    hba = replace(Histogram.record([3_850, 3_930, 3_960] * 50), max=None)
    resume = replace(Histogram.record([9_000] * 150), max=None)
    traced = Traced(
        {
            Series("sda", "read", stage): histogram
            for stage, histogram in (("total", total), ("hba", hba), ("resume", resume))
        }
    )
    stages = parts_of(stages_of(traced, "sda"), total_of(traced, "sda"))
    for q in (0.5, 0.9, 0.99):
        assert stages["hba"].quantile(q) <= total.quantile(q)
    assert (stages["hba"].max, stages["hba"].max_bound) == (None, 3_970)
    assert (stages["hba"].count, stages["hba"].sum) == (hba.count, hba.sum)
    assert stages["resume"].max_bound > 9_000
