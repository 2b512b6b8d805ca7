"""The whole screen as lines: frames and selections come in, lines go out.

`Scene` is mutable, but knows no widget and no clock, so that a whole screen is tested by comparing text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from latmon.aggregate.history import Store
from latmon.analysis.attribution import untraced_share
from latmon.analysis.peers import Order
from latmon.findings.rule import Settings, screen_title
from latmon.findings.rules.starved_io import ID as STARVED
from latmon.model.frame import TRACER_STARTING, Frame, Origin
from latmon.recording.archive import Archive, Past, Stamp
from latmon.support.text import clean
from latmon.support.units import clock
from latmon.views import spotlight, status
from latmon.views.context import PREVIEW, ViewState, no_distribution, no_rows, traced_share
from latmon.views.findings_state import NOTHING, CurrentFindings, FindingsState
from latmon.views.heatmap import Ink
from latmon.views.heatmap_state import NOW, HeatmapState
from latmon.views.history import History, near
from latmon.views.lines import (
    Line,
    Span,
    cut,
    dashed,
    empty_panel,
    fit,
    heading,
    is_framed,
    is_heading,
    panelled,
    paragraph,
    wrap,
)
from latmon.views.panels.findings import findings_panel
from latmon.views.panels.interrupts import interrupts_panel
from latmon.views.panels.outliers import outliers_panel
from latmon.views.panels.outstanding import outstanding_panel
from latmon.views.panels.overview import device_rows, overview
from latmon.views.panels.stages import stages_panel
from latmon.views.panels.who import who_panel
from latmon.views.past_view import PastReader, PastSelection
from latmon.views.selection import OP_CHOICES, Selection, carried
from latmon.views.status import Notices, TourBanner, banner_lines, notices
from latmon.views.verdict import NONE as NO_VERDICT
from latmon.views.verdict import Verdict, verdict

if TYPE_CHECKING:
    from latmon.diff.report import DiffReport

MIN_SIZE = (40, 10)
_MAX_PATH = 200
STRIP_ROWS = 3
"""Devices of the strip, where the finding leaves them their lines."""
_STRIP, _STRIP_REST = 8, 3
"""Lines of the strip; those of its title, its column titles and its health."""
_OF_FRAMES = frozenset({"overview", "findings"})
"""Screens that need only the frames in memory, except for a map of offsets."""
_OF_STAGES = frozenset({"stages"})
"""Screens that need the always-on probe's histograms of stages."""
Draw = Callable[[ViewState, int, int], list[Line]]
SCREENS: Mapping[str, Draw] = MappingProxyType(
    {
        "overview": overview,
        "stages": stages_panel,
        "outstanding": outstanding_panel,
        "outliers": outliers_panel,
        "interrupts": interrupts_panel,
        "findings": findings_panel,
        "who": who_panel,
    },
)
"""Screen -> function that draws its panel: (view state, width, lines) -> lines."""


@dataclass(frozen=True, slots=True)
class Panels:
    """A whole screen except the line of keys.

    With frames, `body`, `notice` and `health` are two cells narrower than the screen.
    """

    title: Line
    verdict: list[Line]
    """Rows of the screen's width between the title and the body."""
    body: list[Line]
    notice: list[Line]
    health: Line
    framed: bool = False


class Scene:
    """The state of the screen: live edge, earlier time, selection, maps and messages."""

    def __init__(
        self,
        selection: Selection,
        *,
        mode: str = "LIVE",
        ink: Ink = Ink(),  # noqa: B008  frozen
        archive: Past | None = None,
        findings: Settings | None = None,
    ) -> None:
        """`findings`: the thresholds of rules; None: no rule is evaluated."""
        self.edge = History(selection.window_us, selection.ops)
        """The live edge: frames are added here."""
        self.archive: Past = archive or Archive()
        """The frames for time travel: the source's archive, else one that stores the arriving frames."""
        self.at: Stamp | None = None
        """The earlier time that is shown; None: the live edge."""
        self._past: tuple[History, Notices] | None = None
        self._reported = Notices()
        self.findings_state = FindingsState(findings)
        """The findings at the live edge and at the time that is shown."""
        self._past_reader = PastReader()
        self.at_once = True
        """Whether `travel` waits until the earlier time is read; else some calls of `proceed` read it."""
        self._lean = self._edge_lean = False
        """Whether the view, and the edge, were read without histograms of stages."""
        self._is_frozen = False
        """Whether the edge is shown as it was when the user paused."""
        self._framed = False
        """Whether the panels of the last picture have frames."""
        self.is_preview = False
        """Whether the edge has the kernel's counters, because the source is not open yet."""
        self.seeks_worst = False
        """Whether the worst minute of a recording is shown as soon as it is known."""
        self.selection = selection
        self.ink = ink
        self.comparison: DiffReport | None = None
        """A comparison of two spans, or a sweep of more, that replaces the panel."""
        self.page = 1
        """Most lines that a key scrolls: less than half of the panel that was drawn last, so that no line is missed."""
        self.message = ""
        self.has_strip = True
        """Whether maps have a strip of all captured time below them; a picture knows only the time around it."""
        self.awaited = 0
        """Frames before which no panel is drawn: those of a demo's history, whose map would grow at the start."""
        self.banner: TourBanner | None = None
        """The text of a tour on this screen."""
        self.ended: str | None = None
        self.silent_us = 0
        """Time since the newest frame of a live capture where that is long, else 0."""
        self._mode = mode
        self._latency_map, self._delay_map, self._depth_map = HeatmapState(), HeatmapState(), HeatmapState()
        self._write_map = HeatmapState()
        self._order = Order()
        self._ordered = NOTHING
        """The findings in the order of the screen."""
        self._ordered_of: tuple[CurrentFindings, frozenset[str]] = (NOTHING, frozenset())
        """The findings in the order of the rules, and the busy devices, of which it was made."""

    @property
    def history(self) -> History:
        """Return the history that is shown."""
        return self.edge if self._past is None else self._past[0]

    @property
    def reported(self) -> Notices:
        """Return the notices of the history that is shown."""
        return self._reported if self._past is None else self._past[1]

    @property
    def towards(self) -> Stamp | None:
        """Return the time that is being read; until it is complete, the previous one is shown."""
        return self._past_reader.wanted.at if self._past_reader.wanted else None

    @property
    def is_reading(self) -> bool:
        """Return whether `proceed` has something to do."""
        return self.towards is not None or self.history.is_summing

    @property
    def goal(self) -> Stamp | None:
        """Return the time that is shown or being read; None: the live edge."""
        return self.towards or self.at

    def expect_recording(self, directory: Path) -> None:
        """Name the directory of the next recording in its notices."""
        self._reported.directory = clean(str(directory), _MAX_PATH)

    @property
    def recorded(self) -> str:
        """Return the file that is recorded to at the live edge; empty where none is."""
        return self._reported.recorded

    @property
    def store(self) -> Store:
        return self.history.store

    @property
    def view(self) -> ViewState:
        return ViewState(
            history=self.history,
            latency_map=self._latency_map,
            selection=self._asked(),
            ink=self.ink,
            delay_map=self._delay_map,
            depth_map=self._depth_map,
            recorded=self._mode == "REPLAY",
            tracing=self.reported.tracing,
            away=self.at is not None,
            found=self._found,
            order=self._order,
            write_map=self._write_map,
            past=self.archive if self.has_strip else None,
            begins=self.findings_state.begins,
            framed=self._framed,
        )

    @property
    def _found(self) -> CurrentFindings:
        """Return the findings, those on devices that do nothing now behind the others."""
        current = self.findings_state.current
        if len(current.lasting) < 2:  # noqa: PLR2004  one has no order
            return current
        busy = self.history.busy
        if current is not self._ordered_of[0] or busy is not self._ordered_of[1]:
            self._ordered, self._ordered_of = current.busy_first(busy), (current, busy)
        return self._ordered

    def _asked(self) -> Selection:
        """Return the selection; without a threshold of its own, with that of the recording's capture."""
        origin, selection = self.store.origin, self.selection
        if origin is None or selection.threshold_us is not None or origin.threshold_us is None:
            return selection
        return replace(selection, threshold_us=origin.threshold_us)

    @property
    def mode(self) -> status.ScreenMode:
        if self.at is not None:
            why, reading = "" if self._mode == "LIVE" else self._mode, self.history.is_partial
            return status.ScreenMode("PAUSED", self.behind_us, why, self.at.wall, reading=reading)
        if self.ended is None and (self.is_preview or (self._mode == "LIVE" and self.store.origin is None)):
            return status.ScreenMode("STARTING")
        if self.ended is not None:
            return status.ScreenMode("ENDED", 0, self.ended)
        return status.ScreenMode("NO DATA" if self.silent_us else self._mode, self.silent_us)

    @property
    def behind_us(self) -> int:
        """Return the time from what is shown to the newest frame."""
        stamps = self.archive.stamps
        return max(stamps[-1].mono_us - self.at.mono_us, 0) if self.at and len(stamps) else 0

    def preview(self, origin: Origin, frame: Frame) -> None:
        """Show a frame of the kernel's counters while the source opens; none of them is kept."""
        self.is_preview = True
        self.edge.store.origin = replace(origin, reason=PREVIEW)
        kept = self.edge.append(frame)
        if self.at is None:
            self._latency_map.advance(kept)

    def _start_again(self) -> None:
        self.is_preview = False
        self.edge, self._order = History(self.selection.window_us, self.selection.ops), Order()
        self.resume()

    def opened(self, origin: Origin, archive: Past | None = None) -> None:
        """Record the origin of the opened source; `archive`: all of its frames, where it has them already.

        The frames of a source that is opened again are dropped; that of another host has other devices, too.
        """
        before = self.edge.store.origin
        if before is not None:
            is_preview = self.is_preview
            self._start_again()
            if not is_preview and before.host != origin.host:
                self.selection = replace(self.selection, selected="", offered="", cursor=None, band=None)
        self.edge.store.origin = origin
        if archive is not None:
            self.archive = archive

    def append(self, frame: Frame, line: bytes | None = None) -> None:
        """Add a frame to the archive and the live edge. `line`: the frame's line in the recording."""
        if isinstance(self.archive, Archive):
            self.archive.append(frame, line)
        self._reported.add(frame)
        self.findings_state.take(frame, self.edge.store.origin)
        kept = self.edge.append(frame)
        self._reselect(frame.removed)
        if self.at is None:
            self._latency_map.advance(kept)
            self._write_map.advance(kept)
        else:  # otherwise the return to the edge would sum a minute of them
            on_demand = self.edge.on_demand
            deque(on_demand.keep(on_demand.groups), 0)

    def _reselect(self, removed: Collection[str]) -> None:
        """Select by the order again where the selected device was removed, unless a cursor is on its map."""
        selection = self.selection
        if self.at is None and selection.selected in removed and selection.cursor is None:
            self.selection = replace(selection, selected="", offered="")

    @property
    def known(self) -> Origin | None:
        """Return the origin without the stages that it names as not measured and that are traced now."""
        origin = self.store.origin
        if origin is None or not self.history.any_traced:
            return origin
        traced = self.history.on_demand.traced_stages
        return replace(
            origin, absent=tuple(missing_stage for missing_stage in origin.absent if missing_stage.name not in traced)
        )

    def travel(self, at: Stamp) -> None:
        """Show the time at the end of a frame; frames keep arriving."""
        self._begin_reading(at, lean=self.selection.screen not in _OF_STAGES)

    def _begin_reading(self, at: Stamp, *, lean: bool) -> None:
        selection = self.selection
        wanted = PastSelection(at, selection.window_us, selection.ops, lean, self.edge.on_demand.groups)
        self._past_reader.begin(self.archive, self.edge.store.origin, self._latency_map, wanted)
        self._lean = lean
        self._is_frozen = False
        if self.at_once:
            self._arrive()
        else:
            self._show_from_memory(at)

    def _show_from_memory(self, at: Stamp) -> None:
        """Show a time as far as its frames are in memory, while the rest is read."""
        selection, shown = self.selection, self._past[0] if self._past else None
        window = near((memory.window for memory in (self.edge, shown) if memory), at.mono_us, selection.window_us)
        for memory in (self.edge, shown):
            seen = memory and memory.from_memory(
                at.mono_us,
                selection.window_us,
                selection.ops,
                self.archive,
                window=window,
                reach_us=self._latency_map.reach_us,
            )
            if seen:
                self._show(seen, Notices(), at)
                return

    def _show(self, history: History, reported: Notices, at: Stamp) -> None:
        """Show another time than the live edge."""
        is_evaluated = self.at is not None and self.at.mono_us == at.mono_us
        self._past, self.at = (history, reported), at
        stamps, frames = self.archive.stamps, history.store.frames
        history.is_cut = bool(frames and len(stamps)) and stamps[0].mono_us < frames[0].mono_us
        if last := history.window.last:  # the archive knows wall clocks only roughly
            self.at = Stamp(last.mono_us, last.wall)
        if not is_evaluated:
            self.findings_state.look(self.archive, self.edge.store.origin, self.at, self.selection.window_us)
        self._restart(clock(self.at.wall))

    def _arrive(self) -> None:
        while self.towards is not None:
            self.proceed()

    def _read_stages(self) -> None:
        """Read the time that is shown again, with histograms of stages."""
        if (stamp := self.goal) is not None:
            if self._lean:
                self.travel(stamp)
        elif self._edge_lean:
            last = self.edge.window.last
            if last is not None:
                self._begin_reading(Stamp(last.mono_us, last.wall), lean=False)
                self.go_on()

    def proceed(self) -> None:
        """Read a part of the earlier time, which is shown when `towards` is None, or sum a part of another window."""
        if self.towards is None:
            self.history.proceed()
            return
        at, seen = self.towards, self._past_reader.proceed()
        if at is None or seen is None:
            return
        self._show(seen.history, seen.reported, at)
        if seen.timeline is not None:
            self._latency_map.take(seen.timeline)

    def forget_order(self) -> None:
        """Order the rows by the time that is shown alone, for one that has nothing to do with the last."""
        self._order = Order()

    def pause(self) -> None:
        """Freeze the live edge as it is shown; nothing is read."""
        last = self.edge.window.last
        if last is None:
            return
        self._past_reader.cancel()
        self._past, self.at = (self.edge.fork(), self._reported.copy()), Stamp(last.mono_us, last.wall)
        self._lean, self._is_frozen = self._edge_lean, True
        self.findings_state.freeze(self.archive, self.at, self.selection.window_us)
        for heatmap_state in self._maps:
            heatmap_state.now = clock(last.wall)

    def resume(self) -> None:
        """Show the live edge."""
        self.at = self._past = None
        self._is_frozen = False
        self._look(self.edge)
        self._reselect(self.edge.store.removed)
        self._past_reader.cancel()
        self.findings_state.forget()
        self._restart()

    def release(self) -> None:
        """Release the frames that were read for an earlier time, once none is shown or read; called between keys."""
        if self.goal is None:
            self._past_reader.forget()

    def go_on(self) -> None:
        """Continue the live edge from the time that is shown."""
        self._arrive()
        if self._past is not None and not self._is_frozen:
            self.edge, self._reported = self._past
            self._edge_lean = self._lean
            self.findings_state.go_on()
        self.resume()

    def choose(self, selection: Selection) -> None:
        """Change the selection; only sums that depend on the change are made again."""
        old, self.selection = self.selection, selection
        if (old.window_us, old.ops) != (selection.window_us, selection.ops):
            stamp = self.goal
            self._restart(clock(stamp.wall) if stamp else NOW)
            if stamp is None or self._is_frozen:  # the edge behind another time is summed again when it is shown
                self._look(self.history)
            else:
                self.travel(stamp)
        if old.screen != selection.screen:
            self._delay_map.forget()
            self._depth_map.forget()
            if selection.screen in _OF_STAGES:
                self._read_stages()
        elif old.panel != selection.panel:
            self._latency_map.forget()
        elif not selection.splits:
            self._write_map.forget()

    def _look(self, history: History) -> None:
        """Show the window and the ops of the selection."""
        history.look(self.selection.window_us, self.selection.ops)
        if self.at_once:
            history.complete()

    def _restart(self, now: str = NOW) -> None:
        for heatmap_state in self._maps:
            heatmap_state.forget()
            heatmap_state.now = now

    @property
    def _maps(self) -> tuple[HeatmapState, ...]:
        return self._latency_map, self._delay_map, self._depth_map, self._write_map

    @property
    def context(self) -> str:
        """Return the context of keys."""
        return self.selection.context if self.comparison is None else "compared"

    @property
    def reading(self) -> str:
        """Return what is read before it can be shown; empty where nothing is."""
        if self.towards is not None:
            return "" if self.history.is_partial else f"reading {clock(self.towards.wall)} …"
        if not self.seeks_worst or self.message:  # the answer to a key comes first
            return ""
        share = int(self.archive.scanned * 10) / 10  # a picture for each hundredth would be too many
        return f"looking for the slowest I/O: {share:.0%} of the recording is read"

    def draw(self, width: int, height: int) -> Panels:
        """Return the parts of a screen of this size; the caller adds the line of keys."""
        self._framed = is_framed((width, height))
        self.page = max((height - 8) // 2, 1)
        view, toured, cells = self.view, self.banner is not None, width - 2 * self._framed
        plain = self.comparison is None and not self.selection.details and not self._is_awaiting
        above = verdict(view, self._trouble(), width, height) if plain else NO_VERDICT
        is_counted = self.selection.screen in ("overview", "findings")
        not_shown_text = "" if is_counted and plain else status.not_shown(len(view.found.shown))
        health, lasts = self._health(cells, above, not_shown_text), status.lasting(view, self.reported, toured=toured)
        if lasts and (both := status.with_lasting(health, lasts, view.origin, cells)):
            health, lasts = both, ""
        if height < status.TALL or (view.origin is not None and view.origin.backend == "demo"):
            lasts = ""  # not worth a row of the map
        notes = notices(view, self.reported, cells, reading=self.reading, message=self.message, lasts=lasts)
        if self.banner is not None:
            notes += banner_lines(self.banner, cells)
        panels = Panels(
            title=self._title(width, self._name),
            verdict=above.lines,
            body=self._body(view, cells, height - 3 - len(above.lines) - len(notes)),
            notice=notes,
            health=health,
            framed=self._framed,
        )
        return panels if self.banner is None else self._spotlit(panels, self.banner, cells)

    def _spotlit(self, panels: Panels, banner: TourBanner, cells: int) -> Panels:
        """Return the panels with all faint but the banner and the parts that it is about, as long as they are shown."""
        verdict_rows, body_rows = spotlight.lit(banner.points, panels.verdict, panels.body)
        is_elsewhere = banner.context != self.context or self.selection.details
        if is_elsewhere or not (verdict_rows or body_rows):
            return panels

        def spotlit(lines: list[Line], rows: Collection[int]) -> list[Line]:
            drawn = []
            for row, line in enumerate(lines):
                drawn.append(spotlight.bright(line, self.ink) if row in rows else spotlight.faint(line))
            return drawn

        banner_begin = len(panels.notice) - len(banner_lines(banner, cells))
        return replace(
            panels,
            title=spotlight.faint(panels.title),
            verdict=spotlit(panels.verdict, verdict_rows),
            body=spotlit(panels.body, body_rows),
            notice=[*spotlit(panels.notice[:banner_begin], ()), *panels.notice[banner_begin:]],
            health=spotlight.faint(panels.health),
        )

    def draw_strip(self, width: int) -> list[Line]:
        """Return at most eight lines: title, the first devices, the most urgent finding, else a notice, and health."""
        self._framed = False
        view = self.view
        # no row is marked as selected, because no key selects one
        subjects = [replace(subject, selection=replace(subject.selection, selected="")) for subject in view.subjects()]
        above = verdict(view, self._trouble(), width, _STRIP, keys=False)
        lasts = status.lasting(view, self.reported, toured=False)
        notes = (
            []
            if above.named and not self.message
            else notices(view, self.reported, width, reading="", message=self.message, lasts=lasts)[:2]
        )
        most = min(STRIP_ROWS, _STRIP - _STRIP_REST - len(above.lines) - len(notes))
        rows = device_rows(view, subjects[:most], subjects, width) if subjects else paragraph(no_rows(view), width)
        rows = rows[: 1 + most]
        lines = (self._title(width), *above.lines, *rows, *notes, self._health(width, above, ""))
        return [fit(line, width) for line in lines]

    @property
    def _name(self) -> str:
        """Return the name of the screen for its title; a panel of the overview has its own."""
        selection = self.selection
        own = selection.panel if selection.screen == "overview" else selection.screen
        own = "capture" if selection.details else screen_title(own)
        return own if self.comparison is None else "compare"

    @property
    def _filters(self) -> list[str]:
        """Return what leaves out I/Os or devices of the screen, in words for its title."""
        selection = self.selection
        return [
            *([f"{selection.op} only"] if selection.op != OP_CHOICES[0][0] else []),
            *([f"/{selection.pattern.strip()}"] if selection.pattern.strip() else []),
        ]

    def _title(self, width: int, screen: str = "") -> Line:
        devices = sum(device.kind != "host" for device in self.history.devices())
        return status.title(
            self.store.origin,
            self.history.window,
            self.mode,
            width,
            screen=screen,
            devices=devices,
            filters=self._filters if screen and self.comparison is None else (),
        )

    def _health(self, width: int, above: Verdict, not_shown_text: str) -> Line:
        """Return the health line. `above`: the rows below the title; `found`: findings that are in none of them."""
        store, window, ages = self.store, self.history.window, self.history.ages
        oldest = ages.oldest[0].device if ages.oldest else ""
        if above.names_oldest or any((finding.id, finding.device) == (STARVED, oldest) for finding in above.named):
            ages = status.NOTHING  # the finding names it
        ended = self.ended is not None
        return status.health(
            store.origin,
            window,
            store.devices,
            width,
            self._tracing(),
            ages=ages,
            found=not_shown_text,
            ended=ended,
            threshold_us=self._asked().threshold_us,
        )

    def _trouble(self) -> list[str]:
        """Return what makes the numbers doubtful, in the words of the health line."""
        origin = self.store.origin
        if origin is None:
            return []
        facts = status.health_facts(origin, self.history.window, self.store.devices, self._tracing())
        return [fact.text for fact in facts if fact.bad]

    def _tracing(self) -> status.Tracing:
        requested = self.selection.screen != "overview"
        if self.history.is_partial:
            return status.Tracing()
        if (origin := self.store.origin) and not origin.traces_stages:
            return status.Tracing(requested=requested, stages=False)
        starting = self.starting(self.selection.stages)
        if starting or not self.history.any_traced:
            return status.Tracing(requested=requested, starting=starting)
        on_demand = self.history.on_demand
        traced = on_demand.tails if self.selection.screen == "overview" else on_demand.traced
        lost = self.history.made("not followed", lambda: untraced_share(traced))
        share = self.history.made("traced", lambda: traced_share(traced, self.history.window, self.store.devices))
        return status.Tracing(traced.one_in, traced.devices, share, lost, requested)

    def starting(self, stages: str) -> bool:
        """Return whether tracing was requested and has not begun. `stages`: one of STAGES_MODES."""
        state, origin = self.reported.tracing, self.store.origin
        if self._mode != "LIVE" or self.ended is not None or origin is None or no_distribution(origin):
            return False
        return state.startswith(TRACER_STARTING) or (stages == "all" and not state)

    @property
    def _is_awaiting(self) -> bool:
        return self.edge.store.arrived < self.awaited

    def _body(self, view: ViewState, width: int, room: int) -> list[Line]:
        """Return the panel; it is drawn again when its map got another timeline and a cursor moves to that."""
        if self.comparison is not None:
            from latmon.views.panels.compare import panel  # noqa: PLC0415 - with `diff`, which a start doesn't need

            devices = [subject.device.name for subject in view.subjects()]
            return panel(self.comparison, self.selection, self.ink, width, room, devices=devices)
        if self._is_awaiting:
            return empty_panel(f"making the demo's history: {self.edge.store.arrived} of {self.awaited} s", width, room)
        if self.history.is_partial and not (self.selection.screen in _OF_FRAMES and not self.selection.fold):
            return empty_panel(f"reading {clock(self.at.wall)} …" if self.at else "summing …", width, room)
        if self.selection.details:
            return status.details(view, self._tracing(), width, room)
        draw, before = SCREENS[self.selection.screen], self._latency_map.drawn
        lines = draw(view, width, room)
        cursor, after = self.selection.cursor, self._latency_map.drawn
        if cursor is None or before is None or after is None or before.timeline is after.timeline:
            return lines
        self.selection = replace(self.selection, cursor=carried(cursor, before.timeline, after.timeline))
        return draw(self.view, width, room)


def screen_lines(scene: Scene, foot: Line, width: int, height: int) -> list[Line]:
    """Return exactly `height` lines for the terminal."""
    if width < MIN_SIZE[0] or height < MIN_SIZE[1]:
        least = f"{MIN_SIZE[0]}x{MIN_SIZE[1]} needed, this is {width}x{height}"
        small: list[Line] = [
            (Span("terminal too small", "strong"),),
            *((Span(wrapped_line),) for wrapped_line in wrap(least, width)),
        ]
        return small[:height]
    panels = scene.draw(width, height)
    room = height - 3 - len(panels.verdict) - len(panels.notice)
    body, keys = panels.body, fit(foot, width)
    if panels.framed and not (body and is_heading(body[0])):  # a panel that has nothing to show begins with a blank
        top = heading((Span(f" {screen_title(scene.selection.screen)}", "strong"),), width - 2)
        body = [top, *(body[1:] if body and not body[0] else body)]
    body = [*cut(body, room), *[()] * (room - len(body))]
    if panels.framed:
        lines = [*body, *panels.notice, panels.health]
        framed = panelled(lines, width, height - 2 - len(panels.verdict), scene.ink.corners)
        return [panels.title, *panels.verdict, *framed, keys]
    return [panels.title, *panels.verdict, *map(dashed, body), *map(dashed, panels.notice), panels.health, keys]
