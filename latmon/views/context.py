"""The view context that every panel reads: history, timeline, selection, styles. Immutable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from latmon.aggregate.history import Window
from latmon.analysis.device_order import Order, in_flight_us
from latmon.model.frame import OPS, STARTING, Frame, Origin, Traced
from latmon.timetravel.archive import Past
from latmon.timetravel.events import TimelineEvent
from latmon.views import empty
from latmon.views.device_table import Subject, order
from latmon.views.findings_state import NOTHING, CurrentFindings
from latmon.views.heatmap import Ink
from latmon.views.heatmap_state import HeatmapState
from latmon.views.history import History
from latmon.views.selection import Selection, shown

OFF = "off"
MEASURING = empty.MEASURING


@dataclass(frozen=True, slots=True)
class ViewState:
    """Everything that a picture of the screen depends on."""

    history: History
    latency_map: HeatmapState
    selection: Selection
    ink: Ink
    delay_map: HeatmapState
    """Softirq delays."""
    depth_map: HeatmapState
    """Numbers of outstanding I/Os."""
    recorded: bool = False
    """A recording is played: nothing more can be measured."""
    tracing: str = ""
    """The state of the tracer as of the newest frame, by `tracing_state`."""
    away: bool = False
    """An earlier time is shown, not the live edge."""
    found: CurrentFindings = NOTHING
    """The findings at the time that is shown."""
    order: Order = field(default_factory=Order)
    """Keeps rows in place."""
    write_map: HeatmapState = field(default_factory=HeatmapState)
    """Latencies of writes, where they are apart from reads."""
    past: Past | None = None
    """All captured frames."""
    begins: tuple[TimelineEvent, ...] = ()
    """All known begins of findings."""

    @property
    def origin(self) -> Origin | None:
        return self.history.store.origin

    def _oldest_us(self) -> dict[str, int]:
        """Return device -> the greatest known age of its I/Os in flight, of the selected ops."""
        history, selection, found = self.history, self.selection, dict[str, int]()
        for one in history.ages.oldest:
            if one.request.op in selection.ops if one.request else selection.op == "all":
                found[one.device] = max(found.get(one.device, 0), one.age_us)
        last = history.window.last
        if last is not None and last.in_flight is not None and history.is_glimpse:
            for request in last.in_flight.oldest:
                if request.op in selection.ops:
                    age_us = last.mono_us - request.began_us
                    found[request.device] = max(found.get(request.device, 0), age_us)
        return found

    def subjects(self) -> list[Subject]:
        """Return the devices in the order of their rows, without trends; each knows the selected device."""
        history, gone = self.history, self.history.store.removed
        devices = shown(history.devices(), self.selection)
        oldest_us = self._oldest_us()
        rows = order(
            [
                Subject(
                    d,
                    history.window,
                    self.selection,
                    history.times_peers.get(d.name),
                    gone=d.name in gone,
                    oldest_us=oldest_us.get(d.name, 0),
                )
                for d in devices
            ],
            self.selection.sort,
            frozenset(one.device for one in self.found.urgent),
            steady=self.order,
            keep=history.is_glimpse or self.found.coming,
            in_flight_us=in_flight_us(history.ages.oldest, history.window.length_us),
        )
        if not rows or any(s.device.name == self.selection.selected for s in rows):
            return rows
        selection = replace(self.selection, selected=rows[0].device.name)
        return [replace(s, selection=selection) for s in rows]


def tracing_state(frame: Frame) -> str:
    """Return the tracer's state as the end of a sentence; empty where tracing was not requested."""
    if frame.traced.one_in:
        return MEASURING
    why = next((one.reason for one in frame.traced.absent), "")
    return why if not why or why.startswith(STARTING) else f"{OFF}: {why}"


def traced_share(traced: Traced, window: Window) -> float | None:
    """Return the share of traced I/Os among those that the always-on probe timed, on the devices that are traced."""
    by_device: dict[str, int] = {}
    for series, one in traced.histograms.items():
        if series.stage == "total":
            by_device[series.device] = by_device.get(series.device, 0) + one.count
    timed = {device: window.latency(device, OPS).count for device in by_device}
    both = sum(min(by_device[device], n) for device, n in timed.items())
    return both / sum(timed.values()) if any(timed.values()) else None


def selected(subjects: list[Subject]) -> Subject | None:
    """Return the selected device; the first, worst one until the user selects."""
    return next((s for s in subjects if s.device.name == s.selection.selected), None)


def no_rows(view: ViewState) -> str:
    """Return the reason for an empty device table."""
    return empty.no_rows(
        view.origin,
        frames=len(view.history.window.frames),
        devices=len(view.history.store.devices),
        pattern=view.selection.pattern,
        globs=view.selection.globs,
        backend=view.selection.backend,
    )
