"""Single requests and calls (ioping, strace, fio's logs), fio's text, and histograms of programs without a device."""

import re

import pytest
from test_imports import GOLDEN, frames, only, read, remarks

from latmon.importers.registry import read_text
from latmon.importers.values import ImportOptions
from latmon.model.frame import Flow, Series
from latmon.support.errors import EXIT_INCOMPLETE, RecordingError


def golden(name):
    return (GOLDEN / name).read_text()


def sums(every):
    """Return the I/Os, the sum of times in us and the bytes of each flow."""
    total = {}
    for frame in every:
        for series, histogram in frame.histograms.items():
            row = total.setdefault((series.device, series.op), [0, 0])
            row[0] += histogram.count
            row[1] += histogram.sum or 0
    return total


def test_requests_of_ioping_have_their_printed_times_without_the_warmup():
    text = golden("ioping.txt")
    printed = [float(number) for number in re.findall(r"time=([\d.]+) us\n", text)]
    ((count, us),) = sums(frames(text)).values()
    assert count == len(printed) == 7
    assert us == sum(map(round, printed))


@pytest.mark.parametrize(
    ("line", "flow", "us", "size"),
    [
        ("4 KiB <<< /d (ext4 /dev/sda1 20 GiB): request=3 time=1.25 ms", Flow("sda1", "read"), 1250, 4096),
        ("4 KiB >>> /d (ext4 /dev/sda1 20 GiB): request=3 time=15.6 ms", Flow("sda1", "write"), 15_600, 4096),
        ("4096 bytes from /tmp (ext3 /dev/mapper/vg-a): request=1 time=0.2 ms", Flow("mapper/vg-a", "read"), 200, 4096),
        ("8.50 KiB <<< /dev/sdb (block device 1 TiB): request=9 time=1.02 s", Flow("sdb", "read"), 1_020_000, 8704),
        ("4 KiB <<< . (virtiofs share0 926.4 GiB): request=2 time=396.4 us", Flow("share0", "read"), 396, 4096),
        ("4 KiB from nfs:/x: request=1 time=3 ms", Flow("nfs:/x", "read"), 3000, 4096),
    ],
)
def test_a_request_of_any_version_of_ioping(line, flow, us, size):
    (frame,) = frames(f"{line}\n")
    assert {Flow(series.device, series.op): one.sum for series, one in frame.histograms.items()} == {flow: us}
    assert frame.seen[flow].bytes == size


def test_raw_lines_of_ioping_are_means_of_their_intervals():
    every = frames(golden("ioping_raw.txt"))
    done = [only(frame.kernel.values()) for frame in every]
    numbers = [[int(word) for word in line.split()] for line in golden("ioping_raw.txt").splitlines()]
    assert [(row.count, row.time_us) for row in done] == [(row[0], round(row[1] / 1000)) for row in numbers]
    assert [frame.dt_us for frame in every] == [row[9] // 1000 for row in numbers]


def test_ten_numbers_that_do_not_fit_each_other_are_no_line_of_ioping():
    with pytest.raises(RecordingError, match="none of its 1 lines"):
        read("1 2 3 4 5 6 7 8 9 10\n")


def test_a_rounded_number_of_requests_is_named():
    text = (
        "\n--- /d (ext4 /dev/vda 9 GiB) ioping statistics ---\n"
        "15.2 k requests completed in 940.0 ms, 59.3 MiB read, 16.1 k iops, 63.0 MiB/s\n"
        "generated 15.2 k requests in 1.00 s, 59.3 MiB, 15.2 k iops, 59.3 MiB/s\n"
        "min/avg/max/mdev = 37.4 us / 62.0 us / 4.12 ms / 70.1 us\n"
    )
    found = read(text)
    frame = only(found.frames())
    assert frame.kernel[Flow("vda", "read")].time_us == 940_000
    assert (frame.kernel[Flow("vda", "read")].count, frame.dt_us) == (15_200, 1_000_000)
    assert any("rounded by ioping" in one.text for one in remarks(found))


def test_calls_of_strace_are_those_of_files_by_their_paths():
    found = read(golden("strace.txt"))
    expected = {}
    begun = {}
    for line in golden("strace.txt").splitlines():
        pid, _, call = line.split(maxsplit=2)
        if (path := re.search(r"\d<(/var[^>]+)>", call)) is not None:
            begun[pid] = path[1]
        if (time := re.search(r"<(\d+\.\d{6})>$", call)) is not None and (path is not None or "resumed" in call):
            key = (begun[pid], "flush" if "fsync" in call else "write")
            expected.setdefault(key, [0, 0])
            expected[key][0] += 1
            expected[key][1] += round(float(time[1]) * 1e6)
    assert sums(found.frames()) == expected
    assert any("6 calls that read, write or sync no file are left out (write)" in one.text for one in remarks(found))
    assert not found.left


def test_calls_that_failed_or_have_no_end_are_named():
    text = (
        '10:00:00.100000 pread64(7</db/a>, "x"..., 4096, 0) = 4096 <0.000500>\n'
        '10:00:00.200000 pread64(7</db/a>, "x"..., 4096, 0) = -1 EIO (Input/output error) <0.700000>\n'
        "10:00:02.000000 fsync(7</db/a> <unfinished ...>\n"
    )
    found = read(text)
    assert sums(found.frames()) == {("/db/a", "read"): [1, 500]}
    sentences = " ".join(one.text for one in remarks(found))
    assert "1 calls that failed" in sentences
    assert "1 calls have no end" in sentences


def test_a_call_of_strace_is_in_the_second_in_which_it_ended():
    text = '10:00:00.900000 write(7, "x", 1) = 1 <0.300000>\n10:00:05.000000 fsync(7) = 0 <0.010000>\n'
    assert [frame.wall % 60 for frame in frames(text)] == [2, 6]


LAT = "1, 900000, 0, 4096, 0\n2, 800000, 1, 8192, 0\n1500, 2000000, 2, 512, 0\n"


def test_a_log_of_fio_is_in_ns_and_before_2_99_in_us():
    by_op = {op: us for (_, op), (_, us) in sums(frames(LAT)).items()}
    assert by_op == {"read": 900, "write": 800, "discard": 2000}
    old = re.sub(r", 0\n", "\n", LAT)
    assert {op: us for (_, op), (_, us) in sums(frames(old)).items()} == {op: 1000 * us for op, us in by_op.items()}
    assert [frame.wall for frame in frames(LAT)] == [1, 2]


def test_a_log_of_means_is_refused():
    with pytest.raises(RecordingError, match="run fio without --log_avg_msec"):
        read("1000, 900000, 0, 0, 0\n2000, 800000, 1, 0, 0\n")


@pytest.mark.parametrize("name", ["a_slat.1.log", "a_bw.1.log", "a_iops.2.log", "x_bw.log"])
def test_another_log_of_fio_is_known_by_its_name(name):
    with pytest.raises(RecordingError, match="no latencies: import the log of --write_lat_log"):
        read_text(LAT.encode(), name, ImportOptions())
    assert read_text(LAT.encode(), "a_clat.1.log", ImportOptions()).exit_code == 0


def test_a_bin_of_a_coarse_log_ends_where_its_last_bin_does():
    """1,856 bins of json+ in 116 groups of 16: the third one has the bins 32 to 47, one ns each."""
    counts = [0] * 116
    counts[2], counts[40] = 7, 3
    (frame,) = frames(f"1000, 0, 4096, {', '.join(map(str, counts))}\n")
    histogram = frame.histograms[Series("fio", "read", "total")]
    assert histogram.count == 10
    # bin 655 = 15 in group 10 of fio 3.33: 64 + 15 = 79 x 2^9 ns, and the last one of it is 40,959 ns
    assert only(dict(histogram.buckets[1:]).values()) == 3
    assert histogram.quantile(0.5) == 1
    assert histogram.quantile(0.9) == 44


def test_prints_of_one_run_of_fio_are_differences():
    every = frames(golden("fio_text.txt"))
    reads = [frame.kernel[Flow("mix", "read")] for frame in every]
    assert [row.count for row in reads] == [380, 399, 221]
    means = re.findall(r"lat \(usec\): min=.*avg=([\d.]+), stdev", golden("fio_text.txt"))
    whole_us = [float(mean) for mean in means[2::6]]
    assert abs(sum(row.time_us for row in reads) - whole_us[-1] * 1000) <= 2
    assert [frame.dt_us for frame in every] == [1_891_000, 2_001_000, 1_109_000]


OLD_FIO = """a: (groupid=0, jobs=1): err= 0: pid=2741: Mon Mar  2 10:11:12 2015
  read : io=40960KB, bw=8192.0KB/s, iops=2048, runt=  5000msec
    slat (usec): min=3, max=90, avg= 6.10, stdev= 2.10
    clat (usec): min=80, max=12044, avg=474.25, stdev=61.00
     lat (usec): min=90, max=12050, avg=480.50, stdev=61.20
  write: io=4096.0KB, bw=819.20KB/s, iops=204, runt=  5000msec
    clat (msec): min=1, max=40, avg= 2.50, stdev= 1.00
     issued    : total=r=10240/w=1024/d=0, short=r=0/w=0/d=0
"""


def test_the_text_of_old_fio_has_the_same_numbers():
    (frame,) = frames(OLD_FIO)
    read_done, write_done = frame.kernel[Flow("a", "read")], frame.kernel[Flow("a", "write")]
    assert (read_done.count, read_done.bytes, read_done.time_us) == (10_240, 41_943_040, 4_920_320)
    assert (write_done.count, write_done.bytes, write_done.time_us) == (1024, 4_194_304, 2_560_000)
    assert (frame.wall, frame.dt_us) == (1_425_291_072, 5_000_000)


def test_a_job_of_fio_without_its_number_of_ios_is_named():
    found = read(OLD_FIO + re.sub(r".*issued.*\n", "", OLD_FIO.replace("a: (", "b: (")))
    assert found.exit_code == EXIT_INCOMPLETE
    assert any("b: no line `issued rwts`" in one.text for one in remarks(found))


def test_etcds_own_writes_are_flushes_without_a_device():
    (frame,) = frames(golden("etcd.txt"))
    assert {(series.device, series.op): one.count for series, one in frame.histograms.items()} == {
        ("etcd_disk_wal_fsync", "flush"): 167,
        ("etcd_disk_backend_commit", "flush"): 75,
    }
    assert frame.dt_us == 15_000_000


REFUSED = {
    "% time     seconds  usecs/call     calls    errors syscall\n 12.7 0.000235 11 21 mmap\n": "run strace -T",
    "osd  commit_latency(ms)  apply_latency(ms)\n  0                  12                 12\n": "of ceph's OSDs",
    "T: 0 ( 3431) P:80 I:10000 C: 100000 Min:      5 Act:   10 Avg:   14 Max:    39242\n": "cyclictest -q -h 1000",
    "DSK |          sda | busy     90% | read     112 | write   1042 | avio 7.20 ms |\n": "busy time by I/Os",
    "--dsk/sda-- --io/total-\n read  writ| read  writ\n 10k 20k| 1.0 2.0\n": "rates have no latency: run iostat -x",
    '[{\n  "timestamp": 1796100796.199087,\n  "io": {"time": 156532}\n}]\n': "run ioping without -J",
    "# RTLA osnoise histogram\n# Time unit is microseconds (us)\n": "noise of CPUs and no latency",
}


@pytest.mark.parametrize("text", REFUSED)
def test_output_without_latencies_is_refused_for_that_reason(text):
    with pytest.raises(RecordingError, match=re.escape(REFUSED[text])):
        read(text)


def test_old_ioping_prints_the_length_of_its_run_and_no_sum_of_requests():
    text = (
        "--- /dev/dm-0 (block device 5.51 GiB) ioping statistics ---\n"
        "4 requests completed in 3.05 s, 75 iops, 302.0 KiB/s\n"
        "min/avg/max/mdev = 7.72 ms / 13.2 ms / 20.1 ms / 4.77 ms\n"
    )
    (frame,) = frames(text)
    done = frame.kernel[Flow("dm-0", "other")]
    assert (done.count, done.time_us, frame.dt_us) == (4, 52_800, 3_050_000)


def test_the_oldest_form_of_the_mean_of_ioping():
    text = (
        "--- /dev/sda (device 232.9 Gb) ioping statistics ---\n"
        "186 requests completed in 3004.6 ms, 62 iops, 0.2 MiB/s\n"
        "min/avg/max/mdev = 6.4/16.0/26.8/4.7 ms\n"
    )
    (frame,) = frames(text)
    done = frame.kernel[Flow("sda", "other")]
    assert (done.count, done.time_us, frame.dt_us) == (186, 2_976_000, 3_004_600)


def test_requests_that_ioping_names_fast_or_slow_are_counted():
    marks = ("", " (fast)", " (slow)", " (too fast)", " (warmup)", " (too slow)")
    lines = (f"4 KiB <<< . (ext4 /dev/sda1): request=2 time=2.00 ms{mark}\n" for mark in marks)
    assert sums(frames("".join(lines))) == {("sda1", "read"): [3, 6000]}


def test_a_maximum_of_old_fio_in_thousands_keeps_its_mean():
    (frame,) = frames(OLD_FIO.replace("max=12050", "max=1203.4K"))
    assert frame.kernel[Flow("a", "read")].time_us == 4_920_320


def test_a_part_of_fios_text_and_strace_without_times_are_named():
    with pytest.raises(RecordingError, match="a part of fio's report, without the line of its job"):
        read("\n".join(OLD_FIO.splitlines()[1:6]))
    with pytest.raises(RecordingError, match="run strace -T"):
        read('155715 write(5, "z"..., 4096) = 4096\n155715 fsync(5 <unfinished ...>\n')
