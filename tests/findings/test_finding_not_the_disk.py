"""not-the-disk: programs that wait for a lock, and loads that only look like them."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, frame, hist

from latmon.findings.engine import not_evaluated
from latmon.findings.rules import RULES
from latmon.model import measurements
from latmon.model.frame import FileOperation, FileSplit, FileSystem
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.nfs import NfsCalls, NfsOperation

RULE = "not-the-disk"
SDA = disk()
DATA = FileSystem("/data", "ext4", "sda")
LOCKED = {"lock": 90_000, "own I/O": 6_000, "CPU": 1_000}
"""Parts of a write of 100 ms."""
CHAIN = "rwsem_down_write_slowpath < down_write < ext4_buffered_write_iter"


def slow_write(thread, **changed):
    split = FileSplit(6_000, 1_000, 90_000, 90_000, "lock", CHAIN, "python3", thread)
    made = FileOperation(100.0, 100_000_000, "write", 100_000, "device", DATA, "db/shared", 42, "python3", split=split)
    return replace(made, **changed)


def load(parts, *, op="write", writes=40, us=100_000, its=DATA, slow=(), blocks=12):
    """Return windows of 5 s with so many operations of `us` each, whose time has these parts."""
    files = {FileSeries(its.device, op, its.mount, its.kind, "device"): hist({us: writes})}
    times = {FilePart(its.device, op, its.mount, its.kind, part): part_us * writes for part, part_us in parts.items()}
    tables = {measurements.FILES: files, measurements.FILE_TIMES: times}
    each = [frame(100 + 5 * at) for at in range(blocks)]
    return [replace(one, tables={**one.tables, **tables}, file_operations=tuple(slow)) for one in each]


def test_the_lock_the_file_and_who_had_it_are_named_with_the_device_s_share():
    (one,) = found(RULE, load(LOCKED, slow=map(slow_write, (71, 72))), [SDA])
    assert one.summary == ("sda: writes of /data/db/shared wait for a lock 90% of their time, for I/O of their own 6%")
    facts = {fact.name: fact for fact in one.facts}
    assert facts["lock_share"].value == pytest.approx(0.9, abs=0.01)
    assert facts["own_IO_share"].value == pytest.approx(0.06, abs=0.01)
    assert facts["running_share"].value == pytest.approx(0.03, abs=0.01)
    assert facts["own_us"].value == pytest.approx(6_000, rel=0.01)
    assert facts["waiting"].value == pytest.approx(0.72, abs=0.01)
    assert facts["file"].value == "/data/db/shared"
    assert CHAIN in facts["functions"].text
    assert facts["holders"].value == "python3 (2 threads)"
    assert (one.severity, one.where.screen, one.device) == ("warning", "files", "sda")


def test_its_steps_name_no_hardware_and_all_but_the_first_have_a_risk():
    (one,) = found(RULE, load(LOCKED, slow=(slow_write(71),)), [SDA])
    text = " ".join(step.what for step in one.steps)
    assert "group commit" in text
    assert not any(word in text for word in ("SSD", "device", "cache survives", "controller"))
    assert all(step.risk != "none, it only reads" for step in one.steps[1:])


def test_a_thread_of_another_program_that_has_the_lock_is_a_step():
    held = slow_write(71)
    other = replace(held, split=held.split._replace(holder="backup"))
    (one,) = found(RULE, load(LOCKED, slow=(other,)), [SDA])
    assert one.steps[1].what == "find out what backup does with the file while others wait"


@pytest.mark.parametrize("op", ["open", "unlink", "stat"])
def test_where_files_are_opened_the_directory_is_what_to_change(op):
    (one,) = found(RULE, load(LOCKED, op=op), [SDA])
    assert one.summary.startswith(f"sda: {op}s on files of /data wait for a lock")
    assert one.steps[-1].what.startswith("spread the files over several directories")


def test_renames_between_directories_take_the_lock_of_the_file_system():
    """The step was to spread the files over several directories, which makes renames wait for this lock."""
    (finding,) = found(RULE, load(LOCKED, op="rename"), [SDA])
    assert finding.steps[-1].what.startswith("rename within a directory")
    assert "s_vfs_rename_mutex" in finding.steps[-1].what
    assert not any("spread" in step.what for step in finding.steps)


def test_on_an_nfs_mount_the_server_or_the_client_is_a_fact():
    calls = {NfsOperation("/net", "WRITE"): NfsCalls(100, 0, 0, 300_000, 19_000_000, 19_300_000)}
    frames = load(LOCKED, its=FileSystem("/net", "nfs4"))
    frames = [replace(one, tables={**one.tables, measurements.NFS_OPERATIONS: calls}) for one in frames]
    (one,) = found(RULE, frames, [SDA])
    facts = {fact.name: fact for fact in one.facts}
    assert facts["nfs_queue_us"].text == (
        "a WRITE takes 193 ms on average: the server and the network 190 ms, the client's queue 3 ms"
    )
    assert facts["nfs_round_trip_share"].value == pytest.approx(0.984, abs=0.001)
    assert "nfs_retransmissions" not in facts


def test_a_file_system_without_a_device_has_none():
    (one,) = found(RULE, load(LOCKED, its=FileSystem("/net", "nfs4")), [SDA])
    assert (one.device, one.summary[:7]) == ("", "writes ")


@pytest.mark.parametrize(
    ("parts", "changed"),
    [
        pytest.param({"own I/O": 95_000, "lock": 2_000}, {}, id="each thread has a file of its own"),
        pytest.param({"own I/O": 52_000, "lock": 45_000}, {}, id="a slow disk has more of it than the lock"),
        pytest.param({"journal": 90_000}, {}, id="the journal"),
        pytest.param({"server": 90_000}, {}, id="a server"),
        pytest.param({"CPU": 90_000}, {}, id="a CPU"),
        pytest.param({"lock": 90}, {"us": 100}, id="fast"),
        pytest.param(LOCKED, {"writes": 5}, id="of little of the window"),
        pytest.param({}, {}, id="not split"),
    ],
)
def test_no_finding(parts, changed):
    assert found(RULE, load(parts, **changed), [SDA]) == []


def test_it_explains_findings_about_the_writes_of_the_same_device():
    explained = {rule.id for rule in RULES if RULE in rule.explained_by}
    assert explained == {"fsync-bound", "small-random-writes"}


def test_without_parts_it_is_not_evaluated():
    missing = not_evaluated(facts_of(load({}), [SDA]))
    assert missing["file times"] == (RULE,)
    assert "file times" not in not_evaluated(facts_of(load(LOCKED), [SDA]))
