"""esxtop's batch CSV, and the vmkernel's warnings of slow devices."""

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Completed, Flow, Frame, Outstanding
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError, UsageError

ESXTOP = (GOLDEN / "esxtop.txt").read_text()
WARNING = (
    "2016-04-07T12:13:04.123Z cpu3:32877)WARNING: ScsiDeviceIO: 1490: Device naa.600a performance has deteriorated. "
    "I/O latency increased from average value of 1832 microseconds to 194030 microseconds.\n"
)
BETTER = (
    "2016-04-07T12:14:04Z cpu3:32877)ScsiDeviceIO: 1490: Device naa.600a performance has improved. "
    "I/O latency reduced from 194030 microseconds to 3521 microseconds.\n"
)


def test_kernel_and_device_of_esxtop_stay_apart():
    found = read(ESXTOP)
    first, second = found.frames()
    assert second.dt_us == 5_000_000
    assert second.kernel[Flow("naa.600a", "read")] == Completed(1000, 5 * 1024 * 1024, 520_000, 20_000)
    assert first.kernel[Flow("naa.600b", "write")].time_us == 30_000 * 5
    assert first.outstanding["naa.600a"] == Outstanding(3, 1)
    guest = second.kernel[Flow("db1:scsi0:0", "read")]
    assert (guest.count, guest.time_us, guest.queue_us) == (900, 36_000_000, None)
    assert "columns of adapters, paths and worlds have the same I/Os again" in first.health.notice
    assert {flow.device for flow in first.kernel} == {"naa.600a", "naa.600b", "db1:scsi0:0"}
    assert found.exit_code == EXIT_DONE


@pytest.mark.parametrize(
    ("good", "bad"), [('"30.00","0.00","30.00"', '"30.00","0.00","3x.00"'), ('"900",', ""), ("10:00:05", "10:00:x5")]
)
def test_a_damaged_sample_is_named(good, bad):
    assert read(ESXTOP.replace(good, bad, 1)).exit_code == EXIT_INCOMPLETE


@pytest.mark.parametrize("bad", ["-3.00", "nan", "-nan", "1.#J"])
@pytest.mark.parametrize(
    ("counter", "count", "time_us", "outstanding"),
    [
        ("Reads/sec", None, None, Outstanding(2, 1)),
        ("MBytes Read/sec", None, None, Outstanding(2, 1)),
        ("Average Guest MilliSec/Command", 1000, None, Outstanding(2, 1)),
        ("Active Commands", 1000, 520_000, None),
        ("Queued Commands", 1000, 520_000, Outstanding(2, None)),
    ],
)
def test_a_value_that_is_no_number_is_left_out_alone(bad, counter, count, time_us, outstanding):
    head, first, second = ESXTOP.splitlines()
    names, cells = head.split(","), second.split(",")
    cells[names.index(f'"\\\\esx\\Physical Disk SCSI Device(naa.600a)\\{counter}"')] = f'"{bad}"'
    if counter != "Queued Commands":
        cells[names.index('"\\\\esx\\Physical Disk SCSI Device(naa.600a)\\Queued Commands"')] = '"1.00"'
    found = read("\n".join((head, first, ",".join(cells), "")))
    assert found.exit_code == EXIT_INCOMPLETE
    assert only([remark.text for remark in found.found if isinstance(remark, Remark) and remark.count]) == (
        f"1 value left out, no number of 0 or more: naa.600a {counter} '{bad}'"
    )
    frame = list(found.frames())[1]
    done = frame.kernel.get(Flow("naa.600a", "read"))
    assert (done and done.count, done and done.time_us) == (count, time_us)
    assert frame.outstanding.get("naa.600a") == outstanding
    assert frame.kernel[Flow("naa.600b", "read")] == list(read(ESXTOP).frames())[1].kernel[Flow("naa.600b", "read")]


def test_a_time_that_falls_begins_a_run_and_a_second_sample_of_a_time_is_left_out():
    head, first, second = ESXTOP.splitlines()
    earlier = [one.replace("10:00:", "09:00:") for one in (first, second)]
    found = read("\n".join((head, first, second, *earlier, "")))
    all_frames = list(found.frames())
    assert [frame.dt_us for frame in all_frames] == [1_000_000, 5_000_000] * 2
    assert [mark.text for mark in all_frames[0].marks] == ["line 4: another run of esxtop begins, its time falls"]
    assert "line 4: the first sample of the run is 1 s long (--interval)" in all_frames[0].health.notice
    assert found.exit_code == EXIT_DONE
    twice = read(f"{head}\n{first}\n{second}\n{second}\n")
    assert [frame.kernel for frame in twice.frames()] == [frame.kernel for frame in frames(ESXTOP)]
    assert twice.exit_code == EXIT_INCOMPLETE


def test_a_line_that_is_too_long_is_named(tmp_path):
    (tmp_path / "esxtop.csv").write_text(ESXTOP + '"03/01/2024 10:00:10","' + "9" * (8 << 20) + '"\n')
    with pytest.raises(RecordingError, match="line 4 is longer than 8 MiB"):
        import_command(tmp_path / "esxtop.csv", tmp_path / "out", ImportOptions())


def test_warnings_of_the_vmkernel_are_marks_and_no_ios():
    first, second = frames(WARNING + BETTER)
    assert not first.histograms
    assert not first.kernel
    assert only(first.marks).text == (
        "vmkernel: naa.600a has deteriorated: its latency went from 1,832 us on average to 194,030 us"
    )
    assert only(second.marks).text == "vmkernel: naa.600a has improved: its latency went from 194,030 us to 3,521 us"
    assert second.wall - first.wall == pytest.approx(59.877)


def test_a_warning_without_a_time_is_named():
    found = read(WARNING.replace("2016-04-07T12:13:04.123Z", "2016-04-0x"))
    assert any("without a time" in remark.text for remark in found.found if isinstance(remark, Remark))


def test_device_and_op_overwrite_nothing():
    with pytest.raises(UsageError, match="3 devices"):
        read(ESXTOP, ImportOptions(device="X"))
    assert [frame.kernel for frame in frames(ESXTOP, ImportOptions(op="read"))] == [
        frame.kernel for frame in frames(ESXTOP)
    ]


def test_devices_whose_long_names_begin_alike_stay_apart():
    long = "naa." + "6" * 70
    first, _ = frames(ESXTOP.replace("naa.600", long))
    assert sorted(
        done.count for flow, done in first.kernel.items() if flow.op == "read" and "naa" in flow.device
    ) == sorted(
        done.count for flow, done in frames(ESXTOP)[0].kernel.items() if flow.op == "read" and "naa" in flow.device
    )


def test_volumes_of_nfs_are_devices_and_the_rows_of_a_whole_machine_are_not():
    first, second, third = frames((GOLDEN / "esxtop_nfs.txt").read_text())
    names = {flow.device for flow in second.kernel}
    assert len(names) == 3
    assert "store 1" in names
    reads = second.kernel[Flow("store 1", "read")]
    assert (reads.count, reads.time_us) == (3 * 352, 3 * 352 * 171_400)
    assert (first.outstanding["store 1"], third.dt_us) == (Outstanding(4, 0), 4_000_000)
    disks = [done.count for flow, done in second.kernel.items() if flow.device.endswith((":scsi0:0", ":scsi0:1"))]
    assert sum(disks) == 3 * 355


@pytest.mark.slow
def test_a_large_file_is_read_without_the_columns_of_other_things(tmp_path, capsys):
    """A host's batch file has tens of thousands of columns, in lines longer than those of other tools."""
    head, *rows = (GOLDEN / "esxtop_nfs.txt").read_text().splitlines()
    more = "".join(f',"\\\\esx2.example.com\\Group Cpu({n}:vm)\\% Used"' for n in range(40_000))
    path = ',"\\\\esx2.example.com\\Physical Disk Path(vmhba1)\\Reads/sec"'
    values = ',"1.00"' * 40_001
    text = "\n".join([head + more + path, *(row + values for row in rows), ""]) + '"12/11/2025 20:20:17","x"\n'
    text += "".join(f"{row.replace('2025', '2026')}{values}\n" for row in rows) * 30
    (tmp_path / "esxtop.csv").write_text(text)
    assert (tmp_path / "esxtop.csv").stat().st_size > 24 << 20
    code = import_command(tmp_path / "esxtop.csv", tmp_path / "out", ImportOptions())
    all_frames = [frame for frame in open_recording(tmp_path / "out") if isinstance(frame, Frame)]
    small = frames("\n".join([head, *rows]))
    assert [frame.kernel for frame in all_frames[: len(small)]] == [one.kernel for one in small]
    assert code == EXIT_INCOMPLETE
    shown = capsys.readouterr().err
    assert "line 5: a sample of esxtop can't be read" in shown
    assert "columns of adapters, paths and worlds have the same I/Os again: left out" in shown


def test_a_host_has_a_thousand_disks_with_many_counters(tmp_path):
    """The columns that are read are longer than 1 MiB, the limit of other tools' lines; a third is read."""
    read = [f"{one}/sec" for one in ("Reads", "Writes", "MBytes Read", "MBytes Written")]
    read += [f"Average {layer} MilliSec/{one}" for layer in ("Guest", "Kernel") for one in ("Command", "Read", "Write")]
    other = [f"Failed {word} Commands/sec" for word in "abcdefghijklmnopqrstuvwx"]
    disk = "\\\\esx2.example.com\\Physical Disk SCSI Device(naa.{:032x})\\{}"
    head = ["(PDH-CSV 4.0) (UTC)(0)", *(disk.format(n, one) for n in range(1024) for one in (*read, *other))]
    rows = (head, ["12/11/2025 20:20:17", *["2.00"] * (len(head) - 1)])
    (tmp_path / "esxtop.csv").write_text("".join(",".join(f'"{one}"' for one in row) + "\n" for row in rows))
    assert import_command(tmp_path / "esxtop.csv", tmp_path / "out", ImportOptions()) == EXIT_DONE
    (frame,) = (frame for frame in open_recording(tmp_path / "out") if isinstance(frame, Frame))
    assert [done.count for done in frame.kernel.values()] == [2] * 2048
