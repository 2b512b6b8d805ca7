"""Settings that differ between two stretches: what the header tells, and the limits of devices. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from latmon.diff.stretch import Stretch
from latmon.mark import Mark, Settings
from latmon.model import Device, Origin

_EXPECTED = {"clock", "host"}
"""Sections that are never the same twice."""
_UNLIKE = ("host name", "hostname", "name", "start")
MOST = 200


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """One setting; empty where a side doesn't tell it."""

    section: str
    name: str
    a: str
    b: str


def differing(a: Stretch, b: Stretch) -> tuple[Difference, ...]:
    """Sorted; at most MOST of them."""
    headers = bool(a.settings) == bool(b.settings)  # an older file tells none: that is no difference of the hosts
    one, other = _told(a, headers=headers), _told(b, headers=headers)
    names = sorted({*one, *other})
    found = [Difference(*key, one.get(key, ""), other.get(key, "")) for key in names if one.get(key) != other.get(key)]
    return tuple(found[:MOST])


def with_marks(settings: Settings, marks: list[Mark]) -> Settings:
    """The settings after these marks: the latest that read them tells all that had changed against the origin."""
    changed = next((one.changed for one in reversed(marks) if one.changed is not None), None)
    return settings if changed is None else _changed(settings, changed)


def _changed(settings: Settings, changed: Settings) -> Settings:
    made = {section: dict(values) for section, values in settings.items()}
    for section, values in changed.items():
        into = made.setdefault(section, {})
        for name, value in values.items():
            if value:
                into[name] = value
            else:
                into.pop(name, None)
    return made


def _told(one: Stretch, *, headers: bool) -> Mapping[tuple[str, str], str]:
    told = {
        (section, name): value
        for section, values in (one.settings if headers else {}).items()
        if section not in _EXPECTED
        for name, value in values.items()
        if not (section in ("kernel", "tool") and name in _UNLIKE)
    }
    told |= {key: value for key, value in _of_origin(one.origin).items() if value}
    both = {key for key in told if key[0].startswith("device ")}
    for device in one.devices.values():
        told |= {key: value for key, value in _of_device(device).items() if value and key not in both}
    return told


def _of_origin(origin: Origin) -> dict[tuple[str, str], str]:
    missing = ", ".join(sorted(one.name for one in origin.probes_missing))
    return {
        ("capture", "kernel"): origin.kernel,
        ("capture", "backend"): origin.backend,
        ("capture", "tool"): origin.tool,
        ("capture", "tier"): origin.tier,
        ("capture", "latency from"): origin.latency_from,
        ("capture", "latmon"): origin.latmon,
        ("capture", "probes missing"): missing,
    }


def _of_device(device: Device) -> dict[tuple[str, str], str]:
    section = f"device {device.name}"
    told = {(section, name): getattr(device, name) for name in ("driver", "controller", "model", "serial")}
    return told | {(section, limit.name): str(limit.value) for limit in device.limits}
