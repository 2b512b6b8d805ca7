"""`--redact` on a recording of everything: no program, no pid, no host in any of its bytes; what diagnoses stays."""

import gzip
import re
from dataclasses import replace

import pytest
from recorded import DISK, ORIGIN, frame

from latmon.cli.main import run as main
from latmon.exporters.registry import FORMATS
from latmon.model import measurements
from latmon.model.frame import (
    CgroupLimit,
    DeviceReport,
    FileOperation,
    FileSplit,
    FileSystem,
    Frame,
    Mark,
    Outlier,
    Thread,
    Wait,
)
from latmon.model.histogram import Histogram
from latmon.model.inflight import InFlight, InFlightList
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.file_sleeps import FileSleep
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.server_waits import WaitedTime
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.model.redaction import Redaction
from latmon.recording.parts import RecordingLimits, Rotation
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

SETTINGS = {"kernel": {"hz": "250"}, "device sda": {"scheduler": "none"}}
FABRIC = replace(
    DISK,
    name="nvme0n1",
    controller="nvme0 nvme-tcp traddr=10.9.8.7,trsvcid=4420,host_traddr=10.9.8.6",
    label="sekretvg",
    reports=(
        DeviceReport("state", "live", "state"),
        DeviceReport("by_path", "ip-sekretaddress-lun-0", "disk/by-path"),
        DeviceReport("mounted_sync", "/srv/sekret", "/proc/self/mountinfo"),
    ),
)


def everything() -> Frame:
    """Each field that could identify a user does: `sekret...`, pid 4211777."""
    waits = (Wait("resume", "sekretlgwr", 4211777, 120, 1, 2, "sekretbkup (prio 99)"),)
    outlier = Outlier(1.0, 1, "sda", "read", 70_000, pid=4211777, comm="sekretdb", waits=waits)
    thread = Thread(4211777, "sekretdb", "fifo", 10, kernel=False)
    wakeups = Wakeups(thread, Histogram.record([5]), {"sekretbkup": 2}, {"sekretbkup (prio 99)": 5})
    held = InFlight(device="sda", op="read", began_us=5, pid=4211777, comm="sekretdb")
    data = FileSystem("/sekretmount/data", "ext4", "sda")
    operation = FileOperation(
        *(1.0, 1, "fsync", 70_000, "device", data, "sekretdir/sekret.wal", 4211777, "sekretdb"),
        waits=waits,
        split=FileSplit(1, 2, 3, 3, "lock", "down_write", "sekretbkup", 4211777),
    )
    cgroups = {Issuer("sda", "read", f"/sekret{n}.service", container="sekretbox"): IssuedIO(5, 512) for n in range(2)}
    process = Issuer("sda", "read", "/sekret1.service", pid=4211777, comm="sekretdb")
    return frame(
        0,
        file_operations=(operation,),
        devices=(DISK, FABRIC),
        outliers=(outlier,),
        in_flight=InFlightList((held,)),
        cgroup_limits=tuple(
            CgroupLimit(f"/sekret{n}", "sda", "read", 50, None, 50, 4096, 1, ("sekretdb",), root="/sekretmount")
            for n in range(2)
        ),
        marks=(Mark("scheduler changed", 6_000_000, 1.0, {"device sda": {"scheduler": "kyber"}}),),
        tables={
            measurements.ISSUERS: {**cgroups, process: IssuedIO(5, 512)},
            measurements.BEHIND: {Behind("sda", "/sekret0.service", "/sekret1.service"): 9},
            measurements.FILES: {FileSeries("sda", "fsync", data.mount, "ext4", "device"): Histogram.record([70_000])},
            measurements.FILE_TIMES: {FilePart("sda", "fsync", data.mount, "ext4", "lock"): 3},
            WAKEUPS: by_thread((wakeups,)),
        },
    )


@pytest.fixture(params=["whole", pytest.param("parts", marks=pytest.mark.slow)])
def redacted(request, tmp_path):
    origin = replace(ORIGIN, host="sekrethost", boot_id="sekretboot", settings=SETTINGS)
    path = tmp_path / "sekrethost.latmon.jsonl.gz"
    if request.param == "whole":
        writer = Writer.create(path, origin, redaction=Redaction())
        writer.append(everything())
        writer.close()
    else:
        parts = Rotation.create(path, origin, RecordingLimits(redaction=Redaction()))
        parts.append(everything())
        parts.append(replace(everything(), mono_us=10**12))
        parts.close()
    return [gzip.decompress(path.read_bytes()).decode() for path in sorted(tmp_path.iterdir())], path


def test_redaction_removes_all_names(redacted):
    texts, _ = redacted
    for text in texts:
        assert re.findall(r"[^\"]*(?:sekret|4211777|10\.9\.8)[^\"]*", text) == []


def test_what_diagnoses_stays(redacted):
    _, path = redacted
    recording = open_recording(path)
    assert recording.origin.settings == SETTINGS
    assert recording.origin.host == "redacted"
    marks = [mark for mark in recording if isinstance(mark, Mark)]
    assert (marks[0].text, marks[0].changed) == ("scheduler changed", {"device sda": {"scheduler": "kyber"}})
    (given_frame, *_) = [frame for frame in recording if isinstance(frame, Frame)]
    assert given_frame.outliers[0].total_us == 70_000
    assert given_frame.outliers[0].waits[0].instead == "redacted (prio 99)"
    assert len({limit.cgroup for limit in given_frame.cgroup_limits}) == 2
    assert [report.name for report in given_frame.devices[1].reports] == ["state"]
    assert given_frame.devices[1].controller == "nvme0 nvme-tcp traddr=redacted,trsvcid=4420,host_traddr=redacted"


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_nor_has_an_export_the_name_of_the_file(redacted, form, tmp_path):
    _, path = redacted
    out = tmp_path / "out"
    assert main(["export", str(path), "--to", form, "-o", str(out)]) == 0
    text = out.read_bytes()
    text = gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text
    assert re.findall(rb"[^\"<>]*(?:sekret|4211777|10\.9\.8)[^\"<>]*", text) == []


@pytest.mark.parametrize("words", [["--json"], ["--text"], ["--html", "-"]])
def test_nor_has_a_report(redacted, words, capfdbinary):
    _, path = redacted
    assert main(["report", str(path), *words]) in (0, 4)
    text = capfdbinary.readouterr().out
    assert re.findall(rb"[^\"<>]*(?:sekret|4211777|10\.9\.8)[^\"<>]*", text) == []


def test_a_mount_that_is_not_known_stays_unknown(tmp_path):
    """It had a name of its own, so that rules took it for a second file system: one finding became three."""
    rows = {FileSleep("", "", "ext4", "lock", "create", "", "sekret/7"): WaitedTime(5, 1)}
    writer = Writer.create(tmp_path / "a.lmr", ORIGIN, redaction=Redaction())
    writer.append(frame(0, tables={measurements.FILE_SLEEPS: rows}))
    writer.close()
    (read,) = (item for item in open_recording(tmp_path / "a.lmr") if isinstance(item, Frame))
    assert list(read[measurements.FILE_SLEEPS]) == [FileSleep("", "", "ext4", "lock", "create", "", "")]
