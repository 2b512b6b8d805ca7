"""Coverage: of the completions that the kernel counted, how many the probe saw. One rule for screen, report and exit.

Compared are only intervals that both counted, of devices where requests pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from latmon.model import Completed, Flow, Frame


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
        return min(1.0, self.seen / self.kernel) if self.kernel else None


NONE = Coverage()


def covered(frame: Frame, untimed: Collection[str]) -> Coverage:
    """One frame's; `untimed` names the devices that no request passes.

    The kernel counts `other` (write zeroes, erase) among its writes, and before 5.5 it had no counter for flushes.
    """
    devices = {flow.device for flow in frame.kernel} - set(untimed)
    ops = {flow.op for flow in frame.kernel} | {"other"}
    return Coverage(_count(frame.seen, devices, ops), _count(frame.kernel, devices, ops))


def _count(table: Mapping[Flow, Completed], devices: Collection[str], ops: Collection[str]) -> int:
    return sum(done.count for flow, done in table.items() if flow.device in devices and flow.op in ops)
