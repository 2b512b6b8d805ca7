"""Time-outs and resets: what lines of the kernel's log say, the counter of SCSI, and what is counted twice or never."""

from __future__ import annotations

import pytest
from test_kernel_log import S, kmsg, record  # noqa: F401 - a fixture

from latmon.model.frame import Device, DeviceReport
from latmon.model.measurements.recoveries import (
    ABORTED,
    GIVEN_UP,
    PATH_FAILED,
    POLLED,
    REPORTED_RESET,
    RESET,
    TIMED_OUT,
    Recovery,
)
from latmon_backends.kernel.recoveries import TimeOutCounters, events_of, marks_of


@pytest.mark.parametrize(
    ("line", "events"),
    [
        # Linux 6.12, of an emulated drive, and the words of 5.10 and 4.19
        (
            "nvme nvme0: I/O tag 394 (218a) opcode 0x2 (I/O Cmd) QID 2 timeout, aborting req_op:READ(0) size:4096",
            (TIMED_OUT,),
        ),
        (
            "nvme nvme0: I/O tag 384 (d180) opcode 0x2 (I/O Cmd) QID 2 timeout, reset controller",
            (RESET,),  # it was aborted when it timed out before
        ),
        ("nvme nvme0: I/O 864 QID 11 timeout, reset controller", (RESET,)),
        ("nvme nvme0: I/O tag 12 (400c) opcode 0x9 (Admin Cmd) QID 0 timeout, reset controller", (TIMED_OUT, RESET)),
        ("nvme nvme2: NVME-FC{1.3}: io timeout: opcode 2 fctype 0 (Read) w10/11: x0/x0", (TIMED_OUT,)),
        ("nvme nvme2: NVME-FC{1.3}: io timeout: opcode 2 fctype 0 w10/11: x00000000/x00000000", (TIMED_OUT,)),
        ("nvme nvme2: NVME-FC{1}: transport association event: io timeout abort failed", ()),
        ("nvme nvme2: NVME-FC{1}: resetting controller", (RESET,)),
        ("nvme nvme2: NVME-FC{1}: controller connectivity lost. Awaiting Reconnect", (RESET,)),
        ("nvme nvme2: NVME-FC{1}: Max reconnect attempts (200) reached.", (GIVEN_UP,)),
        (
            "nvme nvme2: NVME-FC{1}: dev_loss_tmo (60) expired while waiting for remoteport connectivity.",
            (GIVEN_UP,),
        ),
        ("nvme nvme0: I/O 10 QID 1 timeout, aborting", (TIMED_OUT,)),
        ("nvme nvme0: I/O 10 QID 1 timeout, completion polled", (TIMED_OUT, POLLED)),
        ("nvme nvme0: I/O 10 QID 1 timeout, disable controller", (TIMED_OUT, RESET)),
        ("nvme nvme0: Abort status: 0x0", (ABORTED,)),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", (RESET,)),
        ("nvme nvme0: starting error recovery", (RESET,)),
        ("nvme nvme0: queue 1: timeout cid 0x1 type 4 opcode 0x2 (I/O Cmd)", (TIMED_OUT,)),
        ("nvme nvme0: Disabling device after reset failure: -19", (GIVEN_UP,)),
        ("nvme nvme0: 2/0/0 default/read/poll queues", ()),
        ("nvme nvme0: Shutdown timeout set to 8 seconds", ()),
        # of scsi_debug's disk
        ("sd 0:0:0:0: Power-on or device reset occurred", (REPORTED_RESET,)),
        ("scsi 0:0:0:0: Power-on or device reset occurred", ()),  # it is being found
        ("sd 0:0:0:0: [sda] tag#16 Medium access timeout failure. Offlining disk!", (GIVEN_UP,)),
        ("sd 0:0:0:0: Device offlined - not ready after error recovery", (GIVEN_UP,)),
        # the counter has these
        ("sd 0:0:0:0: [sda] tag#20 timeout command 0x28", ()),
        ("sd 0:0:0:0: [sda] tag#16 FAILED Result: hostbyte=DID_TIME_OUT driverbyte=DRIVER_OK cmd_age=9s", ()),
        ("ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", ()),
        ("sd 6:0:2:0: attempting task abort!scmd(0x00000000f2f4b8d5), outstanding for 30720 ms", (ABORTED,)),
        ("sd 6:0:2:0: attempting device reset! scmd(0x00000000f2f4b8d5)", (RESET,)),
        ("hpsa 0000:05:00.0: scsi 0:0:0:0: resetting logical  Direct-Access", (RESET,)),
        ("ata1: hard resetting link", (RESET,)),
        ("ata1.00: disabled", ()),  # after a planned removal, too
        ("device-mapper: multipath: 253:7: Failing path 8:0.", (PATH_FAILED,)),
        ("block nbd0: Connection timed out", (TIMED_OUT,)),
        ("I/O error, dev sda, sector 86080 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", ()),
    ],
)
def test_what_a_line_says_that_the_kernel_did(line, events):
    assert events_of(line) == events


def test_all_lines_of_an_interval_are_counted_and_none_of_before_the_start(kmsg):  # noqa: F811 - the fixture
    lines = [record("nvme nvme0: Abort status: 0x0", number=n) for n in range(30)]
    events = kmsg.events(*lines, record("ata1: hard resetting link", number=30))
    assert events.recoveries == {Recovery("nvme0n1", ABORTED): 30, Recovery("sda", RESET): 1}
    assert len(events.marks) == 17  # with the one that says how many there was no room for
    assert kmsg.events(at_s=102).recoveries == {}


def test_lines_of_before_the_start_are_marks_alone(tmp_path):
    from test_kernel_log import Kmsg  # noqa: PLC0415 - beside the fixture of that name

    events = Kmsg(tmp_path).events(record("ata1: hard resetting link", 990), at_s=1000)
    assert [mark.text for mark in events.marks] == ["ata1: hard resetting link"]
    assert events.recoveries == {}


class Disks:
    """SCSI disks in a made sysfs, with their counters."""

    def __init__(self, tmp_path, number=1):
        self.sys = tmp_path
        report = DeviceReport("iotmo_cnt", 0, "device/iotmo_cnt")
        self.devices = {f"sd{n}": Device(f"sd{n}", 8, n, reports=(report,)) for n in range(number)}
        self.devices["vda"] = Device("vda", 254, 0)
        self.counters = TimeOutCounters(tmp_path)
        for name in self.devices:
            self.put(name, 0)

    def put(self, name, time_outs):
        directory = self.sys / "block" / name / "device"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "iotmo_cnt").write_text(f"{time_outs:#x}\n")

    def read(self, generations=None):
        return self.counters.since_last(self.devices, generations or {})


def test_time_outs_are_those_since_the_last_reading(tmp_path):
    disks = Disks(tmp_path)
    disks.put("sd0", 17)
    assert disks.read() == {}  # of before the start
    disks.put("sd0", 29)
    disks.put("vda", 5)  # says of itself that it counts none
    assert disks.read() == {"sd0": 12}
    assert disks.read() == {}
    disks.put("sd0", 3)  # fell: it began again
    assert disks.read() == {}


def test_another_device_of_the_name_has_its_own_counter(tmp_path):
    disks = Disks(tmp_path)
    disks.read({"sd0": 1})
    disks.put("sd0", 9)
    assert disks.read({"sd0": 2}) == {}
    disks.put("sd0", 10)
    assert disks.read({"sd0": 2}) == {"sd0": 1}


def test_a_counter_that_cannot_be_read_ends_nothing(tmp_path):
    disks = Disks(tmp_path, 2)
    disks.read()
    (tmp_path / "block/sd0/device/iotmo_cnt").write_text("nonsense")
    disks.put("sd1", 1)
    assert disks.read() == {"sd1": 1}
    (tmp_path / "block/sd0/device/iotmo_cnt").unlink()
    assert disks.read() == {}


def test_many_counters_are_read_in_turn_and_none_is_lost(tmp_path):
    disks = Disks(tmp_path, 150)
    for _ in range(3):
        disks.read()
    for name in disks.devices:
        disks.put(name, 2)
    texts = [disks.read() for _ in range(3)]
    assert sum(map(len, texts)) == 150
    assert max(map(len, texts)) == 64
    assert {time_outs for text in texts for time_outs in text.values()} == {2}


def test_a_mark_says_that_it_is_of_a_counter():
    (mark,) = marks_of({"sda": 2}, 5 * S, 1_700_000_000.0)
    assert mark.sentence == "kernel, sda: 2 commands timed out (device/iotmo_cnt)"
    assert mark.is_counted
