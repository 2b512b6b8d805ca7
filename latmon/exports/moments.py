"""The TUI's screen at moments of a recording, as lines, without a terminal. Knows no format of pictures.

The last line, where the TUI has its keys, says when it was and where it is from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from latmon.exports.source import Damage, Source
from latmon.exports.wish import Wish, moment_us
from latmon.findings.facts import WINDOW_US
from latmon.findings.thresholds import DEFAULT
from latmon.mark import Mark
from latmon.model import Frame
from latmon.recording import Gap
from latmon.text import clean
from latmon.views.choice import Choice
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span
from latmon.views.lines import width as line_width
from latmon.views.scene import Scene
from latmon.views.units import moment
from latmon.views.whole_screen import screen_lines

_LEAD_US = 600_000_000
"""Of the recording before a picture: what the longest window of the screen looks back on."""
_PANELS = ("maps", "zoom")
_WITH_FINDINGS = ("overview", "findings")
FOLD_OF = {"offsets": "second", "ticks": "tick"}


class Moments:
    """A scene that is fed window by window."""

    def __init__(self, source: Source, wish: Wish, ink: Ink) -> None:
        self._source, self._size = source, wish.size
        on_overview = wish.screen in (*_PANELS, *FOLD_OF)
        screen = "overview" if on_overview else wish.screen
        panel = wish.screen if wish.screen in _PANELS else "overview"
        choice = Choice(screen=screen, panel=panel, globs=source.globs, fold=FOLD_OF.get(wish.screen, ""))
        rules = DEFAULT if screen in _WITH_FINDINGS else None
        self._scene = Scene(choice, mode="REPLAY", ink=ink, findings=rules)
        self._scene.watched.at_once, self._scene.watched.late_us = False, WINDOW_US
        self._scene.store.origin = source.origin
        self.last: Frame | None = None

    def append(self, frame: Frame) -> None:
        """One window further."""
        self._scene.append(frame)
        self.last = frame

    def lines(self) -> list[Line]:
        """The screen as it is now."""
        self._scene.watched.finish()
        return screen_lines(self._scene, self._caption(), *self._size)

    def _caption(self) -> Line:
        name = clean(self._source.recording.path.name, max(self._size[0] - 30, 8))
        when = moment(self.last.wall)[:-5] if self.last else "no window"
        left = (Span(f" {when}  ", "dim"), Span(name, "dim"))
        right = f"latmon {self._source.origin.latmon}{', redacted' if self._source.redacted else ''} "
        room = self._size[0] - line_width(left) - len(right)
        return (*left, Span(" " * room + right, "dim")) if room > 0 else left


def windows(source: Source, since_us: int) -> Iterator[Frame]:
    """Windows from then on, and the ones that a screen of then looks back on; gaps and damage are said in the next."""
    reason, said, marks = "", [], []
    for item in source.told(max(since_us - _LEAD_US, 0)):
        if isinstance(item, Gap):
            reason = "" if item.reason == "windows-missing" else item.reason
        elif isinstance(item, Damage):
            said.append(item.text)
        elif isinstance(item, Mark):
            marks.append(item)
        else:
            yield _with(item, reason, said, marks)
            reason, said, marks = "", [], []


def bounds(source: Source, wish: Wish, default_us: int) -> tuple[int, int | None]:
    """CLOCK_MONOTONIC of what was asked for: from, until."""
    begin = moment_us(wish.at, source.origin) if wish.at else default_us
    return begin, None if wish.duration_us is None else begin + wish.duration_us


def _with(frame: Frame, reason: str, said: list[str], marks: list[Mark]) -> Frame:
    notice = "; ".join(
        chain([frame.health.notice] if frame.health.notice else [], (f"recording: {s}" for s in said[-1:]))
    )
    health = replace(frame.health, notice=notice)
    return replace(frame, gap=frame.gap or reason, health=health, marks=(*marks, *frame.marks))
