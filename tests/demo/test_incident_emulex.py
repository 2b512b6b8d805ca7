"""The numbers of the case are in the demo, and its healthy counterpart has none of them."""

from __future__ import annotations

import re
from itertools import islice
from random import Random

import pytest
from frame_sums import FrameSums

from latmon.analysis.attribution import tail, tail_cut
from latmon.cli import headless
from latmon.cli.main import run as main
from latmon.model.frame import Frame
from latmon.model.histogram import Histogram, bucket_bounds, merge
from latmon.model.measurements import ABOVE, HANDLERS, WAKEUPS
from latmon_backends.demo.backend import INCIDENTS
from latmon_backends.demo.emulex import (
    COMPLETER,
    TABLE_MS,
    TABLE_WINDOWS,
    THRESHOLD_US,
    delays,
    plan,
)


@pytest.fixture(scope="module")
def sick() -> list[Frame]:
    return list(islice(INCIDENTS["emulex"].frames(Random(1)), TABLE_WINDOWS))


@pytest.fixture(scope="module")
def healthy() -> list[Frame]:
    return list(islice(INCIDENTS["emulex-healthy"].frames(Random(1)), 5))


def latency(frames: list[Frame]) -> Histogram:
    return merge(h for frame in frames for series, h in frame.histograms.items() if series.stage == "total")


@pytest.mark.slow
def test_the_first_drain_is_the_case_s_own_row_eight_times(sick):
    rows = [outlier for frame in sick for outlier in frame.outliers]
    assert len(rows) == 8
    for row in rows:
        stages = {"queue": 3, "hba": 85, "irq": 6, "completion": 1_238_738 + 165}
        assert (row.total_us, row.stages_us, row.unaccounted_us) == (1_238_999, stages, 2)
        (wait,) = row.waits
        assert (wait.stage, wait.thread, wait.priority) == ("completion", COMPLETER.comm, 97)
        assert (wait.delay_us, wait.instead) == (1_238_738, "zpool-data (prio 99)")
        assert wait.woken_us == row.mono_us + 3 + 85 + 6
    assert len({(row.mono_us, row.wall) for row in rows}) == 1
    assert sorted({row.device for row in rows}) == ["sd0", "sd1", "sd3", "sd4"]
    written = [row for row in rows if row.comm == "ora_lgwr"]
    assert {(one.op, one.bytes) for one in written} == {("write", 2048)}
    assert len(written) == 6
    ended = {frame.wall for frame in sick if frame.outliers}
    assert ended == {INCIDENTS["emulex"].origin.start_wall + 2}, "it was printed at 12:13:04"


@pytest.mark.slow
def test_one_io_in_100_000_is_above_500_ms(sick):
    histogram = latency(sick)
    assert sum(n for frame in sick for n in frame[ABOVE].values()) == 8
    assert 8 / histogram.count == pytest.approx(1e-5, rel=0.02)
    assert histogram.quantile(0.99) < 2_000
    assert histogram.quantile(0.9999) < THRESHOLD_US
    assert histogram.max == 1_238_999


@pytest.mark.slow
def test_wake_ups_are_the_table_of_the_case(sick):
    completer = [one for frame in sick for one in frame[WAKEUPS].values() if one.thread.comm == COMPLETER.comm]
    waits = merge(one.delay for one in completer)
    assert waits.count == sum(TABLE_MS.values()) == 15_230
    late = sum(count for index, count in waits.buckets if bucket_bounds(index)[1] > 64_000)
    assert late == pytest.approx(34, abs=2), "the bucket that holds 64 ms begins below"
    assert sum(count for index, count in waits.buckets if bucket_bounds(index)[1] > 1_024_000) == 1
    assert all(one.thread.priority == 97 for one in completer)
    late = sum(count for ms, count in TABLE_MS.items() if ms)
    assert sum(n for one in completer for n in one.instead.values()) == late
    assert all(name.endswith("(prio 99)") for one in completer for name in one.instead)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_table_is_dealt_out_whole(seed):
    rng = Random(seed)
    first = plan(rng, 180)
    assert len(first) == 200
    for begin in range(0, 200, TABLE_WINDOWS):
        table = first[begin : begin + TABLE_WINDOWS]
        dealt = {ms: sum(one.rows.get(ms, 0) for one in table) for ms in TABLE_MS}
        assert dealt | {1024: 1} == TABLE_MS
        (drain,) = [one.drain for one in table if one.drain]
        assert 500_000 < drain.packet.total < 2_000_000
    assert [one.drain.packet.total for one in first if one.drain][:2] == [1_238_999, 836_000]
    for us in delays(rng, {2: 20}):
        assert 2_000 <= us < 4_000


@pytest.mark.slow
def test_the_tail_is_the_thread_s_and_the_san_is_quick(sick):
    traced = FrameSums(sick).traced
    at = tail_cut(traced, "sd0")
    slow = tail(traced, "sd0", ("write",), at)
    assert max(slow.share, key=slow.share.get) == "completion"
    hba = merge(h for series, h in traced.histograms.items() if (series.device, series.stage) == ("sd0", "hba"))
    assert hba.quantile(0.5) < 100
    assert hba.max_bound < 5_000


@pytest.mark.slow
def test_packets_that_are_held_are_in_flight_meanwhile(sick):
    at = next(frame.seq for frame in sick if frame.outliers)
    before = sick[at - 1]
    assert before.outstanding["sd0"].in_driver >= 4
    assert max(before.depths["sd0"].in_driver) >= 4
    assert sick[at + 1].outstanding["sd0"].in_driver < 4


def test_without_the_illness_nothing_takes_100_ms(healthy):
    histogram = latency(healthy)
    assert histogram.max_bound < 100_000
    assert histogram.count / len(healthy) == pytest.approx(20_000, rel=0.02)
    assert not any(frame.outliers or frame[ABOVE] for frame in healthy)
    assert not healthy[0].traced.histograms, "no script measures qlc's stages"
    (loops,) = [taskq for taskq in healthy[0].taskqs if taskq.name == "qlc_0_comp_thd"]
    assert (loops.ever, loops.active, loops.threads, loops.priority, loops.loops) == (0, 8, 8, 99, True)


@pytest.mark.slow
def test_the_hba_is_what_differs(sick, healthy):
    assert INCIDENTS["emulex"].origin.settings == INCIDENTS["emulex-healthy"].origin.settings
    assert [{one.name for one in frames[0][HANDLERS]} for frames in (sick, healthy)] == [
        {"emlxs0"},
        {"qlc0"},
    ]


def test_the_share_of_the_slow_part_is_on_the_screen_once(tmp_path):
    """The row has that of the window; the verdict has the longest wait: one number for one claim."""
    path = tmp_path / "emulex.latmon.jsonl.gz"
    headless.record_demo("emulex", 1, path, 90_000_000)
    picture = tmp_path / "overview.txt"
    words = ["export", "--to", "text", "--screen", "overview", "--size", "160x50", "-o", str(picture), str(path)]
    assert main(words) == 0
    lines = picture.read_text().splitlines()
    (claim,) = [line for line in lines if line.startswith("!! sd")]
    assert "%" not in claim
    slow_parts = [line for line in lines if re.match(r"..sd\d ", line) and "completion" in line]
    assert slow_parts
    assert all("%" in row.partition("completion")[2] for row in slow_parts), slow_parts
