"""iostat's columns and units, and --device where a text has several disks."""

import pytest

from latmon.importers.registry import read_text
from latmon.importers.values import ImportOptions
from latmon.model.frame import Flow
from latmon.support.errors import UsageError

NOTHING = ImportOptions()
LINUX = "Device            r/s     {0}   rrqm/s  %rrqm r_await rareq-sz     w/s     {1} w_await  aqu-sz  %util\n"
ROW = "{name}             100.00      2.00     0.00   0.00    0.20     4.00   50.00      1.00    1.00    0.02   1.00\n"
SOLARIS = (
    "                    extended device statistics\n"
    "    r/s    w/s   {0}   {1} wait actv wsvc_t asvc_t  %w  %b device\n"
)
SOLARIS_ROW = "  100.0   50.0    2.0    1.0  0.0  1.0    0.0   10.0   0   9 c0t0d0\n"
PLAIN = "                 extended device statistics\ndevice    r/s    w/s   {0}   {1} wait actv  svc_t  %w  %b\n"
PLAIN_ROW = "sd0     100.0   50.0    2.0    1.0  0.0  1.0   10.0   0   9\n"
VSCSI = (
    "Histogram: outstanding IOs when a new IO is issued,virtual machine worldGroupID,1,"
    "virtual disk handleID,{},(scsi0:{})\n"
    "min,1\nmax,1\nmean,1\ncount,{}\nFrequency,Histogram Bucket Limit\n{},1\n"
)


def read(text, asked=NOTHING):
    return read_text(text.encode(), "x", asked)


def frames(text, asked=NOTHING):
    return list(read(text, asked).frames())


@pytest.mark.parametrize(
    ("columns", "unit"), [(("rkB/s", "wkB/s"), 1024), (("rMB/s", "wMB/s"), 1 << 20), (("rsec/s", "wsec/s"), 512)]
)
def test_bytes_of_linux_in_the_unit_of_the_head(columns, unit):
    frame = frames(LINUX.format(*columns) + ROW.format(name="sda"))[0]
    assert frame.kernel[Flow("sda", "read")].bytes == 2 * unit
    assert frame.kernel[Flow("sda", "write")].bytes == unit


@pytest.mark.parametrize("layout", [SOLARIS + SOLARIS_ROW, PLAIN + PLAIN_ROW])
@pytest.mark.parametrize(("columns", "unit"), [(("kr/s", "kw/s"), 1024), (("Mr/s", "Mw/s"), 1 << 20)])
def test_bytes_and_times_of_solaris_in_the_unit_of_the_head(layout, columns, unit):
    (frame,) = frames(layout.format(*columns))
    read_, write = (frame.kernel[key] for key in sorted(frame.kernel))
    assert (read_.count, read_.bytes, read_.time_us) == (100, 2 * unit, 1_000_000)
    assert (write.count, write.bytes) == (50, unit)


def test_a_column_of_bytes_that_is_not_known_is_named():
    every = frames(LINUX.format("rPB/s", "wPB/s") + ROW.format(name="sda"))
    assert "no column of bytes" in every[0].health.notice
    assert "rPB/s" in every[0].health.notice
    assert "rPB/s" not in frames(LINUX.format("rMB/s", "wMB/s") + ROW.format(name="sda"))[0].health.notice


def test_a_report_of_idle_disks_without_rows_is_a_window():
    head = SOLARIS.format("kr/s", "kw/s")
    every = frames(head + SOLARIS_ROW + head + SOLARIS_ROW + head + head + SOLARIS_ROW)
    assert [bool(one.kernel) for one in every] == [True, False, True]
    assert every[1].outstanding["c0t0d0"].in_driver == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (LINUX.format("rkB/s", "wkB/s") + ROW.format(name="sda") + ROW.format(name="sdb"), "sda, sdb"),
        ("sd2 1 sd0 70\n", "sd2, sd0"),
        (VSCSI.format(1, "0", 5, 5) + VSCSI.format(2, "1", 7, 7), "scsi0:0, scsi0:1"),
    ],
)
def test_two_disks_never_become_one_by_overwriting(text, names):
    with pytest.raises(UsageError, match=names):
        read(text, ImportOptions(device="X"))
    assert read(text)


def test_one_disk_may_be_renamed():
    assert frames(LINUX.format("rkB/s", "wkB/s") + ROW.format(name="sda"), ImportOptions(device="X"))[0].kernel[
        Flow("X", "read")
    ]


def test_a_second_reading_of_the_same_is_a_window_of_its_own():
    twice = frames(VSCSI.format(1, "0", 5, 5) + VSCSI.format(1, "0", 7, 7))
    assert [sum(one.depths["scsi0:0"].at_issue.values()) for one in twice] == [5, 7]
    assert [one.depths["sd2"].most for one in frames("sd2 1\nsd2 9\n")] == [1, 9]
