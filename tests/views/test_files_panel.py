"""The panel of operations on files: rows, slow operations with their requests, reasons, sizes, hostile names."""

import re
from dataclasses import replace

import pytest
from frames import ODD, ORIGIN, Source, on_demand_host
from panels import inside

from latmon.analysis.attribution import by_process, file_rows, requests_of
from latmon.model import measurements
from latmon.model.frame import FILES, LOST_PATH, PROBES_STARTING, FileOperation, FileSplit, FileSystem, Missing, Wait
from latmon.model.histogram import Histogram
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.nfs import NfsCalls, NfsOperation
from latmon.support.text import is_clean
from latmon.support.theme import load_theme
from latmon.tui.app import LatmonApp
from latmon.tui.commands import STEPS
from latmon.views.lines import is_heading, plain, width
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import ScreenOptions, Selection

DATA, SHARE = FileSystem("/data", "ext4", ODD), FileSystem("/net", "nfs4")
HOSTILE = "[/red]x[@click=quit]y漢字" * 9


def series(op, wait, its=DATA):
    return FileSeries(its.device, op, its.mount, its.kind, wait)


def operation(outlier, **changed):
    """The sync whose thread issued this request 30 us after it began."""
    first = outlier.sector or 0
    file_operation = FileOperation(
        outlier.wall - 30e-6,
        outlier.mono_us - 30,
        "fsync",
        outlier.total_us + 90,
        "device",
        DATA,
        "db/wal/0001",
        outlier.pid,
        outlier.comm,
        disk=outlier.device,
        sectors=(first, first + (outlier.bytes or 0) // 512),
    )
    return replace(file_operation, **changed)


def frames(**changed):
    """Frames with a slow sync a second, which the first outlier belongs to."""
    frames = []
    for frame in on_demand_host(8, 12):
        slow = operation(max(frame.outliers, key=lambda o: o.total_us), **changed)
        files = {
            series("fsync", "device"): Histogram.record([slow.total_us] * 3),
            series("read", "cached"): Histogram.record([2] * 200),
            series("read", "device"): Histogram.record([900] * 2),
            series("write", "unknown", SHARE): Histogram.record([400] * 5),
        }
        frames.append(
            replace(
                frame, file_operations=(slow,), files_left_out=2, tables={**frame.tables, measurements.FILES: files}
            )
        )
    return frames


FRAMES = frames()


def scene(shown=FRAMES, origin=ORIGIN, **selected):
    scene = Scene(Selection(**{"screen": "stages", "aside": "files", **selected}))
    scene.store.origin = origin
    for one in shown:
        scene.append(one)
    return scene


def text(made, size=(120, 40)):
    return "\n".join(inside(screen_lines(made, (), *size)))


def press(made, *keys):
    for name, by in keys:
        made.choose(STEPS[name](made.view, by))


@pytest.mark.parametrize("size", [(120, 36), (120, 40), (160, 50), (220, 60)])
def test_the_line_of_files_above_the_stages_is_a_heading_so_that_a_frame_takes_no_line_of_the_finding(size):
    given_scene = scene(aside="", opened=False, selected=ODD)
    panels = given_scene.draw(*size)
    assert panels.framed
    assert plain(panels.body[0]).startswith(" files ")
    assert is_heading(panels.body[0])
    assert "12 slow: F" in text(given_scene, size)
    assert "files" in plain(screen_lines(given_scene, (), *size)[1]), "the first frame line has it"


def test_a_row_is_an_op_of_a_file_system_with_the_shares_of_its_waits():
    rows = file_rows(FRAMES[0][measurements.FILES])
    assert [(row.file_system.mount, row.op, row.latency.count) for row in rows] == [
        ("/data", "read", 202),
        ("/data", "fsync", 3),
        ("/net", "write", 5),
    ]
    read, sync, write = rows
    assert (read.share("device"), read.share("cached"), read.share("unknown")) == (1800 / 2200, 400 / 2200, None)
    assert (sync.share("device"), write.share("unknown")) == (1.0, 1.0)


SPLIT = FileSplit(6_000, 1_000, 92_000, 90_000, "lock", "down_write < ext4_file_write_iter", "python3", 78)


def split_frames():
    """Frames whose syncs wait for a lock, as the probes of Linux have them."""
    times = {
        FilePart(DATA.device, "fsync", DATA.mount, DATA.kind, part): us
        for part, us in {"own I/O": 18_000, "lock": 276_000, "journal": 900}.items()
    }
    changed = frames(split=SPLIT, total_us=100_000)
    return [replace(frame, tables={**frame.tables, measurements.FILE_TIMES: times}) for frame in changed]


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_where_the_time_is_split_own_i_o_and_the_longest_other_part_are_columns(size):
    drawn = text(scene(split_frames()), size)
    assert "own I/O" in drawn
    assert "most else" in drawn
    row = next(line for line in drawn.splitlines() if line.strip(" ▸").startswith("fsync"))
    assert re.search(r"\d+%\s+lock \d+%", row), row
    assert "cached" not in drawn


def test_a_split_operation_has_its_parts_its_longest_sleep_and_who_had_the_lock():
    drawn = " ".join(text(scene(split_frames())).split())
    assert "100 ms, lock 92 ms, own I/O 6 ms, CPU 1 ms, running 1 ms" in drawn
    assert "its longest other sleep: 90 ms in down_write < ext4_file_write_iter; python3/78 had the lock then" in drawn


def test_a_slow_operation_has_the_requests_of_its_thread_and_no_others():
    all_outliers = FRAMES[0].outliers
    outliers = by_process(all_outliers)
    (slow,) = FRAMES[0].file_operations
    longest = max(all_outliers, key=lambda outlier: outlier.total_us)
    assert requests_of(slow, outliers) == [longest]
    assert requests_of(replace(slow, pid=1), outliers) == []
    assert requests_of(replace(slow, disk="sdb"), outliers) == []
    assert requests_of(replace(slow, mono_us=longest.mono_us + 2_000), outliers) == []
    assert requests_of(replace(slow, sectors=(longest.sector + 10_000, longest.sector + 10_008)), outliers) == []
    assert requests_of(replace(slow, sectors=None), outliers) == []


def test_the_keys_lead_from_a_slow_sync_to_its_file_its_request_its_stage_and_back():
    given_scene = scene(aside="", opened=False, selected=ODD)
    drawn = text(given_scene)
    assert "12 slow: F" in drawn
    press(given_scene, ("aside", 2))
    drawn = text(given_scene)
    assert "/data/db/wal/0001" in drawn
    assert "left out by the rate limit" in drawn
    assert f"issued I/O to {ODD}" in drawn
    press(given_scene, ("operation", 1))
    chosen = given_scene.selection.row
    press(given_scene, ("its_request", 0))
    assert (given_scene.selection.screen, given_scene.selection.context) == ("outliers", "outlier")
    drawn = text(given_scene)
    assert "waterfall" in drawn
    assert "softirq" in drawn
    press(given_scene, ("leave", 0))
    assert (given_scene.selection.context, given_scene.selection.row) == ("files", chosen)
    press(given_scene, ("leave", 0))
    assert given_scene.selection.context == "stages"


def test_the_file_systems_of_an_opened_device_are_above_its_stages():
    drawn = text(scene(aside="", opened=True, selected=ODD))
    assert drawn.index("what programs wait for") < drawn.index("fsync") < drawn.index("queue")
    assert "/net" not in drawn
    other = text(scene(aside="", opened=True, selected="nvme0n1"))
    assert "what programs wait for" not in other


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"wait": "unknown", "disk": "", "sectors": None}, "it slept without I/O of its own"),
        ({"wait": "cached", "disk": "", "sectors": None}, "it did not sleep"),
        ({"pid": 1}, "was logged above the threshold, now 1 ms"),
    ],
)
def test_an_operation_without_a_request_says_why(changed, why):
    given_scene = scene(frames(**changed))
    assert why in " ".join(text(given_scene).split())
    before = given_scene.selection.context
    press(given_scene, ("its_request", 0))
    assert given_scene.selection.context == before


def test_nothing_traced_says_why():
    bare = on_demand_host(8, 3)
    assert "no operation on a file in the last 60 s" in text(scene(bare))
    refused = replace(ORIGIN, probes_missing=(Missing(FILES, "this kernel has no tracepoint raw_syscalls"),))
    assert "not traced: this kernel has no tracepoint raw_syscalls" in text(scene(bare, refused))
    none = [replace(frame, traced=type(frame.traced)()) for frame in bare]
    assert "press S, or --stages all" in text(scene(none))


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (132, 43), (200, 60)])
def test_every_size_and_a_hostile_name_fit(size):
    given_scene = scene(frames(path=HOSTILE, comm=HOSTILE[:15]))
    for selection in (given_scene.selection, replace(given_scene.selection, aside="", opened=True, selected=ODD)):
        given_scene.choose(selection)
        lines = screen_lines(given_scene, (), *size)
        assert len(lines) == size[1]
        assert all(width(line) <= size[0] for line in lines)
        assert all(is_clean(span.text) for line in lines for span in line)


def test_below_a_sync_whose_thread_was_late_is_who_ran_instead():
    slow = FRAMES[-1].file_operations[0]
    wait = Wait("resume", "ora_lgwr", 4212, 139, slow.mono_us + 900, 47_000, "hog (prio 120)", 40_000)
    sync = replace(slow, disk="", sectors=None, waits=(wait,), total_us=2**30)
    shown = [*FRAMES[:-1], replace(FRAMES[-1], file_operations=(sync,))]
    for size in ((80, 24), (160, 50)):
        drawn = " ".join(text(scene(shown), size).split())
        assert "ora_lgwr/4212 (prio 139) woken" in drawn
        assert "47.000 ms later: hog (prio 120) ran instead for 40.000 ms" in drawn


def test_the_longest_are_listed_first_and_those_of_one_device():
    given_scene = scene()
    other = operation(
        FRAMES[0].outliers[0], path="etc/other", total_us=2**30, file_system=FileSystem("/", "ext4", "sda")
    )
    given_scene.append(replace(FRAMES[-1], seq=99, mono_us=FRAMES[-1].mono_us + 10**6, file_operations=(other,)))
    drawn = text(given_scene)
    assert "longest first" in drawn
    assert drawn.index("etc/other") < drawn.index("db/wal/0001")
    given_scene.choose(replace(given_scene.selection, opened=True, selected=ODD))
    drawn = text(given_scene)
    assert f"on {ODD}" in drawn
    assert "etc/other" not in drawn
    assert "/net" not in drawn
    given_scene.choose(replace(given_scene.selection, opened=False, pattern="nvme0n1"))
    assert "no operation on a file on nvme0n1 in the last 60 s" in text(given_scene)


def test_what_the_budget_left_out_says_how_to_have_it():
    why = "left out because tracing cost more than its budget"
    lean = [
        replace(
            frame,
            traced=replace(frame.traced, absent=(Missing(FILES, why),)),
            tables={**frame.tables, measurements.FILES: {}},
        )
        for frame in FRAMES
    ]
    drawn = " ".join(text(scene(lean)).split())
    assert f"not traced: {why}; to trace without a budget, press S until" in drawn


def test_while_probes_start_the_panels_say_so():
    preview = replace(ORIGIN, backend="procfs", reason=PROBES_STARTING, measured={}, tier="D")
    for aside in ("", "files"):
        drawn = " ".join(text(scene([on_demand_host(8, 1)[0]], preview, aside=aside)).split())
        assert PROBES_STARTING in drawn
        assert "needs bpftrace" not in drawn


def test_rows_that_have_no_room_are_counted_and_those_with_most_time_are_shown():
    many = [FileSystem(f"/data{number}", "xfs", ODD) for number in range(20)]
    files = {series("read", "device", its): Histogram.record([100 * at] * 9) for at, its in enumerate(many, 1)}
    drawn = text(
        scene([replace(frame, tables={**frame.tables, measurements.FILES: files}) for frame in FRAMES]), (80, 24)
    )
    shown = re.findall(r"read  /data(\d+) ", drawn)
    assert f"… {20 - len(shown)} more rows, with less of the time" in drawn
    assert sorted(map(int, shown)) == list(range(20 - len(shown), 20))
    assert "more rows" not in text(scene(), (80, 24))


def test_the_letters_of_requests_are_explained_and_a_share_is_named_by_what_it_includes():
    drawn = text(scene(), (120, 30))
    ribbon = next(line for line in drawn.splitlines() if re.match(r" +\+30us ", line))
    letters = set(re.findall(r"[a-z?]", ribbon.partition("ms ")[2]))
    explained = set(re.findall(r" ([a-z?])\S [a-z]+ ", drawn.partition(ribbon)[2]))
    assert letters
    assert letters <= explained
    assert "I/O+waits" in drawn
    assert "waits for locks and a CPU included" in " ".join(drawn.split())


def test_a_small_terminal_says_that_it_lists_no_slow_operation():
    drawn = text(scene(), (40, 10))
    assert "a larger terminal lists the 12 slow operations" in " ".join(drawn.split())
    assert drawn.count("/data") == 2


def test_a_path_that_was_lost_says_why():
    assert "events of the probe were lost" in text(scene(frames(path=LOST_PATH)))
    assert "events of the probe were lost" not in text(scene())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pid": 1}, f"none of its I/Os on {ODD} was logged above the threshold, now 1 ms: many short ones"),
        pytest.param(
            {"wait": "unknown", "disk": "", "sectors": None},
            "Enter opens the I/O of an operation, and this one has none",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            None,
            "no operation on a file was slow in the last 60 s; the rate limit left out 24; + shows a longer window",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_the_walk_to_a_request_that_is_missing_says_why(changed, why):
    shown = [replace(frame, file_operations=()) for frame in FRAMES] if changed is None else frames(**changed)
    app = LatmonApp(
        Source(shown, stay=False), ScreenOptions(Selection(threshold_us=1000), theme=load_theme("dark")), depth="256"
    )
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(400):
            if app.scene.ended is not None:
                break
            await pilot.pause(0.02)
        await pilot.press("2", "F", "s", "space", "enter")
        assert app.scene.selection.context == "files"
        assert app.scene.message.startswith(why)


NFS = {
    measurements.NFS_OPERATIONS: {
        NfsOperation("/net", "WRITE"): NfsCalls(10, 2, 1, 30_000, 1_900_000, 1_930_000),
        **{
            NfsOperation("/net", op): NfsCalls(calls=5, round_trip_us=5_000, execute_us=5_000)
            for op in ("ACCESS", "GETATTR", "LOOKUP", "OPEN")
        },
    }
}


@pytest.mark.parametrize(("size", "is_low"), [((100, 50), False), ((80, 22), True)])
def test_calls_to_nfs_servers_are_below_the_operations(size, is_low):
    drawn = text(scene([replace(frame, tables={**frame.tables, **NFS}) for frame in FRAMES]), size)
    assert re.search(r"WRITE +/net +\S+ +193ms +190ms +3.00ms +\d+", drawn), drawn
    assert ("GETATTR" in drawn) is not is_low
    assert "OPEN" not in drawn
    assert "slow operations" in drawn
    filtered = scene([replace(frame, tables={**frame.tables, **NFS}) for frame in FRAMES], pattern=ODD)
    assert "NFS call" not in text(filtered, size)


def test_calls_to_nfs_servers_are_listed_without_traced_operations():
    drawn = text(scene([replace(frame, tables=NFS) for frame in FRAMES]))
    assert re.search(r"WRITE +/net .* 193ms +190ms", drawn), drawn
    assert "no operation on a file" in drawn
