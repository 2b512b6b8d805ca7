"""Counters that only grow: two readings are an interval, and one is none."""

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.values import Remark
from latmon.model.frame import Completed, Flow, Outstanding, Series
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError

NODE, EBPF, KSTAT, SMART = (
    (GOLDEN / f"{name}.txt").read_text() for name in ("prometheus_node", "prometheus_ebpf", "kstat_disks", "smart_log")
)


def test_two_scrapes_of_node_exporter_are_an_interval():
    found = read(NODE)
    frame = only(found.frames())
    assert frame.dt_us == 15_000_000
    assert frame.wall == 1_709_287_215.0
    assert frame.kernel[Flow("sda", "read")] == Completed(50, 50 * 4096, 750_000)
    assert frame.kernel[Flow("sda", "write")] == Completed(10, 40_960, 2_000_000)
    assert frame.kernel[Flow("nvme0n1", "read")] == Completed(2, 8192, 0)
    assert frame.outstanding["sda"] == Outstanding(3, None)
    assert found.exit_code == EXIT_DONE


def test_cumulative_buckets_of_two_scrapes():
    frame = only(frames(EBPF))
    write = frame.histograms[Series("nvme0n1", "write", "total")]
    read_ = frame.histograms[Series("nvme0n1", "read", "total")]
    assert (write.count, read_.count) == (48, 5)
    assert write.max_bound >= 262_144
    assert frame.dt_us == 15_000_000
    assert "1 of 262144001 or more" in frame.health.notice.replace(",", "")


def test_kstat_has_the_wait_apart_from_the_service():
    found = read(KSTAT)
    frame = only(found.frames())
    done = frame.kernel[Flow("sd0", "read")], frame.kernel[Flow("sd0", "write")]
    assert [(one.count, one.bytes) for one in done] == [(100, 819_200), (300, 1_228_800)]
    assert sum(one.time_us for one in done) == 10_250_000
    assert sum(one.queue_us for one in done) == 8_000_000
    assert frame.outstanding["sd0"] == Outstanding(1, 2)
    assert frame.dt_us == 10_000_000
    assert found.exit_code == EXIT_DONE


def test_two_smart_logs_count_and_time_nothing():
    frame = only(frames(SMART))
    assert frame.kernel[Flow("nvme0", "read")] == Completed(400, 20 * 512_000)
    assert frame.kernel[Flow("nvme0", "write")] == Completed(7, 512_000)
    assert frame.dt_us == 60_000_000


@pytest.mark.parametrize(
    ("text", "cut"), [(NODE, "2024-03-01 10:00:15"), (KSTAT, "\n\n"), (SMART, "2024-03-01 10:01:00")]
)
def test_a_single_reading_is_no_interval(text, cut):
    with pytest.raises(RecordingError, match="two make an interval"):
        read(text.partition(cut)[0])


@pytest.mark.parametrize(
    ("text", "good", "bad"), [(NODE, "} 150\n", "} 90\n"), (KSTAT, "reads\t110", "reads\t9"), (SMART, "90400", "400")]
)
def test_counters_that_fall_leave_out_their_interval(text, good, bad):
    assert good in text
    found = read(text.replace(good, bad) + "\n@us[sda]:\n[1]   5 |@@|\n")
    assert found.exit_code == EXIT_INCOMPLETE
    assert not any(one.kernel for one in found.frames())
    assert any("fell" in one.text for one in found.found if isinstance(one, Remark))


def test_buckets_that_do_not_add_up_are_left_out():
    text = EBPF.replace('le="0.000256"} 72', 'le="0.000256"} 172')
    assert text != EBPF
    found = read(text)
    assert found.exit_code == EXIT_INCOMPLETE
    assert list(only(found.frames()).histograms) == [Series("nvme0n1", "read", "total")]
