"""Reasons for an empty panel or an unknown number, as text. Absence is not zero. Pure."""

from __future__ import annotations

from latmon.capture.registry import compiling
from latmon.model.frame import Device, Origin
from latmon.model.histogram import Histogram
from latmon.views.device_table import Subject
from latmon.views.units import count, span

MEASURING = "the tracer runs: no I/O that it follows has completed yet"
QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))


def no_rows(
    origin: Origin | None, *, frames: int, devices: int, pattern: str, globs: tuple[str, ...], backend: str = "auto"
) -> str:
    """Return the reason for an empty device table. `backend`: the requested one."""
    if origin is None:
        return "; ".join(one for one in ("starting: opening the backend", compiling(backend)) if one)
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
        return f"{count(subject.ios)} {what}I/Os completed, but the probe timed none of them"
    in_flight = subject.outstanding.known
    done, more = (
        ("completed ", f"; {count(in_flight)} {'of any op ' if what else ''}in flight") if in_flight else ("", "")
    )
    return f"no {what}I/O {done}on {device.name} in the last {span(window.length_us)}{more}"


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
    if origin is None:
        return "starting: opening the backend"
    if without := no_distribution(origin):
        why = without if what == "stages" else "they need a probe; latmon doctor says which can run here"
        return f"{what} are not measured by {origin.backend}: {why}"
    if never := origin.why_untraced(*parts):
        return f"{what} are not traced: {never}"
    if recorded and state == MEASURING:
        return f"{what} are not in this part of the recording: the tracer ran and recorded none of them"
    if recorded:
        return f"{what} are not in this recording: {state or 'it was made without --stages all'}"
    off = " (--stages basic)" if mode == "basic" else ""
    return f"{what}: {state}" if state else f"{what} are not traced{off}: press S, or --stages all"


def no_softirqs(origin: Origin) -> str:
    """Return why softirqs can't be measured on the host; empty where they can."""
    if origin.backend == "dtrace":
        return "softirqs are the Linux kernel's, and no D script measures them"
    return "not on this system: softirqs are the Linux kernel's" if origin.kernel.startswith("SunOS") else ""


def unknown_quantiles(histogram: Histogram) -> str:
    """Return which quantile of a row is `-`, and how many I/Os it needs."""
    missing = [(label, q) for q, label in QUANTILES if histogram.quantile(q) is None]
    if not histogram or not missing:
        return ""
    label, q = missing[0]
    return f"{label} needs {count(round(1 / (1 - q)))} I/Os"


def _untimed(device: Device) -> str:
    if device.timed:
        return ""
    where = f"its I/O is timed at {', '.join(device.members)}" if device.members else "only the tracer measures it"
    return f"{device.name} ({device.kind}) isn't timed itself: {where}"
