"""The view context that every panel reads: history, timeline, selection, styles. Immutable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from latmon.aggregate.history import Window
from latmon.analysis.device_order import Order, in_flight_us
from latmon.model.frame import OPS, STARTING, Frame, Origin, Traced
from latmon.views import empty
from latmon.views.device_table import Subject, order
from latmon.views.findings_state import NOTHING, Standing
from latmon.views.heatmap import Ink
from latmon.views.heatmap_state import Sweep
from latmon.views.history import History
from latmon.views.lines import BLANK, Line, Span, wrap
from latmon.views.selection import Choice, shown

OFF = "off"
MEASURING = empty.MEASURING


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at everything."""

    history: History
    sweep: Sweep
    choice: Choice
    ink: Ink
    waits: Sweep
    """Of the delays of softirqs, as `sweep` is of latencies."""
    depths: Sweep
    """Of how many I/Os were outstanding."""
    recorded: bool = False
    """A recording is played: what isn't in it can't be asked for."""
    tracing: str = ""
    """What the deep probes do as of the newest frame, by `tracing_state`."""
    away: bool = False
    """An earlier time is looked at."""
    found: Standing = NOTHING
    """What rules found by then."""
    order: Order = field(default_factory=Order)
    """Keeps rows in their place."""

    @property
    def origin(self) -> Origin | None:
        return self.history.store.origin

    def subjects(self) -> list[Subject]:
        """The devices in the order of their rows, the selected one known to each; without trends."""
        history, gone = self.history, self.history.store.removed
        devices = shown(history.devices(), self.choice)
        rows = order(
            [
                Subject(d, history.window, self.choice, history.times_peers.get(d.name), gone=d.name in gone)
                for d in devices
            ],
            self.choice.sort,
            frozenset(one.device for one in self.found.urgent),
            steady=self.order,
            keep=history.is_glimpse or self.found.coming,
            in_flight_us=in_flight_us(history.ages.oldest, history.window.length_us),
        )
        if not rows or any(s.device.name == self.choice.selected for s in rows):
            return rows
        choice = replace(self.choice, selected=rows[0].device.name)
        return [replace(s, choice=choice) for s in rows]


def tracing_state(frame: Frame) -> str:
    """Return the tracer's state as the end of a sentence; empty where tracing was not requested."""
    if frame.traced.one_in:
        return MEASURING
    why = next((one.reason for one in frame.traced.absent), "")
    return why if not why or why.startswith(STARTING) else f"{OFF}: {why}"


def traced_share(traced: Traced, window: Window) -> float | None:
    """Of the I/Os that the always-on probe timed, on the devices that are traced, those that were traced too."""
    by_device: dict[str, int] = {}
    for series, one in traced.histograms.items():
        if series.stage == "total":
            by_device[series.device] = by_device.get(series.device, 0) + one.count
    timed = {device: window.latency(device, OPS).count for device in by_device}
    both = sum(min(by_device[device], n) for device, n in timed.items())
    return both / sum(timed.values()) if any(timed.values()) else None


def selected(subjects: list[Subject]) -> Subject | None:
    """The selected device; the first one until the user selects, so that the worst is what is looked at."""
    return next((s for s in subjects if s.device.name == s.choice.selected), None)


def no_rows(sight: Sight) -> str:
    """Why there is no device to show."""
    return empty.no_rows(
        sight.origin,
        frames=len(sight.history.window.frames),
        devices=len(sight.history.store.devices),
        pattern=sight.choice.pattern,
        globs=sight.choice.globs,
        backend=sight.choice.backend,
    )


def sentence(text: str, width: int, room: int) -> list[Line]:
    """Why there is nothing else to see."""
    lines: list[Line] = [BLANK, *((Span(f"  {part}", "text"),) for part in wrap(text, width - 4))]
    return lines[:room]
