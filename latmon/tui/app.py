"""The app: follows a source of frames into a scene, turns keys into choices, and ends with an exit code.

`run` is the only entry. Knows no backend: a live feed, a replay and the demo look the same from here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.events import Key
from textual.screen import Screen
from textual.timer import Timer

from latmon.backend import Backend
from latmon.errors import EXIT_DONE, EXIT_FAILED, LatmonError
from latmon.text import clean
from latmon.theme import Theme, load_theme, theme_names
from latmon.tui.actions import bindings, key_line
from latmon.tui.face import Face, face, textual_theme
from latmon.tui.messages import FrameArrived, SourceEnded, SourceOpened
from latmon.tui.narrow import narrow
from latmon.tui.screens.help import HelpScreen
from latmon.tui.screens.main import MainScreen
from latmon.tui.terminal import colour_depth, leaving
from latmon.views.choice import OP_CHOICES, PANELS, SORTS, Choice, after, window_beside
from latmon.views.lines import Line, Span
from latmon.views.scene import Scene

DEFAULT_THEME = "dark"
_MESSAGE_S = 5.0
_MAX_FILTER = 40
_REPAINT_S = 0.1


class LatmonApp(App[int]):
    """One screen and its keys."""

    TITLE = "latmon"
    CSS_PATH = "latmon.tcss"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False

    def __init__(
        self,
        source: Backend,
        *,
        theme: Theme,
        depth: str,
        choice: Choice,
        mode: str = "LIVE",
        toggle_recording: Callable[[], None] | None = None,
    ) -> None:
        self._latmon_theme = theme
        self._depth = depth
        self._face = face(theme, depth)
        super().__init__(ansi_color=True)
        self._paint()
        self.scene = Scene(choice, mode=mode, ink=self._face.ink)
        self.failure: LatmonError | None = None
        self._source = source
        self._toggle_recording = toggle_recording
        self._main = MainScreen(self.scene, self._face, colourless=depth == "none")
        self._filtering: str | None = None
        self._later: Timer | None = None
        self._painted = 0.0

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def on_mount(self) -> None:
        self.call_after_refresh(self._open)

    def _open(self) -> None:
        """The source is opened when the first picture is on the terminal: probes take a second, a user doesn't wait."""
        self.run_worker(self._follow(), name="source", exclusive=True)

    async def _follow(self) -> None:
        """The worker: opens the source, keeps every frame, tells the app.

        A failure is data; only a source that can't even be opened ends the app.
        """
        try:
            async with self._source as source:
                self.scene.store.origin = source.origin
                self.post_message(SourceOpened())
                async for frame in source.frames():
                    self.scene.append(frame)
                    self.post_message(FrameArrived())
                    await asyncio.sleep(0)  # a backlog that never waits would keep keys waiting
        except LatmonError as error:
            if self.scene.store.origin is None:
                self.failure = error
                self.exit(return_code=error.exit_code)
                return
            self.post_message(SourceEnded(clean(str(error), 200)))
            return
        self.post_message(SourceEnded(""))

    def on_frame_arrived(self) -> None:
        """Repaint at once, but a backlog only ten times a second."""
        if self._later is None:
            wait = self._painted + _REPAINT_S - time.monotonic()
            if wait <= 0:
                self._repaint()
            else:
                self._later = self.set_timer(wait, self._repaint)

    def on_source_opened(self) -> None:
        self._repaint()

    def on_source_ended(self, message: SourceEnded) -> None:
        self.scene.ended = ""
        self.scene.message = message.why
        self._repaint()

    def _repaint(self) -> None:
        self._later = None
        self._painted = time.monotonic()
        self._main.repaint(self._foot(), self._face)

    def _foot(self) -> Line:
        scene = self.scene
        if self._filtering is not None:
            found = len(scene.subjects())
            text = f"  {found} of {len(scene.store.devices)} devices  "
            keys = (Span("Enter", "accent"), Span(" keep  ", "dim"), Span("Esc", "accent"), Span(" clear", "dim"))
            return (Span(" / ", "accent"), Span(self._filtering, "strong"), Span("█"), Span(text, "dim"), *keys)
        choice = scene.choice
        states = {
            "sort": choice.sort,
            "ops": choice.op,
            "next_panel": "table" if choice.panel == "maps" else "maps",
            "zoom": "unzoom" if choice.panel == "zoom" else "zoom",
            "pause": "go on" if scene.paused else "pause",
            "filter": choice.pattern,
            "theme": self._latmon_theme.name,
        }
        return key_line(states)

    def _choose(self, **changes: object) -> None:
        self.scene.choose(replace(self.scene.choice, **changes))  # type: ignore[arg-type]  # fields are named by the callers below
        self._repaint()

    def say(self, text: str) -> None:
        """A sentence on the screen for some seconds."""
        self.scene.message = clean(text, 200)
        self._repaint()
        self.set_timer(_MESSAGE_S, self._unsay)

    def _unsay(self) -> None:
        self.scene.message = ""
        self._repaint()

    def action_stop(self) -> None:
        self.exit(return_code=EXIT_DONE)

    def action_stop_now(self) -> None:
        self.exit(return_code=EXIT_DONE)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.scene.store.origin, self._face, colourless=self._depth == "none"))

    def action_pause(self) -> None:
        if self.scene.paused:
            self.scene.resume()
        else:
            self.scene.pause()
        self._repaint()

    def action_next_panel(self) -> None:
        self._choose(panel="maps" if self.scene.choice.panel != "maps" else PANELS[0])

    def action_zoom(self) -> None:
        self._choose(panel=PANELS[0] if self.scene.choice.panel == "zoom" else "zoom")

    def action_leave(self) -> None:
        if self.scene.choice.panel == "zoom":
            self._choose(panel=PANELS[0])
        elif self.scene.choice.pattern:
            self._choose(pattern="")
        else:
            self._choose(panel=PANELS[0])

    def action_sort(self) -> None:
        self._choose(sort=after(SORTS, self.scene.choice.sort))

    def action_ops(self) -> None:
        self._choose(op=after(tuple(name for name, _ in OP_CHOICES), self.scene.choice.op))

    def action_longer(self) -> None:
        self._choose(window_us=window_beside(self.scene.choice.window_us, 1))

    def action_shorter(self) -> None:
        self._choose(window_us=window_beside(self.scene.choice.window_us, -1))

    def action_move(self, rows: int) -> None:
        names = [s.device.name for s in self.scene.subjects()]
        if names:
            chosen = self.scene.choice.selected
            at = names.index(chosen) if chosen in names else 0
            self._choose(selected=names[min(max(at + rows, 0), len(names) - 1)])

    def action_record(self) -> None:
        if self._toggle_recording is None:
            self.say("nothing to record here: this isn't a live capture")
        else:
            self._toggle_recording()

    def action_theme(self) -> None:
        names = theme_names()
        at = names.index(self._latmon_theme.name) if self._latmon_theme.name in names else -1
        try:
            self._wear(load_theme(names[(at + 1) % len(names)]))
        except LatmonError as error:
            self.say(str(error))

    def _wear(self, theme: Theme) -> None:
        self._latmon_theme = theme
        self._face = face(theme, self._depth)
        self.scene.ink = self._face.ink
        self._paint()
        self._repaint()

    def _paint(self) -> None:
        below = textual_theme(self._latmon_theme, plain=self._face.plain)
        self.register_theme(below)
        self.theme = below.name

    def action_filter(self) -> None:
        self._filtering = self.scene.choice.pattern
        self._repaint()

    def on_key(self, event: Key) -> None:
        """While a filter is typed, every key belongs to it."""
        if self._filtering is not None:
            self._type(event)

    def _type(self, event: Key) -> None:
        text = self._filtering or ""
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self._filtering = None
        elif event.key == "escape":
            self._filtering, text = None, ""
        else:
            added = event.character if event.character and event.character.isprintable() else ""
            text = text[:-1] if event.key == "backspace" else (text + added)[:_MAX_FILTER]
            self._filtering = text
        self._choose(pattern=text)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  Textual's signature
        """No key is a command while a filter is typed, or the help is open, but quit."""
        return action == "stop_now" or (self._filtering is None and not isinstance(self.screen, HelpScreen))

    def _print_error_renderables(self) -> None:
        """Nothing: an unexpected error is raised again by `run`, once the terminal is the user's, not painted on it."""

    def _display(self, screen: Screen[object], renderable: object) -> None:
        super()._display(screen, narrow(renderable))  # type: ignore[arg-type]  # a CompositorUpdate, as before


def run(
    source: Backend,
    *,
    theme: str | None = None,
    devices: tuple[str, ...] = (),
    threshold_us: int | None = None,
    toggle_recording: Callable[[], None] | None = None,
    title: str = "live",
) -> int:
    """The TUI on any source, until it is left; returns the exit code. `title` is live, demo or replay."""
    depth = colour_depth(os.environ)
    app = LatmonApp(
        source,
        theme=load_theme(theme or DEFAULT_THEME),
        depth=depth,
        choice=Choice(threshold_us=threshold_us, globs=devices),
        mode=title.upper(),
        toggle_recording=toggle_recording,
    )
    code = asyncio.run(_run(app))
    if app._exception is not None:  # noqa: SLF001  the only place where Textual keeps it
        raise app._exception  # noqa: SLF001
    if app.failure is not None:
        print(f"latmon: {app.failure}", file=sys.stderr)
        return app.failure.exit_code
    return code


async def _run(app: LatmonApp) -> int:
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def ask(code: int) -> None:
        asked.append(code)
        loop.call_soon_threadsafe(lambda: app.exit(return_code=code))

    with leaving(ask):
        await app.run_async(mouse=False)
    return asked[0] if asked else app.return_code if app.return_code is not None else EXIT_FAILED


__all__ = ["Face", "LatmonApp", "run"]
