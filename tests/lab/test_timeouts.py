"""A real kernel whose commands time out, in guests: SCSI, NVMe; an md array that is checked or lacks a disk; slow NFS.

Each has its healthy twin: a disk that is as slow and answers in time, an array that does nothing.
"""

import functools
import os
import shutil
from collections import Counter

import cells
import pytest
from guests import run
from test_findings import report, seconds_until, urgent

from latmon.model.frame import Frame, Mark
from latmon.model.histogram import merge
from latmon.model.measurements import FILES, HUNG_OPERATIONS, NFS_OPERATIONS, NFS_REQUESTS, RECOVERIES
from latmon.model.measurements.recoveries import TIMED_OUT
from latmon.recording.reader import open_recording

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests are built with debootstrap"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-system-x86_64", "debootstrap"))), reason="needs qemu and debootstrap"
    ),
]
DRIVE = (
    "-drive driver=null-co,read-zeroes=on,size=1G,if=none,id=throttled,throttling.iops-total=20 "
    "-device nvme,serial=LATMON9,drive=throttled"
)
"""An NVMe drive that completes 20 commands a second."""
GUESTS = {
    "scsi": (),
    "nvme": ("--append", "nvme_core.io_timeout=2 log_buf_len=16M", "--qemu", DRIVE),
    "array": (),
}
ID = "command-timeouts"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return what a guest reported, and the directory with its recording; a guest is booted once."""

    @functools.cache
    def made(load):
        directory = tmp_path_factory.mktemp(load)
        words = ("--smp", 2, "--mem", 2048, *GUESTS[load])
        result = run(directory, "trixie", ("guest_timeouts.py", load), *words, on_demand=(), packed=True)
        assert result["exit"] == 0, result["stderr"]
        return result, directory

    return made


@pytest.fixture
def reports(recorded, tmp_path):
    """Return the reports of the load alone and with an effect, and what the guest knows of the effect."""

    def made(load, effect):
        result, directory = recorded(load)
        facts, whole = result["effects"][effect], directory / "all.latmon.jsonl.gz"
        calm = cells.cut(whole, *facts["calm_us"], tmp_path / "calm.latmon.jsonl.gz")
        sick = cells.cut(whole, *facts["sick_us"], tmp_path / f"{effect}.latmon.jsonl.gz")
        print(effect, facts)
        return report(calm), report(sick), facts

    return made


def of_rule(found, rule=ID):
    return [finding for finding in found["findings"] if finding["id"] == rule]


@pytest.mark.parametrize(("load", "effect"), [("scsi", "slow"), ("nvme", "nvme_slow")])
def test_a_disk_that_is_slow_and_answers_in_time_has_no_time_outs(reports, load, effect):
    calm, slow, facts = reports(load, effect)
    (device,) = facts["devices"]
    assert of_rule(calm) == of_rule(slow) == []
    assert slow["devices"][device]["ops"]["read"]["latency_us"]["p50"] > 500_000


def test_scsi_commands_that_are_not_answered_are_counted(reports):
    """The kernel's log has no word of them: they are aborted, and sent again."""
    calm, sick, facts = reports("scsi", "unanswered")
    (finding,) = of_rule(sick)
    assert (finding["device"], finding["severity"]) == (facts["devices"][0], "warning")
    assert seconds_until(sick, finding) <= 15
    assert [rule for rule, where in urgent(sick) if where == finding["device"]] == [ID]
    values = {name: fact["value"] for name, fact in finding["evidence"].items()}
    assert 0 < values["timed_out"] <= facts["known"]["time_outs"]
    assert values["timed_out"] > facts["known"]["time_outs"] / 2  # of its worst minute
    assert values["timer"] == 4_000_000
    assert urgent(calm) == []


def test_all_time_outs_are_recorded_and_marked(recorded):
    result, directory = recorded("scsi")
    effects = [effect["known"] for effect in result["effects"].values()]
    counted, marks = Counter(), []
    for item in open_recording(directory / "all.latmon.jsonl.gz"):
        if isinstance(item, Frame):
            counted.update({row.event: events for row, events in item[RECOVERIES].items()})
        elif isinstance(item, Mark):
            marks.append(item)
    known = sum(effect["time_outs"] for effect in effects)
    assert known <= counted[TIMED_OUT] <= known + 2  # some come between two effects
    of_counter = [int(mark.text.split()[0]) for mark in marks if mark.is_counted]
    assert sum(of_counter) == counted[TIMED_OUT]


def test_a_scsi_disk_that_is_given_up_is_critical(reports):
    _, sick, facts = reports("scsi", "given_up")
    assert facts["known"]["state"] == "offline"
    (finding,) = of_rule(sick)
    assert finding["severity"] == "critical"
    values = {name: fact["value"] for name, fact in finding["evidence"].items()}
    assert 0 < values["timed_out"] <= facts["known"]["time_outs"]  # without those of the first window
    assert values["resets_reported"] > 0
    assert values["given_up"] > 0
    assert finding["summary"].endswith(" and the kernel gave it up")


def test_nvme_commands_that_are_not_answered_are_counted_by_the_kernel_s_log(recorded, reports):
    calm, sick, facts = reports("nvme", "nvme_unanswered")
    (finding,) = of_rule(sick)
    assert (finding["device"], finding["severity"]) == (facts["devices"][0], "warning")
    values = {name: fact["value"] for name, fact in finding["evidence"].items()}
    logged = sum("timeout, " in line for line in recorded("nvme")[0]["log"].splitlines())
    assert logged / 2 < values["timed_out"] <= logged
    assert seconds_until(sick, finding) <= 15
    assert urgent(calm) == []


def test_an_array_that_is_checked_is_named(reports):
    calm, sick, facts = reports("array", "checked")
    assert facts["known"]["action"] == "check"
    (finding,) = of_rule(sick, "maintenance")
    assert finding["device"] == "md0"
    assert finding["severity"] in ("notice", "warning")  # by how slow the emulated disks are beside it
    assert finding["summary"].startswith("md0: md check runs")
    assert of_rule(calm, "maintenance") == []


def test_an_array_without_a_disk_is_named(reports):
    _, sick, facts = reports("array", "degraded")
    assert facts["known"]["degraded"] == "1"
    (finding,) = of_rule(sick, "maintenance")
    assert finding["device"] == "md0"
    assert "1" in finding["summary"]


@pytest.fixture(scope="module")
def nfs(tmp_path_factory):
    """Return what a guest with a slow and then silent NFS server reported, and the directory with its recording."""
    directory = tmp_path_factory.mktemp("nfs")
    words = ("--smp", 2, "--mem", 2048, "--append", "no_timer_check")
    result = run(directory, "trixie", ("guest_slow_nfs.py",), *words, on_demand=("files",), packed=True)
    assert result["exit"] == 0, result["stderr"]
    return result, directory


def rows_within(directory, span, table):
    """Return the rows of the frames that lie in a span."""
    begin_us, end_us = span["us"]
    rows = []
    for frame in open_recording(directory / "all.latmon.jsonl.gz"):
        if isinstance(frame, Frame) and begin_us <= frame.mono_us - frame.dt_us and frame.mono_us <= end_us:
            rows += frame[table].items()
    return rows


def test_files_of_a_slow_nfs_server_take_as_long_as_their_program_waits(nfs):
    """Of a server behind a network of 40 ms each way, and of the same without it."""
    result, directory = nfs
    for name in ("quick", "slow"):
        span = result["spans"][name]
        histograms = {"open": [], "close": []}
        for series, histogram in rows_within(directory, span, FILES):
            if series.mount == "/mnt/nfs" and series.op in histograms:
                histograms[series.op].append(histogram)
        for op, actual_histogram in histograms.items():
            mean_ms = merge(actual_histogram).mean / 1000
            own_ms = sum(span["ms"][op]) / len(span["ms"][op])
            print(name, op, merge(actual_histogram).count, mean_ms, own_ms)
            assert mean_ms == pytest.approx(own_ms, rel=0.2)
            assert name == "quick" or mean_ms > 150


def calls_within(directory, span):
    """Return op -> NFS calls of the looks that began in a span: the first row of an op has calls of before."""
    by_op = {}
    for key, row in rows_within(directory, span, NFS_OPERATIONS):
        if key.mount == "/mnt/nfs":
            by_op.setdefault(key.op, []).append(row)
    return {op: NFS_OPERATIONS.value.sum_values(rows[1:]) for op, rows in by_op.items() if rows[1:]}


def test_the_round_trips_of_a_slow_nfs_server_are_what_its_program_waits_for(nfs):
    """The program calls one after the other, so that its calls wait for one round trip at a time."""
    result, directory = nfs
    span = result["spans"]["slow"]
    calls = calls_within(directory, span)
    write = calls["WRITE"]
    execute_us = sum(row.execute_us for row in calls.values())
    calls_ms = execute_us / write.calls / 1000
    own_ms = sum(map(sum, span["ms"].values())) / len(span["ms"]["close"])
    share = sum(row.round_trip_us for row in calls.values()) / execute_us
    print({op: (row.calls, round(row.round_trip_mean_us / 1000, 1)) for op, row in calls.items()})
    print("calls", calls_ms, "program", own_ms, "share of round trips", share)
    assert sum(row.retransmissions + row.timeouts for row in calls.values()) == 0
    assert min(row.round_trip_mean_us for row in calls.values()) >= 80_000
    assert calls_ms == pytest.approx(own_ms, rel=0.3)
    assert share > 0.9


def test_a_silent_nfs_server_has_requests_without_answers(nfs):
    result, directory = nfs
    requests = [row for _, row in rows_within(directory, result["spans"]["silent"], NFS_REQUESTS)]
    assert sum(row.sent for row in requests) >= 1
    assert sum(row.answered for row in requests[1:]) == 0
    assert sum(row.waited_us for row in requests) > 10_000_000


def test_operations_that_hang_on_a_silent_nfs_server_have_its_silence_as_evidence(nfs, tmp_path):
    result, directory = nfs
    span = result["spans"]["silent"]
    if not rows_within(directory, span, HUNG_OPERATIONS):
        pytest.skip("the guest was too slow to look at its threads twice")
    sick = cells.cut(directory / "all.latmon.jsonl.gz", *span["us"], tmp_path / "silent.latmon.jsonl.gz")
    (finding,) = of_rule(report(sick), "hung-file-system")
    assert "the server of /mnt/nfs is silent" in finding["summary"]
    assert finding["evidence"]["nfs_silent_us"]["value"] > 10_000_000
