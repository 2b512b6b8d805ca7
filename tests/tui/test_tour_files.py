"""Guided tours: what is bundled can be read, and fits the smallest screen."""

import asyncio
from functools import lru_cache
from itertools import islice, product

import pytest

from latmon.findings.facts import WINDOW_US
from latmon.findings.rule import DEFAULT
from latmon.support.errors import UsageError
from latmon.tui.commands import STEPS
from latmon.tui.keys import ACTIONS
from latmon.tui.tour import EVERY, HISTORY, MAX_TEXT, Guide, load_tour, tours
from latmon.views.context import selected
from latmon.views.lines import plain
from latmon.views.panels.interrupts import tables
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection
from latmon.views.spotlight import FAINT, lit
from latmon_backends.demo.backend import INCIDENTS, DemoBackend


@lru_cache(2)
def demo_frames(name, count):
    async def taken():
        return [frame async for frame in DemoBackend(name, speed=0, limit=count).frames()]

    return asyncio.run(taken())


def demo_scene(name):
    """Return a scene whose findings are evaluated once, before it is drawn: of each window is most of the time."""
    scene = Scene(Selection(), mode="DEMO", findings=DEFAULT)
    scene.findings_state.at_once, scene.findings_state.late_us = False, WINDOW_US
    scene.opened(DemoBackend(name).origin)
    return scene


def place(scene, selection):
    """Return what a key changes that a tour shows: screen, device and table."""
    kept, scene.selection = scene.selection, selection
    chosen = selected(scene.view.subjects())
    parts = tables(scene.view).parts if selection.screen == "interrupts" else ()
    scene.selection = kept
    has_device = selection.context in ("overview", "stage", "outstanding", "order")
    part = parts[selection.part % len(parts)] if parts else ""
    return selection.context, chosen.device.name if has_device and chosen else "", part


def pressed(scene, before, keys):
    """Return the place after keys."""
    kept = scene.selection
    scene.selection = before
    for key in keys.split():
        context = scene.selection.context
        works = (a for a in ACTIONS if key in a.shown.split() and (not a.on or context in a.on) and a.name in STEPS)
        action = next(works)
        scene.choose(STEPS[action.name](scene.view, action.by))
    reached = place(scene, scene.selection)
    scene.choose(kept)
    return reached


SIZES = ((80, 24), (120, 36))
SCREENS = {"overview", "stages", "outstanding", "order", "outliers", "interrupts", "findings"}


@pytest.mark.parametrize("name", tours())
def test_five_steps_that_fit(name):
    tour = load_tour(name)
    assert len(tour.stops) == 5
    assert 0 < len(tour.title) <= 60
    for stop in tour.stops:
        assert stop.where.screen in SCREENS
        assert 0 < len(stop.text) <= MAX_TEXT
        assert "\n" not in stop.text
    assert "findings" in {stop.where.screen for stop in tour.stops}


@pytest.mark.parametrize("name", tours())
def test_each_device_is_in_its_scenario(name):
    (first,) = demo_frames(name, 1)
    assert {stop.where.device for stop in load_tour(name).stops} <= {"", *(device.name for device in first.devices)}


def test_it_ends_with_what_to_try_next():
    assert "latmon demo emulex-healthy" in load_tour("emulex").then
    assert "latmon demo emulex --tour" in load_tour("host").then
    assert set(tours()) == {"host", *(name for name in INCIDENTS if INCIDENTS[name].healthy)}


def test_the_six():
    assert tours() == ("bubbles", "e810", "emulex", "host", "qumulo", "serialised")


def test_none_for_another_demo():
    with pytest.raises(UsageError, match=r"no tour of the demo 'e810-healthy'; the tours are bubbles, e810"):
        load_tour("e810-healthy")


@pytest.mark.parametrize("name", tours())
def test_each_name_of_a_part_is_on_the_screen_of_its_stop(name):
    """Also at the smallest size, where the text needs lines: it hides nothing of what it points at."""
    tour, scene = load_tour(name), demo_scene(name)
    for frame in demo_frames(name, HISTORY):
        scene.append(frame)
    scene.findings_state.finish()
    guide = Guide(tour, scene, scene.choose)
    scene.draw(*SIZES[0])
    before = scene.selection
    guide.show()
    for stop, size in product(tour.stops, SIZES):
        if size == SIZES[0] and stop is not tour.stops[0]:
            before = scene.selection
            guide.go(1)
        if size == SIZES[0] and stop.where.low_us is None:
            assert pressed(scene, before, stop.keys) == place(scene, scene.selection), stop.keys
        banner, scene.banner = scene.banner, scene.banner._replace(points=())
        panels = scene.draw(*size)
        for point in stop.points:
            verdict_rows, body_rows = lit([point], panels.verdict, panels.body)
            assert verdict_rows or body_rows, (stop.where, point)
        scene.banner = banner
        assert {span.role for span in panels.title} != {FAINT}
        assert {span.role for span in scene.draw(*size).title} == {FAINT}, (stop.where, size)


HOST_SEEN = (
    ("sde: 2 I/Os stuck", "3 shows", "▸sde"),
    ("─ sdd", "p99", "1s┤"),
    ("sdd stages", "c completion", "h hba"),
    ("in flight", "ora_lgwr/5102", "the driver"),
    ("findings  4 now", "starved-io"),
)


def test_the_stops_of_the_host_show_what_their_texts_say():
    tour, scene = load_tour("host"), demo_scene("host")
    frames = iter(demo_frames("host", HISTORY + len(tour.stops) * EVERY))
    for frame in islice(frames, HISTORY + 1):
        scene.append(frame)
    assert "no data" not in "".join(map(plain, scene.draw(80, 24).body)), "its history is there at once"
    guide = Guide(tour, scene, scene.choose)
    guide.show()
    for number, words in enumerate(HOST_SEEN, 1):
        scene.findings_state.finish()
        scene.draw(80, 24)
        shown = "\n".join(plain(line) for line in screen_lines(scene, (), 80, 24))
        assert f" {number}/5 " in shown
        for word in words:
            assert word in shown, shown
        for frame in islice(frames, EVERY):
            scene.append(frame)
            guide.arrived(busy=False)
