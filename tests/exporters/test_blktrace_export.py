"""`latmon export --to blkparse` and `--to blktrace`: latmon's importer reads the same I/Os back, and btt its events."""

import shutil
import struct
import subprocess
from dataclasses import replace

import pytest

from latmon.cli.main import run as main
from latmon.exporters.blktrace import write_binary, write_text
from latmon.exporters.registry import ExportOptions, Source
from latmon.model.frame import Device, Frame, Origin, Outlier
from latmon.model.measurements import ERRORS
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

SECOND = 1_000_000
ORIGIN = Origin("bpftrace", "db-07", "6.12", "0.1.0", tier="A", start_mono_us=10 * SECOND, start_wall=1_767_582_000.0)
SLOW = {"queue": 500, "requeue": 40, "hba": 3 * SECOND, "softirq": 60}


def io(begun_us, sector, op="read", **fields):
    stages = fields.pop("stages_us", {"queue": 20, "hba": 100, "softirq": 5})
    values = {"bytes": 4096, "pid": 42, "comm": "fio", "cpu_issue": 0, "cpu_complete": 1} | fields
    return Outlier(1.0, begun_us, "sda", op, sum(stages.values()), stages, sector=sector, **values)


IOS = (
    io(10 * SECOND + 5, 8, admission_us=3, inserted_us=4),
    io(10 * SECOND + 6, 64, "write", flags=("sync", "fua", "preflush")),
    io(10 * SECOND + 7, 640, "write", stages_us=SLOW, admission_us=2000),
    io(11 * SECOND + 900, 8, "discard"),
    io(11 * SECOND + 950, 72, "write", status="no space"),
    io(11 * SECOND + 960, 80, status="I/O error"),
)


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "one.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN, devices=(Device("sda", 8, 0),))
    for number in range(4):
        done = [one for one in IOS if (one.mono_us + one.total_us) // SECOND == 10 + number]
        writer.append(Frame(number, 1.0 + number, (11 + number) * SECOND, SECOND, outliers=tuple(done)))
    writer.close()
    return path


def written(write, recording, out):
    with out.open("wb") as file:
        write(Source(open_recording(recording)), file, ExportOptions())
    return out


def test_the_text_has_the_events_in_the_order_of_their_times(recording, tmp_path):
    head, *lines = written(write_text, recording, tmp_path / "text").read_text().splitlines()
    assert head.endswith("m   N latmon 0.1.0, host db-07")
    times = [float(line.split()[3]) for line in lines]
    assert times == sorted(times)
    assert times[0] == 0
    assert [line.split()[5] for line in lines if " 8 + 8 " in line] == [*"QGIDC", *"QGDC"]
    assert [line.split()[5] for line in lines if " 640 + 8 " in line] == list("QGDRDC")
    assert {line.split()[6] for line in lines if " 64 + 8 " in line} == {"FWFS"}
    assert lines[0].split() == ["8,0", "0", "1", "0.000000000", "42", "Q", "W", "640", "+", "8", "[fio]"]


def test_hidden_paths_without_a_number_of_their_own_stay_apart(tmp_path):
    path = tmp_path / "paths.latmon.jsonl.gz"
    names = ("nvme0c0n1", "nvme1c1n1")
    writer = Writer.create(path, ORIGIN, devices=[Device(name, 0, 0, kind="nvme-path") for name in names])
    ios = [replace(IOS[0], device=name) for name in names]
    writer.append(Frame(0, 1.0, 20 * SECOND, 10 * SECOND, outliers=tuple(ios)))
    writer.close()
    _, *lines = written(write_text, path, tmp_path / "text").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"0,1", "0,2"}


def test_latmon_reads_the_same_ios_back(recording, tmp_path):
    text, back = written(write_text, recording, tmp_path / "text"), tmp_path / "back.latmon.jsonl.gz"
    assert main(["import", str(text), "--from", "blkparse", "--threshold", "0s", "-o", str(back)]) == 0
    frames = [frame for frame in open_recording(back) if isinstance(frame, Frame)]
    outliers = {
        (outlier.sector, outlier.op, outlier.total_us): outlier for frame in frames for outlier in frame.outliers
    }
    assert outliers.keys() == {(one.sector, one.op, one.total_us + (one.admission_us or 0)) for one in IOS}
    for one in IOS:
        same = outliers[one.sector, one.op, one.total_us + (one.admission_us or 0)]
        queue = sum(one.stages_us.get(stage, 0) for stage in ("queue", "requeue")) + (one.admission_us or 0)
        assert same.stages_us == {"queue": queue, "hba": same.total_us - queue}
        assert (same.bytes, same.pid, same.comm) == (4096, 42, "fio")


def test_failed_ios_have_their_errno_and_are_read_back_with_it(recording, tmp_path):
    text, back = written(write_text, recording, tmp_path / "text"), tmp_path / "back.latmon.jsonl.gz"
    tails = {line.split()[7]: line.split()[-1] for line in text.read_text().splitlines() if " C " in line}
    assert (tails["72"], tails["80"], tails["64"]) == (f"[{65536 - 28}]", f"[{65536 - 5}]", "[0]")
    assert main(["import", str(text), "--from", "blkparse", "--threshold", "0s", "-o", str(back)]) == 0
    frames = [item for item in open_recording(back) if isinstance(item, Frame)]
    statuses = {outlier.sector: outlier.status for frame in frames for outlier in frame.outliers}
    assert (statuses[72], statuses[80], statuses[64]) == ("no space", "I/O error", "")
    failed = {row[1:]: ios for frame in frames for row, ios in frame[ERRORS].items()}
    assert failed == {("write", "no space"): 1, ("read", "I/O error"): 1}
    timed = sum(
        histogram.count for frame in frames for series, histogram in frame.histograms.items() if series.stage == "total"
    )
    seen = sum(done.count for frame in frames for done in frame.seen.values())
    assert (timed, seen) == (len(IOS) - 2, len(IOS))


def test_an_io_without_its_issue_has_no_events(tmp_path):
    path = tmp_path / "one.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN, devices=(Device("sda", 8, 0),))
    bare = Outlier(1.0, 10 * SECOND, "sda", "read", 100, sector=8, bytes=512)
    writer.append(Frame(0, 1.0, 11 * SECOND, SECOND, outliers=(bare,)))
    writer.close()
    assert len(written(write_text, path, tmp_path / "text").read_text().splitlines()) == 1


def test_each_event_of_the_binary_form_is_whole(recording, tmp_path):
    data = written(write_binary, recording, tmp_path / "binary").read_bytes()
    found, at = [], 0
    while at < len(data):
        magic, _, ns, sector, size, action, pid, device, cpu, error, more = struct.unpack_from("<IIQQIIIIIHH", data, at)
        assert magic == 0x65617407
        found.append((action & 0xFFFF, ns, sector, size, pid, device, cpu, error))
        at += 48 + more
    assert at == len(data)
    assert [one[0] for one in found if one[2] == 640] == [1, 4, 7, 6, 7, 8]
    assert {one[5] for one in found[1:]} == {8 << 20}
    assert {one[2]: one[-1] for one in found if one[-1]} == {72: 65536 - 28, 80: 65536 - 5}
    assert {one[0] for one in found if one[-1]} == {8}


@pytest.mark.skipif(shutil.which("btt") is None, reason="needs btt of blktrace")
def test_btt_finds_the_same_steps(recording, tmp_path):
    file = written(write_binary, recording, tmp_path / "binary")
    done = subprocess.run(
        ["btt", "-i", str(file)], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line[:3] in ("Q2G", "G2I", "D2C")}
    assert int(rows["D2C"][4]) == len(IOS)
    assert float(rows["G2I"][2]) == pytest.approx(4e-6, abs=1e-8)
