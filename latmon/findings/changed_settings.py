"""I/Os of devices just before and since one of their settings was changed, for as long as the change may do harm.

Rules have the blocks of about a minute. So those of before a change are summed up when it is first seen, and kept with
those of the first minute since then for an hour, until the device's next change, or until the device is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.facts import WINDOW_US, Block
from latmon.findings.latency_history import DeviceChange
from latmon.findings.op_load import OpLoad, op_load

OPS = ("read", "write")
LEAST_BLOCKS = 2
"""On each side of a change."""
LEAST_IOS = 40
"""An op has so many on each side of a change: the mean of fewer says nothing."""
_LINK = "link_"
"""Beginning of the names of what a device reports of its link, which nobody sets."""
_UNREAD_US = 11_000_000
"""Settings are read every 10 s: a change may be so much older."""
_KEPT_US = 3600_000_000
_APART_US = 60_000_000
"""Where several changes lie within this time, it is not known which one did it."""


class BestMinute(NamedTuple):
    """The best of the minutes since a change, of an op."""

    mean_us: float
    """The least."""
    bytes_per_s: float
    """The most."""


class ChangedSetting(NamedTuple):
    """A device's newest change of a setting, and its I/Os before and since; all by op."""

    change: DeviceChange
    before: Mapping[str, OpLoad]
    """Empty where the time before is not known, or there were other changes within a minute."""
    first: Mapping[str, OpLoad] = MappingProxyType({})
    """I/Os of the first minute since the change; less of it within that minute, or where frames are missing."""
    last: Mapping[str, OpLoad] = MappingProxyType({})
    """I/Os of the last minute, since the change; empty with fewer than LEAST_BLOCKS blocks."""
    best: Mapping[str, BestMinute] = MappingProxyType({})
    """The op was never faster in a minute with LEAST_IOS or more."""

    def with_blocks(self, blocks: Sequence[Block]) -> ChangedSetting:
        """Return it with the I/Os of the last minute of these blocks."""
        end_us = blocks[-1].end_us
        since_us = max(self.change.mono_us, end_us - WINDOW_US)
        minute = [block for block in blocks if block.begin_us >= since_us]
        if len(minute) < LEAST_BLOCKS:
            return self._replace(last={})
        last = _by_op(minute, self.change.device)
        best = dict(self.best)
        for op, load in last.items():
            if load.ios >= LEAST_IOS:
                best[op] = _better(best.get(op), load)
        is_first = end_us <= self.change.mono_us + WINDOW_US
        return self._replace(first=last if is_first else self.first, last=last, best=best)


class ChangedSettings:
    """The newest change of each device."""

    def __init__(self) -> None:
        self._newest: dict[str, ChangedSetting] = {}

    @property
    def by_device(self) -> Mapping[str, ChangedSetting]:
        return self._newest

    def add_blocks(self, blocks: Sequence[Block], changes: Iterable[DeviceChange]) -> None:
        """Take the changes in the time of these consecutive blocks, in their order."""
        for change in changes:
            if not change.is_setting or change.name.startswith(_LINK):
                continue
            known = self._newest.get(change.device)
            if known is not None and known.change.mono_us >= change.mono_us and known.change != change:
                self._newest[change.device] = known._replace(before={})  # two at one time
            elif known is None or known.change != change:
                is_apart = known is None or change.mono_us - known.change.mono_us > _APART_US
                self._newest[change.device] = ChangedSetting(change, _before(change, blocks) if is_apart else {})
        if not blocks:
            return
        end_us = blocks[-1].end_us
        for device in [name for name, kept in self._newest.items() if kept.change.mono_us < end_us - _KEPT_US]:
            del self._newest[device]
        for device, changed in self._newest.items():
            if changed.before:
                self._newest[device] = changed.with_blocks(blocks)

    def forget(self, device: str) -> None:
        """Drop what is known of a device that was removed: another device may get its name."""
        self._newest.pop(device, None)


def _better(best: BestMinute | None, load: OpLoad) -> BestMinute:
    if best is None:
        return BestMinute(load.mean_us, load.bytes_per_s)
    return BestMinute(min(best.mean_us, load.mean_us), max(best.bytes_per_s, load.bytes_per_s))


def _before(change: DeviceChange, blocks: Sequence[Block]) -> Mapping[str, OpLoad]:
    before = [block for block in blocks if block.end_us <= change.mono_us - _UNREAD_US]
    if len(before) < LEAST_BLOCKS:
        return {}
    return _by_op(before, change.device)


def _by_op(blocks: Sequence[Block], device: str) -> dict[str, OpLoad]:
    loads = {op: op_load(blocks, device, op) for op in OPS}
    return {op: load for op, load in loads.items() if load is not None}
