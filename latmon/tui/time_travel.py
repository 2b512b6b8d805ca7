"""Keys that move in time: each changes the scene, sets a mark or saves a file; and the compare key. Uses no widget.

The compare key: A is the window on the screen, B the time after it. A live capture gets a mark at the end of A and of
B. Its recording can be compared again by `latmon diff FILE@60s..A FILE@..B`, and the settings in the two marks are
those of A and of B: the last ones that were read within the span, because a setting may be changed a moment before or
after the key.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from latmon.capture import target
from latmon.capture.backend import Backend, Seekable
from latmon.capture.recorder import save
from latmon.findings.rule import FLEET
from latmon.model.frame import Frame, Mark, Origin, Settings
from latmon.model.redaction import Redaction
from latmon.model.stages import OPS
from latmon.recording.archive import Stamp, TimelineEvent, completed
from latmon.support import streams
from latmon.support.errors import LatmonError
from latmon.support.theme import Theme
from latmon.support.units import clock, spelled, wall_of
from latmon.tui.commands import NOTE, SEEK
from latmon.views.panels.findings import key_of
from latmon.views.screen import Scene
from latmon.views.selection import after, shown

if TYPE_CHECKING:
    from latmon.diff.blocks import CaptureSpan
    from latmon.diff.comparison import Comparison

AT_ONCE_S = 0.015
"""Most time of the event loop per part of reading, so that a key waits no longer."""
_NEAR_S = 0.5
"""Tolerance, besides a frame's interval, of a time that counts as the requested one."""
NOTHING = "nothing was captured yet"
KINDS = ("all", "finding", "mark", "burst")
"""Kinds of events that keys go to."""
STAYING = frozenset({"kind", "note", "save"})
"""Keys of TRAVEL that do not move in time."""
_BEFORE_END = 3
"""The worst I/O is so many parts of a window before its end."""
_FEWEST = 6
"""Least frames of a side."""
_MOST_SIDES = 16
_SETTINGS_US = 5_000_000
"""Least time from one reading of the settings to the next, once A is set. One takes some 4 ms, more with many disks."""
_LONGEST_US = 120_000_000
"""Longest B: to read 600 windows took 8 s of CPU, during which no key was taken."""


class Travel:
    """The time travel of a session. `show_message` shows a sentence, `ask` begins a typed line.

    `aside` runs a slow call off the event loop and shows its result; `redaction`: that of saved files.
    """

    def __init__(
        self,
        scene: Scene,
        source: Backend,
        show_message: Callable[[str], None],
        ask: Callable[[str], None],
        mark: Callable[[str], None] | None = None,
        *,
        aside: Callable[[Callable[[], str]], object],
        redaction: Redaction | None = None,
    ) -> None:
        self._scene, self._show_message, self._ask, self._mark = scene, show_message, ask, mark
        self._aside, self._redaction = aside, redaction
        self._played = source if isinstance(source, Seekable) else None
        self._is_to_go_on = False
        """Whether a replay continues once the time is read."""
        self._kind = KINDS[0]
        self._worst: Stamp | None = None
        """Place of the slowest I/O of a replay, until the time around it is read."""

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
            self._show_message(str(error))
        else:
            played.go_on(self._scene.edge.until_us)

    @property
    def reads(self) -> bool:
        """Return whether another time is still being read, or another window summed."""
        return self._scene.is_reading

    def arrive(self) -> bool:
        """Read another time, or sum another window, for AT_ONCE_S at most; return whether it is complete."""
        until = time.monotonic() + AT_ONCE_S
        try:
            while self._scene.is_reading:
                if time.monotonic() > until:
                    return False
                self._scene.proceed()
        except LatmonError as error:  # a removed file: the screen stays as it is
            self._is_to_go_on = False
            self._show_message(str(error))
        self._reach_worst()
        if self._is_to_go_on and self._played is not None:
            self._go_on(self._played)
        return True

    def step(self, by: int) -> None:
        """Move by a number of intervals, forward or back."""
        stamps = self._scene.archive.stamps
        if not len(stamps):
            self._show_message(NOTHING)
            return
        here_us = self._here_us()
        stamp = stamps.beside(here_us, by)
        is_end = self._scene.goal is not None and stamp.mono_us == here_us
        self._go(stamp)
        if is_end:
            self._show_message("this is the oldest that is kept" if by < 0 else "this is the newest")

    def end(self, by: int) -> None:
        """Go to the oldest stored frame (below 0), else to the live edge, in a replay to the end of the recording."""
        stamps = self._scene.archive.stamps
        if by > 0 and self._played is None:
            self._scene.resume()
        elif len(stamps):
            self._go(stamps[-1 if by > 0 else 0])

    def opened(self) -> None:
        """Show the end of a replay without a pace, once it is open."""
        if self._played is not None and self._played.speed == 0:
            self.end(1)

    def survey(self) -> None:
        """Begin to evaluate the rules over all of a replay, behind the screen; look for its bursts now."""
        self._scene.archive.stamps.bursts()  # takes 30 ms for 600,000 frames, too long for a key
        self._scene.findings_state.survey(self._scene.archive, self._scene.edge.store.origin)

    def to_worst(self) -> None:
        """Go to the slowest I/O of a replay, a third of a window before the end."""
        stamps = self._scene.archive.stamps
        slowest = max(stamps.slowest_us, default=0)
        if slowest:
            at = stamps[stamps.slowest_us.index(slowest)]
            self._go(stamps.nearest(at.mono_us + self._scene.selection.window_us // _BEFORE_END))
            self._worst = at
            if not self.reads:
                self._reach_worst()

    def _reach_worst(self) -> None:
        """Once the time of the slowest I/O is read, order the rows by it and select its device.

        The message names the device, also where the filter hides it or the user has selected another one.
        """
        scene, at, self._worst = self._scene, self._worst, None
        if at is None:
            return
        scene.forget_order()
        window = scene.history.window
        devices = scene.history.devices()
        slowest_us = {device.name: window.latency(device.name, OPS).max_bound or 0 for device in devices}
        device = max(slowest_us, key=slowest_us.__getitem__, default="")
        is_hidden = not any(shown_device.name == device for shown_device in shown(devices, scene.selection))
        if not is_hidden and not scene.selection.is_selected:
            scene.choose(replace(scene.selection, selected=device, offered=device))
        which = f"{device}, which the filter hides," if is_hidden else device
        self._show_message(
            f"the slowest I/O, {spelled(slowest_us.get(device, 0))} on {which} at {clock(at.wall)}; "
            "Space plays on from here, g goes to the beginning"
        )

    def to_share(self, share: float) -> None:
        """Go to a share of the whole time."""
        ends = self._scene.archive.stamps.mono_us
        self._go(self._scene.archive.stamps.nearest(ends[0] + round((ends[-1] - ends[0]) * share)))

    def event(self, by: int) -> None:
        """Go to the next or the previous finding, mark or outlier burst."""
        stamps, here_us, known = self._scene.archive.stamps, self._here_us(), self._events()

        def end_us(timeline_event: TimelineEvent) -> int:
            return stamps.nearest(timeline_event.mono_us).mono_us

        at = bisect_right(known, here_us, key=end_us) if by > 0 else bisect_left(known, here_us, key=end_us) - 1
        if not 0 <= at < len(known):
            what = "finding, mark or outlier burst" if self._kind == KINDS[0] else self._kind
            self._show_message(f"no {'later' if by > 0 else 'earlier'} {what} is known{self._caveat}")
            return
        self._go(stamps.nearest(known[at].mono_us))
        self._show_message(f"{clock(known[at].wall)} {known[at].text} ({at + 1} of {len(known)})")

    def kind(self, _by: int) -> None:
        """Choose the events that `event` goes to."""
        self._kind = after(KINDS, self._kind)
        what = "every finding, mark and outlier burst" if self._kind == KINDS[0] else f"every {self._kind}"
        self._show_message(f"( and ) go to {what}; {len(self._events()):,} are known{self._caveat}")

    def _events(self) -> list[TimelineEvent]:
        """Return the events of the chosen kind, oldest first."""
        past = self._scene.archive
        if not len(past.stamps):
            return []
        begin_us = past.stamps[0].mono_us
        events_by_kind: dict[str, Sequence[TimelineEvent]] = {
            "finding": self._scene.findings_state.begins,
            "mark": [moment for moment in past.moments if moment.kind == "mark"],
            "burst": past.stamps.bursts(),
        }
        wanted = KINDS[1:] if self._kind == KINDS[0] else (self._kind,)
        kept = [
            timeline_event
            for kind in wanted
            for timeline_event in events_by_kind[kind]
            if begin_us <= timeline_event.mono_us
        ]
        return sorted(kept, key=lambda timeline_event: timeline_event.mono_us)

    @property
    def _caveat(self) -> str:
        """Return why wanted events may be missing; empty where all are known."""
        if (scanned := self._scene.archive.scanned) < 1:
            return f"; {scanned:.0%} of the recording is read"
        why = self._scene.findings_state.surveyed if self._kind in ("all", "finding") else ""
        return f"; {why}" if why else ""

    def seek(self, _by: int) -> None:
        """Ask for a time to go to."""
        self._ask(SEEK)

    def save(self, _by: int) -> None:
        """Save the window that is shown as a recording."""
        scene = self._scene
        origin = scene.store.origin
        last = scene.history.window.last
        if origin is None or last is None or not len(scene.archive.stamps):  # the kernel's counters are a preview
            self._show_message(NOTHING)
            return
        if self._redaction and origin.backend == FLEET:
            self._show_message("not saved: devices are named by hosts, which --redact leaves out of files (R records)")
            return
        after = last.mono_us - scene.history.window.length_us
        frames = completed(scene.archive.frames(after, last.mono_us), scene.archive.known(after))
        name = target.recording_name("" if self._redaction else origin.host, last.wall)

        def saved() -> str:
            directory = target.default_directory(os.environ)
            path = target.unused(directory / name)
            many = save(frames, origin, path, redaction=self._redaction)
            return f"saved {many} window{'s' * (many != 1)}, up to {clock(last.wall)}: {path.name} in {path.parent}"

        self._show_message("saving …")
        self._aside(saved)

    def picture(self, size: tuple[int, int], theme: Theme) -> None:
        """Save what is on the screen of (columns, lines) as an SVG."""
        scene = self._scene
        origin, last = scene.store.origin, scene.history.window.last
        if origin is None or last is None:
            self._show_message(NOTHING)
            return
        if self._redaction:
            self._show_message("not saved: a picture shows names that --redact leaves out of files")
            return
        from latmon.exporters.screen import screenshot  # noqa: PLC0415 - only a picture needs it

        data = screenshot(scene, origin.host, size, theme)
        name = target.recording_name(origin.host, last.wall, ".svg")

        def saved() -> str:
            path = target.unused(target.default_directory(os.environ) / name, ".svg")
            with streams.whole(path) as file:
                file.write(data)
            return f"saved the picture {path.name} in {path.parent}"

        self._aside(saved)

    def find_directory(self) -> str:
        """Find the directory in which the collector, in the same one as this process, makes a recording.

        Its file system may hang. Return an empty sentence: the notice of the recording names the directory.
        """
        with suppress(LatmonError, OSError):  # then there is no recording either
            self._scene.expect_recording(target.default_directory(os.environ))
        return ""

    def note(self, _by: int) -> None:
        """Ask for the note of a mark."""
        if self._mark is None:
            self._show_message("a recording isn't changed: set marks during the capture")
        else:
            self._ask(NOTE)

    def to_finding(self) -> None:
        """Go to the end of the selected finding, where it has ended."""
        key, current_findings = self._scene.selection.finding, self._scene.findings_state.current
        ended = next((episode for episode in current_findings.ended if key_of(episode) == key), None)
        if ended is not None and len(self._scene.archive.stamps):
            self._go(self._scene.archive.stamps.nearest(ended.end_us))

    def typed(self, purpose: str, text: str) -> None:
        """Use a typed line."""
        if purpose == NOTE and self._mark is not None and text.strip():
            self._mark(text.strip())
            self._show_message(f"marked: {text.strip()}")
        elif purpose == SEEK and text.strip():
            self._to(text)

    def _to(self, text: str) -> None:
        stamps = self._scene.archive.stamps
        if not len(stamps):
            self._show_message(NOTHING)
            return
        stamp = self._scene.goal or stamps.nearest(self._here_us())
        try:
            wall = wall_of(text, stamp.wall)
        except LatmonError as error:
            self._show_message(str(error))
            return
        stamp_there = stamps.at_wall(wall, stamp.mono_us)
        interval_s = self._scene.history.interval_us / 1e6
        self._go(stamp_there)
        if abs(stamp_there.wall - wall) > interval_s + _NEAR_S:
            first, last = (clock(stamps[at].wall) for at in (0, -1))
            self._show_message(
                f"{clock(wall)} wasn't captured: {clock(stamp_there.wall)} is the closest; there is {first} to {last}"
            )

    def _here_us(self) -> int:
        at = self._scene.goal
        return self._scene.edge.until_us if at is None else at.mono_us

    def _go(self, stamp: Stamp) -> None:
        self._stay()
        self._scene.message = ""  # it is about the time that is left
        self._scene.travel(stamp)

    def _stay(self) -> None:
        """Hold a replay while another time of it is shown; a live capture continues."""
        self._is_to_go_on = False
        self._worst = None
        if self._played is not None:
            self._played.hold()


TRAVEL: Mapping[str, Callable[[Travel, int], None]] = MappingProxyType(
    {
        "hold": Travel.hold,
        "step": Travel.step,
        "end": Travel.end,
        "event": Travel.event,
        "kind": Travel.kind,
        "seek": Travel.seek,
        "save": Travel.save,
        "note": Travel.note,
    },
)


@dataclass(slots=True)
class _Side:
    """A period, and the mark that was set when the key was pressed."""

    period: CaptureSpan
    start_us: int
    noted: Settings
    """Settings by the header and the marks before its end."""
    behind_us: int | None
    """The mark is in a frame after this time; None: no mark with this side's settings is expected."""
    read: Settings | None = None
    """Settings in that mark."""
    put_us: int = 0
    """Time of the mark, once it is known."""

    def take(self, origin: Origin, frame: Frame) -> None:
        """Look for the mark in a frame."""
        from latmon.diff.conditions import with_marks  # noqa: PLC0415

        for mark in frame.marks:
            if mark.text == self.period.name:
                self.behind_us, self.put_us = None, mark.mono_us
                self.read = None if mark.changed is None else with_marks(origin.settings, [mark])


class Comparing:
    """The comparison of A and B while the key is used."""

    def __init__(
        self,
        scene: Scene,
        show_message: Callable[[str], None],
        mark: Callable[[str, tuple[int, int]], None] | None = None,
        read_settings: Callable[[], None] | None = None,
        *,
        is_live: bool = True,
    ) -> None:
        """`mark` sets a mark with the settings of a span, `read_settings` reads them for a later mark.

        A recording is not live: no setting of it can be changed.
        """
        self._is_live = is_live
        self._scene, self._show_message, self._mark = scene, show_message, mark
        self._read_settings, self._read_us = read_settings, 0
        self._sides: list[_Side] = []
        self._pair: Comparison | None = None
        """Of the first two sides: their settings may become known later, their latencies don't change."""

    def step(self) -> None:
        """Handle the key: set A, set B, or leave the comparison."""
        if self._scene.is_preview:
            self._show_message(
                "nothing to compare yet: the probes are starting, and their windows are what is compared"
            )
        elif self._scene.comparison is not None:
            self.leave()
        elif not self._sides:
            self._begin()
        else:
            self._add()

    def further(self) -> None:
        """Handle the key of a further span: it needs A and B."""
        if self._scene.comparison is not None:
            self._add()
        elif self._sides:
            self._show_message("N adds a span to A and B: press D for B first")
        else:
            self._show_message("N adds a span to a comparison: press D for A, which is this window, and D again for B")

    def leave(self) -> None:
        """Show the panel again that the comparison replaced."""
        self._scene.comparison, self._sides, self._pair = None, [], None
        self._scene.selection = replace(self._scene.selection, top=0)

    def arrived(self) -> None:
        """Read the marks, which arrive after their keys, with the settings of their sides."""
        edge = self._scene.edge.store
        if edge.origin is None:
            return
        until_us = self._scene.edge.until_us
        if self._read_settings is not None and self._sides and until_us - self._read_us >= _SETTINGS_US:
            self._read_us = until_us
            self._read_settings()
        waiting = [side for side in self._sides if side.behind_us is not None]
        for side in waiting:
            for frame in reversed(edge.frames):
                if side.behind_us is None or frame.mono_us <= side.behind_us:
                    break
                side.take(edge.origin, frame)
        if self._scene.comparison is not None and any(side.behind_us is None for side in waiting):
            self._show()

    def _begin(self) -> None:
        origin, frames = self._scene.store.origin, self._shown()
        if origin is None or not frames:
            self._show_message("there is nothing to compare yet")
            return
        self._sides = [self._side("A", origin, frames)]
        a = self._sides[0].period
        can_change = self._is_live and self._scene.ended is None
        more = "change a setting, wait" if can_change else "go to another time, as with [ or {"
        self._show_message(f"A is {clock(a.start_wall)} to {clock(a.end_wall)}: {more}, then press D again for B")

    def _add(self) -> None:
        """Add what came since the last span: as B beside A, then as further rows of a sweep."""
        last = self._sides[-1]
        frames = self._since(last)
        origin = self._scene.store.origin
        name, key = last.period.name, "D" if len(self._sides) == 1 else "N"
        if len(self._sides) == _MOST_SIDES:
            self._show_message(f"a sweep has at most {_MOST_SIDES} spans: `latmon diff` compares more of a recording")
        elif origin is None or len(frames) < _FEWEST:
            many = f"{len(frames)} window{'s' * (len(frames) != 1)}"
            is_live = self._scene.ended is None
            more = "wait" if is_live else "go to another time, as with ["
            where = f"since {name}" if is_live else "outside of the compared spans"
            least = f"a comparison needs {_FEWEST}"
            self._show_message(f"only {many} {where}, and {least}: {more}, then press {key} again")
        else:
            self._sides = [*self._sides, self._side(chr(ord(name) + 1), origin, frames)]
            self._scene.selection = replace(self._scene.selection, top=0)
            self._scene.message = ""  # it names the key that was pressed
            self._show()

    def _show(self) -> None:
        """Show two spans beside each other, or more as the rows of a sweep, with the settings that are known by now."""
        from latmon.diff.comparison import compare, sweep_of  # noqa: PLC0415
        from latmon.diff.report import pair_report, sweep_report  # noqa: PLC0415

        _settle(self._sides)
        spans = [side.period for side in self._sides]
        if len(spans) > len("AB"):
            self._scene.comparison = sweep_report(sweep_of(spans))
            return
        if self._pair is None:
            self._pair = compare(*spans)
        self._scene.comparison = pair_report(self._pair)

    def _since(self, side: _Side) -> list[Frame]:
        """Return the frames of B: of a live capture the last 2 min since A, else those shown that are in no span.

        The frame of A's mark is left out.
        """
        end_us = side.period.end_us
        shown = self._shown()
        if not shown or shown[-1].mono_us < end_us:
            return self._outside(shown)
        newest_us = self._scene.edge.until_us
        if self._mark is not None and shown[-1].mono_us >= newest_us:
            shown = list(self._scene.archive.frames(max(end_us, newest_us - _LONGEST_US), newest_us)) or shown
        return [each for each in shown if each.mono_us - each.dt_us >= max(end_us, side.put_us)]

    def _shown(self) -> list[Frame]:
        """Return the frames that are shown with all tables: those of the window lack what is summed on demand."""
        frames = list(self._scene.history.window.frames)
        if not frames:
            return frames
        return list(self._scene.archive.frames(frames[0].mono_us - frames[0].dt_us, frames[-1].mono_us)) or frames

    def _outside(self, frames: list[Frame]) -> list[Frame]:
        """Return the last frames in a row that are in no span: an I/O in two of them would be compared with itself."""
        spans = [(side.start_us, side.period.end_us) for side in self._sides]
        free = [f for f in frames if all(f.mono_us <= start or f.mono_us - f.dt_us >= end for start, end in spans)]
        after = max((end for _, end in spans if free and end <= free[-1].mono_us), default=0)
        return [each for each in free if each.mono_us > after]

    def _side(self, name: str, origin: Origin, frames: list[Frame]) -> _Side:
        from latmon.diff.blocks import period_of  # noqa: PLC0415 - a start would take 0.06 s longer
        from latmon.diff.conditions import with_marks  # noqa: PLC0415

        capture_span = period_of(name, origin, self._scene.store.devices.values(), frames)
        noted = with_marks(origin.settings, self._noted(capture_span.end_us))
        capture_span.settings = noted
        newest_us = self._scene.edge.until_us
        if self._mark is not None:
            self._mark(name, (frames[0].mono_us - frames[0].dt_us, capture_span.end_us))
        # present settings aren't those of an earlier time
        is_now = self._mark is not None and capture_span.end_us >= newest_us
        current_findings = self._scene.findings_state.current
        if current_findings.evaluated:
            began = (episode for episode in current_findings.ended if episode.begin_wall >= capture_span.start_wall)
            capture_span.findings = {
                episode.worst.key: episode.worst.summary for episode in (*current_findings.lasting, *began)
            }
            capture_span.not_evaluated = frozenset(
                rule for rules in current_findings.not_evaluated.values() for rule in rules
            )
        return _Side(capture_span, frames[0].mono_us - frames[0].dt_us, noted, newest_us if is_now else None)

    def _noted(self, until_us: int) -> list[Mark]:
        """Return the marks before a time, also those before the window."""
        moments = tuple(self._scene.archive.moments)
        return [
            Mark(moment.text, moment.mono_us, moment.wall, moment.changed)
            for moment in moments
            if moment.kind == "mark" and moment.mono_us <= until_us
        ]


def _settle(sides: Sequence[_Side]) -> None:
    """Use for all sides the settings read at the keys, or for all the noted ones.

    A mixture would show a change before A as a difference between A and B.
    """
    pending = any(side.behind_us is not None for side in sides)
    known = [side.read for side in sides if side.read is not None]
    for fleet_side in sides:
        if len(known) == len(sides) and fleet_side.read is not None:
            fleet_side.period.settings = fleet_side.read
        elif known or pending:  # settings known for some sides only are no difference
            fleet_side.period.settings = known[-1] if known else sides[0].noted
        else:
            fleet_side.period.settings = fleet_side.noted
