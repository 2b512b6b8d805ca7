"""Sums of frames of which a sample was traced: each frame counts by its `one_in`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from frame_sums import FrameSums
from loads import Load
from recorded import ORIGIN

from latmon.aggregate.accumulator import Accumulator
from latmon.aggregate.history import Store
from latmon.diff.blocks import TRACED, of_runs, period_of
from latmon.findings.rule import Settings
from latmon.metrics.families import HostMetrics
from latmon.model import measurements
from latmon.model.frame import Completed, Device, Flow, Frame, Series, Traced
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.sizes import SizeClass
from latmon.model.packed_frame import RATES as SAMPLING_RATES
from latmon.model.packed_frame import SEEN_ALONE, pack
from latmon.views.history import OnDemandWindow
from latmon_backends.fleet.merge import HostFrame, merged_frame

DISK = ("sda", "read")
RATES = (1, 4, 16)


def _of_latencies(*latencies_us: int) -> Histogram:
    return Histogram.record(latencies_us)


def sampled(seq: int, one_in: int, quick: int, slow: int) -> Frame:
    """Return a second in which 1 in `one_in` I/Os was traced: `quick` ones of 100 us by `a`, `slow` of 3 ms by `b`."""
    total = _of_latencies(*[100] * (quick // one_in), *[3_000] * (slow // one_in))
    sizes = {
        SizeClass(*DISK, 4096): IssuedIO(quick // one_in, quick // one_in * 4096),
        SizeClass(*DISK, 65_536): IssuedIO(slow // one_in, slow // one_in * 65_536),
    }
    issuers = {
        Issuer(*DISK, "/a", pid=1, comm="a"): IssuedIO(quick // one_in, quick // one_in * 4096),
        Issuer(*DISK, "/b", pid=2, comm="b"): IssuedIO(slow // one_in, slow // one_in * 65_536),
        Issuer(*DISK, "/a"): IssuedIO(quick, quick * 4096),
    }
    queue_us, hba_us = 40 * (quick // one_in), 60 * (quick // one_in) + 3_000 * (slow // one_in)
    series = {stage: Series(*DISK, stage) for stage in ("queue", "hba", "total")}
    by_total = {series["queue"]: {0: queue_us}, series["hba"]: {0: hba_us}, series["total"]: {0: queue_us + hba_us}}
    return Frame(
        seq,
        1_000.0 + seq,
        10_000_000 + seq * 1_000_000,
        1_000_000,
        kernel={Flow(*DISK): Completed(quick + slow, 4096 * quick + 65_536 * slow)},
        traced=Traced({series["total"]: total}, by_total, paths={"sda": {"x": total.count}}, one_in=one_in),
        tables={measurements.ISSUERS: issuers, measurements.SIZES: sizes},
    )


LOAD = [sampled(0, 1, 1600, 0), sampled(1, 16, 1600, 0), sampled(2, 16, 0, 1600), sampled(3, 1, 1600, 0)]
"""6,400 I/Os, a quarter of them of 3 ms: on average 825 us."""


def checked(traced: Traced, issuers, sizes, quick: int = 4800, slow: int = 1600) -> None:
    total = traced.histograms[Series(*DISK, "total")]
    assert total.count == quick + slow
    assert total.mean == (quick * 100 + slow * 3_000) / (quick + slow)
    assert sum(traced.by_total[Series(*DISK, "queue")].values()) == quick * 40
    assert traced.paths == {"sda": {"x": quick + slow}}
    counts = {(one.comm, one.cgroup): done.count for one, done in issuers.items()}
    assert counts == {("a", "/a"): quick, ("b", "/b"): slow, ("", "/a"): quick}
    assert {one.upto: done.count for one, done in sizes.items()} == {4096: quick, 65_536: slow}


def test_an_accumulator_weighs_each_frame_by_its_sample():
    sums = Accumulator()
    for frame in LOAD:
        sums.add(frame)
    checked(sums.traced, sums[measurements.ISSUERS], sums[measurements.SIZES])
    assert sums.traced.sampled == (1, 16)


@pytest.mark.parametrize("later_s", [0, 100])
def test_a_history_weighs_each_frame_by_its_sample(later_s):
    """Also in the sums of ten seconds that it has of older frames."""
    store = Store()
    idle = [replace(Frame(0, 0.0, 0, 1_000_000), seq=4 + n, mono_us=14_000_000 + n * 1_000_000) for n in range(later_s)]
    for frame in [*LOAD, *idle]:
        store.append(frame)
    window = OnDemandWindow(200_000_000, store.on_demand)
    checked(window.traced, window[measurements.ISSUERS], window[measurements.SIZES])


def test_what_leaves_a_window_takes_its_weight_with_it():
    store = Store()
    window = OnDemandWindow(2_000_000, store.on_demand)
    for frame in LOAD:
        store.append(frame)
        window.advance(frame.mono_us)
        assert window.traced.histograms
        assert window[measurements.ISSUERS]
        assert window[measurements.SIZES]
    last = FrameSums(LOAD[2:])
    assert dict(window.traced.histograms) == dict(last.traced.histograms)
    assert window[measurements.ISSUERS] == last[measurements.ISSUERS]
    assert window[measurements.SIZES] == last[measurements.SIZES]


def test_frames_of_one_rate_are_the_traced_ones_themselves():
    sums = FrameSums(LOAD[1:3])
    assert sums.traced.histograms[Series(*DISK, "total")].count == 200
    assert sums.one_in == 16


@pytest.mark.parametrize("seed", range(5))
def test_a_frame_of_one_in_n_counts_as_n_frames_that_trace_each(seed):
    """Every table that is of the sample, and none that isn't."""
    frames = list(Load(seed, rates=RATES).frames(12))
    frames += [_tracing_each(frames[0])]
    once = [_tracing_each(frame) for frame in frames]
    repeated = [_tracing_each(frame) for frame in frames for _ in range(frame.traced.one_in)]
    weighed, unweighed, expected = FrameSums(frames), FrameSums(once), FrameSums(repeated)
    for table, rows in weighed.tables.items():
        assert rows or table is SEEN_ALONE, table.name
        sampled = {key: value for key, value in rows.items() if table.is_sampled(key)}
        assert sampled == {key: value for key, value in expected.tables[table].items() if table.is_sampled(key)}, (
            table.name
        )
        others = {key: value for key, value in rows.items() if not table.is_sampled(key)}
        if table is not SAMPLING_RATES:
            assert others == {key: unweighed.tables[table][key] for key in others}, table.name


def _tracing_each(frame: Frame) -> Frame:
    return replace(frame, traced=replace(frame.traced, one_in=1))


def _by_kernel(key: object) -> bool:
    """Return whether these are I/Os of a cgroup, which the kernel counts."""
    return isinstance(key, Issuer) and not key.is_process


@pytest.mark.parametrize("seed", range(3))
def test_what_was_added_can_be_subtracted_again(seed):
    frames = [pack(frame) for frame in Load(seed, rates=RATES).frames(20)]
    sums = FrameSums()
    for stamp, flat in enumerate(frames):
        sums.add(flat, stamp)
    for stamp, flat in enumerate(frames[:12]):
        sums.subtract(flat, stamp)
    rest = FrameSums()
    for stamp, flat in enumerate(frames[12:], 12):
        rest.add(flat, stamp)
    assert {table.name: dict(rows) for table, rows in sums.tables.items()} == {
        table.name: dict(rows) for table, rows in rest.tables.items()
    }


def test_a_comparison_weighs_each_frame_by_its_sample():
    span = period_of("a", ORIGIN, (), LOAD)
    total = span.total(Series(*DISK, TRACED + "total"), 3)
    assert (total.count, total.quantile(0.5)) == (6400, 104)
    assert sum(n for index, n in total.buckets if bucket_bounds(index)[0] > 1_000) == 1600
    assert {comm: done.count for comm, done in span.processes.items()} == {"a": 4800, "b": 1600}
    assert span.kinds[("sda", "up to 16 KiB")] == (4800, 6400)
    assert sum(span.by_total[Series(*DISK, "queue")].values()) == 4800 * 40


def test_runs_are_joined_with_one_weight():
    runs = [period_of("a", ORIGIN, (), LOAD[1:3]), period_of("b", ORIGIN, (), LOAD[:1])]
    joined = of_runs(runs)
    assert joined.total(Series(*DISK, TRACED + "total"), 3).count == 4800
    assert {comm: done.count for comm, done in joined.processes.items()} == {"a": 3200, "b": 1600}


def test_a_counter_of_traced_ios_counts_those_that_each_stands_for():
    families = HostMetrics(ORIGIN, Settings(), stages=True)
    for number, frame in enumerate(LOAD):
        families.add(replace(frame, devices=(Device("sda", 8, 0),) if not number else ()))
    (counted,) = [family for family in families.families() if family.name == "latmon_traced_latency_seconds"]
    (sample,) = counted.samples
    assert sample.value.count == 6400


def test_hosts_of_a_fleet_have_one_weight():
    parts = [
        HostFrame(label, replace(frame, mono_us=11_000_000, wall=1_000.0), 0, ("sda",))
        for label, frame in (("x", LOAD[0]), ("y", LOAD[2]))
    ]
    frame, refused = merged_frame(parts, seq=0, wall=1_000.0, mono_us=11_000_000, dt_us=1_000_000)
    assert refused == {}
    assert (frame.traced.one_in, frame.traced.sampled) == (1, (1, 16))
    counts = {series.device: histogram.count for series, histogram in frame.traced.histograms.items()}
    assert counts == {"x:sda": 1600, "y:sda": 1600}
    processes = Counter[str]()
    for issuer, done in frame[measurements.ISSUERS].items():
        processes[issuer.comm] += done.count if issuer.is_process else 0
    assert (processes["a"], processes["b"]) == (1600, 1600)
