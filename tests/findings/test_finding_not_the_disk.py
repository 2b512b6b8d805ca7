"""not-the-disk: programs that wait for a lock, and loads that only look like them."""

import time
from dataclasses import replace

import pytest
from finding_cases import depths, disk, facts_of, found, frame, hist, timed

from latmon.findings import file_sleeps
from latmon.findings.engine import not_evaluated
from latmon.findings.evidence import explained_by_locks
from latmon.model import measurements
from latmon.model.frame import FileOperation, FileSplit, FileSystem
from latmon.model.measurements.file_sleeps import FileSleep, LockHolder
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.nfs import NfsCalls, NfsOperation
from latmon.model.measurements.server_waits import WaitedTime
from latmon_backends.fleet.merge import HostFrame, merged_frame

RULE = "not-the-disk"
SDA = disk()
LOOP0 = disk("loop0")
XFS = FileSystem("/srv/db", "xfs", "loop0")
DATA = FileSystem("/data", "ext4", "sda")
LOCKED = {"lock": 90_000, "own I/O": 6_000, "CPU": 1_000}
"""Parts of a write of 100 ms."""
CHAIN = "rwsem_down_write_slowpath < down_write < ext4_buffered_write_iter"


def slow_write(thread, **changed):
    split = FileSplit(6_000, 1_000, 90_000, 90_000, "lock", CHAIN, "python3", thread)
    file_operation = FileOperation(
        100.0, 100_000_000, "write", 100_000, "device", DATA, "db/shared", 42, "python3", split=split
    )
    return replace(file_operation, **changed)


def load(parts, *, op="write", writes=40, us=100_000, its=DATA, slow=(), blocks=12):
    """Return windows of 5 s with so many operations of `us` each, whose time has these parts."""
    files = {FileSeries(its.device, op, its.mount, its.kind, "device"): hist({us: writes})}
    times = {FilePart(its.device, op, its.mount, its.kind, part): part_us * writes for part, part_us in parts.items()}
    tables = {measurements.FILES: files, measurements.FILE_TIMES: times}
    each = [frame(100 + 5 * at) for at in range(blocks)]
    return [replace(frame, tables={**frame.tables, **tables}, file_operations=tuple(slow)) for frame in each]


def test_the_lock_the_file_and_who_had_it_are_named_with_the_device_s_share():
    (finding,) = found(RULE, load(LOCKED, slow=map(slow_write, (71, 72))), [SDA])
    assert finding.summary == (
        "sda: writes of /data/db/shared wait for a lock 90% of their time, for I/O of their own 6%"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["lock_share"].value == pytest.approx(0.9, abs=0.01)
    assert facts["own_IO_share"].value == pytest.approx(0.06, abs=0.01)
    assert facts["running_share"].value == pytest.approx(0.03, abs=0.01)
    assert facts["own_us"].value == pytest.approx(6_000, rel=0.01)
    assert facts["waiting"].value == pytest.approx(0.72, abs=0.01)
    assert facts["file"].value == "/data/db/shared"
    assert CHAIN in facts["functions"].text
    assert facts["holders"].value == "python3 (2 threads)"
    assert (finding.severity, finding.where.screen, finding.device) == ("warning", "files", "sda")


def test_its_steps_name_no_hardware_and_all_but_the_first_have_a_risk():
    (finding,) = found(RULE, load(LOCKED, slow=(slow_write(71),)), [SDA])
    text = " ".join(step.what for step in finding.steps)
    assert "group commit" in text
    assert not any(word in text for word in ("SSD", "device", "cache survives", "controller"))
    assert all(step.risk != "none, it only reads" for step in finding.steps[1:])


def test_a_thread_of_another_program_that_has_the_lock_is_a_step():
    held = slow_write(71)
    other = replace(held, split=held.split._replace(holder="backup"))
    (finding,) = found(RULE, load(LOCKED, slow=(other,)), [SDA])
    assert finding.steps[1].what == "find out what backup does with the file while others wait"


@pytest.mark.parametrize("op", ["open", "unlink", "stat"])
def test_where_files_are_opened_the_directory_is_what_to_change(op):
    (finding,) = found(RULE, load(LOCKED, op=op), [SDA])
    assert finding.summary.startswith(f"sda: {op}s on files of /data wait for a lock")
    assert finding.steps[-1].what.startswith("spread the files over several directories")


def test_renames_between_directories_take_the_lock_of_the_file_system():
    """The step was to spread the files over several directories, which makes renames wait for this lock."""
    (finding,) = found(RULE, load(LOCKED, op="rename"), [SDA])
    assert finding.steps[-1].what.startswith("rename within a directory")
    assert "s_vfs_rename_mutex" in finding.steps[-1].what
    assert not any("spread" in step.what for step in finding.steps)


def test_on_an_nfs_mount_the_server_or_the_client_is_a_fact():
    calls = {NfsOperation("/net", "WRITE"): NfsCalls(100, 0, 0, 300_000, 19_000_000, 19_300_000)}
    frames = load(LOCKED, its=FileSystem("/net", "nfs4"))
    frames = [replace(frame, tables={**frame.tables, measurements.NFS_OPERATIONS: calls}) for frame in frames]
    (finding,) = found(RULE, frames, [SDA])
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["nfs_queue_us"].text == (
        "a WRITE takes 193 ms on average: the server and the network 190 ms, the client's queue 3 ms"
    )
    assert facts["nfs_round_trip_share"].value == pytest.approx(0.984, abs=0.001)
    assert "nfs_retransmissions" not in facts


def test_a_file_system_without_a_device_has_none():
    (finding,) = found(RULE, load(LOCKED, its=FileSystem("/net", "nfs4")), [SDA])
    assert (finding.device, finding.summary[:7]) == ("", "writes ")


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


@pytest.mark.parametrize(("parts", "explained"), [(LOCKED, (RULE,)), ({"own I/O": 95_000, "lock": 2_000}, ())])
def test_it_explains_findings_about_the_device_where_locks_have_half_of_all_time(parts, explained):
    assert explained_by_locks(facts_of(load(parts), [SDA]), "sda") == explained


def mixed(*loads):
    """Return frames with the operations of several loads."""
    joined = []
    for frames in zip(*loads, strict=True):
        tables = {
            table: {row: value for each in frames for row, value in each.tables.get(table, {}).items()}
            for table in (measurements.FILES, measurements.FILE_TIMES)
        }
        joined.append(replace(frames[0], tables={**frames[0].tables, **tables}))
    return joined


def test_reads_that_wait_for_a_lock_are_found_beside_writes_that_have_it():
    """Cached reads waited 13 ms each for the lock of a writer, whose own I/O is more than half of the time of all."""
    reads = load({"lock": 13_000}, op="read", writes=300, us=13_100, its=XFS)
    writes = load({"own I/O": 25_000}, op="write", writes=195, us=25_600, its=XFS)
    (finding,) = found(RULE, mixed(reads, writes), [LOOP0])
    assert finding.summary == (
        "loop0: reads on files of /srv/db wait for a lock 99% of their time, for I/O of their own 0%"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["lock_share"].value == pytest.approx(0.99, abs=0.01)
    assert facts["mean_us"].value == pytest.approx(13_100, rel=0.01)
    assert explained_by_locks(facts_of(mixed(reads, writes), [LOOP0]), "loop0") == ()


def test_a_short_trace_is_enough():
    """The tracer ran for 10 s of the minute, until its budget stopped it: the waits were too few of a minute."""
    traced = load({"lock": 13_000}, op="read", writes=300, us=13_100, its=XFS, blocks=2)
    frames = [frame(50 + 5 * at) for at in range(10)] + traced
    assert len(found(RULE, frames, [LOOP0])) == 1


READ = FileSleep("loop0", "/srv/db", "xfs", "lock", "read", "catalog.idx", "searchapi/7")
HOLDER = LockHolder("/srv/db", "catalog.idx", "write", "reindexer/9")


def seen(rows, holders=(HOLDER,), *, blocks=3, frames=None):
    """Blocks of 5 s with so many (us, sleeps) of each row of looks."""
    tables = {
        measurements.FILE_SLEEPS: {row: WaitedTime(*time) for row, time in rows.items()},
        measurements.LOCK_HOLDERS: dict.fromkeys(holders, 4_000_000),
    }
    frames = [frame(100 + 5 * at) for at in range(blocks)] if frames is None else frames
    return [replace(block, tables={**block.tables, **tables}) for block in frames]


def test_without_a_tracer_the_program_the_file_and_who_has_the_lock_are_named():
    (finding,) = found(RULE, seen({READ: (3_900_000, 600)}), [LOOP0])
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert finding.summary == (
        "loop0: searchapi (pid 7) waits 78% of the time for the lock of /srv/db/catalog.idx, in its reads, not for the "
        "disk; reindexer (pid 9) writes it meanwhile and has the lock"
    )
    assert finding.short == "loop0: searchapi waits for catalog.idx's lock: reindexer has it"
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["waiting"].value == 0.78
    assert facts["mean_us"].value == 6_500
    assert facts["holder_1"].value == "reindexer (pid 9)"
    assert "find out what reindexer (pid 9) does with the file" in finding.steps[0].what
    assert "aligned blocks" in finding.steps[1].what


def test_a_lock_on_a_slow_disk_names_both():
    """Direct writes that extend a file have its lock until their I/O ends: it was said not to be the disk."""
    slow = {
        "depths": {"loop0": depths({0: 500, 1: 4500})},
        "histograms": timed("loop0", ((200, {"hba": 22_500}),), "write"),
    }
    frames = [frame(100 + 5 * at, **slow) for at in range(3)]
    (finding,) = found(RULE, seen({READ: (3_900_000, 600)}, frames=frames), [LOOP0])
    assert "in its reads, while loop0 has I/O in flight 90% of the time; reindexer" in finding.summary
    assert "not the disk" not in finding.short
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["busy"].value == 0.9
    assert facts["io_us"].value == 22_500


def test_with_a_tracer_program_and_holder_come_from_the_looks():
    reads = load({"lock": 13_000}, op="read", writes=300, us=13_100, its=XFS)
    (finding,) = found(RULE, seen({READ: (3_900_000, 600)}, frames=reads), [LOOP0])
    assert finding.summary == (
        "loop0: searchapi (pid 7)'s reads of /srv/db/catalog.idx wait for a lock 99% of their time, 13.1 ms each, for "
        "I/O of their own 0%; reindexer (pid 9) writes it meanwhile and has the lock"
    )
    assert finding.short == "loop0: searchapi waits for catalog.idx's lock, 13.1 ms: reindexer has it"


def test_threads_of_one_program_that_wait_for_each_other():
    own = HOLDER._replace(process="searchapi/8")
    (finding,) = found(RULE, seen({READ: (3_900_000, 600)}, [own]), [LOOP0])
    assert finding.summary.endswith("; another thread of it writes it meanwhile and has the lock")
    assert not any("find out what" in step.what for step in finding.steps)


def test_a_lock_of_a_directory_has_no_file():
    row = READ._replace(op="create", file="", kind="btrfs")
    (finding,) = found(RULE, seen({row: (12_000_000, 600)}, []), [LOOP0])
    assert finding.summary == (
        "loop0: searchapi (pid 7) waits in 2.4 threads at a time for the lock of a directory on /srv/db, in its "
        "creates, not for the disk"
    )
    assert finding.steps[-1].what.startswith("spread the files over several directories")


def test_calls_with_paths_are_on_the_file_system_of_the_program_s_others():
    unknown = READ._replace(device="", mount="", file="", op="open")
    (finding,) = found(RULE, seen({READ: (1_000_000, 100), unknown: (2_900_000, 300)}), [LOOP0])
    assert finding.summary.startswith("loop0: searchapi (pid 7) waits 78% of the time for the lock of a directory on")


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        pytest.param({READ: (3_900_000, 20_000)}, {}, id="short waits"),
        pytest.param({READ: (800_000, 100)}, {}, id="few waits"),
        pytest.param({READ: (4_900_000, 600)}, {"blocks": 1}, id="a burst"),
        pytest.param({READ._replace(cause="journal"): (3_900_000, 600)}, {}, id="the journal"),
        pytest.param({READ._replace(cause="server"): (3_900_000, 600)}, {}, id="a server"),
    ],
)
def test_other_sleeps_are_no_finding(rows, changed):
    assert found(RULE, seen(rows, **changed), [LOOP0]) == []


def test_without_parts_it_is_not_evaluated():
    missing = not_evaluated(facts_of(load({}), [SDA]))
    assert missing["file times"] == (RULE,)
    assert "file times" not in not_evaluated(facts_of(load(LOCKED), [SDA]))
    assert "file times" not in not_evaluated(facts_of(load({}), [SDA], counted=("file_sleeps",)))


def test_waits_of_a_fleet_are_of_their_host():
    """Of a call with a path no mount is known: those of two hosts were one row, and of the mount of the first one."""
    locked = FileSleep("sda", "/srv", "ext4", "lock", "write", "f", "maildrop/7")
    hosts = (
        {locked: WaitedTime(4_500_000, 30)},
        {locked._replace(device="", mount="", file=""): WaitedTime(4_000_000, 30)},
    )
    frames = []
    for window in range(4):
        parts = [
            HostFrame(f"db{at}", frame(100 + 5 * window, tables={measurements.FILE_SLEEPS: rows}), 0, number=at)
            for at, rows in enumerate(hosts, 1)
        ]
        end = frame(100 + 5 * window)
        merged, refused = merged_frame(parts, seq=window, wall=end.wall, mono_us=end.mono_us, dt_us=end.dt_us)
        assert not refused
        frames.append(merged)
    first, second = found(RULE, frames, [disk("db1:sda")], backend="fleet")
    assert first.summary.startswith("db1:sda: maildrop (pid 7) waits 90% of the time for the lock of db1:/srv/f")
    assert second.summary.startswith(
        "db2: maildrop (pid 7) waits 80% of the time for the lock of a file on a file system"
    )


def test_a_long_mount_of_a_host_is_named_by_its_end():
    """The host was left out of the fleet."""
    rows = {FileSleep("sda", "/" + "m" * 252 + "/db", "ext4", "lock", "write", "f", "w/7"): WaitedTime(4_500_000, 30)}
    part = HostFrame("db1", frame(tables={measurements.FILE_SLEEPS: rows}), 0)
    merged, refused = merged_frame([part], seq=0, wall=1.0, mono_us=100_000_000, dt_us=5_000_000)
    ((row, _),) = merged[measurements.FILE_SLEEPS].items()
    assert not refused
    assert row.mount.startswith("db1:…m")
    assert row.mount.endswith("/db")


def test_a_program_of_a_fleet_is_on_no_mount_of_another_host():
    """Of a wait for a directory's lock not even the type is known: it is where the program's other calls are."""
    known = FileSleep("db1:sda", "db1:/srv", "ext4", "lock", "write", "f", "maildrop/7")
    rows = {
        known: WaitedTime(4_500_000, 30),
        FileSleep("", "db2:", "", "lock", "create", "", "maildrop/7"): WaitedTime(4_000_000, 30),
    }
    frames = [frame(100 + 5 * at, tables={measurements.FILE_SLEEPS: rows}) for at in range(4)]
    first, second = found(RULE, frames, [disk("db1:sda")], backend="fleet")
    assert (first.device, second.device) == ("db1:sda", "db2:")


def test_a_reader_of_the_file_is_not_said_to_have_the_lock():
    """A buffered read of ext4 takes none: all that is seen is that it was in a call on the same file."""
    locked = FileSleep("sda", "/srv", "ext4", "lock", "write", "f", "writer/7")
    reader = LockHolder("/srv", "f", "read", "reader/9")
    tables = {
        measurements.FILE_SLEEPS: {locked: WaitedTime(4_500_000, 30)},
        measurements.LOCK_HOLDERS: {reader: 4_000_000},
    }
    (finding,) = found(RULE, [frame(100 + 5 * at, tables=tables) for at in range(4)], [SDA])
    assert finding.summary.endswith("; reader (pid 9) works on it meanwhile and may have the lock")
    assert finding.short.startswith("sda: writer waits for f's lock: reader may have it")


def test_a_thousand_short_processes_are_placed_in_a_moment():
    """A shell's loop starts a process for each file: 4,000 rows took 15 s of CPU time for each evaluation."""
    path = FileSleep("", "", "ext4", "lock", "create", "", "")
    rows = {path._replace(process=f"sh/{pid}"): WaitedTime(2_000, 1) for pid in range(4000)}
    rows[FileSleep("sda", "/srv", "ext4", "lock", "write", "f", "db/1")] = WaitedTime(4_500_000, 30)
    facts = facts_of([frame(100 + 5 * at, tables={measurements.FILE_SLEEPS: rows}) for at in range(12)])
    begun_s = time.thread_time()
    (sleeper, *_) = file_sleeps.sleepers(facts, ("lock",), 0.2)
    assert time.thread_time() - begun_s < 2
    assert sleeper.file_system == FileSystem("/srv", "ext4", "sda")
