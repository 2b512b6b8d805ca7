"""The file as it is written: what is refused, what a full disk costs, what kill -9 leaves."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import DISK, ORIGIN, frame

from latmon.model.frame import Device, Frame, Health, Mark
from latmon.model.redaction import Redaction
from latmon.recording.codec import End, Gap
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.recording.writer import LostFileError, Writer, private_frame
from latmon.support.errors import EXIT_UNAVAILABLE, UnavailableError

ROOT = Path(__file__).parents[2]


def written(path, frames, **options):
    writer = Writer.create(path, ORIGIN, **options)
    for current_frame in frames:
        writer.append(current_frame)
    writer.close()
    return open_recording(path)


def windows(path):
    return [item for item in open_recording(path) if isinstance(item, Frame)]


@contextmanager
def full_disk(monkeypatch, after=0):
    """Every write fails, the first one in the middle."""
    real, done = os.write, [after]

    def write(descriptor, data):
        if done[0]:
            part = real(descriptor, data[: done[0]])
            done[0] = 0
            return part
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        yield


def test_what_is_written_is_read(tmp_path):
    recording = written(tmp_path / "r", [frame(i) for i in range(5)])
    assert recording.origin == ORIGIN
    assert list(recording) == [*(frame(i) for i in range(5)), End("closed", 5)]
    assert recording.damage == []


def test_zcat_and_jq_read_it(tmp_path):
    path = tmp_path / "r.latmon.jsonl.gz"
    written(path, [frame(0), frame(1)])
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert [line["type"] for line in lines] == ["header", "window", "window", "end"]
    subprocess.run(["gzip", "-t", path], check=True)


def test_the_same_frames_give_the_same_bytes(tmp_path):
    for name in "ab":
        written(tmp_path / name, [frame(i) for i in range(3)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_only_its_owner_reads_it(tmp_path):
    written(tmp_path / "r", [])
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o600


def test_it_is_locked_while_it_is_written(tmp_path):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    with (tmp_path / "r").open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    writer.close()


@pytest.mark.parametrize("kind", ["file", "symlink", "dangling", "fifo", "directory", "nowhere", "device"])
def test_a_target_that_is_not_a_new_file_is_refused_and_left_alone(tmp_path, kind):
    path = Path("/dev/null") if kind == "device" else tmp_path / "r"
    make = {
        "file": lambda: path.write_bytes(b"precious"),
        "symlink": lambda: path.symlink_to(tmp_path / "other"),
        "dangling": lambda: path.symlink_to(tmp_path / "gone" / "r"),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "nowhere": lambda: None,
        "device": lambda: None,
    }
    make[kind]()
    if kind == "nowhere":
        path = tmp_path / "no" / "r"
    with pytest.raises(UnavailableError, match=str(path)) as refusal:
        Writer.create(path, ORIGIN)
    assert refusal.value.exit_code == EXIT_UNAVAILABLE
    assert kind != "file" or path.read_bytes() == b"precious"
    assert not (tmp_path / "other").exists()


def test_a_disk_that_is_full_at_the_start_is_refused_and_nothing_stays(tmp_path, monkeypatch):
    with full_disk(monkeypatch), pytest.raises(UnavailableError, match="No space left"):
        Writer.create(tmp_path / "r", ORIGIN)
    assert not (tmp_path / "r").exists()


def test_a_full_disk_costs_only_the_windows_it_had_no_room_for(tmp_path, monkeypatch):
    path = tmp_path / "r"
    writer = Writer.create(path, ORIGIN)
    writer.append(frame(0))
    good = path.stat().st_size
    with full_disk(monkeypatch, after=100):
        writer.append(frame(1, devices=(Device("sdz", 8, 400),)))
        writer.append(frame(2))
        assert "No space left" in writer.trouble
        assert path.stat().st_size == good
    writer.append(frame(3))
    assert writer.trouble == ""
    writer.close()
    first, gap, after, end = open_recording(path)
    assert (first, end) == (frame(0), End("closed", 2))
    assert gap == Gap("enospc", 2.0, frame(0).mono_us, frame(0).wall)
    assert after == replace(frame(3), devices=(Device("sdz", 8, 400),))
    subprocess.run(["gzip", "-t", path], check=True)


def test_marks_and_gaps_outlive_a_full_disk(tmp_path, monkeypatch):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    with full_disk(monkeypatch):
        writer.mark(Mark("here"))
        writer.gap("disk-stalled", 7.0)
        writer.append(frame(0))
    writer.append(frame(1))
    writer.close()
    kinds = [type(item) for item in open_recording(tmp_path / "r")]
    assert kinds == [Gap, Mark, Gap, Frame, End]


def test_a_gap_that_a_full_disk_had_no_room_for_stands_before_the_end_line(tmp_path, monkeypatch):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    writer.append(frame(0))
    with full_disk(monkeypatch):
        writer.append(frame(1))
        writer.gap("probe-silent", 5.0)
        writer.flush()
    writer.close()
    items = list(open_recording(tmp_path / "r"))[1:]
    assert [getattr(one, "reason", "") for one in items] == ["enospc", "probe-silent", "closed"]


def test_a_disk_full_to_the_end_leaves_what_was_good(tmp_path, monkeypatch):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    writer.append(frame(0))
    with full_disk(monkeypatch, after=50):
        writer.append(frame(1))
        writer.close()
        writer.close()
    recording = open_recording(tmp_path / "r")
    assert list(recording) == [frame(0)]
    assert recording.damage == [UNCLOSED]


@pytest.fixture
def tiny_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    place = tmp_path / "tiny"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=False).returncode:
        pytest.skip("a tmpfs can't be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_really_full_disk(tiny_disk):
    path = tiny_disk / "r"
    writer = Writer.create(path, ORIGIN)
    hog = tiny_disk / "hog"
    hog.write_bytes(os.urandom(200 * 1024))
    seq = 0
    while not writer.trouble:
        writer.append(frame(seq))
        seq += 1
        assert seq < 1000
    for _ in range(5):
        writer.append(frame(seq))
        seq += 1
    hog.unlink()
    writer.append(frame(seq))
    assert writer.trouble == ""
    writer.close()
    recording = open_recording(path)
    items = list(recording)
    assert recording.damage == []
    assert [item.reason for item in items if isinstance(item, Gap)] == ["enospc"]
    assert [item.seq for item in items if isinstance(item, Frame)] == [*range(seq - 6), seq]
    subprocess.run(["gzip", "-t", path], check=True)


def test_short_windows_share_a_member_of_a_second(tmp_path):
    path = tmp_path / "r"
    writer = Writer.create(path, ORIGIN)
    sizes = set()
    for i in range(40):
        writer.append(replace(frame(0), seq=i, mono_us=250_000 * (i + 1), dt_us=250_000))
        sizes.add(writer.size)
    writer.close()
    assert len(sizes) == 11
    assert len(windows(path)) == 40


def test_the_state_of_recording_is_not_recorded(tmp_path):
    [one, _] = written(tmp_path / "r", [frame(0, health=Health(lost_events=1, recording="secret-host.gz"))])
    assert one.health == Health(lost_events=1)


def test_a_redacted_recording_names_neither_host_nor_owner(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/S3CRET customer")
    secret = replace(DISK, serial="S3CRET", label="customer-vg")
    origin = replace(
        ORIGIN,
        host="S3CRET-host",
        boot_id="S3CRET-boot",
        reason="LATMON_BPFTRACE names /home/S3CRET customer/bpftrace, which can't be run",
        extra={"refused": {"block_a": "/home/S3CRET/x: no I/O"}},
    )
    redaction = Redaction(("/opt/S3CRET customer/dtrace",))
    writer = Writer.create(tmp_path / "r", origin, redaction=redaction, devices=(secret,))
    notice = "reads (/home/S3CRET/x) take 1 MB/s, says /opt/S3CRET customer/dtrace"
    writer.append(frame(0, devices=(secret,), health=Health(notice=notice)))
    writer.close()
    text = gzip.decompress((tmp_path / "r").read_bytes()).decode()
    assert "S3CRET" not in text
    assert "customer" not in text
    recording = open_recording(tmp_path / "r")
    assert recording.origin.extra["redacted"] is True
    assert recording.origin.extra["refused"] == {"block_a": "redacted: no I/O"}
    assert recording.origin.reason == "LATMON_BPFTRACE names redacted, which can't be run"
    assert [frame.health.notice for frame in recording if isinstance(frame, Frame)] == [
        "reads (redacted) take 1 MB/s, says redacted"
    ]
    assert DISK.model in text


_RECORDER = """
import sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from recorded import ORIGIN, frame
from latmon.recording.writer import Writer
writer = Writer.create(Path(sys.argv[1]), ORIGIN)
for seq in range(100_000):
    writer.append(frame(seq))
    print(seq, flush=True)
"""


@pytest.mark.parametrize("attempts", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_kill_9_at_any_instant_loses_nothing_that_was_acknowledged(tmp_path, attempts):
    for attempt in range(attempts):
        path = tmp_path / f"r{attempt}"
        command = [sys.executable, "-c", _RECORDER, str(path), str(ROOT), str(Path(__file__).parents[1] / "helpers")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(0.007 * attempt)
            child.send_signal(signal.SIGKILL)
            acknowledged = 1 + child.stdout.read().count(b"\n")
        recording = open_recording(path)
        read = [item.seq for item in recording if isinstance(item, Frame)]
        assert read == list(range(len(read)))
        assert len(read) >= acknowledged
        assert recording.damage[-1] == UNCLOSED
        assert len(recording.damage) <= 2


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jq_finds_a_latency(tmp_path):
    written(tmp_path / "r", [frame(0)])
    command = f"zcat -f < {tmp_path / 'r'} | jq -r 'select(.type==\"window\").stages.rows[0][0]'"
    assert subprocess.run(command, shell=True, capture_output=True, check=True).stdout == b"sda\n"


def test_a_file_that_is_truncated_right_before_a_write_is_lost(tmp_path, monkeypatch):
    path = tmp_path / "r"
    writer = Writer.create(path, ORIGIN)
    write = os.write

    def truncate_and_write(descriptor, data):
        os.truncate(path, 0)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", truncate_and_write)
    with pytest.raises(LostFileError, match="truncated"):
        writer.append(frame(0))
    monkeypatch.undo()
    with pytest.raises(LostFileError, match="truncated"):
        writer.close()


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (
            'nvme nvme1: Removing ctrl: NQN "nqn.2014-08.com.acme:db-prod-customer7"',
            'nvme nvme1: Removing ctrl: NQN "redacted"',
        ),
        (
            "nvme nvme1: new ctrl: addr 10.0.0.1:4420, hostnqn: nqn.2014-08.org.nvmexpress:uuid:0",
            "nvme nvme1: new ctrl: addr redacted:4420, hostnqn: redacted",
        ),
        ("scsi 0:0:0:0: alua: device naa.6001405abc port group 1", "scsi 0:0:0:0: alua: device redacted port group 1"),
        ("sd 0:0:0:0: iqn.2003-01.org.acme:x is lost", "sd 0:0:0:0: redacted is lost"),
        ("nvme nvme0: host 123e4567-e89b-12d3-a456-426614174000", "nvme nvme0: host redacted"),
        ("sd 1:0:0:3: wwpn 50:01:43:80:12:34:56:78, 0x5001438012345678", "sd 1:0:0:3: wwpn redacted, redacted"),
        (
            "nvme nvme1: fe80::1 is lost, traddr=[fd00::2],x=1",
            "nvme nvme1: redacted is lost, traddr=redacted,x=1",
        ),
        *(
            (text, text)
            for text in (
                "sd 0:0:0:0: [sda] tag#7 CDB: Read(10) 28 00 00 00 00 00 00 00 08 00",
                "device-mapper: multipath: 253:7: Failing path 8:0.",
                "nvme nvme0: pci 0000:05:00.0: error",
                "ata1.00: cmd 60/08:00:00:00:00/00:00:00:00:00/40 tag 0 ncq dma 4096 in",
                "I/O error, dev sda, sector 65536 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
            )
        ),
    ],
)
def test_a_redacted_line_of_a_driver_has_no_identifiers(text, redacted):
    mark = Mark(text, 5, 1.0, device="sda")
    redacted_frame = private_frame(replace(frame(1), marks=(mark,)), Redaction())
    assert redacted_frame.marks == (replace(mark, text=redacted),)


def test_a_redacted_recording_has_lines_of_drivers_and_not_of_file_systems(tmp_path):
    texts = (
        "I/O error, dev sda, sector 8 op 0x0:(READ)",
        "EXT4-fs error (device sda1): ext4_lookup: inode #2: comm S3CRET: deleted inode referenced",
        "I/O error, dev sda, of /srv/S3CRET/file",
    )
    marks = (*(Mark(text, 5, 1.0, device="sda") for text in texts), Mark("a note", 5, 1.0))
    writer = Writer.create(tmp_path / "r", ORIGIN, redaction=Redaction())
    writer.append(replace(frame(1), marks=marks))
    writer.close()
    actual_marks = [item for item in open_recording(tmp_path / "r") if isinstance(item, Mark)]
    assert [mark.device for mark in actual_marks] == ["sda", "sda", "sda", ""]
    assert [mark.text for mark in actual_marks][0::3] == [texts[0], "a note"]
    assert "S3CRET" not in str(actual_marks)
