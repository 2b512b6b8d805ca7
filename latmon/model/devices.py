"""Inventory of devices, and coverage: completions counted by the probe over those counted by the kernel.

The inventory completes the first frame of a reader that starts later: a recording, or a screen that missed frames.
Coverage compares only intervals that both counted, of devices with requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Device, Frame, Mark


class Inventory:
    """The devices after the latest of the frames that were added."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}

    def note(self, frame: Frame) -> None:
        """Apply a frame's `devices` and `removed`."""
        for name in frame.removed:
            self._devices.pop(name, None)
        self._devices.update((device.name, device) for device in frame.devices)

    def complete(self, frame: Frame) -> Frame:
        """Return the frame as the first one of a reader, with every device known after it."""
        return replace(frame, devices=tuple(self._devices.values()), removed=())


def carry(missed: Iterable[Frame], frame: Frame) -> Frame:
    """Return `frame` with the device changes and marks of earlier frames that were not delivered."""
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
    """Completions counted by the probe and by the kernel."""

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
        """Share of the kernel's completions that the probe counted, 0..1; None when nothing was counted.

        The two counters are not read at the same time, so a share slightly above 1 is 1.
        """
        return None if self.ratio is None else min(1.0, self.ratio)

    @property
    def ratio(self) -> float | None:
        """`share` without the limit of 1; clearly more than 1 means that the probe counts I/Os twice."""
        return self.seen / self.kernel if self.kernel else None


NONE = Coverage()


def by_device(frame: Frame) -> dict[str, Coverage]:
    """Return the coverage of every device that the kernel counted in a frame.

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
    """Return the coverage of all devices with requests."""
    return sum((one for name, one in found.items() if name in devices and devices[name].timed), NONE)
