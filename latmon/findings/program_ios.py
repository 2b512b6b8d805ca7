"""The I/Os of programs on a device: how many each keeps in flight, of which op and size, and for how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from latmon.findings.facts import Block
from latmon.model import measurements
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer

WRITEBACK = "writeback"
"""In place of the name of the kernel's threads that write dirty pages (fs/fs-writeback.c: a workqueue's)."""
KERNEL_THREADS = "the kernel"
"""In place of the names of workers that read, such as those of loop devices (drivers/block/loop.c)."""
_WORKER = "kworker/"


@dataclass(frozen=True, slots=True)
class ProgramIos:
    """I/Os of one op of the processes of a name on a device."""

    name: str
    op: str
    latency: Histogram
    bytes: int
    span_us: int
    """The time in which they were counted."""

    @property
    def mean_us(self) -> float:
        return self.latency.mean or 0.0

    @property
    def time_us(self) -> int:
        """Return the sum of their latencies."""
        return self.latency.sum or 0

    @property
    def mean_bytes(self) -> float:
        return self.bytes / max(1, self.latency.count)

    @property
    def per_s(self) -> float:
        return self.latency.count * 1e6 / max(1, self.span_us)

    @property
    def in_flight(self) -> float:
        """Return how many are in flight on average, by Little's law."""
        return self.time_us / max(1, self.span_us)

    @property
    def is_writeback(self) -> bool:
        return self.name == WRITEBACK

    @property
    def is_of_kernel(self) -> bool:
        """Whether threads of the kernel issued them for somebody else."""
        return self.name in (WRITEBACK, KERNEL_THREADS)


def ios_by_program(blocks: Iterable[Block], device: str) -> list[ProgramIos]:
    """Return the I/Os of each program and op in these blocks, of the time in which I/Os were counted by process."""
    span_us = 0
    latencies: dict[tuple[str, str], list[Histogram]] = defaultdict(list)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for block in blocks:
        of_processes = block.once("issuers of devices", partial(_of_devices, block)).get(device, [])
        if of_processes:
            span_us += block.span_us
        for issuer, done in of_processes:
            if issuer.comm and issuer.comm != OTHERS and done.latency and done.latency.sum is not None:
                key = (_program_name(issuer), issuer.op)
                latencies[key].append(done.latency)
                sizes[key] += done.bytes
    return [ProgramIos(name, op, merge(parts), sizes[name, op], span_us) for (name, op), parts in latencies.items()]


def _of_devices(block: Block) -> dict[str, list[tuple[Issuer, IssuedIO]]]:
    """Return the rows of processes by device, so that rules about each of many devices don't pass all of them."""
    by_device: dict[str, list[tuple[Issuer, IssuedIO]]] = defaultdict(list)
    for issuer, done in block[measurements.ISSUERS].items():
        if issuer.is_process:
            by_device[issuer.device].append((issuer, done))
    return by_device


def _program_name(issuer: Issuer) -> str:
    if not issuer.comm.startswith(_WORKER):
        return issuer.comm
    return WRITEBACK if issuer.op == "write" else KERNEL_THREADS
