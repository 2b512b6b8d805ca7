"""zpool iostat: rates and means of vdevs, and latencies by column."""

import re

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.values import ImportOptions
from latmon.model.frame import Completed, Flow, Outstanding, Series
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError, UsageError

RATES, BUCKETS = ((GOLDEN / f"zpool_{name}.txt").read_text() for name in ("lv", "w"))


def test_the_wait_above_the_disk_and_the_disk_stay_apart():
    found = read(RATES)
    first, second = found.frames()
    assert (first.dt_us, second.wall - first.wall, second.wall) == (10_000_000, 10, 1_709_287_220)
    write = first.kernel[Flow("tank", "write")]
    assert write == Completed(3400, 15 * 1024 * 1024, 836_000 * 3400, 736_000 * 3400)
    assert first.kernel[Flow("tank mirror-0 sda", "read")] == Completed(500, 4_096_000, 2_000_000, 500_000)
    log = first.kernel[Flow("logs nvme0n1", "write")]
    assert (log.count, log.time_us, log.queue_us) == (900, 22_500, 900)
    assert first.kernel[Flow("logs nvme0n1", "read")].time_us is None
    assert {device.name: device.members for device in first.devices if device.members} == {
        "tank": ("tank mirror-0",), "tank mirror-0": ("tank mirror-0 sda", "tank mirror-0 sdb")
    }  # fmt: skip
    assert "the first report is of the time since the import of the pool and left out" in first.health.notice
    assert found.exit_code == EXIT_DONE


def test_with_y_the_first_report_is_an_interval():
    assert len(frames(RATES.replace("-lv", "-ylv"))) == 3
    kept = frames(RATES.partition("\n")[2], ImportOptions(first_report="keep"))
    assert [one.dt_us for one in kept] == [10_000_000] * 3
    assert "it is taken as 10 s long, as the later reports are" in kept[0].health.notice


def test_columns_of_buckets_are_stages():
    found = read(BUCKETS)
    frame = only(found.frames())
    counts = {tuple(key)[1:]: histogram.count for key, histogram in frame.histograms.items()}
    assert counts == {
        ("read", "total"): 163,
        ("write", "total"): 340,
        ("read", "hba"): 162,
        ("write", "hba"): 340,
        ("read", "queue"): 4,
        ("write", "queue"): 347,
        ("other", "queue"): 7,
        ("discard", "queue"): 2,
    }
    slow = frame.histograms[Series("tank", "write", "total")]
    assert slow.max_bound == 1_048_576  # 2^29 to 2^30 ns
    assert found.exit_code == EXIT_DONE
    assert "since the import of the pool" in frame.health.notice


@pytest.mark.parametrize(("good", "bad"), [("262us", "26xus"), ("   310", "   3x0"), ("1ms ", "9ms ")])
def test_a_damaged_row_of_buckets_leaves_out_the_table(good, bad):
    assert good in BUCKETS
    with pytest.raises(RecordingError):
        read(BUCKETS.replace(good, bad, 1))
    assert read(RATES + BUCKETS.replace(good, bad, 1)).exit_code == EXIT_INCOMPLETE


def test_a_damaged_row_of_a_vdev_is_named():
    found = read(RATES.replace("736ms", "7x6ms"))
    assert found.exit_code == EXIT_INCOMPLETE
    assert all(frame.kernel.keys().isdisjoint({Flow("tank", "write")}) for frame in found.frames())


def test_device_and_op_overwrite_nothing():
    for text in (RATES, BUCKETS + BUCKETS.replace("tank", "pool")):
        with pytest.raises(UsageError, match="which can't be one"):
            read(text, ImportOptions(device="X"))
    asked = ImportOptions(op="read", stage="hba")
    assert [frame.kernel for frame in frames(RATES, asked)] == [frame.kernel for frame in frames(RATES)]
    assert only(frames(BUCKETS, asked)).histograms == only(frames(BUCKETS)).histograms


def test_vdevs_whose_long_names_begin_alike_stay_apart():
    long = "n" * 70
    first, _ = frames(re.sub(r"\bsd([ab])\b", rf"{long}\1", RATES))
    counts = [done.count for flow, done in first.kernel.items() if "nnn" in flow.device and flow.op == "read"]
    assert counts == [500, 500]


QUEUES = """$ zpool iostat -yq tank 5 1
              capacity     operations     bandwidth    syncq_read    syncq_write   asyncq_read  asyncq_write   scrubq_read   trimq_write
pool        alloc   free   read  write   read  write   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ
----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----
tank        1.50G  8.00G    100    340   800K  1.50M      0      2      0      1      5      3     40     10      0      0      0      0
"""  # noqa: E501 - as zpool prints it


def test_the_queues_of_a_vdev_are_outstanding_ios():
    """`activ` of all queues is in the device, `pend` waits for it."""
    frame = only(frames(QUEUES))
    assert frame.outstanding == {"tank": Outstanding(16, 45)}
    assert frame.kernel[Flow("tank", "read")].time_us is None


def test_outputs_of_openzfs_2_3_are_read_as_printed():
    """They show a mirror with a log in a guest under fio; the sums of the columns are those of awk."""
    lv, w, q, lp = (read((GOLDEN / f"zpool_zfs23_{name}.txt").read_text()) for name in ("lv", "w", "q", "lp"))
    assert [found.exit_code for found in (lv, w, q, lp)] == [EXIT_DONE] * 4
    histograms = only(w.frames()).histograms
    counts = {(key.op, key.stage): histogram.count for key, histogram in histograms.items()}
    assert counts == {(op, stage): n for op, n in (("read", 9), ("write", 637)) for stage in ("total", "hba", "queue")}
    log = list(lv.frames())[1].kernel[Flow("logs /v2", "write")]
    assert (log.count, log.time_us) == (14, 14 * 15_000)
    assert only(q.frames()).outstanding == {"lab": Outstanding(0, 0)}
    first, second = (frame.kernel[Flow("lab", "write")] for frame in lp.frames())
    assert (first.count, first.time_us, second.bytes) == (128, round(128 * 432_727.032), 2 * 1_375_676)


def _without_times(text):
    return re.sub(r"Fri Mar.*\n", "", text)


def test_the_interval_of_a_command_line_is_that_of_reports_without_times():
    timed, untimed = (frames(text) for text in (RATES, _without_times(RATES)))
    assert [one.dt_us for one in untimed] == [10_000_000] * 2
    assert [one.kernel for one in untimed] == [one.kernel for one in timed]
    only_interval = _without_times(RATES).replace("tank 10 3", "tank 0.5")
    assert [frame.dt_us for frame in frames(only_interval)] == [500_000] * 2
    assert [frame.dt_us for frame in frames(_without_times(RATES).replace("tank 10 3", "tank"))] == [1_000_000] * 2


def test_each_command_line_begins_a_run():
    """Each has a first report since the import of the pool, and its own interval."""
    other = _without_times(RATES).replace("tank", "pool").replace("10 3", "2 3")
    all_frames = frames(_without_times(RATES) + other)
    assert [frame.dt_us for frame in all_frames] == [10_000_000] * 2 + [2_000_000] * 2
    assert [{flow.device.split()[0] for flow in frame.kernel} - {"logs"} for frame in all_frames] == [{"tank"}] * 2 + [
        {"pool"}
    ] * 2
    assert [mark.text for frame in all_frames for mark in frame.marks] == [
        "line 32: another run of zpool iostat begins"
    ]


def test_a_time_that_falls_begins_a_run():
    earlier = RATES.replace(" 10:00:", " 09:00:").partition("\n")[2]
    all_frames = frames(RATES + earlier)
    assert [(frame.wall, frame.dt_us) for frame in all_frames] == [
        (1_709_283_610, 10_000_000),
        (1_709_283_620, 10_000_000),
        (1_709_287_210, 10_000_000),
        (1_709_287_220, 10_000_000),
    ]
    assert only([mark.text for frame in all_frames for mark in frame.marks]).endswith("begins, its time falls")
