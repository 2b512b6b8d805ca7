"""Threads that hang in operations on files, from files like those of /proc."""

import random
from types import SimpleNamespace

import pytest
from cgroup_host import at_once, put

from latmon.capture.mounts import MountTable
from latmon.model.measurements import (
    FILE_SERVERS,
    FILE_SLEEPS,
    HUNG_OPERATIONS,
    JOURNAL_SIZES,
    LOCK_HOLDERS,
    SERVER_WAITS,
)
from latmon.model.measurements.file_sleeps import FileSleep, JournalOf, LockHolder
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.model.measurements.server_waits import FileServer, ServerWait
from latmon.recording.validate import MAX_LABEL
from latmon_backends.kernel import file_servers, hung_operations, journal_sizes, mount_namespaces
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.hung_operations import HangReader

S = 1_000_000
FROZEN_WRITE = ("percpu_rwsem_wait", "vfs_write", "__x64_sys_pwrite64")
MOUNTS = """\
27 1 254:0 / / rw - ext4 /dev/vda rw
44 27 7:0 / /srv/db rw - ext4 /dev/loop0 rw
45 27 0:40 / /mnt/remote rw - fuse.sshfs host: rw
46 27 0:41 / /mnt/nfs rw - nfs4 host:/x rw
47 27 0:42 / /sys/fs/fuse/connections rw - fusectl fusectl rw
48 27 0:43 / /proc/fs/nfsd rw - nfsd nfsd rw
"""


class Host:
    """A host whose threads are added with what they sleep in."""

    def __init__(self, root):
        self.proc, self.sys = root / "proc", root / "sys"
        self.mounts = MountTable(self.proc)
        put(self.proc / "self/mountinfo", MOUNTS)
        self.namespace("self", 1)
        for number, name in (("7:0", "loop0"), ("254:0", "vda")):
            block = self.sys / "devices" / name
            block.mkdir(parents=True)
            (self.sys / "dev/block").mkdir(parents=True, exist_ok=True)
            (self.sys / "dev/block" / number).symlink_to(block)
        self.now_us = 0
        self.reader = HangReader(
            self.proc, self.sys, self.mounts, at_once, lambda: self.now_us, wait_by_chance=lambda: None
        )

    def thread(self, pid, tid, functions, call="18 0x4 0x0", *, switches=1, is_of_kernel=False):
        """`functions`: the innermost one first."""
        task = self.proc / str(pid) / "task" / str(tid)
        put(self.proc / str(pid) / "comm", "postgres\n")
        if not (self.proc / str(pid) / "ns/mnt").is_symlink():
            self.namespace(pid, 1)
        put(task / "wchan", functions[0])
        put(task / "stack", "".join(f"[<0>] {function}+0x1/0x2\n" for function in functions))
        put(task / "syscall", call + "\n")
        memory = "" if is_of_kernel else "VmSize:\t   100 kB\n"
        put(
            task / "status",
            f"Name:\tpostgres\n{memory}voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n",
        )

    def namespace(self, pid, number):
        namespace = self.proc / str(pid) / "ns"
        namespace.mkdir(parents=True)
        (namespace / "mnt").symlink_to(f"mnt:[{number}]")

    def file(self, pid, number, mount, flags="0100002", *, path="", inode=0):
        info = f"pos:\t0\nflags:\t{flags}\nmnt_id:\t{mount}\n" + (f"ino:\t{inode}\n" if inode else "")
        put(self.proc / str(pid) / "fdinfo" / str(number), info)
        if path:
            (self.proc / str(pid) / "fd").mkdir(exist_ok=True)
            (self.proc / str(pid) / "fd" / str(number)).symlink_to(path)

    def name(self, pid, comm):
        put(self.proc / str(pid) / "comm", comm + "\n")

    def tables(self, seconds=10, every_s=lambda _: None):
        first = self.reader.sample(self.now_us)
        for second in range(seconds):
            every_s(second)
            last = self.reader.sample(self.now_us)
            self.now_us += S
        return tables_between(first, last)

    def rows(self, seconds=10, every_s=None):
        first = self.reader.sample(self.now_us)
        for second in range(seconds):
            if every_s is not None:
                every_s(second)
            last = self.reader.sample(self.now_us)
            self.now_us += S
        return tables_between(first, last).get(HUNG_OPERATIONS, {})


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(hung_operations.platform, "machine", lambda: "x86_64")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_writers_of_a_frozen_file_system_are_counted_by_process(host):
    for tid in (7, 8):
        host.thread(7, tid, FROZEN_WRITE)
    host.file(7, 4, 44)
    ((key, time),) = host.rows().items()
    assert key == HungOperation("loop0", "/srv/db", "ext4", "frozen", "postgres/7")
    assert 7 * S <= time.lasted_us <= 9 * S
    assert time.threads_us == 2 * time.lasted_us


def frozen_in(host, *spans):
    """Let a thread wait for a frozen file system in seconds [begin, end] of each span, and sleep elsewhere."""

    def change(second):
        at = next((at for at, (begin, end) in enumerate(spans) if begin <= second <= end), None)
        functions = ("hrtimer_nanosleep",) if at is None else FROZEN_WRITE
        host.thread(7, 7, functions, switches=second if at is None else 100 + at)

    host.file(7, 4, 44)
    return change


@pytest.mark.parametrize(
    ("spans", "lasted_s", "times"),
    [
        pytest.param([(2, 3)], 1, 1, id="seen by a walk and with the next sample"),
        pytest.param([(2, 4), (8, 10), (14, 16)], 6, 3, id="again and again"),
        pytest.param([(2, 2), (3, 3), (6, 6)], 0, 0, id="other waits at the next look"),
    ],
)
def test_short_freezes_are_counted(host, spans, lasted_s, times):
    rows = host.rows(20, frozen_in(host, *spans))
    assert [(time.lasted_us, time.times) for time in rows.values()] == ([(lasted_s * S, times)] if times else [])


def test_a_freeze_without_a_break_began_once(host):
    host.file(7, 4, 44)

    def change(second):
        for tid in (7, 8):  # the second thread waits from the fifth second on
            functions = FROZEN_WRITE if tid == 7 or second > 5 else ("hrtimer_nanosleep",)
            host.thread(7, tid, functions)

    ((_, time),) = host.rows(12, change).items()
    assert time.times == 1


def test_operations_that_overlap_begin_anew_where_the_oldest_has_ended(host):
    host.file(7, 4, 45)

    def change(second):
        for tid in (7, 8):  # each operation takes 4 s, those of the other thread begin 2 s later
            begun = (second + 2 * (tid - 7)) // 4
            host.thread(7, tid, ("request_wait_answer",), "0 0x4", switches=begun)

    ((_, time),) = host.rows(24, change).items()
    assert time.times >= 4


def test_waits_are_looked_at_as_seldom_as_that_takes_long(host, monkeypatch):
    looks = []
    times_ns = iter(range(0, 10**12, 7_500_000))  # between two calls, of which a walk has two
    monkeypatch.setattr(hung_operations, "time", SimpleNamespace(thread_time_ns=times_ns.__next__))
    look = hung_operations.look
    monkeypatch.setattr(hung_operations, "look", lambda *words: looks.append(words[3]) or look(*words))
    host.thread(7, 7, FROZEN_WRITE)
    host.file(7, 4, 44)
    host.rows(10)
    assert looks == [0, 3 * S, 6 * S, 9 * S]  # 15 ms are 0.5 % of 3 s


def test_a_sample_that_comes_some_milliseconds_early_is_in_time(host):
    host.thread(7, 7, ("hrtimer_nanosleep",))
    host.reader.sample(0)
    host.now_us = 2 * S - 5_000
    host.thread(7, 7, FROZEN_WRITE)
    host.file(7, 4, 44)
    for _ in range(3):
        first = host.reader.sample(host.now_us)
        host.now_us += S
    assert tables_between({}, first)[HUNG_OPERATIONS]


def test_the_rows_of_processes_that_are_gone_are_forgotten(host, monkeypatch):
    monkeypatch.setattr(host.reader._sums[HUNG_OPERATIONS], "_most_sums", 3)

    def change(second):
        pid = 10 + second // 4
        host.thread(pid, pid, FROZEN_WRITE)
        host.file(pid, 4, 44)
        if second and second % 4 == 0:
            host.thread(pid - 1, pid - 1, ("hrtimer_nanosleep",))

    host.rows(40, change)
    assert len(host.reader.sample(host.now_us)[HUNG_OPERATIONS]) == 3


@pytest.mark.parametrize(
    ("function", "mount", "key"),
    [
        ("request_wait_answer", 45, HungOperation("", "/mnt/remote", "fuse.sshfs", "server", "postgres/7")),
        ("fuse_direct_IO", 45, HungOperation("", "/mnt/remote", "fuse.sshfs", "server", "postgres/7")),
        ("fuse_file_write_iter", 45, HungOperation("", "/mnt/remote", "fuse.sshfs", "server", "postgres/7")),
        ("rpc_wait_bit_killable", 46, HungOperation("", "/mnt/nfs", "nfs4", "server", "postgres/7")),
    ],
)
@pytest.mark.parametrize("has_file", [True, False])
def test_a_silent_server_is_named_by_the_file_or_as_the_only_one_of_its_kind(host, function, mount, key, has_file):
    host.thread(7, 7, (function, "vfs_read"), "0 0x4" if has_file else "262 0xffffff9c")
    host.file(7, 4, mount)
    assert set(host.rows()) == {key}


def test_a_silent_server_has_the_name_of_its_usual_mount_as_its_nfs_calls_have(host):
    put(host.proc / "self/mountinfo", MOUNTS + "60 27 0:41 /sub /a rw - nfs4 host:/x rw\n")
    host.thread(7, 7, ("rpc_wait_bit_killable", "vfs_read"), "0 0x4")
    host.file(7, 4, 60)
    assert {key.mount for key in host.rows()} == {"/mnt/nfs"}


@pytest.mark.parametrize(("mount", "keys"), [(45, {"/mnt/remote"}), (44, set()), (99, set())])
def test_a_wait_for_a_page_is_that_for_a_server_where_the_file_has_one(host, mount, keys):
    host.thread(7, 7, ("folio_wait_bit_common", "filemap_get_pages", "filemap_read"), "17 0x4")
    host.file(7, 4, mount)
    assert {key.mount for key in host.rows()} == keys


def test_waits_for_pages_leave_room_for_the_others(host, monkeypatch):
    monkeypatch.setattr(hung_operations, "_MOST_PAGE_WAITS", 2)
    for tid in range(10, 20):
        host.thread(7, tid, ("folio_wait_bit_common", "filemap_get_pages"), "17 0x4")
    host.thread(9, 9, FROZEN_WRITE)
    host.file(9, 4, 44)
    waits = hung_operations.look(host.proc, host.sys, host.mounts, 0).waits
    assert len(waits) == 3
    assert ("9", "9") in waits


def test_which_of_two_servers_hangs_is_not_guessed(host):
    put(host.proc / "self/mountinfo", MOUNTS + "47 27 0:42 / /mnt/other rw - fuse.sshfs host: rw\n")
    host.thread(7, 7, ("request_wait_answer", "vfs_statx"), "262 0xffffff9c")
    assert set(host.rows()) == {HungOperation("", "", "fuse", "server", "postgres/7")}


def test_the_file_of_io_submit_is_that_which_is_open_to_write(host):
    host.thread(7, 7, ("percpu_rwsem_wait", "aio_write", "io_submit_one"), "209 0x7f0000000000")
    host.file(7, 3, 27, flags="0100000")
    host.file(7, 4, 44)
    assert {key.mount for key in host.rows()} == {"/srv/db"}


@pytest.mark.parametrize("call", ["257 0xffffff9c 0x7f", "275 0x4 0x0"])
def test_a_frozen_file_system_that_is_not_known_has_no_name(host, call):
    host.thread(7, 7, ("percpu_rwsem_wait", "mnt_want_write", "path_openat"), call)
    host.file(7, 4, 44)
    assert set(host.rows()) == {HungOperation("", "", "", "frozen", "postgres/7")}


def test_a_long_mount_keeps_its_end_and_is_read_again(host):
    """A recording has names of 256 characters at most: a longer one cost its whole window."""
    put(host.proc / "self/mountinfo", MOUNTS.replace("/srv/db", f"/srv/{'x' * 400}/db"))
    host.thread(7, 7, FROZEN_WRITE)
    host.file(7, 4, 44)
    (row,) = host.rows()
    assert len(row.mount) == MAX_LABEL
    assert row.mount.startswith("…x")
    assert row.mount.endswith("/db")


def test_a_mount_of_another_namespace_is_named_as_in_that_of_latmon(host):
    """A container's path is another file system's here, or nobody's: commands are for this host."""
    host.thread(7, 7, FROZEN_WRITE)
    host.file(7, 4, 90)
    put(host.proc / "7/mountinfo", "90 27 7:0 / /data rw - ext4 /dev/loop0 rw\n")
    assert {(key.device, key.mount) for key in host.rows()} == {("loop0", "/srv/db")}


@pytest.mark.parametrize("call", ["0 0x4", "262 0xffffff9c"])
def test_the_only_server_of_this_host_is_not_blamed_for_a_container_s_mount(host, call):
    """A container's s3fs, mounted in its namespace only, was said to be the host's sshfs."""
    host.namespace(7, 2)
    put(host.proc / "7/mountinfo", "900 1 0:99 / /data rw - fuse.s3fs s3 rw\n")
    tables = waits_again(host, call=call, mount=900)
    assert list(tables[SERVER_WAITS]) == [ServerWait("", "fuse", "postgres/7")]


def test_the_only_server_of_this_host_is_not_blamed_for_a_detached_mount(host):
    tables = waits_again(host, call="0 0x4", mount=900)
    assert list(tables[SERVER_WAITS]) == [ServerWait("", "fuse", "postgres/7")]


@pytest.mark.parametrize(("call", "mounts"), [(72, set()), (73, set()), (0, {"/mnt/remote"})])
def test_a_wait_for_a_lock_that_another_program_has_is_no_silence(host, call, mounts):
    """fcntl() and flock() of a file on FUSE wait in request_wait_answer, as long as the lock is taken."""
    host.thread(7, 7, ("request_wait_answer", "fuse_simple_request", "fuse_setlk"), call=f"{call} 0x4 0x7")
    host.file(7, 4, 45)
    assert {key.mount for key in host.rows()} == mounts


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param(("percpu_rwsem_wait", "cgroup_procs_write_start"), id="a semaphore of cgroups"),
        pytest.param(("percpu_rwsem_wait", "__percpu_down_read", "copy_process"), id="a fork"),
        pytest.param(("hrtimer_nanosleep", "common_nsleep"), id="asleep"),
        pytest.param(("0",), id="not readable"),
    ],
)
def test_other_sleeps_are_left_out(host, functions):
    host.thread(7, 7, functions)
    host.file(7, 4, 44)
    assert host.rows() == {}


def test_kernel_threads_are_left_out(host):
    host.thread(7, 7, ("request_wait_answer", "fuse_flush"), is_of_kernel=True)
    assert host.rows() == {}


def test_a_thread_that_waits_again_and_again_does_not_hang(host):
    host.file(7, 4, 45)
    rows = host.rows(every_s=lambda second: host.thread(7, 7, ("request_wait_answer",), "0 0x4", switches=second))
    assert rows == {}


def test_all_threads_are_looked_at_as_seldom_as_that_takes_long(host, monkeypatch):
    host.thread(7, 7, ("hrtimer_nanosleep",))
    clock = SimpleNamespace(thread_time_ns=iter(range(0, 10**12, 60_000_000)).__next__)
    monkeypatch.setattr(hung_operations, "time", clock)
    first = hung_operations.look(host.proc, host.sys, host.mounts, 0)
    assert first.walk_due_us == 200 * 60_000
    assert first.spent_us < 200_000
    host.thread(7, 7, FROZEN_WRITE)
    host.file(7, 4, 44)
    assert hung_operations.look(host.proc, host.sys, host.mounts, 2 * S, first).waits == {}
    assert hung_operations.look(host.proc, host.sys, host.mounts, 12 * S, first).waits


def test_the_number_of_threads_is_bounded(host, monkeypatch):
    monkeypatch.setattr(hung_operations, "_MOST_THREADS", 3)
    monkeypatch.setattr(hung_operations, "_MOST_WAITS", 2)
    for tid in range(7, 17):
        host.thread(7, tid, FROZEN_WRITE)
    host.file(7, 4, 44)
    assert len(hung_operations.look(host.proc, host.sys, host.mounts, 0).waits) == 2


def test_a_process_with_many_waits_leaves_room_for_others(host):
    """200 threads of one program that waited hid all others."""
    for tid in range(100, 350):
        host.thread(100, tid, FROZEN_WRITE)
    host.thread(400, 400, FROZEN_WRITE)
    assert ("400", "400") in hung_operations.look(host.proc, host.sys, host.mounts, 0).waits


def in_containers(host, monkeypatch, pids):
    """Let each process wait for a file on the host's disk, by a mount of its namespace; return what was read, too."""
    for pid in pids:
        host.thread(pid, pid, FROZEN_WRITE)
        host.file(pid, 4, 900)
        put(host.proc / str(pid) / "mountinfo", "900 27 7:0 / /data rw - ext4 /dev/loop0 rw\n")
    paths = []
    read = mount_namespaces._beginning
    monkeypatch.setattr(mount_namespaces, "_beginning", lambda path: paths.append(path) or read(path))
    waits = hung_operations.look(host.proc, host.sys, host.mounts, 0).waits
    return waits, paths


def test_the_mounts_of_a_container_are_read_once_for_all_of_its_threads(host, monkeypatch):
    for pid in range(7, 12):
        host.namespace(pid, 2)
    waits, files = in_containers(host, monkeypatch, range(7, 12))
    assert {wait.row.mount for wait in waits.values()} == {"/srv/db"}
    assert len(files) == 1


def test_the_mounts_of_some_containers_are_read(host, monkeypatch):
    for pid in range(7, 57):
        host.namespace(pid, pid)
    waits, files = in_containers(host, monkeypatch, range(7, 57))
    assert len(files) == 16
    assert sum(wait.row.mount == "/srv/db" for wait in waits.values()) == 16


def test_of_a_container_with_too_many_mounts_the_first_ones_are_read(host, monkeypatch):
    monkeypatch.setattr(mount_namespaces, "_MOST_BYTES", 1 << 16)
    host.namespace(7, 2)
    host.thread(7, 7, FROZEN_WRITE)
    host.file(7, 4, 90_000)
    mounts = [f"{number} 27 0:{number} / /m/{number} rw - tmpfs tmpfs rw\n" for number in range(10_000)]
    put(host.proc / "7/mountinfo", "".join(mounts) + "90000 27 7:0 / /data rw - ext4 /dev/loop0 rw\n")
    (wait,) = hung_operations.look(host.proc, host.sys, host.mounts, 0).waits.values()
    assert wait.row.mount == ""


def test_of_too_many_threads_each_has_its_turn(host, monkeypatch):
    """The last processes were never looked at. One that hangs is looked at again while the others have their turn."""
    monkeypatch.setattr(hung_operations, "_MOST_THREADS", 4)
    for pid in range(10, 30):
        host.thread(pid, pid, ("hrtimer_nanosleep",))
    host.thread(28, 28, FROZEN_WRITE)
    host.file(28, 4, 44)
    ((row, time),) = host.rows(30).items()
    assert row.process.endswith("/28")
    assert time.lasted_us >= 10 * S


def test_rows_are_summed_up_with_what_was_before():
    key = HungOperation("loop0", "/a", "ext4", "frozen", "x/1")
    before, after = ({HUNG_OPERATIONS: {key: time}} for time in (HungTime(2, 4, 1), HungTime(5, 10, 3)))
    rows = tables_between(before, after)
    assert rows == {HUNG_OPERATIONS: {key: HungTime(3, 6, 2)}}


def waits_again(host, seconds=10, per_s=5, **changed):
    """Return the waits for servers of a thread that is in one at each look, so many of them a second."""
    call = changed.pop("call", "257 0xffffff9c 0x7f00")
    host.file(7, 4, changed.pop("mount", 45))

    def change(second):
        host.thread(7, 7, ("request_wait_answer",), call, switches=second * per_s)

    first = host.reader.sample(host.now_us)
    for second in range(seconds):
        change(second)
        last = host.reader.sample(host.now_us)
        host.now_us += S
    return tables_between(first, last)


def test_a_thread_that_waits_for_a_server_at_each_look_is_counted_with_its_sleeps(host):
    ((key, waited),) = waits_again(host).get(SERVER_WAITS).items()
    assert key == ServerWait("/mnt/remote", "fuse.sshfs", "postgres/7")
    assert 6 * S <= waited.waited_us <= 8 * S
    assert waited.mean_us == pytest.approx(200_000)


@pytest.mark.parametrize("wait_ms", [30, 500])
def test_waits_once_a_second_take_their_time_also_in_phase_with_the_samples(host, wait_ms):
    """A stat of 30 ms once a second was found waiting at each look, and its waits were said to take 500 ms or more."""
    chance = random.Random(7)
    host.file(7, 4, 45)

    def wait_by_chance():
        host.now_us += int(chance.uniform(0, 0.9) * S)
        is_waiting = host.now_us % S < wait_ms * 1_000
        function = "request_wait_answer" if is_waiting else "hrtimer_nanosleep"
        host.thread(7, 7, (function,), "0 0x4", switches=2 * (host.now_us // S) + (not is_waiting))

    host.reader._wait_by_chance = wait_by_chance
    first = host.reader.sample(0)
    seconds = 300
    for second in range(seconds):
        host.now_us = second * S
        last = host.reader.sample(host.now_us)
    (waited,) = tables_between(first, last)[SERVER_WAITS].values()
    assert waited.mean_us == pytest.approx(wait_ms * 1_000 / 2, rel=0.2, abs=15_000)


def test_a_thread_that_was_seen_waiting_is_not_watched_for_ever(host):
    waits_again(host, seconds=3)
    host.thread(7, 7, ("hrtimer_nanosleep",), switches=100)
    for _ in range(14):
        host.reader.sample(host.now_us)
        host.now_us += S
    assert host.reader._last.waits == {}


def test_a_call_with_a_path_waits_for_a_server_that_is_not_known(host):
    """The call was left out where two mounts have such servers: open() of 180 ms was invisible."""
    put(host.proc / "self/mountinfo", MOUNTS + "49 27 0:44 / /mnt/other rw - fuse.rclone x rw\n")
    tables = waits_again(host)
    assert list(tables[SERVER_WAITS]) == [ServerWait("", "fuse", "postgres/7")]
    assert not tables.get(HUNG_OPERATIONS)
    assert list(tables[FILE_SLEEPS]) == [FileSleep("", "", "fuse", "server", "open", "", "postgres/7")]


def test_a_lock_is_no_wait_for_a_server(host):
    assert not waits_again(host, call="72 0x4").get(SERVER_WAITS)


def serving(host, pid, connection=40):
    served = host.proc / str(pid)
    put(served / "comm", "sshfs\n")
    put(served / "fdinfo/5", f"flags:\t02100002\nfuse_connection:\t{connection}\n")
    (served / "fd").mkdir()
    (served / "fd/5").symlink_to("/dev/fuse")


def test_of_too_many_processes_each_has_its_turn_to_serve(host, monkeypatch):
    """The processes beyond the first ones were never looked at."""
    monkeypatch.setattr(file_servers, "_MOST_PROCESSES", 3)
    for pid in range(10, 20):
        put(host.proc / str(pid) / "comm", "sleep\n")
    serving(host, 18)
    found = None
    has_server = []
    for _ in range(8):
        found = file_servers.file_servers(host.proc, host.mounts.read(), found)
        has_server.append(found.servers == {FileServer("/mnt/remote", "sshfs/18")})
    assert has_server == [False, False, *[True] * 6]
    (host.proc / "18/fd/5").unlink()
    assert not file_servers.file_servers(host.proc, host.mounts.read(), found).servers


def test_the_process_that_serves_a_mount_is_found_by_its_device(host):
    served = host.proc / "9"
    put(served / "comm", "sshfs\n")
    put(served / "fdinfo/5", "flags:\t02100002\nfuse_connection:\t40\n")
    put(served / "fdinfo/6", "flags:\t02100002\nfuse_connection:\t99\n")
    (served / "fd").mkdir()
    (served / "fd/5").symlink_to("/dev/fuse")
    (served / "fd/6").symlink_to("/dev/fuse")
    (served / "fd/7").symlink_to("/dev/null")
    (key,) = waits_again(host)[FILE_SERVERS]
    assert key == FileServer("/mnt/remote", "sshfs/9")


READ_LOCKED = ("xfs_ilock", "xfs_file_buffered_read", "xfs_file_read_iter", "vfs_read")
"""Linux 6.18: the functions of the semaphore itself are not in it."""
WRITES_UNDER_LOCK = ("submit_bio_wait", "iomap_read_folio_range", "iomap_write_begin", "xfs_file_buffered_write")
CHECKPOINT = ("blk_mq_get_tag", "submit_bio_noacct", "jbd2_log_do_checkpoint", "__jbd2_log_wait_for_space")


def locked_reads(host, functions=READ_LOCKED, switches_per_s=75):
    """Let searchapi wait for the lock of a file at each look, and reindexer write it and wait for I/O."""
    host.file(9, 3, 44, path="/srv/db/catalog.idx", inode=131)
    host.file(7, 4, 44, path="/srv/db/catalog.idx", inode=131)

    def change(second):
        host.thread(7, 7, functions, "17 0x4 0x7f", switches=second * switches_per_s)
        host.name(7, "searchapi")
        host.thread(9, 9, WRITES_UNDER_LOCK, "18 0x3 0x7f", switches=second * 40)
        host.name(9, "reindexer")

    return host.tables(10, change)


def test_a_wait_for_the_lock_of_a_file_has_the_file_and_who_works_on_it(host):
    """60 cached reads a second that waited 13 ms each for a file's lock were in no table."""
    tables = locked_reads(host)
    ((key, waited),) = tables[FILE_SLEEPS].items()
    assert key == FileSleep("loop0", "/srv/db", "ext4", "lock", "read", "catalog.idx", "searchapi/7")
    assert 6 * S <= waited.waited_us <= 9 * S
    assert waited.sleeps == waited.waited_us // S * 75
    assert set(tables[LOCK_HOLDERS]) == {LockHolder("/srv/db", "catalog.idx", "write", "reindexer/9")}
    assert not tables.get(HUNG_OPERATIONS)


def test_who_works_on_another_file_has_not_its_lock(host):
    host.file(9, 3, 44, path="/srv/db/other", inode=132)
    host.thread(9, 9, WRITES_UNDER_LOCK, "18 0x3 0x7f")
    host.file(7, 4, 44, path="/srv/db/catalog.idx", inode=131)
    tables = host.tables(10, lambda second: host.thread(7, 7, READ_LOCKED, "17 0x4 0x7f", switches=second * 75))
    assert tables[FILE_SLEEPS]
    assert not tables.get(LOCK_HOLDERS)


SYNC_OF_WRITE = ("jbd2_log_wait_commit", "ext4_sync_file", "ext4_buffered_write_iter", "vfs_write")
SYNC_OF_XFS = ("xlog_wait_on_iclog", "xfs_file_fsync", "xfs_file_buffered_write", "vfs_write")
SYNC_OF_CREATE = ("jbd2_log_wait_commit", "jbd2_journal_stop", "__ext4_journal_stop", "ext4_create", "path_openat")
"""Stacks of Linux 6.18."""


@pytest.mark.parametrize(
    ("functions", "call", "cause", "op"),
    [
        pytest.param(("ext4_buffered_write_iter", "vfs_write"), "18 0x4", "lock", "write", id="writers of one file"),
        pytest.param(("path_openat", "do_filp_open"), "257 0xffffff9c 0x7f 0x241", "lock", "create", id="a directory"),
        pytest.param(("path_openat", "do_filp_open"), "257 0xffffff9c 0x7f 0x0", "lock", "open", id="an open"),
        pytest.param(("do_unlinkat",), "87 0x7f", "lock", "unlink", id="an unlink"),
        pytest.param(("lock_rename", "do_renameat2"), "82 0x7f 0x7f", "lock", "rename", id="the lock of renames"),
        pytest.param(CHECKPOINT, "260 0x4 0x7f", "log space", "chown", id="it makes room in the journal"),
        pytest.param(
            ("__jbd2_log_wait_for_space", "add_transaction_credits"), "82 0x7f", "log space", "rename", id="room"
        ),
        pytest.param(
            ("wait_transaction_locked", "start_this_handle"), "18 0x4", "journal", "write", id="a transaction"
        ),
        pytest.param(("xlog_grant_head_wait", "xfs_log_reserve"), "83 0x7f", "log space", "mkdir", id="the log of xfs"),
        pytest.param(SYNC_OF_WRITE, "18 0x4", "journal", "fsync", id="a write with O_DSYNC"),
        pytest.param(SYNC_OF_XFS, "18 0x4", "journal", "fsync", id="the same on xfs"),
        pytest.param(SYNC_OF_CREATE, "257 0xffffff9c 0x7f 0x241", "journal", "fsync", id="a create with -o sync"),
    ],
)
def test_causes_of_sleeps_are_known_by_the_kernel_s_functions(host, functions, call, cause, op):
    host.file(7, 4, 44)
    tables = host.tables(6, lambda second: host.thread(7, 7, functions, call, switches=second))
    assert {(key.cause, key.op) for key in tables[FILE_SLEEPS]} == {(cause, op)}


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param(("blk_mq_get_tag", "blkdev_read_iter"), id="I/O of its own"),
        pytest.param(("__wait_on_buffer", "ext4_read_bh"), id="a block that it reads"),
        pytest.param(("hrtimer_nanosleep",), id="asleep"),
        pytest.param(("pipe_read",), id="a pipe"),
    ],
)
def test_sleeps_for_own_io_are_none(host, functions):
    host.file(7, 4, 44)
    tables = host.tables(6, lambda second: host.thread(7, 7, functions, "0 0x4", switches=second))
    assert not tables.get(FILE_SLEEPS)


def test_of_a_call_with_a_path_the_file_system_is_that_of_the_only_mount_of_its_type(host):
    put(host.proc / "self/mountinfo", MOUNTS.replace("ext4 /dev/loop0", "xfs /dev/loop0"))
    (key,) = host.tables(6, lambda second: host.thread(7, 7, CREATE_IN_XFS, "83 0x7f", switches=second))[FILE_SLEEPS]
    assert (key.device, key.mount, key.kind) == ("loop0", "/srv/db", "xfs")


CREATE_IN_XFS = ("xlog_grant_head_wait", "xfs_log_reserve", "xfs_trans_reserve")


def test_of_two_mounts_of_its_type_none_is_guessed(host):
    functions = (*CHECKPOINT, "ext4_mkdir")
    host.file(7, 2, 27, flags="0100001")  # it has its log open to write elsewhere, as most programs
    (key,) = host.tables(6, lambda second: host.thread(7, 7, functions, "83 0x7f", switches=second))[FILE_SLEEPS]
    assert (key.device, key.mount, key.kind) == ("", "", "ext4")


def stuck_in_open(host, served=()):
    """Let a thread hang in open() on a host with two FUSE mounts, /mnt/remote and /mnt/other, for 10 s.

    `served`: I/Os of a loop device on a file of /mnt/other, by second.
    """
    put(host.proc / "self/mountinfo", MOUNTS + "49 27 0:44 / /mnt/other rw - fuse.delayfs x rw\n")
    host.thread(7, 7, ("request_wait_answer", "fuse_lookup_name"), "257 0xffffff9c 0x7f 0x0")

    def change(second):
        if served:
            put(host.sys / "block/loop7/loop/backing_file", "/mnt/other/disk.img\n")
            put(host.sys / "block/loop7/stat", f"{served[second]} 0 8 1 5 0 8 1 0 1 2\n")

    return host.tables(10, change)


def test_an_open_that_hangs_is_on_the_mount_whose_server_answers_no_request(host):
    """With two FUSE mounts a silent server was no finding at all, but one that gets slower and slower."""
    for number, waiting in ((40, 3), (44, 0)):
        put(host.sys / f"fs/fuse/connections/{number}/waiting", f"{waiting}\n")
    tables = stuck_in_open(host)
    assert {key.mount for key in tables[HUNG_OPERATIONS]} == {"/mnt/remote"}
    assert {(key.mount, key.op) for key in tables[FILE_SLEEPS]} == {("/mnt/remote", "open")}


def test_a_mount_whose_loop_device_completes_ios_is_not_the_silent_one(host):
    tables = stuck_in_open(host, served=range(100, 600, 50))
    assert {key.mount for key in tables[HUNG_OPERATIONS]} == {"", "/mnt/remote"}
    (known,) = (time for key, time in tables[HUNG_OPERATIONS].items() if key.mount)
    assert (known.lasted_us, known.times) == (7 * S, 1)


@pytest.mark.parametrize("served", [(), (100,) * 10])
def test_which_of_two_silent_mounts_it_is_is_not_known(host, served):
    tables = stuck_in_open(host, served)
    assert {(key.mount, key.kind) for key in tables[HUNG_OPERATIONS]} == {("", "fuse")}


def test_a_journal_that_threads_wait_for_has_its_size(host, monkeypatch):
    sizes = []
    monkeypatch.setattr(journal_sizes, "run_aside", at_once_named)
    monkeypatch.setattr(journal_sizes, "_size", lambda mount: sizes.append(mount.source) or 2_097_152)
    host.file(7, 4, 44)
    tables = host.tables(6, lambda second: host.thread(7, 7, CHECKPOINT, "260 0x4 0x7f", switches=second))
    ((key, looks),) = tables[JOURNAL_SIZES].items()
    assert (key, looks.mean_bytes) == (JournalOf("loop0", "/srv/db"), 2_097_152)
    assert sizes == ["/dev/loop0"]


def at_once_named(_name, call):
    return at_once(call)


def test_threads_that_wait_for_a_lock_and_have_it_in_turn(host):
    """One that had waited before was not seen to have the lock."""
    for pid in (7, 9):
        host.file(pid, 4, 44, path="/srv/db/log", inode=131)

    def change(second):
        for pid in (7, 9):
            functions = READ_LOCKED if (second + pid) // 2 % 2 else WRITES_UNDER_LOCK
            host.thread(pid, pid, functions, "18 0x4 0x7f", switches=second)

    tables = host.tables(16, change)
    assert {row.process for row in tables[LOCK_HOLDERS]} == {"postgres/7", "postgres/9"}


def test_a_thread_that_goes_on_while_it_is_looked_at_is_left_out(host, monkeypatch):
    """The call of a thread that had got its lock was nanosleep, whose first argument was taken to be a file."""
    host.file(7, 4, 44)
    host.thread(7, 7, READ_LOCKED, "17 0x4 0x7f")
    read = hung_operations.call_of

    def call_of(text):
        host.thread(7, 7, ("hrtimer_nanosleep",), switches=2)
        return read(text)

    monkeypatch.setattr(hung_operations, "call_of", call_of)
    (wait,) = hung_operations.look(host.proc, host.sys, host.mounts, 0).waits.values()
    assert not wait.operation.is_of_interest
