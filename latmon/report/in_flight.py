"""I/Os in flight in a report: those at the end of a recording and the longest of a device, and sentences on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.report.model.depth import InFlight, LongestInFlight
from latmon.report.model.device import Device
from latmon.report.outliers import issuer, request
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, spelled
from latmon.views.units import count

LONG_US = 1_000_000
"""Least age that is reported."""
MOST = 4
"""Devices by name; the others are counted."""
MAX_WAITING = 5


def lines(device: Device) -> Iterator[str]:
    """Yield the text report's lines of a device."""
    rows = waiting_rows(device)
    for row in rows[:MAX_WAITING]:
        yield from wrapped(f"in flight at the end: {waiting(row)}", "  ")
    if len(rows) > MAX_WAITING:
        yield f"  and {len(rows) - MAX_WAITING:,} more rows"
    longest = longest_in_flight(device)
    if longest and not (rows and rows[0].age_us >= longest.row.age_us):
        yield from wrapped(f"longest in flight: {waiting(longest.row)}, seen at {longest.seen or UNKNOWN}", "  ")


def waiting_rows(device: Device) -> tuple[InFlight, ...]:
    """Return the I/Os in flight at the end as far as they are known, oldest first."""
    return () if device.at_end is None else device.at_end.in_flight


def longest_in_flight(device: Device) -> LongestInFlight | None:
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


class DeviceInFlight(NamedTuple):
    """I/Os that one device has had in flight for LONG_US and longer."""

    device: str
    ios: int
    oldest_us: int
    at_least: bool
    """Whether the oldest I/O's age is a least age."""


def in_flight_by_device(rows: Iterable[tuple[str, int, int, bool]]) -> list[DeviceInFlight]:
    """Merge rows (device, I/Os, age in us, whether it is a least age); the device with the oldest I/O is first."""
    by_device: dict[str, DeviceInFlight] = {}
    for device, ios, age_us, at_least in rows:
        if age_us >= LONG_US:
            before = by_device.get(device, DeviceInFlight(device, 0, -1, at_least))
            oldest = before if before.oldest_us >= age_us else DeviceInFlight(device, 0, age_us, at_least)
            by_device[device] = oldest._replace(ios=before.ios + ios)
    return sorted(by_device.values(), key=lambda device: (-device.oldest_us, device.device))


def not_completed(devices: Sequence[DeviceInFlight]) -> str:
    """Return `loop3: 2 I/Os in flight for 40 s, not completed`; empty without devices."""
    return _listed(devices, "in flight for", "the oldest in flight for", ", not completed")


def at_the_end(devices: Sequence[DeviceInFlight]) -> str:
    """Return `loop3: 2 I/Os, the oldest for 40 s`; empty without devices."""
    return _listed(devices, "for", "the oldest for", "")


def _listed(devices: Sequence[DeviceInFlight], one_for: str, many_for: str, then: str) -> str:
    sentences = [
        f"{row.device}: {_ios(row.ios)}{one_for if row.ios == 1 else many_for} {_age(row)}" for row in devices[:MOST]
    ]
    more = [f"{len(devices) - MOST:,} more devices"] if len(devices) > MOST else []
    return "; ".join([*sentences, *more]) + then if sentences else ""


def _ios(n: int) -> str:
    return "1 I/O " if n == 1 else f"{n:,} I/Os, "


def _age(row: DeviceInFlight) -> str:
    return ("at least " if row.at_least else "") + spelled(row.oldest_us)
