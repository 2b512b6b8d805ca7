"""esxtop's batch CSV, and the vmkernel's warnings of slow devices."""

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.importers.values import ImportOptions, Remark
from latmon.model.frame import Completed, Flow, Outstanding
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, UsageError

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
    assert "columns of adapters, paths and worlds: 1" in first.health.notice
    assert {flow.device for flow in first.kernel} == {"naa.600a", "naa.600b", "db1:scsi0:0"}
    assert found.exit_code == EXIT_DONE


@pytest.mark.parametrize(("good", "bad"), [('"30.00"', '"3x.00"'), ('"900",', ""), ("10:00:05", "10:00:x5")])
def test_a_damaged_sample_is_named(good, bad):
    assert read(ESXTOP.replace(good, bad, 1)).exit_code == EXIT_INCOMPLETE


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
    assert any("without a time" in one.text for one in found.found if isinstance(one, Remark))


def test_device_and_op_overwrite_nothing():
    with pytest.raises(UsageError, match="3 devices"):
        read(ESXTOP, ImportOptions(device="X"))
    assert [one.kernel for one in frames(ESXTOP, ImportOptions(op="read"))] == [one.kernel for one in frames(ESXTOP)]


def test_devices_whose_long_names_begin_alike_stay_apart():
    long = "naa." + "6" * 70
    first, _ = frames(ESXTOP.replace("naa.600", long))
    assert sorted(
        done.count for flow, done in first.kernel.items() if flow.op == "read" and "naa" in flow.device
    ) == sorted(
        done.count for flow, done in frames(ESXTOP)[0].kernel.items() if flow.op == "read" and "naa" in flow.device
    )
