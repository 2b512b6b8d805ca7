"""Limits that probes tell (sd's un_throttle, a driver's flags), put to the devices of frames.

Owns what was told last. Knows no probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from latmon.model import Device, Limit
from latmon.records import Record

_MOST = 64
"""Of one device."""


class ToldLimits:
    """`device_name`: as of probes' numbers."""

    def __init__(self, device_name: Callable[[int], str | None]) -> None:
        self._device_name = device_name
        self._told: dict[str, dict[str, Limit]] = {}
        self._changed: set[str] = set()

    def take(self, records: Iterable[Record]) -> None:
        """`limit` records; others are nothing."""
        for one in records:
            value = one.get("value")
            name = self._device_name(one.get("dev") or 0) if one.kind == "limit" else None
            if name is None or value is None:
                continue
            limits = self._told.setdefault(name, {})
            limit = Limit(one.text, value, one.probe)
            if limits.get(one.text) != limit and (one.text in limits or len(limits) < _MOST):
                limits[one.text] = limit
                self._changed.add(name)

    def put(self, devices: tuple[Device, ...], known: Mapping[str, Device]) -> tuple[Device, ...]:
        """A frame's new or changed devices, and those of which a limit changed."""
        told = {device.name: device for device in devices}
        for name in sorted(self._changed & known.keys()):
            told.setdefault(name, known[name])
        self._changed -= told.keys()
        return tuple(self._with_limits(device) for device in told.values())

    def _with_limits(self, device: Device) -> Device:
        limits = self._told.get(device.name)
        return replace(device, limits=(*device.limits, *limits.values())) if limits else device
