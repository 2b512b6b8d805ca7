"""The limits audit: each device's settings beside what was seen, with a remark on what is off. Pure.

Facts are Device.limits and Frame.depths alone; audit_checks.py judges each setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from latmon.audit_checks import Remark, Seen, remarks
from latmon.limits import ceiling, wall
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
    remarks: tuple[Remark, ...] = ()
    """Of the device as a whole."""

    @property
    def off(self) -> tuple[Remark, ...]:
        """Every remark that is more than a note."""
        return tuple(one for one in (*self.remarks, *(r for s in self.settings for r in s.remarks)) if not one.note)


def audit(devices: Iterable[Device], depths: Mapping[str, Depths]) -> tuple[Audited, ...]:
    """A row per device that has limits, by name; `depths` may be of any length of time."""
    each = sorted((one for one in devices if one.limits), key=lambda one: one.name)
    hosts: dict[str, list[Device]] = {}
    for one in each:
        hosts.setdefault(_host(one), []).append(one)
    walls = {name: wall(one) for name, one in depths.items()}
    return tuple(_audited(one, depths.get(one.name, Depths()), hosts[_host(one)], walls) for one in each)


def _audited(device: Device, depths: Depths, neighbours: list[Device], walls: Mapping[str, int | None]) -> Audited:
    shared = tuple(neighbours) if _host(device) else (device,)
    seen = Seen(device, {one.name: one.value for one in device.limits}, shared)
    bound, held_at = ceiling(device.limits), walls.get(device.name)
    busy = {depth: n for depth, n in depths.in_driver.items() if depth and n}
    return Audited(
        device.name,
        tuple(Setting(one, tuple(remarks(one.name, seen, walls))) for one in device.limits),
        bound,
        depths.highest if depths.in_driver or depths.at_issue else None,
        max(busy, key=lambda depth: busy[depth], default=None),
        max(depths.queued, default=None),
        held_at,
        tuple(_held(held_at, bound)),
    )


def _held(n: int | None, bound: Limit | None) -> Iterator[Remark]:
    if n is None or n > FEW:
        return
    if bound is not None and int(bound.value) <= n:
        yield Remark("ceiling-reached", f"held at its limit of {n} ({bound.source}) while more I/Os waited")
    else:
        known = "no limit is known" if bound is None else f"its limit is {bound.value:,} ({bound.source})"
        yield Remark("ceiling-reached", f"never more than {n} in the driver while more I/Os waited, though {known}")


def _host(device: Device) -> str:
    """`host0` of `host0/can_queue`; empty where there is none."""
    return next((one.source.partition("/")[0] for one in device.limits if one.name == "can_queue"), "")
