"""Calls of the NFS client by mount, by mountstats of a guest (Linux 6.12) with mounts of NFS 4.2, 4.0 and 3.

`slow` is after `quick`, with a network of 40 ms each way in between; of `silent`, all packets were lost since `slow`.
"""

from pathlib import Path

import pytest
from cgroup_host import at_once, put

from latmon.capture.mounts import MountTable, mounts_of
from latmon.model.measurements import NFS_OPERATIONS, NFS_REQUESTS
from latmon.model.measurements.nfs import NfsCalls, NfsMount, NfsOperation, NfsRequests
from latmon_backends.bpftrace.tracer import FileSystems
from latmon_backends.kernel import nfs
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.nfs import NfsReader

S = 1_000_000
GOLDEN = Path(__file__).parents[1] / "golden/nfs"
MOUNTINFO = (GOLDEN / "mountinfo.txt").read_text()
HEAD = "device a:/ mounted on /mnt/nfs with fstype nfs statvers=1.0\n\tage:\t1\n"
QUICK, SLOW, SILENT = ((GOLDEN / f"{name}.txt").read_text() for name in ("quick", "slow", "silent"))


def between(proc, *texts, mountinfo=MOUNTINFO, every_s=2):
    """Return the rows of a reader that sees these texts of mountstats one after the other."""
    put(proc / "self/mountinfo", mountinfo)
    clock = [0]
    reader = NfsReader(proc, MountTable(proc), at_once, lambda: clock[0])
    samples = []
    for at, text in enumerate((*texts, texts[-1])):
        clock[0] = at * every_s * S
        put(proc / "self/mountstats", text)
        samples.append(reader.sample(clock[0]))
    return tables_between(samples[0], samples[-1])


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "self").mkdir()
    put(tmp_path / "self/mountstats", QUICK)
    return tmp_path


def test_the_delay_of_a_network_is_in_the_round_trips(proc):
    calls = between(proc, QUICK, SLOW)[NFS_OPERATIONS]
    assert calls[NfsOperation("/opt", "WRITE")] == NfsCalls(
        calls=3, queue_us=5_000, round_trip_us=261_000, execute_us=268_000
    )
    assert calls[NfsOperation("/mnt/three", "GETATTR")].round_trip_mean_us > 80_000
    assert {key.mount for key in calls} == {"/opt", "/mnt/three"}, "/opt is /mnt/nfs as well; the others were idle"


def test_calls_to_a_silent_server_are_retransmissions_and_time_outs(proc):
    rows = between(proc, SLOW, SILENT)
    soft = rows[NFS_OPERATIONS][NfsOperation("/mnt/soft", "GETATTR")]
    assert soft == NfsCalls(calls=1, retransmissions=1, timeouts=1, queue_us=975_000, execute_us=2_961_000, errors=1)
    requests = rows[NFS_REQUESTS]
    assert requests[NfsMount("/mnt/soft")] == NfsRequests(sent=4, answered=0, waited_us=2 * S)
    assert requests[NfsMount("/mnt/with space")] == requests[NfsMount("/mnt/soft")], "they share the connection"
    assert NfsMount("/mnt/nfs") not in requests


def test_a_silence_in_which_nothing_is_sent_again_has_a_row(proc):
    requests = between(proc, SLOW, SILENT, SILENT, SILENT)[NFS_REQUESTS]
    assert requests[NfsMount("/mnt/soft")] == NfsRequests(4, 0, 6 * S)


def with_requests(sent, answered):
    return f"{HEAD}\txprt:\ttcp 0 0 1 0 5 {sent} {answered} 0\n"


@pytest.mark.parametrize(
    ("counts", "requests"),
    [
        pytest.param([(101, 100), (201, 200), (201, 200)], NfsRequests(100, 100), id="an answer was lost long ago"),
        pytest.param([(100, 100), (105, 104), (205, 204), (205, 204)], NfsRequests(105, 104), id="one was lost"),
        pytest.param([(100, 100), (101, 100), (101, 101), (101, 101)], NfsRequests(1, 1, 2 * S), id="answered late"),
        pytest.param([(100, 100), (103, 101), (103, 101)], NfsRequests(3, 1, 2 * S), id="silent after an answer"),
        pytest.param([(101, 100), (102, 100), (102, 100)], NfsRequests(1, 0, 4 * S), id="silent after a lost answer"),
    ],
)
def test_requests_wait_that_were_sent_since_answers_kept_up(proc, counts, requests):
    """After one lost answer each interval counted, also where all later requests were answered."""
    mountinfo = "41 27 0:34 / /mnt/nfs rw - nfs a:/ rw\n"
    rows = between(proc, *(with_requests(*pair) for pair in counts), mountinfo=mountinfo)
    assert rows[NFS_REQUESTS] == {NfsMount("/mnt/nfs"): requests}


def test_all_operations_of_several_mounts_are_counted(proc):
    """Only 16 rows of a look were, for all mounts together."""
    ops = ("READ", "WRITE", "GETATTR", "LOOKUP", "ACCESS", "READDIR", "OPEN", "CLOSE")
    points = [f"/home/{number}" for number in range(64)]
    mountinfo = "".join(f"41 27 0:{at} / {point} rw - nfs a:/ rw\n" for at, point in enumerate(points))

    def text(calls):
        lines = "".join(f"\t{op}: {calls} {calls} 0 8 8 0 {calls} {calls} 0\n" for op in ops)
        return "".join(HEAD.replace("/mnt/nfs", point) + lines for point in points)

    rows = between(proc, text(10), text(20), text(30), mountinfo=mountinfo, every_s=60)[
        NFS_OPERATIONS
    ]  # looks are paced
    assert len(rows) == 64 * 8
    assert {calls.calls for calls in rows.values()} == {20}


def test_a_long_mount_has_the_name_that_the_tracer_gives_it(proc):
    point = "/mnt/" + "/".join(["directory"] * 30)
    put(proc / "self/mountinfo", f"41 27 0:34 / {point} rw - nfs a:/ rw\n")
    put(proc / "self/mountstats", HEAD.replace("/mnt/nfs", point))
    (mount,) = nfs.look(proc, mounts_of(proc), 0).requests
    traced = FileSystems(MountTable(proc), proc / "sys").of(34)
    assert mount.mount == traced.mount
    assert len(mount.mount) == 256


def test_without_an_nfs_mount_mountstats_is_not_read(proc, monkeypatch):
    local = "".join(line for line in MOUNTINFO.splitlines(keepends=True) if " - nfs" not in line)
    monkeypatch.setattr(nfs, "_sections", lambda _: pytest.fail("mountstats was read"))
    assert not any(between(proc, QUICK, SLOW, mountinfo=local).values())
    reader = NfsReader(proc, MountTable(proc))
    assert reader.pause_us(reader.look(0, None)) == 4 * S


def test_a_mount_counts_from_the_look_after_it_was_seen(proc):
    without = MOUNTINFO.replace(" /mnt/three rw", " /mnt/other rw")
    put(proc / "self/mountinfo", without)
    first = nfs.look(proc, mounts_of(proc), 0)
    assert "/mnt/three" not in first.mounts
    put(proc / "self/mountinfo", MOUNTINFO)
    put(proc / "self/mountstats", SLOW)
    second = nfs.look(proc, mounts_of(proc), 4 * S)
    assert NfsOperation("/mnt/three", "WRITE") in second.operations
    assert not any(key.mount == "/mnt/three" for key in nfs._calls_between(first, second))


def test_counters_of_a_mount_that_was_made_anew_are_no_calls(proc):
    rows = between(proc, SILENT, QUICK)
    assert not [key for key in rows.get(NFS_OPERATIONS, {}) if key.mount == "/opt"]
    assert NfsMount("/mnt/three") not in rows.get(NFS_REQUESTS, {})


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        pytest.param("\t  WRITE: 2 3 1 8 8 20 30 60", NfsCalls(2, 1, 1, 20_000, 30_000, 60_000), id="before Linux 5.3"),
        pytest.param("\t  WRITE: 2 2 0 8 8 1 2 3 4 5 6", NfsCalls(2, 0, 0, 1_000, 2_000, 3_000, 4), id="more columns"),
        pytest.param("\t  WRITE: 2 0 0 8 8 1 2 3 0", NfsCalls(2, 0, 0, 1_000, 2_000, 3_000), id="never sent"),
        pytest.param("\t  WRITE: 2 3 1 8 8 20", None, id="cut"),
        pytest.param("\t  WRITE: 2 3 x 8 8 20 30 60 0", None, id="no number"),
        pytest.param("\t  WRITE: -2 3 1 8 8 20 30 60 0", None, id="negative"),
        pytest.param("\t  WRITE: " + "9" * 30 + " 3 1 8 8 20 30 60 0", None, id="too large"),
        pytest.param("\t  write: 2 3 1 8 8 20 30 60 0", None, id="no operation"),
    ],
)
def test_lines_of_other_kernels_and_damaged_ones(proc, line, calls):
    put(proc / "self/mountinfo", "41 27 0:34 / /mnt/nfs rw - nfs a:/ rw\n")
    put(proc / "self/mountstats", f"{HEAD}{line}\n\nno device mounted on /x with fstype none\n{line}\n")
    assert nfs.look(proc, mounts_of(proc), 0).operations == (
        {} if calls is None else {NfsOperation("/mnt/nfs", "WRITE"): calls}
    )


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        pytest.param("xprt:\tudp 772 1 9 7 0 11 0 2 0 3", NfsRequests(9, 7), id="udp"),
        pytest.param("xprt:\trdma 0 0 1 0 5 9 7 0 11 0 0 0 0 0", NfsRequests(9, 7), id="rdma"),
        pytest.param("xprt:\tlocal 0 1 0 5 9 7 0 11 0 2 0 3", NfsRequests(9, 7), id="local"),
        pytest.param("xprt:\ttcp 0 0 1 0 5 9 7 0\n\txprt:\ttcp 0 0 1 0 5 2 1 0", NfsRequests(11, 8), id="nconnect"),
        pytest.param("xprt:\tquic 0 0 1 0 5 9 7 0 11", NfsRequests(), id="not known"),
        pytest.param("xprt:\ttcp 0 0", NfsRequests(), id="cut"),
    ],
)
def test_connections(proc, line, requests):
    put(proc / "self/mountinfo", "41 27 0:34 / /mnt/nfs rw - nfs a:/ rw\n")
    put(proc / "self/mountstats", f"{HEAD}\t{line}\n")
    assert nfs.look(proc, mounts_of(proc), 0).requests == {NfsMount("/mnt/nfs"): requests}


def test_hundreds_of_mounts_are_bounded(proc):
    head, _, section = SLOW[SLOW.index("device 127.0.0.1:/ mounted on /mnt/nfs") :].partition("/mnt/nfs")
    section = section.partition("\ndevice ")[0] + "\n"
    points = [f"/mnt/{number}" for number in range(600)]
    put(
        proc / "self/mountinfo",
        "".join(f"41 27 0:{at} / {point} rw - nfs4 a:/ rw\n" for at, point in enumerate(points)),
    )
    put(proc / "self/mountstats", "".join(f"{head}{point}{section}" for point in points))
    seen = nfs.look(proc, mounts_of(proc), 0)
    assert len(seen.requests) == 256
    assert len(seen.operations) < 256 * 40
