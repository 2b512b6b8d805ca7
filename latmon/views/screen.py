"""The whole screen as lines, from view context and size.

Mutable, but knows no widget and no clock: frames and choices come in, lines go out, so that a whole screen is tested
by comparing text. What a panel shows is that panel's module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from latmon.aggregate.history import Store
from latmon.analysis.attribution import untraced_share
from latmon.analysis.device_order import Order
from latmon.diff.comparison import Comparison
from latmon.findings.rule import Settings
from latmon.model.frame import STARTING, Frame, Origin
from latmon.timetravel.archive import Archive, Past, Stamp
from latmon.views import empty, status
from latmon.views.context import Sight, sentence, traced_share
from latmon.views.findings_state import Watched
from latmon.views.heatmap import Ink
from latmon.views.heatmap_state import NOW, Sweep
from latmon.views.history import History
from latmon.views.lines import Line, Span, fit
from latmon.views.panels.compare import panel
from latmon.views.panels.findings import findings_panel
from latmon.views.panels.interrupts import interrupts_panel
from latmon.views.panels.outliers import outliers_panel
from latmon.views.panels.outstanding import outstanding_panel
from latmon.views.panels.overview import overview
from latmon.views.panels.stages import stages_panel
from latmon.views.panels.tour import Band, banded
from latmon.views.past_view import Glass, Look
from latmon.views.selection import Choice, carried
from latmon.views.status import Told, finding, notices
from latmon.views.units import clock

MIN_SIZE = (40, 10)
_OF_FRAMES = frozenset({"overview", "findings"})
"""Screens that show, but for a map of offsets, only what the frames in memory have."""
_OF_STAGES = frozenset({"stages"})
"""Screens that show more of the always-on probe's histograms than the totals."""
Draw = Callable[[Sight, int, int], list[Line]]
SCREENS: Mapping[str, Draw] = MappingProxyType(
    {
        "overview": overview,
        "stages": stages_panel,
        "outstanding": outstanding_panel,
        "outliers": outliers_panel,
        "interrupts": interrupts_panel,
        "findings": findings_panel,
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

    def __init__(
        self,
        choice: Choice,
        *,
        mode: str = "LIVE",
        ink: Ink = Ink(),  # noqa: B008  frozen
        archive: Past | None = None,
        findings: Settings | None = None,
    ) -> None:
        """`findings`: the thresholds of rules; None: none is asked."""
        self.edge = History(choice.window_us, choice.ops)
        """Where frames arrive."""
        self.archive: Past = archive or Archive()
        """What can be gone back to; one that keeps what arrives, unless the source has one."""
        self.at: Stamp | None = None
        """Where the user stands, away from the edge; None: at the edge."""
        self._looked: tuple[History, Told] | None = None
        self._told = Told()
        self.watched = Watched(findings)
        """What rules find, at the edge and where the user stands."""
        self._glass = Glass()
        self.at_once = True
        """Whether a look is waited for; else it is ready after some calls of `proceed`."""
        self._lean = self._edge_lean = False
        """Looked at without the histograms of stages."""
        self._is_frozen = False
        """Whether what is shown is the edge as it was when the user paused."""
        self.choice = choice
        self.ink = ink
        self.beside: Comparison | None = None
        """Two stretches side by side, instead of a panel."""
        self.message = ""
        self.band: Band | None = None
        """What a tour says of the screen."""
        self.ended: str | None = None
        self._mode = mode
        self._sweep, self._waits, self._depths = Sweep(), Sweep(), Sweep()
        self._order = Order()

    @property
    def history(self) -> History:
        """What is shown."""
        return self.edge if self._looked is None else self._looked[0]

    @property
    def told(self) -> Told:
        """What is said of it."""
        return self._told if self._looked is None else self._looked[1]

    @property
    def towards(self) -> Stamp | None:
        """Where a look is on its way to; what is shown is still what was before."""
        return self._glass.look.at if self._glass.look else None

    @property
    def goal(self) -> Stamp | None:
        """Where the user stands or is on his way to; None: at the edge."""
        return self.towards or self.at

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
            self.told.tracing,
            self.at is not None,
            self.watched.standing,
            self._order,
        )

    def _asked(self) -> Choice:
        """A recording's threshold is the one of its capture, unless the user has one now."""
        origin, choice = self.store.origin, self.choice
        if origin is None or choice.threshold_us is not None or origin.threshold_us is None:
            return choice
        return replace(choice, threshold_us=origin.threshold_us)

    @property
    def mode(self) -> status.Mode:
        if self.at is not None:
            why, reading = "" if self._mode == "LIVE" else self._mode, self.history.is_glimpse
            return status.Mode("PAUSED", self.behind_us, why, self.at.wall, reading=reading)
        return status.Mode(self._mode) if self.ended is None else status.Mode("ENDED", 0, self.ended)

    @property
    def behind_us(self) -> int:
        """How much there is behind what is shown."""
        stamps = self.archive.stamps
        return max(stamps[-1].mono_us - self.at.mono_us, 0) if self.at and len(stamps) else 0

    def opened(self, origin: Origin, archive: Past | None = None) -> None:
        """The source is open; `archive`: it has all that it will tell."""
        self.edge.store.origin = origin
        if archive is not None:
            self.archive = archive

    def append(self, frame: Frame, line: bytes | None = None) -> None:
        """One more frame: kept at once, shown at the edge. `line`: as it came."""
        if isinstance(self.archive, Archive):
            self.archive.append(frame, line)
        self._told.add(frame)
        self.watched.take(frame, self.edge.store.origin)
        kept = self.edge.append(frame)
        self._give_back(frame.removed)
        if self.at is None:
            self._sweep.advance(kept)
        else:  # else coming back would sum a minute of them
            deep = self.edge.deep
            deque(deep.keep(deep.groups), 0)

    def _give_back(self, removed: Collection[str]) -> None:
        """Select by the order again where the selected device was removed; a cursor on its map stays."""
        choice = self.choice
        if self.at is None and choice.selected in removed and choice.cursor is None:
            self.choice = replace(choice, selected="", offered="")

    @property
    def known(self) -> Origin | None:
        """The origin, without what it says is not measured and is traced now."""
        origin = self.store.origin
        if origin is None or not self.history.any_traced:
            return origin
        traced = {series.stage for series in self.history.deep.traced.histograms}
        return replace(origin, absent=tuple(one for one in origin.absent if one.name not in traced))

    def travel(self, at: Stamp) -> None:
        """Look at what was seen at the end of a frame; frames keep arriving."""
        self._set_out(at, lean=self.choice.screen not in _OF_STAGES)

    def _set_out(self, at: Stamp, *, lean: bool) -> None:
        choice = self.choice
        look = Look(at, choice.window_us, choice.ops, lean, self.edge.deep.groups)
        self._glass.set_out(self.archive, self.edge.store.origin, self._sweep, look)
        self._lean = lean
        self._is_frozen = False
        if self.at_once:
            self._arrive()
        else:
            self._glimpse(at)

    def _glimpse(self, at: Stamp) -> None:
        """Show what memory has of a moment, while the rest of it is read."""
        choice, shown = self.choice, self._looked[0] if self._looked else None
        for memory in (self.edge, shown):
            seen = memory and memory.glimpse(at.mono_us, choice.window_us, choice.ops, self.archive)
            if seen:
                self._show(seen, Told(), at)
                return

    def _show(self, history: History, told: Told, at: Stamp) -> None:
        """Look at another moment than the edge."""
        is_judged = self.at is not None and self.at.mono_us == at.mono_us
        self._looked, self.at = (history, told), at
        if last := history.window.last:  # by the heads of a recording's members a wall clock is a guess
            self.at = Stamp(last.mono_us, last.wall)
        if not is_judged:
            self.watched.look(self.archive, self.edge.store.origin, self.at, self.choice.window_us)
        self._restart(clock(self.at.wall))

    def _arrive(self) -> None:
        while self.towards is not None:
            self.proceed()

    def _read_stages(self) -> None:
        """What was looked at for its totals alone."""
        if (there := self.goal) is not None:
            if self._lean:
                self.travel(there)
        elif self._edge_lean:
            last = self.edge.window.last
            if last is not None:
                self._set_out(Stamp(last.mono_us, last.wall), lean=False)
                self.go_on()

    def proceed(self) -> None:
        """A part of what a look takes; `towards` is None when it is ready, and what is shown is that."""
        at, seen = self.towards, self._glass.proceed()
        if at is None or seen is None:
            return
        self._show(seen.history, seen.told, at)
        if seen.timeline is not None:
            self._sweep.take(seen.timeline)

    def pause(self) -> None:
        """Freeze the edge as it is shown: nothing is read, and nothing is drawn anew."""
        last = self.edge.window.last
        if last is None:
            return
        self._glass.forget()
        self._looked, self.at = (self.edge.fork(), self._told.copy()), Stamp(last.mono_us, last.wall)
        self._lean, self._is_frozen = self._edge_lean, True
        self.watched.hold(self.archive, self.at, self.choice.window_us)
        for one in self._maps:
            one.now = clock(last.wall)

    def resume(self) -> None:
        """Go to the edge."""
        self.at = self._looked = None
        self._is_frozen = False
        self._give_back(self.edge.store.removed)
        self._glass.forget()
        self.watched.forget()
        self._restart()

    def go_on(self) -> None:
        """Make what is shown the edge: frames go on from there."""
        self._arrive()
        if self._looked is not None and not self._is_frozen:
            self.edge, self._told = self._looked
            self._edge_lean = self._lean
            self.watched.go_on()
        self.resume()

    def choose(self, choice: Choice) -> None:
        """Look at something else; only what depends on the change is summed anew."""
        old, self.choice = self.choice, choice
        if (old.window_us, old.ops) != (choice.window_us, choice.ops):
            self.edge.look(choice.window_us, choice.ops)
            there = self.goal
            self._restart(clock(there.wall) if there else NOW)
            if self._is_frozen:
                self.history.look(choice.window_us, choice.ops)
            elif there:
                self.travel(there)
        elif old.screen != choice.screen:
            self._waits.restart()
            self._depths.restart()
            if choice.screen in _OF_STAGES:
                self._read_stages()
        elif old.panel != choice.panel:
            self._sweep.forget()

    def _restart(self, now: str = NOW) -> None:
        for one in self._maps:
            one.restart()
            one.now = now

    @property
    def _maps(self) -> tuple[Sweep, ...]:
        return self._sweep, self._waits, self._depths

    def draw(self, width: int, height: int) -> Panels:
        """Everything for a screen of this size; the caller adds the line of keys."""
        sight, toured = self.sight, self.band is not None
        reading = f"reading {clock(self.towards.wall)} …" if self.towards and not self.history.is_glimpse else ""
        notes = finding(sight, width, height, toured=toured) if self.beside is None else []
        notes += notices(sight, self.told, width, reading=reading, message=self.message, toured=toured)
        if self.band is not None:
            notes += banded(self.band, width)
        found = len(self.watched.standing.urgent) if self.choice.screen != "findings" else 0
        store, window = self.store, self.history.window
        return Panels(
            title=status.title(store.origin, window, self.mode, width),
            body=self._body(width, height - 3 - len(notes)),
            notice=notes,
            health=status.health(
                store.origin, window, store.devices, width, self._tracing(), ages=self.history.ages, found=found
            ),
        )

    def _tracing(self) -> status.Tracing:
        asked = self.choice.screen != "overview"
        if self.history.is_glimpse:
            return status.Tracing()
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
        state, origin = self.told.tracing, self.store.origin
        if self._mode != "LIVE" or self.ended is not None or origin is None or empty.no_distribution(origin):
            return False
        return state.startswith(STARTING) or (stages == "all" and not state)

    def _body(self, width: int, room: int) -> list[Line]:
        """The panel; drawn again when its map was cut anew below the cursor."""
        if self.beside is not None:
            return panel(self.beside, self.choice.selected, self.ink, width, room)
        if self.history.is_glimpse and not (self.choice.screen in _OF_FRAMES and not self.choice.fold):
            return sentence(f"reading {clock(self.at.wall)} …" if self.at else "", width, room)
        draw, before = SCREENS[self.choice.screen], self._sweep.drawn
        lines = draw(self.sight, width, room)
        cursor, after = self.choice.cursor, self._sweep.drawn
        if cursor is None or before is None or after is None or before.timeline is after.timeline:
            return lines
        self.choice = replace(self.choice, cursor=carried(cursor, before.timeline, after.timeline))
        return draw(self.sight, width, room)


def screen_lines(scene: Scene, foot: Line, width: int, height: int) -> list[Line]:
    """Every line of the terminal, exactly `height` of them."""
    if width < MIN_SIZE[0] or height < MIN_SIZE[1]:
        small: list[Line] = [(Span("terminal too small", "strong"),), (Span(f"{MIN_SIZE[0]}x{MIN_SIZE[1]} needed"),)]
        return small[:height]
    panels = scene.draw(width, height)
    below = [*panels.notice, panels.health, fit(foot, width)]
    above = [panels.title, *panels.body][: height - len(below)]
    return [*above, *[()] * (height - len(below) - len(above)), *below]
