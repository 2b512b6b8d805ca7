"""The app as a user drives it: keys, filter, pause, panels, the end of the stream and a source that refuses."""

import asyncio
import itertools
import re
import time
from pathlib import Path

import pytest
from frames import PROCFS, Commands, Source, disks, frame, host
from textual._compositor import LayoutUpdate
from textual.events import Key, MouseUp, Paste

from latmon.findings.rule import screen_title
from latmon.support.errors import RecordingError
from latmon.support.paths import data_dir
from latmon.support.theme import OUR_THEMES, load_theme
from latmon.tui.app import LatmonApp
from latmon.tui.canvas import Canvas, HelpScreen
from latmon.tui.commands import THEME, Choice
from latmon.tui.keys import ACTIONS, bindings, choosing, key_line, sections
from latmon.views.lines import plain
from latmon.views.selection import SCREENS, ScreenOptions, Selection


def make(source, *, depth="truecolor", theme="dark", session=None, preview=None, tour=None, **options):
    """An app on `source`; without findings, unless `options` has their thresholds."""
    shown = ScreenOptions(theme=load_theme(theme, (data_dir("themes"),)), **{"findings": None, **options})
    return LatmonApp(source, shown, depth=depth, session=session, preview=preview, tour=tour)


PATIENCE_S = 60


def screen(app):
    canvas = app.screen.query_one(Canvas)
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


async def settled(pilot):
    """Wait until the source has given all its frames and they are painted."""
    app = pilot.app
    async with asyncio.timeout(PATIENCE_S):
        while app.scene.store.arrived < len(app._source._frames):
            await pilot.pause(0.02)
    await painted(pilot)


async def painted(pilot):
    """Wait until no picture is due: the next one waits for four times as long as the last one took."""
    await pilot.pause(0.02)
    async with asyncio.timeout(PATIENCE_S):
        while pilot.app._pace.coming:
            await pilot.pause(0.02)
    await pilot.pause(0.02)


async def pressed(pilot, keys):
    await settled(pilot)
    await pilot.press(*keys)
    await painted(pilot)


def whole(app):
    """An app that draws no frame before it has all: later pictures keep the ranges and the order of earlier ones."""
    due = app._pace.due
    app._pace.due = lambda *when: due(*when) if app.scene.store.arrived == len(app._source._frames) else None
    return app


async def test_it_starts_before_its_source_does():
    class Slow(Source):
        async def __aenter__(self):
            await asyncio.sleep(60)
            return self

    async with make(Slow([])).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "starting: opening the backend" in screen(pilot.app)
        assert "backend starting" in screen(pilot.app)


async def test_the_kernels_counters_are_shown_until_the_first_frame_of_the_probes():
    opens, counts = asyncio.Event(), asyncio.Event()

    class Compiling(Source):
        async def __aenter__(self):
            await opens.wait()
            return self

        async def frames(self):
            await counts.wait()
            async for current_frame in super().frames():
                yield current_frame

    probes = Compiling(host(2, 3))
    app = make(probes, preview=Source(host(3, 4), origin=PROCFS))
    async with app.run_test(size=(80, 24)) as pilot, asyncio.timeout(PATIENCE_S):
        while app.scene.store.arrived < 4:
            await pilot.pause(0.02)
        await painted(pilot)
        assert "STARTING" in screen(app)
        assert "the probes are starting" in screen(app)
        for key in ("space", "left_square_bracket", "slash", "escape", "2", "1"):
            await pilot.press(key)
        opens.set()
        await painted(pilot)
        assert "procfs" in screen(app), "an open source has counted nothing yet"
        counts.set()
        await settled(pilot)
        assert not any(text in screen(app) for text in ("STARTING", "procfs", "PAUSED", "the probes are starting"))
        assert app.scene.store.arrived == 3, "none of the preview is kept"
        assert len(app.scene.archive.stamps) == 3


async def test_a_short_timer_calls_back_though_its_task_begins_late(monkeypatch):
    called = asyncio.Event()
    calls = itertools.count()
    app = make(Source(host(2, 3)))
    async with app.run_test(size=(80, 24)) as pilot, asyncio.timeout(PATIENCE_S):
        await settled(pilot)
        monkeypatch.setattr("textual._time.get_time", lambda: time.monotonic() + 0.01 * next(calls))
        app.set_timer(0.005, called.set)
        await called.wait()


async def test_a_refusal_after_the_kernels_counters_were_shown_ends_it():
    opens = asyncio.Event()

    class Refused(Source):
        async def __aenter__(self):
            await opens.wait()
            raise RecordingError("bpftrace is too old")

    app = make(Refused([]), preview=Source(host(3, 4), origin=PROCFS))
    async with app.run_test(size=(80, 24)) as pilot, asyncio.timeout(PATIENCE_S):
        while app.scene.store.arrived < 4:
            await pilot.pause(0.02)
        opens.set()
        while app.failure is None:
            await pilot.pause(0.02)
    assert str(app.failure) == "bpftrace is too old"


@pytest.mark.slow
@pytest.mark.usefixtures("brisk")
async def test_every_key_of_the_table_does_something(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them save files
    app = make(Source(host(6, 20, odd="nvme3n1")), session=Commands())
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for action in ACTIONS:
            if not action.name.startswith("stop"):
                for key in action.keys.split(","):
                    await pilot.press(key, "escape")
        assert app.is_running


async def test_moving_selects_and_stops_at_the_ends():
    app = make(Source(host(3, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for key, name in (
            ("j", "nvme1n1"),
            ("down", "nvme2n1"),
            ("l", "nvme2n1"),
            ("k", "nvme1n1"),
            ("home", "nvme0n1"),
            ("up", "nvme0n1"),
            ("end", "nvme2n1"),
        ):
            await pilot.press(key)
            assert f"▸{name}" in screen(app)
            assert app.scene.selection.selected == name


async def test_the_order_of_rows_is_reported_when_it_changes():
    app = make(Source(host(3, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("s")
        assert "rows sorted by p99" in screen(app)
        await pilot.press(*"ssssss")
        assert "rows sorted by findings, unlikeness to peers, then busy time" in screen(app)


async def test_panels_go_round():
    app = make(Source(host(3, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("tab")
        assert screen(app).count("p99 ") == 3
        await pilot.press("enter")
        assert "nvme1n1" not in screen(app)
        await pilot.press("escape")
        assert "nvme1n1" in screen(app)


async def test_a_filter_is_typed_seen_kept_and_cleared():
    app = make(Source(host(12, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("slash", *"sdz", "ctrl+u", *"nvme1 sdz", "ctrl+w", *"q", *("backspace", "backspace"))
        assert "/ nvme1█  3 of 12 devices" in screen(app)
        assert "nvme2n1" not in screen(app)
        await pilot.press("enter")
        assert "nvme2n1" not in screen(app)
        await pilot.press("escape")
        assert "nvme2n1" in screen(app)
        await pilot.press("slash", *"zzz")
        assert "matches none of 12 devices" in screen(app)
        await pilot.press("escape")
        assert "nvme2n1" in screen(app)


async def test_pasted_text_is_typed_where_a_line_is_typed():
    app = make(Source(host(12, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.post_message(Paste("q/nvme"))
        await pilot.pause()
        assert app.scene.selection.pattern == ""
        await pilot.press("slash")
        app.post_message(Paste(" nvme1q\x1b\x07\n\n"))
        await pilot.pause()
        await pilot.press("backspace")
        assert "/ nvme1█  3 of 12 devices" in screen(app)
        app.post_message(Paste("x" * 100_000))
        await pilot.pause()
        assert len(app.scene.selection.pattern) == 40
        await pilot.press("escape", "colon")
        app.post_message(Paste("save\n"))
        await pilot.pause()
        assert "search: save█" in screen(app)


async def test_pausing_counts_what_it_misses():
    app = make(Source(host(2, 120), pace=0.01))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        await pilot.press("space")
        shown = screen(app).splitlines()[2:-1]
        await pilot.pause(0.3)
        await pilot.press("k")
        assert re.search(r"PAUSED [0-9:]+, [0-9:]+ (s|min) behind", screen(app))
        assert screen(app).splitlines()[2:-1] == shown
        await pilot.press("space")
        assert "● LIVE" in screen(app)


async def test_ops_windows_and_sorts():
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("o")
        assert "nvme0n1 read" in screen(app)
        await pilot.press("plus")
        assert "last 2 min" in screen(app)
        await pilot.press("minus", "minus")
        assert "last 30 s" in screen(app)
        await pilot.press("s")
        assert app.scene.selection.sort == "p99"


async def test_a_theme_is_shown_while_it_is_chosen_and_kept_or_restored():
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("T")
        assert screen(app).splitlines()[-1].startswith(" theme ▸dark  light  high-contrast ")
        for name in OUR_THEMES[1:]:
            await pilot.press("right")
            assert app._face.name == name
            assert f"▸{name} " in screen(app).splitlines()[-1]
            assert "nvme0n1" in screen(app)
        await pilot.press("escape")
        assert app._face.name == "dark"
        await pilot.press("T", "T", "enter")
        assert app._face.name == "light"
        assert "theme light; `theme: light` in the config keeps it" in screen(app)
        assert "Esc restore" not in screen(app)


async def test_a_ramp_is_chosen_apart_from_the_theme():
    app = make(Source(host(2, 5)), theme="light")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        first = app._face.styles["heat1"]
        await pilot.press("C", "right", "right")
        assert screen(app).splitlines()[-1].startswith(" ramp  auto  cividis ▸viridis  inferno  mono ")
        viridis = app._face.styles["heat1"]
        assert viridis != first
        await pilot.press("enter", "T", "left", "enter")
        assert app._face.name == "dark"
        assert app._face.styles["heat9"].color.name == "#f6e620"
        await pilot.press("C", "home", "escape")
        assert app._face.styles["heat9"].color.name == "#f6e620"


async def test_where_there_are_no_colours_no_ramp_is_offered():
    app = make(Source(host(2, 5)), depth="none")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("C")
        assert "no ramp to choose here" in screen(app)


async def test_a_theme_that_is_invalid_is_named_and_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "latmon" / "themes").mkdir(parents=True)
    (tmp_path / "latmon" / "themes" / "zz.yaml").write_text("name: zz\ncolours: {text: red}\n")
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(200, 24)) as pilot:
        await settled(pilot)
        await pilot.press("T", "left")
        assert "zz.yaml:2: colours: background, dim, strong, accent, bad missing" in screen(app)
        assert app._face.name == "dark"
        await pilot.press("left", "enter")
        assert app._face.name == OUR_THEMES[-1]


@pytest.mark.parametrize("cells", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("at", [0, 3, 11])
def test_the_name_that_is_chosen_is_on_the_line(at, cells):
    choice = Choice(THEME, tuple(f"name-{number}" for number in range(12)), at)
    line = plain(choosing(choice, cells))
    assert f"▸name-{at} " in line
    assert len(line) <= cells
    assert cells < 60 or line.endswith("Esc restore")


async def test_recording_is_asked_for_or_refused_in_words():
    asked = Commands()
    app = make(Source(host(1, 2)), session=asked)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("R")
        assert asked.of("toggle_recording") == [None]
    app = make(Source(host(1, 2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("R")
        assert "nothing to record here" in screen(app)


async def test_help_reports_keys_and_numbers_and_closes():
    app = make(Source(host(1, 2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        assert "quit" in screen(app)
        await pilot.press(*["pagedown"] * 30)
        assert "measured only with --stages all" in screen(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)
        assert app.is_running


async def test_keys_and_clicks_behind_the_one_that_closes_a_page_are_those_of_the_screen_below():
    """Two of them may come before the first one is handled: a double click, or Esc on a slow host."""
    app = make(Source(host(4, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for opening, keys in (("question_mark", ("escape", "escape")), ("colon", ("enter", "enter", "escape"))):
            await pilot.press("2", opening)
            assert app.screen is not app._main
            for key in (*keys, "3"):
                app.post_message(Key(key, "3" if key == "3" else None))
            await until(pilot, lambda: app.scene.selection.screen == "outstanding")
            assert app.screen is app._main
        await pilot.press("colon")
        page, click = app.screen, (app.screen, 5, 3, 0, 0, 1, False, False, False)
        for _ in range(2):
            page.post_message(MouseUp(*click))
        await until(pilot, lambda: app.screen is app._main)
        await pilot.press("4")
        assert app.scene.selection.screen == "outliers"


async def until(pilot, done):
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await pilot.pause(0.02)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_leaving_is_done(key):
    source = Source(host(1, 2))
    app = make(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("slash" if key == "ctrl+c" else "tab", key)
        await pilot.pause()
    assert app.return_code == 0
    assert source.closed


async def test_the_end_of_the_stream_is_data():
    app = make(Source(host(1, 3), stay=False), mode="REPLAY")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "ENDED" in screen(app)
        assert "nvme0n1" in screen(app)
        assert app.is_running


async def test_a_source_that_breaks_says_so_and_keeps_its_history():
    class Broken(Source):
        async def frames(self):
            yield host(1, 1)[0]
            raise RecordingError("line 7 is damaged \x1b[31m")

    app = make(Broken([1]))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "line 7 is damaged \\x1b[31m" in screen(app)
        assert "nvme0n1" in screen(app)
        await pilot.press("q")
    assert app.return_code == 1


async def test_a_source_that_refuses_ends_the_app_with_its_code():
    app = make(Source([], refuse="no usable backend here: try sudo"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.1)
    assert app.return_code == 3
    assert str(app.failure) == "no usable backend here: try sudo"


async def test_resizing_keeps_up():
    app = make(Source(host(30, 5, ios=10)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for size in ((20, 5), (400, 120), (40, 10), (81, 24), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            canvas = app.screen.query_one(Canvas)
            assert canvas.size == size
            assert len(screen(app).splitlines()) == size[1]
            assert ("? help" in screen(app)) == (size[0] >= 100)  # the keys of this width, though no frame came
        assert "nvme0n1" in screen(app)


async def test_a_resize_draws_no_picture_but_that_of_the_new_size(monkeypatch):
    """The first picture of another size has its lines: those of the size before would be sent for nothing."""
    pictures = []

    def display(_app, _screen, update):
        if isinstance(update, LayoutUpdate):
            pictures.append("\n".join("".join(strip.text for strip in strips) for strips in update.strips))

    app = make(Source(host(3, 5, ios=10)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        monkeypatch.setattr(LatmonApp, "_display", display)
        for key in ("1", "question_mark"):
            await pilot.press(key)
            for size in ((100, 30), (80, 24)):
                pictures.clear()
                await pilot.resize_terminal(*size)
                await painted(pilot)
                assert pictures
                assert set(pictures) == {screen(app)}


async def test_hot_plug_while_running():
    frames = [*host(2, 3), frame(4, devices=disks(3)[2:]), frame(5, removed=("nvme0n1",))]
    async with make(Source(frames)).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "nvme2n1" in screen(pilot.app)
        assert re.search(r"nvme0n1.*gone", screen(pilot.app))


CONTEXTS = (
    "details",
    "outstanding",
    "audit",
    "order",
    "overview",
    "zoom",
    "cursor",
    "stages",
    "stage",
    "files",
    "outliers",
    "outlier",
    "interrupts",
    "tables",
    "delays",
    "findings",
    "who",
    "issuer",
    "compared",
)


def test_keys_footer_and_help_are_one_table():
    assert {b.action for b in bindings()} == {a.call for a in ACTIONS}
    sentences = [pair for _, pairs in sections() for pair in pairs]
    reported = [(a.shown, a.does) for a in ACTIONS]
    assert set(sentences) == set(reported)
    assert sorted(pair for pair in sentences if pair[1]) == sorted({pair for pair in reported if pair[1]})


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_key_means_one_thing_at_a_time(context):
    keys = [key for a in ACTIONS if not a.on or context in a.on for key in a.keys.split(",")]
    assert len(keys) == len(set(keys))
    assert {c for a in ACTIONS for c in a.on} <= {*CONTEXTS, "tour"}  # over any of them


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_last_line_is_cut_between_keys(context):
    briefs = [a for a in ACTIONS if a.brief and (not a.on or context in a.on)]
    for cells in (10, 40, 80, 160):
        line = plain(key_line(context, {}, cells)).rstrip()
        assert len(line) <= cells
        assert re.fullmatch(r"( {1,2}(\d [a-zA-Z/ ]+|\S+( [a-z ]+)?|…))*", line)
    names = {a: screen_title(SCREENS[a.by]) if a.name == "screen" else a.brief for a in briefs}
    assert all(f"{a.shown.split()[0]} {names[a]}" in plain(key_line(context, {}, 400)) for a in briefs)
    assert plain(key_line(context, {}, 80)).endswith("7 who Esc ?")
    for cells in (40, 60):
        line = plain(key_line(context, {}, cells))
        assert line.startswith(" 1 overview 2 stages 3 in flight ")
        assert " Esc " in line
        assert line.endswith(" ?")


def test_only_the_tui_knows_textual():
    source = Path(data_dir("themes")).parent / "latmon"
    for path in [
        *source.glob("views/*.py"),
        *source.glob("aggregate/*.py"),
        source / "support/theme.py",
        source / "support/paths.py",
    ]:
        assert "textual" not in re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)


# ---- pictures


SIZES = {"80x24": (80, 24), "160x50": (160, 50)}
KEYS = {"overview": (), "maps": ("tab",), "zoom": ("enter",), "help": ("question_mark",)}


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        pytest.param(
            keys,
            size,
            id=f"{name}-{cells}",
            marks=[pytest.mark.slow] * (cells == "160x50" and name != "overview"),
        )
        for name, keys in KEYS.items()
        for cells, size in SIZES.items()
    ],
)
def test_pictures(snap_compare, size, keys):
    app = make(Source(host(8, 57, odd="nvme5n1", ios=60)), selection=Selection(threshold_us=100_000))
    assert snap_compare(whole(app), terminal_size=size, run_before=lambda pilot: pressed(pilot, keys))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "depth"), [("light", "256"), ("high-contrast", "truecolor"), ("dark", "16"), ("dark", "none")]
)
def test_pictures_of_themes(snap_compare, theme, depth):
    app = make(
        Source(host(8, 57, odd="nvme5n1", ios=60)), theme=theme, depth=depth, selection=Selection(threshold_us=100_000)
    )
    assert snap_compare(whole(app), terminal_size=(80, 24), run_before=lambda pilot: pressed(pilot, ()))


def test_picture_without_distributions(snap_compare):
    frames = [frame(i, devices=disks(2) if i == 1 else ()) for i in range(1, 5)]
    assert snap_compare(
        whole(make(Source(frames, origin=PROCFS))), terminal_size=(80, 24), run_before=lambda pilot: pressed(pilot, ())
    )


async def test_a_key_sets_a_threshold_where_none_is_set():
    """The sentence that none is set names the key; an invalid one changes nothing."""
    app = make(Source(host(3, 5)))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        assert "no threshold, A sets one" in screen(app)
        for typed, threshold_us in (("10ms", 10_000), ("x", 10_000), ("0", 10_000), ("", None)):
            await pilot.press("A", "ctrl+u", *typed, "enter")
            await painted(pilot)
            assert app.scene.selection.threshold_us == threshold_us, typed
        await pilot.press("A", *"250us", "enter")
        await painted(pilot)
        assert "`threshold: 250us` in the config keeps it" in screen(app)
        assert "A sets one" not in screen(app)
        await pilot.press("A")
        await painted(pilot)
        assert "threshold 250us" in screen(app).splitlines()[-1]


async def test_the_first_esc_closes_the_palette():
    app = make(Source(host(2, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("colon", *"sort", "escape")
        assert app.screen is app._main
