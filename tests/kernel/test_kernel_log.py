"""The kernel's log: which lines are about which device, their times, and what is bounded."""

import errno
import os

import pytest

from latmon.model.frame import Device
from latmon_backends.kernel.kernel_log import KernelLog
from latmon_backends.kernel.recoveries import DeviceEvents

S = 1_000_000
WALL = 1_700_000_000.0
SDA, NVME, LOOP = Device("sda", 8, 0), Device("nvme0n1", 259, 0), Device("loop0", 7, 0)
DEVICES = {device.name: device for device in (SDA, NVME, LOOP)}
READ_ERROR = "I/O error, dev {}, sector 65536 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2"


def record(text, at_s=100.5, *, level=3, number=0, facility=0, more=""):
    return f"{facility << 3 | level},{number},{int(at_s * S)},-;{text}\n{more}".encode()


class Kmsg:
    """Records that a read returns one by one; an error is raised."""

    def __init__(self, tmp_path):
        (tmp_path / "kmsg").touch()
        port = tmp_path / "devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0"
        port.mkdir(parents=True)
        (tmp_path / "block/sda").mkdir(parents=True)
        (tmp_path / "block/sda/device").symlink_to(port)
        self.records = []
        self.log = KernelLog(tmp_path / "kmsg", tmp_path, self._read)

    def _read(self, _file, _size):
        if not self.records:
            raise BlockingIOError
        record = self.records.pop(0)
        if isinstance(record, OSError):
            raise record
        return record

    def lines(self, *records, at_s=101, devices=DEVICES):
        return self.events(*records, at_s=at_s, devices=devices).marks

    def events(self, *records, at_s=101, devices=DEVICES):
        self.records += records
        return self.log.events(at_s * S, WALL + at_s, devices)


@pytest.fixture
def kmsg(tmp_path):
    kmsg = Kmsg(tmp_path)
    kmsg.lines(at_s=100)
    return kmsg


@pytest.mark.parametrize(
    ("text", "device"),
    [
        (READ_ERROR.format("sda"), "sda"),
        ("Buffer I/O error on dev sda1, logical block 0, async page read", "sda"),
        ("sd 0:0:0:0: [sda] tag#7 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK", "sda"),
        ("scsi 0:0:0:0: timing out command, waited 180s", "sda"),
        ("ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", "sda"),
        ("ata1: hard resetting link", "sda"),
        ("nvme nvme0: I/O 10 QID 1 timeout, reset controller", "nvme0n1"),
        ("nvme0n1p2: rw=0, sector=9, nr_sectors = 8 limit=8: attempt to access beyond end, error", "nvme0n1"),
        ("device-mapper: multipath: 253:7: Failing path 8:0.", "sda"),
        ("EXT4-fs error (device sda1): ext4_lookup:1: inode #2: comm cat: deleted inode referenced: 12", "sda"),
        ("I/O error, dev sdaa, sector 8 op 0x0:(READ)", None),
        ("ata11.00: exception Emask 0x0", None),
        ("usb 1-1: device descriptor read/64, error -71", None),
        ("scsi 10:0:0:0: timing out command", None),
        ("JBD2: Error -5 detected when updating journal superblock for sda1-8.", "sda"),
        ("Aborting journal on device sda1-8.", "sda"),
        ("BTRFS error (device loop0): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0", "sda"),
        ("md/raid1:md0: Disk failure on sda1, disabling device.", "sda"),
        ("Write-error on swap-device (8:0:1234)", "sda"),
        ("cat: attempt to access beyond end of device\\x0asda1: rw=0, sector=9, limit=8", "sda"),
        ("nvme0n1: I/O Cmd(0x2) @ LBA 0, 8 blocks, I/O Error (sct 0x2 / sc 0x81) ", "nvme0n1"),
        ("hpsa 0000:05:00.0: scsi 0:0:0:0: resetting logical  Direct-Access", "sda"),
        # a program chooses its name
        ("sda[4711]: segfault at 0 ip 0 sp 0 error 4 in sda[400000+1000]", None),
        ("ata1.00: error[4711]: segfault at 0 ip 0 sp 0 error 4", None),
        ("traps: nvme0n1[99] trap invalid opcode ip:0 sp:0 error:0 in nvme0n1[400000+1000]", None),
        ("sda (4711): drop_caches: 3", None),
        ("nvme nvme0: x: page allocation failure: order:5, mode:0x40dc0(GFP_KERNEL|__GFP_COMP), nodemask=0", None),
        ("Out of memory: Killed process 4711 (sda) total-vm:1kB", None),
        ("INFO: task sda:4711 blocked for more than 120 seconds.", None),
        ("EXT4-fs error (device vdb1): ext4_lookup:1: inode #2: comm sda: deleted inode referenced: 12", None),
    ],
)
def test_a_line_belongs_to_the_device_that_it_names(kmsg, text, device):
    lines = kmsg.lines(record(text))
    assert [line.device for line in lines] == ([] if device is None else [device])
    assert all(line.text == text for line in lines)


def test_a_device_number_after_the_line_names_its_device(kmsg):
    (line,) = kmsg.lines(record("timeout", more=" SUBSYSTEM=block\n DEVICE=b259:0\n"))
    assert line.device == "nvme0n1"


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        (record(READ_ERROR.format("sda"), level=6), True),
        (record("sda: sda1 sda2", level=6), False),
        (record("EXT4-fs (sda1): mounted filesystem. Opts: errors=remount-ro", level=6), False),
        (record("XFS (sda1): Mounting V5 Filesystem", level=5), False),
        (record("XFS (sda1): Ending clean mount", level=6), False),
        (record("sd 0:0:0:0: [sda] Attached SCSI removable disk", level=5), False),
        (record("sd 0:0:0:0: [sda] Mode Sense: 00 3a 00 00", level=7), False),
        (record("nvme nvme0: Shutdown timeout set to 8 seconds", level=6), False),
        (record("sd 0:0:0:0: [sda] tag#7 Sense Key : Medium Error [current]", level=6), True),
        (record("sd 0:0:0:0: [sda] Synchronize Cache(10) failed", level=5), True),
        (record(READ_ERROR.format("sda"), facility=1), False),  # of a program
        (b"no record", False),
        (b"3,x,1,-;I/O error, dev sda", False),
    ],
)
def test_lines_of_programs_and_of_healthy_devices_are_left_out(kmsg, line, is_kept):
    assert bool(kmsg.lines(line)) is is_kept


def test_a_line_has_a_time_of_its_interval_whatever_its_clock(kmsg):
    lines = kmsg.lines(*(record(READ_ERROR.format("sda"), at_s) for at_s in (3, 100.25, 900)))
    assert [line.mono_us / S for line in lines] == [100, 100.25, 101]
    assert [line.wall - WALL for line in lines] == pytest.approx([100, 100.25, 101])


def test_at_the_start_lines_of_the_last_minutes_are_read_of_devices_that_keep_their_names(tmp_path):
    texts = [READ_ERROR.format(name) for name in ("sda", "loop0", "sda")]
    records = [record(text, at_s) for text, at_s in zip(texts, (100, 990, 900), strict=True)]
    (line,) = Kmsg(tmp_path).lines(*records, at_s=1000)
    assert (line.device, line.mono_us / S, line.wall - WALL) == ("sda", 1000, 900)


def test_a_flood_is_bounded_and_counted(kmsg):
    first, *lines = kmsg.lines(*(record(READ_ERROR.format("sda"), number=n) for n in range(30)))
    assert len(lines) == 16
    assert first.text == "14 more lines of the kernel's log were not read"
    kmsg.lines(*(record(READ_ERROR.format("sda"), number=30 + n) for n in range(500)), at_s=102)
    kmsg.records.clear()  # it went to the end
    assert kmsg.lines(record("usb 1-1: error", 102.5, number=899), at_s=103) == ()
    first, line = kmsg.lines(record(READ_ERROR.format("sda"), 103.5, number=900), at_s=104)
    assert first.text == "469 more lines of the kernel's log were not read"
    assert line.mono_us == 103.5 * S


@pytest.mark.parametrize("code", [errno.EPIPE, errno.EINVAL, errno.EIO])
def test_a_record_that_cannot_be_read_ends_nothing(kmsg, code):
    kmsg.lines(OSError(code, "-"), record(READ_ERROR.format("sda")))
    assert kmsg.lines(record(READ_ERROR.format("sda"), 101.5), at_s=102)


def test_what_a_terminal_would_obey_is_removed(kmsg):
    (line,) = kmsg.lines(record("I/O error, dev sda\x1b[2J, " + "x" * 900))
    assert "\x1b" not in line.text
    assert len(line.text) <= 200


def test_without_permission_there_is_a_reason_and_no_line(tmp_path):
    log = KernelLog(tmp_path / "absent/kmsg", tmp_path)
    assert "No such file" in log.why_unread
    assert log.events(S, WALL, DEVICES) == DeviceEvents()
    log.close()


def test_the_lines_of_a_removed_disk_are_read_for_minutes(kmsg, tmp_path):
    others = {"nvme0n1": NVME}
    (tmp_path / "block/sda/device").unlink()
    for at_s in (101, 102, 400):
        (line,) = kmsg.lines(record("sd 0:0:0:0: [sda] Synchronizing SCSI cache"), at_s=at_s, devices=others)
        assert line.device == "sda"
    assert kmsg.lines(record(READ_ERROR.format("sda")), at_s=402, devices=others) == ()


def test_a_word_of_a_removed_disk_is_the_next_ones(kmsg, tmp_path):
    kmsg.lines(at_s=101, devices={"nvme0n1": NVME})
    (tmp_path / "block/sdb").symlink_to(tmp_path / "block/sda")
    both = [record("ata1: hard resetting link"), record(READ_ERROR.format("sda"))]
    lines = kmsg.lines(*both, at_s=102, devices={"sdb": Device("sdb", 8, 16)})
    assert [line.device for line in lines] == ["sdb", "sda"]


def test_a_line_about_an_adapter_with_several_disks_is_about_none(kmsg, tmp_path):
    assert kmsg.lines(record("scsi host0: resetting"), at_s=101)
    (tmp_path / "block/sdb").symlink_to(tmp_path / "block/sda")
    devices = {**DEVICES, "sdb": Device("sdb", 8, 16)}
    assert kmsg.lines(record("scsi host0: resetting"), at_s=102, devices=devices) == ()


def test_only_new_devices_are_looked_up(kmsg, monkeypatch):
    looked_up = []
    monkeypatch.setattr(os.path, "realpath", lambda path: looked_up.append(path.parent.name) or str(path))
    kmsg.lines(at_s=101, devices={**DEVICES, "sdb": Device("sdb", 8, 16)})
    assert looked_up == ["sdb"]
