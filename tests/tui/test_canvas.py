"""The drawing primitive: what changed is repainted, what is foreign is refused, without an app."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App

from latmon.support.paths import data_dir
from latmon.support.theme import load_theme
from latmon.tui.canvas import Canvas, changes
from latmon.tui.style import face
from latmon.views.lines import Span, fit

FACE = face(load_theme("dark", (data_dir("themes"),)), "truecolor")
spans = st.lists(st.builds(Span, st.text("ab ▪漢", max_size=5), st.sampled_from(["text", "dim"])), max_size=5)


@given(spans, spans)
def test_repainting_the_changes_makes_the_new_line(old, new):
    def cells(line):
        return [(c, s.role) for s in fit(tuple(line), 12) for c in s.text for _ in range(2 if c == "漢" else 1)]

    before, after = cells(old), cells(new)
    for begin, end in changes(fit(tuple(old), 12), fit(tuple(new), 12)):
        assert begin < end
        before[begin:end] = after[begin:end]
    assert before == after


def test_equal_lines_cost_nothing():
    line = fit((Span("same"),), 20)
    assert list(changes(line, fit((Span("same"),), 20))) == []


def test_far_changes_are_two_repaints_and_near_ones_are_one():
    old = fit((Span("a" * 30),), 30)
    assert list(changes(old, fit((Span("b" + "a" * 28 + "b"),), 30))) == [(0, 1), (29, 30)]
    assert list(changes(old, fit((Span("bab"), Span("a" * 27)), 30))) == [(0, 3)]


@pytest.mark.parametrize("foreign", ["\x1b[31m", "\x9b", "\u202e", "a\nb", "\x1b]52;c;x\x07"])
async def test_what_was_not_cleaned_is_never_drawn(foreign):
    app = App()
    async with app.run_test() as pilot:
        canvas = Canvas(FACE)
        await app.mount(canvas)
        await pilot.pause()
        canvas._lines = [(Span(foreign),)]
        with pytest.raises(AssertionError, match="uncleaned"):
            canvas.render_line(0)
        canvas._lines = []


async def test_markup_is_text():
    app = App()
    async with app.run_test(size=(40, 5)) as pilot:
        canvas = Canvas(FACE)
        await app.mount(canvas)
        await pilot.pause()
        canvas.show([(Span("[/red]x [@click=quit]y"),)])
        assert canvas.render_line(0).text.startswith("[/red]x [@click=quit]y ")
