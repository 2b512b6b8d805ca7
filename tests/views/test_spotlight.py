"""The spotlight of a tour: what its text names is bright, all else faint, in every theme and depth."""

import pytest
from frames import host
from panels import scene

from latmon.support.theme import OUR_THEMES, contrast, load_theme, role_colours
from latmon.tui.canvas import DEPTHS, face
from latmon.views.heatmap import RAMP, solid
from latmon.views.lines import FRAME, Span, heading, plain
from latmon.views.spotlight import FAINT, bright, faint, lit
from latmon.views.status import TourBanner

HEAD = heading((Span(" sda culprit", "strong"),), 40)
OTHER = heading((Span(" wake-ups", "strong"),), 40)
BODY = [(Span(" table"),), HEAD, (Span(" one line"),), OTHER, (Span(" a thread"),), (Span("     └───"),)]


@pytest.mark.parametrize(
    ("points", "rows"),
    [
        (["culprit"], {1, 2}),
        (["wake-ups"], {3, 4, 5}),
        (["a thread"], {4}),
        (["one line", "a thread"], {2, 4}),
        (["map"], {3, 4, 5}),
        (["table"], {0, 1, 2}),
        (["nothing like it"], set()),
        (["verdict"], set()),
    ],
)
def test_a_name_is_of_a_part_or_of_lines(points, rows):
    assert lit(points, [(Span("!! sda"),)], BODY) == ({0} if points == ["verdict"] else set(), rows)


def test_without_a_map_there_is_no_table():
    assert lit(["table", "map"], [], BODY[:3]) == (set(), set())


def test_a_faint_line_has_its_text_in_one_role_and_stays_a_heading():
    assert faint(HEAD) == (Span(" sda culprit", FAINT), *HEAD[1:])
    assert HEAD[1].role == FRAME
    cells = (Span("▀▀", "heat2/heat5"), Span("▀", "heat2"), Span("▒░█", "heat1"), Span("11x", "heat3"))
    assert plain(faint(cells)) == "██▀▒▒█11x"
    assert {span.role for span in faint(cells)} == {FAINT}


def test_a_click_finds_what_a_faint_or_bold_span_is_about():
    span = Span("sda", target=object())
    assert faint((span,))[0].target is bright((span,), RAMP)[0].target is span.target


def test_without_colours_a_bright_line_is_bold():
    line = (Span("one"), Span("two", "dim"), Span("three", "text/critical"), Span("four", "accent"))
    assert [span.role for span in bright(line, RAMP)] == ["strong", "strong", "strong/critical", "accent"]
    assert bright(line, solid(9)) == line


@pytest.mark.parametrize("name", OUR_THEMES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_faint_differs_from_the_text_in_every_theme_and_depth(name, depth):
    styles = face(load_theme(name), depth).styles
    assert styles[FAINT] not in (styles["text"], styles["dim"], styles["strong"])
    if depth not in ("truecolor", "256") or name == "mono":
        assert styles[FAINT].dim


@pytest.mark.parametrize("name", [name for name in OUR_THEMES if name != "mono"])
def test_faint_can_be_seen_and_is_less_than_dim(name):
    colours = role_colours(load_theme(name), ())
    background = colours["background"].rgb
    assert 2 < contrast(colours[FAINT].rgb, background) < contrast(colours["dim"].rgb, background)


def drawn(made, size):
    made.draw(*size)
    return made.draw(*size)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_all_but_the_part_and_the_banner_is_faint(size):
    given_scene = scene(host(3, 5))
    before = drawn(given_scene, size)
    given_scene.banner = TourBanner("1/5", "a title", "a text", (), ("map",), "overview")
    panels = drawn(given_scene, size)
    assert all(span.role in (FAINT, FRAME) for span in panels.title + panels.health + panels.body[0])
    axis = next(row for row, line in enumerate(panels.body) if plain(line).startswith("     └"))
    assert FAINT not in {span.role for span in panels.body[axis]}
    assert [plain(line).split() for line in panels.notice] == [["1/5", "a", "title"], ["a", "text"]]
    assert FAINT not in {span.role for line in panels.notice for span in line}
    assert list(map(plain, panels.verdict)) == list(map(plain, before.verdict))


def test_another_screen_than_that_of_the_stop_is_not_faint():
    given_scene = scene(host(3, 5))
    for points, context in ((("map",), "stages"), (("no such part",), "overview"), ((), "")):
        given_scene.banner = TourBanner("1/5", "a title", "a text", (), points, context)
        panels = drawn(given_scene, (80, 24))
        assert FAINT not in {span.role for line in (panels.title, *panels.body) for span in line}


def test_a_screen_without_room_for_a_body_has_nothing_to_point_at():
    assert lit(("map", "table"), (), []) == (set(), set())
