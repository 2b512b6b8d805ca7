"""Rates and means of other tools than iostat: sums of times and of bytes by awk, intervals, and what is refused."""

import re
import subprocess

import pytest
from test_imports import GOLDEN, frames, only, read, remarks

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions
from latmon.model.frame import Flow
from latmon.support.errors import EXIT_INCOMPLETE, RecordingError

SUMS = {
    "sadf_d.txt": (
        'BEGIN { FS = ";" } !/^#/ { us += int($11 * 1000 * int($5 + .5) + .5); kib += $6 + $7 + $8 }',
        "sar's await and sizes",
    ),
    "pmrep_iostat.txt": (
        (
            '$2 == "vda" && $3 != "N/A" { for (at = 3; at <= 15; at += 6) kib += $(at + 1) }'
            '$2 == "vda" && $3 != "N/A" { us += $7 * 1000 * int($3 + .5) + $13 * 1000 * int($9 + .5) }'
            '$2 == "vda" && $3 != "N/A" { us += $19 * 1000 * int($15 + .5) + $22 * 1000 * int($21 + .5) }'
        ),
        "await of each op",
    ),
    "freebsd_iostat_x.txt": (
        "/^a?da/ && seen[$1]++ { us += ($2 * $6 + $3 * $7) * 5000; kib += ($4 + $5) * 5 }",
        "ms/r, ms/w",
    ),
    "gstat.txt": (
        (
            "/^dT/ { s = $2 + 0 } /[|]/ { kib += ($4 + $7) * s }"
            "/[|]/ { us += $5 * 1000 * int($3 * s + .5) + $8 * 1000 * int($6 * s + .5) }"
        ),
        "kBps belongs to the rate before it",
    ),
    "gstat_csv.txt": (
        (
            'BEGIN { FS = ","; s = 1.012 } NR > 1 { kib += ($6 + $9) * s }'
            "NR > 1 { us += $7 * 1000 * int($5 * s + .5) + $10 * 1000 * int($8 * s + .5) }"
        ),
        "columns by name",
    ),
    "iostat_macos.txt": ("/^ *[0-9]/ && row++ { kib += ($3 + $6) * 2 * 1024 }", "no times"),
    "aix_iostat_d.txt": (
        (
            "function ms(cell) { return cell ~ /S$/ ? cell * 1000 : cell + 0 }"
            "function k(cell) { return cell ~ /M$/ ? cell * 1024 : cell ~ /K$/ ? cell + 0 : cell / 1024 }"
            "/xfer/ { getline; kib += (k($4) + k($5)) * 5 }"
            "/ [rw]ps/ { getline; ios[++ways] = $1 * 5; each[ways] = ms($2) }"
            "/avgtime/ { getline; for (; ways; ways--) us += ios[ways] * (each[ways] + $1) * 1000 }"
        ),
        "the wait in the queue is part of the whole time",
    ),
    "nfsiostat.txt": (
        "/mounted on/ { report++ } /avg RTT/ { getline; if (report > 1) { us += $7 * 1000 * $1; kib += $2 } }",
        "avg exe is the whole time of a call",
    ),
    "atop_dsk.txt": ("/^DSK/ && row++ { kib += ($10 + $12 + $14) / 2 }", "no times"),
    "biotop.txt": ("/ [RW] .*xvd/ { us += $NF * 1000 * $(NF - 2); kib += $(NF - 1) }", "AVGms"),
}
"""Golden -> awk program whose `us` and `kib` are the sums of the times and of the bytes, and what it shows."""


def golden(name):
    return (GOLDEN / name).read_text()


def sums(name):
    """Return the sums of an awk program."""
    program = f'{SUMS[name][0]} END {{ printf "%.0f %.0f\\n", us, kib * 1024 }}'
    done = subprocess.run(["awk", program], input=golden(name), capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_times_and_of_bytes_are_those_of_awk(name):
    done = [done for frame in frames(golden(name)) for done in frame.kernel.values()]
    us, size = sums(name)
    assert abs(sum(row.time_us or 0 for row in done) - us) <= len(done)
    assert abs(sum(row.bytes for row in done) - size) <= 12 * len(done)
    assert us + size > 0
    if us == 0:
        assert {row.time_us for row in done} == {None}


def test_a_wait_above_the_driver_is_the_queue_of_aix():
    first = frames(golden("aix_iostat_d.txt"))[0]
    done = first.kernel[Flow("hdisk4", "read")]
    assert (done.count, done.time_us, done.queue_us) == (3200, 3200 * 22_300, 3200 * 12_500)
    assert first.outstanding["hdisk4"].in_driver == 17


def test_the_length_of_an_interval_is_what_the_tool_prints():
    assert [frame.dt_us for frame in frames(golden("gstat.txt"))] == [1_064_000, 1_002_000]
    ten_minutes = re.sub(r"(?m)^vm;1;", "vm;600;", golden("sadf_d.txt"))
    assert {frame.dt_us for frame in frames(ten_minutes)} == {600_000_000}
    assert [frame.dt_us for frame in frames(golden("freebsd_iostat_x.txt"))] == [5_000_000] * 2


@pytest.mark.parametrize(
    ("command", "seconds"),
    [("iostat -x -w 5 -c 3", 5), ("iostat -xw5", 5), ("iostat -x -c 3 -w 10 ada0 da1", 10), ("iostat -x -c 3", 1)],
)
def test_the_interval_of_freebsd_is_behind_w_and_not_behind_c(command, seconds):
    text = re.sub("iostat -x.*", command, golden("freebsd_iostat_x.txt"))
    assert {frame.dt_us for frame in frames(text)} == {seconds * 1_000_000}


def test_a_restart_in_sadf_begins_another_run():
    lines = golden("sadf_d.txt").splitlines(keepends=True)
    restart = "vm;-1;2026-12-01 05:05:01 UTC;LINUX-RESTART\t(2 CPU)\n"
    comment = "vm;-1;2026-12-01 05:05:01 UTC;COM a comment; with a semicolon\n"
    found = read("".join((*lines[:5], restart, comment, *lines[5:])))
    assert [bool(frame.marks) for frame in found.frames()] == [False, False, True, False]
    assert not found.left


def test_sizes_that_sadf_prints_in_two_units_are_taken_once():
    by_json, by_text = frames(golden("sadf.json")), frames(golden("sadf_d.txt"))
    assert [frame.kernel for frame in by_json] == [frame.kernel for frame in by_text]
    assert [frame.wall for frame in by_json] == [frame.wall for frame in by_text]


def test_a_second_host_in_sadf_is_refused():
    text = golden("sadf_d.txt") + golden("sadf_d.txt").replace("vm;", "db2;")
    with pytest.raises(RecordingError, match=r"line \d+: output of another host begins \(db2, before it vm\)"):
        frames(text)


def test_an_average_since_the_boot_or_the_mount_is_no_interval():
    assert any("since the boot and left out" in one.text for one in remarks(read(golden("atop_dsk.txt"))))
    assert any("since the mount and left out" in one.text for one in remarks(read(golden("nfsiostat.txt"))))
    single = golden("nfsiostat.txt").partition("\nfiler1")[2].partition("\nfiler1")[0]
    found = read(f"filer1{single}")
    assert any("a single report is an average since the mount" in one.text for one in remarks(found))
    with pytest.raises(RecordingError, match="since the boot"):
        read("".join(golden("atop_dsk.txt").splitlines(keepends=True)[:3]))


def test_a_sample_of_atop_without_a_reset_before_it_is_known_by_its_length():
    text = golden("atop_dsk.txt").replace("RESET\n", "")
    assert [frame.kernel for frame in frames(text)] == [frame.kernel for frame in frames(golden("atop_dsk.txt"))]


def test_discards_that_a_kernel_lacks_are_none():
    line = "DSK db1 1700000000 2023/11/14 22:13:20 10 sda 900 20 160 30 4000 -1 0 3 1.20\n"
    (frame,) = frames(line)
    assert {flow.op: (done.count, done.bytes) for flow, done in frame.kernel.items()} == {
        "read": (20, 81_920),
        "write": (30, 2_048_000),
    }
    assert frame.outstanding["sda"].in_driver == 3
    assert frame.dt_us == 10_000_000


def test_a_row_of_biotop_without_a_command_is_one():
    frame = frames(golden("biotop.txt"))[0]
    assert frame.kernel[Flow("xvda1", "read")].count == 361 + 1628 + 2


def test_requests_without_data_are_named_as_left_out():
    text = (
        "dT: 1.000s  w: 1.000s\n"
        " L(q)  ops/s    r/s     kB   kBps   ms/r    w/s     kB   kBps   ms/w    d/s     kB   kBps   ms/d"
        "    o/s   ms/o   %busy Name\n"
        "    1     17      4     32    128    2.5      6     16     96    1.5      2   1024   2048    0.4"
        "      5    7.0    9.9| da3\n"
    )
    found = read(text)
    done = only(found.frames()).kernel
    assert {flow.op: (row.count, row.bytes, row.time_us) for flow, row in done.items()} == {
        "read": (4, 131_072, 10_000),
        "write": (6, 98_304, 9_000),
        "discard": (2, 2_097_152, 800),
    }
    assert any("o/s, I/Os without data such as flushes, are left out" in one.text for one in remarks(found))


BINARY = {
    "sar": (b"\x96\xd5\x75\x21\0\0", "is a binary file of sar: import what `sadf -d text -- -d` prints"),
    "atop": (b"\xef\xbe\xed\xfe\0\0", "a binary file of atop: import what `atop -r text -P DSK` prints"),
    "pcp": (b"\0\0\0\x84\x50\x05\x26\x02\0", "an archive of PCP: import what `pmrep -a text :iostat-dktx` prints"),
    "xz": (b"\xfd7zXZ\0\0", "compressed by xz: import what `xz -dc text` prints"),
    "other": (b"\x7fELF\0", "is not text: it contains NUL bytes"),
}


@pytest.mark.parametrize("kind", BINARY)
def test_a_binary_file_is_refused_with_the_command_that_makes_text_of_it(tmp_path, kind):
    raw, sentence = BINARY[kind]
    (tmp_path / "text").write_bytes(raw * 3)
    with pytest.raises(RecordingError, match=re.escape(sentence)):
        import_command(tmp_path / "text", tmp_path / "out", ImportOptions())


REFUSED = {
    "# hostname;interval;timestamp;CPU;%user\nvm;1;2026-12-01 04:52:33 UTC;-1;80.30\n": "run sadf -d FILE -- -d",
    "vm;600;2026-12-01 04:50:01 UTC;vda;106.00;860.00;0.00\n": "copy the head, too",
    "vm\t600\t2026-12-01 04:50:01 UTC\tvda\ttps\t106.00\n": "lines of sadf -p: run sadf -d",
    '<?xml version="1.0"?>\n<!DOCTYPE sysstat PUBLIC "DTD">\n<sysstat>\n': "line 2: XML of sysstat",
}


@pytest.mark.parametrize("text", REFUSED)
def test_other_output_of_sadf_is_refused_with_the_command_to_run(text):
    with pytest.raises(RecordingError, match=re.escape(REFUSED[text])):
        read(text)


DAMAGED = {
    "sadf_d.txt": ("106.00", "1x6.00"),
    "pmrep_iostat.txt": ("302.99", "302.9x"),
    "freebsd_iostat_x.txt": ("  120 ", "  1x0 "),
    "gstat.txt": ("   3280", "   32x0"),
    "gstat_csv.txt": ("6016", "60x6"),
    "iostat_macos.txt": ("512", "5x2"),
    "aix_iostat_d.txt": ("640.0", "64x.0"),
    "aix_iostat_ld.txt": ("160.0", "16x.0"),
    "nfsiostat.txt": ("1280.000", "128x.000"),
    "atop_dsk.txt": (" 2026/12/01 05:05:00 1 ", " 2026/12/01 05:05:00 x "),
    "biotop.txt": ("1628", "16x8"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_row_that_can_not_be_read_is_named(tmp_path, name):
    text, (printed, damaged) = golden(name), DAMAGED[name]
    assert printed in text
    (tmp_path / "text").write_text(text.replace(printed, damaged, 1))
    assert import_command(tmp_path / "text", tmp_path / "out", ImportOptions()) == EXIT_INCOMPLETE


def test_rows_of_pmrep_keep_their_times_below_those_of_ts():
    lines = golden("pmrep_iostat.txt").splitlines()
    stamps = [f"2026-12-01T05:04:{59 if at < 2 else 58 + at}Z " for at in range(len(lines))]
    stamps = [stamp.replace("05:04:60", "05:05:00").replace("05:04:61", "05:05:01") for stamp in stamps]
    stamps = [stamp.replace("05:04:62", "05:05:02").replace("05:04:63", "05:05:03") for stamp in stamps]
    every = frames("".join(f"{stamp}{line}\n" for stamp, line in zip(stamps, lines, strict=True)))
    plain = frames(golden("pmrep_iostat.txt"))
    assert [frame.kernel for frame in every] == [frame.kernel for frame in plain]
    assert [frame.dt_us for frame in every] == [frame.dt_us for frame in plain]
    assert [frame.wall % 86_400 for frame in every] == [frame.wall % 86_400 for frame in plain]
    assert every[0].wall > 1_700_000_000


def test_a_fence_of_markdown_right_below_a_table_is_no_row():
    for name in ("gstat.txt", "freebsd_iostat_x.txt", "iostat_x.txt", "biotop.txt", "bcc_biolatency.txt"):
        found = read(f"```console\n{golden(name).rstrip()}\n```\nprose\n")
        assert found.exit_code == read(golden(name)).exit_code, name


def test_prose_below_biotop_is_no_row():
    found = read(golden("biotop.txt") + "\nBy default the screen shows the top 20 disk consumers.\n")
    assert found.exit_code == 0


def test_times_of_freebsd_with_a_point_are_not_said_to_be_rounded():
    text = golden("freebsd_iostat_x.txt")
    assert any("whole ms" in one.text for one in remarks(read(text)))
    assert not any("whole ms" in one.text for one in remarks(read(text.replace("   4    21 ", " 4.2  21.5 "))))


def test_times_of_old_sadf_have_dashes():
    text = (
        "# hostname;interval;timestamp;DEV;tps;rd_sec/s;wr_sec/s;avgrq-sz;avgqu-sz;await;svctm;%util\n"
        "mail1;599;2013-09-19 00-45-01;dev8-0;13,89;0,28;766,76;55,24;0,21;15,44;1,59;2,21\n"
    )
    (frame,) = frames(text)
    done = frame.kernel[Flow("dev8-0", "other")]
    assert (frame.wall, frame.dt_us) == (1_379_551_501, 599_000_000)
    assert (done.count, done.time_us) == (round(13.89 * 599), round(13.89 * 599) * 15_440)
    assert done.bytes == round((0.28 + 766.76) * 512 * 599)


def test_columns_of_the_cpu_behind_those_of_freebsd_are_no_part_of_a_row():
    text = (
        "                        extended device statistics             cpu \n"
        "device     r/s   w/s    kr/s    kw/s qlen svc_t  %b  us ni sy in id \n"
        "ada0       3.3  19.3   237.2   749.4    0   4.2   7   3  0  2  0 95\n"
        "ada1      10.0  30.0   100.0   300.0    2   5.0   7 \n"
    )
    found = read(text)
    (frame,) = found.frames()
    assert found.exit_code == 0
    assert {(flow.device, flow.op): done.count for flow, done in frame.kernel.items()} == {
        ("ada0", "read"): 3,
        ("ada0", "write"): 19,
        ("ada1", "read"): 10,
        ("ada1", "write"): 30,
    }
    assert frame.outstanding["ada1"].in_driver == 2
