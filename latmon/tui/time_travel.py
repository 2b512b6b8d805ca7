"""Keys that move in time: each changes the scene, sets a mark or saves a file. Uses no widget."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from latmon.capture import target
from latmon.capture.backend import Backend, Seekable
from latmon.capture.recorder import save
from latmon.exporters.screen import screenshot
from latmon.support import streams
from latmon.support.errors import LatmonError
from latmon.support.theme import Theme
from latmon.support.units import spelled, wall_of
from latmon.timetravel.archive import Stamp, completed
from latmon.timetravel.events import TimelineEvent, bursts
from latmon.tui.prompt import NOTE, SEEK
from latmon.views.panels.findings import key_of
from latmon.views.screen import Scene
from latmon.views.selection import after
from latmon.views.units import clock

AT_ONCE_S = 0.015
"""Most time of the event loop per part of reading, so that a key waits no longer."""
_NEAR_S = 0.5
"""Tolerance, besides a frame's interval, of a time that counts as the requested one."""
NOTHING = "nothing was captured yet"
KINDS = ("all", "finding", "mark", "burst")
"""Kinds of events that keys go to."""
_BEFORE_END = 3
"""The worst I/O is so many parts of a window before its end."""


class Travel:
    """The time travel of a session. `say` shows a sentence, `ask` begins a typed line.

    `aside` runs a slow call off the event loop and shows its result; `redact`: leave foreign names out of saved files.
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
        """Whether a replay continues once the time is read."""
        self._kind = KINDS[0]
        self._reorders = False
        """Whether rows get a new order once the time is read."""

    def hold(self, _by: int) -> None:
        """Pause, or continue: live at the newest frame, in a replay from the time that is shown."""
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
        except LatmonError as error:  # a removed file: the screen stays as it is
            self._say(str(error))
        else:
            played.go_on(self._scene.edge.until_us)

    @property
    def reads(self) -> bool:
        """Return whether another time is still being read."""
        return self._scene.towards is not None

    def arrive(self) -> bool:
        """Read another time for AT_ONCE_S at most; return whether it is complete."""
        until = time.monotonic() + AT_ONCE_S
        try:
            while self._scene.towards is not None:
                if time.monotonic() > until:
                    return False
                self._scene.proceed()
        except LatmonError as error:  # a removed file: the screen stays as it is
            self._is_to_go_on = False
            self._say(str(error))
        if self._reorders:
            self._reorders = False
            self._scene.forget_order()
        if self._is_to_go_on and self._played is not None:
            self._go_on(self._played)
        return True

    def step(self, by: int) -> None:
        """Move by a number of intervals, forward or back."""
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
        """Go to the oldest stored frame."""
        stamps = self._scene.archive.stamps
        if len(stamps):
            self._go(stamps[0])

    def newest(self, _by: int) -> None:
        """Go to the live edge; in a replay to the end of the recording."""
        stamps = self._scene.archive.stamps
        if self._played is None:
            self._scene.resume()
        elif len(stamps):
            self._go(stamps[-1])

    def opened(self) -> None:
        """Show the end of a replay without a pace, once it is open."""
        if self._played is not None and self._played.speed == 0:
            self.newest(0)

    def to_worst(self) -> bool:
        """Go to the slowest I/O of a replay, a third of a window before the end; return False while it isn't known."""
        past = self._scene.archive
        if not past.scanned:
            return False
        stamps = past.stamps
        slowest = max(stamps.slowest_us, default=0)
        self._scene.findings_state.survey(past, self._scene.edge.store.origin)
        if slowest:
            at = stamps[stamps.slowest_us.index(slowest)]
            self._reorders = True
            self._go(stamps.nearest(at.mono_us + self._scene.selection.window_us // _BEFORE_END))
            self._say(f"the slowest I/O, {spelled(slowest)} at {clock(at.wall)}; space plays on, g is the begin")
        return True

    def to_share(self, share: float) -> None:
        """Go to a share of the whole time."""
        ends = self._scene.archive.stamps.mono_us
        self._go(self._scene.archive.stamps.nearest(ends[0] + round((ends[-1] - ends[0]) * share)))

    def event(self, by: int) -> None:
        """Go to the next or the previous finding, mark or outlier burst."""
        stamps, here = self._scene.archive.stamps, self._here_us()
        known = self._events()
        ends = [stamps.nearest(one.mono_us) for one in known]
        found = [at for at, end in enumerate(ends) if (end.mono_us - here) * by > 0]
        if not found:
            what = "finding, mark or outlier burst" if self._kind == KINDS[0] else self._kind
            self._say(f"no {'later' if by > 0 else 'earlier'} {what} is known")
            return
        at = found[0] if by > 0 else found[-1]
        self._go(ends[at])
        self._say(f"{clock(known[at].wall)} {known[at].text} ({at + 1} of {len(known)})")

    def kind(self, _by: int) -> None:
        """Choose the events that `event` goes to."""
        self._kind = after(KINDS, self._kind)
        what = "every finding, mark and outlier burst" if self._kind == KINDS[0] else f"every {self._kind}"
        self._say(f"( and ) go to {what}; {len(self._events())} are known")

    def _events(self) -> list[TimelineEvent]:
        past = self._scene.archive
        some = [one for one in past.moments if one.kind == "mark"]
        some += self._scene.findings_state.begins
        some += bursts(past.stamps.mono_us, past.stamps.wall, past.stamps.slowest_us)
        wanted = KINDS[1:] if self._kind == KINDS[0] else (self._kind,)
        kept = [one for one in some if one.kind in wanted and past.stamps[0].mono_us <= one.mono_us]
        return sorted(kept, key=lambda one: one.mono_us)

    def seek(self, _by: int) -> None:
        """Ask for a time to go to."""
        self._ask(SEEK)

    def save(self, _by: int) -> None:
        """Save the window that is shown as a recording."""
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

    def picture(self, size: tuple[int, int], theme: Theme) -> None:
        """Save what is on the screen of (columns, lines) as an SVG."""
        scene = self._scene
        origin, last = scene.store.origin, scene.history.window.last
        if origin is None or last is None:
            self._say(NOTHING)
            return
        if self._redact:
            self._say("not saved: a picture shows names that --redact leaves out of files")
            return
        data = screenshot(scene, origin.host, size, theme)
        name = target.recording_name(origin.host, last.wall, ".svg")

        def saved() -> str:
            path = target.unused(target.default_directory(Path.cwd(), os.environ) / name, ".svg")
            with streams.whole(path) as file:
                file.write(data)
            return f"saved the picture {path.name} in {path.parent}"

        self._aside(saved)

    def find_directory(self) -> str:
        """Find the directory in which the collector, in the same one as this process, makes a recording.

        Its file system may hang. Return an empty sentence: the notice of the recording names the directory.
        """
        with suppress(LatmonError, OSError):  # then there is no recording either
            self._scene.expect_recording(target.default_directory(Path.cwd(), os.environ))
        return ""

    def note(self, _by: int) -> None:
        """Ask for the note of a mark."""
        if self._mark is None:
            self._say("a recording isn't changed: set marks during the capture")
        else:
            self._ask(NOTE)

    def to_finding(self) -> None:
        """Go to the end of the selected finding, where it has ended."""
        key, found = self._scene.selection.finding, self._scene.findings_state.current
        over = next((one for one in found.over if key_of(one) == key), None)
        if over is not None and len(self._scene.archive.stamps):
            self._go(self._scene.archive.stamps.nearest(over.end_us))

    def typed(self, purpose: str, text: str) -> None:
        """Use a typed line."""
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
            self._say(f"{clock(wall)} wasn't captured: {clock(found.wall)} is the closest; there is {first} to {last}")

    def _here_us(self) -> int:
        at = self._scene.goal
        return self._scene.edge.until_us if at is None else at.mono_us

    def _go(self, there: Stamp) -> None:
        self._stay()
        self._scene.travel(there)

    def _stay(self) -> None:
        """Hold a replay while another time of it is shown; a live capture continues."""
        self._is_to_go_on = False
        if self._played is not None:
            self._played.hold()


TRAVEL: Mapping[str, Callable[[Travel, int], None]] = MappingProxyType(
    {
        "hold": Travel.hold,
        "step": Travel.step,
        "oldest": Travel.oldest,
        "newest": Travel.newest,
        "event": Travel.event,
        "kind": Travel.kind,
        "seek": Travel.seek,
        "save": Travel.save,
        "note": Travel.note,
    },
)
