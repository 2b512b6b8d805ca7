"""file-system-errors: wrong data that a device returned with success, and what is no such thing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from finding_cases import disk, done, facts_of, found, frame, lasting, timed

from latmon.findings.engine import RuleEngine, not_evaluated
from latmon.findings.rule import FILE_SYSTEM_ERRORS as INPUT
from latmon.findings.rules.file_system_errors import ID
from latmon.model.frame import READ_ONLY_KIND, DeviceReport, Mark, Origin
from latmon.model.measurements import DAMAGED_FILES, ERRORS, FILE_SYSTEM_ERRORS
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.file_system_errors import (
    CORRECTED,
    CORRUPT_METADATA,
    FAILED_IO,
    FOUND,
    WRONG_CHECKSUM,
    DamagedFile,
    FileSystemError,
)

COUNTED = (ERRORS.name, FILE_SYSTEM_ERRORS.name)
LOAD = {"histograms": timed("loop0", ((400, {"hba": 1050}),)), "kernel": done("loop0", 400)}
LOOP = disk("loop0")
IBDATA = DamagedFile("loop0", "/srv/db/ibdata1", "mysqld/71")


def tables(*rows, finder="btrfs", files=None):
    errors = {FileSystemError("loop0", finder, error): events for error, events in rows}
    return {FILE_SYSTEM_ERRORS: errors, DAMAGED_FILES: files or {}}


def of_errors(*rows, blocks=3, device=LOOP, **more):
    """Findings about so many errors (error, number) in each block."""
    return found(ID, lasting(blocks, tables=tables(*rows, **more), **LOAD), [device], counted=COUNTED)


def test_wrong_data_that_a_fast_device_returns_with_success():
    """80 reads/s take 1 ms; btrfs finds 11 wrong checksums a second, and logs 2 of them."""
    (finding,) = of_errors((WRONG_CHECKSUM, 55), files={IBDATA: 10})
    assert (finding.severity, finding.device) == ("critical", "loop0")
    assert finding.short == "loop0: btrfs finds wrong checksums, 11.0/s; reads of mysqld fail with EIO"
    assert finding.summary == (
        "loop0: btrfs finds wrong checksums, 11.0/s: reads of mysqld (pid 71) fail with EIO (/srv/db/ibdata1), while "
        "the device reports success"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert (facts["wrong_checksum"], facts["failed"], facts["program"]) == (165, 0, "mysqld")
    assert (facts["file_1"], "suppressed" in facts) == ("/srv/db/ibdata1", False)
    commands = [command for step in finding.steps for command in step.commands]
    assert "btrfs device stats /MOUNT" in commands
    assert "btrfs scrub start -Br /MOUNT" in commands


def test_the_rate_is_that_of_the_time_since_the_first_error():
    frames = [frame(100 + 5 * at, tables=tables((WRONG_CHECKSUM, 55)) if at > 8 else {}, **LOAD) for at in range(12)]
    (finding,) = found(ID, frames, [LOOP], counted=COUNTED)
    assert "wrong checksums, 11.0/s" in finding.summary


def test_what_is_corrected_from_another_copy_is_a_warning():
    (finding,) = of_errors((WRONG_CHECKSUM, 55), (CORRECTED, 10))
    assert (finding.severity, finding.short) == (
        "warning",
        "loop0: btrfs finds wrong checksums, 11.0/s; corrected from another copy",
    )
    (finding,) = of_errors((WRONG_CHECKSUM, 55), (CORRECTED, 1), files={IBDATA: 10})
    assert finding.severity == "critical"
    assert "reads of mysqld fail with EIO" in finding.short


def test_a_few_corrected_errors_do_not_make_the_others_harmless():
    """Where no process had a damaged file open, one line about a corrected error made 99 failed reads a warning."""
    (finding,) = of_errors((WRONG_CHECKSUM, 100), (CORRECTED, 1))
    assert finding.severity == "critical"
    assert "reads of these data fail with EIO" in finding.summary


@pytest.mark.parametrize(
    ("finder", "rows", "short"),
    [
        ("btrfs", [(WRONG_CHECKSUM, 1)], "btrfs finds wrong checksums; reads of these data fail with EIO"),
        ("ext4", [(CORRUPT_METADATA, 2)], "ext4 finds corrupt metadata; calls that need it fail"),
        (
            "xfs",
            [(CORRUPT_METADATA, 9)],
            "xfs finds corrupt metadata, at least 1.80/s; calls that need it fail",
        ),
        ("dm-verity", [(WRONG_CHECKSUM, 3)], "dm-verity finds wrong checksums; calls that need it fail"),
        ("btrfs", [(FAILED_IO, 6)], "btrfs reports failed I/Os, 1.20/s; calls that need it fail"),
    ],
)
def test_who_finds_what(finder, rows, short):
    (finding,) = of_errors(*rows, finder=finder)
    assert finding.severity == "critical"
    assert finding.short == f"loop0: {short}"


def test_lines_are_at_least_so_many():
    (finding,) = of_errors((CORRUPT_METADATA, 9), finder="xfs")
    texts = {fact.name: fact.text for fact in finding.facts}
    assert texts["corrupt_metadata"] == "xfs, corrupt metadata: at least 27 in the last minute"
    assert "suppresses" in texts["suppressed"]
    assert any("xfs_repair -n /dev/loop0" in step.commands for step in finding.steps)


def test_each_error_has_a_fact():
    (finding,) = of_errors(*((error, 2) for error in FOUND))
    assert [fact.value for fact in finding.facts][: len(FOUND)] == [6] * len(FOUND)


def test_a_healthy_file_system_has_no_finding_and_without_a_source_the_rule_is_not_evaluated():
    assert found(ID, lasting(12, **LOAD), [LOOP], counted=COUNTED) == []
    assert ID in not_evaluated(facts_of([frame(**LOAD)]))[INPUT]
    assert INPUT not in not_evaluated(facts_of([frame(**LOAD)], counted=COUNTED))


def current(frame_tables, device=LOOP):
    engine = RuleEngine(Origin("test", "here", "6.12.0", "0", counted=COUNTED), (device,))
    for each in lasting(3, tables=frame_tables, **LOAD):
        line = Mark("BTRFS warning (device loop0): csum failed", each.mono_us, each.wall, device="loop0")
        engine.take(replace(each, marks=(line,)))
    engine.finish()
    return {finding.id: finding for finding in engine.current if finding.device == "loop0"}


def test_failed_ios_of_the_device_explain_what_its_file_system_says_of_them():
    failed = {ERRORS: {FailedIO("loop0", "read", "I/O error"): 4}}
    assert current({**tables((CORRUPT_METADATA, 2), finder="xfs"), **failed}).keys() == {"io-errors"}
    both = current({**tables((WRONG_CHECKSUM, 2)), **failed})
    assert both.keys() == {"io-errors", ID}
    assert "success" not in both[ID].summary
    assert "kernel_log" in {fact.name for fact in both[ID].facts}


def test_a_file_system_that_is_read_only_then_is_the_finding():
    read_only = replace(LOOP, reports=(DeviceReport(READ_ONLY_KIND, "ext4", "/proc/self/mountinfo"),))
    assert current(tables((CORRUPT_METADATA, 1), finder="ext4"), read_only).keys() == {"read-only-file-system"}
