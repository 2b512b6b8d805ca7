"""Coverage: completions counted by the probe over those by the kernel.

It compares only intervals that both counted, of devices with requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon.model.devices import busy_rows
from latmon.model.frame import Device, Frame

_MORE = 1.005
_APART_US = 250_000
"""Time between reading the two counters, at most: 13 % of a window of 1 s were seen on a busy host."""


class Coverage(NamedTuple):
    """Completions counted by the probe and by the kernel."""

    seen: int = 0
    kernel: int = 0

    def __add__(self, other: object) -> Coverage:
        if not isinstance(other, Coverage):
            return NotImplemented
        return Coverage(self.seen + other.seen, self.kernel + other.kernel)

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
    """Return the coverage of every device that the kernel counted in a frame, idle ones left out.

    The kernel counts `other` (write zeroes, erase) among its writes, and before 5.5 it had no counter for flushes.
    """
    busy = busy_rows(frame.kernel)
    ops = {flow.op for flow in busy} | {"other"}
    kernel: dict[str, int] = {}
    for (device, _), done in busy.items():
        kernel[device] = kernel.get(device, 0) + done.count
    seen = dict.fromkeys(kernel, 0)
    for flow, done in frame.seen.items():
        if flow not in busy and flow in frame.kernel:  # it completed between the two readings
            kernel.setdefault(flow.device, 0)
            seen.setdefault(flow.device, 0)
            ops.add(flow.op)
        if flow.device in seen and flow.op in ops:
            seen[flow.device] += done.count
    return {device: Coverage(seen[device], count) for device, count in kernel.items()}


def total(by_name: Mapping[str, Coverage], devices: Mapping[str, Device]) -> Coverage:
    """Return the coverage of all devices with requests on hosts with a probe."""
    covered = {name for name, device in devices.items() if device.timed and not device.untimed}
    return sum((coverage for name, coverage in by_name.items() if name in covered), NONE)


def counts_twice(ratio: float, time_us: int) -> bool:
    """Return whether a ratio of `time_us` is above 1 by more than the counters' reading at different moments causes."""
    return ratio > _MORE + _APART_US / max(time_us, 1)
