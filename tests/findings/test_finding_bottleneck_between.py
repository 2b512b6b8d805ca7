"""bottleneck-between: a text in which iostat of a guest and esxtop of its host contradict each other."""

import pytest
from report_json import summarised

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE

HEAD = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
COUNTERS = ("Reads/sec", "Writes/sec", "MBytes Read/sec", "MBytes Written/sec", "Average Guest MilliSec/Command")


def iostat(await_ms, rate=400, disk="sda"):
    row = f"{disk} {rate}.00 100.00 3200.00 800.00 {await_ms:.2f} {await_ms:.2f} 20.00 100.00\n"
    return "".join(f"2026-03-02T10:00:0{n}Z\n{HEAD}{row.replace(str(rate), str(rate + n), 1)}" for n in range(1, 4))


def esxtop(*latencies_ms):
    disks = range(len(latencies_ms))
    names = [rf"\\esx\Physical Disk SCSI Device(naa.{n})\{one}" for n in disks for one in COUNTERS]
    lines = [",".join(f'"{name}"' for name in ("(PDH-CSV 4.0) (UTC)(0)", *names))]
    for n in range(5):
        values = [value for ms in latencies_ms for value in (410, 100, 3.1, 0.8, ms)]
        lines.append(",".join(f'"{one}"' for one in (f"03/02/2026 10:00:0{n}", *values)))
    return "\n".join(lines) + "\n"


def findings(tmp_path, text):
    (tmp_path / "ticket.txt").write_text(text)
    out = tmp_path / "out.latmon.jsonl.gz"
    assert import_command(tmp_path / "ticket.txt", out, ImportOptions()) == EXIT_DONE
    return summarised(open_recording(out))


def test_the_layer_between_two_tools_is_named(tmp_path):
    summary = findings(tmp_path, f"The guest:\n{iostat(40)}\nThe host:\n{esxtop(0.5, 0.3)}")
    (finding,) = summary["findings"]
    assert (finding["id"], finding["device"], finding["severity"]) == ("bottleneck-between", "sda", "warning")
    assert "iostat has 40 ms for an I/O on average, esxtop 500 us at most (naa.0)" in finding["summary"]
    assert "the guest's queue and driver, or the virtual adapter" in finding["summary"]
    assert "bottleneck-between" not in str(summary["findings_by"])


EVENTS = {
    "ext4slower": "Tracing ext4 operations slower than 1 ms\n"
    "TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME\n",
    "biosnoop": "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES   LAT(ms)\n",
}


def events(tool, ms):
    """A table with 150 rows of a tool."""
    rows = {
        "ext4slower": "10:00:{:02} fio            17     R 4096    {}        {:.2f} a.bin\n",
        "biosnoop": "{:.6f}    fio            17      vdb       R {:<10} 4096      {:.2f}\n",
    }
    return EVENTS[tool] + "".join(rows[tool].format(at // 5, at * 8, ms) for at in range(150)) + "\n"


def undated(text):
    """Times of day, or none, are of no date: the tables of a text are compared if they are of one time."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("2026-"))


def biolatency(ms):
    head = "     msecs               : count     distribution\n"
    rows = ((0 if at == 0 else 2**at, 2 ** (at + 1) - 1, 200 * (2**at <= ms < 2 ** (at + 1))) for at in range(7))
    table = "".join(f"{low:>10} -> {high:<10} : {n:<8} |{'*' * 40 * (n > 0):<40}|\n" for low, high, n in rows)
    return f"Tracing block device I/O... Hit Ctrl-C to end.\n\n{head}{table}\n"


def test_operations_on_files_are_above_the_block_layer(tmp_path):
    (finding,) = findings(tmp_path, f"{events('ext4slower', 40)}\n{undated(iostat(0.5))}")["findings"]
    assert (finding["id"], finding["device"]) == ("bottleneck-between", "ext4")
    assert "a table of operations on files has 40 ms for an I/O on average, iostat 500 us" in finding["summary"]
    assert "between the file system and the block layer" in finding["summary"]


@pytest.mark.parametrize(
    "text",
    [
        events("biosnoop", 40) + undated(iostat(0.5)),  # both in the block layer
        biolatency(40) + undated(iostat(0.5)),
        biolatency(40).replace("Tracing block device I/O...", "Tracing vfs_read. ")
        + undated(iostat(0.5)),  # where is it?
        iostat(40) + esxtop(0.5, 12),  # the slowest disk below may be its own
        iostat(40) + iostat(0.5, 300, "sdb"),  # of one tool: two disks
        iostat(3) + esxtop(0.5),  # too little to matter
        esxtop(40) + iostat(0.5),  # slow below, and fast above: a cache
        iostat(40),
    ],
)
def test_times_that_do_not_contradict_each_other_are_no_finding(tmp_path, text):
    assert not findings(tmp_path, text)["findings"]
