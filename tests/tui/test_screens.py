"""Stages, outliers and interrupts as a user drives them: number keys, closer looks, a region of a map, on demand."""

import asyncio
import re
from dataclasses import replace

import pytest
from frames import ODD, ORIGIN, PROCFS, SECOND, Commands, Lazy, Source, frame, host, on_demand_host
from panels import inside, scene
from test_app import make, painted, pressed, screen, settled, whole

from latmon.capture.backend import Options
from latmon.model.frame import Flow, Health, Missing, Outstanding, Traced
from latmon.model.inflight import InFlight, InFlightList
from latmon.model.measurements import ABOVE, SOFTIRQS
from latmon.tui.app import SourceEnded, traced_devices
from latmon.tui.commands import STEPS
from latmon.tui.keys import ACTIONS, foot, sections, works
from latmon.views.lines import plain
from latmon.views.screen import screen_lines
from latmon.views.selection import Selection

FRAMES = Lazy(on_demand_host, 8, 57)
EMPTY = [frame(1)]


def press(made, *steps, size=(80, 24)):
    """Steps as the keys would make them, each with a picture before it: a cursor counts in what was drawn."""
    screen_lines(made, (), *size)
    for step in steps:
        name, _, by = step.partition(":")
        assert works(name, int(by or 0), made.selection.context), (step, made.selection.context)
        made.choose(STEPS[name](made.view, int(by or 0)))
        screen_lines(made, (), *size)
    return text(made, size)


def text(made, size=(80, 24)):
    return "\n".join(inside(screen_lines(made, foot(made.view, None, size[0]), *size)))


# ---- stages


def test_stages_of_all_then_of_one_then_back():
    given_scene = scene(FRAMES)
    assert f"{ODD} above" in press(given_scene, "screen:1")
    one = press(given_scene, "enter")
    assert f" {ODD} stages" in one
    assert "completion  n/a" in one
    assert " nvme0n1 stages" in press(given_scene, "move:1")
    press(given_scene, "leave")
    assert given_scene.selection.screen == "stages"
    press(given_scene, "leave")
    assert given_scene.selection.context == "overview"


def test_a_recording_is_cut_where_its_capture_was():
    fixed = replace(ORIGIN, extra=Options(threshold_us=100_000).fixed)
    live = scene(FRAMES, Selection(screen="stages", threshold_us=100_000))
    replayed = scene(FRAMES, Selection(screen="stages"), fixed, mode="REPLAY")
    assert "above 106 ms" in text(replayed)
    assert text(replayed).splitlines()[1:] == text(live).splitlines()[1:]
    assert "above 213 ms" in text(scene(FRAMES, Selection(screen="stages", threshold_us=200_000), fixed))


@pytest.mark.parametrize("mode", ["LIVE", "REPLAY"])
@pytest.mark.parametrize("steps", [(), ("enter",)])
def test_what_procfs_cannot_measure_has_a_reason_and_no_count(mode, steps):
    bare = {"tables": {}}
    counted = [replace(frame, histograms={}, seen={}, traced=Traced(), **bare) for frame in FRAMES]
    given_scene = scene(counted, Selection(screen="stages"), PROCFS, mode=mode)
    output = " ".join(press(given_scene, *steps).split())
    assert "stages are not measured by procfs: procfs has no distributions: the kernel counts I/Os" in output
    assert "I/Os p50" not in output
    assert "no I/O" not in output
    output = " ".join(press(given_scene, "screen:4").split())
    assert "interrupts are not measured by procfs: they need a probe" in output


def test_why_procfs_measures_is_reported_once():
    """The overview has the reason in place of the map, the other screens in the line above the health."""
    counted = [replace(frame, histograms={}, seen={}, traced=Traced()) for frame in FRAMES]
    for name in ("overview", "outstanding", "findings"):
        output = " ".join(text(scene(counted, Selection(screen=name), PROCFS)).split())
        assert output.count("apt-get install bpftrace") == 1, name
    apart = replace(PROCFS, absent=(*PROCFS.absent, Missing("queue", "counters don't separate stages")))
    output = " ".join(text(scene(counted, Selection(screen="stages"), apart)).split())
    assert "stages are not measured by procfs: counters don't separate stages" in output
    assert "no distributions" not in output


def test_a_paused_replay_says_both():
    given_scene = scene(FRAMES, mode="REPLAY")
    given_scene.pause()
    assert ", 0 s to the end" in text(given_scene)


def test_untraced_stages_show_how_to_trace_them():
    assert "press S, or --stages all" in press(scene(host(3, 5)), "screen:1")
    assert "(--stages basic)" in press(scene(host(3, 5), Selection(stages="basic")), "screen:1")
    assert "not in this recording" in " ".join(press(scene(host(3, 5), mode="REPLAY"), "screen:1").split())
    assert "stages off" in press(scene(host(3, 5)), "screen:1")


def test_logged_and_left_out_outliers_add_up_to_those_above():
    given_scene = scene(FRAMES)
    assert f"{57 * 3} of {57 * 4} above the automatic threshold, 57 left out by the rate limit" in " ".join(
        press(given_scene, "screen:3", size=(160, 50)).split()
    )
    waiting = [*FRAMES[:-1], replace(FRAMES[-1], outliers=())]
    assert "57 left out by the rate limit, 3 not logged" in press(scene(waiting), "screen:3", size=(160, 50))


def test_a_region_without_outliers_does_not_say_that_the_device_has_none():
    given_scene = scene(FRAMES)
    press(given_scene, "zoom", "mark", *["up:-1"] * 30, "gather")
    output = " ".join(text(given_scene, (160, 50)).split())
    assert re.search(r"no I/O of \S+, below \S+, \S+ is logged: the threshold is now 1 ms", output)
    assert "may have left out" not in output
    assert "no I/O above" not in output
    press(given_scene, "leave", *["up:1"] * 20, "gather")
    output = " ".join(text(given_scene, (160, 50)).split())
    assert "no outlier was logged in" in output
    assert f"{57 * 4} I/Os are above the threshold in the last 60 s" in output


# ---- the overview's last column, and the health line


def test_the_table_says_where_the_tail_is_when_there_is_something_traced():
    line = next(line for line in text(scene(FRAMES)).splitlines() if line.startswith(f"▸{ODD}"))
    assert line.rstrip().endswith("softirq >99%")
    assert len(line) == 80
    wide = text(scene(FRAMES), (160, 50)).splitlines()
    assert wide[3].rstrip().endswith(" slow part")
    assert "trend" in wide[3]
    assert "trend" in text(scene(host(3, 5))).splitlines()[2]


def test_the_tail_column_leaves_with_the_window():
    given_scene = scene(FRAMES, Selection(window_us=15 * SECOND))
    for number in range(58, 80):
        given_scene.append(frame(number))
    assert "slow part" not in text(given_scene).splitlines()[2]


@pytest.mark.parametrize(
    ("one_in", "devices", "output"),
    [
        (1, (), "tracing all"),
        (16, (), "tracing 1 in 16"),
        (4, ("sda",), "tracing sda 1 in 4"),
        (1, ("a", "b", "c"), "tracing a,b…"),
    ],
)
def test_the_health_line_reports_what_is_traced_and_how_well(one_in, devices, output):
    last = FRAMES[-1]
    given_scene = scene([*FRAMES[:-1], replace(last, traced=replace(last.traced, one_in=one_in, devices=devices))])
    line = text(given_scene, (160, 50)).splitlines()[-2]
    assert "57 slow I/Os not listed" in line
    assert (output in line) == (output != "tracing all"), "only what limits the numbers"
    given_scene.choose(STEPS["details"](given_scene.view, 0))
    page = text(given_scene, (160, 50))
    for part in (output, "not followed <1%", "57 slow I/Os not listed", "tracing cpu 1.2%"):
        assert part in page
    assert re.search("57 slow I/Os not listed +on screen 4", page)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_no_duration_has_a_bare_unit(size):
    begin = Selection(threshold_us=2_000)
    base = scene(FRAMES, begin)
    for keys in (
        *(("screen:0",), ("zoom",), ("next_panel",), ("fold",), ("mark",), ("details",)),
        *(("screen:1",), ("screen:1", "enter"), ("screen:2",), ("screen:2", "aside:0"), ("screen:3",)),
        *(("screen:3", "read"), ("screen:4",), ("screen:4", "delays"), ("screen:5",)),
    ):
        base.choose(begin)
        assert not re.findall(r"(?<![\w/.-])\d[\d.,]*[mu]\b", press(base, *keys, size=size)), keys


# ---- outliers


def test_what_is_picked_stays_picked_while_newer_ones_come():
    made = scene(FRAMES[:30])
    press(made, "screen:3", "pick:1", "pick:1")
    picked = made.selection.outlier
    for current_frame in FRAMES[30:34]:
        made.append(current_frame)
    assert f"▸{picked.sector}" not in text(made)
    (line,) = [line for line in text(made).splitlines() if line.startswith("▸")]
    assert made.selection.outlier == picked
    assert str(picked.total_us)[:3] in line


def test_an_opened_outlier_stays_open_when_the_window_left_it():
    given_scene = scene(FRAMES, Selection(window_us=15 * SECOND))
    opened = press(given_scene, "screen:3", "read")
    for number in range(58, 90):
        given_scene.append(frame(number))
    assert opened.splitlines()[1] == text(given_scene).splitlines()[1]
    assert "sum" in text(given_scene)
    assert "no threshold is known" in " ".join(press(given_scene, "leave").split())


def test_next_and_previous_in_the_waterfall():
    given_scene = scene(FRAMES)
    first = press(given_scene, "screen:3", "read")
    assert given_scene.selection.context == "outlier"
    second = press(given_scene, "pick:1")
    assert second.splitlines()[1] != first.splitlines()[1]
    assert press(given_scene, "pick:-1") == first
    assert press(given_scene, "pick:-1") == first


def test_by_time_or_by_total():
    given_scene = scene(FRAMES)
    press(given_scene, "screen:3")
    assert "longest first" in text(given_scene, (160, 50))
    longest = max(o.total_us for frame in FRAMES for o in frame.outliers)
    press(given_scene, "pick:-1")
    assert given_scene.selection.outlier.total_us == longest
    press(given_scene, "order")
    assert "newest first" in text(given_scene, (160, 50))


def test_ops_and_filter_hold_for_outliers():
    made = scene(FRAMES)
    assert "171 of 228" in press(made, "screen:3")
    assert "171 of 228" in press(made, "ops", "ops")
    assert made.selection.op == "write"
    empty = " ".join(press(made, "ops").split())
    assert "above its device's threshold" in empty or "no I/O above" in empty
    assert re.search(r"; \d+ of other ops: o", empty)
    made.choose(replace(made.selection, op="all", pattern="nvme0"))
    assert "▸" not in text(made)


# ---- interrupts


def test_three_parts_their_rows_and_a_vectors_delays():
    made = scene(FRAMES)
    tables = press(made, "screen:4")
    for output in ("▸BLOCK", "slow_none", "emlxs_thread"):
        assert output in tables
    drawn = [tables.index(f"─ {part} ") for part in ("wake-ups", "softirqs", "handlers")]
    assert drawn == sorted(drawn), "the culprit's table first, the others as Tab goes"
    assert "▸TIMER" in press(made, "line:1", "line:1", "line:1")
    assert "▸NET_RX" in press(made, "line:-1")
    delays = press(made, "delays")
    assert "NET_RX delay" in delays
    assert "CONFIG_HZ=250" in delays
    press(made, "leave")
    assert "▸" in press(made, "part:1")
    assert made.selection.row is None
    assert made.selection.context == "tables", "a handler has no delays"
    assert made.selection.part == 1
    press(made, "part:-1", "part:-1")
    assert made.selection.part == 2


def test_only_softirqs_have_a_closer_look():
    given_scene = scene(FRAMES[:20])
    press(given_scene, "screen:4")
    assert "Enter map" in plain(foot(given_scene.view, None, 140))
    for _ in range(2):
        press(given_scene, "part:1")
        assert "Enter" not in plain(foot(given_scene.view, None, 140))
        assert not works("delays", 0, given_scene.selection.context)
    press(given_scene, "part:1")
    assert "Enter map" in plain(foot(given_scene.view, None, 140))


def test_rows_that_are_scrolled_away_above_are_marked():
    given_scene = scene(FRAMES)
    head = 2
    assert press(given_scene, "screen:3").splitlines()[head].startswith(" time")
    assert press(given_scene, *["pick:10"] * 3).splitlines()[head].startswith("↑time")
    devices = scene(host(30, 3))
    assert text(devices).splitlines()[2].startswith(" 5 of 30 ")
    assert press(devices, "move:1000").splitlines()[2].startswith("↑5 of 30 ")
    assert press(devices, "zoom").splitlines()[2].startswith(" 1 of 30 ")


def test_each_key_is_reported_once_for_a_screen():
    for _title, keys in sections():
        reported = [(shown, does) for shown, does in keys if does]
        assert len(reported) == len(set(reported))
    assert [does for shown, does in dict(sections())["Keys of the overview (1)"] if shown == "v"] == [
        "cursor: on the heat map of the selected device, which is shown alone"
    ]


def test_the_selected_row_is_known_by_its_name():
    made = scene(FRAMES[:5])
    press(made, "screen:4", "line:1")
    assert made.selection.row == "NET_RX"
    quiet = {at: runs for at, runs in FRAMES[5][SOFTIRQS].items() if at.vector != "BLOCK"}
    made.append(FRAMES[5].with_tables({SOFTIRQS: quiet}))
    assert "▸NET_RX" in text(made)


# ---- a region of a map


@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 50), marks=pytest.mark.slow)])
def test_a_region_is_marked_and_its_outliers_shown(size):
    given_scene = scene(FRAMES)
    marked = press(
        given_scene, "zoom", "mark", "across:-1", "across:-1", "mark", *["across:-1"] * 6, *["up:-1"] * 3, size=size
    )
    assert given_scene.selection.context == "cursor"
    assert f" {ODD} region 03:00:4" in marked
    assert "└" in marked
    drawn = given_scene.view.latency_map.drawn
    region = given_scene.selection.cursor.region(drawn.scale)
    assert region.last - region.first == 6
    assert drawn.scale.row(region.high) - drawn.scale.row(region.low) == 3
    shown = press(given_scene, "gather", size=size)
    assert given_scene.selection.context == "outliers"
    begin, end = given_scene.selection.region.begin_us, given_scene.selection.region.end_us
    inside = [o for frame in FRAMES for o in frame.outliers if begin < o.mono_us + o.total_us <= end]
    inside = [o for o in inside if given_scene.selection.region.holds(o)]
    assert end - begin == 7 * SECOND * (drawn.timeline.column_us // SECOND)
    assert inside
    assert f"{len(inside)} logged" in shown
    assert "57 left out by" not in shown
    assert f"slow I/Os {given_scene.selection.region.words}" in shown
    assert "region" in press(given_scene, "leave", size=size)
    press(given_scene, "leave", "leave", size=size)
    assert given_scene.selection.context == "overview"


def test_the_outliers_of_a_region_are_about_its_device_alone():
    """Neither the threshold nor the I/Os in flight of another device; what the rate limit left out is its own."""
    other = "nvme0n1"
    thresholds = {**FRAMES[0].thresholds_us, ODD: 70_000}
    frames = [replace(frame, thresholds_us=thresholds) for frame in FRAMES[:40]]
    last = frames[-1]
    stuck = InFlightList((InFlight(ODD, "write", last.mono_us - 20 * SECOND),), at_us=last.mono_us)
    frames[-1] = replace(last, in_flight=stuck, outstanding={ODD: Outstanding(0, 1)})
    given_scene = scene(frames, Selection(selected=other))
    output = " ".join(press(given_scene, "zoom", "mark", "gather", size=(160, 50)).split())
    assert re.search(rf"no I/O of \S+, \S+ to \S+, {other} is logged: the threshold is now 1 ms", output)
    assert "3 shows" not in output
    slow = replace(last.outliers[0], device=other)
    frames[-1] = replace(
        frames[-1],
        outliers=(slow,),
        tables={**frames[-1].tables, ABOVE: {Flow(other, "write"): 1}},
        health=Health(suppressed=9),
    )
    given_scene = scene(frames, Selection(selected=other))
    output = " ".join(press(given_scene, "zoom", "mark", *["grow_up:1"] * 40, "gather").split())
    assert "1 logged" in output
    assert "left out by the rate limit" not in output
    assert "waterfall to scale" in output  # a short list leaves room for its selected row


def test_an_opened_outlier_keeps_its_neighbours_when_the_window_has_moved_on():
    frames = [replace(frame, outliers=()) for frame in FRAMES]
    slow = FRAMES[4].outliers[0]
    frames[4] = replace(frames[4], outliers=(slow, replace(slow, device="nvme0n1")))

    def flat(made):
        return " ".join(text(made).split())

    given_scene = scene(frames[:10], Selection(window_us=15 * SECOND, outlier=slow, screen="outliers", opened=True))
    assert "1 other on nvme0n1 at the same time" in text(given_scene)
    for current_frame in frames[10:]:
        given_scene.append(current_frame)
    assert not given_scene.history.on_demand.outliers
    assert "1 other on nvme0n1 at the same time" in text(given_scene)
    alone = scene(
        [*frames[:4], replace(frames[4], outliers=(slow,))], Selection(outlier=slow, screen="outliers", opened=True)
    )
    assert "no other outlier of any device at the same time; the rate limit left out 5 outliers in this window" in flat(
        alone
    )
    later = scene(FRAMES[20:22], Selection(outlier=slow, screen="outliers", opened=True))
    assert "no other outlier of any device at the same time; older ones are not in memory" in flat(later)


def test_the_newest_column_goes_on_filling_in_the_region():
    given_scene = scene(FRAMES[:37], Selection(window_us=600 * SECOND, selected=ODD))
    press(given_scene, "zoom", "mark", *["grow_up:-1"] * 3, "gather")
    picked = given_scene.selection.region
    assert picked.end_us > FRAMES[36].mono_us
    held = sum(picked.holds(o) for o in given_scene.history.on_demand.outliers)
    assert f"{held} logged" in text(given_scene)
    for current_frame in FRAMES[37:50]:
        given_scene.append(current_frame)
    later = sum(picked.holds(o) for o in given_scene.history.on_demand.outliers)
    assert later > held
    assert f"{later} logged" in text(given_scene)


def test_shift_and_an_arrow_hold_the_corner_at_once():
    given_scene = scene(FRAMES)
    press(given_scene, "mark", "mark", "across:-1")
    by_v = given_scene.selection.cursor
    other = scene(FRAMES)
    press(other, "mark", "grow_across:-1")
    assert other.selection.cursor == by_v
    press(other, "grow_up:-1", "mark")
    assert other.selection.cursor.corner is None, "v lets go"


def test_a_cursor_stays_on_its_moment_through_resizing_and_going_on():
    given_scene = scene(FRAMES)
    press(given_scene, "mark", *["across:-1"] * 5)
    when = press(given_scene, "mark").splitlines()[4].split(",")[0]
    assert text(given_scene, (160, 50)).splitlines()[5].split(",")[0] == when
    last = FRAMES[-1]
    given_scene.append(replace(last, seq=last.seq + 1, wall=last.wall + 1, mono_us=last.mono_us + SECOND))
    assert text(given_scene).splitlines()[4].split(",")[0] == when
    press(given_scene, "window:1")
    assert given_scene.selection.cursor is not None


def test_a_cursor_stops_at_the_edges_and_an_empty_map_has_none():
    given_scene = scene(FRAMES)
    press(given_scene, "mark", "across:1000", "across:-1000", *["up:1"] * 40)
    drawn = given_scene.view.latency_map.drawn
    assert given_scene.selection.cursor.at.column == drawn.timeline.columns[0].number
    assert drawn.scale.row(given_scene.selection.cursor.at.bucket) == drawn.scale.rows - 1
    empty = scene([frame(1, devices=FRAMES[0].devices)])
    press(empty, "mark")
    assert empty.selection.cursor is None
    assert empty.selection.panel == "zoom"


# ---- every key, everywhere, without a mouse


WAYS = {
    "overview": (),
    "zoom": ("enter",),
    "maps": ("tab",),
    "cursor": ("v",),
    "stages": ("2",),
    "stage": ("2", "enter"),
    "outliers": ("4",),
    "outlier": ("4", "enter"),
    "region": ("v", "v", "left", "enter"),
    "interrupts": ("5",),
    "delays": ("5", "enter"),
    "who": ("7",),
    "issuer": ("7", "enter"),
}


@pytest.mark.usefixtures("brisk")
async def test_every_key_of_a_screen_works_on_it_without_a_mouse():
    app = make(Source(FRAMES[:20]))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for way, keys in WAYS.items():
            app.scene.selection = Selection()
            await pilot.press(*keys)
            selection = app.scene.selection
            own = [a for a in ACTIONS if selection.context in a.on]
            assert own, way
            for key in dict.fromkeys(key for a in own for key in a.keys.split(",")):
                app.scene.choose(selection)
                await pilot.press(key)
                assert len(screen(app).splitlines()) == 24
        assert app.is_running


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_step_from_everywhere_leaves_a_screen(way):
    base = scene(FRAMES[:20])
    for key in WAYS[way]:
        named = next(a for a in ACTIONS if key in a.keys.split(",") and works(a.name, a.by, base.selection.context))
        press(base, f"{named.name}:{named.by}")
    selection = base.selection
    for action in ACTIONS:
        if action.name in STEPS and works(action.name, action.by, selection.context):
            base.choose(selection)
            assert len(press(base, f"{action.name}:{action.by}").splitlines()) == 24


@pytest.mark.parametrize("frames", [EMPTY, host(2, 3)], ids=["no device", "nothing traced"])
@pytest.mark.parametrize("origin", [ORIGIN, PROCFS], ids=["bpftrace", "procfs"])
@pytest.mark.parametrize(
    "size", [(80, 24), *(pytest.param(one, marks=pytest.mark.slow) for one in ((160, 50), (40, 10)))]
)
def test_every_screen_says_why_it_is_empty(frames, origin, size):
    for number in (0, 1, 2, 3, 6):
        for closer in ("enter", "read", "delays", "its_devices", "zoom"):
            given_scene = scene(frames, origin=origin)
            press(given_scene, f"screen:{number}", size=size)
            if works(closer, 0, given_scene.selection.context):
                press(given_scene, closer, size=size)
            lines = text(given_scene, size).splitlines()
            assert len(lines) == size[1]
            assert any(line.strip() for line in lines[1:-3])


async def test_number_keys():
    app = make(Source(FRAMES[:10]))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for key, name in (
            ("2", "stages"),
            ("4", "outliers"),
            ("5", "interrupts"),
            ("3", "outstanding"),
            ("7", "who"),
            ("1", "overview"),
        ):
            await pilot.press(key)
            assert app.scene.selection.screen == name
        assert "3 in flight" in screen(app)


@pytest.mark.slow
async def test_a_region_with_keys_alone_live():
    app = make(Source(on_demand_host(8, 90), pace=0.02))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.5)
        await pilot.press("enter", "v", "v", *["left"] * 5, *["down"] * 3, "enter")
        assert app.scene.selection.screen == "outliers"
        assert "▸03:0" in screen(app) or "no outlier was logged" in screen(app)
        await pilot.pause(0.2)
        await pilot.press("escape", "escape", "escape")
        assert app.scene.selection.context == "overview"


# ---- on demand


async def test_who_looks_is_reported_at_once_and_again(monkeypatch):
    monkeypatch.setattr("latmon.tui.app.REQUEST_S", 0.05)
    session = Commands()
    app = make(Source(FRAMES[:5]), session=session)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert session.of("request_tracing") == []
        await pilot.press("2")
        assert session.of("request_tracing")[:1] == [((), True)]
        await pilot.press("down", "enter")
        assert session.of("request_tracing")[-1] == ((app.scene.selection.selected,), True)
        await pilot.press("4")
        assert session.of("request_tracing")[-1][1] is False, "no operation on a file is on this screen"
        before = len(session.sent)
        async with asyncio.timeout(60):
            while len(session.sent) <= before:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.02)
        await pilot.press("1")
        before = len(session.sent)
        await asyncio.sleep(0.15)
        assert len(session.sent) == before


async def test_a_capture_without_frames_is_not_called_live(monkeypatch):
    monkeypatch.setattr("latmon.tui.app._SILENT_S", -3.0)  # with two intervals of 1 s: at the first check
    app = make(Source(FRAMES[:5]), session=Commands())
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        async with asyncio.timeout(60):
            while "NO DATA for" not in screen(app):  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.02)
        assert "LIVE" not in screen(app)
        await pilot.press("space")
        assert "PAUSED" in screen(app)
        await pilot.press("space")
        monkeypatch.setattr("latmon.tui.app._SILENT_S", 1e9)
        app.on_frame_arrived()
        await painted(pilot)
        assert app.scene.mode.word == "LIVE"


def test_devices_that_a_screen_traces():
    assert traced_devices(Selection()) is None
    assert traced_devices(Selection(screen="stages", selected="sda")) == ()
    assert traced_devices(Selection(screen="stages", selected="sda", opened=True)) == ("sda",)
    assert traced_devices(Selection(screen="interrupts", opened=True)) == ()
    given_scene = scene(FRAMES)
    press(given_scene, "mark", "gather")
    assert traced_devices(given_scene.selection) == (ODD,)


async def test_the_mode_goes_round_or_says_why_not():
    session = Commands()
    app = make(Source(FRAMES[:5]), session=session)
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot)
        await pilot.press("S")
        assert "stages basic" in screen(app)
        await pilot.press("S", "S")
        assert session.of("set_stages") == ["basic", "all", "auto"]
    app = make(Source(FRAMES[:5]), mode="REPLAY")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "S stages" not in screen(app)
        await pilot.press("S")
        assert "this isn't a live capture" in screen(app)
        assert app.scene.selection.stages == "auto"
        await pilot.press("4")
        assert "this isn't a live capture" not in screen(app)


async def test_why_a_source_ended_stays_on_every_screen():
    app = make(Source(FRAMES[:5], stay=False))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.show_message("something")
        app.on_source_ended(SourceEnded("the recording ends here"))
        await pilot.press("4")
        assert "the recording ends here" in screen(app)


# ---- pictures


PICTURES = {
    "tail": (),
    "stages": ("2",),
    "stage": ("2", "enter"),
    "outliers": ("4",),
    "outlier": ("4", "down", "enter"),
    "interrupts": ("5", "tab", "down"),
    "delays": ("5", "enter"),
    "who": ("7", "down"),
    "cursor": ("enter", "v", "left", "left", "v", "left", "left", "left", "left", "down", "down"),
    "region": ("v", "left", "left", "v", "left", "left", "left", "left", "down", "down", "enter"),
    "apart": ("r",),
    "offsets": ("f",),
    "capture": ("I",),
    "palette": ("colon",),
    "past": ("space", "left_curly_bracket"),
    "compare": ("left_curly_bracket", "left_curly_bracket", "left_curly_bracket", "D", "G", "D"),
}
PICTURES_SLOW = {"cursor", "region", "apart", "palette", "past", "compare"}


@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 50), marks=pytest.mark.slow)], ids=["80x24", "160x50"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in PICTURES_SLOW)) for name in PICTURES]
)
def test_pictures(snap_compare, name, size):
    app = make(Source(FRAMES))
    assert snap_compare(whole(app), terminal_size=size, run_before=lambda pilot: pressed(pilot, PICTURES[name]))


@pytest.mark.slow
@pytest.mark.parametrize(("theme", "depth"), [("dark", "16"), ("dark", "none"), ("light", "256")])
@pytest.mark.parametrize("name", ["stages", "cursor"])
def test_pictures_of_themes(snap_compare, name, theme, depth):
    app = make(Source(FRAMES), theme=theme, depth=depth)
    assert snap_compare(whole(app), terminal_size=(80, 24), run_before=lambda pilot: pressed(pilot, PICTURES[name]))
