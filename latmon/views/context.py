"""The view context that every panel reads, and the reasons for an empty panel or an unknown number. Immutable.

The context has history, timeline, selection and styles. Absence is not zero: a panel without data has a reason as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from latmon.aggregate.history import Window
from latmon.analysis.attribution import total_of
from latmon.analysis.limits import ceiling, wall
from latmon.analysis.peers import Order, in_flight_us, natural
from latmon.analysis.threshold import Slower, is_above, slower
from latmon.capture.registry import compiling
from latmon.findings.rule import Finding
from latmon.findings.rules import starved_io
from latmon.model.frame import OPS, PROBES_STARTING, TRACER_STARTING, Device, Flow, Frame, Origin, Outlier, Traced
from latmon.model.histogram import Histogram
from latmon.model.inflight import Aged
from latmon.model.measurements import ABOVE, ERRORS, ISSUERS
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.recording.archive import Past, TimelineEvent
from latmon.support.units import spelled
from latmon.views.device_table import Group, Subject, group_names, groups, order
from latmon.views.findings_state import NOTHING, CurrentFindings
from latmon.views.heatmap import Ink
from latmon.views.heatmap_state import HeatmapState
from latmon.views.history import History
from latmon.views.selection import APART, SORTS, Selection, shown
from latmon.views.units import count, span

MEASURING = "the tracer runs: no I/O that it follows has completed yet"
QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
_FIRST_EVALUATED_US = 2_500_000
"""Covered time of a replay at which rules have been evaluated at the latest."""
OFF = "off"
PREVIEW = "the probes are starting"
"""Reason of the origin whose counters are shown before the source has its first frame."""


def why_no_rows(
    origin: Origin | None, *, frames: int, devices: int, pattern: str, globs: tuple[str, ...], backend: str = "auto"
) -> str:
    """Return the reason for an empty device table. `backend`: the requested one."""
    if origin is None:
        return "; ".join(reason for reason in ("starting: opening the backend", compiling(backend)) if reason)
    if not frames and origin.backend == "demo":
        return f"{compiling('demo')} …"
    if not frames:
        return f"started: the first interval ({span(origin.interval_us)}) isn't over yet"
    if not devices:
        return f"{origin.backend} sees no block device here"
    wanted = f"filter {pattern!r}" if pattern else f"--device {' '.join(globs)}"
    return f"filtered: {wanted} matches none of {devices} devices" + ("; Esc clears the filter" if pattern else "")


def no_distribution(origin: Origin) -> str:
    """Return why the backend has no latency histograms; empty when it has."""
    if "total" in origin.measured:
        return ""
    reasons = {m.name: m.reason for m in origin.absent}
    why = reasons.get("total", origin.reason) or "it counts I/Os, but doesn't time each of them"
    return f"{origin.backend} has no distributions: {why}{'' if 'mean' in why else '; mean only'}"


def means_only(origin: Origin) -> str:
    """Return what a source without distributions shows instead of a heat map, and how to get one."""
    how = origin.reason or "`latmon doctor` shows what the latencies of single I/Os need"
    return f"{origin.backend} counts I/Os and does not time each of them, so the bars are means: {how}"


def no_map(subject: Subject, origin: Origin) -> str:
    """Return why a device's heat map is empty; empty text when it isn't."""
    device, window, selection = subject.device, subject.window, subject.selection
    if window.latency(device.name, selection.ops):
        return ""
    if subject.gone:
        return f"{device.name} is gone"
    if untimed := _untimed(device):
        return untimed
    if without := no_distribution(origin):
        return without
    what = "" if selection.op == "all" else f"{selection.op} "
    if subject.ios:
        failed = f"; {count(subject.failed)} failed" if subject.failed else ""
        return f"{count(subject.ios)} {what}I/Os completed, but the probe timed none of them{failed}"
    in_flight = subject.outstanding.known
    done, more = (
        ("completed ", f"; {count(in_flight)} {'of any op ' if what else ''}in flight") if in_flight else ("", "")
    )
    seen_us = min(window.length_us, max(round(window.covered_us, -6), 1_000_000))
    return f"no {what}I/O {done}on {device.name} in the last {span(seen_us)}{more}"


def not_traced(
    what: str,
    origin: Origin | None,
    parts: tuple[str, ...] = (),
    *,
    mode: str = "auto",
    recorded: bool = False,
    state: str = "",
) -> str:
    """Return why nothing is traced of `what` (stages, interrupts, wake-ups), and how to start it.

    `state`: the tracer's state, where tracing was requested; `parts`: stages and tables, one must be traceable.
    """
    if origin is None or origin.reason in (PREVIEW, PROBES_STARTING):
        return "starting: opening the backend" if origin is None else f"{what}: {PROBES_STARTING}"
    if without := no_distribution(origin):
        apart = next(
            (missing_stage.reason for missing_stage in origin.absent if missing_stage.name != "total"), without
        )
        why = apart if what == "stages" else "they need a probe; latmon doctor names those that can run here"
        return f"{what} are not measured by {origin.backend}: {why}"
    if never := origin.why_untraced(*parts):
        return f"{what} are not traced: {never}"
    if recorded and state == MEASURING:
        return f"{what} are not in this part of the recording: the tracer ran and recorded none of them"
    if recorded:
        return f"{what} are not in this recording: {state or 'it was made without --stages all'}"
    if state.startswith(TRACER_STARTING):
        state += "; its probes are compiled and attached, which takes up to a minute on a busy host"
    off = " (--stages basic)" if mode == "basic" else ""
    return f"{what}: {state}" if state else f"{what} are not traced{off}: press S, or --stages all"


def no_softirqs(origin: Origin) -> str:
    """Return why softirqs can't be measured on the host; empty where they can."""
    if origin.backend == "dtrace":
        return "softirqs are the Linux kernel's, and no D script measures them"
    return "not on this system: softirqs are the Linux kernel's" if origin.kernel.startswith("SunOS") else ""


def no_threshold(automatic_us: Iterable[int]) -> str:
    """Return that no threshold is set; `automatic_us`: those from which on I/Os are logged all the same."""
    limits = sorted(set(automatic_us))
    if not limits:
        return "no threshold"
    ends = " to ".join(spelled(limit) for limit in dict.fromkeys((limits[0], limits[-1])))
    return f"no threshold (log from {ends})"


def unknown_quantiles(histogram: Histogram) -> str:
    """Return which quantile of a row is `-`, and how many I/Os it needs."""
    missing = [(label, q) for q, label in QUANTILES if histogram.quantile(q) is None]
    if not histogram or not missing:
        return ""
    label, q = missing[0]
    return f"{label} needs {count(round(1 / (1 - q)))} I/Os"


def _untimed(device: Device) -> str:
    if device.untimed:
        return f"the I/Os of {device.name} are counted and not timed: {device.untimed}"
    if device.timed:
        return ""
    where = f"its I/O is timed at {', '.join(device.members)}" if device.members else "only the tracer measures it"
    return f"{device.name} ({device.kind}) isn't timed itself: {where}"


def _only_processes(issuers: Mapping[Issuer, IssuedIO]) -> bool:
    """Return whether processes are known, and no I/O is timed by cgroup."""
    is_timed = any(done.latency and not issuer.is_process for issuer, done in issuers.items())
    return not is_timed and any(issuer.is_process for issuer in issuers)


class InFlightAbove(NamedTuple):
    """The I/Os of a device that have been in flight for longer than the threshold."""

    ios: int = 0
    is_least: bool = False
    """There may be more: some ages are bounds, or not known."""


@dataclass(frozen=True)
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
    framed: bool = False
    """Panels have frames."""

    @property
    def origin(self) -> Origin | None:
        return self.history.store.origin

    @property
    def maps(self) -> Mapping[str, HeatmapState]:
        """Return the latency maps of the selected device from above, by their op."""
        if not self.selection.splits:
            return {self.selection.op: self.latency_map}
        return dict(zip(APART, (self.latency_map, self.write_map), strict=True))

    def above(self, subject: Subject) -> Slower | None:
        """Return the I/Os of a device above the threshold, as each screen shows them; None without a threshold.

        They are exact where the probe counted all of them by this threshold. An automatic threshold moves, also if it
        has this value now: then the buckets of the histogram have their number.
        """
        threshold_us = self.selection.threshold_us
        if threshold_us is None:
            return None
        name, ops, on_demand = subject.device.name, subject.selection.ops, self.history.on_demand
        histogram = subject.window.latency(name, ops)
        fixed_us = None if self.origin is None else self.origin.threshold_us
        if fixed_us is None or not fixed_us == threshold_us == on_demand.thresholds_us.get(name):
            return slower(histogram, threshold_us)
        return slower(histogram, threshold_us, sum(on_demand[ABOVE].get(Flow(name, op), 0) for op in ops))

    def in_flight_above(self, device: str) -> InFlightAbove:
        """Return the I/Os of a device that are in flight for longer than the threshold; none without a threshold.

        Where nothing follows I/Os, a finding has a least number of them.
        """
        threshold_us, ages = self.selection.threshold_us, self.history.ages
        if threshold_us is None:
            return InFlightAbove()
        older = [aged for aged in ages.of(device) if self._is_of_ops(aged) and is_above(aged.age_us, threshold_us)]
        ios, is_least = sum(aged.count for aged in older), device in ages.unknown
        stuck = self._stuck.get(device)
        if stuck is not None and is_above(stuck.age_us, threshold_us):
            ios = max(ios, next((int(fact.value) for fact in stuck.facts if fact.name == starved_io.WAITING), 0))
        return InFlightAbove(ios, is_least or any(aged.at_least for aged in older))

    def _is_of_ops(self, aged: Aged) -> bool:
        """Return whether I/Os in flight are of the selected ops; of which op some are is not known."""
        selection = self.selection
        return aged.request.op in selection.ops if aged.request else selection.op == "all"

    @cached_property
    def _stuck(self) -> Mapping[str, Finding]:
        """Return device -> the finding that knows by its counts alone that I/Os are stuck; of all ops."""
        if self.selection.op != "all":
            return {}
        return {
            finding.device: finding
            for finding in self.found.urgent
            if finding.id == starved_io.ID and any(fact.name == starved_io.WAITING for fact in finding.facts)
        }

    def is_full(self, subject: Subject) -> bool:
        """Return whether a driver is at its limit now, or I/Os wait above it and it is for most of the window.

        The number of now is that of one moment, and often one less.
        """
        if subject.at_limit or not subject.outstanding.queued or subject.limit is None:
            return subject.at_limit
        depths = self.history.depth_sum(subject.device.name, brief=True)
        return depths is not None and wall(depths.depths, ceiling(subject.device.limits)) == subject.limit

    def outliers_of(self, device: str) -> Sequence[Outlier]:
        """Return the recorded slow I/Os of a device in the window."""

        def by_device() -> dict[str, list[Outlier]]:
            by_devices: dict[str, list[Outlier]] = {}
            for outlier in self.history.on_demand.outliers:
                by_devices.setdefault(outlier.device, []).append(outlier)
            return by_devices

        return self.history.made("outliers by device", by_device).get(device, ())

    @property
    def lists_processes(self) -> bool:
        """Return whether the screen of issuers has a row per process.

        Without a choice of the user it has wherever processes are known and no I/O is timed by cgroup.
        """
        if self.selection.processes is not None:
            return self.selection.processes
        if self.selection.screen != "who":
            return False
        return self.history.made("lists processes", lambda: _only_processes(self.history.on_demand[ISSUERS]))

    def _oldest_us(self) -> dict[str, int]:
        """Return device -> the greatest known age of its I/Os in flight, of the selected ops."""
        history, selection, oldest_us = self.history, self.selection, dict[str, int]()
        for io in history.ages.oldest:
            if self._is_of_ops(io):
                oldest_us[io.device] = max(oldest_us.get(io.device, 0), io.age_us)
        for device, finding in self._stuck.items():
            oldest_us[device] = max(oldest_us.get(device, 0), finding.age_us)
        last = history.window.last
        if last is not None and last.in_flight is not None and history.is_partial:
            for request in last.in_flight.oldest:
                if request.op in selection.ops:
                    age_us = last.mono_us - request.began_us
                    oldest_us[request.device] = max(oldest_us.get(request.device, 0), age_us)
        return oldest_us

    def _failed(self) -> dict[str, int]:
        """Return device -> its I/Os of the selected ops that failed."""
        failed: dict[str, int] = {}
        for row, ios in self.history.on_demand[ERRORS].items():
            if row.op in self.selection.ops:
                failed[row.device] = failed.get(row.device, 0) + ios
        return failed

    def subjects(self) -> list[Subject]:
        """Return the devices in the order of their rows, without trends; each knows the selected device."""
        return list(self._subjects)

    @cached_property
    def _subjects(self) -> list[Subject]:
        history, gone = self.history, self.history.store.removed
        devices = shown(history.devices(), self.selection)
        oldest_us, failed = self._oldest_us(), self._failed()
        # a finding has the same claim by another measure, and one fact has one number
        times_peers = {**history.times_peers, **self.found.times_peers}
        rows = order(
            [
                Subject(
                    d,
                    history.window,
                    self.selection,
                    times_peers.get(d.name),
                    gone=d.name in gone,
                    oldest_us=oldest_us.get(d.name, 0),
                    failed=failed.get(d.name, 0),
                )
                for d in devices
            ],
            self.selection.sort,
            self.found.places,
            steady=self.order,
            keep=history.is_partial,
            waits=self.found.coming or self._awaits_findings,
            in_flight_us=in_flight_us(history.ages.oldest, history.window.length_us),
        )
        rows = self._in_group(rows)
        if rows and not any(s.device.name == self.selection.selected for s in rows):
            selection = replace(self.selection, selected=rows[0].device.name)
            for row in rows:
                row.selection = selection
        in_places = self._in_places(len(rows))  # those without a map last
        return sorted(rows, key=lambda s: (not s.device.timed, natural(s.device.name))) if in_places else rows

    @property
    def _awaits_findings(self) -> bool:
        """Return whether a replay has just begun: its rules are evaluated for the first time after 2 s.

        A picture, which has no past, has its findings at once.
        """
        is_played = self.recorded and self.past is not None
        return is_played and not self.found.evaluated and self.history.window.covered_us < _FIRST_EVALUATED_US

    def _in_group(self, rows: list[Subject]) -> list[Subject]:
        """Return the rows of the opened group, in the order that they have among all; all rows where none is open."""
        kind, within = self.selection.group, self.selection.within
        if not within:
            return rows
        names = self.history.made(("groups", kind), lambda: group_names(kind, self.history.devices()))
        return [row for row in rows if names.get(row.device.name) == within]

    def groups(self) -> list[Group]:
        """Return the groups of devices in the order of their rows."""
        return groups(self.subjects(), self.selection.group)

    def _in_places(self, devices: int) -> bool:
        """Return whether small maps are in the order of names, where each keeps its place.

        They are where all fit, unless the user chose an order.
        """
        selection = self.selection
        is_maps = selection.screen == "overview" and selection.panel == "maps"
        return is_maps and selection.sort == SORTS[0] and self.latency_map.page >= devices


def tracing_state(frame: Frame) -> str:
    """Return the tracer's state as the end of a sentence; empty where tracing was not requested."""
    if frame.traced.one_in:
        return MEASURING
    why = next((missing_stage.reason for missing_stage in frame.traced.absent), "")
    return why if not why or why.startswith(TRACER_STARTING) else f"{OFF}: {why}"


def traced_share(traced: Traced, window: Window, devices: Iterable[str]) -> float | None:
    """Return the share of traced I/Os among those that the always-on probe timed, on the devices that are traced."""
    by_device = {device: n for device in devices if (n := total_of(traced, device).count)}
    timed = {device: window.latency(device, OPS).count for device in by_device}
    both = sum(min(by_device[device], n) for device, n in timed.items())
    return both / sum(timed.values()) if any(timed.values()) else None


def selected(subjects: list[Subject]) -> Subject | None:
    """Return the selected device; the first, worst one until the user selects."""
    return next((s for s in subjects if s.device.name == s.selection.selected), None)


def no_rows(view: ViewState) -> str:
    """Return the reason for an empty device table."""
    if view.selection.within and view.origin is not None:
        return f"no device of {view.selection.within} is there and passes the filter; Esc shows all groups"
    return why_no_rows(
        view.origin,
        frames=len(view.history.window.frames),
        devices=len(view.history.store.devices),
        pattern=view.selection.pattern,
        globs=view.selection.globs,
        backend=view.selection.backend,
    )
