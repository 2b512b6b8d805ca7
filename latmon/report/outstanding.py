"""Outstanding I/O of a device in text and HTML: depths, law, limits, I/Os in flight."""

from __future__ import annotations

from collections.abc import Iterator

from latmon.analysis.limits import (
    at_limit_text,
)
from latmon.model.inflight import SYSFS
from latmon.report.formatting import at_the_end, in_flight_by_device, wrapped
from latmon.report.model.depth import (
    DepthLatency,
    Depths,
    DepthsAtIssue,
    DriverLimit,
    InFlight,
    LittlesLaw,
    LongestInFlight,
    MeanDepths,
    Outstanding,
    Queue,
    SampledDepths,
)
from latmon.report.model.device import Device as ReportedDevice
from latmon.report.model.report import Report
from latmon.report.outliers import issuer, request
from latmon.support.units import UNKNOWN, counted, duration, part, spelled
from latmon.views.units import count, percent

MAX_DEPTHS = 8
"""Rows of a device's table in the text report: the most frequent depths."""
MAX_WAITING = 5
MAX_REMARKS = 40
_DEPTH_BAR = 20


def lines(device: ReportedDevice) -> Iterator[str]:
    """Yield the text report's lines of a device: depths, Little's law, issue order, I/Os in flight."""
    outstanding = device.outstanding
    if device.active_share is not None:
        yield f"  active: {part(device.active_share)} of the time with any I/O, by the kernel's counter"
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
    yield from _in_flight(device)


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


def is_busy(device: ReportedDevice) -> bool:
    """Return whether the report shows a device by itself: I/Os completed, are in flight, or were counted at issue."""
    depths = device.outstanding
    is_counted = isinstance(depths, DepthsAtIssue) or (isinstance(depths, MeanDepths) and depths.mean != 0)
    is_waiting = device.at_end is not None and bool(device.at_end.in_flight)
    return bool(device.ops) or is_waiting or device.in_flight_longest is not None or is_counted


def older(report: Report) -> str:
    """Return the I/Os in flight for long at the end, and those of unknown age; empty without any."""
    counts = report.health.in_flight_older
    unknown = report.health.in_flight_of_unknown_age
    if counts is None or not any(counts.by_age.values()):
        return f"in flight at the end: {unknown:,} of unknown age" if unknown else ""
    text = ", ".join(f"{ios:,} for more than {age}" for age, ios in counts.by_age.items() if ios)
    least = "at least " if counts.at_least else ""
    who = at_the_end(in_flight_by_device(_waiting(report)))
    many = f"{who} ({least}{text})" if who else f"{least}{text}"
    return f"IN FLIGHT at the end: {many}" + (f"; {unknown:,} of unknown age" if unknown else "")


def _waiting(report: Report) -> Iterator[tuple[str, int, int, bool]]:
    for name, device in report.devices.items():
        yield from ((name, row.count, row.age_us, row.at_least) for row in waiting_rows(device))


def waiting_rows(device: ReportedDevice) -> tuple[InFlight, ...]:
    """Return the I/Os in flight at the end as far as they are known, oldest first."""
    return () if device.at_end is None else device.at_end.in_flight


def remarks(report: Report) -> list[str]:
    """Return a line per limit that is off; usual defaults and their effects are in the JSON alone."""
    lines = off(report)
    if not lines:
        return []
    more = [f"and {len(lines) - MAX_REMARKS:,} more (--json has them)"] if len(lines) > MAX_REMARKS else []
    return ["limits that are off:", *(part for line in (*lines[:MAX_REMARKS], *more) for part in wrapped(line, "  "))]


def off(report: Report) -> list[str]:
    """Return a sentence for each limit that is off."""
    return [
        f"{name}{_model(device)}: {text}"
        for name, device in report.devices.items()
        for text in (*_of_device(device), *_of_settings(device))
    ]


def limit_meaning(report: Report) -> list[str]:
    """Return definitions of the terms in these lines, as far as they occur."""
    by_device = [device.outstanding for device in report.devices.values()]
    counted = [outstanding for outstanding in by_device if isinstance(outstanding, Depths | DepthsAtIssue)]
    lines: list[str] = []
    if any(isinstance(outstanding, MeanDepths) for outstanding in by_device):
        lines.append("mean in the driver, outstanding: of the printed intervals; no distribution was measured")
    if counted:
        lines.append("in the driver: shares of the busy time, in which the device had any there")
    if any(outstanding.at_issue for outstanding in counted):
        lines.append("at issue: requests by the number in the driver, themselves included")
    if any(isinstance(outstanding, Depths) and outstanding.latency_by_depth is not None for outstanding in counted):
        lines.append("latency by outstanding: of I/Os by the number outstanding at their start, queued ones included")
    if any(outstanding.source == SYSFS for outstanding in counted):
        lines.append("depths by sysfs: sampled, not counted at each I/O; depths at issue are unknown")
    return lines


def _sampled(depths: SampledDepths) -> str:
    share = depths.time_share[depths.mode]
    few = "" if depths.windows is None else f"in {round(share * depths.windows)} of {counted(depths.windows, 'window')}"
    many = few or f"{percent(share)} of them"
    usual = _usual(depths.mode, share)
    return f"outstanding at the windows' ends: max {depths.max}, {usual} ({many}){_limit(depths.bound)}"


def _usual(mode: int, share: float) -> str:
    """Return the most frequent depth: `mostly 3` from half of the time or of the windows on, else `most often 3`."""
    return f"{'mostly' if share >= 0.5 else 'most often'} {mode:,}"  # noqa: PLR2004  half


def _means(depths: MeanDepths) -> Iterator[str]:
    queue = depths.queued
    where = "in the driver" if queue else "outstanding, queued or in the driver"
    yield f"{where}: mean {depths.mean:.3g}, any for {part(depths.busy)} of the time{_limit(depths.bound)}"
    if queue:
        yield f"queued above it: mean {queue.mean:.3g}, any for {part(queue.busy)} of the time"


def _depths(depths: Depths) -> Iterator[str]:
    if depths.busy_mode is None:
        most = f"none in any sample, up to {max(depths.at_issue):,} at issue" if depths.at_issue else "none was seen"
        yield f"in the driver: {most}{_limit(depths.bound)}"
    else:
        yield f"in the driver: {_highest(depths, depths.busy_mode)}{_limit(depths.bound)}"
    queue = depths.queued
    if queue:
        yield f"queued above it: {_most_queued(queue)}"


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


def _highest(depths: Depths, busy_mode: int) -> str:
    """Return the maximum with its time, the most frequent depth and the mean."""
    share = max(depths.busy_time_share.values())
    seen = f" (reached by {depths.max_at})" if depths.max_at else ""
    usual = f"{_usual(busy_mode, share)} ({percent(share)} of the busy time)"
    return f"max {depths.max:,}{seen}, {usual}, mean {depths.mean:.3g}"


def _most_queued(queue: Queue) -> str:
    """Return how often I/Os were queued, before the depth: it counts only the time with a queue."""
    if queue.busy_mode is None:
        return "none was seen"
    any_queued = sum(share for depth, share in queue.time_share.items() if depth)
    share = max(queue.busy_time_share.values())
    usual = f"then {_usual(queue.busy_mode, share)} ({percent(share)})"
    return f"any for {part(any_queued)} of the time, max {queue.max:,}, {usual}; mean of all time {queue.mean:.3g}"


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


def _in_flight(device: ReportedDevice) -> Iterator[str]:
    rows = waiting_rows(device)
    for row in rows[:MAX_WAITING]:
        yield from wrapped(f"in flight at the end: {waiting(row)}", "  ")
    if len(rows) > MAX_WAITING:
        yield f"  and {len(rows) - MAX_WAITING:,} more rows"
    longest = longest_in_flight(device)
    if longest and not (rows and rows[0].age_us >= longest.row.age_us):
        yield from wrapped(f"longest in flight: {waiting(longest.row)}, seen at {longest.seen or UNKNOWN}", "  ")


def longest_in_flight(device: ReportedDevice) -> LongestInFlight | None:
    """Return the I/O longest in flight; None if a listed outlier took as long, because that has more detail."""
    longest = device.in_flight_longest
    return longest if longest and longest.row.age_us > (device.outlier_longest_us or 0) else None


def waiting(row: InFlight) -> str:
    """Return `write 4,096 B sector 81,920 lgwr/42 for 30.2 s, queued, overtaken by 9` or `2 I/Os for at least 30 s`."""
    if row.request is None:
        ios = "1 I/O" if row.count == 1 else f"{count(row.count)} I/Os"
        return f"{ios} for {age(row)}"
    where = {True: ", in the driver", False: ", queued", None: ""}[row.request.in_driver]
    overtaken = "" if row.request.overtaken_by is None else f", overtaken by {row.request.overtaken_by:,}"
    return f"{' '.join([*request(row.request), issuer(row.request)])} for {spelled(row.age_us)}{where}{overtaken}"


def age(row: InFlight) -> str:
    """Return the age of an I/O in flight, `30.2 s` or `at least 30 s`."""
    return ("at least " if row.at_least else "") + spelled(row.age_us)


def _limit(bound: DriverLimit | None) -> str:
    if bound is None:
        return ""
    if bound.limit_of_disks is not None:
        disks = ", ".join(f"{name} {limit:,}" for name, limit in bound.limit_of_disks.items())
        return f"; its disks take {bound.limit:,} ({disks})"
    return f"; limited to {bound.limit:,} ({bound.limit_source})"


def _model(device: ReportedDevice) -> str:
    return f" ({device.model})" if device.model else ""


def _of_device(device: ReportedDevice) -> Iterator[str]:
    yield from (remark.text for remark in device.limits_remarks if not remark.note)


def _of_settings(device: ReportedDevice) -> Iterator[str]:
    for setting in device.limits or ():
        for remark in setting.remarks:
            if not remark.note:
                yield f"{setting.limit.name} {remark.text} ({setting.limit.source})"
