"""The limits audit: each device's settings beside what was seen, with a remark on what is off. Pure.

Facts are Device.limits and Frame.depths alone; audit_checks.py judges each setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from latmon.audit_checks import Group, Remark, Seen, remarks
from latmon.limits import at_limit, ceiling, wall, within
from latmon.model import Device, Limit
from latmon.outstanding import Depths

__all__ = ["FEW", "Audited", "Remark", "Setting", "audit"]

FEW = 4
"""A driver that is held at so few is serial, whatever its limit says."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: a limit or a setting as configured, and what there is to say of it."""

    limit: Limit
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """A device's settings, the bound that they come to, and what it made of them. A None is "not known"."""

    device: str
    settings: tuple[Setting, ...]
    bound: Limit | None = None
    most: int | None = None
    """The most requests in the driver that were seen."""
    usual: int | None = None
    """In the driver at most of the busy moments."""
    queued: int | None = None
    """The most requests that waited above the driver: what could have been sent beside those in it."""
    held_at: int | None = None
    """The depth at which the driver was held while more waited."""
    at_limit: bool = False
    """It was at its bound for most of the busy time, and who waits above that isn't counted."""
    remarks: tuple[Remark, ...] = ()
    """Of the device as a whole."""

    @property
    def off(self) -> tuple[Remark, ...]:
        """Every remark that is more than a note."""
        return tuple(one for one in (*self.remarks, *(r for s in self.settings for r in s.remarks)) if not one.note)


def audit(
    devices: Iterable[Device], depths: Mapping[str, Depths], had: Mapping[str, int] | None = None
) -> tuple[Audited, ...]:
    """A row per device that has limits, by name; `depths` may be of any length of time, their moments ms.

    `had`: device -> the highest queue_depth that it had meanwhile, where that is known.
    """
    each = sorted((one for one in devices if one.limits), key=lambda one: one.name)
    hosts: dict[str, list[Device]] = {}
    alike: dict[tuple[str, str, str], list[Device]] = {}
    for one in each:
        hosts.setdefault(host_of(one), []).append(one)
        alike.setdefault(_sort(one), []).append(one)
    hosted = {host: Group(tuple(some)) for host, some in hosts.items()}
    sorts = {sort: Group(tuple(some)) for sort, some in alike.items()}
    walls = {one.name: wall(depths[one.name], ceiling(one.limits)) for one in each if one.name in depths}
    return tuple(
        _audited(
            _seen(one, hosted[host_of(one)], sorts[_sort(one)], (had or {}).get(one.name)),
            depths.get(one.name, Depths()),
            walls,
        )
        for one in each
    )


def _seen(device: Device, neighbours: Group, alike: Group, had: int | None) -> Seen:
    shared = neighbours if host_of(device) else Group((device,))
    peers = alike if device.model else Group()
    return Seen(device, {one.name: one.value for one in device.limits}, shared, peers, had)


def _audited(seen: Seen, depths: Depths, walls: Mapping[str, int | None]) -> Audited:
    device = seen.device
    bound, held_at = ceiling(device.limits), walls.get(device.name)
    full = at_limit(depths, bound, seen.settings.get("scheduler"))
    busy = {depth: n for depth, n in depths.in_driver.items() if depth and n}
    return Audited(
        device.name,
        tuple(Setting(one, tuple(remarks(one.name, seen, walls))) for one in device.limits),
        bound,
        within(depths.highest, bound) if depths.in_driver or depths.at_issue else None,
        within(max(busy, key=lambda depth: busy[depth]), bound) if busy else None,
        max(depths.queued, default=None),
        held_at,
        full,
        (*_held(held_at, bound), *(_full(seen, bound) if full and bound else ())),
    )


def _held(n: int | None, bound: Limit | None) -> Iterator[Remark]:
    if n is None or n > FEW:
        return
    if bound is not None and int(bound.value) <= n:
        yield Remark("ceiling-reached", f"held at its limit of {n} ({bound.source}) while more I/Os waited")
    else:
        known = "no limit is known" if bound is None else f"its limit is {bound.value:,} ({bound.source})"
        yield Remark(
            "ceiling-reached", f"hardly ever more than {n} in the driver while more I/Os waited, though {known}"
        )


def _full(seen: Seen, bound: Limit) -> Iterator[Remark]:
    n = int(bound.value)
    usual = n > FEW or seen.one_by_one
    yield Remark("at-limit", f"{at_limit_said(n)} ({bound.source})", note=usual)


def at_limit_said(n: int) -> str:
    """The sentence on a driver that limits.at_limit finds full."""
    return f"at its limit of {n:,} for most of the busy time; who waits above that isn't counted here"


def _sort(device: Device) -> tuple[str, str, str]:
    return device.driver, device.kind, device.model


def host_of(device: Device) -> str:
    """Whose can_queue a device shares: `host0` of `host0/can_queue`; empty where there is none."""
    return next((one.source.partition("/")[0] for one in device.limits if one.name == "can_queue"), "")
