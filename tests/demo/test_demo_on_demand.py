"""The demo's traced stages agree with its request stamps, and every slow I/O has a cause."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from frame_sums import FrameSums

from latmon.analysis.attribution import by_process, fold, requests_of, tail, tail_cut, untraced_share
from latmon.model import measurements
from latmon.model.frame import OPS, UNACCOUNTED, Flow, Frame, Series
from latmon.model.histogram import merge
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.handlers import Handler
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon_backends.demo import host_window
from latmon_backends.demo.host_window import COMPLETER, HOG
from latmon_backends.demo.scenario import ROWS
from latmon_backends.demo.script_output import label

QUIET = 40
"""Windows before the backup begins."""


pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def frames(whole_period) -> list[Frame]:
    return whole_period[:60]


@pytest.fixture(scope="module")
def quiet(frames) -> FrameSums:
    return FrameSums(frames[:QUIET])


def test_the_stages_of_every_window_add_up_to_its_latency(period):
    for frame in period:
        latency = {
            s: replace(histogram, max=None)
            for s, histogram in frame.histograms.items()
            if s.stage == "total" and histogram
        }
        traced = frame.traced.histograms
        assert {s: one for s, one in traced.items() if s.stage == "total"} == latency
        for series, one in latency.items():
            parts = [h for s, h in traced.items() if s[:2] == series[:2] and s.stage not in ("total", "resume")]
            assert sum(part.sum for part in parts) == one.sum
            by_total = frame.traced.by_total.items()
            sums = [f for s, f in by_total if s[:2] == series[:2] and s.stage != "total"]
            assert sum(us for part in sums for us in part.values()) == one.sum


@pytest.mark.slow
def test_the_tails_have_their_stories(quiet):
    traced = quiet.traced
    tails = {name: tail(traced, name, OPS, tail_cut(traced, name)) for name in ("sdb", "sdd", "sda", "nvme0n1")}
    leading = {name: max(tail.share, key=tail.share.get) for name, tail in tails.items()}
    assert leading == {"sdb": "softirq", "sdd": "completion", "sda": "hba", "nvme0n1": "hba"}
    assert Series("nvme0n1", "read", "softirq") not in traced.histograms
    assert set(traced.paths["nvme0n1"]) == {"hard interrupt"}
    assert 0 < untraced_share(traced) < 0.01


@pytest.mark.slow
def test_softirqs_of_the_ticking_disk_wait_for_whole_ticks(quiet):
    late = merge(h for s, h in quiet.traced.histograms.items() if s.device == "sdb" and s.stage == "softirq")
    waits = [index for index, _ in late.buckets if index > 64]
    assert waits
    block = {where.cpu: runs for where, runs in quiet[SOFTIRQS].items() if where.vector == "BLOCK"}
    (cpu,) = [cpu for cpu, runs in block.items() if "timer" in runs.ran_in]
    assert block[cpu].delay.quantile(0.99) > 3_500
    assert all(runs.delay.max_bound < 100 for other, runs in block.items() if other != cpu)


@pytest.mark.slow
def test_the_shared_handler_takes_its_victim_s_time(quiet):
    slow, ours = (
        quiet[HANDLERS][Handler(16, "uhci_hcd:usb3")],
        quiet[HANDLERS][Handler(16, "mpt3sas0")],
    )
    assert set(slow.returned) == {"none"}
    assert (slow.run.count, slow.run.sum) == (ours.run.count, ours.before_us)
    assert ours.shared_with == ("uhci_hcd:usb3",)


@pytest.mark.slow
def test_outliers_add_up_and_are_above_their_threshold(frames):
    every = [(outlier, frame) for frame in frames for outlier in frame.outliers]
    assert len(every) > 50
    for one, frame in every:
        assert sum(one.stages_us.values()) + one.unaccounted_us == one.total_us
        assert one.total_us > frame.thresholds_us[one.device]
        assert one.mono_us + one.total_us - one.stages_us.get("resume", 0) <= frame.mono_us
        assert one.wall - frame.wall == pytest.approx((one.mono_us - frame.mono_us) / 1e6, abs=1e-3)
    assert fold([one for one, _ in every])


@pytest.mark.slow
def test_what_the_rate_limit_leaves_out_is_counted(frames):
    for frame in frames:
        assert len(frame.outliers) <= ROWS
        assert sum(frame[ABOVE].values()) == len(frame.outliers) + frame.health.suppressed
    assert any(frame.health.suppressed for frame in frames)


def flows(table):
    """Flow -> (I/Os, bytes, time) of the rows of a table."""
    flows = {}
    for key, done in table:
        count, size, us = flows.get(Flow(*key[:2]), (0, 0, 0))
        flows[Flow(*key[:2])] = (count + done.count, size + done.bytes, us + done.latency.sum)
    return flows


def test_processes_cgroups_and_sizes_add_up_to_the_ios_of_their_device(period):
    for frame in period:
        latency = {
            Flow(s.device, s.op): histogram
            for s, histogram in frame.histograms.items()
            if s.stage == "total" and histogram
        }
        counted = {flow: (one.count, frame.seen[flow].bytes, one.sum) for flow, one in latency.items()}
        without_flushes = {flow: one for flow, one in counted.items() if flow.op != "flush"}
        assert flows(row for row in frame[measurements.ISSUERS].items() if not row[0].is_process) == counted
        assert flows(row for row in frame[measurements.ISSUERS].items() if row[0].is_process) == without_flushes
        assert flows(frame[measurements.SIZES].items()) == without_flushes
        issued = {flow: one.issued for flow, one in frame[measurements.PATTERNS].items()}
        assert issued == {flow: count for flow, (count, _, _) in without_flushes.items()}
        assert all(one.sequential <= one.issued for one in frame[measurements.PATTERNS].values())


def test_operations_on_files_that_wait_are_the_ios_of_their_device(period):
    for frame in period:
        for one, took in frame[measurements.FILES].items():
            flow = Flow(one.device, {"fsync": "flush"}.get(one.op, one.op))
            latency = frame.histograms[Series(*flow, "total")]
            assert took.max < 10 if one.wait == "cached" else took.count == latency.count
            assert one.wait == "cached" or latency.sum < took.sum < latency.sum + 10 * latency.count + 10_000


@pytest.mark.slow
def test_a_slow_operation_has_its_file_and_its_io(whole_period):
    every = [(file_operation, frame) for frame in whole_period for file_operation in frame.file_operations]
    assert {one.op for one, frame in every} == {"read", "write", "fsync"}
    for one, frame in every:
        assert one.path
        its = next(row for row in frame[measurements.FILES] if (row.mount, row.op) == (one.file_system.mount, one.op))
        assert frame[measurements.FILES][its._replace(wait=one.wait)].max >= one.total_us
        its = [each for each in requests_of(one, by_process(frame.outliers)) if each.op in ("flush", one.op)]
        assert any(one.mono_us <= each.mono_us and each.mono_us + each.total_us <= one.until_us for each in its)
        assert one.wall - frame.wall == pytest.approx((one.mono_us - frame.mono_us) / 1e6, abs=1e-3)


@pytest.mark.slow
def test_the_completion_thread_waits_as_long_as_its_ios(quiet):
    (thread,) = [one for one in quiet[WAKEUPS].values() if one.thread == COMPLETER]
    assert set(thread.instead) == {label(HOG)}
    series = [h for s, h in quiet.traced.histograms.items() if s.device == "sdd" and s.stage == "completion"]
    completion = merge(series)
    assert thread.delay.count == completion.count
    assert thread.delay.sum == completion.sum - 15 * completion.count
    assert not [s for s in quiet.traced.histograms if s.stage == "completion" and s.device != host_window.UNLIKE]
    assert Series("sdd", "read", UNACCOUNTED) in quiet.traced.histograms


def test_all_of_it_can_be_recorded(period):
    for frame in period[:3]:
        assert decode_frame(parse(to_bytes(encode_frame(frame)))) == frame


@pytest.mark.slow
def test_no_thread_waits_twice_at_a_time(frames):
    waits = {}
    for one in (outlier for frame in frames for outlier in frame.outliers):
        for wait in one.waits:
            waits.setdefault(wait.pid, []).append((wait.woken_us, wait.woken_us + wait.delay_us))
    for current_wait in waits.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted({*current_wait})))
    assert len(waits[COMPLETER.pid]) > 20
