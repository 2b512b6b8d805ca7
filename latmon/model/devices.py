"""The inventory of devices, and coverage: completions that the probe counted over those that the kernel counted.

Two do: a recording that begins while latmon runs, and a UI that missed frames. Knows neither of them.

Compared are only intervals that both counted, of devices where requests pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Device, Frame, Mark


class Inventory:
    """Folds frames' `devices` and `removed`."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}

    def note(self, frame: Frame) -> None:
        for name in frame.removed:
            self._devices.pop(name, None)
        self._devices.update((device.name, device) for device in frame.devices)

    def complete(self, frame: Frame) -> Frame:
        """The frame as the first one of a reader: every device known after it."""
        return replace(frame, devices=tuple(self._devices.values()), removed=())


def carry(missed: Iterable[Frame], frame: Frame) -> Frame:
    """`frame` with the device changes and marks of the frames before it that were not delivered."""
    devices: dict[str, Device] = {}
    removed: dict[str, None] = {}
    marks: list[Mark] = []
    for one in (*missed, frame):
        marks += one.marks
        for name in one.removed:
            devices.pop(name, None)
            removed[name] = None
        for device in one.devices:
            removed.pop(device.name, None)
            devices[device.name] = device
    return replace(frame, devices=tuple(devices.values()), removed=tuple(removed), marks=tuple(marks))


class Coverage(NamedTuple):
    """Completions seen by the probe and counted by the kernel."""

    seen: int = 0
    kernel: int = 0

    def __add__(self, other: object) -> Coverage:
        if not isinstance(other, Coverage):
            return NotImplemented
        return Coverage(self.seen + other.seen, self.kernel + other.kernel)

    def __sub__(self, other: Coverage) -> Coverage:
        return Coverage(self.seen - other.seen, self.kernel - other.kernel)

    @property
    def share(self) -> float | None:
        """0..1, None when nothing was counted.

        Two counters that are read a moment apart can't tell 100.01 % from 100 %.
        """
        return None if self.ratio is None else min(1.0, self.ratio)

    @property
    def ratio(self) -> float | None:
        """As `share`, but more than 1 where the probe saw more than the kernel counted: something is counted twice."""
        return self.seen / self.kernel if self.kernel else None


NONE = Coverage()


def by_device(frame: Frame) -> dict[str, Coverage]:
    """One frame's, of every device that the kernel counted in it.

    The kernel counts `other` (write zeroes, erase) among its writes, and before 5.5 it had no counter for flushes.
    """
    ops = {flow.op for flow in frame.kernel} | {"other"}
    kernel: dict[str, int] = {}
    for (device, _), done in frame.kernel.items():
        kernel[device] = kernel.get(device, 0) + done.count
    seen = dict.fromkeys(kernel, 0)
    for (device, op), done in frame.seen.items():
        if device in seen and op in ops:
            seen[device] += done.count
    return {device: Coverage(seen[device], count) for device, count in kernel.items()}


def total(found: Mapping[str, Coverage], devices: Mapping[str, Device]) -> Coverage:
    """Over the devices that requests pass."""
    return sum((one for name, one in found.items() if name in devices and devices[name].timed), NONE)
