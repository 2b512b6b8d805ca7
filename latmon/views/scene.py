"""The scene: where frames and choices meet, and the whole screen as lines.

Mutable, but knows no widget and no clock: frames and choices come in, lines go out, so that a whole screen is tested
by comparing text. What a panel shows is that panel's module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from latmon.deep import untraced_share
from latmon.model import Frame, Origin
from latmon.store import Store
from latmon.views import empty, status
from latmon.views.choice import Choice
from latmon.views.cursor import carried
from latmon.views.heatmap import Ink
from latmon.views.history import History
from latmon.views.lines import Line, Span, wrap
from latmon.views.panels.interrupts import interrupts_panel
from latmon.views.panels.outliers import outliers_panel
from latmon.views.panels.outstanding import outstanding_panel
from latmon.views.panels.overview import overview
from latmon.views.panels.stages import stages_panel
from latmon.views.sight import OFF, STARTING, Sight, traced_share, tracing_state
from latmon.views.still import worst
from latmon.views.sweep import Sweep

MIN_SIZE = (40, 10)
NOTICE_US = 8_000_000
"""A notice stands so long, by the frames' clock."""
Draw = Callable[[Sight, int, int], list[Line]]
SCREENS: Mapping[str, Draw] = MappingProxyType(
    {
        "overview": overview,
        "stages": stages_panel,
        "outstanding": outstanding_panel,
        "outliers": outliers_panel,
        "interrupts": interrupts_panel,
    },
)
"""What stands between the title and the notices, by the choice's screen: (sight, width, room) -> lines."""


@dataclass(frozen=True, slots=True)
class Panels:
    """A whole screen but its last line."""

    title: Line
    body: list[Line]
    notice: list[Line]
    health: Line


class Scene:
    """All that the screen shows."""

    def __init__(self, choice: Choice, *, mode: str = "LIVE", ink: Ink = Ink(), store: Store | None = None) -> None:  # noqa: B008  frozen
        self.history = History(choice.window_us, choice.ops, store)
        self.choice = choice
        self.ink = ink
        self.message = ""
        self.ended: str | None = None
        self._mode = mode
        self._sweep, self._waits, self._depths = Sweep(), Sweep(), Sweep()
        self._notices: list[tuple[int, str]] = []
        self._tracing_state = ""

    @property
    def store(self) -> Store:
        return self.history.store

    @property
    def sight(self) -> Sight:
        return Sight(
            self.history,
            self._sweep,
            self._asked(),
            self.ink,
            self._waits,
            self._depths,
            self._mode == "REPLAY",
            self._tracing_state,
        )

    def _asked(self) -> Choice:
        """A recording's threshold is the one of its capture, unless the user has one now."""
        origin, choice = self.store.origin, self.choice
        if origin is None or choice.threshold_us is not None or origin.threshold_us is None:
            return choice
        return replace(choice, threshold_us=origin.threshold_us)

    @property
    def mode(self) -> status.Mode:
        if self.history.paused:
            return status.Mode("PAUSED", self.history.behind, "" if self._mode == "LIVE" else self._mode)
        return status.Mode(self._mode) if self.ended is None else status.Mode("ENDED", 0, self.ended)

    def append(self, frame: Frame) -> None:
        """One more frame: kept at once, shown unless paused."""
        self._note(frame)
        kept = self.history.append(frame)
        if kept is not None:
            self._sweep.advance(kept)

    def _note(self, frame: Frame) -> None:
        """What stands longer than its frame: notices, and what the deep probes do now."""
        since = frame.mono_us - NOTICE_US
        self._notices = [(at, said) for at, said in self._notices if at > since and said != frame.health.notice]
        if frame.health.notice:
            self._notices.append((frame.mono_us, frame.health.notice))
        self._tracing_state = tracing_state(frame)

    @property
    def known(self) -> Origin | None:
        """The origin, without what it says is not measured and is traced now."""
        origin = self.store.origin
        if origin is None or not self.history.any_traced:
            return origin
        traced = {series.stage for series in self.history.deep.traced.histograms}
        return replace(origin, absent=tuple(one for one in origin.absent if one.name not in traced))

    def pause(self) -> None:
        """Freeze what is shown; frames keep arriving."""
        self.history.pause()

    def resume(self) -> None:
        """Go to the live edge."""
        self.history.resume()
        self._restart()

    def choose(self, choice: Choice) -> None:
        """Look at something else; only what depends on the change is summed anew."""
        old, self.choice = self.choice, choice
        if (old.window_us, old.ops) != (choice.window_us, choice.ops):
            self.history.look(choice.window_us, choice.ops)
            self._restart()
        elif old.screen != choice.screen:
            self._waits.restart()
            self._depths.restart()
        elif old.panel != choice.panel:
            self._sweep.forget()

    def _restart(self) -> None:
        for one in (self._sweep, self._waits, self._depths):
            one.restart()

    def draw(self, width: int, height: int) -> Panels:
        """Everything for a screen of this size; the caller adds the line of keys."""
        notes = self._notes(width)
        store, window = self.store, self.history.window
        return Panels(
            title=status.title(store.origin, window, self.mode, width),
            body=self._body(width, height - 3 - len(notes)),
            notice=notes,
            health=status.health(store.origin, window, store.devices, width, self._tracing(), ages=self.history.ages),
        )

    def _tracing(self) -> status.Tracing:
        asked = self.choice.screen != "overview"
        if (origin := self.store.origin) and not origin.traces_stages:
            return status.Tracing(asked=asked, stages=False)
        starting = self.starting(self.choice.stages)
        if starting or not self.history.any_traced:
            return status.Tracing(asked=asked, starting=starting)
        traced = self.history.deep.traced
        lost = self.history.made("not followed", lambda: untraced_share(traced))
        share = self.history.made("traced", lambda: traced_share(traced, self.history.window))
        return status.Tracing(traced.one_in, traced.devices, share, lost, asked)

    def starting(self, stages: str) -> bool:
        """Whether the deep probes were asked for, by that mode of STAGES_MODES at least, and don't trace yet."""
        state, origin = self._tracing_state, self.store.origin
        if self._mode != "LIVE" or self.ended is not None or origin is None or empty.no_distribution(origin):
            return False
        return state.startswith(STARTING) or (stages == "all" and not state)

    def _body(self, width: int, room: int) -> list[Line]:
        """The panel; drawn again when its map was cut anew below the cursor."""
        draw, before = SCREENS[self.choice.screen], self._sweep.drawn
        lines = draw(self.sight, width, room)
        cursor, after = self.choice.cursor, self._sweep.drawn
        if cursor is None or before is None or after is None or before.timeline is after.timeline:
            return lines
        self.choice = replace(self.choice, cursor=carried(cursor, before.timeline, after.timeline))
        return draw(self.sight, width, room)

    def _notes(self, width: int) -> list[Line]:
        notice = "; ".join(said for _, said in reversed(self._notices))
        lasting = self.store.origin.reason if self.store.origin else ""
        if self._tracing_state.startswith(OFF):
            lasting = f"stages: {self._tracing_state}"
        # the list itself is on the outstanding screen
        waits = worst(self.history.ages) if self.choice.screen != "outstanding" else ""
        text = self.message or notice or waits or lasting
        role = "strong" if self.message else "bad" if notice or waits else "dim"
        return [(Span(f" {line}", role),) for line in wrap(text, width - 2)[:2]]
