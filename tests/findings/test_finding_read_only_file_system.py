"""read-only-file-system: what the kernel made read-only after an error, since when, why, and who wrote there."""

import pytest
from finding_cases import disk, facts_of, found, frame, lasting

from latmon.findings.engine import not_evaluated, unexplained
from latmon.findings.rule import MOUNTS, SHORT_CELLS
from latmon.findings.rules.read_only_file_system import ID
from latmon.model.frame import (
    READ_ONLY_CAUSE,
    READ_ONLY_KIND,
    READ_ONLY_MOUNT,
    READ_ONLY_SINCE,
    DeviceReport,
)
from latmon.model.measurements import ERRORS, ISSUERS, SYNCS
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.journals import Syncing, Syncs
from latmon.support.units import clock, rfc3339

IO_ERRORS = "io-errors"


def read_only(kind="ext4", mount="/srv/db", cause="journal aborted (I/O error)", since=""):
    values = {READ_ONLY_KIND: kind, READ_ONLY_MOUNT: mount, READ_ONLY_CAUSE: cause, READ_ONLY_SINCE: since}
    return disk(reports=tuple(DeviceReport(name, value, "mountinfo") for name, value in values.items() if value))


def failed(op="write", ios=2):
    return {ERRORS: {FailedIO("sda", op, "I/O error"): ios}}


def wrote(name="orderd"):
    return {ISSUERS: {Issuer("sda", "write", "/app", "", 7, name): IssuedIO(1, 8192)}}


def finding_of(device, tables=None, rule=ID, **values):
    return found(rule, lasting(2, tables=tables or {}), [device], **values)


def test_a_journal_that_could_not_be_written():
    last = lasting(2)[-1]
    since = last.wall - 3
    (finding,) = finding_of(read_only(since=rfc3339(since, "seconds")), failed() | wrote())
    at = clock(since)
    assert (finding.severity, finding.device) == ("critical", "sda")
    assert finding.summary == (
        f"sda: /srv/db (ext4) is read-only since {at} (4 writes failed: I/O error; journal aborted (I/O error)): "
        "writes, creates and deletes fail (EROFS); orderd (pid 7) wrote most to sda in the last minute"
    )
    assert finding.short == f"sda: /srv/db is read-only since {at} after failed writes"
    assert finding.began is not None
    assert finding.began.wall == pytest.approx(since, abs=1)
    steps = " ".join(step.text for step in finding.steps)
    for text in ("e2fsck -f", "umount /srv/db", "why writes of sda fail", "dmesg"):
        assert text in steps


def test_it_lasts_longer_than_the_failed_writes():
    (finding,) = finding_of(read_only())
    assert finding.summary.startswith("sda: /srv/db (ext4) is read-only (journal aborted (I/O error)): writes, creates")
    assert finding.short == "sda: /srv/db is read-only; journal aborted"
    assert "why writes of sda fail" in " ".join(step.text for step in finding.steps)


def test_who_wrote_there_is_in_the_short_text_where_it_has_room():
    (finding,) = finding_of(read_only(), wrote())
    assert finding.short == "sda: /srv/db is read-only; journal aborted; orderd wrote there"


def test_who_synced_there_is_named_where_writers_are_not_known():
    syncs = {SYNCS: {Syncing("sda", "orderd/7"): Syncs(90, 400_000), Syncing("sdb", "db/8"): Syncs(900, 400_000)}}
    (finding,) = finding_of(read_only(), syncs)
    assert finding.summary.endswith("; orderd (pid 7) synced files on sda in the last minute")
    assert finding.short == "sda: /srv/db is read-only; journal aborted; orderd wrote there"


def test_xfs_is_shut_down():
    (finding,) = finding_of(read_only("xfs", cause=""))
    assert finding.summary == "sda: /srv/db (xfs) is shut down: all calls on its files fail (EIO)"
    assert "xfs_repair" in " ".join(step.what for step in finding.steps)


def test_a_hidden_mount():
    (finding,) = finding_of(read_only(mount=""))
    assert finding.short == "sda: a file system is read-only; journal aborted"
    assert "umount /MOUNT" in " ".join(step.text for step in finding.steps)


def test_a_long_path_is_one_line():
    since = rfc3339(lasting(2)[-1].wall - 3, "seconds")
    (finding,) = finding_of(read_only(mount=f"/srv/{'x' * 200}", since=since), failed() | wrote())
    assert len(finding.short) <= SHORT_CELLS
    assert "is read-only since" in finding.short


@pytest.mark.parametrize("since", ["yesterday", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_a_time_that_can_not_be_is_not_known(since):
    (finding,) = finding_of(read_only(since=since))
    assert finding.began is None
    assert "since" not in finding.summary


def test_other_disks_have_no_finding():
    assert finding_of(disk(), failed()) == []


@pytest.mark.parametrize(
    ("device", "op", "ids"),
    [
        pytest.param(read_only(), "write", {ID}, id="named with the file system"),
        pytest.param(read_only(), "read", {ID, IO_ERRORS}, id="failed reads are news"),
        pytest.param(disk(), "write", {IO_ERRORS}, id="no file system is read-only"),
    ],
)
def test_failed_writes_are_named_once(device, op, ids):
    both = [*finding_of(device, failed(op)), *finding_of(device, failed(op), rule=IO_ERRORS)]
    assert {finding.id for finding in unexplained(both)} == ids


def test_without_mounts_the_rule_is_not_evaluated():
    assert ID in not_evaluated(facts_of([frame()]))[MOUNTS]
    assert MOUNTS not in not_evaluated(facts_of([frame()], [read_only()]))
