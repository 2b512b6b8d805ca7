"""The drawing primitive: what changed is rendered, what is foreign is refused."""

import pytest
from textual.app import App

from latmon.support.paths import data_dir
from latmon.support.theme import load_theme
from latmon.tui.canvas import Canvas, face
from latmon.views.lines import Span

FACE = face(load_theme("dark", (data_dir("themes"),)), "truecolor")


@pytest.mark.parametrize("foreign", ["\x1b[31m", "\x9b", "\u202e", "a\nb", "\x1b]52;c;x\x07"])
async def test_what_was_not_cleaned_is_never_drawn(foreign):
    """The screen goes on: a fault of a decoder must not end it during an incident."""
    app = App()
    async with app.run_test() as pilot:
        canvas = Canvas(FACE)
        await app.mount(canvas)
        await pilot.pause()
        canvas._lines = [(Span(foreign),)]
        drawn = canvas.render_line(0).text
        assert drawn.isprintable()
        assert "?" in drawn
        canvas._lines = []


async def test_markup_is_text():
    app = App()
    async with app.run_test(size=(40, 5)) as pilot:
        canvas = Canvas(FACE)
        await app.mount(canvas)
        await pilot.pause()
        canvas.show([(Span("[/red]x [@click=quit]y"),)])
        assert canvas.render_line(0).text.startswith("[/red]x [@click=quit]y ")


async def test_only_lines_that_differ_are_rendered(monkeypatch):
    rendered = []
    render = Canvas.render_line
    monkeypatch.setattr(Canvas, "render_line", lambda self, y: rendered.append(y) or render(self, y))
    app = App()
    async with app.run_test(size=(40, 5)) as pilot:
        canvas = Canvas(FACE)
        await app.mount(canvas)
        await pilot.pause()
        for words, expected in (("abcde", {0, 1, 2, 3, 4}), ("abXde", {2}), ("abXde", set()), ("ab", {2, 3, 4})):
            rendered.clear()
            canvas.show([(Span(word),) for word in words])
            await pilot.pause(0.1)
            assert set(rendered) == expected
        assert canvas.render_line(0).text == "a".ljust(40)
        assert canvas.render_line(2).text.isspace()
