"""The layout of a screen: panels with frames, headings, the selected row, and strips on the columns of their map."""

import re
from dataclasses import replace
from functools import cache

import pytest
from frames import ORIGIN, host
from panels import scene

from latmon.findings.rule import Settings
from latmon.support.paths import data_dir
from latmon.support.theme import load_theme
from latmon.tui.canvas import face
from latmon.tui.commands import STEPS
from latmon.tui.keys import foot, key_line
from latmon.views.lines import (
    BLANK,
    Field,
    Span,
    dashed,
    fit,
    heading,
    highlighted,
    is_heading,
    plain,
    ruled,
    table,
    width,
)
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import SCREENS, Selection, ViewSettings

FRAMED = ((120, 36), (120, 40), (160, 50), (220, 60))
BARS = "▁▂▃▄▅▆▇█"


def drawn(made, size):
    return [plain(line) for line in screen_lines(made, (Span("keys"),), *size)]


@cache
def odd_one(seconds=70):
    return scene(host(9, seconds, odd="nvme5n1", ios=40), findings=Settings())


def shown(screen, size, **how):
    odd_one().choose(Selection(screen=screen, **how))
    return drawn(odd_one(), size)


@pytest.mark.parametrize("size", FRAMED)
@pytest.mark.parametrize("screen", [*SCREENS, "maps", "zoom", "stage", "details"])
def test_every_screen_has_one_frame_with_titles_in_its_lines(screen, size):
    how = {"maps": {"panel": "maps"}, "zoom": {"panel": "zoom"}, "stage": {"opened": True}}.get(screen, {})
    how |= {"details": True} if screen == "details" else {}
    lines = shown({"stage": "stages"}.get(screen, screen if screen in SCREENS else "overview"), size, **how)
    assert len(lines) == size[1]
    assert {len(line) for line in lines[:-1]} == {size[0]}
    top, *inside, bottom = lines[1 + len(odd_one().draw(*size).verdict) : -1]
    assert re.fullmatch(r"╭─ \w.* ─*╮", top)
    assert all(re.fullmatch(r"│.*│|├─ \w.*─┤", line) for line in inside)
    assert re.fullmatch(r"╰─.*─ not recording ─╯", bottom)


@pytest.mark.parametrize("size", [(80, 24), (119, 40), (120, 35), (100, 30)])
def test_smaller_screens_have_no_frame(size):
    lines = shown("overview", size)
    assert not any(line[0] in "╭├╰" for line in lines)
    assert sum(line.startswith("─ ") for line in lines) >= 1, "the title of the map"
    assert lines[-2].endswith(" not recording ")


def test_the_findings_are_below_the_title_with_the_key_and_nowhere_else():
    lines = shown("overview", (120, 40))
    assert re.fullmatch(r"(!!| !) nvme5n1: .* \d (shows|why) *", lines[1])
    assert not any("finding" in line for line in lines[2:-1])


def test_the_target_of_120_by_40_is_met():
    lines = shown("overview", (120, 40))
    titles = [y for y, line in enumerate(lines) if line[1] == "─"]
    assert titles[0] == 1 + len(odd_one().draw(120, 40).verdict)
    assert titles[1] - titles[0] in (8, 9), "six or seven devices"
    assert [line[1:7].strip() for line in lines if line[1:7].strip() in ("IOPS", "depth")] == ["IOPS", "depth"]


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40), (160, 50), (220, 60)])
@pytest.mark.parametrize("seconds", [20, 45, 70])
def test_strips_are_on_the_columns_of_their_map(seconds, size):
    """Every column of the map with I/Os has a bar below it, and the others have none."""
    given_scene = odd_one(seconds)
    given_scene.choose(Selection())
    lines = drawn(given_scene, size)
    axis = next(y for y, line in enumerate(lines) if "└─" in line)
    left = lines[axis].index("└") + 1
    timeline, scale = given_scene.view.latency_map.drawn
    wide = lines[axis - 1].index("│", left) - left
    assert wide % timeline.slots == 0
    cells = wide // timeline.slots
    strips = [line for line in lines[axis + 1 :] if re.match(r"│? *(IOPS|depth) ", line)]
    assert len(strips) == (1 if size[1] < 36 else 2)
    rows = lines[axis - scale.rows : axis]
    filled = {x // cells for line in rows for x in range(wide) if line[left + x] in "█▀▄"}
    assert filled == set(range(timeline.slots - len(timeline.columns), timeline.slots))
    iops = next((line for line in strips if "IOPS" in line), None)
    for line in strips:
        assert line[left + wide] == "│"
        assert not line[left : left + min(filled) * cells].strip()
    if iops is not None:
        assert {x // cells for x in range(wide) if iops[left + x] in BARS} == filled


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_selected_row_and_the_header_are_on_a_background_of_their_own(size):
    odd_one().choose(Selection())
    lines = screen_lines(odd_one(), (Span("keys"),), *size)
    lit = [line for line in lines if any(role.endswith("/sel") for _, role, _ in line)]
    assert len(lit) == 2
    assert sum(len(text) for text, role, _ in lit[0] if role.endswith("/sel")) == size[0], "the header"
    framed = 2 * (size[0] >= 120)
    assert sum(len(text) for text, role, _ in lit[1] if role.endswith("/sel")) == size[0] - framed, "the row"
    assert "▸nvme5n1" in plain(lit[1])


@pytest.mark.parametrize("theme", ["dark", "light", "mono"])
@pytest.mark.parametrize("depth", ["truecolor", "256", "16", "8", "none"])
def test_every_text_of_a_selected_row_has_a_style(theme, depth):
    worn = face(load_theme(theme, (data_dir("themes"),)), depth)
    for role in [style for style in worn.styles if "/" not in style]:
        lit = worn.styles[f"{role}/sel"]
        assert lit.bgcolor is not None or lit.bold


def test_a_heading_drops_what_does_not_fit_and_never_touches_its_ends():
    left, long, short = (Span(f" sdd  {'22,593 I/Os ' * 8}".rstrip()),), (Span("I/Os 1 to 129 "),), (Span("129 "),)
    for cells in range(8, 180):
        line = heading(left, cells, long, short)
        assert width(line) == width(dashed(line)) == cells
        assert is_heading(line)
        assert re.fullmatch("─ .*(I/Os|…|129) *", plain(dashed(line)))
        framed = plain(ruled(line, "├┤"))
        assert cells < 118 or len(framed) == cells + 2
        assert cells < 118 or re.fullmatch("├─ sdd  [^─]* ─*(( I/Os 1 to)? 129 )?─┤", framed)
    assert plain(ruled(heading(BLANK, 118), "╰╯")) == f"╰{'─' * 118}╯"
    assert highlighted(highlighted(left)) == highlighted(left)


def test_help_and_the_way_back_are_on_the_last_line_wherever_there_is_one():
    given_scene = Scene(Selection())
    for steps, leads_back in ((), False), (("zoom",), True), (("zoom", "leave"), False), (("next_panel",), True):
        given_scene.choose(Selection())
        for step in steps:
            given_scene.choose(STEPS[step](given_scene.view, 0))
        assert plain(foot(given_scene.view, None, 80)).endswith(" Esc ?" if leads_back else " : ?")
        assert ("Esc back" in plain(foot(given_scene.view, None, 200))) == leads_back
    assert "Esc back" in plain(foot(Scene(Selection(pattern="sd")).view, None, 200))
    line = plain(foot(Scene(Selection()).view, None, 200))
    assert all(key in line for key in ("s sort", "o op", "Space pause")), "what a key changes, not its present value"


@pytest.mark.parametrize(
    ("how", "name"),
    [({}, "overview"), ({"panel": "maps"}, "maps"), ({"panel": "zoom"}, "zoom"), ({"details": True}, "capture")],
)
def test_the_title_names_what_is_shown(how, name):
    given_scene = scene(host(2, 5), Selection(**how))
    assert drawn(given_scene, (80, 24))[0].startswith(f" latmon {name}  ")
    assert drawn(given_scene, (39, 9))[1].startswith("40x10 needed, this is 39x9")


def test_what_lasts_is_on_the_health_line_where_that_has_room():
    given_scene = scene(
        host(2, 5), origin=replace(ORIGIN, backend="demo", reason="synthetic: nothing of this host is measured")
    )
    wide, usual, low = (drawn(given_scene, size) for size in ((160, 50), (80, 24), (46, 14)))
    assert re.search(r"─  synthetic: nothing of this host is measured ", wide[-2])
    assert re.search(r"^  synthetic: nothing of this host is measured +not recording", usual[-2])
    assert "synthetic" not in "".join(low[1:-1]) or "synthetic" in low[-2], "not instead of a row of the map"
    assert sum("synthetic" in line for line in usual) == 1
    long = scene(
        host(2, 5),
        origin=replace(ORIGIN, reason="tier C, because tier A needs bpftrace 0.19 or newer, and this is 0.17.0"),
    )
    assert [line.strip() for line in drawn(long, (80, 24))][-3] == long.store.origin.reason


SCREEN_NAMES = " 1 overview 2 stages 3 in flight 4 slow I/Os 5 interrupts 6 findings 7 who"


@pytest.mark.parametrize(
    ("context", "cells", "keys"),
    [
        ("overview", 80, " : ?"),
        ("zoom", 80, " Esc ?"),
        ("overview", 100, "  Tab  Space  :  ? help"),
        ("zoom", 100, "  Tab  Space  Esc  :  ?"),
        ("overview", 120, "  Enter zoom  Tab maps  Space pause  :  ? help"),
        ("overview", 140, "  Enter zoom  Tab maps  Space pause  : commands  ? help  / filter"),
    ],
)
def test_the_last_line_has_the_names_of_the_screens_and_then_the_nearest_keys(context, cells, keys):
    line = plain(key_line(context, {} if context == "zoom" else {"leave": ""}, cells))
    assert line == SCREEN_NAMES + keys


def test_a_narrow_last_line_has_names_too():
    for cells in range(40, 300):
        line = plain(key_line("overview", {}, cells))
        assert len(line) <= cells
        names, _, _ = line.partition(" …")
        assert SCREEN_NAMES.startswith(names) if cells < 80 else line.startswith(SCREEN_NAMES)
        assert " ?" in line


@pytest.mark.parametrize(("name", "screen"), [("files", "stages"), ("order", "outstanding"), ("audit", "outstanding")])
def test_a_part_of_a_screen_is_a_first_screen_too(name, screen):
    first = ViewSettings(screen=name).over(Selection())
    assert (first.screen, first.aside, first.context) == (screen, name, name)
    assert ViewSettings(screen="stages").over(first).aside == "", "another screen has none"


def test_a_column_that_names_a_cause_grows_before_a_long_name():
    name, cause = "kworker/u8:5-events_unbound", "rt-logger (prio 49) 16.8s"
    fields = [
        Field("thread", 15, lambda _, __: name, right=False, most=90),
        Field("ran instead", 17, lambda _, __: cause, right=False, most=80, is_first=True),
    ]
    _, row = (plain(line) for line in table(fields, [None], 0, (46, 2), why=""))
    assert cause in row
    assert row.startswith(f"▸{name[:17]}")


# ---- what doesn't fit


WORDS = (Span("one ", "strong"), Span("two ", "dim"), Span("three"), Span("  "), Span("four", "dim"), Span("  "))


@pytest.mark.parametrize("cells", range(1, 24))
def test_a_line_that_is_cut_ends_with_an_ellipsis_wherever_a_span_ends(cells):
    text = plain(WORDS)
    shown = plain(fit(WORDS, cells))
    whole = len(text.rstrip())
    assert len(shown) == cells
    assert shown == (f"{text[: cells - 1]}…" if cells < whole else text.rstrip().ljust(cells))


@pytest.mark.parametrize("size", [(80, 24), (119, 40), *FRAMED, (300, 100)])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("screen", SCREENS)
def test_a_panel_has_the_lines_that_its_screen_has_for_it(screen, opened, size):
    given_scene = odd_one()
    given_scene.choose(Selection(screen=screen, opened=opened))
    panels = given_scene.draw(*size)
    room = size[1] - 3 - len(panels.verdict) - len(panels.notice)
    assert len(panels.body) <= room
    if panels.framed and len(panels.body) == room:
        assert is_heading(panels.body[0]) or not panels.body[0], "a frame line takes no line of a full panel"


def test_a_panel_that_is_too_long_says_how_many_lines_are_left_out(monkeypatch):
    made, size = scene(host(1, 3)), (120, 40)
    lines = [(Span(f"line {number}"),) for number in range(50)]
    monkeypatch.setattr("latmon.views.screen.SCREENS", {"overview": lambda _view, _cells, _room: lines})
    shown = [line.strip(" │") for line in drawn(made, size)]
    last = next(at for at, line in enumerate(shown) if line.startswith("…"))
    assert shown[last - 1 : last + 1] == ["line 33", "… 16 more lines"]
