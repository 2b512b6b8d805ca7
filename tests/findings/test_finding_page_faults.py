"""page-faults: reads of mapped files, and reads that are something else."""

from dataclasses import replace

import pytest
from finding_cases import disk, done, facts_of, found, frame, hist, timed

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import FAULTS
from latmon.model import measurements
from latmon.model.frame import SWAP, DeviceReport
from latmon.model.host_context import interval_value
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.memory import Faulting

RULE = "page-faults"
GEOSEARCH = {Faulting("/app", "geosearch/7"): 1800, Faulting("/", "sh/9"): 20}
S = 1_000_000


def load(faults_per_s=370, reads_per_s=350, us=10_500, *, processes=GEOSEARCH, size=4096, blocks=12, **context):
    """Return windows of 5 s with so many major faults, and reads of a disk."""
    values = {"major_faults": faults_per_s, "file_reloads": 0, **context}
    rates = {name: interval_value(5 * value, 5 * S) for name, value in values.items()}
    each = [
        frame(
            100 + 5 * at,
            histograms=timed("sda", ((5 * reads_per_s, {"hba": us}),)) if reads_per_s else {},
            kernel=done("sda", 5 * reads_per_s, size=size),
            host_context=rates,
        )
        for at in range(blocks)
    ]
    return [replace(frame, tables={**frame.tables, measurements.MAJOR_FAULTS: processes}) for frame in each]


def test_the_program_the_device_and_the_size_of_a_read_are_named():
    (finding,) = found(RULE, load(), [disk()])
    assert (finding.severity, finding.device) == ("notice", "sda")
    assert finding.summary == (
        "sda: geosearch (pid 7) waits in major page faults: 370 a second read pages of mapped files, 4 KiB at a time, "
        "10.5 ms each"
    )
    assert finding.short == "sda: geosearch waits in page faults, 10.5 ms each: 370/s of 4 KiB"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["program"] == "geosearch (pid 7) has 99% of those of all processes"
    assert facts["waiting"] == "3.9 threads wait in faults at a time, on average"
    assert facts["file_reloads"].startswith("0 pages of files a second are read again")
    assert finding.steps[0].commands[0] == "grep ' /' /proc/7/maps"


def test_a_program_that_is_not_known_is_not_named():
    (finding,) = found(RULE, load(processes={}), [disk()])
    assert finding.summary.startswith("sda: a program waits in major page faults")
    assert "/proc/PID/maps" in finding.steps[0].commands[0]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(load(faults_per_s=40), id="the reads are of something else"),
        pytest.param(load(reads_per_s=20), id="the faults are of another device"),
        pytest.param(load(us=100), id="a fast device"),
        pytest.param(load(blocks=2) + load(faults_per_s=0, reads_per_s=0)[2:], id="a program's start"),
    ],
)
def test_other_reads_are_no_finding(frames):
    assert found(RULE, frames, [disk()]) == []


def issued(frames, *readers):
    """Add the reads of sda by programs, as (name, pid, reads)."""
    rows = {
        Issuer("sda", "read", "/", pid=pid, comm=name): IssuedIO(n, n * 4096, hist({10_500: n}))
        for name, pid, n in readers
    }
    return [replace(each, tables={**each.tables, measurements.ISSUERS: rows}) for each in frames]


def test_the_reads_of_a_program_without_faults_are_not_those_for_the_faults_of_another():
    """Faults of a program on another disk were said to be the reads of a database on this one."""
    assert found(RULE, issued(load(), ("postgres", 90, 1_750)), [disk()]) == []


@pytest.mark.parametrize("reader", [("geosearch", 7, 1_700), ("io-worker", 7, 1_700), ("others", 0, 1_700)])
def test_a_program_whose_reads_are_traced_is_named(reader):
    (finding,) = found(RULE, issued(load(), reader, ("postgres", 90, 50)), [disk()])
    assert "geosearch (pid 7) waits" in finding.summary


def test_a_program_that_reads_another_device_is_not_named_where_a_second_one_has_faults():
    processes = {Faulting("/app", "chrome/7"): 1_000, Faulting("/", "geosearch/8"): 800}
    frames = issued(load(processes=processes), ("geosearch", 8, 900), ("postgres", 90, 50))
    (finding,) = found(RULE, frames, [disk()])
    assert finding.summary.startswith("sda: a program waits in major page faults")


@pytest.mark.parametrize(
    ("swap_ins", "place"), [pytest.param(370, "sda2", id="swap-ins"), pytest.param(30, "whole", id="a swap disk")]
)
def test_pages_that_are_read_from_swap_are_not_of_mapped_files(swap_ins, place):
    device = disk(reports=(DeviceReport(SWAP, place, "/proc/swaps"),))
    assert found(RULE, load(swap_ins=swap_ins, swap_outs=0), [device]) == []


def test_it_needs_the_host_s_count_of_major_faults():
    assert RULE in not_evaluated(facts_of([frame(100)], [disk()]))[FAULTS]
    assert FAULTS not in not_evaluated(facts_of(load(), [disk()]))
