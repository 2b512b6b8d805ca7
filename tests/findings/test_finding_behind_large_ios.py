"""behind-large-ios: reads that wait behind the writeback of a dump, and loads that only look like it."""

import pytest
from finding_cases import disk, done, found, frame, hist, timed

from latmon.findings.rules import behind_large_ios
from latmon.model import measurements
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.written import Writer

RULE = "behind-large-ios"
SDA = disk()
MIB = 1 << 20
DUMP = Writer("nightlydump/77")
FLUSHERS = (("kworker/u8:2", "write", 60, 400_000, MIB), ("kworker/u8:9+loop0", "write", 40, 360_000, MIB))
READER = ("dbserver", "read", 18, 295_000, 4096)


def issued(*rows):
    """Return a frame's issuers of (program, op, I/Os, us of each, size)."""
    return {
        Issuer("sda", op, "/", pid=100 + number, comm=program): IssuedIO(ios, ios * size, hist({us: ios}))
        for number, (program, op, ios, us, size) in enumerate(rows)
    }


def findings(*rows, written=None, elsewhere=0, blocks=6):
    tables = {measurements.ISSUERS: issued(*rows), measurements.WRITTEN: written or {}}
    kernel = done("sda", 100, "write", MIB) | done("sdb", 100, "write", elsewhere // 100)
    frames = [frame(100 + 5 * at, tables=tables, kernel=kernel) for at in range(blocks)]
    return found(RULE, frames, [SDA, disk("sdb")])


def test_reads_behind_writeback_name_the_program_that_wrote():
    (finding,) = findings(*FLUSHERS, READER, written={DUMP: 160 * MIB, Writer("cp/8"): MIB})
    assert finding.summary == (
        "sda: reads of dbserver take 295 ms behind 8 writes of 1 MiB, "
        "which the writeback of nightlydump keeps in flight"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["in_flight"] == pytest.approx((60 * 0.4 + 40 * 0.36) / 5, rel=0.05)
    assert facts["share"] == pytest.approx(1.0, abs=0.01)
    assert facts["writer"] == "nightlydump"
    assert finding.share == pytest.approx(18 * 295 / (18 * 295 + 60 * 400 + 40 * 360), rel=0.02)


def test_a_backup_with_direct_io_is_named_itself():
    (finding,) = findings(("backup", "read", 100, 380_000, MIB), READER)
    assert finding.summary.endswith("behind 8 reads of 1 MiB, which backup keeps in flight")
    assert not any("writeback" in fact.text for fact in finding.facts)


def test_where_no_counter_was_read_the_writer_is_not_known():
    (finding,) = findings(*FLUSHERS, READER)
    assert "the writeback of dirty pages" in finding.summary
    assert {fact.name: fact.text for fact in finding.facts}["writer"].startswith(
        "which program made these pages dirty is not known"
    )


@pytest.mark.parametrize(
    "rows",
    [
        (*FLUSHERS, ("dbserver", "read", 18, 8_000, 4096)),  # the device serves them by turns
        (*FLUSHERS, ("dbserver", "read", 18, 295_000, MIB // 4)),  # as large
        (*FLUSHERS, ("dbserver", "read", 180, 295_000, 4096)),  # as many in flight itself
        (("kworker/u8:2", "write", 10, 400_000, MIB), READER),  # hardly one in flight
        (*FLUSHERS, ("dbserver", "read", 2, 295_000, 4096)),  # too few to be a mean
        (*FLUSHERS, ("jbd2/sda-8", "write", 18, 295_000, 4096)),  # nobody waits but the kernel
    ],
)
def test_other_loads_are_no_finding(rows):
    assert findings(*rows, written={DUMP: 160 * MIB}) == []


def test_a_burst_in_a_minute_is_no_finding():
    quiet = [frame(100 + 5 * at) for at in range(10)]
    busy = frame(150, tables={measurements.ISSUERS: issued(*FLUSHERS, READER)})
    assert found(RULE, [*quiet, busy], [SDA]) == []


def test_a_program_that_may_write_to_another_disk_is_not_named():
    (finding,) = findings(*FLUSHERS, READER, written={DUMP: 160 * MIB}, elsewhere=500 * MIB)
    assert "nightlydump" not in finding.summary
    (finding,) = findings(*FLUSHERS, READER, written={Writer("logger/9"): 10 * MIB})
    assert "logger" not in finding.summary


def test_a_disk_that_became_slow_is_another_rule_s_finding():
    assert {"slower-than-before", "peer-outlier", "device-pauses"} <= set(behind_large_ios.RULE.explained_by)


def test_a_device_that_did_as_much_before_and_quicker_is_none():
    quick = (("kworker/u8:2", "write", 120, 9_000, MIB), ("dbserver", "read", 150, 1_000, 4096))
    frames = [
        frame(
            100 + 5 * at,
            tables={measurements.ISSUERS: issued(*rows)},
            kernel=done("sda", sum(row[2] for row in rows), "write", MIB),
            histograms=timed("sda", [(row[2], {"total": row[3]}) for row in rows], "write"),
        )
        for at, rows in enumerate([quick] * 2 + [(*FLUSHERS, READER)] * 4)
    ]
    assert found(RULE, frames, [SDA]) == []
    assert found(RULE, frames[2:], [SDA])
