"""Coverage: of the completions that the kernel counted, how many the probe saw. One rule for screen, report and exit.

Compared are only intervals that both counted, of devices where requests pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon.model import Device, Frame


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
