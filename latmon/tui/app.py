"""The Textual app: gives frames and keys to the view state, paints it, and ends with an exit code.

`run` is the only entry. Knows no backend: a live feed, a replay and the demo look the same from here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.events import Key
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from latmon.capture.backend import STAGES_MODES, Backend, Lined, Seekable
from latmon.findings.rule import DEFAULT, Settings
from latmon.findings.tour import Tour
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, LatmonError
from latmon.support.process import SideThread
from latmon.support.text import clean
from latmon.support.theme import Theme, load_theme
from latmon.timetravel.archive import Archive
from latmon.tui.canvas import HelpScreen, MainScreen
from latmon.tui.commands import STEPS
from latmon.tui.compare import Comparing
from latmon.tui.keys import bindings, foot, tour_keys, works
from latmon.tui.prompt import FILTER, Asked, Typed
from latmon.tui.style import face, next_theme, textual_theme
from latmon.tui.terminal import colour_depth, leaving, narrow
from latmon.tui.time_travel import TRAVEL, Travel
from latmon.tui.tour import Guide
from latmon.views.findings_state import Watched
from latmon.views.screen import Scene
from latmon.views.selection import Choice, after


class FrameArrived(Message):
    """The scene holds a frame more; several of them are one repaint."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FrameArrived)


class SourceOpened(Message):
    """The backend is open and its origin known."""


class SourceEnded(Message):
    """There will be no more frames; `why` in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class SourceRefused(Message):
    """The source could not even be opened."""

    def __init__(self, failure: LatmonError) -> None:
        super().__init__()
        self.failure = failure


async def _all(source: Backend, scene: Scene, post: Callable[[Message], object]) -> None:
    async for frame in source.frames():
        scene.append(frame, source.line if isinstance(source, Lined) else None)
        post(FrameArrived())
        await asyncio.sleep(0)  # a backlog that never waits would keep keys waiting


async def follow(source: Backend, scene: Scene, post: Callable[[Message], object]) -> None:
    """Until the source ends. A failure is data: one on the way is said, one at the opening is a refusal."""
    try:
        async with source as opened:
            scene.opened(opened.origin, opened.past() if isinstance(opened, Seekable) else None)
            post(SourceOpened())
            await _all(opened, scene, post)
            while isinstance(opened, Seekable):
                post(SourceEnded(""))
                await opened.gone_on()
                scene.ended = None
                await _all(opened, scene, post)
    except LatmonError as error:
        refused = scene.edge.store.origin is None
        post(SourceRefused(error) if refused else SourceEnded(clean(str(error), 200)))
    else:
        post(SourceEnded(""))


_AT_ONCE_S = 0.01
_JUDGING_REST_S = 0.02
"""At least; a part that took longer rests longer, so that this is a third of the time at most."""
_SHARE = 2


class Judging:
    """Goes on until nothing is left to be judged. `later` calls back after so many seconds."""

    def __init__(
        self,
        watched: Watched,
        later: Callable[[float, Callable[[], None]], object],
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._watched, self._later, self._changed, self._say = watched, later, changed, say
        self._coming = False

    def wake(self) -> None:
        """Something may have come."""
        if not self._coming and self._watched.behind:
            self._coming = True
            self._later(_JUDGING_REST_S, self._some)

    def _some(self) -> None:
        began = time.monotonic()
        changed = False
        try:
            while self._watched.behind and not changed and time.monotonic() - began < _AT_ONCE_S:
                changed = self._watched.proceed()
        except LatmonError as error:  # a file that is gone
            self._watched.fail(str(error))
            self._say(str(error))
            changed = True
        finally:
            self._coming = False
        if self._watched.behind:
            self._coming = True
            self._later(max(_JUDGING_REST_S, _SHARE * (time.monotonic() - began)), self._some)
        if changed:
            self._changed()


_REPAINT_S = 0.1
_PACE_SHARE = 4
"""A backlog's pictures take at most one part of so many of the time: a picture is dear on a sick or small host."""


class Pace:
    """Painting is due at once, but ten times a second at most; what comes meanwhile is in the next picture."""

    def __init__(self) -> None:
        self._next = 0.0
        self.coming = False
        """A picture is due later and has been asked for."""

    def due(self, now: float) -> float | None:
        """Seconds until the next picture, 0 for at once; None when one is coming already."""
        if self.coming:
            return None
        wait = max(self._next - now, 0.0)
        self.coming = wait > 0
        return wait

    def painted(self, began: float, ended: float) -> None:
        """A picture was made."""
        self._next = began + max(_REPAINT_S, _PACE_SHARE * (ended - began))
        self.coming = False


LOOK_S = 10.0
"""Said again so often: a capture forgets after a minute."""
STAGES_SAID = MappingProxyType(
    {
        "auto": "stages auto: traced while a screen shows them, or a device is slow",
        "basic": "stages basic: never traced, only what is always on",
        "all": "stages all: every device is traced, always",
    },
)
SORTED_BY = MappingProxyType(
    {
        "unlike": "findings, unlikeness to peers, then busy time",
        "out": "outstanding I/Os, as a share of the limit",
        "name": "name, idle ones last",
    },
)
STAGES_START = "; the probes are starting, up to a minute"


def looked_at(choice: Choice, shown: str = "") -> tuple[str, ...] | None:
    """Return the devices whose stages are on the screen, empty for all; None where it shows no stages.

    `shown`: the device that the screen selects while the user has selected none.
    """
    selected = choice.selected or shown
    if choice.screen in ("overview", "findings"):
        return None
    if choice.screen == "outstanding" or (choice.screen == "stages" and choice.opened):
        return (selected,) if selected else ()
    if choice.screen == "outliers" and choice.region is not None:
        return (choice.region.device,)
    return ()


DEFAULT_THEME = "dark"
_MESSAGE_S = 8.0
_PAINTED_S = 0.03
"""A first picture is on the terminal by then: Textual sends one sixty times a second."""
_BEFORE_S = 0.15
"""Until another time is read: what is in memory is on the terminal by then, and a held key reads nothing."""
_REST_S = 0.005
"""Between two parts of what is read."""


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
        set_stages: Callable[[str], None] | None = None,
        deepen: Callable[[tuple[str, ...]], None] | None = None,
        mark: Callable[[str], None] | None = None,
        history_us: int | None = None,
        redact: bool = False,
        findings: Settings | None = None,
        tour: Tour | None = None,
    ) -> None:
        super().__init__(ansi_color=True)
        archive = Archive() if history_us is None else Archive(history_us)
        self.scene = Scene(choice, mode=mode, archive=archive, findings=findings)
        self._depth = depth
        self._wear(theme)
        self.failure: LatmonError | None = None
        self._source = source
        self._toggle_recording = toggle_recording
        self._set_stages = set_stages
        self._deepen = deepen
        self._main = MainScreen(self.scene, self._face, colourless=depth == "none")
        self._asked: Asked | None = None
        self._pace = Pace()
        self._comparing = Comparing(self.scene, self.say, mark)
        self._travel = Travel(self.scene, source, self.say, self._ask, mark, aside=self._begin_aside, redact=redact)
        self._unsaying: Timer | None = None
        self.scene.at_once = self.scene.watched.at_once = False
        self._judging = Judging(self.scene.watched, self.set_timer, self._repaint, self.say)
        self._looking: Timer | None = None
        self._guide = Guide(tour, self.scene, self._choose, tour_keys())

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)
        self.set_interval(LOOK_S, self._look)

    def _begin(self) -> None:
        self._repaint()  # what begins, before it takes its time
        self.set_timer(_PAINTED_S, self._open)

    def _open(self) -> None:
        """The source is opened when the first picture is on the terminal: probes take a second, a user doesn't wait."""
        self.run_worker(follow(self._source, self.scene, self.post_message), name="source", exclusive=True)

    def on_frame_arrived(self) -> None:
        self._comparing.arrived()
        self._guide.arrived(busy=self._asked is not None or self.screen is not self._main)
        wait = self._pace.due(time.monotonic())
        if wait == 0:
            self._repaint()
        elif wait is not None:
            self.set_timer(wait, self._repaint)

    def on_source_opened(self) -> None:
        self._travel.opened()
        self._guide.show()
        self._repaint()

    def on_source_ended(self, message: SourceEnded) -> None:
        self._hush()
        self.scene.ended = ""
        self.scene.message = message.why
        self._repaint()

    def on_source_refused(self, message: SourceRefused) -> None:
        self.failure = message.failure
        self.exit(return_code=message.failure.exit_code)

    def _look_on(self) -> None:
        """More of a look at an earlier time; painted when it is ready."""
        self._looking = None
        if self._travel.arrive():
            self._repaint()
        else:
            self._looking = self.set_timer(_REST_S, self._look_on)

    def _repaint(self) -> None:
        if self._looking is None and self._travel.reads:
            self._looking = self.set_timer(_BEFORE_S, self._look_on)
        began = time.monotonic()
        switched = self._set_stages is not None
        line = foot(self.scene.sight, self._asked, self._worn.name, self.size.width, switched=switched)
        self._main.repaint(line, self._face)
        self._pace.painted(began, time.monotonic())
        self._judging.wake()

    def _choose(self, choice: Choice) -> None:
        before, screen, sort = self._looked_at(), self.scene.choice.screen, self.scene.choice.sort
        try:
            self.scene.choose(choice)
        except LatmonError as error:  # a file that is gone: what is shown stays
            self.say(str(error))
        if choice.screen != screen and self._unsaying is not None:  # it was said of the screen before
            self._unsay()
        if choice.sort != sort:  # at 80 columns neither the line of keys nor a column of the table shows it
            self.say(f"rows sorted by {SORTED_BY.get(choice.sort, choice.sort)}")
        self._repaint()
        if self._looked_at() != before:
            self._look()

    def _looked_at(self) -> tuple[str, ...] | None:
        choice = self.scene.choice
        if self._deepen is None or choice.selected or not looked_at(choice, "shown"):
            return looked_at(choice)
        return looked_at(choice, next((one.choice.selected for one in self.scene.sight.subjects()), ""))

    def _look(self) -> None:
        """Tell a live capture what is looked at, as long as it is."""
        devices = self._looked_at()
        if self._deepen is not None and devices is not None and self.scene.ended is None:
            self._deepen(devices)

    def say(self, text: str) -> None:
        """A sentence on the screen for some seconds."""
        self.scene.message = clean(text, 200)
        self._repaint()
        self._hush()  # the timer is the sentence's before
        self._unsaying = self.set_timer(_MESSAGE_S, self._unsay)

    def _unsay(self) -> None:
        self._hush()
        self.scene.message = ""
        self._repaint()

    def _hush(self) -> None:
        """What is said now stays."""
        if self._unsaying is not None:
            self._unsaying.stop()
            self._unsaying = None

    def action_stop(self) -> None:
        self.exit(return_code=EXIT_DONE)

    def action_stop_now(self) -> None:
        self.exit(return_code=EXIT_DONE)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.scene.known, self._face, colourless=self._depth == "none"))

    def action_tour(self, by: int) -> None:
        self._guide.go(by)
        self._repaint()

    def action_choose(self, step: str, by: int) -> None:
        self._guide.stay()
        self._choose(STEPS[step](self.scene.sight, by))
        if step == "evidence":
            self._travel.to_finding()
            self._repaint()

    def action_travel(self, name: str, by: int) -> None:
        TRAVEL[name](self._travel, by)
        self._repaint()

    def action_record(self) -> None:
        if self._toggle_recording is None:
            self.say("nothing to record here: this isn't a live capture")
        else:
            self._toggle_recording()

    def action_stages(self) -> None:
        if self._set_stages is None:
            self.say("stages can't be switched here: this isn't a live capture")
            return
        choice = self.scene.choice
        mode = after(STAGES_MODES, choice.stages)
        self._set_stages(mode)
        self._choose(replace(choice, stages=mode))
        self.say(STAGES_SAID[mode] + (STAGES_START if self.scene.starting(mode) else ""))

    def action_compare(self) -> None:
        self._comparing.step()
        self._repaint()

    def action_theme(self) -> None:
        try:
            self._wear(next_theme(self._worn))
        except LatmonError as error:
            self.say(str(error))
        else:
            self._repaint()

    def _wear(self, theme: Theme) -> None:
        self._worn = theme
        self._face = face(theme, self._depth)
        self.scene.ink = self._face.ink
        below = textual_theme(theme, plain=self._face.plain)
        self.register_theme(below)
        self.theme = below.name

    def _begin_aside(self, call: Callable[[], str]) -> None:
        self.run_worker(self._beside(call), name="aside")

    async def _beside(self, call: Callable[[], str]) -> None:
        """A call that takes its time; what it comes to is said."""
        side = SideThread("aside")
        answer = asyncio.get_running_loop().run_in_executor(side, call)
        side.shutdown()
        try:
            said = await answer
        except LatmonError as error:
            said = str(error)
        self.say(said)

    def _ask(self, purpose: str, text: str = "") -> None:
        """Begin a typed line."""
        self._asked = Asked(purpose, Typed(text))
        self._repaint()

    def action_filter(self) -> None:
        self._ask(FILTER, self.scene.choice.pattern)

    def on_key(self, event: Key) -> None:
        """While a line is typed, every key belongs to it; a filter holds at once."""
        if self._asked is None:
            return
        event.stop()
        event.prevent_default()
        asked = self._asked.after(event.key, event.character)
        self._asked = None if asked.typed.done else asked
        if asked.purpose == FILTER:
            self._choose(replace(self.scene.choice, pattern=asked.typed.text))
            return
        if asked.typed.done and asked.kept:
            self._travel.typed(asked.purpose, asked.typed.text)
        self._repaint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key is a command where the table says so; while a line is typed, or the help is open, only quit is."""
        if self._asked is not None or isinstance(self.screen, HelpScreen):
            return action == "stop_now"
        if action == "tour":
            return self._guide.leads
        name, by = parameters if action in ("choose", "travel") else (action, 0)
        return works(str(name), int(str(by)), self.scene.choice.context)

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
    backend: str = "auto",
    stages: str = "auto",
    set_stages: Callable[[str], None] | None = None,
    deepen: Callable[[tuple[str, ...]], None] | None = None,
    mark: Callable[[str], None] | None = None,
    history_us: int | None = None,
    sweep: bool = False,
    redact: bool = False,
    findings: Settings = DEFAULT,
    tour: Tour | None = None,
) -> int:
    """The TUI on any source, until it is left; returns the exit code. `title` is live, demo or replay.

    `set_stages` takes one of STAGES_MODES, `deepen` the devices that are looked at, `mark` a note; only a live capture
    has them. `history_us`: how far back can be gone; the config's default where it is None.
    `sweep`: heat maps overwrite their oldest column; `redact`: foreign names are left out of what is saved;
    `findings`: the config's thresholds of rules;
    `tour`: shown from its first stop on.
    """
    depth = colour_depth(os.environ)
    app = LatmonApp(
        source,
        theme=load_theme(theme or DEFAULT_THEME),
        depth=depth,
        choice=Choice(threshold_us=threshold_us, globs=devices, backend=backend, stages=stages, sweep=sweep),
        mode=title.upper(),
        toggle_recording=toggle_recording,
        set_stages=None if title == "demo" else set_stages,  # it measures nothing that could be switched
        deepen=deepen,
        mark=mark,
        history_us=history_us,
        redact=redact,
        findings=findings,
        tour=tour,
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
