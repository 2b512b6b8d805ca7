"""full-journal: who waits for room in a journal, who fills it, and journals that commit well."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, frame, hist

from latmon.findings.engine import not_evaluated, unexplained
from latmon.findings.rule import SLEEPS
from latmon.model import measurements
from latmon.model.measurements.dirtiers import Dirtied, Dirtier
from latmon.model.measurements.file_sleeps import FileSleep, JournalLooks, JournalOf, LockHolder
from latmon.model.measurements.file_system_space import SpaceLooks, SpaceOf
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.journals import JournalWriter, JournalWrites
from latmon.model.measurements.server_waits import WaitedTime

RULE = "full-journal"
LOOP0 = disk("loop0")
MB = 1 << 20
MOUNT = "/srv/a.fs"
PUPPET = FileSleep("loop0", MOUNT, "ext4", "log space", "chown", "", "puppet/9")
MAILDROP = FileSleep("", "", "ext4", "log space", "create", "", "maildrop/7")
"""Its calls have paths. The other thread waits for the lock of the directory that the first one has."""
BEHIND = MAILDROP._replace(cause="lock", kind="")
SIZE = {JournalOf("loop0", MOUNT): JournalLooks(5, 10 * MB)}
SEEN = {
    PUPPET: WaitedTime(4_500_000, 900),
    MAILDROP: WaitedTime(2_500_000, 16),
    MAILDROP._replace(cause="journal"): WaitedTime(1_000_000, 4),
    BEHIND: WaitedTime(3_500_000, 16),
}


def blocks(rows=None, *, n=4, **tables):
    """Blocks of 5 s of looks that have seen these sleeps."""
    joined = {measurements.FILE_SLEEPS: SEEN if rows is None else rows, measurements.JOURNAL_SIZES: SIZE}
    joined |= {getattr(measurements, name.upper()): table for name, table in tables.items()}
    return [frame(100 + 5 * at, tables=joined) for at in range(n)]


def test_who_waits_for_room_and_who_fills_the_journal_are_named_with_its_size():
    """Creates that waited seconds for the journal were said to be paused for dirty pages."""
    (finding,) = found(RULE, blocks(), [LOOP0])
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert finding.summary == (
        "loop0: maildrop (pid 7) waits 70% of the time for room in the journal (2 MiB) of the ext4 on /srv/a.fs, in "
        "its creates; puppet (pid 9) changes files there most often"
    )
    assert finding.short == "loop0: maildrop waits for the journal: full (2 MiB), puppet fills it"
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["journal_bytes"].value == 2 * MB
    assert facts["room_share"].value == pytest.approx(7 / 8, abs=0.01)
    assert facts["maildrop_us"].value == 175_000
    assert facts["locks"].value == 0.7
    assert "its calls have paths" in facts["mount"].text
    commands = [command for step in finding.steps for command in step.commands]
    assert "tune2fs -J size=128 DEVICE" in commands
    assert any("puppet (pid 9)" in step.what for step in finding.steps)


def test_blocks_of_the_journal_that_were_counted_name_who_fills_it():
    writers = {
        JournalWriter("loop0", "puppet/9"): JournalWrites(1000, 930),
        JournalWriter("loop0", "maildrop/7"): JournalWrites(20, 70),
        JournalWriter("sda", "cron/3"): JournalWrites(9, 5000),
    }
    (finding,) = found(RULE, blocks(journal_writers=writers), [LOOP0])
    assert finding.summary.endswith("; puppet (pid 9) writes 93% of what is in it")


def test_blocks_of_another_journal_on_the_disk_are_not_of_this_one():
    """Blocks are counted by device: a program on another partition was said to fill the journal."""
    space = {SpaceOf("loop0", mount, "ext4"): SpaceLooks(1, 9, 9, 9, 0, 0, 0, 1) for mount in (MOUNT, "/backup")}
    writers = {JournalWriter("loop0", "backup/1"): JournalWrites(1000, 9000)}
    (finding,) = found(RULE, blocks(journal_writers=writers, file_system_space=space), [LOOP0])
    assert finding.summary.endswith("; puppet (pid 9) changes files there most often")
    assert "backup" not in finding.short


def test_who_fills_it_is_not_known_where_names_are_hidden():
    """Hidden names are one: the program that waits was said to fill the journal itself."""
    rows = {row._replace(process=""): time for row, time in SEEN.items()}
    writers = {JournalWriter("loop0", ""): JournalWrites(1000, 930)}
    (finding,) = found(RULE, blocks(rows, journal_writers=writers), [LOOP0])
    assert "writes" not in finding.summary
    assert finding.steps[1].what.startswith("give it a larger journal")


def test_the_time_of_a_traced_operation_is_there():
    files = {FileSeries("loop0", "open", MOUNT, "ext4", "device"): hist({310_000: 16})}
    times = {FilePart("loop0", "open", MOUNT, "ext4", "own I/O"): 4_000_000}
    (finding,) = found(RULE, blocks(files=files, file_times=times), [LOOP0])
    assert "in its creates, which take 310 ms on average; puppet" in finding.summary


def test_a_transaction_is_no_room():
    rows = {row._replace(cause="journal"): time for row, time in SEEN.items() if row.cause != "lock"}
    (finding,) = found(RULE, blocks(rows), [LOOP0])
    assert "for a transaction of the journal (2 MiB) of the ext4" in finding.summary
    assert finding.short == "loop0: maildrop waits for the journal (2 MiB), puppet fills it"


def test_the_log_of_xfs_is_made_larger_by_mkfs():
    rows = {PUPPET._replace(kind="xfs", process="untar/4"): WaitedTime(4_000_000, 100)}
    (finding,) = found(RULE, blocks(rows, journal_sizes={}), [LOOP0])
    assert finding.summary == (
        "loop0: untar (pid 4) waits 80% of the time for room in the log of the xfs on /srv/a.fs, in its chowns"
    )
    assert "mkfs.xfs -l size=" in finding.steps[-1].what


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        pytest.param({PUPPET._replace(op="fsync"): WaitedTime(4_500_000, 900)}, {}, id="syncs, which are slow-journal"),
        pytest.param({PUPPET: WaitedTime(4_500_000, 9_000)}, {}, id="a journal that commits well"),
        pytest.param({PUPPET: WaitedTime(800_000, 90)}, {}, id="little of the time"),
        pytest.param({BEHIND: WaitedTime(4_500_000, 90)}, {}, id="a lock alone"),
        pytest.param(SEEN, {"n": 1}, id="a burst"),
    ],
)
def test_other_waits_are_no_finding(rows, changed):
    assert found(RULE, blocks(rows, **changed), [LOOP0]) == []


def test_the_lock_of_a_directory_that_such_a_thread_has_is_explained_and_so_are_pauses_for_dirty_pages():
    dirtiers = {Dirtier("loop0", "maildrop/7"): Dirtied(1_000_000, 33_000)}
    frames = blocks(dirtiers=dirtiers)
    findings = [
        finding
        for rule in (RULE, "not-the-disk", "dirty-throttled")
        for finding in found(rule, frames, [LOOP0], counted=("dirtiers",))
    ]
    assert {finding.id for finding in findings} == {RULE, "not-the-disk", "dirty-throttled"}
    assert [finding.id for finding in unexplained(findings)] == [RULE]


@pytest.mark.parametrize("has_waiter", [True, False])
def test_traced_opens_that_wait_for_the_directory_are_explained_too(has_waiter):
    """They came before the journal as soon as they were traced."""
    files = {FileSeries("loop0", "open", MOUNT, "ext4", "device"): hist({167_000: 18})}
    times = {
        FilePart("loop0", "open", MOUNT, "ext4", name): us for name, us in (("lock", 2_500_000), ("own I/O", 420_000))
    }
    rows = {row: time for row, time in SEEN.items() if has_waiter or row != BEHIND}
    frames = blocks(rows, files=files, file_times=times)
    findings = [finding for rule in (RULE, "not-the-disk") for finding in found(rule, frames, [LOOP0])]
    assert {finding.id for finding in findings} == {RULE, "not-the-disk"}
    assert [finding.id for finding in unexplained(findings)] == [RULE]


def test_a_lock_whose_holder_waits_for_something_else_is_a_finding_of_its_own():
    lock = BEHIND._replace(device="loop0", mount=MOUNT, op="read", file="x", process="searchapi/5")
    rows = {**SEEN, lock: WaitedTime(4_000_000, 300)}
    holder = {LockHolder(MOUNT, "x", "write", "reindexer/6"): 4_000_000}
    frames = blocks({row: time for row, time in rows.items() if row != BEHIND}, lock_holders=holder)
    findings = [finding for rule in (RULE, "not-the-disk") for finding in found(rule, frames, [LOOP0])]
    assert {finding.id for finding in unexplained(findings)} == {RULE, "not-the-disk"}


def test_it_needs_the_functions_in_which_threads_sleep():
    assert RULE in not_evaluated(facts_of([frame()]))[SLEEPS]
    assert SLEEPS not in not_evaluated(facts_of([frame()], counted=("file_sleeps",)))


def test_in_a_fleet_each_host_has_its_own():
    rows = {row._replace(device=f"db1:{row.device}", mount=f"db1:{row.mount}"): time for row, time in SEEN.items()}
    sizes = {JournalOf("db1:loop0", f"db1:{MOUNT}"): JournalLooks(1, 2 * MB)}
    frames = [replace(block, tables={**block.tables, measurements.JOURNAL_SIZES: sizes}) for block in blocks(rows)]
    (finding,) = found(RULE, frames, [disk("db1:loop0")], backend="fleet")
    assert finding.device == "db1:loop0"
    assert "room in the journal (2 MiB)" in finding.summary
