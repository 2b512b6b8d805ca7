"""Keys that move in time: each as a change of the view state, a mark or a file. Knows no widget."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from latmon.capture import target
from latmon.capture.backend import Backend, Seekable
from latmon.capture.recorder import save
from latmon.support.errors import LatmonError
from latmon.support.units import wall_of
from latmon.timetravel.archive import Stamp, completed
from latmon.tui.prompt import NOTE, SEEK
from latmon.views.panels.findings import key_of
from latmon.views.screen import Scene
from latmon.views.units import clock

AT_ONCE_S = 0.015
"""Of the event loop at once for reading another time, so that a key waits for no more."""
_NEAR_S = 0.5
"""Beside a frame's interval, of a time that is called the one that was asked for."""
NOTHING = "nothing was seen yet"


class Travel:
    """The user's way through what was captured. `say` puts a sentence on the screen, `ask` begins a typed line.

    `aside` makes a call that takes its time, off the event loop, and says what it comes to; `redact`: in what is saved.
    """

    def __init__(
        self,
        scene: Scene,
        source: Backend,
        say: Callable[[str], None],
        ask: Callable[[str], None],
        mark: Callable[[str], None] | None = None,
        *,
        aside: Callable[[Callable[[], str]], object],
        redact: bool = False,
    ) -> None:
        self._scene, self._say, self._ask, self._mark = scene, say, ask, mark
        self._aside, self._redact = aside, redact
        self._played = source if isinstance(source, Seekable) else None
        self._is_to_go_on = False
        """Whether a replay goes on from the time that is being read."""

    def hold(self, _by: int) -> None:
        """Pause, or go on: live to the newest, in a replay from what is shown."""
        scene = self._scene
        if scene.goal is None:
            self._stay()
            scene.pause()
        elif self._played is None:
            scene.resume()
        elif self.reads:
            self._is_to_go_on = True
        else:
            self._go_on(self._played)

    def _go_on(self, played: Seekable) -> None:
        self._is_to_go_on = False
        try:
            self._scene.go_on()
        except LatmonError as error:  # a file that is gone: what is shown stays
            self._say(str(error))
        else:
            played.go_on(self._scene.edge.until_us)

    @property
    def reads(self) -> bool:
        """Whether something of another time is still to be read."""
        return self._scene.towards is not None

    def arrive(self) -> bool:
        """Whether a look at another time is ready, after some more of what it takes; keys have their turn meanwhile."""
        until = time.monotonic() + AT_ONCE_S
        try:
            while self._scene.towards is not None:
                if time.monotonic() > until:
                    return False
                self._scene.proceed()
        except LatmonError as error:  # a file that is gone: what is shown stays
            self._is_to_go_on = False
            self._say(str(error))
        if self._is_to_go_on and self._played is not None:
            self._go_on(self._played)
        return True

    def step(self, by: int) -> None:
        """So many intervals forward, or back."""
        stamps = self._scene.archive.stamps
        if not len(stamps):
            self._say(NOTHING)
            return
        here = self._here_us()
        there = stamps.beside(here, by)
        if self._scene.goal is not None and there.mono_us == here:
            self._say("this is the oldest that is kept" if by < 0 else "this is the newest")
        self._go(there)

    def oldest(self, _by: int) -> None:
        """To the oldest that is kept."""
        stamps = self._scene.archive.stamps
        if len(stamps):
            self._go(stamps[0])

    def newest(self, _by: int) -> None:
        """To the edge; in a replay to the end of the recording."""
        stamps = self._scene.archive.stamps
        if self._played is None:
            self._scene.resume()
        elif len(stamps):
            self._go(stamps[-1])

    def opened(self) -> None:
        """The source is open: a replay that is to be done at once begins at its end."""
        if self._played is not None and self._played.speed == 0:
            self.newest(0)

    def seek(self, _by: int) -> None:
        """To a time that is typed."""
        self._ask(SEEK)

    def save(self, _by: int) -> None:
        """What is on the screen, as a recording."""
        scene = self._scene
        origin = scene.store.origin
        last = scene.history.window.last
        if origin is None or last is None:
            self._say(NOTHING)
            return
        after = last.mono_us - scene.history.window.length_us
        frames = completed(scene.archive.frames(after, last.mono_us), scene.archive.known(after))
        name = target.recording_name("" if self._redact else origin.host, last.wall)

        def saved() -> str:
            directory = target.default_directory(Path.cwd(), os.environ)
            path = target.unused(Path(name) if directory == Path.cwd() else directory / name)
            many = save(frames, origin, path, redact=self._redact)
            return f"saved {many} window{'s' * (many != 1)}, up to {clock(last.wall)}, to {path}"

        self._say("saving …")
        self._aside(saved)

    def note(self, _by: int) -> None:
        """A mark, with a note that is typed."""
        if self._mark is None:
            self._say("a recording isn't changed: marks are put while it is made")
        else:
            self._ask(NOTE)

    def to_finding(self) -> None:
        """To the end of a finding that is over, whose evidence was asked for."""
        key, found = self._scene.choice.finding, self._scene.watched.standing
        over = next((one for one in found.over if key_of(one) == key), None)
        if over is not None and len(self._scene.archive.stamps):
            self._go(self._scene.archive.stamps.nearest(over.end_us))

    def typed(self, purpose: str, text: str) -> None:
        """A line that was asked for is ready."""
        if purpose == NOTE and self._mark is not None and text.strip():
            self._mark(text.strip())
            self._say(f"marked: {text.strip()}")
        elif purpose == SEEK and text.strip():
            self._to(text)

    def _to(self, text: str) -> None:
        stamps = self._scene.archive.stamps
        if not len(stamps):
            self._say(NOTHING)
            return
        here = self._scene.goal or stamps.nearest(self._here_us())
        try:
            wall = wall_of(text, here.wall)
        except LatmonError as error:
            self._say(str(error))
            return
        found = stamps.at_wall(wall, here.mono_us)
        interval_s = self._scene.history.interval_us / 1e6
        self._go(found)
        if abs(found.wall - wall) > interval_s + _NEAR_S:
            first, last = (clock(stamps[at].wall) for at in (0, -1))
            self._say(f"{clock(wall)} isn't there: {clock(found.wall)} is the closest; there is {first} to {last}")

    def _here_us(self) -> int:
        at = self._scene.goal
        return self._scene.edge.until_us if at is None else at.mono_us

    def _go(self, there: Stamp) -> None:
        self._stay()
        self._scene.travel(there)

    def _stay(self) -> None:
        """A replay stands while another time of it is looked at; a live capture goes on."""
        self._is_to_go_on = False
        if self._played is not None:
            self._played.hold()


TRAVEL: Mapping[str, Callable[[Travel, int], None]] = MappingProxyType(
    {
        "hold": Travel.hold,
        "step": Travel.step,
        "oldest": Travel.oldest,
        "newest": Travel.newest,
        "seek": Travel.seek,
        "save": Travel.save,
        "note": Travel.note,
    },
)
