"""The mouse: rows, keys of the last line, cells and regions of the map, the wheel; none where it isn't wanted."""

import re
from dataclasses import replace

import pytest
from frames import Source, host
from panels import scene
from test_app import make, painted, screen, settled
from test_screens import FRAMES
from test_tty import Terminal
from textual.events import MouseMove

from latmon.tui.canvas import Canvas, PaletteScreen
from latmon.tui.commands import clicked_row
from latmon.views.selection import Selection


async def click(pilot, x, y):
    await pilot.click(Canvas, offset=(x, y))
    await painted(pilot)


async def drag(pilot, begin, end):
    await pilot.mouse_down(Canvas, offset=begin)
    await pilot.hover(Canvas, offset=end)
    app = pilot.app
    # Textual's pilot moves without a button; a terminal reports the one that is down
    event = _moved(app, end)
    app.on_mouse_move(event)
    await pilot.mouse_up(Canvas, offset=end)
    await painted(pilot)


def _moved(app, at):
    canvas = app.screen.query_one(Canvas)
    return MouseMove(canvas, *at, 0, 0, 1, False, False, False, *at)


def line_of(app, pattern):
    return next(y for y, line in enumerate(screen(app).splitlines()) if re.search(pattern, line))


@pytest.mark.parametrize("size", [(80, 24), pytest.param((120, 40), marks=pytest.mark.slow)])
async def test_a_click_selects_a_row_and_another_opens_it(size):
    app = make(Source(host(4, 20)))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        y = line_of(app, "^│? nvme2n1")
        await click(pilot, 40, y)
        assert app.scene.selection.selected == "nvme2n1"
        await click(pilot, 40, line_of(app, "^│?▸nvme2n1"))
        assert app.scene.selection.panel == "zoom"
        await pilot.press("escape", "tab")
        await painted(pilot)
        title = line_of(app, "nvme1n1")
        await click(pilot, screen(app).splitlines()[title].index("nvme1n1") + 3, title + 1)
        assert app.scene.selection.selected == "nvme1n1"


async def test_a_click_on_the_last_line_presses_its_key():
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        foot = screen(app).splitlines()[-1]
        await click(pilot, foot.index("4 slow I/Os") + 4, 23)
        assert app.scene.selection.screen == "outliers"
        foot = screen(app).splitlines()[-1]
        await click(pilot, foot.index("1 overview"), 23)
        assert app.scene.selection.screen == "overview"
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(50, 24)) as pilot:
        await settled(pilot)
        foot = screen(app).splitlines()[-1]
        await click(pilot, foot.index("3 in flight") + 4, 23)
        assert app.scene.selection.screen == "outstanding"


@pytest.mark.parametrize("size", [(100, 30), pytest.param((120, 40), marks=pytest.mark.slow)])
async def test_a_click_on_a_cell_lists_its_outliers_and_a_drag_marks_a_region(size):
    app = make(Source(FRAMES), selection=Selection(threshold_us=100_000))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        shown = screen(app)
        bottom = line_of(app, "└─")
        drawn = app.scene.view.latency_map.drawn
        top = bottom - drawn.scale.rows
        await drag(pilot, (50, top), (70, bottom - 1))
        cursor = app.scene.selection.cursor
        assert cursor is not None
        region = cursor.region(drawn.scale)
        assert (region.open_above, region.open_below) == (True, True)
        assert region.last - region.first in range(1, 21)
        assert "region" in screen(app)
        await pilot.press("escape")
        assert screen(app).splitlines()[bottom] == shown.splitlines()[bottom]
        await click(pilot, 60, bottom - 2)
        picked = app.scene.selection.region
        assert app.scene.selection.screen == "outliers"
        assert picked is not None
        assert 0 < picked.end_us - picked.begin_us <= 2 * drawn.timeline.column_us
        await pilot.press("escape")
        assert app.scene.selection.screen == "overview"


async def test_a_click_on_a_map_of_one_op_lists_the_outliers_of_that_op():
    app = make(Source(FRAMES), selection=Selection(threshold_us=100_000))
    async with app.run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await painted(pilot)
        bottoms = [y for y, line in enumerate(screen(app).splitlines()) if re.search("└─+.*─", line)]
        assert len(bottoms) == 2
        for bottom, op in zip(bottoms, ("read", "write"), strict=True):
            await click(pilot, 50, bottom - 2)
            region = app.scene.selection.region
            assert app.scene.selection.screen == "outliers"
            assert region is not None
            assert region.op == op
            assert region.words.endswith(f" {op}")
            assert f" {op}" in screen(app)
            await pilot.press("escape")
            await painted(pilot)
            assert app.scene.selection.splits


async def test_a_button_that_is_released_on_another_line_does_nothing():
    """Moving away before the release takes a click back; the last line has the key that ends latmon."""
    app = make(Source(host(4, 5)))
    async with app.run_test(size=(200, 24)) as pilot:
        await settled(pilot)
        before = app.scene.selection
        for key in ("4 slow I/Os", "? help"):
            await drag(pilot, (5, 3), (screen(app).splitlines()[-1].index(key), 23))
        await drag(pilot, (5, 3), (5, 4))
        assert app.scene.selection == before
        assert app.screen is app._main


async def test_the_wheel_moves_the_selection():
    app = make(Source(host(4, 20)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        names = [subject.device.name for subject in app.scene.view.subjects()]
        await app._wheel("down")
        await app._wheel("down")
        await app._wheel("up")
        assert app.scene.selection.selected == names[1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize(("key", "first"), [("4", r"^│?▸\d\d:"), ("5", "^│?▸")])
async def test_rows_of_other_screens_are_selected_too(key, first, size):
    app = make(Source(FRAMES))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press(key)
        await painted(pilot)
        y = line_of(app, first)
        await click(pilot, 10, y + 1)
        await painted(pilot)
        assert screen(app).splitlines()[y + 1].removeprefix("│").startswith("▸")


async def test_a_click_on_a_table_of_interrupts_selects_its_row_or_the_table():
    app = make(Source(FRAMES), selection=Selection(screen="interrupts"))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await click(pilot, 10, line_of(app, "^ emlxs_thread"))
        assert (app.scene.selection.part, app.scene.selection.context) == (2, "tables")
        assert re.search("(?m)^▸emlxs_thread", screen(app))
        await click(pilot, 5, line_of(app, "─ softirqs "))
        assert (app.scene.selection.part, app.scene.selection.row) == (0, None)
        await click(pilot, 5, line_of(app, "─ handlers "))
        assert app.scene.selection.part == 1
        await click(pilot, 10, line_of(app, "^ NET_RX"))
        assert (app.scene.selection.part, app.scene.selection.row) == (0, "NET_RX")
        await click(pilot, 10, line_of(app, "^▸NET_RX"))
        assert app.scene.selection.context == "delays", "the selected one is opened"


async def test_clicks_on_rows_take_no_word_of_the_text():
    """Hostile names of processes are those of devices, of tables, and times of day."""
    frames = []
    for number, frame in enumerate(FRAMES):
        outliers = tuple(
            replace(outlier, comm=("nvme0n1", "handlers", "03:00:01.1")[number % 3]) for outlier in frame.outliers
        )
        frames.append(replace(frame, outliers=outliers))
    app = make(Source(frames), selection=Selection(screen="outliers"))
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        before = app.scene.selection.selected
        rows = [y for y, line in enumerate(screen(app).splitlines()) if re.match(r"[ ▸]\d\d:\d\d:\d\d\.", line)]
        for y in (rows[3], rows[7], rows[1]):
            await click(pilot, 12, y)
            assert screen(app).splitlines()[y].startswith("▸")
        assert app.scene.selection.selected == before
        await click(pilot, 12, rows[1])
        assert app.scene.selection.context == "outlier"


@pytest.mark.parametrize("screen_name", ["stages", "who"])
async def test_rows_of_stages_and_cgroups_are_selected_by_a_click(screen_name):
    app = make(Source(FRAMES), selection=Selection(screen=screen_name))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        lines = app._main.lines
        kinds = {"stages": "device", "who": "row"}
        found = [(y, line[0].target) for y, line in enumerate(lines) if line and line[0].target is not None]
        rows = [(y, target) for y, target in found if target.kind == kinds[screen_name]]
        assert rows
        y, target = rows[-1]
        await click(pilot, 4, y)
        selection = app.scene.selection
        assert target.value in (selection.selected, selection.row)


async def test_a_click_in_a_small_map_selects_its_device_and_one_beside_them_none():
    app = make(Source(host(4, 20)), selection=Selection(panel="maps"))
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        y = line_of(app, "nvme3n1 +p99")
        x = screen(app).splitlines()[y].index("nvme3n1")
        await click(pilot, x + 3, y + 3)
        assert app.scene.selection.selected == "nvme3n1"
        await click(pilot, 1, y + 3)
        assert app.scene.selection.selected == "nvme3n1"
        assert app.scene.selection.panel == "maps"


async def test_a_click_nowhere_does_nothing():
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        before = app.scene.selection
        for y in range(24):
            if not screen(app).splitlines()[y].strip():
                await click(pilot, 70, y)
        await click(pilot, 1, 0)
        assert app.scene.selection == before
        await pilot.press("slash", *"nvme0")
        typed = app.scene.selection
        await click(pilot, 5, 3)
        assert app.scene.selection == typed


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_click_in_the_palette_runs_the_command(size):
    app = make(Source(host(2, 5)))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press("colon", *"selected device: its stages")
        assert isinstance(app.screen, PaletteScreen)
        await click(pilot, 20, 2 + (size[1] == 40))
        assert app.screen is app._main
        assert app.scene.selection.context == "stage"


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["1", "0"])
def test_the_terminal_reports_the_mouse_where_it_is_wanted(wanted):
    """A real terminal: what it is asked for, a click as xterm writes it, and that it is taken back at the end."""
    terminal = Terminal(MOUSE=wanted)
    assert terminal.read(60, until=b"nvme5n1")
    asked = b"\x1b[?1002h" in terminal.seen
    assert asked == (wanted == "1")
    assert b"\x1b[?1003h" not in terminal.seen
    if asked:
        foot = terminal.screen()[-1]
        x = foot.index("4 slow I/Os") + 2
        terminal.seen = b""
        terminal.write(f"\x1b[<0;{x};24M\x1b[<0;{x};24m".encode())
        assert terminal.read(60, until=b"slow I/Os"), terminal.screen()
    terminal.write(b"q")
    assert terminal.end()[0] == 0
    assert b"\x1b[?1002l" in terminal.seen or not asked


async def test_a_click_on_the_title_of_a_column_sorts_by_it():
    app = make(Source(host(8, 57, odd="nvme5n1", ios=60)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for title, sort in (("max", "max"), ("MB/s", "MB/s"), ("depth", "out"), ("peers", "unlike")):
            y = line_of(app, r" IOPS +MB/s +p50")  # the order has a line of its own above
            await click(pilot, screen(app).splitlines()[y].index(title) + 1, y)
            assert app.scene.selection.sort == sort
        assert app.scene.selection.panel == "overview", "the click opened nothing"
        y = line_of(app, r" IOPS +MB/s +p50")
        await click(pilot, screen(app).splitlines()[y].index("p50") + 1, y)
        assert app.scene.selection.sort == "unlike"
        assert "no order of this column: worst first, p99, max" in screen(app)


async def test_a_click_is_on_the_device_of_its_row_whatever_the_row_says():
    """Names in the text of a row, or of another device in it, are not read back."""
    frames = [
        replace(frame, devices=tuple(replace(d, model="nvme0n1") for d in frame.devices)) for frame in host(4, 20)
    ]
    app = make(Source(frames))
    async with app.run_test(size=(160, 24)) as pilot:
        await settled(pilot)
        y = line_of(app, "nvme3n1")
        await click(pilot, screen(app).splitlines()[y].index("nvme0n1") + 2, y)
        assert app.scene.selection.selected == "nvme3n1"


async def test_a_click_on_a_title_orders_the_slow_ios():
    app = make(Source(FRAMES), selection=Selection(screen="outliers"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        y = line_of(app, r"^ time +device ")
        await click(pilot, screen(app).splitlines()[y].index("total") + 1, y)
        assert app.scene.selection.order == "longest"


@pytest.mark.parametrize(
    ("selection", "gone"),
    [
        pytest.param(Selection(screen="interrupts"), ("taskqs", ("nvme", 1)), id="a table that is gone"),
        pytest.param(Selection(screen="interrupts"), ("softirqs", "GONE"), id="a row of a table"),
        pytest.param(Selection(screen="who"), ("/gone", "", 0), id="a cgroup"),
        pytest.param(Selection(screen="stages", aside="files"), "gone", id="an operation on a file"),
    ],
)
def test_a_click_on_a_row_that_has_gone_since_selects_nothing(selection, gone):
    """It was an error where the table had gone, and a selection of what isn't there elsewhere."""
    shown = scene(FRAMES, selection)
    assert shown.selection.context in ("interrupts", "who", "files")
    assert clicked_row(shown.view, gone) is None
