"""Counters that only grow: two readings are an interval, and one is none."""

import re

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions, Remark, moment
from latmon.model.frame import Completed, Flow, Frame, Outstanding, Series
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError, UsageError

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


@pytest.mark.parametrize("time", ["2024-03-01 10:00:00", "2024-03-01 09:00:00"])
def test_an_interval_whose_time_does_not_rise_has_no_length_and_is_left_out(time):
    """Its rates would be wrong by an unknown factor."""
    _, second = (line for line in SMART.splitlines() if moment(line) is not None)
    with pytest.raises(
        RecordingError, match="the time doesn't rise after the smart log in line 3: the interval is left"
    ):
        read(SMART.replace(second, time))


def test_cumulative_buckets_of_two_scrapes():
    frame = only(frames(EBPF))
    write = frame.histograms[Series("nvme0n1", "write", "total")]
    read_ = frame.histograms[Series("nvme0n1", "read", "total")]
    assert (write.count, read_.count) == (48, 5)
    assert write.max_bound == 262_144
    assert frame.dt_us == 15_000_000
    assert "1 of 262144000 or more" in frame.health.notice.replace(",", "")


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
    ("text", "good", "bad", "others"),
    [
        (NODE, "} 150\n", "} 90\n", {"nvme0n1"}),
        (KSTAT, "reads\t110", "reads\t9", {"sd1"}),
        (SMART, "90400", "400", set()),
    ],
)
def test_counters_that_fall_leave_out_the_interval_of_their_device_alone(text, good, bad, others):
    assert good in text
    found = read(text.replace(good, bad) + "\n@us[sdz]:\n[1]   5 |@@|\n")
    assert found.exit_code == EXIT_INCOMPLETE
    assert {flow.device for frame in found.frames() for flow in frame.kernel} == others
    assert any("fell" in remark.text for remark in found.found if isinstance(remark, Remark))


def test_buckets_that_do_not_add_up_are_left_out():
    text = EBPF.replace('le="0.000256"} 72', 'le="0.000256"} 172')
    assert text != EBPF
    found = read(text)
    assert found.exit_code == EXIT_INCOMPLETE
    assert list(only(found.frames()).histograms) == [Series("nvme0n1", "read", "total")]


def texts(found):
    return " ".join(remark.text for remark in found.found if isinstance(remark, Remark))


def of_host(host):
    return re.sub(r'device="(\w+)"', rf'device="\1",instance="{host}:9100"', NODE)


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        (NODE, "} 150\n", "} 1.5.0\n"),
        (NODE, "} 150\n", "} 1e999\n"),
        (EBPF, 'le="0.000256"} 72', 'le="abc"} 72'),
        (EBPF, 'le="0.000256"} 72', 'le="0.0.1"} 72'),
    ],
)
def test_a_damaged_number_is_named(text, good, bad):
    assert good in text
    found = read(text.replace(good, bad))
    assert found.exit_code == EXIT_INCOMPLETE
    assert "a sample " in texts(found)


def test_a_time_that_no_recording_can_have_is_named_and_left_out(tmp_path):
    source, out = tmp_path / "text", tmp_path / "out.latmon.jsonl.gz"
    late = EBPF.replace("1700000015000", "9999999999999999")
    source.write_text(late + "\n@us[sdz]:\n[1]   5 |@@|\n")
    assert import_command(source, out, ImportOptions()) == EXIT_INCOMPLETE
    all_frames = [frame for frame in open_recording(out) if isinstance(frame, Frame)]
    assert {series.device for frame in all_frames for series in frame.histograms} == {"us[sdz]"}
    assert "after the year 9999" in all_frames[0].health.notice


def reads(found):
    return [
        (flow.device, one.count) for frame in found.frames() for flow, one in frame.kernel.items() if flow[1] == "read"
    ]


def test_disks_of_two_hosts_stay_apart():
    parts = [of_host(host).split("2024-03-01 10:00:15\n") for host in ("db1", "db2")]
    apart = read(parts[0][0] + parts[1][0] + "2024-03-01 10:00:15\n" + parts[0][1] + parts[1][1])
    both = [(f"{disk} instance={host}:9100", n) for disk, n in (("nvme0n1", 2), ("sda", 50)) for host in ("db1", "db2")]
    assert sorted(reads(apart)) == both
    in_turn = read(f"{parts[0][0]}{parts[1][0]}2024-03-01 10:00:15\n{parts[0][1]}2024-03-01 10:00:20\n{parts[1][1]}")
    assert sorted(reads(in_turn)) == both
    assert in_turn.exit_code == EXIT_DONE


def test_device_and_op_overwrite_nothing():
    for text in (NODE, KSTAT):
        with pytest.raises(UsageError, match="2 devices"):
            read(text, ImportOptions(device="X"))
    one = only(frames(SMART, ImportOptions(device="X", op="read")))
    assert {flow: done.count for flow, done in one.kernel.items()} == {Flow("X", "read"): 400, Flow("X", "write"): 7}
    assert {flow.op for flow in only(frames(KSTAT, ImportOptions(op="flush"))).kernel} == {"read", "write"}
    buckets = only(frames(EBPF, ImportOptions(op="flush"))).histograms
    assert {(key.op, bucket.count) for key, bucket in buckets.items()} == {("read", 5), ("write", 48)}
    without = "\n".join(line.replace('operation="write",', "") for line in EBPF.splitlines() if "read" not in line)
    assert list(only(frames(without, ImportOptions(op="flush"))).histograms) == [Series("nvme0n1", "flush", "total")]


def test_smart_logs_of_two_disks_in_turn():
    first, second = (
        SMART.replace("nvme0", "{0}").replace("{\n", "{{\n").replace("}\n", "}}\n").split("2024-03-01 10:01:00")
    )
    second = "2024-03-01 10:01:00" + second
    disks = ("nvme0", "nvme1")
    found = read(
        "".join(
            part.replace("}}", "}").replace("{{", "{").replace("{0}", disk)
            for part in (first, second)
            for disk in disks
        )
    )
    assert sorted(reads(found)) == [(disk, 400) for disk in disks]
    with pytest.raises(RecordingError, match="nvme1, nvme0: a single smart log"):
        read(SMART.replace("nvme0", "nvme1", 1))


def test_smart_logs_without_a_device_are_named_and_not_compared():
    text = SMART.replace("/dev/nvme0", "the disk")
    with pytest.raises(RecordingError, match="names its device"):
        read(text)
    assert reads(read(text, ImportOptions(device="nvme7"))) == [("nvme7", 400)]


def test_names_that_are_cut_off_alike_stay_apart():
    long = "n" * 70
    actual_reads = reads(read(NODE.replace('"sda"', f'"{long}a"').replace('"nvme0n1"', f'"{long}b"')))
    assert sorted(count for _, count in actual_reads) == [2, 50]
    assert len({name for name, _ in actual_reads if len(name) <= 64}) == 2


def test_two_metrics_of_one_device_stay_apart():
    lines = (EBPF + EBPF.replace("bio_latency", "queue_latency")).splitlines()
    scrapes = (
        "\n".join(line for line in lines if line.endswith(stamp)) for stamp in ("1700000000000", "1700000015000")
    )
    frame = only(frames("\n".join(scrapes)))
    assert sorted(histogram.count for histogram in frame.histograms.values()) == [5, 5, 48, 48]


@pytest.mark.parametrize("scale", [1, 1_000_000])
def test_times_of_kstat_in_nanoseconds(scale):
    def ns(found):
        return f"{found[1]}{int(float(found[2]) * 1e9) // scale}"

    frame = only(frames(re.sub(r"((?:rlen|wlen)time\t)(\S+)", ns, KSTAT)))
    assert sum(one.time_us for flow, one in frame.kernel.items() if flow[0] == "sd0") == pytest.approx(
        10_250_000 / scale, abs=2
    )
    assert frame.dt_us == 10_000_000


def test_a_metric_with_labels_of_its_own_is_no_other_disk():
    info = 'node_disk_info{device="sda",instance="db1:9100",major="8",model="{x}",serial="1"} 1\n'
    one = of_host("db1")
    found = read((info + one).replace("2024-03-01 10:00:15\n", "2024-03-01 10:00:15\n" + info))
    assert sorted(reads(found)) == [("nvme0n1", 2), ("sda", 50)]
    assert found.exit_code == EXIT_DONE
