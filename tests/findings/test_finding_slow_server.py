"""slow-server: operations that wait for the server of a file system, and those that don't."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, frame, hist, timed

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import SERVERS
from latmon.model import measurements
from latmon.model.frame import FileOperation, FileSplit, FileSystem
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.model.measurements.nfs import NfsCalls, NfsOperation
from latmon.model.measurements.server_waits import FileServer, ServerWait, WaitedTime

RULE = "slow-server"
NAS = FileSystem("/mnt/nas", "fuse.sshfs", "")
WAIT = ServerWait("", "fuse", "thumbnailer/7")
LOCAL = {"histograms": timed("sda", ((100, {"hba": 900}),))}


def opened(**changed):
    split = FileSplit(0, 500, 179_000, 179_000, "server", "request_wait_answer < fuse_send_open", "", 0)
    file_operation = FileOperation(
        100.0, 100_000_000, "open", 180_000, "unknown", NAS, "a.jpg", 7, "thumbnailer", split=split
    )
    return replace(file_operation, **changed)


def files(us, ops, *, op="open", part="server", its=NAS):
    return {
        measurements.FILES: {FileSeries(its.device, op, its.mount, its.kind, "unknown"): hist({us: ops})},
        measurements.FILE_TIMES: {FilePart(its.device, op, its.mount, its.kind, part): us * ops * 99 // 100},
    }


def sampled(waited_us=5_000_000, sleeps=40, key=WAIT):
    served = {FileServer("/mnt/nas", "sshfs/5"): 5_000_000}
    return {measurements.SERVER_WAITS: {key: WaitedTime(waited_us, sleeps)}, measurements.FILE_SERVERS: served}


def blocks(*tables, n=6, slow=()):
    joined = {name: rows for part in tables for name, rows in part.items()}
    each = [frame(100 + 5 * at, **LOCAL) for at in range(n)]
    return [replace(frame, tables={**frame.tables, **joined}, file_operations=tuple(slow)) for frame in each]


def test_program_operation_mount_and_server_are_named_and_that_the_disks_are_healthy():
    (finding,) = found(RULE, blocks(sampled(), files(180_000, 50), slow=[opened()]), [disk()])
    assert (finding.severity, finding.device, finding.where.screen) == ("warning", "", "files")
    assert finding.summary == (
        "thumbnailer (pid 7) waits 180 ms for each open on /mnt/nas (fuse.sshfs), 99% of it for its server (sshfs), "
        "not for a disk"
    )
    assert finding.short == "opens on /mnt/nas take 180 ms: server sshfs, thumbnailer waits, not the disk"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["disks"] == "the disks are healthy: an I/O takes sda 900 us on average"
    assert facts["server"] == "the process sshfs serves it"


def test_other_operations_on_the_mount_are_evidence():
    tables = files(180_000, 50)
    tables[measurements.FILES][FileSeries("", "read", NAS.mount, NAS.kind, "unknown")] = hist({600: 50})
    (finding,) = found(RULE, blocks(tables), [disk()])
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["read_us"] == "a read there takes 600 us on average"


def test_without_a_tracer_looks_at_threads_name_program_and_kind_of_server():
    (finding,) = found(RULE, blocks(sampled()), [disk()])
    assert finding.summary == (
        "thumbnailer (pid 7) waits about 125 ms each time on a fuse file system, for its server, not for a disk"
    )
    (known,) = found(RULE, blocks(sampled(key=ServerWait("/mnt/nas", "fuse.sshfs", "thumbnailer/7"))), [disk()])
    assert known.short.startswith("operations on /mnt/nas take about 125 ms: server sshfs")


def test_nfs_calls_are_enough_without_root():
    calls = {measurements.NFS_OPERATIONS: {NfsOperation("/mnt/nfs", "OPEN"): NfsCalls(50, execute_us=9_000_000)}}
    (finding,) = found(RULE, blocks(calls), [disk()])
    assert finding.short == "OPEN calls on /mnt/nfs take 180 ms, not the disk"


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param((files(1_000, 500),), id="a fast server"),
        pytest.param((files(180_000, 50, part="lock"),), id="a lock"),
        pytest.param((files(180_000, 1),), id="seldom"),
        pytest.param((sampled(sleeps=2_000),), id="sampled, a fast server"),
        pytest.param((sampled(sleeps=0),), id="a silent server"),
    ],
)
def test_other_operations_are_no_finding(tables):
    assert found(RULE, blocks(*tables), [disk()]) == []


def test_nfs_writes_for_which_no_program_waits_are_none():
    calls = {measurements.NFS_OPERATIONS: {NfsOperation("/mnt/nfs", "WRITE"): NfsCalls(50, execute_us=9_000_000)}}
    assert found(RULE, blocks(calls), [disk()], counted=("hung_operations",)) == []


def nfs_calls(op):
    return {measurements.NFS_OPERATIONS: {NfsOperation("/mnt/nfs", op): NfsCalls(50, execute_us=9_000_000)}}


@pytest.mark.parametrize(
    ("op", "wait", "waited_us"),
    [
        pytest.param("OPEN", WAIT, 5_000_000, id="waits for a FUSE server"),
        pytest.param("OPEN", ServerWait("/mnt/other", "nfs4", "ls/9"), 5_000_000, id="waits for another mount"),
        pytest.param("READ", ServerWait("/mnt/nfs", "nfs4", "ls/9"), 500_000, id="few waits"),
        pytest.param("WRITE", ServerWait("/mnt/nfs", "nfs4", "ls/9"), 5_000_000, id="writes of the page cache"),
    ],
)
def test_nfs_calls_are_not_slow_because_of_other_waits(op, wait, waited_us):
    """Writes of the page cache were a finding as soon as any program waited for a FUSE server."""
    tables = (nfs_calls(op), sampled(waited_us, sleeps=2_000, key=wait))
    assert found(RULE, blocks(*tables), [disk()], counted=("hung_operations",)) == []


def test_nfs_calls_for_which_a_program_was_seen_waiting_are_slow():
    wait = ServerWait("/mnt/nfs", "nfs4", "ls/9")
    tables = (nfs_calls("OPEN"), sampled(5_000_000, sleeps=2_000, key=wait))
    (finding,) = found(RULE, blocks(*tables), [disk()], counted=("hung_operations",))
    assert finding.short == "OPEN calls on /mnt/nfs take 180 ms, ls waits, not the disk"


def test_it_needs_the_stacks_of_threads_or_nfs():
    assert RULE in not_evaluated(facts_of(blocks()))[SERVERS]
    assert SERVERS not in not_evaluated(facts_of(blocks(), counted=("hung_operations",)))


def test_in_a_fleet_each_host_has_its_own():
    """A wait whose mount isn't known has the host as its mount."""
    rows = {
        ServerWait("db1:", "fuse", "thumbnailer/7"): WaitedTime(5_000_000, 40),
        ServerWait("db2:/mnt/nas", "fuse.sshfs", "indexer/8"): WaitedTime(5_000_000, 20),
    }
    first, second = found(RULE, blocks({measurements.SERVER_WAITS: rows}), [disk("db1:sda")], backend="fleet")
    assert first.summary.startswith("db1: thumbnailer (pid 7) waits about 125 ms each time on a fuse file system")
    assert second.short == "db2: operations on /mnt/nas take about 250 ms, indexer waits, not the disk"
    assert (first.device, second.device) == ("db1:", "db2:")


def hangs(lasted_us=5_000_000, times=0, key=WAIT):
    row = HungOperation("", key.mount, key.kind, "server", key.process)
    return {measurements.HUNG_OPERATIONS: {row: HungTime(lasted_us, lasted_us, times)}}


def test_an_operation_that_does_not_return_is_not_slow():
    """It was said that an open takes 565 ms or more, then 734 ms, 902 ms and so on."""
    fast = blocks(sampled(50_000, 100), n=6)
    began = blocks(sampled(4_500_000, 20), hangs(3_000_000, 1), n=1)
    stuck = blocks(sampled(5_000_000, 0), hangs(), n=5)
    for ended in range(1, 6):
        frames = shifted_on([*fast, *began, *stuck[:ended]])
        assert found(RULE, frames, [disk()]) == []


def test_operations_that_take_seconds_and_return_are_slow():
    slow = blocks(sampled(5_000_000, 2), hangs(1_500_000, 2), n=6)
    (finding,) = found(RULE, slow, [disk()])
    assert "waits about 2.5 s each time" in finding.summary


def shifted_on(frames):
    """Return the frames one after the other."""
    return [replace(block, mono_us=(100 + 5 * at) * 1_000_000, seq=at) for at, block in enumerate(frames)]
