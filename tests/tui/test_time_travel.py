"""Back in time: the screen of any moment is the one that a session had then, live and in a replay, by the same keys."""

import asyncio
import re
import threading
import xml.etree.ElementTree as ET
from dataclasses import replace
from types import SimpleNamespace

import pytest
from frames import ORIGIN, SECOND, START_MONO, START_WALL, Commands, Lazy, Source, host, line_of, on_demand_host
from report_json import ReportJson, summarised

from latmon.capture.backend import Options
from latmon.capture.registry import Request
from latmon.capture.session import SCREEN_COMMANDS, Session
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import FLEET, Settings
from latmon.findings.rules import RULES
from latmon.model.frame import STAGES, UNACCOUNTED, Frame, Health, Mark, Series
from latmon.model.histogram import Histogram
from latmon.model.redaction import Redaction
from latmon.recording.archive import Archive, Stamps, TimelineEvent
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.findings import findings_of
from latmon.report.summary import report_of
from latmon.report.totals import Totals
from latmon.support.errors import LatmonError
from latmon.support.paths import data_dir
from latmon.support.theme import load_theme
from latmon.support.units import clock
from latmon.tui import time_travel
from latmon.tui.app import LatmonApp
from latmon.tui.canvas import Canvas
from latmon.views.heatmap import LABEL, RAMP
from latmon.views.history import TAILS
from latmon.views.lines import plain
from latmon.views.past_view import strip
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import SCREENS, ScreenOptions, Selection
from latmon_backends.replay import Recorded, ReplayBackend, open_several

BEGUN = replace(ORIGIN, start_mono_us=START_MONO, start_wall=START_WALL)
MARKED = Mark("max_vec 4", START_MONO + 110_500_000, START_WALL + 110.5)


def some(seconds=140):
    """With a mark, a restart, a loss, a hole and a clock that was set."""
    frames = host(4, seconds, odd="nvme1n1", ios=30)
    frames[110] = replace(frames[110], marks=(MARKED,))
    frames[114] = replace(frames[114], gap="probe-restart")
    frames[118] = replace(frames[118], health=Health(lost_events=3))
    frames[122:] = [replace(frame, wall=frame.wall + 30) for frame in frames[122:]]
    return [frame for frame in frames if frame.seq not in (127, 128)]


FRAMES = Lazy(some)


def session(frames, **options):
    scene = Scene(options.pop("selection", Selection()), **options)
    scene.opened(BEGUN)
    for frame in frames:
        scene.append(frame, line_of(frame))
    return scene


def drawn(made, size):
    return [plain(line) for line in screen_lines(made, (), *size)]


def app_of(source, **options):
    session = options.pop("session", None)
    shown = ScreenOptions(theme=load_theme("dark", (data_dir("themes"),)), **{"findings": None, **options})
    app = LatmonApp(source, shown, depth="none", session=session)
    app.scene.at_once = True
    return app


def screen(app):
    canvas = app.screen.query_one(Canvas)
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


async def arrived(pilot, many):
    """Wait until so many frames came and are painted."""
    async with asyncio.timeout(60):
        while pilot.app.scene.edge.store.arrived < many or pilot.app._pace.coming:
            await pilot.pause(0.02)
    await pilot.pause(0.02)


async def shown(pilot, words):
    """Wait until the screen shows it."""
    async with asyncio.timeout(60):
        while words not in " ".join(screen(pilot.app).split()):
            await pilot.pause(0.02)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("travel") / "a.latmon.jsonl.gz"
    writer = Writer.create(path, BEGUN)
    for frame in FRAMES:
        writer.append(frame)
    writer.close()
    return path


@pytest.mark.parametrize(
    ("screen_name", "size"),
    [
        ("overview", (80, 24)),
        *(
            pytest.param(name, size, marks=pytest.mark.slow)
            for name in ("overview", "stages", "outstanding", "interrupts")
            for size in ((80, 24), (160, 50))
        ),
    ],
)
def test_a_moment_looks_as_it_did(size, screen_name, recording):
    selection = Selection(screen=screen_name)
    live = session(FRAMES, selection=selection)
    file = Recorded(open_several([recording]))
    for _ in file.scan():
        pass
    replayed = Scene(selection, archive=file)
    replayed.opened(BEGUN, file)
    for many in (75, len(FRAMES)):
        then = session(FRAMES[:many], selection=selection)
        then.pause()
        at = live.archive.stamps.nearest(FRAMES[many - 1].mono_us)
        edge = session(FRAMES[:many], selection=selection)
        for made in (live, replayed, then, edge):
            made.has_strip = False  # it is all of the time that each has
        for made in (live, replayed):
            made.travel(at)
            assert drawn(made, size)[1:] == drawn(then, size)[1:]
        # at the edge the same, but for the title and the message on the step
        shown, lived = drawn(live, size), drawn(edge, size)
        assert sum(a != b for a, b in zip(shown, lived, strict=True)) <= 3


def test_a_step_shows_what_a_fresh_look_does(recording):
    """Both ways, far and near, with the sums that are moved along; the stages' screen after another one too."""
    file = Recorded(open_several([recording]))
    walked = Scene(Selection(), archive=file)
    walked.opened(BEGUN, file)
    for number in (100, 101, 99, 104, 84, 105, 20, 130, 129):
        fresh = Scene(Selection(), archive=file)
        fresh.opened(BEGUN, file)
        for scene in (walked, fresh):
            scene.travel(file.stamps[number])
        assert drawn(walked, (80, 24)) == drawn(fresh, (80, 24))
    for scene in (walked, fresh):
        scene.choose(replace(scene.selection, screen="stages"))
    whole_scene = Scene(Selection(screen="stages"), archive=file)
    whole_scene.opened(BEGUN, file)
    whole_scene.travel(file.stamps[129])
    assert drawn(walked, (80, 24)) == drawn(whole_scene, (80, 24)) == drawn(fresh, (80, 24))


def test_a_look_takes_its_time_and_a_new_one_ends_it(recording):
    file = Recorded(open_several([recording]))
    scene = Scene(Selection(), archive=file)
    scene.opened(BEGUN, file)
    scene.travel(file.stamps[40])
    scene.at_once = False
    scene.travel(file.stamps[100])
    before = drawn(scene, (80, 24))
    scene.proceed()
    assert scene.at == file.stamps[40]
    assert "reading 03:01:41" in before[-3]
    assert drawn(scene, (80, 24)) == before
    scene.travel(file.stamps[60])
    parts = 0
    while scene.towards is not None:
        scene.proceed()
        parts += 1
    assert scene.at == file.stamps[60]
    assert parts > 20
    scene.travel(file.stamps[90])
    scene.resume()
    assert scene.towards is None


def test_a_time_that_is_being_read_is_not_released(recording):
    """The garbage collection comes five seconds after the start; a crowded host is still reading then."""
    file = Recorded(open_several([recording]))
    scene = Scene(Selection(), archive=file)
    scene.opened(BEGUN, file)
    scene.at_once = False
    scene.travel(file.stamps[100])
    scene.proceed()
    scene.release()
    assert scene.towards == file.stamps[100]
    while scene.towards is not None:
        scene.proceed()
    assert scene.at == file.stamps[100]


class Unread(Archive):
    """Counts the reads of what it keeps."""

    reads = 0

    def frames(self, after_us, until_us, *, totals=False):
        self.reads += 1
        return super().frames(after_us, until_us, totals=totals)


def going_on(frames, selection, **options):
    """A live session, as the app has it: nothing waits for a read."""
    scene = session(frames, selection=selection, archive=Unread(), **{"findings": Settings(), **options})
    scene.at_once = scene.findings_state.at_once = False
    while scene.findings_state.is_pending:
        scene.findings_state.proceed()
    return scene


ON_DEMAND = Lazy(on_demand_host, 6, 84, ios=6)


def all_screens(made, names=SCREENS):
    """Each screen's lines, drawn one after the other."""
    found = {}
    for name in names:
        made.choose(Selection(screen=name))
        found[name] = drawn(made, (80, 24))
    return found


def below_the_title(screens):
    return {name: lines[1:] for name, lines in screens.items()}


def test_space_freezes_all_screens_without_a_read():
    scene = going_on(ON_DEMAND[:70], Selection())
    before = all_screens(scene)
    scene.pause()
    frozen = all_screens(scene)
    assert scene.towards is None
    assert all("PAUSED 03:01:10" in lines[0] for lines in frozen.values())
    assert below_the_title(frozen) == below_the_title(before)
    for frame in ON_DEMAND[70:]:
        scene.append(frame)
    assert below_the_title(all_screens(scene)) == below_the_title(before)
    assert scene.archive.reads == 0
    scene.resume()
    while scene.findings_state.is_pending:
        scene.findings_state.proceed()
    assert all_screens(scene) == all_screens(going_on(ON_DEMAND, Selection()))


def test_other_ops_and_another_window_of_a_frozen_screen_need_no_read():
    scene = going_on(ON_DEMAND[:70], Selection(), findings=None)
    scene.pause()
    for frame in ON_DEMAND[70:80]:
        scene.append(frame)
    wanted = Selection(op="write", window_us=30_000_000, sort="name")
    scene.choose(wanted)
    summed(scene)
    other = going_on(ON_DEMAND[:70], wanted, findings=None)
    for frame in (scene, other):
        frame.has_strip = False  # it is all of the time that each has
    assert drawn(scene, (80, 24))[1:-1] == drawn(other, (80, 24))[1:-1]
    assert scene.archive.reads == 0
    scene.resume()
    summed(scene)
    scene.has_strip = True
    assert drawn(scene, (80, 24))[1:-1] == drawn(going_on(ON_DEMAND[:80], wanted, findings=None), (80, 24))[1:-1]


def summed(made):
    """Sum another window, as the app does after a picture."""
    assert made.is_reading
    while made.is_reading:
        made.proceed()


@pytest.mark.slow
@pytest.mark.parametrize("screen_name", ["overview", "stages", "interrupts"])
def test_another_window_is_shown_before_its_traced_values_are_summed(screen_name):
    before, after = (Selection(screen=screen_name, window_us=us, sort="name") for us in (60 * SECOND, 30 * SECOND))
    scene, other = going_on(ON_DEMAND[:70], before), going_on(ON_DEMAND[:70], after)
    assert drawn(scene, (160, 50))
    groups = scene.history.on_demand.groups
    scene.choose(after)
    at_once = drawn(scene, (160, 50))
    assert "last 30 s" in at_once[0]
    assert any("summing …" in line for line in at_once) == (screen_name != "overview")
    assert not scene.history.on_demand.groups, "nothing was summed for that"
    scene.append(ON_DEMAND[70])
    other.append(ON_DEMAND[70])
    assert not scene.is_reading, "a frame is added to whole sums"
    assert set(scene.history.on_demand.groups) == set(groups)
    assert drawn(scene, (160, 50)) == drawn(other, (160, 50))
    scene.choose(before)
    summed(scene)
    other.choose(before)
    summed(other)
    assert drawn(scene, (160, 50)) == drawn(other, (160, 50))


def test_other_ops_need_no_sum_and_the_overview_only_those_of_the_tracer():
    before, after = Selection(sort="name"), Selection(sort="name", op="write")
    scene = going_on(ON_DEMAND[:70], before, findings=None)
    assert drawn(scene, (160, 50))
    window, traced = scene.history.window, scene.history.on_demand
    scene.choose(after)
    assert drawn(scene, (160, 50)) == drawn(going_on(ON_DEMAND[:70], after, findings=None), (160, 50))
    assert (scene.history.window, scene.history.on_demand) == (window, traced)
    assert "hba" in traced.traced_stages <= {"total", *STAGES, UNACCOUNTED}
    assert scene.known is not None
    assert set(traced.groups) == {TAILS, "always"}


def test_a_step_shows_the_neighbouring_window_before_anything_is_read():
    scene, given_scene = going_on(FRAMES[:90], Selection()), FRAMES[88]
    scene.travel(scene.archive.stamps.beside(scene.edge.until_us, -1))
    assert scene.archive.reads == 0
    at_once = drawn(scene, (80, 24))
    assert f"PAUSED {clock(given_scene.wall)}, reading …" in at_once[0]
    while scene.towards is not None:
        scene.proceed()
    read = drawn(scene, (80, 24))
    assert f"PAUSED {clock(given_scene.wall)}, 1 s behind" in read[0]
    assert at_once[1:-3] == read[1:-3]


@pytest.mark.slow
def test_what_is_still_being_read_is_not_shown_as_known():
    names = ("stages", "outstanding", "outliers", "interrupts")
    scene = going_on(ON_DEMAND[:70], Selection())
    scene.travel(scene.archive.stamps[60])
    for at_once in all_screens(scene, names).values():
        assert "reading 03:01:01" in at_once[2]
        assert not any("nvme" in line or "off" in line for line in at_once)
    while scene.towards is not None:
        scene.proceed()
    fresh = going_on(ON_DEMAND[:70], Selection())
    fresh.at_once = True
    fresh.travel(fresh.archive.stamps[60])
    assert {name: lines[1:-1] for name, lines in all_screens(scene, names).items()} == {
        name: lines[1:-1] for name, lines in all_screens(fresh, names).items()
    }


def test_a_moment_that_is_not_in_memory_is_read_before_it_is_shown():
    scene = going_on(FRAMES[:90], Selection())
    scene.edge.store.frames.popleft()
    scene.travel(scene.archive.stamps[3])
    assert scene.at is None
    assert scene.towards == scene.archive.stamps[3]


async def test_space_goes_on_from_a_time_that_is_still_being_read(recording):
    app = app_of(ReplayBackend([recording], speed=0), mode="REPLAY")
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot, "REPLAY PAUSED")
        app.scene.at_once = False
        await pilot.press("t", *"03:01:00", "enter", "space")
        await arrived(pilot, len(FRAMES))
        async with asyncio.timeout(30):
            while app.scene.edge.until_us != FRAMES[-1].mono_us or app.scene.at is not None:
                await pilot.pause(0.02)


def test_what_happened_is_on_the_axis_and_named_where_one_stands():
    scene = session(FRAMES, ink=RAMP)
    for size in ((80, 24), (160, 50)):
        scene.resume()
        axis = next(line for line in drawn(scene, size) if "└─" in line)
        assert re.sub(r"[^MRLCG]", "", axis) == "MRLCG"
        for number, text in (
            (111, "mark: max_vec 4"),
            (115, "the probe was restarted"),
            (119, "lost: 3 events"),
            (123, "the clock was set forward by 30s"),
            (129, "gap: nothing for 2s"),
        ):
            scene.travel(scene.archive.stamps.nearest(START_MONO + number * 1_000_000))
            assert text in " ".join(drawn(scene, size)[-3:-1])


@pytest.mark.slow
async def test_keys_step_and_come_back_while_frames_arrive(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    source = Source(host(3, 400, ios=5), pace=0.05)
    session = Commands()
    app = app_of(source, session=session)
    async with app.run_test(size=(80, 24)) as pilot:
        await arrived(pilot, 60)
        await pilot.press("left_square_bracket")
        first = re.search(r"PAUSED (\d\d:\d\d:\d\d), \d+ s behind", screen(app))
        await pilot.press("left_curly_bracket")
        at = app.scene.at
        assert first
        before = app.scene.edge.store.arrived
        await pilot.pause(0.3)
        assert app.scene.edge.store.arrived > before
        assert app.scene.at == at
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert app.scene.at.mono_us == at.mono_us + 2_000_000
        await pilot.press("g")
        assert app.scene.at.mono_us == START_MONO + 1_000_000
        await pilot.press("t", *"03:00:33", "enter")
        assert app.scene.at.wall == START_WALL + 33
        await pilot.press("t", *"-5", "s", "enter")
        assert app.scene.at.wall == START_WALL + 28
        await pilot.press("t", *"nonsense", "enter")
        assert "'nonsense' is no time such as 13:04:12" in screen(app)
        await pilot.press("t", *"05:00", "enter")
        assert "05:00:00 wasn't captured" in screen(app)
        await pilot.press("t", *"03:00:55", "enter", "w")
        await shown(pilot, "saved 55 windows")
        saved = next(tmp_path.glob("db-07-*.latmon.jsonl.gz"))
        assert saved.name in screen(app).replace("\n", "").replace(" ", "")
        recording = open_recording(saved)
        windows = [frame for frame in recording if isinstance(frame, Frame)]
        assert [window.seq for window in windows] == list(range(1, 56))
        assert not recording.damage
        await pilot.press("w")
        async with asyncio.timeout(60):
            while not list(tmp_path.glob("db-07-*-2.latmon.jsonl.gz")):
                await pilot.pause(0.02)
        await pilot.press("m", *"set x", "enter")
        assert session.of("mark") == ["set x"]
        await pilot.press("m", *"no", "escape", "G")
        assert session.of("mark") == ["set x"]
        assert app.scene.at is None
        assert "LIVE" in screen(app)


async def test_a_replay_goes_by_the_same_keys_and_stays_open_at_its_end(recording):
    app = app_of(ReplayBackend([recording], speed=0), mode="REPLAY")
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot, "REPLAY PAUSED")
        assert app.scene.at.mono_us == FRAMES[-1].mono_us
        await pilot.press("g", "right_curly_bracket", "right_curly_bracket")
        assert app.scene.at.mono_us == FRAMES[20].mono_us
        await pilot.press("m")
        assert "a recording isn't changed" in screen(app)
        await pilot.press("space")
        await arrived(pilot, len(FRAMES))
        async with asyncio.timeout(60):
            while app.scene.ended is None:
                await pilot.pause(0.02)
        assert app.scene.edge.until_us == FRAMES[-1].mono_us
        assert app.is_running
        await pilot.press("left_square_bracket")
        assert app.scene.at.mono_us == FRAMES[-2].mono_us
        await pilot.press("space")
        async with asyncio.timeout(60):
            while app.scene.edge.until_us != FRAMES[-1].mono_us:
                await pilot.pause(0.02)
        assert app.scene.edge.until_us == FRAMES[-1].mono_us


async def test_what_is_saved_of_a_redacted_capture_names_no_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = app_of(Source(FRAMES[:30], origin=BEGUN), redaction=Redaction())
    async with app.run_test(size=(80, 24)) as pilot:
        await arrived(pilot, 30)
        await pilot.press("w")
        await shown(pilot, "saved 30 windows")
    (saved,) = tmp_path.iterdir()
    assert saved.name.startswith("host-")
    assert open_recording(saved).origin.host == "redacted"


async def test_nothing_is_saved_of_a_redacted_fleet_whose_devices_are_named_by_hosts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = app_of(Source(FRAMES[:30], origin=replace(BEGUN, backend=FLEET)), redaction=Redaction())
    async with app.run_test(size=(160, 24)) as pilot:
        await arrived(pilot, 30)
        await pilot.press("w")
        await shown(pilot, "not saved: devices are named by hosts")
    assert list(tmp_path.iterdir()) == []


async def test_the_screen_is_saved_as_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = app_of(Source(FRAMES[:30], origin=BEGUN))
    async with app.run_test(size=(100, 30)) as pilot:
        await arrived(pilot, 30)
        for name in ("first", "second"):
            await pilot.press("2" if name == "first" else "1", "P")
            await shown(pilot, f"in {tmp_path}"[:40])
            app._clear_message()
    first, second = sorted(tmp_path.iterdir(), key=lambda path: len(path.name))
    assert re.fullmatch(r"db-07-\d{8}T\d{6}Z\.svg", first.name)
    assert second.name == first.name.replace(".svg", "-2.svg")
    assert first.stat().st_mode & 0o777 == 0o600
    picture = ET.fromstring(first.read_text())
    assert picture.get("viewBox") == f"0 0 {102 * 8.4:.1f} {31 * 18}"
    words = " ".join("".join(one.itertext()) for one in picture.iter("{http://www.w3.org/2000/svg}text"))
    assert "db-07" in words
    assert "latmon 0.1.0" in words


async def test_a_recording_begins_in_the_directory_that_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Commands()
    app = app_of(Source(FRAMES[:5]), session=session)
    async with app.run_test(size=(200, 30)) as pilot:
        await pilot.press("R")
        assert session.of("toggle_recording")
        async with asyncio.timeout(60):
            while not app.scene._reported.directory:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.02)
        assert app.scene._reported.directory == str(tmp_path)


async def test_a_picture_follows_no_link_and_a_redacted_capture_has_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(time_travel.target, "unused", lambda path, _suffix: path)
    wanted = time_travel.target.recording_name("db-07", FRAMES[29].wall, ".svg")
    (tmp_path / wanted).symlink_to(elsewhere)
    app = app_of(Source(FRAMES[:30], origin=BEGUN))
    async with app.run_test(size=(80, 24)) as pilot:
        await arrived(pilot, 30)
        await pilot.press("P")
        await shown(pilot, "never overwritten")
    app = app_of(Source(FRAMES[:30], origin=BEGUN), redaction=Redaction())
    async with app.run_test(size=(80, 24)) as pilot:
        await arrived(pilot, 30)
        await pilot.press("P")
        await shown(pilot, "not saved: a picture shows names")
    assert not elsewhere.exists()
    assert [path.name for path in tmp_path.iterdir()] == [wanted]


async def test_the_screen_goes_on_while_a_window_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    going_on = threading.Event()
    monkeypatch.setattr(time_travel, "save", lambda *_, **__: going_on.wait(600) and 7)
    app = app_of(Source(FRAMES[:30], origin=BEGUN))
    async with app.run_test(size=(80, 24)) as pilot:
        await arrived(pilot, 30)
        await pilot.press("w")
        assert "saving …" in screen(app)
        await pilot.press("left_square_bracket")
        assert app.scene.at.mono_us == FRAMES[28].mono_us
        going_on.set()
        await shown(pilot, "saved 7 windows")


@pytest.mark.slow
async def test_a_user_who_looks_back_holds_nothing_up(tmp_path):
    """A real collector; the user steps back, frames and the recording go on."""
    path = tmp_path / "live.latmon.jsonl.gz"
    started = Session(Request("demo", Options(interval_us=100_000), record=path, commands=SCREEN_COMMANDS))
    scene = Scene(Selection(), archive=Archive())
    try:
        async with asyncio.timeout(60), started.feed as feed:
            scene.opened(feed.origin)
            seen = 0
            async for frame in feed.frames():
                scene.append(frame, feed.line)
                seen += 1
                if seen == 8:
                    scene.travel(scene.archive.stamps[4])
                    held = drawn(scene, (80, 24))[1:]
                    started.mark("while stepped back")
                if seen >= 16 and scene.archive.moments:
                    break
            assert drawn(scene, (80, 24))[1:] == held
    finally:
        started.close()
    assert any(moment.text == "mark: while stepped back" for moment in scene.archive.moments)
    last = max(scene.archive.stamps.mono_us)
    assert list(scene.archive.frames(0, last))
    recorded = [frame for frame in open_recording(path) if isinstance(frame, Frame)]
    assert recorded[-1].mono_us >= last


@pytest.mark.parametrize("backend", [pytest.param("demo", marks=pytest.mark.slow), "procfs"])
async def test_a_live_capture_and_its_recording_report_the_same(tmp_path, backend):
    """All values of a report, to the digit and complete; frames of a replay too."""
    path = tmp_path / "live.latmon.jsonl.gz"
    started = Session(
        Request(backend, Options(interval_us=100_000), record=path, duration_us=4_000_000, commands=SCREEN_COMMANDS)
    )
    live, frames = Totals(100_000), []
    ended = ""
    try:
        async with asyncio.timeout(60), started.feed as feed:
            try:
                async for frame in feed.frames():
                    if live.first is None:
                        started.mark("at the start")
                    frames.append(frame)
                    for item in (*frame.marks, replace(frame, marks=())):
                        live.add(item)
            except LatmonError as error:
                ended = str(error)
            origin = feed.origin
    finally:
        started.close()
    assert "as asked" in ended
    recording = open_recording(path)
    source = SimpleNamespace(origin=origin, devices=(), damage=[], is_live=False, span=lambda: (0, 0))
    engine = RuleEngine(origin)
    for frame in frames:
        engine.take(frame)
    engine.finish()
    shown = ReportJson(report_of(source, live, findings_of(engine)))
    read = summarised(recording)
    assert read["intervals"] >= 5
    assert read["marks"]
    assert shown == read
    replayed = Totals(100_000)
    async with ReplayBackend([path], speed=0) as replay:
        async for frame in replay.frames():
            for item in (*frame.marks, replace(frame, marks=())):
                replayed.add(item)
    assert read.items() >= ReportJson(report_of(recording, replayed)).items()


WORST = 60
ONE_RULE = Settings(off=frozenset(rule.id for rule in RULES) - {"peer-outlier"})


@pytest.fixture(scope="module")
def with_a_burst(tmp_path_factory):
    """Two minutes and a half with a mark, one second with the slowest I/O and one second somewhat slow."""
    frames = some(150)
    for at, us in ((WORST, 40_000_000), (140, 9_000_000)):
        slow = {histogram: Histogram.record([us]) for histogram in frames[at].histograms}
        frames[at] = replace(frames[at], histograms=frames[at].histograms | slow)
    path = tmp_path_factory.mktemp("worst") / "a.latmon.jsonl.gz"
    writer = Writer.create(path, BEGUN)
    for frame in frames:
        writer.append(frame)
    writer.close()
    return path, frames


async def test_a_replay_opens_on_its_worst_minute_and_goes_from_event_to_event(with_a_burst):
    path, frames = with_a_burst
    app = app_of(ReplayBackend([path]), mode="REPLAY", to_worst=True, findings=ONE_RULE)
    async with app.run_test(size=(100, 30)) as pilot:
        await shown(pilot, "the slowest I/O, 40 s")
        at = app.scene.at.mono_us
        assert at == frames[WORST].mono_us + app.scene.selection.window_us // 3
        begin = app.scene.history.begin_us
        assert begin < frames[WORST].mono_us < at
        assert "┃" in screen(app)
        assert "max 40s" in screen(app)
        await pilot.press("x", "x")
        await shown(pilot, "( and ) go to every mark; 1 are known")
        await pilot.press("right_parenthesis")
        await shown(pilot, "mark: max_vec 4 (1 of 1)")
        assert app.scene.at.mono_us == MARKED.mono_us // 1_000_000 * 1_000_000 + 1_000_000
        await pilot.press("x", "right_parenthesis")
        await shown(pilot, "outliers of up to 9 s (2 of 2)")
        assert app.scene.at.mono_us == frames[140].mono_us
        await pilot.press("right_parenthesis")
        await shown(pilot, "no later burst is known")
        await pilot.press("left_parenthesis")
        await shown(pilot, "outliers of up to 40 s (1 of 2)")
        assert app.scene.at.mono_us == frames[WORST].mono_us
        await pilot.press("left_square_bracket")
        assert not app.scene.message, "it is about the time that was left"
        async with asyncio.timeout(60):
            while app.scene.findings_state._survey is not None:
                await pilot.pause(0.02)
        await pilot.press("x", "x")
        await shown(pilot, "every finding; ")


@pytest.fixture(scope="module")
def with_a_slow_peer(tmp_path_factory):
    """Minutes in which nvme1n1 is the odd one, and one I/O of nvme3n1 is the slowest."""
    frames = some(150)
    slow = {Series("nvme3n1", "write", "total"): Histogram.record([700, 40_000_000])}
    frames[WORST] = replace(frames[WORST], histograms=frames[WORST].histograms | slow)
    path = tmp_path_factory.mktemp("peer") / "a.latmon.jsonl.gz"
    writer = Writer.create(path, BEGUN)
    for frame in frames:
        writer.append(frame)
    writer.close()
    return path


async def test_a_replay_opens_with_the_device_of_the_slowest_io(with_a_slow_peer):
    app = app_of(ReplayBackend([with_a_slow_peer]), mode="REPLAY", to_worst=True, findings=ONE_RULE)
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, "the slowest I/O, 40 s on nvme3n1 at")
        assert app.scene.selection.selected == "nvme3n1"
        assert not app.scene.selection.is_selected, "the user has not"
        assert re.search(r"^.▸nvme3n1 ", screen(app), re.MULTILINE)
        assert re.search(r"├─ nvme3n1 ", screen(app)), "its map"


async def test_a_replay_keeps_the_device_that_a_key_selected_and_names_one_that_is_hidden(with_a_slow_peer):
    chosen = Selection(selected="nvme0n1")
    app = app_of(ReplayBackend([with_a_slow_peer]), mode="REPLAY", to_worst=True, selection=chosen)
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, "the slowest I/O, 40 s on nvme3n1 at")
        assert app.scene.selection.selected == "nvme0n1"
    only = Selection(globs=("nvme0n1", "nvme1n1"))
    app = app_of(ReplayBackend([with_a_slow_peer]), mode="REPLAY", to_worst=True, selection=only)
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, "the slowest I/O, 40 s on nvme3n1, which the filter hides, at")


async def test_a_click_on_the_strip_goes_there(with_a_burst):
    path, frames = with_a_burst
    app = app_of(ReplayBackend([path]), mode="REPLAY", to_worst=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await shown(pilot, "the slowest I/O")
        await shown(pilot, "┃")
        lines = screen(app).splitlines()
        y = next(at for at, line in enumerate(lines) if "┃" in line)
        end = lines[y].rindex("│")
        await pilot.click(Canvas, offset=(end - 1, y))
        await pilot.pause(0.05)
        length = frames[-1].mono_us - frames[0].mono_us
        assert app.scene.goal.mono_us >= frames[-1].mono_us - 2 * length // (end - 6)


class Slowly(ReplayBackend):
    """A replay whose scan stops at a half until it is released."""

    def __init__(self, paths):
        super().__init__(paths)
        self.half, self.released = asyncio.Event(), asyncio.Event()

    async def _scan(self, recorded):
        for _ in recorded.scan():
            if recorded.scanned >= 0.5 and not self.half.is_set():
                self.half.set()
                await self.released.wait()


@pytest.mark.slow
async def test_a_key_that_moves_in_time_overrules_the_worst_minute_and_ends_no_survey(with_a_burst):
    source = Slowly([with_a_burst[0]])
    app = app_of(source, mode="REPLAY", to_worst=True, findings=Settings())
    async with app.run_test(size=(80, 24)) as pilot, asyncio.timeout(60):
        await source.half.wait()
        await shown(pilot, "looking for the slowest I/O: 50% of the recording is read")
        await pilot.press("x")
        await shown(pilot, "every finding; 0 are known; 5")
        assert app.scene.seeks_worst, "this key doesn't move in time"
        await pilot.press("x", "x", "x", "g")
        assert "looking for" not in screen(app)
        source.released.set()
        while app._scanning is not None:
            await pilot.pause(0.02)
        assert app.scene.goal.mono_us == FRAMES[0].mono_us
        await pilot.press("x")
        await shown(pilot, "rules are evaluated over")
        await pilot.press(*["right_square_bracket"] * 3)
        while app.scene.findings_state.surveyed:
            await pilot.pause(0.02)
        assert app.scene.findings_state.begins
        await pilot.press("x", "x", "x", "x")
        await shown(pilot, "( and ) go to every finding;")
        assert "rules are evaluated" not in screen(app)


def test_a_recording_that_is_too_long_for_a_survey_says_so(monkeypatch):
    monkeypatch.setattr("latmon.views.findings_state._MAX_SURVEY", 100)
    output, scene = [], session(FRAMES, findings=Settings())
    travel = time_travel.Travel(scene, Source([]), output.append, str, aside=str)
    travel.survey()
    travel.kind(0)
    assert output[-1].endswith("rules are not evaluated over all of a recording of more than 100 windows")
    travel.kind(0)
    assert output[-1] == "( and ) go to every mark; 1 are known"


def test_the_events_of_a_long_recording_are_found_without_reading_all_of_them():
    """The key compares a few events with the time that is shown, not all of them."""
    scene, asked = session(FRAMES), []
    output = []
    travel = time_travel.Travel(scene, Source([]), output.append, str, aside=str)
    stamps = scene.archive.stamps
    stamps.slowest_us[:] = [9000 if at % 10 == 5 else 100 for at in range(len(stamps))]
    nearest = stamps.nearest
    stamps.nearest = lambda us: asked.append(us) or nearest(us)
    travel.event(-1)
    assert len(asked) < 10
    scene.travel(stamps[15])
    travel.event(-1)
    assert scene.at.mono_us == FRAMES[5].mono_us
    travel.event(1)
    assert scene.at.mono_us == FRAMES[15].mono_us
    assert output[-1] == f"{clock(FRAMES[15].wall)} outliers of up to 9 ms (2 of 15)"


def test_the_place_of_the_findings_reports_how_far_they_are_evaluated(recording):
    """From the first picture of an earlier time on, in steps; then the findings are there, or none."""
    file = Recorded(open_several([recording]))
    for _ in file.scan():
        pass
    scene = Scene(Selection(), archive=file, mode="REPLAY", findings=Settings())
    scene.opened(BEGUN, file)
    scene.findings_state.at_once = False
    scene.travel(file.stamps[100])
    seen = []
    while scene.findings_state.current.coming:
        lines = drawn(scene, (80, 24))
        seen.append(next(line for line in lines if "findings: evaluating" in line).split()[-1])
        while not scene.findings_state.proceed():
            pass
    assert seen[0] == "0%"
    assert len(seen) > 5
    assert seen == sorted(seen, key=lambda text: int(text[:-1]))
    scene.findings_state.finish()
    assert "evaluating" not in "\n".join(drawn(scene, (80, 24)))


def test_the_strip_of_a_live_session_needs_room_and_history():
    made = session(FRAMES)
    assert "┃" not in "\n".join(drawn(made, (80, 18)))
    lines = drawn(made, (160, 50))
    strips = [line for line in lines if "┃" in line]
    assert len(strips) == 1
    assert strips[0].lstrip("│").split()[0] == "2min"
    assert "M" in strips[0]
    assert "┃" not in "\n".join(drawn(session(FRAMES[:60]), (160, 50)))


@pytest.mark.parametrize("cells", [61, 141])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_window_is_at_its_share_of_an_hours_strip(cells, share):
    """A mark has its letter beside a finding in the same cell; the end of the window hides both."""
    archive, hour = Archive(), 3600
    archive._stamps = Stamps([at * 1_000_000 for at in range(hour + 1)], [0.0] * (hour + 1), [100] * (hour + 1))
    end_us = round(share * hour) * 1_000_000
    events = [TimelineEvent(kind, 1_800_000_000, 0.0, "") for kind in ("finding", "mark")]
    line = strip(archive, events, (end_us - 600_000_000, end_us), (cells + 20, cells))
    drawn = plain(line)[LABEL : LABEL + cells]
    assert plain(line)[:LABEL].strip() == "60min"
    assert drawn.index("┃") == min(int(share * cells), cells - 1)
    assert drawn.index("M") == cells // 2
    assert "!" not in drawn
    shown = sum(len(span.text) for span in line if span.role == "text")
    assert abs(shown - min(share, 1 / 6) * cells) <= 2
