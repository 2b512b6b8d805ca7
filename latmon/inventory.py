"""The devices known so far. Frames say only what changed; who starts to read in the middle needs all of it.

Two do: a recording that begins while latmon runs, and a UI that missed frames. Knows neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from latmon.mark import Mark
from latmon.model import Device, Frame


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
