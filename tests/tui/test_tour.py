"""A guided tour: its stops go by windows of the stream, keys go to and fro, and the smallest screen has room for it."""

import re

import pytest
from frames import Source, host, on_demand_host
from panels import scene
from test_app import make, screen, settled

from latmon.cli.options import DEFAULT_DEMO
from latmon.findings.rule import Where
from latmon.tui.keys import ACTIONS, tour_keys
from latmon.tui.tour import EVERY, HISTORY, WINDOW_S, Guide, Stop, Tour, Touring, load_tour, tours, without_keys
from latmon.views.lines import plain, width
from latmon.views.panels.interrupts import tables
from latmon.views.status import TourBanner, banner_lines
from latmon_backends.demo.backend import BACKFILL

TOUR_LINES = 4
"""Lines of a tour's text at 80 columns, at most: the rest of the screen is the view that the text explains."""
STOPS = (
    Stop(Where("overview", "nvme1n1"), "all devices, one of them selected"),
    Stop(Where("overview", "nvme1n1", "", 2048, 8192), "and latencies marked"),
    Stop(Where("stages", "nvme1n1"), "where its time goes"),
    Stop(Where("order", "nvme1n1"), "in which order"),
    Stop(Where("findings"), "in words"),
)
TOUR = Tour("a disk of three", STOPS, "try this next")


def test_stops_come_by_windows_and_not_again():
    touring = Touring(TOUR, without_keys)
    shown = [seq for seq in range(200) if touring.arrived(seq)]
    assert shown == [HISTORY + EVERY * n for n in range(1, 6)]
    assert touring.stop is None
    assert touring.banner.place == "end"
    assert touring.banner.text == "try this next"
    assert BACKFILL == HISTORY


def test_a_stop_that_was_chosen_is_shown_as_long_as_another():
    touring = Touring(TOUR, without_keys)
    later = HISTORY + 40
    touring.go(1, later)
    assert touring.banner.place == "2/5"
    assert not any(map(touring.arrived, range(later + EVERY)))
    assert touring.arrived(later + EVERY)
    touring.go(-9, later + 20)
    assert touring.stop is STOPS[0]
    touring.go(9, later + 20)
    assert touring.stop is None
    touring.go(-1, later + 20)
    assert touring.stop is STOPS[-1]


def test_who_looks_around_is_waited_for():
    touring = Touring(TOUR, without_keys)
    later = HISTORY + 40
    touring.stay(later)
    assert not touring.arrived(later + EVERY - 1)
    assert touring.arrived(later + EVERY)


def test_windows_that_are_dropped_cost_no_stop():
    touring = Touring(TOUR, without_keys)
    assert touring.arrived(HISTORY + EVERY + 5)
    assert touring.arrived(HISTORY + 2 * EVERY)


def test_its_text_says_when_the_next_stop_comes_by_itself():
    touring = Touring(TOUR, tour_keys)

    def keys():
        return plain(touring.banner.keys).partition("  ")[0]

    assert keys() == f". next in {EVERY} s"
    assert not touring.arrived(HISTORY + 5)
    assert keys() == f". next in {EVERY - 5} s"
    touring.stay(HISTORY + 7)
    assert keys() == f". next in {EVERY} s"
    assert touring.arrived(HISTORY + 7 + EVERY)
    assert keys() == f". next in {EVERY} s"
    touring.go(9, HISTORY + 40)
    assert keys() == ", back", "nothing comes after the end"


@pytest.mark.parametrize("name", tours())
def test_every_stop_says_at_80_columns_when_the_next_one_comes(name):
    banner = Touring(load_tour(name), tour_keys).banner
    assert re.search(r"\. next in 15 s( |$)", plain(banner_lines(banner, 80)[0]))


@pytest.mark.parametrize("name", tours())
def test_every_stop_fits_80_columns(name):
    tour = load_tour(name)
    for banner in (
        Touring(tour, tour_keys).banner,
        *(TourBanner("1/5", tour.title, s.text, tour_keys(15)) for s in tour.stops),
    ):
        lines = banner_lines(banner, 80)
        assert len(lines) <= 1 + TOUR_LINES
        assert all(width(line) <= 80 for line in lines)
        assert tour.title in plain(lines[0])
    assert len(banner_lines(TourBanner("end", tour.title, tour.then, tour_keys(None)), 80)) <= 1 + TOUR_LINES


def test_its_keys_are_the_tables():
    assert plain(tour_keys(None)) == ", back  Esc end"
    assert plain(tour_keys(12)) == ". next in 12 s  , back  Esc end"
    assert f"it comes by itself after {EVERY * WINDOW_S} s" in next(a.does for a in ACTIONS if a.name == "tour")
    mine = {key for action in ACTIONS if action.name == "tour" for key in action.keys.split(",")}
    assert {"full_stop", "greater_than_sign", "comma", "less_than_sign", "escape"} == mine
    others = {key for action in ACTIONS if action.name != "tour" for key in action.keys.split(",")}
    assert mine & others == {"escape"}


@pytest.mark.usefixtures("brisk")
async def test_a_tour_is_walked_with_keys_and_other_keys_work():
    app = make(Source(host(3, HISTORY, ios=4)), mode="DEMO", tour=TOUR)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "1/5  a disk of three" in screen(app)
        assert "▸nvme1n1" in screen(app)
        await pilot.press("full_stop")
        assert "2/5" in screen(app)
        assert "is no key of this screen" not in screen(app)
        assert app.scene.selection.band == (2048, 8192)
        await pilot.press("greater_than_sign")
        assert "nvme1n1 stages" in screen(app)
        await pilot.press("full_stop")
        assert app.scene.selection.context == "order"
        await pilot.press("1", "home")
        assert "▸nvme0n1" in screen(app)
        assert "4/5" in screen(app)
        await pilot.press("comma", "less_than_sign", "comma")
        assert "1/5" in screen(app)
        assert app.scene.selection.band is None
        await pilot.press(*["full_stop"] * 5)
        assert "try this next" in screen(app)
        assert app.scene.selection.screen == "findings"
        await pilot.press("escape")
        assert "try this next" not in screen(app)
        assert app.scene.selection.screen == "findings"
        await pilot.press("escape", "full_stop")
        assert app.scene.selection.screen == "overview"


@pytest.mark.usefixtures("brisk")
async def test_its_map_does_not_grow_at_the_start():
    app = make(Source(host(3, HISTORY - 1, ios=4)), mode="DEMO", tour=TOUR)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "making the demo's history: 89 of 90 s" in screen(app)
        assert "1/5  a disk of three" in screen(app)
        assert "nvme1n1" not in screen(app)


@pytest.mark.usefixtures("brisk")
async def test_it_goes_on_by_itself():
    app = make(Source(host(3, HISTORY + 2 * EVERY + 1, ios=4)), mode="DEMO", tour=TOUR)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "3/5" in screen(app)


@pytest.mark.usefixtures("brisk")
async def test_without_a_tour_its_keys_are_unbound():
    app = make(Source(host(3, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        before = app.scene.selection
        await pilot.press("full_stop", "comma")
        assert app.scene.selection == before
        assert ", is no key of this screen" in screen(app)


def test_a_stop_selects_the_table_that_it_names():
    given_scene = scene(on_demand_host(8, 5))
    guide = Guide(
        Tour("a title", (Stop(Where("interrupts"), "the wake-ups", "wake-ups"),)), given_scene, given_scene.choose
    )
    guide.show()
    assert tables(given_scene.view).parts[given_scene.selection.part] == "wake-ups"


def test_the_first_stop_of_emulex_marks_the_slow_cells():
    stop = load_tour("emulex").stops[0]
    assert (stop.where.device, stop.where.low_us) == ("sd0", 500_000)


def test_the_key_of_the_next_stop_is_no_full_stop_of_the_title():
    keys = tour_keys(9)
    for title in ("a log writer waits for a thread that does not run", "x" * 50, "x" * 60):
        for cells in (78, 80, 118):
            line = plain(banner_lines(TourBanner("2/5", title, "text", keys), cells)[0])
            assert len(line) == cells
            assert f"{title}." not in line
            assert "  . next in 9 s" in line


def test_the_demo_without_a_name_has_a_tour():
    assert DEFAULT_DEMO in tours()
