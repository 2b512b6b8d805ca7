"""Operations on files from the lines of files_c: histograms by file system, slow operations with their paths."""

import pytest
from fake_dtrace import GOLDEN

from latmon.capture import mounts
from latmon.capture.mounts import Mounts, MountTable
from latmon.decode.tables import record
from latmon.manifest import load
from latmon.model import measurements
from latmon.model.frame import FileSystem
from latmon.model.measurements.files import FileSeries
from latmon.support.paths import data_dir
from latmon.support.text import is_clean
from latmon_backends.bpftrace.tracer import FileSystems
from latmon_backends.dtrace.probe import DtraceDecoder, Maps, NumberedNames
from latmon_backends.probe.events import Lost, MapPrinted, Printed
from latmon_backends.probe.outliers import Threads
from latmon_backends.probe.tick_protocol import FileOperations, OnDemandSurroundings, OnDemandTicks

MANIFEST = load(data_dir("probes") / "linux/files_c.yaml")
WAKEUPS = load(data_dir("probes") / "linux/wakeups_c.yaml")
VOP_FILES = GOLDEN / "illumos-vop_files.txt"
ROOT, SDA = 8 << 20 | 1, 8 << 20
SYSTEMS = {ROOT: FileSystem("/", "ext4", "sda"), 52: FileSystem("/net", "nfs4")}
UNKNOWN = "18446744073709551615"


def key(call, wait, us_bucket=0, dev=ROOT):
    return str(dev << 16 | wait << 12 | call << 8 | us_bucket)


class Run:
    def __init__(self, proc):
        around = OnDemandSurroundings(100, ahead_us=lambda _: 500, file_system=SYSTEMS.__getitem__)
        self.ticks = OnDemandTicks([MANIFEST, WAKEUPS], {SDA: "sda"}.get, Threads(proc), around)
        self.tick(0)
        self.ticks.taken()

    def line(self, text):
        self.ticks.take(Printed(text))

    def tick(self, number, **maps):
        self.line(f"tick files_c {number} {number * 1_000_000_000}")
        for name, rows in maps.items():
            self.ticks.take(MapPrinted(f"files_c_{name}", rows))
        self.line("done files_c")


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_operations_are_counted_by_file_system_op_and_wait(run):
    took = {
        key(0, 0, 5): 3,
        key(3, 1, 40): 2,
        key(1, 2, 7, dev=52): 1,
        key(4, 2, 9, dev=52): 4,
        key(9, 0): 1,
        key(0, 7): 1,
    }
    times = {key(0, 0): 15, key(3, 1): 270, key(1, 2, dev=52): 7}
    run.tick(1, took=took, sum=times, max={key(3, 1, 1): 1 << 32 | 140, key(0, 0, 0): 2 << 32 | 5})
    table = run.ticks.taken().interval.tables[measurements.FILES]
    assert {(one.mount, one.op, one.wait): done.count for one, done in table.items()} == {
        ("/", "read", "cached"): 3,
        ("/", "fsync", "device"): 2,
        ("/net", "write", "unknown"): 1,
        ("/net", "close", "unknown"): 4,
    }
    sync = table[FileSeries("sda", "fsync", "/", "ext4", "device")]
    assert (sync.sum, sync.max) == (270, 140)
    run.tick(2, took={**took, key(0, 0, 5): 4}, sum={**times, key(0, 0): 20}, suppressed={str(ROOT << 16): 2})
    later = run.ticks.taken().interval
    assert {one.op: (done.count, done.sum) for one, done in later.tables[measurements.FILES].items()} == {
        "read": (1, 5)
    }
    assert (later.files_left_out, later.suppressed) == (2, 0)


def test_a_slow_operation_has_its_path_and_the_clock_of_the_frames(run):
    for name in ("f\\x0a1", "\\xc3\\xa4b", "db"):
        run.line(f"path files_c 77 3 {name}")
    run.line("path files_c 78 5 other")
    run.line(f"file files_c 77 {ROOT} 3 1 2000500000 9000 {UNKNOWN} -1 {SDA} 64 128 4211 ora lgwr")
    run.line("file files_c 78 52 0 2 1000500000 100 4096 8192 0 0 0 4211 nfs")
    run.tick(1)
    other, sync = run.ticks.taken().file_operations
    assert (sync.op, sync.wait, sync.path, sync.comm, sync.pid) == ("fsync", "device", "db/äb/f\\n1", "ora lgwr", 4211)
    assert (sync.mono_us, sync.until_us, sync.bytes, sync.offset) == (2_000_000, 2_009_000, None, None)
    assert (sync.disk, sync.sectors, sync.file_system.mount) == ("sda", (64, 128), "/")
    assert (other.path, other.bytes, other.offset, other.disk, other.sectors) == ("other", 4096, 8192, "", None)
    assert run.ticks.taken().file_operations == ()


STACK = """
        bpf_prog_b1434792fe024101_rawtracepoint_sched_switch_4+3278
        bpf_trace_run4+269
        __schedule+1576
        schedule+35
        schedule_preempt_disabled+17
        rwsem_down_write_slowpath+541
        down_write+102
        ext4_buffered_write_iter+49
        vfs_write+668
"""


def waited(call, *functions, dev=ROOT):
    return f"{dev << 8 | call},\n" + "".join(f"        {function}+41\n" for function in functions)


def test_the_time_of_operations_is_split_by_the_stacks_of_their_sleeps(run):
    own, cpu = {key(1, 0): 600, key(3, 0): 0}, {key(1, 0): 20}
    slept = {
        waited(1, "__schedule", "schedule", "rwsem_down_write_slowpath", "down_write"): 9_000,
        waited(1, "schedule", "io_schedule", "bit_wait_io", "do_get_write_access"): 70,
        waited(1, "schedule", "io_schedule", "folio_wait_bit", "folio_wait_writeback"): 50,
        waited(3, "schedule", "jbd2_log_wait_commit"): 4_000,
        waited(3, "schedule", "something_new"): 5,
        waited(0, "schedule", "rpc_wait_bit_killable", dev=52): 7,
        waited(9, "schedule", "down_write"): 7,
    }
    run.tick(1, own=own, cpu=cpu, slept=slept)
    table = run.ticks.taken().interval.tables[measurements.FILE_TIMES]
    assert {(one.mount, one.op, one.part): us for one, us in table.items()} == {
        ("/", "write", "own I/O"): 600,
        ("/", "write", "CPU"): 20,
        ("/", "write", "lock"): 9_000,
        ("/", "write", "journal"): 70,
        ("/", "write", "other I/O"): 50,
        ("/", "fsync", "journal"): 4_000,
        ("/", "fsync", "asleep"): 5,
        ("/net", "read", "server"): 7,
    }
    run.tick(2, own={key(1, 0): 700}, cpu=cpu, slept=slept)
    later = run.ticks.taken().interval.tables[measurements.FILE_TIMES]
    assert {one.part: us for one, us in later.items()} == {"own I/O": 100}


def test_a_slow_operation_has_its_split_and_the_stack_of_its_longest_sleep(run, tmp_path):
    (tmp_path / "78").mkdir()
    (tmp_path / "78/stat").write_text("78 (writer 2) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 0\n")
    for begun in (2_000_500_000, 2_200_500_000):
        run.line(f"file files_c 77 {ROOT} 1 1 {begun} 100000 4096 0 0 0 0 4211 python3")
    run.line(f"split files_c 77 2200500000 6000 1000 92000 90000 78 {STACK}")
    run.line("split files_c 77 1000500000 1 1 1 0 0 -")  # of an operation that was not kept
    run.line("file files_c 79 52 3 0 3000500000 100 -1 -1 0 0 0 4211 nfs")
    run.line("split files_c 79 3000500000 0 30 0 0 0 -")
    run.tick(1)
    first, second, third = run.ticks.taken().file_operations
    assert first.split is None
    chain = "rwsem_down_write_slowpath < down_write < ext4_buffered_write_iter"
    assert second.split[:6] == (6_000, 1_000, 92_000, 90_000, "lock", chain)
    assert second.split.holder_thread == 78
    assert second.split.parts(second.total_us) == {"lock": 92_000, "own I/O": 6_000, "CPU": 1_000, "running": 1_000}
    assert third.split.parts(third.total_us) == {"running": 70, "CPU": 30}


def late(woken_us, delay_us, thread=77):
    return f"late wakeups_c {thread} 139 {woken_us * 1000} {delay_us} 555 120 40000 1 ora lgwr"


def test_an_operation_has_the_late_wake_ups_of_its_thread_while_it_lasted(run):
    run.line("thread wakeups_c 555 120 hog")
    for one in (late(1_000_000, 5_000), late(2_003_500, 45_000), late(2_003_500, 45_000, 78), late(2_040_000, 99_000)):
        run.line(one)
    run.line(f"file files_c 77 {ROOT} 3 1 2000500000 50000 {UNKNOWN} -1 {SDA} 64 128 4211 ora lgwr")
    run.line(f"file files_c 77 {ROOT} 3 2 2000500000 50000 {UNKNOWN} -1 0 0 0 4211 ora lgwr")
    run.line(late(2_010_000, 3_000))
    run.line(late(2_010_000, 2_000))
    run.tick(1)
    slept, sync = sorted(run.ticks.taken().file_operations, key=lambda file_operation: file_operation.disk)
    assert [(wait.woken_us - sync.mono_us, wait.delay_us) for wait in sync.waits] == [(3_000, 45_000), (9_500, 3_000)]
    assert sync.waits[0].instead == "hog (prio 120)"
    assert (sync.waits[0].thread, sync.waits[0].priority, sync.waits[0].ran_us) == ("ora lgwr", 139, 40_000)
    assert slept.waits == (), "it issued no I/O whose completion woke it"


def test_a_long_path_and_a_long_name_are_marked(tmp_path):
    operations = FileOperations({}.get, SYSTEMS.__getitem__, Threads(tmp_path))
    for name in ("x" * 64, *"bcdefg"):
        text = f"path files_c 7 {200 if len(name) > 1 else 1} {name}"
        assert operations.take(record(text, MANIFEST.records["path"]))
    assert operations.take(record(f"file files_c 7 {ROOT} 0 0 5 5 1 1 0 0 0 1 c", MANIFEST.records["file"]))
    assert operations.taken()[0].path == f"…/f/e/d/c/b/{'x' * 64}…"


def test_an_operation_has_no_path_where_a_name_may_be_lost(run):
    for name in ("file", "old"):
        run.line(f"path files_c 7 1 {name}")
    run.ticks.take(Lost(3))  # the operation, and the first names of the next one
    run.line("path files_c 7 1 directory")
    run.line(f"file files_c 7 {ROOT} 0 0 5 5 1 1 0 0 0 1 c")
    run.tick(1)
    window = run.ticks.taken()
    assert [file_operation.path for file_operation in window.file_operations] == ["…"]
    assert window.losses.lost == 3
    run.line("path files_c 7 1 next")
    run.line(f"file files_c 7 {ROOT} 0 0 5 5 1 1 0 0 0 1 c")
    run.tick(2)
    assert [file_operation.path for file_operation in run.ticks.taken().file_operations] == ["next"]


def test_illumos_operations_have_the_maximum_of_their_tick(tmp_path):
    manifest, names = load(data_dir("probes") / "illumos/vop_files.yaml"), NumberedNames()
    its = {"zfs:/export/home": FileSystem("/export/home", "zfs"), "ufs:/": FileSystem("/", "ufs")}

    def file_system(number):
        return its.get(names.name(number), FileSystem("other"))

    around = OnDemandSurroundings(100, file_system=file_system)
    ticks = OnDemandTicks([manifest], names.name, Threads(tmp_path), around)
    decoder, maps = DtraceDecoder(), Maps([manifest], names)
    tracer_windows = []
    for event in (event for one in decoder.feed(VOP_FILES.read_bytes()) for event in maps.take(one)):
        ticks.take(event)
        if event == Printed("done vop_files"):
            tracer_windows.append(ticks.taken())
    sync = tracer_windows[2].interval.tables[measurements.FILES][
        FileSeries("", "fsync", "/export/home", "zfs", "unknown")
    ]
    assert (sync.count, sync.max, sync.sum) == (7, 836_214, 6 * 14_300 + 836_214)
    read = tracer_windows[2].interval.tables[measurements.FILES][FileSeries("", "read", "/", "ufs", "device")]
    assert (read.count, read.max) == (1, 41_000)
    assert tracer_windows[2].interval.files_left_out == 4
    sync, read = tracer_windows[2].file_operations
    assert (sync.path, sync.comm, sync.bytes) == (r"ora/redo\n01.log", "oracle", None)
    assert (read.path, read.file_system, read.offset) == ("var/adm/wtmpx", its["ufs:/"], 16384)


@pytest.mark.parametrize("fields", ["9 0 5 5", "0 9 5 5", "0 0 -1 5"])
def test_an_impossible_operation_is_counted_and_left_out(run, fields):
    run.line(f"file files_c 7 {ROOT} {fields} 1 1 0 0 0 1 c")
    run.tick(1)
    window = run.ticks.taken()
    assert (window.file_operations, window.losses.unkept) == ((), 1)


def test_names_without_an_operation_are_bounded(run):
    for thread in range(3000):
        run.line(f"path files_c {thread} 1 x")
    run.tick(1)
    assert run.ticks.taken().losses.unkept == 3000 - 1024


def test_a_name_can_t_end_a_line_or_reach_the_terminal():
    hostile = "\\x1b]52;c;x\\x07\\xe2\\x80\\xae"
    given_record = record(f"path files_c 7 9 {hostile}", MANIFEST.records["path"])
    assert is_clean(given_record.text)
    assert "\x1b" not in given_record.text


MOUNTS = """\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 8:1 /srv /bind rw - ext4 /dev/sda1 rw
23 21 0:40 / /net rw shared:1 - nfs4 server:/export rw
24 21 0:41 / /btr rw - btrfs /dev/sdb rw
25 21 0:42 / /merged rw - overlay overlay rw,upperdir={root}/up
26 21 0:43 / /a\\040b rw - fuse.x y rw
"""


def test_file_systems_are_found_by_the_number_of_their_device(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.write_text(MOUNTS.format(root=tmp_path))
    sda1 = tmp_path / "sys/devices/sda/sda1"
    (sda1 / "partition").mkdir(parents=True)
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/8:1").symlink_to(sda1)
    (tmp_path / "sys/devices/sdb").mkdir()
    (tmp_path / "sys/class/block").mkdir(parents=True)
    (tmp_path / "sys/class/block/sdb").symlink_to(tmp_path / "sys/devices/sdb")
    now = [0.0]
    file_systems = FileSystems(MountTable(tmp_path / "proc", lambda: now[0]), tmp_path / "sys", lambda: now[0])
    assert file_systems.of(8 << 20 | 1) == FileSystem("/", "ext4", "sda")
    assert file_systems.of(40) == FileSystem("/net", "nfs4", "")
    assert file_systems.of(41) == FileSystem("/btr", "btrfs", "sdb")
    assert file_systems.of(42).mount == "/merged"
    assert file_systems.of(43) == FileSystem("/a b", "fuse.x", "")
    assert file_systems.of(99) == FileSystem("0:99")
    mountinfo.write_text("21 1 0:99 / /new rw - tmpfs none rw\n")
    assert file_systems.of(99) == FileSystem("0:99"), "asked once in a while"
    now[0] = 11.0
    assert file_systems.of(99) == FileSystem("/new", "tmpfs")
    assert file_systems.of(8 << 20 | 1) == FileSystem("8:1")


def test_mounts_are_read_once_however_many_numbers_are_missing(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    mountinfo = tmp_path / "self/mountinfo"
    mountinfo.write_text("".join(f"21 1 0:{n} / /{n} rw - tmpfs none rw\n" for n in range(40, 50)))
    read, looked = [], []
    content, disk_of = mounts.content, Mounts.disk_of
    monkeypatch.setattr(mounts, "content", lambda path: read.append(path) or content(path))
    monkeypatch.setattr(
        Mounts, "disk_of", lambda own, mount, sys: looked.append(mount.point) or disk_of(own, mount, sys)
    )
    now = [0.0]
    file_systems = FileSystems(MountTable(tmp_path, lambda: now[0]), tmp_path / "sys", lambda: now[0])
    numbers = (40, 41, *range(100, 200))  # most are of other mount namespaces
    for _ in range(3):
        assert [file_systems.of(number).mount for number in numbers[:4]] == ["/40", "/41", "0:100", "0:101"]
        assert all(file_systems.of(number) for number in numbers)
    assert len(read) == 1
    assert looked == ["/40", "/41"], "of ten mounts"
    mountinfo.write_text("21 1 0:150 / /new rw - tmpfs none rw\n")
    now[0] = 1.5
    assert file_systems.of(150).mount == "/new", "it was not looked for before"
    for step in range(8):
        now[0] = 2.0 + step
        assert all(file_systems.of(number) for number in range(100, 108))
    assert len(read) <= 10


def test_mounts_that_another_reader_has_read_are_not_read_again(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text("21 1 0:40 / /40 rw - tmpfs none rw\n")
    read = []
    content = mounts.content
    monkeypatch.setattr(mounts, "content", lambda path: read.append(path) or content(path))
    now = [0.0]
    table = MountTable(tmp_path, lambda: now[0])
    file_systems = FileSystems(table, tmp_path / "sys", lambda: now[0])
    for second in range(0, 60, 4):
        now[0] = float(second)
        table.read()
        for later_s in (0.0, 2.0, 3.9):
            now[0] = second + later_s
            assert file_systems.of(40).mount == "/40"
    assert len(read) == 15, "by the other reader"


def given(run, *parts, dev=52):
    """Print the parts of a path, and a rename of 50 ms; return the path that the operation has."""
    for part in parts:
        run.line(f"path files_c 7 0 {part}")
    run.line(f"file files_c 7 {dev} 5 2 1000000 50000 {UNKNOWN} {UNKNOWN} 0 0 0 7 mv")
    run.tick(1)
    (operation,) = run.ticks.taken().file_operations
    assert (operation.op, operation.total_us, operation.file_system.mount) == ("rename", 50_000, SYSTEMS[dev].mount)
    return operation.path


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        (["/net/mail/new/1\\x00garbage\\x00", "more\\x00"], "mail/new/1"),
        (["/net/" + "a" * 59, "b\\x00"], "a" * 59 + "b"),
        (["new/1\\x00"], "…/new/1"),
        (["/link/to/1\\x00"], "…/link/to/1"),
        (["/net/" + "a" * 59, "b" * 64, "c" * 64], "a" * 59 + "b" * 64 + "c" * 64 + "…"),
        (["/net/\\x1b[31m\\x0a\\x00"], r"\x1b[31m\n"),
        (["\\x00\\x00"], ""),
        ([], ""),
    ],
)
def test_the_path_that_a_program_gave_ends_at_its_nul_and_is_shown_below_the_mount(run, parts, path):
    assert given(run, *parts) == path


def test_a_path_goes_with_the_next_operation_of_its_thread_only(run):
    assert given(run, "/net/a\\x00") == "a"
    run.line(f"file files_c 7 52 6 2 2000000 50000 {UNKNOWN} {UNKNOWN} 0 0 0 7 rm")
    run.tick(2)
    assert [(file_operation.op, file_operation.path) for file_operation in run.ticks.taken().file_operations] == [
        ("unlink", "")
    ]
