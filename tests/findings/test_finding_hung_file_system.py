"""hung-file-system: a frozen file system, a server that is silent, and what is no harm."""

import time
from dataclasses import replace

import pytest
from finding_cases import WALL, disk, facts_of, found, frame, lasting, timed

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import HANGS
from latmon.model.measurements import FILE_SERVERS, FILE_SLEEPS, HUNG_OPERATIONS, NFS_OPERATIONS, NFS_REQUESTS
from latmon.model.measurements.file_sleeps import FileSleep
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.model.measurements.nfs import NfsCalls, NfsMount, NfsOperation, NfsRequests
from latmon.model.measurements.server_waits import FileServer, WaitedTime
from latmon.support.units import clock

RULE = "hung-file-system"
WRITER = HungOperation("loop0", "/srv/db", "ext4", "frozen", "postgres/7")
OTHER = WRITER._replace(process="rsyslogd/9")
REMOTE = HungOperation("", "/mnt/nfs", "nfs4", "server", "ls/5")


def hung(*keys, us=5_000_000, threads=2, times=0):
    return {HUNG_OPERATIONS: {key: HungTime(us, threads * us, times) for key in keys}}


def of_blocks(blocks, *keys, **values):
    return lasting(blocks, histograms=timed("loop0", ((200, {"hba": 2900}),)), tables=hung(*keys, **values))


def test_a_frozen_file_system_is_named_with_those_that_wait():
    (finding,) = found(RULE, of_blocks(3, WRITER, OTHER))
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert finding.summary == (
        "loop0: /srv/db is frozen (fsfreeze, a snapshot) for 15 s: writes wait, not for the device: "
        "postgres (pid 7) and 1 other program wait"
    )
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["mount"] == "file system: /srv/db, ext4, on loop0"
    assert facts["threads"] == "4 threads wait, on average"
    assert [command for step in finding.steps for command in step.commands][-1] == "fsfreeze -u /srv/db"


def test_it_is_critical_where_writes_wait_for_half_a_minute():
    assert [finding.severity for finding in found(RULE, of_blocks(5, WRITER))] == ["warning"]
    assert [finding.severity for finding in found(RULE, of_blocks(6, WRITER))] == ["critical"]


def by_block(*values, key=WRITER):
    """Return a frame for each (us, times), the time of a block in which writes hung; None: they did not."""
    frames = of_blocks(len(values))
    tables = [{} if value is None else hung(key, us=value[0], times=value[1]) for value in values]
    return [replace(block, tables=rows) for block, rows in zip(frames, tables, strict=True)]


SHORT = (1_500_000, 1)


def test_a_file_system_that_is_frozen_again_and_again_is_named():
    (finding,) = found(RULE, by_block(SHORT, None, SHORT, SHORT, (1_000_000, 0), None, SHORT, None))
    assert (finding.severity, finding.device) == ("warning", "loop0")
    assert finding.summary == (
        "loop0: /srv/db is frozen again and again: writes waited 7 s of the last 40 s, not for the device: "
        "postgres (pid 7) waited"
    )
    assert finding.short.startswith("loop0: frozen again and again, 7 s of the last 40 s: writes wait")
    assert {fact.name: fact.value for fact in finding.facts}["times"] == 4


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(by_block((3_000_000, 1), *[None] * 11), id="one snapshot of 3 s"),
        pytest.param(by_block((2_000_000, 1), None, (2_000_000, 1), None), id="two"),
        pytest.param(by_block((1_000_000, 1), None, (1_000_000, 1), None, (1_000_000, 1)), id="short ones"),
        pytest.param(by_block(SHORT, None, SHORT, None, SHORT, key=REMOTE), id="a server that answers slowly"),
    ],
)
def test_snapshots_and_slow_servers_are_not_found(frames):
    assert found(RULE, frames) == []


def test_freezes_one_after_the_other_are_none_without_a_break():
    frames = by_block(None, (3_000_000, 1), (2_500_000, 1), (3_000_000, 1))
    (finding,) = found(RULE, frames)
    assert "again and again: writes waited 8.5 s of the last 20 s" in finding.summary


def test_a_freeze_that_lasts_comes_before_those_that_were_short():
    frames = by_block(SHORT, SHORT, SHORT, None, (4_000_000, 1), (5_000_000, 0))
    (finding,) = found(RULE, frames)
    assert finding.summary.startswith("loop0: /srv/db is frozen (fsfreeze, a snapshot) for 9 s: writes wait")


def test_time_of_an_earlier_freeze_is_not_that_of_the_last_one():
    frames = by_block(None, (3_000_000, 1), (4_000_000, 1), (5_000_000, 0), (5_000_000, 0))
    (finding,) = found(RULE, frames)
    assert "for 10 s" in finding.summary


def test_a_recording_with_thousands_of_rows_is_evaluated_at_once():
    """The time grew with the square of their number: 3,000 took minutes."""
    rows = [WRITER._replace(process=f"worker/{pid}") for pid in range(3_000)]
    rows += [REMOTE._replace(mount=f"/mnt/{at}") for at in range(3_000)]
    began = time.process_time()
    findings = found(RULE, of_blocks(12, *rows))
    assert time.process_time() - began < 20
    assert len(findings) == 3_001
    assert "3000 threads" not in findings[0].summary
    assert {fact.name: fact.value for fact in findings[-1].facts}["threads"] == 6_000


def silent(row, blocks=3, **values):
    """Blocks after one in which nothing hung."""
    return [frame(95), *of_blocks(blocks, row, **values)]


def test_a_silent_server_is_named_with_its_mount():
    (finding,) = found(RULE, silent(REMOTE))
    assert finding.device == ""
    since = clock(finding.began.wall)
    assert finding.summary == (
        f"ls (pid 5) is stuck since {since}, for 15 s, on /mnt/nfs (nfs4): its server does not answer"
    )
    assert finding.short == f"ls stuck on /mnt/nfs since {since}: its server is silent"
    assert finding.began.wall == WALL + 110 - 15
    assert "fsfreeze" not in " ".join(step.text for step in finding.steps)


def test_a_file_system_without_a_disk_of_a_fleet_has_its_host():
    (finding,) = found(RULE, silent(REMOTE._replace(device="web1:", mount="web1:/mnt/nfs")))
    since = clock(finding.began.wall)
    assert finding.summary == (
        f"web1: ls (pid 5) is stuck since {since}, for 15 s, on web1:/mnt/nfs (nfs4): its server does not answer"
    )
    assert finding.short == f"web1: ls stuck on /mnt/nfs since {since}: its server is silent"


def test_the_short_text_has_the_end_of_a_long_mount():
    (finding,) = found(RULE, silent(REMOTE._replace(mount="/var/lib/containers/storage/volumes/orders")))
    since = clock(finding.began.wall)
    assert finding.short == f"ls stuck on …ainers/storage/volumes/orders since {since}"


def test_without_its_mount_it_has_a_placeholder():
    (finding,) = found(RULE, of_blocks(3, WRITER._replace(device="", mount="", kind="")))
    assert finding.summary.startswith("a file system is frozen")
    assert "fsfreeze -u /MOUNT" in " ".join(step.text for step in finding.steps)


def test_calls_with_paths_are_no_file_system_of_their_own_where_one_is_frozen():
    unknown = OTHER._replace(device="", mount="", kind="")
    assert [finding.device for finding in found(RULE, of_blocks(3, WRITER, unknown))] == ["loop0"]
    both = found(RULE, of_blocks(3, REMOTE, unknown._replace(process="x/1")))
    assert {finding.state[0] for finding in both} == {"", "/mnt/nfs"}


def test_two_silent_servers_are_two_findings():
    both = found(RULE, of_blocks(3, REMOTE, REMOTE._replace(mount="/mnt/backup", kind="fuse.sshfs", process="tar/6")))
    assert {finding.state[0] for finding in both} == {"/mnt/nfs", "/mnt/backup"}


def test_a_suspended_mapping_has_steps_of_its_own():
    (finding,) = found(RULE, of_blocks(3, WRITER._replace(device="dm-3")))
    assert "cat /sys/block/dm-3/dm/suspended" in " ".join(step.text for step in finding.steps)


@pytest.mark.parametrize("mount", ["/srv/$(id)", "/srv/a b", "/srv/'x"])
def test_a_mount_that_a_shell_would_read_is_not_in_a_command(mount):
    (finding,) = found(RULE, of_blocks(3, WRITER._replace(mount=mount)))
    assert mount not in " ".join(command for step in finding.steps for command in step.commands)


def test_two_file_systems_of_a_device_are_one_finding_about_the_longer_one():
    short = WRITER._replace(mount="/short")
    (finding,) = found(RULE, of_blocks(2, WRITER) + of_blocks(2, WRITER, short))
    assert finding.summary.startswith("loop0: /srv/db is frozen (fsfreeze, a snapshot) for 20 s")
    both = of_blocks(2, WRITER) + of_blocks(1, WRITER, REMOTE)
    assert {finding.device for finding in found(RULE, both)} == {"loop0", ""}


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(of_blocks(12), id="nothing hangs"),
        pytest.param(of_blocks(12, WRITER, us=0)[:11] + of_blocks(1, WRITER, us=2_000_000), id="a snapshot"),
        pytest.param([*of_blocks(11, WRITER), frame(160)], id="thawed"),
    ],
)
def test_others_are_not_found(frames):
    assert found(RULE, frames) == []


def test_it_is_evaluated_where_operations_hang():
    assert RULE in not_evaluated(facts_of(lasting(2)))[HANGS]
    assert HANGS not in not_evaluated(facts_of(of_blocks(2, WRITER)))
    assert HANGS not in not_evaluated(facts_of(lasting(2), counted=(HUNG_OPERATIONS.name,)))


def test_of_a_silent_nfs_server_requests_without_answers_are_counted():
    tables = {
        **hung(REMOTE, us=5_000_000),
        NFS_REQUESTS: {NfsMount("/mnt/nfs"): NfsRequests(1, 0, 5_000_000)},
        NFS_OPERATIONS: {
            NfsOperation("/mnt/nfs", "GETATTR"): NfsCalls(1, 2, 1, 975_000, 0, 3_000_000, 1),
            NfsOperation("/mnt/other", "GETATTR"): NfsCalls(1, 0, 0, 0, 9_000_000, 9_000_000),
        },
    }
    (finding,) = found(RULE, lasting(4, tables=tables))
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["nfs_silent_us"] == (
        "no NFS request on the connections to its server was answered for 20 s; 4 went out in that time"
    )
    assert facts["nfs_retransmissions"].startswith("its calls were sent again 8 times, with 4 major time-outs: ")
    assert "0% is round trips" in facts["nfs_round_trip_share"]
    (frozen,) = found(RULE, of_blocks(3, WRITER))
    assert not [fact for fact in frozen.facts if fact.name.startswith("nfs")]


def test_of_an_nfs_server_that_answers_others_that_is_said():
    tables = {**hung(REMOTE), NFS_REQUESTS: {NfsMount("/mnt/nfs"): NfsRequests(31, 30, 5_000_000)}}
    (finding,) = found(RULE, lasting(4, tables=tables))
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["nfs_answered"] == "the server answers others: 30 NFS requests on its connections in the last seconds"
    assert "nfs_silent_us" not in facts


NAS = HungOperation("", "/dev/shm/blind7/nas.mnt", "fuse.sshfs", "server", "imgproxy/1753")
SERVED = {FileServer(NAS.mount, "sshfs/5"): 5_000_000, FileServer("/srv/images", "delayfs/6"): 5_000_000}


def stuck(row, blocks=5):
    """Blocks of 5 s in which three threads of a program are stuck in open() on a FUSE mount, of two; a disk is fast."""
    sleep = FileSleep("", row.mount, row.kind, "server", "open", "", row.process)
    tables = {
        **hung(row, threads=3),
        FILE_SLEEPS: {sleep: WaitedTime(15_000_000)},
        FILE_SERVERS: SERVED,
    }
    return [frame(95), *lasting(blocks, histograms=timed("loop0", ((200, {"hba": 900}),)), tables=tables)]


def test_the_operation_the_mount_and_its_server_are_named_and_that_the_disks_are_healthy():
    (finding,) = found(RULE, stuck(NAS), [disk("loop0")])
    since = clock(finding.began.wall)
    assert finding.summary == (
        f"imgproxy (pid 1753) is stuck since {since}, for 25 s, in open on /dev/shm/blind7/nas.mnt (fuse.sshfs): its "
        "server (sshfs) does not answer"
    )
    assert finding.short == f"imgproxy stuck in open on …lind7/nas.mnt since {since}: sshfs is silent"
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["server"] == "the process sshfs serves it"
    assert facts["disks"] == "the disks are healthy: an I/O takes loop0 900 us on average"
    assert "threads wait" in facts["threads"]
    assert [finding.severity for finding in found(RULE, stuck(NAS, 6), [disk("loop0")])] == ["critical"]


def test_of_two_mounts_both_are_named_where_it_is_not_known_which_one_it_is():
    (finding,) = found(RULE, stuck(NAS._replace(mount="", kind="fuse")), [disk("loop0")])
    assert "in open on /dev/shm/blind7/nas.mnt or /srv/images: its server does not answer" in finding.summary
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["mount_2"] == "it may be /srv/images, which delayfs serves"
    (unknown,) = found(RULE, lasting(5, tables=hung(NAS._replace(mount="", kind="fuse"))))
    assert "on a fuse mount: its server does not answer" in unknown.summary


def test_calls_with_paths_are_on_the_mount_whose_server_is_known_to_be_silent():
    unknown = NAS._replace(mount="", kind="fuse", process="ls/9")
    frames = lasting(5, tables=hung(NAS, unknown))
    assert [finding.state[0] for finding in found(RULE, frames)] == [NAS.mount]


def test_since_when_stays_while_it_lasts_until_it_was_before_the_last_minute():
    """The time of the newest look differed by a second from block to block."""
    first = of_blocks(1, REMOTE, us=3_700_000, times=1)
    began = set()
    for blocks in range(2, 11):
        later = [replace(block, tables=hung(REMOTE, us=4_900_000 + 20_000 * blocks)) for block in of_blocks(blocks)[1:]]
        (finding,) = found(RULE, [frame(95), *first, *later])
        began.add(finding.began.mono_us)
    assert began == {100_000_000 - 3_700_000}
    (finding,) = found(RULE, [frame(95), *of_blocks(12, REMOTE)])
    assert finding.began is None
    assert "is stuck since before " in finding.summary
    assert ", for 60 s or longer, on /mnt/nfs" in finding.summary
