"""The bytes between two pictures, read by a terminal emulator: it must show what a whole drawing shows."""

import re

import pyte
import pytest
from emulated import seen_cells
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from latmon.tui.terminal import Movement, Painter
from latmon.views.lines import PLAIN, cells_of

WIDTH, HEIGHT = 24, 4
STYLES = [
    Style.parse(text)
    for text in (
        "none",
        "#d7dce2 on #0e1217",
        "bold #ffffff on #0e1217",
        "#243c6e on #c9b965",
        "#c9b965 on #0e1217",
        "underline #ff8a75 on #0e1217",
        "reverse",
        "bold",
    )
]
texts = st.text("ab ▀▄█ 漢é·", max_size=9)
rows = st.lists(st.tuples(texts, st.sampled_from(STYLES)), max_size=5)
pictures = st.lists(rows, min_size=HEIGHT, max_size=HEIGHT)


def strip(row):
    return Strip([Segment(text, style) for text, style in row]).adjust_cell_length(WIDTH, STYLES[1])


def whole(picture):
    return LayoutUpdate([[strip(row)] for row in picture], Region(0, 0, WIDTH, len(picture)))


def lines(numbers, picture, begin=0):
    chops = [{0: strip(row)} for row in picture]
    return ChopsUpdate(chops, [(y, begin, WIDTH) for y in numbers], [[WIDTH] for _ in picture])


class Emulator:
    def __init__(self, width=WIDTH, height=HEIGHT):
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.Stream(self.screen)

    def feed(self, text):
        assert not re.search("\x1b(?!\\[[0-9;]*[HCP@m])", text), "only moves of the cursor and of cells, and styles"
        self._stream.feed(text)

    @property
    def cells(self):
        return seen_cells(self.screen)


def drawn(picture, colours):
    painter, emulator = Painter(colours, shifts=False), Emulator(height=len(picture))
    painter.take(whole(picture))
    emulator.feed(painter.draw())
    return emulator.cells


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(pictures, st.sampled_from(["whole", "lines", "moved", "part", "forget"])), min_size=2, max_size=6
    ),
    st.sampled_from([ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]),
    st.integers(-3, 3),
)
def test_every_difference_makes_the_picture_of_a_whole_drawing(steps, colours, by):
    painter, emulator, shown = Painter(colours, shifts=True), Emulator(), None
    for picture, way in steps:
        if shown is None or way == "whole":
            shown = picture
            painter.take(whole(shown))
        elif way == "moved":  # as a heat map moves between its axis and its histogram
            shown = [moved(row, by) for row in shown]
            painter.take(whole(shown))
        else:
            shown = [shown[0], *picture[1:]]
            painter.take(lines(range(1, HEIGHT), shown))
        if way == "forget":
            emulator.screen.draw("x" * WIDTH)
            painter.forget()
        while way == "part" and painter.is_changed:
            emulator.feed(painter.draw(most=1))
        emulator.feed(painter.draw())
        assert not painter.is_changed
        assert emulator.cells == drawn(shown, colours)


def moved(row, by):
    """A row of which cells 3 to 20 have moved to the left; what is new is an x."""
    cells = [(char, style) for text, style, _ in strip(row) for char in text]
    if len(cells) != WIDTH or not by:  # wide characters
        return row
    inner = cells[3:20]
    inner = [*inner[by:], *[("x", STYLES[3])] * by] if by > 0 else [*[("x", STYLES[3])] * -by, *inner[:by]]
    return [*cells[:3], *inner, *cells[20:]]


def test_a_map_that_moves_costs_its_new_column():
    steps = [(char, STYLES[i % 4]) for i, char in enumerate("▀▄█▀▀▄ █▄▀ ▄▄█▀")]
    axis, side = ("1ms┤", STYLES[1]), ("▏p99 ", STYLES[2])
    painter, emulator = Painter(ColorSystem.TRUECOLOR, shifts=True), Emulator()
    sizes = []
    for at in range(5):
        row = [axis, *steps[at:], *steps[:at], side]
        painter.take(whole([row] * HEIGHT))
        text = painter.draw()
        emulator.feed(text)
        sizes.append(len(text))
        assert emulator.cells == drawn([row] * HEIGHT, ColorSystem.TRUECOLOR)
    assert max(sizes[1:]) < 70 * HEIGHT < sizes[0] / 4


def test_a_terminal_that_moves_no_cells_gets_no_such_sequence():
    painter = Painter(ColorSystem.EIGHT_BIT, shifts=False)
    for text in ("abcdefghijklmnop", "bcdefghijklmnopq"):
        painter.take(whole([[(text, STYLES[1])]] * HEIGHT))
        assert not re.search("\x1b\\[[0-9]*[P@]", painter.draw())


def test_an_equal_picture_costs_nothing_and_one_cell_a_few_bytes():
    painter = Painter(ColorSystem.EIGHT_BIT, shifts=True)
    painter.take(whole([[("same words here", STYLES[1])]] * HEIGHT))
    painter.draw()
    painter.take(whole([[("same words here", STYLES[1])]] * HEIGHT))
    assert not painter.is_changed
    painter.take(whole([[("same words here", STYLES[1])]] * (HEIGHT - 1) + [[("same cords here", STYLES[1])]]))
    assert 0 < len(painter.draw()) < 40


@pytest.mark.parametrize("size", [(30, 4), (24, 6), (10, 2)])
def test_another_size_is_drawn_whole(size):
    width, height = size
    painter, emulator = Painter(ColorSystem.TRUECOLOR, shifts=True), Emulator(width, height)
    painter.take(whole([[("before", STYLES[2])]] * HEIGHT))
    painter.draw()
    new = [[Strip([Segment("after", STYLES[3])]).adjust_cell_length(width, STYLES[1])] for _ in range(height)]
    painter.take(LayoutUpdate(new, Region(0, 0, width, height)))
    emulator.feed(painter.draw())
    assert all(line == "after".ljust(width) for line in emulator.screen.display)


def test_a_movement_to_the_right_leaves_what_is_beside_it():
    old = cells_of("0123456789", PLAIN)
    row = Movement(4, 7, -1).row(old)
    assert [cell.text for cell in row] == [*"012", "", *"345789"]
