"""Outstanding I/O of a device in text and HTML: depths, Little's law, limits, the order of issues."""

from __future__ import annotations

from collections.abc import Iterator

from latmon.analysis.limits import at_limit_text
from latmon.report.model.depth import (
    DepthLatency,
    Depths,
    DepthsAtIssue,
    DriverLimit,
    LittlesLaw,
    MeanDepths,
    Outstanding,
    Queue,
    SampledDepths,
)
from latmon.report.model.device import Device
from latmon.support.text import wrapped
from latmon.support.units import counted, duration, part
from latmon.views.units import count, percent

MAX_DEPTHS = 8
"""Rows of a device's table in the text report: the most frequent depths."""
_DEPTH_BAR = 20


def active_sentence(device: Device) -> str | None:
    """Return the part of the time with any I/O; None where it is not known."""
    if device.active_share is None:
        return None
    return f"active: {part(device.active_share)} of the time with any I/O, by the kernel's counter"


def lines(device: Device) -> Iterator[str]:
    """Yield the text report's lines of a device: depths, Little's law, issue order."""
    outstanding = device.outstanding
    if (active := active_sentence(device)) is not None:
        yield f"  {active}"
    for sentence in sentences(outstanding):
        yield from wrapped(sentence, "  ")
    if isinstance(outstanding, Depths):
        yield from _table(outstanding)
        yield from _latencies(outstanding)
    elif isinstance(outstanding, DepthsAtIssue):
        yield from _issue_table(outstanding)
    law = law_of(outstanding)
    if law:
        yield from wrapped(law.sentence, "  ")
    if device.issue_order and device.issue_order.ascending is not None:
        yield from wrapped(f"issue order: {device.issue_order.summary}", "  ")


def sentences(outstanding: Outstanding | None) -> Iterator[str]:
    """Yield the sentences of text and HTML on a device's depths: in the driver, queued above it, and its limit."""
    if isinstance(outstanding, MeanDepths):
        yield from _means(outstanding)
    elif isinstance(outstanding, DepthsAtIssue):
        yield f"outstanding: max {outstanding.max:,}, for how long is not known{_limit(outstanding.bound)}"
    elif isinstance(outstanding, SampledDepths):
        yield _sampled(outstanding)
    elif outstanding is not None:
        yield from _depths(outstanding)
    if not isinstance(outstanding, Depths | MeanDepths):
        return
    if outstanding.held_at is not None:
        yield f"limited to {outstanding.held_at:,} in the driver while more were queued"
    elif is_limited(outstanding) and outstanding.bound is not None:
        yield at_limit_text(outstanding.bound.limit)


def _means(depths: MeanDepths) -> Iterator[str]:
    queue = depths.queued
    where = "in the driver" if queue else "outstanding, queued or in the driver"
    yield f"{where}: mean {depths.mean:.3g}, any for {part(depths.busy)} of the time{_limit(depths.bound)}"
    if queue:
        yield f"queued above it: mean {queue.mean:.3g}, any for {part(queue.busy)} of the time"


def _sampled(depths: SampledDepths) -> str:
    share = depths.time_share[depths.mode]
    few = "" if depths.windows is None else f"in {round(share * depths.windows)} of {counted(depths.windows, 'window')}"
    many = few or f"{percent(share)} of them"
    usual = _usual(depths.mode, share)
    return f"outstanding at the windows' ends: max {depths.max}, {usual} ({many}){_limit(depths.bound)}"


def _depths(depths: Depths) -> Iterator[str]:
    if depths.busy_mode is None:
        most = f"none in any sample, up to {max(depths.at_issue):,} at issue" if depths.at_issue else "none was seen"
        yield f"in the driver: {most}{_limit(depths.bound)}"
    else:
        yield f"in the driver: {_highest(depths, depths.busy_mode)}{_limit(depths.bound)}"
    queue = depths.queued
    if queue:
        yield f"queued above it: {_most_queued(queue)}"


def _highest(depths: Depths, busy_mode: int) -> str:
    """Return the maximum with its time, the most frequent depth and the mean."""
    share = max(depths.busy_time_share.values())
    seen = f" (reached by {depths.max_at})" if depths.max_at else ""
    usual = f"{_usual(busy_mode, share)} ({percent(share)} of the busy time)"
    return f"max {depths.max:,}{seen}, {usual}, mean {depths.mean:.3g}"


def _usual(mode: int, share: float) -> str:
    """Return the most frequent depth: `mostly 3` from half of the time or of the windows on, else `most often 3`."""
    return f"{'mostly' if share >= 0.5 else 'most often'} {mode:,}"  # noqa: PLR2004  half


def _most_queued(queue: Queue) -> str:
    """Return how often I/Os were queued, before the depth: it counts only the time with a queue."""
    if queue.busy_mode is None:
        return "none was seen"
    any_queued = sum(share for depth, share in queue.time_share.items() if depth)
    share = max(queue.busy_time_share.values())
    usual = f"then {_usual(queue.busy_mode, share)} ({percent(share)})"
    return f"any for {part(any_queued)} of the time, max {queue.max:,}, {usual}; mean of all time {queue.mean:.3g}"


def _limit(bound: DriverLimit | None) -> str:
    if bound is None:
        return ""
    if bound.limit_of_disks is not None:
        disks = ", ".join(f"{name} {limit:,}" for name, limit in bound.limit_of_disks.items())
        return f"; its disks take {bound.limit:,} ({disks})"
    return f"; limited to {bound.limit:,} ({bound.limit_source})"


def _table(depths: Depths) -> Iterator[str]:
    """Yield depths in the driver with their shares of busy time and of requests at issue."""
    busy, issued = depths.busy_time_share, depths.at_issue
    if len(busy) + len(issued) <= 1:
        return
    requests = sum(issued.values())
    by_share = sorted({**busy, **issued}, key=lambda depth: (-busy.get(depth, 0.0), -issued.get(depth, 0)))
    shown = by_share[:MAX_DEPTHS]
    yield f"    {'depth':>7}{'busy':>6}" + (f"{'at issue':>10}" if issued else "")
    for depth in sorted(shown):
        share = busy.get(depth, 0.0)
        at_issue = f"{part(issued.get(depth, 0) / requests):>10}" if requests else ""
        yield f"    {depth:>7,}{part(share):>6}{at_issue} {'#' * round(share * _DEPTH_BAR)}".rstrip()
    if len(by_share) > len(shown):
        yield f"    and {len(by_share) - len(shown):,} more depths"


def _latencies(depths: Depths) -> Iterator[str]:
    """Yield the latency by depth, and how many requests the probe missed."""
    if depths.latency_by_depth:
        largest = sorted(depths.latency_by_depth.items(), key=lambda item: -item[1].count)[:MAX_DEPTHS]
        texts = ", ".join(f"{depth}: {duration(latency.mean_us)}" for depth, latency in sorted(largest, key=_depth))
        yield from wrapped(f"mean latency by outstanding: {texts}", "  ")
    if depths.corrected:
        yield from wrapped(f"the probe's count was corrected by {depths.corrected:,} requests that it missed", "  ")


def _depth(item: tuple[int, DepthLatency]) -> int:
    return item[0]


def _issue_table(depths: DepthsAtIssue) -> Iterator[str]:
    """Yield depths at issue with their requests, if the time at each depth is unknown."""
    issued = depths.at_issue
    requests = sum(issued.values())
    if issued:
        yield f"    {'depth':>7}{'at issue':>10}{'share':>6}"
    shown = sorted(sorted(issued, key=lambda depth: -issued[depth])[:MAX_DEPTHS])
    for depth in shown:
        share = issued[depth] / requests
        yield f"    {depth:>7,}{count(issued[depth]):>10}{part(share):>6} {'#' * round(share * _DEPTH_BAR)}".rstrip()
    if len(issued) > len(shown):
        yield f"    and {len(issued) - len(shown):,} more depths"


def law_of(outstanding: Outstanding | None) -> LittlesLaw | None:
    """Return Little's law for a device's I/Os; None where it was not checked."""
    return outstanding.littles_law if isinstance(outstanding, Depths | MeanDepths) else None


def highest(outstanding: Outstanding | None) -> int | None:
    """Return the most I/Os in the driver; None where that is not known."""
    return None if outstanding is None or isinstance(outstanding, MeanDepths) else outstanding.max


def bound_of(outstanding: Outstanding | None) -> int | None:
    """Return the limit of I/Os in the driver; None where it is not known."""
    return None if outstanding is None or outstanding.bound is None else outstanding.bound.limit


def is_limited(outstanding: Outstanding | None) -> bool:
    """Return whether the driver was at a limit for most of the busy time."""
    if not isinstance(outstanding, Depths | MeanDepths):
        return False
    return outstanding.held_at is not None or (isinstance(outstanding, Depths) and outstanding.at_limit)
