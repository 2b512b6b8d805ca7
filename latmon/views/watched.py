"""What rules find, at the edge and at an earlier time: frames in, what stands at a moment out.

Frames wait in line until somebody has some milliseconds for them (`proceed`): rules never hold up a picture or a key.
An earlier time is judged from what was captured in the minute before it, as it was judged then. Knows no panel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from latmon.findings.facts import WINDOW_US
from latmon.findings.thresholds import Settings
from latmon.findings.watch import BLOCK_US, KEEP, Watch
from latmon.model import Frame, Origin
from latmon.past import Past, Stamp
from latmon.views.standing import COMING, NOTHING, Standing, standing_at, standing_of
from latmon.waiting import Waiting

_FIRST_US = WINDOW_US + BLOCK_US
"""Of what comes first, maybe at once, each block is judged."""


class Watched:
    """Fed with the frames of the edge; an earlier time is looked at between `look` and `forget`."""

    def __init__(self, settings: Settings | None, *, at_once: bool = True) -> None:
        """`settings`: of the rules; None: none is asked."""
        self.at_once = at_once
        """Whether each frame is judged as it comes, else by `proceed`."""
        self.late_us = 2 * BLOCK_US
        """So far behind the newest frame no rule is asked: a fast replay on a slow host has the findings of now."""
        self.settings = settings
        self._edge: Watch | None = None
        self._line: deque[Frame] = deque()
        self._coming: Iterator[None] | None = None
        self._first_us = self._begun_us = self._until_us = 0
        """What the edge has seen: from where on, from where on rules were asked of all of it, until where."""
        self._back: Back | None = None
        self._shown: tuple[object, Standing] = (None, NOTHING)

    def take(self, frame: Frame, origin: Origin | None) -> None:
        """The next frame at the edge."""
        if origin is None or self.settings is None:
            return
        if self._edge is None or self._edge.origin is not origin:
            self._edge, self._begun_us = Watch(origin, (), self.settings), frame.mono_us - frame.dt_us
            self._line, self._coming, self._first_us = deque(), None, self._begun_us
        elif frame.mono_us <= self._until_us:
            self._begun_us = frame.mono_us - frame.dt_us
        self._until_us = frame.mono_us
        self._line.append(frame)
        if self.at_once:
            self.finish()

    @property
    def standing(self) -> Standing:
        """What is found at the moment that is shown."""
        made_of: object = None
        if self._back is not None:
            made_of = (self._back, self._back.watch, self._back.judged)
        elif self._edge is not None:
            made_of = (self._edge, self._edge.judged)
        if made_of != self._shown[0]:
            self._shown = made_of, self._stands()
        return self._shown[1]

    def _stands(self) -> Standing:
        if self._back is not None:
            return self._back.standing
        if self._edge is None or self.settings is None:
            return NOTHING
        return standing_of(self._edge, self.settings, self._begun_us)

    @property
    def behind(self) -> bool:
        """Whether something is still to be judged."""
        return bool(self._line or self._coming) or (self._back is not None and not self._back.done)

    def proceed(self) -> bool:
        """A part of it, some milliseconds; whether what stands may be another now."""
        if self._back is not None and not self._back.done:
            return self._back.proceed()
        edge = self._edge
        if edge is None or not (self._line or self._coming):
            return False
        before = edge.judged
        if self._coming is None:
            frame = self._line.popleft()
            late = self._until_us - frame.mono_us > self.late_us
            edge.quiet = late and frame.mono_us - self._first_us > _FIRST_US
            if edge.quiet:
                self._begun_us = frame.mono_us
            self._coming = edge.taking(frame)
        if next(self._coming, self) is self:
            self._coming = None
        return edge.judged != before

    def finish(self) -> None:
        """All that is still to be judged, now."""
        while self.behind:
            self.proceed()

    def look(self, past: Past, origin: Origin | None, at: Stamp, window_us: int) -> None:
        """An earlier time is looked at."""
        if origin is None or self.settings is None:
            return
        edge, known = self._edge, None
        if edge is not None and self._begun_us + WINDOW_US <= at.mono_us <= self._until_us:
            known = standing_at(edge, at.mono_us, self.settings, self._begun_us)
        self._back = Back(past, origin, at, window_us=window_us, settings=self.settings, known=known)
        if self.at_once:
            self.finish()

    def forget(self) -> None:
        """The edge is looked at."""
        self._back = None

    def go_on(self) -> None:
        """The time that is looked at is the edge from now on."""
        back = self._back
        if back is None or back.at.mono_us == self._until_us:
            return
        while back.watch is None and not back.done:
            back.proceed()
        if back.watch is not None:
            self._edge, self._line, self._coming = back.watch, deque(), None
            self._begun_us, self._until_us = back.since_us, back.at.mono_us
        self._back = None


class Back:
    """The watch of an earlier time: at first what was found then, and where nobody saw it, since when."""

    def __init__(
        self, past: Past, origin: Origin, at: Stamp, *, window_us: int, settings: Settings, known: Standing | None
    ) -> None:
        self.at = at
        self.watch: Watch | None = None
        """One that has seen all until then."""
        self.since_us = at.mono_us
        self.judged = 0
        """How often there was something new."""
        self.done = False
        self._known, self._past, self._origin, self._settings = known, past, origin, settings
        self._coming = self._work(window_us)

    @property
    def standing(self) -> Standing:
        """As far as it is known by now."""
        if self.watch is None:
            return self._known or COMING
        found = standing_of(self.watch, self._settings, self.since_us)
        return found if self._known is None else found.with_past(self._known)

    def proceed(self) -> bool:
        """A part of the work; whether there is something new."""
        before = self.judged
        if next(self._coming, self) is self:
            self.done = True
            return True
        return self.judged != before

    def _work(self, window_us: int) -> Iterator[None]:
        """The minute before it; then all that is on the map, each block with its minute, unless somebody saw it."""
        minute_us = max(WINDOW_US, KEEP * self._origin.interval_us)
        judged_us = self._block_us(self.at.mono_us) - self._origin.interval_us // 2
        yield from self._judged(judged_us - minute_us, judged_us)
        if self._known is None:
            yield from self._judged(judged_us - minute_us - window_us, judged_us - window_us)

    def _judged(self, begin_us: int, judged_us: int) -> Iterator[None]:
        """A watch from the one time on, whose rules are asked from the other on."""
        begin_us -= 2 * self._origin.interval_us  # blocks end where frames do: the first one is not whole
        known = self._past.waiting(begin_us)
        read_us, waiting = known or (begin_us, Waiting())
        watch = Watch(self._origin, self._past.known(begin_us), self._settings, waiting)
        since_us = None
        for frame in self._past.frames(read_us, self.at.mono_us):
            if frame.mono_us <= begin_us:
                waiting.add(frame)
            else:
                since_us = frame.mono_us - frame.dt_us if since_us is None else since_us
                watch.quiet = frame.mono_us < judged_us
                yield from watch.taking(frame)
            yield
        self.since_us = self.at.mono_us if since_us is None else max(since_us, judged_us)
        self.watch, self.judged = watch, self.judged + 1

    def _block_us(self, mono_us: int) -> int:
        """Where the last whole block ends."""
        start_us = self._origin.start_mono_us
        return (mono_us + self._origin.interval_us // 2 - start_us) // BLOCK_US * BLOCK_US + start_us
