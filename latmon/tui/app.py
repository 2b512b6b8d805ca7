"""The Textual app: passes frames and keys to the scene, paints it, and ends with an exit code.

`run` is the only entry. It works with any backend: a live feed, a replay or the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.binding import BindingType
from textual.events import Event, Key, MouseDown, MouseMove, MouseUp, Paste, Resize
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from latmon.capture.backend import Archived, Backend, Grouped, Lined, Seekable
from latmon.capture.session import Session
from latmon.model.stages import STAGES_MODES
from latmon.recording.archive import Archive
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, LatmonError
from latmon.support.process import SideThread
from latmon.support.streams import message
from latmon.support.text import clean
from latmon.support.theme import Theme, load_theme, ramp_names, theme_names
from latmon.support.units import show_duration
from latmon.tui import keys
from latmon.tui.canvas import DEPTHS, HelpScreen, MainScreen, PaletteScreen, face
from latmon.tui.commands import (
    FILTER,
    RAMP,
    STEPS,
    THEME,
    THRESHOLD,
    Choice,
    InputLine,
    Prompt,
    clicked_part,
    clicked_row,
    listed_finding,
    next_commands,
    one_line,
    selected_finding,
    shown_finding,
    with_threshold,
)
from latmon.tui.keys import Action, Command, bindings, commands, foot, is_hidden, tour_keys, works
from latmon.tui.terminal import TerminalDriver, colour_depth, forget_size, leaving, missing_glyphs
from latmon.tui.time_travel import STAYING, TRAVEL, Comparing, Travel
from latmon.tui.tour import HISTORY, Guide, Tour
from latmon.views.context import ViewState, selected
from latmon.views.findings_state import Alarm, FindingsState
from latmon.views.lines import DEVICE, EPISODE, FINDING, PART, ROW, TILE, Line, Target, target_at
from latmon.views.panels.files import why_no_request
from latmon.views.screen import Scene
from latmon.views.selection import SCREENS, ScreenOptions, Selection, ViewSettings, after

_AT_ONCE_S = 0.01
_BEFORE_S = 0.15
"""From a picture to the first part of deferred work: by then the terminal shows the picture."""
_PAINTED_S = 0.03
"""Time until a picture is on the terminal: Textual sends one sixty times a second."""
_LATEST_S = 0.5
"""Longest time without a part where pictures come faster than they are painted, as over a held key."""
_EVALUATING_REST_S = 0.02
"""Least pause between two parts; a longer part pauses longer, so that evaluation takes a third of the time at most."""
_SHARE = 2
_YOUNG_ONLY = 1_000_000
"""Collections of the middle generation before the interpreter starts a full one by itself: never."""
_COLLECT_S = 5.0
_QUIET_S = 0.5
"""Time without a key before a full garbage collection, which stops the event loop for 0.02 to 0.1 s."""
_ALL = 120
"""One full collection in 120 examines all objects, for some 0.3 s; the others those made since the last one."""
_REPAINT_S = 0.1
_PACE_SHARE = 4
"""Pictures of a backlog take at most a quarter of the time: a picture is expensive on a slow host."""
_SILENT_S = 5.0
"""A capture without a frame for longer than this and two intervals is not live: a crowded host stalls for seconds."""
REQUEST_S = 10.0
"""Period of requests for tracing: a capture ends it a minute after the last one."""
STAGES_TEXTS = MappingProxyType(
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
_ALWAYS = ("stop_now", "redraw", "suspend")
"""Actions that are allowed while a line is typed or a page is open."""
_MESSAGE_S = 8.0
_SEEK_S = 0.1
"""Period of the question whether a recording is scanned."""
_REST_S = 0.005
"""Pause between two parts of reading an earlier time."""


class FrameArrived(Message):
    """The scene has another frame; several of these messages are one repaint."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FrameArrived)


class SourceOpened(Message):
    """The backend is open and its origin known."""


class SourceEnded(Message):
    """There will be no more frames; `why`: the reason in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class SourceRefused(Message):
    """The source could not be opened."""

    def __init__(self, failure: LatmonError) -> None:
        super().__init__()
        self.failure = failure


async def _preview(preview: Backend, scene: Scene, post: Callable[[Message], object]) -> None:
    with contextlib.suppress(LatmonError, OSError):  # the source reports its own failure
        async with preview as counters:
            async for frame in counters.frames():
                scene.preview(counters.origin, frame)
                post(FrameArrived())


async def _all(
    source: Backend, scene: Scene, post: Callable[[Message], object], previewing: asyncio.Task[None] | None = None
) -> None:
    async for frame in source.frames():
        if previewing is not None:
            previewing.cancel()
            previewing = None
            scene.opened(source.origin)
            post(SourceOpened())
        scene.append(frame, source.line if isinstance(source, Lined) else None)
        post(FrameArrived())
        await asyncio.sleep(0)  # otherwise keys wait during a backlog of frames


async def follow(
    source: Backend, scene: Scene, post: Callable[[Message], object], preview: Backend | None = None
) -> None:
    """Post frames until the source ends; post a failure as SourceRefused at the opening, else as SourceEnded.

    `preview`: a backend that needs no probe, whose frames are shown until the first one of the source.
    """
    is_open = False
    previewing = None if preview is None else asyncio.create_task(_preview(preview, scene, post))
    try:
        async with source as opened:
            is_open = True
            if previewing is None:
                scene.opened(opened.origin, opened.past() if isinstance(opened, Archived) else None)
                post(SourceOpened())
            await _all(opened, scene, post, previewing)
            while isinstance(opened, Grouped):
                await opened.regroup()
                scene.opened(opened.origin, opened.past())
                post(SourceOpened())
                await _all(opened, scene, post)
            while isinstance(opened, Seekable):
                post(SourceEnded(""))
                await opened.gone_on()
                scene.ended = None
                await _all(opened, scene, post)
    except LatmonError as error:
        post(SourceEnded(clean(str(error), 200)) if is_open else SourceRefused(error))
    else:
        post(SourceEnded(""))
    finally:
        if previewing is not None:
            previewing.cancel()


class FindingsEvaluation:
    """The evaluation of findings in parts between keys. `later(s, call)` calls back after `s` seconds."""

    def __init__(
        self,
        findings_state: FindingsState,
        later: Callable[[float, Callable[[], None]], object],
        changed: Callable[[], None],
        show_message: Callable[[str], None],
    ) -> None:
        self._findings_state, self._later, self._changed, self._show_message = (
            findings_state,
            later,
            changed,
            show_message,
        )
        self._coming = False
        self._painted = self._since = 0.0
        """When the last picture was made; since when a part is due."""

    def wake(self) -> None:
        """Start the evaluation after a picture, where frames are queued."""
        self._painted = time.monotonic()
        if not self._coming and self._findings_state.is_pending:
            self._coming, self._since = True, self._painted
            self._later(_BEFORE_S, self._some)

    def _some(self) -> None:
        began = time.monotonic()
        # the picture isn't on the terminal yet
        if began < self._painted + _PAINTED_S and began < self._since + _LATEST_S:
            self._later(_PAINTED_S, self._some)
            return
        changed = False
        try:
            while self._findings_state.is_pending and not changed and time.monotonic() - began < _AT_ONCE_S:
                changed = self._findings_state.proceed()
        except LatmonError as error:  # a removed file
            self._findings_state.fail(str(error))
            self._show_message(str(error))
            changed = True
        finally:
            self._coming = False
        if self._findings_state.is_pending:
            self._coming, self._since = True, time.monotonic()
            self._later(max(_EVALUATING_REST_S, _SHARE * (time.monotonic() - began)), self._some)
        if changed:
            self._changed()


class GarbageCollection:
    """Full garbage collections between keys: Textual's screens refer to themselves.

    Frames have no reference cycles, but reading an earlier time allocates so many of them that the interpreter would
    start a full collection at every second key. `release` drops what the next picture doesn't need.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], object], release: Callable[[], None]) -> None:
        self._later, self._release = later, release
        self._thresholds = gc.get_threshold()
        self._pressed, self._collections = 0.0, 0

    def begin(self) -> None:
        """Take the full collections over from the interpreter."""
        gc.set_threshold(*self._thresholds[:2], _YOUNG_ONLY)
        gc.freeze()  # modules and classes, half of all objects, aren't examined again
        self._later(_COLLECT_S, self._collect)

    def end(self) -> None:
        """Give them back."""
        gc.unfreeze()
        gc.set_threshold(*self._thresholds)

    def pressed(self) -> None:
        """Record a key: no collection begins shortly after it."""
        self._pressed = time.monotonic()

    def _collect(self) -> None:
        if time.monotonic() - self._pressed < _QUIET_S:
            self._later(_QUIET_S, self._collect)
            return
        self._release()
        self._collections += 1
        if self._collections % _ALL == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._later(_COLLECT_S, self._collect)


class RepaintPace:
    """The limit of repaints: at once, but at most ten times a second."""

    def __init__(self) -> None:
        self._next = 0.0
        self.coming = False
        """A picture is scheduled."""

    def due(self, now: float, rest_s: float = 0.0) -> float | None:
        """Return the seconds until the next picture, 0 for at once; None when one is scheduled.

        `rest_s`: the time that the link to the terminal is left to keys.
        """
        if self.coming:
            return None
        wait = max(self._next - now, rest_s, 0.0)
        self.coming = wait > 0
        return wait

    def painted(self, began: float, ended: float) -> None:
        """Record a picture."""
        self._next = began + max(_REPAINT_S, _PACE_SHARE * (ended - began))
        self.coming = False


def traced_devices(selection: Selection, shown: str = "") -> tuple[str, ...] | None:
    """Return the devices whose stages are on the screen, empty for all; None where it shows no stages.

    `shown`: the device that the screen selects while the user has selected none.
    """
    selected = selection.selected or shown
    if selection.screen in ("overview", "findings"):
        return None
    if selection.screen == "outstanding" or (selection.screen == "stages" and selection.opened):
        return (selected,) if selected else ()
    if selection.screen == "outliers" and selection.region is not None:
        return (selection.region.device,)
    return ()


class LatmonApp(App[int]):
    """One screen and its keys."""

    TITLE = "latmon"
    CSS_PATH = "latmon.tcss"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    ALLOW_SELECT = False
    _code = EXIT_DONE
    """The exit code when the user leaves."""

    def __init__(
        self,
        source: Backend,
        options: ScreenOptions,
        *,
        depth: str,
        session: Session | None = None,
        preview: Backend | None = None,
        tour: Tour | None = None,
    ) -> None:
        """`session`: the live capture, which takes the user's commands; for the others see `run`."""
        super().__init__(driver_class=TerminalDriver, ansi_color=True)
        self.console._color_system = DEPTHS[depth]  # noqa: SLF001  Rich's own choice knows fewer terminals
        # of Textual, which reads all of its style sheets again for another one; before 8.2.5 it had one for ANSI
        self.theme = "ansi-dark" if "ansi-dark" in self.available_themes else "textual-ansi"
        archive = Archive() if options.history_us is None else Archive(options.history_us)
        self.scene = Scene(options.selection, mode=options.mode, archive=archive, findings=options.findings)
        self._depth = depth
        self._apply_theme(options.theme)
        self._ramp = options.ramp
        self._kept = (options.theme, options.ramp)
        self.failure: LatmonError | None = None
        self.visited = ""
        """The host to be shown over ssh, after which the screen begins again; empty: the user leaves."""
        self._options, self._viewed = options, ""
        self._scanning: Timer | None = None
        self._progress = ""
        """The progress of the scan that is shown."""
        self._source, self._preview, self._session = source, preview, session
        self._switches_stages = session is not None and options.mode != "DEMO"  # the demo measures nothing
        self._main = MainScreen(self.scene, self._face, self._foot)
        self._asked: Prompt | Choice | None = None
        self._pace = RepaintPace()
        self._arrived = math.inf
        mark, read_settings = (None, None) if session is None else (session.mark, session.read_settings)
        self._comparing = Comparing(
            self.scene, self.show_message, mark, read_settings, is_live=options.mode != "REPLAY"
        )
        self._travel = Travel(
            self.scene, source, self.show_message, self._ask, mark, aside=self._begin_aside, redaction=options.redaction
        )
        self._message_timer: Timer | None = None
        self.scene.at_once = self.scene.findings_state.at_once = False
        self._evaluating = FindingsEvaluation(
            self.scene.findings_state, self.set_timer, self._evaluated, self.show_message
        )
        self._alarm = Alarm() if options.bell else None
        self._copied: tuple[Sequence[str], int] = ((), 0)
        if options.record is not None:
            self.scene.expect_recording(options.record.parent)
        self._reading: Timer | None = None
        self._guide = Guide(tour, self.scene, self._choose, tour_keys)
        self.scene.awaited = HISTORY if tour is not None else 0
        self._anchor: keys.Pointed | None = None
        """The cell of the heat map where the mouse button went down; `_dragged`: the cell where it is."""
        self._dragged: keys.Pointed | None = None
        self._down_y: int | None = None
        """The line where the mouse button went down."""
        self._garbage = GarbageCollection(self.set_timer, self.scene.release)

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def set_timer(self, delay: float, *args: Any, **options: Any) -> Timer:
        """Return a timer that calls back once, however late.

        Textual's timers read the clock twice as they begin, and leave out a call that is due before the second time.
        It is the only call of a one-shot timer: where another process had the CPU in between for the timer's delay,
        what waited for it would never go on. That is rare: none of 30,000 timers of 5 ms was lost on a crowded host.
        """
        timer = super().set_timer(delay, *args, **options)
        timer._skip = False  # noqa: SLF001  its task, which reads it, begins later
        return timer

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)
        self.set_interval(REQUEST_S, self._repeat_request)
        if self._session is not None:
            self.set_interval(1.0, self._check_arrival)
        self._garbage.begin()

    def on_unmount(self) -> None:
        self._garbage.end()

    def _begin(self) -> None:
        self._repaint()  # the source is opened after the first picture
        self.set_timer(_PAINTED_S, self._open)

    def _open(self) -> None:
        """Open the source when the first picture is on the terminal, since probes take a second."""
        following = follow(self._source, self.scene, self.post_message, self._preview)
        self.run_worker(following, name="source", exclusive=True)

    def _check_arrival(self) -> None:
        """Show in the title that a capture sends no frames, such as one whose collector was stopped by SIGSTOP."""
        origin, silent_s = self.scene.store.origin, time.monotonic() - self._arrived
        if origin is None or self.scene.ended is not None or self.scene.at is not None:
            return
        if silent_s > _SILENT_S + 2 * origin.interval_us / 1e6:
            self.scene.silent_us = int(silent_s) * 1_000_000
            self._repaint()

    def on_frame_arrived(self) -> None:
        self._arrived, self.scene.silent_us = time.monotonic(), 0
        self._comparing.arrived()
        self._guide.arrived(busy=self._asked is not None or self.screen is not self._main)
        rest_s = self._driver.link.rest_s if isinstance(self._driver, TerminalDriver) else 0.0
        wait = self._pace.due(time.monotonic(), rest_s)
        if wait == 0:
            self._repaint()
        elif wait is not None:
            self.set_timer(wait, self._repaint)

    def on_source_opened(self) -> None:
        self._travel.opened()
        if isinstance(self._source, Seekable):
            self.scene.seeks_worst = self._options.to_worst
            self._scanning = self.set_interval(_SEEK_S, self._scan)
        self._guide.show()
        self._repaint()

    def _scan(self) -> None:
        """Once a replay is scanned, evaluate all of it, and go to its worst minute unless a key has moved in time."""
        if self._scanning is None:
            return
        if self.scene.archive.scanned < 1:
            if self.scene.reading != self._progress:
                self._progress = self.scene.reading
                self._repaint()
            return
        self._scanning.stop()
        self._scanning = None
        self._travel.survey()
        if self.scene.seeks_worst:
            self._stop_seeking()
            self._travel.to_worst()
        self._repaint()

    def _stop_seeking(self) -> None:
        self.scene.seeks_worst = False

    def on_source_ended(self, message: SourceEnded) -> None:
        self._stop_message_timer()
        self.scene.ended = ""
        self.scene.message = message.why
        self._code = EXIT_FAILED if message.why else self._code
        self._repaint()

    def on_source_refused(self, message: SourceRefused) -> None:
        self.failure = message.failure
        self.exit(return_code=message.failure.exit_code)

    def _read_more(self) -> None:
        """Read more of an earlier time; paint it when it is complete."""
        self._reading = None
        if self._travel.arrive():
            self._repaint()
        else:
            self._reading = self.set_timer(_REST_S, self._read_more)

    def _repaint(self) -> None:
        if self._reading is None and self._travel.reads:
            self._reading = self.set_timer(_BEFORE_S, self._read_more)
        began = time.monotonic()
        self._main.repaint(self._face)
        self._pace.painted(began, time.monotonic())
        self._evaluating.wake()

    def _foot(self, cells: int) -> Line:
        comparing = self.scene.comparison is not None
        return foot(
            *(self.scene.view, self._asked, cells),
            switched=self._switches_stages,
            comparing=comparing,
            visiting=isinstance(self._source, Grouped),
        )

    def _choose(self, selection: Selection) -> None:
        before, screen, sort = self._requested(), self.scene.selection.screen, self.scene.selection.sort
        try:
            self.scene.choose(selection)
        except LatmonError as error:  # a removed file: the screen stays as it is
            self.show_message(str(error))
        if selection.screen != screen and self._message_timer is not None:  # it was about the previous screen
            self._clear_message()
        if selection.sort != sort:  # at 80 columns neither the line of keys nor a column of the table shows it
            self.show_message(f"rows sorted by {SORTED_BY.get(selection.sort, selection.sort)}")
        self._repaint()
        if self._requested() != before:
            self._repeat_request()

    def _traced_devices(self) -> tuple[str, ...] | None:
        selection = self.scene.selection
        if self._session is None or selection.selected or not traced_devices(selection, "shown"):
            return traced_devices(selection)
        return traced_devices(
            selection, next((subject.selection.selected for subject in self.scene.view.subjects()), "")
        )

    def _requested(self) -> tuple[tuple[str, ...] | None, bool]:
        """Return the devices to trace, None for no request, and whether the screen shows operations on files."""
        return self._traced_devices(), self.scene.selection.screen == "stages"

    def _repeat_request(self) -> None:
        """Request tracing of the devices on the screen, repeated as long as they are shown."""
        devices, files = self._requested()
        if self._session is not None and devices is not None and self.scene.ended is None:
            self._session.request_tracing(devices, files=files)

    def show_message(self, text: str) -> None:
        """Show a sentence for some seconds."""
        self.scene.message = clean(text, 200)
        self._repaint()
        self._stop_message_timer()  # the timer of the previous sentence
        self._message_timer = self.set_timer(_MESSAGE_S, self._clear_message)

    def _clear_message(self) -> None:
        self._stop_message_timer()
        self.scene.message = ""
        self._repaint()

    def _stop_message_timer(self) -> None:
        """Stop the timer that removes the sentence."""
        if self._message_timer is not None:
            self._message_timer.stop()
            self._message_timer = None

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key):
            self._garbage.pressed()
        elif isinstance(event, Resize) and isinstance(self._driver, TerminalDriver):
            # A terminal that had another size for a moment shows a part of its picture. Another size is laid out next.
            self._driver.redraw(now=event.size == self.size)
        await super().on_event(event)

    def action_stop(self) -> None:
        self.exit(return_code=self._code)

    def action_stop_now(self) -> None:
        self.exit(return_code=self._code)

    def action_suspend(self) -> None:
        # Under another driver, as in tests, the job is not ours to stop.
        if not (isinstance(self._driver, TerminalDriver) and self._driver.suspend()):
            self.show_message("no shell to go back to: latmon is the first program of this terminal")

    def action_help(self) -> None:
        context = self.scene.context
        self.push_screen(HelpScreen(context, self.scene.known, self._face))

    def action_palette(self) -> None:
        palette_commands = commands(self.scene.context, tuple(self._options.views), touring=self._guide.leads)
        self.push_screen(PaletteScreen(palette_commands, self._run_command, self._face))

    def action_view(self, name: str = "") -> None:
        """Show a saved view, by default the next one; what it doesn't set is as at the start."""
        views, start = self._options.views, self._options.selection
        if not views:
            self.show_message("no view is saved: docs/CONFIG.md describes the section views of the config")
            return
        names = tuple(views)
        name = name or (after(names, self._viewed) if self._viewed else names[0])
        self._viewed = name
        base = replace(
            STEPS["screen"](self.scene.view, SCREENS.index(start.screen)),
            panel=start.panel,
            sort=start.sort,
            pattern=start.pattern,
            window_us=start.window_us,
            columns=start.columns,
            op=start.op,
        )
        self._choose(views[name].over(base))
        self.show_message(f"view {name}")

    def action_setting(self, key: str, value: str | int) -> None:
        """Change one of ViewSettings; what else is on the screen stays, but for a comparison."""
        self._comparing.leave()
        self._choose(ViewSettings(**{key: value}).over(self.scene.selection))  # type: ignore[arg-type]  # as the key wants

    async def _run_command(self, command: Command) -> None:
        """Run the actions of a command one after the other, as by their keys."""
        for call in command.calls:
            await self.run_action(call)

    def action_tour(self, by: int) -> None:
        self._guide.go(by)
        self._repaint()

    def action_choose(self, step: str, by: int) -> None:
        if self.scene.comparison is not None and step not in ("move", "scroll"):
            self._comparing.leave()
            if step == "leave":
                self._repaint()
                return
        self._guide.stay()
        if isinstance(self._source, Grouped) and self._regroup(self._source, step):
            return
        page = self.scene.page if step == "scroll" else abs(by)
        before = self.scene.selection
        self._choose(STEPS[step](self.scene.view, max(-page, min(by, page))))
        if step == "its_request" and self.scene.selection.screen == before.screen:
            self.show_message(why_no_request(self.scene.view))
        if step == "evidence":
            self._stop_seeking()
            self._travel.to_finding()
            self._repaint()

    def _regroup(self, source: Grouped, step: str) -> bool:
        """Open the selected host, or go back from its devices to all hosts; return whether the step does that."""
        selection, view = self.scene.selection, self.scene.view
        if step == "zoom":
            chosen = selected(view.subjects())
            if chosen is None or not source.open_row(chosen.device.name):
                return False
            host = source.host_of(chosen.device.name)
            self.show_message(f"devices of {chosen.device.name}; Esc: all hosts; E: `latmon fleet {host}`, over ssh")
        elif step != "leave" or STEPS[step](view, 0) != selection or not source.close_row():
            return False
        else:
            self._clear_message()
        return True

    def action_visit(self) -> None:
        """End the screen so that `run` shows the selected host over ssh."""
        if not isinstance(self._source, Grouped):
            self.show_message("only a host of a Prometheus is opened over ssh: `latmon fleet HOST` opens any other")
            return
        chosen = selected(self.scene.view.subjects())
        self.visited = "" if chosen is None else self._source.host_of(chosen.device.name)
        if not self.visited:  # the rows were chosen again after the screen was drawn
            self.show_message("no host of the Prometheus is selected: select one of its rows")
            return
        self.exit(return_code=EXIT_DONE)

    def resumed(self, options: ScreenOptions) -> ScreenOptions:
        """Return the options of a screen that goes on with the selection and colours of this one."""
        return replace(options, selection=self.scene.selection, theme=self._theme_shown, ramp=self._ramp)

    def action_travel(self, name: str, by: int) -> None:
        if name not in STAYING:
            self._stop_seeking()
        TRAVEL[name](self._travel, by)
        if self._reading is not None:  # reading begins after the picture of this key
            self._reading.stop()
            self._reading = None
        self._repaint()

    def _evaluated(self) -> None:
        if self._alarm is not None and self._alarm.is_due(self.scene.findings_state):
            self.bell()
        self._repaint()

    def action_record(self) -> None:
        if self._session is None:
            self.show_message("nothing to record here: this isn't a live capture")
        else:
            self._session.toggle_recording()
            self._begin_aside(self._travel.find_directory)

    def action_picture(self) -> None:
        self._travel.picture((self.size.width, self.size.height), self._theme_shown)

    def action_copy(self) -> None:
        commands = next_commands(self.scene.view)
        if not commands:
            self.show_message("no next step here has a command to copy")
            return
        before, at = self._copied
        at = (at + 1) % len(commands) if before == commands else 0
        self._copied = commands, at
        self.copy_to_clipboard(commands[at])
        more = f" {at + 1} of {len(commands)}" if len(commands) > 1 else ""
        self.show_message(f"sent command{more} to the terminal's clipboard: {commands[at]}")

    def action_stages(self) -> None:
        if self._session is None or not self._switches_stages:
            self.show_message("stages can't be switched here: this isn't a live capture")
            return
        selection = self.scene.selection
        mode = after(STAGES_MODES, selection.stages)
        self._session.set_stages(mode)
        self._choose(replace(selection, stages=mode))
        self.show_message(STAGES_TEXTS[mode] + (STAGES_START if self.scene.starting(mode) else ""))

    def action_compare(self) -> None:
        self._comparing.step()
        self._repaint()

    def action_further(self) -> None:
        self._comparing.further()
        self._repaint()

    def action_theme(self) -> None:
        self._begin_choice(THEME, theme_names(), self._theme_shown.name)

    def action_ramp(self) -> None:
        if self._face.ink.coloured:
            self._begin_choice(RAMP, ramp_names(), self._ramp)
        else:
            self.show_message("no ramp to choose here: heat maps without colours show counts as characters")

    def _begin_choice(self, purpose: str, names: tuple[str, ...], now: str) -> None:
        self._kept = (self._theme_shown, self._ramp)
        self._asked = Choice(purpose, names, names.index(now) if now in names else 0)
        self._repaint()

    def _show_choice(self, choice: Choice) -> None:
        """Show a theme or a ramp while it is chosen, keep it after Enter, restore the one before after Esc."""
        self._asked = None if choice.done else choice
        worn, ramp = (self._theme_shown.name, choice.name) if choice.purpose == RAMP else (choice.name, self._ramp)
        try:
            shown, self._ramp = (load_theme(worn, ramp=ramp), ramp) if choice.kept else self._kept
        except LatmonError as error:  # a file that is invalid or removed
            self.show_message(str(error))
            return
        self._apply_theme(shown)
        if choice.done and choice.kept:
            self.show_message(
                f"{choice.purpose} {choice.name}; `{choice.purpose}: {choice.name}` in the config keeps it"
            )
        self._repaint()

    def on_truecolor(self) -> None:
        """Draw in the colours that the terminal has said to have."""
        self._depth = "truecolor"
        self.console._color_system = DEPTHS[self._depth]  # noqa: SLF001  as in __init__
        self._apply_theme(self._theme_shown)
        self._repaint()

    def _apply_theme(self, theme: Theme) -> None:
        self._theme_shown = theme
        self._face = face(theme, self._depth, missing_glyphs(os.environ))
        self.scene.ink = self._face.ink

    def _begin_aside(self, call: Callable[[], str]) -> None:
        self.run_worker(self._beside(call), name="aside")

    async def _beside(self, call: Callable[[], str]) -> None:
        """Run a slow call off the event loop, and show its result unless it is empty."""
        side = SideThread("aside")
        answer = asyncio.get_running_loop().run_in_executor(side, call)
        side.shutdown()
        try:
            message = await answer
        except (LatmonError, OSError) as error:  # a current directory that was deleted, for one
            message = str(error)
        if message:
            self.show_message(message)

    def _ask(self, purpose: str, text: str = "", *, is_replaced: bool = False) -> None:
        """Begin a typed line."""
        self._asked = Prompt(purpose, InputLine(text, is_replaced=is_replaced))
        self._repaint()

    def action_filter(self) -> None:
        self._ask(FILTER, self.scene.selection.pattern)

    def action_threshold(self) -> None:
        threshold_us = self.scene.view.selection.threshold_us
        self._ask(THRESHOLD, "" if threshold_us is None else show_duration(threshold_us), is_replaced=True)

    def _set_threshold(self, text: str) -> None:
        try:
            selection = with_threshold(self.scene.selection, text)
        except ValueError as error:
            self.show_message(str(error))
            return
        self._choose(selection)
        threshold_us = selection.threshold_us
        log = "slow I/Os are logged by the capture's own"
        if threshold_us is None:
            self.show_message(f"no threshold on this screen; {log}")
            return
        set_to = f"threshold: {show_duration(threshold_us)}"
        self.show_message(f"{set_to} on this screen, `{set_to}` in the config keeps it; {log}")

    def on_key(self, event: Key) -> None:
        """Pass every key to the line that is typed; apply a filter at once. A key without an action has a message."""
        if self._asked is None:
            contexts = [self.scene.context, *(["tour"] if self._guide.leads else [])]
            if event.is_printable and self.screen is self._main and (why := self._why_nothing(event, contexts)):
                self.show_message(why)
            return
        event.stop()
        event.prevent_default()
        if isinstance(self._asked, Choice):
            self._show_choice(self._asked.after(event.key))
            return
        self._show_prompt(self._asked.after(event.key, event.character))

    def _why_nothing(self, event: Key, contexts: list[str]) -> str:
        """Return why a key does nothing; empty for one that has an action."""
        actions = [action for context in contexts if (action := keys.action_of(event.key, context))]
        comparing = self.scene.comparison is not None
        hidden = comparing and keys.action_of(event.key, self.scene.selection.context) is not None
        if hidden and all(map(keys.is_hidden_of, actions)):
            return f"{event.character} has no effect on a comparison; Esc or D leaves it"
        if not actions:
            others = [keys.action_of(event.key.swapcase(), context) for context in contexts]
            other = "".join(f"; {action.shown}: {action.title}" for action in others[:1] if action)
            return f"{event.character} is no key of this screen{other}; ? lists its keys"
        return ""

    def on_paste(self, event: Paste) -> None:
        """Add pasted text to the line that is typed; elsewhere it is no keys."""
        if isinstance(self._asked, Prompt):
            self._show_prompt(self._asked.after("", one_line(event.text)))

    def _show_prompt(self, prompt: Prompt) -> None:
        self._asked = None if prompt.typed.done else prompt
        if prompt.purpose == FILTER:
            self._choose(replace(self.scene.selection, pattern=prompt.typed.text))
            return
        if prompt.typed.done and prompt.kept and prompt.purpose == THRESHOLD:
            self._set_threshold(prompt.typed.text)
        elif prompt.typed.done and prompt.kept:
            self._travel.typed(prompt.purpose, prompt.typed.text)
        self._repaint()

    @property
    def _takes_mouse(self) -> bool:
        return self._asked is None and self.screen is self._main and self.scene.comparison is None

    def on_mouse_down(self, event: MouseDown) -> None:
        """Begin a region on the heat map."""
        self._garbage.pressed()
        if self._takes_mouse:
            spot = keys.place(self._main.lines, int(event.screen_x), int(event.screen_y))
            self._down_y = spot.y
            self._anchor = self._dragged = keys.map_cell(spot, self.scene.view)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Move the other corner of a region that is being dragged."""
        if self._anchor is None or not event.button or not self._takes_mouse:
            return
        view = self.scene.view
        spot = keys.place(self._main.lines, int(event.screen_x), int(event.screen_y))
        cell = keys.map_cell(spot, view)
        if cell is not None and cell != self._dragged and not view.selection.splits:
            self._dragged = cell
            self._choose(keys.cursor_at(view, self._anchor.cell, cell.cell))

    async def on_mouse_up(self, event: MouseUp) -> None:
        """End a region; a click without one does what is below it, unless the button went down on another line."""
        self._garbage.pressed()
        down_y, self._down_y = self._down_y, None
        anchor, dragged, self._anchor, self._dragged = self._anchor, self._dragged, None, None
        if not self._takes_mouse or (anchor is not None and dragged != anchor):
            return
        view = self.scene.view
        spot = keys.place(self._main.lines, int(event.screen_x), int(event.screen_y))
        if spot.y >= len(spot.lines) or spot.y != down_y:
            return
        if anchor is not None:
            self._guide.stay()
            self._choose(keys.outliers_of(view, anchor))
        elif spot.y == len(spot.lines) - 1:
            await self._run_action(keys.key_at(self._main.lines[-1], spot.x, view.selection.context))
        elif (share := keys.share_of_strip(spot)) is not None:
            self._stop_seeking()
            self._travel.to_share(share)
            self._repaint()
        else:
            target = target_at(self._main.lines[spot.y], int(event.screen_x))
            await self._click_target(target, view)

    async def _click_target(self, target: Target | None, view: ViewState) -> None:
        """Do what a click on a title, a finding or a row does: a row is selected, and opened where it is selected."""
        sorted_selection = keys.sorted_by_click(target, view.selection)
        if sorted_selection is not None:
            self._choose(sorted_selection)
        elif why := keys.why_not_sorted(target):
            self.show_message(why)
        elif target is None:
            return
        elif target.kind == FINDING:
            self._choose(shown_finding(view, target.value))
        elif target.kind == EPISODE:
            await self._click_named(target.value, selected_finding(view), listed_finding(view, target.value))
        elif target.kind in (DEVICE, TILE):
            chosen = selected(view.subjects())
            name = "" if chosen is None else chosen.device.name
            top = 0 if view.selection.context == "audit" else view.selection.top
            selection = replace(view.selection, selected=str(target.value), band=None, top=top)
            await self._click_named(target.value, name, selection)
        elif target.kind == ROW:
            with_row = clicked_row(view, target.value)
            if with_row is not None:
                await self._click_named(with_row, view.selection, with_row)
        elif target.kind == PART:
            self._choose(clicked_part(view, target.value))

    async def _click_named(self, clicked: object, now: object, selection: Selection) -> None:
        """Open the row that is clicked where it is selected, else select it."""
        if clicked == now:
            await self._run_action(keys.action_of("enter", self.scene.context))
        else:
            self._choose(selection)

    async def on_mouse_scroll_up(self) -> None:
        await self._wheel("up")

    async def on_mouse_scroll_down(self) -> None:
        await self._wheel("down")

    async def _wheel(self, key: str) -> None:
        if self._takes_mouse:
            await self._run_action(keys.action_of(key, self.scene.selection.context))

    async def _run_action(self, action: Action | None) -> None:
        if action is not None:
            await self.run_action(action.call)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is allowed now; while a line is typed or a page is open, only quit is."""
        if self._asked is not None or self.screen is not self._main:
            return action in _ALWAYS
        if action == "tour":
            return self._guide.leads
        if action == "setting":
            return True
        name, by = parameters if action in ("choose", "travel") else (action, 0)
        if self.scene.comparison is not None and is_hidden(action, str(name)):
            return False
        return works(str(name), int(str(by)), self.scene.context)

    def _print_error_renderables(self) -> None:
        """Print nothing: `run` raises an unexpected error again, once the terminal is restored."""

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        driver = self._driver
        if isinstance(driver, TerminalDriver) and isinstance(renderable, CompositorUpdate):
            renderable = driver.drawing(renderable)
        super()._display(screen, renderable)

    def action_redraw(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.redraw()


def run(
    source: Backend,
    options: ScreenOptions,
    *,
    session: Session | None = None,
    preview: Backend | None = None,
    tour: Tour | None = None,
    visit: Callable[[str], None] | None = None,
) -> int:
    """Run the TUI on any source until it is left, and return the exit code.

    `session`: the live capture or the demo that is the source; `preview`: a backend whose frames are shown until the
    source's first one; `tour`: shown from its first stop on; `visit`: shows a host of a Grouped source over ssh, and
    returns when that view is left: then the source is opened again, with the same selection.
    """
    forget_size()
    depth = colour_depth(os.environ)
    while True:
        app = LatmonApp(source, options, depth=depth, session=session, preview=preview, tour=tour)
        code = asyncio.run(_run(app, takes_mouse=options.takes_mouse))
        if app._exception is not None:  # noqa: SLF001  the only place where Textual keeps it
            raise app._exception  # noqa: SLF001
        if app.failure is not None:
            message(str(app.failure))
            return app.failure.exit_code
        if session is not None and app.scene.recorded:
            message(f"recorded to {app.scene.recorded}")
        if not app.visited or visit is None:
            return code
        visit(app.visited)
        options = app.resumed(options)


async def _run(app: LatmonApp, *, takes_mouse: bool) -> int:
    loop = asyncio.get_running_loop()
    exit_codes: list[int] = []

    def ask(code: int) -> None:
        exit_codes.append(code)
        loop.call_soon_threadsafe(lambda: app.exit(return_code=code))

    with leaving(ask):
        await app.run_async(mouse=takes_mouse)
    return exit_codes[0] if exit_codes else app.return_code if app.return_code is not None else EXIT_FAILED
