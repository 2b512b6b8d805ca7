"""bottleneck-between: a text in which iostat of a guest and esxtop of its host contradict each other."""

import pytest

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions
from latmon.recording.reader import open_recording
from latmon.report.summary import summarise
from latmon.support.errors import EXIT_DONE

HEAD = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
COUNTERS = ("Reads/sec", "Writes/sec", "MBytes Read/sec", "MBytes Written/sec", "Average Guest MilliSec/Command")


def iostat(await_ms, rate=400, disk="sda"):
    row = f"{disk} {rate}.00 100.00 3200.00 800.00 {await_ms:.2f} {await_ms:.2f} 20.00 100.00\n"
    return "".join(f"2026-03-02T10:00:0{n}Z\n{HEAD}{row.replace(str(rate), str(rate + n), 1)}" for n in range(1, 4))


def esxtop(*latencies_ms):
    disks = range(len(latencies_ms))
    names = [rf"\\esx\Physical Disk SCSI Device(naa.{n})\{one}" for n in disks for one in COUNTERS]
    lines = [",".join(f'"{one}"' for one in ("(PDH-CSV 4.0) (UTC)(0)", *names))]
    for n in range(5):
        values = [value for ms in latencies_ms for value in (410, 100, 3.1, 0.8, ms)]
        lines.append(",".join(f'"{one}"' for one in (f"03/02/2026 10:00:0{n}", *values)))
    return "\n".join(lines) + "\n"


def findings(tmp_path, text):
    (tmp_path / "ticket.txt").write_text(text)
    out = tmp_path / "out.latmon.jsonl.gz"
    assert import_command(tmp_path / "ticket.txt", out, ImportOptions()) == EXIT_DONE
    return summarise(open_recording(out))


def test_the_layer_between_two_tools_is_named(tmp_path):
    summary = findings(tmp_path, f"The guest:\n{iostat(40)}\nThe host:\n{esxtop(0.5, 0.3)}")
    (one,) = summary["findings"]
    assert (one["id"], one["device"], one["severity"]) == ("bottleneck-between", "sda", "warning")
    assert "iostat has 40 ms for an I/O in the mean, esxtop 500 us at most (naa.0)" in one["summary"]
    assert "the guest's queue and driver, or the virtual adapter" in one["summary"]
    assert "bottleneck-between" not in str(summary["findings_by"])


@pytest.mark.parametrize(
    "text",
    [
        iostat(40) + esxtop(0.5, 12),  # the slowest disk below may be its own
        iostat(40) + iostat(0.5, 300, "sdb"),  # of one tool: two disks
        iostat(3) + esxtop(0.5),  # too little to matter
        esxtop(40) + iostat(0.5),  # slow below, and fast above: a cache
        iostat(40),
    ],
)
def test_times_that_do_not_contradict_each_other_are_no_finding(tmp_path, text):
    assert not findings(tmp_path, text)["findings"]
