"""The table of actions as help and command palette show it, saved views, and the filter's words."""

from dataclasses import replace

import pytest
from frames import Source, disks, host
from test_app import CONTEXTS, make, painted, screen, settled

from latmon.model.frame import Device
from latmon.tui.canvas import HelpScreen, PaletteScreen
from latmon.tui.keys import ACTIONS, brief_keys, commands, matching
from latmon.views.device_table import TITLES, fitting, group_names
from latmon.views.selection import Selection, ViewSettings, matches

_ROOM = 28
"""Cells of a title in the help of 80 columns."""


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_help_of_a_screen_fits_on_its_first_page(context):
    here, everywhere = brief_keys(context)
    assert max(len(here), len(everywhere)) + 1 <= 23
    assert all(len(title) <= _ROOM + 1 and len(keys) <= 9 for keys, title in (*here, *everywhere))
    own = {a.title for a in ACTIONS if context in a.on and a.does}
    assert own, context
    assert all(any(title.startswith(one.split(",")[0]) for one in own) for _, title in here[: len(here) - 11])


def test_a_wide_help_has_the_whole_sentence_of_a_key_where_it_fits():
    for cells in (28, 47, 98):
        rows = dict(brief_keys("overview", cells)[1])
        sentence = next(a.does for a in ACTIONS if a.name == "picture")
        assert rows["P"] == (sentence if len(sentence) <= cells else "picture")
    assert max(len(text) for rows in brief_keys("overview", 47) for _, text in rows) <= 47


async def test_the_help_begins_with_the_keys_of_its_screen_and_is_searched():
    app = make(Source(host(2, 3)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("4", "question_mark")
        first = screen(app)
        assert "This screen" in first
        assert "Everywhere" in first
        assert "open the selected outlier" in first
        assert "type to search" in first
        await pilot.press(*"queue")
        found = screen(app)
        assert "search: queue█" in found
        assert "open the selected outlier" not in found
        assert "I/Os above it" in found
        await pilot.press("escape")
        assert screen(app) == first
        await pilot.press(*"zzz")
        assert "no key and no number has these words: zzz" in screen(app)
        await pilot.press("escape", "escape")
        assert not isinstance(app.screen, HelpScreen)
        assert app.scene.selection.screen == "outliers"


def test_the_palette_has_every_action():
    for context in CONTEXTS:
        calls = {command.calls[-1] for command in commands(context) if not command.calls[-1].startswith("setting(")}
        assert calls == {a.call for a in ACTIONS if a.does and a.on != ("tour",)}, context
    assert {a.call for a in ACTIONS if a.does} < {command.calls[-1] for command in commands("overview", touring=True)}


def test_the_palette_finds_words_in_any_order_and_what_begins_with_them_first():
    all_commands = commands("overview", ("slow writes",))
    assert matching(all_commands, "limits devices")[0].keys == "3 a"
    assert [command.text.split(":")[0] for command in matching(all_commands, "set")[:1]] == ["set a mark"]
    assert "mark" in matching(all_commands, "mark")[0].text
    assert matching(all_commands, "IRQS")[0].keys == "5"
    assert [command.calls for command in matching(all_commands, "slow writes")] == [("view('slow writes')",)]
    assert matching(all_commands, "no such thing") == []


@pytest.mark.slow
@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
async def test_the_palette_runs_what_is_chosen_from_any_screen(key):
    app = make(Source(host(3, 5)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("4", key)
        assert isinstance(app.screen, PaletteScreen)
        assert "▸Enter" in screen(app)
        await pilot.press(*"limits of all", "enter")
        await painted(pilot)
        assert app.screen is app._main
        assert app.scene.selection.context == "audit"
        await pilot.press(key, *"longer", "enter")
        await painted(pilot)
        assert "last 2 min" in screen(app)
        await pilot.press(key, *"window of 5", "enter")
        await pilot.press(key, *"sort by max", "enter")
        await pilot.press(key, *"write only", "enter")
        await painted(pilot)
        assert "last 5 min" in screen(app)
        selection = app.scene.selection
        assert (selection.context, selection.sort, selection.op) == ("audit", "max", "write")
        await pilot.press(key, "down", "down", "up", "escape")
        assert app.screen is app._main
        await pilot.press(key, *"zzz", "enter")
        assert "no command has these words" in screen(app)
        await pilot.press("escape", "escape")
        assert app.screen is app._main
        assert app.is_running


async def test_saved_views_go_round_and_begin_from_the_start():
    views = {
        "disks": ViewSettings(filter="!nvme0n1", sort="name", columns=("IOPS", "max")),
        "slow": ViewSettings(screen="outliers", window=120_000_000),
    }
    app = make(Source(host(3, 5)), views=views, selection=Selection(sort="max"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("V")
        assert "view disks" in screen(app)
        assert "nvme0n1" not in screen(app).replace("!nvme0n1", "")
        assert "filter / !nvme0n1" in screen(app).splitlines()[2]
        assert screen(app).splitlines()[3].split()[:3] == ["device", "IOPS", "max"]
        await pilot.press("V")
        assert (app.scene.selection.screen, app.scene.selection.sort) == ("outliers", "max")
        assert app.scene.selection.pattern == ""
        assert "last 2 min" in screen(app)
        await pilot.press("colon", *"view disks", "enter")
        await painted(pilot)
        assert app.scene.selection.sort == "name"


async def test_a_key_without_an_action_has_a_message():
    app = make(Source(host(1, 2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("z")
        assert "z is no key of this screen; ? lists its keys" in screen(app)
        await pilot.press("comma")
        assert ", is no key of this screen" in screen(app)
        await pilot.press("slash", "f")
        assert app.scene.selection.pattern == "f"


async def test_without_saved_views_the_key_says_where_they_are_described():
    app = make(Source(host(1, 2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("V")
        assert "docs/CONFIG.md" in screen(app)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["nvme0n1", "nvme1n1", "nvme2n1"]),
        ("nvme1", ["nvme1n1"]),
        ("!nvme1", ["nvme0n1", "nvme2n1"]),
        ("-nvme1 -nvme2", ["nvme0n1"]),
        ("nvme !*[02]n1", ["nvme1n1"]),
        ("NVME nvme2", ["nvme2n1"]),
        ("!", ["nvme0n1", "nvme1n1", "nvme2n1"]),
        ("-", ["nvme0n1", "nvme1n1", "nvme2n1"]),
        ("sda", []),
    ],
)
def test_a_filter_takes_several_words_and_leaves_devices_out(pattern, names):
    assert [disk.name for disk in disks(3) if matches(disk, pattern)] == names


def test_chosen_columns_are_shown_in_their_order_after_the_device():
    placed, _ = fitting(80, distribution=True, titles=("max", "IOPS", "mean"))
    assert [field.title for field, _ in placed] == ["device", "max", "IOPS", "mean"]
    assert TITLES[0] == "device"


async def test_reads_and_writes_are_apart_at_one_key():
    frames = host(2, 30)
    app = make(Source(frames))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        together = screen(app)
        await pilot.press("r")
        await painted(pilot)
        shown = screen(app).splitlines()
        rows = [line.split()[0] for line in shown[3:7]]
        assert rows == ["▸nvme0n1", "read", "write", "nvme1n1"]
        assert any(line.startswith("─ nvme0n1 read") for line in shown)
        assert any(line.startswith("─ nvme0n1 write") for line in shown)
        assert sum("└─" in line for line in shown) == 2
        await pilot.press("v")
        assert app.scene.selection.cursor is not None
        assert not app.scene.selection.splits
        await pilot.press("escape", "escape")
        await painted(pilot)
        assert app.scene.selection.splits
        await pilot.press("r")
        await painted(pilot)
        assert screen(app) == together


async def test_groups_have_a_row_each_which_opens_and_closes():
    frames = host(3, 30)
    named = tuple(replace(device, controller=f"host{at // 2} hpsa") for at, device in enumerate(frames[0].devices))
    app = make(Source([replace(frames[0], devices=named), *frames[1:]]))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        before = screen(app)
        await pilot.press("b")
        await painted(pilot)
        shown = screen(app).splitlines()
        assert shown[2].startswith("─ controllers 2, with 3 devices")
        assert [(line.split()[0], line.split()[2]) for line in shown[4:6]] == [("▸host0", "2"), ("host1", "1")]
        await pilot.press("down", "enter")
        await painted(pilot)
        assert screen(app).splitlines()[2].startswith("─ devices 1  of host1 hpsa")
        assert [subject.device.name for subject in app.scene.view.subjects()] == ["nvme2n1"]
        await pilot.press("slash", *"nvme0", "enter")
        await painted(pilot)
        assert "no device of host1 hpsa is there and passes the filter; Esc shows all groups" in screen(app)
        await pilot.press("escape", "escape")
        await painted(pilot)
        assert "controllers 2" in screen(app)
        await pilot.press("b", "b")
        await painted(pilot)
        assert "─ volumes 1" in screen(app)
        assert "no volume" in screen(app)
        await pilot.press("escape", "home")
        await painted(pilot)
        assert screen(app) == before


def test_a_group_of_a_volume_has_the_disks_below_it():
    volume = Device("dm-0", 253, 0, kind="dm", label="vg-root", members=("nvme0n1", "gone"))
    groups = group_names("volume", (*disks(2), volume))
    assert groups == {"nvme0n1": "dm-0 vg-root", "dm-0": "dm-0 vg-root", "nvme1n1": "no volume"}
