"""The scene: history, choice and the running sums behind every panel; draws all of them for a size.

Owns what is shown and how far pausing froze it. Mutable, but knows no widget and no clock: frames and choices come in,
lines go out, so that a whole screen is tested by comparing text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from latmon.histogram import bucket_index
from latmon.model import OPS, Frame
from latmon.store import Store, Window
from latmon.views import empty, status
from latmon.views.choice import Choice, shown
from latmon.views.heatmap import LABEL, TOTALS, Ink, MapStyle, axis, labelled, legend
from latmon.views.lines import BLANK, Line, Span, fit, wrap
from latmon.views.lines import width as line_width
from latmon.views.multiples import Grid, grid, page, tiles
from latmon.views.peers import INTERVALS, unlike
from latmon.views.scale import Extent, LatencyScale, extent, latency_scale, settle
from latmon.views.table import RAMP_SPARKS, SPARKS, Subject, fitting, header, order, row, sparkline
from latmon.views.timeline import Timeline
from latmon.views.trends import Trends
from latmon.views.units import duration

MIN_SIZE = (40, 10)
_MIN_MAP = 11
_RESCALE_COLUMNS = 16
_TREND_STRETCHES = 12


@dataclass(frozen=True, slots=True)
class Panels:
    """A whole screen but its last line: the table, and the map or maps below it."""

    title: Line
    table: list[Line]
    map: list[Line]
    notice: list[Line]
    health: Line


class Scene:
    """All that the screen shows."""

    def __init__(self, choice: Choice, *, mode: str = "LIVE", ink: Ink = Ink(), store: Store | None = None) -> None:  # noqa: B008  frozen
        self.store = store or Store()
        self.choice = choice
        self.ink = ink
        self.message = ""
        self.ended: str | None = None
        self._mode = mode
        self._paused_at: int | None = None
        self._shown = 0
        self._window = Window(choice.window_us)
        self._trends = Trends(self._stretch_us, choice.ops)
        self._timeline: Timeline | None = None
        self._extent: Extent | None = None
        self._unlike: dict[str, float] = {}
        self._part = -1

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    @property
    def window(self) -> Window:
        return self._window

    @property
    def mode(self) -> status.Mode:
        if self.paused:
            return status.Mode("PAUSED", self.store.arrived - self._shown)
        return status.Mode(self._mode) if self.ended is None else status.Mode("ENDED", 0, self.ended)

    def append(self, frame: Frame) -> None:
        """One more frame: kept at once, shown unless paused."""
        kept = self.store.append(frame)
        if not self.paused:
            self._show(kept)

    def pause(self) -> None:
        """Freeze what is shown; frames keep arriving."""
        last = self._window.last
        self._paused_at = last.mono_us if last else -1

    def resume(self) -> None:
        """Go to the live edge."""
        self._paused_at = None
        self._rebuild()

    def choose(self, choice: Choice) -> None:
        """Look at something else; only what depends on the change is summed anew."""
        old, self.choice = self.choice, choice
        if (old.window_us, old.ops) != (choice.window_us, choice.ops):
            self._rebuild()
        elif old.panel != choice.panel:
            self._timeline = None

    def subjects(self) -> list[Subject]:
        """The rows in order, without trends."""
        gone = self.store.removed
        busy = [d for d in self.store.devices.values() if d.name not in gone or self._remembers(d.name)]
        found = [
            Subject(d, self._window, self.choice, self._unlike.get(d.name), gone=d.name in gone)
            for d in shown(busy, self.choice)
        ]
        return order(found, self.choice.sort)

    def selected(self, subjects: list[Subject]) -> Subject | None:
        """The selected device; the first one until the user selects, so that the worst is what is looked at."""
        return next((s for s in subjects if s.device.name == self.choice.selected), subjects[0] if subjects else None)

    def draw(self, width: int, height: int) -> Panels:
        """Everything for a screen of this size; the caller adds the line of keys."""
        subjects = self.subjects()
        chosen = self.selected(subjects)
        if chosen is not None and chosen.device.name != self.choice.selected:
            choice = replace(self.choice, selected=chosen.device.name)
            subjects = [replace(s, choice=choice) for s in subjects]
            chosen = next(s for s in subjects if s.device.name == choice.selected)
        notes = self._notes(width)
        room = height - 3 - len(notes)
        table, panel = self._table_and_map(subjects, chosen, width, room)
        return Panels(
            title=status.title(self.store.origin, self._window, self.mode, width),
            table=table,
            map=panel,
            notice=notes,
            health=status.health(self.store.origin, self._window, self.store.devices, width),
        )

    def _table_and_map(
        self, subjects: list[Subject], chosen: Subject | None, width: int, room: int
    ) -> tuple[list[Line], list[Line]]:
        origin = self.store.origin
        if chosen is None or origin is None:
            why = empty.no_rows(
                origin,
                frames=len(self._window.frames),
                devices=len(self.store.devices),
                pattern=self.choice.pattern,
                globs=self.choice.globs,
            )
            return [], _sentence(why, width, room)
        if self.choice.panel == "maps":
            return [], self._maps(subjects, width, room)
        rows = [chosen] if self.choice.panel == "zoom" else _around(subjects, chosen, max(room - 1 - _MIN_MAP, 1))
        table = self._table(rows, len(subjects), width)
        return table, self._map(chosen, width, room - len(table))

    def _table(self, rows: list[Subject], total: int, width: int) -> list[Line]:
        origin = self.store.origin
        columns, trend = fitting(width, distribution=origin is None or not empty.no_distribution(origin))
        glyphs = SPARKS if self.ink.coloured else RAMP_SPARKS
        bounds = self._trends.bounds()
        head = header(columns, trend, self.choice)
        if len(rows) < total and trend:
            head = (*head[:-1], Span(f"{f'{len(rows)} of {total}':<{trend}}", "dim"))
        return [
            head,
            *(
                row(replace(s, trend=sparkline(self._trends.of(s.device.name), trend, bounds, glyphs)), columns, trend)
                for s in rows
            ),
        ]

    def _map(self, chosen: Subject, width: int, room: int) -> list[Line]:
        origin = self.store.origin
        assert origin is not None  # noqa: S101  drawn only once there is a row
        head = status.headline(chosen, width)
        if why := empty.no_map(chosen, origin):
            return [head, *self._without_map(chosen, why, width, room - 1)]
        timeline = self._slots(width - LABEL - TOTALS)
        style = self._style(timeline, room - 2, width - LABEL - TOTALS)
        lines = labelled(timeline, chosen.device.name, style, width)
        return [head, *lines, _beside(axis(timeline, style), legend(style), width)]

    def _without_map(self, chosen: Subject, why: str, width: int, room: int) -> list[Line]:
        lines = _sentence(why, width, room)
        means = [
            f"{op} {duration(c.time_us / c.count)}"
            for op in self.choice.ops
            if (c := self._window.completed(chosen.device.name, op)) and c.count and c.time_us is not None
        ]
        if means and len(lines) < room:
            lines += [BLANK, (Span(f"  mean  {'  '.join(means)}", "text"),)]
        return lines[:room]

    def _maps(self, subjects: list[Subject], width: int, room: int) -> list[Line]:
        where = grid(width, room, len(subjects), lambda cells: self._shape(cells - 1)[2])
        timeline = self._slots(where.tile_width - 1)
        style = self._style(timeline, where.tile_height - 1, where.tile_width - 1)
        some = page(subjects, subjects[0].choice.selected, where.tiles)
        origin = self.store.origin
        why = {s.device.name: empty.no_map(s, origin) for s in some} if origin else {}
        return tiles(some, timeline, style, where, why)

    def _style(self, timeline: Timeline, rows: int, width: int) -> MapStyle:
        span = self._extent or Extent()
        limit = self.choice.threshold_us
        if limit is not None:
            span = replace(span, low=min(span.low, bucket_index(limit)), high=max(span.high, bucket_index(limit)))
        scale: LatencyScale = latency_scale(span, max(rows, 1))
        return MapStyle(scale, span.top, max(1, width // timeline.slots), self.ink, limit)

    def _slots(self, room: int) -> Timeline:
        """The timeline for a map of `room` cells: as many columns as the window needs, at most as many as fit."""
        column_us, slots, _ = self._shape(room)
        old = self._timeline
        if old is None or (old.column_us, old.slots) != (column_us, slots):
            self._timeline = Timeline(column_us, slots, self.choice.ops, self._frames())
            self._extent = settle(self._extent, extent(self._timeline.columns))
        assert self._timeline is not None  # noqa: S101  for the type checker
        return self._timeline

    def _shape(self, room: int) -> tuple[int, int, int]:
        """(column_us, slots, cells used) of a map in `room` cells: whole frames a column, a slot for the marker."""
        origin = self.store.origin
        interval = origin.interval_us if origin else 1_000_000
        room = max(room, 2)
        column_us = interval * -(-self.choice.window_us // (interval * (room - 1)))
        slots = min(-(-self.choice.window_us // column_us) + 1, room)
        return column_us, slots, slots * max(1, room // slots)

    def _show(self, frame: Frame) -> None:
        self._shown = self.store.arrived
        self._window.advance(frame)
        self._trends.advance(frame)
        if self._timeline is not None:
            newest = self._timeline.newest()
            self._timeline.advance(frame)
            self._rescale(turned=self._timeline.newest() != newest)
        self._compare(frame)

    def _rescale(self, *, turned: bool) -> None:
        timeline = self._timeline
        assert timeline is not None  # noqa: S101  for the type checker
        whole = turned and timeline.newest() % _RESCALE_COLUMNS == 0
        now = extent(timeline.columns if whole else [timeline.columns[-1]])
        old = self._extent
        if whole or old is None:
            self._extent = settle(old, now)
        else:
            self._extent = Extent(min(old.low, now.low), max(old.high, now.high), max(old.top, now.top))

    def _compare(self, frame: Frame) -> None:
        """Look for the device unlike its peers, once for each part of the window that is over."""
        part = frame.mono_us * INTERVALS // self.choice.window_us
        if part != self._part:
            self._part = part
            self._unlike = unlike(self._window.frames, self.choice.window_us, self.store.devices, self.choice.ops)

    def _rebuild(self) -> None:
        frames = self._frames()
        self._window = Window(self.choice.window_us, frames)
        self._trends = Trends(self._stretch_us, self.choice.ops, frames)
        self._timeline = None
        self._extent = None
        self._part = -1
        if frames:
            self._compare(frames[-1])
        if not self.paused:
            self._shown = self.store.arrived

    def _frames(self) -> list[Frame]:
        at = self._paused_at
        return [f for f in self.store.frames if at is None or f.mono_us <= at]

    @property
    def _stretch_us(self) -> int:
        return max(self.choice.window_us // _TREND_STRETCHES, 1)

    def _remembers(self, name: str) -> bool:
        return any((c := self._window.completed(name, op)) and c.count for op in OPS)

    def _notes(self, width: int) -> list[Line]:
        state = self._window.health()
        text = self.message or state.notice or (self.store.origin.reason if self.store.origin else "")
        role = "bad" if state.notice and not self.message else "strong" if self.message else "dim"
        return [(Span(f" {line}", role),) for line in wrap(text, width - 2)[:2]]


def _beside(left: Line, right: Line, cells: int) -> Line:
    """`right` at the right edge where there is room for it."""
    room = cells - line_width(right)
    return (*fit(left, room), *right) if line_width(left) <= room else left


def _around(subjects: list[Subject], chosen: Subject, rows: int) -> list[Subject]:
    """As many rows as fit, with the selected one among them."""
    at = next(i for i, s in enumerate(subjects) if s is chosen)
    begin = max(0, min(at - rows + 1, len(subjects) - rows))
    return subjects[begin : begin + rows]


def _sentence(text: str, width: int, room: int) -> list[Line]:
    lines: list[Line] = [BLANK, *((Span(f"  {part}", "text"),) for part in wrap(text, width - 4))]
    return lines[:room]


__all__ = ["MIN_SIZE", "Grid", "Panels", "Scene"]
