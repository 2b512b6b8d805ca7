"""Threads of the kernel that do maintenance of a file system or a cache, by the I/Os that they issue themselves.

sysfs has no word of their work. A block in which I/Os were counted by process says whether they ran; of another block
it is known only where the device hardly wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.facts import Block, mean_time_of
from latmon.model.measurements import ISSUERS
from latmon.model.measurements.maintenance import Maintenance

QUIET_SHARE = 0.02
"""Greatest share of a block's time that work takes, all together, in a block without it."""


class ThreadWork(NamedTuple):
    """Work of a thread."""

    name: str
    does: str
    """What the thread does, as the end of a sentence."""
    threads: re.Pattern[str]
    """Names of such threads, of which kernels have at most 15 characters."""


_WORKS = (
    ThreadWork("ext4lazyinit", "zeroes inode tables of a new ext4", re.compile("ext4lazyinit")),
    ThreadWork("f2fs_gc", "collects garbage of f2fs", re.compile(r"f2fs_gc-\d+:\d+")),
    ThreadWork("btrfs-cleaner", "removes deleted snapshots and subvolumes", re.compile("btrfs-cleaner")),
    ThreadWork("bcache_writeback", "writes what bcache has to its disk", re.compile("bcache_writebac?k?")),
)
WORKS: Mapping[str, ThreadWork] = MappingProxyType({work.name: work for work in _WORKS})


def shares(block: Block) -> Mapping[Maintenance, float]:
    """Return the works of threads in a block, with the time of their I/Os, all together, as a share of the block's."""
    return block.once("works of threads", lambda: _shares(block))


def _shares(block: Block) -> dict[Maintenance, float]:
    times_us: dict[Maintenance, int] = {}
    for issuer, done in block[ISSUERS].items():
        work = _work_of(issuer.comm) if issuer.comm else None
        if work is not None and done.latency and done.latency.sum:
            row = Maintenance(issuer.device, work.name)
            times_us[row] = times_us.get(row, 0) + done.latency.sum
    return {row: time_us / max(1, block.span_us) for row, time_us in times_us.items()}


def is_thread_of(work: str, comm: str) -> bool:
    """Return whether a process is a thread of this work."""
    return work in WORKS and WORKS[work].threads.fullmatch(comm) is not None


def share_in(block: Block, row: Maintenance) -> float | None:
    """Return the share of a thread's work in a block; None where it isn't known."""
    share = shares(block).get(row)
    if share is not None:
        return share
    if row.device in _traced_devices(block) or _written_share(block, row.device) <= QUIET_SHARE:
        return 0.0
    return None


def runs(block: Block, row: Maintenance, least: float) -> bool:
    """Return whether the work takes so much of a block; where it isn't known, whether all writes do."""
    share = share_in(block, row)
    return (_written_share(block, row.device) if share is None else share) >= least


def _work_of(comm: str) -> ThreadWork | None:
    return next((work for work in _WORKS if work.threads.fullmatch(comm)), None)


def _traced_devices(block: Block) -> frozenset[str]:
    """Return the devices whose I/Os were counted by process."""
    return block.once(
        "devices with issuers", lambda: frozenset(issuer.device for issuer in block[ISSUERS] if issuer.is_process)
    )


def _written_share(block: Block, device: str) -> float:
    times = mean_time_of((block,), device, "write")
    return times.ios * times.mean_us / block.span_us if times is not None and block.span_us else 0.0
