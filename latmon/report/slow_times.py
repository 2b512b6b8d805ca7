"""I/Os at or above the threshold and above an SLO, by hour and day, and those that are in flight for as long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latmon.model.histogram import MAX_US
from latmon.report import in_flight
from latmon.report.model.depth import InFlight
from latmon.report.model.device import Device
from latmon.report.model.report import CountedSpan, CountedTime, Report, SlowIOs
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, spelled

_HOURS = 12
"""Hours that are listed, those with the most slow I/Os."""


def lines(report: Report) -> list[str]:
    """Return the worst minute, and where there are several the hours and days, with their I/Os above a threshold."""
    shown: list[str] = []
    for times, sentence in slow_times(report):
        shown += wrapped(sentence)
        if times.worst_minute:
            shown += [*_spans("hour", 13, times.hours), *_spans("day", 10, times.days)]
    return shown


def slow_times(report: Report) -> Iterator[tuple[CountedTime, str]]:
    """Yield the I/Os above the threshold and above an SLO, each with a sentence on their number and worst minute."""
    slow, slo = report.slow, report.slo
    if slow:
        sentence = _slowest_minute(slow.times, f"{_threshold(slow)} or longer")
        yield slow.times, sentence + _longer_in_flight(report, slow.above_us)
    if slo:
        begins = [spelled(us) for us in slo.counted_from_us]
        edges = " to ".join(dict.fromkeys((begins[0], begins[-1]))) if begins else ""
        is_exact = slo.counted_from_us == (slo.slo_us,)
        how = f" (counted from {edges}, an edge of buckets, on)" if begins and not is_exact else ""
        if begins:
            bar = f"{spelled(slo.slo_us)} or longer, the SLO{how}"
            yield slo.times, _slowest_minute(slo.times, bar) + _longer_in_flight(report, slo.slo_us)
        else:
            yield slo.times, f"SLO of {spelled(slo.slo_us)}: no I/O was timed"


def _threshold(slow: SlowIOs) -> str:
    """Return the threshold of all devices, or `their device's threshold at the time, 3.1 to 44.4 ms`."""
    if slow.above_us is not None:
        return spelled(slow.above_us)
    bounds_us = slow.above_range_us
    values = f" ({spelled(bounds_us[0])} to {spelled(bounds_us[1])})" if bounds_us else ""
    return f"their device's threshold at the time{values}"


def _slowest_minute(slow: CountedTime, bar: str) -> str:
    worst, total = slow.worst_minute, sum(day.count for day in slow.days)
    if worst is None:
        return f"no completed I/O took {bar}"
    start = (worst.start or UNKNOWN)[:19]
    return f"completed I/Os of {bar}: {total:,}; most in the minute from {start}Z: {worst.count:,}"


def _highest_threshold_us(device: Device) -> int:
    """Return the device's threshold, of one that moved the highest; MAX_US without one."""
    if device.threshold_range_us is not None:
        return max(device.threshold_range_us)
    return MAX_US if device.threshold_us is None else device.threshold_us


def _longer_in_flight(report: Report, bar_us: int | None) -> str:
    """Return `; longest in flight: at least 5 s on sdb` of I/Os at or above the bar, by default each threshold."""
    rows: dict[str, InFlight] = {}
    for name, device in report.devices.items():
        longest = in_flight.longest_in_flight(device)
        if longest and longest.row.age_us >= (bar_us or _highest_threshold_us(device)):
            rows[name] = longest.row
    if not rows:
        return ""
    name = max(rows, key=lambda name: rows[name].age_us)
    return f"; longest in flight: {in_flight.age(rows[name])} on {name}"


def _spans(name: str, length: int, spans: Sequence[CountedSpan]) -> list[str]:
    """Return the hours or days with the most I/Os; `length`: characters of their beginnings."""
    if len(spans) <= 1:
        return []
    counted = [span for span in spans if span.count] if len(spans) > _HOURS else spans
    worst = sorted(sorted(counted, key=lambda span: -span.count)[:_HOURS], key=_start)
    texts = ", ".join(f"{_start(span)[:length].replace('T', ' ')} {span.count:,}" for span in worst)
    return wrapped(f"  by {name} (UTC){'' if len(spans) <= _HOURS else ', the worst'}: {texts}")


def _start(span: CountedSpan) -> str:
    return span.start or UNKNOWN
