"""I/Os of devices just before work on them began: maintenance of the kernel, or discards.

A check of an array lasts for hours, but rules have the blocks of about a minute. So the I/Os of the minute before the
work are kept for as long as it lasts, to compare the present ones with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.findings.facts import Block, mean_time_of
from latmon.findings.maintenance_threads import QUIET_SHARE, WORKS, share_in, shares
from latmon.findings.op_load import OpLoad, op_load
from latmon.model.frame import Device
from latmon.model.measurements import KERNEL, MAINTENANCE, SEEN
from latmon.model.measurements.maintenance import Maintenance

DISCARDS = "discards"
OPS = ("read", "write")
_MOST = 256
"""Works, at the same time, before which the I/Os are kept."""
_OVER_US = 60_000_000
"""Work that has not run for as long is over: the blocks of the last minute are without it."""
_THREADS_US = 600_000_000
"""The same of a thread's work, which shows only while I/Os are counted by process."""
_DISCARDS_US = 3600_000_000
"""Time for which a discard now and then doesn't end what was before the first one."""


class QuietTime(NamedTuple):
    """I/Os of a device, and of the devices below it, before work on it began."""

    end_us: int
    """CLOCK_MONOTONIC of the end of the last block without it."""
    loads: Mapping[tuple[str, str], OpLoad]
    """(device, op) -> its I/Os."""


def time_of(block: Block, work: Maintenance) -> int:
    """Return the time in a block for which work of the kernel ran."""
    return block[MAINTENANCE].get(work, 0)


def discard_share(block: Block, device: str) -> float:
    """Return the time of a device's discards, all together, as a multiple of the block's."""
    times = mean_time_of((block,), device, "discard")
    return times.ios * times.mean_us / block.span_us if times is not None and block.span_us else 0.0


def is_without(work: Maintenance) -> Callable[[Block], bool]:
    """Return a test of a block for work not running in it."""
    if work.work == DISCARDS:
        return lambda block: discard_share(block, work.device) <= QUIET_SHARE
    if work.work in WORKS:
        return lambda block: _is_without_thread(block, work)
    return lambda block: not time_of(block, work)


def _is_without_thread(block: Block, work: Maintenance) -> bool:
    share = share_in(block, work)
    return share is not None and share <= QUIET_SHARE


class _Kept(NamedTuple):
    """The time before a work, and when the work last ran."""

    quiet: QuietTime
    ran_us: int


class QuietTimes:
    """The I/Os before each work that runs."""

    def __init__(self) -> None:
        self._kept: dict[Maintenance, _Kept] = {}

    def add_blocks(self, blocks: Sequence[Block], devices: Mapping[str, Device]) -> None:
        """Note the work in the last of these consecutive blocks, which may have begun after those before it."""
        if not blocks:
            return
        newest = blocks[-1]
        for work in _works(newest):
            kept = self._kept.get(work)
            if kept is not None:
                self._kept[work] = kept._replace(ran_us=newest.end_us)
            elif len(self._kept) < _MOST and (quiet := _before(work, blocks, devices)) is not None:
                self._kept[work] = _Kept(quiet, newest.end_us)
        for work in [work for work, kept in self._kept.items() if _is_over(work, kept, newest.end_us)]:
            del self._kept[work]

    def before(self, work: Maintenance) -> QuietTime | None:
        """Return the I/Os before a work began; None where that isn't known."""
        kept = self._kept.get(work)
        return None if kept is None else kept.quiet

    def forget(self, device: str) -> None:
        """Drop what is known of a device that was removed: another device may get its name."""
        for work in [work for work in self._kept if work.device == device]:
            del self._kept[work]


def _works(block: Block) -> Iterator[Maintenance]:
    yield from block[MAINTENANCE]
    yield from (work for work, share in shares(block).items() if share > QUIET_SHARE)
    rows = (row for table in (KERNEL, SEEN) for row in block[table].items())
    for device in {flow.device for flow, done in rows if flow.op == "discard" and done.count}:
        if discard_share(block, device) > QUIET_SHARE:
            yield Maintenance(device, DISCARDS)


def _before(work: Maintenance, blocks: Sequence[Block], devices: Mapping[str, Device]) -> QuietTime | None:
    is_quiet = is_without(work)
    quiet = [block for block in blocks if is_quiet(block)]
    device = devices.get(work.device)
    names = (work.device, *(device.members if device is not None else ()))
    loads = dict(_loads_of(quiet, names))
    return QuietTime(quiet[-1].end_us, loads) if loads else None


def _loads_of(blocks: Sequence[Block], devices: Iterable[str]) -> Iterator[tuple[tuple[str, str], OpLoad]]:
    for device in devices:
        for op in OPS:
            load = op_load(blocks, device, op)
            if load is not None:
                yield (device, op), load


def _is_over(work: Maintenance, kept: _Kept, now_us: int) -> bool:
    is_old = work.work == DISCARDS and now_us - kept.quiet.end_us > _DISCARDS_US
    over_us = _THREADS_US if work.work in WORKS else _OVER_US
    return is_old or now_us - kept.ran_us > over_us
